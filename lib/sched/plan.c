/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: price of a layout, and the search over all of them.
 *
 * Time of a step = (compute + exposed tensor parallelism) of all micro-batches + bubble +
 * what is left of data parallelism. The bubble of the best rows is that of the simulated
 * schedule; before that, for ranking, the formula of its family. Memory is that of the
 * most loaded stage: embedding or head, its layers, activations of the micro-batches in
 * flight. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tensorutils/sched.h"
#include "tensorutils/sched/plan.h"

#define SIMULATED 48        /* best rows whose bubble is simulated */
#define SIM_OPS_MAX 200000u /* and no larger schedules than this */

/* Families that a plan chooses from: bubble in (F, I, W) times (p-1)/v, activations in
 * flight. */
static const struct family {
    const char *name;
    bool chunked, vee;
    double f, i, w;
} families[] = {
    {"1f1b", false, false, 1, 1, 1},
    {"interleaved-1f1b", true, false, 1, 1, 1},
    {"zb-h1", false, false, 1, 1, -1},
    {"zb-v", false, true, 0.1, 0.1, -0.1},
};

static const struct family *family_of(const char *name)
{
    for (size_t k = 0; k < sizeof families / sizeof *families; k++)
        if (!strcmp(families[k].name, name))
            return &families[k];
    return &families[0];
}

static double in_flight(const struct family *f, double p, double v, double m)
{
    if (p <= 1)
        return 1;
    double most = f->chunked ? p * (1 + (p - 1) / (p * v)) : p;
    return most < m ? most : m;
}

static const char *illegal(const struct tu_train_query *q,
                           const struct tu_layout_choice *a)
{
    const struct tu_model *m = q->model;
    const struct family *f = family_of(a->schedule);
    uint64_t n = (uint64_t)a->tp * a->pp * a->dp * a->cp;
    if (n != q->cluster.gpus)
        return "tp·pp·dp·cp is not the number of devices";
    if (q->batch % ((uint64_t)a->mb * a->dp))
        return "the batch does not divide by micro-batch times dp";
    if (m->heads % a->tp)
        return "heads do not divide by tp";
    if (a->tp > q->cluster.per_node)
        return "tp spans nodes";
    uint32_t v = f->vee ? 2 : a->vpp;
    if (!f->chunked && a->vpp != 1)
        return "this schedule has no chunks to choose";
    if (f->chunked && (a->vpp < 2 || a->pp < 2))
        return "interleaving needs two chunks and two stages";
    if (f->vee && a->pp < 2)
        return "a V needs two stages";
    if (m->layers % ((uint64_t)a->pp * v))
        return "layers do not divide by stages";
    if (f->chunked && (q->batch / a->mb / a->dp) % a->pp)
        return "interleaving needs micro-batches in multiples of pp";
    if (q->seq % (2 * (uint64_t)a->cp) && a->cp > 1)
        return "the sequence does not divide by 2 cp";
    if (a->ep > 1 && (!m->experts || m->experts % a->ep || a->dp % a->ep))
        return "experts or dp do not divide by ep";
    if (a->zero && a->dp < 2)
        return "ZeRO needs dp";
    if (a->zero > 1 && a->pp > 1)
        return "gradients are accumulated over micro-batches: ZeRO 2 and 3 need pp = 1";
    return NULL;
}

static double state_bytes(const struct tu_layout_choice *a)
{
    double d = a->dp, optimizer = a->offload ? 0 : 12;
    switch (a->zero) {
    case 0: return 6 + optimizer;
    case 1: return 6 + optimizer / d;
    case 2: return 2 + (4 + optimizer) / d;
    default: return (6 + optimizer) / d;
    }
}

