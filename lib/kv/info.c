/* SPDX-License-Identifier: Apache-2.0 */
/* info.c: META kv: read, written, and compared before anything is reused. */
#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <string.h>
#include <tensorutils/kv.h>

enum kind { TEXT, COUNT, REAL };
enum use { IDENTITY = 1, PLACE = 2 }; /* what must agree */

static const struct field {
    const char *key;
    enum kind kind;
    size_t at, room;
    unsigned use;
} fields[] = {
#define T(key, member, use)                                                              \
    {key, TEXT, offsetof(struct tu_kv_info, member),                                     \
     sizeof((struct tu_kv_info *)0)->member, use}
#define N(key, member, use) {key, COUNT, offsetof(struct tu_kv_info, member), 0, use}
    T("model", model, IDENTITY),
    T("weights", weights, IDENTITY),
    T("arch", arch, IDENTITY),
    N("n_layer", layers, IDENTITY),
    N("n_kv_head", heads, IDENTITY),
    N("head_dim_k", dim_k, IDENTITY),
    N("head_dim_v", dim_v, IDENTITY),
    T("rope", rope, IDENTITY),
    {"rope_theta", REAL, offsetof(struct tu_kv_info, rope_theta), 0, IDENTITY},
    N("rot", rot, IDENTITY),
    N("window", window, IDENTITY),
    N("tp_rank", tp_rank, PLACE),
    N("tp_size", tp_size, PLACE),
    T("layout", layout, PLACE),
    N("block", block, PLACE),
#undef T
#undef N
};
enum { FIELDS = sizeof fields / sizeof *fields };

static const char *text(const struct tu_kv_info *i, const struct field *f)
{
    return (const char *)i + f->at;
}

static uint64_t count(const struct tu_kv_info *i, const struct field *f)
{
    uint64_t v;
    memcpy(&v, (const char *)i + f->at, sizeof v);
    return v;
}

static double real(const struct tu_kv_info *i, const struct field *f)
{
    double v;
    memcpy(&v, (const char *)i + f->at, sizeof v);
    return v;
}

void tu_kv_info_init(struct tu_kv_info *i)
{
    *i = (struct tu_kv_info){.rope = "post", .tp_size = 1};
}

static int take(struct tu_kv_info *out, const struct field *f, const json_t *v,
                struct tu_err *err)
{
    char *at = (char *)out + f->at;
    if (f->kind == TEXT) {
        if (!json_is_string(v) || json_string_length(v) >= f->room)
            return tu_fail(err, TU_EMETA,
                           "META kv: '%s': expected a text of at most %zu bytes", f->key,
                           f->room - 1);
        memcpy(at, json_string_value(v), json_string_length(v) + 1);
        return 0;
    }
    if (f->kind == REAL) {
        double d = json_number_value(v);
        if (!json_is_number(v) || !(d >= 0))
            return tu_fail(err, TU_EMETA, "META kv: '%s': expected a number from 0",
                           f->key);
        memcpy(at, &d, sizeof d);
        return 0;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        json_integer_value(v) > INT32_MAX)
        return tu_fail(err, TU_EMETA,
                       "META kv: '%s': expected an integer from 0 to 2^31-1", f->key);
    uint64_t n = (uint64_t)json_integer_value(v);
    memcpy(at, &n, sizeof n);
    return 0;
}

int tu_kv_info_parse(struct tu_kv_info *out, const char *json, size_t n,
                     struct tu_err *err)
{
    struct tu_json_limits limits = {.object = true};
    json_t *o = NULL;
    tu_kv_info_init(out);
    int rc = tu_json_parse(&o, json, n, &limits, err);
    if (rc) {
        tu_err_prefix(err, "META kv");
        return rc;
    }
    for (size_t i = 0; !rc && i < FIELDS; i++) {
        const json_t *v = json_object_get(o, fields[i].key);
        if (v && !json_is_null(v))
            rc = take(out, &fields[i], v, err);
    }
    json_decref(o);
    if (!rc && !out->tp_size)
        out->tp_size = 1;
    if (!rc && out->tp_rank >= out->tp_size)
        rc = tu_fail(err, TU_EMETA,
                     "META kv: tp_rank %" PRIu64 " is not below tp_size %" PRIu64,
                     out->tp_rank, out->tp_size);
    return rc;
}

int tu_kv_info_text(struct tu_buf *out, const struct tu_kv_info *i, struct tu_err *err)
{
    json_t *o = json_object();
    bool bad = !o;
    for (size_t k = 0; !bad && k < FIELDS; k++) {
        const struct field *f = &fields[k];
        const bool known = f->kind == TEXT ? *text(i, f) != 0
                           : f->kind == REAL ? real(i, f) > 0
                                             : count(i, f) != 0;
        if (!known && (f->kind == REAL || (f->kind == TEXT && f->use == PLACE) ||
                       !strcmp(f->key, "block")))
            continue; /* only where it says something */
        json_t *v = f->kind == TEXT   ? json_string(text(i, f))
                    : f->kind == REAL ? json_real(real(i, f))
                                      : json_integer((json_int_t)count(i, f));
        bad = json_object_set_new(o, f->key, v) != 0;
    }
    int rc = bad ? tu_fail(err, TU_ENOMEM, "no memory for META kv")
                 : tu_json_dump(out, o, err);
    json_decref(o);
    return rc;
}

int tu_kv_info_same(const struct tu_kv_info *a, const struct tu_kv_info *b, bool place,
                    struct tu_err *err)
{
    for (size_t k = 0; k < FIELDS; k++) {
        const struct field *f = &fields[k];
        if (f->use == PLACE && !place)
            continue;
        /* A text or number that one side does not know proves nothing; rot and window 0
         * and the place say something. */
        bool always = f->use == PLACE || !strcmp(f->key, "rot");
        if (f->kind == TEXT) {
            const char *x = text(a, f), *y = text(b, f);
            if ((always || (*x && *y)) && strcmp(x, y) != 0)
                return tu_fail(err, TU_EINCOMPLETE, "%s differs: '%.60s' and '%.60s'",
                               f->key, x, y);
        } else if (f->kind == REAL) {
            double x = real(a, f), y = real(b, f);
            if (x > 0 && y > 0 && (x < y || x > y))
                return tu_fail(err, TU_EINCOMPLETE, "%s differs: %g and %g", f->key, x,
                               y);
        } else {
            uint64_t x = count(a, f), y = count(b, f);
            if ((always || (x && y)) && x != y)
                return tu_fail(err, TU_EINCOMPLETE,
                               "%s differs: %" PRIu64 " and %" PRIu64, f->key, x, y);
        }
    }
    return 0;
}

int tu_kv_local_heads(uint64_t heads, uint64_t tp, uint64_t *out, struct tu_err *err)
{
    if (!tp || !heads || (heads >= tp ? heads % tp : tp % heads))
        return tu_fail(err, TU_EUSAGE,
                       "%" PRIu64 " KV heads do not divide over %" PRIu64 " ranks", heads,
                       tp);
    *out = heads >= tp ? heads / tp : 1;
    return 0;
}
