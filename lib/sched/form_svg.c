/* SPDX-License-Identifier: Apache-2.0 */
/* form_svg.c: a schedule as a picture: a row for each rank, a box for each operation,
 * below it the rank's memory.
 *
 * Hue says the kind, its shade the chunk (full for the first, lighter for later ones), a
 * bar at the top of a box the second pipeline; the number is the micro-batch, with its
 * slice behind a dot. Light grey is idle. A measured step is a lower row below each
 * rank's. Memory is a strip of its own for each rank, for ranks with equal curves would
 * hide one another in one chart; all strips have the scale of the fullest rank, whose
 * peak a line marks in each. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "sched/build.h"
#include "sched/load.h"

#define ROW 30.0
#define LANE 13.0 /* of the measured step */
#define GAP 8.0
#define LEFT 74.0
#define RIGHT 142.0
#define TOP 76.0 /* and the lines of the legend */
#define WIDTH_MAX 2200.0
#define WIDTH_MIN 560.0
#define LINE 20.0   /* of the legend; */
#define LETTER 6.4  /* no letter in it is wider, on average */
#define SWATCH 14.0
#define BOX 24.0 /* wanted width of the shortest operation */
#define STRIP 20.0  /* of memory */
#define BETWEEN 4.0 /* row and strip */
#define IDLE 46.0  /* right end of the column, behind the time axis */
#define PEAK 122.0
#define MEMORY_AREA "#cfd8dc" /* neutral: hues are kinds of operation */
#define MEMORY_LINE "#37474f"

/* Colour numbers of tu_colour; -1: not drawn as a box. */
static const int8_t hue[TU_OP_KINDS] = {
    [TU_OP_F] = 0,       [TU_OP_B] = 2,        [TU_OP_I] = 3,       [TU_OP_W] = 5,
    [TU_OP_R] = 4,       [TU_OP_OPT] = 7,      [TU_OP_SEND_F] = -1, [TU_OP_RECV_F] = -1,
    [TU_OP_SEND_B] = -1, [TU_OP_RECV_B] = -1,  [TU_OP_UNSHARD] = 6, [TU_OP_RESHARD] = -1,
    [TU_OP_REDUCE] = 1,  [TU_OP_OFFLOAD] = 15, [TU_OP_FETCH] = 15,
};

struct picture {
    struct tu_svg v;
    const struct tu_sched *s;
    const struct tu_cost *c;
    const struct tu_sim *sim;
    const struct tu_measured *over; /* NULL: none */
    double unit, width;             /* pixels of a tick; of the time axis */
    double tick_ns;                 /* with `over` */
    int64_t end;                    /* ticks that are drawn */
    int64_t fullest;                /* memory of the rank that holds most */
    uint32_t *chunk;    /* [stages]: which of its rank's stages */
    uint32_t chunks;
    bool seen[TU_OP_KINDS];
    double x, y; /* where the legend goes on */
    bool dry;    /* it is measured, not drawn */
    double top;  /* of the first rank's row */
};

/* Forwards alone hold nothing for a backward: no memory is shown. */
static bool holds(const struct picture *p)
{
    return p->s->deps == TU_DEPS_TRAIN;
}

/* The row that made the schedule, NULL: unknown. */
static const struct tu_schedule *made_by(const struct picture *p)
{
    return *p->s->name ? tu_schedule_find(p->s->name) : NULL;
}

/* What a rank takes without its strip of memory. */
static double lanes(const struct picture *p)
{
    return ROW + (p->over ? LANE + 3 : 0);
}

static double row_y(const struct picture *p, uint32_t rank)
{
    return p->top + (lanes(p) + (holds(p) ? STRIP + BETWEEN + GAP : GAP)) * rank;
}

static void scale(struct picture *p)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < p->sim->ops; i++) {
        int64_t d = p->sim->end[i] - p->sim->start[i];
        if (d > 0 && d < least)
            least = d;
    }
    for (uint32_t r = 0; r < p->s->ranks; r++)
        for (size_t i = 0; i < p->s->n[r]; i++) {
            size_t id = p->sim->base[r] + i;
            enum tu_op_kind kind = p->s->op[r][i].kind;
            p->seen[kind] |= hue[kind] >= 0 && p->sim->end[id] > p->sim->start[id];
        }
    double total = p->end > 0 ? (double)p->end : 1;
    p->unit = least == INT64_MAX ? 1 : BOX / (double)least;
    if (p->unit * total > WIDTH_MAX)
        p->unit = WIDTH_MAX / total;
    if (p->unit * total < WIDTH_MIN)
        p->unit = WIDTH_MIN / total;
    p->width = p->unit * total;
}

