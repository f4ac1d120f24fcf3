/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of npy: the bytes of numpy's own header, each rule of the little grammar, byte
 * and array orders there and back. */
#include "fix.h"

#define FORMAT (tu_format_find("npy"))

/* A version-1 file of a dict and `data` zero bytes, padded as old files were, to 16. */
static const char *make(const char *dict, size_t data)
{
    static char file[1 << 15];
    size_t n = strlen(dict), len = n + 1;
    while ((10 + len) % 16)
        len++;
    memset(file, 0, sizeof file);
    memcpy(file, "\x93NUMPY\1\0", 8);
    tu_put16(file + 8, (uint16_t)len);
    memset(file + 10, ' ', len);
    memcpy(file + 10, dict, n);
    file[10 + len - 1] = '\n';
    return fix_write("bad.npy", file, 10 + len + data);
}

static const struct bad {
    const char *dict;
    size_t data;
    int code;
    const char *words, *what;
} bads[] = {
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 7, TU_ETRUNC,
      "88 bytes|87 found", "a byte missing" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 9, TU_EGARBAGE,
      "88 bytes|89 found", "a byte too many" },
    { "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", 8, TU_EUNSUP, "objects|'|O'",
      "pickled objects" },
    { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", 8, TU_EUNSUP,
      "structured", "a structured array" },
    { "{'descr': '<U4', 'fortran_order': False, 'shape': (2,), }", 32, TU_EUNSUP, "<U4", "texts" },
    { "{'descr': '|S4', 'fortran_order': False, 'shape': (2,), }", 8, TU_EUNSUP, "|S4", "bytes" },
    { "{'descr': '<f3', 'fortran_order': False, 'shape': (2,), }", 6, TU_EDTYPE, "<f3",
      "an unknown dtype" },
    { "{'descr': 'f4', 'fortran_order': False, 'shape': (2,), }", 8, TU_EDTYPE, "'f4'",
      "no byte order" },
    { "{'descr': '', 'fortran_order': False, 'shape': (2,), }", 8, TU_EDTYPE, "''", "no dtype" },
    { "{'descr': '<f4444444444444444444444444', 'fortran_order': False, 'shape': (2,), }", 8,
      TU_EDTYPE, "<f4444", "a long dtype" },
    { "{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }", 4, TU_EDTYPE, "--void=bf16",
      "raw bytes without --void" },
    { "{'descr': '<f4', 'fortran_order': False, }", 8, TU_EFORMAT, "no key 'shape'", "no shape" },
    { "{'descr': '<f4', 'shape': (2,), }", 8, TU_EFORMAT, "no key 'fortran_order'", "no order" },
    { "{'fortran_order': False, 'shape': (2,), }", 8, TU_EFORMAT, "no key 'descr'", "no descr" },
    { "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8, TU_EFORMAT,
      "each key once", "a key twice" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1, }", 8, TU_EFORMAT,
      "the keys descr", "a key too many" },
    { "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,), }", 8, TU_EFORMAT, "True or False",
      "an order of 0" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (2), }", 8, TU_EFORMAT, "','",
      "a number in brackets" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': [2], }", 8, TU_EFORMAT, "'('", "a list" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", 8, TU_EFORMAT, "'-'",
      "a negative dimension" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }", 24, TU_EFORMAT, "',' or ')'",
      "no comma" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 8,
      TU_EFORMAT, "2^64", "2^64 and more" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 8, TU_ESIZE,
      "", "a product that wraps" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }", 8, TU_ELIMIT,
      "", "2^63" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } x", 8, TU_EFORMAT,
      "only spaces|'x'", "text behind the dict" },
    { "{'descr': '<f4' 'fortran_order': False, 'shape': (2,), }", 8, TU_EFORMAT, "',' or '}'",
      "no comma between keys" },
    { "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (2,), }", 8, TU_EFORMAT, "escapes",
      "an escape" },
    { "{'descr': __import__('os'), 'fortran_order': False, 'shape': (2,), }", 8, TU_EFORMAT,
      "a quoted text|'_'", "code" },
    { "{'descr': '<f4\xff', 'fortran_order': False, 'shape': (2,), }", 8, TU_EFORMAT, "0xff|ASCII",
      "no UTF-8" },
    { "", 0, TU_EFORMAT, "'{'", "an empty header" },
    { "{'descr': '<f4'", 0, TU_EFORMAT, "", "half a dict" },
    { "{5: '<f4', }", 0, TU_EFORMAT, "a quoted text", "a key that is a number" },
    { "{'descr' '<f4', }", 0, TU_EFORMAT, "':'", "no colon" },
    { "{'descr': '<f4\", }", 0, TU_EFORMAT, "", "two kinds of quotes" },
    { "{'descr': '<f4', 'fortran_order': Falsy, 'shape': (2,), }", 8, TU_EFORMAT, "True or False", "Falsy" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }}", 8, TU_EFORMAT, "only spaces", "two braces" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616,), }", 8, TU_EFORMAT,
      "below 2^64", "2^64" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
      "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1), }", 4, TU_EFORMAT,
      "at most 64 dimensions", "65 dimensions" },
    { "{'descr': '<V1', 'fortran_order': False, 'shape': (2,), }", 2, TU_EDTYPE, "--void=f8_e4m3fn", "V1" },
    { "{'descr': '<', 'fortran_order': False, 'shape': (2,), }", 8, TU_EDTYPE, "'<' is not known", "an order alone" },
};

