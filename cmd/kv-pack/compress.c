/* SPDX-License-Identifier: Apache-2.0 */
/* compress.c: kv-pack compress: codecs for keys and values, fewer tokens, and what they
 * cost at the attention output. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kv-pack/pack.h"

static struct {
    const char *codec, *codec_v, *keep;
    double ratio;
    uint64_t keep_tokens, queries;
} opt = {.codec = "planes", .ratio = 0.5, .queries = 16};

static const struct tu_opt options[] = {
    {'c', "codec", "CODEC[:KEY=VALUE,...]", "for keys and values; default: planes",
     TU_OPT_STRING, &opt.codec, NULL, 0},
    {0, "codec-v", "CODEC[:KEY=VALUE,...]", "another one for values", TU_OPT_STRING,
     &opt.codec_v, NULL, 0},
    {0, "keep", "KEEP[:KEY=VALUE,...]", "first leave out tokens", TU_OPT_STRING, &opt.keep,
     NULL, 0},
    {0, "ratio", "R", "fraction of tokens to leave out; default: 0.5", TU_OPT_DOUBLE,
     &opt.ratio, NULL, 0},
    {0, "keep-tokens", "N", "tokens to keep, in place of --ratio", TU_OPT_U64,
     &opt.keep_tokens, NULL, 0},
    {0, "queries", "N", "queries a head for the report, where no record q.N gives them",
     TU_OPT_U64, &opt.queries, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"layer", "LAYER", TU_COL_U64, 0},        {"head", "HEAD", TU_COL_U64, 0},
    {"ratio", "RATIO", TU_COL_REAL, 0},       {"k_rel", "K_REL", TU_COL_REAL, 0},
    {"v_rel", "V_REL", TU_COL_REAL, 0},       {"k_max", "K_MAX", TU_COL_REAL, 0},
    {"v_max", "V_MAX", TU_COL_REAL, 0},       {"output_rel", "OUT_REL", TU_COL_REAL, 0},
    {"kl", "KL", TU_COL_REAL, 0},             {"top1", "TOP1", TU_COL_REAL, 0}, {0},
};

/* One cache on its way. */
struct run {
    struct tu_ctx *ctx;
    struct tu_kv *kv;
    struct tu_writer *w;
    struct tu_spec spec[TU_KV_SIDES];
    uint64_t *keep, kept; /* NULL: all tokens */
    bool report;
    float *exact[TU_KV_SIDES], *ours[TU_KV_SIDES]; /* of the layer at hand */
    uint64_t raw, coded; /* bytes, of the layer at hand and in all */
    uint64_t all_raw, all_coded;
    double worst;
    uint64_t worst_layer, worst_head;
};

static struct tu_kv_array array_of(const struct tu_kv *kv, size_t i, enum tu_kv_side side,
                                   uint64_t layer)
{
    struct tu_kv_array a = {.dtype = kv->tensor[i].dtype, .tokens = kv->tensor[i].dim[0],
                            .value = side == TU_KV_V, .layer = layer};
    tu_kv_dims(kv, i, &a.heads, &a.dim);
    return a;
}

static int quant_meta(struct tu_buf *out, const char *name, const struct tu_kv_coded *c,
                      const char *scheme, const struct tu_tensor *t, struct tu_err *err)
{
    char dtype[8], side[160];
    json_t *q = json_object(), *shape = json_array(), *o = json_object();
    bool bad = !q || !shape || !o;
    for (unsigned i = 0; !bad && i < t->rank; i++)
        bad = json_array_append_new(shape, json_integer((json_int_t)t->dim[i])) != 0;
    bad = bad || json_object_set_new(q, "scheme", json_string(scheme)) ||
          json_object_set_new(q, "dtype", json_string(tu_dtype_text(t->dtype, dtype))) ||
          json_object_set(q, "shape", shape);
    for (unsigned i = 1; !bad && i < c->n; i++) {
        snprintf(side, sizeof side, "%s.%s", name, c->part[i].suffix);
        bad = json_object_set_new(q, c->part[i].suffix, json_string(side)) != 0;
    }
    bad = bad || json_object_set(o, "quant", q);
    int rc = bad ? tu_fail(err, TU_ENOMEM, "no memory for metadata") : tu_json_dump(out, o, err);
    json_decref(q);
    json_decref(shape);
    json_decref(o);
    return rc;
}

