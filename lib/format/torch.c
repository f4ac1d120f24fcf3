/* SPDX-License-Identifier: Apache-2.0 */
/* torch.c: the files of torch.save, as a source of tensors and a row of the formats.
 *
 * A zip whose records are a pickle and storages. Tensors are views: what is contiguous in
 * the file is read in place, the rest is gathered from a mapping. Nothing of the pickle
 * is run. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "kit.h"
#include "pickle.h"
#include "rows.h"
#include "torch.h"

#define PICKLE_MAX ((size_t)1 << 30)

/* Reading ---------------------------------------------------------------------------- */

static void turn_signs(unsigned char *p, size_t n, const struct tui_view *v)
{
    size_t unit = tui_number_bytes(v->dtype);
    for (size_t i = 0; i + unit <= n; i += unit) {
        bool imaginary = unit < v->elem && i % v->elem;
        if (v->neg != (v->conj && imaginary))
            p[i + unit - 1] ^= 0x80;
    }
}

/* Elements first … first+n-1 of the tensor. */
static int read_elements(struct tui_torch *t, const struct tui_view *v, uint64_t first,
                         unsigned char *buf, size_t n, struct tu_err *err)
{
    const struct tui_storage *s = &t->storage[v->storage];
    int rc = 0;
    if (v->flat) {
        rc = tu_in_pread(s->in, s->off + v->offset + first * v->elem, buf, n * v->elem,
                         err);
    } else {
        bool spool = s->in == t->spool;
        uint64_t before = t->map_n[spool] -
                          tu_in_size(s->in); /* where the file object begins */
        const char *base = (const char *)t->map[spool] + before + s->off + v->offset;
        tu_gather(buf, base, v->extent, v->stride, v->rank, v->elem, first, n);
    }
    if (rc == 0 && t->big)
        tui_swap(buf, n * v->elem, v->dtype);
    if (rc == 0 && (v->conj || v->neg))
        turn_signs(buf, n * v->elem, v);
    return rc;
}

static int read_torch(struct tu_source *source, size_t i, uint64_t off, void *buf,
                      size_t n, struct tu_err *err)
{
    struct tui_torch *t = (struct tui_torch *)source;
    const struct tui_view *v = &t->found[i].view;
    unsigned char one[16], *out = buf;
    int rc = 0;
    while (rc == 0 && n) { /* whole elements to the caller, parts of them through `one` */
        size_t skip = (size_t)(off % v->elem), step;
        if (skip || n < v->elem) {
            step = (size_t)tu_min(v->elem - skip, n);
            rc = read_elements(t, v, off / v->elem, one, 1, err);
            memcpy(out, one + skip, step);
        } else {
            step = n - n % v->elem;
            rc = read_elements(t, v, off / v->elem, out, step / v->elem, err);
        }
        out += step;
        off += step;
        n -= step;
    }
    return rc;
}

static int verify_torch(struct tu_source *source, size_t i, struct tu_pool *pool,
                        struct tu_err *err)
{
    struct tui_torch *t = (struct tui_torch *)source;
    struct tui_storage *s = &t->storage[t->found[i].view.storage];
    if (!t->zip || s->in == t->spool || atomic_load(&s->good))
        return 0;
    int rc = tui_zip_verify(t->zip, s->entry, pool, err);
    if (rc == 0)
        atomic_store(&s->good, true);
    return rc;
}

static void close_torch(struct tu_source *source)
{
    struct tui_torch *t = (struct tui_torch *)source;
    for (int k = 0; k < 2; k++)
        if (t->map[k])
            munmap(t->map[k], t->map_n[k]);
    tu_in_close(t->spool);
    tu_zip_close(t->zip);
    tu_pickle_free(t->base.pickle);
    tu_free(t->storage);
    tu_free(t->by_key);
    tu_free(t->found);
    tui_source_free(source);
}

static bool summed_torch(const struct tu_source *source, size_t i)
{
    const struct tui_torch *t = (const struct tui_torch *)source;
    return t->zip && t->storage[t->found[i].view.storage].in != t->spool;
}

static const struct tu_source_ops torch_ops = {read_torch, verify_torch, summed_torch,
                                               close_torch};

/* Making the source ------------------------------------------------------------------ */

/* Map the file behind `in`, whose object may begin behind the file's start. */
static int map_file(struct tui_torch *t, int k, struct tu_in *in, struct tu_err *err)
{
    struct stat st;
    if (t->map[k])
        return 0;
    if (fstat(tu_in_fd(in), &st) < 0)
        return tu_fail_errno(err, "%s", tu_in_name(in));
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, tu_in_fd(in), 0);
    if (map == MAP_FAILED)
        return tu_fail_errno(err, "%s: cannot map", tu_in_name(in));
    t->map[k] = map;
    t->map_n[k] = (size_t)st.st_size;
    return 0;
}

