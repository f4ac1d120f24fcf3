/* SPDX-License-Identifier: Apache-2.0 */
/* sched.c: the readers of schedules, layouts and times; what parses is simulated, written
 * and read again. */
#include <stdlib.h>
#include <string.h>
#include <tensorutils/sched.h>
#include <tensorutils/sched/split.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The same schedule must come back from the document. */
static void again(const struct tu_sched *s, const struct tu_cost *c)
{
    struct tu_buf a = {0}, b = {0};
    struct tu_sched *t = NULL;
    struct tu_cost d;
    const struct tu_sched_form *json = tu_sched_form_find("json");
    tu_cost_init(&d);
    if (json->write(&a, s, c, NULL, NULL))
        abort();
    if (tu_sched_read(&t, &d, a.data, a.n, json, NULL, NULL))
        abort();
    if (json->write(&b, t, &d, NULL, NULL) || a.n != b.n || memcmp(a.data, b.data, a.n))
        abort();
    tu_sched_free(t);
    tu_cost_release(&d);
    tu_buf_release(&a);
    tu_buf_release(&b);
}

static void schedule(const char *text, size_t n, const struct tu_sched_form *form)
{
    struct tu_sched *s = NULL;
    struct tu_cost c;
    struct tu_sim sim = {0};
    struct tu_buf report = {0};
    size_t faults = 0;
    tu_cost_init(&c);
    struct tu_sched_hint three = {.ranks = 3}; /* for forms that do not say */
    bool table = form && !strcmp(form->name, "table");
    if (!tu_sched_read(&s, &c, text, n, form, table ? &three : NULL, NULL)) {
        int rc = tu_sim_run(&sim, s, &c, &report, &faults, NULL);
        if (!rc && !faults && (sim.span > sim.makespan || sim.ideal > sim.span))
            abort();
        if (!rc && faults && !report.n)
            abort(); /* a fault without a word */
        if (tu_sched_ops(s) < 10000)
            again(s, &c);
    }
    tu_sim_release(&sim);
    tu_sched_free(s);
    tu_cost_release(&c);
    tu_buf_release(&report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = malloc(n + 1);
    struct tu_layout_cell *cell;
    struct tu_cost c;
    size_t cells;
    if (!text)
        return 0;
    memcpy(text, data, n);
    text[n] = 0;
    schedule(text, n, NULL);
    for (size_t k = 0; tu_sched_forms[k]; k++)
        if (tu_sched_forms[k]->read)
            schedule(text, n, tu_sched_forms[k]);
    if (!tu_layout_read(&cell, &cells, text, NULL))
        tu_free(cell);
    tu_cost_init(&c);
    if (tu_cost_times(&c, text, n, NULL) == TU_EBUG ||
        tu_cost_parse(&c, text, 3, NULL) == TU_EBUG)
        abort();
    if (tu_cost_trace(&c, text, n, NULL) == TU_EBUG)
        abort();
    tu_cost_release(&c);
    free(text);
    return 0;
}
