/* SPDX-License-Identifier: Apache-2.0 */
/* update.c: what an optimizer update adds to a step when its state is not on the GPU.
 *
 * The rows update-split and update-ssd have resources as ranks: the simulator of
 * pipelines gives their exact makespan. */
#include <math.h>
#include <stdio.h>
#include "sched/build.h"
#include "sched/plan_stage.h"

#define SUBGROUPS 512    /* at most so many of TUI_SUBGROUP or more parameters */
#define STATE_BYTES 12.  /* fp32 weight and two moments */
#define TOUCHED_BYTES 30 /* of a parameter in an update: all state, gradient, weight */

const char *const tu_offload_names[] = {"none", "cpu", "split", "ssd", NULL};

static int run(double *seconds, double *cpu_share, const char *row, const char *spec_text,
               uint32_t m, const double *stage_s, uint32_t stages, struct tu_err *err)
{
    struct tu_cost c;
    struct tu_spec spec = {0};
    struct tu_sched *s = NULL;
    struct tu_sim sim = {0};
    struct tu_buf times = {0};
    size_t faults = 0;
    /* Seconds that still add up in ns, three operations of each of 4 ranks and m pieces; past
     * that the layout is out of the question anyway. */
    double most = 1e18 / (3. * 4 * m) * 1e-9;
    tu_cost_init(&c);
    int rc = tu_spec_parse(&spec, spec_text, err);
    for (uint32_t k = 0; k < stages && !rc; k++)
        rc = tu_buf_printf(&times, err, "F,%u,%lld\n", k,
                           (long long)llround(fmin(stage_s[k], most) * 1e9));
    if (!rc)
        rc = tu_cost_times(&c, times.data, times.n, err);
    struct tu_sched_params q = {.p = 4, .m = m, .v = 1, .spec = &spec, .cost = &c};
    if (!rc)
        rc = tu_schedule_make(&s, tu_schedule_find(row), &q, err);
    if (!rc)
        rc = tu_sim_run(&sim, s, &c, NULL, &faults, err);
    *seconds = (double)sim.makespan * 1e-9;
    size_t on_cpu = 0;
    for (size_t i = 0; !rc && i < s->n[s->place[0]]; i++)
        on_cpu += s->op[s->place[0]][i].stage == 0;
    *cpu_share = (double)on_cpu / m;
    tu_sim_release(&sim);
    tu_sched_free(s);
    tu_spec_release(&spec);
    tu_buf_release(&times);
    tu_cost_release(&c);
    return rc;
}

int tu_update_run(double *seconds, double *cpu_share, enum tu_offload how,
                  const struct tu_cluster *c, double params, uint32_t layers,
                  double backward_s, struct tu_err *err)
{
    double gpu = c->memory_bs > 0 ? TOUCHED_BYTES / c->memory_bs : 0;
    *seconds = params * gpu;
    *cpu_share = 0;
    if (how == TU_OFFLOAD_NONE)
        return 0;
    if (!(c->host_bs > 0) || !(c->cpu_update > 0) || !(c->cpu_convert > 0) ||
        (how == TU_OFFLOAD_SSD && !(c->ssd_bs > 0)))
        return tu_fail(err, TU_EUSAGE,
                       "offload: rates of the host, its CPU and its SSD are needed");
    if (how == TU_OFFLOAD_SSD) {
        double each = params / layers;
        const double stage[] = {backward_s / layers, each * 2 / c->host_bs,
                                each * (1 / c->cpu_update + 1 / c->cpu_convert),
                                each * 2 * STATE_BYTES / c->ssd_bs};
        int rc = run(seconds, cpu_share, "update-ssd", "update-ssd", layers, stage, 4, err);
        *cpu_share = 1;
        *seconds = fmax(*seconds - backward_s, 0) + params * 2 / c->host_bs;
        return rc;
    }
    double n = fmin(ceil(params / TUI_SUBGROUP), SUBGROUPS), each = params / fmax(n, 1);
    const double stage[] = {each / c->cpu_update,
                            each / c->cpu_convert,
                            each * 2 / c->host_bs,
                            each * STATE_BYTES / c->host_bs,
                            each * gpu,
                            each * STATE_BYTES / c->host_bs};
    int rc = run(seconds, cpu_share, "update-split",
                 how == TU_OFFLOAD_CPU ? "update-split:every=0" : "update-split",
                 (uint32_t)fmax(n, 1), stage, 6, err);
    *seconds += params * 2 / c->host_bs; /* the gradients go down first */
    return rc;
}

double tui_cpu_share(enum tu_offload how, const struct tu_cluster *c)
{
    double cpu = 1 / c->cpu_update + 1 / c->cpu_convert, up = 2 / c->host_bs;
    double fetch = STATE_BYTES / c->host_bs;
    if (how == TU_OFFLOAD_SPLIT && cpu > up)
        return fetch / (cpu - up + fetch);
    return how != TU_OFFLOAD_NONE;
}

double tui_update_estimate(enum tu_offload how, const struct tu_cluster *c, double params,
                           uint32_t layers, double backward_s)
{
    double cpu = params * (1 / c->cpu_update + 1 / c->cpu_convert);
    double up = params * 2 / c->host_bs;
    switch (how) {
    case TU_OFFLOAD_CPU: return cpu + 2 * up;
    case TU_OFFLOAD_SPLIT: return tui_cpu_share(how, c) * cpu + up;
    case TU_OFFLOAD_SSD: {
        double slowest = fmax(fmax(backward_s, cpu), params * 2 * STATE_BYTES / c->ssd_bs);
        return slowest * (1 + 1. / layers) - backward_s + up;
    }
    default: return c->memory_bs > 0 ? params * TOUCHED_BYTES / c->memory_bs : 0;
    }
}