static const char *fill(const struct picture *p, const struct tu_op *op, char out[8])
{
    const char *base = tu_colour((unsigned)hue[op->kind]);
    uint32_t chunk = op->kind == TU_OP_OPT ? 0 : p->chunk[op->stage];
    unsigned light = p->chunks > 1 ? 62 * chunk / (p->chunks - 1) : 0;
    return tu_shade(base, light, out);
}

static void box(struct picture *p, uint32_t rank, size_t i)
{
    const struct tu_op *op = &p->s->op[rank][i];
    size_t id = p->sim->base[rank] + i;
    int64_t a = p->sim->start[id], b = p->sim->end[id];
    char name[40], from[40], to[40], tip[160], colour[8], label[32];
    if (hue[op->kind] < 0 || a == b)
        return;
    bool beside = op->kind > TU_OP_OPT;
    bool second = i && p->s->op[rank][i - 1].flags & TU_OP_PAIRED;
    bool paired = op->flags & TU_OP_PAIRED || second;
    double x = LEFT + p->unit * (double)a, w = p->unit * (double)(b - a);
    double y = row_y(p, rank), h = ROW;
    if (paired)
        h = ROW / 2, y += second ? ROW / 2 : 0;
    if (beside)
        y += ROW - 1, h = 4;
    tu_ticks_text(a, p->c->scale, from);
    tu_ticks_text(b, p->c->scale, to);
    snprintf(tip, sizeof tip, "%s  rank %u  %s–%s %s", tu_op_text(op, p->s->slices, name),
             rank, from, to, p->c->unit);
    fill(p, op, colour);
    tu_svg_rect(&p->v, x, y, w, h, colour, w > 3 ? "#ffffff" : NULL, tip);
    if (beside)
        return;
    if (p->s->pipelines > 1 && op->kind != TU_OP_OPT && op->stage >= p->s->stages)
        tu_svg_rect(&p->v, x + .5, y + .5, w - 1, 3, TU_COLOUR_TEXT, NULL, NULL);
    if (p->s->slices > 1)
        snprintf(label, sizeof label, "%u.%u", op->mb, op->slice);
    else
        snprintf(label, sizeof label, "%u", op->mb);
    /* All boxes of a width have a label, or none. */
    char widest[32];
    int most = snprintf(widest, sizeof widest, "%u", p->s->microbatches - 1);
    if (p->s->slices > 1)
        most += 1 + snprintf(widest, sizeof widest, "%u", p->s->slices - 1);
    double size = fmin(paired ? 10 : 12, (w - 2) / (.62 * most));
    if (op->kind != TU_OP_OPT && size >= 7)
        tu_svg_text(&p->v, x + w / 2, y + h / 2 + size * .36, size, TU_MIDDLE,
                    tu_ink_on(colour), label);
}

/* What was measured of a rank's stages. */
static void lane(struct picture *p, uint32_t rank)
{
    const struct tu_sched *s = p->s;
    double y = row_y(p, rank) + ROW + 2;
    tu_svg_rect(&p->v, LEFT, y, p->width, LANE, TU_COLOUR_IDLE, NULL, NULL);
    for (size_t i = 0; i < p->over->n; i++) {
        const struct tu_measured_op *m = &p->over->op[i];
        struct tu_op op = {.kind = m->kind, .stage = m->stage, .mb = m->mb};
        char name[40], tip[160], colour[8], label[16];
        if (m->stage >= s->stages * s->pipelines || s->place[m->stage] != rank)
            continue;
        double x = LEFT + p->unit * (double)m->start / p->tick_ns;
        double w = p->unit * (double)(m->end - m->start) / p->tick_ns;
        snprintf(tip, sizeof tip, "measured %s  rank %u  %.9g–%.9g us",
                 tu_op_text(&op, 1, name), rank, (double)m->start / 1000,
                 (double)m->end / 1000);
        fill(p, &op, colour);
        tu_svg_rect(&p->v, x, y, w, LANE, colour, w > 3 ? "#ffffff" : NULL, tip);
        snprintf(label, sizeof label, "%u", m->mb);
        if (w > 5.5 * (double)strlen(label) + 2)
            tu_svg_text(&p->v, x + w / 2, y + LANE / 2 + 3.2, 9, TU_MIDDLE,
                        tu_ink_on(colour), label);
    }
}

