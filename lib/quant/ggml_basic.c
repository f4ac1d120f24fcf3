/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_basic.c: ggml's formats of one scale (and perhaps a minimum) per block: Q4_0 Q4_1
 * Q5_0 Q5_1 Q8_0 Q1_0 Q2_0. The reference. */
#include "ggml.h"
#include "tensorutils/core/bytes.h"

enum { N = 32 };

static void put_f16(unsigned char *p, float v)
{
    tu_put16(p, tu_to_f16(v));
}

static float get_f16(const unsigned char *p)
{
    return tu_from_f16(tu_le16(p));
}

/* Codes of 32 elements as nibbles, and the fifth bits as a word. */
static void put_codes5(unsigned char *qh, unsigned char *qs, const unsigned char *code)
{
    uint32_t high = 0;
    unsigned char low[N];
    for (unsigned i = 0; i < N; i++) {
        high |= (uint32_t)(code[i] >> 4 & 1) << i;
        low[i] = code[i] & 15;
    }
    tu_put32(qh, high);
    tui_put_nibbles(qs, low);
}

/* Weights of a block's elements by the importance matrix. */
static void weigh(const struct tui_blocks *b, size_t block, float *w)
{
    for (unsigned i = 0; i < N; i++)
        w[i] = tui_weigh(b->weight[block * N + i], b->mean_sq, b->x[block * N + i]);
}

/* Symmetric: the extreme gets code 0. */
static float symmetric_codes(const float *x, int nmax, unsigned char *code)
{
    float d = tui_extreme(x, N) / (float)-nmax, inverse = tui_inverse(d);
    for (unsigned i = 0; i < N; i++) {
        int q = tui_to_i8(x[i] * inverse + ((float)nmax + 0.5f));
        code[i] = (unsigned char)(q > 2 * nmax - 1 ? 2 * nmax - 1 : q);
    }
    return d;
}

static float block_symmetric(const struct tui_blocks *b, size_t i, int nmax,
                             unsigned char *code)
{
    float w[N];
    if (!b->weight)
        return symmetric_codes(b->x + i * N, nmax, code);
    weigh(b, i, w);
    return tui_fit_symmetric(N, nmax, b->x + i * N, w, code);
}

/* With a minimum. */
static float minimum_codes(const float *x, int nmax, unsigned char *code, float *min)
{
    float lo = x[0], hi = x[0];
    for (unsigned i = 1; i < N; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    float d = (hi - lo) / (float)nmax, inverse = tui_inverse(d);
    for (unsigned i = 0; i < N; i++) {
        int q = tui_to_i8((x[i] - lo) * inverse + 0.5f);
        code[i] = (unsigned char)(nmax == 15 && q > 15 ? 15 : q);
    }
    *min = lo;
    return d;
}

static float block_minimum(const struct tui_blocks *b, size_t i, int nmax,
                           unsigned char *code, float *min)
{
    float w[N];
    if (!b->weight)
        return minimum_codes(b->x + i * N, nmax, code, min);
    const struct tui_fit_min rule = {nmax, -0.9f, 0.05f, 36, false};
    weigh(b, i, w);
    float d = tui_fit_min(&rule, N, b->x + i * N, w, code, min);
    *min = -*min;
    return d;
}

void tui_encode_q4_0(const struct tui_blocks *b)
{
    unsigned char code[N], *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 18) {
        put_f16(out, block_symmetric(b, i, 8, code));
        tui_put_nibbles(out + 2, code);
    }
}

void tui_encode_q5_0(const struct tui_blocks *b)
{
    unsigned char code[N], *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 22) {
        put_f16(out, block_symmetric(b, i, 16, code));
        put_codes5(out + 2, out + 6, code);
    }
}

void tui_encode_q4_1(const struct tui_blocks *b)
{
    unsigned char code[N], *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 20) {
        float min;
        put_f16(out, block_minimum(b, i, 15, code, &min));
        put_f16(out + 2, min);
        tui_put_nibbles(out + 4, code);
    }
}

