/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_lanes.h: the searches of ggml_fit.c, ggml_k.c and ggml_iq4.c with a sub-block in
 * each lane, so that every lane keeps the reference's order of operations and the bytes
 * are equal. Included once by each file that has defined the lanes (lanes_avx2.h,
 * lanes_avx512.h).
 *
 * Sums along a sub-block are chains of dependent additions; several vectors go side by
 * side to fill the time. A batch is 64 × LANES elements; what is left over goes to the
 * reference. */
#include "ggml.h"
#include "ggml_k.h"
#include "tensorutils/core/bytes.h"

#define ROWS 64               /* vectors of a batch */
#define GROUPS (ROWS / n)     /* of sub-blocks of n elements side by side */
#define MOST 4                /* GROUPS for n = 16 */
#define BATCH (ROWS * LANES)  /* elements of a batch */
#define SUPERS (BATCH / TUI_SUPER)
#define SUBS (BATCH / 16)     /* sub-blocks at most */
#define ALWAYS static inline __attribute__((always_inline))
#define EACH_GROUP _Pragma("GCC unroll 4") for (unsigned g = 0; g < GROUPS; g++)

/* A batch of sub-blocks of n elements: row g·n + i, lane k is element i of sub-block
 * g·LANES + k. */
struct batch {
    _Alignas(64) float x[ROWS][LANES], w[ROWS][LANES], code[ROWS][LANES];
};

ALWAYS void load_batch(struct batch *b, const float *x, unsigned n)
{
    for (unsigned g = 0; g < GROUPS; g++)
        for (unsigned i = 0; i < n; i += LANES)
            v_transpose(x + g * LANES * n + i, n, b->x[g * n + i]);
}

/* Scale and minimum ------------------------------------------------------------------ */

/* Codes of one candidate and the sums they give. */
struct sums {
    vf l, l2, xl;
};

ALWAYS void code_and_sum(struct batch *b, unsigned n, float nmax, const vf *inverse,
                                const vf *base, struct sums *s)
{
    EACH_GROUP s[g].l = s[g].l2 = s[g].xl = v_set(0);
    for (unsigned i = 0; i < n; i++) {
        EACH_GROUP {
            vf x = v_load(b->x[g * n + i]), w = v_load(b->w[g * n + i]);
            vf l = v_code(v_mul(inverse[g], v_sub(x, base[g])), 0, nmax);
            v_store(b->code[g * n + i], l);
            vf wl = v_mul(w, l);
            s[g].l = v_add(s[g].l, wl);
            s[g].l2 = v_add(s[g].l2, v_mul(wl, l));
            s[g].xl = v_add(s[g].xl, v_mul(wl, x));
        }
    }
}

ALWAYS void errors(const struct batch *b, unsigned n, bool absolute, const vf *scale,
                          const vf *min, vf *error)
{
    EACH_GROUP error[g] = v_set(0);
    for (unsigned i = 0; i < n; i++) {
        EACH_GROUP {
            vf x = v_load(b->x[g * n + i]), w = v_load(b->w[g * n + i]);
            vf l = v_load(b->code[g * n + i]);
            vf d = v_sub(v_add(v_mul(scale[g], l), min[g]), x);
            d = absolute ? v_abs(d) : v_mul(d, d);
            error[g] = v_add(error[g], v_mul(w, d));
        }
    }
}

/* What the search knows of each sub-block. inverse and base give the codes of the best
 * fit. */
struct found {
    vf scale, min, error, inverse, base, hi, sum_w, sum_x;
    vm flat;
};

ALWAYS void begin_search(const struct batch *b, unsigned n, struct found *f)
{
    EACH_GROUP {
        vf x = v_load(b->x[g * n]), w = v_load(b->w[g * n]);
        vf lo = x, hi = x, sum_w = w, sum_x = v_mul(w, x);
        for (unsigned i = 1; i < n; i++) {
            x = v_load(b->x[g * n + i]);
            w = v_load(b->w[g * n + i]);
            lo = v_min(x, lo);
            hi = v_max(x, hi);
            sum_w = v_add(sum_w, w);
            sum_x = v_add(sum_x, v_mul(w, x));
        }
        lo = v_pick(v_gt(lo, v_set(0)), v_set(0), lo);
        f[g].min = f[g].base = lo;
        f[g].hi = hi;
        f[g].sum_w = sum_w;
        f[g].sum_x = sum_x;
        f[g].flat = v_ge(lo, hi);
    }
}

