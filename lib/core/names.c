/* SPDX-License-Identifier: Apache-2.0 */
/* names.c: open addressing over borrowed texts; at most half full, never shrinks. */

#include <string.h>
#include <time.h>
#include <xxhash.h>

#include <tensorutils/core/mem.h>
#include <tensorutils/core/names.h>

struct slot {
    const char *text; /* NULL: free */
    uint32_t number;
};

struct tu_names {
    struct slot *slot;
    size_t cap; /* a power of two */
    size_t n;
    uint64_t secret;
};

struct tu_names *tu_names_new(struct tu_err *err)
{
    struct tu_names *t = tu_calloc(1, sizeof *t, err);
    if (!t || !(t->slot = tu_calloc(64, sizeof *t->slot, err))) {
        tu_free(t);
        return NULL;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    t->cap = 64;
    t->secret = (uint64_t)now.tv_nsec * UINT64_C(0x9E3779B97F4A7C15) ^ (uintptr_t)t;
    return t;
}

void tu_names_free(struct tu_names *t)
{
    if (!t)
        return;
    tu_free(t->slot);
    tu_free(t);
}

/* The slot of a text, or the free one where it belongs. */
static struct slot *seek(const struct tu_names *t, const char *text)
{
    size_t at = (size_t)XXH3_64bits_withSeed(text, strlen(text), t->secret) & (t->cap - 1);
    while (t->slot[at].text && strcmp(t->slot[at].text, text))
        at = (at + 1) & (t->cap - 1);
    return &t->slot[at];
}

uint32_t tu_names_get(const struct tu_names *t, const char *text)
{
    const struct slot *s = seek(t, text);
    return s->text ? s->number : TU_NAMES_NONE;
}

int tu_names_put(struct tu_names *t, const char *text, uint32_t number, struct tu_err *err)
{
    if (2 * (t->n + 1) > t->cap) {
        struct tu_names old = *t;
        struct slot *bigger = tu_calloc(2 * t->cap, sizeof *bigger, err);
        if (!bigger)
            return TU_ENOMEM;
        t->slot = bigger;
        t->cap *= 2;
        for (size_t i = 0; i < old.cap; i++)
            if (old.slot[i].text)
                *seek(t, old.slot[i].text) = old.slot[i];
        tu_free(old.slot);
    }
    struct slot *s = seek(t, text);
    t->n += !s->text;
    s->text = text;
    s->number = number;
    return 0;
}