/* At most two decimals, the nearest. */
static void rounded(int64_t ticks, int64_t scale, char out[40])
{
    int64_t whole = ticks / scale, rest = ticks % scale;
    int64_t cents = (int64_t)llround((double)rest * 100 / (double)scale);
    tu_ticks_text(whole * 100 + cents, 100, out);
}

static void rows(struct picture *p)
{
    const struct tu_sim *sim = p->sim;
    for (uint32_t r = 0; r < p->s->ranks; r++) {
        char text[24], a[40];
        double y = row_y(p, r), mid = y + ROW / 2 + 4;
        tu_svg_text(&p->v, LEFT - 10, mid, 12, TU_RIGHT, TU_COLOUR_TEXT,
                    tu_sched_rank_name(p->s, r, text));
        tu_svg_rect(&p->v, LEFT, y, p->width, ROW, TU_COLOUR_IDLE, NULL, NULL);
        for (size_t i = 0; i < p->s->n[r]; i++)
            box(p, r, i);
        if (p->over)
            lane(p, r);
        rounded(sim->makespan - sim->busy[r], p->c->scale, a);
        tu_svg_text(&p->v, LEFT + p->width + IDLE, mid, 12, TU_RIGHT, TU_COLOUR_TEXT, a);
    }
    tu_svg_text(&p->v, LEFT + p->width + IDLE, p->top - 8, 11, TU_RIGHT, TU_COLOUR_TEXT,
                "idle");
    if (holds(p))
        tu_svg_text(&p->v, LEFT + p->width + PEAK, p->top - 8, 11, TU_RIGHT, TU_COLOUR_TEXT,
                    "peak (M_B)");
}

static void axis(struct picture *p)
{
    double scale_to_unit = (double)p->c->scale, tick[32];
    double top = (double)p->end / scale_to_unit;
    double y = row_y(p, p->s->ranks) + 1;
    size_t n = tu_ticks(0, top > 0 ? top : 1, (size_t)fmin(30, p->width / 60 + 2), tick);
    for (size_t i = 0; i < n && tick[i] <= top * 1.000001; i++) {
        char text[48];
        double x = LEFT + p->unit * tick[i] * scale_to_unit;
        snprintf(text, sizeof text, "%.10g", tick[i]);
        tu_svg_line(&p->v, x, y, x, y + 4, TU_COLOUR_TEXT, 1);
        tu_svg_text(&p->v, x, y + 16, 11, TU_MIDDLE, TU_COLOUR_TEXT, text);
    }
    char text[32];
    snprintf(text, sizeof text, "time%s%s", *p->c->unit ? " in " : "", p->c->unit);
    tu_svg_text(&p->v, LEFT - 10, y + 16, 11, TU_RIGHT, TU_COLOUR_TEXT, text);
}

/* Room for the next item, on the next line where this one is full; false: only measured. */
static bool item(struct picture *p, const char *text, double *x)
{
    double w = SWATCH + 6 + LETTER * (double)strlen(text);
    if (p->x > LEFT && p->x + w > LEFT + p->width + PEAK) {
        p->x = LEFT;
        p->y += LINE;
    }
    *x = p->x;
    p->x += w + 18;
    if (!p->dry)
        tu_svg_text(&p->v, *x + SWATCH + 6, p->y + 11.5, 12, TU_LEFT, TU_COLOUR_TEXT, text);
    return !p->dry;
}

/* A square of a colour, with an edge or a bar above it, and what it means. */
static void swatch(struct picture *p, const char *colour, const char *edge, const char *bar,
                   const char *text)
{
    double x, in = edge ? .5 : 0;
    if (!item(p, text, &x))
        return;
    tu_svg_rect(&p->v, x + in, p->y + in, SWATCH - 2 * in, SWATCH - 2 * in, colour, edge, NULL);
    if (bar)
        tu_svg_rect(&p->v, x, p->y, SWATCH, 3, bar, NULL, NULL);
}

