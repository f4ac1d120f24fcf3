/* SPDX-License-Identifier: Apache-2.0 */
/* mixers.c: published numbers of the recurrent operators, and their gradients against
 * finite differences, in every form of every row. */
#include "kit.h"

static const float Q[] = {1, 0, .5f, -1, -.5f, 1.5f, 2, .25f, -1, -1};
static const float K[] = {.5f, 1, -1, .5f, 1.5f, -.5f, .25f, -2, .5f, 1};
static const float V[] = {1, -1, 0, 2, 3, .5f, -2, 1, 1, -1};
static const float DO[] = {1, .5f, -.5f, 1, .25f, -1, 1, 1, -1, 0};

enum { CELLS = 256 };

/* A row's call with f32 outputs in memory of its own. */
struct call {
    struct tu_attn_opts opt;
    struct tu_mixer_args a;
    struct tu_operand in[16];
    float mem[TU_MIXER_OUT_MAX][CELLS];
};

static void in(struct call *c, const char *name, unsigned rank, uint64_t a, uint64_t b,
               uint64_t x, uint64_t y, const float *data)
{
    c->in[c->a.n_in++] =
        (struct tu_operand){name, TU_F32, rank, {a, b, x, y}, (void *)data};
}

static void begin(struct call *c)
{
    *c = (struct call){0};
    tu_attn_opts_init(&c->opt);
    c->a.opt = &c->opt;
    c->a.in = c->in;
    c->a.pass = TU_PASS_FWD;
}

static bool go(struct call *c, const char *row)
{
    const struct tu_mixer *m = tu_mixer_find(row);
    struct tu_err err = {0};
    bool good = m && !m->infer(&c->a, &err);
    for (size_t i = 0; good && i < c->a.n_out; i++)
        c->a.out[i].data = c->mem[i];
    good = good && !m->run(&c->a, &err);
    if (!good)
        printf("# %s: %s\n", row, err.msg);
    return good;
}

static const float *out(const struct call *c, const char *name)
{
    const struct tu_operand *o = tu_operand_find(c->a.out, c->a.n_out, name);
    return o ? o->data : NULL;
}

static void qkv(struct call *c)
{
    begin(c);
    in(c, "q", 4, 1, 5, 1, 2, Q);
    in(c, "k", 4, 1, 5, 1, 2, K);
    in(c, "v", 4, 1, 5, 1, 2, V);
    in(c, "do", 4, 1, 5, 1, 2, DO);
}

static void linear(void)
{
    static const double o0[] = {.5, -.5,   -.75,    -1.25, -3.25,
                                .5, 9.875, -3.5625, -9.5,  5.25};
    static const double s0[] = {5, -2, 4.5, -3.25};
    static const double dq[] = {.25, .5, -2.75, -.5, 3, .125, 3, 1.25, -5, -4.5};
    static const double dk[] = {.125, 4.375, 6, -4.5, 9.875, 4.25, -4, -2.25, 1, 1};
    static const double dv[] = {3.9375, -.5,   -1.5625, -4.125, 3.5,
                                4.375,  -1.75, 0,       1.5,    0};
    static const double o1[] = {.5,       -.5,       -.5841006,  -1.4158994, -3.7418367,
                                .4388386, 7.3076149, -1.7454220, -6.5972139, 3.5838218};
    static const double s1[] = {3.0239273, -.9790746, 3.5732866, -2.6047471};
    static const double dk1[] = {-.0953028, 2.6733256}, dv1[] = {2.1238685, -.5018057};
    static const double og[] = {.5,  -.5,  -.4,   -1.6,    -4.01,
                                .51, 5.52, -1.11, -5.5064, 3.4324};
    static const double alpha[] = {.9, .5, .8, .6, .7, .7, .6, .8, .5, .9};
    static const char *const algo[] = {"chunks", "ref"};
    float gate[10];
    struct call c;
    for (unsigned i = 0; i < 10; i++)
        gate[i] = (float)log(alpha[i]);
    for (unsigned i = 0; i < 4; i++) { /* a form, in blocks of 2 or one block */
        const char *how = algo[i / 2];
        qkv(&c);
        c.a.pass = TU_PASS_BOTH;
        c.a.algo = how;
        c.opt.block = i % 2 ? 2 : 0;
        ok(go(&c, "linear") && !kit_compare("o", out(&c, "o"), o0, 10, 1e-6) &&
               !kit_compare("state", out(&c, "state_out"), s0, 4, 1e-6) &&
               !kit_compare("dq", out(&c, "dq"), dq, 10, 1e-6) &&
               !kit_compare("dk", out(&c, "dk"), dk, 10, 1e-6) &&
               !kit_compare("dv", out(&c, "dv"), dv, 10, 1e-6),
           "K: linear, %s", how);
        c.opt.decay = .25;
        ok(go(&c, "linear") && !kit_compare("o", out(&c, "o"), o1, 10, 1e-6) &&
               !kit_compare("state", out(&c, "state_out"), s1, 4, 1e-6) &&
               !kit_compare("dk", out(&c, "dk"), dk1, 2, 1e-6) &&
               !kit_compare("dv", out(&c, "dv"), dv1, 2, 1e-6),
           "K2: with decay, %s", how);
        in(&c, "gate", 4, 1, 5, 1, 2, gate);
        c.opt.decay = 0;
        ok(go(&c, "gla") && !kit_compare("o", out(&c, "o"), og, 10, 1e-6), "L: gla, %s",
           how);
    }
}

