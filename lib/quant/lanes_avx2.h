/* SPDX-License-Identifier: Apache-2.0 */
/* lanes_avx2.h: eight floats at once; see lanes_avx512.h, whose names these are. */
#ifndef TENSORUTILS_QUANT_LANES_H
#define TENSORUTILS_QUANT_LANES_H

#include <immintrin.h>
#include <stdint.h>

#define LANES 8
#define LANES_FN(name) name##_avx2

typedef __m256 vf;
typedef __m256 vm; /* all bits of a lane */

static inline vf v_set(float a) { return _mm256_set1_ps(a); }
static inline vf v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
static inline vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf v_nfma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
static inline vf v_sqrt(vf a) { return _mm256_sqrt_ps(a); }
static inline vf v_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf v_neg(vf a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
static inline vm v_gt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
static inline vm v_ge(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
static inline vm v_ne(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_NEQ_UQ); }
static inline vm v_both(vm a, vm b) { return _mm256_and_ps(a, b); }
static inline bool v_any(vm a) { return _mm256_movemask_ps(a) != 0; }
static inline vf v_pick(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }

static inline vf v_code(vf a, float lo, float hi)
{
    vf t = _mm256_add_ps(a, _mm256_set1_ps(12582912.0f));
    t = _mm256_and_ps(t, _mm256_castsi256_ps(_mm256_set1_epi32(0x007fffff)));
    t = _mm256_or_ps(t, _mm256_castsi256_ps(_mm256_set1_epi32(0x4b000000)));
    t = _mm256_max_ps(t, _mm256_set1_ps(12582912.0f + lo));
    t = _mm256_min_ps(t, _mm256_set1_ps(12582912.0f + hi));
    return _mm256_sub_ps(t, _mm256_set1_ps(12582912.0f));
}

/* Eight int32 of 0 … 255 to bytes. */
static inline void v_put_bytes(unsigned char *p, __m256i a)
{
    __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packus_epi16(w, w));
}

static inline void v_bytes(unsigned char *p, vf a) { v_put_bytes(p, _mm256_cvttps_epi32(a)); }

static inline void v_transpose(const float *in, size_t stride, float *out)
{
    __m256 r[8], t[8];
    for (unsigned i = 0; i < 8; i += 2) {
        __m256 a = _mm256_loadu_ps(in + i * stride), b = _mm256_loadu_ps(in + (i + 1) * stride);
        r[i] = _mm256_unpacklo_ps(a, b);
        r[i + 1] = _mm256_unpackhi_ps(a, b);
    }
    for (unsigned i = 0; i < 8; i++) {
        unsigned k = i & ~3u;
        __m256d a = _mm256_castps_pd(r[k + (i >> 1 & 1)]);
        __m256d b = _mm256_castps_pd(r[k + 2 + (i >> 1 & 1)]);
        t[i] = _mm256_castpd_ps(i & 1 ? _mm256_unpackhi_pd(a, b) : _mm256_unpacklo_pd(a, b));
    }
    for (unsigned j = 0; j < 4; j++) {
        v_store(out + 8 * j, _mm256_permute2f128_ps(t[j], t[4 + j], 0x20));
        v_store(out + 8 * (4 + j), _mm256_permute2f128_ps(t[j], t[4 + j], 0x31));
    }
}

struct v_book {
    vf value[2], at0[2], at1[2], at3[2]; /* lower and upper eight */
    float middle;
};

static inline struct v_book v_book_of(const float *value, const float *middle)
{
    float m[20] = {0};
    for (unsigned i = 0; i < 15; i++)
        m[i] = middle[i];
    return (struct v_book){{v_load(value), v_load(value + 8)},
                           {v_load(m), v_load(m + 8)},
                           {v_load(m + 1), v_load(m + 9)},
                           {v_load(m + 3), v_load(m + 11)},
                           middle[7]};
}

