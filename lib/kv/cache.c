/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c: a cache open for reading: its records, its layers, and how it is copied to a
 * stream. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <tensorutils/kv.h>

void tu_kv_close(struct tu_kv *kv)
{
    if (!kv)
        return;
    struct tu_arena *arena = kv->arena;
    if (kv->ops->close)
        kv->ops->close(kv);
    tu_arena_free(arena);
}

void *tu_kv_new(size_t size, const struct tu_kv_ops *ops, const char *name,
                struct tu_err *err)
{
    struct tu_arena *arena = tu_arena_new(err);
    struct tu_kv *kv = arena ? tu_arena_alloc(arena, 1, size, err) : NULL;
    if (!kv || !(kv->name = tu_arena_text(arena, name, strlen(name), err))) {
        tu_arena_free(arena);
        return NULL;
    }
    kv->arena = arena;
    kv->ops = ops;
    kv->ids = kv->pos = TU_KV_NONE;
    tu_kv_info_init(&kv->info);
    return kv;
}

int tu_kv_add(struct tu_kv *kv, const char *name, uint32_t dtype, const uint64_t *dim,
              unsigned rank, const char *meta, struct tu_err *err)
{
    if (!(kv->n & (kv->n - 1))) { /* the arena grows the list by doubling */
        size_t room = kv->n ? 2 * kv->n : 1;
        struct tu_tensor *more = tu_arena_alloc(kv->arena, room, sizeof *more, err);
        if (!more)
            return TU_ENOMEM;
        if (kv->n)
            memcpy(more, kv->tensor, kv->n * sizeof *more);
        kv->tensor = more;
    }
    int rc = tu_tensor_make(&kv->tensor[kv->n], kv->arena, name, dtype, dim, rank, meta,
                            err);
    kv->n += !rc;
    return rc;
}

const char *tu_kv_name(const char *name, uint64_t *layer)
{
    static const char *const kinds[] = {"k", "v", "ckv", "kv", NULL};
    if (strncmp(name, "kv.", 3) != 0 || name[3] < '0' || name[3] > '9')
        return NULL;
    char *end;
    unsigned long long n = strtoull(name + 3, &end, 10);
    if (end - name > 12 || *end != '.' || (name[3] == '0' && end != name + 4))
        return NULL;
    for (size_t i = 0; kinds[i]; i++)
        if (!strcmp(end + 1, kinds[i])) {
            *layer = n;
            return kinds[i];
        }
    return NULL;
}

bool tu_kv_latent(const struct tu_tensor *t)
{
    size_t n = strlen(t->name);
    return n > 4 && !strcmp(t->name + n - 4, ".ckv");
}

size_t tu_kv_record(const struct tu_kv *kv, uint64_t layer, enum tu_kv_side side)
{
    return side == TU_KV_K ? kv->layer[layer].k : kv->layer[layer].v;
}

void tu_kv_dims(const struct tu_kv *kv, size_t record, uint64_t *heads, uint64_t *dim)
{
    const struct tu_tensor *t = &kv->tensor[record];
    *heads = t->rank == 3 ? t->dim[1] : 1;
    *dim = t->rank ? t->dim[t->rank - 1] : 1;
}

/* Place record i in the table of layers. */
static int take_layer(struct tu_kv *kv, size_t i, struct tu_err *err)
{
    const struct tu_tensor *t = &kv->tensor[i];
    uint64_t n;
    const char *kind = tu_kv_name(t->name, &n);
    if (!kind)
        return 0;
    struct tu_kv_layer *l = &kv->layer[n];
    bool k = strcmp(kind, "v") != 0, v = *kind == 'v' || !strcmp(kind, "kv");
    if ((k && l->k != TU_KV_NONE) || (v && l->v != TU_KV_NONE))
        return tu_fail(err, TU_EFORMAT, "'%s': layer %" PRIu64 " has it twice", t->name,
                       n);
    if (k)
        l->k = i;
    if (v)
        l->v = i;
    return 0;
}

static int find_layers(struct tu_kv *kv, struct tu_err *err)
{
    uint64_t layers = kv->info.layers, n;
    size_t all = TU_KV_NONE;
    for (size_t i = 0; i < kv->n; i++) {
        if (tu_kv_name(kv->tensor[i].name, &n) && n >= kv->info.layers) {
            if (kv->info.layers)
                return tu_fail(err, TU_ESIZE, "'%s': META kv says %" PRIu64 " layers",
                               kv->tensor[i].name, kv->info.layers);
            layers = tu_max(layers, n + 1);
        }
        if (!strcmp(kv->tensor[i].name, "kv.tokens"))
            kv->ids = i;
        else if (!strcmp(kv->tensor[i].name, "kv.pos"))
            kv->pos = i;
        else if (!strcmp(kv->tensor[i].name, "kv.all"))
            all = i;
    }
    if (layers > 1 << 20)
        return tu_fail(err, TU_ELIMIT, "%" PRIu64 " layers", layers);
    kv->layer = tu_arena_alloc(kv->arena, (size_t)layers + 1, sizeof *kv->layer, err);
    if (!kv->layer)
        return TU_ENOMEM;
    kv->info.layers = layers;
    for (uint64_t i = 0; i < layers; i++)
        kv->layer[i] = (struct tu_kv_layer){all, all};
    int rc = 0;
    for (size_t i = 0; !rc && i < kv->n; i++)
        rc = take_layer(kv, i, err);
    return rc;
}

