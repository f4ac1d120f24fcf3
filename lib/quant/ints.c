/* SPDX-License-Identifier: Apache-2.0 */
/* ints.c: matrices of integers with scales, and what each packing can hold of them: the
 * part that makes repacking lossless or refused. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "int.h"

int tu_ints_init(struct tu_ints *m, unsigned bits, uint64_t rows, uint64_t cols,
                 uint64_t group, bool gidx, struct tu_err *err)
{
    uint64_t n, ng;
    if (!group)
        group = tu_max(cols, 1);
    *m = (struct tu_ints){.bits = bits,
                          .rows = rows,
                          .cols = cols,
                          .group = group,
                          .groups = tu_ceil_div(cols, group)};
    if (tu_mul_over(rows, cols, &n) || tu_mul_over(rows, m->groups, &ng) ||
        n > SIZE_MAX / 4)
        return tu_fail(err, TU_ESIZE, "%" PRIu64 " rows of %" PRIu64 " codes", rows,
                       cols);
    if (!(m->code = tu_alloc(tu_max((size_t)n, 1), 1, err)) ||
        !(m->scale = tu_calloc((size_t)ng, sizeof *m->scale, err)) ||
        !(m->zero = tu_calloc((size_t)ng, sizeof *m->zero, err)) ||
        (gidx && !(m->gidx = tu_calloc((size_t)cols, sizeof *m->gidx, err)))) {
        tu_ints_release(m);
        return TU_ENOMEM;
    }
    return 0;
}

void tu_ints_release(struct tu_ints *m)
{
    tu_free(m->code);
    tu_free(m->scale);
    tu_free(m->zero);
    tu_free(m->gidx);
    *m = (struct tu_ints){0};
}

static uint64_t group_of(const struct tu_ints *m, uint64_t column)
{
    return m->gidx ? (uint64_t)m->gidx[column] : column / m->group;
}

void tui_ints_values(uint32_t cpu, const struct tu_ints *m, float *x)
{
    for (uint64_t i = 0; i < m->rows; i++) {
        const uint8_t *code = m->code + i * m->cols;
        for (uint64_t j = 0; j < m->cols;) {
            uint64_t g = i * m->groups + group_of(m, j);
            size_t n = m->gidx ? 1 : (size_t)tu_min(m->group, m->cols - j);
            tui_affine_values(cpu, code + j, n, m->zero[g], m->scale[g], x);
            x += n;
            j += n;
        }
    }
}

void tu_ints_values(const struct tu_ints *m, float *x)
{
    tui_ints_values(tu_cpu_bits(), m, x);
}

/* ggml's blocks that are such a matrix ------------------------------------------- */

enum { BLOCK = 32 };

/* Q4_0: f16 scale, zero 8. Q4_1: f16 scale, f16 minimum. */
static int unpack_q4(const struct tu_coding *c, const void *code, struct tu_ints *m,
                     struct tu_err *err)
{
    bool min = c->code.dtype == TU_Q4_1;
    const unsigned char *b = code;
    int rc = tu_ints_init(m, 4, c->rows, c->cols, BLOCK, false, err);
    for (uint64_t i = 0; !rc && i < c->elements / BLOCK; i++, b += min ? 20 : 18) {
        float d = tu_from_f16(tu_le16(b)), zero = 8;
        if (min) {
            float low = tu_from_f16(tu_le16(b + 2));
            zero = low == 0 ? 0 : -low / d;
            if (!(zero >= 0 && zero <= UINT16_MAX) || zero != floorf(zero) ||
                -zero * d != low)
                rc = tu_fail(err, TU_EUSAGE,
                             "block %" PRIu64 ": the minimum %g is no multiple of "
                             "the scale %g",
                             i, (double)low, (double)d);
        }
        m->scale[i] = d;
        m->zero[i] = (uint16_t)zero;
        for (unsigned j = 0; j < BLOCK / 2; j++) {
            m->code[i * BLOCK + j] = b[(min ? 4 : 2) + j] & 15;
            m->code[i * BLOCK + j + 16] = b[(min ? 4 : 2) + j] >> 4;
        }
    }
    if (rc)
        tu_ints_release(m);
    return rc;
}

