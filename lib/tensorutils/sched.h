/* SPDX-License-Identifier: Apache-2.0 */
/* sched.h: pipeline schedules: made, simulated, verified, improved, drawn.
 *
 * A schedule is, for each rank, a sequence of operations (forward, backward, input
 * gradient, weight gradient, transfers, …) on (stage, micro-batch) in the order in which
 * the rank runs them, and a map from stages to ranks. Order only: times come from the
 * simulator, which is exact: durations are int64 ticks of one unit chosen by the caller.
 * May change before 1.0.
 *
 * Words: p ranks, m micro-batches, v chunks (stages of one pipeline on one rank). A
 * schedule with two pipelines (Chimera, DualPipe) numbers the stages of the second one S
 * … 2S-1; each micro-batch travels through one of them. A unit is a micro-batch, or a
 * sequence slice of one where there are several. */
#ifndef TENSORUTILS_SCHED_H
#define TENSORUTILS_SCHED_H

#include "core.h"
#include "draw.h"
#include "stream.h"

TU_BEGIN

/* Operations ----------------------------------------------------------------------------
 */

/* X(NAME, "letters in files", "what it is") */
#define TU_OP_TABLE(X)                                                                   \
    X(F, "F", "forward")                                                                 \
    X(B, "B", "full backward")                                                           \
    X(I, "I", "input gradient")                                                          \
    X(W, "W", "weight gradient")                                                         \
    X(R, "R", "recompute forward")                                                       \
    X(OPT, "OPT", "optimizer step")                                                      \
    X(SEND_F, "SEND_F", "send activation")                                               \
    X(RECV_F, "RECV_F", "receive activation")                                            \
    X(SEND_B, "SEND_B", "send gradient")                                                 \
    X(RECV_B, "RECV_B", "receive gradient")                                              \
    X(UNSHARD, "UNSHARD", "gather parameters")                                           \
    X(RESHARD, "RESHARD", "free gathered parameters")                                    \
    X(REDUCE, "REDUCE_GRAD", "reduce gradients")                                         \
    X(OFFLOAD, "OFFLOAD", "activation to host")                                          \
    X(FETCH, "FETCH", "activation from host")
enum tu_op_kind {
#define TU_OP_CODE(NAME, text, help) TU_OP_##NAME,
    TU_OP_TABLE(TU_OP_CODE)
#undef TU_OP_CODE
        TU_OP_KINDS
};

struct tu_op {
    uint8_t kind;   /* enum tu_op_kind */
    uint8_t flags;  /* TU_OP_PAIRED */
    uint16_t slice; /* sequence slice, else 0 */
    uint32_t stage; /* 0 … pipelines·stages-1 */
    uint32_t mb;    /* micro-batch; 0 where it has no meaning (UNSHARD, OPT, …) */
};
#define TU_OP_PAIRED 1 /* runs overlapped with the next operation of its rank: (F;B) */

/* Which operations wait for which. */
enum tu_deps {
    TU_DEPS_TRAIN,    /* forward, then backward */
    TU_DEPS_FORWARD,  /* forward only: inference; batches follow one another freely */
    TU_DEPS_BLOCKING, /* forward only; a batch enters when the one before it is out */
    TU_DEPS_DIFFUSION, /* forward only; after `warm` steps all stages work at once on what
                          the step before left (AsyncDiff) */
};

/* Which weights a micro-batch meets in a schedule without a flush. */
enum tu_weights {
    TU_WEIGHTS_STASHED,  /* in its backward those of its forward */
    TU_WEIGHTS_VERTICAL, /* on all stages those that the first had when it came in */
    TU_WEIGHTS_DOUBLE,   /* those of two batches ago: two versions (2BW) */
};

struct tu_sched {
    char name[32]; /* of the row that made it, or "" */
    uint32_t ranks, stages, pipelines, microbatches, slices;
    enum tu_deps deps;
    bool async;      /* no flush: weights are updated while the step goes on (PipeDream) */
    enum tu_weights weights; /* async only */
    uint32_t accumulate;     /* async only: backwards of a stage to an update, ≥ 1 */
    uint32_t warm, stride; /* TU_DEPS_DIFFUSION only; with stride 2 the last stage repeats
                              the one before it for the earlier step of a pair */
    uint32_t *place; /* [pipelines·stages]: rank of each stage */
    struct tu_op **op; /* [ranks][n[rank]] */
    size_t *n, *cap;   /* [ranks] */
};

