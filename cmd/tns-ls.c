/* SPDX-License-Identifier: Apache-2.0 */
/* tns-ls: list the tensors of streams and files: dtype, shape, size, and with --stats
 * what is in them. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "common/formats.h"
#include "common/main.h"
#include "common/select.h"

static struct {
    struct tu_selection select;
    struct tu_open open;
    bool stats, all;
} opt;

static const struct tu_opt options[] = {
    TU_SELECT_OPTIONS(opt.select),
    {'S', "stats", NULL, "read the values: range, mean, deviation, NaN, Inf, zeros",
     TU_OPT_FLAG, &opt.stats, NULL, 0},
    {'a', "all", NULL, "the other records too: META topics and the ends of segments",
     TU_OPT_FLAG, &opt.all, NULL, 0},
    TU_OPEN_OPTIONS(opt.open),
    {0},
};

/* One description for both reports; the statistics are the last columns before the
 * name. */
#define BEFORE                                                                          \
    {"file", NULL, TU_COL_TEXT, 0}, {"segment", NULL, TU_COL_U64, 0},                   \
    {"offset", NULL, TU_COL_U64, 0}, {"type", NULL, TU_COL_TEXT, 0},                    \
    {"dtype", "DTYPE", TU_COL_TEXT, 0}, {"shape", "SHAPE", TU_COL_SHAPE, 0},            \
    {"bytes", "BYTES", TU_COL_U64, 0}, {"meta", NULL, TU_COL_JSON, 0}
#define STATS                                                                           \
    {"min", "MIN", TU_COL_REAL, 0}, {"max", "MAX", TU_COL_REAL, 0},                     \
    {"mean", "MEAN", TU_COL_REAL, 0}, {"std", "STD", TU_COL_REAL, 0},                   \
    {"nans", "NAN", TU_COL_U64, 0}, {"infs", "INF", TU_COL_U64, 0},                     \
    {"zeros", "ZEROS", TU_COL_U64, 0}
#define NAME {"name", "NAME", TU_COL_NAME, 0}, {0}

static struct tu_column plain_columns[] = {BEFORE, NAME};
static struct tu_column stats_columns[] = {BEFORE, STATS, NAME};
enum { BEFORE_N = 8, STATS_N = 7 };

struct list {
    struct tu_ctx *ctx;
    struct tu_edit *edit;
    struct tu_edit_plan plan;
    unsigned char *buf;
    struct tu_feed *feed;
    struct tu_buf about;        /* META contents as text, shown below the table */
    bool several;               /* files */
    uint64_t tensors, bytes;    /* listed */
    uint64_t read, total;       /* for progress, of the files so far; total 0: not known */
    uint64_t coded;             /* that --stats could not look into */
    const char *format;         /* of all files, or "several formats" */
};

#define CHUNK (16 * TU_IO_CHUNK) /* whole blocks of a tally for every element size */

/* Values of the record at hand; *known false for formats that cannot be looked at. */
static int tally(struct list *l, const struct tu_record *rec, struct tu_tally *t,
                 bool *known, struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_find(rec->dtype);
    uint64_t left = 0;
    size_t got;
    *known = d && !(d->code & TU_DTYPE_GGML) &&
             !tu_elements(rec->word, rec->nwords, &left, NULL);
    if (!*known)
        return 0;
    size_t chunk =
        CHUNK / d->block_bytes / TU_TALLY_BLOCK * TU_TALLY_BLOCK * d->block_bytes;
    for (;;) {
        size_t have = 0;
        do {
            int rc = tu_feed_read(l->feed, l->buf + have, chunk - have, &got, err);
            if (rc)
                return rc;
            have += got;
        } while (got && have < chunk);
        if (have == 0)
            return 0;
        l->read += have;
        tu_job_progress(tu_ctx_job(l->ctx), l->read, l->total);
        size_t n = (size_t)tu_min(left, have / d->block_bytes * d->block_elems);
        left -= n;
        int rc = tu_tally_add(t, rec->dtype, l->buf, n, tu_ctx_pool(l->ctx), err);
        if (rc)
            return rc;
    }
}

/* "  key: VALUE" for each key of a META object; long values are cut. */
static int about_meta(struct list *l, const struct tu_record *rec, struct tu_err *err)
{
    enum { SHOWN = 72 };
    json_t *meta = NULL, *v;
    const char *key;
    struct tu_buf text = {0};
    int rc = tu_json_parse(&meta, rec->meta, rec->meta_len, NULL, err);
    if (!rc)
        rc = tu_buf_printf(&l->about, err, "%s%sMETA '%s'\n",
                           l->several ? tu_feed_name(l->feed) : "", l->several ? ": " : "",
                           rec->name ? rec->name : "");
    json_object_foreach(meta, key, v) {
        tu_buf_reset(&text);
        if (!rc)
            rc = tu_buf_text(&l->about, "  ", err);
        if (!rc)
            rc = tu_text_escape(&l->about, key, strlen(key), err);
        if (!rc)
            rc = tu_json_dump(&text, v, err);
        if (!rc)
            rc = tu_buf_printf(&l->about, err, ": %.*s%s\n", SHOWN, text.data,
                               text.n > SHOWN ? "..." : "");
    }
    tu_buf_release(&text);
    json_decref(meta);
    return rc;
}

static const char *type_name(const struct tu_record *rec)
{
    switch (rec->type) {
    case TU_REC_TENSOR: return "tensor";
    case TU_REC_META: return "meta";
    case TU_REC_END: return "end";
    default: return "other";
    }
}

