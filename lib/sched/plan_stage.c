/* SPDX-License-Identifier: Apache-2.0 */
/* plan_stage.c: stages of a layout: which layers they hold, what those take, how much
 * memory the ranks need.
 *
 * Layers are of a few kinds, which alternate by a rule of the model. The first stage adds the
 * vision encoder and the embedding, the last the head, the loss and what predicts further tokens.
 * Split evenly, or so that the longest stage is shortest. */
#include <math.h>
#include <string.h>
#include "sched/plan_stage.h"
#include "tensorutils/sched/split.h"

static double flushed(double p, double v, double m, double rank)
{
    (void)v;
    return fmin(m, p - rank);
}

static double chunked(double p, double v, double m, double rank)
{
    return fmin(m, (fmin(m * v, 2 * (p - 1 - rank) + (v - 1) * p) + 1) / v);
}

static double all(double p, double v, double m, double rank)
{
    (void)v, (void)rank;
    return fmin(m, p);
}

static double half(double p, double v, double m, double rank)
{
    (void)v, (void)rank;
    return fmin(m, floor((p + 2) / 2));
}

const struct tui_family tui_families[] = {
    {"1f1b", false, false, 1, 1, 1, flushed},
    {"interleaved-1f1b", true, false, 1, 1, 1, chunked},
    {"zb-h1", false, false, 1, 1, -1, all},
    {"zb-v", false, true, 0.1, 0.1, -0.1, all},
    {"v-half", false, true, 0.5, 0.5, 0.5, half},
    {0},
};

const struct tui_family *tui_family_of(const char *name)
{
    for (const struct tui_family *f = tui_families; f->name; f++)
        if (!strcmp(f->name, name))
            return f;
    return &tui_families[0];
}

uint32_t tui_chunks(const struct tu_layout_choice *a)
{
    return tui_family_of(a->schedule)->vee ? 2 : a->vpp;
}

uint32_t tui_rank_of(const struct tu_layout_choice *a, size_t stage)
{
    uint32_t p = a->pp, k = (uint32_t)(stage % p);
    return tui_family_of(a->schedule)->vee && stage >= p ? p - 1 - k : k;
}

/* Times
 * ------------------------------------------------------------------------------- */

/* Seconds of an all-to-all, one way, of a layer's tokens on a device. */
static double all_to_all(const struct tu_train_query *q, const struct tu_layout_choice *a,
                         double tokens, double *bytes)
{
    const struct tu_model *m = q->model;
    double share = q->sequence_parallel ? a->tp : 1;
    if (a->ep < 2)
        return *bytes = 0;
    *bytes = 2 * tokens / share * (double)(m->top_k * m->hidden) * (a->ep - 1) / a->ep;
    bool inside = (uint64_t)a->ep * a->tp <= q->cluster.per_node;
    return *bytes / (inside ? q->cluster.link_bs : q->cluster.network_bs);
}

/* A layer of this model of one kind, with what its communication takes filled in. `per`:
 * seconds of an operation for each token. */
static struct tui_kind compute_of(const struct tu_model *m, struct tu_layer f, double per,
                                  double quad, enum tu_recompute again)
{
    double h = (double)m->hidden;
    double width = (double)(m->experts && m->expert_ffn ? m->expert_ffn : m->ffn);
    double routed = (m->experts ? (double)m->top_k : 1) * width;
    double gated = m->gated ? 3 : 2, linear = per * 2 * tui_attention_weights(m);
    f.attention = linear + quad;
    f.mlp = per * 2 * gated * h * routed;
    f.shared = per * 2 * gated * h * (double)m->shared_ffn;
    f.gate = per * 2 * h * (double)m->experts;
    f.out = per * 2 * h * tui_attention_width(m);
    f.down = per * 2 * h * routed;
    struct tui_kind k = {.forward = f, .gradient = f};
    k.gradient.attention += quad;
    k.weight = linear + f.mlp + f.shared;
    if (again == TU_RECOMPUTE_FULL) {
        k.gradient.attention += f.attention;
        k.gradient.mlp += f.mlp;
        k.gradient.shared += f.shared;
    } else if (again == TU_RECOMPUTE_SELECTIVE && !m->delta_value_heads) {
        k.gradient.attention += quad;
    }
    return k;
}

