/* SPDX-License-Identifier: Apache-2.0 */
/* zip.c: reading zip archives by their central directory, trusting nothing in it.
 *
 * Invariants of an open archive: the entries fill the bytes before the directory exactly,
 * each once, from the first byte on; every local header agrees with the directory; no two
 * entries share a name. So there is no second reading of the file that a scanner or
 * another unzip could follow. Names are data: nothing here makes a file from one.
 *
 * Not for extraction in general: only stored and deflated entries, one disk, no
 * encryption. */
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include "zip.h"

#define DIRECTORY_MAX (UINT64_C(1) << 30)
#define DEFLATE_RATIO 1032 /* deflate cannot expand more than that */
#define CHUNK ((size_t)256 << 10)

struct tu_zip {
    struct tu_in *in; /* borrowed */
    uint64_t base, size;
    struct tu_arena *arena;
    size_t n;
    struct tu_zip_entry *entry;
    struct named {
        const char *name;
        size_t i;
    } *by_name; /* sorted */
};

/* What is needed of an entry only while the archive is opened. */
struct member {
    uint64_t local; /* offset of the local header from base */
    size_t i;
    uint16_t flags;
};

struct end {
    uint64_t count, size, offset; /* of the central directory */
};

/* Reads ------------------------------------------------------------------------------ */

static int peek(struct tu_zip *z, uint64_t at, void *buf, size_t n, const char *what,
                struct tu_err *err)
{
    if (at > z->size || n > z->size - at)
        return tu_fail_at(err, TU_EFORMAT, z->base + at,
                          "%s: %s at byte %llu lies past the end", tu_in_name(z->in),
                          what, (unsigned long long)(z->base + at));
    return tu_in_pread(z->in, z->base + at, buf, n, err);
}

static int bad(struct tu_zip *z, const char *name, uint64_t at, const char *what,
               struct tu_err *err)
{
    char shown[88];
    return tu_fail_at(err, TU_EFORMAT, z->base + at, "%s: zip entry '%s': %s",
                      tu_in_name(z->in), tu_text_short(name, strlen(name), shown), what);
}

/* The end records -------------------------------------------------------------------- */

/* The ZIP64 end record, when its locator stands before the end record at `at`; *stop is
 * where the directory has to end. */
static int read_end64(struct tu_zip *z, uint64_t at, struct end *end, uint64_t *stop,
                      struct tu_err *err)
{
    unsigned char p[TUI_ZIP_END64_SIZE];
    bool needed = end->count == 0xFFFF || end->size == 0xFFFFFFFF ||
                  end->offset == 0xFFFFFFFF;
    int rc;
    *stop = at;
    if (at >= TUI_ZIP_LOCATOR_SIZE) {
        rc = peek(z, at - TUI_ZIP_LOCATOR_SIZE, p, TUI_ZIP_LOCATOR_SIZE, "locator", err);
        if (rc < 0)
            return rc;
    }
    if (at < TUI_ZIP_LOCATOR_SIZE || tu_le32(p) != TUI_ZIP_LOCATOR) {
        if (!needed)
            return 0;
        return tu_fail_at(err, TU_EFORMAT, z->base + at, "%s: zip: no ZIP64 end record",
                          tu_in_name(z->in));
    }
    uint64_t locator = at - TUI_ZIP_LOCATOR_SIZE, record = tu_le64(p + 8);
    uint32_t disk = tu_le32(p + 4), disks = tu_le32(p + 16);
    rc = peek(z, record, p, sizeof p, "ZIP64 end record", err);
    if (rc < 0)
        return rc;
    uint64_t length;
    if (disk || disks > 1 || tu_le32(p) != TUI_ZIP_END64 ||
        tu_add_over(tu_le64(p + 4), 12, &length) || length < TUI_ZIP_END64_SIZE ||
        record > locator || length != locator - record || tu_le32(p + 16) ||
        tu_le32(p + 20) || tu_le64(p + 24) != tu_le64(p + 32))
        return tu_fail_at(err, TU_EFORMAT, z->base + record,
                          "%s: zip: malformed ZIP64 end record", tu_in_name(z->in));
    struct end wide = {tu_le64(p + 32), tu_le64(p + 40), tu_le64(p + 48)};
    if ((end->count != 0xFFFF && end->count != wide.count) ||
        (end->size != 0xFFFFFFFF && end->size != wide.size) ||
        (end->offset != 0xFFFFFFFF && end->offset != wide.offset))
        return tu_fail_at(err, TU_EFORMAT, z->base + record,
                          "%s: zip: the two end records disagree", tu_in_name(z->in));
    *end = wide;
    *stop = record;
    return 0;
}

