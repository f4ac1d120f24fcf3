/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of GGUF: files built field by field here, the hostile rows, every value type and
 * block format there and back, split sets. */
#include "fix.h"

#define FORMAT (tu_format_find("gguf"))

static struct tu_buf b; /* the file being built */

static void put(const void *p, size_t n)
{
    if (tu_buf_add(&b, p, n, NULL))
        abort();
}

static void u32(uint32_t v)
{
    unsigned char p[4];
    tu_put32(p, v);
    put(p, 4);
}

static void u64(uint64_t v)
{
    unsigned char p[8];
    tu_put64(p, v);
    put(p, 8);
}

static void text(const char *s)
{
    u64(strlen(s));
    put(s, strlen(s));
}

static void begin(uint32_t version, uint64_t tensors, uint64_t kvs)
{
    tu_buf_reset(&b);
    put("GGUF", 4);
    u32(version);
    u64(tensors);
    u64(kvs);
}

static void kv_text(const char *key, const char *value)
{
    text(key);
    u32(8);
    text(value);
}

static void kv_u32(const char *key, uint32_t value)
{
    text(key);
    u32(4);
    u32(value);
}

/* A tensor info; dimensions as GGUF has them, fastest first. */
static void info(const char *name, uint32_t rank, const uint64_t *ne, uint32_t type, uint64_t off)
{
    text(name);
    u32(rank);
    for (uint32_t k = 0; k < rank; k++)
        u64(ne[k]);
    u32(type);
    u64(off);
}

static void pad(size_t align)
{
    while (b.n % align)
        put("", 1);
}

static void data(size_t n)
{
    for (size_t i = 0; i < n; i++)
        put(&(unsigned char){ (unsigned char)i }, 1);
}

static const char *file(void)
{
    return fix_write("t.gguf", b.data, b.n);
}

static void refused(int code, const char *words, const char *what)
{
    fix_refused(file(), FORMAT, NULL, code, words, what);
}

/* Head of one tensor [2,3] f32 (GGUF order 3,2) and what else a case asks for. */
static void one(uint32_t type, uint32_t rank, const uint64_t *ne, uint64_t off)
{
    begin(3, 1, 1);
    kv_text("general.architecture", "test");
    info("w", rank, ne, type, off);
}

