/* SPDX-License-Identifier: Apache-2.0 */
/* chunked.c: the lossless codecs: chunks of numbers, each in the form that is shortest.
 *
 * Codes are a byte of flags (1: by channel, all tokens of one channel together; 2: a byte
 * for each column follows, taken from its exponents), then chunks of 65536 elements (the
 * last may be short): a byte for the form, u32 bytes that follow. 0 the elements as they
 * are; 1 split16: 16 exponents, u32 escapes, nibbles, rest, escapes of 3 bytes; 2 the
 * planes without exponents, then the exponents under a Huffman code; 3, 4, 5 two sizes, the
 * exponents by zlib, zstd or lz4, and the other planes too unless their size is 0. NaN,
 * infinities, -0 and subnormals are numbers like others here. */
#include <inttypes.h>
#include <string.h>
#include "codecs.h"
#include "huffman.h"
#include "planes.h"
#include "press.h"
#include "split.h"

enum { CHUNK = 65536, HEAD = 5 };
enum form { RAW, SPLIT, HUFFMAN, PRESSED };
static const char *const form_of[] = {"", "split16", "planes", "zlib", "zstd", "lz4"};
enum { CHANNEL = 1, BIAS = 2 };

struct plan {
    unsigned form; /* of form_of; PRESSED or more: by `press` */
    uint32_t dtype;
    unsigned elem;
    struct tui_press press;
    struct tui_bias bias;
    uint64_t col; /* of the chunk's first number, where there is a bias */
    uint8_t *plane, *rest; /* scratch: CHUNK and 3 · CHUNK bytes */
    struct tui_escape *escape;
};

/* The 16 exponents that a sample has most of. */
static void make_book(const uint16_t *x, size_t n, uint8_t book[16])
{
    uint32_t count[256] = {0}, top[16] = {0};
    for (size_t i = 0; i < n; i += n > 4096 ? 16 : 1)
        count[x[i] >> 7 & 255]++;
    memset(book, 0, 16);
    for (int v = 0; v < 256; v++) {
        int k = 16;
        if (count[v] <= top[15])
            continue;
        for (; k > 0 && count[v] > top[k - 1]; k--)
            if (k < 16) {
                top[k] = top[k - 1];
                book[k] = book[k - 1];
            }
        top[k] = count[v];
        book[k] = (uint8_t)v;
    }
    for (int k = 1; k < 16; k++) /* what does not occur must not hide an entry */
        if (!top[k])
            book[k] = book[0];
}

static size_t put_split(const struct plan *p, const uint8_t *x, size_t n, uint8_t *out)
{
    tui_split_fn *fn = (tui_split_fn *)tu_kernel_pick(tui_split_kernels, tu_cpu_bits())->fn;
    size_t fixed = 20 + (n + 1) / 2 + n;
    const uint16_t *u = (const uint16_t *)(const void *)x;
    make_book(u, n, out);
    size_t escapes = fn(u, n, out, out + 20, out + 20 + (n + 1) / 2, p->escape);
    if (fixed + 3 * escapes >= 2 * n)
        return 0;
    tu_put32(out + 16, (uint32_t)escapes);
    for (size_t i = 0; i < escapes; i++) {
        tu_put16(out + fixed + 3 * i, p->escape[i].at);
        out[fixed + 3 * i + 2] = p->escape[i].exponent;
    }
    return fixed + 3 * escapes;
}

static size_t put_planes(const struct plan *p, const uint8_t *x, size_t n, uint8_t *out)
{
    size_t rest = n * (p->elem - 1);
    tui_planes_apart(p->dtype, &p->bias, p->col, x, n, p->plane, out);
    size_t coded = tui_huff_encode(p->plane, n, out + rest);
    return coded && coded < n ? rest + coded : 0;
}

