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
    if (!rc) {
        c->file[0].save.metas = 1;
        c->file[0].save.meta = &tui_pt_meta;
    }
    return rc;
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

static int torch_open(struct tu_ckpt *c, const struct tu_spec *spec,
                      const struct tu_shard_opts *o, const struct tu_job *job,
                      struct tu_err *err)
{
    (void)spec;
    return tui_file_open(c, "torch", o, job, err);
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