/* Find the end record: the last one whose comment reaches exactly to the end. */
static int read_end(struct tu_zip *z, struct end *end, struct tu_err *err)
{
    size_t n = (size_t)tu_min(z->size, TUI_ZIP_END_SIZE + 0xFFFF);
    unsigned char *tail = tu_alloc(n, 1, err);
    if (!tail)
        return TU_ENOMEM;
    int rc = peek(z, z->size - n, tail, n, "end", err);
    if (rc < 0)
        goto out;
    size_t at = n;
    bool found = false;
    for (size_t i = n; !found && i >= TUI_ZIP_END_SIZE; i--) {
        at = i - TUI_ZIP_END_SIZE;
        found = tu_le32(tail + at) == TUI_ZIP_END &&
                tu_le16(tail + at + 20) == n - at - TUI_ZIP_END_SIZE;
    }
    if (!found) {
        rc = tu_fail_at(err, TU_ETRUNC, z->base + z->size,
                        "%s: zip: no end of central directory: cut short, or not a zip",
                        tu_in_name(z->in));
        goto out;
    }
    const unsigned char *p = tail + at;
    *end = (struct end){tu_le16(p + 10), tu_le32(p + 12), tu_le32(p + 16)};
    bool split = tu_le16(p + 4) || tu_le16(p + 6) || tu_le16(p + 8) != tu_le16(p + 10);
    uint64_t stop = 0;
    rc = split ? tu_fail(err, TU_EUNSUP, "%s: zip: split over several disks",
                         tu_in_name(z->in))
               : read_end64(z, z->size - n + at, end, &stop, err);
    if (rc == 0 && (end->offset > stop || end->size != stop - end->offset))
        rc = tu_fail_at(err, TU_EFORMAT, z->base + stop,
                        "%s: zip: the central directory does not end at its end record",
                        tu_in_name(z->in));
out:
    tu_free(tail);
    return rc;
}

/* Directory entries ------------------------------------------------------------------ */

/* Replace the saturated values of v[3] (size, stored, offset) from the ZIP64 extra field.
 */
static bool widen(const unsigned char *extra, size_t n, uint64_t *v[], unsigned values)
{
    while (n >= 4) {
        size_t len = tu_le16(extra + 2);
        if (len > n - 4)
            return false;
        const unsigned char *p = extra + 4;
        if (tu_le16(extra) == 1) {
            for (unsigned k = 0; k < values; k++) {
                if (*v[k] != 0xFFFFFFFF)
                    continue;
                if (len < 8)
                    return false;
                *v[k] = tu_le64(p);
                p += 8;
                len -= 8;
            }
            return true;
        }
        extra = p + len;
        n -= 4 + len;
    }
    return n == 0;
}

