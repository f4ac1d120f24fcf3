/* SPDX-License-Identifier: Apache-2.0 */
/* GPTQ, SparseGPT, the scale searches and rotations. Codes and losses are those of
 * IST-DASLab/gptq's and sparsegpt's algorithms written down in numpy, in double. */
#include "inputs.h"
#include "kit.h"
#include "tensorutils/quant/calib.h"

enum { N = 16, K = 64, T = 256 };

static float big[R_COUNT], weight[N * K], w[N * K], x[T * K], out[N * K];

static void make_inputs(void)
{
    input_r(1, big);
    memcpy(weight, big, sizeof weight);
    const float *r = big + 4096;
    for (unsigned t = 0; t < T; t++)
        for (unsigned j = 0; j < K; j++) {
            float v = r[t * K + j] + r[t * K + (j + K - 1) % K];
            x[t * K + j] = (v + r[t * K + (j + K - 2) % K]) * (float)(1 + j % 5);
        }
    eq_u64(tu_crc32(0, x, sizeof x), 0x5270fe71, "inputs");
}

/* Squared error of the outputs. */
static double output_error(const float *v)
{
    double sum = 0;
    for (unsigned i = 0; i < N; i++)
        for (unsigned t = 0; t < T; t++) {
            double y = 0;
            for (unsigned j = 0; j < K; j++)
                y += ((double)v[i * K + j] - (double)weight[i * K + j]) * x[t * K + j];
            sum += y * y;
        }
    return sum;
}

/* The worked example: two columns on a grid of 0.5. */
static void test_factor(void)
{
    double h[4] = {2.02, 1, 1, 2.02};
    static const double want[3] = {.809789474, -.400885878, .703597545};
    ok(tu_cholesky(h, 2) && !tu_cholesky_inverse(h, 2, NULL) && tu_cholesky(h, 2),
       "factors");
    ok(fabs(h[0] - want[0]) < 1e-9 && fabs(h[2] - want[1]) < 1e-9 &&
           fabs(h[3] - want[2]) < 1e-9,
       "U is %.9f %.9f %.9f", h[0], h[2], h[3]);
    double e = (.9 - 1) / h[0], w1 = -.4 - e * h[2];
    ok(fabs(e + .123488886) < 1e-9 && fabs(w1 + .449504950) < 1e-9, "e %.9f, w %.9f", e,
       w1);
    double bad[4] = {1, 2, 2, 1};
    ok(!tu_cholesky(bad, 2), "an indefinite matrix is noticed");
}

static const struct {
    const char *spec;
    bool order, fixed;
    uint32_t crc;
    double loss, ratio; /* of the output error to that of rounding to the nearest */
} golden[] = {
    {"gptq4:group=32,v2", false, false, 0x4086fb18, 13.334156, 0.381034},
    {"gptq4:group=32,asym,v2", false, false, 0x6e019650, 11.068743, 0.420059},
    {"gptq3:group=64,v2", false, false, 0xc5ae8058, 66.690455, 0.382341},
    {"gptq4:group=16,v2", true, false, 0xb274140d, 8.196066, 0.243554},
    {"gptq4:group=16,v2", true, true, 0xc990176c, 8.798870, 0.272705},
    {"gptq2:group=32,asym,v2", true, false, 0x008ff332, 249.048478, 0.381779},
};

static void test_gptq(const struct tu_calib *calib)
{
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        struct kit k = {0};
        struct tu_ints m;
        struct tu_err err;
        struct tu_gptq g = {
            .block = 16, .order = golden[i].order, .fixed_groups = golden[i].fixed};
        /* Whole words of outputs: 32 rows for 3 bits. */
        static float rows[32 * K];
        memcpy(rows, weight, sizeof weight);
        memset(rows + N * K, 0, sizeof rows - sizeof weight);
        if (!kit_start(&k, golden[i].spec, 32, K, rows))
            continue;
        kit_decode(&k, big);
        double nearest = output_error(big);
        memcpy(rows, weight, sizeof weight);
        if (ok(!tu_gptq_run(&g, calib, &k.c, rows, &m, NULL, &err), "%s runs",
               golden[i].spec)) {
            eq_u64(tu_crc32(0, m.code, N * K), golden[i].crc, "%s%s%s: codes",
                   golden[i].spec, golden[i].order ? ", ordered" : "",
                   golden[i].fixed ? ", fixed groups" : "");
            ok(fabs(g.error - golden[i].loss) < 1e-4 * golden[i].loss, "loss %.6f",
               g.error);
            double ratio = output_error(rows) / nearest;
            ok(fabs(ratio - golden[i].ratio) < 2e-3, "error falls to %.4f", ratio);
            tu_ints_values(&m, big);
            eq_mem(big, rows, sizeof weight, "the codes are the values");
            ok(!tu_ints_pack(&k.c, &m, k.code, k.side, &err) && !kit_decode(&k, big),
               "packs: %s", err.msg);
            unsigned bad = 0;
            for (unsigned j = 0; j < N * K; j++)
                bad += fabsf(big[j] - rows[j]) > 1e-3f * fabsf(rows[j]) + 1e-6f;
            eq_u64(bad, 0, "up to f16's scales");
            tu_ints_release(&m);
        }
        kit_free(&k);
    }
}

