/* SPDX-License-Identifier: Apache-2.0 */
/* file.c: checkpoints of one file: safetensors and torch.save. */

#include "single.h"

static int safetensors_detect(const char *path)
{
    return tui_is_a(path, "safetensors");
}

static int safetensors_open(struct tu_ckpt *c, const struct tu_spec *spec,
                            const struct tu_shard_opts *o, const struct tu_job *job,
                            struct tu_err *err)
{
    (void)spec;
    return tui_file_open(c, "safetensors", o, job, err);
}

static int safetensors_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                            const struct tu_shard_opts *o, struct tu_err *err)
{
    (void)spec;
    int rc = tui_file_plan(c, "safetensors", o, err);
    return rc ? rc : tui_pt_metas(c, o && o->tied_copy, err);
}

const struct tu_layout tui_layout_safetensors = {
    .name = "safetensors",
    .help = "one .safetensors file",
    .key = tui_no_keys,
    .detect = safetensors_detect,
    .open = safetensors_open,
    .plan = safetensors_plan,
};

static int torch_detect(const char *path)
{
    return tui_is_a(path, "torch");
}

/* FSDP1's LOCAL_STATE_DICT: the parameters of a module one after the other, padded and cut
 * over the ranks, without names. Source: pytorch torch/distributed/fsdp/_flat_param.py. */
static int refuse_flat(const struct tu_ckpt *c, struct tu_err *err)
{
    const struct tu_source *s = c->file[0].source;
    for (size_t i = 0; i < s->n; i++)
        if (s->tensor[i].rank == 1 && tui_has_suffix(s->tensor[i].name, "flat_param"))
            return tu_fail(
                err, TU_EUNSUP,
                "%.120s: '%.80s' is a flat parameter of FSDP (LOCAL_STATE_DICT), which "
                "does not say what it is made of: save SHARDED_STATE_DICT (layout dcp) "
                "or FULL_STATE_DICT",
                s->path, s->tensor[i].name);
    return 0;
}

static int torch_open(struct tu_ckpt *c, const struct tu_spec *spec,
                      const struct tu_shard_opts *o, const struct tu_job *job,
                      struct tu_err *err)
{
    (void)spec;
    int rc = tui_file_open(c, "torch", o, job, err);
    return rc ? rc : refuse_flat(c, err);
}

static int torch_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                      const struct tu_shard_opts *o, struct tu_err *err)
{
    (void)spec;
    return tui_file_plan(c, "torch", o, err);
}

const struct tu_layout tui_layout_torch = {
    .name = "torch",
    .help = "one file of torch.save: a dictionary of names (.bin, .pt, .pth)",
    .key = tui_no_keys,
    .detect = torch_detect,
    .open = torch_open,
    .plan = torch_plan,
};
