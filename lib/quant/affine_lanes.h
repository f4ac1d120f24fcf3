/* SPDX-License-Identifier: Apache-2.0 */
/* affine_lanes.h: the kernels of affine.h and bits.h over either kind of lanes. */
#include "affine.h"
#include "bits.h"
#include "lanes_runs.h"
#include "tensorutils/core/bytes.h"

/* The range of 0 and `group` values, a multiple of LANES, in each lane: the most, and the
 * least with its sign turned, so that both are a most. */
static inline void range_of(const float *x, size_t group, vf *fall, vf *most)
{
    vf lo = v_set(0), hi = v_set(0);
    for (size_t i = 0; i < group; i += LANES) {
        vf v = v_load(x + i);
        lo = v_min(v, lo); /* the second where the first is NaN */
        hi = v_max(v, hi);
    }
    *fall = v_neg(lo);
    *most = hi;
}

void LANES_FN(tui_range)(const float *x, size_t n, size_t group, float *lo, float *hi)
{
    float fall[LANES * LANES], most[LANES * LANES];
    size_t at = 0;
    for (; group % LANES == 0 && at + LANES * group <= n; lo += LANES, hi += LANES) {
        for (size_t k = 0; k < LANES * LANES; k += LANES, at += group) {
            vf a, b;
            range_of(x + at, group, &a, &b);
            v_store(fall + k, a);
            v_store(most + k, b);
        }
        v_store(lo, v_neg(most_of_rows(fall)));
        v_store(hi, most_of_rows(most));
    }
    for (; at < n; at += group, lo++, hi++) {
        const size_t size = n - at < group ? n - at : group, whole = size - size % LANES;
        vf a, b;
        float low = 0, high = 0;
        range_of(x + at, whole, &a, &b);
        if (whole < size)
            tui_range_plain(x + at + whole, size - whole, size - whole, &low, &high);
        *lo = -v_highest(v_max(a, v_set(-low)));
        *hi = v_highest(v_max(b, v_set(high)));
    }
}

ALWAYS vi whole_of(const struct divisor *d, vf before, enum how how, const float *x)
{
    vf q = quotient(d, how, v_load(x));
    if (how != CORRECTED)
        q = v_min(v_set(FAR), q); /* the second where it is NaN: the least integer */
    return v_round(v_add(q, before));
}

/* The limits, in 16 bits and in bytes. */
struct steps {
    vf before;
    vi lo, hi, after, top;
};

ALWAYS vi step_of(const struct steps *s, vi a, vi b)
{
    return vh_add(vh_limit(vh_of(a, b), s->lo, s->hi), s->after);
}

/* n·LANES codes; n is 1, 2 or 4. */
ALWAYS void code_some(const struct divisor *d, const struct steps *s, enum how how,
                      const float *x, unsigned n, uint8_t *code)
{
    vi a = whole_of(d, s->before, how, x), b = a, c = a, e = a;
    if (n > 1)
        b = whole_of(d, s->before, how, x + LANES);
    if (n > 2) {
        c = whole_of(d, s->before, how, x + 2 * LANES);
        e = whole_of(d, s->before, how, x + 3 * LANES);
    }
    vi ab = step_of(s, a, b);
    vb_store(code, vb_min(vb_of(ab, n > 2 ? step_of(s, c, e) : ab), s->top), n);
}

/* Returns how many of n are coded: whole lanes of them. */
ALWAYS size_t code_all(const struct divisor *d, const struct steps *s, enum how how,
                       const float *x, size_t n, uint8_t *code)
{
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        ask(x + i, 4 * LANES);
        code_some(d, s, how, x + i, 4, code + i);
    }
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        ask(x + i, 2 * LANES);
        code_some(d, s, how, x + i, 2, code + i);
    }
    for (; i + LANES <= n; i += LANES)
        code_some(d, s, how, x + i, 1, code + i);
    return i;
}

static inline void code_group(const struct tui_affine_map *m, const float *x, size_t n,
                              uint8_t *code)
{
    const struct steps s = {v_set(m->before), vh_set((int)m->lo), vh_set((int)m->hi),
                            vh_set((int)m->after), vb_set((int)m->top)};
    const struct divisor d = divisor_of(m->unit);
    size_t i;
    if (m->multiply)
        i = code_all(&d, &s, PRODUCT, x, n, code);
    else if (is_corrected(m->unit))
        i = code_all(&d, &s, CORRECTED, x, n, code);
    else
        i = code_all(&d, &s, DIVIDED, x, n, code);
    if (i < n)
        tui_affine_code_plain(m, x + i, n - i, n - i, code + i);
}

void LANES_FN(tui_affine_code)(const struct tui_affine_map *m, const float *x, size_t n,
                               size_t group, uint8_t *code)
{
    for (size_t i = 0; i < n; i += group, m++)
        code_group(m, x + i, n - i < group ? n - i : group, code + i);
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

/* n·LANES codes; n is 1 or 4. NaN is above no middle. */
ALWAYS void place_some(const struct v_book *book, const uint8_t table[16], vf unit,
                       const float *x, unsigned n, uint8_t *code)
{
    vi a = v_place(book, v_mul(v_load(x), unit)), b = a, c = a, d = a;
    if (n > 1) {
        b = v_place(book, v_mul(v_load(x + LANES), unit));
        c = v_place(book, v_mul(v_load(x + 2 * LANES), unit));
        d = v_place(book, v_mul(v_load(x + 3 * LANES), unit));
    }
    vb_store(code, vb_lookup(table, vb_of(vh_of(a, b), vh_of(c, d))), n);
}

void LANES_FN(tui_book16_code)(const struct tui_book16 *b, const float *unit,
                               const float *x, size_t n, size_t group, uint8_t *code)
{
    const struct v_book book = v_book_of(b->value, b->above);
    for (size_t at = 0; at < n; at += group, unit++) {
        const size_t end = n - at < group ? n : at + group;
        const vf u = v_set(*unit);
        size_t i = at;
        for (; i + 4 * LANES <= end; i += 4 * LANES) {
            ask(x + i, 4 * LANES);
            place_some(&book, b->code, u, x + i, 4, code + i);
        }
        for (; i + LANES <= end; i += LANES)
            place_some(&book, b->code, u, x + i, 1, code + i);
        if (i < end)
            tui_book16_code_plain(b, unit, x + i, end - i, end - i, code + i);
    }
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

void LANES_FN(tui_bytes_flip)(unsigned char *to, const unsigned char *from, size_t n,
                              unsigned char by)
{
    const vi bits = vb_set(by);
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        vb_store(to + i, vi_xor(vb_load(from + i), bits), 4);
    tui_bytes_flip_plain(to + i, from + i, n - i, by);
}

/* The lower `bits` of eight bytes. */
static inline uint64_t fields(unsigned bits)
{
    return ((UINT64_C(1) << bits) - 1) * UINT64_C(0x0101010101010101);
}

void LANES_FN(tui_bits_join)(const uint8_t *code, size_t words, unsigned bits,
                             unsigned char *out)
{
    const uint64_t mask = fields(bits);
    for (size_t k = 0; k < words; k++)
        tu_put64(out + k * bits, _pext_u64(tu_le64(code + 8 * k), mask));
}

void LANES_FN(tui_bits_split)(const unsigned char *in, size_t words, unsigned bits,
                              uint8_t *code)
{
    const uint64_t mask = fields(bits);
    for (size_t k = 0; k < words; k++)
        tu_put64(code + 8 * k, _pdep_u64(tu_le64(in + k * bits), mask));
}
