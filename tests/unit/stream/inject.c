/* SPDX-License-Identifier: Apache-2.0 */
/* inject: every allocation and every system call of writing, reading and indexing fails
 * in turn. Each failure is reported as what it is, nothing is leaked (ASan), and no
 * output that was not finished looks finished.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include "../inject.h"
#include "kit.h"

static const char meta[] =
    "{\"shard\":{\"global\":[4],\"offset\":[0],\"mesh\":[[\"tp\",2]],"
    "\"place\":[[\"tp\"]]}}";
static unsigned char *good;
static size_t good_size;

/* Two segments with all that a writer writes; *ended: the last END went out. */
static int write_one(int fd, bool *ended, struct tu_err *err)
{
    static const unsigned char data[100000];
    struct tu_out *out;
    struct tu_writer *w = NULL;
    struct tu_record rec;
    const struct tu_tensor t = {.name = "w",
                                .dtype = TU_U8,
                                .rank = 1,
                                .dim = (const uint64_t[]){2},
                                .bytes = 2,
                                .meta = meta};
    const struct tu_tensor big = {.name = "big",
                                  .dtype = TU_U8,
                                  .rank = 1,
                                  .dim = (const uint64_t[]){sizeof data},
                                  .bytes = sizeof data};
    *ended = false;
    int rc = tu_out_take_fd(&out, fd, "out", err);
    if (!rc)
        rc = tu_writer_new(&w, out, err);
    if (rc)
        return rc;
    tu_record_of(&rec, &big);
    if ((rc = tu_writer_tensor(w, &t, "ab", err)) || (rc = tu_writer_end(w, true, err)) ||
        (rc = tu_writer_meta(w, "", "{\"a\":1}", 7, err)) ||
        (rc = tu_writer_align(w, &rec, 4096, err)) ||
        (rc = tu_writer_record(w, &rec, err)) ||
        (rc = tu_writer_write(w, data, sizeof data, err)) ||
        (rc = tu_writer_end(w, true, err))) {
        tu_writer_abort(w);
        return rc;
    }
    *ended = true;
    return tu_writer_close(w, false, err);
}

/* Load some payloads, skip others, to the end. */
static int read_one(const void *p, size_t n, unsigned flags, struct tu_err *err)
{
    struct tu_in *in;
    struct tu_reader *r;
    const struct tu_record *rec;
    void *data;
    int rc = tu_in_take_fd(&in, kit_file(p, n), "in", err);
    if (!rc)
        rc = tu_reader_new(&r, in, flags, NULL, err);
    if (rc)
        return rc;
    while (!(rc = tu_reader_next(r, &rec, err)) && rec)
        if (rec->payload_len == 2) {
            rc = tu_reader_load(r, 10, &data, err);
            if (rc)
                break;
            tu_free(data);
        }
    tu_reader_free(r);
    return rc;
}

static int index_one(const void *p, size_t n, unsigned flags, struct tu_err *err)
{
    struct tu_in *in;
    struct tu_stream_index *x;
    (void)flags;
    int rc = tu_in_take_fd(&in, kit_file(p, n), "in", err);
    if (!rc)
        rc = tu_index_open(&x, in, err);
    if (rc)
        return rc;
    for (size_t i = 0; !rc && i < tu_index_count(x); i++)
        rc = tu_index_verify(x, i, NULL, err);
    tu_index_close(x);
    return rc;
}

static int recover_one(const void *p, size_t n, unsigned flags, struct tu_err *err)
{
    struct tu_in *in;
    struct tu_reader *r;
    const struct tu_record *rec;
    bool found = false;
    uint64_t gap;
    int rc = tu_in_take_fd(&in, kit_file(p, n), "in", err);
    if (!rc)
        rc = tu_reader_new(&r, in, flags, NULL, err);
    if (rc)
        return rc;
    while (!(rc = tu_reader_next(r, &rec, err)) && rec)
        ;
    if (rc == TU_EHCRC && !(rc = tu_reader_recover(r, &found, &gap, err)) && found)
        while (!(rc = tu_reader_next(r, &rec, err)) && rec)
            ;
    tu_reader_free(r);
    return rc;
}

