/* SPDX-License-Identifier: Apache-2.0 */
/* torch_dist.c: Megatron-core's distributed checkpoints: a PyTorch distributed
 * checkpoint with Megatron's names and shapes of the whole model.
 *
 * Layers that are alike are one tensor with the layers as its first dimension, experts
 * the next; such a chunk is a piece for each of them, a run of the chunk. States of the
 * optimizer are optimizer.state.STATE.NAME in the shapes of the model. Source:
 * Megatron-LM megatron/core/dist_checkpointing and megatron/core/optimizer. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deepspeed.h"
#include "single.h"
#include "torch_dist.h"

#define LAYERS TUI_DIST_LAYERS
#define EXPERTS ".experts.experts."
#define OPTIMIZER TUI_DIST_STATE
#define BUCKETS "optimizer.distributed."

/* A key taken apart. */
struct key {
    const char *state; /* NULL: a weight */
    const char *name;  /* without the optimizer's part */
    bool layers, experts;
};

static const char *state_named(const char *megatron)
{
    static const char *const alias[][2] = {{"param", "fp32"}, {"fp32_param", "fp32"}};
    for (size_t i = 0; i < 2; i++)
        if (!strcmp(megatron, alias[i][0]))
            return alias[i][1];
    return megatron;
}

static int key_of(struct tu_ckpt *c, const char *text, struct key *out,
                  struct tu_err *err)
{
    size_t n = strlen(OPTIMIZER);
    *out = (struct key){.name = text};
    if (!strncmp(text, OPTIMIZER, n)) {
        const char *dot = strchr(text + n, '.');
        if (!dot)
            return tu_fail(err, TU_EUNSUP, "'%.100s' is no state of a parameter", text);
        const char *state = tu_arena_text(c->arena, text + n, (size_t)(dot - text) - n, err);
        if (!state)
            return TU_ENOMEM;
        out->state = state_named(state);
        out->name = dot + 1;
    }
    const char *rest = out->name + strlen(LAYERS);
    out->layers =
        !strncmp(out->name, LAYERS, strlen(LAYERS)) && (*rest < '0' || *rest > '9');
    out->experts = strstr(out->name, EXPERTS) != NULL;
    return 0;
}

/* The name of one layer and expert as the classic files have it. */
static int name_one(struct tu_buf *out, const struct key *k, uint64_t layer,
                    uint64_t expert, struct tu_err *err)
{
    const char *rest = k->name, *at = k->experts ? strstr(rest, EXPERTS) : NULL;
    int rc = 0;
    tu_buf_reset(out);
    if (k->layers) {
        rc = tu_buf_printf(out, err, LAYERS "%llu.", (unsigned long long)layer);
        rest += strlen(LAYERS);
    }
    if (!rc && at)
        rc = tu_buf_printf(out, err, "%.*s.experts.local_experts.%llu.", (int)(at - rest),
                           rest, (unsigned long long)expert);
    return rc ? rc : tu_buf_text(out, at ? at + strlen(EXPERTS) : rest, err);
}

static const char *const maps[] = {"mcore-te", "mcore-local", NULL};

/* The map of Megatron's names that takes most of them. */
static int choose_map(struct tu_ckpt *c, const struct tu_shard_opts *o,
                      struct tu_err *err)
{
    const struct tu_source *s = c->file[0].source;
    struct tu_buf name = {0};
    size_t most = 0;
    int rc = 0;
    for (const char *const *m = maps; *m && !rc; m++) {
        struct tu_map *map = NULL;
        size_t count = 0;
        rc = tui_load_map(&map, *m, &c->model, o, err);
        for (size_t i = 0; i < s->n && !rc; i++) {
            struct tu_named named;
            struct key k;
            bool yes = false;
            if (key_of(c, s->tensor[i].name, &k, NULL))
                continue;
            rc = name_one(&name, &k, 0, 0, err);
            if (!rc)
                rc = tu_map_match(map, name.data, 0, 0, &named, &yes, err);
            count += yes;
        }
        if (!rc && count > most) {
            most = count;
            tu_map_free(c->map);
            c->map = map;
        } else {
            tu_map_free(map);
        }
    }
    tu_buf_release(&name);
    return rc || c->map
               ? rc
               : tu_fail(err, TU_EINCOMPLETE, "%.200s: no weights of Megatron", c->root);
}

