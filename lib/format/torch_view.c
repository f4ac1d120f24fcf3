/* SPDX-License-Identifier: Apache-2.0 */
/* torch_view.c: the calls that make tensors, read as strided views into storages.
 *
 * Every number is checked before a byte is read by it: sizes, strides and offsets lie in
 * the storage, and the storage is as long as its record. */
#include <stdio.h>

#include "pickle.h"
#include "torch.h"

#define RANK_MAX TU_RANK_MAX

/* Storages --------------------------------------------------------------------------- */

static bool is_untyped(const char *class)
{
    return !strcmp(class, "torch.storage UntypedStorage") ||
           !strcmp(class, "torch.storage TypedStorage") ||
           !strcmp(class, "torch UntypedStorage");
}

/* Bytes of an element of a storage class; 0 if it is none that can be read. */
static unsigned class_bytes(const char *class)
{
    const struct tui_torch_dtype *d = tui_torch_storage(class);
    return is_untyped(class) ? 1 : d ? tu_dtype_find(d->dtype)->block_bytes : 0;
}

static bool is_count(const struct tu_pnode *node)
{
    return node && node->kind == TU_P_INT && node->integer >= 0;
}

static int zip_storage(struct tui_torch *t, const char *key, size_t *storage,
                       struct tu_err *err)
{
    char name[4096], shown[88];
    int n = snprintf(name, sizeof name, "%s%s", t->prefix, key);
    size_t entry = n < (int)sizeof name ? tu_zip_find(t->zip, name) : SIZE_MAX;
    if (entry == SIZE_MAX)
        return tu_fail(err, TU_EINCOMPLETE, "storage '%s' has no record in the file",
                       tu_text_short(key, strlen(key), shown));
    if (t->by_key[entry]) {
        *storage = t->by_key[entry] - 1;
        return 0;
    }
    int rc = TU_GROW(&t->storage, &t->storage_cap, t->storages, err);
    if (rc < 0)
        return rc;
    const struct tu_zip_entry *e = tu_zip_entry(t->zip, entry);
    *storage = t->storages++;
    t->storage[*storage] = (struct tui_storage){
        .key = key, .entry = entry, .bytes = e->size};
    t->by_key[entry] = *storage + 1;
    if (!e->method) {
        t->storage[*storage].in = t->in;
        t->storage[*storage].off = e->offset;
    }
    return 0;
}

