/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c: element-wise reductions of every dtype, chosen from the kernel rows. */
#if defined __x86_64__
#include <emmintrin.h>
#endif
#include "reduce.h"

const char *const tu_op_names[] = {"sum", "prod", "min", "max", "avg", "mulsum", NULL};
const char *const tu_order_names[] = {"any", "fixed", "exact", NULL};

#define ROW(name, needs, fn)                                                             \
    {                                                                                    \
        name, needs, (tu_kernel_fn)fn                                                    \
    }
static const struct tu_kernel kernels[] = {
#if defined __x86_64__ && !defined TU_NO_X86
    ROW("avx512", TU_CPU_GROUP_AVX512, tui_reduce_avx512),
    ROW("avx2", TU_CPU_GROUP_AVX2, tui_reduce_avx2),
#endif
    ROW("plain", 0, tui_reduce_plain),
    {NULL, 0, NULL},
};

static const struct {
    uint16_t dtype;
    int8_t type;
} types[] = {
    {TU_F32, TUI_F32}, {TU_F64, TUI_F64}, {TU_I8, TUI_I8},   {TU_U8, TUI_U8},
    {TU_I16, TUI_I16}, {TU_U16, TUI_U16}, {TU_I32, TUI_I32}, {TU_U32, TUI_U32},
    {TU_I64, TUI_I64}, {TU_U64, TUI_U64},
};

int tui_type_of(uint32_t dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype)
            return types[i].type;
    return -1;
}

bool tui_is_small_float(uint32_t dtype)
{
    return dtype == TU_F16 || dtype == TU_BF16 || dtype == TU_F8_E4M3FN ||
           dtype == TU_F8_E5M2 || dtype == TU_F8_E4M3FNUZ || dtype == TU_F8_E5M2FNUZ;
}

/* Through f32, rounded once. */
#define BLOCK 512
static void through_f32(uint32_t dtype, enum tu_op op, void *d, const void *a,
                        const void *b, size_t n)
{
    float x[BLOCK], y[BLOCK];
    tu_reduce_fn fn = tu_reduce_find(TU_F32, op);
    size_t size = tu_dtype_find(dtype)->block_bytes;
    unsigned char *to = d;
    const unsigned char *left = a, *right = b;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = tu_min(n - i, BLOCK);
        /* The dtypes are known to convert. */
        if (tu_to_float(dtype, left + i * size, x, m, NULL) ||
            tu_to_float(dtype, right + i * size, y, m, NULL))
            return;
        fn(x, x, y, m);
        if (tu_cast(dtype, to + i * size, TU_F32, x, m, NULL))
            return;
    }
}

#define SMALL(s, dtype)                                                                  \
    static void s##_sum(void *d, const void *a, const void *b, size_t n)                 \
    {                                                                                    \
        through_f32(dtype, TU_SUM, d, a, b, n);                                          \
    }                                                                                    \
    static void s##_prod(void *d, const void *a, const void *b, size_t n)                \
    {                                                                                    \
        through_f32(dtype, TU_PROD, d, a, b, n);                                         \
    }                                                                                    \
    static void s##_min(void *d, const void *a, const void *b, size_t n)                 \
    {                                                                                    \
        through_f32(dtype, TU_MIN, d, a, b, n);                                          \
    }                                                                                    \
    static void s##_max(void *d, const void *a, const void *b, size_t n)                 \
    {                                                                                    \
        through_f32(dtype, TU_MAX, d, a, b, n);                                          \
    }
SMALL(f16, TU_F16)
SMALL(bf16, TU_BF16)
SMALL(e4m3, TU_F8_E4M3FN)
SMALL(e5m2, TU_F8_E5M2)
SMALL(e4m3z, TU_F8_E4M3FNUZ)
SMALL(e5m2z, TU_F8_E5M2FNUZ)

