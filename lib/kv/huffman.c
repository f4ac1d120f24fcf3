/* SPDX-License-Identifier: Apache-2.0 */
/* huffman.c: a canonical Huffman coder for planes of bytes whose values are skewed and
 * whose order says nothing.
 *
 * Form: 128 bytes of code lengths (a nibble each), three u32 of stream sizes, streams.
 * Stream s holds a quarter of the bytes; bits are filled from the lowest, codes stored
 * with their first bit lowest. A table of 2^11 entries gives up to two symbols a look-up. */
#include "huffman.h"
#include <string.h>

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
    if (n == 1) {
        for (int i = 0; i < 256; i++)
            len[i] = count[i] != 0;
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
}

/* Canonical codes, first bit lowest. False where the lengths make no code. */
static bool codes(const uint8_t len[256], uint16_t code[256])
{
    uint32_t next[TUI_HUFF_BITS + 2] = {0}, n[TUI_HUFF_BITS + 1] = {0}, kraft = 0, used = 0;
    for (int i = 0; i < 256; i++) {
        if (len[i] > TUI_HUFF_BITS)
            return false;
        if (len[i]) {
            n[len[i]]++;
            kraft += (uint32_t)SIZE >> len[i];
            used++;
        }
    }
    if (used == 0 || kraft > SIZE)
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

static size_t put_stream(const uint8_t *x, size_t n, const uint32_t word[256], uint8_t *out)
{
    uint64_t bits = 0;
    unsigned have = 0;
    size_t at = 0, i = 0;
    for (; i + 4 <= n; i += 4) { /* four codes have at most 44 bits; at most 7 wait */
        for (size_t k = 0; k < 4; k++) {
            uint32_t w = word[x[i + k]];
            bits |= (uint64_t)(w >> 8) << have;
            have += w & 255;
        }
        tu_put64(out + at, bits);
        at += have / 8;
        bits = have >= 64 ? 0 : bits >> (have & ~7u);
        have &= 7;
    }
    for (; i < n; i++) {
        bits |= (uint64_t)(word[x[i]] >> 8) << have;
        have += word[x[i]] & 255;
    }
    tu_put64(out + at, bits);
    return at + (have + 7) / 8;
}

static size_t quarter(size_t n, int s)
{
    size_t q = (n + 3) / 4, begin = (size_t)s * q;
    return begin >= n ? 0 : n - begin < q ? n - begin : q;
}

size_t tui_huff_encode(const uint8_t *x, size_t n, uint8_t *out)
{
    uint32_t part[4][256] = {{0}}, count[256], word[256];
    uint8_t len[256];
    uint16_t code[256];
    uint64_t bits = 0;
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (size_t k = 0; k < 4; k++)
            part[k][x[i + k]]++;
    for (; i < n; i++)
        part[0][x[i]]++;
    for (int v = 0; v < 256; v++)
        count[v] = part[0][v] + part[1][v] + part[2][v] + part[3][v];
    if (n == 0)
        return 0;
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
        size_t size = put_stream(x, quarter(n, s), word, out + at);
        x += quarter(n, s);
        if (s < 3)
            tu_put32(out + 128 + 4 * s, (uint32_t)size);
        at += size;
    }
    return at;
}

/* An entry: symbols in the lower 16 bits, how many, bits that they take. */
static void table(const uint8_t len[256], const uint16_t code[256], uint32_t *entry)
{
    uint16_t one[SIZE]; /* symbol | length << 8; 0: none */
    memset(one, 0, sizeof one);
    for (int v = 0; v < 256; v++)
        if (len[v])
            for (uint32_t at = code[v]; at < SIZE; at += 1u << len[v])
                one[at] = (uint16_t)(v | len[v] << 8);
    for (uint32_t i = 0; i < SIZE; i++) {
        unsigned l = one[i] >> 8, more = one[i >> l] >> 8;
        bool two = l && more && l + more <= TUI_HUFF_BITS;
        entry[i] = (one[i] & 255u) | (two ? (one[i >> l] & 255u) << 8 : 0) |
                   (l ? two ? 2u : 1u : 0u) << 16 | (l + (two ? more : 0)) << 24;
    }
}

struct stream {
    const uint8_t *p, *end;
    uint64_t bits;
    unsigned have;
    uint8_t *to, *stop;
};

/* Bits from memory; behind the end there are zeros, and `over` counts them. */
static inline void refill(struct stream *s)
{
    if (s->end - s->p >= 8) {
        s->bits |= tu_le64(s->p) << s->have;
        s->p += (63 - s->have) / 8;
        s->have |= 56;
        return;
    }
    while (s->have <= 56) {
        s->bits |= (s->p < s->end ? (uint64_t)*s->p : 0) << s->have;
        s->p++;
        s->have += 8;
    }
}

static inline bool step(struct stream *s, const uint32_t *entry)
{
    uint32_t e = entry[s->bits & (SIZE - 1)];
    unsigned n = e >> 16 & 255, l = e >> 24;
    tu_put16(s->to, (uint16_t)e);
    s->to += n;
    s->bits >>= l;
    s->have -= l;
    return n != 0;
}

static bool finish(struct stream *s, const uint32_t *entry)
{
    while (s->to < s->stop) {
        uint32_t e = entry[s->bits & (SIZE - 1)];
        unsigned n = e >> 16 & 255, l = e >> 24;
        if (!n)
            return false;
        if (n == 2 && s->stop - s->to == 1) { /* the second one is padding */
            *s->to++ = (uint8_t)e;
            return true;
        }
        *s->to++ = (uint8_t)e;
        if (n == 2)
            *s->to++ = (uint8_t)(e >> 8);
        s->bits >>= l;
        s->have = s->have > l ? s->have - l : 0;
        refill(s);
    }
    return true;
}

bool tui_huff_decode(const uint8_t *in, size_t size, uint8_t *x, size_t n)
{
    uint8_t len[256];
    uint16_t code[256];
    uint32_t entry[SIZE];
    struct stream s[TUI_HUFF_STREAMS];
    if (size < HEAD || n == 0)
        return n == 0;
    for (int v = 0; v < 256; v++)
        len[v] = in[v / 2] >> v % 2 * 4 & 15;
    if (!codes(len, code))
        return false;
    table(len, code, entry);
    const uint8_t *p = in + HEAD, *end = in + size;
    for (int k = 0; k < TUI_HUFF_STREAMS; k++) {
        size_t bytes = k < 3 ? tu_le32(in + 128 + 4 * k) : (size_t)(end - p);
        if (bytes > (size_t)(end - p))
            return false;
        s[k] = (struct stream){p, p + bytes, 0, 0, x, x + quarter(n, k)};
        p += bytes;
        x += quarter(n, k);
        refill(&s[k]);
    }
    bool good = true;
    /* Five look-ups use at most 55 bits and write at most ten bytes and one more. */
    while (good && s[0].stop - s[0].to > 12 && s[1].stop - s[1].to > 12 &&
           s[2].stop - s[2].to > 12 && s[3].stop - s[3].to > 12) {
        for (int r = 0; r < 5; r++)
            for (int k = 0; k < TUI_HUFF_STREAMS; k++)
                good &= step(&s[k], entry);
        for (int k = 0; k < TUI_HUFF_STREAMS; k++)
            refill(&s[k]);
    }
    for (int k = 0; good && k < TUI_HUFF_STREAMS; k++)
        good = finish(&s[k], entry);
    return good;
}