/* What context parallelism sends for a layer, one way, on a device: keys and values, all of
 * them or the last window's, or a state in f32. */
static double context_bytes(const struct tu_model *m, const struct tu_layout_choice *a,
                            double tokens)
{
    double others = tokens * (a->cp - 1), kv = (double)(m->kv_heads * m->head_dim);
    if (m->delta_value_heads)
        return a->cp > 1 ? 4 * tui_delta_state(m) * a->mb / a->tp : 0;
    if (m->window)
        others = fmin(others, (double)m->window * a->mb);
    return 2 * 2 * others * kv / a->tp;
}

static struct tui_kind kind_of(const struct tu_train_query *q,
                               const struct tu_layout_choice *a, unsigned kind)
{
    struct tu_model m = tui_kind(q->model, kind);
    const struct tu_cluster *c = &q->cluster;
    double tokens = (double)q->seq / a->cp * a->mb, h = (double)m.hidden, routed = 0;
    double per = tokens / a->tp / (c->flops * c->efficiency); /* seconds of an operation */
    double quad = per * tui_mix_flops(&m, (double)q->seq);
    double reduce = 4 * tokens * h * (a->tp - 1) / a->tp;
    struct tu_layer sent = {.reduce = reduce / c->link_bs};
    if (!(kind & TU_LAYER_DENSE))
        sent.dispatch = sent.combine = all_to_all(q, a, tokens, &routed);
    struct tui_kind k = compute_of(&m, sent, per, quad, a->recompute);
    /* The ring's keys and values come while attention on the last ones runs; a state goes from
     * device to device, and nothing waits for work beside it. */
    double ring = context_bytes(&m, a, tokens);
    bool inside = (uint64_t)a->cp * a->tp <= c->per_node;
    double ring_s = ring / (inside ? c->link_bs : c->network_bs);
    k.cp_forward = m.delta_value_heads ? ring_s * (a->cp - 1) : fmax(ring_s - quad, 0);
    k.cp_gradient = m.delta_value_heads ? k.cp_forward : fmax(2 * ring_s - 2 * quad, 0);
    k.tp_bytes = 4 * reduce;
    k.ep_bytes = 4 * routed;
    k.cp_bytes = (m.delta_value_heads ? 2 : 3) * ring;
    return k;
}

void tui_times_of(struct tui_times *t, const struct tu_train_query *q,
                  const struct tu_layout_choice *a)
{
    const struct tu_cluster *c = &q->cluster;
    double tokens = (double)q->seq / a->cp * a->mb, h = (double)q->model->hidden;
    double per = tokens / a->tp / (c->flops * c->efficiency);
    double head = tui_embed_width(q->model) * (double)q->model->vocab;
    *t = (struct tui_times){.head = per * 2 * head, .join = per * 4 * h * h};
    for (unsigned k = 0; k < TU_LAYER_KINDS; k++)
        t->kind[k] = kind_of(q, a, k);
    if (q->encoder && q->encoder->layers) {
        double e = (double)q->encoder->hidden, n = (double)q->encoder->tokens;
        double one = n * a->mb / a->cp / a->tp / (c->flops * c->efficiency);
        t->encoder_lin = one * 24 * e * e;
        t->encoder_quad = one * 4 * n * e;
    }
}

/* Compute of a layer, one way. */
static double compute(const struct tu_layer *l)
{
    return l->attention + l->mlp + l->shared + l->gate;
}

