/* SPDX-License-Identifier: Apache-2.0 */
/* heap.c: a small binary heap of (time, key), least first. */
#include "sched/heap.h"

static bool less(const struct tui_item *a, const struct tui_item *b)
{
    return a->at != b->at ? a->at < b->at : a->key < b->key;
}

static void swap(struct tui_item *a, struct tui_item *b)
{
    struct tui_item t = *a;
    *a = *b;
    *b = t;
}

static void up(struct tui_heap *h, size_t i)
{
    for (; i && less(&h->item[i], &h->item[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&h->item[i], &h->item[(i - 1) / 2]);
}

static void down(struct tui_heap *h, size_t i)
{
    for (size_t k; (k = 2 * i + 1) < h->n; i = k) {
        if (k + 1 < h->n && less(&h->item[k + 1], &h->item[k]))
            k++;
        if (!less(&h->item[k], &h->item[i]))
            return;
        swap(&h->item[k], &h->item[i]);
    }
}

int tui_heap_push(struct tui_heap *h, struct tui_item it, struct tu_err *err)
{
    int rc = TU_GROW(&h->item, &h->cap, h->n, err);
    if (rc)
        return rc;
    h->item[h->n++] = it;
    up(h, h->n - 1);
    return 0;
}

struct tui_item tui_heap_pop(struct tui_heap *h)
{
    struct tui_item top = h->item[0];
    h->item[0] = h->item[--h->n];
    down(h, 0);
    return top;
}

void tui_heap_remove(struct tui_heap *h, uint64_t key)
{
    for (size_t i = 0; i < h->n; i++)
        if (h->item[i].key == key) {
            h->item[i] = h->item[--h->n];
            if (i < h->n) {
                down(h, i);
                up(h, i);
            }
            return;
        }
}
