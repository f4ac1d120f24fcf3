/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: what a cache of a model takes, before there is one. */
#ifndef TENSORUTILS_KV_PLAN_H
#define TENSORUTILS_KV_PLAN_H

#include "../core.h"

TU_BEGIN

/* Sizes of a model's cache. */
struct tu_kv_sizes {
    uint64_t layers;        /* that own a cache */
    uint64_t heads;         /* KV heads */
    uint64_t dim_k, dim_v;
    uint64_t latent;        /* MLA: columns of the latent, rotary part included; 0 none */
    uint64_t window, local; /* window, sliding or in chunks, and how many layers have it */
    double state;           /* bytes that layers without a cache hold of any sequence */
    uint64_t hidden;
    double params;          /* estimated from the sizes; 0 unknown */
};
/* From a Hugging Face config.json text: kv_lora_rank and qk_rope_head_dim, layer_types or
 * sliding_window_pattern, num_kv_shared_layers. Errors: those of tu_model_from_hf. */
TU_API TU_MUST int tu_kv_sizes_from_hf(struct tu_kv_sizes *out, const char *json, size_t n,
                                       struct tu_err *err);
/* Bytes of T tokens on one of tp ranks, elements of `bits` bits; window layers hold at
 * most their window, and states are as they are. Errors: TU_ESIZE on overflow. */
TU_API TU_MUST int tu_kv_bytes(const struct tu_kv_sizes *s, uint64_t T, double bits,
                               uint64_t tp, uint64_t *out, struct tu_err *err);
/* Bits of an element by the name of a dtype or codec ("bf16", "q8_0", "kivi2"), for
 * columns of `dim`; 0 unknown. */
TU_API double tu_kv_bits(const char *name, uint64_t dim);

/* One user's context of n tokens on one device. Source: Fu, "Challenges in Deploying
 * Long-Context Transformers", arXiv 2405.08944. */
struct tu_kv_device {
    double hbm, bandwidth, flops, link; /* bytes, bytes/s, flop/s, bytes/s */
    double params, weight_bytes;
    uint64_t answer; /* tokens */
};
struct tu_kv_context {
    uint64_t kv;                    /* bytes */
    uint64_t users;                 /* whose caches fit beside the weights */
    double prefill, decode, swap;   /* seconds; decode of the whole answer; out and in */
    double load_above;              /* bytes/s of a link that beats computing again */
};
TU_API void tu_kv_context(struct tu_kv_context *out, const struct tu_kv_sizes *s,
                          const struct tu_kv_device *d, uint64_t n, uint64_t kv);

TU_END

#endif