static void test_refused(void)
{
    static const uint64_t ok2[] = { 3, 2 };
    one(0, 2, ok2, 0);
    pad(32);
    data(23);
    refused(TU_ETRUNC, "'w'|incomplete|found", "a byte of data missing");
    for (size_t n = 0; n < b.n; n += 7) {
        struct tu_err err = { 0 };
        struct tu_source *s = NULL;
        int code = tu_source_open(&s, fix_write("cut.gguf", b.data, n), FORMAT, NULL, NULL, &err);
        if (code != TU_ETRUNC)
            ok(false, "cut at %zu: %s %s", n, tu_err_name(code), err.msg);
    }
    begin(1, 0, 0);
    refused(TU_EVERSION, "version 1|2 or 3", "version 1");
    begin(0x03000000, 0, 0);
    refused(TU_EUNSUP, "big-endian", "another byte order");
    tu_buf_reset(&b);
    put("GGUX\3\0\0\0", 8);
    refused(TU_EMAGIC, "GGUF", "another magic");
    begin(3, UINT64_C(1) << 60, 0);
    refused(TU_ETRUNC, "1152921504606846976 tensors", "more tensors than bytes");
    begin(3, 0, UINT64_C(1) << 60);
    refused(TU_ETRUNC, "1152921504606846976 keys", "more keys than bytes");

    one(0, 5, (uint64_t[]){ 1, 1, 1, 1, 1 }, 0);
    refused(TU_ELIMIT, "'w'|5 dimensions", "five dimensions");
    one(0, 1, (uint64_t[]){ (UINT64_C(1) << 42) + 1 }, 0);
    refused(TU_ETRUNC, "'w'|ends at byte 17592186044", "2^42+1 elements");
    one(2, 1, (uint64_t[]){ (UINT64_C(1) << 42) + 1 }, 0);
    refused(TU_ESIZE, "'w'", "2^42+1 elements of blocks of 32");
    one(0, 2, (uint64_t[]){ INT64_MAX, 2 }, 0);
    refused(TU_ELIMIT, "'w'", "INT64_MAX times 2");
    one(0, 2, (uint64_t[]){ UINT64_C(1) << 32, UINT64_C(1) << 32 }, 0);
    refused(TU_ESIZE, "'w'", "a product that wraps");
    one(0, 1, (uint64_t[]){ UINT64_MAX }, 0);
    refused(TU_ELIMIT, "'w'", "a negative dimension");
    one(24, 1, (uint64_t[]){ INT64_MAX }, 0);
    refused(TU_ETRUNC, "'w'", "a size that wraps to 0 when padded");
    one(4, 1, (uint64_t[]){ 32 }, 0);
    refused(TU_EDTYPE, "'w'|type 4", "a type that was removed");
    one(1000000, 1, (uint64_t[]){ 32 }, 0);
    refused(TU_EDTYPE, "'w'|type 1000000", "a type that is not known");
    one(0, 2, ok2, 32);
    refused(TU_EFORMAT, "'w'|at 32|expected 0", "a hole before the first tensor");
    begin(3, 2, 1);
    kv_text("general.architecture", "test");
    info("a", 1, (uint64_t[]){ 3 }, 0, 0);
    info("b", 1, (uint64_t[]){ 3 }, 0, 12);
    refused(TU_EFORMAT, "'b'|at 12|expected 32", "an offset that is not padded");
    begin(3, 2, 1);
    kv_text("general.architecture", "test");
    info("a", 1, (uint64_t[]){ 3 }, 0, 0);
    info("a", 1, (uint64_t[]){ 3 }, 0, 32);
    pad(32);
    data(64);
    refused(TU_EFORMAT, "two tensors are named 'a'", "a name twice");
    begin(3, 1, 0);
    text("0123456789012345678901234567890123456789012345678901234567890123");
    data(64);
    refused(TU_ELIMIT, "64 bytes|at most 63", "a name of 64 bytes");
    begin(3, 1, 0);
    text("a\nb");
    data(64);
    refused(TU_ENAME, "byte 33|control", "a name with a newline");
    begin(3, 1, 0);
    text("");
    data(64);
    refused(TU_ENAME, "empty", "no name");
}

static void test_refused_values(void)
{
    static const uint32_t aligns[] = { 0, 3, 4, 48 };
    for (size_t i = 0; i < 4; i++) {
        begin(3, 0, 1);
        kv_u32("general.alignment", aligns[i]);
        char words[64];
        snprintf(words, sizeof words, "alignment is %u", aligns[i]);
        refused(TU_EFORMAT, words, "alignment");
    }
    begin(3, 0, 1);
    kv_text("general.alignment", "32");
    refused(TU_EFORMAT, "a u32", "alignment of another type");
    begin(3, 0, 2);
    kv_u32("k", 1);
    kv_u32("k", 2);
    refused(TU_EFORMAT, "'k' stands twice", "a key twice");
    begin(3, 0, 1);
    text("k");
    u32(13);
    u64(0);
    refused(TU_EFORMAT, "type 13", "an unknown type");
    begin(3, 0, 1);
    text("k");
    u32(7);
    put("\2\0\0\0\0\0\0\0", 8);
    refused(TU_EFORMAT, "bool is 2", "a bool of 2");
    begin(3, 0, 1);
    text("k");
    u32(8);
    u64(UINT64_C(1) << 60);
    refused(TU_ELIMIT, "1152921504606846976 bytes", "a text of 2^60");
    begin(3, 0, 1);
    text("k");
    u32(8);
    u64(UINT64_C(1) << 29);
    refused(TU_ETRUNC, "text", "a text past the end");
    begin(3, 0, 1);
    text("k");
    u32(9);
    u32(9);
    u64(1);
    refused(TU_EUNSUP, "array of arrays", "nested arrays");
    begin(3, 0, 1);
    text("k");
    u32(9);
    u32(4);
    u64((UINT64_C(1) << 30) + 1);
    refused(TU_ELIMIT, "1073741825 elements", "an array over 2^30");
    begin(3, 0, 1);
    text("k");
    u32(9);
    u32(10);
    u64(UINT64_C(1) << 29);
    refused(TU_ETRUNC, "array", "an array past the end");
    begin(3, 0, 1);
    u64(65536);
    data(66000);
    refused(TU_ELIMIT, "a key of 65536", "a key over 65535");
    begin(3, 0, 1);
    text("\xff");
    data(20);
    refused(TU_ENAME, "byte 32|UTF-8", "a key that is no UTF-8");
}

