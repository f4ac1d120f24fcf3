/* SPDX-License-Identifier: Apache-2.0 */
/* The maps of tensor-core fragments cover each matrix once, as PTX defines them; the swizzle
 * loses nothing and keeps eight rows of a column in eight banks; sums round as the A100's. */
#include "device/cuda/mma.h"
#include "../tap.h"

static void test_maps(void)
{
    unsigned a[16][16] = {{0}}, b[16][8] = {{0}}, c[16][8] = {{0}}, bad = 0;
    for (unsigned lane = 0; lane < 32; lane++) {
        for (unsigned r = 0; r < 4; r++)
            for (unsigned k = 0; k < 2; k++)
                a[a_row(lane, r)][a_col(lane, r) + k]++;
        for (unsigned r = 0; r < 2; r++)
            for (unsigned k = 0; k < 2; k++)
                b[b_row(lane, r) + k][b_col(lane)]++;
        for (unsigned e = 0; e < 4; e++)
            c[c_row(lane, e)][c_col(lane, e)]++;
    }
    for (unsigned i = 0; i < 16; i++)
        for (unsigned j = 0; j < 16; j++)
            bad += a[i][j] != 1 || b[i][j % 8] != 1 || c[i][j % 8] != 1;
    ok(!bad, "fragments of A, B and C hold every element once");
    /* Cells of the tables in PTX ISA, mma.m16n8k16, by hand: lane 5 is group 1, thread 1. */
    ok(a_row(5, 1) == 9 && a_col(5, 1) == 2 && a_row(5, 2) == 1 && a_col(5, 2) == 10, "A");
    ok(b_row(5, 1) == 10 && b_col(5) == 1, "B");
    ok(c_row(5, 3) == 9 && c_col(5, 3) == 3, "C");
    /* Two C fragments side by side are one A fragment: P needs no shuffle. */
    for (unsigned lane = 0, t = 0; lane < 32; lane++)
        for (t = 0; t < 8; t++) {
            unsigned r = t / 2, e = r % 2 * 2 + t % 2, tile = r / 2;
            bad += a_row(lane, r) != c_row(lane, e) ||
                   a_col(lane, r) + t % 2 != 8 * tile + c_col(lane, e);
        }
    ok(!bad, "two C fragments are an A fragment");
}

static void test_swizzle(void)
{
    for (unsigned bytes = 128; bytes <= 512; bytes += 128) {
        unsigned char seen[64 * 512 / 16] = {0};
        unsigned bad = 0;
        for (unsigned row = 0; row < 64; row++)
            for (unsigned chunk = 0; chunk < bytes / 16; chunk++) {
                unsigned at = swizzled(row, chunk, bytes);
                bad += at % 16 || at / bytes != row || seen[at / 16]++;
            }
        for (unsigned row = 0; row < 64; row += 8)
            for (unsigned chunk = 0; chunk < bytes / 16; chunk++) {
                unsigned banks = 0;
                for (unsigned r = 0; r < 8; r++)
                    banks |= 1u << swizzled(row + r, chunk, bytes) / 16 % 8;
                bad += banks != 255;
            }
        ok(!bad, "rows of %u bytes: a permutation without bank conflicts", bytes);
    }
}

static void test_sums(void)
{
    float one[8] = {1, 1, 1, 1, 1, 1, 1, 1}, x[8] = {0x1p24f, 1, -0x1p24f, 0, 0, 0, 0, 0};
    ok(mma_step(0.5f, one, one, 8) == 8.5f, "small sums are exact");
    ok(mma_step(0, x, one, 8) == 1, "1 survives 2^24: 24 fractional bits below the largest");
    x[0] = 0x1p25f;
    x[2] = -0x1p25f;
    ok(mma_step(0, x, one, 8) == 0, "and is cut below 2^25");
    float y[8] = {1, 0x1p-24f, 0, 0, 0, 0, 0, 0};
    ok(mma_step(0, y, one, 8) == 1, "the result is cut towards zero");
    y[1] = -0x1p-24f;
    ok(mma_step(0, y, one, 8) == 1 - 0x1p-24f, "also from above");
}

int main(void)
{
    test_maps();
    test_swizzle();
    test_sums();
    return tap_done();
}
