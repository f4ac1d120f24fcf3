/* SPDX-License-Identifier: Apache-2.0 */
/* sum.c: a payload's checksum: over a range of a file at the speed of memory, and against
 * the trailer that stands behind it. */
#include <inttypes.h>
#include "record.h"

/* A round is at most this many blocks: bounds the checksums that are kept. */
#define ROUND 512

struct sum {
    struct tu_in *in;
    uint64_t off, n;
    unsigned char *buf;
    unsigned char *scratch;
    uint32_t crc[ROUND];
};

/* One block: small enough to be still in the cache of the core that read it. */
static int sum_block(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    struct sum *s = ctx;
    const uint64_t at = task * TUI_BLOCK;
    const size_t n = (size_t)tu_min(TUI_BLOCK, s->n - at);
    unsigned char *p = s->buf ? s->buf + at : s->scratch + worker * TUI_BLOCK;
    int rc = tu_in_pread(s->in, s->off + at, p, n, err);
    s->crc[task] = rc ? 0 : tu_crc32(0, p, n);
    return rc;
}

int tui_sum(struct tu_in *in, uint64_t off, uint64_t n, void *buf, void *scratch,
            struct tu_pool *pool, uint32_t *crc, struct tu_err *err)
{
    struct sum s = {.in = in, .off = off, .buf = buf, .scratch = scratch};
    while (n) {
        s.n = tu_min(n, ROUND * TUI_BLOCK);
        const uint64_t blocks = tu_ceil_div(s.n, TUI_BLOCK);
        int rc = tu_pool_run(pool, blocks, sum_block, &s, err);
        if (rc)
            return rc;
        for (uint64_t i = 0; i < blocks; i++)
            *crc =
                tu_crc32_combine(*crc, s.crc[i], tu_min(TUI_BLOCK, s.n - i * TUI_BLOCK));
        s.off += s.n;
        n -= s.n;
        if (s.buf)
            s.buf += s.n;
    }
    return 0;
}

int tui_trailer_check(const struct tu_record *rec, const unsigned char *p,
                      const uint32_t *computed, struct tu_err *err)
{
    const unsigned pad = tui_padding(rec->payload_len);
    const uint64_t at = rec->header_len + rec->payload_len;
    const uint32_t stored = tu_le32(p + pad), copy = tu_le32(p + pad + 4);
    if (copy != rec->header_crc)
        return tu_fail_at(
            err, TU_EFRAME, at + pad + 4,
            "bytes lost or inserted: no trailer where the payload should end "
            "(%08" PRIx32 " instead of %08" PRIx32 ")",
            copy, rec->header_crc);
    for (unsigned i = 0; i < pad; i++)
        if (p[i])
            return tu_fail_at(err, TU_EPAD, at + i, "padding byte %u is not zero", i);
    if (computed && stored != *computed)
        return tu_fail_at(err, TU_EPCRC, rec->header_len,
                          "payload checksum mismatch (stored %08" PRIx32
                          ", computed %08" PRIx32 ")",
                          stored, *computed);
    return 0;
}
