/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_lanes_decode.h: ggml's blocks to floats along a block. Behind ggml_lanes.h. */

#define DECODER(name) void LANES_FN(tui_decode_##name)(const unsigned char *in, float *x, size_t n)
#define EACH_LANES(i, n) for (unsigned i = 0; i < (n); i += LANES)

ALWAYS float get_f16(const unsigned char *p)
{
    return v_from_f16(tu_le16(p));
}

ALWAYS vi low4(const unsigned char *p)
{
    return vi_and(vi_load(p), 15);
}

ALWAYS vi high4(const unsigned char *p)
{
    return vi_shr(vi_load(p), 4);
}

DECODER(q4_0)
{
    for (; n--; in += 18, x += 32) {
        vf d = v_set(get_f16(in));
        EACH_LANES(i, 16) {
            v_store(x + i, v_mul(v_int(vi_add(low4(in + 2 + i), -8)), d));
            v_store(x + 16 + i, v_mul(v_int(vi_add(high4(in + 2 + i), -8)), d));
        }
    }
}

DECODER(q4_1)
{
    for (; n--; in += 20, x += 32) {
        vf d = v_set(get_f16(in)), m = v_set(get_f16(in + 2));
        EACH_LANES(i, 16) {
            v_store(x + i, v_add(v_mul(v_int(low4(in + 4 + i)), d), m));
            v_store(x + 16 + i, v_add(v_mul(v_int(high4(in + 4 + i)), d), m));
        }
    }
}

/* Elements i … and 16+i … with a fifth bit. */
ALWAYS void codes5(const unsigned char *qs, uint32_t high, unsigned i, vi *lo, vi *hi)
{
    *lo = vi_or(low4(qs + i), vi_shl(vi_bit(high, i), 4));
    *hi = vi_or(high4(qs + i), vi_shl(vi_bit(high, 16 + i), 4));
}

DECODER(q5_0)
{
    for (; n--; in += 22, x += 32) {
        vf d = v_set(get_f16(in));
        uint32_t high = tu_le32(in + 2);
        EACH_LANES(i, 16) {
            vi lo, hi;
            codes5(in + 6, high, i, &lo, &hi);
            v_store(x + i, v_mul(v_int(vi_add(lo, -16)), d));
            v_store(x + 16 + i, v_mul(v_int(vi_add(hi, -16)), d));
        }
    }
}

DECODER(q5_1)
{
    for (; n--; in += 24, x += 32) {
        vf d = v_set(get_f16(in)), m = v_set(get_f16(in + 2));
        uint32_t high = tu_le32(in + 4);
        EACH_LANES(i, 16) {
            vi lo, hi;
            codes5(in + 8, high, i, &lo, &hi);
            v_store(x + i, v_add(v_mul(v_int(lo), d), m));
            v_store(x + 16 + i, v_add(v_mul(v_int(hi), d), m));
        }
    }
}

DECODER(q8_0)
{
    for (; n--; in += 34, x += 32) {
        vf d = v_set(get_f16(in));
        EACH_LANES(i, 32) v_store(x + i, v_mul(v_int(vi_load_signed(in + 2 + i)), d));
    }
}

DECODER(q2_k)
{
    for (; n--; in += 84, x += TUI_SUPER) {
        float d = get_f16(in + 80), dmin = get_f16(in + 82);
        EACH_LANES(i, TUI_SUPER) {
            unsigned s = in[i / 16];
            vi q = vi_and(vi_shr(vi_load(in + 16 + i / 128 * 32 + i % 32), i % 128 / 32 * 2), 3);
            v_store(x + i, v_sub(v_mul(v_set(d * (float)(s & 15)), v_int(q)),
                                 v_set(dmin * (float)(s >> 4))));
        }
    }
}

DECODER(q3_k)
{
    for (; n--; in += 110, x += TUI_SUPER) {
        const unsigned char *sc = in + 96;
        float d = get_f16(in + 108), unit[16];
        for (unsigned j = 0; j < 16; j++) {
            int l = (sc[j % 8] >> (j < 8 ? 0 : 4) & 15) | (sc[8 + j % 4] >> 2 * (j / 4) & 3) << 4;
            unit[j] = d * (float)(l - 32);
        }
        EACH_LANES(i, TUI_SUPER) {
            vi q = vi_and(vi_shr(vi_load(in + 32 + i / 128 * 32 + i % 32), i % 128 / 32 * 2), 3);
            vi h = vi_and(vi_shr(vi_load(in + i % 32), i / 32), 1);
            v_store(x + i, v_mul(v_set(unit[i / 16]), v_int(vi_add(vi_or(q, vi_shl(h, 2)), -4))));
        }
    }
}

/* Elements i … of a sub-block with scale and minimum. */
ALWAYS void put_affine(float *x, vi q, float unit, float min)
{
    v_store(x, v_sub(v_mul(v_set(unit), v_int(q)), v_set(min)));
}

DECODER(q4_k)
{
    for (; n--; in += 144, x += TUI_SUPER) {
        float d = get_f16(in), dmin = get_f16(in + 2);
        for (unsigned j = 0; j < 8; j++) {
            float unit = d * (float)tui_k4_scale(in + 4, j);
            float min = dmin * (float)tui_k4_min(in + 4, j);
            const unsigned char *q = in + 16 + j / 2 * 32;
            EACH_LANES(i, 32)
                put_affine(x + 32 * j + i, j % 2 ? high4(q + i) : low4(q + i), unit, min);
        }
    }
}