/* The exponents and, where it shrinks, the rest (its size 0: as it is). */
static size_t put_pressed(const struct plan *p, const uint8_t *x, size_t n, uint8_t *out)
{
    size_t rest = n * (p->elem - 1);
    tui_planes_apart(p->dtype, &p->bias, p->col, x, n, p->plane, p->rest);
    size_t a = tui_press(&p->press, p->plane, n, out + 8, n);
    if (!a)
        return 0;
    size_t b = rest ? tui_press(&p->press, p->rest, rest, out + 8 + a, rest) : 0;
    if (!b && rest)
        memcpy(out + 8 + a, p->rest, rest);
    tu_put32(out, (uint32_t)a);
    tu_put32(out + 4, (uint32_t)b);
    return 8 + a + (b ? b : rest) < n * p->elem ? 8 + a + (b ? b : rest) : 0;
}

static size_t put_chunk(const struct plan *p, const uint8_t *x, size_t n, uint8_t *out)
{
    size_t size = p->form == SPLIT     ? put_split(p, x, n, out + HEAD)
                  : p->form == HUFFMAN ? put_planes(p, x, n, out + HEAD)
                                       : put_pressed(p, x, n, out + HEAD);
    out[0] = (uint8_t)(size ? p->form : RAW);
    if (!size) {
        size = n * p->elem;
        memcpy(out + HEAD, x, size);
    }
    tu_put32(out + 1, (uint32_t)size);
    return HEAD + size;
}

/* What both ways need: the form of spec's name, its library, memory. */
static int prepare(struct plan *p, const struct tu_spec *spec, const struct tu_kv_array *a,
                   struct tu_err *err)
{
    *p = (struct plan){.dtype = a->dtype, .elem = tu_dtype_find(a->dtype)->block_bytes};
    while (strcmp(form_of[p->form], spec->name) != 0)
        p->form++;
    if (p->elem > 4 || (p->form == SPLIT && a->dtype != TU_BF16))
        return tu_fail(err, TU_EUSAGE, "codec '%s' takes %s", spec->name,
                       p->form == SPLIT ? "bf16" : "elements of at most 4 bytes");
    int rc = p->form >= PRESSED ? tui_press_open(&p->press, spec->name, spec, err) : 0;
    if (rc)
        return rc;
    p->plane = tu_alloc(CHUNK, 4, err);
    p->escape = tu_alloc(CHUNK, sizeof *p->escape, err);
    p->rest = p->plane ? p->plane + CHUNK : NULL;
    return p->plane && p->escape ? 0 : TU_ENOMEM;
}

static void turn(const struct tu_kv_array *a, unsigned elem, const void *x, void *y, bool back)
{
    struct tu_kv_place p;
    const struct tu_kv_layout *l;
    struct tu_kv_geometry g = {.layers = 1, .heads = 1, .dim = a->heads * a->dim,
                               .block = a->tokens, .blocks = 1, .elem = elem};
    if (tu_kv_layout_find(&l, "ht", NULL) || tu_kv_place(&p, l, TU_KV_V, &g, NULL))
        return;
    if (back)
        tu_kv_get(&p, x, 0, 0, NULL, 0, a->tokens, y);
    else
        tu_kv_put(&p, y, 0, 0, NULL, 0, a->tokens, x);
}

/* By channel? order=channel|token. */
static int by_channel(const struct tu_spec *spec, const struct tu_kv_array *a, bool *yes,
                      struct tu_err *err)
{
    const char *s = tu_spec_get(spec, "order");
    *yes = s && !strcmp(s, "channel");
    if (s && !*yes && strcmp(s, "token") != 0)
        return tu_fail(err, TU_EUSAGE, "order=%.20s is not channel or token", s);
    *yes = *yes && a->tokens > 1;
    return 0;
}

