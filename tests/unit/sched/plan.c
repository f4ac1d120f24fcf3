/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: sizes of models, throughput and activation figures of the literature; overlap
 * forms. */
#include <math.h>
#include <stdlib.h>
#include "../tap.h"
#include "tensorutils/sched/plan.h"

/* A GPT as in Megatron-LM: biases, learned positions, tied head. */
static struct tu_model gpt(uint64_t l, uint64_t h, uint64_t a, uint64_t v, uint64_t s)
{
    return (struct tu_model){.layers = l,
                             .hidden = h,
                             .heads = a,
                             .kv_heads = a,
                             .head_dim = h / a,
                             .ffn = 4 * h,
                             .vocab = v,
                             .positions = s,
                             .tied = true,
                             .learned_positions = true,
                             .bias = true};
}

/* a, h, l, n, B, TF/GPU; parameters in 1e9, aggregate PF, seconds. */
static const struct {
    double a, h, l, n, batch, tf, params, pf, step;
} table[] = {
    {24, 2304, 24, 32, 512, 137, 1.652, 4.4, 3.53},
    {32, 3072, 30, 64, 512, 138, 3.562, 8.8, 3.70},
    {32, 4096, 36, 128, 512, 142, 7.468, 18.2, 3.70},
    {48, 6144, 40, 256, 1024, 135, 18.450, 34.6, 9.40},
    {64, 8192, 48, 512, 1536, 138, 39.096, 70.8, 14.45},
    {80, 10240, 60, 1024, 1792, 140, 76.051, 143.8, 16.06},
    {96, 12288, 80, 1536, 2304, 148, 145.622, 227.1, 24.82},
    {128, 16384, 96, 1920, 2160, 155, 310.131, 297.4, 37.61},
    {128, 20480, 105, 2520, 2520, 163, 529.601, 410.2, 54.08},
    {160, 25600, 128, 3072, 3072, 163, 1008.039, 502.0, 102.63},
};

static void published(void)
{
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        struct tu_model m = gpt((uint64_t)table[k].l, (uint64_t)table[k].h,
                                (uint64_t)table[k].a, 51200, 2048);
        double params = tu_train_params(&m) / 1e9;
        double step = tu_train_step_flops(&m, table[k].batch, 2048, true) /
                      (table[k].n * table[k].tf * 1e12);
        ok(fabs(params - table[k].params) < .0006, "%.3f billion parameters are %.3f",
           params, table[k].params);
        ok(fabs(step / table[k].step - 1) < .002, "a step of %.2f s is %.2f s", step,
           table[k].step);
        ok(fabs(table[k].n * table[k].tf / 1000 / table[k].pf - 1) < .004,
           "%.1f PF together", table[k].pf);
    }
    struct tu_model gpt3 = gpt(96, 12288, 96, 51200, 2048);
    struct tu_model big = gpt(128, 25600, 160, 51200, 2048);
    ok(fabs(tu_train_days(&gpt3, 300e9, 1024 * 140e12) - 33.9) < .2, "175B: %.1f days",
       tu_train_days(&gpt3, 300e9, 1024 * 140e12));
    ok(fabs(tu_train_days(&big, 450e9, 3072 * 163e12) - 83.2) < 1.2, "1T: %.1f days",
       tu_train_days(&big, 450e9, 3072 * 163e12));
}

static void activations(void)
{
    static const struct {
        uint64_t l, h, a;
        double mb, none, sp, selective;
    } row[] = {
        {48, 6144, 64, 4, 1264, 844, 204},
        {96, 12288, 96, 1, 552, 342, 102},
        {105, 20480, 128, 1, 840, 490, 170},
        {128, 25600, 160, 1, 1050, 612.5, 212.5},
    };
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        struct tu_model m = gpt(row[k].l, row[k].h, row[k].a, 51200, 2048);
        double mib = 1 << 20, b = row[k].mb;
        double v[3] = {
            tu_train_layer_bytes(&m, 2048, b, 8, false, TU_RECOMPUTE_NONE) / mib,
            tu_train_layer_bytes(&m, 2048, b, 8, true, TU_RECOMPUTE_NONE) / mib,
            tu_train_layer_bytes(&m, 2048, b, 8, true, TU_RECOMPUTE_SELECTIVE) / mib};
        ok(fabs(v[0] - row[k].none) < 1 && fabs(v[1] - row[k].sp) < 1 &&
               fabs(v[2] - row[k].selective) < 1,
           "a layer of h=%llu: %.1f %.1f %.1f MiB", (unsigned long long)row[k].h, v[0],
           v[1], v[2]);
    }
}

static void search(void)
{
    struct tu_model m = gpt(96, 12288, 96, 51200, 2048);
    struct tu_train_plan p;
    struct tu_err err;
    struct tu_train_query q = {
        .model = &m,
        .batch = 1536,
        .seq = 2048,
        .sequence_parallel = true,
        .all = true,
        .cluster = {1024, 8, 312e12, 300e9, 25e9, UINT64_C(80) << 30, .6}};
    ok(!tu_train_make(&p, &q, &err), "a plan for 175B on 1024 devices");
    ok(p.legal > 10 && p.n > p.legal, "%zu of %zu layouts are legal", p.legal, p.n);
    bool sorted = true, fits = true, reasons = true, product = true;
    for (size_t k = 0; k < p.n; k++) {
        const struct tu_train_row *r = &p.row[k];
        if (k < p.legal) {
            sorted = sorted && (!k || r[-1].step_s <= r->step_s);
            fits = fits && r->memory_bytes <= 80.0 * (1 << 30);
            product = product && r->at.tp * r->at.pp * r->at.dp * r->at.cp == 1024;
        } else {
            reasons = reasons && r->why_not;
        }
    }
    ok(sorted && fits && product, "sorted by time, in memory, on all devices");
    ok(reasons, "each rejected layout says why");
    ok(p.row[0].mfu > .3 && p.row[0].mfu < .6, "the best reaches %.1f %% of the peak",
       100 * p.row[0].mfu);
    ok(p.row[0].at.tp > 1 || p.row[0].at.pp > 1,
       "175B does not fit on data parallelism alone");
    static const char *const form[] = {"megatron", "torchtitan", "deepspeed"};
    for (size_t k = 0; k < 3; k++) {
        struct tu_buf b = {0};
        ok(!tu_train_emit(&b, &q, &p.row[0], form[k], &err) && b.n > 50, "%s", form[k]);
        tu_buf_release(&b);
    }
    tu_train_release(&p);
    m.layers = 0;
    eq_int(tu_train_make(&p, &q, &err), TU_EUSAGE, "a model without layers");
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-6;
}

