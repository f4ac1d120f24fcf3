/* SPDX-License-Identifier: Apache-2.0 */
/* rendezvous.c: ranks that a launcher started find each other, by HOST:PORT or by a
 * folder.
 *
 * HOST:PORT: rank 0 listens there; everyone says who it is and what it was started with;
 * rank 0 compares and sends the table of places, or the reason why not, to all.
 * file:FOLDER: each rank writes FOLDER/rank-R by rename and waits for the others' files.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <arpa/inet.h>
#include <time.h>
#include <unistd.h>
#include "socket.h"

#define MAGIC 0x314c4f43u /* "COL1" */
#define AGREE 200
#define HELLO (16 + AGREE)
#define ANSWER 256 /* a message, empty when all is well */

static int mismatch(const struct tu_rank *r, const unsigned char *hello, uint32_t rank,
                    const int *seen, struct tu_err *err)
{
    const char *agree = r->w->g->agree ? r->w->g->agree : "";
    char theirs[AGREE + 1];
    memcpy(theirs, hello + 16, AGREE);
    theirs[AGREE] = '\0';
    if (tu_le32(hello) != MAGIC)
        return tu_fail(err, TU_EPEER, "rendezvous: a stranger or another version called");
    if (rank >= r->size)
        return tu_fail(err, TU_EPEER, "rendezvous: rank %u of a group of %u",
                       (unsigned)rank, (unsigned)r->size);
    if (tu_le32(hello + 8) != r->size)
        return tu_fail(err, TU_EPEER, "rendezvous: rank %u says %u ranks, rank 0 says %u",
                       (unsigned)rank, (unsigned)tu_le32(hello + 8), (unsigned)r->size);
    if (rank == 0 || seen[rank] >= 0)
        return tu_fail(err, TU_EPEER, "rendezvous: rank %u came twice", (unsigned)rank);
    if (strcmp(theirs, agree) != 0)
        return tu_fail(err, TU_EPEER,
                       "rendezvous: rank %u was started with '%.90s', rank 0 with "
                       "'%.90s'",
                       (unsigned)rank, theirs, agree);
    return 0;
}

static void peer_address(int fd, struct tui_place *place)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    memset(&at, 0, sizeof at);
    if (getpeername(fd, (struct sockaddr *)&at, &n) < 0)
        return;
    const void *bytes =
        at.ss_family == AF_INET6
            ? (const void *)&((struct sockaddr_in6 *)(void *)&at)->sin6_addr
            : (const void *)&((struct sockaddr_in *)(void *)&at)->sin_addr;
    inet_ntop(at.ss_family, bytes, place->address, sizeof place->address);
}

/* Tell all that have come how it went, and where everyone is. */
static int answer(struct tu_rank *r, const int *fd, const struct tui_place *place,
                  int code, const struct tu_err *why, uint64_t deadline,
                  struct tu_err *err)
{
    char text[ANSWER] = "";
    if (code)
        memcpy(text, why->msg, sizeof text);
    for (uint32_t q = 1; q < r->size; q++) {
        if (fd[q] < 0)
            continue;
        int e = tui_write_all(fd[q], text, sizeof text, deadline, code ? NULL : err);
        if (!e && !code)
            e = tui_write_all(fd[q], place, r->size * sizeof *place, deadline, err);
        if (e && !code)
            return e;
    }
    return code;
}

static int host_meeting(struct tu_rank *r, const char *host, uint16_t port,
                        struct tui_place *place, uint64_t deadline, struct tu_err *err)
{
    struct tu_err why = {0};
    int *fd = tu_alloc(r->size, sizeof *fd, err), listener = -1;
    if (!fd)
        return TU_ENOMEM;
    for (uint32_t q = 0; q < r->size; q++)
        fd[q] = -1;
    int code = tui_listen(&listener, host, &port, (int)r->size, &why);
    for (uint32_t n = 1; n < r->size && !code; n++) {
        unsigned char hello[HELLO];
        int guest;
        code = tui_accept(&guest, listener, deadline, &why);
        if (code) {
            uint32_t missing = 1;
            while (missing < r->size && fd[missing] >= 0)
                missing++;
            code = tu_fail(&why, TU_ETIMEOUT, "rendezvous at %s: rank %u has not come",
                           host, (unsigned)missing);
            break;
        }
        code = tui_read_all(guest, hello, sizeof hello, deadline, &why);
        uint32_t rank = tu_le32(hello + 4);
        if (!code && (code = mismatch(r, hello, rank, fd, &why)))
            answer(r, (int[]){-1, guest}, place, code, &why, deadline, NULL);
        if (code) {
            close(guest);
            break;
        }
        fd[rank] = guest;
        peer_address(guest, &place[rank]);
        place[rank].port = (uint16_t)tu_le32(hello + 12);
    }
    snprintf(place[0].address, sizeof place[0].address, "%s", host);
    code = answer(r, fd, place, code, &why, deadline, &why);
    if (code && err)
        *err = why;
    for (uint32_t q = 0; q < r->size; q++)
        if (fd[q] >= 0)
            close(fd[q]);
    if (listener >= 0)
        close(listener);
    tu_free(fd);
    return code;
}

