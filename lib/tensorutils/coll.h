/* SPDX-License-Identifier: Apache-2.0 */
/* coll.h: collectives as algorithms over a transport.
 *
 * An algorithm is written once, as rounds: in round k rank r sends this span, receives
 * that one, and adds or stores what it received; what is sent in round k is received in
 * round k. A transport moves the bytes (threads, shared memory, TCP, MPI, NCCL); the
 * simulator runs the same rounds over clocks instead. May change before 1.0. */
#ifndef TENSORUTILS_COLL_H
#define TENSORUTILS_COLL_H

#include "core.h"

TU_BEGIN

/* Groups of ranks
 * ------------------------------------------------------------------------ */

struct tu_rank; /* one member of a group; lives while its function runs */

#define TU_RANKS_MAX 4096u
#define TU_NOBODY UINT32_MAX
#define TU_FAULTS_MAX 64u

/* Faults to play, each at one rank (or on one directed link) from operation `from` on.
 * Link and flip act on messages: with them no algorithm runs in shared memory. One that
 * was not played when its rank has ended is TU_EUSAGE. */
enum tu_fault_kind {
    TU_FAULT_DELAY, /* sleep `amount` ns before each operation: a slow rank */
    TU_FAULT_LINK, /* each message rank → peer costs `amount` ns per MiB and `us` more */
    TU_FAULT_KILL,  /* SIGKILL itself */
    TU_FAULT_STOP,  /* SIGSTOP itself */
    TU_FAULT_STALL, /* stay away from the operation for ever */
    TU_FAULT_CLOSE, /* leave without a word */
    TU_FAULT_FLIP,  /* flip the lowest bit of what it sends */
};
struct tu_fault {
    enum tu_fault_kind kind;
    uint32_t rank, peer; /* peer: TU_NOBODY for all */
    uint64_t from;       /* first operation, counted from 0 */
    uint64_t amount, extra;
};
/* "slow:rank=1,us=200", "link:from=0,to=1,rate=100M,us=50", "kill:rank=1,op=3", "stop:…",
 * "stall:…", "close:…", "flip:…". Errors: TU_EUSAGE. */
TU_API TU_MUST int tu_fault_parse(struct tu_fault *out, const char *text,
                                  struct tu_err *err);

struct tu_group {
    const char *transport;      /* a row's name */
    const struct tu_spec *spec; /* its keys, or NULL */
    uint32_t size;
    uint64_t timeout; /* ns without progress before a rank gives up; 0: 30 s */
    uint64_t shared;  /* bytes of memory per rank that its peers can see */
    const struct tu_fault *fault;
    size_t faults;
    /* A launcher made the processes: this one is `rank`, and they meet at `rendezvous`
     * (HOST:PORT of rank 0, or file:FOLDER). NULL: all ranks are started here. */
    const char *rendezvous;
    uint32_t rank;
    const char *host; /* address to listen at; NULL: the loopback, or all interfaces */
    const char
        *agree; /* what all ranks must have been started with, ≤ 200 bytes, or NULL */
    void *ctx;
    int (*fn)(struct tu_rank *r, void *ctx, struct tu_err *err);
    /* What a rank posts arrives here, in the process and thread that called tu_group_run.
     */
    void (*post)(void *ctx, uint32_t rank, const void *p, size_t n);
    const struct tu_job *job; /* cancellation */
};

/* Run fn in every rank and wait for them. Ranks that are processes are forked before any
 * thread of this process exists; none of them, and no memory or socket, outlives the
 * call. Returns the result of the rank that failed first. Errors: TU_EPEER names the rank
 * that was lost, its pid, signal and operation; TU_ETIMEOUT names the rank that the
 * others wait for; TU_EMISSING. */
TU_API TU_MUST int tu_group_run(const struct tu_group *g, struct tu_err *err);

