/* SPDX-License-Identifier: Apache-2.0 */
/* place_swarm.c: pipe-sched place for a swarm: peers that come and go, simulated. */
#include <inttypes.h>
#include "pipe-sched/place.h"

#define SECONDS_MAX 1e8

struct peers {
    struct tu_swarm_peer *of;
    size_t n, cap;
    uint32_t stages;
};

static int peer_line(const struct place_line *l, void *to, struct tu_err *err)
{
    struct peers *p = to;
    double stage, v[3] = {0, 0, 0};
    int rc = place_number(l->cell[0], 0, 4095, &stage, err);
    for (size_t i = 1; i < l->n && !rc; i++)
        rc = place_number(l->cell[i], i == 1 ? 1e-6 : 0, SECONDS_MAX, &v[i - 1], err);
    if (!rc)
        rc = l->n > 3 && v[2] < v[1] ? tu_fail(err, TU_EFORMAT, "it fails before it joins")
                                     : TU_GROW(&p->of, &p->cap, p->n, err);
    if (rc)
        return rc;
    p->of[p->n++] = (struct tu_swarm_peer){
        .stage = (uint32_t)stage,
        .service = (int64_t)(v[0] * 1e9),
        .join = (int64_t)(v[1] * 1e9),
        .fail = l->n > 3 ? (int64_t)(v[2] * 1e9) : INT64_MAX,
    };
    p->stages = (uint32_t)stage + 1 > p->stages ? (uint32_t)stage + 1 : p->stages;
    return 0;
}

static const struct tu_column columns[] = {
    {"stage", "STAGE", TU_COL_U64, 6},
    {"peers", "PEERS", TU_COL_U64, 6},
    {"served", "SERVED", TU_COL_U64, 10},
    {"load", "MEAN_LOAD", TU_COL_REAL, 10},
    {0},
};

static void show(struct tu_ctx *ctx, const struct tu_swarm *q,
                 const struct tu_swarm_run *r, const struct tu_swarm_stage *stage)
{
    double end = (double)r->end * 1e-9;
    tu_rows_begin(ctx, columns);
    for (uint32_t k = 0; k < q->stages; k++)
        tu_row(ctx, (const struct tu_cell[]){{.u = k},
                                             {.u = stage[k].peers},
                                             {.u = stage[k].served},
                                             {.f = stage[k].load}});
    tu_rows_end(ctx);
    struct tu_jw *w = tu_line_begin(ctx);
    if (w) {
        tu_jw_u64(w, "done", r->done);
        tu_jw_u64(w, "batches", q->batches);
        tu_jw_real(w, "end_s", end);
        tu_jw_real(w, "bound_s", (double)r->bound * 1e-9);
        tu_jw_u64(w, "failures", r->failures);
        tu_jw_u64(w, "rerouted", r->rerouted);
        tu_jw_u64(w, "moved", r->moved);
        tu_line_end(ctx);
    }
    tu_print(ctx,
             "%" PRIu64 " of %" PRIu64 " micro-batches in %.6g s, %.6g a second; the "
             "weakest stage alone, without failures: %.6g s\n"
             "%" PRIu64 " failures, %" PRIu64 " sent elsewhere, %" PRIu64
             " peers moved (tensorutils definition of SWARM)\n",
             r->done, q->batches, end, end > 0 ? (double)r->done / end : 0,
             (double)r->bound * 1e-9, r->failures, r->rerouted, r->moved);
}

static int run(struct tu_ctx *ctx, const char *path, struct tu_err *err)
{
    struct peers p = {0};
    struct tu_swarm_run r;
    int rc = place_lines(path, 2, 4, "STAGE,SECONDS[,JOIN[,FAIL]]", peer_line, &p, err);
    if (!rc && !p.n)
        rc = tu_fail(err, TU_EFORMAT, "%s: no peer", path);
    struct tu_swarm q = {.peer = p.of,
                         .peers = p.n,
                         .stages = p.stages,
                         .clients = (uint32_t)tu_min(place_opt.clients, UINT32_MAX),
                         .batches = place_opt.batches,
                         .seed = ctx->seed};
    const struct {
        uint64_t ns;
        int64_t *to;
    } times[] = {
        {place_opt.transfer, &q.transfer}, {place_opt.rebalance, &q.rebalance},
        {place_opt.move, &q.move},         {place_opt.life, &q.mean_failure},
        {place_opt.repair, &q.repair},
    };
    for (size_t k = 0; k < sizeof times / sizeof *times && !rc; k++) {
        *times[k].to = (int64_t)times[k].ns;
        if ((double)times[k].ns > SECONDS_MAX * 1e9)
            rc = tu_fail(err, TU_EUSAGE, "place: swarm: a time above %g s", SECONDS_MAX);
    }
    struct tu_swarm_stage *stage =
        rc ? NULL : tu_calloc(p.stages, sizeof *stage, err);
    if (!rc)
        rc = stage ? tu_swarm_run(&r, stage, &q, err) : TU_ENOMEM;
    if (!rc)
        show(ctx, &q, &r, stage);
    if (!rc && r.done < q.batches)
        ctx->status = TU_STATUS_NO;
    tu_free(p.of);
    tu_free(stage);
    return rc;
}

static const char *const swarm_options[] = {"clients", "microbatches", "transfer",
                                            "rebalance", "move", "life", "repair", NULL};

const struct place_method place_swarm = {
    "swarm", "peers that come and go, simulated (SWARM)", run, swarm_options,
    "life", false};
