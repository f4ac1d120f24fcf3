/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of safetensors: bytes computed by hand, every rule of the reference validator. */
#include "fix.h"

#define FORMAT (tu_format_find("safetensors"))

/* A file of a header text and `data` zero bytes. */
static const char *make(const char *head, size_t data)
{
    static char file[1 << 16];
    size_t n = strlen(head);
    memset(file, 0, sizeof file);
    tu_put64(file, n);
    memcpy(file + 8, head, n);
    return fix_write("bad.safetensors", file, 8 + n + data);
}

static const struct bad {
    const char *head;
    size_t data;
    int code;
    const char *words, *what;
} bads[] = {
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, TU_ETRUNC,
      "70 bytes|69 found", "one byte missing" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, TU_EGARBAGE,
      "70 bytes|71 found", "one byte too many" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3, TU_ESIZE,
      "'a'|begins at 1|expected 0|hole", "first begin is not 0" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}", 5, TU_ESIZE,
      "'b'|begins at 3|expected 2|hole", "a hole" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3, TU_ESIZE,
      "'b'|begins at 1|expected 2|overlap", "an overlap" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, TU_ESIZE,
      "'b'|overlap", "two names share bytes" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
      "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}", 4, TU_EFORMAT,
      "'a' stands twice|byte 9", "a name twice" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
      "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}", 4, TU_EFORMAT,
      "'a' stands twice", "a name twice after unescaping" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,0]}}", 2, TU_ESIZE,
      "'a'|[2,0]", "end before begin" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
      TU_ESIZE, "'a'|2^64", "shape product wraps to 0" },
    { "{\"a\":{\"dtype\":\"F64\",\"shape\":[1152921504606846976,2],\"data_offsets\":[0,0]}}", 0,
      TU_ESIZE, "'a'|2^64", "product times bits wraps" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[9007199254740992,9007199254740992,0],"
      "\"data_offsets\":[0,0]}}", 0, TU_ESIZE, "'a'|2^64", "product wraps before its zero" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, TU_ESIZE,
      "'a'|4 bytes|need 8", "offsets contradict the shape" },
    { "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, TU_ESIZE,
      "misaligned slice|12 bits", "f4 of 12 bits" },
    { "{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[5],\"data_offsets\":[0,4]}}", 4, TU_ESIZE,
      "misaligned slice|30 bits", "f6 of 30 bits" },
    { "{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[99,1]}}", 8, TU_EDTYPE,
      "F31", "unknown dtype" },
    { "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, TU_EFORMAT, "'a' has no dtype",
      "no dtype" },
    { "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,8]}}", 8, TU_EFORMAT, "'a' has no shape",
      "no shape" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[8]}}", 8, TU_EFORMAT, "'a' has no data_offsets",
      "no offsets" },
    { "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8,
      TU_EFORMAT, "'dtype' stands twice", "a key twice" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0]}}", 8, TU_EFORMAT,
      "1 numbers|expected 2", "one offset" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8,8]}}", 8, TU_EFORMAT,
      "more than 2", "three offsets" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[8.0],\"data_offsets\":[0,8]}}", 8, TU_EFORMAT,
      "plain non-negative integer|'.'", "1.0" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[8e0],\"data_offsets\":[0,8]}}", 8, TU_EFORMAT,
      "plain non-negative integer|'e'", "1e0" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[-0],\"data_offsets\":[0,0]}}", 0, TU_EFORMAT,
      "plain non-negative integer|'-'", "-0" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[08],\"data_offsets\":[0,8]}}", 8, TU_EFORMAT,
      "plain non-negative integer", "a leading zero" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551616],\"data_offsets\":[0,0]}}", 0,
      TU_ESIZE, "2^64", "2^64" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775808,0],\"data_offsets\":[0,0]}}", 0,
      TU_ELIMIT, "'a'", "2^63 fits the reference but no stream" },
    { " {}", 0, TU_EFORMAT, "byte 8|' '|'{'", "a space before the object" },
    { "{}\f", 0, TU_EFORMAT, "only white space", "a form feed behind the object" },
    { "{}\n x", 0, TU_EFORMAT, "only white space|'x'", "text behind the object" },
    { "{\"__metadata__\":nul}", 0, TU_EFORMAT, "'n'|'{'", "metadata of half a null" },
    { "{\"__metadata__\":null,\"__metadata__\":null}", 0, TU_EFORMAT, "'__metadata__' stands twice",
      "no metadata twice" },
    { "[]", 0, TU_EFORMAT, "'['", "a list" },
    { "", 0, TU_EFORMAT, "ends at byte 8", "an empty header" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}", 1, TU_EFORMAT,
      "header ends", "no closing brace" },
    { "{\"a\":3}", 0, TU_EFORMAT, "'3'|'{'", "an entry that is no object" },
    { "{\"a\" {}}", 0, TU_EFORMAT, "':'", "no colon" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},}", 1, TU_EFORMAT,
      "a string", "a comma too many" },
    { "{\"a\\q\":{}}", 0, TU_EFORMAT, "an escape", "a false escape" },
    { "{\"a\\ud800\":{}}", 0, TU_EFORMAT, "surrogate", "half a surrogate pair" },
    { "{\"a\\ud800\\u0041\":{}}", 0, TU_EFORMAT, "surrogate", "a false surrogate pair" },
    { "{\"a\\u00g0\":{}}", 0, TU_EFORMAT, "hexadecimal", "a false digit" },
    { "{\"a\xff\":{}}", 0, TU_EFORMAT, "byte 11|0xff|UTF-8", "invalid UTF-8" },
    { "{\"a\tb\":{}}", 0, TU_EFORMAT, "0x09", "a raw control byte" },
    { "{\"a\\nb\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, TU_ENAME,
      "byte 9|control", "a name with a newline" },
    { "{\"__metadata__\":{\"k\\n\":\"y\\u0000\"}}", 0, TU_EUNSUP, "k?|NUL", "metadata with a NUL" },
    { "{\"__metadata__\":{\"\\u0000\":\"y\"}}", 0, TU_EUNSUP, "NUL", "its key with a NUL" },
    { "{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, TU_ENAME,
      "byte 9|control", "a name with a NUL" },
    { "{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, TU_ENAME,
      "byte 9|empty", "an empty name" },
    { "{\"__metadata__\":{\"a\":1}}", 0, TU_EFORMAT, "'1'|a string", "metadata of a number" },
    { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, TU_EFORMAT, "'__metadata__' stands twice",
      "metadata twice" },
    { "{\"a\":{\"x\":;}}", 0, TU_EFORMAT, "a value", "an unknown key without a value" },
    { "{\"a\":{\"x\":{\"y\" 1}}}", 0, TU_EFORMAT, "':'", "an unknown object without a colon" },
    { "{\"a\":{\"x\":{1:2}}}", 0, TU_EFORMAT, "a string", "an unknown object with a number as key" },
    { "{\"a\":{\"x\":{\"y\":1,2:3}}}", 0, TU_EFORMAT, "a string", "as a second key" },
    { "{\"a\":{\"x\":{\"y\":1,\"z\" 3}}}", 0, TU_EFORMAT, "':'", "a second key without a colon" },
    { "{\"a\":{\"x\":[1 2]}}", 0, TU_EFORMAT, "',' or ']'", "an unknown list without a comma" },
    { "{\"a\":{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
      "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
      "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0,
      TU_EFORMAT, "less nesting", "an unknown value of 300 levels" },
    { "{\"a\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, TU_EFORMAT, "a string",
      "a dtype that is a number" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":{},\"data_offsets\":[0,1]}}", 1, TU_EFORMAT, "'['",
      "a shape that is an object" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
      "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
      TU_ELIMIT, "more than 64 numbers", "65 dimensions" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1x],\"data_offsets\":[0,1]}}", 1, TU_EFORMAT, "',' or ']'",
      "a letter behind a dimension" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]} \"b\":1}", 1, TU_EFORMAT, "',' or '}'",
      "no comma between entries" },
    { "{\"a\\ud800x\":{}}", 0, TU_EFORMAT, "surrogate", "a surrogate and a letter" },
    { "{\"a\\ud800\\u00g0\":{}}", 0, TU_EFORMAT, "hexadecimal", "a surrogate and half an escape" },
    { "{\"a\\udc00\\ud800\":{}}", 0, TU_EFORMAT, "surrogate", "surrogates the wrong way round" },
    { "{\"a\\ud800\\ue000\":{}}", 0, TU_EFORMAT, "surrogate", "a surrogate and a plain escape" },
};