/* One layer and expert of a chunk: `whole` without the stacked dimensions, the run of the
 * chunk that is theirs. */
static int add_one(struct tu_ckpt *c, const struct tu_piece *chunk, const struct key *k,
                   unsigned stacked, uint64_t layer, uint64_t expert, uint64_t at,
                   struct tu_buf *name, struct tu_err *err)
{
    struct tu_piece p = *chunk;
    struct tu_named named;
    bool yes = false;
    uint64_t n = 1;
    int rc = name_one(name, k, layer, expert, err);
    for (unsigned i = stacked; i < p.tensor.rank; i++)
        n *= p.tensor.dim[i];
    p.tensor.dim += stacked;
    p.tensor.rank -= stacked;
    if (!rc && !(p.tensor.name = tu_arena_text(c->arena, name->data, name->n, err)))
        rc = TU_ENOMEM;
    if (!rc && p.box) {
        p.whole += stacked;
        p.box =
            tui_slab(c, chunk->box->at + stacked, p.tensor.dim, NULL, p.tensor.rank, err);
        rc = p.box ? 0 : TU_ENOMEM;
    }
    if (stacked)
        p.flat = (struct tu_flat){true, 0, n, at * n};
    if (!rc)
        rc = tu_map_match(c->map, name->data, 0, 0, &named, &yes, err);
    if (!rc && !yes)
        rc = tu_fail(err, TU_EINCOMPLETE, "map %s has no line for '%.100s'",
                     tu_map_name(c->map), name->data);
    if (!rc && named.transform & TU_MAP_DROP) {
        c->dropped++;
        return 0;
    }
    if (!rc)
        rc = tui_piece_fuse(c, &p, &named, k->state, p.tensor.dtype, err);
    return rc ? rc : tui_piece_add(c, &p, err);
}

static int add_chunk(struct tu_ckpt *c, uint32_t index, struct tu_buf *name,
                     struct tu_err *err)
{
    const struct tu_tensor *t = &c->file[0].source->tensor[index];
    struct tu_piece chunk = {.index = index, .tensor = *t};
    struct key k;
    int rc = key_of(c, t->name, &k, err);
    if (rc == TU_EUNSUP || !strncmp(t->name, BUCKETS, strlen(BUCKETS))) {
        c->dropped++; /* counters of the optimizer; buckets that were let pass */
        return 0;
    }
    if (!rc)
        rc = tui_region_to_piece(c, t, &chunk, err);
    unsigned stacked = (unsigned)k.layers + (unsigned)k.experts;
    if (!rc && t->rank < stacked)
        rc = tu_fail(err, TU_EFORMAT, "'%.100s' has rank %u", t->name, t->rank);
    if (rc)
        return rc;
    if (!chunk.box && stacked) { /* all of it: the same as a box at 0 */
        uint64_t none[TU_RANK_MAX] = {0};
        chunk.whole = t->dim;
        chunk.box = tui_slab(c, none, t->dim, NULL, t->rank, err);
        chunk.boxes = 1;
        if (!chunk.box)
            return TU_ENOMEM;
    }
    uint64_t layers = k.layers ? t->dim[0] : 1,
             experts = k.experts ? t->dim[stacked - 1] : 1;
    uint64_t first = k.layers ? chunk.box->at[0] : 0,
             expert = k.experts ? chunk.box->at[stacked - 1] : 0;
    for (uint64_t l = 0; l < layers && !rc; l++)
        for (uint64_t e = 0; e < experts && !rc; e++)
            rc = add_one(c, &chunk, &k, stacked, first + l, expert + e, l * experts + e,
                         name, err);
    return rc;
}

/* The first "step" of the optimizer's groups. */
static const struct tu_pnode *step_of(const struct tu_pnode *optimizer)
{
    const struct tu_pnode *groups =
        tu_pnode_get(tu_pnode_get(optimizer, "optimizer"), "param_groups");
    for (size_t i = 0; groups && groups->kind == TU_P_LIST && i < groups->n; i++) {
        const struct tu_pnode *step = tu_pnode_get(groups->item[i], "step");
        if (step && step->kind == TU_P_INT)
            return step;
    }
    return NULL;
}

