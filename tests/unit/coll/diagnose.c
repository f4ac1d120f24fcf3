/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.c: a thousand faults played in the simulator find their culprit, a thousand
 * clean runs raise no alarm; hangs, mismatches and traces that are none. */
#include <stdlib.h>
#include <tensorutils/coll.h>
#include "../tap.h"

struct feed {
    struct tu_trace *trace;
    uint32_t ranks;
    int code;
};

static void take(void *ctx, uint32_t rank, const struct tu_seen *s)
{
    struct feed *f = ctx;
    if (!f->code)
        f->code = tu_trace_add(f->trace, rank, f->ranks, s, NULL);
}

/* 30 operations of one algorithm with a fault (NULL: none); the verdict. */
static struct tu_diagnosis play(const char *algo, uint32_t ranks, uint64_t bytes,
                                uint64_t seed, const struct tu_sim_fault *fault)
{
    struct tu_diagnosis d = {.kind = TU_TOO_SHORT};
    struct tu_topo t;
    struct tu_plan p;
    struct tu_spec s = {.name = (char *)(uintptr_t)algo};
    struct tu_sim_result r;
    char topo[80];
    struct feed f = {.ranks = ranks};
    snprintf(topo, sizeof topo, "levels:n=%u,alpha=5us,bw=12.5G,gamma=50G", ranks);
    if (tu_topo_parse(&t, topo, NULL) ||
        tu_plan_make(&p, TU_ALLREDUCE, &s, ranks, 0, bytes, NULL) ||
        tu_trace_new(&f.trace, NULL))
        abort();
    for (uint64_t op = 0; op < 30; op++) {
        struct tu_sim_opts o = {.fault = fault,
                                .faults = fault != NULL,
                                .jitter = 2e-6,
                                .seed = seed,
                                .op = op,
                                .seen = take,
                                .ctx = &f};
        if (tu_coll_simulate(&r, &p, &t, &o, NULL))
            abort();
    }
    if (f.code || tu_diagnose(f.trace, &d, NULL))
        d.kind = TU_TOO_SHORT;
    tu_trace_free(f.trace);
    return d;
}

static uint32_t pick(uint64_t i, uint32_t n)
{
    struct tu_rng rng = {.seed = 5};
    return tu_rng_u32(&rng, i) % n;
}

static void faults(void)
{
    static const char *const algo[] = {"ring", "direct", "rabenseifner", "doubling"};
    unsigned right = 0, alarms = 0, shown = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint32_t ranks = 4 + pick(4 * i, 9);
        bool link = i % 2;
        /* A slow link shows where each pair or each neighbour exchanges. */
        const char *name = algo[link ? i / 2 % 2 : i / 2 % 4];
        struct tu_sim_fault f = {.rank = pick(4 * i + 1, ranks), .peer = TU_NOBODY};
        if (link) {
            uint32_t step =
                strcmp(name, "ring") == 0 ? 1 : 1 + pick(4 * i + 2, ranks - 1);
            f.peer = (f.rank + step) % ranks;
            f.factor = 3 + pick(4 * i + 3, 8);
        } else {
            f.late = 1e-4 * (1 + pick(4 * i + 3, 20));
        }
        struct tu_diagnosis d = play(name, ranks, 1 << 20, i, &f);
        bool yes = link ? d.kind == TU_SLOW_LINK && d.rank == f.rank && d.peer == f.peer
                        : d.kind == TU_SLOW_RANK && d.rank == f.rank;
        right += yes;
        if (!yes && shown++ < 8)
            printf("# %s, %u ranks, %s %u %u: %s\n", name, ranks, link ? "link" : "rank",
                   f.rank, f.peer, d.text);
        d = play(name, ranks, 1 << 20, 5000 + i, NULL);
        alarms += d.kind != TU_FINE;
        if (d.kind != TU_FINE && shown++ < 8)
            printf("# alarm, %s, %u ranks: %s\n", name, ranks, d.text);
    }
    ok(right >= 990, "%u of 1000 culprits named", right);
    ok(alarms <= 10, "%u false alarms in 1000 clean runs", alarms);
}

static struct tu_diagnosis of_text(const char *text, int *code)
{
    struct tu_trace *t = NULL;
    struct tu_diagnosis d = {.kind = TU_FINE};
    struct tu_err err = {0};
    if (tu_trace_new(&t, &err))
        abort();
    *code = tu_trace_read(t, text, strlen(text), "trace", &err);
    if (!*code)
        *code = tu_diagnose(t, &d, &err);
    if (*code)
        snprintf(d.text, sizeof d.text, "%.200s", err.msg);
    tu_trace_free(t);
    return d;
}

#define LINE(rank, seq, op, bytes, arrive, done)                                         \
    "{\"rank\":" #rank ",\"seq\":" #seq ",\"op\":\"" op                                  \
    "\",\"dtype\":\"f32\",\"bytes\":" #bytes ",\"arrive_ns\":" #arrive                   \
    ",\"first_ns\":0,\"last_ns\":0,\"done_ns\":" #done ",\"peers\":[]}\n"

int main(void)
{
    int code;
    faults();
    struct tu_diagnosis d =
        of_text(LINE(0, 0, "allreduce", 8, 1, 2) LINE(1, 0, "allreduce", 8, 1, 2)
                    LINE(2, 0, "allreduce", 8, 1, 2) LINE(0, 1, "allreduce", 8, 3, 0)
                        LINE(2, 1, "allreduce", 8, 3, 0),
                &code);
    ok(!code && d.kind == TU_HANG && d.rank == 1, "who did not come: %s", d.text);
    d = of_text(LINE(0, 0, "allreduce", 8, 1, 0) LINE(1, 0, "allreduce", 8, 1, 0), &code);
    ok(!code && d.kind == TU_HANG && d.rank == TU_NOBODY, "all came: %s", d.text);
    d = of_text(LINE(0, 0, "allreduce", 8, 1, 2) LINE(1, 0, "allreduce", 8, 1, 2)
                    LINE(2, 0, "allreduce", 16, 1, 2),
                &code);
    ok(!code && d.kind == TU_MISMATCH && d.rank == 2, "another size: %s", d.text);
    d = of_text(LINE(0, 0, "allreduce", 8, 1, 2) LINE(1, 0, "broadcast", 8, 1, 2)
                    LINE(2, 0, "allreduce", 8, 1, 2),
                &code);
    ok(!code && d.kind == TU_MISMATCH && d.rank == 1, "another operation: %s", d.text);
    d = of_text(LINE(0, 0, "allreduce", 8, 1, 2) LINE(1, 0, "allreduce", 8, 1, 2), &code);
    ok(!code && d.kind == TU_TOO_SHORT, "too short: %s", d.text);
    static const char *const bad[] = {"",
                                      "no json",
                                      "{\"rank\":0",
                                      "{\"rank\":-1,\"seq\":0}",
                                      "[1,2]",
                                      "{\"results\":[]}",
                                      LINE(0, 0, "allreduce", 8, 5, 2)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        d = of_text(bad[i], &code);
        ok(code && tu_err_status(code) == 3, "'%.20s' is refused: %s", bad[i], d.text);
    }
    return tap_done();
}
