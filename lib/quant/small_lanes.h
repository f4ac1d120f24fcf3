/* SPDX-License-Identifier: Apache-2.0 */
/* small_lanes.h: the kernels of small.h over either kind of lanes. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "lanes_runs.h"
#include "small.h"

/* How codes are made of quotients: of four bits by their thresholds, of more by their
 * bits. */
struct cast {
    int sign;
    struct v_seven seven;
    vf least, most, magic;
    int shift, round, base;
};

/* Where the codes of e2m1 change: in the middle of two values, which goes to the even. */
static inline struct v_seven thresholds_of(const struct tui_small *f)
{
    static const unsigned char all[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    float value[8], at[7], one = 1;
    tui_small_decode_plain(f, all, 8, 8, &one, value);
    for (unsigned k = 0; k < 7; k++) {
        at[k] = (value[k] + value[k + 1]) / 2;
        at[k] = k % 2 ? at[k] : nextafterf(at[k], INFINITY);
    }
    return v_seven_of(at);
}

static inline struct cast cast_of(const struct tui_small *f)
{
    const int shift = 23 - f->mantissa, offset = (127 - f->bias) << f->mantissa;
    const float magic = 0x1p23f / f->unit; /* whose last place is the least step */
    struct cast c = {.sign = 1 << (f->bits - 1),
                     .least = v_set(f->least),
                     .most = v_set(f->max),
                     .magic = v_set(magic),
                     .shift = shift,
                     .round = (1 << (shift - 1)) - 1 - (offset << shift)};
    memcpy(&c.base, &magic, sizeof c.base);
    if (f->bits == 4)
        c.seven = thresholds_of(f);
    return c;
}

/* The magnitude's code: exponent and mantissa, rounded half to even among the bits; below
 * the normals as a whole number of least steps, which a large sum rounds. */
ALWAYS vi magnitude(const struct cast *c, vf a)
{
    vi bits = v_as_int(a);
    vi odd = vi_and(vi_shr(bits, (unsigned)c->shift), 1);
    vi normal = vi_shr(vi_add(vi_sum(bits, odd), c->round), (unsigned)c->shift);
    vi below = vi_add(v_as_int(v_add(a, c->magic)), -c->base);
    return vi_pick(v_ge(a, c->least), normal, below);
}

ALWAYS vi small_code(const struct cast *c, bool four, const struct divisor *d,
                     enum how how, const float *x)
{
    vf v = v_load(x), a = quotient(d, how, v_abs(v));
    vi code = four ? v_count_seven(&c->seven, a) : magnitude(c, v_min(a, c->most));
    return vi_or(code, vi_only(v_negative(v), vi_set(c->sign)));
}

/* The largest magnitude of `group` values, a multiple of LANES, in each lane. */
static inline vf amax_of(const float *x, size_t group)
{
    vf most = v_set(0);
    for (size_t i = 0; i < group; i += LANES)
        most = v_max(v_abs(v_load(x + i)), most); /* the second where the first is NaN */
    return most;
}

void LANES_FN(tui_amax)(const float *x, size_t n, size_t group, float *amax)
{
    float most[LANES * LANES];
    size_t at = 0;
    for (; group % LANES == 0 && at + LANES * group <= n; amax += LANES) {
        for (size_t k = 0; k < LANES * LANES; k += LANES, at += group)
            v_store(most + k, amax_of(x + at, group));
        v_store(amax, most_of_rows(most));
    }
    for (; at < n; at += group, amax++) {
        const size_t size = n - at < group ? n - at : group, whole = size - size % LANES;
        float rest = 0;
        if (whole < size)
            tui_amax_plain(x + at + whole, size - whole, size - whole, &rest);
        *amax = v_highest(v_max(amax_of(x + at, whole), v_set(rest)));
    }
}

/* A power of two, unless it is smaller than all normal numbers, has an inverse that is a
 * float: a product with it is the quotient. */
static inline bool has_inverse(float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    return scale >= FLT_MIN && scale <= FLT_MAX && (bits & 0x7fffff) == 0;
}

/* Returns how many of n are coded: whole lanes of them. */
ALWAYS size_t small_codes(const struct cast *c, bool four, const struct divisor *d,
                          enum how how, const float *x, size_t n, unsigned char *code)
{
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        ask(x + i, 2 * LANES);
        vi a = vh_of(small_code(c, four, d, how, x + i),
                     small_code(c, four, d, how, x + i + LANES));
        vb_store(code + i, vb_of(a, a), 2);
    }
    for (; i + LANES <= n; i += LANES)
        vi_store(code + i, small_code(c, four, d, how, x + i));
    return i;
}

