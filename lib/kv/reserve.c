/* SPDX-License-Identifier: Apache-2.0 */
/* reserve.c: address space reserved whole, memory mapped into it a page at a time.
 *
 * Memory is a file without a name; page p of it is its bytes from p * page. Group g is its
 * pages g * tensors and on, so that taking a group is taking one number. Huge pages are
 * the system's own instead, which it gives to no such file unless told to by root: there
 * a group is only a right to so much. What is not mapped has no access.
 *
 * Who maps ahead takes a group under the lock, marks its request busy and maps without the
 * lock; a busy request's groups are nobody else's to change. */
#define _GNU_SOURCE /* memfd_create, MAP_ANONYMOUS, MAP_NORESERVE, madvise */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <tensorutils/kv/reserve.h>

enum { HUGE_PAGE = 2 << 20 };

struct request {
    bool live, busy; /* busy: a group is being mapped ahead */
    uint64_t tokens, groups; /* mapped */
    uint64_t *group;         /* [most] their numbers */
};

struct tu_kv_reserve {
    struct tu_kv_reserve_how how;
    struct tu_kv_reserve_count count;
    uint64_t slot, most; /* bytes of a request in a tensor; groups of a request */
    unsigned char *base; /* tensors * requests * slot bytes */
    void *space;         /* which are in this; of `reserved` bytes */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool running, stop, idle;
    int memory;
    struct request *request;
    uint64_t *group; /* storage of all requests' lists */
    uint64_t *spare; /* [spares] groups that nobody has, taken from the end */
    uint64_t spares;
};

uint64_t tu_kv_reserve_tokens(const struct tu_kv_reserve_how *how)
{
    return how->row ? how->page / how->row : 0;
}

int tu_kv_reserve_slot(const struct tu_kv_reserve_how *how, uint64_t *bytes,
                       struct tu_err *err)
{
    uint64_t n;
    if (!how->page || tu_mul_over(how->row, how->context, &n) || n > UINT64_MAX - how->page)
        return tu_fail(err, TU_ESIZE, "a request of %" PRIu64 " tokens of %" PRIu64 " bytes",
                       how->context, how->row);
    *bytes = (n + how->page - 1) / how->page * how->page;
    return 0;
}

static int check(const struct tu_kv_reserve_how *how, struct tu_err *err)
{
    long system = sysconf(_SC_PAGESIZE);
    if (!how->row || !how->tensors || !how->requests || !how->context || !how->groups)
        return tu_fail(err, TU_EUSAGE, "a reservation of nothing");
    if (system < 1 || !how->page || how->page % (uint64_t)system)
        return tu_fail(err, TU_EUSAGE, "pages of %" PRIu64 " bytes: the system's have %ld",
                       how->page, system);
    if (how->huge && how->page % HUGE_PAGE)
        return tu_fail(err, TU_EUSAGE, "huge pages in pages of %" PRIu64 " bytes", how->page);
    if (how->row > how->page)
        return tu_fail(err, TU_EUSAGE, "a token of %" PRIu64 " bytes, pages of %" PRIu64,
                       how->row, how->page);
    return 0;
}

