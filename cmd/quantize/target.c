/* SPDX-License-Identifier: Apache-2.0 */
/* target.c: where records go. */
#include "quantize/target.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "quantize/meta.h"
#include "tensorutils/quant/deploy.h"

struct target_opt target_opt = {.to = -1};
const char *const target_formats[] = {"tns", "hf", "safetensors", "gguf", NULL};
enum { TO_TNS, TO_HF, TO_SAFETENSORS, TO_GGUF };

static bool is_folder(const char *path)
{
    struct stat st;
    size_t n = strlen(path);
    return (n && path[n - 1] == '/') || (!stat(path, &st) && S_ISDIR(st.st_mode));
}

/* Index of the format that is wanted. */
static int wanted(const struct tu_ctx *ctx)
{
    if (target_opt.to >= 0)
        return target_opt.to;
    if (is_folder(ctx->output))
        return TO_HF;
    const struct tu_format *f = tu_format_of_path(ctx->output);
    for (int i = TO_HF + 1; f && target_formats[i]; i++)
        if (!strcmp(target_formats[i], f->name))
            return i;
    return TO_TNS;
}

bool target_is_hf(const struct tu_ctx *ctx)
{
    return wanted(ctx) == TO_HF;
}

enum seen target_seen(const struct tu_ctx *ctx)
{
    const int to = wanted(ctx);
    return to == TO_HF ? SEEN_AS_HF : to == TO_GGUF ? SEEN_AS_GGUF : SEEN_AS_IS;
}

bool target_is_engine(const struct tu_ctx *ctx)
{
    int to = wanted(ctx);
    return to == TO_HF || to == TO_SAFETENSORS;
}

/* "." of "name", "a/b" of "a/b/name". */
static char *folder_of(const char *path, struct tu_err *err)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    struct tu_buf b = {0};
    if (tu_buf_printf(&b, err, "%.*s", n ? (int)n : 1, n ? path : "."))
        tu_buf_release(&b);
    return tu_buf_take(&b);
}

/* The work stream: without a name, beside the output, where its bytes will be needed. */
static int open_work(struct target *t, struct tu_out **out, struct tu_err *err)
{
    char *folder = folder_of(t->ctx->output, err);
    int fd = -1, rc = folder ? tu_file_nameless(&fd, folder, err) : TU_ENOMEM;
    tu_free(folder);
    if (rc)
        return rc;
    if ((t->work = dup(fd)) < 0) {
        rc = tu_fail_errno(err, "temporary file");
        close(fd);
        return rc;
    }
    return tu_out_take_fd(out, fd, "temporary file", err);
}

/* Resuming ------------------------------------------------------------------------------ */

static char *with_end(const char *path, const char *end, struct tu_err *err)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    struct tu_buf b = {0};
    if (tu_buf_printf(&b, err, "%.*s%s", (int)n, path, end))
        tu_buf_release(&b);
    return tu_buf_take(&b);
}

/* How many tensors are whole: read to the first damage. */
static uint64_t count_good(const char *path)
{
    struct tu_in *in;
    struct tu_reader *r;
    const struct tu_record *rec;
    uint64_t n = 0;
    if (tu_in_open(&in, path, NULL) || tu_reader_new(&r, in, 0, NULL, NULL))
        return 0;
    while (!tu_reader_next(r, &rec, NULL) && rec && !tu_reader_skip(r, NULL))
        n += rec->type == TU_REC_TENSOR;
    tu_reader_free(r);
    return n;
}

/* The next tensor of the earlier run, or none. */
static int next_old(struct target *t, struct tu_err *err)
{
    int rc = 0;
    t->rec = NULL;
    while (!rc && t->good > 1 && !(rc = tu_reader_next(t->old, &t->rec, err)) && t->rec &&
           t->rec->type != TU_REC_TENSOR)
        ;
    t->good -= t->good > 0;
    return rc;
}

