/* SPDX-License-Identifier: Apache-2.0 */
/* patterns.c: training patterns: the overlap by hand-made figures, volumes and periods by
 * their sources' formulas, and every pattern replayed at ranks on verified data. */
#include <math.h>
#include <stdlib.h>
#include <tensorutils/coll.h>
#include "../tap.h"

/* The bytes field holds the cost in ms: figures of the specification are in them. */
static int as_bytes(void *ctx, const struct tu_task *t, double *seconds,
                    struct tu_err *err)
{
    (void)ctx;
    (void)err;
    *seconds = (double)t->bytes / 1e3;
    return 0;
}

static double buckets(const double *compute, const uint64_t *comm)
{
    struct tu_task task[8];
    struct tu_tasks t = {.task = task, .n = 8};
    struct tu_step_cost s;
    for (uint32_t i = 0; i < 4; i++) {
        task[2 * i] = (struct tu_task){.seconds = compute[i] / 1e3, .after = TU_NOBODY};
        task[2 * i + 1] =
            (struct tu_task){.seconds = -1, .bytes = comm[i], .after = 2 * i};
    }
    if (tu_tasks_predict(&t, as_bytes, NULL, &s, NULL))
        return -1;
    return s.seconds * 1e3;
}

static void overlap(void)
{
    static const double even[4] = {10, 10, 10, 10}, first[4] = {1, 12, 12, 12};
    static const uint64_t eight[4] = {8, 8, 8, 8}, fifteen[4] = {15, 15, 15, 15},
                          small[4] = {2, 9, 9, 9};
    ok(fabs(buckets(even, eight) - 48) < 1e-9, "4 × 10 ms with 8 ms each: 48 ms");
    ok(fabs(buckets(even, fifteen) - 70) < 1e-9, "15 ms each: 70 ms");
    ok(fabs(buckets(first, small) - 46) < 1e-9, "a small first bucket: 46 ms");
}

static struct tu_tasks tasks(const char *text, uint32_t ranks)
{
    struct tu_tasks t;
    struct tu_err err;
    if (tu_tasks_make(&t, text, ranks, &err)) {
        printf("# %s: %s\n", text, err.msg);
        exit(1);
    }
    return t;
}

/* What a rank sends for all operations, by the formulas of section 1. */
static double volume(const struct tu_tasks *t, uint32_t p)
{
    double sum = 0;
    for (size_t i = 0; i < t->n; i++)
        if (t->task[i].seconds < 0)
            sum += (double)t->task[i].bytes * tu_bus_factor(t->task[i].coll, p);
    return sum;
}

static int half(void *ctx, const struct tu_task *t, double *seconds, struct tu_err *err)
{
    (void)t;
    (void)err;
    *seconds = *(const double *)ctx;
    return 0;
}

static void volumes(void)
{
    double m = 64.0 * 1048576;
    struct tu_tasks t = tasks("fsdp:bytes=64M,layers=8", 16);
    ok(fabs(volume(&t, 16) - 3 * m * 15 / 16) < 1, "FSDP: 3 M (p-1)/p");
    tu_tasks_release(&t);
    t = tasks("zero:bytes=64M", 16);
    ok(fabs(volume(&t, 16) - 2 * m * 15 / 16) < 1, "ZeRO: 2 M (p-1)/p");
    tu_tasks_release(&t);
    t = tasks("ddp:bytes=64M", 16);
    eq_u64(t.n, 8, "64 MiB: one bucket of 1 MiB, three of 25 MiB at most");
    ok(t.task[1].bytes == 1048576 && t.task[7].bytes == 13631488,
       "the last has the rest");
    tu_tasks_release(&t);
    t = tasks("moe:tokens=4096,topk=8,hidden=7168,layers=1", 64);
    eq_u64(t.task[1].bytes, 469762048, "a dispatch of 4096 tokens");
    ok(volume(&t, 64) == 2 * 462422016.0, "462422016 bytes of it leave the rank, twice");
    tu_tasks_release(&t);
}