static int one_row(struct tu_kv *kv, size_t i, struct tu_err *err)
{
    const struct tu_tensor *t = &kv->tensor[i];
    if (t->dtype != TU_I32 || t->rank != 1)
        return tu_fail(err, TU_EDTYPE, "'%s': expected i32 [T]", t->name);
    if (kv->tokens && t->dim[0] != kv->tokens)
        return tu_fail(err, TU_ESIZE, "'%s': %" PRIu64 " tokens, others have %" PRIu64,
                       t->name, t->dim[0], kv->tokens);
    kv->tokens = t->dim[0];
    return 0;
}

/* A record of keys or values in the layout by tokens. Window layers may hold fewer. */
static int check_record(struct tu_kv *kv, size_t i, enum tu_kv_side side,
                        struct tu_err *err)
{
    const struct tu_tensor *t = &kv->tensor[i];
    bool latent = tu_kv_latent(t);
    uint64_t heads, dim, local, *want = side == TU_KV_K ? &kv->info.dim_k
                                                        : &kv->info.dim_v;
    if (t->rank != (latent ? 2 : 3))
        return tu_fail(err, TU_ESIZE, "'%s': %u dimensions, expected %s", t->name,
                       t->rank, latent ? "[T, R]" : "[T, heads, D]");
    tu_kv_dims(kv, i, &heads, &dim);
    if (!heads || !dim)
        return tu_fail(err, TU_ESIZE, "'%s': a dimension is 0", t->name);
    if (!*want)
        *want = dim;
    if (!latent && !kv->info.heads)
        kv->info.heads = heads * kv->info.tp_size;
    if (latent && !kv->info.heads)
        kv->info.heads = 1;
    int rc = latent ? 0 : tu_kv_local_heads(kv->info.heads, kv->info.tp_size, &local, err);
    if (rc) {
        tu_err_prefix(err, "'%s'", t->name);
        return rc;
    }
    if (!latent && heads != local && heads != 0 && kv->info.tp_size > 1)
        return tu_fail(err, TU_ESIZE,
                       "'%s': %" PRIu64 " heads, META kv says %" PRIu64 " on each of %"
                       PRIu64 " ranks",
                       t->name, heads, local, kv->info.tp_size);
    if (t->dim[0] > kv->tokens && (kv->ids != TU_KV_NONE || kv->pos != TU_KV_NONE))
        return tu_fail(err, TU_ESIZE, "'%s': %" PRIu64 " tokens, expected %" PRIu64,
                       t->name, t->dim[0], kv->tokens);
    kv->tokens = tu_max(kv->tokens, t->dim[0]);
    return 0;
}

/* Compressed: its shape is that of codes. */
static bool coded(const struct tu_tensor *t)
{
    return t->meta && strstr(t->meta, "\"quant\":");
}

int tu_kv_finish(struct tu_kv *kv, struct tu_err *err)
{
    int rc = find_layers(kv, err);
    bool pool = *kv->info.layout && strcmp(kv->info.layout, "nhd") != 0;
    if (!rc && kv->ids != TU_KV_NONE)
        rc = one_row(kv, kv->ids, err);
    if (!rc && kv->pos != TU_KV_NONE)
        rc = one_row(kv, kv->pos, err);
    for (uint64_t l = 0; !rc && l < kv->info.layers; l++)
        for (int s = TU_KV_K; !rc && s < TU_KV_SIDES; s++) {
            size_t i = tu_kv_record(kv, l, (enum tu_kv_side)s);
            if (i != TU_KV_NONE && !pool && !kv->info.block && !coded(&kv->tensor[i]))
                rc = check_record(kv, i, (enum tu_kv_side)s, err);
        }
    if (rc)
        tu_err_prefix(err, "%s", kv->name);
    return rc;
}

int tu_kv_read(struct tu_kv *kv, size_t i, uint64_t off, void *buf, size_t n,
               struct tu_err *err)
{
    const struct tu_tensor *t = &kv->tensor[i];
    if (off > t->bytes || n > t->bytes - off)
        return tu_fail(err, TU_EBUG, "'%s': read past its end", t->name);
    int rc = n ? kv->ops->read(kv, i, off, buf, n, err) : 0;
    if (rc)
        tu_err_prefix(err, "%s", kv->name);
    return rc;
}

int tu_kv_load(struct tu_kv *kv, size_t i, void **data, struct tu_err *err)
{
    const struct tu_tensor *t = &kv->tensor[i];
    *data = NULL;
    int rc = kv->ops->verify ? kv->ops->verify(kv, i, err) : 0;
    if (rc) {
        tu_err_prefix(err, "%s", kv->name);
        return rc;
    }
    if (t->bytes > SIZE_MAX || !(*data = tu_alloc((size_t)t->bytes, 1, err)))
        return tu_fail(err, TU_ENOMEM, "'%s': no memory for %" PRIu64 " bytes", t->name,
                       t->bytes);
    rc = tu_kv_read(kv, i, 0, *data, (size_t)t->bytes, err);
    if (rc) {
        tu_free(*data);
        *data = NULL;
    }
    return rc;
}

