/* SPDX-License-Identifier: Apache-2.0 */
/* attn_mma.cu: softmax attention on the tensor cores of sm_80 and later: forward, bf16 and
 * f16, head dimensions up to 256 in steps of 8 (computed as the next of 64, 128, 192, 256),
 * every mask, softcap, biases, sinks, grouped heads, packed sequences, pages.
 *
 * On sm_90 this is not the fastest there can be: no wgmma. The fragment maps are mma.h's. */
#include "attn.h"
#include "mma.h"

enum { BR = 64, BC_MOST = 64, THREADS_MMA = 128 };
#define LOG2E 1.44269504f
#define LN2   0.69314718f

/* Keys that any of the tile's queries may see, from a multiple of bc on; plain: causality and
 * windows are all that hides keys, so tiles between them need no question. */
struct keys {
    uint64_t lo, hi;
    bool plain;
};

/* The tiles of one of n splits. */
DEVICE struct keys part_of(struct keys r, unsigned bc, unsigned n, unsigned split)
{
    uint32_t tiles = r.hi > r.lo ? (uint32_t)((r.hi - r.lo + bc - 1) / bc) : 0;
    uint64_t each = (uint64_t)((tiles + n - 1) / n) * bc;
    if (n == 1)
        return r;
    r.lo += split * each;
    if (r.lo + each < r.hi)
        r.hi = r.lo + each;
    return r;
}

DEVICE struct keys keys_of(const struct tu_kernel_attn *a, const struct tu_kernel_seq *s,
                           uint64_t i0, unsigned bc, unsigned splits,
                           unsigned split)
{
    struct keys r = {0, s->sk, false};
    int64_t first = (int64_t)i0 + s->off, last = first + BR - 1;
    r.plain = !a->chunk && !a->blocks && !a->mask && !a->docs && !a->sink_tokens && !s->prefix &&
              !a->bias && !a->slopes && a->softcap == 0;
    if (a->chunk || s->prefix)
        return part_of(r, bc, splits, split);
    int64_t hi = a->causal != CAUSAL_NONE ? last + 1 : (int64_t)s->sk;
    if (a->right >= 0 && last + a->right + 1 < hi)
        hi = last + a->right + 1;
    int64_t lo = a->left >= 0 && !a->sink_tokens ? first - a->left : 0;
    r.hi = hi < 0 ? 0 : hi < (int64_t)s->sk ? (uint64_t)hi : s->sk;
    r.lo = lo < 0 ? 0 : (uint64_t)lo / bc * bc;
    return part_of(r, bc, splits, split);
}

/* Rows of keys or values j0 … j0+bc-1 to shared memory; zeros behind the end. */
DEVICE void copy_keys(const struct tu_kernel_attn *a, const struct tu_kernel_rows *rows,
                      const struct tu_kernel_seq *s, unsigned char *to, uint64_t j0,
                      uint64_t hkv, unsigned dim, unsigned bc)
{
    ROLLED for (unsigned c = THREAD; c < bc * (dim / 8); c += THREADS_MMA)
    {
        unsigned row = c / (dim / 8), at = c % (dim / 8);
        bool yes = j0 + row < s->sk && at * 8 < a->d;
        copy_async(to + swizzled(row, at, 2 * dim),
                   yes ? k_row(a, rows, s, j0 + row, hkv) + 16 * at : rows->data, yes);
    }
}

/* Bit 4t + e: the lane's element e of columns 8t … sees its key. */
DEVICE uint32_t visible(const struct tu_kernel_attn *a, const struct tu_kernel_seq *s,
                        uint64_t b, uint64_t h, uint64_t i, uint64_t j0, unsigned bc)
{
    uint32_t bits = 0;
    ROLLED for (unsigned n = 0; n < 4 * (bc / 8); n++)
    {
        uint64_t row = i + c_row(THREAD % WARP, n % 4);
        uint64_t j = j0 + n / 4 * 8 + c_col(THREAD % WARP, n % 4);
        bits |= (uint32_t)(j < s->sk && row < s->sq && sees(a, s, b, h, row, j)) << n;
    }
    return bits;
}

/* Do all 16 rows from i on see all keys of the tile at j0? */
DEVICE bool sees_all(const struct tu_kernel_attn *a, const struct tu_kernel_seq *s, uint64_t i,
                     uint64_t j0, unsigned bc)
{
    int64_t first = (int64_t)i + s->off, last = first + 15;
    int64_t k0 = (int64_t)j0, k1 = k0 + bc - 1;
    return j0 + bc <= s->sk && i + 16 <= s->sq && (a->causal == CAUSAL_NONE || k1 <= first) &&
           (a->right < 0 || k1 <= first + a->right) && (a->left < 0 || k0 >= last - a->left);
}

/* Is there more to a logit than q·k, or to P than its exponential? */
static inline
#ifdef __CUDACC__
    __host__ __device__
#endif
    bool
    has_logits(const struct tu_kernel_attn *a)
{
    return a->bias || a->slopes || a->softcap > 0 || a->dropout > 0;
}

