/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: blocks out of a cache into the store, and beginnings out of it.
 *
 * _GNU_SOURCE: flock. */
#define _GNU_SOURCE
#include "store.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int make_folder(const char *path, struct tu_err *err)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : tu_fail_errno(err, "%s", path);
}

int tui_block_path(char *out, const char *dir, const char *name, struct tu_err *err)
{
    int n = snprintf(out, TUI_PATH, "%s/blocks/%.2s/%s.tns", dir, name, name);
    return n < TUI_PATH ? 0 : tu_fail(err, TU_ENAME, "%.60s…: the path is too long", dir);
}

int tui_store_lock(const char *dir, struct tu_err *err)
{
    char path[TUI_PATH];
    snprintf(path, sizeof path, "%s/lock", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (fd >= 0 && flock(fd, LOCK_EX) < 0)
        if (errno != EINTR) {
            close(fd);
            fd = -1;
        }
    if (fd < 0)
        (void)tu_fail_errno(err, "%s", path);
    return fd;
}

static int sha(const void *a, size_t n, const void *b, size_t m, char out[65],
               struct tu_err *err)
{
    unsigned char digest[TU_SHA256_SIZE];
    struct tu_sha256 *s = tu_sha256_new(err);
    if (!s)
        return TU_ENOMEM;
    tu_sha256_add(s, a, n);
    tu_sha256_add(s, b, m);
    tu_sha256_end(s, digest);
    tu_sha256_free(s);
    tu_sha256_hex(digest, out);
    return 0;
}

int tui_space(const struct tu_kv *kv, uint64_t block, char name[65], struct tu_buf *text,
              struct tu_err *err)
{
    struct tu_kv_info info = kv->info;
    int rc = tu_buf_printf(text, err, "{\"block\":%" PRIu64 ",\"kv\":", block);
    if (!rc)
        rc = tu_kv_info_text(text, &info, err);
    if (!rc)
        rc = tu_buf_text(text, ",\"records\":[", err);
    bool first = true;
    for (size_t i = 0; !rc && i < kv->n; i++) {
        const struct tu_tensor *t = &kv->tensor[i];
        uint64_t layer;
        char dtype[8];
        if (!tu_kv_name(t->name, &layer))
            continue;
        rc = tu_buf_printf(text, err, "%s[\"%s\",\"%s\"", first ? "" : ",", t->name,
                           tu_dtype_text(t->dtype, dtype));
        for (unsigned k = 1; !rc && k < t->rank; k++)
            rc = tu_buf_printf(text, err, ",%" PRIu64, t->dim[k]);
        if (!rc)
            rc = tu_buf_text(text, "]", err);
        first = false;
    }
    if (!rc)
        rc = tu_buf_text(text, "]}", err);
    return rc ? rc : sha(text->data, text->n, "", 0, name, err);
}

int tui_block_name(const char before[65], const int32_t *tokens, uint64_t n, char out[65],
                   struct tu_err *err)
{
    unsigned char *raw = tu_alloc((size_t)n, 4, err);
    if (!raw)
        return TU_ENOMEM;
    for (uint64_t i = 0; i < n; i++)
        tu_put32(raw + 4 * i, (uint32_t)tokens[i]);
    int rc = sha(before, TUI_NAME, raw, 4 * (size_t)n, out, err);
    tu_free(raw);
    return rc;
}

/* Spilling ----------------------------------------------------------------------------- */

struct spilling {
    struct tu_kv *kv;
    const char *dir;
    const struct tu_job *job;
    uint64_t block;
    int32_t *ids, *pos;
};

static int check(const struct tu_kv *kv, uint64_t block, struct tu_err *err)
{
    uint64_t layer;
    if (*kv->info.layout && strcmp(kv->info.layout, "nhd") != 0)
        return tu_fail(err, TU_EUSAGE, "%s: in layout '%s': kv-pack convert first", kv->name,
                       kv->info.layout);
    if (!block || block > 1 << 20)
        return tu_fail(err, TU_EUSAGE, "blocks of %" PRIu64 " tokens", block);
    for (size_t i = 0; i < kv->n; i++)
        if (tu_kv_name(kv->tensor[i].name, &layer) &&
            (kv->tensor[i].dim[0] != kv->tokens ||
             (kv->tensor[i].meta && strstr(kv->tensor[i].meta, "\"quant\":"))))
            return tu_fail(err, TU_EUNSUP,
                           "%s: '%s' has not all tokens by rows: windows and compressed "
                           "caches are not spilled",
                           kv->name, kv->tensor[i].name);
    return 0;
}

static int write_rows(struct spilling *s, size_t i, uint64_t first, struct tu_writer *w,
                      struct tu_err *err)
{
    struct tu_tensor t = s->kv->tensor[i];
    uint64_t dim[TU_RANK_MAX], row = t.dim[0] ? t.bytes / t.dim[0] : 0;
    memcpy(dim, t.dim, t.rank * sizeof *dim);
    dim[0] = s->block;
    t.dim = dim;
    t.bytes = s->block * row;
    void *data = tu_alloc((size_t)t.bytes, 1, err);
    int rc = data ? 0 : TU_ENOMEM;
    if (!rc && s->kv->ops->verify)
        rc = s->kv->ops->verify(s->kv, i, err);
    if (!rc)
        rc = tu_kv_read(s->kv, i, first * row, data, (size_t)t.bytes, err);
    if (!rc)
        rc = tu_writer_tensor(w, &t, data, err);
    tu_free(data);
    return rc;
}

static int write_ints(struct tu_writer *w, const char *name, const int32_t *v, uint64_t n,
                      struct tu_err *err)
{
    struct tu_tensor t = {.name = name, .dtype = TU_I32, .rank = 1, .dim = &n,
                          .bytes = 4 * n};
    return tu_writer_tensor(w, &t, v, err);
}

static int write_block(struct spilling *s, uint64_t b, const char *path, const char *parent,
                       struct tu_err *err)
{
    char meta[160];
    struct tu_out *out;
    struct tu_writer *w = NULL;
    uint64_t first = b * s->block, layer;
    int rc = tu_out_open(&out, path, s->job, err);
    if (!rc)
        rc = tu_writer_new(&w, out, err);
    if (rc)
        return rc;
    snprintf(meta, sizeof meta, "{\"index\":%" PRIu64 ",\"parent\":\"%s\"}", b, parent);
    rc = tu_kv_write_info(w, &s->kv->info, err);
    if (!rc)
        rc = tu_writer_meta(w, "kv-store", meta, strlen(meta), err);
    if (!rc)
        rc = write_ints(w, "kv.tokens", s->ids + first, s->block, err);
    if (!rc)
        rc = write_ints(w, "kv.pos", s->pos + first, s->block, err);
    for (size_t i = 0; !rc && i < s->kv->n; i++)
        if (tu_kv_name(s->kv->tensor[i].name, &layer))
            rc = write_rows(s, i, first, w, err);
    if (!rc)
        rc = tu_writer_end(w, false, err);
    if (!rc)
        return tu_writer_close(w, true, err);
    tu_writer_abort(w);
    return rc;
}

static int put_block(struct spilling *s, uint64_t b, const char *name, const char *parent,
                     struct tu_kv_spilled *out, struct tu_err *err)
{
    char path[TUI_PATH], folder[TUI_PATH];
    struct stat st;
    int rc = tui_block_path(path, s->dir, name, err);
    if (rc || stat(path, &st) == 0)
        return rc;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    rc = make_folder(folder, err);
    if (!rc)
        rc = write_block(s, b, path, parent, err);
    if (!rc)
        rc = tu_dir_sync(folder, err);
    if (!rc && stat(path, &st) == 0)
        out->bytes += (uint64_t)st.st_size;
    out->added += !rc;
    return rc;
}

static int put_space(const char *dir, const char *name, const struct tu_buf *text,
                     const struct tu_job *job, struct tu_err *err)
{
    char path[TUI_PATH];
    struct stat st;
    snprintf(path, sizeof path, "%s/spaces/%s.json", dir, name);
    return stat(path, &st) == 0 ? 0 : tu_file_write(path, text->data, text->n, true, job, err);
}

static int prepare(const char *dir, struct tu_err *err)
{
    char path[TUI_PATH];
    int rc = make_folder(dir, err);
    for (int i = 0; !rc && i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, i ? "spaces" : "blocks");
        rc = make_folder(path, err);
    }
    return rc;
}

