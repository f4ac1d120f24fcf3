/* SPDX-License-Identifier: Apache-2.0 */
/* inject: every way through every format, with each allocation and each system call failing
 * in turn, on files by the real producers (tests/data).
 *
 * A failure is told as what it is and leaves nothing in the folder it wrote to; whatever gets
 * through all the same (a call whose failure does not matter) gives what the clean run gave. */
#include "fix.h"

#define DATA "tests/data/"

struct way {
    const char *acts;      /* what is tried: the letters of acts[] */
    const char *from, *to; /* below DATA; the name of the copy */
    struct tu_open how;
    struct tu_save what;
    bool durable;
};

static const struct way ways[] = {
    { "rs", "npy/fortran_be.npy", "a.npy", { 0 }, { 0 }, true },
    { "sp", "npy/v3.npy", "a.npy", { .keep_header = true }, { .keep_header = true },
      false },
    { "rsp", "npy/deflated.npz", "a.npz", { 0 }, { 0 }, false },
    { "rsfvpt", "safetensors/one_meta.safetensors", "a.safetensors", { .keep_header = true },
      { .keep_header = true },
      false },
    { "sfp", "safetensors/scalars.safetensors", "a.pt", { 0 }, { 0 }, false },
    { "s", "safetensors/scalars.safetensors", "a.hf", { 0 }, { .max_shard = 8 }, false },
    { "sp", "gguf/kv.gguf", "a.gguf", { 0 }, { 0 }, false },
    { "s", "gguf/plain.gguf", "a.safetensors", { 0 }, { 0 }, false },
    { "rsf", "gguf/split-00001-of-00003.gguf", "a.gguf", { 0 }, { .max_shard = 400 }, false },
    { "rs", "torch/old_views.pt", "a.pt", { 0 }, { 0 }, false },
    { "s", "torch/old_deflated.pt", "a.npz", { 0 }, { 0 }, false },
    { "rv", "torch/old_views_legacy.pt", NULL, { 0 }, { 0 }, false },
    { "rs", "torch/new_dtensor.pt", "a.tns", { 0 }, { 0 }, false },
    { "r", "torch/old_conj.pt", NULL, { 0 }, { 0 }, false },
    { "r", "torch/old_numpy.pt", NULL, { 0 }, { 0 }, false },
    { "r", "hf/llama_v4_bins", NULL, { 0 }, { 0 }, false },
    { "rs", "hf/llama_tied", "a.hf", { 0 }, { .beside = DATA "hf/llama_tied" },
      true },
    { "rsfvp", "stream/meta.tns", "a.tns", { 0 }, { 0 }, false },
    { "s", "safetensors/scalars.safetensors", "old.hf", { 0 }, { .force = true }, false },
};

struct tree { /* what is in the target folder */
    uint32_t sum;
    unsigned files;
    bool first; /* the first of a set is among them */
};

static const struct way *way;
static char target[1024];
static uint32_t whole; /* sum of the folder behind a run that got through */

static const struct tu_format *format_of(const char *name)
{
    size_t n = strlen(name);
    return tu_format_find(!strcmp(name + n - 3, ".hf") ? "hf" : tu_format_of_path(name)->name);
}

/* Files and folders in a folder, with the checksum of all that they hold. */
static void census(const char *path, struct tree *r)
{
    struct dirent **list = NULL;
    int n = scandir(path, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        char sub[2048];
        size_t size;
        struct stat st;
        snprintf(sub, sizeof sub, "%s/%s", path, name);
        if (strcmp(name, ".") && strcmp(name, "..") && !stat(sub, &st)) {
            r->files++;
            r->first |= strstr(name, "-00001-of-") || S_ISDIR(st.st_mode);
            r->sum = tu_crc32(r->sum, name, strlen(name));
            if (S_ISDIR(st.st_mode)) {
                census(sub, r);
            } else {
                unsigned char *p = fix_read(sub, &size);
                r->sum = tu_crc32(r->sum, p, size);
                free(p);
            }
        }
        free(list[i]);
    }
    free(list);
}

static int open_way(struct tu_source **s, struct tu_err *err)
{
    char path[256];
    snprintf(path, sizeof path, DATA "%s", way->from);
    *s = NULL;
    return tu_source_open(s, path, NULL, &way->how, NULL, err);
}

/* Checksum of names, META and bytes. */
static int read_way(struct tu_err *err)
{
    struct tu_source *s;
    int code = open_way(&s, err);
    if (code)
        return code;
    for (size_t i = 0; i < s->metas; i++)
        inject_add(s->meta[i].json, s->meta[i].n);
    for (size_t i = 0; !code && i < s->n; i++) {
        size_t n = (size_t)s->tensor[i].bytes;
        char *data = malloc(n + 1);
        inject_add(s->tensor[i].name, strlen(s->tensor[i].name));
        code = tu_source_verify(s, i, NULL, err);
        if (!code)
            code = tu_source_read(s, i, 0, data, n, err);
        if (!code)
            inject_add(data, n);
        free(data);
        if (!code && tu_source_find(s, s->tensor[i].name) > i)
            inject_add("", 1); /* wrong whether or not there was memory for an index */
    }
    tu_source_close(s);
    return code;
}

static int save_way(struct tu_err *err)
{
    struct tu_source *s;
    char path[1100];
    snprintf(path, sizeof path, "%s/%s", target, way->to);
    int code = open_way(&s, err);
    if (!code)
        code = tu_source_save(s, path, format_of(way->to), &way->what, way->durable, NULL,
                              err);
    tu_source_close(s);
    return code;
}

