/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing: pipes that give little, ends, positions, outputs that appear at
 * once, and failure of every system call. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "../scratch.h"
#include "../tap.h"
#include "tensorutils/core/io.h"
#include "tensorutils/core/mem.h"

#define BIG ((size_t)3 << 20)

static unsigned char *bytes; /* BIG of them, no two neighbours alike */

static void put(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "w");
    if (!f || fwrite(p, 1, n, f) != n || fclose(f))
        exit(99);
}

/* Does the file hold exactly these bytes? */
static bool holds(const char *path, const void *p, size_t n)
{
    char *data;
    size_t got;
    if (tu_file_read(path, BIG * 2, &data, &got, NULL))
        return false;
    bool same = got == n && memcmp(data, p, n) == 0;
    tu_free(data);
    return same;
}

/* The read end of a pipe that gets n bytes, `step` at a time, from a child. */
static int pipe_of(size_t n, size_t step, pid_t *child)
{
    int fd[2];
    fflush(stdout);
    if (pipe(fd) < 0 || (*child = fork()) < 0)
        exit(99);
    if (*child == 0) {
        close(fd[0]);
        for (size_t done = 0; done < n; done += step < n - done ? step : n - done)
            if (write(fd[1], bytes + done, step < n - done ? step : n - done) < 0)
                break;
        _exit(0);
    }
    close(fd[1]);
    return fd[0];
}

/* The same walk over a file and over a pipe. */
static void walk(struct tu_in *in, const char *what)
{
    unsigned char buf[5000];
    uint64_t passed;
    size_t got;
    eq_int(tu_in_peek(in, buf, 16, &got, NULL), 0, "%s: peek", what);
    ok(got == 16 && !memcmp(buf, bytes, 16), "%s: peeked bytes", what);
    eq_u64(tu_in_pos(in), 0, "%s: a peek takes nothing", what);
    eq_int(tu_in_exact(in, buf, 10, NULL), 0, "%s: exact", what);
    eq_mem(buf, bytes, 10, "%s: bytes from the peek", what);
    eq_int(tu_in_peek(in, buf, 4096, &got, NULL), 0, "%s: longer peek", what);
    ok(got == 4096 && !memcmp(buf, bytes + 10, 4096), "%s: peeked bytes again", what);
    eq_int(tu_in_skip(in, 100, &passed, NULL), 0, "%s: skip within the peek", what);
    eq_int(tu_in_read(in, buf, 5000, &got, NULL), 0, "%s: read over its end", what);
    ok(got == 5000 && !memcmp(buf, bytes + 110, 5000), "%s: bytes of both", what);
    eq_u64(tu_in_pos(in), 5110, "%s: position", what);
    eq_int(tu_in_skip(in, BIG - 5110 - 7, &passed, NULL), 0, "%s: long skip", what);
    eq_u64(passed, BIG - 5110 - 7, "%s: all passed", what);
    eq_int(tu_in_read(in, buf, 100, &got, NULL), 0, "%s: read at the end", what);
    ok(got == 7 && !memcmp(buf, bytes + BIG - 7, 7), "%s: the last bytes", what);
    eq_int(tu_in_read(in, buf, 100, &got, NULL), 0, "%s: read past the end", what);
    eq_u64(got, 0, "%s: nothing", what);
    eq_int(tu_in_skip(in, 100, &passed, NULL), 0, "%s: skip past the end", what);
    eq_u64(passed, 0, "%s: nothing passed", what);
    struct tu_err err;
    eq_int(tu_in_exact(in, buf, 1, &err), TU_ETRUNC, "%s: exact past the end", what);
    eq_u64(err.offset, BIG, "%s: says where", what);
    eq_int(tu_in_peek(in, buf, 4097, &got, NULL), TU_EBUG, "%s: too long a peek", what);
}