static const struct {
    uint16_t dtype;
    tu_reduce_fn fn[TUI_KERNELS];
} small[] = {
    {TU_F16, {f16_sum, f16_prod, f16_min, f16_max}},
    {TU_BF16, {bf16_sum, bf16_prod, bf16_min, bf16_max}},
    {TU_F8_E4M3FN, {e4m3_sum, e4m3_prod, e4m3_min, e4m3_max}},
    {TU_F8_E5M2, {e5m2_sum, e5m2_prod, e5m2_min, e5m2_max}},
    {TU_F8_E4M3FNUZ, {e4m3z_sum, e4m3z_prod, e4m3z_min, e4m3z_max}},
    {TU_F8_E5M2FNUZ, {e5m2z_sum, e5m2z_prod, e5m2z_min, e5m2z_max}},
};

static tu_reduce_fn of_row(const struct tu_kernel *row, uint32_t dtype, enum tu_op op)
{
    int type = tui_type_of(dtype);
    if (op > TU_MAX)
        return NULL;
    if (type >= 0)
        return ((tui_reduce_get)row->fn)((enum tui_type)type, op);
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        if (small[i].dtype == dtype)
            return small[i].fn[op];
    return NULL;
}

tu_reduce_fn tu_reduce_find(uint32_t dtype, enum tu_op op)
{
    return of_row(tu_kernel_pick(kernels, tu_cpu_bits()), dtype, op);
}

const struct tu_kernel *tu_reduce_row(size_t i)
{
    return i + 1 < sizeof kernels / sizeof *kernels ? &kernels[i] : NULL;
}

tu_reduce_fn tu_reduce_in(size_t row, uint32_t dtype, enum tu_op op)
{
    return of_row(&kernels[row], dtype, op);
}

int tu_reduce_check(uint32_t dtype, enum tu_op op, struct tu_err *err)
{
    char name[8];
    bool small_float = tui_is_small_float(dtype);
    bool is_float = small_float || dtype == TU_F32 || dtype == TU_F64;
    if (!is_float && tui_type_of(dtype) < 0)
        return tu_fail(err, TU_EUSAGE, "dtype %s has no reductions",
                       tu_dtype_text(dtype, name));
    if (op == TU_AVG && !is_float)
        return tu_fail(err, TU_EUSAGE, "avg of %s is not a whole number",
                       tu_dtype_text(dtype, name));
    if (op == TU_PROD && small_float && tu_dtype_find(dtype)->block_bytes == 1)
        return tu_fail(err, TU_EUSAGE, "prod of %s overflows at once",
                       tu_dtype_text(dtype, name));
    return 0;
}

#define SCALE(T, as)                                                                     \
    for (size_t i = 0; i < n; i++)                                                       \
    ((T *)v)[i] = (T)(((T *)v)[i] * (T)(as)scale)

void tu_reduce_scale(uint32_t dtype, void *v, size_t n, double scale)
{
    if (tui_is_small_float(dtype)) {
        float x[BLOCK];
        size_t size = tu_dtype_find(dtype)->block_bytes;
        for (size_t i = 0; i < n; i += BLOCK) {
            size_t m = tu_min(n - i, BLOCK);
            unsigned char *at = (unsigned char *)v + i * size;
            if (tu_to_float(dtype, at, x, m, NULL))
                return;
            for (size_t k = 0; k < m; k++)
                x[k] = (float)(x[k] * scale);
            if (tu_cast(dtype, at, TU_F32, x, m, NULL))
                return;
        }
        return;
    }
    switch (tui_type_of(dtype)) {
    case TUI_F32:
        for (size_t i = 0; i < n; i++)
            ((float *)v)[i] = (float)(((float *)v)[i] * scale);
        break;
    case TUI_F64: SCALE(double, double); break;
    case TUI_I8:
    case TUI_U8: SCALE(uint8_t, int64_t); break;
    case TUI_I16:
    case TUI_U16: SCALE(uint16_t, int64_t); break;
    case TUI_I32:
    case TUI_U32: SCALE(uint32_t, int64_t); break;
    default: SCALE(uint64_t, int64_t); break;
    }
}

void tui_copy_past(void *dst, const void *src, size_t n)
{
#if defined __x86_64__
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t lead = tu_min(-(uintptr_t)to & 15, n), i = lead;
    memcpy(to, from, lead);
    for (; i + 16 <= n; i += 16)
        _mm_stream_si128((__m128i *)(void *)(to + i),
                         _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
    memcpy(to + i, from + i, n - i);
    _mm_sfence();
#else
    memcpy(dst, src, n);
#endif
}
