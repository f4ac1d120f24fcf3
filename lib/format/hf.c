/* SPDX-License-Identifier: Apache-2.0 */
/* hf.c: a folder as Hugging Face's libraries write it: one weights file, or shards and an
 * index.
 *
 * Index: {"metadata":{"total_size":N},"weight_map":{"TENSOR":"FILE",…}}. The map and the
 * shards must agree tensor by tensor; total_size is not believed (other writers put other
 * sums there). Shards may be symbolic links, as in the hub's cache, but their names may
 * not leave the folder. A folder of that cache (models--ORG--NAME) stands for the snapshot
 * that refs/main names. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "hf.h"
#include "kit.h"
#include "rows.h"

#define INDEX_MAX ((size_t)256 << 20) /* bytes of JSON */

/* Weights in a folder, best first: a whole file is preferred to an index, as transformers
 * does. */
static const struct {
    const char *file, *format;
    bool index;
} weights[] = {
    { TUI_HF_ONE, "safetensors", false },
    { TUI_HF_INDEX, "safetensors", true },
    { "pytorch_model.bin", "torch", false },
    { "pytorch_model.bin.index.json", "torch", true },
};
enum { WEIGHTS = sizeof weights / sizeof *weights };

struct mapped {
    const char *name, *file; /* of the index; borrowed from its JSON */
    bool found;
};

struct hf_source {
    struct tu_source base;
    size_t shards, cap;
    struct tu_source **shard;
    struct place {
        size_t shard, i;
    } *at; /* [n] */
};

char *tui_hf_join(const char *folder, const char *name, struct tu_err *err)
{
    struct tu_buf b = { 0 };
    if (tu_buf_printf(&b, err, "%s/%s", folder, name))
        tu_buf_release(&b);
    return tu_buf_take(&b);
}

/* source --------------------------------------------------------------------------------------- */

static int read_hf(struct tu_source *s, size_t i, uint64_t off, void *buf, size_t n,
                   struct tu_err *err)
{
    struct hf_source *h = (struct hf_source *)s;
    return tu_source_read(h->shard[h->at[i].shard], h->at[i].i, off, buf, n, err);
}

static int verify_hf(struct tu_source *s, size_t i, struct tu_pool *pool, struct tu_err *err)
{
    struct hf_source *h = (struct hf_source *)s;
    return tu_source_verify(h->shard[h->at[i].shard], h->at[i].i, pool, err);
}

static void close_hf(struct tu_source *s)
{
    struct hf_source *h = (struct hf_source *)s;
    for (size_t k = 0; k < h->shards; k++)
        tu_source_close(h->shard[k]);
    tu_free(h->shard);
    tui_source_free(s);
}

static bool summed_hf(const struct tu_source *s, size_t i)
{
    const struct hf_source *h = (const struct hf_source *)s;
    return tu_source_summed(h->shard[h->at[i].shard], h->at[i].i);
}

static const struct tu_source_ops source_ops = { read_hf, verify_hf, summed_hf, close_hf };

static bool is_index(const char *path)
{
    static const char end[] = ".index.json";
    size_t n = strlen(path);
    return n >= sizeof end && !strcmp(path + n - (sizeof end - 1), end);
}

static bool is_there(const char *folder, const char *name)
{
    char file[4096]; /* no memory is no reason to say that it is none */
    return snprintf(file, sizeof file, "%s/%s", folder, name) < (int)sizeof file &&
           !access(file, F_OK);
}

static bool has_weights(const char *folder)
{
    for (size_t k = 0; k < WEIGHTS; k++)
        if (is_there(folder, weights[k].file))
            return true;
    return false;
}