#define TU_SCHED_MAX 65535u /* most ranks, stages, micro-batches, chunks */
#define TU_SCHED_OPS_MAX ((uint64_t)1 << 27) /* most units times stages */

TU_API void tu_sched_free(struct tu_sched *s);
/* Operations of all ranks. */
TU_API size_t tu_sched_ops(const struct tu_sched *s);
/* "0F0", "12W31", "3UNSHARD", "0F1.2" (slice 2). out[40]. */
TU_API const char *tu_op_text(const struct tu_op *op, uint32_t slices, char out[40]);
/* "loop", "v", "linear", "wave", "bidirectional" or "custom". */
TU_API const char *tu_sched_placement(const struct tu_sched *s);
TU_API const char *tu_op_name(unsigned kind); /* letters in files */
/* Stages of one pipeline on the rank that has most. */
TU_API uint32_t tu_sched_chunks(const struct tu_sched *s);

/* Costs ---------------------------------------------------------------------------------
 */

enum tu_mem_release { TU_MEM_AT_W, TU_MEM_SPLIT };

/* Durations in ticks, memory in tick-like units; all exact. Zero is legal. */
struct tu_cost {
    char unit[4];              /* "ns" "us" "ms" "s" or "" */
    int64_t scale;             /* ticks in one unit, > 0 */
    int64_t time[TU_OP_KINDS]; /* for a whole stage; B < 0: I + W */
    int64_t pair;              /* an overlapped (F;B); < 0: F + B */
    int64_t transfer[2];       /* activation, gradient, between two ranks */
    uint32_t stages;           /* rows of stage_time, 0: none */
    int64_t *stage_time;       /* [TU_OP_W+1][stages], -1: the default */
    uint32_t microbatches;     /* rows of weight, 0: none */
    int64_t *weight;           /* [microbatches]: factor of every compute time */
    int64_t weight_one;        /* the weight of a micro-batch without a row */
    uint32_t arrivals;         /* rows of arrive, 0: none */
    int64_t *arrive;           /* [arrivals]: the first stage may not start before */
    uint32_t ranks;            /* of link, 0: none */
    int64_t *link;             /* [ranks][ranks]: time of a transfer, -1: the default */
    int64_t mem_unit; /* memory units in the activation of one stage share (M_B) */
    int64_t mem_b,
        mem_w;        /* of one chunk: kept by F, needed by W; 0, 0: mem_unit/v, half */
    int64_t mem_ckpt; /* of one chunk with recomputation: kept from F to R */
    enum tu_mem_release release;
    bool contend;  /* transfers of one sender to one receiver follow one another */
    bool blocking; /* a rank is busy while it sends */
    bool barrier; /* the step ends for all ranks at once: objective makespan, else span */
};

TU_API void tu_cost_init(struct tu_cost *c); /* F = I = W = 1, no transfer time */
TU_API void tu_cost_release(struct tu_cost *c);
TU_API TU_MUST int tu_cost_copy(struct tu_cost *out, const struct tu_cost *c,
                                struct tu_err *err);
/* "F=1,I=1,W=1,C=0.5": keys F I W B FB (an overlapped pair) R OPT C CF CB (transfer)
 * UNSHARD REDUCE OFFLOAD FETCH and `unit`. B alone means I = W = B/2. Decimals are scaled
 * exactly. `share` > 1: compute times are of a rank's whole share and are divided by it.
 * TU_EUSAGE. */
TU_API TU_MUST int tu_cost_parse(struct tu_cost *c, const char *text, uint32_t share,
                                 struct tu_err *err);
/* Does a key of tu_cost_parse have an effect on when this schedule's operations run? */
TU_API bool tu_cost_matters(const struct tu_sched *s, const char *key);
/* TU_EFORMAT, naming the first, when the cost has times of stages, micro-batches or ranks that
 * the schedule does not have. */
TU_API TU_MUST int tu_cost_fits(const struct tu_cost *c, const struct tu_sched *s,
                                struct tu_err *err);
/* Times so far are of a rank's whole share: those of compute are divided among n chunks,
 * exactly. */
TU_API TU_MUST int tu_cost_share(struct tu_cost *c, uint32_t n, struct tu_err *err);
/* "B=1,W=0.5,CKPT=0.1": memory of a rank's whole share in M_B, divided among its chunks.
 */
