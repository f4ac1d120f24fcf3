/* SPDX-License-Identifier: Apache-2.0 */
/* mma.h: the instructions of sm_80's tensor cores in the language of kernels, and where each
 * lane's elements are.
 *
 * mma.sync.m16n8k16: with g = lane / 4, t = lane % 4, register r of A holds the pair at row
 * g + 8·(r & 1), columns 2t + 8·(r / 2) and the next; register r of B the pair at rows
 * 2t + 8r, column g; element e of C is at row g + 8·(e / 2), column 2t + (e & 1). Source: PTX
 * ISA, "Matrix Fragments for mma.m16n8k16". On the CPU a product is the exact sum rounded to
 * f32 as the A100 does: terms cut at 24 bits below the largest exponent, eight products at a
 * time. */
#ifndef TENSORUTILS_DEVICE_CUDA_MMA_H
#define TENSORUTILS_DEVICE_CUDA_MMA_H

#include "floats.h"

/* Fragment maps. */
DEVICE unsigned a_row(unsigned lane, unsigned r)
{
    return lane / 4 + 8 * (r & 1);
}

DEVICE unsigned a_col(unsigned lane, unsigned r)
{
    return lane % 4 * 2 + 8 * (r / 2);
}

DEVICE unsigned b_row(unsigned lane, unsigned r)
{
    return lane % 4 * 2 + 8 * r;
}

DEVICE unsigned b_col(unsigned lane)
{
    return lane / 4;
}

DEVICE unsigned c_row(unsigned lane, unsigned e)
{
    return lane / 4 + 8 * (e / 2);
}

DEVICE unsigned c_col(unsigned lane, unsigned e)
{
    return lane % 4 * 2 + (e & 1);
}

/* Byte of 16-byte chunk `chunk` of row `row` of a tile whose rows are `bytes` (a multiple of
 * 128): chunks of a group of eight trade places by the row, so that eight rows of one column
 * lie in different banks. */
DEVICE unsigned swizzled(unsigned row, unsigned chunk, unsigned bytes)
{
    return row * bytes + ((chunk & ~7u) | ((chunk ^ row) & 7u)) * 16;
}

/* Two floats to a pair of 16-bit ones, the first low. */
DEVICE uint32_t pack2(bool half, float x, float y)
{
    return half ? to_f16(x) | to_f16(y) << 16 : to_bf16(x) | to_bf16(y) << 16;
}

#ifdef __CUDACC__

/* d = a·b + d. */
DEVICE void mma(bool half, float d[4], const uint32_t a[4], const uint32_t b[2])
{
    if (half)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8 × 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix
 * l / 8 and gets, of matrix r, the pair at row l / 4, columns 2·(l % 4). */
DEVICE void ldmatrix(uint32_t r[4], const unsigned char *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
}

/* The same of the transposed matrices. */
DEVICE void ldmatrix_t(uint32_t r[4], const unsigned char *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
}

/* 16 bytes from global to shared memory, zeros where `yes` is false, done after copies_wait. */
DEVICE void copy_async(unsigned char *to, const unsigned char *from, bool yes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(yes ? 16 : 0));
}

DEVICE void copies_end(void)
{
    asm volatile("cp.async.commit_group;");
}

/* All groups but the newest n have arrived; a barrier makes them everybody's. */
#define copies_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n))

DEVICE float fast_exp2(float v)
{
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
    return out;
}

#else

/* A sum as the A100 rounds it: c and n ≤ 8 exact products, each cut towards zero to 24
 * fractional bits at the largest exponent, then to f32 towards zero. Source:
 * north-numerical-computing/MATLAB-tensor-core; microsoft/MMA-Sim. */
