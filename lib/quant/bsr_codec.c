/* SPDX-License-Identifier: Apache-2.0 */
/* bsr_codec.c: compressed rows of square blocks as a codec: so many blocks stay, those of
 * the largest norm. Places that no block needs are zeros at the end.
 *
 * Not for finding the blocks: bsr.c. */
#include <inttypes.h>
#include <string.h>
#include "families.h"
#include "prune.h"
#include "scored.h"
#include "tensorutils/quant/sparse.h"

enum param { SIZE, BLOCKS, CLUSTER, VALUE };
enum side { ROW, COL, PERM };

/* How many blocks stay. */
static int plan_blocks(struct tu_coding *c, const struct tu_spec *spec,
                       struct tu_err *err)
{
    const uint64_t size = (uint64_t)c->param[SIZE];
    const uint64_t all = tu_ceil_div(c->rows, size) * tu_ceil_div(c->cols, size);
    uint64_t percent, blocks;
    int rc = tu_spec_u64(spec, "keep", 50, &percent, err);
    if (!rc && percent > 100)
        rc = tu_fail(err, TU_EUSAGE, "codec 'bsr': keep %" PRIu64 " percent", percent);
    if (!rc)
        rc = tu_spec_u64(spec, "blocks",
                         (uint64_t)((double)all * (double)percent / 100 + 0.5), &blocks,
                         err);
    if (!rc && (blocks > all || blocks > UINT32_MAX))
        rc = tu_fail(err, TU_EUSAGE, "codec 'bsr': %" PRIu64 " blocks of %" PRIu64,
                     blocks, all);
    if (!rc)
        c->param[BLOCKS] = (int64_t)blocks;
    return rc;
}

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t size;
    int rc = tu_spec_u64(spec, "size", 16, &size, err);
    if (!rc && (!size || size > 1024 || c->rows > UINT32_MAX || c->cols > UINT32_MAX))
        rc = tu_fail(err, TU_EUSAGE,
                     "codec 'bsr': blocks of %" PRIu64
                     ": 1 to 1024; rows and columns below 2^32",
                     size);
    if (rc)
        return rc;
    c->param[SIZE] = (int64_t)size;
    c->param[CLUSTER] = tu_spec_get(spec, "cluster") != NULL;
    if ((rc = tui_plan_value(c, spec, &c->param[VALUE], err)) ||
        (rc = plan_blocks(c, spec, err)))
        return rc;
    const uint64_t blocks = (uint64_t)c->param[BLOCKS];
    c->atom = tu_max(c->elements, 1);
    c->block[0] = c->block[1] = size;
    c->code = (struct tu_part){
        .dtype = (uint32_t)c->param[VALUE], .rank = 3, .dim = {blocks, size, size}};
    c->code.atom_bytes = blocks * size * size * tu_dtype_find(c->code.dtype)->block_bytes;
    c->side[ROW] = (struct tu_part){.suffix = "row",
                                    .dtype = TU_U32,
                                    .rank = 1,
                                    .dim = {tu_ceil_div(c->rows, size) + 1}};
    c->side[COL] =
        (struct tu_part){.suffix = "col", .dtype = TU_U32, .rank = 1, .dim = {blocks}};
    c->side[PERM] =
        (struct tu_part){.suffix = "perm", .dtype = TU_U32, .rank = 1, .dim = {c->rows}};
    c->sides = 3;
    return 0;
}