static void test_in(void)
{
    struct tu_in *in;
    put("big", bytes, BIG);
    eq_int(tu_in_open(&in, "big", NULL), 0, "open a file");
    ok(tu_in_seekable(in), "a file is seekable");
    eq_u64(tu_in_size(in), BIG, "size of a file");
    eq_str(tu_in_name(in), "big", "its name");
    walk(in, "file");
    tu_in_close(in);

    static const size_t step[] = {1000, 70000, BIG};
    for (unsigned i = 0; i < 3; i++) {
        pid_t child;
        char what[32];
        snprintf(what, sizeof what, "pipe by %zu", step[i]);
        int fd = pipe_of(BIG, step[i], &child);
        eq_int(tu_in_take_fd(&in, fd, what, NULL), 0, "%s: take", what);
        ok(!tu_in_seekable(in) && tu_in_size(in) == 0, "%s: no size", what);
        walk(in, what);
        unsigned char c;
        eq_int(tu_in_pread(in, 0, &c, 1, NULL), TU_EIO, "%s: no positions", what);
        tu_in_close(in);
        waitpid(child, NULL, 0);
    }
    tu_in_close(NULL);
}

/* A file is read ahead, but the next owner of its descriptor does not see that. */
static void test_shared(void)
{
    unsigned char got[600];
    size_t n;
    uint64_t skipped;
    struct tu_in *in;
    put("shared", bytes, 10000);
    int fd = open("shared", O_RDONLY), theirs = dup(fd);
    ok(lseek(theirs, 100, SEEK_SET) == 100, "another's descriptor, somewhere inside");
    eq_int(tu_in_take_fd(&in, fd, "shared", NULL), 0, "its twin is taken");
    eq_int(tu_in_read(in, got, 5, &n, NULL), 0, "a short read");
    ok(n == 5 && !memcmp(got, bytes + 100, 5), "from there");
    eq_int(tu_in_skip(in, 6000, &skipped, NULL), 0, "a skip past what was read ahead");
    eq_int(tu_in_read(in, got, 512, &n, NULL), 0, "another short read");
    ok(n == 512 && !memcmp(got, bytes + 6105, n), "from behind the skip");
    eq_int(tu_in_read(in, got, 600, &n, NULL), 0, "a longer read");
    ok(n == 600 && !memcmp(got, bytes + 6617, n), "the bytes that follow");
    tu_in_close(in);
    eq_int((int)lseek(theirs, 0, SEEK_CUR), 7217, "left just behind what was used");
    close(theirs);
}

static void test_in_errors(void)
{
    struct tu_in *in;
    struct tu_err err;
    eq_int(tu_in_open(&in, "absent", &err), TU_EIO, "absent file");
    eq_str(err.msg, "absent: cannot open: No such file or directory", "its message");
    eq_int(tu_in_open(&in, ".", &err), TU_EIO, "a folder");
    eq_str(err.msg, ".: cannot read: Is a directory", "its message");
    ok(in == NULL, "no object after an error");
    eq_int(tu_in_take_fd(&in, -1, "none", &err), TU_EIO, "no descriptor");
}

static void test_pread(void)
{
    struct tu_in *in;
    struct tu_err err;
    unsigned char buf[1000];
    put("f", bytes, 5000);
    int fd = open("f", O_RDONLY);
    if (lseek(fd, 100, SEEK_SET) != 100)
        exit(99);
    eq_int(tu_in_take_fd(&in, fd, "f", NULL), 0, "a descriptor that stands at byte 100");
    eq_u64(tu_in_size(in), 4900, "size counts from there");
    eq_int(tu_in_pread(in, 50, buf, 1000, NULL), 0, "pread");
    eq_mem(buf, bytes + 150, 1000, "positions count from there");
    eq_u64(tu_in_pos(in), 0, "pread does not move");
    eq_int(tu_in_exact(in, buf, 10, NULL), 0, "read");
    eq_mem(buf, bytes + 100, 10, "starts there");
    eq_int(tu_in_pread(in, 4000, buf, 901, &err), TU_ETRUNC, "pread over the end");
    eq_str(err.msg, "f: ends at byte 4900, 1 more expected", "its message");
    eq_int(tu_in_pread(in, UINT64_MAX - 5, buf, 10, NULL), TU_ETRUNC, "absurd position");
    eq_int(tu_in_pread(in, INT64_MAX, buf, 10, NULL), TU_ETRUNC, "another");
    uint64_t passed;
    int to = open("f", O_WRONLY | O_APPEND);
    eq_int(write(to, bytes + 5000, 500), 500, "the file grows");
    close(to);
    eq_int(tu_in_skip(in, 100000, &passed, NULL), 0, "skip to the end");
    eq_u64(passed, 5390, "passes what came later too");
    tu_in_close(in);
}

