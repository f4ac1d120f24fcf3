/* SPDX-License-Identifier: Apache-2.0 */
/* sparse.c: compressed forms of N:M sparsity: values with a bit mask, values with the
 * metadata of sparse tensor cores. Sources: vllm-project/compressed-tensors,
 * sparse-24-bitmask; NVIDIA PTX ISA, mma.sp.
 *
 * Encoding prunes what is not sparse yet, by magnitude. Not for blocks: bsr.c. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "prune.h"
#include "tensorutils/quant/sparse.h"

enum param { N, M, VALUE, TORCH };

int tui_plan_value(const struct tu_coding *c, const struct tu_spec *spec, int64_t *value,
                   struct tu_err *err)
{
    const char *text = tu_spec_get(spec, "value");
    const struct tu_dtype *t = tu_dtype_named(text ? text : "bf16");
    if (!t || !tu_dtype_is_float(t->code) || !tu_dtype_is_plain(t->code) ||
        t->code == TU_F64)
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': value '%s': f32, f16, bf16 or a float of 8 bits",
                       c->codec->name, text);
    *value = t->code;
    return 0;
}

/* Whole rows; the codes are [rows, cols·n/m] values. */
static int plan_kept(struct tu_coding *c, struct tu_err *err)
{
    uint64_t n = (uint64_t)c->param[N], m = (uint64_t)c->param[M];
    if (!c->rank || c->cols % m)
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': last dimension %" PRIu64 " is no multiple of "
                       "%" PRIu64,
                       c->codec->name, c->cols, m);
    c->code = (struct tu_part){.dtype = (uint32_t)c->param[VALUE], .rank = c->rank};
    memcpy(c->code.dim, c->dim, c->rank * sizeof *c->dim);
    c->code.dim[c->rank - 1] = c->cols / m * n;
    c->atom = tu_max(c->cols, 1);
    c->code.atom_bytes = c->cols / m * n * tu_dtype_find(c->code.dtype)->block_bytes;
    return 0;
}

static int plan_mask(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t n, m;
    int rc = tu_spec_u64(spec, "n", 2, &n, err);
    if (!rc)
        rc = tu_spec_u64(spec, "m", 4, &m, err);
    if (!rc && (!n || n > m || m > TUI_M_MAX))
        rc = tu_fail(err, TU_EUSAGE,
                     "codec '%s': %" PRIu64 " of %" PRIu64 ": 1 to %u, n at most m",
                     c->codec->name, n, m, TUI_M_MAX);
    if (rc || (rc = tui_plan_value(c, spec, &c->param[VALUE], err)))
        return rc;
    c->param[N] = (int64_t)n;
    c->param[M] = (int64_t)m;
    if ((rc = plan_kept(c, err)))
        return rc;
    uint64_t bytes = tu_ceil_div(c->cols, 8);
    c->side[0] = (struct tu_part){.suffix = "mask",
                                  .dtype = TU_U8,
                                  .rank = 2,
                                  .dim = {c->rows, bytes},
                                  .atom_bytes = bytes};
    c->sides = 1;
    return 0;
}

/* The metadata word: 16 bits for values of 16 bits, 32 for values of 8. */
static unsigned meta_bytes(const struct tu_coding *c)
{
    return tu_dtype_find((uint32_t)c->param[VALUE])->block_bytes == 1 ? 4 : 2;
}

static int plan_24(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    int rc = tui_plan_value(c, spec, &c->param[VALUE], err);
    c->param[TORCH] = tu_spec_get(spec, "torch") != NULL;
    bool wide = c->param[VALUE] == TU_F32; /* 1 of 2: nibbles as of a pair of two */
    c->param[N] = wide ? 1 : 2;
    c->param[M] = wide ? 2 : 4;
    if (rc || (rc = plan_kept(c, err)))
        return rc;
    unsigned bytes = meta_bytes(c), per = bytes * 2;
    uint64_t groups = c->cols / (uint64_t)c->param[M];
    if (groups % per)
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': last dimension %" PRIu64 " is no multiple of "
                       "%" PRIu64,
                       c->codec->name, c->cols, per * (uint64_t)c->param[M]);
    c->side[0] = (struct tu_part){.suffix = "meta",
                                  .dtype = bytes == 4 ? TU_U32 : TU_U16,
                                  .rank = 2,
                                  .dim = {c->rows, groups / per},
                                  .atom_bytes = groups / 2};
    c->sides = 1;
    return 0;
}

enum { PART = 4096 }; /* elements at a time, whole groups of them */

static size_t part_of(const struct tu_coding *c)
{
    return PART / (size_t)c->param[M] * (size_t)c->param[M];
}

/* Kept positions of PART elements at most: always n of a group, even where fewer are not
 * zero. */