/* Last use: now, and a nanosecond later for each block towards the beginning, since clocks
 * of file systems are coarse and the end of a chain must go first. */
static void use(const char *dir, char (*name)[65], uint64_t n)
{
    char path[TUI_PATH];
    struct timespec at[2];
    clock_gettime(CLOCK_REALTIME, &at[1]);
    at[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
    while (n-- > 0) {
        if (++at[1].tv_nsec == 1000000000)
            at[1] = (struct timespec){at[1].tv_sec + 1, 0};
        if (!tui_block_path(path, dir, name[n], NULL))
            (void)utimensat(AT_FDCWD, path, at, 0);
    }
}

static int names_of(const char space[65], const int32_t *ids, uint64_t blocks, uint64_t block,
                    char (**out)[65], struct tu_err *err)
{
    const char *before = space;
    *out = tu_alloc((size_t)blocks + 1, sizeof **out, err);
    int rc = *out ? 0 : TU_ENOMEM;
    for (uint64_t b = 0; !rc && b < blocks; b++) {
        rc = tui_block_name(before, ids + b * block, block, (*out)[b], err);
        before = (*out)[b];
    }
    return rc;
}

int tu_kv_spill(struct tu_kv *kv, const char *dir, uint64_t block, uint64_t limit,
                struct tu_kv_spilled *out, const struct tu_job *job, struct tu_err *err)
{
    struct spilling s = {.kv = kv, .dir = dir, .job = job, .block = block};
    struct tu_buf text = {0};
    char space[65], (*name)[65] = NULL;
    *out = (struct tu_kv_spilled){0};
    int rc = check(kv, block, err);
    if (!rc)
        rc = tu_kv_ids(kv, &s.ids, err);
    if (!rc)
        rc = tu_kv_positions(kv, &s.pos, err);
    for (uint64_t i = 0; !rc && i < kv->tokens; i++)
        if (s.pos[i] != (int32_t)i)
            rc = tu_fail(err, TU_EUNSUP, "%s: positions that are not 0, 1, …", kv->name);
    if (!rc)
        rc = prepare(dir, err);
    if (!rc)
        rc = tui_space(kv, block, space, &text, err);
    if (!rc)
        rc = put_space(dir, space, &text, job, err);
    out->blocks = rc ? 0 : kv->tokens / block;
    out->left = rc ? 0 : kv->tokens % block;
    if (!rc)
        rc = names_of(space, s.ids, out->blocks, block, &name, err);
    for (uint64_t b = 0; !rc && b < out->blocks; b++)
        rc = tu_job_cancelled(job) ? tu_fail(err, TU_ECANCEL, "stopped")
                                   : put_block(&s, b, name[b], b ? name[b - 1] : space, out, err);
    if (!rc)
        use(dir, name, out->blocks);
    if (!rc && limit) {
        int lock = tui_store_lock(dir, err);
        rc = lock < 0 ? TU_EIO : tui_evict(dir, limit, &out->evicted, job, err);
        if (lock >= 0)
            close(lock);
    }
    tu_buf_release(&text);
    tu_free(name);
    tu_free(s.ids);
    tu_free(s.pos);
    return rc;
}

/* Blocks read ---------------------------------------------------------------------------- */

static int read_meta(const struct tu_kv *kv, char parent[65], uint64_t *index,
                     struct tu_err *err)
{
    for (size_t i = 0; i < kv->metas; i++) {
        json_t *o;
        if (strcmp(kv->meta[i].topic, "kv-store") != 0)
            continue;
        int rc = tu_json_parse(&o, kv->meta[i].json, kv->meta[i].n, NULL, err);
        if (rc)
            return rc;
        const char *p = json_string_value(json_object_get(o, "parent"));
        json_int_t n = json_integer_value(json_object_get(o, "index"));
        bool good = p && strlen(p) == TUI_NAME && n >= 0;
        if (good) {
            memcpy(parent, p, TUI_NAME + 1);
            *index = (uint64_t)n;
        }
        json_decref(o);
        return good ? 0 : tu_fail(err, TU_EMETA, "%s: malformed META kv-store", kv->name);
    }
    return tu_fail(err, TU_EINCOMPLETE, "%s: no META kv-store", kv->name);
}

int tui_block_open(struct tu_kv_set *set, const char *dir, const char *name, char parent[65],
                   uint64_t *index, struct tu_err *err)
{
    char path[TUI_PATH], own[65];
    struct tu_in *in;
    int32_t *ids = NULL;
    *set = (struct tu_kv_set){0};
    int rc = tui_block_path(path, dir, name, err);
    if (!rc)
        rc = tu_in_open(&in, path, err);
    if (!rc)
        rc = tu_kv_set_add(set, in, NULL, err);
    if (!rc && set->n != 1)
        rc = tu_fail(err, TU_EFORMAT, "%s: %zu segments", path, set->n);
    struct tu_kv *kv = rc ? NULL : set->kv[0];
    for (size_t i = 0; !rc && i < kv->n; i++)
        rc = kv->ops->verify(kv, i, err);
    if (!rc)
        rc = read_meta(kv, parent, index, err);
    if (!rc)
        rc = tu_kv_ids(kv, &ids, err);
    if (!rc)
        rc = tui_block_name(parent, ids, kv->tokens, own, err);
    if (!rc && strcmp(own, name) != 0)
        rc = tu_fail(err, TU_EFORMAT, "%s: its contents are those of another block", path);
    tu_free(ids);
    if (rc)
        tu_kv_set_release(set);
    return rc;
}

/* Fetching ------------------------------------------------------------------------------- */

struct fetching {
    const char *dir;
    const struct tu_job *job;
    char space[65];
    uint64_t block, n; /* blocks that are open */
    struct tu_kv_set *set;
    const int32_t *ids;
};

static int take_space(struct fetching *f, const char *file, const struct tu_kv_info *want,
                      unsigned *fit, struct tu_err *err)
{
    char path[TUI_PATH], *text;
    size_t n;
    json_t *o;
    struct tu_kv_info info;
    struct tu_buf kv = {0};
    snprintf(path, sizeof path, "%s/spaces/%s", f->dir, file);
    int rc = tu_file_read(path, (size_t)64 << 20, &text, &n, err);
    if (rc)
        return rc;
    rc = tu_json_parse(&o, text, n, NULL, err);
    tu_free(text);
    if (rc) {
        tu_err_prefix(err, "%s", path);
        return rc;
    }
    json_int_t block = json_integer_value(json_object_get(o, "block"));
    const json_t *whose = json_object_get(o, "kv");
    tu_kv_info_init(&info);
    rc = block > 0 && block <= 1 << 20 && whose
             ? tu_json_dump(&kv, whose, err)
             : tu_fail(err, TU_EMETA, "%s: expected a block and a kv", path);
    if (!rc)
        rc = tu_kv_info_parse(&info, kv.data, kv.n, err);
    struct tu_kv_info w = *want;
    w.rot = info.rot; /* what is not asked for */
    if (w.tp_size == 1 && !w.tp_rank) {
        w.tp_size = info.tp_size;
        w.tp_rank = info.tp_rank;
    }
    memcpy(w.layout, info.layout, sizeof w.layout);
    w.block = info.block;
    if (!rc && !tu_kv_info_same(&info, &w, true, NULL)) {
        ++*fit;
        f->block = (uint64_t)block;
        snprintf(f->space, sizeof f->space, "%.64s", file);
    }
    tu_buf_release(&kv);
    json_decref(o);
    return rc;
}

static int find_space(struct fetching *f, const struct tu_kv_info *want, struct tu_err *err)
{
    char path[TUI_PATH];
    unsigned fit = 0;
    char **file = NULL;
    size_t n = 0, cap = 0;
    snprintf(path, sizeof path, "%s/spaces", f->dir);
    int rc = tui_folder(path, &file, &n, &cap, err);
    for (size_t i = 0; !rc && i < n; i++)
        if (strlen(file[i]) == TUI_NAME + 5 && !strcmp(file[i] + TUI_NAME, ".json"))
            rc = take_space(f, file[i], want, &fit, err);
    tui_folder_free(file, n);
    if (!rc && fit > 1)
        rc = tu_fail(err, TU_EUSAGE,
                     "%s: caches of %u kinds fit: say more of the one that is wanted (--model, "
                     "--weights, --tp-rank)", f->dir, fit);
    f->block = fit ? f->block : 0;
    return rc;
}

/* Open blocks until one is missing or fails; that one is removed, and is no block. */
static int open_blocks(struct fetching *f, char (*name)[65], uint64_t blocks,
                       struct tu_kv_fetched *out, struct tu_err *err)
{
    for (; f->n < blocks; f->n++) {
        char path[TUI_PATH], parent[65];
        uint64_t index;
        struct stat st;
        struct tu_err why;
        int rc = tui_block_path(path, f->dir, name[f->n], err);
        if (rc || stat(path, &st) < 0)
            return rc;
        rc = tui_block_open(&f->set[f->n], f->dir, name[f->n], parent, &index, &why);
        if (!rc && (index != f->n ||
                    strcmp(parent, f->n ? name[f->n - 1] : f->space) != 0)) {
            tu_kv_set_release(&f->set[f->n]);
            rc = tu_fail(&why, TU_EFORMAT, "%s: stands behind another block", path);
        }
        if (rc && tu_err_status(rc) == 4 && stat(path, &st) == 0) { /* not its fault */
            *err = why;
            return rc;
        }
        if (rc) {
            if (stat(path, &st) == 0) {
                tu_job_warn(f->job, "%s: removed", why.msg);
                (void)unlink(path);
                out->damaged = 1;
            }
            return 0;
        }
    }
    return 0;
}

static int join(struct fetching *f, struct tu_writer *w, struct tu_err *err)
{
    struct tu_kv *first = f->set[0].kv[0];
    int rc = tu_kv_write_info(w, &first->info, err);
    for (size_t i = 0; !rc && i < first->n; i++) {
        struct tu_tensor t = first->tensor[i];
        struct tu_record rec;
        uint64_t dim[TU_RANK_MAX], each = t.bytes;
        if (i == first->pos)
            continue;
        memcpy(dim, t.dim, t.rank * sizeof *dim);
        dim[0] = f->n * f->block;
        t.dim = dim;
        t.bytes = f->n * each;
        void *data = tu_alloc((size_t)each, 1, err);
        tu_record_of(&rec, &t);
        rc = data ? tu_writer_record(w, &rec, err) : TU_ENOMEM;
        for (uint64_t b = 0; !rc && b < f->n; b++) {
            struct tu_kv *kv = f->set[b].kv[0];
            if (i >= kv->n || kv->tensor[i].bytes != each)
                rc = tu_fail(err, TU_EINCOMPLETE, "%s: its records are not those of its space",
                             kv->name);
            if (!rc)
                rc = tu_kv_read(kv, i, 0, data, (size_t)each, err);
            if (!rc)
                rc = tu_writer_write(w, data, (size_t)each, err);
        }
        tu_free(data);
    }
    return rc ? rc : tu_writer_end(w, false, err);
}

int tu_kv_fetch(const char *dir, const struct tu_kv_info *want, const int32_t *ids, uint64_t n,
                bool each, struct tu_writer *w, struct tu_kv_fetched *out,
                const struct tu_job *job, struct tu_err *err)
{
    struct fetching f = {.dir = dir, .job = job, .ids = ids};
    char (*name)[65] = NULL;
    *out = (struct tu_kv_fetched){0};
    int rc = find_space(&f, want, err);
    uint64_t blocks = !rc && f.block ? n / f.block : 0;
    if (!rc && blocks)
        rc = names_of(f.space, ids, blocks, f.block, &name, err);
    if (!rc && blocks && !(f.set = tu_calloc((size_t)blocks, sizeof *f.set, err)))
        rc = TU_ENOMEM;
    if (!rc)
        rc = open_blocks(&f, name, blocks, out, err);
    if (!rc && f.n && !each)
        rc = join(&f, w, err);
    for (uint64_t b = 0; !rc && each && b < f.n; b++)
        rc = tu_kv_write(f.set[b].kv[0], w, job, err);
    if (!rc)
        use(dir, name, f.n);
    out->blocks = f.n;
    out->tokens = f.n * f.block;
    for (uint64_t b = 0; b < f.n; b++)
        tu_kv_set_release(&f.set[b]);
    tu_free(f.set);
    tu_free(name);
    return rc;
}
