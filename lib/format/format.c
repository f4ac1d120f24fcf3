/* SPDX-License-Identifier: Apache-2.0 */
/* format.c: the table of formats and the front that every source and sink stands behind.
 *
 * The front opens and sniffs files, spools pipes, checks ranges and counts what was
 * written, so that no format has to. It knows nothing of any format but its row. */
#include <sys/stat.h>
#include "kit.h"
#include "rows.h"

/* In sniffing order: safe magics first, then the formats that are guessed by shape. */
const struct tu_format *const tu_formats[] = {
    &tui_format_tns,
    &tui_format_npy,
    &tui_format_npz,
    &tui_format_gguf,
    &tui_format_safetensors,
    &tui_format_torch,
    &tui_format_hf,
    &tui_format_dcp,
    NULL,
};


const struct tu_format *tu_format_find(const char *name)
{
    for (const struct tu_format *const *f = tu_formats; *f; f++) {
        if (!strcmp((*f)->name, name))
            return *f;
    }
    return NULL;
}

/* Does path end with one of the space-separated suffixes? */
static bool ends_with(const char *path, const char *suffixes)
{
    size_t n = strlen(path);
    for (const char *s = suffixes; *s;) {
        size_t len = strcspn(s, " ");
        if (len < n && !memcmp(path + n - len, s, len))
            return true;
        s += len + (s[len] == ' ');
    }
    return false;
}

const struct tu_format *tu_format_of_path(const char *path)
{
    for (const struct tu_format *const *f = tu_formats; *f; f++) {
        if (ends_with(path, (*f)->suffix))
            return *f;
    }
    return NULL;
}

/* sources -------------------------------------------------------------------------------------- */

/* Files that users mix up with tensor files, and what to do with them. */
static const struct {
    const char *magic;
    size_t n, at;
    const char *what;
} strangers[] = {
    { "\x1f\x8b", 2, 0, "a gzip file: decompress it first" },
    { "\x28\xb5\x2f\xfd", 4, 0, "a zstd file: decompress it first" },
    { "\xfd" "7zXZ", 5, 0, "an xz file: decompress it first" },
    { "BZh", 3, 0, "a bzip2 file: decompress it first" },
    { "\x89HDF", 4, 0, "an HDF5 file" },
    { "PYTORCH1", 8, 0, "a torch file of the 1.0 preview, which nothing reads any more" },
    { "ustar", 5, 257, "a tar archive" },
    { "ARROW1", 6, 0, "an Arrow file" },
    { "PAR1", 4, 0, "a Parquet file" },
    { "version https://git-lfs", 23, 0, "a Git LFS pointer: fetch the file itself" },
    { "<!DOCTYPE", 9, 0, "an HTML page, perhaps a download that asked for a login" },
    { "<html", 5, 0, "an HTML page, perhaps a download that asked for a login" },
};

int tui_format_unknown(const char *path, const unsigned char *head, size_t n,
                       struct tu_err *err)
{
    if (!n)
        return tu_fail_at(err, TU_EEMPTY, 0, "%s: empty, expected a tensor file", path);
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        if (n >= strangers[i].at + strangers[i].n &&
            !memcmp(head + strangers[i].at, strangers[i].magic, strangers[i].n))
            return tu_fail_at(err, TU_EMAGIC, strangers[i].at, "%s: looks like %s", path,
                              strangers[i].what);
    }
    char hex[2 * 8 + 1] = "";
    for (size_t i = 0; i < 8 && i < n; i++)
        sprintf(hex + 2 * i, "%02x", head[i]);
    return tu_fail_at(err, TU_EMAGIC, 0, "%s: no known tensor file begins with bytes %s "
                      "(tns-import --list=formats names the formats)", path, hex);
}

const struct tu_format *tui_format_sniff(const char *path, bool folder,
                                         const unsigned char *head, size_t n)
{
    for (const struct tu_format *const *f = tu_formats; *f; f++) {
        if ((*f)->flags & TU_FORMAT_READ && (!folder || (*f)->flags & TU_FORMAT_DIR) &&
            (*f)->sniff(path, head, n))
            return *f;
    }
    return NULL;
}

static int sniff(const struct tu_format **out, const char *path, bool folder,
                 const unsigned char *head, size_t n, struct tu_err *err)
{
    *out = tui_format_sniff(path, folder, head, n);
    if (*out)
        return 0;
    if (folder)
        return tu_fail(err, TU_EMAGIC, "%s: a folder without tensor files that are known here",
                       path);
    return tui_format_unknown(path, head, n, err);
}