/* K3: the state after four tokens, in two pieces. */
static void pieces(void)
{
    static const double m0[] = {.3894004, -2.3894004, .7788008, .2211992};
    static const double s4[] = {3.2407868, -.6151440, 3.3041654, -2.0605361};
    float state[4];
    struct call c;
    begin(&c);
    c.opt.decay = .25;
    in(&c, "q", 4, 1, 2, 1, 2, Q);
    in(&c, "k", 4, 1, 2, 1, 2, K);
    in(&c, "v", 4, 1, 2, 1, 2, V);
    ok(go(&c, "linear") && !kit_compare("M0", out(&c, "state_out"), m0, 4, 1e-6),
       "K3: one piece");
    memcpy(state, out(&c, "state_out"), sizeof state);
    for (unsigned i = 0; i < 3; i++)
        c.in[i].data = (float *)c.in[i].data + 4;
    in(&c, "state_in", 4, 1, 1, 2, 2, state);
    ok(go(&c, "linear") && !kit_compare("S4", out(&c, "state_out"), s4, 4, 1e-6),
       "K3: the next carries on");
}

static void spaces(void)
{
    static const double y[] = {.05,      -.05,      -.0614048, -.3385952,  -1.2741837,
                               .0695928, 1.7852743, -.1341847, -2.0020452, 1.2108144};
    static const double h[] = {.6898928, 1.3121524, -.2306763, -.9801381};
    static const float dt[] = {.1f, .2f, .3f, .4f, .5f}, a[] = {-1};
    struct call c;
    for (unsigned i = 0; i < 3; i++) {
        begin(&c);
        c.a.algo = i == 2 ? "ref" : "chunks";
        c.opt.block = i == 1 ? 2 : 0;
        in(&c, "x", 4, 1, 5, 1, 2, V);
        in(&c, "dt", 3, 1, 5, 1, 0, dt);
        in(&c, "A", 1, 1, 0, 0, 0, a);
        in(&c, "B", 4, 1, 5, 1, 2, K);
        in(&c, "C", 4, 1, 5, 1, 2, Q);
        ok(go(&c, "ssd") && !kit_compare("y", out(&c, "y"), y, 10, 1e-6) &&
               !kit_compare("state", out(&c, "state_out"), h, 4, 1e-6),
           "M: ssd %u", i);
    }
    static const float am[] = {-1, -2, -.5f, -1.5f}, d[] = {.5f, -.25f};
    static const float dtm[] = {.1f, .3f, .2f, .2f, .3f, .1f};
    static const double ym[] = {.55, .1, -.0465637, -.7456173, .1900186, .0260787};
    static const double hm[] = {1.3803265, -.4132121, -.4345980, -.0441469};
    begin(&c);
    in(&c, "u", 3, 1, 3, 2, 0, V);
    in(&c, "dt", 3, 1, 3, 2, 0, dtm);
    in(&c, "A", 2, 2, 2, 0, 0, am);
    in(&c, "B", 3, 1, 3, 2, 0, K);
    in(&c, "C", 3, 1, 3, 2, 0, Q);
    in(&c, "D", 1, 2, 0, 0, 0, d);
    ok(go(&c, "mamba") && !kit_compare("y", out(&c, "y"), ym, 6, 1e-6) &&
           !kit_compare("state", out(&c, "state_out"), hm, 4, 1e-6),
       "N: mamba");
}

/* The sum of the first output times do, plus that of the last state times dstate. */
static double loss(struct call *c, const char *row, size_t n)
{
    const struct tu_operand *g = tu_operand_find(c->in, c->a.n_in, "do"),
                            *ds = tu_operand_find(c->in, c->a.n_in, "dstate");
    double sum = 0;
    c->a.pass = TU_PASS_FWD;
    if (!go(c, row))
        return NAN;
    for (size_t i = 0; i < n; i++)
        sum += (double)((float *)c->a.out[0].data)[i] * (double)((float *)g->data)[i];
    uint64_t s = 1;
    for (unsigned i = 0; i < ds->rank; i++)
        s *= ds->dim[i];
    for (uint64_t i = 0; i < s; i++)
        sum += (double)((float *)c->a.out[1].data)[i] * (double)((float *)ds->data)[i];
    return sum;
}

