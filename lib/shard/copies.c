/* SPDX-License-Identifier: Apache-2.0 */
/* copies.c: is a rank's file a copy of another rank's?
 *
 * Such a copy has every name and shape that is expected. Of each file the first bytes of
 * a few parts that are its own are taken; two files whose parts all begin alike are one
 * file twice. For tensor-parallel ranks of one stage that is certain. Stages and ranks of
 * experts may be alike in a model that was grown by copying layers or experts: a warning.
 * Parts of one value (fresh biases, zero moments) say nothing. */

#include <stdlib.h>
#include <string.h>

#include "ckpt.h"

#define SAMPLE 256 /* bytes of a part */
#define PARTS 8    /* of a file */
#define LEAST 64   /* bytes that vary, or nothing is said */

struct print {
    uint64_t hash; /* FNV-1a */
    uint32_t file, parts;
    size_t bytes;
    struct tu_coord at;
};

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
    for (const unsigned char *p = data; n--; p++)
        h = (h ^ *p) * UINT64_C(0x100000001b3);
    return h;
}

/* Has no other rank these elements? Of experts, where they are shared out; else what each
 * tensor-parallel rank has a part of; else layers. */
static bool is_own(const struct tu_ckpt *c, const struct tu_piece *p)
{
    const unsigned cuts = TU_MAP_COLUMN | TU_MAP_ROW | TU_MAP_VOCAB;
    const struct tu_role *r = &c->role[p->fuse.role[0]];
    if (p->replica || p->data || p->file >= c->files || !c->file[p->file].source)
        return false;
    if (c->ep > 1)
        return r->expert >= 0;
    if (c->tp == 1)
        return r->layer >= 0;
    return p->whole ? p->boxes > 0 : (p->fuse.transform & cuts) != 0;
}

static int add_part(const struct tu_ckpt *c, const struct tu_piece *p, struct print *f,
                    struct tu_err *err)
{
    struct tu_source *s = c->file[p->file].source;
    const struct tu_tensor *t = &s->tensor[p->index];
    uint64_t elem = tu_dtype_find(t->dtype)->block_bytes, off = 0, n = t->bytes;
    char head[SAMPLE];
    if (p->flat.yes) {
        off = p->flat.at * elem;
        n = p->flat.n * elem;
    }
    n = tu_min(n, sizeof head);
    if (off > t->bytes || n > t->bytes - off || n <= elem)
        return 0;
    int rc = tu_source_read(s, p->index, off, head, (size_t)n, err);
    if (rc || !memcmp(head, head + elem, (size_t)(n - elem)))
        return rc;
    f->hash = mix(f->hash, p->tensor.name, strlen(p->tensor.name) + 1);
    f->hash = mix(f->hash, &p->flat.lo, sizeof p->flat.lo);
    f->hash = mix(f->hash, head, (size_t)n);
    f->bytes += (size_t)n;
    f->parts++;
    f->at = p->at;
    return 0;
}

static int by_hash(const void *a, const void *b)
{
    const struct print *x = a, *y = b;
    return x->hash != y->hash ? (x->hash > y->hash ? 1 : -1)
                              : (x->file > y->file) - (x->file < y->file);
}

static int judge(const struct tu_ckpt *c, const struct print *a, const struct print *b,
                 const struct tu_job *job, struct tu_err *err)
{
    const char *first = c->file[a->file].path, *second = c->file[b->file].path;
    if (a->hash != b->hash || b->bytes < LEAST)
        return 0;
    if (a->at.tp != b->at.tp && a->at.pp == b->at.pp && a->at.ep == b->at.ep)
        return tu_fail(err, TU_EINCOMPLETE,
                       "%.120s: holds the parts of tensor-parallel rank %u (%.120s), "
                       "expected those of rank %u",
                       second, a->at.tp, first, b->at.tp);
    if (a->at.pp != b->at.pp || a->at.ep != b->at.ep)
        tu_job_warn(job,
                    "%.120s: its weights begin as those of tp=%u pp=%u ep=%u do (%.120s): is "
                    "it a copy?",
                    second, a->at.tp, a->at.pp, a->at.ep, first);
    return 0;
}

int tui_check_copies(const struct tu_ckpt *c, const struct tu_job *job, struct tu_err *err)
{
    if (c->tp < 2 && c->pp < 2 && c->ep < 2)
        return 0;
    struct print *f = tu_calloc(c->files, sizeof *f, err);
    int rc = f ? 0 : TU_ENOMEM;
    for (uint32_t i = 0; i < c->files && !rc; i++) {
        f[i].file = i;
        f[i].hash = UINT64_C(0xcbf29ce484222325);
    }
    for (size_t i = 0; i < c->pieces && !rc; i++)
        if (is_own(c, &c->piece[i]) && f[c->piece[i].file].parts < PARTS)
            rc = add_part(c, &c->piece[i], &f[c->piece[i].file], err);
    if (!rc)
        qsort(f, c->files, sizeof *f, by_hash);
    for (uint32_t i = 1; i < c->files && !rc; i++)
        rc = judge(c, &f[i - 1], &f[i], job, err);
    tu_free(f);
    return rc;
}
