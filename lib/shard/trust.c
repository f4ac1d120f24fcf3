/* SPDX-License-Identifier: Apache-2.0 */
/* trust.c: no byte of a checkpoint is used before the checksum that its file stores for it
 * was found right.
 *
 * A tensor is verified once, whole, by the first reader of any part of it; others that want
 * it wait. It is read a moment later, so the disk is read once. Formats that store no
 * checksum cost nothing. */
#include <pthread.h>
#include <stdatomic.h>

#include "trust.h"

enum state { UNKNOWN, VERIFYING, SOUND };

struct tui_trust {
    pthread_mutex_t lock;
    pthread_cond_t change;
    _Atomic(enum state) state[]; /* by number of the tensor in its source */
};

int tui_trust_new(struct tui_trust **out, const struct tu_source *s, struct tu_err *err)
{
    struct tui_trust *t = tu_calloc(1, sizeof *t + s->n * sizeof *t->state, err);
    if (!t)
        return TU_ENOMEM;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->change, NULL);
    *out = t;
    return 0;
}

void tui_trust_free(struct tui_trust *t)
{
    if (!t)
        return;
    pthread_cond_destroy(&t->change);
    pthread_mutex_destroy(&t->lock);
    tu_free(t);
}

/* Where it is not sound, the next reader finds that out for itself and says so. */
static int verify(struct tui_trust *t, struct tu_source *s, size_t i, struct tu_err *err)
{
    pthread_mutex_lock(&t->lock);
    while (t->state[i] == VERIFYING)
        pthread_cond_wait(&t->change, &t->lock);
    bool mine = t->state[i] == UNKNOWN;
    if (mine)
        t->state[i] = VERIFYING;
    pthread_mutex_unlock(&t->lock);
    if (!mine)
        return 0;
    int rc = tu_source_verify(s, i, NULL, err);
    pthread_mutex_lock(&t->lock);
    t->state[i] = rc ? UNKNOWN : SOUND;
    pthread_cond_broadcast(&t->change);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

int tui_read_sound(const struct tu_ckpt *c, uint32_t file, size_t i, uint64_t off, void *buf,
             size_t n, struct tu_err *err)
{
    const struct tu_ckpt_file *f = &c->file[file];
    int rc = 0;
    if (i < f->source->n && f->trust->state[i] != SOUND)
        rc = verify(f->trust, f->source, i, err);
    return rc ? rc : tu_source_read(f->source, i, off, buf, n, err);
}
