/* SPDX-License-Identifier: Apache-2.0 */
/* publish.c: a converted checkpoint appears whole or not at all.
 *
 * Everything is written below ROOT.partial-ID, where ID is a checksum of the plan, and
 * renamed when it is durable. A run that was killed leaves the partial folder; the next
 * run of the same plan finds it by its name and starts again. Of runs of one plan at the
 * same time the first locks the folder and the others fail; of different plans the first
 * to end wins, unless they may replace what is there. */

/* renameat2 (RENAME_EXCHANGE) needs _GNU_SOURCE. */
#define _GNU_SOURCE

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lora.h"
#include "publish.h"

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static int remove_below(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return at->level ? remove_one(path, st, type, at) : 0;
}

void tui_remove_tree(const char *path)
{
    nftw(path, remove_one, 1, FTW_DEPTH | FTW_PHYS);
}

int tui_empty_tree(const char *path, struct tu_err *err)
{
    return nftw(path, remove_below, 1, FTW_DEPTH | FTW_PHYS)
               ? tu_fail_errno(err, "%s: what a run that was killed left stays", path)
               : 0;
}

/* The folder that holds a path: "." for a bare name. */
static char *parent_of(const char *path, struct tu_err *err)
{
    char *copy = tu_strdup(path, err);
    if (!copy)
        return NULL;
    size_t n = strlen(copy);
    while (n > 1 && copy[n - 1] == '/')
        copy[--n] = 0;
    char *slash = strrchr(copy, '/');
    if (!slash)
        memcpy(copy, ".", n ? 2 : 1);
    else
        slash[slash == copy] = 0;
    return copy;
}

/* Make the folders of a file below the root. */
static int make_parents(char *path, size_t keep, struct tu_err *err)
{
    for (char *p = path + keep; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        int failed = mkdir(path, 0777) && errno != EEXIST;
        if (failed)
            tu_fail_errno(err, "%s", path);
        *p = '/';
        if (failed)
            return TU_EIO;
    }
    return 0;
}

uint32_t tui_plan_id(const struct tu_ckpt *to)
{
    uint32_t crc = tu_crc32(0, to->layout->name, strlen(to->layout->name));
    for (size_t i = 0; i < to->pieces; i++) {
        const struct tu_tensor *t = &to->piece[i].tensor;
        const char *path = to->file[to->piece[i].file].path;
        crc = tu_crc32(crc, path, strlen(path));
        crc = tu_crc32(crc, t->name, strlen(t->name));
        crc = tu_crc32(crc, t->dim, t->rank * sizeof *t->dim);
        crc = tu_crc32(crc, &t->dtype, sizeof t->dtype);
    }
    return crc;
}

/* Bytes free for us in the folder that will hold the result. */
static int free_bytes(const char *root, uint64_t *out, struct tu_err *err)
{
    struct statvfs v;
    char *parent = parent_of(root, err);
    if (!parent)
        return TU_ENOMEM;
    int rc = statvfs(parent, &v) ? tu_fail_errno(err, "%s", parent) : 0;
    *out = rc ? 0 : (uint64_t)v.f_bavail * v.f_frsize;
    tu_free(parent);
    return rc;
}

/* How much of the bytes of a source's files the disk holds: holes, which are written as
 * holes again, are not. */
static void add_held(const struct tu_source *s, uint64_t *held, uint64_t *size)
{
    const struct tu_in *last = NULL;
    for (size_t i = 0; s->extent && i < s->n; i++) {
        struct stat st;
        const struct tu_in *in = s->extent[i].in;
        if (!in || in == last || fstat(tu_in_fd(in), &st) || !S_ISREG(st.st_mode))
            continue;
        last = in;
        *size += (uint64_t)st.st_size;
        *held += tu_min((uint64_t)st.st_size, (uint64_t)st.st_blocks * 512);
    }
}

/* Of these bytes, those that need space: as many as of the source's. */
static uint64_t space_for(const struct tu_ckpt *from, uint64_t bytes)
{
    uint64_t held = 0, size = 0;
    for (size_t f = 0; f < from->files; f++)
        add_held(from->file[f].source, &held, &size);
    return held < size ? (uint64_t)((double)bytes * ((double)held / (double)size)) : bytes;
}

