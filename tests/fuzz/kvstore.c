/* SPDX-License-Identifier: Apache-2.0 */
/* kvstore.c: parsers of kv-pack that need names or neighbours: caches in streams, with their
 * tables of pages; blocks and spaces of a store; a bucket of Mooncake beside its meta;
 * pages of HiCache; config.json of plan; tables as arrays. What is taken must be readable
 * to its last byte, and a table that is taken must hold what it promises.
 *
 * _GNU_SOURCE: memfd_create. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <tensorutils/kv.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char dir[64];
#define BLOCK "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void remove_dir(void)
{
    static const char *const name[] = {"/1.bucket", "/1.meta", "/" BLOCK "_m_0_1.bin",
                                       "/blocks/01/" BLOCK ".tns", "/blocks/01", "/blocks",
                                       "/spaces/" BLOCK ".json", "/spaces", ""};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s%s", dir, name[i]);
        if (remove(path) && i == 0)
            return;
    }
}

static int make_dir(void)
{
    char path[256];
    if (*dir)
        return 0;
    strcpy(dir, access("/dev/shm", W_OK) ? "/tmp/kvstore.XXXXXX" : "/dev/shm/kvstore.XXXXXX");
    if (!mkdtemp(dir) || atexit(remove_dir))
        return -1;
    static const char *const sub[] = {"blocks", "blocks/01", "spaces"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, sub[i]);
        if (mkdir(path, 0700))
            return -1;
    }
    return 0;
}

static void put(const char *name, const void *data, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f))
        abort();
}

/* Entries of a table that was taken are pages of the pool, as many as the tokens need. */
static void check_table(struct tu_kv_table *t)
{
    for (uint64_t i = 0; i < t->n; i++) {
        uint64_t pages = t->begin[i + 1] - t->begin[i];
        if (pages != (t->tokens[i] + t->block - 1) / t->block)
            abort();
        for (uint64_t k = t->begin[i]; k < t->begin[i + 1]; k++)
            if (t->page[k] < 0 || (uint64_t)t->page[k] >= t->blocks)
                abort();
    }
    tu_kv_table_release(t);
}

static void read_all(struct tu_kv *kv)
{
    struct tu_kv_table table;
    int32_t *ids;
    void *x;
    for (size_t i = 0; i < kv->n; i++)
        if (kv->tensor[i].bytes < 1 << 24 && !tu_kv_load(kv, i, &x, NULL))
            tu_free(x);
    if (!tu_kv_ids(kv, &ids, NULL)) {
        for (uint64_t i = 0; i < kv->tokens; i++)
            if (ids[i] < 0)
                abort();
        tu_free(ids);
    }
    if (kv->tokens < 1 << 20 && !tu_kv_positions(kv, &ids, NULL))
        tu_free(ids);
    if (!tu_kv_pool_table(kv, &table, NULL))
        check_table(&table);
}

static void stream(const uint8_t *data, size_t n)
{
    struct tu_kv_set set = {0};
    struct tu_in *in;
    int fd = memfd_create("kv", 0);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n || lseek(fd, 0, SEEK_SET) ||
        tu_in_take_fd(&in, fd, "stream", NULL))
        abort();
    struct tu_err err = {0};
    int rc = tu_kv_set_add(&set, in, NULL, &err);
    if (rc && !err.msg[0])
        abort();
    for (size_t i = 0; !rc && i < set.n; i++)
        read_all(set.kv[i]);
    tu_kv_set_release(&set);
}

static void engine(const char *name, const char *text, const char *file)
{
    const struct tu_kv_engine *e;
    struct tu_kv_hint hint = {0};
    struct tu_spec spec;
    struct tu_kv *kv = NULL;
    struct tu_err err = {0};
    char path[256];
    const char *paths[] = {path};
    snprintf(path, sizeof path, "%s/%s", dir, file);
    tu_kv_info_init(&hint.info);
    if (tu_kv_engine_find(&e, name, NULL) || tu_spec_parse(&spec, text, NULL))
        abort();
    hint.spec = &spec;
    int rc = e->open(&kv, paths, 1, &hint, NULL, &err);
    if (rc && !err.msg[0])
        abort();
    if (!rc)
        read_all(kv);
    tu_kv_close(kv);
    tu_spec_release(&spec);
}

/* No block can be good whose name is not that of what it holds, and this one is not. */
static void store(void)
{
    static const int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct tu_kv_block *block;
    struct tu_kv_fetched got;
    struct tu_kv_info want;
    struct tu_writer *w;
    struct tu_out *out;
    size_t n;
    if (!tu_kv_store_scan(dir, true, &block, &n, NULL, NULL)) {
        if (n > 1 || (n && !block->broken))
            abort();
        tu_free(block);
    }
    tu_kv_info_init(&want);
    int fd = memfd_create("out", 0);
    if (fd < 0 || tu_out_take_fd(&out, fd, "out", NULL))
        abort();
    if (tu_writer_new(&w, out, NULL))
        abort();
    if (!tu_kv_fetch(dir, &want, ids, 8, false, w, &got, NULL, NULL) && got.tokens)
        abort();
    tu_writer_abort(w);
}

/* Numbers of the input as the arrays of both forms; each is of just its size. */
static void tables(const uint8_t *data, size_t n)
{
    struct tu_kv_table t;
    size_t words = tu_min(n / 4, 4096), seqs = words / 4;
    int32_t *indptr = malloc(4 * (seqs + 1)), *rest = malloc(4 * words + 4),
            *last = malloc(4 * seqs + 4);
    if (!indptr || !rest || !last || words < 4)
        goto out;
    memcpy(indptr, data, 4 * (seqs + 1));
    memcpy(last, data + n - 4 * seqs, 4 * seqs);
    memcpy(rest, data, 4 * words);
    if (!tu_kv_table_of_csr(&t, indptr, seqs, rest, words, last, 4, 16, NULL))
        check_table(&t);
    if (!tu_kv_table_of_padded(&t, rest, seqs, words / seqs, last, 4, 16, NULL))
        check_table(&t);
out:
    free(indptr);
    free(rest);
    free(last);
}

static void config(const uint8_t *data, size_t n)
{
    struct tu_kv_sizes sizes;
    struct tu_err err = {0};
    uint64_t bytes;
    int rc = tu_kv_sizes_from_hf(&sizes, (const char *)data, n, &err);
    if (rc && !err.msg[0])
        abort();
    if (!rc && !tu_kv_bytes(&sizes, 1 << 20, 16, 8, &bytes, NULL) && sizes.local > sizes.layers)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    size_t half = n / 2;
    if (make_dir())
        return -1;
    stream(data, n);
    tables(data, n);
    config(data, n);
    put("1.meta", data, n);
    put("1.bucket", data, n);
    put(BLOCK "_m_0_1.bin", data, n);
    put("spaces/" BLOCK ".json", data, half);
    put("blocks/01/" BLOCK ".tns", data + half, n - half);
    engine("mooncake", "mooncake:layers=1,heads=1,dim=2,dtype=u8,chunk=2", "1.bucket");
    engine("hicache", "hicache:layers=1,heads=1,dim=2,dtype=u8,chunk=4", BLOCK "_m_0_1.bin");
    store();
    put("spaces/" BLOCK ".json", data, n);
    put("blocks/01/" BLOCK ".tns", data, n);
    store();
    return 0;
}
