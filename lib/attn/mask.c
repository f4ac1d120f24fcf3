/* SPDX-License-Identifier: Apache-2.0 */
/* mask.c: intervals of visible keys, tiles at their edges, logits beyond q·k, dropout. */
#include <math.h>
#include "attn/mask.h"

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

struct tui_span tui_span(const struct tu_attn *a, const struct tu_attn_seq *s,
                         int64_t pos)
{
    const struct tu_attn_opts *o = &a->opt;
    int64_t lo = 0, hi = INT64_MAX;
    if (o->causal || o->chunk)
        hi = pos + 1;
    if (o->right >= 0)
        hi = lesser(hi, pos + o->right + 1);
    if (o->left >= 0)
        lo = pos - o->left;
    if (o->chunk) {
        int64_t c = (int64_t)o->chunk, first = pos - ((pos % c) + c) % c;
        lo = greater(lo, first);
        hi = lesser(hi, first + c);
    }
    int64_t sinks = lesser((int64_t)o->sink_tokens, hi);
    return (struct tui_span){greater(greater(sinks, (int64_t)s->prefix), 0),
                             greater(lo, 0), greater(hi, 0)};
}

/* Block, dense and document masks of one element, by global indices. */
static bool extra(const struct tu_attn *a, uint64_t b, uint64_t h, int64_t i, int64_t j)
{
    if (a->blocks) {
        int64_t at = (int64_t)b * a->blocks_at[0] + (int64_t)h * a->blocks_at[1] +
                     i / (int64_t)a->opt.mask_q * a->blocks_at[2] +
                     j / (int64_t)a->opt.mask_k * a->blocks_at[3];
        if (!a->blocks[at])
            return false;
    }
    if (a->mask && !a->mask[(int64_t)b * a->mask_at[0] + (int64_t)h * a->mask_at[1] +
                            i * a->mask_at[2] + j * a->mask_at[3]])
        return false;
    if (a->docs) {
        const int64_t *d = a->docs + b * a->docs_n;
        int64_t p = i + a->seq[b].off;
        return p >= 0 && p < (int64_t)a->docs_n && d[p] == d[j];
    }
    return true;
}

static bool has_extra(const struct tu_attn *a)
{
    return a->blocks || a->mask || a->docs;
}

/* Do all blocks that the tile touches have the same bit? Then the bit; else -1. */
static int block_bit(const struct tu_attn *a, const struct tui_block *t, uint64_t j0,
                     uint64_t nj)
{
    uint64_t i0 = (uint64_t)tui_at(a->q_at, t->i0),
             i1 = (uint64_t)tui_at(a->q_at, t->i0 + t->ni - 1);
    uint64_t k0 = (uint64_t)tui_at(a->k_at, j0),
             k1 = (uint64_t)tui_at(a->k_at, j0 + nj - 1);
    int bit = -1;
    for (uint64_t h = t->h0; h < t->h0 + t->nh; h++)
        for (uint64_t i = i0 / a->opt.mask_q; i <= i1 / a->opt.mask_q; i++)
            for (uint64_t j = k0 / a->opt.mask_k; j <= k1 / a->opt.mask_k; j++) {
                int v = a->blocks[(int64_t)t->b * a->blocks_at[0] +
                                  (int64_t)h * a->blocks_at[1] +
                                  (int64_t)i * a->blocks_at[2] +
                                  (int64_t)j * a->blocks_at[3]] != 0;
                if (bit >= 0 && v != bit)
                    return -1;
                bit = v;
            }
    return bit;
}

enum tui_tile tui_tile(const struct tu_attn *a, const struct tui_block *t, uint64_t j0,
                       uint64_t nj)
{
    const struct tu_attn_seq *s = &a->seq[t->b];
    int64_t p0 = tui_at(a->q_at, t->i0) + s->off,
            p1 = tui_at(a->q_at, t->i0 + t->ni - 1) + s->off;
    int64_t first = tui_at(a->k_at, j0), last = tui_at(a->k_at, j0 + nj - 1);
    struct tui_span x = tui_span(a, s, p0), y = tui_span(a, s, p1);
    if (!(first < y.head || (first < y.hi && last >= x.lo)))
        return TUI_EMPTY;
    bool full = last < x.head || (first >= y.lo && last < x.hi);
    if (a->blocks) {
        int bit = block_bit(a, t, j0, nj);
        if (bit == 0)
            return TUI_EMPTY;
        full = full && bit == 1;
    }
    return full && !a->mask && !a->docs ? TUI_FULL : TUI_EDGE;
}

bool tui_has_logits(const struct tu_attn *a)
{
    /* A negative scale would turn the hidden -inf around: scale first. */
    return a->opt.softcap > 0 || a->bias || a->slopes || !(a->scale > 0);
}

void tui_logits(const struct tu_attn *a, const struct tui_block *t, uint64_t r0,
                uint64_t r1, uint64_t j0, uint64_t nj, float *x, size_t rs, size_t cs,
                float *chain)
{
    const struct tu_attn_seq *s = &a->seq[t->b];
    float scale = (float)tui_scale(a, t->b, t->hkv), cap = (float)a->opt.softcap;
    for (uint64_t r = r0; r < r1; r++) {
        uint64_t h = tui_row_head(t, r), at = (r - r0) * rs;
        int64_t i = tui_at(a->q_at, tui_row_query(t, r)), p = i + s->off;
        float slope = a->slopes ? a->slopes[t->b * a->slopes_batch + h] : 0;
        const float *bias = a->bias ? a->bias + (int64_t)t->b * a->bias_at[0] +
                                          (int64_t)h * a->bias_at[1] + i * a->bias_at[2]
                                    : NULL;
        for (uint64_t c = 0; c < nj; c++) {
            int64_t j = tui_at(a->k_at, j0 + c);
            float v = x[at + c * cs] * scale, slow = 1;
            if (cap > 0) {
                float y = tanhf(v / cap);
                v = cap * y;
                slow = 1 - y * y;
            }
            if (bias)
                v += bias[j * a->bias_at[3]];
            if (a->slopes)
                v -= slope * (float)(p > j ? p - j : j - p);
            x[at + c * cs] = v;
            if (chain)
                chain[at + c * cs] = slow;
        }
    }
}

