/* SPDX-License-Identifier: Apache-2.0 */
/* oracles.c: published numbers of small cases, for the reference and for every kernel
 * that this CPU has. The values were computed by plain loops in float64, gradients
 * checked by central differences. */
#include "kit.h"

#define INF ((double)INFINITY)

static const double Q[5][2] = {{1, 0}, {.5, -1}, {-.5, 1.5}, {2, .25}, {-1, -1}};
static const double K[4][2] = {{.5, 1}, {-1, .5}, {1.5, -.5}, {.25, -2}};
static const double V[4][2] = {{1, -1}, {0, 2}, {3, .5}, {-2, 1}};
static const double DO[5][2] = {{1, .5}, {-.5, 1}, {.25, -1}, {1, 1}, {-1, 0}};

struct oracle {
    const char *name;
    unsigned sq, sk, hq, hkv;
    int causal;
    int64_t window; /* keys before the query; 0: no window */
    uint64_t chunk;
    double softcap, slope, sink, dropout;
    bool blocks, backward;
    double o[16], lse[8], dq[8], dk[8], dv[8], dsink;
};
#define PLAIN .hq = 1, .hkv = 1, .sink = NAN

static const struct oracle oracles[] = {
    {.name = "A dense",
     PLAIN,
     .sq = 3,
     .sk = 4,
     .backward = true,
     .o = {1.2839540, .3666585, -.1422714, .7631190, .6116273, .5103589},
     .lse = {1.7915644, 2.0788320, 1.6670502},
     .dq = {.7520189, .3553768, -.5847031, -.8262837, .8283657, .2734647},
     .dk = {-.4828101, .9005685, .2636272, -.8469391, .3965767, .4347486, -.1773938,
            -.4883780},
     .dv = {.3148406, -.2646607, .1655977, -.3541884, .3464559, .4780875, -.0768942,
            .6407617}},
    {.name = "A dropout",
     PLAIN,
     .sq = 3,
     .sk = 4,
     .dropout = .25,
     .o = {-.2139551, .1678956, -1.4005734, .8156790, .8155031, .6804786},
     .lse = {1.7915644, 2.0788320, 1.6670502}},
    {.name = "B causal",
     PLAIN,
     .sq = 2,
     .sk = 4,
     .causal = TU_CAUSAL_BR,
     .backward = true,
     .o = {2.0994744, .2093776, -.1422714, .7631190},
     .lse = {1.5697538, 2.0788320},
     .dq = {.5755291, -.6230372, -.5847031, -.8262837},
     .dk = {-.4178519, .1214755, -.0619480, -.0508359, .2481644, .3926315, .2316355,
            -.4632710},
     .dv = {.2595560, .2217732, .0717702, .1129741, .4496803, .6032396, -.2810066,
            .5620131}},
    {.name = "B2 causal top-left",
     PLAIN,
     .sq = 2,
     .sk = 4,
     .causal = TU_CAUSAL_TL,
     .o = {1, -1, .5440794, .3677617},
     .lse = {.3535534, .0783299}},
    {.name = "C more queries than keys",
     PLAIN,
     .sq = 4,
     .sk = 2,
     .causal = TU_CAUSAL_BR,
     .backward = true,
     .o = {0, 0, 0, 0, 1, -1, .9011180, -.7033539},
     .lse = {-INF, -INF, .8838835, .9880026},
     .dq = {0, 0, 0, 0, 0, 0, -.1890189, -.0630063},
     .dk = {-.2520252, -.0315032, .2520252, .0315032},
     .dv = {1.1511180, -.0988820, .0988820, .0988820}},
    {.name = "D window",
     PLAIN,
     .sq = 4,
     .sk = 4,
     .window = 1,
     .backward = true,
     .o = {1, -1, .5440794, .3677617, .3754486, 1.8122757, 2.4210580, .5578942},
     .lse = {.3535534, .0783299, 1.0175858, 2.1559909},
     .dq = {0, 0, -.9208646, -.3069549, .4354824, -.1741930, .4072197, .4886637},
     .dk = {-.3069549, .6139098, .3940514, -.8751992, .5644551, .3427334, -.6515515,
            -.0814439},
     .dv = {.7279603, 1.0440794, -.0092477, -.4189299, .9154990, .7590621, .1157884,
            .1157884}},
    {.name = "D2 chunk",
     PLAIN,
     .sq = 4,
     .sk = 4,
     .causal = TU_CAUSAL_BR,
     .chunk = 2,
     .o = {1, -1, .5440794, .3677617, 3, .5, 2.4210580, .5578942},
     .lse = {.3535534, .0783299, -1.0606602, 2.1559909}},
    {.name = "D3 block mask",
     PLAIN,
     .sq = 4,
     .sk = 4,
     .blocks = true,
     .o = {.7428167, -.2284501, .5440794, .3677617, .6116273, .5103589, 2.0604996,
           .2587024},
     .lse = {.6508594, .0783299, 1.6670502, 2.4267749}},
    {.name = "E softcap",
     PLAIN,
     .sq = 2,
     .sk = 3,
     .softcap = 2,
     .backward = true,
     .o = {2.0455712, .2005319, 2.2015543, .4609376},
     .lse = {1.5189303, 1.2229356},
     .dq = {.4218867, -.5627968, -.5097771, .0949627},
     .dk = {-.4002240, .0994710, .0436716, -.2465189, .2738545, .1423485},
     .dv = {.2230160, .3306506, .0363913, .2047863, .2405927, .9645631}},
    {.name = "F slopes, causal",
     PLAIN,
     .sq = 3,
     .sk = 3,
     .causal = TU_CAUSAL_BR,
     .slope = .5,
     .o = {1, -1, .4198904, .7403288, .7132560, .8203479},
     .lse = {.3535534, -.1625685, .9949440}},
    {.name = "F2 slopes",
     PLAIN,
     .sq = 2,
     .sk = 3,
     .slope = .5,
     .o = {1.9684493, .3211277, 2.5469346, .5422016},
     .lse = {1.1341947, 1.0769821}},
    {.name = "G sink",
     .hq = 1,
     .hkv = 1,
     .sink = .75,
     .sq = 3,
     .sk = 3,
     .causal = TU_CAUSAL_BR,
     .o = {.4021664, -.4021664, .1839658, .1243487, .4735847, .3550752},
     .lse = {1.2644428, 1.1626755, 1.9883932}},
    {.name = "H heads in groups",
     .hq = 4,
     .hkv = 2,
     .sink = NAN,
     .sq = 2,
     .sk = 2,
     .causal = TU_CAUSAL_BR,
     .backward = true,
     .o = {1, -1, 1, -1, 0, 2, 0, 2, 2.1749580, -.1187815, 2.3395231, .0046423,
           -1.8022359, 1.0988820, -.0867447, 1.9566277},
     .lse = {.3535534, -.1751920, -.5303301, 1.4614937, .8838835, 1.6067210, -1.3258252,
             .9282245},
     .dk = {-.7728272, -.3427310, .0073347, -.0220040, .7728272, .3427310, -.0073347,
            .0220040},
     .dv = {.4177175, 1.6651192, 1.4397159, -.8577456, .0822825, .3348808, -.4397159,
            .8577456}},
};