/* Record by record to a stream. */
static int feed_way(struct tu_err *err)
{
    struct tu_feed *f = NULL;
    struct tu_out *out = NULL;
    struct tu_writer *w = NULL;
    const struct tu_record *rec;
    char from[256], to[1100];
    snprintf(from, sizeof from, DATA "%s", way->from);
    snprintf(to, sizeof to, "%s/a.tns", target);
    int code = tu_feed_open(&f, from, NULL, NULL, err);
    if (!code)
        code = tu_out_open(&out, to, NULL, err);
    if (!code)
        code = tu_writer_new(&w, out, err);
    while (!code && !(code = tu_feed_next(f, &rec, err)) && rec)
        code = rec->type == TU_REC_END ? tu_writer_end(w, true, err) : tu_feed_copy(f, w, err);
    tu_feed_close(f);
    if (!code)
        return tu_writer_close(w, false, err);
    tu_writer_abort(w);
    return code;
}

/* The same twice: each tensor of a view of the file against the file. */
static int view_way(struct tu_err *err)
{
    struct tu_source *a, *b = NULL;
    int code = open_way(&a, err);
    if (code)
        return code;
    struct tu_view_item *item = calloc(a->n + 1, sizeof *item);
    for (size_t i = 0; i < a->n; i++)
        item[i] = (struct tu_view_item){ .tensor = a->tensor[i], .from = i };
    code = open_way(&b, err);
    if (!code)
        code = tu_source_view(&b, b, item, a->n, b->meta, b->metas, err);
    if (code)
        b = NULL;
    free(item);
    size_t *to = calloc(a->n + 1, sizeof *to), *from = calloc(a->n + 1, sizeof *from);
    if (!code)
        code = tu_source_match(a, b, to, from, err);
    for (size_t i = 0; !code && i < a->n; i++) {
        struct tu_difference d;
        code = tu_source_compare(&d, a, i, b, to[i], NULL, NULL, err);
        inject_add("=", !code && d.bytes_equal && from[to[i]] == i);
    }
    free(to);
    free(from);
    tu_source_close(b);
    tu_source_close(a);
    return code;
}

/* Into a pipe, which takes bytes in order. */
static int pipe_way(struct tu_err *err)
{
    struct tu_source *s;
    char path[64];
    int fd[2], code = open_way(&s, err);
    if (pipe(fd))
        abort();
    snprintf(path, sizeof path, "/dev/fd/%d", fd[1]);
    if (!code)
        code = tu_source_save(s, path, format_of(way->to), &way->what, false, NULL, err);
    tu_source_close(s);
    close(fd[1]);
    unsigned char got[65536];
    for (ssize_t n; (n = read(fd[0], got, sizeof got)) > 0;)
        inject_add(got, (size_t)n);
    close(fd[0]);
    return code;
}

/* To a stream that says what comes, and from that to a file as it passes by. */
static int through_way(struct tu_err *err)
{
    struct tu_source *s;
    struct tu_out *out = NULL;
    struct tu_writer *w = NULL;
    struct tu_in *in = NULL;
    char path[1100];
    snprintf(path, sizeof path, "%s/../through.tns", target);
    int code = open_way(&s, err);
    if (!code)
        code = tu_out_open(&out, path, NULL, err);
    if (!code)
        code = tu_writer_new(&w, out, err);
    if (!code)
        code = tu_source_write(s, w, true, NULL, err);
    if (!code)
        code = tu_writer_close(w, false, err);
    else
        tu_writer_abort(w);
    tu_source_close(s);
    if (!code)
        code = tu_in_open(&in, path, err);
    snprintf(path, sizeof path, "%s/%s", target, way->to);
    return code ? code : tu_stream_save(in, path, format_of(way->to), &way->what, false, NULL, err);
}

static const struct {
    const char *name; /* its letter is the first */
    int (*run)(struct tu_err *err);
    bool writes;
} acts[] = {
    { "read", read_way, false },
    { "save", save_way, true },
    { "feed", feed_way, true },
    { "view", view_way, false },
    { "pipe", pipe_way, false },
    { "through", through_way, true },
};

/* An empty folder to write to; where something is to be replaced, with that. */
static void prepare(void)
{
    struct tu_err err;
    fix_remove(target);
    if (mkdir(target, 0777) || (way->what.force && save_way(&err)))
        abort();
}

static int run(const void *act, struct tu_err *err)
{
    return acts[*(const size_t *)act].run(err);
}

/* What is in the folder counts. A set of files is none without its first; a file that only could
 * not be made durable is there. */
static const char *look(const void *act, int rc, const struct tu_err *err)
{
    struct tree t = { 0 };
    (void)err;
    census(target, &t);
    inject_add(&t.sum, sizeof t.sum);
    prepare();
    if (!rc) {
        whole = t.sum;
        return (t.files > 0) == acts[*(const size_t *)act].writes ? NULL : "no files, or some";
    }
    bool harmless = !t.files || t.sum == whole || (way->what.max_shard && !t.first);
    return harmless ? NULL : "files are left";
}

static void walk(size_t act)
{
    char name[128];
    snprintf(name, sizeof name, "%s %s", acts[act].name, way->from);
    const struct inject w = { .name = name, .run = run, .arg = &act, .after = look };
    prepare();
    if (inject_io(&w))
        inject_memory(&w);
}

int main(void)
{
    snprintf(target, sizeof target, "%s", fix_path("target"));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        way = &ways[i];
        for (size_t act = 0; act < sizeof acts / sizeof *acts; act++)
            if (strchr(way->acts, acts[act].name[0]))
                walk(act);
    }
    return tap_done();
}
