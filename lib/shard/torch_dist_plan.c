/* SPDX-License-Identifier: Apache-2.0 */
/* torch_dist_plan.c: Megatron-core's distributed checkpoints, written: keys, chunks,
 * objects, common.pt, metadata.json and the tracker.
 *
 * A chunk is one layer and expert of an entry, whole, at its place in the stack; loaders
 * cut it for any mesh. Every linear layer of Megatron has an object `_extra_state` too,
 * None where there is no FP8, and loading fails without. Source: Megatron-LM
 * megatron/core/dist_checkpointing, transformer/transformer_block.py, moe/experts.py,
 * optimizer/distrib_optimizer.py (fully_reshardable), optimizer/optimizer.py. */

#include <stdio.h>
#include <string.h>

#include "dcp.h"
#include "torch_dist.h"

#define METADATA                                                                         \
    "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, "             \
    "\"common_backend\": \"torch\", \"common_backend_version\": 1}"

/* How entries become keys; begins with what tui_plan_pieces asks. */
struct dist {
    struct tui_target_rule rule;
    uint32_t ranks;
    bool apart;         /* a key for each layer, not a stack of layers */
    bool local;         /* names of the local layer specification */
    const char *master; /* what fp32 is called */
};

static int key_of(const struct tu_ckpt *c, const struct dist *d,
                  const struct tui_entry *e, struct tu_buf *out, struct tu_err *err)
{
    static const char norm[] = "pre_mlp_layernorm.", experts[] = ".mlp.experts.";
    const char *name = e->name, *at, *state = e->lead->state;
    size_t n = strlen(name);
    int rc = state ? tu_buf_printf(out, err, TUI_DIST_STATE "%s.",
                                   strcmp(state, "fp32") ? state : d->master)
                   : 0;
    if (!rc && e->lead->layer >= 0 && !d->apart) {
        rc = tu_buf_text(out, TUI_DIST_LAYERS, err);
        name = strchr(name + strlen(TUI_DIST_LAYERS), '.') + 1;
        n = strlen(name);
    }
    while (e->lead->expert >= 0 && n && name[n - 1] >= '0' && name[n - 1] <= '9')
        n--;
    if (!rc && e->lead->expert >= 0 && (at = strstr(e->name, experts))) {
        at += strlen(experts);
        rc = tu_buf_printf(out, err, "%.*sexperts.%.*s", (int)(at - name), name,
                           (int)(name + n - at), at);
    } else if (!rc && d->local && c->model.experts && (at = strstr(name, norm))) {
        rc = tu_buf_printf(out, err, "%.*smlp.linear_fc1.layer_norm_%s", (int)(at - name),
                           name, at + strlen(norm));
    } else if (!rc) {
        rc = tu_buf_printf(out, err, "%.*s", (int)n, name);
    }
    return rc;
}

/* Layers in order over the files. */
static uint32_t file_of(const struct tu_ckpt *c, const struct dist *d,
                        const struct tu_role *r)
{
    if (r->layer >= 0)
        return (uint32_t)((uint64_t)r->layer * d->ranks / c->model.layers);
    return tui_role_is_front(r->base) ? 0 : d->ranks - 1;
}

static int place(struct tu_ckpt *c, const struct tui_target_rule *rule,
                 const struct tui_entry *e, struct tu_err *err)
{
    const struct dist *d = (const struct dist *)rule;
    uint64_t whole[4], at[4] = {0}, dim[4];
    uint32_t f = file_of(c, d, e->lead);
    struct tu_buf key = {0};
    unsigned n = 0, stacked;
    if (e->lead->layer >= 0 && !d->apart) {
        whole[n] = c->model.layers;
        at[n] = (uint64_t)e->lead->layer;
        dim[n++] = 1;
    }
    if (e->lead->expert >= 0) {
        whole[n] = c->model.experts;
        at[n] = (uint64_t)e->lead->expert;
        dim[n++] = 1;
    }
    stacked = n;
    for (unsigned i = 0; i < e->lead->rank && i < 2; i++)
        whole[n] = dim[n] = e->dim[i], n++;
    int rc = key_of(c, d, e, &key, err);
    if (!rc)
        rc = tui_add_target_stacked(c, f, key.data, e->fuse, stacked, dim, err);
    if (!rc && stacked)
        rc = tui_shard_meta(c, &c->file[f].list[c->piece[c->pieces - 1].index], at, whole,
                            err);
    tu_buf_release(&key);
    return rc;
}

