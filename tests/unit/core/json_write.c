/* SPDX-License-Identifier: Apache-2.0 */
/* json_write.c: canonical text against what Python 3.11's json.dumps(sort_keys=True,
 * separators=(",", ":"), ensure_ascii=False) printed, and the writer of reports. */
#include <tensorutils/core.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include "../inject.h"

static const struct { double v; const char *text; } reals[] = {
    {0.1, "0.1"}, {1e16, "1e+16"}, {1e-5, "1e-05"}, {5.0, "5.0"}, {1e22, "1e+22"},
    {0x1p53, "9007199254740992.0"}, {-0.0, "-0.0"}, {0.0, "0.0"}, {0x1p-1074, "5e-324"},
    {DBL_MAX, "1.7976931348623157e+308"}, {DBL_MIN, "2.2250738585072014e-308"},
    {123456789.125, "123456789.125"}, {1e15, "1000000000000000.0"}, {0.0001, "0.0001"},
    {2.5e-7, "2.5e-07"}, {1.0 / 3, "0.3333333333333333"}, {100.0, "100.0"},
    {1e21, "1e+21"},
    {0x1p-44, "5.684341886080802e-14"}, /* a power of two: not the nearest 16 digits */
    {-1.5, "-1.5"}, {0.3, "0.3"}, {0.1 + 0.2, "0.30000000000000004"}, {1e100, "1e+100"},
    {9999999999999998.0, "9999999999999998.0"}, {0.00012345, "0.00012345"},
    {1e23, "1e+23"}, {-2.2e-308, "-2.2e-308"},
};

static const struct { const char *from, *to; } values[] = {
    {"{\"\\u00e9\": 1, \"z\": \"\\u0001\\u001f\\u007f\\\"\\\\/\\b\\f\\n\\r\\t\", \"a\": "
     "{\"\": [], \"\\ud800\\udc00\": {}, \"\\uffff\": null, \"B\": true}, \"A\": false, "
     "\"aa\": \"\\u20ac \\ud83d\\ude00\"}",
     "{\"A\":false,\"a\":{\"\":[],\"B\":true,\"\xef\xbf\xbf\":null,"
     "\"\xf0\x90\x80\x80\":{}},\"aa\":\"\xe2\x82\xac \xf0\x9f\x98\x80\","
     "\"z\":\"\\u0001\\u001f\x7f\\\"\\\\/\\b\\f\\n\\r\\t\","
     "\"\xc3\xa9\":1}"},
    {"[0.1, 1e16, 1e-5, 5.0, 1e22, 9007199254740993, -0.0, -0, 1E400]", NULL},
    {"[0.1, 1e16, 1e-5, 5.0, 1e22, 9007199254740993, -0.0, 123456789.125e0]",
     "[0.1,1e+16,1e-05,5.0,1e+22,9007199254740993,-0.0,123456789.125]"},
    {"[-9223372036854775808, 9223372036854775807]",
     "[-9223372036854775808,9223372036854775807]"},
    {"{\"shard\": {\"global\":[2,4], \"offset\":[1,0], \"mesh\":[[\"tp\",2]], "
     "\"coord\":[1], \"place\":[[\"tp\"],[]]}}",
     "{\"shard\":{\"coord\":[1],\"global\":[2,4],\"mesh\":[[\"tp\",2]],\"offset\":[1,0],"
     "\"place\":[[\"tp\"],[]]}}"},
    {"\"\"", "\"\""}, {"{}", "{}"},
};

static void report(struct tu_buf *b)
{
    struct tu_err err;
    struct tu_jw w;
    tu_buf_reset(b);
    tu_jw_begin(&w, b);
    tu_jw_open(&w, NULL, '{');
    tu_jw_str(&w, "schema", "tensorutils.demo/1");
    tu_jw_u64(&w, "n", UINT64_MAX);
    tu_jw_i64(&w, "i", -5);
    tu_jw_open(&w, "list", '[');
    tu_jw_real(&w, NULL, 0.5);
    tu_jw_real(&w, NULL, (double)NAN);
    tu_jw_real(&w, NULL, (double)INFINITY);
    tu_jw_real(&w, NULL, -(double)INFINITY);
    tu_jw_open(&w, NULL, '{');
    tu_jw_close(&w, '}');
    tu_jw_close(&w, ']');
    tu_jw_bool(&w, "yes", true);
    tu_jw_bool(&w, "no", false);
    tu_jw_null(&w, "none");
    tu_jw_str(&w, "text", NULL);
    tu_jw_dims(&w, "shape", (const uint64_t[]){2, 3}, 2);
    tu_jw_dims(&w, "scalar", NULL, 0);
    tu_jw_raw(&w, "raw", "{\"a\":1}");
    tu_jw_close(&w, '}');
    eq_int(tu_jw_end(&w, &err), 0, "a report");
    eq_str(b->data,
           "{\"schema\":\"tensorutils.demo/1\",\"n\":18446744073709551615,\"i\":-5,"
           "\"list\":[0.5,\"nan\",\"inf\",\"-inf\",{}],\"yes\":true,\"no\":false,"
           "\"none\":null,\"text\":null,\"shape\":[2,3],\"scalar\":[],\"raw\":{\"a\":1}}",
           "keys as given");

    tu_jw_begin(&w, b);
    tu_jw_open(&w, NULL, '[');
    eq_int(tu_jw_end(&w, &err), TU_EBUG, "an open bracket is noticed");
    struct tu_buf small = {.max = 8};
    tu_jw_begin(&w, &small);
    tu_jw_open(&w, NULL, '[');
    tu_jw_str(&w, NULL, "longer than eight bytes");
    tu_jw_close(&w, ']');
    eq_int(tu_jw_end(&w, &err), TU_ELIMIT, "the first failure sticks");
    tu_buf_release(&small);
}

