/* SPDX-License-Identifier: Apache-2.0 */
/* The device's reductions give the bits of lib/coll's, NaN and signed zeros included. */
#include "../gpu.h"
#include "tensorutils/coll.h"

enum { N = 1000 };

int main(void)
{
    static const uint32_t dtype[] = {TU_F32, TU_F16, TU_BF16, TU_I32};
    static const uint32_t odd[] = {0x7fc00001, 0xffc00000, 0x80000000, 0, 0x7f800000,
                                   0xff800000, 1,          0x3f800000};
    if (!gpu_open())
        return tap_done();
    for (unsigned t = 0; t < 4; t++)
        for (unsigned op = TU_SUM; op <= TU_MAX; op++) {
            uint32_t x[N], y[N], want[N], got[N];
            struct tu_rng r = {t, op};
            size_t bytes = N * (t == 1 || t == 2 ? 2 : 4);
            for (unsigned i = 0; i < N; i++) {
                x[i] = tu_rng_u32(&r, i);
                y[i] = tu_rng_u32(&r, N + i);
                if (i % 5 == 0)
                    x[i] = odd[i / 5 % 8] >> (t == 1 || t == 2 ? 16 : 0);
                if (i % 7 == 0)
                    y[i] = odd[i / 7 % 8];
            }
            char name[24];
            snprintf(name, sizeof name, "reduce.%s", tu_op_names[op]);
            tu_reduce_find(dtype[t], (enum tu_op)op)(want, x, y, N);
            struct tu_kernel_reduce a = {gpu_put(NULL, bytes), gpu_put(x, bytes),
                                         gpu_put(y, bytes), N, dtype[t]};
            int rc = gpu->launch(name, &a, NULL, NULL);
            gpu_get(got, a.d, bytes);
            gpu_get(NULL, (void *)a.a, 0);
            gpu_get(NULL, (void *)a.b, 0);
            /* Sums that are NaN may have any payload. */
            unsigned bad = rc != 0;
            for (unsigned i = 0; i < N; i++) {
                float p, q;
                size_t e = bytes / N;
                if (!memcmp((char *)got + i * e, (char *)want + i * e, e))
                    continue;
                bad += dtype[t] == TU_I32 ||
                       tu_to_float(dtype[t], (char *)got + i * e, &p, 1, NULL) ||
                       tu_to_float(dtype[t], (char *)want + i * e, &q, 1, NULL) || p == p ||
                       q == q;
            }
            ok(!bad, "%s of %s", name, tu_dtype_find(dtype[t])->name);
        }
    struct tu_kernel_reduce a = {.n = 1, .dtype = TU_F64};
    eq_int(gpu->launch("reduce.sum", &a, NULL, NULL), TU_EUNSUP, "f64 is not there");
    return tap_done();
}
