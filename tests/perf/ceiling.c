/* SPDX-License-Identifier: Apache-2.0 */
/* ceiling.c: what the machine can do, for tests/perf to divide by.
 *
 *   ceiling read FILE THREADS   read every byte of FILE, a share per thread
 *   ceiling pass                standard input to standard output, 1 MiB at a time, pipes
 * of 1 MiB ceiling time CMD ARG...     run CMD; "SECONDS PEAK_KIB STATUS" on standard
 * error's descriptor 3
 */
#define _GNU_SOURCE /* F_SETPIPE_SZ, wait4 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHUNK ((size_t)1 << 20)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct share {
    int fd;
    off_t from, to;
};

static void *read_share(void *p)
{
    struct share *s = p;
    char *buf = malloc(CHUNK);
    while (buf && s->from < s->to) {
        ssize_t n = pread(s->fd, buf, CHUNK, s->from);
        if (n <= 0)
            break;
        s->from += n;
    }
    free(buf);
    return NULL;
}

static int read_file(const char *path, int threads)
{
    struct stat st;
    pthread_t t[64];
    struct share s[64];
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) || threads < 1 || threads > 64)
        return 1;
    for (int i = 0; i < threads; i++) {
        s[i] = (struct share){fd, st.st_size / threads * i,
                              i + 1 == threads ? st.st_size
                                               : st.st_size / threads * (i + 1)};
        if (pthread_create(&t[i], NULL, read_share, &s[i]))
            return 1;
    }
    for (int i = 0; i < threads; i++)
        pthread_join(t[i], NULL);
    return 0;
}

static int pass(void)
{
    char *buf = malloc(CHUNK);
    ssize_t n;
    (void)fcntl(0, F_SETPIPE_SZ, (int)CHUNK);
    (void)fcntl(1, F_SETPIPE_SZ, (int)CHUNK);
    while (buf && (n = read(0, buf, CHUNK)) > 0)
        for (ssize_t at = 0; at < n;) {
            ssize_t k = write(1, buf + at, (size_t)(n - at));
            if (k < 0)
                return 1;
            at += k;
        }
    free(buf);
    return 0;
}

static int timed(char **argv)
{
    struct rusage use;
    int status = 0;
    double begin = now();
    pid_t pid = fork();
    if (pid == 0) {
        close(3);
        execvp(argv[0], argv);
        _exit(127);
    }
    if (pid < 0 || wait4(pid, &status, 0, &use) < 0)
        return 1;
    dprintf(3, "%.6f %ld %d\n", now() - begin, use.ru_maxrss,
            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "read"))
        return read_file(argv[2], atoi(argv[3]));
    if (argc == 2 && !strcmp(argv[1], "pass"))
        return pass();
    if (argc > 2 && !strcmp(argv[1], "time"))
        return timed(argv + 2);
    return 2;
}
