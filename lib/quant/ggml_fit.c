/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_fit.c: the searches for a scale that ggml's encoders share.
 *
 * All are weighted least squares over a few candidates: given codes l, the best scale of
 * x ≈ s·l is Σwxl / Σwl², and its gain (Σwxl)²/Σwl² tells which candidate wins. */
#include "ggml.h"

/* Σ w·x·l and Σ w·l·l of the codes that `inverse` gives. */
static void gain(unsigned n, int nmax, const float *x, const float *weight, float inverse,
                 float *xl, float *ll)
{
    *xl = *ll = 0;
    for (unsigned i = 0; i < n; i++) {
        int l = tui_clamp(tui_nint(inverse * x[i]), -nmax, nmax - 1);
        float w = weight ? weight[i] : x[i] * x[i];
        *xl += w * x[i] * (float)l;
        *ll += w * (float)l * (float)l;
    }
}

float tui_fit_symmetric(unsigned n, int nmax, const float *x, const float *weight,
                        unsigned char *code)
{
    float top = tui_extreme(x, n), xl, ll;
    memset(code, 0, n);
    if (fabsf(top) < TUI_TINY)
        return 0;
    float kept = -(float)nmax / top;
    gain(n, nmax, x, weight, kept, &xl, &ll);
    float scale = ll != 0 ? xl / ll : 0, best = scale * xl;
    for (int k = -9; k <= 9; k++) {
        if (k == 0)
            continue;
        float inverse = -((float)nmax + 0.1f * (float)k) / top;
        gain(n, nmax, x, weight, inverse, &xl, &ll);
        if (ll > 0 && xl * xl > best * ll) {
            kept = inverse;
            scale = xl / ll;
            best = scale * xl;
        }
    }
    for (unsigned i = 0; i < n; i++)
        code[i] =
            (unsigned char)(nmax + tui_clamp(tui_nint(kept * x[i]), -nmax, nmax - 1));
    return scale;
}

struct fit {
    float scale, min, error;
};

static float error_of(const struct tui_fit_min *rule, unsigned n, const float *x,
                      const float *weight, const unsigned char *code, float scale,
                      float min)
{
    float error = 0;
    for (unsigned i = 0; i < n; i++) {
        float d = scale * (float)code[i] + min - x[i];
        d = rule->absolute ? fabsf(d) : d * d;
        error += weight[i] * d;
    }
    return error;
}

static void codes_of(unsigned n, int nmax, const float *x, float inverse, float min,
                     unsigned char *code)
{
    for (unsigned i = 0; i < n; i++)
        code[i] = (unsigned char)tui_clamp(tui_nint(inverse * (x[i] - min)), 0, nmax);
}

/* Least squares for scale and minimum under the codes; false where they do not determine
 * both. */
static bool solve(unsigned n, const float *x, const float *weight,
                  const unsigned char *code, float sum_w, float sum_x, struct fit *f)
{
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (unsigned i = 0; i < n; i++) {
        float l = (float)code[i], w = weight[i];
        sum_l += w * l;
        sum_l2 += w * l * l;
        sum_xl += w * l * x[i];
    }
    float det = sum_w * sum_l2 - sum_l * sum_l;
    if (!(det > 0))
        return false;
    f->scale = (sum_w * sum_xl - sum_x * sum_l) / det;
    f->min = (sum_l2 * sum_x - sum_l * sum_xl) / det;
    if (f->min > 0) {
        f->min = 0;
        f->scale = sum_xl / sum_l2;
    }
    return true;
}

float tui_fit_min(const struct tui_fit_min *rule, unsigned n, const float *x,
                  const float *weight, unsigned char *code, float *min)
{
    float lo = x[0], hi = x[0], sum_w = weight[0], sum_x = weight[0] * x[0];
    for (unsigned i = 1; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        sum_w += weight[i];
        sum_x += weight[i] * x[i];
    }
    if (lo > 0)
        lo = 0;
    if (hi <= lo) {
        memset(code, 0, n);
        *min = -lo;
        return 0;
    }
    float inverse = (float)rule->nmax / (hi - lo);
    struct fit best = {1 / inverse, lo, 0}, f;
    codes_of(n, rule->nmax, x, inverse, lo, code);
    best.error = error_of(rule, n, x, weight, code, best.scale, best.min);
    for (int k = 0; k <= rule->steps; k++) {
        unsigned char trial[32];
        inverse =
            (rule->rmin + rule->rdelta * (float)k + (float)rule->nmax) / (hi - best.min);
        codes_of(n, rule->nmax, x, inverse, best.min, trial);
        if (!solve(n, x, weight, trial, sum_w, sum_x, &f))
            continue;
        f.error = error_of(rule, n, x, weight, trial, f.scale, f.min);
        if (f.error < best.error) {
            best = f;
            memcpy(code, trial, n);
        }
    }
    *min = -best.min;
    return best.scale;
}

/* Error of codes nint(inverse·v), limited to nmax but in the first try. */
static float positive_error(unsigned n, int nmax, const float *v, const float *weight,
                            float inverse)
{
    float scale = 1 / inverse, error = 0;
    for (unsigned i = 0; i < n; i++) {
        int l = tui_nint(inverse * v[i]);
        float d = v[i] - scale * (float)(l > nmax ? nmax : l);
        error += weight[i] * d * d;
    }
    return error;
}

/* Move single codes while that raises the gain. */
static float descend(unsigned n, int nmax, const float *v, const float *weight,
                     unsigned char *code)
{
    float vl = 0, ll = 0;
    for (unsigned i = 0; i < n; i++) {
        vl += weight[i] * v[i] * (float)code[i];
        ll += weight[i] * (float)code[i] * (float)code[i];
    }
    for (unsigned sweep = 0; sweep < 5; sweep++) {
        bool changed = false;
        for (unsigned i = 0; i < n; i++) {
            float w = weight[i], l = (float)code[i];
            float a = vl - w * v[i] * l, b = ll - w * l * l;
            if (!(a > 0 && b > 0))
                continue;
            int to = tui_nint(v[i] * b / a);
            to = to > nmax ? nmax : to;
            if (to == code[i])
                continue;
            a += w * v[i] * (float)to;
            b += w * (float)to * (float)to;
            if (a * a * ll > vl * vl * b) {
                code[i] = (unsigned char)to;
                vl = a;
                ll = b;
                changed = true;
            }
        }
        if (!changed)
            break;
    }
    return ll > 0 ? vl / ll : 0;
}

float tui_fit_positive(unsigned n, int nmax, const float *v, const float *weight,
                       unsigned char *code)
{
    float top = 0;
    for (unsigned i = 0; i < n; i++)
        top = v[i] > top ? v[i] : top;
    memset(code, 0, n);
    if (top < TUI_TINY)
        return 0;
    float kept = (float)nmax / top, best = positive_error(n, nmax, v, weight, kept);
    for (int k = -4; k <= 4; k++) {
        if (k == 0)
            continue;
        float inverse = (0.1f * (float)k + (float)nmax) / top;
        float error = positive_error(n, nmax, v, weight, inverse);
        if (error < best) {
            best = error;
            kept = inverse;
        }
    }
    for (unsigned i = 0; i < n; i++) {
        int l = tui_nint(kept * v[i]);
        code[i] = (unsigned char)(l > nmax ? nmax : l);
    }
    return descend(n, nmax, v, weight, code);
}