/* Keep a candidate in the lanes where it is better. */
ALWAYS void improve(struct found *f, vf scale, vf min, vf error, vf inverse)
{
    vm better = v_gt(f->error, error);
    f->base = v_pick(better, f->min, f->base);
    f->inverse = v_pick(better, inverse, f->inverse);
    f->scale = v_pick(better, scale, f->scale);
    f->min = v_pick(better, min, f->min);
    f->error = v_pick(better, error, f->error);
}

ALWAYS void candidate(struct batch *b, unsigned n, float nmax, bool absolute, float step,
                      struct found *f)
{
    vf inverse[MOST], base[MOST], scale[MOST], min[MOST], error[MOST];
    vm solved[MOST];
    struct sums s[MOST];
    EACH_GROUP {
        base[g] = f[g].min;
        inverse[g] = v_div(v_set(step), v_sub(f[g].hi, f[g].min));
    }
    code_and_sum(b, n, nmax, inverse, base, s);
    EACH_GROUP {
        vf det = v_sub(v_mul(f[g].sum_w, s[g].l2), v_mul(s[g].l, s[g].l));
        solved[g] = v_gt(det, v_set(0));
        scale[g] = v_div(v_sub(v_mul(f[g].sum_w, s[g].xl), v_mul(f[g].sum_x, s[g].l)), det);
        min[g] = v_div(v_sub(v_mul(s[g].l2, f[g].sum_x), v_mul(s[g].l, s[g].xl)), det);
        vm over = v_gt(min[g], v_set(0));
        scale[g] = v_pick(over, v_div(s[g].xl, s[g].l2), scale[g]);
        min[g] = v_pick(over, v_set(0), min[g]);
    }
    errors(b, n, absolute, scale, min, error);
    EACH_GROUP {
        /* Unsolved lanes never win: an error that is no less. */
        error[g] = v_pick(solved[g], error[g], f[g].error);
        improve(&f[g], scale[g], min[g], error[g], inverse[g]);
    }
}

/* tui_fit_min for the whole batch. */
ALWAYS void search_min(struct batch *b, unsigned n, float nmax, bool absolute,
                       const struct tui_fit_min *rule, struct found *f)
{
    struct sums s[MOST];
    vf inverse[MOST], base[MOST], scale[MOST], error[MOST];
    begin_search(b, n, f);
    EACH_GROUP {
        base[g] = f[g].min;
        inverse[g] = v_div(v_set(nmax), v_sub(f[g].hi, f[g].min));
        scale[g] = v_div(v_set(1), inverse[g]);
    }
    code_and_sum(b, n, nmax, inverse, base, s);
    errors(b, n, absolute, scale, base, error);
    EACH_GROUP {
        f[g].inverse = inverse[g];
        f[g].scale = scale[g];
        f[g].error = error[g];
    }
    for (int k = 0; k <= rule->steps; k++)
        candidate(b, n, nmax, absolute, rule->rmin + rule->rdelta * (float)k + nmax, f);
}

/* Q2_K, Q4_K, Q5_K: a batch is BATCH · sub / 256 super-blocks ------------------------ */

ALWAYS void own_weights(struct batch *b, unsigned n)
{
    EACH_GROUP {
        vf mean = v_set(0);
        if (n == 32) {
            for (unsigned i = 0; i < n; i++) {
                vf x = v_load(b->x[g * n + i]);
                mean = v_add(mean, v_mul(x, x));
            }
            mean = v_sqrt(v_div(mean, v_set((float)n)));
        }
        for (unsigned i = 0; i < n; i++) {
            vf a = v_abs(v_load(b->x[g * n + i]));
            v_store(b->w[g * n + i], n == 32 ? v_add(mean, a) : a);
        }
    }
}

/* Importance of the batch's elements: q·sqrt(mean + x²), with a mean per `unit`
 * elements. */
ALWAYS void given_weights(struct batch *b, unsigned n, const float *weight, const float *mean,
                          unsigned unit)
{
    for (unsigned g = 0; g < GROUPS; g++) {
        _Alignas(64) float m[LANES];
        for (unsigned k = 0; k < LANES; k++)
            m[k] = mean[(g * LANES + k) * n / unit];
        for (unsigned i = 0; i < n; i += LANES)
            v_transpose(weight + g * LANES * n + i, n, b->w[g * n + i]);
        for (unsigned i = 0; i < n; i++) {
            vf x = v_load(b->x[g * n + i]), q = v_load(b->w[g * n + i]);
            v_store(b->w[g * n + i], v_mul(q, v_sqrt(v_add(v_load(m), v_mul(x, x)))));
        }
    }
}

