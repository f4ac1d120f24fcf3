/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs of gradients and activations: worked examples, bounds, state over steps. */
#include "inputs.h"
#include "kit.h"
#include "tensorutils/quant/gradient.h"

static float big[R_COUNT], back[R_COUNT], error[R_COUNT];

static void near4(const float *v, const double *want, double tolerance, const char *what)
{
    for (unsigned i = 0; i < 4; i++)
        ok(fabs((double)v[i] - want[i]) <= tolerance, "%s %u: %.9g", what, i,
           (double)v[i]);
}

static void test_feedback(void)
{
    static const float g[2][4] = {{1, -.5f, .25f, 0}, {.5f, .5f, -.25f, 1}};
    static const double left[2][4] = {{.5625, -.0625, -.1875, -.4375},
                                      {.4375, -.1875, .1875, -.0625}};
    static const double scale[2] = {.4375, .625};
    struct kit k = {0};
    struct tu_err err;
    float e[4] = {0}, sent[4];
    kit_plan(&k, "sign", 1, 4);
    for (unsigned s = 0; s < 2; s++) {
        ok(!tu_feedback_step(&k.c, g[s], e, k.code, k.side, sent, NULL, &err), "step %u",
           s);
        ok(fabsf(sent[0]) == (float)scale[s], "scale %g", (double)sent[0]);
        near4(e, left[s], 0, "what is left");
    }
    kit_free(&k);
    static const double first[4] = {0, -.5, .25, 0}, second[4] = {.5, 0, 0, 0};
    memset(e, 0, sizeof e);
    kit_plan(&k, "topk:k=1", 1, 4);
    ok(!tu_feedback_step(&k.c, g[0], e, k.code, k.side, sent, NULL, &err), "top 1");
    near4(e, first, 0, "what is left");
    ok(sent[0] == 1 && sent[3] == 0, "sends the first");
    ok(!tu_feedback_step(&k.c, g[1], e, k.code, k.side, sent, NULL, &err), "again");
    near4(e, second, 0, "what is left");
    ok(sent[3] == 1 && tu_le32(k.side[0]) == 3, "sends the last");
    tu_put32(k.side[0], 4);
    eq_int(kit_decode(&k, sent), TU_EFORMAT, "an index behind the end: %s", k.why);
    kit_free(&k);
    /* Nothing is lost over many steps: sent and left add up to what came in. */
    double in[8] = {0}, out[8] = {0};
    input_r(1, big);
    memset(error, 0, sizeof error);
    kit_plan(&k, "zero4:group=8", 1, 8);
    for (unsigned s = 0; s < 100; s++) {
        ok(s || !tu_feedback_step(&k.c, big, error, k.code, k.side, back, NULL, &err),
           "steps");
        if (s &&
            tu_feedback_step(&k.c, big + 8 * s, error, k.code, k.side, back, NULL, &err))
            ok(false, "step %u", s);
        for (unsigned i = 0; i < 8; i++) {
            in[i] += (double)big[8 * s + i];
            out[i] += (double)back[i];
        }
    }
    for (unsigned i = 0; i < 8; i++)
        ok(fabs(in[i] - out[i] - (double)error[i]) < 1e-4, "element %u adds up", i);
    kit_free(&k);
}

/* One after the other: the largest that is left, of equal ones the first. */
static void test_largest(void)
{
    enum { N = 600 };
    static float v[N], sparse[N];
    for (unsigned kind = 0; kind < 3; kind++)
        for (unsigned most = 0; most <= N; most += most < 4 ? 1 : 149) {
            const struct tu_rng r = {.seed = kind};
            bool taken[N] = {false};
            char text[32];
            struct kit k = {0};
            unsigned bad = 0;
            for (uint32_t i = 0; i < N; i++) { /* many alike, near each other, or any */
                uint32_t u = tu_rng_u32(&r, i);
                v[i] = kind == 0   ? (float)(int)(u % 7) - 3
                       : kind == 1 ? 1 + (float)(u % 50) * 0x1p-23f
                                   : (float)(int32_t)u;
            }
            snprintf(text, sizeof text, "topk:k=%u", most);
            if (!kit_start(&k, text, 1, N, v) ||
                !ok(!kit_decode(&k, sparse), "decodes %s", k.why))
                continue;
            for (unsigned m = 0; m < most; m++) {
                unsigned best = N;
                for (unsigned i = 0; i < N; i++)
                    if (!taken[i] && (best == N || fabsf(v[i]) > fabsf(v[best])))
                        best = i;
                taken[best] = true;
            }
            for (unsigned i = 0; i < N; i++)
                bad += sparse[i] != (taken[i] ? v[i] : 0);
            eq_u64(bad, 0, "the %u largest of kind %u", most, kind);
            kit_free(&k);
        }
}