int tu_hf_snapshot(char **out, const char *folder, struct tu_err *err)
{
    char *ref = NULL, *hash = NULL;
    size_t n;
    *out = NULL;
    if (has_weights(folder) || !is_there(folder, "snapshots")) {
        *out = tu_strdup(folder, err);
        return *out ? 0 : TU_ENOMEM;
    }
    if (!is_there(folder, "refs/main"))
        return tu_fail(err, TU_EINCOMPLETE, "%s: a folder of the hub cache without refs/main: "
                       "name one of its snapshots, %s/snapshots/HASH", folder, folder);
    ref = tui_hf_join(folder, "refs/main", err);
    int code = ref ? tu_file_read(ref, 256, &hash, &n, err) : TU_ENOMEM;
    struct tu_buf b = { 0 };
    if (!code) {
        hash[strcspn(hash, "\r\n")] = 0;
        code = !*hash || *hash == '.' || strchr(hash, '/')
                   ? tu_fail(err, TU_EFORMAT, "%s: expected the name of a snapshot", ref)
                   : tu_buf_printf(&b, err, "%s/snapshots/%s", folder, hash);
    }
    if (code)
        tu_buf_release(&b);
    *out = tu_buf_take(&b);
    tu_free(hash);
    tu_free(ref);
    return code;
}

static bool sniff_hf(const char *path, const unsigned char *head, size_t n)
{
    if (head)
        return n && is_index(path);
    return has_weights(path) || (is_there(path, "snapshots") && is_there(path, "refs"));
}

static int open_shard(struct hf_source *h, const char *path, const char *format,
                      const struct tu_open *how, const struct tu_job *job, struct tu_err *err)
{
    struct tu_open sub = *how;
    int code = TU_GROW(&h->shard, &h->cap, h->shards, err);
    sub.in = NULL;
    if (!code)
        code = tu_source_open(&h->shard[h->shards], path, tu_format_find(format), &sub, job, err);
    h->shards += !code;
    return code;
}

/* The shards' META records, each text once. */
static int take_metas(struct tu_source *s, const struct tu_source *shard, struct tu_err *err)
{
    int code = 0;
    for (size_t m = 0; !code && m < shard->metas; m++) {
        const struct tu_meta *meta = &shard->meta[m];
        bool known = false;
        for (size_t k = 0; !known && k < s->metas; k++)
            known = s->meta[k].n == meta->n && !strcmp(s->meta[k].topic, meta->topic) &&
                    !memcmp(s->meta[k].json, meta->json, meta->n);
        if (!known)
            code = tui_source_meta(s, meta->topic, meta->json, meta->n, err);
    }
    return code;
}

/* One list of what the shards hold, in their order. */
static int describe(struct hf_source *h, struct tu_err *err)
{
    struct tu_source *s = &h->base;
    size_t n = 0;
    for (size_t k = 0; k < h->shards; k++)
        n += h->shard[k]->n;
    struct tu_tensor *t = tu_arena_alloc(s->arena, n, sizeof *t, err);
    struct tu_extent *x = t ? tu_arena_alloc(s->arena, n, sizeof *x, err) : NULL;
    uint64_t *crc = x ? tu_arena_alloc(s->arena, n, sizeof *crc, err) : NULL;
    h->at = crc ? tu_arena_alloc(s->arena, n, sizeof *h->at, err) : NULL;
    if (!h->at)
        return TU_ENOMEM;
    int code = 0;
    for (size_t k = 0; !code && k < h->shards; k++) {
        const struct tu_source *shard = h->shard[k];
        for (size_t i = 0; i < shard->n; i++, s->n++) {
            t[s->n] = shard->tensor[i];
            x[s->n] = shard->extent ? shard->extent[i] : (struct tu_extent){ 0 };
            crc[s->n] = shard->crc ? shard->crc[i] : TU_CRC_NONE;
            h->at[s->n] = (struct place){ k, i };
        }
        s->referenced += shard->referenced;
        s->stored += shard->stored;
        code = take_metas(s, shard, err);
    }
    s->tensor = t;
    s->extent = x;
    s->crc = crc;
    return code;
}

/* index ---------------------------------------------------------------------------------------- */

static int by_file(const void *pa, const void *pb)
{
    const struct mapped *a = pa, *b = pb;
    int order = strcmp(a->file, b->file);
    return order ? order : strcmp(a->name, b->name);
}

