/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_iq4.c: IQ4_NL and IQ4_XS: four-bit codes into a fixed book of uneven steps. The
 * reference. */
#include "ggml_k.h"
#include "tensorutils/core/bytes.h"

enum { N = 32 };

const signed char tui_iq4_book[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

unsigned tui_iq4_nearest(float v)
{
    unsigned i = 0;
    /* The middle of two entries is exact in float; at the middle the upper one wins. */
    while (i < 15 && v >= 0.5f * (float)(tui_iq4_book[i] + tui_iq4_book[i + 1]))
        i++;
    return i;
}

/* Σ w·q·x and Σ w·q·q of the codes that `inverse` gives. */
static void gain(const float *x, const float *w, float inverse, float *qx, float *qq)
{
    *qx = *qq = 0;
    for (unsigned i = 0; i < N; i++) {
        float q = (float)tui_iq4_book[tui_iq4_nearest(inverse * x[i])];
        *qx += w[i] * q * x[i];
        *qq += w[i] * q * q;
    }
}

/* The best of 16 scales for 32 elements. */
static float fit(const float *x, const float *w)
{
    float top = tui_extreme(x, N), qx, qq;
    if (fabsf(top) < TUI_TINY)
        return 0;
    gain(x, w, 1 / (-top / (float)tui_iq4_book[0]), &qx, &qq);
    float scale = qq > 0 ? qx / qq : 0, best = scale * qx;
    for (int t = -7; t <= 7; t++) {
        gain(x, w, (float)(t + tui_iq4_book[0]) / top, &qx, &qq);
        if (qq > 0 && qx * qx > best * qq) {
            scale = qx / qq;
            best = scale * qx;
        }
    }
    return scale;
}

/* mean: 2·Σx²/n of the block of the format. */
static float fit_weighted(const float *x, const float *importance, float mean)
{
    float w[N];
    for (unsigned i = 0; i < N; i++)
        w[i] = importance ? tui_weigh(importance[i], mean, x[i]) : x[i] * x[i];
    return fit(x, w);
}

static void put_codes(unsigned char *out, const float *x, float inverse)
{
    unsigned char code[N];
    for (unsigned i = 0; i < N; i++)
        code[i] = (unsigned char)tui_iq4_nearest(inverse * x[i]);
    tui_put_nibbles(out, code);
}

void tui_encode_iq4_nl(const struct tui_blocks *b)
{
    unsigned char *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 18) {
        const float *x = b->x + i * N, *w = b->weight ? b->weight + i * N : NULL;
        float d = fit_weighted(x, w, w ? 2 * tui_sum_sq(x, N) / N : 0);
        tu_put16(out, tu_to_f16(d));
        put_codes(out + 2, x, tui_inverse(d));
    }
}

void tui_put_iq4_xs(unsigned char *out, const float *scale, float *inverse)
{
    float d = -tui_extreme(scale, 8) / 32, id = tui_inverse(d);
    unsigned high = 0;
    memset(out + 4, 0, 4);
    for (unsigned j = 0; j < 8; j++) {
        int l = tui_clamp(tui_nint(id * scale[j]), -32, 31);
        inverse[j] = tui_inverse(d * (float)l);
        out[4 + j / 2] |= (unsigned char)(((l + 32) & 15) << 4 * (j % 2));
        high |= (unsigned)(l + 32) >> 4 << 2 * j;
    }
    tu_put16(out, tu_to_f16(d));
    tu_put16(out + 2, (uint16_t)high);
}

void tui_encode_iq4_xs(const struct tui_blocks *b)
{
    unsigned char *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 136) {
        const float *x = b->x + i * TUI_SUPER,
                    *w = b->weight ? b->weight + i * TUI_SUPER : NULL;
        float scale[8], inverse[8],
            mean = w ? 2 * tui_sum_sq(x, TUI_SUPER) / TUI_SUPER : 0;
        for (unsigned j = 0; j < 8; j++)
            scale[j] = fit_weighted(x + N * j, w ? w + N * j : NULL, mean);
        tui_put_iq4_xs(out, scale, inverse);
        for (unsigned j = 0; j < 8; j++)
            put_codes(out + 8 + 16 * j, x + N * j, inverse[j]);
    }
}

static void decode32(const unsigned char *qs, float d, float *x)
{
    for (unsigned j = 0; j < 16; j++) {
        x[j] = d * (float)tui_iq4_book[qs[j] & 15];
        x[j + 16] = d * (float)tui_iq4_book[qs[j] >> 4];
    }
}

void tui_decode_iq4_nl(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 18, x += N)
        decode32(in + 2, tu_from_f16(tu_le16(in)), x);
}

void tui_decode_iq4_xs(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 136) {
        float d = tu_from_f16(tu_le16(in));
        unsigned high = tu_le16(in + 2);
        for (unsigned j = 0; j < 8; j++, x += N) {
            int l = (in[4 + j / 2] >> 4 * (j % 2) & 15) | (int)(high >> 2 * j & 3) << 4;
            decode32(in + 8 + 16 * j, d * (float)(l - 32), x);
        }
    }
}
