/* SPDX-License-Identifier: Apache-2.0 */
/* plan_size.c: parameters and operations of a model, as formulas.
 *
 * For a GPT with biases and learned positions they are the published ones:
 * P = 12 l h² (1 + 13/(12 h) + (V + s)/(12 l h)) and, with recomputation,
 * 96 B s l h² (1 + s/(6 h) + V/(16 l h)) operations a step. */
#include <math.h>
#include "sched/plan_stage.h"

struct tu_model tui_kind(const struct tu_model *m, unsigned kind)
{
    struct tu_model k = *m;
    if (kind & TU_LAYER_DENSE)
        k.experts = k.shared_ffn = 0;
    if (!(kind & TU_LAYER_LOCAL))
        k.window = k.delta_value_heads = 0;
    return k;
}

/* Values of all heads of a gated delta net. */
static double delta_keys(const struct tu_model *m)
{
    return (double)(m->delta_key_heads * m->delta_key_dim);
}

static double delta_values(const struct tu_model *m)
{
    return (double)(m->delta_value_heads * m->delta_value_dim);
}

/* q, k, v and the result's gate z; a and b of each head; the convolution; the way out. */
static double delta_weights(const struct tu_model *m)
{
    double h = (double)m->hidden, k = delta_keys(m), v = delta_values(m);
    return h * (2 * k + 2 * v + 2 * (double)m->delta_value_heads) +
           (2 * k + v) * (double)m->delta_conv + v * h;
}

double tui_attention_weights(const struct tu_model *m)
{
    if (m->delta_value_heads)
        return delta_weights(m);
    double h = (double)m->hidden, a = (double)m->heads, q = a * (double)m->head_dim;
    double kv = (double)(m->kv_heads * m->head_dim), r = (double)m->q_rank;
    if (!m->kv_rank)
        return h * ((m->q_gate ? 2 : 1) * q + 2 * kv) + q * h;
    double latent = (double)m->kv_rank, v = (double)m->v_dim;
    return (m->q_rank ? h * r + r * q : h * q) + h * (latent + (double)m->rope_dim) +
           latent * a * ((double)m->nope_dim + v) + a * v * h;
}

double tui_attention_width(const struct tu_model *m)
{
    return m->delta_value_heads ? delta_values(m)
                                : (double)(m->heads * (m->kv_rank ? m->v_dim : m->head_dim));
}

double tui_attended(const struct tu_model *m, double seq)
{
    double w = (double)m->window, rest = m->window ? fmod(seq, w) : 0;
    if (!m->window || seq <= w)
        return seq;
    return m->chunked ? ((seq - rest) * w + rest * rest) / seq : 2 * w - w * w / seq;
}

double tui_mix_flops(const struct tu_model *m, double seq)
{
    double v = (double)(m->kv_rank ? m->v_dim : m->head_dim);
    if (m->delta_value_heads) /* the state times k, its update, the state times q */
        return 6 * delta_values(m) * (double)m->delta_key_dim;
    return 4 * tui_attended(m, seq) * (double)m->heads * ((double)m->head_dim + v) / 2;
}

double tui_delta_state(const struct tu_model *m)
{
    return m->delta_value_heads ? delta_values(m) * (double)m->delta_key_dim : 0;
}

static double attention(const struct tu_model *m)
{
    if (m->delta_value_heads) /* a decay and its bias for each head, a norm of one */
        return delta_weights(m) + 2 * (double)m->delta_value_heads +
               (double)m->delta_value_dim;
    double q = (double)(m->heads * m->head_dim), kv = (double)(m->kv_heads * m->head_dim);
    if (m->kv_rank) { /* biases are of the ways in to the ranks */
        q = (double)m->q_rank;
        kv = (double)(m->kv_rank + m->rope_dim) / 2;
    }
    double bias = (m->bias || m->qkv_bias ? q + 2 * kv : 0) +
                  (m->bias || m->o_bias ? (double)m->hidden : 0);
    return tui_attention_weights(m) + bias + (m->sinks ? (double)m->heads : 0);
}

static double mlp(const struct tu_model *m, double width)
{
    double h = (double)m->hidden;
    double bias = m->bias || m->mlp_bias ? (m->gated ? 2 : 1) * width + h : 0;
    return (m->gated ? 3 : 2) * h * width + bias;
}

/* A norm of the hidden size. */
static double norm(const struct tu_model *m)
{
    return m->bare_norms ? 0 : (double)m->hidden * (m->rmsnorm ? 1 : 2);
}

/* Weights of the norms of q and k: of one head's size, or wide without biases. */
static double qk_norms(const struct tu_model *m)
{
    if (!m->qk_norm || m->qk_bare || m->delta_value_heads)
        return 0;
    return (double)(m->head_dim * (m->qk_wide ? m->heads + m->kv_heads : m->rmsnorm ? 2 : 4));
}