/* Ends one line above the rows. */
static void legend(struct picture *p, bool dry)
{
    static const char *const words[TU_OP_KINDS] = {
#define WORD(NAME, letters, help) help,
        TU_OP_TABLE(WORD)
#undef WORD
    };
    const struct tu_schedule *row = made_by(p);
    char text[64], colour[8];
    double x;
    p->dry = dry;
    p->x = LEFT;
    p->y = 58;
    for (unsigned k = 0; k < TU_OP_KINDS; k++)
        if (p->seen[k])
            swatch(p, tu_colour((unsigned)hue[k]), NULL, NULL,
                   row && row->rank ? "busy" : words[k]);
    swatch(p, TU_COLOUR_IDLE, "#bbbbbb", NULL, "idle");
    if (p->chunks > 1) {
        snprintf(text, sizeof text,
                 p->chunks > 2 ? "lighter with each chunk, 0 … %u" : "chunk %u",
                 p->chunks - 1);
        swatch(p, tu_shade(tu_colour(0), 62, colour), NULL, NULL, text);
    }
    if (p->s->pipelines > 1)
        swatch(p, tu_colour(0), NULL, TU_COLOUR_TEXT, "second pipeline");
    if (p->over && item(p, "lower rows: measured", &x)) {
        tu_svg_rect(&p->v, x, p->y, SWATCH, 8, TU_COLOUR_IDLE, NULL, NULL);
        tu_svg_rect(&p->v, x, p->y + 9, SWATCH, 5, tu_colour(0), NULL, NULL);
    }
    if (holds(p) && item(p, "activation memory; line: the fullest rank's peak", &x)) {
        tu_svg_rect(&p->v, x, p->y, SWATCH, SWATCH, MEMORY_AREA, NULL, NULL);
        tu_svg_line(&p->v, x, p->y, x + SWATCH, p->y, MEMORY_LINE, 1.2);
    }
    p->top = p->y - 58 + TOP + LINE;
}

static double measured_us(const struct picture *p)
{
    int64_t end = 0;
    for (size_t i = 0; i < p->over->n; i++)
        end = p->over->op[i].end > end ? p->over->op[i].end : end;
    return (double)end / 1000;
}

static void title(struct picture *p)
{
    char text[200], a[40], b[40];
    const struct tu_sched *s = p->s;
    const struct tu_schedule *row = made_by(p);
    const char *pieces = row && row->pieces ? row->pieces : "micro-batches";
    size_t n = strlen(pieces), plural = !strcmp(pieces + n - 3, "hes") ? 2 : 1;
    snprintf(text, sizeof text, "%s, %u rank%s, %u %.*s", *s->name ? s->name : "schedule",
             s->ranks, s->ranks == 1 ? "" : "s", s->microbatches,
             (int)(n - (s->microbatches == 1 ? plural : 0)), pieces);
    tu_svg_text(&p->v, LEFT, 26, 16, TU_LEFT, TU_COLOUR_TEXT, text);
    tu_ticks_text(p->sim->makespan, p->c->scale, a);
    tu_ticks_text(p->sim->span, p->c->scale, b);
    snprintf(text, sizeof text, "makespan %s, span %s, bubble %.2f %% (span %.2f %%)", a,
             b, 100 * tu_sim_bubble(p->sim, true), 100 * tu_sim_bubble(p->sim, false));
    size_t used = strlen(text);
    if (p->over && used < sizeof text)
        snprintf(text + used, sizeof text - used, ", measured %.9g us", measured_us(p));
    tu_svg_text(&p->v, LEFT, 44, 12, TU_LEFT, TU_COLOUR_TEXT, text);
}

/* The corners of a rank's memory as steps from y down to y + STRIP: xy[2 n] from the
 * baseline to the baseline; the caller frees it. */
static int steps(const struct picture *p, uint32_t rank, double y, double **xy, size_t *n,
                 struct tu_err *err)
{
    int64_t *time, *units;
    size_t events, k = 0;
    int64_t last = 0;
    double at = y + STRIP, x = LEFT;
    int rc = tu_sim_memory(p->sim, p->s, p->c, rank, &time, &units, &events, err);
    double *v = rc ? NULL : tu_alloc(events + 2, 4 * sizeof *v, err);
    for (size_t i = 0; v && i < events; i++) {
        if (i + 1 < events && time[i + 1] == time[i])
            continue; /* freed and taken again at once */
        double to = y + STRIP - STRIP * (double)units[i] / (double)p->fullest;
        if (units[i] == last)
            continue;
        last = units[i];
        x = LEFT + p->unit * (double)time[i];
        v[k++] = x, v[k++] = at;
        v[k++] = x, v[k++] = at = to;
    }
    if (v) {
        v[k++] = x, v[k++] = y + STRIP;
    }
    *xy = v;
    *n = k / 2;
    tu_free(time);
    tu_free(units);
    return v ? 0 : rc ? rc : TU_ENOMEM;
}

