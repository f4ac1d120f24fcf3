/* SPDX-License-Identifier: Apache-2.0 */
/* tile_amx.c: tile kernels whose products run on AMX in bf16, the rest on AVX-512 in f32.
 *
 * A: bf16 rows. B: panels of 16 columns; a panel is rows of 64 bytes, row p holding the
 * pairs (2p, 2p+1) of each column (the layout TDPBF16PS reads). Four accumulators, two
 * tiles of A and two of B use all eight tiles. The permission to use them was asked for
 * by tu_cpu_detect. */
#include "attn/tile.h"

#if defined __x86_64__ && !defined TU_NO_X86
#include "attn/simd_avx512.h"
#define BESIDE_PRODUCTS
#include "attn/tile_body.h"

/* All eight tiles: 16 rows of 64 bytes. A constant, because compilers take the
 * instruction for a reader of the first eight bytes only. */
static const struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} config = {.palette = 1,
            .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
            .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

static void begin(void)
{
    _tile_loadconfig(&config);
}

static void end(void)
{
    _tile_release();
}

static __m512i bf16_pair(__m512 low, __m512 high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* 32 floats of a row as bf16, zeros past n. */
static inline __m512i load32(const float *p, size_t n)
{
    __mmask32 m = n >= 32 ? 0xffffffff : (__mmask32)((1u << n) - 1);
    return bf16_pair(_mm512_maskz_loadu_ps((__mmask16)m, p),
                     _mm512_maskz_loadu_ps((__mmask16)(m >> 16), p + 16));
}

static void pack_a(void *va, size_t lda, const float *src, size_t ld, size_t m, size_t k)
{
    uint16_t *a = va;
    size_t rows = tui_pad(m, 32);
    for (size_t i = 0; i < rows; i++)
        for (size_t t = 0; t < tui_pad(k, 32); t += 32)
            _mm512_storeu_si512(a + i * lda + t, i < m ? load32(src + i * ld + t, k - t)
                                                       : _mm512_setzero_si512());
}

/* Two rows of the source make one row of pairs. */
static void pack_pairs(void *vb, const float *src, size_t ld, size_t k, size_t n)
{
    uint16_t *b = vb;
    size_t kp = tui_pad(k, 32), np = tui_pad(n, 32);
    const __m512i zip =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                         7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (size_t c = 0; c < np; c += 16) {
        size_t w = c < n ? n - c : 0;
        __mmask16 m = w >= 16 ? 0xffff : (__mmask16)((1u << w) - 1);
        for (size_t t = 0; t < kp; t += 2, b += 32) {
            __m512 x =
                t < k ? _mm512_maskz_loadu_ps(m, src + t * ld + c) : _mm512_setzero_ps();
            __m512 y = t + 1 < k ? _mm512_maskz_loadu_ps(m, src + (t + 1) * ld + c)
                                 : _mm512_setzero_ps();
            _mm512_storeu_si512(b, _mm512_permutexvar_epi16(zip, bf16_pair(x, y)));
        }
    }
}

/* Rows of n are columns of B: pairs are neighbours in a row, so words are transposed. */
static void pack_turned(void *vb, const float *src, size_t ld, size_t n, size_t k)
{
    uint16_t *b = vb;
    size_t kp = tui_pad(k, 32), np = tui_pad(n, 32);
    uint16_t block[16 * 32];
    for (size_t c = 0; c < np; c += 16)
        for (size_t t = 0; t < kp; t += 32) {
            for (size_t i = 0; i < 16; i++)
                _mm512_storeu_si512(block + 32 * i,
                                    c + i < n && t < k
                                        ? load32(src + (c + i) * ld + t, k - t)
                                        : _mm512_setzero_si512());
            transpose16(b + c * kp + t * 16, 16, block, 16);
        }
}

/* 32×32 of C. The B panels of its two halves are k·16 elements apart. */
static inline void block(float *c, size_t ldc, const uint16_t *a, size_t lda,
                         const uint16_t *b, size_t k, bool add, const char *next)
{
    if (add) {
        _tile_loadd(0, c, 4 * ldc);
        _tile_loadd(1, c + 16, 4 * ldc);
        _tile_loadd(2, c + 16 * ldc, 4 * ldc);
        _tile_loadd(3, c + 16 * ldc + 16, 4 * ldc);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t t = 0; t < k; t += 32) {
        _tile_loadd(4, a + t, 2 * lda);
        _tile_loadd(6, b + t * 16, 64);
        _tile_loadd(7, b + k * 16 + t * 16, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 16 * lda + t, 2 * lda);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        for (unsigned i = 0; i < 16;
             i++) /* half of what these 32 steps of the next panels are */
            _mm_prefetch(next + t * 32 + i * 64, _MM_HINT_T0);
    }
    _tile_stored(0, c, 4 * ldc);
    _tile_stored(1, c + 16, 4 * ldc);
    _tile_stored(2, c + 16 * ldc, 4 * ldc);
    _tile_stored(3, c + 16 * ldc + 16, 4 * ldc);
}

static void product(float *c, size_t ldc, const void *va, size_t lda, const void *vb,
                    size_t m, size_t n, size_t k, bool add)
{
    const uint16_t *a = va, *b = vb;
    k = tui_pad(k, 32);
    for (size_t j = 0; j < n; j += 32)
        for (size_t i = 0; i < m; i += 32) {
            /* Meanwhile the panels that come next: a half with each block of rows. */
            const uint16_t *next = b + (j + 32) * k + (i / 32 % 2) * 16 * k;
            block(c + i * ldc + j, ldc, a + i * lda, lda, b + j * k, k, add,
                  (const char *)(const void *)next);
        }
}

/* 2^x for a result that becomes bf16: VREDUCEPS leaves x - floor(x), and VSCALEFPS
 * multiplies by 2^floor(x). -inf gives 0, NaN stays. */
static inline __m512 exp2_short(__m512 x)
{
    static const float c[] = {EXP2_4_UP};
    __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF), p = _mm512_set1_ps(c[4]);
    for (int i = 3; i >= 0; i--)
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(c[i]));
    return _mm512_scalef_ps(p, x);
}

