/* SPDX-License-Identifier: Apache-2.0 */
/* orders.c: --reduce-order fixed and exact give the same bits for every algorithm that
 * keeps them, transport, kind of memory and place in it; random and adversarial data pass
 * their checks. */
#include <stdlib.h>
#include <tensorutils/coll.h>
#include "../tap.h"

#define COUNT 100003 /* several chunks of the stages, no multiple of anything */

struct job {
    struct tu_plan plan;
    struct tu_case test;
    enum tu_order order;
    bool in_shared;
    uint64_t hash[32], wrong;
};

struct result {
    uint64_t hash, wrong;
};

static uint64_t digest(const void *p, size_t n)
{
    return (uint64_t)tu_crc32(0, p, n) << 32 | tu_crc32(1, p, n);
}

static int rank_main(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    struct job *j = ctx;
    const struct tu_case *c = &j->test;
    size_t bytes = (size_t)c->count * tu_dtype_find(c->dtype)->block_bytes;
    struct tu_exec *x = NULL;
    struct tu_verdict v;
    unsigned char *own = tu_alloc(2, bytes + 64, err), *in = own;
    if (!own)
        return TU_ENOMEM;
    if (j->in_shared)
        in = tu_rank_shared(r, tu_rank_id(r));
    unsigned char *out = in + tu_align(bytes, 64);
    tu_case_input(c, tu_rank_id(r), in);
    int code = tu_exec_new(&x, r, &j->plan, c->dtype, c->op, j->order, 1, err);
    if (!code)
        code = tu_exec_run(x, in, out, err);
    if (!code)
        code = tu_case_check(c, tu_rank_id(r), out, &v, err);
    struct result res = {0};
    if (!code) {
        res = (struct result){digest(out, bytes), v.wrong};
        code = tu_rank_post(r, &res, sizeof res, err);
    }
    tu_exec_free(x);
    tu_free(own);
    return code;
}

static void posted(void *ctx, uint32_t rank, const void *p, size_t n)
{
    struct job *j = ctx;
    struct result res;
    memcpy(&res, p, n);
    j->hash[rank] = res.hash;
    j->wrong += res.wrong;
}

/* What the order means: the fold of all inputs. */
static uint64_t defined(const struct tu_case *c, enum tu_order order)
{
    size_t bytes = (size_t)c->count * tu_dtype_find(c->dtype)->block_bytes;
    const void *src[32];
    unsigned char *all = tu_alloc(c->ranks + 1, bytes, NULL),
                  *out = all + c->ranks * bytes;
    if (!all)
        abort();
    for (uint32_t q = 0; q < c->ranks; q++) {
        tu_case_input(c, q, all + q * bytes);
        src[q] = all + q * bytes;
    }
    if (tu_combine(out, src, c->ranks, c->count, c->dtype, c->op, order, NULL))
        abort();
    uint64_t h = digest(out, bytes);
    tu_free(all);
    return h;
}

static void one(const char *algo, const char *transport, bool in_shared, uint32_t ranks,
                uint32_t dtype, enum tu_order order, enum tu_fill fill, uint64_t want)
{
    struct tu_spec spec = {.name = (char *)(uintptr_t)algo};
    struct job j = {.order = order, .in_shared = in_shared};
    struct tu_err err = {0};
    j.test = (struct tu_case){.coll = TU_ALLREDUCE,
                              .op = TU_SUM,
                              .fill = fill,
                              .dtype = dtype,
                              .ranks = ranks,
                              .count = COUNT,
                              .seed = 9};
    struct tu_group g = {.transport = transport,
                         .size = ranks,
                         .ctx = &j,
                         .fn = rank_main,
                         .post = posted,
                         .shared = in_shared ? 2 * 8 * COUNT + 128 : 0};
    int code = tu_plan_make(&j.plan, TU_ALLREDUCE, &spec, ranks, 0, COUNT, &err);
    if (!code)
        code = tu_group_run(&g, &err);
    bool same = !code;
    for (uint32_t r = 0; r < ranks && same; r++)
        same = j.hash[r] == (want ? want : j.hash[0]);
    char name[8];
    ok(same && !j.wrong, "%s over %s%s, %u ranks, %s %s, %s data: %s", algo, transport,
       in_shared ? " in shared memory" : "", ranks, tu_order_names[order],
       tu_dtype_text(dtype, name), tu_fill_names[fill],
       code      ? err.msg
       : j.wrong ? "outside of the bound"
       : same    ? "same bits"
                 : "other bits");
}

int main(void)
{
    static const uint32_t ranks[] = {1, 2, 3, 5, 8}, dtypes[] = {TU_F32, TU_BF16};
    for (size_t i = 0; i < 5; i++)
        for (size_t d = 0; d < 2; d++)
            for (enum tu_order o = TU_ORDER_FIXED; o <= TU_ORDER_EXACT; o++) {
                struct tu_case c = {.coll = TU_ALLREDUCE,
                                    .op = TU_SUM,
                                    .fill = TU_FILL_RANDOM,
                                    .dtype = dtypes[d],
                                    .ranks = ranks[i],
                                    .count = COUNT,
                                    .seed = 9};
                uint64_t want = defined(&c, o);
                one("direct", "threads", false, ranks[i], dtypes[d], o, TU_FILL_RANDOM,
                    want);
                one("fused", "threads", false, ranks[i], dtypes[d], o, TU_FILL_RANDOM,
                    want);
                one("fused", "shm", true, ranks[i], dtypes[d], o, TU_FILL_RANDOM, want);
                if (i == 2)
                    one("direct", "tcp", false, ranks[i], dtypes[d], o, TU_FILL_RANDOM,
                        want);
            }
    /* Every algorithm in its own order: within the bound, and all ranks the same bits. */
    for (size_t i = 0; tu_algorithms[i]; i++)
        if (tu_algorithms[i]->coll == TU_ALLREDUCE)
            for (enum tu_fill f = TU_FILL_RANDOM; f <= TU_FILL_HARD; f++)
                one(tu_algorithms[i]->name, "threads", false, 6, dtypes[f % 2],
                    TU_ORDER_ANY, f, 0);
    return tap_done();
}
