/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c: request traces read: Mooncake's and Qwen-Bailian's JSON lines, lengths alone,
 * Azure's table. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorutils/kv/replay.h>

enum { LINE_MAX_BYTES = 64 << 20 };

const struct tu_kv_trace_form tu_kv_trace_forms[] = {
    {"mooncake", "JSON lines: timestamp (ms), input_length, output_length, hash_ids of 512",
     512, 1000},
    {"qwen", "Qwen-Bailian's JSON lines: timestamp (s), hash_ids of 16", 16, 1000000},
    {"lengths", "JSON lines of input_length and output_length (ShareGPT and the like)", 0,
     1000},
    {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens", 0, 1},
    {NULL, NULL, 0, 0},
};
enum { MOONCAKE, QWEN, LENGTHS, AZURE };

struct reading {
    struct tu_kv_trace *t;
    const struct tu_kv_trace_form *form;
    struct tu_names *names; /* of ids */
    struct tu_arena *texts;
    const char *file;
    uint64_t line, warn_max;
    int64_t last;
    const struct tu_job *job;
    struct tu_names *sessions;
    int64_t *session_at;
    size_t sessions_n, sessions_cap;
};

static void warn(struct reading *r, const char *what, int64_t v)
{
    if (r->t->warnings++ < r->warn_max)
        tu_job_warn(r->job, "%s: line %" PRIu64 ": %s (%" PRId64 ")", r->file, r->line, what,
                    v);
}

static int bad(const struct reading *r, const char *what, struct tu_err *err)
{
    return tu_fail(err, TU_EFORMAT, "line %" PRIu64 ": %s", r->line, what);
}

/* Ids ---------------------------------------------------------------------------------- */

static int add_id(struct reading *r, const json_t *v, uint32_t parent, uint32_t depth,
                  uint32_t *out, struct tu_err *err)
{
    struct tu_kv_trace *t = r->t;
    char number[32];
    const char *text = json_string_value(v);
    if (json_is_integer(v)) {
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        text = number;
    }
    if (!text)
        return bad(r, "hash_ids: expected integers or texts", err);
    *out = tu_names_get(r->names, text);
    if (*out != TU_NAMES_NONE) {
        if (t->parent[*out] != parent)
            warn(r, "an id stands under two parents", *out);
        return 0;
    }
    if (t->distinct == UINT32_MAX - 1)
        return bad(r, "too many ids", err);
    if (t->distinct == t->tree_cap) {
        size_t cap = t->tree_cap ? 2 * t->tree_cap : 1024;
        uint32_t *p = tu_realloc(t->parent, cap, sizeof *p, err);
        if (p)
            t->parent = p;
        uint32_t *d = p ? tu_realloc(t->depth, cap, sizeof *d, err) : NULL;
        if (!d)
            return TU_ENOMEM;
        t->depth = d;
        t->tree_cap = cap;
    }
    t->parent[t->distinct] = parent;
    t->depth[t->distinct] = depth;
    *out = t->distinct++;
    const char *kept = tu_arena_text(r->texts, text, strlen(text), err);
    return kept ? tu_names_put(r->names, kept, *out, err) : TU_ENOMEM;
}

static int add_ids(struct reading *r, const json_t *list, struct tu_kv_request *q,
                   struct tu_err *err)
{
    struct tu_kv_trace *t = r->t;
    size_t n = json_array_size(list);
    uint32_t parent = UINT32_MAX;
    int rc = 0;
    q->first = t->ids;
    q->blocks = n;
    for (size_t i = 0; !rc && i < n; i++) {
        uint32_t id = 0;
        rc = TU_GROW(&t->id, &t->ids_cap, t->ids, err);
        if (!rc)
            rc = add_id(r, json_array_get(list, i), parent, (uint32_t)i, &id, err);
        if (!rc)
            t->id[t->ids++] = parent = id;
    }
    if (!rc && n != tu_ceil_div(q->input, t->block))
        warn(r, n ? "the count of hash_ids is not input_length over the block"
                  : "hash_ids is empty and input_length is not 0",
             (int64_t)n);
    return rc;
}

/* Lines -------------------------------------------------------------------------------- */

static int length(struct reading *r, const json_t *o, const char *key, bool needed,
                  uint64_t *out, struct tu_err *err)
{
    const json_t *v = json_object_get(o, key);
    *out = 0;
    if (!v || json_is_null(v))
        return needed ? bad(r, "no input_length", err) : 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        json_integer_value(v) > INT32_MAX)
        return bad(r, "a length is no integer from 0 to 2^31-1", err);
    *out = (uint64_t)json_integer_value(v);
    return 0;
}