static void rows(float *out, const double (*row)[2], unsigned mod, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        out[2 * i] = (float)row[i % mod][0];
        out[2 * i + 1] = (float)row[i % mod][1];
    }
}

/* What the gradients of F and G are, which the table has no room for. */
static const double f_dq[] = {0, 0, -.9042537, -.3014179, .8625282, .1394724};
static const double g_dq[] = {.0425022,  .0850043, -.3141509,
                              -.0920938, .6118213, .1336091};
static const double g_dv[] = {.3930268,  .0536756, .0057647,
                              -.1772161, .0118509, -.0474038};

struct data {
    float q[16], k[16], v[16], dout[16], slope[4], sink[4];
    uint8_t blocks[4];
};

static void build(struct kit *k, struct data *d, const struct oracle *x)
{
    *k = (struct kit){0};
    tu_attn_opts_init(&k->opt);
    k->opt.causal = x->causal;
    if (x->window) {
        k->opt.left = x->window;
        k->opt.right = 0;
    }
    k->opt.chunk = x->chunk;
    k->opt.softcap = x->softcap;
    k->opt.dropout = x->dropout;
    k->opt.seed = 42;
    rows(d->q, Q, 5, x->sq * x->hq);
    rows(d->k, K, 4, x->sk * x->hkv);
    rows(d->v, V, 4, x->sk * x->hkv);
    rows(d->dout, DO, 5, x->sq * x->hq);
    memcpy(d->blocks, (uint8_t[]){1, 0, 1, 1}, 4);
    d->slope[0] = (float)x->slope;
    d->sink[0] = (float)x->sink;
    kit_add(k, "q", TU_F32, 4, 1, x->sq, x->hq, 2, d->q);
    kit_add(k, "k", TU_F32, 4, 1, x->sk, x->hkv, 2, d->k);
    kit_add(k, "v", TU_F32, 4, 1, x->sk, x->hkv, 2, d->v);
    kit_add(k, "do", TU_F32, 4, 1, x->sq, x->hq, 2, d->dout);
    if (x->blocks)
        kit_add(k, "block_mask", TU_BOOL, 4, 1, 1, 2, 2, d->blocks);
    if (x->slope > 0)
        kit_add(k, "alibi_slopes", TU_F32, 1, 1, 0, 0, 0, d->slope);
    if (!isnan(x->sink))
        kit_add(k, "sinks", TU_F32, 1, 1, 0, 0, 0, d->sink);
}

