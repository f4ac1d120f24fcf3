/* SPDX-License-Identifier: Apache-2.0 */
/* gen.c: distributions over counter-based random numbers. */
#include <string.h>
#include <tensorutils/stream.h>

static const struct {
    const char *name, *help;
} dists[] = {
    [TU_GEN_NORMAL] = {"normal", "normal with mean and std"},
    [TU_GEN_UNIFORM] = {"uniform", "uniform from lo up to hi"},
    [TU_GEN_ARANGE] = {"arange", "lo, lo + step, lo + 2 step, … in C order"},
    [TU_GEN_CONSTANT] = {"constant", "value everywhere"},
    [TU_GEN_OUTLIER] = {"outlier",
                        "normal, some channels of the last dimension times scale"},
};

const char *tu_gen_name(size_t i, const char **help)
{
    if (i >= sizeof dists / sizeof *dists)
        return NULL;
    *help = dists[i].help;
    return dists[i].name;
}

int tu_gen_find(enum tu_gen_dist *out, const char *name, struct tu_err *err)
{
    for (size_t i = 0; i < sizeof dists / sizeof *dists; i++)
        if (!strcmp(dists[i].name, name)) {
            *out = (enum tu_gen_dist)i;
            return 0;
        }
    return tu_fail(err, TU_EUSAGE, "unknown distribution '%.40s'", name);
}

void tu_gen_defaults(struct tu_gen *g)
{
    *g = (struct tu_gen){.std = 1, .hi = 1, .step = 1, .channels = 4, .scale = 20};
}

/* Outlier channels are evenly spread from a random first one. */
struct channels {
    uint64_t width, stride, phase, n;
};

static struct channels channels_of(const struct tu_gen *g, const struct tu_tensor *t)
{
    struct channels c = {.width = t->rank ? t->dim[t->rank - 1] : 1};
    const struct tu_rng rng = {g->seed,
                               tu_rng_stream(t->name) ^ tu_rng_stream("channels")};
    c.n = tu_min(g->channels, c.width);
    c.stride = c.n ? c.width / c.n : 1;
    c.phase = c.width ? tu_rng_u32(&rng, 0) % c.width : 0;
    return c;
}

static bool is_outlier(const struct channels *c, uint64_t i)
{
    const uint64_t at = (i % c->width + c->width - c->phase) % c->width;
    return at % c->stride == 0 && at / c->stride < c->n;
}

/* Random values: r becomes add + scale × r, in double and rounded once; in steps, so
 * that nothing is contracted. The parts of a complex number are counted one by one. */
static void fill_random(const struct tu_gen *g, const struct tu_tensor *t, uint64_t first,
                        float *r, size_t n)
{
    const struct tu_rng rng = {g->seed, tu_rng_stream(t->name)};
    const bool uniform = g->dist == TU_GEN_UNIFORM;
    const double add = uniform ? g->lo : g->mean,
                 scale = uniform ? g->hi - g->lo : g->std;
    if (uniform)
        tu_rng_uniform(&rng, first, r, n);
    else
        tu_rng_normal(&rng, first, r, n);
    if (add != 0 || scale != 1)
        for (size_t i = 0; i < n; i++)
            r[i] = (float)(add + scale * (double)r[i]);
    if (g->dist != TU_GEN_OUTLIER)
        return;
    const struct channels c = channels_of(g, t);
    for (size_t i = 0; i < n; i++)
        if (is_outlier(&c, first + i))
            r[i] = (float)(r[i] * g->scale);
}

static void fill_known(const struct tu_gen *g, uint64_t first, double *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] =
            g->dist == TU_GEN_CONSTANT ? g->value : g->lo + (double)(first + i) * g->step;
}

#define BLOCK 4096 /* values at a time */

/* n values to p. */
static int fill(const struct tu_gen *g, const struct tu_tensor *t, uint64_t first,
                float *r, double *v, size_t n, void *p, struct tu_err *err)
{
    const bool complex = t->dtype == TU_C64 || t->dtype == TU_C128;
    if (g->dist == TU_GEN_ARANGE || g->dist == TU_GEN_CONSTANT) {
        fill_known(g, first, v, n);
        return tu_from_double(t->dtype, p, v, complex ? n / 2 : n, err);
    }
    fill_random(g, t, first, r, n);
    if (tu_dtype_is_float(t->dtype) && tu_dtype_find(t->dtype)->block_bytes > 1 &&
        tu_dtype_is_plain(t->dtype))
        return tu_cast(t->dtype, p, TU_F32, r, n,
                       err); /* has vector rows; smaller ones saturate */
    for (size_t i = 0; i < n; i++)
        v[i] = r[i];
    return tu_from_double(t->dtype, p, v, complex ? n / 2 : n, err);
}

int tu_gen_fill(const struct tu_gen *g, const struct tu_tensor *t, uint64_t first,
                size_t n, void *out, struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    const unsigned parts = t->dtype == TU_C64 || t->dtype == TU_C128 ? 2 : 1;
    unsigned char *p = out;
    if (!d || d->code & TU_DTYPE_GGML)
        return tu_fail(err, TU_EDTYPE, "'%.80s': %s is made by quantize only", t->name,
                       d ? d->name : "an unknown dtype");
    double *v = tu_alloc(BLOCK, sizeof *v + sizeof(float), err);
    if (!v)
        return TU_ENOMEM;
    float *r = (float *)(v + BLOCK);
    int rc = 0;
    for (size_t done = 0; !rc && done < n;) {
        const size_t m = (size_t)tu_min(BLOCK / parts, n - done);
        rc = fill(g, t, (first + done) * parts, r, v, m * parts, p, err);
        p += m / d->block_elems *
             d->block_bytes; /* BLOCK is whole blocks; the last may not be */
        done += m;
    }
    tu_free(v);
    return rc;
}