/* A header whose length ends it anywhere is refused there. */
static void test_cut(void)
{
    static const char whole[] = "{'descr': '<u4', 'fortran_order': False, 'shape': (2, 3L), }";
    unsigned wrong = 0;
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        char head[sizeof whole + 64] = "\x93NUMPY\1";
        struct tu_err err = { 0 };
        struct tu_source *s = NULL;
        tu_put16((unsigned char *)head + 8, (uint16_t)n);
        memcpy(head + 10, whole, n);
        int code = tu_source_open(&s, fix_write("cut.npy", head, 10 + n + 24), FORMAT, NULL, NULL, &err);
        if (code != TU_EFORMAT || !strstr(err.msg, ": header ")) {
            printf("# %.*s: %s\n", (int)n, whole, err.msg);
            wrong++;
        }
        tu_source_close(s);
    }
    eq_u64(wrong, 0, "cut at each byte");
    static const struct { const char *head; size_t n; int code; const char *words; } rows[] = {
        { "\x93NUM", 4, TU_ETRUNC, "first 6 bytes" },
        { "NUMPY!", 6, TU_EMAGIC, "first 6 bytes" },
        { "\x93NUMPY\1\0", 8, TU_ETRUNC, "at least 10" },
        { "\x93NUMPY\2\0\1\0", 10, TU_ETRUNC, "at least 12" },
        { "\x93NUMPY\4\0\1\0", 10, TU_EVERSION, "version 4.0" },
        { "\x93NUMPY\0\0\1\0", 10, TU_EVERSION, "version 0.0" },
        { "\x93NUMPY\1\1\1\0", 10, TU_EVERSION, "version 1.1" },
        { "\x93NUMPY\3\0\1\0\0\0\xff", 13, TU_EFORMAT, "UTF-8" },
        { "\x93NUMPY\2\0\0\0\0\1 ", 13, TU_ELIMIT, "header of 16777216 bytes" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fix_refused(fix_write("cut.npy", rows[i].head, rows[i].n), FORMAT, NULL, rows[i].code, rows[i].words,
                    rows[i].words);
}

/* What `src` says of a tensor counts where it fits it. */
static void test_src(void)
{
    static const struct { const char *meta; uint32_t dtype; const char *descr; } rows[] = {
        { "{\"src\":{\"descr\":\">u2\",\"format\":\"npy\"}}", TU_U16, ">u2" },
        { "{\"src\":{\"descr\":\"=u2\",\"format\":\"npy\"}}", TU_U16, "=u2" },
        { "{\"src\":{\"descr\":\">u2\",\"format\":\"npy\"}}", TU_I16, "<i2" },
        { "{\"src\":{\"descr\":\">u2\",\"format\":\"gguf\"}}", TU_U16, "<u2" },
        { "{\"src\":{\"descr\":\">u2\"}}", TU_U16, "<u2" },
        { "{\"src\":{\"format\":\"npy\"}}", TU_U16, "<u2" },
        { "{\"src\":{\"descr\":\"u2\",\"format\":\"npy\"}}", TU_U16, "<u2" },
        { "{\"src\":{\"descr\":\"u22\",\"format\":\"npy\"}}", TU_U16, "<u2" },
        { "{\"src\":{\"descr\":\">u2222222\",\"format\":\"npy\"}}", TU_U16, "<u2" },
        { "{\"src\":{\"descr\":\"|V2\",\"format\":\"npy\"}}", TU_BF16, "|V2" },
        { "{\"src\":{\"descr\":\"|V1\",\"format\":\"npy\"}}", TU_F8_E5M2, "|V1" },
        { "{\"src\":{\"descr\":\"|V2\",\"format\":\"npy\"}}", TU_U16, "<u2" },
        { "{\"src\":{\"descr\":\">u1\",\"format\":\"npy\"}}", TU_U8, ">u1" },
        { "{\"src\":5}", TU_U8, "|u1" },
    };
    static const uint64_t dim[] = { 3 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_tensor t = fix_tensor("s", rows[i].dtype, 1, dim);
        struct tu_save what = { .n = 1, .tensor = &t };
        struct tu_err err = { 0 };
        const char *path = fix_path("src.npy");
        size_t n;
        char want[32];
        t.meta = rows[i].meta;
        snprintf(want, sizeof want, "{'descr': '%s'", rows[i].descr);
        ok(!fix_save(path, NULL, &what, NULL, &err), "saved: %s", rows[i].meta);
        unsigned char *p = fix_read(path, &n);
        ok(p && n > 40 && !memcmp(p + 10, want, strlen(want)), "as %s", rows[i].descr);
        free(p);
    }
    struct tu_tensor t = fix_tensor("s", TU_U8, 1, dim);
    struct tu_save what = { .n = 1, .tensor = &t, .keep_header = true };
    static const char *const kept[] = {
        "{\"src\":{\"header\":5,\"version\":1}}", "{\"src\":{\"header\":\"x\",\"version\":0}}",
        "{\"src\":{\"header\":\"x\",\"version\":4}}", "{\"src\":{\"header\":\"x\",\"version\":2}}",
        "{\"src\":{\"header\":\"{'descr': '|u1', 'fortran_order': True, 'shape': (3,), }\",\"version\":1}}",
        "{\"src\":{\"header\":\"{'descr': '|i1', 'fortran_order': False, 'shape': (3,), }\",\"version\":1}}",
        "{\"src\":{\"header\":\"{'descr': '|u1', 'fortran_order': False, 'shape': (3,1), }\",\"version\":1}}",
    };
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        struct tu_err err = { 0 };
        struct tu_sink *k = NULL;
        t.meta = kept[i];
        ok(tu_sink_open(&k, fix_path("src.npy"), NULL, &what, NULL, &err) && strstr(err.msg, "header"),
           "kept %zu is refused: %s", i, err.msg);
        if (!err.code)
            tu_sink_abort(k);
    }
}