static void test_refused(void)
{
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++)
        fix_refused(make(bads[i].head, bads[i].data), FORMAT, NULL, bads[i].code, bads[i].words,
                    bads[i].what);
    fix_refused(fix_write("short", "\2\0\0\0\0\0\0", 7), FORMAT, NULL, TU_ETRUNC,
                "too small|7 bytes found|8 expected", "seven bytes");
    fix_refused(fix_write("short", "\3\0\0\0\0\0\0\0{}", 10), FORMAT, NULL, TU_ETRUNC,
                "invalid header length|11 bytes expected|10 found", "header past the end");
    fix_refused(fix_write("huge", "\1\xe1\xf5\5\0\0\0\0{}", 10), FORMAT, NULL, TU_ELIMIT,
                "header too large|100000001", "a header of 100,000,001");
    fix_refused(fix_write("huge", "\0\xe1\xf5\5\0\0\0\0{}", 10), FORMAT, NULL, TU_ETRUNC,
                "100000008 bytes expected|10 found", "a header of 100,000,000 is allowed");
    fix_refused(fix_write("huge", "\0\0\0\0\0\0\0\x80{}", 10), FORMAT, NULL, TU_ELIMIT,
                "9223372036854775808", "a header of 2^63");
    fix_refused(fix_write("none", "", 0), NULL, NULL, TU_EEMPTY, "empty", "nothing, sniffed");
    fix_refused(fix_write("none", "\x1f\x8b\x08", 3), NULL, NULL, TU_EMAGIC, "gzip",
                "gzip, sniffed");
    fix_refused(fix_write("none", "abcdefghijk", 11), NULL, NULL, TU_EMAGIC, "6162636465666768",
                "letters, sniffed");
}

