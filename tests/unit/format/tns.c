/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the tensor stream as a format: the bytes of the specification's example 1, out
 * of order and in order, and every dtype through both kinds of sink. */
#include <fcntl.h>
#include <sys/wait.h>
#include "fix.h"

static const unsigned char example1[320] = {
    0x89, 'T', 'N', 'S', '\r', '\n', 0x1a, '\n', 1, 0, 1, 0, 0, 0, 0x10, 4,
    0x80, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 1, 0, 0, 0,
    2, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0,
    12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x4f, 0x58, 0x12, 0xc9,
    2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 'w',
    [0x80] = 0x80, 0x3f, 0, 0x40, 0x40, 0x40, 0x80, 0xbf, 0, 0x3f, 0, 0,
    [0xb8] = 0x76, 0x8b, 0x94, 0xb0, 0x4f, 0x58, 0x12, 0xc9,
    0x89, 'T', 'N', 'S', '\r', '\n', 0x1a, '\n', 1, 0, 2, 0, 0, 0, 0, 0, 0x80,
    [0xda] = 4,
    [0xfc] = 0xde, 0xfa, 0x82, 0xef, 1, 0, 0, 0, 0, 0, 0, 0, 0xc0,
    [0x118] = 0x71, 0x76, 0xc6, 0x52,
};

/* A pipe to a file: what a sink that cannot seek writes ends up in it. */
static pid_t drain(const char *path, int *end)
{
    int fd[2];
    if (pipe(fd))
        abort();
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        char buf[4096];
        close(fd[1]);
        int to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        for (ssize_t n; (n = read(fd[0], buf, sizeof buf)) > 0;) {
            if (write(to, buf, (size_t)n) != n)
                _exit(1);
        }
        _exit(0);
    }
    close(fd[0]);
    *end = fd[1];
    return pid;
}

static void test_example(void)
{
    static const uint64_t dim[] = { 2, 3 };
    struct tu_tensor t = fix_tensor("w", TU_BF16, 2, dim);
    struct tu_save what = { .n = 1, .tensor = &t };
    struct tu_err err = { 0 };
    const char *path = fix_path("ex1.tns");
    if (!ok(!fix_save(path, NULL, &what, (const void *[]){ example1 + 0x80 }, &err), "saved"))
        printf("# %s\n", err.msg);
    ok(fix_same(path, example1, sizeof example1), "example 1, written in halves from the end");
    struct tu_source *s = NULL;
    if (!ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "opened")) {
        printf("# %s\n", err.msg);
        return;
    }
    eq_str(s->format->name, "tns", "sniffed");
    eq_u64(s->crc[0], 0xb0948b76, "the stored checksum is known");
    eq_u64(s->extent[0].off, 0x80, "where the payload lies");
    eq_int(tu_source_verify(s, 0, NULL, &err), 0, "verified");
    tu_source_close(s);

    unsigned char bad[320];
    memcpy(bad, example1, sizeof bad);
    bad[0x82] = 1;
    ok(!tu_source_open(&s, fix_write("bad.tns", bad, 320), NULL, NULL, NULL, &err),
       "opened with a changed payload");
    eq_int(tu_source_verify(s, 0, NULL, &err), TU_EPCRC, "which verifying notices");
    struct tu_sink *k = NULL;
    uint64_t done = 0;
    ok(!tu_sink_open(&k, fix_path("x.safetensors"), NULL, &what, NULL, &err), "a sink");
    eq_int(tu_source_copy(s, 0, k, 0, &done, 12, NULL, &err), TU_EPCRC, "and copying too");
    ok(strstr(err.msg, "'w'") && strstr(err.msg, "b0948b76"), "said: %s", err.msg);
    tu_sink_abort(k);
    tu_source_close(s);
}

