/* SPDX-License-Identifier: Apache-2.0 */
/* mean.c: checkpoints that are averaged must hold the same tensors.
 *
 * They are matched by canonical name, so each may lie in another layout. */

#include <string.h>

#include "move.h"

static int same_shape(const struct tu_tensor *a, const struct tu_tensor *b,
                      const char *root, struct tu_err *err)
{
    if (a->rank != b->rank ||
        (a->rank && memcmp(a->dim, b->dim, a->rank * sizeof *a->dim)))
        return tu_fail(err, TU_EINCOMPLETE, "%.120s: '%.100s' has another shape", root,
                       a->name);
    if (tu_dtype_is_float(a->dtype) != tu_dtype_is_float(b->dtype) ||
        (!tu_dtype_is_float(a->dtype) && a->dtype != b->dtype))
        return tu_fail(err, TU_EINCOMPLETE, "%.120s: '%.100s' has another dtype", root,
                       a->name);
    return 0;
}

static int twins_in(const struct tu_ckpt *c, const struct tu_ckpt *other, uint32_t *twin,
                    struct tu_err *err)
{
    struct tu_names *names = tu_names_new(err);
    int rc = names ? 0 : TU_ENOMEM;
    for (uint32_t a = 0; a < other->atoms && !rc; a++)
        rc = tu_names_put(names, other->atom[a].tensor.name, a, err);
    for (uint32_t a = 0; a < c->atoms && !rc; a++) {
        const struct tu_tensor *t = &c->atom[a].tensor;
        twin[a] = tu_names_get(names, t->name);
        rc = twin[a] == TU_NAMES_NONE
                 ? tu_fail(err, TU_EINCOMPLETE, "%.120s: '%.100s' is missing",
                           other->root, t->name)
                 : same_shape(t, &other->atom[twin[a]].tensor, other->root, err);
    }
    if (!rc && other->atoms != c->atoms)
        rc = tu_fail(err, TU_EINCOMPLETE, "%.120s: %zu tensors, %.120s has %zu",
                     other->root, other->atoms, c->root, c->atoms);
    tu_names_free(names);
    return rc;
}

int tui_mean_twins(const struct tu_ckpt *c, const struct tu_mean *mean, uint32_t ***twin,
                   struct tu_err *err)
{
    int rc = tui_need_plain(c, "a mean is of numbers", err);
    if (rc)
        return rc;
    if (!(*twin = tu_calloc(mean->n + 1, sizeof **twin, err)))
        return TU_ENOMEM;
    for (size_t i = 0; i < mean->n && !rc; i++) {
        (*twin)[i] = tu_calloc(c->atoms + 1, sizeof ***twin, err);
        rc = (*twin)[i] ? twins_in(c, mean->with[i], (*twin)[i], err) : TU_ENOMEM;
    }
    return rc;
}
