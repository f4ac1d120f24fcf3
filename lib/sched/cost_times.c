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

static int raise_weights(struct tu_cost *c, int64_t up, struct tu_err *err)
{
    for (uint32_t k = 0; k <= c->microbatches; k++) {
        int64_t *w = k < c->microbatches ? &c->weight[k] : &c->weight_one;
        if (*w > TUI_TICKS_MAX / up)
            return tu_fail(err, TU_EUSAGE, "weights: no common exact scale: too large");
        *w *= up;
    }
    return 0;
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
        rc = rc ? rc : raise_weights(c, up, err);
    }
    if (!rc && value > TUI_TICKS_MAX / (c->weight_one / scale))
        rc = tu_fail(err, TU_EUSAGE, "'%.40s': too large a weight", text);
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
    bool link = !strcmp(cell[0], "link");
    if (n < 3 || (n > 3 && !link))
        return tu_fail(err, TU_EFORMAT, "three cells are expected: KIND,STAGE,TIME");
    int rc = small(cell[1], &a, err);
    if (rc)
        return rc;
    if (link) {
        if (n < 4)
            return tu_fail(err, TU_EFORMAT, "four cells are expected: link,FROM,TO,TIME");
        rc = small(cell[2], &b, err);
        if (!rc && a == b)
            rc = tu_fail(err, TU_EFORMAT, "link: from rank %u to itself", a);
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

/* A stage with a B alone: its halves, as in tu_cost_parse. */
static int halves(struct tu_cost *c, struct tu_err *err)
{
    int64_t *t[TU_OP_W + 1];
    bool fine = true;
    for (int twice = 0; twice < 2; twice++) {
        for (size_t k = 0; k <= TU_OP_W; k++)
            t[k] = c->stage_time + k * c->stages;
        for (uint32_t s = 0; s < c->stages; s++) {
            if (t[TU_OP_B][s] < 0 || t[TU_OP_I][s] >= 0 || t[TU_OP_W][s] >= 0)
                continue;
            fine = fine && t[TU_OP_B][s] % 2 == 0;
            if (twice)
                t[TU_OP_I][s] = t[TU_OP_W][s] = t[TU_OP_B][s] / 2;
        }
        int rc = fine || twice ? 0 : tui_cost_rescale(c, 2, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* What a stage of the schedule takes of one kind: its part of a row, or `add` rows together.
 * TU_EUSAGE when one of them is missing, TU_ESIZE when their sum is too long. */
static int part(int64_t *out, const int64_t *row, uint32_t stage, uint32_t split, uint32_t add,
                uint32_t rows)
{
    int64_t sum = 0;
    uint32_t known = 0;
    for (uint32_t k = 0; k < add; k++) {
        uint32_t at = stage / split * add + k;
        int64_t t = at < rows ? row[at] : -1;
        known += t >= 0;
        if (t > TUI_TICKS_MAX - sum) {
            *out = INT64_MAX;
            return TU_ESIZE;
        }
        sum += t >= 0 ? t : 0;
    }
    *out = known ? sum : -1;
    return known == 0 || known == add ? 0 : TU_EUSAGE;
}

int tu_cost_spread(struct tu_cost *c, uint32_t ranks, uint32_t chunks, uint32_t slices,
                   uint32_t pipelines, struct tu_err *err)
{
    uint32_t rows = c->stages, of = rows > ranks ? rows : ranks;
    uint64_t stages = (uint64_t)ranks * chunks, all = stages * pipelines;
    if (!rows || (of == stages && slices == 1 && pipelines == 1))
        return 0;
    if ((stages % of && of % stages) || all > TU_SCHED_MAX)
        return tu_fail(err, TU_EUSAGE,
                       "times: those of %u stages cannot be made those of %llu", of,
                       (unsigned long long)stages);
    uint32_t split = (uint32_t)(stages > of ? stages / of : 1);
    uint32_t add = (uint32_t)(of > stages ? of / stages : 1);
    int64_t *t = tu_alloc((size_t)(TU_OP_W + 1) * all, sizeof *t, err);
    int rc = t ? tui_cost_rescale(c, (int64_t)split * slices, err) : TU_ENOMEM;
    for (uint32_t k = 0; k <= TU_OP_W && !rc; k++)
        for (uint32_t s = 0; s < all && !rc; s++) {
            int64_t *to = &t[k * all + s];
            rc = part(to, c->stage_time + (size_t)k * rows, (uint32_t)(s % stages), split, add,
                      rows);
            if (rc == TU_ESIZE)
                tu_fail(err, rc, "times are too large to be added");
            else if (rc)
                tu_fail(err, rc,
                        "times: %s of every of %u stages is needed: each of the schedule's "
                        "%llu takes %u of them",
                        tu_op_name(k), of, (unsigned long long)stages, add);
            else if (*to > 0)
                *to /= (int64_t)split * slices;
        }
    if (rc) {
        tu_free(t);
        return rc;
    }
    tu_free(c->stage_time);
    c->stage_time = t;
    c->stages = (uint32_t)all;
    return 0;
}

int tu_cost_times(struct tu_cost *c, const char *text, size_t n, struct tu_err *err)
{
    size_t line = 0, rows = 0, at = 0;
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
        int rc = p ? tu_fail(err, TU_EFORMAT, "more than four cells") : row(c, cell, cells, err);
        rows++;
        if (rc) {
            tu_err_prefix(err, "times: line %zu", line);
            rc = rc == TU_EUSAGE ? TU_EFORMAT : rc;
            if (err)
                err->code = rc;
            return rc;
        }
    }
    if (n && !rows)
        return tu_fail(err, TU_EFORMAT, "times: no line KIND,STAGE,TIME is there");
    return c->stages ? halves(c, err) : 0;
}
