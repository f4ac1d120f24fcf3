/* SPDX-License-Identifier: Apache-2.0 */
/* int_pack.c: the packings of integer codes: compressed-tensors' words, GPTQ's and AWQ's.
 * Each goes both ways between its bytes and struct tu_ints.
 *
 * Words are little-endian and codes lie in them lowest first. Not for rounding:
 * int_rule.c. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "bits.h"
#include "int.h"

static unsigned bits_of(const struct tu_coding *c)
{
    return (unsigned)c->param[TUI_INT_BITS];
}

/* Words of codes of equal width; dense: codes straddle words, else each word
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

/* Codes that fill their words lie in the bytes as a stream of bits does. */
static bool is_stream(unsigned bits, bool tight)
{
    return tight || 32 % bits == 0;
}

static void pack_row(const struct tu_coding *c, unsigned char *to, const uint8_t *code,
                     uint64_t n)
{
    unsigned bits = bits_of(c);
    if (is_stream(bits, dense(c)))
        tui_bits_pack(c->cpu, code, (size_t)n, bits, to);
    else
        for (uint64_t j = 0; j < n; j++)
            put_code(to, 4, seat_of(j, bits, false), bits, code[j]);
}

static void unpack_row(const struct tu_coding *c, uint8_t *code,
                       const unsigned char *from, uint64_t n)
{
    unsigned bits = bits_of(c);
    if (is_stream(bits, dense(c)))
        tui_bits_unpack(c->cpu, from, (size_t)n, bits, code);
    else
        for (uint64_t j = 0; j < n; j++)
            code[j] = (uint8_t)get_code(from, 4, seat_of(j, bits, false), bits);
}

static int pack_ct(const struct tu_coding *c, const struct tu_ints *m, uint64_t row,
                   void *code, void *const *side, struct tu_err *err)
{
    (void)row;
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
    if (packed(c)) /* what rows leave of their last words */
        memset(to, 0, m->rows * stride);
    for (uint64_t i = 0; i < m->rows; i++, to += stride) {
        const uint8_t *from = m->code + i * m->cols;
        if (packed(c))
            pack_row(c, to, from, m->cols);
        else
            tui_bytes_flip(c->cpu, to, from, (size_t)m->cols, 0x80);
    }
    return c->param[TUI_INT_TENSOR] ? 0 : pack_ct_scales(c, m, side, err);
}

