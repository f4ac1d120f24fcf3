/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_k.c: the k-quants: super-blocks of 256 with quantized scales. The reference
 * encoders.
 *
 * Three steps: fit each sub-block, quantize the sub-blocks' scales (and minima), and pick
 * the codes again under the scales that are stored. */
#include "ggml_k.h"
#include "tensorutils/core/bytes.h"

static void put_f16(unsigned char *p, float v)
{
    tu_put16(p, tu_to_f16(v));
}

static float rounded(float v)
{
    return tu_from_f16(tu_to_f16(v));
}

static const float *weights_at(const struct tui_blocks *b, size_t i)
{
    return b->weight ? b->weight + i * TUI_SUPER : NULL;
}

/* Q2_K, Q4_K, Q5_K --- */

#define WEIGHTED_FIT(nmax)                                                               \
    {                                                                                    \
        nmax, -0.9f, 0.05f, 36, false                                                    \
    }

const struct tui_affine tui_affine_q2_k = {
    16, 3, 15, {3, -0.5f, 0.1f, 15, true}, WEIGHTED_FIT(3)};
const struct tui_affine tui_affine_q4_k = {
    32, 15, 63, {15, -1.0f, 0.1f, 20, false}, WEIGHTED_FIT(15)};
const struct tui_affine tui_affine_q5_k = {
    32, 31, 63, {31, -0.5f, 0.1f, 15, false}, WEIGHTED_FIT(31)};

float tui_affine_mean(const struct tui_affine *a, const float *x)
{
    float sum = tui_sum_sq(x, TUI_SUPER);
    return (a->sub == 16 ? sum : 2 * sum) / TUI_SUPER;
}

/* Weights of a sub-block without an importance matrix. */
static void own_weights(const struct tui_affine *a, const float *x, float *w)
{
    float mean = a->sub == 16 ? 0 : sqrtf(tui_sum_sq(x, a->sub) / (float)a->sub);
    for (unsigned i = 0; i < a->sub; i++)
        w[i] = a->sub == 16 ? fabsf(x[i]) : mean + fabsf(x[i]);
}

/* Scales to integers of 0 … most by the largest one; returns the unit. */
static float quantize_scales(const float *v, unsigned n, int most, unsigned char *l)
{
    float top = 0;
    for (unsigned j = 0; j < n; j++)
        top = v[j] > top ? v[j] : top;
    float inverse = top > 0 ? (float)most / top : 0;
    for (unsigned j = 0; j < n; j++) {
        int q = tui_nint(inverse * v[j]);
        l[j] = (unsigned char)(q > most ? most : q);
    }
    return top > 0 ? top / (float)most : 0;
}

void tui_affine_scales(const struct tui_affine *a, const float *scale, const float *min,
                       const float *weight, struct tui_super *s)
{
    unsigned subs = TUI_SUPER / a->sub;
    if (weight) {
        s->d = tui_fit_positive(subs, a->scale_max, scale, weight, s->ls);
        s->dmin = tui_fit_positive(subs, a->scale_max, min, weight, s->lm);
    } else {
        s->d = quantize_scales(scale, subs, a->scale_max, s->ls);
        s->dmin = quantize_scales(min, subs, a->scale_max, s->lm);
    }
    s->unit = rounded(s->d);
    s->unit_min = rounded(s->dmin);
}

static void encode_super(const struct tui_affine *a, const float *x, const float *weight,
                         struct tui_super *s)
{
    float scale[16], min[16], sum[16], w[32], mean = weight ? tui_affine_mean(a, x) : 0;
    unsigned subs = TUI_SUPER / a->sub;
    for (unsigned j = 0; j < subs; j++) {
        const float *xs = x + j * a->sub;
        if (!weight)
            own_weights(a, xs, w);
        for (unsigned i = 0; i < a->sub && weight; i++)
            w[i] = tui_weigh(weight[j * a->sub + i], mean, xs[i]);
        sum[j] = 0;
        for (unsigned i = 0; i < a->sub; i++)
            sum[j] += w[i];
        scale[j] = tui_fit_min(weight ? &a->weighted : &a->fit, a->sub, xs, w,
                               s->code + j * a->sub, &min[j]);
    }
    tui_affine_scales(a, scale, min, weight ? sum : NULL, s);
    for (unsigned i = 0; i < TUI_SUPER; i++) {
        float unit = s->unit * (float)s->ls[i / a->sub];
        float low = s->unit_min * (float)s->lm[i / a->sub];
        if (unit != 0) /* else the codes of the fit stay */
            s->code[i] =
                (unsigned char)tui_clamp(tui_nint((x[i] + low) / unit), 0, a->nmax);
    }
}

void tui_put_q2_k(unsigned char *out, const struct tui_super *s)
{
    for (unsigned j = 0; j < 16; j++)
        out[j] = (unsigned char)(s->ls[j] | s->lm[j] << 4);
    tui_pack_q2_k(out + 16, s->code);
    put_f16(out + 80, s->d);
    put_f16(out + 82, s->dmin);
}

