/* SPDX-License-Identifier: Apache-2.0 */
/* quantize encode and measure: tensors in, codes out, or their error alone. */
#include <inttypes.h>
#include <string.h>
#include "quantize/coded.h"
#include "quantize/coder.h"
#include "quantize/fallen.h"
#include "quantize/logits.h"
#include "quantize/meta.h"
#include "quantize/search.h"

static bool with_error;

struct held {
    char *topic;
    struct tu_buf text;
};

struct run {
    struct tu_ctx *ctx;
    struct input in;
    struct target target;  /* without a writer: measure only */
    struct coded coded;    /* an input that is codes, to be coded otherwise */
    struct fold *fold;
    struct state state;    /* with a writer: --state */
    bool measure;
    struct tu_measure total;
    struct fallen fallen;
    struct held *held;     /* META that is not yet written */
    size_t held_n, held_cap;
    unsigned sides_left; /* of codes that pass as they are */
    uint64_t from, to;   /* bytes */
    const struct tu_device *device; /* NULL: the CPU */
};

static const struct tu_column columns[] = {
    {"dtype", "FROM", TU_COL_TEXT, 0},
    {"type", "TYPE", TU_COL_TEXT, 0},
    {"bpw", "BPW", TU_COL_REAL, 0},
    {"rmse", "RMSE", TU_COL_REAL, 0},
    {"relative", "RELATIVE", TU_COL_REAL, 0},
    {"sqnr_db", "SQNR_DB", TU_COL_REAL, 0},
    {"max_abs", "MAX_ABS", TU_COL_REAL, 0},
    {"max_at", NULL, TU_COL_U64, 0},
    {"cosine", "COSINE", TU_COL_REAL, 0},
    {"bias", NULL, TU_COL_REAL, 0},
    {"clipped", NULL, TU_COL_REAL, 0},
    {"zeros", NULL, TU_COL_REAL, 0},
    {"nan", NULL, TU_COL_U64, 0},
    {"inf", NULL, TU_COL_U64, 0},
    {"replaced", NULL, TU_COL_U64, 0},
    {"fallback_from", NULL, TU_COL_TEXT, 0},
    {"why", NULL, TU_COL_TEXT, 0},
    {"bytes", NULL, TU_COL_U64, 0},
    {"name", "NAME", TU_COL_NAME, 0},
    {0},
};

static void tell(struct run *r, const char *name, const char *dtype, const struct task *t,
                 uint64_t bytes, uint64_t replaced, const struct tu_measure *m)
{
    const bool none = m->n == 0;
    const double n = none ? 1 : (double)m->n;
    const uint64_t elements = t ? t->coding.elements : m->n;
    if (!tu_report_wanted(r->ctx))
        return;
    tu_row(r->ctx,
           (const struct tu_cell[]){
               {.s = dtype},
               {.s = t ? t->choice.type : "-"},
               {.f = elements ? 8 * (double)bytes / (double)elements : 0},
               {.none = none, .f = tu_measure_rmse(m)},
               {.none = none, .f = tu_measure_relative(m)},
               {.none = none, .f = tu_measure_sqnr(m)},
               {.none = none, .f = m->max_abs},
               {.none = none, .u = m->max_at},
               {.none = none, .f = tu_measure_cosine(m)},
               {.none = none, .f = m->sum_e / n},
               {.none = none, .f = (double)m->clipped / n},
               {.none = none, .f = (double)m->zeros / n},
               {.none = none, .u = m->nan},
               {.none = none, .u = m->inf},
               {.u = replaced},
               {.none = !t || !t->choice.fallback, .s = t ? t->choice.wanted : NULL},
               {.s = t ? t->choice.why : "all coded tensors"},
               {.u = bytes},
               {.s = name},
           });
}

static void warn_of(struct run *r, const struct task *t, uint64_t replaced)
{
    const char *name = r->in.tensor.name;
    if (replaced)
        tu_warn(r->ctx, "%s: '%.80s': %" PRIu64 " elements that are not finite set to 0",
                r->in.path, name, replaced);
    if (t->repaired)
        tu_warn(r->ctx,
                "%s: '%.80s': %" PRIu64
                " runs of importance weights are all 0, taken as 1",
                r->in.path, name, t->repaired);
}

/* A tensor of numbers: coded, cast or copied. */
static int encode_plain(struct run *r, struct tu_err *err)
{
    const struct tu_tensor *x = &r->in.tensor;
    struct task t;
    struct tu_measure m = {0};
    uint64_t replaced = 0;
    char code[8];
    bool reused = false;
    int rc = task_begin(&t, &choosing, x, err);
    if (rc)
        return rc;
    uint64_t bytes = task_bytes(&t, x);
    struct coder coder = {r->ctx,
                          &r->in,
                          &r->target,
                          r->fold,
                          r->state.writer ? &r->state : NULL,
                          r->measure ? &m : NULL,
                          r->device};
    rc = target_reuse(&r->target, t.codec ? &t.coding : NULL, &t.spec, x, t.cast, &reused, err);
    if (!rc && !reused)
        rc = coder_run(&coder, &t, &replaced, err);
    if (!rc)
        rc = fallen_add(&r->fallen, r->ctx, &t.choice, x->name, err);
    if (rc) {
        tu_err_prefix(err, "'%.80s'", x->name);
    } else {
        warn_of(r, &t, replaced);
        r->from += x->bytes;
        r->to += bytes;
        if (r->measure && t.codec)
            tu_measure_merge(&r->total, &m);
        if (!r->measure || t.codec)
            tell(r, x->name, tu_dtype_text(x->dtype, code), &t, bytes, replaced, &m);
    }
    task_end(&t);
    return rc;
}

