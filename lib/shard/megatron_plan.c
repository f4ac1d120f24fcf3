/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_plan.c: the classic Megatron-LM layout, written.
 *
 * One file for each (tensor, pipeline, expert) rank with args, checkpoint_version,
 * iteration and the weights as `model`, or model0 … with chunks; then the tracker. */

#include <stdio.h>
#include <string.h>

#include "megatron.h"

static uint32_t file_of(const struct tu_ckpt *c, struct tu_coord at)
{
    return (at.pp * c->ep + at.ep) * c->tp + at.tp;
}

static int mesh(struct tu_ckpt *c, const struct tu_spec *spec, uint32_t *pad,
                struct tu_err *err)
{
    uint32_t version;
    const struct {
        const char *key;
        uint32_t *to;
        uint64_t fallback, least, most;
    } k[] = {
        {"tp", &c->tp, 1, 1, 4096},     {"pp", &c->pp, 1, 1, 4096},
        {"vpp", &c->vpp, 1, 1, 4096},   {"ep", &c->ep, 1, 1, 4096},
        {"version", &version, 3, 0, 3}, {"pad", pad, 128, 1, 1 << 20},
    };
    for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
        uint64_t v;
        int rc = tu_spec_u64(spec, k[i].key, k[i].fallback, &v, err);
        if (!rc && (v < k[i].least || v > k[i].most))
            rc = tu_fail(err, TU_EUSAGE, "%s=%llu: expected %llu to %llu", k[i].key,
                         (unsigned long long)v, (unsigned long long)k[i].least,
                         (unsigned long long)k[i].most);
        if (rc)
            return rc;
        *k[i].to = (uint32_t)v;
    }
    c->version = (int)version;
    const struct tu_model *m = &c->model;
    if (version < 2 && m->kv_heads != m->heads)
        return tu_fail(
            err, TU_EUSAGE,
            "version=%u knows no query groups (the model has %llu for %llu heads)",
            version, (unsigned long long)m->kv_heads, (unsigned long long)m->heads);
    if (c->ep > 1 && (!m->experts || m->experts % c->ep))
        return tu_fail(err, TU_EUSAGE, "%llu experts do not divide by ep=%u",
                       (unsigned long long)m->experts, c->ep);
    if (c->vpp > 1 && c->pp < 2)
        return tu_fail(err, TU_EUSAGE, "vpp=%u needs pp of at least 2", c->vpp);
    return 0;
}

void tui_megatron_iteration_folder(const struct tu_ckpt *c, char out[32])
{
    if (c->iteration < 0)
        snprintf(out, 32, "release");
    else
        snprintf(out, 32, "iter_%07lld", (long long)c->iteration);
}

int tui_megatron_iteration(struct tu_ckpt *c, const struct tu_spec *spec,
                           struct tu_err *err)
{
    const char *text = tu_spec_get(spec, "iteration");
    uint64_t v;
    if (!text)
        return 0;
    if (!strcmp(text, "release")) {
        c->iteration = -1;
        return 0;
    }
    int rc = tu_parse_u64(text, &v, err);
    if (!rc && v > 9999999)
        rc = tu_fail(err, TU_EUSAGE, "iteration=%llu has more than 7 digits",
                     (unsigned long long)v);
    c->iteration = (int64_t)v;
    return rc;
}

static int add_files(struct tu_ckpt *c, struct tu_err *err)
{
    struct tu_coord at = {0};
    int rc = 0;
    for (at.pp = 0; at.pp < c->pp; at.pp++)
        for (at.ep = 0; at.ep < c->ep; at.ep++)
            for (at.tp = 0; at.tp < c->tp && !rc; at.tp++) {
                char rank[64], folder[32], path[128];
                uint32_t number;
                tui_megatron_rank(c, at, rank);
                tui_megatron_iteration_folder(c, folder);
                snprintf(path, sizeof path, "%s/%s/model_optim_rng.pt", folder, rank);
                rc = tui_add_target(c, path, tu_format_find("torch"), at, &number, err);
            }
    return rc;
}

/* Where a name goes in the pickled object. The old model is nested: language_model,
 * embedding or encoder or output_layer; below embedding each part is a dictionary again,
 * below encoder names are flat. */
