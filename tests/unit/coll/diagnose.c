/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.c: a thousand faults played in the simulator find their culprit, a thousand
 * clean runs raise no alarm; hangs, mismatches and traces that are none. */
#include <stdlib.h>
#include <tensorutils/coll.h>
#include "../inject.h"

struct feed {
    struct tu_trace *trace;
    uint32_t ranks;
    int code;
};

static void take(void *ctx, uint32_t rank, const struct tu_seen *s)
{
    struct feed *f = ctx;
    if (!f->code)
        f->code = tu_trace_add(f->trace, rank, f->ranks, s, NULL);
}

/* 30 operations of one algorithm with a fault (NULL: none); the verdict. */
static struct tu_diagnosis play(const char *algo, uint32_t ranks, uint64_t bytes,
                                uint64_t seed, const struct tu_sim_fault *fault)
{
    struct tu_diagnosis d = {.kind = TU_TOO_SHORT};
    struct tu_topo t;
    struct tu_plan p;
    struct tu_spec s = {.name = (char *)(uintptr_t)algo};
    struct tu_sim_result r;
    char topo[80];
    struct feed f = {.ranks = ranks};
    snprintf(topo, sizeof topo, "levels:n=%u,alpha=5us,bw=12.5G,gamma=50G", ranks);
    if (tu_topo_parse(&t, topo, NULL) ||
        tu_plan_make(&p, TU_ALLREDUCE, &s, ranks, 0, bytes, NULL) ||
        tu_trace_new(&f.trace, NULL))
        abort();
    for (uint64_t op = 0; op < 30; op++) {
        struct tu_sim_opts o = {.fault = fault,
                                .faults = fault != NULL,
                                .jitter = 2e-6,
                                .seed = seed,
                                .op = op,
                                .seen = take,
                                .ctx = &f};
        if (tu_coll_simulate(&r, &p, &t, &o, NULL))
            abort();
    }
    if (f.code || tu_diagnose(f.trace, &d, NULL))
        d.kind = TU_TOO_SHORT;
    tu_trace_free(f.trace);
    return d;
}

static uint32_t pick(uint64_t i, uint32_t n)
{
    struct tu_rng rng = {.seed = 5};
    return tu_rng_u32(&rng, i) % n;
}

static void faults(void)
{
    static const char *const algo[] = {"ring", "direct", "rabenseifner", "doubling"};
    unsigned right = 0, alarms = 0, shown = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint32_t ranks = 4 + pick(4 * i, 9);
        bool link = i % 2;
        /* A slow link shows where each pair or each neighbour exchanges. */
        const char *name = algo[link ? i / 2 % 2 : i / 2 % 4];
        struct tu_sim_fault f = {.rank = pick(4 * i + 1, ranks), .peer = TU_NOBODY};
        if (link) {
            uint32_t step =
                strcmp(name, "ring") == 0 ? 1 : 1 + pick(4 * i + 2, ranks - 1);
            f.peer = (f.rank + step) % ranks;
            f.factor = 3 + pick(4 * i + 3, 8);
        } else {
            f.late = 1e-4 * (1 + pick(4 * i + 3, 20));
        }
        struct tu_diagnosis d = play(name, ranks, 1 << 20, i, &f);
        bool yes = link ? d.kind == TU_SLOW_LINK && d.rank == f.rank && d.peer == f.peer
                        : d.kind == TU_SLOW_RANK && d.rank == f.rank;
        right += yes;
        if (!yes && shown++ < 8)
            printf("# %s, %u ranks, %s %u %u: %s\n", name, ranks, link ? "link" : "rank",
                   f.rank, f.peer, d.text);
        d = play(name, ranks, 1 << 20, 5000 + i, NULL);
        alarms += d.kind != TU_FINE;
        if (d.kind != TU_FINE && shown++ < 8)
            printf("# alarm, %s, %u ranks: %s\n", name, ranks, d.text);
    }
    ok(right >= 990, "%u of 1000 culprits named", right);
    ok(alarms <= 10, "%u false alarms in 1000 clean runs", alarms);
}

static struct tu_diagnosis of_text(const char *text, int *code)
{
    struct tu_trace *t = NULL;
    struct tu_diagnosis d = {.kind = TU_FINE};
    struct tu_err err = {0};
    if (tu_trace_new(&t, &err))
        abort();
    *code = tu_trace_read(t, text, strlen(text), "trace", &err);
    if (!*code)
        *code = tu_diagnose(t, &d, &err);
    if (*code)
        snprintf(d.text, sizeof d.text, "%.200s", err.msg);
    tu_trace_free(t);
    return d;
}

