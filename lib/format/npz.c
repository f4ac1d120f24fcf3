/* SPDX-License-Identifier: Apache-2.0 */
/* npz.c: archives of NumPy arrays: a zip whose members are .npy files.
 *
 * Stored members are read in place, deflated ones from a temporary file. Archives are
 * written stored, with the arrays' data at multiples of 64. */
#include <stdatomic.h>

#include "kit.h"
#include "npy.h"
#include "rows.h"
#include "zip.h"

#define SUFFIX ".npy"
#define SUFFIX_N 4

/* Reading ---------------------------------------------------------------------------- */

struct npz_source {
    struct tu_source base;
    struct tu_zip *zip;
    struct tu_in *spool; /* inflated members, or NULL */
    struct member {
        struct tui_npy_array array;
        size_t entry;     /* of the zip */
        atomic_bool good; /* its checksum was compared */
    } * member;           /* [n], room for all of the zip's entries */
};

static int read_npz(struct tu_source *s, size_t i, uint64_t off, void *buf, size_t n,
                    struct tu_err *err)
{
    return tui_npy_read(&((struct npz_source *)s)->member[i].array, off, buf, n, err);
}

static int verify_npz(struct tu_source *s, size_t i, struct tu_pool *pool,
                      struct tu_err *err)
{
    struct npz_source *z = (struct npz_source *)s;
    struct member *m = &z->member[i];
    if (m->array.in == z->spool || atomic_load(&m->good))
        return 0;
    int rc = tui_zip_verify(z->zip, m->entry, pool, err);
    if (rc == 0)
        atomic_store(&m->good, true);
    return rc;
}

static void close_npz(struct tu_source *s)
{
    struct npz_source *z = (struct npz_source *)s;
    for (size_t i = 0; z->member && i < tu_zip_count(z->zip); i++)
        tui_npy_close(&z->member[i].array);
    tu_free(z->member);
    tu_in_close(z->spool);
    tu_zip_close(z->zip);
    tui_source_free(s);
}

static const struct tu_source_ops npz_ops = {read_npz, verify_npz, tui_summed_always, close_npz};

static bool has_suffix(const char *name, size_t n)
{
    return n > SUFFIX_N && !memcmp(name + n - SUFFIX_N, SUFFIX, SUFFIX_N);
}

static bool sniff_npz(const char *path, const unsigned char *head, size_t n)
{
    const char *name;
    size_t name_n;
    (void)path;
    return tui_zip_sniff(head, n, &name, &name_n) &&
           (!name_n || has_suffix(name, name_n));
}

/* Inflate what is deflated; at[i] says where each member's bytes begin. */
static int place_members(struct npz_source *z, const struct tu_open *how, uint64_t *at,
                         struct tu_err *err)
{
    struct tui_zip_spool spool = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < tu_zip_count(z->zip); i++) {
        const struct tu_zip_entry *e = tu_zip_entry(z->zip, i);
        at[i] = e->offset;
        if (e->method)
            rc = tui_zip_spool_add(&spool, z->zip, i, how->folder, &at[i], err);
    }
    if (rc == 0)
        rc = tui_zip_spool_finish(&spool, &z->spool, z->base.path, err);
    tui_zip_spool_release(&spool);
    return rc;
}

/* CRC-32 of the data alone, from that of the whole member. */
static int data_crc(const struct tui_npy_array *a, uint32_t whole, uint64_t *crc,
                    struct tu_err *err)
{
    unsigned char head[TUI_NPY_HEAD];
    int rc = tu_in_pread(a->in, a->data - a->h.head, head, a->h.head, err);
    *crc = whole ^ tu_crc32_part(tu_crc32(0, head, a->h.head), a->h.bytes);
    return rc;
}