/* A header that was kept unasked counts for the tensor that it describes, and for no other. */
static void test_kept(void)
{
    static const struct { uint32_t dtype; uint64_t dim; unsigned char version; } rows[] = {
        { TU_U16, 3, 2 }, { TU_U16, 4, 1 }, { TU_I16, 3, 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_tensor t = fix_tensor("k", rows[i].dtype, 1, &rows[i].dim);
        struct tu_save what = { .n = 1, .tensor = &t };
        struct tu_err err = { 0 };
        const char *path = fix_path("kept.npy");
        size_t n = 0;
        t.meta = "{\"src\":{\"descr\":\"<u2\",\"format\":\"npy\",\"fortran_order\":false,\"header\":"
                 "\"{'descr': '<u2', 'fortran_order': False, 'shape': (3,)}\\n\",\"version\":2}}";
        ok(!fix_save(path, NULL, &what, NULL, &err), "saved %zu", i);
        unsigned char *p = fix_read(path, &n);
        ok(p && n > 10 && p[6] == rows[i].version, "version %u", rows[i].version);
        ok(n == (rows[i].version == 2 ? 12 + 56 + 6 : 128 + 2 * rows[i].dim), "%zu bytes", n);
        free(p);
    }
}

static void test_refused(void)
{
    test_cut();
    test_src();
    test_kept();
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++)
        fix_refused(make(bads[i].dict, bads[i].data), FORMAT, NULL, bads[i].code, bads[i].words,
                    bads[i].what);
    fix_refused(fix_write("b.npy", "\x93NUMPX\1\0\2\0{}", 12), FORMAT, NULL, TU_EMAGIC, "NUMPY",
                "another magic");
    fix_refused(fix_write("b.npy", "\x93NUM", 4), FORMAT, NULL, TU_ETRUNC, "", "half a magic");
    fix_refused(fix_write("b.npy", "\x93NUMPY\1\0\2", 9), FORMAT, NULL, TU_ETRUNC, "9 bytes found",
                "half a length");
    fix_refused(fix_write("b.npy", "\x93NUMPY\2\0\2\0\0", 11), FORMAT, NULL, TU_ETRUNC,
                "11 bytes found|12 expected", "half a long length");
    fix_refused(fix_write("b.npy", "\x93NUMPY\4\0\2\0{}", 12), FORMAT, NULL, TU_EVERSION, "4.0",
                "version 4");
    fix_refused(fix_write("b.npy", "\x93NUMPY\1\0\xff\0{}", 12), FORMAT, NULL, TU_ETRUNC,
                "ends at byte 265|12 found", "a header past the end");
    fix_refused(fix_write("b.npy", "\x93NUMPY\1\0\x11\x27{}", 12), FORMAT, NULL, TU_ELIMIT,
                "10001", "a header over numpy's limit");
    struct tu_open how = { .void_dtype = TU_F8_E5M2 };
    fix_refused(make("{'descr': '|V2', 'fortran_order': False, 'shape': (2,), }", 4), FORMAT, &how,
                TU_EDTYPE, "2 bytes wide|f8_e5m2", "a void of another width");
}

