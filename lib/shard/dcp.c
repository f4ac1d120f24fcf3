/* SPDX-License-Identifier: Apache-2.0 */
/* dcp.c: PyTorch's distributed checkpoints (FSDP2, DTensor, FSDP1's sharded states).
 *
 * Read: the chunks of the format dcp (their recorded offsets are the truth). Names are
 * MODEL.NAME and OPTIM.state.NAME.STATE, as torch's get_state_dict gives them; the
 * optimizer's own names tell where the model's begin. Source: pytorch
 * torch/distributed/checkpoint/state_dict.py. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp.h"
#include "single.h"
#include "trust.h"

#define STATE ".state."

struct reader {
    struct tu_ckpt *c;
    const struct tu_source *s;
    char model[128], optim[128]; /* prefixes, with their dot; "" for none */
    bool states;
    json_t *objects;
};

/* OPTIM.state.NAME.STATE taken apart; *state NULL for other names. */
static int take_state(const struct reader *r, const char *name, struct tu_arena *a,
                      const char **base, const char **state, struct tu_err *err)
{
    size_t n = strlen(r->optim);
    const char *dot = strrchr(name, '.');
    *state = NULL;
    if (!r->states || strncmp(name, r->optim, n) || strncmp(name + n, STATE + 1, 6) ||
        dot <= name + n + 6)
        return 0;
    if (!(*base = tu_arena_text(a, name + n + 6, (size_t)(dot - name - n) - 6, err)))
        return TU_ENOMEM;
    *state = dot + 1;
    return 0;
}

/* The prefix of the optimizer's states, from the first that has one. */
static void find_optim(struct reader *r, const char *want)
{
    if (want) {
        snprintf(r->optim, sizeof r->optim, "%s%s", want, *want ? "." : "");
        r->states = true;
        return;
    }
    for (size_t i = 0; i < r->s->n && !r->states; i++) {
        const char *name = r->s->tensor[i].name, *at = strstr(name, STATE);
        size_t n = strlen(name);
        bool first = !strncmp(name, STATE + 1, 6);
        if ((!at && !first) || n < 8 || strcmp(name + n - 8, ".exp_avg"))
            continue;
        r->states = true;
        snprintf(r->optim, sizeof r->optim, "%.*s", first ? 0 : (int)(at - name) + 1,
                 name);
    }
}

static bool has_tensor(const struct reader *r, const char *name)
{
    return tu_source_find((struct tu_source *)(uintptr_t)r->s, name) != SIZE_MAX;
}

/* Do all names begin "model.", and some "model.model."? The first is a prefix then: a
 * Hugging Face model below the key "model". */
static bool is_below_model(const struct reader *r)
{
    bool all = r->s->n > 0, twice = false;
    for (size_t i = 0; i < r->s->n && all; i++) {
        all = !strncmp(r->s->tensor[i].name, "model.", 6);
        twice |= !strncmp(r->s->tensor[i].name, "model.model.", 12);
    }
    return all && twice;
}

/* What a manifest's names lack: true where there is one and a tensor's name, cut behind a dot,
 * stands in it. */
static int find_by_list(struct reader *r, bool *found, struct tu_err *err)
{
    int rc = tui_listed_is_there(r->c, found, err);
    bool lacks = true;
    for (size_t i = 0; i < r->s->n && *found && lacks && !rc; i++) {
        const char *name = r->s->tensor[i].name, *base = name;
        while (base && !(rc = tui_listed_lacks(r->c, base, &lacks, err)) && lacks)
            base = (base = strchr(base, '.')) ? base + 1 : NULL;
        if (!rc && !lacks && (size_t)(base - name) < sizeof r->model)
            snprintf(r->model, sizeof r->model, "%.*s", (int)(base - name), name);
    }
    *found = *found && !lacks;
    return rc;
}

/* What stands before the model's names: what the manifest, or else the optimizer, leaves out of
 * them; without either nothing but a doubled "model.", as "model." may be part of the names. */
