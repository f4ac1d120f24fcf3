/* SPDX-License-Identifier: Apache-2.0 */
/* random.c: every kernel of this CPU against float64 over random products of masks,
 * heads, lengths, dims, dtypes, tiles and schemes. 300 cases; with SLOW in the
 * environment 5,000. */
#include "kit.h"

static uint64_t draws;

/* 0 … n-1 */
static uint64_t pick(uint64_t n)
{
    struct tu_rng r = {20260, 7};
    return tu_rng_u32(&r, draws++) % n;
}

static bool one_in(uint64_t n)
{
    return pick(n) == 0;
}

enum { ROOM = 1 << 20 };

/* Memory of one case: handed out and forgotten. */
static unsigned char *pool;
static size_t used;

static void *room(size_t n)
{
    void *p = pool + used;
    used += (n + 63) / 64 * 64;
    if (used > 64 * (size_t)ROOM)
        abort();
    memset(p, 0, n);
    return p;
}

static void normal(struct kit *k, const char *name, uint32_t dtype, unsigned rank,
                   uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t n = a * (rank > 1 ? b : 1) * (rank > 2 ? c : 1) * (rank > 3 ? d : 1);
    float *wide = room(n * 4);
    struct tu_rng r = {draws, tu_rng_stream(name)};
    tu_rng_normal(&r, 0, wide, n);
    void *data = room(n * 4);
    if (tu_cast(dtype, data, TU_F32, wide, n, NULL))
        abort();
    kit_add(k, name, dtype, rank, a, b, c, d, data);
}

static void bits(struct kit *k, const char *name, uint64_t a, uint64_t b, uint64_t c,
                 uint64_t d)
{
    uint8_t *v = room(a * b * c * d);
    for (uint64_t i = 0; i < a * b * c * d; i++)
        v[i] = pick(4) != 0;
    kit_add(k, name, TU_BOOL, 4, a, b, c, d, v);
}

static void options(struct tu_attn_opts *o)
{
    if (one_in(2))
        o->causal = one_in(3) ? TU_CAUSAL_TL : TU_CAUSAL_BR;
    if (one_in(4)) {
        o->left = (int64_t)pick(40) - 1;
        o->right = (int64_t)pick(20) - 1;
    }
    if (one_in(5))
        o->sink_tokens = pick(4);
    if (one_in(6))
        o->chunk = 1 + pick(20);
    if (one_in(5))
        o->softcap = 1 + (double)pick(5);
    o->alibi = one_in(5);
    if (one_in(6))
        o->dropout = 0.1 * (double)(1 + pick(5));
    o->seed = pick(1000);
    if (one_in(4))
        o->scale = one_in(3) ? -0.3 : 0.2;
    if (one_in(2)) {
        o->tile_q = 1 + pick(80);
        o->tile_k = 1 + pick(80);
    }
    if (one_in(3))
        o->splits = 1 + pick(5);
}

static void lengths(struct kit *k, const char *name, uint64_t b, uint64_t max)
{
    int32_t *v = room(b * 4);
    for (uint64_t i = 0; i < b; i++)
        v[i] = (int32_t)pick(max + 1);
    kit_add(k, name, TU_I32, 1, b, 0, 0, 0, v);
}

/* Dense sequences: [B, S, H, D] or [B, H, S, D], with what may stand beside. */
static void dense(struct kit *k, uint32_t dtype)
{
    uint64_t b = 1 + pick(2), hkv = 1 + pick(3), hq = hkv * (1 + pick(3)), sq = pick(80);
    uint64_t sk = pick(one_in(4) ? 700 : 100), d = 1 + pick(48), dv = 1 + pick(48);
    bool t = one_in(3);
    k->opt.layout = t ? TU_ATTN_BHSD : TU_ATTN_BSHD;
    if (one_in(3))
        sq = 1 + pick(2);
    normal(k, "q", dtype, 4, b, t ? hq : sq, t ? sq : hq, d);
    normal(k, "k", dtype, 4, b, t ? hkv : sk, t ? sk : hkv, d);
    normal(k, "v", dtype, 4, b, t ? hkv : sk, t ? sk : hkv, dv);
    normal(k, "do", dtype, 4, b, t ? hq : sq, t ? sq : hq, dv);
    if (one_in(5))
        bits(k, "mask", one_in(2) ? b : 1, one_in(2) ? hq : 1, sq, sk);
    if (one_in(6))
        normal(k, "bias", TU_F32, 4, one_in(2) ? b : 1, one_in(2) ? hq : 1,
               one_in(2) ? sq : 1, sk);
    if (one_in(6) && sq && sk) {
        uint64_t bq = 1 + pick(20), bk = 1 + pick(20);
        k->opt.mask_q = bq;
        k->opt.mask_k = bk;
        bits(k, "block_mask", one_in(2) ? b : 1, one_in(2) ? hq : 1, (sq + bq - 1) / bq,
             (sk + bk - 1) / bk);
    }
    if (one_in(5))
        normal(k, "sinks", TU_F32, 1, hq, 0, 0, 0);
    if (one_in(6))
        lengths(k, "seqlens_k", b, sk);
    else if (one_in(6))
        lengths(k, "leftpad", b, sk);
    if (one_in(6))
        lengths(k, "prefix", b, sk);
    if (one_in(6) && sk) {
        int32_t *doc = room(b * sk * 4);
        for (uint64_t i = 0; i < b * sk; i++)
            doc[i] = i % sk ? doc[i - 1] + (int32_t)one_in(9) : 0;
        kit_add(k, "doc_ids", TU_I32, 2, b, sk, 0, 0, doc);
    }
    if (one_in(6)) {
        normal(k, "dlse", TU_F32, 3, b, hq, sq, 0);
    }
}

