/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation, arenas and buffers: limits, alignment, and failure at every place. */
#include <stdlib.h>
#include "../tap.h"
#include "tensorutils/core/buf.h"
#include "tensorutils/core/mem.h"

static const char zeros[1000];

static void test_alloc(void)
{
    struct tu_err err;
    char *p = tu_alloc(3, 5, NULL);
    ok(p && (uintptr_t)p % 64 == 0, "64-byte alignment");
    tu_free(p);
    p = tu_alloc(0, 8, NULL);
    ok(p != NULL, "no bytes is no error");
    tu_free(p);
    unsigned char *z = tu_calloc(100, 3, NULL), sum = 0;
    for (int i = 0; i < 300; i++)
        sum |= z[i];
    eq_int(sum, 0, "tu_calloc zeroes");
    memcpy(z, "abc", 4);
    z = tu_realloc(z, 100000, 1, NULL);
    eq_str((char *)z, "abc", "tu_realloc keeps bytes");
    ok(tu_realloc(z, SIZE_MAX, 1, &err) == NULL && err.code == TU_ENOMEM,
       "too much to grow");
    eq_str((char *)z, "abc", "and the old block stays");
    tu_free(z);
    ok(tu_alloc(SIZE_MAX / 2, 4, &err) == NULL, "a product that overflows");
    eq_int(err.code, TU_ENOMEM, "is TU_ENOMEM");
    ok(tu_calloc(PTRDIFF_MAX, 1, &err) == NULL, "over the largest object");
    p = tu_strdup("hello", NULL);
    eq_str(p, "hello", "tu_strdup");
    tu_free(p);
    tu_free(NULL);
}

static void test_grow(void)
{
    size_t cap = 0, n = 0;
    uint64_t *item = NULL;
    int code = 0;
    for (; n < 1000 && !code; n++)
        if (!(code = TU_GROW(&item, &cap, n, NULL)))
            item[n] = n * n;
    eq_int(code, 0, "grow 1000 times");
    bool same = true;
    for (size_t i = 0; i < n; i++)
        same &= item[i] == i * i;
    ok(same, "growing keeps the items");
    ok(cap >= 1000 && cap < 2000, "capacity %zu", cap);
    struct tu_err err;
    size_t full = SIZE_MAX / 16;
    uint64_t *before = item;
    eq_int(tu_grow(&item, &full, full, sizeof *item, &err), TU_ENOMEM,
           "growing past memory");
    ok(item == before, "leaves the array");
    tu_free(item);
}

static void test_arena(void)
{
    struct tu_arena *a = tu_arena_new(NULL);
    struct tu_err err;
    bool aligned = true, zero = true;
    for (size_t i = 0; i < 3000; i++) {
        unsigned char *p = tu_arena_alloc(a, i % 97, 1 + i % 3, NULL);
        aligned &= (uintptr_t)p % 16 == 0;
        for (size_t k = 0; k < i % 97 * (1 + i % 3); k++)
            zero &= p[k] == 0;
        memset(p, 0xff, i % 97 * (1 + i % 3));
    }
    ok(aligned, "arena: multiples of 16");
    ok(zero, "arena: zeroed and apart from each other");
    char *big = tu_arena_alloc(a, 3 << 20, 1, NULL);
    ok(big != NULL, "arena: larger than a chunk");
    size_t used = tu_arena_used(a);
    eq_str(tu_arena_text(a, "abcdef", 3, NULL), "abc", "arena: text");
    eq_str(tu_arena_text(a, NULL, 0, NULL), "", "arena: no text");
    eq_str(tu_arena_printf(a, NULL, "%d-%s", 7, "x"), "7-x", "arena: printf");
    eq_u64(tu_arena_used(a) - used, 48, "arena: counts what it handed out");
    ok(!tu_arena_alloc(a, SIZE_MAX / 2, 3, &err) && err.code == TU_ENOMEM,
       "arena: overflow");
    ok(!tu_arena_text(a, "", SIZE_MAX, &err) && err.code == TU_ENOMEM,
       "arena: endless text");
    tu_arena_free(a);
    tu_arena_free(NULL);
}