static int check_entry(struct tu_zip *z, const struct tu_zip_entry *e,
                       const struct member *m, uint64_t at, struct tu_err *err)
{
    char shown[88];
    tu_text_short(e->name, strlen(e->name), shown);
    if (m->flags & ~(TUI_ZIP_LATER | TUI_ZIP_UTF8 | TUI_ZIP_DEFLATE_HINTS))
        return tu_fail_at(err, TU_EUNSUP, z->base + at,
                          "%s: zip entry '%s': encrypted or patched (flags %#x)",
                          tu_in_name(z->in), shown, m->flags);
    if (e->method != 0 && e->method != 8)
        return tu_fail_at(err, TU_EUNSUP, z->base + at,
                          "%s: zip entry '%s': compression method %u", tu_in_name(z->in),
                          shown, e->method);
    if (e->method == 0 ? e->stored != e->size : e->size / DEFLATE_RATIO > e->stored)
        return tu_fail_at(
            err, TU_ESIZE, z->base + at,
            "%s: zip entry '%s': %llu bytes cannot come from %llu stored ones",
            tu_in_name(z->in), shown, (unsigned long long)e->size,
            (unsigned long long)e->stored);
    return 0;
}

/* One entry of the directory dir[n] at *pos. */
static int read_entry(struct tu_zip *z, const unsigned char *dir, size_t n, size_t *pos,
                      uint64_t dir_at, struct tu_zip_entry *e, struct member *m,
                      struct tu_err *err)
{
    const unsigned char *p = dir + *pos;
    uint64_t at = dir_at + *pos;
    if (n - *pos < TUI_ZIP_CENTRAL_SIZE || tu_le32(p) != TUI_ZIP_CENTRAL)
        goto malformed;
    size_t name = tu_le16(p + 28), extra = tu_le16(p + 30), comment = tu_le16(p + 32);
    size_t whole = TUI_ZIP_CENTRAL_SIZE + name + extra + comment;
    const unsigned char *text = p + TUI_ZIP_CENTRAL_SIZE;
    if (whole > n - *pos || tu_le16(p + 34))
        goto malformed;
    if (!name || memchr(text, 0, name))
        return tu_fail_at(err, TU_ENAME, z->base + at,
                          "%s: zip: an entry without a name, or with a NUL in it",
                          tu_in_name(z->in));
    e->name = tu_arena_text(z->arena, (const char *)text, name, err);
    if (!e->name)
        return TU_ENOMEM;
    m->flags = tu_le16(p + 8);
    e->method = tu_le16(p + 10);
    e->crc = tu_le32(p + 16);
    e->stored = tu_le32(p + 20);
    e->size = tu_le32(p + 24);
    m->local = tu_le32(p + 42);
    uint64_t *wide[3] = {&e->size, &e->stored, &m->local};
    if (!widen(text + name, extra, wide, 3))
        return bad(z, e->name, at, "malformed extra field", err);
    *pos += whole;
    return check_entry(z, e, m, at, err);
malformed:
    return tu_fail_at(err, TU_EFORMAT, z->base + at,
                      "%s: zip: malformed central directory at byte %llu",
                      tu_in_name(z->in), (unsigned long long)(z->base + at));
}

/* Local headers ---------------------------------------------------------------------- */

/* With TUI_ZIP_LATER the local values may be left at zero. */
static bool same(uint64_t local, uint64_t central, uint16_t flags)
{
    return local == central || (local == 0 && flags & TUI_ZIP_LATER);
}

