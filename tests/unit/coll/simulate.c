/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.c: the simulator against closed forms and published figures: alpha-beta,
 * levels, LogGP, NCCL's tuner, switches. */
#include <math.h>
#include <stdlib.h>
#include <tensorutils/coll.h>
#include "../tap.h"

static double simulate(enum tu_collective c, const char *algo, const char *topo,
                       uint64_t bytes, struct tu_sim_result *out)
{
    struct tu_topo t;
    struct tu_spec s;
    struct tu_plan p;
    struct tu_err err = {0};
    struct tu_sim_result r;
    int code = tu_topo_parse(&t, topo, &err);
    if (!code)
        code = tu_spec_parse(&s, algo, &err);
    if (!code) {
        code = tu_plan_make(&p, c, &s, tu_topo_ranks(&t), 0, bytes, &err);
        if (!code)
            code = tu_coll_simulate(&r, &p, &t, NULL, &err);
        tu_spec_release(&s);
    }
    if (code) {
        printf("# %s over %s: %s\n", algo, topo, err.msg);
        return -1;
    }
    if (out)
        *out = r;
    return r.seconds * 1e6;
}

/* Where the closed form is exact, clocks must give it: equal blocks, powers of two. */
static void closed_forms(void)
{
    static const char *const name[] = {"ring", "doubling", "rabenseifner",
                                       "tree", "star",     "direct"};
    static const uint32_t ranks[] = {2, 4, 8, 16, 64, 256};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        unsigned bad = 0;
        for (size_t k = 0; k < sizeof ranks / sizeof *ranks; k++) {
            char topo[96];
            struct tu_plan p;
            struct tu_spec s = {.name = (char *)(uintptr_t)name[i]};
            uint64_t bytes = UINT64_C(1) << 20;
            snprintf(topo, sizeof topo, "levels:n=%u,alpha=5us,bw=12.5G,gamma=50G",
                     ranks[k]);
            double got = simulate(TU_ALLREDUCE, name[i], topo, bytes, NULL);
            if (tu_plan_make(&p, TU_ALLREDUCE, &s, ranks[k], 0, bytes, NULL))
                abort();
            double want =
                1e6 * p.alg->model(&p, (double)bytes, 5e-6, 1 / 12.5e9, 1 / 50e9);
            if (strcmp(name[i], "direct") ==
                0) /* its folds are local: no gamma on the clocks */
                want = 1e6 * p.alg->model(&p, (double)bytes, 5e-6, 1 / 12.5e9, 0);
            if (fabs(got - want) > 1e-9 * want && bad++ < 3)
                printf("# %u ranks: %.9g, closed form %.9g\n", ranks[k], got, want);
        }
        eq_u64(bad, 0, "%s: the closed form at 2 to 256 ranks", name[i]);
    }
    double ring =
        simulate(TU_ALLREDUCE, "ring", "levels:n=64,alpha=5us,bw=12.5G", 26214400, NULL);
    ok(fabs(ring - 4758.768) < 0.0005, "ring of 64, 25 MiB: %.3f us", ring);
}

static void levels(void)
{
    const char *topo = "levels:n=8+128,alpha=1us+5us,bw=300G+25G";
    struct tu_sim_result r;
    double t = simulate(TU_ALLREDUCE, "hier:levels=8+128", topo, UINT64_C(1) << 30, &r);
    ok(fabs(t - 18201.026) < 0.0015, "8 × 128 ranks, 1 GiB, by levels: %.3f us", t);
    double flat = simulate(TU_ALLREDUCE, "ring", topo, UINT64_C(1) << 30, NULL);
    ok(flat > 85815 && flat < 96045.5, "a ring through all of them: %.3f us", flat);
    double slow = simulate(TU_ALLREDUCE, "ring", "levels:n=1024,alpha=5us,bw=25G",
                           UINT64_C(1) << 30, NULL);
    ok(fabs(slow - 96045.460) < 0.0005, "a ring on the slow link: %.3f us", slow);
    /* A torus of 4 × 4 × 4: the sum over dimensions. */
    double torus = simulate(TU_ALLREDUCE, "hier:levels=4+4+4",
                            "levels:n=64,alpha=1us,bw=10G", 64 << 20, NULL);
    double want = 0, s = 64 << 20;
    for (int i = 0; i < 3; i++, s /= 4)
        want += 2 * 3 * 1.0 + 2 * 3 / 4.0 * s / 1e4;
    ok(fabs(torus - want) < 1e-6 * want, "a torus of 4 × 4 × 4: %.3f us", torus);
    eq_u64((uint64_t)r.level_bytes[1] >> 20, 2 * 127 * 8192 / 8 * 128 / 128 * 8 / 8 * 1,
           "level 1 carries 2 (N-1)/N of S/L for each rank (MiB)");
}

/* Rings and levels have loops of their own: a fault that changes nothing takes the
 * general one. */
