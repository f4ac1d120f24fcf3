/* SPDX-License-Identifier: Apache-2.0 */
/* tile.h: what attention does with a tile, as rows of functions for one instruction set
 * each.
 *
 * All matrix products are C[m×n] (+)= A[m×k] · B[k×n] with A row-major, B packed in
 * panels of columns, C f32 row-major. Sizes are padded: n to npad, k to kpad, m to mpad,
 * and what is in the padding of A and B is zero. Rows that compute in f32 read A as it is
 * in memory; others pack it. */
#ifndef ATTN_TILE_H
#define ATTN_TILE_H

#include <tensorutils/attn.h>

/* One step of the online softmax over m rows and n columns of s. Per row: c is the base
 * of the exponent (log2 units, -inf at first), l the sum. */
struct tui_softmax {
    float *s; /* [m, ld], q·k or final logits */
    size_t ld;
    size_t m, n;
    float mul; /* log2(e) times what s still lacks */
    float *c, *l;
    float *alpha; /* out: factor for what was accumulated before */
    void *p;      /* out: [m, ldp] as an A operand; may be s where A is f32 */
    size_t ldp;
};

/* One tile of the backward, transposed: n keys are rows, m queries columns. */
struct tui_grad {
    float *s;  /* in: q·k [n, ld]; out: P, dropped and scaled */
    float *dp; /* in: dO·V [n, ld]; out: dS without the scale */
    size_t ld, n, m;
    float mul;
    const float *lse2;  /* [m], log2 units; +inf for rows without keys */
    const float *delta; /* [m], minus dlse */
    const float *keep;  /* [n, ld], 0 or 1/(1-p), or NULL */
    const float *chain; /* [n, ld], derivative of the cap, or NULL */
};

/* A chunk of e steps of a recurrence whose state decays: what lies between its steps. All
 * decays are exponentials of sums over the steps between, so nothing grows. */
struct tui_decay {
    float *p; /* [e, ldp] */
    size_t ldp;
    float *q, *k, *g; /* [e, d padded], rows of ld; a number per step: g [e] alone */
    size_t ld;
    float *row; /* scratch, [e padded] */
    float *head, *tail; /* of numbers: from the start to step i, from step j to the end */
    float *whole;       /* of vectors: the decay of the chunk, [d padded] */
    size_t e, d;
};

struct tui_ops {
    const char *name;
    unsigned elem; /* bytes of an element of A and B */
    unsigned mpad, npad, kpad;
    unsigned tile_q, tile_k; /* good sizes of a tile */
    void (*begin)(
        void); /* the state of this thread that the others need; end undoes it */
    void (*end)(void);
    /* A from f32 rows [m, k]; NULL: A is f32 rows. */
    void (*pack_a)(void *a, size_t lda, const float *src, size_t ld, size_t m, size_t k);
    /* B from f32 [k, n], and from its transpose [n, k]. */
    void (*pack_b)(void *b, const float *src, size_t ld, size_t k, size_t n);
    void (*pack_bt)(void *b, const float *src, size_t ld, size_t n, size_t k);
    void (*gemm)(float *c, size_t ldc, const void *a, size_t lda, const void *b, size_t m,
                 size_t n, size_t k, bool add);
    void (*softmax)(const struct tui_softmax *x);
    void (*rescale)(float *acc, size_t ld, size_t m, size_t n, const float *alpha);
    void (*grad)(const struct tui_grad *x);
    /* s[r, j] = q[r]·k[j] for few rows of q, and acc[r] += p[r, j] v[j]: nothing packed.
     */
    void (*dots)(float *s, size_t lds, const float *q, size_t ldq, const float *k,
                 size_t ldk, size_t m, size_t n, size_t d);
    void (*sums)(float *acc, size_t ld, const float *p, size_t ldp, const float *v,
                 size_t ldv, size_t m, size_t n, size_t d);
    bool (*finite)(const float *x, size_t n);
    /* A gate per step, g [e] in log2 units: p (in: q·k) is decayed, 0 past the diagonal;
     * head and tail are filled. */
    void (*decay)(const struct tui_decay *x);
    /* A gate per step and column, g [e, d] in log2 units. Of rows of the state: p becomes
     * q·k with the decay between, q is decayed from the start of the chunk, k to its end.
     * Of columns: q, the products with the state, is decayed from the start, and p (in)
     * times k with the decay between is added; k is decayed to the end. */
    void (*gate_rows)(const struct tui_decay *x);
    void (*gate_columns)(const struct tui_decay *x);
    /* Column j times by[j]. */
    void (*weigh)(float *rows, size_t ld, size_t m, size_t n, const float *by);
    /* dst [n, m] from src [m, n]; both have room up to multiples of 16. */
    void (*turn)(float *dst, size_t ld_dst, const float *src, size_t ld, size_t m,
                 size_t n);
    /* Loops in registers, for measuring: operations done; *sink keeps them from
     * vanishing. */
    double (*peak)(unsigned n, float *sink);
    double (*peak_exp)(unsigned n, float *sink);
};

#if defined __x86_64__ && !defined TU_NO_X86
extern const struct tui_ops tui_ops_amx, tui_ops_avx512, tui_ops_avx2;
#endif
extern const struct tui_ops tui_ops_plain;

/* The best row for a compute dtype (TU_F32, TU_BF16) and these CPU bits. Matrix units
 * that the kernel of the system refuses are not among the bits. */
const struct tui_ops *tui_ops_pick(uint32_t compute, uint32_t bits);
/* Row i of the table, NULL past the end, and the bits it needs. */
const struct tui_ops *tui_ops_row(size_t i, uint32_t *needs);

static inline size_t tui_pad(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

#endif