/* Compare the local header at m->local with the directory; sets e->offset. */
static int check_local(struct tu_zip *z, struct tu_zip_entry *e, const struct member *m,
                       struct tu_buf *scratch, struct tu_err *err)
{
    unsigned char p[TUI_ZIP_LOCAL_SIZE];
    int rc = peek(z, m->local, p, sizeof p, "local header", err);
    if (rc < 0)
        return rc;
    size_t name = tu_le16(p + 26), extra = tu_le16(p + 28);
    if (tu_le32(p) != TUI_ZIP_LOCAL)
        return bad(z, e->name, m->local, "no local header where the directory says", err);
    if (name != strlen(e->name))
        return bad(z, e->name, m->local, "the local header has another name", err);
    tu_buf_reset(scratch);
    unsigned char *var = tu_buf_room(scratch, name + extra, err);
    if (!var)
        return err ? err->code : TU_ENOMEM;
    rc = peek(z, m->local + sizeof p, var, name + extra, "local header", err);
    if (rc < 0)
        return rc;
    uint64_t stored = tu_le32(p + 18), size = tu_le32(p + 22);
    uint64_t *wide[2] = {&size, &stored};
    if (memcmp(var, e->name, name) != 0)
        return bad(z, e->name, m->local, "the local header has another name", err);
    if (!widen(var + name, extra, wide, 2))
        return bad(z, e->name, m->local, "malformed extra field in the local header",
                   err);
    if (tu_le16(p + 6) != m->flags || tu_le16(p + 8) != e->method)
        return bad(z, e->name, m->local,
                   "local header and directory disagree in flags or method", err);
    if (!same(tu_le32(p + 14), e->crc, m->flags) || !same(stored, e->stored, m->flags) ||
        !same(size, e->size, m->flags))
        return bad(z, e->name, m->local,
                   "local header and directory disagree in checksum or size", err);
    e->offset = m->local + sizeof p + name + extra;
    return 0;
}

/* The bytes between the data and the next entry: nothing, or the entry's descriptor. */
static int check_gap(struct tu_zip *z, const struct tu_zip_entry *e,
                     const struct member *m, uint64_t next, struct tu_err *err)
{
    unsigned char d[24];
    if (e->offset > next || e->stored > next - e->offset)
        return bad(z, e->name, m->local, "overlaps the next entry", err);
    uint64_t at = e->offset + e->stored, gap = next - at;
    if (!gap && (!(m->flags & TUI_ZIP_LATER) || !e->size))
        return 0;
    bool marked = gap == 16 || gap == 24, wide = gap == 20 || gap == 24;
    if (!(m->flags & TUI_ZIP_LATER) || !(marked || gap == 12 || gap == 20))
        return bad(z, e->name, at, "bytes that belong to no entry follow it", err);
    int rc = peek(z, at, d, (size_t)gap, "data descriptor", err);
    if (rc < 0)
        return rc;
    const unsigned char *p = marked ? d + 4 : d;
    uint64_t stored = wide ? tu_le64(p + 4) : tu_le32(p + 4);
    uint64_t size = wide ? tu_le64(p + 12) : tu_le32(p + 8);
    if ((marked && tu_le32(d) != TUI_ZIP_DESCRIPTOR) || tu_le32(p) != e->crc ||
        stored != e->stored || size != e->size)
        return bad(z, e->name, at, "data descriptor and directory disagree", err);
    return 0;
}

