/* SPDX-License-Identifier: Apache-2.0 */
/* form_trace.c: Chrome's trace event format, which Perfetto opens.
 *
 * A process for each rank; thread 0 computes, thread 1 moves data; transfers between
 * ranks are flow arrows and memory is a counter. Times are microseconds of the cost's
 * unit; a cost without a unit counts one unit as one microsecond. */
#include <stdio.h>
#include <string.h>
#include "sched/index.h"
#include "sched/load.h"

struct trace {
    struct tu_jw w;
    const struct tu_sched *s;
    const struct tu_cost *c;
    const struct tu_sim *sim;
};

/* Microseconds as exact text. */
static void micro(struct trace *t, const char *key, int64_t ticks)
{
    static const struct {
        const char *unit;
        int64_t mul, div;
    } scale[] = {
        {"ns", 1, 1000}, {"us", 1, 1}, {"ms", 1000, 1}, {"s", 1000000, 1}, {"", 1, 1}};
    char text[40];
    size_t i = 0;
    while (i < 4 && strcmp(scale[i].unit, t->c->unit))
        i++;
    tu_jw_raw(&t->w, key,
              tu_ticks_text(ticks * scale[i].mul, t->c->scale * scale[i].div, text));
}

static void meta(struct trace *t, const char *name, uint32_t rank, uint32_t thread,
                 const char *value)
{
    tu_jw_open(&t->w, NULL, '{');
    tu_jw_str(&t->w, "name", name);
    tu_jw_str(&t->w, "ph", "M");
    tu_jw_u64(&t->w, "pid", rank);
    tu_jw_u64(&t->w, "tid", thread);
    tu_jw_open(&t->w, "args", '{');
    if (value)
        tu_jw_str(&t->w, "name", value);
    else
        tu_jw_u64(&t->w, "sort_index", rank);
    tu_jw_close(&t->w, '}');
    tu_jw_close(&t->w, '}');
}

static void slice(struct trace *t, uint32_t rank, size_t i)
{
    const struct tu_op *op = &t->s->op[rank][i];
    size_t id = t->sim->base[rank] + i;
    char name[40];
    tu_jw_open(&t->w, NULL, '{');
    tu_jw_str(&t->w, "name", tu_op_text(op, t->s->slices, name));
    tu_jw_str(&t->w, "cat", op->kind <= TU_OP_OPT ? "compute" : "communication");
    tu_jw_str(&t->w, "ph", "X");
    tu_jw_u64(&t->w, "pid", rank);
    tu_jw_u64(&t->w, "tid", op->kind > TU_OP_OPT);
    micro(t, "ts", t->sim->start[id]);
    micro(t, "dur", t->sim->end[id] - t->sim->start[id]);
    tu_jw_open(&t->w, "args", '{');
    tu_jw_str(&t->w, "kind", tu_op_name(op->kind));
    tu_jw_u64(&t->w, "stage", op->stage);
    tu_jw_u64(&t->w, "microbatch", op->mb);
    if (op->flags & TU_OP_PAIRED)
        tu_jw_bool(&t->w, "overlapped_with_next", true);
    tu_jw_close(&t->w, '}');
    tu_jw_close(&t->w, '}');
}

static void arrow(struct trace *t, bool from, size_t id, uint32_t rank, int64_t at)
{
    tu_jw_open(&t->w, NULL, '{');
    tu_jw_str(&t->w, "name", "transfer");
    tu_jw_str(&t->w, "cat", "transfer");
    tu_jw_str(&t->w, "ph", from ? "s" : "f");
    if (!from)
        tu_jw_str(&t->w, "bp", "e");
    tu_jw_u64(&t->w, "id", id);
    tu_jw_u64(&t->w, "pid", rank);
    tu_jw_u64(&t->w, "tid", 0);
    micro(t, "ts", at);
    tu_jw_close(&t->w, '}');
}

static int arrows(struct trace *t, struct tu_err *err)
{
    struct tui_index x;
    struct tui_need need[TUI_NEEDS];
    size_t faults;
    int rc = tui_index_make(&x, t->s, NULL, &faults, err);
    for (uint32_t r = 0; r < t->s->ranks && !rc; r++)
        for (size_t i = 0; i < t->s->n[r]; i++) {
            unsigned n = tui_needs(&x, &t->s->op[r][i], need);
            for (unsigned k = 0; k < n; k++) {
                if (!need[k].transfer || need[k].op == TUI_NONE)
                    continue;
                arrow(t, true, need[k].op, need[k].rank, t->sim->end[need[k].op]);
                arrow(t, false, need[k].op, r, t->sim->start[x.base[r] + i]);
            }
        }
    tui_index_release(&x);
    return rc;
}

static int counter(struct trace *t, uint32_t rank, struct tu_err *err)
{
    int64_t *time, *units;
    size_t n;
    char text[40];
    int rc = tu_sim_memory(t->sim, t->s, t->c, rank, &time, &units, &n, err);
    for (size_t i = 0; i < n && !rc; i++) {
        if (i + 1 < n && time[i + 1] == time[i])
            continue;
        tu_jw_open(&t->w, NULL, '{');
        tu_jw_str(&t->w, "name", "activations");
        tu_jw_str(&t->w, "ph", "C");
        tu_jw_u64(&t->w, "pid", rank);
        micro(t, "ts", time[i]);
        tu_jw_open(&t->w, "args", '{');
        tu_jw_raw(&t->w, "held", tu_ticks_text(units[i], t->sim->mem_unit, text));
        tu_jw_close(&t->w, '}');
        tu_jw_close(&t->w, '}');
    }
    tu_free(time);
    tu_free(units);
    return rc;
}

static int write_trace(struct tu_buf *out, const struct tu_sched *s,
                       const struct tu_cost *c, const struct tu_sim *sim,
                       struct tu_err *err)
{
    struct trace t = {.s = s, .c = c, .sim = sim};
    int rc = 0;
    tu_jw_begin(&t.w, out);
    tu_jw_open(&t.w, NULL, '{');
    tu_jw_str(&t.w, "displayTimeUnit", "ns");
    tu_jw_open(&t.w, "traceEvents", '[');
    for (uint32_t r = 0; r < s->ranks; r++) {
        char name[24];
        meta(&t, "process_name", r, 0, tu_sched_rank_name(s, r, name));
        meta(&t, "process_sort_index", r, 0, NULL);
        meta(&t, "thread_name", r, 0, "compute");
        meta(&t, "thread_name", r, 1, "communication");
        for (size_t i = 0; i < s->n[r]; i++)
            slice(&t, r, i);
        if (!rc)
            rc = counter(&t, r, err);
    }
    if (!rc)
        rc = arrows(&t, err);
    tu_jw_close(&t.w, ']');
    tu_jw_close(&t.w, '}');
    int end = tu_jw_end(&t.w, err);
    if (!rc && !end)
        rc = tu_buf_text(out, "\n", err);
    return rc ? rc : end;
}

const struct tu_sched_form tui_form_trace = {
    "trace", "Chrome trace events, for Perfetto", NULL, NULL, write_trace, true, NULL,
    false};
