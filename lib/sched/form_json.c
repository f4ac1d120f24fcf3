/* SPDX-License-Identifier: Apache-2.0 */
/* form_json.c: the document that the subcommands exchange, tensorutils.schedule/1.
 *
 * {"schema":…,"name":…,"p":…,"m":…,"place":[…],"cost":{…},"ranks":[
 * ["0F0",…],      one line for each rank
 * …]}
 * The lists of operations are long and simple: they are read here, directly; what is
 * around them is left to the JSON parser. The costs: form_json_cost.c. */
#include <jansson.h>
#include <string.h>
#include "sched/form_json.h"
#include "sched/load.h"

#define SCHEMA "tensorutils.schedule/1"

static const char *const weights_names[] = {"stashed", "vertical", "double"};
static const char *const deps_names[] = {"train", "forward", "blocking", "diffusion"};

/* Writing
 * -------------------------------------------------------------------------------- */

int tui_json_head(struct tu_buf *out, const struct tu_sched *s, const struct tu_cost *c,
                  struct tu_err *err)
{
        struct tu_jw w;
    tu_jw_begin(&w, out);
    tu_jw_open(&w, NULL, '{');
    tu_jw_str(&w, "schema", SCHEMA);
    if (*s->name)
        tu_jw_str(&w, "name", s->name);
    tu_jw_u64(&w, "p", s->ranks);
    tu_jw_u64(&w, "m", s->microbatches);
    tu_jw_u64(&w, "stages", s->stages);
    if (s->pipelines > 1)
        tu_jw_u64(&w, "pipelines", s->pipelines);
    if (s->slices > 1)
        tu_jw_u64(&w, "slices", s->slices);
    if (s->deps != TU_DEPS_TRAIN)
        tu_jw_str(&w, "deps", deps_names[s->deps]);
    if (s->deps == TU_DEPS_DIFFUSION) {
        tu_jw_u64(&w, "warm", s->warm);
        tu_jw_u64(&w, "stride", s->stride);
    }
    if (s->async) {
        tu_jw_bool(&w, "async", true);
        if (s->weights != TU_WEIGHTS_STASHED)
            tu_jw_str(&w, "weights", weights_names[s->weights]);
        if (s->accumulate > 1)
            tu_jw_u64(&w, "accumulate", s->accumulate);
    }
    tu_jw_open(&w, "place", '[');
    for (size_t k = 0; k < (size_t)s->stages * s->pipelines; k++)
        tu_jw_u64(&w, NULL, s->place[k]);
    tu_jw_close(&w, ']');
    tui_json_cost_write(&w, c);
    tu_jw_close(&w, '}');
    return tu_jw_end(&w, err);
}

static int write_json(struct tu_buf *out, const struct tu_sched *s,
                      const struct tu_cost *c, const struct tu_sim *sim,
                      struct tu_err *err)
{
    (void)sim;
    int rc = tui_json_head(out, s, c, err);
    if (!rc) {
        out->n--; /* the brace: the lists follow, one line each */
        rc = tu_buf_text(out, ",\"ranks\":[\n", err);
    }
    for (uint32_t r = 0; r < s->ranks && !rc; r++) {
        rc = tu_buf_text(out, "[", err);
        for (size_t i = 0; i < s->n[r] && !rc;) {
            unsigned used = 1;
            rc = tu_buf_text(out, i ? ",\"" : "\"", err);
            if (!rc)
                rc = tui_cell_text(out, &s->op[r][i], s->slices, &used, err);
            if (!rc)
                rc = tu_buf_text(out, "\"", err);
            i += used;
        }
        if (!rc)
            rc = tu_buf_text(out, r + 1 < s->ranks ? "],\n" : "]\n", err);
    }
    return rc ? rc : tu_buf_text(out, "]}\n", err);
}

/* Reading
 * -------------------------------------------------------------------------------- */

static const char *skip_blank(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

/* Behind a string that begins at p. */
static const char *skip_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++)
        if (*p == '\\')
            p++;
    return p < end ? p + 1 : end;
}

/* The value of the outermost object's key "ranks": where its '[' stands; NULL if none. */
static const char *find_ranks(const char *text, const char *end)
{
    int depth = 0;
    for (const char *p = text; p < end;) {
        if (*p == '"') {
            const char *after = skip_string(p, end);
            const char *colon = skip_blank(after, end);
            if (depth == 1 && after - p == 7 && !memcmp(p, "\"ranks\"", 7) &&
                colon < end && *colon == ':') {
                colon = skip_blank(colon + 1, end);
                return colon < end && *colon == '[' ? colon : NULL;
            }
            p = after;
            continue;
        }
        depth += *p == '{' || *p == '[' ? 1 : *p == '}' || *p == ']' ? -1 : 0;
        p++;
    }
    return NULL;
}

