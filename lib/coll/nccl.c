/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.c: transport "nccl": NCCL between the GPUs of this machine, a rank and a thread each.
 *
 * libnccl is opened when it is asked for; its functions are declared here by their
 * documented signatures. Buffers that come from `shared` are memory that host and device
 * both reach, so NCCL works in them; others are copied to the device and back, which is
 * timed too. A rank that fails leaves its peers to NCCL's own time-outs. Source: NCCL's
 * user guide, API. */
#include <dlfcn.h>
#include <tensorutils/device.h>
#include "world.h"

enum { NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG };
enum { UINT8 = 1, HOST_SCALAR = 1, ID_BYTES = 128 };

struct id {
    char bytes[ID_BYTES];
};

/* X(FIELD, RESULT, ARGUMENTS): symbol ncclFIELD. */
#define CALLS(X)                                                                         \
    X(GetVersion, int, (int *version))                                                   \
    X(GetErrorString, const char *, (int result))                                        \
    X(GetLastError, const char *, (void *comm))                                          \
    X(GetUniqueId, int, (struct id * id))                                                \
    X(CommInitRank, int, (void **comm, int ranks, struct id id, int rank))               \
    X(CommDestroy, int, (void *comm))                                                    \
    X(CommAbort, int, (void *comm))                                                      \
    X(CommGetAsyncError, int, (void *comm, int *result))                                 \
    X(AllReduce, int,                                                                    \
      (const void *in, void *out, size_t n, int type, int op, void *comm, void *queue))  \
    X(Reduce, int,                                                                       \
      (const void *in, void *out, size_t n, int type, int op, int root, void *comm,      \
       void *queue))                                                                     \
    X(Broadcast, int,                                                                    \
      (const void *in, void *out, size_t n, int type, int root, void *comm, void *queue)) \
    X(AllGather, int,                                                                    \
      (const void *in, void *out, size_t n, int type, void *comm, void *queue))          \
    X(ReduceScatter, int,                                                                \
      (const void *in, void *out, size_t n, int type, int op, void *comm, void *queue))  \
    X(Send, int, (const void *p, size_t n, int type, int peer, void *comm, void *queue)) \
    X(Recv, int, (void *p, size_t n, int type, int peer, void *comm, void *queue))       \
    X(GroupStart, int, (void))                                                           \
    X(GroupEnd, int, (void))                                                             \
    X(RedOpCreatePreMulSum, int,                                                         \
      (int *op, void *scalar, int type, int residence, void *comm))                      \
    X(RedOpDestroy, int, (int op, void *comm))

struct nccl {
    void *lib;
    const struct tu_device *device;
    struct id id;
#define FIELD(name, result, args) result(*name) args;
    CALLS(FIELD)
};

struct buffer {
    void *p;
    uint64_t bytes;
};

struct member {
    void *comm;
    struct tu_queue *queue;
    unsigned char *shared;
    struct buffer in, out; /* on the device, for memory that it does not reach */
};

static int failed(const struct nccl *n, int result, const char *what, void *comm,
                  struct tu_err *err)
{
    const char *more = n->GetLastError(comm);
    return tu_fail(err, TU_EPEER, "nccl: %s: %s%s%s", what, n->GetErrorString(result),
                   more && *more ? ": " : "", more ? more : "");
}

#define CALL(what, call)                                                                 \
    do {                                                                                 \
        int result_ = n->call;                                                           \
        if (result_)                                                                     \
            return failed(n, result_, what, m->comm, err);                               \
    } while (0)

static int load(struct nccl *n, struct tu_err *err)
{
    if (!(n->lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL)))
        return tu_fail(err, TU_EMISSING,
                       "transport 'nccl': libnccl.so.2 is not installed: the package "
                       "libnccl2 (or libnccl-dev) brings it");
