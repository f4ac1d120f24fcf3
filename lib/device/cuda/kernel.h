/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h: the language that kernels are written in: C that nvcc and gcc both take.
 *
 * nvcc maps it to the device. gcc maps it to emulate.h, where the threads of a block are
 * fibers of one thread, so that a kernel runs whole on a CPU, with its shared memory
 * checked. A kernel is KERNEL(name, argument struct, threads) { body }, a is its argument;
 * blocks have one dimension, grids two. A family ends with its rows of struct tui_kernel. */
#ifndef TENSORUTILS_DEVICE_CUDA_KERNEL_H
#define TENSORUTILS_DEVICE_CUDA_KERNEL_H

#include "table.h"

enum { WARP = 32 };

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define DEVICE static __device__ __forceinline__
#define KERNEL(name, type, threads)                                                      \
    extern "C" __global__ void __launch_bounds__(threads)                                \
        name(const __grid_constant__ struct type a)
#define SHARED(type, name, n) __shared__ type name[n]
#define AT(array, i) (array)[i]
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
#define SHARED_PART(type, base, at, n) ((type *)((base) + (at)))
#define BARRIER() __syncthreads()
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#define WARP_BARRIER() __syncwarp()
#define THREAD ((unsigned)threadIdx.x)
#define BLOCK_X ((unsigned)blockIdx.x)
#define BLOCK_Y ((unsigned)blockIdx.y)
#define GRID_X ((unsigned)gridDim.x)
#define GRID_Y ((unsigned)gridDim.y)
#define THREADS ((unsigned)blockDim.x)

DEVICE float xor_f32(float v, unsigned m)
{
    return __shfl_xor_sync(0xffffffffu, v, (int)m);
}

DEVICE uint32_t xor_u32(uint32_t v, unsigned m)
{
    return __shfl_xor_sync(0xffffffffu, v, (int)m);
}

DEVICE uint32_t lane_u32(uint32_t v, unsigned lane)
{
    return __shfl_sync(0xffffffffu, v, (int)lane);
}

DEVICE uint32_t bits_of(float v)
{
    return __float_as_uint(v);
}

DEVICE float of_bits(uint32_t v)
{
    return __uint_as_float(v);
}

DEVICE uint32_t to_f16(float v)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return h;
}

DEVICE float from_f16(uint32_t v)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)v));
    return f;
}

DEVICE uint32_t to_bf16(float v)
{
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return h;
}

DEVICE int leading_zeros(uint32_t v)
{
    return __clz((int)v);
}

DEVICE int count_bits(uint64_t v)
{
    return __popcll(v);
}

DEVICE uint32_t high_product(uint32_t x, uint32_t y)
{
    return __umulhi(x, y);
}

/* Threads that a launch needs in shared memory beyond 48 KiB must be asked for. */
int tui_prepare(const void *kernel, size_t shared, struct tu_err *err);
int tui_started(const char *name, struct tu_err *err);

#define LAUNCH(kernel, gx, gy, threads, shared, args, q, err)                            \
    (tui_prepare((const void *)kernel, shared, err)                                      \
         ? TU_ENODEV                                                                     \
         : (kernel<<<dim3((unsigned)(gx), (unsigned)(gy)), threads, shared,              \
                     (cudaStream_t)(q)>>>(*(args)),                                      \
            tui_started(#kernel, err)))

#else
#include "emulate.h"
#endif

DEVICE float from_bf16(uint32_t v)
{
    return of_bits(v << 16);
}

DEVICE float max_f32(float x, float y)
{
    return x > y ? x : y;
}

DEVICE float abs_f32(float v)
{
    return of_bits(bits_of(v) & 0x7fffffffu);
}

/* Over the lanes of a warp; every lane gets the result. */
DEVICE float warp_max(float v)
{
    for (unsigned m = WARP / 2; m; m /= 2)
        v = max_f32(v, xor_f32(v, m));
    return v;
}

DEVICE float warp_sum(float v)
{
    for (unsigned m = WARP / 2; m; m /= 2)
        v += xor_f32(v, m);
    return v;
}

/* Warps of a grid take work in turn. */
DEVICE uint64_t first_of_warp(void)
{
    return (uint64_t)BLOCK_X * (THREADS / WARP) + THREAD / WARP;
}

DEVICE uint64_t warps_of_grid(void)
{
    return (uint64_t)GRID_X * (THREADS / WARP);
}

/* Blocks for so many warps' worth of work: enough for every multiprocessor, no more. */
static inline unsigned tui_blocks(uint64_t warps, unsigned per_block)
{
    uint64_t n = (warps + per_block - 1) / per_block, most = 132 * 16;
    return (unsigned)(n < 1 ? 1 : n < most ? n : most);
}

#endif
