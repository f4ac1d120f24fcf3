/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of npz: the archives of numpy against their oracles, byte and array orders there and back,
 * what is refused. */
#include <fcntl.h>

#include "fix.h"
#include "oracle.h"

#define FORMAT (tu_format_find("npz"))
#define DATA "tests/data/npy"

/* The member `name` of an archive, malloc'ed; NULL if none. */
static void *member(const char *path, const char *name, size_t *n)
{
    struct tu_in *in;
    struct tu_zip *z;
    void *data = NULL, *copy = NULL;
    if (tu_in_open(&in, path, NULL))
        return NULL;
    if (!tu_zip_open(&z, in, 0, 0, NULL)) {
        size_t i = tu_zip_find(z, name);
        if (i != SIZE_MAX && !tu_zip_load(z, i, 1 << 24, true, &data, n, NULL)) {
            copy = malloc(*n + 1);
            memcpy(copy, data, *n);
            tu_free(data);
        }
        tu_zip_close(z);
    }
    tu_in_close(in);
    return copy;
}

/* Read an archive and write it again: every member is the bytes that numpy wrote. */
static void again(const char *path)
{
    struct tu_source *s;
    struct tu_sink *sink;
    struct tu_err err;
    uint64_t done = 0;
    if (!ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "%s: read", path))
        return;
    eq_str(s->format->name, "npz", "%s: recognised", path);
    struct tu_save save = { .n = s->n, .tensor = s->tensor };
    const char *to = fix_path("again.npz");
    int rc = tu_sink_open(&sink, to, FORMAT, &save, NULL, &err);
    for (size_t i = 0; !rc && i < s->n; i++)
        rc = tu_source_copy(s, i, sink, i, &done, s->referenced, NULL, &err);
    ok(!rc && !tu_sink_finish(sink, false, &err), "%s: written again", path);
    for (size_t i = 0; i < s->n; i++) {
        char name[300];
        size_t n, m;
        snprintf(name, sizeof name, "%s.npy", s->tensor[i].name);
        void *want = member(path, name, &n), *got = member(to, name, &m);
        ok(want && got && n == m && !memcmp(want, got, n), "%s: %s: the bytes of numpy", path, name);
        free(want);
        free(got);
    }
    tu_source_close(s);
}

static void fixtures(void)
{
    unsigned files = oracle_folder(DATA, ".npz");
    if (!files) {
        tap_skip("files of numpy", "no " DATA);
        return;
    }
    eq_u64(files, 3, "files of numpy");
    again(DATA "/stored.npz");
    again(DATA "/deflated.npz");
    again(DATA "/positional.npz");
}

static void round_trip(void)
{
    static const uint32_t dtypes[] = { TU_F64, TU_F32, TU_F16, TU_I64, TU_I8, TU_BOOL, TU_C128 };
    enum { N = sizeof dtypes / sizeof *dtypes + 2 };
    static const uint64_t dim[3] = { 2, 0, 5 }, five[1] = { 5 };
    struct tu_tensor t[N];
    struct tu_source *s;
    struct tu_err err;
    for (size_t i = 0; i < N - 2; i++)
        t[i] = fix_tensor(tu_dtype_find(dtypes[i])->name, dtypes[i], 1, five);
    t[N - 2] = fix_tensor("a/scalar", TU_F32, 0, NULL);
    t[N - 1] = fix_tensor("empty", TU_F32, 3, dim);
    t[0].meta = "{\"src\":{\"descr\":\">f8\",\"format\":\"npy\",\"fortran_order\":false}}";
    struct tu_save save = { .n = N, .tensor = t };
    ok(!fix_save(fix_path("all.npz"), FORMAT, &save, NULL, &err), "written");
    if (!ok(!tu_source_open(&s, fix_path("all.npz"), NULL, NULL, NULL, &err), "read"))
        return;
    eq_u64(s->n, N, "count");
    for (size_t i = 0; i < s->n && i < N; i++) {
        eq_str(s->tensor[i].name, t[i].name, "name");
        ok(s->tensor[i].dtype == t[i].dtype && s->tensor[i].rank == t[i].rank, "%s: dtype, rank",
           t[i].name);
        ok(fix_holds(s, i, i), "%s: bytes", t[i].name);
        ok(!tu_source_verify(s, i, NULL, &err), "%s: checksum", t[i].name);
        ok(s->tensor[i].rank == 0 || s->extent[i].in == NULL || s->extent[i].off % 64 == 0,
           "%s: aligned", t[i].name);
    }
    ok(s->tensor[0].meta && !s->extent[0].in, "big-endian stayed so");
    tu_source_close(s);
    save.n = 0;
    ok(!fix_save(fix_path("none.npz"), FORMAT, &save, NULL, &err), "no arrays: written");
    if (ok(!tu_source_open(&s, fix_path("none.npz"), NULL, NULL, NULL, &err), "no arrays: read")) {
        eq_u64(s->n, 0, "no arrays: none");
        tu_source_close(s);
    }
}