typedef int (*pass_fn)(const struct tu_attn *a, const struct tu_job *job,
                       struct tu_err *err);

static void one(const struct oracle *x, const char *how, pass_fn forward,
                pass_fn backward, uint32_t compute, double tol, uint64_t splits,
                uint64_t tile_q)
{
    struct kit k;
    struct data d;
    struct tu_attn a;
    struct tu_err err = {0};
    float o[16], lse[8], dq[16], dk[16], dv[16], dsink = 0;
    build(&k, &d, x);
    k.opt.compute = compute;
    k.opt.splits = splits;
    k.opt.tile_q = k.opt.tile_k = tile_q;
    if (!ok(!tu_attn_init(&a, &k.opt, k.in, k.n, &err), "%s, %s: bound", x->name, how)) {
        printf("# %s\n", err.msg);
        return;
    }
    kit_outputs(&a, o, lse, dq, dk, dv);
    a.dsink = &dsink;
    int code = forward(&a, NULL, &err);
    unsigned bad = kit_compare("o", o, x->o, x->sq * x->hq * 2, tol);
    bad += kit_compare("lse", lse, x->lse, x->sq * x->hq, tol);
    ok(!code && !bad, "%s, %s: forward", x->name, how);
    bool f = x->slope > 0 && x->causal, g = !isnan(x->sink);
    if (x->backward || f || g) {
        code = backward(&a, NULL, &err);
        bad = 0;
        if (x->backward && x->hq == 1)
            bad += kit_compare("dq", dq, x->dq, x->sq * 2, tol);
        if (x->backward)
            bad += kit_compare("dk", dk, x->dk, x->sk * x->hkv * 2, tol) +
                   kit_compare("dv", dv, x->dv, x->sk * x->hkv * 2, tol);
        if (f)
            bad += kit_compare("dq", dq, f_dq, 6, tol);
        if (g)
            bad += kit_compare("dq", dq, g_dq, 6, tol) +
                   kit_compare("dv", dv, g_dv, 6, tol) +
                   kit_compare("dsink", &dsink, (double[]){-.0730351}, 1, tol);
        ok(!code && !bad, "%s, %s: backward", x->name, how);
    }
    tu_attn_release(&a);
}

static void all(const char *how, pass_fn forward, pass_fn backward, uint32_t compute,
                double tol, uint64_t splits, uint64_t tile_q)
{
    for (size_t i = 0; i < sizeof oracles / sizeof oracles[0]; i++)
        one(&oracles[i], how, forward, backward, compute, tol, splits, tile_q);
}

