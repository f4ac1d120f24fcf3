/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of moving whole files: a source to a stream to a file without a spool gives what
 * the source gives directly; contents that lie are noticed. */
#include "fix.h"

static const uint64_t dim[] = { 3, 5 };

/* A safetensors file whose order of data is not that of the stream's names. */
static const char *original(void)
{
    static const uint64_t none[] = { 0, 9007199254740993 };
    const struct tu_tensor t[] = {
        fix_tensor("z", TU_F32, 2, dim), fix_tensor("a", TU_U8, 2, dim),
        fix_tensor("e", TU_BF16, 2, none),
    };
    struct tu_meta meta = { "safetensors", "{\"metadata\":{\"format\":\"pt\"}}", 0 };
    meta.n = strlen(meta.json);
    struct tu_save what = { .n = 3, .tensor = t, .metas = 1, .meta = &meta };
    const char *path = fix_path("original.safetensors");
    if (fix_save(path, NULL, &what, NULL, NULL))
        abort();
    return path;
}

static int to_stream(const char *from, const char *to, bool contents, struct tu_err *err)
{
    struct tu_source *s = NULL;
    struct tu_out *out = NULL;
    struct tu_writer *w = NULL;
    int code = tu_source_open(&s, from, NULL, NULL, NULL, err);
    if (code)
        return code;
    code = tu_out_open(&out, to, NULL, err);
    if (!code)
        code = tu_writer_new(&w, out, err);
    if (!code)
        code = tu_source_write(s, w, contents, NULL, err);
    if (!code)
        code = tu_writer_close(w, false, err);
    else
        tu_writer_abort(w);
    tu_source_close(s);
    return code;
}

/* Through tu_stream_save, as if it were a pipe. */
static int from_stream(const char *from, const char *to, struct tu_err *err)
{
    struct tu_in *in = NULL;
    const struct tu_save what = { 0 };
    int code = tu_in_open(&in, from, err);
    if (code)
        return code;
    if (!tu_stream_announced(in)) {
        tu_in_close(in);
        return tu_fail(err, TU_EIO, "%s: not announced", from); /* only an injected failure hides it */
    }
    return tu_stream_save(in, to, tu_format_of_path(to), &what, false, NULL, err);
}

static void test_through(void)
{
    struct tu_err err = { 0 };
    const char *path = original(), *stream = fix_path("s.tns"), *copy = fix_path("c.safetensors");
    if (!ok(!to_stream(path, stream, true, &err), "to a stream with contents"))
        printf("# %s\n", err.msg);
    struct tu_source *s = NULL;
    ok(!tu_source_open(&s, stream, NULL, NULL, NULL, &err) && s->metas == 2,
       "which holds two META");
    eq_str(s ? s->meta[0].topic : NULL, "contents", "contents first");
    eq_str(s ? s->meta[0].json : NULL,
           "{\"tensors\":[[\"z\",\"f32\",[3,5]],[\"e\",\"bf16\",[0,\"9007199254740993\"]],[\"a\",\"u8\",[3,5]]]}",
           "names, dtypes and shapes");
    tu_source_close(s);
    if (!ok(!from_stream(stream, copy, &err), "and back without a spool"))
        printf("# %s\n", err.msg);
    size_t n;
    unsigned char *want = fix_read(path, &n);
    ok(fix_same(copy, want, n), "byte for byte");
    ok(!tu_source_open(&s, stream, NULL, NULL, NULL, &err), "the same through a source");
    const struct tu_save what = { 0 };
    ok(!tu_source_save(s, copy, NULL, &what, false, NULL, &err) && fix_same(copy, want, n),
       "byte for byte too");
    tu_source_close(s);
    free(want);
}

/* Only META contents as the first record announces a stream; looking takes nothing. */
static void test_announced(void)
{
    static const struct { size_t at; int to; } changes[] = {
        { 0, 'x' }, { 10, 2 }, { 24, 7 }, { 26, 1 }, { 64, 'C' },
    };
    size_t n;
    unsigned char *whole = fix_read(fix_path("s.tns"), &n);
    for (size_t i = 0; i <= sizeof changes / sizeof *changes + 1; i++) {
        struct tu_in *in = NULL;
        unsigned char first = 0;
        size_t got;
        bool plain = i == 0, cut = i == 1;
        size_t at = i < 2 ? 0 : changes[i - 2].at;
        unsigned char old = whole[at];
        whole[at] = i < 2 ? old : (unsigned char)changes[i - 2].to;
        fix_write("looked.tns", whole, cut ? 70 : n);
        if (tu_in_open(&in, fix_path("looked.tns"), NULL))
            abort();
        ok(tu_stream_announced(in) == plain, "announced: change %zu", i);
        ok(!tu_in_read(in, &first, 1, &got, NULL) && first == whole[0], "the first byte is still there");
        tu_in_close(in);
        whole[at] = old;
    }
    free(whole);
}