/* Open the file (unless it is), learn its format and make it seekable. */
static int prepare(struct tu_in **out, const struct tu_format **format, const char *path,
                   const struct tu_open *how, struct tu_err *err)
{
    unsigned char head[TUI_SNIFF];
    size_t n = 0;
    struct tu_in *in = how->in;
    int code = in ? 0 : tu_in_open(&in, path, err);
    if (code)
        return code;
    if (!*format) {
        code = tu_in_peek(in, head, sizeof head, &n, err);
        if (!code)
            code = sniff(format, tu_in_name(in), false, head, n, err);
    }
    if (!code && !tu_in_seekable(in)) {
        struct tu_in *whole = NULL;
        code = tu_in_spool(&whole, in, how->folder, err);
        tu_in_close(in);
        in = whole;
    }
    if (code) {
        tu_in_close(in);
        return code;
    }
    *out = in;
    return 0;
}

int tu_source_open(struct tu_source **out, const char *path, const struct tu_format *format,
                   const struct tu_open *how, const struct tu_job *job, struct tu_err *err)
{
    struct tu_open open = how ? *how : (struct tu_open){ 0 };
    struct stat st;
    bool folder = !open.in && !stat(path, &st) && S_ISDIR(st.st_mode);
    int code;
    if (!folder)
        code = prepare(&open.in, &format, path, &open, err);
    else if (format && !(format->flags & TU_FORMAT_DIR))
        code = tu_fail(err, TU_EMAGIC, "%s: a folder, expected a %s file", path, format->name);
    else
        code = format ? 0 : sniff(&format, path, true, NULL, 0, err);
    if (code)
        return code;
    if (!(format->flags & TU_FORMAT_READ))
        code = tu_fail(err, TU_EUSAGE, "%s: format %s is only written", path, format->name);
    else if (open.keep_header && !(format->flags & TU_FORMAT_HEADER))
        code = tu_fail(err, TU_EUSAGE, "%s: format %s has no header to keep", path,
                       format->name);
    struct tu_source *s = NULL;
    if (!code)
        code = format->open(&s, open.in ? tu_in_name(open.in) : path, &open, job, err);
    if (code) {
        tu_in_close(open.in);
        return code;
    }
    s->in = open.in;
    s->no_crc = open.no_crc;
    *out = s;
    return 0;
}

void tu_source_close(struct tu_source *s)
{
    if (!s)
        return;
    struct tu_in *in = s->in;
    if (s->names) {
        tui_names_release(s->names);
        tu_free(s->names);
    }
    s->ops->close(s);
    tu_in_close(in);
}

static int check_range(const char *path, size_t i, size_t tensors, uint64_t off, size_t n,
                       uint64_t bytes, struct tu_err *err)
{
    if (i >= tensors)
        return tu_fail(err, TU_EBUG, "%s: tensor %zu of %zu", path, i, tensors);
    if (off > bytes || n > bytes - off)
        return tu_fail(err, TU_EBUG, "%s: bytes %llu+%zu of a tensor of %llu", path,
                       (unsigned long long)off, n, (unsigned long long)bytes);
    return 0;
}

int tu_source_read(struct tu_source *s, size_t i, uint64_t off, void *buf, size_t n,
                   struct tu_err *err)
{
    int code = check_range(s->path, i, s->n, off, n, i < s->n ? s->tensor[i].bytes : 0, err);
    return code || !n ? code : s->ops->read(s, i, off, buf, n, err);
}

bool tui_has_crc(const struct tu_source *s, size_t i)
{
    return s->crc && s->crc[i] != TU_CRC_NONE && !s->no_crc;
}

bool tui_summed_always(const struct tu_source *s, size_t i)
{
    (void)s;
    (void)i;
    return true;
}

bool tu_source_summed(const struct tu_source *s, size_t i)
{
    return i < s->n && !s->no_crc && (s->ops->summed ? s->ops->summed(s, i) : tui_has_crc(s, i));
}

int tui_check_crc(const struct tu_source *s, size_t i, uint32_t crc, struct tu_err *err)
{
    if (!tui_has_crc(s, i) || crc == s->crc[i])
        return 0;
    char name[88];
    return tu_fail(err, TU_EPCRC, "%s: '%s': payload checksum mismatch (stored %08x, computed "
                   "%08x)", s->path,
                   tu_text_short(s->tensor[i].name, strlen(s->tensor[i].name), name),
                   (unsigned)s->crc[i], (unsigned)crc);
}