/* Times of so many layers, forward and gradient, with what the form leaves exposed. */
static void price_layers(struct tui_times *t, const struct tu_train_query *q,
                         const struct tu_layout_choice *a, unsigned kind, uint32_t layers)
{
    const struct tu_overlap *form = q->overlap ? q->overlap : tu_overlaps[0];
    struct tui_kind *l = &t->kind[kind];
    struct tui_priced now = {
        .key = {a->tp, a->cp, a->ep, a->mb, a->recompute, kind, layers}};
    uint32_t hash = 0;
    if (!memcmp(l->last.key, now.key, sizeof now.key))
        return;
    for (size_t k = 0; k < sizeof now.key / sizeof *now.key; k++)
        hash = hash * 31 + now.key[k];
    struct tui_priced *kept = q->memo ? &q->memo->row[hash % TUI_MEMO] : &l->last;
    if (layers && memcmp(kept->key, now.key, sizeof now.key)) {
        now.forward = form->time(&l->forward, layers, q->interference);
        now.gradient = form->time(&l->gradient, layers, q->interference);
        *kept = now;
    }
    l->last = layers ? *kept : now;
}

/* Add n layers of a kind to what a stage takes. */
static void add_layers(struct tui_stage_time *s, struct tui_times *t,
                       const struct tu_train_query *q, const struct tu_layout_choice *a,
                       unsigned kind, uint32_t layers)
{
    const struct tui_kind *l = &t->kind[kind];
    double n = layers;
    price_layers(t, q, a, kind, layers);
    double f = l->last.forward, i = l->last.gradient;
    double exposed = fmax(f + i - n * (compute(&l->forward) + compute(&l->gradient)), 0);
    double tp = 2 * 2 * l->forward.reduce, ep = 2 * 2 * l->forward.dispatch;
    s->tp += tp + ep > 0 ? exposed * tp / (tp + ep) : 0;
    s->ep += tp + ep > 0 ? exposed * ep / (tp + ep) : 0;
    s->cp += n * (l->cp_forward + l->cp_gradient);
    s->f += f + n * l->cp_forward;
    s->i += i + n * l->cp_gradient;
    s->w += n * l->weight;
}

struct tui_stage_time tui_stage_time(struct tui_times *t,
                                     const struct tu_train_query *q,
                                     const struct tu_layout_choice *a,
                                     const struct tu_train_stage *stage)
{
    double e = stage->encoder, ends = stage->head ? t->head : 0;
    struct tui_stage_time s = {0};
    for (unsigned k = 0; k < TU_LAYER_KINDS; k++)
        if (stage->kind[k] || (!k && stage->mtp))
            add_layers(&s, t, q, a, k, stage->kind[k] + (k ? 0 : stage->mtp));
    ends += stage->mtp * (t->head + t->join);
    s.f += ends + e * (t->encoder_lin + t->encoder_quad);
    s.i += ends + e * (t->encoder_lin + 2 * t->encoder_quad);
    s.w += ends + e * t->encoder_lin;
    return s;
}

/* What stands where
 * ------------------------------------------------------------------- */

static double whole(const struct tui_stage_time *s)
{
    return s->f + s->i + s->w;
}

/* Shares of a time in millionths of a layer, so that the split is exact. */
static int64_t millionths(double t, double layer)
{
    return llround(fmin(t / layer, 1e6) * 1e6);
}

/* How many of a stage's layers, of which `first` is the first, are of each kind. */
static void tally(struct tu_train_stage *s, const struct tu_model *m, uint64_t first)
{
    uint64_t count[TU_LAYER_KINDS];
    tu_model_kinds(m, first, first + s->layers, count);
    for (size_t k = 0; k < TU_LAYER_KINDS; k++)
        s->kind[k] = (uint32_t)count[k];
}