static void kernels(void)
{
    static const char *const isa[] = {"amx", "avx512", "avx2", "scalar"};
    for (unsigned i = 0; i < 4; i++) {
        struct tu_err err;
        if (tu_cpu_narrow(isa[i], &err)) {
            tap_skip(isa[i], "this CPU has it not");
            continue;
        }
        char how[64];
        snprintf(how, sizeof how, "%s, few rows", isa[i]);
        all(how, tu_attn_forward, tu_attn_backward, TU_F32, 2e-6, 0, 0);
        snprintf(how, sizeof how, "%s, tiles", isa[i]);
        all(how, tu_attn_forward, tu_attn_backward, TU_F32, 2e-6, 0, 32);
        if (i == 0)
            all("amx, bf16", tu_attn_forward, tu_attn_backward, TU_BF16, 2e-2, 0, 32);
    }
}

/* J: logits as large as 1e6, of either sign. */
static void large(void)
{
    static const struct {
        float q[2], k[6];
        unsigned sk;
        double o[2], lse;
    } t[] = {
        {{1000, 0}, {1000, 0, 999, 0, -1000, 0}, 3, {1, 2}, 1e6},
        {{30, 0}, {1, 0, .9f, 0, -1, 0}, 3, {1.0948517, 2.0948517}, 30.0485874},
        {{-1000, 0}, {1000, 0}, 1, {1, 2}, -1e6},
    };
    float v[6] = {1, 2, 3, 4, 5, 6}, o[2], lse[1];
    for (unsigned i = 0; i < 3; i++) {
        struct kit k = {0};
        struct tu_attn a;
        tu_attn_opts_init(&k.opt);
        k.opt.scale = 1;
        kit_add(&k, "q", TU_F32, 4, 1, 1, 1, 2, (void *)t[i].q);
        kit_add(&k, "k", TU_F32, 4, 1, t[i].sk, 1, 2, (void *)t[i].k);
        kit_add(&k, "v", TU_F32, 4, 1, t[i].sk, 1, 2, v);
        int code = tu_attn_init(&a, &k.opt, k.in, k.n, NULL);
        kit_outputs(&a, o, lse, NULL, NULL, NULL);
        code = code ? code : tu_attn_forward(&a, NULL, NULL);
        unsigned bad = kit_compare("o", o, t[i].o, 2, 2e-6);
        ok(!code && !(bad + kit_compare("lse", lse, &t[i].lse, 1, 2e-6)),
           "J %u: large logits", i);
        tu_attn_release(&a);
    }
}

/* A2: two parts of A's keys, and their merge. */
static void parts(void)
{
    double want_o[2][6] = {
        {1, -1, 1, -1, 1, -1},
        {1.3723496, .7921027, -.2330168, .9031863, .2848219, 1.7812862}};
    double want_lse[2][3] = {{.3535534, -.5303301, .8838835},
                             {1.5205434, 2.0023870, 1.0564840}};
    float o[2][6], lse[2][3];
    unsigned bad = 0;
    for (unsigned p = 0; p < 2; p++) {
        struct data d;
        struct kit k;
        struct tu_attn a;
        build(&k, &d, &oracles[0]);
        k.in[1].dim[1] = k.in[2].dim[1] = p ? 3 : 1;
        k.in[1].data = d.k + 2 * p;
        k.in[2].data = d.v + 2 * p;
        bad += tu_attn_init(&a, &k.opt, k.in, k.n, NULL) != 0;
        kit_outputs(&a, o[p], lse[p], NULL, NULL, NULL);
        bad += tu_attn_forward(&a, NULL, NULL) != 0;
        bad += kit_compare("o", o[p], want_o[p], 6, 2e-6) +
               kit_compare("lse", lse[p], want_lse[p], 3, 2e-6);
        tu_attn_release(&a);
    }
    ok(!bad, "A2: the parts");
    tu_attn_merge((float *[]){o[0], o[1]}, (float *[]){lse[0], lse[1]}, 2, 3, 2);
    ok(!(kit_compare("o", o[0], oracles[0].o, 6, 2e-6) +
         kit_compare("lse", lse[0], oracles[0].lse, 3, 2e-6)),
       "A2: merged");
    float none[2][3] = {{0}}, empty[2] = {-INFINITY, -INFINITY};
    tu_attn_merge((float *[]){none[0], none[1]}, (float *[]){empty, empty + 1}, 2, 1, 3);
    ok(none[0][0] == 0 && empty[0] == -INFINITY, "two empty states make an empty state");
}

