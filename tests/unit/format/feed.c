/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of feeds: the same records from a stream as it comes, by its index and from another
 * format; order within segments; payloads in odd steps; copies; failures. */
#include "fix.h"

static const uint64_t dim[] = { 3, 50 };
static const char *stream, *foreign;

/* Two segments of a stream, "a" "b" "c" and "b" alone, and one of safetensors. */
static void make_files(void)
{
    const struct tu_tensor t[] = {
        fix_tensor("a", TU_F32, 2, dim), fix_tensor("b", TU_U8, 2, dim),
        fix_tensor("c", TU_F32, 1, dim),
    };
    const struct tu_meta note = { .topic = "note", .json = "{\"k\":1}", .n = 7 };
    const struct tu_save whole = { .n = 3, .tensor = t, .metas = 1, .meta = &note };
    const struct tu_save one = { .n = 1, .tensor = t + 1 };
    const struct tu_save plain = { .n = 3, .tensor = t };
    const char *first = fix_path("first.tns"), *second = fix_path("second.tns");
    static char kept[2][1024];
    size_t n, m;
    struct tu_err err = { 0 };
    strcpy(kept[1], fix_path("x.safetensors"));
    if (fix_save(first, NULL, &whole, NULL, &err) || fix_save(second, NULL, &one, NULL, &err) ||
        fix_save(kept[1], NULL, &plain, NULL, &err)) {
        printf("# %s\n", err.msg);
        abort();
    }
    unsigned char *a = fix_read(first, &n), *b = fix_read(second, &m);
    a = realloc(a, n + m);
    if (!a)
        abort();
    memcpy(a + n, b, m);
    strcpy(kept[0], fix_write("two.tns", a, n + m));
    free(a);
    free(b);
    stream = kept[0];
    foreign = kept[1];
}

/* "note a b c | b |": names, | for END. steps: payloads are read so many bytes at a time, 0
 * passes over them; *sum gets the CRC of them all. */
static int walk(char text[64], const char *path, const struct tu_feed_how *how, size_t step,
                uint32_t *sum, struct tu_err *err)
{
    struct tu_feed *f = NULL;
    const struct tu_record *rec;
    unsigned char buf[64];
    int code = tu_feed_open(&f, path, how, NULL, err);
    *text = '\0';
    *sum = 0;
    while (!code && !(code = tu_feed_next(f, &rec, err)) && rec) {
        size_t got = 0;
        strcat(strcat(text, *text ? " " : ""), rec->type == TU_REC_END ? "|" : rec->name);
        while (step && !(code = tu_feed_read(f, buf, step, &got, err)) && got)
            *sum = tu_crc32(*sum, buf, got);
    }
    tu_feed_close(f);
    return code;
}

/* The first payload is the same twice, or its feed says that it cannot. */
static bool again(const char *path, const struct tu_feed_how *how)
{
    struct tu_feed *f = NULL;
    const struct tu_record *rec;
    unsigned char p[2][64];
    size_t got[2] = { 0 };
    bool yes = !tu_feed_open(&f, path, how, NULL, NULL);
    do
        yes = yes && !tu_feed_next(f, &rec, NULL) && rec;
    while (yes && rec->type != TU_REC_TENSOR);
    yes = yes && !tu_feed_read(f, p[0], sizeof p[0], &got[0], NULL);
    const int code = tu_feed_rewind(f, NULL);
    if (how && how->orders ? code : (code != 0) != !tu_feed_source(f))
        yes = false;
    if (yes && !code)
        yes = !tu_feed_read(f, p[1], sizeof p[1], &got[1], NULL) && got[1] == got[0] &&
              !memcmp(p[0], p[1], got[0]);
    tu_feed_close(f);
    return yes;
}