int tu_plan_cost(const struct tu_ckpt *from, const struct tu_ckpt *to,
                 const struct tu_job *job, struct tu_plan_cost *out, struct tu_err *err)
{
    *out = (struct tu_plan_cost){
        .files = to->files, .tensors = to->pieces, .memory_bytes = tu_job_memory(job)};
    for (size_t a = 0; a < from->atoms; a++)
        out->read_bytes += from->atom[a].tensor.bytes;
    for (size_t f = 0; f < to->files; f++)
        for (size_t i = 0; i < to->file[f].save.n; i++)
            out->write_bytes += to->file[f].save.tensor[i].bytes;
    out->space_bytes = space_for(from, out->write_bytes);
    for (size_t i = 0; i < to->sides && to->layout->side_folder; i++) {
        out->write_bytes += to->side[i].n;
        out->space_bytes += to->side[i].n;
        out->files++;
    }
    return free_bytes(to->root, &out->free_bytes, err);
}

/* Is `inner` the same folder as `outer` or below it? */
static bool inside(const char *inner, const char *outer)
{
    char a[PATH_MAX], b[PATH_MAX];
    char *parent = parent_of(inner, NULL);
    bool yes = false;
    if (realpath(outer, b) && (realpath(inner, a) || (parent && realpath(parent, a)))) {
        size_t n = strlen(b);
        yes = !strncmp(a, b, n) && (!a[n] || a[n] == '/');
    }
    tu_free(parent);
    return yes;
}

/* Same file, whatever it is called. */
static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int refuse_overlap(const struct tu_ckpt *from, const struct tu_ckpt *to,
                          struct tu_err *err)
{
    if (same_file(from->root, to->root) ||
        (tui_is_dir(from->root) && inside(to->root, from->root)) ||
        (tui_is_dir(to->root) && inside(from->root, to->root)))
        return tu_fail(
            err, TU_EUSAGE,
            "%.150s: source and destination overlap: nothing is converted in place",
            to->root);
    return 0;
}

int tui_refuse(const struct tu_ckpt *from, struct tu_ckpt *to,
               const struct tu_shard_opts *o, const struct tu_job *job,
               struct tu_err *err)
{
    struct tu_plan_cost cost;
    struct stat st;
    int rc = refuse_overlap(from, to, err);
    for (size_t i = 0; o && o->mean && i < o->mean->n && !rc; i++)
        rc = refuse_overlap(o->mean->with[i], to, err);
    for (size_t i = 0; o && i < o->loras && !rc; i++) {
        rc = refuse_overlap(tui_lora_ckpt(o->lora[i]), to, err);
        if (!rc)
            rc = tui_lora_fits(o->lora[i], from, o, err);
    }
    if (!rc && !from->atoms && from->dropped)
        rc = tu_fail(err, TU_EINCOMPLETE,
                     "%.200s: none of its %llu tensors is taken by this layout",
                     from->root, (unsigned long long)from->dropped);
    if (!rc && from->atoms && !to->pieces)
        rc = tu_fail(err, TU_EUSAGE,
                     "%.150s: layout %s has no place for any of the %zu tensors chosen",
                     from->root, to->layout->name, from->atoms);
    if (rc)
        return rc;
    if (!(o && o->force) && !stat(to->root, &st) &&
        (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)))
        return tu_fail(err, TU_EEXISTS, "%.200s: exists (-f replaces it)", to->root);
    if ((rc = tu_folder_replaceable(to->root, err)))
        return rc;
    if (!lstat(to->root, &st) && S_ISDIR(st.st_mode) != !!*to->file[0].path)
        return tu_fail(err, TU_EEXISTS, "%.200s: is %sa folder", to->root,
                       S_ISDIR(st.st_mode) ? "" : "not ");
    rc = tu_plan_cost(from, to, job, &cost, err);
    if (!rc && o && (o->parts || o->resume))
        cost.free_bytes += tui_part_held(from, to, o);
    if (!rc && cost.space_bytes > cost.free_bytes)
        rc = tu_fail(err, TU_EIO, "%.120s: the result needs %llu bytes and %llu are free",
                     to->root, (unsigned long long)cost.space_bytes,
                     (unsigned long long)cost.free_bytes);
    return rc;
}

