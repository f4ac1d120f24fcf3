/* SPDX-License-Identifier: Apache-2.0 */
/* int_pack.c: the packings of integer codes: compressed-tensors' words, GPTQ's and AWQ's.
 * Each goes both ways between its bytes and struct tu_ints.
 *
 * Words are little-endian and codes lie in them lowest first. Not for rounding:
 * int_rule.c. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "int.h"

static unsigned bits_of(const struct tu_coding *c)
{
    return (unsigned)c->param[TUI_INT_BITS];
}

/* A stream of codes of equal width in words; dense: codes straddle words, else each word
 * holds whole codes. */
static uint64_t words_of(uint64_t n, unsigned bits, bool dense)
{
    return dense ? n / 32 * bits + tu_ceil_div(n % 32 * bits, 32)
                 : tu_ceil_div(n, 32 / bits);
}

struct seat {
    uint64_t word;
    unsigned shift;
};

static inline struct seat seat_of(uint64_t i, unsigned bits, bool dense)
{
    unsigned per = 32 / bits;
    if (!dense)
        return (struct seat){i / per, (unsigned)(i % per) * bits};
    unsigned at = (unsigned)(i % 32) * bits;
    return (struct seat){i / 32 * bits + at / 32, at % 32};
}

/* Put into words that began as zero; stride: bytes from word to word. */
static inline void put_code(unsigned char *p, size_t stride, struct seat s, unsigned bits,
                            uint32_t v)
{
    unsigned char *w = p + s.word * stride;
    tu_put32(w, tu_le32(w) | v << s.shift);
    if (s.shift + bits > 32)
        tu_put32(w + stride, tu_le32(w + stride) | v >> (32 - s.shift));
}

static inline uint32_t get_code(const unsigned char *p, size_t stride, struct seat s,
                                unsigned bits)
{
    const unsigned char *w = p + s.word * stride;
    uint32_t v = tu_le32(w) >> s.shift;
    if (s.shift + bits > 32)
        v |= tu_le32(w + stride) << (32 - s.shift);
    return v & ((1u << bits) - 1);
}

static int put_scale(const struct tu_coding *c, void *p, uint64_t i, float v,
                     struct tu_err *err)
{
    uint32_t dtype = (uint32_t)c->param[TUI_INT_SCALE];
    if (dtype == TU_F32) {
        memcpy((unsigned char *)p + 4 * i, &v, 4);
        return 0;
    }
    uint16_t h = dtype == TU_F16 ? tu_to_f16(v) : tu_to_bf16(v);
    if (!isfinite(dtype == TU_F16 ? tu_from_f16(h) : tu_from_bf16(h)))
        return tu_fail(err, TU_EUSAGE, "scale %g: over the range of f16", (double)v);
    tu_put16((unsigned char *)p + 2 * i, h);
    return 0;
}

static float get_scale(const struct tu_coding *c, const void *p, uint64_t i)
{
    uint32_t dtype = (uint32_t)c->param[TUI_INT_SCALE];
    float v;
    if (dtype == TU_F32) {
        memcpy(&v, (const unsigned char *)p + 4 * i, 4);
        return v;
    }
    uint16_t h = tu_le16((const unsigned char *)p + 2 * i);
    return dtype == TU_F16 ? tu_from_f16(h) : tu_from_bf16(h);
}

static void add_side(struct tu_coding *c, const char *suffix, uint32_t dtype, uint64_t a,
                     uint64_t b, uint64_t atom_bytes)
{
    c->side[c->sides++] = (struct tu_part){.suffix = suffix,
                                           .dtype = dtype,
                                           .rank = 2,
                                           .dim = {a, b},
                                           .atom_bytes = atom_bytes};
}

static void add_gidx(struct tu_coding *c)
{
    c->side[c->sides++] =
        (struct tu_part){.suffix = "gidx", .dtype = TU_I32, .rank = 1, .dim = {c->cols}};
}

static int groups_fit(const struct tu_coding *c, struct tu_err *err)
{
    uint64_t group = (uint64_t)c->param[TUI_INT_GROUP];
    if (c->cols % group)
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': last dimension %" PRIu64
                       " is no multiple of the group %" PRIu64,
                       c->codec->name, c->cols, group);
    return 0;
}