static int open_partial(struct target *t, struct tu_out **out, struct tu_err *err)
{
    struct tu_in *in = NULL;
    t->partial = with_end(t->ctx->output, ".partial", err);
    t->old_path = t->partial ? with_end(t->ctx->output, ".partial-old", err) : NULL;
    if (!t->old_path)
        return TU_ENOMEM;
    if (rename(t->partial, t->old_path) == 0 || access(t->old_path, F_OK) == 0) {
        t->good = count_good(t->old_path);
        int rc = tu_in_open(&in, t->old_path, err);
        if (!rc)
            rc = tu_reader_new(&t->old, in, 0, NULL, err);
        if (!rc && t->good)
            tu_note(t->ctx, 1, "%s: %llu tensors are there already", t->ctx->output,
                    (unsigned long long)t->good);
        t->good++; /* next_old counts down to what it gives and what follows */
        if (!rc)
            rc = next_old(t, err);
        if (rc)
            return rc;
    }
    int rc = tu_out_create(out, t->partial, err);
    if (!rc && t->to && (t->work = dup(tu_out_fd(*out))) < 0)
        rc = tu_fail_errno(err, "%s", t->partial);
    return rc;
}

static bool same(const struct tu_record *rec, const char *name, uint32_t dtype,
                 const uint64_t *dim, unsigned rank, const char *meta)
{
    size_t n = meta ? strlen(meta) : 0;
    return strlen(name) == rec->name_len && !memcmp(rec->name, name, rec->name_len) &&
           rec->dtype == dtype && rec->nwords == rank &&
           (!rank || !memcmp(rec->word, dim, rank * sizeof *dim)) && rec->meta_len == n &&
           (!n || !memcmp(rec->meta, meta, n));
}

int target_reuse(struct target *t, const struct tu_coding *c, const struct tu_spec *spec,
                 const struct tu_tensor *x, uint32_t dtype, bool *yes, struct tu_err *err)
{
    struct tu_buf meta = {0};
    *yes = false;
    if (!t->rec)
        return 0;
    int rc = c ? quant_meta(c, spec, x, &meta, err) : 0;
    if (!rc)
        *yes = c ? same(t->rec, x->name, c->code.dtype, c->code.dim, c->code.rank, meta.data)
                 : same(t->rec, x->name, dtype ? dtype : x->dtype, x->dim, x->rank, x->meta);
    tu_buf_release(&meta);
    unsigned sides = c ? c->sides : 0;
    *yes = *yes && t->good > sides; /* all of it, or none */
    for (unsigned k = 0; !rc && *yes && k <= sides; k++) {
        rc = tu_writer_copy(t->writer, t->old, err);
        if (!rc)
            rc = next_old(t, err);
    }
    if (!*yes)
        t->rec = NULL; /* from here on it is another output */
    return rc;
}

/* Opening -------------------------------------------------------------------------------- */

/* Before hours of work, not after. */
static int refuse_folder(const struct target *t, struct tu_err *err)
{
    struct stat st;
    if (t->ctx->force || stat(t->ctx->output, &st))
        return 0;
    return tu_fail(err, TU_EEXISTS, "%s: exists (-f replaces it)", t->ctx->output);
}

int target_open(struct target *t, struct tu_ctx *ctx, struct tu_err *err)
{
    const int format = wanted(ctx);
    struct tu_out *out = NULL;
    int rc = 0;
    *t = (struct target){.ctx = ctx, .work = -1};
    t->to = format == TO_TNS ? NULL : tu_format_find(target_formats[format]);
    if ((t->to || target_opt.resume) && !strcmp(ctx->output, "-"))
        return tu_fail(err, TU_EUSAGE, "%s needs -o with a name",
                       target_opt.resume ? "--resume" : "--to");
    if (format == TO_HF)
        rc = refuse_folder(t, err);
    if (!rc)
        rc = target_opt.resume ? open_partial(t, &out, err)
             : t->to           ? open_work(t, &out, err)
                               : tu_ctx_output(ctx, &out, err);
    return rc ? rc : tu_writer_new(&t->writer, out, err);
}

/* Records ------------------------------------------------------------------------------- */

int target_record(struct target *t, const char *name, uint32_t dtype, const uint64_t *dim,
                  unsigned rank, const char *meta, struct tu_err *err)
{
    struct tu_tensor x = {
        .name = name, .dtype = dtype, .rank = rank, .dim = dim, .meta = meta};
    struct tu_record rec;
    int rc = tu_tensor_bytes(dtype, dim, rank, &x.bytes, err);
    if (rc || !t->writer)
        return rc;
    if (t->partial && (rc = tu_out_flush(tu_writer_out(t->writer), err)))
        return rc; /* what is finished survives whatever ends the run */
    tu_record_of(&rec, &x);
    return tu_writer_record(t->writer, &rec, err);
}

