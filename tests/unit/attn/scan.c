/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c: the chunked recurrences against float64 step by step, forward and backward,
 * with every instruction set: lengths around the chunks, gates from nothing to all,
 * storage dtypes, a state before. */
#include "cases.h"

enum { BATCH = 2, HEADS = 3 };

/* What gates may be, as logarithms. */
enum gates { NONE, MILD, HARD, MIXED, CLOSED, GATES };
static const char *const gates_name[] = {"none", "mild", "hard", "mixed", "closed"};

static float gate_value(enum gates kind, float x)
{
    switch (kind) {
    case NONE: return 0;
    case MILD: return -.1f * fabsf(x);
    case HARD: return -50;
    case MIXED: return x > 0 ? 0 : -50 * fabsf(x);
    default: return x > 1 ? -INFINITY : -.01f * fabsf(x);
    }
}

struct shape {
    uint64_t n, d, dv, block;
    uint32_t dtype;
    enum gates gates;
};

static void gates(struct kit *k, const char *name, enum gates kind, float by,
                  unsigned rank, uint64_t n, uint64_t d)
{
    normal(k, name, TU_F32, rank, BATCH, n, HEADS, d);
    float *g = k->in[k->n - 1].data;
    for (uint64_t i = 0; i < BATCH * n * HEADS * d; i++)
        g[i] = gate_value(kind, g[i]) * by;
}

static void problem(struct kit *k, const char *row, const struct shape *s)
{
    uint64_t n = s->n;
    *k = (struct kit){0};
    case_seed(case_draws);
    case_draws += 1000; /* cases differ whatever they draw */
    tu_attn_opts_init(&k->opt);
    k->opt.block = s->block;
    if (!strcmp(row, "ssd")) {
        normal(k, "x", s->dtype, 4, BATCH, n, HEADS, s->dv);
        /* A step whose dt is large without closing the gate is large in dA, by terms that
         * cancel: not more of it than f32 can carry. */
        gates(k, "dt", s->gates, s->gates == MIXED ? -.02f : -1, 3, n, 1);
        normal(k, "A", TU_F32, 1, HEADS, 0, 0, 0);
        for (unsigned h = 0; h < HEADS; h++) /* an infinite dt is infinite as a weight */
            ((float *)k->in[k->n - 1].data)[h] = s->gates == CLOSED ? -.5f : -1;
        for (uint64_t i = 0; i < BATCH * n * HEADS; i++) {
            float *dt = (float *)k->in[1].data + i;
            *dt = isinf(*dt) ? 3000 : *dt;
        }
        normal(k, "B", s->dtype, 4, BATCH, n, 1, s->d);
        normal(k, "C", s->dtype, 4, BATCH, n, 1, s->d);
        normal(k, "D", TU_F32, 1, HEADS, 0, 0, 0);
        normal(k, "state_in", TU_F32, 4, BATCH, HEADS, s->dv, s->d);
        normal(k, "dstate", TU_F32, 4, BATCH, HEADS, s->dv, s->d);
        normal(k, "do", s->dtype, 4, BATCH, n, HEADS, s->dv);
        return;
    }
    normal(k, "q", s->dtype, 4, BATCH, n, HEADS, s->d);
    normal(k, "k", s->dtype, 4, BATCH, n, HEADS, s->d);
    normal(k, "v", s->dtype, 4, BATCH, n, HEADS, s->dv);
    normal(k, "state_in", TU_F32, 4, BATCH, HEADS, s->d, s->dv);
    normal(k, "dstate", TU_F32, 4, BATCH, HEADS, s->d, s->dv);
    normal(k, "do", s->dtype, 4, BATCH, n, HEADS, s->dv);
    k->opt.scale = one_in(2) ? NAN : .3;
    if (!strcmp(row, "gla"))
        gates(k, "gate", s->gates, 1, 4, n, s->d);
    else if (s->gates == GATES)
        k->opt.bidirectional = true;
    else
        k->opt.decay = -(double)gate_value(s->gates, .5f);
}

