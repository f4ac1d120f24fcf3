/* SPDX-License-Identifier: Apache-2.0 */
/* models.c: figures of the specification: bandwidth factors, step counts, the double
 * tree, closed forms, the order in which a ring adds. */
#include <math.h>
#include <stdlib.h>
#include <tensorutils/coll.h>
#include "../tap.h"

static bool near(double a, double b, double rel)
{
    return fabs(a - b) <= rel * fabs(b) + 1e-12;
}

static struct tu_plan plan_of(enum tu_collective c, const char *text, uint32_t ranks,
                              uint64_t count)
{
    struct tu_spec s;
    struct tu_plan p;
    struct tu_err err = {0};
    if (tu_spec_parse(&s, text, &err) || tu_plan_make(&p, c, &s, ranks, 0, count, &err)) {
        printf("# %s: %s\n", text, err.msg);
        exit(1);
    }
    tu_spec_release(&s);
    return p;
}

static void factors(void)
{
    ok(near(tu_bus_factor(TU_ALLREDUCE, 3), 4.0 / 3, 1e-12),
       "all-reduce, 3 ranks: 1.333333");
    ok(near(tu_bus_factor(TU_ALLTOALL, 16), 0.9375, 1e-12),
       "all-to-all, 16 ranks: 0.9375");
    ok(tu_bus_factor(TU_ALLREDUCE, 1) == 0 && tu_bus_factor(TU_BROADCAST, 1) == 1,
       "one rank");
    ok(near(1073741824 / 0.01 / 1e9 * tu_bus_factor(TU_ALLREDUCE, 8), 187.9048192, 1e-9),
       "1 GiB in 10 ms over 8 ranks: 187.9048192 GB/s");
}

static void steps(void)
{
    static const uint32_t doubling[][2] = {{2, 1}, {3, 3}, {4, 2},  {5, 4}, {6, 4},
                                           {7, 4}, {8, 3}, {12, 5}, {16, 4}};
    static const uint32_t rab[][2] = {{3, 4}, {5, 6}, {6, 6}, {7, 6}, {8, 6}, {12, 8}};
    for (size_t i = 0; i < sizeof doubling / sizeof *doubling; i++)
        eq_u64(plan_of(TU_ALLREDUCE, "doubling", doubling[i][0], 64).rounds,
               doubling[i][1], "doubling, %u ranks", doubling[i][0]);
    for (size_t i = 0; i < sizeof rab / sizeof *rab; i++)
        eq_u64(plan_of(TU_ALLREDUCE, "rabenseifner", rab[i][0], 64).rounds, rab[i][1],
               "rabenseifner, %u ranks", rab[i][0]);
    eq_u64(plan_of(TU_ALLREDUCE, "ring:seg=4", 8, 64).rounds, 35,
           "segmented ring: (m+1)(p-1)");
    static const uint64_t blocks[][2] = {{4, 4}, {5, 5}, {8, 12}, {13, 22}};
    for (size_t i = 0; i < 4; i++) {
        struct tu_plan p = plan_of(TU_ALLTOALL, "bruck", (uint32_t)blocks[i][0], 1);
        eq_u64(p.alg->sent(&p, 0), blocks[i][1], "bruck, %u ranks: blocks sent",
               (unsigned)blocks[i][0]);
    }
}

static void tree(void)
{
    static const int32_t want[][6] = {
        /* ranks, tree, rank, parent, children */
        {4, 0, 0, -1, -1, 2}, {4, 0, 1, 2, -1, -1}, {4, 0, 2, 0, 1, 3},
        {4, 0, 3, 2, -1, -1}, {4, 1, 0, 1, -1, -1}, {4, 1, 1, 3, 2, 0},
        {4, 1, 2, 1, -1, -1}, {4, 1, 3, -1, -1, 1}, {8, 0, 0, -1, -1, 4},
        {8, 0, 4, 0, 2, 6},   {8, 0, 6, 4, 5, 7},   {8, 0, 2, 4, 1, 3},
        {8, 1, 1, 3, 2, 0},   {8, 1, 3, 7, 5, 1},   {8, 1, 5, 3, 6, 4},
        {8, 1, 7, -1, -1, 3}, {8, 1, 0, 1, -1, -1}, {3, 1, 0, 1, 2, -1},
        {3, 1, 1, -1, -1, 0}, {3, 1, 2, 0, -1, -1},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        int32_t got[3];
        tu_double_tree((uint32_t)want[i][0], (uint32_t)want[i][2], (unsigned)want[i][1],
                       got);
        ok(!memcmp(got, want[i] + 3, sizeof got),
           "%d ranks, tree %d, rank %d: %d (%d, %d)", want[i][0], want[i][1], want[i][2],
           got[0], got[1], got[2]);
    }
    static const uint32_t depth[][2] = {{8, 3}, {13, 4}, {14, 4}, {1024, 10}, {4096, 12}};
    for (size_t i = 0; i < 5; i++) {
        uint32_t deepest = 0;
        for (uint32_t r = 0; r < depth[i][0]; r++) {
            int32_t node[3] = {(int32_t)r, 0, 0};
            uint32_t d = 0;
            do
                tu_double_tree(depth[i][0], (uint32_t)node[0], 0, node), d++;
            while (node[0] >= 0);
            deepest = d - 1 > deepest ? d - 1 : deepest;
        }
        eq_u64(deepest, depth[i][1], "depth for %u ranks", depth[i][0]);
    }
    struct tu_plan p = plan_of(TU_ALLREDUCE, "dbtree", 8, 2);
    uint64_t sum = 0, end = p.alg->sent(&p, 0), inner = p.alg->sent(&p, 3);
    for (uint32_t r = 0; r < 8; r++)
        sum += p.alg->sent(&p, r);
    ok(end == 2 && inner == 4 && sum == 28,
       "bytes for 8 ranks in S: 1 at the ends, 2 inside, 14");
}

