/* SPDX-License-Identifier: Apache-2.0 */
/* socket.h: between the TCP transport and the rendezvous. Every wait has a deadline
 * (tui_now). */
#ifndef TENSORUTILS_COLL_SOCKET_H
#define TENSORUTILS_COLL_SOCKET_H

#include "world.h"

#define TUI_ADDRESS 256 /* a host and its NUL */

struct tui_place {
    char address[TUI_ADDRESS];
    uint16_t port;
};

/* A listening socket at host ("" and NULL: everywhere) and port (0: any); *port is
 * filled. */
int tui_listen(int *fd, const char *host, uint16_t *port, int backlog,
               struct tu_err *err);
/* Keeps trying until somebody listens. */
int tui_connect(int *fd, const char *host, uint16_t port, uint64_t deadline,
                struct tu_err *err);
int tui_accept(int *fd, int listener, uint64_t deadline, struct tu_err *err);
int tui_write_all(int fd, const void *p, size_t n, uint64_t deadline, struct tu_err *err);
int tui_read_all(int fd, void *p, size_t n, uint64_t deadline, struct tu_err *err);
/* No delay, large buffers, non-blocking. */
int tui_tune(int fd, struct tu_err *err);

/* rendezvous.c: learn where all ranks listen; mine.port is filled by the caller.
 * place[size]. */
int tui_meet(struct tu_rank *r, const struct tui_place *mine, struct tui_place *place,
             uint64_t deadline, struct tu_err *err);

#endif
