/* SPDX-License-Identifier: Apache-2.0 */
/* bnb.c: bitsandbytes' block-wise code books: NF4, FP4 with scales that may be coded
 * themselves, and the dynamic 8-bit tree. Source: bitsandbytes-foundation/bitsandbytes
 * functional.py, backends/default/ops.py; the tree: T. Dettmers, "8-Bit Approximations
 * for Parallelism in Deep Learning", 2015.
 *
 * Blocks are runs of the flattened tensor; the last may be short. A value's code is the
 * number of midpoints strictly below it. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "affine.h"
#include "bits.h"
#include "deploy.h"
#include "families.h"
#include "small.h"
#include "tensorutils/device/kernels.h"

enum param { BLOCK, NESTED };
enum { NESTED_BLOCK = 256, BOOK = 256 };

/* Places in the dynamic tree by the first bits of a number: between two neighbours of 16
 * bits there is one midpoint at most, so a comparison is left. What is below 2^-22 counts
 * as the bucket that ends there; no midpoint is in it. */
enum { TINY = 0x3480, BUCKETS = 0x3f80 - TINY + 1 }; /* 2^-22 … 1 */
struct buckets {
    float middle[BOOK];              /* behind value i; the last is infinite */
    unsigned char first[2][BUCKETS]; /* of positive and of negative numbers */
};

/* A sorted book: values, the code of each, midpoints. */
struct book {
    unsigned n;
    const float *value;
    const unsigned char *code;     /* NULL: its place */
    const struct buckets *buckets; /* or NULL */
};

static const float nf4_value[16] = {
    -1.0f,           -0x1.647362p-1f, -0x1.0cd660p-1f, -0x1.946540p-2f,
    -0x1.23449ap-2f, -0x1.7a6a7ep-3f, -0x1.74f0e2p-4f, 0.0f,
    0x1.45f5fep-4f,  0x1.4995c6p-3f,  0x1.f809bap-3f,  0x1.5a0674p-2f,
    0x1.c34970p-2f,  0x1.200f56p-1f,  0x1.722766p-1f,  1.0f};

/* 0 is code 0, what is a little above it is code 8, a second zero: as the peer has it. */
static const float fp4_value[16] = {
    -1.0f,        -0.666666687f,  -0.5f,           -0.333333343f,
    -0.25f,       -0.166666672f,  -0.00520833349f, 0.0f,
    0.0f,         0.00520833349f, 0.166666672f,    0.25f,
    0.333333343f, 0.5f,           0.666666687f,    1.0f};
static const unsigned char fp4_code[16] = {11, 10, 13, 12, 15, 14, 9, 0,
                                           8,  1,  6,  7,  4,  5,  2, 3};

static const struct book nf4 = {16, nf4_value, NULL, NULL},
                         fp4 = {16, fp4_value, fp4_code, NULL};

/* The dynamic tree: for i = 0 … 6 the midpoints of 2^i equal parts of [0.1, 1], times
 * 10^(i-6), with both signs, and 0 and 1. Each is a quotient of integers, rounded once.
 */
static void dynamic_book(float *v)
{
    v[127] = 0;
    v[255] = 1;
    double scale = 1e7;
    for (unsigned i = 0; i < 7; i++, scale /= 10) {
        for (unsigned j = 0; j < 1u << i; j++) {
            double parts = 2u << i;
            float x = (float)((parts + 9 * (2 * j + 1)) / (parts * scale));
            v[127 + (1u << i) + j] = x;
            v[127 - (1u << i) - j] = -x;
        }
    }
}

