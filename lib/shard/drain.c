/* SPDX-License-Identifier: Apache-2.0 */
/* drain.c: streams taken at once into a ring, and written behind the producer's back.
 *
 * Three threads: one reads the input into the ring, one writes the ring as files of the
 * first level, one copies files that are published there to the second. Where the ring is
 * full the first waits, and so does the producer, at its pipe. A file has the suffix
 * .partial until it is checked and durable; the level's `latest` names it only then.
 * Source: A. Maurya et al., "DataStates-LLM: Lazy Asynchronous Checkpointing for Large
 * Language Models", HPDC 2024. Not for streams that must be looked into. */

/* F_SETPIPE_SZ needs _GNU_SOURCE. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "drain.h"

#define RING_LEAST ((uint64_t)1 << 16)
#define POLL_MS 100

struct drain {
    struct tu_drain *how;
    const struct tu_job *job;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t moved; /* any of it changed */
    char *ring;
    uint64_t size, in, out; /* bytes of the ring, taken and written so far */
    uint64_t *end;          /* [taken] where checkpoints end, in bytes of the input */
    size_t taken, cap, written, copied;
    bool finished; /* the input has ended, or was given up */
    bool first_done; /* nothing more is published at the first level */
    uint64_t oldest; /* number of the first that may be at the first level */
    int code;        /* of the first failure: no more is read, what was taken is finished */
    struct tu_err err;
    struct tui_frames frames;
};

/* Names ---------------------------------------------------------------------------------- */

/* "DIR/NAME", with the number of the checkpoint in the place of %d. */
static int name_of(const struct drain *d, const char *folder, uint64_t number,
                   struct tu_buf *out, struct tu_err *err)
{
    const char *name = d->how->name, *at = strstr(name, "%d");
    tu_buf_reset(out);
    if (!at)
        return tu_buf_printf(out, err, "%s%s%s", folder, *folder ? "/" : "", name);
    return tu_buf_printf(out, err, "%s%s%.*s%06llu%s", folder, *folder ? "/" : "",
                         (int)(at - name), name, (unsigned long long)number, at + 2);
}

static bool is_there(const struct drain *d, const char *folder, uint64_t number)
{
    struct tu_buf b = {0};
    bool yes = folder && !name_of(d, folder, number, &b, NULL) && !access(b.data, F_OK);
    tu_buf_release(&b);
    return yes;
}

/* Shared state --------------------------------------------------------------------------- */

static void tell(struct drain *d, enum tu_drain_event what, uint64_t number, uint64_t bytes)
{
    d->how->event(d->how->ctx, what, number, bytes);
}

static void fail(struct drain *d, int code, const struct tu_err *err)
{
    pthread_mutex_lock(&d->lock);
    if (!d->code) {
        d->code = code;
        d->err = *err;
    }
    pthread_cond_broadcast(&d->moved);
    pthread_mutex_unlock(&d->lock);
}

/* Level one and the input ------------------------------------------------------------------ */

/* Room for the next bytes, in one piece; 0: another thread has failed. */
static size_t room(struct drain *d, char **at)
{
    double begin = 0;
    pthread_mutex_lock(&d->lock);
    while (!d->code && d->in - d->out == d->size) {
        begin = begin > 0 ? begin : tu_clock();
        pthread_cond_wait(&d->moved, &d->lock);
    }
    d->how->stall_s += begin > 0 ? tu_clock() - begin : 0;
    uint64_t place = d->in % d->size, n = d->size - (d->in - d->out);
    *at = d->ring + place;
    n = d->code ? 0 : tu_min(n, d->size - place);
    pthread_mutex_unlock(&d->lock);
    return (size_t)tu_min(n, TU_IO_CHUNK);
}

/* n more bytes of the ring are taken; checkpoints may end in them. */
static int take(struct drain *d, const char *p, size_t n, struct tu_err *err)
{
    size_t used = 0;
    int rc = 0;
    pthread_mutex_lock(&d->lock);
    while (used < n && !rc) {
        bool end = false;
        size_t k = 0;
        rc = tui_frames_add(&d->frames, p + used, n - used, &k, &end, err);
        used += k;
        if (rc || !end)
            continue;
        if (!(rc = TU_GROW(&d->end, &d->cap, d->taken, err))) {
            d->end[d->taken++] = d->in + used;
            tell(d, TU_DRAIN_TAKEN, d->how->first + d->taken - 1,
                 d->in + used - (d->taken > 1 ? d->end[d->taken - 2] : 0));
        }
    }
    d->in += n;
    pthread_cond_broadcast(&d->moved);
    pthread_mutex_unlock(&d->lock);
    return rc;
}