static void both_ways(void)
{
    static const char *const name[] = {"ring", "hier:levels=3+4+2"};
    const struct tu_sim_fault none = {.rank = 1, .peer = 0, .factor = 1};
    const struct tu_sim_opts general = {.fault = &none, .faults = 1};
    for (size_t i = 0; i < 2; i++) {
        struct tu_topo t;
        struct tu_spec s;
        struct tu_plan p;
        struct tu_sim_result a, b;
        bool fine =
            !tu_topo_parse(&t, "levels:n=3+4+2,alpha=1us+2us+9us,bw=99G+17G+5G,gamma=30G",
                           NULL) &&
            !tu_spec_parse(&s, name[i], NULL);
        fine = fine && !tu_plan_make(&p, TU_ALLREDUCE, &s, 24, 0, 100003, NULL) &&
               !tu_coll_simulate(&a, &p, &t, NULL, NULL) &&
               !tu_coll_simulate(&b, &p, &t, &general, NULL);
        tu_spec_release(&s);
        ok(fine && fabs(a.seconds - b.seconds) < 1e-12 && a.messages == b.messages &&
               a.busiest_bytes == b.busiest_bytes,
           "%s: its own loop gives what the rounds give: %g s", name[i], a.seconds);
    }
}

static void large(void)
{
    double from = tu_clock();
    double t =
        simulate(TU_ALLREDUCE, "ring", "levels:n=2048,alpha=5us,bw=12.5G", 1 << 26, NULL);
    double want = 2 * 2047 * (5.0 + (1 << 26) / 2048.0 / 12500);
    ok(fabs(t - want) < 1e-9 * want, "ring of 2,048: the closed form");
    t = simulate(TU_ALLREDUCE, "tree", "levels:n=24576,alpha=5us,bw=12.5G", 8, NULL);
    ok(t > 0 && t < 2 * 15 * 5.1, "tree of 24,576: %.2f us", t);
    t = simulate(TU_ALLREDUCE, "dbtree", "levels:n=24576,alpha=5us,bw=12.5G", 1 << 20,
                 NULL);
    ok(t > 0, "double tree of 24,576: %.2f us", t);
    ok(tu_clock() - from < 60, "in reasonable time");
}

