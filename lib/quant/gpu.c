/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c: a run of elements to the device, through the codec's kernel, and back.
 *
 * The bytes are the CPU's, so a run may be coded on either. Workers of the pool convert
 * and take turns on the device. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "gpu.h"
#include "tensorutils/device/kernels.h"

enum { BOOK = 256 };

struct tui_gpu {
    const struct tu_device *d;
    const struct tu_coding *c;
    struct tu_kernel_code k; /* pointers are the device's */
    char kernel[48];
    pthread_mutex_t turn;
    void *code, *side, *book;
};

static void kernel_name(char out[48], const struct tu_coding *c, bool encode)
{
    snprintf(out, 48, "%s.%.32s", encode ? "encode" : "decode", c->codec->name);
}

bool tu_coding_on(const struct tu_coding *c, const struct tu_device *d, bool encode)
{
    struct tu_kernel_code k = {0};
    char name[48];
    kernel_name(name, c, encode);
    return d->has && c->codec->kernel && d->has(name) &&
           c->codec->kernel(c, encode, NULL, &k);
}

int tui_gpu_new(struct tui_gpu **out, const struct tu_device *d, const struct tu_coding *c,
                bool encode, void *const *side, struct tu_err *err)
{
    *out = NULL;
    if (!tu_coding_on(c, d, encode))
        return 0;
    struct tui_gpu *g = tu_calloc(1, sizeof *g, err);
    if (!g)
        return TU_ENOMEM;
    pthread_mutex_init(&g->turn, NULL);
    g->d = d;
    g->c = c;
    kernel_name(g->kernel, c, encode);
    c->codec->kernel(c, encode, (const void *const *)side, &g->k);
    int rc = d->alloc((void **)&g->k.bad, sizeof *g->k.bad, err);
    if (!rc && g->k.book) {
        uint64_t bytes = (c->code.atom_bytes < c->atom ? 16 : BOOK) * sizeof(float);
        rc = d->alloc(&g->book, bytes, err);
        if (!rc)
            rc = d->copy(g->book, g->k.book, bytes, NULL, err);
        g->k.book = g->book;
    }
    if (rc)
        tui_gpu_free(g);
    else
        *out = g;
    return rc;
}

void tui_gpu_free(struct tui_gpu *g)
{
    if (!g)
        return;
    g->d->free(g->k.bad);
    g->d->free(g->book);
    g->d->free(g->k.x);
    g->d->free(g->code);
    g->d->free(g->side);
    pthread_mutex_destroy(&g->turn);
    tu_free(g);
}

static uint64_t code_bytes(const struct tui_gpu *g, uint64_t first, uint64_t n)
{
    const struct tu_coding *c = g->c;
    uint64_t at = first / c->atom * c->code.atom_bytes;
    return tu_min(c->code.bytes - at, tu_ceil_div(n, c->atom) * c->code.atom_bytes);
}

static uint64_t side_bytes(const struct tui_gpu *g, uint64_t n)
{
    return g->c->sides ? tu_ceil_div(n, g->c->atom) * g->c->side[0].atom_bytes : 0;
}

int tui_gpu_room(struct tui_gpu *g, uint64_t n, struct tu_err *err)
{
    int rc = g->d->alloc((void **)&g->k.x, n * sizeof(float), err);
    if (!rc)
        rc = g->d->alloc(&g->code, tu_ceil_div(n, g->c->atom) * g->c->code.atom_bytes, err);
    if (!rc)
        rc = g->d->alloc(&g->side, side_bytes(g, n), err);
    g->k.code = g->code;
    g->k.scale = g->side;
    g->k.scale8 = g->k.scale16 = g->side;
    return rc;
}

static struct tu_kernel_code args_of(const struct tui_gpu *g, uint64_t first, uint64_t n)
{
    struct tu_kernel_code k = g->k;
    k.first = first;
    k.n = n;
    return k;
}

int tui_gpu_encode(struct tui_gpu *g, uint64_t first, size_t n, const float *x, void *code,
                   void *side, struct tu_err *err)
{
    const struct tu_device *d = g->d;
    struct tu_kernel_code k = args_of(g, first, n);
    pthread_mutex_lock(&g->turn);
    int rc = d->copy(k.x, x, n * sizeof *x, NULL, err);
    if (!rc)
        rc = d->launch(g->kernel, &k, NULL, err);
    if (!rc)
        rc = d->copy(code, g->code, code_bytes(g, first, n), NULL, err);
    if (!rc && side_bytes(g, n))
        rc = d->copy(side, g->side, side_bytes(g, n), NULL, err);
    pthread_mutex_unlock(&g->turn);
    if (!rc && g->c->codec->check)
        rc = g->c->codec->check(g->c, first, n, x, code, err);
    return rc;
}

int tui_gpu_decode(struct tui_gpu *g, uint64_t first, size_t n, const void *code,
                   const void *side, float *x, struct tu_err *err)
{
    const struct tu_device *d = g->d;
    struct tu_kernel_code k = args_of(g, first, n);
    uint32_t bad = 0;
    pthread_mutex_lock(&g->turn);
    int rc = d->copy(k.bad, &bad, sizeof bad, NULL, err);
    if (!rc)
        rc = d->copy(g->code, code, code_bytes(g, first, n), NULL, err);
    if (!rc && side_bytes(g, n))
        rc = d->copy(g->side, side, side_bytes(g, n), NULL, err);
    if (!rc)
        rc = d->launch(g->kernel, &k, NULL, err);
    if (!rc)
        rc = d->copy(x, k.x, n * sizeof *x, NULL, err);
    if (!rc)
        rc = d->copy(&bad, k.bad, sizeof bad, NULL, err);
    pthread_mutex_unlock(&g->turn);
    /* The CPU's words for what is wrong, and where. */
    if (!rc && bad)
        rc = g->c->codec->decode(g->c, first, n, code, &side, x, err);
    return rc;
}
