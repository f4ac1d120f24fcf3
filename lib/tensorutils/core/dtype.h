/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h: the registry of element types (tensor-stream(5)) and size arithmetic.
 *
 * A code's high byte is DLPack's type code and its low byte the bits of an element; 0x8000 +
 * ggml_type are ggml's block formats. Sub-byte elements are packed in row-major order, the earlier
 * element in the lower bits. */
#ifndef TENSORUTILS_CORE_DTYPE_H
#define TENSORUTILS_CORE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "attr.h"
#include "err.h"

TU_BEGIN

#define TU_RANK_MAX 64
/* Dimensions, element counts and payloads are below 2^63. */
#define TU_SIZE_MAX ((UINT64_C(1) << 63) - 1)

/* X(NAME, code, elements per block, bytes per block, name, safetensors name or 0, npy kind or 0) */
#define TU_DTYPE_TABLE(X)                                                                   \
    X(I8, 0x0008, 1, 1, "i8", "I8", "i1") X(I16, 0x0010, 1, 2, "i16", "I16", "i2")          \
    X(I32, 0x0020, 1, 4, "i32", "I32", "i4") X(I64, 0x0040, 1, 8, "i64", "I64", "i8")       \
    X(U8, 0x0108, 1, 1, "u8", "U8", "u1") X(U16, 0x0110, 1, 2, "u16", "U16", "u2")          \
    X(U32, 0x0120, 1, 4, "u32", "U32", "u4") X(U64, 0x0140, 1, 8, "u64", "U64", "u8")       \
    X(I4, 0x0004, 2, 1, "i4", 0, 0) X(U4, 0x0104, 2, 1, "u4", 0, 0)                         \
    X(I2, 0x0002, 4, 1, "i2", 0, 0) X(U2, 0x0102, 4, 1, "u2", 0, 0)                         \
    X(U1, 0x0101, 8, 1, "u1", 0, 0)                                                         \
    X(F16, 0x0210, 1, 2, "f16", "F16", "f2") X(F32, 0x0220, 1, 4, "f32", "F32", "f4")       \
    X(F64, 0x0240, 1, 8, "f64", "F64", "f8")                                                \
    X(C64, 0x0540, 1, 8, "c64", "C64", "c8") X(C128, 0x0580, 1, 16, "c128", 0, "c16")       \
    X(BOOL, 0x0608, 1, 1, "bool", "BOOL", "b1")                                             \
    X(BF16, 0x0410, 1, 2, "bf16", "BF16", 0)                                                \
    X(F8_E4M3FN, 0x0A08, 1, 1, "f8_e4m3fn", "F8_E4M3", 0)                                   \
    X(F8_E4M3FNUZ, 0x0B08, 1, 1, "f8_e4m3fnuz", "F8_E4M3FNUZ", 0)                           \
    X(F8_E5M2, 0x0C08, 1, 1, "f8_e5m2", "F8_E5M2", 0)                                       \
    X(F8_E5M2FNUZ, 0x0D08, 1, 1, "f8_e5m2fnuz", "F8_E5M2FNUZ", 0)                           \
    X(F8_E8M0, 0x0E08, 1, 1, "f8_e8m0", "F8_E8M0", 0)                                       \
    X(F6_E2M3, 0x0F06, 4, 3, "f6_e2m3", "F6_E2M3", 0)                                       \
    X(F6_E3M2, 0x1006, 4, 3, "f6_e3m2", "F6_E3M2", 0)                                       \
    X(F4_E2M1, 0x1104, 2, 1, "f4_e2m1", "F4", 0)                                            \
    X(Q4_0, 0x8002, 32, 18, "q4_0", 0, 0) X(Q4_1, 0x8003, 32, 20, "q4_1", 0, 0)             \
    X(Q5_0, 0x8006, 32, 22, "q5_0", 0, 0) X(Q5_1, 0x8007, 32, 24, "q5_1", 0, 0)             \
    X(Q8_0, 0x8008, 32, 34, "q8_0", 0, 0) X(Q8_1, 0x8009, 32, 36, "q8_1", 0, 0)             \
    X(Q2_K, 0x800A, 256, 84, "q2_k", 0, 0) X(Q3_K, 0x800B, 256, 110, "q3_k", 0, 0)          \
    X(Q4_K, 0x800C, 256, 144, "q4_k", 0, 0) X(Q5_K, 0x800D, 256, 176, "q5_k", 0, 0)         \
    X(Q6_K, 0x800E, 256, 210, "q6_k", 0, 0) X(Q8_K, 0x800F, 256, 292, "q8_k", 0, 0)         \
    X(IQ2_XXS, 0x8010, 256, 66, "iq2_xxs", 0, 0) X(IQ2_XS, 0x8011, 256, 74, "iq2_xs", 0, 0) \
    X(IQ3_XXS, 0x8012, 256, 98, "iq3_xxs", 0, 0) X(IQ1_S, 0x8013, 256, 50, "iq1_s", 0, 0)   \
    X(IQ4_NL, 0x8014, 32, 18, "iq4_nl", 0, 0) X(IQ3_S, 0x8015, 256, 110, "iq3_s", 0, 0)     \
    X(IQ2_S, 0x8016, 256, 82, "iq2_s", 0, 0) X(IQ4_XS, 0x8017, 256, 136, "iq4_xs", 0, 0)    \
    X(IQ1_M, 0x801D, 256, 56, "iq1_m", 0, 0) X(TQ1_0, 0x8022, 256, 54, "tq1_0", 0, 0)       \
    X(TQ2_0, 0x8023, 256, 66, "tq2_0", 0, 0) X(MXFP4, 0x8027, 32, 17, "mxfp4", 0, 0)        \
    X(NVFP4, 0x8028, 64, 36, "nvfp4", 0, 0) X(Q1_0, 0x8029, 128, 18, "q1_0", 0, 0)          \
    X(Q2_0, 0x802A, 64, 18, "q2_0", 0, 0)

