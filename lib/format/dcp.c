/* SPDX-License-Identifier: Apache-2.0 */
/* dcp.c: PyTorch's distributed checkpoints: a folder of `.metadata` (a pickle) and
 * `__R_N.distcp` files, each a sequence of torch.save archives.
 *
 * Every chunk of a tensor is a tensor of the source, with its place in the whole as
 * `shard` metadata; objects that are no tensors are kept as META "dcp". The recorded
 * offsets are the truth, never recomputed. Source: pytorch
 * torch/distributed/checkpoint/{metadata,filesystem}.py. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "kit.h"
#include "pickle.h"
#include "rows.h"
#include "torch.h"

#define METADATA_MAX ((size_t)1 << 30)
#define PICKLE_MAX ((size_t)64 << 20) /* of one chunk */

struct dcp_file {
    const char *name;
    struct tu_in *in;
};

struct dcp {
    struct tu_source base;
    struct dcp_file *file;
    size_t files, file_cap;
    struct tu_tensor *tensor;
    struct tu_extent *extent;
    uint64_t *crc;
    size_t n;
    struct tu_names *places; /* "NAME|off,off" to numbers of `place` */
    const struct tu_pnode **place;
    size_t place_cap, place_n;
    json_t *objects;
};

static int dcp_read(struct tu_source *s, size_t i, uint64_t off, void *buf, size_t n,
                    struct tu_err *err)
{
    struct dcp *d = (struct dcp *)s;
    return tu_in_pread(d->extent[i].in, d->extent[i].off + off, buf, n, err);
}

static void dcp_close(struct tu_source *s)
{
    struct dcp *d = (struct dcp *)s;
    for (size_t i = 0; i < d->files; i++)
        tu_in_close(d->file[i].in);
    tu_free(d->file);
    tu_names_free(d->places);
    tu_free(d->place);
    json_decref(d->objects);
    tui_source_free(s);
}

static const struct tu_source_ops ops = {dcp_read, NULL, NULL, dcp_close};

/* A file of the folder, opened once. Its name may not lead out of it. */
static int file_of(struct dcp *d, const char *name, struct tu_in **out,
                   struct tu_err *err)
{
    char shown[88];
    for (size_t i = d->files; i-- > 0;)
        if (!strcmp(d->file[i].name, name)) {
            *out = d->file[i].in;
            return 0;
        }
    if (!*name || *name == '/' || strstr(name, ".."))
        return tu_fail(err, TU_EFORMAT, "a chunk is said to be in '%s'",
                       tu_text_short(name, strlen(name), shown));
    int rc = TU_GROW(&d->file, &d->file_cap, d->files, err);
    char *path =
        rc ? NULL : tu_arena_printf(d->base.arena, err, "%s/%s", d->base.path, name);
    if (rc || !path)
        return TU_ENOMEM;
    rc = tu_file_expect(path, err, "a chunk is expected in it");
    if (!rc)
        rc = tu_in_open(out, path, err);
    if (!rc)
        d->file[d->files++] = (struct dcp_file){path + strlen(d->base.path) + 1,
                                                *out}; /* the pickle does not last */
    return rc;
}

static uint64_t number(const struct tu_pnode *v)
{
    return v && v->kind == TU_P_INT && v->integer >= 0 ? (uint64_t)v->integer
                                                       : UINT64_MAX;
}

/* torch.Size as dimensions. */
static int dims_of(const struct tu_pnode *v, uint64_t *dim, unsigned *rank,
                   struct tu_err *err)
{
    if (v && v->kind == TU_P_CALL)
        v = tui_pnode_item(tui_pnode_item(v, TU_P_ARGS), 0);
    if (!v || (v->kind != TU_P_TUPLE && v->kind != TU_P_LIST) || v->n > TU_RANK_MAX)
        return tu_fail(err, TU_EFORMAT, "a size is no torch.Size");
    *rank = (unsigned)v->n;
    for (size_t i = 0; i < v->n; i++)
        if ((dim[i] = number(v->item[i])) == UINT64_MAX)
            return tu_fail(err, TU_EFORMAT, "a dimension is no number");
    return 0;
}

