/* SPDX-License-Identifier: Apache-2.0 */
/* published.c: the bubble rates printed in "Zero Bubble Pipeline Parallelism" (2024), to
 * all four digits, and the heuristic's spans on its authors' examples.
 *
 * The paper's interleaved column leaves out one dependency; what stands here is the value
 * with all dependencies. */
#include <math.h>
#include "../tap.h"
#include "sched/build.h"
#include "sched/zb_greedy.h"

#define COLUMNS 6

struct line {
    uint32_t layers, hidden, heads, p, m;
    int64_t f, i, w, c;
    double rate[COLUMNS]; /* 1F1B, interleaved, ZB-H1, ZB-H2, ZB-1p, ZB-2p or ZB-V */
};

static const struct line first[] = {
    {24,
     2304,
     24,
     8,
     24,
     18522,
     18086,
     9337,
     601,
     {.2431, .1090, .1585, .1083, .1585, .0433}},
    {24,
     2304,
     24,
     8,
     32,
     18513,
     18086,
     9331,
     626,
     {.1985, .0847, .1242, .0837, .1242, .0039}},
    {24,
     2304,
     24,
     8,
     64,
     18546,
     18097,
     9321,
     762,
     {.1240, .0461, .0674, .0444, .0674, .0026}},
    {32,
     4096,
     32,
     8,
     24,
     29718,
     29444,
     19927,
     527,
     {.2347, .0827, .1323, .0698, .1323, .0029}},
    {32,
     4096,
     32,
     8,
     32,
     29802,
     29428,
     19530,
     577,
     {.1898, .0644, .1045, .0559, .1045, .0022}},
    {32,
     4096,
     32,
     8,
     64,
     29935,
     29621,
     19388,
     535,
     {.1091, .0328, .0554, .0294, .0554, .0010}},
    {48,
     5120,
     40,
     16,
     48,
     11347,
     11248,
     8132,
     377,
     {.2552, .1136, .1397, .0672, .1397, .0066}},
    {48,
     5120,
     40,
     16,
     64,
     11307,
     11254,
     8101,
     379,
     {.2082, .0878, .1088, .0516, .1088, .0054}},
    {48,
     5120,
     40,
     16,
     128,
     11325,
     11308,
     8109,
     378,
     {.1251, .0459, .0576, .0266, .0576, .0028}},
    {64,
     6144,
     48,
     32,
     96,
     10419,
     10207,
     7715,
     408,
     {.2646, .1528, .1421, .0641, .1421, .0038}},
    {64,
     6144,
     48,
     32,
     128,
     10408,
     10204,
     7703,
     408,
     {.2168, .1192, .1106, .0490, .1106, .0029}},
    {64,
     6144,
     48,
     32,
     256,
     10402,
     10248,
     7698,
     460,
     {.1352, .0641, .0594, .0257, .0594, .0018}},
};

/* Times of half a stage; the first four columns take twice these. -1: not compared. */
static const struct line second[] = {
    {32, 0, 0, 16, 48, 14407, 14380, 9676, 1610, {.2668, -1, .1536, .0823, .0697, 0}},
    {32, 0, 0, 16, 64, 14412, 14393, 9688, 1621, {.2206, -1, .1198, .0630, .0533, 0}},
    {32, 0, 0, 16, 128, 14316, 14306, 9639, 1619, {.1390, -1, .0637, .0325, .0274, 0}},
    {48, 0, 0, 24, 72, 6763, 6969, 5251, 755, {.2699, -1, .1439, .0628, .0638, 0}},
    {48, 0, 0, 24, 96, 6783, 6984, 5259, 758, {.2229, -1, .1121, .0480, .0483, 0}},
    {48, 0, 0, 24, 192, 6785, 6990, 5260, 770, {.1403, -1, .0595, .0247, .0250, 0}},
    {64, 0, 0, 32, 96, 9458, 9748, 7288, 879, {.2676, -1, .1429, .0629, .0593, 0}},
    {64, 0, 0, 32, 128, 9469, 9744, 7306, 892, {.2204, -1, .1111, .0478, .0451, 0}},
    {64, 0, 0, 32, 256, 9447, 9644, 7193, 887, {.1362, -1, .0593, .0251, .0236, 0}},
};

/* Times are multiplied by num and transfers by `transfer`, so that chunks stay whole
 * numbers. */
static double rate(const char *name, const struct line *l, uint32_t v, int64_t num,
                   int64_t transfer, bool makespan)
{
    struct tu_cost c;
    struct tu_sched *s = NULL;
    struct tu_sim sim = {0};
    struct tu_err err = {0};
    size_t faults = 1;
    tu_cost_init(&c);
    c.time[TU_OP_F] = l->f * num;
    c.time[TU_OP_I] = l->i * num;
    c.time[TU_OP_W] = l->w * num;
    c.transfer[0] = c.transfer[1] = l->c * transfer;
    c.mem_unit = 1;
    c.mem_b = 34 * (int64_t)l->hidden + 5 * (int64_t)l->heads * 1024;
    c.mem_w = 32 * (int64_t)l->hidden;
    c.release = TU_MEM_SPLIT;
    int rc = tu_schedule_make(
        &s, tu_schedule_find(name),
        &(struct tu_sched_params){.p = l->p, .m = l->m, .v = v, .cost = &c}, &err);
    if (!rc)
        rc = tu_sim_run(&sim, s, &c, NULL, &faults, &err);
    double r = rc || faults ? NAN : tu_sim_bubble(&sim, makespan);
    if (rc)
        printf("# %s: %s\n", name, err.msg);
    tu_sim_release(&sim);
    tu_sched_free(s);
    return r;
}