/* The objects ---------------------------------------------------------------------------
 */

struct objects {
    struct tu_ckpt *c;
    struct tu_pnode *list, *names;
    bool apart;
};

/* KEY._extra_state/shard_OFFSET_SHAPE of one module in one layer, of a prefix of its own
 * where layers are apart; expert -1: not one. */
static int add_extra(struct objects *o, const char *prefix, uint64_t layer, int64_t expert,
                     const char *module, struct tu_err *err)
{
    struct tu_arena *a = o->c->arena;
    unsigned long long l = layer, n = o->c->model.layers, e = (unsigned long long)expert,
                       m = o->c->model.experts;
    struct tu_pnode *one = tu_pnode_new(a, TU_P_LIST, 0, err);
    char key[160], where[64];
    if (o->apart && expert < 0)
        snprintf(where, sizeof where, "0_1");
    else if (o->apart)
        snprintf(where, sizeof where, "%llu_%llu", e, m);
    else if (expert < 0)
        snprintf(where, sizeof where, "%llu_%llu", l, n);
    else
        snprintf(where, sizeof where, "%llu.%llu_%llu.%llu", l, e, n, m);
    if (o->apart)
        snprintf(key, sizeof key, "%s%llu.%s._extra_state/shard_%s", prefix, l, module,
                 where);
    else
        snprintf(key, sizeof key, TUI_DIST_LAYERS "%s._extra_state/shard_%s", module,
                 where);
    int rc = one ? tu_pnode_add(a, one, NULL, tu_pnode_new(a, TU_P_NONE, 0, err), err)
                 : TU_ENOMEM;
    if (!rc)
        rc = tu_pnode_add(a, o->list, NULL, one, err);
    return rc ? rc : tu_pnode_add(a, o->names, NULL, tu_pnode_text(a, key, err), err);
}

static int add_extras(struct objects *o, const char *prefix, uint64_t l, int64_t expert,
                      const char *below, const char *const *module, struct tu_err *err)
{
    int rc = 0;
    for (; *module && !rc; module++) {
        char path[96];
        snprintf(path, sizeof path, "%s%s", below, *module);
        rc = add_extra(o, prefix, l, expert, path, err);
    }
    return rc;
}

/* The linear layers of one layer's attention and MLP. */
static int add_layer(struct objects *o, const char *prefix, uint64_t l, const char *below,
                     bool moe, struct tu_err *err)
{
    static const char *const full[] = {"self_attention.linear_qkv", NULL},
                             *const q_whole[] = {"self_attention.linear_q_proj", NULL},
                             *const q_rank[] = {"self_attention.linear_q_down_proj",
                                                "self_attention.linear_q_up_proj", NULL},
                             *const latent[] = {"self_attention.linear_kv_down_proj",
                                                "self_attention.linear_kv_up_proj", NULL},
                             *const every[] = {"self_attention.linear_proj",
                                               "self_attention.core_attention", NULL},
                             *const dense[] = {"mlp.linear_fc1", "mlp.linear_fc2", NULL},
                             *const shared[] = {"mlp.shared_experts.linear_fc1",
                                                "mlp.shared_experts.linear_fc2", NULL},
                             *const expert[] = {"mlp.experts.experts.linear_fc1",
                                                "mlp.experts.experts.linear_fc2", NULL};
    const struct tu_model *m = &o->c->model;
    const char *const *q = !m->kv_rank ? full : m->q_rank ? q_rank : q_whole;
    int rc = add_extras(o, prefix, l, -1, below, q, err);
    if (!rc && m->kv_rank)
        rc = add_extras(o, prefix, l, -1, below, latent, err);
    if (!rc)
        rc = add_extras(o, prefix, l, -1, below, every, err);
    if (!rc && (!moe || m->shared_ffn))
        rc = add_extras(o, prefix, l, -1, below, moe ? shared : dense, err);
    for (uint64_t e = 0; e < m->experts && moe && !rc; e++)
        rc = add_extras(o, prefix, l, (int64_t)e, below, expert, err);
    return rc;
}