/* The time of a request: its timestamp, or a delay after its session's one before. */
static int time_of(struct reading *r, const json_t *o, int64_t *out, struct tu_err *err)
{
    const json_t *v = json_object_get(o, "timestamp"), *d = json_object_get(o, "delay");
    const char *session = json_string_value(json_object_get(o, "session_id"));
    int64_t tick = r->form->tick;
    *out = r->last;
    if (json_is_real(v)) /* seconds, whatever the form */
        *out = (int64_t)llround(fmin(fmax(json_real_value(v), 0), 1e12) * 1e6);
    else if (json_is_integer(v) && json_integer_value(v) >= 0 &&
             json_integer_value(v) < INT64_MAX / 4 / tick)
        *out = (int64_t)json_integer_value(v) * tick;
    else if (v && !json_is_null(v))
        return bad(r, "timestamp is no time", err);
    else if (d && json_is_number(d) && fabs(json_number_value(d)) < 1e9)
        *out = llround(json_number_value(d) * (double)tick);
    if (!session)
        return 0;
    uint32_t k = tu_names_get(r->sessions, session);
    if (k == TU_NAMES_NONE) {
        const char *kept = tu_arena_text(r->texts, session, strlen(session), err);
        int rc = kept ? TU_GROW(&r->session_at, &r->sessions_cap, r->sessions_n, err)
                      : TU_ENOMEM;
        if (rc)
            return rc;
        k = (uint32_t)r->sessions_n++;
        r->session_at[k] = 0;
        if ((rc = tu_names_put(r->sessions, kept, k, err)))
            return rc;
    }
    if (!v && d)
        *out += r->session_at[k];
    r->session_at[k] = *out;
    return 0;
}

static int add_request(struct reading *r, struct tu_kv_request *q, struct tu_err *err)
{
    struct tu_kv_trace *t = r->t;
    int rc = TU_GROW(&t->request, &t->cap, t->n, err);
    if (rc)
        return rc;
    if (!q->input)
        warn(r, "no input tokens", 0);
    if (q->at < r->last)
        warn(r, "time goes back, microseconds", q->at - r->last);
    r->last = q->at;
    q->line = r->line;
    t->request[t->n++] = *q;
    return 0;
}

static int json_line(struct reading *r, const char *text, size_t n, struct tu_err *err)
{
    struct tu_json_limits limits = {.bytes = LINE_MAX_BYTES, .object = true};
    struct tu_kv_request q = {0};
    json_t *o;
    int rc = tu_json_parse(&o, text, n, &limits, err);
    if (rc) {
        tu_err_prefix(err, "line %" PRIu64, r->line);
        return rc;
    }
    rc = length(r, o, "input_length", true, &q.input, err);
    if (!rc)
        rc = length(r, o, "output_length", false, &q.output, err);
    if (!rc)
        rc = time_of(r, o, &q.at, err);
    const json_t *ids = json_object_get(o, "hash_ids");
    if (!rc && ids && r->t->block) {
        r->t->hashed = true;
        rc = json_is_array(ids) ? add_ids(r, ids, &q, err)
                                : bad(r, "hash_ids is no list", err);
    }
    json_decref(o);
    return rc ? rc : add_request(r, &q, err);
}

