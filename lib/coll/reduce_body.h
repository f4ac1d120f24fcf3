/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_body.h: one set of kernels; included by reduce_ISA.c, which names it by GET.
 *
 * The loops are plain C that the compiler turns into vectors: every element is one
 * operation of IEEE 754 or modular arithmetic, so each instruction set gives the same
 * bits. The destination may be one of the operands (element by element), which IVDEP
 * allows. */
#include "reduce.h"

#if defined __clang__
#define IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#pragma GCC optimize(                                                                    \
    "O3") /* -O2 of this compiler leaves loops of unknown length scalar */
#define IVDEP _Pragma("GCC ivdep")
#endif

#define LOOP(name, T, expr)                                                              \
    static void name(void *d, const void *a, const void *b, size_t n)                    \
    {                                                                                    \
        T *to = d;                                                                       \
        const T *left = a, *right = b;                                                   \
        IVDEP for (size_t i = 0; i < n; i++)                                             \
        {                                                                                \
            T x = left[i], y = right[i];                                                 \
            to[i] = (expr);                                                              \
        }                                                                                \
    }

/* U does the arithmetic (it wraps), T the comparisons. */
#define INTEGER(s, T, U)                                                                 \
    LOOP(s##_sum, U, (U)(x + y))                                                         \
    LOOP(s##_prod, U, (U)((U)1 * x * y))                                                 \
    LOOP(s##_min, T, x < y ? x : y)                                                      \
    LOOP(s##_max, T, x > y ? x : y)

INTEGER(i8, int8_t, uint8_t)
INTEGER(u8, uint8_t, uint8_t)
INTEGER(i32, int32_t, uint32_t)
INTEGER(u32, uint32_t, uint32_t)
INTEGER(i64, int64_t, uint64_t)
INTEGER(u64, uint64_t, uint64_t)
LOOP(i16_sum, uint16_t, (uint16_t)(x + y))
LOOP(i16_prod, uint16_t, (uint16_t)(1u * x * y))
LOOP(i16_min, int16_t, x < y ? x : y)
LOOP(i16_max, int16_t, x > y ? x : y)
LOOP(u16_min, uint16_t, x < y ? x : y)
LOOP(u16_max, uint16_t, x > y ? x : y)

LOOP(f32_sum, float, x + y)
LOOP(f32_prod, float, x *y)
LOOP(f64_sum, double, x + y)
LOOP(f64_prod, double, x *y)

/* Min and max by bits: of two equal numbers, which differ in the sign of zero alone, min
 * takes the union and max the intersection of the bits; NaN, made quiet and positive,
 * wins. */
#define EXTREME(name, F, U, join, than, nan) LOOP(name, U, extreme_##name(x, y))
#define CHOOSE(name, F, U, join, than, nan)                                              \
    static inline U extreme_##name(U p, U q)                                             \
    {                                                                                    \
        union {                                                                          \
            U u;                                                                         \
            F f;                                                                         \
        } x = {p}, y = {q};                                                              \
        U pick = x.f than y.f ? p : q;                                                   \
        pick = x.f == y.f ? p join q : pick;                                             \
        return x.f != x.f || y.f != y.f ? (U)nan : pick;                                 \
    }                                                                                    \
    EXTREME(name, F, U, join, than, nan)

CHOOSE(f32_min, float, uint32_t, |, <, 0x7fc00000u)
CHOOSE(f32_max, float, uint32_t, &, >, 0x7fc00000u)
CHOOSE(f64_min, double, uint64_t, |, <, UINT64_C(0x7ff8000000000000))
CHOOSE(f64_max, double, uint64_t, &, >, UINT64_C(0x7ff8000000000000))

#define FOUR(s)                                                                          \
    {                                                                                    \
        s##_sum, s##_prod, s##_min, s##_max                                              \
    }
tu_reduce_fn GET(enum tui_type type, enum tu_op op)
{
    static const tu_reduce_fn fn[TUI_TYPES][TUI_KERNELS] = {
        [TUI_F32] = FOUR(f32), [TUI_F64] = FOUR(f64),
        [TUI_I8] = FOUR(i8),   [TUI_U8] = FOUR(u8),
        [TUI_I16] = FOUR(i16), [TUI_U16] = {i16_sum, i16_prod, u16_min, u16_max},
        [TUI_I32] = FOUR(i32), [TUI_U32] = FOUR(u32),
        [TUI_I64] = FOUR(i64), [TUI_U64] = FOUR(u64),
    };
    return fn[type][op];
}
