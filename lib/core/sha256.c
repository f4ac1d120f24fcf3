/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c: nettle's SHA-256 behind our memory and names, and many of them at once. */
#include <nettle/sha2.h>
#include <stdbool.h>
#include <string.h>
#include "sha256_x86.h"
#include "tensorutils/core/mem.h"
#include "tensorutils/core/sha256.h"

_Static_assert(TU_SHA256_SIZE == SHA256_DIGEST_SIZE, "FIPS 180-4");

struct tu_sha256 {
    struct sha256_ctx ctx;
};

struct tu_sha256 *tu_sha256_new(struct tu_err *err)
{
    struct tu_sha256 *s = tu_alloc(1, sizeof *s, err);
    if (s)
        sha256_init(&s->ctx);
    return s;
}

void tu_sha256_free(struct tu_sha256 *s)
{
    tu_free(s);
}

void tu_sha256_add(struct tu_sha256 *s, const void *p, size_t n)
{
    sha256_update(&s->ctx, n, p);
}

#if TUI_SHA256_X86
/* Streams from which sixteen lanes, some of them idle, are quicker than pairs. */
#define WIDE_LEAST 11

/* The next two streams, `blocks` of each. */
static size_t step_pair(struct tu_sha256 *const *s, const unsigned char *const *p,
                        size_t streams, size_t blocks)
{
    if (streams < 2)
        return 0;
    tui_sha256_pair(s[0]->ctx.state, p[0], s[1]->ctx.state, p[1], blocks);
    return 2;
}

/* The next sixteen; lanes without a stream repeat the first on a copy of its state. */
static size_t step_wide(struct tu_sha256 *const *s, const unsigned char *const *p,
                        size_t streams, size_t blocks)
{
    uint32_t idle[8], *state[TUI_SHA256_LANES];
    const unsigned char *from[TUI_SHA256_LANES];
    if (streams < WIDE_LEAST)
        return 0;
    memcpy(idle, s[0]->ctx.state, sizeof idle);
    for (size_t i = 0; i < TUI_SHA256_LANES; i++) {
        state[i] = i < streams ? s[i]->ctx.state : idle;
        from[i] = p[i < streams ? i : 0];
    }
    tui_sha256_wide(state, from, blocks);
    return streams < TUI_SHA256_LANES ? streams : TUI_SHA256_LANES;
}

/* By the CPU's means, widest first: how many of the streams a step took, 0 where it is for
 * more of them. */
static const struct {
    uint32_t needs;
    size_t (*step)(struct tu_sha256 *const *s, const unsigned char *const *p, size_t streams,
                   size_t blocks);
} kernel[] = {
    {TUI_SHA256_WIDE_NEEDS, step_wide},
    {TUI_SHA256_PAIR_NEEDS, step_pair},
};

/* Whole blocks of the first streams, all of them between blocks: how many streams. */
static size_t step(struct tu_sha256 *const *s, const unsigned char *const *p, size_t streams,
                   size_t blocks)
{
    size_t taken = 0;
    for (size_t k = 0; k < sizeof kernel / sizeof *kernel && !taken; k++)
        if ((tu_cpu_bits() & kernel[k].needs) == kernel[k].needs)
            taken = kernel[k].step(s, p, streams, blocks);
    for (size_t i = 0; i < taken; i++)
        s[i]->ctx.count += blocks;
    return taken;
}
#else
static size_t step(struct tu_sha256 *const *s, const unsigned char *const *p, size_t streams,
                   size_t blocks)
{
    (void)s, (void)p, (void)streams, (void)blocks;
    return 0;
}
#endif

void tu_sha256_add_each(struct tu_sha256 *const *s, const void *const *p, size_t streams,
                        size_t n)
{
    const unsigned char *const *from = (const unsigned char *const *)p;
    size_t done = 0, blocks = n / SHA256_BLOCK_SIZE;
    bool between = true;
    for (size_t i = 0; i < streams; i++)
        between = between && !s[i]->ctx.index;
    for (size_t taken = between; taken && done < streams; done += taken)
        taken = step(s + done, from + done, streams - done, blocks);
    for (size_t i = 0; i < streams; i++) {
        size_t at = i < done ? blocks * SHA256_BLOCK_SIZE : 0;
        sha256_update(&s[i]->ctx, n - at, from[i] + at);
    }
}

void tu_sha256_end(struct tu_sha256 *s, unsigned char out[TU_SHA256_SIZE])
{
    sha256_digest(&s->ctx, TU_SHA256_SIZE, out);
}

void tu_sha256_hex(const unsigned char digest[TU_SHA256_SIZE], char out[TU_SHA256_HEX])
{
    static const char hex[] = "0123456789abcdef";
    for (unsigned i = 0; i < TU_SHA256_SIZE; i++) {
        out[2 * i] = hex[digest[i] >> 4];
        out[2 * i + 1] = hex[digest[i] & 15];
    }
    out[2 * TU_SHA256_SIZE] = '\0';
}
