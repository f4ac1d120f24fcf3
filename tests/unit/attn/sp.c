/* SPDX-License-Identifier: Apache-2.0 */
/* sp.c: every scheme over 1 to 8 ranks equals one process, forward and backward, under
 * masks, sinks, dropout and slopes by global positions; bit for bit when deterministic.
 */
#include "kit.h"

enum { CELLS = 1 << 15 };

static float input[8][CELLS];

static float *noise(unsigned k, uint32_t seed)
{
    struct tu_rng r = {seed, k};
    tu_rng_normal(&r, 0, input[k], CELLS);
    return input[k];
}

struct run {
    struct tu_mixer_args a;
    float *mem; /* [outputs][CELLS] */
};

static bool infer(struct run *r, const struct kit *k, const char *row, int pass)
{
    r->a =
        (struct tu_mixer_args){.opt = &k->opt, .in = k->in, .n_in = k->n, .pass = pass};
    r->mem = calloc((size_t)TU_MIXER_OUT_MAX * CELLS, sizeof *r->mem);
    if (!r->mem || tu_mixer_find(row)->infer(&r->a, NULL))
        return false;
    for (size_t i = 0; i < r->a.n_out; i++)
        r->a.out[i].data = r->mem + i * CELLS;
    return true;
}

/* Greatest relative difference in norm over all outputs; 0: the same bits. A sum over all
 * rows with much cancellation, dsink may differ by ten times as much. */
static double differ(const struct run *x, const struct run *y)
{
    double worst = 0;
    for (size_t i = 0; i < x->a.n_out; i++) {
        double off = 0, size = 1e-60;
        for (size_t c = 0; c < CELLS; c++) {
            double a = (double)x->mem[i * CELLS + c], b = (double)y->mem[i * CELLS + c];
            if (isfinite(a) && isfinite(b))
                off += (a - b) * (a - b);
            else if (memcmp(&x->mem[i * CELLS + c], &y->mem[i * CELLS + c], 4))
                off = INFINITY;
            size += isfinite(b) ? b * b : 0;
        }
        double d = sqrt(off / size) / (strcmp(x->a.out[i].name, "dsink") ? 1 : 10);
        if (memcmp(x->mem + i * CELLS, y->mem + i * CELLS, CELLS * 4))
            worst = fmax(worst, fmax(d, 1e-12));
    }
    return worst;
}

static void one(const struct kit *k, const char *row, const char *text, uint32_t ranks,
                const char *transport, int pass)
{
    struct run alone = {0}, many = {0};
    struct tu_spec spec = {0};
    struct tu_err err = {0};
    uint64_t sent[8] = {0};
    struct tu_sp_args sp = {&spec, ranks, transport, sent, 0};
    bool fixed = k->opt.deterministic;
    int code = tu_spec_parse(&spec, text, &err);
    if (code || !infer(&alone, k, row, pass) || !infer(&many, k, row, pass)) {
        ok(false, "%s: inferred", text);
        return;
    }
    code = tu_mixer_find(row)->run(&alone.a, &err);
    code = code ? code : tu_sp_run(&many.a, &sp, &err);
    double d = code ? INFINITY : differ(&many, &alone);
    if (!ok(!code && d <= (fixed ? 0 : 1e-6), "%s, %u ranks, %s%s", text, ranks,
            pass == TU_PASS_FWD ? "forward" : "both", fixed ? ", the same bits" : ""))
        printf("# difference %g %s\n", d, err.msg);
    if (!code && pass == TU_PASS_FWD && !fixed && strcmp(text, "rsa"))
        ok((double)sent[0] == sp.formula,
           "%s, %u ranks: bytes as the formula says (%.0f, %.0f)", text, ranks,
           (double)sent[0], sp.formula);
    tu_spec_release(&spec);
    free(alone.mem);
    free(many.mem);
}

static void softmax(struct kit *k, uint64_t b, uint64_t n, uint64_t hq, uint64_t hkv,
                    uint64_t d, uint32_t seed)
{
    *k = (struct kit){0};
    tu_attn_opts_init(&k->opt);
    kit_add(k, "q", TU_F32, 4, b, n, hq, d, noise(0, seed));
    kit_add(k, "k", TU_F32, 4, b, n, hkv, d, noise(1, seed));
    kit_add(k, "v", TU_F32, 4, b, n, hkv, d + 1, noise(2, seed));
    kit_add(k, "do", TU_F32, 4, b, n, hq, d + 1, noise(3, seed));
}

