/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.c: the patterns of training as lists of tasks. replay.c runs them.
 *
 * Sizes are bytes of parameters or gradients; durations are those of one step, or of one
 * layer where the pattern says so. */
#include <math.h>
#include "plan.h"

#define TASKS_MAX 100000u
#define MIB (UINT64_C(1) << 20)

void tu_tasks_release(struct tu_tasks *t)
{
    tu_free(t->task);
    *t = (struct tu_tasks){0};
}

static int add(struct tu_tasks *t, struct tu_task task, uint32_t *index,
               struct tu_err *err)
{
    if (t->n == TASKS_MAX)
        return tu_fail(err, TU_EUSAGE, "a step of more than %u tasks", TASKS_MAX);
    int code = TU_GROW(&t->task, &t->cap, t->n, err);
    if (code)
        return code;
    *index = (uint32_t)t->n;
    t->task[t->n++] = task;
    return 0;
}

static int compute(struct tu_tasks *t, double seconds, uint32_t after, uint32_t *index,
                   struct tu_err *err)
{
    return add(t, (struct tu_task){.seconds = seconds, .after = after}, index, err);
}

static int operate(struct tu_tasks *t, enum tu_collective c, uint64_t bytes,
                   uint32_t after, uint32_t *index, struct tu_err *err)
{
    struct tu_task task = {.seconds = -1, .coll = c, .bytes = bytes, .after = after};
    return add(t, task, index, err);
}

/* Keys ----------------------------------------------------------------------------- */

static int size_of(const struct tu_spec *s, const char *key, uint64_t fallback,
                   uint64_t *out, struct tu_err *err)
{
    const char *text = tu_spec_get(s, key);
    *out = fallback;
    int code = text ? tu_parse_size(text, out, err) : 0;
    if (!code && (!*out || *out > UINT64_C(1) << 46))
        code = tu_fail(err, TU_EUSAGE, "%s=%s: 1 byte to 64T", key, text);
    return code;
}

static int time_of(const struct tu_spec *s, const char *key, double fallback, double *out,
                   struct tu_err *err)
{
    const char *text = tu_spec_get(s, key);
    uint64_t ns;
    int code = text ? tu_parse_duration(text, &ns, err) : 0;
    *out = text && !code ? (double)ns / 1e9 : fallback;
    return code;
}

static int count_of(const struct tu_spec *s, const char *key, uint64_t fallback,
                    uint64_t most, uint64_t *out, struct tu_err *err)
{
    int code = tu_spec_u64(s, key, fallback, out, err);
    if (!code && (!*out || *out > most))
        code = tu_fail(err, TU_EUSAGE, "%s=%llu: 1 to %llu", key,
                       (unsigned long long)*out, (unsigned long long)most);
    return code;
}

static int real_of(const struct tu_spec *s, const char *key, double fallback, double *out,
                   struct tu_err *err)
{
    const char *text = tu_spec_get(s, key);
    *out = fallback;
    int code = text ? tu_parse_double(text, out, err) : 0;
    if (!code && !(*out > 0 && *out < 1e9))
        code = tu_fail(err, TU_EUSAGE, "%s=%s: more than 0", key, text);
    return code;
}

/* Data parallel -------------------------------------------------------------------- */

static const char *const bucket_keys[] = {"bytes", "first", "bucket", "compute", NULL};

struct buckets {
    uint64_t bytes, first, bucket;
    double compute; /* of the backward pass, shared out by bytes */
};

static int read_buckets(struct buckets *b, const struct tu_spec *s, struct tu_err *err)
{
    int code = size_of(s, "bytes", 100 * MIB, &b->bytes, err);
    if (!code)
        code = size_of(s, "first", MIB, &b->first, err);
    if (!code)
        code = size_of(s, "bucket", 25 * MIB, &b->bucket, err);
    return code ? code : time_of(s, "compute", 0.02, &b->compute, err);
}

/* Gradients become ready bucket by bucket, and each is reduced while the next is
 * computed. *last is the last operation. */
