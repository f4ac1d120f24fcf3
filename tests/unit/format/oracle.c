/* SPDX-License-Identifier: Apache-2.0 */
/* Tests on files by the real producers (tests/data): every tensor's bytes have the
 * checksum that the producing library gave, what must be refused is, and files come back
 * byte for byte. */
#include "fix.h"

#define DATA "tests/data"

static bool begins(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

static bool ends(const char *s, const char *with)
{
    size_t n = strlen(s), m = strlen(with);
    return n >= m && !strcmp(s + n - m, with);
}

/* Formats whose rows may be absent from a build of parts. */
static const struct tu_format *format_of(const char *name, bool *known)
{
    const struct tu_format *f = tu_format_of_path(name);
    *known = f || !strrchr(name, '.');
    return f;
}

static int by_line(const void *a, const void *b)
{
    return strcmp(strrchr(*(char *const *)a, ' '), strrchr(*(char *const *)b, ' '));
}

/* "CRC32 DTYPE SHAPE NAME" of each tensor, sorted by name. */
static char *lines_of(struct tu_source *s, struct tu_err *err)
{
    struct tu_buf all = { 0 };
    char **line = calloc(s->n + 1, sizeof *line);
    for (size_t i = 0; i < s->n; i++) {
        const struct tu_tensor *t = &s->tensor[i];
        struct tu_buf b = { 0 };
        char *data = malloc((size_t)t->bytes + 1);
        if (!data || tu_source_read(s, i, 0, data, (size_t)t->bytes, err) ||
            tu_source_verify(s, i, NULL, err) ||
            tu_buf_printf(&b, err, "%08x %s ", tu_crc32(0, data, (size_t)t->bytes),
                          tu_dtype_find(t->dtype)->name) ||
            tu_shape_text(&b, t->dim, t->rank, err) || tu_buf_printf(&b, err, " %s\n", t->name))
            abort();
        free(data);
        line[i] = tu_buf_take(&b);
    }
    qsort(line, s->n, sizeof *line, by_line);
    for (size_t i = 0; i < s->n; i++) {
        if (tu_buf_text(&all, line[i], err))
            abort();
        tu_free(line[i]);
    }
    free(line);
    return tu_buf_take(&all);
}

/* void_DTYPE.npy says what its raw elements mean. */
static uint32_t void_of(const char *path)
{
    const char *at = strstr(path, "void_");
    char name[32] = "";
    if (at)
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 5, "."), at + 5);
    const struct tu_dtype *d = tu_dtype_named(name);
    return d ? d->code : TU_DTYPE_NONE;
}

static void check_oracle(const char *path, const char *oracle)
{
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    const struct tu_open how = { .void_dtype = void_of(path) };
    size_t n;
    char *want = (char *)fix_read(oracle, &n);
    want[n] = 0;
    int code = tu_source_open(&s, path, NULL, &how, NULL, &err);
    bool nameless = strstr(want, " \n"); /* safetensors allows it, a stream does not */
    bool bare = nameless && !code && s->n == 1; /* a torch file of a tensor: we name it */
    if (nameless && !bare) {
        eq_int(code, TU_ENAME, "%s: an empty name is refused", path);
        free(want);
        return;
    }
    if (!ok(!code, "%s is opened", path)) {
        printf("# %s\n", err.msg);
        free(want);
        return;
    }
    char *have = lines_of(s, &err);
    if (bare)
        strcpy(strrchr(have, ' ') + 1, "\n");
    if (!ok(!strcmp(have ? have : "", want), "%s holds what its producer says", path))
        printf("# got\n%s# expected\n%s", have ? have : "", want);
    free(want);
    tu_free(have);
    tu_source_close(s);
}

/* What keeps its header is written as it was. */
static void check_copy(const char *path, const struct tu_format *f)
{
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    const struct tu_open how = { .keep_header = true, .void_dtype = void_of(path) };
    const struct tu_save what = { .keep_header = true };
    const char *copy = fix_path("copy");
    int code = tu_source_open(&s, path, f, &how, NULL, &err);
    if (!code)
        code = tu_source_save(s, copy, f, &what, false, NULL, &err);
    tu_source_close(s);
    if (code == TU_ENAME)
        return; /* see check_oracle */
    size_t n;
    unsigned char *file = fix_read(path, &n);
    if (!ok(!code && fix_same(copy, file, n), "%s is restored", path))
        printf("# %s\n", err.msg);
    free(file);
}

static void check_refused(const char *path)
{
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    int code = tu_source_open(&s, path, NULL, NULL, NULL, &err);
    tu_source_close(s);
    ok(code && tu_err_status(code) == 3, "%s is refused: %s", path, err.msg);
}

static void check_folder(const char *folder)
{
    char path[512], oracle[600];
    snprintf(path, sizeof path, DATA "/%s", folder);
    DIR *d = opendir(path);
    if (!d) {
        tap_skip(folder, "not in this tree");
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        bool known;
        if (e->d_name[0] == '.' || ends(e->d_name, ".oracle"))
            continue;
        const struct tu_format *f = format_of(e->d_name, &known);
        snprintf(path, sizeof path, DATA "/%s/%.200s", folder, e->d_name);
        snprintf(oracle, sizeof oracle, "%s.oracle", path);
        if (!known || (strstr(e->d_name, "_bin") && !tu_format_find("torch")))
            continue;
        if (begins(e->d_name, "refuse"))
            check_refused(path);
        else if (!access(oracle, F_OK))
            check_oracle(path, oracle);
        if (f && f->flags & TU_FORMAT_HEADER && !begins(e->d_name, "refuse"))
            check_copy(path, f);
    }
    closedir(d);
}

int main(void)
{
    static const char *const folders[] = { "npy", "safetensors", "gguf", "gguf/hf", "hf", "torch" };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        check_folder(folders[i]);
    return tap_done();
}
