/* SPDX-License-Identifier: Apache-2.0 */
/* part.c: one conversion by several processes, on one host or many.
 *
 * Nobody coordinates. Each process makes the same plan and shares its files out by bytes;
 * part I writes its own below ROOT.partial-ID and leaves its digests as I.done in the
 * folder ROOT.partial-ID.parts. Whoever finds all of them there, under a lock, publishes.
 * A part that was killed is run again by itself; one that is done does nothing. The ID
 * holds the sizes and times of the source's files, so parts of two saves never mix.
 *
 * Whole files are shared out since formats end a file with checksums over all of it. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "publish.h"

struct part {
    char *partial, *notes;
    bool *mine; /* [to->files] */
    int lock;   /* this part's, while it runs */
};

/* In an order that no locale changes: hosts must agree. */
static int by_entry(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Name, size and time of a file, or of those in a folder. */
static uint32_t stamp(uint32_t crc, const char *path)
{
    struct dirent **list = NULL;
    struct stat st;
    int n = 0;
    if (stat(path, &st))
        return crc;
    int64_t what[3] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
    crc = tu_crc32(crc, path, strlen(path));
    crc = tu_crc32(crc, what, sizeof what);
    if (S_ISDIR(st.st_mode))
        n = scandir(path, &list, NULL, by_entry);
    for (int i = 0; i < n; i++) {
        struct tu_buf b = {0};
        if (*list[i]->d_name != '.' &&
            !tu_buf_printf(&b, NULL, "%s/%s", path, list[i]->d_name) &&
            !tui_is_dir(b.data))
            crc = stamp(crc, b.data);
        tu_buf_release(&b);
        free(list[i]);
    }
    free(list);
    return crc;
}

static uint32_t identity(const struct tu_ckpt *from, const struct tu_ckpt *to,
                         const struct tu_shard_opts *o)
{
    uint32_t crc = tui_plan_id(to);
    uint64_t how[3] = {o->parts, o->pad_last, o->sha256};
    crc = tu_crc32(crc, how, sizeof how);
    for (size_t f = 0; f < from->files; f++)
        crc = stamp(crc, from->file[f].source->path);
    return crc;
}

/* Each file to the part that has the fewest bytes so far. */
static int share_out(struct part *p, const struct tu_ckpt *to,
                     const struct tu_shard_opts *o, struct tu_err *err)
{
    uint64_t *load = tu_calloc(o->parts, sizeof *load, err);
    if (load)
        p->mine = tu_arena_alloc(to->arena, to->files + 1, sizeof *p->mine, err);
    for (size_t f = 0; p->mine && f < to->files; f++) {
        uint32_t least = 0;
        for (uint32_t i = 1; i < o->parts; i++)
            if (load[i] < load[least])
                least = i;
        for (size_t i = 0; i < to->file[f].save.n; i++)
            load[least] += to->file[f].save.tensor[i].bytes;
        load[least]++; /* empty files count too */
        p->mine[f] = least + 1 == o->part;
    }
    tu_free(load);
    return p->mine ? 0 : TU_ENOMEM;
}

/* Open and lock a file among the notes. */
static int note_lock(struct part *p, struct tu_arena *a, const char *name, int how,
                     int *fd, struct tu_err *err)
{
    char *path = tui_join(a, p->notes, name, err);
    if (!path)
        return TU_ENOMEM;
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0)
        return tu_fail_errno(err, "%s", path);
    if (flock(*fd, LOCK_EX | how) && errno == EWOULDBLOCK) {
        close(*fd);
        *fd = -1;
        return tu_fail(err, TU_EEXISTS, "%.200s: another run writes this part", path);
    }
    return 0;
}

static char *done_path(const struct part *p, struct tu_arena *a, uint32_t i,
                       struct tu_err *err)
{
    return tu_arena_printf(a, err, "%s/%u.done", p->notes, i);
}

