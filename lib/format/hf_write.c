/* SPDX-License-Identifier: Apache-2.0 */
/* hf_write.c: a folder of safetensors shards and their index, grouped and named as
 * huggingface_hub does, published by renaming the folder.
 *
 * All shards are open at once, so that bytes may come in any order. _GNU_SOURCE for nftw. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "hf.h"
#include "kit.h"
#include "rows.h"

#define MAX_SHARD UINT64_C(5000000000)

size_t tu_hf_shards(const uint64_t *bytes, size_t n, uint64_t max, uint32_t *file)
{
    size_t files = 0, begin = 0; /* of the group that is open */
    uint64_t sum = 0;
    bool any = false;
    for (size_t i = 0; i <= n; i++) {
        bool giant = i < n && bytes[i] > max;
        if (any && (i == n || (!giant && bytes[i] > max - sum))) {
            for (size_t k = begin; k < i; k++) {
                if (file[k] == UINT32_MAX)
                    file[k] = (uint32_t)files;
            }
            files++;
            begin = i;
            sum = 0;
            any = false;
        }
        if (i == n)
            break;
        /* A giant is a file at once, though the group before it stays open. */
        file[i] = giant ? (uint32_t)files++ : UINT32_MAX;
        sum += giant ? 0 : bytes[i];
        any = any || !giant;
    }
    return files;
}

struct hf_sink {
    struct tu_sink base;
    const struct tu_job *job;
    char *folder; /* under its temporary name; NULL once published */
    char *beside; /* folder of small files that go along, or NULL */
    bool force;
    size_t files;
    struct tu_sink **file; /* [files]; NULL when finished */
    char **name;           /* [files] paths */
    uint32_t *of;          /* [n] which file */
    size_t *in;            /* [n] which tensor of it */
    struct tu_buf index;   /* its text; empty for a single file */
    json_t *small;         /* META "files": names and texts of config.json and its like */
};

static int forget(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st;
    (void)walk;
    return kind == FTW_DP || kind == FTW_D ? rmdir(path) : unlink(path);
}

static void remove_tree(const char *path)
{
    nftw(path, forget, 16, FTW_DEPTH | FTW_PHYS);
}

static int write_hf(struct tu_sink *sink, size_t i, uint64_t off, const void *p, size_t n,
                    struct tu_err *err)
{
    struct hf_sink *s = (struct hf_sink *)sink;
    return tu_sink_write(s->file[s->of[i]], s->in[i], off, p, n, err);
}

static void close_hf(struct tu_sink *sink)
{
    struct hf_sink *s = (struct hf_sink *)sink;
    for (size_t k = 0; s->file && k < s->files; k++)
        tu_sink_abort(s->file[k]);
    for (size_t k = 0; s->name && k < s->files; k++)
        tu_free(s->name[k]);
    if (s->folder) {
        remove_tree(s->folder);
        tu_job_temporary(s->job, s->folder, TU_TEMP_GONE);
    }
    tu_free(s->folder);
    tu_free(s->beside);
    tu_free(s->file);
    tu_free(s->name);
    tu_free(s->of);
    tu_free(s->in);
    tu_buf_release(&s->index);
    json_decref(s->small);
    tu_free(s->base.path);
    tu_free(s);
}

/* The folder takes its name; with force, from one that has it. */
static int publish(struct hf_sink *s, struct tu_err *err)
{
    const char *path = s->base.path;
    char *old = NULL;
    struct stat st;
    if (s->force && !lstat(path, &st)) {
        struct tu_buf b = { 0 };
        if (tu_buf_printf(&b, err, "%s.old", s->folder))
            return TU_ENOMEM;
        old = tu_buf_take(&b);
        if (rename(path, old)) {
            int code = tu_fail_errno(err, "%s: cannot move it out of the way", path);
            tu_free(old);
            return code;
        }
    }
    int code = 0;
    if (rename(s->folder, path)) {
        code = errno == ENOTEMPTY || errno == EEXIST
                   ? tu_fail(err, TU_EEXISTS, "%s: exists and is not empty", path)
                   : tu_fail_errno(err, "%s: cannot rename %s to it", path, s->folder);
        if (old)
            (void)!rename(old, path);
    } else {
        tu_job_temporary(s->job, s->folder, TU_TEMP_GONE);
        tu_free(s->folder);
        s->folder = NULL;
        if (old)
            remove_tree(old);
    }
    tu_free(old);
    return code;
}

/* The small files that travelled as META "files". Their names come from the stream:
 * plain ones only. */
static int write_small(struct hf_sink *s, bool durable, struct tu_err *err)
{
    const char *name;
    json_t *text;
    int code = 0;
    json_object_foreach(s->small, name, text) {
        if (!json_is_string(text) || strchr(name, '/') || *name == '.')
            return tu_fail(err, TU_EMETA, "META 'files': '%.80s' is no plain name with a text",
                           name);
        char *path = tui_hf_join(s->folder, name, err);
        code = path ? tu_file_write(path, json_string_value(text), json_string_length(text),
                                    durable, s->job, err)
                    : TU_ENOMEM;
        tu_free(path);
        if (code)
            break;
    }
    return code;
}