/* The rank, from inside fn. */
TU_API uint32_t tu_rank_id(const struct tu_rank *r);
TU_API uint32_t tu_rank_size(const struct tu_rank *r);
struct tu_traffic {
    uint64_t bytes, messages; /* sent */
    uint64_t wait_ns;         /* spent without progress */
};
TU_API struct tu_traffic tu_rank_traffic(const struct tu_rank *r);
/* Rank q's shared memory (tu_group.shared bytes, 64-aligned); NULL when the transport or
 * the caller has none. */
TU_API void *tu_rank_shared(struct tu_rank *r, uint32_t q);
/* Are the ranks on one machine with memory that the fused algorithms can use, and may
 * they (no fault acts on messages)? */
TU_API bool tu_rank_is_shared(const struct tu_rank *r);
/* At most TU_POST_MAX bytes to the post function. */
#define TU_POST_MAX 3968u
TU_API TU_MUST int tu_rank_post(struct tu_rank *r, const void *p, size_t n,
                                struct tu_err *err);
/* A new operation begins (counted, faults are played here). */
TU_API TU_MUST int tu_rank_begin(struct tu_rank *r, struct tu_err *err);

/* One exchange: bytes to one peer and from another (or nobody), both under way at once.
 * With a sink the received bytes are handed over in pieces, in order, each a multiple of
 * 16 bytes but the last; else they go to `in`. Both sides know the size: another one is
 * TU_EPEER. */
struct tu_move {
    uint32_t to, from;
    const void *out;
    uint64_t out_bytes;
    void *in;
    uint64_t in_bytes;
    void (*sink)(void *ctx, uint64_t at, const void *p, uint64_t n);
    void *ctx;
};
TU_API TU_MUST int tu_rank_move(struct tu_rank *r, const struct tu_move *m,
                                struct tu_err *err);
TU_API TU_MUST int tu_rank_send(struct tu_rank *r, uint32_t to, const void *p, uint64_t n,
                                struct tu_err *err);
TU_API TU_MUST int tu_rank_recv(struct tu_rank *r, uint32_t from, void *p, uint64_t n,
                                struct tu_err *err);
TU_API TU_MUST int tu_rank_barrier(struct tu_rank *r, struct tu_err *err);

/* What was seen of the operations, when asked for. */
struct tu_peer_seen {
    uint64_t bytes, wait_ns; /* received from this peer; from first to last byte */
};
struct tu_seen {
    uint64_t seq, arrive_ns, first_ns, last_ns, done_ns; /* 0: never */
    struct tu_peer_seen *peer;                           /* [size] */
};
/* Record from now on into *s (NULL: stop). begin fills seq and arrive; the caller done.
 */
TU_API void tu_rank_watch(struct tu_rank *r, struct tu_seen *s);

/* A transport's row. The functions are the library's own affair (lib/coll/world.h). */
struct tu_transport_ops;
struct tu_transport {
    const char *name, *help;
    const char *const *key; /* keys of its spec */
    const char *plugin;     /* needs this plug-in, which has the ops if the row has none */
    bool shared;            /* ranks can see each other's memory */
    const struct tu_transport_ops *ops;
};
TU_API extern const struct tu_transport *const tu_transports[]; /* NULL-ended */
/* Errors: TU_EUSAGE unknown; TU_EMISSING its plug-in is not installed. */
TU_API TU_MUST int tu_transport_find(const struct tu_transport **out, const char *name,
                                     struct tu_err *err);

/* Reductions ------------------------------------------------------------------------ */

enum tu_op { TU_SUM, TU_PROD, TU_MIN, TU_MAX, TU_AVG, TU_PREMUL, TU_OPS };
TU_API extern const char *const tu_op_names[]; /* "sum" … "mulsum", NULL-ended */

/* d[i] = a[i] op b[i]; d may be a or b. Floats of 16 bits and less are computed in f32
 * and rounded once; integers wrap; NaN wins in min and max, and -0 < +0. */