/* Every type, alone and in arrays; what JSON cannot hold as hex. */
static void test_values(void)
{
    static const struct {
        unsigned type;
        const void *bytes;
        size_t n;
        const char *json;
    } v[] = {
        { 0, "\xff", 1, "255" },
        { 1, "\x80", 1, "-128" },
        { 2, "\xff\xff", 2, "65535" },
        { 3, "\0\x80", 2, "-32768" },
        { 4, "\xff\xff\xff\xff", 4, "4294967295" },
        { 5, "\0\0\0\x80", 4, "-2147483648" },
        { 6, "\xcd\xcc\xcc\x3d", 4, "0.10000000149011612" },
        { 6, "\0\0\xc0\x7f", 4, "{\"hex\":\"0000c07f\"}" },
        { 6, "\0\0\0\x80", 4, "-0.0" },
        { 7, "\1", 1, "true" },
        { 7, "\0", 1, "false" },
        { 8, "\3\0\0\0\0\0\0\0\xc3\xa4\n", 11, "\"\xc3\xa4\\n\"" },
        { 8, "\2\0\0\0\0\0\0\0\xc3\x28", 10, "{\"hex\":\"c328\"}" },
        { 8, "\2\0\0\0\0\0\0\0a\0", 10, "{\"hex\":\"6100\"}" },
        { 8, "\0\0\0\0\0\0\0\0", 8, "\"\"" },
        { 10, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, "\"18446744073709551615\"" },
        { 10, "\0\0\0\0\0\0\x20\0", 8, "9007199254740992" },
        { 11, "\0\0\0\0\0\0\0\x80", 8, "\"-9223372036854775808\"" },
        { 12, "\x9a\x99\x99\x99\x99\x99\xb9\x3f", 8, "0.1" },
        { 12, "\0\0\0\0\0\0\xf0\xff", 8, "{\"hex\":\"000000000000f0ff\"}" },
    };
    enum { N = sizeof v / sizeof *v };
    struct tu_buf want = { 0 };
    begin(3, 0, 2 * N + 1);
    if (tu_buf_text(&want, "{", NULL))
        abort();
    for (unsigned i = 0; i < N; i++) {
        char key[16];
        snprintf(key, sizeof key, "a%02u", i);
        text(key);
        u32(9);
        u32(v[i].type);
        u64(2);
        put(v[i].bytes, v[i].n);
        put(v[i].bytes, v[i].n);
        if (tu_buf_printf(&want, NULL, "\"%s\":[9,[%u,[%s,%s]]],", key, v[i].type, v[i].json,
                          v[i].json))
            abort();
    }
    kv_text("general.architecture", "t");
    if (tu_buf_text(&want, "\"general.architecture\":[8,\"t\"]", NULL))
        abort();
    for (unsigned i = 0; i < N; i++) {
        char key[16];
        snprintf(key, sizeof key, "v%02u", i);
        text(key);
        u32(v[i].type);
        put(v[i].bytes, v[i].n);
        if (tu_buf_printf(&want, NULL, ",\"%s\":[%u,%s]", key, v[i].type, v[i].json))
            abort();
    }
    if (tu_buf_text(&want, "}", NULL))
        abort();
    pad(32);
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    const char *path = file();
    if (!ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "every value is read")) {
        printf("# %s\n", err.msg);
        return;
    }
    eq_str(s->metas == 1 ? s->meta[0].json : NULL, want.data, "as JSON");
    struct tu_save what = { .metas = s->metas, .meta = s->meta };
    const char *copy = fix_path("copy.gguf");
    if (!ok(!fix_save(copy, NULL, &what, NULL, &err), "and written"))
        printf("# %s\n", err.msg);
    ok(fix_same(copy, b.data, b.n), "as it was, keys having stood in order");
    tu_source_close(s);
    tu_buf_release(&want);
}

