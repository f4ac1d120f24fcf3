/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c: durations and memory sizes: exact decimals in, exact decimals out.
 *
 * All times of a cost share one scale (ticks in a unit), raised as finer decimals arrive,
 * so no value is ever rounded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sched/cost.h"

int tu_decimal(const char *s, int64_t *value, int64_t *scale, struct tu_err *err)
{
    const char *p = s;
    bool negative = *p == '-', dot = false, digit = false;
    p += negative;
    *value = 0;
    *scale = 1;
    for (; *p; p++) {
        if (*p == '.' && !dot) {
            dot = true;
            continue;
        }
        if (*p < '0' || *p > '9')
            break;
        digit = true;
        if (*value > TUI_TICKS_MAX / 10 || (dot && *scale > 100000000))
            return tu_fail(err, TU_EUSAGE, "'%.40s': too many digits for an exact time",
                           s);
        *value = *value * 10 + (*p - '0');
        *scale *= dot ? 10 : 1;
    }
    if (!digit || *p)
        return tu_fail(err, TU_EUSAGE, "'%.40s': not a decimal number", s);
    if (negative)
        return tu_fail(err, TU_EUSAGE, "'%.40s': is negative", s);
    while (*scale > 1 && *value % 10 == 0) {
        *value /= 10;
        *scale /= 10;
    }
    return 0;
}

const char *tu_ticks_text(int64_t ticks, int64_t scale, char out[40])
{
    int64_t whole = ticks / scale, rest = ticks % scale, part = 0;
    rest = rest < 0 ? -rest : rest;
    for (int i = 0; i < 9; i++) {
        rest *= 10;
        part = 10 * part + rest / scale;
        rest %= scale;
    }
    part += rest >= scale - rest; /* the nearest of nine decimals */
    if (part == 1000000000) {
        whole += ticks < 0 ? -1 : 1;
        part = 0;
    }
    int n = snprintf(out, 40, "%s%lld", ticks < 0 && !whole && part ? "-" : "",
                     (long long)whole);
    if (part)
        n += snprintf(out + n, 40 - (size_t)n, ".%09lld", (long long)part);
    while (part && out[n - 1] == '0')
        n--;
    out[n] = 0;
    return out;
}

void tu_cost_init(struct tu_cost *c)
{
    *c = (struct tu_cost){.scale = 1, .pair = -1, .weight_one = 1};
    c->time[TU_OP_F] = c->time[TU_OP_I] = c->time[TU_OP_W] = c->time[TU_OP_R] = 1;
    c->time[TU_OP_B] = -1;
}

void tu_cost_release(struct tu_cost *c)
{
    tu_free(c->stage_time);
    tu_free(c->weight);
    tu_free(c->arrive);
    tu_free(c->link);
    c->stage_time = c->weight = c->arrive = c->link = NULL;
    c->stages = c->microbatches = c->arrivals = c->ranks = 0;
}

static int dup(int64_t **p, size_t n, struct tu_err *err)
{
    if (!*p)
        return 0;
    int64_t *q = tu_alloc(n, sizeof *q, err);
    if (q)
        memcpy(q, *p, n * sizeof *q);
    *p = q;
    return q ? 0 : TU_ENOMEM;
}

int tu_cost_copy(struct tu_cost *out, const struct tu_cost *c, struct tu_err *err)
{
    *out = *c;
    int rc = dup(&out->stage_time, (size_t)(TU_OP_W + 1) * c->stages, err);
    if (rc)
        out->weight = out->arrive = out->link = NULL;
    rc = rc ? rc : dup(&out->weight, c->microbatches, err);
    if (rc)
        out->arrive = out->link = NULL;
    rc = rc ? rc : dup(&out->arrive, c->arrivals, err);
    if (rc)
        out->link = NULL;
    rc = rc ? rc : dup(&out->link, (size_t)c->ranks * c->ranks, err);
    if (rc)
        tu_cost_release(out);
    return rc;
}

int tui_cost_rescale(struct tu_cost *c, int64_t k, struct tu_err *err)
{
    struct {
        int64_t *p;
        size_t n;
    } part[] = {
        {c->time, TU_OP_KINDS},
        {&c->pair, 1},
        {c->transfer, 2},
        {c->stage_time, c->stage_time ? (size_t)(TU_OP_W + 1) * c->stages : 0},
        {c->arrive, c->arrive ? c->arrivals : 0},
        {c->link, c->link ? (size_t)c->ranks * c->ranks : 0},
        {&c->scale, 1},
    };
    for (size_t i = 0; k > 1 && i < sizeof part / sizeof *part; i++)
        for (size_t j = 0; j < part[i].n; j++) {
            if (part[i].p[j] > TUI_TICKS_MAX / k)
                return tu_fail(err, TU_EUSAGE, "times: no common exact scale: too large");
            part[i].p[j] *= part[i].p[j] < 0 ? 1 : k;
        }
    return 0;
}

