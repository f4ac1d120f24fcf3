/* SPDX-License-Identifier: Apache-2.0 */
/* forward.c: forward-only schedules against worked figures: inference pipelines,
 * asynchronous diffusion, optimizer updates over CPU, PCIe and SSD; a V search that is
 * never longer than the public one. */
#include <stdlib.h>
#include "../tap.h"
#include "sched/build.h"

static const struct row {
    const char *spec, *cost, *times; /* lines of --times */
    uint32_t p, m;
    bool blocking; /* a rank is busy while it sends */
    const char *makespan;
} rows[] = {
    {"inference", "C=1", "F,0,2\nF,1,3\nF,2,2\nF,3,1\n", 4, 5, false, "23"},
    {"inference", "C=1", "F,0,2\nF,1,3\nF,2,2\nF,3,1\n", 4, 5, true, "27"},
    {"inference:mode=blocking", "C=1", "F,0,2\nF,1,3\nF,2,2\nF,3,1\n", 4, 5, false, "55"},
    {"asyncdiff:stride=2,warm=9", "", "", 4, 50, false, "48"},
    {"asyncdiff:warm=9", "", "", 3, 50, false, "68"},
    {"asyncdiff:warm=9", "", "", 4, 50, false, "77"},
    {"asyncdiff:warm=1", "", "", 2, 50, false, "51"},
    {"asyncdiff:stride=2,warm=9", "", "", 3, 50, false, "39"},
    /* 2 steps of 3+1+2, the first round, then 4 of the slowest and a broadcast. */
    {"asyncdiff:warm=2", "C=.5", "F,0,3\nF,1,1\nF,2,2\n", 3, 7, false, "29"},
    {"update-ssd", "", "F,0,3\nF,1,2\nF,2,5\nF,3,1\n", 4, 8, false, "46"},
};

static int make(struct tu_sched **s, struct tu_cost *c, const char *text, uint32_t p,
                uint32_t m, uint32_t v, int64_t cap, struct tu_err *err)
{
    struct tu_spec spec;
    int rc = tu_spec_parse(&spec, text, err);
    if (rc)
        return rc;
    const struct tu_schedule *row = tu_schedule_find(spec.name);
    struct tu_sched_params q = {
        .p = p, .m = m, .v = v, .spec = &spec, .cost = c, .cap = cap};
    rc = row ? tu_schedule_make(s, row, &q, err) : TU_EUSAGE;
    tu_spec_release(&spec);
    return rc;
}

static void worked(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *t = &rows[i];
        struct tu_cost c;
        struct tu_sched *s = NULL;
        struct tu_sim sim = {0};
        struct tu_err err = {0};
        size_t faults = 1;
        char have[40] = "?";
        tu_cost_init(&c);
        int rc = tu_cost_parse(&c, *t->cost ? t->cost : "F=1", 1, &err);
        if (!rc)
            rc = tu_cost_times(&c, t->times, strlen(t->times), &err);
        c.blocking = t->blocking;
        if (!rc)
            rc = make(&s, &c, t->spec, t->p, t->m, 1, 0, &err);
        if (!rc)
            rc = tu_sim_run(&sim, s, &c, NULL, &faults, &err);
        if (!rc && !faults)
            tu_ticks_text(sim.makespan, c.scale, have);
        ok(!strcmp(have, t->makespan), "%s p=%u m=%u: %s is %s", t->spec, t->p, t->m, have,
           t->makespan);
        tu_sim_release(&sim);
        tu_sched_free(s);
        tu_cost_release(&c);
    }
}

/* CPU subgroups for each of the GPU: updates, conversions on the CPU, the GPU's updates in
 * billions a second, the link in GB/s. A subgroup of 2^5·3·5²·7 parameters makes whole
 * nanoseconds. */
static void splits(void)
{
    static const struct {
        int64_t cpu, convert, gpu, link;
        uint32_t every;
    } t[] = {{2, 8, 35, 25, 1}, {4, 16, 35, 25, 3}, {8, 32, 35, 25, 7}, {20, 60, 35, 25, 0}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        const int64_t n = 16800;
        struct tu_cost c;
        struct tu_sched *s = NULL;
        struct tu_err err;
        char times[200];
        tu_cost_init(&c);
        int len = snprintf(times, sizeof times,
                           "F,0,%lld\nF,1,%lld\nF,2,%lld\nF,3,%lld\nF,4,%lld\nF,5,%lld\n",
                           (long long)(n / t[i].cpu), (long long)(n / t[i].convert),
                           (long long)(2 * n / t[i].link), (long long)(12 * n / t[i].link),
                           (long long)(n / t[i].gpu), (long long)(12 * n / t[i].link));
        int rc = tu_cost_times(&c, times, (size_t)len, &err);
        if (!rc)
            rc = make(&s, &c, "update-split", 4, 16, 1, 0, &err);
        uint32_t every = t[i].every;
        eq_u64(rc ? 99 : s->n[3], every ? 16 / (every + 1) : 0,
               "%lld, %lld: the GPU updates one of %u", (long long)t[i].cpu,
               (long long)t[i].convert, every + 1);
        tu_sched_free(s);
        tu_cost_release(&c);
    }
}

static void refused(void)
{
    static const struct {
        const char *spec;
        uint32_t p;
    } bad[] = {
        {"asyncdiff:stride=3", 4}, {"asyncdiff:warm=0", 4},  {"asyncdiff:warm=6", 4},
        {"asyncdiff:stride=2", 1}, {"asyncdiff", 16},        {"update-split", 3},
        {"update-ssd", 5},         {"inference:mode=fast", 4},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tu_sched *s = NULL;
        struct tu_cost c;
        struct tu_err err;
        tu_cost_init(&c);
        eq_int(make(&s, &c, bad[i].spec, bad[i].p, 5, 1, 0, &err), TU_EUSAGE, "%s p=%u",
               bad[i].spec, bad[i].p);
    }
}

/* Spans of the public V search: p, m, F, I, W, C, cap in chunks. */
static void v_search(void)
{
    static const int64_t t[][8] = {
        {4, 8, 1, 1, 1, 0, 4, 59},     {4, 8, 1, 1, 1, 0, 5, 56},
        {4, 8, 1, 1, 1, 0, 6, 53},     {4, 8, 1, 1, 1, 0, 7, 51},
        {4, 8, 1, 1, 1, 0, 8, 48},     {4, 12, 5, 6, 4, 0, 4, 478},
        {4, 12, 5, 6, 4, 0, 6, 398},   {4, 12, 5, 6, 4, 0, 8, 372},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct tu_cost c;
        struct tu_sched *s = NULL;
        struct tu_sim sim = {0};
        struct tu_err err;
        size_t faults = 1;
        tu_cost_init(&c);
        c.time[TU_OP_F] = t[i][2];
        c.time[TU_OP_I] = t[i][3];
        c.time[TU_OP_W] = t[i][4];
        int rc = make(&s, &c, "v-search", (uint32_t)t[i][0], (uint32_t)t[i][1], 2,
                      2 * t[i][6], &err);
        if (!rc)
            rc = tu_sim_run(&sim, s, &c, NULL, &faults, &err);
        ok(!rc && !faults && sim.span <= t[i][7],
           "V search p=%lld m=%lld cap %lld: %lld is at most %lld", (long long)t[i][0],
           (long long)t[i][1], (long long)t[i][6], (long long)sim.span,
           (long long)t[i][7]);
        tu_sim_release(&sim);
        tu_sched_free(s);
    }
}

int main(void)
{
    worked();
    splits();
    refused();
    v_search();
    return tap_done();
}