/* The metadata is `meta`, but for a header that is not numpy's usual one: its text is
 * kept, in the last two keys of `src`. */
static bool remembers(const char *have, const char *meta)
{
    const char *kept = have ? strstr(have, ",\"header\":\"{") : NULL;
    if (!kept || !meta)
        return have && meta ? !strcmp(have, meta) : have == meta;
    size_t n = (size_t)(kept - have);
    return !strncmp(have, meta, n) && !strcmp(meta + n, "}}");
}

static bool holds(const char *path, const struct tu_open *how, uint32_t dtype, const char *meta,
                  const void *want, size_t n)
{
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    unsigned char have[256];
    if (tu_source_open(&s, path, NULL, how, NULL, &err)) {
        printf("# %s\n", err.msg);
        return false;
    }
    const struct tu_tensor *t = &s->tensor[0];
    bool yes = s->n == 1 && t->dtype == dtype && t->bytes == n &&
               remembers(t->meta, meta);
    if (!yes)
        printf("# dtype %x, %d bytes, meta %s\n", t->dtype, (int)t->bytes, t->meta ? t->meta : "-");
    /* In steps that split elements. */
    for (size_t step = 1; yes && step <= n + 1; step += 2) {
        memset(have, 0xee, sizeof have);
        for (size_t off = 0; yes && off < n; off += step)
            yes = !tu_source_read(s, 0, off, have + off, n - off < step ? n - off : step, &err);
        yes = yes && !memcmp(have, want, n);
    }
    tu_source_close(s);
    return yes;
}