static bool run(struct tu_mixer_args *m, const struct kit *k, const char *row,
                const char *algo, int pass)
{
    struct tu_err err = {0};
    *m = (struct tu_mixer_args){.opt = &k->opt,
                                .in = k->in,
                                .n_in = k->n,
                                .pass = pass,
                                .algo = algo};
    int code = case_run(tu_mixer_find(row), m, !strcmp(algo, "ref"), &err);
    if (code)
        printf("# %s, %s: %s\n", row, algo, err.msg);
    return !code;
}

static bool agrees(const char *row, const struct shape *s)
{
    struct kit k;
    struct tu_mixer_args fast, ref;
    char where[64] = "";
    problem(&k, row, s);
    if (!run(&fast, &k, row, "chunks", TU_PASS_BOTH) ||
        !run(&ref, &k, row, "ref", TU_PASS_BOTH))
        return false;
    double tol = s->dtype == TU_BF16 ? 2e-2 : 2e-5, e = case_worst(&fast, &ref, where);
    if (!(e <= tol))
        printf("# %s n=%d d=%d dv=%d block=%d %s gates=%d: error %g at %s\n", row,
               (int)s->n, (int)s->d, (int)s->dv, (int)s->block,
               tu_dtype_find(s->dtype)->name, s->gates, e, where);
    return e <= tol;
}

/* All lengths and storages with one kind of gates. */
static void family(const char *isa, const char *row, enum gates kind)
{
    static const uint64_t lengths[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 130},
                          blocks[] = {0, 0, 0, 1, 7, 32, 100},
                          dims[] = {1, 3, 16, 17, 32, 33, 64};
    static const uint32_t dtypes[] = {TU_F32, TU_BF16, TU_F16};
    unsigned bad = 0;
    for (unsigned i = 0; i < 10; i++)
        for (unsigned t = 0; t < 3; t++) {
            struct shape s = {.n = lengths[i],
                              .d = dims[pick(7)],
                              .dv = dims[pick(7)],
                              .block = blocks[pick(7)],
                              .dtype = dtypes[t],
                              .gates = kind};
            bad += !agrees(row, &s);
        }
    ok(!bad, "%s, %s, %s", isa, row, kind == GATES ? "both ways" : gates_name[kind]);
}

/* What is not finite reaches the steps from its own on, in the tile too. */
static void odd(const char *isa, const char *row)
{
    const struct shape s = {.n = 20, .d = 8, .dv = 8, .dtype = TU_F32, .gates = MILD};
    struct kit k;
    struct tu_mixer_args before, after;
    problem(&k, row, &s);
    const char *name = !strcmp(row, "ssd") ? "x" : "v";
    float *v = tu_operand_find(k.in, k.n, name)->data;
    bool good = run(&before, &k, row, "chunks", TU_PASS_FWD);
    for (unsigned b = 0; b < BATCH; b++)
        v[(b * s.n + 10) * HEADS * s.dv] = NAN;
    good = good && run(&after, &k, row, "chunks", TU_PASS_FWD);
    unsigned bad = 0;
    const uint64_t width = HEADS * s.dv;
    for (uint64_t i = 0; good && i < BATCH * s.n * width; i++) {
        double x = (double)((float *)before.out[0].data)[i],
               y = (double)((float *)after.out[0].data)[i];
        bool hit = i / width % s.n >= 10 && i % width == 0;
        bad += hit ? !isnan(y) : !(fabs(x - y) <= 1e-5 * fmax(1, fabs(x)));
    }
    ok(good && !bad, "%s, %s: NaN stays in its column, from its step on", isa, row);
}

int main(void)
{
    static const char *const isa[] = {"amx", "avx512", "avx2", "scalar"};
    static const char *const row[] = {"linear", "gla", "ssd"};
    for (unsigned i = 0; i < 4; i++) {
        struct tu_err err;
        if (tu_cpu_narrow(isa[i], &err)) {
            tap_skip(isa[i], "this CPU has it not");
            continue;
        }
        for (unsigned r = 0; r < 3; r++) {
            for (unsigned g = 0; g < GATES; g++)
                family(isa[i], row[r], (enum gates)g);
            odd(isa[i], row[r]);
        }
        family(isa[i], "linear", GATES);
    }
    return tap_done();
}
