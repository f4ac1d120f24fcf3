/* SPDX-License-Identifier: Apache-2.0 */
/* form_json_cost.c: the costs in a document: whole ticks, "scale" of them in a unit. */
#include <jansson.h>
#include <string.h>
#include "sched/cost.h"
#include "sched/form_json.h"

static void list(struct tu_jw *w, const char *key, const int64_t *v, size_t n)
{
    if (!v || !n)
        return;
    tu_jw_open(w, key, '[');
    for (size_t i = 0; i < n; i++)
        tu_jw_i64(w, NULL, v[i]);
    tu_jw_close(w, ']');
}

void tui_json_cost_write(struct tu_jw *w, const struct tu_cost *c)
{
    tu_jw_open(w, "cost", '{');
    if (*c->unit)
        tu_jw_str(w, "unit", c->unit);
    tu_jw_i64(w, "scale", c->scale);
    for (unsigned k = 0; k < TU_OP_KINDS; k++)
        if (c->time[k] > 0 || k <= TU_OP_W)
            if (c->time[k] >= 0)
                tu_jw_i64(w, tu_op_name(k), c->time[k]);
    if (c->pair >= 0)
        tu_jw_i64(w, "FB", c->pair);
    tu_jw_i64(w, "CF", c->transfer[0]);
    tu_jw_i64(w, "CB", c->transfer[1]);
    if (c->mem_b) {
        tu_jw_i64(w, "mem_unit", c->mem_unit);
        tu_jw_i64(w, "mem_b", c->mem_b);
        tu_jw_i64(w, "mem_w", c->mem_w);
        tu_jw_i64(w, "mem_ckpt", c->mem_ckpt);
    }
    if (c->release == TU_MEM_SPLIT)
        tu_jw_str(w, "release", "split");
    if (c->stages) {
        tu_jw_open(w, "stage_time", '{');
        for (unsigned k = 0; k <= TU_OP_W; k++)
            list(w, tu_op_name(k), c->stage_time + (size_t)k * c->stages, c->stages);
        tu_jw_close(w, '}');
    }
    list(w, "weight", c->weight, c->microbatches);
    if (c->weight_one != 1)
        tu_jw_i64(w, "weight_one", c->weight_one);
    list(w, "arrive", c->arrive, c->arrivals);
    list(w, "link", c->link, (size_t)c->ranks * c->ranks);
    if (c->contend)
        tu_jw_bool(w, "contend", true);
    if (c->blocking)
        tu_jw_bool(w, "blocking", true);
    if (c->barrier)
        tu_jw_bool(w, "barrier", true);
    tu_jw_close(w, '}');
}

int64_t tui_keys_int(struct tui_keys *k, const char *key, int64_t lo, int64_t hi,
                     int64_t none)
{
    const json_t *v = json_object_get(k->o, key);
    if (!v || k->code)
        return none;
    if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi) {
        k->code = tu_fail(k->err, TU_EFORMAT,
                          "schedule: '%s': an integer in %lld … %lld is expected", key,
                          (long long)lo, (long long)hi);
        return none;
    }
    return json_integer_value(v);
}

/* An array of ticks; *n is its length. NULL when absent. */
static int64_t *ticks(struct tui_keys *k, const json_t *o, const char *key, size_t *n)
{
    const json_t *v = json_object_get(o, key);
    *n = json_array_size(v);
    if (!v || k->code)
        return NULL;
    int64_t *t = tu_alloc(*n, sizeof *t, k->err);
    if (!t || !json_is_array(v))
        k->code =
            !t ? TU_ENOMEM
               : tu_fail(k->err, TU_EFORMAT, "schedule: '%s': a list is expected", key);
    for (size_t i = 0; i < *n && !k->code; i++) {
        const json_t *one = json_array_get(v, i);
        t[i] = json_is_integer(one) ? json_integer_value(one) : INT64_MAX;
        if (t[i] < -1 || t[i] > TUI_TICKS_MAX)
            k->code = tu_fail(k->err, TU_EFORMAT,
                              "schedule: '%s'[%zu]: not a time in ticks", key, i);
    }
    if (k->code) {
        tu_free(t);
        return NULL;
    }
    return t;
}