static int insert(struct tu_arena *a, struct tu_pnode *root, char *name, size_t tensor,
                  bool nested, struct tu_err *err)
{
    struct tu_pnode *at = root;
    char *p = name;
    while (true) {
        char *dot = strchr(p, '.');
        bool first = p == name; /* model, model0 */
        bool flat =
            !first && (!nested || !strncmp(p, "layers.", 7) || !strncmp(p, "final_", 6));
        if (!dot || flat)
            break;
        *dot = 0;
        struct tu_pnode *next = tu_pnode_get(at, p);
        if (!next) {
            next = tu_pnode_new(a, TU_P_DICT, 0, err);
            int rc = tu_pnode_set(a, at, p, next, err);
            if (rc)
                return rc;
        }
        at = next;
        p = dot + 1;
    }
    return tu_pnode_set(a, at, p, tu_pnode_tensor(a, tensor, err), err);
}

static int make_object(struct tu_ckpt *c, uint32_t f, struct tu_pnode *args, bool nested,
                       struct tu_err *err)
{
    struct tu_arena *a = c->arena;
    struct tu_pnode *root = tu_pnode_new(a, TU_P_DICT, 0, err);
    int rc = root ? tu_pnode_set(a, root, "args", args, err) : TU_ENOMEM;
    if (!rc)
        rc = tu_pnode_set(a, root, "checkpoint_version",
                          tu_pnode_real(a, c->version, err), err);
    if (!rc)
        rc = tu_pnode_set(a, root, "iteration",
                          tu_pnode_int(a, c->iteration < 0 ? 0 : c->iteration, err), err);
    for (uint32_t v = 0; v < c->vpp && !rc; v++) {
        char model[16];
        snprintf(model, sizeof model, c->vpp > 1 ? "model%u" : "model", v);
        rc = tu_pnode_set(a, root, model, tu_pnode_new(a, TU_P_DICT, 0, err), err);
    }
    for (size_t i = 0; i < c->file[f].save.n && !rc; i++) {
        const char *text = c->file[f].save.tensor[i].name;
        char *name = tu_arena_text(a, text, strlen(text), err);
        rc = name ? insert(a, root, name, i, nested, err) : TU_ENOMEM;
    }
    c->file[f].save.object = root;
    c->file[f].save.folder_name = "model_optim_rng";
    return rc;
}

int tui_megatron_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                      const struct tu_shard_opts *o, struct tu_err *err)
{
    const char *kind = tu_spec_get(spec, "spec");
    const char *map = !kind || !strcmp(kind, "te") ? "mcore-te"
                      : !strcmp(kind, "local")     ? "mcore-local"
                      : !strcmp(kind, "legacy")    ? "megatron-legacy"
                                                   : NULL;
    struct tui_target_rule rule = {.prefix = "model"};
    struct tu_pnode *args = NULL;
    if (!map)
        return tu_fail(err, TU_EUSAGE, "spec= is te, local or legacy");
    int rc = tui_need_family(c, err);
    if (!rc)
        rc = mesh(c, spec, &rule.pad, err);
    if (!rc)
        rc = tui_megatron_iteration(c, spec, err);
    if (!rc)
        rc = tui_target_map(c, map, o, err);
    if (!rc)
        rc = tui_ensure_config(c, err);
    if (!rc)
        rc = tui_plan_stages(c, tu_spec_get(spec, "layers"), err);
    if (!rc && c->part)
        rc = tui_args_say_stages(c, err);
    if (!rc)
        rc = add_files(c, err);
    rule.tied_head = c->pp > 1;
    if (!rc)
        rc = tui_plan_pieces(c, &rule, file_of, err);
    if (!rc)
        rc = tui_args_make(c, c->args, rule.pad, &args, err);
    for (uint32_t f = 0; f < c->files && !rc; f++)
        rc = make_object(c, f, args, !strcmp(map, "megatron-legacy"), err);
    return rc;
}

int tui_megatron_extra(const struct tu_ckpt *c, const char *folder,
                       const struct tu_job *job, struct tu_err *err)
{
    char text[32], path[4096];
    int n = c->iteration < 0
                ? snprintf(text, sizeof text, "release")
                : snprintf(text, sizeof text, "%lld", (long long)c->iteration);
    if (snprintf(path, sizeof path, "%s/" TUI_TRACKER, folder) >= (int)sizeof path)
        return tu_fail(err, TU_EIO, "%.200s: path too long", folder);
    return tu_file_write(path, text, (size_t)n, true, job, err);
}
