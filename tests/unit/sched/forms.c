/* SPDX-License-Identifier: Apache-2.0 */
/* forms.c: all schedules through all forms that are read and written: each is refused, or
 * reads back with the same operations in the same places. */
#include <string.h>
#include "../tap.h"
#include "sched/build.h"

static bool same(const struct tu_sched *a, const struct tu_sched *b)
{
    bool good = a->ranks == b->ranks && a->stages == b->stages &&
                a->pipelines == b->pipelines && a->microbatches == b->microbatches &&
                a->slices == b->slices;
    size_t stages = (size_t)a->stages * a->pipelines;
    good = good && !memcmp(a->place, b->place, stages * sizeof *a->place);
    for (uint32_t r = 0; good && r < a->ranks; r++) {
        good = a->n[r] == b->n[r];
        for (size_t i = 0; good && i < a->n[r]; i++) {
            const struct tu_op *x = &a->op[r][i], *y = &b->op[r][i];
            good = x->kind == y->kind && x->stage == y->stage && x->mb == y->mb &&
                   x->slice == y->slice && x->flags == y->flags;
        }
    }
    return good;
}

/* What a form did with the schedules so far. */
struct tally {
    unsigned kept, refused, broken, failed;
    char first[120]; /* the first that broke */
};

static void through(const struct tu_sched_form *f, const struct tu_sched *s, struct tally *t)
{
    struct tu_buf text = {0};
    struct tu_cost c;
    struct tu_sim sim = {0};
    struct tu_err err = {0};
    struct tu_sched *back = NULL;
    size_t faults = 0;
    tu_cost_init(&c);
    int rc = f->needs_sim ? tu_sim_run(&sim, s, &c, NULL, &faults, &err) : 0;
    rc = rc ? rc : f->write(&text, s, &c, &sim, &err);
    struct tu_sched_hint hint = {.ranks = s->ranks, .pipelines = s->pipelines};
    if (rc == TU_EUSAGE) {
        t->refused++;
        t->failed += strlen(err.msg) < 10;
    } else if (rc || tu_sched_read(&back, &c, text.data, text.n, f, &hint, &err) ||
               !same(s, back)) {
        t->broken++;
        if (!*t->first)
            snprintf(t->first, sizeof t->first, "%s p=%u m=%u stages=%u: %.60s", s->name,
                     s->ranks, s->microbatches, s->stages, back ? "other" : err.msg);
    } else {
        t->kept++;
    }
    tu_sched_free(back);
    tu_sim_release(&sim);
    tu_cost_release(&c);
    tu_buf_release(&text);
}

/* One size of one row, as it is and with its communication. */
static void one(const struct tu_schedule *row, uint32_t p, uint32_t m, uint32_t v,
                struct tally *t)
{
    struct tu_sched *s = NULL, *low = NULL;
    struct tu_err err;
    struct tu_sched_params q = {.p = p, .m = m, .v = v};
    struct tu_lower how = {.depth = 2, .transfers = true};
    if (tu_schedule_make(&s, row, &q, &err))
        return;
    if (tu_sched_lower(&low, s, &how, &err))
        low = NULL;
    for (size_t k = 0; tu_sched_forms[k]; k++)
        if (tu_sched_forms[k]->read && tu_sched_forms[k]->write) {
            through(tu_sched_forms[k], s, &t[k]);
            if (low)
                through(tu_sched_forms[k], low, &t[k]);
        }
    tu_sched_free(s);
    tu_sched_free(low);
}

static struct tally all[32];

static void everything(void)
{
    static const uint32_t size[][3] = {{1, 1, 1}, {1, 3, 2}, {2, 2, 1}, {2, 2, 3}, {2, 5, 2},
                                       {3, 2, 1}, {3, 6, 2}, {4, 4, 1}, {4, 8, 2}, {4, 10, 2}};
    for (size_t i = 0; tu_schedules[i]; i++)
        for (size_t k = 0; k < sizeof size / sizeof *size; k++) {
            one(tu_schedules[i], size[k][0], size[k][1], size[k][2], all);
            one(tu_schedules[i], size[k][0], size[k][1], 0, all);
        }
    for (size_t k = 0; tu_sched_forms[k]; k++) {
        const char *name = tu_sched_forms[k]->name;
        const struct tally *t = &all[k];
        bool full = !strcmp(name, "json") || !strcmp(name, "csv");
        if (!tu_sched_forms[k]->read || !tu_sched_forms[k]->write)
            continue;
        ok(!t->broken, "%s: %u kept, %u refused, %u come back as another: %s", name, t->kept,
           t->refused, t->broken, t->first);
        ok(!t->failed && t->kept && (full ? !t->refused : t->refused),
           "%s: %s", name, full ? "holds all of them" : "refuses with a reason");
    }
}

/* What each of the short forms is for is not refused. */
static void home(void)
{
    static const struct {
        const char *form, *schedule;
        uint32_t v;
    } row[] = {
        {"zb", "zb-h1", 1},           {"zb", "zb-v", 2},       {"zb", "v-half", 2},
        {"grid", "v-min", 2},         {"grid", "zb-h2", 1},    {"te", "1f1b", 1},
        {"te", "interleaved-1f1b", 3}, {"te", "gpipe", 1},     {"table", "interleaved-1f1b", 2}, {"table", "eager-1f1b", 1},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct tally t = {0};
        struct tu_sched *s = NULL;
        struct tu_err err;
        struct tu_sched_params q = {.p = 4, .m = 8, .v = row[i].v};
        if (!tu_schedule_make(&s, tu_schedule_find(row[i].schedule), &q, &err))
            through(tu_sched_form_find(row[i].form), s, &t);
        ok(t.kept == 1, "%s holds %s", row[i].form, row[i].schedule);
        tu_sched_free(s);
    }
}

int main(void)
{
    everything();
    home();
    return tap_done();
}