void tui_put_q4_k(unsigned char *out, const struct tui_super *s)
{
    put_f16(out, s->d);
    put_f16(out + 2, s->dmin);
    tui_k4_pack(out + 4, s->ls, s->lm);
    tui_pack_q4_k(out + 16, s->code);
}

void tui_put_q5_k(unsigned char *out, const struct tui_super *s)
{
    put_f16(out, s->d);
    put_f16(out + 2, s->dmin);
    tui_k4_pack(out + 4, s->ls, s->lm);
    tui_pack_q5_k(out + 16, out + 48, s->code);
}

void tui_encode_q2_k(const struct tui_blocks *b)
{
    struct tui_super s;
    for (size_t i = 0; i < b->n; i++) {
        encode_super(&tui_affine_q2_k, b->x + i * TUI_SUPER, weights_at(b, i), &s);
        tui_put_q2_k(b->out + 84 * i, &s);
    }
}

void tui_encode_q4_k(const struct tui_blocks *b)
{
    struct tui_super s;
    for (size_t i = 0; i < b->n; i++) {
        encode_super(&tui_affine_q4_k, b->x + i * TUI_SUPER, weights_at(b, i), &s);
        tui_put_q4_k(b->out + 144 * i, &s);
    }
}

void tui_encode_q5_k(const struct tui_blocks *b)
{
    struct tui_super s;
    for (size_t i = 0; i < b->n; i++) {
        encode_super(&tui_affine_q5_k, b->x + i * TUI_SUPER, weights_at(b, i), &s);
        tui_put_q5_k(b->out + 176 * i, &s);
    }
}

/* Q3_K ------------------------------------------------------------------------------- */

/* Fit of 16 elements by coordinate descent: move single codes while the gain rises. */
static float descend16(const float *x, unsigned char *code)
{
    int l[16];
    float top = tui_extreme(x, 16), xl = 0, ll = 0;
    memset(code, 0, 16);
    if (fabsf(top) < TUI_TINY)
        return 0;
    float inverse = -4 / top;
    for (unsigned i = 0; i < 16; i++) {
        float w = x[i] * x[i];
        l[i] = tui_clamp(tui_nint(inverse * x[i]), -4, 3);
        xl += w * x[i] * (float)l[i];
        ll += w * (float)l[i] * (float)l[i];
    }
    bool changed = true;
    for (unsigned sweep = 0; sweep < 5 && changed; sweep++) {
        changed = false;
        for (unsigned i = 0; i < 16; i++) {
            float w = x[i] * x[i], a = xl - w * x[i] * (float)l[i];
            if (!(a > 0))
                continue;
            float b = ll - w * (float)l[i] * (float)l[i];
            int to = tui_clamp(tui_nint(x[i] * b / a), -4, 3);
            if (to == l[i])
                continue;
            a += w * x[i] * (float)to;
            b += w * (float)to * (float)to;
            if (b > 0 && a * a * ll > xl * xl * b) {
                l[i] = to;
                xl = a;
                ll = b;
                changed = true;
            }
        }
    }
    for (unsigned i = 0; i < 16; i++)
        code[i] = (unsigned char)(l[i] + 4);
    return ll > 0 ? xl / ll : 0;
}

/* Signed scales to 0 … 63 (32 is 0), the extreme to 0; returns the unit. All 0 without an
 * extreme: the unit is then 0. */
static float quantize_signed(const float *scale, unsigned char *l)
{
    float top = tui_extreme(scale, 16);
    memset(l, 0, 16);
    if (top == 0)
        return 0;
    float inverse = -32 / top;
    for (unsigned j = 0; j < 16; j++)
        l[j] = (unsigned char)(tui_clamp(tui_nint(inverse * scale[j]), -32, 31) + 32);
    return 1 / inverse;
}

float tui_q3_k_scales(const float *scale, const float *weight, unsigned char *l)
{
    return weight ? tui_fit_symmetric(16, 32, scale, weight, l)
                  : quantize_signed(scale, l);
}

/* The fit of each 16: scales, sums of weights, codes. */
static void fit_q3(const float *x, const float *weight, float *scale, float *sum,
                   unsigned char *code)
{
    float w[16], mean = weight ? 2 * tui_sum_sq(x, TUI_SUPER) / TUI_SUPER : 0;
    for (unsigned j = 0; j < 16; j++) {
        const float *xs = x + 16 * j;
        if (!weight) {
            scale[j] = descend16(xs, code + 16 * j);
            continue;
        }
        sum[j] = 0;
        for (unsigned i = 0; i < 16; i++) {
            w[i] = tui_weigh(weight[16 * j + i], mean, xs[i]);
            sum[j] += w[i];
        }
        scale[j] = tui_fit_symmetric(16, 4, xs, w, code + 16 * j);
    }
}

void tui_put_q3_k(unsigned char *out, float d, const unsigned char *l,
                  const unsigned char *code)
{
    tui_pack_q3_k(out, out + 32, code);
    tui_pack_q3_k_scales(out + 96, l);
    put_f16(out + 108, d);
}

