/* SPDX-License-Identifier: Apache-2.0 */
/* check.c: what can be known before any work: that every tensor has a plan, every rule a
 * tensor, and an importance matrix weights. */
#include <string.h>
#include <sys/stat.h>
#include "quantize/coded.h"

void choosing_model(struct choosing *c, struct input *in)
{
    if (c->layers)
        in->model.layers = c->layers;
    in->model.importance = c->imatrix || c->calib_path;
    tu_recipe_model(c->recipe, &in->model);
}

int choosing_keeps(struct choosing *c, const struct tu_tensor *codes, bool *keep,
                   struct tu_err *err)
{
    struct tu_choice choice;
    struct tu_tensor was = *codes;
    was.dtype = TU_F32;
    int rc = tu_recipe_choose(c->recipe, &was, &choice, err);
    *keep = strcmp(choice.type, "keep") == 0;
    return rc || *keep || c->requantize
               ? rc
               : tu_fail(err, TU_EUSAGE,
                         "'%.80s' is codes already; give --allow-requantize, or keep it "
                         "with a rule",
                         was.name);
}

static int check_tensor(struct choosing *c, const struct tu_tensor *x, struct tu_err *err)
{
    struct task t;
    int rc = task_begin(&t, c, x, err);
    if (!rc)
        task_end(&t);
    return rc;
}

int choosing_check(struct choosing *c, const struct tu_source *s, struct tu_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < s->n; i++)
        rc = check_tensor(c, &s->tensor[i], err);
    return rc ? rc : tu_recipe_check(c->recipe, err);
}

int choosing_check_stream(struct choosing *c, const char *path, struct tu_ctx *ctx,
                          struct tu_err *err)
{
    struct input in;
    struct stat st;
    enum item what = ITEM_OTHER;
    unsigned sides = 0;
    if (stat(path, &st) || !S_ISREG(st.st_mode))
        return 0;
    int rc = input_open(&in, path, SEEN_AS_IS, ctx, err);
    while (!rc && what != ITEM_DONE && (rc = input_next(&in, &what, err)) == 0) {
        const struct tu_tensor *x = &in.tensor;
        bool keep;
        choosing_model(c, &in);
        if (what == ITEM_END)
            rc = tu_recipe_check(c->recipe, err);
        if (what != ITEM_TENSOR || (sides && sides--))
            continue;
        sides = coded_is(x) ? coded_sides(x) : 0;
        rc = coded_is(x) ? choosing_keeps(c, x, &keep, err) : check_tensor(c, x, err);
    }
    input_close(&in);
    return rc;
}

int choosing_weighed(struct choosing *c, struct tu_ctx *ctx, struct tu_err *err)
{
    if (c->told || c->weighed + c->unweighed == 0)
        return 0;
    c->told = true;
    if (!c->weighed)
        return tu_fail(err, TU_EUSAGE, "%s: no weights for '%.80s' or any other tensor",
                       c->imatrix_path, c->missing);
    if (c->unweighed)
        tu_warn(ctx, "%s: no weights for '%.80s'%s: coded without", c->imatrix_path, c->missing,
                c->unweighed > 1 ? " and others" : "");
    return 0;
}