int target_begin(struct target *t, const struct tu_coding *c, const struct tu_spec *spec,
                 const struct tu_tensor *x, struct tu_err *err)
{
    struct tu_buf meta = {0};
    int rc = quant_meta(c, spec, x, &meta, err);
    if (!rc)
        rc = target_record(t, x->name, c->code.dtype, c->code.dim, c->code.rank, meta.data, err);
    tu_buf_release(&meta);
    return rc;
}

int target_write(struct target *t, const void *p, size_t n, struct tu_err *err)
{
    return t->writer ? tu_writer_write(t->writer, p, n, err) : 0;
}

int target_sides(struct target *t, const struct tu_coding *c, const char *name,
                 void *const *side, struct tu_err *err)
{
    struct tu_buf text = {0};
    int rc = 0;
    for (unsigned k = 0; !rc && k < c->sides; k++) {
        const struct tu_part *p = &c->side[k];
        tu_buf_reset(&text);
        rc = tu_buf_printf(&text, err, "%s.%s", name, p->suffix);
        if (!rc)
            rc = target_record(t, text.data, p->dtype, p->dim, p->rank, NULL, err);
        if (!rc)
            rc = target_write(t, side[k], (size_t)p->bytes, err);
    }
    tu_buf_release(&text);
    return rc;
}

int target_copy(struct target *t, struct input *in, struct tu_err *err)
{
    return t->writer ? tu_feed_copy(in->feed, t->writer, err) : 0;
}

int target_meta(struct target *t, const char *topic, const char *json, size_t n,
                struct tu_err *err)
{
    return t->writer ? tu_writer_meta(t->writer, topic, json, n, err) : 0;
}

int target_meta_plain(struct target *t, const struct input *in, struct tu_err *err)
{
    struct tu_buf json = {0};
    int rc = strcmp(in->topic, "files") == 0
                 ? quant_plain_files(in->json, in->json_len, &json, err)
                 : tu_buf_add(&json, in->json, in->json_len, err);
    if (!rc)
        rc = target_meta(t, in->topic, json.data, json.n, err);
    tu_buf_release(&json);
    return rc;
}

int target_end(struct target *t, struct tu_err *err)
{
    return t->writer ? tu_writer_end(t->writer, false, err) : 0;
}

/* Publishing ---------------------------------------------------------------------------- */

static int save(struct target *t, struct tu_err *err)
{
    const struct tu_save what = {.max_shard = target_opt.max_shard,
                                 .force = t->ctx->force,
                                 .beside = t->beside};
    const struct tu_job *job = tu_ctx_job(t->ctx);
    struct tu_open how = {.no_crc = true};
    struct tu_source *s = NULL;
    if (lseek(t->work, 0, SEEK_SET) < 0)
        return tu_fail_errno(err, "temporary file");
    int rc = tu_in_take_fd(&how.in, t->work, "temporary file", err);
    t->work = -1;
    if (!rc)
        rc = tu_source_open(&s, "temporary file", tu_format_find("tns"), &how, job, err);
    if (!rc && strcmp(t->to->name, "gguf"))
        rc = tu_deploy_write(&s, s, err);
    if (rc)
        return rc;
    rc = tu_source_save(s, t->ctx->output, t->to, &what, false, job, err);
    tu_source_close(s);
    return rc;
}

static void release(struct target *t)
{
    tu_reader_free(t->old);
    if (t->work >= 0)
        close(t->work);
    tu_free(t->beside);
    tu_free(t->partial);
    tu_free(t->old_path);
    *t = (struct target){.work = -1};
}

int target_close(struct target *t, struct tu_err *err)
{
    int rc = t->writer ? tu_writer_close(t->writer, false, err) : 0;
    t->writer = NULL;
    if (!rc && t->to)
        rc = save(t, err);
    else if (!rc && t->partial && rename(t->partial, t->ctx->output))
        rc = tu_fail_errno(err, "%s", t->ctx->output);
    if (!rc && t->partial) {
        unlink(t->partial);
        unlink(t->old_path);
    }
    return rc;
}

void target_abort(struct target *t)
{
    if (t->partial && t->writer)
        (void)!tu_out_flush(tu_writer_out(t->writer), NULL);
    tu_writer_abort(t->writer);
    release(t);
}
