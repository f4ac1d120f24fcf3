/* SPDX-License-Identifier: Apache-2.0 */
/* replicas.c: pieces that should hold the same elements, compared on their atoms.
 *
 * A window is filled from the pieces that are used, and again with the replica laid over
 * it: nothing may change. So replicas may be cut differently from what they repeat. */

#include <string.h>

#include "move.h"

#define WINDOW ((uint64_t)4 << 20)

struct scratch {
    char *window, *copy;
    uint64_t bytes;
    struct tui_stage stage;
};

static int differs(const struct tu_ckpt *c, uint32_t piece, uint32_t other,
                   uint64_t element, struct tu_err *err)
{
    const struct tu_piece *p = &c->piece[piece], *q = &c->piece[other];
    bool tied = (p->fuse.transform | q->fuse.transform) & TU_MAP_TIED;
    if (!strcmp(p->tensor.name, q->tensor.name))
        return tu_fail(err, TU_EDIFFER,
                       "%.80s: '%.120s' differs from its replica at element %llu",
                       p->data ? c->root : c->file[p->file].source->path, p->tensor.name,
                       (unsigned long long)element);
    return tu_fail(err, TU_EDIFFER,
                   "%.50s: '%.60s' differs from '%.60s' at element %llu%s",
                   p->data ? c->root : c->file[p->file].source->path, p->tensor.name,
                   q->tensor.name,
                   (unsigned long long)element,
                   tied ? ", but the configuration ties them (--untied keeps both)"
                        : ", its replica");
}

static int compare(const struct tu_ckpt *c, uint32_t a, const struct tui_parts *used,
                   const struct tui_part *replica, struct scratch *s, struct tu_err *err)
{
    const struct tu_tensor *t = &c->atom[a].tensor;
    const struct tu_tensor *file = &c->piece[used->part[0].piece].tensor;
    struct tui_window w = {.elem = tu_dtype_find(file->dtype)->block_bytes};
    uint64_t rows;
    int rc = 0;
    if (c->piece[replica->piece].tensor.dtype != file->dtype)
        return 0; /* a rounded copy */
    tui_matrix(t, &rows, &w.cols);
    uint64_t line = tu_max(w.cols * w.elem, 1), step = tu_max(s->bytes / line, 1);
    if (line > s->bytes)
        return tu_fail(err, TU_ENOMEM, "a row of '%.100s' does not fit the memory budget",
                       t->name);
    for (w.r0 = 0; w.r0 < rows && !rc; w.r0 = w.r1) {
        w.r1 = tu_min(w.r0 + step, rows);
        size_t n = (size_t)((w.r1 - w.r0) * line), k = 0;
        w.data = s->window;
        for (size_t i = 0; i < used->n && !rc; i++)
            rc = tui_window_fill(c, &used->part[i], &w, &s->stage, err);
        memcpy(s->copy, s->window, n);
        w.data = s->copy;
        if (!rc)
            rc = tui_window_fill(c, replica, &w, &s->stage, err);
        if (rc || !memcmp(s->copy, s->window, n))
            continue;
        while (s->copy[k] == s->window[k])
            k++;
        rc = differs(c, replica->piece, used->part[0].piece, w.r0 * w.cols + k / w.elem,
                     err);
    }
    return rc;
}

/* Does the atom have a second copy that the model's configuration promises? */
static bool is_tied(const struct tu_ckpt *c, uint32_t a)
{
    for (size_t i = 0; i < c->atom[a].n; i++)
        if (c->piece[c->atom[a].piece[i]].fuse.transform & TU_MAP_TIED)
            return true;
    return false;
}

static int check_atom(const struct tu_ckpt *c, uint32_t a, struct scratch *s,
                      struct tu_err *err)
{
    struct tui_parts all = {0}, used = {0};
    int rc = tui_parts_of(&all, c, a, true, err);
    if (!rc)
        rc = tui_parts_of(&used, c, a, false, err);
    for (size_t i = 0; i < all.n && !rc && used.n < all.n; i++)
        if (c->piece[all.part[i].piece].replica && used.n)
            rc = compare(c, a, &used, &all.part[i], s, err);
    tui_parts_release(&all);
    tui_parts_release(&used);
    return rc;
}

int tu_ckpt_replicas(const struct tu_ckpt *c, bool tied_only, const struct tu_job *job,
                     struct tu_err *err)
{
    struct scratch s = {.bytes = tu_max(WINDOW, tu_job_memory(job) / 4)};
    int rc = 0;
    s.stage.bytes = (size_t)s.bytes;
    if (!(s.window = tu_alloc((size_t)s.bytes, 1, err)) ||
        !(s.copy = tu_alloc((size_t)s.bytes, 1, err)) ||
        !(s.stage.data = tu_alloc((size_t)s.bytes, 1, err)))
        rc = TU_ENOMEM;
    for (uint32_t a = 0; a < c->atoms && !rc; a++)
        if (tu_job_cancelled(job))
            rc = tu_fail(err, TU_ECANCEL, "stopped on request");
        else if (!tied_only || is_tied(c, a))
            rc = check_atom(c, a, &s, err);
    tu_free(s.window);
    tu_free(s.copy);
    tu_free(s.stage.data);
    tui_spans_release(&s.stage.clip);
    return rc;
}