/* A rank's memory below its row, and its peak beside it. */
static int strip(struct picture *p, uint32_t rank, struct tu_err *err)
{
    double y = row_y(p, rank) + lanes(p) + BETWEEN, *xy = NULL;
    size_t n = 0;
    char text[40];
    int rc = steps(p, rank, y, &xy, &n, err);
    if (!rc) {
        tu_svg_path(&p->v, xy, n, MEMORY_AREA, NULL, 0);
        tu_svg_line(&p->v, LEFT, y, LEFT + p->width, y, MEMORY_AREA, .8);
        tu_svg_path(&p->v, xy, n, NULL, MEMORY_LINE, 1.2);
        tu_svg_line(&p->v, LEFT, y + STRIP, LEFT + p->width, y + STRIP, MEMORY_LINE, .7);
    }
    rounded(p->fullest, p->sim->mem_unit, text);
    tu_svg_text(&p->v, LEFT - 10, y + 5, 9, TU_RIGHT, MEMORY_LINE, text);
    tu_svg_text(&p->v, LEFT - 10, y + STRIP + 3, 9, TU_RIGHT, MEMORY_LINE, "0");
    rounded(p->sim->peak[rank], p->sim->mem_unit, text);
    tu_svg_text(&p->v, LEFT + p->width + PEAK, y + STRIP / 2 + 4, 12, TU_RIGHT,
                TU_COLOUR_TEXT, text);
    tu_free(xy);
    return rc;
}

static int memory(struct picture *p, struct tu_err *err)
{
    int rc = 0;
    p->fullest = 1;
    for (uint32_t r = 0; r < p->s->ranks; r++)
        if (p->sim->peak[r] > p->fullest)
            p->fullest = p->sim->peak[r];
    for (uint32_t r = 0; r < p->s->ranks && !rc; r++)
        rc = strip(p, r, err);
    return rc;
}

/* Ticks in which the measured step fits, too. */
static int extent(struct picture *p, struct tu_err *err)
{
    static const struct {
        const char *unit;
        double ns;
    } unit[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    p->end = p->sim->makespan;
    for (size_t i = 0; p->over && i < 4; i++)
        if (!strcmp(p->c->unit, unit[i].unit))
            p->tick_ns = unit[i].ns / (double)p->c->scale;
    if (!p->over)
        return 0;
    if (!(p->tick_ns > 0))
        return tu_fail(err, TU_EUSAGE,
                       "svg: a measured step needs a cost in ns, us, ms or s");
    double last = ceil(measured_us(p) * 1000 / p->tick_ns);
    if (!(last < (double)(INT64_MAX / 4)))
        return tu_fail(err, TU_ESIZE, "times are too large to be added");
    int64_t end = llround(last);
    p->end = end > p->end ? end : p->end;
    return 0;
}

int tu_sched_svg(struct tu_buf *out, const struct tu_sched *s, const struct tu_cost *c,
                 const struct tu_sim *sim, const struct tu_measured *over,
                 struct tu_err *err)
{
    struct picture p = {.s = s, .c = c, .sim = sim, .over = over};
    int rc = extent(&p, err);
    if (rc)
        return rc;
    p.chunk = tui_chunk_numbers(s, true, &p.chunks, err);
    rc = p.chunk ? 0 : TU_ENOMEM;
    scale(&p);
    legend(&p, true);
    double height = row_y(&p, s->ranks) + 34;
    tu_svg_begin(&p.v, out, LEFT + p.width + RIGHT, height,
                 *s->name ? s->name : "schedule");
    if (!rc) {
        title(&p);
        rows(&p);
        legend(&p, false);
        axis(&p);
        rc = holds(&p) ? memory(&p, err) : 0;
    }
    tu_free(p.chunk);
    int end = tu_svg_end(&p.v, err);
    return rc ? rc : end;
}

static int write_svg(struct tu_buf *out, const struct tu_sched *s,
                     const struct tu_cost *c, const struct tu_sim *sim,
                     struct tu_err *err)
{
    return tu_sched_svg(out, s, c, sim, NULL, err);
}

const struct tu_sched_form tui_form_svg = {
    "svg", "a picture, memory below each rank", NULL, NULL, write_svg, true, "svg",
    false};
