/* SPDX-License-Identifier: Apache-2.0 */
/* examples: the worked examples (B7) are written to the byte and read to the value.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include <sys/resource.h>
#include "kit.h"

static void put(struct tu_writer *w, const char *name, uint32_t dtype,
                const uint64_t *dim, unsigned rank, const char *meta, const void *data)
{
    struct tu_tensor t = {
        .name = name, .dtype = dtype, .rank = rank, .dim = dim, .meta = meta};
    kit_must(!tu_tensor_bytes(dtype, dim, rank, &t.bytes, NULL) &&
                 !tu_writer_tensor(w, &t, data, NULL),
             name);
}

static unsigned char *finish(struct tu_writer *w, int fd, size_t *n)
{
    kit_must(!tu_writer_end(w, false, NULL) && !tu_writer_close(w, false, NULL), "close");
    return kit_bytes(fd, n);
}

static const char shard[] =
    "{\"shard\":{\"coord\":[1],\"global\":[2,4],\"mesh\":[[\"tp\",2]],"
    "\"offset\":[1,0],\"place\":[[\"tp\"],[]]}}";
static const char safetensors[] = "{\"metadata\":{\"format\":\"pt\"}}";
static const unsigned char bf16[] = {0x80, 0x3f, 0x00, 0x40, 0x40, 0x40,
                                     0x80, 0xbf, 0x00, 0x3f, 0x00, 0x00};

static void write_1(struct tu_writer *w)
{
    put(w, "w", TU_BF16, (uint64_t[]){2, 3}, 2, NULL, bf16);
}

static void write_2(struct tu_writer *w)
{
    kit_must(!tu_writer_meta(w, "safetensors", safetensors, strlen(safetensors), NULL),
             "meta");
    put(w, "l.w", TU_F8_E4M3FN, (uint64_t[]){1, 4}, 2, shard, "\x38\xc0\x7e\x30");
    put(w, "q", TU_I4, (uint64_t[]){3}, 1, NULL, "\xe1\x07");
    put(w, "s", TU_F32, NULL, 0, NULL, "\0\0\x60\x40");
    put(w, "e", TU_F32, (uint64_t[]){0, 7}, 2, NULL, "");
}

static void written(void)
{
    int fd;
    size_t n;
    struct tu_writer *w = kit_writer(&fd);
    unsigned char *p = finish(w, fd, &n);
    eq_u64(n, 128, "empty stream: size");
    eq_u64(tu_le32(p + 60), 0xf5774ccd, "empty stream: header_crc");
    eq_str(kit_sha(p, n), "9c6be72967376e9d", "empty stream: sha256");
    free(p);

    unsigned char *ex1 = kit_dump(ex1_dump, EX1_SIZE),
                  *ex2 = kit_dump(ex2_dump, EX2_SIZE);
    eq_str(kit_sha(ex1, EX1_SIZE), "37c8d22d929f7542",
           "example 1: the dump is the example");
    eq_str(kit_sha(ex2, EX2_SIZE), "d1f8788a9d86b615",
           "example 2: the dump is the example");
    write_1(w = kit_writer(&fd));
    p = finish(w, fd, &n);
    ok(n == EX1_SIZE && !memcmp(p, ex1, n), "example 1 as written");
    free(p);
    write_2(w = kit_writer(&fd));
    p = finish(w, fd, &n);
    ok(n == EX2_SIZE && !memcmp(p, ex2, n), "example 2 as written");
    free(p);

    unsigned char q4[18] = {0x00, 0x3c};
    for (unsigned i = 0; i < 16; i++)
        q4[2 + i] = (unsigned char)(0x10 + i);
    put(w = kit_writer(&fd), "b", TU_Q4_0, (uint64_t[]){1, 32}, 2, NULL, q4);
    p = finish(w, fd, &n);
    eq_u64(n, 320, "example 3: size");
    eq_u64(tu_le16(p + 14), 0x8002, "example 3: dtype");
    eq_u64(tu_le32(p + 60), 0x832574cb, "example 3: header_crc");
    eq_u64(tu_le32(p + 184), 0xd3edbaa9, "example 3: payload_crc");
    eq_u64(tu_le64(p + 192 + 64 + 24), 0xf74e0d71, "example 3: digest");
    eq_u64(tu_le32(p + 192 + 60), 0x28b99f45, "example 3: header_crc of END");
    eq_str(kit_sha(p, n), "8ee73d0596e0e464", "example 3: sha256");
    free(p);

    w = kit_writer(&fd);
    write_1(w);
    kit_must(!tu_writer_end(w, false, NULL), "end");
    write_2(w);
    p = finish(w, fd, &n);
    eq_u64(n, EX1_SIZE + EX2_SIZE, "two segments: size");
    eq_str(kit_sha(p, n), "647ad4617fbd0134", "two segments are the concatenation");
    free(p);
    free(ex1);
    free(ex2);
}

/* Records of example 1 followed by example 2. */
static const struct {
    uint16_t type;
    const char *name;
    uint32_t dtype;
    unsigned rank;
    uint64_t offset, segment, payload_len;
    uint32_t crc;
    const char *meta;
} expect[] = {
    {TU_REC_TENSOR, "w", TU_BF16, 2, 0, 0, 12, 0xb0948b76, ""},
    {TU_REC_END, "", 0, 4, 192, 0, 0, 0, ""},
    {TU_REC_META, "safetensors", 0, 0, 320, 1, 0, 0, safetensors},
    {TU_REC_TENSOR, "l.w", TU_F8_E4M3FN, 2, 448, 1, 4, 0x1211fdc6, shard},
    {TU_REC_TENSOR, "q", TU_I4, 1, 704, 1, 2, 0x98d845f1, ""},
    {TU_REC_TENSOR, "s", TU_F32, 0, 896, 1, 4, 0x3265f52b, ""},
    {TU_REC_TENSOR, "e", TU_F32, 2, 1088, 1, 0, 0, ""},
    {TU_REC_END, "", 0, 4, 1216, 1, 0, 0, ""},
};

