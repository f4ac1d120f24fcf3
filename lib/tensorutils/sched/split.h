/* SPDX-License-Identifier: Apache-2.0 */
/* split.h: layers onto stages, stages onto devices.
 *
 * Costs are int64 in one unit; speeds divide them. May change before 1.0. */
#ifndef TENSORUTILS_SCHED_SPLIT_H
#define TENSORUTILS_SCHED_SPLIT_H

#include "../core.h"

TU_BEGIN

/* A contiguous split of layers with the least maximum stage time. */
struct tu_partition {
    size_t layers, stages;
    const int64_t *cost; /* [layers] */
    int64_t first,
        last; /* more on the first stage (embedding) and the last (head, loss) */
    const double *speed;   /* [stages], NULL: all 1; a stage's time is its cost / speed */
    const int64_t *memory; /* [layers], NULL: not limited */
    const int64_t *cap;    /* [stages] with memory */
    bool empty;            /* stages may be empty where all other splits are longer */
};
/* count[stages]: layers of each stage, the lexicographically least of the best; *worst:
 * the longest stage time. Without `empty` stages are empty only when there are fewer layers
 * than stages.
 * Errors: TU_EUSAGE naming the stage that cannot hold its layers. */
TU_API TU_MUST int tu_partition_find(const struct tu_partition *q, size_t *count,
                                     double *worst, struct tu_err *err);

/* Megatron's layout text: "Et*3|(tt|)*29,m|L", E embedding, t layer, m multi-token
 * prediction, L loss; cells are stages in order. */
struct tu_layout_cell {
    uint32_t embedding, layers, mtp, loss;
};
/* *cell: tu_free. Errors: TU_EFORMAT with the byte. */
TU_API TU_MUST int tu_layout_read(struct tu_layout_cell **cell, size_t *n,
                                  const char *text, struct tu_err *err);
TU_API TU_MUST int tu_layout_write(struct tu_buf *out, const struct tu_layout_cell *cell,
                                   size_t n, struct tu_err *err);

/* Decentralised placement: devices with latencies and bandwidths between them are cut in
 * `pp` groups of `dp`; a group shares a stage, neighbouring groups pass activations.
 * Source: Yuan et al., "Decentralized Training of Foundation Models in Heterogeneous
 * Environments", 2022. */
struct tu_swarm_net {
    size_t devices;          /* = dp·pp */
    const double *latency;   /* [devices][devices], seconds */
    const double *bandwidth; /* [devices][devices], bytes per second */
    size_t dp, pp;
    double dp_bytes, pp_bytes; /* a stage's gradients; a micro-batch's activation */
};
struct tu_placed {
    double dp_s, pp_s, total_s;
    uint64_t tried; /* partitions priced */
    bool all;       /* every partition was priced */
};
/* group[devices]: position in the pipeline of each device's group. With `given` the
 * partition in group[] is priced and its groups are put in order. */
TU_API TU_MUST int tu_place_find(const struct tu_swarm_net *net, uint32_t *group,
                                 struct tu_placed *out, bool given, uint64_t seed,
                                 uint64_t effort, struct tu_err *err);

/* Whole numbers in proportion to weight, summing to total; the largest remainders are
 * rounded up (Holmes: layers for clusters of different speed). */
TU_API TU_MUST int tu_apportion(const double *weight, size_t n, uint64_t total,
                                uint64_t *out, struct tu_err *err);

/* Batch and state of a sharded group of unequal devices, chosen apart (Cephalo):
 * micro-batches by speed, state by free memory. */
struct tu_uneven {
    size_t devices;
    const double *speed;   /* samples per second */
    const int64_t *memory; /* bytes */
    uint64_t batch;
    int64_t state_bytes, sample_bytes; /* of all parameters; activations of one sample */
    double gather_s;                   /* to gather the parameters once */
};
/* batch[devices], state[devices]; *step_s: the longest of compute and gathering.
 * TU_EUSAGE when it does not fit together. */
TU_API TU_MUST int tu_uneven_split(const struct tu_uneven *q, uint64_t *batch,
                                   int64_t *state, double *step_s, struct tu_err *err);

/* Pipeline stages across networks, each stage within one (Holmes): the devices of a
 * network, fastest first, make stages of dp; layers go by the slowest device of a stage. */
struct tu_nics {
    size_t devices;
    const uint32_t *nic;   /* [devices]: network of each, numbered from 0 */
    const double *speed;   /* [devices]: layers per second */
    size_t dp;
    uint64_t layers;
};
/* stage[devices], layers[devices/dp]; *step: seconds of the slowest stage. TU_EUSAGE when
 * a network does not make whole stages. */
TU_API TU_MUST int tu_place_nics(const struct tu_nics *q, uint32_t *stage,
                                 uint64_t *layers, size_t *stages, double *step,
                                 struct tu_err *err);

/* Experts of each layer onto devices so that tokens stay where they are (ExFlow): routed
 * [layers-1][experts][experts] counts tokens that go from one expert to one of the next
 * layer. device[layers][experts]; *kept: share of transitions that stay on a device. */
TU_API TU_MUST int tu_place_experts(const uint64_t *routed, size_t layers, size_t experts,
                                    size_t devices, uint32_t *device, double *kept,
                                    struct tu_err *err);

/* Square-cube peers on an unreliable network (SWARM; tensorutils definition): stages are
 * served by interchangeable peers, each client sends its micro-batch to one of the next
 * stage, by turns weighted by 1/mean response time; a peer that leaves hands on what it
 * had; from time to time the stage with the longest queues gets a peer from the one with
 * the shortest. A micro-batch goes down all stages and back, which takes twice as long.
 * Source: Ryabinin et al., "SWARM Parallelism", 2023. */
struct tu_swarm_peer {
    uint32_t stage;
    int64_t service;    /* ns of a forward */
    int64_t join, fail; /* ns; INT64_MAX: never */
};
struct tu_swarm {
    const struct tu_swarm_peer *peer;
    size_t peers;
    uint32_t stages, clients; /* a client has one micro-batch under way */
    uint64_t batches;         /* micro-batches in all */
    int64_t transfer;         /* ns from peer to peer */
    int64_t rebalance;        /* ns between two checks, 0: never */
    int64_t move;             /* ns that a moved peer takes to load its new stage */
    int64_t mean_failure;     /* ns of a peer's life, uniform in 0 … twice this; 0: none */
    int64_t repair;           /* ns until it is back */
    uint64_t seed;
};
struct tu_swarm_stage {
    uint32_t peers;  /* at the end */
    uint64_t served; /* forwards and backwards */
    double load;     /* mean of micro-batches there */
};
struct tu_swarm_run {
    uint64_t done; /* below batches when a stage was left without peers for good */
    int64_t end;   /* ns */
    int64_t bound; /* ns: what the stage of least capacity takes without any failure */
    uint64_t rerouted, failures, moved;
};
/* stage[stages]: the caller's. Errors: TU_EUSAGE. */
TU_API TU_MUST int tu_swarm_run(struct tu_swarm_run *out, struct tu_swarm_stage *stage,
                                const struct tu_swarm *q, struct tu_err *err);

TU_END

#endif