static void test_buf(void)
{
    struct tu_buf b = {0};
    struct tu_err err;
    ok(tu_buf_take(&b) == NULL, "buf: nothing to take");
    eq_int(tu_buf_text(&b, "ab", NULL), 0, "buf: text");
    eq_int(tu_buf_printf(&b, NULL, "-%05d-", 42), 0, "buf: printf");
    eq_int(tu_buf_add(&b, "x\0y", 3, NULL), 0, "buf: bytes");
    eq_u64(b.n, 12, "buf: length");
    eq_mem(b.data, "ab-00042-x\0y", 13, "buf: bytes and a NUL");
    tu_buf_reset(&b);
    eq_u64(b.n, 0, "buf: reset");
    eq_str(b.data, "", "buf: reset is an empty text");
    for (int i = 0; i < 5000; i++)
        if (tu_buf_text(&b, "0123456789", NULL))
            break;
    eq_u64(b.n, 50000, "buf: grows");
    char *taken = tu_buf_take(&b);
    ok(b.data == NULL && b.n == 0, "buf: empty after take");
    eq_mem(taken + 49990, "0123456789", 11, "buf: taken");
    tu_free(taken);

    tu_buf_init(&b, 100);
    ok(tu_buf_room(&b, 100, NULL) != NULL, "buf: room for the maximum");
    eq_int(tu_buf_add(&b, zeros, 100, NULL), 0, "buf: the maximum");
    eq_int(tu_buf_add(&b, "x", 1, &err), TU_ELIMIT, "buf: one over it");
    eq_int(tu_buf_printf(&b, NULL, "x"), TU_ELIMIT, "buf: one over it by printf, no err");
    eq_u64(b.n, 100, "buf: a refusal changes nothing");
    ok(!tu_buf_room(&b, SIZE_MAX, &err) && err.code == TU_ELIMIT, "buf: absurd room");
    tu_buf_release(&b);
    eq_u64(b.max, 100, "buf: the maximum outlives release");
}

/* A little of everything that allocates. */
static int work(void)
{
    struct tu_err err = {0};
    struct tu_buf b = {0};
    char *s = NULL;
    size_t cap = 0;
    int *item = NULL;
    struct tu_arena *a = tu_arena_new(&err);
    if (!a || !tu_arena_printf(a, &err, "%5000d", 1) || !tu_arena_alloc(a, 9, 9, &err) ||
        !tu_arena_alloc(a, 1, 1, &err)) /* room is left */
        goto out;
    if (tu_buf_printf(&b, &err, "%100d", 1) || tu_buf_add(&b, zeros, 1000, &err) ||
        tu_buf_text(&b, "x", &err) || tu_buf_text(&b, "y", &err))
        goto out;
    if (!(s = tu_strdup("s", &err)) || TU_GROW(&item, &cap, 0, &err) ||
        TU_GROW(&item, &cap, 1, &err))
        goto out;
out:
    tu_free(s);
    tu_free(item);
    tu_buf_release(&b);
    tu_arena_free(a);
    return err.code;
}

static void test_injection(void)
{
    tu_mem_inject(0, 0);
    eq_int(work(), 0, "without injection");
    uint64_t calls = tu_mem_inject(0, 0), n = 1;
    ok(calls >= 6, "%d allocations", (int)calls);
    for (;; n++) {
        tu_mem_inject(n, 0);
        int code = work();
        if (code == 0)
            break;
        eq_int(code, TU_ENOMEM, "allocation %d fails", (int)n);
    }
    eq_u64(n, calls + 1, "each allocation could fail");
    uint64_t fine = 1;
    for (int code = TU_ENOMEM; code; fine += code != 0) {
        tu_mem_inject(fine, TU_MEM_FINE);
        code = work();
        if (code && code != TU_ENOMEM)
            eq_int(code, TU_ENOMEM, "fine %d", (int)fine);
    }
    tu_mem_inject(0, 0);
    eq_u64(fine - n, 3, "what needs no new memory can fail too");
    tu_mem_inject(2, TU_MEM_STICKY);
    void *first = tu_alloc(1, 1, NULL), *second = tu_alloc(1, 1, NULL);
    void *third = tu_alloc(1, 1, NULL);
    ok(first && !second && !third, "sticky failure");
    eq_u64(tu_mem_inject(0, 0), 3, "counted since the last call");
    tu_free(first);
}

int main(void)
{
    test_alloc();
    test_grow();
    test_arena();
    test_buf();
    test_injection();
    return tap_done();
}