static int pack_q4(const struct tu_coding *c, const struct tu_ints *m, void *code,
                   struct tu_err *err)
{
    bool min = c->code.dtype == TU_Q4_1;
    unsigned char *b = code;
    for (uint64_t i = 0; i < c->elements / BLOCK; i++, b += min ? 20 : 18) {
        float low = -(float)m->zero[i] * m->scale[i];
        tu_put16(b, tu_to_f16(m->scale[i]));
        if (min) {
            tu_put16(b + 2, tu_to_f16(low));
            if (tu_from_f16(tu_to_f16(low)) != low)
                return tu_fail(err, TU_EUSAGE,
                               "row %" PRIu64 ", group %" PRIu64 ": the minimum %g "
                               "is no number of f16",
                               i / m->groups, i % m->groups, (double)low);
        }
        for (unsigned j = 0; j < BLOCK / 2; j++)
            b[(min ? 4 : 2) + j] = (unsigned char)(m->code[i * BLOCK + j] |
                                                   m->code[i * BLOCK + j + 16] << 4);
    }
    return 0;
}

/* What a packing can hold --------------------------------------------------------------
 */

struct room {
    unsigned bits;
    uint64_t group;
    uint32_t scale; /* dtype */
    unsigned zero_lo, zero_hi;
    bool gidx;
};

static bool is_q4(const struct tu_coding *c)
{
    return c->code.dtype == TU_Q4_0 || c->code.dtype == TU_Q4_1;
}

static bool is_int(const struct tu_coding *c)
{
    for (const struct tu_codec *row = tui_codecs_int; row->name; row++)
        if (row == c->codec)
            return true;
    return false;
}

bool tu_ints_ok(const struct tu_coding *c)
{
    return is_q4(c) || is_int(c);
}

static struct room room_of(const struct tu_coding *c)
{
    if (is_q4(c))
        return (struct room){4,
                             BLOCK,
                             TU_F16,
                             c->code.dtype == TU_Q4_0 ? 8 : 0,
                             c->code.dtype == TU_Q4_0 ? 8 : UINT16_MAX,
                             false};
    const struct tui_int_format *f = c->codec->format;
    unsigned half = 1u << (f->bits - 1), most = 2 * half - 1;
    struct room r = {f->bits,
                     (uint64_t)c->param[TUI_INT_GROUP],
                     (uint32_t)c->param[TUI_INT_SCALE],
                     half,
                     half,
                     false};
    if (f->pack != &tui_pack_ct || c->param[TUI_INT_ASYM]) {
        unsigned least = f->pack == &tui_pack_gptq && !c->param[TUI_INT_V2];
        r.zero_lo = least;
        r.zero_hi = most + least;
    }
    r.gidx = f->pack == &tui_pack_gptq || c->param[TUI_INT_ORDER];
    return r;
}

static bool holds(uint32_t dtype, float v)
{
    if (dtype == TU_F32)
        return true;
    float back =
        dtype == TU_F16 ? tu_from_f16(tu_to_f16(v)) : tu_from_bf16(tu_to_bf16(v));
    return memcmp(&back, &v, sizeof v) == 0;
}

/* One row and group of the target, from columns that have the same scale and zero. */
static int adapt_group(const struct room *room, const struct tu_ints *m,
                       struct tu_ints *out, uint64_t row, uint64_t g, struct tu_err *err)
{
    char name[8];
    const float *scale = NULL;
    int zero = 0, want = 0;
    uint64_t lo = out->gidx ? 0 : g * out->group;
    uint64_t hi = out->gidx ? m->cols : tu_min(lo + out->group, m->cols);
    for (uint64_t j = lo; j < hi; j++) {
        uint64_t from = row * m->groups + group_of(m, j);
        if (group_of(out, j) != g)
            continue;
        if (!scale) {
            scale = &m->scale[from];
            zero = m->zero[from];
            want = zero < (int)room->zero_lo   ? (int)room->zero_lo
                   : zero > (int)room->zero_hi ? (int)room->zero_hi
                                               : zero;
        } else if (memcmp(scale, &m->scale[from], sizeof *scale) != 0 ||
                   zero != m->zero[from]) {
            return tu_fail(err, TU_EUSAGE,
                           "row %" PRIu64 ", column %" PRIu64 ": has a scale of its "
                           "own but would share one in groups of %" PRIu64,
                           row, j, out->group);
        }
        int v = m->code[row * m->cols + j] - zero + want;
        if (v < 0 || v >> room->bits)
            return tu_fail(err, TU_EUSAGE,
                           "row %" PRIu64 ", column %" PRIu64 ": %d steps from "
                           "zero do not fit %u bits with zero %d",
                           row, j, v - want, room->bits, want);
        out->code[row * m->cols + j] = (uint8_t)v;
    }
    if (!scale)
        return 0;
    if (!holds(room->scale, *scale))
        return tu_fail(err, TU_EUSAGE,
                       "row %" PRIu64 ", group %" PRIu64 ": the scale %.9g is no "
                       "number of %s",
                       row, g, (double)*scale, tu_dtype_text(room->scale, name));
    out->scale[row * out->groups + g] = *scale;
    out->zero[row * out->groups + g] = (uint16_t)want;
    return 0;
}