static int dump(const void *v, struct tu_err *err)
{
    struct tu_buf out = {0};
    int rc = tu_json_dump(&out, v, err);
    inject_add(out.data, rc ? 0 : out.n);
    tu_buf_release(&out);
    return rc;
}

/* Texts that JSON cannot hold are metadata against the rules, not the end of memory. */
static void foreign(void)
{
    static const struct {
        const char *text;
        size_t n;
        const char *msg;
    } bad[] = {
        {"weig\xe8t", 6, "'weig?t' is no UTF-8: byte 4"},
        {"a\xed\xa0\x80", 4, "is no UTF-8: byte 1"},
        {"a\0b", 3, "has a NUL: byte 1"},
    };
    struct tu_err err;
    json_t *v = NULL, *o = json_object(), *list = json_array();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        eq_int(tu_json_text(&v, bad[i].text, bad[i].n, &err), TU_EMETA, "text %zu", i);
        ok(!v && strstr(err.msg, bad[i].msg), "text %zu: %s", i, err.msg);
        eq_int(tu_json_set(o, bad[i].text, bad[i].n, json_true(), &err), TU_EMETA, "key %zu",
               i);
        ok(strstr(err.msg, bad[i].msg), "key %zu: %s", i, err.msg);
    }
    ok(!tu_json_text(&v, "", 0, &err) && !tu_json_append(list, v, &err), "an empty text");
    ok(!tu_json_set(o, "\xc3\xa9", 2, json_incref(list), &err), "a key of two bytes");
    eq_int(tu_json_set(o, "k", 1, NULL, &err), TU_ENOMEM, "no value: memory has ended");
    eq_int(tu_json_append(list, NULL, &err), TU_ENOMEM, "the same in a list");
    eq_int((long)json_object_size(o), 1, "what failed is not there");
    json_decref(list);
    json_decref(o);
}

int main(void)
{
    struct tu_buf b = {0};
    struct tu_err err;
    foreign();
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        char text[32];
        tu_json_real(reals[i].v, text);
        eq_str(text, reals[i].text, "real %s", reals[i].text);
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        json_t *v = NULL;
        tu_buf_reset(&b);
        int rc = tu_json_parse(&v, values[i].from, strlen(values[i].from), NULL, &err);
        if (!values[i].to) {
            eq_int(rc, TU_EMETA, "value %zu is refused", i);
            continue;
        }
        ok(!rc && !tu_json_dump(&b, v, &err), "value %zu", i);
        eq_str(b.data, values[i].to, "value %zu: text", i);
        json_decref(v);
    }
    json_t *v = json_pack("{s:s%, s:f}", "nul", "a\0b", (size_t)3, "r", 2.0);
    tu_buf_reset(&b);
    ok(v && !tu_json_dump(&b, v, &err), "a value made by a program");
    eq_str(b.data, "{\"nul\":\"a\\u0000b\",\"r\":2.0}", "with a NUL in a string");
    json_decref(v);

    tu_buf_reset(&b);
    ok(!tu_json_string(&b, "a\xff\xfe" "b\xe2\x82", 6, &err), "ill-formed bytes");
    eq_str(b.data, "\"a\xef\xbf\xbd\xef\xbf\xbd" "b\xef\xbf\xbd\xef\xbf\xbd\"",
           "become replacement characters");
    report(&b);

    v = json_pack("{s:[i,i,{s:b}],s:n,s:f}", "list", 1, 2, "deep", 1, "none", "real",
                  0.1);
    inject_memory(&(struct inject){.name = "a dump", .run = dump, .arg = v});
    json_decref(v);
    tu_buf_release(&b);
    return tap_done();
}