void tui_encode_q3_k(const struct tui_blocks *b)
{
    unsigned char l[16], code[TUI_SUPER];
    float scale[16], sum[16];
    for (size_t i = 0; i < b->n; i++) {
        const float *x = b->x + i * TUI_SUPER, *w = weights_at(b, i);
        fit_q3(x, w, scale, sum, code);
        float d = tui_q3_k_scales(scale, w ? sum : NULL, l);
        for (unsigned k = 0; k < TUI_SUPER; k++) {
            float unit = rounded(d) * (float)(l[k / 16] - 32);
            if (unit != 0)
                code[k] = (unsigned char)(tui_clamp(tui_nint(x[k] / unit), -4, 3) + 4);
        }
        tui_put_q3_k(b->out + 110 * i, d, l, code);
    }
}

/* Q6_K --- */

float tui_q6_k_scales(const float *scale, signed char *l)
{
    float top = tui_extreme(scale, 16);
    if (fabsf(top) < TUI_TINY)
        return 0;
    float inverse = -128 / top;
    for (unsigned j = 0; j < 16; j++) {
        int q = tui_nint(inverse * scale[j]);
        l[j] = (signed char)(q > 127 ? 127 : q);
    }
    return 1 / inverse;
}

void tui_put_q6_k(unsigned char *out, float d, const signed char *l,
                  const unsigned char *code)
{
    tui_pack_q6_k(out, out + 128, code);
    memcpy(out + 192, l, 16);
    put_f16(out + 208, d);
}

void tui_encode_q6_k(const struct tui_blocks *b)
{
    unsigned char code[TUI_SUPER], *out = b->out;
    signed char l[16];
    for (size_t i = 0; i < b->n; i++, out += 210) {
        const float *x = b->x + i * TUI_SUPER, *w = weights_at(b, i);
        float scale[16];
        for (unsigned j = 0; j < 16; j++)
            scale[j] = tui_fit_symmetric(16, 32, x + 16 * j, w ? w + 16 * j : NULL,
                                         code + 16 * j);
        float d = tui_q6_k_scales(scale, l);
        if (d == 0) {
            memset(out, 0, 210);
            continue;
        }
        for (unsigned k = 0; k < TUI_SUPER; k++) {
            float unit = rounded(d) * (float)l[k / 16];
            if (unit != 0)
                code[k] = (unsigned char)(tui_clamp(tui_nint(x[k] / unit), -32, 31) + 32);
        }
        tui_put_q6_k(out, d, l, code);
    }
}

/* Bit layouts ------------------------------------------------------------------------ */

void tui_pack_q2_k(unsigned char *qs, const unsigned char *code)
{
    for (unsigned h = 0; h < 2; h++, code += 128)
        for (unsigned l = 0; l < 32; l++)
            qs[32 * h + l] = (unsigned char)(code[l] | code[l + 32] << 2 |
                                             code[l + 64] << 4 | code[l + 96] << 6);
}

void tui_pack_q3_k(unsigned char *hmask, unsigned char *qs, const unsigned char *code)
{
    unsigned char low[TUI_SUPER];
    memset(hmask, 0, 32);
    for (unsigned i = 0; i < TUI_SUPER; i++) {
        hmask[i % 32] |= (unsigned char)((code[i] >> 2) << i / 32);
        low[i] = code[i] & 3;
    }
    tui_pack_q2_k(qs, low);
}

void tui_pack_q3_k_scales(unsigned char *scales, const unsigned char *l)
{
    memset(scales, 0, 12);
    for (unsigned j = 0; j < 16; j++) {
        scales[j % 8] |= (unsigned char)((l[j] & 15) << (j < 8 ? 0 : 4));
        scales[8 + j % 4] |= (unsigned char)((l[j] >> 4) << 2 * (j / 4));
    }
}

void tui_pack_q4_k(unsigned char *qs, const unsigned char *code)
{
    for (unsigned g = 0; g < 4; g++, code += 64)
        for (unsigned l = 0; l < 32; l++)
            qs[32 * g + l] = (unsigned char)((code[l] & 15) | (code[l + 32] & 15) << 4);
}

void tui_pack_q5_k(unsigned char *qh, unsigned char *qs, const unsigned char *code)
{
    memset(qh, 0, 32);
    for (unsigned i = 0; i < TUI_SUPER; i++)
        qh[i % 32] |= (unsigned char)((code[i] >> 4) << i / 32);
    tui_pack_q4_k(qs, code);
}

void tui_pack_q6_k(unsigned char *ql, unsigned char *qh, const unsigned char *code)
{
    for (unsigned h = 0; h < 2; h++, code += 128) {
        for (unsigned l = 0; l < 32; l++) {
            const unsigned char c[4] = {code[l], code[l + 32], code[l + 64],
                                        code[l + 96]};
            ql[64 * h + l] = (unsigned char)((c[0] & 15) | (c[2] & 15) << 4);
            ql[64 * h + 32 + l] = (unsigned char)((c[1] & 15) | (c[3] & 15) << 4);
            qh[32 * h + l] = (unsigned char)(c[0] >> 4 | c[1] >> 4 << 2 | c[2] >> 4 << 4 |
                                             c[3] >> 4 << 6);
        }
    }
}
