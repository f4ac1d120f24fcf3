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
                     const struct tu_cost *c, const struct tu_sim *sim, bool colour,
                     struct tu_err *err)
{
    int64_t step = 0;
    (void)c;
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
        rc = tu_grid_text(out, grid, s->ranks, (size_t)cols, label, colour, err);
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
    return text_grid(out, s, c, sim, false, err);
}

int tu_sched_grid(struct tu_buf *out, const struct tu_sched *s, const struct tu_cost *c,
                  const struct tu_sim *sim, bool colour, struct tu_err *err)
{
    return text_grid(out, s, c, sim, colour, err);
}

/* TikZ
 * ----------------------------------------------------------------------------------- */

static const char *const tikz_colour[] = {"0072b2", "009e73", "e69f00",
                                          "cc79a7", "56b4e9", "000000"};

static int write_tikz(struct tu_buf *out, const struct tu_sched *s,
                      const struct tu_cost *c, const struct tu_sim *sim,
                      struct tu_err *err)
{
    int rc = tu_buf_text(out,
                         "\\documentclass[tikz]{standalone}\n\\begin{document}\n"
                         "\\begin{tikzpicture}[x=0.5cm,y=-0.6cm,font=\\sffamily\\tiny]\n",
                         err);
    for (unsigned k = 0; k <= TU_OP_OPT && !rc; k++)
        rc = tu_buf_printf(out, err, "\\definecolor{op%s}{HTML}{%s}\n", tu_op_name(k),
                           tikz_colour[k]);
    for (uint32_t r = 0; r < s->ranks && !rc; r++) {
        char name[24];
        rc = tu_buf_printf(out, err, "\\node[left] at (0,%u.4) {%s};\n", r,
                           tu_sched_rank_name(s, r, name));
        for (size_t i = 0; i < s->n[r] && !rc; i++) {
            const struct tu_op *op = &s->op[r][i];
            size_t id = sim->base[r] + i;
            char a[40], b[40];
            if (op->kind > TU_OP_OPT || sim->end[id] == sim->start[id])
                continue;
            rc = tu_buf_printf(
                out, err,
                "\\filldraw[fill=op%s!60,draw=white] (%s,%u) rectangle (%s,%u.8) "
                "node[pos=.5] {%u};\n",
                tu_op_name(op->kind), tu_ticks_text(sim->start[id], c->scale, a), r,
                tu_ticks_text(sim->end[id], c->scale, b), r, op->mb);
        }
    }
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
    "text", "a grid for the terminal", NULL, NULL, write_text, true};
const struct tu_sched_form tui_form_tikz = {
    "tikz", "a standalone LaTeX picture", NULL, NULL, write_tikz, true};
const struct tu_sched_form tui_form_dot = {
    "dot", "the graph of dependences, for Graphviz", NULL, NULL, write_dot, false};