static unsigned place(const struct book *b, float x)
{
    unsigned lo = 0,
             hi = b->n - 1; /* midpoints below x: all of 0 … lo-1, none from hi on */
    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;
        if ((b->value[mid] + b->value[mid + 1]) / 2 < x)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void fill_buckets(struct buckets *t, const struct book *b)
{
    for (unsigned i = 0; i + 1 < BOOK; i++)
        t->middle[i] = (b->value[i] + b->value[i + 1]) / 2;
    t->middle[BOOK - 1] = INFINITY;
    for (uint32_t k = 0; k < BUCKETS; k++) {
        const uint32_t low = k ? (TINY + k) << 16 : 0;
        const uint32_t high = k + 1 < BUCKETS ? ((TINY + k + 1) << 16) - 1 : 0x3f800000;
        t->first[0][k] = (unsigned char)place(b, of_bits(low));
        t->first[1][k] = (unsigned char)place(b, -of_bits(high));
    }
}

static void place_buckets(const struct buckets *t, float inverse, const float *x,
                          size_t n, unsigned char *code)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        float v = x[i] * inverse;
        v = v > -1 ? v : -1; /* NaN too */
        v = v < 1 ? v : 1;
        memcpy(&bits, &v, sizeof bits);
        uint32_t k = bits >> 16 & 0x7fff;
        k = k > TINY ? k - TINY : 0;
        const unsigned first = t->first[bits >> 31][k];
        code[i] = (unsigned char)(first + (t->middle[first] < v));
    }
}

/* Books of 16, for kernels. */
static void book16_of(const struct book *b, struct tui_book16 *out)
{
    memcpy(out->value, b->value, sizeof out->value);
    for (unsigned i = 0; i < 15; i++)
        out->above[i] = nextafterf((b->value[i] + b->value[i + 1]) / 2, 2);
    for (unsigned i = 0; i < 16; i++)
        out->code[i] = b->code ? b->code[i] : (uint8_t)i;
}

static float at_least(float amax)
{
    return amax > 1e-38f ? amax : 1e-38f;
}

/* Codes of a block whose largest magnitude is amax; the scale to store is returned. A
 * whole block is multiplied with the inverse, as the peer does, a short one divided. */
static float code_block(const struct book *b, const float *x, size_t n, float amax,
                        bool whole, unsigned char *code)
{
    const float least = at_least(amax), inverse = 1.0f / least;
    if (whole && b->buckets) {
        place_buckets(b->buckets, inverse, x, n, code);
        return amax;
    }
    for (size_t i = 0; i < n; i++) {
        float v = whole ? x[i] * inverse : x[i] / least;
        v = v > -1 ? v : -1; /* NaN too */
        code[i] = (unsigned char)place(b, v < 1 ? v : 1);
        if (b->code)
            code[i] = b->code[code[i]];
    }
    return whole ? amax : least;
}

/* Planning --------------------------------------------------------------------------- */

static void add_side(struct tu_coding *c, const char *suffix, uint32_t dtype, uint64_t n,
                     uint64_t atom_bytes)
{
    c->side[c->sides + c->scratch] = (struct tu_part){.suffix = suffix,
                                                      .dtype = dtype,
                                                      .rank = 1,
                                                      .dim = {n},
                                                      .atom_bytes = atom_bytes};
}

static int plan_block(struct tu_coding *c, const struct tu_spec *spec, uint64_t fallback,
                      struct tu_err *err)
{
    uint64_t n;
    int rc = tu_spec_u64(spec, "block", fallback, &n, err);
    if (rc)
        return rc;
    if (n < 32 || n > 4096 || n & (n - 1))
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': block %" PRIu64 ": a power of two from 32 to 4096",
                       c->codec->name, n);
    c->param[BLOCK] = (int64_t)n;
    c->atom = n;
    c->block[0] = 1;
    c->block[1] = n;
    return 0;
}

/* Sides: scale, one per block; nested: scale (codes), nested, map, offset. */
static int plan4(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    int rc = plan_block(c, spec, 64, err);
    if (rc)
        return rc;
    uint64_t blocks = tu_ceil_div(c->elements, c->atom);
    c->param[NESTED] = tu_spec_get(spec, "nested") != NULL;
    c->code = (struct tu_part){.dtype = TU_U8,
                               .rank = 2,
                               .dim = {c->elements / 2 + c->elements % 2, 1},
                               .atom_bytes = c->atom / 2};
    if (!c->param[NESTED]) {
        add_side(c, "scale", TU_F32, blocks, 4);
        c->sides++;
        return 0;
    }
    add_side(c, "scale", TU_U8, blocks, 1);
    c->sides++;
    add_side(c, "nested", TU_F32, tu_ceil_div(blocks, NESTED_BLOCK), 0);
    c->sides++;
    add_side(c, "map", TU_F32, BOOK, 0);
    c->sides++;
    add_side(c, "offset", TU_F32, 1, 0);
    c->sides++;
    add_side(c, "float scale", TU_F32, blocks, 4);
    c->scratch++;
    return 0;
}

