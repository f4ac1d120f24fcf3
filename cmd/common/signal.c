/* SPDX-License-Identifier: Apache-2.0 */
/* signal.c: what a signal leaves behind: nothing.
 *
 * Temporary files live in a fixed table, because a handler may call neither malloc nor
 * a lock; for the same reason a folder is listed by the system call that readdir stands
 * on. The handler runs on the main thread, which is the one that makes the files in a
 * folder: none is born behind its back.
 *
 * SIGPIPE is ignored while we run, so that a closed pipe is an error of write and output
 * files are cleaned up; the process then ends as it would have by the signal. SIGXFSZ is
 * ignored too: a limit on the size of files is an error of write. */

/* syscall needs _GNU_SOURCE. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "common/front.h"

#define TEMPORARIES 64 /* alive at once; further ones are not removed by a signal */
#define DEPTH 8        /* of folders in a temporary one */
#define PASSES 100     /* over a folder that does not get empty */

static struct temporary {
    atomic_bool alive, tree;
    dev_t dev; /* of a tree: the folder that it was, whatever has its name now */
    ino_t ino;
    char path[PATH_MAX];
} temporary[TEMPORARIES];
static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* writers; the handler reads alive */
static pthread_t main_thread;
static bool pipe_was_default;

/* Source: getdents(2). */
struct entry {
    uint64_t ino;
    int64_t off;
    unsigned short len;
    unsigned char type;
    char name[];
};

/* Remove what is below an open folder, which is closed; true where something was. */
static bool empty_folder(int dir, int depth)
{
    union {
        struct entry align;
        char bytes[4096];
    } room;
    bool some = false;
    long n;
    while (dir >= 0 && (n = syscall(SYS_getdents64, dir, room.bytes, sizeof room)) > 0) {
        for (const char *at = room.bytes; at < room.bytes + n;) {
            const struct entry *e = (const struct entry *)(const void *)at;
            const char *name = e->name;
            at += e->len;
            if (!strcmp(name, ".") || !strcmp(name, ".."))
                continue;
            some = true;
            if (!unlinkat(dir, name, 0) || !depth)
                continue;
            int below = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            empty_folder(below, depth - 1);
            unlinkat(dir, name, AT_REMOVEDIR);
        }
    }
    if (dir >= 0)
        close(dir);
    return some;
}

static void remove_tree(const struct temporary *t)
{
    for (int pass = 0; pass < PASSES; pass++) {
        struct stat st;
        int dir = open(t->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0)
            return;
        if (fstat(dir, &st) || st.st_dev != t->dev || st.st_ino != t->ino) {
            close(dir);
            return;
        }
        if (!empty_folder(dir, DEPTH) && !rmdir(t->path))
            return;
    }
}

static void on_signal(int sig)
{
    int kept = errno;
    if (!pthread_equal(pthread_self(), main_thread)) {
        pthread_kill(main_thread, sig);
        errno = kept;
        return;
    }
    for (size_t i = 0; i < TEMPORARIES; i++)
        if (atomic_load(&temporary[i].alive) && !atomic_load(&temporary[i].tree))
            unlink(temporary[i].path);
    for (size_t i = 0; i < TEMPORARIES; i++)
        if (atomic_load(&temporary[i].alive) && atomic_load(&temporary[i].tree))
            remove_tree(&temporary[i]);
    for (size_t i = 0; i < TEMPORARIES; i++)
        if (atomic_load(&temporary[i].alive))
            rmdir(temporary[i].path); /* a folder, now that its files are gone */
    signal(sig, SIG_DFL);
    raise(sig); /* pending until we return */
}

/* The number of a living path, TEMPORARIES where there is none; NULL: of a free place. */
static size_t place_of(const char *path)
{
    size_t i = 0;
    for (; i < TEMPORARIES; i++) {
        bool alive = atomic_load(&temporary[i].alive);
        if (path ? alive && !strcmp(temporary[i].path, path) : !alive)
            break;
    }
    return i;
}

void tu_temporary(void *ctx, const char *path, enum tu_temporary state)
{
    (void)ctx;
    size_t n = strlen(path);
    struct stat st;
    if (n >= PATH_MAX)
        return;
    pthread_mutex_lock(&lock);
    size_t i = place_of(state == TU_TEMP_BORN ? NULL : path);
    struct temporary *t = i < TEMPORARIES ? &temporary[i] : NULL;
    if (t && state == TU_TEMP_BORN) {
        memcpy(t->path, path, n + 1);
        atomic_store(&t->tree, false);
        atomic_store(&t->alive, true);
    } else if (t && state == TU_TEMP_TREE && !stat(path, &st)) {
        t->dev = st.st_dev;
        t->ino = st.st_ino;
        atomic_store(&t->tree, true);
    } else if (t && state == TU_TEMP_GONE) {
        atomic_store(&t->alive, false);
    }
    pthread_mutex_unlock(&lock);
}

void tu_signals_begin(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction old, act = {.sa_handler = on_signal};
    sigemptyset(&act.sa_mask);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        sigaddset(&act.sa_mask, ends[i]);
    main_thread = pthread_self();
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (!sigaction(ends[i], NULL, &old) &&
            old.sa_handler != SIG_IGN) /* nohup stays */
            sigaction(ends[i], &act, NULL);
    pipe_was_default = !sigaction(SIGPIPE, NULL, &old) && old.sa_handler != SIG_IGN;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

int tu_pipe_status(void)
{
    if (pipe_was_default) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    return TU_STATUS_SYSTEM;
}
