/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that move bytes: other orders of axes, pages, split words. The oracle is the
 * definition, element by element. */
#include "../gpu.h"

enum { PAGES = 5, BLOCK = 4, HEADS = 3, DIM = 8, N = PAGES * BLOCK * HEADS * DIM };

/* [page, token, head, dim] to [page, head, token, dim], pages taken from a table. */
static void test_pages(uint32_t elem)
{
    static const int32_t table[PAGES] = {3, 0, 4, 1, 2};
    unsigned char src[N * 8], want[N * 8], got[N * 8];
    for (unsigned i = 0; i < sizeof src; i++)
        src[i] = (unsigned char)(i * 37 + i / 256);
    memset(want, 0xff, sizeof want);
    for (unsigned p = 0; p < PAGES; p++)
        for (unsigned t = 0; t < BLOCK; t++)
            for (unsigned h = 0; h < HEADS; h++)
                memcpy(want + elem * DIM * ((p * HEADS + h) * BLOCK + t),
                       src + elem * DIM * (((unsigned)table[p] * BLOCK + t) * HEADS + h),
                       elem * DIM);
    struct tu_kernel_move a = {.src = gpu_put(src, sizeof src),
                               .dst = gpu_put(NULL, sizeof got),
                               .elem = elem,
                               .axes = 4,
                               .dim = {PAGES, BLOCK, HEADS, DIM},
                               .from = {BLOCK * HEADS * DIM, HEADS * DIM, DIM, 1},
                               .to = {BLOCK * HEADS * DIM, DIM, BLOCK * DIM, 1},
                               .page_from = gpu_put(table, sizeof table)};
    eq_int(gpu->launch("move.boxes", &a, NULL, NULL), 0, "gather elements of %u bytes", elem);
    unsigned char *dst = a.dst;
    gpu_get(got, dst, sizeof got);
    eq_mem(got, want, N * elem, "pages are gathered and turned");
    /* And back. */
    struct tu_kernel_move b = a;
    b.src = gpu_put(want, sizeof want);
    b.dst = gpu_put(NULL, sizeof got);
    memcpy(b.from, a.to, sizeof b.from);
    memcpy(b.to, a.from, sizeof b.to);
    b.page_to = a.page_from;
    b.page_from = NULL;
    eq_int(gpu->launch("move.boxes", &b, NULL, NULL), 0, "scatter");
    gpu_get(got, b.dst, sizeof got);
    eq_mem(got, src, N * elem, "pages are where they were");
    gpu_get(NULL, (void *)a.src, 0);
    gpu_get(NULL, (void *)b.src, 0);
    gpu_get(NULL, (void *)a.page_from, 0);
}

static void test_split(uint64_t n)
{
    unsigned char src[2 * 1100], want[2 * 1100], got[2 * 1100];
    for (uint64_t i = 0; i < 2 * n; i++)
        src[i] = (unsigned char)(i * 131 + i / 7);
    for (uint64_t i = 0; i < n; i++) {
        want[i] = src[2 * i + 1];
        want[n + i] = src[2 * i];
    }
    struct tu_kernel_split a = {gpu_put(src, 2 * n), gpu_put(NULL, 2 * n), n};
    eq_int(gpu->launch("split.16", &a, NULL, NULL), 0, "split %d words", (int)n);
    gpu_get(got, a.dst, 2 * n);
    eq_mem(got, want, 2 * n, "high bytes first");
    struct tu_kernel_split b = {gpu_put(want, 2 * n), gpu_put(NULL, 2 * n), n};
    eq_int(gpu->launch("join.16", &b, NULL, NULL), 0, "join");
    gpu_get(got, b.dst, 2 * n);
    eq_mem(got, src, 2 * n, "the words again");
    gpu_get(NULL, (void *)a.src, 0);
    gpu_get(NULL, (void *)b.src, 0);
}

int main(void)
{
    struct tu_err err;
    if (gpu_open()) {
        test_pages(1);
        test_pages(2);
        test_pages(4);
        test_pages(8);
        test_split(1);
        test_split(1024);
        test_split(1099);
        struct tu_kernel_move odd = {.elem = 3, .axes = 1};
        eq_int(gpu->launch("move.boxes", &odd, NULL, &err), TU_EUNSUP, "elements of 3 bytes");
        eq_int(gpu->launch("no.such", &odd, NULL, &err), TU_EUNSUP, "an unknown kernel");
        ok(!gpu->has("no.such") && gpu->has("split.16"), "the device knows its kernels");
    }
    return tap_done();
}
