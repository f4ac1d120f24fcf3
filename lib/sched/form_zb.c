/* SPDX-License-Identifier: Apache-2.0 */
/* form_zb.c: the two texts of the zero-bubble schedulers.
 *
 * zb: blank separated, a letter and the micro-batch: f F forward, b B input gradient, w W
 * weight gradient; lower case is chunk 0 of a rank, upper case the next. grid: a cell of a
 * comma separated line is a slot of the greatest common duration, empty where the rank
 * is idle or goes on; here upper case is the first chunk. In both two chunks make a V.
 * Source: sail-sg/zero-bubble-pipeline-parallelism. */
#include <string.h>
#include "sched/form_says.h"
#include "sched/load.h"

#define SLOTS_MAX 65536 /* cells of a line that are written as a grid */

static const char letters[] = "fbwFBW";
static const uint8_t kind_of[] = {TU_OP_F, TU_OP_I, TU_OP_W};

static char letter(uint8_t kind, bool upper)
{
    return letters[(kind == TU_OP_F ? 0 : kind == TU_OP_I ? 1 : 2) + (upper ? 3 : 0)];
}

static int write_zb(struct tu_buf *out, const struct tu_sched *s, const struct tu_cost *c,
                    const struct tu_sim *sim, struct tu_err *err)
{
    int rc = tui_form_says(&(struct tui_says){"zb", true, true, false}, s, err);
    (void)c;
    (void)sim;
    for (uint32_t r = 0; r < s->ranks && !rc; r++) {
        for (size_t i = 0; i < s->n[r] && !rc; i++) {
            const struct tu_op *op = &s->op[r][i];
            rc = tu_buf_printf(out, err, "%s%c%u", i ? " " : "",
                               letter(op->kind, op->stage >= s->ranks), op->mb);
        }
        if (!rc)
            rc = tu_buf_text(out, "\n", err);
    }
    return rc;
}

/* One word of a rank's line; false when it is none. */
static bool word(const char *p, size_t n, uint32_t rank, uint32_t ranks,
                 bool second_is_upper, struct tu_op *op)
{
    const char *at = n ? memchr(letters, *p, 6) : NULL;
    uint32_t mb = 0;
    if (!at || n < 2 || n > 6)
        return false;
    for (size_t i = 1; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        mb = mb * 10 + (uint32_t)(p[i] - '0');
    }
    bool second = (at - letters >= 3) == second_is_upper;
    *op = (struct tu_op){.kind = kind_of[(at - letters) % 3],
                         .mb = mb,
                         .stage = second ? 2 * ranks - 1 - rank : rank};
    return mb < TU_SCHED_MAX;
}

static int zb_word(struct tui_load *l, const struct tui_word *w, struct tu_err *err)
{
    struct tu_op op;
    if (word(w->text, w->n, w->line, w->lines, true, &op))
        tui_load_op(l, w->line, &op);
    else if (w->n > 5 || !memchr("spr", *w->text, 3)) /* sf rf sb rb pv: passed over */
        return tu_fail_at(err, TU_EFORMAT, w->at,
                          "zb: rank %u, word %zu: not an operation", w->line,
                          w->column + 1);
    return 0;
}

static int read_zb(struct tu_sched **out, struct tu_cost *c, const char *text, size_t n,
                   const struct tu_sched_hint *hint, struct tu_err *err)
{
    struct tui_load l;
    (void)c;
    tui_load_words(&l, text, n, " \t", hint, zb_word, err);
    return tui_load_end(&l, out);
}

static bool sniff_zb(const char *text, size_t n)
{
    return n > 2 && memchr("fF", text[0], 2) && text[1] >= '0' && text[1] <= '9' &&
           memchr(text, ' ', n < 16 ? n : 16);
}

/* Grids
 * --------------------------------------------------------------------------- */

static int grid_word(struct tui_load *l, const struct tui_word *w, struct tu_err *err)
{
    struct tu_op op;
    if (!word(w->text, w->n, w->line, w->lines, false, &op))
        return tu_fail_at(err, TU_EFORMAT, w->at,
                          "grid: rank %u, word %zu: not an operation", w->line,
                          w->column + 1);
    tui_load_op(l, w->line, &op);
    return 0;
}

static int read_grid(struct tu_sched **out, struct tu_cost *c, const char *text, size_t n,
                     const struct tu_sched_hint *hint, struct tu_err *err)
{
    struct tui_load l;
    (void)c;
    tui_load_words(&l, text, n, ", \t", hint, grid_word, err);
    return tui_load_end(&l, out);
}

static int64_t slot_of(const struct tu_sim *sim)
{
    int64_t g = 0;
    for (size_t i = 0; i < sim->ops; i++)
        for (int64_t t = sim->start[i], both = 0; both < 2; both++, t = sim->end[i]) {
            int64_t a = g, b = t;
            while (b) {
                int64_t rest = a % b;
                a = b;
                b = rest;
            }
            g = a;
        }
    return g ? g : 1;
}

static int write_grid(struct tu_buf *out, const struct tu_sched *s,
                      const struct tu_cost *c, const struct tu_sim *sim,
                      struct tu_err *err)
{
    int64_t slot = slot_of(sim);
    bool gaps = sim->makespan / slot <= SLOTS_MAX;
    int rc = tui_form_says(&(struct tui_says){"grid", true, true, false}, s, err);
    (void)c;
    for (uint32_t r = 0; r < s->ranks && !rc; r++) {
        int64_t cells = 0; /* written, each with the comma before the next */
        for (size_t i = 0; i < s->n[r] && !rc; i++) {
            const struct tu_op *op = &s->op[r][i];
            int64_t at = sim->start[sim->base[r] + i] / slot;
            char one = letter(op->kind, op->stage < s->ranks);
            for (; gaps && cells < at && !rc; cells++)
                rc = tu_buf_text(out, ",", err);
            if (!rc)
                rc = tu_buf_printf(out, err, "%c%u%s", one, op->mb,
                                   i + 1 < s->n[r] ? "," : "");
            cells++;
        }
        if (!rc)
            rc = tu_buf_text(out, "\n", err);
    }
    return rc;
}

static bool sniff_grid(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && text[i] == ',')
        i++;
    return i + 2 < n && memchr("fF", text[i], 2) && text[i + 1] >= '0' &&
           text[i + 1] <= '9' && memchr(text + i, ',', n - i < 8 ? n - i : 8);
}

const struct tu_sched_form tui_form_zb = {
    "zb", "zero-bubble text: f0 F0 b0 w0", sniff_zb, read_zb, write_zb, false, NULL, true};
const struct tu_sched_form tui_form_grid = {
    "grid", "zero-bubble slots of a V: F0,f0,,B0", sniff_grid, read_grid, write_grid, true, NULL,
    true};
