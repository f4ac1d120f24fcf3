/* SPDX-License-Identifier: Apache-2.0 */
/* split.c: partition, layout texts, placement, against oracles worked out by hand. */
#include <math.h>
#include <stdlib.h>
#include "../tap.h"
#include "tensorutils/sched/split.h"

static void partition(void)
{
    static const struct {
        const char *what;
        int64_t cost[66];
        size_t layers, stages;
        double worst;
    } row[] = {
        {"1 … 9 in 3", {1, 2, 3, 4, 5, 6, 7, 8, 9}, 9, 3, 17},
        {"uneven ends in 4", {5, 1, 1, 1, 1, 1, 1, 5}, 8, 4, 5},
        {"one heavy layer in 4", {10, 1, 1, 1}, 4, 4, 10},
        {"seven in 2", {1, 1, 1, 1, 1, 1, 1}, 7, 2, 4},
    };
    size_t count[64];
    double worst = 0;
    struct tu_err err;
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        struct tu_partition q = {
            .layers = row[k].layers, .stages = row[k].stages, .cost = row[k].cost};
        int rc = tu_partition_find(&q, count, &worst, &err);
        ok(!rc && worst > row[k].worst - 1e-9 && worst < row[k].worst + 1e-9,
           "%s: %g is %g", row[k].what, worst, row[k].worst);
    }
    struct tu_partition nine = {.layers = 9, .stages = 3, .cost = row[0].cost};
    ok(!tu_partition_find(&nine, count, &worst, &err) && count[0] == 5 && count[1] == 2 &&
           count[2] == 2,
       "1 … 9 in 3: sizes 5 2 2");
    int64_t many[66];
    for (size_t k = 0; k < 32; k++)
        many[k] = k == 0 ? 2 : k == 31 ? 3 : 1;
    struct tu_partition q = {.layers = 32, .stages = 4, .cost = many};
    ok(!tu_partition_find(&q, count, &worst, &err) && worst > 8.9 && worst < 9.1,
       "2, thirty 1, 3 in 4: 9");
    /* The same as costs of the first and last stage. */
    struct tu_partition r = {
        .layers = 30, .stages = 4, .cost = many + 1, .first = 2, .last = 3};
    ok(!tu_partition_find(&r, count, &worst, &err) && worst > 8.9 && worst < 9.1,
       "embedding 2 and head 3 around thirty layers: 9");
    for (size_t k = 0; k < 64; k++)
        many[k] = k == 0 ? 5 : k == 62 ? 12 : k == 63 ? 15 : 10;
    q = (struct tu_partition){.layers = 64, .stages = 16, .cost = many};
    ok(!tu_partition_find(&q, count, &worst, &err) && fabs(worst - 45) < .1,
       "half, 61 ones, 1.2, 1.5 in 16: 4.5");
}

static void partition_limits(void)
{
    static const int64_t one[8] = {1, 1, 1, 1, 1, 1, 1, 1},
                         big[8] = {1, 1, 9, 1, 1, 1, 1, 1};
    static const int64_t cap[2] = {4, 4}, loose[2] = {3, 99};
    static const double speed[2] = {3, 1};
    size_t count[8];
    double worst = 0;
    struct tu_err err;
    struct tu_partition q = {.layers = 8, .stages = 2, .cost = one, .speed = speed};
    ok(!tu_partition_find(&q, count, &worst, &err) && count[0] == 6 && count[1] == 2,
       "three times as fast takes three times as many");
    q.speed = NULL;
    q.memory = one;
    q.cap = loose;
    ok(!tu_partition_find(&q, count, &worst, &err) && count[0] == 3,
       "memory limits a stage");
    q.memory = big;
    q.cap = cap;
    eq_int(tu_partition_find(&q, count, &worst, &err), TU_EUSAGE,
           "a layer that fits nowhere");
    ok(strstr(err.msg, "stage 1"), "the message names the stage: %s", err.msg);
    q = (struct tu_partition){.layers = 2, .stages = 4, .cost = one};
    ok(!tu_partition_find(&q, count, &worst, &err),
       "more stages than layers leave some empty");
    q.stages = 0;
    eq_int(tu_partition_find(&q, count, &worst, &err), TU_EUSAGE, "no stages");
}

