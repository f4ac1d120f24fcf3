/* SPDX-License-Identifier: Apache-2.0 */
/* lossy.c: KIVI, CacheGen, and the rows that stand on codecs of lib/quant. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "codecs.h"
#include "huffman.h"

/* KIVI ----------------------------------------------------------------------------------- */

struct kivi {
    uint64_t bits, group, whole; /* whole: tokens that are coded, the rest stays */
    uint64_t runs, words;        /* groups in all; words of codes */
};

static int kivi_plan(struct kivi *k, const struct tu_spec *spec, const struct tu_kv_array *a,
                     struct tu_err *err)
{
    uint64_t residual, cols = a->heads * a->dim;
    int rc = tu_spec_u64(spec, "bits", 2, &k->bits, err);
    if (!rc)
        rc = tu_spec_u64(spec, "group", 32, &k->group, err);
    if (!rc)
        rc = tu_spec_u64(spec, "residual", 128, &residual, err);
    if (rc)
        return rc;
    if ((k->bits != 2 && k->bits != 4 && k->bits != 8) || !k->group || !residual ||
        residual % k->group || (a->value && a->dim % k->group))
        return tu_fail(err, TU_EUSAGE,
                       "kivi: bits 2, 4 or 8; group %" PRIu64 " divides residual %" PRIu64
                       " and, for values, %" PRIu64 " columns",
                       k->group, residual, a->dim);
    /* Keys by whole windows of R tokens; values all but the last R. */
    k->whole = a->value ? a->tokens > residual ? a->tokens - residual : 0
                        : a->tokens / residual * residual;
    k->runs = k->whole * cols / k->group;
    k->words = tu_ceil_div(k->whole * cols * k->bits, 32);
    return 0;
}

/* Where element j of run r is: keys go down a channel, values along a token. */
static uint64_t kivi_at(const struct kivi *k, const struct tu_kv_array *a, uint64_t r,
                        uint64_t j)
{
    uint64_t cols = a->heads * a->dim;
    return a->value ? r * k->group + j : (r / cols * k->group + j) * cols + r % cols;
}

int tui_kivi_encode(const struct tu_kv_codec *row, const struct tu_spec *spec,
                    const struct tu_kv_array *a, const void *x, struct tu_kv_coded *out,
                    struct tu_err *err)
{
    struct kivi k;
    float *v = NULL;
    (void)row;
    int rc = kivi_plan(&k, spec, a, err);
    if (!rc)
        rc = tui_finite(a, x, &v, err);
    uint64_t rest[3] = {rc ? 0 : a->tokens - k.whole, a->heads, a->dim};
    unsigned char *code = rc ? NULL : tui_part(out, NULL, TU_U32, &k.words, 1, err);
    uint16_t *scale = code ? tui_part(out, "scale", TU_F16, &k.runs, 1, err) : NULL;
    uint16_t *zero = scale ? tui_part(out, "zero", TU_F16, &k.runs, 1, err) : NULL;
    void *tail = zero ? tui_part(out, "rest", a->dtype, rest, 3, err) : NULL;
    if (!rc && !tail)
        rc = TU_ENOMEM;
    double top = rc ? 0 : (double)((1u << k.bits) - 1);
    for (uint64_t r = 0; !rc && r < k.runs; r++) {
        float lo = INFINITY, hi = -INFINITY;
        for (uint64_t j = 0; j < k.group; j++) {
            lo = fminf(lo, v[kivi_at(&k, a, r, j)]);
            hi = fmaxf(hi, v[kivi_at(&k, a, r, j)]);
        }
        scale[r] = tu_to_f16((float)(((double)hi - (double)lo) / top));
        zero[r] = tu_to_f16(lo);
        double s = (double)tu_from_f16(scale[r]), z = (double)tu_from_f16(zero[r]);
        for (uint64_t j = 0; j < k.group; j++) {
            uint64_t bit = (r * k.group + j) * k.bits;
            double q = s > 0 ? rint(((double)v[kivi_at(&k, a, r, j)] - z) / s) : 0;
            unsigned c = (unsigned)fmin(fmax(q, 0), top);
            code[bit / 8] |= (unsigned char)(c << bit % 8);
        }
    }
    if (!rc)
        memcpy(tail, (const char *)x + k.whole * a->heads * a->dim *
                                           tu_dtype_find(a->dtype)->block_bytes,
               (size_t)out->part[3].bytes);
    tu_free(v);
    return rc;
}