static int legacy_storage(struct tui_torch *t, const char *key, size_t *storage,
                          struct tu_err *err)
{
    char shown[88];
    size_t lo = 0, hi = t->storages;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(t->storage[t->by_key[mid]].key, key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *storage = lo < t->storages ? t->by_key[lo] : SIZE_MAX;
    if (*storage == SIZE_MAX || strcmp(t->storage[*storage].key, key) != 0)
        return tu_fail(err, TU_EINCOMPLETE, "storage '%s' is not in the list of keys",
                       tu_text_short(key, strlen(key), shown));
    return 0;
}

/* (view key, offset, size), or None: a storage within a storage, as torch 0.x had them.
 */
static bool read_sub_storage(const struct tu_pnode *meta, uint64_t numel, uint64_t *off,
                             uint64_t *size)
{
    *off = 0;
    *size = numel;
    if (!meta || meta->kind == TU_P_NONE)
        return true;
    if (meta->kind != TU_P_TUPLE || meta->n != 3 || !is_count(meta->item[1]) ||
        !is_count(meta->item[2]))
        return false;
    *off = (uint64_t)meta->item[1]->integer;
    *size = (uint64_t)meta->item[2]->integer;
    return *off <= numel && *size <= numel - *off;
}

int tui_torch_use(struct tui_torch *t, const struct tu_pnode *persid, size_t *storage,
                  uint64_t *view_off, uint64_t *view_numel, struct tu_err *err)
{
    const struct tu_pnode *id = persid && persid->kind == TU_P_PERSID ? persid->item[0]
                                                                      : NULL;
    char shown[88];
    if (!id || id->kind != TU_P_TUPLE || id->n < 5 || id->n > 6 ||
        id->item[0]->kind != TU_P_TEXT || strcmp(id->item[0]->text, "storage") != 0 ||
        id->item[1]->kind != TU_P_GLOBAL || id->item[2]->kind != TU_P_TEXT ||
        strlen(id->item[2]->text) != id->item[2]->n || !is_count(id->item[4]))
        return tu_fail(err, TU_EFORMAT, "malformed storage");
    const char *class = id->item[1]->text, *key = id->item[2]->text;
    uint64_t numel = (uint64_t)id->item[4]->integer, bytes;
    unsigned elem = class_bytes(class);
    if (!elem)
        return tu_fail(err, TU_EUNSUP, "a storage of class '%s'",
                       tu_text_short(class, strlen(class), shown));
    if (tu_mul_over(numel, elem, &bytes) ||
        !read_sub_storage(tui_pnode_item(id, 5), numel, view_off, view_numel))
        return tu_fail(err, TU_ESIZE, "storage '%s' of impossible size",
                       tu_text_short(key, strlen(key), shown));
    int rc = t->zip ? zip_storage(t, key, storage, err)
                    : legacy_storage(t, key, storage, err);
    if (rc < 0)
        return rc;
    struct tui_storage *s = &t->storage[*storage];
    if (s->class && (strcmp(s->class, class) != 0 || s->numel != numel))
        return tu_fail(err, TU_EFORMAT, "storage '%s' is used as two types or sizes",
                       tu_text_short(key, strlen(key), shown));
    if (t->zip && s->bytes != bytes)
        return tu_fail(err, TU_ESIZE,
                       "storage '%s': %llu elements need %llu bytes, its record has "
                       "%llu",
                       tu_text_short(key, strlen(key), shown), (unsigned long long)numel,
                       (unsigned long long)bytes, (unsigned long long)s->bytes);
    s->class = class;
    s->numel = numel;
    s->bytes = bytes;
    return 0;
}

/* Views ------------------------------------------------------------------------------ */

/* The numbers of a tuple, or of torch.Size(tuple). */
static int read_numbers(const struct tu_pnode *node, int64_t *v, unsigned *n,
                        struct tu_err *err)
{
    if (node && node->kind == TU_P_CALL && !strcmp(tui_pnode_class(node), "torch Size"))
        node = tui_pnode_item(node->item[TU_P_ARGS], 0);
    if (!node || (node->kind != TU_P_TUPLE && node->kind != TU_P_LIST))
        return tu_fail(err, TU_EFORMAT, "sizes and strides must be tuples");
    if (node->n > RANK_MAX)
        return tu_fail(err, TU_ELIMIT, "%zu dimensions, at most %d", node->n, RANK_MAX);
    for (size_t i = 0; i < node->n; i++) {
        if (!is_count(node->item[i]))
            return tu_fail(err, TU_EFORMAT,
                           "sizes and strides must be numbers, and not negative");
        v[i] = node->item[i]->integer;
    }
    *n = (unsigned)node->n;
    return 0;
}

/* C order without gaps; dimensions of one element have no say. */
static bool is_flat(const struct tui_view *v)
{
    uint64_t step = 1;
    for (unsigned i = v->rank; v->numel && i-- > 0;) {
        if (v->extent[i] != 1 && (uint64_t)v->stride[i] != step)
            return false;
        step *= v->extent[i];
    }
    return true;
}

/* Number of elements from the view's first to behind its last. */
static bool span_over(const struct tui_view *v, uint64_t *span)
{
    *span = v->numel ? 1 : 0;
    for (unsigned i = 0; v->numel && i < v->rank; i++) {
        uint64_t reach;
        if (tu_mul_over(v->extent[i] - 1, (uint64_t)v->stride[i], &reach) ||
            tu_add_over(*span, reach, span))
            return true;
    }
    return false;
}

static int check_bounds(struct tui_torch *t, struct tui_view *v, uint64_t offset,
                        uint64_t sub_off, uint64_t sub_numel, struct tu_err *err)
{
    const struct tui_storage *s = &t->storage[v->storage];
    unsigned unit = class_bytes(s->class);
    uint64_t span, end, room = sub_numel * unit / v->elem;
    char shown[88];
    if (span_over(v, &span) || tu_add_over(offset, span, &end) ||
        (v->numel && end > room))
        return tu_fail(err, TU_ESIZE, "reaches past the %llu elements of storage '%s'",
                       (unsigned long long)room,
                       tu_text_short(s->key, strlen(s->key), shown));
    v->offset = v->numel ? sub_off * unit + offset * v->elem : 0;
    return 0;
}

/* (dims, strides) into the arena; packed dtypes count two elements in the last one of
 * torch's. */
static int read_shape(struct tui_torch *t, struct tui_view *v,
                      const struct tui_torch_dtype *d, const struct tu_pnode *size,
                      const struct tu_pnode *stride, struct tu_err *err)
{
    int64_t dims[RANK_MAX], strides[RANK_MAX];
    unsigned rank = 0, n = 0;
    int rc = read_numbers(size, dims, &rank, err);
    if (rc == 0)
        rc = read_numbers(stride, strides, &n, err);
    if (rc < 0)
        return rc;
    if (rank != n)
        return tu_fail(err, TU_EFORMAT, "%u sizes and %u strides", rank, n);
    uint64_t *dim = tu_arena_alloc(t->base.arena, 3 * (size_t)rank + 1, sizeof *dim, err);
    if (!dim)
        return TU_ENOMEM;
    uint64_t *extent = dim + rank;
    int64_t *step = (int64_t *)(extent + rank);
    for (unsigned i = 0; i < rank; i++) {
        dim[i] = extent[i] = (uint64_t)dims[i];
        step[i] = strides[i];
    }
    v->rank = rank;
    v->dim = dim;
    v->extent = extent;
    v->stride = step;
    rc = tu_elements(extent, rank, &v->numel, err);
    if (rc == 0 && d->pack > 1) {
        if (!rank || !is_flat(v) || extent[rank - 1] > TU_SIZE_MAX / d->pack)
            return tu_fail(err, TU_EUNSUP, "%s that is not contiguous", d->name);
        dim[rank - 1] *= d->pack;
    }
    return rc < 0 ? rc : tu_tensor_bytes(v->dtype, dim, rank, &v->bytes, err);
}

/* {'conj': True, 'neg': True}: bits of the tensor that its bytes do not show. */
static int read_bits(struct tui_view *v, const struct tu_pnode *bits, struct tu_err *err)
{
    if (!bits || bits->kind == TU_P_NONE)
        return 0;
    if (bits->kind != TU_P_DICT)
        return tu_fail(err, TU_EFORMAT, "malformed metadata");
    for (size_t i = 0; i < bits->n; i += 2) {
        const struct tu_pnode *key = bits->item[i], *value = bits->item[i + 1];
        const char *name = key->kind == TU_P_TEXT ? key->text : "?";
        bool conj = !strcmp(name, "conj"), neg = !strcmp(name, "neg");
        bool complex = v->dtype == TU_C64 || v->dtype == TU_C128;
        if (value->kind == TU_P_BOOL && !value->integer)
            continue;
        if (value->kind != TU_P_BOOL || !(conj || neg) || (conj && !complex) ||
            (neg && !complex && !(tu_dtype_is_float(v->dtype) && v->elem > 1)))
            return tu_fail(err, TU_EUNSUP, "metadata that is not known here");
        v->conj |= conj;
        v->neg |= neg;
    }
    return 0;
}

/* What the calls are ----------------------------------------------------------------- */

/* Where a call keeps its arguments; 0 where it has none. */
struct maker {
    const char *name;
    unsigned least;    /* arguments it must have */
    unsigned dtype;    /* position of the dtype, 0: the storage's */
    unsigned bits;     /* position of the metadata, 0: none */
    const char *alien; /* a kind of tensor that is refused, or NULL */
};

static const struct maker makers[] = {
    {"torch._utils _rebuild_tensor_v2", 6, 0, 6, NULL},
    {"torch._utils _rebuild_tensor", 4, 0, 0, NULL},
    {"torch._utils _rebuild_tensor_v3", 7, 6, 7, NULL},
    {"torch._utils _rebuild_meta_tensor_no_storage", 0, 0, 0,
     "a meta tensor, which has a shape but no data"},
    {"torch._utils _rebuild_sparse_tensor", 0, 0, 0, "a sparse tensor"},
    {"torch._utils _rebuild_sparse_csr_tensor", 0, 0, 0, "a sparse tensor"},
    {"torch._utils _rebuild_nested_tensor", 0, 0, 0, "a nested tensor"},
    {"torch._utils _rebuild_qtensor", 0, 0, 0, "a quantised tensor"},
    {"torch._utils _rebuild_wrapper_subclass", 0, 0, 0, "a wrapper subclass of Tensor"},
    {"torch._utils _rebuild_", 0, 0, 0, "a tensor of a kind that is not known here"},
};

static const struct maker *maker_of(const char *name)
{
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        size_t n = strlen(makers[i].name);
        bool prefix = makers[i].name[n - 1] == '_';
        if (prefix ? !strncmp(name, makers[i].name, n) : !strcmp(name, makers[i].name))
            return &makers[i];
    }
    return NULL;
}