/* With costs of the ends, against every split in which stages may be empty. */
static void partition_empty(void)
{
    struct tu_rng rng = {7, 1};
    uint64_t at = 0, wrong = 0, needless = 0, used = 0;
    for (int n = 0; n < 300; n++) {
        int64_t cost[6], first = tu_rng_u32(&rng, at++) % 30,
                         last = tu_rng_u32(&rng, at++) % 30;
        size_t layers = 3 + tu_rng_u32(&rng, at++) % 4, count[3];
        double worst = 0, any = INFINITY, full = INFINITY;
        struct tu_err err;
        for (size_t k = 0; k < layers; k++)
            cost[k] = 1 + tu_rng_u32(&rng, at++) % 20;
        for (size_t a = 0; a <= layers; a++)
            for (size_t b = a; b <= layers; b++) {
                int64_t s[3] = {first, 0, last};
                for (size_t k = 0; k < layers; k++)
                    s[k < a ? 0 : k < b ? 1 : 2] += cost[k];
                double t = fmax((double)s[0], fmax((double)s[1], (double)s[2]));
                any = fmin(any, t);
                full = a && b > a && b < layers ? fmin(full, t) : full;
            }
        struct tu_partition q = {.layers = layers, .stages = 3, .cost = cost,
                                 .first = first, .last = last, .empty = true};
        wrong += tu_partition_find(&q, count, &worst, &err) || fabs(worst - any) > 1e-9 ||
                 count[0] + count[1] + count[2] != layers;
        bool empty = !count[0] || !count[1] || !count[2];
        used += empty;
        needless += empty != (any < full);
    }
    eq_u64(wrong, 0, "300 random splits with costs of the ends are the best of all");
    ok(used && !needless, "%llu have empty stages, only where that is shorter",
       (unsigned long long)used);
}

/* Against trying every split. */
static void partition_random(void)
{
    struct tu_rng rng = {3, 1};
    uint64_t at = 0, wrong = 0;
    for (int n = 0; n < 300; n++) {
        int64_t cost[9];
        size_t layers = 3 + tu_rng_u32(&rng, at++) % 7, count[3];
        double worst = 0, best = INFINITY;
        struct tu_err err;
        for (size_t k = 0; k < layers; k++)
            cost[k] = tu_rng_u32(&rng, at++) % 20;
        for (size_t a = 1; a + 1 < layers; a++)
            for (size_t b = a + 1; b < layers; b++) {
                int64_t s[3] = {0, 0, 0};
                for (size_t k = 0; k < layers; k++)
                    s[k < a ? 0 : k < b ? 1 : 2] += cost[k];
                best = fmin(best, fmax((double)s[0], fmax((double)s[1], (double)s[2])));
            }
        struct tu_partition q = {.layers = layers, .stages = 3, .cost = cost};
        wrong += tu_partition_find(&q, count, &worst, &err) ||
                 fabs(worst - best) > 1e-9 || count[0] + count[1] + count[2] != layers;
    }
    eq_u64(wrong, 0, "300 random splits in three are the best of all");
}