int tui_kivi_decode(const struct tu_kv_codec *row, const struct tu_spec *spec,
                    const struct tu_kv_array *a, const struct tu_kv_part *part, unsigned n,
                    void *out, struct tu_err *err)
{
    struct kivi k;
    (void)row;
    int rc = kivi_plan(&k, spec, a, err);
    uint64_t elem = tu_dtype_find(a->dtype)->block_bytes, cols = a->heads * a->dim;
    if (!rc && (n != 4 || part[0].bytes != 4 * k.words || part[1].bytes != 2 * k.runs ||
                part[2].bytes != 2 * k.runs ||
                part[3].bytes != (a->tokens - k.whole) * cols * elem))
        rc = tu_fail(err, TU_EFORMAT, "kivi: its parts do not fit the record");
    struct tu_kv_array coded = *a;
    coded.tokens = rc ? 0 : k.whole;
    float *v = rc ? NULL : tu_alloc((size_t)tui_elements(&coded), sizeof *v, err);
    if (!rc && !v)
        rc = TU_ENOMEM;
    const unsigned char *code = part[0].data, *scale = part[1].data, *zero = part[2].data;
    for (uint64_t r = 0; !rc && r < k.runs; r++) {
        float s = tu_from_f16(tu_le16(scale + 2 * r)), z = tu_from_f16(tu_le16(zero + 2 * r));
        for (uint64_t j = 0; j < k.group; j++) {
            uint64_t bit = (r * k.group + j) * k.bits;
            unsigned c = code[bit / 8] >> bit % 8 & ((1u << k.bits) - 1);
            v[kivi_at(&k, a, r, j)] = (float)c * s + z;
        }
    }
    if (!rc)
        rc = tui_store(&coded, v, out, err);
    if (!rc)
        memcpy((char *)out + k.whole * cols * elem, part[3].data, (size_t)part[3].bytes);
    tu_free(v);
    return rc;
}

/* CacheGen ------------------------------------------------------------------------------- */

struct cachegen {
    uint64_t bins, delta;
};

/* 32 bins in the first 10 key layers and the first 2 value layers, 16 elsewhere. */
static int cachegen_plan(struct cachegen *g, const struct tu_spec *spec,
                         const struct tu_kv_array *a, struct tu_err *err)
{
    uint64_t bins = a->layer < (a->value ? 2u : 10u) ? 32 : 16;
    int rc = tu_spec_u64(spec, "bins", bins, &g->bins, err);
    if (!rc)
        rc = tu_spec_u64(spec, "delta", 0, &g->delta, err);
    if (!rc && (g->bins < 4 || g->bins > 256 || g->bins % 2))
        rc = tu_fail(err, TU_EUSAGE, "cachegen: bins=%" PRIu64 " is not even from 4 to 256",
                     g->bins);
    return rc;
}

/* The value that token t is told against: the first of its run of `delta` tokens. */
static float anchor(const struct cachegen *g, const float *v, uint64_t t, uint64_t c,
                    uint64_t cols)
{
    return g->delta && t % g->delta ? v[t / g->delta * g->delta * cols + c] : 0;
}

int tui_cachegen_encode(const struct tu_kv_codec *row, const struct tu_spec *spec,
                        const struct tu_kv_array *a, const void *x, struct tu_kv_coded *out,
                        struct tu_err *err)
{
    struct cachegen g;
    uint64_t cols = a->heads * a->dim, n = tui_elements(a);
    float *v = NULL;
    (void)row;
    int rc = cachegen_plan(&g, spec, a, err);
    if (!rc)
        rc = tui_finite(a, x, &v, err);
    uint64_t room = rc ? 0 : 1 + tui_huff_bound((size_t)n);
    uint8_t *code = rc ? NULL : tui_part(out, NULL, TU_U8, &room, 1, err);
    float *most = code ? tui_part(out, "scale", TU_F32, &a->tokens, 1, err) : NULL;
    uint8_t *q = most ? tu_alloc((size_t)n, 1, err) : NULL;
    if (!rc && !q)
        rc = TU_ENOMEM;
    float half = rc ? 0 : (float)(g.bins / 2 - 1);
    for (uint64_t t = 0; !rc && t < a->tokens; t++) {
        float *x_t = v + t * cols;
        for (uint64_t c = 0; c < cols; c++)
            most[t] = fmaxf(most[t], fabsf(x_t[c] - anchor(&g, v, t, c, cols)));
        for (uint64_t c = 0; c < cols; c++) { /* by channel: alike bytes together */
            float r = most[t] > 0
                          ? rintf((x_t[c] - anchor(&g, v, t, c, cols)) * half / most[t])
                          : 0;
            q[c * a->tokens + t] = (uint8_t)(r + half);
            /* The next tokens must see what decoding will give. */
            x_t[c] = anchor(&g, v, t, c, cols) + r * most[t] / half;
        }
    }
    if (!rc) {
        size_t size = tui_huff_encode(q, (size_t)n, code + 1);
        code[0] = size != 0;
        if (!size)
            memcpy(code + 1, q, (size_t)n);
        out->part[0].bytes = out->part[0].dim[0] = 1 + (size ? size : n);
    }
    tu_free(v);
    tu_free(q);
    return rc;
}