static char *partial_path(const struct tu_ckpt *from, struct tu_ckpt *to,
                          const struct tu_shard_opts *o, struct tu_err *err)
{
    return tu_arena_printf(to->arena, err, "%s.partial-%08x", to->root,
                           identity(from, to, o));
}

/* Begun before the partial folder gets its name: from then on what has that name may be
 * anything, and no part of it is done. */
static char *mark_path(const struct part *p, struct tu_arena *a, struct tu_err *err)
{
    return tui_join(a, p->notes, "published", err);
}

/* No part is done any more. */
static int undo(const struct part *p, struct tu_arena *a, uint32_t parts,
                struct tu_err *err)
{
    int rc = 0;
    for (uint32_t i = 1; i <= parts && !rc; i++) {
        char *done = done_path(p, a, i, err);
        rc = done ? 0 : TU_ENOMEM;
        if (!rc && unlink(done) && errno != ENOENT)
            rc = tu_fail_errno(err, "%s", done);
    }
    return rc;
}

/* A run was killed while it published: all parts are to be written again. */
static int forget(struct part *p, struct tu_arena *a, uint32_t parts, struct tu_err *err)
{
    int all = -1, rc = note_lock(p, a, "lock", 0, &all, err);
    char *mark = rc ? NULL : mark_path(p, a, err);
    if (!rc && !mark)
        rc = TU_ENOMEM;
    if (!rc && tui_is_file(mark)) {
        rc = tui_empty_tree(p->partial, err);
        if (!rc)
            rc = undo(p, a, parts, err);
        if (!rc && unlink(mark))
            rc = tu_fail_errno(err, "%s", mark);
    }
    if (all >= 0)
        close(all);
    return rc;
}

static int begin(struct part *p, const struct tu_ckpt *from, struct tu_ckpt *to,
                 const struct tu_shard_opts *o, struct tu_err *err)
{
    size_t n = strlen(to->root);
    while (n > 1 && to->root[n - 1] == '/')
        to->root[--n] = 0;
    if (!*to->file[0].path)
        return tu_fail(err, TU_EUSAGE, "%.200s: one file is not written by parts",
                       to->root);
    p->partial = partial_path(from, to, o, err);
    if (p->partial)
        p->notes = tu_arena_printf(to->arena, err, "%s.parts", p->partial);
    int rc = p->notes ? share_out(p, to, o, err) : TU_ENOMEM;
    if (!rc && mkdir(p->notes, 0777) && errno != EEXIST)
        rc = tu_fail_errno(err, "%s", p->notes);
    if (!rc && mkdir(p->partial, 0777) && errno != EEXIST)
        rc = tu_fail_errno(err, "%s", p->partial);
    if (!rc)
        rc = forget(p, to->arena, o->parts, err);
    char name[32];
    snprintf(name, sizeof name, "%u.lock", o->part);
    return rc ? rc : note_lock(p, to->arena, name, LOCK_NB, &p->lock, err);
}

/* This part's files, then its digests: those of the atoms whose first piece is ours. */
static int write_part(struct part *p, struct tui_target *t, const struct tu_ckpt *from,
                      const struct tu_shard_opts *o, struct tu_digest *d,
                      struct tu_err *err)
{
    const struct tu_ckpt *to = t->to;
    struct tu_buf b = {0};
    char *done = done_path(p, to->arena, o->part, err);
    int rc = done ? 0 : TU_ENOMEM;
    if (rc || tui_is_file(done))
        return rc;
    rc = tui_target_write(t, from, o, d, err);
    for (size_t a = 0; a < from->atoms && !rc; a++)
        if (to->atom[a].n && !p->mine[to->piece[to->atom[a].piece[0]].file])
            d[a].name = NULL;
    if (!rc)
        rc = tui_digest_text(&b, d, from->atoms, err);
    if (!rc)
        rc = tu_file_write(done, b.data ? b.data : "", b.n, true, t->job, err);
    tu_buf_release(&b);
    return rc;
}