/* A file by hand, then the same tensors and META through the sink. */
static void test_tensors(void)
{
    begin(3, 3, 2);
    kv_u32("general.alignment", 64);
    kv_text("general.architecture", "test");
    info("w", 2, (uint64_t[]){ 3, 2 }, 0, 0);
    info("q", 3, (uint64_t[]){ 64, 1, 2 }, 2, 64);
    info("s", 0, NULL, 28, 192);
    pad(64);
    size_t start = b.n;
    data(24);
    pad(64);
    data(72);
    pad(64);
    data(8);
    pad(64);
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    const char *path = file();
    if (!ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "opened by sniffing")) {
        printf("# %s\n", err.msg);
        return;
    }
    eq_u64(s->n, 3, "three tensors");
    ok(s->tensor[0].rank == 2 && s->tensor[0].dim[0] == 2 && s->tensor[0].dim[1] == 3,
       "dimensions are turned around");
    eq_u64(s->tensor[1].dtype, TU_Q4_0, "a block format");
    eq_u64(s->tensor[1].bytes, 72, "of 4 blocks");
    eq_u64(s->tensor[2].rank, 0, "a scalar");
    eq_u64(s->extent[1].off, start + 64, "data where it lies");
    ok(fix_holds(s, 0, 0) && fix_holds(s, 1, 0) && fix_holds(s, 2, 0), "bytes read");
    struct tu_meta more = { "gguf", "{\"general.quantization_version\":[4,2]}", 0 };
    more.n = strlen(more.json);
    struct tu_meta metas[2] = { s->meta[0], more };
    struct tu_save what = { .n = 3, .tensor = s->tensor, .metas = 1, .meta = metas };
    const char *copy = fix_path("copy.gguf"), *twice = fix_path("twice.gguf");
    ok(!fix_save(copy, NULL, &what, NULL, &err), "written");
    what.metas = 2;
    ok(!fix_save(twice, NULL, &what, NULL, &err), "written with the quantization version given");
    size_t n;
    unsigned char *have = fix_read(copy, &n);
    ok(fix_same(twice, have, n), "which is added where blocks need it");
    eq_u64(n % 64, 0, "the alignment asked for is kept");
    free(have);
    tu_source_close(s);
    ok(!tu_source_open(&s, copy, NULL, NULL, NULL, &err), "read back");
    eq_str(s->meta[0].json, "{\"general.alignment\":[4,64],\"general.architecture\":[8,\"test\"],"
           "\"general.quantization_version\":[4,2]}", "with its keys");
    tu_source_close(s);
}

