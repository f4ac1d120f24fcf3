/* SPDX-License-Identifier: Apache-2.0 */
/* lanes_avx512.h: sixteen floats at once. The names are those of lanes_avx2.h: kernels
 * that keep a block per lane are written once over either. Every operation rounds
 * once. */
#ifndef TENSORUTILS_QUANT_LANES_H
#define TENSORUTILS_QUANT_LANES_H

#include <immintrin.h>
#include <stdint.h>

#define LANES 16
#define LANES_FN(name) name##_avx512

typedef __m512 vf;
typedef __mmask16 vm; /* one truth value per lane */

static inline vf v_set(float a) { return _mm512_set1_ps(a); }
static inline vf v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
static inline vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
/* a·b + c and c - a·b, rounded once. */
static inline vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf v_nfma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
static inline vf v_sqrt(vf a) { return _mm512_sqrt_ps(a); }
static inline vf v_abs(vf a) { return _mm512_abs_ps(a); }
static inline vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf v_neg(vf a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
/* a > b, false for NaN. */
static inline vm v_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
static inline vm v_ge(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
static inline vm v_ne(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); }
static inline vm v_both(vm a, vm b) { return a & b; }
static inline bool v_any(vm a) { return a != 0; }
/* m ? a : b */
static inline vf v_pick(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }

/* Round half to even and limit, as tui_nint and tui_clamp: the sum's low 23 bits are the
 * result, put under the exponent of 2^23 again so that all stays in floats. */
static inline vf v_code(vf a, float lo, float hi)
{
    __m512i t = _mm512_castps_si512(_mm512_add_ps(a, _mm512_set1_ps(12582912.0f)));
    t = _mm512_ternarylogic_epi32(t, _mm512_set1_epi32(0x007fffff), _mm512_set1_epi32(0x4b000000),
                                  0xea); /* (t & b) | c */
    vf y = _mm512_max_ps(_mm512_castsi512_ps(t), _mm512_set1_ps(12582912.0f + lo));
    y = _mm512_min_ps(y, _mm512_set1_ps(12582912.0f + hi));
    return _mm512_sub_ps(y, _mm512_set1_ps(12582912.0f));
}

/* Whole numbers of 0 … 255 to bytes. */
static inline void v_bytes(unsigned char *p, vf a)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(a)));
}

/* out[i] lane k = element i of row k; rows are `stride` floats apart. */
static inline void v_transpose(const float *in, size_t stride, float *out)
{
    __m512 r[16], t[16];
    for (unsigned i = 0; i < 16; i += 2) {
        __m512 a = _mm512_loadu_ps(in + i * stride), b = _mm512_loadu_ps(in + (i + 1) * stride);
        r[i] = _mm512_unpacklo_ps(a, b);
        r[i + 1] = _mm512_unpackhi_ps(a, b);
    }
    for (unsigned i = 0; i < 16; i++) {
        unsigned k = i & ~3u;
        __m512d a = _mm512_castps_pd(r[k + (i >> 1 & 1)]);
        __m512d b = _mm512_castps_pd(r[k + 2 + (i >> 1 & 1)]);
        t[i] = _mm512_castpd_ps(i & 1 ? _mm512_unpackhi_pd(a, b) : _mm512_unpacklo_pd(a, b));
    }
    for (unsigned j = 0; j < 4; j++) {
        __m512 a = _mm512_shuffle_f32x4(t[j], t[4 + j], 0x88);
        __m512 b = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0x88);
        __m512 c = _mm512_shuffle_f32x4(t[j], t[4 + j], 0xdd);
        __m512 d = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0xdd);
        v_store(out + 16 * j, _mm512_shuffle_f32x4(a, b, 0x88));
        v_store(out + 16 * (4 + j), _mm512_shuffle_f32x4(c, d, 0x88));
        v_store(out + 16 * (8 + j), _mm512_shuffle_f32x4(a, b, 0xdd));
        v_store(out + 16 * (12 + j), _mm512_shuffle_f32x4(c, d, 0xdd));
    }
}

/* A sorted book of 16 values with the 15 middles between them. */
struct v_book {
    vf value, at0, at1, at3; /* middles, moved down by 0, 1, 3 */
    float middle;
};

static inline struct v_book v_book_of(const float *value, const float *middle)
{
    float m[20] = {0};
    for (unsigned i = 0; i < 15; i++)
        m[i] = middle[i];
    return (struct v_book){v_load(value), v_load(m), v_load(m + 1), v_load(m + 3), middle[7]};
}