static void loggp(void)
{
    static const char goal[] =
        "num_ranks 8\n"
        "rank 0 {\nl1: recv 1024b from 4 tag 0\nl2: recv 1024b from 2 tag 0\n"
        "l3: recv 1024b from 1 tag 0\n}\n"
        "rank 1 {\nl1: recv 1024b from 5 tag 0\nl2: recv 1024b from 3 tag 0\n"
        "l3: send 1024b to 0 tag 0\nl3 requires l1\nl3 requires l2\n}\n"
        "rank 2 {\nl1: recv 1024b from 6 tag 0\nl2: send 1024b to 0 tag 0\nl2 requires "
        "l1\n}\n"
        "rank 3 {\nl1: recv 1024b from 7 tag 0\nl2: send 1024b to 1 tag 0\nl2 requires "
        "l1\n}\n"
        "rank 4 {\nl1: send 1024b to 0 tag 0\n}\nrank 5 {\nl1: send 1024b to 1 tag 0\n}\n"
        "rank 6 {\nl1: send 1024b to 2 tag 0\n}\nrank 7 {\nl1: send 1024b to 3 tag "
        "0\n}\n";
    static const uint64_t want[8] = {34914, 24776, 13138, 13138, 1500, 1500, 1500, 1500};
    const struct tu_loggp m = TU_LOGGP_DEFAULT;
    struct tu_err err = {0};
    uint64_t *finish = NULL;
    uint32_t n = 0;
    ok(!tu_goal_run(goal, sizeof goal - 1, &m, &finish, &n, &err), "goal: %s", err.msg);
    for (uint32_t r = 0; finish && r < 8; r++)
        eq_u64(finish[r], want[r], "binomial reduction, 1 KiB: host %u", r);
    tu_free(finish);
    static const char *const bad[] = {
        "",
        "num_ranks 0",
        "num_ranks 2 rank 5 {}",
        "num_ranks 2 rank 0 { l1: send 1b to 9 }",
        "num_ranks 1 rank 0 { l1: calc 5",
        "num_ranks 2 rank 0 { l1: recv 1b from 1 tag 0 }",
        "num_ranks 1 rank 0 { l1: calc 1 l1 requires l1 }",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        eq_int(tu_goal_run(bad[i], strlen(bad[i]), &m, &finish, &n, &err), TU_EFORMAT,
               "'%s': %s", bad[i], err.msg);
    /* What is written is read back: every message of a plan arrives. */
    struct tu_spec s = {.name = (char *)(uintptr_t) "rabenseifner"};
    struct tu_plan p;
    struct tu_buf text = {0};
    ok(!tu_plan_make(&p, TU_ALLREDUCE, &s, 6, 0, 1000, &err) &&
           !tu_goal_write(&text, &p, &err) &&
           !tu_goal_run(text.data, text.n, &m, &finish, &n, &err) && n == 6,
       "rabenseifner of 6 ranks as GOAL runs: %s", err.msg);
    tu_free(finish);
    tu_buf_release(&text);
}

static void tuner(void)
{
    static const struct {
        uint32_t ranks, nodes;
        double want[4]; /* LL ring, LL tree, Simple ring, Simple tree */
    } row[] = {
        {8, 1, {15.0, 15.2, 56.0, 64.4}},
        {16, 2, {40.0, 25.2, 131.6, 92.4}},
        {64, 8, {156.4, 45.2, 585.2, 148.4}},
        {1024, 128, {2484.4, 85.2, 9657.2, 260.4}},
        {24576, 4096, {63079.6, 132.8, 253932.4, 384.4}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int k = 0; k < 4; k++) {
            double got = tu_nccl_latency(k % 2 ? TU_NCCL_TREE : TU_NCCL_RING,
                                         k < 2 ? TU_NCCL_LL : TU_NCCL_SIMPLE,
                                         row[i].ranks, row[i].nodes);
            ok(fabs(got - row[i].want[k]) < 0.05, "%s %s, %u ranks, %u nodes: %.1f us",
               k < 2 ? "LL" : "Simple", k % 2 ? "tree" : "ring", row[i].ranks,
               row[i].nodes, got);
        }
    unsigned tiers;
    eq_u64(tu_switches(64, 32768, 1, &tiers), 2560,
           "32,768 hosts, radix 64, three tiers");
    eq_u64(tu_switches(64, 32768, 256, &tiers), 1536, "256 rails of two tiers");
    eq_u64(tu_switches(64, 32768, 512, &tiers), 512, "512 rails of one tier");
    eq_u64(tu_switches(64, 32768, 8, &tiers), 2560, "8 rails save nothing");
}

static double flow(enum tu_collective c, const char *algo, const char *topo,
                   uint64_t bytes)
{
    struct tu_topo t;
    struct tu_spec s;
    struct tu_plan p;
    struct tu_sim_result r = {.seconds = -1};
    struct tu_err err = {0};
    int code = tu_topo_parse(&t, topo, &err);
    if (!code && !(code = tu_spec_parse(&s, algo, &err))) {
        code = tu_plan_make(&p, c, &s, tu_topo_ranks(&t), 0, bytes, &err);
        if (!code)
            code = tu_coll_flows(&r, &p, &t, &err);
        tu_spec_release(&s);
    }
    if (code)
        printf("# %s over %s: %s\n", algo, topo, err.msg);
    return r.seconds * 1e6;
}

/* Two groups of four; 1 MB blocks at 1 GB/s are 1000 us. */
static void flows(void)
{
    const char *plain = "levels:n=4+2,alpha=1us+5us,bw=1G+1G",
               *over = "levels:n=4+2,alpha=1us+5us,bw=1G+1G,oversub=1+4",
               *two = "levels:n=4+2,alpha=1us+5us,bw=1G+1G,oversub=1+2";
    double t = flow(TU_ALLTOALL, "pairwise", plain, 1000000);
    ok(fabs(t - (3 * 1001.0 + 4 * 1005)) < 1e-6, "no oversubscription: 7023 us: %.3f", t);
    t = flow(TU_ALLTOALL, "pairwise", over, 1000000);
    ok(fabs(t - (3 * 1001.0 + 4 * 4005)) < 1e-6,
       "4 to 1: rounds that cross take four times as long: %.3f", t);
    t = flow(TU_ALLTOALL, "pairwise", two, 1000000);
    ok(fabs(t - (3 * 1001.0 + 4 * 2005)) < 1e-6, "2 to 1: %.3f", t);
    /* One flow alone has the whole of what four ports share. */
    t = flow(TU_BROADCAST, "tree", over, 1000000);
    double same = flow(TU_BROADCAST, "tree", plain, 1000000);
    ok(fabs(t - same) < 1e-6 && same > 0, "a tree crosses once: %.3f, %.3f", same, t);

    t = flow(TU_ALLREDUCE, "ring", over, 8000000);
    ok(fabs(t - 14 * 1005.0) < 1e-6, "a ring does not notice: %.3f", t);
    static const char *const bad[] = {"levels:n=4+2,alpha=1us+5us,bw=1G+1G,oversub=4",
                                      "levels:n=4,alpha=1us,bw=1G,oversub=0.5"};
    for (size_t i = 0; i < 2; i++) {
        struct tu_topo topo;
        eq_int(tu_topo_parse(&topo, bad[i], NULL), TU_EUSAGE, "'%s'", bad[i]);
    }
}

int main(void)
{
    flows();
    closed_forms();
    levels();
    both_ways();
    large();
    loggp();
    tuner();
    static const char *const bad[] = {
        "ring:n=4",
        "levels:n=4,alpha=1us",
        "levels:n=0,alpha=1us,bw=1G",
        "levels:n=4,bw=1G",
        "levels:n=4,alpha=1us,bw=0",
        "levels:n=4+2,alpha=1us,bw=1G",
        "levels:n=4,alpha=-1us,bw=1G",
        "levels:n=4,alpha=1us,bw=1GiB",
        "levels:n=1048576+1048576,alpha=1us+1us,bw=1+1",
    };
    struct tu_topo t;
    struct tu_err err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        eq_int(tu_topo_parse(&t, bad[i], &err), TU_EUSAGE, "'%s': %s", bad[i], err.msg);
    return tap_done();
}
