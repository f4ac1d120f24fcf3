/* SPDX-License-Identifier: Apache-2.0 */
/* tile_plain.c: the f32 tile kernels for any machine, by the compiler's own vectors. */
#include <math.h>
#include <string.h>
#include "attn/tile.h"

typedef float vec __attribute__((vector_size(16)));
#define W 4
#define MR 4
#define v_add(a, b) ((a) + (b))
#define v_sub(a, b) ((a) - (b))
#define v_mul(a, b) ((a) * (b))
#define v_fma(a, b, c) ((a) * (b) + (c))

static inline vec v_load(const float *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void v_store(float *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

static inline vec v_set(float x)
{
    return (vec){x, x, x, x};
}

static inline vec v_max(vec a, vec b)
{
    for (unsigned i = 0; i < W; i++)
        a[i] = a[i] > b[i] ? a[i] : b[i];
    return a;
}

static inline float v_sum(vec v)
{
    return (v[0] + v[2]) + (v[1] + v[3]);
}

static inline float v_top(vec v)
{
    float x = v[0];
    for (unsigned i = 1; i < W; i++)
        x = v[i] > x ? v[i] : x;
    return x;
}

static inline vec v_exp2(vec x)
{
    for (unsigned i = 0; i < W; i++)
        x[i] = exp2f(x[i]);
    return x;
}
#include "attn/tile_body.h"

const struct tui_ops tui_ops_plain = TILE_OPS("plain", 32, 64);
