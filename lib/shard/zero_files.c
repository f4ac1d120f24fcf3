/* SPDX-License-Identifier: Apache-2.0 */
/* zero_files.c: the files of a DeepSpeed checkpoint, by their ranks.
 *
 * mp_rank_MM_model_states.pt (stage 0 to 2), zero_pp_rank_D_mp_rank_MM_model_states.pt
 * (stage 3), [bf16_|fp16_]zero_pp_rank_D_mp_rank_MM_optim_states.pt;
 * layer_L[-model_T]-model_states.pt of a pipeline and
 * layer_L_expert_E_mp_rank_MM_model_states.pt. Numbers have any number of digits. Source:
 * DeepSpeed deepspeed/runtime/engine.py. */

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deepspeed.h"

/* A file name taken apart. */
struct name {
    enum { OTHER, MODEL, PARTITION, OPTIM, PART } kind;
    uint32_t dp, mp, layer, expert;
};

static bool number(const char **p, uint32_t *out)
{
    char *end;
    unsigned long v = **p >= '0' && **p <= '9' ? strtoul(*p, &end, 10) : ULONG_MAX;
    if (v > 1u << 20)
        return false;
    *p = end;
    *out = (uint32_t)v;
    return true;
}

static bool skip(const char **p, const char *text)
{
    size_t n = strlen(text);
    bool yes = !strncmp(*p, text, n);
    *p += yes ? n : 0;
    return yes;
}

/* layer_03-model_states.pt, layer_03-model_01-model_states.pt,
 * layer_0_expert_2_mp_rank_00_model_states.pt, and that without the layer. */
static struct name parse_part(const char *p)
{
    struct name n = {.kind = PART, .expert = TUI_NO_EXPERT};
    bool layer = skip(&p, "layer_");
    if (layer && !number(&p, &n.layer))
        return (struct name){OTHER, 0, 0, 0, 0};
    if (!layer || *p == '_') {
        (void)skip(&p, "_");
        if (!skip(&p, "expert_") || !number(&p, &n.expert) || !skip(&p, "_mp_rank_") ||
            !number(&p, &n.mp) || strcmp(p, "_model_states.pt"))
            n.kind = OTHER;
        return n;
    }
    if (skip(&p, "-model_") && *p != 's' && (!number(&p, &n.mp) || !skip(&p, "-model_")))
        n.kind = OTHER;
    if (strcmp(p, "states.pt"))
        n.kind = OTHER;
    return n;
}

static struct name parse(const char *text)
{
    struct name n = {OTHER, 0, 0, 0, 0};
    const char *p = text;
    if (!strncmp(p, "layer_", 6) || !strncmp(p, "expert_", 7))
        return parse_part(text);
    if (!skip(&p, "bf16_"))
        (void)skip(&p, "fp16_");
    bool zero = skip(&p, "zero_pp_rank_") && number(&p, &n.dp) && skip(&p, "_");
    if (!skip(&p, "mp_rank_") || !number(&p, &n.mp))
        return n;
    if (!strcmp(p, "_model_states.pt"))
        n.kind = zero ? PARTITION : p == text ? OTHER : MODEL;
    else if (zero && (!strcmp(p, "_optim_states.pt") || !strcmp(p, "optim_states.pt")))
        n.kind = OPTIM;
    return n;
}

static int is_rank(const struct dirent *d)
{
    return parse(d->d_name).kind != OTHER;
}

const struct tu_pnode *tui_file_root(const struct tu_ckpt *c, uint32_t f)
{
    const struct tu_source *s = c->file[f].source;
    return s->pickle ? tu_pickle_root(s->pickle) : NULL;
}

int tui_tag_folder(struct tu_ckpt *c, const char *latest, const char *tag,
                   const char **folder, struct tu_err *err)
{
    char *path = tui_join(c->arena, c->root, latest, err), *text = NULL;
    size_t n;
    int rc = path ? 0 : TU_ENOMEM;
    *folder = c->root;
    if (rc || (!tag && !tui_is_file(path)))
        return rc;
    if (!tag) {
        rc = tu_file_read(path, 4096, &text, &n, err);
        if (rc)
            return rc;
        text[strcspn(text, " \r\n")] = 0;
    }
    const char *name = tag ? tag : text;
    if (!*name || strchr(name, '/') || !strcmp(name, ".."))
        rc = tu_fail(err, TU_EFORMAT, "%.150s: '%.60s' is no name of a folder", path,
                     name);
    *folder = rc ? NULL : tui_join(c->arena, c->root, name, err);
    if (!rc && *folder && !tui_is_dir(*folder))
        rc = tu_fail(err, TU_EINCOMPLETE,
                     "%.150s: %s names this folder, but it is not there", *folder,
                     tag ? "tag=" : latest);
    tu_free(text);
    return rc ? rc : *folder ? 0 : TU_ENOMEM;
}

