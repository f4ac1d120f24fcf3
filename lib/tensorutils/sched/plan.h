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
    double host_bs;   /* to the host, one way */
};
TU_API extern const struct tu_gpu tu_gpus[]; /* ends with a row without a name */
TU_API const struct tu_gpu *tu_gpu_find(const char *name);
/* A link, one way, for each device. */
struct tu_link_kind {
    const char *name, *help, *source;
    double bs; /* bytes per second */
};
TU_API extern const struct tu_link_kind tu_links[]; /* ends with a row without a name */
TU_API const struct tu_link_kind *tu_link_find(const char *name);

struct tu_cluster {
    uint64_t gpus, per_node;
    double flops, link_bs, network_bs; /* network: one way, for each device */
    uint64_t memory;
    double efficiency; /* share of flops that matrix products reach */
    /* For optimizer updates; 0: they take no time and nothing is offloaded. */
    double memory_bs, host_bs, ssd_bs; /* bytes per second, each device's share */
    double cpu_update, cpu_convert;    /* parameters per second, each device's share */
};

/* Sizes that follow from the model alone. */
TU_API double tu_train_params(const struct tu_model *m); /* all but those of the next */
TU_API double tu_train_mtp_params(const struct tu_model *m); /* that predict further tokens */
/* Of one layer, whole; for a token. Where kinds of layers alternate: with experts and whole
 * attention. */
TU_API double tu_train_layer_params(const struct tu_model *m);
TU_API double tu_train_active_params(const struct tu_model *m);
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

/* Where the optimizer's state is and who updates it. */
enum tu_offload {
    TU_OFFLOAD_NONE,
    TU_OFFLOAD_CPU,   /* in host memory, updated there */
    TU_OFFLOAD_SPLIT, /* in host memory, some subgroups updated on the GPU */
    TU_OFFLOAD_SSD,   /* on an SSD, updated on the CPU layer by layer during backward */
    TU_OFFLOADS
};
TU_API extern const char *const tu_offload_names[]; /* NULL-ended */
/* Seconds that an update adds to a step, simulated with resources as ranks (schedules
 * update-split and update-ssd). params and layers of one device; backward_s: of the last
 * micro-batch, which an SSD update overlaps. *cpu_share: part of the parameters that the CPU
 * updates. */
TU_API TU_MUST int tu_update_run(double *seconds, double *cpu_share, enum tu_offload how,
                                 const struct tu_cluster *c, double params,
                                 uint32_t layers, double backward_s, struct tu_err *err);

/* One layout. */
struct tu_layout_choice {
    uint32_t tp, pp, vpp, dp, cp, ep, mb;
    const char *schedule; /* row of tu_schedules */
    enum tu_recompute recompute;
    uint32_t zero; /* stage 0 … 3 */
    enum tu_offload offload;
};
struct tu_train_row {
    struct tu_layout_choice at;
    uint64_t microbatches;
    double state_bytes, activation_bytes, logit_bytes, memory_bytes; /* of the fullest */
    /* Seconds of a step, of the busiest rank: compute; what tensor, expert and context
     * parallelism leave exposed; idle; transfers; gradients; the optimizer. */
    double compute_s, tp_s, ep_s, cp_s, bubble_s, pp_s, dp_s, update_s, step_s;
    double tp_bytes, ep_bytes, cp_bytes, pp_bytes, dp_bytes; /* a device sends in a step */
    double mfu, hfu;
    double cpu_share;    /* of the parameters the CPU updates */
    bool simulated;      /* bubble and transfers are of the schedule itself */
    const char *why_not; /* NULL: legal and it fits */
};

/* A vision encoder in front of the model, as a ViT with an MLP of four times its width. */
struct tu_encoder {
    uint64_t layers, hidden, tokens; /* tokens of each sequence's images */
};
/* What stands on a stage. */
struct tu_train_stage {
    uint32_t encoder, layers, mtp; /* mtp: layers more that predict further tokens */
    uint32_t kind[TU_LAYER_KINDS]; /* how many of the layers are of each */
    bool embedding, head;
};

struct tu_train_query {
    const struct tu_model *model;
    struct tu_cluster cluster;
    uint64_t batch, seq; /* sequences of a step, tokens of each */
    uint32_t max_tp, max_pp, max_cp, max_mb, max_vpp; /* 0: as far as it makes sense */
    bool sequence_parallel;
    bool uneven;                   /* stages may differ in layers: the busiest counts */
    const struct tu_encoder *encoder;
    const struct tu_overlap *overlap; /* NULL: standard */
    const struct tu_interference *interference; /* NULL: none */
    const char *nvme_path; /* where DeepSpeed puts state on an SSD; NULL: not known */
    struct tui_memo *memo; /* tu_train_make's own */
    unsigned offloads;             /* bit for each enum tu_offload to try; 0: none only */
    bool all;                            /* keep the rejected too */
    const struct tu_layout_choice *only; /* price this one alone */
};
#define TU_TRAIN_REASONS 24
struct tu_train_plan {
    struct tu_train_row *row; /* legal ones by time, then the rejected */
    size_t n, legal;
    uint64_t considered;
    struct tu_train_reason {
        const char *why_not; /* NULL after the last */
        uint64_t layouts;
    } reason[TU_TRAIN_REASONS]; /* of the rejected, the commonest first */
};
/* What the pp·vpp stages of a layout hold, *n of them in order; tu_free. */
TU_API TU_MUST int tu_train_stages(struct tu_train_stage **out, size_t *n,
                                   const struct tu_train_query *q,
                                   const struct tu_layout_choice *at, struct tu_err *err);
