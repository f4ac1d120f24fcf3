/* SPDX-License-Identifier: Apache-2.0 */
/* emulate.h: the language of kernels (kernel.h) on a CPU.
 *
 * A block's threads are fibers that run until they meet a barrier or exchange a value
 * with their warp. Shared arrays are checked at each AT, dynamic shared memory by what
 * lies behind it; a barrier that not all threads reach ends the program with a message.
 * Threads run forward or backward (TENSORUTILS_EMULATE=backward), so that a result that
 * hangs on their order shows. Not for speed, nor for races within a warp. */
#ifndef TENSORUTILS_DEVICE_CUDA_EMULATE_H
#define TENSORUTILS_DEVICE_CUDA_EMULATE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include "tensorutils/core.h"

struct tui_emulated {
    unsigned thread, threads, block_x, block_y, grid_x, grid_y;
    unsigned char *shared; /* dynamic */
    size_t shared_bytes;
    const char *kernel;
};
extern _Thread_local struct tui_emulated tui_emulated;

int tui_emulate(const char *name, void (*kernel)(const void *args), unsigned gx,
                unsigned gy, unsigned threads, size_t shared, const void *args,
                struct tu_err *err);
void tui_emulated_barrier(void);
/* All lanes of the warp give n ≤ TUI_EXCHANGE bytes; lane l's are at l · TUI_EXCHANGE of
 * what is returned, until the next but one exchange. */
#define TUI_EXCHANGE 64
const unsigned char *tui_emulated_exchange(const void *mine, size_t n);
/* Copies that are done late: each thread's own, in groups; those that have not arrived
 * leave NaN where they go. */
void tui_emulated_later(unsigned char *to, const unsigned char *from, size_t n);
void tui_emulated_group(void);
void tui_emulated_arrive(unsigned pending);
_Noreturn void tui_emulated_stop(const char *file, int line, const char *what, size_t i,
                                 size_t n);

#define DEVICE static inline __attribute__((unused))
#define KERNEL(name, type, threads) KERNEL_NAMED(name, type)
#define KERNEL_NAMED(name, type)                                                         \
    static void name##_body(const struct type a);                                        \
    static void name(const void *args)                                                   \
    {                                                                                    \
        name##_body(*(const struct type *)args);                                         \
    }                                                                                    \
    static void name##_body(const struct type a)
#define SHARED(type, name, n) static _Thread_local type name[n]
#define AT(array, i)                                                                     \
    (array)[tui_emulated_index((size_t)(i), sizeof(array) / sizeof *(array), __FILE__,   \
                               __LINE__)]
#define DYNAMIC_SHARED(name) unsigned char *name = tui_emulated.shared
#define SHARED_PART(type, base, at, n)                                                   \
    ((type *)(void *)((base) + tui_emulated_part(at, (n) * sizeof(type), __FILE__, __LINE__)))
#define BARRIER() tui_emulated_barrier()
#define UNROLL
#define ROLLED
#define WARP_BARRIER() ((void)tui_emulated_exchange("", 0))
#define THREAD tui_emulated.thread
#define THREADS tui_emulated.threads
#define BLOCK_X tui_emulated.block_x
#define BLOCK_Y tui_emulated.block_y
#define GRID_X tui_emulated.grid_x
#define GRID_Y tui_emulated.grid_y
#define LAUNCH(kernel, gx, gy, threads, shared, args, q, err)                            \
    ((void)(q), tui_emulate(#kernel, kernel, (unsigned)(gx), (unsigned)(gy), threads,    \
                            shared, args, err))

DEVICE size_t tui_emulated_index(size_t i, size_t n, const char *file, int line)
{
    if (i >= n)
        tui_emulated_stop(file, line, "shared array", i, n);
    return i;
}

DEVICE size_t tui_emulated_part(size_t at, size_t n, const char *file, int line)
{
    if (at + n > tui_emulated.shared_bytes)
        tui_emulated_stop(file, line, "dynamic shared memory", at + n,
                          tui_emulated.shared_bytes);
    return at;
}

DEVICE uint32_t lane_u32(uint32_t v, unsigned lane)
{
    uint32_t out;
    memcpy(&out, tui_emulated_exchange(&v, sizeof v) + lane % 32 * TUI_EXCHANGE, sizeof out);
    return out;
}

DEVICE uint32_t xor_u32(uint32_t v, unsigned m)
{
    return lane_u32(v, (tui_emulated.thread % 32) ^ m);
}

DEVICE uint32_t bits_of(float v)
{
    uint32_t out;
    memcpy(&out, &v, sizeof out);
    return out;
}

DEVICE float of_bits(uint32_t v)
{
    float out;
    memcpy(&out, &v, sizeof out);
    return out;
}

DEVICE float xor_f32(float v, unsigned m)
{
    return of_bits(xor_u32(bits_of(v), m));
}

DEVICE uint32_t to_f16(float v)
{
    return tu_to_f16(v);
}

DEVICE float from_f16(uint32_t v)
{
    return tu_from_f16((uint16_t)v);
}

DEVICE uint32_t to_bf16(float v)
{
    return tu_to_bf16(v);
}

DEVICE int leading_zeros(uint32_t v)
{
    return v ? __builtin_clz(v) : 32;
}

DEVICE int count_bits(uint64_t v)
{
    return __builtin_popcountll(v);
}

DEVICE uint32_t high_product(uint32_t x, uint32_t y)
{
    return (uint32_t)((uint64_t)x * y >> 32);
}

#endif
