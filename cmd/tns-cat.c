/* SPDX-License-Identifier: Apache-2.0 */
/* tns-cat: concatenate tensor files and streams; choose, rename, slice, cast, reorder and
 * join tensors. Records come from a feed, whatever the file is. */
#include <string.h>
#include "common/formats.h"
#include "common/main.h"
#include "common/select.h"

static struct {
    struct tu_selection select;
    struct tu_list rename, slice, dtype; /* const char * */
    struct tu_list order;                /* struct tu_pattern * */
    struct tu_open open;
    uint64_t align;
    int overflow; /* enum tu_overflow */
    bool index, join;
} opt;

static const struct tu_opt options[] = {
    TU_SELECT_OPTIONS(opt.select),
    {'r', "rename", "REGEX=NEW", "replace what matches at the start of names; repeatable",
     TU_OPT_STRING, &opt.rename, NULL, TU_OPT_EACH},
    {0, "slice", "[REGEX=]SLICE", "keep a part, 0:10,:,3 as in Python, no steps; repeatable",
     TU_OPT_STRING, &opt.slice, NULL, TU_OPT_EACH},
    {'d', "dtype", "[REGEX=]DTYPE",
     "cast; without REGEX the floating-point ones; repeatable", TU_OPT_STRING, &opt.dtype,
     NULL, TU_OPT_EACH},
    {0, "overflow", NULL, "values beyond the dtype's range (auto: Inf, an error without)",
     TU_OPT_CHOICE, &opt.overflow, tu_overflow_names, 0},
    {0, "order", "REGEX", "tensors that match come first; repeatable", TU_OPT_REGEX,
     &opt.order, NULL, TU_OPT_EACH},
    {0, "join", NULL, "one segment of many, pieces made whole", TU_OPT_FLAG, &opt.join,
     NULL, 0},
    {0, "align", "SIZE", "payloads start at multiples of SIZE", TU_OPT_SIZE, &opt.align,
     NULL, 0},
    {'i', "index", NULL, "an INDEX at the end of each segment", TU_OPT_FLAG, &opt.index,
     NULL, 0},
    {0, "skip-unreadable", NULL, "npz: leave out arrays that are no numbers, with a warning each",
     TU_OPT_FLAG, &opt.open.partial, NULL, 0},
    TU_OPEN_OPTIONS(opt.open),
    {0},
};

struct cat {
    const struct tu_job *job;
    struct tu_edit *edit;
    struct tu_edit_plan plan;
    struct tu_feed *feed;
    struct tu_writer *writer;
    bool *ordered;        /* for each --order: it matched a tensor */
    uint64_t done, total; /* bytes, for progress */
};

/* The record as it will stand in the output. */
static struct tu_record edited(const struct tu_record *rec, const struct tu_edit_plan *p)
{
    struct tu_record out = *rec;
    out.name = p->out.name;
    out.name_len = strlen(p->out.name);
    out.meta = p->out.meta;
    out.meta_len = p->out.meta ? strlen(p->out.meta) : 0;
    out.word = p->out.dim;
    out.nwords = p->out.rank;
    out.payload_len = p->out.bytes;
    if (p->out.dtype != rec->dtype) {
        const struct tu_dtype *d = tu_dtype_find(p->out.dtype);
        out.dtype = d->code;
        out.block_elems = d->block_elems;
        out.block_bytes = d->block_bytes;
    }
    return out;
}

static int write_payload(struct cat *c, struct tu_err *err)
{
    struct tu_edit_flow flow;
    const void *p;
    size_t got;
    int rc = tu_edit_flow_begin(&flow, &c->plan, tu_feed_read, c->feed, err);
    if (rc)
        return rc;
    while ((rc = tu_edit_flow_next(&flow, &p, &got, err)) == 0 && got) {
        rc = tu_writer_write(c->writer, p, got, err);
        if (rc)
            break;
        tu_job_progress(c->job, c->done + flow.pos, c->total);
    }
    tu_edit_flow_end(&flow);
    return rc;
}

/* Which of --order have matched: the feed, which goes by them, is of one file. */
static int note_order(struct cat *c, const struct tu_record *rec, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < opt.order.n; i++)
        if (!c->ordered[i])
            rc = tu_pattern_match(TU_LIST(&opt.order, struct tu_pattern *)[i], rec->name,
                                  rec->name_len, NULL, &c->ordered[i], err);
    return rc;
}

static int cat_tensor(struct cat *c, const struct tu_record *rec, struct tu_err *err)
{
    struct tu_tensor t;
    tu_record_tensor(rec, &t);
    const uint64_t bytes = rec->payload_len;
    int rc = note_order(c, rec, err);
    if (!rc)
        rc = tu_edit_tensor(c->edit, &c->plan, &t, err);
    if (rc || !c->plan.keep)
        return rc;
    struct tu_record out = edited(rec, &c->plan);
    if (opt.align)
        rc = tu_writer_align(c->writer, &out, opt.align, err);
    if (!rc && c->plan.same)
        rc = tu_feed_copy(c->feed, c->writer, err);
    else if (!rc && !(rc = tu_writer_record(c->writer, &out, err)))
        rc = write_payload(c, err);
    c->done += bytes;
    tu_job_progress(c->job, c->done, c->total);
    return rc;
}

/* META contents is about the records: it follows the edit, and is left out where pieces
 * that it speaks of were joined. */