static int describe(struct npz_source *z, struct member *m, const struct tu_open *how,
                    uint64_t at, struct tu_tensor *tensor, struct tu_extent *extent,
                    uint64_t *crc, struct tu_err *err)
{
    const struct tu_zip_entry *e = tu_zip_entry(z->zip, m->entry);
    struct tui_npy_array *a = &m->array;
    size_t n = strlen(e->name);
    char shown[88];
    if (!has_suffix(e->name, n))
        return tu_fail(err, TU_EUNSUP, "%s: member '%s' is no .npy array", z->base.path,
                       tu_text_short(e->name, n, shown));
    int rc = tui_npy_open(a, e->method ? z->spool : how->in, e->name, at, e->size,
                          how->void_dtype, err);
    if (rc < 0)
        return rc;
    char *name = tu_arena_text(z->base.arena, e->name, n - SUFFIX_N, err);
    rc = name ? tui_npy_tensor(tensor, z->base.arena, a, name, how->keep_header, err)
              : TU_ENOMEM;
    if (rc < 0) {
        tu_err_prefix(err, "%s", z->base.path);
        return rc;
    }
    *crc = TU_CRC_NONE;
    if (tui_npy_plain(&a->h)) {
        *extent = (struct tu_extent){a->in, a->data};
        rc = e->method ? 0 : data_crc(a, e->crc, crc, err);
    }
    z->base.referenced += tensor->bytes;
    return rc;
}

/* Is this about the array and not about the file or the machine? It is told then. */
static bool left_out(struct npz_source *z, struct member *m, int rc, const struct tu_open *how,
                     const struct tu_job *job, const struct tu_err *err)
{
    if (!how->partial || (rc != TU_EUNSUP && rc != TU_EDTYPE))
        return false;
    tu_job_warn(job, "%s; it is left out", err->msg);
    tui_npy_close(&m->array);
    memset(&m->array, 0, sizeof m->array);
    z->base.left_out++;
    return true;
}

static int open_npz(struct tu_source **out, const char *path, const struct tu_open *how,
                    const struct tu_job *job, struct tu_err *err)
{
    struct tu_err local;
    err = err ? err : &local;
    struct npz_source *z = tui_source_new(sizeof *z, &tui_format_npz, &npz_ops, path,
                                          err);
    if (!z)
        return TU_ENOMEM;
    struct tu_arena *a = z->base.arena;
    int rc = tu_zip_open(&z->zip, how->in, 0, 0, err);
    size_t n = rc < 0 ? 0 : tu_zip_count(z->zip);
    struct tu_tensor *tensor = tu_arena_alloc(a, n + 1, sizeof *tensor, err);
    struct tu_extent *extent = tu_arena_alloc(a, n + 1, sizeof *extent, err);
    uint64_t *crc = tu_arena_alloc(a, n + 1, sizeof *crc, err);
    uint64_t *at = tu_arena_alloc(a, n + 1, sizeof *at, err);
    if (rc == 0) {
        z->member = tu_calloc(n, sizeof *z->member, err);
        rc = tensor && extent && crc && at && z->member ? 0 : TU_ENOMEM;
    }
    if (rc == 0)
        rc = place_members(z, how, at, err);
    size_t k = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct member *m = &z->member[k];
        m->entry = i;
        rc = describe(z, m, how, at[i], &tensor[k], &extent[k], &crc[k], err);
        if (rc == 0)
            k++;
        else if (left_out(z, m, rc, how, job, err))
            rc = 0;
    }
    if (rc < 0) {
        close_npz(&z->base);
        return rc;
    }
    z->base.n = k;
    z->base.tensor = tensor;
    z->base.extent = extent;
    z->base.crc = crc;
    z->base.stored = tu_in_size(how->in);
    *out = &z->base;
    return 0;
}

/* Writing ---------------------------------------------------------------------------- */

/* Arrays whose stored bytes are not the tensor's are collected, and stored when they are
 * whole. */
struct npz_sink {
    struct tu_sink base;
    struct tu_sink *zip;
    struct pending {
        struct tui_npy h;
        char *whole; /* NULL: bytes go straight on */
        _Atomic uint64_t got;
    } * pending; /* [n] */
};

static int store_whole(struct npz_sink *s, size_t i, struct tu_err *err)
{
    struct pending *p = &s->pending[i];
    char *stored = tu_alloc((size_t)p->h.bytes, 1, err);
    if (!stored)
        return TU_ENOMEM;
    tui_npy_store(&p->h, stored, p->whole);
    int rc = s->zip->ops->write(s->zip, i, 0, stored, (size_t)p->h.bytes, err);
    tu_free(stored);
    tu_free(p->whole);
    p->whole = NULL;
    return rc;
}