/* The group of each column, from its side. */
static int get_gidx(struct tu_ints *m, const unsigned char *p, struct tu_err *err)
{
    bool plain = true;
    for (uint64_t j = 0; j < m->cols; j++) {
        int32_t g = (int32_t)tu_le32(p + 4 * j);
        if (g < 0 || (uint64_t)g >= m->groups)
            return tu_fail(err, TU_EFORMAT,
                           "group index %" PRId32 " of column %" PRIu64
                           ": there are %" PRIu64 " groups",
                           g, j, m->groups);
        m->gidx[j] = g;
        plain &= (uint64_t)g == j / m->group;
    }
    if (plain) {
        tu_free(m->gidx);
        m->gidx = NULL;
    }
    return 0;
}

static void put_gidx(const struct tu_ints *m, unsigned char *p)
{
    for (uint64_t j = 0; j < m->cols; j++)
        tu_put32(p + 4 * j, (uint32_t)(m->gidx ? m->gidx[j] : (int32_t)(j / m->group)));
}

/* compressed-tensors ------------------------------------------------------------------
 */

/* Sides in order: scale, zero (asymmetric), gidx (ordered). Codes of 8 bits are i8 unless
 * packed. Zeros of packed codes are packed down the rows. Source: vllm-project/
 * compressed-tensors compressors/pack_quantized/helpers.py. */
static bool dense(const struct tu_coding *c)
{
    return !c->param[TUI_INT_V2];
}

static bool packed(const struct tu_coding *c)
{
    return c->code.dtype == TU_I32;
}

static int plan_ct(struct tu_coding *c, struct tu_err *err)
{
    unsigned bits = bits_of(c);
    bool tensor = c->param[TUI_INT_TENSOR], asym = c->param[TUI_INT_ASYM];
    uint64_t groups = c->cols / (uint64_t)c->param[TUI_INT_GROUP];
    int rc = groups_fit(c, err);
    if (rc)
        return rc;
    uint64_t words = words_of(c->cols, bits, dense(c));
    c->code.rank = c->rank ? c->rank : 1;
    memcpy(c->code.dim, c->rank ? c->dim : &c->cols, c->code.rank * sizeof *c->dim);
    if (packed(c))
        c->code.dim[c->code.rank - 1] = words;
    /* Rows that fill whole words of packed zeros. */
    uint64_t rows = asym && packed(c) && !tensor ? (dense(c) ? 32 : 32 / bits) : 1;
    if (tu_mul_over(rows, tu_max(c->cols, 1), &c->atom))
        return tu_fail(err, TU_ESIZE, "codec '%s': rows of %" PRIu64 " elements",
                       c->codec->name, c->cols);
    c->code.atom_bytes = rows * (packed(c) ? words * 4 : c->cols);
    uint64_t wide = c->param[TUI_INT_SCALE] == TU_F32 ? 4 : 2;
    if (tensor) {
        add_side(c, "scale", (uint32_t)c->param[TUI_INT_SCALE], 1, 1, 0);
        if (asym)
            add_side(c, "zero", TU_I8, 1, 1, 0);
    } else {
        add_side(c, "scale", (uint32_t)c->param[TUI_INT_SCALE], c->rows, groups,
                 rows * groups * wide);
        if (asym && packed(c))
            add_side(c, "zero", TU_I32, words_of(c->rows, bits, dense(c)), groups,
                     words_of(rows, bits, dense(c)) * groups * 4);
        else if (asym)
            add_side(c, "zero", TU_I8, c->rows, groups, groups);
    }
    if (c->param[TUI_INT_ORDER])
        add_gidx(c);
    return 0;
}

static int pack_ct_scales(const struct tu_coding *c, const struct tu_ints *m,
                          void *const *side, struct tu_err *err)
{
    unsigned bits = bits_of(c);
    int half = 1 << (bits - 1), rc = 0;
    bool asym = c->param[TUI_INT_ASYM];
    uint64_t n = m->rows * m->groups;
    size_t stride = (size_t)m->groups * 4;
    if (asym && packed(c))
        memset(side[1], 0, words_of(m->rows, bits, dense(c)) * stride);
    for (uint64_t i = 0; i < n && !rc; i++) {
        int zero = m->zero[i];
        if (asym ? zero > 2 * half - 1 : zero != half)
            return tu_fail(err, TU_EUSAGE,
                           "zero %d of group %" PRIu64 ": codec '%s'%s cannot hold it",
                           zero, i, c->codec->name, asym ? "" : " without 'asym'");
        rc = put_scale(c, side[0], i, m->scale[i], err);
        if (asym && packed(c))
            put_code((unsigned char *)side[1] + i % m->groups * 4, stride,
                     seat_of(i / m->groups, bits, dense(c)), bits, (uint32_t)zero);
        else if (asym)
            ((int8_t *)side[1])[i] = (int8_t)(zero - half);
    }
    return rc;
}