static int write_parts(struct run *r, const struct tu_tensor *t, const struct tu_kv_coded *c,
                       const char *scheme, struct tu_err *err)
{
    struct tu_buf meta = {0};
    char name[160];
    int rc = quant_meta(&meta, t->name, c, scheme, t, err);
    for (unsigned i = 0; !rc && i < c->n; i++) {
        const struct tu_kv_part *p = &c->part[i];
        struct tu_tensor x = {.name = name, .dtype = p->dtype, .rank = p->rank, .dim = p->dim,
                              .bytes = p->bytes, .meta = i ? NULL : meta.data};
        snprintf(name, sizeof name, "%s%s%s", t->name, i ? "." : "", i ? p->suffix : "");
        rc = tu_writer_tensor(r->w, &x, p->data, err);
        r->coded += p->bytes;
    }
    tu_buf_release(&meta);
    return rc;
}

/* Leave out rows; the tensor's description follows. */
static void cut_rows(const struct run *r, struct tu_tensor *t, uint64_t dim[3], void *data)
{
    uint64_t row = t->dim[0] ? t->bytes / t->dim[0] : 0;
    if (!r->keep || t->dim[0] != r->kv->tokens)
        return;
    for (uint64_t i = 0; i < r->kept; i++)
        memmove((char *)data + i * row, (char *)data + r->keep[i] * row, (size_t)row);
    memcpy(dim, t->dim, t->rank * sizeof *dim);
    dim[0] = r->kept;
    t->dim = dim;
    t->bytes = r->kept * row;
}

static int compare_side(struct run *r, const struct tu_kv_array *a, enum tu_kv_side side,
                        const void *x, const struct tu_kv_coded *c, struct tu_err *err)
{
    uint64_t n = a->tokens * a->heads * a->dim;
    unsigned elem = tu_dtype_find(a->dtype)->block_bytes;
    void *back = tu_alloc((size_t)n, elem, err);
    r->exact[side] = tu_alloc((size_t)n, sizeof(float), err);
    r->ours[side] = tu_alloc((size_t)n, sizeof(float), err);
    int rc = back && r->exact[side] && r->ours[side] ? 0 : TU_ENOMEM;
    if (!rc)
        rc = tu_to_float(a->dtype, x, r->exact[side], (size_t)n, err);
    if (!rc)
        rc = tu_kv_decode(&r->spec[side], a, c->part, c->n, back, err);
    if (!rc)
        rc = tu_to_float(a->dtype, back, r->ours[side], (size_t)n, err);
    tu_free(back);
    return rc;
}

/* Rows of one head, by themselves. */
static void pick(const struct tu_kv_array *a, const float *all, uint64_t head, float *out)
{
    for (uint64_t t = 0; t < a->tokens; t++)
        memcpy(out + t * a->dim, all + (t * a->heads + head) * a->dim,
               (size_t)a->dim * sizeof *out);
}

/* Queries of a head: record q.N [queries, heads, D], or keys of the head itself at unit
 * norm times sqrt(D). */
static int queries_of(struct run *r, const struct tu_kv_array *a, uint64_t head, const float *k,
                      float **out, uint64_t *nq, struct tu_err *err)
{
    char name[40];
    snprintf(name, sizeof name, "q.%" PRIu64, a->layer);
    for (size_t i = 0; i < r->kv->n; i++) {
        const struct tu_tensor *t = &r->kv->tensor[i];
        if (strcmp(t->name, name) != 0 || t->rank != 3 || t->dim[2] != a->dim ||
            t->dim[1] % a->heads)
            continue;
        uint64_t group = t->dim[1] / a->heads, n = t->dim[0] * t->dim[1] * t->dim[2];
        void *data;
        float *x = tu_alloc((size_t)n, sizeof *x, err);
        int rc = x ? tu_kv_load(r->kv, i, &data, err) : TU_ENOMEM;
        if (!rc) {
            rc = tu_to_float(t->dtype, data, x, (size_t)n, err);
            tu_free(data);
        }
        *nq = t->dim[0] * group;
        for (uint64_t s = 0; !rc && s < *nq; s++) /* those of the head's group, to the front */
            memmove(x + s * a->dim,
                    x + (s / group * t->dim[1] + head * group + s % group) * a->dim,
                    (size_t)a->dim * sizeof *x);
        *out = x;
        return rc;
    }
    struct tu_rng g = {r->ctx->seed, a->layer << 16 | head};
    *nq = tu_min(opt.queries, a->tokens);
    if (!(*out = tu_alloc((size_t)(*nq * a->dim), sizeof **out, err)))
        return TU_ENOMEM;
    for (uint64_t i = 0; i < *nq; i++) {
        const float *x = k + tu_rng_u32(&g, i) % a->tokens * a->dim;
        double sum = 0;
        for (uint64_t c = 0; c < a->dim; c++)
            sum += (double)x[c] * (double)x[c];
        double scale = sum > 0 ? sqrt((double)a->dim / sum) : 0;
        for (uint64_t c = 0; c < a->dim; c++)
            (*out)[i * a->dim + c] = (float)((double)x[c] * scale);
    }
    return 0;
}

