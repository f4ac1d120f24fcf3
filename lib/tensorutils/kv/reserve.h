/* SPDX-License-Identifier: Apache-2.0 */
/* reserve.h: contiguous caches as vAttention has them: address space for the longest
 * context of each request, pages of memory mapped as tokens come.
 *
 * Every layer's K and V is a tensor [requests, context, row]; request r of it begins at
 * r * slot bytes, slot being row * context rounded up to pages. A request grows by a group:
 * one page in each tensor. The pages of one that ended stay mapped for the next in its
 * place, and are taken back only when others run short. Reading beyond what a request has
 * is a fault.
 *
 * With `ahead` a thread maps the next group of every live request, its memory there and
 * zeroed, while the caller computes; what it holds so goes to whoever runs short. All
 * calls but _new and _free may then be made from several threads. Source: Prabhu and others,
 * "vAttention", arXiv 2405.04437, and its vattention/utils.h. */
#ifndef TENSORUTILS_KV_RESERVE_H
#define TENSORUTILS_KV_RESERVE_H

#include "../core.h"

TU_BEGIN

struct tu_kv_reserve;

struct tu_kv_reserve_how {
    uint64_t row;      /* bytes of a token in one tensor: heads * dim * element */
    uint64_t tensors;  /* 2 for each layer */
    uint64_t requests; /* at once */
    uint64_t context;  /* most tokens of one */
    uint64_t page;     /* bytes, a multiple of the system's page */
    uint64_t groups;   /* memory there is */
    bool ahead;        /* map one group more than tokens need, beside the caller */
    bool huge;         /* ask for the system's huge pages; `page` is a multiple of 2 MiB */
};

struct tu_kv_reserve_count {
    uint64_t reserved;       /* bytes of address space */
    uint64_t mapped, ended;  /* groups of all requests; of these, of ended ones */
    uint64_t waited;         /* groups that a request had to wait for */
    uint64_t free;           /* groups that a request can still get, ended ones' included */
    uint64_t tokens;         /* of live requests */
    uint64_t maps, unmaps;   /* pages, in all */
    double seconds;          /* that requests waited for mapping and unmapping */
};

/* Whole tokens of a page, and bytes of address space of a request in one tensor. */
TU_API uint64_t tu_kv_reserve_tokens(const struct tu_kv_reserve_how *how);
/* Errors: TU_ESIZE on overflow. */
TU_API TU_MUST int tu_kv_reserve_slot(const struct tu_kv_reserve_how *how, uint64_t *bytes,
                                      struct tu_err *err);
/* Errors: TU_EUSAGE for sizes that cannot be; TU_ENOMEM, TU_EIO of the system. */
TU_API TU_MUST int tu_kv_reserve_new(struct tu_kv_reserve **out,
                                     const struct tu_kv_reserve_how *how,
                                     struct tu_err *err);
TU_API void tu_kv_reserve_free(struct tu_kv_reserve *r);
/* A place for a request, the one with the most pages still mapped. Errors: TU_ENOMEM all
 * are taken. */
TU_API TU_MUST int tu_kv_reserve_begin(struct tu_kv_reserve *r, uint64_t *request,
                                       struct tu_err *err);
/* Memory for `tokens` tokens of it in all. Errors: TU_EUSAGE beyond the context; TU_ENOMEM
 * memory has run out: what was mapped stays. */
TU_API TU_MUST int tu_kv_reserve_grow(struct tu_kv_reserve *r, uint64_t request,
                                      uint64_t tokens, struct tu_err *err);
TU_API void tu_kv_reserve_end(struct tu_kv_reserve *r, uint64_t request);
/* Where a request begins in a tensor; requests of one tensor are `stride` bytes apart. */
TU_API void *tu_kv_reserve_at(const struct tu_kv_reserve *r, uint64_t tensor,
                              uint64_t request, uint64_t *stride);
/* Wait until what can be mapped ahead is. */
TU_API void tu_kv_reserve_settle(struct tu_kv_reserve *r);
TU_API void tu_kv_reserve_counts(struct tu_kv_reserve *r, struct tu_kv_reserve_count *out);

TU_END

#endif