/* Packed sequences, and packed queries against pages. */
static void packed(struct kit *k, uint32_t dtype, bool paged)
{
    uint64_t b = 1 + pick(4), hkv = 1 + pick(2), hq = hkv * (1 + pick(4)),
             d = 1 + pick(48);
    uint64_t dv = 1 + pick(48), page = 1 + pick(20), most = 6;
    int32_t *cq = room((b + 1) * 4), *ck = room((b + 1) * 4), *len = room(b * 4);
    int32_t *table = room(b * most * 4);
    for (uint64_t i = 0; i < b; i++) {
        cq[i + 1] = cq[i] + (int32_t)pick(40);
        len[i] = (int32_t)pick(paged ? most * page + 1 : 90);
        ck[i + 1] = ck[i] + len[i];
    }
    for (uint64_t i = 0; i < b * most; i++)
        table[i] = i % most * page < (uint64_t)len[i / most] ? (int32_t)pick(9) : -1;
    uint64_t tq = (uint64_t)cq[b], tk = (uint64_t)ck[b];
    normal(k, "q", dtype, 3, tq, hq, d, 0);
    if (paged) {
        normal(k, "k", dtype, 4, 9, page, hkv, d);
        normal(k, "v", dtype, 4, 9, page, hkv, dv);
        kit_add(k, "block_table", TU_I32, 2, b, most, 0, 0, table);
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

/* Run a form of the row; outputs in f32, or f64 for the reference. */
static bool run(struct tu_mixer_args *m, const struct kit *k, int pass, const char *algo,
                bool wide)
{
    const struct tu_mixer *row = tu_mixer_find("softmax");
    struct tu_err err = {0};
    *m = (struct tu_mixer_args){
        .opt = &k->opt, .in = k->in, .n_in = k->n, .pass = pass, .algo = algo};
    int code = row->infer(m, &err);
    for (size_t i = 0; !code && i < m->n_out; i++) {
        struct tu_operand *o = &m->out[i];
        bool grad = !strcmp(o->name, "dsink") || !strcmp(o->name, "dbias");
        uint64_t n;
        o->dtype = wide && !grad ? TU_F64 : TU_F32;
        code = tu_elements(o->dim, o->rank, &n, &err);
        o->data = room(n * 8);
    }
    if (!code)
        code = row->run(m, &err);
    if (code)
        printf("# %s\n", err.msg);
    return !code;
}

static double worst(const struct tu_mixer_args *x, const struct tu_mixer_args *ref,
                    char *where)
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
                snprintf(where, 64, "%s[%d] %g, not %g", x->out[i].name, (int)t, a[t],
                         b[t]);
            }
        }
    }
    return most;
}

static bool one(unsigned n)
{
    static const uint32_t dtypes[] = {TU_F32, TU_F32, TU_BF16, TU_F16, TU_F8_E4M3FN};
    uint32_t dtype = dtypes[pick(5)];
    struct kit k = {0};
    struct tu_mixer_args fast, ref;
    char where[64] = "";
    used = 0;
    tu_attn_opts_init(&k.opt);
    options(&k.opt);
    uint64_t kind = pick(4);
    if (kind < 2)
        dense(&k, dtype);
    else
        packed(&k, dtype, kind == 3);
    if (one_in(4))
        k.opt.compute = one_in(2) ? TU_F32 : TU_BF16;
    int pass = one_in(2) && kind != 3 ? TU_PASS_BOTH : TU_PASS_FWD;
    static const char *const form[] = {"tiles",  "tiles",  "tiles",
                                       "online", "naive2", "naive3"};
    const char *algo = form[pick(6)];
    bool narrow = k.opt.compute ? k.opt.compute == TU_BF16
                                : dtype == TU_BF16 || dtype == TU_F8_E4M3FN;
    double tol = narrow ? 4e-2 : 1e-5;
    if (!run(&fast, &k, pass, algo, false) || !run(&ref, &k, pass, "ref", true))
        return false;
    double e = worst(&fast, &ref, where);
    if (!(e <= tol))
        printf("# case %u: error %g in %s (%s, %s)\n", n, e, where, algo,
               tu_dtype_find(dtype)->name);
    return e <= tol;
}

int main(void)
{
    static const char *const isa[] = {"amx", "avx512", "avx2", "scalar"};
    unsigned cases = getenv("SLOW") ? 5000 : 300;
    pool = malloc(64 * (size_t)ROOM);
    if (!pool)
        return 1;
    for (unsigned i = 0; i < 4; i++) {
        struct tu_err err;
        if (tu_cpu_narrow(isa[i], &err)) {
            tap_skip(isa[i], "this CPU has it not");
            continue;
        }
        unsigned bad = 0;
        for (unsigned n = 0; n < cases / 4; n++)
            bad += !one(n);
        ok(!bad, "%s: %u random cases against float64", isa[i], cases / 4);
    }
    free(pool);
    return tap_done();
}
