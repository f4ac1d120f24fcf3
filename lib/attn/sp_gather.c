/* SPDX-License-Identifier: Apache-2.0 */
/* sp_gather.c: bring all blocks together, then compute as one process does.
 *
 * Blocks go round a ring once. Rows are put where they stand in the whole, so a call sees
 * keys in global order and gives a row the bits it has in one process. */
#include <string.h>
#include "attn/sp.h"

/* Everybody's `bytes` at `mine` into all [n][bytes]. */
static int ring(const struct tui_comm *c, const void *mine, uint64_t bytes,
                unsigned char *all, struct tu_err *err)
{
    memcpy(all + c->me * bytes, mine, bytes);
    uint32_t up = tui_member(c, (c->me + 1) % c->n),
             down = tui_member(c, (c->me + c->n - 1) % c->n);
    int code = 0;
    for (uint32_t t = 1; !code && t < c->n; t++) {
        uint32_t out = (c->me + c->n - t + 1) % c->n, in = (c->me + c->n - t) % c->n;
        struct tu_move m = {.to = up,
                            .from = down,
                            .out = all + out * bytes,
                            .out_bytes = bytes,
                            .in = all + in * bytes,
                            .in_bytes = bytes};
        code = tu_rank_move(c->rank, &m, err);
    }
    return code;
}

/* [member][units][n][dim] to [units][N][dim] by global token. */
static void place(const struct tui_shard *s, uint32_t members, unsigned char *all,
                  uint64_t stride, unsigned char *whole, uint64_t units, uint64_t dim)
{
    uint64_t total = s->n * members;
    for (uint32_t m = 0; m < members; m++)
        for (uint64_t u = 0; u < units; u++)
            for (uint64_t i = 0; i < s->n; i++)
                memcpy(whole + (u * total + (uint64_t)s->at[m][i]) * dim,
                       all + m * stride + (u * s->n + i) * dim, dim);
}

/* All members' rows of x, in global order. */
static void *gather(const struct tui_shard *s, const struct tui_comm *c, const void *x,
                    uint64_t units, uint64_t dim, struct tu_err *err)
{
    uint64_t bytes = units * s->n * dim;
    unsigned char *all = tui_sp_alloc(s, c->n * bytes + 64, 1, err);
    unsigned char *whole = all ? tui_sp_alloc(s, c->n * bytes + 64, 1, err) : NULL;
    if (!whole || ring(c, x, bytes, all, err))
        return NULL;
    place(s, c->n, all, bytes, whole, units, dim);
    return whole;
}

static unsigned char *gather_keys(const struct tui_shard *s, const struct tui_comm *c,
                                  struct tu_err *err)
{
    uint64_t units = s->batch * s->hkv, d = s->all->d * s->e, dv = s->all->dv * s->e;
    uint64_t rows = units * s->n * c->n;
    unsigned char *kv = tui_sp_alloc(s, rows * (d + dv) + 64, 1, err);
    const void *k = kv ? gather(s, c, s->k, units, d, err) : NULL;
    const void *v = k ? gather(s, c, s->v, units, dv, err) : NULL;
    if (!v)
        return NULL;
    memcpy(kv, k, rows * d);
    memcpy(kv + rows * d, v, rows * dv);
    return kv;
}

int tui_gather_forward(struct tui_shard *s, const struct tui_comm *c, struct tu_err *err)
{
    const unsigned char *kv = gather_keys(s, c, err);
    if (!kv)
        return err->code;
    return tui_sp_forward(s, s->q, s->at[c->me], s->n, kv, NULL, s->n * c->n, s->o,
                          s->lse, err);
}

/* Sums over ranks of gradients of all keys, each block to its owner, in the order of
 * ranks. */
static int scatter(const struct tui_shard *s, const struct tui_comm *c,
                   const float *whole, uint64_t units, uint64_t dim, float *own,
                   struct tu_err *err)
{
    uint64_t block = units * s->n * dim, total = s->n * c->n;
    float *out = tui_sp_alloc(s, block + 1, sizeof *out, err);
    float *in = out ? tui_sp_alloc(s, c->n * block + 1, sizeof *in, err) : NULL;
    int code = in ? 0 : TU_ENOMEM;
    for (uint32_t t = 0; !code && t < c->n; t++) {
        uint32_t to = (c->me + t) % c->n, from = (c->me + c->n - t) % c->n;
        for (uint64_t u = 0; u < units; u++)
            for (uint64_t i = 0; i < s->n; i++)
                memcpy(out + (u * s->n + i) * dim,
                       whole + (u * total + (uint64_t)s->at[to][i]) * dim,
                       dim * sizeof *out);
        if (t == 0) {
            memcpy(in + c->me * block, out, block * sizeof *in);
            continue;
        }
        struct tu_move m = {.to = tui_member(c, to),
                            .from = tui_member(c, from),
                            .out = out,
                            .out_bytes = block * 4,
                            .in = in + from * block,
                            .in_bytes = block * 4};
        code = tu_rank_move(c->rank, &m, err);
    }
    for (uint32_t r = 0; !code && r < c->n; r++)
        for (uint64_t i = 0; i < block; i++)
            own[i] += in[r * block + i];
    return code;
}

/* Own keys against the queries of all, in global order. */
static int keys_alone(struct tui_shard *s, const struct tui_comm *c, struct tu_err *err)
{
    const struct tu_attn *a = s->all;
    uint64_t units = s->batch * s->hq;
    struct tui_queries q = {.n = s->n * c->n};
    q.q = gather(s, c, s->q, units, a->d * s->e, err);
    q.dout = q.q ? gather(s, c, s->dout, units, a->dv * s->e, err) : NULL;
    q.o = q.dout ? gather(s, c, s->o, units, a->dv * 4, err) : NULL;
    q.lse = q.o ? gather(s, c, s->lse, units, 4, err) : NULL;
    if (!q.lse)
        return err->code;
    return tui_sp_backward(s, &q, s->k, s->at[c->me], s->n, NULL, s->dk, s->dv, err);
}

int tui_gather_backward(struct tui_shard *s, const struct tui_comm *c, bool deterministic,
                        struct tu_err *err)
{
    const struct tu_attn *a = s->all;
    const unsigned char *kv = gather_keys(s, c, err);
    uint64_t total = s->n * c->n, units = s->batch * s->hkv;
    struct tui_queries q = {s->q, s->dout, s->o, s->lse, s->at[c->me], s->n};
    if (!kv)
        return err->code;
    if (deterministic) {
        int code = tui_sp_backward(s, &q, kv, NULL, total, s->dq, NULL, NULL, err);
        return code ? code : keys_alone(s, c, err);
    }
    float *dk = tui_sp_alloc(s, units * total * a->d + 1, sizeof *dk, err);
    float *dv = dk ? tui_sp_alloc(s, units * total * a->dv + 1, sizeof *dv, err) : NULL;
    if (!dv)
        return TU_ENOMEM;
    int code = tui_sp_backward(s, &q, kv, NULL, total, s->dq, dk, dv, err);
    code = code ? code : scatter(s, c, dk, units, a->d, s->dk, err);
    return code ? code : scatter(s, c, dv, units, a->dv, s->dv, err);
}
