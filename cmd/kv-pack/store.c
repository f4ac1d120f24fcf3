/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: kv-pack spill, fetch, verify and gc: a folder of blocks that processes share. */
#include <inttypes.h>
#include <string.h>
#include "kv-pack/pack.h"

static struct {
    const char *dir;
    uint64_t block, limit, age;
    bool each, delete;
} opt = {.block = 256};

#define DIR_OPTION                                                                       \
    {'d', "dir", "DIR", "the store", TU_OPT_FILE_IN, &opt.dir, NULL, 0}

static const struct tu_opt spill_options[] = {
    DIR_OPTION,
    {'b', "block", "N", "tokens of a block; default: 256", TU_OPT_U64, &opt.block, NULL, 0},
    {0, "limit", "SIZE", "bytes that the store may have; the longest unused go",
     TU_OPT_SIZE, &opt.limit, NULL, 0},
    {0},
};

static const struct tu_opt fetch_options[] = {
    DIR_OPTION,
    {0, "each", NULL, "a segment for each block", TU_OPT_FLAG, &opt.each, NULL, 0},
    {0},
};

static const struct tu_opt verify_options[] = {
    DIR_OPTION,
    {0, "delete", NULL, "remove what is broken", TU_OPT_FLAG, &opt.delete, NULL, 0},
    {0},
};

static const struct tu_opt gc_options[] = {
    DIR_OPTION,
    {0, "age", "TIME", "remove blocks that were not used for so long", TU_OPT_DURATION,
     &opt.age, NULL, 0},
    {0, "limit", "SIZE", "bytes that may stay", TU_OPT_SIZE, &opt.limit, NULL, 0},
    {0},
};

static int run_spill(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_kv_set set = {0};
    struct tu_kv_spilled s, all = {0};
    if (!opt.dir)
        return tu_usage(ctx, "spill: --dir is needed");
    int rc = kv_streams(argc, argv, &set, &err);
    for (size_t i = 0; !rc && i < set.n; i++) {
        rc = tu_kv_spill(set.kv[i], opt.dir, opt.block, opt.limit, &s, tu_ctx_job(ctx), &err);
        all.blocks += s.blocks;
        all.added += s.added;
        all.bytes += s.bytes;
        all.evicted += s.evicted;
        all.left += s.left;
    }
    struct tu_jw *w = rc ? NULL : tu_result_begin(ctx);
    if (w) {
        tu_jw_u64(w, "caches", set.n);
        tu_jw_u64(w, "blocks", all.blocks);
        tu_jw_u64(w, "added", all.added);
        tu_jw_u64(w, "bytes_added", all.bytes);
        tu_jw_u64(w, "evicted", all.evicted);
        tu_jw_u64(w, "tokens_left", all.left);
        tu_result_end(ctx);
    }
    if (!rc)
        tu_print(ctx, "%" PRIu64 " blocks, %" PRIu64 " of them new, %" PRIu64
                      " evicted, %" PRIu64 " tokens fill no block\n",
                 all.blocks, all.added, all.evicted, all.left);
    tu_kv_set_release(&set);
    return rc ? tu_error(ctx, &err) : TU_STATUS_YES;
}

/* Status 1 where nothing is there: the answer is no, and no stream is begun. */
static int run_fetch(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_kv_info want;
    struct tu_kv_fetched got = {0};
    struct tu_writer *w = NULL;
    int32_t *ids = NULL;
    uint64_t n;
    const char *path = argc ? argv[0] : kv_identity.tokens ? kv_identity.tokens : "-";
    if (!opt.dir)
        return tu_usage(ctx, "fetch: --dir is needed");
    int rc = kv_identity_get(&want, &err);
    if (kv_identity.rope < 0)
        want.rope[0] = 0;
    if (!rc)
        rc = kv_tokens(path, &ids, &n, &err);
    if (!rc)
        rc = kv_writer(ctx, &w, &err);
    if (!rc)
        rc = tu_kv_fetch(opt.dir, &want, ids, n, opt.each, w, &got, tu_ctx_job(ctx), &err);
    tu_free(ids);
    struct tu_jw *j = rc ? NULL : tu_result_begin(ctx);
    if (j) {
        tu_jw_u64(j, "blocks", got.blocks);
        tu_jw_u64(j, "tokens", got.tokens);
        tu_jw_u64(j, "damaged", got.damaged);
        tu_result_end(ctx);
    }
    if (!rc && !got.blocks) {
        tu_writer_abort(w);
        tu_warn(ctx, "%s: no block of these tokens", opt.dir);
        return TU_STATUS_NO;
    }
    if (!rc)
        tu_note(ctx, 0, "%" PRIu64 " of %" PRIu64 " tokens, in %" PRIu64 " blocks", got.tokens, n,
                got.blocks);
    return kv_written(ctx, w, rc, &err);
}

