/* SPDX-License-Identifier: Apache-2.0 */
/* bsr.c: rows of square blocks, with a permutation of rows that brings blocks together.
 * Source: P. Okanovic et al., "High Performance Unstructured SpMM Computation Using
 * Tensor Cores", 2024; the linkage of the clusters is ours. */
#include <inttypes.h>
#include <string.h>
#include "tensorutils/quant/sparse.h"

/* Sets of block columns, one per row. */
struct pattern {
    uint64_t words;
    uint64_t *bits;
};

static unsigned count(const uint64_t *a, const uint64_t *b, uint64_t words, bool both)
{
    unsigned n = 0;
    for (uint64_t i = 0; i < words; i++)
        n += (unsigned)__builtin_popcountll(both ? a[i] & b[i] : a[i] | b[i]);
    return n;
}

static void find_patterns(const struct pattern *p, const float *x, uint64_t rows,
                          uint64_t cols, uint64_t size)
{
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < cols; j++)
            if (x[i * cols + j] != 0)
                p->bits[i * p->words + j / size / 64] |= UINT64_C(1) << j / size % 64;
}

/* Blocks that rows in this order need; row NULL: only the number. */
static uint64_t count_blocks(const struct pattern *p, const uint32_t *perm, uint64_t rows,
                             uint64_t size, uint64_t *sum, uint32_t *row)
{
    uint64_t n = 0;
    for (uint64_t at = 0; at < rows; at += size) {
        memset(sum, 0, (size_t)p->words * sizeof *sum);
        for (uint64_t i = at; i < rows && i < at + size; i++) {
            const uint64_t *bits = p->bits + (perm ? perm[i] : i) * p->words;
            for (uint64_t k = 0; k < p->words; k++)
                sum[k] |= bits[k];
        }
        if (row)
            row[at / size] = (uint32_t)n;
        n += count(sum, sum, p->words, true);
    }
    if (row)
        row[tu_ceil_div(rows, size)] = (uint32_t)n;
    return n;
}

/* Clusters of `size` rows: a seed, then whichever is nearest to the union so far by
 * Jaccard's distance; ties to the lower row. */
static void cluster_rows(const struct pattern *p, uint64_t rows, uint64_t size,
                         uint64_t *sum, bool *used, uint32_t *perm)
{
    for (uint64_t n = 0; n < rows; n++) {
        uint64_t best = rows;
        unsigned top = 0, under = 1;
        for (uint64_t i = 0; i < rows; i++) {
            if (used[i])
                continue;
            if (n % size == 0) {
                best = i;
                break;
            }
            const uint64_t *bits = p->bits + i * p->words;
            unsigned same = count(sum, bits, p->words, true);
            unsigned all = count(sum, bits, p->words, false);
            same = all ? same : 1; /* two empty sets are the same */
            all = all ? all : 1;
            if (best == rows || (uint64_t)same * under > (uint64_t)top * all) {
                best = i;
                top = same;
                under = all;
            }
        }
        if (n % size == 0)
            memset(sum, 0, (size_t)p->words * sizeof *sum);
        for (uint64_t k = 0; k < p->words; k++)
            sum[k] |= p->bits[best * p->words + k];
        used[best] = true;
        perm[n] = (uint32_t)best;
    }
}

static uint64_t row_of(const struct tu_bsr *m, uint64_t i)
{
    return m->perm ? m->perm[i] : i;
}

static void fill_blocks(struct tu_bsr *m, const struct pattern *p, const float *x,
                        uint64_t *sum)
{
    uint64_t size = m->size, at = 0, across = tu_ceil_div(m->cols, size);
    for (uint64_t b = 0; b < tu_ceil_div(m->rows, size); b++) {
        uint64_t last = tu_min((b + 1) * size, m->rows);
        memset(sum, 0, (size_t)p->words * sizeof *sum);
        for (uint64_t i = b * size; i < last; i++)
            for (uint64_t k = 0; k < p->words; k++)
                sum[k] |= p->bits[row_of(m, i) * p->words + k];
        for (uint64_t j = 0; j < across; j++) {
            if (!(sum[j / 64] >> j % 64 & 1))
                continue;
            m->col[at] = (uint32_t)j;
            for (uint64_t i = b * size; i < last; i++)
                for (uint64_t k = j * size; k < tu_min((j + 1) * size, m->cols); k++) {
                    float v = x[row_of(m, i) * m->cols + k];
                    m->value[(at * size + i - b * size) * size + k - j * size] = v;
                    m->nnz += v != 0;
                }
            at++;
        }
    }
}

