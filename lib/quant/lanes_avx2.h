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

#endif
