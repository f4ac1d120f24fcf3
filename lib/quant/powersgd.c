/* SPDX-License-Identifier: Apache-2.0 */
/* powersgd.c: low-rank factors of gradients, by one step of the power method. Source: T.
 * Vogels et al., "PowerSGD", 2019. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "tensorutils/quant/gradient.h"

void tu_powersgd_start(uint64_t seed, uint64_t stream, uint64_t cols, unsigned rank,
                       float *q)
{
    const struct tu_rng rng = {seed, stream};
    tu_rng_normal(&rng, 0, q, (size_t)(cols * rank));
}

void tu_powersgd_p(const float *m, const float *q, uint64_t rows, uint64_t cols,
                   unsigned rank, float *p)
{
    for (uint64_t i = 0; i < rows; i++)
        for (unsigned r = 0; r < rank; r++) {
            double sum = 0;
            for (uint64_t j = 0; j < cols; j++)
                sum += (double)m[i * cols + j] * q[j * rank + r];
            p[i * rank + r] = (float)sum;
        }
}

/* Gram-Schmidt, twice over; a column that depends on those before becomes zero. */
static void orthonormalise(float *p, uint64_t rows, unsigned rank)
{
    for (unsigned r = 0; r < rank; r++) {
        double before = 0, after = 0;
        for (uint64_t i = 0; i < rows; i++)
            before += (double)p[i * rank + r] * p[i * rank + r];
        for (unsigned k = 0; k < 2 * r; k++) {
            double dot = 0;
            for (uint64_t i = 0; i < rows; i++)
                dot += (double)p[i * rank + r] * p[i * rank + k % r];
            for (uint64_t i = 0; i < rows; i++)
                p[i * rank + r] -= (float)(dot * p[i * rank + k % r]);
        }
        for (uint64_t i = 0; i < rows; i++)
            after += (double)p[i * rank + r] * p[i * rank + r];
        double unit = after > 1e-12 * before && after > 0 ? 1 / sqrt(after) : 0;
        for (uint64_t i = 0; i < rows; i++)
            p[i * rank + r] = (float)(p[i * rank + r] * unit);
    }
}

void tu_powersgd_q(const float *m, float *p, uint64_t rows, uint64_t cols, unsigned rank,
                   float *q)
{
    orthonormalise(p, rows, rank);
    for (uint64_t j = 0; j < cols; j++)
        for (unsigned r = 0; r < rank; r++) {
            double sum = 0;
            for (uint64_t i = 0; i < rows; i++)
                sum += (double)m[i * cols + j] * p[i * rank + r];
            q[j * rank + r] = (float)sum;
        }
}

void tu_powersgd_decode(const float *p, const float *q, uint64_t rows, uint64_t cols,
                        unsigned rank, float *m)
{
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < cols; j++) {
            double sum = 0;
            for (unsigned r = 0; r < rank; r++)
                sum += (double)p[i * rank + r] * q[j * rank + r];
            m[i * cols + j] = (float)sum;
        }
}

/* The codec: one worker's step, from the Q of the step before where it is known ------------ */

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t rank;
    int rc = tu_spec_u64(spec, "rank", 4, &rank, err);
    if (rc)
        return rc;
    if (c->rank < 2 || !rank || rank > tu_min(c->rows, c->cols))
        return tu_fail(err, TU_EUSAGE,
                       "codec 'powersgd': rank %" PRIu64 ": 1 to the lesser side of %" PRIu64
                       " by %" PRIu64 "; vectors stay as they are",
                       rank, c->rows, c->cols);
    c->param[0] = (int64_t)rank;
    c->atom = tu_max(c->elements, 1);
    c->code = (struct tu_part){.dtype = TU_F32,
                               .rank = 2,
                               .dim = {c->rows, rank},
                               .atom_bytes = c->rows * rank * 4};
    c->side[0] = (struct tu_part){
        .suffix = "q", .dtype = TU_F32, .rank = 2, .dim = {c->cols, rank}};
    c->sides = 1;
    return 0;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    const unsigned rank = (unsigned)c->param[0];
    float *q = side[0];
    (void)first;
    (void)n;
    (void)err;
    if (c->warm)
        memcpy(q, c->warm, (size_t)(c->cols * rank) * sizeof *q);
    else
        tu_powersgd_start(c->seed, c->stream, c->cols, rank, q);
    tu_powersgd_p(x, q, c->rows, c->cols, rank, code);
    tu_powersgd_q(x, code, c->rows, c->cols, rank, q);
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)n;
    (void)err;
    tu_powersgd_decode(code, side[0], c->rows, c->cols, (unsigned)c->param[0], x);
    return 0;
}

static const char *const key[] = {"rank", NULL};

const struct tu_codec tui_codecs_powersgd[] = {
    {.name = "powersgd",
     .help = "PowerSGD: two thin factors by a step of the power method, for feedback",
     .source = "T. Vogels et al., \"PowerSGD\", 2019",
     .key = key,
     .plan = plan,
     .encode = encode,
     .decode = decode},
    {.name = NULL},
};