static void test_records(struct tu_pattern *b)
{
    const struct tu_feed_how ordered = { .order = &b, .orders = 1 }, headers = { .headers = true };
    const struct {
        const char *what, **path;
        const struct tu_feed_how *how;
        const char *want;
    } rows[] = {
        { "a stream", &stream, NULL, "note a b c | b |" },
        { "its headers", &stream, &headers, "note a b c | b |" },
        { "a stream in order", &stream, &ordered, "note b a c | b |" },
        { "safetensors", &foreign, NULL, "a c b |" },
        { "safetensors in order", &foreign, &ordered, "b a c |" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_err err = { 0 };
        char text[64];
        uint32_t skipped, odd, even;
        eq_u64(walk(text, *rows[i].path, rows[i].how, 0, &skipped, &err), 0, "%s: %s",
               rows[i].what, err.msg);
        eq_str(text, rows[i].want, "%s: its records", rows[i].what);
        ok(again(*rows[i].path, rows[i].how), "%s: only what passes by is read once",
           rows[i].what);
        ok(!walk(text, *rows[i].path, rows[i].how, 7, &odd, &err) &&
               !walk(text, *rows[i].path, rows[i].how, 64, &even, &err) && odd && odd == even,
           "%s: payloads are the same in any steps", rows[i].what);
    }
}

static int copy(const char *from, const struct tu_feed_how *how, const char *to,
                struct tu_err *err)
{
    struct tu_feed *f = NULL;
    struct tu_writer *w = NULL;
    struct tu_out *out;
    const struct tu_record *rec;
    int code = tu_feed_open(&f, from, how, NULL, err);
    if (!code)
        code = tu_out_open(&out, to, NULL, err);
    if (!code)
        code = tu_writer_new(&w, out, err);
    while (!code && !(code = tu_feed_next(f, &rec, err)) && rec)
        code = rec->type == TU_REC_END ? tu_writer_end(w, false, err) : tu_feed_copy(f, w, err);
    tu_feed_close(f);
    if (!code)
        return tu_writer_close(w, false, err);
    tu_writer_abort(w);
    return code;
}

static void test_copy(struct tu_pattern *none)
{
    const struct tu_feed_how indexed = { .order = &none, .orders = 1 };
    const char *to = fix_path("copy.tns");
    size_t n;
    unsigned char *want = fix_read(stream, &n);
    ok(!copy(stream, NULL, to, NULL) && fix_same(to, want, n), "a stream copies byte for byte");
    ok(!copy(stream, &indexed, to, NULL) && fix_same(to, want, n), "so it does by its index");
    free(want);
    struct tu_source *s = NULL;
    ok(!copy(foreign, NULL, to, NULL) && !tu_source_open(&s, to, NULL, NULL, NULL, NULL) &&
           s->n == 3 && fix_holds(s, tu_source_find(s, "a"), 0) &&
           fix_holds(s, tu_source_find(s, "b"), 1) && fix_holds(s, tu_source_find(s, "c"), 2),
       "safetensors copies to a stream of the same bytes");
    tu_source_close(s);
}

static void test_damage(struct tu_pattern *b)
{
    const struct tu_feed_how ordered = { .order = &b, .orders = 1 }, headers = { .headers = true };
    struct tu_err err = { 0 };
    size_t n;
    char text[64];
    uint32_t sum;
    unsigned char *p = fix_read(stream, &n);
    static const unsigned char mark[] = { /* b counts up from 1 */ 1, 2, 3, 4, 5, 6, 7, 8 };
    for (size_t i = 0; i + sizeof mark < n; i++) {
        if (!memcmp(p + i, mark, sizeof mark) && i % 64 == 0) {
            p[i] = 9;
            break;
        }
    }
    const char *bad = fix_write("bad.tns", p, n);
    free(p);
    eq_u64(walk(text, bad, &headers, 0, &sum, &err), 0, "headers alone do not see a payload");
    eq_str(tu_err_name(walk(text, bad, NULL, 0, &sum, &err)), "TU_EPCRC", "a filter does");
    eq_str(tu_err_name(walk(text, bad, &ordered, 64, &sum, &err)), "TU_EPCRC", "in order too");
    ok(strstr(err.msg, "bad.tns: 'b' at byte "), "the message names file, tensor and byte");
}

/* A view that somebody else has of another format. */
static int see(void *ctx, struct tu_source **s, struct tu_err *err)
{
    struct tu_view_item item = { .tensor = (*s)->tensor[0], .data = ctx };
    item.tensor.name = "seen";
    return tu_source_view(s, *s, &item, 1, NULL, 0, err);
}

/* A pipe, a folder, a view, many threads, and what cannot be put in order. */
static void test_ways_in(struct tu_pattern *b)
{
    static char bytes[4096];
    const struct tu_feed_how ordered = { .order = &b, .orders = 1 }, viewed = { .view = see, .ctx = bytes };
    struct tu_err err = { 0 };
    char text[64], path[64];
    uint32_t sum, want;
    size_t n;
    int fd[2];
    ok(!walk(text, stream, NULL, 64, &want, &err), "a stream");
    for (int k = 0; k < 2; k++) {
        unsigned char *p = fix_read(stream, &n);
        if (pipe(fd) || write(fd[1], p, n) != (ssize_t)n || close(fd[1]))
            abort();
        free(p);
        snprintf(path, sizeof path, "/dev/fd/%d", fd[0]);
        ok(!walk(text, path, k ? &ordered : NULL, 64, &sum, &err), "from a pipe: %s", err.msg);
        eq_str(text, k ? "note b a c | b |" : "note a b c | b |", "its records");
        ok(k || sum == want, "its bytes");
        close(fd[0]);
    }
    ok(!walk(text, foreign, &viewed, 64, &sum, &err), "a view: %s", err.msg);
    eq_str(text, "seen |", "has what it shows");
    struct tu_source *s = NULL;
    const struct tu_save what = { 0 };
    ok(!tu_source_open(&s, foreign, NULL, NULL, NULL, &err) &&
           !tu_source_save(s, fix_path("folder"), tu_format_find("hf"), &what, false, NULL, &err), "a folder");
    tu_source_close(s);
    ok(!walk(text, fix_path("folder"), NULL, 64, &sum, &err), "is read: %s", err.msg);
    ok(strstr(text, "a c b |"), "record by record: %s", text);
    ok(walk(text, fix_path("absent"), NULL, 64, &sum, &err) == TU_EIO, "no file: %s", err.msg);
    if (mkdir(fix_path("none"), 0777))
        abort();
    ok(walk(text, fix_path("none"), NULL, 64, &sum, &err) == TU_EMAGIC, "no weights: %s", err.msg);
    ok(!walk(text, "tests/bad/OK-type-to-pass.tns", NULL, 64, &sum, &err), "an unknown type passes");
    eq_int(walk(text, "tests/bad/OK-type-to-pass.tns", &ordered, 64, &sum, &err), TU_EUNSUP,
           "but has no place in an order: %s", err.msg);
}

static struct tu_pattern *pattern;

static int run_ordered(struct tu_err *err)
{
    return copy(stream, &(struct tu_feed_how){ .order = &pattern, .orders = 1 },
                fix_path("out.tns"), err);
}

static int run_foreign(struct tu_err *err)
{
    return copy(foreign, NULL, fix_path("out.tns"), err);
}

static int run_joined(struct tu_err *err)
{
    return copy(stream, &(struct tu_feed_how){ .join = true }, fix_path("out.tns"), err);
}

int main(void)
{
    make_files();
    if (tu_pattern_new(&pattern, "b", TU_PATTERN_REGEX, NULL))
        abort();
    test_records(pattern);
    test_damage(pattern);
    test_ways_in(pattern);
    struct tu_pattern *none = NULL;
    if (tu_pattern_new(&none, "nothing", TU_PATTERN_REGEX, NULL))
        abort();
    test_copy(none);
    tu_pattern_free(none);
    fix_inject(run_ordered, true, "in order");
    fix_inject(run_ordered, false, "in order");
    fix_inject(run_foreign, true, "another format");
    fix_inject(run_foreign, false, "another format");
    fix_inject(run_joined, true, "joined");
    fix_inject(run_joined, false, "joined");
    tu_pattern_free(pattern);
    return tap_done();
}