/* Greatest numbers of each kind, so that the grid is known. */
static int measure(struct dirent **list, int n, const char *folder, struct tui_zero *z,
                   struct tu_err *err)
{
    for (int i = 0; i < n; i++) {
        struct name f = parse(list[i]->d_name);
        z->parts += f.kind == PART;
        if (f.kind == PART)
            continue;
        z->mp = tu_max(z->mp, f.mp + 1);
        z->dp = f.kind == MODEL ? z->dp : tu_max(z->dp, f.dp + 1);
        z->partitioned |= f.kind == PARTITION;
    }
    z->dp = tu_max(z->dp, 1);
    if (n <= 0 || !z->mp || (uint64_t)z->mp * z->dp > 1u << 20)
        return tu_fail(err, TU_EINCOMPLETE, "%.200s: no *_model_states.pt of DeepSpeed",
                       folder);
    return 0;
}

static int open_one(struct tu_ckpt *c, const struct tui_zero *z, const char *name,
                    struct tu_coord at, const struct tu_shard_opts *o,
                    const struct tu_job *job, uint32_t *out, struct tu_err *err)
{
    struct tu_source *s = NULL;
    char *path = tui_join(c->arena, z->folder, name, err);
    int rc = path ? tu_source_open(&s, path, tu_format_find("torch"), &o->open, job, err)
                  : TU_ENOMEM;
    if (!rc)
        rc = tui_add_source(c, path, s, at, out, err);
    if (!rc && !tui_file_root(c, *out))
        rc = tu_fail(err, TU_EFORMAT, "%.200s: no dictionary of torch", path);
    return rc;
}

static int by_place(const void *a, const void *b)
{
    const struct tui_zero_part *x = a, *y = b;
    const uint32_t k[][2] = {
        {x->layer, y->layer}, {x->expert, y->expert}, {x->tp, y->tp}};
    for (int i = 0; i < 3; i++)
        if (k[i][0] != k[i][1])
            return k[i][0] < k[i][1] ? -1 : 1;
    return 0;
}

static int open_all(struct tu_ckpt *c, struct dirent **list, int n,
                    const struct tu_shard_opts *o, const struct tu_job *job,
                    struct tui_zero *z, struct tu_err *err)
{
    size_t grid = (size_t)z->mp * z->dp, models = z->partitioned ? grid : z->mp;
    int rc = 0;
    z->model = tu_arena_alloc(c->arena, models, sizeof *z->model, err);
    z->optim = tu_arena_alloc(c->arena, grid, sizeof *z->optim, err);
    z->part = tu_arena_alloc(c->arena, z->parts + 1, sizeof *z->part, err);
    z->parts = 0;
    if (!z->model || !z->optim || !z->part)
        return TU_ENOMEM;
    memset(z->model, 0xff, models * sizeof *z->model);
    memset(z->optim, 0xff, grid * sizeof *z->optim);
    for (int i = 0; i < n && !rc; i++) {
        struct name f = parse(list[i]->d_name);
        if (f.kind == PART)
            z->part[z->parts++] = (struct tui_zero_part){f.layer, f.expert, f.mp, 0};
        uint32_t *to = f.kind == PART        ? &z->part[z->parts - 1].file
                       : f.kind == OPTIM       ? &z->optim[f.mp * z->dp + f.dp]
                       : f.kind == PARTITION ? &z->model[f.mp * z->dp + f.dp]
                       : !z->partitioned     ? &z->model[f.mp]
                                             : NULL;
        if (to && *to != UINT32_MAX && f.kind != PART)
            rc = tu_fail(err, TU_EINCOMPLETE, "%.120s: '%.60s' is there twice", z->folder,
                         list[i]->d_name);
        else if (to)
            rc = open_one(c, z, list[i]->d_name, (struct tu_coord){.tp = f.mp}, o, job,
                          to, err);
    }
    qsort(z->part, z->parts, sizeof *z->part, by_place);
    return rc;
}

