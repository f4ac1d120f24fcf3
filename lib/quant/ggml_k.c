/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_k.c: the k-quants: super-blocks of 256 with quantized scales. The reference
 * encoders.
 *
 * Three steps: fit each sub-block, quantize the sub-blocks' scales (and minima), and pick
 * the codes again under the scales that are stored. */
#include "ggml.h"
#include "tensorutils/core/bytes.h"

enum { MOST = 16 }; /* sub-blocks */

/* Q2_K, Q4_K and Q5_K: value = d·ls·code - dmin·lm. */
struct affine {
    unsigned sub; /* elements of a sub-block */
    int nmax, scale_max;
    struct tui_fit_min fit, weighted;
};

static const struct affine q2 = {
    16, 3, 15, {3, -0.5f, 0.1f, 15, true}, {3, -0.9f, 0.05f, 36, false}};
static const struct affine q4 = {
    32, 15, 63, {15, -1.0f, 0.1f, 20, false}, {15, -0.9f, 0.05f, 36, false}};
static const struct affine q5 = {
    32, 31, 63, {31, -0.5f, 0.1f, 15, false}, {31, -0.9f, 0.05f, 36, false}};

struct super {
    float scale[MOST], min[MOST], sum[MOST]; /* of the sub-blocks; sums of weights */
    unsigned char ls[MOST], lm[MOST], code[TUI_SUPER];
    float d, dmin;
};

/* Weights of a sub-block without an importance matrix. */
static void own_weights(const struct affine *a, const float *x, float *w)
{
    float mean = a->sub == 16 ? 0 : sqrtf(tui_sum_sq(x, a->sub) / (float)a->sub);
    for (unsigned i = 0; i < a->sub; i++)
        w[i] = a->sub == 16 ? fabsf(x[i]) : mean + fabsf(x[i]);
}

static void fit_subs(const struct affine *a, const float *x, const float *weight,
                     struct super *s)
{
    float mean = 0;
    if (weight) /* mean square of the super-block, twice that where sub-blocks are 32 long */
        mean = tui_sum_sq(x, TUI_SUPER) * (a->sub == 16 ? 1.0f : 2.0f) / TUI_SUPER;
    for (unsigned j = 0; j < TUI_SUPER / a->sub; j++) {
        float w[32];
        const float *xs = x + j * a->sub;
        if (!weight)
            own_weights(a, xs, w);
        for (unsigned i = 0; i < a->sub && weight; i++)
            w[i] = tui_weigh(weight[j * a->sub + i], mean, xs[i]);
        s->sum[j] = 0;
        for (unsigned i = 0; i < a->sub; i++)
            s->sum[j] += w[i];
        s->scale[j] = tui_fit_min(weight ? &a->weighted : &a->fit, a->sub, xs, w,
                                  s->code + j * a->sub, &s->min[j]);
    }
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

static void encode_super(const struct affine *a, const float *x, const float *weight,
                         struct super *s)
{
    unsigned subs = TUI_SUPER / a->sub;
    fit_subs(a, x, weight, s);
    if (weight) {
        s->d = tui_fit_positive(subs, a->scale_max, s->scale, s->sum, s->ls);
        s->dmin = tui_fit_positive(subs, a->scale_max, s->min, s->sum, s->lm);
    } else {
        s->d = quantize_scales(s->scale, subs, a->scale_max, s->ls);
        s->dmin = quantize_scales(s->min, subs, a->scale_max, s->lm);
    }
    float d = tu_from_f16(tu_to_f16(s->d)), dmin = tu_from_f16(tu_to_f16(s->dmin));
    for (unsigned j = 0; j < subs; j++) {
        float unit = d * (float)s->ls[j], min = dmin * (float)s->lm[j];
        if (unit == 0)
            continue; /* the codes of the fit stay */
        for (unsigned i = j * a->sub; i < (j + 1) * a->sub; i++)
            s->code[i] =
                (unsigned char)tui_clamp(tui_nint((x[i] + min) / unit), 0, a->nmax);
    }
}

static void put_f16(unsigned char *p, float v)
{
    tu_put16(p, tu_to_f16(v));
}

static const float *weights_at(const struct tui_blocks *b, size_t i)
{
    return b->weight ? b->weight + i * TUI_SUPER : NULL;
}

void tui_encode_q2_k(const struct tui_blocks *b)
{
    struct super s;
    unsigned char *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 84) {
        encode_super(&q2, b->x + i * TUI_SUPER, weights_at(b, i), &s);
        for (unsigned j = 0; j < 16; j++)
            out[j] = (unsigned char)(s.ls[j] | s.lm[j] << 4);
        tui_pack_q2_k(out + 16, s.code);
        put_f16(out + 80, s.d);
        put_f16(out + 82, s.dmin);
    }
}

