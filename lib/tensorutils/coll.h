/* SPDX-License-Identifier: Apache-2.0 */
/* coll.h: collectives as algorithms over a transport.
 *
 * An algorithm is a program of sends, receives and reductions written once; a transport moves its
 * bytes between ranks (threads, shared memory, TCP, MPI, NCCL) or only counts time (simulator).
 * May change before 1.0. */
#ifndef TENSORUTILS_COLL_H
#define TENSORUTILS_COLL_H

#include "core.h"
#include "device.h"

TU_BEGIN

struct tu_rank; /* one member of a group, made by a transport */

struct tu_group {
    uint32_t rank, size;
    uint64_t bytes_sent, messages; /* counted by the transport, to compare with the formula */
};

/* A row: a transport is this and one file (or plug-in). Blocking calls; a lost peer is TU_EPEER, a
 * silent one TU_ETIMEOUT. Ranks are forked before the first thread exists. */
struct tu_transport {
    const char *name, *help;
    const char *const *key; /* keys of its spec */
    /* Start `size` ranks and run fn in each; returns the worst result. launched: the processes exist
     * already (mpirun, srun) and this is one of them. */
    int (*run)(const struct tu_spec *spec, uint32_t size, int (*fn)(struct tu_rank *r, void *ctx),
               void *ctx, struct tu_err *err);
    const struct tu_group *(*group)(struct tu_rank *r);
    int (*send)(struct tu_rank *r, uint32_t to, const void *p, uint64_t n, struct tu_err *err);
    int (*recv)(struct tu_rank *r, uint32_t from, void *p, uint64_t n, struct tu_err *err);
    /* Both at once, without deadlock. */
    int (*sendrecv)(struct tu_rank *r, uint32_t to, const void *sp, uint64_t sn, uint32_t from,
                    void *rp, uint64_t rn, struct tu_err *err);
    int (*barrier)(struct tu_rank *r, struct tu_err *err);
};
TU_API extern const struct tu_transport *const tu_transports[];
TU_API const struct tu_transport *tu_transport_find(const char *name);

/* A collective algorithm's row. */
struct tu_coll_args {
    struct tu_rank *rank;
    const struct tu_transport *transport;
    uint32_t dtype;
    uint64_t count;  /* elements of the whole buffer */
    void *buf;       /* in place */
    const struct tu_spec *spec;
};
struct tu_algorithm {
    const char *name, *help, *source;
    const char *collective; /* "allreduce", "allgather", … */
    const char *const *key;
    int (*legal)(uint32_t ranks, uint64_t count, struct tu_err *err);
    int (*run)(const struct tu_coll_args *a, struct tu_err *err);
    /* Bytes that each rank sends, and steps, by the paper's formula. */
    double (*bytes)(uint32_t ranks, double buffer_bytes);
    double (*steps)(uint32_t ranks);
};
TU_API extern const struct tu_algorithm *const tu_algorithms[];

TU_END

#endif
