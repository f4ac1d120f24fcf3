/* SPDX-License-Identifier: Apache-2.0 */
/* cases.h: random problems of softmax attention, the same on every run. A case sets
 * case_seed before it draws; memory is handed out and forgotten with the next case. */
#ifndef TESTS_UNIT_ATTN_CASES_H
#define TESTS_UNIT_ATTN_CASES_H

#include "kit.h"

enum { CASE_ROOM = 64 << 20 };
static unsigned char case_memory[CASE_ROOM];
static size_t case_used;
static uint64_t case_draws;

/* A case of its own, whatever was drawn before. */
static inline void case_seed(uint64_t seed)
{
    case_draws = seed;
    case_used = 0;
}

/* 0 … n-1 */
static inline uint64_t pick(uint64_t n)
{
    struct tu_rng r = {20260, 7};
    return tu_rng_u32(&r, case_draws++) % n;
}

static inline bool one_in(uint64_t n)
{
    return pick(n) == 0;
}

/* n zero bytes. */
static inline void *room(size_t n)
{
    void *p = case_memory + case_used;
    case_used += (n + 63) / 64 * 64;
    if (case_used > CASE_ROOM)
        abort();
    memset(p, 0, n);
    return p;
}

static inline void normal(struct kit *k, const char *name, uint32_t dtype, unsigned rank,
                          uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t n = a * (rank > 1 ? b : 1) * (rank > 2 ? c : 1) * (rank > 3 ? d : 1);
    float *wide = room(n * 4);
    struct tu_rng r = {case_draws, tu_rng_stream(name)};
    tu_rng_normal(&r, 0, wide, n);
    void *data = room(n * 4);
    if (tu_cast(dtype, data, TU_F32, wide, n, NULL))
        abort();
    kit_add(k, name, dtype, rank, a, b, c, d, data);
}

/* Three of four are true. */
static inline void bits(struct kit *k, const char *name, uint64_t a, uint64_t b,
                        uint64_t c, uint64_t d)
{
    uint8_t *v = room(a * b * c * d);
    for (uint64_t i = 0; i < a * b * c * d; i++)
        v[i] = pick(4) != 0;
    kit_add(k, name, TU_BOOL, 4, a, b, c, d, v);
}

/* Lengths 0 … max of b sequences. */
static inline void lengths(struct kit *k, const char *name, uint64_t b, uint64_t max)
{
    int32_t *v = room(b * 4);
    for (uint64_t i = 0; i < b; i++)
        v[i] = (int32_t)pick(max + 1);
    kit_add(k, name, TU_I32, 1, b, 0, 0, 0, v);
}

/* How large a packed problem may be. */
struct case_limits {
    uint64_t batch, group, dim, queries, keys, page, pages;
};

/* Packed sequences, and packed queries against pages. */
static inline void packed(struct kit *k, uint32_t dtype, bool paged,
                          const struct case_limits *l)
{
    uint64_t b = 1 + pick(l->batch), hkv = 1 + pick(2), hq = hkv * (1 + pick(l->group));
    uint64_t d = 1 + pick(l->dim), dv = 1 + pick(l->dim), page = 1 + pick(l->page);
    int32_t *cq = room((b + 1) * 4), *ck = room((b + 1) * 4), *len = room(b * 4);
    int32_t *table = room(b * l->pages * 4);
    for (uint64_t i = 0; i < b; i++) {
        cq[i + 1] = cq[i] + (int32_t)pick(l->queries);
        len[i] = (int32_t)pick(paged ? l->pages * page + 1 : l->keys);
        ck[i + 1] = ck[i] + len[i];
    }
    for (uint64_t i = 0; i < b * l->pages; i++)
        table[i] = i % l->pages * page < (uint64_t)len[i / l->pages] ? (int32_t)pick(9) : -1;
    uint64_t tq = (uint64_t)cq[b], tk = (uint64_t)ck[b];
    normal(k, "q", dtype, 3, tq, hq, d, 0);
    if (paged) {
        normal(k, "k", dtype, 4, 9, page, hkv, d);
        normal(k, "v", dtype, 4, 9, page, hkv, dv);
        kit_add(k, "block_table", TU_I32, 2, b, l->pages, 0, 0, table);
        kit_add(k, "seqlens_k", TU_I32, 1, b, 0, 0, 0, len);
    } else {
        normal(k, "k", dtype, 3, tk, hkv, d, 0);
        normal(k, "v", dtype, 3, tk, hkv, dv, 0);
        kit_add(k, "cu_seqlens_k", TU_I32, 1, b + 1, 0, 0, 0, ck);
    }
    normal(k, "do", dtype, 3, tq, hq, dv, 0);
    kit_add(k, "cu_seqlens_q", TU_I32, 1, b + 1, 0, 0, 0, cq);
    if (one_in(5))
        normal(k, "sinks", TU_F32, 1, hq, 0, 0, 0);
}

/* Infer, give room for the results (float64's in f64, but for gradients that are sums and
 * f32 everywhere), run. */
static inline int case_run(const struct tu_mixer *row, struct tu_mixer_args *m, bool wide,
                           struct tu_err *err)
{
    int code = row->infer(m, err);
    for (size_t i = 0; !code && i < m->n_out; i++) {
        struct tu_operand *o = &m->out[i];
        static const char *const sums[] = {"dsink", "dbias", "ddt", "dA", "dB", "dC", "dD"};
        bool grad = false;
        uint64_t n;
        for (unsigned t = 0; t < sizeof sums / sizeof *sums; t++)
            grad = grad || !strcmp(o->name, sums[t]);
        o->dtype = wide && !grad ? TU_F64 : TU_F32;
        code = tu_elements(o->dim, o->rank, &n, err);
        o->data = room(n * 8);
    }
    return code ? code : row->run(m, err);
}

/* The largest difference, over the largest value where that is above 1; INFINITY where
 * one is not finite and the other is another. `where` [64] tells of it. */
static inline double case_worst(const struct tu_mixer_args *x,
                                const struct tu_mixer_args *ref, char *where)
{
    double most = 0;
    for (size_t i = 0; i < x->n_out; i++) {
        uint64_t n;
        if (tu_elements(x->out[i].dim, x->out[i].rank, &n, NULL))
            return INFINITY;
        double *a = room(n * 8), *b = room(n * 8), top = 1;
        if (tu_to_double(x->out[i].dtype, x->out[i].data, a, n, NULL) ||
            tu_to_double(ref->out[i].dtype, ref->out[i].data, b, n, NULL))
            return INFINITY;
        for (uint64_t t = 0; t < n; t++)
            top = isfinite(b[t]) && fabs(b[t]) > top ? fabs(b[t]) : top;
        for (uint64_t t = 0; t < n; t++) {
            bool same = a[t] == b[t] || (isnan(a[t]) && isnan(b[t]));
            double e = same ? 0 : fabs(a[t] - b[t]) / top;
            if (!(e <= most)) {
                most = isfinite(e) ? e : INFINITY;
                snprintf(where, 64, "%s[%d] %g, not %g", x->out[i].name, (int)t, a[t], b[t]);
            }
        }
    }
    return most;
}

#endif
