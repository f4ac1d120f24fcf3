/* SPDX-License-Identifier: Apache-2.0 */
/* float.h: conversions between number formats, one value or a whole array.
 *
 * Narrowing rounds to nearest, ties to even; NaN stays NaN (quiet, sign kept where the
 * format has one; f16 and bf16 keep its top bits, as the hardware does), Inf stays Inf
 * where there is one. Source of the small formats: OCP 8-bit Floating Point
 * Specification 1.0 and Microscaling Formats 1.0. */
#ifndef TENSORUTILS_CORE_FLOAT_H
#define TENSORUTILS_CORE_FLOAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "err.h"

TU_BEGIN

TU_API float tu_from_f16(uint16_t v);
TU_API uint16_t tu_to_f16(float v);
TU_API float tu_from_bf16(uint16_t v);
TU_API uint16_t tu_to_bf16(float v);
/* A value of a float dtype of at most 8 bits, from its code in the low bits. */
TU_API float tu_from_small(uint32_t dtype, uint8_t v);
/* To such a format. Out of range: the largest finite value when `saturate`, else Inf,
 * or NaN where there is no Inf (e4m3fn, fnuz, e8m0); f6 and f4 always saturate and NaN
 * becomes zero there. e8m0 has neither zero nor sign: negative is NaN, zero is 2^-127
 * when `saturate`, else NaN. */
TU_API uint8_t tu_to_small(uint32_t dtype, float v, bool saturate);

/* n elements of a plain or sub-byte (not block) dtype to double or float. i64, u64 and
 * f64 round to nearest; bool is 0 or 1. tu_to_double gives of c64 and c128 the real and
 * imaginary parts in turn (2n values); tu_to_float, whose callers have room for n, refuses
 * them. `src` starts at an element that begins a byte. Errors: TU_EDTYPE for block formats. */
TU_API TU_MUST int tu_to_double(uint32_t dtype, const void *src, double *out, size_t n,
                                struct tu_err *err);
TU_API TU_MUST int tu_to_float(uint32_t dtype, const void *src, float *out, size_t n,
                               struct tu_err *err);
/* The reverse of tu_to_double, for generators: n elements (2n values for complex
 * dtypes), rounded to nearest, ties to even; integers and the formats of at most 8
 * bits saturate, NaN is 0 where there is none; bool is v != 0. Unused bits of the last
 * byte are 0. Errors: TU_EDTYPE for block formats. */
TU_API TU_MUST int tu_from_double(uint32_t dtype, void *dst, const double *src, size_t n,
                                  struct tu_err *err);
/* Convert n elements between plain dtypes. Floats narrow in one rounding (f64 to bf16
 * too); integers must fit (TU_EUSAGE naming the value and index) and floats to
 * integers must be whole and fit; complex to real is refused. Floats that overflow do
 * not saturate. Vector rows serve f32, f16 and bf16. dst and src do not overlap. */
TU_API TU_MUST int tu_cast(uint32_t to, void *dst, uint32_t from, const void *src, size_t n,
                           struct tu_err *err);
/* What becomes of a value beyond the range of a float dtype. Peers agree where there is
 * an infinity; where there is none, torch 2.15 gives the largest value and ml_dtypes
 * NaN. */
enum tu_overflow {
    TU_OVERFLOW_AUTO,     /* Inf where there is one, else an error */
    TU_OVERFLOW_ERROR,
    TU_OVERFLOW_SATURATE, /* the largest finite value, for Inf too */
    TU_OVERFLOW_SPECIAL,  /* Inf, or NaN where there is none: tu_cast */
};
/* Their names in this order, NULL-ended: auto, error, saturate, special. */
TU_API extern const char *const tu_overflow_names[];
/* tu_cast by such a rule. Errors also: TU_EUSAGE naming the first value that does not
 * fit and its index. */
TU_API TU_MUST int tu_cast_by(enum tu_overflow rule, uint32_t to, void *dst, uint32_t from,
                              const void *src, size_t n, struct tu_err *err);
/* True when tu_cast from one to the other is defined. */
TU_API bool tu_cast_ok(uint32_t to, uint32_t from);

TU_END

#endif