static int add_objects(struct tu_ckpt *c, const struct dist *d, struct tu_err *err)
{
    struct objects o = {c, tu_pnode_new(c->arena, TU_P_LIST, 0, err),
                        tu_pnode_new(c->arena, TU_P_LIST, 0, err), d->apart};
    const struct tu_model *m = &c->model;
    int rc = o.list && o.names ? 0 : TU_ENOMEM;
    for (uint64_t l = 0; l < m->layers && !rc; l++)
        rc = add_layer(&o, TUI_DIST_LAYERS, l, "", m->experts && l >= m->dense_layers, err);
    for (uint64_t l = 0; l < m->mtp_layers && tui_has_mtp(c) && !rc; l++) {
        rc = add_extra(&o, "mtp.layers.", l, -1, "eh_proj", err);
        if (!rc)
            rc = add_layer(&o, "mtp.layers.", l, "transformer_layer.", m->experts > 0, err);
    }
    c->file[0].save.object = o.list;
    c->object_names = o.names;
    return rc;
}

/* common.pt -----------------------------------------------------------------------------
 */

static bool has_states(const struct tu_ckpt *c)
{
    for (size_t i = 0; i < c->pieces; i++)
        if (c->role[c->piece[i].fuse.role[0]].state)
            return true;
    return false;
}

/* Settings of the groups as Megatron's optimizers keep them, with the number of steps. */
static int groups_of(struct tu_ckpt *c, const json_t *optim, json_t **out,
                     struct tu_err *err)
{
    const json_t *own = json_object_get(optim, "megatron");
    json_t *groups = json_array();
    double step = 0;
    size_t i;
    json_t *group;
    if (own) {
        json_decref(groups);
        return tu_json_copy(out, own, err);
    }
    int rc = tui_get_step(c->from, &step, err);
    bool all = true;
    json_array_foreach(json_object_get(optim, "groups"), i, group)
    {
        json_t *one = NULL;
        rc = rc ? rc : tu_json_copy(&one, group, err);
        json_object_del(one, "params");
        all &= !json_array_append_new(groups, one);
    }
    if (all && !json_array_size(groups))
        all = !json_array_append_new(groups, json_object());
    json_array_foreach(groups, i, group)
    {
        if (step > 0) /* else the source does not know */
            all &= !json_object_set_new(group, "step", json_integer((json_int_t)step));
    }
    *out = json_pack("{s{so}ss}", "optimizer", "param_groups", groups,
                     "param_state_sharding_type", "fully_reshardable");
    return rc ? rc : all && *out ? 0 : tu_fail(err, TU_ENOMEM, "out of memory");
}

static int add_common(struct tu_ckpt *c, const char *folder, const json_t *optim,
                      uint32_t pad, struct tu_err *err)
{
    struct tu_arena *a = c->arena;
    struct tu_pnode *root = tu_pnode_new(a, TU_P_DICT, 0, err), *args = NULL;
    char path[64];
    uint32_t f;
    json_t *groups = NULL;
    snprintf(path, sizeof path, "%s/common.pt", folder);
    int rc = root ? tui_add_target(c, path, tu_format_find("torch"), (struct tu_coord){0},
                                   &f, err)
                  : TU_ENOMEM;
    if (!rc)
        rc = tui_args_make(c, c->args, pad, &args, err);
    if (!rc)
        rc = tu_pnode_set(a, root, "args", args, err);
    if (!rc)
        rc = tu_pnode_set(a, root, "checkpoint_version", tu_pnode_real(a, 3, err), err);
    if (!rc)
        rc = tu_pnode_set(a, root, "iteration",
                          tu_pnode_int(a, c->iteration < 0 ? 0 : c->iteration, err), err);
    if (!rc && has_states(c)) {
        rc = groups_of(c, optim, &groups, err);
        if (!rc)
            rc = tu_pnode_set(a, root, "optimizer", tui_pnode_of(a, groups, err), err);
        json_decref(groups);
    }
    if (!rc) {
        c->file[f].save.object = root;
        c->file[f].save.folder_name = "common";
    }
    return rc;
}

/* Is the source's own optimizer one that keeps its master copies as fp32_param? */
static const char *master_name(const json_t *optim, const char *want)
{
    const json_t *own = json_object_get(optim, "megatron");
    bool plain = own && !json_object_get(own, "param_state_sharding_type");
    return (want ? !strcmp(want, "float16") : plain) ? "fp32_param" : "param";
}