TU_API TU_MUST int tu_cost_memory(struct tu_cost *c, const char *text, uint32_t chunks,
                                  struct tu_err *err);
/* Memory units in M_B, the activation of a rank's whole share of one micro-batch. */
TU_API int64_t tu_cost_unit(const struct tu_cost *c, uint32_t chunks);
/* Lines "KIND,STAGE,TIME" in the cost's unit (header and # comments skipped); KIND one of
 * F I W B (B alone means I = W = B/2), or mb (STAGE is a micro-batch, TIME its weight), arrive
 * (a micro-batch and its time) or link ("link,FROM,TO,TIME"). */
TU_API TU_MUST int tu_cost_times(struct tu_cost *c, const char *text, size_t n,
                                 struct tu_err *err);
/* The same from a trace of Chrome's format: the mean duration of events named as
 * operations. */
TU_API TU_MUST int tu_cost_trace(struct tu_cost *c, const char *text, size_t n,
                                 struct tu_err *err);
/* The lines of stages are of a model's, of `ranks` stages or of more where there are such: make
 * them those of a schedule of ranks·chunks stages in each pipeline. A line is divided among its
 * stages and slices, or lines are added up. Errors: TU_EUSAGE where neither goes. */
TU_API TU_MUST int tu_cost_spread(struct tu_cost *c, uint32_t ranks, uint32_t chunks,
                                  uint32_t slices, uint32_t pipelines, struct tu_err *err);
/* A step as it was measured: its operations, ns from the first start. */
struct tu_measured_op {
    uint8_t kind; /* F, B, I or W */
    uint32_t stage, mb;
    int64_t start, end;
};
struct tu_measured {
    struct tu_measured_op *op;
    size_t n;
};
/* From a trace of Chrome's format. Errors: TU_EFORMAT when it has no operation. */
TU_API TU_MUST int tu_measured_read(struct tu_measured *out, const char *text, size_t n,
                                    struct tu_err *err);
TU_API void tu_measured_release(struct tu_measured *m);
/* Each stage gets the mean of what was measured. */
TU_API TU_MUST int tu_cost_measured(struct tu_cost *c, const struct tu_measured *m,
                                    struct tu_err *err);
/* Ticks that an operation takes. */
TU_API int64_t tu_cost_time(const struct tu_cost *c, unsigned kind, uint32_t stage,
                            uint32_t mb);
TU_API int64_t tu_cost_transfer(const struct tu_cost *c, bool backward, uint32_t from,
                                uint32_t to);
/* ticks / scale as exact decimals where they end within nine places. out[40]. */
TU_API const char *tu_ticks_text(int64_t ticks, int64_t scale, char out[40]);
/* Decimal text to (value, scale): "1.25" is 125/100. TU_EUSAGE. */
TU_API TU_MUST int tu_decimal(const char *s, int64_t *value, int64_t *scale,
                              struct tu_err *err);

/* Simulation and verification
 * ------------------------------------------------------------ */

struct tu_sim {
    size_t ops;
    uint32_t ranks;
    size_t *base;         /* [ranks+1]: number of each rank's first operation */
    int64_t *start, *end; /* [ops], ticks */
    int64_t makespan;     /* last end; the step starts at 0 */
    int64_t span;         /* longest time from a rank's first start to its last end */
    int64_t ideal;        /* busiest rank */
    int64_t sent;         /* transfers between ranks */
    int64_t *busy, *first, *last; /* [ranks] */
    int64_t *blocked;             /* [ranks]: waiting inside RECV operations */
    int64_t *peak;                /* [ranks], memory units */
    int64_t mem_unit;
    uint32_t *versions;  /* [ranks]: weight versions alive at once, async only, else 1 */
    uint32_t *staleness; /* [ranks]: most updates between a forward and its backward */
};

/* Run the schedule as soon as possible. A schedule that parses but is not valid gives 0
 * with *faults > 0 and one line for each fault in `report` (rank, position, operation,
 * reason); a deadlock lists each rank's next operation and what it waits for. report may
 * be NULL. Errors: TU_ENOMEM; TU_ESIZE when the times could overflow. */
TU_API TU_MUST int tu_sim_run(struct tu_sim *out, const struct tu_sched *s,
                              const struct tu_cost *c, struct tu_buf *report,
                              size_t *faults, struct tu_err *err);