/* Re-export with what reading kept, then compare with the original. */
static bool restores(const char *path, bool keep, const struct tu_open *void_of)
{
    struct tu_err err = { 0 };
    struct tu_open how = void_of ? *void_of : (struct tu_open){ 0 };
    how.keep_header = keep;
    struct tu_source *s = NULL;
    if (tu_source_open(&s, path, NULL, &how, NULL, &err)) {
        printf("# %s\n", err.msg);
        return false;
    }
    struct tu_save what = { .n = 1, .tensor = s->tensor, .keep_header = keep };
    const char *copy = fix_path("copy.npy");
    struct tu_sink *k = NULL;
    uint64_t done = 0;
    int code = tu_sink_open(&k, copy, NULL, &what, NULL, &err);
    if (!code)
        code = tu_source_copy(s, 0, k, 0, &done, 0, NULL, &err);
    if (!code)
        code = tu_sink_finish(k, false, &err);
    else
        tu_sink_abort(k);
    tu_source_close(s);
    if (code)
        printf("# %s\n", err.msg);
    size_t n = 0;
    unsigned char *file = fix_read(path, &n);
    bool same = !code && fix_same(copy, file, n);
    free(file);
    return same;
}

/* {'w': [[0,1,2],[3,4,5]]} in f32: 152 bytes, length field 0x76, data at 128. */
static void test_worked_case(void)
{
    static const float v[6] = { 0, 1, 2, 3, 4, 5 };
    static const uint64_t dim[] = { 2, 3 };
    unsigned char want[152];
    memset(want, ' ', sizeof want);
    memcpy(want, "\x93NUMPY\1\0\x76\0{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
           69);
    want[127] = '\n';
    memcpy(want + 128, v, 24);
    struct tu_tensor t = fix_tensor("w", TU_F32, 2, dim);
    struct tu_save what = { .n = 1, .tensor = &t };
    struct tu_err err = { 0 };
    const char *path = fix_path("w.npy");
    if (!ok(!fix_save(path, NULL, &what, (const void *[]){ v }, &err), "saved"))
        printf("# %s\n", err.msg);
    ok(fix_same(path, want, 152), "the 152 bytes of numpy");
    ok(holds(path, NULL, TU_F32, NULL, v, 24), "read back");
    struct tu_source *s = NULL;
    ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "opened");
    eq_str(s->tensor[0].name, "w", "named after its file");
    eq_u64(s->extent[0].off, 128, "its data lies at 128");
    tu_source_close(s);
}

static void test_orders(void)
{
    /* [[1,2,3],[4,5,6]] in big-endian, Fortran order: 1 4 2 5 3 6. */
    static const uint16_t rows[] = { 1, 2, 3, 4, 5, 6 };
    const char *path = make("{'descr': '>u2', 'fortran_order': True, 'shape': (2, 3), }", 12);
    size_t n = 0;
    unsigned char *file = fix_read(path, &n);
    memcpy(file + n - 12, "\0\1\0\4\0\2\0\5\0\3\0\6", 12);
    path = fix_write("fortran.npy", file, n);
    free(file);
    ok(holds(path, NULL, TU_U16,
             "{\"src\":{\"descr\":\">u2\",\"format\":\"npy\",\"fortran_order\":true}}", rows, 12),
       "big-endian columns become little-endian rows");
    ok(restores(path, true, NULL), "restored byte for byte, an old header included");

    path = make("{'descr': '>c8', 'fortran_order': False, 'shape': (1,), }", 8);
    file = fix_read(path, &n);
    memcpy(file + n - 8, "\x3f\x80\0\0\x40\0\0\0", 8);
    path = fix_write("complex.npy", file, n);
    free(file);
    ok(holds(path, NULL, TU_C64,
             "{\"src\":{\"descr\":\">c8\",\"format\":\"npy\",\"fortran_order\":false}}",
             "\0\0\x80\x3f\0\0\0\x40", 8), "the halves of a complex number are swapped alone");
    ok(restores(path, true, NULL), "and back");

    /* Order 3-D: element (i,j,k) of shape (2,3,4) is i+10j+100k, stored with i fastest. */
    path = make("{'fortran_order': True, 'descr': '|u1', 'shape': (2L, 3L, 4L)}", 24);
    file = fix_read(path, &n);
    unsigned char want[24];
    for (unsigned i = 0, at = 0; i < 2; i++)
        for (unsigned j = 0; j < 3; j++)
            for (unsigned k = 0; k < 4; k++) {
                want[at++] = (unsigned char)(i + 10 * j + 60 * k);
                file[n - 24 + i + 2 * j + 6 * k] = (unsigned char)(i + 10 * j + 60 * k);
            }
    path = fix_write("three.npy", file, n);
    free(file);
    ok(holds(path, NULL, TU_U8,
             "{\"src\":{\"descr\":\"|u1\",\"format\":\"npy\",\"fortran_order\":true}}", want, 24),
       "three dimensions, keys in another order, Python 2's longs");
    ok(restores(path, true, NULL), "and back");
}

