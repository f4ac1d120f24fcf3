/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_lanes_sym.h: the formats without a minimum (Q6_K, Q3_K, IQ4_NL, IQ4_XS) with a
 * sub-block per lane. Behind ggml_lanes.h. */

/* Symmetric scales ------------------------------------------------------------------- */

struct peak {
    vf scale, inverse;
    vm tiny; /* too small for a scale */
};

ALWAYS vf extreme(const struct batch *b, unsigned g, unsigned n)
{
    vf top = v_set(0), amax = v_set(0);
    for (unsigned i = 0; i < n; i++) {
        vf x = v_load(b->x[g * n + i]), a = v_abs(x);
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
            vf x = v_load(b->x[g * n + i]);
            v_store(b->w[g * n + i], v_mul(x, x));
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
            vf l = v_code(v_mul(inverse[g], v_load(b->x[g * n + i])), -nmax, nmax - 1);
            xl[g] = v_add(xl[g], v_mul(v_load(b->code[g * n + i]), l));
            ll[g] = v_add(ll[g], v_mul(v_mul(v_load(b->w[g * n + i]), l), l));
        }
    }
}

/* tui_fit_symmetric for the whole batch, under b->w. */
ALWAYS void search_symmetric(struct batch *b, unsigned n, float nmax, struct peak *p)
{
    vf top[MOST], inverse[MOST], xl[MOST], ll[MOST], best[MOST];
    EACH_GROUP {
        for (unsigned i = 0; i < n; i++)
            v_store(b->code[g * n + i], v_mul(v_load(b->w[g * n + i]), v_load(b->x[g * n + i])));
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

ALWAYS void store_peaks(unsigned n, const struct peak *p, float *scale, float *inverse)
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
    const unsigned n = 16;
    struct batch b;
    struct peak p[MOST];
    _Alignas(64) float scale[SUBS], inverse[SUBS];
    load_batch(&b, x, 16);
    if (weight)
        for (unsigned g = 0; g < GROUPS; g++)
            for (unsigned i = 0; i < 16; i += LANES)
                v_transpose(weight + g * LANES * 16 + i, 16, b.w[g * n + i]);
    else
        square_weights(&b, 16);
    search_symmetric(&b, 16, 32, p);
    store_peaks(16, p, scale, inverse);
    for (unsigned k = 0; k < SUPERS; k++, x += TUI_SUPER, out += 210) {
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
ENCODER(q6_k, TUI_SUPER, 210, SUPERS)

/* One step of the descent: one element of LANES sub-blocks; the lanes that change. */
ALWAYS vm descend_step(struct batch *b, unsigned row, vf *xl, vf *ll)
{
    vf x = v_load(b->x[row]), w = v_load(b->w[row]), l = v_load(b->code[row]);
    vf wx = v_mul(w, x);
    vf a = v_sub(*xl, v_mul(wx, l)), c = v_sub(*ll, v_mul(v_mul(w, l), l));
    vf to = v_code(v_div(v_mul(x, c), a), -4, 3);
    vm m = v_both(v_gt(a, v_set(0)), v_ne(to, l));
    a = v_add(a, v_mul(wx, to));
    c = v_add(c, v_mul(v_mul(w, to), to));
    m = v_both(m, v_gt(c, v_set(0)));
    m = v_both(m, v_gt(v_mul(v_mul(a, a), *ll), v_mul(v_mul(*xl, *xl), c)));
    v_store(b->code[row], v_pick(m, to, l));
    *xl = v_pick(m, a, *xl);
    *ll = v_pick(m, c, *ll);
    return m;
}

/* The reference's descend16 for the whole batch; b->code holds the codes, without
 * offset. */
ALWAYS void descend(struct batch *b, float *scale, float *found)
{
    const unsigned n = 16;
    vf xl[MOST], ll[MOST], top[MOST];
    square_weights(b, 16);
    EACH_GROUP {
        top[g] = extreme(b, g, 16);
        vf inverse = v_div(v_set(-4), top[g]);
        xl[g] = ll[g] = v_set(0);
        for (unsigned i = 0; i < 16; i++) {
            vf x = v_load(b->x[g * n + i]), w = v_load(b->w[g * n + i]);
            vf l = v_code(v_mul(inverse, x), -4, 3);
            v_store(b->code[g * n + i], l);
            xl[g] = v_add(xl[g], v_mul(v_mul(w, x), l));
            ll[g] = v_add(ll[g], v_mul(v_mul(w, l), l));
        }
    }
    bool changed = true;
    for (unsigned sweep = 0; sweep < 5 && changed; sweep++) {
        changed = false;
        for (unsigned i = 0; i < 16; i++)
            EACH_GROUP changed |= v_any(descend_step(b, g * n + i, &xl[g], &ll[g]));
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
        code[i] = (unsigned char)(some != 0 ? b->code[sub / LANES * 16 + i][sub % LANES] + 4 : 0);
}

static void q3_k_batch(const struct tui_blocks *blocks, const float *x, const float *weight,
                       unsigned char *out)
{
    (void)blocks;
    struct batch b;
    struct peak p[MOST];
    _Alignas(64) float scale[SUBS], sum[SUBS], found[SUBS];
    load_batch(&b, x, 16);
    if (weight) {
        float mean[SUPERS];
        for (unsigned k = 0; k < SUPERS; k++)
            mean[k] = 2 * tui_sum_sq(x + k * TUI_SUPER, TUI_SUPER) / TUI_SUPER;
        given_weights(&b, 16, weight, mean, TUI_SUPER);
        sum_weights(&b, 16, sum);
        search_symmetric(&b, 16, 4, p);
        store_peaks(16, p, scale, found);
    } else {
        descend(&b, scale, found);
    }
    for (unsigned k = 0; k < SUPERS; k++, x += TUI_SUPER, out += 110) {
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
ENCODER(q3_k, TUI_SUPER, 110, SUPERS)

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
    const unsigned n = 32;
    EACH_GROUP qx[g] = qq[g] = v_set(0);
    for (unsigned i = 0; i < n; i++) {
        EACH_GROUP {
            vf x = v_load(b->x[g * n + i]), q = v_nearest(book, v_mul(inverse[g], x));
            vf wq = v_mul(v_load(b->w[g * n + i]), q);
            qx[g] = v_add(qx[g], v_mul(wq, x));
            qq[g] = v_add(qq[g], v_mul(wq, q));
        }
    }
}

/* Scales of BATCH blocks of 32 under b->w. */
ALWAYS void search_iq4(const struct batch *b, const struct v_book *book, float *scale)
{
    const unsigned n = 32;
    vf top[MOST], inverse[MOST], qx[MOST], qq[MOST], s[MOST], best[MOST];
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
        float mean[BATCH / 32];
        for (unsigned k = 0; k < BATCH / unit; k++)
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
    _Alignas(64) float scale[BATCH / 32];
    struct v_book book = iq4_book();
    iq4_scales(x, weight, 32, &book, scale);
    for (unsigned k = 0; k < BATCH / 32; k++, x += 32, out += 18) {
        tu_put16(out, tu_to_f16(scale[k]));
        put_iq4(out + 2, &book, x, tui_inverse(scale[k]));
    }
}
ENCODER(iq4_nl, 32, 18, BATCH / 32)

static void iq4_xs_batch(const struct tui_blocks *blocks, const float *x, const float *weight,
                         unsigned char *out)
{
    (void)blocks;
    _Alignas(64) float scale[BATCH / 32];
    struct v_book book = iq4_book();
    iq4_scales(x, weight, TUI_SUPER, &book, scale);
    for (unsigned k = 0; k < SUPERS; k++, out += 136) {
        float inverse[8];
        tui_put_iq4_xs(out, scale + 8 * k, inverse);
        for (unsigned j = 0; j < 8; j++, x += 32)
            put_iq4(out + 8 + 16 * j, &book, x, inverse[j]);
    }
}
ENCODER(iq4_xs, TUI_SUPER, 136, SUPERS)