/* The name in a line of digests: behind the fourth space. */
static const char *name_of(const char *line)
{
    for (int i = 0; i < 4; i++)
        line += strcspn(line, " ") + 1;
    return line;
}

static int by_name(const void *x, const void *y)
{
    return strcmp(name_of(*(char *const *)x), name_of(*(char *const *)y));
}

/* All parts' lines in one order; *missing counts the parts that are not done. */
static int gather(const struct part *p, const struct tu_ckpt *to, uint32_t parts,
                  struct tu_buf *out, uint32_t *missing, struct tu_err *err)
{
    char **line = NULL;
    size_t n = 0, cap = 0, bytes;
    int rc = 0;
    *missing = 0;
    for (uint32_t i = 1; i <= parts && !rc; i++) {
        char *path = done_path(p, to->arena, i, err), *text = NULL, *save = NULL;
        rc = path ? 0 : TU_ENOMEM;
        if (!rc && !tui_is_file(path)) {
            ++*missing;
            continue;
        }
        if (!rc)
            rc = tu_file_read(path, (size_t)1 << 30, &text, &bytes, err);
        for (char *s = rc ? NULL : strtok_r(text, "\n", &save); s && !rc;
             s = strtok_r(NULL, "\n", &save))
            if (!(rc = TU_GROW(&line, &cap, n, err)) &&
                !(line[n++] = tu_arena_text(to->arena, s, strlen(s), err)))
                rc = TU_ENOMEM;
        tu_free(text);
    }
    if (!rc && n)
        qsort(line, n, sizeof *line, by_name);
    for (size_t i = 0; i < n && !rc; i++)
        rc = tu_buf_printf(out, err, "%s\n", line[i]);
    tu_free(line);
    return rc;
}

/* Remove the files below a folder that are not known. */
static int keep_only(struct tu_arena *a, const char *folder, const struct tu_names *known,
                     struct tu_err *err)
{
    DIR *dir = opendir(folder);
    struct dirent *e;
    int rc = dir ? 0 : tu_fail_errno(err, "%s", folder);
    while (!rc && (e = readdir(dir))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        char *path = tui_join(a, folder, e->d_name, err);
        if (!path)
            rc = TU_ENOMEM;
        else if (tui_is_dir(path))
            rc = keep_only(a, path, known, err);
        else if (tu_names_get(known, path) == TU_NAMES_NONE && unlink(path))
            rc = tu_fail_errno(err, "%s", path);
    }
    if (dir)
        closedir(dir);
    return rc;
}

/* What a part that was killed left beside its files must not be published. */
static int sweep(const char *folder, const struct tu_ckpt *to, struct tu_err *err)
{
    struct tu_names *known = tu_names_new(err);
    char *path = NULL;
    int rc = known ? 0 : TU_ENOMEM;
    for (size_t f = 0; f < to->files && !rc; f++) {
        rc = (path = tui_join(to->arena, folder, to->file[f].path, err)) ? 0 : TU_ENOMEM;
        if (!rc && tu_names_get(known, path) == TU_NAMES_NONE)
            rc = tu_names_put(known, path, (uint32_t)f, err);
    }
    if (!rc)
        rc = keep_only(to->arena, folder, known, err);
    tu_names_free(known);
    return rc;
}

/* Publish where every part is done; else say how many are not. */
static int end(struct part *p, struct tui_target *t, const struct tu_shard_opts *o,
               struct tu_err *err)
{
    struct tu_buf b = {0};
    int all = -1, none = -1;
    int rc = note_lock(p, t->to->arena, "lock", 0, &all, err);
    if (rc && !tui_is_dir(p->notes) && tui_is_dir(t->to->root))
        return 0; /* the last one has published meanwhile */
    if (!rc && tui_is_dir(p->partial)) {
        rc = gather(p, t->to, o->parts, &b, &t->to->waiting, err);
        if (!rc && !t->to->waiting) {
            rc = sweep(p->partial, t->to, err);
            if (!rc)
                rc = tui_target_rest(t, b.data ? b.data : "", b.n, err);
            char *mark = mark_path(p, t->to->arena, err);
            if (!rc)
                rc = mark ? tu_file_write(mark, "", 0, true, t->job, err) : TU_ENOMEM;
            if (!rc)
                rc = tui_publish(p->partial, t->to->root, o->force, &none, t->job, err);
        }
    }
    if (!rc && !t->to->waiting && !(rc = undo(p, t->to->arena, o->parts, err)))
        tui_remove_tree(p->notes); /* the mark may go before them then */
    if (all >= 0)
        close(all);
    tu_buf_release(&b);
    return rc;
}

