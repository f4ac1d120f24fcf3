/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: sizes, throughput and activation figures of the literature; overlap forms. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../tap.h"
#include "sched/plan_stage.h"

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

/* Bytes of a token in units of h with selective recomputation, counted by hand tensor by
 * tensor: what tensor parallelism cuts, and what it does not. */
static void kept(void)
{
    struct tu_model gpt2k = gpt(16, 2048, 16, 51200, 2048);
    struct tu_model llama = gpt2k, few = gpt2k, wide = gpt2k, side = gpt2k, one = gpt2k;
    struct tu_model post = gpt2k, moe = gpt2k, latent = gpt2k, normed = gpt2k;
    llama.gated = true; /* gate, up and product of 4h each: 24 for 16 */
    few.kv_heads = 2;   /* k and v an eighth: 0.5 for 4 */
    wide = llama;
    wide.ffn = 16384;
    side.parallel = true; /* one norm's input less */
    one.parallel = one.one_norm = true;
    post.post_norms = true;
    normed.qk_norm = true;
    moe.experts = 8; /* two copies in, two results; two experts of h, one shared of 2h: 2f + 2f */
    moe.top_k = 2;
    moe.expert_ffn = 2048;
    moe.shared_ffn = 4096;
    latent.kv_rank = 512; /* q and k of 192, v of 128 a head; latents of 512 and 1536 twice */
    latent.q_rank = 1536;
    latent.head_dim = 192;
    latent.nope_dim = latent.v_dim = 128;
    latent.rope_dim = 64;
    const struct {
        const char *what;
        const struct tu_model *m;
        double whole, cut;
    } row[] = {
        {"GPT", &gpt2k, 10, 24},
        {"a gated MLP", &llama, 10, 32},
        {"few key-value heads", &few, 10, 20.5},
        {"a wide gated MLP", &wide, 10, 56},
        {"attention and MLP side by side", &side, 8, 24},
        {"behind one norm", &one, 6, 24},
        {"norms behind both", &post, 14, 24},
        {"norms of q and k", &normed, 10, 28},
        {"experts", &moe, 18, 24},
        {"latent attention", &latent, 14, 16 + 6 + 4},
    };
    for (size_t k = 0; k < sizeof row / sizeof *row; k++)
        for (int sp = 0; sp < 2; sp++) {
            double sbh = 1024. * 3 * 2048, t = 4;
            double want = sp ? (row[k].whole + row[k].cut) / t : row[k].whole + row[k].cut / t;
            double is = tu_train_layer_bytes(row[k].m, 1024, 3, t, sp,
                                             TU_RECOMPUTE_SELECTIVE) / sbh;
            double full = tu_train_layer_bytes(row[k].m, 1024, 3, t, sp,
                                               TU_RECOMPUTE_FULL) / sbh;
            ok(fabs(is - want) < 1e-9 && fabs(full - 2) < 1e-9, "%s%s: %.3f is %.3f",
               row[k].what, sp ? ", sequence parallel" : "", is, want);
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
        .cluster = {.gpus = 1024,
                    .per_node = 8,
                    .flops = 312e12,
                    .link_bs = 300e9,
                    .network_bs = 25e9,
                    .memory = UINT64_C(80) << 30,
                    .efficiency = .6}};
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
    struct tu_train_row plain = p.row[0], vee = p.row[0];
    plain.at.schedule = "1f1b";
    plain.at.zero = plain.at.offload = 0;
    plain.at.vpp = 1;
    vee.at.schedule = "zb-h1";
    for (size_t k = 0; k < 3; k++) {
        struct tu_buf b = {0};
        ok(!tu_train_emit(&b, &q, &plain, form[k], &err) && b.n > 50, "%s", form[k]);
        eq_int(tu_train_emit(&b, &q, &vee, form[k], &err), TU_EUNSUP, "%s has no ZB-H1",
               form[k]);
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
    static const double one[2] = {1, 1}, two[2] = {1, 2};
    ok(near(tu_form_ladder(one, 8, .6), 8.6) && near(tu_form_ladder(one, 8, 1), 9) &&
           near(tu_form_ladder(one, 8, 1.5), 13),
       "ladder of equal modules");
    ok(near(tu_form_ladder(two, 8, .6), 12.6) && near(tu_form_ladder(two, 8, 1.5), 15),
       "ladder of 1 and 2");
    ok(near(tu_form_kraken(1, 2, .6, 4), 12.6) && near(tu_form_kraken(1, 2, 1.5, 4), 15),
       "one all-reduce a layer");
    static const double t3[] = {16, 13, 11.5, 10.75, 10.375};
    for (size_t k = 0; k < 5; k++)
        ok(near(tu_form_t3(10, 6, (size_t)1 << k, 0), t3[k]) &&
               near(tu_form_t3(6, 10, (size_t)1 << k, 0), t3[k]),
           "T3 in %zu chunks", (size_t)1 << k);
    /* Two chunks of 5: the second one's first 3 are beside the link: they take 1.5 each
     * for 3 of 4.5 s, so 2 are done then and 3 are left. */
    ok(near(tu_form_t3(10, 6, 2, .5), 14), "T3 with contention: %g",
       tu_form_t3(10, 6, 2, .5));
    unsigned pos;
    double hidden;
    double l = tu_form_scmoe((const double[]){2, 2, 2, 1, .5, 3, 2, 3}, &hidden, &pos);
    ok(near(l, 10.5) && pos == 1 && near(hidden, 5. / 6), "ScMoE: %g %u %g", l, pos,
       hidden);
    l = tu_form_scmoe((const double[]){2, 2, 2, 1, .5, 1, 2, 1}, &hidden, &pos);
    ok(near(l, 9.5) && pos == 1 && near(hidden, 1), "ScMoE: %g %u %g", l, pos, hidden);
    static const double nano[6] = {3, 3, 1, 1, 6, 1};
    static const unsigned res[6] = {0, 1, 0, 2, 0, 2};
    static const double want[4][4] = {{15, 30, 60, 120},
                                      {11.5, 21.5, 41.5, 81.5},
                                      {10.3333333, 22, 45.3333333, 92},
                                      {11.25, 20.75, 40.75, 80.75}};
    static const double extra[4] = {31.2, 23, 24.2, 23.45};
    for (size_t k = 1; k <= 4; k++) {
        for (size_t e = 0; e < 4; e++)
            ok(near(tu_form_nano(nano, res, 6, k, NULL, 0, (size_t)1 << e, NULL), want[k - 1][e]),
               "nano-batches %zu, %zu layers: %g is %g", k, (size_t)1 << e,
               tu_form_nano(nano, res, 6, k, NULL, 0, (size_t)1 << e, NULL), want[k - 1][e]);
        ok(near(tu_form_nano(nano, res, 6, k, NULL, .1, 2, NULL), extra[k - 1]),
           "nano-batches %zu with overhead", k);
    }
    size_t k;
    double best = tu_form_nano_best(nano, res, 6, 0, 2, NULL, &k);
    ok(best <= 20.75 + 1e-9 && best >= 20 && k > 1,
       "uneven nano-batches: %g is between the bound 20 and the best equal 20.75", best);
}

/* The table of forms on one layer: attention 1, MLP 2, all-reduce .6. */
static void overlaps(void)
{
    struct tu_layer l = {.attention = 1, .mlp = 2, .reduce = .6, .out = .25, .down = 1};
    ok(near(tu_overlap_find("standard")->time(&l, 4, NULL), 16.8), "standard 16.8");
    ok(near(tu_overlap_find("ladder")->time(&l, 4, NULL), 12.6), "ladder 12.6");
    ok(near(tu_overlap_find("kraken")->time(&l, 4, NULL), 12.6), "kraken 12.6");
    /* Half an all-reduce, .3, in eight chunks: behind .25 of attention it shows .3 +
     * .25/8 - .25, behind 1 of the MLP .3/8. */
    ok(near(tu_overlap_find("t3")->time(&l, 4, NULL), 4 * (3 + .6 + .08125 + .0375)), "T3 %g",
       tu_overlap_find("t3")->time(&l, 4, NULL));
    double nano = tu_overlap_find("nano")->time(&l, 4, NULL);
    ok(nano < 16.8 && nano > 12, "nano-batches %g", nano);
    ok(tu_overlap_find("none") == NULL, "a form that is not there");
}

/* By hand: two operations of 4, compute then network, in two halves. */
static void interference(void)
{
    static const double time[2] = {4, 4}, half[3] = {.5, 1, .5}, uneven[3] = {.8, 1, .5};
    static const unsigned res[2] = {0, 2};
    ok(near(tu_form_nano(time, res, 2, 2, NULL, 0, 1, NULL), 6), "undisturbed: 2 + 2 + 2");
    ok(near(tu_form_nano(time, res, 2, 2, NULL, 0, 1, half), 8), "at half speed: 2 + 4 + 2");
    /* Compute ends at 4.5, when .75 of the network's 2 are left; it goes on alone. */
    ok(near(tu_form_nano(time, res, 2, 2, NULL, 0, 1, uneven), 7.25), "2 + 2.5 + .75 + 2: %g",
       tu_form_nano(time, res, 2, 2, NULL, 0, 1, uneven));
    ok(near(tu_form_nano(time, res, 2, 1, NULL, 0, 3, half), 24), "nothing runs beside one");
    static const char rows[] = "# measured\nnetwork,0.2,0.6\nnetwork, 0.4, 0.9\n\n"
                                "compute,0.6,0.7\ncompute,0.8,0.9\n";
    struct tu_interference x = {0};
    struct tu_err err;
    ok(!tu_interference_read(&x, rows, sizeof rows - 1, &err), "a table");
    ok(near(tu_curve_at(&x.network, .1), .3) && near(tu_curve_at(&x.network, .3), .75) &&
           near(tu_curve_at(&x.network, .7), .95) && near(tu_curve_at(&x.network, 1), 1),
       "straight lines between rows");
    static const char *const bad[] = {"network,0.2\n", "link,0.2,0.5\n", "network,0.2,0.5\n",
                                      "network,.4,.5\nnetwork,.2,.6\ncompute,.5,.5\n",
                                      "network,.2,.5\nnetwork,.4,.4\ncompute,.5,.5\n",
                                      "network,.2,1.5\ncompute,.5,.5\n",
                                      "network,nan,.5\ncompute,.5,.5\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tu_interference y = {0};
        ok(tu_interference_read(&y, bad[i], strlen(bad[i]), &err) == TU_EFORMAT, "refused: %s",
           bad[i]);
    }
    struct tu_layer l = {.attention = 1, .mlp = 2, .reduce = .6, .out = .25, .down = 1};
    double free_ = tu_overlap_find("nano")->time(&l, 4, NULL);
    double slow = tu_overlap_find("nano")->time(&l, 4, &x);
    ok(slow > free_ && slow < 16.8, "nano-batches: %g < %g < 16.8", free_, slow);
    /* Beside the link a product takes twice as long: each of the seven parts of 1 / 8 behind
     * the first meets .0375 s of it, those of .25 / 8 too: both show .16875. */
    x.contention = 1;
    ok(near(tu_overlap_find("t3")->time(&l, 4, &x), 4 * (3 + .6 + 2 * .16875)), "T3 %g",
       tu_overlap_find("t3")->time(&l, 4, &x));
}

static void updates(void)
{
    struct tu_cluster c = {.memory_bs = 3e12,
                           .host_bs = 25e9,
                           .ssd_bs = 3e9,
                           .cpu_update = 2e9,
                           .cpu_convert = 8e9};
    struct tu_err err;
    double cpu, split, ssd, gpu;
    double share;
    int rc = tu_update_run(&gpu, &share, TU_OFFLOAD_NONE, &c, 16e9, 16, 1, &err);
    ok(!rc && near(gpu, 16e9 * 30 / 3e12), "on the GPU %g s", gpu);
    rc = tu_update_run(&cpu, &share, TU_OFFLOAD_CPU, &c, 16e9, 16, 1, &err);
    /* Update and conversion one after the other, then the last upload of 10^8; and all
     * gradients down. */
    ok(!rc && near(cpu, 16e9 * (1 / 2e9 + 1 / 8e9) + 2e8 / 25e9 + 32e9 / 25e9),
       "on the CPU %g s", cpu);
    rc = tu_update_run(&split, &share, TU_OFFLOAD_SPLIT, &c, 16e9, 16, 1, &err);
    /* Every second subgroup on the GPU: the CPU does half. */
    ok(!rc && split > cpu / 2 && split < .65 * cpu, "split %g s of %g", split, cpu);
    ok(near(share, .5), "the CPU's share: %g", share);
    rc = tu_update_run(&ssd, &share, TU_OFFLOAD_SSD, &c, 16e9, 16, 1, &err);
    /* The SSD is the slowest: 16 times 10^9 parameters of 24 bytes behind the first
     * layer's other three stages, less the backward, and the gradients. */
    ok(!rc && near(ssd, 16 * 8 + 1. / 16 + .08 + .625 - 1 + 1.28), "on the SSD %g s", ssd);
    c.ssd_bs = 0;
    eq_int(tu_update_run(&ssd, &share, TU_OFFLOAD_SSD, &c, 16e9, 16, 1, &err), TU_EUSAGE,
           "no SSD");
}

/* Stages of uneven kinds: a vision encoder in front, a heavy head behind. */
static void uneven(void)
{
    struct tu_model m = gpt(30, 4096, 32, 256000, 2048);
    struct tu_encoder eye = {24, 1024, 576};
    struct tu_train_query q = {.model = &m,
                               .batch = 64,
                               .seq = 2048,
                               .uneven = true,
                               .encoder = &eye,
                               .cluster = {32, 8, 312e12, 300e9, 25e9,
                                           UINT64_C(80) << 30, .6, 0, 0, 0, 0, 0}};
    struct tu_layout_choice a = {1, 4, 1, 8, 1, 1, 1, "1f1b", TU_RECOMPUTE_NONE, 1, 0};
    struct tu_train_stage *stage;
    struct tu_err err;
    size_t n;
    int rc = tu_train_stages(&stage, &n, &q, &a, &err);
    uint32_t layers = 0, eyes = 0;
    for (size_t k = 0; !rc && k < n; k++) {
        layers += stage[k].layers;
        eyes += stage[k].encoder;
    }
    ok(!rc && n == 4 && layers == 30 && eyes == 24, "all layers are somewhere");
    ok(!rc && stage[0].embedding && stage[0].encoder == 24 && stage[3].head &&
           stage[3].layers < stage[1].layers && stage[0].layers < stage[1].layers,
       "encoder and head take the place of layers: %u %u %u %u", stage[0].layers,
       stage[1].layers, stage[2].layers, stage[3].layers);
    tu_free(stage);
    struct tu_train_row with, without;
    rc = tu_train_price(&with, &q, &a, &err);
    ok(!rc && !with.why_not, "30 layers on 4 stages are legal when uneven");
    q.uneven = false;
    rc = tu_train_price(&without, &q, &a, &err);
    ok(!rc && without.why_not, "and not otherwise: %s", without.why_not);
}

/* Korthikanti et al., 2022: MFU, HFU, seconds of a step with selective recomputation; they
 * count attention's products twice, all three ways. */
static void selective(void)
{
    static const struct {
        double l, h, a, batch, n, mfu, hfu, step;
    } t[] = {
        {48, 6144, 64, 4, 8, 41.5, 43.7, 1.10},
        {96, 12288, 96, 64, 64, 51.4, 52.8, 13.75},
        {105, 20480, 128, 280, 280, 56.0, 57.0, 37.83},
        {128, 25600, 160, 512, 512, 56.3, 57.0, 71.49},
    };
    for (size_t k = 0; k < 4; k++) {
        struct tu_model m = gpt((uint64_t)t[k].l, (uint64_t)t[k].h, (uint64_t)t[k].a,
                                51200, 2048);
        double peak = t[k].n * 312e12 * t[k].step;
        double need = tu_train_step_flops(&m, t[k].batch, 2048, false);
        double done = need + t[k].batch * 2048 * t[k].l * 12 * 2048 * t[k].h;
        ok(fabs(100 * need / peak / t[k].mfu - 1) < .01 &&
               fabs(100 * done / peak / t[k].hfu - 1) < .012,
           "a step of %.2f s: MFU %.1f, HFU %.1f", t[k].step, 100 * need / peak,
           100 * done / peak);
    }
}

int main(void)
{
    published();
    activations();
    kept();
    search();
    forms();
    overlaps();
    interference();
    updates();
    uneven();
    selective();
    return tap_done();
}