/* Logits x of a warp's 16 rows to P, the sums so far brought to the new maximum. acc is
 * [n][4]. */
DEVICE void softmax_step(const struct tu_kernel_attn *a, const struct tu_kernel_seq *s,
                         uint64_t b, uint64_t h, uint64_t i, uint64_t j0, bool plain,
                         bool more, unsigned bc, float (*x)[4], float m[2], float l[2],
                         float *acc, unsigned n)
{
    unsigned lane = THREAD % WARP;
    float top[2] = {m[0], m[1]}, alpha[2], base[2];
    uint32_t seen = plain && sees_all(a, s, i, j0, bc)
                        ? ~0u
                        : visible(a, s, b, h, i, j0, bc);
    UNROLL for (unsigned t = 0; t < bc / 8; t++)
        UNROLL for (unsigned e = 0; e < 4; e++)
        {
            float slow, v = x[t][e] * a->scale;
            if (more && (seen >> (4 * t + e) & 1))
                v = logit(a, s, b, h, i + c_row(lane, e), j0 + t * 8 + c_col(lane, e), v,
                          &slow);
            x[t][e] = seen >> (4 * t + e) & 1 ? v * LOG2E : -INFINITY;
            top[e / 2] = max_f32(x[t][e], top[e / 2]);
        }
    UNROLL for (unsigned r = 0; r < 2; r++)
    {
        top[r] = max_f32(top[r], xor_f32(top[r], 1));
        top[r] = max_f32(top[r], xor_f32(top[r], 2));
        base[r] = top[r] == -INFINITY ? 0 : top[r];
        alpha[r] = fast_exp2(m[r] - base[r]);
        m[r] = top[r];
        l[r] *= alpha[r];
    }
    UNROLL for (unsigned t = 0; t < bc / 8; t++)
        UNROLL for (unsigned e = 0; e < 4; e++)
        {
            float p = fast_exp2(x[t][e] - base[e / 2]);
            l[e / 2] += p;
            x[t][e] = !more || a->dropout == 0 ? p
                                      : p * keep(a, b, h, i + c_row(lane, e),
                                                 j0 + t * 8 + c_col(lane, e));
        }
    UNROLL for (unsigned t = 0; t < n; t++)
        UNROLL for (unsigned e = 0; e < 4; e++)
            acc[4 * t + e] *= alpha[e / 2];
}

/* A row of the partial results: split, head, query. */
DEVICE uint64_t part_row(const struct tu_kernel_attn *a, uint64_t split, uint64_t b, uint64_t h,
                         uint64_t i)
{
    return ((split * a->batch + b) * a->hq + h) * a->sq_max + i;
}

/* o and lse of a warp's 16 rows; sinks join here, of splits when they are merged. */
DEVICE void store_rows(const struct tu_kernel_attn *a, const struct tu_kernel_seq *s,
                       uint64_t b, uint64_t h, uint64_t i, const float m[2], float l[2],
                       const float *acc, unsigned n, unsigned splits)
{
    unsigned lane = THREAD % WARP;
    UNROLL for (unsigned r = 0; r < 2; r++)
    {
        uint64_t row = i + c_row(lane, 2 * r);
        float sum = l[r] + xor_f32(l[r], 1), top = m[r], f = 1;
        sum += xor_f32(sum, 2);
        if (a->sinks && splits == 1) {
            float sink = a->sinks[h] * LOG2E, both = max_f32(top, sink);
            f = top == -INFINITY ? 0 : fast_exp2(top - both);
            sum = sum * f + fast_exp2(sink - both);
            top = both;
        }
        if (row >= s->sq)
            continue;
        bool whole = splits == 1;
        uint64_t at = part_row(a, BLOCK_Y % splits, b, h, row);
        unsigned char *o = whole ? q_row(&a->o, s, row, h)
                                 : (unsigned char *)(a->o_part + at * a->dv);
        f = sum == 0 ? 0 : f / sum;
        UNROLL for (unsigned t = 0; t < n; t++)
            UNROLL for (unsigned e = 0; e < 2; e++)
                if (t * 8 + c_col(lane, e) < a->dv)
                    store_float(whole ? a->o.dtype : (uint32_t)TU_F32, o, t * 8 + c_col(lane, e),
                                acc[4 * t + 2 * r + e] * f);
        float lse = sum == 0 ? -INFINITY : top * LN2 + logf(sum);
        if (lane % 4 == 0 && !whole)
            a->lse_part[at] = lse;
        else if (lane % 4 == 0 && a->lse)
            a->lse[lse_of(a, s, row, h)] = lse;
    }
}

/* Partial results of a row to one, a warp each: weights exp(lse - the largest), in the order
 * of the splits; the sink is one more weight without a value. */