/* Inflate the storages that are deflated. */
static int inflate_storages(struct tui_torch *t, const char *folder, struct tu_err *err)
{
    struct tui_zip_spool spool = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && t->zip && i < t->storages; i++) {
        struct tui_storage *s = &t->storage[i];
        if (!s->in)
            rc = tui_zip_spool_add(&spool, t->zip, s->entry, folder, &s->off, err);
    }
    if (rc == 0)
        rc = tui_zip_spool_finish(&spool, &t->spool, t->base.path, err);
    tui_zip_spool_release(&spool);
    for (size_t i = 0; rc == 0 && i < t->storages; i++)
        if (!t->storage[i].in)
            t->storage[i].in = t->spool;
    return rc;
}

static bool is_whole(const struct tui_torch *t, const struct tui_view *v)
{
    return v->flat && !v->offset && v->bytes == t->storage[v->storage].bytes;
}

/* What an export cannot see from the bytes: storages that are shared, and views. */
static int make_meta(const struct tui_torch *t, const struct tui_view *v,
                     struct tu_buf *out, struct tu_err *err)
{
    const struct tui_storage *s = &t->storage[v->storage];
    struct tu_jw w;
    tu_buf_reset(out);
    if (s->tensors == 1 && is_whole(t, v))
        return 0;
    tu_jw_begin(&w, out);
    tu_jw_open(&w, NULL, '{');
    tu_jw_open(&w, "src", '{');
    tu_jw_str(&w, "format", "torch");
    tu_jw_u64(&w, "numel", s->numel);
    tu_jw_u64(&w, "offset", v->offset / v->elem);
    tu_jw_str(&w, "storage", s->key);
    tu_jw_open(&w, "stride", '[');
    for (unsigned i = 0; i < v->rank; i++)
        tu_jw_i64(&w, NULL, v->stride[i]);
    tu_jw_close(&w, ']');
    tu_jw_close(&w, '}');
    tu_jw_close(&w, '}');
    return tu_jw_end(&w, err);
}

/* Descriptions of what the walk found. */
static int describe(struct tui_torch *t, struct tu_err *err)
{
    struct tu_buf meta = {0};
    struct tu_tensor *tensor = tu_arena_alloc(t->base.arena, t->n + 1, sizeof *tensor,
                                              err);
    struct tu_extent *extent = tu_arena_alloc(t->base.arena, t->n + 1, sizeof *extent,
                                              err);
    uint64_t *crc = tu_arena_alloc(t->base.arena, t->n + 1, sizeof *crc, err);
    int rc = tensor && extent && crc ? 0 : TU_ENOMEM;
    for (size_t i = 0; rc == 0 && i < t->n; i++) {
        const struct tui_view *v = &t->found[i].view;
        const struct tui_storage *s = &t->storage[v->storage];
        rc = make_meta(t, v, &meta, err);
        if (rc == 0)
            rc = tu_tensor_make(&tensor[i], t->base.arena, t->found[i].name, v->dtype,
                                v->dim, v->rank, meta.n ? meta.data : NULL, err);
        bool plain = v->flat && !t->big && !v->conj && !v->neg;
        if (plain)
            extent[i] = (struct tu_extent){s->in, s->off + v->offset};
        else if (rc == 0 && v->bytes)
            rc = map_file(t, s->in == t->spool, s->in, err);
        crc[i] = TU_CRC_NONE;
        if (plain && t->zip && s->in == t->in && is_whole(t, v))
            crc[i] = tu_zip_entry(t->zip, s->entry)->crc;
        t->base.referenced += v->bytes;
    }
    tu_buf_release(&meta);
    t->base.n = t->n;
    t->base.tensor = tensor;
    t->base.extent = extent;
    t->base.crc = crc;
    t->base.stored = tu_in_size(t->in);
    return rc;
}

int tui_torch_strict(const struct tui_torch *t, const struct tu_open *how,
                     struct tu_err *err)
{
    const struct tu_pglobal *list;
    size_t n = tu_pickle_globals(t->base.pickle, &list);
    char shown[88];
    for (size_t i = 0; how->strict && i < n; i++)
        if (!list[i].known)
            return tu_fail_at(
                err, TU_EUNSUP, list[i].offset,
                "pickle: byte %llu: global '%s' is not one of an honest checkpoint",
                (unsigned long long)list[i].offset,
                tu_text_short(list[i].name, strlen(list[i].name), shown));
    return 0;
}

/* The zip ---------------------------------------------------------------------------- */