static void test_change(void)
{
    static const float a[4] = {1.1f, -1.9f, .45f, .2f};
    static const double want[4] = {1.114286, -1.885714, .442857, .2};
    float m[4] = {1, -2, .5f, 0}, receiver[4];
    struct kit k = {0};
    struct tu_err err;
    memcpy(receiver, m, sizeof m);
    kit_plan(&k, "int4:group=4,rule=narrow", 1, 4);
    ok(!tu_change_send(&k.c, a, m, k.code, k.side, NULL, &err), "sends a change");
    near4(m, want, 5e-7, "the sender's copy");
    ok(!tu_change_receive(&k.c, k.code, (const void *const *)k.side, receiver, NULL,
                          &err),
       "receives");
    eq_mem(m, receiver, sizeof m, "both have the same");
    ok(fabsf(*(float *)k.side[0] - .028571429f) < 1e-7f, "scale");
    kit_free(&k);
}

/* The codec `demo` under feedback with a decay is DeMo; indices outside a chunk are named. */
static void test_demo_codec(void)
{
    enum { ROWS = 10, COLS = 97, N = ROWS * COLS, TOP = 3 };
    static float g[N], delta[N], e[N];
    struct kit k = {0};
    struct tu_demo d;
    struct tu_err err;
    input_r(1, big);
    if (!ok(!tu_demo_init(&d, ROWS, COLS, TOP, &err), "97 has no divisor up to 64 but 1"))
        return;
    eq_u64(d.w, 1, "columns of a chunk");
    eq_u64(d.h, 10, "rows of a chunk");
    uint32_t index[COLS * TOP];
    float value[COLS * TOP];
    kit_plan(&k, "demo:top=3", ROWS, COLS);
    for (unsigned step = 0; step < 3; step++) {
        memcpy(g, big + step * N, sizeof g);
        for (unsigned i = 0; i < N; i++)
            e[i] *= 0.999f;
        ok(!tu_demo_send(&d, 0.999f, 1, g, delta, index, value, &err), "sends");
        ok(!tu_feedback_step(&k.c, g, e, k.code, k.side, NULL, NULL, &err), "feeds back");
        eq_mem(k.code, value, sizeof value, "the same coefficients");
        for (unsigned i = 0; i < COLS * TOP; i++)
            if (tu_le16((unsigned char *)k.side[0] + 2 * i) != index[i])
                ok(false, "index %u", i);
        double worst = 0;
        for (unsigned i = 0; i < N; i++)
            worst = fmax(worst, fabs((double)e[i] - (double)delta[i]));
        ok(worst < 1e-6, "what is left, off by %g", worst);
    }
    tu_put16(k.side[0], ROWS);
    eq_int(kit_decode(&k, back), TU_EFORMAT, "an index behind the chunk: %s", k.why);
    kit_free(&k);
}

static void test_zero(void)
{
    static const float v[8] = {-3.5f, -1, -.25f, 0, .3f, 1.1f, 2, 3};
    static const int want[8] = {-128, -37, -9, 0, 11, 40, 73, 110};
    float half[8];
    struct kit k = {0};
    for (unsigned i = 0; i < 8; i++)
        half[i] = tu_from_f16(tu_to_f16(v[i]));
    if (kit_start(&k, "zero8:group=8", 1, 8, half)) {
        eq_u64(tu_le32(k.side[0]), 0x3cdfffff, "the inverse scale");
        for (unsigned i = 0; i < 8; i++)
            eq_int(((int8_t *)k.code)[i], want[i], "code %u", i);
    }
    kit_free(&k);
    if (kit_start(&k, "zero4:group=8", 1, 8, half))
        eq_str(kit_hex(k.code, 4), "8ef01357", "four bits");
    kit_free(&k);
    static const unsigned place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    for (unsigned i = 0; i < 8; i++)
        eq_u64(tu_zero_place(place[i], 2, 4), i, "partition %u", place[i]);
    input_r(3, big);
    static const char *const spec[] = {"zero8", "zero8:asym", "zero4:asym,group=64",
                                       "zero4:group=64"};
    static const double worst[] = {0.005, 0.005, 0.075, 0.15};
    for (unsigned i = 0; i < 4; i++) {
        if (kit_start(&k, spec[i], R_ROWS, R_COLS, big) && kit_decode(&k, back) == 0) {
            double top = 0;
            for (unsigned j = 0; j < R_COUNT; j++) {
                unsigned g = (unsigned)k.c.param[0], first = j / g * g;
                float amax = 0;
                for (unsigned l = first; j == first && l < first + g && l < R_COUNT; l++)
                    amax = fmaxf(amax, fabsf(big[l]));
                if (j == first)
                    error[first / g] = amax;
                if (error[first / g] > 0)
                    top = fmax(top, fabs((double)back[j] - big[j]) / error[first / g]);
            }
            ok(top <= worst[i] * 1.7, "%s: off by %.4f of the largest", spec[i], top);
        }
        kit_free(&k);
    }
    eq_int(kit_plan(&k, "zero8", 1, 12), TU_EUSAGE, "12 elements: %s", k.why);
    eq_int(kit_plan(&k, "zero8:group=12", 1, 24), TU_EUSAGE, "a group of 12: %s", k.why);
}

