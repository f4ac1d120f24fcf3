/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: the figures of a simulation as text and as JSON. */
#include <inttypes.h>
#include <string.h>
#include "pipe-sched/pipe.h"

void pipe_json_time(struct tu_jw *w, const char *key, int64_t ticks,
                    const struct tu_cost *c)
{
    char text[40];
    tu_jw_raw(w, key, tu_ticks_text(ticks, c->scale, text));
}

static double over_ideal(const struct tu_sim *sim, int64_t x)
{
    return sim->ideal ? (double)(x - sim->ideal) / (double)sim->ideal : 0;
}

/* The share of the step that a better order could save at most. */
static double gap_over(const struct tu_sim *sim, const struct tu_cost *c, int64_t bound)
{
    int64_t step = c->barrier ? sim->makespan : sim->span;
    return step > 0 ? (double)(step - bound) / (double)step : 0;
}

void pipe_json_sim(struct tu_jw *w, const struct tu_sched *s, const struct tu_cost *c,
                   const struct tu_sim *sim, int64_t bound)
{
    char text[40];
    tu_jw_str(w, "name", s->name);
    tu_jw_str(w, "placement", tu_sched_placement(s));
    tu_jw_u64(w, "ranks", s->ranks);
    tu_jw_u64(w, "stages", s->stages);
    tu_jw_u64(w, "pipelines", s->pipelines);
    tu_jw_u64(w, "microbatches", s->microbatches);
    tu_jw_u64(w, "operations", sim->ops);
    tu_jw_str(w, "unit", c->unit);
    pipe_json_time(w, "makespan", sim->makespan, c);
    pipe_json_time(w, "span", sim->span, c);
    pipe_json_time(w, "ideal", sim->ideal, c);
    pipe_json_time(w, "step", (c->barrier ? sim->makespan : sim->span), c);
    pipe_json_time(w, "bound", bound, c);
    tu_jw_real(w, "gap", gap_over(sim, c, bound));
    tu_jw_real(w, "bubble_makespan", tu_sim_bubble(sim, true));
    tu_jw_real(w, "bubble_span", tu_sim_bubble(sim, false));
    tu_jw_real(w, "bubble_makespan_over_ideal", over_ideal(sim, sim->makespan));
    tu_jw_real(w, "bubble_span_over_ideal", over_ideal(sim, sim->span));
    tu_jw_i64(w, "transfers", sim->sent);
    tu_jw_open(w, "per_rank", '[');
    for (uint32_t r = 0; r < s->ranks; r++) {
        tu_jw_open(w, NULL, '{');
        pipe_json_time(w, "busy", sim->busy[r], c);
        pipe_json_time(w, "idle", sim->makespan - sim->busy[r], c);
        pipe_json_time(w, "first", sim->first[r], c);
        pipe_json_time(w, "last", sim->last[r], c);
        pipe_json_time(w, "blocked", sim->blocked[r], c);
        tu_jw_raw(w, "peak", tu_ticks_text(sim->peak[r], sim->mem_unit, text));
        if (s->async) {
            tu_jw_u64(w, "versions", sim->versions[r]);
            tu_jw_u64(w, "staleness", sim->staleness[r]);
        }
        tu_jw_close(w, '}');
    }
    tu_jw_close(w, ']');
}

void pipe_print_sim(struct tu_ctx *ctx, const struct tu_sched *s, const struct tu_cost *c,
                    const struct tu_sim *sim, int64_t bound)
{
    char t[6][40];
    const char *unit = c->unit;
    tu_print(ctx, "%s%s%u ranks, %u stages%s (%s), %u micro-batches, %zu operations\n",
             s->name, *s->name ? ": " : "", s->ranks, s->stages,
             s->pipelines > 1 ? " in each of two pipelines" : "", tu_sched_placement(s),
             s->microbatches, sim->ops);
    tu_print(ctx, "makespan %s%s%s, span %s, ideal %s\n",
             tu_ticks_text(sim->makespan, c->scale, t[0]), *unit ? " " : "", unit,
             tu_ticks_text(sim->span, c->scale, t[1]),
             tu_ticks_text(sim->ideal, c->scale, t[2]));
    tu_print(
        ctx,
        "bubble of makespan %.4f (%.4f over ideal), of span %.4f (%.4f over ideal)\n",
        tu_sim_bubble(sim, true), over_ideal(sim, sim->makespan),
        tu_sim_bubble(sim, false), over_ideal(sim, sim->span));
    tu_print(ctx, "step %s (%s), %" PRId64 " transfers between ranks\n",
             c->barrier ? t[0] : t[1],
             c->barrier ? "all ranks line up at its end" : "ranks go on alone",
             sim->sent);
    if (s->deps == TU_DEPS_TRAIN && !s->async)
        tu_print(ctx, "no order takes less than %s here, gap %.4f\n",
                 tu_ticks_text(bound, c->scale, t[0]), gap_over(sim, c, bound));
    tu_print(ctx, "%5s %12s %12s %12s %12s %12s %10s%s\n", "RANK", "BUSY", "IDLE",
             "FIRST", "LAST", "BLOCKED", "PEAK", s->async ? "  VERSIONS  STALENESS" : "");
    for (uint32_t r = 0; r < s->ranks; r++) {
        tu_print(ctx, "%5u %12s %12s %12s %12s %12s %10s", r,
                 tu_ticks_text(sim->busy[r], c->scale, t[0]),
                 tu_ticks_text(sim->makespan - sim->busy[r], c->scale, t[1]),
                 tu_ticks_text(sim->first[r], c->scale, t[2]),
                 tu_ticks_text(sim->last[r], c->scale, t[3]),
                 tu_ticks_text(sim->blocked[r], c->scale, t[4]),
                 tu_ticks_text(sim->peak[r], sim->mem_unit, t[5]));
        if (s->async)
            tu_print(ctx, " %9u %10u", sim->versions[r], sim->staleness[r]);
        tu_print(ctx, "\n");
    }
}
