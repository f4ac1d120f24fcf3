/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.c: a libnccl for machines without GPUs: all ranks are threads of this process, memory is
 * the host's, a call returns when it is done. Sums go by lib/coll's own fold, so what is tested
 * is the transport's use of NCCL, not NCCL. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <tensorutils/coll.h>

enum { RANKS = 64, QUEUE = 256 };
enum kind { SEND, RECV };

struct post {
    const void *p;
    size_t n;
    bool taken;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int ranks, arrived, left;
    unsigned turn;
    const void *in[RANKS];
    struct post post[RANKS][RANKS]; /* from, to */
} world = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

struct comm {
    int rank;
    double premul;
};

static _Thread_local struct {
    int depth, n;
    struct {
        enum kind kind;
        const void *p;
        size_t bytes;
        int peer, rank;
    } call[QUEUE];
} group;

#define API __attribute__((visibility("default")))

/* All ranks meet. */
static void meet(void)
{
    pthread_mutex_lock(&world.lock);
    unsigned turn = world.turn;
    if (++world.arrived == world.ranks) {
        world.arrived = 0;
        world.turn++;
        pthread_cond_broadcast(&world.moved);
    }
    while (world.turn == turn)
        pthread_cond_wait(&world.moved, &world.lock);
    pthread_mutex_unlock(&world.lock);
}

static const uint32_t types[] = {TU_I8,  TU_U8,  TU_I32, TU_U32,  TU_I64,       TU_U64,
                                 TU_F16, TU_F32, TU_F64, TU_BF16, TU_F8_E4M3FN, TU_F8_E5M2};

static size_t size_of(int type)
{
    return tu_dtype_find(types[type])->block_bytes;
}

/* d = fold of everybody's in, from `at` on. */
static int fold(const struct comm *c, void *d, size_t at, size_t n, int type, int op)
{
    static const enum tu_op ops[] = {TU_SUM, TU_PROD, TU_MAX, TU_MIN, TU_SUM, TU_SUM};
    const void *src[RANKS];
    void *own[RANKS] = {NULL};
    size_t size = size_of(type);
    for (int r = 0; r < world.ranks; r++) {
        src[r] = (const char *)world.in[r] + at * size;
        if (op == 5) {
            src[r] = memcpy(own[r] = malloc(n * size + 1), src[r], n * size);
            tu_reduce_scale(types[type], own[r], n, c->premul);
        }
    }
    void *to = malloc(n * size + 1);
    int rc = tu_combine(to, src, (uint32_t)world.ranks, n, types[type], ops[op], TU_ORDER_ANY, NULL);
    if (op == 4)
        tu_reduce_scale(types[type], to, n, 1.0 / world.ranks);
    meet(); /* nobody reads any more */
    if (d)
        memcpy(d, to, n * size);
    free(to);
    for (int r = 0; r < world.ranks; r++)
        free(own[r]);
    return rc ? 3 : 0;
}

static void show(const struct comm *c, const void *in)
{
    world.in[c->rank] = in;
    meet();
}

API int ncclGetVersion(int *version);
API int ncclGetVersion(int *version)
{
    *version = 22800;
    return 0;
}

API const char *ncclGetErrorString(int result);
API const char *ncclGetErrorString(int result)
{
    return result == 4 ? "invalid argument" : result ? "internal error" : "no error";
}

API const char *ncclGetLastError(void *comm);
API const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return "";
}

struct id {
    char bytes[128];
};

API int ncclGetUniqueId(struct id *id);
API int ncclGetUniqueId(struct id *id)
{
    memset(id, 7, sizeof *id);
    return getenv("NCCL_STANDIN_FAILS") ? 3 : 0;
}

API int ncclCommInitRank(void **comm, int ranks, struct id id, int rank);
API int ncclCommInitRank(void **comm, int ranks, struct id id, int rank)
{
    struct comm *c = calloc(1, sizeof *c);
    if (!c || ranks > RANKS || id.bytes[127] != 7)
        return 4;
    c->rank = rank;
    *comm = c;
    pthread_mutex_lock(&world.lock);
    world.ranks = ranks;
    pthread_mutex_unlock(&world.lock);
    meet();
    return 0;
}

API int ncclCommDestroy(void *comm);
API int ncclCommDestroy(void *comm)
{
    free(comm);
    return 0;
}

API int ncclCommAbort(void *comm);
API int ncclCommAbort(void *comm)
{
    free(comm);
    return 0;
}

API int ncclCommGetAsyncError(void *comm, int *result);
API int ncclCommGetAsyncError(void *comm, int *result)
{
    (void)comm;
    *result = 0;
    return 0;
}

API int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, void *comm, void *q);
API int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, void *comm, void *q)
{
    (void)q;
    show(comm, in);
    return fold(comm, out, 0, n, type, op);
}

