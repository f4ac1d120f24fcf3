/* SPDX-License-Identifier: Apache-2.0 */
/* socket.c: TCP sockets with deadlines, IPv4 and IPv6. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "socket.h"

static int resolve(struct addrinfo **out, const char *host, uint16_t port, int flags,
                   struct tu_err *err)
{
    char text[8];
    snprintf(text, sizeof text, "%u", (unsigned)port);
    struct addrinfo want = {.ai_socktype = SOCK_STREAM,
                            .ai_flags = flags | AI_NUMERICSERV};
    int e = getaddrinfo(host && *host ? host : NULL, text, &want, out);
    if (e)
        return tu_fail(err, TU_EIO, "%s: %s", host && *host ? host : "*",
                       gai_strerror(e));
    return 0;
}

int tui_listen(int *out, const char *host, uint16_t *port, int backlog,
               struct tu_err *err)
{
    struct addrinfo *list;
    int code = resolve(&list, host, *port, AI_PASSIVE, err);
    if (code)
        return code;
    int fd = socket(list->ai_family, SOCK_STREAM, 0), on = 1;
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    if (fd < 0) {
        code = tu_fail_errno(err, "socket");
    } else if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
               bind(fd, list->ai_addr, list->ai_addrlen) < 0 || listen(fd, backlog) < 0 ||
               getsockname(fd, (struct sockaddr *)&at, &n) < 0) {
        code = tu_fail_errno(err, "listen at %s port %u", host && *host ? host : "*",
                             (unsigned)*port);
        close(fd);
    } else {
        *port = ntohs(at.ss_family == AF_INET6
                          ? ((struct sockaddr_in6 *)(void *)&at)->sin6_port
                          : ((struct sockaddr_in *)(void *)&at)->sin_port);
        *out = fd;
    }
    freeaddrinfo(list);
    return code;
}

static int wait_for(int fd, short what, uint64_t deadline)
{
    uint64_t now = tui_now();
    if (now >= deadline)
        return 0;
    struct pollfd p = {.fd = fd, .events = what};
    return poll(&p, 1, (int)tu_min((deadline - now) / 1000000 + 1, 60000));
}

int tui_connect(int *out, const char *host, uint16_t port, uint64_t deadline,
                struct tu_err *err)
{
    struct addrinfo *list;
    int code = resolve(&list, host, port, 0, err), last = 0;
    if (code)
        return code;
    for (*out = -1; *out < 0;) {
        int fd = socket(list->ai_family, SOCK_STREAM, 0);
        if (fd < 0) {
            code = tu_fail_errno(err, "socket");
            break;
        }
        if (connect(fd, list->ai_addr, list->ai_addrlen) == 0) {
            *out = fd;
            break;
        }
        last = errno;
        close(fd);
        if (tui_now() > deadline) {
            code = tu_fail(err, TU_ETIMEOUT, "no answer from %s port %u: %s", host,
                           (unsigned)port, strerror(last));
            break;
        }
        const struct timespec pause = {0, 20000000};
        nanosleep(&pause, NULL);
    }
    freeaddrinfo(list);
    return code;
}

int tui_accept(int *out, int listener, uint64_t deadline, struct tu_err *err)
{
    for (;;) {
        int ready = wait_for(listener, POLLIN, deadline);
        if (ready == 0 && tui_now() >= deadline)
            return tu_fail(err, TU_ETIMEOUT, "not all ranks have come");
        if (ready <= 0)
            continue;
        *out = accept(listener, NULL, NULL);
        if (*out >= 0)
            return 0;
        if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN)
            return tu_fail_errno(err, "accept");
    }
}

int tui_write_all(int fd, const void *p, size_t n, uint64_t deadline, struct tu_err *err)
{
    const unsigned char *b = p;
    while (n) {
        ssize_t done = send(fd, b, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EAGAIN) {
            if (!wait_for(fd, POLLOUT, deadline) && tui_now() >= deadline)
                return tu_fail(err, TU_ETIMEOUT, "a peer does not read");
        } else if (done < 0 && errno != EINTR) {
            return tu_fail(err, TU_EPEER, "a peer is gone: %s", strerror(errno));
        } else if (done > 0) {
            b += done;
            n -= (size_t)done;
        }
    }
    return 0;
}

int tui_read_all(int fd, void *p, size_t n, uint64_t deadline, struct tu_err *err)
{
    unsigned char *b = p;
    while (n) {
        int ready = wait_for(fd, POLLIN, deadline);
        if (ready == 0 && tui_now() >= deadline)
            return tu_fail(err, TU_ETIMEOUT, "a peer is silent");
        if (ready <= 0)
            continue;
        ssize_t got = recv(fd, b, n, 0);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
            return tu_fail(err, TU_EPEER, "a peer is gone%s%s", got ? ": " : "",
                           got ? strerror(errno) : "");
        if (got > 0) {
            b += got;
            n -= (size_t)got;
        }
    }
    return 0;
}

int tui_tune(int fd, struct tu_err *err)
{
    int on = 1, buffer = 1 << 20;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer) < 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        return tu_fail_errno(err, "socket");
    return 0;
}
