/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.c: the store as a whole: every block, what is broken, orphaned or old, and who
 * goes first when room is wanted. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "store.h"

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void tui_folder_free(char **file, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tu_free(file[i]);
    tu_free(file);
}

int tui_folder(const char *path, char ***file, size_t *n, size_t *cap, struct tu_err *err)
{
    DIR *d = opendir(path);
    int rc = 0;
    *file = NULL;
    *n = *cap = 0;
    if (!d)
        return errno == ENOENT ? 0 : tu_fail_errno(err, "%s", path);
    for (const struct dirent *e; !rc && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        rc = TU_GROW(file, cap, *n, err);
        if (!rc && !((*file)[*n] = tu_strdup(e->d_name, err)))
            rc = TU_ENOMEM;
        *n += !rc;
    }
    closedir(d);
    if (*n)
        qsort(*file, *n, sizeof **file, by_text);
    return rc;
}

static bool block_file(const char *name)
{
    return strlen(name) == TUI_NAME + 4 && !strcmp(name + TUI_NAME, ".tns") &&
           strspn(name, "0123456789abcdef") == TUI_NAME;
}

typedef int (*visit_fn)(void *ctx, const char *path, const char *name, const struct stat *st,
                        struct tu_err *err);

/* Every file below DIR/blocks; what vanishes meanwhile is passed over. */
static int visit(const char *dir, visit_fn fn, void *ctx, struct tu_err *err)
{
    char path[TUI_PATH], **sub, **file;
    size_t n, m, cap;
    snprintf(path, sizeof path, "%s/blocks", dir);
    int rc = tui_folder(path, &sub, &n, &cap, err);
    for (size_t i = 0; !rc && i < n; i++) {
        snprintf(path, sizeof path, "%s/blocks/%s", dir, sub[i]);
        struct stat st;
        if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
            continue;
        rc = tui_folder(path, &file, &m, &cap, err);
        for (size_t k = 0; !rc && k < m; k++) {
            int len = snprintf(path, sizeof path, "%s/blocks/%s/%s", dir, sub[i], file[k]);
            if (len < (int)sizeof path && stat(path, &st) == 0 && S_ISREG(st.st_mode))
                rc = fn(ctx, path, file[k], &st, err);
        }
        tui_folder_free(file, m);
    }
    tui_folder_free(sub, n);
    return rc;
}

struct scan {
    const char *dir;
    const struct tu_job *job;
    struct tu_kv_block *block;
    size_t n, cap;
    bool check, names; /* read whole; read the chain's names */
};

static int64_t nanoseconds(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static int take(void *ctx, const char *path, const char *name, const struct stat *st,
                struct tu_err *err)
{
    struct scan *s = ctx;
    (void)path;
    if (!block_file(name))
        return 0;
    if (tu_job_cancelled(s->job))
        return tu_fail(err, TU_ECANCEL, "stopped");
    int rc = TU_GROW(&s->block, &s->cap, s->n, err);
    if (rc)
        return rc;
    struct tu_kv_block *b = &s->block[s->n++];
    *b = (struct tu_kv_block){.bytes = (uint64_t)st->st_size, .used = nanoseconds(&st->st_mtim)};
    memcpy(b->name, name, TUI_NAME);
    if (!s->names)
        return 0;
    struct tu_kv_set set;
    struct tu_err why;
    rc = tui_block_open(&set, s->dir, b->name, b->parent, &b->index, &why);
    b->broken = rc != 0;
    if (rc) {
        struct stat now;
        if (stat(path, &now) < 0) /* evicted by another process meanwhile */
            s->n--;
        else if (s->check)
            tu_job_warn(s->job, "%s", why.msg);
        return 0;
    }
    b->tokens = set.kv[0]->tokens;
    tu_kv_set_release(&set);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tu_kv_block *)a)->name, ((const struct tu_kv_block *)b)->name);
}

static struct tu_kv_block *find(struct tu_kv_block *b, size_t n, const char *name)
{
    struct tu_kv_block key;
    memcpy(key.name, name, sizeof key.name);
    return n ? bsearch(&key, b, n, sizeof *b, by_name) : NULL;
}

/* A block is an orphan where the one before it is not there, is broken or is one. Taken in
 * the order of index, each needs to look at its parent alone. */
