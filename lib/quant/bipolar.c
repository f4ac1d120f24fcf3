/* SPDX-License-Identifier: Apache-2.0 */
/* bipolar.c: odd numbers as planes of bits, and their bit-serial product. Source: arXiv
 * 2409.17870 and 2508.19087. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "tensorutils/quant/bits.h"

void tu_planes_pack(const uint8_t *code, uint64_t n, unsigned bits, uint64_t *plane)
{
    uint64_t words = TU_PLANE_WORDS(n);
    memset(plane, 0, (size_t)(words * bits) * sizeof *plane);
    for (unsigned b = 0; b < bits; b++)
        for (uint64_t i = 0; i < n; i++)
            plane[b * words + i / 64] |= (uint64_t)(code[i] >> b & 1) << i % 64;
}

void tu_planes_unpack(const uint64_t *plane, uint64_t n, unsigned bits, uint8_t *code)
{
    uint64_t words = TU_PLANE_WORDS(n);
    memset(code, 0, (size_t)n);
    for (unsigned b = 0; b < bits; b++)
        for (uint64_t i = 0; i < n; i++)
            code[i] |= (uint8_t)((plane[b * words + i / 64] >> i % 64 & 1) << b);
}

int64_t tu_planes_dot(const uint64_t *a, unsigned bits_a, const uint64_t *b,
                      unsigned bits_b, uint64_t n)
{
    uint64_t words = TU_PLANE_WORDS(n);
    int64_t sum = 0;
    for (unsigned i = 0; i < bits_a; i++)
        for (unsigned j = 0; j < bits_b; j++) {
            int64_t differ = 0;
            for (uint64_t k = 0; k < words; k++)
                differ += __builtin_popcountll(a[i * words + k] ^ b[j * words + k]);
            sum += ((int64_t)n - 2 * differ) * (INT64_C(1) << (i + j));
        }
    return sum;
}

void tu_planes_product(const uint64_t *a, const float *scale_a, uint64_t rows_a,
                       unsigned bits_a, const uint64_t *b, const float *scale_b,
                       uint64_t rows_b, unsigned bits_b, uint64_t n, float *y)
{
    uint64_t words = TU_PLANE_WORDS(n);
    for (uint64_t i = 0; i < rows_a; i++)
        for (uint64_t j = 0; j < rows_b; j++)
            *y++ = (float)tu_planes_dot(a + i * bits_a * words, bits_a,
                                        b + j * bits_b * words, bits_b, n) *
                   scale_a[i] * scale_b[j];
}

enum param { BITS };

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t bits;
    int rc = tu_spec_u64(spec, "bits", 4, &bits, err);
    if (rc || bits < 1 || bits > 8)
        return rc ? rc
                  : tu_fail(err, TU_EUSAGE, "codec 'bipolar': bits %" PRIu64 ": 1 to 8",
                            bits);
    uint64_t words = TU_PLANE_WORDS(c->cols);
    c->param[BITS] = (int64_t)bits;
    c->block[0] = 1;
    c->block[1] = c->cols;
    c->atom = tu_max(c->cols, 1);
    c->code = (struct tu_part){.dtype = TU_U64,
                               .rank = 3,
                               .dim = {c->rows, bits, words},
                               .atom_bytes = bits * words * 8};
    c->side[0] = (struct tu_part){
        .suffix = "scale", .dtype = TU_F32, .rank = 1, .dim = {c->rows}, .atom_bytes = 4};
    c->sides = 1;
    return 0;
}

/* Value (2u - (2^n - 1))·s, s reaching the largest of the row. */
static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    unsigned bits = (unsigned)c->param[BITS];
    float top = (float)((1u << bits) - 1), *scale = side[0];
    uint64_t *plane = code;
    uint8_t *u = tu_alloc((size_t)c->cols, 1, err);
    if (!u)
        return TU_ENOMEM;
    for (size_t at = 0; at < n; at += (size_t)c->cols) {
        float amax = 0;
        for (uint64_t i = 0; i < c->cols; i++)
            amax = fabsf(x[at + i]) > amax ? fabsf(x[at + i]) : amax;
        *scale = amax / top;
        for (uint64_t i = 0; i < c->cols; i++) {
            float v = *scale > 0 ? (x[at + i] / *scale + top) / 2 : top / 2;
            v = v > 0 ? v : 0;
            v = v < top ? v : top;
            u[i] = (uint8_t)(v + 12582912.0f - 12582912.0f);
        }
        tu_planes_pack(u, c->cols, bits, plane);
        plane += bits * TU_PLANE_WORDS(c->cols);
        scale++;
    }
    tu_free(u);
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    unsigned bits = (unsigned)c->param[BITS];
    int top = (1 << bits) - 1;
    const float *scale = side[0];
    const uint64_t *plane = code;
    uint8_t *u = tu_alloc((size_t)c->cols, 1, err);
    if (!u)
        return TU_ENOMEM;
    for (size_t at = 0; at < n; at += (size_t)c->cols, scale++) {
        tu_planes_unpack(plane, c->cols, bits, u);
        plane += bits * TU_PLANE_WORDS(c->cols);
        for (uint64_t i = 0; i < c->cols; i++)
            x[at + i] = (float)(2 * (int)u[i] - top) * *scale;
    }
    tu_free(u);
    return 0;
}

static const char *const key[] = {"bits", NULL};

const struct tu_codec tui_codecs_bipolar[] = {
    {.name = "bipolar",
     .help = "odd numbers as planes of bits, a scale per row",
     .source = "arXiv 2409.17870",
     .key = key,
     .plan = plan,
     .encode = encode,
     .decode = decode},
    {.name = NULL},
};
