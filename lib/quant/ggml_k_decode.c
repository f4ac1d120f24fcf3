/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_k_decode.c: the k-quants back to floats. The reference. */
#include "ggml.h"
#include "tensorutils/core/bytes.h"

static float get_f16(const unsigned char *p)
{
    return tu_from_f16(tu_le16(p));
}

/* Two-bit code i of 256: byte 32h+l holds elements 128h + l + 32n at bits 2n. */
static unsigned code2(const unsigned char *qs, unsigned i)
{
    return qs[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3u;
}

/* Four-bit code i of 256: byte 32g+l holds elements 64g+l and, high, 64g+32+l. */
static unsigned code4(const unsigned char *qs, unsigned i)
{
    return qs[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15u;
}

void tui_decode_q2_k(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 84, x += TUI_SUPER) {
        float d = get_f16(in + 80), dmin = get_f16(in + 82);
        for (unsigned i = 0; i < TUI_SUPER; i++) {
            unsigned s = in[i / 16];
            x[i] =
                d * (float)(s & 15) * (float)code2(in + 16, i) - dmin * (float)(s >> 4);
        }
    }
}

void tui_decode_q3_k(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 110, x += TUI_SUPER) {
        const unsigned char *sc = in + 96;
        float d = get_f16(in + 108);
        for (unsigned i = 0; i < TUI_SUPER; i++) {
            unsigned j = i / 16;
            int l = (sc[j % 8] >> (j < 8 ? 0 : 4) & 15) |
                    (sc[8 + j % 4] >> 2 * (j / 4) & 3) << 4;
            int q = (int)code2(in + 32, i) - (in[i % 32] >> i / 32 & 1 ? 0 : 4);
            x[i] = d * (float)(l - 32) * (float)q;
        }
    }
}

void tui_decode_q4_k(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 144, x += TUI_SUPER) {
        float d = get_f16(in), dmin = get_f16(in + 2);
        for (unsigned i = 0; i < TUI_SUPER; i++)
            x[i] = d * (float)tui_k4_scale(in + 4, i / 32) * (float)code4(in + 16, i) -
                   dmin * (float)tui_k4_min(in + 4, i / 32);
    }
}

void tui_decode_q5_k(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 176, x += TUI_SUPER) {
        float d = get_f16(in), dmin = get_f16(in + 2);
        for (unsigned i = 0; i < TUI_SUPER; i++) {
            unsigned q = code4(in + 48, i) | (in[16 + i % 32] >> i / 32 & 1u) << 4;
            x[i] = d * (float)tui_k4_scale(in + 4, i / 32) * (float)q -
                   dmin * (float)tui_k4_min(in + 4, i / 32);
        }
    }
}

void tui_decode_q6_k(const unsigned char *in, float *x, size_t n)
{
    for (; n--; in += 210, x += TUI_SUPER) {
        float d = get_f16(in + 208);
        for (unsigned i = 0; i < TUI_SUPER; i++) {
            unsigned h = i / 128, l = i % 32, k = i % 128 / 32;
            unsigned low = in[64 * h + 32 * (k % 2) + l] >> 4 * (k / 2) & 15u;
            unsigned q = low | (in[128 + 32 * h + l] >> 2 * k & 3u) << 4;
            x[i] = d * (float)(int8_t)in[192 + i / 16] * (float)((int)q - 32);
        }
    }
}
