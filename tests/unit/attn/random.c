/* SPDX-License-Identifier: Apache-2.0 */
/* random.c: every kernel of this CPU against float64 over random products of masks,
 * heads, lengths, dims, dtypes, tiles and schemes. 300 cases; with SLOW in the
 * environment 5,000. */
#include "cases.h"

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
    if (one_in(6))
        normal(k, "dlse", TU_F32, 3, b, hq, sq, 0);
}

/* Run a form of the row; outputs in f32, or f64 for the reference. */
static bool run(struct tu_mixer_args *m, const struct kit *k, int pass, const char *algo,
                bool wide)
{
    const struct tu_mixer *row = tu_mixer_find("softmax");
    struct tu_err err = {0};
    *m = (struct tu_mixer_args){
        .opt = &k->opt, .in = k->in, .n_in = k->n, .pass = pass, .algo = algo};
    int code = case_run(row, m, wide, &err);
    if (code)
        printf("# %s\n", err.msg);
    return !code;
}

static bool one(unsigned n)
{
    static const struct case_limits limits = {
        .batch = 4, .group = 4, .dim = 48, .queries = 40, .keys = 90, .page = 20, .pages = 6};
    static const uint32_t dtypes[] = {TU_F32, TU_F32, TU_BF16, TU_F16, TU_F8_E4M3FN};
    uint32_t dtype = dtypes[pick(5)];
    struct kit k = {0};
    struct tu_mixer_args fast, ref;
    char where[64] = "";
    case_seed(case_draws); /* goes on: each instruction set has cases of its own */
    tu_attn_opts_init(&k.opt);
    options(&k.opt);
    uint64_t kind = pick(4);
    if (kind < 2)
        dense(&k, dtype);
    else
        packed(&k, dtype, kind == 3, &limits);
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
    double e = case_worst(&fast, &ref, where);
    if (!(e <= tol))
        printf("# case %u: error %g in %s (%s, %s)\n", n, e, where, algo,
               tu_dtype_find(dtype)->name);
    return e <= tol;
}

int main(void)
{
    static const char *const isa[] = {"amx", "avx512", "avx2", "scalar"};
    unsigned cases = getenv("SLOW") ? 5000 : 300;
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
    return tap_done();
}
