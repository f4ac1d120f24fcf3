/* SPDX-License-Identifier: Apache-2.0 */
/* Truncated SVD, CP decomposition, LeanVec: worked examples computed independently. */
#include "inputs.h"
#include "kit.h"
#include "tensorutils/quant/lowrank.h"

static float big[R_COUNT], back[R_COUNT];

static void test_svd(void)
{
    static const float w[12] = {3, 1, 0, 1, 2, 1, 0, 1, 1, 2, 0, 1};
    static const double row[3] = {2.5774400, 1.3291339, .8072546};
    float u[4], v[3];
    double lost = 0;
    uint64_t rank;
    struct tu_err err;
    ok(!tu_svd_split(w, 4, 3, 1, u, v, &lost, &err), "rank 1");
    ok(fabs(sqrt(lost) - 2.3413672) < 1e-6, "error %.7f", sqrt(lost));
    for (unsigned j = 0; j < 3; j++)
        ok(fabs((double)u[0] * (double)v[j] - row[j]) < 1e-6, "element %u", j);
    ok(!tu_svd_rank(w, 4, 3, .95, &rank, &err) && rank == 2, "95%% of 23 is in rank 2");
    ok(!tu_svd_rank(w, 4, 3, 1, &rank, &err) && rank == 3, "all of it in rank 3");
    ok(!tu_svd_rank(w, 4, 3, .7, &rank, &err) && rank == 1, "70%% in rank 1");
    eq_int(tu_svd_split(w, 4, 3, 4, u, v, NULL, &err), TU_EUSAGE, "rank 4: %s", err.msg);
    struct kit k = {0};
    input_r(1, big);
    if (kit_start(&k, "svd:rank=8", 32, 48, big) && kit_decode(&k, back) == 0) {
        double e = 0;
        float *a = tu_alloc(32 * 8, 4, NULL), *b = tu_alloc(8 * 48, 4, NULL);
        for (unsigned i = 0; i < 32 * 48; i++)
            e += pow((double)big[i] - (double)back[i], 2);
        ok(!tu_svd_split(big, 32, 48, 8, a, b, &lost, &err) &&
               fabs(e - lost) < 1e-4 * lost,
           "the squares of what is left out: %g, %g", e, lost);
        tu_free(a);
        tu_free(b);
    }
    kit_free(&k);
    eq_int(kit_plan(&k, "svd:rank=20", 32, 48), TU_EUSAGE,
           "factors that save nothing: %s", k.why);
    eq_int(kit_plan(&k, "svd", 32, 48), TU_EUSAGE, "no rank: %s", k.why);
}

static void test_cp(void)
{
    static const float x[12] = {1, 2, 0, 1, 2, 3, 1, 1, 0, 1, 1, 0};
    double a[6], b[4], c[4], weight[2];
    struct tu_err err;
    static const struct {
        unsigned sweeps;
        double error;
    } ones[] = {{1, 1.5171704}, {2, 1.4698501}, {100, 1.4698439}},
      given[] = {{1, 1.2532701}, {2, 1.2017696}, {10, 1.1827478}, {50, .2336362}};
    for (unsigned i = 0; i < 3; i++) {
        struct tu_cp cp = {.order = 3,
                           .dim = {3, 2, 2},
                           .rank = 1,
                           .factor = {a, b, c},
                           .sweeps = ones[i].sweeps,
                           .tolerance = 1e-12};
        ok(!tu_cp_fit(&cp, x, TU_CP_ONES, &err) && fabs(cp.error - ones[i].error) < 1e-7,
           "rank 1, %u sweeps: %.7f", ones[i].sweeps, cp.error);
    }
    for (unsigned i = 0; i < 4; i++) {
        static const double a0[6] = {1, .5, .5, 1, 1, 1}, b0[4] = {1, .5, .5, 1},
                            c0[4] = {1, .25, .25, 1};
        memcpy(a, a0, sizeof a);
        memcpy(b, b0, sizeof b);
        memcpy(c, c0, sizeof c);
        struct tu_cp cp = {.order = 3,
                           .dim = {3, 2, 2},
                           .rank = 2,
                           .factor = {a, b, c},
                           .sweeps = given[i].sweeps,
                           .tolerance = 1e-300};
        ok(!tu_cp_fit(&cp, x, TU_CP_GIVEN, &err) &&
               fabs(cp.error - given[i].error) < 2e-6,
           "rank 2, %u sweeps: %.7f", given[i].sweeps, cp.error);
        tu_cp_normalise(&cp, weight);
        ok(weight[0] >= weight[1], "weights %g %g", weight[0], weight[1]);
    }
    /* A tensor of order 4 that is of rank 2 comes back. */
    struct kit k = {0};
    for (unsigned i = 0; i < 120; i++) {
        unsigned p = i / 30, q = i / 10 % 3, r = i / 2 % 5, s = i % 2;
        big[i] = (float)((p + 1.0) * (q + 2) * (r + 1) * (s + 1) -
                         3.0 * (p % 2 ? 1 : -1) * (q == 1) * (r + .5) * (s ? -1 : 1));
    }
    if (!kit_plan_dims(&k, "cp:rank=2", (uint64_t[]){4, 3, 5, 2}, 4) &&
        !kit_encode(&k, big) && ok(!kit_decode(&k, back), "order 4: codes %s", k.why)) {
        double worst = 0;
        for (unsigned i = 0; i < 120; i++)
            worst = fmax(worst, fabs((double)big[i] - (double)back[i]));
        ok(worst < 0.1, "order 4, rank 2: off by %g", worst);
    }
    kit_free(&k);
    eq_int(kit_plan(&k, "cp:rank=1", 3, 4), TU_EUSAGE, "a matrix: %s", k.why);
}

static void test_leanvec(void)
{
    static const float x[20] = {1,    2, 0, .5f, .5f, 1, 1, 0, -1,   .5f,
                                .25f, 1, 2, -1,  .5f, 0, 0, 1, -.5f, .25f};
    static const float q[12] = {.5f, 0, 1, 0, 0, .25f, 1, -1, 1, 0, .5f, .5f};
    double a[8] = {0}, b[8], loss = 0;
    unsigned steps = 0;
    struct tu_err err;
    int rc = tu_leanvec_loss(q, 3, x, 5, 4, 2, a, a, &loss, &err);
    ok(!rc && fabs(loss - 14.421875) < 1e-9, "nothing kept: %.7f", loss);
    rc = tu_leanvec_id(x, 5, 4, 2, b, &err);
    rc = rc ? rc : tu_leanvec_loss(q, 3, x, 5, 4, 2, b, b, &loss, &err);
    ok(!rc && fabs(loss - 2.8990648) < 1e-7, "in distribution: %.7f", loss);
    ok(!tu_leanvec_ood(q, 3, x, 5, 4, 2, a, b, &loss, &steps, &err), "for these queries");
    ok(fabs(loss - .1369091) < 1e-6 && steps == 115, "%.7f after %u steps", loss, steps);
    double again = 0;
    ok(!tu_leanvec_loss(q, 3, x, 5, 4, 2, a, b, &again, &err) &&
           fabs(again - loss) < 1e-12,
       "that is it");
    ok(loss >= .1029211, "no better than any projection can be");
    eq_int(tu_leanvec_id(x, 5, 4, 5, b, &err), TU_EUSAGE, "5 of 4 dimensions");
}

int main(void)
{
    test_svd();
    test_cp();
    test_leanvec();
    return tap_done();
}
