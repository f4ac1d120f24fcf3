/* SPDX-License-Identifier: Apache-2.0 */
/* fallen.c: fallen.h. */
#include "quantize/fallen.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct fallen_kind {
    char text[408]; /* "q5_0 instead of q4_k: why" */
    char first[96]; /* tensor */
    uint64_t n;
};

static struct fallen_kind *find(const struct fallen *f, const char *text)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->kind[i].text, text) == 0)
            return &f->kind[i];
    return NULL;
}

int fallen_add(struct fallen *f, struct tu_ctx *ctx, const struct tu_choice *c,
               const char *name, struct tu_err *err)
{
    struct fallen_kind new = {.n = 0};
    if (!c->fallback)
        return 0;
    snprintf(new.text, sizeof new.text, "%s instead of %s: %s", c->type, c->wanted,
             c->why);
    snprintf(new.first, sizeof new.first, "%s", name);
    tu_note(ctx, 1, "'%.80s': %s", name, new.text);
    struct fallen_kind *k = find(f, new.text);
    if (!k) {
        int rc = TU_GROW(&f->kind, &f->cap, f->n, err);
        if (rc)
            return rc;
        k = &f->kind[f->n++];
        *k = new;
    }
    k->n++;
    return 0;
}

void fallen_tell(struct fallen *f, struct tu_ctx *ctx, const char *path)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct fallen_kind *k = &f->kind[i];
        if (k->n == 1)
            tu_warn(ctx, "%s: '%.80s': %s", path, k->first, k->text);
        else
            tu_warn(ctx, "%s: %" PRIu64 " tensors, '%.80s' first: %s", path, k->n,
                    k->first, k->text);
    }
    tu_free(f->kind);
    *f = (struct fallen){0};
}