static int uneven(struct tu_train_stage *out, size_t n, const struct tu_train_query *q,
                  const struct tu_layout_choice *a, struct tu_err *err)
{
    struct tui_times t;
    size_t encoder = q->encoder ? q->encoder->layers : 0;
    size_t layers = encoder + q->model->layers, at = 0;
    tui_times_of(&t, q, a);
    struct tui_stage_time one =
        tui_stage_time(&t, q, a, &(struct tu_train_stage){.layers = 1, .kind = {1}});
    struct tui_stage_time eye =
        tui_stage_time(&t, q, a, &(struct tu_train_stage){.encoder = 1});
    struct tui_stage_time end = tui_stage_time(
        &t, q, a,
        &(struct tu_train_stage){.head = true, .mtp = (uint32_t)q->model->mtp_layers});
    int64_t *cost = tu_alloc(layers, sizeof *cost, err);
    size_t *count = tu_alloc(n, sizeof *count, err);
    double worst;
    int rc = cost && count ? 0 : TU_ENOMEM;
    for (size_t k = 0; k < layers && !rc; k++) {
        struct tui_stage_time now = eye;
        struct tu_train_stage layer = {.layers = 1};
        if (k >= encoder) {
            tally(&layer, q->model, k - encoder);
            now = tui_stage_time(&t, q, a, &layer);
        }
        cost[k] = millionths(whole(&now), whole(&one));
    }
    if (!rc)
        rc = tu_partition_find(
            &(struct tu_partition){.layers = layers,
                                   .stages = n,
                                   .cost = cost,
                                   .last = millionths(whole(&end), whole(&one))},
            count, &worst, err);
    for (size_t k = 0; k < n && !rc; at += count[k++]) {
        size_t eyes = at >= encoder ? 0 : encoder - at < count[k] ? encoder - at : count[k];
        out[k].encoder = (uint32_t)eyes;
        out[k].layers = (uint32_t)(count[k] - eyes);
    }
    tu_free(cost);
    tu_free(count);
    return rc;
}

int tu_train_stages(struct tu_train_stage **out, size_t *n,
                    const struct tu_train_query *q, const struct tu_layout_choice *a,
                    struct tu_err *err)
{
    *n = (size_t)a->pp * tui_chunks(a);
    *out = tu_calloc(*n, sizeof **out, err);
    if (!*out)
        return TU_ENOMEM;
    (*out)[0].embedding = true;
    (*out)[*n - 1].head = true;
    int rc = 0;
    if (q->uneven && a->pp > 1) {
        rc = uneven(*out, *n, q, a, err);
    } else {
        for (size_t k = 0; k < *n; k++)
            (*out)[k].layers = (uint32_t)(q->model->layers / *n);
        (*out)[0].encoder = (uint32_t)(q->encoder ? q->encoder->layers : 0);
    }
    uint64_t first = 0;
    for (size_t k = 0; k < *n && !rc; first += (*out)[k++].layers)
        tally(&(*out)[k], q->model, first);
    (*out)[*n - 1].mtp = (uint32_t)q->model->mtp_layers;
    if (rc) {
        tu_free(*out);
        *out = NULL;
    }
    return rc;
}

/* Memory
 * ------------------------------------------------------------------------------ */

double tui_stage_params(const struct tu_train_query *q, const struct tu_layout_choice *a,
                        const struct tu_train_stage *stage, double *experts)
{
    const struct tu_model *m = q->model;
    double embed = (double)m->vocab * tui_embed_width(m), routed = 0;
    if (m->experts > 1) {
        struct tu_model one = *m;
        one.experts = 1; /* the difference is the experts' and their router rows' */
        routed = (tui_kind_params(m, 0) - tui_kind_params(&one, 0)) * (double)m->experts /
                 (double)(m->experts - 1);
    }
    routed *= stage->kind[0] + stage->kind[TU_LAYER_LOCAL] + stage->mtp;
    double eye = q->encoder ? 12 * (double)(q->encoder->hidden * q->encoder->hidden) : 0;
    double all = stage->mtp * (tui_kind_params(m, 0) + tui_mtp_join(m)) +
                 stage->encoder * eye - routed;
    for (unsigned k = 0; k < TU_LAYER_KINDS; k++)
        all += stage->kind[k] * tui_kind_params(m, k);
    if (stage->embedding)
        all += tui_embed_params(m);
    if (stage->head)
        all += tui_head_params(m);
    if (stage->head && !stage->embedding && m->tied)
        all += embed; /* on a stage of its own it is a copy */
    if (stage->mtp && !stage->embedding && !m->tied)
        all += embed; /* a copy for the tokens that follow */
    *experts = routed / a->ep / a->tp;
    return all / a->tp;
}