static void memory(struct tu_train_row *r, const struct tu_train_query *q)
{
    const struct tu_model *m = q->model;
    const struct tu_layout_choice *a = &r->at;
    const struct family *f = family_of(a->schedule);
    double p = a->pp, t = a->tp, layers = (double)m->layers / p;
    double embed = (double)m->vocab * (double)m->hidden;
    double dense = tu_train_layer_params(m), experts = 0;
    if (m->experts) {
        struct tu_model none = *m;
        none.experts =
            1; /* one expert and its router row: the difference is the experts' */
        experts = (dense - tu_train_layer_params(&none)) * (double)m->experts /
                  (double)(m->experts - 1 ? m->experts - 1 : 1);
        dense -= experts;
    }
    /* The first stage has the embedding, the last the head; a V and one stage have both.
     */
    bool both = a->pp == 1 || f->vee;
    double most = layers * (dense + experts / a->ep) + embed * (both && !m->tied ? 2 : 1);
    r->state_bytes = most / t * state_bytes(a);
    double v = f->chunked ? a->vpp : 1;
    r->activation_bytes = in_flight(f, p, v, (double)r->microbatches) * layers *
                          tu_train_layer_bytes(m, (double)q->seq / a->cp, a->mb, t,
                                               q->sequence_parallel, a->recompute);
    if (a->recompute == TU_RECOMPUTE_FULL) /* one layer at a time is whole again */
        r->activation_bytes += tu_train_layer_bytes(
            m, (double)q->seq / a->cp, a->mb, t, q->sequence_parallel, TU_RECOMPUTE_NONE);
    if (both)
        r->logit_bytes = 4 * (double)q->seq / a->cp * a->mb / t *
                         ((double)m->hidden + (double)m->vocab);
    r->memory_bytes = r->state_bytes + r->activation_bytes + r->logit_bytes;
}

/* Times of one stage and micro-batch: forward, input and weight gradient, seconds. */
struct stage_times {
    double f, i, w, tp;
};

static struct stage_times stage_of(const struct tu_train_query *q,
                                   const struct tu_layout_choice *a)
{
    const struct tu_model *m = q->model;
    double tokens = (double)q->seq / a->cp * a->mb, h = (double)m->hidden;
    double whole = tu_train_step_flops(m, a->mb, (double)q->seq, false) / 3;
    double rate = q->cluster.flops * q->cluster.efficiency;
    double f = whole / a->cp / a->tp / a->pp / rate;
    double qdim = (double)(m->heads * m->head_dim);
    double att =
        4 * (double)q->seq * qdim * tokens * (double)m->layers / a->tp / a->pp / rate;
    struct stage_times s = {.f = f, .i = f + att, .w = f - att};
    if (a->recompute == TU_RECOMPUTE_FULL)
        s.i += f;
    else if (a->recompute == TU_RECOMPUTE_SELECTIVE)
        s.i += att;
    double bytes = 8 * tokens * h * (a->tp - 1) / a->tp * 2; /* bf16, of a layer */
    s.tp = bytes * (double)m->layers / a->pp / q->cluster.link_bs;
    return s;
}

static void traffic(struct tu_train_row *r, const struct tu_train_query *q,
                    const struct stage_times *s)
{
    const struct tu_layout_choice *a = &r->at;
    const struct tu_model *m = q->model;
    double mbs = (double)r->microbatches, tokens = (double)q->seq / a->cp * a->mb;
    uint32_t v = family_of(a->schedule)->vee ? 2 : a->vpp;
    r->tp_bytes = s->tp * q->cluster.link_bs * mbs;
    r->tp_s = s->tp * mbs;
    r->pp_bytes = a->pp > 1 ? 2 * 2 * tokens * (double)m->hidden / a->tp * v * mbs : 0;
    double params = tu_train_params(m) / a->tp / a->pp;
    r->dp_bytes = 2.0 * (a->dp - 1) / a->dp * params * 4;
    bool inside = (uint64_t)a->dp * a->tp <= q->cluster.per_node;
    r->dp_s = r->dp_bytes / (inside ? q->cluster.link_bs : q->cluster.network_bs);
    /* One transfer there and back is exposed for each hop of the warm-up and cool-down.
     */
    double hop = 2 * tokens * (double)m->hidden / a->tp / q->cluster.network_bs;
    r->pp_s = a->pp > 1 ? 2 * (a->pp - 1) * hop : 0;
}

static void finish(struct tu_train_row *r, const struct tu_train_query *q)
{
    r->step_s = r->compute_s + r->tp_s + r->bubble_s + r->pp_s + r->dp_s;
    double peak = (double)q->cluster.gpus * q->cluster.flops * r->step_s;
    double batch = (double)q->batch, seq = (double)q->seq;
    r->mfu = tu_train_step_flops(q->model, batch, seq, false) / peak;
    r->hfu = r->at.recompute == TU_RECOMPUTE_FULL
                 ? tu_train_step_flops(q->model, batch, seq, true) / peak
                 : r->mfu;
}

