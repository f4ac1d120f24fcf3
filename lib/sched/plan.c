/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: price of a layout, and the search over all of them.
 *
 * Time of a step = compute of the busiest rank + what its communication leaves exposed +
 * bubble + gradients + update. The bubble of the best rows is that of the simulated
 * schedule, stage by stage; before that, for ranking, the formula of its family. Memory is
 * that of the fullest rank. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "sched/cost.h"
#include "sched/plan_stage.h"

#define SIMULATED 48        /* best rows whose bubble is simulated */
#define SIM_OPS_MAX 200000u /* and no larger schedules than this */
#define LAYERS_MAX 65535u
#define MEMORY_SHARE 0.94   /* of a device: the rest is the runtime's */

static const char too_full[] = "memory: more than 94 % of the device";

static const char *illegal(const struct tu_train_query *q,
                           const struct tu_layout_choice *a)
{
    const struct tu_model *m = q->model;
    const struct tui_family *f = tui_family_of(a->schedule);
    uint64_t n = (uint64_t)a->tp * a->pp * a->dp * a->cp;
    uint64_t stages = (uint64_t)a->pp * tui_chunks(a);
    if (n != q->cluster.gpus)
        return "tp·pp·dp·cp is not the number of devices";
    if (q->batch % ((uint64_t)a->mb * a->dp))
        return "the batch does not divide by micro-batch times dp";
    if (m->heads % a->tp)
        return "heads do not divide by tp";
    if (a->tp > q->cluster.per_node)
        return "tp spans nodes";
    if (!f->chunked && a->vpp != 1)
        return "this schedule has no chunks to choose";
    if (f->chunked && (a->vpp < 2 || a->pp < 2))
        return "interleaving needs two chunks and two stages";
    if (f->vee && a->pp < 2)
        return "a V needs two stages";
    if (q->uneven ? m->layers < stages : m->layers % stages)
        return q->uneven ? "fewer layers than stages" : "layers do not divide by stages";
    if (f->chunked && (q->batch / a->mb / a->dp) % a->pp)
        return "interleaving needs micro-batches in multiples of pp";
    if (q->seq % (2 * (uint64_t)a->cp) && a->cp > 1)
        return "the sequence does not divide by 2 cp";
    if (a->ep > 1 && (!m->experts || m->experts % a->ep || a->dp % a->ep))
        return "experts or dp do not divide by ep";
    if (q->overlap && q->overlap->experts && !m->experts)
        return "this overlap form needs experts";
    if (a->zero && a->dp < 2)
        return "ZeRO needs dp";
    if (a->zero > 1 && a->pp > 1)
        return "gradients are accumulated over micro-batches: ZeRO 2 and 3 need pp = 1";
    return NULL;
}

/* Everything a price is made of. */
struct price {
    const struct tu_train_query *q;
    struct tu_train_row *r;
    struct tu_train_stage *stage;
    size_t stages;
    struct tui_stage_time *time;  /* [stages] */
    struct tui_stage_time rank;   /* of the busiest rank, all its stages */
    double params;                /* of the rank with most, one device */
    uint32_t layers;              /* of that rank */
};

static void busiest(struct price *p)
{
    const struct tu_layout_choice *a = &p->r->at;
    double most = -1;
    for (uint32_t rank = 0; rank < a->pp; rank++) {
        struct tui_stage_time s = {0};
        double params = 0, experts;
        uint32_t layers = 0;
        for (size_t k = 0; k < p->stages; k++) {
            const struct tui_stage_time *t = &p->time[k];
            if (tui_rank_of(a, k) != rank)
                continue;
            s = (struct tui_stage_time){s.f + t->f,   s.i + t->i,   s.w + t->w,
                                        s.tp + t->tp, s.ep + t->ep, s.cp + t->cp};
            params += tui_stage_params(p->q, a, &p->stage[k], &experts);
            params += experts;
            layers += p->stage[k].layers + p->stage[k].encoder;
        }
        if (s.f + s.i + s.w > most) {
            most = s.f + s.i + s.w;
            p->rank = s;
        }
        if (params > p->params) {
            p->params = params;
            p->layers = layers ? layers : 1;
        }
    }
}