static int by_name(const void *pa, const void *pb)
{
    return strcmp(((const struct mapped *)pa)->name, ((const struct mapped *)pb)->name);
}

/* The map as an array; file names must stay in the folder. */
static int read_map(struct mapped **out, size_t *n, json_t *index, const char *path,
                    struct tu_err *err)
{
    json_t *map = json_object_get(index, "weight_map"), *value;
    const char *key;
    char name[88], file[88];
    if (!json_is_object(map))
        return tu_fail(err, TU_EFORMAT, "%s: has no object 'weight_map'", path);
    struct mapped *m = tu_alloc(json_object_size(map), sizeof *m, err);
    if (!m)
        return TU_ENOMEM;
    *n = 0;
    json_object_foreach(map, key, value) {
        const char *f = json_string_value(value);
        if (!f || !*f || strchr(f, '/') || !strcmp(f, ".") || !strcmp(f, "..")) {
            tu_free(m);
            return tu_fail(err, TU_EFORMAT, "%s: weight_map has '%s' in '%s', expected the name "
                           "of a file in the same folder", path,
                           tu_text_short(key, strlen(key), name),
                           f ? tu_text_short(f, strlen(f), file) : "(no text)");
        }
        m[(*n)++] = (struct mapped){ key, f, false };
    }
    *out = m;
    return 0;
}

/* Open each file that the map names, in the order of the names. */
static int open_shards(struct hf_source *h, struct mapped *m, size_t n, const char *folder,
                       const char *format, const struct tu_open *how, const struct tu_job *job,
                       struct tu_err *err)
{
    int code = 0;
    if (n)
        qsort(m, n, sizeof *m, by_file);
    for (size_t i = 0; !code && i < n; i++) {
        char name[88];
        if (i && !strcmp(m[i].file, m[i - 1].file))
            continue;
        char *path = tui_hf_join(folder, m[i].file, err);
        if (!path)
            return TU_ENOMEM;
        code = tu_file_expect(path, err, "the index expects it to hold '%s'",
                              tu_text_short(m[i].name, strlen(m[i].name), name));
        if (!code)
            code = open_shard(h, path, format, how, job, err);
        tu_free(path);
    }
    return code;
}

/* Map and shards must say the same. */
static int compare(const struct hf_source *h, struct mapped *m, size_t n, const char *path,
                   struct tu_err *err)
{
    char name[88];
    if (n)
        qsort(m, n, sizeof *m, by_name);
    for (size_t k = 0; k < h->shards; k++) {
        const struct tu_source *s = h->shard[k];
        const char *base = strrchr(s->path, '/') + 1;
        for (size_t i = 0; i < s->n; i++) {
            const struct mapped key = { .name = s->tensor[i].name };
            struct mapped *hit = n ? bsearch(&key, m, n, sizeof *m, by_name) : NULL;
            tu_text_short(key.name, strlen(key.name), name);
            if (!hit)
                return tu_fail(err, TU_EINCOMPLETE, "%s: holds '%s', which '%s' does not list",
                               s->path, name, path);
            if (strcmp(hit->file, base))
                return tu_fail(err, TU_EINCOMPLETE, "%s: holds '%s', which '%s' expects in '%.80s'",
                               s->path, name, path, hit->file);
            hit->found = true;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (!m[i].found)
            return tu_fail(err, TU_EINCOMPLETE, "%s: '%s' is not in '%.80s', where the index "
                           "expects it", path, tu_text_short(m[i].name, strlen(m[i].name), name),
                           m[i].file);
    }
    return 0;
}

/* Of shards beside an index that it does not list, the first by its name; true: there is
 * one. PATH is STEM.safetensors.index.json, shards are STEM-00001-of-00003.safetensors. */
static bool unlisted(const struct hf_source *h, const char *path, const char *folder,
                     char out[256])
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    size_t stem = strcspn(base, ".");
    DIR *d = opendir(folder);
    *out = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *name = e->d_name, *dot = strrchr(name, '.');
        bool listed = strncmp(name, base, stem) || name[stem] != '-' || !dot ||
                      strncmp(base + stem, dot, strlen(dot)) ||
                      !strstr(name + stem, "-of-");
        for (size_t k = 0; k < h->shards && !listed; k++)
            listed = !strcmp(strrchr(h->shard[k]->path, '/') + 1, name);
        if (!listed && (!*out || strcmp(name, out) < 0))
            snprintf(out, 256, "%s", name);
    }
    if (d)
        closedir(d);
    return *out;
}

