/* SPDX-License-Identifier: Apache-2.0 */
/* lmcache.c: LMCache's chunks: .data files of the fs connector with their header of 28
 * bytes, .pt files of the local disk without any.
 *
 * A name is MODEL@WORLD@WORKER@HASH@DTYPE[@TAG%VALUE…][@LAYER] (older: FMT before MODEL
 * and no DTYPE); '/' in it has become '-' and cannot be undone. Source: LMCache
 * memory_management.py, storage_backend/connector/fs_connector.py, utils.py. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "chunks.h"

enum { HEADER = 28, CHUNK = 256 };
enum format { KV_2LTD = 1, KV_T2D, KV_2TD, BINARY, BINARY_BUFFER, KV_MLA };

static const struct {
    uint32_t word, dtype;
} dtypes[] = {
    {1, TU_F16}, {2, TU_F16}, {3, TU_BF16}, {4, TU_F32}, {5, TU_F64},
    {6, TU_U8},  {7, TU_F8_E4M3FN}, {8, TU_F8_E5M2},
};

/* What a file's name says. */
struct key {
    char model[128], hash[128], dtype[24];
    uint64_t world, worker;
    int64_t layer;
};

static bool digits(const char *s)
{
    size_t n = strspn(s, "0123456789");
    return n && n < 9 && !s[n];
}

static bool hex(const char *s)
{
    size_t n = strspn(s, "0123456789abcdefABCDEF-x");
    return n >= 1 && !s[n];
}

/* Find WORLD@WORKER@HASH from the right; what is before is the model. */
static bool parse_name(const char *path, struct key *k)
{
    char text[512], *part[32];
    const char *base = strrchr(path, '/');
    size_t n = 0;
    *k = (struct key){.layer = -1, .world = 1};
    snprintf(text, sizeof text, "%s", base ? base + 1 : path);
    char *dot = strrchr(text, '.');
    if (dot)
        *dot = 0;
    for (char *s = text; s && n < 32; n++) {
        part[n] = s;
        if ((s = strchr(s, '@')))
            *s++ = 0;
    }
    for (size_t i = n; i-- > 1;)
        if (i + 2 < n && digits(part[i]) && digits(part[i + 1]) && hex(part[i + 2])) {
            k->world = strtoull(part[i], NULL, 10);
            k->worker = strtoull(part[i + 1], NULL, 10);
            snprintf(k->hash, sizeof k->hash, "%s", part[i + 2]);
            snprintf(k->model, sizeof k->model, "%s", part[i - 1]);
            if (i + 3 < n)
                snprintf(k->dtype, sizeof k->dtype, "%s", part[i + 3]);
            if (i + 4 < n && digits(part[n - 1]))
                k->layer = strtoll(part[n - 1], NULL, 10);
            return k->world >= 1 && k->worker < k->world;
        }
    return false;
}

static bool sniff(const char *path, const unsigned char *head, size_t n)
{
    struct key k;
    (void)head;
    (void)n;
    const char *dot = strrchr(path, '.');
    return dot && (!strcmp(dot, ".data") || !strcmp(dot, ".pt")) && parse_name(path, &k);
}

/* The header's array against what is known so far. */
static int take_header(struct tui_chunks *c, struct tui_pieces *p, const unsigned char *h,
                       uint64_t *bytes, struct tu_err *err)
{
    static const char *const layouts[] = {NULL, "2ltd", "t2d", "2td", NULL, NULL, "ltd"};
    uint32_t format = tu_le32(h + 4), word = tu_le32(h + 8), shape[4];
    const char *name = p->base.name;
    for (int i = 0; i < 4; i++)
        if ((shape[i] = tu_le32(h + 12 + 4 * i)) > INT32_MAX)
            return tu_fail_at(err, TU_EFORMAT, (uint64_t)(12 + 4 * i),
                              "%s: shape[%d] is negative", name, i);
    if (format > KV_MLA || !layouts[format])
        return tu_fail_at(err, TU_EUNSUP, 4, "%s: format %u is no KV cache", name, format);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        c->dtype = dtypes[i].word == word ? dtypes[i].dtype : c->dtype;
    bool one = format == KV_T2D || format == KV_2TD;
    uint64_t hidden = one ? shape[2] : shape[3], heads = tu_max(c->g.heads, 1);
    c->g.latent = format == KV_MLA;
    c->g.layers = one ? 1 : shape[1];
    c->g.heads = c->g.latent ? 1 : heads;
    if (!hidden || hidden % c->g.heads)
        return tu_fail(err, TU_EUSAGE, "%s: %" PRIu64 " columns are not %" PRIu64 " heads",
                       name, hidden, c->g.heads);
    c->g.dim = hidden / c->g.heads;
    c->g.block = format == KV_T2D ? shape[0] : format == KV_2TD ? shape[1] : shape[2];
    int rc = tu_kv_layout_find(&c->layout, layouts[format], err);
    if (!rc)
        rc = tui_chunks_ready(c, err);
    *bytes = tu_le32(h);
    if (!rc && *bytes != c->row * c->g.block)
        rc = tu_fail_at(err, TU_ESIZE, 0, "%s: length %" PRIu64 ", its shape has %" PRIu64,
                        name, *bytes, c->row * c->g.block);
    return rc;
}