/* Sniffing wants an object with a member or none. */
static void test_sniff(void)
{
    static const char *const heads[] = { "{x}", "[\"a\"]", "{1:2}" };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        fix_refused(make(heads[i], 8), NULL, NULL, TU_EMAGIC, "", heads[i]);
}

/* What cannot stand in a META record of 16 MiB is said, not cut. */
static void test_large_header(void)
{
    enum { N = 17 << 20 };
    char *file = malloc(N + 64);
    struct tu_source *s = NULL;
    const struct tu_open keep = { .keep_header = true };
    size_t n = (size_t)sprintf(file + 8, "{\"__metadata__\":{\"k\":\"");
    memset(file + 8 + n, 'x', N);
    n += N;
    n += (size_t)sprintf(file + 8 + n, "\"}}");
    tu_put64(file, n);
    fix_refused(fix_write("large.safetensors", file, 8 + n), NULL, NULL, TU_ELIMIT,
                "__metadata__ is over the 16 MiB", "17 MiB of metadata");
    n = 2 + N;
    memcpy(file + 8, "{}", 2);
    memset(file + 10, ' ', N);
    tu_put64(file, n);
    fix_write("large.safetensors", file, 8 + n);
    ok(!tu_source_open(&s, fix_path("large.safetensors"), NULL, NULL, NULL, NULL), "17 MiB of spaces");
    tu_source_close(s);
    fix_refused(fix_path("large.safetensors"), NULL, &keep, TU_ELIMIT, "the header to keep is over",
                "but not to keep");
    free(file);
}