static int by_local(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    return x->local < y->local ? -1 : x->local > y->local;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* Every local header, and that the entries fill the archive without gap or overlap. */
static int check_members(struct tu_zip *z, struct member *m, uint64_t directory,
                         struct tu_err *err)
{
    struct tu_buf scratch = {0};
    int rc = 0;
    qsort(m, z->n, sizeof *m, by_local);
    if (m[0].local != 0)
        rc = bad(z, z->entry[m[0].i].name, 0, "bytes that belong to no entry precede it",
                 err);
    for (size_t k = 0; rc == 0 && k < z->n; k++) {
        struct tu_zip_entry *e = &z->entry[m[k].i];
        uint64_t next = k + 1 < z->n ? m[k + 1].local : directory;
        rc = check_local(z, e, &m[k], &scratch, err);
        if (rc == 0)
            rc = check_gap(z, e, &m[k], next, err);
        e->offset += z->base;
    }
    tu_buf_release(&scratch);
    return rc;
}

static int check_names(struct tu_zip *z, struct tu_err *err)
{
    z->by_name = tu_arena_alloc(z->arena, z->n, sizeof *z->by_name, err);
    if (!z->by_name)
        return TU_ENOMEM;
    for (size_t i = 0; i < z->n; i++)
        z->by_name[i] = (struct named){z->entry[i].name, i};
    qsort(z->by_name, z->n, sizeof *z->by_name, by_name);
    for (size_t i = 1; i < z->n; i++)
        if (!strcmp(z->by_name[i - 1].name, z->by_name[i].name))
            return bad(z, z->by_name[i].name, 0, "two entries have this name", err);
    return 0;
}

static int read_directory(struct tu_zip *z, const struct end *end, struct tu_err *err)
{
    if (end->size > DIRECTORY_MAX)
        return tu_fail(err, TU_ELIMIT, "%s: zip: central directory of %llu bytes",
                       tu_in_name(z->in), (unsigned long long)end->size);
    if (end->count > end->size / TUI_ZIP_CENTRAL_SIZE)
        return tu_fail(err, TU_EFORMAT, "%s: zip: %llu entries do not fit its directory",
                       tu_in_name(z->in), (unsigned long long)end->count);
    size_t n = (size_t)end->size, pos = 0;
    z->n = (size_t)end->count;
    unsigned char *dir = tu_alloc(n, 1, err);
    struct member *m = dir ? tu_calloc(z->n + 1, sizeof *m, err) : NULL;
    z->entry = m ? tu_arena_alloc(z->arena, z->n + 1, sizeof *z->entry, err) : NULL;
    int rc = z->entry ? peek(z, end->offset, dir, n, "central directory", err)
                      : TU_ENOMEM;
    for (size_t i = 0; rc == 0 && i < z->n; i++) {
        m[i].i = i;
        rc = read_entry(z, dir, n, &pos, end->offset, &z->entry[i], &m[i], err);
    }
    if (rc == 0 && (pos != n || (!z->n && end->offset)))
        rc = tu_fail_at(err, TU_EFORMAT, z->base + end->offset + pos,
                        "%s: zip: the directory holds more than its %zu entries",
                        tu_in_name(z->in), z->n);
    if (rc == 0)
        rc = check_names(z, err);
    if (rc == 0 && z->n)
        rc = check_members(z, m, end->offset, err);
    tu_free(m);
    tu_free(dir);
    return rc;
}

int tu_zip_open(struct tu_zip **out, struct tu_in *in, uint64_t base, uint64_t size,
                struct tu_err *err)
{
    uint64_t whole = tu_in_size(in);
    *out = NULL;
    if (!tu_in_seekable(in))
        return tu_fail(err, TU_EUNSUP,
                       "%s: zip: needs a file that can be read from its end",
                       tu_in_name(in));
    if (base > whole || size > whole - base)
        return tu_fail(err, TU_ETRUNC, "%s: zip: its range lies past the end",
                       tu_in_name(in));
    struct tu_zip *z = tu_calloc(1, sizeof *z, err);
    if (!z)
        return TU_ENOMEM;
    z->in = in;
    z->base = base;
    z->size = size ? size : whole - base;
    z->arena = tu_arena_new(err);
    struct end end = {0};
    int rc = z->arena ? read_end(z, &end, err) : TU_ENOMEM;
    if (rc == 0)
        rc = read_directory(z, &end, err);
    if (rc < 0) {
        tu_zip_close(z);
        return rc;
    }
    *out = z;
    return 0;
}

void tu_zip_close(struct tu_zip *z)
{
    if (!z)
        return;
    tu_arena_free(z->arena);
    tu_free(z);
}

size_t tu_zip_count(const struct tu_zip *z)
{
    return z->n;
}

const struct tu_zip_entry *tu_zip_entry(const struct tu_zip *z, size_t i)
{
    return &z->entry[i];
}

size_t tu_zip_find(const struct tu_zip *z, const char *name)
{
    struct named key = {name, 0};
    if (!z->n)
        return SIZE_MAX;
    const struct named *found = bsearch(&key, z->by_name, z->n, sizeof key, by_name);
    return found ? found->i : SIZE_MAX;
}

/* Contents --------------------------------------------------------------------------- */

/* Takes the bytes of an entry in order. */
typedef int (*put_fn)(void *ctx, const unsigned char *p, size_t n, struct tu_err *err);

struct walk {
    struct tu_zip *z;
    const struct tu_zip_entry *e;
    struct tu_pool *pool;
    put_fn put;
    void *ctx;
    bool verify;
    uint32_t crc;
    uint64_t done;
};

static int walk_put(struct walk *w, const unsigned char *p, size_t n, struct tu_err *err)
{
    if (n > w->e->size - w->done)
        return bad(w->z, w->e->name, w->e->offset - w->z->base,
                   "inflates to more than its declared size", err);
    w->done += n;
    if (w->verify)
        w->crc = tu_crc32_pool(w->crc, p, n, w->pool);
    return w->put ? w->put(w->ctx, p, n, err) : 0;
}

static int walk_stored(struct walk *w, unsigned char *buf, struct tu_err *err)
{
    int rc = 0;
    while (rc == 0 && w->done < w->e->size) {
        size_t n = (size_t)tu_min(CHUNK, w->e->size - w->done);
        rc = tu_in_pread(w->z->in, w->e->offset + w->done, buf, n, err);
        if (rc == 0)
            rc = walk_put(w, buf, n, err);
    }
    return rc;
}

static void *z_alloc(void *opaque, unsigned n, unsigned size)
{
    (void)opaque;
    return tu_alloc(n, size, NULL);
}

static void z_free(void *opaque, void *p)
{
    (void)opaque;
    tu_free(p);
}

static int walk_deflated(struct walk *w, unsigned char *buf, struct tu_err *err)
{
    unsigned char *plain = buf + CHUNK;
    uint64_t left = w->e->stored, at = w->e->offset;
    z_stream s = {.zalloc = z_alloc, .zfree = z_free};
    if (inflateInit2(&s, -MAX_WBITS) != Z_OK)
        return tu_fail(err, TU_ENOMEM, "out of memory to inflate");
    int rc = 0, got = Z_OK;
    while (rc == 0 && got != Z_STREAM_END) {
        if (!s.avail_in && left) {
            size_t n = (size_t)tu_min(CHUNK, left);
            rc = tu_in_pread(w->z->in, at, buf, n, err);
            if (rc < 0)
                break;
            s.next_in = buf;
            s.avail_in = (unsigned)n;
            at += n;
            left -= n;
        }
        s.next_out = plain;
        s.avail_out = (unsigned)CHUNK;
        got = inflate(&s, Z_NO_FLUSH);
        if (got == Z_MEM_ERROR)
            rc = tu_fail(err, TU_ENOMEM, "out of memory to inflate");
        else if (got != Z_OK && got != Z_STREAM_END)
            rc = bad(w->z, w->e->name, at - s.avail_in - w->z->base,
                     left ? "damaged deflate data" : "damaged or cut deflate data", err);
        else
            rc = walk_put(w, plain, CHUNK - s.avail_out, err);
    }
    if (rc == 0 && (left || s.avail_in))
        rc = bad(w->z, w->e->name, at - s.avail_in - w->z->base,
                 "bytes follow the end of the deflate data", err);
    inflateEnd(&s);
    return rc;
}

static int walk(struct walk *w, struct tu_err *err)
{
    unsigned char *buf = tu_alloc(2, CHUNK, err);
    if (!buf)
        return TU_ENOMEM;
    const struct tu_zip_entry *e = w->e;
    int rc = e->method ? walk_deflated(w, buf, err) : walk_stored(w, buf, err);
    tu_free(buf);
    char shown[88];
    tu_text_short(e->name, strlen(e->name), shown);
    if (rc == 0 && w->done != e->size)
        rc = bad(w->z, e->name, e->offset - w->z->base,
                 "inflates to less than its declared size", err);
    if (rc == 0 && w->verify && w->crc != e->crc)
        rc = tu_fail_at(
            err, TU_EPCRC, e->offset,
            "%s: zip entry '%s': checksum mismatch (stored %08x, computed %08x)",
            tu_in_name(w->z->in), shown, e->crc, w->crc);
    return rc;
}

static int put_memory(void *ctx, const unsigned char *p, size_t n, struct tu_err *err)
{
    unsigned char **to = ctx;
    (void)err;
    memcpy(*to, p, n);
    *to += n;
    return 0;
}

/* What is held in memory as a whole: pickles, texts. Deflate reaches 1032 to 1. */
#define BOMB_BYTES (16u << 20)
#define BOMB_RATIO 200

int tu_zip_load(struct tu_zip *z, size_t i, size_t max, bool verify, void **data,
                size_t *n, struct tu_err *err)
{
    const struct tu_zip_entry *e = &z->entry[i];
    char shown[88];
    *data = NULL;
    if (e->size > max)
        return tu_fail(err, TU_ELIMIT,
                       "%s: zip entry '%s': %llu bytes, more than the %zu allowed",
                       tu_in_name(z->in), tu_text_short(e->name, strlen(e->name), shown),
                       (unsigned long long)e->size, max);
    if (e->size > BOMB_BYTES && e->size / BOMB_RATIO > e->stored)
        return tu_fail(err, TU_ELIMIT,
                       "%s: zip entry '%s': %llu bytes out of %llu: no file that is meant "
                       "to be read is packed so tightly",
                       tu_in_name(z->in), tu_text_short(e->name, strlen(e->name), shown),
                       (unsigned long long)e->size, (unsigned long long)e->stored);
    unsigned char *to = tu_alloc((size_t)e->size, 1, err);
    if (!to)
        return TU_ENOMEM;
    unsigned char *p = to;
    struct walk w = {.z = z, .e = e, .put = put_memory, .ctx = &p, .verify = verify};
    int rc = walk(&w, err);
    if (rc < 0) {
        tu_free(to);
        return rc;
    }
    *data = to;
    *n = (size_t)e->size;
    return 0;
}

static int put_out(void *ctx, const unsigned char *p, size_t n, struct tu_err *err)
{
    return tu_out_write(ctx, p, n, err);
}

int tu_zip_inflate(struct tu_zip *z, size_t i, int fd, struct tu_err *err)
{
    struct tu_out *out;
    int own = dup(fd);
    if (own < 0)
        return tu_fail_errno(err, "%s: temporary file", tu_in_name(z->in));
    int rc = tu_out_take_fd(&out, own, "temporary file", err);
    if (rc < 0)
        return rc;
    struct walk w = {
        .z = z, .e = &z->entry[i], .put = put_out, .ctx = out, .verify = true};
    rc = walk(&w, err);
    if (rc < 0) {
        tu_out_abort(out);
        return rc;
    }
    return tu_out_commit(out, false, err);
}

int tui_zip_verify(struct tu_zip *z, size_t i, struct tu_pool *pool, struct tu_err *err)
{
    struct walk w = {.z = z, .e = &z->entry[i], .verify = true, .pool = pool};
    return walk(&w, err);
}

bool tui_zip_sniff(const unsigned char *head, size_t n, const char **name, size_t *name_n)
{
    uint32_t magic = n < TUI_ZIP_END_SIZE ? 0 : tu_le32(head);
    *name = (const char *)head + TUI_ZIP_LOCAL_SIZE;
    *name_n = 0;
    if (magic == TUI_ZIP_LOCAL && n > TUI_ZIP_LOCAL_SIZE)
        *name_n = (size_t)tu_min(tu_le16(head + 26), n - TUI_ZIP_LOCAL_SIZE);
    return magic == TUI_ZIP_LOCAL || magic == TUI_ZIP_END || magic == TUI_ZIP_END64;
}