static int plan8(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    int rc = plan_block(c, spec, 4096, err);
    if (rc)
        return rc;
    c->code = (struct tu_part){.dtype = TU_U8, .rank = c->rank, .atom_bytes = c->atom};
    memcpy(c->code.dim, c->dim, c->rank * sizeof *c->dim);
    add_side(c, "scale", TU_F32, tu_ceil_div(c->elements, c->atom), 4);
    c->sides++;
    add_side(c, "map", TU_F32, BOOK, 0);
    c->sides++;
    add_side(c, "buckets", TU_U8, sizeof(struct buckets), 0);
    c->scratch++;
    return 0;
}

/* Coding ----------------------------------------------------------------------------- */

static const struct book *book_of(const struct tu_coding *c)
{
    return c->codec->format;
}

enum { PART = 4096 }; /* elements at a time, at least a block */

/* Codes and scales of n ≤ PART elements, whose last block may be short. */
static void code_part(const struct tu_coding *c, const struct tui_book16 *kernel,
                      const float *x, size_t n, float *scale, unsigned char *code)
{
    const size_t block = (size_t)c->atom, whole = n - n % block;
    float inverse[PART / 32];
    tui_amax(c->cpu, x, n, block, scale);
    for (size_t b = 0; b < whole / block; b++)
        inverse[b] = 1.0f / at_least(scale[b]);
    tui_book16_code(c->cpu, kernel, inverse, x, whole, block, code);
    if (whole < n) {
        float *last = &scale[whole / block];
        *last = code_block(book_of(c), x + whole, n - whole, *last, false, code + whole);
    }
}

static int encode4(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                   void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)err;
    unsigned char q[PART + 1];
    struct tui_book16 kernel;
    book16_of(book_of(c), &kernel);
    float *scale = side[c->param[NESTED] ? c->sides : 0];
    const size_t part = tu_max((size_t)c->atom, PART / 2);
    for (size_t i = 0; i < n; i += part, scale += part / c->atom) {
        const size_t k = tu_min(part, n - i);
        code_part(c, &kernel, x + i, k, scale, q);
        q[k] = book_of(c) == &nf4 ? 7 : 0; /* the code of 0 */
        tui_nibbles_pack(c->cpu, q, k + k % 2, true, (unsigned char *)code + i / 2);
    }
    return 0;
}

/* The scale of a block of the run that begins at block `base`. */
static float scale_of(const struct tu_coding *c, const void *const *side, uint64_t base,
                      uint64_t block)
{
    float offset, nested;
    if (!c->param[NESTED])
        return ((const float *)side[0])[block];
    if (c->scratch) /* while encoding there are the floats */
        return ((const float *)side[c->sides])[block];
    memcpy(&offset, side[3], sizeof offset);
    memcpy(&nested, (const float *)side[1] + (base + block) / NESTED_BLOCK,
           sizeof nested);
    return ((const float *)side[2])[((const unsigned char *)side[0])[block]] * nested +
           offset;
}

static int decode4(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                   const void *const *side, float *x, struct tu_err *err)
{
    (void)err;
    float value[16];
    unsigned char q[4096];
    size_t block = (size_t)c->atom;
    tui_book16_of(c->codec->name, value);
    for (size_t i = 0; i < n; i += block) {
        size_t k = n - i < block ? n - i : block;
        tui_nibbles_unpack(c->cpu, (const unsigned char *)code + i / 2, k, true, q);
        tui_book16_values(c->cpu, value, q, k,
                          scale_of(c, side, first / block, i / block), x + i);
    }
    return 0;
}

