/* SPDX-License-Identifier: Apache-2.0 */
/* plan_size.c: parameters, operations and activation bytes of a model, as formulas.
 *
 * For a GPT with biases and learned positions they are the published ones:
 * P = 12 l h² (1 + 13/(12 h) + (V + s)/(12 l h)) and, with recomputation,
 * 96 B s l h² (1 + s/(6 h) + V/(16 l h)) operations a step. */
#include "sched/plan_stage.h"

double tui_attention_weights(const struct tu_model *m)
{
    double h = (double)m->hidden, a = (double)m->heads, q = a * (double)m->head_dim;
    double kv = (double)(m->kv_heads * m->head_dim), r = (double)m->q_rank;
    if (!m->kv_rank)
        return h * (q + 2 * kv) + q * h;
    double latent = (double)m->kv_rank, v = (double)m->v_dim;
    return (m->q_rank ? h * r + r * q : h * q) + h * (latent + (double)m->rope_dim) +
           latent * a * ((double)m->nope_dim + v) + a * v * h;
}

double tui_score_width(const struct tu_model *m)
{
    double v = (double)(m->kv_rank ? m->v_dim : m->head_dim);
    return (double)m->heads * ((double)m->head_dim + v) / 2;
}

static double attention(const struct tu_model *m)
{
    double q = (double)(m->heads * m->head_dim), kv = (double)(m->kv_heads * m->head_dim);
    double bias = m->bias ? q + 2 * kv + (double)m->hidden : m->qkv_bias ? q + 2 * kv : 0;
    return tui_attention_weights(m) + bias + (m->sinks ? (double)m->heads : 0);
}

static double mlp(const struct tu_model *m, double width)
{
    double h = (double)m->hidden;
    return (m->gated ? 3 : 2) * h * width + (m->bias ? (m->gated ? 2 : 1) * width + h : 0);
}

/* A norm of the hidden size. */
static double norm(const struct tu_model *m)
{
    return (double)m->hidden * (m->rmsnorm ? 1 : 2);
}

static double norms(const struct tu_model *m)
{
    return (m->post_norms ? 4 : m->one_norm ? 1 : 2) * norm(m) +
           (m->qk_norm ? 2 * (double)m->head_dim : 0) +
           (double)(m->q_rank + m->kv_rank);
}

static double feed(const struct tu_model *m, double experts)
{
    double width = (double)(m->expert_ffn ? m->expert_ffn : m->ffn);
    if (!m->experts)
        return mlp(m, (double)m->ffn);
    return experts * mlp(m, width) + (double)((m->hidden + m->bias) * m->experts) +
           (m->shared_ffn ? mlp(m, (double)m->shared_ffn) : 0);
}

struct tu_model tui_dense(const struct tu_model *m)
{
    struct tu_model d = *m;
    d.experts = d.shared_ffn = 0;
    return d;
}

double tu_train_layer_params(const struct tu_model *m)
{
    return attention(m) + feed(m, (double)m->experts) + norms(m);
}

double tu_train_active_params(const struct tu_model *m)
{
    return attention(m) + feed(m, (double)m->top_k) + norms(m);
}

double tu_train_params(const struct tu_model *m)
{
    double h = (double)m->hidden, first = (double)m->dense_layers;
    double embed = (double)m->vocab * h * (m->tied ? 1 : 2);
    double positions = m->learned_positions ? (double)m->positions * h : 0;
    struct tu_model d = tui_dense(m);
    return ((double)m->layers - first) * tu_train_layer_params(m) +
           first * tu_train_layer_params(&d) + embed + positions + norm(m);
}

double tui_mtp_join(const struct tu_model *m)
{
    return 2 * (double)m->hidden * (double)m->hidden + 3 * norm(m);
}

double tu_train_mtp_params(const struct tu_model *m)
{
    return (double)m->mtp_layers * (tu_train_layer_params(m) + tui_mtp_join(m));
}

/* Forward operations for one token: 2 for each weight of a product, and 4 s q of
 * attention. */
static double layer_flops(const struct tu_model *m, double seq)
{
    double h = (double)m->hidden;
    double width = (double)(m->experts && m->expert_ffn ? m->expert_ffn : m->ffn);
    double feeds = (m->experts ? (double)m->top_k : 1) * width + (double)m->shared_ffn;
    return 2 * tui_attention_weights(m) + 2 * (m->gated ? 3 : 2) * h * feeds +
           4 * seq * tui_score_width(m);
}

double tu_train_step_flops(const struct tu_model *m, double batch, double seq,
                           bool recompute)
{
    double first = (double)m->dense_layers;
    struct tu_model d = tui_dense(m);
    double h = (double)m->hidden, mtp = (double)m->mtp_layers;
    double layers = ((double)m->layers + mtp - first) * layer_flops(m, seq) +
                    first * layer_flops(&d, seq);
    double head = (1 + mtp) * 2 * h * (double)m->vocab + mtp * 4 * h * h;
    return batch * seq * ((recompute ? 4 : 3) * layers + 3 * head);
}

double tu_train_days(const struct tu_model *m, double tokens, double flops_per_s)
{
    return 8 * tokens * tu_train_params(m) / flops_per_s / 86400;
}

double tu_train_layer_bytes(const struct tu_model *m, double seq, double mb, double tp,
                            bool sequence_parallel, enum tu_recompute r)
{
    double h = (double)m->hidden, a = (double)m->heads, sbh = seq * mb * h;
    double quadratic = 5 * a * seq / h;
    if (r == TU_RECOMPUTE_FULL)
        return 2 * sbh;
    if (r == TU_RECOMPUTE_SELECTIVE)
        quadratic = 0;
    if (sequence_parallel)
        return sbh / tp * (34 + quadratic);
    return sbh * (10 + 24 / tp + quadratic / tp);
}
