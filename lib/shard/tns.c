/* SPDX-License-Identifier: Apache-2.0 */
/* tns.c: tensor streams: one file, or a folder with one per rank.
 *
 * Ranks hold boxes, said in the `shard` metadata of each tensor; the model and its small
 * files are in META records. */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "single.h"

int tui_stream_metas(struct tu_ckpt *c, const struct tu_source *s, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < s->metas && !rc; i++) {
        if (!strcmp(s->meta[i].topic, "model"))
            rc = tu_model_from_meta(&c->model, s->meta[i].json, s->meta[i].n, err);
        else if (!strcmp(s->meta[i].topic, "files") && !c->sides)
            rc = tui_sides_from_meta(c, s->meta[i].json, s->meta[i].n, err);
        else if (!strcmp(s->meta[i].topic, "optim")) {
            c->optim = s->meta[i].json;
            c->optim_n = s->meta[i].n;
        }
    }
    return rc;
}

static int is_stream(const struct dirent *d)
{
    return tui_has_suffix(d->d_name, ".tns");
}

static int tns_files(const char *path, struct dirent ***list)
{
    return scandir(path, list, is_stream, alphasort);
}

static int tns_detect(const char *path)
{
    struct dirent **list = NULL;
    int n = 0;
    if (!tui_is_dir(path))
        return tui_is_a(path, "tns");
    if ((n = tns_files(path, &list)) > 0) {
        for (int i = 0; i < n; i++)
            free(list[i]);
        free(list);
    }
    return n > 0 ? 50 : 0;
}

static int tns_open(struct tu_ckpt *c, const struct tu_spec *spec,
                    const struct tu_shard_opts *o, const struct tu_job *job,
                    struct tu_err *err)
{
    const struct tu_format *tns = tu_format_find("tns");
    int rc = 0;
    (void)spec;
    if (!tui_is_dir(c->root)) {
        rc = tui_add_one(c, c->root, "", tns, o, job, err);
    } else {
        struct dirent **list = NULL;
        int n = tns_files(c->root, &list);
        if (n <= 0)
            rc = n < 0 ? tu_fail_errno(err, "%s", c->root)
                       : tu_fail(err, TU_EINCOMPLETE, "%.200s: no .tns file", c->root);
        for (int i = 0; i < n; i++) {
            char *path = rc ? NULL : tui_join(c->arena, c->root, list[i]->d_name, err);
            if (!rc)
                rc = path ? tui_add_one(c, path, list[i]->d_name, tns, o, job, err)
                          : TU_ENOMEM;
            free(list[i]);
        }
        free(list);
    }
    for (size_t f = 0; f < c->files && !rc; f++)
        rc = tui_stream_metas(c, c->file[f].source, err);
    if (!rc)
        rc = tui_know_model(c, o, err);
    return rc ? rc : tui_add_all(c, o, err);
}

/* A stream carries its model and small files in META records; one of a part of a model, which has
 * no manifest beside it, its contents too. */
static int tns_metas(struct tu_ckpt *c, struct tu_err *err)
{
    struct tu_meta *m = tu_arena_alloc(c->arena, 4, sizeof *m, err);
    struct tu_buf b = {0};
    size_t n = 0;
    int rc = m ? 0 : TU_ENOMEM;
    if (!rc && c->part && !*c->file[0].path && !(rc = tu_ckpt_contents(c, &b, err)))
        rc = (m[n++] = (struct tu_meta){"contents",
                                        tu_arena_text(c->arena, b.data, b.n, err), b.n})
                     .json
                 ? 0
                 : TU_ENOMEM;
    tu_buf_reset(&b);
    if (!rc && c->model.layers && !(rc = tu_model_to_meta(&b, &c->model, err)))
        rc = (m[n++] = (struct tu_meta){"model",
                                        tu_arena_text(c->arena, b.data, b.n, err), b.n})
                     .json
                 ? 0
                 : TU_ENOMEM;
    tu_buf_reset(&b);
    if (!rc && c->sides && !(rc = tu_ckpt_files(c, &b, err)))
        rc = (m[n++] = (struct tu_meta){"files",
                                        tu_arena_text(c->arena, b.data, b.n, err), b.n})
                     .json
                 ? 0
                 : TU_ENOMEM;
    tu_buf_release(&b);
    if (!rc && c->optim)
        m[n++] = (struct tu_meta){"optim", c->optim, c->optim_n};
    c->file[0].save.meta = m;
    c->file[0].save.metas = rc ? 0 : n;
    return rc;
}