static void closed_forms(void)
{
    static const struct {
        uint32_t p;
        double s, want[5];
    } row[] = {
        {8, 8, {70.001, 15.002, 30.001, 30.004, 10.010}},
        {8, 65536, {80.322, 34.661, 40.322, 65.389, 92.575}},
        {8, 1048576, {235.151, 329.573, 195.151, 596.231, 1331.206}},
        {64, 1048576, {815.795, 659.146, 245.795, 1192.462, 11900.852}},
        {1024, 268435456, {58501.196, 268485.456, 48371.196, 483283.821, 49429714.868}},
    };
    static const char *const name[5] = {"ring", "doubling", "rabenseifner", "tree",
                                        "star"};
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < 5; k++) {
            struct tu_plan p = plan_of(TU_ALLREDUCE, name[k], row[i].p, 64);
            double us = 1e6 * p.alg->model(&p, row[i].s, 5e-6, 1 / 12.5e9, 1 / 50e9);
            ok(fabs(us - row[i].want[k]) < 0.00051, "%s, %u ranks, %.0f bytes: %.3f us",
               name[k], row[i].p, row[i].s, us);
        }
    struct tu_plan p = plan_of(TU_ALLREDUCE, "ring", 64, 64);
    ok(near(1e6 * p.alg->model(&p, 26214400, 5e-6, 1 / 12.5e9, 0), 4758.768, 1e-7),
       "ring of 64, 25 MiB: 4758.768 us");
}

/* f32, 1e8 1 -1e8 1 on four ranks: what each algorithm's own order leaves. */
static float left_over[4];

static int sum_hard(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    static const float hard[4] = {1e8f, 1, -1e8f, 1};
    struct tu_exec *x = NULL;
    float v[4], out[4];
    for (int i = 0; i < 4; i++)
        v[i] = hard[tu_rank_id(r)];
    int code = tu_exec_new(&x, r, ctx, TU_F32, TU_SUM, TU_ORDER_ANY, 1, err);
    if (!code)
        code = tu_exec_run(x, v, out, err);
    tu_exec_free(x);
    return code ? code : tu_rank_post(r, out, sizeof out, err);
}

static void keep(void *ctx, uint32_t rank, const void *p, size_t n)
{
    (void)ctx;
    if (rank == 3)
        memcpy(left_over, p, n);
}

static void orders(void)
{
    static const struct {
        const char *name;
        float want[4];
    } row[] = {
        {"ring", {1, 0, 1, 0}}, {"doubling", {0, 0, 0, 0}}, {"tree", {0, 0, 0, 0}},
        {"star", {1, 1, 1, 1}}, {"fused", {1, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct tu_plan p = plan_of(TU_ALLREDUCE, row[i].name, 4, 4);
        struct tu_group g = {
            .transport = "threads", .size = 4, .ctx = &p, .fn = sum_hard, .post = keep};
        ok(!tu_group_run(&g, NULL) && !memcmp(left_over, row[i].want, sizeof left_over),
           "%s leaves %g %g %g %g", row[i].name, (double)left_over[0],
           (double)left_over[1], (double)left_over[2], (double)left_over[3]);
    }
}

int main(void)
{
    factors();
    steps();
    tree();
    closed_forms();
    orders();
    struct tu_err err = {0};
    struct tu_plan p;
    struct tu_spec bad = {.name = (char *)(uintptr_t) "teleport"};
    eq_int(tu_plan_make(&p, TU_ALLREDUCE, &bad, 4, 0, 4, &err), TU_EUSAGE, "%s", err.msg);
    bad.name = (char *)(uintptr_t) "halving";
    eq_int(tu_plan_make(&p, TU_REDUCE_SCATTER, &bad, 6, 0, 4, &err), TU_EUSAGE, "%s",
           err.msg);
    return tap_done();
}
