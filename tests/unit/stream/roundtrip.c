/* SPDX-License-Identifier: Apache-2.0 */
/* roundtrip: every dtype, written and read in random pieces, through files and pipes,
 * alone and with threads; and payloads big enough to be shared by threads.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include "kit.h"

static uint64_t state = 1;

/* Knuth's MMIX generator: the same pieces on every run. */
static uint32_t next(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return below ? (uint32_t)((state >> 33) % below) : 0;
}

struct item {
    struct tu_tensor t;
    char name[32];
    uint64_t dim[3];
    unsigned char *data;
};

static void make(struct item *it, const struct tu_dtype *d, uint64_t last)
{
    snprintf(it->name, sizeof it->name, "layer.%s", d->name);
    it->dim[0] = 1 + next(3);
    it->dim[1] = 1 + next(5);
    it->dim[2] =
        d->code >= TU_DTYPE_GGML ? (1 + last / d->block_elems) * d->block_elems : last;
    it->t =
        (struct tu_tensor){.name = it->name, .dtype = d->code, .rank = 3, .dim = it->dim};
    kit_must(!tu_tensor_bytes(d->code, it->dim, 3, &it->t.bytes, NULL), it->name);
    it->data = malloc((size_t)it->t.bytes + 1);
    kit_must(it->data, "memory");
    for (uint64_t i = 0; i < it->t.bytes; i++)
        it->data[i] = (unsigned char)next(256);
    const uint64_t used = it->dim[0] * it->dim[1] * it->dim[2] % d->block_elems;
    if (d->code < TU_DTYPE_GGML && used) /* unused bits are zero */
        for (unsigned bit = (unsigned)used * d->block_bytes * 8u / d->block_elems;
             bit < d->block_bytes * 8u; bit++)
            it->data[it->t.bytes - d->block_bytes + bit / 8] &=
                (unsigned char)~(1u << bit % 8);
}

static void write_all(struct tu_writer *w, const struct item *it, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct tu_record rec;
        tu_record_of(&rec, &it[i].t);
        kit_must(!tu_writer_record(w, &rec, NULL), "record");
        for (uint64_t off = 0; off < it[i].t.bytes;) {
            const uint64_t left = it[i].t.bytes - off;
            const size_t some =
                (size_t)tu_min(left, 1 + next((uint32_t)tu_min(left * 2, 1 << 20)));
            const unsigned char *p = it[i].data + off;
            kit_must(!(next(2)
                           ? tu_writer_write(w, p, some, NULL)
                           : tu_writer_write_crc(w, p, some, tu_crc32(0, p, some), NULL)),
                     "write");
            off += some;
        }
        if (next(4) == 0)
            kit_must(!tu_writer_end(w, next(2), NULL), "end");
    }
    kit_must(!tu_writer_end(w, true, NULL) && !tu_writer_close(w, false, NULL), "close");
}

/* Some of each payload by pieces, the rest skipped. */
static void read_all(const unsigned char *p, size_t size, const struct item *it, size_t n,
                     bool pipe, struct tu_pool *pool)
{
    const struct tu_record *rec;
    struct tu_err err = {0};
    pid_t child = 0;
    size_t i = 0;
    unsigned wrong = 0;
    int fd = pipe ? kit_pipe(p, size, &child) : kit_file(p, size), rc;
    const char *how = pipe ? "pipe" : "file";
    struct tu_reader *r = kit_reader(fd, TU_READER_STRICT, pool);
    unsigned char *buf = malloc(8 << 20);
    kit_must(buf, "memory");
    while (!(rc = tu_reader_next(r, &rec, &err)) && rec) {
        if (rec->type != TU_REC_TENSOR)
            continue;
        struct tu_tensor t;
        tu_record_tensor(rec, &t);
        if (i >= n || strcmp(t.name, it[i].name) || t.rank != 3 ||
            t.bytes != it[i].t.bytes || memcmp(t.dim, it[i].dim, sizeof it[i].dim) ||
            t.meta)
            wrong++;
        if (next(4) == 0) {
            void *data;
            rc = tu_reader_load(r, t.bytes, &data, &err);
            wrong += rc || (i < n && memcmp(data, it[i].data, (size_t)t.bytes));
            tu_free(data);
        }
        const uint64_t stop = next(3) ? t.bytes + 1 : next((uint32_t)t.bytes + 1);
        size_t got = 1;
        for (uint64_t off = 0; off < stop && got && !rc; off += got) {
            rc = tu_reader_read(
                r, buf, 1 + next((uint32_t)tu_min(t.bytes * 2, 8 << 20) - 1), &got, &err);
            wrong += i < n && memcmp(buf, it[i].data + off, got);
        }
        i++;
    }
    eq_int(rc, 0, "%s: read to the end", how);
    eq_u64(i, n, "%s: tensors", how);
    eq_u64(wrong, 0, "%s: as they were written", how);
    tu_reader_free(r);
    if (child)
        waitpid(child, NULL, 0);
    free(buf);
}

static void round_trip(struct item *it, size_t n, const char *what)
{
    int fd;
    size_t size;
    struct tu_err err;
    struct tu_pool *pool = tu_pool_new(3, NULL);
    struct tu_writer *w = kit_writer(&fd);
    write_all(w, it, n);
    unsigned char *p = kit_bytes(fd, &size);
    printf("# %s: %zu bytes\n", what, size);
    read_all(p, size, it, n, false, NULL);
    read_all(p, size, it, n, false, pool);
    read_all(p, size, it, n, true, pool);
    eq_int(kit_read(p, size, 0, false, pool, &err), 0, "%s: skipped by threads", what);
    eq_int(kit_read(p, size, TU_READER_NOVERIFY, false, pool, &err), 0, "%s: skipped",
           what);
    /* One bit of the middle of the file, where a payload is. */
    p[size / 2] ^= 0x10;
    eq_int(kit_read(p, size, 0, false, pool, &err), TU_EPCRC, "%s: a flipped bit", what);
    eq_int(kit_read(p, size, 0, true, NULL, &err), TU_EPCRC, "%s: in a pipe", what);
    eq_int(kit_read(p, size, TU_READER_NOVERIFY, false, pool, &err), 0,
           "%s: if asked for", what);
    tu_pool_free(pool);
    free(p);
    for (size_t i = 0; i < n; i++)
        free(it[i].data);
}

int main(void)
{
    static struct item it[128];
    size_t n = 0;
    for (; tu_dtype_row(n); n++)
        make(&it[n], tu_dtype_row(n), 1 + next(70));
    ok(n > 50, "%zu dtypes", n);
    round_trip(it, n, "every dtype");
    make(&it[0], tu_dtype_find(TU_U8), 1 << 20);
    make(&it[1], tu_dtype_find(TU_I4), 3000001);
    make(&it[2], tu_dtype_find(TU_BF16), 1234567);
    round_trip(it, 3, "big tensors");
    return tap_done();
}
