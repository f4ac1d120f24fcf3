/* SPDX-License-Identifier: Apache-2.0 */
/* write: what the writer leaves behind, and when it refuses.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include "kit.h"

static const struct tu_tensor small = {
    .name = "t", .dtype = TU_U8, .rank = 1, .dim = (const uint64_t[]){3}, .bytes = 3};

static void misuse(void)
{
    int fd;
    size_t n;
    struct tu_record rec;
    struct tu_err err = {0};
    tu_record_of(&rec, &small);

    struct tu_writer *w = kit_writer(&fd);
    kit_must(!tu_writer_record(w, &rec, &err), "record");
    eq_int(tu_writer_write(w, "abcd", 4, &err), TU_EBUG, "more bytes than announced");
    eq_int(tu_writer_end(w, false, &err), TU_EBUG, "the failure sticks: no END");
    eq_int(tu_writer_close(w, false, &err), TU_EBUG, "nor a close");
    unsigned char *p = kit_bytes(fd, &n);
    ok(kit_read(p, n, 0, false, NULL, &err), "what is left is no stream");
    free(p);

    w = kit_writer(&fd);
    kit_must(!tu_writer_record(w, &rec, &err) && !tu_writer_write(w, "ab", 2, &err),
             "record");
    eq_int(tu_writer_record(w, &rec, &err), TU_EBUG, "a record closed too early");
    tu_writer_abort(w);
    close(fd);

    w = kit_writer(&fd);
    eq_int(tu_writer_write(w, "a", 1, &err), TU_EBUG, "payload without a record");
    tu_writer_abort(w);
    close(fd);

    /* Whatever comes first: the same failure from every call, with or without an err. */
    for (unsigned first = 0; first < 3; first++) {
        struct tu_reader *r = kit_reader(kit_file("", 0), 0, NULL);
        w = kit_writer(&fd);
        kit_must(!tu_writer_record(w, &rec, &err) && !tu_writer_write(w, "ab", 2, &err), "record");
        eq_int(first == 0   ? tu_writer_align(w, &rec, 64, &err)
               : first == 1 ? tu_writer_copy(w, r, &err)
                            : tu_writer_end(w, true, &err),
               TU_EBUG, "an incomplete record %u: %s", first, err.msg);
        eq_int(tu_writer_record(w, &rec, NULL), TU_EBUG, "then no record");
        eq_int(tu_writer_write(w, "a", 1, NULL), TU_EBUG, "no bytes");
        eq_int(tu_writer_write_crc(w, "a", 1, 0, NULL), TU_EBUG, "no bytes with a sum");
        eq_int(tu_writer_align(w, &rec, 64, NULL), TU_EBUG, "no PAD");
        eq_int(tu_writer_copy(w, r, NULL), TU_EBUG, "no copy");
        eq_int(tu_writer_end(w, true, NULL), TU_EBUG, "no END");
        eq_int(tu_writer_close(w, false, NULL), TU_EBUG, "no file");
        tu_reader_free(r);
        close(fd);
    }
    /* An output that other bytes stand in. */
    struct tu_out *odd;
    fd = kit_file("", 0);
    kit_must(!tu_out_take_fd(&odd, dup(fd), "odd", &err) && !tu_out_write(odd, "0123456789", 10, &err) &&
                 !tu_writer_new(&w, odd, &err), "writer");
    eq_int(tu_writer_align(w, &rec, 4096, &err), TU_EBUG, "nothing to align to: %s", err.msg);
    tu_writer_abort(w);
    close(fd);
    w = kit_writer(&fd);
    rec.type = TU_REC_PAD;
    eq_int(tu_writer_record(w, &rec, &err), TU_EBUG, "PAD has its own call");
    tu_writer_abort(w);
    close(fd);
    w = kit_writer(&fd);
    rec.type = TU_REC_TENSOR;
    rec.name_len = 70000;
    eq_int(tu_writer_align(w, &rec, 64, &err), TU_ENAME, "a header that cannot be");
    tu_writer_abort(w);
    close(fd);

    w = kit_writer(&fd);
    eq_int(tu_writer_close(w, false, &err), TU_EBUG, "closed without END");
    close(fd);
    w = kit_writer(&fd);
    kit_must(!tu_writer_end(w, false, &err) && !tu_writer_tensor(w, &small, "abc", &err),
             "one");
    eq_int(tu_writer_close(w, false, &err), TU_EBUG, "closed inside a second segment");
    close(fd);
    tu_writer_abort(NULL);
}

/* "Where an END was already written, the 8 magic bytes." */
static void giving_up(void)
{
    for (unsigned after = 0; after < 3; after++) {
        int fd;
        size_t n;
        struct tu_record rec;
        struct tu_err err = {0};
        struct tu_writer *w = kit_writer(&fd);
        tu_record_of(&rec, &small);
        kit_must(!tu_writer_end(w, false, &err), "end");
        if (after > 0)
            kit_must(!tu_writer_record(w, &rec, &err), "record");
        if (after > 1)
            kit_must(!tu_writer_write(w, "abc", 3, &err), "payload");
        tu_writer_abort(w);
        unsigned char *p = kit_bytes(fd, &n);
        ok(n >= 136 && !memcmp(p + n - 8, TU_STREAM_MAGIC, 8),
           "abort %u: the magic at the end", after);
        eq_int(kit_read(p, n, 0, false, NULL, &err), TU_ETRUNC, "abort %u: incomplete",
               after);
        free(p);
    }
}

