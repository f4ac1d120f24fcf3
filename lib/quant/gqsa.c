/* SPDX-License-Identifier: Apache-2.0 */
/* gqsa.c: groups along rows that are kept or dropped as one, the kept ones in four bits.
 * Source: "GQSA: Group Quantization and Sparsity", arXiv 2412.17560; the score without
 * data, mean |w|, is ours.
 *
 * How many groups stay is known before the tensor is: keep percent of them, whichever
 * rows they are in. Codes: [kept, group/2]; sides: row (first kept group of each row),
 * col (group column), scale, zero (4 bits). */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "int.h"
#include "scored.h"

enum param { GROUP, KEPT, ACROSS };
enum side { SIDE_ROW, SIDE_COL, SIDE_SCALE, SIDE_ZERO };

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t group, keep;
    int rc = tu_spec_u64(spec, "group", 16, &group, err);
    if (!rc)
        rc = tu_spec_u64(spec, "keep", 50, &keep, err);
    if (rc)
        return rc;
    if (group < 2 || group % 2 || group > 4096 || keep > 100 || c->cols % group)
        return tu_fail(err, TU_EUSAGE,
                       "codec 'gqsa': group %" PRIu64 ", keep %" PRIu64 ": an even "
                       "group that divides %" PRIu64 ", at most 100 percent",
                       group, keep, c->cols);
    uint64_t across = c->cols / group, total = across * c->rows;
    if (across > UINT16_MAX || total > UINT32_MAX || c->rows >= UINT32_MAX)
        return tu_fail(err, TU_EUSAGE,
                       "codec 'gqsa': %" PRIu64 " by %" PRIu64 " groups: indices have "
                       "16 and 32 bits",
                       c->rows, across);
    uint64_t kept = (total * keep + 50) / 100;
    c->param[GROUP] = (int64_t)group;
    c->param[KEPT] = (int64_t)kept;
    c->param[ACROSS] = (int64_t)across;
    c->block[0] = 1;
    c->block[1] = group;
    c->atom = tu_max(c->elements, 1);
    c->code = (struct tu_part){.dtype = TU_U8,
                               .rank = 2,
                               .dim = {kept, group / 2},
                               .atom_bytes = kept * (group / 2)};
    c->side[SIDE_ROW] = (struct tu_part){
        .suffix = "row", .dtype = TU_U32, .rank = 1, .dim = {c->rows + 1}};
    c->side[SIDE_COL] =
        (struct tu_part){.suffix = "col", .dtype = TU_U16, .rank = 1, .dim = {kept}};
    c->side[SIDE_SCALE] =
        (struct tu_part){.suffix = "scale", .dtype = TU_F16, .rank = 1, .dim = {kept}};
    c->side[SIDE_ZERO] =
        (struct tu_part){.suffix = "zero", .dtype = TU_U4, .rank = 1, .dim = {kept}};
    c->sides = 4;
    return 0;
}

/* Mean |w|, or mean of importance · w². */
static double score_of(const struct tu_coding *c, const float *x, uint64_t column)
{
    double sum = 0;
    for (int64_t i = 0; i < c->param[GROUP]; i++)
        sum += c->importance ? (double)c->importance[column + (uint64_t)i] * x[i] * x[i]
                             : fabs((double)x[i]);
    return isnan(sum) ? INFINITY : sum;
}