static int backward(struct tu_tasks *t, const struct buckets *b, enum tu_collective c,
                    uint32_t *last, struct tu_err *err)
{
    int code = 0;
    uint64_t n;
    for (uint64_t at = 0; at < b->bytes && !code; at += n) {
        uint32_t grad;
        n = tu_min(at ? b->bucket : b->first, b->bytes - at);
        code =
            compute(t, b->compute * (double)n / (double)b->bytes, TU_NOBODY, &grad, err);
        if (!code)
            code = operate(t, c, n, grad, last, err);
    }
    return code;
}

static int build_ddp(struct tu_tasks *t, const struct tu_spec *s, uint32_t ranks,
                     struct tu_err *err)
{
    struct buckets b;
    uint32_t last;
    (void)ranks;
    int code = read_buckets(&b, s, err);
    return code ? code : backward(t, &b, TU_ALLREDUCE, &last, err);
}

static const struct tu_pattern ddp = {
    "ddp",
    "gradients all-reduced in buckets while the next are computed",
    "torch.nn.parallel.DistributedDataParallel: first bucket 1 MiB, then 25 MiB",
    bucket_keys,
    build_ddp,
};

static int build_zero(struct tu_tasks *t, const struct tu_spec *s, uint32_t ranks,
                      struct tu_err *err)
{
    struct buckets b;
    uint32_t last, at;
    (void)ranks;
    int code = read_buckets(&b, s, err);
    if (!code)
        code = backward(t, &b, TU_REDUCE_SCATTER, &last, err);
    for (uint64_t done = 0; done < b.bytes && !code; done += b.bucket)
        code = operate(t, TU_ALLGATHER, tu_min(b.bucket, b.bytes - done), last, &at, err);
    return code;
}

static const struct tu_pattern zero = {
    "zero",
    "gradients reduce-scattered in buckets, then parameters gathered",
    "ZeRO stage 1 and 2, arXiv 1910.02054",
    bucket_keys,
    build_zero,
};

/* Fully sharded: each layer is gathered before it is used, one layer ahead. -------- */

static const char *const layer_keys[] = {"bytes", "layers", "compute", NULL};

/* One pass over the layers. A layer is gathered while the one before it is computed, once
 * the memory of the one before that is free. */
static int sharded_pass(struct tu_tasks *t, uint64_t bytes, uint64_t layers,
                        double seconds, bool reduce, uint32_t *done, struct tu_err *err)
{
    uint32_t ready, next = TU_NOBODY, out;
    int code = operate(t, TU_ALLGATHER, bytes, *done, &ready, err);
    for (uint64_t i = 0; i < layers && !code; i++) {
        if (i + 1 < layers)
            code = operate(t, TU_ALLGATHER, bytes, *done, &next, err);
        if (!code)
            code = compute(t, seconds, ready, done, err);
        if (!code && reduce)
            code = operate(t, TU_REDUCE_SCATTER, bytes, *done, &out, err);
        ready = next;
    }
    return code;
}

static int build_fsdp(struct tu_tasks *t, const struct tu_spec *s, uint32_t ranks,
                      struct tu_err *err)
{
    uint64_t bytes, layers;
    double seconds;
    uint32_t done = TU_NOBODY;
    (void)ranks;
    int code = size_of(s, "bytes", 100 * MIB, &bytes, err);
    if (!code)
        code = count_of(s, "layers", 4, 10000, &layers, err);
    if (!code)
        code = time_of(s, "compute", 0.03, &seconds, err);
    if (!code)
        code = sharded_pass(t, bytes / layers, layers, seconds / 3 / (double)layers,
                            false, &done, err);
    return code ? code
                : sharded_pass(t, bytes / layers, layers,
                               2 * seconds / 3 / (double)layers, true, &done, err);
}

static const struct tu_pattern fsdp = {
    "fsdp",
    "layers gathered one ahead, forward and backward, gradients scattered",
    "arXiv 2304.11277; volume 3 M (p-1)/p",
    layer_keys,
    build_fsdp,
};

/* Mixture of experts: compute, dispatch, expert, combine. -------------------------- */

static const char *const moe_keys[] = {"layers", "tokens", "topk",    "hidden",
                                       "elem",   "shared", "compute", NULL};