static void forms(void)
{
    static const double one[8] = {1, 1, 1, 1, 1, 1, 1, 1},
                        two[8] = {1, 2, 1, 2, 1, 2, 1, 2};
    double s, l;
    tu_form_ladder(one, 8, .6, &s, &l);
    ok(near(s, 12.8) && near(l, 8.6), "ladder c=.6: %g %g", s, l);
    tu_form_ladder(one, 8, 1, &s, &l);
    ok(near(s, 16) && near(l, 9), "ladder c=1: %g %g", s, l);
    tu_form_ladder(one, 8, 1.5, &s, &l);
    ok(near(s, 20) && near(l, 13), "ladder c=1.5: %g %g", s, l);
    tu_form_ladder(two, 8, .6, &s, &l);
    ok(near(s, 16.8) && near(l, 12.6), "ladder 1,2 c=.6: %g %g", s, l);
    tu_form_ladder(two, 8, 1.5, &s, &l);
    ok(near(s, 24) && near(l, 15), "ladder 1,2 c=1.5: %g %g", s, l);
    ok(near(tu_form_kraken(1, 2, .6, 4), 12.6) && near(tu_form_kraken(1, 2, 1.5, 4), 15),
       "one all-reduce a layer");
    static const double t3[] = {16, 13, 11.5, 10.75, 10.375};
    for (size_t k = 0; k < 5; k++)
        ok(near(tu_form_t3(10, 6, (size_t)1 << k), t3[k]) &&
               near(tu_form_t3(6, 10, (size_t)1 << k), t3[k]),
           "T3 in %zu chunks", (size_t)1 << k);
    unsigned pos;
    double hidden;
    tu_form_scmoe((const double[]){2, 2, 2, 1, .5, 3, 2, 3}, &s, &l, &hidden, &pos);
    ok(near(s, 15.5) && near(l, 10.5) && pos == 1 && near(hidden, 5. / 6),
       "ScMoE: %g %g %u %g", s, l, pos, hidden);
    tu_form_scmoe((const double[]){2, 2, 2, 1, .5, 1, 2, 1}, &s, &l, &hidden, &pos);
    ok(near(s, 11.5) && near(l, 9.5) && pos == 1 && near(hidden, 1), "ScMoE: %g %g %u %g",
       s, l, pos, hidden);
    static const double nano[6] = {3, 3, 1, 1, 6, 1};
    static const unsigned res[6] = {0, 1, 0, 2, 0, 2};
    static const double want[4][4] = {{15, 30, 60, 120},
                                      {11.5, 21.5, 41.5, 81.5},
                                      {10.3333333, 22, 45.3333333, 92},
                                      {11.25, 20.75, 40.75, 80.75}};
    static const double extra[4] = {31.2, 23, 24.2, 23.45};
    for (size_t k = 1; k <= 4; k++) {
        for (size_t e = 0; e < 4; e++)
            ok(near(tu_form_nano(nano, res, 6, k, 0, (size_t)1 << e), want[k - 1][e]),
               "nano-batches %zu, %zu layers: %g is %g", k, (size_t)1 << e,
               tu_form_nano(nano, res, 6, k, 0, (size_t)1 << e), want[k - 1][e]);
        ok(near(tu_form_nano(nano, res, 6, k, .1, 2), extra[k - 1]),
           "nano-batches %zu with overhead", k);
    }
    eq_u64(tu_form_update_stride(2, 8, 35, 25), 1, "update split 1");
    eq_u64(tu_form_update_stride(4, 16, 35, 25), 3, "update split 3");
    eq_u64(tu_form_update_stride(8, 32, 35, 25), 7, "update split 7");
    eq_u64(tu_form_update_stride(20, 60, 35, 25), 0, "update on the CPU alone");
    ok(near(tu_form_pipeline((const double[]){3, 2, 5, 1}, 4, 8), 46), "SSD pipeline 46");
    static const struct {
        size_t n, s, w;
        double want;
    } ad[] = {{3, 2, 9, 48}, {3, 1, 9, 68}, {4, 1, 9, 77}, {2, 1, 1, 51}, {2, 2, 9, 39}};
    for (size_t k = 0; k < 5; k++) {
        double t;
        ok(!tu_form_asyncdiff(one, ad[k].n, 0, ad[k].w, ad[k].s, 50, &t, NULL) &&
               near(t, ad[k].want),
           "AsyncDiff n=%zu s=%zu w=%zu: %g", ad[k].n, ad[k].s, ad[k].w, t);
    }
    eq_int(tu_form_asyncdiff(one, 2, 0, 0, 1, 50, &s, NULL), TU_EUSAGE,
           "no warm-up is refused");
}

int main(void)
{
    published();
    activations();
    search();
    forms();
    return tap_done();
}