/* Every record to another file. */
static int copy_one(const void *p, size_t n, unsigned flags, struct tu_err *err)
{
    struct tu_in *in;
    struct tu_out *out;
    struct tu_reader *r = NULL;
    struct tu_writer *w = NULL;
    const struct tu_record *rec;
    int rc = tu_in_take_fd(&in, kit_file(p, n), "in", err);
    if (!rc)
        rc = tu_reader_new(&r, in, flags, NULL, err);
    if (!rc)
        rc = tu_out_take_fd(&out, kit_file("", 0), "out", err);
    if (!rc)
        rc = tu_writer_new(&w, out, err);
    while (!rc && !(rc = tu_reader_next(r, &rec, err)) && rec)
        rc = rec->type == TU_REC_END ? tu_writer_end(w, true, err)
                                     : tu_writer_copy(w, r, err);
    if (rc)
        tu_writer_abort(w);
    else
        rc = tu_writer_close(w, false, err);
    tu_reader_free(r);
    return rc;
}

struct scenario {
    int (*fn)(const void *p, size_t n, unsigned flags, struct tu_err *err);
    const void *p;
    size_t n;
    unsigned flags;
};

static int play(const void *arg, struct tu_err *err)
{
    const struct scenario *s = arg;
    return s->fn(s->p, s->n, s->flags, err);
}

static void fail_reading(const char *what, const struct scenario *s)
{
    const struct inject w = {.name = what, .run = play, .arg = s};
    inject_memory(&w);
    inject_io(&w);
}

static int written = -1; /* what is written goes here */
static bool ended;

static int write_there(const void *arg, struct tu_err *err)
{
    (void)arg;
    return write_one(dup(written), &ended, err);
}

/* Only what was ended is a stream. */
static const char *look(const void *arg, int rc, const struct tu_err *err)
{
    struct tu_err why;
    size_t size;
    unsigned char *p = kit_bytes(written, &size);
    bool fine = ended ? size == good_size && !memcmp(p, good, size)
                      : kit_read(p, size, 0, false, NULL, &why) != 0;
    (void)arg;
    (void)rc;
    (void)err;
    free(p);
    written = kit_file("", 0);
    return fine ? NULL : "unfinished output is accepted, or a stream is wrong";
}

static void fail_writing(void)
{
    const struct inject w = {.name = "writing", .run = write_there, .after = look};
    written = kit_file("", 0);
    inject_memory(&w);
    inject_walk(&w, ENOSPC);
    inject_walk(&w, EPIPE);
    close(written);
}

/* One payload of n bytes, and all kinds of records behind it. */
static int write_long(int fd, size_t n, struct tu_err *err)
{
    static const unsigned char data[1 << 20];
    struct tu_out *out;
    struct tu_writer *w = NULL;
    struct tu_record rec;
    const uint64_t dim = n;
    const struct tu_tensor big = {.name = "big", .dtype = TU_U8, .rank = 1, .dim = &dim, .bytes = n};
    int rc = tu_out_take_fd(&out, fd, "out", err);
    if (!rc)
        rc = tu_writer_new(&w, out, err);
    if (rc)
        return rc;
    tu_record_of(&rec, &big);
    if ((rc = tu_writer_record(w, &rec, err)) || (rc = tu_writer_write(w, data, n, err)) ||
        (rc = tu_writer_align(w, &rec, 1024, err)) || (rc = tu_writer_meta(w, "m", "{}", 2, err)) ||
        (rc = tu_writer_end(w, true, err)) || (rc = tu_writer_meta(w, "m", "{}", 2, err)) ||
        (rc = tu_writer_end(w, false, err))) {
        tu_writer_abort(w);
        return rc;
    }
    return tu_writer_close(w, false, err);
}