static int read_some(struct drain *d, char *at, size_t n, size_t *got, struct tu_err *err)
{
    struct pollfd p = {.fd = d->how->fd, .events = POLLIN};
    for (;;) {
        if (tu_job_cancelled(d->job))
            return tu_fail(err, TU_ECANCEL, "stopped on request");
        int ready = poll(&p, 1, POLL_MS);
        ssize_t r = ready > 0 ? read(d->how->fd, at, n) : -1;
        if (r >= 0) {
            *got = (size_t)r;
            return 0;
        }
        if (ready < 0 ? errno != EINTR : ready && errno != EINTR && errno != EAGAIN)
            return tu_fail_errno(err, "standard input");
        pthread_mutex_lock(&d->lock);
        int code = d->code;
        pthread_mutex_unlock(&d->lock);
        if (code)
            return tu_fail(err, code, "another thread has failed");
    }
}

static void *run_input(void *ctx)
{
    struct drain *d = ctx;
    struct tu_err err;
    char *at;
    size_t n, got = 1;
    int rc = 0;
    (void)fcntl(d->how->fd, F_SETPIPE_SZ, (int)TU_IO_CHUNK); /* fewer calls, if it is one */
    while (!rc && got && (n = room(d, &at))) {
        if (!(rc = read_some(d, at, n, &got, &err)) && got)
            rc = take(d, at, got, &err);
    }
    if (!rc && !got && !tui_frames_whole(&d->frames))
        rc = tu_fail(&err, TU_ETRUNC, "standard input ends inside a checkpoint, after %llu "
                     "bytes", (unsigned long long)d->in);
    if (rc)
        fail(d, rc, &err);
    pthread_mutex_lock(&d->lock);
    d->finished = true;
    pthread_cond_broadcast(&d->moved);
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* Bytes to write, in one piece and not beyond the end of the checkpoint; 0: there are no
 * more, or it ends here (*end). What was taken is written whoever fails. */
static size_t ready(struct drain *d, const char **at, bool *end)
{
    pthread_mutex_lock(&d->lock);
    for (;;) {
        *end = d->written < d->taken && d->out == d->end[d->written];
        if (*end || d->in > d->out || d->finished)
            break;
        pthread_cond_wait(&d->moved, &d->lock);
    }
    uint64_t place = d->out % d->size, n = tu_min(d->in - d->out, d->size - place);
    if (d->written < d->taken)
        n = tu_min(n, d->end[d->written] - d->out);
    *at = d->ring + place;
    n = *end ? 0 : n;
    pthread_mutex_unlock(&d->lock);
    return (size_t)tu_min(n, TU_IO_CHUNK);
}

static void wrote(struct drain *d, size_t n)
{
    pthread_mutex_lock(&d->lock);
    d->out += n;
    pthread_cond_broadcast(&d->moved);
    pthread_mutex_unlock(&d->lock);
}

/* One checkpoint from the ring; *any false: there was none. */
static int write_first(struct drain *d, struct tui_level_file *f, bool *any,
                       struct tu_err *err)
{
    const char *at;
    bool end = false;
    size_t n;
    int rc = 0;
    for (*any = false; !rc && (n = ready(d, &at, &end)); wrote(d, n)) {
        if (!*any)
            rc = tui_level_open(f, d->job, err);
        *any = true;
        if (!rc)
            rc = tui_level_write(f, at, n, err);
    }
    if (!rc && *any && !end)
        rc = tu_fail(err, TU_ECANCEL, "stopped inside a checkpoint");
    if (!rc && *any)
        rc = tui_level_check(f, err);
    return rc;
}

static void *run_first(void *ctx)
{
    struct drain *d = ctx;
    struct tu_buf name = {0};
    struct tu_err err;
    bool any = true;
    for (uint64_t number = d->how->first; any; number++) {
        struct tui_level_file f = {.fd = -1, .force = d->how->force};
        uint64_t bytes = 0;
        int rc = name_of(d, d->how->fast, number, &name, &err);
        f.path = name.data;
        if (!rc)
            rc = write_first(d, &f, &any, &err);
        if (!rc && any) {
            bytes = f.bytes;
            rc = tui_level_publish(&f, d->how->fast, d->job, &err);
        }
        tui_level_close(&f, d->job);
        if (rc)
            fail(d, rc, &err);
        any = any && !rc;
        pthread_mutex_lock(&d->lock);
        d->written += any;
        d->first_done = !any;
        if (any)
            tell(d, TU_DRAIN_FIRST, number, bytes);
        pthread_cond_broadcast(&d->moved);
        pthread_mutex_unlock(&d->lock);
    }
    tu_buf_release(&name);
    return NULL;
}

/* Level two -------------------------------------------------------------------------------- */

static int copy_one(struct drain *d, uint64_t number, uint64_t *bytes, struct tu_err *err)
{
    struct tui_level_file f = {.fd = -1, .force = d->how->force};
    struct tu_buf from = {0}, to = {0};
    int rc = name_of(d, d->how->fast, number, &from, err);
    if (!rc)
        rc = name_of(d, d->how->slow, number, &to, err);
    f.path = to.data;
    if (!rc)
        rc = tui_level_open(&f, d->job, err);
    if (!rc)
        rc = tui_level_copy(&f, from.data, d->job, err);
    if (!rc)
        rc = tui_level_check(&f, err);
    *bytes = f.bytes;
    if (!rc)
        rc = tui_level_publish(&f, d->how->slow, d->job, err);
    tui_level_close(&f, d->job);
    tu_buf_release(&from);
    tu_buf_release(&to);
    return rc;
}

/* Those below `number` have left the first level, but for its newest, which `latest` names. */
static int leave(struct drain *d, uint64_t number, struct tu_err *err)
{
    struct tu_buf b = {0};
    int rc = 0;
    pthread_mutex_lock(&d->lock);
    uint64_t newest = d->how->first + d->written;
    pthread_mutex_unlock(&d->lock);
    for (; !rc && d->oldest < number && d->oldest + 1 < newest; d->oldest++) {
        rc = name_of(d, d->how->fast, d->oldest, &b, err);
        if (!rc && unlink(b.data) && errno != ENOENT)
            rc = tu_fail_errno(err, "%s", b.data);
    }
    tu_buf_release(&b);
    return rc;
}

/* What an earlier run left at the first level, and what is written now. */
static void *run_second(void *ctx)
{
    struct drain *d = ctx;
    struct tu_err err;
    int rc = 0;
    for (uint64_t number = d->how->waiting; !rc; number++) {
        uint64_t bytes = 0;
        pthread_mutex_lock(&d->lock);
        while (number >= d->how->first + d->written && !d->first_done)
            pthread_cond_wait(&d->moved, &d->lock);
        bool done = number >= d->how->first + d->written;
        pthread_mutex_unlock(&d->lock);
        if (done)
            break;
        if (is_there(d, d->how->slow, number) && number < d->how->first)
            continue;
        rc = copy_one(d, number, &bytes, &err);
        if (!rc && !d->how->keep)
            rc = leave(d, number + 1, &err);
        if (rc)
            fail(d, rc, &err);
        pthread_mutex_lock(&d->lock);
        if (!rc)
            tell(d, TU_DRAIN_SECOND, number, bytes);
        pthread_mutex_unlock(&d->lock);
    }
    return NULL;
}

/* Together ----------------------------------------------------------------------------------- */

/* The number of the first checkpoint that is nowhere, and of the first that waits for the
 * second level. */
static int find_numbers(struct drain *d, struct tu_err *err)
{
    struct tu_drain *h = d->how;
    bool numbered = strstr(h->name, "%d") != NULL, found = false, any = false;
    if (strchr(h->name, '/') || !*h->name)
        return tu_fail(err, TU_EUSAGE, "'%.100s' is no name of a file", h->name);
    for (h->first = 0;; h->first++) {
        bool fast = is_there(d, h->fast, h->first), slow = is_there(d, h->slow, h->first);
        if ((!fast && !slow) || (!numbered && h->force))
            break;
        if (!numbered)
            return tu_fail(err, TU_EEXISTS, "%.100s: exists (-f replaces it)", h->name);
        if (!any && fast)
            d->oldest = h->first;
        any = any || fast;
        if (!found && fast && !slow) {
            h->waiting = h->first;
            found = true;
        }
    }
    if (!found)
        h->waiting = h->first;
    if (!any)
        d->oldest = h->first;
    return 0;
}

static int run_threads(struct drain *d, struct tu_err *err)
{
    void *(*const run[])(void *) = {run_first, run_second, run_input};
    pthread_t thread[3];
    size_t n = 0;
    int rc = 0;
    for (size_t i = 0; i < 3 && !rc; i++) {
        if (run[i] == run_second && !d->how->slow)
            continue;
        if (pthread_create(&thread[n], NULL, run[i], d))
            rc = tu_fail(err, TU_ENOMEM, "no thread can be started");
        n += !rc;
    }
    if (rc)
        fail(d, rc, err);
    for (size_t i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    return rc;
}

int tu_drain(struct tu_drain *how, const struct tu_job *job, struct tu_err *err)
{
    struct drain d = {.how = how, .job = job};
    d.size = tu_max(tu_job_memory(job), RING_LEAST);
    how->stall_s = 0;
    if (pthread_mutex_init(&d.lock, NULL) || pthread_cond_init(&d.moved, NULL))
        return tu_fail(err, TU_ENOMEM, "no lock can be made");
    int rc = find_numbers(&d, err);
    if (!rc && !(d.ring = tu_alloc((size_t)d.size, 1, err)))
        rc = TU_ENOMEM;
    if (!rc)
        rc = run_threads(&d, err);
    if (!rc && d.code) {
        rc = d.code;
        if (err)
            *err = d.err;
    }
    how->count = d.written;
    pthread_cond_destroy(&d.moved);
    pthread_mutex_destroy(&d.lock);
    tu_free(d.ring);
    tu_free(d.end);
    return rc;
}