enum tu_dtype_code {
    TU_DTYPE_NONE = 0,
#define TU_DTYPE_CODE(NAME, code, be, bb, name, st, npy) TU_##NAME = code,
    TU_DTYPE_TABLE(TU_DTYPE_CODE)
#undef TU_DTYPE_CODE
};

#define TU_DTYPE_GGML 0x8000u    /* + ggml_type */
#define TU_DTYPE_PRIVATE 0xF000u /* and above: private */

struct tu_dtype {
    uint16_t code;
    uint16_t block_elems;
    uint16_t block_bytes;
    const char *name;
    const char *safetensors; /* NULL: not representable there */
    const char *npy;         /* kind and bytes, without byte order; NULL: none */
};

/* NULL when unknown. Static rows, in the order of the table. */
TU_API const struct tu_dtype *tu_dtype_find(uint32_t code);
TU_API const struct tu_dtype *tu_dtype_named(const char *name);
TU_API const struct tu_dtype *tu_dtype_row(size_t i); /* NULL past the end */
/* What a person may call it: the name, or that of torch and numpy: float16, half, torch.int8. */
TU_API const struct tu_dtype *tu_dtype_called(const char *name);
/* Name i that is not the registry's own, and its code; NULL past the end. */
TU_API const char *tu_dtype_other(size_t i, uint32_t *code);
/* The same as tu_dtype_called, or TU_EUSAGE with what was perhaps meant. */
TU_API TU_MUST int tu_parse_dtype(const char *s, uint32_t *code, struct tu_err *err);
/* Name of a code; "0x1234" in buf for an unknown one. */
TU_API const char *tu_dtype_text(uint32_t code, char buf[8]);
/* True for f64 f32 f16 bf16 and the fp8, fp6, fp4 types. */
TU_API bool tu_dtype_is_float(uint32_t code);
/* True when one element is a whole number of bytes (block_elems is 1). */
TU_API bool tu_dtype_is_plain(uint32_t code);

/* Product of the dimensions. Errors: TU_ELIMIT for a dimension or an element count of 2^63 or
 * more, TU_ESIZE where the product wraps. A zero dimension gives 0. */
TU_API TU_MUST int tu_elements(const uint64_t *dim, unsigned rank, uint64_t *out,
                               struct tu_err *err);
/* Bytes of a tensor: ceil(elements / block_elems) × block_bytes. For ggml's block formats the last
 * dimension must be a multiple of block_elems (TU_ESIZE). */
TU_API TU_MUST int tu_tensor_bytes(uint32_t code, const uint64_t *dim, unsigned rank,
                                   uint64_t *out, struct tu_err *err);

TU_END

#endif