static int adapt(const struct room *room, const struct tu_ints *m, struct tu_ints *out,
                 struct tu_err *err)
{
    bool ordered = m->gidx && room->gidx && room->group == m->group;
    int rc = tu_ints_init(out, room->bits, m->rows, m->cols, room->group, ordered, err);
    if (!rc && ordered)
        memcpy(out->gidx, m->gidx, (size_t)m->cols * sizeof *m->gidx);
    for (uint64_t i = 0; !rc && i < m->rows * out->groups; i++)
        rc = adapt_group(room, m, out, i / out->groups, i % out->groups, err);
    if (rc)
        tu_ints_release(out);
    return rc;
}

int tu_ints_unpack(const struct tu_coding *c, const void *code, const void *const *side,
                   struct tu_ints *m, struct tu_err *err)
{
    if (!tu_ints_ok(c))
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': its codes are not integers with scales",
                       c->codec->name);
    return is_q4(c) ? unpack_q4(c, code, m, err)
                    : tui_int_unpack_all(c, code, side, m, err);
}

static bool takes(const struct tu_codec *c, const char *key)
{
    for (const char *const *k = c->key; k && *k; k++)
        if (strcmp(*k, key) == 0)
            return true;
    return false;
}

/* Zeros that are not in the middle of the codes. */
static bool has_zeros(const struct tu_ints *m)
{
    for (uint64_t i = 0; i < m->rows * m->groups; i++)
        if (m->zero[i] != 1u << (m->bits - 1))
            return true;
    return false;
}

int tu_ints_spec(const struct tu_ints *m, const struct tu_spec *to, struct tu_buf *out,
                 struct tu_err *err)
{
    const struct tu_codec *c = tu_codec_find(to->name);
    size_t keys = to->n;
    int rc = tu_spec_print(to, out, err);
    if (!rc && c && takes(c, "group") && !tu_spec_get(to, "group"))
        rc = m->group >= m->cols
                 ? tu_buf_printf(out, err, "%cgroup=channel", keys++ ? ',' : ':')
                 : tu_buf_printf(out, err, "%cgroup=%" PRIu64, keys++ ? ',' : ':', m->group);
    if (!rc && c && takes(c, "asym") && !tu_spec_get(to, "asym") && has_zeros(m))
        rc = tu_buf_printf(out, err, "%casym", keys++ ? ',' : ':');
    if (!rc && c && takes(c, "order") && !tu_spec_get(to, "order") && m->gidx)
        rc = tu_buf_printf(out, err, "%corder", keys++ ? ',' : ':');
    return rc;
}

int tu_ints_pack(const struct tu_coding *c, const struct tu_ints *m, void *code,
                 void *const *side, struct tu_err *err)
{
    struct tu_ints fit;
    if (!tu_ints_ok(c))
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': its codes are not integers with scales",
                       c->codec->name);
    if (m->rows != c->rows || m->cols != c->cols)
        return tu_fail(err, TU_EBUG,
                       "a matrix of %" PRIu64 " by %" PRIu64 " for a tensor of %" PRIu64
                       " by %" PRIu64,
                       m->rows, m->cols, c->rows, c->cols);
    struct room room = room_of(c);
    int rc = adapt(&room, m, &fit, err);
    if (rc)
        return rc;
    rc = is_q4(c) ? pack_q4(c, &fit, code, err)
                  : tui_int_pack_all(c, &fit, code, side, err);
    tu_ints_release(&fit);
    return rc;
}
