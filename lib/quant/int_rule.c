/* SPDX-License-Identifier: Apache-2.0 */
/* int_rule.c: how a scale and integer codes are made from floats. Every peer rounds in
 * its own way, so the rules share no rounding; float32, one rounding per operation.
 *
 * Not for what bits the codes are stored in: int_pack.c. */
#include <math.h>
#include <stdlib.h>
#include "affine.h"
#include "int.h"

/* Half to even for |v| < 2^22. */
static inline float nearest(float v)
{
    return v + 12582912.0f - 12582912.0f;
}

/* NaN gives lo. */
static inline float clamp(float v, float lo, float hi)
{
    v = v > lo ? v : lo;
    return v < hi ? v : hi;
}

static float top(unsigned bits)
{
    return (float)((1u << bits) - 1);
}

static float half(unsigned bits)
{
    return (float)(1u << (bits - 1));
}

/* compressed-tensors: codes are signed, the zero is added before rounding. Source:
 * compressed_tensors/quantization/utils/helpers.py. */
static struct tui_affine fit_ct(unsigned bits, bool asym, float lo, float hi)
{
    struct tui_affine a;
    float amax = -lo > hi ? -lo : hi, least = -half(bits);
    a.scale = asym ? (hi - lo) / top(bits) : amax / (top(bits) / 2);
    if (a.scale == 0)
        a.scale = 0x1p-23f;
    a.zero = 0;
    if (asym)
        a.zero = nearest(clamp(least - lo / a.scale, least, half(bits) - 1));
    a.zero += half(bits);
    return a;
}

static void map_ct(unsigned bits, struct tui_affine a, struct tui_affine_map *m)
{
    *m = (struct tui_affine_map){a.scale,     false,          a.zero - half(bits),
                                 -half(bits), half(bits) - 1, half(bits),
                                 top(bits)};
}

/* Symmetric without the lowest code: bitsandbytes' rows of int8, multiplied by the
 * inverse. */
static struct tui_affine fit_narrow(unsigned bits, bool asym, float lo, float hi)
{
    (void)asym;
    float amax = -lo > hi ? -lo : hi;
    return (struct tui_affine){amax / (half(bits) - 1), half(bits)};
}

static void map_narrow(unsigned bits, struct tui_affine a, struct tui_affine_map *m)
{
    float most = half(bits) - 1, amax = a.scale * most;
    *m = (struct tui_affine_map){
        amax > 0 ? most / amax : 0, true, 0, -most, most, half(bits), top(bits)};
}

/* GPTQ: rounds before the zero is added. Source: IST-DASLab/gptq quant.py. */
static struct tui_affine fit_gptq(unsigned bits, bool asym, float lo, float hi)
{
    struct tui_affine a;
    if (!asym) {
        hi = -lo > hi ? -lo : hi;
        lo = lo < 0 ? -hi : lo;
    }
    if (lo == 0 && hi == 0) {
        lo = -1;
        hi = 1;
    }
    a.scale = (hi - lo) / top(bits);
    a.zero =
        asym ? clamp(nearest(clamp(-lo / a.scale, 0, 512)), 0, top(bits)) : half(bits);
    return a;
}

static void map_gptq(unsigned bits, struct tui_affine a, struct tui_affine_map *m)
{
    float wide = 2 * top(bits) + 2;
    *m = (struct tui_affine_map){a.scale, false, 0, -wide, wide, a.zero, top(bits)};
}

/* AWQ. Source: mit-han-lab/llm-awq awq/quantize/quantizer.py. */
static struct tui_affine fit_awq(unsigned bits, bool asym, float lo, float hi)
{
    (void)asym;
    struct tui_affine a;
    a.scale = (hi - lo > 1e-5f ? hi - lo : 1e-5f) / top(bits);
    a.zero = clamp(-nearest(clamp(lo / a.scale, -512, 512)), 0, top(bits));
    return a;
}

const struct tui_int_rule tui_int_rules[] = {
    [TUI_RULE_CT] = {"ct", fit_ct, map_ct, 20, 5},
    [TUI_RULE_NARROW] = {"narrow", fit_narrow, map_narrow, 80, 0},
    [TUI_RULE_GPTQ] = {"gptq", fit_gptq, map_gptq, 80, 0},
    [TUI_RULE_AWQ] = {"awq", fit_awq, map_gptq, 80, 0},
};

/* compressed-tensors makes codes with the scale as it is stored, the others with the one
 * that was found. */