/* Every rank's files are there: all of a kind, or none (weights alone). */
static int complete(const struct tui_zero *z, struct tu_err *err)
{
    size_t grid = (size_t)z->mp * z->dp, models = z->partitioned ? grid : z->mp, lost = 0;
    size_t states = 0, first = SIZE_MAX;
    for (size_t i = 0; i < models; i++)
        if (z->model[i] == UINT32_MAX && !lost++)
            first = i;
    if (lost)
        return tu_fail(
            err, TU_EINCOMPLETE,
            "%.100s: %zu of %zu model_states files are missing: the first is of "
            "mp_rank %zu, data-parallel rank %zu",
            z->folder, lost, models, z->partitioned ? first / z->dp : first,
            z->partitioned ? first % z->dp : 0);
    for (size_t i = 0; i < grid; i++) {
        states += z->optim[i] != UINT32_MAX;
        if (z->optim[i] == UINT32_MAX && first == SIZE_MAX)
            first = i;
    }
    if (!z->universal && states < grid && (states || z->partitioned))
        return tu_fail(
            err, TU_EINCOMPLETE,
            "%.100s: %zu of %zu optim_states files are missing: the first is of "
            "mp_rank %zu, data-parallel rank %zu",
            z->folder, grid - states, grid, first / z->dp, first % z->dp);
    return 0;
}

static int64_t integer(const struct tu_pnode *root, const char *key, int64_t fallback)
{
    const struct tu_pnode *v = tu_pnode_get(root, key);
    return v && v->kind == TU_P_INT ? v->integer : fallback;
}

/* All files are of one save: the same step, the sizes of the mesh that are there. */
static int same_save(struct tu_ckpt *c, struct tui_zero *z, struct tu_err *err)
{
    size_t models = z->partitioned ? (size_t)z->mp * z->dp : z->mp;
    bool states = z->optim[0] != UINT32_MAX;
    for (size_t i = 0; i < models; i++) {
        const struct tu_pnode *root = tui_file_root(c, z->model[i]);
        const struct tu_pnode *dims =
            tu_pnode_get(root, "checkpoint_parallel_dimensions");
        int64_t step = integer(root, "global_steps", -1),
                dp = integer(root, "dp_world_size", z->dp);
        int64_t mp = integer(root, "mp_world_size", z->mp),
                pp = integer(dims, "pp_degree", 1);
        int rc = 0;
        if (!i) {
            c->iteration = step;
            if (pp < 1 || z->mp % (uint64_t)pp)
                pp = 1;
            z->tp = (uint32_t)(z->mp / pp);
            c->pp = (uint32_t)pp;
        }
        if (step != c->iteration)
            rc = tu_fail(err, TU_EINCOMPLETE, "global_steps %lld here and %lld in %.80s",
                         (long long)step, (long long)c->iteration,
                         c->file[z->model[0]].path);
        else if ((states || z->partitioned) && dp != z->dp)
            rc = tu_fail(err, TU_EINCOMPLETE,
                         "dp_world_size is %lld, and there are files of "
                         "%u data-parallel ranks",
                         (long long)dp, z->dp);
        else if (mp != z->mp && mp * pp != z->mp)
            rc = tu_fail(err, TU_EINCOMPLETE,
                         "mp_world_size is %lld, and there are files of "
                         "%u model-parallel ranks",
                         (long long)mp, z->mp);
        if (rc) {
            tu_err_prefix(err, "%s", c->file[z->model[i]].path);
            return rc;
        }
    }
    return 0;
}

int tui_zero_files(struct tu_ckpt *c, const struct tu_spec *spec,
                   const struct tu_shard_opts *o, const struct tu_job *job,
                   struct tui_zero *z, struct tu_err *err)
{
    struct dirent **list = NULL;
    int rc = tui_tag_folder(c, z->latest, tu_spec_get(spec, "tag"), &z->folder, err),
        n = 0;
    if (!rc)
        n = scandir(z->folder, &list, is_rank, alphasort);
    if (!rc)
        rc = measure(list, n, z->folder, z, err);
    if (!rc)
        rc = open_all(c, list, n, o, job, z, err);
    if (!rc)
        rc = complete(z, err);
    if (!rc)
        rc = same_save(c, z, err);
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
    return rc;
}

int tui_zero_is(const char *path)
{
    struct dirent **list = NULL;
    char latest[4096], *text = NULL, tag[4096];
    size_t n;
    bool tagged = false;
    snprintf(latest, sizeof latest, "%s/latest", path);
    snprintf(tag, sizeof tag, "%s", path);
    int rc = tui_is_file(latest) ? tu_file_read(latest, 4096, &text, &n, NULL) : 0;
    if (rc == TU_EIO || rc == TU_ENOMEM)
        return rc;
    if (text) {
        text[strcspn(text, " \r\n")] = 0;
        snprintf(tag, sizeof tag, "%s/%s", path, text);
        tagged = *text;
        tu_free(text);
    }
    int count = tui_is_dir(tag) ? scandir(tag, &list, is_rank, alphasort) : 0;
    for (int i = 0; i < count; i++)
        free(list[i]);
    free(list);
    return count > 0 ? 92 : tagged ? 40 : 0; /* named, whether it is there or not */
}