/* The flags and biases, at the codes' beginning. */
static int begin(struct plan *p, const struct tu_kv_array *a, const void *x, bool channel,
                 uint8_t *to, struct tu_err *err)
{
    bool bias = p->form != SPLIT && !channel && tui_bias_helps(a);
    int rc = tui_bias_room(&p->bias, bias ? a->heads * a->dim : 0, CHUNK, err);
    to[0] = (uint8_t)((channel ? CHANNEL : 0) | (bias ? BIAS : 0));
    if (rc || !bias)
        return rc;
    tui_bias_learn(&p->bias, a, x);
    memcpy(to + 1, p->bias.value, (size_t)p->bias.columns);
    tui_bias_repeat(&p->bias, CHUNK);
    return 0;
}

static void release(struct plan *p)
{
    tui_press_close(&p->press);
    tu_free(p->bias.value);
    tu_free(p->plane);
    tu_free(p->escape);
}

int tui_chunked_encode(const struct tu_kv_codec *row, const struct tu_spec *spec,
                       const struct tu_kv_array *a, const void *x, struct tu_kv_coded *out,
                       struct tu_err *err)
{
    struct plan p;
    uint64_t n = tui_elements(a), chunks = tu_ceil_div(n, CHUNK);
    bool channel;
    const uint8_t *from = x;
    uint8_t *to = NULL;
    void *turned = NULL;
    (void)row;
    int rc = prepare(&p, spec, a, err);
    if (!rc)
        rc = by_channel(spec, a, &channel, err);
    if (!rc) {
        uint64_t room = 1 + a->heads * a->dim + chunks * (HEAD + tui_huff_bound(CHUNK)) +
                        n * p.elem;
        to = tu_alloc((size_t)room, 1, err);
        out->part[0] = (struct tu_kv_part){.dtype = TU_U8, .rank = 1, .data = to};
        out->n = 1;
        rc = to ? begin(&p, a, x, channel, to, err) : TU_ENOMEM;
    }
    if (!rc && channel && !(turned = tu_alloc((size_t)n, p.elem, err)))
        rc = TU_ENOMEM;
    if (!rc) {
        uint64_t at = 1 + p.bias.columns;
        if (channel) {
            turn(a, p.elem, x, turned, false);
            from = turned;
        }
        for (uint64_t i = 0; i < n; i += CHUNK) {
            p.col = p.bias.columns ? i % p.bias.columns : 0;
            at += put_chunk(&p, from + i * p.elem, (size_t)tu_min(CHUNK, n - i), to + at);
        }
        out->part[0].dim[0] = out->part[0].bytes = at;
    }
    tu_free(turned);
    release(&p);
    return rc;
}

/* Decoding ------------------------------------------------------------------------------- */

static bool get_split(const struct plan *p, const uint8_t *in, size_t size, uint8_t *x,
                      size_t n)
{
    tui_join_fn *fn = (tui_join_fn *)tu_kernel_pick(tui_join_kernels, tu_cpu_bits())->fn;
    size_t fixed = 20 + (n + 1) / 2 + n, escapes = size >= 20 ? tu_le32(in + 16) : 0;
    if (p->dtype != TU_BF16 || size < fixed || escapes > n || size != fixed + 3 * escapes)
        return false;
    fn((uint16_t *)(void *)x, n, in, in + 20, in + 20 + (n + 1) / 2);
    for (size_t i = 0; i < escapes; i++) {
        size_t at = tu_le16(in + fixed + 3 * i);
        if (at >= n)
            return false;
        unsigned u = tu_le16(x + 2 * at) & ~(255u << 7);
        tu_put16(x + 2 * at, (uint16_t)(u | (unsigned)in[fixed + 3 * i + 2] << 7));
    }
    return true;
}

static bool get_planes(const struct plan *p, const uint8_t *in, size_t size, uint8_t *x,
                       size_t n)
{
    size_t rest = n * (p->elem - 1);
    if (size < rest || !tui_huff_decode(in + rest, size - rest, p->plane, n))
        return false;
    tui_planes_unite(p->dtype, &p->bias, p->col, x, n, p->plane, in);
    return true;
}