API int ncclReduce(const void *in, void *out, size_t n, int type, int op, int root, void *comm,
                   void *q);
API int ncclReduce(const void *in, void *out, size_t n, int type, int op, int root, void *comm,
                   void *q)
{
    (void)q;
    show(comm, in);
    return fold(comm, ((struct comm *)comm)->rank == root ? out : NULL, 0, n, type, op);
}

API int ncclReduceScatter(const void *in, void *out, size_t n, int type, int op, void *comm, void *q);
API int ncclReduceScatter(const void *in, void *out, size_t n, int type, int op, void *comm, void *q)
{
    (void)q;
    show(comm, in);
    return fold(comm, out, n * (size_t)((struct comm *)comm)->rank, n, type, op);
}

/* In place a rank's own part is there, while others read it. */
static void put(void *out, const void *in, size_t n)
{
    if (out != in)
        memcpy(out, in, n);
}

API int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, void *comm, void *q);
API int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, void *comm, void *q)
{
    (void)q;
    show(comm, in);
    put(out, world.in[root], n * size_of(type));
    meet();
    return 0;
}

API int ncclAllGather(const void *in, void *out, size_t n, int type, void *comm, void *q);
API int ncclAllGather(const void *in, void *out, size_t n, int type, void *comm, void *q)
{
    (void)q;
    size_t each = n * size_of(type);
    show(comm, in);
    for (int r = 0; r < world.ranks; r++)
        put((char *)out + (size_t)r * each, world.in[r], each);
    meet();
    return 0;
}

API int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, void *comm);
API int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, void *comm)
{
    *op = 5;
    return residence != 1 || tu_to_double(types[type], scalar, &((struct comm *)comm)->premul, 1, NULL)
               ? 4
               : 0;
}

API int ncclRedOpDestroy(int op, void *comm);
API int ncclRedOpDestroy(int op, void *comm)
{
    (void)comm;
    return op == 5 ? 0 : 4;
}

/* What a group holds: all sends are offered, then all that is asked for is taken. */
static int run_group(void)
{
    pthread_mutex_lock(&world.lock);
    for (int i = 0; i < group.n; i++)
        if (group.call[i].kind == SEND) {
            struct post *p = &world.post[group.call[i].rank][group.call[i].peer];
            while (p->p)
                pthread_cond_wait(&world.moved, &world.lock);
            *p = (struct post){group.call[i].p, group.call[i].bytes, false};
            pthread_cond_broadcast(&world.moved);
        }
    int bad = 0;
    for (int i = 0; i < group.n; i++)
        if (group.call[i].kind == RECV) {
            struct post *p = &world.post[group.call[i].peer][group.call[i].rank];
            while (!p->p || p->taken)
                pthread_cond_wait(&world.moved, &world.lock);
            bad |= p->n != group.call[i].bytes;
            memmove((void *)(uintptr_t)group.call[i].p, p->p, p->n < group.call[i].bytes ? p->n : group.call[i].bytes);
            p->taken = true;
            pthread_cond_broadcast(&world.moved);
        }
    for (int i = 0; i < group.n; i++)
        if (group.call[i].kind == SEND) {
            struct post *p = &world.post[group.call[i].rank][group.call[i].peer];
            while (!p->taken)
                pthread_cond_wait(&world.moved, &world.lock);
            *p = (struct post){NULL, 0, false};
            pthread_cond_broadcast(&world.moved);
        }
    pthread_mutex_unlock(&world.lock);
    group.n = 0;
    return bad ? 4 : 0;
}

static int add(enum kind kind, const void *p, size_t bytes, int peer, void *comm)
{
    if (group.n == QUEUE || group.depth == 0)
        return 4;
    group.call[group.n].kind = kind;
    group.call[group.n].p = p;
    group.call[group.n].bytes = bytes;
    group.call[group.n].peer = peer;
    group.call[group.n++].rank = ((struct comm *)comm)->rank;
    return 0;
}

API int ncclGroupStart(void);
API int ncclGroupStart(void)
{
    group.depth++;
    return 0;
}

API int ncclGroupEnd(void);
API int ncclGroupEnd(void)
{
    return --group.depth ? 0 : run_group();
}

API int ncclSend(const void *p, size_t n, int type, int peer, void *comm, void *q);
API int ncclSend(const void *p, size_t n, int type, int peer, void *comm, void *q)
{
    (void)q;
    return add(SEND, p, n * size_of(type), peer, comm);
}

API int ncclRecv(void *p, size_t n, int type, int peer, void *comm, void *q);
API int ncclRecv(void *p, size_t n, int type, int peer, void *comm, void *q)
{
    (void)q;
    return add(RECV, p, n * size_of(type), peer, comm);
}