/* The small files beside the source that did not travel as META: tokenizers that are no
 * text. */
static int copy_beside(struct hf_sink *s, bool durable, struct tu_err *err)
{
    DIR *d = s->beside ? opendir(s->beside) : NULL;
    int code = 0;
    for (struct dirent *e; d && !code && (e = readdir(d));) {
        if (!tu_hf_travels(e->d_name) || json_object_get(s->small, e->d_name))
            continue;
        char *from = tui_hf_join(s->beside, e->d_name, err), *data = NULL;
        char *to = from ? tui_hf_join(s->folder, e->d_name, err) : NULL;
        size_t n;
        code = to ? tu_file_read(from, TUI_HF_SMALL, &data, &n, err) : TU_ENOMEM;
        if (!code)
            code = tu_file_write(to, data, n, durable, s->job, err);
        tu_free(data);
        tu_free(from);
        tu_free(to);
    }
    if (d)
        closedir(d);
    return code;
}

static int finish_hf(struct tu_sink *sink, bool durable, struct tu_err *err)
{
    struct hf_sink *s = (struct hf_sink *)sink;
    int code = 0;
    for (size_t k = 0; !code && k < s->files; k++) {
        struct tu_sink *file = s->file[k];
        s->file[k] = NULL;
        code = tu_sink_finish(file, durable, err);
    }
    if (!code && s->index.n) {
        char *path = tui_hf_join(s->folder, TUI_HF_INDEX, err);
        code = path ? tu_file_write(path, s->index.data, s->index.n, durable, s->job, err)
                    : TU_ENOMEM;
        tu_free(path);
    }
    if (!code)
        code = write_small(s, durable, err);
    if (!code)
        code = copy_beside(s, durable, err);
    if (!code && durable)
        code = tu_dir_sync(s->folder, err);
    return code ? code : publish(s, err);
}

static const struct tu_sink_ops sink_ops = { write_hf, finish_hf, close_hf };

/* preparing ----------------------------------------------------------------------------- */

/* META "safetensors" for each shard: transformers wants a format, and no header can be
 * kept. */
static int shard_meta(struct tu_buf *out, const struct tu_save *what, struct tu_err *err)
{
    json_t *meta = NULL;
    int code = tui_meta_merge(&meta, what->meta, what->metas, "safetensors", err);
    if (code)
        return code;
    json_t *metadata = json_object_get(meta, "metadata");
    metadata = json_is_object(metadata) ? json_incref(metadata) : json_object();
    json_t *all = json_object();
    if (!json_object_get(metadata, "format") &&
        json_object_set_new(metadata, "format", json_string("pt")))
        code = TU_ENOMEM;
    if (json_object_set_new(all, "metadata", metadata))
        code = TU_ENOMEM;
    code = code ? tu_fail(err, code, "out of memory") : tu_json_dump(out, all, err);
    json_decref(all);
    json_decref(meta);
    return code;
}

static int name_files(struct hf_sink *s, struct tu_err *err)
{
    s->file = tu_calloc(s->files, sizeof *s->file, err);
    s->name = s->file ? tu_calloc(s->files, sizeof *s->name, err) : NULL;
    if (!s->name)
        return TU_ENOMEM;
    for (size_t k = 0; k < s->files; k++) {
        char name[64] = TUI_HF_ONE;
        if (s->files > 1)
            snprintf(name, sizeof name, TUI_HF_SHARD, (unsigned)k + 1, (unsigned)s->files);
        s->name[k] = tui_hf_join(s->folder, name, err);
        if (!s->name[k])
            return TU_ENOMEM;
    }
    return 0;
}

int tu_hf_index(struct tu_buf *out, const struct tu_tensor *tensor, size_t n,
                const uint32_t *of, const char *const *file, struct tu_err *err)
{
    struct tui_names names;
    uint64_t total = 0;
    int code = tui_names_make(&names, tensor, n, err);
    for (size_t i = 0; i < n; i++)
        total += tensor[i].bytes;
    if (!code)
        code = tu_buf_printf(out, err,
                             "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n"
                             "  \"weight_map\": {", (unsigned long long)total);
    for (size_t k = 0; !code && k < names.n; k++) {
        const struct tui_name *x = &names.item[k];
        code = tu_buf_text(out, k ? ",\n    " : "\n    ", err);
        if (!code)
            code = tu_json_string(out, x->name, strlen(x->name), err);
        if (!code)
            code = tu_buf_printf(out, err, ": \"%s\"", file[of[x->i]]);
    }
    if (!code)
        code = tu_buf_text(out, "\n  }\n}\n", err);
    tui_names_release(&names);
    return code;
}

