/* SPDX-License-Identifier: Apache-2.0 */
/* tcp.c: transport "tcp": a socket for each pair of ranks, on one machine or many.
 *
 * A frame is magic, sequence number, size, payload, CRC-32 of the payload. Sending and
 * receiving progress together: a ring of large messages would else fill every buffer and
 * stand still. */
#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "socket.h"

#define MAGIC 0x4d524643u
#define HEAD 16u
#define TAIL 4u
#define STAGE ((size_t)1 << 18)

/* Of the launcher: one listener for each rank that is started here. */
struct listeners {
    int *fd;
    uint16_t *port;
};

struct links {
    int *fd;              /* [size], -1 for itself */
    uint32_t *sent, *got; /* frames, per peer */
    unsigned char *stage;
};

static int prepare(struct tui_world *w, struct tu_err *err)
{
    uint32_t n = w->g->size;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 2 * (rlim_t)n + 32) {
        limit.rlim_cur = tu_min(limit.rlim_max, 2 * (rlim_t)n + 32);
        if (limit.rlim_cur < 2 * (rlim_t)n + 32 || setrlimit(RLIMIT_NOFILE, &limit) < 0)
            return tu_fail(
                err, TU_EIO, "%u ranks need %u open files each; the limit is %llu",
                (unsigned)n, 2 * (unsigned)n + 32, (unsigned long long)limit.rlim_cur);
    }
    struct listeners *l = tu_calloc(1, sizeof *l, err);
    if (!l)
        return TU_ENOMEM;
    w->state = l;
    l->fd = tu_alloc(n, sizeof *l->fd, err);
    l->port = tu_calloc(n, sizeof *l->port, err);
    if (!l->fd || !l->port)
        return TU_ENOMEM;
    int code = 0;
    for (uint32_t i = 0; i < n; i++)
        l->fd[i] = -1;
    const char *host = w->g->host ? w->g->host : w->launched ? NULL : "127.0.0.1";
    for (uint32_t i = 0; i < n && !code; i++)
        if (!w->launched || i == w->g->rank)
            code = tui_listen(&l->fd[i], host, &l->port[i], (int)n, err);
    return code;
}

static void dispose(struct tui_world *w)
{
    struct listeners *l = w->state;
    if (!l)
        return;
    for (uint32_t i = 0; l->fd && i < w->g->size; i++)
        if (l->fd[i] >= 0)
            close(l->fd[i]);
    tu_free(l->fd);
    tu_free(l->port);
    tu_free(l);
    w->state = NULL;
}

/* Where everyone listens. */
static int places(struct tu_rank *r, struct tui_place *place, uint64_t deadline,
                  struct tu_err *err)
{
    const struct listeners *l = r->w->state;
    const char *host = r->w->g->host ? r->w->g->host : "127.0.0.1";
    struct tui_place mine = {.port = l->port[r->id]};
    memcpy(mine.address, host, tu_min(strlen(host), sizeof mine.address - 1));
    if (r->w->launched)
        return tui_meet(r, &mine, place, deadline, err);
    for (uint32_t q = 0; q < r->size; q++) {
        place[q] = mine;
        place[q].port = l->port[q];
    }
    return 0;
}

/* Call the ranks below, be called by those above. */
static int mesh(struct tu_rank *r, const struct tui_place *place, uint64_t deadline,
                struct tu_err *err)
{
    const struct listeners *l = r->w->state;
    struct links *k = r->state;
    unsigned char hello[8];
    int code = 0;
    for (uint32_t q = 0; q < r->id && !code; q++) {
        tu_put32(hello, MAGIC);
        tu_put32(hello + 4, r->id);
        code = tui_connect(&k->fd[q], place[q].address, place[q].port, deadline, err);
        if (!code)
            code = tui_write_all(k->fd[q], hello, sizeof hello, deadline, err);
    }
    for (uint32_t i = r->id + 1; i < r->size && !code; i++) {
        int fd;
        code = tui_accept(&fd, l->fd[r->id], deadline, err);
        if (code)
            break;
        code = tui_read_all(fd, hello, sizeof hello, deadline, err);
        uint32_t q = tu_le32(hello + 4);
        if (!code &&
            (tu_le32(hello) != MAGIC || q <= r->id || q >= r->size || k->fd[q] >= 0))
            code = tu_fail(err, TU_EPEER, "a stranger called rank %u", (unsigned)r->id);
        if (code)
            close(fd);
        else
            k->fd[q] = fd;
    }
    for (uint32_t q = 0; q < r->size && !code; q++)
        if (q != r->id)
            code = tui_tune(k->fd[q], err);
    return code;
}

