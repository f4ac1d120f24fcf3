/* SPDX-License-Identifier: Apache-2.0 */
/* stream: the reader, strict and not, recovery, and the index, over any bytes.
 *
 * Beyond not crashing: a stream that the strict reader accepts must open by index with
 * the same records.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <tensorutils/stream.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tu_in *input(const uint8_t *data, size_t size)
{
    struct tu_in *in;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET) ||
        tu_in_take_fd(&in, fd, "fuzz", NULL))
        abort();
    return in;
}

/* Records that copy, by reading to the end; *code is how it ended. */
static size_t by_reader(const uint8_t *data, size_t size, unsigned flags, int *code)
{
    struct tu_reader *r;
    const struct tu_record *rec;
    struct tu_err err;
    size_t n = 0;
    uint64_t skipped;
    bool found = false;
    if (tu_reader_new(&r, input(data, size), flags, NULL, NULL))
        abort();
    while (!(*code = tu_reader_next(r, &rec, &err)) && rec) {
        void *payload;
        n += rec->type != TU_REC_END && TU_REC_COPIES(rec->type);
        if (rec->type == TU_REC_TENSOR && n % 2 &&
            !tu_reader_load(r, 1 << 20, &payload, &err))
            tu_free(payload);
    }
    for (unsigned i = 0; *code && i < 16; i++) {
        if (tu_reader_recover(r, &found, &skipped, &err) || !found)
            break;
        while (!tu_reader_next(r, &rec, &err) && rec)
            ;
    }
    tu_reader_free(r);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int strict, loose;
    size_t records = by_reader(data, size, TU_READER_STRICT, &strict);
    by_reader(data, size, 0, &loose);
    if (!strict && loose)
        abort();

    struct tu_stream_index *x;
    int rc = tu_index_open(&x, input(data, size), NULL);
    if (!strict && (rc || tu_index_count(x) != records))
        abort();
    for (size_t i = 0; !rc && i < tu_index_count(x); i++)
        if (tu_index_verify(x, i, NULL, NULL) && !strict)
            abort();
    if (!rc)
        tu_index_close(x);
    return 0;
}