static bool get_pressed(const struct plan *p, const uint8_t *in, size_t size, uint8_t *x,
                        size_t n)
{
    size_t rest = n * (p->elem - 1);
    if (size < 8)
        return false;
    size_t a = tu_le32(in), b = tu_le32(in + 4);
    if (a > size - 8 || (b ? b : rest) != size - 8 - a ||
        !tui_unpress(&p->press, in + 8, a, p->plane, n) ||
        (b && !tui_unpress(&p->press, in + 8 + a, b, p->rest, rest)))
        return false;
    tui_planes_unite(p->dtype, &p->bias, p->col, x, n, p->plane, b ? p->rest : in + 8 + a);
    return true;
}

/* A chunk has the form of the codec, or none. */
static bool get_chunk(const struct plan *p, unsigned form, const uint8_t *in, size_t size,
                      uint8_t *x, size_t n)
{
    if (form != RAW && form != p->form)
        return false;
    switch (form) {
    case RAW:
        if (size != n * p->elem)
            return false;
        memcpy(x, in, size);
        return true;
    case SPLIT: return get_split(p, in, size, x, n);
    case HUFFMAN: return get_planes(p, in, size, x, n);
    default: return get_pressed(p, in, size, x, n);
    }
}

/* What `begin` wrote, its bytes to *at; 0 where they are malformed. */
static int begun(struct plan *p, const struct tu_kv_array *a, const struct tu_kv_part *part,
                 unsigned n, bool *channel, uint64_t *at, struct tu_err *err)
{
    const uint8_t *in = part[0].data;
    uint64_t columns = a->heads * a->dim;
    *at = 0;
    if (n != 1 || part[0].dtype != TU_U8 || part[0].bytes < 1 || in[0] > (CHANNEL | BIAS))
        return 0;
    *channel = in[0] & CHANNEL;
    if (!(in[0] & BIAS))
        columns = 0;
    if (columns > part[0].bytes - 1)
        return 0;
    *at = 1 + columns;
    int rc = tui_bias_room(&p->bias, columns, CHUNK, err);
    if (!rc && columns) {
        memcpy(p->bias.value, in + 1, (size_t)columns);
        tui_bias_repeat(&p->bias, CHUNK);
    }
    return rc;
}

int tui_chunked_decode(const struct tu_kv_codec *row, const struct tu_spec *spec,
                       const struct tu_kv_array *a, const struct tu_kv_part *part, unsigned n,
                       void *out, struct tu_err *err)
{
    struct plan p;
    uint64_t all = tui_elements(a), done = 0, at;
    const uint8_t *in = part[0].data;
    uint8_t *to = out;
    void *turned = NULL;
    bool channel = false;
    (void)row;
    int rc = prepare(&p, spec, a, err);
    if (!rc)
        rc = begun(&p, a, part, n, &channel, &at, err);
    bool good = !rc && at;
    if (good && channel) {
        if (!(turned = tu_alloc((size_t)all, p.elem, err)))
            rc = TU_ENOMEM;
        to = turned;
    }
    for (; !rc && good && done < all; done += CHUNK) {
        size_t count = (size_t)tu_min(CHUNK, all - done);
        p.col = p.bias.columns ? done % p.bias.columns : 0;
        good = part[0].bytes - at >= HEAD;
        size_t size = good ? tu_le32(in + at + 1) : 0;
        good = good && size <= part[0].bytes - at - HEAD &&
               get_chunk(&p, in[at], in + at + HEAD, size, to + done * p.elem, count);
        at += HEAD + size;
    }
    if (!rc && (!good || at != part[0].bytes))
        rc = tu_fail_at(err, TU_EFORMAT, at, "codes of '%s': chunk %" PRIu64 " is malformed",
                        spec->name, done / CHUNK);
    if (!rc && turned)
        turn(a, p.elem, turned, out, true);
    tu_free(turned);
    release(&p);
    return rc;
}