static void keep_groups(const struct tu_coding *c, const float *x, size_t count,
                        bool *keep)
{
    const unsigned n = (unsigned)c->param[N], m = (unsigned)c->param[M];
    float score[PART];
    for (size_t i = 0; i < count; i++)
        score[i] = isnan(x[i]) ? INFINITY : fabsf(x[i]);
    for (size_t g = 0; g < count; g += m)
        tui_keep_nm(score + g, 1, n, m, keep + g);
}

/* The kept of PART values at most, as values of the code at *to, which moves on. */
static int put_kept(const struct tu_coding *c, unsigned char **to, const float *x,
                    const bool *keep, size_t count, struct tu_err *err)
{
    float kept[PART + 1];
    size_t k = 0;
    for (size_t i = 0; i < count; i++) {
        kept[k] = x[i];
        k += keep[i];
    }
    return tui_put_values((uint32_t)c->param[VALUE], to, kept, k, err);
}

int tui_put_values(uint32_t dtype, unsigned char **to, const float *x, size_t n,
                   struct tu_err *err)
{
    size_t bytes = tu_dtype_find(dtype)->block_bytes;
    if (bytes == 1) {
        for (size_t i = 0; i < n; i++)
            *(*to)++ = tu_to_small(dtype, x[i], true);
        return 0;
    }
    int rc = dtype == TU_F32 ? 0 : tu_cast(dtype, *to, TU_F32, x, n, err);
    if (dtype == TU_F32)
        memcpy(*to, x, n * bytes);
    *to += n * bytes;
    return rc;
}

static int encode_mask(const struct tu_coding *c, uint64_t first, size_t n,
                       const float *x, void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    const size_t cols = (size_t)c->cols, part = part_of(c);
    unsigned char *to = code, *mask = side[0];
    bool keep[PART];
    int rc = 0;
    for (const float *end = x + n; x < end && !rc; mask += tu_ceil_div(cols, 8)) {
        memset(mask, 0, (size_t)tu_ceil_div(cols, 8));
        for (size_t at = 0; at < cols && !rc; at += part) {
            const size_t count = tu_min(part, cols - at);
            keep_groups(c, x, count, keep);
            for (size_t i = 0; i < count; i++)
                mask[(at + i) / 8] |= (unsigned char)(keep[i] << (at + i) % 8);
            rc = put_kept(c, &to, x, keep, count, err);
            x += count;
        }
    }
    return rc;
}

/* A row of cols values, of which those of the mask are at `from`. */
static int decode_row(uint32_t dtype, const unsigned char *mask,
                      const unsigned char *from, float *x, size_t cols,
                      struct tu_err *err)
{
    const size_t bytes = tu_dtype_find(dtype)->block_bytes;
    float value[PART + 1];
    for (size_t at = 0; at < cols; at += PART) {
        const size_t count = tu_min(PART, cols - at);
        size_t kept = 0, k = 0;
        for (size_t j = at; j < at + count; j++)
            kept += mask[j / 8] >> j % 8 & 1;
        int rc = tu_to_float(dtype, from, value, kept, err);
        if (rc)
            return rc;
        value[kept] = 0;
        for (size_t j = at; j < at + count; j++) {
            const unsigned one = mask[j / 8] >> j % 8 & 1;
            x[j] = one ? value[k] : 0;
            k += one;
        }
        from += kept * bytes;
    }
    return 0;
}

static int decode_mask(const struct tu_coding *c, uint64_t first, size_t n,
                       const void *code, const void *const *side, float *x,
                       struct tu_err *err)
{
    (void)first;
    const uint32_t dtype = (uint32_t)c->param[VALUE];
    const size_t cols = (size_t)c->cols;
    const uint64_t per_row = c->code.dim[c->code.rank - 1];
    const unsigned char *mask = side[0], *from = code;
    int rc = 0;
    for (size_t at = 0; at < n && !rc; at += cols, mask += tu_ceil_div(cols, 8)) {
        uint64_t kept = 0;
        for (size_t j = 0; j < cols; j++)
            kept += mask[j / 8] >> j % 8 & 1;
        rc = kept == per_row
                 ? decode_row(dtype, mask, from, x + at, cols, err)
                 : tu_fail(err, TU_EFORMAT,
                           "a row's mask keeps %" PRIu64 " values, not %" PRIu64, kept,
                           per_row);
        from += per_row * tu_dtype_find(dtype)->block_bytes;
    }
    return rc;
}

