/* SPDX-License-Identifier: Apache-2.0 */
/* bwd.h: the plan of a backward pass, shared by its driver and its tiles. */
#ifndef ATTN_BWD_H
#define ATTN_BWD_H

#include <stdatomic.h>
#include "attn/fwd.h"

/* Memory of one worker. A operands: of keys [bc, dk], values [bc, dvk], keys turned [dm,
 * bc]. */
struct tui_back_work {
    float *rows, *other; /* f32 rows as they are loaded */
    float *turned;       /* [dm, bc], f32 */
    void *ka, *va, *kta;
    float *s, *dp;        /* [bc, br] */
    float *chain, *keep;  /* the same, where needed */
    unsigned char *bits;  /* [bc] */
    void *pa, *dsa, *dsb; /* P and dS as A, dS as B */
    float *dk, *dv;       /* [bc, dn], [bc, dvn] */
    struct tu_arena *arena;
};

struct tui_back {
    const struct tu_attn *a;
    const struct tui_ops *ops;
    bool logits;
    size_t br, bc;               /* queries, keys of a tile */
    size_t dk, dvk, dn, dvn, dm; /* D and Dv padded as depth, as columns, as rows */
    size_t qt_bytes, qn_bytes, ot_bytes, on_bytes, tile_bytes; /* packed Q', Q, dO', dO */
    uint64_t q_tiles, k_tiles, splits;                         /* per KV head */
    uint64_t pair0, pairs;                                     /* the group at hand */
    unsigned char *packed; /* [pairs][q_tiles][tile_bytes] */
    float *lse2, *delta;   /* [pairs][q_tiles][br] */
    float *dq;             /* [pairs][splits][q_tiles][dm, br] */
    atomic_bool odd;       /* NaN or Inf seen: the reference takes over */
    struct tui_back_work *work;
};

/* A block of the pair without queries. */
struct tui_block tui_back_pair(const struct tui_back *p, uint64_t pair);
/* All queries of the pair against key tile `tile`: dK and dV stored, dQ' added to dq. */
int tui_back_keys(struct tui_back *p, struct tui_back_work *w, uint64_t pair,
                  uint64_t tile, float *dq, struct tu_err *err);

#endif
