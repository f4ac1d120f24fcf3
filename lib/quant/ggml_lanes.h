/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_lanes.h: the searches of ggml_fit.c, ggml_k.c and ggml_iq4.c with a sub-block in
 * each lane, so that every lane keeps the reference's order of operations and the bytes
 * are equal. Included once by each file that has defined the lanes (lanes_avx2.h,
 * lanes_avx512.h).
 *
 * Sums along a sub-block are chains of dependent additions; GROUPS vectors go side by
 * side to fill the time. A batch is GROUPS × LANES sub-blocks; what is left over goes to
 * the reference. */
#include "ggml.h"
#include "ggml_k.h"
#include "tensorutils/core/bytes.h"

#define GROUPS 2
#define BATCH (GROUPS * LANES) /* sub-blocks */
#define ALWAYS static inline __attribute__((always_inline))
#define EACH_GROUP _Pragma("GCC unroll 2") for (unsigned g = 0; g < GROUPS; g++)

/* A batch of sub-blocks of at most 32 elements: element i of sub-block g·LANES + lane. */
struct batch {
    _Alignas(64) float x[GROUPS][32][LANES];
    _Alignas(64) float w[GROUPS][32][LANES];
    _Alignas(64) float code[GROUPS][32][LANES];
};

ALWAYS void load_batch(struct batch *b, const float *x, unsigned n)
{
    for (unsigned g = 0; g < GROUPS; g++)
        for (unsigned i = 0; i < n; i += LANES)
            v_transpose(x + g * LANES * n + i, n, b->x[g][i]);
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
            vf x = v_load(b->x[g][i]), w = v_load(b->w[g][i]);
            vf l = v_code(v_mul(inverse[g], v_sub(x, base[g])), 0, nmax);
            v_store(b->code[g][i], l);
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
            vf x = v_load(b->x[g][i]), w = v_load(b->w[g][i]), l = v_load(b->code[g][i]);
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
        vf x = v_load(b->x[g][0]), w = v_load(b->w[g][0]);
        vf lo = x, hi = x, sum_w = w, sum_x = v_mul(w, x);
        for (unsigned i = 1; i < n; i++) {
            x = v_load(b->x[g][i]);
            w = v_load(b->w[g][i]);
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
    vf inverse[GROUPS], base[GROUPS], scale[GROUPS], min[GROUPS], error[GROUPS];
    vm solved[GROUPS];
    struct sums s[GROUPS];
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
    struct sums s[GROUPS];
    vf inverse[GROUPS], base[GROUPS], scale[GROUPS], error[GROUPS];
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
                vf x = v_load(b->x[g][i]);
                mean = v_add(mean, v_mul(x, x));
            }
            mean = v_sqrt(v_div(mean, v_set((float)n)));
        }
        for (unsigned i = 0; i < n; i++) {
            vf a = v_abs(v_load(b->x[g][i]));
            v_store(b->w[g][i], n == 32 ? v_add(mean, a) : a);
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
            v_transpose(weight + g * LANES * n + i, n, b->w[g][i]);
        for (unsigned i = 0; i < n; i++) {
            vf x = v_load(b->x[g][i]), q = v_load(b->w[g][i]);
            v_store(b->w[g][i], v_mul(q, v_sqrt(v_add(v_load(m), v_mul(x, x)))));
        }
    }
}