/* Columns [from, to) of a row, by local index. */
static void fill(float *x, size_t cs, uint64_t from, uint64_t to)
{
    for (uint64_t c = from; c < to; c++)
        x[c * cs] = -INFINITY;
}

static uint64_t local(int64_t bound, uint64_t j0, uint64_t nj)
{
    int64_t c = bound == INT64_MAX ? (int64_t)nj : bound - (int64_t)j0;
    return c < 0 ? 0 : tu_min((uint64_t)c, nj);
}

void tui_hide(const struct tu_attn *a, const struct tui_block *t, uint64_t r0,
              uint64_t r1, uint64_t j0, uint64_t nj, float *x, size_t rs, size_t cs)
{
    const struct tu_attn_seq *s = &a->seq[t->b];
    for (uint64_t r = r0; r < r1; r++) {
        int64_t i = tui_at(a->q_at, tui_row_query(t, r));
        struct tui_span v = tui_span(a, s, i + s->off);
        float *row = x + (r - r0) * rs;
        if (!a->k_at) {
            uint64_t head = local(v.head, j0, nj), lo = local(v.lo, j0, nj),
                     hi = local(v.hi, j0, nj);
            fill(row, cs, head, tu_max(lo, head));
            fill(row, cs, tu_max(hi, head), nj);
        }
        if (!a->k_at && !has_extra(a))
            continue;
        for (uint64_t c = 0; c < nj; c++) {
            int64_t j = tui_at(a->k_at, j0 + c);
            bool span = j < v.head || (j >= v.lo && j < v.hi);
            if (!span || !extra(a, t->b, tui_row_head(t, r), i, j))
                row[c * cs] = -INFINITY;
        }
    }
}

uint64_t tui_visible(const struct tu_attn *a, uint64_t b, uint64_t h, uint64_t i)
{
    const struct tu_attn_seq *s = &a->seq[b];
    int64_t q = tui_at(a->q_at, i), sk = (int64_t)s->sk;
    struct tui_span v = tui_span(a, s, q + s->off);
    if (!has_extra(a) && !a->k_at) {
        int64_t head = lesser(v.head, sk), lo = greater(v.lo, head),
                hi = lesser(v.hi, sk);
        return (uint64_t)(head + greater(hi - lo, 0));
    }
    uint64_t n = 0;
    for (uint64_t c = 0; c < s->sk; c++) {
        int64_t j = tui_at(a->k_at, c);
        n += (j < v.head || (j >= v.lo && j < v.hi)) && extra(a, b, h, q, j);
    }
    return n;
}

double tu_attn_pairs(const struct tu_attn *a)
{
    double pairs = 0;
    bool by_head = a->blocks_at[1] || a->mask_at[1];
    for (uint64_t b = 0; b < a->batch; b++)
        for (uint64_t h = 0; h < (by_head ? a->hq : 1); h++)
            for (uint64_t i = 0; i < a->seq[b].sq; i++)
                pairs += (double)tui_visible(a, b, h, i) * (by_head ? 1 : (double)a->hq);
    return pairs;
}

double tu_attn_flops(const struct tu_attn *a, int pass)
{
    double fwd = 2 * tu_attn_pairs(a) * (double)(a->d + a->dv);
    return (pass & TU_PASS_FWD ? fwd : 0) + (pass & TU_PASS_BWD ? 2.5 * fwd : 0);
}

/* Philox word of (j >> 2, i, b·Hq + h, 0), lane j & 3. */
static void words(const struct tu_attn *a, uint64_t b, uint64_t h, int64_t i, int64_t j,
                  uint32_t out[4])
{
    uint32_t key[2] = {(uint32_t)a->opt.seed, (uint32_t)(a->opt.seed >> 32)};
    uint32_t at[4] = {(uint32_t)(j >> 2), (uint32_t)i,
                      (uint32_t)(b * a->h_all + a->h_first + h), 0};
    tu_rng_block(key, at, out);
}

bool tui_keep(const struct tu_attn *a, uint64_t b, uint64_t h, int64_t i, int64_t j)
{
    uint32_t w[4];
    words(a, b, h, i, j, w);
    return w[j & 3] >= (uint64_t)(a->opt.dropout * 4294967296.0);
}

void tui_keep_row(const struct tu_attn *a, uint64_t b, uint64_t h, uint64_t i,
                  uint64_t j0, uint64_t nj, unsigned char *keep)
{
    int64_t q = tui_at(a->q_at, i), block = -1;
    uint64_t limit = (uint64_t)(a->opt.dropout * 4294967296.0);
    uint32_t w[4];
    for (uint64_t c = 0; c < nj; c++) {
        int64_t j = tui_at(a->k_at, j0 + c);
        if (j >> 2 != block) {
            block = j >> 2;
            words(a, b, h, q, j, w);
        }
        keep[c] = w[j & 3] >= limit;
    }
}
