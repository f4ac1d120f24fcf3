/* SPDX-License-Identifier: Apache-2.0 */
/* replicas.c: pieces that should hold the same bytes, compared. */

#include <string.h>

#include "ckpt.h"

#define BLOCK ((size_t)1 << 20)

/* The piece that is used instead of replica number i: of the same roles at the same place. */
static uint32_t original(const struct tu_ckpt *c, uint32_t i)
{
    const struct tu_piece *p = &c->piece[i];
    const struct tu_atom *a = &c->atom[c->role[p->fuse.role[0]].atom];
    for (size_t k = 0; k < a->n; k++) {
        const struct tu_piece *q = &c->piece[a->piece[k]];
        if (!q->replica && q->fuse.role[0] == p->fuse.role[0] &&
            (q->at.tp == p->at.tp || q->tensor.bytes == c->atom[c->role[p->fuse.role[0]].atom].tensor.bytes) &&
            q->tensor.bytes == p->tensor.bytes)
            return a->piece[k];
    }
    return UINT32_MAX;
}

static int compare(const struct tu_ckpt *c, uint32_t i, uint32_t j, char *buf, struct tu_err *err)
{
    const struct tu_piece *p = &c->piece[i], *q = &c->piece[j];
    uint64_t total = p->tensor.bytes;
    for (uint64_t at = 0; at < total; at += BLOCK) {
        size_t n = (size_t)tu_min(BLOCK, total - at);
        int rc = tu_source_read(c->file[p->file].source, p->index, at, buf, n, err);
        if (!rc)
            rc = tu_source_read(c->file[q->file].source, q->index, at, buf + BLOCK, n, err);
        if (rc)
            return rc;
        size_t k = 0;
        while (k < n && buf[k] == buf[BLOCK + k])
            k++;
        if (k < n)
            return tu_fail(err, TU_EINCOMPLETE, "'%.60s' in %.60s and '%.60s' in %.60s should be equal "
                           "but differ at byte %llu",
                           q->tensor.name, c->file[q->file].path, p->tensor.name, c->file[p->file].path,
                           (unsigned long long)(at + k));
    }
    return 0;
}

int tu_ckpt_replicas(const struct tu_ckpt *c, const struct tu_job *job, struct tu_err *err)
{
    char *buf = tu_alloc(2, BLOCK, err);
    int rc = buf ? 0 : TU_ENOMEM;
    for (uint32_t i = 0; i < c->pieces && !rc; i++) {
        if (!c->piece[i].replica || c->role[c->piece[i].fuse.role[0]].atom == UINT32_MAX)
            continue;
        uint32_t j = original(c, i);
        if (tu_job_cancelled(job))
            rc = tu_fail(err, TU_ECANCEL, "stopped on request");
        else if (j == UINT32_MAX)
            rc = tu_fail(err, TU_EINCOMPLETE, "'%.100s' in %.100s has another size than its replicas",
                         c->piece[i].tensor.name, c->file[c->piece[i].file].path);
        else
            rc = compare(c, i, j, buf, err);
    }
    tu_free(buf);
    return rc;
}
