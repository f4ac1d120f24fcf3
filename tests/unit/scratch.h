/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h: an empty folder for a test, and proof that a call left nothing behind.
 *
 * scratch_enter() makes the folder and goes there; scratch_leave() removes it with the
 * files in it. scratch_files() and scratch_fds() count files and open descriptors. */
#ifndef TESTS_UNIT_SCRATCH_H
#define TESTS_UNIT_SCRATCH_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch_path[1024];

static inline void scratch_enter(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(scratch_path, sizeof scratch_path, "%s/unit-XXXXXX", base &&
             *base ? base : "/tmp");
    if (!mkdtemp(scratch_path) || chdir(scratch_path) < 0) {
        perror(scratch_path);
        exit(99);
    }
}

/* Entries of a folder without . and .. */
static inline int scratch_entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d)
        closedir(d);
    return n;
}

static inline int scratch_files(void)
{
    return scratch_entries(scratch_path);
}

static inline int scratch_fds(void)
{
    return scratch_entries("/proc/self/fd");
}

static inline void scratch_empty(void)
{
    DIR *d = opendir(scratch_path);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            unlinkat(dirfd(d), e->d_name, 0) < 0)
            unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    if (d)
        closedir(d);
}

static inline void scratch_leave(void)
{
    scratch_empty();
    if (chdir("/") == 0)
        rmdir(scratch_path);
}

#endif