/* A header that ends anywhere is refused there. */
static void test_cut(void)
{
    static const char whole[] =
        "{\"__metadata__\":{\"k\":\"\\u00e9\\ud83d\\ude00\\n\"},\"a\":{\"x\":{\"y\":[1.5e-3,true,{}],\"z\":"
        "null},\"dtype\":\"U8\",\"shape\":[2,10],\"data_offsets\":[0,20]},\"b\":{\"dtype\":\"F32\",\"shape\":[],"
        "\"data_offsets\":[20,24]}}";
    unsigned wrong = 0;
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        char head[sizeof whole];
        struct tu_err err = { 0 };
        struct tu_source *s = NULL;
        snprintf(head, sizeof head, "%.*s", (int)n, whole);
        int code = tu_source_open(&s, make(head, 24), FORMAT, NULL, NULL, &err);
        if (code != TU_EFORMAT || !strstr(err.msg, ": header ")) {
            printf("# %s: %s\n", head, err.msg);
            wrong++;
        }
        tu_source_close(s);
    }
    eq_u64(wrong, 0, "cut at each byte");
    struct tu_source *s = NULL;
    ok(!tu_source_open(&s, make(whole, 24), FORMAT, NULL, NULL, NULL) && s->n == 2 &&
           !strcmp(s->meta[0].json, "{\"metadata\":{\"k\":\"\xc3\xa9\xf0\x9f\x98\x80\\n\"}}"), "the whole is read");
    tu_source_close(s);
}

/* As for the reference, the last value of a key counts. */
static void test_metadata_twice(void)
{
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    const char *path = make("{\"__metadata__\":{\"b\":\"1\",\"a\":\"2\",\"\\u0062\":\"3\",\"b\":\"4\"}}", 0);
    if (ok(!tu_source_open(&s, path, FORMAT, NULL, NULL, &err), "a metadata key twice"))
        eq_str(s->meta[0].json, "{\"metadata\":{\"a\":\"2\",\"b\":\"4\"}}", "the last counts");
    tu_source_close(s);
}

static void test_accepted(void)
{
    test_cut();
    test_metadata_twice();
    test_sniff();
    test_large_header();
    static const char *const heads[] = {
        "{}", "{ }    ", "{\"__metadata__\":{}}", "{\"__metadata__\":{\"a\":\"\"}}",
        "{\"a\":{\"shape\":[],\"data_offsets\":[0,0],\"dtype\":\"U8\",\"x\":[{\"y\":[1,{},null]},"
        "true,\"z\"]}}",
        "{\n\t\"a\" : { \"dtype\" : \"U8\" , \"shape\" : [ 0 , 7 ] ,\r \"data_offsets\" : [ 0 , 0"
        " ] } } ",
        "{}\t\r\n ", "{\"__metadata__\":null}", "{\"__metadata__\": null }",
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct tu_err err = { 0 };
        struct tu_source *s = NULL;
        int code = tu_source_open(&s, make(heads[i], i == 4), FORMAT, NULL, NULL, &err);
        /* A scalar takes one byte: give it one by its offsets. */
        if (i == 4)
            eq_int(code, TU_ESIZE, "a scalar of no bytes is refused, after unknown keys");
        else if (!ok(!code, "accepted: odd form %zu", i))
            printf("# %s\n", err.msg);
        if (!code)
            tu_source_close(s);
    }
}

static void test_order_of_data(void)
{
    struct tu_source *s = NULL;
    const char *path = make("{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]},"
                            "\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[1,1]},"
                            "\"\\u00e4\\ud83d\\ude00\":{\"dtype\":\"U8\",\"shape\":[],"
                            "\"data_offsets\":[0,1]}}", 3);
    struct tu_err err = { 0 };
    if (!ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "opened by sniffing")) {
        printf("# %s\n", err.msg);
        return;
    }
    eq_str(s->format->name, "safetensors", "the format is recognised");
    eq_u64(s->n, 3, "three tensors");
    eq_str(s->tensor[0].name, "\xc3\xa4\xf0\x9f\x98\x80", "names are unescaped, surrogates joined");
    eq_str(s->tensor[1].name, "z", "an empty tensor precedes what begins with it");
    eq_str(s->tensor[2].name, "b", "tensors stand in the order of their data");
    eq_u64(tu_source_find(s, "b"), 2, "found by name");
    ok(tu_source_find(s, "c") == SIZE_MAX, "an absent name is not found");
    eq_u64(s->extent[2].off, tu_in_size(s->in) - 2, "the extent says where bytes lie");
    eq_int(tu_source_read(s, 2, 1, (char[2]){ 0 }, 2, &err), TU_EBUG, "a range past the end");
    tu_source_close(s);
}