/* Central differences of every input that has a gradient. */
static void differences(struct call *c, const char *row, size_t n)
{
    struct call back = *c;
    back.a.in = back.in;
    back.a.opt = &back.opt;
    back.a.pass = TU_PASS_BWD;
    ok(go(&back, row), "%s: gradients", row);
    for (size_t k = 0; k < c->a.n_in; k++) {
        char name[32];
        snprintf(name, sizeof name, "d%s", c->in[k].name);
        const float *g = out(&back, name);
        if (!g)
            continue;
        uint64_t size = 1, bad = 0;
        for (unsigned i = 0; i < c->in[k].rank; i++)
            size *= c->in[k].dim[i];
        float *x = c->in[k].data;
        for (uint64_t i = 0; i < size; i++) {
            float keep = x[i], h = 1.0f / 64;
            x[i] = keep + h;
            double up = loss(c, row, n), high = (double)x[i];
            x[i] = keep - h;
            double down = loss(c, row, n), d = (up - down) / (high - (double)x[i]);
            x[i] = keep;
            if (!kit_near((double)g[i], d, 2e-3) && bad++ == 0)
                printf("# %s[%d]: got %g, differences give %g\n", name, (int)i,
                       (double)g[i], d);
        }
        ok(!bad, "%s: %s by finite differences", row, name);
    }
}

static float made[16][CELLS];

static float *noise(unsigned k, float low, float high)
{
    struct tu_rng r = {k + 1, 0};
    tu_rng_uniform(&r, 0, made[k], CELLS);
    for (unsigned i = 0; i < CELLS; i++)
        made[k][i] = low + (high - low) * made[k][i];
    return made[k];
}

static void gradients(void)
{
    struct call c;
    begin(&c);
    c.opt.decay = .1;
    in(&c, "q", 4, 1, 6, 2, 3, noise(0, -1, 1));
    in(&c, "k", 4, 1, 6, 2, 3, noise(1, -1, 1));
    in(&c, "v", 4, 1, 6, 2, 2, noise(2, -1, 1));
    in(&c, "do", 4, 1, 6, 2, 2, noise(3, -1, 1));
    in(&c, "state_in", 4, 1, 2, 3, 2, noise(4, -1, 1));
    in(&c, "dstate", 4, 1, 2, 3, 2, noise(5, -1, 1));
    differences(&c, "linear", 24);
    c.opt.bidirectional = true;
    differences(&c, "linear", 24);
    c.opt.bidirectional = false;
    in(&c, "gate", 4, 1, 6, 2, 3, noise(6, -1, -.1f));
    differences(&c, "gla", 24);

    begin(&c);
    in(&c, "x", 4, 2, 5, 2, 3, noise(0, -1, 1));
    in(&c, "dt", 3, 2, 5, 2, 0, noise(1, .1f, .9f));
    in(&c, "A", 1, 2, 0, 0, 0, noise(2, -1, -.2f));
    in(&c, "B", 4, 2, 5, 1, 2, noise(3, -1, 1));
    in(&c, "C", 4, 2, 5, 1, 2, noise(4, -1, 1));
    in(&c, "D", 1, 2, 0, 0, 0, noise(5, -1, 1));
    in(&c, "do", 4, 2, 5, 2, 3, noise(6, -1, 1));
    in(&c, "state_in", 4, 2, 2, 3, 2, noise(7, -1, 1));
    in(&c, "dstate", 4, 2, 2, 3, 2, noise(8, -1, 1));
    differences(&c, "ssd", 60);

    begin(&c);
    in(&c, "u", 3, 2, 5, 3, 0, noise(0, -1, 1));
    in(&c, "dt", 3, 2, 5, 3, 0, noise(1, .1f, .9f));
    in(&c, "A", 2, 3, 2, 0, 0, noise(2, -1, -.2f));
    in(&c, "B", 3, 2, 5, 2, 0, noise(3, -1, 1));
    in(&c, "C", 3, 2, 5, 2, 0, noise(4, -1, 1));
    in(&c, "D", 1, 3, 0, 0, 0, noise(5, -1, 1));
    in(&c, "z", 3, 2, 5, 3, 0, noise(9, -1, 1));
    in(&c, "do", 3, 2, 5, 3, 0, noise(6, -1, 1));
    in(&c, "state_in", 3, 2, 3, 2, 0, noise(7, -1, 1));
    in(&c, "dstate", 3, 2, 3, 2, 0, noise(8, -1, 1));
    differences(&c, "mamba", 30);
}

int main(void)
{
    linear();
    pieces();
    spaces();
    gradients();
    return tap_done();
}
