/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c: nettle's SHA-256 behind our memory and names, and two of them at once. */
#include <nettle/sha2.h>
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

/* Whole blocks of both streams together, when both are between blocks; returns how many
 * bytes that were. */
static size_t add_pair(struct sha256_ctx *a, const unsigned char *pa,
                       struct sha256_ctx *b, const unsigned char *pb, size_t n)
{
#if TUI_SHA256_X86
    const uint32_t needs = TUI_SHA256_PAIR_NEEDS;
    if (a->index || b->index || (tu_cpu_bits() & needs) != needs)
        return 0;
    size_t blocks = n / SHA256_BLOCK_SIZE;
    tui_sha256_pair(a->state, pa, b->state, pb, blocks);
    a->count += blocks;
    b->count += blocks;
    return blocks * SHA256_BLOCK_SIZE;
#else
    (void)a, (void)pa, (void)b, (void)pb, (void)n;
    return 0;
#endif
}

void tu_sha256_add_pair(struct tu_sha256 *a, const void *pa, struct tu_sha256 *b,
                        const void *pb, size_t n)
{
    size_t done = add_pair(&a->ctx, pa, &b->ctx, pb, n);
    sha256_update(&a->ctx, n - done, (const unsigned char *)pa + done);
    sha256_update(&b->ctx, n - done, (const unsigned char *)pb + done);
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