typedef void (*tu_reduce_fn)(void *d, const void *a, const void *b, size_t n);
/* op: SUM, PROD, MIN or MAX. NULL for a dtype without arithmetic. */
TU_API tu_reduce_fn tu_reduce_find(uint32_t dtype, enum tu_op op);
/* The row of one kernel table ("avx512", "avx2", "plain"), best first; NULL past the end.
 * For tests: fn as tu_reduce_find gives it for this row. */
TU_API const struct tu_kernel *tu_reduce_row(size_t i);
TU_API tu_reduce_fn tu_reduce_in(size_t row, uint32_t dtype, enum tu_op op);
/* TU_EUSAGE where op and dtype do not go together: avg of integers, prod of fp8. */
TU_API TU_MUST int tu_reduce_check(uint32_t dtype, enum tu_op op, struct tu_err *err);
/* v[i] *= scale, integers wrapping (scale is then truncated). For avg and mulsum. */
TU_API void tu_reduce_scale(uint32_t dtype, void *v, size_t n, double scale);

/* The order in which n operands are folded. FOLD: ((0+1)+2)+…; FIXED: balanced tree,
 * split at the largest power of two below n, in f32 for floats of 16 bits and less;
 * EXACT: rounded once. */
enum tu_order { TU_ORDER_ANY, TU_ORDER_FIXED, TU_ORDER_EXACT };
TU_API extern const char *const tu_order_names[];
/* d = fold of src[0..n-1], count elements each; d may be one of them. EXACT: sums of
 * floats and integers only (TU_EUSAGE). */
TU_API TU_MUST int tu_combine(void *d, const void *const *src, uint32_t n, uint64_t count,
                              uint32_t dtype, enum tu_op op, enum tu_order order,
                              struct tu_err *err);

/* Collectives and algorithms
 * --------------------------------------------------------------- */

enum tu_collective {
    TU_ALLREDUCE,
    TU_REDUCE_SCATTER,
    TU_ALLGATHER,
    TU_ALLTOALL,
    TU_BROADCAST,
    TU_REDUCE,
    TU_GATHER,
    TU_SCATTER,
    TU_SENDRECV,
    TU_BARRIER,
    TU_COLLECTIVES
};
struct tu_collective_row {
    const char *name, *help;
    const char *title; /* as nccl-tests calls it */
    bool reduces, rooted;
    uint8_t in, out; /* per rank: 1: count elements, 2: count × ranks */
};
TU_API extern const struct tu_collective_row tu_collective_rows[TU_COLLECTIVES];
/* Bus bandwidth over algorithm bandwidth. Source: nccl-tests, doc/PERFORMANCE.md. */
TU_API double tu_bus_factor(enum tu_collective c, uint32_t ranks);

enum tu_space { TU_IN, TU_OUT, TU_WORK };
/* n elements of a space from `at` on. run > 0: they lie in runs of `run`, each `period`
 * after the one before. */
struct tu_span {
    enum tu_space space;
    uint64_t at, n, run, period;
};
struct tu_round {
    uint32_t to, from; /* TU_NOBODY; both the rank itself: a local copy */
    struct tu_span send, recv;
    bool add;  /* recv = recv op own, else recv is stored */
    bool left; /* the received operand is the left one */
    struct tu_span own;
    bool combine; /* local: recv = fold of all inputs (algorithm "direct") */
};

struct tu_algorithm;
struct tu_plan {
    const struct tu_algorithm *alg;
    uint32_t ranks, root;
    uint64_t count;  /* elements: as tu_collective_row counts them */
    uint64_t rounds; /* filled by tu_plan_make */
    uint64_t work;   /* elements of TU_WORK */
    uint32_t segments;
    uint32_t level[4], levels; /* ranks per level, innermost first */
};

