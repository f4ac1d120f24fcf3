/* SPDX-License-Identifier: Apache-2.0 */
/* squeeze.c: vectors of floats made small for the wire: blocks of int8 and int4, ternary,
 * top-k, and whatever lib/quant has.
 *
 * A wire is scales first, then codes; its size follows from the number of floats alone.
 */
#include <math.h>
#include <stdlib.h>
#include <tensorutils/quant.h>
#include "plan.h"

static const char *const block_keys[] = {"block", NULL};
static const char *const k_keys[] = {"k", NULL};
static const char *const no_keys[] = {NULL};

enum kind { INT8, INT4, TERN, TOPK, CODEC };

const struct tu_squeeze_row tu_squeeze_rows[] = {
    [INT8] = {"int8", "blocks of int8, scale absmax/127 (block=256)", "spec section 7",
              block_keys, false},
    [INT4] = {"int4", "blocks of int4, scale absmax/7 (block=256)", "spec section 7",
              block_keys, false},
    [TERN] = {"tern", "three values, unbiased, 5 to a byte", "TernGrad, arXiv 1705.07878",
              no_keys, true},
    [TOPK] = {"topk", "the k of each thousand that are largest (k=10)", "spec section 7",
              k_keys, false},
    {NULL, NULL, NULL, NULL, false},
};

struct tu_squeeze {
    enum kind kind;
    uint64_t block, k, seed;
    struct tu_spec spec;
    struct tu_coding coding; /* CODEC: of `planned` floats */
    uint64_t planned;
    float *padded;   /* CODEC: whole blocks, zeros at the end */
    uint32_t *order; /* TOPK: [count] */
};

/* Block formats code whole blocks, the longest of which is 256. */
static uint64_t whole_blocks(uint64_t n)
{
    return tu_align(n, 256);
}

int tu_squeeze_new(struct tu_squeeze **out, const char *text, uint64_t count,
                   uint64_t seed, struct tu_err *err)
{
    *out = NULL;
    struct tu_squeeze *s = tu_calloc(1, sizeof *s, err);
    if (!s)
        return TU_ENOMEM;
    int code = tu_spec_parse(&s->spec, text, err);
    s->kind = CODEC;
    s->seed = seed;
    s->planned = UINT64_MAX;
    for (int i = 0; i < CODEC && !code; i++)
        if (strcmp(tu_squeeze_rows[i].name, s->spec.name) == 0)
            s->kind = (enum kind)i;
    if (!code && s->kind == CODEC && !tu_codec_find(s->spec.name))
        code = tu_fail(err, TU_EUSAGE, "no compression '%s'", s->spec.name);
    if (!code && s->kind != CODEC)
        code = tu_spec_check(&s->spec, tu_squeeze_rows[s->kind].key, err);
    if (!code)
        code = tu_spec_u64(&s->spec, "block", 256, &s->block, err);
    if (!code && s->kind == TOPK)
        code = tu_spec_u64(&s->spec, "k", 10, &s->k, err);
    if (!code && (!s->block || s->block > 1 << 20 || s->k > 1000 ||
                  (s->kind == TOPK && !s->k) || (s->kind == TOPK && count > UINT32_MAX)))
        code = tu_fail(err, TU_EUSAGE, "'%s': block 1 to 1048576, k 1 to 1000", text);
    if (!code && s->kind == TOPK && !(s->order = tu_alloc(count, sizeof *s->order, err)))
        code = TU_ENOMEM;
    if (!code && s->kind == CODEC &&
        !(s->padded = tu_calloc(whole_blocks(count), sizeof *s->padded, err)))
        code = TU_ENOMEM;
    if (code) {
        tu_squeeze_free(s);
        return code;
    }
    *out = s;
    return 0;
}

void tu_squeeze_free(struct tu_squeeze *s)
{
    if (!s)
        return;
    tu_spec_release(&s->spec);
    tu_free(s->order);
    tu_free(s->padded);
    tu_free(s);
}

const struct tu_squeeze_row *tu_squeeze_row_of(const struct tu_squeeze *s)
{
    return s->kind == CODEC ? NULL : &tu_squeeze_rows[s->kind];
}

