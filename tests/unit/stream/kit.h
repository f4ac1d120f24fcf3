/* SPDX-License-Identifier: Apache-2.0 */
/* kit.h: streams in memory for the tests of lib/stream, as files and as pipes.
 *
 * _GNU_SOURCE (of the including file) for memfd_create. */
#ifndef TESTS_UNIT_STREAM_KIT_H
#define TESTS_UNIT_STREAM_KIT_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tensorutils/stream.h>
#include "../tap.h"
#include "examples.h"

static inline void kit_must(bool yes, const char *what)
{
    if (yes)
        return;
    printf("Bail out! %s\n", what);
    exit(1);
}

/* An anonymous file that holds p[n], standing at its start. */
static inline int kit_file(const void *p, size_t n)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    kit_must(fd >= 0 && write(fd, p, n) == (ssize_t)n && !lseek(fd, 0, SEEK_SET),
             "memfd");
    return fd;
}

/* A pipe that gives p[n]: a child writes what the pipe cannot hold. *child: to wait for,
 * or 0. */
static inline int kit_pipe(const void *p, size_t n, pid_t *child)
{
    int fd[2];
    kit_must(!pipe(fd), "pipe");
    *child = n > 4096 ? fork() : 0;
    if (n <= 4096 || !*child) {
        if (n > 4096)
            close(fd[0]);
        for (size_t done = 0; done < n;) {
            ssize_t w = write(fd[1], (const char *)p + done, n - done);
            if (w <= 0)
                break;
            done += (size_t)w;
        }
        if (n > 4096)
            _exit(0);
    }
    close(fd[1]);
    return fd[0];
}

/* A reader over fd, which it takes. */
static inline struct tu_reader *kit_reader(int fd, unsigned flags, struct tu_pool *pool)
{
    struct tu_in *in;
    struct tu_reader *r;
    kit_must(!tu_in_take_fd(&in, fd, "test.tns", NULL) &&
                 !tu_reader_new(&r, in, flags, pool, NULL),
             "reader");
    return r;
}

/* Every record of p[n] to the end: the code, with *err. */
static inline int kit_read(const void *p, size_t n, unsigned flags, bool pipe,
                           struct tu_pool *pool, struct tu_err *err)
{
    struct tu_in *in;
    struct tu_reader *r = NULL;
    const struct tu_record *rec;
    pid_t child = 0;
    int fd = pipe ? kit_pipe(p, n, &child) : kit_file(p, n);
    kit_must(!tu_in_take_fd(&in, fd, "test.tns", err) &&
                 !tu_reader_new(&r, in, flags, pool, err),
             "reader");
    int rc;
    while (!(rc = tu_reader_next(r, &rec, err)) && rec)
        ;
    tu_reader_free(r);
    if (child)
        waitpid(child, NULL, 0);
    return rc;
}

/* A writer over an anonymous file; *fd stays the test's. */
static inline struct tu_writer *kit_writer(int *fd)
{
    struct tu_out *out;
    struct tu_writer *w = NULL;
    struct tu_err err;
    *fd = kit_file("", 0);
    kit_must(!tu_out_take_fd(&out, dup(*fd), "out.tns", &err) &&
                 !tu_writer_new(&w, out, &err),
             "writer");
    return w;
}

/* What the file holds (free) and closes it. */
static inline unsigned char *kit_bytes(int fd, size_t *n)
{
    off_t size = lseek(fd, 0, SEEK_END);
    unsigned char *p = malloc((size_t)size + 1);
    kit_must(p && pread(fd, p, (size_t)size, 0) == size, "read back");
    close(fd);
    *n = (size_t)size;
    return p;
}

/* The bytes of a dump, size of them. */
static inline unsigned char *kit_dump(const char *dump, size_t size)
{
    unsigned char *p = calloc(size, 1);
    kit_must(p, "memory");
    for (const char *line = dump; *line; line = strchr(line, '\n') + 1) {
        if (*line == '*')
            continue;
        char *at;
        size_t off = strtoul(line, &at, 16);
        for (unsigned i = 0; i < 16 && off + i < size; i++)
            p[off + i] = (unsigned char)strtoul(at, &at, 16);
    }
    return p;
}

/* The first 16 digits of the SHA-256. */
static inline const char *kit_sha(const void *p, size_t n)
{
    static char hex[TU_SHA256_HEX];
    unsigned char digest[TU_SHA256_SIZE];
    struct tu_sha256 *s = tu_sha256_new(NULL);
    kit_must(s, "memory");
    tu_sha256_add(s, p, n);
    tu_sha256_end(s, digest);
    tu_sha256_free(s);
    tu_sha256_hex(digest, hex);
    hex[16] = '\0';
    return hex;
}

#endif