static void test_pool(const struct tu_calib *calib)
{
    struct kit k = {0};
    struct tu_ints m[2];
    struct tu_err err;
    struct tu_pool *pool = tu_pool_new(4, NULL);
    struct tu_calib again;
    kit_plan(&k, "int4:group=32", N, K);
    ok(!tu_calib_init(&again, K, true, &err) &&
           !tu_calib_add(&again, x, 100, pool, &err) &&
           !tu_calib_add(&again, x + 100 * K, T - 100, pool, &err),
       "inputs in two parts");
    eq_mem(again.hessian, calib->hessian, K * K * sizeof(double), "the same Hessian");
    for (unsigned i = 0; i < 2; i++) {
        struct tu_gptq g = {0};
        memcpy(w, weight, sizeof w);
        ok(!tu_gptq_run(&g, &again, &k.c, w, &m[i], i ? pool : NULL, &err), "runs");
    }
    eq_mem(m[0].code, m[1].code, N * K, "threads do not matter");
    tu_ints_release(&m[0]);
    tu_ints_release(&m[1]);
    tu_calib_release(&again);
    tu_pool_free(pool);
    kit_free(&k);
}

static void test_edges(const struct tu_calib *calib)
{
    struct kit k = {0};
    struct tu_ints m;
    struct tu_err err;
    struct tu_gptq g = {0};
    struct tu_calib dead;
    /* A column that is never used gets no weight. */
    for (unsigned t = 0; t < T; t++)
        x[t * K + 5] = 0;
    memcpy(w, weight, sizeof w);
    kit_plan(&k, "int4:group=32,asym", N, K);
    ok(!tu_calib_init(&dead, K, true, &err) && !tu_calib_add(&dead, x, T, NULL, &err) &&
           !tu_gptq_run(&g, &dead, &k.c, w, &m, NULL, &err),
       "a dead column");
    for (unsigned i = 0; i < N; i++)
        ok(w[i * K + 5] == 0, "weight %u of it is 0", i);
    tu_ints_release(&m);
    tu_calib_release(&dead);
    /* Two equal columns: the Hessian alone is singular, damping helps. */
    for (unsigned t = 0; t < T; t++)
        x[t * K + 5] = x[t * K + 6];
    g.damping = 1e-18;
    ok(!tu_calib_init(&dead, K, true, &err) && !tu_calib_add(&dead, x, 8, NULL, &err) &&
           !tu_gptq_run(&g, &dead, &k.c, w, &m, NULL, &err),
       "eight tokens, a singular Hessian");
    ok(g.used > 1e-18, "damping was raised to %g", g.used);
    tu_ints_release(&m);
    x[3] = NAN;
    eq_int(tu_calib_add(&dead, x, 1, NULL, &err), TU_EUSAGE,
           "an input that is no number: %s", err.msg);
    tu_calib_release(&dead);
    kit_free(&k);
    make_inputs();
    kit_plan(&k, "q4_0", N, K);
    eq_int(tu_gptq_run(&g, calib, &k.c, w, &m, NULL, &err), TU_EUSAGE, "no integers: %s",
           err.msg);
    kit_free(&k);
    kit_plan(&k, "int4:group=tensor", N, K);
    eq_int(tu_gptq_run(&g, calib, &k.c, w, &m, NULL, &err), TU_EUSAGE, "one scale: %s",
           err.msg);
    kit_free(&k);
}

static void test_sparsegpt(const struct tu_calib *calib)
{
    struct tu_err err;
    struct tu_gptq g = {.block = 16};
    unsigned char kept[N * K];
    memcpy(w, weight, sizeof w);
    ok(!tu_sparsegpt_run(&g, calib, 2, 4, w, N, NULL, &err), "runs");
    for (unsigned i = 0; i < N * K; i++)
        kept[i] = w[i] != 0;
    eq_u64(tu_crc32(0, kept, sizeof kept), 0x7508e0a0, "what is kept");
    memcpy(out, weight, sizeof out);
    for (unsigned i = 0; i < N * K; i += 4) /* by magnitude */
        for (unsigned drop = 0; drop < 2; drop++) {
            unsigned least = 4;
            for (unsigned j = 0; j < 4; j++)
                if (out[i + j] != 0 &&
                    (least == 4 || fabsf(out[i + j]) <= fabsf(out[i + least])))
                    least = j;
            out[i + least] = 0;
        }
    double ratio = output_error(w) / output_error(out);
    ok(fabs(ratio - 0.330759) < 1e-3, "error falls to %.4f of that by magnitude", ratio);
    eq_int(tu_sparsegpt_run(&g, calib, 2, 5, w, N, NULL, &err), TU_EUSAGE,
           "2 of 5 in 64: %s", err.msg);
}

