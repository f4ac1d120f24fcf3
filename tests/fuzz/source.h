/* SPDX-License-Identifier: Apache-2.0 */
/* source.h: body of the fuzz targets of formats: open the input as one format, read every tensor,
 * and hold the reader to what it promises. */
#ifndef TESTS_FUZZ_SOURCE_H
#define TESTS_FUZZ_SOURCE_H

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <tensorutils/format.h>

static inline void fuzz_read(struct tu_source *s)
{
    char buf[4099];
    for (size_t i = 0; i < s->n; i++) {
        const struct tu_tensor *t = &s->tensor[i];
        uint64_t want;
        if (tu_name_check(t->name, strlen(t->name)) != strlen(t->name) ||
            tu_tensor_bytes(t->dtype, t->dim, t->rank, &want, NULL) || want != t->bytes ||
            t->bytes > s->stored)
            __builtin_trap();
        for (uint64_t off = 0; off < t->bytes; off += sizeof buf) {
            if (tu_source_read(s, i, off, buf, (size_t)tu_min(sizeof buf, t->bytes - off), NULL))
                __builtin_trap();
        }
    }
}

/* _GNU_SOURCE, for memfd_create, is defined by who includes this. */
static inline int fuzz_source(const char *format, const struct tu_open *how, const uint8_t *data,
                              size_t size)
{
    char path[32];
    struct tu_source *s = NULL;
    struct tu_err err = { 0 };
    int fd = memfd_create(format, 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int code = tu_source_open(&s, path, tu_format_find(format), how, NULL, &err);
    if (code != err.code || (code && !err.msg[0]))
        __builtin_trap();
    if (!code)
        fuzz_read(s);
    tu_source_close(s);
    close(fd);
    return 0;
}

#endif