KERNEL(attn_merge, tu_kernel_attn, THREADS_MMA)
{
    uint64_t rows = a.batch * a.hq * a.sq_max;
    for (uint64_t r = first_of_warp(); r < rows; r += warps_of_grid()) {
        uint64_t i = r % a.sq_max, h = r / a.sq_max % a.hq, b = r / a.sq_max / a.hq;
        const struct tu_kernel_seq *s = &a.seq[b];
        if (i >= s->sq)
            continue;
        float top = a.sinks ? a.sinks[h] : -INFINITY;
        for (unsigned z = 0; z < a.splits; z++)
            top = max_f32(a.lse_part[part_row(&a, z, b, h, i)], top);
        float base = top == -INFINITY ? 0 : top, sum = a.sinks ? expf(a.sinks[h] - base) : 0;
        for (unsigned z = 0; z < a.splits; z++)
            sum += expf(a.lse_part[part_row(&a, z, b, h, i)] - base);
        for (uint64_t t = THREAD % WARP; t < a.dv; t += WARP) {
            float v = 0;
            for (unsigned z = 0; z < a.splits; z++) {
                uint64_t at = part_row(&a, z, b, h, i);
                v += expf(a.lse_part[at] - base) * a.o_part[at * a.dv + t];
            }
            store_float(a.o.dtype, q_row(&a.o, s, i, h), t, sum == 0 ? 0 : v / sum);
        }
        if (THREAD % WARP == 0 && a.lse)
            a.lse[lse_of(&a, s, i, h)] = sum == 0 ? -INFINITY : base + logf(sum);
    }
}

#define D 64
#define NAME attn_mma_64
#include "attn_mma.h"
#define D 128
#define NAME attn_mma_128
#include "attn_mma.h"
#define D 192
#define NAME attn_mma_192
#include "attn_mma.h"
#define D 256
#define NAME attn_mma_256
#include "attn_mma.h"

static bool aligned(const struct tu_kernel_rows *r)
{
    return (uintptr_t)r->data % 16 == 0 && r->batch % 8 == 0 && r->token % 8 == 0 &&
           r->head % 8 == 0;
}

static int fits(const struct tu_kernel_attn *a, struct tu_err *err)
{
    if ((a->q.dtype != TU_BF16 && a->q.dtype != TU_F16) || a->k.dtype != a->q.dtype ||
        a->v.dtype != a->q.dtype)
        return tui_fail(err, TU_EUNSUP, "tensor cores take bf16 and f16 here");
    if (a->d != a->dv || a->d % 8 || a->d > 256)
        return tui_fail(err, TU_EUNSUP,
                        "tensor cores: head dimension is no multiple of 8 up to 256");
    if (!aligned(&a->q) || !aligned(&a->k) || !aligned(&a->v))
        return tui_fail(err, TU_EUNSUP, "tensor cores: rows do not begin at 16 bytes");
    if (a->q_scale || a->k_scale || a->v_scale)
        return tui_fail(err, TU_EUNSUP, "tensor cores: scales of q, k, v");
    if (!a->splits || (a->splits > 1 && (!a->o_part || !a->lse_part)))
        return tui_fail(err, TU_EBUG, "attn.forward.mma: no room for splits");
    if (a->sq_max > INT32_MAX || a->sk_max > INT32_MAX || a->chunk > INT32_MAX ||
        a->page > INT32_MAX)
        return tui_fail(err, TU_EUNSUP, "positions of more than 31 bits");
    if (a->d > 192 && has_logits(a))
        return tui_fail(err, TU_EUNSUP,
                        "tensor cores: biases, caps, dropout above 192 dimensions");
    if (a->splits > 1 && a->d > 128) /* registers are spent on o */
        return tui_fail(err, TU_EUNSUP, "tensor cores: splits of head dimensions above 128");
    if (a->batch * a->splits > 65535 || (a->sq_max / BR + 1) * a->hq > 2147483647u)
        return tui_fail(err, TU_EUNSUP, "more rows than a grid has blocks");
    return 0;
}

#define RUN(dim)                                                                          \
    LAUNCH(attn_mma_##dim, (a->sq_max + BR - 1) / BR * a->hq, a->batch * a->splits,        \
           THREADS_MMA,                                                                   \
           (size_t)(BR + 2 * BC_MOST) * 2 * dim, a, q, err)

static int launch_forward(const void *args, struct tu_queue *q, struct tu_err *err)
{
    const struct tu_kernel_attn *a = (const struct tu_kernel_attn *)args;
    int code = fits(a, err);
    if (code || !a->batch || !a->sq_max)
        return code;
    code = a->d <= 64 ? RUN(64) : a->d <= 128 ? RUN(128) : a->d <= 192 ? RUN(192) : RUN(256);
    if (code || a->splits == 1)
        return code;
    return LAUNCH(attn_merge, tui_blocks(a->batch * a->hq * a->sq_max, THREADS_MMA / WARP), 1,
                  THREADS_MMA, 0, a, q, err);
}

const struct tui_kernel tui_kernels_attn_mma[] = {{"attn.forward.mma", launch_forward},
                                                  {NULL, NULL}};
