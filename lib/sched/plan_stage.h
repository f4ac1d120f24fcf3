/* SPDX-License-Identifier: Apache-2.0 */
/* plan_stage.h: what the stages of a layout hold, take and send. */
#ifndef TUI_SCHED_PLAN_STAGE_H
#define TUI_SCHED_PLAN_STAGE_H

#include "tensorutils/sched/plan.h"

/* Families that a plan chooses from: their bubble in (F, I, W) times (p-1)/v, and the
 * stage shares in flight on a rank. */
struct tui_family {
    const char *name;
    bool chunked, vee;
    double f, i, w;
    double (*held)(double p, double v, double m, double rank);
};
extern const struct tui_family tui_families[]; /* ends with a row without a name */
const struct tui_family *tui_family_of(const char *name);
/* The model as if all its layers were of one kind (bits of tu_layer_kind). */
struct tu_model tui_kind(const struct tu_model *m, unsigned kind);
/* Of such a model: weights of a layer's attention that are multiplied with, values of a token
 * that its last product takes, and forward operations of a token that mix it with others. */
double tui_attention_weights(const struct tu_model *m);
double tui_attention_width(const struct tu_model *m);
double tui_mix_flops(const struct tu_model *m, double seq);
/* Tokens that one attends to, where all of the sequence counts whole though half of it, on
 * average, is to come. A chunk counts so, too; a sliding window is past all along. */
double tui_attended(const struct tu_model *m, double seq);
/* Values of a gated delta net's state, 0: the kind has none. */
double tui_delta_state(const struct tu_model *m);
/* Of a layer of the kind: parameters, and bytes as tu_train_layer_bytes. */
double tui_kind_params(const struct tu_model *m, unsigned kind);
double tui_kind_bytes(const struct tu_model *m, unsigned kind, double seq, double mb,
                      double tp, bool sequence_parallel, enum tu_recompute r);
/* Of the embedding with its positions and norm, of the head with the last norm; the size that
 * they are of. */
double tui_embed_params(const struct tu_model *m);
double tui_head_params(const struct tu_model *m);
double tui_embed_width(const struct tu_model *m);
/* Parameters of what predicts one more token, apart from its layer: two norms and one
 * behind it, and the product that joins the last layer's result with an embedding. */
double tui_mtp_join(const struct tu_model *m);
/* Chunks of a rank. */
uint32_t tui_chunks(const struct tu_layout_choice *a);

/* Seconds of a stage and micro-batch with what is exposed; of these exposed. */
struct tui_stage_time {
    double f, i, w;
    double tp, ep, cp;
};
/* What the overlap form said before, for it may search: a place for each hash. */
#define TUI_MEMO 4096u
struct tui_memo {
    struct tui_priced {
        uint32_t key[7]; /* tp, cp, ep, micro-batch, recomputation, kind, layers */
        double forward, gradient;
    } row[TUI_MEMO];
};
struct tui_times {
    struct tui_kind {
        struct tu_layer forward, gradient;
        double weight;
        double cp_forward, cp_gradient;      /* exposed */
        double tp_bytes, ep_bytes, cp_bytes; /* sent, both ways */
        struct tui_priced last; /* stages are mostly alike */
    } kind[TU_LAYER_KINDS]; /* of a layer */
    double head, join, encoder_lin, encoder_quad;
};
void tui_times_of(struct tui_times *t, const struct tu_train_query *q,
                  const struct tu_layout_choice *a);
struct tui_stage_time tui_stage_time(struct tui_times *t,
                                     const struct tu_train_query *q,
                                     const struct tu_layout_choice *a,
                                     const struct tu_train_stage *stage);
/* Memory of the fullest rank into the row. */
void tui_memory_of(struct tu_train_row *r, const struct tu_train_query *q,
                   const struct tu_train_stage *stage, size_t n);
/* The rank of a stage. */
uint32_t tui_rank_of(const struct tu_layout_choice *a, size_t stage);
/* Parameters of one stage on one device, of tensor and expert parallel slices. */
double tui_stage_params(const struct tu_train_query *q, const struct tu_layout_choice *a,
                        const struct tu_train_stage *stage, double *experts);
/* Part of the parameters that the CPU updates: with a split the one that levels the CPU
 * and the link. */
double tui_cpu_share(enum tu_offload how, const struct tu_cluster *c);
/* tu_update_run without the simulation. */
double tui_update_estimate(enum tu_offload how, const struct tu_cluster *c, double params,
                           uint32_t layers, double backward_s);
#define TUI_SUBGROUP 1e8 /* parameters that an update takes at a time, at least */

#endif
