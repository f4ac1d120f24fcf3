/* SPDX-License-Identifier: Apache-2.0 */
/* huffman.c: a canonical Huffman coder for planes of bytes whose values are skewed and
 * whose order says nothing.
 *
 * Form: 128 bytes of code lengths (a nibble each), three u32 of stream sizes, streams.
 * Stream s holds a quarter of the bytes; bits are filled from the lowest, codes stored
 * with their first bit lowest. A table of 2^11 entries gives up to six symbols a look-up. */
#include "huffman.h"
#include <string.h>
#include "split.h"

enum { HEAD = 128 + 12, SIZE = 1 << TUI_HUFF_BITS };

size_t tui_huff_bound(size_t n)
{
    return HEAD + n + n / 2 + 64; /* 11 bits a byte at most */
}

/* Code lengths by merging the two rarest, then shortened to the limit: lengths over it are
 * cut, and what Kraft's sum then lacks is taken from the longest codes that can give. */
static void lengths(const uint32_t count[256], uint8_t len[256])
{
    struct node {
        uint64_t weight;
        int16_t parent;
    } node[512];
    int16_t alive[256];
    int n = 0, nodes = 0;
    int16_t leaf[256];
    memset(len, 0, 256);
    for (int i = 0; i < 256; i++) {
        leaf[i] = -1;
        if (count[i]) {
            leaf[i] = (int16_t)nodes;
            node[nodes] = (struct node){count[i], -1};
            alive[n++] = (int16_t)nodes++;
        }
    }
    if (n == 1) { /* and one that does not occur, so that the code is complete */
        for (int i = 0; i < 256; i++)
            len[i] = count[i] || count[i ^ 1];
        return;
    }
    while (n > 1) {
        for (int k = 0; k < 2; k++) { /* the two rarest to the end */
            int least = 0;
            for (int i = 1; i < n - k; i++)
                if (node[alive[i]].weight < node[alive[least]].weight)
                    least = i;
            int16_t t = alive[least];
            alive[least] = alive[n - 1 - k];
            alive[n - 1 - k] = t;
        }
        int16_t a = alive[n - 1], b = alive[n - 2];
        node[nodes] = (struct node){node[a].weight + node[b].weight, -1};
        node[a].parent = node[b].parent = (int16_t)nodes;
        alive[n - 2] = (int16_t)nodes++;
        n--;
    }
    uint32_t kraft = 0;
    for (int i = 0; i < 256; i++) {
        int depth = 0;
        for (int16_t at = leaf[i]; at >= 0 && node[at].parent >= 0; at = node[at].parent)
            depth++;
        if (leaf[i] < 0)
            continue;
        len[i] = (uint8_t)(depth > TUI_HUFF_BITS ? TUI_HUFF_BITS : depth);
        kraft += (uint32_t)SIZE >> len[i];
    }
    while (kraft > SIZE) { /* lengthen the rarest of the codes that are not longest */
        int worst = -1;
        for (int i = 0; i < 256; i++)
            if (len[i] && len[i] < TUI_HUFF_BITS &&
                (worst < 0 || len[i] > len[worst] ||
                 (len[i] == len[worst] && count[i] < count[worst])))
                worst = i;
        kraft -= (uint32_t)SIZE >> (len[worst] + 1);
        len[worst]++;
    }
    while (kraft < SIZE) { /* that was too much: shorten the longest that may be */
        int best = -1;
        for (int i = 0; i < 256; i++)
            if (len[i] && (uint32_t)SIZE >> len[i] <= SIZE - kraft &&
                (best < 0 || len[i] > len[best]))
                best = i;
        kraft += (uint32_t)SIZE >> len[best];
        len[best]--;
    }
}

/* Canonical codes, first bit lowest. False where the lengths make no code. */
static bool codes(const uint8_t len[256], uint16_t code[256])
{
    uint32_t next[TUI_HUFF_BITS + 2] = {0}, n[TUI_HUFF_BITS + 1] = {0}, kraft = 0;
    for (int i = 0; i < 256; i++) {
        if (len[i] > TUI_HUFF_BITS)
            return false;
        if (len[i]) {
            n[len[i]]++;
            kraft += (uint32_t)SIZE >> len[i];
        }
    }
    if (kraft != SIZE) /* complete: any bits are codes */
        return false;
    for (int l = 1; l <= TUI_HUFF_BITS; l++)
        next[l + 1] = (next[l] + n[l]) << 1;
    for (int i = 0; i < 256; i++) {
        uint32_t c = len[i] ? next[len[i]]++ : 0, turned = 0;
        for (int b = 0; b < len[i]; b++)
            turned |= (c >> b & 1) << (len[i] - 1 - b);
        code[i] = (uint16_t)turned;
    }
    return true;
}