void tui_encode_q4_k(const struct tui_blocks *b)
{
    struct super s;
    unsigned char *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 144) {
        encode_super(&q4, b->x + i * TUI_SUPER, weights_at(b, i), &s);
        put_f16(out, s.d);
        put_f16(out + 2, s.dmin);
        tui_k4_pack(out + 4, s.ls, s.lm);
        tui_pack_q4_k(out + 16, s.code);
    }
}

void tui_encode_q5_k(const struct tui_blocks *b)
{
    struct super s;
    unsigned char *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 176) {
        encode_super(&q5, b->x + i * TUI_SUPER, weights_at(b, i), &s);
        put_f16(out, s.d);
        put_f16(out + 2, s.dmin);
        tui_k4_pack(out + 4, s.ls, s.lm);
        tui_pack_q5_k(out + 16, out + 48, s.code);
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

static float fit_q3(const float *x, const float *weight, unsigned char *l,
                    unsigned char *code)
{
    float scale[16], sum[16], mean = 2 * tui_sum_sq(x, TUI_SUPER) / TUI_SUPER;
    for (unsigned j = 0; j < 16; j++) {
        const float *xs = x + 16 * j;
        if (!weight) {
            scale[j] = descend16(xs, code + 16 * j);
            continue;
        }
        float w[16];
        sum[j] = 0;
        for (unsigned i = 0; i < 16; i++) {
            w[i] = tui_weigh(weight[16 * j + i], mean, xs[i]);
            sum[j] += w[i];
        }
        scale[j] = tui_fit_symmetric(16, 4, xs, w, code + 16 * j);
    }
    return weight ? tui_fit_symmetric(16, 32, scale, sum, l) : quantize_signed(scale, l);
}

void tui_encode_q3_k(const struct tui_blocks *b)
{
    unsigned char l[16], code[TUI_SUPER], *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 110) {
        const float *x = b->x + i * TUI_SUPER;
        float d = fit_q3(x, weights_at(b, i), l, code);
        put_f16(out + 108, d);
        d = tu_from_f16(tu_to_f16(d));
        for (unsigned k = 0; k < TUI_SUPER; k++) {
            float unit = d * (float)(l[k / 16] - 32);
            if (unit != 0)
                code[k] = (unsigned char)(tui_clamp(tui_nint(x[k] / unit), -4, 3) + 4);
        }
        tui_pack_q3_k(out, out + 32, code);
        tui_pack_q3_k_scales(out + 96, l);
    }
}

/* Q6_K ------------------------------------------------------------------------------- */

void tui_encode_q6_k(const struct tui_blocks *b)
{
    unsigned char code[TUI_SUPER], *out = b->out;
    for (size_t i = 0; i < b->n; i++, out += 210) {
        const float *x = b->x + i * TUI_SUPER, *w = weights_at(b, i);
        float scale[16];
        for (unsigned j = 0; j < 16; j++)
            scale[j] = tui_fit_symmetric(16, 32, x + 16 * j, w ? w + 16 * j : NULL,
                                         code + 16 * j);
        float top = tui_extreme(scale, 16);
        if (fabsf(top) < TUI_TINY) {
            memset(out, 0, 210);
            continue;
        }
        float inverse = -128 / top, d = tu_from_f16(tu_to_f16(1 / inverse));
        put_f16(out + 208, 1 / inverse);
        for (unsigned j = 0; j < 16; j++) {
            int l = tui_nint(inverse * scale[j]);
            l = l > 127 ? 127 : l;
            out[192 + j] = (unsigned char)l;
            float unit = d * (float)(int8_t)l;
            for (unsigned k = 16 * j; k < 16 * j + 16 && unit != 0; k++)
                code[k] = (unsigned char)(tui_clamp(tui_nint(x[k] / unit), -32, 31) + 32);
        }
        tui_pack_q6_k(out, out + 128, code);
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
