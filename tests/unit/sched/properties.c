/* SPDX-License-Identifier: Apache-2.0 */
/* properties.c: what holds for every schedule: it verifies, time is monotone and scales,
 * and each mutation of a valid schedule is caught or still runs. */
#include <stdlib.h>
#include "../tap.h"
#include "sched/build.h"

static struct tu_rng rng = {11, 4};
static uint64_t at;

static uint32_t draw(uint32_t n)
{
    return tu_rng_u32(&rng, at++) % n;
}

static void random_cost(struct tu_cost *c)
{
    tu_cost_init(c);
    c->time[TU_OP_F] = 1 + draw(20);
    c->time[TU_OP_I] = 1 + draw(20);
    c->time[TU_OP_W] = 1 + draw(20);
    c->transfer[0] = draw(4);
    c->transfer[1] = draw(4);
}

/* 0 or the number of faults; *sim filled when 0. */
static size_t run(const struct tu_sched *s, const struct tu_cost *c, struct tu_sim *sim)
{
    size_t faults = 1;
    *sim = (struct tu_sim){0};
    return tu_sim_run(sim, s, c, NULL, &faults, NULL) ? 1 : faults;
}

static bool relations(const struct tu_sched *s, const struct tu_cost *c)
{
    struct tu_sim a, b;
    struct tu_cost more = *c, thrice = *c;
    bool good = !run(s, c, &a) && a.ideal <= a.span && a.span <= a.makespan;
    struct tu_err err;
    int64_t bound;
    good = good && !tu_sim_bound(&bound, &a, s, c, &err) && bound >= 0 &&
           bound <= (c->barrier ? a.makespan : a.span);
    int64_t idle = 0, busy = 0;
    for (uint32_t r = 0; good && r < s->ranks; r++) {
        busy += a.busy[r];
        idle += a.makespan - a.busy[r];
        good = a.peak[r] > 0 && a.first[r] <= a.last[r];
    }
    good = good && idle + busy == (int64_t)s->ranks * a.makespan;
    more.time[draw(2) ? TU_OP_F : TU_OP_W] += 1 + draw(3);
    more.transfer[draw(2)] += draw(3);
    good = good && !run(s, &more, &b) && b.makespan >= a.makespan;
    tu_sim_release(&b);
    for (int k = 0; k <= TU_OP_W; k++)
        thrice.time[k] *= thrice.time[k] > 0 ? 3 : 1;
    thrice.transfer[0] *= 3;
    thrice.transfer[1] *= 3;
    good = good && !run(s, &thrice, &b) && b.makespan == 3 * a.makespan &&
           b.span == 3 * a.span;
    tu_sim_release(&a);
    tu_sim_release(&b);
    return good;
}

/* Delete, repeat or swap. True if the verifier is right about it. */
static bool mutated(struct tu_sched *s, const struct tu_cost *c)
{
    struct tu_sim sim = {0};
    uint32_t r = draw(s->ranks);
    size_t n = s->n[r], i = draw((uint32_t)n);
    struct tu_op *list = s->op[r], keep = list[i];
    bool good;
    if (keep.flags || (i && list[i - 1].flags) || keep.kind > TU_OP_W ||
        list[(i + 1) % n].kind > TU_OP_W)
        return true;
    switch (draw(3)) {
    case 0: /* delete */
        memmove(list + i, list + i + 1, (n - i - 1) * sizeof *list);
        s->n[r]--;
        good = run(s, c, &sim) > 0;
        memmove(list + i + 1, list + i, (n - i - 1) * sizeof *list);
        list[i] = keep;
        s->n[r]++;
        break;
    case 1: /* another's place: one missing, one twice */
        list[i] = list[(i + 1) % n];
        good = n == 1 || run(s, c, &sim) > 0;
        list[i] = keep;
        break;
    default: { /* swap with the next: legal or caught, never wrong */
        if (i + 1 == n || list[i + 1].flags)
            return true;
        struct tu_op next = list[i + 1];
        bool own = keep.stage == next.stage && keep.mb == next.mb;
        list[i] = next;
        list[i + 1] = keep;
        size_t faults = run(s, c, &sim);
        good = !own || faults > 0 || next.kind == TU_OP_OPT;
        list[i] = keep;
        list[i + 1] = next;
    }
    }
    tu_sim_release(&sim);
    return good;
}

