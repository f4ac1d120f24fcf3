/* SPDX-License-Identifier: Apache-2.0 */
/* index: random access finds what the reader finds, verifies on demand, and refuses what
 * the reader refuses.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include "kit.h"

static struct tu_stream_index *open_bytes(const void *p, size_t n, int *rc,
                                          struct tu_err *err)
{
    struct tu_in *in;
    struct tu_stream_index *x;
    kit_must(!tu_in_take_fd(&in, kit_file(p, n), "t.tns", err), "open");
    *rc = tu_index_open(&x, in, err);
    return x;
}

/* Examples 1 and 2 in one file: the published offsets, texts and checksums. */
static void examples(void)
{
    unsigned char *ex1 = kit_dump(ex1_dump, EX1_SIZE),
                  *ex2 = kit_dump(ex2_dump, EX2_SIZE);
    unsigned char both[EX1_SIZE + EX2_SIZE], data[16];
    static const struct {
        uint16_t type;
        const char *name;
        uint64_t segment, offset, payload, len;
        uint32_t crc;
    } expect[] = {
        {TU_REC_TENSOR, "w", 0, 0, 128, 12, 0xb0948b76},
        {TU_REC_META, "safetensors", 1, 320, 448, 0, 0},
        {TU_REC_TENSOR, "l.w", 1, 448, 640, 4, 0x1211fdc6},
        {TU_REC_TENSOR, "q", 1, 704, 832, 2, 0x98d845f1},
        {TU_REC_TENSOR, "s", 1, 896, 1024, 4, 0x3265f52b},
        {TU_REC_TENSOR, "e", 1, 1088, 1216, 0, 0},
    };
    struct tu_err err = {0};
    int rc;
    memcpy(both, ex1, EX1_SIZE);
    memcpy(both + EX1_SIZE, ex2, EX2_SIZE);
    struct tu_stream_index *x = open_bytes(both, sizeof both, &rc, &err);
    eq_int(rc, 0, "opened");
    eq_u64(tu_index_count(x), 6, "records");
    eq_u64(tu_index_segments(x), 2, "segments");
    for (size_t i = 0; i < 6; i++) {
        const struct tu_index_entry *e = tu_index_entry(x, i);
        ok(e->type == expect[i].type && e->segment == expect[i].segment &&
               e->offset == expect[i].offset && e->payload == expect[i].payload &&
               e->payload_len == expect[i].len && e->payload_crc == expect[i].crc,
           "record %zu: numbers", i);
        eq_str(e->tensor.name, expect[i].name, "record %zu: name", i);
        eq_int(tu_index_verify(x, i, NULL, &err), 0, "record %zu: verified", i);
    }
    eq_str(tu_index_entry(x, 1)->tensor.meta, "{\"metadata\":{\"format\":\"pt\"}}",
           "META's text");
    ok(!tu_index_entry(x, 0)->tensor.meta, "no metadata, no text");
    ok(!tu_index_entry(x, 6), "no seventh record");
    ok(tu_index_entry(x, 2)->tensor.rank == 2 && tu_index_entry(x, 2)->tensor.dim[1] == 4,
       "shape of 'l.w'");
    eq_int(tu_index_read(x, 0, 6, data, 6, &err), 0, "the end of a payload");
    eq_mem(data, "\x80\xbf\x00\x3f\x00\x00", 6, "its bytes");
    eq_int(tu_index_read(x, 0, 12, data, 0, &err), 0, "nothing at its end");
    eq_int(tu_index_read(x, 0, 6, data, 7, &err), TU_EBUG, "a byte beyond");
    eq_int(tu_index_read(x, 0, 13, data, 0, &err), TU_EBUG, "behind its end");
    eq_int(tu_index_read(x, 6, 0, data, 0, &err), TU_EBUG, "of no record");
    eq_int(tu_index_verify(x, 6, NULL, &err), TU_EBUG, "verifying no record");
    tu_index_close(x);

    both[128 + 3] ^= 1;
    x = open_bytes(both, sizeof both, &rc, &err);
    eq_int(rc, 0, "opening reads no payload");
    eq_int(tu_index_verify(x, 0, NULL, &err), TU_EPCRC, "verifying does");
    ok(!strncmp(err.msg, "t.tns: record 0 'w' at byte 0: payload checksum mismatch", 56),
       "and names the record: %s", err.msg);
    tu_index_close(x);
    free(ex1);
    free(ex2);
}

