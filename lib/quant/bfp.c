/* SPDX-License-Identifier: Apache-2.0 */
/* bfp.c: block floating point: integers of m bits (sign included) under a shared
 * exponent.
 *
 * With `order` the columns are first sorted by their norm, so that outlier channels share
 * blocks; the order is stored. Source: arXiv 2403.20137 (channel reordering for key
 * caches). */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "bits.h"
#include "families.h"
#include "scored.h"
#include "small.h"

enum { BITS, BLOCK, ORDER };
enum order { AS_IS, DESCENDING, ASCENDING };
static const char *const keys[] = {"bits", "block", "order", NULL};

static int read_spec(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t bits, block;
    const char *order = tu_spec_get(spec, "order");
    int rc = tu_spec_u64(spec, "bits", 4, &bits, err);
    if (!rc)
        rc = tu_spec_u64(spec, "block", 16, &block, err);
    if (rc)
        return rc;
    if (bits < 2 || bits > 8)
        return tu_fail(err, TU_EUSAGE, "codec 'bfp': bits %" PRIu64 " is not 2 to 8",
                       bits);
    if (block < 1 || c->rank == 0 || c->cols % block)
        return tu_fail(err, TU_EUSAGE,
                       "codec 'bfp': last dimension %" PRIu64
                       " is no multiple of block %" PRIu64,
                       c->cols, block);
    if (order && strcmp(order, "desc") != 0 && strcmp(order, "asc") != 0)
        return tu_fail(err, TU_EUSAGE, "codec 'bfp': order '%.20s' is not desc or asc",
                       order);
    c->param[BITS] = (int64_t)bits;
    c->param[BLOCK] = (int64_t)block;
    c->param[ORDER] = !order ? AS_IS : *order == 'd' ? DESCENDING : ASCENDING;
    return 0;
}

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    int rc = read_spec(c, spec, err);
    if (rc)
        return rc;
    uint64_t block = (uint64_t)c->param[BLOCK];
    bool nibbles = c->param[BITS] <= 4 && block % 2 == 0;
    c->code = (struct tu_part){.dtype = nibbles ? TU_I4 : TU_I8, .rank = c->rank};
    memcpy(c->code.dim, c->dim, c->rank * sizeof *c->dim);
    c->sides = c->param[ORDER] ? 2 : 1;
    c->side[0] =
        (struct tu_part){.suffix = "scale", .dtype = TU_F8_E8M0, .rank = c->rank};
    memcpy(c->side[0].dim, c->dim, c->rank * sizeof *c->dim);
    c->side[0].dim[c->rank - 1] /= block;
    c->side[1] =
        (struct tu_part){.suffix = "perm", .dtype = TU_U32, .rank = 1, .dim = {c->cols}};
    if (c->param[ORDER] && c->cols > UINT32_MAX)
        return tu_fail(err, TU_EUSAGE, "codec 'bfp': too many columns to sort");
    c->atom =
        c->param[ORDER] ? tu_max(c->elements, 1) : block; /* norms are of whole columns */
    c->code.atom_bytes = nibbles ? c->atom / 2 : c->atom;
    c->side[0].atom_bytes = c->atom / block;
    c->side[1].atom_bytes = 4 * c->cols;
    c->block[0] = 1;
    c->block[1] = block;
    return 0;
}

static void encode_block(const struct tu_coding *c, const float *x, unsigned char *out,
                         unsigned char *scale, unsigned char *codes)
{
    size_t n = (size_t)c->param[BLOCK];
    int bits = (int)c->param[BITS], top = (1 << (bits - 1)) - 1, e = 0;
    bool nibbles = c->code.dtype == TU_I4;
    float amax;
    tui_amax(c->cpu, x, n, n, &amax);
    frexpf(amax, &e);
    e = !(amax > 0) || e - 1 < -127 ? -127 : e - 1;
    *scale = (unsigned char)(e + 127);
    for (size_t i = 0; i < n; i++) {
        double q = rint(ldexp((double)x[i], bits - 2 - e));
        int v = (int)(q > top ? top : q < -top ? -top : q);
        codes[i] = (unsigned char)(nibbles ? v & 15 : v);
    }
    tui_bits_pack(c->cpu, codes, n, nibbles ? 4 : 8, out);
}

static int sort_columns(const struct tu_coding *c, size_t n, const float *x,
                        unsigned char *perm, struct tu_err *err)
{
    size_t cols = (size_t)c->cols;
    struct tui_scored *v = tu_calloc(cols, sizeof *v, err);
    if (!v)
        return TU_ENOMEM;
    const double way = c->param[ORDER] == ASCENDING ? -1 : 1;
    for (size_t j = 0; j < cols; j++)
        v[j].at = j;
    for (size_t i = 0; i < n; i++)
        v[i % cols].score += way * ((double)x[i] * (double)x[i]);
    tui_scored_sort(v, cols);
    for (size_t j = 0; j < cols; j++)
        tu_put32(perm + 4 * j, (uint32_t)v[j].at);
    tu_free(v);
    return 0;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    size_t block = (size_t)c->param[BLOCK], cols = (size_t)c->cols;
    unsigned char *out = code, *scale = side[0], *perm = c->param[ORDER] ? side[1] : NULL;
    unsigned char *codes = tu_alloc(block, 1, err);
    float *row = tu_alloc(block, sizeof *row, err);
    int rc = codes && row ? 0 : TU_ENOMEM;
    if (!rc && perm)
        rc = sort_columns(c, n, x, perm, err);
    for (size_t i = 0; !rc && i < n; i += block) {
        const float *from = x + i;
        for (size_t j = 0; perm && j < block; j++)
            row[j] = x[i / cols * cols + tu_le32(perm + 4 * (i % cols + j))];
        encode_block(c, perm ? row : from, out + (c->code.dtype == TU_I4 ? i / 2 : i),
                     scale + i / block, codes);
    }
    tu_free(row);
    tu_free(codes);
    return rc;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    size_t block = (size_t)c->param[BLOCK], cols = (size_t)c->cols;
    const unsigned char *in = code, *scale = side[0],
                        *perm = c->param[ORDER] ? side[1] : NULL;
    bool nibbles = c->code.dtype == TU_I4;
    for (size_t i = 0; i < n; i++) {
        int v = nibbles ? ((in[i / 2] >> i % 2 * 4 & 15) ^ 8) - 8 : (int8_t)in[i];
        size_t to = perm ? tu_le32(perm + 4 * (i % cols)) : i % cols;
        if (to >= cols)
            return tu_fail(err, TU_EFORMAT, "perm: column %zu of %zu", to, cols);
        int e = (int)scale[i / block] - 127;
        x[i / cols * cols + to] = (float)ldexp(v, e - (int)c->param[BITS] + 2);
    }
    return 0;
}

const struct tu_codec tui_codecs_bfp[] = {
    {.name = "bfp",
     .help = "block floating point, with an order of channels or as they are",
     .source = "arXiv 2403.20137",
     .key = keys,
     .plan = plan,
     .encode = encode,
     .decode = decode},
    {.name = NULL},
};
