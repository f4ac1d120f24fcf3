/* SPDX-License-Identifier: Apache-2.0 */
/* Pruning and the compressed forms of sparse matrices. Metadata is compared with what
 * torch 2.15's sparse_semi_structured_from_dense_cutlass makes of the same matrix. */
#include "inputs.h"
#include "kit.h"
#include "tensorutils/quant/sparse.h"

static float big[R_COUNT], back[R_COUNT], other[R_COUNT];

static const float sixteen[16] = {1, -5, 2, .5f, 0, 0, 0, 3, -1, 1, 1, -1, 4, 3, 2, 1};

static void test_prune(void)
{
    struct tu_err err;
    float x[16];
    memcpy(x, sixteen, sizeof x);
    ok(!tu_prune_nm(x, NULL, 1, 16, 2, 4, false, &err), "2 of 4");
    static const float want[16] = {0, -5, 2, 0, 0, 0, 0, 3, -1, 1, 0, 0, 4, 3, 0, 0};
    eq_mem(x, want, sizeof x, "the two largest, ties to the lower index");
    float y[8] = {.1f, -.9f, .3f, .2f, .8f, -.05f, .4f, 0};
    ok(!tu_prune_nm(y, NULL, 1, 8, 2, 8, false, &err), "2 of 8");
    for (unsigned i = 0; i < 8; i++)
        ok((y[i] != 0) == (i == 1 || i == 4), "keeps 1 and 4: %u", i);
    memcpy(x, sixteen, sizeof x);
    ok(!tu_prune_nm(x, NULL, 4, 4, 1, 4, true, &err), "1 of 4 down the columns");
    static const float down[16] = {0, -5, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4, 0, 0, 0};
    eq_mem(x, down, sizeof x, "one per column");
    /* Both directions: what the forward and the backward pass keep of one matrix. */
    memcpy(x, sixteen, sizeof x);
    ok(!tu_prune_nm(x, NULL, 4, 4, 2, 4, false, &err) &&
           !tu_prune_nm(x, NULL, 4, 4, 2, 4, true, &err),
       "both directions");
    for (unsigned j = 0; j < 4; j++) {
        unsigned n = 0;
        for (unsigned i = 0; i < 4; i++)
            n += x[i * 4 + j] != 0;
        ok(n <= 2, "column %u has %u", j, n);
    }
    eq_int(tu_prune_nm(x, NULL, 1, 10, 2, 4, false, &err), TU_EUSAGE, "10 columns: %s",
           err.msg);
    eq_int(tu_prune_nm(x, NULL, 1, 16, 5, 4, false, &err), TU_EUSAGE, "5 of 4: %s",
           err.msg);

    static const float w[4] = {1, -2, 3, .5f};
    static const double sq[4] = {4, 1, .01, 9}, diagonal[4] = {1, 2, 3, .5};
    static const float wanda[4] = {2, 2, .3f, 1.5f}, obs[4] = {1, 1, 1, 1};
    float score[4];
    tu_score_wanda(w, sq, 1, 4, score);
    eq_mem(score, wanda, sizeof score, "Wanda's score");
    tu_score_obs(w, diagonal, 1, 4, score);
    eq_mem(score, obs, sizeof score, "SparseGPT's score");
}

static void test_compressed(void)
{
    struct kit k = {0};
    if (kit_start(&k, "nm:value=f32", 1, 16, sixteen)) {
        static const float want[8] = {-5, 2, 0, 3, -1, 1, 4, 3};
        eq_mem(k.code, want, sizeof want, "values");
        eq_str(kit_hex(k.side[0], 2), "9633", "mask");
        kit_decode(&k, back);
        ok(back[1] == -5 && back[7] == 3 && back[15] == 0, "decodes");
        ((unsigned char *)k.side[0])[0] = 0x97;
        eq_int(kit_decode(&k, back), TU_EFORMAT, "a mask of one too many: %s", k.why);
        ((unsigned char *)k.side[0])[0] = 0x16;
        eq_int(kit_decode(&k, back), TU_EFORMAT, "a mask of one too few: %s", k.why);
    }
    kit_free(&k);
    if (kit_start(&k, "sparse24", 1, 16, sixteen)) {
        eq_u64(tu_le16(k.side[0]), 0x44c9, "metadata");
        ok(kit_decode(&k, back) == 0 && back[1] == -5 && back[7] == 3 && back[6] == 0,
           "decodes");
        tu_put16(k.side[0], 0x44c0);
        eq_int(kit_decode(&k, back), TU_EFORMAT, "positions 0 and 0: %s", k.why);
    }
    kit_free(&k);
    if (kit_start(&k, "sparse24:torch", 1, 16, sixteen)) {
        eq_u64(tu_le16(k.side[0]), 0x44e9, "metadata as torch has it");
        ok(kit_decode(&k, back) == 0 && back[7] == 3, "decodes");
    }
    kit_free(&k);
    /* FP8 is ranked by magnitude, whatever its sign bit makes of the byte. */
    static const float fp8[16] = {-8, 1, 2, -4, 1, -1, 1, -1, 0, 0, 0, 0, 9, -9, 9, -9};
    if (kit_start(&k, "nm:value=f8_e4m3fn", 1, 16, fp8)) {
        kit_decode(&k, back);
        ok(back[0] == -8 && back[3] == -4 && back[2] == 0 && back[4] == 1 &&
               back[5] == -1,
           "negative values of FP8 stay");
    }
    kit_free(&k);
    eq_int(kit_plan(&k, "sparse24", 1, 24), TU_EUSAGE, "24 columns: %s", k.why);
    eq_int(kit_plan(&k, "nm:n=0", 1, 24), TU_EUSAGE, "0 of 4: %s", k.why);
    eq_int(kit_plan(&k, "nm:value=i8", 1, 24), TU_EUSAGE, "integers: %s", k.why);
    kit_free(&k);
}