/* How many middles are at or under a. */
static inline __m512i v_search(const struct v_book *b, vf a)
{
    __m512i i = _mm512_maskz_set1_epi32(v_ge(a, v_set(b->middle)), 8);
    i = _mm512_mask_add_epi32(i, v_ge(a, _mm512_permutexvar_ps(i, b->at3)), i,
                              _mm512_set1_epi32(4));
    i = _mm512_mask_add_epi32(i, v_ge(a, _mm512_permutexvar_ps(i, b->at1)), i,
                              _mm512_set1_epi32(2));
    return _mm512_mask_add_epi32(i, v_ge(a, _mm512_permutexvar_ps(i, b->at0)), i,
                                 _mm512_set1_epi32(1));
}

static inline vf v_nearest(const struct v_book *b, vf a)
{
    return _mm512_permutexvar_ps(v_search(b, a), b->value);
}

/* Indices of the nearest values as bytes. */
static inline void v_nearest_bytes(unsigned char *p, const struct v_book *b, vf a)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(v_search(b, a)));
}

/* The same as whole numbers. */
static inline __m512i v_place(const struct v_book *b, vf a) { return v_search(b, a); }

/* Seven thresholds, and how many of them are at or under a. */
struct v_seven {
    vf at0, at1, at3; /* moved down by 0, 1; the middle one everywhere */
};

static inline struct v_seven v_seven_of(const float *threshold)
{
    float m[24] = {0};
    for (unsigned i = 0; i < 7; i++)
        m[i] = threshold[i];
    return (struct v_seven){v_load(m), v_load(m + 1), v_set(threshold[3])};
}

static inline __m512i v_count_seven(const struct v_seven *t, vf a)
{
    __m512i i = _mm512_maskz_set1_epi32(v_ge(a, t->at3), 4);
    i = _mm512_mask_add_epi32(i, v_ge(a, _mm512_permutexvar_ps(i, t->at1)), i,
                              _mm512_set1_epi32(2));
    return _mm512_mask_add_epi32(i, v_ge(a, _mm512_permutexvar_ps(i, t->at0)), i,
                                 _mm512_set1_epi32(1));
}

/* Whole numbers ---------------------------------------------------------------------- */

typedef __m512i vi;

