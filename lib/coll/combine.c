/* SPDX-License-Identifier: Apache-2.0 */
/* combine.c: many operands into one, in an order that is part of the result.
 *
 * FOLD rounds after each operand, in the dtype itself; FIXED is a balanced tree over the
 * operands' numbers, small floats in f32; EXACT adds in fixed point and rounds once. */
#include <math.h>
#include "reduce.h"

#define BLOCK 1024 /* elements: the tree's partial results stay in the first cache */

struct tree {
    const void *const *src;
    uint64_t at; /* first element of the block */
    size_t n, size;
    uint32_t dtype;
    bool small;
    tu_reduce_fn fn;
    unsigned char *level; /* scratch: a block for each level */
    size_t step;          /* bytes of one block */
};

/* The value of operands lo … hi-1 into d, a block of the accumulator's type. */
static void tree_value(const struct tree *t, uint32_t lo, uint32_t hi, unsigned depth,
                       unsigned char *d)
{
    if (hi - lo == 1) {
        const unsigned char *p = (const unsigned char *)t->src[lo] + t->at * t->size;
        if (!t->small)
            memcpy(d, p, t->n * t->size);
        else if (tu_to_float(t->dtype, p, (float *)(void *)d, t->n, NULL))
            return;
        return;
    }
    uint32_t half = 1;
    while (half * 2 < hi - lo)
        half *= 2;
    unsigned char *right = t->level + depth * t->step;
    if (!t->small && hi - lo == 2) { /* leaves need no copy */
        const unsigned char *a = t->src[lo], *b = t->src[lo + 1];
        t->fn(d, a + t->at * t->size, b + t->at * t->size, t->n);
        return;
    }
    tree_value(t, lo, lo + half, depth + 1, d);
    tree_value(t, lo + half, hi, depth + 1, right);
    t->fn(d, d, right, t->n);
}

static int fixed(void *d, const void *const *src, uint32_t n, uint64_t count,
                 uint32_t dtype, enum tu_op op, struct tu_err *err)
{
    size_t size = tu_dtype_find(dtype)->block_bytes;
    bool small = tui_is_small_float(dtype);
    struct tree t = {.src = src,
                     .size = size,
                     .dtype = dtype,
                     .small = small,
                     .fn = tu_reduce_find(small ? TU_F32 : dtype, op),
                     .step = BLOCK * (small ? sizeof(float) : size)};
    unsigned depth = 2;
    for (uint32_t k = 1; k < n; k *= 2)
        depth++;
    unsigned char *scratch = tu_alloc(depth, t.step, err);
    if (!scratch)
        return TU_ENOMEM;
    t.level = scratch + t.step;
    int code = 0;
    for (uint64_t at = 0; at < count && !code; at += BLOCK) {
        t.at = at;
        t.n = (size_t)tu_min(count - at, BLOCK);
        unsigned char *to = (unsigned char *)d + at * size;
        tree_value(&t, 0, n, 0, scratch);
        if (small)
            code = tu_cast(dtype, to, TU_F32, scratch, t.n, err);
        else
            memcpy(to, scratch, t.n * size);
    }
    tu_free(scratch);
    return code;
}

/* A sum in fixed point: digits of 32 bits, the lowest of weight 2^-1074, each held in 64
 * bits so that 2^31 operands fit before a carry. Source: N. Neal, "Fast exact summation
 * using small and large superaccumulators", 2015, the small one. */
#define DIGITS 70
struct exact {
    int64_t digit[DIGITS];
    int lo, hi;     /* digits in use */
    double special; /* sum of infinities and NaN */
};

static void exact_add(struct exact *e, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    int exponent = (int)(bits >> 52 & 0x7ff);
    uint64_t m = bits & (UINT64_C(0xfffffffffffff));
    if (exponent == 0x7ff) {
        e->special += v;
        return;
    }
    if (exponent)
        m |= UINT64_C(1) << 52;
    else
        exponent = 1;
    if (!m)
        return;
    int shift = exponent - 1,
        k = shift / 32; /* weight of m's lowest bit: 2^(shift - 1074) */
    shift %= 32;
    uint64_t low = m << shift, high = shift ? m >> (64 - shift) : 0;
    int64_t part[3] = {(int64_t)(low & 0xffffffff), (int64_t)(low >> 32), (int64_t)high};
    for (int i = 0; i < 3; i++)
        e->digit[k + i] += bits >> 63 ? -part[i] : part[i];
    e->lo = k < e->lo ? k : e->lo;
    e->hi = k + 2 > e->hi ? k + 2 : e->hi;
}

/* Carry through all digits; what leaves the highest one is returned. */
static int64_t exact_carry(struct exact *e)
{
    int64_t carry = 0;
    for (int i = e->lo; i < DIGITS; i++) {
        int64_t v = e->digit[i] + carry;
        carry = v >> 32;
        e->digit[i] = v & 0xffffffff;
    }
    return carry;
}

