/* SPDX-License-Identifier: Apache-2.0 */
/* split_plain.c: the reference of the inner loops, and their tables. Source of the fixed
 * rate: SplitZip, arXiv 2605.01708. */
#include <string.h>
#include "split.h"
#include "unpack.h"

size_t tui_split_plain(const uint16_t *x, size_t n, const uint8_t book[16], uint8_t *code,
                       uint8_t *rest, struct tui_escape *escape)
{
    uint8_t at[256];
    size_t escapes = 0;
    memset(at, 16, sizeof at);
    for (unsigned i = 16; i-- > 0;)
        at[book[i]] = (uint8_t)i;
    for (size_t i = 0; i < n; i++) {
        uint8_t exponent = (uint8_t)(x[i] >> 7), c = at[exponent];
        rest[i] = (uint8_t)(x[i] >> 8 & 128) | (x[i] & 127);
        if (c == 16) {
            escape[escapes++] = (struct tui_escape){(uint16_t)i, exponent};
            c = 0;
        }
        if (i % 2)
            code[i / 2] |= (uint8_t)(c << 4);
        else
            code[i / 2] = c;
    }
    return escapes;
}

void tui_join_plain(uint16_t *x, size_t n, const uint8_t book[16], const uint8_t *code,
                    const uint8_t *rest)
{
    for (size_t i = 0; i < n; i++) {
        unsigned e = book[code[i / 2] >> i % 2 * 4 & 15];
        x[i] = (uint16_t)((rest[i] & 128u) << 8 | e << 7 | (rest[i] & 127u));
    }
}

void tui_part_plain(const uint16_t *x, size_t n, const uint8_t *bias, uint8_t *exponent,
                    uint8_t *rest)
{
    for (size_t i = 0; i < n; i++) {
        exponent[i] = (uint8_t)((x[i] >> 7) - bias[i]);
        rest[i] = (uint8_t)((x[i] >> 8 & 128) | (x[i] & 127));
    }
}

void tui_unite_plain(uint16_t *x, size_t n, const uint8_t *bias, const uint8_t *exponent,
                     const uint8_t *rest)
{
    for (size_t i = 0; i < n; i++) {
        unsigned e = (exponent[i] + bias[i]) & 255u;
        x[i] = (uint16_t)((rest[i] & 128u) << 8 | e << 7 | (rest[i] & 127u));
    }
}

size_t tui_pack_plain(const uint8_t *x, size_t n, const uint32_t word[256], uint8_t *out)
{
    uint64_t bits = 0;
    unsigned have = 0;
    size_t at = 0, i = 0;
    for (; i + 4 <= n; i += 4) { /* four codes have at most 44 bits; at most 7 wait */
        uint32_t a = word[x[i]], b = word[x[i + 1]], c = word[x[i + 2]], d = word[x[i + 3]];
        uint64_t ab = a >> 8 | (uint64_t)(b >> 8) << (a & 15);
        uint64_t cd = c >> 8 | (uint64_t)(d >> 8) << (c & 15);
        unsigned first = (a & 15) + (b & 15);
        bits |= (ab | cd << first) << have;
        have += first + (c & 15) + (d & 15);
        tu_put64(out + at, bits);
        at += have / 8;
        bits >>= have & ~7u;
        have &= 7;
    }
    for (; i < n; i++) {
        bits |= (uint64_t)(word[x[i]] >> 8) << have;
        have += word[x[i]] & 15;
    }
    tu_put64(out + at, bits);
    return at + (have + 7) / 8;
}

void tui_unpack_plain(struct tui_bits s[4], const uint64_t *entry)
{
    unpack(s, entry);
}

#if defined __x86_64__ && !defined TU_NO_X86
#define VBMI(name)                                                                       \
    {"avx512vbmi", TU_CPU_GROUP_AVX512 | TU_CPU_AVX512VBMI, (tu_kernel_fn)tui_##name##_vbmi},
#define AVX2(name) {"avx2", TU_CPU_GROUP_AVX2, (tu_kernel_fn)tui_##name##_avx2},
#else
#define VBMI(name)
#define AVX2(name)
#endif
#define TABLE(name, fast)                                                                \
    const struct tu_kernel tui_##name##_kernels[] = {                                    \
        fast{"plain", 0, (tu_kernel_fn)tui_##name##_plain},                              \
        {NULL, 0, NULL},                                                                 \
    };
TABLE(split, VBMI(split) AVX2(split))
TABLE(join, VBMI(join) AVX2(join))
TABLE(part, VBMI(part) AVX2(part))
TABLE(unite, VBMI(unite) AVX2(unite))
TABLE(pack, VBMI(pack))
TABLE(unpack, AVX2(unpack))
