/* SPDX-License-Identifier: Apache-2.0 */
/* reserve.c: contiguous reservation: vAttention's sizes, growth, reclamation, and the same
 * attention over a pool of pages and over memory mapped on demand. */
#include <stdlib.h>
#include <tensorutils/kv.h>
#include "../attn/kit.h"
#include "../scratch.h"

/* Sizes of the paper's models at two bytes; groups in MiB at pages of 2 MiB. */
static void sizes(void)
{
    static const struct {
        uint64_t heads, tokens[4];
    } want[] = {{4, {64, 128, 256, 2048}}, {8, {32, 64, 128, 1024}}, {1, {256, 512, 1024, 8192}}};
    static const uint64_t page[] = {64 << 10, 128 << 10, 256 << 10, 2 << 20};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++) {
            struct tu_kv_reserve_how how = {.row = want[i].heads * 256, .page = page[k]};
            eq_u64(tu_kv_reserve_tokens(&how), want[i].tokens[k], "%d heads, page %d",
                   (int)want[i].heads, k);
        }
    struct tu_kv_reserve_how yi = {.row = 1024, .context = 200000, .page = 2 << 20};
    uint64_t slot = 0;
    ok(!tu_kv_reserve_slot(&yi, &slot, NULL), "Yi-6B");
    eq_u64(slot, 205520896, "200,000 tokens reserve");
    yi.context = UINT64_MAX / 2;
    ok(tu_kv_reserve_slot(&yi, &slot, NULL) == TU_ESIZE, "an overflow");
}

static void growth(void)
{
    struct tu_kv_reserve_how how = {.row = 1024, .tensors = 4, .requests = 2, .context = 200,
                                    .page = 65536, .groups = 4};
    struct tu_kv_reserve *r;
    struct tu_kv_reserve_count c;
    uint64_t a, b, again;
    struct tu_kv_reserve_how odd = how;
    odd.page = 65537;
    ok(tu_kv_reserve_new(&r, &odd, NULL) == TU_EUSAGE && !r, "a page that is none");
    odd = how;
    odd.row = 65537;
    ok(tu_kv_reserve_new(&r, &odd, NULL) == TU_EUSAGE && !r, "a token beyond a page");
    odd = how;
    odd.requests = UINT64_MAX / 8;
    ok(tu_kv_reserve_new(&r, &odd, NULL) != 0 && !r, "too many requests");
    ok(!tu_kv_reserve_new(&r, &how, NULL) && !tu_kv_reserve_begin(r, &a, NULL) &&
           !tu_kv_reserve_grow(r, a, 65, NULL), "65 tokens");
    tu_kv_reserve_counts(r, &c);
    ok(c.mapped == 2 && c.maps == 8 && c.free == 2 && c.tokens == 65, "two groups of four");
    ok(tu_kv_reserve_grow(r, a, 201, NULL) == TU_EUSAGE, "beyond the context");
    ok(!tu_kv_reserve_begin(r, &b, NULL) && a != b &&
           tu_kv_reserve_begin(r, &again, NULL) == TU_ENOMEM, "two requests at most");
    ok(!tu_kv_reserve_grow(r, b, 128, NULL) &&
           tu_kv_reserve_grow(r, b, 129, NULL) == TU_ENOMEM, "memory runs out");
    unsigned char *p = tu_kv_reserve_at(r, 3, a, NULL);
    p[65 * 1024 - 1] = 77;
    tu_kv_reserve_end(r, a);
    tu_kv_reserve_counts(r, &c);
    ok(c.mapped == 4 && c.ended == 2 && c.free == 2 && !c.unmaps, "pages stay mapped");
    ok(!tu_kv_reserve_begin(r, &again, NULL) && again == a &&
           !tu_kv_reserve_grow(r, again, 100, NULL) && p[65 * 1024 - 1] == 77,
       "for the next one");
    tu_kv_reserve_counts(r, &c);
    eq_u64(c.maps, 16, "nothing is mapped anew");
    tu_kv_reserve_end(r, a);
    ok(!tu_kv_reserve_grow(r, b, 129, NULL), "or go to one that needs them");
    tu_kv_reserve_counts(r, &c);
    ok(c.mapped == 4 && c.ended == 1 && c.unmaps == 4, "a group is taken back");
    tu_kv_reserve_free(r);
}