static void test_spool(void)
{
    struct tu_in *in, *file;
    pid_t child;
    unsigned char buf[100];
    int files = scratch_files();
    int fd = pipe_of(BIG, 4096, &child);
    eq_int(tu_in_take_fd(&in, fd, "pipe", NULL), 0, "spool: take");
    eq_int(tu_in_exact(in, buf, 10, NULL), 0, "spool: read some");
    eq_int(tu_in_spool(&file, in, ".", NULL), 0, "spool the rest");
    eq_u64(tu_in_size(file), BIG - 10, "spool: size");
    eq_str(tu_in_name(file), "pipe", "spool: keeps the name");
    eq_int(tu_in_pread(file, BIG - 110, buf, 100, NULL), 0, "spool: pread");
    eq_mem(buf, bytes + BIG - 100, 100, "spool: bytes");
    eq_int(tu_in_exact(file, buf, 100, NULL), 0, "spool: read from its start");
    eq_mem(buf, bytes + 10, 100, "spool: first bytes");
    eq_int(scratch_files(), files, "spool: has no name");
    tu_in_close(file);
    tu_in_close(in);
    waitpid(child, NULL, 0);
}

struct temporaries {
    char path[200];
    int born, gone;
    bool early; /* told before the file existed */
};

static void on_temporary(void *ctx, const char *path, enum tu_temporary state)
{
    struct temporaries *t = ctx;
    snprintf(t->path, sizeof t->path, "%s", path);
    if (state == TU_TEMP_BORN)
        t->early = access(path, F_OK) < 0;
    *(state == TU_TEMP_BORN ? &t->born : &t->gone) += 1;
}

static void test_out_rename(void)
{
    struct tu_out *out;
    struct temporaries t = {0};
    const struct tu_job job = {.ctx = &t, .temporary = on_temporary};
    scratch_empty();
    put("o", "old", 3);
    mode_t mask = umask(027);
    eq_int(tu_out_open(&out, "o", &job, NULL), 0, "open over a file");
    ok(t.born == 1 && t.gone == 0 && t.early, "the job is told before the file is born");
    ok(access(t.path, F_OK) == 0, "the temporary file is there: %s", t.path);
    eq_int(tu_out_write(out, bytes, 100, NULL), 0, "small write");
    eq_int(tu_out_write(out, bytes + 100, BIG - 200, NULL), 0, "large write");
    eq_int(tu_out_write(out, bytes + BIG - 100, 100, NULL), 0, "small write");
    eq_u64(tu_out_pos(out), BIG, "position");
    ok(holds("o", "old", 3), "until commit the old file stays");
    eq_int(tu_out_commit(out, true, NULL), 0, "commit");
    ok(holds("o", bytes, BIG), "then the new one is there");
    ok(t.born == 1 && t.gone == 1, "the job is told that the temporary name is gone");
    eq_int(scratch_files(), 1, "nothing else is there");
    struct stat st;
    ok(stat("o", &st) == 0 && (st.st_mode & 0777) == 0640, "mode 0666 & ~umask");
    umask(mask);

    eq_int(tu_out_open(&out, "o", &job, NULL), 0, "open again");
    eq_int(tu_out_write(out, "x", 1, NULL), 0, "write");
    tu_out_abort(out);
    ok(holds("o", bytes, BIG), "abort keeps the old file");
    ok(t.born == 2 && t.gone == 2 && scratch_files() == 1, "and leaves nothing");
    tu_out_abort(NULL);

    eq_int(symlink("o", "link"), 0, "a symbolic link");
    eq_int(tu_file_write("link", "via", 3, false, NULL, NULL), 0, "write through it");
    ok(lstat("link", &st) == 0 && S_ISLNK(st.st_mode), "it stays a link");
    ok(holds("o", "via", 3), "and its target has the bytes");
}

