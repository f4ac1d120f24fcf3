/* SPDX-License-Identifier: Apache-2.0 */
/* inject.c: every family, form, lowering and search with each allocation failing in turn
 * (later ones are sampled): TU_ENOMEM and a message, and what gets through all the same is
 * what the clean run gave. */
#include <stdlib.h>
#include <tensorutils/sched.h>
#include <tensorutils/sched/plan.h>
#include "../inject.h"

static void add_sched(const struct tu_sched *s)
{
    char text[40];
    for (uint32_t r = 0; r < s->ranks; r++)
        for (size_t i = 0; i < s->n[r]; i++) {
            tu_op_text(&s->op[r][i], s->slices, text);
            inject_add(text, strlen(text));
        }
}

static int make(struct tu_sched **s, const char *name, const struct tu_cost *c,
                struct tu_err *err)
{
    const struct tu_sched_params q = {.p = 4, .m = 8, .cost = c};
    *s = NULL;
    return tu_schedule_make(s, tu_schedule_find(name), &q, err);
}

static int simulate(struct tu_sim *sim, const struct tu_sched *s, const struct tu_cost *c,
                    struct tu_err *err)
{
    size_t faults = 0;
    struct tu_buf report = {0};
    *sim = (struct tu_sim){0};
    int rc = tu_sim_run(sim, s, c, &report, &faults, err);
    if (!rc && faults)
        inject_add(report.data, report.n);
    tu_buf_release(&report);
    return rc;
}

/* A family, run, and the memory of a rank. */
static int family(const void *name, struct tu_err *err)
{
    struct tu_sched *s;
    struct tu_cost c;
    struct tu_sim sim = {0};
    int64_t *time = NULL, *units = NULL;
    size_t n = 0;
    tu_cost_init(&c);
    int rc = make(&s, name, &c, err);
    if (!rc)
        rc = simulate(&sim, s, &c, err);
    if (!rc && sim.ops)
        rc = tu_sim_memory(&sim, s, &c, 0, &time, &units, &n, err);
    if (!rc)
        add_sched(s);
    if (!rc && n)
        inject_add(units, n * sizeof *units);
    free(time);
    free(units);
    tu_sim_release(&sim);
    tu_cost_release(&c);
    tu_sched_free(s);
    return rc;
}

/* A schedule written in a form, and read where that can be. */
static int form(const void *name, struct tu_err *err)
{
    const struct tu_sched_form *f = tu_sched_form_find(name);
    static const struct tu_sched_hint hint = {.ranks = 4, .stages = 4, .microbatches = 8};
    struct tu_sched *s, *back = NULL;
    struct tu_cost c, read;
    struct tu_sim sim = {0};
    struct tu_buf b = {0};
    tu_cost_init(&c);
    tu_cost_init(&read);
    int rc = tu_cost_parse(&c, "F=1.5,I=1,W=1,C=0.25", 1, err);
    if (!rc)
        rc = make(&s, "zb-h1", &c, err);
    else
        s = NULL;
    if (!rc)
        rc = simulate(&sim, s, &c, err);
    if (!rc && f->write)
        rc = f->write(&b, s, &c, &sim, err);
    if (!rc)
        inject_add(b.data, b.n);
    if (!rc && f->write && f->read)
        rc = tu_sched_read(&back, &read, b.data, b.n, f, &hint, err);
    if (!rc && back)
        add_sched(back);
    tu_sched_free(back);
    tu_buf_release(&b);
    tu_sim_release(&sim);
    tu_cost_release(&read);
    tu_cost_release(&c);
    tu_sched_free(s);
    return rc;
}