/* Pages are there before they are asked for, and go to whoever has none. */
static void ahead(void)
{
    struct tu_kv_reserve_how how = {.row = 1024, .tensors = 4, .requests = 2, .context = 400,
                                    .page = 65536, .groups = 5, .ahead = true};
    struct tu_kv_reserve *r;
    struct tu_kv_reserve_count c;
    uint64_t a, b;
    if (tu_kv_reserve_new(&r, &how, NULL) || tu_kv_reserve_begin(r, &a, NULL) ||
        tu_kv_reserve_begin(r, &b, NULL))
        abort();
    tu_kv_reserve_settle(r);
    tu_kv_reserve_counts(r, &c);
    eq_u64(c.mapped, 0, "nothing for a request that has not begun to grow");
    ok(!tu_kv_reserve_grow(r, a, 1, NULL), "a token");
    tu_kv_reserve_settle(r);
    tu_kv_reserve_counts(r, &c);
    ok(c.mapped == 2 && c.waited == 1, "its group, and one ahead");
    bool zero = true;
    for (uint64_t t = 0; t < 4; t++) {
        const unsigned char *p = tu_kv_reserve_at(r, t, a, NULL);
        for (int i = 0; i < 131072; i++)
            zero = zero && !p[i];
    }
    ok(zero, "memory that is there, of zeros");
    for (uint64_t n = 2; n <= 128; n++) {
        if (tu_kv_reserve_grow(r, a, n, NULL))
            abort();
        tu_kv_reserve_settle(r);
    }
    tu_kv_reserve_counts(r, &c);
    ok(c.mapped == 3 && c.waited == 1, "128 steps wait for none: %" PRIu64, c.waited);
    ok(!tu_kv_reserve_grow(r, b, 192, NULL), "what is ahead of one is another's who needs it");
    tu_kv_reserve_settle(r);
    tu_kv_reserve_counts(r, &c);
    ok(c.mapped == 5 && !c.free && c.unmaps == 4, "and then there is none ahead");
    ok(tu_kv_reserve_grow(r, a, 129, NULL) == TU_ENOMEM &&
           !tu_kv_reserve_grow(r, a, 128, NULL), "memory runs out");
    tu_kv_reserve_end(r, b);
    ok(!tu_kv_reserve_grow(r, a, 320, NULL), "all of it for one, over its own group ahead");
    tu_kv_reserve_counts(r, &c);
    eq_u64(c.tokens, 320, "tokens");
    tu_kv_reserve_free(r);
}

/* Huge pages are asked for; with small ones in their place all is the same. */
static void huge(void)
{
    struct tu_kv_reserve_how how = {.row = 4096, .tensors = 2, .requests = 1, .context = 2048,
                                    .page = 2 << 20, .groups = 4, .huge = true};
    struct tu_kv_reserve *r;
    struct tu_kv_reserve_how odd = how;
    uint64_t a;
    odd.page = 1 << 20;
    ok(tu_kv_reserve_new(&r, &odd, NULL) == TU_EUSAGE, "a page that no huge one fits");
    for (int ahead = 0; ahead < 2; ahead++) {
        how.ahead = ahead;
        if (tu_kv_reserve_new(&r, &how, NULL) || tu_kv_reserve_begin(r, &a, NULL))
            abort();
        ok(!tu_kv_reserve_grow(r, a, 513, NULL), "two pages");
        for (uint64_t t = 0; t < 2; t++) {
            unsigned char *p = tu_kv_reserve_at(r, t, a, NULL);
            ok((uintptr_t)p % (2 << 20) == 0, "where a huge page can begin");
            p[0] = p[513 * 4096 - 1] = (unsigned char)(t + 1);
        }
        const unsigned char *p = tu_kv_reserve_at(r, 0, a, NULL);
        ok(p[0] == 1 && p[513 * 4096 - 1] == 1, "each its own");
        tu_kv_reserve_free(r);
    }
}