ALWAYS void encode_groups(const struct tui_small *f, bool four, const float *x, size_t n,
                          size_t group, const float *scale, unsigned char *code)
{
    const struct cast c = cast_of(f);
    for (size_t i = 0; i < n; i += group, scale++) {
        const size_t size = n - i < group ? n - i : group;
        const bool product = has_inverse(*scale);
        const struct divisor d = divisor_of(product ? 1 / *scale : *scale);
        size_t done;
        if (product)
            done = small_codes(&c, four, &d, PRODUCT, x + i, size, code + i);
        else if (is_corrected(*scale))
            done = small_codes(&c, four, &d, CORRECTED, x + i, size, code + i);
        else
            done = small_codes(&c, four, &d, DIVIDED, x + i, size, code + i);
        if (done < size)
            tui_small_encode_plain(f, x + i + done, size - done, group, scale,
                                   code + i + done);
    }
}

void LANES_FN(tui_small_encode)(const struct tui_small *f, const float *x, size_t n,
                                size_t group, const float *scale, unsigned char *code)
{
    if (f->bits == 4)
        encode_groups(f, true, x, n, group, scale, code);
    else
        encode_groups(f, false, x, n, group, scale, code);
}

/* Four bits are sixteen values. */
static void decode_by_table(const struct tui_small *f, const unsigned char *code,
                            size_t n, size_t group, const float *scale, float *x)
{
    static const unsigned char all[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                          8, 9, 10, 11, 12, 13, 14, 15};
    float value[16], one = 1;
    tui_small_decode_plain(f, all, 16, 16, &one, value);
    const struct v_table t = v_table_of(value);
    for (size_t i = 0; i < n; scale++) {
        const size_t end = n - i < group ? n : i + group;
        const vf s = v_set(*scale);
        for (; i + LANES <= end; i += LANES)
            v_store(x + i, v_mul(v_lookup(&t, vi_load(code + i)), s));
        if (i < end)
            tui_small_decode_plain(f, code + i, end - i, group, scale, x + i);
        i = end;
    }
}

void LANES_FN(tui_small_decode)(const struct tui_small *f, const unsigned char *code,
                                size_t n, size_t group, const float *scale, float *x)
{
    const int mask = (1 << (f->bits - 1)) - 1;
    const int offset = (127 - f->bias) << 23;
    const unsigned up = (unsigned)(23 - f->mantissa);
    const vf step = v_set(1 / f->unit);
    const vf special = v_set((float)f->special),
             normal = v_set((float)(1 << f->mantissa));
    if (f->bits == 4) {
        decode_by_table(f, code, n, group, scale, x);
        return;
    }
    for (size_t i = 0; i < n; scale++) {
        const size_t end = n - i < group ? n : i + group;
        const vf s = v_set(*scale);
        for (; i + LANES <= end; i += LANES) {
            vi c = vi_load(code + i), mag = vi_and(c, mask);
            vf m = v_int(mag);
            if (v_any(v_ge(m, special))) { /* Inf and NaN are rare */
                tui_small_decode_plain(f, code + i, LANES, LANES, scale, x + i);
                continue;
            }
            vf v = v_as_float(vi_add(vi_shl(mag, up), offset));
            v = v_pick(v_ge(m, normal), v, v_mul(m, step));
            vi sign = vi_shl(vi_and(vi_shr(c, (unsigned)f->bits - 1), 1), 31);
            v_store(x + i, v_mul(v_as_float(vi_or(v_as_int(v), sign)), s));
        }
        if (i < end)
            tui_small_decode_plain(f, code + i, end - i, group, scale, x + i);
        i = end;
    }
}