/* CODEC: the coding of n floats, kept for the next call. */
static int plan_codec(struct tu_squeeze *s, uint64_t n, struct tu_err *err)
{
    n = whole_blocks(n);
    if (s->planned == n)
        return 0;
    s->coding = (struct tu_coding){.seed = s->seed};
    s->planned = UINT64_MAX;
    int code = tu_coding_init(&s->coding, &s->spec, &n, 1, err);
    if (!code)
        s->planned = n;
    return code;
}

static uint64_t kept(const struct tu_squeeze *s, uint64_t n)
{
    return tu_ceil_div(n * s->k, 1000);
}

uint64_t tu_squeeze_bytes(const struct tu_squeeze *s, uint64_t n)
{
    switch (s->kind) {
    case INT8: return n + 4 * tu_ceil_div(n, s->block);
    case INT4: return tu_ceil_div(n, 2) + 4 * tu_ceil_div(n, s->block);
    case TERN: return tu_ceil_div(n, 5) + 4;
    case TOPK: return 8 * kept(s, n);
    case CODEC: break;
    }
    struct tu_squeeze other = *s;
    if (!n || plan_codec(&other, n, NULL))
        return 0;
    uint64_t bytes = tu_align(other.coding.code.bytes, 8);
    for (unsigned i = 0; i < other.coding.sides + other.coding.scratch; i++)
        bytes += tu_align(other.coding.side[i].bytes, 8);
    return bytes;
}

static void put_float(unsigned char *p, float v)
{
    memcpy(p, &v, sizeof v);
}

static float get_float(const unsigned char *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}

static float largest(const float *x, uint64_t n)
{
    float m = 0;
    for (uint64_t i = 0; i < n; i++)
        m = fabsf(x[i]) > m ? fabsf(x[i]) : m;
    return m;
}

/* int8 and int4: q = round half even of x/scale; a block of zeros has scale 0. */
static void encode_blocks(const struct tu_squeeze *s, const float *x, uint64_t n,
                          unsigned char *wire)
{
    float top = s->kind == INT8 ? 127 : 7;
    unsigned char *code = wire + 4 * tu_ceil_div(n, s->block);
    if (s->kind == INT4)
        memset(code, 0, tu_ceil_div(n, 2));
    for (uint64_t b = 0; b < n; b += s->block) {
        uint64_t len = tu_min(s->block, n - b);
        float most = largest(x + b, len), turn = most > 0 ? top / most : 0;
        put_float(wire + 4 * (b / s->block), most / top);
        for (uint64_t i = b; i < b + len; i++) {
            float q = rintf(x[i] * turn);
            int v = (int)(q > top ? top : q < -top ? -top : q);
            if (s->kind == INT8)
                code[i] = (unsigned char)v;
            else
                code[i / 2] |= (unsigned char)((v & 15) << i % 2 * 4);
        }
    }
}

static void decode_blocks(const struct tu_squeeze *s, const unsigned char *wire,
                          uint64_t n, float *y)
{
    const unsigned char *code = wire + 4 * tu_ceil_div(n, s->block);
    for (uint64_t i = 0; i < n; i++) {
        int v = s->kind == INT8 ? (int8_t)code[i] : (code[i / 2] >> i % 2 * 4 & 15);
        if (s->kind == INT4 && v > 7)
            v -= 16;
        y[i] = get_float(wire + 4 * (i / s->block)) * (float)v;
    }
}

/* s·sign(x)·b with P(b = 1) = |x|/s; 5 digits to base 3 in a byte. */
static void encode_tern(const struct tu_squeeze *s, const float *x, uint64_t n,
                        float scale, uint64_t turn, unsigned char *wire)
{
    struct tu_rng rng = {.seed = s->seed, .stream = turn};
    float top = scale > 0 ? scale : largest(x, n);
    put_float(wire, top);
    for (uint64_t i = 0; i < n; i += 5) {
        unsigned byte = 0;
        for (unsigned k = 5; k-- > 0;) {
            unsigned digit = 1;
            if (i + k < n && top > 0) {
                double u = ((double)tu_rng_u32(&rng, i + k) + 0.5) / 4294967296.0;
                if (u * top < fabs((double)x[i + k]))
                    digit = x[i + k] < 0 ? 0 : 2;
            }
            byte = byte * 3 + digit;
        }
        wire[4 + i / 5] = (unsigned char)byte;
    }
}

static void decode_tern(const unsigned char *wire, uint64_t n, float *y)
{
    float top = get_float(wire);
    for (uint64_t i = 0; i < n; i++) {
        unsigned byte = wire[4 + i / 5];
        for (uint64_t k = i % 5; k > 0; k--)
            byte /= 3;
        y[i] = top * ((float)(byte % 3) - 1);
    }
}