static int find_model(struct reader *r, const char *want, struct tu_err *err)
{
    bool found = false;
    if (want) {
        snprintf(r->model, sizeof r->model, "%s%s", want, *want ? "." : "");
        return 0;
    }
    int rc = find_by_list(r, &found, err);
    if (rc || found)
        return rc;
    for (size_t i = 0; i < r->s->n; i++) {
        const char *base, *state;
        rc = take_state(r, r->s->tensor[i].name, r->c->arena, &base, &state, err);
        if (rc)
            return rc;
        if (!state || has_tensor(r, base))
            continue;
        for (size_t k = 0; k < r->s->n; k++) {
            const char *name = r->s->tensor[k].name;
            size_t n = strlen(name), m = strlen(base);
            if (n > m && n - m < sizeof r->model && !strcmp(name + n - m, base) &&
                name[n - m - 1] == '.' && strncmp(name, r->optim, strlen(r->optim))) {
                memcpy(r->model, name, n - m);
                r->model[n - m] = 0;
                return 0;
            }
        }
    }
    if (is_below_model(r))
        memcpy(r->model, "model.", 7);
    return 0;
}

static int add_step(struct reader *r, size_t i, struct tu_err *err)
{
    const struct tu_tensor *t = &r->s->tensor[i];
    char raw[16];
    double step;
    int rc =
        t->bytes > 8 ? tu_fail(err, TU_EFORMAT, "'%.100s' is no scalar", t->name) : 0;
    if (!rc)
        rc = tui_read_sound(r->c, 0, i, 0, raw, (size_t)t->bytes, err);
    if (!rc)
        rc = tu_cast(TU_F64, &step, t->dtype, raw, 1, err);
    return rc ? rc : tui_set_step(r->c, step, t->name, err);
}

static int add_tensor(struct reader *r, size_t i, struct tu_err *err)
{
    struct tu_ckpt *c = r->c;
    const struct tu_tensor *t = &r->s->tensor[i];
    struct tu_piece p = {.index = (uint32_t)i, .tensor = *t};
    const char *base = t->name, *state = NULL;
    struct tu_named named;
    bool yes = false;
    int rc = take_state(r, t->name, c->arena, &base, &state, err);
    if (rc)
        return rc;
    if (state) {
        if (!strcmp(state, "step"))
            return add_step(r, i, err);
    } else if (r->states && !strncmp(t->name, r->optim, strlen(r->optim))) {
        c->dropped++;
        return 0;
    } else if (strncmp(base, r->model, strlen(r->model))) {
        c->dropped++; /* beside the model: counters of the training script */
        return 0;
    } else {
        base += strlen(r->model);
    }
    rc = tui_region_to_piece(c, t, &p, err);
    if (!rc && c->canonical)
        rc = tu_map_match(c->canonical, base, 0, 0, &named, &yes, err);
    if (!rc && yes && named.transform & TU_MAP_DROP) {
        c->dropped++;
        return 0;
    }
    if (!rc)
        rc = yes ? tui_piece_fuse(c, &p, &named, state, t->dtype, err)
                 : tui_piece_plain(c, &p, base, state, t->dtype, err);
    return rc ? rc : tui_piece_add(c, &p, err);
}

/* param_groups are objects: OPTIM.param_groups.G.KEY, or with a parameter's name in place
 * of G, and then KEY says nothing of order. */
static int describe(struct reader *r, struct tu_err *err)
{
    json_t *optim = json_object(), *groups = json_array(), *value;
    char prefix[160];
    const char *key;
    int n = snprintf(prefix, sizeof prefix, "%sparam_groups.", r->optim);
    int rc = optim && groups && !json_object_set_new(optim, "groups", groups)
                 ? 0
                 : tu_fail(err, TU_ENOMEM, "out of memory");
    json_object_foreach(r->objects, key, value)
    {
        char *end;
        if (rc || strncmp(key, prefix, (size_t)n))
            continue;
        unsigned long g = strtoul(key + n, &end, 10);
        if (end == key + n || *end != '.' || g > 1000)
            continue;
        bool all = true;
        while (all && json_array_size(groups) <= g)
            all = !json_array_append_new(groups, json_object());
        json_t *plain = json_object_get(value, "tuple"); /* as META "torch" says it */
        if (json_object_set(json_array_get(groups, g), end + 1, plain ? plain : value))
            rc = tu_fail(err, TU_ENOMEM, "out of memory");
    }
    if (!rc && !json_array_size(groups))
        json_object_del(optim, "groups");
    if (!rc && r->states)
        rc = tui_set_optim(r->c, optim, err);
    json_decref(optim);
    return rc;
}