static int put_group(const struct tu_coding *c, const float *x, uint64_t k,
                     unsigned char *code, void *const *side, struct tu_err *err)
{
    size_t n = (size_t)c->param[GROUP];
    uint8_t q[4096];
    float lo = 0, hi = 0;
    for (size_t i = 0; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    const struct tui_int_rule *rule = &tui_int_rules[TUI_RULE_GPTQ];
    struct tui_affine a = rule->fit(4, true, lo, hi);
    a.scale = tu_from_f16(tu_to_f16(a.scale));
    if (!isfinite(a.scale))
        return tu_fail(err, TU_EUSAGE,
                       "codec 'gqsa': a group's scale is over the range of f16");
    if (a.scale == 0)
        a.scale = 0x1p-24f;
    tui_int_code(c->cpu, rule, 4, a, x, NULL, n, q);
    for (size_t i = 0; i < n; i += 2)
        code[k * (n / 2) + i / 2] = (unsigned char)(q[i] | q[i + 1] << 4);
    tu_put16((unsigned char *)side[SIDE_SCALE] + 2 * k, tu_to_f16(a.scale));
    ((unsigned char *)side[SIDE_ZERO])[k / 2] |=
        (unsigned char)((unsigned)a.zero << k % 2 * 4);
    return 0;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)n;
    size_t group = (size_t)c->param[GROUP], kept = (size_t)c->param[KEPT];
    uint64_t across = (uint64_t)c->param[ACROSS], total = across * c->rows;
    struct tui_scored *r = tu_alloc((size_t)total, sizeof *r, err);
    int rc = r ? 0 : TU_ENOMEM;
    for (uint64_t g = 0; !rc && g < total; g++)
        r[g] = (struct tui_scored){score_of(c, x + g * group, g % across * group), g};
    if (rc)
        return rc;
    tui_scored_keep(r, (size_t)total, kept);
    memset(side[SIDE_ZERO], 0, (size_t)c->side[SIDE_ZERO].bytes);
    uint64_t k = 0;
    for (uint64_t row = 0; row < c->rows && !rc; row++) {
        tu_put32((unsigned char *)side[SIDE_ROW] + 4 * row, (uint32_t)k);
        for (; k < kept && r[k].at / across == row && !rc; k++) {
            tu_put16((unsigned char *)side[SIDE_COL] + 2 * k,
                     (uint16_t)(r[k].at % across));
            rc = put_group(c, x + r[k].at * group, k, code, side, err);
        }
    }
    tu_put32((unsigned char *)side[SIDE_ROW] + 4 * c->rows, (uint32_t)kept);
    tu_free(r);
    return rc;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    size_t group = (size_t)c->param[GROUP];
    uint64_t across = (uint64_t)c->param[ACROSS], kept = (uint64_t)c->param[KEPT];
    const unsigned char *row = side[SIDE_ROW], *col = side[SIDE_COL],
                        *scale = side[SIDE_SCALE], *zero = side[SIDE_ZERO], *q = code;
    memset(x, 0, n * sizeof *x);
    if (tu_le32(row) != 0 || tu_le32(row + 4 * c->rows) != kept)
        return tu_fail(err, TU_EFORMAT, "rows do not hold %" PRIu64 " groups", kept);
    for (uint64_t i = 0; i < c->rows; i++) {
        uint64_t k = tu_le32(row + 4 * i), end = tu_le32(row + 4 * i + 4);
        if (end < k || end > kept)
            return tu_fail(err, TU_EFORMAT,
                           "row %" PRIu64 ": groups %" PRIu64 " to %" PRIu64
                           " of %" PRIu64,
                           i, k, end, kept);
        for (; k < end; k++) {
            uint64_t at = tu_le16(col + 2 * k);
            if (at >= across)
                return tu_fail(err, TU_EFORMAT,
                               "row %" PRIu64 ": group column %" PRIu64 " of %" PRIu64, i,
                               at, across);
            float s = tu_from_f16(tu_le16(scale + 2 * k));
            int z = zero[k / 2] >> k % 2 * 4 & 15;
            float *to = x + i * c->cols + at * group;
            for (size_t j = 0; j < group; j++)
                to[j] = (float)((q[k * (group / 2) + j / 2] >> j % 2 * 4 & 15) - z) * s;
        }
    }
    return 0;
}

static const char *const key[] = {"group", "keep", NULL};

const struct tu_codec tui_codecs_gqsa[] = {
    {.name = "gqsa",
     .help = "sparse groups along rows, in 4 bits (percent kept: keep)",
     .source = "arXiv 2412.17560",
     .key = key,
     .flags = TU_CODEC_WEIGHTED,
     .plan = plan,
     .encode = encode,
     .decode = decode},
    {.name = NULL},
};