/* CO2: exposed in a round is what the all-reduce takes longer than its local steps. */
static void late(void)
{
    struct tu_tasks t = tasks("co2:tau=4,compute=10ms,rounds=50", 8);
    struct tu_step_cost s;
    double takes = 0.03;
    ok(!tu_tasks_predict(&t, half, &takes, &s, NULL) && fabs(s.exposed - 0.03) < 1e-9,
       "co2, 30 ms under 40 ms: only the last one shows: %.3f", s.exposed);
    takes = 0.05;
    ok(!tu_tasks_predict(&t, half, &takes, &s, NULL) && fabs(s.exposed - 0.54) < 1e-9,
       "co2, 50 ms over 40 ms: 10 ms a round, and the last one: %.3f", s.exposed);
    tu_tasks_release(&t);
    t = tasks("dadam:compute=10ms", 8);
    takes = 0.004;
    ok(!tu_tasks_predict(&t, half, &takes, &s, NULL) && fabs(s.exposed) < 1e-12,
       "decentralised Adam: two messages of 4 ms beside 10 ms");
    tu_tasks_release(&t);
    t = tasks("gossip:compute=10ms", 8);
    ok(!tu_tasks_predict(&t, half, &takes, &s, NULL) && fabs(s.exposed - 0.008) < 1e-12,
       "gossip: behind it");
    tu_tasks_release(&t);
}

static void periods(void)
{
    static const double eta[] = {0.008, 0.004, 0.002, 0.001, 0.0005};
    static const uint64_t one[] = {4, 6, 25, 100, 400}, two[] = {4, 19, 76, 306};
    for (size_t i = 0; i < 5; i++)
        eq_u64(tu_qsr_period(0.01, eta[i], 4), one[i], "alpha .01, eta %g", eta[i]);
    for (size_t i = 0; i < 4; i++)
        eq_u64(tu_qsr_period(0.0175, eta[i], 4), two[i], "alpha .0175, eta %g", eta[i]);
}

struct job {
    const struct tu_tasks *tasks;
    struct tu_replay_result res;
};

static int rank_main(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    struct job *j = ctx;
    struct tu_replay_result res;
    int code = tu_tasks_run(r, j->tasks, 2, 5, &res, err);
    return code || tu_rank_id(r) ? code : tu_rank_post(r, &res, sizeof res, err);
}

static void posted(void *ctx, uint32_t rank, const void *p, size_t n)
{
    (void)rank;
    memcpy(&((struct job *)ctx)->res, p, n);
}

static void replayed(const char *text, const char *transport, uint32_t ranks)
{
    struct tu_tasks t = tasks(text, ranks);
    struct job j = {.tasks = &t};
    struct tu_err err = {0};
    struct tu_group g = {.transport = transport,
                         .size = ranks,
                         .ctx = &j,
                         .fn = rank_main,
                         .post = posted};
    ok(!tu_group_run(&g, &err), "%s over %s, %u ranks: %s", text, transport, ranks,
       err.msg);
    const struct tu_step_cost *s = &j.res.step;
    ok(!j.res.wrong && s->operations && s->seconds >= s->compute && s->comm > 0,
       "%s: exact; %.0f us, of it %.0f exposed", text, s->seconds * 1e6,
       s->exposed * 1e6);
    tu_tasks_release(&t);
}

int main(void)
{
    overlap();
    volumes();
    late();
    periods();
    for (size_t i = 0; tu_patterns[i]; i++) {
        char text[80];
        bool moe = !strcmp(tu_patterns[i]->name, "moe"),
             spsa = !strcmp(tu_patterns[i]->name, "spsa");
        snprintf(text, sizeof text, "%s:compute=1ms%s", tu_patterns[i]->name,
                 moe    ? ",tokens=64,hidden=64,shared=1"
                 : spsa ? ""
                        : ",bytes=100K");
        replayed(text, "threads", 3);
        replayed(text, "shm", 2);
        replayed(text, "tcp", 4);
    }
    static const char *const bad[] = {"pp",
                                      "ddp:layers=2",
                                      "ddp:bucket=0",
                                      "co2:tau=0",
                                      "fsdp:layers=x",
                                      "local-sgd:eta=0",
                                      "ddp:bytes=1T,bucket=1,first=1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tu_tasks t;
        struct tu_err err;
        eq_int(tu_tasks_make(&t, bad[i], 4, &err), TU_EUSAGE, "'%s': %s", bad[i],
               err.msg);
    }
    return tap_done();
}
