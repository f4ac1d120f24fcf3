/* SPDX-License-Identifier: Apache-2.0 */
/* table.c: tables of pages: checked when they come from outside, CSR and padded. */
#include <inttypes.h>
#include <string.h>
#include <tensorutils/kv/table.h>

int tu_kv_table_add(struct tu_kv_table *t, const int32_t *page, uint64_t pages,
                    uint64_t tokens, struct tu_err *err)
{
    size_t cap = t->cap_n; /* begin has an entry more than tokens */
    int rc = t->begin ? 0 : TU_GROW(&t->begin, &t->cap_n, 0, err);
    if (!rc && cap == 0)
        t->begin[0] = 0;
    if (!rc)
        rc = TU_GROW(&t->begin, &t->cap_n, t->n + 1, err);
    if (rc)
        return rc;
    uint64_t *tokens_now = tu_realloc(t->tokens, t->cap_n, sizeof *t->tokens, err);
    if (!tokens_now)
        return TU_ENOMEM;
    t->tokens = tokens_now;
    uint64_t at = t->begin[t->n];
    while (t->cap_page < at + pages)
        if ((rc = TU_GROW(&t->page, &t->cap_page, t->cap_page, err)))
            return rc;
    if (pages)
        memcpy(t->page + at, page, pages * sizeof *page);
    t->tokens[t->n++] = tokens;
    t->begin[t->n] = at + pages;
    return 0;
}

void tu_kv_table_release(struct tu_kv_table *t)
{
    tu_free(t->begin);
    tu_free(t->page);
    tu_free(t->tokens);
    *t = (struct tu_kv_table){0};
}

static int check_pages(const int32_t *page, uint64_t n, uint64_t blocks, uint64_t seq,
                       struct tu_err *err)
{
    for (uint64_t i = 0; i < n; i++)
        if (page[i] < 0 || (uint64_t)page[i] >= blocks)
            return tu_fail(err, TU_EFORMAT,
                           "sequence %" PRIu64 ": page %" PRIu64 " is %d, the pool has %"
                           PRIu64,
                           seq, i, page[i], blocks);
    return 0;
}

int tu_kv_table_of_csr(struct tu_kv_table *out, const int32_t *indptr, uint64_t n,
                       const int32_t *indices, uint64_t indices_n, const int32_t *last,
                       uint64_t block, uint64_t blocks, struct tu_err *err)
{
    *out = (struct tu_kv_table){.block = block, .blocks = blocks};
    int rc = indptr[0] ? tu_fail(err, TU_EFORMAT, "kv_indptr begins with %d", indptr[0])
                       : 0;
    for (uint64_t i = 0; !rc && i < n; i++) {
        int32_t a = indptr[i], b = indptr[i + 1];
        if (a < 0 || b <= a || (uint64_t)b > indices_n)
            rc = tu_fail(err, TU_EFORMAT,
                         "kv_indptr: sequence %" PRIu64 " has pages %d to %d of %" PRIu64,
                         i, a, b, indices_n);
        else if (last[i] < 1 || (uint64_t)last[i] > block)
            rc = tu_fail(err, TU_EFORMAT,
                         "kv_last_page_len: sequence %" PRIu64 " has %d of 1 to %" PRIu64,
                         i, last[i], block);
        else if (!(rc = check_pages(indices + a, (uint64_t)(b - a), blocks, i, err)))
            rc = tu_kv_table_add(out, indices + a, (uint64_t)(b - a),
                                 block * (uint64_t)(b - a - 1) + (uint64_t)last[i], err);
    }
    if (!rc && (uint64_t)indptr[n] != indices_n)
        rc = tu_fail(err, TU_EFORMAT,
                     "kv_indices has %" PRIu64 " entries, kv_indptr ends at %d", indices_n,
                     indptr[n]);
    if (rc)
        tu_kv_table_release(out);
    return rc;
}

