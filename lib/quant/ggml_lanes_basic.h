/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_lanes_basic.h: the encoders of ggml_basic.c, ggml_ternary.c and ggml_fp4.c along a
 * block. Only sums depend on order and there are none here. Behind ggml_lanes.h.
 *
 * Blocks that need more than arithmetic (an inverse that overflows, extremes of both
 * signs) and those with importance go to the reference, one at a time. */

#define PARTS (32 / LANES) /* vectors of a block of 32 */

ALWAYS float top_abs(const float *x, unsigned n)
{
    vf m = v_abs(v_load(x));
    for (unsigned i = LANES; i < n; i += LANES)
        m = v_max(m, v_abs(v_load(x + i)));
    return v_highest(m);
}

ALWAYS void ends(const float *x, float *lo, float *hi)
{
    vf a = v_load(x), b = a;
    for (unsigned i = LANES; i < 32; i += LANES) {
        a = v_min(v_load(x + i), a);
        b = v_max(v_load(x + i), b);
    }
    *lo = v_lowest(a);
    *hi = v_highest(b);
}

ALWAYS void put_nibbles(unsigned char *out, const vi *code)
{
    for (unsigned k = 0; k < PARTS / 2; k++)
        vi_store(out + k * LANES, vi_or(code[k], vi_shl(code[k + PARTS / 2], 4)));
}

ALWAYS void put_codes5(unsigned char *qh, unsigned char *qs, vi *code)
{
    uint32_t high = 0;
    for (unsigned k = 0; k < PARTS; k++) {
        high |= vi_bits16(code[k]) << k * LANES;
        code[k] = vi_and(code[k], 15);
    }
    tu_put32(qh, high);
    put_nibbles(qs, code);
}

/* Some value of a block of 32 is the largest magnitude, or its negative is. */
ALWAYS bool has(const float *x, float amax, bool negative)
{
    bool any = false;
    for (unsigned i = 0; i < 32; i += LANES) {
        vf v = v_load(x + i);
        any |= v_any(negative ? v_ge(v_set(-amax), v) : v_ge(v, v_set(amax)));
    }
    return any;
}

/* Codes of Q4_0 and Q5_0; false where the reference must decide. The sign of the largest
 * cannot be guessed: there is no branch on it. */
ALWAYS bool symmetric_codes(const float *x, int nmax, float *d, vi *code)
{
    const float amax = top_abs(x, 32), size = amax / (float)nmax;
    const bool positive = has(x, amax, false);
    uint32_t bits;
    memcpy(&bits, &size, sizeof bits);
    bits |= (uint32_t)positive << 31;
    memcpy(d, &bits, sizeof bits);
    float inverse = 1 / *d;
    if (positive == has(x, amax, true) || !(fabsf(inverse) < INFINITY))
        return false;
    for (unsigned k = 0; k < PARTS; k++) {
        vf v = v_mul(v_load(x + k * LANES), v_set(inverse));
        code[k] = vi_min(v_trunc(v_add(v, v_set((float)nmax + 0.5f))), 2 * nmax - 1);
    }
    return true;
}

ALWAYS bool minimum_codes(const float *x, int nmax, float *d, float *lo, vi *code)
{
    float hi;
    ends(x, lo, &hi);
    *d = (hi - *lo) / (float)nmax;
    float inverse = 1 / *d;
    if (!(inverse < INFINITY) || *lo == 0)
        return false; /* of zeros the sign of the first counts */
    for (unsigned k = 0; k < PARTS; k++) {
        vf v = v_mul(v_sub(v_load(x + k * LANES), v_set(*lo)), v_set(inverse));
        code[k] = v_trunc(v_add(v, v_set(0.5f)));
        if (nmax == 15)
            code[k] = vi_min(code[k], 15);
    }
    return true;
}

/* A loop over blocks: what `block` refuses, and what has importance, goes to the
 * reference. */
