/* SPDX-License-Identifier: Apache-2.0 */
/* oracles.c: makespan, span, busy time and peak memory of every schedule against figures
 * that an independent simulator computed (small cases, bidirectional and V families). */
#include <stdlib.h>
#include "../tap.h"
#include "sched/build.h"

/* One case: what to make, at which cost, and what must come out ("-": not checked). */
struct row {
    const char *name, *spec;
    uint32_t p, m, v;
    const char *cost;
    const char *makespan, *span, *ideal;
    const char *peaks; /* of the ranks, in M_B; "8" alone: the largest, "0:8": rank 0 */
};

static const struct row rows[] = {
    {"gpipe", "", 4, 8, 1, "", "33", "33", "24", "8,8,8,8"},
    {"1f1b", "", 4, 8, 1, "", "33", "33", "24", "4,3,2,1"},
    {"1f1b", "", 4, 2, 1, "", "15", "15", "6", "2,2,2,1"},
    {"eager-1f1b", "", 4, 8, 1, "", "33", "33", "24", "7,5,3,1"},
    {"interleaved-1f1b", "group=4", 4, 8, 2, "", "57", "57", "48", "5.5,4.5,3.5,2.5"},
    {"interleaved-1f1b", "group=8", 4, 8, 2, "", "57", "57", "48", "7.5,6.5,5.5,4.5"},
    {"interleaved-1f1b", "group=3", 2, 5, 2, "", "33", "33", "30", "3,2"},
    {"breadth-first", "", 4, 8, 2, "", "57", "57", "48", "8"},
    {"1f1b", "", 4, 8, 1, "C=0.5", "41", "-", "24", NULL},
    {"1f1b", "", 4, 8, 1, "C=1", "49", "-", "24", NULL},
    {"eager-1f1b", "", 4, 8, 1, "C=0.5", "36", "-", "24", NULL},
    {"eager-1f1b", "", 4, 8, 1, "C=1", "39", "-", "24", NULL},
    {"gpipe", "", 4, 8, 1, "C=0.5", "36", "-", "24", NULL},
    {"gpipe", "", 4, 8, 1, "C=1", "39", "-", "24", NULL},
    {"interleaved-1f1b", "", 4, 8, 2, "F=.5,I=.5,W=.5,C=0.5", "35.5", "-", "24", NULL},
    {"interleaved-1f1b", "", 4, 8, 2, "F=.5,I=.5,W=.5,C=1", "46", "-", "24", NULL},
    {"breadth-first", "", 4, 8, 2, "F=.5,I=.5,W=.5,C=0.5", "31.5", "-", "24", NULL},
    {"breadth-first", "", 4, 8, 2, "F=.5,I=.5,W=.5,C=1", "36.5", "-", "24", NULL},
    {"zb-h1", "", 4, 8, 1, "", "27", "27", "24", "4"},
    {"zb-h2", "", 4, 8, 1, "", "27", "24", "24", "7"},
    {"zb-h1", "", 4, 8, 1, "F=5,I=6,W=4", "141", "141", "120", NULL},
    {"zb-h2", "", 4, 8, 1, "F=5,I=6,W=4", "135", "129", "120", NULL},
    {"zb-v", "", 4, 8, 2, "F=5,I=6,W=4", "258", "252", "240", NULL},
    {"zb-h1", "", 4, 8, 1, "F=1,I=1.2,W=0.8,C=.05", "28.8", "-", "24", NULL},
    {"zb-h2", "", 4, 8, 1, "F=1,I=1.2,W=0.8,C=.05", "27.15", "26.1", "24", NULL},
    {"zb-v", "", 4, 8, 2, "F=1,I=1.2,W=0.8,C=.05", "52.25", "51.2", "48", NULL},
    {"zb-v", "", 4, 8, 2, "", "51", "48", "48", "4"},
    {"zb-v", "", 8, 16, 2, "", "103", "96", "96", "8"},
    {"zb-v", "", 4, 4, 2, "", "30", "30", "24", "2.5,3,3.5,4"},
    {"interleaved-zb", "", 2, 8, 2, "", "49", "-", "48", "2"},
    {"interleaved-zb", "", 4, 8, 2, "", "51", "-", "48", "4"},
    {"interleaved-zb", "", 4, 16, 2, "", "99", "-", "96", "4"},
    {"interleaved-zb", "", 8, 16, 2, "", "103", "-", "96", "8"},
    {"interleaved-zb", "", 4, 8, 3, "", "75", "-", "72", "4"},
    {"interleaved-1f1b", "", 2, 8, 2, "", "51", "-", "48", NULL},
    {"interleaved-1f1b", "", 4, 16, 2, "", "105", "-", "96", NULL},
    {"interleaved-1f1b", "", 8, 16, 2, "", "117", "-", "96", NULL},
    {"interleaved-1f1b", "", 4, 8, 3, "", "81", "-", "72", NULL},
    {"hanayo", "", 4, 4, 2, "F=.5,B=1", "18", "-", "12", "0:2.5"},
    {"hanayo", "", 4, 4, 4, "F=.25,B=.5", "15.25", "-", "12", "0:3.25"},
    {"hanayo", "", 4, 4, 8, "F=.125,B=.25", "13.625", "-", "12", "0:3.625"},
    {"hanayo", "", 8, 8, 2, "F=.5,B=1", "38", "-", "24", "8"},
    {"hanayo", "", 8, 8, 4, "F=.25,B=.5", "31.5", "-", "24", "8"},
    {"hanayo", "", 8, 8, 8, "F=.125,B=.25", "27.75", "-", "24", "8"},
    {"2bp", "", 4, 4, 1, "", "18", "-", "12", NULL},
    {"2bp", "", 4, 8, 1, "", "30", "-", "24", NULL},
    {"2bp", "base=gpipe", 8, 8, 1, "", "38", "-", "24", NULL},
    {"2bp", "", 8, 16, 1, "", "62", "-", "48", NULL},
    {"1f1b", "", 4, 4, 1, "", "21", "-", "12", NULL},
    {"1f1b", "", 8, 8, 1, "", "45", "-", "24", NULL},
    {"1f1b", "", 8, 16, 1, "", "69", "-", "48", NULL},
    {"dualpipe", "", 8, 20, 1, "B=2,FB=3", "66", "-", "60", "9"},
    {"dualpipe", "", 8, 32, 1, "B=2,FB=2.5", "89", "-", "-", "9"},
    {"dualpipe", "", 4, 8, 1, "B=2,FB=3", "26", "-", "24", "5"},
    {"dualpipe", "", 4, 16, 1, "B=2,FB=2.75", "47", "-", "-", "5"},
    {"dualpipe-v", "", 2, 8, 2, "B=2,FB=3", "50", "-", "48", "2.5"},
    {"dualpipe-v", "", 4, 8, 2, "B=2,FB=3", "54", "-", "48", "4.5"},
    {"dualpipe-v", "", 4, 10, 2, "B=2,FB=3", "66", "-", "60", "4.5"},
    {"dualpipe-v", "", 8, 20, 2, "B=2,FB=3", "134", "-", "120", "8.5"},
    {"dualpipe-v", "", 4, 16, 2, "B=2,FB=2.75", "95.5", "-", "-", "4.5"},
    {"chimera", "", 4, 4, 1, "B=1", "10", "-", "8", "3,4,4,3"},
    {"chimera", "", 8, 8, 1, "B=1", "22", "-", "16", "5,6,7,8,8,7,6,5"},
    {"chimera", "", 4, 4, 1, "B=2", "16", "-", "12", "3,4,4,3"},
    {"chimera", "", 8, 8, 1, "B=2", "36", "-", "24", "5,6,7,8,8,7,6,5"},
    {"chimera", "", 4, 8, 1, "B=1", "18", "-", "16", "3,4,4,3"},
    {"chimera", "", 4, 16, 1, "B=1", "34", "-", "32", "3,4,4,3"},
    {"chimera", "", 8, 16, 1, "B=1", "38", "-", "32", "5,6,7,8,8,7,6,5"},
    {"chimera", "", 8, 32, 1, "B=1", "70", "-", "64", "5,6,7,8,8,7,6,5"},
    {"chimera", "", 4, 8, 1, "B=2", "30", "-", "24", NULL},
    {"chimera", "", 4, 16, 1, "B=2", "58", "-", "48", NULL},
    {"chimera", "", 8, 16, 1, "B=2", "66", "-", "48", NULL},
    {"chimera", "", 8, 32, 1, "B=2", "126", "-", "96", NULL},
    {"bitpipe", "", 4, 4, 2, "F=.5,B=1", "14", "-", "12", "4"},
    {"bitpipe", "", 8, 8, 2, "F=.5,B=1", "30", "-", "24", "8"},
    {"bitpipe", "", 16, 16, 2, "F=.5,B=1", "62", "-", "48", "16"},
    {"bitpipe", "", 4, 8, 2, "F=.5,B=1", "27", "-", "24", "4"},
    {"bitpipe", "", 4, 16, 2, "F=.5,B=1", "53", "-", "48", "4"},
    {"bitpipe", "", 8, 16, 2, "F=.5,B=1", "57", "-", "48", "8"},
    {"bitpipe", "", 8, 32, 2, "F=.5,B=1", "111", "-", "96", "8"},
    {"bitpipe", "", 4, 4, 2, "F=.5,B=.5", "9", "-", "8", NULL},
    {"bitpipe", "", 8, 8, 2, "F=.5,B=.5", "19", "-", "16", NULL},
    {"bitpipe", "", 16, 16, 2, "F=.5,B=.5", "39", "-", "32", NULL},
    {"bitpipe", "", 4, 8, 2, "F=.5,B=.5", "17", "-", "16", NULL},
    {"bitpipe", "", 4, 16, 2, "F=.5,B=.5", "33", "-", "32", NULL},
    {"bitpipe", "", 8, 16, 2, "F=.5,B=.5", "35", "-", "32", NULL},
    {"bitpipe", "", 8, 32, 2, "F=.5,B=.5", "67", "-", "64", NULL},
    {"v-min", "", 4, 8, 2, "", "-", "59", "48", "2"},
    {"v-min", "", 4, 12, 2, "", "-", "83", "72", "2"},
    {"v-min", "", 8, 16, 2, "", "-", "123", "96", "4"},
    {"v-min", "", 8, 24, 2, "", "-", "171", "144", "4"},
    {"v-min", "", 6, 12, 2, "", "-", "89", "72", "3"},
    {"v-min", "", 3, 6, 2, "", "-", "41", "36", "2"},
    {"v-min", "", 5, 10, 2, "", "-", "75", "60", "3"},
    {"v-half", "", 4, 8, 2, "", "-", "53", "48", "3"},
    {"v-half", "", 4, 12, 2, "", "-", "77", "72", "3"},
    {"v-half", "", 8, 16, 2, "", "-", "113", "96", "5"},
    {"v-half", "", 8, 24, 2, "", "-", "161", "144", "5"},
    {"v-half", "", 6, 12, 2, "", "-", "83", "72", "4"},
    {"v-half", "", 3, 6, 2, "", "-", "41", "36", "2"},
    {"v-half", "", 5, 10, 2, "", "-", "71", "60", "3"},
    {"v-min", "", 8, 24, 2, "F=4959,I=5217,W=3519,C=213", "-", "915753", "657360", NULL},
    {"v-half", "", 8, 24, 2, "F=4959,I=5217,W=3519,C=213", "-", "769413", "657360", NULL},
    {"zb-v-auto", "", 4, 4, 2, "", "-", "27", "24", NULL},
    {"zb-v-auto", "", 4, 2, 2, "", "-", "19", "12", NULL},
    {"zb-v", "", 2, 4, 2, "", "-", "24", "24", NULL},
    /* Properties of section 10: with one chunk interleaving is eager order. */
    {"interleaved-1f1b", "", 4, 8, 1, "", "33", "33", "24", "7,5,3,1"},
    {"inference", "", 4, 5, 1, "C=1", "11", "-", "5", NULL},
};

