/* SPDX-License-Identifier: Apache-2.0 */
/* algorithms.c: every algorithm, 1 to 17 ranks, sizes with 0 and 1, dtypes in turn: exact
 * results, inputs untouched, the bytes that the formula says, and rounds in which whoever
 * sends is expected. */
#include <stdlib.h>
#include <tensorutils/coll.h>
#include "../tap.h"

static const uint32_t dtypes[] = {TU_F32, TU_BF16,    TU_I8,        TU_F64,
                                  TU_F16, TU_U64,     TU_F8_E4M3FN, TU_I32,
                                  TU_U8,  TU_F8_E5M2, TU_U32,       TU_I64};
static const uint64_t counts[] = {0, 1, 2, 7, 64, 1000};
static const enum tu_op ops[] = {TU_SUM, TU_MAX, TU_AVG, TU_MIN, TU_PROD, TU_PREMUL};
#define CASES (sizeof counts / sizeof *counts)

struct result {
    uint64_t wrong, spoiled, sent;
    uint32_t which;
};

/* All sizes of one algorithm and number of ranks, in one group. */
struct job {
    struct tu_plan plan[CASES];
    struct tu_case test[CASES];
    bool applies[CASES], in_place;
    struct result sum[CASES];
    uint64_t sent[CASES][32];
};

/* Twice: what stays from the first is stale. */
static int rank_case(struct tu_rank *r, const struct job *j, size_t i, struct result *res,
                     struct tu_err *err)
{
    const struct tu_case *c = &j->test[i];
    const struct tu_collective_row *row = &tu_collective_rows[c->coll];
    size_t size = tu_dtype_find(c->dtype)->block_bytes;
    uint64_t n_in = c->count * (row->in == 2 ? c->ranks : 1);
    uint64_t n_out = c->count * (row->out == 2 ? c->ranks : 1);
    unsigned char *in = tu_calloc(n_in, size, err), *out = tu_calloc(n_out, size, err);
    unsigned char *kept = tu_calloc(n_in, size, err);
    struct tu_exec *x = NULL;
    int code = in && out && kept ? 0 : TU_ENOMEM;
    if (!code)
        code = tu_exec_new(&x, r, &j->plan[i], c->dtype, c->op, TU_ORDER_ANY, c->premul,
                           err);
    for (int turn = 0; turn < 2 && !code; turn++) {
        struct tu_case now = *c;
        struct tu_verdict v;
        now.iter = (uint64_t)turn;
        tu_case_input(&now, tu_rank_id(r), in);
        memcpy(kept, in, n_in * size);
        bool same = j->in_place && row->in == 1 && row->out == 1;
        uint64_t before = tu_rank_traffic(r).bytes;
        code = tu_exec_run(x, in, same ? in : out, err);
        res->sent = tu_rank_traffic(r).bytes - before;
        if (!code)
            code = tu_case_check(&now, tu_rank_id(r), same ? in : out, &v, err);
        if (!code) {
            res->wrong += v.wrong;
            res->spoiled += !same && memcmp(in, kept, n_in * size) != 0;
        }
    }
    tu_exec_free(x);
    tu_free(in);
    tu_free(out);
    tu_free(kept);
    return code;
}

static int rank_main(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    const struct job *j = ctx;
    int code = 0;
    for (uint32_t i = 0; i < CASES && !code; i++) {
        struct result res = {.which = i};
        if (!j->applies[i])
            continue;
        code = rank_case(r, j, i, &res, err);
        if (!code)
            code = tu_rank_post(r, &res, sizeof res, err);
        else
            tu_err_prefix(err, "%" PRIu64 " elements", counts[i]);
    }
    return code;
}

static void posted(void *ctx, uint32_t rank, const void *p, size_t n)
{
    struct job *j = ctx;
    struct result res;
    memcpy(&res, p, n);
    j->sum[res.which].wrong += res.wrong;
    j->sum[res.which].spoiled += res.spoiled;
    j->sent[res.which][rank] = res.sent;
}

/* Plans for all sizes; false when one fails that should not. */
static bool make_plans(struct job *j, const struct tu_algorithm *a, uint32_t ranks,
                       unsigned done)
{
    struct tu_spec spec = {.name = (char *)(uintptr_t)a->name};
    bool fine = true;
    for (uint32_t i = 0; i < CASES; i++) {
        struct tu_err err = {0};
        uint32_t dtype =
            dtypes[(ranks + i + done + i) % (sizeof dtypes / sizeof *dtypes)];
        enum tu_op op = ops[(ranks * 5 + i) % 6];
        if (tu_collective_rows[a->coll].reduces && tu_reduce_check(dtype, op, NULL))
            op = TU_SUM;
        j->test[i] = (struct tu_case){.coll = a->coll,
                                      .op = op,
                                      .dtype = dtype,
                                      .ranks = ranks,
                                      .root = ranks - 1,
                                      .count = counts[i],
                                      .seed = 7,
                                      .premul = 2};
        j->applies[i] =
            !tu_plan_make(&j->plan[i], a->coll, &spec, ranks, ranks - 1, counts[i], &err);
        /* Some are for powers of two only. */
        if (!j->applies[i] && (err.code != TU_EUSAGE || !(ranks & (ranks - 1)))) {
            printf("# %s, %u ranks: %s\n", a->name, ranks, err.msg);
            fine = false;
        }
    }
    return fine;
}

/* What is wrong with size i; "" for nothing. */
static const char *judge(const struct job *j, const struct tu_algorithm *a, size_t i)
{
    static char why[160];
    const struct tu_case *c = &j->test[i];
    size_t size = tu_dtype_find(c->dtype)->block_bytes;
    why[0] = '\0';
    if (j->sum[i].wrong)
        snprintf(why, sizeof why, "%" PRIu64 " wrong", j->sum[i].wrong);
    else if (j->sum[i].spoiled)
        snprintf(why, sizeof why, "input changed");
    for (uint32_t r = 0; r < c->ranks && !why[0] && a->sent; r++)
        if (j->sent[i][r] != a->sent(&j->plan[i], r) * size)
            snprintf(why, sizeof why, "rank %u sent %" PRIu64 " bytes, formula %" PRIu64,
                     r, j->sent[i][r], a->sent(&j->plan[i], r) * size);
    return why;
}

static void every_size(const struct tu_algorithm *a, const char *transport, uint32_t most,
                       bool in_place)
{
    unsigned done = 0, bad = 0;
    for (uint32_t ranks = 1; ranks <= most; ranks++) {
        struct job j = {.in_place = in_place};
        struct tu_err err = {0};
        struct tu_group g = {.transport = transport,
                             .size = ranks,
                             .ctx = &j,
                             .fn = rank_main,
                             .post = posted,
                             .timeout = UINT64_C(120000000000)};
        bad += !make_plans(&j, a, ranks, done);
        if (tu_group_run(&g, &err)) {
            bad++;
            printf("# %s %s, %u ranks: %s\n", tu_collective_rows[a->coll].name, a->name,
                   ranks, err.msg);
        }
        for (size_t i = 0; i < CASES; i++, done++) {
            const struct tu_case *c = &j.test[i];
            const char *why = j.applies[i] ? judge(&j, a, i) : "";
            char name[8];
            if (*why && bad++ < 5)
                printf("# %s %s, %u ranks, %" PRIu64 " × %s, %s: %s\n",
                       tu_collective_rows[a->coll].name, a->name, ranks, c->count,
                       tu_dtype_text(c->dtype, name), tu_op_names[c->op], why);
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
