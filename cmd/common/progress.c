/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c: one line on standard error: share done, rate of bytes, time left.
 *
 * It appears when a job has lasted a second (at once with --progress=always, and once for what
 * never reports), is redrawn at most ten times a second from whichever thread reports, and is
 * erased before any message. Outputs report what they have written, without knowing how much there
 * will be; who knows that goes before them. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "common/front.h"

#define BAR 24
#define PATIENCE 0.2 /* seconds for who knows the total to say so */

static struct {
    bool wanted, always, bytes;
    bool total, drawn; /* a report had a total; the bar was seen */
    const char *name;
    double begin, next; /* seconds of tu_clock */
    atomic_bool shown;
    pthread_mutex_t lock;
} bar = {.lock = PTHREAD_MUTEX_INITIALIZER};

void tu_progress_begin(const struct tu_ctx *ctx, bool always)
{
    bar.wanted = true;
    bar.always = always;
    bar.bytes = !(ctx->cmd->flags & TU_CMD_COUNTS);
    bar.name = ctx->top->name;
    bar.begin = tu_clock();
    bar.next = bar.begin + (always ? 0 : 1);
}

static int left_text(char *out, size_t n, double seconds)
{
    unsigned s = seconds < 359999 ? (unsigned)(seconds + 0.5) : 359999;
    if (s < 3600)
        return snprintf(out, n, "%u:%02u", s / 60, s % 60);
    return snprintf(out, n, "%u:%02u:%02u", s / 3600, s / 60 % 60, s % 60);
}

static void draw(uint64_t done, uint64_t total, double seconds)
{
    char line[200], marks[BAR + 1], size[16], rate[24] = "", left[16];
    double speed = seconds > 0 ? (double)done / seconds : 0;
    int n = snprintf(line, sizeof line, "\r%s: ", bar.name);
    size_t used = n > 0 ? (size_t)n : 0;
    if (bar.bytes)
        snprintf(rate, sizeof rate, " %s/s", tu_size_text((uint64_t)speed, size));
    if (total) {
        double share = done < total ? (double)done / (double)total : 1;
        size_t full = (size_t)(share * BAR);
        memset(marks, '=', full);
        memset(marks + full, ' ', BAR - full);
        marks[BAR] = '\0';
        left_text(left, sizeof left, speed > 0 ? (double)(total - done) / speed : 0);
        n = snprintf(line + used, sizeof line - used, "[%s] %3.0f%%%s %s left\033[K",
                     marks, 100 * share, rate, left);
    } else {
        n = snprintf(line + used, sizeof line - used, "%s%s\033[K",
                     tu_size_text(done, size), rate);
    }
    used += n > 0 ? (size_t)n : 0;
    ssize_t w = write(STDERR_FILENO, line, used < sizeof line ? used : sizeof line - 1);
    (void)w;
}

void tu_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    if (!bar.wanted || pthread_mutex_trylock(&bar.lock))
        return; /* another thread is drawing */
    double now = tu_clock();
    bar.total |= total != 0;
    if (now >= bar.next && (total || (!bar.total && now - bar.begin > PATIENCE))) {
        bar.drawn = true;
        bar.next = now + 0.1;
        atomic_store(&bar.shown, true);
        draw(done, total > done ? total : total ? done : 0, now - bar.begin);
    }
    pthread_mutex_unlock(&bar.lock);
}

void tu_progress_end(void)
{
    if (!bar.wanted || !bar.always || bar.drawn)
        return;
    bar.bytes = false;
    atomic_store(&bar.shown, true);
    draw(1, 1, tu_clock() - bar.begin);
}

const char *tu_progress_erase(void)
{
    return atomic_exchange(&bar.shown, false) ? "\r\033[K" : "";
}