enum { TOGETHER = 4 }; /* rows whose reductions overlap */

/* The greatest of each of a few rows. */
static inline void tops(const struct tui_softmax *x, size_t r, float *top)
{
    __m512 t[TOGETHER];
    const float *s = x->s + r * x->ld;
    UNROLL for (unsigned i = 0; i < TOGETHER; i++) t[i] = _mm512_loadu_ps(s + i * x->ld);
    for (size_t j = 16; j < x->n; j += 16)
        UNROLL for (unsigned i = 0; i < TOGETHER; i++) t[i] =
            _mm512_max_ps(_mm512_loadu_ps(s + i * x->ld + j), t[i]);
    UNROLL for (unsigned i = 0; i < TOGETHER; i++) top[i] = _mm512_reduce_max_ps(t[i]);
}

/* Exponentials of a few rows into bf16; the sums are of what is not rounded. */
static inline void powers(const struct tui_softmax *x, size_t r, const float *base,
                          float *sum)
{
    __m512 mul = _mm512_set1_ps(x->mul), minus[TOGETHER], total[TOGETHER];
    UNROLL for (unsigned i = 0; i < TOGETHER; i++)
    {
        minus[i] = _mm512_set1_ps(-base[i]);
        total[i] = _mm512_setzero_ps();
    }
    for (size_t j = 0; j < x->n; j += 32)
        UNROLL for (unsigned i = 0; i < TOGETHER; i++)
        {
            const float *s = x->s + (r + i) * x->ld + j;
            __m512 a = exp2_short(_mm512_fmadd_ps(_mm512_loadu_ps(s), mul, minus[i]));
            __m512 b =
                exp2_short(_mm512_fmadd_ps(_mm512_loadu_ps(s + 16), mul, minus[i]));
            total[i] = _mm512_add_ps(total[i], _mm512_add_ps(a, b));
            _mm512_storeu_si512((uint16_t *)x->p + (r + i) * x->ldp + j, bf16_pair(a, b));
        }
    UNROLL for (unsigned i = 0; i < TOGETHER; i++) sum[i] =
        _mm512_reduce_add_ps(total[i]);
}

/* As in tile_body.h. Rows are padded to a multiple of TOGETHER: what is in the padding of
 * s is computed and belongs to nobody. */
static void softmax_bf16(const struct tui_softmax *x)
{
    float top[TOGETHER], base[TOGETHER], sum[TOGETHER];
    for (size_t r = 0; r < x->m; r += TOGETHER) {
        size_t n = x->m - r < TOGETHER ? x->m - r : TOGETHER;
        tops(x, r, top);
        for (size_t i = 0; i < TOGETHER; i++) {
            float old = i < n ? x->c[r + i] : -INFINITY, now = top[i] * x->mul;
            now = now > old ? now : old;
            base[i] = now == -INFINITY ? 0 : now;
            if (i >= n)
                continue;
            x->alpha[r + i] = old == now         ? 1
                              : old == -INFINITY ? 0
                                                 : exp2f(old - base[i]);
            x->c[r + i] = now;
        }
        powers(x, r, base, sum);
        for (size_t i = 0; i < n; i++)
            x->l[r + i] = x->l[r + i] * x->alpha[r + i] + sum[i];
    }
}

static double peak(unsigned n, float *sink)
{
    uint16_t mem[32 * 32] = {0};
    float out[256];
    mem[0] = 0x3f80; /* 1 */
    _tile_loadd(4, mem, 64);
    _tile_loadd(5, mem, 64);
    _tile_loadd(6, mem, 64);
    _tile_loadd(7, mem, 64);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (unsigned r = 0; r < n; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out, 64);
    *sink += out[0];
    return 4.0 * 2 * 16 * 16 * 32 * n;
}

const struct tui_ops tui_ops_amx = {
    .name = "amx",
    .elem = 2,
    .mpad = 32,
    .npad = 32,
    .kpad = 32,
    .tile_q = 128,
    .tile_k = 256,
    .begin = begin,
    .end = end,
    .pack_a = pack_a,
    .pack_b = pack_pairs,
    .pack_bt = pack_turned,
    .gemm = product,
    .softmax = softmax_bf16,
    .rescale = rescale,
    .grad = grad,
    .dots = dots,
    .sums = sums,
    .finite = finite,
    .decay = decay,
    .gate_rows = gate_rows,
    .gate_columns = gate_columns,
    .weigh = weigh,
    .turn = TURN,
    .peak = peak,
    .peak_exp = peak_exp,
};
#endif