/* Entry i (low three bits) of the upper or lower half. */
static inline vf v_entry(const vf *t, __m256i i, vm upper)
{
    return v_pick(upper, _mm256_permutevar8x32_ps(t[1], i), _mm256_permutevar8x32_ps(t[0], i));
}

static inline __m256i v_step(__m256i i, vm m, int by)
{
    return _mm256_add_epi32(i, _mm256_and_si256(_mm256_castps_si256(m), _mm256_set1_epi32(by)));
}

/* How many middles are at or under a: the low three bits, and *upper for the fourth. */
static inline __m256i v_search(const struct v_book *b, vf a, vm *upper)
{
    *upper = v_ge(a, v_set(b->middle));
    __m256i i = _mm256_setzero_si256();
    i = v_step(i, v_ge(a, v_entry(b->at3, i, *upper)), 4);
    i = v_step(i, v_ge(a, v_entry(b->at1, i, *upper)), 2);
    return v_step(i, v_ge(a, v_entry(b->at0, i, *upper)), 1);
}

static inline vf v_nearest(const struct v_book *b, vf a)
{
    vm upper;
    __m256i i = v_search(b, a, &upper);
    return v_entry(b->value, i, upper);
}

static inline void v_nearest_bytes(unsigned char *p, const struct v_book *b, vf a)
{
    vm upper;
    __m256i i = v_search(b, a, &upper);
    v_put_bytes(p, v_step(i, upper, 8));
}

static inline __m256i v_place(const struct v_book *b, vf a)
{
    vm upper;
    __m256i i = v_search(b, a, &upper);
    return v_step(i, upper, 8);
}

struct v_seven {
    vf at0, at1, at3;
};

static inline struct v_seven v_seven_of(const float *threshold)
{
    float m[9] = {0};
    for (unsigned i = 0; i < 7; i++)
        m[i] = threshold[i];
    return (struct v_seven){v_load(m), v_load(m + 1), v_set(threshold[3])};
}

static inline __m256i v_count_seven(const struct v_seven *t, vf a)
{
    __m256i i = v_step(_mm256_setzero_si256(), v_ge(a, t->at3), 4);
    i = v_step(i, v_ge(a, _mm256_permutevar8x32_ps(t->at1, i)), 2);
    return v_step(i, v_ge(a, _mm256_permutevar8x32_ps(t->at0, i)), 1);
}

/* Whole numbers ---------------------------------------------------------------------- */

typedef __m256i vi;