static int open_index(struct hf_source *h, const char *path, const char *folder,
                      const char *format, const struct tu_open *how, const struct tu_job *job,
                      struct tu_err *err)
{
    static const struct tu_json_limits limits = { .bytes = INDEX_MAX, .depth = 8, .object = true };
    char *text = NULL;
    size_t len = 0, n = 0;
    json_t *index = NULL;
    struct mapped *m = NULL;
    int code = tu_file_read(path, INDEX_MAX, &text, &len, err);
    if (code)
        return code;
    if ((code = tu_json_parse(&index, text, len, &limits, err))) {
        tu_err_prefix(err, "%s", path);
        goto out;
    }
    code = read_map(&m, &n, index, path, err);
    if (!code)
        code = open_shards(h, m, n, folder, format, how, job, err);
    if (!code)
        code = compare(h, m, n, path, err);
    char other[256];
    if (!code && unlisted(h, path, folder, other))
        tu_job_warn(job, "%s: does not list '%s', which lies beside it", path, other);
out:
    tu_free(m);
    json_decref(index);
    tu_free(text);
    return code;
}

static int open_folder(struct hf_source *h, const char *folder, const struct tu_open *how,
                       const struct tu_job *job, struct tu_err *err)
{
    for (size_t k = 0; k < WEIGHTS; k++) {
        char *path = tui_hf_join(folder, weights[k].file, err);
        if (!path)
            return TU_ENOMEM;
        int code = 1;
        if (!access(path, F_OK))
            code = weights[k].index
                       ? open_index(h, path, folder, weights[k].format, how, job, err)
                       : open_shard(h, path, weights[k].format, how, job, err);
        tu_free(path);
        if (code <= 0)
            return code;
    }
    return tu_fail(err, TU_EINCOMPLETE, "%s: holds no model.safetensors, pytorch_model.bin or "
                   "index of such files", folder);
}

static int open_hf(struct tu_source **out, const char *path, const struct tu_open *how,
                   const struct tu_job *job, struct tu_err *err)
{
    struct hf_source *h = tui_source_new(sizeof *h, &tui_format_hf, &source_ops, path, err);
    if (!h)
        return TU_ENOMEM;
    int code;
    if (how->in) {
        const char *slash = strrchr(path, '/');
        char *folder = slash ? tu_arena_text(h->base.arena, path, (size_t)(slash - path), err)
                             : tu_arena_text(h->base.arena, ".", 1, err);
        const char *format = strstr(slash ? slash : path, ".bin.") ? "torch" : "safetensors";
        code = folder ? open_index(h, path, folder, format, how, job, err) : TU_ENOMEM;
    } else {
        char *folder;
        code = tu_hf_snapshot(&folder, path, err);
        if (!code)
            code = open_folder(h, folder, how, job, err);
        tu_free(folder);
    }
    if (!code)
        code = describe(h, err);
    if (code)
        close_hf(&h->base);
    else
        *out = &h->base;
    return code;
}

static bool dtype_ok(uint32_t dtype)
{
    return tui_format_safetensors.dtype_ok(dtype);
}

const struct tu_format tui_format_hf = {
    .name = "hf",
    .help = "folder of a Hugging Face model: safetensors or .bin files with their index",
    .suffix = "/",
    .flags = TU_FORMAT_READ | TU_FORMAT_WRITE | TU_FORMAT_DIR | TU_FORMAT_UNIQUE |
             TU_FORMAT_NAMED,
    .sniff = sniff_hf,
    .open = open_hf,
    .save = tui_hf_save,
    .dtype_ok = dtype_ok,
};