static void test_every_dtype(void)
{
    static const uint64_t dim[] = { 2, 256 };
    struct tu_tensor t[80];
    size_t n = 0, skipped = 0;
    const struct tu_dtype *d;
    for (size_t i = 0; (d = tu_dtype_row(i)); i++) {
        if (FORMAT->dtype_ok(d->code))
            t[n++] = fix_tensor(d->name, d->code, 2, dim);
        else
            skipped++;
    }
    eq_u64(n, 8 + 27, "8 plain types and 27 block formats");
    ok(skipped > 0, "others are refused");
    struct tu_meta meta = { "gguf", "{\"general.architecture\":[8,\"t\"]}", 0 };
    meta.n = strlen(meta.json);
    struct tu_save what = { .n = n, .tensor = t, .metas = 1, .meta = &meta };
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    const char *path = fix_path("every.gguf");
    if (!ok(!fix_save(path, NULL, &what, NULL, &err), "all saved"))
        printf("# %s\n", err.msg);
    bool same = !tu_source_open(&s, path, NULL, NULL, NULL, &err) && s->n == n;
    for (size_t i = 0; same && i < n; i++)
        same = s->tensor[i].dtype == t[i].dtype && fix_holds(s, i, i);
    ok(same, "all read back");
    tu_source_close(s);
}

static void test_sink_rules(void)
{
    static const uint64_t dim[] = { 1, 1, 1, 1, 2 }, none[] = { 0 };
    struct tu_meta meta = { "gguf", "{\"general.architecture\":[8,\"t\"]}", 0 };
    struct tu_tensor t = fix_tensor("w", TU_F32, 5, dim);
    struct tu_save what = { .n = 1, .tensor = &t, .metas = 1, .meta = &meta };
    struct tu_err err = { 0 };
    struct tu_sink *k = NULL;
    const char *path = fix_path("rules.gguf");
    meta.n = strlen(meta.json);
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_ESIZE, "five dimensions");
    t = fix_tensor("w", TU_F32, 1, none);
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_ESIZE, "an empty tensor");
    t = fix_tensor("0123456789012345678901234567890123456789012345678901234567890123", TU_F32, 0,
                   NULL);
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_ENAME, "a name of 64 bytes");
    t = fix_tensor("w", TU_BOOL, 0, NULL);
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_EDTYPE, "bool");
    what.n = 0;
    what.metas = 0;
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_EMETA, "no architecture");
    static const char *const bad[] = {
        "{\"general.architecture\":\"t\"}",      "{\"general.architecture\":[8,\"t\",1]}",
        "{\"general.architecture\":[8,1]}",      "{\"general.architecture\":[13,1]}",
        "{\"general.architecture\":[0,256]}",    "{\"general.architecture\":[0,-1]}",
        "{\"general.architecture\":[1,128]}",    "{\"general.architecture\":[1,-129]}",
        "{\"general.architecture\":[10,\"18446744073709551616\"]}",
        "{\"general.architecture\":[10,\"-1\"]}",
        "{\"general.architecture\":[11,\"9223372036854775808\"]}",
        "{\"general.architecture\":[6,0.1]}",    "{\"general.architecture\":[6,1e39]}",
        "{\"general.architecture\":[6,{\"hex\":\"00\"}]}",
        "{\"general.architecture\":[8,{\"hex\":\"0\"}]}",
        "{\"general.architecture\":[8,{\"hex\":\"zz\"}]}",
        "{\"general.architecture\":[7,1]}",      "{\"general.architecture\":[9,[9,[]]]}",
        "{\"general.architecture\":[9,[8,1]]}",  "{\"general.architecture\":[9,[8,[1]]]}",
        "{\"general.architecture\":[0,1.0]}",
        "{\"general.architecture\":5}",         "{\"general.architecture\":[\"8\",\"t\"]}",
        "{\"general.architecture\":[-1,1]}",    "{\"general.architecture\":[1,\"-x\"]}",
        "{\"general.architecture\":[0,\"-1\"]}", "{\"general.architecture\":[0,\"x\"]}",
        "{\"general.architecture\":[0,null]}",  "{\"general.architecture\":[6,null]}",
        "{\"general.architecture\":[6,\"x\"]}", "{\"general.architecture\":[7,null]}",
        "{\"general.architecture\":[8,null]}",  "{\"general.architecture\":[9,null]}",
        "{\"general.architecture\":[9,[8]]}",   "{\"general.architecture\":[9,[13,[]]]}",
        "{\"general.architecture\":[9,[\"8\",[]]]}",
        "{\"general.architecture\":[8,\"t\"],\"general.alignment\":[10,4294967296]}",
        "{\"general.architecture\":[8,\"t\"],\"general.alignment\":[4,48]}",
    };
    what.metas = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        meta.json = bad[i];
        meta.n = strlen(bad[i]);
        eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_EMETA, "refused: %s", bad[i]);
    }
}

