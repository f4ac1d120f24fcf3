/* SPDX-License-Identifier: Apache-2.0 */
/* json.c: what is refused, where the message points, and that memory may end anywhere. */
#include <tensorutils/core.h>
#include <jansson.h>
#include "../inject.h"

static const struct tu_json_limits meta = {.depth = TU_JSON_DEPTH_META, .object = true};
static const struct tu_json_limits whole = {.plain_integers = true};
static const struct tu_json_limits tiny = {.bytes = 8};

#define ANY UINT64_MAX
static const struct {
    const char *text;
    const struct tu_json_limits *limits;
    int rc;
    uint64_t offset;
    const char *msg;
} rows[] = {
    {"{}", NULL, 0, 0, NULL},
    {" [1, -2.5e3, \"x\", null, true] \n", NULL, 0, 0, NULL},
    {"7", NULL, 0, 0, NULL},
    {"9223372036854775807", NULL, 0, 0, NULL},
    {"-9223372036854775808", NULL, 0, 0, NULL},
    {"\"[[[[[[[[[[[[[[[[[[ \\\" [[ 1.5\"", &whole, 0, 0, NULL},
    {"[0, -1, 10]", &whole, 0, 0, NULL},
    {"-0", NULL, 0, 0, NULL},
    {"[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]", NULL, 0, 0, NULL},
    {"{\"a\":[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]}", &meta, 0, 0, NULL},
    {"[1,2,3]", &tiny, 0, 0, NULL},

    {"{\"a\":[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]}", &meta, TU_EMETA, 20, "deeper than 16"},
    {"{\"a\":1,\"b\":{},\"a\":2}", NULL, TU_EMETA, ANY, "duplicate"},
    {"{\"b\":{\"a\":1,\"a\":1}}", NULL, TU_EMETA, ANY, "duplicate"},
    {"[NaN]", NULL, TU_EMETA, ANY, "invalid token"},
    {"[Infinity]", NULL, TU_EMETA, ANY, "invalid token"},
    {"[-Infinity]", NULL, TU_EMETA, ANY, "invalid token"},
    {"[1e999]", NULL, TU_EMETA, ANY, "real number overflow"},
    {"\xef\xbb\xbf{}", NULL, TU_EMETA, 0, "byte order mark"},
    {"{}x", NULL, TU_EMETA, ANY, "end of file expected"},
    {"{} {}", NULL, TU_EMETA, ANY, "end of file expected"},
    {"", NULL, TU_EMETA, 0, "line 1 column 1"},
    {"[1,", NULL, TU_EMETA, ANY, "end of file"},
    {"[1,]", NULL, TU_EMETA, ANY, "unexpected token"},
    {"{\"a\":}", NULL, TU_EMETA, ANY, "unexpected token"},
    {"{'a':1}", NULL, TU_EMETA, ANY, ""},
    {"[01]", NULL, TU_EMETA, ANY, "invalid token"},
    {"[+1]", NULL, TU_EMETA, ANY, "invalid token"},
    {"[.5]", NULL, TU_EMETA, ANY, "invalid token"},
    {"[1.]", NULL, TU_EMETA, ANY, "invalid token"},
    {"[9223372036854775808]", NULL, TU_EMETA, ANY, "too big integer"},
    {"[-9223372036854775809]", NULL, TU_EMETA, ANY, "too big negative integer"},
    {"[\"\xff\"]", NULL, TU_EMETA, ANY, "unable to decode byte 0xff"},
    {"[\"\xed\xa0\x80\"]", NULL, TU_EMETA, ANY, "unable to decode byte 0xed"},
    {"[\"\\ud800\"]", NULL, TU_EMETA, ANY, "Unicode"},
    {"[\"\\u0000\"]", NULL, TU_EMETA, 2, "(byte 2): \\u0000, a NUL in a text"},
    {"{\"a\\\\\\u0000b\":1}", NULL, TU_EMETA, 5, "a NUL"},
    {"[\"\\\\u0000\"]", NULL, 0, 0, NULL},
    {"[\"a\nb\"]", NULL, TU_EMETA, ANY, "newline"},
    {"[\"a\tb\"]", NULL, TU_EMETA, ANY, "control"},
    {"[\n  1,\n  nul]", NULL, TU_EMETA, ANY, "line 3 column 5"},
    {"[]", &meta, TU_EMETA, 0, "no object"},
    {"[1,\n-0]", &whole, TU_EMETA, 4, "line 2 column 1 (byte 4): -0"},
    {"[1.0]", &whole, TU_EMETA, 1, "real number"},
    {"[1e3]", &whole, TU_EMETA, 1, "real number"},
    {"[1,2,3] ", &tiny, 0, 0, NULL},
    {"[1,2,3]  ", &tiny, TU_ELIMIT, ANY, "at most 8"},
};

