/* SPDX-License-Identifier: Apache-2.0 */
/* store.h: a folder of blocks of KV caches, found by what stands before them.
 *
 * A block is a file DIR/blocks/XX/NAME.tns, a tensor stream with the tokens of one block
 * in all layers. NAME is SHA-256 over the name of the block before it and its token ids;
 * before the first stands the name of its *space*, SHA-256 over META kv, the shapes and
 * dtypes of a token and the block's length, so that a block is never taken for another
 * model's, layout's or rank's. DIR/spaces/NAME.json says what a space is.
 *
 * Files appear by one rename after their bytes are on disk, are never changed, and are
 * checked whole before they are served: a crash or a kill at any instant leaves blocks or
 * nothing. Any number of processes may use a store; who evicts holds DIR/lock. What was
 * used longest ago goes first, the end of a chain before its beginning. */
#ifndef TENSORUTILS_KV_STORE_H
#define TENSORUTILS_KV_STORE_H

#include "../core.h"
#include "../stream.h"

TU_BEGIN

struct tu_kv;
struct tu_kv_info;

struct tu_kv_spilled {
    uint64_t blocks, added, bytes; /* of this cache; those not there yet, their bytes */
    uint64_t evicted, left;        /* blocks that went; tokens that fill no block */
};
/* Put the full blocks of a cache by tokens that has ids. limit: bytes of all blocks
 * together, 0 none. Errors: TU_EIO, TU_EUSAGE, TU_EUNSUP. */
TU_API TU_MUST int tu_kv_spill(struct tu_kv *kv, const char *dir, uint64_t block,
                               uint64_t limit, struct tu_kv_spilled *out,
                               const struct tu_job *job, struct tu_err *err);

struct tu_kv_fetched {
    uint64_t blocks, tokens; /* of the longest beginning that is there */
    uint64_t damaged;        /* a block that failed its checks: 1, and the beginning ends */
};
/* The longest beginning of ids[n] as one segment, or as a segment for each block when
 * `each`. want: fields that are known choose the space. Nothing found writes nothing.
 * Errors: TU_EUSAGE where several spaces fit; TU_EIO. */
TU_API TU_MUST int tu_kv_fetch(const char *dir, const struct tu_kv_info *want,
                               const int32_t *ids, uint64_t n, bool each,
                               struct tu_writer *w, struct tu_kv_fetched *out,
                               const struct tu_job *job, struct tu_err *err);

struct tu_kv_block {
    char name[65], parent[65]; /* parent: a block or a space */
    uint64_t index, bytes, tokens;
    int64_t used; /* nanoseconds since 1970 */
    bool broken, orphan; /* fails its checks; what it stands on is gone */
};
/* All blocks, by name (tu_free *out). check: read each whole. Errors: TU_EIO. */
TU_API TU_MUST int tu_kv_store_scan(const char *dir, bool check, struct tu_kv_block **out,
                                    size_t *n, const struct tu_job *job,
                                    struct tu_err *err);
struct tu_kv_swept {
    uint64_t blocks, bytes, temporaries, broken, orphans, old;
};
/* Remove what is broken, orphans, temporary files older than an hour, blocks not used for
 * `age` nanoseconds (0: none) and the longest unused over `limit` bytes (0: none). */
TU_API TU_MUST int tu_kv_store_sweep(const char *dir, uint64_t age, uint64_t limit,
                                     struct tu_kv_swept *out, const struct tu_job *job,
                                     struct tu_err *err);

TU_END

#endif
