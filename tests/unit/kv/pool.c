/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: the allocator against vLLM's design note, copy on write, and its laws under
 * random use. */
#include <stdlib.h>
#include <tensorutils/kv/pool.h>
#include "../tap.h"

static void queue_is(const struct tu_kv_pool *p, const int32_t *want, uint64_t n,
                     const char *what)
{
    int32_t q[64];
    eq_u64(tu_kv_pool_queue(p, q), n, "%s: length", what);
    eq_mem(q, want, n * sizeof *q, "%s", what);
}

static void pages_are(const struct tu_kv_pool *p, uint32_t seq, const int32_t *want,
                      uint64_t n, const char *what)
{
    uint64_t have;
    const int32_t *page = tu_kv_pool_pages(p, seq, &have);
    ok(have == n && !memcmp(page, want, n * sizeof *page), "%s", what);
}

/* vLLM's design note on prefix caching: B = 4, 10 blocks. */
static void design_note(void)
{
    struct tu_kv_pool *p;
    uint32_t r0, r1, r2;
    uint64_t hits;
    int32_t from, to;
    static const uint64_t k0[] = {100, 101, 102, 103}, k1[] = {100, 101, 201},
                          k2[] = {100, 101, 102, 301, 302, 303, 304};
    ok(!tu_kv_pool_new(&p, 10, 4, NULL), "10 pages");
    ok(!tu_kv_pool_begin(p, k0, 15, &r0, &hits, NULL) && hits == 0, "R0");
    pages_are(p, r0, (const int32_t[]){0, 1, 2, 3}, 4, "R0 has 0 1 2 3");
    ok(!tu_kv_pool_grow(p, r0, k0, 16, &from, &to, NULL), "decode fills 3");
    ok(!tu_kv_pool_grow(p, r0, k0, 17, &from, &to, NULL), "and takes 4");
    pages_are(p, r0, (const int32_t[]){0, 1, 2, 3, 4}, 5, "R0 has 4");
    ok(!tu_kv_pool_begin(p, k1, 14, &r1, &hits, NULL) && hits == 2, "R1 hits two");
    pages_are(p, r1, (const int32_t[]){0, 1, 5, 6}, 4, "R1 takes 5 6");
    tu_kv_pool_end(p, r0);
    queue_is(p, (const int32_t[]){7, 8, 9, 4, 3, 2}, 6, "R0 ends");
    tu_kv_pool_end(p, r1);
    queue_is(p, (const int32_t[]){7, 8, 9, 4, 3, 2, 6, 5, 1, 0}, 10, "R1 ends");
    ok(!tu_kv_pool_begin(p, k2, 29, &r2, &hits, NULL) && hits == 3, "R2 hits three");
    pages_are(p, r2, (const int32_t[]){0, 1, 2, 7, 8, 9, 4, 3}, 8, "R2 takes 7 8 9 4 3");
    tu_kv_pool_free(p);
}

/* A prompt of 10, B = 4, three samples: 3 pages shared, two copies, 5 pages. */
static void samples(void)
{
    struct tu_kv_pool *p;
    struct tu_kv_pool_count c;
    uint32_t s[3];
    uint64_t hits;
    int32_t from, to;
    static const uint64_t key[] = {1, 2};
    ok(!tu_kv_pool_new(&p, 16, 4, NULL) && !tu_kv_pool_begin(p, key, 10, &s[0], &hits, NULL),
       "prompt");
    ok(!tu_kv_pool_fork(p, s[0], &s[1], NULL) && !tu_kv_pool_fork(p, s[0], &s[2], NULL),
       "two more samples");
    tu_kv_pool_counts(p, &c);
    eq_u64(c.used, 3, "three pages shared");
    eq_u64(tu_kv_pool_refs(p, 2), 3, "three references");
    for (int i = 0; i < 3; i++) {
        ok(!tu_kv_pool_grow(p, s[i], key, 11, &from, &to, NULL), "sample %d writes", i);
        eq_int(from, i < 2 ? 2 : -1, "copied unless the last");
    }
    tu_kv_pool_counts(p, &c);
    eq_u64(c.used, 5, "five pages");
    eq_u64(c.copies, 2, "two copies");
    tu_kv_pool_free(p);
}

static void full(void)
{
    struct tu_kv_pool *p;
    uint32_t s;
    uint64_t hits;
    struct tu_err e;
    static const uint64_t key[] = {1, 2, 3, 4};
    ok(!tu_kv_pool_new(&p, 4, 4, NULL), "four pages");
    ok(!tu_kv_pool_begin(p, key, 16, &s, &hits, NULL), "all taken");
    eq_int(tu_kv_pool_begin(p, key + 1, 4, &s, &hits, &e), TU_ENOMEM, "none left");
    tu_kv_pool_end(p, 0);
    ok(!tu_kv_pool_begin(p, key, 16, &s, &hits, NULL), "again");
    eq_u64(hits, 3, "a prompt that is cached whole loses its last block");
    tu_kv_pool_free(p);
}

/* Random use: references add up, no page is lost, hits have the right key. */
static void laws(void)
{
    enum { PAGES = 64, SEQS = 4000 };
    struct tu_kv_pool *p;
    uint32_t live[16], n = 0, x = 1;
    bool good = !tu_kv_pool_new(&p, PAGES, 2, NULL);
    for (int step = 0; step < SEQS && good; step++) {
        x = x * 1664525 + 1013904223;
        if (n == 16 || (n && x >> 28 < 5)) {
            uint32_t i = (x >> 8) % n;
            tu_kv_pool_end(p, live[i]);
            live[i] = live[--n];
        } else {
            uint64_t key[8], hits, tokens = 1 + (x >> 12) % 16;
            for (uint64_t i = 0; i < 8; i++) /* few chains, so that they meet */
                key[i] = (i ? key[i - 1] * 31 : 0) + 1 + (x >> (20 + i)) % 2;
            uint32_t s;
            if (!tu_kv_pool_begin(p, key, tokens, &s, &hits, NULL))
                live[n++] = s;
        }
        uint32_t refs[PAGES] = {0};
        uint64_t used = 0, pages;
        for (uint32_t i = 0; i < n; i++) {
            const int32_t *page = tu_kv_pool_pages(p, live[i], &pages);
            for (uint64_t k = 0; k < pages; k++)
                refs[page[k]]++;
        }
        for (int i = 0; i < PAGES; i++) {
            good = good && tu_kv_pool_refs(p, i) == refs[i];
            used += refs[i] != 0;
        }
        good = good && tu_kv_pool_queue(p, NULL) == PAGES - used;
    }
    struct tu_kv_pool_count c;
    tu_kv_pool_counts(p, &c);
    ok(good && c.hits > 100 && c.evictions > 100, "references and queue add up");
    tu_kv_pool_free(p);
}

int main(void)
{
    design_note();
    samples();
    full();
    laws();
    return tap_done();
}