static void test_out_places(void)
{
    struct tu_out *out;
    struct tu_err err;
    scratch_empty();
    eq_int(tu_out_open(&out, "no/o", NULL, &err), TU_EIO, "absent folder");
    eq_str(err.msg, "no/o: cannot create: No such file or directory", "its message");
    eq_int(tu_out_open(&out, ".", NULL, &err), TU_EIO, "a folder");
    eq_int(tu_out_open(&out, "/dev/full", NULL, NULL), 0, "/dev/full");
    eq_int(tu_out_write(out, "x", 1, NULL), 0, "takes a small write");
    eq_int(tu_out_commit(out, false, &err), TU_EIO, "and fails at commit");
    eq_str(err.msg, "/dev/full: cannot write: No space left on device", "its message");
    eq_int(tu_out_open(&out, "/dev/null", NULL, NULL), 0, "/dev/null");
    ok(!tu_out_seekable(out), "has no positions");
    eq_int(tu_out_pwrite(out, 0, "x", 1, NULL), TU_EIO, "no pwrite");
    eq_int(tu_out_truncate(out, 0, NULL), TU_EIO, "no size");
    eq_int(tu_out_zeros(out, 1 << 20, NULL), 0, "zeros");
    eq_int(tu_out_commit(out, true, NULL), 0, "a durable device is no error");

    eq_int(tu_out_create(&out, "new", NULL), 0, "create");
    ok(access("new", F_OK) == 0, "has its name at once");
    eq_int(tu_out_commit(out, false, NULL), 0, "commit");
    eq_int(tu_out_create(&out, "new", &err), TU_EEXISTS, "create what exists");
    eq_str(err.msg, "new: exists already", "its message");
    eq_int(tu_out_create(&out, "no/new", NULL), TU_EIO, "create in an absent folder");
    eq_int(scratch_files(), 1, "nothing else is there");
}

static void test_out_positions(void)
{
    struct tu_out *out;
    scratch_empty();
    eq_int(tu_out_open(&out, "p", NULL, NULL), 0, "open");
    ok(tu_out_seekable(out), "a file has positions");
    eq_int(tu_out_write(out, "head", 4, NULL), 0, "write");
    eq_int(tu_out_pwrite(out, 10, "tail", 4, NULL), 0, "pwrite");
    eq_int(tu_out_write(out, "more", 4, NULL), 0, "write goes on behind the first");
    eq_int(tu_out_truncate(out, 12, NULL), 0, "truncate");
    eq_int(tu_out_pwrite(out, UINT64_MAX - 1, "x", 4, NULL), TU_EIO, "absurd position");
    eq_int(tu_out_truncate(out, UINT64_MAX, NULL), TU_EIO, "absurd size");
    eq_int(tu_out_commit(out, false, NULL), 0, "commit");
    ok(holds("p", "headmore\0\0ta", 12), "bytes at their places");

    int fd = open("p", O_WRONLY);
    if (lseek(fd, 4, SEEK_SET) != 4)
        exit(99);
    eq_int(tu_out_take_fd(&out, fd, "p", NULL), 0, "a descriptor that stands at byte 4");
    eq_int(tu_out_pwrite(out, 4, "XY", 2, NULL), 0, "pwrite");
    eq_int(tu_out_write(out, "ab", 2, NULL), 0, "write");
    eq_int(tu_out_flush(out, NULL), 0, "flush");
    ok(holds("p", "headabreXYta", 12), "positions count from there");
    eq_int(tu_out_truncate(out, 6, NULL), 0, "truncate");
    eq_int(tu_out_commit(out, false, NULL), 0, "commit");
    ok(holds("p", "headabreXY", 10), "sizes too");

    eq_int(tu_out_take_fd(&out, open("p", O_WRONLY | O_APPEND), "p", NULL), 0,
           "appending");
    ok(!tu_out_seekable(out), "has no positions");
    eq_int(tu_out_zeros(out, 2, NULL), 0, "zeros");
    eq_int(tu_out_commit(out, false, NULL), 0, "commit");
    ok(holds("p", "headabreXY\0\0", 12), "are appended");
}