static int join_meeting(struct tu_rank *r, const char *host, uint16_t port,
                        const struct tui_place *mine, struct tui_place *place,
                        uint64_t deadline, struct tu_err *err)
{
    unsigned char hello[HELLO] = {0};
    char text[ANSWER];
    int fd = -1;
    tu_put32(hello, MAGIC);
    tu_put32(hello + 4, r->id);
    tu_put32(hello + 8, r->size);
    tu_put32(hello + 12, mine->port);
    if (r->w->g->agree)
        snprintf((char *)hello + 16, AGREE, "%s", r->w->g->agree);
    int code = tui_connect(&fd, host, port, deadline, err);
    if (!code)
        code = tui_write_all(fd, hello, sizeof hello, deadline, err);
    if (!code)
        code = tui_read_all(fd, text, sizeof text, deadline, err);
    if (!code && text[0]) {
        text[sizeof text - 1] = '\0';
        code = tu_fail(err, TU_EPEER, "%s", text);
    }
    if (!code)
        code = tui_read_all(fd, place, r->size * sizeof *place, deadline, err);
    /* Rank 0 is where we found it; its listener's port came with the table. */
    if (!code)
        snprintf(place[0].address, sizeof place[0].address, "%s", host);
    if (fd >= 0)
        close(fd);
    return code;
}

static int by_folder(struct tu_rank *r, const char *folder, const struct tui_place *mine,
                     struct tui_place *place, uint64_t deadline, struct tu_err *err)
{
    char path[4096], text[AGREE + TUI_ADDRESS + 64];
    const char *agree = r->w->g->agree ? r->w->g->agree : "";
    snprintf(path, sizeof path, "%s/rank-%u", folder, (unsigned)r->id);
    if (access(path, F_OK) == 0)
        return tu_fail(err, TU_EPEER,
                       "%s: left by an earlier run, or this rank runs twice", path);
    int n = snprintf(text, sizeof text, "%u %u %s %u %s\n", (unsigned)r->id,
                     (unsigned)r->size, mine->address, (unsigned)mine->port, agree);
    int code = tu_file_write(path, text, (size_t)n, false, NULL, err);
    for (uint32_t q = 0; q < r->size && !code; q++) {
        char *data = NULL, with[AGREE + 1] = "";
        unsigned id, size, port;
        size_t len;
        snprintf(path, sizeof path, "%s/rank-%u", folder, (unsigned)q);
        while (access(path, F_OK) != 0 && tui_now() < deadline) {
            const struct timespec pause = {0, 10000000};
            nanosleep(&pause, NULL);
        }
        code = tu_file_read(path, sizeof text, &data, &len, err);
        if (code) {
            code = tu_fail(err, TU_ETIMEOUT, "rendezvous: %s: rank %u has not come", path,
                           (unsigned)q);
        } else if (sscanf(data, "%u %u %255s %u %200[^\n]", &id, &size, place[q].address,
                          &port, with) < 4 ||
                   id != q || port > 65535) {
            code =
                tu_fail(err, TU_EPEER, "%s: not a place of rank %u", path, (unsigned)q);
        } else if (size != r->size || strcmp(with, agree) != 0) {
            code = tu_fail(err, TU_EPEER,
                           "rendezvous: rank %u was started with '%u %.80s', rank "
                           "%u with '%u %.80s'",
                           (unsigned)q, size, with, (unsigned)r->id, (unsigned)r->size,
                           agree);
        } else {
            place[q].port = (uint16_t)port;
        }
        tu_free(data);
    }
    return code;
}

int tui_meet(struct tu_rank *r, const struct tui_place *mine, struct tui_place *place,
             uint64_t deadline, struct tu_err *err)
{
    const char *where = r->w->g->rendezvous;
    if (strncmp(where, "file:", 5) == 0)
        return by_folder(r, where + 5, mine, place, deadline, err);
    const char *colon = strrchr(where, ':');
    uint64_t port = 0;
    char host[256];
    if (!colon || tu_parse_u64(colon + 1, &port, NULL) || port == 0 || port > 65535 ||
        (size_t)(colon - where) >= sizeof host)
        return tu_fail(err, TU_EUSAGE,
                       "rendezvous '%s': expected HOST:PORT or file:FOLDER", where);
    bool bracket = where[0] == '[' && colon[-1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(colon - where) - 2 * bracket,
             where + bracket);
    place[0] = *mine;
    return r->id == 0 ? host_meeting(r, host, (uint16_t)port, place, deadline, err)
                      : join_meeting(r, host, (uint16_t)port, mine, place, deadline, err);
}
