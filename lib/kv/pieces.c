/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.c: caches whose records lie in pieces of engines' files, and small things that
 * engines share. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "engines.h"

static int read_turned(struct tui_pieces *p, size_t i, struct tu_err *err)
{
    const struct tui_record *r = &p->record[i];
    const struct tui_piece *piece = r->piece;
    const struct tu_tensor *t = &p->base.tensor[i];
    size_t e = r->turned, cols = (size_t)(t->bytes / t->dim[0] / e), n = (size_t)t->dim[0];
    if (p->held == i)
        return 0;
    p->held = TU_KV_NONE;
    tu_free(p->hold);
    p->hold = tu_alloc((size_t)t->bytes, 1, err);
    unsigned char *column = p->hold ? tu_alloc((size_t)piece->row, 1, err) : NULL;
    int rc = column ? 0 : TU_ENOMEM;
    for (size_t c = 0; !rc && c < cols; c++) {
        rc = tu_in_pread(p->file[piece->file], piece->off + c * piece->stride, column,
                         (size_t)piece->row, err);
        for (size_t k = 0; !rc && k < n; k++)
            memcpy((char *)p->hold + (k * cols + c) * e, column + k * e, e);
    }
    tu_free(column);
    p->held = rc ? TU_KV_NONE : i;
    return rc;
}

/* Part of one piece: bytes off … of its rows laid end to end. */
static int read_piece(struct tui_pieces *p, const struct tui_piece *g, uint64_t off,
                      unsigned char *buf, size_t n, struct tu_err *err)
{
    if (g->stride == g->row)
        return tu_in_pread(p->file[g->file], g->off + off, buf, n, err);
    int rc = 0;
    while (!rc && n) {
        uint64_t in = off % g->row;
        size_t part = (size_t)tu_min(n, g->row - in);
        rc = tu_in_pread(p->file[g->file], g->off + off / g->row * g->stride + in, buf,
                         part, err);
        buf += part;
        off += part;
        n -= part;
    }
    return rc;
}

static int pieces_read(struct tu_kv *kv, size_t i, uint64_t off, void *buf, size_t n,
                       struct tu_err *err)
{
    struct tui_pieces *p = (struct tui_pieces *)kv;
    const struct tui_record *r = &p->record[i];
    unsigned char *to = buf;
    int rc = 0;
    if (r->turned && (rc = read_turned(p, i, err)))
        return rc;
    if (r->turned || r->memory) {
        memcpy(buf, (char *)(r->turned ? p->hold : r->memory) + off, n);
        return 0;
    }
    for (size_t k = 0; !rc && n && k < r->n; k++) {
        uint64_t bytes = r->piece[k].row * r->piece[k].rows;
        if (off >= bytes) {
            off -= bytes;
            continue;
        }
        size_t part = (size_t)tu_min(n, bytes - off);
        rc = read_piece(p, &r->piece[k], off, to, part, err);
        to += part;
        n -= part;
        off = 0;
    }
    return rc || !n ? rc : tu_fail(err, TU_EBUG, "a record has too few pieces");
}

static void pieces_close(struct tu_kv *kv)
{
    struct tui_pieces *p = (struct tui_pieces *)kv;
    for (size_t i = 0; i < p->files; i++)
        tu_in_close(p->file[i]);
    for (size_t i = 0; i < kv->n && p->record; i++) {
        tu_free(p->record[i].piece);
        tu_free(p->record[i].memory);
    }
    tu_free(p->record);
    tu_free(p->file);
    tu_free(p->hold);
}

static const struct tu_kv_ops ops = {pieces_read, NULL, pieces_close};

int tui_pieces_new(struct tui_pieces **out, const char *name, struct tu_err *err)
{
    *out = tu_kv_new(sizeof **out, &ops, name, err);
    if (!*out)
        return TU_ENOMEM;
    (*out)->held = TU_KV_NONE;
    return 0;
}

int tui_pieces_file(struct tui_pieces *p, const char *path, struct tu_err *err)
{
    struct tu_in *in;
    int rc = TU_GROW(&p->file, &p->files_cap, p->files, err);
    if (!rc)
        rc = tu_in_open(&in, path, err);
    if (rc)
        return rc;
    if (!tu_in_seekable(in)) {
        tu_in_close(in);
        return tu_fail(err, TU_EUSAGE, "%s: a pipe: engines' files are read from disk",
                       path);
    }
    p->file[p->files++] = in;
    return 0;
}

int tui_pieces_record(struct tui_pieces *p, const char *name, uint32_t dtype,
                      const uint64_t *dim, unsigned rank, struct tu_err *err)
{
    int rc = TU_GROW(&p->record, &p->records_cap, p->base.n, err);
    if (rc)
        return rc;
    p->record[p->base.n] = (struct tui_record){0};
    return tu_kv_add(&p->base, name, dtype, dim, rank, NULL, err);
}

