/* SPDX-License-Identifier: Apache-2.0 */
/* algorithms.c: every algorithm, 1 to 17 ranks, sizes with 0 and 1, dtypes in turn: exact
 * results, inputs untouched, the bytes that the formula says, and rounds in which whoever
 * sends is expected. */
#include <stdlib.h>
#include <tensorutils/coll.h>
#include "../tap.h"

struct job {
    struct tu_plan plan;
    struct tu_case test;
    const char *transport;
    bool in_place;
    uint64_t wrong, first, spoiled, sent[32];
};

struct result {
    uint64_t wrong, first, spoiled, sent;
};

static int rank_main(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    struct job *j = ctx;
    const struct tu_case *c = &j->test;
    const struct tu_collective_row *row = &tu_collective_rows[c->coll];
    size_t size = tu_dtype_find(c->dtype)->block_bytes;
    uint64_t n_in = c->count * (row->in == 2 ? c->ranks : 1);
    uint64_t n_out = c->count * (row->out == 2 ? c->ranks : 1);
    unsigned char *in = tu_calloc(n_in, size, err), *out = tu_calloc(n_out, size, err);
    unsigned char *kept = tu_calloc(n_in, size, err);
    struct tu_exec *x = NULL;
    struct result res = {0};
    int code = in && out && kept ? 0 : TU_ENOMEM;
    if (!code)
        code =
            tu_exec_new(&x, r, &j->plan, c->dtype, c->op, TU_ORDER_ANY, c->premul, err);
    for (int turn = 0; turn < 2 && !code;
         turn++) { /* twice: what stays from the first is stale */
        struct tu_case now = *c;
        struct tu_verdict v;
        now.iter = (uint64_t)turn;
        tu_case_input(&now, tu_rank_id(r), in);
        memcpy(kept, in, n_in * size);
        bool same = j->in_place && row->in == 1 && row->out == 1;
        uint64_t before = tu_rank_traffic(r).bytes;
        code = tu_exec_run(x, in, same ? in : out, err);
        res.sent = tu_rank_traffic(r).bytes - before;
        if (!code)
            code = tu_case_check(&now, tu_rank_id(r), same ? in : out, &v, err);
        if (!code) {
            res.wrong += v.wrong;
            res.first = v.first;
            res.spoiled += !same && memcmp(in, kept, n_in * size) != 0;
        }
    }
    tu_exec_free(x);
    tu_free(in);
    tu_free(out);
    tu_free(kept);
    return code ? code : tu_rank_post(r, &res, sizeof res, err);
}

static void posted(void *ctx, uint32_t rank, const void *p, size_t n)
{
    struct job *j = ctx;
    struct result res;
    memcpy(&res, p, n);
    j->wrong += res.wrong;
    j->spoiled += res.spoiled;
    j->sent[rank] = res.sent;
}

/* One combination; returns what is wrong with it, "" for nothing. */
static const char *try_one(struct job *j, const struct tu_algorithm *a, uint32_t ranks,
                           uint64_t count, uint32_t dtype, enum tu_op op)
{
    static char why[400];
    struct tu_err err = {0};
    struct tu_spec spec = {.name = (char *)(uintptr_t)a->name};
    why[0] = '\0';
    uint32_t root = ranks - 1;
    if (tu_plan_make(&j->plan, a->coll, &spec, ranks, root, count, &err))
        return err.code == TU_EUSAGE && (ranks & (ranks - 1)) ? "" : strcpy(why, err.msg);
    j->test = (struct tu_case){.coll = a->coll,
                               .op = op,
                               .dtype = dtype,
                               .ranks = ranks,
                               .root = root,
                               .count = count,
                               .seed = 7,
                               .premul = 2};
    j->wrong = j->spoiled = 0;
    struct tu_group g = {.transport = j->transport,
                         .size = ranks,
                         .ctx = j,
                         .fn = rank_main,
                         .post = posted,
                         .timeout = UINT64_C(20000000000)};
    if (tu_group_run(&g, &err))
        snprintf(why, sizeof why, "%s", err.msg);
    else if (j->wrong)
        snprintf(why, sizeof why, "%" PRIu64 " wrong", j->wrong);
    else if (j->spoiled)
        snprintf(why, sizeof why, "input changed");
    size_t size = tu_dtype_find(dtype)->block_bytes;
    for (uint32_t r = 0; r < ranks && !why[0] && a->sent; r++)
        if (j->sent[r] != a->sent(&j->plan, r) * size)
            snprintf(why, sizeof why, "rank %u sent %" PRIu64 " bytes, formula %" PRIu64,
                     r, j->sent[r], a->sent(&j->plan, r) * size);
    return why;
}