static int join_tcp(struct tu_rank *r, struct tu_err *err)
{
    struct listeners *l = r->w->state;
    for (uint32_t q = 0; q < r->size; q++) {
        if (q != r->id && l->fd[q] >= 0) {
            close(l->fd[q]); /* this process's copies of the others' */
            l->fd[q] = -1;
        }
    }
    struct links *k = tu_calloc(1, sizeof *k, err);
    if (!k)
        return TU_ENOMEM;
    r->state = k;
    k->fd = tu_alloc(r->size, sizeof *k->fd, err);
    k->sent = tu_calloc(r->size, sizeof *k->sent, err);
    k->got = tu_calloc(r->size, sizeof *k->got, err);
    k->stage = tu_alloc(STAGE, 1, err);
    struct tui_place *place = tu_calloc(r->size, sizeof *place, err);
    int code = TU_ENOMEM;
    for (uint32_t q = 0; k->fd && q < r->size; q++)
        k->fd[q] = -1;
    if (k->fd && k->sent && k->got && k->stage && place) {
        uint64_t deadline = tui_now() + r->w->timeout;
        code = places(r, place, deadline, err);
        if (!code)
            code = mesh(r, place, deadline, err);
    }
    tu_free(place);
    return code;
}

static void leave_tcp(struct tu_rank *r)
{
    struct links *k = r->state;
    if (!k)
        return;
    for (uint32_t q = 0; k->fd && q < r->size; q++)
        if (k->fd[q] >= 0)
            close(k->fd[q]);
    tu_free(k->fd);
    tu_free(k->sent);
    tu_free(k->got);
    tu_free(k->stage);
    tu_free(k);
    r->state = NULL;
}

/* One direction of a move: how far its frame has come. */
struct flow {
    uint32_t peer;
    int fd;
    uint64_t n, done, total; /* payload bytes; bytes of the frame moved; of all */
    unsigned char head[HEAD], tail[TAIL];
    uint32_t crc;
    size_t staged; /* received bytes not yet given to the sink */
};

static int gone(const struct tu_rank *r, uint32_t peer, int e, struct tu_err *err)
{
    return tu_fail(err, TU_EPEER, "rank %u: lost rank %u in operation %llu: %s",
                   (unsigned)r->id, (unsigned)peer,
                   (unsigned long long)atomic_load(&r->seat->seq),
                   e ? strerror(e) : "connection closed");
}

/* The parts of a frame that are still to move, as seen from `done`. */
static int parts(struct flow *f, struct iovec v[3], void *payload, uint64_t room)
{
    int n = 0;
    uint64_t end = HEAD + f->n;
    if (f->done < HEAD)
        v[n++] = (struct iovec){f->head + f->done, (size_t)(HEAD - f->done)};
    uint64_t at = f->done < HEAD ? HEAD : f->done;
    if (at < end && room)
        v[n++] = (struct iovec){payload, (size_t)tu_min(room, end - at)};
    if (end - tu_min(at, end) <= room) {
        uint64_t from = f->done > end ? f->done - end : 0;
        v[n++] = (struct iovec){f->tail + from, (size_t)(TAIL - from)};
    }
    return n;
}

