/* SPDX-License-Identifier: Apache-2.0 */
/* meta.c: Meta's Llama files: consolidated.NN.pth, one per model-parallel rank, and
 * params.json.
 *
 * Llama 1 and 2 cut the embedding on its columns, Llama 3 on its rows (fairscale's
 * ParallelEmbedding and VocabParallelEmbedding). Source: transformers
 * models/llama/convert_llama_weights_to_hf.py. */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt.h"

#define LLAMA3_VOCAB 128256

static int is_consolidated(const struct dirent *d)
{
    unsigned n;
    int end = 0;
    return sscanf(d->d_name, "consolidated.%2u.pth%n", &n, &end) == 1 && end &&
           !d->d_name[end];
}

static int consolidated(const char *path, struct dirent ***list)
{
    return scandir(path, list, is_consolidated, alphasort);
}

static void free_list(struct dirent **list, int n)
{
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

static int meta_detect(const char *path)
{
    struct dirent **list = NULL;
    int n = tui_is_dir(path) ? consolidated(path, &list) : 0;
    if (n > 0)
        free_list(list, n);
    return n > 0 ? 90 : 0;
}

/* The embedding of Llama 1 and 2 is cut as a row-parallel matrix. */
static void cut_columns(const struct tu_ckpt *c, struct tu_named *named)
{
    (void)c;
    if (!strcmp(named->role[0], "embed.weight") && !(named->transform & TU_MAP_TIED))
        named->transform = (named->transform & ~(unsigned)TU_MAP_VOCAB) | TU_MAP_ROW;
}

static int read_params(struct tu_ckpt *c, const struct tu_shard_opts *o,
                       struct tu_err *err)
{
    char *path = tui_join(c->arena, c->root, "params.json", err), *text = NULL;
    const struct tu_side *config = tui_side(c, "config.json");
    size_t n;
    int rc = path ? tu_file_expect(path, err, "it tells the heads and layers") : TU_ENOMEM;
    if (!rc)
        rc = tu_file_read(path, (size_t)1 << 20, &text, &n, err);
    if (!rc)
        rc = tu_model_from_params(&c->model, text, n, err);
    if (rc)
        tu_err_prefix(err, "%s", path ? path : c->root);
    tu_free(text);
    struct tu_model hf;
    if (!rc && config && !(rc = tu_model_from_hf(&hf, config->text, config->n, err))) {
        c->model.ffn = hf.ffn; /* a formula there, a number here */
        rc = tu_model_same(&c->model, &hf, err);
        if (rc)
            tu_err_prefix(err, "%s and config.json", path);
        c->model = hf;
    }
    c->model.tied = !rc && config && hf.tied && !o->untied;
    if (o->vocab)
        c->model.vocab = o->vocab;
    return rc;
}

static size_t find_tensor(const struct tu_ckpt *c, const char *name)
{
    return tu_source_find(c->file[0].source, name);
}

/* The last files may be missing: the rows of one tensor say how many there were. */
static int all_there(const struct tu_ckpt *c, struct tu_err *err)
{
    size_t q = find_tensor(c, "layers.0.attention.wq.weight");
    const struct tu_tensor *t = q == SIZE_MAX ? NULL : &c->file[0].source->tensor[q];
    uint64_t rows = c->model.heads * c->model.head_dim;
    if (!t || t->rank != 2 || !t->dim[0] || rows % t->dim[0] || rows / t->dim[0] <= c->tp)
        return 0;
    return tu_fail(err, TU_EINCOMPLETE, "%.150s: consolidated.%02u.pth is missing (%llu in all)",
                   c->root, c->tp, (unsigned long long)(rows / t->dim[0]));
}

static int meta_open(struct tu_ckpt *c, const struct tu_spec *spec,
                     const struct tu_shard_opts *o, const struct tu_job *job,
                     struct tu_err *err)
{
    struct dirent **list = NULL;
    int n = consolidated(c->root, &list);
    char *hf = tui_join(c->arena, c->root, "hf", err);
    int rc =
        !hf     ? TU_ENOMEM
        : n > 0 ? 0
                : tu_fail(err, TU_EINCOMPLETE, "%.150s: no consolidated.NN.pth", c->root);
    (void)spec;
    for (int i = 0; i < n && !rc; i++) {
        struct tu_source *s = NULL;
        uint32_t number;
        unsigned rank = 0;
        char *path = tui_join(c->arena, c->root, list[i]->d_name, err);
        if (path && sscanf(list[i]->d_name, "consolidated.%2u.pth", &rank) == 1 &&
            rank != (unsigned)i)
            rc = tu_fail(err, TU_EINCOMPLETE, "%.150s: consolidated.%02d.pth is missing",
                         c->root, i);
        else
            rc = path ? tu_source_open(&s, path, tu_format_find("torch"), &o->open, job,
                                       err)
                      : TU_ENOMEM;
        if (!rc)
            rc = tui_add_source(c, list[i]->d_name, s,
                                (struct tu_coord){.tp = (uint32_t)i}, &number, err);
    }
    free_list(list, n > 0 ? n : 0);
    c->tp = n > 0 ? (uint32_t)n : 1;
    if (!rc)
        rc = tui_sides_from(c, c->root, err);
    if (!rc && !tui_side(c, "config.json"))
        rc = tui_sides_from(c, hf, err);
    if (!rc)
        rc = read_params(c, o, err);
    if (!rc)
        rc = all_there(c, err);
    if (!rc)
        rc = tui_load_map(&c->map, "meta-llama", &c->model, o, err);
    if (!rc)
        rc = tui_set_canonical(c, o, err);
    size_t e = rc ? SIZE_MAX : find_tensor(c, "tok_embeddings.weight");
    bool columns = e != SIZE_MAX && c->tp > 1 && c->file[0].source->tensor[e].rank == 2 &&
                   c->file[0].source->tensor[e].dim[1] * c->tp == c->model.hidden;
    for (uint32_t f = 0; f < c->files && !rc; f++) {
        struct tui_naming name = {
            .map = c->map, .at = c->file[f].at, .adjust = columns ? cut_columns : NULL};
        rc = tui_add_pieces(c, f, &name, err);
    }
    return rc ? rc : tui_check_ranks(c, err);
}

static uint32_t file_of(const struct tu_ckpt *c, struct tu_coord at)
{
    (void)c;
    return at.tp;
}

static int meta_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                     const struct tu_shard_opts *o, struct tu_err *err)
{
    struct tui_target_rule rule = {.tied_head = true};
    const char *embed = tu_spec_get(spec, "embed");
    uint64_t tp;
    int rc = tu_spec_u64(spec, "tp", 1, &tp, err);
    if (!rc && (!tp || tp > 99))
        rc = tu_fail(err, TU_EUSAGE, "tp=%llu: expected 1 to 99", (unsigned long long)tp);
    if (!rc && embed && strcmp(embed, "rows") && strcmp(embed, "columns"))
        rc = tu_fail(err, TU_EUSAGE,
                     "embed= is rows (Llama 3) or columns (Llama 1 and 2)");
    if (!rc)
        rc = tui_need_family(c, err);
    if (!rc && (!c->model.gated || !c->model.rmsnorm ||
                c->model.experts || c->model.qkv_bias))
        rc = tu_fail(err, TU_EUSAGE, "%.100s: family '%s' has no form in Meta's files",
                     c->from->root, c->model.family);
    if (!rc && c->model.heads * c->model.head_dim != c->model.hidden)
        rc = tu_fail(err, TU_EUSAGE,
                     "%.100s: %llu heads of %llu columns are not the hidden size %llu: Meta's "
                     "params.json has no place for the size of a head",
                     c->from->root, (unsigned long long)c->model.heads,
                     (unsigned long long)c->model.head_dim,
                     (unsigned long long)c->model.hidden);
    if (rc)
        return rc;
    c->tp = (uint32_t)tp;
    bool rows = embed ? !strcmp(embed, "rows") : c->model.vocab >= LLAMA3_VOCAB;
    rule.adjust = rows ? NULL : cut_columns;
    for (uint32_t r = 0; r < c->tp && !rc; r++) {
        char name[32];
        uint32_t number;
        snprintf(name, sizeof name, "consolidated.%02u.pth", r);
        rc = tui_add_target(c, name, tu_format_find("torch"), (struct tu_coord){.tp = r},
                            &number, err);
        if (!rc)
            c->file[number].save.folder_name = "consolidated";
    }
    if (!rc)
        rc = tui_target_map(c, "meta-llama", o, err);
    if (!rc)
        rc = tui_ensure_config(c, err);
    if (!rc)
        rc = tui_plan_stages(c, NULL, err);
    if (!rc)
        rc = tui_plan_pieces(c, &rule, file_of, err);
    return rc;
}

static int meta_extra(const struct tu_ckpt *c, const char *folder,
                      const struct tu_job *job, struct tu_err *err)
{
    char path[4096];
    struct tu_buf b = {0};
    int rc = tu_model_to_params(&b, &c->model, err);
    if (!rc && snprintf(path, sizeof path, "%s/params.json", folder) >= (int)sizeof path)
        rc = tu_fail(err, TU_EIO, "%.200s: path too long", folder);
    if (!rc)
        rc = tu_file_write(path, b.data, b.n, true, job, err);
    tu_buf_release(&b);
    return rc;
}

static const struct tu_layout_key keys[] = {
    {"tp", "model-parallel size: number of consolidated files"},
    {"embed", "how the embedding is cut: rows (Llama 3) or columns (Llama 1 and 2); "
              "default by vocabulary"},
    {NULL, NULL},
};

static const char *const maps[] = {"meta-llama", NULL};

const struct tu_layout tui_layout_meta = {
    .name = "meta",
    .help = "Meta's Llama folder: consolidated.NN.pth and params.json",
    .key = keys,
    .maps = maps,
    .detect = meta_detect,
    .open = meta_open,
    .plan = meta_plan,
    .side_folder = "hf",
    .extra = meta_extra,
};
