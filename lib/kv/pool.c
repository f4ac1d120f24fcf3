/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: pages with reference counts, a queue of free ones, and a map of cached keys. */
#include <inttypes.h>
#include <string.h>
#include <tensorutils/kv/pool.h>

#define NIL UINT32_MAX

struct page {
    uint64_t key;
    uint32_t refs;
    uint32_t prev, next;      /* in the queue; NIL at its ends */
    uint32_t same, same_prev; /* other pages of the key; the first stands in the map */
    bool cached, queued;
};

struct seq {
    int32_t *page;
    size_t n, cap;
    uint64_t tokens;
    bool alive;
};

struct tu_kv_pool {
    struct page *page;
    uint32_t pages, block;
    uint32_t head, tail, queued;
    uint32_t *map; /* open addressing: a page, NIL empty */
    uint32_t mask;
    struct seq *seq;
    size_t seqs, seqs_cap;
    struct tu_kv_pool_count count;
};

/* The map. Removal moves later entries back, so there are no graves. */

static uint32_t slot_of(uint64_t key, uint32_t mask)
{
    key ^= key >> 32;
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(key >> 32) & mask;
}

static uint32_t find(const struct tu_kv_pool *p, uint64_t key)
{
    uint32_t i = slot_of(key, p->mask);
    while (p->map[i] != NIL && p->page[p->map[i]].key != key)
        i = (i + 1) & p->mask;
    return i;
}

static void forget_slot(struct tu_kv_pool *p, uint32_t i)
{
    for (uint32_t k = (i + 1) & p->mask; p->map[k] != NIL; k = (k + 1) & p->mask) {
        uint32_t home = slot_of(p->page[p->map[k]].key, p->mask);
        if (((k - home) & p->mask) < ((k - i) & p->mask))
            continue;
        p->map[i] = p->map[k];
        i = k;
    }
    p->map[i] = NIL;
}

static void cache(struct tu_kv_pool *p, uint32_t at, uint64_t key)
{
    struct page *g = &p->page[at];
    uint32_t i = find(p, key);
    g->key = key;
    g->cached = true;
    g->same = g->same_prev = NIL;
    if (p->map[i] == NIL) {
        p->map[i] = at;
        return;
    }
    /* Behind the one that is found first: a duplicate keeps its own page. */
    struct page *first = &p->page[p->map[i]];
    g->same = first->same;
    g->same_prev = p->map[i];
    if (first->same != NIL)
        p->page[first->same].same_prev = at;
    first->same = at;
}

static void uncache(struct tu_kv_pool *p, uint32_t at)
{
    struct page *g = &p->page[at];
    uint32_t i = find(p, g->key);
    if (g->same != NIL)
        p->page[g->same].same_prev = g->same_prev;
    if (g->same_prev != NIL)
        p->page[g->same_prev].same = g->same;
    else if (g->same != NIL)
        p->map[i] = g->same;
    else
        forget_slot(p, i);
    g->cached = false;
    p->count.evictions++;
}

/* The queue. */

static void unqueue(struct tu_kv_pool *p, uint32_t at)
{
    struct page *g = &p->page[at];
    *(g->prev == NIL ? &p->head : &p->page[g->prev].next) = g->next;
    *(g->next == NIL ? &p->tail : &p->page[g->next].prev) = g->prev;
    g->queued = false;
    p->queued--;
}

static void enqueue(struct tu_kv_pool *p, uint32_t at)
{
    struct page *g = &p->page[at];
    g->prev = p->tail;
    g->next = NIL;
    *(p->tail == NIL ? &p->head : &p->page[p->tail].next) = at;
    p->tail = at;
    g->queued = true;
    p->queued++;
}

static void count_used(struct tu_kv_pool *p)
{
    p->count.used = p->pages - p->queued;
    p->count.peak = tu_max(p->count.peak, p->count.used);
}

static uint32_t pop(struct tu_kv_pool *p)
{
    uint32_t at = p->head;
    unqueue(p, at);
    if (p->page[at].cached)
        uncache(p, at);
    p->page[at].refs = 1;
    return at;
}

static void drop(struct tu_kv_pool *p, uint32_t at)
{
    if (--p->page[at].refs == 0)
        enqueue(p, at);
}

int tu_kv_pool_new(struct tu_kv_pool **out, uint32_t pages, uint32_t block,
                   struct tu_err *err)
{
    struct tu_kv_pool *p = tu_calloc(1, sizeof *p, err);
    uint32_t slots = 16;
    *out = NULL;
    if (!p)
        return TU_ENOMEM;
    if (!pages || pages > INT32_MAX / 4 || !block) {
        tu_free(p);
        return tu_fail(err, TU_EUSAGE, "a pool of %u pages of %u tokens", pages, block);
    }
    while (slots < 2 * pages)
        slots *= 2;
    p->pages = pages;
    p->block = block;
    p->mask = slots - 1;
    p->head = p->tail = NIL;
    p->page = tu_calloc(pages, sizeof *p->page, err);
    p->map = tu_alloc(slots, sizeof *p->map, err);
    if (!p->page || !p->map) {
        tu_kv_pool_free(p);
        return TU_ENOMEM;
    }
    memset(p->map, 0xff, slots * sizeof *p->map);
    for (uint32_t i = 0; i < pages; i++)
        enqueue(p, i);
    *out = p;
    return 0;
}

