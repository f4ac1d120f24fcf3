/* SPDX-License-Identifier: Apache-2.0 */
/* hicache.c: pages of sglang's HiCache file back end: bytes without a header, named
 * HASH[.COMPONENT]_MODEL[_TPRANK_TPSIZE].bin. Page size, dtype and layout are not in the
 * file. Source: sglang mem_cache/hicache_storage.py. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "chunks.h"

enum { PAGE = 64 };

static bool sniff(const char *path, const unsigned char *head, size_t n)
{
    const char *base = strrchr(path, '/'), *dot = strrchr(path, '.');
    (void)head;
    (void)n;
    base = base ? base + 1 : path;
    return dot && !strcmp(dot, ".bin") && strspn(base, "0123456789abcdef") == 64 &&
           (base[64] == '_' || base[64] == '.');
}

static void page_name(char *out, size_t room, const char *hash, const struct tu_kv_info *i,
                      bool latent)
{
    size_t n = (size_t)snprintf(out, room, "%s_%s", hash, i->model);
    for (char *s = out; *s; s++)
        *s = *s == '/' ? '-' : *s;
    if (n < room && !latent)
        n += (size_t)snprintf(out + n, room - n, "_%" PRIu64 "_%" PRIu64, i->tp_rank,
                              i->tp_size);
    if (n < room)
        snprintf(out + n, room - n, ".bin");
}

static int add_file(struct tui_chunks *c, struct tui_pieces *p, const char *path,
                    struct tu_err *err)
{
    int rc = tui_pieces_file(p, path, err);
    if (rc)
        return rc;
    uint64_t bytes = tu_in_size(p->file[p->files - 1]);
    if (bytes != c->row * c->g.block)
        return tu_fail_at(err, bytes < c->row * c->g.block ? TU_ETRUNC : TU_EGARBAGE, bytes,
                          "%s: %" PRIu64 " bytes, a page of %" PRIu64 " tokens has %" PRIu64,
                          path, bytes, c->g.block, c->row * c->g.block);
    return tui_chunks_add(c, p, p->files - 1, 0, bytes, -1, err);
}

static int add_folder(struct tui_chunks *c, struct tui_pieces *p, const char *folder,
                      const struct tu_kv_hint *hint, struct tu_err *err)
{
    unsigned char *names = NULL;
    unsigned size = 0;
    if (!hint->ids || !*hint->info.model)
        return tu_fail(err, TU_EUSAGE,
                       "%s: a folder of pages: --tokens and --model say which are wanted; or "
                       "name the files in order",
                       folder);
    int rc = tui_chunks_names(NULL, hint->ids, hint->n_ids, "sglang", hint->spec, c->g.block,
                              &names, &size, err);
    for (uint64_t i = 0; !rc && i < hint->n_ids / c->g.block; i++) {
        char path[4096], name[400], text[2 * TU_KV_DIGEST + 1];
        struct stat st;
        tu_kv_hash_hex(names + i * size, size, text);
        page_name(name, sizeof name, text, &hint->info, c->g.latent);
        if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path ||
            stat(path, &st))
            break;
        rc = add_file(c, p, path, err);
    }
    tu_free(names);
    if (!rc && !c->n)
        rc = tu_fail(err, TU_EINCOMPLETE, "%s: none of the tokens' pages is there", folder);
    return rc;
}

static int open_hicache(struct tu_kv **out, const char *const *path, size_t n,
                        const struct tu_kv_hint *hint, const struct tu_job *job,
                        struct tu_err *err)
{
    struct tui_chunks c;
    struct tui_pieces *p = NULL;
    struct stat st;
    (void)job;
    int rc = tui_chunks_spec(&c, hint->spec, "sglang", PAGE, err);
    if (!rc)
        rc = tui_chunks_ready(&c, err);
    if (!rc)
        rc = tui_pieces_new(&p, path[0], err);
    if (rc)
        return rc;
    for (size_t i = 0; !rc && i < n; i++)
        rc = !stat(path[i], &st) && S_ISDIR(st.st_mode) ? add_folder(&c, p, path[i], hint, err)
                                                        : add_file(&c, p, path[i], err);
    if (!rc)
        rc = tui_chunks_open(&c, p, hint, err);
    tui_chunks_release(&c);
    if (rc)
        tu_kv_close(&p->base);
    else
        *out = &p->base;
    return rc;
}

static int save_hicache(struct tu_kv *kv, const char *path, const struct tu_kv_hint *how,
                        const struct tu_job *job, struct tu_err *err)
{
    struct tui_chunks c;
    uint64_t pages;
    unsigned char *names = NULL;
    unsigned size = 0;
    int rc = tui_chunks_spec(&c, how->spec, "sglang", PAGE, err);
    if (!rc)
        rc = tui_chunks_of(&c, kv, &pages, err);
    if (!rc && !*kv->info.model)
        rc = tu_fail(err, TU_EUSAGE, "hicache: names hold the model (--model)");
    if (!rc)
        rc = tui_chunks_names(kv, NULL, 0, "sglang", how->spec, c.g.block, &names, &size, err);
    if (!rc)
        rc = tui_kv_folder(path, how->force, err);
    for (uint64_t i = 0; !rc && i < kv->tokens / c.g.block; i++) {
        char name[400], text[2 * TU_KV_DIGEST + 1];
        void *data;
        size_t n;
        tu_kv_hash_hex(names + i * size, size, text);
        page_name(name, sizeof name, text, &kv->info, c.g.latent);
        rc = tui_chunks_data(&c, kv, i, &data, &n, err);
        if (!rc)
            rc = tui_kv_put_file(path, name, data, n, job, err);
        tu_free(data);
    }
    tu_free(names);
    if (!rc)
        tui_chunks_rest(&c, kv, "hicache", "page", job);
    return rc;
}

const struct tu_kv_engine tui_kv_hicache = {
    .name = "hicache",
    .help = "sglang's HiCache pages; chunk= layers= heads= dim= dtype= layout= latent hash= "
            "seed=",
    .key = tui_chunks_keys,
    .chunks = true,
    .sniff = sniff,
    .open = open_hicache,
    .save = save_hicache,
};