/* Behind the array that begins at p, end when it does not close; *n: the arrays in it. */
static const char *skip_array(const char *p, const char *end, uint32_t *n)
{
    int depth = 0;
    for (*n = 0; p < end; p++) {
        if (*p == '"')
            p = skip_string(p, end) - 1;
        else if (*p == '[')
            *n += ++depth == 2;
        else if (*p == ']' && --depth == 0)
            return p + 1;
    }
    return end;
}

static int expected(struct tu_err *err, const char *text, const char *p, const char *what)
{
    return tu_fail_at(err, TU_EMETA, (uint64_t)(p - text),
                      "schedule: ranks, byte %zu: %s", (size_t)(p - text), what);
}

/* The array of arrays of strings at p; *after: behind it. */
static int lists(struct tui_load *l, const char *text, const char *p, const char *end,
                 const char **after, struct tu_err *err)
{
    uint32_t rank = 0;
    for (p = skip_blank(p + 1, end); p < end && *p != ']'; rank++) {
        size_t column = 0;
        if (*p != '[')
            return expected(err, text, p, "a list of operations is expected");
        p = skip_blank(p + 1, end);
        while (p < end && *p != ']') {
            const char *close = p + 1;
            if (*p != '"')
                return expected(err, text, p, "an operation in quotes is expected");
            while (close < end && *close != '"' && *close != '\\')
                close++;
            if (close >= end || *close != '"')
                return expected(err, text, p, "not an operation");
            tui_load_cell(l, rank, column++, p + 1, (size_t)(close - p - 1));
            if (l->b.code)
                return l->b.code;
            p = skip_blank(close + 1, end);
            if (p < end && *p == ',')
                p = skip_blank(p + 1, end);
            else if (p < end && *p != ']')
                return expected(err, text, p, "a comma or ] is expected");
        }
        if (p >= end)
            break;
        p = skip_blank(p + 1, end);
        if (p < end && *p == ',')
            p = skip_blank(p + 1, end);
        else if (p < end && *p != ']')
            return expected(err, text, p, "a comma or ] is expected");
    }
    if (p >= end)
        return expected(err, text, p, "ends inside the lists");
    *after = p + 1;
    return 0;
}

/* Everything around the lists. */
static int read_head(const json_t *o, struct tu_sched_hint *hint, struct tu_cost *c,
                     struct tu_err *err)
{
    struct tui_keys k = {o, err, 0};
    const char *schema = json_string_value(json_object_get(o, "schema"));
    if (!schema || strcmp(schema, SCHEMA))
        return tu_fail(err, TU_EFORMAT, "schedule: schema '%.40s': %s is expected",
                       schema ? schema : "", SCHEMA);
    hint->ranks = (uint32_t)tui_keys_int(&k, "p", 1, TU_SCHED_MAX, hint->ranks);
    hint->stages = (uint32_t)tui_keys_int(&k, "stages", 1, TU_SCHED_MAX, hint->stages);
    hint->microbatches = (uint32_t)tui_keys_int(&k, "m", 1, TU_SCHED_MAX, hint->microbatches);
    hint->pipelines = (uint32_t)tui_keys_int(&k, "pipelines", 1, 2, hint->pipelines);
    const json_t *cost = json_object_get(o, "cost");
    if (!k.code && cost)
        k.code = tui_json_cost_read(c, cost, err);
    return k.code;
}

static void read_weights(struct tu_sched *s, struct tui_keys *k)
{
    const json_t *v = json_object_get(k->o, "weights");
    s->async = json_is_true(json_object_get(k->o, "async"));
    s->accumulate = (uint32_t)tui_keys_int(k, "accumulate", 1, TU_SCHED_MAX, 1);
    for (unsigned i = 0; v && i <= TU_WEIGHTS_DOUBLE; i++)
        if (json_is_string(v) && !strcmp(json_string_value(v), weights_names[i])) {
            s->weights = (enum tu_weights)i;
            return;
        }
    if (v && !k->code)
        k->code = tu_fail(k->err, TU_EFORMAT, "schedule: weights: %s, %s or %s",
                          weights_names[0], weights_names[1], weights_names[2]);
}

static int read_deps(struct tu_sched *s, const json_t *deps, struct tu_err *err)
{
    const char *name = json_string_value(deps);
    for (unsigned d = 0; name && d < sizeof deps_names / sizeof *deps_names; d++)
        if (!strcmp(name, deps_names[d])) {
            s->deps = (enum tu_deps)d;
            return 0;
        }
    return !deps ? 0
                 : tu_fail(err, TU_EFORMAT,
                           "schedule: deps: train, forward, blocking or diffusion is "
                           "expected");
}

/* What only the finished schedule can take: placement, slices, name, kind of dependence.
 */
