/* SPDX-License-Identifier: Apache-2.0 */
/* squeeze_run.c: the compressed all-reduce and what it costs in accuracy. */
#include <math.h>
#include "plan.h"

struct run {
    struct tu_rank *rank;
    struct tu_squeeze *squeeze;
    uint32_t ranks, me;
    uint64_t count, each, slot; /* floats; of a shard; bytes of a coded shard */
    float *input, *carry, *send, *sum, *part, *out;
    double *mean;
    unsigned char *wires, *got; /* [ranks × slot] */
};

static uint64_t shard(const struct run *c, uint32_t q)
{
    return tui_block_len(c->count, c->ranks, q);
}

static uint64_t shard_at(const struct run *c, uint32_t q)
{
    return tui_block_at(c->count, c->ranks, q);
}

/* The magnitude that all share: each rank's largest to all. */
static int share_scale(struct run *c, float *scale, struct tu_err *err)
{
    float mine = 0;
    for (uint64_t i = 0; i < c->count; i++)
        mine = fmaxf(mine, fabsf(c->send[i]));
    *scale = mine;
    for (uint32_t k = 1; k < c->ranks; k++) {
        float theirs = 0;
        struct tu_move m = {.to = tui_turn(c->me, k, c->ranks),
                            .from = tui_turn(c->me, -(int64_t)k, c->ranks),
                            .out = &mine,
                            .out_bytes = sizeof mine,
                            .in = &theirs,
                            .in_bytes = sizeof theirs};
        int code = tu_rank_move(c->rank, &m, err);
        if (code)
            return code;
        *scale = fmaxf(*scale, theirs);
    }
    return 0;
}

/* Coded shards go where they belong; what comes is decoded and added in the order of
 * ranks. */
static int reduce_scatter(struct run *c, struct tu_err *err)
{
    for (uint32_t k = 1; k < c->ranks; k++) {
        uint32_t to = tui_turn(c->me, k, c->ranks),
                 from = tui_turn(c->me, -(int64_t)k, c->ranks);
        struct tu_move m = {.to = to,
                            .from = from,
                            .out = c->wires + to * c->slot,
                            .out_bytes = tu_squeeze_bytes(c->squeeze, shard(c, to)),
                            .in = c->got + from * c->slot,
                            .in_bytes = tu_squeeze_bytes(c->squeeze, shard(c, c->me))};
        int code = tu_rank_move(c->rank, &m, err);
        if (code)
            return code;
    }
    memcpy(c->got + c->me * c->slot, c->wires + c->me * c->slot, c->slot);
    uint64_t n = shard(c, c->me);
    memset(c->sum, 0, n * sizeof *c->sum);
    for (uint32_t q = 0; q < c->ranks; q++) {
        int code = tu_squeeze_decode(c->squeeze, c->got + q * c->slot, n, c->part, err);
        if (code)
            return code;
        for (uint64_t i = 0; i < n; i++)
            c->sum[i] += c->part[i];
    }
    return 0;
}

static int all_gather(struct run *c, uint64_t turn, struct tu_err *err)
{
    int code = tu_squeeze_encode(c->squeeze, c->sum, shard(c, c->me), 0,
                                 turn ^ UINT64_MAX, c->got + c->me * c->slot, err);
    for (uint32_t k = 1; k < c->ranks && !code; k++) {
        uint32_t to = tui_turn(c->me, k, c->ranks),
                 from = tui_turn(c->me, -(int64_t)k, c->ranks);
        struct tu_move m = {.to = to,
                            .from = from,
                            .out = c->got + c->me * c->slot,
                            .out_bytes = tu_squeeze_bytes(c->squeeze, shard(c, c->me)),
                            .in = c->got + from * c->slot,
                            .in_bytes = tu_squeeze_bytes(c->squeeze, shard(c, from))};
        code = tu_rank_move(c->rank, &m, err);
    }
    for (uint32_t q = 0; q < c->ranks && !code; q++)
        code = tu_squeeze_decode(c->squeeze, c->got + q * c->slot, shard(c, q),
                                 c->out + shard_at(c, q), err);
    return code;
}