void tu_train_price(struct tu_train_row *r, const struct tu_train_query *q,
                    const struct tu_layout_choice *at)
{
    *r = (struct tu_train_row){.at = *at};
    r->why_not = illegal(q, at);
    if (r->why_not)
        return;
    const struct family *f = family_of(at->schedule);
    struct stage_times s = stage_of(q, at);
    r->microbatches = q->batch / at->mb / at->dp;
    memory(r, q);
    traffic(r, q, &s);
    r->compute_s = (double)r->microbatches * (s.f + s.i + s.w);
    double v = f->chunked ? at->vpp : 1, both = s.tp / 2;
    r->bubble_s = (at->pp - 1) / v *
                  fmax(0, f->f * (s.f + both) + f->i * (s.i + both) + f->w * s.w);
    finish(r, q);
    if (r->memory_bytes > (double)q->cluster.memory * 0.94)
        r->why_not = "memory: more than 94 % of the device";
}

/* The schedule itself, in nanoseconds, in place of the formula. */
static int simulate(struct tu_train_row *r, const struct tu_train_query *q,
                    struct tu_err *err)
{
    const struct family *f = family_of(r->at.schedule);
    struct stage_times s = stage_of(q, &r->at);
    uint32_t v = f->vee ? 2 : r->at.vpp;
    struct tu_cost c;
    struct tu_sched *sched = NULL;
    struct tu_sim sim = {0};
    size_t faults = 1;
    if (r->at.pp < 2 || r->microbatches > TU_SCHED_MAX ||
        (uint64_t)r->at.pp * v * r->microbatches * 3 > SIM_OPS_MAX)
        return 0;
    tu_cost_init(&c);
    c.time[TU_OP_F] = llround((s.f + s.tp / 2) * 1e9 / v);
    c.time[TU_OP_I] = llround((s.i + s.tp / 2) * 1e9 / v);
    c.time[TU_OP_W] = llround(s.w * 1e9 / v);
    struct tu_sched_params p = {
        .p = r->at.pp, .m = (uint32_t)r->microbatches, .v = v, .cost = &c};
    int rc = tu_schedule_make(&sched, tu_schedule_find(r->at.schedule), &p, err);
    if (!rc)
        rc = tu_sim_run(&sim, sched, &c, NULL, &faults, err);
    if (!rc && !faults) {
        r->bubble_s = (double)(sim.makespan - sim.ideal) * 1e-9;
        finish(r, q);
    }
    tu_sim_release(&sim);
    tu_sched_free(sched);
    return rc == TU_EUSAGE ? 0 : rc;
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

static int add(struct search *s, const struct tu_layout_choice *at, struct tu_err *err)
{
    struct tu_train_row r;
    s->out->considered++;
    tu_train_price(&r, s->q, at);
    if (r.why_not && !s->q->all)
        return 0;
    int rc = TU_GROW(&s->out->row, &s->cap, s->out->n, err);
    if (!rc)
        s->out->row[s->out->n++] = r;
    return rc;
}

/* Everything that remains once the degrees are chosen. */
static int variants(struct search *s, struct tu_layout_choice *at, struct tu_err *err)
{
    uint32_t max_vpp = s->q->max_vpp ? s->q->max_vpp : 8;
    int rc = 0;
    for (size_t k = 0; k < sizeof families / sizeof *families && !rc; k++) {
        if (at->pp == 1 && k)
            continue;
        at->schedule = families[k].name;
        for (at->vpp = families[k].chunked ? 2 : 1;
             at->vpp <= (families[k].chunked ? max_vpp : 1) && !rc; at->vpp++)
            for (int rec = TU_RECOMPUTE_NONE; rec <= TU_RECOMPUTE_FULL && !rc; rec++)
                for (at->zero = 0; at->zero <= 3 && !rc; at->zero++) {
                    at->recompute = (enum tu_recompute)rec;
                    rc = add(s, at, err);
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
    int rc = q->only ? add(&s, q->only, err) : degrees(&s, err);
    if (!rc && out->n)
        qsort(out->row, out->n, sizeof *out->row, by_time);
    while (out->legal < out->n && !out->row[out->legal].why_not)
        out->legal++;
    for (size_t k = 0; k < out->legal && k < SIMULATED && !rc; k++)
        rc = simulate(&out->row[k], q, err);
    if (!rc && out->n)
        qsort(out->row, out->n, sizeof *out->row, by_time);
    if (rc)
        tu_train_release(out);
    return rc;
}

void tu_train_release(struct tu_train_plan *p)
{
    tu_free(p->row);
    *p = (struct tu_train_plan){0};
}