static double norms(const struct tu_model *m)
{
    return (m->post_norms ? 4 : m->one_norm ? 1 : 2) * norm(m) + qk_norms(m) +
           (double)(m->q_rank + m->kv_rank);
}

static double feed(const struct tu_model *m, double experts)
{
    double width = (double)(m->expert_ffn ? m->expert_ffn : m->ffn), h = (double)m->hidden;
    if (!m->experts)
        return mlp(m, (double)m->ffn);
    bool bias = m->bias || m->mlp_bias;
    return experts * mlp(m, width) + (double)((m->hidden + bias) * m->experts) +
           (m->shared_ffn ? mlp(m, (double)m->shared_ffn) + (m->shared_gate ? h : 0) : 0);
}

static double layer_params(const struct tu_model *m, unsigned kind, double experts)
{
    struct tu_model k = tui_kind(m, kind);
    return attention(&k) + feed(&k, experts) + norms(&k);
}

double tui_kind_params(const struct tu_model *m, unsigned kind)
{
    return layer_params(m, kind, (double)m->experts);
}

double tu_train_layer_params(const struct tu_model *m)
{
    return tui_kind_params(m, 0);
}

double tu_train_active_params(const struct tu_model *m)
{
    return layer_params(m, 0, (double)m->top_k);
}

/* The product between the embedding's size and the hidden one. */
static double project(const struct tu_model *m)
{
    bool apart = m->embed_dim && m->embed_dim != m->hidden;
    return apart ? (double)(m->embed_dim * m->hidden) : 0;
}

double tui_embed_width(const struct tu_model *m)
{
    return (double)(m->embed_dim ? m->embed_dim : m->hidden);
}

double tui_embed_params(const struct tu_model *m)
{
    uint64_t positions = m->learned_positions ? m->positions + m->spare_positions : 0;
    return (double)m->vocab * tui_embed_width(m) + (double)(positions * m->hidden) +
           project(m) + (m->embed_norm ? norm(m) : 0);
}

double tui_head_params(const struct tu_model *m)
{
    return (m->tied ? 0 : (double)m->vocab * tui_embed_width(m)) + project(m) +
           (m->head_bias ? (double)m->vocab : 0) + (m->no_final_norm ? 0 : norm(m));
}

double tu_train_params(const struct tu_model *m)
{
    double sum = tui_embed_params(m) + tui_head_params(m);
    uint64_t count[TU_LAYER_KINDS];
    tu_model_kinds(m, 0, m->layers, count);
    for (unsigned k = 0; k < TU_LAYER_KINDS; k++)
        sum += (double)count[k] * tui_kind_params(m, k);
    return sum;
}

double tui_mtp_join(const struct tu_model *m)
{
    return 2 * (double)m->hidden * (double)m->hidden + 3 * norm(m);
}

double tu_train_mtp_params(const struct tu_model *m)
{
    return (double)m->mtp_layers * (tu_train_layer_params(m) + tui_mtp_join(m));
}

/* Forward operations for one token: 2 for each weight of a product, and what mixes it with
 * other tokens. */
static double layer_flops(const struct tu_model *whole, unsigned kind, double seq)
{
    struct tu_model of_kind = tui_kind(whole, kind), *m = &of_kind;
    double h = (double)m->hidden;
    double width = (double)(m->experts && m->expert_ffn ? m->expert_ffn : m->ffn);
    double feeds = (m->experts ? (double)m->top_k : 1) * width + (double)m->shared_ffn;
    return 2 * tui_attention_weights(m) + 2 * (m->gated ? 3 : 2) * h * feeds +
           2 * h * (double)m->experts + tui_mix_flops(m, seq);
}

double tu_train_step_flops(const struct tu_model *m, double batch, double seq,
                           bool recompute)
{
    double h = (double)m->hidden, mtp = (double)m->mtp_layers;
    double layers = mtp * layer_flops(m, 0, seq);
    uint64_t count[TU_LAYER_KINDS];
    tu_model_kinds(m, 0, m->layers, count);
    for (unsigned k = 0; k < TU_LAYER_KINDS; k++)
        layers += (double)count[k] * layer_flops(m, k, seq);
    double head = (1 + mtp) * 2 * tui_embed_width(m) * (double)m->vocab + mtp * 4 * h * h;
    return batch * seq * ((recompute ? 4 : 3) * layers + 3 * head);
}

double tu_train_days(const struct tu_model *m, double tokens, double flops_per_s)
{
    return 8 * tokens * tu_train_params(m) / flops_per_s / 86400;
}