enum { B = 3, H = 2, Q = 4, D = 64, PAGE = 16, PAGES = 24, CONTEXT = 512 };
static const int32_t len[B] = {100, 1, 200};

static void attend(struct kit *k, float *o, const char *what)
{
    struct tu_attn a;
    float lse[B * Q];
    int code = tu_attn_init(&a, &k->opt, k->in, k->n, NULL);
    if (!code) {
        kit_outputs(&a, o, lse, NULL, NULL, NULL);
        code = tu_attn_forward(&a, NULL, NULL);
    }
    ok(!code, "attention over %s", what);
    tu_attn_release(&a);
}

static void problem(struct kit *k, float *q, void *key, void *value, uint64_t pages,
                    uint64_t page, int32_t *table, uint64_t width)
{
    *k = (struct kit){.n = 0};
    kit_add(k, "q", TU_F32, 4, B, 1, Q, D, q);
    kit_add(k, "k", TU_F32, 4, pages, page, H, D, key);
    kit_add(k, "v", TU_F32, 4, pages, page, H, D, value);
    kit_add(k, "block_table", TU_I32, 2, B, width, 0, 0, table);
    kit_add(k, "seqlens_k", TU_I32, 1, B, 0, 0, 0, (void *)(uintptr_t)len);
}

/* Decoding three sequences: pages of 16 in a shuffled pool, and one "page" of 512 tokens
 * for each request, of which only what its tokens need has memory. */
static void same_attention(bool ahead)
{
    enum { ROW = H * D };
    struct tu_kv_reserve_how how = {.row = ROW * sizeof(float), .tensors = 2, .requests = B,
                                    .context = CONTEXT, .page = 4096, .groups = 64,
                                    .ahead = ahead};
    static float q[B * Q * D], pool[2][PAGES * PAGE * ROW], a[B * Q * D], b[B * Q * D];
    int32_t table[B * 13], slots[B] = {0, 1, 2}, next = 0;
    struct tu_kv_reserve *r;
    struct tu_rng rng = {5, 6};
    struct kit k;
    uint64_t stride, request;
    tu_rng_normal(&rng, 0, q, B * Q * D);
    if (tu_kv_reserve_new(&r, &how, NULL))
        abort();
    for (int s = 0; s < B; s++) {
        if (tu_kv_reserve_begin(r, &request, NULL) || request != (uint64_t)s)
            abort();
        for (int p = 0; p < 13; p++)
            table[s * 13 + p] = p * PAGE < len[s] ? next++ * 7 % PAGES : -1;
        for (int t = 0; t < len[s]; t++) {
            if (tu_kv_reserve_grow(r, request, (uint64_t)t + 1, NULL))
                abort();
            for (int side = 0; side < 2; side++) {
                float *at = tu_kv_reserve_at(r, (uint64_t)side, request, &stride);
                float *to = pool[side] + (table[s * 13 + t / PAGE] * PAGE + t % PAGE) * ROW;
                tu_rng_normal(&rng, (uint64_t)((2 * s + side) * CONTEXT + t + 1) * ROW, to, ROW);
                memcpy(at + t * ROW, to, ROW * sizeof *to);
            }
        }
    }
    eq_u64(stride, (uint64_t)CONTEXT * ROW * sizeof(float), "requests lie in a row");
    problem(&k, q, pool[0], pool[1], PAGES, PAGE, table, 13);
    attend(&k, a, "a pool of pages");
    problem(&k, q, tu_kv_reserve_at(r, 0, 0, NULL), tu_kv_reserve_at(r, 1, 0, NULL), B, CONTEXT,
            slots, 1);
    attend(&k, b, "the reservation");
    eq_mem(a, b, sizeof a, "the same to the bit");
    tu_kv_reserve_free(r);
}

int main(void)
{
    sizes();
    growth();
    ahead();
    huge();
    same_attention(false);
    same_attention(true);
    return tap_done();
}