static int open_sinks(struct tui_target *t, struct tu_err *err)
{
    struct tu_ckpt *to = t->to;
    int rc = 0;
    t->sink = tu_calloc(to->files + 1, sizeof *t->sink, err);
    if (!t->sink)
        return TU_ENOMEM;
    for (size_t f = 0; f < to->files && !rc; f++) {
        if (t->mine && !t->mine[f])
            continue;
        char *path = *t->folder ? tui_join(to->arena, t->folder, to->file[f].path, err)
                                : tui_join(to->arena, to->root, "", err);
        rc = path ? 0 : TU_ENOMEM;
        if (!rc && *t->folder)
            rc = make_parents(path, strlen(t->folder) + 1, err);
        if (!rc)
            rc = tu_sink_open(&t->sink[f], path, to->file[f].format, &to->file[f].save,
                              t->job, err);
    }
    return rc;
}

static int finish_sinks(struct tui_target *t, struct tu_err *err)
{
    int rc = 0;
    for (size_t f = 0; f < t->to->files && !rc; f++) {
        if (t->sink[f])
            rc = tu_sink_finish(t->sink[f], true, err);
        t->sink[f] = NULL;
    }
    return rc;
}

static int write_small(struct tui_target *t, const char *folder, const char *name,
                       const char *text, size_t n, struct tu_err *err)
{
    char *at = tui_join(t->to->arena, t->folder, folder, err);
    char *path = at ? tui_join(t->to->arena, at, name, err) : NULL;
    int rc = path ? make_parents(path, strlen(t->folder) + 1, err) : TU_ENOMEM;
    return rc ? rc : tu_file_write(path, text, n, true, t->job, err);
}

int tui_digest_text(struct tu_buf *out, const struct tu_digest *d, size_t n,
                    struct tu_err *err)
{
    struct tu_digest *sorted = tu_alloc(n + 1, sizeof *sorted, err);
    size_t k = 0;
    if (!sorted)
        return TU_ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (d[i].name) /* the layout had a place for it */
            sorted[k++] = d[i];
    int rc = tu_digest_write(out, sorted, k, err);
    tu_free(sorted);
    return rc;
}

int tui_target_rest(struct tui_target *t, const char *digests, size_t n,
                    struct tu_err *err)
{
    const struct tu_ckpt *to = t->to;
    int rc = 0;
    for (size_t i = 0; i < to->sides && to->layout->side_folder && !rc; i++)
        rc = write_small(t, to->layout->side_folder, to->side[i].name, to->side[i].text,
                         to->side[i].n, err);
    if (!rc)
        rc = write_small(t, "", TU_DIGESTS, digests, n, err);
    if (!rc && to->layout->extra)
        rc = to->layout->extra(to, t->folder, t->job, err);
    return rc;
}

static int write_rest(struct tui_target *t, const struct tu_digest *d, size_t n,
                      struct tu_err *err)
{
    struct tu_buf b = {0};
    int rc = tui_digest_text(&b, d, n, err);
    if (!rc)
        rc = tui_target_rest(t, b.data ? b.data : "", b.n, err);
    tu_buf_release(&b);
    return rc;
}

int tui_target_write(struct tui_target *t, const struct tu_ckpt *from,
                     const struct tu_shard_opts *o, struct tu_digest *d,
                     struct tu_err *err)
{
    int rc = open_sinks(t, err);
    if (!rc)
        rc = tui_move(from, t->to, t->sink, o, t->job, d, err);
    if (!rc)
        rc = finish_sinks(t, err);
    for (size_t f = 0; t->sink && f < t->to->files; f++)
        tu_sink_abort(t->sink[f]);
    tu_free(t->sink);
    t->sink = NULL;
    return rc;
}