static void with_index(void)
{
    enum { N = 200 };
    int fd, rc;
    size_t n;
    struct tu_err err = {0};
    struct tu_pool *pool = tu_pool_new(2, NULL);
    unsigned char *big = calloc(N, 4096);
    kit_must(big && pool, "memory");
    struct tu_writer *w = kit_writer(&fd);
    for (unsigned i = 0; i < N; i++) {
        char name[16];
        uint64_t dim[] = {i, 4096};
        struct tu_tensor t = {
            .name = name, .dtype = TU_U8, .rank = 2, .dim = dim, .bytes = i * 4096};
        snprintf(name, sizeof name, "t%u", i);
        memset(big, (int)i, i * 4096);
        kit_must(!tu_writer_tensor(w, &t, big, &err), name);
        if (i % 7 == 0)
            kit_must(!tu_writer_meta(w, name, "{\"a\":1}", 7, &err), name);
        if (i == N / 2)
            kit_must(!tu_writer_end(w, true, &err), "end");
    }
    kit_must(!tu_writer_end(w, true, &err) && !tu_writer_close(w, false, &err), "close");
    unsigned char *p = kit_bytes(fd, &n);
    struct tu_stream_index *x = open_bytes(p, n, &rc, &err);
    eq_int(rc, 0, "opened with two INDEX records");
    eq_u64(tu_index_count(x), N + (N + 6) / 7, "every record");
    unsigned wrong = 0, tensors = 0;
    for (size_t i = 0; i < tu_index_count(x); i++) {
        const struct tu_index_entry *e = tu_index_entry(x, i);
        unsigned char byte;
        wrong += tu_index_verify(x, i, pool, &err) != 0;
        if (e->type != TU_REC_TENSOR)
            continue;
        if (e->payload_len)
            wrong += tu_index_read(x, i, e->payload_len - 1, &byte, 1, &err) ||
                     byte != tensors;
        tensors++;
    }
    eq_u64(wrong, 0, "each is verified and reads as written");
    tu_index_close(x);
    eq_int(kit_read(p, n, TU_READER_STRICT, false, pool, &err), 0,
           "the strict reader agrees");
    /* The INDEX of the last segment stands before END: spoil its first entry's offset. */
    const uint64_t index = n - 128 - tu_le64(p + n - 128 + 64 + 16);
    eq_u64(tu_le16(p + index + 10), TU_REC_INDEX, "index_back leads to the INDEX");
    p[index + 128] ^= 64;
    x = open_bytes(p, n, &rc, &err);
    eq_int(rc, TU_EINDEX, "an INDEX that disagrees");
    ok(!x, "gives nothing");
    eq_int(kit_read(p, n, TU_READER_STRICT, true, pool, &err), TU_EINDEX,
           "nor to the reader");
    eq_int(kit_read(p, n, 0, false, pool, &err), TU_EPCRC,
           "its checksum is checked anyway");
    tu_pool_free(pool);
    free(big);
    free(p);
}

static void pipes(void)
{
    unsigned char *ex1 = kit_dump(ex1_dump, EX1_SIZE);
    struct tu_in *in;
    struct tu_stream_index *x;
    struct tu_err err = {0};
    pid_t child;
    kit_must(!tu_in_take_fd(&in, kit_pipe(ex1, EX1_SIZE, &child), "p", &err), "pipe");
    eq_int(tu_index_open(&x, in, &err), TU_EUSAGE, "a pipe has no random access");
    free(ex1);
}

/* Standard input may stand anywhere in its file: offsets count from there. */
static void from_the_middle(void)
{
    unsigned char *ex1 = kit_dump(ex1_dump, EX1_SIZE), at[512] = "something else";
    struct tu_in *in;
    struct tu_stream_index *x;
    struct tu_err err = {0};
    memcpy(at + 100, ex1, EX1_SIZE);
    int fd = kit_file(at, 100 + EX1_SIZE);
    kit_must(lseek(fd, 100, SEEK_SET) == 100 && !tu_in_take_fd(&in, fd, "m", &err),
             "open");
    eq_int(tu_index_open(&x, in, &err), 0, "a stream from byte 100 on");
    eq_int(tu_index_verify(x, 0, NULL, &err), 0, "verified");
    tu_index_close(x);
    free(ex1);
}

int main(void)
{
    examples();
    with_index();
    pipes();
    from_the_middle();
    return tap_done();
}