int tu_bsr_pack(struct tu_bsr *out, const float *x, uint64_t rows, uint64_t cols,
                uint64_t size, bool cluster, struct tu_err *err)
{
    *out = (struct tu_bsr){.rows = rows, .cols = cols, .size = size};
    if (!size || size > 1024 || rows > UINT32_MAX || cols > UINT32_MAX)
        return tu_fail(err, TU_EUSAGE, "blocks of %" PRIu64 ": 1 to 1024", size);
    struct pattern p = {tu_ceil_div(tu_ceil_div(cols, size), 64), NULL};
    uint64_t *sum = NULL;
    bool *used = NULL;
    int rc = TU_ENOMEM;
    if (!(p.bits = tu_calloc((size_t)(rows * p.words), sizeof *p.bits, err)) ||
        !(sum = tu_calloc((size_t)p.words, sizeof *sum, err)) ||
        !(used = tu_calloc((size_t)rows, sizeof *used, err)) ||
        !(out->perm = tu_calloc((size_t)rows, sizeof *out->perm, err)) ||
        !(out->row =
              tu_calloc((size_t)tu_ceil_div(rows, size) + 1, sizeof *out->row, err)))
        goto out;
    find_patterns(&p, x, rows, cols, size);
    if (cluster)
        cluster_rows(&p, rows, size, sum, used, out->perm);
    if (!cluster || count_blocks(&p, out->perm, rows, size, sum, NULL) >=
                        count_blocks(&p, NULL, rows, size, sum, NULL)) {
        tu_free(out->perm);
        out->perm = NULL;
    }
    out->blocks = count_blocks(&p, out->perm, rows, size, sum, out->row);
    if (out->blocks > UINT32_MAX) {
        rc = tu_fail(err, TU_EUSAGE, "%" PRIu64 " blocks: indices have 32 bits",
                     out->blocks);
        goto out;
    }
    if (!(out->col = tu_calloc((size_t)out->blocks, sizeof *out->col, err)) ||
        !(out->value =
              tu_calloc((size_t)(out->blocks * size * size), sizeof *out->value, err)))
        goto out;
    fill_blocks(out, &p, x, sum);
    rc = 0;
out:
    tu_free(p.bits);
    tu_free(sum);
    tu_free(used);
    if (rc)
        tu_bsr_release(out);
    return rc;
}

void tu_bsr_release(struct tu_bsr *m)
{
    tu_free(m->row);
    tu_free(m->col);
    tu_free(m->value);
    tu_free(m->perm);
    *m = (struct tu_bsr){0};
}

double tu_bsr_fill(const struct tu_bsr *m)
{
    double room = (double)m->blocks * (double)m->size * (double)m->size;
    return room > 0 ? (double)m->nnz / room : 1;
}

void tu_bsr_unpack(const struct tu_bsr *m, float *x)
{
    memset(x, 0, (size_t)(m->rows * m->cols) * sizeof *x);
    for (uint64_t b = 0; b < tu_ceil_div(m->rows, m->size); b++)
        for (uint64_t k = m->row[b]; k < m->row[b + 1]; k++)
            for (uint64_t i = b * m->size; i < tu_min((b + 1) * m->size, m->rows); i++)
                for (uint64_t j = 0; j < m->size && m->col[k] * m->size + j < m->cols;
                     j++)
                    x[row_of(m, i) * m->cols + m->col[k] * m->size + j] =
                        m->value[(k * m->size + i - b * m->size) * m->size + j];
}

void tu_bsr_multiply(const struct tu_bsr *m, const float *v, float *y)
{
    for (uint64_t i = 0; i < m->rows; i++) {
        uint64_t b = i / m->size;
        double sum = 0;
        for (uint64_t k = m->row[b]; k < m->row[b + 1]; k++)
            for (uint64_t j = 0; j < m->size && m->col[k] * m->size + j < m->cols; j++)
                sum += (double)m->value[(k * m->size + i % m->size) * m->size + j] *
                       v[m->col[k] * m->size + j];
        y[row_of(m, i)] = (float)sum;
    }
}