/* "NAME|3,0". */
static int key_of(struct tu_buf *out, const char *name, const uint64_t *off,
                  unsigned rank, struct tu_err *err)
{
    tu_buf_reset(out);
    int rc = tu_buf_printf(out, err, "%s|", name);
    for (unsigned i = 0; i < rank && !rc; i++)
        rc = tu_buf_printf(out, err, "%llu,", (unsigned long long)off[i]);
    return rc;
}

/* storage_data by name and offset; the index in the key is a hint only. */
static int index_places(struct dcp *d, const struct tu_pnode *data, struct tu_err *err)
{
    struct tu_buf key = {0};
    int rc = (d->places = tu_names_new(err)) ? 0 : TU_ENOMEM;
    if (!rc && (!data || data->kind != TU_P_DICT))
        rc = tu_fail(err, TU_EFORMAT, "no storage_data");
    for (size_t i = 0; !rc && i + 1 < data->n; i += 2) {
        const struct tu_pnode *name = tu_pnode_get(data->item[i], "fqn"),
                              *off = tu_pnode_get(data->item[i], "offset");
        uint64_t dim[TU_RANK_MAX];
        unsigned rank = 0;
        if (!name || name->kind != TU_P_TEXT)
            rc = tu_fail(err, TU_EFORMAT, "storage_data: a key has no name");
        if (!rc && off && off->kind != TU_P_NONE)
            rc = dims_of(off, dim, &rank, err);
        if (!rc)
            rc = key_of(&key, name->text, dim, rank, err);
        if (!rc && tu_names_get(d->places, key.data) != TU_NAMES_NONE)
            rc = tu_fail(err, TU_EFORMAT, "a chunk of '%.80s' is stored twice",
                         name->text);
        char *text = rc ? NULL : tu_arena_text(d->base.arena, key.data, key.n, err);
        if (!rc)
            rc = text ? tu_names_put(d->places, text, (uint32_t)d->place_n, err)
                      : TU_ENOMEM;
        if (!rc)
            rc = TU_GROW(&d->place, &d->place_cap, d->place_n, err);
        if (!rc)
            d->place[d->place_n++] = data->item[i + 1];
    }
    tu_buf_release(&key);
    return rc;
}

/* The archive of one chunk. */
static int open_chunk(struct dcp *d, const char *name, const uint64_t *off, unsigned rank,
                      struct tu_zip **zip, struct tu_in **in, struct tu_err *err)
{
    struct tu_buf key = {0};
    int rc = key_of(&key, name, off, rank, err);
    uint32_t i = rc ? TU_NAMES_NONE : tu_names_get(d->places, key.data);
    tu_buf_release(&key);
    if (rc || i == TU_NAMES_NONE)
        return rc ? rc : tu_fail(err, TU_EINCOMPLETE, "a chunk of it is stored nowhere");
    const struct tu_pnode *path = tu_pnode_get(d->place[i], "relative_path"),
                          *how = tu_pnode_get(d->place[i], "transform_descriptors");
    uint64_t at = number(tu_pnode_get(d->place[i], "offset")),
             size = number(tu_pnode_get(d->place[i], "length"));
    if (!path || path->kind != TU_P_TEXT || at == UINT64_MAX || size == UINT64_MAX)
        return tu_fail(err, TU_EFORMAT, "where a chunk of it is stored cannot be read");
    if (how && how->kind != TU_P_NONE &&
        !((how->kind == TU_P_LIST || how->kind == TU_P_TUPLE) && !how->n))
        return tu_fail(err, TU_EUNSUP,
                       "stored through a transform (compression), which is not read");
    rc = file_of(d, path->text, in, err);
    if (!rc && (!size || at + size > tu_in_size(*in))) /* both are below 2^63 */
        rc = tu_fail(err, TU_ETRUNC,
                     "it is said to be at byte %llu of %.120s, %llu long, and the file has %llu "
                     "bytes",
                     (unsigned long long)at, path->text, (unsigned long long)size,
                     (unsigned long long)tu_in_size(*in));
    return rc ? rc : tu_zip_open(zip, *in, at, size, err);
}

