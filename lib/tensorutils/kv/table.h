/* SPDX-License-Identifier: Apache-2.0 */
/* table.h: which pages hold which sequence, in the two forms that kernels take.
 *
 * CSR (FlashInfer): kv_indptr i32 [n+1], kv_indices i32, kv_last_page_len i32 [n], and
 * 1 ≤ last ≤ B. Padded (vLLM): block_table i32 [n, most pages] with -1 behind a sequence's
 * own, seqlens_k i32 [n]. */
#ifndef TENSORUTILS_KV_TABLE_H
#define TENSORUTILS_KV_TABLE_H

#include "../core.h"

TU_BEGIN

struct tu_kv_table {
    uint64_t n, block, blocks; /* sequences; tokens of a page; pages of the pool */
    uint64_t *begin;           /* [n+1] of page */
    int32_t *page;             /* [begin[n]] */
    uint64_t *tokens;          /* [n] */
    size_t cap_n, cap_page;
};
/* {0} with block set is an empty table. Add a sequence; pages are copied. */
TU_API TU_MUST int tu_kv_table_add(struct tu_kv_table *t, const int32_t *page,
                                   uint64_t pages, uint64_t tokens, struct tu_err *err);
TU_API void tu_kv_table_release(struct tu_kv_table *t);
/* From the arrays of an engine. Errors: TU_EFORMAT naming sequence and entry: an indptr
 * that does not rise, a page outside the pool, a last page that is empty or overfull,
 * padding inside a sequence. */
TU_API TU_MUST int tu_kv_table_of_csr(struct tu_kv_table *out, const int32_t *indptr,
                                      uint64_t n, const int32_t *indices,
                                      uint64_t indices_n, const int32_t *last,
                                      uint64_t block, uint64_t blocks, struct tu_err *err);
TU_API TU_MUST int tu_kv_table_of_padded(struct tu_kv_table *out, const int32_t *table,
                                         uint64_t n, uint64_t width, const int32_t *tokens,
                                         uint64_t block, uint64_t blocks,
                                         struct tu_err *err);
/* Arrays of the table (tu_free); CSR: indptr [n+1], indices [begin[n]], last [n]. */
TU_API TU_MUST int tu_kv_table_csr(const struct tu_kv_table *t, int32_t **indptr,
                                   int32_t **indices, int32_t **last, struct tu_err *err);
TU_API TU_MUST int tu_kv_table_padded(const struct tu_kv_table *t, int32_t **table,
                                      uint64_t *width, int32_t **tokens,
                                      struct tu_err *err);
/* Slots of the table that hold no token, over all slots: internal waste. Shared pages
 * count once for each sequence when `each`, else once. */
TU_API double tu_kv_table_waste(const struct tu_kv_table *t, bool each, uint64_t *slots,
                                uint64_t *used, struct tu_err *err);

TU_END

#endif