static int report_head(struct run *r, const struct tu_kv_array *k, const struct tu_kv_array *v,
                       uint64_t h, struct tu_err *err)
{
    uint64_t T = k->tokens, nq = 0;
    float *x = tu_alloc((size_t)(2 * T * (k->dim + v->dim)), sizeof *x, err), *q = NULL;
    struct tu_kv_loss l;
    if (!x)
        return TU_ENOMEM;
    float *k2 = x + T * k->dim, *v1 = k2 + T * k->dim, *v2 = v1 + T * v->dim;
    pick(k, r->exact[0], h, x);
    pick(k, r->ours[0], h, k2);
    pick(v, r->exact[1], h, v1);
    pick(v, r->ours[1], h, v2);
    int rc = queries_of(r, k, h, x, &q, &nq, err);
    if (!rc)
        rc = tu_kv_loss(&l, T, k->dim, v->dim, x, v1, k2, v2, q, nq,
                        1 / sqrt((double)k->dim), err);
    if (!rc) {
        if (!(l.out_rel <= r->worst)) {
            r->worst = l.out_rel;
            r->worst_layer = k->layer;
            r->worst_head = h;
        }
        tu_row(r->ctx, (const struct tu_cell[]){
                           {.u = k->layer},
                           {.u = h},
                           {.f = (double)r->raw / (double)tu_max(r->coded, 1)},
                           {.f = l.k_rel},
                           {.f = l.v_rel},
                           {.f = l.k_max},
                           {.f = l.v_max},
                           {.f = l.out_rel},
                           {.f = l.kl},
                           {.f = l.top1},
                       });
    }
    tu_free(x);
    tu_free(q);
    return rc;
}

static void forget(struct run *r)
{
    for (int s = 0; s < TU_KV_SIDES; s++) {
        tu_free(r->exact[s]);
        tu_free(r->ours[s]);
        r->exact[s] = r->ours[s] = NULL;
    }
    r->all_raw += r->raw;
    r->all_coded += r->coded;
    r->raw = r->coded = 0;
}

static int side(struct run *r, uint64_t layer, enum tu_kv_side s, struct tu_kv_array *a,
                struct tu_err *err)
{
    size_t i = tu_kv_record(r->kv, layer, s);
    struct tu_tensor t = r->kv->tensor[i];
    struct tu_kv_coded c = {0};
    uint64_t dim[3];
    void *x;
    int rc = tu_kv_load(r->kv, i, &x, err);
    if (rc)
        return rc;
    cut_rows(r, &t, dim, x);
    *a = array_of(r->kv, i, s, layer);
    a->tokens = t.dim[0];
    r->raw += t.bytes;
    rc = tu_kv_encode(&r->spec[s], a, x, &c, err);
    if (!rc)
        rc = write_parts(r, &t, &c, s == TU_KV_V && opt.codec_v ? opt.codec_v : opt.codec, err);
    if (!rc && r->report)
        rc = compare_side(r, a, s, x, &c, err);
    tu_kv_coded_release(&c);
    tu_free(x);
    if (rc)
        tu_err_prefix(err, "'%s'", t.name);
    return rc;
}

static int one_layer(struct run *r, uint64_t layer, struct tu_err *err)
{
    struct tu_kv_array a[TU_KV_SIDES] = {{0}};
    int rc = 0;
    for (int s = TU_KV_K; !rc && s < TU_KV_SIDES; s++)
        if (tu_kv_record(r->kv, layer, (enum tu_kv_side)s) != TU_KV_NONE)
            rc = side(r, layer, (enum tu_kv_side)s, &a[s], err);
    for (uint64_t h = 0; !rc && r->exact[0] && r->exact[1] && h < a[0].heads; h++)
        rc = report_head(r, &a[0], &a[1], h, err);
    forget(r);
    return rc;
}

/* Ids and positions of what stays. */
static int write_kept(struct run *r, struct tu_err *err)
{
    int32_t *v[2] = {NULL};
    static const char *const names[] = {"kv.tokens", "kv.pos"};
    int rc = r->kv->ids == TU_KV_NONE ? 0 : tu_kv_ids(r->kv, &v[0], err);
    if (!rc)
        rc = tu_kv_positions(r->kv, &v[1], err);
    for (int k = 0; !rc && k < 2; k++) {
        struct tu_tensor t = {.name = names[k], .dtype = TU_I32, .rank = 1, .dim = &r->kept,
                              .bytes = 4 * r->kept};
        for (uint64_t i = 0; v[k] && i < r->kept; i++)
            v[k][i] = v[k][r->keep[i]];
        if (v[k])
            rc = tu_writer_tensor(r->w, &t, v[k], err);
    }
    tu_free(v[0]);
    tu_free(v[1]);
    return rc;
}