/* Transfers and the rest written down, and taken away again. */
static int lower(const void *name, struct tu_err *err)
{
    static const struct tu_lower how = {.merge = true, .recompute = true, .offload = true,
                                        .depth = 2, .transfers = true};
    struct tu_sched *s, *low = NULL, *bare = NULL;
    struct tu_cost c;
    struct tu_sim sim = {0};
    tu_cost_init(&c);
    int rc = make(&s, name, &c, err);
    if (!rc)
        rc = tu_sched_lower(&low, s, &how, err);
    if (!rc)
        rc = simulate(&sim, low, &c, err);
    if (!rc)
        rc = tu_sched_strip(&bare, low, err);
    if (!rc) {
        add_sched(low);
        add_sched(bare);
    }
    tu_sched_free(bare);
    tu_sched_free(low);
    tu_sim_release(&sim);
    tu_cost_release(&c);
    tu_sched_free(s);
    return rc;
}

/* The search, and the same question as a program. */
static int search(const void *snake, struct tu_err *err)
{
    const bool v = !strcmp(snake, "v");
    struct tu_cost c;
    struct tu_optimized best = {0};
    struct tu_buf lp = {0};
    tu_cost_init(&c);
    const struct tu_sched_params q = {.p = 3, .m = 3, .v = v ? 2 : 1, .cost = &c};
    const struct tu_optimize how = {.q = &q, .snake = v, .effort = 200, .seed = 1};
    int rc = tu_sched_optimize(&best, &how, err);
    if (!rc)
        add_sched(best.sched);
    if (!rc)
        rc = tu_optimize_lp(&lp, &how, err);
    if (!rc)
        inject_add(lp.data, lp.n);
    tu_buf_release(&lp);
    tu_sched_free(best.sched);
    tu_cost_release(&c);
    return rc;
}

/* Costs from a table and from traces. */
static int costs(const void *arg, struct tu_err *err)
{
    static const char table[] = "kind,stage,time\nF,0,1.5\nW,3,2\nlink,0,1,0.5\nmb,2,3\n",
                      trace[] = "{\"traceEvents\":[{\"name\":\"0F0\",\"ph\":\"X\",\"ts\":0,"
                                "\"dur\":3,\"tid\":0},{\"name\":\"0B0\",\"ph\":\"X\",\"ts\":4,"
                                "\"dur\":5,\"tid\":0}]}";
    struct tu_cost c, copy;
    (void)arg;
    tu_cost_init(&c);
    tu_cost_init(&copy);
    int rc = tu_cost_parse(&c, "F=1,B=2,unit=ms", 1, err);
    if (!rc)
        rc = tu_cost_times(&c, table, sizeof table - 1, err);
    if (!rc)
        rc = tu_cost_trace(&c, trace, sizeof trace - 1, err);
    if (!rc)
        rc = tu_cost_copy(&copy, &c, err);
    for (uint32_t stage = 0; !rc && stage < 4; stage++) {
        int64_t t = tu_cost_time(&copy, TU_OP_F, stage, 2);
        inject_add(&t, sizeof t);
    }
    tu_cost_release(&copy);
    tu_cost_release(&c);
    return rc;
}

/* true: the clean run gets through; not where it is not for four ranks, or not for this schedule. */
static bool walk(const char *name, int (*run)(const void *, struct tu_err *), const char *arg)
{
    struct tu_err err;
    char text[80];
    snprintf(text, sizeof text, "%s %s", name, arg);
    return run(arg, &err) != TU_EUSAGE &&
           inject_memory(&(struct inject){.name = text, .run = run, .arg = arg, .dense = 30});
}

int main(void)
{
    unsigned families = 0, forms = 0, lowered = 0;
    for (size_t i = 0; tu_schedules[i]; i++) {
        families += walk("family", family, tu_schedules[i]->name);
        lowered += i % 4 == 0 && walk("lower", lower, tu_schedules[i]->name);
    }
    for (size_t i = 0; tu_sched_forms[i]; i++)
        forms += walk("form", form, tu_sched_forms[i]->name);
    ok(families > 20 && forms > 3 && lowered > 2, "%u families, %u forms, %u lowered", families,
       forms, lowered);
    walk("search", search, "loop");
    walk("search", search, "v");
    walk("costs", costs, "table");
    return tap_done();
}
