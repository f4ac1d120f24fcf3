/* SPDX-License-Identifier: Apache-2.0 */
/* tns-plot: JSON Lines, as every command reports them, to a chart in SVG. */

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <tensorutils/draw.h>

#include "common/main.h"

static const char *const kinds[] = {
    [TU_CHART_LINES] = "lines", [TU_CHART_POINTS] = "points", [TU_CHART_BARS] = "bars", NULL};

static struct {
    const char *x, *y, *by, *title, *x_label, *y_label;
    int kind;
    bool log_x, log_y, zero;
    uint64_t width, height;
} opt = {.width = 640, .height = 400};

static const struct tu_opt options[] = {
    {'x', "x", "KEY", "key of the x axis; with --kind bars the name of a bar",
     TU_OPT_STRING, &opt.x, NULL, 0},
    {'y', "y", "KEY", "key of the y axis", TU_OPT_STRING, &opt.y, NULL, 0},
    {'b', "by", "KEY", "key whose values are the series",
     TU_OPT_STRING, &opt.by, NULL, 0},
    {'k', "kind", NULL, "how points are drawn", TU_OPT_CHOICE, &opt.kind, kinds, 0},
    {'t', "title", "TEXT", "title", TU_OPT_STRING, &opt.title, NULL, 0},
    {0, "x-label", "TEXT", "label of the x axis (default: its key)",
     TU_OPT_STRING, &opt.x_label, NULL, 0},
    {0, "y-label", "TEXT", "label of the y axis (default: its key)",
     TU_OPT_STRING, &opt.y_label, NULL, 0},
    {0, "log-x", NULL, "logarithmic x axis", TU_OPT_FLAG, &opt.log_x, NULL, 0},
    {0, "log-y", NULL, "logarithmic y axis", TU_OPT_FLAG, &opt.log_y, NULL, 0},
    {0, "zero", NULL, "the y axis begins at 0", TU_OPT_FLAG, &opt.zero, NULL, 0},
    {0, "width", NULL, "pixels (default 640)", TU_OPT_U64, &opt.width, NULL, 0},
    {0, "height", NULL, "pixels (default 400)", TU_OPT_U64, &opt.height, NULL, 0},
    {0},
};

/* Points of one value of --by, in the order of the input. */
struct points {
    const char *name;
    double *x, *y;
    size_t n, cap_x, cap_y;
};

struct plot {
    struct tu_arena *arena;
    struct points *series;
    size_t n, cap;
    const char **category; /* bars: names of x in order of appearance */
    size_t categories, category_cap;
    bool words;         /* x is a text in some line */
    struct tu_buf keys; /* that lines have, as a message shows them */
};

/* A scalar as text: what --by and the bars are named by. */
static const char *text_of(struct plot *p, const json_t *v, struct tu_err *err)
{
    char buf[64] = "";
    if (json_is_string(v))
        return tu_arena_text(p->arena, json_string_value(v), json_string_length(v), err);
    if (json_is_integer(v))
        snprintf(buf, sizeof buf, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        tu_json_real(json_real_value(v), buf);
    else if (json_is_boolean(v))
        snprintf(buf, sizeof buf, "%s", json_is_true(v) ? "true" : "false");
    return tu_arena_text(p->arena, buf, strlen(buf), err);
}

static int series_of(struct plot *p, const char *name, struct points **out, struct tu_err *err)
{
    for (size_t i = 0; i < p->n; i++)
        if (!strcmp(p->series[i].name, name)) {
            *out = &p->series[i];
            return 0;
        }
    int rc = TU_GROW(&p->series, &p->cap, p->n, err);
    if (rc)
        return rc;
    *out = &p->series[p->n++];
    **out = (struct points){.name = name};
    return 0;
}

static int category_of(struct plot *p, const char *name, double *x, struct tu_err *err)
{
    size_t i = 0;
    while (i < p->categories && strcmp(p->category[i], name))
        i++;
    *x = (double)i;
    if (i < p->categories)
        return 0;
    int rc = TU_GROW(&p->category, &p->category_cap, p->categories, err);
    if (!rc)
        p->category[p->categories++] = name;
    return rc;
}

static int add_point(struct points *s, double x, double y, struct tu_err *err)
{
    int rc = TU_GROW(&s->x, &s->cap_x, s->n, err);
    if (!rc)
        rc = TU_GROW(&s->y, &s->cap_y, s->n, err);
    if (rc)
        return rc;
    s->x[s->n] = x;
    s->y[s->n++] = y;
    return 0;
}

/* Keys of a number, each once, for who asked for others. */
static void note_keys(struct plot *p, const json_t *o)
{
    const char *key, *at;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)o, key, value) {
        size_t n = strlen(key);
        for (at = p->keys.n ? p->keys.data : ""; at; at = strchr(at, ' ')) {
            at += *at == ' ';
            if (!strncmp(at, key, n) && (at[n] == ',' || !at[n]))
                break;
        }
        if (at || !json_is_number(value) || p->keys.n > 160)
            continue;
        int rc = tu_buf_printf(&p->keys, NULL, "%s%.60s", p->keys.n ? ", " : "", key);
        (void)rc; /* out of memory: a name less */
    }
}