/* The buffer of the output is full at each of the calls behind a payload. */
static void fail_full(void)
{
    unsigned wrong = 0, failed = 0;
    for (size_t left = 0; left <= 2048; left += 64)
        for (unsigned n = 1; n < 4; n++) {
            struct tu_err err = {0};
            int fd = kit_file("", 0);
            tu_io_inject(n, ENOSPC);
            int rc = write_long(dup(fd), ((size_t)1 << 20) - left, &err);
            tu_io_inject(0, 0);
            wrong += rc && (rc != TU_EIO || err.code != rc || !*err.msg);
            failed += rc != 0;
            size_t size;
            unsigned char *p = kit_bytes(fd, &size);
            wrong += rc && !kit_read(p, size, 0, false, NULL, &err);
            free(p);
        }
    ok(failed > 50, "%u failures behind a full buffer", failed);
    eq_u64(wrong, 0, "each is named, and leaves no stream");
}

/* A payload that several threads read, and one that they sum. */
static int read_big(const void *p, size_t n, unsigned flags, struct tu_err *err)
{
    static unsigned char buf[600000];
    struct tu_in *in;
    struct tu_reader *r;
    const struct tu_record *rec;
    size_t got;
    struct tu_pool *pool = tu_pool_new(2, err);
    int rc = pool ? tu_in_take_fd(&in, kit_file(p, n), "in", err) : TU_ENOMEM;
    if (!rc)
        rc = tu_reader_new(&r, in, flags, pool, err);
    if (rc) {
        tu_pool_free(pool);
        return rc;
    }
    for (unsigned k = 0; !(rc = tu_reader_next(r, &rec, err)) && rec; k++) {
        void *data;
        if (k == 0)
            rc = tu_reader_read(r, buf, sizeof buf, &got, err);
        else if (k == 1)
            rc = tu_reader_skip(r, err);
        else if (k == 2 && !(rc = tu_reader_load(r, 1000000, &data, err)))
            tu_free(data);
        if (rc)
            break;
    }
    tu_reader_free(r);
    tu_pool_free(pool);
    return rc;
}

static void fail_big(void)
{
    static const unsigned char data[600000];
    const uint64_t dim = sizeof data;
    const struct tu_tensor big = {.name = "big", .dtype = TU_U8, .rank = 1, .dim = &dim, .bytes = dim};
    struct tu_err err;
    size_t size;
    int fd;
    struct tu_writer *w = kit_writer(&fd);
    for (int i = 0; i < 4; i++)
        kit_must(!tu_writer_tensor(w, &big, data, &err), "tensor");
    kit_must(!tu_writer_end(w, true, &err) && !tu_writer_close(w, false, &err), "end");
    unsigned char *p = kit_bytes(fd, &size);
    fail_reading("by threads", &(struct scenario){read_big, p, size, 0});
    fail_reading("by threads, strict", &(struct scenario){read_big, p, size, TU_READER_STRICT});
    fail_reading("by threads, unverified", &(struct scenario){read_big, p, size, TU_READER_NOVERIFY});
    free(p);
}

int main(void)
{
    fail_full();
    fail_big();
    struct tu_err err = {0};
    int fd = kit_file("", 0);
    kit_must(!write_one(dup(fd), &ended, &err), "writing without failures");
    good = kit_bytes(fd, &good_size);
    eq_int(kit_read(good, good_size, TU_READER_STRICT, false, NULL, &err), 0,
           "the stream is fine");

    fail_writing();
    fail_reading("reading", &(struct scenario){read_one, good, good_size, TU_READER_STRICT});
    fail_reading("seeking", &(struct scenario){read_one, good, good_size, TU_READER_NOVERIFY});
    fail_reading("indexing", &(struct scenario){index_one, good, good_size, 0});
    fail_reading("copying", &(struct scenario){copy_one, good, good_size, 0});
    good[70] ^= 1; /* the first header */
    fail_reading("recovering", &(struct scenario){recover_one, good, good_size, 0});
    free(good);
    return tap_done();
}
