/* SPDX-License-Identifier: Apache-2.0 */
/* front: what every format's files share: the table, ranges, checksums, jobs that stop, views,
 * small files of folders, differences. */
#include "fix.h"

static const uint64_t six = 6;
static const char *file;

/* "a" of six bytes 0…5 and "b" of six 1…6, with checksums. */
static void make_file(void)
{
    const struct tu_tensor t[] = { fix_tensor("a", TU_U8, 1, &six), fix_tensor("b", TU_U8, 1, &six) };
    const struct tu_save what = { .n = 2, .tensor = t };
    file = strdup(fix_path("two.npz"));
    if (!file || fix_save(file, NULL, &what, NULL, NULL))
        abort();
}

static struct tu_source *source(const struct tu_open *how)
{
    struct tu_source *s = NULL;
    struct tu_err err;
    if (tu_source_open(&s, file, NULL, how, NULL, &err)) {
        printf("Bail out! %s\n", err.msg);
        exit(1);
    }
    return s;
}

/* Opening ----------------------------------------------------------------------------------- */

static void table(void)
{
    static const struct { const char *path, *name; } rows[] = {
        { "x.safetensors", "safetensors" }, { "a.b.npy", "npy" }, { "x.ckpt", "torch" }, { "x.gguf", "gguf" },
        { "x.tns", "tns" }, { ".npy", NULL }, { "npy", NULL }, { "x.npyx", NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct tu_format *f = tu_format_of_path(rows[i].path);
        eq_str(f ? f->name : NULL, rows[i].name, "format of %s", rows[i].path);
    }
    for (const struct tu_format *const *f = tu_formats; *f; f++)
        ok(tu_format_find((*f)->name) == *f && *(*f)->help, "row %s", (*f)->name);
    ok(!tu_format_find("onnx"), "onnx is none");
}

static void strangers(void)
{
    static const struct { const char *head; size_t n; const char *words; } rows[] = {
        { "\x1f\x8b", 2, "gzip" }, { "\x28\xb5\x2f\xfd", 4, "zstd" }, { "\xfd" "7zXZ", 5, "xz file" },
        { "BZh9", 4, "bzip2" }, { "\x89HDF", 4, "HDF5" }, { "ARROW1", 6, "Arrow" }, { "PAR1", 4, "Parquet" },
        { "version https://git-lfs.github.com/spec/v1", 42, "Git LFS pointer: fetch" },
        { "<!DOCTYPE html>", 15, "HTML page" }, { "<html>", 6, "HTML page" },
        { "\1\2\3", 3, "begins with bytes 010203" },
        { "0123456789", 10, "begins with bytes 3031323334353637" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fix_refused(fix_write("stranger", rows[i].head, rows[i].n), NULL, NULL, TU_EMAGIC, rows[i].words,
                    rows[i].words);
    fix_refused(fix_write("stranger", "", 0), NULL, NULL, TU_EEMPTY, "empty", "no bytes");
    fix_refused(fix_path("absent"), NULL, NULL, TU_EIO, "absent", "no file");
    if (mkdir(fix_path("folder"), 0777))
        abort();
    fix_refused(fix_path("folder"), NULL, NULL, TU_EMAGIC, "a folder without tensor files", "a folder");
    fix_refused(fix_path("folder"), tu_format_find("npy"), NULL, TU_EMAGIC, "a folder, expected a npy file",
                "a folder as npy");
    struct tu_open keep = { .keep_header = true };
    fix_refused(file, NULL, &keep, TU_EUSAGE, "has no header to keep", "no header to keep");
}

static void ranges(void)
{
    struct tu_source *s = source(NULL);
    struct tu_err err = { 0 };
    char p[8];
    eq_int(tu_source_read(s, 2, 0, p, 1, &err), TU_EBUG, "tensor 2 of 2: %s", err.msg);
    eq_int(tu_source_read(s, 0, 7, p, 0, &err), TU_EBUG, "byte 7: %s", err.msg);
    eq_int(tu_source_read(s, 0, 3, p, 4, &err), TU_EBUG, "to byte 7: %s", err.msg);
    eq_int(tu_source_read(s, 0, 6, p, 0, &err), 0, "nothing at the end");
    eq_int(tu_source_verify(s, 2, NULL, &err), TU_EBUG, "tensor 2 verified");
    ok(tu_source_summed(s, 1) && !tu_source_summed(s, 2), "what has a checksum");
    tu_mem_inject(1, 0);
    eq_u64(tu_source_find(s, "b"), 1, "found without memory for an index");
    tu_mem_inject(2, 0);
    eq_u64(tu_source_find(s, "c"), SIZE_MAX, "not found, without memory");
    tu_mem_inject(0, 0);
    eq_u64(tu_source_find(s, "b"), 1, "found by the index");
    tu_source_close(s);
    const struct tu_open no_crc = { .no_crc = true };
    s = source(&no_crc);
    ok(!tu_source_summed(s, 0) && !tu_source_verify(s, 0, NULL, &err), "nothing is verified when not asked for");
    tu_source_close(s);
    tu_source_close(NULL);
}

static void damage(void)
{
    struct tu_err err = { 0 };
    struct tu_difference d;
    size_t n;
    unsigned char *p = fix_read(file, &n);
    for (size_t i = 0; i + 6 <= n; i++)
        if (!memcmp(p + i, "\1\2\3\4\5\6", 6) && p[i - 1] == '\n')
            p[i + 2] ^= 0x80;
    const char *bad = fix_write("bad.npz", p, n), *good = file;
    free(p);
    struct tu_source *a = source(NULL);
    file = bad;
    struct tu_source *b = source(NULL);
    eq_int(tu_source_verify(b, 1, NULL, &err), TU_EPCRC, "a bit: seen by verify");
    eq_int(tu_source_compare(&d, b, 1, a, 1, NULL, NULL, &err), TU_EPCRC, "by compare");
    eq_int(tu_source_compare(&d, a, 1, b, 1, NULL, NULL, &err), TU_EPCRC, "on either side");
    const struct tu_save what = { 0 };
    eq_int(tu_source_save(b, fix_path("copy.npy"), tu_format_find("tns"), &what, false, NULL, &err), TU_EPCRC,
           "and by a copy: %s", err.msg);
    ok(access(fix_path("copy.npy"), F_OK), "which leaves no file");
    tu_source_close(a);
    tu_source_close(b);
    file = good;
}

/* Sinks --------------------------------------------------------------------------------------- */

static void sinks(void)
{
    struct tu_err err = { 0 };
    struct tu_sink *s = NULL;
    struct tu_tensor t[2] = { fix_tensor("a", TU_U8, 1, &six), fix_tensor("a", TU_U8, 1, &six) };
    struct tu_save what = { .n = 1, .tensor = t };
    eq_int(tu_sink_open(&s, fix_path("x.foo"), NULL, &what, NULL, &err), TU_EUSAGE, "suffix: %s", err.msg);
    eq_int(tu_sink_open(&s, fix_path("x"), tu_format_find("dcp"), &what, NULL, &err), TU_EUSAGE, "%s", err.msg);
    what.keep_header = true;
    eq_int(tu_sink_open(&s, fix_path("x.npz"), NULL, &what, NULL, &err), TU_EUSAGE, "%s", err.msg);
    what.keep_header = false;
    what.n = 2;
    eq_int(tu_sink_open(&s, fix_path("x.safetensors"), NULL, &what, NULL, &err), TU_ENAME, "%s", err.msg);
    ok(!tu_sink_open(&s, fix_path("x.tns"), NULL, &what, NULL, &err), "a stream allows it");
    eq_int(tu_sink_write(s, 2, 0, "a", 1, &err), TU_EBUG, "tensor 2 of 2");
    eq_int(tu_sink_write(s, 0, 6, "a", 1, &err), TU_EBUG, "byte 7 of 6");
    ok(!tu_sink_write(s, 0, 0, "abcdef", 6, &err) && !tu_sink_write(s, 1, 6, "", 0, &err), "written");
    eq_int(tu_sink_finish(s, false, &err), TU_EBUG, "bytes are missing: %s", err.msg);
    ok(access(fix_path("x.tns"), F_OK), "so there is no file");
    tu_sink_abort(NULL);
}

static void pipes(void)
{
    static const char *const formats[] = { "safetensors", "npz", "tns", "torch" };
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        struct tu_err err = { 0 };
        struct tu_sink *s = NULL;
        const struct tu_tensor t[] = { fix_tensor("a", TU_U8, 1, &six), fix_tensor("b", TU_U8, 1, &six) };
        const struct tu_save what = { .n = 2, .tensor = t };
        int fd[2];
        char path[64];
        if (pipe(fd))
            abort();
        snprintf(path, sizeof path, "/dev/fd/%d", fd[1]);
        if (!ok(!tu_sink_open(&s, path, tu_format_find(formats[k]), &what, NULL, &err), "%s to a pipe: %s",
                formats[k], err.msg))
            continue;
        size_t first = s->order ? s->order[0] : 0;
        ok(!tu_sink_write(s, first, 0, "abc", 3, &err), "%s: the first bytes", formats[k]);
        eq_int(tu_sink_write(s, first, 0, "abc", 3, &err), TU_EUSAGE, "%s: again: %s", formats[k], err.msg);
        tu_sink_abort(s);
        close(fd[0]);
        close(fd[1]);
    }
}

/* Jobs ---------------------------------------------------------------------------------------- */

static bool stop(void *ctx)
{
    return !(*(int *)ctx)--;
}

static void stopped(void)
{
    struct tu_source *a = source(NULL), *b = source(NULL);
    struct tu_err err = { 0 };
    struct tu_difference d;
    const struct tu_save what = { 0 };
    int left = 1;
    const struct tu_job job = { .cancelled = stop, .ctx = &left };
    eq_int(tu_source_save(a, fix_path("stop.tns"), NULL, &what, false, &job, &err), TU_ECANCEL, "saving: %s",
           err.msg);
    ok(access(fix_path("stop.tns"), F_OK), "leaves no file");
    left = 0;
    eq_int(tu_source_compare(&d, a, 0, b, 0, NULL, &job, &err), TU_ECANCEL, "comparing: %s", err.msg);
    tu_source_close(a);
    tu_source_close(b);
    struct tu_pool *pool = tu_pool_new(2, NULL);
    const struct tu_job both = { .pool = pool };
    a = source(NULL);
    ok(!tu_source_save(a, fix_path("pool.tns"), NULL, &what, false, &both, &err), "with a pool");
    tu_source_close(a);
    tu_pool_free(pool);
}

/* Differences --------------------------------------------------------------------------------- */

static void differences(void)
{
    struct tu_err err = { 0 };
    struct tu_difference d;
    const uint64_t dim = 64, three = 3;
    const struct tu_tensor t[] = { fix_tensor("q", TU_Q4_0, 1, &dim), fix_tensor("r", TU_Q4_0, 1, &dim),
                                   fix_tensor("i", TU_I8, 1, &dim), fix_tensor("f", TU_F32, 1, &three),
                                   fix_tensor("g", TU_I32, 1, &three), fix_tensor("q8", TU_Q8_0, 1, &dim) };
    static const float f[] = { 1, 2, 3 };
    static const int32_t g[] = { 1, 2, 4 };
    char q[36], r[36];
    memset(q, 1, 36);
    memset(r, 1, 36);
    r[20] = 2;
    r[35] = 2;
    const void *data[] = { q, r, NULL, f, g, NULL };
    const struct tu_save what = { .n = 6, .tensor = t };
    struct tu_source *s = NULL;
    ok(!fix_save(fix_path("d.tns"), NULL, &what, data, &err) &&
           !tu_source_open(&s, fix_path("d.tns"), NULL, NULL, NULL, &err), "a file");
    ok(!tu_source_compare(&d, s, 0, s, 1, NULL, NULL, &err) && !d.bytes_equal && !d.valued && d.values.n == 2 &&
           d.values.differ == 1 && d.values.worst == 32, "blocks are counted");
    ok(!tu_source_compare(&d, s, 0, s, 2, NULL, NULL, &err) && !d.bytes_equal && !d.valued && d.values.n == 64,
       "blocks and numbers are not compared");
    ok(!tu_source_compare(&d, s, 0, s, 5, NULL, NULL, &err) && !d.bytes_equal && !d.valued,
       "nor blocks of two formats");
    ok(!tu_source_compare(&d, s, 3, s, 4, NULL, NULL, &err) && d.valued && d.values.differ == 1, "values are");
    eq_int(tu_source_compare(&d, s, 0, s, 3, NULL, NULL, &err), TU_EBUG, "of as many elements: %s", err.msg);
    tu_source_close(s);
}

/* Views --------------------------------------------------------------------------------------- */

static int view_of(struct tu_source **s, struct tu_view_item *item, size_t n, struct tu_err *err)
{
    static const struct tu_meta meta = { "m", "{\"a\":1}", 7 };
    *s = NULL;
    int code = tu_source_open(s, file, NULL, NULL, NULL, err);
    return code ? code : tu_source_view(s, *s, item, n, &meta, 1, err);
}

static int view_all(struct tu_err *err)
{
    const uint64_t two = 2;
    struct tu_view_item item[] = {
        { .tensor = fix_tensor("made", TU_U8, 1, &two), .data = "xy" },
        { .tensor = fix_tensor("cut", TU_U8, 1, &two), .from = 1, .off = 3 },
        { .tensor = fix_tensor("turned", TU_U8, 1, &six), .from = 0, .pair = 6, .row = 1 },
        { .tensor = fix_tensor("rows", TU_U8, 1, &six), .from = 0, .pair = 2, .row = 3 },
    };
    struct tu_source *s;
    char p[6];
    int code = view_of(&s, item, 4, err);
    if (code)
        return code;
    for (size_t i = 0; !code && i < 4; i++)
        code = tu_source_verify(s, i, NULL, err);
    if (!code && !(code = tu_source_read(s, 0, 1, p, 1, err)) && *p != 'y')
        code = TU_EBUG;
    if (!code && !(code = tu_source_read(s, 1, 0, p, 2, err)) && memcmp(p, "\4\5", 2))
        code = TU_EBUG;
    if (!code && !(code = tu_source_read(s, 2, 0, p, 6, err)) && memcmp(p, "\0\2\4\1\3\5", 6))
        code = TU_EBUG;
    if (!code && !(code = tu_source_read(s, 2, 1, p, 4, err)) && memcmp(p, "\2\4\1\3", 4))
        code = TU_EBUG;
    if (!code && !(code = tu_source_read(s, 3, 1, p, 4, err)) && memcmp(p, "\1\2\3\4", 4))
        code = TU_EBUG;
    if (!code && (tu_source_summed(s, 0) || !tu_source_summed(s, 1) || s->metas != 1))
        code = TU_EBUG;
    tu_source_close(s);
    return code;
}

static void views(void)
{
    struct tu_err err = { 0 };
    struct tu_source *s;
    ok(!view_all(&err), "made, cut and turned");
    struct tu_view_item out[] = {
        { .tensor = fix_tensor("x", TU_U8, 1, &six), .from = 2 },
        { .tensor = fix_tensor("x", TU_U8, 1, &six), .from = 0, .off = 7 },
        { .tensor = fix_tensor("x", TU_U8, 1, &six), .from = 0, .off = 1 },
        { .tensor = fix_tensor("x", TU_U8, 1, &six), .from = 0, .pair = 4, .row = 1 },
    };
    for (size_t i = 0; i < 4; i++) {
        eq_int(view_of(&s, &out[i], 1, &err), TU_EBUG, "outside %zu: %s", i, err.msg);
        ok(strstr(err.msg, "'x'"), "named");
    }
    fix_inject(view_all, true, "a view");
    fix_inject(view_all, false, "a view");
}

/* Small files --------------------------------------------------------------------------------- */

static int small(struct tu_err *err)
{
    struct tu_buf b = { 0 };
    int code = tu_hf_files(&b, fix_path("small"), err);
    if (!code && strcmp(b.data, "{\"README.md\":\"hi\",\"tokenizer.json\":\"{}\",\"x.model\":\"m\"}")) {
        printf("# %s\n", b.data);
        code = TU_EBUG;
    }
    tu_buf_release(&b);
    return code;
}

static void small_files(void)
{
    static const struct { const char *name; bool yes; } rows[] = {
        { "config.json", true }, { "tokenizer_config.json", true }, { "spiece.model", true }, { ".model", false },
        { "a.tiktoken", true }, { ".tiktoken", false }, { "LICENSE", true }, { "model.safetensors", false },
        { "x", false },
    };
    struct tu_err err = { 0 };
    struct tu_buf b = { 0 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ok(tu_hf_travels(rows[i].name) == rows[i].yes, "%s", rows[i].name);
    if (mkdir(fix_path("small"), 0777))
        abort();
    fix_write("small/README.md", "hi", 2);
    fix_write("small/tokenizer.json", "{}", 2);
    fix_write("small/x.model", "m", 1);
    fix_write("small/y.model", "\xff", 1);
    fix_write("small/z.model", "a\0b", 3);
    fix_write("small/weights", "w", 1);
    ok(!small(&err), "texts travel, other bytes and other files do not: %s", err.msg);
    fix_inject(small, true, "small files");
    fix_inject(small, false, "small files");
    ok(!tu_hf_files(&b, fix_path("nowhere"), &err) && !strcmp(b.data, "{}"), "of no folder none");
    tu_buf_reset(&b);
    ok(!tu_hf_files(&b, file, &err) && !strcmp(b.data, "{}"), "of a file none");
    tu_buf_reset(&b);
    char *longest = malloc(5001);
    memset(longest, 'x', 5000);
    longest[5000] = 0;
    eq_int(tu_hf_files(&b, longest, &err), TU_EIO, "a name that is too long is said");
    free(longest);
    tu_buf_release(&b);
}

/* A folder takes the small files that a stream carries, by plain names only. */
static void carried(void)
{
    static const struct { const char *json; int code; } rows[] = {
        { "{\"config.json\":\"{}\",\"README.md\":\"hi\"}", 0 },
        { "{}", 0 },
        { "{\"a/b\":\"x\"}", TU_EMETA },
        { "{\".x\":\"x\"}", TU_EMETA },
        { "{\"a\":5}", TU_EMETA },
    };
    const struct tu_tensor t = fix_tensor("a", TU_U8, 1, &six);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct tu_meta meta = { "files", rows[i].json, strlen(rows[i].json) };
        const struct tu_save what = { .n = 1, .tensor = &t, .metas = 1, .meta = &meta, .force = true,
                                      .beside = fix_path("small") };
        struct tu_err err = { 0 };
        fix_remove(fix_path("carried"));
        eq_int(fix_save(fix_path("carried"), tu_format_find("hf"), &what, NULL, &err), rows[i].code, "%s: %s",
               rows[i].json, err.msg);
        ok(!access(fix_path("carried/model.safetensors"), F_OK) == !rows[i].code, "weights if it went well");
        ok(rows[i].code || fix_same(fix_path("carried/y.model"), "\xff", 1), "and what lay beside them");
    }
    const struct tu_save plain = { .n = 1, .tensor = &t };
    struct tu_err err = { 0 };
    ok(!fix_save(fix_path("carried2"), tu_format_find("hf"), &plain, NULL, &err), "a folder");
    eq_int(fix_save(fix_path("carried2"), tu_format_find("hf"), &plain, NULL, &err), TU_EEXISTS, "again: %s",
           err.msg);
    const struct tu_save force = { .n = 1, .tensor = &t, .force = true };
    ok(!fix_save(fix_path("carried2"), tu_format_find("hf"), &force, NULL, &err), "unless forced");
}

int main(void)
{
    make_file();
    table();
    strangers();
    ranges();
    damage();
    sinks();
    pipes();
    stopped();
    differences();
    views();
    small_files();
    carried();
    free((char *)file);
    return tap_done();
}