static int add_file(struct tui_chunks *c, struct tui_pieces *p, const char *path,
                    struct tu_err *err)
{
    struct key k;
    unsigned char h[HEADER];
    bool named = parse_name(path, &k);
    const char *dot = strrchr(path, '.');
    bool header = !dot || strcmp(dot, ".pt") != 0;
    int rc = tui_pieces_file(p, path, err);
    if (rc)
        return rc;
    struct tu_in *in = p->file[p->files - 1];
    uint64_t bytes = tu_in_size(in);
    if (named) {
        struct tu_kv_info *i = &p->base.info;
        i->tp_size = k.world;
        i->tp_rank = k.worker;
        snprintf(i->model, sizeof i->model, "%s", k.model);
        if (!c->dtype && *k.dtype)
            c->dtype = tui_kv_dtype(k.dtype);
    }
    if (header && bytes < HEADER)
        return tu_fail_at(err, TU_ETRUNC, bytes, "%s: %" PRIu64 " bytes, the header has %d",
                          path, bytes, HEADER);
    if (header) {
        uint64_t declared = 0;
        rc = tu_in_pread(in, 0, h, sizeof h, err);
        if (!rc)
            rc = take_header(c, p, h, &declared, err);
        if (!rc && declared != bytes - HEADER)
            rc = tu_fail_at(err, bytes - HEADER < declared ? TU_ETRUNC : TU_EGARBAGE, HEADER,
                            "%s: %" PRIu64 " bytes behind the header, which says %" PRIu64,
                            path, bytes - HEADER, declared);
        bytes = declared;
    } else {
        rc = tui_chunks_ready(c, err);
    }
    return rc ? rc
              : tui_chunks_add(c, p, p->files - 1, header ? HEADER : 0, bytes,
                               named ? k.layer : -1, err);
}

/* The files of a folder that are the chunks of these tokens. */
static int add_folder(struct tui_chunks *c, struct tui_pieces *p, const char *folder,
                      const struct tu_kv_hint *hint, struct tu_err *err)
{
    unsigned char *names = NULL;
    unsigned size = 0;
    char text[2 * TU_KV_DIGEST + 1];
    const char *model = *hint->info.model ? hint->info.model : NULL;
    const char *dtype = hint->spec ? tu_spec_get(hint->spec, "dtype") : NULL;
    uint64_t block = c->g.block;
    if (!hint->ids || !model || !dtype)
        return tu_fail(err, TU_EUSAGE,
                       "%s: a folder of chunks: --tokens, --model and lmcache:dtype= say "
                       "which are wanted; or name the files in order",
                       folder);
    int rc = tui_chunks_names(NULL, hint->ids, hint->n_ids, "vllm-cbor", hint->spec, block,
                              &names, &size, err);
    for (uint64_t i = 0; !rc && i < hint->n_ids / block; i++) {
        char path[4096];
        tu_kv_hash_hex(names + i * size, size, text);
        int n = snprintf(path, sizeof path, "%s/%s@%" PRIu64 "@%" PRIu64 "@%s@%s.data", folder,
                         model, hint->info.tp_size, hint->info.tp_rank, text, dtype);
        for (char *s = path + strlen(folder) + 1; n < (int)sizeof path && *s; s++)
            *s = *s == '/' ? '-' : *s;
        struct stat st;
        if (n >= (int)sizeof path || stat(path, &st))
            break; /* the prefix ends here */
        rc = add_file(c, p, path, err);
    }
    tu_free(names);
    if (!rc && !c->n)
        rc = tu_fail(err, TU_EINCOMPLETE, "%s: none of the tokens' chunks is there", folder);
    return rc;
}

static int open_lmcache(struct tu_kv **out, const char *const *path, size_t n,
                        const struct tu_kv_hint *hint, const struct tu_job *job,
                        struct tu_err *err)
{
    struct tui_chunks c;
    struct tui_pieces *p = NULL;
    struct stat st;
    (void)job;
    int rc = tui_chunks_spec(&c, hint->spec, "2ltd", CHUNK, err);
    if (!rc)
        rc = tui_pieces_new(&p, path[0], err);
    if (rc)
        return rc;
    c.g.heads = c.g.heads ? c.g.heads : hint->info.heads;
    for (size_t i = 0; !rc && i < n; i++)
        rc = !stat(path[i], &st) && S_ISDIR(st.st_mode) ? add_folder(&c, p, path[i], hint, err)
                                                        : add_file(&c, p, path[i], err);
    struct tu_kv_hint known = *hint;
    known.info.heads = 0;
    for (char *s = known.info.model; *s; s++) /* as names have it */
        *s = *s == '/' ? '-' : *s;
    if (!rc)
        rc = tui_chunks_open(&c, p, &known, err);
    if (!rc && *hint->info.model)
        memcpy(p->base.info.model, hint->info.model, sizeof p->base.info.model);
    tui_chunks_release(&c);
    if (rc)
        tu_kv_close(&p->base);
    else
        *out = &p->base;
    return rc;
}

