/* SPDX-License-Identifier: Apache-2.0 */
/* cost_times.c: times of single stages, micro-batches and links, from lines. */
#include <string.h>
#include "sched/cost.h"

/* Grow a table of `rows` rows from `old` to `want` columns, filled with -1. */
static int widen(int64_t **table, size_t rows, uint32_t *old, uint32_t want,
                 struct tu_err *err)
{
    if (want <= *old)
        return 0;
    int64_t *t = tu_alloc(rows * want, sizeof *t, err);
    if (!t)
        return TU_ENOMEM;
    for (size_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < want; k++)
            t[r * want + k] = *table && k < *old ? (*table)[r * *old + k] : -1;
    tu_free(*table);
    *table = t;
    *old = want;
    return 0;
}

static int small(const char *text, uint32_t *out, struct tu_err *err)
{
    uint64_t v;
    int rc = tu_parse_u64(text, &v, err);
    if (!rc && v >= TU_SCHED_MAX)
        rc = tu_fail(err, TU_EFORMAT, "'%.20s': not a stage, micro-batch or rank", text);
    *out = rc ? 0 : (uint32_t)v;
    return rc;
}

static int link_time(struct tu_cost *c, uint32_t a, uint32_t b, const char *text,
                     struct tu_err *err)
{
    uint32_t want = (a > b ? a : b) + 1;
    if (want > 4096)
        return tu_fail(err, TU_EFORMAT, "links: rank %u: more than 4096 ranks", want - 1);
    if (want > c->ranks) {
        int64_t *t = tu_alloc((size_t)want * want, sizeof *t, err);
        if (!t)
            return TU_ENOMEM;
        for (uint32_t i = 0; i < want; i++)
            for (uint32_t j = 0; j < want; j++)
                t[(size_t)i * want + j] =
                    i < c->ranks && j < c->ranks ? c->link[(size_t)i * c->ranks + j] : -1;
        tu_free(c->link);
        c->link = t;
        c->ranks = want;
    }
    int64_t t = 0;
    int rc = tui_cost_set(c, &t, text, 1, err);
    if (!rc)
        c->link[(size_t)a * c->ranks + b] = t;
    return rc;
}

/* A weight is a factor of every compute time; its decimals go into the common scale. */
static int mb_weight(struct tu_cost *c, uint32_t mb, const char *text, struct tu_err *err)
{
    int64_t value, scale;
    uint32_t old = c->microbatches;
    int rc = tu_decimal(text, &value, &scale, err);
    if (!rc)
        rc = widen(&c->weight, 1, &c->microbatches, mb + 1, err);
    for (uint32_t k = old; !rc && k < c->microbatches; k++)
        c->weight[k] = c->weight_one;
    int64_t up = rc ? 1 : scale / tui_gcd(scale, c->weight_one);
    if (up > 1) {
        /* Everything but the compute times, which the weights multiply. */
        int64_t keep[TU_OP_R + 1], *stage_time = c->stage_time;
        memcpy(keep, c->time, sizeof keep);
        c->stage_time = NULL;
        rc = tui_cost_rescale(c, up, err);
        c->stage_time = stage_time;
        memcpy(c->time, keep, sizeof keep);
        for (uint32_t k = 0; k < c->microbatches; k++)
            c->weight[k] *= up;
        c->weight_one *= up;
    }
    if (!rc)
        c->weight[mb] = value * (c->weight_one / scale);
    return rc;
}

static int arrival(struct tu_cost *c, uint32_t mb, const char *text, struct tu_err *err)
{
    int64_t t = 0;
    int rc = widen(&c->arrive, 1, &c->arrivals, mb + 1, err);
    if (!rc)
        rc = tui_cost_set(c, &t, text, 1, err);
    if (!rc)
        c->arrive[mb] = t;
    return rc;
}

static int row(struct tu_cost *c, char *cell[4], size_t n, struct tu_err *err)
{
    uint32_t a, b;
    if (n < 3)
        return tu_fail(err, TU_EFORMAT, "three cells are expected: KIND,STAGE,TIME");
    int rc = small(cell[1], &a, err);
    if (rc)
        return rc;
    if (!strcmp(cell[0], "link")) {
        if (n < 4)
            return tu_fail(err, TU_EFORMAT, "four cells are expected: link,FROM,TO,TIME");
        rc = small(cell[2], &b, err);
        return rc ? rc : link_time(c, a, b, cell[3], err);
    }
    if (!strcmp(cell[0], "mb"))
        return mb_weight(c, a, cell[2], err);
    if (!strcmp(cell[0], "arrive"))
        return arrival(c, a, cell[2], err);
    for (unsigned k = 0; k <= TU_OP_W; k++)
        if (!strcmp(cell[0], tu_op_name(k))) {
            int64_t t = 0;
            rc = widen(&c->stage_time, TU_OP_W + 1, &c->stages, a + 1, err);
            if (!rc)
                rc = tui_cost_set(c, &t, cell[2], c->weight_one, err);
            if (!rc)
                c->stage_time[(size_t)k * c->stages + a] = t;
            return rc;
        }
    return tu_fail(err, TU_EFORMAT, "'%.20s': not F, I, W, B, mb, arrive or link",
                   cell[0]);
}

int tu_cost_times(struct tu_cost *c, const char *text, size_t n, struct tu_err *err)
{
    size_t line = 0, at = 0;
    while (at < n) {
        size_t end = at;
        while (end < n && text[end] != '\n')
            end++;
        char copy[256], *cell[4], *p = copy;
        size_t len = end - at, cells = 0;
        line++;
        if (len >= sizeof copy)
            return tu_fail_at(err, TU_EFORMAT, at, "times: line %zu is too long", line);
        memcpy(copy, text + at, len);
        copy[len] = 0;
        at = end + 1;
        copy[strcspn(copy, "#\r")] = 0;
        if (!copy[strspn(copy, " \t")] || !strncmp(copy, "kind,", 5))
            continue;
        while (p && cells < 4) {
            cell[cells++] = p + strspn(p, " \t");
            p = strchr(p, ',');
            if (p)
                *p++ = 0;
        }
        for (size_t i = 0; i < cells; i++)
            cell[i][strcspn(cell[i], " \t")] = 0;
        int rc = row(c, cell, cells, err);
        if (rc) {
            tu_err_prefix(err, "times: line %zu", line);
            return rc;
        }
    }
    return 0;
}