/* One step: input and what the last coding lost; what this one loses is kept. */
static int step(struct run *c, uint64_t turn, struct tu_err *err)
{
    const struct tu_squeeze_row *row = tu_squeeze_row_of(c->squeeze);
    bool carries = !row || !row->unbiased;
    float scale = 0;
    for (uint64_t i = 0; i < c->count; i++)
        c->send[i] = c->input[i] + c->carry[i];
    int code = share_scale(c, &scale, err);
    for (uint32_t q = 0; q < c->ranks && !code; q++) {
        uint64_t at = shard_at(c, q), n = shard(c, q);
        code =
            tu_squeeze_encode(c->squeeze, c->send + at, n, scale,
                              turn * 8191 + c->me * 64 + q, c->wires + q * c->slot, err);
        if (!code)
            code = tu_squeeze_decode(c->squeeze, c->wires + q * c->slot, n, c->part, err);
        for (uint64_t i = 0; i < n && !code && carries; i++)
            c->carry[at + i] = c->send[at + i] - c->part[i];
    }
    if (!code)
        code = reduce_scatter(c, err);
    return code ? code : all_gather(c, turn * 8191 + c->me, err);
}

static void input_of(uint64_t seed, uint32_t rank, uint64_t first, float *out, size_t n)
{
    struct tu_rng rng = {.seed = seed, .stream = rank};
    tu_rng_normal(&rng, first, out, n);
}

/* Against the sum of all inputs in double, which every rank can make. */
static void judge(const struct run *c, uint64_t seed, struct tu_squeeze_result *o)
{
    double e2 = 0, w2 = 0, g2 = 0, gw = 0, e = 0, a2 = 0;
    float x[256];
    for (uint64_t at = 0; at < c->count; at += 256) {
        size_t n = (size_t)tu_min(256, c->count - at);
        double want[256] = {0};
        for (uint32_t q = 0; q < c->ranks; q++) {
            input_of(seed, q, at, x, n);
            for (size_t i = 0; i < n; i++)
                want[i] += x[i];
        }
        for (size_t i = 0; i < n; i++) {
            double got = c->out[at + i], off = got - want[i];
            double mean_off = c->mean[at + i] / o->steps - want[i];
            o->max_abs = fmax(o->max_abs, fabs(off));
            e += off;
            e2 += off * off;
            a2 += mean_off * mean_off;
            w2 += want[i] * want[i];
            g2 += got * got;
            gw += got * want[i];
        }
    }
    o->bias = c->count ? e / (double)c->count : 0;
    o->relative = w2 > 0 ? sqrt(e2 / w2) : 0;
    o->averaged = w2 > 0 ? sqrt(a2 / w2) : 0;
    o->cosine = w2 > 0 && g2 > 0 ? gw / sqrt(w2 * g2) : 1;
}

static int prepare(struct run *c, struct tu_err *err)
{
    c->each = tu_ceil_div(c->count, c->ranks);
    c->slot = tu_align(tu_squeeze_bytes(c->squeeze, c->each), 64) + 64;
    c->input = tu_calloc(4 * (c->count + 1), sizeof *c->input, err);
    c->sum = tu_calloc(2 * (c->each + 1), sizeof *c->sum, err);
    c->mean = tu_calloc(c->count + 1, sizeof *c->mean, err);
    c->wires = tu_calloc(2 * (uint64_t)c->ranks, c->slot, err);
    if (!c->input || !c->sum || !c->mean || !c->wires)
        return TU_ENOMEM;
    c->carry = c->input + c->count;
    c->send = c->carry + c->count;
    c->out = c->send + c->count;
    c->part = c->sum + c->each;
    c->got = c->wires + c->ranks * c->slot;
    return 0;
}

int tu_squeeze_run(struct tu_rank *r, const char *text, uint64_t count, uint32_t steps,
                   uint64_t seed, struct tu_squeeze_result *out, struct tu_err *err)
{
    struct run c = {
        .rank = r, .ranks = tu_rank_size(r), .me = tu_rank_id(r), .count = count};
    *out = (struct tu_squeeze_result){.count = count, .ranks = c.ranks, .steps = steps};
    int code = tu_squeeze_new(&c.squeeze, text, tu_ceil_div(count, c.ranks), seed, err);
    if (!code)
        code = prepare(&c, err);
    if (!code)
        input_of(seed, c.me, 0, c.input, (size_t)count);
    uint64_t before = tu_rank_traffic(r).bytes;
    for (uint32_t t = 0; t < steps && !code; t++) {
        double from = tu_clock();
        code = tu_rank_begin(r, err);
        if (!code)
            code = step(&c, t, err);
        out->seconds += (tu_clock() - from) / steps;
        for (uint64_t i = 0; i < count && !code; i++)
            c.mean[i] += c.out[i];
    }
    if (!code) {
        out->wire_bytes = (tu_rank_traffic(r).bytes - before) / steps;
        out->plain_bytes =
            2 * (count - tui_block_len(count, c.ranks, c.me)) * sizeof(float);
        judge(&c, seed, out);
    }
    tu_squeeze_free(c.squeeze);
    tu_free(c.input);
    tu_free(c.sum);
    tu_free(c.mean);
    tu_free(c.wires);
    return code;
}
