/* SPDX-License-Identifier: Apache-2.0 */
/* feedback.c: codecs that remember: error feedback over any codec, and changes of
 * activations. */
#include <string.h>
#include "tensorutils/quant.h"
#include "tensorutils/quant/gradient.h"

/* Code v, and what receivers will read. */
static int round_trip(struct tu_coding *c, const float *v, void *code, void *const *side,
                      float *back, struct tu_pool *pool, struct tu_err *err)
{
    int rc = tu_coding_encode_mem(c, v, code, side, pool, err);
    return rc ? rc
              : tu_coding_decode_mem(c, code, (const void *const *)side, back, pool, err);
}

int tu_feedback_step(struct tu_coding *c, const float *g, float *error, void *code,
                     void *const *side, float *sent, struct tu_pool *pool,
                     struct tu_err *err)
{
    size_t n = (size_t)c->elements;
    float *back = tu_alloc(n, sizeof *back, err);
    float *p = back ? tu_alloc(n, sizeof *p, err) : NULL;
    int rc = p ? 0 : TU_ENOMEM;
    for (size_t i = 0; !rc && i < n; i++)
        p[i] = g[i] + error[i];
    if (!rc)
        rc = round_trip(c, p, code, side, back, pool, err);
    for (size_t i = 0; !rc && i < n; i++)
        error[i] = p[i] - back[i];
    if (!rc && sent)
        memcpy(sent, back, n * sizeof *back);
    tu_free(p);
    tu_free(back);
    return rc;
}

int tu_change_send(struct tu_coding *c, const float *a, float *m, void *code,
                   void *const *side, struct tu_pool *pool, struct tu_err *err)
{
    size_t n = (size_t)c->elements;
    float *d = tu_alloc(n, sizeof *d, err);
    if (!d)
        return TU_ENOMEM;
    for (size_t i = 0; i < n; i++)
        d[i] = a[i] - m[i];
    int rc = tu_coding_encode_mem(c, d, code, side, pool, err);
    if (!rc)
        rc = tu_change_receive(c, code, (const void *const *)side, m, pool, err);
    tu_free(d);
    return rc;
}

int tu_change_receive(const struct tu_coding *c, const void *code,
                      const void *const *side, float *m, struct tu_pool *pool,
                      struct tu_err *err)
{
    size_t n = (size_t)c->elements;
    float *d = tu_alloc(n, sizeof *d, err);
    if (!d)
        return TU_ENOMEM;
    int rc = tu_coding_decode_mem(c, code, side, d, pool, err);
    for (size_t i = 0; !rc && i < n; i++)
        m[i] += d[i];
    tu_free(d);
    return rc;
}