static int apply(struct tu_sched *s, const json_t *o, struct tu_err *err)
{
    struct tui_keys k = {o, err, 0};
    const json_t *place = json_object_get(o, "place");
    const json_t *named = json_object_get(o, "name");
    const char *name = json_string_value(named);
    size_t all = (size_t)s->stages * s->pipelines;
    if (place && json_array_size(place) != all)
        return tu_fail(err, TU_EFORMAT, "schedule: place: %zu ranks for %zu stages",
                       json_array_size(place), all);
    for (size_t i = 0; place && i < all; i++) {
        const json_t *v = json_array_get(place, i);
        json_int_t r = json_is_integer(v) ? json_integer_value(v) : -1;
        if (r < 0 || r >= s->ranks)
            return tu_fail(err, TU_EFORMAT, "schedule: place[%zu]: no such rank", i);
        s->place[i] = (uint32_t)r;
    }
    if (named && (!name || tu_name_check(name, strlen(name)) < strlen(name)))
        return tu_fail(err, TU_EFORMAT,
                       "schedule: name: a text without control bytes is expected");
    if (name && strlen(name) < sizeof s->name)
        memcpy(s->name, name, strlen(name) + 1);
    s->slices = (uint32_t)tui_keys_int(&k, "slices", s->slices, 1024, s->slices);
    read_weights(s, &k);
    if (!k.code)
        k.code = read_deps(s, json_object_get(o, "deps"), err);
    if (s->deps == TU_DEPS_DIFFUSION) {
        s->stride = (uint32_t)tui_keys_int(&k, "stride", 1, 2, 1);
        s->warm = (uint32_t)tui_keys_int(&k, "warm", 1, s->microbatches, 1);
        if (!k.code && (s->stages < s->stride || s->stages > TUI_RANKS_ALL ||
                        s->pipelines > 1 || s->slices > 1))
            k.code = tu_fail(err, TU_EFORMAT,
                             "schedule: a diffusion has one pipeline of at most %u stages",
                             TUI_RANKS_ALL);
    }
    return k.code;
}

int tui_json_with(struct tu_sched **out, struct tu_cost *c, uint32_t ranks,
                  const char *head, size_t n,
                  int (*fill)(struct tui_load *l, const void *ctx, struct tu_err *err),
                  const void *ctx, struct tu_err *err)
{
    struct tu_sched_hint hint = {0};
    struct tui_load l;
    json_t *o = NULL;
    tui_load_begin(&l, ranks, &hint, err);
    int rc = l.b.code ? l.b.code : fill(&l, ctx, err);
    if (!rc)
        rc = tu_json_parse(&o, head, n, &(struct tu_json_limits){.object = true}, err);
    if (!rc)
        rc = read_head(o, &hint, c, err);
    if (!rc && hint.ranks && hint.ranks != ranks)
        rc = tu_fail(err, TU_EFORMAT, "schedule: p is %u but there are %u lists",
                     hint.ranks, ranks);
    l.b.code = l.b.code ? l.b.code : rc;
    rc = tui_load_end(&l, out);
    if (!rc)
        rc = apply(*out, o, err);
    if (!rc && c && (rc = tu_cost_fits(c, *out, err)))
        tu_err_prefix(err, "schedule: cost");
    if (rc) {
        tu_sched_free(*out);
        *out = NULL;
    }
    json_decref(o);
    return rc;
}

/* Where the lists stand in the text. */
struct span {
    const char *text, *at, *end, *after;
};

static int fill_lists(struct tui_load *l, const void *ctx, struct tu_err *err)
{
    const struct span *s = ctx;
    const char *after;
    return lists(l, s->text, s->at, s->end, &after, err);
}

static int read_json(struct tu_sched **out, struct tu_cost *c, const char *text, size_t n,
                     const struct tu_sched_hint *hint, struct tu_err *err)
{
    struct span s = {text, find_ranks(text, text + n), text + n, NULL};
    struct tu_buf rest = {0};
    *out = NULL;
    (void)hint; /* the document says it all */
    if (!s.at)
        return tu_fail(err, TU_EFORMAT, "schedule: the list \"ranks\" is missing");
    uint32_t ranks;
    s.after = skip_array(s.at, s.end, &ranks);
    if (!ranks || ranks > TU_SCHED_MAX)
        return tu_fail(err, TU_EFORMAT, "schedule: %u ranks: not in 1 … %u", ranks,
                       TU_SCHED_MAX);
    int rc = tu_buf_add(&rest, text, (size_t)(s.at - text), err);
    if (!rc)
        rc = tu_buf_text(&rest, "[]", err);
    if (!rc)
        rc = tu_buf_add(&rest, s.after, (size_t)(s.end - s.after), err);
    if (!rc)
        rc = tui_json_with(out, c, ranks, rest.data, rest.n, fill_lists, &s, err);
    tu_buf_release(&rest);
    return rc;
}

static bool sniff(const char *text, size_t n)
{
    const char *p = skip_blank(text, text + n);
    return p < text + n && *p == '{';
}

const struct tu_sched_form tui_form_json = {
    "json",     "the document that pipe-sched's subcommands exchange",
    sniff,      read_json,
    write_json, false, "json", false};