static int write_record(struct run *r, size_t i, struct tu_err *err)
{
    void *x;
    int rc = tu_kv_load(r->kv, i, &x, err);
    if (!rc)
        rc = tu_writer_tensor(r->w, &r->kv->tensor[i], x, err);
    tu_free(x);
    return rc;
}

static int one_cache(struct run *r, struct tu_err *err)
{
    struct tu_kv *kv = r->kv;
    uint64_t layer;
    if (*kv->info.layout && strcmp(kv->info.layout, "nhd") != 0)
        return tu_fail(err, TU_EUSAGE, "%s: in layout '%s': kv-pack convert first", kv->name,
                       kv->info.layout);
    if (opt.keep)
        r->kept = opt.keep_tokens ? tu_min(opt.keep_tokens, kv->tokens)
                                  : (uint64_t)floor((double)kv->tokens * (1 - opt.ratio) + 1e-9);
    int rc = opt.keep ? kv_choose_tokens(kv, opt.keep, r->kept, &r->keep, err) : 0;
    if (!rc)
        rc = tu_kv_write_info(r->w, &kv->info, err);
    for (size_t i = 0; !rc && i < kv->metas; i++)
        rc = tu_writer_meta(r->w, kv->meta[i].topic, kv->meta[i].json, kv->meta[i].n, err);
    if (!rc && r->keep)
        rc = write_kept(r, err);
    for (size_t i = 0; !rc && i < kv->n; i++)
        if (!tu_kv_name(kv->tensor[i].name, &layer) &&
            !(r->keep && (i == kv->ids || i == kv->pos ||
                          !strncmp(kv->tensor[i].name, "llama.", 6))))
            rc = write_record(r, i, err);
    for (uint64_t l = 0; !rc && l < kv->info.layers; l++)
        rc = one_layer(r, l, err);
    if (!rc)
        rc = tu_writer_end(r->w, false, err);
    tu_free(r->keep);
    r->keep = NULL;
    if (rc)
        tu_err_prefix(err, "%s", kv->name);
    return rc;
}

static int run_compress(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_kv_set set = {0};
    struct run r = {.ctx = ctx, .report = tu_report_wanted(ctx), .worst = -1};
    if (!(opt.ratio >= 0 && opt.ratio < 1))
        return tu_usage(ctx, "compress: --ratio is from 0 to below 1");
    int rc = tu_spec_parse(&r.spec[0], opt.codec, &err);
    if (!rc)
        rc = tu_spec_parse(&r.spec[1], opt.codec_v ? opt.codec_v : opt.codec, &err);
    if (!rc)
        rc = kv_streams(argc, argv, &set, &err);
    if (!rc)
        rc = kv_writer(ctx, &r.w, &err);
    if (!rc && r.report)
        tu_rows_begin(ctx, columns);
    for (size_t i = 0; !rc && i < set.n; i++) {
        r.kv = set.kv[i];
        rc = one_cache(&r, &err);
    }
    double ratio = (double)r.all_raw / (double)tu_max(r.all_coded, 1);
    struct tu_jw *w = !rc && r.report ? tu_line_begin(ctx) : NULL;
    if (w) {
        tu_jw_real(w, "ratio_all", ratio);
        tu_jw_u64(w, "worst_layer", r.worst_layer);
        tu_jw_u64(w, "worst_head", r.worst_head);
        tu_jw_real(w, "worst_output_rel", r.worst);
        tu_line_end(ctx);
    }
    tu_note(ctx, 1, "%" PRIu64 " bytes in %" PRIu64 ", ratio %.4g", r.all_raw, r.all_coded, ratio);
    if (!rc && ratio <= 1)
        tu_warn(ctx, "codec %s has made nothing smaller: %" PRIu64 " bytes in %" PRIu64, opt.codec,
                r.all_raw, r.all_coded);
    for (int s = 0; s < 2; s++)
        if (r.spec[s].name)
            tu_spec_release(&r.spec[s]);
    tu_kv_set_release(&set);
    return kv_written(ctx, r.w, rc, &err);
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd kv_compress = {
    .name = "compress",
    .example = "kv-pack compress --codec kivi:bits=4 cache.tns -o small.tns",
    .summary = "make keys and values smaller, and report the loss at the attention output",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM,
    .max = TU_ANY,
    .run = run_compress,
};