TU_API TU_MUST int tu_train_make(struct tu_train_plan *out,
                                 const struct tu_train_query *q, struct tu_err *err);
TU_API void tu_train_release(struct tu_train_plan *p);
/* Price one layout; why_not says what is wrong with it. */
TU_API TU_MUST int tu_train_price(struct tu_train_row *out,
                                  const struct tu_train_query *q,
                                  const struct tu_layout_choice *at, struct tu_err *err);
/* Flags or configuration of a layout: "megatron", "torchtitan", "deepspeed".
 * TU_EUNSUP: this trainer does not have what the layout needs, err says what. */
TU_API TU_MUST int tu_train_emit(struct tu_buf *out, const struct tu_train_query *q,
                                 const struct tu_train_row *row, const char *form,
                                 struct tu_err *err);

/* Overlap of compute and communication within layers
 * ------------------------------------------------- */

/* Seconds of one layer and micro-batch on one device, one way. */
struct tu_layer {
    double attention, mlp;   /* compute; of experts: all that a token visits */
    double out, down;        /* of these the last products, whose results are reduced */
    double reduce;           /* an all-reduce, behind each of the two */
    double gate, dispatch, combine, shared; /* experts: router, all-to-all, shared one */
};
/* Speed, as a share of the full one, with so much of a device's units; rows by share,
 * straight lines between, (0, 0) and (1, 1) at the ends. No rows: always 1. */
#define TU_CURVE_MAX 32
struct tu_curve {
    size_t n;
    double share[TU_CURVE_MAX], speed[TU_CURVE_MAX];
};
TU_API double tu_curve_at(const struct tu_curve *c, double share);
/* What operations that run at once cost one another. */
struct tu_interference {
    double contention;                /* t3: a product beside its collective, 1 + this */
    struct tu_curve compute, network; /* nano: network gets a share, compute the rest */
};
/* Lines "compute|network,SHARE,SPEED" ('#' comments); in order, rising. TU_EFORMAT. */
TU_API TU_MUST int tu_interference_read(struct tu_interference *x, const char *text,
                                        size_t n, struct tu_err *err);
/* A form: what `layers` layers take. x NULL: nothing disturbs. */
struct tu_overlap {
    const char *name, *help, *source;
    bool experts; /* for models with experts only */
    double (*time)(const struct tu_layer *l, size_t layers,
                   const struct tu_interference *x);
};
TU_API extern const struct tu_overlap *const tu_overlaps[]; /* NULL-ended */
TU_API const struct tu_overlap *tu_overlap_find(const char *name);

/* The definitions behind the forms. Two modules a layer, an all-reduce of time c after
 * each (Ladder Residual): the second one's wait is left out. */
TU_API double tu_form_ladder(const double *module, size_t n, double c);
/* One all-reduce a layer, hidden behind the next attention (Kraken; tensorutils
 * definition). */
TU_API double tu_form_kraken(double attention, double ffn, double c, size_t layers);
/* A product of time g whose output enters a collective of time r in n chunks (T3). While
 * both run, g is slower by 1 + contention. */
TU_API double tu_form_t3(double g, double r, size_t chunks, double contention);
/* Shortcut experts (ScMoE), a1 m a2 s, gate, dispatch, experts, combine: overlapped time,
 * the share of communication hidden, and where the experts went. */
TU_API double tu_form_scmoe(const double t[8], double *hidden, unsigned *position);
/* Nano-batches (NanoFlow; tensorutils definition): operations of a layer with their
 * resource (0 compute, 1 memory, 2 network), k ≤ 8 nano-batches of share[] (NULL: equal),
 * overhead for each operation. speed[3] (NULL: 1): of a resource's operation while one of
 * another resource runs. */
TU_API double tu_form_nano(const double *time, const unsigned *resource, size_t ops,
                           size_t k, const double *share, double overhead, size_t layers,
                           const double *speed);
/* The best of one to four nano-batches with shares in eighths. */
TU_API double tu_form_nano_best(const double *time, const unsigned *resource, size_t ops,
                                double overhead, size_t layers, const double *speed,
                                size_t *k);

TU_END

#endif