static void test_scales(const struct tu_calib *calib)
{
    static const float wide[2] = {.5f, 1}, token[2] = {8, -2};
    struct tu_calib two;
    struct tu_err err;
    float s[K];
    double a;
    ok(!tu_calib_init(&two, 2, false, &err) && !tu_calib_add(&two, token, 1, NULL, &err),
       "two columns");
    tu_smooth_scales(&two, wide, 1, .5, s);
    ok(s[0] == 4 && fabsf(s[1] - 1.41421356f) < 1e-6f, "SmoothQuant's scales %g %g",
       (double)s[0], (double)s[1]);
    tu_calib_release(&two);
    struct kit k = {0};
    kit_plan(&k, "int4:group=32,asym", N, K);
    ok(!tu_awq_scales(calib, &k.c, weight, x, T, s, &a, NULL, &err), "AWQ's search");
    ok(a > 0 && a < 1, "exponent %g", a);
    double error[2];
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned j = 0; j < N * K; j++)
            w[j] = weight[j] * (i ? s[j % K] : 1);
        kit_encode(&k, w);
        kit_decode(&k, out);
        for (unsigned j = 0; j < N * K; j++)
            out[j] /= i ? s[j % K] : 1;
        error[i] = output_error(out);
    }
    ok(error[1] < 0.9 * error[0], "error %.1f instead of %.1f", error[1], error[0]);
    kit_free(&k);
}

static void test_rotation(void)
{
    static const unsigned size[] = {1, 2, 64, 12, 24, 20, 160, 1024};
    static float v[2 * 1024], keep[2 * 1024];
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        for (unsigned random = 0; random < 2; random++) {
            unsigned n = size[i], bad = 0;
            double before[3] = {0}, after[3] = {0};
            struct tu_err err;
            memcpy(v, big, 2 * n * sizeof *v);
            memcpy(keep, v, 2 * n * sizeof *v);
            ok(!tu_rotate(v, 2, n, random, 7, false, &err), "rotates %u", n);
            for (unsigned j = 0; j < n; j++)
                for (unsigned p = 0; p < 3; p++) {
                    before[p] += (double)keep[p / 2 * n + j] * keep[(p + 1) / 2 * n + j];
                    after[p] += (double)v[p / 2 * n + j] * v[(p + 1) / 2 * n + j];
                }
            for (unsigned p = 0; p < 3; p++)
                ok(fabs(before[p] - after[p]) < 1e-4 * n, "products stay: %g", after[p]);
            ok(!tu_rotate(v, 2, n, random, 7, true, &err), "and back");
            for (unsigned j = 0; j < 2 * n; j++)
                bad += fabsf(v[j] - keep[j]) > 1e-5f;
            eq_u64(bad, 0, "as it was");
        }
    static const float spike[4] = {0, 0, 4, 0}, flat[4] = {2, 2, -2, -2};
    memcpy(v, spike, sizeof spike);
    ok(!tu_rotate(v, 1, 4, false, 0, false, NULL), "an outlier");
    eq_mem(v, flat, sizeof flat, "is spread");
    eq_int(tu_rotate(v, 1, 28, false, 0, false, NULL), TU_EUSAGE, "28 columns");
}

static void test_algebra(void)
{
    double a[12] = {3, 1, 0, 1, 2, 1, 0, 1, 1, 2, 0, 1}, u[12], s[3], v[12], t[12];
    static const double sigma[3] = {4.1854510, 2.0825124, 1.0701134},
                        v1[3] = {.8562284, .4415397, .2681709};
    ok(!tu_svd(a, 4, 3, u, s, v, NULL), "singular values");
    for (unsigned i = 0; i < 3; i++)
        ok(fabs(s[i] - sigma[i]) < 1e-7 && fabs(v[i * 3] - v1[i]) < 1e-7, "%.7f, %.7f",
           s[i], v[i * 3]);
    double bad = 0;
    for (unsigned i = 0; i < 4; i++)
        for (unsigned j = 0; j < 3; j++) {
            double sum = 0;
            for (unsigned k = 0; k < 3; k++)
                sum += u[i * 3 + k] * s[k] * v[j * 3 + k];
            bad = fmax(bad, fabs(sum - a[i * 3 + j]));
            t[j * 4 + i] = a[i * 3 + j];
        }
    ok(bad < 1e-12, "the product is the matrix: %g", bad);
    ok(!tu_svd(t, 3, 4, u, s, v, NULL) && fabs(s[2] - sigma[2]) < 1e-7,
       "of the transpose");
    double h[9] = {2, 1, 0, 1, 2, 1, 0, 1, 2}, value[3];
    tu_eigen(h, 3, value, v);
    ok(fabs(value[0] - 2 - sqrt(2)) < 1e-12 && fabs(value[1] - 2) < 1e-12 && v[0] > 0,
       "eigenvalues");
}

int main(void)
{
    struct tu_calib calib;
    struct tu_err err;
    make_inputs();
    test_algebra();
    test_factor();
    ok(!tu_calib_init(&calib, K, true, &err) && !tu_calib_add(&calib, x, T, NULL, &err),
       "calibrates");
    test_gptq(&calib);
    test_pool(&calib);
    test_edges(&calib);
    test_sparsegpt(&calib);
    test_scales(&calib);
    make_inputs();
    test_rotation();
    tu_calib_release(&calib);
    return tap_done();
}