/* Contents belong to one stream: they are written anew or not at all. */
static void test_contents(void)
{
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    for (int contents = 0; contents < 2; contents++) {
        ok(!to_stream(fix_path("s.tns"), fix_path("again.tns"), contents, &err) &&
               !tu_source_open(&s, fix_path("again.tns"), NULL, NULL, NULL, &err), "copied: %s", err.msg);
        eq_u64(s ? s->metas : 0, 1 + (size_t)contents, "META contents %s", contents ? "once" : "not");
        eq_str(s ? s->meta[contents].topic : NULL, "safetensors", "and the other");
        tu_source_close(s);
        s = NULL;
    }
}

/* A stream of the records that a case asks for. */
static const char *stream(const char *contents, const char *names, bool late)
{
    struct tu_err err = { 0 };
    struct tu_out *out = NULL;
    struct tu_writer *w = NULL;
    const char *path = fix_path("case.tns");
    static const uint64_t one[] = { 1 };
    int code = tu_out_open(&out, path, NULL, &err);
    if (!code)
        code = tu_writer_new(&w, out, &err);
    if (!code)
        code = tu_writer_meta(w, "contents", contents, strlen(contents), &err);
    for (; !code && *names; names++) {
        struct tu_tensor t = fix_tensor((char[2]){ *names, 0 }, TU_U8, 1, one);
        code = tu_writer_tensor(w, &t, names, &err);
    }
    if (!code && late)
        code = tu_writer_meta(w, "gguf", "{}", 2, &err);
    if (!code)
        code = tu_writer_end(w, false, &err);
    if (!code)
        code = tu_writer_close(w, false, &err);
    if (code) {
        printf("# %s\n", err.msg);
        abort();
    }
    return path;
}

static void test_lies(void)
{
    static const struct {
        const char *contents, *names;
        bool late;
        int code;
    } rows[] = {
        { "{\"tensors\":[[\"a\",\"u8\",[1]],[\"b\",\"u8\",[1]]]}", "ab", false, 0 },
        { "{\"tensors\":[[\"a\",\"u8\",[1]],[\"b\",\"u8\",[1]]]}", "ba", false, 0 },
        { "{\"tensors\":[[\"a\",\"u8\",[1]],[\"b\",\"u8\",[1]]]}", "a", false, TU_EINCOMPLETE },
        { "{\"tensors\":[[\"a\",\"u8\",[1]]]}", "ab", false, TU_EMETA },
        { "{\"tensors\":[[\"a\",\"u8\",[1]]]}", "aa", false, TU_EMETA },
        { "{\"tensors\":[[\"a\",\"u8\",[1]]]}", "a", true, TU_EMETA },
        { "{\"tensors\":[[\"a\",\"i8\",[1]]]}", "a", false, TU_EMETA },
        { "{\"tensors\":[[\"a\",\"u8\",[2]]]}", "a", false, TU_EMETA },
        { "{\"tensors\":[[\"a\",\"u8\",[1]],[\"a\",\"u8\",[1]]]}", "aa", false, TU_EUNSUP },
        { "{\"tensors\":[[\"a\",\"u9\",[1]]]}", "a", false, TU_EMETA },
        { "{\"tensors\":[[\"a\",\"u8\",[-1]]]}", "a", false, TU_EMETA },
        { "{\"tensors\":[[\"a\",\"u8\",1]]}", "a", false, TU_EMETA },
        { "{\"tensors\":[\"a\"]}", "a", false, TU_EMETA },
        { "{\"tensors\":1}", "a", false, TU_EMETA },
        { "{}", "", false, TU_EMETA },
        { "{\"tensors\":[]}", "", false, 0 },
        { "{\"tensors\":[[\"a\",\"u8\",[\"1\"]]]}", "a", false, 0 },
        { "{\"tensors\":[[\"a\",\"u8\",[\"x\"]]]}", "a", false, TU_EMETA },
        { "{\"tensors\":[[5,\"u8\",[1]]]}", "a", false, TU_EMETA },
        { "{\"tensors\":[[\"a\",5,[1]]]}", "a", false, TU_EMETA },
        { "{\"tensors\":[[\"a\",\"u8\",[1,1]]]}", "a", false, TU_EMETA },
        { "{\"tensors\":[[\"a\",\"u8\",[]]]}", "a", false, TU_EMETA },
        { "{\"tensors\":[[\"a\",\"u8\",[9223372036854775807]],[\"b\",\"u8\",[9223372036854775807]],"
          "[\"c\",\"u8\",[9223372036854775807]]]}", "a", false, TU_ESIZE },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_err err = { 0 };
        const char *path = stream(rows[i].contents, rows[i].names, rows[i].late);
        const char *to = fix_path("lies.safetensors");
        unlink(to);
        eq_int(from_stream(path, to, &err), rows[i].code, "%s of %s%s: %s", rows[i].names,
               rows[i].contents, rows[i].late ? " and META" : "", err.msg);
        if (rows[i].code)
            ok(access(to, F_OK) && strstr(err.msg, path), "no file, and the stream is named");
    }
}

static int inject(struct tu_err *err)
{
    return from_stream(fix_path("s.tns"), fix_path("c.safetensors"), err);
}

int main(void)
{
    test_through();
    test_announced();
    test_contents();
    test_lies();
    fix_inject(inject, true, "stream to file");
    fix_inject(inject, false, "stream to file");
    return tap_done();
}
