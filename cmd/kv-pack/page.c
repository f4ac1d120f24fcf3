/* SPDX-License-Identifier: Apache-2.0 */
/* page.c: kv-pack page and share: the caches of several sequences in one pool. */
#include <string.h>
#include "kv-pack/pack.h"

static struct {
    const char *layout;
    uint64_t block, blocks;
    int table;
    bool cow, verify;
} opt = {.block = 16};

static const char *const tables[] = {"csr", "padded", NULL};

static const struct tu_opt page_options[] = {
    {'b', "block", "N", "tokens of a page; default: 16", TU_OPT_U64, &opt.block, NULL, 0},
    {'n', "blocks", "N", "pages of the pool; default: as many as are needed", TU_OPT_U64,
     &opt.blocks, NULL, 0},
    {'l', "layout", "LAYOUT", "a layout with pages; default: nhd-paged", TU_OPT_STRING,
     &opt.layout, NULL, 0},
    {0, "table", NULL, "form of the table of pages", TU_OPT_CHOICE, &opt.table, tables, 0},
    {0, "cow", NULL, "share what all begin with; copy the page that is written on",
     TU_OPT_FLAG, &opt.cow, NULL, 0},
    {0},
};

static const struct tu_opt share_options[] = {
    {'n', "blocks", "N", "pages of the pool; default: as many as are needed", TU_OPT_U64,
     &opt.blocks, NULL, 0},
    {'l', "layout", "LAYOUT", "a layout with pages; default: nhd-paged", TU_OPT_STRING,
     &opt.layout, NULL, 0},
    {0, "table", NULL, "form of the table of pages", TU_OPT_CHOICE, &opt.table, tables, 0},
    {0, "verify", NULL, "compare what is shared byte by byte", TU_OPT_FLAG, &opt.verify, NULL,
     0},
    {0},
};

static int report(struct tu_ctx *ctx, const struct tu_kv_paged *p, size_t n,
                  const char *seed, struct tu_err *err)
{
    uint64_t slots, used, pages = 0;
    double each = tu_kv_table_waste(&p->table, true, &slots, &used, err);
    double waste = tu_kv_table_waste(&p->table, false, &slots, &used, err);
    for (uint64_t b = 0; b < p->table.blocks; b++)
        pages += p->refs[b] != 0;
    struct tu_jw *w = tu_result_begin(ctx);
    if (w) {
        tu_jw_u64(w, "sequences", n);
        tu_jw_u64(w, "tokens", p->tokens);
        tu_jw_u64(w, "block", p->table.block);
        tu_jw_u64(w, "blocks", p->table.blocks);
        tu_jw_u64(w, "used", pages);
        tu_jw_real(w, "waste", waste);
        tu_jw_real(w, "waste_unshared", each);
        tu_jw_u64(w, "lookups", p->lookups);
        tu_jw_u64(w, "hits", p->hits);
        tu_jw_u64(w, "copies", p->copies);
        tu_jw_u64(w, "tokens_shared", p->shared);
        tu_jw_real(w, "saving", p->tokens ? (double)p->shared / (double)p->tokens : 0);
        if (seed)
            tu_jw_str(w, "hash_seed", seed);
        tu_result_end(ctx);
    }
    tu_note(ctx, 1, "%zu sequences, %llu tokens in %llu pages of %llu, %.4g%% of slots empty, "
                    "%.4g%% of tokens shared, %llu pages copied", n,
            (unsigned long long)p->tokens, (unsigned long long)pages,
            (unsigned long long)p->table.block, 100 * waste,
            p->tokens ? 100 * (double)p->shared / (double)p->tokens : 0,
            (unsigned long long)p->copies);
    return 0;
}

static int run(struct tu_ctx *ctx, int argc, char **argv, const struct tu_kv_paging *how,
               const char *seed)
{
    struct tu_err err;
    struct tu_kv_set set = {0};
    struct tu_kv_paging paging = *how;
    struct tu_kv_paged made = {0};
    struct tu_writer *w = NULL;
    int rc = opt.layout ? tu_kv_layout_find(&paging.layout, opt.layout, &err) : 0;
    if (!rc)
        rc = kv_streams(argc, argv, &set, &err);
    if (!rc)
        rc = kv_writer(ctx, &w, &err);
    if (!rc)
        rc = tu_kv_page(set.kv, set.n, &paging, &made, w, tu_ctx_job(ctx), &err);
    if (!rc)
        rc = report(ctx, &made, set.n, seed, &err);
    tu_kv_paged_release(&made);
    tu_kv_set_release(&set);
    return kv_written(ctx, w, rc, &err);
}

static int run_page(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_kv_paging how = {.block = opt.block, .blocks = opt.blocks, .cow = opt.cow,
                               .tables = (enum tu_kv_tables)opt.table};
    return run(ctx, argc, argv, &how, NULL);
}

static int run_share(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_kv_hash_how hash;
    struct tu_kv_paging how = {.blocks = opt.blocks, .tables = (enum tu_kv_tables)opt.table,
                               .hash = &hash, .verify = opt.verify};
    unsigned char root[TU_KV_DIGEST];
    unsigned n;
    const char *seed = NULL;
    int rc = kv_naming_get(&how.scheme, &hash, &err);
    if (!rc)
        rc = tu_kv_hash_root(how.scheme, &hash, root, &n, &seed, &err);
    if (rc)
        return tu_error(ctx, &err);
    how.block = hash.block;
    return run(ctx, argc, argv, &how, seed);
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd kv_page = {
    .name = "page",
    .example = "kv-pack page --block 16 cache.tns -o pages.tns",
    .summary = "put sequences into a pool of pages with its table",
    .usage = usage,
    .opts = page_options,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM,
    .max = TU_ANY,
    .run = run_page,
};

const struct tu_cmd kv_share = {
    .name = "share",
    .example = "cat a.tns b.tns | kv-pack share -o pages.tns",
    .summary = "the same, full blocks of equal names once",
    .usage = usage,
    .opts = share_options,
    .shared = kv_naming_options,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM,
    .max = TU_ANY,
    .run = run_share,
};