/* The entry whose name ends so. */
static size_t entry_of(const struct tu_zip *z, const char *suffix)
{
    size_t m = strlen(suffix);
    for (size_t i = 0; i < tu_zip_count(z); i++) {
        const char *name = tu_zip_entry(z, i)->name;
        size_t n = strlen(name);
        if (n > m && !strcmp(name + n - m, suffix))
            return i;
    }
    return SIZE_MAX;
}

static int pickle_of(struct tu_zip *z, struct tu_pickle **out, struct tu_err *err)
{
    size_t i = entry_of(z, "/data.pkl"), n, used;
    void *text = NULL;
    int rc = i == SIZE_MAX ? tu_fail(err, TU_EFORMAT, "no data.pkl") : 0;
    if (!rc)
        rc = tu_zip_load(z, i, PICKLE_MAX, true, &text, &n, err);
    if (!rc)
        rc = tu_pickle_read(out, text, n, NULL, &used, err);
    tu_free(text);
    return rc;
}

/* Is the pickled tensor the whole of its storage, in C order? */
static bool is_plain(const struct tu_pnode *v, const struct tu_tensor *t)
{
    unsigned pack = tui_torch_dtype(t->dtype)->pack;
    const char *class = tui_pnode_class(v);
    uint64_t dim[TU_RANK_MAX], stride[TU_RANK_MAX], want = 1;
    unsigned rank, strides;
    struct tu_err err;
    const struct tu_pnode *args = tui_pnode_item(v, TU_P_ARGS);
    if (!strcmp(class, "torch._utils _rebuild_parameter")) {
        v = tui_pnode_item(args, 0);
        class = tui_pnode_class(v);
        args = tui_pnode_item(v, TU_P_ARGS);
    }
    if (strncmp(class, "torch._utils _rebuild_tensor_v", 30) ||
        number(tui_pnode_item(args, 1)) != 0 ||
        dims_of(tui_pnode_item(args, 2), dim, &rank, &err) ||
        dims_of(tui_pnode_item(args, 3), stride, &strides, &err) || rank != t->rank ||
        strides != rank)
        return false;
    for (unsigned i = rank; i-- > 0; want *= dim[i])
        if (dim[i] != t->dim[i] / (i + 1 == rank ? pack : 1) ||
            (dim[i] > 1 && stride[i] != want))
            return false;
    return true;
}

static int add_chunk(struct dcp *d, const char *name, const uint64_t *off,
                     struct tu_tensor *t, struct tu_err *err)
{
    struct tu_zip *z = NULL;
    struct tu_pickle *p = NULL;
    struct tu_in *in = NULL;
    int rc = open_chunk(d, name, off, t->rank, &z, &in, err);
    if (!rc)
        rc = pickle_of(z, &p, err);
    size_t i = rc ? SIZE_MAX : entry_of(z, "/data/0");
    const struct tu_zip_entry *e = i == SIZE_MAX ? NULL : tu_zip_entry(z, i);
    if (!rc && !e)
        rc = tu_fail(err, TU_EFORMAT, "its archive holds no tensor");
    if (!rc && (e->method || e->size != t->bytes || !is_plain(tu_pickle_root(p), t)))
        rc = tu_fail(err, TU_EUNSUP,
                     "it is a view of %llu stored bytes, not %llu in C order",
                     (unsigned long long)e->size, (unsigned long long)t->bytes);
    if (!rc) {
        d->tensor[d->n] = *t;
        d->extent[d->n] = (struct tu_extent){in, e->offset};
        d->crc[d->n++] = e->crc;
    }
    tu_pickle_free(p);
    tu_zip_close(z);
    return rc;
}