/* Codes become numbers again, which then are the tensor at hand. */
static int requantize(struct run *r, struct tu_err *err)
{
    struct tu_tensor was = r->coded.tensor;
    int rc = coder_unpack(&r->in, &r->coded, tu_ctx_job(r->ctx), err);
    if (rc) {
        tu_err_prefix(err, "'%.80s'", was.name);
        return rc;
    }
    was.meta = r->coded.from;
    r->in.tensor = was;
    rc = encode_plain(r, err);
    coded_forget(&r->coded);
    return rc;
}

/* A tensor that is codes already: kept as it is unless another type is wanted for it. */
static int encode_coded(struct run *r, struct tu_err *err)
{
    bool keep, yes;
    int rc = choosing_keeps(&choosing, &r->in.tensor, &keep, err);
    if (rc)
        return rc;
    if (keep) {
        r->sides_left = coded_sides(&r->in.tensor);
        return target_copy(&r->target, &r->in, err);
    }
    rc = coded_begin(&r->coded, &r->in, &yes, err);
    return rc || r->coded.pending ? rc : requantize(r, err);
}

static int encode_tensor(struct run *r, struct tu_err *err)
{
    if (r->coded.pending) {
        int rc = coded_side(&r->coded, &r->in, err);
        return rc || r->coded.pending ? rc : requantize(r, err);
    }
    if (r->sides_left) {
        r->sides_left--;
        return target_copy(&r->target, &r->in, err);
    }
    return coded_is(&r->in.tensor) ? encode_coded(r, err) : encode_plain(r, err);
}

/* META as it stands in the output. What it says of tensors to come may hang on META behind
 * it (experts, heads): so all is held until the first other record. */
static int put_meta(struct run *r, const char *topic, const struct tu_buf *text,
                    struct tu_err *err)
{
    struct tu_buf json = {0};
    int rc = 0;
    if (strcmp(topic, "contents") == 0 && calib_remembers(choosing.calib))
        return 0; /* a first visit is no codes */
    if (strcmp(topic, "contents") == 0)
        rc = quant_contents(&choosing, text->data, text->n, &json, err);
    else if (strcmp(topic, "gguf") == 0)
        rc = quant_gguf(&choosing, text->data, text->n, &json, err);
    else
        rc = tu_buf_add(&json, text->data, text->n, err);
    if (!rc)
        rc = target_meta(&r->target, topic, json.data, json.n, err);
    tu_buf_release(&json);
    return rc;
}

static int hold_meta(struct run *r, struct tu_err *err)
{
    int rc = r->target.writer ? TU_GROW(&r->held, &r->held_cap, r->held_n, err) : 0;
    if (rc || !r->target.writer)
        return rc;
    struct held *h = &r->held[r->held_n++];
    *h = (struct held){.topic = tu_strdup(r->in.topic, err)};
    return h->topic ? tu_buf_add(&h->text, r->in.json, r->in.json_len, err) : TU_ENOMEM;
}

static void drop_metas(struct run *r)
{
    while (r->held_n) {
        struct held *h = &r->held[--r->held_n];
        tu_free(h->topic);
        tu_buf_release(&h->text);
    }
}

static int flush_metas(struct run *r, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < r->held_n; i++)
        rc = put_meta(r, r->held[i].topic, &r->held[i].text, err);
    drop_metas(r);
    return rc;
}

/* What can be known before the first tensor: plans of all, groups to fold. */
static int begin_input(struct run *r, const char *path, struct tu_err *err)
{
    const enum seen seen = r->measure ? SEEN_AS_IS : target_seen(r->ctx);
    int rc = input_open(&r->in, path, seen, r->ctx, err);
    if (rc)
        return rc;
    const struct tu_source *s = tu_feed_source(r->in.feed);
    choosing_model(&choosing, &r->in);
    if (r->in.folder && !r->target.beside && !(r->target.beside = tu_strdup(r->in.folder, err)))
        return TU_ENOMEM;
    if (search_wanted()) {
        rc = search_apply(&choosing, path, seen, r->ctx, err);
        choosing_model(&choosing, &r->in);
    }
    if (!rc)
        rc = s ? choosing_check(&choosing, s, err)
               : choosing_check_stream(&choosing, path, r->ctx, err);
    if (!rc)
        rc = choosing_weighed(&choosing, r->ctx, err);
    if (!rc && calib_folds(choosing.calib))
        rc = fold_new(&r->fold, choosing.calib, &choosing, s, r->in.model.heads, err);
    return rc;
}

