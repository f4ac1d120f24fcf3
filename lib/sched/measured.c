/* SPDX-License-Identifier: Apache-2.0 */
/* measured.c: a step as it was measured, from a trace in Chrome's event format (kineto,
 * Perfetto, our own); and the mean times of its stages.
 *
 * Complete events whose names are operations, as "3F1", count, to the nanosecond; all
 * other events are passed over. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tensorutils/sched.h"

#define TRACE_MAX ((size_t)1 << 30)

/* "12F3", "12F3.1": false for other names. */
static bool operation(const char *name, struct tu_measured_op *op)
{
    static const char letters[] = "FBIW";
    static const uint8_t kinds[] = {TU_OP_F, TU_OP_B, TU_OP_I, TU_OP_W};
    uint32_t v[2] = {0, 0};
    const char *p = name, *at = NULL;
    for (int i = 0; i < 2; i++) {
        const char *start = p;
        for (; *p >= '0' && *p <= '9' && v[i] < TU_SCHED_MAX; p++)
            v[i] = v[i] * 10 + (uint32_t)(*p - '0');
        if (p == start || v[i] >= TU_SCHED_MAX)
            return false;
        if (!i && (!*p || !(at = strchr(letters, *p++))))
            return false;
    }
    if (*p && (*p != '.' || p[1 + strspn(p + 1, "0123456789")]))
        return false;
    op->kind = kinds[at - letters];
    op->stage = v[0];
    op->mb = v[1];
    return true;
}

static int collect(struct tu_measured *m, const json_t *events, struct tu_err *err)
{
    size_t i, cap = 0;
    const json_t *e;
    json_array_foreach(events, i, e)
    {
        const char *ph = json_string_value(json_object_get(e, "ph"));
        const char *name = json_string_value(json_object_get(e, "name"));
        const json_t *took = json_object_get(e, "dur"), *when = json_object_get(e, "ts");
        double us = json_number_value(took), ts = json_number_value(when);
        struct tu_measured_op op;
        if (!ph || strcmp(ph, "X") || !name || !operation(name, &op))
            continue;
        if (!json_is_number(took) || !json_is_number(when) || !(us >= 0) || us > 1e12 ||
            !(ts >= 0) || ts > 4e15)
            return tu_fail(err, TU_EFORMAT, "trace: event %zu: its time is none", i);
        op.start = llround(ts * 1000);
        op.end = op.start + llround(us * 1000);
        int rc = TU_GROW(&m->op, &cap, m->n, err);
        if (rc)
            return rc;
        m->op[m->n++] = op;
    }
    if (!m->n)
        return tu_fail(err, TU_EFORMAT,
                       "trace: no complete event is named as an operation, 3F1");
    int64_t first = m->op[0].start;
    for (i = 0; i < m->n; i++)
        first = m->op[i].start < first ? m->op[i].start : first;
    for (i = 0; i < m->n; i++) {
        m->op[i].start -= first;
        m->op[i].end -= first;
    }
    return 0;
}

int tu_measured_read(struct tu_measured *out, const char *text, size_t n,
                     struct tu_err *err)
{
    json_t *o = NULL;
    *out = (struct tu_measured){0};
    int rc =
        tu_json_parse(&o, text, n, &(struct tu_json_limits){.bytes = TRACE_MAX}, err);
    const json_t *events = json_is_array(o) ? o : json_object_get(o, "traceEvents");
    if (!rc && !json_is_array(events))
        rc = tu_fail(err, TU_EFORMAT, "trace: the list \"traceEvents\" is missing");
    if (!rc)
        rc = collect(out, events, err);
    if (rc)
        tu_measured_release(out);
    json_decref(o);
    return rc;
}

void tu_measured_release(struct tu_measured *m)
{
    tu_free(m->op);
    *m = (struct tu_measured){0};
}

/* Sums and counts of each stage and kind, then their means as lines of --times. */
int tu_cost_measured(struct tu_cost *c, const struct tu_measured *m, struct tu_err *err)
{
    enum { KINDS = TU_OP_W + 1 };
    uint32_t stages = 0;
    if (*c->unit && strcmp(c->unit, "us"))
        return tu_fail(err, TU_EUSAGE,
                       "trace: its times are microseconds, the cost's are %s", c->unit);
    for (size_t i = 0; i < m->n; i++)
        stages = m->op[i].stage + 1 > stages ? m->op[i].stage + 1 : stages;
    double *ns = tu_calloc((size_t)stages * KINDS, sizeof *ns, err);
    uint64_t *count = tu_calloc((size_t)stages * KINDS, sizeof *count, err);
    struct tu_buf lines = {0};
    int rc = ns && count ? 0 : TU_ENOMEM;
    for (size_t i = 0; i < m->n && !rc; i++) {
        size_t at = (size_t)m->op[i].stage * KINDS + m->op[i].kind;
        ns[at] += (double)(m->op[i].end - m->op[i].start);
        count[at]++;
    }
    for (size_t at = 0; at < (size_t)stages * KINDS && !rc; at++) {
        char text[40];
        if (count[at])
            rc = tu_buf_printf(
                &lines, err, "%s,%zu,%s\n", tu_op_name(at % KINDS), at / KINDS,
                tu_ticks_text(llround(ns[at] / (double)count[at]), 1000, text));
    }
    if (!rc)
        rc = tu_cost_times(c, lines.data, lines.n, err);
    if (!rc)
        memcpy(c->unit, "us", 3);
    tu_buf_release(&lines);
    tu_free(ns);
    tu_free(count);
    return rc;
}

int tu_cost_trace(struct tu_cost *c, const char *text, size_t n, struct tu_err *err)
{
    struct tu_measured m;
    int rc = tu_measured_read(&m, text, n, err);
    if (!rc)
        rc = tu_cost_measured(c, &m, err);
    tu_measured_release(&m);
    return rc;
}