/* Random rows through both forms, and the peer's metadata. */
static void test_random(void)
{
    static const char *const spec[] = {"nm:value=f32", "nm:n=1,m=4,value=f32",
                                       "nm:n=2,m=8,value=f32", "sparse24:value=f32"};
    static const unsigned n[] = {2, 1, 2, 1}, m[] = {4, 4, 8, 2};
    for (unsigned i = 0; i < 4; i++) {
        struct kit k = {0};
        struct tu_err err;
        input_r(3, big);
        memcpy(other, big, sizeof big);
        if (kit_start(&k, spec[i], R_ROWS, R_COLS, big) && kit_decode(&k, back) == 0 &&
            !tu_prune_nm(other, NULL, R_ROWS, R_COLS, n[i], m[i], false, &err))
            eq_mem(back, other, sizeof back, "%s keeps what pruning keeps", spec[i]);
        kit_free(&k);
    }
    struct kit k = {0};
    input_r(1, big);
    if (kit_start(&k, "sparse24:value=f16,torch", R_ROWS, R_COLS, big)) {
        eq_u64(kit_crc(&k, NULL), 0xa61eabe0, "values as torch's");
        uint16_t *meta = k.side[0], *to = tu_calloc(R_COUNT / 16, 2, NULL);
        for (unsigned r = 0; r < R_ROWS; r++)
            for (unsigned j = 0; j < R_COLS / 16; j++)
                to[tu_sparse24_place(R_ROWS, 2, r, j)] = meta[r * R_COLS / 16 + j];
        eq_u64(tu_crc32(0, to, R_COUNT / 8), 0xfc397ca9, "metadata in CUTLASS' order");
        tu_free(to);
    }
    kit_free(&k);
}

static void test_bsr(void)
{
    static const char *const row[8] = {"11000000", "00001100", "11000000", "00000011",
                                       "00001100", "00110000", "00000011", "00110000"};
    static const unsigned char order[2][8] = {{0, 2, 1, 4, 3, 6, 5, 7},
                                              {0, 2, 5, 7, 1, 3, 4, 6}};
    static const unsigned blocks[2][2] = {{8, 4}, {4, 2}};
    static const double fill[2][2] = {{.5, 1}, {.25, .5}};
    float x[64], y[64], v[8], product[8];
    for (unsigned i = 0; i < 64; i++)
        x[i] = row[i / 8][i % 8] == '1' ? (float)(i + 1) : 0;
    for (unsigned i = 0; i < 8; i++)
        v[i] = (float)(i + 1);
    for (unsigned s = 0; s < 2; s++)
        for (unsigned cluster = 0; cluster < 2; cluster++) {
            struct tu_bsr m;
            struct tu_err err;
            if (!ok(!tu_bsr_pack(&m, x, 8, 8, s ? 4 : 2, cluster, &err), "packs"))
                continue;
            eq_u64(m.blocks, blocks[s][cluster], "blocks of %u, %s", s ? 4 : 2,
                   cluster ? "clustered" : "in order");
            ok(tu_bsr_fill(&m) == fill[s][cluster], "fill %g", tu_bsr_fill(&m));
            for (unsigned i = 0; cluster && m.perm && i < 8; i++)
                eq_u64(m.perm[i], order[s][i], "row %u", i);
            tu_bsr_unpack(&m, y);
            eq_mem(y, x, sizeof x, "unpacks");
            tu_bsr_multiply(&m, v, product);
            for (unsigned i = 0; i < 8; i++) {
                float sum = 0;
                for (unsigned j = 0; j < 8; j++)
                    sum += x[i * 8 + j] * v[j];
                ok(product[i] == sum, "product %u", i);
            }
            tu_bsr_release(&m);
        }
    struct tu_bsr m;
    struct tu_err err;
    input_r(1, big);
    ok(!tu_bsr_pack(&m, big, 61, 97, 16, true, &err), "a dense matrix with short blocks");
    ok(!m.perm, "is not permuted");
    tu_bsr_unpack(&m, back);
    eq_mem(back, big, 61 * 97 * sizeof *big, "unpacks");
    tu_bsr_release(&m);
    eq_int(tu_bsr_pack(&m, big, 4, 4, 0, false, &err), TU_EUSAGE, "blocks of nothing");
}