/* `shard` metadata of a chunk that is not the whole. */
static int shard_meta(struct dcp *d, const uint64_t *off, const uint64_t *global,
                      struct tu_tensor *t, struct tu_err *err)
{
    struct tu_buf b = {0};
    struct tu_jw w;
    bool whole = true;
    for (unsigned i = 0; i < t->rank; i++)
        whole &= !off[i] && t->dim[i] == global[i];
    if (whole)
        return 0;
    tu_jw_begin(&w, &b);
    tu_jw_open(&w, NULL, '{');
    tu_jw_open(&w, "shard", '{');
    tu_jw_dims(&w, "global", global, t->rank);
    tu_jw_dims(&w, "offset", off, t->rank);
    tu_jw_close(&w, '}');
    tu_jw_close(&w, '}');
    int rc = tu_jw_end(&w, err);
    if (!rc && !(t->meta = tu_arena_text(d->base.arena, b.data, b.n, err)))
        rc = TU_ENOMEM;
    tu_buf_release(&b);
    return rc;
}

static const struct tui_torch_dtype *dtype_of(const struct tu_pnode *properties)
{
    const struct tu_pnode *state = tui_pnode_item(properties, TU_P_STATE);
    const struct tu_pnode *v = state && state->kind == TU_P_DICT
                                   ? tu_pnode_get(state, "dtype")
                                   : tui_pnode_item(state, 0);
    return v && v->kind == TU_P_GLOBAL ? tui_torch_named(v->text) : NULL;
}

/* Dimensions in torch's elements, each of which packs as many of ours. */
static int unpack(uint64_t *dim, unsigned rank, unsigned pack, struct tu_err *err)
{
    if (pack > 1 && !rank)
        return tu_fail(err, TU_EUNSUP, "a packed dtype without a dimension");
    if (pack > 1)
        dim[rank - 1] *= pack; /* below 2^63 before */
    return 0;
}

static int add_tensor(struct dcp *d, const char *name, const struct tu_pnode *v,
                      struct tu_err *err)
{
    const struct tu_pnode *chunks = tu_pnode_get(v, "chunks");
    const struct tui_torch_dtype *dtype = dtype_of(tu_pnode_get(v, "properties"));
    uint64_t global[TU_RANK_MAX];
    unsigned rank;
    struct tu_tensor t;
    int rc = dims_of(tu_pnode_get(v, "size"), global, &rank, err);
    if (!rc && (!dtype || !chunks || chunks->kind != TU_P_LIST))
        rc =
            tu_fail(err, TU_EUNSUP, "a dtype or a list of chunks that is not understood");
    if (!rc)
        rc = unpack(global, rank, dtype->pack, err);
    if (!rc)
        rc = tu_tensor_make(&t, d->base.arena, name, dtype->dtype, global, rank, NULL, err);
    if (!rc && !t.bytes) { /* empty, with a chunk or without */
        d->tensor[d->n] = t;
        d->extent[d->n] = (struct tu_extent){NULL, 0};
        d->crc[d->n++] = 0;
        return 0;
    }
    for (size_t i = 0; !rc && i < chunks->n; i++) {
        uint64_t off[TU_RANK_MAX], dim[TU_RANK_MAX];
        unsigned a, b;
        rc = dims_of(tu_pnode_get(chunks->item[i], "offsets"), off, &a, err);
        if (!rc)
            rc = dims_of(tu_pnode_get(chunks->item[i], "sizes"), dim, &b, err);
        if (!rc && (a != rank || b != rank))
            rc = tu_fail(err, TU_EFORMAT, "a chunk of another rank");
        if (!rc)
            rc = unpack(dim, rank, dtype->pack, err);
        if (!rc && rank)
            off[rank - 1] *= dtype->pack;
        for (unsigned k = 0; k < rank && !rc; k++)
            if (off[k] + dim[k] > global[k]) /* none reaches 2^63 */
                rc = tu_fail(err, TU_EFORMAT, "a chunk that reaches out of the tensor");
        if (!rc)
            rc = tu_tensor_make(&t, d->base.arena, name, dtype->dtype, dim, rank, NULL,
                                err);
        if (!rc)
            rc = shard_meta(d, off, global, &t, err);
        if (!rc && t.bytes)
            rc = add_chunk(d, name, off, &t, err);
    }
    return rc;
}