static int read_objects(struct reader *r, struct tu_err *err)
{
    json_t *root = NULL;
    int rc = 0;
    for (size_t i = 0; i < r->s->metas && !rc; i++)
        if (!strcmp(r->s->meta[i].topic, "dcp"))
            rc = tu_json_parse(&root, r->s->meta[i].json, r->s->meta[i].n, NULL, err);
    r->objects = json_incref(json_object_get(root, "objects"));
    json_decref(root);
    return rc;
}

/* The weights' names suit the family. */
static int fit_weights(struct reader *r, const struct tu_shard_opts *o, struct tu_err *err)
{
    size_t cut = strlen(r->model);
    const char **name = tu_calloc(r->s->n + 1, sizeof *name, err), *base, *state;
    int rc = name ? 0 : TU_ENOMEM;
    for (size_t i = 0; i < r->s->n && !rc; i++) {
        const char *own = r->s->tensor[i].name;
        rc = take_state(r, own, r->c->arena, &base, &state, err);
        if (!rc && !state && !strncmp(own, r->model, cut) &&
            !(r->states && !strncmp(own, r->optim, strlen(r->optim))))
            name[i] = own + cut;
    }
    if (!rc)
        rc = tui_fit_family(r->c, name, r->s->n, o, err);
    tu_free(name);
    return rc;
}

static int dcp_open(struct tu_ckpt *c, const struct tu_spec *spec,
                    const struct tu_shard_opts *o, const struct tu_job *job,
                    struct tu_err *err)
{
    struct reader r = {.c = c};
    char *metadata = tui_join(c->arena, c->root, ".metadata", err);
    if (!metadata)
        return TU_ENOMEM;
    if (!tui_is_file(metadata))
        return tu_fail(err, TU_EINCOMPLETE,
                       "%.200s: no .metadata: the save did not come to its end", c->root);
    int rc = tui_add_one(c, c->root, "", tu_format_find("dcp"), o, job, err);
    if (rc)
        return rc;
    r.s = c->file[0].source;
    find_optim(&r, tu_spec_get(spec, "optim"));
    rc = find_model(&r, tu_spec_get(spec, "model"), err);
    if (!rc)
        rc = tui_sides_from(c, c->root, err);
    if (!rc)
        rc = tui_know_model(c, o, err);
    if (!rc)
        rc = fit_weights(&r, o, err);
    for (size_t i = 0; i < r.s->n && !rc; i++)
        rc = add_tensor(&r, i, err);
    if (!rc)
        rc = read_objects(&r, err);
    if (!rc)
        rc = describe(&r, err);
    json_decref(r.objects);
    return rc;
}

static int dcp_detect(const char *path)
{
    char full[4096];
    if (!tui_is_dir(path))
        return 0;
    snprintf(full, sizeof full, "%s/.metadata", path);
    return tui_is_file(full) ? 80 : 0;
}

static const struct tu_layout_key keys[] = {
    {"model",
     "what stands before the model's names (default: what the optimizer leaves out; "
     "to write: model)"},
    {"optim", "what stands before the optimizer's names (to write: optim)"},
    {"ranks",
     "to write: files, every tensor cut on its first dimension as Shard(0) does"},
    {NULL, NULL},
};

const struct tu_layout tui_layout_dcp = {
    .name = "dcp",
    .help = "PyTorch distributed checkpoint (FSDP, DTensor): .metadata and .distcp files",
    .key = keys,
    .detect = dcp_detect,
    .open = dcp_open,
    .plan = tui_dcp_plan,
    .side_folder = "",
    .extra = tui_dcp_extra,
};
