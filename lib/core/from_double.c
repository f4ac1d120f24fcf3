/* SPDX-License-Identifier: Apache-2.0 */
/* from_double.c: values to elements of any dtype that is not a block format.
 *
 * Whole bytes or packed: each element is a code of `bits` bits, the earlier one lower. */
#include <math.h>
#include <string.h>
#include "tensorutils/core/bytes.h"
#include "tensorutils/core/dtype.h"
#include "tensorutils/core/float.h"

/* Integer dtypes by their range. */
static const struct range {
    uint32_t dtype;
    double lo, hi; /* the largest doubles inside */
} ranges[] = {
    {TU_I8, -128, 127},
    {TU_I16, -32768, 32767},
    {TU_I32, -2147483648.0, 2147483647.0},
    {TU_I64, -0x1p63, 0x1.fffffffffffffp62},
    {TU_U8, 0, 255},
    {TU_U16, 0, 65535},
    {TU_U32, 0, 4294967295.0},
    {TU_U64, 0, 0x1.fffffffffffffp63},
    {TU_I4, -8, 7},
    {TU_U4, 0, 15},
    {TU_I2, -2, 1},
    {TU_U2, 0, 3},
    {TU_U1, 0, 1},
    {TU_BOOL, 0, 1},
};

static const struct range *range_of(uint32_t dtype)
{
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].dtype == dtype)
            return &ranges[i];
    return NULL;
}

static uint64_t whole_code(const struct range *r, double v)
{
    if (r->dtype == TU_BOOL)
        return v != 0;
    v = isnan(v) ? 0 : rint(v); /* to nearest even: nobody changes the rounding mode */
    v = v < r->lo ? r->lo : v > r->hi ? r->hi : v;
    return v < 0 ? (uint64_t)(int64_t)v : (uint64_t)v;
}

/* Bits of an element of a whole or small float dtype. */
static unsigned bits_of(uint32_t dtype)
{
    return dtype == TU_BOOL ? 8 : dtype & 0xFF;
}

static void put(unsigned char *dst, uint64_t code, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        dst[i] = (unsigned char)(code >> 8 * i);
}

/* Codes of `bits` bits, lowest first; a 6-bit code may lie across two bytes. */
static void pack(unsigned char *dst, size_t i, unsigned bits, unsigned code)
{
    const size_t at = i * bits;
    const unsigned shift = at % 8;
    dst[at / 8] |= (unsigned char)(code << shift);
    if (shift + bits > 8)
        dst[at / 8 + 1] |= (unsigned char)(code >> (8 - shift));
}

static void to_codes(uint32_t dtype, unsigned char *dst, const double *src, size_t n)
{
    const struct range *r = range_of(dtype);
    const struct tu_dtype *d = tu_dtype_find(dtype);
    const unsigned bits = bits_of(dtype), mask = bits < 8 ? (1u << bits) - 1 : 0xFF;
    if (bits < 8)
        memset(dst, 0, (n + d->block_elems - 1) / d->block_elems * d->block_bytes);
    for (size_t i = 0; i < n; i++) {
        const uint64_t code =
            r ? whole_code(r, src[i]) : tu_to_small(dtype, (float)src[i], true);
        if (bits < 8)
            pack(dst, i, bits, (unsigned)code & mask);
        else
            put(dst + i * (bits / 8), code, bits / 8);
    }
}

int tu_from_double(uint32_t dtype, void *dst, const double *src, size_t n,
                   struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_find(dtype);
    if (!d || d->code & TU_DTYPE_GGML)
        return tu_fail(err, TU_EDTYPE,
                       "values of this dtype are made by a quantizer only");
    if (dtype == TU_C64 || dtype == TU_C128)
        return tu_cast(dtype == TU_C64 ? TU_F32 : TU_F64, dst, TU_F64, src, 2 * n, err);
    if (range_of(dtype) || bits_of(dtype) <= 8)
        to_codes(dtype, dst, src, n);
    else
        return tu_cast(dtype, dst, TU_F64, src, n, err);
    return 0;
}
