/* SPDX-License-Identifier: Apache-2.0 */
/* bits.c: the packing of codes of a few bits: eight at a time in a word, and the choice
 * of kernels for nibbles and bytes. */
#include "bits.h"
#include <string.h>
#include "pick.h"

/* Eight fields of `bits` bits, one in a byte, pushed together in pairs, and pulled apart.
 */
static inline uint64_t join8(uint64_t v, unsigned bits)
{
    v = (v & UINT64_C(0x00ff00ff00ff00ff)) |
        (v & UINT64_C(0xff00ff00ff00ff00)) >> (8 - bits);
    v = (v & UINT64_C(0x0000ffff0000ffff)) |
        (v & UINT64_C(0xffff0000ffff0000)) >> (16 - 2 * bits);
    return (v & UINT64_C(0xffffffff)) | v >> 32 << 4 * bits;
}

static inline uint64_t split8(uint64_t v, unsigned bits)
{
    const uint64_t one = (UINT64_C(1) << bits) - 1, two = (UINT64_C(1) << 2 * bits) - 1,
                   four = (UINT64_C(1) << 4 * bits) - 1;
    v = (v & four) | (v >> 4 * bits) << 32;
    v = (v & (two * UINT64_C(0x0000000100000001))) |
        (v >> 2 * bits & (two * UINT64_C(0x0000000100000001))) << 16;
    return (v & (one * UINT64_C(0x0001000100010001))) |
           (v >> bits & (one * UINT64_C(0x0001000100010001))) << 8;
}

static inline uint64_t load_bytes(const unsigned char *p, unsigned n)
{
    uint64_t v = 0;
    memcpy(&v, p, n);
    return tu_le64((const unsigned char *)&v);
}

static inline void store_bytes(unsigned char *p, uint64_t v, unsigned n)
{
    unsigned char b[8];
    tu_put64(b, v);
    memcpy(p, b, n);
}

void tui_bits_join_plain(const uint8_t *code, size_t words, unsigned bits,
                         unsigned char *out)
{
    for (size_t k = 0; k < words; k++)
        tu_put64(out + k * bits, join8(tu_le64(code + 8 * k), bits));
}

void tui_bits_split_plain(const unsigned char *in, size_t words, unsigned bits,
                          uint8_t *code)
{
    for (size_t k = 0; k < words; k++)
        tu_put64(code + 8 * k, split8(tu_le64(in + k * bits), bits));
}

TUI_TABLE(tui_bits_join);
TUI_TABLE(tui_bits_split);

/* Words of eight codes that can be read and written as 64 bits without leaving the room of
 * n codes. */
static size_t whole_words(size_t n, unsigned bits)
{
    return n * bits < 64 ? 0 : (n * bits - 64) / (8 * bits) + 1;
}

void tui_bits_pack(uint32_t cpu, const uint8_t *code, size_t n, unsigned bits,
                   unsigned char *out)
{
    if (bits == 8) {
        memcpy(out, code, n);
        return;
    }
    if (bits == 4) {
        tui_nibbles_pack(cpu, code, n, false, out);
        return;
    }
    const size_t words = whole_words(n, bits); /* what one writes too much, the next
                                                  overwrites */
    TUI_PICK(tui_bits_join, cpu)(code, words, bits, out);
    size_t i = 8 * words;
    for (out += words * bits; i + 8 <= n; i += 8, out += bits)
        store_bytes(out, join8(tu_le64(code + i), bits), bits);
    if (i < n) {
        const unsigned rest = (unsigned)(n - i);
        store_bytes(out, join8(load_bytes(code + i, rest), bits), (rest * bits + 7) / 8);
    }
}

void tui_bits_unpack(uint32_t cpu, const unsigned char *in, size_t n, unsigned bits,
                     uint8_t *code)
{
    if (bits == 8) {
        memcpy(code, in, n);
        return;
    }
    if (bits == 4) {
        tui_nibbles_unpack(cpu, in, n, false, code);
        return;
    }
    const size_t words = whole_words(n, bits);
    TUI_PICK(tui_bits_split, cpu)(in, words, bits, code);
    size_t i = 8 * words;
    for (in += words * bits; i + 8 <= n; i += 8, in += bits)
        tu_put64(code + i, split8(load_bytes(in, bits), bits));
    if (i < n) {
        const unsigned rest = (unsigned)(n - i);
        store_bytes(code + i, split8(load_bytes(in, (rest * bits + 7) / 8), bits), rest);
    }
}

void tui_nibbles_pack_plain(const uint8_t *code, size_t n, bool high, unsigned char *out)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t t = tu_le64(code + i);
        if (high) /* the two of a pair change places */
            t = (t & UINT64_C(0x00ff00ff00ff00ff)) << 8 |
                (t >> 8 & UINT64_C(0x00ff00ff00ff00ff));
        tu_put32(out + i / 2, (uint32_t)join8(t, 4));
    }
    for (; i < n; i += 2) {
        unsigned a = code[i], b = i + 1 < n ? code[i + 1] : 0;
        out[i / 2] = (unsigned char)(high ? a << 4 | b : a | b << 4);
    }
}

void tui_nibbles_unpack_plain(const unsigned char *in, size_t n, bool high, uint8_t *code)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t t = split8(tu_le32(in + i / 2), 4);
        if (high)
            t = (t & UINT64_C(0x00ff00ff00ff00ff)) << 8 |
                (t >> 8 & UINT64_C(0x00ff00ff00ff00ff));
        tu_put64(code + i, t);
    }
    for (; i < n; i++) {
        bool up = (i % 2 == 1) != high;
        code[i] = up ? in[i / 2] >> 4 : in[i / 2] & 15;
    }
}

void tui_bytes_flip_plain(unsigned char *to, const unsigned char *from, size_t n,
                          unsigned char by)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[i] ^ by;
}

TUI_TABLE(tui_bytes_flip);
TUI_TABLE(tui_nibbles_pack);
TUI_TABLE(tui_nibbles_unpack);

void tui_nibbles_pack(uint32_t cpu, const uint8_t *code, size_t n, bool high,
                      unsigned char *out)
{
    TUI_PICK(tui_nibbles_pack, cpu)(code, n, high, out);
}

void tui_nibbles_unpack(uint32_t cpu, const unsigned char *in, size_t n, bool high,
                        uint8_t *code)
{
    TUI_PICK(tui_nibbles_unpack, cpu)(in, n, high, code);
}

void tui_bytes_flip(uint32_t cpu, unsigned char *to, const unsigned char *from, size_t n,
                    unsigned char by)
{
    TUI_PICK(tui_bytes_flip, cpu)(to, from, n, by);
}