static int by_index(const void *a, const void *b)
{
    const struct tu_kv_block *x = *(struct tu_kv_block *const *)a,
                             *y = *(struct tu_kv_block *const *)b;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int find_orphans(struct scan *s, struct tu_err *err)
{
    struct tu_kv_block **order = tu_alloc(s->n, sizeof *order, err);
    if (!order)
        return TU_ENOMEM;
    for (size_t i = 0; i < s->n; i++)
        order[i] = &s->block[i];
    if (s->n)
        qsort(order, s->n, sizeof *order, by_index);
    for (size_t i = 0; i < s->n; i++) {
        const struct tu_kv_block *p = order[i]->index ? find(s->block, s->n, order[i]->parent)
                                                      : NULL;
        order[i]->orphan = !order[i]->broken && order[i]->index &&
                           (!p || p->broken || p->orphan);
    }
    tu_free(order);
    return 0;
}

int tu_kv_store_scan(const char *dir, bool check, struct tu_kv_block **out, size_t *n,
                     const struct tu_job *job, struct tu_err *err)
{
    struct scan s = {.dir = dir, .job = job, .check = check, .names = true};
    struct stat st;
    *out = NULL;
    *n = 0;
    if (stat(dir, &st) < 0)
        return tu_fail_errno(err, "%s", dir);
    int rc = visit(dir, take, &s, err);
    if (!rc && s.n)
        qsort(s.block, s.n, sizeof *s.block, by_name);
    if (!rc)
        rc = find_orphans(&s, err);
    if (rc) {
        tu_free(s.block);
        return rc;
    }
    *out = s.block;
    *n = s.n;
    return 0;
}

static int by_use(const void *a, const void *b)
{
    const struct tu_kv_block *x = a, *y = b;
    return x->used < y->used ? -1 : x->used > y->used ? 1 : strcmp(x->name, y->name);
}

static int remove_block(const char *dir, const struct tu_kv_block *b, struct tu_err *err)
{
    char path[TUI_PATH];
    int rc = tui_block_path(path, dir, b->name, err);
    if (!rc && unlink(path) < 0 && errno != ENOENT)
        rc = tu_fail_errno(err, "%s", path);
    return rc;
}

int tui_evict(const char *dir, uint64_t limit, uint64_t *evicted, const struct tu_job *job,
              struct tu_err *err)
{
    struct scan s = {.dir = dir, .job = job};
    uint64_t sum = 0;
    int rc = visit(dir, take, &s, err);
    for (size_t i = 0; i < s.n; i++)
        sum += s.block[i].bytes;
    if (!rc && s.n)
        qsort(s.block, s.n, sizeof *s.block, by_use);
    for (size_t i = 0; !rc && i < s.n && sum > limit; i++) {
        rc = remove_block(dir, &s.block[i], err);
        sum -= s.block[i].bytes;
        *evicted += !rc;
    }
    tu_free(s.block);
    return rc;
}

struct temporaries {
    struct tu_kv_swept *out;
    time_t before;
};

static int take_temporary(void *ctx, const char *path, const char *name, const struct stat *st,
                          struct tu_err *err)
{
    struct temporaries *t = ctx;
    (void)err;
    if (!block_file(name) && st->st_mtim.tv_sec < t->before && unlink(path) == 0)
        t->out->temporaries++;
    return 0;
}

int tu_kv_store_sweep(const char *dir, uint64_t age, uint64_t limit, struct tu_kv_swept *out,
                      const struct tu_job *job, struct tu_err *err)
{
    struct tu_kv_block *b = NULL;
    struct timespec now;
    size_t n = 0;
    *out = (struct tu_kv_swept){0};
    struct stat st;
    if (stat(dir, &st) < 0)
        return tu_fail_errno(err, "%s", dir);
    int lock = tui_store_lock(dir, err);
    if (lock < 0)
        return TU_EIO;
    clock_gettime(CLOCK_REALTIME, &now);
    struct temporaries t = {out, now.tv_sec - 3600};
    int rc = visit(dir, take_temporary, &t, err);
    if (!rc)
        rc = tu_kv_store_scan(dir, false, &b, &n, job, err);
    for (size_t i = 0; !rc && i < n; i++) {
        bool old = age && nanoseconds(&now) - b[i].used > (int64_t)tu_min(age, INT64_MAX);
        if (!b[i].broken && !b[i].orphan && !old) {
            out->blocks++;
            out->bytes += b[i].bytes;
            continue;
        }
        rc = remove_block(dir, &b[i], err);
        out->broken += b[i].broken;
        out->orphans += !b[i].broken && b[i].orphan;
        out->old += !b[i].broken && !b[i].orphan;
    }
    uint64_t evicted = 0;
    if (!rc && limit)
        rc = tui_evict(dir, limit, &evicted, job, err);
    out->old += evicted;
    out->blocks -= tu_min(evicted, out->blocks);
    tu_free(b);
    close(lock);
    return rc;
}