int64_t tui_gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* value/scale in ticks, after raising the cost's scale so that it is whole. */
static int ticks(struct tu_cost *c, int64_t value, int64_t scale, int64_t *out,
                 struct tu_err *err)
{
    int64_t g = tui_gcd(value, scale);
    value /= g ? g : 1;
    scale /= g ? g : 1;
    int64_t k = scale / tui_gcd(scale, c->scale);
    int rc = tui_cost_rescale(c, k, err);
    if (!rc && value && c->scale / scale > TUI_TICKS_MAX / value)
        rc = tu_fail(err, TU_EUSAGE, "times: %lld is too large", (long long)value);
    if (!rc)
        *out = value * (c->scale / scale);
    return rc;
}

int tui_cost_set(struct tu_cost *c, int64_t *where, const char *text, int64_t divide,
                 struct tu_err *err)
{
    int64_t value, scale, t = 0;
    int rc = tu_decimal(text, &value, &scale, err);
    if (!rc && __builtin_mul_overflow(scale, divide, &scale))
        rc = tu_fail(err, TU_EUSAGE, "times: '%.40s': no common exact scale: too large", text);
    if (!rc)
        rc = ticks(c, value, scale, &t, err);
    if (!rc)
        *where = t;
    return rc;
}

static const struct {
    const char *key;
    uint8_t kind;
    bool share; /* of a rank's share: divided among its chunks */
} timed[] = {
    {"F", TU_OP_F, true},
    {"I", TU_OP_I, true},
    {"W", TU_OP_W, true},
    {"B", TU_OP_B, true},
    {"R", TU_OP_R, true},
    {"OPT", TU_OP_OPT, false},
    {"UNSHARD", TU_OP_UNSHARD, true},
    {"REDUCE", TU_OP_REDUCE, true},
    {"OFFLOAD", TU_OP_OFFLOAD, true},
    {"FETCH", TU_OP_FETCH, true},
};

static int set_key(struct tu_cost *c, const char *key, const char *value, uint32_t share,
                   struct tu_err *err)
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    for (size_t i = 0; i < sizeof timed / sizeof *timed; i++)
        if (!strcmp(key, timed[i].key))
            return tui_cost_set(c, &c->time[timed[i].kind], value,
                       (timed[i].share ? share : 1) *
                           (timed[i].kind <= TU_OP_R ? c->weight_one : 1),
                       err);
    if (!strcmp(key, "FB"))
        return tui_cost_set(c, &c->pair, value, share, err);
    if (!strcmp(key, "CF"))
        return tui_cost_set(c, &c->transfer[0], value, 1, err);
    if (!strcmp(key, "CB"))
        return tui_cost_set(c, &c->transfer[1], value, 1, err);
    if (!strcmp(key, "C")) {
        int rc = tui_cost_set(c, &c->transfer[0], value, 1, err);
        c->transfer[1] = c->transfer[0];
        return rc;
    }
    for (size_t i = 0; !strcmp(key, "unit") && i < 4; i++)
        if (!strcmp(value, unit[i])) {
            snprintf(c->unit, sizeof c->unit, "%s", unit[i]);
            return 0;
        }
    return tu_fail(err, TU_EUSAGE,
                   "times: '%.20s=%.40s': known: F I W B FB R C CF CB OPT UNSHARD REDUCE "
                   "OFFLOAD FETCH, unit=ns|us|ms|s",
                   key, value);
}

int tu_cost_share(struct tu_cost *c, uint32_t n, struct tu_err *err)
{
    int rc = n > 1 ? tui_cost_rescale(c, n, err) : 0;
    for (size_t i = 0; i < sizeof timed / sizeof *timed && !rc && n > 1; i++)
        if (timed[i].share && c->time[timed[i].kind] > 0)
            c->time[timed[i].kind] /= n;
    if (!rc && n > 1 && c->pair > 0)
        c->pair /= n;
    return rc;
}

bool tu_cost_matters(const struct tu_sched *s, const char *key)
{
    bool has[TU_OP_KINDS] = {false}, paired = false;
    for (uint32_t r = 0; r < s->ranks; r++)
        for (size_t k = 0; k < s->n[r]; k++) {
            has[s->op[r][k].kind] = true;
            paired = paired || s->op[r][k].flags & TU_OP_PAIRED;
        }
    /* A B without a time of its own takes I and W, and these are halves of B. */
    has[TU_OP_B] = has[TU_OP_I] = has[TU_OP_W] =
        has[TU_OP_B] || has[TU_OP_I] || has[TU_OP_W];
    for (size_t i = 0; i < sizeof timed / sizeof *timed; i++)
        if (!strcmp(key, timed[i].key))
            return has[timed[i].kind];
    if (!strcmp(key, "C") || !strcmp(key, "CF"))
        return s->ranks > 1;
    if (!strcmp(key, "CB"))
        return s->ranks > 1 && s->deps == TU_DEPS_TRAIN;
    return strcmp(key, "FB") || paired;
}