/* Only the `most` blocks of the largest norm; of equal ones the first stays. */
static int drop(struct tu_bsr *m, uint64_t most, struct tu_err *err)
{
    const uint64_t area = m->size * m->size;
    if (m->blocks <= most)
        return 0;
    struct tui_scored *e = tu_calloc((size_t)m->blocks, sizeof *e, err);
    bool *stays = e ? tu_calloc((size_t)m->blocks, sizeof *stays, err) : NULL;
    int rc = stays ? 0 : TU_ENOMEM;
    for (uint64_t k = 0; !rc && k < m->blocks; k++) {
        e[k].at = k;
        for (uint64_t i = 0; i < area; i++)
            e[k].score += (double)m->value[k * area + i] * (double)m->value[k * area + i];
    }
    if (!rc)
        tui_scored_sort(e, (size_t)m->blocks);
    for (uint64_t k = 0; !rc && k < most; k++)
        stays[e[k].at] = true;
    uint64_t to = 0, from = 0;
    for (uint64_t b = 0; !rc && b < tu_ceil_div(m->rows, m->size); b++) {
        const uint64_t last = m->row[b + 1];
        m->row[b] = (uint32_t)to;
        for (; from < last; from++) {
            if (!stays[from])
                continue;
            m->col[to] = m->col[from];
            memmove(m->value + to++ * area, m->value + from * area,
                    (size_t)area * sizeof(float));
        }
    }
    if (!rc) {
        m->row[tu_ceil_div(m->rows, m->size)] = (uint32_t)to;
        m->blocks = to;
    }
    tu_free(stays);
    tu_free(e);
    return rc;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    const uint64_t size = (uint64_t)c->param[SIZE], bands = tu_ceil_div(c->rows, size);
    unsigned char *row = side[ROW], *col = side[COL], *perm = side[PERM], *to = code;
    struct tu_bsr m;
    (void)first;
    (void)n;
    int rc = tu_bsr_pack(&m, x, c->rows, c->cols, size, c->param[CLUSTER] != 0, err);
    if (rc)
        return rc;
    rc = drop(&m, (uint64_t)c->param[BLOCKS], err);
    memset(code, 0, (size_t)c->code.bytes);
    memset(col, 0, (size_t)c->side[COL].bytes);
    for (uint64_t i = 0; !rc && i <= bands; i++)
        tu_put32(row + 4 * i, m.row[i]);
    for (uint64_t i = 0; !rc && i < m.blocks; i++)
        tu_put32(col + 4 * i, m.col[i]);
    for (uint64_t i = 0; !rc && i < c->rows; i++)
        tu_put32(perm + 4 * i, m.perm ? m.perm[i] : (uint32_t)i);
    if (!rc)
        rc = tui_put_values(c->code.dtype, &to, m.value, (size_t)(m.blocks * size * size),
                            err);
    tu_bsr_release(&m);
    return rc;
}

/* The sides as m's, checked: nothing outside the matrix or the code, each row once. */
static int read_sides(const struct tu_coding *c, const void *const *side,
                      struct tu_bsr *m, struct tu_err *err)
{
    const uint64_t bands = tu_ceil_div(c->rows, m->size),
                   across = tu_ceil_div(c->cols, m->size);
    bool *seen = tu_calloc((size_t)c->rows, sizeof *seen, err);
    int rc = seen ? 0 : TU_ENOMEM;
    for (uint64_t i = 0; !rc && i <= bands; i++) {
        m->row[i] = tu_le32((const unsigned char *)side[ROW] + 4 * i);
        if (m->row[i] > m->blocks || (i ? m->row[i] < m->row[i - 1] : m->row[i] != 0))
            rc = tu_fail(err, TU_EFORMAT,
                         "row %" PRIu64 " of blocks begins at block %" PRIu32, i,
                         m->row[i]);
    }
    for (uint64_t i = 0; !rc && i < m->row[bands]; i++) {
        m->col[i] = tu_le32((const unsigned char *)side[COL] + 4 * i);
        if (m->col[i] >= across)
            rc = tu_fail(err, TU_EFORMAT,
                         "block %" PRIu64 ": column %" PRIu32 " of %" PRIu64, i,
                         m->col[i], across);
    }
    for (uint64_t i = 0; !rc && i < c->rows; i++) {
        m->perm[i] = tu_le32((const unsigned char *)side[PERM] + 4 * i);
        if (m->perm[i] >= c->rows || seen[m->perm[i]])
            rc =
                tu_fail(err, TU_EFORMAT, "place %" PRIu64 ": row %" PRIu32 " of %" PRIu64,
                        i, m->perm[i], c->rows);
        else
            seen[m->perm[i]] = true;
    }
    tu_free(seen);
    return rc;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    const uint64_t size = (uint64_t)c->param[SIZE], blocks = (uint64_t)c->param[BLOCKS];
    const size_t values = (size_t)(blocks * size * size);
    struct tu_bsr m = {.rows = c->rows, .cols = c->cols, .size = size, .blocks = blocks};
    (void)first;
    (void)n;
    int rc = TU_ENOMEM;
    if ((m.row = tu_alloc((size_t)tu_ceil_div(c->rows, size) + 1, sizeof *m.row, err)) &&
        (m.col = tu_alloc((size_t)blocks, sizeof *m.col, err)) &&
        (m.perm = tu_alloc((size_t)c->rows, sizeof *m.perm, err)) &&
        (m.value = tu_alloc(values, sizeof *m.value, err)))
        rc = read_sides(c, side, &m, err);
    if (!rc)
        rc = tu_to_float(c->code.dtype, code, m.value, values, err);
    if (!rc)
        tu_bsr_unpack(&m, x);
    tu_bsr_release(&m);
    return rc;
}

static const char *const key[] = {"size", "keep", "blocks", "cluster", "value", NULL};

const struct tu_codec tui_codecs_bsr[] = {
    {.name = "bsr",
     .help =
         "square blocks of the largest norm, rows permuted so that they meet (cluster)",
     .source = "P. Okanovic et al., \"SMaT\", 2024",
     .key = key,
     .plan = plan,
     .encode = encode,
     .decode = decode},
    {.name = NULL},
};