/* Bytes of a parameter that d devices share. */
static double state_bytes(const struct tu_layout_choice *a, double d)
{
    double optimizer = a->offload ? 0 : 12;
    d = fmax(d, 1);
    switch (a->zero) {
    case 0: return 6 + optimizer;
    case 1: return 6 + optimizer / d;
    case 2: return 2 + (4 + optimizer) / d;
    default: return (6 + optimizer) / d;
    }
}

/* Activations of a stage and micro-batch. */
static double stage_bytes(const struct tu_train_query *q, const struct tu_layout_choice *a,
                          const struct tu_train_stage *stage)
{
    double bytes = 0;
    for (unsigned k = 0; k < TU_LAYER_KINDS; k++)
        bytes += (stage->kind[k] + (k ? 0 : stage->mtp)) *
                 tui_kind_bytes(q->model, k, (double)q->seq / a->cp, a->mb, a->tp,
                                q->sequence_parallel, a->recompute);
    if (stage->encoder) /* 34 bytes of a token and channel, or its input alone */
        bytes += stage->encoder * (double)(q->encoder->hidden * q->encoder->tokens) *
                 a->mb / a->cp / a->tp * (a->recompute == TU_RECOMPUTE_FULL ? 2 : 34);
    return bytes;
}

void tui_memory_of(struct tu_train_row *r, const struct tu_train_query *q,
                   const struct tu_train_stage *stage, size_t n)
{
    const struct tu_layout_choice *a = &r->at;
    const struct tu_model *m = q->model;
    const struct tui_family *f = tui_family_of(a->schedule);
    double v = tui_chunks(a), seq = (double)q->seq / a->cp;
    for (uint32_t rank = 0; rank < a->pp; rank++) {
        double state = 0, held = 0, logits = 0, params = 0;
        double flight = a->pp > 1 ? f->held(a->pp, v, (double)r->microbatches, rank) : 1;
        for (size_t k = 0; k < n; k++) {
            double experts;
            if (tui_rank_of(a, k) != rank)
                continue;
            double dense = tui_stage_params(q, a, &stage[k], &experts);
            params += dense + experts;
            state += dense * state_bytes(a, a->dp) +
                     experts * state_bytes(a, (double)a->dp / a->ep);
            held += flight * stage_bytes(q, a, &stage[k]);
            if (stage[k].head)
                logits = 4 * seq * a->mb / a->tp * (double)(m->hidden + m->vocab) *
                         (1 + stage[k].mtp);
        }
        if (a->offload == TU_OFFLOAD_SPLIT) /* two subgroups on their way */
            state += 2 * 12 * fmin(params, TUI_SUBGROUP);
        if (a->recompute == TU_RECOMPUTE_FULL) /* one layer at a time is whole again */
            held += fmax(tui_kind_bytes(m, 0, seq, a->mb, a->tp, q->sequence_parallel,
                                        TU_RECOMPUTE_NONE),
                         tui_kind_bytes(m, TU_LAYER_LOCAL, seq, a->mb, a->tp,
                                        q->sequence_parallel, TU_RECOMPUTE_NONE));
        if (state + held + logits > r->memory_bytes) {
            r->state_bytes = state;
            r->activation_bytes = held;
            r->logit_bytes = logits;
            r->memory_bytes = state + held + logits;
        }
    }
}