static int unpack_ct(const struct tu_coding *c, struct tu_ints *m, uint64_t row,
                     const void *code, const void *const *side, struct tu_err *err)
{
    (void)row;
    unsigned bits = bits_of(c);
    int half = 1 << (bits - 1);
    bool asym = c->param[TUI_INT_ASYM], tensor = c->param[TUI_INT_TENSOR];
    size_t stride = packed(c) ? words_of(m->cols, bits, dense(c)) * 4 : m->cols;
    const unsigned char *from = code;
    for (uint64_t i = 0; i < m->rows; i++, from += stride) {
        uint8_t *to = m->code + i * m->cols;
        if (packed(c))
            unpack_row(c, to, from, m->cols);
        else
            tui_bytes_flip(c->cpu, to, from, (size_t)m->cols, 0x80);
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

const struct tui_int_pack tui_pack_ct = {plan_ct, pack_ct, unpack_ct, 0};

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

static struct seat awq_at(uint64_t output)
{
    return (struct seat){output / 8, tui_awq_shift((unsigned)(output % 8))};
}

static int put_zeros(const struct tu_coding *c, const struct tu_ints *m, uint64_t row,
                     void *const *side, bool awq, struct tu_err *err)
{
    const unsigned bits = bits_of(c), least = !awq && !c->param[TUI_INT_V2];
    const size_t stride = words_of(c->rows, bits, true) * 4;
    if (row == 0)
        memset(side[1], 0, m->groups * stride);
    for (uint64_t i = 0; i < m->rows * m->groups; i++) {
        const uint64_t out = row + i / m->groups, g = i % m->groups;
        const unsigned zero = m->zero[i];
        if (zero < least || zero - least >= 1u << bits)
            return tu_fail(err, TU_EUSAGE,
                           "zero %u of output %" PRIu64 ", group %" PRIu64
                           ": codec '%s' holds %u to %u",
                           zero, out, g, c->codec->name, least, least + (1u << bits) - 1);
        put_code((unsigned char *)side[1] + g * stride, 4,
                 awq ? awq_at(out) : seat_of(out, bits, true), bits, zero - least);
        int rc = put_scale(c, side[0], g * c->rows + out, m->scale[i], err);
        if (rc)
            return rc;
    }
    return 0;
}

static void get_zeros(const struct tu_coding *c, struct tu_ints *m, uint64_t row,
                      const void *const *side, bool awq)
{
    const unsigned bits = bits_of(c), least = !awq && !c->param[TUI_INT_V2];
    const size_t stride = words_of(c->rows, bits, true) * 4;
    for (uint64_t i = 0; i < m->rows * m->groups; i++) {
        const uint64_t out = row + i / m->groups, g = i % m->groups;
        m->zero[i] =
            (uint16_t)(least + get_code((const unsigned char *)side[1] + g * stride, 4,
                                        awq ? awq_at(out) : seat_of(out, bits, true),
                                        bits));
        m->scale[i] = get_scale(c, side[0], g * c->rows + out);
    }
}

/* Rows of n words turned into columns, in tiles that share lines of the cache on both
 * sides. */
static void turn_words(const unsigned char *from, size_t from_stride, unsigned char *to,
                       size_t to_stride, uint64_t rows, uint64_t n)
{
    enum { TILE = 16 };
    for (uint64_t w = 0; w < n; w += TILE)
        for (uint64_t i = 0; i < rows; i += TILE)
            for (uint64_t k = w; k < tu_min(w + TILE, n); k++)
                for (uint64_t r = i; r < tu_min(i + TILE, rows); r++)
                    memcpy(to + k * to_stride + 4 * r, from + r * from_stride + 4 * k, 4);
}

enum {
    ROWS = 16
}; /* outputs whose words are made or taken apart before they are turned */

/* Words run down the inputs: those of a few outputs are packed as rows, then turned. */
static int pack_gptq(const struct tu_coding *c, const struct tu_ints *m, uint64_t at,
                     void *code, void *const *side, struct tu_err *err)
{
    const uint64_t words = words_of(m->cols, bits_of(c), true);
    unsigned char *row = tu_alloc(ROWS * words + 1, 4, err);
    if (!row)
        return TU_ENOMEM;
    for (uint64_t i = 0; i < m->rows; i += ROWS) {
        const uint64_t rows = tu_min(ROWS, m->rows - i);
        for (uint64_t r = 0; r < rows; r++)
            tui_bits_pack(c->cpu, m->code + (i + r) * m->cols, (size_t)m->cols,
                          bits_of(c), row + r * words * 4);
        turn_words(row, words * 4, (unsigned char *)code + 4 * (at + i), c->rows * 4,
                   rows, words);
    }
    tu_free(row);
    if (at == 0)
        put_gidx(m, side[2]);
    return put_zeros(c, m, at, side, false, err);
}

static int unpack_gptq(const struct tu_coding *c, struct tu_ints *m, uint64_t at,
                       const void *code, const void *const *side, struct tu_err *err)
{
    const uint64_t words = words_of(m->cols, bits_of(c), true);
    unsigned char *row = tu_alloc(ROWS * words + 1, 4, err);
    if (!row)
        return TU_ENOMEM;
    for (uint64_t i = 0; i < m->rows; i += ROWS) {
        const uint64_t rows = tu_min(ROWS, m->rows - i);
        turn_words((const unsigned char *)code + 4 * (at + i), c->rows * 4, row,
                   words * 4, words, rows);
        for (uint64_t r = 0; r < rows; r++)
            tui_bits_unpack(c->cpu, row + r * words * 4, (size_t)m->cols, bits_of(c),
                            m->code + (i + r) * m->cols);
    }
    tu_free(row);
    get_zeros(c, m, at, side, false);
    return at ? 0 : get_gidx(m, side[2], err);
}

enum { COLUMNS = 64 }; /* whose words are made or taken apart at a time */

static int pack_awq(const struct tu_coding *c, const struct tu_ints *m, uint64_t at,
                    void *code, void *const *side, struct tu_err *err)
{
    if (m->gidx)
        return tu_fail(err, TU_EUSAGE,
                       "columns are not in the order of their groups: codec "
                       "'%s' has no place for it",
                       c->codec->name);
    const uint64_t stride = c->rows / 8 * 4;
    unsigned char *to = (unsigned char *)code + at / 8 * 4;
    uint32_t word[COLUMNS];
    for (uint64_t j = 0; j < m->cols; j += COLUMNS)
        for (uint64_t w = 0; w < m->rows / 8; w++) {
            const size_t n = (size_t)tu_min(COLUMNS, m->cols - j);
            tui_awq_join(c->cpu, m->code + 8 * w * m->cols + j, (size_t)m->cols, n, word);
            for (size_t k = 0; k < n; k++)
                tu_put32(to + (j + k) * stride + w * 4, word[k]);
        }
    return put_zeros(c, m, at, side, true, err);
}

static int unpack_awq(const struct tu_coding *c, struct tu_ints *m, uint64_t at,
                      const void *code, const void *const *side, struct tu_err *err)
{
    (void)err;
    const uint64_t stride = c->rows / 8 * 4;
    const unsigned char *from = (const unsigned char *)code + at / 8 * 4;
    uint32_t word[COLUMNS];
    for (uint64_t j = 0; j < m->cols; j += COLUMNS)
        for (uint64_t w = 0; w < m->rows / 8; w++) {
            const size_t n = (size_t)tu_min(COLUMNS, m->cols - j);
            for (size_t k = 0; k < n; k++)
                word[k] = tu_le32(from + (j + k) * stride + w * 4);
            tui_awq_split(c->cpu, word, n, (size_t)m->cols,
                          m->code + 8 * w * m->cols + j);
        }
    get_zeros(c, m, at, side, true);
    return 0;
}

/* Outputs at a time: their codes, one in a byte, stay in the cache, and their words fill
 * its lines. A multiple of 32, so that zeros fill words. */
enum { OUTPUTS = 128 };

const struct tui_int_pack tui_pack_gptq = {plan_gptq, pack_gptq, unpack_gptq, OUTPUTS};
const struct tui_int_pack tui_pack_awq = {plan_awq, pack_awq, unpack_awq, OUTPUTS};