/* Seconds of an activation between two stages. */
static double hop(const struct tu_train_query *q, const struct tu_layout_choice *a)
{
    double tokens = (double)q->seq / a->cp * a->mb;
    return 2 * tokens * (double)q->model->hidden / a->tp / q->cluster.network_bs;
}

static void traffic(struct price *p, const struct tui_times *t)
{
    struct tu_train_row *r = p->r;
    const struct tu_train_query *q = p->q;
    const struct tu_layout_choice *a = &r->at;
    double mbs = (double)r->microbatches;
    double bytes = hop(q, a) * q->cluster.network_bs;
    uint64_t count[TU_LAYER_KINDS];
    tu_model_kinds(q->model, 0, q->model->layers, count);
    count[0] += q->model->mtp_layers;
    r->tp_bytes = r->ep_bytes = r->cp_bytes = 0;
    for (size_t k = 0; k < TU_LAYER_KINDS; k++) {
        double layers = (double)count[k] / a->pp * mbs;
        r->tp_bytes += t->kind[k].tp_bytes * layers;
        r->ep_bytes += t->kind[k].ep_bytes * layers;
        r->cp_bytes += t->kind[k].cp_bytes * layers;
    }
    r->pp_bytes = a->pp > 1 ? 2 * bytes * tui_chunks(a) * mbs : 0;
    double share = 2.0 * (a->dp - 1) / a->dp;
    r->dp_bytes = share * p->params * 4;
    if (a->zero == 3) /* parameters there and back, for each micro-batch */
        r->dp_bytes += share * p->params * 2 * mbs;
    bool inside = (uint64_t)a->dp * a->tp <= q->cluster.per_node;
    r->dp_s = r->dp_bytes / (inside ? q->cluster.link_bs : q->cluster.network_bs);
    /* One transfer there and back is exposed for each hop of the warm-up and cool-down.
     */
    r->pp_s = a->pp > 1 ? 2 * (a->pp - 1) * hop(q, a) : 0;
}

/* Operations of a token's attention scores and what they weigh, in all layers. */
static double scores(const struct tu_model *m, double seq)
{
    uint64_t count[TU_LAYER_KINDS];
    double sum = 0;
    tu_model_kinds(m, 0, m->layers, count);
    for (unsigned k = 0; k < TU_LAYER_KINDS; k++) {
        struct tu_model of_kind = tui_kind(m, k);
        if (!of_kind.delta_value_heads)
            sum += (double)count[k] * tui_mix_flops(&of_kind, seq);
    }
    return sum;
}

static void finish(struct tu_train_row *r, const struct tu_train_query *q)
{
    r->step_s = r->compute_s + r->tp_s + r->ep_s + r->cp_s + r->bubble_s + r->pp_s +
                r->dp_s + r->update_s;
    double peak = (double)q->cluster.gpus * q->cluster.flops * r->step_s;
    double batch = (double)q->batch, seq = (double)q->seq;
    r->mfu = tu_train_step_flops(q->model, batch, seq, false) / peak;
    const struct tu_model *m = q->model;
    double again = 0; /* what is computed a second time */
    if (r->at.recompute == TU_RECOMPUTE_FULL)
        again = tu_train_step_flops(m, batch, seq, true) -
                tu_train_step_flops(m, batch, seq, false);
    else if (r->at.recompute == TU_RECOMPUTE_SELECTIVE)
        again = batch * seq * scores(m, seq);
    r->hfu = r->mfu + again / peak;
}

static int open_price(struct price *p, struct tu_train_row *r,
                      const struct tu_train_query *q, struct tu_err *err)
{
    struct tui_times t;
    *p = (struct price){.q = q, .r = r};
    int rc = tu_train_stages(&p->stage, &p->stages, q, &r->at, err);
    if (rc)
        return rc;
    p->time = tu_alloc(p->stages, sizeof *p->time, err);
    if (!p->time)
        return TU_ENOMEM;
    tui_times_of(&t, q, &r->at);
    for (size_t k = 0; k < p->stages; k++)
        p->time[k] = tui_stage_time(&t, q, &r->at, &p->stage[k]);
    busiest(p);
    traffic(p, &t);
    return 0;
}

