/* SPDX-License-Identifier: Apache-2.0 */
/* affine_lanes.h: the kernels of affine.h and bits.h over either kind of lanes. */
#include "affine.h"
#include "bits.h"

void LANES_FN(tui_range)(const float *x, size_t n, size_t group, float *lo, float *hi)
{
    for (size_t at = 0; at < n; at += group, lo++, hi++) {
        const size_t end = n - at < group ? n : at + group;
        vf least = v_set(0), most = v_set(0);
        float low = 0, high = 0;
        size_t i = at;
        for (; i + LANES <= end; i += LANES) {
            vf v = v_load(x + i);
            least = v_min(v, least); /* the second where the first is NaN */
            most = v_max(v, most);
        }
        if (i < end)
            tui_range_plain(x + i, end - i, end - i, &low, &high);
        *lo = v_lowest(v_min(least, v_set(low)));
        *hi = v_highest(v_max(most, v_set(high)));
    }
}

/* Values that are further from 0 than any code are as good as these. */
#define FAR 0x1p22f

/* How codes are made of quotients within ±2·FAR: as whole numbers, which takes less time
 * than limits of floats. */
struct steps {
    vf before;
    int lo, hi, after, top;
};

static inline vi code_of(const struct steps *s, vf v)
{
    vi k = v_round(v_add(v, s->before));
    k = vi_add(vi_min(vi_max(k, s->lo), s->hi), s->after);
    return vi_min(vi_max(k, 0), s->top);
}

/* NaN is the lower. */
static inline vf v_near(vf v)
{
    return v_min(v_max(v, v_set(-FAR)), v_set(FAR));
}

/* x / unit, rounded once, limited to ±FAR (NaN: the lower): the estimate is within a few
 * units of the last place, and two corrections with an inverse that is itself rounded
 * once leave none (Markstein, 1990). A unit within 2^±60 keeps the products from
 * overflow, and what underflows from counting. */
struct divisor {
    vf unit, inverse, least, most;
};

static inline struct divisor divisor_of(float unit)
{
    return (struct divisor){v_set(unit), v_set(1 / unit), v_set(-FAR * unit),
                            v_set(FAR * unit)};
}

static inline vf quotient(const struct divisor *d, vf x)
{
    x = v_min(v_max(x, d->least), d->most);
    vf q = v_mul(x, d->inverse);
    q = v_fma(v_nfma(q, d->unit, x), d->inverse, q);
    return v_fma(v_nfma(q, d->unit, x), d->inverse, q);
}

void LANES_FN(tui_affine_code)(const struct tui_affine_map *m, const float *x, size_t n,
                               uint8_t *code)
{
    const struct steps s = {v_set(m->before), (int)m->lo, (int)m->hi, (int)m->after,
                            (int)m->top};
    const vf unit = v_set(m->unit);
    size_t i = 0;
    if (m->multiply) {
        for (; i + LANES <= n; i += LANES)
            vi_store(code + i, code_of(&s, v_near(v_mul(v_load(x + i), unit))));
    } else if (m->unit >= 0x1p-60f && m->unit <= 0x1p60f) {
        const struct divisor d = divisor_of(m->unit);
        for (; i + LANES <= n; i += LANES)
            vi_store(code + i, code_of(&s, quotient(&d, v_load(x + i))));
    }
    for (; i + LANES <= n; i += LANES)
        vi_store(code + i, code_of(&s, v_near(v_div(v_load(x + i), unit))));
    tui_affine_code_plain(m, x + i, n - i, code + i);
}

void LANES_FN(tui_affine_values)(const uint8_t *code, size_t n, float zero, float scale,
                                 float *x)
{
    vf z = v_set(zero), s = v_set(scale);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        v_store(x + i, v_mul(v_sub(v_int(vi_load(code + i)), z), s));
    tui_affine_values_plain(code + i, n - i, zero, scale, x + i);
}

void LANES_FN(tui_book16_code)(const struct tui_book16 *b, float unit, const float *x,
                               size_t n, uint8_t *code)
{
    const struct v_book book = v_book_of(b->value, b->above);
    const vf u = v_set(unit);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) { /* NaN is above no middle */
        v_nearest_bytes(code + i, &book, v_mul(v_load(x + i), u));
        v_replace(code + i, b->code);
    }
    tui_book16_code_plain(b, unit, x + i, n - i, code + i);
}

void LANES_FN(tui_book16_values)(const float table[16], const uint8_t *code, size_t n,
                                 float scale, float *x)
{
    const struct v_table t = v_table_of(table);
    vf s = v_set(scale);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        v_store(x + i, v_mul(v_lookup(&t, vi_load(code + i)), s));
    tui_book16_values_plain(table, code + i, n - i, scale, x + i);
}

void LANES_FN(tui_awq_join)(const uint8_t *code, size_t stride, size_t n, uint32_t *word)
{
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        vi w = vi_load(code + j);
        for (unsigned k = 1; k < 8; k++)
            w = vi_or(w, vi_shl(vi_load(code + k * stride + j), tui_awq_shift(k)));
        vi_store_words(word + j, w);
    }
    tui_awq_join_plain(code + j, stride, n - j, word + j);
}

void LANES_FN(tui_awq_split)(const uint32_t *word, size_t n, size_t stride, uint8_t *code)
{
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        const vi w = vi_load_words(word + j);
        for (unsigned k = 0; k < 8; k++)
            vi_store(code + k * stride + j, vi_and(vi_shr(w, tui_awq_shift(k)), 15));
    }
    tui_awq_split_plain(word + j, n - j, stride, code + j);
}

void LANES_FN(tui_nibbles_pack)(const uint8_t *code, size_t n, bool high,
                                unsigned char *out)
{
    size_t i = 0;
    for (; i + NIBBLES <= n; i += NIBBLES)
        v_join_nibbles(out + i / 2, code + i, high);
    tui_nibbles_pack_plain(code + i, n - i, high, out + i / 2);
}

void LANES_FN(tui_nibbles_unpack)(const unsigned char *in, size_t n, bool high,
                                  uint8_t *code)
{
    size_t i = 0;
    for (; i + NIBBLES <= n; i += NIBBLES)
        v_split_nibbles(code + i, in + i / 2, high);
    tui_nibbles_unpack_plain(in + i / 2, n - i, high, code + i);
}