static float stored(const struct tu_coding *c, float scale)
{
    if (c->param[TUI_INT_RULE] != TUI_RULE_CT || c->param[TUI_INT_SCALE] == TU_F32)
        return scale;
    if (c->param[TUI_INT_SCALE] == TU_BF16)
        return tu_from_bf16(tu_to_bf16(scale));
    scale = tu_from_f16(tu_to_f16(scale));
    return scale == 0 ? 0x1p-10f : scale;
}

void tui_int_code(uint32_t cpu, const struct tui_int_rule *rule, unsigned bits,
                  struct tui_affine a, const float *x, const float *u, size_t n,
                  uint8_t *out)
{
    struct tui_affine_map m;
    rule->map(bits, a, &m);
    if (!u) {
        tui_affine_code(cpu, &m, x, n, n, out);
        return;
    }
    for (size_t i = 0; i < n; i++) { /* down or up by chance */
        float v =
            clamp((m.multiply ? x[i] * m.unit : x[i] / m.unit) + m.before, m.lo, m.hi);
        out[i] = (uint8_t)(int)clamp(floorf(v + u[i]) + m.after, 0, m.top);
    }
}

struct tui_affine tui_int_fit(const struct tu_coding *c, float lo, float hi)
{
    unsigned bits = (unsigned)c->param[TUI_INT_BITS];
    /* The peer's symmetric range of values that are all positive ends at half of them. */
    if (c->param[TUI_INT_RULE] == TUI_RULE_GPTQ && !c->param[TUI_INT_ASYM] && !c->compat)
        lo = -lo > hi ? lo : -hi;
    struct tui_affine a =
        tui_int_rules[c->param[TUI_INT_RULE]].fit(bits, c->param[TUI_INT_ASYM], lo, hi);
    a.scale = stored(c, a.scale);
    /* The first version of GPTQ's files stores the zero minus 1, which cannot be -1. */
    const struct tui_int_format *f = c->codec->format;
    if (f->pack == &tui_pack_gptq && !c->param[TUI_INT_V2] && a.zero < 1)
        a.zero = 1;
    return a;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The p-quantile of |x|, between the two samples about it. */
static float percentile(const struct tui_int_group *g, double p)
{
    for (size_t i = 0; i < g->n; i++)
        g->scratch[i] = fabsf(g->x[i]);
    qsort(g->scratch, g->n, sizeof *g->scratch, by_value);
    double at = p / 100 * (double)(g->n - 1);
    size_t k = (size_t)at;
    if (k + 1 >= g->n)
        return g->scratch[g->n - 1];
    double part = at - (double)k;
    return (float)(g->scratch[k] + part * ((double)g->scratch[k + 1] - g->scratch[k]));
}

static double code_error(uint32_t cpu, const struct tui_int_rule *rule, unsigned bits,
                         struct tui_affine a, const struct tui_int_group *g)
{
    double sum = 0;
    tui_int_code(cpu, rule, bits, a, g->x, NULL, g->n, g->code);
    for (size_t i = 0; i < g->n; i++)
        sum += pow(fabs((double)((float)g->code[i] - a.zero) * (double)a.scale - g->x[i]),
                   2.4);
    return sum;
}

/* The shrunk range with the least error of codes, the first of equals. */
static struct tui_affine search(const struct tu_coding *c, const struct tui_int_group *g,
                                float lo, float hi)
{
    const struct tui_int_rule *rule = &tui_int_rules[c->param[TUI_INT_RULE]];
    unsigned bits = (unsigned)c->param[TUI_INT_BITS], idle = 0;
    struct tui_affine best = tui_int_fit(c, lo, hi);
    double least = INFINITY;
    for (unsigned i = 0; i < rule->steps; i++) {
        float p = 1 - (float)i / 100;
        struct tui_affine a = tui_int_fit(c, p * lo, p * hi);
        double e = code_error(c->cpu, rule, bits, a, g);
        if (e < least) {
            least = e;
            best = a;
            idle = 0;
        } else if (rule->patience && ++idle >= rule->patience) {
            break;
        }
    }
    return best;
}

struct tui_affine tui_int_fit_group(const struct tu_coding *c,
                                    const struct tui_int_group *g)
{
    float lo = g->lo, hi = g->hi;
    int64_t clip = c->param[TUI_INT_CLIP];
    if (clip > 1 && g->n) {
        float most = percentile(g, (double)clip / 1000);
        lo = lo < -most ? -most : lo;
        hi = hi > most ? most : hi;
    }
    return clip == 1 ? search(c, g, lo, hi) : tui_int_fit(c, lo, hi);
}
