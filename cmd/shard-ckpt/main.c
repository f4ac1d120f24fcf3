/* SPDX-License-Identifier: Apache-2.0 */
/* shard-ckpt: index, verify, compare, convert, save and publish checkpoints between
 * parallel layouts. */

#include <stddef.h>

#include <sys/resource.h>

#include "opts.h"

static const char *layout_row(size_t i, const char **help)
{
    for (size_t k = 0; k <= i; k++)
        if (!tu_layouts[k])
            return NULL;
    *help = tu_layouts[i]->help;
    return tu_layouts[i]->name;
}

static const char *layout_key(size_t i, size_t k)
{
    const struct tu_layout_key *key = tu_layouts[i]->key;
    for (; key && key->name && k; k--)
        key++;
    return key ? key->name : NULL;
}

static const char *map_row(size_t i, const char **help)
{
    static char text[TU_MAP_HELP];
    *help = text;
    return tu_map_list(i, text);
}

static const char *family_row(size_t i, const char **help)
{
    *help = tu_families[i].help;
    return tu_families[i].name;
}

static const struct tu_listing listings[] = {
    {"layouts", "parallel layouts", layout_row, layout_key},
    {"maps", "name maps", map_row, NULL},
    {"families", "model families", family_row, NULL},
    {0},
};

static const struct tu_cmd *const subs[] = {
    &cmd_ls,      &cmd_verify, &cmd_digest, &cmd_diff, &cmd_plan,
    &cmd_convert, &cmd_cat,    &cmd_save,   &cmd_inspect, &cmd_prune,
    &cmd_average, &cmd_rename,  &cmd_order,
    &cmd_lora_merge, &cmd_lora_extract, &cmd_drain, &cmd_layout, NULL,
};

static const char *const usage[] = {"subcommand [option ...] [operand ...]", NULL};

static const struct tu_cmd command = {
    .name = "shard-ckpt",
    .example = "shard-ckpt convert --to megatron:tp=2,pp=2 hf-folder out",
    .summary = "move checkpoints between parallel layouts",
    .usage = usage,
    .listings = listings,
    .subs = subs,
};

/* Checkpoints have thousands of files, all open at a time; what processes get at first is
 * less than what they may have. */
static void raise_file_limit(void)
{
    struct rlimit r;
    if (!getrlimit(RLIMIT_NOFILE, &r) && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
}

int main(int argc, char **argv)
{
    raise_file_limit();
    return tu_main(&command, argc, argv);
}