static void digits(const char *name, const struct line *l, double have, double want)
{
    ok(fabs(have - want) < 5.05e-5, "%s p=%u m=%u: %.4f is %.4f", name, l->p, l->m, have,
       want);
}

static void tables(void)
{
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        const struct line *l = &first[i];
        digits("1f1b", l, rate("1f1b", l, 1, 1, 1, true), l->rate[0]);
        digits("interleaved", l,
               rate("interleaved-1f1b", l, l->layers / l->p, 1, l->layers / l->p, true),
               l->rate[1]);
        digits("zb-h1", l, rate("zb-h1", l, 1, 1, 1, true), l->rate[2]);
        digits("zb-h2", l, rate("zb-h2", l, 1, 1, 1, false), l->rate[3]);
        digits("zb-1p", l, rate("zb-1p", l, 1, 1, 1, false), l->rate[4]);
        digits("zb-2p", l, rate("zb-2p", l, 1, 1, 1, false), l->rate[5]);
    }
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        const struct line *l = &second[i];
        digits("1f1b", l, rate("1f1b", l, 1, 2, 1, true), l->rate[0]);
        digits("zb-h1", l, rate("zb-h1", l, 1, 2, 1, true), l->rate[2]);
        digits("zb-h2", l, rate("zb-h2", l, 1, 2, 1, false), l->rate[3]);
        digits("zb-v", l, rate("zb-v-auto", l, 2, 1, 1, false), l->rate[4]);
    }
}

/* p, m, F, I, W, C, cap, span of the public heuristic; memory F +2, I -1, W -1. */
static const int64_t greedy[][8] = {
    {4, 12, 5, 6, 4, 0, 10, 193}, {4, 12, 5, 6, 4, 0, 14, 183},
    {4, 12, 5, 6, 4, 0, 8, 201},  {4, 12, 5478, 5806, 3534, 200, 32, 178898},
    {32, 16, 1, 1, 1, 0, 64, 95}, {8, 32, 29850, 29767, 18868, 466, 32, 2517463},
    {4, 8, 1, 1, 1, 0, 8, 27},    {4, 8, 1, 1, 1, 0, 14, 24},
    {3, 4, 1, 1, 1, 0, 6, 14},    {3, 4, 1, 1, 1, 0, 10, 13},
    {4, 5, 5, 6, 4, 0, 10, 92},   {4, 6, 5, 6, 4, 0, 8, 111},
    {4, 5, 5, 5, 5, 0, 6, 125},   {4, 4, 2, 4, 2, 0, 6, 62},
    {4, 5, 7, 9, 9, 0, 6, 201},   {4, 5, 2, 9, 7, 2, 6, 167},
    {4, 5, 5, 9, 4, 1, 6, 186},   {4, 5, 7, 3, 6, 0, 16, 90},
    {3, 5, 8, 8, 8, 2, 8, 140},
};

static void heuristic(void)
{
    for (size_t i = 0; i < sizeof greedy / sizeof *greedy; i++) {
        const int64_t *g = greedy[i];
        struct tu_cost c;
        struct tui_line l;
        struct tu_err err = {0};
        int64_t span = 0;
        tu_cost_init(&c);
        c.time[TU_OP_F] = g[2];
        c.time[TU_OP_I] = g[3];
        c.time[TU_OP_W] = g[4];
        c.transfer[0] = c.transfer[1] = g[5];
        c.release = TU_MEM_SPLIT;
        struct tu_sched_params q = {
            .p = (uint32_t)g[0], .m = (uint32_t)g[1], .v = 1, .cost = &c, .cap = g[6]};
        uint8_t *kind = tu_alloc(3 * (size_t)q.p * q.m, 1, NULL);
        int rc = tui_line_of(&l, &q, &err);
        if (!rc)
            rc = tui_zb_greedy(&l, kind, &span, &err);
        ok(!rc && span == g[7], "heuristic p=%u m=%u cap %lld: %lld is %lld", q.p, q.m,
           (long long)g[6], (long long)span, (long long)g[7]);
        tui_line_release(&l);
        tu_free(kind);
    }
    struct tui_line l;
    struct tu_sched_params low = {.p = 1, .m = 1, .v = 1, .cap = 1};
    struct tu_err err;
    eq_int(tui_line_of(&l, &low, &err), TU_EUSAGE, "a cap below one F is refused");
}

int main(void)
{
    tables();
    heuristic();
    return tap_done();
}
