/* SPDX-License-Identifier: Apache-2.0 */
/* dcp_hf.c: the shards of torch's HuggingFaceStorageWriter: safetensors files, each with
 * the offsets of its chunks as metadata.
 *
 * Nothing says how large a whole tensor is: it reaches as far as its chunks, which must
 * tile it. Source: pytorch torch/distributed/checkpoint/{hf_storage,_hf_utils}.py. */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "single.h"

#define INFO "DCP_SHARDING_INFO"

/* Sizes of the whole tensors, by name. */
struct wholes {
    struct tu_names *names;
    uint64_t (*dim)[TU_RANK_MAX];
    unsigned *rank;
    size_t n, cap, rank_cap;
    json_t **info; /* [files] offsets by name, NULL: all at 0 */
};

static int is_shard(const struct dirent *d)
{
    return !strncmp(d->d_name, "shard-", 6) && strstr(d->d_name, "-model-") &&
           tui_has_suffix(d->d_name, ".safetensors");
}

static int dcp_hf_detect(const char *path)
{
    struct dirent **list = NULL;
    int n = tui_is_dir(path) ? scandir(path, &list, is_shard, alphasort) : 0;
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
    return n > 0 ? 85 : 0;
}

/* {NAME: {"saved_offsets": […]}} of a file, a text inside its metadata. */
static int info_of(const struct tu_source *s, json_t **out, struct tu_err *err)
{
    json_t *meta = NULL;
    int rc = 0;
    for (size_t i = 0; i < s->metas && !rc && !meta; i++)
        if (!strcmp(s->meta[i].topic, "safetensors"))
            rc = tu_json_parse(&meta, s->meta[i].json, s->meta[i].n, NULL, err);
    const char *text =
        json_string_value(json_object_get(json_object_get(meta, "metadata"), INFO));
    if (!rc && text)
        rc = tu_json_parse(out, text, strlen(text), NULL, err);
    if (rc && rc != TU_ENOMEM)
        tu_err_prefix(err, "%s: " INFO, s->path);
    json_decref(meta);
    return rc;
}

static int offsets_of(const json_t *info, const struct tu_tensor *t, uint64_t *at,
                      struct tu_err *err)
{
    const json_t *list =
        json_object_get(json_object_get(info, t->name), "saved_offsets");
    memset(at, 0, TU_RANK_MAX * sizeof *at);
    if (!info)
        return 0;
    if (!json_is_array(list) || json_array_size(list) != t->rank)
        return tu_fail(err, TU_EFORMAT, INFO " has no %u offsets for '%.100s'", t->rank,
                       t->name);
    for (unsigned i = 0; i < t->rank; i++) {
        json_int_t v = json_integer_value(json_array_get(list, i));
        if (v < 0 || tu_add_over((uint64_t)v, t->dim[i], &at[i]))
            return tu_fail(err, TU_EFORMAT, "'%.100s' begins at %lld", t->name,
                           (long long)v);
        at[i] = (uint64_t)v;
    }
    return 0;
}

/* One tensor of a file makes its whole at least so large. */
static int reach(struct wholes *w, const json_t *info, const struct tu_tensor *t,
                 struct tu_err *err)
{
    uint64_t at[TU_RANK_MAX];
    uint32_t i = tu_names_get(w->names, t->name);
    int rc = offsets_of(info, t, at, err);
    if (!rc && i == TU_NAMES_NONE) {
        rc = TU_GROW(&w->dim, &w->cap, w->n, err);
        if (!rc)
            rc = TU_GROW(&w->rank, &w->rank_cap, w->n, err);
        if (rc)
            return rc;
        i = (uint32_t)w->n++;
        memset(w->dim[i], 0, sizeof w->dim[i]);
        w->rank[i] = t->rank;
        rc = tu_names_put(w->names, t->name, i, err);
    }
    if (!rc && w->rank[i] != t->rank)
        rc = tu_fail(err, TU_EINCOMPLETE, "'%.100s' has rank %u here and %u elsewhere",
                     t->name, t->rank, w->rank[i]);
    for (unsigned k = 0; k < t->rank && !rc; k++)
        w->dim[i][k] = tu_max(w->dim[i][k], at[k] + t->dim[k]);
    return rc;
}

/* As tui_naming asks: say where a tensor of file f lies. */
static int locate(struct tu_ckpt *c, uint32_t f, struct tu_tensor *t, void *ctx,
                  struct tu_err *err)
{
    struct wholes *w = ctx;
    uint32_t i = tu_names_get(w->names, t->name);
    uint64_t at[TU_RANK_MAX];
    int rc = offsets_of(w->info[f], t, at, err);
    if (rc || !t->rank || !memcmp(w->dim[i], t->dim, t->rank * sizeof *t->dim))
        return rc;
    return tui_shard_meta(c, t, at, w->dim[i], err);
}

static int open_files(struct tu_ckpt *c, const struct tu_shard_opts *o,
                      const struct tu_job *job, struct tu_err *err)
{
    struct dirent **list = NULL;
    int n = scandir(c->root, &list, is_shard, alphasort);
    int rc = n > 0   ? 0
             : n < 0 ? tu_fail_errno(err, "%s", c->root)
                     : tu_fail(err, TU_EINCOMPLETE, "%.200s: no shard-*.safetensors file",
                               c->root);
    for (int i = 0; i < n; i++) {
        char *path = rc ? NULL : tui_join(c->arena, c->root, list[i]->d_name, err);
        if (!rc)
            rc = path ? tui_add_one(c, path, list[i]->d_name,
                                    tu_format_find("safetensors"), o, job, err)
                      : TU_ENOMEM;
        free(list[i]);
    }
    free(list);
    return rc;
}