/* One object; lines without the keys (heads, ends) are passed over. */
static int add_line(struct plot *p, const json_t *o, struct tu_err *err)
{
    const json_t *x = json_object_get(o, opt.x), *y = json_object_get(o, opt.y);
    const json_t *by = opt.by ? json_object_get(o, opt.by) : NULL;
    const char *name = opt.y, *word;
    struct points *s;
    double at;
    bool bars = opt.kind == TU_CHART_BARS;
    note_keys(p, o);
    p->words |= json_is_string(x) && json_is_number(y);
    if (!x || !json_is_number(y) || (!bars && !json_is_number(x)))
        return 0;
    if (by && !(name = text_of(p, by, err)))
        return TU_ENOMEM;
    int rc = series_of(p, name, &s, err);
    if (!rc && bars)
        rc = (word = text_of(p, x, err)) ? category_of(p, word, &at, err) : TU_ENOMEM;
    else if (!rc)
        at = json_number_value(x);
    /* A bar stands at its category; what a series lacks before it is 0. */
    while (!rc && bars && s->n < (size_t)at)
        rc = add_point(s, (double)s->n, 0, err);
    if (!rc && bars && s->n > (size_t)at)
        s->y[(size_t)at] = json_number_value(y);
    else if (!rc)
        rc = add_point(s, at, json_number_value(y), err);
    return rc;
}

#define LINE_MAX_BYTES ((size_t)1 << 20)

/* A line without its end. */
static int read_line(struct plot *p, const char *text, size_t n, struct tu_err *err)
{
    struct tu_json_limits limits = {.object = true};
    json_t *o = NULL;
    int rc = n ? tu_json_parse(&o, text, n, &limits, err) : 0;
    if (!rc && o)
        rc = add_line(p, o, err);
    json_decref(o);
    return rc;
}

/* Line by line: what has no end is not gathered. */
static int read_lines(struct plot *p, const char *path, struct tu_err *err)
{
    struct tu_in *in = NULL;
    struct tu_buf text = {.max = LINE_MAX_BYTES + TU_IO_CHUNK};
    size_t got = 1, line = 1;
    int rc = tu_in_open(&in, path, err);
    while (!rc && got) {
        char *room = tu_buf_room(&text, TU_IO_CHUNK, err), *end;
        size_t at = 0;
        rc = room ? tu_in_read(in, room, TU_IO_CHUNK, &got, err) : TU_ENOMEM;
        text.n += rc ? 0 : got;
        for (; !rc && at < text.n && (end = memchr(text.data + at, '\n', text.n - at)); line++) {
            rc = read_line(p, text.data + at, (size_t)(end - text.data) - at, err);
            at = (size_t)(end - text.data) + 1;
        }
        text.n -= at;
        memmove(text.data, text.data + at, text.n);
        if (!rc && !got)
            rc = read_line(p, text.data, text.n, err);
        else if (!rc && text.n > LINE_MAX_BYTES)
            rc = tu_fail(err, TU_ELIMIT, "longer than %zu bytes", LINE_MAX_BYTES);
        if (rc && in)
            tu_err_prefix(err, "%s: line %zu", path, line);
    }
    tu_buf_release(&text);
    tu_in_close(in);
    return rc;
}