/* Digits of the magnitude; index of the highest that is not 0, or -1. */
static int exact_settle(struct exact *e, bool *negative)
{
    *negative = exact_carry(e) < 0;
    if (*negative) { /* two's complement */
        for (int i = e->lo; i < DIGITS; i++)
            e->digit[i] = -e->digit[i];
        exact_carry(e);
    }
    for (int i = DIGITS - 1; i >= e->lo; i--)
        if (e->digit[i])
            return i;
    return -1;
}

/* The sum; rounded to nearest for f64, else to odd, so that a narrower type rounds it
 * rightly. */
static double exact_value(struct exact *e, bool to_odd)
{
    bool negative;
    if (e->special != 0)
        return e->special;
    int top = exact_settle(e, &negative);
    if (top < 0)
        return 0;
    uint64_t m =
        (uint64_t)e->digit[top] << 32 | (top > 0 ? (uint64_t)e->digit[top - 1] : 0);
    int lead = __builtin_clzll(m);
    uint64_t next = top > 1 ? (uint64_t)e->digit[top - 2] : 0;
    bool sticky = false;
    if (lead)
        m = m << lead | next >> (32 - lead);
    sticky = (lead ? next << (32 + lead) : next) != 0;
    for (int i = top - 3; i >= e->lo && i >= 0 && !sticky; i--)
        sticky = e->digit[i] != 0;
    int exponent = 32 * (top - 1) - lead - 1074;
    double v;
    if (to_odd) {
        uint64_t rest = (m & 0x7ff) | sticky;
        v = ldexp((double)(m >> 11 | (rest != 0)), exponent + 11);
    } else {
        v = ldexp((double)(m | sticky), exponent);
    }
    return negative ? -v : v;
}

static int exact(void *d, const void *const *src, uint32_t n, uint64_t count,
                 uint32_t dtype, enum tu_op op, struct tu_err *err)
{
    size_t size = tu_dtype_find(dtype)->block_bytes;
    if (op != TU_SUM)
        return tu_fail(err, TU_EUSAGE, "order exact is of sums, not of %s",
                       tu_op_names[op]);
    if (dtype != TU_F32 && dtype != TU_F64 &&
        !tui_is_small_float(dtype)) /* integers are */
        return fixed(d, src, n, count, dtype, op, err);
    struct exact *acc = tu_alloc(BLOCK, sizeof *acc, err);
    double v[BLOCK];
    int code = acc ? 0 : TU_ENOMEM;
    for (uint64_t at = 0; at < count && !code; at += BLOCK) {
        size_t m = (size_t)tu_min(count - at, BLOCK);
        memset(acc, 0, m * sizeof *acc);
        for (size_t i = 0; i < m; i++)
            acc[i].lo = DIGITS;
        for (uint32_t q = 0; q < n && !code; q++) {
            code =
                tu_to_double(dtype, (const unsigned char *)src[q] + at * size, v, m, err);
            for (size_t i = 0; i < m && !code; i++)
                exact_add(&acc[i], v[i]);
        }
        for (size_t i = 0; i < m; i++)
            v[i] = exact_value(&acc[i], dtype != TU_F64);
        if (!code)
            code = tu_cast(dtype, (unsigned char *)d + at * size, TU_F64, v, m, err);
    }
    tu_free(acc);
    return code;
}

int tu_combine(void *d, const void *const *src, uint32_t n, uint64_t count,
               uint32_t dtype, enum tu_op op, enum tu_order order, struct tu_err *err)
{
    if (order == TU_ORDER_EXACT)
        return exact(d, src, n, count, dtype, op, err);
    /* The tree of two operands, and of three that are not rounded on the way, is the
     * fold. */
    bool fold = n <= 2 || (n == 3 && !tui_is_small_float(dtype));
    if (order == TU_ORDER_FIXED && !fold)
        return fixed(d, src, n, count, dtype, op, err);
    size_t size = tu_dtype_find(dtype)->block_bytes;
    tu_reduce_fn fn = tu_reduce_find(dtype, op);
    if (n == 1)
        memmove(d, src[0], (size_t)count * size);
    else if (n == 2)
        fn(d, src[0], src[1], (size_t)count);
    if (n <= 2)
        return 0;
    /* By blocks, so that the running value stays in the cache; in a block of its own, as
     * d may be any of the operands. */
    unsigned char *block = tu_alloc(BLOCK, size, err);
    if (!block)
        return TU_ENOMEM;
    for (uint64_t at = 0; at < count; at += BLOCK) {
        size_t m = (size_t)tu_min(count - at, BLOCK), off = (size_t)at * size;
        fn(block, (const unsigned char *)src[0] + off,
           (const unsigned char *)src[1] + off, m);
        for (uint32_t q = 2; q + 1 < n; q++)
            fn(block, block, (const unsigned char *)src[q] + off, m);
        fn((unsigned char *)d + off, block, (const unsigned char *)src[n - 1] + off, m);
    }
    tu_free(block);
    return 0;
}