/* Positions i0 < i1 of four as a nibble i0 | i1 << 2; of two: as a pair of halves. */
static unsigned nibble_of(const struct tu_coding *c, const bool *keep)
{
    static const unsigned char nibble[16] = {
        [0x3] = 0x4, [0x5] = 0x8, [0x9] = 0xc, [0x6] = 0x9, [0xa] = 0xd, [0xc] = 0xe};
    if (c->param[M] == 2)
        return keep[0] ? 0x4 : 0xe;
    return nibble[keep[0] | keep[1] << 1 | keep[2] << 2 | keep[3] << 3];
}

/* PyTorch's choice where fewer than two are not zero: 2 and 3; 1 and 2 for 1 alone; 0 and
 * 2 for 0 alone. Source: torch/sparse/_semi_structured_conversions.py. */
static void keep_sparse(const float *x, bool *keep)
{
    unsigned some = 0, at = 3;
    for (unsigned i = 0; i < 4; i++)
        if (x[i] != 0) {
            some++;
            at = i;
        }
    if (some >= 2)
        return;
    unsigned low = at < 2 ? at : 2, high = at < 2 ? 2 : 3;
    for (unsigned i = 0; i < 4; i++)
        keep[i] = i == low || i == high;
}

static int encode_24(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                     void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    const unsigned m = (unsigned)c->param[M];
    const size_t part = part_of(c);
    unsigned char *to = code, *meta = side[0];
    bool keep[PART];
    int rc = 0;
    memset(meta, 0, n / m / 2);
    for (size_t at = 0; at < n && !rc; at += part) {
        const size_t count = tu_min(part, n - at);
        keep_groups(c, x + at, count, keep);
        for (size_t i = 0; i < count; i += m) {
            const size_t g = (at + i) / m;
            if (m == 4 && c->param[TORCH])
                keep_sparse(x + at + i, keep + i);
            meta[g / 2] |= (unsigned char)(nibble_of(c, keep + i) << g % 2 * 4);
        }
        rc = put_kept(c, &to, x + at, keep, count, err);
    }
    return rc;
}

static int decode_24(const struct tu_coding *c, uint64_t first, size_t n,
                     const void *code, const void *const *side, float *x,
                     struct tu_err *err)
{
    const unsigned m = (unsigned)c->param[M], per = (unsigned)c->param[N];
    const uint32_t dtype = (uint32_t)c->param[VALUE];
    const size_t bytes = tu_dtype_find(dtype)->block_bytes, part = part_of(c);
    const unsigned char *meta = side[0], *from = code;
    float value[PART];
    memset(x, 0, n * sizeof *x);
    for (size_t at = 0; at < n; at += part) {
        const size_t groups = tu_min(part, n - at) / m;
        int rc = tu_to_float(dtype, from, value, groups * per, err);
        if (rc)
            return rc;
        from += groups * per * bytes;
        for (size_t i = 0; i < groups; i++) {
            const size_t g = at / m + i;
            unsigned v = meta[g / 2] >> g % 2 * 4 & 15, low = v & 3, high = v >> 2;
            bool good = m == 4 ? low < high : v == 0x4 || v == 0xe;
            if (!good)
                return tu_fail(err, TU_EFORMAT,
                               "metadata %x of group %" PRIu64 ": no positions in "
                               "ascending order",
                               v, first / m + g);
            for (unsigned k = 0; k < per; k++)
                x[g * m + (m == 2 ? low / 2 : k ? high : low)] = value[i * per + k];
        }
    }
    return 0;
}

uint64_t tu_sparse24_place(uint64_t rows, unsigned bytes, uint64_t row, uint64_t col)
{
    uint64_t group = bytes == 2 ? 32 : 16, weave = bytes == 2 ? 4 : 2;
    uint64_t r = row / group * group + row % 8 * weave + row % group / 8;
    /* Words of the other diagonal of each two by two change places. */
    if (r % 2 == 0 && col % 2 == 1) {
        r++;
        col--;
    } else if (r % 2 == 1 && col % 2 == 0) {
        r--;
        col++;
    }
    return col / 2 * rows * 2 + r * 2 + col % 2;
}

static const char *const mask_key[] = {"n", "m", "value", NULL};
static const char *const key_24[] = {"value", "torch", NULL};

const struct tu_codec tui_codecs_sparse[] = {
    {.name = "nm",
     .help = "N of M by magnitude: values and a bit mask",
     .source = "vllm-project/compressed-tensors: sparse-24-bitmask",
     .key = mask_key,
     .plan = plan_mask,
     .encode = encode_mask,
     .decode = decode_mask},
    {.name = "sparse24",
     .help = "2:4 (f32: 1:2) by magnitude: values and tensor cores' metadata",
     .source = "NVIDIA PTX ISA: mma.sp",
     .key = key_24,
     .plan = plan_24,
     .encode = encode_24,
     .decode = decode_24},
    {.name = NULL},
};