enum tu_algorithm_flags {
    TU_ALG_SHARED =
        1, /* works in its peers' memory: no rounds, transports that share it only */
    TU_ALG_ORDERED = 2, /* folds all inputs of a block at once: keeps any enum tu_order */
};
struct tu_algorithm {
    const char *name, *help, *source;
    enum tu_collective coll;
    const char *const *key;
    unsigned flags; /* TU_ALG_… */
    /* Set rounds, work and what the keys say. TU_EUSAGE where the algorithm does not
     * apply. */
    int (*plan)(struct tu_plan *p, const struct tu_spec *spec, struct tu_err *err);
    void (*round)(const struct tu_plan *p, uint32_t rank, uint64_t k,
                  struct tu_round *out);
    /* Elements that this rank sends, by the source's formula; NULL where there is none.
     */
    uint64_t (*sent)(const struct tu_plan *p, uint32_t rank);
    /* Seconds, by the closed form of the alpha-beta-gamma model; NULL where there is
     * none. */
    double (*model)(const struct tu_plan *p, double bytes, double alpha, double beta,
                    double gamma);
};
TU_API extern const struct tu_algorithm *const tu_algorithms[]; /* NULL-ended */
TU_API const struct tu_algorithm *tu_algorithm_find(enum tu_collective c,
                                                    const char *name);
/* spec: NAME[:KEY=VALUE,…]. */
TU_API TU_MUST int tu_plan_make(struct tu_plan *p, enum tu_collective c,
                                const struct tu_spec *spec, uint32_t ranks, uint32_t root,
                                uint64_t count, struct tu_err *err);
/* The double binary tree: parent, first and second child of a rank in tree 0 or 1 (-1:
 * none). Source: NVIDIA/nccl, src/graph/trees.cc. */
TU_API void tu_double_tree(uint32_t ranks, uint32_t rank, unsigned tree, int32_t out[3]);

/* A plan bound to a rank and a dtype: scratch memory is taken once, then run any number
 * of times. */
struct tu_exec;
TU_API TU_MUST int tu_exec_new(struct tu_exec **out, struct tu_rank *r,
                               const struct tu_plan *p, uint32_t dtype, enum tu_op op,
                               enum tu_order order, double premul, struct tu_err *err);
TU_API void tu_exec_free(struct tu_exec *x);
/* in and out may be the same memory (all-reduce, reduce, broadcast, and as section 5 says
 * for the others); in is not changed otherwise. */
TU_API TU_MUST int tu_exec_run(struct tu_exec *x, const void *in, void *out,
                               struct tu_err *err);

/* Test data and its check
 * ------------------------------------------------------------------ */

enum tu_fill { TU_FILL_EXACT, TU_FILL_RANDOM, TU_FILL_HARD };
TU_API extern const char
    *const tu_fill_names[]; /* "exact", "random", "adversarial", NULL */
struct tu_case {
    enum tu_collective coll;
    enum tu_op op;
    enum tu_fill fill;
    uint32_t dtype, ranks, root;
    uint64_t count, seed, iter; /* values depend on rank, index, iteration and seed */
    double premul;
};
TU_API void tu_case_input(const struct tu_case *c, uint32_t rank, void *in);
struct tu_verdict {
    uint64_t wrong, first;   /* elements; index of the first */
    double got, want, worst; /* there; worst error over its bound (random) */
};
/* Compare a rank's output with what it must be, from the inputs alone: exact data to the
 * bit, random within the bound of spec section 5. */
TU_API TU_MUST int tu_case_check(const struct tu_case *c, uint32_t rank, const void *out,
                                 struct tu_verdict *v, struct tu_err *err);

/* Measuring ----------------------------------------------------------------------------
 */

/* The algorithm that `auto` means: the fused one where memory is shared, else the least
 * by the closed forms with the latency and bandwidth of this transport's kind. */
TU_API const char *tu_algorithm_auto(enum tu_collective c, uint32_t ranks, double bytes,
                                     bool shared, enum tu_order order);