static void test_worked_case(void)
{
    static const unsigned char want[72] =
        "\x38\0\0\0\0\0\0\0{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}  "
        "\0\0\x80\x3f\0\0\0\x40";
    const float v[2] = { 1, 2 };
    struct tu_tensor t = fix_tensor("t", TU_F32, 1, (uint64_t[]){ 2 });
    struct tu_save what = { .n = 1, .tensor = &t };
    const char *path = fix_path("one.safetensors");
    struct tu_err err = { 0 };
    if (!ok(!fix_save(path, NULL, &what, (const void *[]){ v }, &err), "saved, format by suffix"))
        printf("# %s\n", err.msg);
    ok(fix_same(path, want, 72), "the 72 bytes of {1,2}");
    eq_u64(tu_crc32(0, want, 72), 0x5384126f, "their CRC-32");
    what.n = 0;
    ok(!fix_save(path, NULL, &what, NULL, &err), "saved without tensors");
    ok(fix_same(path, "\x08\0\0\0\0\0\0\0{}      ", 16), "the empty file");
}

/* Order of dtypes, largest alignment first, then names; metadata first. */
static void test_canonical(void)
{
    static const uint32_t dtypes[] = {
        TU_BOOL, TU_F4_E2M1, TU_F6_E2M3, TU_F6_E3M2, TU_U8, TU_I8, TU_F8_E5M2, TU_F8_E4M3FN,
        TU_F8_E8M0, TU_F8_E4M3FNUZ, TU_F8_E5M2FNUZ, TU_I16, TU_U16, TU_F16, TU_BF16, TU_I32,
        TU_U32, TU_F32, TU_C64, TU_F64, TU_I64, TU_U64,
    };
    enum { N = sizeof dtypes / sizeof *dtypes };
    struct tu_tensor t[N + 1];
    char name[N][8];
    for (size_t i = 0; i < N; i++) {
        sprintf(name[i], "n%02zu", i);
        t[i] = fix_tensor(name[i], dtypes[i], 1, (uint64_t[]){ 4 });
    }
    static const uint64_t dim[] = { 4 };
    for (size_t i = 0; i < N; i++)
        t[i].dim = dim;
    t[N] = fix_tensor("a", TU_BOOL, 1, dim);
    struct tu_meta meta[] = {
        { "safetensors", "{\"metadata\":{\"b\":\"1\"}}", 0 },
        { "other", "{\"metadata\":{\"c\":\"1\"}}", 0 },
        { "safetensors", "{\"metadata\":{\"b\":\"2\",\"a\":\"\xc3\xa4\\n\"}}", 0 },
    };
    for (size_t i = 0; i < 3; i++)
        meta[i].n = strlen(meta[i].json);
    struct tu_save what = { .n = N + 1, .tensor = t, .metas = 3, .meta = meta };
    struct tu_err err = { 0 };
    const char *path = fix_path("all.safetensors");
    if (!ok(!fix_save(path, FORMAT, &what, NULL, &err), "every dtype is saved"))
        printf("# %s\n", err.msg);
    size_t n;
    char *text = (char *)fix_read(path, &n);
    static const char begin[] = "{\"__metadata__\":{\"a\":\"\xc3\xa4\\n\",\"b\":\"2\"},\"n21\":"
                                "{\"dtype\":\"U64\",\"shape\":[4],\"data_offsets\":[0,32]},";
    ok(text && !memcmp(text + 8, begin, sizeof begin - 1),
       "metadata first, keys sorted, later META winning");
    eq_u64(tu_le64(text) % 8, 0, "the header is padded to a multiple of 8");
    free(text);
    struct tu_source *s = NULL;
    if (!ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "read back")) {
        printf("# %s\n", err.msg);
        return;
    }
    bool order = s->n == N + 1 && !strcmp(s->tensor[N - 1].name, "a"), bytes = order;
    for (size_t i = 0; order && i < N; i++) {
        size_t k = tu_source_find(s, name[i]);
        order = s->tensor[k].dtype == dtypes[i] && k == N - 1 - i + (i == 0);
        bytes = bytes && fix_holds(s, k, i);
    }
    ok(order, "dtypes in the official order, then names");
    ok(bytes, "bytes survive for every dtype");
    eq_u64(s->metas, 1, "one META");
    eq_str(s->meta[0].json, "{\"metadata\":{\"a\":\"\xc3\xa4\\n\",\"b\":\"2\"}}", "metadata read");
    tu_source_close(s);
}