/* The scales less their mean, coded by the dynamic tree in blocks of 256. */
static int finish4(const struct tu_coding *c, void *const *side, struct tu_err *err)
{
    if (!c->param[NESTED])
        return 0;
    uint64_t n = c->side[0].bytes;
    float *scale = side[c->sides], *map = side[2], *nested = side[1];
    struct book book = {BOOK, map, NULL, NULL};
    double sum = 0;
    (void)err;
    for (uint64_t i = 0; i < n; i++)
        sum += scale[i];
    float offset = n ? (float)(sum / (double)n) : 0;
    memcpy(side[3], &offset, sizeof offset);
    dynamic_book(map);
    for (uint64_t i = 0; i < n; i++)
        scale[i] -= offset;
    tui_amax(c->cpu, scale, (size_t)n, NESTED_BLOCK, nested);
    for (uint64_t i = 0; i < n; i += NESTED_BLOCK, nested++) {
        size_t k = (size_t)tu_min(NESTED_BLOCK, n - i);
        *nested = code_block(&book, scale + i, k, *nested, k == NESTED_BLOCK,
                             (unsigned char *)side[0] + i);
    }
    return 0;
}

static int start8(const struct tu_coding *c, void *const *side, struct tu_err *err)
{
    const struct book book = {BOOK, side[1], NULL, NULL};
    (void)c;
    (void)err;
    dynamic_book(side[1]);
    fill_buckets(side[2], &book);
    return 0;
}

static int encode8(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                   void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)err;
    struct book book = {BOOK, side[1], NULL, side[2]};
    size_t block = (size_t)c->atom;
    float *scale = side[0];
    tui_amax(c->cpu, x, n, block, scale);
    for (size_t i = 0; i < n; i += block, scale++) {
        size_t k = n - i < block ? n - i : block;
        *scale =
            code_block(&book, x + i, k, *scale, k == block, (unsigned char *)code + i);
    }
    return 0;
}

static int decode8(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                   const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)err;
    const float *scale = side[0], *map = side[1];
    const unsigned char *q = code;
    const size_t block = (size_t)c->atom;
    for (size_t at = 0; at < n; at += block, scale++)
        for (size_t i = at; i < at + block && i < n; i++)
            x[i] = map[q[i]] * *scale;
    return 0;
}

void tui_book16_of(const char *codec, float value[16])
{
    const struct book *b = strcmp(codec, "nf4") == 0 ? &nf4 : &fp4;
    for (unsigned i = 0; i < 16; i++)
        value[b->code ? b->code[i] : i] = b->value[i];
}

/* Nested scales are coded from all of them at the end: on the CPU. */
static bool kernel(const struct tu_coding *c, bool encode, const void *const *side,
                   struct tu_kernel_code *k)
{
    const struct book *b = book_of(c);
    (void)encode;
    k->block = (uint32_t)c->param[BLOCK];
    k->book = b ? b->value : side ? side[1] : NULL;
    return !c->param[NESTED];
}

#define SOURCE "bitsandbytes-foundation/bitsandbytes: functional.py"
static const char *const key4[] = {"block", "nested", NULL};
static const char *const key8[] = {"block", NULL};

const struct tu_codec tui_codecs_bnb[] = {
    {.name = "nf4",
     .help = "bitsandbytes, 4 bits: quantiles of a normal distribution",
     .source = SOURCE,
     .key = key4,
     .format = &nf4,
     .plan = plan4,
     .encode = encode4,
     .decode = decode4,
     .finish = finish4,
     .kernel = kernel},
    {.name = "fp4",
     .help = "bitsandbytes, 4 bits: floats of one mantissa bit",
     .source = SOURCE,
     .key = key4,
     .format = &fp4,
     .plan = plan4,
     .encode = encode4,
     .decode = decode4,
     .finish = finish4},
    {.name = "dyn8",
     .help = "bitsandbytes, 8 bits: the dynamic tree",
     .source = SOURCE,
     .key = key8,
     .plan = plan8,
     .encode = encode8,
     .decode = decode8,
     .start = start8,
     .kernel = kernel},
    {.name = NULL},
};