/* The index of this folder: files by their bare names. */
static int make_index(struct hf_sink *s, const struct tu_save *what, struct tu_err *err)
{
    const char **file = tu_alloc(s->files, sizeof *file, err);
    if (!file)
        return TU_ENOMEM;
    for (size_t k = 0; k < s->files; k++)
        file[k] = strrchr(s->name[k], '/') + 1;
    int code = tu_hf_index(&s->index, what->tensor, what->n, s->of, file, err);
    tu_free(file);
    return code;
}

static int group(struct hf_sink *s, const struct tu_save *what, struct tu_err *err)
{
    uint64_t *bytes = tu_alloc(what->n, sizeof *bytes, err);
    s->of = bytes ? tu_alloc(what->n, sizeof *s->of, err) : NULL;
    s->in = s->of ? tu_alloc(what->n, sizeof *s->in, err) : NULL;
    if (!s->in) {
        tu_free(bytes);
        return TU_ENOMEM;
    }
    for (size_t i = 0; i < what->n; i++)
        bytes[i] = what->tensor[i].bytes;
    s->files = tu_hf_shards(bytes, what->n, what->max_shard ? what->max_shard : MAX_SHARD, s->of);
    tu_free(bytes);
    if (!s->files)
        s->files = 1; /* no tensors: an empty file */
    int code = name_files(s, err);
    return code || s->files == 1 ? code : make_index(s, what, err);
}

/* Open a sink for each group. */
static int open_files(struct hf_sink *s, const struct tu_save *what, struct tu_err *err)
{
    struct tu_buf json = { 0 };
    struct tu_tensor *part = tu_alloc(what->n, sizeof *part, err);
    int code = part ? shard_meta(&json, what, err) : TU_ENOMEM;
    for (size_t k = 0; !code && k < s->files; k++) {
        const struct tu_meta meta = { "safetensors", json.data, json.n };
        struct tu_save sub = { .tensor = part, .metas = 1, .meta = &meta };
        for (size_t i = 0; i < what->n; i++) {
            if (s->of[i] != k)
                continue;
            s->in[i] = sub.n;
            part[sub.n++] = what->tensor[i];
        }
        code = tu_sink_open(&s->file[k], s->name[k], &tui_format_safetensors, &sub, s->job, err);
    }
    tu_free(part);
    tu_buf_release(&json);
    return code;
}

static bool is_empty(const char *folder)
{
    DIR *d = opendir(folder);
    bool empty = true;
    for (struct dirent *e; d && empty && (e = readdir(d));)
        empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
    if (d)
        closedir(d);
    return empty;
}

/* The folder under its temporary name, beside the final one. */
static int make_folder(struct hf_sink *s, struct tu_err *err)
{
    struct stat st;
    const char *path = s->base.path;
    if (!strcmp(path, "-"))
        return tu_fail(err, TU_EUSAGE, "format hf is a folder, which standard output cannot be");
    if (!s->force && !lstat(path, &st) && !S_ISDIR(st.st_mode))
        return tu_fail(err, TU_EEXISTS, "%s: exists and is no folder", path);
    if (!s->force && !is_empty(path))
        return tu_fail(err, TU_EEXISTS, "%s: exists and is not empty", path);
    int rc = s->force ? tu_folder_replaceable(path, err) : 0;
    if (rc)
        return rc;
    struct tu_buf b = { 0 };
    if (tu_buf_printf(&b, err, "%s.partial-%ld", path, (long)getpid()))
        return TU_ENOMEM;
    char *folder = tu_buf_take(&b);
    tu_job_temporary(s->job, folder, TU_TEMP_BORN);
    if (mkdir(folder, 0777)) {
        int code = tu_fail_errno(err, "%s: cannot make this folder", folder);
        tu_job_temporary(s->job, folder, TU_TEMP_GONE);
        tu_free(folder);
        return code;
    }
    s->folder = folder;
    tu_job_temporary(s->job, folder, TU_TEMP_TREE);
    return 0;
}

int tui_hf_save(struct tu_sink **out, const char *path, const struct tu_save *what,
                const struct tu_job *job, struct tu_err *err)
{
    struct hf_sink *s = tu_calloc(1, sizeof *s, err);
    if (!s)
        return TU_ENOMEM;
    s->base = (struct tu_sink){ .format = &tui_format_hf, .ops = &sink_ops, .n = what->n };
    s->job = job;
    s->force = what->force;
    s->base.path = tu_strdup(path, err);
    int code = s->base.path ? 0 : TU_ENOMEM;
    for (size_t n = code ? 0 : strlen(path); n > 1 && path[n - 1] == '/'; n--)
        s->base.path[n - 1] = 0;
    if (!code && what->beside && !(s->beside = tu_strdup(what->beside, err)))
        code = TU_ENOMEM;
    if (!code)
        code = make_folder(s, err);
    if (!code)
        code = tui_meta_merge(&s->small, what->meta, what->metas, "files", err);
    if (!code)
        code = group(s, what, err);
    if (!code)
        code = open_files(s, what, err);
    if (code)
        close_hf(&s->base);
    else
        *out = &s->base;
    return code;
}
