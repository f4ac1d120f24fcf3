/* SPDX-License-Identifier: Apache-2.0 */
/* hqq.c: HQQ's files, decoding only: half-quadratic quantization with zeros that are
 * floats. Source: mobiusml/hqq hqq/core/bitpack.py, quantize.py.
 *
 * The weight is cut into groups and seen as a matrix, a group per row (axis 1) or per
 * column (axis 0); codes of a byte lie a whole part of that matrix's rows apart. */
#include <inttypes.h>
#include <string.h>
#include "families.h"

enum param { BITS, GROUP, AXIS, FLOATS };

/* Rows and columns of the matrix of groups, and rows of packed words. */
struct shape {
    uint64_t rows, cols, packed;
};

static struct shape shape_of(const struct tu_coding *c)
{
    uint64_t group = (uint64_t)c->param[GROUP], groups = c->elements / group;
    unsigned bits = (unsigned)c->param[BITS];
    struct shape s = {c->param[AXIS] ? groups : group, c->param[AXIS] ? group : groups,
                      0};
    s.packed = tu_ceil_div(s.rows, bits == 3 ? 10 : 8 / bits);
    return s;
}

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t group, axis;
    const char *floats = tu_spec_get(spec, "scale");
    int rc = tu_spec_u64(spec, "group", 64, &group, err);
    if (!rc)
        rc = tu_spec_u64(spec, "axis", 1, &axis, err);
    if (rc)
        return rc;
    if (axis > 1 || !group || c->elements % group)
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': axis %" PRIu64 ", group %" PRIu64 ": axis is 0 "
                       "or 1 and %" PRIu64 " elements make whole groups",
                       c->codec->name, axis, group, c->elements);
    const struct tu_dtype *t = tu_dtype_named(floats ? floats : "f16");
    if (!t || (t->code != TU_F16 && t->code != TU_F32 && t->code != TU_BF16))
        return tu_fail(err, TU_EUSAGE, "codec '%s': scale '%s': f16, bf16 or f32",
                       c->codec->name, floats);
    c->param[BITS] = *(const unsigned char *)c->codec->format;
    c->param[GROUP] = (int64_t)group;
    c->param[AXIS] = (int64_t)axis;
    c->param[FLOATS] = t->code;
    unsigned per = c->param[BITS] == 3 ? 1 : 8 / (unsigned)c->param[BITS];
    struct shape s = shape_of(c);
    if (s.rows % per)
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': %" PRIu64 " rows of groups are no multiple of "
                       "%u",
                       c->codec->name, s.rows, per);
    c->atom = tu_max(c->elements, 1);
    c->code = (struct tu_part){.dtype = c->param[BITS] == 3 ? TU_I32 : TU_U8,
                               .rank = 2,
                               .dim = {s.packed, s.cols}};
    c->code.atom_bytes = s.packed * s.cols * (c->param[BITS] == 3 ? 4 : 1);
    for (unsigned k = 0; k < 2; k++)
        c->side[k] = (struct tu_part){.suffix = k ? "zero" : "scale",
                                      .dtype = t->code,
                                      .rank = 2,
                                      .dim = {axis ? s.rows : 1, axis ? 1 : s.cols}};
    c->sides = 2;
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)n;
    struct shape s = shape_of(c);
    uint32_t dtype = (uint32_t)c->param[FLOATS];
    unsigned bits = (unsigned)c->param[BITS], size = dtype == TU_F32 ? 4 : 2;
    for (uint64_t i = 0; i < s.rows; i++) {
        uint64_t word = i % s.packed, part = i / s.packed;
        for (uint64_t j = 0; j < s.cols; j++) {
            uint64_t at = word * s.cols + j, g = c->param[AXIS] ? i : j;
            float f[2];
            /* The first part is the highest. */
            uint32_t q = bits == 3 ? tu_le32((const unsigned char *)code + 4 * at) >>
                                         (27 - 3 * part)
                                   : (uint32_t)((const unsigned char *)code)[at] >>
                                         (8 - bits * (part + 1));
            for (unsigned k = 0; k < 2; k++) {
                int rc = tu_to_float(dtype, (const unsigned char *)side[k] + g * size,
                                     &f[k], 1, err);
                if (rc)
                    return rc;
            }
            *x++ = ((float)(q & ((1u << bits) - 1)) - f[1]) * f[0];
        }
    }
    return 0;
}

static const char *const key[] = {"group", "axis", "scale", NULL};
static const unsigned char width[] = {8, 4, 3, 2, 1};

#define ROW(id, i)                                                                       \
    {                                                                                    \
        .name = id, .help = "HQQ's files, decoding only: zeros are floats",              \
        .source = "mobiusml/hqq: hqq/core/bitpack.py", .key = key, .format = &width[i],  \
        .plan = plan, .decode = decode                                                   \
    }

const struct tu_codec tui_codecs_hqq[] = {
    ROW("hqq8", 0), ROW("hqq4", 1), ROW("hqq3", 2),
    ROW("hqq2", 3), ROW("hqq1", 4), {.name = NULL},
};