int tui_pieces_add(struct tui_pieces *p, const struct tui_piece *piece,
                   struct tu_err *err)
{
    struct tui_record *r = &p->record[p->base.n - 1];
    int rc = TU_GROW(&r->piece, &r->cap, r->n, err);
    if (!rc)
        r->piece[r->n++] = *piece;
    return rc;
}

int tui_pieces_ints(struct tui_pieces *p, const char *name, const int32_t *v, uint64_t n,
                    struct tu_err *err)
{
    int rc = tui_pieces_record(p, name, TU_I32, &n, 1, err);
    if (rc)
        return rc;
    unsigned char *copy = tu_alloc((size_t)n, 4, err);
    if (!copy)
        return TU_ENOMEM;
    for (uint64_t i = 0; i < n; i++)
        tu_put32(copy + 4 * i, (uint32_t)v[i]);
    p->record[p->base.n - 1].memory = copy;
    return 0;
}

int tui_kv_known(struct tu_kv *kv, const struct tu_kv_hint *hint, struct tu_err *err)
{
    const struct tu_kv_info *k = &hint->info;
    struct tu_kv_info *i = &kv->info;
    struct tu_err why;
    if (!hint->force && tu_kv_info_same(i, k, false, &why) && strncmp(why.msg, "rot", 3))
        return tu_fail(err, TU_EUSAGE, "%s: %s", kv->name, why.msg);
#define TAKE(member, yes)                                                                \
    if (yes)                                                                             \
    memcpy(&i->member, &k->member, sizeof i->member)
    TAKE(model, *k->model);
    TAKE(weights, *k->weights);
    TAKE(arch, *k->arch);
    TAKE(rope, *k->rope);
    TAKE(rope_theta, k->rope_theta > 0);
    TAKE(rot, k->rot);
    TAKE(window, k->window);
    TAKE(heads, k->heads);
#undef TAKE
    if (k->tp_size > 1) {
        i->tp_size = k->tp_size;
        i->tp_rank = k->tp_rank;
    }
    return 0;
}

uint32_t tui_kv_dtype(const char *word)
{
    /* "fp8" is one type in an engine's file, and none that a person may write. */
    const char *fp8 = strncmp(word, "fp8", 3) ? NULL : word + 3;
    if (fp8)
        return !*fp8 || !strcmp(fp8, "_e4m3") ? TU_F8_E4M3FN
               : !strcmp(fp8, "_e5m2")        ? TU_F8_E5M2
                                              : 0;
    const struct tu_dtype *d = tu_dtype_called(word);
    return d ? d->code : 0;
}

int tui_kv_even(struct tu_kv *kv, struct tui_even *out, struct tu_err *err)
{
    *out = (struct tui_even){.layers = kv->info.layers, .tokens = kv->tokens};
    if (*kv->info.layout && strcmp(kv->info.layout, "nhd") != 0)
        return tu_fail(err, TU_EUSAGE,
                       "%s: in layout '%s': make it by tokens first (kv-pack convert "
                       "--layout nhd)",
                       kv->name, kv->info.layout);
    for (uint64_t l = 0; l < kv->info.layers; l++)
        for (int s = TU_KV_K; s < TU_KV_SIDES; s++) {
            size_t i = tu_kv_record(kv, l, (enum tu_kv_side)s);
            if (i == TU_KV_NONE && s == TU_KV_V && out->latent)
                continue;
            if (i == TU_KV_NONE)
                return tu_fail(err, TU_EUNSUP, "%s: layer %" PRIu64 " has no %s",
                               kv->name, l, s == TU_KV_K ? "keys" : "values");
            const struct tu_tensor *t = &kv->tensor[i];
            uint64_t heads, dim, *own = s == TU_KV_K ? &out->dim_k : &out->dim_v;
            tu_kv_dims(kv, i, &heads, &dim);
            if (!out->dtype) {
                out->dtype = t->dtype;
                out->heads = heads;
                out->latent = tu_kv_latent(t);
            }
            if (!*own)
                *own = dim;
            if (t->dtype != out->dtype || heads != out->heads || *own != dim ||
                t->dim[0] != kv->tokens || tu_kv_latent(t) != out->latent)
                return tu_fail(err, TU_EUNSUP,
                               "%s: '%s' differs from other layers in dtype or shape",
                               kv->name, t->name);
            *(s == TU_KV_K ? &out->row_k : &out->row_v) =
                t->dim[0] ? t->bytes / t->dim[0] : 0;
        }
    return out->layers ? 0 : tu_fail(err, TU_EINCOMPLETE, "%s: no layers", kv->name);
}

int tui_kv_put_file(const char *folder, const char *name, const void *data, size_t n,
                    const struct tu_job *job, struct tu_err *err)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return tu_fail(err, TU_ENAME, "%.60s…: the name is too long", name);
    return tu_file_write(path, data, n, true, job, err);
}

int tui_kv_folder(const char *path, bool force, struct tu_err *err)
{
    if (mkdir(path, 0777) == 0)
        return 0;
    if (errno != EEXIST)
        return tu_fail_errno(err, "%s", path);
    return force ? 0 : tu_fail(err, TU_EEXISTS, "%s: exists (-f adds to it)", path);
}