/* Whole small record FOLDER/name; *data is NULL where there is none. */
static int load_record(struct tui_torch *t, const char *folder, const char *name,
                       size_t max, char **data, size_t *n, struct tu_err *err)
{
    char *full = tu_arena_printf(t->base.arena, err, "%s/%s", folder, name);
    *data = NULL;
    *n = 0;
    if (!full)
        return TU_ENOMEM;
    size_t i = tu_zip_find(t->zip, full);
    return i == SIZE_MAX ? 0
                         : tu_zip_load(t->zip, i, max, !t->no_crc, (void **)data, n, err);
}

static int check_version(struct tui_torch *t, const char *folder, struct tu_err *err)
{
    char *data;
    size_t n;
    int rc = load_record(t, folder, "version", 32, &data, &n, err);
    if (rc < 0)
        return rc;
    unsigned long v = 0;
    bool good = data && n;
    for (size_t i = 0; good && i < n; i++) {
        if (data[i] == '\n' && i + 1 == n)
            break;
        good = data[i] >= '0' && data[i] <= '9' && v < 1000;
        v = 10 * v + (unsigned long)(data[i] - '0');
    }
    if (!data)
        rc = tu_fail(err, TU_EFORMAT, "%s: no version record: not written by torch",
                     t->base.path);
    else if (!good || v < 1 || v > 10)
        rc = tu_fail(err, TU_EVERSION, "%s: version record '%.*s', expected 1 to 10",
                     t->base.path, (int)tu_min(n, 16), data);
    tu_free(data);
    return rc;
}

static int check_byteorder(struct tui_torch *t, const char *folder, struct tu_err *err)
{
    char *data;
    size_t n;
    int rc = load_record(t, folder, "byteorder", 32, &data, &n, err);
    if (rc < 0 || !data)
        return rc;
    t->big = n == 3 && !memcmp(data, "big", 3);
    if (!t->big && !(n == 6 && !memcmp(data, "little", 6)))
        rc = tu_fail(err, TU_EFORMAT, "%s: byteorder record is neither little nor big",
                     t->base.path);
    tu_free(data);
    return rc;
}

static int check_script(struct tui_torch *t, const char *folder, struct tu_err *err)
{
    size_t n = strlen(folder);
    for (size_t i = 0; i < tu_zip_count(t->zip); i++) {
        const char *name = tu_zip_entry(t->zip, i)->name;
        if (strncmp(name, folder, n) != 0 || name[n] != '/')
            continue;
        if (!strncmp(name + n, "/code/", 6) || !strcmp(name + n, "/constants.pkl"))
            return tu_fail(
                err, TU_EUNSUP,
                "%s: a TorchScript program, not a checkpoint: save its state_dict",
                t->base.path);
    }
    return 0;
}

/* The checksums of what no tensor needs and nobody would read: damage there is damage of the
 * file. Storages are verified with their tensors; what inflates beyond all measure is left. */
static int verify_rest(struct tui_torch *t, const char *folder, const struct tu_job *job,
                       struct tu_err *err)
{
    enum { BOMB_RATIO = 200 };
    size_t n = strlen(folder);
    int rc = 0;
    for (size_t i = 0; rc == 0 && !t->no_crc && i < tu_zip_count(t->zip); i++) {
        const struct tu_zip_entry *e = tu_zip_entry(t->zip, i);
        bool read = !strncmp(e->name, folder, n) && !strcmp(e->name + n, "/data.pkl");
        if (!t->by_key[i] && !read && e->size / BOMB_RATIO <= e->stored)
            rc = tui_zip_verify(t->zip, i, job ? job->pool : NULL, err);
    }
    return rc;
}

static int open_zip(struct tui_torch *t, const struct tu_open *how,
                    const struct tu_job *job, struct tu_err *err)
{
    int rc = tu_zip_open(&t->zip, t->in, 0, 0, err);
    if (rc < 0)
        return rc;
    const char *first = tu_zip_count(t->zip) ? tu_zip_entry(t->zip, 0)->name : "";
    size_t n = strcspn(first, "/"), used;
    char *folder = tu_arena_text(t->base.arena, first, n, err), *data = NULL;
    t->prefix = folder ? tu_arena_printf(t->base.arena, err, "%s/data/", folder) : NULL;
    t->by_key = t->prefix ? tu_calloc(tu_zip_count(t->zip), sizeof *t->by_key, err)
                          : NULL;
    if (!t->by_key)
        return TU_ENOMEM;
    rc = check_script(t, folder, err);
    if (rc == 0)
        rc = load_record(t, folder, "data.pkl", PICKLE_MAX, &data, &n, err);
    if (rc == 0 && !data)
        rc = tu_fail(err, TU_EMAGIC,
                     "%s: a zip without a data.pkl in its first folder: not a "
                     "torch file",
                     t->base.path);
    if (rc == 0)
        rc = check_version(t, folder, err);
    if (rc == 0)
        rc = check_byteorder(t, folder, err);
    if (rc < 0)
        goto out;
    rc = tu_pickle_read(&t->base.pickle, data, n, NULL, &used, err);
    if (rc == 0 && used != n)
        rc = tu_fail_at(err, TU_EGARBAGE, used, "pickle: %zu bytes follow its end",
                        n - used);
    if (rc == 0)
        rc = tui_torch_strict(t, how, err);
    if (rc == 0)
        rc = tui_torch_walk(t, tu_pickle_root(t->base.pickle), job, err);
    if (rc < 0)
        tu_err_prefix(err, "%s: data.pkl", t->base.path);
    else
        rc = verify_rest(t, folder, job, err);
out:
    tu_free(data);
    return rc;
}

