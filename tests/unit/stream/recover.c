/* SPDX-License-Identifier: Apache-2.0 */
/* recover: after damage the reader finds the next record that can be believed, and
 * nothing else.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include "kit.h"

/* Names of the tensors that can be read, recovering after each failure: "a,c"; *errors
 * counts the failures. */
static const char *salvage(const void *p, size_t n, unsigned *errors, uint64_t *skipped)
{
    static char names[200];
    const struct tu_record *rec;
    struct tu_err err = {0};
    bool found = true;
    names[0] = '\0';
    *errors = 0;
    *skipped = 0;
    struct tu_reader *r = kit_reader(kit_file(p, n), TU_READER_STRICT, NULL);
    while (found) {
        int rc = tu_reader_next(r, &rec, &err);
        if (!rc && rec && rec->type == TU_REC_TENSOR && !(rc = tu_reader_skip(r, &err))) {
            strcat(names, names[0] ? "," : "");
            strcat(names, rec->name);
        }
        if (!rc && !rec)
            break;
        if (!rc)
            continue;
        uint64_t gap;
        ++*errors;
        kit_must(!tu_reader_recover(r, &found, &gap, &err), "recover");
        *skipped += gap;
    }
    tu_reader_free(r);
    return names;
}

/* Four tensors in two segments; each record is 192 + size bytes rounded up to 64. */
static unsigned char *four(size_t *n, const void *payload, uint64_t size)
{
    int fd;
    struct tu_writer *w = kit_writer(&fd);
    for (unsigned i = 0; i < 4; i++) {
        char name[2] = {(char)('a' + i), 0};
        struct tu_tensor t = {
            .name = name, .dtype = TU_U8, .rank = 1, .dim = &size, .bytes = size};
        kit_must(!tu_writer_tensor(w, &t, payload, NULL) &&
                     (i % 2 == 0 || !tu_writer_end(w, true, NULL)),
                 name);
    }
    kit_must(!tu_writer_close(w, false, NULL), "close");
    return kit_bytes(fd, n);
}

static void damage(void)
{
    enum { SIZE = 1000, RECORD = 128 + 1024 };
    size_t n;
    unsigned errors;
    uint64_t skipped;
    unsigned char payload[SIZE] = {1, 2, 3};
    unsigned char *p = four(&n, payload, SIZE);
    eq_str(salvage(p, n, &errors, &skipped), "a,b,c,d", "undamaged: all");
    eq_u64(errors, 0, "undamaged: no error");

    p[200] ^= 1;
    eq_str(salvage(p, n, &errors, &skipped), "b,c,d", "payload of the first");
    eq_u64(errors, 1, "one error: the segment's END is not blamed again");
    eq_u64(skipped, RECORD, "one record is passed over");
    p[200] ^= 1;

    p[70] ^= 1;
    eq_str(salvage(p, n, &errors, &skipped), "b,c,d", "header of the first");
    p[70] ^= 1;
    p[RECORD] ^= 1;
    eq_str(salvage(p, n, &errors, &skipped), "a,c,d", "magic of the second");
    eq_u64(errors, 1, "one error");
    eq_u64(skipped, RECORD, "the second is passed over");
    p[RECORD] ^= 1;

    /* 64 bytes lost inside the first. */
    unsigned char *q = malloc(n);
    kit_must(q, "memory");
    memcpy(q, p, 256);
    memcpy(q + 256, p + 320, n - 320);
    eq_str(salvage(q, n - 64, &errors, &skipped), "b,c,d", "bytes lost");
    eq_u64(errors, 1, "bytes lost: one error");
    memcpy(q, p, n);
    eq_str(salvage(q, n - 200, &errors, &skipped), "a,b,c,d", "cut inside the INDEX");
    eq_u64(errors, 1, "cut: one error");
    memset(q + 100, 0xaa, n - 100);
    eq_str(salvage(q, n, &errors, &skipped), "", "nothing left");
    eq_u64(errors, 1, "nothing left: one error");
    free(q);
    free(p);
}

/* A stream inside a payload is not taken for records while frames hold. */
static void nested(void)
{
    size_t n, m;
    unsigned errors;
    uint64_t skipped;
    unsigned char zero[100] = {0};
    unsigned char *inner = four(&n, zero, 100), *outer = four(&m, inner, n);
    outer[300] ^= 1;
    eq_str(salvage(outer, m, &errors, &skipped), "b,c,d",
           "a stream in a damaged payload");
    eq_u64(errors, 1, "is passed over whole");
    free(inner);
    free(outer);
}

static void refusals(void)
{
    unsigned char *ex1 = kit_dump(ex1_dump, EX1_SIZE);
    const struct tu_record *rec;
    struct tu_err err = {0};
    pid_t child;
    bool found;
    uint64_t gap;
    ex1[64] ^= 1;
    struct tu_reader *r = kit_reader(kit_pipe(ex1, EX1_SIZE, &child), 0, NULL);
    eq_int(tu_reader_recover(r, &found, &gap, &err), TU_EBUG, "nothing to recover from");
    eq_int(tu_reader_next(r, &rec, &err), TU_EHCRC, "damage");
    eq_int(tu_reader_recover(r, &found, &gap, &err), TU_EUSAGE,
           "a pipe cannot be searched");
    tu_reader_free(r);
    free(ex1);
}

int main(void)
{
    damage();
    nested();
    refusals();
    return tap_done();
}