static int write_npz(struct tu_sink *sink, size_t i, uint64_t off, const void *bytes,
                     size_t n, struct tu_err *err)
{
    struct npz_sink *s = (struct npz_sink *)sink;
    struct pending *p = &s->pending[i];
    if (!p->whole)
        return s->zip->ops->write(s->zip, i, off, bytes, n, err);
    memcpy(p->whole + off, bytes, n);
    return atomic_fetch_add(&p->got, n) + n == p->h.bytes ? store_whole(s, i, err) : 0;
}

static int finish_npz(struct tu_sink *sink, bool durable, struct tu_err *err)
{
    struct npz_sink *s = (struct npz_sink *)sink;
    return s->zip->ops->finish(s->zip, durable, err);
}

static void close_npz_sink(struct tu_sink *sink)
{
    struct npz_sink *s = (struct npz_sink *)sink;
    for (size_t i = 0; s->pending && i < s->base.n; i++)
        tu_free(s->pending[i].whole);
    if (s->zip)
        s->zip->ops->close(s->zip);
    tu_free(s->pending);
    tu_free(s);
}

static const struct tu_sink_ops npz_sink_ops = {write_npz, finish_npz, close_npz_sink};

/* A member's name is a file's name to whoever unpacks the archive. */
static int check_name(const char *name, struct tu_err *err)
{
    char shown[88];
    bool climbs = name[0] == '/';
    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/';
        climbs = climbs || (!strncmp(p, "..", 2) && (p[2] == '/' || !p[2]));
    }
    if (!climbs)
        return 0;
    return tu_fail(err, TU_ENAME, "'%s': not a name for a member of an archive",
                   tu_text_short(name, strlen(name), shown));
}

/* The part of the zip that is tensor i. */
static int make_part(struct npz_sink *s, struct tu_arena *a, const struct tu_save *what,
                     size_t i, struct tui_zip_part *part, struct tu_err *err)
{
    const struct tu_tensor *t = &what->tensor[i];
    struct pending *p = &s->pending[i];
    struct tu_buf head = {0};
    int rc = check_name(t->name, err);
    if (rc == 0)
        rc = tui_npy_write_header(&head, &p->h, t, what->npy_raw, what->keep_header, err);
    if (rc == 0) {
        part->name = tu_arena_printf(a, err, "%s%s", t->name, SUFFIX);
        part->head = tu_arena_text(a, head.data, head.n, err);
        part->head_n = head.n;
        part->tensor = i;
        rc = part->name && part->head ? 0 : TU_ENOMEM;
    }
    tu_buf_release(&head);
    if (rc == 0 && !tui_npy_plain(&p->h) && p->h.bytes) {
        p->whole = tu_alloc((size_t)p->h.bytes, 1, err);
        rc = p->whole ? 0 : TU_ENOMEM;
    }
    return rc;
}

static int save_npz(struct tu_sink **out, const char *path, const struct tu_save *what,
                    const struct tu_job *job, struct tu_err *err)
{
    struct npz_sink *s = tu_calloc(1, sizeof *s, err);
    if (!s)
        return TU_ENOMEM;
    struct tu_arena *a = tu_arena_new(err);
    struct tui_zip_part *part = a ? tu_arena_alloc(a, what->n + 1, sizeof *part, err)
                                  : NULL;
    s->base = (struct tu_sink){
        .format = &tui_format_npz, .ops = &npz_sink_ops, .n = what->n};
    s->pending = part ? tu_calloc(what->n, sizeof *s->pending, err) : NULL;
    int rc = s->pending ? 0 : TU_ENOMEM;
    for (size_t i = 0; rc == 0 && i < what->n; i++)
        rc = make_part(s, a, what, i, &part[i], err);
    if (rc < 0)
        tu_err_prefix(err, "%s", path);
    else
        rc = tui_zip_sink_new(&s->zip, &tui_format_npz, path, part, what->n, what->tensor,
                              what->n, job, err);
    tu_arena_free(a);
    if (rc < 0) {
        close_npz_sink(&s->base);
        return rc;
    }
    s->base.path = s->zip->path;
    s->base.order = s->zip->order;
    *out = &s->base;
    return 0;
}

const struct tu_format tui_format_npz = {
    .name = "npz",
    .help = "archives of NumPy arrays",
    .suffix = ".npz",
    .flags = TU_FORMAT_READ | TU_FORMAT_WRITE | TU_FORMAT_UNIQUE,
    .sniff = sniff_npz,
    .open = open_npz,
    .save = save_npz,
};