/* A value that is no tensor: kept where it is small and plain. */
static int add_object(struct dcp *d, const char *name, struct tu_err *err)
{
    struct tu_zip *z = NULL;
    struct tu_pickle *p = NULL;
    struct tu_in *in;
    json_t *value = NULL;
    int rc = open_chunk(d, name, NULL, 0, &z, &in, err);
    if (!rc)
        rc = pickle_of(z, &p, err);
    if (!rc)
        rc = tui_torch_json(&value, tu_pickle_root(p), err);
    else if (rc != TU_ENOMEM && rc != TU_EIO && rc != TU_EINCOMPLETE)
        rc = 0; /* bytes that torch.save did not write */
    if (!rc && value)
        rc = tu_json_set(d->objects, name, strlen(name), value, err);
    tu_pickle_free(p);
    tu_zip_close(z);
    return rc;
}

static size_t count_chunks(const struct tu_pnode *all)
{
    size_t n = 0;
    for (size_t i = 0; i + 1 < all->n; i += 2) {
        const struct tu_pnode *chunks = tu_pnode_get(all->item[i + 1], "chunks");
        n += chunks ? chunks->n : 0;
    }
    return n + all->n / 2; /* an empty tensor may have none */
}

static bool is_class(const struct tu_pnode *v, const char *class)
{
    const char *name = tui_pnode_class(v), *space = strchr(name, ' ');
    return space && !strcmp(space + 1, class);
}

static int add_all(struct dcp *d, const struct tu_pnode *all, struct tu_err *err)
{
    if (!all || all->kind != TU_P_DICT)
        return tu_fail(err, TU_EFORMAT, "no state_dict_metadata");
    size_t n = count_chunks(all);
    d->tensor = tu_arena_alloc(d->base.arena, n + 1, sizeof *d->tensor, err);
    d->extent = tu_arena_alloc(d->base.arena, n + 1, sizeof *d->extent, err);
    d->crc = tu_arena_alloc(d->base.arena, n + 1, sizeof *d->crc, err);
    if (!d->tensor || !d->extent || !d->crc)
        return TU_ENOMEM;
    int rc = 0;
    for (size_t i = 0; i + 1 < all->n && !rc; i += 2) {
        const char *name = all->item[i]->kind == TU_P_TEXT ? all->item[i]->text : NULL;
        const struct tu_pnode *v = all->item[i + 1];
        if (!name)
            rc = tu_fail(err, TU_EFORMAT, "a name is no text");
        else if (is_class(v, "TensorStorageMetadata"))
            rc = add_tensor(d, name, v, err);
        else if (is_class(v, "BytesStorageMetadata"))
            rc = add_object(d, name, err);
        else
            rc = tu_fail(err, TU_EUNSUP, "a '%.60s', not a tensor or an object",
                         tui_pnode_class(v));
        if (rc && name && tu_err_status(rc) == 3)
            tu_err_prefix(err, "'%.80s'", name);
    }
    return rc;
}

static int keep_objects(struct dcp *d, struct tu_err *err)
{
    struct tu_buf b = {0};
    json_t *root = json_pack("{sO}", "objects", d->objects);
    int rc =
        root ? tu_json_dump(&b, root, err) : tu_fail(err, TU_ENOMEM, "out of memory");
    if (!rc && b.n < TUI_META_MAX)
        rc = tui_source_meta(&d->base, "dcp", b.data, b.n, err);
    json_decref(root);
    tu_buf_release(&b);
    return rc;
}