static void pack_row(unsigned char *to, const uint8_t *code, uint64_t n, unsigned bits,
                     bool tight)
{
    if (bits == 4) {
        tui_nibbles_pack(code, (size_t)n, false, to);
        return;
    }
    for (uint64_t j = 0; j < n; j++)
        put_code(to, 4, seat_of(j, bits, tight), bits, code[j]);
}

static void unpack_row(uint8_t *code, const unsigned char *from, uint64_t n,
                       unsigned bits, bool tight)
{
    if (bits == 4) {
        tui_nibbles_unpack(from, (size_t)n, false, code);
        return;
    }
    for (uint64_t j = 0; j < n; j++)
        code[j] = (uint8_t)get_code(from, 4, seat_of(j, bits, tight), bits);
}

/* Between codes of eight bits with and without sign. */
static void flip_signs(unsigned char *to, const unsigned char *from, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        tu_put64(to + i, tu_le64(from + i) ^ UINT64_C(0x8080808080808080));
    for (; i < n; i++)
        to[i] = from[i] ^ 0x80;
}

static int pack_ct(const struct tu_coding *c, const struct tu_ints *m, void *code,
                   void *const *side, struct tu_err *err)
{
    unsigned bits = bits_of(c);
    if (m->gidx && !c->param[TUI_INT_ORDER])
        return tu_fail(err, TU_EUSAGE,
                       "columns are not in the order of their groups: codec "
                       "'%s' needs 'order'",
                       c->codec->name);
    if (m->gidx) /* without: written when all rows are there */
        put_gidx(m, side[c->sides - 1]);
    size_t stride = packed(c) ? words_of(m->cols, bits, dense(c)) * 4 : m->cols;
    unsigned char *to = code;
    memset(to, 0, m->rows * stride);
    for (uint64_t i = 0; i < m->rows; i++, to += stride) {
        const uint8_t *from = m->code + i * m->cols;
        if (packed(c))
            pack_row(to, from, m->cols, bits, dense(c));
        else
            flip_signs(to, from, (size_t)m->cols);
    }
    return c->param[TUI_INT_TENSOR] ? 0 : pack_ct_scales(c, m, side, err);
}

static int unpack_ct(const struct tu_coding *c, struct tu_ints *m, const void *code,
                     const void *const *side, struct tu_err *err)
{
    unsigned bits = bits_of(c);
    int half = 1 << (bits - 1);
    bool asym = c->param[TUI_INT_ASYM], tensor = c->param[TUI_INT_TENSOR];
    size_t stride = packed(c) ? words_of(m->cols, bits, dense(c)) * 4 : m->cols;
    const unsigned char *from = code;
    for (uint64_t i = 0; i < m->rows; i++, from += stride) {
        uint8_t *to = m->code + i * m->cols;
        if (packed(c))
            unpack_row(to, from, m->cols, bits, dense(c));
        else
            flip_signs(to, from, (size_t)m->cols);
    }
    for (uint64_t i = 0; i < m->rows * m->groups; i++) {
        m->scale[i] = get_scale(c, side[0], tensor ? 0 : i);
        int zero = half;
        if (asym && packed(c) && !tensor)
            zero = (int)get_code((const unsigned char *)side[1] + i % m->groups * 4,
                                 (size_t)m->groups * 4,
                                 seat_of(i / m->groups, bits, dense(c)), bits);
        else if (asym)
            zero = (((const int8_t *)side[1])[tensor ? 0 : i] + half) & (2 * half - 1);
        m->zero[i] = (uint16_t)zero;
    }
    return c->param[TUI_INT_ORDER] ? get_gidx(m, side[c->sides - 1], err) : 0;
}

int tui_ct_put_tensor(const struct tu_coding *c, float scale, unsigned zero,
                      void *const *side, struct tu_err *err)
{
    if (c->param[TUI_INT_ASYM])
        *(int8_t *)side[1] = (int8_t)((int)zero - (1 << (bits_of(c) - 1)));
    return put_scale(c, side[0], 0, scale, err);
}

