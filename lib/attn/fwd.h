/* SPDX-License-Identifier: Apache-2.0 */
/* fwd.h: the plan of a forward pass, shared by its driver and its two kinds of unit. */
#ifndef ATTN_FWD_H
#define ATTN_FWD_H

#include "attn/mask.h"
#include "attn/tile.h"

#define LOG2E 1.4426950408889634
#define LN2 0.6931471805599453

/* A tile of queries against a range of the keys. */
struct tui_unit {
    struct tui_block rows;
    uint64_t pair;   /* (sequence, KV head) of the group at hand */
    uint64_t t0, t1; /* key tiles */
    uint64_t part;   /* where the partial result goes, when the keys are split */
};

struct tui_plan {
    const struct tu_attn *a;
    const struct tui_ops *ops;
    bool few;                /* few rows per KV head: stream the keys, pack nothing */
    bool logits;             /* more than q·k */
    size_t br, bc;           /* rows of queries, keys */
    size_t dk, dn, dvn;      /* D padded as depth, as columns; Dv padded as columns */
    size_t k_bytes, v_bytes; /* of a packed tile */
    uint64_t splits, tiles_max;
    uint64_t pair0, pairs; /* the group at hand */
    unsigned char *packed; /* [pairs][tiles_max][k_bytes + v_bytes] */
    unsigned char *odd;    /* [pairs]: V has NaN or Inf */
    struct tui_unit *unit;
    uint64_t units;
    float *part_o, *part_lse; /* [parts][br][dv], [parts][br] */
    struct tui_work *work;    /* [workers] */
};

/* Memory of one worker. */
struct tui_work {
    float *q;    /* [br, max(dk, dn)], f32 */
    void *qa;    /* the same as an A operand */
    float *s;    /* [piece, bc] */
    void *p;     /* [piece, bc] as an A operand; s itself where A is f32 */
    float *acc;  /* [br, dvn] */
    float *rows; /* [bc, max(D, Dv) padded], f32 keys or values */
    float *vals; /* [bc, dvn], values where both are needed; its padding stays zero */
    float *c, *l, *alpha; /* [br] */
    unsigned char *keep;  /* [bc] */
    struct tu_arena *arena;
};

/* n rows of k or v from key j0 as f32 with stride ld. */
int tui_load_keys(const struct tu_attn *a, const struct tu_rows *r,
                  const struct tui_block *t, uint64_t j0, uint64_t n, float *out,
                  size_t ld, struct tu_err *err);
/* Queries of a block, the same; r is q, o or do. */
int tui_load_queries(const struct tu_attn *a, const struct tu_rows *r,
                     const struct tui_block *t, float *out, size_t ld,
                     struct tu_err *err);
/* From acc, c and l to o and lse, or to the unit's part. */
int tui_finish(const struct tui_plan *p, const struct tui_unit *u, struct tui_work *w,
               struct tu_err *err);
/* Drop P of rows [r0, r1) whose elements have `elem` bytes. */
void tui_drop(const struct tui_plan *p, const struct tui_unit *u, struct tui_work *w,
              uint64_t r0, uint64_t r1, uint64_t j0, uint64_t nj, void *prob, size_t ld,
              size_t elem);
/* The two kinds of unit. */
int tui_unit_tiles(const struct tui_plan *p, const struct tui_unit *u, struct tui_work *w,
                   struct tu_err *err);
int tui_unit_few(const struct tui_plan *p, const struct tui_unit *u, struct tui_work *w,
                 struct tu_err *err);

#endif
