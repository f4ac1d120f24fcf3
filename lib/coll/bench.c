/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c: measures and verifies collectives, in a rank.
 *
 * All ranks walk through the same list; rank 0 collects times and verdicts by messages
 * and posts a row. A sample is one operation (each) or a batch of them under one pair of
 * clock readings; it is averaged over the ranks, and the statistics are over samples. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>
#include "exec.h"
#include "trace.h"

#define BATCHES 10
#define SAMPLES_MAX 10000u

struct lot { /* one line of the list */
    enum tu_collective coll;
    uint32_t dtype;
    uint64_t asked, bytes, count;
    size_t size;
    uint64_t in, out; /* elements of the buffers */
};

struct bench {
    struct tu_rank *rank;
    const struct tu_bench *b;
    unsigned char *in, *out, *own; /* own: memory of this process, for both */
    uint64_t room;                 /* bytes of each */
    double *sample, *theirs;
    struct tu_seen seen;
    struct tu_bench_row row;
    bool native;   /* the transport's own collective stands for the algorithm */
    uint64_t hash; /* rank 0's output, to compare the others' with */
};

static void measure_lot(const struct tu_bench *b, uint32_t ranks, enum tu_collective c,
                        uint32_t dtype, uint64_t asked, struct lot *l)
{
    const struct tu_collective_row *row = &tu_collective_rows[c];
    bool blocks = row->in == 2 || row->out == 2;
    (void)b;
    *l = (struct lot){.coll = c, .dtype = dtype, .asked = asked};
    l->size = tu_dtype_find(dtype)->block_bytes;
    l->count = asked / l->size / (blocks ? ranks : 1);
    if (c == TU_BARRIER)
        l->count = 0;
    l->bytes = l->count * l->size * (blocks ? ranks : 1);
    l->in = l->count * (row->in == 2 ? ranks : 1);
    l->out = l->count * (row->out == 2 ? ranks : 1);
}

static uint64_t largest(const struct tu_bench *b)
{
    uint64_t most = 0;
    for (size_t i = 0; i < b->sizes; i++)
        most = tu_max(most, b->bytes[i]);
    return most;
}

/* Of one buffer: the largest size, room to be off the alignment, whole pages. */
static int buffer_room(const struct tu_bench *b, uint64_t *out, struct tu_err *err)
{
    uint64_t most = largest(b);
    if (most > UINT64_C(1) << 46)
        return tu_fail(err, TU_EUSAGE, "buffers of %llu bytes", (unsigned long long)most);
    *out = tu_align(most + 16 * (uint64_t)b->unalign + 64, 4096);
    return 0;
}

int tu_bench_shared(const struct tu_bench *b, uint32_t ranks, uint64_t *out,
                    struct tu_err *err)
{
    (void)ranks;
    int code = buffer_room(b, out, err);
    *out = code || b->hidden ? 0 : 2 * *out;
    return code;
}

static int make_buffers(struct bench *s, struct tu_err *err)
{
    int code = buffer_room(s->b, &s->room, err);
    if (code)
        return code;
    unsigned char *base =
        s->b->hidden ? NULL : tu_rank_shared(s->rank, tu_rank_id(s->rank));
    if (!base && !(base = s->own = tu_alloc((size_t)(2 * s->room), 1, err)))
        return TU_ENOMEM;
    s->in = base;
    s->out = base + s->room;
    memset(base, 0, (size_t)(2 * s->room));
    s->sample = tu_calloc(SAMPLES_MAX, sizeof *s->sample, err);
    s->theirs = tu_calloc(SAMPLES_MAX, sizeof *s->theirs, err);
    s->seen.peer = tu_calloc(tu_rank_size(s->rank), sizeof *s->seen.peer, err);
    return s->sample && s->theirs && s->seen.peer ? 0 : TU_ENOMEM;
}

/* Where iteration i works. In place: the two conventions of section 5. */
static void place(const struct bench *s, const struct lot *l, bool in_place, uint64_t i,
                  unsigned char **in, unsigned char **out)
{
    uint64_t off = s->b->unalign * l->size, most = largest(s->b);
    if (s->b->cold && l->bytes)
        off += l->bytes / 64 * 64 * (i % (most / l->bytes));
    *in = s->in + off;
    *out = s->out + off;
    if (!in_place)
        return;
    uint64_t mine = tu_rank_id(s->rank) * l->count * l->size;
    if (l->in < l->out)
        *in = *out + mine;
    else if (l->in > l->out)
        *out = *in + mine;
    else
        *out = *in;
}

static bool can_be_in_place(enum tu_collective c)
{
    return c == TU_ALLREDUCE || c == TU_ALLGATHER || c == TU_REDUCE_SCATTER ||
           c == TU_BROADCAST || c == TU_REDUCE;
}