static int draw(struct tu_ctx *ctx, const struct plot *p, struct tu_err *err)
{
    struct tu_series *s = tu_calloc(p->n + 1, sizeof *s, err);
    struct tu_buf svg = {0};
    struct tu_out *out = NULL;
    bool bars = opt.kind == TU_CHART_BARS;
    struct tu_chart c = {.kind = (enum tu_chart_kind)opt.kind,
                         .title = opt.title,
                         .x_label = opt.x_label ? opt.x_label : opt.x,
                         .y_label = opt.y_label ? opt.y_label : opt.y,
                         .log_x = opt.log_x && !bars,
                         .log_y = opt.log_y,
                         .y_from_zero = opt.zero || bars,
                         .n = p->n,
                         .series = s,
                         .category = bars ? p->category : NULL,
                         .width = (double)opt.width,
                         .height = (double)opt.height};
    if (!s)
        return TU_ENOMEM;
    for (size_t i = 0; i < p->n; i++)
        s[i] = (struct tu_series){p->series[i].name, p->series[i].n, bars ? NULL : p->series[i].x,
                                  p->series[i].y};
    int rc = tu_chart_svg(&svg, &c, err);
    if (!rc)
        rc = tu_ctx_output(ctx, &out, err);
    if (!rc)
        rc = tu_out_write(out, svg.data, svg.n, err);
    if (!rc) {
        rc = tu_out_commit(out, false, err);
        out = NULL;
    }
    tu_out_abort(out);
    tu_buf_release(&svg);
    tu_free(s);
    return rc;
}

static int nothing(const struct plot *p, struct tu_err *err)
{
    if (p->words)
        return tu_fail(err, TU_EFORMAT, "'%.60s' is a text: it names bars (-k bars)", opt.x);
    return tu_fail(err, TU_EFORMAT,
                   "no line has both '%.60s' and '%.60s' as numbers; there are: %s", opt.x, opt.y,
                   p->keys.n ? p->keys.data : "none");
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct plot p = {0};
    struct tu_err err;
    if (!opt.x || !opt.y)
        return tu_usage(ctx, "which keys? (--x KEY --y KEY)");
    int rc = (p.arena = tu_arena_new(&err)) ? 0 : TU_ENOMEM;
    for (int i = 0; i < (argc ? argc : 1) && !rc; i++)
        rc = read_lines(&p, argc ? argv[i] : "-", &err);
    if (!rc && !p.n)
        rc = nothing(&p, &err);
    if (!rc)
        rc = draw(ctx, &p, &err);
    for (size_t i = 0; i < p.n; i++) {
        tu_free(p.series[i].x);
        tu_free(p.series[i].y);
    }
    tu_free(p.series);
    tu_free(p.category);
    tu_buf_release(&p.keys);
    tu_arena_free(p.arena);
    return rc ? tu_error(ctx, &err) : 0;
}

static const char *const usage[] = {"--x key --y key [option ...] [file ...]", NULL};

static const struct tu_cmd command = {
    .name = "tns-plot",
    .example = "tns-ls --json m.tns | tns-plot -x name -y bytes -k bars -o sizes.svg",
    .summary = "draw JSON Lines reports as a chart",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN | TU_CMD_DOCUMENT,
    .max = TU_ANY,
    .run = run,
};

int main(int argc, char **argv)
{
    return tu_main(&command, argc, argv);
}
