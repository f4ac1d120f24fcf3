/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c: kv-pack hash: the names of full blocks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kv-pack/pack.h"

static struct tu_list items;

static const struct tu_opt options[] = {
    {0, "item", "ID:FIRST:COUNT", "tokens that are an image or the like; repeatable",
     TU_OPT_STRING, &items, NULL, TU_OPT_EACH},
    {0},
};

static const struct tu_column columns[] = {
    {"input", NULL, TU_COL_TEXT, 0},  {"sequence", "SEQ", TU_COL_U64, 4},
    {"block", "BLOCK", TU_COL_U64, 6}, {"first", "FIRST", TU_COL_U64, 8},
    {"event", "EVENT", TU_COL_TEXT, 20}, {"hash", "HASH", TU_COL_NAME, 0}, {0},
};

static int take_items(struct tu_kv_item *out, struct tu_err *err)
{
    for (size_t i = 0; i < items.n; i++) {
        char *text = (char *)(uintptr_t)TU_LIST(&items, const char *)[i];
        char *last = strrchr(text, ':'), *first = NULL;
        if (last) {
            *last = 0;
            first = strrchr(text, ':');
        }
        if (!first)
            return tu_fail(err, TU_EUSAGE, "--item '%.60s' is not ID:FIRST:COUNT", text);
        *first = 0;
        out[i].id = text;
        int rc = tu_parse_u64(first + 1, &out[i].first, err);
        if (!rc)
            rc = tu_parse_u64(last + 1, &out[i].n, err);
        if (!rc && (out[i].n > INT32_MAX || out[i].first > INT32_MAX))
            rc = tu_fail(err, TU_EUSAGE, "--item: numbers are below 2^31");
        if (rc)
            return rc;
    }
    return 0;
}

static int one(struct tu_ctx *ctx, const char *name, uint64_t seq, const int32_t *ids,
               uint64_t n, const struct tu_kv_scheme *s, const struct tu_kv_hash_how *how,
               struct tu_err *err)
{
    unsigned char *digest = tu_alloc((size_t)(n / how->block) + 1, s->size, err);
    char text[2 * TU_KV_DIGEST + 1], event[24];
    int rc = digest ? tu_kv_hash_blocks(s, how, ids, n, digest, err) : TU_ENOMEM;
    uint64_t last = !strcmp(s->name, "sglang-eagle") && n ? n - 1 : n;
    for (uint64_t b = 0; !rc && b < last / how->block; b++) {
        int64_t number = tu_kv_hash_event(s, digest + b * s->size);
        tu_kv_hash_hex(digest + b * s->size, s->size, text);
        if (!strncmp(s->name, "sglang", 6)) /* signed there, not in vLLM */
            snprintf(event, sizeof event, "%" PRId64, number);
        else
            snprintf(event, sizeof event, "%" PRIu64, (uint64_t)number);
        tu_row(ctx, (const struct tu_cell[]){
                        {.s = name},
                        {.u = seq},
                        {.u = b},
                        {.u = b * how->block},
                        {.s = event},
                        {.s = text},
                    });
    }
    tu_free(digest);
    return rc;
}

static int hash_path(struct tu_ctx *ctx, const char *path, const struct tu_kv_scheme *s,
                     const struct tu_kv_hash_how *how, struct tu_err *err)
{
    int32_t *ids;
    uint64_t n;
    int rc = 0;
    if (!strcmp(path, "-") || !kv_is_stream(path)) {
        rc = kv_tokens(path, &ids, &n, err);
        if (!rc)
            rc = one(ctx, path, 0, ids, n, s, how, err);
        tu_free(ids);
        return rc;
    }
    struct tu_kv_set set;
    rc = kv_streams(1, (char *[]){(char *)(uintptr_t)path}, &set, err);
    for (size_t i = 0; !rc && i < set.n; i++) {
        rc = tu_kv_ids(set.kv[i], &ids, err);
        if (!rc)
            rc = one(ctx, path, i, ids, set.kv[i]->tokens, s, how, err);
        tu_free(ids);
    }
    tu_kv_set_release(&set);
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    const struct tu_kv_scheme *s;
    struct tu_kv_hash_how how;
    unsigned char root[TU_KV_DIGEST];
    char text[2 * TU_KV_DIGEST + 1] = "";
    const char *seed;
    unsigned n = 0;
    struct tu_kv_item *item = tu_calloc(items.n + 1, sizeof *item, &err);
    int rc = item ? take_items(item, &err) : TU_ENOMEM;
    if (!rc)
        rc = kv_naming_get(&s, &how, &err);
    how.items = items.n;
    how.item = item;
    if (!rc)
        rc = tu_kv_hash_root(s, &how, root, &n, &seed, &err);
    if (!rc) {
        tu_kv_hash_hex(root, n, text);
        tu_note(ctx, 0, "%s, seed '%s', root %s", s->name, seed, n ? text : "none");
        tu_rows_begin(ctx, columns);
        struct tu_jw *w = tu_line_begin(ctx);
        if (w) {
            tu_jw_str(w, "scheme", s->name);
            tu_jw_str(w, "seed", seed);
            tu_jw_str(w, "root", text);
            tu_jw_u64(w, "block", how.block);
            tu_line_end(ctx);
        }
    }
    for (int i = 0; !rc && i < (argc ? argc : 1); i++)
        rc = hash_path(ctx, argc ? argv[i] : "-", s, &how, &err);
    tu_free(item);
    return rc ? tu_error(ctx, &err) : TU_STATUS_YES;
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd kv_hash = {
    .name = "hash",
    .example = "seq 1 32 | kv-pack hash --hash vllm-cbor",
    .summary = "the names engines give to full blocks of tokens",
    .usage = usage,
    .opts = options,
    .shared = kv_naming_options,
    .flags = TU_CMD_STDIN,
    .max = TU_ANY,
    .run = run,
};