static inline vi vi_set(int a) { return _mm256_set1_epi32(a); }
static inline vi vi_load(const unsigned char *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
static inline vi vi_load_signed(const unsigned char *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
static inline vi vi_load_words(const uint32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
static inline void vi_store_words(uint32_t *p, vi a)
{
    _mm256_storeu_si256((__m256i *)(void *)p, a);
}
static inline vi vi_and(vi a, int b) { return _mm256_and_si256(a, vi_set(b)); }
static inline void vi_store(unsigned char *p, vi a) { v_put_bytes(p, vi_and(a, 255)); }
static inline vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
static inline vi vi_add(vi a, int b) { return _mm256_add_epi32(a, vi_set(b)); }
static inline vi vi_min(vi a, int b) { return _mm256_min_epi32(a, vi_set(b)); }
static inline vi vi_max(vi a, int b) { return _mm256_max_epi32(a, vi_set(b)); }
static inline vi vi_shl(vi a, unsigned n) { return _mm256_slli_epi32(a, (int)n); }
static inline vi vi_shr(vi a, unsigned n) { return _mm256_srli_epi32(a, (int)n); }
static inline vi vi_bit(uint32_t word, unsigned first)
{
    const vi lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return vi_and(_mm256_srlv_epi32(vi_set((int)(word >> first)), lane), 1);
}
static inline uint32_t vi_bits16(vi a)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_slli_epi32(a, 27)));
}
static inline vi vi_only(vm m, vi a) { return _mm256_and_si256(_mm256_castps_si256(m), a); }
static inline vi vi_true(vm m) { return vi_only(m, vi_set(1)); }
static inline vi vi_count(vi a, vm m) { return _mm256_sub_epi32(a, _mm256_castps_si256(m)); }
static inline vf v_int(vi a) { return _mm256_cvtepi32_ps(a); }
static inline vi v_round(vf a) { return _mm256_cvtps_epi32(a); }
static inline vi v_trunc(vf a) { return _mm256_cvttps_epi32(a); }
static inline vi v_round_away(vf a)
{
    vf half = _mm256_or_ps(v_set(0.49999997f), _mm256_and_ps(a, v_set(-0.0f)));
    return v_trunc(v_add(a, half));
}
static inline float v_highest(vf a)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}
static inline float v_lowest(vf a) { return -v_highest(v_neg(a)); }
struct v_table {
    vf value[2];
};
static inline struct v_table v_table_of(const float *p)
{
    return (struct v_table){{v_load(p), v_load(p + 8)}};
}
static inline vf v_lookup(const struct v_table *t, vi i)
{
    return v_entry(t->value, i, _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
}
static inline vi vi_sum(vi a, vi b) { return _mm256_add_epi32(a, b); }
/* One float to f16 and back. */
static inline uint16_t v_f16(float a)
{
    return (uint16_t)_cvtss_sh(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline float v_from_f16(uint16_t a) { return _cvtsh_ss(a); }
static inline vi v_as_int(vf a) { return _mm256_castps_si256(a); }
static inline vf v_as_float(vi a) { return _mm256_castsi256_ps(a); }
static inline vm v_negative(vf a) { return v_as_float(_mm256_srai_epi32(v_as_int(a), 31)); }
static inline vi vi_pick(vm m, vi a, vi b) { return _mm256_blendv_epi8(b, a, v_as_int(m)); }

/* Bytes ------------------------------------------------------------------------------ */

static inline vi vh_of(vi a, vi b) { return _mm256_packs_epi32(a, b); }
static inline vi vh_set(int a) { return _mm256_set1_epi16((short)a); }
static inline vi vh_add(vi a, vi b) { return _mm256_adds_epi16(a, b); }
static inline vi vh_limit(vi a, vi lo, vi hi)
{
    return _mm256_min_epi16(_mm256_max_epi16(a, lo), hi);
}
static inline vi vb_set(int a) { return _mm256_set1_epi8((char)a); }
static inline vi vb_load(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
static inline vi vi_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
static inline vi vb_min(vi a, vi b) { return _mm256_min_epu8(a, b); }
static inline vi vb_lookup(const uint8_t table[16], vi a)
{
    __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), a);
}
static inline vi vb_of(vi ab, vi cd)
{
    const vi turn = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(ab, cd), turn);
}
static inline void vb_store(unsigned char *p, vi a, unsigned n)
{
    if (n == 4)
        _mm256_storeu_si256((__m256i *)(void *)p, a);
    else if (n == 2)
        _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(a));
    else
        _mm_storel_epi64((__m128i *)(void *)p, _mm256_castsi256_si128(a));
}

/* Nibbles ---------------------------------------------------------------------------- */

#define NIBBLES 32

static inline void v_join_nibbles(unsigned char *out, const uint8_t *code, bool high)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)code);
    v = _mm256_maddubs_epi16(v, _mm256_set1_epi16(high ? 0x0110 : 0x1001));
    _mm_storeu_si128(
        (__m128i *)(void *)out,
        _mm_packus_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

static inline void v_split_nibbles(uint8_t *code, const unsigned char *in, bool high)
{
    __m256i v = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)in));
    v = high ? _mm256_or_si256(_mm256_srli_epi16(v, 4), _mm256_slli_epi16(v, 8))
             : _mm256_or_si256(v, _mm256_slli_epi16(v, 4));
    _mm256_storeu_si256((__m256i *)(void *)code, _mm256_and_si256(v, _mm256_set1_epi8(15)));
}

#endif