/* fsync every folder below the partial one: names must last before the rename. */
static int sync_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)at;
    return type == FTW_DP ? tu_dir_sync(path, NULL) : 0;
}

/* Give the folder its name; with force one that is there gets ours. Network file systems
 * refuse flags (EINVAL): there rename itself, which replaces no full folder. */
static int rename_folder(const char *from, const char *to, bool force, bool *exchanged)
{
    struct stat st;
    int rc;
    for (unsigned tries = 0; tries < 100; tries++) { /* others come and go meanwhile */
        *exchanged = force && !lstat(to, &st);
        rc = renameat2(AT_FDCWD, from, AT_FDCWD, to,
                       *exchanged ? RENAME_EXCHANGE : RENAME_NOREPLACE);
        if (!rc || !force || (errno != EEXIST && errno != ENOENT))
            break;
    }
    return rc && errno == EINVAL && !*exchanged ? rename(from, to) : rc;
}

/* Replace a folder where the system cannot exchange two in one step. */
static int replace_slowly(const char *partial, const char *root, struct tu_err *err)
{
    struct tu_buf old = {0};
    int rc = tu_buf_printf(&old, err, "%s.old", partial);
    if (!rc && rename(root, old.data))
        rc = tu_fail_errno(err, "%s", root);
    else if (!rc && rename(partial, root)) {
        rc = tu_fail_errno(err, "%s", root);
        (void)!rename(old.data, root);
    } else if (!rc) {
        tui_remove_tree(old.data);
    }
    tu_buf_release(&old);
    return rc;
}

/* Open the folder and lock it until *lock is closed; how: LOCK_NB, or 0 to wait.
 * TU_EEXISTS: another run has it. File systems without locks do without. */
static int lock_folder(const char *path, int how, int *lock, struct tu_err *err)
{
    struct stat ours, there;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return tu_fail_errno(err, "%s", path);
    bool taken = flock(fd, LOCK_EX | how) && errno == EWOULDBLOCK;
    /* Between open and flock its owner may have ended, and renamed or removed it. */
    if (taken || fstat(fd, &ours) || stat(path, &there) || ours.st_dev != there.st_dev ||
        ours.st_ino != there.st_ino) {
        close(fd);
        return tu_fail(err, TU_EEXISTS, "%.200s: another run writes here", path);
    }
    *lock = fd;
    return 0;
}

/* Remove what was there before and has the partial name now, unless a later run of the
 * plan has taken it over. */
static void discard(const char *partial, const struct tu_job *job)
{
    int lock;
    if (lock_folder(partial, 0, &lock, NULL))
        return;
    tu_job_temporary(job, partial, TU_TEMP_GONE); /* it was another folder */
    tu_job_temporary(job, partial, TU_TEMP_BORN);
    tu_job_temporary(job, partial, TU_TEMP_TREE);
    tui_remove_tree(partial);
    tu_job_temporary(job, partial, TU_TEMP_GONE);
    close(lock);
}

/* On success *lock is closed and -1: the partial folder is ours no more. */
int tui_publish(const char *partial, const char *root, bool force, int *lock,
                const struct tu_job *job, struct tu_err *err)
{
    char *parent = parent_of(root, err);
    int rc = parent ? 0 : TU_ENOMEM;
    bool exchanged = false;
    if (!rc && nftw(partial, sync_one, 16, FTW_DEPTH | FTW_PHYS))
        rc = tu_fail_errno(err, "%s", partial);
    if (!rc && rename_folder(partial, root, force, &exchanged)) {
        if (errno == EINVAL && exchanged)
            rc = replace_slowly(partial, root, err);
        else if (errno == EEXIST || errno == ENOTEMPTY)
            rc = tu_fail(err, TU_EEXISTS, "%.200s: another run made it meanwhile", root);
        else
            rc = tu_fail_errno(err, "%s", root);
        exchanged = false;
    }
    if (!rc && (rc = tu_dir_sync(parent, err)))
        (void)renameat2(AT_FDCWD, root, AT_FDCWD, partial, /* not durable: take it back */
                        exchanged ? RENAME_EXCHANGE : RENAME_NOREPLACE);
    if (!rc && *lock >= 0)
        close(*lock);
    if (!rc)
        *lock = -1;
    if (!rc && exchanged)
        discard(partial, job);
    tu_free(parent);
    return rc;
}