DECODER(q5_k)
{
    for (; n--; in += 176, x += TUI_SUPER) {
        float d = get_f16(in), dmin = get_f16(in + 2);
        for (unsigned j = 0; j < 8; j++) {
            float unit = d * (float)tui_k4_scale(in + 4, j);
            float min = dmin * (float)tui_k4_min(in + 4, j);
            const unsigned char *q = in + 48 + j / 2 * 32;
            EACH_LANES(i, 32) {
                vi h = vi_and(vi_shr(vi_load(in + 16 + i), j), 1);
                vi l = j % 2 ? high4(q + i) : low4(q + i);
                put_affine(x + 32 * j + i, vi_or(l, vi_shl(h, 4)), unit, min);
            }
        }
    }
}

DECODER(q6_k)
{
    for (; n--; in += 210, x += TUI_SUPER) {
        float d = get_f16(in + 208);
        EACH_LANES(i, TUI_SUPER) {
            unsigned h = i / 128, l = i % 32, k = i % 128 / 32;
            const unsigned char *ql = in + 64 * h + 32 * (k % 2) + l;
            vi low = k / 2 ? high4(ql) : low4(ql);
            vi high = vi_and(vi_shr(vi_load(in + 128 + 32 * h + l), 2 * k), 3);
            vi q = vi_add(vi_or(low, vi_shl(high, 4)), -32);
            v_store(x + i, v_mul(v_set(d * (float)(int8_t)in[192 + i / 16]), v_int(q)));
        }
    }
}

DECODER(tq2_0)
{
    for (; n--; in += 66, x += TUI_SUPER) {
        vf d = v_set(get_f16(in + 64));
        EACH_LANES(i, TUI_SUPER) {
            vi t = vi_and(vi_shr(vi_load(in + i / 128 * 32 + i % 32), i % 128 / 32 * 2), 3);
            v_store(x + i, v_mul(v_int(vi_add(t, -1)), d));
        }
    }
}

/* n trits of each byte, `step` elements apart. */
ALWAYS void unpack3(const unsigned char *p, vf d, unsigned step, unsigned n, float *x)
{
    vi byte = vi_load(p);
    for (unsigned k = 0; k < n; k++) {
        vi three = vi_sum(byte, vi_shl(byte, 1));
        v_store(x + k * step, v_mul(v_int(vi_add(vi_shr(three, 8), -1)), d));
        byte = vi_and(three, 255);
    }
}

DECODER(tq1_0)
{
    for (; n--; in += 54, x += TUI_SUPER) {
        vf d = v_set(get_f16(in + 52));
        EACH_LANES(i, 32) unpack3(in + i, d, 32, 5, x + i);
        EACH_LANES(i, 16) unpack3(in + 32 + i, d, 16, 5, x + 160 + i);
        for (unsigned k = 0; k < 16; k++) { /* four trits of four bytes */
            unsigned byte = in[48 + k % 4];
            for (unsigned j = 0; j < k / 4; j++)
                byte = byte * 3 & 255;
            x[240 + k] = (float)((int)(byte * 3 >> 8) - 1) * get_f16(in + 52);
        }
    }
}

/* 32 codes of four bits into a table. */
ALWAYS void look_up32(const unsigned char *qs, const struct v_table *t, vf d, float *x)
{
    EACH_LANES(i, 16) {
        v_store(x + i, v_mul(d, v_lookup(t, low4(qs + i))));
        v_store(x + 16 + i, v_mul(d, v_lookup(t, high4(qs + i))));
    }
}

ALWAYS struct v_table table_of(const signed char *book)
{
    float v[16];
    for (unsigned i = 0; i < 16; i++)
        v[i] = (float)book[i];
    return v_table_of(v);
}

DECODER(iq4_nl)
{
    struct v_table t = table_of(tui_iq4_book);
    for (; n--; in += 18, x += 32)
        look_up32(in + 2, &t, v_set(get_f16(in)), x);
}

DECODER(iq4_xs)
{
    struct v_table t = table_of(tui_iq4_book);
    for (; n--; in += 136) {
        float d = get_f16(in);
        unsigned high = tu_le16(in + 2);
        for (unsigned j = 0; j < 8; j++, x += 32) {
            int l = (in[4 + j / 2] >> 4 * (j % 2) & 15) | (int)(high >> 2 * j & 3) << 4;
            look_up32(in + 8 + 16 * j, &t, v_set(d * (float)(l - 32)), x);
        }
    }
}

DECODER(mxfp4)
{
    struct v_table t = table_of(tui_fp4_book);
    for (; n--; in += 17, x += 32)
        look_up32(in + 1, &t, v_set(tui_half_e8m0(in[0])), x);
}

DECODER(nvfp4)
{
    struct v_table t = table_of(tui_fp4_book);
    for (; n--; in += 36, x += 64) {
        for (unsigned s = 0; s < 4; s++) {
            unsigned char q[16];
            for (unsigned j = 0; j < 8; j++) {
                q[j] = in[4 + 8 * s + j] & 15;
                q[j + 8] = in[4 + 8 * s + j] >> 4;
            }
            vf d = v_set(tui_half_ue4m3(in[s]));
            EACH_LANES(i, 16) v_store(x + 16 * s + i, v_mul(d, v_lookup(&t, vi_load(q + i))));
        }
    }
}
