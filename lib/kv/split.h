/* SPDX-License-Identifier: Apache-2.0 */
/* split.h: the inner loops of the lossless codecs, a row for each instruction set; all rows
 * give the same bytes. Numbers are bf16, n ≤ 65536 of them. */
#ifndef TU_KV_SPLIT_H
#define TU_KV_SPLIT_H

#include <tensorutils/core.h>

/* An exponent that is not in the book. */
struct tui_escape {
    uint16_t at;
    uint8_t exponent;
};

/* Fixed rate: a 4-bit code of the exponent, code[ceil(n / 2)], and 8 bits of sign and
 * mantissa, rest[n]. Returns how many escapes there are; their code is 0. */
typedef size_t tui_split_fn(const uint16_t *x, size_t n, const uint8_t book[16],
                            uint8_t *code, uint8_t *rest, struct tui_escape *escape);
typedef void tui_join_fn(uint16_t *x, size_t n, const uint8_t book[16],
                         const uint8_t *code, const uint8_t *rest);
/* Planes: exponents less `bias` of their column, and sign and mantissa. */
typedef void tui_part_fn(const uint16_t *x, size_t n, const uint8_t *bias,
                         uint8_t *exponent, uint8_t *rest);
typedef void tui_unite_fn(uint16_t *x, size_t n, const uint8_t *bias,
                          const uint8_t *exponent, const uint8_t *rest);
/* x[n] as codes, word = code << 8 | bits, at most 11 each; returns their bytes. Writes up
 * to 8 bytes more. */
typedef size_t tui_pack_fn(const uint8_t *x, size_t n, const uint32_t word[256],
                           uint8_t *out);

/* The way back of four streams at once. entry: for 11 bits the bits that they take (byte
 * 0), how many symbols those are (byte 1), the symbols. Bits behind the end are 0. */
enum { TUI_UNPACK_BITS = 11, TUI_UNPACK_MOST = 6 };
struct tui_bits {
    const uint8_t *p, *end;
    uint8_t *to, *stop;
};
typedef void tui_unpack_fn(struct tui_bits s[4], const uint64_t *entry);

extern const struct tu_kernel tui_split_kernels[], tui_join_kernels[], tui_part_kernels[],
    tui_unite_kernels[], tui_pack_kernels[], tui_unpack_kernels[];

extern tui_split_fn tui_split_plain, tui_split_avx2, tui_split_vbmi;
extern tui_join_fn tui_join_plain, tui_join_avx2, tui_join_vbmi;
extern tui_part_fn tui_part_plain, tui_part_avx2, tui_part_vbmi;
extern tui_unite_fn tui_unite_plain, tui_unite_avx2, tui_unite_vbmi;
extern tui_pack_fn tui_pack_plain, tui_pack_vbmi;
extern tui_unpack_fn tui_unpack_plain, tui_unpack_avx2;

/* The escapes of a tail that began at `from`. */
static inline size_t tui_split_moved(struct tui_escape *escape, size_t n, size_t from)
{
    for (size_t i = 0; i < n; i++)
        escape[i].at = (uint16_t)(escape[i].at + from);
    return n;
}

#endif