static int build_moe(struct tu_tasks *t, const struct tu_spec *s, uint32_t ranks,
                     struct tu_err *err)
{
    uint64_t layers, tokens, topk, hidden, elem, shared;
    double seconds;
    uint32_t done = TU_NOBODY, sent = TU_NOBODY, side;
    (void)ranks;
    int code = count_of(s, "layers", 2, 10000, &layers, err);
    if (!code)
        code = count_of(s, "tokens", 1024, 1 << 24, &tokens, err);
    if (!code)
        code = count_of(s, "topk", 2, 1024, &topk, err);
    if (!code)
        code = count_of(s, "hidden", 1024, 1 << 20, &hidden, err);
    if (!code)
        code = count_of(s, "elem", 2, 8, &elem, err);
    if (!code)
        code = tu_spec_u64(s, "shared", 0, &shared, err);
    if (!code)
        code = time_of(s, "compute", 0.002, &seconds, err);
    uint64_t bytes = code ? 0 : tokens * topk * hidden * elem;
    if (!code && bytes > UINT64_C(1) << 46)
        code = tu_fail(err, TU_EUSAGE, "a dispatch of %llu bytes",
                       (unsigned long long)bytes);
    for (uint64_t i = 0; i < layers && !code; i++) {
        code = compute(t, seconds / 2, sent, &done, err); /* attention and router */
        if (!code)
            code = operate(t, TU_ALLTOALL, bytes, done, &sent, err);
        if (!code && shared) /* a shortcut that hides the dispatch (ScMoE) */
            code = compute(t, seconds / 2, TU_NOBODY, &side, err);
        if (!code)
            code = compute(t, seconds / 2, sent, &done, err);
        if (!code)
            code = operate(t, TU_ALLTOALL, bytes, done, &sent, err);
    }
    return code ? code : compute(t, 0, sent, &done, err);
}

static const struct tu_pattern moe = {
    "moe",
    "tokens dispatched to experts and combined; shared=1: a dense branch beside it",
    "tokens × topk × hidden × elem bytes twice a layer",
    moe_keys,
    build_moe,
};

/* Seldom or late synchronisation --------------------------------------------------- */

uint64_t tu_qsr_period(double alpha, double eta, uint64_t base)
{
    double h = floor(alpha / eta * (alpha / eta) * (1 + 1e-12));
    return h > (double)base ? (h < 1e9 ? (uint64_t)h : 1000000000u) : base;
}

static const char *const local_keys[] = {"bytes", "h", "alpha", "eta", "compute", NULL};

static int build_local(struct tu_tasks *t, const struct tu_spec *s, uint32_t ranks,
                       struct tu_err *err)
{
    uint64_t bytes, base;
    double alpha, eta, seconds;
    uint32_t done, out;
    (void)ranks;
    int code = size_of(s, "bytes", 100 * MIB, &bytes, err);
    if (!code)
        code = count_of(s, "h", 4, 1000000, &base, err);
    if (!code)
        code = real_of(s, "alpha", 0.01, &alpha, err);
    if (!code)
        code = real_of(s, "eta", alpha, &eta, err);
    if (!code)
        code = time_of(s, "compute", 0.01, &seconds, err);
    if (!code)
        code = compute(t, seconds * (double)tu_qsr_period(alpha, eta, base), TU_NOBODY,
                       &done, err);
    return code ? code : operate(t, TU_ALLREDUCE, bytes, done, &out, err);
}

static const struct tu_pattern local = {
    "local-sgd",
    "parameters averaged every h steps, or as the learning rate eta says",
    "arXiv 1805.09767; quadratic rule: arXiv 2310.14423",
    local_keys,
    build_local,
};

static const char *const co2_keys[] = {"bytes", "tau", "rounds", "compute", NULL};

static int build_co2(struct tu_tasks *t, const struct tu_spec *s, uint32_t ranks,
                     struct tu_err *err)
{
    uint64_t bytes, tau, rounds;
    double seconds;
    uint32_t local_end, late = TU_NOBODY, flying = TU_NOBODY;
    (void)ranks;
    int code = size_of(s, "bytes", 100 * MIB, &bytes, err);
    if (!code)
        code = count_of(s, "tau", 4, 1000000, &tau, err);
    if (!code)
        code = count_of(s, "rounds", 4, 10000, &rounds, err);
    if (!code)
        code = time_of(s, "compute", 0.01, &seconds, err);
    for (uint64_t i = 0; i < rounds && !code; i++) {
        code = compute(t, seconds * (double)tau, late, &local_end, err);
        late = flying; /* what round i launches is waited for at the end of round i+1 */
        if (!code)
            code = operate(t, TU_ALLREDUCE, bytes, local_end, &flying, err);
    }
    return code;
}

