/* SPDX-License-Identifier: Apache-2.0 */
/* topk.c: the k largest elements and where they stand, for error feedback. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "families.h"

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t k;
    int rc = tu_spec_u64(spec, "k", tu_max(c->elements / 100, 1), &k, err);
    if (rc)
        return rc;
    if (c->elements > UINT32_MAX)
        return tu_fail(err, TU_EUSAGE,
                       "codec 'topk': %" PRIu64 " elements: indices have 32 bits",
                       c->elements);
    k = tu_min(k, c->elements);
    c->atom = tu_max(c->elements, 1);
    c->code =
        (struct tu_part){.dtype = TU_F32, .rank = 1, .dim = {k}, .atom_bytes = 4 * k};
    c->side[0] =
        (struct tu_part){.suffix = "index", .dtype = TU_U32, .rank = 1, .dim = {k}};
    c->sides = 1;
    return 0;
}

struct entry {
    float size;
    uint32_t at;
};

static int by_size(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    size_t k = (size_t)c->code.dim[0];
    struct entry *e = tu_alloc(n, sizeof *e, err);
    if (!e)
        return TU_ENOMEM;
    for (size_t i = 0; i < n; i++)
        e[i] = (struct entry){isnan(x[i]) ? INFINITY : fabsf(x[i]), (uint32_t)i};
    qsort(e, n, sizeof *e, by_size);
    qsort(e, k, sizeof *e, by_place);
    for (size_t i = 0; i < k; i++) {
        memcpy((unsigned char *)code + 4 * i, &x[e[i].at], 4);
        tu_put32((unsigned char *)side[0] + 4 * i, e[i].at);
    }
    tu_free(e);
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    memset(x, 0, n * sizeof *x);
    for (size_t i = 0; i < c->code.dim[0]; i++) {
        uint32_t at = tu_le32((const unsigned char *)side[0] + 4 * i);
        if (at >= n)
            return tu_fail(err, TU_EFORMAT, "index %" PRIu32 " of %zu elements", at, n);
        memcpy(&x[at], (const unsigned char *)code + 4 * i, 4);
    }
    return 0;
}

static const char *const key[] = {"k", NULL};

const struct tu_codec tui_codecs_topk[] = {
    {.name = "topk",
     .help = "the k largest elements and their places",
     .source = "S. Stich et al., \"Sparsified SGD with Memory\", 2018",
     .key = key,
     .plan = plan,
     .encode = encode,
     .decode = decode},
    {.name = NULL},
};