/* All dtypes, a scalar, an empty tensor and META, through a file and through a pipe. */
static void test_all(void)
{
    enum { MAX = 128 };
    struct tu_tensor t[MAX];
    size_t n = 0;
    static const uint64_t dim[] = { 2, 256 }, none[] = { 0, 7 };
    const struct tu_dtype *d;
    for (; (d = tu_dtype_row(n)); n++)
        t[n] = fix_tensor(d->name, d->code, 2, dim);
    t[n++] = fix_tensor("empty", TU_F32, 2, none);
    t[n] = fix_tensor("scalar", TU_F32, 0, NULL);
    t[n++].meta = "{\"src\":{\"format\":\"npy\"}}";
    t[n++] = fix_tensor("scalar", TU_F32, 0, NULL); /* a name may stand twice */
    t[n++] = fix_tensor("none", TU_U8, 2, none);
    struct tu_meta meta = { "model", "{\"layers\":2}", 12 };
    struct tu_save what = { .n = n, .tensor = t, .metas = 1, .meta = &meta };
    struct tu_err err = { 0 };
    const char *path = fix_path("all.tns"), *piped = fix_path("piped.tns");
    if (!ok(!fix_save(path, NULL, &what, NULL, &err), "every dtype saved"))
        printf("# %s\n", err.msg);
    struct tu_source *s = NULL;
    if (!ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "and opened")) {
        printf("# %s\n", err.msg);
        return;
    }
    eq_u64(s->n, n, "all tensors");
    eq_u64(s->metas, 1, "one META");
    eq_str(s->meta[0].json, meta.json, "its text");
    eq_str(s->tensor[n - 3].meta, t[n - 3].meta, "a tensor's metadata");
    bool same = true;
    for (size_t i = 0; i < n; i++)
        same = same && s->tensor[i].dtype == t[i].dtype && s->tensor[i].bytes == t[i].bytes &&
               fix_holds(s, i, i) && !tu_source_verify(s, i, NULL, &err);
    ok(same, "every tensor as it was");

    int fd;
    pid_t pid = drain(piped, &fd);
    char name[32];
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    struct tu_sink *k = NULL;
    what.tensor = s->tensor;
    what.meta = s->meta;
    int code = tu_sink_open(&k, name, tu_format_find("tns"), &what, NULL, &err);
    close(fd);
    uint64_t done = 0;
    for (size_t i = 0; !code && i < n; i++)
        code = tu_source_copy(s, i, k, i, &done, 0, NULL, &err);
    ok(!code, "written in order into a pipe");
    ok(!code && !tu_sink_finish(k, false, &err), "and finished");
    waitpid(pid, NULL, 0);
    size_t size;
    unsigned char *file = fix_read(path, &size);
    ok(fix_same(piped, file, size), "a pipe gets the bytes of the file");
    free(file);

    pid = drain(piped, &fd);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    code = tu_sink_open(&k, name, tu_format_find("tns"), &what, NULL, &err);
    close(fd);
    eq_int(code ? code : tu_sink_write(k, 0, 1, "x", 1, &err), TU_EUSAGE, "a byte left out");
    eq_int(tu_sink_write(k, 1, 0, "abcd", 4, &err), TU_EUSAGE, "a tensor left out");
    tu_sink_abort(k);
    waitpid(pid, NULL, 0);
    tu_source_close(s);
}

/* A stream of nothing. */
static void test_nothing(void)
{
    const struct tu_save what = { 0 };
    struct tu_err err = { 0 };
    const char *path = fix_path("none.tns"), *piped = fix_path("none-piped.tns");
    char name[32];
    int fd;
    pid_t pid = drain(piped, &fd);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    int code = fix_save(name, tu_format_find("tns"), &what, NULL, &err);
    close(fd);
    waitpid(pid, NULL, 0);
    size_t n;
    ok(!code && !fix_save(path, NULL, &what, NULL, &err), "no tensors: %s", err.msg);
    unsigned char *file = fix_read(path, &n);
    ok(n == 128 && fix_same(piped, file, n), "an END alone, in a file and in a pipe");
    free(file);
}

static int inject_save(struct tu_err *err)
{
    static const uint64_t dim[] = { 3 };
    struct tu_tensor t[2] = { { "b", TU_F32, 1, dim, 12, NULL }, { "a", TU_U8, 1, dim, 3, NULL } };
    struct tu_meta meta = { "m", "{\"a\":1}", 7 };
    struct tu_save what = { .n = 2, .tensor = t, .metas = 1, .meta = &meta };
    return fix_save(fix_path("inject.tns"), NULL, &what, NULL, err);
}

static int inject_open(struct tu_err *err)
{
    struct tu_source *s = NULL;
    int code = tu_source_open(&s, fix_path("inject.tns"), NULL, NULL, NULL, err);
    if (!code)
        tu_source_close(s);
    return code;
}

int main(void)
{
    test_example();
    test_all();
    test_nothing();
    fix_inject(inject_save, true, "save");
    fix_inject(inject_save, false, "save");
    ok(!inject_save(NULL), "a file for the next loop");
    fix_inject(inject_open, true, "open");
    fix_inject(inject_open, false, "open");
    return tap_done();
}