static const struct tu_pattern co2 = {
    "co2",
    "local steps over one all-reduce that is a round late",
    "arXiv 2401.16265",
    co2_keys,
    build_co2,
};

/* Neighbours and scalars ----------------------------------------------------------- */

static const char *const gossip_keys[] = {"bytes", "compute", NULL};

/* Both neighbours of a ring; beside the computation of the same step (Adam mixes what it
 * had before) or behind it. */
static int neighbours(struct tu_tasks *t, const struct tu_spec *s, bool beside,
                      struct tu_err *err)
{
    uint64_t bytes;
    double seconds;
    uint32_t done = TU_NOBODY, out;
    int code = size_of(s, "bytes", 100 * MIB, &bytes, err);
    if (!code)
        code = time_of(s, "compute", 0.01, &seconds, err);
    if (!code)
        code = compute(t, seconds, TU_NOBODY, &done, err);
    for (int i = 0; i < 2 && !code; i++)
        code = operate(t, TU_SENDRECV, bytes, beside ? TU_NOBODY : done, &out, err);
    return code;
}

static int build_gossip(struct tu_tasks *t, const struct tu_spec *s, uint32_t ranks,
                        struct tu_err *err)
{
    (void)ranks;
    return neighbours(t, s, false, err);
}

static int build_dadam(struct tu_tasks *t, const struct tu_spec *s, uint32_t ranks,
                       struct tu_err *err)
{
    (void)ranks;
    return neighbours(t, s, true, err);
}

static const struct tu_pattern gossip = {
    "gossip",
    "parameters mixed with both neighbours of a ring",
    "x ← W x, weights 1/3",
    gossip_keys,
    build_gossip,
};
static const struct tu_pattern dadam = {
    "dadam",
    "decentralised Adam: mixing beside the gradient",
    "x ← W x - lr m / (sqrt(v) + ε)",
    gossip_keys,
    build_dadam,
};

static const char *const spsa_keys[] = {"bytes", "compute", NULL};

static int build_spsa(struct tu_tasks *t, const struct tu_spec *s, uint32_t ranks,
                      struct tu_err *err)
{
    uint64_t bytes;
    double seconds;
    uint32_t done, out;
    int code = size_of(s, "bytes", 4, &bytes, err);
    if (!code)
        code = time_of(s, "compute", 0.01, &seconds, err);
    if (!code)
        code = compute(t, seconds, TU_NOBODY, &done, err);
    return code ? code : operate(t, TU_ALLGATHER, bytes * ranks, done, &out, err);
}

static const struct tu_pattern spsa = {
    "spsa",
    "one projected gradient of `bytes` per rank; the direction is a shared seed",
    "J. Spall 1992; arXiv 2305.17333",
    spsa_keys,
    build_spsa,
};

const struct tu_pattern *const tu_patterns[] = {
    &ddp, &zero, &fsdp, &moe, &local, &co2, &gossip, &dadam, &spsa, NULL,
};

int tu_tasks_make(struct tu_tasks *out, const char *text, uint32_t ranks,
                  struct tu_err *err)
{
    struct tu_spec s;
    const struct tu_pattern *p = NULL;
    *out = (struct tu_tasks){0};
    int code = tu_spec_parse(&s, text, err);
    if (code)
        return code;
    for (size_t i = 0; tu_patterns[i] && !p; i++)
        if (strcmp(tu_patterns[i]->name, s.name) == 0)
            p = tu_patterns[i];
    code = p ? tu_spec_check(&s, p->key, err)
             : tu_fail(err, TU_EUSAGE, "no pattern '%s'", s.name);
    if (!code)
        code = p->build(out, &s, ranks, err);
    if (code) {
        tu_tasks_release(out);
        tu_err_prefix(err, "%s", s.name);
    }
    tu_spec_release(&s);
    return code;
}