static void one(const struct tu_schedule *row)
{
    unsigned made = 0, bad = 0, missed = 0;
    for (uint32_t n = 0; n < 60; n++) {
        struct tu_sched_params q = {.p = 1 + draw(8), .m = 1 + draw(20)};
        struct tu_cost c;
        struct tu_sched *s = NULL;
        q.v = row->chunks_max > 2 ? row->chunks_min + draw(4) : row->chunks_min;
        if (n % 3 == 0) /* sizes that rows with rules like */
            q.p = 2 + 2 * draw(3), q.m = q.p * (2 + 2 * draw(2));
        random_cost(&c);
        q.cost = &c;
        if (!strcmp(row->name, "v-search") || !strcmp(row->name, "v-zb"))
            q.p = q.p > 4 ? 4 : q.p, q.m = q.m > 6 ? 6 : q.m, n += 9;
        if (tu_schedule_make(&s, row, &q, NULL))
            continue;
        made++;
        bad += !relations(s, &c);
        for (int k = 0; k < 5; k++)
            missed += !mutated(s, &c);
        tu_sched_free(s);
    }
    ok(made >= 3, "%s: %u random sizes are legal", row->name, made);
    eq_u64(bad, 0, "%s: time is monotone, scales, and adds up", row->name);
    eq_u64(missed, 0, "%s: mutations are caught", row->name);
}

/* Times of every stage, weights of micro-batches, transfers and sizes at random; half of the
 * stages are far from the others. */
static void uneven_cost(struct tu_cost *c, uint32_t stages, uint32_t m)
{
    char text[4096];
    size_t n = 0;
    random_cost(c);
    for (uint32_t s = 0; s < stages; s++)
        for (unsigned k = 0; k < 3; k++)
            n += (size_t)snprintf(text + n, sizeof text - n, "%c,%u,%u\n", "FIW"[k], s,
                                  draw(2) ? draw(4) : draw(30));
    for (uint32_t i = 0; i < m && draw(2); i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "mb,%u,%u\n", i, 1 + draw(5));
    if (tu_cost_times(c, text, n, NULL))
        ok(false, "times");
    c->release = draw(2) ? TU_MEM_SPLIT : TU_MEM_AT_W;
    if (draw(2)) {
        c->mem_b = 2 + draw(9);
        c->mem_w = 1 + draw((uint32_t)c->mem_b);
    }
}

/* Whatever a row makes for whatever times runs, and keeps to the cap it was given. */
static void uneven(const struct tu_schedule *row)
{
    unsigned made = 0, bad = 0, over = 0;
    bool slow = !strcmp(row->name, "v-search") || !strcmp(row->name, "v-zb");
    for (uint32_t n = 0; n < (slow ? 8 : 250); n++) {
        struct tu_sched_params q = {.p = 1 + draw(8), .m = 1 + draw(slow ? 6 : 14)};
        struct tu_cost c;
        struct tu_sched *s = NULL;
        struct tu_sim sim;
        struct tu_spec spec;
        char text[40];
        q.v = row->chunks_max > 2 ? row->chunks_min + draw(3) : row->chunks_min;
        if (n % 3 == 0)
            q.p = 2 + 2 * draw(3), q.m = q.p * (1 + draw(3));
        if (slow)
            q.p = 1 + draw(4);
        uneven_cost(&c, q.p * q.v, q.m);
        c.mem_unit = c.mem_b * q.v;
        q.cost = &c;
        if (row->caps)
            q.cap = draw(2) * (1 + draw(3 * q.p)) * (c.mem_b ? c.mem_b : 2);
        snprintf(text, sizeof text, row->grouped && draw(2) ? "x:group=%u" : "x",
                 1 + draw(q.m));
        if (tu_spec_parse(&spec, text, NULL))
            ok(false, "spec");
        q.spec = &spec;
        if (!tu_schedule_make(&s, row, &q, NULL)) {
            made++;
            bool runs = !run(s, &c, &sim);
            bad += !runs;
            for (uint32_t r = 0; runs && q.cap && r < q.p; r++)
                over += sim.peak[r] > q.cap;
            tu_sim_release(&sim);
        }
        tu_spec_release(&spec);
        tu_sched_free(s);
        tu_cost_release(&c);
    }
    ok(made >= 3, "%s: %u legal with uneven times", row->name, made);
    eq_u64(bad, 0, "%s: uneven times: every one runs", row->name);
    eq_u64(over, 0, "%s: no cap is exceeded", row->name);
}

static int64_t makespan(const char *name, uint32_t p, uint32_t m, uint32_t v,
                        const char *cost)
{
    struct tu_cost c;
    struct tu_sched *s = NULL;
    struct tu_sim sim;
    tu_cost_init(&c);
    int64_t t = -1;
    if (!tu_cost_parse(&c, cost, 1, NULL) &&
        !tu_schedule_make(&s, tu_schedule_find(name),
                          &(struct tu_sched_params){.p = p, .m = m, .v = v, .cost = &c},
                          NULL) &&
        !run(s, &c, &sim)) {
        t = sim.makespan;
        tu_sim_release(&sim);
    }
    tu_sched_free(s);
    return t;
}

