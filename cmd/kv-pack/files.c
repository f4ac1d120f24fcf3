/* SPDX-License-Identifier: Apache-2.0 */
/* files.c: kv-pack pack and unpack: engines' files to streams and back. */
#include <string.h>
#include "kv-pack/pack.h"

static struct tu_spec from, to;

/* pack ----------------------------------------------------------------------------------- */

static const struct tu_opt pack_options[] = {
    {0, "from", "ENGINE[:KEY=VALUE,...]", "whose file it is; default: by its looks",
     TU_OPT_SPEC, &from, NULL, 0},
    {0},
};

static int pack_one(const struct tu_kv_engine *e, char **path, size_t n,
                    const struct tu_kv_hint *hint, struct tu_writer *w, struct tu_ctx *ctx,
                    struct tu_err *err)
{
    struct tu_kv *kv = NULL;
    int rc = e->open(&kv, (const char *const *)path, n, hint, tu_ctx_job(ctx), err);
    if (!rc)
        rc = tu_kv_write(kv, w, tu_ctx_job(ctx), err);
    tu_kv_close(kv);
    return rc;
}

static int run_pack(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_writer *w = NULL;
    struct tu_kv_hint hint = {.spec = from.name ? &from : NULL, .force = ctx->force};
    const struct tu_kv_engine *e = NULL;
    int32_t *ids = NULL;
    int rc = kv_identity_get(&hint.info, &err);
    if (!rc && kv_identity.tokens)
        rc = kv_tokens(kv_identity.tokens, &ids, &hint.n_ids, &err);
    hint.ids = ids;
    if (!rc)
        rc = kv_writer(ctx, &w, &err);
    for (int i = 0; !rc && i < argc;) {
        rc = tu_kv_engine_of(&e, argv[i], hint.spec, &err);
        int n = !rc && e->chunks ? argc - i : 1;
        if (!rc)
            rc = pack_one(e, argv + i, (size_t)n, &hint, w, ctx, &err);
        i += n;
    }
    tu_free(ids);
    return kv_written(ctx, w, rc, &err);
}

static const char *const pack_usage[] = {"[option ...] file ...", NULL};

const struct tu_cmd kv_pack = {
    .name = "pack",
    .example = "kv-pack pack --from llama session.bin -o cache.tns",
    .summary = "read engines' files into a tensor stream",
    .usage = pack_usage,
    .opts = pack_options,
    .shared = kv_identity_options,
    .flags = TU_CMD_STREAM,
    .min = 1,
    .max = TU_ANY,
    .run = run_pack,
};

/* unpack --------------------------------------------------------------------------------- */

static const struct tu_opt unpack_options[] = {
    {0, "to", "ENGINE[:KEY=VALUE,...]", "whose file to write", TU_OPT_SPEC, &to, NULL, 0},
    {0},
};

/* What the caller expects the cache to be; a difference is the answer no. */
static int expected(struct tu_ctx *ctx, const struct tu_kv *kv, struct tu_kv_info *want,
                    struct tu_err *err, int *status)
{
    struct tu_err why;
    int rc = kv_identity_get(want, err);
    if (rc)
        return rc;
    want->rot = kv->info.rot;
    bool place = kv_identity.tp != NULL;
    if (place) {
        memcpy(want->layout, kv->info.layout, sizeof want->layout);
        want->block = kv->info.block;
    }
    if (ctx->force || !tu_kv_info_same(&kv->info, want, place, &why))
        return 0;
    tu_warn(ctx, "%s: %s: not written (-f goes on)", kv->name, why.msg);
    *status = TU_STATUS_NO;
    return 0;
}

static int run_unpack(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_kv_set set = {0};
    struct tu_kv_hint how = {.spec = &to, .force = ctx->force};
    const struct tu_kv_engine *e;
    int status = TU_STATUS_YES;
    if (!to.name)
        return tu_usage(ctx, "unpack: --to ENGINE is needed (see --list=engines)");
    int rc = tu_kv_engine_of(&e, "", &to, &err);
    if (!rc && e->chunks && !strcmp(ctx->output, "-"))
        return tu_usage(ctx, "unpack: %s writes a folder: -o DIR", e->name);
    if (!rc)
        rc = kv_streams(argc, argv, &set, &err);
    if (!rc && set.n != 1 && !e->chunks)
        rc = tu_fail(&err, TU_EUSAGE, "%zu caches do not go into one file: choose one", set.n);
    for (size_t i = 0; !rc && i < set.n && status == TU_STATUS_YES; i++) {
        struct tu_kv_info want;
        rc = expected(ctx, set.kv[i], &want, &err, &status);
        if (!rc && status == TU_STATUS_YES && kv_identity.model)
            memcpy(set.kv[i]->info.model, want.model, sizeof want.model);
        if (!rc && status == TU_STATUS_YES)
            rc = e->save(set.kv[i], ctx->output, &how, tu_ctx_job(ctx), &err);
        how.force = true; /* the folder is ours now */
    }
    tu_kv_set_release(&set);
    return rc ? tu_error(ctx, &err) : status;
}

static const char *const unpack_usage[] = {"--to engine [option ...] [file ...]", NULL};

const struct tu_cmd kv_unpack = {
    .name = "unpack",
    .example = "kv-pack unpack --to hf cache.tns -o cache.pt",
    .summary = "write a cache as an engine's file or folder",
    .usage = unpack_usage,
    .opts = unpack_options,
    .shared = kv_identity_options,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM | TU_CMD_FORMATS,
    .max = TU_ANY,
    .run = run_unpack,
};
