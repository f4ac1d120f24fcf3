/* SPDX-License-Identifier: Apache-2.0 */
/* npy.c: .npy arrays: reading, converting, and the format of a file that is one.
 *
 * Big-endian and Fortran-order arrays become little-endian rows on reading; what they
 * were stays in `src` metadata, and writing restores it. Headers are in npy_head.c;
 * archives of arrays in npz.c.
 *
 * A converted array is written from one buffer: its stored order is not the order of its
 * tensor. */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "kit.h"
#include "npy.h"
#include "rows.h"

/* elements ------------------------------------------------------------------------------------- */

bool tui_npy_plain(const struct tui_npy *h)
{
    return !h->fortran && !h->big;
}

/* Strides, in elements, of an array whose first index runs fastest. */
static void fortran_strides(const uint64_t *dim, unsigned rank, int64_t *stride)
{
    int64_t step = 1;
    for (unsigned k = 0; k < rank; k++) {
        stride[k] = step;
        step *= (int64_t)dim[k];
    }
}

void tui_npy_store(const struct tui_npy *h, void *dst, const void *src)
{
    size_t elem = tu_dtype_find(h->dtype)->block_bytes;
    if (!h->bytes)
        return;
    if (h->fortran) {
        /* The stored order is the C order of the array with its dimensions turned around,
         * whose strides in the tensor are the tensor's, turned around too. */
        uint64_t dim[TU_RANK_MAX];
        int64_t stride[TU_RANK_MAX], step = 1;
        for (unsigned k = 0; k < h->rank; k++) {
            dim[k] = h->dim[h->rank - 1 - k];
            stride[k] = step;
            step *= (int64_t)dim[k];
        }
        tu_gather(dst, src, dim, stride, h->rank, elem, 0, h->bytes / elem);
    } else {
        memcpy(dst, src, (size_t)h->bytes);
    }
    if (h->big)
        tui_swap(dst, (size_t)h->bytes, h->dtype);
}

/* arrays --------------------------------------------------------------------------------------- */

/* "FILE" or "FILE: member 'x'" before the message. */
static int blame(struct tu_err *err, int code, const struct tu_in *in, const char *member)
{
    if (member)
        tu_err_prefix(err, "%s: member '%.80s'", tu_in_name(in), member);
    else
        tu_err_prefix(err, "%s", tu_in_name(in));
    return code;
}

/* Fortran order is read through a mapping: a gather of rows touches the whole file. */
static int map_file(struct tui_npy_array *a, struct tu_err *err)
{
    struct stat st;
    if (fstat(tu_in_fd(a->in), &st))
        return tu_fail_errno(err, "cannot stat");
    /* Offsets of a tu_in count from where its descriptor stood. */
    uint64_t base = (uint64_t)st.st_size - tu_in_size(a->in);
    a->map_len = (size_t)(base + a->data + a->h.bytes);
    void *map = mmap(NULL, a->map_len, PROT_READ, MAP_PRIVATE, tu_in_fd(a->in), 0);
    if (map == MAP_FAILED)
        return tu_fail_errno(err, "cannot map %zu bytes", a->map_len);
    a->map = map;
    return 0;
}

int tui_npy_open(struct tui_npy_array *a, struct tu_in *in, const char *member, uint64_t off,
                 uint64_t size, uint32_t void_dtype, struct tu_err *err)
{
    unsigned char head[TUI_NPY_HEAD];
    size_t n = (size_t)tu_min(size, sizeof head);
    *a = (struct tui_npy_array){ .in = in };
    int code = n ? tu_in_pread(in, off, head, n, err) : 0;
    if (code)
        return code;
    code = tui_npy_parse_header(&a->h, head, n, void_dtype, err);
    if (code)
        return blame(err, code, in, member);
    a->data = off + a->h.head;
    unsigned long long want = a->h.head + a->h.bytes, have = size;
    if (a->h.bytes > UINT64_MAX - a->h.head || want > have)
        code = tu_fail_at(err, TU_ETRUNC, off + size,
                          "incomplete: the header describes %llu bytes, %llu found", want, have);
    else if (want < have)
        code = tu_fail_at(err, TU_EGARBAGE, off + want,
                          "too long: the header describes %llu bytes, %llu found", want, have);
    else if (a->h.fortran && a->h.bytes)
        code = map_file(a, err);
    return code ? blame(err, code, in, member) : 0;
}