/* Cut on dim 0 for `ranks` streams, as near to even as can be: rank r has rows [r*R/n,
 * (r+1)*R/n). */
static int tns_piece(struct tu_ckpt *c, const struct tu_atom *atom, uint32_t rank,
                     uint32_t ranks, struct tu_err *err)
{
    const struct tu_tensor *t = &atom->tensor;
    uint64_t lo = t->dim[0] * rank / ranks, hi = t->dim[0] * (rank + 1) / ranks;
    uint64_t *off = tu_arena_alloc(c->arena, t->rank, sizeof *off, err);
    uint64_t *dim = tu_arena_alloc(c->arena, t->rank, sizeof *dim, err);
    if (!off || !dim)
        return TU_ENOMEM;
    if (lo == hi && (rank || t->dim[0])) /* the first has what is empty */
        return 0;
    memcpy(dim, t->dim, t->rank * sizeof *dim);
    dim[0] = hi - lo;
    off[0] = lo;
    int rc = tui_add_target_piece(c, rank, t->name, atom->fuse, (struct tu_coord){0}, dim,
                                  err);
    if (!rc) {
        struct tu_piece *p = &c->piece[c->pieces - 1];
        p->whole = t->dim;
        p->box = tui_slab(c, off, dim, NULL, t->rank, err);
        p->boxes = 1;
        rc = p->box ? tui_shard_meta(c, &c->file[rank].list[p->index], off, t->dim, err)
                    : TU_ENOMEM;
    }
    return rc;
}

static int tns_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                    const struct tu_shard_opts *o, struct tu_err *err)
{
    uint64_t ranks;
    uint32_t number;
    int rc = tu_spec_u64(spec, "ranks", 1, &ranks, err);
    if (!rc && (!ranks || ranks > 65536))
        rc = tu_fail(err, TU_EUSAGE, "ranks= is a number from 1 to 65536");
    if (rc || ranks == 1) {
        if (!rc)
            rc = tui_file_plan(c, "tns", o, err);
        return rc ? rc : tns_metas(c, err);
    }
    for (uint32_t r = 0; r < ranks && !rc; r++) {
        char path[32];
        snprintf(path, sizeof path, "rank%05u.tns", r);
        rc = tui_add_target(c, path, tu_format_find("tns"), (struct tu_coord){0}, &number,
                            err);
    }
    for (size_t a = 0; a < c->from->atoms && !rc; a++) {
        const struct tu_atom *atom = &c->from->atom[a];
        bool cut = tui_has_rows(&atom->tensor) && atom->tensor.bytes; /* nothing is whole */
        if (!cut)
            rc = tui_add_target_piece(c, 0, atom->tensor.name, atom->fuse,
                                      (struct tu_coord){0}, atom->tensor.dim, err);
        for (uint32_t r = 0; r < ranks && cut && !rc; r++)
            rc = tns_piece(c, atom, r, (uint32_t)ranks, err);
    }
    return rc ? rc : tns_metas(c, err);
}

static const struct tu_layout_key tns_keys[] = {
    {"ranks", "write a folder of N streams, every tensor cut on its first dimension"},
    {NULL, NULL},
};

const struct tu_layout tui_layout_tns = {
    .name = "tns",
    .help = "tensor stream: one file, or a folder with one per rank",
    .key = tns_keys,
    .detect = tns_detect,
    .open = tns_open,
    .plan = tns_plan,
};