static int one_of(const struct tu_spec *spec, const char *key, const char *a,
                  const char *b, struct tu_err *err)
{
    const char *v = tu_spec_get(spec, key);
    return !v || !strcmp(v, a) || !strcmp(v, b)
               ? 0
               : tu_fail(err, TU_EUSAGE, "%s= is %s or %s", key, a, b);
}

static bool is(const struct tu_spec *spec, const char *key, const char *value)
{
    const char *v = tu_spec_get(spec, key);
    return v && !strcmp(v, value);
}

static int read_spec(struct dist *d, const struct tu_spec *spec, const json_t *optim,
                     struct tu_err *err)
{
    uint64_t ranks, pad;
    int rc = tu_spec_u64(spec, "ranks", 1, &ranks, err);
    if (!rc)
        rc = tu_spec_u64(spec, "pad", 128, &pad, err);
    if (!rc && (!ranks || ranks > 65536 || !pad || pad > 1 << 20))
        rc = tu_fail(err, TU_EUSAGE, "ranks= is from 1 to 65536, pad= from 1 to 1048576");
    if (!rc)
        rc = one_of(spec, "spec", "te", "local", err);
    if (!rc)
        rc = one_of(spec, "keys", "stacked", "apart", err);
    if (!rc)
        rc = one_of(spec, "optim", "distrib", "float16", err);
    if (rc)
        return rc;
    d->ranks = (uint32_t)ranks;
    d->rule.pad = (uint32_t)pad;
    d->local = is(spec, "spec", "local");
    d->apart = is(spec, "keys", "apart");
    d->master = master_name(optim, tu_spec_get(spec, "optim"));
    return 0;
}

static int add_files(struct tu_ckpt *c, const char *folder, uint32_t ranks,
                     struct tu_err *err)
{
    int rc = 0;
    for (uint32_t r = 0; r < ranks && !rc; r++) {
        char path[64];
        uint32_t number;
        snprintf(path, sizeof path, "%s/__%u_0.distcp", folder, r);
        rc = tui_add_target(c, path, &tu_format_distcp, (struct tu_coord){0}, &number,
                            err);
    }
    return rc;
}

int tui_torch_dist_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                        const struct tu_shard_opts *o, struct tu_err *err)
{
    struct dist d = {.rule = {.states = true, .place = place}};
    json_t *optim = NULL;
    char folder[32];
    int rc = tui_need_family(c, err);
    if (!rc)
        rc = tui_megatron_iteration(c, spec, err);
    if (!rc)
        rc = tui_get_optim(c, &optim, err);
    if (!rc)
        rc = read_spec(&d, spec, optim, err);
    if (!rc && d.local && c->model.kv_rank)
        rc = tu_fail(err, TU_EUSAGE,
                     "spec=local: Megatron-core builds latent attention with te alone");
    /* Layers that are not all alike have no stack. */
    d.apart = d.apart || c->model.dense_layers || tui_has_mtp(c);
    tui_megatron_iteration_folder(c, folder);
    if (!rc)
        rc = add_files(c, folder, d.ranks, err);
    if (!rc)
        rc = tui_target_map(c, "mcore-te", o, err);
    if (!rc)
        rc = tui_ensure_config(c, err);
    if (!rc)
        rc = tui_plan_stages(c, NULL, err);
    if (!rc)
        rc = tui_plan_pieces(c, &d.rule, NULL, err);
    if (!rc)
        rc = add_objects(c, &d, err);
    if (!rc)
        rc = add_common(c, folder, optim, d.rule.pad, err);
    json_decref(optim);
    return rc;
}

int tui_torch_dist_extra(const struct tu_ckpt *c, const char *folder,
                         const struct tu_job *job, struct tu_err *err)
{
    char iteration[32], path[4096];
    tui_megatron_iteration_folder(c, iteration);
    if (snprintf(path, sizeof path, "%s/%s/metadata.json", folder, iteration) >=
        (int)sizeof path)
        return tu_fail(err, TU_EIO, "%.200s: path too long", folder);
    char *name = strrchr(path, '/');
    *name = 0;
    int rc = tui_dcp_metadata(c, path, false, job, err);
    *name = '/';
    if (!rc)
        rc = tu_file_write(path, METADATA, strlen(METADATA), true, job, err);
    return rc ? rc : tui_megatron_extra(c, folder, job, err);
}