const struct tui_int_pack tui_pack_ct = {plan_ct, pack_ct, unpack_ct};

/* GPTQ and AWQ ------------------------------------------------------------------------
 */

/* Transposed: words run down the inputs (GPTQ) or along the outputs (AWQ); scales are
 * [groups, outputs]. Sides in order: scale, zero, gidx (GPTQ). Sources:
 * AutoGPTQ/AutoGPTQ qlinear_cuda.py, casper-hansen/AutoAWQ awq/utils/packing_utils.py. */
static int plan_transposed(struct tu_coding *c, bool awq, struct tu_err *err)
{
    unsigned bits = bits_of(c), per = 32 % bits ? 32 : 32 / bits;
    if (c->rank != 2)
        return tu_fail(err, TU_EUSAGE, "codec '%s': rank %u: only matrices",
                       c->codec->name, c->rank);
    int rc = groups_fit(c, err);
    if (rc)
        return rc;
    for (unsigned k = awq; k < 2; k++) {
        uint64_t n = k ? c->rows : c->cols;
        if (n % per)
            return tu_fail(err, TU_EUSAGE,
                           "codec '%s': dimension %u of %" PRIu64 " is no multiple of %u",
                           c->codec->name, 1 - k, n, per);
    }
    uint64_t groups = c->cols / (uint64_t)c->param[TUI_INT_GROUP];
    uint64_t down = words_of(c->cols, bits, true), across = words_of(c->rows, bits, true);
    c->code.rank = 2;
    c->code.dim[0] = awq ? c->cols : down;
    c->code.dim[1] = awq ? across : c->rows;
    c->atom = tu_max(c->elements, 1);
    c->code.atom_bytes = c->code.dim[0] * c->code.dim[1] * 4;
    add_side(c, "scale", (uint32_t)c->param[TUI_INT_SCALE], groups, c->rows, 0);
    add_side(c, "zero", TU_I32, groups, across, 0);
    if (!awq)
        add_gidx(c);
    return 0;
}

static int plan_gptq(struct tu_coding *c, struct tu_err *err)
{
    return plan_transposed(c, false, err);
}

static int plan_awq(struct tu_coding *c, struct tu_err *err)
{
    return plan_transposed(c, true, err);
}

