/* SPDX-License-Identifier: Apache-2.0 */
/* ternary.c: -1, 0 and 1 under one scale: TernGrad's stochastic codes and the rounded
 * ones of 1.58-bit weights. Sources: wenwei202/terngrad bingrad_common.py; S. Ma et al.,
 * "The Era of 1-bit LLMs", 2024.
 *
 * Packings: four in a byte, five in a byte (as ggml's TQ1_0), or TernGrad's own, whose
 * byte holds codes a quarter of the tensor apart. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "tensorutils/device/kernels.h"

enum param { PACK, CLIP, SHARED }; /* CLIP, SHARED: a double's bits */
enum { PACK_2BIT, PACK_BASE3, PACK_REFERENCE };

static int double_key(struct tu_coding *c, const struct tu_spec *spec, const char *key,
                      enum param at, struct tu_err *err)
{
    const char *text = tu_spec_get(spec, key);
    double v = 0;
    int rc = text ? tu_parse_double(text, &v, err) : 0;
    if (rc || !(v >= 0) || isinf(v))
        return tu_fail(err, TU_EUSAGE, "codec '%s': %s '%s': a number from 0 on",
                       c->codec->name, key, text);
    memcpy(&c->param[at], &v, sizeof v);
    return 0;
}

static double get_double(const struct tu_coding *c, enum param at)
{
    double v;
    memcpy(&v, &c->param[at], sizeof v);
    return v;
}

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    static const char *const name[] = {"2bit", "base3", "reference"};
    const char *text = tu_spec_get(spec, "pack");
    unsigned pack = 0;
    while (text && pack < 3 && strcmp(text, name[pack]) != 0)
        pack++;
    if (pack == 3)
        return tu_fail(err, TU_EUSAGE, "codec '%s': pack '%s': 2bit, base3 or reference",
                       c->codec->name, text);
    int rc = double_key(c, spec, "clip", CLIP, err);
    if (!rc)
        rc = double_key(c, spec, "scaler", SHARED, err);
    if (rc)
        return rc;
    uint64_t quarter = c->elements / 4 + 1,
             bytes[] = {tu_ceil_div(c->elements, 4), tu_ceil_div(c->elements, 5),
                        c->elements ? quarter : 0};
    c->param[PACK] = pack;
    c->two_pass = true;
    c->atom = pack == PACK_2BIT ? 4 : pack == PACK_BASE3 ? 5 : tu_max(c->elements, 1);
    c->code = (struct tu_part){.dtype = TU_U8,
                               .rank = 1,
                               .dim = {bytes[pack]},
                               .atom_bytes = pack == PACK_REFERENCE ? bytes[pack] : 1};
    c->side[0] =
        (struct tu_part){.suffix = "scale", .dtype = TU_F32, .rank = 1, .dim = {1}};
    c->sides = 1;
    return 0;
}

/* The scaler: shared by the workers, or of this tensor. */
static int start_terngrad(const struct tu_coding *c, void *const *side,
                          struct tu_err *err)
{
    (void)err;
    double clip = get_double(c, CLIP), s = get_double(c, SHARED);
    if (!(s > 0))
        s = clip > 0 ? clip * tu_tally_deviation(&c->tally)
                     : fmax(fabs(c->tally.min), fabs(c->tally.max));
    float v = (float)s;
    memcpy(side[0], &v, sizeof v);
    return 0;
}

static int start_mean(const struct tu_coding *c, void *const *side, struct tu_err *err)
{
    (void)err;
    uint64_t n = tu_tally_finite(&c->tally);
    float v = n ? (float)(c->sum_abs / (double)n) : 0;
    memcpy(side[0], &v, sizeof v);
    return 0;
}

/* Code 0, 1, 2 of x. */
static unsigned trit(const struct tu_coding *c, float x, float s, uint64_t i)
{
    if (c->codec->format) { /* to the nearest */
        float v = x / (s + 1e-5f);
        return v > 0.5f ? 2 : v < -0.5f ? 0 : 1;
    }
    struct tu_rng rng = {c->seed, c->stream};
    float u = (float)(tu_rng_u32(&rng, i) >> 8) * 0x1p-24f,
          size = fabsf(x) < s ? fabsf(x) : s;
    return u * s < size ? (x < 0 ? 0 : 2) : 1;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)err;
    unsigned char *out = code;
    float s;
    memcpy(&s, side[0], sizeof s);
    if (c->param[PACK] == PACK_BASE3) {
        for (size_t i = 0; i < n; i += 5) {
            unsigned v = 0;
            for (size_t k = i; k < i + 5; k++)
                v = v * 3 + (k < n ? trit(c, x[k], s, first + k) : 1);
            *out++ = (unsigned char)((v * 256 + 242) / 243);
        }
        return 0;
    }
    size_t step = c->param[PACK] == PACK_2BIT ? 1 : (size_t)c->code.bytes;
    size_t bytes = c->param[PACK] == PACK_2BIT ? (n + 3) / 4 : step;
    for (size_t i = 0; i < bytes; i++) {
        unsigned v = 0;
        for (unsigned k = 0; k < 4; k++) {
            size_t at = step == 1 ? 4 * i + k : i + k * step;
            /* Behind the end: zeros, but the reference counts 0 1 2 3. */
            unsigned t = at < n                        ? trit(c, x[at], s, first + at)
                         : c->param[PACK] == PACK_2BIT ? 1
                                                       : (unsigned)(at - n);
            v |= t << 2 * k;
        }
        out[i] = (unsigned char)v;
    }
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    static const unsigned char power[5] = {1, 3, 9, 27, 81};
    const unsigned char *in = code;
    float s;
    memcpy(&s, side[0], sizeof s);
    for (size_t i = 0; i < n; i++) {
        unsigned t;
        if (c->param[PACK] == PACK_BASE3)
            t = (unsigned)((in[i / 5] * power[i % 5] & 255) * 3) >> 8;
        else if (c->param[PACK] == PACK_2BIT)
            t = in[i / 4] >> i % 4 * 2 & 3;
        else
            t = in[i % c->code.bytes] >> i / c->code.bytes * 2 & 3;
        if (t == 3)
            return tu_fail(err, TU_EFORMAT, "element %" PRIu64 ": code 3 is no trit",
                           first + i);
        x[i] = (float)((int)t - 1) * s;
    }
    return 0;
}

static bool kernel(const struct tu_coding *c, bool encode, const void *const *side,
                   struct tu_kernel_code *k)
{
    (void)encode;
    k->seed = c->seed;
    k->stream = c->stream;
    if (side)
        memcpy(&k->unit, side[0], sizeof k->unit);
    return c->param[PACK] == PACK_2BIT;
}

static const char *const terngrad_key[] = {"clip", "scaler", "pack", NULL};
static const char *const mean_key[] = {"pack", NULL};
static const bool nearest = true;

const struct tu_codec tui_codecs_ternary[] = {
    {.name = "terngrad",
     .help = "TernGrad: signs kept by chance, scaled by the largest or clip·std",
     .source = "wenwei202/terngrad: bingrad_common.py",
     .key = terngrad_key,
     .plan = plan,
     .encode = encode,
     .decode = decode,
     .start = start_terngrad,
     .kernel = kernel},
    {.name = "b158",
     .help = "1.58-bit weights: to the nearest of -s, 0 and s, s their mean size",
     .source = "arXiv 2402.17764",
     .key = mean_key,
     .format = &nearest,
     .plan = plan,
     .encode = encode,
     .decode = decode,
     .start = start_mean},
    {.name = NULL},
};