static const uint32_t dtypes[] = {TU_F32, TU_BF16,    TU_I8,        TU_F64,
                                  TU_F16, TU_U64,     TU_F8_E4M3FN, TU_I32,
                                  TU_U8,  TU_F8_E5M2, TU_U32,       TU_I64};
static const uint64_t counts[] = {0, 1, 2, 7, 64, 1000};
static const enum tu_op ops[] = {TU_SUM, TU_MAX, TU_AVG, TU_MIN, TU_PROD, TU_PREMUL};

static void every_size(const struct tu_algorithm *a, const char *transport, uint32_t most,
                       bool in_place)
{
    struct job j = {.transport = transport, .in_place = in_place};
    unsigned done = 0, bad = 0;
    for (uint32_t ranks = 1; ranks <= most; ranks++) {
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            uint32_t dtype =
                dtypes[(ranks + i + done) % (sizeof dtypes / sizeof *dtypes)];
            enum tu_op op = ops[(ranks * 5 + i) % 6];
            if (tu_collective_rows[a->coll].reduces && tu_reduce_check(dtype, op, NULL))
                op = TU_SUM;
            const char *why = try_one(&j, a, ranks, counts[i], dtype, op);
            char name[8];
            done++;
            if (*why && bad++ < 5)
                printf("# %s %s, %u ranks, %" PRIu64 " × %s, %s: %s\n",
                       tu_collective_rows[a->coll].name, a->name, ranks, counts[i],
                       tu_dtype_text(dtype, name), tu_op_names[op], why);
        }
    }
    ok(!bad, "%s %s over %s%s: %u combinations exact", tu_collective_rows[a->coll].name,
       a->name, transport, in_place ? ", in place" : "", done);
}

/* In each round: r sends n elements to q if and only if q takes n from r. */
static void rounds_match(const struct tu_algorithm *a)
{
    unsigned bad = 0;
    for (uint32_t n = 1; n <= 33; n++) {
        struct tu_plan p;
        struct tu_spec spec = {.name = (char *)(uintptr_t)a->name};
        if (tu_plan_make(&p, a->coll, &spec, n, n / 2, 101, NULL))
            continue;
        for (uint64_t k = 0; k < p.rounds; k++) {
            for (uint32_t r = 0; r < n; r++) {
                struct tu_round me, other;
                a->round(&p, r, k, &me);
                if (me.to != TU_NOBODY) {
                    a->round(&p, me.to, k, &other);
                    bad += other.from != r || (other.recv.n != me.send.n && !me.combine);
                }
                if (me.from != TU_NOBODY) {
                    a->round(&p, me.from, k, &other);
                    bad += other.to != r;
                }
            }
        }
    }
    ok(!bad, "%s %s: rounds match for 1 to 33 ranks", tu_collective_rows[a->coll].name,
       a->name);
}

int main(void)
{
    for (size_t i = 0; tu_algorithms[i]; i++) {
        const struct tu_algorithm *a = tu_algorithms[i];
        if (a->round)
            rounds_match(a);
        every_size(a, "threads", 17, false);
        if (a->coll == TU_ALLREDUCE)
            every_size(a, "threads", 6, true);
    }
    return tap_done();
}