/* G2: rows that see nothing but the sink. */
static void sink_alone(void)
{
    struct oracle x = oracles[11];
    x.sk = 1;
    struct data d;
    struct kit k;
    struct tu_attn a;
    float o[6], lse[3], dq[6], dk[2], dv[2], dsink = 0;
    build(&k, &d, &x);
    int code = tu_attn_init(&a, &k.opt, k.in, k.n, NULL);
    kit_outputs(&a, o, lse, dq, dk, dv);
    a.dsink = &dsink;
    code = code ? code : tu_attn_forward(&a, NULL, NULL);
    code = code ? code : tu_attn_backward(&a, NULL, NULL);
    double want[] = {0, 0, 0, 0, .5334210, -.5334210}, l[] = {.75, .75, 1.5123278};
    ok(!code &&
           !(kit_compare("o", o, want, 6, 2e-6) + kit_compare("lse", lse, l, 3, 2e-6) +
             kit_compare("dsink", &dsink, (double[]){-.3111038}, 1, 2e-6)),
       "G2: rows that see the sink alone");
    tu_attn_release(&a);
}

/* I: packed sequences, and A in pages of two in another order. */
static void packed(void)
{
    struct data d;
    struct kit k;
    struct tu_attn a;
    float o[6], lse[3];
    int32_t cq[] = {0, 2, 3}, ck[] = {0, 3, 4};
    build(&k, &d, &oracles[0]);
    for (unsigned i = 0; i < 3; i++)
        k.in[i] =
            (struct tu_operand){k.in[i].name, TU_F32, 3, {i ? 4 : 3, 1, 2}, k.in[i].data};
    k.n = 3;
    k.opt.causal = TU_CAUSAL_BR;
    kit_add(&k, "cu_seqlens_q", TU_I32, 1, 3, 0, 0, 0, cq);
    kit_add(&k, "cu_seqlens_k", TU_I32, 1, 3, 0, 0, 0, ck);
    int code = tu_attn_init(&a, &k.opt, k.in, k.n, NULL);
    kit_outputs(&a, o, lse, NULL, NULL, NULL);
    code = code ? code : tu_attn_forward(&a, NULL, NULL);
    double want[] = {.7428167, -.2284501, 2.2415164, .4591597, -2, 1};
    double l[] = {.6508594, 1.2532657, -2.2097087};
    ok(!code &&
           !(kit_compare("o", o, want, 6, 2e-6) + kit_compare("lse", lse, l, 3, 2e-6)),
       "I: packed sequences");
    tu_attn_release(&a);

    float ko[8], vo[8], plain[6], plain_lse[3];
    int32_t table[] = {1, 0, -1}, len[] = {4};
    for (unsigned paged = 0; paged < 2; paged++) {
        build(&k, &d, &oracles[0]);
        if (paged) {
            memcpy(ko, d.k + 4, 16);
            memcpy(ko + 4, d.k, 16);
            memcpy(vo, d.v + 4, 16);
            memcpy(vo + 4, d.v, 16);
            k.in[1] = (struct tu_operand){"k", TU_F32, 4, {2, 2, 1, 2}, ko};
            k.in[2] = (struct tu_operand){"v", TU_F32, 4, {2, 2, 1, 2}, vo};
            kit_add(&k, "block_table", TU_I32, 2, 1, 3, 0, 0, table);
            kit_add(&k, "seqlens_k", TU_I32, 1, 1, 0, 0, 0, len);
        }
        code = tu_attn_init(&a, &k.opt, k.in, k.n, NULL);
        kit_outputs(&a, paged ? o : plain, paged ? lse : plain_lse, NULL, NULL, NULL);
        code = code ? code : tu_attn_forward(&a, NULL, NULL);
        ok(!code, "I: %s", paged ? "paged" : "whole");
        tu_attn_release(&a);
    }
    ok(!memcmp(o, plain, sizeof o) && !memcmp(lse, plain_lse, sizeof lse),
       "I: pages in another order give the same bits");
}

int main(void)
{
    all("float64", tu_attn_forward_ref, tu_attn_backward_ref, 0, 2e-7, 0, 0);
    large();
    parts();
    sink_alone();
    packed();
    kernels();
    return tap_done();
}