static void close_price(struct price *p)
{
    tu_free(p->stage);
    tu_free(p->time);
}

int tu_train_price(struct tu_train_row *r, const struct tu_train_query *q,
                   const struct tu_layout_choice *at, struct tu_err *err)
{
    struct price p;
    *r = (struct tu_train_row){.at = *at};
    r->why_not = illegal(q, at);
    if (r->why_not)
        return 0;
    const struct tui_family *f = tui_family_of(at->schedule);
    r->microbatches = q->batch / at->mb / at->dp;
    int rc = open_price(&p, r, q, err);
    if (!rc) {
        double mbs = (double)r->microbatches, v = f->chunked ? at->vpp : 1;
        const struct tui_stage_time *s = &p.rank;
        tui_memory_of(r, q, p.stage, p.stages);
        r->tp_s = s->tp * mbs;
        r->ep_s = s->ep * mbs;
        r->cp_s = s->cp * mbs;
        r->compute_s = mbs * (s->f + s->i + s->w) - r->tp_s - r->ep_s - r->cp_s;
        r->bubble_s =
            (at->pp - 1) / v * fmax(0, f->f * s->f + f->i * s->i + f->w * s->w);
        double mine = at->zero ? p.params / at->dp : p.params;
        r->update_s = tui_update_estimate(at->offload, &q->cluster, mine, p.layers,
                                          s->i + s->w);
        r->cpu_share = tui_cpu_share(at->offload, &q->cluster);
        finish(r, q);
        if (r->memory_bytes > (double)q->cluster.memory * MEMORY_SHARE)
            r->why_not = too_full;
    }
    close_price(&p);
    return rc;
}

/* Whole ns; of what no step can be made of, as many as a schedule is refused for. */
static int64_t nanoseconds(double s)
{
    return llround(fmin(s * 1e9, (double)TUI_TICKS_MAX));
}

/* The makespan of the schedule in seconds, each stage with its own time; 0 when it cannot
 * be made. */
static int makespan(double *seconds, double *ideal, const struct price *p,
                    double transfer, struct tu_err *err)
{
    const struct tu_layout_choice *a = &p->r->at;
    struct tu_cost c;
    struct tu_sched *sched = NULL;
    struct tu_sim sim = {0};
    size_t faults = 0, n = p->stages;
    *seconds = 0;
    tu_cost_init(&c);
    c.transfer[0] = c.transfer[1] = nanoseconds(transfer);
    c.stages = (uint32_t)n;
    c.stage_time = tu_alloc((TU_OP_W + 1) * n, sizeof *c.stage_time, err);
    if (!c.stage_time)
        return TU_ENOMEM;
    for (size_t k = 0; k < n; k++) {
        c.stage_time[TU_OP_F * n + k] = nanoseconds(p->time[k].f);
        c.stage_time[TU_OP_I * n + k] = nanoseconds(p->time[k].i);
        c.stage_time[TU_OP_W * n + k] = nanoseconds(p->time[k].w);
        c.stage_time[TU_OP_B * n + k] = -1;
    }
    struct tu_sched_params q = {.p = a->pp,
                                .m = (uint32_t)p->r->microbatches,
                                .v = tui_chunks(a),
                                .cost = &c};
    int rc = tu_schedule_make(&sched, tu_schedule_find(a->schedule), &q, err);
    if (!rc)
        rc = tu_sim_run(&sim, sched, &c, NULL, &faults, err);
    if (!rc && !faults) {
        *seconds = (double)sim.makespan * 1e-9;
        *ideal = (double)sim.ideal * 1e-9;
    }
    tu_sim_release(&sim);
    tu_sched_free(sched);
    tu_cost_release(&c);
    return rc == TU_EUSAGE || rc == TU_ESIZE ? 0 : rc;
}

/* Bubble and transfers of the schedule itself, and the update's own simulation, in place
 * of the formulas. */