static int push(const struct tu_rank *r, struct flow *f, const struct tu_move *m,
                struct tu_err *err)
{
    struct iovec v[3];
    uint64_t at = f->done < HEAD ? 0 : tu_min(f->done - HEAD, f->n);
    unsigned char *from = (unsigned char *)(uintptr_t)m->out; /* iovec knows no const */
    int parts_n = parts(f, v, from ? from + at : f->head, UINT64_MAX);
    struct msghdr h = {.msg_iov = v, .msg_iovlen = (size_t)parts_n};
    ssize_t done = sendmsg(f->fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : gone(r, f->peer, errno, err);
    f->done += (uint64_t)done;
    return done > 0;
}

/* The frame's header has come: is it the one that we expect? */
static int check_head(const struct tu_rank *r, const struct flow *f, struct tu_err *err)
{
    const struct links *k = r->state;
    if (tu_le32(f->head) != MAGIC)
        return tu_fail(err, TU_EPEER, "rank %u: rank %u sent what is no frame",
                       (unsigned)r->id, (unsigned)f->peer);
    if (tu_le32(f->head + 4) != k->got[f->peer] || tu_le64(f->head + 8) != f->n)
        return tu_fail(
            err, TU_EPEER,
            "rank %u sent frame %u of %llu bytes where frame %u of %llu was expected",
            (unsigned)f->peer, (unsigned)tu_le32(f->head + 4),
            (unsigned long long)tu_le64(f->head + 8), (unsigned)k->got[f->peer],
            (unsigned long long)f->n);
    return 0;
}

/* Payload bytes before+1 … now have come to where they were read. */
static void take(const struct tu_rank *r, struct flow *f, const struct tu_move *m,
                 uint64_t before, uint64_t now)
{
    const struct links *k = r->state;
    uint64_t n = now - before;
    if (!m->sink) {
        f->crc = tu_crc32(f->crc, (unsigned char *)m->in + before, (size_t)n);
        return;
    }
    f->crc = tu_crc32(f->crc, k->stage + f->staged, (size_t)n);
    f->staged += (size_t)n;
    size_t whole = now == f->n ? f->staged : f->staged / 16 * 16;
    if (whole) {
        m->sink(m->ctx, now - f->staged, k->stage, whole);
        memmove(k->stage, k->stage + whole, f->staged - whole);
        f->staged -= whole;
    }
}

static int pull(const struct tu_rank *r, struct flow *f, const struct tu_move *m,
                struct tu_err *err)
{
    const struct links *k = r->state;
    struct iovec v[3];
    uint64_t at = f->done < HEAD ? 0 : tu_min(f->done - HEAD, f->n);
    void *to = m->sink ? k->stage + f->staged : (unsigned char *)m->in + (m->in ? at : 0);
    int parts_n = parts(f, v, to, m->sink ? STAGE - f->staged : UINT64_MAX);
    struct msghdr h = {.msg_iov = v, .msg_iovlen = (size_t)parts_n};
    ssize_t got = recvmsg(f->fd, &h, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : gone(r, f->peer, errno, err);
    if (got == 0)
        return gone(r, f->peer, 0, err);
    bool headless = f->done < HEAD;
    f->done += (uint64_t)got;
    if (headless && f->done >= HEAD) {
        int code = check_head(r, f, err);
        if (code)
            return code;
    }
    uint64_t now = f->done < HEAD ? 0 : tu_min(f->done - HEAD, f->n);
    if (now > at)
        take(r, f, m, at, now);
    if (f->done == f->total && tu_le32(f->tail) != f->crc)
        return tu_fail(err, TU_EPEER, "rank %u: what rank %u sent was damaged on the way",
                       (unsigned)r->id, (unsigned)f->peer);
    return 1;
}

static void idle(struct flow *out, struct flow *in, struct tui_wait *wait)
{
    struct pollfd p[2];
    nfds_t n = 0;
    if (out->done < out->total)
        p[n++] = (struct pollfd){.fd = out->fd, .events = POLLOUT};
    if (in->done < in->total)
        p[n++] = (struct pollfd){.fd = in->fd, .events = POLLIN};
    if (poll(p, n, 5) == 0)
        wait->turns |= 15; /* look at the board now */
}

static int move_tcp(struct tu_rank *r, const struct tu_move *m, struct tu_err *err)
{
    struct links *k = r->state;
    struct flow out = {.peer = m->to}, in = {.peer = m->from};
    if (m->to != TU_NOBODY) {
        out.fd = k->fd[m->to];
        out.n = m->out_bytes;
        out.total = HEAD + out.n + TAIL;
        tu_put32(out.head, MAGIC);
        tu_put32(out.head + 4, k->sent[m->to]++);
        tu_put64(out.head + 8, out.n);
        tu_put32(out.tail, out.n ? tu_crc32(0, m->out, (size_t)out.n) : 0);
    }
    if (m->from != TU_NOBODY) {
        in.fd = k->fd[m->from];
        in.n = m->in_bytes;
        in.total = HEAD + in.n + TAIL;
    }
    struct tui_wait wait = {.turns = 0};
    uint64_t first = 0;
    if (m->to != TU_NOBODY &&
        r->w->g->faults) { /* a slow link: between header and payload */
        int code = tui_write_all(out.fd, out.head, HEAD, tui_now() + r->w->timeout, err);
        if (code)
            return code;
        out.done = HEAD;
        tui_fault_link(r, m->to, out.n);
    }
    while (out.done < out.total || in.done < in.total) {
        int a = out.done < out.total ? push(r, &out, m, err) : 0;
        int b = a >= 0 && in.done < in.total ? pull(r, &in, m, err) : 0;
        if (a < 0 || b < 0)
            return a < 0 ? a : b;
        wait.peer = in.done < in.total ? m->from : m->to;
        if (b && r->seen && !first)
            first = tui_now();
        if (a || b) {
            tui_wait_end(r, &wait, b ? m->from : TU_NOBODY);
            continue;
        }
        if (wait.turns > 30 || !r->w->spin)
            idle(&out, &in, &wait);
        int code = tui_wait(r, &wait, err);
        if (code)
            return code;
    }
    if (m->from != TU_NOBODY)
        k->got[m->from]++;
    if (first)
        r->seen->peer[m->from].wait_ns += tui_now() - first;
    return 0;
}

static const char *const no_keys[] = {NULL};

static const struct tu_transport_ops ops = {
    .prepare = prepare,
    .dispose = dispose,
    .join = join_tcp,
    .leave = leave_tcp,
    .move = move_tcp,
};

const struct tu_transport tui_transport_tcp = {
    .name = "tcp",
    .help = "processes over TCP, on one machine or many",
    .key = no_keys,
    .ops = &ops,
};