static struct tu_case case_of(const struct bench *s, const struct lot *l, uint64_t iter)
{
    return (struct tu_case){.coll = l->coll,
                            .op = s->b->op,
                            .fill = s->b->fill,
                            .dtype = l->dtype,
                            .ranks = tu_rank_size(s->rank),
                            .root = s->b->root,
                            .count = l->count,
                            .seed = s->b->seed,
                            .iter = iter,
                            .premul = s->b->premul};
}

/* Every rank sends n bytes to rank 0, which hands them to take. */
static int collect(struct bench *s, const void *mine, void *theirs, uint64_t n,
                   void (*take)(struct bench *s, uint32_t rank, const void *p),
                   struct tu_err *err)
{
    if (tu_rank_id(s->rank))
        return tu_rank_send(s->rank, 0, mine, n, err);
    take(s, 0, mine);
    int code = 0;
    for (uint32_t q = 1; q < tu_rank_size(s->rank) && !code; q++) {
        code = tu_rank_recv(s->rank, q, theirs, n, err);
        if (!code)
            take(s, q, theirs);
    }
    return code;
}

static int share(struct bench *s, uint64_t *v, struct tu_err *err)
{
    int code = 0;
    if (tu_rank_id(s->rank))
        return tu_rank_recv(s->rank, 0, v, sizeof *v, err);
    for (uint32_t q = 1; q < tu_rank_size(s->rank) && !code; q++)
        code = tu_rank_send(s->rank, q, v, sizeof *v, err);
    return code;
}

/* Verification -------------------------------------------------------------------------
 */

struct found {
    struct tu_verdict v;
    uint64_t hash;
    uint32_t place, agree;
};

static void take_found(struct bench *s, uint32_t rank, const void *p)
{
    const struct found *f = p;
    struct tu_timing *t = &s->row.place[f->place];
    if (!rank)
        s->hash = f->hash;
    if (f->agree && f->hash != s->hash)
        t->differ = true;
    if (t->wrong <= 0 && f->v.wrong) {
        t->first = f->v.first;
        t->got = f->v.got;
        t->want = f->v.want;
    }
    t->wrong = (t->wrong < 0 ? 0 : t->wrong) + (int64_t)f->v.wrong;
}

/* Inputs of operation i, and an output that holds nothing of the one before. */
static void fill(struct bench *s, const struct lot *l, bool in_place, uint64_t i)
{
    struct tu_case c = case_of(s, l, i);
    unsigned char *in, *out;
    place(s, l, in_place, i, &in, &out);
    memset(out, 0xa5, (size_t)(l->out * l->size));
    tu_case_input(&c, tu_rank_id(s->rank), in);
}

/* The output of operation i, at every rank; rank 0 counts. */
static int judge(struct bench *s, const struct lot *l, bool in_place, uint64_t i,
                 struct tu_err *err)
{
    bool agree =
        l->coll == TU_ALLREDUCE || l->coll == TU_ALLGATHER || l->coll == TU_BROADCAST;
    struct found f = {.place = in_place, .agree = agree}, theirs;
    struct tu_case c = case_of(s, l, i);
    unsigned char *in, *out;
    place(s, l, in_place, i, &in, &out);
    int code = tu_case_check(&c, tu_rank_id(s->rank), out, &f.v, err);
    f.hash = XXH3_64bits(out, (size_t)(l->out * l->size));
    return code ? code : collect(s, &f, &theirs, sizeof f, take_found, err);
}

static int verify(struct bench *s, const struct lot *l, struct tu_exec *x, bool in_place,
                  struct tu_err *err)
{
    int code = 0;
    for (uint64_t i = 0; i < s->b->check && !code; i++) {
        unsigned char *in, *out;
        place(s, l, in_place, i, &in, &out);
        fill(s, l, in_place, i);
        code = tu_exec_run(x, in, out, err);
        if (!code)
            code = judge(s, l, in_place, i, err);
    }
    return code;
}

/* Timing
 * --------------------------------------------------------------------------------- */