static int map_space(struct tu_kv_reserve *r, struct tu_err *err)
{
    const struct tu_kv_reserve_how *how = &r->how;
    uint64_t space, memory;
    if (tu_mul_over(r->slot, how->requests, &space) ||
        tu_mul_over(space, how->tensors, &space) || space > SIZE_MAX ||
        tu_mul_over(how->groups, how->tensors, &memory) ||
        tu_mul_over(memory, how->page, &memory) || memory > INT64_MAX ||
        space > SIZE_MAX - HUGE_PAGE)
        return tu_fail(err, TU_ESIZE, "a reservation beyond the address space");
    if (!how->huge) {
        r->memory = memfd_create("kv", MFD_CLOEXEC);
        if (r->memory < 0 || ftruncate(r->memory, (off_t)memory) < 0)
            return tu_fail_errno(err, "%" PRIu64 " bytes of memory", memory);
    }
    space += how->huge ? HUGE_PAGE : 0;
    void *p = mmap(NULL, (size_t)space, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return tu_fail_errno(err, "%" PRIu64 " bytes of address space", space);
    uintptr_t at = (uintptr_t)p;
    r->space = p;
    r->base = (unsigned char *)p + (how->huge ? -at % HUGE_PAGE : 0);
    r->count.reserved = space;
    return 0;
}

static void *map_ahead(void *arg);

static int start(struct tu_kv_reserve *r, struct tu_err *err)
{
    if (!r->how.ahead)
        return 0;
    errno = pthread_create(&r->thread, NULL, map_ahead, r);
    if (errno)
        return tu_fail_errno(err, "a thread to map ahead");
    r->running = true;
    return 0;
}

int tu_kv_reserve_new(struct tu_kv_reserve **out, const struct tu_kv_reserve_how *how,
                      struct tu_err *err)
{
    *out = NULL;
    int rc = check(how, err);
    struct tu_kv_reserve *r = rc ? NULL : tu_calloc(1, sizeof *r, err);
    if (!r)
        return rc ? rc : TU_ENOMEM;
    r->how = *how;
    r->memory = -1;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    uint64_t per = tu_kv_reserve_tokens(how), all;
    if ((rc = tu_kv_reserve_slot(how, &r->slot, err)))
        goto out;
    /* Whole tokens only: the last group of a full context may be one more than slot has. */
    r->most = tu_min((how->context + per - 1) / per, r->slot / how->page);
    rc = TU_ENOMEM;
    if (tu_mul_over(r->most, how->requests, &all) || all > SIZE_MAX) {
        rc = tu_fail(err, TU_ESIZE, "a reservation beyond the address space");
        goto out;
    }
    r->request = tu_calloc(how->requests, sizeof *r->request, err);
    r->group = tu_alloc(all, sizeof *r->group, err);
    r->spare = tu_alloc(how->groups, sizeof *r->spare, err);
    if (!r->request || !r->group || !r->spare || (rc = map_space(r, err)))
        goto out;
    for (uint64_t i = 0; i < how->requests; i++)
        r->request[i].group = r->group + i * r->most;
    for (r->spares = 0; r->spares < how->groups; r->spares++)
        r->spare[r->spares] = how->groups - 1 - r->spares;
    if ((rc = start(r, err)))
        goto out;
    *out = r;
    return 0;
out:
    tu_kv_reserve_free(r);
    return rc;
}

void tu_kv_reserve_free(struct tu_kv_reserve *r)
{
    if (!r)
        return;
    if (r->running) {
        pthread_mutex_lock(&r->lock);
        r->stop = true;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        pthread_join(r->thread, NULL);
    }
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    if (r->space)
        munmap(r->space, (size_t)r->count.reserved);
    if (r->memory >= 0)
        close(r->memory);
    tu_free(r->request);
    tu_free(r->group);
    tu_free(r->spare);
    tu_free(r);
}

void *tu_kv_reserve_at(const struct tu_kv_reserve *r, uint64_t tensor, uint64_t request,
                       uint64_t *stride)
{
    if (stride)
        *stride = r->slot;
    return r->base + (tensor * r->how.requests + request) * r->slot;
}

/* A page's memory at `to`: page `number` of all there is, or none. */
static void *map_page(const struct tu_kv_reserve *r, void *to, const uint64_t *number)
{
    size_t page = (size_t)r->how.page;
    if (!number)
        return mmap(to, page, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (!r->how.huge)
        return mmap(to, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, r->memory,
                    (off_t)(*number * page));
    void *p = mmap(to, page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (p != MAP_FAILED)
        (void)madvise(p, page, MADV_HUGEPAGE); /* advice: small ones do as well */
    return p;
}

/* Page `at` of a request in every tensor: of group g, or none. `filled`: have the memory
 * there before it is first written to. A failure leaves none. */
static int set_group(const struct tu_kv_reserve *r, uint64_t request, uint64_t at,
                     const uint64_t *g, bool filled, struct tu_err *err)
{
    size_t page = (size_t)r->how.page;
    for (uint64_t t = 0; t < r->how.tensors; t++) {
        unsigned char *to = tu_kv_reserve_at(r, t, request, NULL);
        uint64_t number = g ? *g * r->how.tensors + t : 0;
        void *p = map_page(r, to + at * page, g ? &number : NULL);
        if (p == MAP_FAILED) {
            int rc = tu_fail_errno(err, "page %" PRIu64 " of tensor %" PRIu64, at, t);
            while (g && t-- > 0)
                (void)map_page(r, (unsigned char *)tu_kv_reserve_at(r, t, request, NULL) +
                                      at * page, NULL);
            return rc;
        }
#ifdef MADV_POPULATE_WRITE
        if (filled)
            (void)madvise(p, page, MADV_POPULATE_WRITE);
#endif
    }
    (void)filled;
    return 0;
}

static uint64_t needed(const struct tu_kv_reserve *r, const struct request *q)
{
    uint64_t per = tu_kv_reserve_tokens(&r->how);
    return q->live ? tu_min(r->most, q->tokens / per + (q->tokens % per != 0)) : 0;
}

/* Take the last group of a request that does not need it: an ended one's, and if `live`
 * one that is mapped ahead. */
static int take_back(struct tu_kv_reserve *r, bool live, struct tu_err *err)
{
    for (uint64_t i = 0; !r->spares && i < r->how.requests; i++) {
        struct request *q = &r->request[i];
        if (q->busy || q->live != live || q->groups <= needed(r, q))
            continue;
        int rc = set_group(r, i, q->groups - 1, NULL, false, err);
        if (rc)
            return rc;
        r->count.unmaps += r->how.tensors;
        r->spare[r->spares++] = q->group[--q->groups];
    }
    return 0;
}

/* A group for who waits for it, or to map ahead. TU_ENOMEM: there is none. */
static int take(struct tu_kv_reserve *r, bool waits, uint64_t *g, struct tu_err *err)
{
    int rc = take_back(r, false, err);
    if (!rc && waits)
        rc = take_back(r, true, err);
    if (!rc && !r->spares)
        rc = tu_fail(err, TU_ENOMEM, "all %" PRIu64 " groups of pages are in use",
                     r->how.groups);
    if (!rc)
        *g = r->spare[--r->spares];
    return rc;
}

static struct request *wants_more(struct tu_kv_reserve *r)
{
    for (uint64_t i = 0; i < r->how.requests; i++) {
        struct request *q = &r->request[i];
        if (q->live && q->tokens && q->groups == needed(r, q) && q->groups < r->most)
            return q;
    }
    return NULL;
}

/* The thread: one group more for each live request that has just what it needs. Where
 * there is none it waits for a change, as it does when all have theirs. */
static void *map_ahead(void *arg)
{
    struct tu_kv_reserve *r = arg;
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        struct request *q = wants_more(r);
        struct tu_err err;
        uint64_t g = 0;
        if (!q || take(r, false, &g, &err)) {
            r->idle = true;
            pthread_cond_broadcast(&r->changed);
            while (r->idle && !r->stop)
                pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        uint64_t request = (uint64_t)(q - r->request), at = q->groups;
        q->busy = true;
        pthread_mutex_unlock(&r->lock);
        int rc = set_group(r, request, at, &g, true, &err);
        pthread_mutex_lock(&r->lock);
        q->busy = false;
        if (rc) {
            r->spare[r->spares++] = g;
            r->stop = true; /* who needs memory asks for it, and is told */
        } else {
            q->group[q->groups++] = g;
            r->count.maps += r->how.tensors;
        }
        pthread_cond_broadcast(&r->changed);
    }
    r->idle = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* There may be something to map ahead: tell the thread, holding the lock. */
static void wake(struct tu_kv_reserve *r)
{
    if (r->idle && !r->stop && wants_more(r)) {
        r->idle = false;
        pthread_cond_broadcast(&r->changed);
    }
}

void tu_kv_reserve_settle(struct tu_kv_reserve *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->running && !r->idle)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

int tu_kv_reserve_begin(struct tu_kv_reserve *r, uint64_t *request, struct tu_err *err)
{
    struct request *best = NULL;
    pthread_mutex_lock(&r->lock);
    for (uint64_t i = 0; i < r->how.requests; i++) {
        struct request *q = &r->request[i];
        if (!q->live && (!best || q->groups > best->groups))
            best = q;
    }
    if (best) {
        *request = (uint64_t)(best - r->request);
        best->live = true;
    }
    pthread_mutex_unlock(&r->lock);
    return best ? 0 : tu_fail(err, TU_ENOMEM, "all %" PRIu64 " requests are live",
                              r->how.requests);
}

static int grow(struct tu_kv_reserve *r, uint64_t request, uint64_t tokens,
                struct tu_err *err)
{
    struct request *q = &r->request[request];
    uint64_t before = q->tokens;
    q->tokens = tu_max(q->tokens, tokens); /* now, so that none of its own is taken back */
    while (q->groups < needed(r, q)) {
        double begin = tu_clock();
        uint64_t g = 0;
        int rc = 0;
        r->count.waited++;
        if (q->busy) {
            while (q->busy)
                pthread_cond_wait(&r->changed, &r->lock);
        } else if (!(rc = take(r, true, &g, err))) {
            rc = set_group(r, request, q->groups, &g, false, err);
            if (rc) {
                r->spare[r->spares++] = g;
            } else {
                q->group[q->groups++] = g;
                r->count.maps += r->how.tensors;
            }
        }
        r->count.seconds += tu_clock() - begin;
        if (rc) {
            q->tokens = before;
            return rc;
        }
    }
    return 0;
}

int tu_kv_reserve_grow(struct tu_kv_reserve *r, uint64_t request, uint64_t tokens,
                       struct tu_err *err)
{
    if (tokens > r->how.context)
        return tu_fail(err, TU_EUSAGE, "%" PRIu64 " tokens of a context of %" PRIu64, tokens,
                       r->how.context);
    pthread_mutex_lock(&r->lock);
    int rc = grow(r, request, tokens, err);
    wake(r);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

void tu_kv_reserve_end(struct tu_kv_reserve *r, uint64_t request)
{
    pthread_mutex_lock(&r->lock);
    r->request[request].live = false;
    r->request[request].tokens = 0;
    wake(r); /* another may have its groups */
    pthread_mutex_unlock(&r->lock);
}

void tu_kv_reserve_counts(struct tu_kv_reserve *r, struct tu_kv_reserve_count *out)
{
    pthread_mutex_lock(&r->lock);
    *out = r->count;
    for (uint64_t i = 0; i < r->how.requests; i++) {
        const struct request *q = &r->request[i];
        out->mapped += q->groups;
        out->ended += q->live ? 0 : q->groups;
        out->tokens += q->tokens;
    }
    out->free = r->spares + out->ended;
    pthread_mutex_unlock(&r->lock);
}
