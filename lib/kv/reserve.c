/* SPDX-License-Identifier: Apache-2.0 */
/* reserve.c: address space reserved whole, memory mapped into it a page at a time.
 *
 * Memory is a file without a name; page p of it is its bytes from p * page. Group g is its
 * pages g * tensors and on, so that taking a group is taking one number. What is not
 * mapped has no access. One thread at a time. */
#define _GNU_SOURCE /* memfd_create, MAP_ANONYMOUS, MAP_NORESERVE */
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>
#include <tensorutils/kv/reserve.h>

struct request {
    bool live;
    uint64_t tokens, groups; /* mapped */
    uint64_t *group;         /* [most] their numbers */
};

struct tu_kv_reserve {
    struct tu_kv_reserve_how how;
    struct tu_kv_reserve_count count;
    uint64_t slot, most; /* bytes of a request in a tensor; groups of a request */
    unsigned char *base; /* tensors * requests * slot bytes */
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
        tu_mul_over(memory, how->page, &memory) || memory > INT64_MAX)
        return tu_fail(err, TU_ESIZE, "a reservation beyond the address space");
    r->memory = memfd_create("kv", MFD_CLOEXEC);
    if (r->memory < 0 || ftruncate(r->memory, (off_t)memory) < 0)
        return tu_fail_errno(err, "%" PRIu64 " bytes of memory", memory);
    void *p = mmap(NULL, (size_t)space, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return tu_fail_errno(err, "%" PRIu64 " bytes of address space", space);
    r->base = p;
    r->count.reserved = space;
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
    if (r->base)
        munmap(r->base, (size_t)r->count.reserved);
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

/* Page `at` of a request in every tensor: of group g, or none. A failure takes back what
 * was mapped of the group. */
static int set_group(struct tu_kv_reserve *r, uint64_t request, uint64_t at,
                     const uint64_t *g, struct tu_err *err)
{
    size_t page = (size_t)r->how.page;
    double begin = tu_clock();
    int rc = 0;
    for (uint64_t t = 0; t < r->how.tensors; t++) {
        unsigned char *to = tu_kv_reserve_at(r, t, request, NULL);
        void *p = g ? mmap(to + at * page, page, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_FIXED, r->memory,
                           (off_t)((*g * r->how.tensors + t) * page))
                    : mmap(to + at * page, page, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        if (p == MAP_FAILED) {
            rc = tu_fail_errno(err, "page %" PRIu64 " of tensor %" PRIu64, at, t);
            break;
        }
    }
    r->count.seconds += tu_clock() - begin;
    *(g ? &r->count.maps : &r->count.unmaps) += r->how.tensors;
    return rc;
}

/* A spare group, or the last one of an ended request. */
static int take(struct tu_kv_reserve *r, uint64_t *g, struct tu_err *err)
{
    for (uint64_t i = 0; !r->spares && i < r->how.requests; i++) {
        struct request *q = &r->request[i];
        if (q->live || !q->groups)
            continue;
        int rc = set_group(r, i, q->groups - 1, NULL, err);
        if (rc)
            return rc;
        r->spare[r->spares++] = q->group[--q->groups];
    }
    if (!r->spares)
        return tu_fail(err, TU_ENOMEM, "all %" PRIu64 " groups of pages are in use",
                       r->how.groups);
    *g = r->spare[--r->spares];
    return 0;
}

int tu_kv_reserve_begin(struct tu_kv_reserve *r, uint64_t *request, struct tu_err *err)
{
    const struct request *best = NULL;
    for (uint64_t i = 0; i < r->how.requests; i++) {
        const struct request *q = &r->request[i];
        if (!q->live && (!best || q->groups > best->groups))
            best = q;
    }
    if (!best)
        return tu_fail(err, TU_ENOMEM, "all %" PRIu64 " requests are live", r->how.requests);
    *request = (uint64_t)(best - r->request);
    r->request[*request].live = true;
    return 0;
}

int tu_kv_reserve_grow(struct tu_kv_reserve *r, uint64_t request, uint64_t tokens,
                       struct tu_err *err)
{
    struct request *q = &r->request[request];
    uint64_t per = tu_kv_reserve_tokens(&r->how);
    if (tokens > r->how.context)
        return tu_fail(err, TU_EUSAGE, "%" PRIu64 " tokens of a context of %" PRIu64, tokens,
                       r->how.context);
    while (q->groups < r->most && q->groups * per < tokens) {
        uint64_t g = 0;
        int rc = take(r, &g, err);
        if (!rc && (rc = set_group(r, request, q->groups, &g, err)))
            r->spare[r->spares++] = g;
        if (rc)
            return rc;
        q->group[q->groups++] = g;
    }
    q->tokens = tu_max(q->tokens, tokens);
    return 0;
}

void tu_kv_reserve_end(struct tu_kv_reserve *r, uint64_t request)
{
    r->request[request].live = false;
    r->request[request].tokens = 0;
}

void tu_kv_reserve_counts(const struct tu_kv_reserve *r, struct tu_kv_reserve_count *out)
{
    *out = r->count;
    for (uint64_t i = 0; i < r->how.requests; i++) {
        const struct request *q = &r->request[i];
        out->mapped += q->groups;
        out->ended += q->live ? 0 : q->groups;
        out->tokens += q->tokens;
    }
    out->free = r->spares + out->ended;
}