static const char *word_of(uint32_t dtype, uint32_t *number)
{
    static const char *const words[] = {"", "half", "half", "bfloat16", "float", "double",
                                        "uint8", "fp8_e4m3", "fp8_e5m2"};
    for (size_t i = sizeof dtypes / sizeof *dtypes; i-- > 0;)
        if (dtypes[i].dtype == dtype) {
            *number = dtypes[i].word;
            return words[dtypes[i].word];
        }
    return NULL;
}

static int save_chunk(struct tui_chunks *c, struct tu_kv *kv, uint64_t i, const char *folder,
                      const char *name, uint32_t number, const struct tu_job *job,
                      struct tu_err *err)
{
    void *data;
    size_t n;
    int rc = tui_chunks_data(c, kv, i, &data, &n, err);
    unsigned char *all = rc ? NULL : tu_alloc(n + HEADER, 1, err);
    if (!rc && !all)
        rc = TU_ENOMEM;
    if (!rc && n > INT32_MAX)
        rc = tu_fail(err, TU_EUNSUP, "a chunk of %zu bytes does not fit the header", n);
    if (!rc) {
        tu_put32(all, (uint32_t)n);
        tu_put32(all + 4, c->g.latent ? KV_MLA : KV_2LTD);
        tu_put32(all + 8, number);
        tu_put32(all + 12, c->g.latent ? 1 : 2);
        tu_put32(all + 16, (uint32_t)c->g.layers);
        tu_put32(all + 20, (uint32_t)(n / c->row));
        tu_put32(all + 24, (uint32_t)(c->g.heads * c->g.dim));
        memcpy(all + HEADER, data, n);
        rc = tui_kv_put_file(folder, name, all, n + HEADER, job, err);
    }
    tu_free(all);
    tu_free(data);
    return rc;
}

static int save_lmcache(struct tu_kv *kv, const char *path, const struct tu_kv_hint *how,
                        const struct tu_job *job, struct tu_err *err)
{
    struct tui_chunks c;
    uint64_t chunks;
    unsigned char *names = NULL;
    unsigned size = 0;
    uint32_t number = 0;
    int rc = tui_chunks_spec(&c, how->spec, "2ltd", CHUNK, err);
    if (!rc)
        rc = tui_chunks_of(&c, kv, &chunks, err);
    const char *word = rc ? NULL : word_of(c.dtype, &number);
    if (!rc && !word)
        rc = tu_fail(err, TU_EUNSUP, "lmcache: no word for dtype %s",
                     tu_dtype_find(c.dtype)->name);
    if (!rc && (!*kv->info.model || strchr(kv->info.model, '@')))
        rc = tu_fail(err, TU_EUSAGE, "lmcache: names begin with the model: '%s' (--model)",
                     kv->info.model);
    if (!rc)
        rc = tui_chunks_names(kv, NULL, 0, "vllm-cbor", how->spec, c.g.block, &names, &size,
                              err);
    if (!rc)
        rc = tui_kv_folder(path, how->force, err);
    /* A chain's names are of full chunks; the rest is not kept, as LMCache does. */
    for (uint64_t i = 0; !rc && i < kv->tokens / c.g.block; i++) {
        char name[400], text[2 * TU_KV_DIGEST + 1];
        tu_kv_hash_hex(names + i * size, size, text);
        snprintf(name, sizeof name, "%s@%" PRIu64 "@%" PRIu64 "@%s@%s.data", kv->info.model,
                 kv->info.tp_size, kv->info.tp_rank, text, word);
        for (char *s = name; *s; s++)
            *s = *s == '/' ? '-' : *s;
        rc = save_chunk(&c, kv, i, path, name, number, job, err);
    }
    tu_free(names);
    if (!rc)
        tui_chunks_rest(&c, kv, "lmcache", "chunk", job);
    return rc;
}

const struct tu_kv_engine tui_kv_lmcache = {
    .name = "lmcache",
    .help = "LMCache's chunks, .data and .pt; chunk= hash= seed= heads= (.pt: layers= dim= "
            "dtype= layout= latent)",
    .key = tui_chunks_keys,
    .chunks = true,
    .sniff = sniff,
    .open = open_lmcache,
    .save = save_lmcache,
};