int tui_cachegen_decode(const struct tu_kv_codec *row, const struct tu_spec *spec,
                        const struct tu_kv_array *a, const struct tu_kv_part *part, unsigned n,
                        void *out, struct tu_err *err)
{
    struct cachegen g;
    uint64_t cols = a->heads * a->dim, all = tui_elements(a);
    (void)row;
    int rc = cachegen_plan(&g, spec, a, err);
    if (!rc && (n != 2 || part[0].bytes < 1 || part[1].bytes != 4 * a->tokens))
        rc = tu_fail(err, TU_EFORMAT, "cachegen: its parts do not fit the record");
    uint8_t *q = rc ? NULL : tu_alloc((size_t)all, 1, err);
    float *v = q ? tu_alloc((size_t)all, sizeof *v, err) : NULL;
    if (!rc && !v)
        rc = TU_ENOMEM;
    const uint8_t *code = part[0].data;
    if (!rc && code[0] == 1 &&
        !tui_huff_decode(code + 1, (size_t)part[0].bytes - 1, q, (size_t)all))
        rc = tu_fail(err, TU_EFORMAT, "cachegen: malformed codes");
    else if (!rc && code[0] != 1 && part[0].bytes - 1 != all)
        rc = tu_fail(err, TU_EFORMAT, "cachegen: %" PRIu64 " codes for %" PRIu64 " numbers",
                     part[0].bytes - 1, all);
    else if (!rc && code[0] != 1)
        memcpy(q, code + 1, (size_t)all);
    float half = rc ? 0 : (float)(g.bins / 2 - 1), most;
    for (uint64_t t = 0; !rc && t < a->tokens; t++) {
        memcpy(&most, (const char *)part[1].data + 4 * t, 4);
        for (uint64_t c = 0; c < cols; c++)
            v[t * cols + c] = anchor(&g, v, t, c, cols) +
                              ((float)q[c * a->tokens + t] - half) * most / half;
    }
    if (!rc)
        rc = tui_store(a, v, out, err);
    tu_free(q);
    tu_free(v);
    return rc;
}

/* Codecs of lib/quant ---------------------------------------------------------------------- */

/* The spec that the row stands for; per head where columns are put in order. */
static int based_spec(const struct tu_kv_codec *row, const struct tu_spec *spec,
                      const struct tu_kv_array *a, struct tu_spec *out, struct tu_err *err)
{
    char text[160];
    const char *elem = tu_spec_get(spec, "elem"), *order = tu_spec_get(spec, "order");
    uint64_t group, other;
    int rc = tu_spec_u64(spec, "group", tu_min(a->dim, 128), &group, err);
    if (!rc)
        rc = tu_spec_u64(spec, "block", tu_min(a->dim, 32), &other, err);
    if (rc)
        return rc;
    if (!strcmp(row->base, "kv4"))
        snprintf(text, sizeof text, "int4:group=%" PRIu64 ",asym", group);
    else if (!strcmp(row->base, "fmpq")) {
        uint64_t wide;
        if ((rc = tu_spec_u64(spec, "wide", 1, &wide, err)))
            return rc;
        group = tu_spec_get(spec, "group") ? group : tu_min(a->dim / 2, 32);
        snprintf(text, sizeof text, "fmpq:group=%" PRIu64 ",wide=%" PRIu64, group, wide);
    } else if (!strcmp(row->base, "bfp")) {
        uint64_t bits;
        if ((rc = tu_spec_u64(spec, "bits", 4, &bits, err)))
            return rc;
        snprintf(text, sizeof text, "bfp:bits=%" PRIu64 ",block=%" PRIu64 "%s%s", bits, other,
                 order && !strcmp(order, "none") ? "" : ",order=",
                 order && !strcmp(order, "none") ? "" : order ? order : "asc");
    } else
        snprintf(text, sizeof text, "%s%s%s", row->base, elem ? ":elem=" : "",
                 elem ? elem : "");
    return tu_spec_parse(out, text, err);
}

