/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_ternary.c: TQ1_0 (five trits in a byte) and TQ2_0 (two bits each). The
 * reference. */
#include "ggml.h"
#include "tensorutils/core/bytes.h"

/* Trits 0, 1, 2 for -d, 0, d; returns d. */
static float trits(const float *x, unsigned char *t)
{
    float d = fabsf(tui_extreme(x, TUI_SUPER)), inverse = tui_inverse(d);
    for (unsigned i = 0; i < TUI_SUPER; i++) {
        float v = roundf(x[i] * inverse);
        t[i] = (unsigned char)(fabsf(v) <= 1 ? 1 + (int)v : 1);
    }
    return d;
}

void tui_encode_tq2_0(const struct tui_blocks *b)
{
    unsigned char t[TUI_SUPER], *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 66) {
        tu_put16(out + 64, tu_to_f16(trits(b->x + i * TUI_SUPER, t)));
        tui_pack_q2_k(out, t);
    }
}

/* n trits, `step` apart, the first the most significant; four are shifted up as if five.
 * The byte is the fraction q/243 rounded up to 1/256, so that multiplying by 3 brings out
 * the trits. */
static unsigned char pack3(const unsigned char *t, unsigned step, unsigned n)
{
    unsigned q = 0;
    for (unsigned k = 0; k < n; k++)
        q = 3 * q + t[k * step];
    if (n == 4)
        q *= 3;
    return (unsigned char)((q * 256 + 242) / 243);
}

void tui_pack_tq1_0(unsigned char *out, const unsigned char *t)
{
    for (unsigned m = 0; m < 32; m++)
        out[m] = pack3(t + m, 32, 5);
    for (unsigned m = 0; m < 16; m++)
        out[32 + m] = pack3(t + 160 + m, 16, 5);
    for (unsigned m = 0; m < 4; m++)
        out[48 + m] = pack3(t + 240 + m, 4, 4);
}

void tui_encode_tq1_0(const struct tui_blocks *b)
{
    unsigned char t[TUI_SUPER], *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 54) {
        tu_put16(out + 52, tu_to_f16(trits(b->x + i * TUI_SUPER, t)));
        tui_pack_tq1_0(out, t);
    }
}

void tui_decode_tq2_0(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 66, x += TUI_SUPER) {
        float d = tu_from_f16(tu_le16(in + 64));
        for (unsigned i = 0; i < TUI_SUPER; i++) {
            int t = in[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
            x[i] = (float)(t - 1) * d;
        }
    }
}

static void unpack3(unsigned byte, float d, unsigned step, unsigned n, float *x)
{
    for (unsigned k = 0; k < n; k++) {
        x[k * step] = (float)((int)(byte * 3 >> 8) - 1) * d;
        byte = byte * 3 & 255;
    }
}

void tui_decode_tq1_0(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 54, x += TUI_SUPER) {
        float d = tu_from_f16(tu_le16(in + 52));
        for (unsigned m = 0; m < 32; m++)
            unpack3(in[m], d, 32, 5, x + m);
        for (unsigned m = 0; m < 16; m++)
            unpack3(in[32 + m], d, 16, 5, x + 160 + m);
        for (unsigned m = 0; m < 4; m++)
            unpack3(in[48 + m], d, 4, 4, x + 240 + m);
    }
}