static int dcp_hf_open(struct tu_ckpt *c, const struct tu_spec *spec,
                       const struct tu_shard_opts *o, const struct tu_job *job,
                       struct tu_err *err)
{
    struct wholes w = {.names = tu_names_new(err)};
    (void)spec;
    int rc = w.names ? open_files(c, o, job, err) : TU_ENOMEM;
    if (!rc && !(w.info = tu_arena_alloc(c->arena, c->files, sizeof *w.info, err)))
        rc = TU_ENOMEM;
    for (uint32_t f = 0; f < c->files && !rc; f++) {
        const struct tu_source *s = c->file[f].source;
        rc = info_of(s, &w.info[f], err);
        for (size_t i = 0; i < s->n && !rc; i++)
            if ((rc = reach(&w, w.info[f], &s->tensor[i], err)) && rc != TU_ENOMEM)
                tu_err_prefix(err, "%s", s->path);
    }
    if (!rc)
        rc = tui_sides_from(c, c->root, err);
    if (!rc)
        rc = tui_know_model(c, o, err);
    if (!rc)
        rc = tui_fit_all(c, o, err);
    struct tui_naming name = {.map = c->canonical, .locate = locate, .ctx = &w};
    for (uint32_t f = 0; f < c->files && !rc; f++)
        rc = tui_add_pieces(c, f, &name, err);
    for (uint32_t f = 0; w.info && f < c->files; f++)
        json_decref(w.info[f]);
    tu_names_free(w.names);
    tu_free(w.dim);
    tu_free(w.rank);
    return rc;
}

/* META "safetensors" of a file with the offsets of its pieces. */
static int add_info(struct tu_ckpt *c, uint32_t f, const json_t *info, struct tu_err *err)
{
    struct tu_buf text = {0}, all = {0};
    struct tu_meta *m = tu_arena_alloc(c->arena, 1, sizeof *m, err);
    int rc = m ? tu_json_dump(&text, info, err) : TU_ENOMEM;
    json_t *meta = rc ? NULL
                      : json_pack("{s{sssss s%}}", "metadata", "format", "pt",
                                  "DCP_VERSION", "1.0", INFO, text.data, text.n);
    if (!rc)
        rc = meta ? tu_json_dump(&all, meta, err)
                  : tu_fail(err, TU_ENOMEM, "out of memory");
    if (!rc) {
        *m = (struct tu_meta){"safetensors",
                              tu_arena_text(c->arena, all.data, all.n, err), all.n};
        rc = m->json ? 0 : TU_ENOMEM;
        c->file[f].save.meta = m;
        c->file[f].save.metas = 1;
    }
    json_decref(meta);
    tu_buf_release(&all);
    tu_buf_release(&text);
    return rc;
}

static int add_file(struct tu_ckpt *c, uint32_t rank, uint32_t ranks, size_t n,
                    struct tu_err *err)
{
    char path[64];
    uint32_t f;
    json_t *info = json_object();
    snprintf(path, sizeof path, "shard-%05u-model-00001-of-00001.safetensors", rank + 1);
    int rc = info ? tui_add_target(c, path, tu_format_find("safetensors"),
                                   (struct tu_coord){0}, &f, err)
                  : tu_fail(err, TU_ENOMEM, "out of memory");
    for (uint32_t a = 0; a < n && !rc; a++) {
        const struct tu_tensor *t = &c->from->atom[a].tensor;
        uint64_t at[TU_RANK_MAX] = {0};
        bool yes = false;
        rc = tui_add_rows(c, rank, ranks, t->name, a, &yes, at, err);
        if (rc || !yes)
            continue;
        json_t *list = json_array();
        bool all = list != NULL;
        for (unsigned i = 0; all && i < t->rank; i++)
            all = !json_array_append_new(list, json_integer((json_int_t)at[i]));
        if (!all)
            json_decref(list);
        if (!all || json_object_set_new(info, t->name,
                                        json_pack("{so}", "saved_offsets", list)))
            rc = tu_fail(err, TU_ENOMEM, "out of memory");
    }
    if (!rc)
        rc = add_info(c, f, info, err);
    json_decref(info);
    return rc;
}

static int dcp_hf_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                       const struct tu_shard_opts *o, struct tu_err *err)
{
    size_t n = tui_weights(c->from); /* the optimizer's states have no place here */
    uint64_t ranks;
    (void)o;
    int rc = tu_spec_u64(spec, "ranks", 1, &ranks, err);
    if (!rc && (!ranks || ranks > 65536))
        rc = tu_fail(err, TU_EUSAGE, "ranks= is a number from 1 to 65536");
    c->dropped += c->from->atoms - n;
    for (uint32_t r = 0; !rc && r < ranks; r++)
        rc = add_file(c, r, (uint32_t)ranks, n, err);
    return rc ? rc : tui_ensure_config(c, err);
}

static const struct tu_layout_key keys[] = {
    {"ranks",
     "to write: files, every tensor cut on its first dimension as Shard(0) does"},
    {NULL, NULL},
};

const struct tu_layout tui_layout_dcp_hf = {
    .name = "dcp_hf",
    .help = "PyTorch's HuggingFaceStorageWriter: shard-*.safetensors files with offsets",
    .key = keys,
    .detect = dcp_hf_detect,
    .open = dcp_hf_open,
    .plan = dcp_hf_plan,
    .side_folder = "",
};