static int simulate(struct tu_train_row *r, const struct tu_train_query *q,
                    struct tu_err *err)
{
    struct price p;
    double still, moving, ideal;
    bool small = r->microbatches <= TU_SCHED_MAX &&
                 (uint64_t)r->at.pp * tui_chunks(&r->at) * r->microbatches * 3 <=
                     SIM_OPS_MAX;
    int rc = open_price(&p, r, q, err);
    if (!rc && r->at.pp > 1 && small) {
        rc = makespan(&still, &ideal, &p, 0, err);
        if (!rc && still > 0)
            rc = makespan(&moving, &ideal, &p, hop(q, &r->at), err);
        if (!rc && still > 0 && moving > 0) {
            r->bubble_s = fmax(still - ideal, 0);
            r->pp_s = moving - still;
            r->simulated = true;
        }
    }
    if (!rc)
        rc = tu_update_run(&r->update_s, &r->cpu_share, r->at.offload, &q->cluster,
                           r->at.zero ? p.params / r->at.dp : p.params, p.layers,
                           p.rank.i + p.rank.w, err);
    if (!rc)
        finish(r, q);
    close_price(&p);
    return rc;
}

static int by_time(const void *a, const void *b)
{
    const struct tu_train_row *x = a, *y = b;
    if (!x->why_not != !y->why_not)
        return x->why_not ? 1 : -1;
    if (x->step_s < y->step_s || x->step_s > y->step_s)
        return x->step_s < y->step_s ? -1 : 1;
    if (x->memory_bytes < y->memory_bytes || x->memory_bytes > y->memory_bytes)
        return x->memory_bytes < y->memory_bytes ? -1 : 1;
    return memcmp(&x->at.tp, &y->at.tp, 7 * sizeof x->at.tp);
}

struct search {
    const struct tu_train_query *q;
    struct tu_train_plan *out;
    size_t cap;
};

/* One more was rejected for this. */
static void count(struct tu_train_reason *reason, const char *why_not)
{
    size_t i = 0;
    while (i < TU_TRAIN_REASONS - 1 && reason[i].why_not &&
           strcmp(reason[i].why_not, why_not))
        i++;
    reason[i].why_not = why_not;
    reason[i].layouts++;
    for (; i && reason[i - 1].layouts < reason[i].layouts; i--) {
        struct tu_train_reason r = reason[i];
        reason[i] = reason[i - 1];
        reason[i - 1] = r;
    }
}

static int add(struct search *s, const struct tu_layout_choice *at, bool *full,
               struct tu_err *err)
{
    struct tu_train_row r;
    s->out->considered++;
    int rc = tu_train_price(&r, s->q, at, err);
    *full = !rc && r.why_not == too_full;
    if (!rc && r.why_not)
        count(s->out->reason, r.why_not);
    if (rc || (r.why_not && !s->q->all))
        return rc;
    rc = TU_GROW(&s->out->row, &s->cap, s->out->n, err);
    if (!rc)
        s->out->row[s->out->n++] = r;
    return rc;
}

/* State goes to the host only where the device is too small for it. */
static int with_offload(struct search *s, struct tu_layout_choice *at, struct tu_err *err)
{
    bool full, still;
    at->offload = TU_OFFLOAD_NONE;
    int rc = 0;
    if (!s->q->offloads || s->q->offloads & 1u << TU_OFFLOAD_NONE)
        rc = add(s, at, &full, err);
    else
        full = true;
    for (int k = TU_OFFLOAD_CPU; k < TU_OFFLOADS && full && !rc; k++) {
        at->offload = (enum tu_offload)k;
        if (s->q->offloads & 1u << k)
            rc = add(s, at, &still, err);
    }
    at->offload = TU_OFFLOAD_NONE;
    return rc;
}

/* Everything that remains once the degrees are chosen. */
static int variants(struct search *s, struct tu_layout_choice *at, struct tu_err *err)
{
    uint32_t max_vpp = s->q->max_vpp ? s->q->max_vpp : 8;
    int rc = 0;
    for (const struct tui_family *f = tui_families; f->name && !rc; f++) {
        if (at->pp == 1 && f != tui_families)
            continue;
        at->schedule = f->name;
        for (at->vpp = f->chunked ? 2 : 1; at->vpp <= (f->chunked ? max_vpp : 1) && !rc;
             at->vpp++)
            for (int rec = TU_RECOMPUTE_NONE; rec <= TU_RECOMPUTE_FULL && !rc; rec++)
                for (at->zero = 0; at->zero <= 3 && !rc; at->zero++) {
                    at->recompute = (enum tu_recompute)rec;
                    rc = with_offload(s, at, err);
                }
    }
    return rc;
}

