/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h: what the kernels of a device are called, and what each family of them takes.
 *
 * tu_device.launch takes a name and a pointer to the family's struct; pointers inside are
 * to the device's memory, but where said. A kernel gives the bytes (codecs) or the
 * numbers (attention, within its rounding) of the room whose work it does. May change
 * before 1.0. */
#ifndef TENSORUTILS_DEVICE_KERNELS_H
#define TENSORUTILS_DEVICE_KERNELS_H

#include "../core.h"

TU_BEGIN

/* encode.NAME, decode.NAME: a run of whole atoms of a codec (the last may be short).
 * q4_0 q8_0 q4_k (decode) nf4 dyn8 fp8 fp8_tensor fp8_channel mxfp8 mxfp4_packed
 * nvfp4_packed int4 terngrad. */
struct tu_kernel_code {
    uint64_t n, first;      /* elements; number of the first, for random numbers */
    float *x;               /* [n], in or out; finite */
    unsigned char *code;
    float *scale;           /* side 0, f32 */
    unsigned char *scale8;  /* side 0, eight bits */
    unsigned char *scale16; /* side 0, f16 or bf16 */
    const float *book;      /* [16] or [256] sorted values */
    uint32_t block;         /* elements under one scale */
    uint32_t small;         /* dtype of elements of at most 8 bits */
    uint32_t rule;          /* mx: floor, ceil, rceil, even; int4: dtype of scales */
    uint32_t words;         /* int4: words of a row */
    uint64_t cols;
    float unit, global;     /* of the whole tensor: a scale; NVFP4's stored and own */
    uint64_t seed, stream;
    uint32_t *bad;          /* set to 1 by a code that stands for nothing */
};

/* prune.24: the two largest of every four along a row stay. */
struct tu_kernel_prune {
    float *x;
    const float *score; /* NULL: |x| */
    uint64_t n;
};

/* planes.product: y [rows_a, rows_b] = a · bᵀ, as tu_planes_product. */
struct tu_kernel_planes {
    const uint64_t *a, *b;
    const float *scale_a, *scale_b;
    uint64_t rows_a, rows_b, n;
    uint32_t bits_a, bits_b;
    float *y;
};

/* move.boxes: elements of an array of up to six axes to another order of strides: the
 * layouts of KV caches, gathering and scattering of their pages. */
#define TU_KERNEL_AXES 6
struct tu_kernel_move {
    const unsigned char *src;
    unsigned char *dst;
    uint32_t elem, axes; /* bytes: 1, 2, 4 or 8 */
    uint64_t dim[TU_KERNEL_AXES];
    int64_t from[TU_KERNEL_AXES], to[TU_KERNEL_AXES]; /* strides in elements */
    /* Pages: index along axis 0, instead of 0, 1 …; NULL: in order. */
    const int32_t *page_from, *page_to;
};

/* split.16, join.16: the high bytes of n 16-bit words, then the low ones, and back. */
struct tu_kernel_split {
    const unsigned char *src;
    unsigned char *dst;
    uint64_t n;
};

/* reduce.sum, reduce.prod, reduce.min, reduce.max: d[i] = a[i] op b[i] of f32, f16, bf16 or
 * i32, as tu_reduce_find. */
struct tu_kernel_reduce {
    void *d;
    const void *a, *b;
    uint64_t n;
    uint32_t dtype;
};

/* attn.*: softmax attention ------------------------------------------------------------ */

struct tu_kernel_rows {
    unsigned char *data; /* NULL: absent */
    uint32_t dtype, elem;
    int64_t batch, token, head; /* strides in elements */
};

struct tu_kernel_seq {
    uint64_t q_batch, q_token, sq, k_batch, k_token, sk;
    const int32_t *page;
    uint64_t lse_at;
    int64_t off;
    uint64_t prefix;
};

/* The fields are those of struct tu_attn in attn.h. Kernels: attn.forward, attn.backward
 * (plain: every feature that is here), attn.forward.mma (tensor cores: bf16 and f16, d = dv
 * a multiple of 8 up to 256, rows at multiples of 16 bytes, no scales; splits ≥ 1). */
struct tu_kernel_attn {
    struct tu_kernel_rows q, k, v, o, dout, dq, dk, dv_;
    const struct tu_kernel_seq *seq; /* [batch] */
    uint64_t batch, hq, hkv, d, dv, sq_max, sk_max, page;
    uint64_t lse_head, slopes_batch, docs_n, h_first, h_all;
    float scale, softcap, dropout;
    uint64_t drop_below; /* of 2^32 */
    int64_t left, right;
    uint64_t sink_tokens, chunk, mask_q, mask_k, seed;
    uint32_t causal;
    float *lse;
    const float *dlse, *slopes, *sinks, *bias, *q_scale, *k_scale, *v_scale;
    const unsigned char *mask, *blocks;
    const int64_t *docs;
    int64_t bias_at[4], mask_at[4], blocks_at[4];
    float *delta; /* [as lse]: scratch of the backward pass */
    float *dsink;
    /* Keys in splits (decoding): o_part [splits, rows, dv] and lse_part [splits, rows] with rows =
     * batch · hq · sq_max. */
    uint32_t splits;
    float *o_part, *lse_part;
};

/* linear.forward, gla.forward, ssd.forward: the recurrences of fa-run's operators over
 * [batch, time, head, …], f32. */
struct tu_kernel_scan {
    const float *q, *k, *v; /* [B, T, H, D], [B, T, H, D], [B, T, H, E] */
    const float *gate;      /* gla: log of the decay, [B, T, H, D]; ssd: [B, T, H] */
    const float *slope;     /* linear: decay exp(-slope) per head, [H]; NULL: none */
    const float *state;     /* [B, H, D, E], or NULL: zeros */
    float *o, *state_out;   /* [B, T, H, E]; [B, H, D, E] or NULL */
    uint64_t batch, time, heads, d, e;
    float scale;
};

TU_END

#endif
