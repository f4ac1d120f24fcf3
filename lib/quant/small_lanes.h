/* SPDX-License-Identifier: Apache-2.0 */
/* small_lanes.h: the kernels of small.h over either kind of lanes. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "small.h"

struct cast {
    vf least, most, magic_factor, unit;
    int shift, offset;
};

static inline struct cast cast_of(const struct tui_small *f)
{
    return (struct cast){v_set(f->least),  v_set(f->max),
                         v_set(f->magic),  v_set(f->unit),
                         23 - f->mantissa, (127 - f->bias) << f->mantissa};
}

/* Codes of values: rounded by adding a number whose last place is the format's, then
 * taken from the exponent and mantissa, or from the whole number of least steps below the
 * normals. */
static inline vi cast_codes(const struct cast *c, vf x, int sign)
{
    vf a = v_min(v_abs(x), c->most);
    vf power = v_as_float(vi_and(v_as_int(v_max(a, c->least)), 0x7f800000));
    vf magic = v_mul(power, c->magic_factor);
    vf r = v_min(v_sub(v_add(a, magic), magic), c->most);
    vi normal = vi_add(vi_shr(v_as_int(r), (unsigned)c->shift), -c->offset);
    vi below = v_trunc(v_mul(r, c->unit));
    vi code = vi_pick(v_ge(r, c->least), normal, below);
    return vi_or(code, vi_only(v_negative(x), vi_set(sign)));
}

void LANES_FN(tui_amax)(const float *x, size_t n, size_t group, float *amax)
{
    for (size_t at = 0; at < n; at += group, amax++) {
        const size_t end = n - at < group ? n : at + group;
        vf most = v_set(0);
        size_t i = at;
        for (; i + LANES <= end; i += LANES)
            most =
                v_max(v_abs(v_load(x + i)), most); /* the second where the first is NaN */
        float rest = 0;
        if (i < end)
            tui_amax_plain(x + i, end - i, end - i, &rest);
        *amax = v_highest(v_max(most, v_set(rest)));
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

void LANES_FN(tui_small_encode)(const struct tui_small *f, const float *x, size_t n,
                                size_t group, const float *scale, unsigned char *code)
{
    const struct cast c = cast_of(f);
    const int sign = 1 << (f->bits - 1);
    for (size_t i = 0; i < n; scale++) {
        const size_t end = n - i < group ? n : i + group;
        const vf s = v_set(*scale), inverse = v_set(1 / *scale);
        for (; has_inverse(*scale) && i + LANES <= end; i += LANES)
            vi_store(code + i, cast_codes(&c, v_mul(v_load(x + i), inverse), sign));
        for (; i + LANES <= end; i += LANES)
            vi_store(code + i, cast_codes(&c, v_div(v_load(x + i), s), sign));
        if (i < end)
            tui_small_encode_plain(f, x + i, end - i, group, scale, code + i);
        i = end;
    }
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
