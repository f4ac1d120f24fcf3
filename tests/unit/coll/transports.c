/* SPDX-License-Identifier: Apache-2.0 */
/* transports.c: the same exchanges over every transport; ranks that die, stop, stall and
 * leave are named within the time stated, and nothing stays behind. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <tensorutils/coll.h>
#include <unistd.h>
#include "../scratch.h"
#include "../tap.h"

static const char *const names[] = {"shm", "threads", "tcp"};

static uint64_t total;

static void add_up(void *ctx, uint32_t rank, const void *p, size_t n)
{
    uint64_t v;
    (void)ctx;
    (void)rank;
    memcpy(&v, p, n);
    total += v;
}

/* Sizes around every boundary of the lanes; both directions at once; larger than any
 * buffer. */
static int exchange(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    static const uint64_t size[] = {0, 1, 47, 48, 49, 64, 4095, 65536, 70001, 3000000};
    uint32_t n = tu_rank_size(r), me = tu_rank_id(r);
    uint64_t bad = 0;
    int code = 0;
    (void)ctx;
    unsigned char *out = tu_alloc(3000000, 1, err), *in = tu_alloc(3000000, 1, err);
    if (!out || !in)
        code = TU_ENOMEM;
    for (size_t i = 0; i < sizeof size / sizeof *size && !code; i++) {
        uint32_t to = (me + 1) % n, from = (me + n - 1) % n;
        for (uint64_t k = 0; k < size[i]; k++) {
            out[k] = (unsigned char)(k * 7 + me + i);
            in[k] = 0;
        }
        struct tu_move m = {.to = to,
                            .from = from,
                            .out = out,
                            .out_bytes = size[i],
                            .in = in,
                            .in_bytes = size[i]};
        code = tu_rank_move(r, &m, err);
        for (uint64_t k = 0; k < size[i]; k++)
            bad += in[k] != (unsigned char)(k * 7 + from + i);
        if (!code)
            code = tu_rank_barrier(r, err);
    }
    tu_free(out);
    tu_free(in);
    return code ? code : tu_rank_post(r, &bad, sizeof bad, err);
}

static int many(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    const uint64_t *ops = ctx;
    int code = 0;
    for (uint64_t i = 0; i < *ops && !code; i++) {
        uint64_t v = i, w = 0;
        uint32_t n = tu_rank_size(r), me = tu_rank_id(r);
        code = tu_rank_begin(r, err);
        struct tu_move m = {.to = (me + 1) % n,
                            .from = (me + n - 1) % n,
                            .out = &v,
                            .out_bytes = 8,
                            .in = &w,
                            .in_bytes = 8};
        if (!code)
            code = tu_rank_move(r, &m, err);
    }
    return code;
}

static int disagree(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    char b[64] = {0};
    (void)ctx;
    return tu_rank_id(r) ? tu_rank_send(r, 0, b, 8, err) : tu_rank_recv(r, 1, b, 16, err);
}

/* A rank that is gone is noticed at once: long before the time-out. One that is silent is
 * noticed by the time-out. A busy machine may hold up either for seconds. */
static void fault(const char *transport, const char *text, int code, const char *named)
{
    double within = code == TU_EPEER ? 60 : 1, busy = 20;
    struct tu_fault f;
    struct tu_err err = {0};
    uint64_t ops = 1000;
    ok(!tu_fault_parse(&f, text, &err), "%s: parsed", text);
    struct tu_group g = {.transport = transport,
                         .size = 4,
                         .timeout = (uint64_t)(within * 1e9),
                         .fault = &f,
                         .faults = 1,
                         .ctx = &ops,
                         .fn = many};
    int fds = scratch_fds();
    double before = tu_clock();
    int got = tu_group_run(&g, &err);
    double took = tu_clock() - before;
    eq_int(got, code, "%s over %s: %s", text, transport, tu_err_name(code));
    ok(strstr(err.msg, named) != NULL, "%s over %s names it: %s", text, transport,
       err.msg);
    ok(took < (code == TU_EPEER ? busy : within + busy), "%s over %s: over after %.2f s",
       text, transport, took);
    eq_int(scratch_fds(), fds, "%s over %s: no descriptor left", text, transport);
    eq_int(waitpid(-1, NULL, WNOHANG), -1, "%s over %s: no process left", text,
           transport);
}

int main(void)
{
    struct tu_err err = {0};
    const struct tu_transport *row;
    for (size_t i = 0; i < 3; i++) {
        for (uint32_t n = 2; n <= 9; n += n < 3 ? 1 : 3) {
            struct tu_group g = {
                .transport = names[i], .size = n, .fn = exchange, .post = add_up};
            total = 0;
            int code = tu_group_run(&g, &err);
            ok(!code, "%s, %u ranks exchange: %s", names[i], n, code ? err.msg : "fine");
            eq_u64(total, 0, "%s, %u ranks: every byte right", names[i], n);
        }
        struct tu_group g = {.transport = names[i], .size = 2, .fn = disagree};
        eq_int(tu_group_run(&g, &err), TU_EPEER, "%s: sizes that differ: %s", names[i],
               err.msg);
        fault(names[i], "stall:rank=2,op=20", TU_ETIMEOUT, "rank 2");
        fault(names[i], "close:rank=1,op=20", TU_EPEER, "rank 1");
        if (strcmp(names[i], "threads") == 0)
            continue;
        fault(names[i], "kill:rank=0,op=50", TU_EPEER, "rank 0 (pid ");
        fault(names[i], "kill:rank=3,op=50", TU_EPEER, "signal 9 in operation 51");
        fault(names[i], "stop:rank=1,op=5", TU_ETIMEOUT, "rank 1");
    }
    eq_int(tu_transport_find(&row, "nccl", &err), 0, "nccl is there, its library may not be");
    eq_int(tu_transport_find(&row, "mpi", &err), TU_EMISSING, "mpi: %s", err.msg);
    eq_int(tu_transport_find(&row, "pigeon", &err), TU_EUSAGE, "unknown: %s", err.msg);
    struct tu_fault f = {.kind = TU_FAULT_KILL, .rank = 1, .peer = TU_NOBODY};
    struct tu_group g = {
        .transport = "threads", .size = 2, .fn = many, .fault = &f, .faults = 1};
    eq_int(tu_group_run(&g, &err), TU_EUSAGE, "threads are not killed: %s", err.msg);
    static const char *const bad[] = {"rain:rank=1", "kill",
                                      "kill:rank=x", "slow:rank=1,per=2",
                                      "link:to=1",   "kill:rank=99999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        eq_int(tu_fault_parse(&f, bad[i], &err), TU_EUSAGE, "'%s': %s", bad[i], err.msg);
    return tap_done();
}