/* Texts for integers, hex for floats and importance matrices, which have no architecture. */
static void test_sink_forms(void)
{
    static const char *const good[] = {
        "{\"general.architecture\":[8,\"t\"],\"a\":[1,\"-5\"],\"b\":[10,\"18446744073709551615\"],"
        "\"c\":[11,\"-9223372036854775808\"],\"d\":[6,{\"hex\":\"0000c07f\"}],\"e\":[12,2.5],\"f\":[6,1]}",
        "{\"general.type\":[8,\"imatrix\"]}",
        "{\"split.no\":[2,1]}",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const struct tu_meta meta = { "gguf", good[i], strlen(good[i]) };
        const struct tu_save what = { .metas = 1, .meta = &meta };
        struct tu_err err = { 0 };
        ok(!fix_save(fix_path("forms.gguf"), NULL, &what, NULL, &err), "written: %s %s", good[i], err.msg);
    }
    struct tu_source *s = NULL;
    struct tu_meta meta = { "gguf", good[0], strlen(good[0]) };
    const struct tu_save what = { .metas = 1, .meta = &meta };
    ok(!fix_save(fix_path("forms.gguf"), NULL, &what, NULL, NULL) &&
           !tu_source_open(&s, fix_path("forms.gguf"), NULL, NULL, NULL, NULL), "read again");
    eq_str(s ? s->meta[0].json : NULL,
           "{\"a\":[1,-5],\"b\":[10,\"18446744073709551615\"],\"c\":[11,\"-9223372036854775808\"],"
           "\"d\":[6,{\"hex\":\"0000c07f\"}],\"e\":[12,2.5],\"f\":[6,1.0],\"general.architecture\":[8,\"t\"]}",
           "the same values");
    tu_source_close(s);
}

/* A pipe gets the padding between tensors as the file has it; an order of keys may name some that
 * are not there, or be no names. */
static void test_sink_order(void)
{
    static const uint64_t three[] = { 3 };
    const struct tu_tensor t[] = { fix_tensor("a", TU_I8, 1, three), fix_tensor("b", TU_I8, 1, three) };
    struct tu_meta meta[] = { { "gguf", "{\"a\":[4,1],\"general.architecture\":[8,\"t\"],\"z\":[4,2]}", 0 },
                              { "gguf_order", "{\"keys\":[\"z\",5,\"gone\",\"a\"]}", 0 } };
    const struct tu_save what = { .n = 2, .tensor = t, .metas = 2, .meta = meta };
    const char *path = fix_path("order.gguf");
    struct tu_err err = { 0 };
    struct tu_sink *k = NULL;
    char name[32];
    int fd[2];
    for (int i = 0; i < 2; i++)
        meta[i].n = strlen(meta[i].json);
    ok(!fix_save(path, NULL, &what, (const void *[]){ "abc", "def" }, &err), "in a file: %s", err.msg);
    size_t n, got = 0;
    unsigned char *file = fix_read(path, &n), have[512];
    /* magic, version, two counts, then the keys: 8 bytes of length before each text */
    ok(n < sizeof have && file[32] == 'z' && file[49] == 'a', "z first, then a");
    if (pipe(fd))
        abort();
    snprintf(name, sizeof name, "/dev/fd/%d", fd[1]);
    int code = tu_sink_open(&k, name, tu_format_find("gguf"), &what, NULL, &err);
    if (!code)
        code = tu_sink_write(k, 0, 0, "abc", 3, &err);
    if (!code)
        code = tu_sink_write(k, 1, 0, "def", 3, &err);
    ok(!code && !tu_sink_finish(k, false, &err), "in a pipe: %s", err.msg);
    close(fd[1]);
    for (ssize_t r; (r = read(fd[0], have + got, sizeof have - got)) > 0;)
        got += (size_t)r;
    close(fd[0]);
    ok(got == n && !memcmp(have, file, n), "the same bytes");
    free(file);
    meta[0].json = "{\"a\":[4,-1],\"general.architecture\":[8,\"t\"]}";
    meta[0].n = strlen(meta[0].json);
    eq_int(tu_sink_open(&k, path, NULL, &what, NULL, &err), TU_EMETA, "a listed key of a bad value");
}