static void take_times(struct bench *s, uint32_t rank, const void *p)
{
    const double *v = p;
    struct tu_timing *t = &s->row.place[s->row.place[1].done];
    double mean = 0, n = tu_rank_size(s->rank);
    for (uint64_t i = 0; i < s->row.samples; i++) {
        mean += v[i] / (double)s->row.samples;
        s->sample[i] = rank ? s->sample[i] + v[i] / n : v[i] / n;
    }
    t->rank_min = rank ? fmin(t->rank_min, mean) : mean;
    t->rank_max = rank ? fmax(t->rank_max, mean) : mean;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Percentiles by nearest rank, as nccl-tests has them. */
static void statistics(struct bench *s, const struct lot *l, struct tu_timing *t)
{
    uint64_t n = s->row.samples;
    double *v = s->sample;
    t->mean = 0;
    for (uint64_t i = 0; i < n; i++)
        t->mean += v[i] / (double)n;
    qsort(v, n, sizeof *v, ascending);
    t->min = v[0];
    t->max = v[n - 1];
    t->p50 = v[n / 2];
    t->p95 = v[tu_min(n - 1, (uint64_t)ceil((double)n * 0.95) - 1)];
    t->p99 = v[tu_min(n - 1, (uint64_t)ceil((double)n * 0.99) - 1)];
    t->algbw = l->bytes && t->mean > 0 ? (double)l->bytes / t->mean : 0;
    t->busbw = t->algbw * tu_bus_factor(l->coll, tu_rank_size(s->rank));
}

/* One operation, recorded if asked for. */
static int operate(struct bench *s, const struct lot *l, struct tu_exec *x, bool in_place,
                   uint64_t i, struct tu_err *err)
{
    unsigned char *in, *out;
    place(s, l, in_place, i, &in, &out);
    if (!s->b->trace)
        return tu_exec_run(x, in, out, err);
    s->seen.arrive_ns = 0;
    tu_rank_watch(s->rank, &s->seen);
    int code = tu_exec_run(x, in, out, err);
    tu_rank_watch(s->rank, NULL);
    /* Also of an operation that failed: who came to it tells who did not. */
    int late = 0;
    if (s->seen.arrive_ns)
        late = tui_trace_post(s->rank, &s->seen, tu_collective_rows[l->coll].name,
                              l->dtype, l->bytes, !code, code ? NULL : err);
    return code ? code : late;
}

/* How many operations: those asked for, or as many as min_time takes; rank 0 decides. */
static int decide(struct bench *s, const struct lot *l, struct tu_exec *x,
                  uint64_t *iters, struct tu_err *err)
{
    int code = tu_rank_barrier(s->rank, err);
    double from = tu_clock();
    uint64_t n = tu_max(s->b->warmup, 1);
    for (uint64_t i = 0; i < n && !code; i++)
        code = operate(s, l, x, false, i, err);
    double each = (tu_clock() - from) / (double)n;
    *iters = s->b->iters;
    if (s->b->min_time > 0 && each > 0)
        *iters = tu_max(*iters, (uint64_t)fmin(s->b->min_time / each, 1e6));
    return code || s->b->min_time <= 0 ? code : share(s, iters, err);
}

static int time_lot(struct bench *s, const struct lot *l, struct tu_exec *x,
                    bool in_place, uint64_t iters, struct tu_err *err)
{
    bool checked = s->b->check_timed, each = s->b->each || s->b->trace || checked;
    uint64_t samples = each ? tu_min(iters, SAMPLES_MAX) : tu_min(iters, BATCHES);
    struct tu_timing *t = &s->row.place[in_place];
    int code = tu_rank_barrier(s->rank, err);
    double *mine = s->theirs; /* rank 0 sums into sample while it receives into theirs */
    double *kept = tu_alloc(samples, sizeof *kept, err);
    if (!kept)
        return TU_ENOMEM;
    for (uint64_t i = 0, k = 0; k < samples && !code; k++) {
        uint64_t n = iters * (k + 1) / samples - iters * k / samples;
        if (checked) {
            fill(s, l, in_place, i);
            code = tu_rank_barrier(s->rank, err);
        }
        double from = tu_clock();
        for (uint64_t j = 0; j < n && !code; j++, i++)
            code = operate(s, l, x, in_place, i, err);
        kept[k] = (tu_clock() - from) / (double)n;
        if (checked && !code)
            code = judge(s, l, in_place, i - 1, err);
        if (each && !code)
            code = tu_rank_barrier(s->rank, err);
    }
    s->row.samples = samples;
    t->done = true;
    if (!code)
        code = collect(s, kept, mine, samples * sizeof *kept, take_times, err);
    if (!code && !tu_rank_id(s->rank))
        statistics(s, l, t);
    tu_free(kept);
    return code;
}

static int post_row(struct bench *s, struct tu_err *err)
{
    unsigned char p[4 + sizeof s->row];
    if (tu_rank_id(s->rank))
        return 0;
    tu_put32(p, TU_BENCH_ROW);
    memcpy(p + 4, &s->row, sizeof s->row);
    return tu_rank_post(s->rank, p, sizeof p, err);
}

static int run_lot(struct bench *s, const struct lot *l, const struct tu_spec *spec,
                   const char *text, struct tu_err *err)
{
    const struct tu_bench *b = s->b;
    struct tu_plan plan;
    struct tu_exec *x = NULL;
    uint64_t iters = 0;
    bool reduces = tu_collective_rows[l->coll].reduces;
    int code =
        tu_plan_make(&plan, l->coll, spec, tu_rank_size(s->rank), b->root, l->count, err);
    if (!code)
        code = tu_exec_new(&x, s->rank, &plan, l->dtype, b->op,
                           reduces ? b->order : TU_ORDER_ANY, b->premul, err);
    if (code)
        return code;
    x->native = s->native;
    s->row = (struct tu_bench_row){.coll = l->coll,
                                   .dtype = l->dtype,
                                   .ranks = tu_rank_size(s->rank),
                                   .asked = l->asked,
                                   .bytes = l->bytes,
                                   .count = l->count};
    snprintf(s->row.algorithm, sizeof s->row.algorithm, "%s",
             s->native ? s->rank->w->row->name : text);
    s->row.place[0].wrong = s->row.place[1].wrong = -1;
    struct tu_traffic before = tu_rank_traffic(s->rank);
    unsigned char *in, *out;
    place(s, l, false, 0, &in, &out);
    code = tu_exec_run(x, in, out, err);
    s->row.sent = tu_rank_traffic(s->rank).bytes - before.bytes;
    s->row.messages = tu_rank_traffic(s->rank).messages - before.messages;
    if (!code)
        code = decide(s, l, x, &iters, err);
    s->row.iters = iters;
    bool twice = can_be_in_place(l->coll) && !b->out_only;
    for (int in_place = 0; in_place <= twice && !code; in_place++) {
        code = time_lot(s, l, x, in_place, iters, err);
        if (!code)
            code = verify(s, l, x, in_place, err);
    }
    tu_exec_free(x);
    return code ? code : post_row(s, err);
}

/* One size with one algorithm, "auto" or "all" of those that apply. */
static int run_named(struct bench *s, const struct lot *l, const char *name,
                     struct tu_err *err)
{
    struct tu_spec spec;
    enum tu_order order = s->b->order;
    uint32_t ranks = tu_rank_size(s->rank);
    bool shared = tu_rank_is_shared(s->rank), ordered = order != TU_ORDER_ANY;
    if (strcmp(name, "all") == 0) {
        int code = 0;
        for (size_t i = 0; tu_algorithms[i] && !code; i++) {
            const struct tu_algorithm *a = tu_algorithms[i];
            struct tu_plan p;
            spec = (struct tu_spec){.name = (char *)(uintptr_t)a->name};
            if (a->coll == l->coll && (shared || !(a->flags & TU_ALG_SHARED)) &&
                (!ordered || (a->flags & TU_ALG_ORDERED)) &&
                !tu_plan_make(&p, l->coll, &spec, ranks, s->b->root, l->count, NULL))
                code = run_lot(s, l, &spec, a->name, err);
        }
        return code;
    }
    bool fold = ordered && tu_collective_rows[l->coll].reduces;
    const struct tu_algorithm *a = tu_algorithm_find(l->coll, name);
    const struct tu_transport_ops *ops = s->rank->w->row->ops;
    s->native = strcmp(name, "auto") == 0 && !ordered && ops->has &&
                ops->has(l->coll, l->dtype);
    if (strcmp(name, "auto") == 0 || (fold && a && !(a->flags & TU_ALG_ORDERED)))
        name = tu_algorithm_auto(l->coll, ranks, (double)l->bytes, shared, order);
    if (!name)
        return tu_fail(err, TU_EUSAGE, "%s has no algorithm that keeps order '%s'",
                       tu_collective_rows[l->coll].name, tu_order_names[order]);
    int code = tu_spec_parse(&spec, name, err);
    if (code)
        return code;
    code = run_lot(s, l, &spec, name, err);
    tu_spec_release(&spec);
    return code;
}

int tu_bench_rank(struct tu_rank *r, const struct tu_bench *b, struct tu_err *err)
{
    struct bench s = {.rank = r, .b = b};
    int code = make_buffers(&s, err);
    for (size_t c = 0; c < b->colls && !code; c++)
        for (size_t d = 0; d < b->dtypes && !code; d++)
            for (size_t i = 0; i < b->sizes && !code; i++)
                for (size_t a = 0; a < b->algos && !code; a++) {
                    struct lot l;
                    measure_lot(b, tu_rank_size(r), b->coll[c], b->dtype[d], b->bytes[i],
                                &l);
                    code = run_named(&s, &l, b->algo[a], err);
                    if (b->coll[c] == TU_BARRIER)
                        i = b->sizes; /* once */
                }
    tu_free(s.own);
    tu_free(s.sample);
    tu_free(s.theirs);
    tu_free(s.seen.peer);
    return code;
}