void tui_npy_close(struct tui_npy_array *a)
{
    if (a->map)
        munmap(a->map, a->map_len);
    a->map = NULL;
}

/* Whole elements first … first+n-1 of the tensor, converted. */
static int read_elements(const struct tui_npy_array *a, uint64_t first, void *buf, size_t n,
                         struct tu_err *err)
{
    size_t elem = tu_dtype_find(a->h.dtype)->block_bytes;
    int code = 0;
    if (a->map) {
        int64_t stride[TU_RANK_MAX];
        fortran_strides(a->h.dim, a->h.rank, stride);
        const char *data = (const char *)a->map + (a->map_len - a->h.bytes);
        tu_gather(buf, data, a->h.dim, stride, a->h.rank, elem, first, n);
    } else {
        code = tu_in_pread(a->in, a->data + first * elem, buf, n * elem, err);
    }
    if (!code && a->h.big)
        tui_swap(buf, n * elem, a->h.dtype);
    return code;
}

int tui_npy_read(const struct tui_npy_array *a, uint64_t off, void *buf, size_t n,
                 struct tu_err *err)
{
    if (tui_npy_plain(&a->h))
        return tu_in_pread(a->in, a->data + off, buf, n, err);
    /* Whole elements go straight to the caller, split ones through `one`. */
    size_t elem = tu_dtype_find(a->h.dtype)->block_bytes;
    unsigned char one[16], *out = buf;
    int code = 0;
    while (!code && n) {
        size_t skip = (size_t)(off % elem);
        size_t step = skip || n < elem ? (size_t)tu_min(elem - skip, n) : n - n % elem;
        if (skip || step < elem) {
            code = read_elements(a, off / elem, one, 1, err);
            memcpy(out, one + skip, code ? 0 : step);
        } else {
            code = read_elements(a, off / elem, out, step / elem, err);
        }
        out += step;
        off += step;
        n -= step;
    }
    return code;
}

/* a file of one array -------------------------------------------------------------------------- */

struct npy_source {
    struct tu_source base;
    struct tui_npy_array array;
    struct tu_extent extent;
    struct tu_tensor tensor;
};

static int read_npy(struct tu_source *s, size_t i, uint64_t off, void *buf, size_t n,
                    struct tu_err *err)
{
    (void)i;
    return tui_npy_read(&((struct npy_source *)s)->array, off, buf, n, err);
}

static void close_npy(struct tu_source *s)
{
    tui_npy_close(&((struct npy_source *)s)->array);
    tui_source_free(s);
}

static const struct tu_source_ops source_ops = { read_npy, NULL, NULL, close_npy };

static bool sniff_npy(const char *path, const unsigned char *head, size_t n)
{
    (void)path;
    return n >= 6 && !memcmp(head, "\x93NUMPY", 6);
}

/* The tensor's name: the file's, without folders and suffix; numpy's own for what has
 * none. */
static char *name_of(struct tu_arena *arena, const char *path, struct tu_err *err)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    size_t n = strlen(base);
    if (n > 4 && !strcmp(base + n - 4, ".npy"))
        n -= 4;
    if (!n || !strcmp(path, "standard input") || tu_name_check(base, n) < n)
        return tu_arena_text(arena, "arr_0", 5, err);
    return tu_arena_text(arena, base, n, err);
}