struct tu_bench {
    const enum tu_collective *coll;
    const uint32_t *dtype;
    const uint64_t *bytes; /* sizes asked for, as section 1 of the specification counts */
    const char *const *algo; /* "auto", "all", or NAME[:KEY=VALUE,…] */
    size_t colls, dtypes, sizes, algos;
    enum tu_op op;
    enum tu_order order;
    enum tu_fill fill;
    uint32_t root, unalign;  /* elements that buffers are off their alignment */
    double premul, min_time; /* seconds per size, raises iters */
    uint64_t iters, warmup, check, seed; /* check: untimed iterations that are verified */
    bool each;        /* time each operation alone, a barrier after it */
    bool hidden;      /* buffers that peers cannot see */
    bool cold;        /* another part of the buffer each time */
    bool check_timed; /* one by one, each output verified; iters ≤ 10000 */
    bool trace;       /* post a line for each timed operation */
    bool out_only;    /* no in-place runs */
};

#define TU_BENCH_NAME 48
struct tu_timing {
    bool done;
    double mean, min, p50, p95, p99, max; /* seconds; of the samples' means over ranks */
    double rank_min, rank_max;            /* least and largest mean of one rank */
    double algbw, busbw;                  /* bytes per second; 0 for no bytes */
    int64_t wrong;                        /* elements; -1: not checked */
    uint64_t first;                       /* index of the first wrong one */
    double got, want;
    bool differ; /* ranks that must agree hold different bits */
};
struct tu_bench_row {
    enum tu_collective coll;
    uint32_t dtype, ranks;
    uint64_t asked, bytes, count, iters, samples;
    uint64_t sent, messages; /* by rank 0 in one operation */
    char algorithm[TU_BENCH_NAME];
    struct tu_timing place[2]; /* out of place, in place */
};
/* What a rank posts: u32 kind, then a struct tu_bench_row (from rank 0) or a trace line.
 */
enum tu_bench_post { TU_BENCH_ROW, TU_BENCH_TRACE };

/* Shared bytes that a rank needs (tu_group.shared); TU_EUSAGE for sizes that overflow. */
TU_API TU_MUST int tu_bench_shared(const struct tu_bench *b, uint32_t ranks,
                                   uint64_t *out, struct tu_err *err);
/* All measurements, in a rank. */
TU_API TU_MUST int tu_bench_rank(struct tu_rank *r, const struct tu_bench *b,
                                 struct tu_err *err);

/* Simulating ---------------------------------------------------------------------------
 */

/* Levels, innermost first: two ranks meet at the innermost level whose group holds both.
 */
struct tu_topo {
    uint32_t levels;
    uint32_t count[4];        /* groups of the level inside that form one of this */
    double alpha[4], beta[4]; /* seconds per message and per byte */
    double gamma;             /* seconds per reduced byte */
    double oversub[4];        /* of the links above a group; 0 and 1: none (flows only) */
};
/* "levels:n=8+128,alpha=1us+5us,bw=300G+25G,gamma=…" (seconds per byte as GB/s of
 * adding); one level is n=64,alpha=5us,bw=12.5G. Bandwidths are bytes per second, G =
 * 1e9. oversub=1+4 for flows. Errors: TU_EUSAGE, zero bandwidths and latencies below 0
 * included. */
TU_API TU_MUST int tu_topo_parse(struct tu_topo *out, const char *text,
                                 struct tu_err *err);
TU_API uint32_t tu_topo_ranks(const struct tu_topo *t);

/* What makes ranks or links slower than the topology says. */
struct tu_sim_fault {
    uint32_t rank, peer; /* peer TU_NOBODY: the rank begins `late` seconds later; else the
                            link rank → peer takes `factor` times as long */
    double factor, late;
};
struct tu_sim_opts {
    const struct tu_sim_fault *fault;
    size_t faults;
    double jitter;     /* mean of exponential delays before each operation, seconds */
    uint64_t seed, op; /* op: number of the operation, for the delays */
    /* Called with what each rank would have seen, ranks in order; NULL: not wanted. */
    void (*seen)(void *ctx, uint32_t rank, const struct tu_seen *s);
    void *ctx;
};
struct tu_sim_result {
    double seconds,
        bound; /* bound: what no schedule with these bytes can beat; 0: none */
    uint64_t rounds, messages;
    double level_bytes[4]; /* carried by each level, all ranks together */
    uint32_t last;         /* the rank that ends last */
    uint32_t busiest;      /* the rank that sends most */
    double busiest_bytes;
};
/* Run the rounds of a plan (its elements are bytes) over clocks: a message from q to r
 * takes alpha, then beta per byte on both ports; what is added takes gamma more. */