/* What common.pt says of the optimizer travels as META optim "megatron". */
static int read_optimizer(struct tu_ckpt *c, const char *path,
                          const struct tu_pnode *optimizer, struct tu_err *err)
{
    const struct tu_pnode *step = step_of(optimizer);
    json_t *optim = json_object(), *own = NULL;
    int rc = optim ? tui_json_of(&own, optimizer, err)
                   : tu_fail(err, TU_ENOMEM, "out of memory");
    if (rc && tu_err_status(rc) == 3)
        tu_err_prefix(err, "%s", path);
    if (!rc && own && json_object_set(optim, "megatron", own))
        rc = tu_fail(err, TU_ENOMEM, "out of memory");
    if (!rc && own)
        rc = tui_set_optim(c, optim, err);
    if (!rc && step)
        rc = tui_set_step(c, (double)step->integer, "common.pt", err);
    json_decref(own);
    json_decref(optim);
    return rc;
}

/* The arguments are in common.pt. */
static int read_common(struct tu_ckpt *c, const char *folder,
                       const struct tu_shard_opts *o, const struct tu_job *job,
                       struct tui_megatron *g, struct tu_err *err)
{
    struct tu_source *s = NULL;
    uint32_t number;
    char *path = tui_join(c->arena, folder, "common.pt", err);
    if (!path || !tui_is_file(path))
        return path ? 0 : TU_ENOMEM;
    int rc = tu_source_open(&s, path, tu_format_find("torch"), &o->open, job, err);
    if (!rc)
        rc = tui_add_source(c, path, s, (struct tu_coord){0}, &number, err);
    const struct tu_pnode *root = rc || !s->pickle ? NULL : tu_pickle_root(s->pickle);
    const struct tu_pnode *iteration = tu_pnode_get(root, "iteration");
    if (iteration && iteration->kind == TU_P_INT)
        c->iteration = iteration->integer;
    c->args = tu_pnode_get(root, "args");
    if (!rc && tu_pnode_get(root, "optimizer"))
        rc = read_optimizer(c, path, tu_pnode_get(root, "optimizer"), err);
    return rc ? rc : tui_args_read(c->args, g, &c->model, err);
}

static int check_backend(struct tu_ckpt *c, const char *folder, struct tu_err *err)
{
    char *path = tui_join(c->arena, folder, "metadata.json", err), *text = NULL;
    size_t n;
    if (!path)
        return TU_ENOMEM;
    if (!tui_is_file(path))
        return tu_fail(
            err, TU_EINCOMPLETE,
            "%.200s: no metadata.json, which is written last: the save did not come "
            "to its end",
            folder);
    int rc = tu_file_read(path, 1 << 16, &text, &n, err);
    if (!rc && !strstr(text, "\"torch_dist\""))
        rc = tu_fail(err, TU_EUNSUP, "%.150s: not of the backend torch_dist: %.60s", path,
                     text);
    tu_free(text);
    return rc;
}

/* True sizes that the arguments do not tell. */
static int know_model(struct tu_ckpt *c, const struct tui_megatron *g,
                      const struct tu_shard_opts *o, struct tu_err *err)
{
    const struct tu_side *config = tui_side(c, "config.json");
    bool tied = c->model.tied;
    int rc = config ? tu_model_from_hf(&c->model, config->text, config->n, err) : 0;
    if (config && c->args)
        c->model.tied = tied;
    if (!c->model.vocab)
        c->model.vocab = o->vocab ? o->vocab : g->vocab ? g->vocab : g->padded_vocab;
    if (o->vocab)
        c->model.vocab = o->vocab;
    if (!rc && !c->model.layers)
        rc = tu_fail(
            err, TU_EINCOMPLETE,
            "%.150s: neither common.pt nor hf/config.json tells the sizes of the model",
            c->root);
    return rc ? rc : tui_set_canonical(c, o, err);
}

/* States in the buckets of the distributed optimizer are one flat vector of a mesh; which
 * parameter lies where only the training knows. */
