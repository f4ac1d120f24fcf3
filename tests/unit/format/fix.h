/* SPDX-License-Identifier: Apache-2.0 */
/* fix.h: what the tests of formats share: a scratch folder, whole files, checked failures, and
 * loops that let each allocation and each system call fail in turn. */
#ifndef TESTS_UNIT_FORMAT_FIX_H
#define TESTS_UNIT_FORMAT_FIX_H

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <tensorutils/format.h>
#include "../inject.h"

static char fix_folder[64];

static inline void fix_remove(const char *path)
{
    DIR *d = opendir(path);
    if (!d) {
        unlink(path);
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        char *sub = malloc(strlen(path) + strlen(e->d_name) + 2);
        if (!sub)
            abort();
        sprintf(sub, "%s/%s", path, e->d_name);
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            fix_remove(sub);
        free(sub);
    }
    closedir(d);
    rmdir(path);
}

static inline void fix_clean(void)
{
    fix_remove(fix_folder);
}

/* The path of a file in a scratch folder that goes at exit. Eight may be held at once. */
static inline const char *fix_path(const char *name)
{
    static char path[8][1024];
    static unsigned k;
    if (!*fix_folder) {
        const char *tmp = getenv("TMPDIR");
        snprintf(fix_folder, sizeof fix_folder, "%.40s/tu-fix-XXXXXX", tmp ? tmp : "/tmp");
        if (!mkdtemp(fix_folder))
            abort();
        atexit(fix_clean);
    }
    char *out = path[k++ % 8];
    snprintf(out, sizeof path[0], "%s/%s", fix_folder, name);
    return out;
}

static inline const char *fix_write(const char *name, const void *data, size_t n)
{
    const char *path = fix_path(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f))
        abort();
    return path;
}

/* Whole file, malloc'ed; NULL where there is none. */
static inline unsigned char *fix_read(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    *n = 0;
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    unsigned char *data = malloc(*n + 1);
    if (!data || fread(data, 1, *n, f) != *n)
        abort();
    fclose(f);
    return data;
}

static inline bool fix_same(const char *path, const void *want, size_t n)
{
    size_t have;
    unsigned char *data = fix_read(path, &have);
    bool yes = data && have == n && !memcmp(data, want, n);
    for (size_t i = 0; data && !yes && i < have && i < n; i++) {
        if (data[i] != ((const unsigned char *)want)[i]) {
            printf("# %s: first difference at byte %zu\n", path, i);
            break;
        }
    }
    if (data && have != n)
        printf("# %s: %zu bytes, expected %zu\n", path, have, n);
    free(data);
    return yes;
}

/* Opening path must fail with this code and a message that names the file and holds `words`, which
 * are separated by '|'. */
static inline void fix_refused(const char *path, const struct tu_format *format,
                               const struct tu_open *how, int code, const char *words,
                               const char *what)
{
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    int got = tu_source_open(&s, path, format, how, NULL, &err);
    if (!got)
        tu_source_close(s);
    eq_str(tu_err_name(got), tu_err_name(code), "%s: code", what);
    bool said = got && (strstr(err.msg, path) ||    /* the file, or one of its set */
                        (*fix_folder && strstr(err.msg, fix_folder)));
    for (const char *w = words; said && *w;) {
        char one[128];
        size_t n = strcspn(w, "|");
        snprintf(one, sizeof one, "%.*s", (int)n, w);
        said = strstr(err.msg, one);
        w += n + (w[n] == '|');
    }
    if (!ok(said, "%s: the message names the file and says %s", what, words))
        printf("# message: %s\n", err.msg);
}

struct fix_work {
    int (*run)(struct tu_err *);
};

static inline int fix_run(const void *work, struct tu_err *err)
{
    return ((const struct fix_work *)work)->run(err);
}

/* Each allocation of run(), or each system call, fails in turn. */
static inline void fix_inject(int (*run)(struct tu_err *), bool memory, const char *what)
{
    const struct fix_work work = { run };
    inject_walk(&(struct inject){ .name = what, .run = fix_run, .arg = &work }, memory ? 0 : EIO);
}

/* Declare a tensor without metadata. */
static inline struct tu_tensor fix_tensor(const char *name, uint32_t dtype, unsigned rank,
                                          const uint64_t *dim)
{
    struct tu_tensor t = { .name = name, .dtype = dtype, .rank = rank, .dim = dim };
    struct tu_err err;
    if (tu_tensor_bytes(dtype, dim, rank, &t.bytes, &err)) {
        printf("# %s: %s\n", name, err.msg);
        abort();
    }
    return t;
}

/* Write tensors whose data is given (data[i] may be NULL for bytes that count up from i); out of
 * order and in halves, as sinks must allow. */
static inline int fix_save(const char *path, const struct tu_format *format,
                           const struct tu_save *what, const void *const *data,
                           struct tu_err *err)
{
    struct tu_sink *s = NULL;
    int code = tu_sink_open(&s, path, format, what, NULL, err);
    if (code)
        return code;
    for (size_t i = what->n; !code && i-- > 0;) {
        size_t n = (size_t)what->tensor[i].bytes, half = n / 2;
        unsigned char *p = malloc(n + 1);
        for (size_t k = 0; k < n; k++)
            p[k] = data && data[i] ? ((const unsigned char *)data[i])[k] : (unsigned char)(i + k);
        code = tu_sink_write(s, i, half, p + half, n - half, err);
        if (!code)
            code = tu_sink_write(s, i, 0, p, half, err);
        free(p);
    }
    if (!code)
        return tu_sink_finish(s, false, err);
    tu_sink_abort(s);
    return code;
}

/* Does tensor i of s hold the bytes that fix_save gave tensor k without data? Read in odd steps. */
static inline bool fix_holds(struct tu_source *s, size_t i, size_t k)
{
    size_t n = (size_t)s->tensor[i].bytes;
    bool yes = true;
    for (size_t off = 0; yes && off < n;) {
        unsigned char p[37];
        size_t step = n - off < sizeof p ? n - off : sizeof p;
        yes = !tu_source_read(s, i, off, p, step, NULL);
        for (size_t b = 0; yes && b < step; b++)
            yes = p[b] == (unsigned char)(k + off + b);
        off += step;
    }
    return yes;
}

#endif