/* The row ---------------------------------------------------------------------------- */

static bool is_tar(const unsigned char *head, size_t n)
{
    return n > 262 && !memcmp(head + 257, "ustar", 5);
}

/* Names of the old tar's members; other tars are not ours to name. */
static bool is_torch_tar(const unsigned char *head, size_t n)
{
    static const char *const names[] = {"sys_info", "pickle", "tensors", "storages"};
    for (size_t i = 0; is_tar(head, n) && i < 4; i++)
        if (!strncmp((const char *)head, names[i], 100) ||
            (!memcmp(head, "./", 2) && !strncmp((const char *)head + 2, names[i], 98)))
            return true;
    return false;
}

static bool is_pickle(const unsigned char *head, size_t n)
{
    return n >= 3 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5;
}

/* A pickle of torch's old magic number, of any protocol that pickles in bytes: its header,
 * from protocol 4 on a frame, a LONG1, the end. */
static bool is_legacy(const unsigned char *head, size_t n)
{
    static const unsigned char magic[] = {0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                          0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e};
    const size_t at = is_pickle(head, n) && head[1] >= 4 && n > 2 && head[2] == 0x95 ? 11 : 2;
    return is_pickle(head, n) && n >= at + sizeof magic &&
           !memcmp(head + at, magic, sizeof magic);
}

static bool sniff_torch(const char *path, const unsigned char *head, size_t n)
{
    const char *name;
    size_t name_n;
    (void)path;
    if (tui_zip_sniff(head, n, &name, &name_n))
        return name_n < 4 || memcmp(name + name_n - 4, ".npy", 4) != 0;
    return is_pickle(head, n) || is_torch_tar(head, n);
}

/* What is no zip: five pickles, one pickle, or something of the past. */
static int open_other(struct tui_torch *t, const unsigned char *head, size_t n,
                      const struct tu_open *how, const struct tu_job *job,
                      struct tu_err *err)
{
    if (is_legacy(head, n))
        return tui_torch_legacy(t, how, job, err);
    if (is_tar(head, n))
        return tu_fail(err, TU_EUNSUP,
                       "%s: a tar of torch 0.1, which is not safe to read: load "
                       "and save it with a torch you trust",
                       t->base.path);
    if (is_pickle(head, n))
        return tu_fail(err, TU_EUNSUP,
                       "%s: a bare pickle, without tensors: not a torch file",
                       t->base.path);
    return tu_fail(err, TU_EMAGIC, "%s: not a torch file", t->base.path);
}

static int open_torch(struct tu_source **out, const char *path, const struct tu_open *how,
                      const struct tu_job *job, struct tu_err *err)
{
    unsigned char head[4096];
    const char *name;
    size_t name_n, n = (size_t)tu_min(sizeof head, tu_in_size(how->in));
    struct tui_torch *t = tui_source_new(sizeof *t, &tui_format_torch, &torch_ops, path,
                                         err);
    if (!t)
        return TU_ENOMEM;
    t->in = how->in;
    t->no_crc = how->no_crc;
    int rc = tu_in_pread(t->in, 0, head, n, err);
    if (rc == 0)
        rc = tui_zip_sniff(head, n, &name, &name_n) ||
                     (n >= 4 && tu_le32(head) == TUI_ZIP_LOCAL)
                 ? open_zip(t, how, job, err)
                 : open_other(t, head, n, how, job, err);
    if (rc == 0)
        rc = inflate_storages(t, how->folder, err);
    if (rc == 0) {
        rc = describe(t, err);
        if (rc < 0)
            tu_err_prefix(err, "%s", path);
    }
    if (rc < 0) {
        close_torch(&t->base);
        return rc;
    }
    *out = &t->base;
    return 0;
}

const struct tu_format tui_format_torch = {
    .name = "torch",
    .help = "PyTorch checkpoints (torch.save), read without running their pickle",
    .suffix = ".pt .pth .bin .ckpt",
    .flags = TU_FORMAT_READ | TU_FORMAT_WRITE | TU_FORMAT_UNIQUE,
    .sniff = sniff_torch,
    .open = open_torch,
    .save = tui_torch_save,
    .dtype_ok = tui_torch_dtype_ok,
};