static bool same(int64_t ticks, int64_t scale, const char *want)
{
    char text[40];
    return !strcmp(want, "-") || !strcmp(tu_ticks_text(ticks, scale, text), want);
}

static bool peaks_are(const struct tu_sim *r, const char *want)
{
    char have[256] = "", most[40], one[40];
    int64_t top = 0;
    if (!want)
        return true;
    for (uint32_t k = 0; k < r->ranks; k++) {
        top = r->peak[k] > top ? r->peak[k] : top;
        tu_ticks_text(r->peak[k], r->mem_unit, one);
        snprintf(have + strlen(have), sizeof have - strlen(have), "%s%s", k ? "," : "",
                 one);
    }
    if (!strncmp(want, "0:", 2))
        return !strcmp(tu_ticks_text(r->peak[0], r->mem_unit, one), want + 2);
    return !strcmp(have, want) || !strcmp(tu_ticks_text(top, r->mem_unit, most), want);
}

static void check(const struct row *t)
{
    struct tu_err err = {0};
    struct tu_spec spec;
    struct tu_cost cost;
    struct tu_sched *s = NULL;
    struct tu_sim sim = {0};
    struct tu_buf report = {0}, text = {0};
    size_t faults = 0;
    char have[3][40] = {"?", "?", "?"};
    tu_cost_init(&cost);
    int rc = tu_buf_printf(&text, &err, "%s%s%s", t->name, *t->spec ? ":" : "", t->spec);
    if (!rc)
        rc = tu_spec_parse(&spec, text.data, &err);
    if (!rc && *t->cost)
        rc = tu_cost_parse(&cost, t->cost, 1, &err);
    if (!rc)
        rc = tu_schedule_make(
            &s, tu_schedule_find(t->name),
            &(struct tu_sched_params){
                .p = t->p, .m = t->m, .v = t->v, .spec = &spec, .cost = &cost},
            &err);
    if (!rc)
        rc = tu_sim_run(&sim, s, &cost, &report, &faults, &err);
    if (rc || faults)
        printf("# %s: %s%s\n", text.data, err.msg, report.data ? report.data : "");
    if (!rc && !faults) {
        tu_ticks_text(sim.makespan, cost.scale, have[0]);
        tu_ticks_text(sim.span, cost.scale, have[1]);
        tu_ticks_text(sim.ideal, cost.scale, have[2]);
    }
    ok(!rc && !faults && same(sim.makespan, cost.scale, t->makespan) &&
           same(sim.span, cost.scale, t->span) && same(sim.ideal, cost.scale, t->ideal),
       "%s p=%u m=%u v=%u %s: %s, %s, %s is %s, %s, %s", text.data, t->p, t->m, t->v,
       t->cost, have[0], have[1], have[2], t->makespan, t->span, t->ideal);
    if (t->peaks && !rc && !faults && !peaks_are(&sim, t->peaks)) {
        for (uint32_t k = 0; k < sim.ranks; k++)
            printf("# peak of rank %u: %s\n", k,
                   tu_ticks_text(sim.peak[k], sim.mem_unit, have[0]));
        ok(false, "peaks of %s are %s", text.data, t->peaks);
    }
    tu_sim_release(&sim);
    tu_sched_free(s);
    tu_cost_release(&cost);
    tu_spec_release(&spec);
    tu_buf_release(&report);
    tu_buf_release(&text);
}

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check(&rows[i]);
    return tap_done();
}
