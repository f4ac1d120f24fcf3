/* SPDX-License-Identifier: Apache-2.0 */
/* plan_bytes.c: bytes of activation that a layer keeps from its forward to its backward.
 *
 * Counted as Korthikanti et al. do (2022, section 4.1): 2 bytes for each value that a
 * product, a norm, an activation function or attention needs again, 1 for each value of a
 * dropout's mask. For a token, in units of h, with Q = heads · head_dim / h, K the same of
 * the key-value heads, f the width of the MLP over h and t tensor parallel ranks:
 *
 *   attention  its input 2 and the last mask 1, whole; q, k, v and what the way out takes,
 *              2Q + 2K + 2K + 2Q, cut by t; softmax, its mask and its result 5 a s / h, too
 *   MLP        its input 2 and a mask 1, whole; cut by t the activation's input and what
 *              the last product takes, 2f + 2f, or with a gate three of them: gate, up and
 *              their product, 6f
 *   norms      2 for the input of each of two, whole
 *
 * For GPT (Q = K = 1, f = 4, no gate) that is the published 10 + 24/t + 5 a s / (h t), and
 * with sequence parallelism, which cuts the rest by t too, (34 + 5 a s / h) / t.
 *
 * Attention and MLP side by side have the same input: one norm's input less, and with one
 * norm its result less, too. Norms behind them keep 2 more each, norms of q and k what goes
 * in (2Q + 2K), a gate on attention's result the gate and that result (4Q). Latent attention
 * has v of another size than q and k, and keeps both latents before and behind their norms.
 * Experts: k of them have a copy of the token and a result that is weighted (4k, whole), and
 * widths of their own beside that of shared ones. */
#include "sched/plan_stage.h"

/* Bytes of a token in units of h: not cut by tensor parallelism, and cut by it. */
struct kept {
    double whole, cut;
};

/* Of a gated delta net: its input, what the convolution and the gate take and give, the
 * result before and behind its norm; in f32 the decays and betas; and of each chunk of 64
 * tokens their products with one another. */
static double delta(const struct tu_model *m)
{
    double k = (double)(m->delta_key_heads * m->delta_key_dim);
    double v = (double)(m->delta_value_heads * m->delta_value_dim);
    return 2 + (2 * (2 * k + 2 * v) + 2 * (2 * k + v) + 2 * v + 2 * v +
                (2 * 64 + 2 * 4) * (double)m->delta_value_heads) /
                   (double)m->hidden;
}

static void attention(struct kept *t, const struct tu_model *m)
{
    double h = (double)m->hidden, q = (double)(m->heads * m->head_dim) / h;
    double k = (double)(m->kv_heads * m->head_dim) / h;
    t->whole += 3;
    if (m->delta_value_heads) {
        t->cut += delta(m) - 3; /* of which 3 are counted */
        return;
    }
    if (m->kv_rank) {
        t->whole += 4 * (double)(m->q_rank + m->kv_rank) / h;
        t->cut += 4 * q + 4 * (double)(m->heads * m->v_dim) / h;
    } else {
        t->cut += 4 * q + 4 * k;
    }
    t->cut += (m->qk_norm ? 2 * q + 2 * k : 0) + (m->q_gate ? 4 * q : 0);
}

static void mlp(struct kept *t, const struct tu_model *m)
{
    double each = m->gated ? 6 : 4, top = (double)m->top_k;
    double width = m->experts ? top * (double)(m->expert_ffn ? m->expert_ffn : m->ffn)
                              : (double)m->ffn;
    t->whole += 3 + (m->experts ? 4 * top : 0);
    t->cut += each * (width + (double)m->shared_ffn) / (double)m->hidden;
}

static void norms(struct kept *t, const struct tu_model *m)
{
    t->whole += 4 + (m->post_norms ? 4 : 0);
    if (m->parallel)
        t->whole -= m->one_norm ? 4 : 2;
}

double tui_kind_bytes(const struct tu_model *m, unsigned kind, double seq, double mb,
                      double tp, bool sequence_parallel, enum tu_recompute r)
{
    struct tu_model of_kind = tui_kind(m, kind);
    struct kept t = {0, 0};
    double h = (double)m->hidden, sbh = seq * mb * h;
    if (r == TU_RECOMPUTE_FULL)
        return 2 * sbh;
    attention(&t, &of_kind);
    mlp(&t, &of_kind);
    norms(&t, &of_kind);
    if (r == TU_RECOMPUTE_NONE && !of_kind.delta_value_heads)
        t.cut += 5 * (double)m->heads * tui_attended(&of_kind, seq) / h;
    return sbh * (sequence_parallel ? (t.whole + t.cut) / tp : t.whole + t.cut / tp);
}

double tu_train_layer_bytes(const struct tu_model *m, double seq, double mb, double tp,
                            bool sequence_parallel, enum tu_recompute r)
{
    return tui_kind_bytes(m, 0, seq, mb, tp, sequence_parallel, r);
}