static void read_tables(struct tui_keys *k, struct tu_cost *c)
{
    size_t n = 0;
    const json_t *stage = json_object_get(k->o, "stage_time");
    for (unsigned kind = 0; stage && kind <= TU_OP_W && !k->code; kind++) {
        int64_t *t = ticks(k, stage, tu_op_name(kind), &n);
        if (!t)
            continue;
        if (!c->stage_time) {
            c->stages = (uint32_t)n;
            c->stage_time = tu_alloc((TU_OP_W + 1) * n, sizeof *c->stage_time, k->err);
            k->code = c->stage_time ? 0 : TU_ENOMEM;
            for (size_t i = 0; !k->code && i < (TU_OP_W + 1) * n; i++)
                c->stage_time[i] = -1;
        }
        if (!k->code && n != c->stages)
            k->code = tu_fail(k->err, TU_EFORMAT,
                              "schedule: stage_time: lists differ in length");
        if (!k->code)
            memcpy(c->stage_time + kind * n, t, n * sizeof *t);
        tu_free(t);
    }
    c->weight = ticks(k, k->o, "weight", &n);
    c->microbatches = c->weight ? (uint32_t)n : 0;
    c->arrive = ticks(k, k->o, "arrive", &n);
    c->arrivals = c->arrive ? (uint32_t)n : 0;
    c->link = ticks(k, k->o, "link", &n);
    while (c->link && (size_t)c->ranks * c->ranks < n)
        c->ranks++;
    if (c->link && (size_t)c->ranks * c->ranks != n && !k->code)
        k->code =
            tu_fail(k->err, TU_EFORMAT, "schedule: link: %zu values are not a square", n);
}

int tui_json_cost_read(struct tu_cost *c, const json_t *o, struct tu_err *err)
{
    struct tui_keys k = {o, err, 0};
    tu_cost_release(c);
    tu_cost_init(c);
    c->scale = tui_keys_int(&k, "scale", 1, TUI_TICKS_MAX, 1);
    for (unsigned kind = 0; kind < TU_OP_KINDS; kind++)
        c->time[kind] = tui_keys_int(&k, tu_op_name(kind), 0, TUI_TICKS_MAX, c->time[kind]);
    c->pair = tui_keys_int(&k, "FB", 0, TUI_TICKS_MAX, -1);
    c->transfer[0] = tui_keys_int(&k, "CF", 0, TUI_TICKS_MAX, 0);
    c->transfer[1] = tui_keys_int(&k, "CB", 0, TUI_TICKS_MAX, c->transfer[0]);
    c->mem_unit = tui_keys_int(&k, "mem_unit", 1, TUI_TICKS_MAX, 0);
    c->mem_b = tui_keys_int(&k, "mem_b", 1, TUI_TICKS_MAX, 0);
    c->mem_w = tui_keys_int(&k, "mem_w", 0, c->mem_b, 0);
    c->mem_ckpt = tui_keys_int(&k, "mem_ckpt", 0, c->mem_b, 0);
    c->weight_one = tui_keys_int(&k, "weight_one", 1, TUI_TICKS_MAX, 1);
    const char *unit = json_string_value(json_object_get(o, "unit"));
    if (unit && strlen(unit) < sizeof c->unit)
        memcpy(c->unit, unit, strlen(unit) + 1);
    const char *release = json_string_value(json_object_get(o, "release"));
    c->release = release && !strcmp(release, "split") ? TU_MEM_SPLIT : TU_MEM_AT_W;
    c->contend = json_is_true(json_object_get(o, "contend"));
    c->blocking = json_is_true(json_object_get(o, "blocking"));
    c->barrier = json_is_true(json_object_get(o, "barrier"));
    read_tables(&k, c);
    if (!k.code && c->mem_b && !c->mem_unit)
        k.code = tu_fail(err, TU_EFORMAT, "schedule: mem_b without mem_unit");
    return k.code;
}