static inline vi vi_set(int a) { return _mm512_set1_epi32(a); }
/* LANES bytes, without and with sign. */
static inline vi vi_load(const unsigned char *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline vi vi_load_signed(const unsigned char *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
/* Low bytes. */
static inline void vi_store(unsigned char *p, vi a)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(a));
}
static inline vi vi_load_words(const uint32_t *p) { return _mm512_loadu_si512(p); }
static inline void vi_store_words(uint32_t *p, vi a) { _mm512_storeu_si512(p, a); }
static inline vi vi_and(vi a, int b) { return _mm512_and_si512(a, vi_set(b)); }
static inline vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
static inline vi vi_add(vi a, int b) { return _mm512_add_epi32(a, vi_set(b)); }
static inline vi vi_min(vi a, int b) { return _mm512_min_epi32(a, vi_set(b)); }
static inline vi vi_max(vi a, int b) { return _mm512_max_epi32(a, vi_set(b)); }
static inline vi vi_shl(vi a, unsigned n) { return _mm512_slli_epi32(a, n); }
static inline vi vi_shr(vi a, unsigned n) { return _mm512_srli_epi32(a, n); }
/* Bit `first` + lane of a word. */
static inline vi vi_bit(uint32_t word, unsigned first)
{
    const vi lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return vi_and(_mm512_srlv_epi32(vi_set((int)(word >> first)), lane), 1);
}
/* A bit per lane: the lanes whose bit 4 is set. */
static inline uint32_t vi_bits16(vi a) { return _mm512_test_epi32_mask(a, vi_set(16)); }
/* 1 where true. */
static inline vi vi_true(vm m) { return _mm512_maskz_set1_epi32(m, 1); }
static inline vi vi_count(vi a, vm m) { return _mm512_mask_add_epi32(a, m, a, vi_set(1)); }
static inline vi vi_only(vm m, vi a) { return _mm512_maskz_mov_epi32(m, a); }
static inline vf v_int(vi a) { return _mm512_cvtepi32_ps(a); }
/* To the nearest, half to even, and toward zero. */
static inline vi v_round(vf a) { return _mm512_cvtps_epi32(a); }
static inline vi v_trunc(vf a) { return _mm512_cvttps_epi32(a); }
/* Half away from zero: C's roundf. */
static inline vi v_round_away(vf a)
{
    vf half = _mm512_or_ps(v_set(0.49999997f), _mm512_and_ps(a, v_set(-0.0f)));
    return v_trunc(v_add(a, half));
}
static inline float v_highest(vf a) { return _mm512_reduce_max_ps(a); }
static inline float v_lowest(vf a) { return _mm512_reduce_min_ps(a); }
/* Sixteen floats by number. */
struct v_table {
    vf value;
};
static inline struct v_table v_table_of(const float *p) { return (struct v_table){v_load(p)}; }
static inline vf v_lookup(const struct v_table *t, vi i)
{
    return _mm512_permutexvar_ps(i, t->value);
}
static inline vi vi_sum(vi a, vi b) { return _mm512_add_epi32(a, b); }
/* One float to f16 and back. */
static inline uint16_t v_f16(float a)
{
    return (uint16_t)_cvtss_sh(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline float v_from_f16(uint16_t a) { return _cvtsh_ss(a); }
static inline vi v_as_int(vf a) { return _mm512_castps_si512(a); }
static inline vf v_as_float(vi a) { return _mm512_castsi512_ps(a); }
/* Sign bit set. */
static inline vm v_negative(vf a) { return _mm512_movepi32_mask(v_as_int(a)); }
static inline vi vi_pick(vm m, vi a, vi b) { return _mm512_mask_blend_epi32(m, b, a); }

/* Bytes ------------------------------------------------------------------------------ */

/* Whole numbers as 16 bits, saturated: those of a and of b, in the order of vb_of(). */
static inline vi vh_of(vi a, vi b) { return _mm512_packs_epi32(a, b); }
static inline vi vh_set(int a) { return _mm512_set1_epi16((short)a); }
static inline vi vh_add(vi a, vi b) { return _mm512_adds_epi16(a, b); }
static inline vi vh_limit(vi a, vi lo, vi hi)
{
    return _mm512_min_epi16(_mm512_max_epi16(a, lo), hi);
}
static inline vi vb_set(int a) { return _mm512_set1_epi8((char)a); }
static inline vi vb_load(const unsigned char *p)
{
    return _mm512_loadu_si512(p);
}
static inline vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
static inline vi vb_min(vi a, vi b) { return _mm512_min_epu8(a, b); }
/* Bytes below 16 become what stands in their place. */
static inline vi vb_lookup(const uint8_t table[16], vi a)
{
    __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), a);
}
/* 4·LANES bytes, saturated, in the order of the numbers in vh_of(0, 1) and vh_of(2, 3). */
static inline vi vb_of(vi ab, vi cd)
{
    const vi turn = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    return _mm512_permutexvar_epi32(turn, _mm512_packus_epi16(ab, cd));
}
/* The first n·LANES of them; n is 1, 2 or 4. */
static inline void vb_store(unsigned char *p, vi a, unsigned n)
{
    if (n == 4)
        _mm512_storeu_si512(p, a);
    else if (n == 2)
        _mm256_storeu_si256((__m256i *)(void *)p, _mm512_castsi512_si256(a));
    else
        _mm_storeu_si128((__m128i *)(void *)p, _mm512_castsi512_si128(a));
}

/* Nibbles ---------------------------------------------------------------------------- */

#define NIBBLES 64 /* at once */

/* Of a pair of codes the first low, or high. */
static inline void v_join_nibbles(unsigned char *out, const uint8_t *code, bool high)
{
    __m512i pair = _mm512_maddubs_epi16(_mm512_loadu_si512(code),
                                        _mm512_set1_epi16(high ? 0x0110 : 0x1001));
    _mm256_storeu_si256((__m256i *)(void *)out, _mm512_cvtepi16_epi8(pair));
}

static inline void v_split_nibbles(uint8_t *code, const unsigned char *in, bool high)
{
    __m512i v = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)in));
    v = high ? _mm512_or_si512(_mm512_srli_epi16(v, 4), _mm512_slli_epi16(v, 8))
             : _mm512_or_si512(v, _mm512_slli_epi16(v, 4));
    _mm512_storeu_si512(code, _mm512_and_si512(v, _mm512_set1_epi8(15)));
}

#endif