int tu_cost_fits(const struct tu_cost *c, const struct tu_sched *s, struct tu_err *err)
{
    const struct {
        const char *what;
        uint64_t given, most;
    } table[] = {{"stage", c->stages, (uint64_t)s->stages * s->pipelines},
                 {"micro-batch", c->microbatches, s->microbatches},
                 {"arrival of micro-batch", c->arrivals, s->microbatches},
                 {"link of rank", c->ranks, s->ranks}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].given > table[i].most)
            return tu_fail(err, TU_EFORMAT, "%s %llu: the schedule has %llu", table[i].what,
                           (unsigned long long)table[i].given - 1,
                           (unsigned long long)table[i].most);
    return 0;
}

int tu_cost_parse(struct tu_cost *c, const char *text, uint32_t share, struct tu_err *err)
{
    struct tu_spec spec;
    bool has_b = false, has_iw = false, has_r = false;
    struct tu_buf b = {0};
    int rc = tu_buf_printf(&b, err, "cost:%s", text);
    if (!rc)
        rc = tu_spec_parse(&spec, b.data, err);
    tu_buf_release(&b);
    if (rc)
        return rc;
    for (size_t i = 0; i < spec.n && !rc; i++) {
        const char *key = spec.key[i].key;
        has_b = has_b || !strcmp(key, "B");
        has_iw = has_iw || !strcmp(key, "I") || !strcmp(key, "W");
        has_r = has_r || !strcmp(key, "R");
        rc = set_key(c, key, spec.key[i].value, share ? share : 1, err);
    }
    if (!rc && has_b && !has_iw) {
        /* B alone: its halves are exact in a scale twice as fine. */
        rc = c->time[TU_OP_B] % 2 ? tui_cost_rescale(c, 2, err) : 0;
        c->time[TU_OP_I] = c->time[TU_OP_W] = c->time[TU_OP_B] / 2;
    }
    if (!rc && !has_r)
        c->time[TU_OP_R] = c->time[TU_OP_F];
    if (!rc && has_iw && !has_b)
        c->time[TU_OP_B] = -1;
    tu_spec_release(&spec);
    return rc;
}

int tu_cost_memory(struct tu_cost *c, const char *text, uint32_t chunks,
                   struct tu_err *err)
{
    struct tu_spec spec;
    struct tu_buf b = {0};
    int64_t value[3] = {1, 0, 0}, scale[3] = {1, 1, 1}, common = 1;
    static const char *const key[] = {"B", "W", "CKPT", NULL};
    bool given = false;
    int rc = tu_buf_printf(&b, err, "memory:%s", text);
    if (!rc)
        rc = tu_spec_parse(&spec, b.data, err);
    tu_buf_release(&b);
    if (rc)
        return rc;
    rc = tu_spec_check(&spec, key, err);
    for (size_t i = 0; i < 3 && !rc; i++) {
        const char *v = tu_spec_get(&spec, key[i]);
        given = given || (v && i == 1);
        if (v)
            rc = tu_decimal(v, &value[i], &scale[i], err);
        common = common / tui_gcd(common, scale[i]) * scale[i];
    }
    tu_spec_release(&spec);
    for (size_t i = 0; i < 3 && !rc; i++)
        if (__builtin_mul_overflow(value[i], common / scale[i], &value[i]) ||
            value[i] > TUI_TICKS_MAX)
            rc = tu_fail(err, TU_EUSAGE, "memory: '%.60s': no common exact scale: too large",
                         text);
    if (!rc && !given)
        value[1] = value[0] / 2;
    if (!rc && (value[1] > value[0] || value[2] > value[0] || !value[0]))
        rc =
            tu_fail(err, TU_EUSAGE,
                    "memory: '%.60s': B must be positive, W and CKPT not above it", text);
    if (!rc) {
        c->mem_unit = common * chunks;
        c->mem_b = value[0];
        c->mem_w = value[1];
        c->mem_ckpt = value[2];
    }
    return rc;
}

int64_t tui_cost_plain(const struct tu_cost *c, unsigned kind, uint32_t stage)
{
    int64_t t = -1;
    if (kind <= TU_OP_W && stage < c->stages)
        t = c->stage_time[(size_t)kind * c->stages + stage];
    if (t < 0)
        t = c->time[kind];
    if (t < 0 || (kind == TU_OP_B && stage < c->stages &&
                  c->stage_time[(size_t)TU_OP_B * c->stages + stage] < 0 &&
                  (c->stage_time[(size_t)TU_OP_I * c->stages + stage] >= 0 ||
                   c->stage_time[(size_t)TU_OP_W * c->stages + stage] >= 0)))
        return tui_cost_plain(c, TU_OP_I, stage) + tui_cost_plain(c, TU_OP_W, stage);
    return t;
}

int64_t tu_cost_time(const struct tu_cost *c, unsigned kind, uint32_t stage, uint32_t mb)
{
    int64_t t = tui_cost_plain(c, kind, stage);
    if (kind > TU_OP_R)
        return t;
    return t * (mb < c->microbatches ? c->weight[mb] : c->weight_one);
}

int64_t tu_cost_transfer(const struct tu_cost *c, bool backward, uint32_t from,
                         uint32_t to)
{
    if (from < c->ranks && to < c->ranks) {
        int64_t t = c->link[(size_t)from * c->ranks + to];
        if (t >= 0)
            return t;
    }
    return c->transfer[backward];
}