/* More than 16 MiB of keys: one META each; a single one that is larger is refused. */
static void test_large(void)
{
    char *value = malloc((9u << 20) + 1);
    memset(value, 'x', 9u << 20);
    value[9u << 20] = 0;
    begin(3, 0, 3);
    kv_text("a", value);
    kv_text("b", value);
    kv_text("general.architecture", "t");
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    if (!ok(!tu_source_open(&s, file(), NULL, NULL, NULL, &err), "18 MiB of keys"))
        printf("# %s\n", err.msg);
    eq_u64(s ? s->metas : 0, 3, "are three META records");
    tu_source_close(s);
    begin(3, 0, 1);
    text("k");
    u32(9);
    u32(8);
    u64(2);
    text(value);
    text(value);
    refused(TU_ELIMIT, "'k'|16 MiB", "one value of 18 MiB");
    free(value);
}

static const char *split(unsigned no, unsigned count, unsigned tensors, const char *name,
                         unsigned named)
{
    begin(3, 1, no ? 3 : 4);
    if (!no)
        kv_text("general.architecture", "t");
    text("split.no");
    u32(2);
    put(&(unsigned char[2]){ (unsigned char)no, 0 }, 2);
    text("split.count");
    u32(2);
    put(&(unsigned char[2]){ (unsigned char)count, 0 }, 2);
    text("split.tensors.count");
    u32(5);
    u32(tensors);
    info(name, 1, (uint64_t[]){ 4 }, 24, 0);
    pad(32);
    data(4);
    char file_name[64];
    snprintf(file_name, sizeof file_name, "m-%05u-of-%05u.gguf", named + 1, count);
    return fix_write(file_name, b.data, b.n);
}

static void test_split(void)
{
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    const char *first = split(0, 3, 3, "a", 0);
    fix_refused(first, FORMAT, NULL, TU_EIO, "", "no second file");
    split(1, 3, 3, "b", 1);
    const char *last = split(2, 3, 3, "c", 2);
    if (!ok(!tu_source_open(&s, first, NULL, NULL, NULL, &err), "three files open as one")) {
        printf("# %s\n", err.msg);
        return;
    }
    eq_u64(s->n, 3, "with their tensors");
    ok(!strcmp(s->tensor[2].name, "c") && fix_holds(s, 2, 0), "of the last file too");
    eq_str(s->meta[0].json, "{\"general.architecture\":[8,\"t\"]}", "the split keys are gone");
    tu_source_close(s);
    fix_refused(last, FORMAT, NULL, TU_EINCOMPLETE, "split 3 of 3|open the first", "the last");
    split(2, 3, 3, "b", 1);
    fix_refused(first, FORMAT, NULL, TU_EINCOMPLETE, "split 3 of 3, expected 2 of 3", "mixed up");
    split(1, 3, 3, "b", 1);
    split(0, 3, 4, "a", 0);
    fix_refused(first, FORMAT, NULL, TU_EINCOMPLETE, "3 tensors|split.tensors.count is 4",
                "a tensor too few");
    split(0, 3, 3, "a", 0);
    fix_refused(fix_write("other.gguf", b.data, b.n), FORMAT, NULL, TU_EINCOMPLETE,
                "-00001-of-00003.gguf", "a name without numbers");
}

