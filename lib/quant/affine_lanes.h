/* SPDX-License-Identifier: Apache-2.0 */
/* affine_lanes.h: the kernels of affine.h over either kind of lanes. */
#include "affine.h"

void LANES_FN(tui_range)(const float *x, size_t n, float *lo, float *hi)
{
    vf least = v_set(0), most = v_set(0);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf v = v_load(x + i);
        least = v_min(v, least); /* the second where the first is NaN */
        most = v_max(v, most);
    }
    *lo = v_lowest(least);
    *hi = v_highest(most);
    tui_range_plain(x + i, n - i, lo, hi);
}

void LANES_FN(tui_affine_code)(const struct tui_affine_map *m, const float *x, size_t n,
                               uint8_t *code)
{
    vf unit = v_set(m->unit), before = v_set(m->before), after = v_set(m->after),
       lo = v_set(m->lo), hi = v_set(m->hi), top = v_set(m->top), zero = v_set(0),
       magic = v_set(12582912.0f);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf v = v_load(x + i);
        v = v_add(m->multiply ? v_mul(v, unit) : v_div(v, unit), before);
        v = v_min(v_max(v, lo), hi);
        v = v_sub(v_add(v, magic), magic);
        v = v_min(v_max(v_add(v, after), zero), top);
        vi_store(code + i, v_trunc(v));
    }
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
    vf u = v_set(unit), lo = v_set(-1), hi = v_set(1);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        v_nearest_bytes(code + i, &book, v_min(v_max(v_mul(v_load(x + i), u), lo), hi));
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