static int refuse_buckets(const struct tu_ckpt *c, const struct tu_spec *spec,
                          const struct tu_shard_opts *o, struct tu_err *err)
{
    const char *states = tu_spec_get(spec, "states");
    const struct tu_source *s = c->file[0].source;
    bool no = o->weights_only || (states && !strcmp(states, "no"));
    if (states && strcmp(states, "no"))
        return tu_fail(err, TU_EUSAGE, "states= is no");
    for (size_t i = 0; i < s->n && !no; i++)
        if (!strncmp(s->tensor[i].name, BUCKETS, strlen(BUCKETS)))
            return tu_fail(
                err, TU_EUNSUP,
                "%.120s: '%.80s': states in the optimizer's buckets (dp_reshardable) do "
                "not say which parameter they are of: save with "
                "--dist-ckpt-optim-fully-reshardable, or read the weights alone "
                "(--from torch_dist:states=no, or prune)",
                c->root, s->tensor[i].name);
    return 0;
}

static int torch_dist_open(struct tu_ckpt *c, const struct tu_spec *spec,
                           const struct tu_shard_opts *o, const struct tu_job *job,
                           struct tu_err *err)
{
    struct tui_megatron g = {1, 1, 1, 1, 0, 0};
    struct tu_buf name = {0};
    char *folder = NULL;
    int rc = tui_megatron_folder(c, tu_spec_get(spec, "iteration"), &folder, err);
    if (!rc)
        rc = check_backend(c, folder, err);
    if (!rc)
        rc = tui_add_one(c, folder, "", tu_format_find("dcp"), o, job, err);
    if (!rc)
        rc = refuse_buckets(c, spec, o, err);
    if (!rc)
        rc = read_common(c, folder, o, job, &g, err);
    char *hf = rc ? NULL : tui_join(c->arena, c->root, "hf", err);
    if (!rc)
        rc = hf ? tui_sides_from(c, hf, err) : TU_ENOMEM;
    if (!rc)
        rc = know_model(c, &g, o, err);
    if (!rc)
        rc = choose_map(c, o, err);
    for (uint32_t i = 0; !rc && i < c->file[0].source->n; i++)
        rc = add_chunk(c, i, &name, err);
    tu_buf_release(&name);
    return rc;
}

static int torch_dist_detect(const char *path)
{
    char full[4096], *text = NULL;
    size_t n;
    snprintf(full, sizeof full, "%s/metadata.json", path);
    if (tui_is_file(full))
        return 90;
    snprintf(full, sizeof full, "%s/" TUI_TRACKER, path);
    if (!tui_is_file(full))
        return 0;
    int rc = tu_file_read(full, 64, &text, &n, NULL);
    if (rc)
        return rc == TU_EIO || rc == TU_ENOMEM ? rc : 0;
    if (strncmp(text, "release", 7))
        snprintf(full, sizeof full, "%s/iter_%07llu/metadata.json", path,
                 strtoull(text, NULL, 10));
    else
        snprintf(full, sizeof full, "%s/release/metadata.json", path);
    tu_free(text);
    return tui_is_file(full) ? 90 : 0;
}

static const struct tu_layout_key keys[] = {
    {"iteration", "iteration to read (default: what the tracker names), or to write"},
    {"states", "no: leave out states that are buckets of the distributed optimizer"},
    {"ranks", "to write: files, the layers shared out in order (default 1)"},
    {"pad", "to write: make_vocab_size_divisible_by, times the tensor ranks of the "
            "training (default 128)"},
    {"spec", "to write: names of the layer specification: te (default) or local"},
    {"keys", "to write: layers stacked in one tensor (default) or apart"},
    {"optim", "to write: states for distrib (the distributed optimizer, fully_reshardable) "
              "or float16 (Float16OptimizerWithFloat16Params)"},
    {NULL, NULL},
};

const struct tu_layout tui_layout_torch_dist = {
    .name = "torch_dist",
    .help = "Megatron-core distributed checkpoint: metadata.json, common.pt and .distcp "
            "files",
    .key = keys,
    .maps = maps,
    .detect = torch_dist_detect,
    .open = torch_dist_open,
    .plan = tui_torch_dist_plan,
    .side_folder = "hf",
    .extra = tui_torch_dist_extra,
};