/* Headers as numpy writes them, from (descr, order, shape); what is not kept must be made
 * again. */
static void test_usual(void)
{
    static const struct {
        const char *dict;
        size_t length, data;
    } usual[] = {
        { "{'descr': '>f4', 'fortran_order': False, 'shape': (), }", 118, 4 },
        { "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", 118, 3 },
        { "{'descr': '<f2', 'fortran_order': True, 'shape': (3, 1234567), }", 118, 7407402 },
        { "{'descr': '<i8', 'fortran_order': False, 'shape': (0, 4), }", 118, 0 },
        { "{'descr': '<c16', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)"
          ", }", 118, 16 },
        /* Prefix, 97 of dict, 20 of growth and the newline are 128: numpy then adds 64
         * more. */
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, "
          "123456), }", 182, 0 },
    };
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        size_t n = strlen(usual[i].dict), len = usual[i].length;
        unsigned char *file = calloc(1, 10 + len + usual[i].data);
        memset(file, ' ', 10 + len);
        memcpy(file, "\x93NUMPY\1\0", 8);
        tu_put16(file + 8, (uint16_t)len);
        memcpy(file + 10, usual[i].dict, n);
        file[10 + len - 1] = '\n';
        for (size_t k = 0; k < usual[i].data; k++)
            file[10 + len + k] = (unsigned char)(k % 251);
        const char *path = fix_write("usual.npy", file, 10 + len + usual[i].data);
        free(file);
        ok(restores(path, false, NULL), "numpy's header: %s", usual[i].dict);
    }
}

static void test_void(void)
{
    struct tu_open how = { .void_dtype = TU_BF16 };
    const char *path = make("{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }", 4);
    ok(holds(path, &how, TU_BF16,
             "{\"src\":{\"descr\":\"<V2\",\"format\":\"npy\",\"fortran_order\":false}}",
             "\0\0\0\0", 4),
       "V2 is bf16 when asked");
    ok(restores(path, true, &how), "and V2 again");

    static const uint64_t dim[] = { 2 };
    struct tu_tensor t = fix_tensor("b", TU_BF16, 1, dim);
    struct tu_save what = { .n = 1, .tensor = &t };
    struct tu_err err = { 0 };
    struct tu_sink *k = NULL;
    path = fix_path("raw.npy");
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_EDTYPE, "bf16 is refused");
    ok(strstr(err.msg, "'b'") && strstr(err.msg, "--npy-raw"), "said: %s", err.msg);
    what.npy_raw = true;
    ok(!fix_save(path, NULL, &what, NULL, &err), "unless raw");
    ok(holds(path, NULL, TU_U16, NULL, "\0\1\2\3", 4), "which writes u2");
    t = fix_tensor("b", TU_F8_E4M3FN, 1, dim);
    ok(!fix_save(path, NULL, &what, NULL, &err) && holds(path, NULL, TU_U8, NULL, "\0\1", 2),
       "or u1");
    t = fix_tensor("b", TU_I4, 1, dim);
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_EDTYPE, "i4 never");
    what.n = 0;
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_EUSAGE, "no tensor");
    t = fix_tensor("b", TU_U8, 1, dim);
    what.n = 1;
    what.keep_header = true;
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_EMETA, "no header was kept");
    t.meta = "{\"src\":{\"descr\":\"|u1\",\"format\":\"npy\",\"fortran_order\":false,\"header\":"
             "\"{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }\\n\",\"version\":1}}";
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_EMETA, "a kept header of another");
}

