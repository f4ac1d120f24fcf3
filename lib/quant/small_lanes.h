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
    return (struct cast){v_set(f->least), v_set(f->max), v_set(f->magic), v_set(f->unit),
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

/* A power of two has an inverse that is a float, unless it is smaller than all normal
 * numbers: a product is then the quotient. */
static inline bool has_inverse(float scale)
{
    int e;
    return scale >= FLT_MIN && frexpf(scale, &e) == 0.5f;
}

void LANES_FN(tui_small_encode)(const struct tui_small *f, const float *x, size_t n, float scale,
                                unsigned char *code)
{
    const struct cast c = cast_of(f);
    const int sign = 1 << (f->bits - 1);
    vf s = v_set(scale);
    size_t i = 0;
    if (has_inverse(scale)) {
        const vf inverse = v_set(1 / scale);
        for (; i + LANES <= n; i += LANES)
            vi_store(code + i, cast_codes(&c, v_mul(v_load(x + i), inverse), sign));
    }
    for (; i + LANES <= n; i += LANES)
        vi_store(code + i, cast_codes(&c, v_div(v_load(x + i), s), sign));
    tui_small_encode_plain(f, x + i, n - i, scale, code + i);
}

void LANES_FN(tui_small_decode)(const struct tui_small *f, const unsigned char *code, size_t n,
                                float scale, float *x)
{
    const int mask = (1 << (f->bits - 1)) - 1;
    const int offset = (127 - f->bias) << 23;
    const unsigned up = (unsigned)(23 - f->mantissa);
    const vf step = v_set(1 / f->unit), s = v_set(scale);
    const vf special = v_set((float)f->special), normal = v_set((float)(1 << f->mantissa));
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vi c = vi_load(code + i), mag = vi_and(c, mask);
        vf m = v_int(mag);
        if (v_any(v_ge(m, special))) { /* Inf and NaN are rare */
            tui_small_decode_plain(f, code + i, LANES, scale, x + i);
            continue;
        }
        vf v = v_as_float(vi_add(vi_shl(mag, up), offset));
        v = v_pick(v_ge(m, normal), v, v_mul(m, step));
        vi sign = vi_shl(vi_and(vi_shr(c, (unsigned)f->bits - 1), 1), 31);
        v_store(x + i, v_mul(v_as_float(vi_or(v_as_int(v), sign)), s));
    }
    tui_small_decode_plain(f, code + i, n - i, scale, x + i);
}