int tu_kv_table_of_padded(struct tu_kv_table *out, const int32_t *table, uint64_t n,
                          uint64_t width, const int32_t *tokens, uint64_t block,
                          uint64_t blocks, struct tu_err *err)
{
    *out = (struct tu_kv_table){.block = block, .blocks = blocks};
    int rc = 0;
    for (uint64_t i = 0; !rc && i < n; i++) {
        const int32_t *row = table + i * width;
        if (tokens[i] < 0 || tu_ceil_div((uint64_t)tokens[i], block) > width)
            rc = tu_fail(err, TU_EFORMAT,
                         "sequence %" PRIu64 ": %d tokens in a table of %" PRIu64
                         " pages of %" PRIu64,
                         i, tokens[i], width, block);
        uint64_t pages = rc ? 0 : tu_ceil_div((uint64_t)tokens[i], block);
        if (!rc)
            rc = check_pages(row, pages, blocks, i, err);
        if (!rc)
            rc = tu_kv_table_add(out, row, pages, (uint64_t)tokens[i], err);
    }
    if (rc)
        tu_kv_table_release(out);
    return rc;
}

int tu_kv_table_csr(const struct tu_kv_table *t, int32_t **indptr, int32_t **indices,
                    int32_t **last, struct tu_err *err)
{
    uint64_t pages = t->n ? t->begin[t->n] : 0;
    *indptr = tu_alloc((size_t)t->n + 1, sizeof **indptr, err);
    *indices = tu_alloc((size_t)pages, sizeof **indices, err);
    *last = tu_alloc((size_t)t->n, sizeof **last, err);
    if (!*indptr || !*indices || !*last || pages > INT32_MAX) {
        tu_free(*indptr);
        tu_free(*indices);
        tu_free(*last);
        return pages > INT32_MAX ? tu_fail(err, TU_ESIZE, "too many pages for int32")
                                 : TU_ENOMEM;
    }
    (*indptr)[0] = 0;
    for (uint64_t i = 0; i < t->n; i++) {
        uint64_t own = t->begin[i + 1] - t->begin[i];
        (*indptr)[i + 1] = (int32_t)t->begin[i + 1];
        (*last)[i] = own ? (int32_t)(t->tokens[i] - (own - 1) * t->block) : 0;
    }
    if (pages)
        memcpy(*indices, t->page, pages * sizeof **indices);
    return 0;
}

int tu_kv_table_padded(const struct tu_kv_table *t, int32_t **table, uint64_t *width,
                       int32_t **tokens, struct tu_err *err)
{
    *width = 0;
    for (uint64_t i = 0; i < t->n; i++)
        *width = tu_max(*width, t->begin[i + 1] - t->begin[i]);
    uint64_t cells;
    *table = *tokens = NULL;
    if (tu_mul_over(t->n, *width, &cells) || cells > SIZE_MAX / sizeof **table)
        return tu_fail(err, TU_ESIZE, "the table of pages is too large");
    *table = tu_alloc((size_t)cells, sizeof **table, err);
    *tokens = tu_alloc((size_t)t->n, sizeof **tokens, err);
    if (!*table || !*tokens) {
        tu_free(*table);
        tu_free(*tokens);
        return TU_ENOMEM;
    }
    for (uint64_t i = 0; i < t->n; i++) {
        uint64_t own = t->begin[i + 1] - t->begin[i];
        for (uint64_t k = 0; k < *width; k++)
            (*table)[i * *width + k] = k < own ? t->page[t->begin[i] + k] : -1;
        (*tokens)[i] = (int32_t)t->tokens[i];
    }
    return 0;
}

double tu_kv_table_waste(const struct tu_kv_table *t, bool each, uint64_t *slots,
                         uint64_t *used, struct tu_err *err)
{
    uint64_t pages = t->n ? t->begin[t->n] : 0;
    *slots = *used = 0;
    if (each) {
        *slots = pages * t->block;
        for (uint64_t i = 0; i < t->n; i++)
            *used += t->tokens[i];
    } else {
        uint64_t *full = tu_calloc((size_t)t->blocks, sizeof *full, err);
        if (!full)
            return -1;
        for (uint64_t i = 0; i < t->n; i++)
            for (uint64_t k = t->begin[i]; k < t->begin[i + 1]; k++) {
                uint64_t left = t->tokens[i] - (k - t->begin[i]) * t->block;
                uint64_t *at = &full[t->page[k]];
                *at = tu_max(*at, tu_min(left, t->block));
            }
        for (uint64_t b = 0; b < t->blocks; b++) {
            *slots += full[b] ? t->block : 0;
            *used += full[b];
        }
        tu_free(full);
    }
    return *slots ? 1 - (double)*used / (double)*slots : 0;
}