static int show(struct list *l, const struct tu_record *rec, struct tu_err *err)
{
    struct tu_cell cell[BEFORE_N + STATS_N + 1];
    struct tu_tally t = {0};
    char dtype[8];
    bool tensor = rec->type == TU_REC_TENSOR, known = false;
    int rc = opt.stats && tensor ? tally(l, rec, &t, &known, err) : 0;
    if (!rc && rec->type == TU_REC_META && rec->meta_len && tu_text_wanted(l->ctx))
        rc = about_meta(l, rec, err);
    if (rc)
        return rc;
    l->tensors += tensor;
    l->bytes += tensor ? rec->payload_len : 0;
    l->coded += opt.stats && tensor && !known;
    const struct tu_cell before[BEFORE_N] = {
        {.s = tu_feed_name(l->feed)},
        {.u = rec->segment},
        {.u = rec->offset},
        {.s = type_name(rec)},
        {.s = tensor ? tu_dtype_text(rec->dtype, dtype) : type_name(rec)},
        {.none = !tensor, .dim = rec->word, .rank = rec->nwords},
        {.u = rec->payload_len},
        {.s = rec->meta_len ? rec->meta : NULL},
    };
    const bool none = !known, empty = none || tu_tally_finite(&t) == 0;
    const struct tu_cell stats[STATS_N] = {
        {.none = empty, .f = t.min},  {.none = empty, .f = t.max},
        {.none = empty, .f = t.mean}, {.none = empty, .f = tu_tally_deviation(&t)},
        {.none = none, .u = t.nans},  {.none = none, .u = t.infs},
        {.none = none, .u = t.zeros},
    };
    size_t n = BEFORE_N;
    memcpy(cell, before, sizeof before);
    if (opt.stats) {
        memcpy(cell + n, stats, sizeof stats);
        n += STATS_N;
    }
    cell[n] = (struct tu_cell){.s = rec->name ? rec->name : ""};
    tu_row(l->ctx, cell);
    return 0;
}

static int wanted(struct list *l, const struct tu_record *rec, bool *yes,
                  struct tu_err *err)
{
    struct tu_tensor t;
    *yes = opt.all;
    if (rec->type != TU_REC_TENSOR)
        return 0;
    tu_record_tensor(rec, &t);
    int rc = tu_edit_tensor(l->edit, &l->plan, &t, err);
    *yes = l->plan.keep;
    return rc;
}

static int one_record(struct list *l, const struct tu_record *rec, struct tu_err *err)
{
    bool yes;
    int rc = wanted(l, rec, &yes, err);
    return rc || !yes ? rc : show(l, rec, err);
}

static int list_file(struct list *l, const char *path, struct tu_err *err)
{
    struct tu_feed_how how = {.open = opt.open, .headers = true};
    const struct tu_record *rec;
    how.open.partial = true;
    int rc = tu_feed_open(&l->feed, path, &how, tu_ctx_job(l->ctx), err);
    if (rc)
        return rc;
    l->total = l->read + tu_feed_bytes(l->feed);
    const struct tu_source *s = tu_feed_source(l->feed);
    const char *format = s ? s->format->name : "tns";
    l->format = l->format && strcmp(l->format, format) ? "several formats" : format;
    if (s && s->left_out)
        l->ctx->status = TU_STATUS_DATA; /* each was told */
    while ((rc = tu_feed_next(l->feed, &rec, err)) == 0 && rec &&
           !(rc = one_record(l, rec, err)))
        ;
    tu_feed_close(l->feed);
    return rc;
}

/* The line below the table, for who looks at it: programs count lines. */
static void summarise(struct list *l)
{
    char size[16];
    tu_rows_end(l->ctx);
    if (l->about.n)
        tu_print(l->ctx, "%.*s", (int)l->about.n, l->about.data);
    if (l->format && (l->ctx->verbose || isatty(STDOUT_FILENO)))
        tu_print(l->ctx, "%" PRIu64 " tensor%s, %s, %s\n", l->tensors,
                 l->tensors == 1 ? "" : "s", tu_size_text(l->bytes, size), l->format);
    if (l->coded)
        tu_warn(l->ctx, "%" PRIu64 " of the tensors hold codes: quantize decode makes numbers "
                "of them, which --stats can look at", l->coded);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    static const char *const standard_input[] = {"-"};
    const char *const *path = argc ? (const char *const *)argv : standard_input;
    struct list l = {.ctx = ctx, .several = argc > 1};
    struct tu_err err;
    int status = 0;
    int rc = tu_edit_new(&l.edit, &err);
    if (!rc)
        rc = tu_selection_apply(&opt.select, l.edit, &err);
    if (!rc && opt.stats && !(l.buf = tu_alloc(CHUNK, 1, &err)))
        rc = TU_ENOMEM;
    if (rc)
        status = tu_error(ctx, &err);
    struct tu_column *columns = opt.stats ? stats_columns : plain_columns;
    columns->title = l.several ? "FILE" : NULL;
    if (!rc)
        tu_rows_begin(ctx, columns);
    for (int i = 0; !rc && i < (argc ? argc : 1); i++)
        if (list_file(&l, path[i], &err))
            tu_error(ctx, &err); /* the other files are still listed */
    if (!rc) {
        summarise(&l);
        tu_selection_warn(ctx, &opt.select, l.edit, 0);
    }
    tu_buf_release(&l.about);
    tu_edit_free(l.edit);
    tu_free(l.buf);
    return status;
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

static const struct tu_cmd command = {
    .name = "tns-ls",
    .example = "tns-ls --stats m.safetensors",
    .summary = "list the tensors of files and streams",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN,
    .max = TU_ANY,
    .run = run,
};

int main(int argc, char **argv)
{
    return tu_main(&command, argc, argv);
}
