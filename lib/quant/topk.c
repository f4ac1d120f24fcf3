/* SPDX-License-Identifier: Apache-2.0 */
/* topk.c: the k largest elements and where they stand, for error feedback. */
#include <inttypes.h>
#include <math.h>
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

/* |x| as a number that is in the same order; NaN is the largest. */
static inline uint32_t size_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffff;
}

/* The k-th largest size, and how many of that size belong to the k: counted by its upper
 * 16 bits, then by the lower ones among those. */
static int threshold(const float *x, size_t n, size_t k, uint32_t *size, size_t *equal,
                     struct tu_err *err)
{
    enum { BINS = 1 << 16 };
    uint64_t *count = tu_calloc(BINS, sizeof *count, err);
    if (!count)
        return TU_ENOMEM;
    uint32_t high = BINS - 1, low = BINS - 1;
    for (size_t i = 0; i < n; i++)
        count[size_of(x[i]) >> 16]++;
    for (; count[high] < k; high--)
        k -= count[high];
    memset(count, 0, BINS * sizeof *count);
    for (size_t i = 0; i < n; i++)
        if (size_of(x[i]) >> 16 == high)
            count[size_of(x[i]) & 0xffff]++;
    for (; count[low] < k; low--)
        k -= count[low];
    tu_free(count);
    *size = high << 16 | low;
    *equal = k;
    return 0;
}

/* The k largest in the order of their places; of equal ones the first stay. */
static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    unsigned char *value = code, *index = side[0];
    uint32_t least;
    size_t equal;
    if (!c->code.dim[0])
        return 0;
    int rc = threshold(x, n, (size_t)c->code.dim[0], &least, &equal, err);
    for (size_t i = 0; !rc && i < n; i++) {
        const uint32_t size = size_of(x[i]);
        if (size < least || (size == least && !equal))
            continue;
        equal -= size == least;
        memcpy(value, &x[i], 4);
        tu_put32(index, (uint32_t)i);
        value += 4;
        index += 4;
    }
    return rc;
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