static void test_keep_header(void)
{
    static const char odd[] =
        "{ \"b\":{\"shape\":[2],\"dtype\":\"U8\",\"data_offsets\":[0,2]},"
        "\"__metadata__\":{\"z\":\"1\",\"a\":\"2\"}, \"a\":{\"data_offsets\":[2,10],"
        "\"dtype\":\"F32\",\"shape\":[2]} }   ";
    const char *path = make(odd, 10);
    size_t n;
    unsigned char *file = fix_read(path, &n);
    for (size_t i = 0; i < 10; i++)
        file[n - 10 + i] = (unsigned char)(i + 1);
    fix_write("bad.safetensors", file, n);
    struct tu_source *s = NULL;
    struct tu_err err = { 0 };
    const struct tu_open how = { .keep_header = true };
    if (!ok(!tu_source_open(&s, path, NULL, &how, NULL, &err), "opened keeping the header")) {
        printf("# %s\n", err.msg);
        return;
    }
    struct tu_save what = { .n = s->n, .tensor = s->tensor, .metas = s->metas, .meta = s->meta,
                            .keep_header = true };
    const char *copy = fix_path("copy.safetensors");
    struct tu_sink *k = NULL;
    ok(!tu_sink_open(&k, copy, NULL, &what, NULL, &err), "the sink follows the header");
    uint64_t done = 0;
    for (size_t i = 0; k && i < s->n; i++)
        ok(!tu_source_copy(s, i, k, i, &done, 10, NULL, &err), "tensor %zu copied", i);
    eq_u64(done, 10, "progress counts bytes");
    ok(!tu_sink_finish(k, false, &err), "finished");
    ok(fix_same(copy, file, n), "byte-identical");
    free(file);

    struct tu_tensor other[2] = { s->tensor[0], s->tensor[1] };
    other[0].name = "c";
    what.tensor = other;
    eq_int(tu_sink_open(&k, copy, NULL, &what, NULL, &err), TU_EMETA, "another name is refused");
    ok(strstr(err.msg, "'b': stands in the kept header, but is not here"), "said: %s", err.msg);
    other[0] = s->tensor[0];
    other[0].dtype = TU_I8;
    eq_int(tu_sink_open(&k, copy, NULL, &what, NULL, &err), TU_EMETA, "another dtype is refused");
    what.n = 1;
    eq_int(tu_sink_open(&k, copy, NULL, &what, NULL, &err), TU_EMETA, "a missing one is refused");
    what.n = 2;
    what.metas = 0;
    eq_int(tu_sink_open(&k, copy, NULL, &what, NULL, &err), TU_EMETA, "no header is refused");
    tu_source_close(s);
}

