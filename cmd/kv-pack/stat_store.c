/* SPDX-License-Identifier: Apache-2.0 */
/* stat_store.c: kv-pack stat --dir: the prompts of a store and how much they share. A prompt
 * is a chain of blocks up to one that no other stands on. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "kv-pack/pack.h"

static const struct tu_column columns[] = {
    {"tokens", "TOKENS", TU_COL_U64, 0},        {"blocks", "BLOCKS", TU_COL_U64, 0},
    {"bytes", "BYTES", TU_COL_U64, 0},          {"shared_tokens", "SHARED", TU_COL_U64, 0},
    {"shared_blocks", NULL, TU_COL_U64, 0},     {"own_bytes", "OWN", TU_COL_U64, 0},
    {"space", "SPACE", TU_COL_TEXT, 0},         {"last_block", "LAST_BLOCK", TU_COL_NAME, 0},
    {0},
};

struct node {
    const struct tu_kv_block *b;
    struct node *parent;
    uint64_t children, prompts; /* blocks that stand on it, and prompts that go through it */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct node *)a)->b->name, ((const struct node *)b)->b->name);
}

/* Blocks are in the order of their names; orphans and broken ones are no part of a prompt. */
static void link_nodes(struct node *node, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct tu_kv_block key;
        memcpy(key.name, node[i].b->parent, sizeof key.name);
        if (node[i].b->index && !node[i].b->broken && !node[i].b->orphan)
            node[i].parent = bsearch(&(struct node){.b = &key}, node, n, sizeof *node, by_name);
        if (node[i].parent)
            node[i].parent->children++;
    }
    for (size_t i = 0; i < n; i++)
        for (struct node *at = &node[i]; !node[i].children && at; at = at->parent)
            at->prompts++;
}

static void show(struct tu_ctx *ctx, const struct node *leaf)
{
    uint64_t tokens = 0, blocks = 0, bytes = 0, shared = 0, shared_blocks = 0, own = 0;
    const char *space = leaf->b->parent;
    for (const struct node *at = leaf; at; at = at->parent) {
        bool alone = at->prompts == 1;
        tokens += at->b->tokens;
        blocks++;
        bytes += at->b->bytes;
        shared += alone ? 0 : at->b->tokens;
        shared_blocks += !alone;
        own += alone ? at->b->bytes : 0;
        space = at->b->parent;
    }
    tu_row(ctx, (const struct tu_cell[]){
                    {.u = tokens}, {.u = blocks}, {.u = bytes}, {.u = shared},
                    {.u = shared_blocks}, {.u = own}, {.s = space}, {.s = leaf->b->name}});
}

int kv_stat_store(struct tu_ctx *ctx, const char *dir, struct tu_err *err)
{
    struct tu_kv_block *b;
    struct node *node = NULL;
    uint64_t prompts = 0, each = 0, bytes = 0, lost = 0;
    size_t n;
    int rc = tu_kv_store_scan(dir, false, &b, &n, tu_ctx_job(ctx), err);
    if (rc)
        return rc;
    if (!(node = tu_calloc(n, sizeof *node, err)))
        rc = TU_ENOMEM;
    for (size_t i = 0; !rc && i < n; i++)
        node[i].b = &b[i];
    if (!rc) {
        link_nodes(node, n);
        tu_rows_begin(ctx, columns);
    }
    for (size_t i = 0; !rc && i < n; i++) {
        bool there = !b[i].broken && !b[i].orphan;
        lost += !there;
        bytes += b[i].bytes;
        each += there ? node[i].prompts * b[i].bytes : 0;
        if (there && !node[i].children) {
            show(ctx, &node[i]);
            prompts++;
        }
    }
    if (!rc)
        tu_note(ctx, 1, "%" PRIu64 " prompts in %zu blocks of %" PRIu64 " bytes; alone they would "
                        "take %" PRIu64 "; %" PRIu64 " blocks stand on none or cannot be read",
                prompts, n, bytes, each, lost);
    tu_free(node);
    tu_free(b);
    return rc;
}