/* Equal stages, no transfers: the closed forms. */
static void formulas(void)
{
    unsigned wrong = 0;
    for (uint32_t p = 1; p <= 6; p++)
        for (uint32_t m = 1; m <= 12; m++) {
            int64_t plain = (int64_t)(m + p - 1) * 9;
            wrong += makespan("gpipe", p, m, 1, "F=3,I=4,W=2") != plain;
            wrong += makespan("1f1b", p, m, 1, "F=3,I=4,W=2") != plain;
            wrong += makespan("eager-1f1b", p, m, 1, "F=3,I=4,W=2") != plain;
            wrong += makespan("breadth-first", p, m, 1, "F=3,I=4,W=2") != plain;
            for (uint32_t v = 2; v <= 3 && m % p == 0; v++) {
                int64_t chunked = (int64_t)m * v * 9 + (p - 1) * 9;
                wrong += makespan("breadth-first", p, m, v, "F=3,I=4,W=2") != chunked;
                wrong += makespan("interleaved-1f1b", p, m, v, "F=3,I=4,W=2") != chunked;
            }
        }
    eq_u64(wrong, 0, "closed forms of the flushing schedules");
    for (size_t k = 0; tu_schedules[k]; k++) {
        int64_t t = makespan(tu_schedules[k]->name, 1, 8, 0, "F=3,I=4,W=2");
        uint32_t v = tu_schedules[k]->chunks;
        v = v ? v : tu_schedules[k]->chunks_min;
        if (t >= 0 && strcmp(tu_schedules[k]->name, "inference") &&
            strcmp(tu_schedules[k]->name, "asyncdiff") &&
            strcmp(tu_schedules[k]->name, "seq-1f1b"))
            eq_int(t, strcmp(tu_schedules[k]->name, "hanayo") ? 72 * v : t,
                   "%s has no bubble on one rank", tu_schedules[k]->name);
    }
}

/* Splitting every B of 1F1B in place never makes it longer. */
static void split(void)
{
    static const struct {
        uint32_t p, m;
        int64_t want;
    } row[] = {{4, 8, 30}, {8, 16, 62}};
    for (size_t k = 0; k < 2; k++) {
        struct tu_sched *s = NULL, *t = NULL;
        struct tui_build b;
        struct tu_cost c;
        struct tu_sim sim;
        tu_cost_init(&c);
        int rc = tu_schedule_make(&s, tu_schedule_find("1f1b"),
                                  &(struct tu_sched_params){.p = row[k].p, .m = row[k].m},
                                  NULL);
        tui_build_begin(&b, row[k].p, row[k].p, 1, row[k].m, NULL);
        tui_place_loop(&b);
        for (uint32_t r = 0; !rc && r < row[k].p; r++)
            for (size_t i = 0; i < s->n[r]; i++) {
                struct tu_op op = s->op[r][i];
                op.kind = op.kind == TU_OP_B ? TU_OP_I : op.kind;
                tui_add_op(&b, r, &op);
                op.kind = TU_OP_W;
                if (s->op[r][i].kind == TU_OP_B)
                    tui_add_op(&b, r, &op);
            }
        rc = rc ? rc : tui_build_end(&b, &t);
        ok(!rc && !run(t, &c, &sim) && sim.makespan == row[k].want, "split 1F1B: %lld",
           (long long)row[k].want);
        tu_sim_release(&sim);
        tu_sched_free(s);
        tu_sched_free(t);
    }
}

/* Ranks in the opposite order: the same time, the same peaks. */
static void mirror(void)
{
    static const char *const name[] = {"chimera", "bitpipe", "dualpipe"};
    for (size_t k = 0; k < 3; k++) {
        struct tu_sched *s = NULL;
        struct tu_cost c;
        struct tu_sim a, b;
        tu_cost_init(&c);
        c.time[TU_OP_F] = 2;
        int rc = tu_schedule_make(&s, tu_schedule_find(name[k]),
                                  &(struct tu_sched_params){.p = 4, .m = 8}, NULL);
        bool good = !rc && !run(s, &c, &a);
        for (uint32_t r = 0; good && r < 2; r++) {
            struct tu_op *op = s->op[r];
            size_t n = s->n[r];
            s->op[r] = s->op[3 - r];
            s->n[r] = s->n[3 - r];
            s->op[3 - r] = op;
            s->n[3 - r] = n;
        }
        for (uint32_t q = 0; good && q < s->stages * s->pipelines; q++)
            s->place[q] = 3 - s->place[q];
        good = good && !run(s, &c, &b) && a.makespan == b.makespan;
        for (uint32_t r = 0; good && r < 4; r++)
            good = a.peak[r] == b.peak[3 - r];
        ok(good, "%s mirrored is the same", name[k]);
        tu_sim_release(&a);
        tu_sim_release(&b);
        tu_sched_free(s);
    }
}

int main(void)
{
    for (size_t k = 0; tu_schedules[k]; k++)
        one(tu_schedules[k]);
    for (size_t k = 0; tu_schedules[k]; k++)
        uneven(tu_schedules[k]);
    formulas();
    split();
    mirror();
    return tap_done();
}
