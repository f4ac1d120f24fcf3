/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.h: little-endian loads and stores, alignment, and arithmetic that notices overflow.
 *
 * Input is never cast to a struct: offsets in foreign files are unaligned. */
#ifndef TENSORUTILS_CORE_BYTES_H
#define TENSORUTILS_CORE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t tu_le16(const void *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t tu_le32(const void *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t tu_le64(const void *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (uint64_t)tu_le32(b) | (uint64_t)tu_le32(b + 4) << 32;
}

static inline void tu_put16(void *p, uint16_t v)
{
    unsigned char *b = (unsigned char *)p;
    b[0] = (unsigned char)v;
    b[1] = (unsigned char)(v >> 8);
}

static inline void tu_put32(void *p, uint32_t v)
{
    tu_put16(p, (uint16_t)v);
    tu_put16((unsigned char *)p + 2, (uint16_t)(v >> 16));
}

static inline void tu_put64(void *p, uint64_t v)
{
    tu_put32(p, (uint32_t)v);
    tu_put32((unsigned char *)p + 4, (uint32_t)(v >> 32));
}

/* Each returns true when the result does not fit; *out is then unspecified. */
static inline bool tu_add_over(uint64_t a, uint64_t b, uint64_t *out)
{
    return __builtin_add_overflow(a, b, out);
}

static inline bool tu_mul_over(uint64_t a, uint64_t b, uint64_t *out)
{
    return __builtin_mul_overflow(a, b, out);
}

/* Round v up to a multiple of a power of two; true when it does not fit. */
static inline bool tu_align_over(uint64_t v, uint64_t align, uint64_t *out)
{
    if (tu_add_over(v, align - 1, out))
        return true;
    *out &= ~(align - 1);
    return false;
}

/* Round up where v is known to be far from the limit. */
static inline uint64_t tu_align(uint64_t v, uint64_t align)
{
    return (v + align - 1) & ~(align - 1);
}

static inline uint64_t tu_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t tu_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t tu_ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

#endif
