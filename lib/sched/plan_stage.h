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
/* Weights of a layer's attention that are multiplied with; half the values of a query, a key, a
 * value and a result in the products with scores. */
double tui_attention_weights(const struct tu_model *m);
double tui_score_width(const struct tu_model *m);
/* The same model without experts, as its first layers may be. */
struct tu_model tui_dense(const struct tu_model *m);
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
enum { TUI_USUAL, TUI_DENSE, TUI_KINDS }; /* the first layers may have no experts */
struct tui_times {
    struct tui_kind {
        struct tu_layer forward, gradient;
        double weight;
        struct tui_priced last; /* stages are mostly alike */
    } kind[TUI_KINDS];              /* of a layer */
    double cp_forward, cp_gradient; /* exposed, of a layer */
    double head, join, encoder_lin, encoder_quad;
    double tp_bytes, ep_bytes, cp_bytes; /* sent by a layer, both ways */
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