TU_API TU_MUST int tu_coll_simulate(struct tu_sim_result *out, const struct tu_plan *p,
                                    const struct tu_topo *t, const struct tu_sim_opts *o,
                                    struct tu_err *err);

/* The same rounds as flows that share links max-min fairly, in step with each other; up
 * to TU_RANKS_MAX ranks. out->last is not known. */
TU_API TU_MUST int tu_coll_flows(struct tu_sim_result *out, const struct tu_plan *p,
                                 const struct tu_topo *t, struct tu_err *err);

/* LogGP over GOAL text. Source: T. Hoefler, T. Schneider, A. Lumsdaine, "LogGOPSim",
 * 2010; defaults as spcl/LogGOPSim. Times in ns. finish (tu_free) has one for each rank.
 */
struct tu_loggp {
    uint64_t L, o, g, G, O;
};
#define TU_LOGGP_DEFAULT                                                                 \
    {                                                                                    \
        2500, 1500, 1000, 6, 0                                                           \
    }
TU_API TU_MUST int tu_goal_run(const char *text, size_t n, const struct tu_loggp *m,
                               uint64_t **finish, uint32_t *ranks, struct tu_err *err);
/* The rounds of a plan as GOAL text. */
TU_API TU_MUST int tu_goal_write(struct tu_buf *out, const struct tu_plan *p,
                                 struct tu_err *err);

/* NCCL's tuner: latency in us of an all-reduce. Source: NVIDIA/nccl 2.30.7,
 * src/graph/tuning.cc. */
enum tu_nccl_algo { TU_NCCL_TREE, TU_NCCL_RING };
enum tu_nccl_proto { TU_NCCL_LL, TU_NCCL_LL128, TU_NCCL_SIMPLE };
TU_API double tu_nccl_latency(enum tu_nccl_algo a, enum tu_nccl_proto p, uint32_t ranks,
                              uint32_t nodes);
/* Switches of a non-blocking fat tree of radix k for `hosts`, by its tiers; 0 tiers: too
 * many hosts. With hb > 1 one fabric for each of hb rails instead, without a spine
 * between them. */
TU_API uint64_t tu_switches(uint32_t radix, uint64_t hosts, uint32_t hb, unsigned *tiers);

/* Diagnosing ---------------------------------------------------------------------------
 */

enum tu_trouble {
    TU_FINE,
    TU_HANG,
    TU_MISMATCH,
    TU_SLOW_RANK,
    TU_SLOW_LINK,
    TU_TOO_SHORT
};
struct tu_diagnosis {
    enum tu_trouble kind;
    uint32_t rank, peer; /* the culprit; the link is rank → peer */
    double confidence;   /* share of the operations that show it */
    char text[240];      /* the verdict and its evidence, one line */
};
TU_API extern const char *const tu_trouble_names[];
struct tu_trace; /* records of many ranks */
TU_API TU_MUST int tu_trace_new(struct tu_trace **out, struct tu_err *err);
TU_API void tu_trace_free(struct tu_trace *t);
/* Add the lines of a trace, an nccl-tests JSON report with per-process times, or a dump
 * of PyTorch's flight recorder as JSON, of the rank in which `name` ends. Errors:
 * TU_EFORMAT with line; TU_EMETA. */
TU_API TU_MUST int tu_trace_read(struct tu_trace *t, const char *text, size_t n,
                                 const char *name, struct tu_err *err);