static void test_holes(void)
{
    struct tu_out *out;
    struct stat st;
    eq_int(tu_out_open(&out, "h", NULL, NULL), 0, "open");
    eq_int(tu_out_write(out, "a", 1, NULL), 0, "a byte");
    eq_int(tu_out_zeros(out, UINT64_C(8) << 30, NULL), 0, "8 GiB of zeros");
    eq_int(tu_out_write(out, "b", 1, NULL), 0, "a byte");
    eq_int(tu_out_zeros(out, UINT64_C(1) << 30, NULL), 0, "1 GiB of zeros at the end");
    eq_u64(tu_out_pos(out), (UINT64_C(9) << 30) + 2, "position");
    eq_int(tu_out_commit(out, false, NULL), 0, "commit");
    ok(stat("h", &st) == 0 && st.st_size == (off_t)((UINT64_C(9) << 30) + 2), "size");
    ok(st.st_blocks < 1000, "takes %ld blocks", (long)st.st_blocks);
    struct tu_in *in;
    char c = 0;
    eq_int(tu_in_open(&in, "h", NULL), 0, "open");
    eq_int(tu_in_pread(in, (UINT64_C(8) << 30) + 1, &c, 1, NULL), 0,
           "read between the holes");
    eq_int(c, 'b', "the byte");
    tu_in_close(in);

    eq_int(tu_out_open(&out, "h", NULL, NULL), 0, "open");
    eq_int(tu_out_pwrite(out, 100000, "z", 1, NULL), 0, "a byte that zeros will cover");
    eq_int(tu_out_zeros(out, 200000, NULL), 0, "zeros");
    eq_int(tu_out_commit(out, false, NULL), 0, "commit");
    unsigned char *zero = calloc(1, 200000);
    ok(holds("h", zero, 200000), "zeros cover what was there");
    free(zero);
}

static void test_file(void)
{
    char *data;
    size_t n;
    struct tu_err err;
    put("f", "hello", 5);
    eq_int(tu_file_read("f", 5, &data, &n, NULL), 0, "file of the largest size");
    ok(n == 5 && !strcmp(data, "hello"), "its bytes and a NUL");
    tu_free(data);
    eq_int(tu_file_read("f", 4, &data, &n, &err), TU_ELIMIT, "one byte over the limit");
    ok(!data && !n, "gives nothing");
    put("f", "", 0);
    eq_int(tu_file_read("f", 4, &data, &n, NULL), 0, "empty file");
    ok(n == 0 && data && !*data, "is an empty text");
    tu_free(data);
    /* Its size is not told. */
    eq_int(tu_file_read("/dev/zero", 300000, &data, &n, &err), TU_ELIMIT, "endless file");
    eq_str(err.msg, "/dev/zero: longer than the limit of 300000 bytes", "its message");
    eq_int(tu_file_read("/proc/self/maps", 1 << 20, &data, &n, NULL), 0,
           "file without a size");
    ok(n > 0, "has bytes");
    tu_free(data);
    eq_int(tu_dir_sync(".", NULL), 0, "sync a folder");
    eq_int(tu_dir_sync("absent", NULL), TU_EIO, "sync an absent one");
}

/* A pipe that somebody made non-blocking, both ways. */
static void test_nonblocking(void)
{
    int fd[2];
    fflush(stdout);
    if (pipe(fd) < 0)
        exit(99);
    pid_t child = fork();
    if (child == 0) {
        struct tu_out *out;
        close(fd[0]);
        fcntl(fd[1], F_SETFL, O_NONBLOCK);
        int code = tu_out_take_fd(&out, fd[1], "pipe", NULL);
        code = code ? code : tu_out_write(out, bytes, BIG, NULL);
        _exit(code ? 1 : tu_out_commit(out, false, NULL) != 0);
    }
    close(fd[1]);
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    struct tu_in *in;
    unsigned char *got = malloc(BIG);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    eq_int(tu_in_take_fd(&in, fd[0], "pipe", NULL), 0, "non-blocking pipe");
    eq_int(tu_in_exact(in, got, BIG, NULL), 0, "is read whole");
    eq_mem(got, bytes, BIG, "the bytes");
    int status = -1;
    waitpid(child, &status, 0);
    eq_int(status, 0, "and was written whole");
    tu_in_close(in);
    free(got);
}