void tu_kv_pool_free(struct tu_kv_pool *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->seqs; i++)
        tu_free(p->seq[i].page);
    tu_free(p->seq);
    tu_free(p->page);
    tu_free(p->map);
    tu_free(p);
}

static int new_seq(struct tu_kv_pool *p, uint32_t *out, uint64_t pages, struct tu_err *err)
{
    int rc = TU_GROW(&p->seq, &p->seqs_cap, p->seqs, err);
    if (rc)
        return rc;
    struct seq *s = &p->seq[p->seqs];
    *s = (struct seq){.alive = true, .cap = (size_t)pages};
    if (!(s->page = tu_alloc((size_t)pages, sizeof *s->page, err)))
        return TU_ENOMEM;
    *out = (uint32_t)p->seqs++;
    return 0;
}

static int short_of(const struct tu_kv_pool *p, uint64_t want, struct tu_err *err)
{
    return tu_fail(err, TU_ENOMEM, "%" PRIu64 " pages are needed, %u of %u are free", want,
                   p->queued, p->pages);
}

int tu_kv_pool_begin(struct tu_kv_pool *p, const uint64_t *key, uint64_t tokens,
                     uint32_t *seq, uint64_t *hits, struct tu_err *err)
{
    uint64_t full = tokens / p->block, all = tu_ceil_div(tokens, p->block);
    uint64_t most = tokens ? (tokens - 1) / p->block : 0, n = 0, from_queue = 0;
    *hits = 0;
    for (; n < tu_min(full, most); n++) {
        uint32_t at = p->map[find(p, key[n])];
        if (at == NIL)
            break;
        from_queue += p->page[at].queued;
    }
    if (all - n + from_queue > p->queued)
        return short_of(p, all - n + from_queue, err);
    int rc = new_seq(p, seq, all, err);
    if (rc)
        return rc;
    struct seq *s = &p->seq[*seq];
    s->tokens = tokens;
    for (; s->n < n; s->n++) {
        uint32_t at = p->map[find(p, key[s->n])];
        if (p->page[at].queued)
            unqueue(p, at);
        p->page[at].refs++;
        s->page[s->n] = (int32_t)at;
    }
    for (; s->n < all; s->n++)
        s->page[s->n] = (int32_t)pop(p);
    for (uint64_t i = n; i < full; i++)
        cache(p, (uint32_t)s->page[i], key[i]);
    p->count.lookups += full;
    p->count.hits += *hits = n;
    count_used(p);
    return 0;
}

int tu_kv_pool_grow(struct tu_kv_pool *p, uint32_t seq, const uint64_t *key,
                    uint64_t tokens, int32_t *copied_from, int32_t *copied_to,
                    struct tu_err *err)
{
    struct seq *s = &p->seq[seq];
    uint64_t old_full = s->tokens / p->block, full = tokens / p->block;
    uint64_t all = tu_ceil_div(tokens, p->block);
    bool partial = s->tokens % p->block != 0;
    bool copy = partial && p->page[s->page[s->n - 1]].refs > 1 && tokens > s->tokens;
    *copied_from = *copied_to = -1;
    if (tokens < s->tokens)
        return tu_fail(err, TU_EUSAGE, "a sequence cannot shrink");
    if (all - s->n + copy > p->queued)
        return short_of(p, all - s->n + copy, err);
    while (s->cap < all) {
        int rc = TU_GROW(&s->page, &s->cap, s->cap, err);
        if (rc)
            return rc;
    }
    if (copy) {
        *copied_from = s->page[s->n - 1];
        *copied_to = s->page[s->n - 1] = (int32_t)pop(p);
        drop(p, (uint32_t)*copied_from);
        p->count.copies++;
    }
    while (s->n < all)
        s->page[s->n++] = (int32_t)pop(p);
    for (uint64_t i = old_full; i < full; i++)
        cache(p, (uint32_t)s->page[i], key[i]);
    s->tokens = tokens;
    count_used(p);
    return 0;
}

int tu_kv_pool_fork(struct tu_kv_pool *p, uint32_t seq, uint32_t *out, struct tu_err *err)
{
    int rc = new_seq(p, out, p->seq[seq].n, err);
    if (rc)
        return rc;
    const struct seq *from = &p->seq[seq];
    struct seq *s = &p->seq[*out];
    s->n = from->n;
    s->tokens = from->tokens;
    for (size_t i = 0; i < s->n; i++)
        p->page[s->page[i] = from->page[i]].refs++;
    return 0;
}

void tu_kv_pool_end(struct tu_kv_pool *p, uint32_t seq)
{
    struct seq *s = &p->seq[seq];
    while (s->alive && s->n)
        drop(p, (uint32_t)s->page[--s->n]);
    s->alive = false;
    count_used(p);
}

const int32_t *tu_kv_pool_pages(const struct tu_kv_pool *p, uint32_t seq, uint64_t *n)
{
    *n = p->seq[seq].n;
    return p->seq[seq].page;
}

uint64_t tu_kv_pool_queue(const struct tu_kv_pool *p, int32_t *out)
{
    for (uint32_t at = p->head; out && at != NIL; at = p->page[at].next)
        *out++ = (int32_t)at;
    return p->queued;
}

uint32_t tu_kv_pool_refs(const struct tu_kv_pool *p, int32_t page)
{
    return p->page[page].refs;
}

void tu_kv_pool_counts(const struct tu_kv_pool *p, struct tu_kv_pool_count *out)
{
    *out = p->count;
}