/* One record, as the simulator gives it. */
TU_API TU_MUST int tu_trace_add(struct tu_trace *t, uint32_t rank, uint32_t ranks,
                                const struct tu_seen *s, struct tu_err *err);
TU_API TU_MUST int tu_diagnose(struct tu_trace *t, struct tu_diagnosis *out,
                               struct tu_err *err);

/* Compressed all-reduce ----------------------------------------------------------------
 */

/* How a vector of floats is made small: a row of ours or a codec of lib/quant by its
 * name. */
struct tu_squeeze;
struct tu_squeeze_row {
    const char *name, *help, *source;
    const char *const *key;
    bool unbiased; /* right on average: what a coding loses is not carried to the next */
};
TU_API extern const struct tu_squeeze_row tu_squeeze_rows[]; /* without name: the end */
/* For vectors of up to `count` floats. Errors: TU_EUSAGE. */
TU_API TU_MUST int tu_squeeze_new(struct tu_squeeze **out, const char *text,
                                  uint64_t count, uint64_t seed, struct tu_err *err);
TU_API void tu_squeeze_free(struct tu_squeeze *s);
/* NULL for a codec of lib/quant. */
TU_API const struct tu_squeeze_row *tu_squeeze_row_of(const struct tu_squeeze *s);
/* Bytes of n floats on the wire. */
TU_API uint64_t tu_squeeze_bytes(const struct tu_squeeze *s, uint64_t n);
/* scale > 0: the magnitude that all ranks share (tern). turn: another draw of rounding.
 */
TU_API TU_MUST int tu_squeeze_encode(struct tu_squeeze *s, const float *x, uint64_t n,
                                     float scale, uint64_t turn, void *wire,
                                     struct tu_err *err);
TU_API TU_MUST int tu_squeeze_decode(struct tu_squeeze *s, const void *wire, uint64_t n,
                                     float *y, struct tu_err *err);

struct tu_squeeze_result {
    uint64_t count, plain_bytes, wire_bytes; /* sent by one rank: f32 ring; this */
    uint32_t ranks, steps;
    double seconds, max_abs, relative, cosine, bias; /* of one step against the f64 sum */
    double averaged; /* relative error of the mean over steps, with error feedback */
};
/* Sum of count floats of every rank (normal numbers by seed): each shard is coded,
 * exchanged, summed in f32 in the order of ranks, coded again and gathered: two codings
 * whatever the number of ranks (qgZ of ZeRO++, arXiv 2306.10209). Steps repeat it with
 * the same inputs, each rank adding what its coding lost. *out is filled at every rank.
 */
TU_API TU_MUST int tu_squeeze_run(struct tu_rank *r, const char *text, uint64_t count,
                                  uint32_t steps, uint64_t seed,
                                  struct tu_squeeze_result *out, struct tu_err *err);

/* Every pair ---------------------------------------------------------------------------
 */

/* What each rank posts: one directed pair. */
struct tu_pair {
    uint32_t from, to;
    double latency, rate; /* seconds for 8 bytes one way; bytes per second, one way */
};
/* Pair after pair, the others idle: iters round trips of 8 bytes, then iters messages of
 * `bytes` with one answer at the end. The minimum of three tries of each. */
TU_API TU_MUST int tu_pairs_run(struct tu_rank *r, uint64_t bytes, uint64_t iters,
                                struct tu_err *err);
/* cost[from × ranks + to], seconds per byte or per message; the diagonal is not read. A
 * cell over 1.5 times what its row and column lead to expect is a slow link; a whole row
 * a slow sender, a whole column a slow receiver (rank alone is set). Fewer than 3 ranks:
 * fine. */
TU_API TU_MUST int tu_pairs_judge(const double *cost, uint32_t ranks,
                                  struct tu_diagnosis *out, struct tu_err *err);

TU_END

#include "coll/pattern.h"

#endif