/* The elements of largest magnitude, ties to the lower index, in the order of indices. A
 * heap of the k best so far, the worst on top. */
static bool worse(const float *x, uint32_t a, uint32_t b)
{
    float u = fabsf(x[a]), v = fabsf(x[b]);
    return u != v ? u < v : a > b;
}

static void sift(const float *x, uint32_t *heap, uint64_t n, uint64_t i)
{
    for (uint64_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && worse(x, heap[c + 1], heap[c]))
            c++;
        if (!worse(x, heap[c], heap[i]))
            return;
        uint32_t t = heap[i];
        heap[i] = heap[c];
        heap[c] = t;
    }
}

static int by_index(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void encode_topk(struct tu_squeeze *s, const float *x, uint64_t n,
                        unsigned char *wire)
{
    uint64_t k = kept(s, n);
    for (uint64_t i = 0; i < k; i++)
        s->order[i] = (uint32_t)i;
    for (uint64_t i = k; i-- > 0;)
        sift(x, s->order, k, i);
    for (uint64_t i = k; i < n; i++) {
        if (worse(x, s->order[0], (uint32_t)i)) {
            s->order[0] = (uint32_t)i;
            sift(x, s->order, k, 0);
        }
    }
    qsort(s->order, k, sizeof *s->order, by_index);
    for (uint64_t i = 0; i < k; i++) {
        tu_put32(wire + 8 * i, s->order[i]);
        put_float(wire + 8 * i + 4, x[s->order[i]]);
    }
}

static int decode_topk(const struct tu_squeeze *s, const unsigned char *wire, uint64_t n,
                       float *y, struct tu_err *err)
{
    memset(y, 0, n * sizeof *y);
    for (uint64_t i = 0; i < kept(s, n); i++) {
        uint32_t at = tu_le32(wire + 8 * i);
        if (at >= n)
            return tu_fail(err, TU_EPEER, "index %u of a vector of %llu", (unsigned)at,
                           (unsigned long long)n);
        y[at] = get_float(wire + 8 * i + 4);
    }
    return 0;
}

static void codec_parts(const struct tu_squeeze *s, unsigned char *wire, void *side[])
{
    wire += tu_align(s->coding.code.bytes, 8);
    for (unsigned i = 0; i < s->coding.sides + s->coding.scratch; i++) {
        side[i] = wire;
        wire += tu_align(s->coding.side[i].bytes, 8);
    }
}

int tu_squeeze_encode(struct tu_squeeze *s, const float *x, uint64_t n, float scale,
                      uint64_t turn, void *wire, struct tu_err *err)
{
    void *side[TU_CODING_SIDES] = {NULL};
    int code = 0;
    if (!n)
        return 0;
    switch (s->kind) {
    case INT8:
    case INT4: encode_blocks(s, x, n, wire); break;
    case TERN: encode_tern(s, x, n, scale, turn, wire); break;
    case TOPK: encode_topk(s, x, n, wire); break;
    case CODEC:
        code = plan_codec(s, n, err);
        if (code)
            break;
        s->coding.stream = turn;
        codec_parts(s, wire, side);
        memcpy(s->padded, x, n * sizeof *x);
        memset(s->padded + n, 0, (whole_blocks(n) - n) * sizeof *x);
        code = tu_coding_encode_mem(&s->coding, s->padded, wire, side, NULL, err);
        break;
    }
    return code;
}

int tu_squeeze_decode(struct tu_squeeze *s, const void *wire, uint64_t n, float *y,
                      struct tu_err *err)
{
    void *side[TU_CODING_SIDES] = {NULL};
    if (!n)
        return 0;
    switch (s->kind) {
    case INT8:
    case INT4: decode_blocks(s, wire, n, y); return 0;
    case TERN: decode_tern(wire, n, y); return 0;
    case TOPK: return decode_topk(s, wire, n, y, err);
    case CODEC: break;
    }
    int code = plan_codec(s, n, err);
    if (code)
        return code;
    codec_parts(s, (unsigned char *)(uintptr_t)wire, side);
    code = tu_coding_decode_mem(&s->coding, wire, (const void *const *)side, s->padded,
                                NULL, err);
    memcpy(y, s->padded, n * sizeof *y);
    return code;
}