static int encode_input(struct run *r, const char *path, struct tu_err *err)
{
    enum item what = ITEM_OTHER;
    int rc = begin_input(r, path, err);
    while (!rc && what != ITEM_DONE && (rc = input_next(&r->in, &what, err)) == 0) {
        choosing_model(&choosing, &r->in);
        if (what != ITEM_META && (rc = flush_metas(r, err)))
            break;
        if (r->coded.pending && what != ITEM_TENSOR)
            rc = coded_missing(&r->coded, err);
        else if (what == ITEM_TENSOR)
            rc = encode_tensor(r, err);
        else if (what == ITEM_META)
            rc = hold_meta(r, err);
        else if (what == ITEM_OTHER)
            rc = target_copy(&r->target, &r->in, err);
        else if (what == ITEM_END && !(rc = tu_recipe_check(choosing.recipe, err)) &&
                 !(rc = choosing_weighed(&choosing, r->ctx, err)))
            rc = target_end(&r->target, err);
    }
    if (rc)
        tu_err_prefix(err, "%s", path);
    fallen_tell(&r->fallen, r->ctx, path);
    drop_metas(r);
    fold_free(r->fold);
    r->fold = NULL;
    coded_forget(&r->coded);
    input_close(&r->in);
    return rc;
}

static int run_all(struct run *r, int argc, char **argv)
{
    static const char *const standard_input[] = {"-"};
    const char *const *path = argc ? (const char *const *)argv : standard_input;
    struct tu_err err;
    int rc = choosing_begin(&choosing, r->ctx, &err);
    r->target.work = -1;
    if (!rc)
        rc = tu_ctx_device(r->ctx, &r->device, &err);
    if (!rc && !r->measure && target_is_engine(r->ctx))
        tu_recipe_engine(choosing.recipe);
    if (!rc && calib_remembers(choosing.calib) != (state_path != NULL))
        rc = tu_fail(&err, TU_EUSAGE, "--state goes with the methods 'feedback' and 'change'");
    if (!rc && state_path)
        rc = state_open(&r->state, r->ctx, &err);
    if (!rc && !r->measure)
        rc = target_open(&r->target, r->ctx, &err);
    r->measure |= with_error;
    if (!rc && tu_report_wanted(r->ctx))
        tu_rows_begin(r->ctx, columns);
    for (int i = 0; !rc && i < (argc ? argc : 1); i++)
        rc = encode_input(r, path[i], &err);
    if (!rc && r->measure && r->total.n)
        tell(r, "(all)", "-", NULL, r->to, 0, &r->total);
    if (!rc && r->target.writer)
        rc = target_close(&r->target, &err);
    if (!rc && r->state.writer)
        rc = state_close(&r->state, &err);
    int status = rc ? tu_error(r->ctx, &err) : 0;
    target_abort(&r->target);
    state_abort(&r->state);
    tu_free(r->held);
    choosing_end(&choosing);
    return status;
}

static int run_encode(struct tu_ctx *ctx, int argc, char **argv)
{
    struct run r = {.ctx = ctx};
    return run_all(&r, argc, argv);
}

static int run_measure(struct tu_ctx *ctx, int argc, char **argv)
{
    struct run r = {.ctx = ctx, .measure = true};
    if (logits_opt.base)
        return logits_run(ctx, argc, argv);
    if (logits_opt.tokens)
        return tu_usage(ctx, "--tokens goes with --logits");
    return run_all(&r, argc, argv);
}

static const struct tu_opt options[] = {
    {0, "error", NULL, "decode again and report the error (--report FILE)", TU_OPT_FLAG,
     &with_error, NULL, 0},
    {0, "allow-requantize", NULL, "code again what is codes already", TU_OPT_FLAG,
     &choosing.requantize, NULL, 0},
    CODING_OPTIONS,
    STATE_OPTION,
    SEARCH_OPTIONS,
    TARGET_OPTIONS,
    RESUME_OPTION,
    {0},
};

static const struct tu_opt measure_options[] = {LOGITS_OPTIONS, CODING_OPTIONS, {0}};

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd quantize_encode = {
    .name = "encode",
    .example = "quantize encode -t q4_k -r 'a$=bf16' w.tns -o q.tns",
    .summary = "quantize tensors",
    .usage = usage,
    .opts = options,
    .shared = quantize_options,
    .listings = quantize_listings,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM | TU_CMD_FORMATS | TU_CMD_DEVICE,
    .max = TU_ANY,
    .run = run_encode,
};

const struct tu_cmd quantize_measure = {
    .name = "measure",
    .example = "quantize measure -t q4_k w.tns",
    .summary = "show the error that quantizing makes, and write nothing",
    .usage = usage,
    .opts = measure_options,
    .shared = quantize_options,
    .listings = quantize_listings,
    .flags = TU_CMD_STDIN | TU_CMD_DEVICE,
    .max = TU_ANY,
    .run = run_measure,
};
