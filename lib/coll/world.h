/* SPDX-License-Identifier: Apache-2.0 */
/* world.h: what the launcher, the ranks and the transports share.
 *
 * The world is made before the ranks are started and is inherited (processes) or shared
 * (threads). The board is memory that all ranks of this machine see: who runs, who waits
 * for whom, who was lost. A seat has one writer, its rank; `stop`, once set, never
 * changes. */
#ifndef TENSORUTILS_COLL_WORLD_H
#define TENSORUTILS_COLL_WORLD_H

#include <stdatomic.h>
#include <sys/types.h>
#include <tensorutils/coll.h>

enum tui_state { TUI_IDLE, TUI_RUNNING, TUI_DONE };

struct tui_seat {
    _Alignas(
        64) _Atomic uint64_t beat; /* grows while the rank runs or waits in the library */
    _Atomic uint64_t seq;          /* operations begun */
    _Atomic uint32_t waits_for;    /* rank + 1, 0: nobody */
    _Atomic uint32_t state;
    pid_t pid;
    struct tu_err err; /* valid when done */
};

struct tui_board {
    _Atomic uint32_t stop; /* rank + 1 that failed or was lost first */
    _Atomic uint32_t lost; /* rank + 1 that ended without leaving its result */
    int lost_status;       /* of waitpid; valid when lost */
    struct tui_seat seat[];
};

struct tui_world {
    const struct tu_group *g;
    const struct tu_transport *row;
    struct tui_board *board;
    size_t board_bytes;
    int pipe[2];      /* posts: ranks write, the launcher reads */
    bool threads;     /* ranks are threads of one process */
    bool launched;    /* this process is one rank among others that we did not start */
    unsigned spin;    /* turns to wait busily before the CPU is given away */
    uint64_t timeout; /* ns */
    void *state;      /* the transport's */
};

struct tu_rank {
    struct tui_world *w;
    uint32_t id, size;
    struct tui_seat *seat;
    struct tu_traffic traffic;
    struct tu_seen *seen;
    uint64_t turn; /* small vectors laid out so far (alg_fused.c) */
    /* Bit i: fault i of the group. due: it acts on the messages of this operation. */
    uint64_t due, played;
    void *state;   /* the transport's */
};

/* A whole collective, as the transport's library has it. */
struct tui_native {
    enum tu_collective coll;
    enum tu_op op;
    uint32_t dtype, root;
    uint64_t count; /* as tu_plan counts */
    double premul;
    const void *in;
    void *out;
};

struct tu_transport_ops {
    bool threads;
    /* Before the ranks start; dispose undoes it after they ended, also when prepare
     * failed. */
    int (*prepare)(struct tui_world *w, struct tu_err *err);
    void (*dispose)(struct tui_world *w);
    /* In the rank. */
    int (*join)(struct tu_rank *r, struct tu_err *err);
    void (*leave)(struct tu_rank *r);
    int (*move)(struct tu_rank *r, const struct tu_move *m, struct tu_err *err);
    int (*barrier)(struct tu_rank *r, struct tu_err *err); /* NULL: by messages */
    void *(*shared)(struct tu_rank *r, uint32_t q);        /* NULL: none */
    /* Collectives of its own; NULL: none. */
    bool (*has)(enum tu_collective c, uint32_t dtype);
    int (*collective)(struct tu_rank *r, const struct tui_native *c, struct tu_err *err);
};

/* Waiting. */
struct tui_wait {
    uint64_t turns, since;
    uint32_t peer; /* TU_NOBODY: several */
};
/* Nothing moved: be patient. TU_EPEER when the group has stopped, TU_ETIMEOUT when it is
 * too late. */
int tui_wait(struct tu_rank *r, struct tui_wait *w, struct tu_err *err);
/* Something moved again. */
void tui_wait_end(struct tu_rank *r, struct tui_wait *w, uint32_t peer);
uint64_t tui_now(void);
/* Zeroed memory that is inherited by fork and seen by all; NULL with *err filled. */
void *tui_share(size_t bytes, struct tu_err *err);
void tui_unshare(void *p, size_t bytes);

/* launch.c: start the ranks of a prepared world and wait. */
int tui_launch(struct tui_world *w, struct tu_err *err);
/* In the rank's own process or thread: join, run, leave, fill the seat. */
int tui_rank_main(struct tui_world *w, uint32_t id);
/* lanes.c: memory through which a rank hands its peers whole vectors. bytes per rank. */
#define TUI_STAGE ((uint64_t)1 << 20)
void *tui_lanes_stage(struct tu_rank *r, uint32_t q);
bool tui_has_lanes(const struct tu_rank *r);
/* fault.c: play what is due at the operation that begins. */
int tui_fault_begin(struct tu_rank *r, uint64_t op, struct tu_err *err);
void tui_fault_link(struct tu_rank *r, uint32_t to, uint64_t bytes);
/* Is what this rank sends now to be damaged? */
bool tui_fault_flips(struct tu_rank *r);
/* Does a fault of the group act on messages? What passes none must not run then. */
bool tui_fault_needs_messages(const struct tu_group *g);
/* The rank is done: a fault of its own that was never played is TU_EUSAGE. */
int tui_fault_end(const struct tu_rank *r, struct tu_err *err);

extern const struct tu_transport tui_transport_threads, tui_transport_shm,
    tui_transport_tcp, tui_transport_mpi, tui_transport_nccl;

#endif
