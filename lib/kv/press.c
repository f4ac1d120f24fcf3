/* SPDX-License-Identifier: Apache-2.0 */
/* press.c: zlib, and Zstandard and LZ4 where their libraries are. */
#include "press.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <string.h>
#include <zlib.h>

struct tui_press_row {
    const char *name;
    const char *library, *package; /* NULL: linked */
    uint64_t level, most;
    size_t (*put)(const struct tui_press *p, const void *x, size_t n, void *out, size_t room);
    bool (*get)(const struct tui_press *p, const void *in, size_t size, void *x, size_t n);
};

static size_t put_zlib(const struct tui_press *p, const void *x, size_t n, void *out,
                       size_t room)
{
    z_stream z = {0};
    if (deflateInit2(&z, p->level, Z_DEFLATED, 15, 9, p->strategy) != Z_OK)
        return 0;
    z.next_in = (Bytef *)(uintptr_t)x;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)room;
    int rc = deflate(&z, Z_FINISH);
    size_t size = room - z.avail_out;
    deflateEnd(&z);
    return rc == Z_STREAM_END ? size : 0;
}

static bool get_zlib(const struct tui_press *p, const void *in, size_t size, void *x, size_t n)
{
    uLongf got = (uLongf)n;
    (void)p;
    return uncompress(x, &got, in, (uLong)size) == Z_OK && got == n;
}

static size_t put_zstd(const struct tui_press *p, const void *x, size_t n, void *out,
                       size_t room)
{
    size_t size = p->call.zstd(out, room, x, n, p->level);
    return p->call.zstd_error(size) ? 0 : size;
}

static bool get_zstd(const struct tui_press *p, const void *in, size_t size, void *x, size_t n)
{
    return p->call.unzstd(x, n, in, size) == n; /* errors are numbers close to SIZE_MAX */
}

static size_t put_lz4(const struct tui_press *p, const void *x, size_t n, void *out,
                      size_t room)
{
    int size = p->call.lz4(x, out, (int)n, (int)room);
    return size > 0 ? (size_t)size : 0;
}

static bool get_lz4(const struct tui_press *p, const void *in, size_t size, void *x, size_t n)
{
    return p->call.unlz4(in, x, (int)size, (int)n) == (int)n;
}

static const struct tui_press_row rows[] = {
    {"zlib", NULL, NULL, 6, 9, put_zlib, get_zlib},
    {"zstd", "libzstd.so.1", "libzstd1", 1, 19, put_zstd, get_zstd},
    {"lz4", "liblz4.so.1", "liblz4-1", 1, 1, put_lz4, get_lz4},
};

static const struct {
    const char *row, *symbol;
    size_t at;
} symbols[] = {
    {"zstd", "ZSTD_compress", offsetof(struct tui_press_calls, zstd)},
    {"zstd", "ZSTD_decompress", offsetof(struct tui_press_calls, unzstd)},
    {"zstd", "ZSTD_isError", offsetof(struct tui_press_calls, zstd_error)},
    {"lz4", "LZ4_compress_default", offsetof(struct tui_press_calls, lz4)},
    {"lz4", "LZ4_decompress_safe", offsetof(struct tui_press_calls, unlz4)},
};

static int load(struct tui_press *p, struct tu_err *err)
{
    const struct tui_press_row *r = p->row;
    if (!(p->library = dlopen(r->library, RTLD_NOW | RTLD_LOCAL)))
        return tu_fail(err, TU_EMISSING,
                       "codec '%s': %s is not installed: the package %s brings it", r->name,
                       r->library, r->package);
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        if (strcmp(symbols[i].row, r->name) != 0)
            continue;
        void *f = dlsym(p->library, symbols[i].symbol);
        if (!f)
            return tu_fail(err, TU_EMISSING, "codec '%s': %s has no %s", r->name, r->library,
                           symbols[i].symbol);
        memcpy((char *)&p->call + symbols[i].at, &f, sizeof f);
    }
    return 0;
}

static int arguments(struct tui_press *p, const struct tu_spec *spec, struct tu_err *err)
{
    const struct tui_press_row *r = p->row;
    const char *s = tu_spec_get(spec, "strategy");
    uint64_t level;
    int rc = tu_spec_u64(spec, "level", r->level, &level, err);
    if (!rc && level > r->most)
        rc = tu_fail(err, TU_EUSAGE, "%s: level=%" PRIu64 " is not 0 to %" PRIu64, r->name,
                     level, r->most);
    p->level = rc ? 0 : (int)level;
    p->strategy = Z_HUFFMAN_ONLY;
    if (s && !strcmp(s, "default"))
        p->strategy = Z_DEFAULT_STRATEGY;
    else if (s && !strcmp(s, "rle"))
        p->strategy = Z_RLE;
    else if (!rc && s && strcmp(s, "huffman") != 0)
        rc = tu_fail(err, TU_EUSAGE, "%s: strategy=%.20s is not huffman, default or rle",
                     r->name, s);
    return rc;
}

int tui_press_open(struct tui_press *p, const char *name, const struct tu_spec *spec,
                   struct tu_err *err)
{
    *p = (struct tui_press){0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name))
            p->row = &rows[i];
    if (!p->row)
        return tu_fail(err, TU_EUSAGE, "codec '%s': unknown", name);
    int rc = arguments(p, spec, err);
    if (!rc && p->row->library)
        rc = load(p, err);
    if (rc)
        tui_press_close(p);
    return rc;
}

void tui_press_close(struct tui_press *p)
{
    if (p->library)
        dlclose(p->library);
    *p = (struct tui_press){0};
}

size_t tui_press(const struct tui_press *p, const void *x, size_t n, void *out, size_t room)
{
    size_t size = p->row->put(p, x, n, out, room);
    return size < n ? size : 0;
}

bool tui_unpress(const struct tui_press *p, const void *in, size_t size, void *x, size_t n)
{
    return p->row->get(p, in, size, x, n);
}
