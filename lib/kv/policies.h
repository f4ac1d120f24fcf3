/* SPDX-License-Identifier: Apache-2.0 */
/* policies.h: the rows of eviction policies, and lists of blocks by number. */
#ifndef TU_KV_POLICIES_H
#define TU_KV_POLICIES_H

#include <tensorutils/kv/replay.h>

extern const struct tu_kv_policy tui_kv_lru, tui_kv_leaf, tui_kv_fifo, tui_kv_2q,
    tui_kv_adaptive, tui_kv_opt, tui_kv_prefix, tui_kv_batch;

/* Doubly linked lists over ids: an id is in one list at most. */
#define TUI_NIL UINT32_MAX
struct tui_link {
    uint32_t prev, next;
};
struct tui_list {
    uint32_t head, tail, n; /* head: the oldest */
};

static inline void tui_list_init(struct tui_list *l)
{
    l->head = l->tail = TUI_NIL;
    l->n = 0;
}

static inline void tui_push(struct tui_list *l, struct tui_link *link, uint32_t i)
{
    link[i].prev = l->tail;
    link[i].next = TUI_NIL;
    if (l->tail == TUI_NIL)
        l->head = i;
    else
        link[l->tail].next = i;
    l->tail = i;
    l->n++;
}

static inline void tui_drop(struct tui_list *l, struct tui_link *link, uint32_t i)
{
    uint32_t p = link[i].prev, n = link[i].next;
    if (p == TUI_NIL)
        l->head = n;
    else
        link[p].next = n;
    if (n == TUI_NIL)
        l->tail = p;
    else
        link[n].prev = p;
    l->n--;
}

/* LRU over requests in another order; NULL: the file's. */
TU_MUST int tui_lru(const struct tu_kv_trace *t, const uint32_t *order, uint64_t capacity,
                    struct tu_kv_hits *out, struct tu_err *err);

#endif