/* Options of a conversion file by file: as many parts as files. */
static struct tu_shard_opts by_files(const struct tu_ckpt *to,
                                     const struct tu_shard_opts *o)
{
    struct tu_shard_opts each = *o;
    if (!o->parts)
        each.parts = (uint32_t)tu_min(to->files, (size_t)65536);
    return each;
}

uint64_t tui_part_held(const struct tu_ckpt *from, struct tu_ckpt *to,
                       const struct tu_shard_opts *o)
{
    const struct tu_shard_opts each = by_files(to, o);
    const char *folder = partial_path(from, to, &each, NULL);
    uint64_t held = 0;
    for (size_t f = 0; folder && f < to->files; f++) {
        const char *path = tui_join(to->arena, folder, to->file[f].path, NULL);
        struct stat st;
        if (path && !stat(path, &st))
            held += (uint64_t)st.st_blocks * 512;
    }
    return held;
}

void tui_part_others(const struct tu_ckpt *from, struct tu_ckpt *to,
                     const struct tu_shard_opts *o, const struct tu_job *job)
{
    const struct tu_shard_opts each = by_files(to, o);
    const char *own = partial_path(from, to, &each, NULL);
    glob_t found = {0};
    struct tu_buf like = {0};
    for (const char *s = to->root; *s; s++) {
        if (strchr("*?[\\", *s))
            (void)!tu_buf_add(&like, "\\", 1, NULL);
        (void)!tu_buf_add(&like, s, 1, NULL);
    }
    if (own && !tu_buf_text(&like, ".partial-*.parts", NULL) &&
        !glob(like.data, GLOB_NOSORT, NULL, &found)) {
        size_t n = strlen(own);
        for (size_t i = 0; i < found.gl_pathc; i++)
            if (strncmp(found.gl_pathv[i], own, n) || found.gl_pathv[i][n] != '.')
                tu_job_warn(job,
                            "%.80s: parts of another conversion wait for it too: the source, "
                            "N or an option was another (%.100s)",
                            to->root, found.gl_pathv[i]);
        globfree(&found);
    }
    tu_buf_release(&like);
}

int tui_convert_part(const struct tu_ckpt *from, struct tu_ckpt *to,
                     const struct tu_shard_opts *o, const struct tu_job *job,
                     struct tu_digest *d, struct tu_err *err)
{
    struct part p = {.lock = -1};
    if (!o->part || o->part > o->parts || o->parts > 65536)
        return tu_fail(err, TU_EUSAGE, "part %u of %u is none", o->part, o->parts);
    int rc = begin(&p, from, to, o, err);
    struct tui_target t = {to, job, p.partial, p.mine, NULL};
    if (!rc)
        rc = write_part(&p, &t, from, o, d, err);
    if (!rc)
        rc = end(&p, &t, o, err);
    if (p.lock >= 0)
        close(p.lock);
    return rc;
}

int tui_convert_files(const struct tu_ckpt *from, struct tu_ckpt *to,
                      const struct tu_shard_opts *o, const struct tu_job *job,
                      struct tu_digest *d, struct tu_err *err)
{
    struct tu_shard_opts each = by_files(to, o);
    int rc = 0;
    for (each.part = 1; each.part <= each.parts && !rc; each.part++)
        rc = tui_convert_part(from, to, &each, job, d, err);
    return rc;
}