static bool is_listed(const struct dcp *d, const char *name)
{
    for (size_t i = 0; i < d->files; i++)
        if (!strcmp(d->file[i].name, name))
            return true;
    for (size_t i = 0; i < d->place_n; i++) { /* of what is empty no file is opened */
        const struct tu_pnode *at = tu_pnode_get(d->place[i], "relative_path");
        if (at && at->kind == TU_P_TEXT && !strcmp(at->text, name))
            return true;
    }
    return false;
}

/* Files of chunks that .metadata does not know may be of another save: the first is told. */
static void warn_unlisted(const struct dcp *d, const struct tu_job *job)
{
    char first[256] = "";
    DIR *dir = opendir(d->base.path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const char *dot = strrchr(e->d_name, '.');
        if (dot && !strcmp(dot, ".distcp") && (!*first || strcmp(e->d_name, first) < 0) &&
            !is_listed(d, e->d_name))
            snprintf(first, sizeof first, "%s", e->d_name);
    }
    if (dir)
        closedir(dir);
    if (*first)
        tu_job_warn(job, "%s/.metadata: does not list '%s', which lies beside it", d->base.path,
                    first);
}

static int read_metadata(struct dcp *d, const struct tu_job *job, struct tu_err *err)
{
    char *path = tu_arena_printf(d->base.arena, err, "%s/.metadata", d->base.path),
         *text = NULL;
    struct tu_pickle *p = NULL;
    size_t n, used;
    int rc = path ? tu_file_expect(path, err, "it says which chunk is in which file")
                  : TU_ENOMEM;
    if (!rc)
        rc = tu_file_read(path, METADATA_MAX, &text, &n, err);
    if (!rc)
        rc = tu_pickle_read(&p, text, n, NULL, &used, err);
    const struct tu_pnode *root = p ? tu_pickle_root(p) : NULL;
    if (!rc && !is_class(root, "Metadata"))
        rc = tu_fail(err, TU_EFORMAT, "no Metadata of torch.distributed.checkpoint");
    if (!rc)
        rc = index_places(d, tu_pnode_get(root, "storage_data"), err);
    if (!rc)
        rc = add_all(d, tu_pnode_get(root, "state_dict_metadata"), err);
    if (rc && tu_err_status(rc) == 3)
        tu_err_prefix(err, "%s", path);
    if (!rc)
        warn_unlisted(d, job);
    tu_pickle_free(p);
    tu_free(text);
    return rc;
}

static int dcp_open(struct tu_source **out, const char *path, const struct tu_open *how,
                    const struct tu_job *job, struct tu_err *err)
{
    struct dcp *d = tui_source_new(sizeof *d, &tui_format_dcp, &ops, path, err);
    (void)how;
    if (!d)
        return TU_ENOMEM;
    int rc = (d->objects = json_object()) ? 0 : tu_fail(err, TU_ENOMEM, "out of memory");
    if (!rc)
        rc = read_metadata(d, job, err);
    if (!rc)
        rc = keep_objects(d, err);
    if (rc) {
        dcp_close(&d->base);
        return rc;
    }
    d->base.n = d->n;
    d->base.tensor = d->tensor;
    d->base.extent = d->extent;
    d->base.crc = d->crc;
    for (size_t i = 0; i < d->n; i++)
        d->base.referenced += d->tensor[i].bytes;
    for (size_t i = 0; i < d->files; i++)
        d->base.stored += tu_in_size(d->file[i].in);
    *out = &d->base;
    return 0;
}

static bool dcp_sniff(const char *path, const unsigned char *head, size_t n)
{
    char full[4096];
    struct stat st;
    (void)head;
    (void)n;
    return snprintf(full, sizeof full, "%s/.metadata", path) < (int)sizeof full &&
           !stat(full, &st) && S_ISREG(st.st_mode);
}

const struct tu_format tui_format_dcp = {
    .name = "dcp",
    .help = "folder of PyTorch's distributed checkpoint: .metadata and .distcp files",
    .suffix = "",
    .flags = TU_FORMAT_READ | TU_FORMAT_DIR,
    .sniff = dcp_sniff,
    .open = dcp_open,
};