/* AWQ: nibble i of a word holds output order[i]. */
static const unsigned char awq_seat[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static struct seat awq_at(uint64_t output)
{
    return (struct seat){output / 8, awq_seat[output % 8] * 4u};
}

static int put_zeros(const struct tu_coding *c, const struct tu_ints *m,
                     void *const *side, bool awq, struct tu_err *err)
{
    unsigned bits = bits_of(c), least = !awq && !c->param[TUI_INT_V2], rc = 0;
    size_t stride = words_of(m->rows, bits, true) * 4;
    memset(side[1], 0, m->groups * stride);
    for (uint64_t i = 0; i < m->rows * m->groups; i++) {
        uint64_t out = i / m->groups, g = i % m->groups;
        unsigned zero = m->zero[i];
        if (zero < least || zero - least >= 1u << bits)
            return tu_fail(err, TU_EUSAGE,
                           "zero %u of output %" PRIu64 ", group %" PRIu64
                           ": codec '%s' holds %u to %u",
                           zero, out, g, c->codec->name, least, least + (1u << bits) - 1);
        put_code((unsigned char *)side[1] + g * stride, 4,
                 awq ? awq_at(out) : seat_of(out, bits, true), bits, zero - least);
        if (put_scale(c, side[0], g * m->rows + out, m->scale[i], err))
            return TU_EUSAGE;
    }
    return (int)rc;
}

static void get_zeros(const struct tu_coding *c, struct tu_ints *m,
                      const void *const *side, bool awq)
{
    unsigned bits = bits_of(c), least = !awq && !c->param[TUI_INT_V2];
    size_t stride = words_of(m->rows, bits, true) * 4;
    for (uint64_t i = 0; i < m->rows * m->groups; i++) {
        uint64_t out = i / m->groups, g = i % m->groups;
        m->zero[i] =
            (uint16_t)(least + get_code((const unsigned char *)side[1] + g * stride, 4,
                                        awq ? awq_at(out) : seat_of(out, bits, true),
                                        bits));
        m->scale[i] = get_scale(c, side[0], g * m->rows + out);
    }
}

enum { TILE = 8 }; /* words that are packed from one line of the cache */

static int pack_gptq(const struct tu_coding *c, const struct tu_ints *m, void *code,
                     void *const *side, struct tu_err *err)
{
    unsigned bits = bits_of(c);
    unsigned char *to = code;
    if (bits == 4) { /* a word is eight inputs of an output; a tile is a line of the cache */
        for (uint64_t w = 0; w < m->cols / 8; w += TILE)
            for (uint64_t i = 0; i < m->rows; i++)
                for (uint64_t k = w; k < tu_min(w + TILE, m->cols / 8); k++)
                    tui_nibbles_pack(m->code + i * m->cols + 8 * k, 8, false,
                                     to + (k * m->rows + i) * 4);
    } else {
        memset(code, 0, c->code.bytes);
        for (uint64_t j = 0; j < m->cols; j++)
            for (uint64_t i = 0; i < m->rows; i++)
                put_code(to + 4 * i, m->rows * 4, seat_of(j, bits, true), bits,
                         m->code[i * m->cols + j]);
    }
    put_gidx(m, side[2]);
    return put_zeros(c, m, side, false, err);
}

static int unpack_gptq(const struct tu_coding *c, struct tu_ints *m, const void *code,
                       const void *const *side, struct tu_err *err)
{
    unsigned bits = bits_of(c);
    const unsigned char *from = code;
    for (uint64_t w = 0; bits == 4 && w < m->cols / 8; w += TILE)
        for (uint64_t i = 0; i < m->rows; i++)
            for (uint64_t k = w; k < tu_min(w + TILE, m->cols / 8); k++)
                tui_nibbles_unpack(from + (k * m->rows + i) * 4, 8, false,
                                   m->code + i * m->cols + 8 * k);
    for (uint64_t j = 0; bits != 4 && j < m->cols; j++)
        for (uint64_t i = 0; i < m->rows; i++)
            m->code[i * m->cols + j] = (uint8_t)get_code(from + 4 * i, m->rows * 4,
                                                         seat_of(j, bits, true), bits);
    get_zeros(c, m, side, false);
    return get_gidx(m, side[2], err);
}

/* The word of column j of eight outputs whose first is at `row`. */
static void awq_word(const uint8_t *row, uint64_t cols, unsigned char *word)
{
    uint32_t v = 0;
    for (unsigned k = 0; k < 8; k++)
        v |= (uint32_t)row[k * cols] << (4 * awq_seat[k]);
    tu_put32(word, v);
}

static void awq_codes(const uint8_t *row, uint64_t cols, unsigned char *word)
{
    uint8_t *out = (uint8_t *)(uintptr_t)row;
    const uint32_t v = tu_le32(word);
    for (unsigned k = 0; k < 8; k++)
        out[k * cols] = v >> (4 * awq_seat[k]) & 15;
}

/* Every word, in tiles of columns that share lines of the cache on both sides. */
static void each_awq(const struct tu_ints *m, unsigned char *code,
                     void (*fn)(const uint8_t *row, uint64_t cols, unsigned char *word))
{
    enum { COLUMNS = 64 };
    const uint64_t words = m->rows / 8;
    for (uint64_t j = 0; j < m->cols; j += COLUMNS)
        for (uint64_t w = 0; w < words; w++)
            for (uint64_t k = j; k < tu_min(j + COLUMNS, m->cols); k++)
                fn(m->code + 8 * w * m->cols + k, m->cols, code + (k * words + w) * 4);
}

static int pack_awq(const struct tu_coding *c, const struct tu_ints *m, void *code,
                    void *const *side, struct tu_err *err)
{
    if (m->gidx)
        return tu_fail(err, TU_EUSAGE,
                       "columns are not in the order of their groups: codec "
                       "'%s' has no place for it",
                       c->codec->name);
    each_awq(m, code, awq_word);
    return put_zeros(c, m, side, true, err);
}

static int unpack_awq(const struct tu_coding *c, struct tu_ints *m, const void *code,
                      const void *const *side, struct tu_err *err)
{
    (void)err;
    unsigned char *from;
    memcpy(&from, &code, sizeof from); /* read only */
    each_awq(m, from, awq_codes);
    get_zeros(c, m, side, true);
    return 0;
}

const struct tui_int_pack tui_pack_gptq = {plan_gptq, pack_gptq, unpack_gptq};
const struct tui_int_pack tui_pack_awq = {plan_awq, pack_awq, unpack_awq};
