/* SPDX-License-Identifier: Apache-2.0 */
/* attn_mma.h: the forward kernel for one head dimension: included by attn_mma.cu with D (a
 * multiple of 64) and NAME.
 *
 * Four warps have 64 queries, 16 each; keys come 64 (or 32) at a time. K_{j+1} is copied
 * while P·V of j is made, V_j while Q·K of j is. Logits are in base 2; O and the row's
 * maximum and sum stay in registers. Source: Dao, "FlashAttention-2", 2023. */

KERNEL(NAME, tu_kernel_attn, THREADS_MMA)
{
    DYNAMIC_SHARED(memory);
    /* Keys at a time: registers are spent on o. */
    enum { ROW = 2 * D, TILE = BR * ROW, BC = D > 128 ? 32 : 64 };
    unsigned warp = THREAD / WARP, lane = THREAD % WARP;
    unsigned tiles = (unsigned)((a.sq_max + BR - 1) / BR), h = BLOCK_X / tiles;
    unsigned splits = D > 128 ? 1 : a.splits, b = BLOCK_Y / splits;
    uint64_t hkv = h / (a.hq / a.hkv);
    uint64_t i0 = (uint64_t)(tiles - 1 - BLOCK_X % tiles) * BR; /* the longest rows first */
    const struct tu_kernel_seq *s = &a.seq[b];
    if (i0 >= s->sq)
        return;
    bool half = a.q.dtype == TU_F16;
    unsigned char *q = SHARED_PART(unsigned char, memory, 0, TILE);
    unsigned char *k = SHARED_PART(unsigned char, memory, TILE, TILE);
    unsigned char *v = SHARED_PART(unsigned char, memory, 2 * TILE, TILE);
    struct keys r = keys_of(&a, s, i0, BC, splits, BLOCK_Y % splits);
    float acc[D / 8][4], m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
    UNROLL for (unsigned n = 0; n < D / 8; n++)
        acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0;
    ROLLED for (unsigned c = THREAD; c < BR * (D / 8); c += THREADS_MMA)
    {
        unsigned row = c / (D / 8), at = c % (D / 8);
        bool yes = i0 + row < s->sq && at * 8 < a.d;
        copy_async(q + swizzled(row, at, ROW),
                   yes ? q_row(&a.q, s, i0 + row, h) + 16 * at : a.q.data, yes);
    }
    copy_keys(&a, &a.k, s, k, r.lo, hkv, D, BC);
    copies_end();
    for (uint64_t j0 = r.lo; j0 < r.hi; j0 += BC) {
        float x[BC / 8][4];
        copies_wait(0);
        BARRIER(); /* K is here, V free */
        copy_keys(&a, &a.v, s, v, j0, hkv, D, BC);
        copies_end();
        UNROLL for (unsigned n = 0; n < BC / 8; n++)
            x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
        UNROLL for (unsigned t = 0; t < D / 16; t++)
        {
            uint32_t qa[4], kb[4];
            ldmatrix(qa, q + swizzled(warp * 16 + lane % 8 + (lane / 8 & 1) * 8,
                                      2 * t + lane / 16, ROW));
            UNROLL for (unsigned n = 0; n < BC / 16; n++)
            {
                ldmatrix(kb, k + swizzled(n * 16 + lane % 8 + lane / 16 * 8,
                                          2 * t + (lane / 8 & 1), ROW));
                mma(half, x[2 * n], qa, kb);
                mma(half, x[2 * n + 1], qa, kb + 2);
            }
        }
        softmax_step(&a, s, b, h, i0 + warp * 16, j0, r.plain,
                     D <= 192 && has_logits(&a), BC, x, m, l, acc[0], D / 8);
        copies_wait(0);
        BARRIER(); /* V is here, K free */
        if (j0 + BC < r.hi)
            copy_keys(&a, &a.k, s, k, j0 + BC, hkv, D, BC);
        copies_end();
        UNROLL for (unsigned t = 0; t < BC / 16; t++)
        {
            uint32_t vb[4], pa[4] = {pack2(half, x[2 * t][0], x[2 * t][1]),
                                     pack2(half, x[2 * t][2], x[2 * t][3]),
                                     pack2(half, x[2 * t + 1][0], x[2 * t + 1][1]),
                                     pack2(half, x[2 * t + 1][2], x[2 * t + 1][3])};
            UNROLL for (unsigned n = 0; n < D / 16; n++)
            {
                ldmatrix_t(vb, v + swizzled(t * 16 + lane % 8 + (lane / 8 & 1) * 8,
                                            2 * n + lane / 16, ROW));
                mma(half, acc[2 * n], pa, vb);
                mma(half, acc[2 * n + 1], pa, vb + 2);
            }
        }
    }
    copies_wait(0);
    store_rows(&a, s, b, h, i0 + warp * 16, m, l, acc[0], D / 8, splits);
}
#undef D
#undef NAME
