/* SPDX-License-Identifier: Apache-2.0 */
/* reject: what must not be read is not read: the folder tests/bad, every single-bit flip
 * and every prefix of the worked examples; as files, as pipes, and by the index.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sys/resource.h>
#include "kit.h"

/* "EPCRC-payload-byte.tns" is TU_EPCRC, "OK-….tns" is accepted. */
static int code_of(const char *file)
{
    for (int code = -1; strcmp(tu_err_name(code), "TU_EBUG"); code--) {
        const char *name = tu_err_name(code) + 3;
        if (!strncmp(file, name, strlen(name)) && file[strlen(name)] == '-')
            return code;
    }
    return strncmp(file, "OK-", 3) ? 1 : 0;
}

/* Opening and verifying by index. */
static int read_index(const void *p, size_t n, struct tu_err *err)
{
    struct tu_in *in;
    struct tu_stream_index *x;
    kit_must(!tu_in_take_fd(&in, kit_file(p, n), "test.tns", err), "open");
    int rc = tu_index_open(&x, in, err);
    for (size_t i = 0; !rc && i < tu_index_count(x); i++)
        rc = tu_index_verify(x, i, NULL, err);
    tu_index_close(x);
    return rc;
}

static void bad_file(const char *name, struct tu_pool *pool)
{
    char path[300], *data;
    size_t n;
    struct tu_err err = {0};
    const int expect = code_of(name);
    const bool strict = strstr(name, "-strict-");
    snprintf(path, sizeof path, "tests/bad/%s", name);
    kit_must(!tu_file_read(path, 1 << 20, &data, &n, &err), path);
    for (unsigned pipe = 0; pipe < 2; pipe++) {
        const char *how = pipe ? "pipe" : "file";
        eq_int(kit_read(data, n, TU_READER_STRICT, pipe, pool, &err), expect,
               "%s: %s, strict", name, how);
        if (expect && expect != TU_EEMPTY)
            ok(err.offset <= n, "%s: %s: offset %" PRIu64 " lies in the input", name, how,
               err.offset);
        eq_int(kit_read(data, n, 0, pipe, NULL, &err), strict ? 0 : expect, "%s: %s",
               name, how);
    }
    eq_int(read_index(data, n, &err), strict ? 0 : expect, "%s: index", name);
    tu_free(data);
}

static void folder(void)
{
    struct dirent **list;
    struct tu_pool *pool = tu_pool_new(2, NULL);
    int n = scandir("tests/bad", &list, NULL, alphasort), seen = 0;
    for (int i = 0; i < n; i++) {
        const char *dot = strrchr(list[i]->d_name, '.');
        if (dot && !strcmp(dot, ".tns")) {
            bad_file(list[i]->d_name, pool);
            seen++;
        }
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    tu_pool_free(pool);
    ok(seen >= 70, "tests/bad holds the streams (%d)", seen);
}

static void messages(void)
{
    static const struct {
        const char *file, *message;
    } row[] = {
        {"EEMPTY-nothing", "test.tns: no data at all, not even an END record"},
        {"EMAGIC-npy",
         "test.tns: not a tensor stream: looks like a .npy file (see tns-import)"},
        {"EMAGIC-safetensors",
         "test.tns: not a tensor stream: looks like a safetensors file (see tns-import)"},
        {"EMAGIC-gzip",
         "test.tns: not a tensor stream: looks like gzip data (decompress it "
         "first: gzip -dc)"},
        {"EMAGIC-text-mode",
         "test.tns: not a tensor stream: looks like a tensor stream damaged "
         "by a text-mode transfer (CR LF became LF)"},
        {"ENOEND-cut-at-192", "test.tns: byte 192: input ends without an END record"},
        {"EPCRC-payload-byte",
         "test.tns: record 0 'w' at byte 0: payload checksum mismatch "
         "(stored b0948b76, computed 5f56e048)"},
        {"EEND-record-count",
         "test.tns: END at byte 192: record count is 2, but the records "
         "before END give 1"},
        {"EMETA-array", "test.tns: record 1 at byte 128: metadata: "},
    };
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        char path[300], *data;
        size_t n;
        struct tu_err err = {0};
        snprintf(path, sizeof path, "tests/bad/%s.tns", row[i].file);
        kit_must(!tu_file_read(path, 1 << 20, &data, &n, &err), path);
        ok(kit_read(data, n, 0, false, NULL, &err), "%s fails", row[i].file);
        if (row[i].message[strlen(row[i].message) - 1] == ' ')
            err.msg[strlen(row[i].message)] = '\0';
        eq_str(err.msg, row[i].message, "%s: message", row[i].file);
        tu_free(data);
    }
}

