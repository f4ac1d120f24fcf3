/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_fp4.c: ggml's MXFP4 and NVFP4: E2M1 elements under E8M0 and unsigned E4M3 scales.
 * The reference. The packed floats of OCP and of GPUs are fp4.c's. */
#include "ggml.h"
#include "tensorutils/core/bytes.h"

/* E2M1 values doubled, as the peer has them: scales are halved to match. */
const signed char tui_fp4_book[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                      0, -1, -2, -3, -4, -6, -8, -12};

/* First entry of the book with the least error: between two the smaller one, and never
 * -0. */
static unsigned char nearest(float x, float scale)
{
    unsigned char best = 0;
    float least = fabsf((float)tui_fp4_book[0] * scale - x);
    for (unsigned char i = 1; i < 16; i++) {
        float e = fabsf((float)tui_fp4_book[i] * scale - x);
        if (e < least) {
            least = e;
            best = i;
        }
    }
    return best;
}

/* 2^(e-128), which is subnormal for e < 2. */
float tui_half_e8m0(unsigned e)
{
    uint32_t bits = e < 2 ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1) << 23;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* floor(log2 a) from the exponent bits, for normal and subnormal a > 0. */
static int exponent(float a)
{
    int e;
    frexpf(a, &e);
    return e - 1;
}

/* The peer's exponent is floor(log2f a): log2f rounds up to k just below 2^k, for as many
 * floats as stand here. Only with glibc's log2f; found by trying every float. */
static int exponent_compat(float a)
{
    static const struct {
        int m;
        unsigned n;
    } under[] = {{65, 44}, {33, 22}, {17, 11}, {9, 5}, {5, 2}, {3, 1}};
    int k = exponent(a) + 1, m = k > 0 ? k : -k + 1;
    uint32_t bits, top;
    float power = ldexpf(1, k);
    memcpy(&bits, &a, sizeof bits);
    memcpy(&top, &power, sizeof top);
    unsigned coarser =
        k < -125 ? (unsigned)(-125 - k) : 0; /* subnormals lie further apart */
    for (unsigned i = 0; k != 0 && i < sizeof under / sizeof *under; i++)
        if (m >= under[i].m)
            return top - bits <= under[i].n >> coarser ? k : k - 1;
    return k - 1;
}

unsigned tui_mxfp4_scale(float amax, bool compat)
{
    if (!(amax > 0))
        return 0;
    int e = (compat ? exponent_compat(amax) : exponent(amax)) - 2 + 127;
    return (unsigned)e & 255; /* the peer's wraps for amax < 2^-125 */
}

/* A block too small for the least exponent: zeros, where the peer's exponent would
 * wrap. */
static bool mx_vanishes(float amax)
{
    return amax < 0x1p-125f;
}

void tui_encode_mxfp4(const struct tui_blocks *b)
{
    unsigned char code[32], *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 17) {
        const float *x = b->x + 32 * i;
        float amax = fabsf(tui_extreme(x, 32));
        if (!b->compat && mx_vanishes(amax)) {
            memset(out, 0, 17);
            continue;
        }
        unsigned e = tui_mxfp4_scale(amax, b->compat);
        float scale = tui_half_e8m0(e);
        out[0] = (unsigned char)e;
        for (unsigned j = 0; j < 32; j++)
            code[j] = nearest(x[j], scale);
        tui_put_nibbles(out + 1, code);
    }
}

void tui_decode_mxfp4(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 17, x += 32) {
        float scale = tui_half_e8m0(in[0]);
        for (unsigned j = 0; j < 16; j++) {
            x[j] = (float)tui_fp4_book[in[1 + j] & 15] * scale;
            x[j + 16] = (float)tui_fp4_book[in[1 + j] >> 4] * scale;
        }
    }
}

/* Half of an unsigned E4M3, so that the doubled book fits. 0x7F is NaN, read as 0; a sign
 * is passed over. */
float tui_half_ue4m3(unsigned char v)
{
    if (v == 0 || v == 0x7f)
        return 0;
    int e = v >> 3 & 15, m = v & 7;
    float f = e == 0 ? ldexpf((float)m, -9) : ldexpf(1 + (float)m / 8, e - 7);
    return f * 0.5f;
}

/* The peer's rounding to unsigned E4M3: up where the first lost bit is set, 256 to 447 to
 * 448. */
unsigned char tui_to_ue4m3(float v)
{
    if (!(v > 0))
        return 0;
    if (v > 448)
        v = 448;
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    int e = (int)(bits >> 23) - 127 + 7;
    unsigned m = bits >> 20 & 7;
    if (e <= 0) {
        int q = (int)(v * 512 + 0.5f);
        return (unsigned char)(q < 1 ? 0 : q > 7 ? 7 : q);
    }
    if (e >= 15)
        return 0x7e;
    m += bits >> 19 & 1;
    if (m > 7) {
        m = 0;
        e++;
    }
    return e >= 15 ? 0x7e : (unsigned char)(e << 3 | (int)m);
}

void tui_encode_nvfp4(const struct tui_blocks *b)
{
    unsigned char *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 36) {
        for (unsigned s = 0; s < 4; s++) {
            const float *x = b->x + 64 * i + 16 * s;
            out[s] = tui_to_ue4m3(fabsf(tui_extreme(x, 16)) / 6);
            float scale = tui_half_ue4m3(out[s]);
            for (unsigned j = 0; j < 8; j++)
                out[4 + 8 * s + j] =
                    (unsigned char)(nearest(x[j], scale) | nearest(x[j + 8], scale) << 4);
        }
    }
}

void tui_decode_nvfp4(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 36, x += 64) {
        for (unsigned i = 0; i < 64; i++) {
            unsigned s = i / 16, q = in[4 + 8 * s + i % 8] >> (i % 16 < 8 ? 0 : 4) & 15;
            x[i] = (float)tui_fp4_book[q] * tui_half_ue4m3(in[s]);
        }
    }
}