static void layout(void)
{
    struct tu_layout_cell *cell;
    size_t n;
    struct tu_err err;
    struct tu_buf b = {0};
    ok(!tu_layout_read(&cell, &n, "Et*3|(tt|)*29,m|L", &err),
       "Megatron's example parses");
    eq_u64(n, 32, "into 32 stages");
    ok(cell[0].embedding == 1 && cell[0].layers == 3 && cell[1].layers == 2 &&
           cell[29].layers == 2 && cell[30].mtp == 1 && cell[31].loss == 1,
       "with the right contents");
    ok(!tu_layout_write(&b, cell, n, &err), "and can be written");
    struct tu_layout_cell *again;
    size_t m;
    ok(!tu_layout_read(&again, &m, b.data, &err) && m == n &&
           !memcmp(again, cell, n * sizeof *cell),
       "and read back the same");
    tu_free(cell);
    tu_free(again);
    tu_buf_release(&b);
    static const char *const bad[] = {"x", "t*",  "(t|",  "t*99999999",
                                      ")", "t|)", "((t))"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        eq_int(tu_layout_read(&cell, &n, bad[k], &err), TU_EFORMAT, "refused: %s",
               bad[k]);
}

static void placement(void)
{
    double lat[16], bw[16];
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) {
            lat[a * 4 + b] = a / 2 == b / 2 ? 1e-3 : 50e-3;
            bw[a * 4 + b] = a / 2 == b / 2 ? 1e9 : 50e6;
        }
    struct tu_swarm_net net = {4, lat, bw, 2, 2, 400e6, 20e6};
    struct tu_placed out = {0};
    struct tu_err err;
    uint32_t near[4] = {0, 0, 1, 1}, far[4] = {0, 1, 0, 1}, best[4];
    int rc = tu_place_find(&net, near, &out, true, 0, 0, &err);
    ok(!rc && fabs(out.dp_s - .402) < 1e-9 && fabs(out.pp_s - .9) < 1e-9,
       "{01}{23}: 0.402 + 0.900");
    rc = tu_place_find(&net, far, &out, true, 0, 0, &err);
    ok(!rc && fabs(out.dp_s - 8.1) < 1e-9 && fabs(out.pp_s - .042) < 1e-9,
       "{02}{13}: 8.100 + 0.042");
    ok(!tu_place_find(&net, best, &out, false, 0, 1000, &err) && out.all &&
           fabs(out.total_s - 1.302) < 1e-9 && best[0] == best[1] && best[2] == best[3],
       "the search finds the near groups");
    /* Evolution finds what enumeration proves: 8 devices, random links. */
    double l8[64], b8[64];
    struct tu_rng rng = {5, 2};
    for (int a = 0; a < 8; a++)
        for (int b = 0; b <= a; b++) {
            l8[a * 8 + b] = l8[b * 8 + a] =
                1e-3 * (1 + tu_rng_u32(&rng, (uint64_t)(a * 8 + b)) % 50);
            b8[a * 8 + b] = b8[b * 8 + a] =
                1e7 * (1 + tu_rng_u32(&rng, (uint64_t)(99 + a * 8 + b)) % 90);
        }
    struct tu_swarm_net big = {8, l8, b8, 2, 4, 1e8, 1e7};
    uint32_t g[8];
    struct tu_placed exact;
    ok(!tu_place_find(&big, g, &exact, false, 0, 100000, &err) && exact.all,
       "all %llu partitions", (unsigned long long)exact.tried);
    rc = tu_place_find(&big, g, &out, false, 0, 104, &err);
    ok(!rc && !out.all && out.total_s < exact.total_s * 1.1,
       "evolution reaches %.4f of %.4f with fewer trials", out.total_s, exact.total_s);
}

static void others(void)
{
    static const double speed[3] = {5, 3, 2};
    uint64_t n[3];
    struct tu_err err;
    int rc = tu_apportion(speed, 3, 33, n, &err);
    ok(!rc && n[0] == 16 && n[1] == 10 && n[2] == 7,
       "33 layers for speeds 5 3 2: 16 10 7");
    static const int64_t memory[2] = {100, 40};
    static const double fast[2] = {1, 3};
    struct tu_uneven u = {2, fast, memory, 8, 60, 5, .1};
    uint64_t batch[2];
    int64_t state[2];
    double step;
    rc = tu_uneven_split(&u, batch, state, &step, &err);
    ok(!rc && batch[0] == 2 && batch[1] == 6 && state[0] + state[1] == 60 &&
           state[1] <= 10 && fabs(step - 2) < 1e-9,
       "the fast device computes, the large one keeps state");
    u.state_bytes = 200;
    eq_int(tu_uneven_split(&u, batch, state, &step, &err), TU_EUSAGE,
           "more state than memory");
    /* Tokens of expert a go to expert 3-a: it must move to their device. */
    uint64_t routed[16] = {0};
    for (int a = 0; a < 4; a++)
        routed[a * 4 + 3 - a] = 100;
    uint32_t device[8];
    double kept;
    ok(!tu_place_experts(routed, 2, 4, 2, device, &kept, &err) && kept > .999 &&
           device[4] == 1 && device[7] == 0,
       "experts follow their tokens");
}

int main(void)
{
    partition();
    partition_limits();
    partition_random();
    partition_empty();
    layout();
    placement();
    others();
    return tap_done();
}