static int cat_contents(struct cat *c, const struct tu_record *rec, struct tu_err *err)
{
    const char *json;
    size_t n;
    if (opt.join)
        return 0;
    int rc = tu_edit_contents(c->edit, rec->meta, rec->meta_len, &json, &n, err);
    return rc ? rc : tu_writer_meta(c->writer, rec->name, json, n, err);
}

static int one_record(struct cat *c, const struct tu_record *rec, struct tu_err *err)
{
    if (rec->type == TU_REC_END)
        return tu_writer_end(c->writer, opt.index, err);
    if (rec->type == TU_REC_TENSOR)
        return cat_tensor(c, rec, err);
    if (rec->type == TU_REC_META && !strcmp(rec->name, "contents") &&
        (opt.join || tu_edit_changes(c->edit)))
        return cat_contents(c, rec, err);
    return tu_feed_copy(c->feed, c->writer, err);
}

static int cat_file(struct cat *c, const char *path, struct tu_err *err)
{
    const struct tu_feed_how how = {
        .open = opt.open,
        .join = opt.join,
        .order = TU_LIST(&opt.order, struct tu_pattern *),
        .orders = opt.order.n,
    };
    const struct tu_record *rec;
    int rc = tu_feed_open(&c->feed, path, &how, c->job, err);
    if (rc)
        return rc;
    c->total += tu_feed_bytes(c->feed);
    while ((rc = tu_feed_next(c->feed, &rec, err)) == 0 && rec &&
           !(rc = one_record(c, rec, err)))
        ;
    tu_feed_close(c->feed);
    return rc;
}

static const struct {
    const char *name;
    const struct tu_list *list;
    int (*add)(struct tu_edit *, const char *, struct tu_err *);
} sets[] = {
    {"rename", &opt.rename, tu_edit_rename},
    {"slice", &opt.slice, tu_edit_slice},
    {"dtype", &opt.dtype, tu_edit_cast},
};
#define SETS (sizeof sets / sizeof *sets)

static int add_rules(struct tu_edit *e, struct tu_err *err)
{
    for (size_t k = 0; k < SETS; k++)
        for (size_t i = 0; i < sets[k].list->n; i++) {
            int rc = sets[k].add(e, TU_LIST(sets[k].list, const char *)[i], err);
            if (rc) {
                tu_err_prefix(err, "--%s", sets[k].name);
                return rc;
            }
        }
    return tu_selection_apply(&opt.select, e, err);
}

/* A pattern with a slip in it changes nothing, which is easily taken for success. */
static void warn_idle(struct tu_ctx *ctx, const struct cat *c)
{
    size_t rule = 0;
    for (size_t k = 0; k < SETS; k++)
        for (size_t i = 0; i < sets[k].list->n; i++, rule++)
            if (tu_edit_idle(c->edit, rule))
                tu_warn(ctx, "--%s '%.80s' matches no tensor", sets[k].name,
                        TU_LIST(sets[k].list, const char *)[i]);
    tu_selection_warn(ctx, &opt.select, c->edit, rule);
    for (size_t i = 0; i < opt.order.n; i++)
        if (!c->ordered[i])
            tu_warn(ctx, "--order '%.80s' matches no tensor",
                    tu_pattern_text(TU_LIST(&opt.order, struct tu_pattern *)[i]));
}

static int prepare(struct cat *c, struct tu_ctx *ctx, int inputs, struct tu_err *err)
{
    struct tu_out *out;
    int rc = tu_edit_new(&c->edit, err);
    if (!rc && !(c->ordered = tu_calloc(opt.order.n + 1, sizeof *c->ordered, err)))
        rc = TU_ENOMEM;
    if (!rc)
        rc = add_rules(c->edit, err);
    if (!rc)
        tu_edit_overflow(c->edit, (enum tu_overflow)opt.overflow);
    if (!rc && opt.align &&
        (opt.align < TU_STREAM_ALIGN || (opt.align & (opt.align - 1))))
        rc = tu_fail(err, TU_EUSAGE, "--align: expected a power of two of at least 64");
    if (!rc && opt.join && inputs > 1)
        rc = tu_fail(err, TU_EUSAGE,
                     "--join takes one input; use a pipe: cat FILE ... | tns-cat --join");
    if (!rc)
        rc = tu_ctx_output(ctx, &out, err);
    return rc ? rc : tu_writer_new(&c->writer, out, err);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    static const char *const standard_input[] = {"-"};
    const char *const *path = argc ? (const char *const *)argv : standard_input;
    struct tu_err err;
    struct cat c = {.job = tu_ctx_job(ctx)};
    int rc = prepare(&c, ctx, argc, &err);
    for (int i = 0; !rc && i < (argc ? argc : 1); i++)
        rc = cat_file(&c, path[i], &err);
    if (!rc) {
        rc = tu_writer_close(c.writer, false, &err);
        c.writer = NULL;
    }
    if (!rc)
        warn_idle(ctx, &c);
    int status = rc ? tu_error(ctx, &err) : 0;
    tu_writer_abort(c.writer);
    tu_edit_free(c.edit);
    tu_free(c.ordered);
    return status;
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

static const struct tu_cmd command = {
    .name = "tns-cat",
    .example =
        "tns-cat -e 'layers\\.1\\.' --slice '.*w=:4' -d f16 m.safetensors -o part.tns",
    .summary =
        "concatenate tensor files; choose, rename, slice, cast, order and join tensors",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM,
    .max = TU_ANY,
    .run = run,
};

int main(int argc, char **argv)
{
    return tu_main(&command, argc, argv);
}
