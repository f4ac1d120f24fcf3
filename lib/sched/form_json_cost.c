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
    for (unsigned k = 0; k < TU_OP_KINDS; k++) /* of other kinds, 0 goes without saying */
        if (c->time[k] >= (k <= TU_OP_R ? 0 : 1))
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
    for (size_t i = 0; i < c->microbatches && !k->code; i++)
        if (c->weight[i] < 0)
            k->code = tu_fail(k->err, TU_EFORMAT, "schedule: 'weight'[%zu]: is negative", i);
    c->arrive = ticks(k, k->o, "arrive", &n);
    c->arrivals = c->arrive ? (uint32_t)n : 0;
    c->link = ticks(k, k->o, "link", &n);
    while (c->link && (size_t)c->ranks * c->ranks < n)
        c->ranks++;
    if (c->link && (size_t)c->ranks * c->ranks != n && !k->code)
        k->code =
            tu_fail(k->err, TU_EFORMAT, "schedule: link: %zu values are not a square", n);
}

/* A key that is none of a cost's would be a time that nobody takes. */
static void known_keys(struct tui_keys *k, const json_t *o, bool stages)
{
    static const char *const other[] = {
        "unit", "scale", "FB", "CF", "CB", "mem_unit", "mem_b", "mem_w", "mem_ckpt", "release",
        "stage_time", "weight", "weight_one", "arrive", "link", "contend", "blocking", "barrier"};
    void *at;
    for (at = json_object_iter((json_t *)o); at && !k->code;
         at = json_object_iter_next((json_t *)o, at)) {
        const char *key = json_object_iter_key(at);
        bool known = false;
        for (unsigned i = 0; i < (stages ? TU_OP_W + 1 : TU_OP_KINDS); i++)
            known = known || !strcmp(key, tu_op_name(i));
        for (size_t i = 0; !stages && i < sizeof other / sizeof *other; i++)
            known = known || !strcmp(key, other[i]);
        if (!known)
            k->code = tu_fail(k->err, TU_EFORMAT, "schedule: %s: '%.40s' is not a key of it",
                              stages ? "stage_time" : "cost", key);
    }
}

static void read_unit(struct tui_keys *k, struct tu_cost *c)
{
    static const char *const unit[] = {"", "ns", "us", "ms", "s"};
    const json_t *v = json_object_get(k->o, "unit");
    const char *text = json_string_value(v);
    size_t i = 0;
    while (text && i < sizeof unit / sizeof *unit && strcmp(text, unit[i]))
        i++;
    if (v && (!text || i == sizeof unit / sizeof *unit) && !k->code)
        k->code = tu_fail(k->err, TU_EFORMAT, "schedule: unit: ns, us, ms or s");
    else if (text && i < sizeof unit / sizeof *unit)
        memcpy(c->unit, unit[i], strlen(unit[i]) + 1);
}

int tui_json_cost_read(struct tu_cost *c, const json_t *o, struct tu_err *err)
{
    struct tui_keys k = {o, err, 0};
    tu_cost_release(c);
    tu_cost_init(c);
    known_keys(&k, o, false);
    known_keys(&k, json_object_get(o, "stage_time"), true);
    c->scale = tui_keys_int(&k, "scale", 1, TUI_TICKS_MAX, 1);
    for (unsigned kind = 0; kind < TU_OP_KINDS; kind++) /* defaults are units */
        c->time[kind] *= c->time[kind] > 0 ? c->scale : 1;
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
    read_unit(&k, c);
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
