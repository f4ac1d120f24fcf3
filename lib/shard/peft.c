/* SPDX-License-Identifier: Apache-2.0 */
/* peft.c: the folder of an adapter as PEFT saves it: adapter_model.safetensors (or .bin)
 * and adapter_config.json.
 *
 * Names are PEFT's own, of no family. Source: huggingface/peft
 * src/peft/utils/save_and_load.py. */

#include <stdio.h>

#include "single.h"

static const char *const file_name[] = {"adapter_model.safetensors", "adapter_model.bin"};
static const char *const format_name[] = {"safetensors", "torch"};

/* Number of the file of weights in a folder; -1: there is none. */
static int weights_in(const char *folder)
{
    char full[4096];
    for (int i = 0; i < 2; i++)
        if (snprintf(full, sizeof full, "%s/%s", folder, file_name[i]) <
                (int)sizeof full &&
            tui_is_file(full))
            return i;
    return -1;
}

static int peft_detect(const char *path)
{
    char full[4096];
    if (!tui_is_dir(path) || weights_in(path) < 0)
        return 0;
    snprintf(full, sizeof full, "%s/adapter_config.json", path);
    return tui_is_file(full) ? 95 : 70;
}

static int peft_open(struct tu_ckpt *c, const struct tu_spec *spec,
                     const struct tu_shard_opts *o, const struct tu_job *job,
                     struct tu_err *err)
{
    int which = weights_in(c->root);
    (void)spec;
    if (which < 0)
        return tu_fail(err, TU_EINCOMPLETE, "%.200s: no adapter_model.safetensors",
                       c->root);
    char *path = tui_join(c->arena, c->root, file_name[which], err);
    int rc = path ? tui_add_one(c, path, file_name[which],
                                tu_format_find(format_name[which]), o, job, err)
                  : TU_ENOMEM;
    if (!rc)
        rc = tui_sides_from(c, c->root, err);
    return rc ? rc : tui_add_all(c, o, err);
}

static int peft_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                     const struct tu_shard_opts *o, struct tu_err *err)
{
    uint32_t number;
    (void)spec;
    (void)o;
    if (!tui_side(c, "adapter_config.json"))
        return tu_fail(err, TU_EUSAGE,
                       "%.200s: is no adapter: it has no adapter_config.json",
                       c->from->root);
    int rc = tui_add_target(c, file_name[0], tu_format_find(format_name[0]),
                            (struct tu_coord){0}, &number, err);
    if (!rc)
        rc = tui_plan_atoms(c, NULL, c->from->atoms, false, err);
    return rc ? rc : tui_pt_metas(c, false, err);
}

const struct tu_layout tui_layout_peft = {
    .name = "peft",
    .help = "adapter as PEFT saves it: adapter_model.safetensors, adapter_config.json",
    .key = tui_no_keys,
    .detect = peft_detect,
    .open = peft_open,
    .plan = peft_plan,
    .side_folder = "",
};
