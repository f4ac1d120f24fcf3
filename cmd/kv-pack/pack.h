/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h: what the subcommands of kv-pack share: identity options, inputs, outputs. */
#ifndef KV_PACK_PACK_H
#define KV_PACK_PACK_H

#include <tensorutils/kv.h>
#include "common/main.h"

extern const struct tu_cmd kv_pack, kv_unpack, kv_convert, kv_page, kv_share, kv_hash,
    kv_stat, kv_replay, kv_compress, kv_decompress, kv_spill, kv_fetch, kv_verify, kv_gc,
    kv_plan;
extern const struct tu_listing kv_listings[];

/* Whose cache it is, where files do not say. */
struct kv_identity {
    const char *model, *weights, *arch, *tp, *config, *tokens;
    int rope; /* index: post pre none; -1 not given */
    double theta;
    uint64_t window, heads;
};
extern struct kv_identity kv_identity;
extern const struct tu_opt kv_identity_options[];
TU_MUST int kv_identity_get(struct tu_kv_info *out, struct tu_err *err);

/* Streams: the operands, or standard input. */
TU_MUST int kv_streams(int argc, char **argv, struct tu_kv_set *set, struct tu_err *err);
/* A stream or an engine's file by its looks (spec NULL) into the set. */
TU_MUST int kv_any(struct tu_ctx *ctx, const char *path, const struct tu_spec *spec,
                   struct tu_kv_set *set, struct tu_err *err);
/* Does the path begin like a stream? */
bool kv_is_stream(const char *path);
TU_MUST int kv_writer(struct tu_ctx *ctx, struct tu_writer **w, struct tu_err *err);
/* Close or give up; the status. */
int kv_written(struct tu_ctx *ctx, struct tu_writer *w, int rc, struct tu_err *err);
/* Token ids of a text: numbers with anything but digits between them. */
TU_MUST int kv_tokens(const char *path, int32_t **ids, uint64_t *n, struct tu_err *err);
/* "a-b": a to b-1; "a-": to the end; "a": one. */
TU_MUST int kv_range(const char *text, const char *option, struct tu_kv_range *out,
                     struct tu_err *err);
/* "N" or "N:R". */
TU_MUST int kv_tp(const char *text, uint64_t *size, int64_t *rank, struct tu_err *err);

/* Numbers of the `kept` tokens that a method of tu_kv_keep chooses; *keep: tu_free. */
TU_MUST int kv_choose_tokens(struct tu_kv *kv, const char *method, uint64_t kept,
                             uint64_t **keep, struct tu_err *err);

/* What a record was before compress, by its metadata; `is`: it was compressed. */
struct kv_quant {
    struct tu_spec spec; /* tu_spec_release */
    struct tu_kv_array a;
    uint64_t dim[3];
    unsigned rank;
    bool is;
};
TU_MUST int kv_quant_read(const struct tu_tensor *t, struct kv_quant *q,
                          struct tu_err *err);

/* The prompts of a store, a row each. */
TU_MUST int kv_stat_store(struct tu_ctx *ctx, const char *dir, struct tu_err *err);

/* The options of block names. */
struct kv_naming {
    const char *hash, *seed, *salt, *lora, *extra;
    uint64_t block;
};
extern struct kv_naming kv_naming;
extern const struct tu_opt kv_naming_options[];
TU_MUST int kv_naming_get(const struct tu_kv_scheme **scheme, struct tu_kv_hash_how *how,
                          struct tu_err *err);

#endif