static int build(struct tui_torch *t, const struct maker *m, const struct tu_pnode *args,
                 struct tui_view *v, struct tu_err *err)
{
    uint64_t sub_off, sub_numel;
    if (args->n < m->least)
        return tu_fail(err, TU_EFORMAT, "%s with %zu arguments", m->name, args->n);
    int rc = tui_torch_use(t, args->item[0], &v->storage, &sub_off, &sub_numel, err);
    if (rc < 0)
        return rc;
    const char *class = t->storage[v->storage].class;
    const struct tui_torch_dtype *d = tui_torch_storage(class);
    if (m->dtype) {
        const char *name = tui_pnode_class(args->item[m->dtype]);
        char shown[88];
        d = tui_torch_named(name);
        if (!d)
            return tu_fail(err, TU_EDTYPE, "a tensor of '%s'",
                           tu_text_short(name, strlen(name), shown));
    } else if (!d) {
        d = tui_torch_dtype(TU_U8); /* an untyped storage counts bytes */
    }
    v->dtype = d->dtype;
    v->elem = tu_dtype_find(d->dtype)->block_bytes;
    if (!is_count(args->item[1]))
        return tu_fail(err, TU_EFORMAT, "malformed offset");
    rc = read_shape(t, v, d, args->item[2], args->item[3], err);
    if (rc == 0)
        rc = check_bounds(t, v, (uint64_t)args->item[1]->integer, sub_off, sub_numel,
                          err);
    if (rc == 0 && m->bits)
        rc = read_bits(v, tui_pnode_item(args, m->bits), err);
    v->flat = is_flat(v);
    return rc;
}

