/* SPDX-License-Identifier: Apache-2.0 */
/* form_text.c: schedules for a terminal, for LaTeX and for Graphviz.
 *
 * text: one column for each greatest common divisor of the times, so widths are exact. */
#include <stdio.h>
#include <string.h>
#include "sched/index.h"
#include "sched/load.h"

#define COLUMNS_MAX 4096

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

static const int colour_of[TU_OP_KINDS] = {[TU_OP_F] = 0, [TU_OP_B] = 2, [TU_OP_I] = 3,
                                           [TU_OP_W] = 5, [TU_OP_R] = 4, [TU_OP_OPT] = 7};

/* Put an operation into its columns: its text, then a line. */
static void put(struct tu_grid_cell *row, char *text, const struct tu_op *op,
                uint32_t slices, int64_t from, int64_t to)
{
    for (int64_t k = from; k < to; k++) {
        if (row[k].text && op->kind != TU_OP_F) {
            row[k].colour =
                colour_of[op->kind]; /* the second of a pair: shown by colour */
            continue;
        }
        row[k] = (struct tu_grid_cell){k == from ? text : "-", colour_of[op->kind]};
    }
    tu_op_text(op, slices, text);
}

static int text_grid(struct tu_buf *out, const struct tu_sched *s,
                     const struct tu_sim *sim, bool colour, size_t width,
                     struct tu_err *err)
{
    int64_t step = 0;
    for (size_t i = 0; i < sim->ops; i++)
        step = gcd(gcd(step, sim->start[i]), sim->end[i]);
    int64_t cols = step ? sim->makespan / step : 0;
    if (cols > COLUMNS_MAX)
        return tu_fail(
            err, TU_EUSAGE,
            "text: %lld columns: over %d; the times have no common step that is "
            "long enough",
            (long long)cols, COLUMNS_MAX);
    struct tu_grid_cell *grid =
        tu_calloc((size_t)s->ranks * (size_t)cols + 1, sizeof *grid, err);
    char(*text)[40] = tu_alloc(sim->ops, sizeof *text, err);
    const char **label = tu_alloc(s->ranks, sizeof *label, err);
    char(*name)[16] = tu_alloc(s->ranks, sizeof *name, err);
    int rc = grid && text && label && name ? 0 : TU_ENOMEM;
    for (size_t i = 0; !rc && i < (size_t)s->ranks * (size_t)cols; i++)
        grid[i].colour = -1;
    for (uint32_t r = 0; r < s->ranks && !rc; r++) {
        snprintf(name[r], sizeof name[r], "%u", r);
        label[r] = name[r];
        for (size_t i = 0; i < s->n[r]; i++) {
            size_t id = sim->base[r] + i;
            if (s->op[r][i].kind <= TU_OP_OPT && sim->end[id] > sim->start[id])
                put(grid + (size_t)r * (size_t)cols, text[id], &s->op[r][i], s->slices,
                    sim->start[id] / step, sim->end[id] / step);
        }
    }
    if (!rc)
        rc = tu_grid_text(
            out,
            &(struct tu_grid){grid, s->ranks, (size_t)cols, label, colour, width}, err);
    tu_free(grid);
    tu_free(text);
    tu_free(label);
    tu_free(name);
    return rc;
}

static int write_text(struct tu_buf *out, const struct tu_sched *s,
                      const struct tu_cost *c, const struct tu_sim *sim,
                      struct tu_err *err)
{
    (void)c;
    return text_grid(out, s, sim, false, 0, err);
}

int tu_sched_grid(struct tu_buf *out, const struct tu_sched *s, const struct tu_sim *sim,
                  bool colour, size_t width, struct tu_err *err)
{
    return text_grid(out, s, sim, colour, width, err);
}

/* TikZ
 * ----------------------------------------------------------------------------------- */

static const char *const tikz_colour[] = {"0072b2", "009e73", "e69f00",
                                          "cc79a7", "56b4e9", "000000"};

/* Centimetres of a tick, for TeX itself cannot count that far: the shortest operation is
 * half a centimetre wide, the whole at most 40. */
static double tikz_unit(const struct tu_sim *sim)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < sim->ops; i++) {
        int64_t d = sim->end[i] - sim->start[i];
        least = d > 0 && d < least ? d : least;
    }
    double total = sim->makespan > 0 ? (double)sim->makespan : 1;
    double tick = least < INT64_MAX ? .5 / (double)least : 1;
    return tick * total > 40 ? 40 / total : tick;
}

struct tikz {
    const struct tu_sched *s;
    const struct tu_sim *sim;
    double unit; /* centimetres of a tick */
    uint32_t *chunk, chunks;
};

/* A box: full height, or half of it for each of an overlapped pair; paler for later
 * chunks. */
static int tikz_box(struct tu_buf *out, const struct tikz *p, uint32_t rank, size_t i,
                    struct tu_err *err)
{
    const struct tu_op *op = &p->s->op[rank][i];
    size_t id = p->sim->base[rank] + i;
    bool second = i && p->s->op[rank][i - 1].flags & TU_OP_PAIRED;
    bool first = op->flags & TU_OP_PAIRED;
    int64_t from = p->sim->start[id], to = p->sim->end[id];
    if (op->kind > TU_OP_OPT || from == to)
        return 0;
    uint32_t chunk = op->kind == TU_OP_OPT ? 0 : p->chunk[op->stage];
    unsigned shade = 90 - (p->chunks > 1 ? 55 * chunk / (p->chunks - 1) : 0);
    bool dark = shade > 60 && (op->kind == TU_OP_F || op->kind == TU_OP_B);
    return tu_buf_printf(out, err,
                         "\\filldraw[fill=op%s!%u,draw=white] (%.3f,%u.%d) rectangle "
                         "(%.3f,%u.%d) node[pos=.5%s] {%u};\n",
                         tu_op_name(op->kind), shade, p->unit * (double)from, rank,
                         second ? 4 : 0, p->unit * (double)to, rank, first ? 4 : 8,
                         dark ? ",white" : "", op->mb);
}