static void test_demo(void)
{
    static const double v[8] = {1, 2, 3, 4, 4, 3, 2, 1},
                        want[8] = {7.071067812, 0, -3.154322030, 0, 0, 0, -.224170765, 0},
                        part[4] = {1.042893, 1.896447, 3.103553, 3.957107};
    double t[8], b[8];
    struct tu_err err;
    struct tu_demo d;
    tu_dct(v, t, 8, false);
    for (unsigned i = 0; i < 8; i++)
        ok(fabs(t[i] - want[i]) < 1e-9, "wave %u: %.9f", i, t[i]);
    t[6] = 0;
    tu_dct(t, b, 8, true);
    for (unsigned i = 0; i < 4; i++)
        ok(fabs(b[i] - part[i]) < 1e-6, "the two largest: %.6f", b[i]);
    ok(!tu_demo_init(&d, 97, 100, 32, &err) && d.h == 1 && d.w == 50 && d.chunks == 194,
       "97 by 100");
    eq_int(tu_demo_init(&d, 8, 8, 0, &err), TU_EUSAGE, "no coefficient");

    /* A row of 8: the example; what is sent leaves the momentum. */
    float g[8], delta[8] = {0}, value[4], update[8];
    uint32_t index[4];
    for (unsigned i = 0; i < 8; i++)
        g[i] = (float)v[i];
    ok(!tu_demo_init(&d, 1, 8, 2, &err) &&
           !tu_demo_send(&d, .999f, 1, g, delta, index, value, &err),
       "sends");
    ok(index[0] == 0 && index[1] == 2 && fabsf(value[1] + 3.15432203f) < 1e-6f,
       "the two largest");
    ok(fabs((double)delta[0] - (1 - part[0])) < 1e-5, "the rest stays: %g",
       (double)delta[0]);
    /* Two workers: the mean is over those who sent an index. */
    index[2] = 0;
    value[2] = 0;
    index[3] = 4;
    value[3] = 2;
    ok(!tu_demo_receive(&d, index, value, 2, update, &err), "receives");
    double both[8] = {7.071067812 / 2, 0, -3.154322030, 0, 2, 0, 0, 0};
    tu_dct(both, b, 8, true);
    for (unsigned i = 0; i < 8; i++)
        ok(fabs((double)update[i] - b[i]) < 1e-5, "element %u: %g", i, (double)update[i]);
    index[0] = 8;
    eq_int(tu_demo_receive(&d, index, value, 1, update, &err), TU_EFORMAT,
           "wave 8 of 8: %s", err.msg);
    /* All coefficients of a matrix: what comes back is the momentum, and nothing stays.
     */
    static uint32_t at[48 * 40];
    static float val[48 * 40];
    input_r(1, big);
    memset(error, 0, sizeof error);
    ok(!tu_demo_init(&d, 48, 40, 48 * 40, &err) && d.chunks == 1 &&
           !tu_demo_send(&d, .9f, 1, big, error, at, val, &err) &&
           !tu_demo_receive(&d, at, val, 1, back, &err),
       "all of a matrix");
    double off = 0, rest = 0;
    for (unsigned i = 0; i < 48 * 40; i++) {
        off = fmax(off, fabs((double)back[i] - big[i]));
        rest = fmax(rest, fabs((double)error[i]));
    }
    ok(off < 1e-5 && rest < 1e-5, "is lossless: %g, %g", off, rest);
}