TU_API void tu_sim_release(struct tu_sim *r);
/* Bubble over the objective (makespan with a barrier, else span). */
TU_API double tu_sim_bubble(const struct tu_sim *r, bool makespan);
/* No order of the same operations in this placement takes less, whatever memory it has: span, or
 * makespan with a barrier. */
TU_API TU_MUST int tu_sim_bound(int64_t *bound, const struct tu_sim *r, const struct tu_sched *s,
                                const struct tu_cost *c, struct tu_err *err);
/* Memory of one rank over time: *n points (time, units), the caller frees both. */
TU_API TU_MUST int tu_sim_memory(const struct tu_sim *r, const struct tu_sched *s,
                                 const struct tu_cost *c, uint32_t rank, int64_t **time,
                                 int64_t **units, size_t *n, struct tu_err *err);

/* Families ------------------------------------------------------------------------------
 */

struct tu_sched_params {
    uint32_t p, m, v;           /* ranks, micro-batches, chunks per rank (0: the row's) */
    const struct tu_spec *spec; /* the schedule's own keys, NULL: none */
    const struct tu_cost *cost; /* for rows that search; NULL: all times 1 */
    int64_t cap;                /* memory units on each rank; 0: none */
};

/* A row: a schedule is this and a place in the file of its family. */
struct tu_schedule {
    const char *name, *help;
    const char *source;              /* paper, year */
    uint32_t chunks_min, chunks_max; /* legal v */
    const char *const *key;          /* keys of its spec, NULL-ended, or NULL */
    /* Further rules. TU_EUSAGE with the legal values otherwise. NULL: none. */
    int (*legal)(const struct tu_sched_params *q, struct tu_err *err);
    int (*make)(struct tu_sched **out, const struct tu_sched_params *q,
                struct tu_err *err);
    const char *const *rank; /* names of its ranks where they are no devices, NULL-ended,
                                or NULL */
    bool caps;               /* it keeps to tu_sched_params.cap, and looks at the times */
    bool timed;              /* its order depends on the times, too */
    const char *pieces;      /* what its micro-batches are, NULL: that */
    uint32_t chunks;         /* default of v; 0: chunks_min */
    bool grouped;            /* of its key `group` fewer than p are legal, but slow */
};
TU_API extern const struct tu_schedule *const tu_schedules[]; /* NULL-ended */
TU_API const struct tu_schedule *tu_schedule_find(const char *name);
/* What a rank of the schedule is called in pictures: "rank 3", or the row's own name. */
TU_API const char *tu_sched_rank_name(const struct tu_sched *s, uint32_t rank,
                                      char out[24]);
/* Chunks of a rank: q->v, the key `chunks` that every row's spec may have, or the row's
 * default. TU_EUSAGE when the two differ, and for keys that the row does not have. */
TU_API TU_MUST int tu_schedule_chunks(uint32_t *v, const struct tu_schedule *row,
                                      const struct tu_sched_params *q, struct tu_err *err);
/* Check everything, make it, name it. Errors: TU_EUSAGE; TU_ESIZE as tu_sim_run. */
TU_API TU_MUST int tu_schedule_make(struct tu_sched **out, const struct tu_schedule *row,
                                    const struct tu_sched_params *q, struct tu_err *err);

/* Communication --------------------------------------------------------------------- */

struct tu_lower {
    bool merge; /* an I directly followed by its W becomes a B first, as torch 2.5 did */
    bool recompute; /* F keeps a checkpoint, R stands before each backward */
    bool offload;   /* activations go to the host behind F and come back before use */
    uint32_t
        depth; /* stages gathered ahead (UNSHARD, RESHARD, REDUCE_GRAD); 0: none, those that
                  are there stay */
    bool transfers; /* SEND and RECV */
    bool late;      /* a RECV directly before its consumer, else as soon as it is sent */
};
/* Write communication down. Errors: TU_EUSAGE when it is there already or s is not
 * valid. */
TU_API TU_MUST int tu_sched_lower(struct tu_sched **out, const struct tu_sched *s,
                                  const struct tu_lower *how, struct tu_err *err);
/* The compute operations alone. */
TU_API TU_MUST int tu_sched_strip(struct tu_sched **out, const struct tu_sched *s,
                                  struct tu_err *err);

/* Search ---------------------------------------------------------------------------- */

