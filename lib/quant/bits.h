/* SPDX-License-Identifier: Apache-2.0 */
/* bits.h: codes of a few bits, one in a byte, to bytes that they fill, and back. */
#ifndef TENSORUTILS_QUANT_BITS_H
#define TENSORUTILS_QUANT_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* n codes of `bits` 1 … 8, each below 2^bits, to ceil(n·bits/8) bytes, the earlier in the
 * lower bits; unused bits are 0. */
void tui_bits_pack(uint32_t cpu, const uint8_t *code, size_t n, unsigned bits,
                   unsigned char *out);
void tui_bits_unpack(uint32_t cpu, const unsigned char *in, size_t n, unsigned bits,
                     uint8_t *code);

/* Four bits, the first of a pair low or high. The last nibble of an odd run is 0
 * (packing) or left out. */
void tui_nibbles_pack(uint32_t cpu, const uint8_t *code, size_t n, bool high,
                      unsigned char *out);
void tui_nibbles_unpack(uint32_t cpu, const unsigned char *in, size_t n, bool high,
                        uint8_t *code);

/* Bits of n bytes turned over: codes that count from the lowest and two's complement are
 * each other with the sign turned. `to` and `from` may be the same. */
void tui_bytes_flip(uint32_t cpu, unsigned char *to, const unsigned char *from, size_t n,
                    unsigned char by);

/* Kernels. */
#define TUI_BITS_KERNELS(isa)                                                            \
    void tui_bits_join_##isa(const uint8_t *code, size_t words, unsigned bits,           \
                             unsigned char *out);                                        \
    void tui_bits_split_##isa(const unsigned char *in, size_t words, unsigned bits,      \
                              uint8_t *code);                                            \
    void tui_nibbles_pack_##isa(const uint8_t *code, size_t n, bool high,                \
                                unsigned char *out);                                     \
    void tui_nibbles_unpack_##isa(const unsigned char *in, size_t n, bool high,          \
                                  uint8_t *code);                                        \
    void tui_bytes_flip_##isa(unsigned char *to, const unsigned char *from, size_t n,    \
                              unsigned char by);
TUI_BITS_KERNELS(plain)
#if defined __x86_64__ && !defined TU_NO_X86
TUI_BITS_KERNELS(avx2)
TUI_BITS_KERNELS(avx512)
#endif

#endif