/* Sum of the weights of each sub-block, in order from 0. */
ALWAYS void sum_weights(const struct batch *b, unsigned n, float *sum)
{
    EACH_GROUP {
        vf s = v_set(0);
        for (unsigned i = 0; i < n; i++)
            s = v_add(s, v_load(b->w[g][i]));
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
    struct found f[GROUPS];
    struct tui_super s;
    _Alignas(64) float scale[BATCH], min[BATCH], sum[BATCH], inverse[BATCH], base[BATCH];
    const unsigned subs = TUI_SUPER / n, supers = BATCH / subs;
    load_batch(&b, x, n);
    if (weight) {
        float mean[BATCH];
        for (unsigned k = 0; k < supers; k++)
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
    for (unsigned k = 0; k < supers; k++) {
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
    ENCODER(name, TUI_SUPER, size, BATCH * n / TUI_SUPER)

AFFINE(q2_k, 16, 3, true, 84)
AFFINE(q4_k, 32, 15, false, 144)
AFFINE(q5_k, 32, 31, false, 176)

/* Symmetric scales ------------------------------------------------------------------- */

struct peak {
    vf scale, inverse;
    vm tiny; /* too small for a scale */
};

ALWAYS vf extreme(const struct batch *b, unsigned g, unsigned n)
{
    vf top = v_set(0), amax = v_set(0);
    for (unsigned i = 0; i < n; i++) {
        vf x = v_load(b->x[g][i]), a = v_abs(x);
        vm m = v_gt(a, amax);
        amax = v_pick(m, a, amax);
        top = v_pick(m, x, top);
    }
    return top;
}

ALWAYS void square_weights(struct batch *b, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        EACH_GROUP {
            vf x = v_load(b->x[g][i]);
            v_store(b->w[g][i], v_mul(x, x));
        }
    }
}

/* Σ w·x·l and Σ w·l·l; b->code holds w·x. */
ALWAYS void symmetric_gain(const struct batch *b, unsigned n, float nmax, const vf *inverse,
                           vf *xl, vf *ll)
{
    EACH_GROUP xl[g] = ll[g] = v_set(0);
    for (unsigned i = 0; i < n; i++) {
        EACH_GROUP {
            vf l = v_code(v_mul(inverse[g], v_load(b->x[g][i])), -nmax, nmax - 1);
            xl[g] = v_add(xl[g], v_mul(v_load(b->code[g][i]), l));
            ll[g] = v_add(ll[g], v_mul(v_mul(v_load(b->w[g][i]), l), l));
        }
    }
}

/* tui_fit_symmetric for the whole batch, under b->w. */
ALWAYS void search_symmetric(struct batch *b, unsigned n, float nmax, struct peak *p)
{
    vf top[GROUPS], inverse[GROUPS], xl[GROUPS], ll[GROUPS], best[GROUPS];
    EACH_GROUP {
        for (unsigned i = 0; i < n; i++)
            v_store(b->code[g][i], v_mul(v_load(b->w[g][i]), v_load(b->x[g][i])));
        top[g] = extreme(b, g, n);
        p[g].tiny = v_gt(v_set(TUI_TINY), v_abs(top[g]));
        inverse[g] = p[g].inverse = v_div(v_set(-nmax), top[g]);
    }
    symmetric_gain(b, n, nmax, inverse, xl, ll);
    EACH_GROUP {
        p[g].scale = v_pick(v_ne(ll[g], v_set(0)), v_div(xl[g], ll[g]), v_set(0));
        best[g] = v_mul(p[g].scale, xl[g]);
    }
    for (int k = -9; k <= 9; k++) {
        if (k == 0)
            continue;
        EACH_GROUP inverse[g] = v_div(v_set(-(nmax + 0.1f * (float)k)), top[g]);
        symmetric_gain(b, n, nmax, inverse, xl, ll);
        EACH_GROUP {
            vm better = v_both(v_gt(ll[g], v_set(0)),
                               v_gt(v_mul(xl[g], xl[g]), v_mul(best[g], ll[g])));
            vf scale = v_div(xl[g], ll[g]);
            p[g].inverse = v_pick(better, inverse[g], p[g].inverse);
            p[g].scale = v_pick(better, scale, p[g].scale);
            best[g] = v_pick(better, v_mul(scale, xl[g]), best[g]);
        }
    }
    EACH_GROUP p[g].scale = v_pick(p[g].tiny, v_set(0), p[g].scale);
}

/* Codes of 16 elements, moved up by nmax, under a stored scale. */
ALWAYS void pick_symmetric(float nmax, const float *x, float unit, unsigned char *code)
{
    for (unsigned i = 0; i < 16; i += LANES) {
        vf l = v_code(v_div(v_load(x + i), v_set(unit)), -nmax, nmax - 1);
        v_bytes(code + i, v_add(l, v_set(nmax)));
    }
}

/* Those of the search, where the stored scale is 0; inverse 0 says that it found none. */
ALWAYS void found_symmetric(float nmax, const float *x, float inverse, unsigned char *code)
{
    for (unsigned i = 0; i < 16; i++) {
        int l = tui_clamp(tui_nint(inverse * x[i]), -(int)nmax, (int)nmax - 1) + (int)nmax;
        code[i] = (unsigned char)(inverse != 0 ? l : 0);
    }
}

ALWAYS void store_peaks(const struct peak *p, float *scale, float *inverse)
{
    EACH_GROUP {
        v_store(scale + g * LANES, p[g].scale);
        v_store(inverse + g * LANES, v_pick(p[g].tiny, v_set(0), p[g].inverse));
    }
}

static void q6_k_batch(const struct tui_blocks *blocks, const float *x, const float *weight,
                       unsigned char *out)
{
    (void)blocks;
    struct batch b;
    struct peak p[GROUPS];
    _Alignas(64) float scale[BATCH], inverse[BATCH];
    load_batch(&b, x, 16);
    if (weight)
        for (unsigned g = 0; g < GROUPS; g++)
            for (unsigned i = 0; i < 16; i += LANES)
                v_transpose(weight + g * LANES * 16 + i, 16, b.w[g][i]);
    else
        square_weights(&b, 16);
    search_symmetric(&b, 16, 32, p);
    store_peaks(p, scale, inverse);
    for (unsigned k = 0; k < BATCH / 16; k++, x += TUI_SUPER, out += 210) {
        unsigned char code[TUI_SUPER];
        signed char l[16];
        float d = tui_q6_k_scales(scale + 16 * k, l), rounded = tu_from_f16(tu_to_f16(d));
        if (d == 0) {
            memset(out, 0, 210);
            continue;
        }
        for (unsigned j = 0; j < 16; j++) {
            float unit = rounded * (float)l[j];
            if (unit != 0)
                pick_symmetric(32, x + 16 * j, unit, code + 16 * j);
            else
                found_symmetric(32, x + 16 * j, inverse[16 * k + j], code + 16 * j);
        }
        tui_put_q6_k(out, d, l, code);
    }
}
ENCODER(q6_k, TUI_SUPER, 210, BATCH / 16)

/* One step of the descent: element i of every sub-block; the lanes that change. */
ALWAYS vm descend_step(struct batch *b, unsigned g, unsigned i, vf *xl, vf *ll)
{
    vf x = v_load(b->x[g][i]), w = v_load(b->w[g][i]), l = v_load(b->code[g][i]);
    vf wx = v_mul(w, x);
    vf a = v_sub(*xl, v_mul(wx, l)), c = v_sub(*ll, v_mul(v_mul(w, l), l));
    vf to = v_code(v_div(v_mul(x, c), a), -4, 3);
    vm m = v_both(v_gt(a, v_set(0)), v_ne(to, l));
    a = v_add(a, v_mul(wx, to));
    c = v_add(c, v_mul(v_mul(w, to), to));
    m = v_both(m, v_gt(c, v_set(0)));
    m = v_both(m, v_gt(v_mul(v_mul(a, a), *ll), v_mul(v_mul(*xl, *xl), c)));
    v_store(b->code[g][i], v_pick(m, to, l));
    *xl = v_pick(m, a, *xl);
    *ll = v_pick(m, c, *ll);
    return m;
}

/* The reference's descend16 for the whole batch; b->code holds the codes, without
 * offset. */
ALWAYS void descend(struct batch *b, float *scale, float *found)
{
    vf xl[GROUPS], ll[GROUPS], top[GROUPS];
    square_weights(b, 16);
    EACH_GROUP {
        top[g] = extreme(b, g, 16);
        vf inverse = v_div(v_set(-4), top[g]);
        xl[g] = ll[g] = v_set(0);
        for (unsigned i = 0; i < 16; i++) {
            vf x = v_load(b->x[g][i]), w = v_load(b->w[g][i]);
            vf l = v_code(v_mul(inverse, x), -4, 3);
            v_store(b->code[g][i], l);
            xl[g] = v_add(xl[g], v_mul(v_mul(w, x), l));
            ll[g] = v_add(ll[g], v_mul(v_mul(w, l), l));
        }
    }
    bool changed = true;
    for (unsigned sweep = 0; sweep < 5 && changed; sweep++) {
        changed = false;
        for (unsigned i = 0; i < 16; i++)
            EACH_GROUP changed |= v_any(descend_step(b, g, i, &xl[g], &ll[g]));
    }
    EACH_GROUP {
        vf some = v_pick(v_gt(v_set(TUI_TINY), v_abs(top[g])), v_set(0), v_set(1));
        vf s = v_pick(v_gt(ll[g], v_set(0)), v_div(xl[g], ll[g]), v_set(0));
        v_store(scale + g * LANES, v_pick(v_gt(some, v_set(0)), s, v_set(0)));
        v_store(found + g * LANES, some);
    }
}

/* Codes of the descent for one sub-block, where the stored scale is 0. */
static void found_descent(const struct batch *b, unsigned sub, float some, unsigned char *code)
{
    for (unsigned i = 0; i < 16; i++)
        code[i] = (unsigned char)(some != 0 ? b->code[sub / LANES][i][sub % LANES] + 4 : 0);
}

static void q3_k_batch(const struct tui_blocks *blocks, const float *x, const float *weight,
                       unsigned char *out)
{
    (void)blocks;
    struct batch b;
    struct peak p[GROUPS];
    _Alignas(64) float scale[BATCH], sum[BATCH], found[BATCH];
    load_batch(&b, x, 16);
    if (weight) {
        float mean[BATCH / 16];
        for (unsigned k = 0; k < BATCH / 16; k++)
            mean[k] = 2 * tui_sum_sq(x + k * TUI_SUPER, TUI_SUPER) / TUI_SUPER;
        given_weights(&b, 16, weight, mean, TUI_SUPER);
        sum_weights(&b, 16, sum);
        search_symmetric(&b, 16, 4, p);
        store_peaks(p, scale, found);
    } else {
        descend(&b, scale, found);
    }
    for (unsigned k = 0; k < BATCH / 16; k++, x += TUI_SUPER, out += 110) {
        unsigned char code[TUI_SUPER], l[16];
        float d = tui_q3_k_scales(scale + 16 * k, weight ? sum + 16 * k : NULL, l);
        for (unsigned j = 0; j < 16; j++) {
            unsigned sub = 16 * k + j;
            float unit = tu_from_f16(tu_to_f16(d)) * (float)(l[j] - 32);
            if (unit != 0)
                pick_symmetric(4, x + 16 * j, unit, code + 16 * j);
            else if (weight)
                found_symmetric(4, x + 16 * j, found[sub], code + 16 * j);
            else
                found_descent(&b, sub, found[sub], code + 16 * j);
        }
        tui_put_q3_k(out, d, l, code);
    }
}
ENCODER(q3_k, TUI_SUPER, 110, BATCH / 16)

/* IQ4 -------------------------------------------------------------------------------- */

ALWAYS struct v_book iq4_book(void)
{
    float value[16], middle[15];
    for (unsigned i = 0; i < 16; i++)
        value[i] = (float)tui_iq4_book[i];
    for (unsigned i = 0; i < 15; i++)
        middle[i] = 0.5f * (value[i] + value[i + 1]);
    return v_book_of(value, middle);
}

ALWAYS void iq4_gain(const struct batch *b, const struct v_book *book, const vf *inverse, vf *qx,
                     vf *qq)
{
    EACH_GROUP qx[g] = qq[g] = v_set(0);
    for (unsigned i = 0; i < 32; i++) {
        EACH_GROUP {
            vf x = v_load(b->x[g][i]), q = v_nearest(book, v_mul(inverse[g], x));
            vf wq = v_mul(v_load(b->w[g][i]), q);
            qx[g] = v_add(qx[g], v_mul(wq, x));
            qq[g] = v_add(qq[g], v_mul(wq, q));
        }
    }
}

/* Scales of BATCH blocks of 32 under b->w. */
ALWAYS void search_iq4(const struct batch *b, const struct v_book *book, float *scale)
{
    vf top[GROUPS], inverse[GROUPS], qx[GROUPS], qq[GROUPS], s[GROUPS], best[GROUPS];
    const float first = (float)tui_iq4_book[0];
    EACH_GROUP {
        top[g] = extreme(b, g, 32);
        inverse[g] = v_div(v_set(1), v_div(v_neg(top[g]), v_set(first)));
    }
    iq4_gain(b, book, inverse, qx, qq);
    EACH_GROUP {
        s[g] = v_pick(v_gt(qq[g], v_set(0)), v_div(qx[g], qq[g]), v_set(0));
        best[g] = v_mul(s[g], qx[g]);
    }
    for (int t = -7; t <= 7; t++) {
        EACH_GROUP inverse[g] = v_div(v_set((float)t + first), top[g]);
        iq4_gain(b, book, inverse, qx, qq);
        EACH_GROUP {
            vm better = v_both(v_gt(qq[g], v_set(0)),
                               v_gt(v_mul(qx[g], qx[g]), v_mul(best[g], qq[g])));
            s[g] = v_pick(better, v_div(qx[g], qq[g]), s[g]);
            best[g] = v_pick(better, v_mul(s[g], qx[g]), best[g]);
        }
    }
    EACH_GROUP {
        vm tiny = v_gt(v_set(TUI_TINY), v_abs(top[g]));
        v_store(scale + g * LANES, v_pick(tiny, v_set(0), s[g]));
    }
}

/* unit: elements that share a mean of x² for the weights. */
ALWAYS void iq4_scales(const float *x, const float *weight, unsigned unit,
                       const struct v_book *book, float *scale)
{
    struct batch b;
    load_batch(&b, x, 32);
    if (weight) {
        float mean[BATCH];
        for (unsigned k = 0; k < BATCH * 32 / unit; k++)
            mean[k] = 2 * tui_sum_sq(x + k * unit, unit) / (float)unit;
        given_weights(&b, 32, weight, mean, unit);
    } else {
        square_weights(&b, 32);
    }
    search_iq4(&b, book, scale);
}

ALWAYS void put_iq4(unsigned char *out, const struct v_book *book, const float *x, float inverse)
{
    unsigned char code[32];
    for (unsigned i = 0; i < 32; i += LANES)
        v_nearest_bytes(code + i, book, v_mul(v_set(inverse), v_load(x + i)));
    tui_put_nibbles(out, code);
}

static void iq4_nl_batch(const struct tui_blocks *blocks, const float *x, const float *weight,
                         unsigned char *out)
{
    (void)blocks;
    _Alignas(64) float scale[BATCH];
    struct v_book book = iq4_book();
    iq4_scales(x, weight, 32, &book, scale);
    for (unsigned k = 0; k < BATCH; k++, x += 32, out += 18) {
        tu_put16(out, tu_to_f16(scale[k]));
        put_iq4(out + 2, &book, x, tui_inverse(scale[k]));
    }
}
ENCODER(iq4_nl, 32, 18, BATCH)

static void iq4_xs_batch(const struct tui_blocks *blocks, const float *x, const float *weight,
                         unsigned char *out)
{
    (void)blocks;
    _Alignas(64) float scale[BATCH];
    struct v_book book = iq4_book();
    iq4_scales(x, weight, TUI_SUPER, &book, scale);
    for (unsigned k = 0; k < BATCH / 8; k++, out += 136) {
        float inverse[8];
        tui_put_iq4_xs(out, scale + 8 * k, inverse);
        for (unsigned j = 0; j < 8; j++, x += 32)
            put_iq4(out + 8 + 16 * j, &book, x, inverse[j]);
    }
}
ENCODER(iq4_xs, TUI_SUPER, 136, BATCH / 8)
