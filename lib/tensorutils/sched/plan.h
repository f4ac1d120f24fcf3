/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: how to lay a training run out over a cluster: every legal layout with memory,
 * time and traffic, and why the others are not legal.
 *
 * Sources: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
 * Clusters Using Megatron-LM", 2021; Korthikanti et al., "Reducing Activation
 * Recomputation in Large Transformer Models", 2022; Rajbhandari et al., "ZeRO", 2020. May
 * change before 1.0. */
#ifndef TENSORUTILS_SCHED_PLAN_H
#define TENSORUTILS_SCHED_PLAN_H

#include "../core.h"
#include "../model.h"

TU_BEGIN

/* A device: dense bf16 peak, memory, links; with the source of the figures. */
struct tu_gpu {
    const char *name, *help, *source;
    double flops;     /* per second, bf16 without sparsity */
    uint64_t memory;  /* bytes */
    double memory_bs; /* bytes per second */
    double link_bs;   /* to the other devices of a node, one way */
};
TU_API extern const struct tu_gpu tu_gpus[]; /* ends with a row without a name */
TU_API const struct tu_gpu *tu_gpu_find(const char *name);

struct tu_cluster {
    uint64_t gpus, per_node;
    double flops, link_bs, network_bs; /* network: one way, for each device */
    uint64_t memory;
    double efficiency; /* share of flops that matrix products reach */
};

/* Sizes that follow from the model alone. */
TU_API double tu_train_params(const struct tu_model *m);       /* all parameters */
TU_API double tu_train_layer_params(const struct tu_model *m); /* of one layer */
TU_API double tu_train_active_params(
    const struct tu_model *m); /* of one layer, for a token */
/* Operations of a step of `batch` sequences of `seq` tokens; with full recomputation of
 * the layers that is what the hardware does, without it is what the model needs. */
TU_API double tu_train_step_flops(const struct tu_model *m, double batch, double seq,
                                  bool recompute);
TU_API double tu_train_days(const struct tu_model *m, double tokens, double flops_per_s);

enum tu_recompute { TU_RECOMPUTE_NONE, TU_RECOMPUTE_SELECTIVE, TU_RECOMPUTE_FULL };
/* Bytes of activation of one layer and micro-batch on one tensor-parallel rank. */
TU_API double tu_train_layer_bytes(const struct tu_model *m, double seq, double mb,
                                   double tp, bool sequence_parallel,
                                   enum tu_recompute r);

/* One layout. */
struct tu_layout_choice {
    uint32_t tp, pp, vpp, dp, cp, ep, mb;
    const char *schedule; /* row of tu_schedules */
    enum tu_recompute recompute;
    uint32_t zero; /* stage 0 … 3 */
    bool offload;  /* optimizer state in host memory */
};
struct tu_train_row {
    struct tu_layout_choice at;
    uint64_t microbatches;
    double state_bytes, activation_bytes, logit_bytes, memory_bytes;
    double compute_s, tp_s, bubble_s, pp_s, dp_s, step_s;
    double tp_bytes, pp_bytes, dp_bytes; /* each device sends in a step */
    double mfu, hfu;
    const char *why_not; /* NULL: legal and it fits */
};

struct tu_train_query {
    const struct tu_model *model;
    struct tu_cluster cluster;
    uint64_t batch, seq; /* sequences of a step, tokens of each */
    uint32_t max_tp, max_pp, max_cp, max_mb, max_vpp; /* 0: as far as it makes sense */
    bool sequence_parallel;
    bool all;                            /* keep the rejected too */
    const struct tu_layout_choice *only; /* price this one alone */
};
struct tu_train_plan {
    struct tu_train_row *row; /* legal ones by time, then the rejected */
    size_t n, legal;
    uint64_t considered;
};
TU_API TU_MUST int tu_train_make(struct tu_train_plan *out,
                                 const struct tu_train_query *q, struct tu_err *err);
TU_API void tu_train_release(struct tu_train_plan *p);
/* Price one layout; why_not says what is wrong with it. */
TU_API void tu_train_price(struct tu_train_row *out, const struct tu_train_query *q,
                           const struct tu_layout_choice *at);
/* Flags or configuration of a layout: "megatron", "torchtitan", "deepspeed". */
TU_API TU_MUST int tu_train_emit(struct tu_buf *out, const struct tu_train_query *q,
                                 const struct tu_train_row *row, const char *form,
                                 struct tu_err *err);

/* Overlap of compute and communication within layers: times of L layers
 * --------------------- */

/* Two modules a layer, an all-reduce of time c after each (Ladder Residual): standard and
 * ladder. */
TU_API void tu_form_ladder(const double *module, size_t n, double c, double *standard,
                           double *ladder);
/* One all-reduce a layer, hidden behind the next attention (Kraken; tensorutils
 * definition). */
TU_API double tu_form_kraken(double attention, double ffn, double c, size_t layers);
/* A product of time g whose output enters a collective of time r in n chunks (T3). */
TU_API double tu_form_t3(double g, double r, size_t chunks);
/* Shortcut experts (ScMoE): a1 m a2 s, gate, dispatch, experts, combine; sequential and
 * overlapped, and the share of communication hidden. */
TU_API void tu_form_scmoe(const double t[8], double *sequential, double *overlapped,
                          double *hidden, unsigned *position);
/* Nano-batches (NanoFlow; tensorutils definition): operations of a layer with their
 * resource (0 compute, 1 memory, 2 network), k equal nano-batches, overhead for each
 * operation. */
TU_API double tu_form_nano(const double *time, const unsigned *resource, size_t ops,
                           size_t k, double overhead, size_t layers);
/* CPU subgroups for each GPU subgroup of an optimizer update (Deep Optimizer States;
 * tensorutils definition); 0: all on the CPU. Rates in parameters and bytes per second.
 */
TU_API unsigned tu_form_update_stride(double cpu, double convert, double gpu,
                                      double link);
/* Equal layers through pipelined resources (Fuyou; tensorutils definition): makespan. */
TU_API double tu_form_pipeline(const double *stage, size_t stages, size_t layers);
/* The steps of AsyncDiff: n components of time c[], warm-up w, stride 1 or 2, T steps. */
TU_API TU_MUST int tu_form_asyncdiff(const double *c, size_t n, double broadcast,
                                     size_t warm, size_t stride, size_t steps,
                                     double *time, struct tu_err *err);

TU_END

#endif