static const struct tu_column columns[] = {
    {"index", "INDEX", TU_COL_U64, 6},  {"tokens", "TOKENS", TU_COL_U64, 7},
    {"bytes", "BYTES", TU_COL_U64, 10}, {"state", "STATE", TU_COL_TEXT, 7},
    {"parent", NULL, TU_COL_TEXT, 0},   {"block", "BLOCK", TU_COL_NAME, 0}, {0},
};

static int run_verify(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_kv_block *b;
    struct tu_kv_swept swept;
    size_t n, broken = 0;
    (void)argc;
    (void)argv;
    if (!opt.dir)
        return tu_usage(ctx, "verify: --dir is needed");
    int rc = tu_kv_store_scan(opt.dir, true, &b, &n, tu_ctx_job(ctx), &err);
    if (rc)
        return tu_error(ctx, &err);
    tu_rows_begin(ctx, columns);
    for (size_t i = 0; i < n; i++) {
        broken += b[i].broken;
        tu_row(ctx, (const struct tu_cell[]){
                        {.none = b[i].broken, .u = b[i].index},
                        {.none = b[i].broken, .u = b[i].tokens},
                        {.u = b[i].bytes},
                        {.s = b[i].broken ? "broken" : b[i].orphan ? "orphan" : "good"},
                        {.s = b[i].parent},
                        {.s = b[i].name},
                    });
    }
    tu_free(b);
    if (broken && opt.delete)
        rc = tu_kv_store_sweep(opt.dir, 0, 0, &swept, tu_ctx_job(ctx), &err);
    return rc ? tu_error(ctx, &err) : broken ? TU_STATUS_NO : TU_STATUS_YES;
}

static int run_gc(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_kv_swept s;
    (void)argc;
    (void)argv;
    if (!opt.dir)
        return tu_usage(ctx, "gc: --dir is needed");
    int rc = tu_kv_store_sweep(opt.dir, opt.age, opt.limit, &s, tu_ctx_job(ctx), &err);
    if (rc)
        return tu_error(ctx, &err);
    struct tu_jw *w = tu_result_begin(ctx);
    if (w) {
        tu_jw_u64(w, "blocks", s.blocks);
        tu_jw_u64(w, "bytes", s.bytes);
        tu_jw_u64(w, "temporaries", s.temporaries);
        tu_jw_u64(w, "broken", s.broken);
        tu_jw_u64(w, "orphans", s.orphans);
        tu_jw_u64(w, "old", s.old);
        tu_result_end(ctx);
    }
    tu_print(ctx, "%" PRIu64 " blocks stay; removed: %" PRIu64 " broken, %" PRIu64
                  " orphans, %" PRIu64 " old, %" PRIu64 " temporary files\n",
             s.blocks, s.broken, s.orphans, s.old, s.temporaries);
    return TU_STATUS_YES;
}

static const char *const spill_usage[] = {"--dir dir [option ...] [file ...]", NULL};
static const char *const fetch_usage[] = {"--dir dir [option ...] [tokens]", NULL};
static const char *const dir_usage[] = {"--dir dir [option ...]", NULL};

const struct tu_cmd kv_spill = {
    .name = "spill",
    .example = "kv-pack spill --dir store cache.tns",
    .summary = "put the blocks of caches into a store",
    .usage = spill_usage,
    .opts = spill_options,
    .flags = TU_CMD_STDIN,
    .max = TU_ANY,
    .run = run_spill,
};

const struct tu_cmd kv_fetch = {
    .name = "fetch",
    .example = "kv-pack fetch --dir store tokens -o cache.tns",
    .summary = "the longest beginning of a prompt that a store has",
    .usage = fetch_usage,
    .opts = fetch_options,
    .shared = kv_identity_options,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM,
    .max = 1,
    .run = run_fetch,
};

const struct tu_cmd kv_verify = {
    .name = "verify",
    .example = "kv-pack verify --dir store",
    .summary = "read every block of a store and tell what is broken",
    .usage = dir_usage,
    .opts = verify_options,
    .max = 0,
    .run = run_verify,
};

const struct tu_cmd kv_gc = {
    .name = "gc",
    .example = "kv-pack gc --dir store",
    .summary = "remove what is broken, orphaned or old from a store",
    .usage = dir_usage,
    .opts = gc_options,
    .max = 0,
    .run = run_gc,
};