#define LOAD(name, result, args)                                                         \
    if (!(*(void **)&n->name = dlsym(n->lib, "nccl" #name)))                             \
        return tu_fail(err, TU_EMISSING, "libnccl.so.2 has no nccl" #name);
    CALLS(LOAD)
    return 0;
}

static void dispose(struct tui_world *w)
{
    struct nccl *n = w->state;
    if (n && n->lib)
        dlclose(n->lib);
    tu_free(n);
}

static int prepare(struct tui_world *w, struct tu_err *err)
{
    struct nccl *n = w->state = tu_calloc(1, sizeof *n, err);
    struct tu_device_info info;
    unsigned count = 0;
    int code = n ? load(n, err) : TU_ENOMEM;
    if (!code)
        code = tu_device_open(&n->device, &info, "cuda", NULL, err);
    if (!code)
        code = n->device->count(&count, err);
    if (!code && count < w->g->size)
        code = tu_fail(err, TU_ENODEV, "nccl: %u ranks need a GPU each: %u found",
                       (unsigned)w->g->size, count);
    int result = code ? 0 : n->GetUniqueId(&n->id);
    return result ? failed(n, result, "unique id", NULL, err) : code;
}

static void leave(struct tu_rank *r)
{
    struct member *m = r->state;
    const struct nccl *n = r->w->state;
    if (!m)
        return;
    bool stopped = atomic_load(&r->w->board->stop) != 0;
    if (m->comm && (stopped ? n->CommAbort(m->comm) : n->CommDestroy(m->comm)) != 0)
        m->comm = NULL; /* nothing is left to be done about it */
    n->device->free(m->shared);
    n->device->free(m->in.p);
    n->device->free(m->out.p);
    if (m->queue)
        n->device->queue_free(m->queue);
    tu_free(m);
    r->state = NULL;
}

static int join(struct tu_rank *r, struct tu_err *err)
{
    const struct nccl *n = r->w->state;
    struct member *m = r->state = tu_calloc(1, sizeof *m, err);
    struct tu_device_info info;
    int code = m ? n->device->open(r->id, &info, err) : TU_ENOMEM;
    if (!code)
        code = n->device->queue_new(&m->queue, err);
    if (!code && r->w->g->shared)
        code = n->device->alloc_shared((void **)&m->shared, r->w->g->shared, err);
    if (code)
        return code;
    CALL("communicator", CommInitRank(&m->comm, (int)r->size, n->id, (int)r->id));
    return 0;
}

/* A rank's memory is its own: it runs no algorithm of shared memory. */
static void *shared(struct tu_rank *r, uint32_t q)
{
    return q == r->id ? ((struct member *)r->state)->shared : NULL;
}

static bool reachable(const struct tu_rank *r, const void *p, uint64_t bytes)
{
    const struct member *m = r->state;
    const unsigned char *at = p;
    return m->shared && at >= m->shared && at + bytes <= m->shared + r->w->g->shared;
}

/* The device's view of `bytes` of memory: itself, or a buffer, filled where `fill`. */
static int view(struct tu_rank *r, struct buffer *b, const void *p, uint64_t bytes, bool fill,
                void **out, struct tu_err *err)
{
    const struct tu_device *d = ((const struct nccl *)r->w->state)->device;
    struct member *m = r->state;
    if (p && reachable(r, p, bytes)) {
        memcpy(out, &p, sizeof p);
        return 0;
    }
    if (b->bytes < bytes) {
        d->free(b->p);
        *b = (struct buffer){NULL, 0};
        int code = d->alloc(&b->p, bytes, err);
        if (code)
            return code;
        b->bytes = bytes;
    }
    *out = b->p;
    return fill && bytes ? d->copy(b->p, p, bytes, m->queue, err) : 0;
}

/* Wait for the queue, then bring what is not where it was asked for. */
static int finish(struct tu_rank *r, void *to, const void *from, uint64_t bytes,
                  struct tu_err *err)
{
    const struct nccl *n = r->w->state;
    const struct member *m = r->state;
    int late = 0;
    int code =
        to && to != from && bytes ? n->device->copy(to, from, bytes, m->queue, err) : 0;
    if (!code)
        code = n->device->queue_wait(m->queue, err);
    if (!code)
        CALL("state", CommGetAsyncError(m->comm, &late));
    return late ? failed(n, late, "communicator", m->comm, err) : code;
}

static int move(struct tu_rank *r, const struct tu_move *v, struct tu_err *err)
{
    const struct nccl *n = r->w->state;
    struct member *m = r->state;
    bool sends = v->to != TU_NOBODY && v->out_bytes,
         receives = v->from != TU_NOBODY && v->in_bytes;
    void *out = NULL, *in = NULL;
    int code = sends ? view(r, &m->out, v->out, v->out_bytes, true, &out, err) : 0;
    if (!code && receives)
        code = view(r, &m->in, v->sink ? NULL : v->in, v->in_bytes, false, &in, err);
    void *held = !code && receives && v->sink ? tu_alloc((size_t)v->in_bytes, 1, err) : NULL;
    if (code || (receives && v->sink && !held))
        return code ? code : TU_ENOMEM;
    int bad = n->GroupStart();
    if (!bad && sends)
        bad = n->Send(out, (size_t)v->out_bytes, UINT8, (int)v->to, m->comm, m->queue);
    if (!bad && receives)
        bad = n->Recv(in, (size_t)v->in_bytes, UINT8, (int)v->from, m->comm, m->queue);
    int end = n->GroupEnd();
    code = bad || end ? failed(n, bad ? bad : end, "send and receive", m->comm, err)
                      : finish(r, receives ? (held ? held : v->in) : NULL, in, v->in_bytes, err);
    if (!code && held)
        v->sink(v->ctx, 0, held, v->in_bytes);
    tu_free(held);
    return code;
}

/* A sum of one byte from each. */
static int barrier(struct tu_rank *r, struct tu_err *err)
{
    const struct nccl *n = r->w->state;
    struct member *m = r->state;
    unsigned char byte = 0;
    void *in, *out;
    int code = view(r, &m->in, &byte, 1, true, &in, err);
    if (!code)
        code = view(r, &m->out, NULL, 1, false, &out, err);
    if (code)
        return code;
    CALL("barrier", AllReduce(in, out, 1, UINT8, NCCL_SUM, m->comm, m->queue));
    return finish(r, NULL, NULL, 0, err);
}

/* Whole collectives -------------------------------------------------------------------- */

static int type_of(uint32_t dtype)
{
    static const uint32_t type[] = {TU_I8,  TU_U8,  TU_I32, TU_U32,  TU_I64,       TU_U64,
                                    TU_F16, TU_F32, TU_F64, TU_BF16, TU_F8_E4M3FN, TU_F8_E5M2};
    for (int i = 0; i < 12; i++)
        if (type[i] == dtype)
            return i;
    return -1;
}

static bool has(enum tu_collective c, uint32_t dtype)
{
    return type_of(dtype) >= 0 &&
           (c == TU_ALLREDUCE || c == TU_REDUCE_SCATTER || c == TU_ALLGATHER ||
            c == TU_ALLTOALL || c == TU_BROADCAST || c == TU_REDUCE);
}

static int all_to_all(const struct nccl *n, const struct tu_rank *r, const void *in, void *out,
                      uint64_t count, uint64_t size, int type)
{
    const struct member *m = r->state;
    int bad = n->GroupStart();
    for (uint32_t q = 0; q < r->size && !bad; q++) {
        uint64_t at = q * count * size;
        bad = n->Send((const char *)in + at, (size_t)count, type, (int)q, m->comm, m->queue);
        if (!bad)
            bad = n->Recv((char *)out + at, (size_t)count, type, (int)q, m->comm, m->queue);
    }
    int end = n->GroupEnd();
    return bad ? bad : end;
}

static int start(const struct nccl *n, const struct tu_rank *r, const struct tui_native *c,
                 const void *in, void *out, int op, uint64_t size)
{
    void *comm = ((const struct member *)r->state)->comm,
         *queue = ((const struct member *)r->state)->queue;
    size_t count = (size_t)c->count;
    int type = type_of(c->dtype), root = (int)c->root;
    switch (c->coll) {
    case TU_ALLREDUCE: return n->AllReduce(in, out, count, type, op, comm, queue);
    case TU_REDUCE_SCATTER: return n->ReduceScatter(in, out, count, type, op, comm, queue);
    case TU_ALLGATHER: return n->AllGather(in, out, count, type, comm, queue);
    case TU_BROADCAST: return n->Broadcast(in, out, count, type, root, comm, queue);
    case TU_REDUCE: return n->Reduce(in, out, count, type, op, root, comm, queue);
    default: return all_to_all(n, r, in, out, c->count, size, type);
    }
}

static int collective(struct tu_rank *r, const struct tui_native *c, struct tu_err *err)
{
    static const int ops[] = {NCCL_SUM, NCCL_PROD, NCCL_MIN, NCCL_MAX, NCCL_AVG};
    const struct nccl *n = r->w->state;
    struct member *m = r->state;
    const struct tu_collective_row *row = &tu_collective_rows[c->coll];
    uint64_t size = tu_dtype_find(c->dtype)->block_bytes, each = c->count * size;
    uint64_t in_bytes = each * (row->in == 2 ? r->size : 1),
             out_bytes = each * (row->out == 2 ? r->size : 1);
    void *in, *out;
    unsigned char scalar[16];
    int op = c->op == TU_PREMUL ? 0 : ops[c->op];
    /* A rank's whole output is written, but for a reduction's at others than the root. */
    bool mine = c->coll != TU_REDUCE || c->root == r->id;
    int code = view(r, &m->in, c->in, in_bytes, true, &in, err);
    if (!code)
        code = view(r, &m->out, c->out, out_bytes, false, &out, err);
    if (!code && row->reduces && c->op == TU_PREMUL)
        code = tu_from_double(c->dtype, scalar, &c->premul, 1, err);
    if (code)
        return code;
    if (row->reduces && c->op == TU_PREMUL)
        CALL("operator", RedOpCreatePreMulSum(&op, scalar, type_of(c->dtype), HOST_SCALAR,
                                              m->comm));
    int bad = start(n, r, c, in, out, op, size);
    code = bad ? failed(n, bad, row->name, m->comm, err)
               : finish(r, mine ? c->out : NULL, out, out_bytes, err);
    if (row->reduces && c->op == TU_PREMUL)
        CALL("operator", RedOpDestroy(op, m->comm));
    return code;
}

static const char *const no_keys[] = {NULL};

static const struct tu_transport_ops ops = {.threads = true,
                                            .prepare = prepare,
                                            .dispose = dispose,
                                            .join = join,
                                            .leave = leave,
                                            .move = move,
                                            .barrier = barrier,
                                            .shared = shared,
                                            .has = has,
                                            .collective = collective};

const struct tu_transport tui_transport_nccl = {
    .name = "nccl",
    .help = "NCCL between GPUs, a rank each; 'auto' is NCCL's own collective",
    .key = no_keys,
    .plugin = "cuda",
    .ops = &ops,
};