static void read_both(bool pipe)
{
    unsigned char *ex1 = kit_dump(ex1_dump, EX1_SIZE),
                  *ex2 = kit_dump(ex2_dump, EX2_SIZE);
    unsigned char both[EX1_SIZE + EX2_SIZE];
    memcpy(both, ex1, EX1_SIZE);
    memcpy(both + EX1_SIZE, ex2, EX2_SIZE);
    const struct tu_record *rec;
    struct tu_err err = {0};
    pid_t child;
    struct tu_reader *r = kit_reader(
        pipe ? kit_pipe(both, sizeof both, &child) : kit_file(both, sizeof both), 0, NULL);
    unsigned i = 0;
    for (; !tu_reader_next(r, &rec, &err) && rec; i++) {
        if (i == sizeof expect / sizeof *expect)
            break;
        ok(rec->type == expect[i].type && rec->dtype == expect[i].dtype &&
               rec->nwords == expect[i].rank && rec->offset == expect[i].offset &&
               rec->segment == expect[i].segment &&
               rec->payload_len == expect[i].payload_len,
           "record %u: numbers", i);
        eq_str(rec->name, expect[i].name, "record %u: name", i);
        eq_str(rec->meta, expect[i].meta, "record %u: metadata", i);
        void *data;
        eq_int(tu_reader_load(r, 64, &data, &err), 0, "record %u: payload", i);
        eq_u64(rec->payload_crc, expect[i].crc, "record %u: payload_crc", i);
        if (!i)
            eq_mem(data, bf16, sizeof bf16, "record 0: data");
        tu_free(data);
    }
    eq_u64(i, sizeof expect / sizeof *expect, "all records, then the end");
    eq_int(err.code, 0, "no error");
    eq_u64(tu_reader_pos(r), sizeof both, "every byte was read");
    eq_int(tu_reader_next(r, &rec, &err), 0, "and again");
    ok(!rec, "nothing more");
    tu_reader_free(r);
    free(ex1);
    free(ex2);
}

/* 8 GiB of zeros, a sparse file made of the published numbers: sizes, checksums, and
 * memory that does not grow with the tensor. */
static void huge(void)
{
    static const unsigned char magic_end[16] = "\x89TNS\r\n\x1a\n\1\0\2";
    static const unsigned char magic_tensor[16] = "\x89TNS\r\n\x1a\n\1\0\1\0\0\0\x08\x01";
    const uint64_t size = UINT64_C(8589934592);
    unsigned char head[128] = {0}, tail[8], end[128] = {0};
    memcpy(head, magic_tensor, 16);
    head[16] = 128; /* header_len */
    head[24] = 1;   /* name_len */
    head[26] = 1;   /* rank */
    head[28] = 1;   /* block_elems */
    head[32] = 1;   /* block_bytes */
    tu_put64(head + 40, size);
    tu_put64(head + 48, size);
    tu_put32(head + 60, 0x11d8d244);
    tu_put64(head + 64, size);
    head[72] = 'z';
    tu_put32(tail, 0x41d912ff);
    tu_put32(tail + 4, 0x11d8d244);
    memcpy(end, magic_end, 16);
    end[16] = 128;
    end[26] = 4;
    tu_put64(end + 64, 1);
    tu_put64(end + 72, UINT64_C(8589934784));
    tu_put64(end + 88, 0xc7c25fdd);
    tu_put32(end + 60, 0x2ebacc9f);
    int fd = kit_file(head, sizeof head);
    const off_t trailer = (off_t)(sizeof head + size + 56);
    kit_must(pwrite(fd, tail, 8, trailer) == 8 &&
                 pwrite(fd, end, 128, trailer + 8) == 128,
             "sparse file");
    eq_u64(lseek(fd, 0, SEEK_END), UINT64_C(8589934912), "huge: file size");
    lseek(fd, 0, SEEK_SET);

    struct rusage before, after;
    const struct tu_record *rec;
    struct tu_err err = {0};
    struct tu_pool *pool = tu_pool_new(0, NULL);
    kit_must(pool, "pool");
    struct tu_reader *r = kit_reader(fd, TU_READER_STRICT, pool);
    getrusage(RUSAGE_SELF, &before);
    eq_int(tu_reader_next(r, &rec, &err), 0, "huge: tensor");
    ok(rec && rec->payload_len == size, "huge: payload_len");
    eq_int(tu_reader_next(r, &rec, &err), 0, "huge: END");
    ok(rec && rec->type == TU_REC_END, "huge: its counters and digest");
    eq_int(tu_reader_next(r, &rec, &err), 0, "huge: the end");
    eq_str(err.code ? err.msg : "", "", "huge: no error");
    getrusage(RUSAGE_SELF, &after);
    ok(after.ru_maxrss - before.ru_maxrss < 64 << 10, "huge: less than 64 MiB of memory");
    tu_reader_free(r);
    tu_pool_free(pool);
}

int main(void)
{
    written();
    read_both(false);
    read_both(true);
    huge();
    return tap_done();
}