static int degrees(struct search *s, struct tu_err *err)
{
    const struct tu_train_query *q = s->q;
    uint64_t n = q->cluster.gpus;
    uint32_t max_tp = q->max_tp ? q->max_tp : (uint32_t)tu_min(q->cluster.per_node, 64);
    uint32_t max_pp = q->max_pp ? q->max_pp : (uint32_t)tu_min(q->model->layers, 128);
    uint32_t max_cp = q->max_cp ? q->max_cp : q->seq > 32768 ? 16 : 1;
    uint32_t max_mb = q->max_mb ? q->max_mb : 8;
    struct tu_layout_choice at = {.ep = 1};
    int rc = 0;
    for (at.tp = 1; at.tp <= max_tp && !rc; at.tp *= 2)
        for (at.pp = 1; at.pp <= max_pp && !rc; at.pp++)
            for (at.cp = 1; at.cp <= max_cp && !rc; at.cp *= 2) {
                uint64_t used = (uint64_t)at.tp * at.pp * at.cp;
                if (n % used || n / used > UINT32_MAX)
                    continue;
                at.dp = (uint32_t)(n / used);
                for (at.ep = 1;
                     at.ep <= (q->model->experts ? q->model->experts : 1) && !rc;
                     at.ep *= 2)
                    for (at.mb = 1; at.mb <= max_mb && !rc; at.mb *= 2)
                        rc = variants(s, &at, err);
            }
    return rc;
}

int tu_train_make(struct tu_train_plan *out, const struct tu_train_query *q,
                  struct tu_err *err)
{
    struct search s = {.q = q, .out = out};
    *out = (struct tu_train_plan){0};
    if (!q->model->layers || !q->model->hidden || !q->model->heads || !q->batch ||
        !q->seq || !q->cluster.gpus || !(q->cluster.flops > 0) ||
        !(q->cluster.efficiency > 0))
        return tu_fail(
            err, TU_EUSAGE,
            "plan: layers, hidden, heads, batch, sequence and devices must be given");
    const struct tu_model *m = q->model;
    if (m->layers > LAYERS_MAX || (!m->head_dim || !m->kv_heads || m->heads % m->kv_heads))
        return tu_fail(err, TU_EUSAGE,
                       "plan: %llu layers (at most %u), %llu heads of %llu in %llu groups: "
                       "no such model",
                       (unsigned long long)m->layers, LAYERS_MAX,
                       (unsigned long long)m->heads, (unsigned long long)m->head_dim,
                       (unsigned long long)m->kv_heads);
    const struct tu_cluster *c = &q->cluster;
    if (!(c->efficiency <= 1))
        return tu_fail(err, TU_EUSAGE, "plan: an efficiency of %g: over 1", c->efficiency);
    if (q->offloads & ~1u && !(c->host_bs > 0 && c->ssd_bs > 0 && c->cpu_update > 0 &&
                               c->cpu_convert > 0))
        return tu_fail(err, TU_EUSAGE,
                       "plan: offloading needs rates of the host, its CPU and its SSD");
    struct tu_train_query with = *q;
    bool full;
    with.memo = tu_calloc(1, sizeof *with.memo, err);
    if (!with.memo)
        return TU_ENOMEM;
    s.q = q = &with;
    int rc = q->only ? add(&s, q->only, &full, err) : degrees(&s, err);
    if (!rc && out->n)
        qsort(out->row, out->n, sizeof *out->row, by_time);
    while (out->legal < out->n && !out->row[out->legal].why_not)
        out->legal++;
    for (size_t k = 0; k < out->legal && k < SIMULATED && !rc; k++)
        rc = simulate(&out->row[k], q, err);
    if (!rc && out->n)
        qsort(out->row, out->n, sizeof *out->row, by_time);
    tu_free(with.memo);
    if (rc)
        tu_train_release(out);
    return rc;
}

void tu_train_release(struct tu_train_plan *p)
{
    tu_free(p->row);
    *p = (struct tu_train_plan){0};
}