static void test_powersgd(void)
{
    enum { M = 24, N = 20, R = 3 };
    static float m[M * N], p[M * R], q[N * R], y[M * N];
    input_r(1, big);
    /* A matrix of rank 3 comes back whole; a full one better from step to step. */
    for (unsigned full = 0; full < 2; full++) {
        double last = INFINITY, now = 0;
        for (unsigned i = 0; i < M; i++)
            for (unsigned j = 0; j < N; j++) {
                m[i * N + j] = full ? big[1000 + i * N + j] : 0;
                for (unsigned r = 0; r < R; r++)
                    m[i * N + j] += big[i * R + r] * big[500 + j * R + r];
            }
        tu_powersgd_start(1, 2, N, R, q);
        for (unsigned step = 0; step < 4; step++) {
            tu_powersgd_p(m, q, M, N, R, p);
            tu_powersgd_q(m, p, M, N, R, q);
            tu_powersgd_decode(p, q, M, N, R, y);
            now = 0;
            for (unsigned i = 0; i < M * N; i++)
                now += pow((double)y[i] - (double)m[i], 2);
            ok(now <= last * 1.0001 + 1e-9, "step %u: %g", step, now);
            last = now;
        }
        ok(full || now < 1e-8, "rank 3: error %g", now);
    }
    memset(m, 0, sizeof m);
    tu_powersgd_p(m, q, M, N, R, p);
    tu_powersgd_q(m, p, M, N, R, q);
    tu_powersgd_decode(p, q, M, N, R, y);
    ok(y[0] == 0 && y[M * N - 1] == 0, "zeros stay zeros");
}

static size_t bounded(const float *x, size_t n, double bound, bool relative, double *off)
{
    struct tu_buf out = {0};
    struct tu_err err = {0};
    size_t used = 0, size;
    *off = INFINITY;
    if (ok(!tu_bounded_encode(x, n, bound, relative, &out, &err) &&
               !tu_bounded_decode(out.data, out.n, back, n, &used, &err),
           "codes %zu values to %g %s", n, bound, err.msg) &&
        used == out.n) {
        *off = 0;
        for (size_t i = 0; i < n; i++)
            if (memcmp(&x[i], &back[i], sizeof *x) != 0)
                *off = fmax(*off, fabs((double)back[i] - (double)x[i]));
        if (out.n &&
            tu_bounded_decode(out.data, out.n - 1, back, n, &used, &err) != TU_ETRUNC)
            ok(false, "a cut end is noticed");
    }
    size = out.n;
    tu_buf_release(&out);
    return size;
}

static void test_bounded(void)
{
    float square[9];
    double off;
    for (unsigned i = 0; i < 9; i++)
        square[i] = (float)(i * i);
    bounded(square, 9, .5, false, &off);
    ok(off == 0, "squares are exact");
    static const double bound[] = {1e-1, 1e-3, 1e-6};
    static const size_t length[] = {0, 1, 2, 3, 5, 1000, 1025, 4097, R_COUNT};
    for (int r = 1; r <= 3; r++) {
        input_r(r, big);
        for (unsigned b = 0; b < 3; b++)
            for (unsigned rel = 0; rel < 2; rel++)
                for (size_t l = 0; l < sizeof length / sizeof *length; l++) {
                    double range = 0, lo = INFINITY, hi = -INFINITY;
                    for (size_t i = 0; i < length[l]; i++) {
                        lo = fmin(lo, (double)big[i]);
                        hi = fmax(hi, (double)big[i]);
                    }
                    range = rel ? hi - lo : 1;
                    bounded(big, length[l], bound[b], rel, &off);
                    ok(off <= bound[b] * range || length[l] == 0, "R%d: %g within %g", r,
                       off, bound[b] * range);
                }
    }
    /* A smooth field shrinks. */
    for (unsigned i = 0; i < 4100; i++)
        big[i] = (float)((double)i * i / 1e6 - (double)i / 300);
    size_t size = bounded(big, 4100, 1e-3, true, &off);
    ok(size * 7 < 4100 * 4, "a smooth field in %zu bytes of %u", size, 4100 * 4);
    big[7] = NAN;
    big[2000] = INFINITY;
    big[3000] = 1e38f;
    bounded(big, 4100, 1e-3, false, &off);
    ok(off <= 1e-3, "blocks that are not finite are kept as they are: %g", off);
    struct tu_buf out = {0};
    struct tu_err err;
    eq_int(tu_bounded_encode(big, 9, 0, false, &out, &err), TU_EUSAGE, "a bound of 0: %s",
           err.msg);
    eq_int(tu_bounded_encode(big, 9, NAN, false, &out, &err), TU_EUSAGE,
           "a bound that is none");
    size_t used;
    eq_int(tu_bounded_decode("\0\0\0\0\0\0\0\0\0\x40", 10, back, 9, &used, &err),
           TU_EFORMAT, "a width of 64: %s", err.msg);
    tu_buf_release(&out);
}

int main(void)
{
    test_feedback();
    test_largest();
    test_change();
    test_demo_codec();
    test_zero();
    test_demo();
    test_powersgd();
    test_bounded();
    return tap_done();
}