/* Traces of others, and ours with one thing wrong: the name of the file, ' for ". */
static const struct {
    const char *name, *text;
    int code;
    enum tu_trouble kind;
    const char *words;
} foreign[] = {
#define OURS(rest) "{'rank':0,'seq':0,'bytes':8,'arrive_ns':1,'done_ns':2" rest "}"
    {"t", OURS(",'peers':[[1,8,5]]"), 0, TU_TOO_SHORT, "0 operations"},
    {"t", OURS(",'peers':[[1,0,5]]"), 0, TU_TOO_SHORT, "0 operations"},
    {"t", OURS(",'peers':[[1,8]]"), TU_EFORMAT, 0, "t: a peer is [rank, bytes, wait_ns]"},
    {"t", OURS(",'peers':[[-1,8,5]]"), TU_EFORMAT, 0, "a peer is"},
    {"t", OURS(",'peers':[['1',8,5]]"), TU_EFORMAT, 0, "a peer is"},
    {"t", OURS(",'peers':[[1,-8,5]]"), TU_EFORMAT, 0, "a peer is"},
    {"t", OURS(",'peers':[[99999999999,8,5]]"), TU_EFORMAT, 0, "a peer is"},
    {"t", OURS(",'peers':[7]"), TU_EFORMAT, 0, "a peer is"},
    {"t", "{'rank':99999999,'seq':0}", TU_EFORMAT, 0, "t: expected rank, seq"},
    {"t", "{'rank':0,'bytes':8,'arrive_ns':1,'done_ns':2}", TU_EFORMAT, 0,
     "expected rank, seq"},
    {"t", "{'rank':0,'seq':0,'bytes':8,'done_ns':2}", TU_EFORMAT, 0,
     "expected rank, seq"},
    {"t", "{'rank':0,'seq':0,'bytes':8,'arrive_ns':1}", TU_EFORMAT, 0,
     "expected rank, seq"},
    {"t", "{'rank':0,'seq':0,'arrive_ns':1,'done_ns':2}", TU_EFORMAT, 0,
     "expected rank, seq"},
    {"t", "{'rank':0,'seq':0,'bytes':1.5,'arrive_ns':1,'done_ns':2}", TU_EFORMAT, 0,
     "expected"},
    {"t", OURS("") "\n\n" OURS(",'peers':[3]"), TU_EFORMAT, 0, "t: line 3: a peer is"},
    {"t", OURS("") "\n{", TU_EMETA, 0, "t: line 2: "},
    {"t", "\n\n", TU_EFORMAT, 0, "t: no records"},
    /* nccl-tests. */
#define NCCL(rows)                                                                       \
    "{'results':[{'out_of_place_per_iter':{'per_process_max_times_us':[" rows "]}}]}"
    {"n", NCCL("[1,2.5],[3,1]"), 0, TU_TOO_SHORT, "2 operations"},
    {"n", NCCL("[1,'2']"), TU_EFORMAT, 0, "n: times are numbers of microseconds"},
    {"n", NCCL("[1,-2]"), TU_EFORMAT, 0, "times are numbers"},
    {"n", NCCL("[1e13]"), TU_EFORMAT, 0, "times are numbers"},
    {"n", NCCL(""), TU_EFORMAT, 0, "n: no per_process_max_times_us"},
    {"n", NCCL("[],[]"), TU_EFORMAT, 0, "no records"},
    {"n", "{'results':[{}]}", TU_EFORMAT, 0, "n: no per_process_max_times_us"},
/* PyTorch's flight recorder. */
#define ENTRY(seq, rest)                                                                 \
    "{'profiling_name':'nccl:all_reduce','state':'completed','collective_seq_id':" #seq  \
    ",'time_created_ns':5" rest "}"
#define DUMP(list) "{'entries':[" list "]}"
    {"dump_3", DUMP(ENTRY(1, "")), 0, TU_HANG, "ranks 0, 1 and 1 more never came"},
    {"dump_2", DUMP(ENTRY(1, "")), 0, TU_HANG, "ranks 0 and 1 never came"},
    {"7", DUMP(ENTRY(1, ",'time_discovered_completed_ns':4")), 0, TU_HANG,
     "5 more never came"},
    {"dump_0", DUMP(ENTRY(1, "")), 0, TU_TOO_SHORT, "no verdict: 0 operations"},
    {"dump_0", DUMP(ENTRY(1, ",'pg_id':2") "," ENTRY(1, ",'pg_id':1")), 0, TU_TOO_SHORT,
     "0 op"},
    {"dump_0", DUMP(ENTRY(1, ",'is_p2p':true")), TU_EFORMAT, 0, "no records"},
    {"dump", DUMP(ENTRY(1, "")), TU_EFORMAT, 0,
     "dump: the name of a recorder's file ends in its"},
    {"dump_99999999", DUMP(ENTRY(1, "")), TU_EFORMAT, 0, "the name of a recorder's file"},
    {"d99999999999999999999999", DUMP(ENTRY(1, "")), TU_EFORMAT, 0,
     "the name of a recorder's"},
    {"d0", DUMP(ENTRY(1, "") ",{}"), TU_EFORMAT, 0,
     "entry 1: expected profiling_name, state"},
    {"d0", DUMP("{'profiling_name':'x'}"), TU_EFORMAT, 0, "entry 0: expected"},
    {"d0", DUMP("{'profiling_name':'x','state':'s'}"), TU_EFORMAT, 0,
     "entry 0: expected"},
    {"d0", DUMP("{'profiling_name':'x','state':'s','collective_seq_id':1}"), TU_EFORMAT,
     0, "entry 0: expected"},
};

