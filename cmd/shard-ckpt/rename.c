/* SPDX-License-Identifier: Apache-2.0 */
/* rename.c: the tensors of a checkpoint under other names. */

#include <string.h>

#include "opts.h"

static struct target_options target;

static const struct tu_opt options[] = {
    WRITE_OPTIONS(target),
    {0},
};

/* PATTERN=TARGET, parted at the first '=' outside of groups. */
static int rule_of(struct tu_rename *out, char *text, struct tu_err *err)
{
    int depth = 0;
    char *at = text;
    for (; *at && (*at != '=' || depth); at++) {
        depth += (*at == '(') - (*at == ')');
        at += *at == '\\' && at[1];
    }
    if (!*at)
        return tu_fail(err, TU_EUSAGE, "'%.100s' is not PATTERN=TARGET", text);
    *at = 0;
    out->target = at + 1;
    return tu_pattern_new(&out->pattern, text, TU_PATTERN_REGEX, err);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    size_t n = (size_t)argc - 2;
    struct tu_err err;
    struct tu_shard_opts o = *shard_opts(&target, ctx->force);
    struct tu_rename *rule = tu_calloc(n, sizeof *rule, &err);
    int rc = rule ? 0 : TU_ENOMEM, status;
    if (!target.to)
        target.to = "hf";
    for (size_t i = 0; i < n && !rc; i++)
        rc = rule_of(&rule[i], argv[i], &err);
    o.rename = rule;
    o.renames = n;
    status = rc ? shard_error(ctx, &err)
                : shard_convert(ctx, argv[n], shard_from(), argv[n + 1], &target, &o);
    for (size_t i = 0; rule && i < n; i++)
        tu_pattern_free(rule[i].pattern);
    tu_free(rule);
    return status;
}

static const char *const usage[] = {"[option ...] pattern=target ... source destination",
                                    NULL};

const struct tu_cmd cmd_rename = {
    .name = "rename",
    .example = "shard-ckpt rename 'model\\.=encoder.' checkpoint out",
    .summary = "write a checkpoint with other names",
    .usage = usage,
    .opts = options,
    .shared = source_options,
    .min = 3,
    .max = TU_ANY,
    .run = run,
};