static bool per_head(const struct tu_kv_codec *row)
{
    return !strcmp(row->base, "bfp") || !strcmp(row->base, "fmpq");
}

static int based_plan(struct tu_coding *c, const struct tu_kv_codec *row,
                      const struct tu_spec *spec, const struct tu_kv_array *a,
                      uint64_t *units, struct tu_err *err)
{
    struct tu_spec base;
    uint64_t dim[2] = {a->tokens * a->heads, a->dim};
    *units = 1;
    if (per_head(row)) {
        dim[0] = a->tokens;
        *units = a->heads;
    }
    int rc = based_spec(row, spec, a, &base, err);
    if (rc)
        return rc;
    *c = (struct tu_coding){.compat = false};
    rc = tu_coding_init(c, &base, dim, 2, err);
    tu_spec_release(&base);
    if (!rc && c->sides + 1 > TU_KV_CODED_PARTS)
        rc = tu_fail(err, TU_EBUG, "codec '%s' has too many parts", row->name);
    return rc;
}

/* Columns of one head between the array and rows of their own. */
static void one_head(const struct tu_kv_array *a, float *all, float *rows, uint64_t h, bool put)
{
    for (uint64_t t = 0; t < a->tokens; t++) {
        float *x = all + (t * a->heads + h) * a->dim, *y = rows + t * a->dim;
        memcpy(put ? x : y, put ? y : x, (size_t)a->dim * sizeof *x);
    }
}

int tui_based_encode(const struct tu_kv_codec *row, const struct tu_spec *spec,
                     const struct tu_kv_array *a, const void *x, struct tu_kv_coded *out,
                     struct tu_err *err)
{
    struct tu_coding c;
    uint64_t units, dim;
    float *v = NULL, *rows = NULL;
    unsigned char *part[1 + TU_CODING_SIDES] = {NULL};
    int rc = based_plan(&c, row, spec, a, &units, err);
    if (!rc)
        rc = tui_finite(a, x, &v, err);
    if (!rc && !(rows = tu_alloc((size_t)c.elements, sizeof *rows, err)))
        rc = TU_ENOMEM;
    for (unsigned k = 0; !rc && k < c.sides + 1; k++) {
        const struct tu_part *p = k ? &c.side[k - 1] : &c.code;
        dim = p->bytes * units;
        if (!(part[k] = tui_part(out, p->suffix, TU_U8, &dim, 1, err)))
            rc = TU_ENOMEM;
    }
    for (uint64_t u = 0; !rc && u < units; u++) {
        void *side[TU_CODING_SIDES] = {NULL};
        for (unsigned k = 0; k < c.sides; k++)
            side[k] = part[k + 1] + u * c.side[k].bytes;
        if (units > 1)
            one_head(a, v, rows, u, false);
        struct tu_coding each = c;
        rc = tu_coding_encode_mem(&each, units > 1 ? rows : v, part[0] + u * c.code.bytes, side,
                                  NULL, err);
    }
    tu_free(v);
    tu_free(rows);
    return rc;
}

int tui_based_decode(const struct tu_kv_codec *row, const struct tu_spec *spec,
                     const struct tu_kv_array *a, const struct tu_kv_part *part, unsigned n,
                     void *out, struct tu_err *err)
{
    struct tu_coding c;
    uint64_t units;
    float *v = NULL, *rows = NULL;
    int rc = based_plan(&c, row, spec, a, &units, err);
    for (unsigned k = 0; !rc && k < c.sides + 1; k++)
        if (n != c.sides + 1 ||
            part[k].bytes != units * (k ? c.side[k - 1].bytes : c.code.bytes))
            rc = tu_fail(err, TU_EFORMAT, "%s: its parts do not fit the record", row->name);
    if (!rc && (!(v = tu_alloc((size_t)tui_elements(a), sizeof *v, err)) ||
                !(rows = tu_alloc((size_t)c.elements, sizeof *rows, err))))
        rc = TU_ENOMEM;
    for (uint64_t u = 0; !rc && u < units; u++) {
        const void *side[TU_CODING_SIDES] = {NULL};
        for (unsigned k = 0; k < c.sides; k++)
            side[k] = (const char *)part[k + 1].data + u * c.side[k].bytes;
        rc = tu_coding_decode_mem(&c, (const char *)part[0].data + u * c.code.bytes, side,
                                  units > 1 ? rows : v, NULL, err);
        if (!rc && units > 1)
            one_head(a, v, rows, u, true);
    }
    if (!rc)
        rc = tui_store(a, v, out, err);
    tu_free(v);
    tu_free(rows);
    return rc;
}