/* The local tensor in a DTensor's state: a dict, or a tuple with one. */
static const struct tu_pnode *local_tensor(const struct tu_pnode *state)
{
    const struct tu_pnode *found = NULL;
    if (state && state->kind == TU_P_DICT)
        return tu_pnode_get(state, "_local_tensor");
    for (size_t i = 0; state && state->kind == TU_P_TUPLE && !found && i < state->n; i++)
        found = tu_pnode_get(state->item[i], "_local_tensor");
    return found;
}

static bool is_dtensor(const struct tu_pnode *type)
{
    const char *name = type ? tui_pnode_class(type) : "";
    return !strncmp(name, "torch.distributed.", 18) && strlen(name) > 8 &&
           !strcmp(name + strlen(name) - 8, " DTensor");
}

int tui_torch_view(struct tui_torch *t, const struct tu_pnode *call,
                   struct tui_view *view, bool *yes, struct tu_err *err)
{
    *yes = false;
    *view = (struct tui_view){0};
    for (int depth = 0; depth < 8 && call && call->kind == TU_P_CALL; depth++) {
        const char *name = tui_pnode_class(call);
        const struct tu_pnode *args = call->item[TU_P_ARGS];
        if (!strcmp(name, "torch._utils _rebuild_parameter") ||
            !strcmp(name, "torch._utils _rebuild_parameter_with_state")) {
            call = tui_pnode_item(args, 0);
            continue;
        }
        if (!strcmp(name, "torch._tensor _rebuild_from_type_v2") && args->n >= 4 &&
            args->item[2]->kind == TU_P_TUPLE) {
            const struct tu_pnode *local = local_tensor(args->item[3]);
            if (local && is_dtensor(args->item[1])) {
                call = local;
                continue;
            }
            name = tui_pnode_class(args->item[0]);
            args = args->item[2];
        }
        const struct maker *m = maker_of(name);
        if (!m)
            return 0;
        *yes = true;
        if (m->alien)
            return tu_fail(err, TU_EUNSUP, "%s ('%s')", m->alien, name);
        return build(t, m, args, view, err);
    }
    return 0;
}