/* *spare: a descriptor in reserve for the removal, which has to list folders. */
static int make_partial(struct tu_ckpt *to, const struct tu_job *job, char **out, int *lock,
                        int *spare, struct tu_err *err)
{
    size_t n = strlen(to->root);
    while (n > 1 && to->root[n - 1] == '/')
        to->root[--n] = 0;
    char *path = tu_arena_printf(to->arena, err, "%s.partial-%08x", to->root,
                                 tui_plan_id(to));
    if (!path)
        return TU_ENOMEM;
    *spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (*spare < 0)
        return tu_fail_errno(err, "%s", path);
    tu_job_temporary(job, path, TU_TEMP_BORN);
    bool made = !mkdir(path, 0777);
    int rc = made || errno == EEXIST ? lock_folder(path, LOCK_NB, lock, err)
                                     : tu_fail_errno(err, "%s", path);
    if (rc) { /* another's, or none: a signal must not touch it */
        tu_job_temporary(job, path, TU_TEMP_GONE);
        if (made && rc != TU_EEXISTS)
            rmdir(path);
        return rc;
    }
    *out = path;
    tu_job_temporary(job, path, TU_TEMP_TREE);
    return made ? 0 : tui_empty_tree(path, err);
}

int tu_ckpt_agree(const struct tu_ckpt *from, const struct tu_shard_opts *o,
                  const struct tu_job *job, struct tu_err *err)
{
    int rc = tu_ckpt_replicas(from, !(o && o->verify_replicas), job, err);
    if (rc == TU_EDIFFER && err)
        err->code = TU_EINCOMPLETE;
    return rc == TU_EDIFFER ? TU_EINCOMPLETE : rc;
}

int tu_ckpt_convert(const struct tu_ckpt *from, struct tu_ckpt *to,
                    const struct tu_shard_opts *o, const struct tu_job *job,
                    struct tu_digest *digest, struct tu_err *err)
{
    struct tui_target t = {.to = to, .job = job, .folder = ""};
    bool folder = to->files && *to->file[0].path;
    char *partial = NULL;
    int lock = -1, spare = -1;
    if (!to->files)
        return tu_fail(err, TU_EUSAGE, "%.200s: there is nothing to convert", from->root);
    struct tu_digest *d = digest ? digest : tu_calloc(from->atoms + 1, sizeof *d, err);
    int rc = d ? tui_refuse(from, to, o, job, err) : TU_ENOMEM;
    if (!rc)
        rc = tu_ckpt_agree(from, o, job, err);
    if (!rc && to->layout->configured && !tui_side(to, "config.json"))
        tu_job_warn(job, "%.150s: gets no config.json, as %.80s has none (--config)",
                    to->root, from->root);
    if (!rc && o && (o->parts || o->resume)) {
        tui_part_others(from, to, o, job);
        rc = o->parts ? tui_convert_part(from, to, o, job, d, err)
                      : tui_convert_files(from, to, o, job, d, err);
        goto out;
    }
    if (!rc && folder) {
        rc = make_partial(to, job, &partial, &lock, &spare, err);
        t.folder = partial;
    }
    if (!rc)
        rc = tui_target_write(&t, from, o, d, err);
    if (!rc && folder)
        rc = write_rest(&t, d, from->atoms, err);
    if (!rc && folder)
        rc = tui_publish(partial, to->root, o && o->force, &lock, job, err);
    if (spare >= 0)
        close(spare);
    if (lock >= 0) { /* failed, and the folder is still ours */
        tui_remove_tree(partial);
        close(lock);
    }
    if (partial)
        tu_job_temporary(job, partial, TU_TEMP_GONE);
out:
    if (d != digest)
        tu_free(d);
    return rc;
}