static int numbers(struct tu_kv *kv, size_t i, int32_t **out, struct tu_err *err)
{
    void *data;
    int rc = tu_kv_load(kv, i, &data, err);
    if (rc)
        return rc;
    int32_t *v = data;
    for (uint64_t k = 0; k < kv->tokens; k++) {
        v[k] = (int32_t)tu_le32((unsigned char *)data + 4 * k);
        if (v[k] < 0) {
            int bad = v[k];
            tu_free(data);
            return tu_fail(err, TU_EFORMAT, "%s: '%s': entry %" PRIu64 " is %d", kv->name,
                           kv->tensor[i].name, k, bad);
        }
    }
    *out = v;
    return 0;
}

int tu_kv_ids(struct tu_kv *kv, int32_t **out, struct tu_err *err)
{
    *out = NULL;
    if (kv->ids == TU_KV_NONE)
        return tu_fail(err, TU_EINCOMPLETE, "%s: no record kv.tokens", kv->name);
    return numbers(kv, kv->ids, out, err);
}

int tu_kv_positions(struct tu_kv *kv, int32_t **out, struct tu_err *err)
{
    *out = NULL;
    if (kv->pos != TU_KV_NONE)
        return numbers(kv, kv->pos, out, err);
    if (!(*out = tu_alloc((size_t)kv->tokens, sizeof **out, err)))
        return TU_ENOMEM;
    for (uint64_t i = 0; i < kv->tokens; i++)
        (*out)[i] = (int32_t)i;
    return 0;
}

int tu_kv_write_info(struct tu_writer *w, const struct tu_kv_info *i, struct tu_err *err)
{
    struct tu_buf text = {0};
    int rc = tu_kv_info_text(&text, i, err);
    if (!rc)
        rc = tu_writer_meta(w, "kv", text.data, text.n, err);
    tu_buf_release(&text);
    return rc;
}

static int write_record(struct tu_kv *kv, size_t i, struct tu_writer *w, void *buf,
                        struct tu_err *err)
{
    const struct tu_tensor *t = &kv->tensor[i];
    struct tu_record rec;
    tu_record_of(&rec, t);
    int rc = tu_writer_record(w, &rec, err);
    for (uint64_t off = 0; !rc && off < t->bytes; off += TU_IO_CHUNK) {
        size_t n = (size_t)tu_min(TU_IO_CHUNK, t->bytes - off);
        rc = tu_kv_read(kv, i, off, buf, n, err);
        if (!rc)
            rc = tu_writer_write(w, buf, n, err);
    }
    return rc;
}

int tu_kv_write(struct tu_kv *kv, struct tu_writer *w, const struct tu_job *job,
                struct tu_err *err)
{
    void *buf = tu_alloc(TU_IO_CHUNK, 1, err);
    int rc = buf ? tu_kv_write_info(w, &kv->info, err) : TU_ENOMEM;
    for (size_t i = 0; !rc && i < kv->metas; i++)
        rc = tu_writer_meta(w, kv->meta[i].topic, kv->meta[i].json, kv->meta[i].n, err);
    for (size_t i = 0; !rc && i < kv->n; i++) {
        if (tu_job_cancelled(job))
            rc = tu_fail(err, TU_ECANCEL, "stopped");
        else if (!kv->ops->verify || !(rc = kv->ops->verify(kv, i, err)))
            rc = write_record(kv, i, w, buf, err);
    }
    if (!rc)
        rc = tu_writer_end(w, false, err);
    tu_free(buf);
    return rc;
}

/* Caches in memory ------------------------------------------------------------------- */

struct memory {
    struct tu_kv base;
    void *const *data;
};

static int memory_read(struct tu_kv *kv, size_t i, uint64_t off, void *buf, size_t n,
                       struct tu_err *err)
{
    (void)err;
    memcpy(buf, (const char *)((struct memory *)kv)->data[i] + off, n);
    return 0;
}

static const struct tu_kv_ops memory_ops = {memory_read, NULL, NULL};

int tu_kv_of_memory(struct tu_kv **out, const struct tu_kv_info *info,
                    const struct tu_tensor *tensor, void *const *data, size_t n,
                    struct tu_err *err)
{
    struct memory *m = tu_kv_new(sizeof *m, &memory_ops, "cache in memory", err);
    *out = NULL;
    if (!m)
        return TU_ENOMEM;
    m->base.info = *info;
    m->data = data;
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++)
        rc = tu_kv_add(&m->base, tensor[i].name, tensor[i].dtype, tensor[i].dim,
                       tensor[i].rank, tensor[i].meta, err);
    if (!rc)
        rc = tu_kv_finish(&m->base, err);
    if (rc)
        tu_kv_close(&m->base);
    else
        *out = &m->base;
    return rc;
}