static void test_sink_rules(void)
{
    struct tu_err err = { 0 };
    struct tu_sink *k = NULL;
    static const uint64_t three[] = { 3 };
    struct tu_tensor t[2] = { fix_tensor("a", TU_U8, 1, three), fix_tensor("a", TU_U8, 1, three) };
    struct tu_save what = { .n = 2, .tensor = t };
    const char *path = fix_path("rules.safetensors");
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_ENAME, "one name twice");
    t[1] = fix_tensor("b", TU_I4, 1, three);
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_EDTYPE, "a dtype it lacks");
    ok(strstr(err.msg, "'b'") && strstr(err.msg, "i4"), "said: %s", err.msg);
    t[1] = fix_tensor("b", TU_F4_E2M1, 1, three);
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_ESIZE, "half a byte");
    t[1] = fix_tensor("__metadata__", TU_U8, 1, three);
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_ENAME, "the reserved name");
    t[1] = fix_tensor("b", TU_U8, 1, three);
    eq_int(tu_sink_open(&k, fix_path("x.unknown"), NULL, &what, NULL, &err), TU_EUSAGE, "suffix");
    ok(!tu_sink_open(&k, path, NULL, &what, NULL, &err), "opened");
    ok(!tu_sink_write(k, 0, 0, "abc", 3, &err), "one of two written");
    eq_int(tu_sink_write(k, 0, 2, "xy", 2, &err), TU_EBUG, "past the tensor");
    eq_int(tu_sink_finish(k, false, &err), TU_EBUG, "bytes are missing");
    ok(access(path, F_OK), "nothing under the final name");
    struct tu_meta bad = { "safetensors", "{\"metadata\":{\"a\":1}}", 20 };
    what.metas = 1;
    what.meta = &bad;
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_EMETA, "metadata of a number");
    bad = (struct tu_meta){ "safetensors", "{\"metadata\":[]}", 15 };
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_EMETA, "metadata that is a list");
    bad = (struct tu_meta){ "safetensors", "{\"header\":5}", 12 };
    what.keep_header = true;
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_EMETA, "a kept header of a number");
    ok(strstr(err.msg, "no header was kept"), "said: %s", err.msg);
}

/* 100,000 entries: names sorted, nothing quadratic. */
static void test_many(void)
{
    enum { N = 100000 };
    static const uint64_t one[] = { 1 };
    struct tu_tensor *t = malloc(N * sizeof *t);
    char(*name)[24] = malloc(N * sizeof *name);
    for (unsigned i = 0; i < N; i++) {
        sprintf(name[i], "layer.%06u.w", (i * 7919u) % N);
        t[i] = fix_tensor(name[i], TU_U8, 1, one);
    }
    struct tu_save what = { .n = N, .tensor = t };
    struct tu_err err = { 0 };
    struct tu_sink *k = NULL;
    const char *path = fix_path("many.safetensors");
    ok(!tu_sink_open(&k, path, NULL, &what, NULL, &err), "100,000 tensors laid out");
    bool sorted = k != NULL;
    for (unsigned j = 0; sorted && j < N; j++) {
        sorted = !tu_sink_write(k, k->order[j], 0, "x", 1, &err);
        sorted = sorted && (!j || strcmp(name[k->order[j - 1]], name[k->order[j]]) < 0);
    }
    ok(sorted, "in the order of their names");
    ok(!tu_sink_finish(k, false, &err), "finished");
    struct tu_source *s = NULL;
    ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "read back");
    eq_u64(s ? s->n : 0, N, "all are there");
    eq_u64(s ? tu_source_find(s, "layer.099999.w") : 0, N - 1, "the last by name is the last");
    tu_source_close(s);
    free(t);
    free(name);
}

static int inject_open(struct tu_err *err)
{
    struct tu_source *s = NULL;
    const struct tu_open how = { .keep_header = true };
    int code = tu_source_open(&s, fix_path("inject.safetensors"), NULL, &how, NULL, err);
    if (!code)
        tu_source_close(s);
    return code;
}

static int inject_save(struct tu_err *err)
{
    static const uint64_t dim[] = { 3 };
    struct tu_tensor t[2] = { { "b", TU_F32, 1, dim, 12, NULL }, { "a", TU_U8, 1, dim, 3, NULL } };
    struct tu_meta meta = { "safetensors", "{\"metadata\":{\"a\":\"\\u00e4\"}}", 0 };
    meta.n = strlen(meta.json);
    struct tu_save what = { .n = 2, .tensor = t, .metas = 1, .meta = &meta };
    return fix_save(fix_path("inject.safetensors"), NULL, &what, NULL, err);
}

int main(void)
{
    test_worked_case();
    test_refused();
    test_accepted();
    test_order_of_data();
    test_canonical();
    test_keep_header();
    test_sink_rules();
    test_many();
    fix_inject(inject_save, true, "save");
    fix_inject(inject_save, false, "save");
    ok(!inject_save(NULL), "a file for the next loop");
    fix_inject(inject_open, true, "open");
    fix_inject(inject_open, false, "open");
    return tap_done();
}