static void alignment(void)
{
    for (uint64_t align = 64; align <= 1 << 20; align *= 4) {
        int fd;
        size_t n;
        struct tu_record rec, odd;
        struct tu_err err = {0};
        const struct tu_record *got;
        struct tu_writer *w = kit_writer(&fd);
        tu_record_of(&rec, &small);
        unsigned aligned = 0, pads = 0;
        for (unsigned i = 0; i < 3; i++)
            kit_must(!tu_writer_align(w, &rec, align, &err) &&
                         !tu_writer_tensor(w, &small, "abc", &err),
                     "aligned");
        kit_must(!tu_writer_end(w, true, &err) && !tu_writer_close(w, false, &err),
                 "close");
        unsigned char *p = kit_bytes(fd, &n);
        struct tu_reader *r = kit_reader(kit_file(p, n), TU_READER_STRICT, NULL);
        while (!tu_reader_next(r, &got, &err) && got) {
            aligned +=
                got->type == TU_REC_TENSOR && !((got->offset + got->header_len) % align);
            pads += got->type == TU_REC_PAD;
        }
        eq_int(err.code, 0, "align %" PRIu64 ": accepted with PAD and INDEX", align);
        eq_u64(aligned, 3, "align %" PRIu64 ": payloads stand there", align);
        ok(align == 64 ? !pads : pads >= 2, "align %" PRIu64 ": by PAD", align);
        tu_reader_free(r);
        free(p);
        odd = rec;
        w = kit_writer(&fd);
        eq_int(tu_writer_align(w, &odd, align + 1, &err), TU_EUSAGE,
               "not a power of two");
        eq_int(tu_writer_align(w, &odd, 32, &err), TU_EUSAGE, "less than 64");
        tu_writer_abort(w);
        close(fd);
    }
}

/* Copying with records of all kinds keeps every byte but PAD and INDEX. */
static void copying(void)
{
    unsigned char *ex2 = kit_dump(ex2_dump, EX2_SIZE);
    char *odd[2];
    static const char *const ok_files[2] = {"tests/bad/OK-flag-to-ignore.tns",
                                            "tests/bad/OK-type-to-pass.tns"};
    size_t size[2];
    struct tu_err err = {0};
    for (unsigned i = 0; i < 2; i++)
        kit_must(!tu_file_read(ok_files[i], 1 << 20, &odd[i], &size[i], &err),
                 ok_files[i]);
    const void *from[] = {ex2, odd[0], odd[1]};
    const size_t bytes[] = {EX2_SIZE, size[0], size[1]};
    for (unsigned i = 0; i < 3; i++) {
        int fd;
        size_t n;
        const struct tu_record *rec;
        struct tu_writer *w = kit_writer(&fd);
        struct tu_reader *r = kit_reader(kit_file(from[i], bytes[i]), 0, NULL);
        int rc = 0;
        while (!rc && !(rc = tu_reader_next(r, &rec, &err)) && rec)
            rc = rec->type == TU_REC_END ? tu_writer_end(w, false, &err)
                                         : tu_writer_copy(w, r, &err);
        eq_int(rc, 0, "copy %u", i);
        eq_int(tu_writer_close(w, false, &err), 0, "copy %u: closed", i);
        unsigned char *p = kit_bytes(fd, &n);
        ok(n == bytes[i] && !memcmp(p, from[i], n), "copy %u: the same bytes", i);
        tu_reader_free(r);
        free(p);
    }
    /* What is not copied. */
    {
        int out;
        const struct tu_record *rec;
        struct tu_writer *w = kit_writer(&out);
        struct tu_reader *r = kit_reader(kit_file(ex2, EX2_SIZE), 0, NULL);
        while (!tu_reader_next(r, &rec, &err) && rec && rec->type != TU_REC_END)
            ;
        eq_int(tu_writer_copy(w, r, &err), TU_EBUG, "END is not copied");
        tu_writer_abort(w);
        tu_reader_free(r);
        close(out);
    }
    /* A payload that turns out wrong: the copy fails, and so does what was copied. */
    int fd;
    size_t n;
    const struct tu_record *rec;
    struct tu_writer *w = kit_writer(&fd);
    ex2[0x141] ^= 1;
    struct tu_reader *r = kit_reader(kit_file(ex2, EX2_SIZE), 0, NULL);
    kit_must(!tu_reader_next(r, &rec, &err) && !tu_reader_next(r, &rec, &err),
             "open");
    eq_int(tu_writer_copy(w, r, &err), TU_EPCRC, "copy of a wrong payload");
    tu_writer_abort(w);
    unsigned char *p = kit_bytes(fd, &n);
    ok(kit_read(p, n, 0, false, NULL, &err), "leaves no stream");
    free(p);
    tu_reader_free(r);
    free(ex2);
    tu_free(odd[0]);
    tu_free(odd[1]);
}

static void many_streams(void)
{
    enum { MANY = 10000 };
    int fd;
    size_t n;
    struct tu_err err = {0};
    struct tu_in *in;
    struct tu_stream_index *x;
    struct tu_writer *w = kit_writer(&fd);
    for (unsigned i = 0; i < MANY; i++)
        kit_must(!tu_writer_end(w, false, &err), "end");
    kit_must(!tu_writer_close(w, false, &err), "close");
    unsigned char *p = kit_bytes(fd, &n);
    eq_u64(n, 128 * MANY, "10,000 empty streams: size");
    eq_int(kit_read(p, n, TU_READER_STRICT, false, NULL, &err), 0, "as a file");
    eq_int(kit_read(p, n, 0, true, NULL, &err), 0, "as a pipe");
    kit_must(!tu_in_take_fd(&in, kit_file(p, n), "t", &err), "open");
    eq_int(tu_index_open(&x, in, &err), 0, "by index");
    eq_u64(tu_index_segments(x), MANY, "segments");
    eq_u64(tu_index_count(x), 0, "no records");
    tu_index_close(x);
    free(p);
}

int main(void)
{
    misuse();
    giving_up();
    alignment();
    copying();
    many_streams();
    return tap_done();
}
