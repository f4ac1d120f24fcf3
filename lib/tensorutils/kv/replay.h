/* SPDX-License-Identifier: Apache-2.0 */
/* replay.h: request traces through a cache of blocks: what a policy and a capacity would
 * have hit, and what preemption would have cost. */
#ifndef TENSORUTILS_KV_REPLAY_H
#define TENSORUTILS_KV_REPLAY_H

#include "../core.h"

TU_BEGIN

struct tu_kv_request {
    int64_t at;             /* microseconds; order of the file where it has none */
    uint64_t input, output; /* tokens */
    uint64_t first, blocks; /* of id */
    uint64_t line;          /* in the file */
};

/* Equal ids are equal whole prefixes, so ids form a tree. */
struct tu_kv_trace {
    size_t n, cap;
    struct tu_kv_request *request;
    size_t ids, ids_cap;
    uint32_t *id;     /* dense: 0 … distinct-1 in order of first appearance */
    uint32_t distinct;
    size_t tree_cap;
    uint32_t *parent; /* [distinct] UINT32_MAX: a root */
    uint32_t *depth;  /* [distinct] */
    uint32_t block;   /* tokens of a block */
    bool hashed;      /* it has ids at all */
    uint64_t warnings;
    const char *format;
};

/* A row: a form of traces. */
struct tu_kv_trace_form {
    const char *name, *help;
    uint32_t block; /* tokens of a block, 0: no ids */
    int64_t tick;   /* microseconds of a unit of its timestamps */
};
TU_API extern const struct tu_kv_trace_form tu_kv_trace_forms[]; /* ends without a name */
/* Read a trace; form NULL: by its looks. block 0: the form's. What looks wrong (hash count
 * against length, an id under two parents, time that goes back, no tokens) is told by
 * job's warn with the line, at most `warn_max` times. Errors: TU_EFORMAT with the line. */
TU_API TU_MUST int tu_kv_trace_read(struct tu_kv_trace *out, struct tu_in *in,
                                    const struct tu_kv_trace_form *form, uint32_t block,
                                    uint64_t warn_max, const struct tu_job *job,
                                    struct tu_err *err);
TU_API void tu_kv_trace_release(struct tu_kv_trace *t);
/* Order requests along the tree: those with a common prefix follow each other, children
 * as they first appeared. order [n]. */
TU_API TU_MUST int tu_kv_trace_order(const struct tu_kv_trace *t, uint32_t *order,
                                     struct tu_err *err);

/* Cache alone ---------------------------------------------------------------------- */

struct tu_kv_hits {
    uint64_t blocks, hits, evictions, resident;
};
/* A row: per request hits are the leading run of resident blocks, then all its blocks are
 * touched or inserted, deepest first, then the policy evicts down to `capacity`
 * (UINT64_MAX: unlimited). */
struct tu_kv_policy {
    const char *name, *help;
    const char *const *key; /* arguments */
    int (*run)(const struct tu_kv_trace *t, uint64_t capacity, const struct tu_spec *spec,
               struct tu_kv_hits *out, struct tu_err *err);
};
TU_API extern const struct tu_kv_policy *const tu_kv_policies[]; /* NULL-ended */
/* NAME[:KEY=VALUE,…] */
TU_API TU_MUST int tu_kv_replay(const struct tu_kv_trace *t, const struct tu_spec *policy,
                                uint64_t capacity, struct tu_kv_hits *out,
                                struct tu_err *err);

/* Prefix groups (BatchLLM, arXiv 2412.03594): blocks that a whole batch need not compute
 * again with a tree of groups, and with each request in one group. */
struct tu_kv_groups {
    uint64_t multi, single, groups;
};
TU_API TU_MUST int tu_kv_group(const struct tu_kv_trace *t, struct tu_kv_groups *out,
                               struct tu_err *err);
/* Order requests by those groups: groups of one prefix together, larger output for each
 * input first. order [n]. */
TU_API TU_MUST int tu_kv_group_order(const struct tu_kv_trace *t, uint32_t *order,
                                     struct tu_err *err);

/* Waste of pages of `block` tokens over all requests; of reserving `reserve` tokens for
 * each (over: requests that do not fit), and of the next power of two. Fractions. */
struct tu_kv_waste {
    double paged, reserved, power;
    uint64_t over, longest, tokens;
};
TU_API void tu_kv_trace_waste(const struct tu_kv_trace *t, uint64_t block,
                              uint64_t reserve, struct tu_kv_waste *out);

/* With a clock ---------------------------------------------------------------------- */

struct tu_kv_timed_how {
    uint64_t block, blocks; /* blocks UINT64_MAX: unlimited */
    int64_t pre, dec;       /* microseconds for a prompt token, for an output token */
    int64_t *finish;        /* [n] or NULL: when each ended, -1 rejected */
};
struct tu_kv_timed {
    uint64_t peak, running; /* blocks, requests at once */
    uint64_t preemptions, recomputed, rejected;
    int64_t makespan;
    double waste; /* empty slots of held blocks, over time */
};
/* First come, first served, an unlimited batch, no sharing; the latest admitted is
 * preempted and computed again. Errors: TU_EUSAGE for times that overflow. */
TU_API TU_MUST int tu_kv_timed_run(const struct tu_kv_trace *t,
                                   const struct tu_kv_timed_how *how,
                                   struct tu_kv_timed *out, struct tu_err *err);

TU_END

#endif