/* Masks and the rest, by number. */
static void flavour(struct kit *k, unsigned x, uint64_t hq)
{
    k->opt.causal = x % 3 ? TU_CAUSAL_BR : TU_CAUSAL_NONE;
    if (x % 4 == 1) {
        k->opt.left = 7;
        k->opt.sink_tokens = 2;
    }
    if (x % 4 == 2) {
        k->opt.dropout = .25;
        k->opt.softcap = 3;
    }
    k->opt.alibi = x % 5 == 3;
    if (x % 2)
        kit_add(k, "sinks", TU_F32, 1, hq, 0, 0, 0, noise(4, x));
}

static void schemes(void)
{
    static const char *const name[] = {"rsa",       "ring",     "zigzag",  "stripe",
                                       "allgather", "lightseq", "ulysses", "dsp"};
    unsigned x = 0;
    for (unsigned s = 0; s < 8; s++)
        for (uint32_t p = 1; p <= 8; p++, x++) {
            struct kit k;
            bool light = !strcmp(name[s], "lightseq");
            uint64_t hq = !strcmp(name[s], "ulysses") ? 2 * p : 4, b = s == 7 ? p : 2;
            if (light && p % 2 && p > 1)
                continue;
            softmax(&k, b, 6 * p, hq, hq / 2, 5, x);
            flavour(&k, x, hq);
            if (light)
                k.opt.causal = TU_CAUSAL_BR;
            one(&k, "softmax", name[s], p, "threads", TU_PASS_FWD);
            one(&k, "softmax", name[s], p, "threads", TU_PASS_BOTH);
            k.opt.deterministic = true;
            one(&k, "softmax", name[s], p, "threads", TU_PASS_BOTH);
        }
}

static void usp(void)
{
    static const struct {
        const char *text;
        uint32_t ranks;
    } t[] = {
        {"usp:u=2,r=2", 4}, {"usp:u=2,r=3", 6}, {"usp:u=4,r=2", 8}, {"usp:u=1,r=4", 4}};
    for (unsigned i = 0; i < 4; i++) {
        struct kit k;
        softmax(&k, 1, 24 * (i % 2 ? 1 : 2), 4, 2, 6, i);
        flavour(&k, i, 4);
        one(&k, "softmax", t[i].text, t[i].ranks, "threads", TU_PASS_FWD);
        one(&k, "softmax", t[i].text, t[i].ranks, "threads", TU_PASS_BOTH);
        k.opt.deterministic = true;
        if (i != 2) /* more ranks than key heads: refused */
            one(&k, "softmax", t[i].text, t[i].ranks, "threads", TU_PASS_BOTH);
    }
}

static void lasp(void)
{
    for (uint32_t p = 1; p <= 8; p++)
        for (unsigned i = 0; i < 4; i++) {
            struct kit k = {0};
            tu_attn_opts_init(&k.opt);
            k.opt.decay = i % 2 ? .05 : 0;
            k.opt.deterministic = i == 3;
            kit_add(&k, "q", TU_F32, 4, 2, 8 * p, 2, 4, noise(0, p));
            kit_add(&k, "k", TU_F32, 4, 2, 8 * p, 2, 4, noise(1, p));
            kit_add(&k, "v", TU_F32, 4, 2, 8 * p, 2, 3, noise(2, p));
            kit_add(&k, "do", TU_F32, 4, 2, 8 * p, 2, 3, noise(3, p));
            kit_add(&k, "state_in", TU_F32, 4, 2, 2, 4, 3, noise(4, p));
            kit_add(&k, "dstate", TU_F32, 4, 2, 2, 4, 3, noise(5, p));
            one(&k, "linear", i < 2 ? "lasp2" : "lasp", p, "threads", TU_PASS_BOTH);
        }
}

/* What does not divide is a usage error, not a wrong answer. */
static void refusals(void)
{
    static const struct {
        const char *text;
        uint32_t ranks;
    } t[] = {{"ring", 5},     {"zigzag", 3},      {"ulysses", 3}, {"dsp", 2},
             {"lightseq", 3}, {"usp:u=2,r=2", 3}, {"nothing", 2}};
    for (unsigned i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct kit k;
        struct run r;
        struct tu_spec spec = {0};
        softmax(&k, 1, 12 + (i == 1 ? 3 : 0), 4, 2, 5, i);
        struct tu_sp_args sp = {&spec, t[i].ranks, "threads", NULL, 0};
        ok(!tu_spec_parse(&spec, t[i].text, NULL) &&
               infer(&r, &k, "softmax", TU_PASS_FWD) &&
               tu_sp_run(&r.a, &sp, NULL) == TU_EUSAGE,
           "%s over %u is refused", t[i].text, t[i].ranks);
        tu_spec_release(&spec);
        free(r.mem);
    }
}

int main(void)
{
    schemes();
    usp();
    lasp();
    refusals();
    return tap_done();
}