void tui_encode_q5_1(const struct tui_blocks *b)
{
    unsigned char code[N], *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 24) {
        float min;
        put_f16(out, block_minimum(b, i, 31, code, &min));
        put_f16(out + 2, min);
        put_codes5(out + 4, out + 8, code);
    }
}

void tui_encode_q8_0(const struct tui_blocks *b)
{
    unsigned char *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 34) {
        const float *x = b->x + i * N;
        float d = fabsf(tui_extreme(x, N)) / 127, inverse = tui_inverse(d);
        put_f16(out, d);
        for (unsigned j = 0; j < N; j++)
            out[2 + j] = (unsigned char)tui_to_i8(roundf(x[j] * inverse));
    }
}

void tui_encode_q1_0(const struct tui_blocks *b)
{
    unsigned char *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 18) {
        const float *x = b->x + i * 128;
        float sum = 0;
        memset(out + 2, 0, 16);
        for (unsigned j = 0; j < 128; j++) {
            sum += fabsf(x[j]);
            out[2 + j / 8] |= (unsigned char)((x[j] >= 0) << j % 8);
        }
        put_f16(out, sum / 128);
    }
}

void tui_encode_q2_0(const struct tui_blocks *b)
{
    unsigned char *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 18) {
        const float *x = b->x + i * 64;
        float d = fabsf(tui_extreme(x, 64)), inverse = tui_inverse(d);
        put_f16(out, d);
        memset(out + 2, 0, 16);
        for (unsigned j = 0; j < 64; j++) {
            float v = roundf(x[j] * inverse);
            /* As x86: what is no int is the least one, and clamps to 0. */
            int q = fabsf(v) < 4 ? tui_clamp((int)v + 1, 0, 3) : 0;
            out[2 + j / 4] |= (unsigned char)(q << j % 4 * 2);
        }
    }
}

/* Decoding --------------------------------------------------------------------------- */

void tui_decode_q4_0(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 18, x += N) {
        float d = get_f16(in);
        for (unsigned j = 0; j < 16; j++) {
            x[j] = (float)((in[2 + j] & 15) - 8) * d;
            x[j + 16] = (float)((in[2 + j] >> 4) - 8) * d;
        }
    }
}

void tui_decode_q4_1(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 20, x += N) {
        float d = get_f16(in), m = get_f16(in + 2);
        for (unsigned j = 0; j < 16; j++) {
            x[j] = (float)(in[4 + j] & 15) * d + m;
            x[j + 16] = (float)(in[4 + j] >> 4) * d + m;
        }
    }
}

/* Code i of 32 with a fifth bit. */
static int code5(const unsigned char *qs, uint32_t high, unsigned i)
{
    unsigned low = i < 16 ? qs[i] & 15u : qs[i - 16] >> 4;
    return (int)(low | (high >> i & 1) << 4);
}

void tui_decode_q5_0(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 22, x += N) {
        float d = get_f16(in);
        uint32_t high = tu_le32(in + 2);
        for (unsigned j = 0; j < N; j++)
            x[j] = (float)(code5(in + 6, high, j) - 16) * d;
    }
}

void tui_decode_q5_1(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 24, x += N) {
        float d = get_f16(in), m = get_f16(in + 2);
        uint32_t high = tu_le32(in + 4);
        for (unsigned j = 0; j < N; j++)
            x[j] = (float)code5(in + 8, high, j) * d + m;
    }
}

void tui_decode_q8_0(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 34, x += N) {
        float d = get_f16(in);
        for (unsigned j = 0; j < N; j++)
            x[j] = (float)(int8_t)in[2 + j] * d;
    }
}

void tui_decode_q1_0(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 18, x += 128) {
        float d = get_f16(in);
        for (unsigned j = 0; j < 128; j++)
            x[j] = in[2 + j / 8] >> j % 8 & 1 ? d : -d;
    }
}

void tui_decode_q2_0(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 18, x += 64) {
        float d = get_f16(in);
        for (unsigned j = 0; j < 64; j++)
            x[j] = (float)((in[2 + j / 4] >> j % 4 * 2 & 3) - 1) * d;
    }
}
