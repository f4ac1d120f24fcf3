/* SPDX-License-Identifier: Apache-2.0 */
/* fmpq.c: mixed four and eight bits by blocks of channels, the channels permuted so that
 * outliers share blocks. Source: "COMET", arXiv 2410.12168.
 *
 * Columns are ordered by size, the largest first (by the importance of columns where it
 * is given, as for weights that follow their activations' order); the first `wide` blocks
 * have eight bits. Codes of a row: the bytes of its wide blocks, then nibbles. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "scored.h"

enum param { GROUP, WIDE, BLOCKS };

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t group, wide;
    int rc = tu_spec_u64(spec, "group", 128, &group, err);
    if (!rc)
        rc = tu_spec_u64(spec, "wide", 1, &wide, err);
    if (rc)
        return rc;
    if (!group || group % 2 || c->cols % group || wide > c->cols / group ||
        c->cols > INT32_MAX)
        return tu_fail(err, TU_EUSAGE,
                       "codec 'fmpq': group %" PRIu64 ", wide %" PRIu64 ": an even "
                       "group that divides %" PRIu64 ", no more wide ones than there are",
                       group, wide, c->cols);
    uint64_t blocks = c->cols / group, row = wide * group + (blocks - wide) * group / 2;
    c->param[GROUP] = (int64_t)group;
    c->param[WIDE] = (int64_t)wide;
    c->param[BLOCKS] = (int64_t)blocks;
    c->block[0] = 1;
    c->block[1] = group;
    c->atom = tu_max(c->elements, 1);
    c->code = (struct tu_part){
        .dtype = TU_U8, .rank = 2, .dim = {c->rows, row}, .atom_bytes = c->rows * row};
    c->side[0] = (struct tu_part){
        .suffix = "scale", .dtype = TU_F32, .rank = 2, .dim = {c->rows, blocks}};
    c->side[1] =
        (struct tu_part){.suffix = "perm", .dtype = TU_I32, .rank = 1, .dim = {c->cols}};
    c->sides = 2;
    return 0;
}

static int order_columns(const struct tu_coding *c, const float *x, unsigned char *perm,
                         struct tu_err *err)
{
    struct tui_scored *col = tu_alloc((size_t)c->cols, sizeof *col, err);
    if (!col)
        return TU_ENOMEM;
    for (uint64_t j = 0; j < c->cols; j++) {
        double size = c->importance ? (double)c->importance[j] : 0;
        for (uint64_t i = 0; !c->importance && i < c->rows; i++)
            size = fmax(size, fabs((double)x[i * c->cols + j]));
        col[j] = (struct tui_scored){size, j};
    }
    tui_scored_sort(col, (size_t)c->cols);
    for (uint64_t j = 0; j < c->cols; j++)
        tu_put32(perm + 4 * j, (uint32_t)col[j].at);
    tu_free(col);
    return 0;
}

static int rounded(float v, float top)
{
    v = v > -top ? v : -top;
    v = v < top ? v : top;
    return (int)(v + 12582912.0f - 12582912.0f);
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)n;
    unsigned char *out = code;
    const unsigned char *perm = side[1];
    float *scale = side[0];
    int rc = order_columns(c, x, side[1], err);
    for (uint64_t i = 0; !rc && i < c->rows; i++)
        for (int64_t b = 0; b < c->param[BLOCKS]; b++) {
            const unsigned char *at = perm + 4 * (uint64_t)(b * c->param[GROUP]);
            const float *row = x + i * c->cols;
            float amax = 0, top = b < c->param[WIDE] ? 127 : 7;
            for (int64_t k = 0; k < c->param[GROUP]; k++)
                amax = fmaxf(amax, fabsf(row[tu_le32(at + 4 * k)]));
            *scale = amax / top;
            for (int64_t k = 0; k < c->param[GROUP]; k++) {
                int q = *scale > 0 ? rounded(row[tu_le32(at + 4 * k)] / *scale, top) : 0;
                if (top > 7)
                    *out++ = (unsigned char)q;
                else if (k % 2 == 0)
                    *out = (unsigned char)(q & 15);
                else
                    *out++ |= (unsigned char)((unsigned)q << 4);
            }
            scale++;
        }
    return rc;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)n;
    const unsigned char *in = code, *perm = side[1];
    const float *scale = side[0];
    for (uint64_t j = 0; j < c->cols; j++)
        if (tu_le32(perm + 4 * j) >= c->cols)
            return tu_fail(err, TU_EFORMAT,
                           "column %" PRIu64 ": stands for column %" PRIu32
                           " of %" PRIu64,
                           j, tu_le32(perm + 4 * j), c->cols);
    memset(x, 0, (size_t)c->elements * sizeof *x);
    for (uint64_t i = 0; i < c->rows; i++)
        for (int64_t b = 0; b < c->param[BLOCKS]; b++, scale++)
            for (int64_t k = 0; k < c->param[GROUP]; k++) {
                int q;
                if (b < c->param[WIDE])
                    q = (int8_t)*in++;
                else
                    q = (k % 2 ? *in++ >> 4 : *in & 15);
                if (b >= c->param[WIDE])
                    q = q > 7 ? q - 16 : q;
                uint64_t j = tu_le32(perm + 4 * (uint64_t)(b * c->param[GROUP] + k));
                x[i * c->cols + j] = (float)q * *scale;
            }
    return 0;
}

static const char *const key[] = {"group", "wide", NULL};

const struct tu_codec tui_codecs_fmpq[] = {
    {.name = "fmpq",
     .help = "8 bits for blocks of outlier channels, 4 bits for the others",
     .source = "arXiv 2410.12168",
     .key = key,
     .flags = TU_CODEC_WEIGHTED,
     .plan = plan,
     .encode = encode,
     .decode = decode},
    {.name = NULL},
};