DEVICE float mma_step(float c, const float *x, const float *y, unsigned n)
{
    double term[9] = {(double)c}, sum = 0;
    int top = -200, e;
    for (unsigned i = 0; i < n; i++) {
        int ex = 0, ey = 0;
        term[i + 1] = (double)x[i] * (double)y[i];
        frexpf(x[i], &ex);
        frexpf(y[i], &ey);
        if (term[i + 1] != 0 && ex + ey - 2 > top)
            top = ex + ey - 2;
    }
    frexpf(c, &e);
    if (c != 0 && e - 1 > top)
        top = e - 1;
    if (top == -200)
        return 0;
    for (unsigned i = 0; i <= n; i++) {
        if (!isfinite(term[i]))
            return (float)(term[i] * 1.0);
        sum += ldexp(trunc(ldexp(term[i], 24 - top)), top - 24);
    }
    float f = (float)sum;
    return fabs((double)f) > fabs(sum) ? nextafterf(f, 0) : f;
}

DEVICE float of16(bool half, uint32_t v)
{
    return half ? from_f16(v & 0xffff) : of_bits(v << 16);
}

/* Each lane gives its fragments; each makes its four sums from all of them, by the maps. */
DEVICE void mma(bool half, float d[4], const uint32_t a[4], const uint32_t b[2])
{
    uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]}, regs[6];
    const unsigned char *all = tui_emulated_exchange(mine, sizeof mine);
    float x[16][16], y[16][8];
    for (unsigned lane = 0; lane < 32; lane++) {
        memcpy(regs, all + lane * TUI_EXCHANGE, sizeof regs);
        for (unsigned r = 0; r < 4; r++) {
            x[a_row(lane, r)][a_col(lane, r)] = of16(half, regs[r]);
            x[a_row(lane, r)][a_col(lane, r) + 1] = of16(half, regs[r] >> 16);
        }
        for (unsigned r = 0; r < 2; r++) {
            y[b_row(lane, r)][b_col(lane)] = of16(half, regs[4 + r]);
            y[b_row(lane, r) + 1][b_col(lane)] = of16(half, regs[4 + r] >> 16);
        }
    }
    unsigned lane = THREAD % WARP;
    for (unsigned e = 0; e < 4; e++)
        for (unsigned k = 0; k < 16; k += 8) {
            float column[8];
            for (unsigned i = 0; i < 8; i++)
                column[i] = y[k + i][c_col(lane, e)];
            d[e] = mma_step(d[e], &x[c_row(lane, e)][k], column, 8);
        }
}

DEVICE void matrices(uint32_t r[4], const unsigned char *row, bool transposed)
{
    const unsigned char *all = tui_emulated_exchange(&row, sizeof row), *at;
    unsigned lane = THREAD % WARP;
    for (unsigned m = 0; m < 4; m++) {
        uint16_t pair[2];
        for (unsigned k = 0; k < 2; k++) {
            unsigned i = lane / 4, j = lane % 4 * 2 + k;
            memcpy(&at, all + (8 * m + (transposed ? j : i)) * TUI_EXCHANGE, sizeof at);
            tui_emulated_part((size_t)(at - tui_emulated.shared), 16, __FILE__, __LINE__);
            memcpy(&pair[k], at + 2 * (transposed ? i : j), 2);
        }
        r[m] = pair[0] | (uint32_t)pair[1] << 16;
    }
}

DEVICE void ldmatrix(uint32_t r[4], const unsigned char *row)
{
    matrices(r, row, false);
}

DEVICE void ldmatrix_t(uint32_t r[4], const unsigned char *row)
{
    matrices(r, row, true);
}

DEVICE void copy_async(unsigned char *to, const unsigned char *from, bool yes)
{
    tui_emulated_part((size_t)(to - tui_emulated.shared), 16, __FILE__, __LINE__);
    tui_emulated_later(to, yes ? from : NULL, 16);
}

DEVICE void copies_end(void)
{
    tui_emulated_group();
}

#define copies_wait(n) tui_emulated_arrive(n)

DEVICE float fast_exp2(float v)
{
    return exp2f(v);
}

#endif

#endif