/* A stored archive of one member. */
static const char *one(const char *name, const void *data, size_t n)
{
    struct tu_zip_plan e = { .name = name, .size = n, .crc = tu_crc32(0, data, n) };
    struct tu_out *out;
    uint64_t size;
    if (tu_zip_layout(&e, 1, 64, &size, NULL) ||
        tu_out_open(&out, fix_path("one.npz"), NULL, NULL) ||
        tu_out_pwrite(out, e.offset, data, n, NULL) || tu_zip_finish(out, &e, 1, 64, NULL) ||
        tu_out_commit(out, false, NULL))
        abort();
    return fix_path("one.npz");
}

static void refusals(void)
{
    static char array[128 + 8] = "\x93NUMPY\1\0\x76\0{'descr': '<f4', 'fortran_order': False, "
                                 "'shape': (2,), }";
    struct tu_err err;
    struct tu_source *s;
    memset(array + strlen(array + 10) + 10, ' ', 117 - strlen(array + 10));
    array[127] = '\n';
    ok(!tu_source_open(&s, one("x.npy", array, 136), FORMAT, NULL, NULL, &err), "an array");
    eq_u64(s->crc[0], 0x6522df69, "the CRC of eight zero bytes, from the member's");
    tu_source_close(s);
    fix_refused(one("x.npy", array, 135), NULL, NULL, TU_ETRUNC, "member 'x.npy'", "a byte missing");
    fix_refused(one("x.txt", array, 136), FORMAT, NULL, TU_EUNSUP, "'x.txt' is no .npy",
                "another member");
    fix_refused(one(".npy", array, 136), FORMAT, NULL, TU_EUNSUP, "'.npy' is no", "no name");
    memcpy(array + 20, "'|O' ", 5);
    fix_refused(one("x.npy", array, 136), NULL, NULL, TU_EUNSUP, "member 'x.npy'", "objects");
    memcpy(array + 20, "'<f4'", 5);

    size_t n;
    unsigned char *p = fix_read(one("x.npy", array, 136), &n);
    p[64 + 130] ^= 1;
    const char *path = fix_write("flip.npz", p, n);
    free(p);
    ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "a bit of the data: opened");
    eq_int(tu_source_verify(s, 0, NULL, &err), TU_EPCRC, "a bit of the data: seen");
    tu_source_close(s);

    static const char *const names[] = { "/x", "..", "a/../b", "../x", "a/.." };
    for (size_t i = 0; i < 5; i++) {
        struct tu_tensor t = fix_tensor(names[i], TU_F32, 0, NULL);
        struct tu_save save = { .n = 1, .tensor = &t };
        eq_int(fix_save(fix_path("bad.npz"), FORMAT, &save, NULL, &err), TU_ENAME, "name %s",
               names[i]);
    }
    struct tu_tensor t = fix_tensor("bf", TU_BF16, 0, NULL);
    struct tu_save save = { .n = 1, .tensor = &t };
    eq_int(fix_save(fix_path("bad.npz"), FORMAT, &save, NULL, &err), TU_EDTYPE, "bf16");
    ok(access(fix_path("bad.npz"), F_OK) != 0, "no file is left");
}

static int write_all(struct tu_err *err)
{
    struct tu_tensor t[2] = { fix_tensor("a", TU_F32, 1, (uint64_t[]){ 3 }),
                              fix_tensor("b", TU_F32, 2, (uint64_t[]){ 3, 2 }) };
    t[1].meta = "{\"src\":{\"descr\":\">f4\",\"format\":\"npy\",\"fortran_order\":true}}";
    struct tu_save save = { .n = 2, .tensor = t };
    return fix_save(fix_path("inject.npz"), FORMAT, &save, NULL, err);
}

static int read_path(const char *path, struct tu_err *err)
{
    struct tu_source *s;
    char got[64];
    int rc = tu_source_open(&s, path, NULL, NULL, NULL, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < 2; i++) {
        rc = tu_source_verify(s, i, NULL, err);
        if (rc == 0)
            rc = tu_source_read(s, i, 0, got, 12, err);
    }
    tu_source_close(s);
    return rc;
}

static int read_all(struct tu_err *err)
{
    return read_path(fix_path("inject.npz"), err);
}

static int read_deflated(struct tu_err *err)
{
    return read_path(DATA "/deflated.npz", err);
}

int main(void)
{
    fixtures();
    round_trip();
    refusals();
    fix_inject(write_all, true, "writing");
    fix_inject(write_all, false, "writing");
    fix_inject(read_all, true, "reading");
    fix_inject(read_all, false, "reading");
    if (access(DATA "/deflated.npz", R_OK) == 0) {
        fix_inject(read_deflated, true, "inflating");
        fix_inject(read_deflated, false, "inflating");
    }
    return tap_done();
}