/* Written sets: where they are cut, and that they open as what they were. */
static void test_save_split(void)
{
    static const char meta[] = "{\"general.architecture\":[8,\"t\"]}";
    static const uint64_t four[] = { 4 }, ten[] = { 10 };
    struct tu_tensor t[4];
    const struct tu_meta m = { "gguf", meta, sizeof meta - 1 };
    struct tu_sink *sink = NULL;
    struct tu_source *s = NULL;
    struct tu_err err = { 0 };
    unsigned char bytes[40];
    for (unsigned i = 0; i < 4; i++)
        t[i] = (struct tu_tensor){ .name = (const char *[]){ "a", "b", "c", "d" }[i],
                                   .dtype = TU_F32, .rank = 1, .dim = i == 2 ? ten : four,
                                   .bytes = i == 2 ? 40 : 16 };
    const struct tu_save what = { .n = 4, .tensor = t, .metas = 1, .meta = &m, .max_shard = 32 };
    const char *path = fix_path("set.gguf");
    if (!ok(!tu_sink_open(&sink, path, tu_format_find("gguf"), &what, NULL, &err), "a set is begun")) {
        printf("# %s\n", err.msg);
        return;
    }
    int code = 0;
    for (unsigned i = 0; !code && i < 4; i++) {
        memset(bytes, (int)i + 1, sizeof bytes);
        code = tu_sink_write(sink, i, 0, bytes, (size_t)t[i].bytes, &err);
    }
    code = code ? code : tu_sink_finish(sink, false, &err);
    eq_int(code, 0, "and finished");
    /* 16 + 16 fill a file, 40 is over it alone, 16 is left. */
    code = tu_source_open(&s, fix_path("set-00001-of-00003.gguf"), NULL, NULL, NULL, &err);
    if (!ok(!code, "three files open as one")) {
        printf("# %s\n", err.msg);
        return;
    }
    eq_u64(s->n, 4, "with all tensors");
    eq_str(s->meta[0].json, meta, "and the keys of the model");
    bool same = true;
    for (unsigned i = 0; i < 4 && i < s->n; i++) {
        unsigned char got[40];
        same = same && !strcmp(s->tensor[i].name, t[i].name) && s->tensor[i].bytes == t[i].bytes &&
               !tu_source_read(s, i, 0, got, (size_t)t[i].bytes, &err) && got[0] == i + 1 &&
               got[t[i].bytes - 1] == i + 1;
    }
    ok(same, "in their order, with their bytes");
    tu_source_close(s);
    eq_int(tu_sink_open(&sink, "-", tu_format_find("gguf"), &what, NULL, &err), TU_EUSAGE,
           "a pipe is no set");
}

static int inject_open(struct tu_err *err)
{
    struct tu_source *s = NULL;
    int code = tu_source_open(&s, fix_path("m-00001-of-00003.gguf"), NULL, NULL, NULL, err);
    if (!code)
        tu_source_close(s);
    return code;
}

static int inject_save(struct tu_err *err)
{
    static const uint64_t dim[] = { 32 };
    struct tu_tensor t = { "a", TU_Q8_0, 1, dim, 34, NULL };
    struct tu_meta meta = { "gguf", "{\"general.architecture\":[8,\"t\"],\"x\":[9,[8,[{\"hex\":"
                            "\"ff\"}]]]}", 0 };
    meta.n = strlen(meta.json);
    struct tu_save what = { .n = 1, .tensor = &t, .metas = 1, .meta = &meta };
    return fix_save(fix_path("inject.gguf"), NULL, &what, NULL, err);
}

int main(void)
{
    test_refused();
    test_refused_values();
    test_values();
    test_tensors();
    test_every_dtype();
    test_sink_rules();
    test_large();
    test_sink_forms();
    test_sink_order();
    test_split();
    test_save_split();
    fix_inject(inject_save, true, "save");
    fix_inject(inject_save, false, "save");
    fix_inject(inject_open, true, "open");
    fix_inject(inject_open, false, "open");
    tu_buf_release(&b);
    return tap_done();
}