static size_t quarter(size_t n, int s)
{
    size_t q = (n + 3) / 4, begin = (size_t)s * q;
    return begin >= n ? 0 : n - begin < q ? n - begin : q;
}

static void histogram(const uint8_t *x, size_t n, uint32_t count[256])
{
    uint32_t part[8][256] = {{0}}; /* so that none waits for the one before */
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
#pragma GCC unroll 8
        for (unsigned k = 0; k < 8; k++)
            part[k][x[i + k]]++;
    }
    for (; i < n; i++)
        part[0][x[i]]++;
    for (int v = 0; v < 256; v++) {
        count[v] = 0;
        for (int k = 0; k < 8; k++)
            count[v] += part[k][v];
    }
}

size_t tui_huff_encode(const uint8_t *x, size_t n, uint8_t *out)
{
    tui_pack_fn *pack = (tui_pack_fn *)tu_kernel_pick(tui_pack_kernels, tu_cpu_bits())->fn;
    uint32_t count[256], word[256];
    uint8_t len[256];
    uint16_t code[256];
    uint64_t bits = 0;
    if (n == 0)
        return 0;
    histogram(x, n, count);
    lengths(count, len);
    for (int v = 0; v < 256; v++)
        bits += (uint64_t)count[v] * len[v];
    if (!codes(len, code) || HEAD + bits / 8 + TUI_HUFF_STREAMS >= n)
        return 0;
    for (int v = 0; v < 256; v++)
        word[v] = (uint32_t)code[v] << 8 | len[v];
    for (int v = 0; v < 128; v++)
        out[v] = (uint8_t)(len[2 * v] | len[2 * v + 1] << 4);
    size_t at = HEAD;
    for (int s = 0; s < TUI_HUFF_STREAMS; s++) {
        size_t size = pack(x, quarter(n, s), word, out + at);
        x += quarter(n, s);
        if (s < 3)
            tu_put32(out + 128 + 4 * s, (uint32_t)size);
        at += size;
    }
    return at;
}

/* entry[i] is for the 11 bits i. The symbols after the first are those of a table for the
 * bits that are left: that for w bits stands at all[2^w], so what follows i there after a
 * code of l bits is at (2^w + i) >> l. */
static void table(const uint8_t len[256], const uint16_t code[256], uint64_t all[2 * SIZE])
{
    uint16_t one[SIZE]; /* symbol | length << 8 */
    for (int v = 0; v < 256; v++)
        if (len[v])
            for (uint32_t at = code[v]; at < SIZE; at += 1u << len[v])
                one[at] = (uint16_t)(v | len[v] << 8);
    all[0] = all[1] = 0;
    for (uint32_t w = 1; w <= TUI_HUFF_BITS; w++)
        for (uint32_t i = 0; i < 1u << w; i++) {
            unsigned l = one[i] >> 8;
            uint64_t more = all[(1u << w | i) >> l], fits = -(uint64_t)(l <= w);
            more &= -(uint64_t)((more & 0xff00) != TUI_UNPACK_MOST << 8);
            all[1u << w | i] = fits & ((more >> 16 << 24) + (more & 0xffff) +
                                       ((one[i] & 255u) << 16) + 0x100 + l);
        }
}

bool tui_huff_decode(const uint8_t *in, size_t size, uint8_t *x, size_t n)
{
    tui_unpack_fn *unpack = (tui_unpack_fn *)tu_kernel_pick(tui_unpack_kernels,
                                                            tu_cpu_bits())->fn;
    uint8_t len[256];
    uint16_t code[256];
    uint64_t all[2 * SIZE];
    struct tui_bits s[TUI_HUFF_STREAMS];
    if (size < HEAD || n == 0)
        return n == 0;
    for (int v = 0; v < 256; v++)
        len[v] = in[v / 2] >> v % 2 * 4 & 15;
    if (!codes(len, code))
        return false;
    table(len, code, all);
    const uint8_t *p = in + HEAD, *end = in + size;
    for (int k = 0; k < TUI_HUFF_STREAMS; k++) {
        size_t bytes = k < 3 ? tu_le32(in + 128 + 4 * k) : (size_t)(end - p);
        if (bytes > (size_t)(end - p))
            return false;
        s[k] = (struct tui_bits){p, p + bytes, x, x + quarter(n, k)};
        p += bytes;
        x += quarter(n, k);
    }
    unpack(s, all + SIZE);
    return true;
}