static void test_gqsa(void)
{
    struct kit k = {0};
    input_r(1, big);
    if (kit_start(&k, "gqsa", R_ROWS, R_COLS, big)) {
        ok(fabs(tu_coding_bpw(&k.c) - 3.125) < 0.04, "%.3f bits", tu_coding_bpw(&k.c));
        kit_decode(&k, back);
        double least = 1e9, most = 0;
        unsigned kept = 0, bad = 0;
        for (unsigned g = 0; g < R_COUNT / 16; g++) {
            double sum = 0, size = 0, top = 0;
            for (unsigned i = 0; i < 16; i++) {
                sum += fabs((double)big[g * 16 + i]);
                size += fabs((double)back[g * 16 + i]);
                top = fmax(top, fabs((double)big[g * 16 + i]));
            }
            if (size > 0) {
                kept++;
                least = fmin(least, sum);
                for (unsigned i = 0; i < 16; i++)
                    bad += fabs((double)big[g * 16 + i] - back[g * 16 + i]) > top * 0.15;
            } else {
                most = fmax(most, sum);
            }
        }
        eq_u64(kept, R_COUNT / 32, "half of the groups stay");
        ok(least >= most, "those with the largest mean: %g over %g", least, most);
        eq_u64(bad, 0, "near what they were");
        unsigned char *row = k.side[0], *col = k.side[1];
        tu_put16(col, 64);
        eq_int(kit_decode(&k, back), TU_EFORMAT, "a column behind the last: %s", k.why);
        tu_put16(col, 0);
        tu_put32(row + 4, UINT32_MAX);
        eq_int(kit_decode(&k, back), TU_EFORMAT, "a row behind the last: %s", k.why);
    }
    kit_free(&k);
    eq_int(kit_plan(&k, "gqsa:group=15", 4, 60), TU_EUSAGE, "an odd group: %s", k.why);
    kit_free(&k);
}

/* The codec: the blocks of the largest norm, lossless where all have a place, and sides
 * that lead out of the matrix. */
static void test_bsr_codec(void)
{
    static float x[64], y[64];
    struct kit k = {0};
    for (unsigned i = 0; i < 64; i++) /* one block of two by two in each quarter of rows */
        x[i] = i / 8 / 2 == i % 8 / 2 ? (float)(1 + i / 8 / 2) : 0;
    if (kit_start(&k, "bsr:size=2,blocks=5,value=f32", 8, 8, x) && kit_decode(&k, y) == 0)
        eq_mem(x, y, sizeof x, "four blocks in five places");
    eq_u64(k.c.code.bytes, 5 * 4 * 4, "five places");
    tu_put32((unsigned char *)k.side[1], 4);
    eq_int(kit_decode(&k, y), TU_EFORMAT, "a column of blocks behind the end: %s", k.why);
    tu_put32((unsigned char *)k.side[1], 0);
    tu_put32((unsigned char *)k.side[2], 1);
    eq_int(kit_decode(&k, y), TU_EFORMAT, "a row twice: %s", k.why);
    tu_put32((unsigned char *)k.side[2], 0);
    tu_put32((unsigned char *)k.side[0] + 4, 6);
    eq_int(kit_decode(&k, y), TU_EFORMAT, "a block that is not there: %s", k.why);
    kit_free(&k);
    if (kit_start(&k, "bsr:size=2,keep=12,value=f32", 8, 8, x) && kit_decode(&k, y) == 0)
        ok(y[0] == 0 && y[18] == 0 && y[36] == 3 && y[63] == 4,
           "two of sixteen: the largest");
    kit_free(&k);
    /* Rows 0 and 2, 1 and 3 belong together: half as many blocks once they meet. */
    memset(x, 0, sizeof x);
    for (unsigned i = 0; i < 4; i++)
        x[i * 4 + i % 2 * 2] = 1;
    if (kit_start(&k, "bsr:size=2,blocks=2,cluster,value=f32", 4, 4, x) && kit_decode(&k, y) == 0)
        eq_mem(x, y, 16 * sizeof *x, "two blocks do");
    kit_free(&k);
    eq_int(kit_plan(&k, "bsr:size=0", 4, 4), TU_EUSAGE, "no size");
    eq_int(kit_plan(&k, "bsr:size=2,blocks=5", 4, 4), TU_EUSAGE, "more blocks than there are");
}

int main(void)
{
    test_prune();
    test_compressed();
    test_random();
    test_bsr();
    test_gqsa();
    test_bsr_codec();
    return tap_done();
}
