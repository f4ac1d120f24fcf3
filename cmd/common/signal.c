/* SPDX-License-Identifier: Apache-2.0 */
/* signal.c: what a signal leaves behind: nothing.
 *
 * Temporary files live in a fixed table, because a handler may call neither malloc nor
 * a lock. SIGPIPE is ignored while we run, so that a closed pipe is an error of write
 * and output files are cleaned up; the process then ends as it would have by the
 * signal. SIGXFSZ is ignored too: a limit on the size of files is an error of write. */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/front.h"

#define TEMPORARIES 64 /* alive at once; further ones are not removed by a signal */

static struct {
    atomic_bool alive;
    char path[PATH_MAX];
} temporary[TEMPORARIES];
static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* writers; the handler reads alive */
static bool pipe_was_default;

static void on_signal(int sig)
{
    for (size_t i = 0; i < TEMPORARIES; i++)
        if (atomic_load(&temporary[i].alive))
            unlink(temporary[i].path);
    for (size_t i = 0; i < TEMPORARIES; i++)
        if (atomic_load(&temporary[i].alive))
            rmdir(temporary[i].path); /* a folder, now that its files are gone */
    /* SA_RESETHAND restored the default; the signal is pending until we return. */
    raise(sig);
}

void tu_temporary(void *ctx, const char *path, bool born)
{
    (void)ctx;
    size_t n = strlen(path);
    if (n >= PATH_MAX)
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < TEMPORARIES; i++) {
        bool alive = atomic_load(&temporary[i].alive);
        if (born && !alive) {
            memcpy(temporary[i].path, path, n + 1);
            atomic_store(&temporary[i].alive, true);
            break;
        }
        if (!born && alive && !strcmp(temporary[i].path, path)) {
            atomic_store(&temporary[i].alive, false);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

void tu_signals_begin(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction old, act = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&act.sa_mask);
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