static int parse(const void *text, struct tu_err *err)
{
    json_t *v = NULL;
    int rc = tu_json_parse(&v, text, strlen(text), NULL, err);
    inject_add("v", v != NULL);
    json_decref(v);
    return rc;
}

static int copy(const void *text, struct tu_err *err)
{
    json_t *v = json_loads("{\"a\":[1,{\"b\":2.5}],\"c\":\"d\"}", 0, NULL), *w = NULL;
    int rc = v ? tu_json_copy(&w, v, err) : tu_fail(err, TU_ENOMEM, "the first");
    (void)text;
    inject_add("same", json_equal(v, w) ? 4 : 0);
    json_decref(v);
    json_decref(w);
    return rc;
}

static void without_memory(const char *text, bool sticky)
{
    inject_memory(&(struct inject){.name = text, .run = parse, .arg = text, .sticky = sticky});
}

int main(void)
{
    struct tu_err err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *v = NULL;
        err.msg[0] = '\0';
        int rc =
            tu_json_parse(&v, rows[i].text, strlen(rows[i].text), rows[i].limits, &err);
        eq_int(rc, rows[i].rc, "row %zu: code", i);
        if (rc)
            ok(strstr(err.msg, rows[i].msg), "row %zu: %s", i, err.msg);
        if (rc && rows[i].offset != ANY)
            eq_u64(err.offset, rows[i].offset, "row %zu: offset", i);
        json_decref(v);
    }
    json_t *v = NULL;
    eq_int(tu_json_parse(&v, "[1]\0", 4, NULL, &err), TU_EMETA, "a NUL after the value");
    ok(!tu_json_parse(&v, "{\"n\":9007199254740993}", 22, NULL, &err), "2^53+1");
    ok(json_integer_value(json_object_get(v, "n")) == INT64_C(9007199254740993),
       "is exact");
    json_decref(v);

    char deep[401];
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    eq_int(tu_json_parse(&v, deep, 130, NULL, &err), TU_EMETA, "depth 65 by default");
    eq_u64(err.offset, 64, "stops at the bracket");
    memset(deep, '[', 200);
    memset(deep + 200, ']', 200);
    eq_int(tu_json_parse(&v, deep, 400, &(struct tu_json_limits){.depth = 200}, &err), 0,
           "depth 200 when asked");
    json_decref(v);

    /* Jansson's token buffer grows from 16 bytes: texts that make it grow. */
    static const char *const texts[] = {
        "[1234567890123456789, 1.2345678901234567e-10, 12345678901234.5e3, "
        "123456789012345e1]",
        "[1.234567890123456789012345678901234567890123e5, 0.1]",
        "{\"0123456789012345678901234567890123456789012345678901234567890123456789\": "
        "[true]}",
        "[\"0123456789012345678901234567890123456789012345678901234567890123456789\\n\"]",
        "[\"01234567890123456789012345678901234567890123456789012345678901\", \"a\"]",
        "[\"0123456789012345678901234567890\", \"0123456789012345\", 1e5]",
        "{\"a\":{\"b\":[1,2.5,\"c\",null,true,false]},\"d\":{},\"e\":[],\"f\":1,\"g\":2,"
        "\"h\":3,"
        "\"i\":1,\"j\":2,\"k\":3,\"l\":4,\"m\":5}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        without_memory(texts[i], false);
        without_memory(texts[i], true);
    }
    inject_memory(&(struct inject){.name = "a copy", .run = copy});
    return tap_done();
}
