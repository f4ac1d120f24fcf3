/* SPDX-License-Identifier: Apache-2.0 */
/* heap.h: a small binary heap of (time, key), least first. */
#ifndef TUI_SCHED_HEAP_H
#define TUI_SCHED_HEAP_H

#include "tensorutils/core.h"

struct tui_item {
    int64_t at;
    uint64_t key;
};
struct tui_heap {
    struct tui_item *item; /* tu_free */
    size_t n, cap;
};

TU_MUST int tui_heap_push(struct tui_heap *h, struct tui_item it, struct tu_err *err);
/* The least item; the heap must not be empty. */
struct tui_item tui_heap_pop(struct tui_heap *h);
/* Remove the item with this key, if there is one. */
void tui_heap_remove(struct tui_heap *h, uint64_t key);

#endif
