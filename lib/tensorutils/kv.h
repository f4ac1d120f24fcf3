/* SPDX-License-Identifier: Apache-2.0 */
/* kv.h: KV caches: layouts of engines, paging, hashes, spilling, replay.
 *
 * May change before 1.0. */
#ifndef TENSORUTILS_KV_H
#define TENSORUTILS_KV_H

#include "attn.h"
#include "core.h"
#include "format.h"
#include "quant.h"

TU_BEGIN

/* What a cache is, whatever holds it. */
struct tu_kv_info {
    uint64_t layers, kv_heads, head_dim_k, head_dim_v, tokens, block;
    uint32_t dtype_k, dtype_v;
    double rope_theta; /* 0: keys are not rotated, or not known */
    char model[128];   /* fingerprint of the weights, "" unknown */
};

/* A row: how an engine lays a block of keys or values out in memory. Strides in elements
 * of (layer, k or v, block, token in block, head, dim). */
struct tu_kv_layout {
    const char *name, *help;
    int (*strides)(const struct tu_kv_info *i, int64_t stride[6], struct tu_err *err);
};
TU_API extern const struct tu_kv_layout *const tu_kv_layouts[];

/* A row: an engine's file, read and written. */
struct tu_kv_engine {
    const char *name, *help;
    bool (*sniff)(const char *path, const unsigned char *head, size_t n);
    int (*open)(struct tu_source **out, struct tu_kv_info *info, const char *path,
                const struct tu_job *job, struct tu_err *err);
    int (*save)(struct tu_sink **out, const char *path, const struct tu_kv_info *info,
                const struct tu_save *what, const struct tu_job *job, struct tu_err *err);
};
TU_API extern const struct tu_kv_engine *const tu_kv_engines[];

TU_END

#endif