static void test_versions(void)
{
    static const char dict[] = "{'descr': '<u4', 'fortran_order': False, 'shape': (1,), }  \n";
    for (unsigned major = 1; major <= 3; major++) {
        char file[128] = "\x93NUMPY";
        size_t prefix = major == 1 ? 10 : 12, n = sizeof dict - 1;
        file[6] = (char)major;
        tu_put32(file + 8, (uint32_t)n);
        memcpy(file + prefix, dict, n);
        memcpy(file + prefix + n, "\1\2\3\4", 4);
        const char *path = fix_write("version.npy", file, prefix + n + 4);
        ok(holds(path, NULL, TU_U32,
                 "{\"src\":{\"descr\":\"<u4\",\"format\":\"npy\",\"fortran_order\":false}}",
                 "\1\2\3\4", 4), "version %u", major);
        ok(restores(path, true, NULL), "version %u restored", major);
        ok(restores(path, false, NULL), "unasked too");
    }
}

static void test_every_dtype(void)
{
    static const uint64_t dim[] = { 3, 5 };
    const struct tu_dtype *d;
    for (size_t i = 0; (d = tu_dtype_row(i)); i++) {
        if (!d->npy)
            continue;
        struct tu_tensor t = fix_tensor("every", d->code, 2, dim);
        struct tu_save what = { .n = 1, .tensor = &t };
        struct tu_err err = { 0 };
        const char *path = fix_path("every.npy");
        ok(!fix_save(path, NULL, &what, NULL, &err), "%s saved", d->name);
        struct tu_source *s = NULL;
        bool same = !tu_source_open(&s, path, NULL, NULL, NULL, &err);
        ok(same && s->tensor[0].dtype == d->code && fix_holds(s, 0, 0), "%s read back", d->name);
        tu_source_close(s);
    }
}

/* The tensor is called as its file; numpy's own name stands where that is no name. */
static void test_names(void)
{
    static const char *const rows[][2] = {
        { "bias.npy", "bias" }, { "bias", "bias" }, { ".npy", ".npy" }, { "a\nb.npy", "arr_0" },
    };
    char back[1024];
    size_t n;
    unsigned char *file = fix_read(make("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8), &n);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_source *s = NULL;
        ok(!tu_source_open(&s, fix_write(rows[i][0], file, n), NULL, NULL, NULL, NULL), "file %zu", i);
        eq_str(s ? s->tensor[0].name : NULL, rows[i][1], "its tensor");
        tu_source_close(s);
    }
    struct tu_source *s = NULL;
    if (!getcwd(back, sizeof back) || chdir(fix_folder))
        abort();
    ok(!tu_source_open(&s, "bias.npy", NULL, NULL, NULL, NULL), "a file without a folder");
    eq_str(s ? s->tensor[0].name : NULL, "bias", "its tensor");
    tu_source_close(s);
    free(file);
    if (chdir(back))
        abort();
}

static int inject_open(struct tu_err *err)
{
    struct tu_source *s = NULL;
    struct tu_open how = { .keep_header = true };
    int code = tu_source_open(&s, fix_path("fortran.npy"), NULL, &how, NULL, err);
    if (!code)
        tu_source_close(s);
    return code;
}

static int inject_save(struct tu_err *err)
{
    static const uint64_t dim[] = { 3 };
    struct tu_tensor t = fix_tensor("a", TU_U16, 1, dim);
    t.meta = "{\"src\":{\"descr\":\">u2\",\"format\":\"npy\",\"fortran_order\":false}}";
    struct tu_save what = { .n = 1, .tensor = &t };
    return fix_save(fix_path("inject.npy"), NULL, &what, NULL, err);
}

int main(void)
{
    test_worked_case();
    test_refused();
    test_orders();
    test_usual();
    test_void();
    test_versions();
    test_every_dtype();
    test_names();
    fix_inject(inject_open, true, "open");
    fix_inject(inject_open, false, "open");
    fix_inject(inject_save, true, "save");
    fix_inject(inject_save, false, "save");
    return tap_done();
}