/* Days since 1970 of a date of the proleptic Gregorian calendar. */
static int64_t days(int y, int m, int d)
{
    y -= m <= 2;
    int era = (y >= 0 ? y : y - 399) / 400, yoe = y - era * 400;
    int doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return (int64_t)era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static int azure_line(struct reading *r, char *text, struct tu_err *err)
{
    struct tu_kv_request q = {0};
    int y, mo, d, h, mi, used = 0;
    double s;
    unsigned long long in, out;
    if (sscanf(text, "%4d-%2d-%2d %2d:%2d:%lf,%llu,%llu%n", &y, &mo, &d, &h, &mi, &s, &in,
               &out, &used) != 8 ||
        text[used] || !(s >= 0 && s < 61) || in > INT32_MAX || out > INT32_MAX ||
        mo < 1 || mo > 12)
        return bad(r, "expected TIMESTAMP,ContextTokens,GeneratedTokens", err);
    q.at = ((days(y, mo, d) * 24 + h) * 60 + mi) * 60000000 + llround(s * 1e6);
    q.input = in;
    q.output = out;
    if (r->t->n == 0)
        r->last = q.at;
    return add_request(r, &q, err);
}

static int one_line(struct reading *r, char *text, size_t n, struct tu_err *err)
{
    while (n && strchr(" \t\r\n", text[n - 1]))
        text[--n] = 0;
    if (n == 0)
        return 0;
    if (!r->form)
        r->form = &tu_kv_trace_forms[!strncmp(text, "TIMESTAMP", 9)        ? AZURE
                                     : strstr(text, "\"parent_chat_id\"") ? QWEN
                                     : strstr(text, "\"hash_ids\"")       ? MOONCAKE
                                                                          : LENGTHS];
    if (!r->t->block)
        r->t->block = r->form->block;
    if (r->form == &tu_kv_trace_forms[AZURE])
        return r->line == 1 && *text == 'T' ? 0 : azure_line(r, text, err);
    return json_line(r, text, n, err);
}

static int lines(struct reading *r, struct tu_in *in, struct tu_err *err)
{
    struct tu_buf b = {.max = LINE_MAX_BYTES};
    size_t got = 1, from = 0;
    int rc = 0;
    while (!rc && got) {
        char *p = tu_buf_room(&b, 1 << 16, err);
        rc = p ? tu_in_read(in, p, 1 << 16, &got, err) : err->code;
        if (rc)
            break;
        b.n += got;
        for (char *end; !rc && (end = memchr(b.data + from, '\n', b.n - from));
             from = (size_t)(end - b.data) + 1) {
            *end = 0;
            r->line++;
            rc = one_line(r, b.data + from, (size_t)(end - b.data) - from, err);
        }
        memmove(b.data, b.data + from, b.n - from);
        b.n -= from;
        from = 0;
    }
    if (!rc && b.n) {
        b.data[b.n] = 0;
        r->line++;
        rc = one_line(r, b.data, b.n, err);
    }
    tu_buf_release(&b);
    return rc;
}

int tu_kv_trace_read(struct tu_kv_trace *out, struct tu_in *in,
                     const struct tu_kv_trace_form *form, uint32_t block,
                     uint64_t warn_max, const struct tu_job *job, struct tu_err *err)
{
    struct reading r = {.t = out, .form = form, .job = job, .warn_max = warn_max,
                        .file = tu_in_name(in)};
    *out = (struct tu_kv_trace){.block = block};
    r.names = tu_names_new(err);
    r.sessions = r.names ? tu_names_new(err) : NULL;
    r.texts = r.sessions ? tu_arena_new(err) : NULL;
    int rc = r.texts ? lines(&r, in, err) : TU_ENOMEM;
    if (!rc && !out->n)
        rc = tu_fail(err, TU_EEMPTY, "a trace without requests");
    if (rc)
        tu_err_prefix(err, "%s", tu_in_name(in));
    out->format = r.form ? r.form->name : NULL;
    tu_names_free(r.names);
    tu_names_free(r.sessions);
    tu_arena_free(r.texts);
    tu_free(r.session_at);
    if (rc)
        tu_kv_trace_release(out);
    return rc;
}

void tu_kv_trace_release(struct tu_kv_trace *t)
{
    tu_free(t->request);
    tu_free(t->id);
    tu_free(t->parent);
    tu_free(t->depth);
    *t = (struct tu_kv_trace){0};
}

void tu_kv_trace_waste(const struct tu_kv_trace *t, uint64_t block, uint64_t reserve,
                       struct tu_kv_waste *out)
{
    double slots = 0, power = 0;
    *out = (struct tu_kv_waste){0};
    for (size_t i = 0; i < t->n; i++) {
        uint64_t n = t->request[i].input + t->request[i].output, p = 1;
        while (p < n)
            p *= 2;
        out->tokens += n;
        out->longest = tu_max(out->longest, n);
        out->over += n > reserve;
        slots += (double)(tu_ceil_div(n, block) * block);
        power += (double)p;
    }
    out->paged = slots > 0 ? 1 - (double)out->tokens / slots : 0;
    out->power = power > 0 ? (double)out->tokens / power : 0;
    out->reserved = t->n ? (double)out->tokens / ((double)reserve * (double)t->n) : 0;
}