static int write_tikz(struct tu_buf *out, const struct tu_sched *s,
                      const struct tu_cost *c, const struct tu_sim *sim,
                      struct tu_err *err)
{
    bool seen[TU_OP_KINDS] = {false};
    struct tikz p = {.s = s, .sim = sim, .unit = tikz_unit(sim)};
    (void)c;
    p.chunk = tui_chunk_numbers(s, true, &p.chunks, err);
    if (!p.chunk)
        return TU_ENOMEM;
    int rc = tu_buf_text(out,
                         "\\documentclass[tikz]{standalone}\n\\begin{document}\n"
                         "\\begin{tikzpicture}[x=1cm,y=-0.6cm,font=\\sffamily\\tiny]\n",
                         err);
    for (unsigned k = 0; k <= TU_OP_OPT && !rc; k++)
        rc = tu_buf_printf(out, err, "\\definecolor{op%s}{HTML}{%s}\n", tu_op_name(k),
                           tikz_colour[k]);
    for (uint32_t r = 0; r < s->ranks && !rc; r++) {
        char name[24];
        rc = tu_buf_printf(out, err,
                           "\\node[left] at (0,%u.4) {%s};\n"
                           "\\fill[black!5] (0,%u) rectangle (%.3f,%u.8);\n",
                           r, tu_sched_rank_name(s, r, name), r,
                           p.unit * (double)sim->makespan, r);
        for (size_t i = 0; i < s->n[r] && !rc; i++) {
            seen[s->op[r][i].kind] = true;
            rc = tikz_box(out, &p, r, i, err);
        }
    }
    tu_free(p.chunk);
    unsigned at = 0;
    for (unsigned k = 0; k <= TU_OP_OPT && !rc; k++)
        if (seen[k])
            rc = tu_buf_printf(out, err,
                               "\\node[right,fill=op%s!90,minimum width=5mm] at "
                               "([xshift=%umm]0,%u.4) {%s};\n",
                               tu_op_name(k), 9 * at++, s->ranks, tu_op_name(k));
    return rc ? rc : tu_buf_text(out, "\\end{tikzpicture}\n\\end{document}\n", err);
}

/* Graphviz
 * ------------------------------------------------------------------------------- */

static int edges(struct tu_buf *out, const struct tu_sched *s, const struct tui_index *x,
                 uint32_t rank, struct tu_err *err)
{
    struct tui_need need[TUI_NEEDS];
    int rc = 0;
    for (size_t i = 0; i < s->n[rank] && !rc; i++) {
        unsigned n = tui_needs(x, &s->op[rank][i], need);
        size_t id = x->base[rank] + i;
        if (i)
            rc = tu_buf_printf(out, err, "n%zu -> n%zu [style=dotted];\n", id - 1, id);
        for (unsigned k = 0; k < n && !rc; k++)
            if (need[k].op != TUI_NONE)
                rc = tu_buf_printf(out, err, "n%u -> n%zu%s;\n", need[k].op, id,
                                   need[k].transfer ? " [color=\"#d55e00\"]" : "");
    }
    return rc;
}

static int write_dot(struct tu_buf *out, const struct tu_sched *s,
                     const struct tu_cost *c, const struct tu_sim *sim,
                     struct tu_err *err)
{
    struct tui_index x;
    size_t faults;
    (void)c;
    (void)sim;
    int rc = tui_index_make(&x, s, NULL, &faults, err);
    if (!rc)
        rc =
            tu_buf_text(out, "digraph schedule {\nrankdir=LR;\nnode [shape=box];\n", err);
    for (uint32_t r = 0; r < s->ranks && !rc; r++) {
        char name[24];
        rc = tu_buf_printf(out, err, "subgraph cluster_%u {\nlabel=\"%s\";\n", r,
                           tu_sched_rank_name(s, r, name));
        for (size_t i = 0; i < s->n[r] && !rc; i++) {
            char text[40];
            rc = tu_buf_printf(out, err, "n%zu [label=\"%s\"];\n", x.base[r] + i,
                               tu_op_text(&s->op[r][i], s->slices, text));
        }
        if (!rc)
            rc = tu_buf_text(out, "}\n", err);
    }
    for (uint32_t r = 0; r < s->ranks && !rc; r++)
        rc = edges(out, s, &x, r, err);
    tui_index_release(&x);
    return rc ? rc : tu_buf_text(out, "}\n", err);
}

const struct tu_sched_form tui_form_text = {
    "text", "a grid for the terminal", NULL, NULL, write_text, true, "txt", false};
const struct tu_sched_form tui_form_tikz = {
    "tikz", "a standalone LaTeX picture", NULL, NULL, write_tikz, true, "tex",
    false};
const struct tu_sched_form tui_form_dot = {
    "dot", "the graph of dependences, for Graphviz", NULL, NULL, write_dot, false, "dot",
    true};