/* Everything once: file in, positional, spooled, written with a hole, committed
 * durably. */
static int work(void)
{
    struct tu_err err = {0};
    struct tu_in *in = NULL, *copy = NULL;
    struct tu_out *out = NULL;
    unsigned char buf[5000];
    uint64_t passed;
    size_t got;
    if (tu_in_open(&in, "src", &err) || tu_in_peek(in, buf, 100, &got, &err) ||
        tu_in_exact(in, buf, 5000, &err) || tu_in_skip(in, 5000, &passed, &err) ||
        tu_in_pread(in, 3, buf, 100, &err) || tu_in_spool(&copy, in, ".", &err))
        goto out;
    if (tu_out_open(&out, "dst", NULL, &err) || tu_out_write(out, buf, 1000, &err) ||
        tu_out_zeros(out, 100000, &err) || tu_out_pwrite(out, 10, "x", 1, &err) ||
        tu_out_truncate(out, 50000, &err))
        goto out;
    (void)!tu_out_commit(out, true, &err);
    out = NULL;
out:
    tu_out_abort(out);
    tu_in_close(copy);
    tu_in_close(in);
    return err.code;
}

/* The nth call fails for every n: the right code, no descriptor, no file left. */
static void fail_each(const char *what, uint64_t (*inject)(uint64_t, int), int arg,
                      int code)
{
    scratch_empty();
    put("src", bytes, 20000);
    inject(0, arg);
    eq_int(work(), 0, "%s: without a failure", what);
    uint64_t calls = inject(0, arg);
    int fds = scratch_fds();
    unsigned survived = 0, wrong = 0, left = 0;
    for (uint64_t n = 1; n <= calls; n++) {
        unlink("dst");
        inject(n, arg);
        int result = work();
        inject(0, arg);
        /* Closing an input may fail unheard; after the rename the file stays. */
        bool there = access("dst", F_OK) == 0;
        survived += result == 0;
        wrong += result != 0 && result != code;
        left += scratch_files() != 1 + there || scratch_fds() != fds;
        left += result == 0 && !there;
    }
    eq_u64(wrong, 0, "%s: the code of each of %d failures", what, (int)calls);
    eq_u64(left, 0, "%s: nothing is left behind", what);
    ok(survived < calls / 4, "%s: %u failures did not matter", what, survived);
}

static uint64_t inject_memory(uint64_t nth, int arg)
{
    return tu_mem_inject(nth, arg);
}

static void test_injection(void)
{
    fail_each("EIO", tu_io_inject, EIO, TU_EIO);
    fail_each("ENOSPC", tu_io_inject, ENOSPC, TU_EIO);
    fail_each("no memory", inject_memory, 0, TU_ENOMEM);
    tu_io_inject(0, 0);
    eq_int(work(), 0, "calls counted");
    uint64_t calls = tu_io_inject(0, 0);
    unsigned failed = 0;
    for (uint64_t n = 1; n <= calls; n++) {
        tu_io_inject(n, EINTR);
        failed += work() != 0;
    }
    tu_io_inject(0, 0);
    eq_u64(failed, 0, "no interruption of %d calls matters", (int)calls);
}

int main(void)
{
    bytes = malloc(BIG);
    if (!bytes)
        return 99;
    for (size_t i = 0; i < BIG; i++)
        bytes[i] = (unsigned char)(i * 7 + (i >> 8) * 3 + (i >> 16));
    scratch_enter();
    test_in();
    test_shared();
    test_in_errors();
    test_pread();
    test_spool();
    test_out_rename();
    test_out_places();
    test_out_positions();
    test_holes();
    test_file();
    test_nonblocking();
    test_injection();
    scratch_leave();
    free(bytes);
    return tap_done();
}
