/* SPDX-License-Identifier: Apache-2.0 */
/* measured.c: times of stages from a trace in Chrome's event format (kineto, Perfetto,
 * our own).
 *
 * Complete events whose names are operations, as "3F1", give for each stage and kind the
 * mean of their durations, to the nanosecond; all other events are passed over. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tensorutils/sched.h"

#define TRACE_MAX ((size_t)1 << 30)

struct sums {
    double *us; /* [stages][TU_OP_W+1] */
    uint64_t *n;
    uint32_t stages;
};

/* "12F3", "12F3.1": stage and kind; false for other names. */
static bool operation(const char *name, uint32_t *stage, unsigned *kind)
{
    static const char letters[] = "FBIW";
    static const uint8_t kinds[] = {TU_OP_F, TU_OP_B, TU_OP_I, TU_OP_W};
    uint32_t v = 0;
    const char *p = name, *at;
    for (; *p >= '0' && *p <= '9' && v < TU_SCHED_MAX; p++)
        v = v * 10 + (uint32_t)(*p - '0');
    if (p == name || v >= TU_SCHED_MAX || !*p || !(at = strchr(letters, *p)))
        return false;
    if (p[1] < '0' || p[1] > '9' || p[1 + strspn(p + 1, "0123456789.")])
        return false;
    *stage = v;
    *kind = kinds[at - letters];
    return true;
}

static int add(struct sums *s, uint32_t stage, unsigned kind, double us,
               struct tu_err *err)
{
    if (stage >= s->stages) {
        uint32_t want = stage + 1 > 2 * s->stages ? stage + 1 : 2 * s->stages;
        size_t old = (size_t)s->stages * (TU_OP_W + 1),
               now = (size_t)want * (TU_OP_W + 1);
        double *us_ = tu_realloc(s->us, now, sizeof *us_, err);
        s->us = us_ ? us_ : s->us;
        uint64_t *n = us_ ? tu_realloc(s->n, now, sizeof *n, err) : NULL;
        if (!n)
            return TU_ENOMEM;
        s->n = n;
        memset(s->us + old, 0, (now - old) * sizeof *s->us);
        memset(s->n + old, 0, (now - old) * sizeof *s->n);
        s->stages = want;
    }
    s->us[(size_t)stage * (TU_OP_W + 1) + kind] += us;
    s->n[(size_t)stage * (TU_OP_W + 1) + kind]++;
    return 0;
}

static int collect(struct sums *s, const json_t *events, struct tu_err *err)
{
    size_t i;
    const json_t *e;
    json_array_foreach(events, i, e)
    {
        const char *ph = json_string_value(json_object_get(e, "ph"));
        const char *name = json_string_value(json_object_get(e, "name"));
        double us = json_number_value(json_object_get(e, "dur"));
        uint32_t stage;
        unsigned kind;
        if (!ph || strcmp(ph, "X") || !name || !operation(name, &stage, &kind))
            continue;
        if (!(us >= 0) || us > 1e12)
            return tu_fail(err, TU_EFORMAT, "trace: event %zu: its duration is no time",
                           i);
        int rc = add(s, stage, kind, us, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int into_cost(struct tu_cost *c, const struct sums *s, struct tu_err *err)
{
    struct tu_buf lines = {0};
    bool any = false;
    int rc = 0;
    for (uint32_t k = 0; k < s->stages && !rc; k++)
        for (unsigned kind = 0; kind <= TU_OP_W && !rc; kind++) {
            size_t at = (size_t)k * (TU_OP_W + 1) + kind;
            char text[40];
            if (!s->n[at])
                continue;
            any = true;
            int64_t ns = llround(s->us[at] / (double)s->n[at] * 1000);
            rc = tu_buf_printf(&lines, err, "%s,%u,%s\n", tu_op_name(kind), k,
                               tu_ticks_text(ns, 1000, text));
        }
    if (!rc && !any)
        rc = tu_fail(err, TU_EFORMAT,
                     "trace: no complete event is named as an operation, 3F1");
    if (!rc)
        rc = tu_cost_times(c, lines.data, lines.n, err);
    tu_buf_release(&lines);
    return rc;
}

int tu_cost_trace(struct tu_cost *c, const char *text, size_t n, struct tu_err *err)
{
    struct sums s = {0};
    json_t *o = NULL;
    if (*c->unit && strcmp(c->unit, "us"))
        return tu_fail(err, TU_EUSAGE,
                       "trace: its times are microseconds, the cost's are %s", c->unit);
    int rc =
        tu_json_parse(&o, text, n, &(struct tu_json_limits){.bytes = TRACE_MAX}, err);
    const json_t *events = json_is_array(o) ? o : json_object_get(o, "traceEvents");
    if (!rc && !json_is_array(events))
        rc = tu_fail(err, TU_EFORMAT, "trace: the list \"traceEvents\" is missing");
    if (!rc)
        rc = collect(&s, events, err);
    if (!rc)
        rc = into_cost(c, &s, err);
    if (!rc)
        memcpy(c->unit, "us", 3);
    json_decref(o);
    tu_free(s.us);
    tu_free(s.n);
    return rc;
}