/* Each flip is read both ways; one line for each example. */
static void flips(const char *what, unsigned char *p, size_t n)
{
    unsigned accepted = 0, wrong = 0;
    struct tu_err err;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        p[bit / 8] ^= (unsigned char)(1u << bit % 8);
        accepted += !kit_read(p, n, 0, bit % 2, NULL, &err);
        wrong += tu_err_status(err.code) != 3;
        accepted += !read_index(p, n, &err);
        p[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    eq_u64(accepted, 0, "%s: each of %zu flipped bits is rejected", what, 8 * n);
    eq_u64(wrong, 0, "%s: as invalid data", what);
}

static void prefixes(const unsigned char *p, size_t n)
{
    uint64_t sum = 0;
    unsigned accepted = 0;
    struct tu_err err;
    for (size_t k = 0; k <= n; k++)
        if (!kit_read(p, k, 0, k % 2, NULL, &err)) {
            accepted++;
            sum += k;
        }
    eq_u64(accepted, 2, "of %zu prefixes two are accepted", n + 1);
    eq_u64(sum, EX1_SIZE + n, "the first example and the whole");
}

/* A claim of 2^62 bytes must cost no memory; each way of reading. */
static void claim(void)
{
    struct rusage before, after;
    const struct tu_record *rec;
    struct tu_err err;
    char *data;
    size_t n, got;
    pid_t child;
    kit_must(
        !tu_file_read("tests/bad/ETRUNC-payload-of-2-62.tns", 1 << 20, &data, &n, &err),
        "file");
    getrusage(RUSAGE_SELF, &before);
    for (unsigned pipe = 0; pipe < 2; pipe++) {
        void *p = NULL;
        int fd = pipe ? kit_pipe(data, n, &child) : kit_file(data, n);
        struct tu_reader *r = kit_reader(fd, 0, NULL);
        eq_int(tu_reader_next(r, &rec, &err), 0, "the header is fine");
        eq_u64(rec->payload_len, UINT64_C(1) << 62, "and claims 2^62 bytes");
        eq_int(tu_reader_load(r, 1000, &p, &err), TU_ELIMIT, "over the caller's limit");
        eq_int(tu_reader_load(r, UINT64_MAX, &p, &err), TU_ETRUNC, "loading: truncated");
        ok(!p, "nothing is given");
        eq_int(tu_reader_next(r, &rec, &err), TU_ETRUNC, "the failure repeats");
        eq_int(tu_reader_skip(r, &err), TU_ETRUNC, "in every call");
        eq_int(tu_reader_read(r, &n, sizeof n, &got, &err), TU_ETRUNC, "to read as well");
        eq_str(tu_reader_name(r), "test.tns", "the reader knows its name");
        tu_reader_free(r);
    }
    getrusage(RUSAGE_SELF, &after);
    ok(after.ru_maxrss - before.ru_maxrss < 64 << 10, "under 64 MiB of memory");
    tu_free(data);
}

int main(void)
{
    unsigned char *ex1 = kit_dump(ex1_dump, EX1_SIZE),
                  *ex2 = kit_dump(ex2_dump, EX2_SIZE);
    unsigned char both[EX1_SIZE + EX2_SIZE];
    memcpy(both, ex1, EX1_SIZE);
    memcpy(both + EX1_SIZE, ex2, EX2_SIZE);
    folder();
    messages();
    flips("example 1", ex1, EX1_SIZE);
    flips("example 2", ex2, EX2_SIZE);
    prefixes(both, sizeof both);
    claim();
    free(ex1);
    free(ex2);
    return tap_done();
}