struct tu_optimize {
    const struct tu_sched_params *q; /* p, m, v, cost, cap; v stages of a rank */
    bool snake;                      /* V and waves, else a loop */
    bool timed;       /* the least memory that keeps to time_cap; q->cap is not used */
    int64_t time_cap; /* ticks */
    uint64_t effort; /* states looked at, at most */
    uint64_t seed;
    const struct tu_job *job; /* its progress counts states and moves; NULL: none */
};
struct tu_optimized {
    struct tu_sched *sched; /* the caller's */
    int64_t value;          /* span, or makespan with a barrier */
    int64_t bound; /* nothing is better; with a time cap: of cap, not of value */
    bool optimal;  /* proven */
    int64_t cap;   /* memory units that it keeps to, 0: none */
    uint64_t states;
    const char *method; /* what found it */
};
/* Every backward is split in I and W. Errors: TU_EUSAGE when nothing fits. */
TU_API TU_MUST int tu_sched_optimize(struct tu_optimized *out,
                                     const struct tu_optimize *how, struct tu_err *err);
/* The same question as an integer program in LP format, and a solver's answer to it. */
TU_API TU_MUST int tu_optimize_lp(struct tu_buf *out, const struct tu_optimize *how,
                                  struct tu_err *err);
TU_API TU_MUST int tu_optimize_solution(struct tu_optimized *out,
                                        const struct tu_optimize *how, const char *text,
                                        size_t n, struct tu_err *err);

/* Files ---------------------------------------------------------------------------------
 */

/* What a file without a head does not say. 0: taken from the file. */
struct tu_sched_hint {
    uint32_t ranks, stages, microbatches, pipelines;
    bool old_b; /* torch ≤ 2.5: B is the input gradient where a W for it exists; a BW,
                   which is full, says so by itself */
};

/* A form of a schedule. */
struct tu_sched_form {
    const char *name, *help;
    /* Does the text look like this form? NULL: never guessed. */
    bool (*sniff)(const char *text, size_t n);
    /* NULL: cannot be read. The cost is filled where the form holds one. */
    int (*read)(struct tu_sched **out, struct tu_cost *c, const char *text, size_t n,
                const struct tu_sched_hint *hint, struct tu_err *err);
    /* NULL: cannot be written. `sim` is given when needs_sim. */
    int (*write)(struct tu_buf *out, const struct tu_sched *s, const struct tu_cost *c,
                 const struct tu_sim *sim, struct tu_err *err);
    bool needs_sim;
    const char *suffix; /* of a file's name, without the dot; NULL: no name says it */
    bool order_only;    /* it has no place for times */
};
TU_API extern const struct tu_sched_form *const tu_sched_forms[]; /* NULL-ended */
/* A segment of a tensor stream: META "sched", sched.ops int32 [n,6], with sim sched.times
 * int64 [n,2]; ended. And back from the first segment of one. */
TU_API TU_MUST int tu_sched_to_stream(struct tu_writer *w, const struct tu_sched *s,
                                      const struct tu_cost *c, const struct tu_sim *sim,
                                      struct tu_err *err);
TU_API TU_MUST int tu_sched_from_stream(struct tu_sched **out, struct tu_cost *c,
                                        struct tu_reader *r, struct tu_err *err);
/* The form "svg", with a measured step (NULL: none) below the simulated one of each rank;
 * the cost's unit must be ns, us, ms or s then. */
TU_API TU_MUST int tu_sched_svg(struct tu_buf *out, const struct tu_sched *s,
                                const struct tu_cost *c, const struct tu_sim *sim,
                                const struct tu_measured *over, struct tu_err *err);
/* The form "text", in colour on request, in lines of `width` characters (0: of any). */
TU_API TU_MUST int tu_sched_grid(struct tu_buf *out, const struct tu_sched *s,
                                 const struct tu_sim *sim, bool colour, size_t width,
                                 struct tu_err *err);
TU_API const struct tu_sched_form *tu_sched_form_find(const char *name);
/* Read by name, or by looks when form is NULL. Errors: TU_EFORMAT with rank, column,
 * text. */
TU_API TU_MUST int tu_sched_read(struct tu_sched **out, struct tu_cost *c,
                                 const char *text, size_t n,
                                 const struct tu_sched_form *form,
                                 const struct tu_sched_hint *hint, struct tu_err *err);

TU_END

#endif