#define BASIC(name, elems, size)                                                         \
    void LANES_FN(tui_encode_##name)(const struct tui_blocks *b)                         \
    {                                                                                    \
        for (size_t i = 0; i < b->n; i++) {                                              \
            struct tui_blocks one = *b;                                                  \
            one.x += i * (elems);                                                        \
            one.weight = b->weight ? b->weight + i * (elems) : NULL;                     \
            one.out += i * (size);                                                       \
            one.n = 1;                                                                   \
            if (one.weight || !name##_block(&one))                                       \
                tui_encode_##name(&one);                                                 \
        }                                                                                \
    }

static inline bool q4_0_block(const struct tui_blocks *b)
{
    vi code[PARTS];
    float d;
    if (!symmetric_codes(b->x, 8, &d, code))
        return false;
    tu_put16(b->out, v_f16(d));
    put_nibbles(b->out + 2, code);
    return true;
}
BASIC(q4_0, 32, 18)

static inline bool q5_0_block(const struct tui_blocks *b)
{
    vi code[PARTS];
    float d;
    if (!symmetric_codes(b->x, 16, &d, code))
        return false;
    tu_put16(b->out, v_f16(d));
    put_codes5(b->out + 2, b->out + 6, code);
    return true;
}
BASIC(q5_0, 32, 22)

static inline bool q4_1_block(const struct tui_blocks *b)
{
    vi code[PARTS];
    float d, min;
    if (!minimum_codes(b->x, 15, &d, &min, code))
        return false;
    tu_put16(b->out, v_f16(d));
    tu_put16(b->out + 2, v_f16(min));
    put_nibbles(b->out + 4, code);
    return true;
}
BASIC(q4_1, 32, 20)

static inline bool q5_1_block(const struct tui_blocks *b)
{
    vi code[PARTS];
    float d, min;
    if (!minimum_codes(b->x, 31, &d, &min, code))
        return false;
    tu_put16(b->out, v_f16(d));
    tu_put16(b->out + 2, v_f16(min));
    put_codes5(b->out + 4, b->out + 8, code);
    return true;
}
BASIC(q5_1, 32, 24)

static inline bool q8_0_block(const struct tui_blocks *b)
{
    float d = top_abs(b->x, 32) / 127, inverse = 1 / d;
    if (!(inverse < INFINITY))
        return false;
    tu_put16(b->out, v_f16(d));
    for (unsigned i = 0; i < 32; i += LANES)
        vi_store(b->out + 2 + i, v_round_away(v_mul(v_load(b->x + i), v_set(inverse))));
    return true;
}
BASIC(q8_0, 32, 34)

/* Trits as codes 0, 1, 2. */
ALWAYS bool trits(const float *x, float *d, unsigned char *t)
{
    *d = top_abs(x, TUI_SUPER);
    float inverse = 1 / *d;
    if (!(inverse < INFINITY))
        return false;
    for (unsigned i = 0; i < TUI_SUPER; i += LANES)
        vi_store(t + i, vi_add(v_round_away(v_mul(v_load(x + i), v_set(inverse))), 1));
    return true;
}

static inline bool tq2_0_block(const struct tui_blocks *b)
{
    unsigned char t[TUI_SUPER];
    float d;
    if (!trits(b->x, &d, t))
        return false;
    tui_pack_q2_k(b->out, t);
    tu_put16(b->out + 64, v_f16(d));
    return true;
}
BASIC(tq2_0, TUI_SUPER, 66)

static inline bool tq1_0_block(const struct tui_blocks *b)
{
    unsigned char t[TUI_SUPER];
    float d;
    if (!trits(b->x, &d, t))
        return false;
    tui_pack_tq1_0(b->out, t);
    tu_put16(b->out + 52, v_f16(d));
    return true;
}
BASIC(tq1_0, TUI_SUPER, 54)

/* Codes of E2M1 under a scale of the doubled book: how many middles |x| is over, and the
 * sign unless that is none. Middles times a scale are exact. */
ALWAYS vi fp4_codes(vf x, float scale)
{
    static const float middle[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};
    vf a = v_abs(x);
    vi code = vi_set(0);
    for (unsigned k = 0; k < 7; k++)
        code = vi_count(code, v_gt(a, v_set(middle[k] * scale)));
    vm negative = v_both(v_gt(v_set(0), x), v_gt(a, v_set(middle[0] * scale)));
    return vi_or(code, vi_only(negative, vi_set(8)));
}

static inline bool mxfp4_block(const struct tui_blocks *b)
{
    vi code[PARTS];
    float amax = top_abs(b->x, 32);
    if (!(amax >= 0x1p-125f))
        return false;
    b->out[0] = (unsigned char)tui_mxfp4_scale(amax, b->compat);
    float scale = tui_half_e8m0(b->out[0]);
    for (unsigned k = 0; k < PARTS; k++)
        code[k] = fp4_codes(v_load(b->x + k * LANES), scale);
    put_nibbles(b->out + 1, code);
    return true;
}
BASIC(mxfp4, 32, 17)

static inline bool nvfp4_block(const struct tui_blocks *b)
{
    for (unsigned s = 0; s < 4; s++) {
        const float *x = b->x + 16 * s;
        const float amax = top_abs(x, 16);
        unsigned char code[16];
        if (amax >
            4096) /* so far over the largest scale that errors are no longer exact */
            return false;
        b->out[s] = tui_to_ue4m3(amax / 6);
        float scale = tui_half_ue4m3(b->out[s]);
        for (unsigned i = 0; i < 16; i += LANES)
            vi_store(code + i, scale != 0 ? fp4_codes(v_load(x + i), scale) : vi_set(0));
        for (unsigned j = 0; j < 8; j++)
            b->out[4 + 8 * s + j] = (unsigned char)(code[j] | code[j + 8] << 4);
    }
    return true;
}
BASIC(nvfp4, 64, 36)