int tu_source_verify(struct tu_source *s, size_t i, struct tu_pool *pool, struct tu_err *err)
{
    int code = check_range(s->path, i, s->n, 0, 0, 0, err);
    if (code || s->no_crc)
        return code;
    if (s->ops->verify)
        return s->ops->verify(s, i, pool, err);
    if (!tui_has_crc(s, i))
        return 0;
    char *buf = tu_alloc(TUI_WINDOW, 1, err);
    if (!buf)
        return TU_ENOMEM;
    uint32_t crc = 0;
    for (uint64_t off = 0, all = s->tensor[i].bytes; !code && off < all;) {
        size_t n = (size_t)tu_min(TUI_WINDOW, all - off);
        code = s->ops->read(s, i, off, buf, n, err);
        crc = code ? crc : tu_crc32_pool(crc, buf, n, pool);
        off += n;
    }
    tu_free(buf);
    return code ? code : tui_check_crc(s, i, crc, err);
}

size_t tu_source_find(struct tu_source *s, const char *name)
{
    if (!s->names) {
        s->names = tu_alloc(1, sizeof *s->names, NULL);
        if (s->names && tui_names_make(s->names, s->tensor, s->n, NULL)) {
            tu_free(s->names);
            s->names = NULL;
        }
    }
    if (s->names)
        return tui_names_find(s->names, name);
    /* No memory for an index is no reason to answer wrongly. */
    for (size_t i = 0; i < s->n; i++) {
        if (!strcmp(s->tensor[i].name, name))
            return i;
    }
    return SIZE_MAX;
}

/* sinks ---------------------------------------------------------------------------------------- */

static int check_save(const struct tu_format *format, const char *path,
                      const struct tu_save *what, struct tu_err *err)
{
    char name[88], dtype[8];
    if (!(format->flags & TU_FORMAT_WRITE))
        return tu_fail(err, TU_EUSAGE, "%s: format %s is only read", path, format->name);
    if (what->keep_header && !(format->flags & TU_FORMAT_HEADER))
        return tu_fail(err, TU_EUSAGE, "%s: format %s has no header to keep", path,
                       format->name);
    for (size_t i = 0; format->dtype_ok && i < what->n; i++) {
        const struct tu_tensor *t = &what->tensor[i];
        if (!format->dtype_ok(t->dtype))
            return tu_fail(err, TU_EDTYPE, "%s: '%s': format %s cannot hold %s", path,
                           tu_text_short(t->name, strlen(t->name), name), format->name,
                           tu_dtype_text(t->dtype, dtype));
    }
    if (!(format->flags & TU_FORMAT_UNIQUE))
        return 0;
    struct tui_names x;
    int code = tui_names_make(&x, what->tensor, what->n, err);
    const char *twin = code ? NULL : tui_names_twin(&x);
    if (twin)
        code = tu_fail(err, TU_ENAME, "%s: two tensors are named '%s', format %s allows one",
                       path, tu_text_short(twin, strlen(twin), name), format->name);
    tui_names_release(&x);
    return code;
}

int tu_sink_open(struct tu_sink **out, const char *path, const struct tu_format *format,
                 const struct tu_save *what, const struct tu_job *job, struct tu_err *err)
{
    if (!format)
        format = tu_format_of_path(path);
    if (!format)
        return tu_fail(err, TU_EUSAGE, "%s: no format has this suffix, name one", path);
    int code = check_save(format, path, what, err);
    if (code)
        return code;
    struct tu_sink *s = NULL;
    uint64_t *count = tu_calloc(what->n, 2 * sizeof *count, err);
    if (!count)
        return TU_ENOMEM;
    code = format->save(&s, path, what, job, err);
    if (code) {
        tu_free(count);
        return code;
    }
    s->bytes = count;
    s->written = count + what->n;
    for (size_t i = 0; i < what->n; i++)
        s->bytes[i] = what->tensor[i].bytes;
    *out = s;
    return 0;
}

int tu_sink_write(struct tu_sink *s, size_t i, uint64_t off, const void *p, size_t n,
                  struct tu_err *err)
{
    int code = check_range(s->path, i, s->n, off, n, i < s->n ? s->bytes[i] : 0, err);
    if (code || !n)
        return code;
    code = s->ops->write(s, i, off, p, n, err);
    if (!code)
        __atomic_fetch_add(&s->written[i], n, __ATOMIC_RELAXED);
    return code;
}

void tu_sink_abort(struct tu_sink *s)
{
    if (!s)
        return;
    tu_free(s->bytes);
    s->ops->close(s);
}

int tu_sink_finish(struct tu_sink *s, bool durable, struct tu_err *err)
{
    int code = 0;
    for (size_t i = 0; !code && i < s->n; i++) {
        uint64_t n = __atomic_load_n(&s->written[i], __ATOMIC_RELAXED);
        if (n != s->bytes[i])
            code = tu_fail(err, TU_EBUG, "%s: tensor %zu got %llu of its %llu bytes", s->path, i,
                           (unsigned long long)n, (unsigned long long)s->bytes[i]);
    }
    if (!code)
        code = s->ops->finish(s, durable, err);
    tu_sink_abort(s);
    return code;
}