static int open_npy(struct tu_source **out, const char *path, const struct tu_open *how,
                    const struct tu_job *job, struct tu_err *err)
{
    (void)job;
    struct npy_source *s = tui_source_new(sizeof *s, &tui_format_npy, &source_ops, path, err);
    if (!s)
        return TU_ENOMEM;
    int code = tui_npy_open(&s->array, how->in, NULL, 0, tu_in_size(how->in), how->void_dtype,
                            err);
    const char *name = code ? NULL : name_of(s->base.arena, path, err);
    if (!code)
        code = name ? tui_npy_tensor(&s->tensor, s->base.arena, &s->array, name,
                                     how->keep_header, err)
                    : TU_ENOMEM;
    if (code) {
        close_npy(&s->base);
        return code;
    }
    if (tui_npy_plain(&s->array.h))
        s->extent = (struct tu_extent){ how->in, s->array.data };
    s->base.n = 1;
    s->base.tensor = &s->tensor;
    s->base.extent = &s->extent;
    s->base.referenced = s->tensor.bytes;
    s->base.stored = tu_in_size(how->in);
    *out = &s->base;
    return 0;
}

/* writing: a flat sink; a converted array is collected and stored when it is whole ------------- */

struct npy_sink {
    struct tu_sink base;
    struct tui_flat *flat;
    struct tui_npy h;
    char *whole; /* the tensor, where its stored bytes are not its own */
};

static int write_npy(struct tu_sink *sink, size_t i, uint64_t off, const void *p, size_t n,
                     struct tu_err *err)
{
    struct npy_sink *s = (struct npy_sink *)sink;
    if (!s->whole)
        return tui_flat_ops.write(&s->flat->sink, i, off, p, n, err);
    memcpy(s->whole + off, p, n);
    return 0;
}

static int finish_npy(struct tu_sink *sink, bool durable, struct tu_err *err)
{
    struct npy_sink *s = (struct npy_sink *)sink;
    if (s->whole) {
        char *stored = tu_alloc((size_t)s->h.bytes, 1, err);
        if (!stored)
            return TU_ENOMEM;
        tui_npy_store(&s->h, stored, s->whole);
        int code = tui_flat_put(s->flat, s->flat->at[0], stored, (size_t)s->h.bytes, err);
        tu_free(stored);
        if (code)
            return code;
    }
    return tui_flat_ops.finish(&s->flat->sink, durable, err);
}

static void close_npy_sink(struct tu_sink *sink)
{
    struct npy_sink *s = (struct npy_sink *)sink;
    if (s->flat)
        tui_flat_ops.close(&s->flat->sink);
    tu_free(s->whole);
    tu_free(s);
}

static const struct tu_sink_ops sink_ops = { write_npy, finish_npy, close_npy_sink };

static int save_npy(struct tu_sink **out, const char *path, const struct tu_save *what,
                    const struct tu_job *job, struct tu_err *err)
{
    if (what->n != 1)
        return tu_fail(err, TU_EUSAGE,
                       "%s: an npy file holds one tensor, there are %zu: use npz", path, what->n);
    struct tu_buf head = { 0 };
    struct npy_sink *s = tu_calloc(1, sizeof *s, err);
    uint64_t *at = s ? tu_alloc(1, sizeof *at, err) : NULL;
    int code = at ? tui_npy_write_header(&head, &s->h, what->tensor, what->npy_raw,
                                         what->keep_header, err)
                  : TU_ENOMEM;
    if (code && at)
        tu_err_prefix(err, "%s", path);
    if (!code && !tui_npy_plain(&s->h)) {
        s->whole = tu_alloc((size_t)s->h.bytes, 1, err);
        code = s->whole ? 0 : TU_ENOMEM;
    }
    if (!code) {
        *at = head.n;
        code = tui_flat_new(&s->flat, &tui_format_npy, path, 1, &head, at, NULL,
                            head.n + s->h.bytes, job, err);
    } else {
        tu_free(at);
    }
    tu_buf_release(&head);
    if (code) {
        if (s)
            close_npy_sink(&s->base);
        return code;
    }
    s->base = (struct tu_sink){ .format = &tui_format_npy, .ops = &sink_ops, .n = 1,
                                .path = s->flat->sink.path };
    *out = &s->base;
    return 0;
}

const struct tu_format tui_format_npy = {
    .name = "npy",
    .help = "one NumPy array",
    .suffix = ".npy",
    .flags = TU_FORMAT_READ | TU_FORMAT_WRITE | TU_FORMAT_UNIQUE | TU_FORMAT_HEADER,
    .sniff = sniff_npy,
    .open = open_npy,
    .save = save_npy,
};