/* Sum of the weights of each sub-block, in order from 0. */
ALWAYS void sum_weights(const struct batch *b, unsigned n, float *sum)
{
    EACH_GROUP {
        vf s = v_set(0);
        for (unsigned i = 0; i < n; i++)
            s = v_add(s, v_load(b->w[g * n + i]));
        v_store(sum + g * LANES, s);
    }
}

/* Codes under the stored scales; where a scale is 0, those of the search. */
ALWAYS void pick_affine(unsigned n, float nmax, const float *x, float unit, float min,
                        float inverse, float base, unsigned char *code)
{
    for (unsigned i = 0; i < n; i += LANES) {
        vf v = v_load(x + i);
        if (unit != 0)
            v = v_div(v_add(v, v_set(min)), v_set(unit));
        else
            v = v_mul(v_set(inverse), v_sub(v, v_set(base)));
        v_bytes(code + i, v_code(v, 0, nmax));
    }
}

/* One batch: BATCH·n/256 super-blocks. n, nmax and absolute are those of a, as
 * constants. */
ALWAYS void affine_batch(const struct tui_affine *a, unsigned n, float nmax, bool absolute,
                         const float *x, const float *weight, unsigned char *out, size_t size,
                         void (*put)(unsigned char *out, const struct tui_super *s))
{
    struct batch b;
    struct found f[MOST];
    struct tui_super s;
    _Alignas(64) float scale[SUBS], min[SUBS], sum[SUBS], inverse[SUBS], base[SUBS];
    const unsigned subs = TUI_SUPER / n;
    load_batch(&b, x, n);
    if (weight) {
        float mean[SUPERS];
        for (unsigned k = 0; k < SUPERS; k++)
            mean[k] = tui_affine_mean(a, x + k * TUI_SUPER);
        given_weights(&b, n, weight, mean, TUI_SUPER);
        sum_weights(&b, n, sum);
        search_min(&b, n, nmax, false, &a->weighted, f);
    } else {
        own_weights(&b, n);
        search_min(&b, n, nmax, absolute, &a->fit, f);
    }
    EACH_GROUP {
        v_store(scale + g * LANES, v_pick(f[g].flat, v_set(0), f[g].scale));
        v_store(min + g * LANES, v_neg(f[g].min));
        /* A flat sub-block has code 0 everywhere. */
        v_store(inverse + g * LANES, v_pick(f[g].flat, v_set(0), f[g].inverse));
        v_store(base + g * LANES, f[g].base);
    }
    for (unsigned k = 0; k < SUPERS; k++) {
        unsigned at = k * subs;
        tui_affine_scales(a, scale + at, min + at, weight ? sum + at : NULL, &s);
        for (unsigned j = 0; j < subs; j++)
            pick_affine(n, nmax, x + (at + j) * n, s.unit * (float)s.ls[j],
                        s.unit_min * (float)s.lm[j], inverse[at + j], base[at + j],
                        s.code + j * n);
        put(out + k * size, &s);
    }
}

/* Blocks of `size` bytes and `elems` elements: whole batches here, what is left by the
 * reference. */
#define ENCODER(name, elems, size, batch)                                                   \
    void LANES_FN(tui_encode_##name)(const struct tui_blocks *b)                            \
    {                                                                                       \
        size_t per = (batch), i = 0;                                                        \
        for (; i + per <= b->n; i += per)                                                   \
            name##_batch(b, b->x + i * (elems), b->weight ? b->weight + i * (elems) : NULL, \
                         b->out + i * (size));                                              \
        struct tui_blocks rest = *b;                                                        \
        rest.x += i * (elems);                                                              \
        rest.weight = b->weight ? b->weight + i * (elems) : NULL;                           \
        rest.out += i * (size);                                                             \
        rest.n -= i;                                                                        \
        tui_encode_##name(&rest);                                                           \
    }

#define AFFINE(name, n, nmax, absolute, size)                                               \
    static void name##_batch(const struct tui_blocks *b, const float *x, const float *w,    \
                             unsigned char *out)                                            \
    {                                                                                       \
        (void)b;                                                                            \
        affine_batch(&tui_affine_##name, n, nmax, absolute, x, w, out, size, tui_put_##name); \
    }                                                                                       \
    ENCODER(name, TUI_SUPER, size, SUPERS)

AFFINE(q2_k, 16, 3, true, 84)
AFFINE(q4_k, 32, 15, false, 144)
AFFINE(q5_k, 32, 31, false, 176)
