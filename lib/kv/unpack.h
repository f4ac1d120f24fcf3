/* SPDX-License-Identifier: Apache-2.0 */
/* unpack.h: the body of tui_unpack_fn, for files that compile it each for their own
 * instructions. Not for others. */
#ifndef TU_KV_UNPACK_H
#define TU_KV_UNPACK_H

#include <string.h>
#include "split.h"

struct reader {
    const uint8_t *p, *end;
    uint64_t bits;
    unsigned have;
    uint8_t *to, *stop;
};

/* Bits from memory; behind the end there are zeros. */
static inline void refill(struct reader *s)
{
    if (s->end - s->p >= 8) {
        s->bits |= tu_le64(s->p) << s->have;
        s->p += (63 - s->have) / 8;
        s->have |= 56;
        return;
    }
    while (s->have <= 56) {
        s->bits |= (s->p < s->end ? (uint64_t)*s->p++ : 0) << s->have;
        s->have += 8;
    }
}

/* Five look-ups: at most 55 bits and 30 symbols, and up to eight bytes written beyond. */
enum { AT_ONCE = 5, MARGIN = AT_ONCE * TUI_UNPACK_MOST + 8 };

static inline void steps(struct reader *s, const uint64_t *entry)
{
    uint64_t bits = s->bits, sum = 0;
    uint8_t *to = s->to;
#pragma GCC unroll 5
    for (int r = 0; r < AT_ONCE; r++) {
        uint64_t e = entry[bits & ((1u << TUI_UNPACK_BITS) - 1)], symbols;
        symbols = e >> 16;
        memcpy(to, &symbols, 8);
        to += e >> 8 & 255;
        bits >>= e & 63;
        sum += e & 63;
    }
    s->bits = bits;
    s->have -= (unsigned)sum;
    s->to = to;
}

static void finish(struct reader *s, const uint64_t *entry)
{
    while (s->to < s->stop) {
        uint64_t e = entry[s->bits & ((1u << TUI_UNPACK_BITS) - 1)];
        unsigned n = e >> 8 & 255, l = e & 63;
        s->bits >>= l;
        s->have = s->have > l ? s->have - l : 0;
        for (e >>= 16; n && s->to < s->stop; n--, e >>= 8) /* what is over is padding */
            *s->to++ = (uint8_t)e;
        refill(s);
    }
}

static inline bool room(const struct reader *s)
{
    return s->stop - s->to >= MARGIN;
}

static inline void unpack(const struct tui_bits in[4], const uint64_t *entry)
{
    struct reader a = {in[0].p, in[0].end, 0, 0, in[0].to, in[0].stop};
    struct reader b = {in[1].p, in[1].end, 0, 0, in[1].to, in[1].stop};
    struct reader c = {in[2].p, in[2].end, 0, 0, in[2].to, in[2].stop};
    struct reader d = {in[3].p, in[3].end, 0, 0, in[3].to, in[3].stop};
    refill(&a);
    refill(&b);
    refill(&c);
    refill(&d);
    while (room(&a) && room(&b) && room(&c) && room(&d)) {
        steps(&a, entry);
        steps(&b, entry);
        steps(&c, entry);
        steps(&d, entry);
        refill(&a);
        refill(&b);
        refill(&c);
        refill(&d);
    }
    finish(&a, entry);
    finish(&b, entry);
    finish(&c, entry);
    finish(&d, entry);
}

#endif
