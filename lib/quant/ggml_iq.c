/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_iq.c: decoding IQ1, IQ2 and IQ3: groups of 8 (or 4) elements are points of a
 * lattice, with a scale per 16 or 32 elements and, in IQ2 and IQ3, signs apart. There are
 * no encoders: without an importance matrix they are not worth their bits. */
#include "ggml.h"
#include "ggml_iq.h"
#include "tensorutils/core/bytes.h"

static const float step2[4] = {8, 25, 43};
static const float step3_xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
static const float step3_s[8] = {1, 3, 5, 7, 9, 11, 13, 15};

static float get_f16(const unsigned char *p)
{
    return tu_from_f16(tu_le16(p));
}

/* Seven signs and an eighth that makes their number even. */
static unsigned even_signs(unsigned s)
{
    return s | (unsigned)(__builtin_popcount(s) & 1) << 7;
}

static void put8(float *x, float scale, unsigned point, unsigned signs)
{
    for (unsigned j = 0; j < 8; j++) {
        float v = scale * step2[point >> 2 * j & 3];
        x[j] = signs >> j & 1 ? -v : v;
    }
}

static void put4(float *x, float scale, const float *step, unsigned point, unsigned signs)
{
    for (unsigned j = 0; j < 4; j++) {
        float v = scale * step[point >> 3 * j & 7];
        x[j] = signs >> j & 1 ? -v : v;
    }
}

void tui_decode_iq2_xxs(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 66) {
        for (unsigned i = 0; i < 8; i++) {
            const unsigned char *q = in + 2 + 8 * i;
            uint32_t word = tu_le32(q + 4);
            float scale = get_f16(in) * (0.5f + (float)(word >> 28)) * 0.25f;
            for (unsigned k = 0; k < 4; k++, x += 8)
                put8(x, scale, tui_grid_iq2_xxs[q[k]], even_signs(word >> 7 * k & 127));
        }
    }
}

void tui_decode_iq2_xs(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 74) {
        for (unsigned k = 0; k < 32; k++, x += 8) {
            unsigned q = tu_le16(in + 2 + 2 * k),
                     s = in[66 + k / 4] >> (k % 4 < 2 ? 0 : 4) & 15;
            float scale = get_f16(in) * (0.5f + (float)s) * 0.25f;
            put8(x, scale, tui_grid_iq2_xs[q & 511], even_signs(q >> 9));
        }
    }
}

void tui_decode_iq2_s(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 82) {
        for (unsigned k = 0; k < 32; k++, x += 8) {
            unsigned high = in[66 + k / 4] >> 2 * (k % 4) & 3u;
            unsigned s = in[74 + k / 4] >> (k % 4 < 2 ? 0 : 4) & 15;
            float scale = get_f16(in) * (0.5f + (float)s) * 0.25f;
            put8(x, scale, tui_grid_iq2_s[in[2 + k] | high << 8], in[34 + k]);
        }
    }
}

void tui_decode_iq3_xxs(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 98) {
        for (unsigned k = 0; k < 32; k++, x += 8) {
            uint32_t word = tu_le32(in + 66 + 4 * (k / 4));
            float scale = get_f16(in) * (0.5f + (float)(word >> 28)) * 0.5f;
            unsigned signs = even_signs(word >> 7 * (k % 4) & 127);
            const unsigned char *q = in + 2 + 2 * k;
            put4(x, scale, step3_xxs, tui_grid_iq3_xxs[q[0]], signs);
            put4(x + 4, scale, step3_xxs, tui_grid_iq3_xxs[q[1]], signs >> 4);
        }
    }
}

void tui_decode_iq3_s(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 110) {
        for (unsigned k = 0; k < 32; k++, x += 8) {
            unsigned i = k / 4, high = in[66 + i] >> 2 * (k % 4), signs = in[74 + k];
            unsigned s = in[106 + i / 2] >> 4 * (i % 2) & 15;
            float scale = get_f16(in) * (float)(1 + 2 * s);
            const unsigned char *q = in + 2 + 2 * k;
            put4(x, scale, step3_s, tui_grid_iq3_s[q[0] | (high & 1) << 8], signs);
            put4(x + 4, scale, step3_s, tui_grid_iq3_s[q[1] | (high & 2) << 7],
                 signs >> 4);
        }
    }
}

/* A point of {-1, 0, 1}^8, moved by an eighth. */
static void put_shifted(float *x, float scale, unsigned point, bool down)
{
    for (unsigned j = 0; j < 8; j++) {
        float v = (float)((int)(point >> 2 * j & 3) - 1);
        x[j] = scale * (v + (down ? -0.125f : 0.125f));
    }
}

void tui_decode_iq1_s(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 50) {
        for (unsigned k = 0; k < 32; k++, x += 8) {
            unsigned word = tu_le16(in + 34 + 2 * (k / 4));
            float scale = get_f16(in) * (float)(2 * (word >> 12 & 7) + 1);
            unsigned q = in[2 + k] | (word >> 3 * (k % 4) & 7) << 8;
            put_shifted(x, scale, tui_grid_iq1[q], word & 0x8000);
        }
    }
}

void tui_decode_iq1_m(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 56) {
        const unsigned char *sc = in + 48;
        unsigned d = 0; /* the f16 scale, four bits in each word of scales */
        for (unsigned i = 0; i < 4; i++)
            d |= (unsigned)tu_le16(sc + 2 * i) >> 12 << 4 * i;
        for (unsigned k = 0; k < 32; k++, x += 8) {
            unsigned s = tu_le16(sc + 2 * (k / 8)) >> 3 * (k % 8 / 2) & 7u;
            unsigned high = in[32 + k / 2] >> 4 * (k % 2) & 15u;
            float scale = tu_from_f16((uint16_t)d) * (float)(2 * s + 1);
            put_shifted(x, scale, tui_grid_iq1[in[k] | (high & 7) << 8], high & 8);
        }
    }
}