static char *quoted(char out[2048], const char *text)
{
    size_t i;
    for (i = 0; text[i] && i < 2047; i++)
        out[i] = text[i] == '\'' ? '"' : text[i];
    out[i] = 0;
    return out;
}

static void others(void)
{
    char json[2048];
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        struct tu_trace *t = NULL;
        struct tu_diagnosis d = {.kind = TU_FINE};
        struct tu_err err = {0};
        if (tu_trace_new(&t, NULL))
            abort();
        quoted(json, foreign[i].text);
        int rc = tu_trace_read(t, json, strlen(json), foreign[i].name, &err);
        if (!rc)
            rc = tu_diagnose(t, &d, &err);
        const char *said = rc ? err.msg : d.text;
        ok(rc == foreign[i].code && strstr(said, foreign[i].words) &&
               (rc || d.kind == foreign[i].kind),
           "a trace, row %zu: %s", i, said);
        tu_trace_free(t);
    }
}

/* Two ranks' recorders: inputs that differ are a mismatch where all ranks must agree. */
static void recorded(void)
{
    static const struct {
        const char *op, *one, *two;
        bool differ;
    } rows[] = {
        {"nccl:all_reduce", "[[4,2]],'input_dtypes':['Float']",
         "[[8]],'input_dtypes':['Int']", false},
        {"nccl:all_reduce", "[[4]],'input_dtypes':['Float']",
         "[[4]],'input_dtypes':['Half']", true},
        {"nccl:all_reduce", "[[4]],'input_dtypes':['Long']",
         "[[4]],'input_dtypes':['Double']", false},
        {"nccl:all_reduce", "[[4],[2]],'input_dtypes':['BFloat16','Int']",
         "[[8]],'input_dtypes':['Half']", false},
        {"nccl:all_reduce", "[[4]]", "[[5]]", true},
        {"nccl:all_reduce", "[[4,-1]]", "[['x']]", false},
        {"nccl:all_reduce", "[[4294967296,4294967296,4294967296]]", "[[1.5]]", false},
        {"nccl:all_gather", "[[4]]", "[[5]]", false},
        {"nccl:reduce_scatter", "[[4]]", "[[5]]", false},
        {"nccl:all_to_all", "[[4]]", "[[5]]", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_trace *t = NULL;
        struct tu_diagnosis d = {.kind = TU_FINE};
        if (tu_trace_new(&t, NULL))
            abort();
        for (unsigned r = 0; r < 2; r++) {
            char text[1024], json[2048], name[8];
            snprintf(name, sizeof name, "r%u", r);
            snprintf(text, sizeof text,
                     "{'entries':[{'profiling_name':'%s','state':'completed','collective_"
                     "seq_id':1,"
                     "'time_created_ns':5,'time_discovered_completed_ns':9,'input_sizes':"
                     "%s}]}",
                     rows[i].op, r ? rows[i].two : rows[i].one);
            quoted(json, text);
            if (tu_trace_read(t, json, strlen(json), name, NULL))
                abort();
        }
        int rc = tu_diagnose(t, &d, NULL);
        ok(!rc && (d.kind == TU_MISMATCH) == rows[i].differ, "%s %s and %s: %s",
           rows[i].op, rows[i].one, rows[i].two, d.text);
        tu_trace_free(t);
    }
}

struct text {
    const char *p;
    size_t n;
};

static int diagnose(struct tu_diagnosis *d, const struct text *text, struct tu_err *err)
{
    struct tu_trace *t = NULL;
    *d = (struct tu_diagnosis){.kind = TU_FINE};
    int rc = tu_trace_new(&t, err);
    if (!rc)
        rc = tu_trace_read(t, text->p, text->n, "t", err);
    if (!rc)
        rc = tu_diagnose(t, d, err);
    tu_trace_free(t);
    return rc;
}

static int verdict(const void *text, struct tu_err *err)
{
    struct tu_diagnosis d;
    int rc = diagnose(&d, text, err);
    inject_add(d.text, rc ? 0 : strlen(d.text));
    return rc;
}

/* Of more than two operations, or of two ranks alone: who comes last; and memory running
 * out. */
static void two_ranks(void)
{
    char text[16384];
    size_t n = 0;
    for (unsigned op = 0; op < 24; op++)
        for (unsigned r = 0; r < 2; r++)
            n += (size_t)snprintf(
                text + n, sizeof text - n,
                "{\"rank\":%u,\"seq\":%u,\"bytes\":8,\"arrive_ns\":%u,\"done_ns\":%u,"
                "\"peers\":[[%u,8,%u],[%u,8,1]]}\n",
                r, op, 1000 * op + (r ? 300 : 0), 1000 * op + 500, 1 - r, 2 + r, r);
    struct tu_diagnosis d;
    struct tu_err err;
    const struct text t = {text, n};
    ok(!diagnose(&d, &t, &err) && d.kind == TU_SLOW_RANK && d.rank == 1,
       "of two ranks one is late: %s", d.text);
    inject_memory(&(struct inject){.name = "a verdict", .run = verdict, .arg = &t, .dense = 40});
}

#define LINE(rank, seq, op, bytes, arrive, done)                                         \
    "{\"rank\":" #rank ",\"seq\":" #seq ",\"op\":\"" op                                  \
    "\",\"dtype\":\"f32\",\"bytes\":" #bytes ",\"arrive_ns\":" #arrive                   \
    ",\"first_ns\":0,\"last_ns\":0,\"done_ns\":" #done ",\"peers\":[]}\n"

int main(void)
{
    int code;
    faults();
    others();
    recorded();
    two_ranks();
    struct tu_diagnosis d =
        of_text(LINE(0, 0, "allreduce", 8, 1, 2) LINE(1, 0, "allreduce", 8, 1, 2)
                    LINE(2, 0, "allreduce", 8, 1, 2) LINE(0, 1, "allreduce", 8, 3, 0)
                        LINE(2, 1, "allreduce", 8, 3, 0),
                &code);
    ok(!code && d.kind == TU_HANG && d.rank == 1, "who did not come: %s", d.text);
    d = of_text(LINE(0, 0, "allreduce", 8, 1, 0) LINE(1, 0, "allreduce", 8, 1, 0), &code);
    ok(!code && d.kind == TU_HANG && d.rank == TU_NOBODY, "all came: %s", d.text);
    d = of_text(LINE(0, 0, "allreduce", 8, 1, 2) LINE(1, 0, "allreduce", 8, 1, 2)
                    LINE(2, 0, "allreduce", 16, 1, 2),
                &code);
    ok(!code && d.kind == TU_MISMATCH && d.rank == 2, "another size: %s", d.text);
    d = of_text(LINE(0, 0, "allreduce", 8, 1, 2) LINE(1, 0, "broadcast", 8, 1, 2)
                    LINE(2, 0, "allreduce", 8, 1, 2),
                &code);
    ok(!code && d.kind == TU_MISMATCH && d.rank == 1, "another operation: %s", d.text);
    d = of_text(LINE(0, 0, "allreduce", 8, 1, 2) LINE(1, 0, "allreduce", 8, 1, 2), &code);
    ok(!code && d.kind == TU_TOO_SHORT, "too short: %s", d.text);
    static const char *const bad[] = {"",
                                      "no json",
                                      "{\"rank\":0",
                                      "{\"rank\":-1,\"seq\":0}",
                                      "[1,2]",
                                      "{\"results\":[]}",
                                      LINE(0, 0, "allreduce", 8, 5, 2)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        d = of_text(bad[i], &code);
        ok(code && tu_err_status(code) == 3, "'%.20s' is refused: %s", bad[i], d.text);
    }
    return tap_done();
}
