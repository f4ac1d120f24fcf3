/* SPDX-License-Identifier: Apache-2.0 */
/* torch_dtype.c: torch's storage classes and dtypes, both ways. */
#include "pickle.h"

static const struct tui_torch_dtype rows[] = {
    {TU_F32, "torch FloatStorage", "torch float32", 1},
    {TU_BF16, "torch BFloat16Storage", "torch bfloat16", 1},
    {TU_F16, "torch HalfStorage", "torch float16", 1},
    {TU_F64, "torch DoubleStorage", "torch float64", 1},
    {TU_I64, "torch LongStorage", "torch int64", 1},
    {TU_I32, "torch IntStorage", "torch int32", 1},
    {TU_I16, "torch ShortStorage", "torch int16", 1},
    {TU_I8, "torch CharStorage", "torch int8", 1},
    {TU_U8, "torch ByteStorage", "torch uint8", 1},
    {TU_BOOL, "torch BoolStorage", "torch bool", 1},
    {TU_C64, "torch ComplexFloatStorage", "torch complex64", 1},
    {TU_C128, "torch ComplexDoubleStorage", "torch complex128", 1},
    {TU_U16, NULL, "torch uint16", 1},
    {TU_U32, NULL, "torch uint32", 1},
    {TU_U64, NULL, "torch uint64", 1},
    {TU_F8_E4M3FN, NULL, "torch float8_e4m3fn", 1},
    {TU_F8_E4M3FNUZ, NULL, "torch float8_e4m3fnuz", 1},
    {TU_F8_E5M2, NULL, "torch float8_e5m2", 1},
    {TU_F8_E5M2FNUZ, NULL, "torch float8_e5m2fnuz", 1},
    {TU_F8_E8M0, NULL, "torch float8_e8m0fnu", 1},
    {TU_F4_E2M1, NULL, "torch float4_e2m1fn_x2", 2},
};

#define ROWS (sizeof rows / sizeof *rows)

const struct tui_torch_dtype *tui_torch_dtype(uint32_t dtype)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].dtype == dtype)
            return &rows[i];
    return NULL;
}

const struct tui_torch_dtype *tui_torch_storage(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].storage && !strcmp(rows[i].storage, name))
            return &rows[i];
    return NULL;
}

const struct tui_torch_dtype *tui_torch_named(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].name, name))
            return &rows[i];
    return NULL;
}

const char *tu_torch_name(uint32_t dtype)
{
    const struct tui_torch_dtype *d = tui_torch_dtype(dtype);
    return d ? d->name : NULL;
}
