/* SPDX-License-Identifier: Apache-2.0 */
/* state.c: --state-in and --state-out. */
#include <string.h>
#include "fa-run/state.h"

static bool carries(const struct fa_state *t)
{
    return t->in || t->out;
}

/* Take the data of a state over, under the name that the operators read. */
static void keep(struct fa_state *t, struct tu_operand *op)
{
    tu_free(t->op.data);
    t->op = *op;
    t->op.name = "state_in";
    op->data = NULL;
}

int fa_state_begin(struct fa_state *t, const struct tu_mixer *row, struct tu_err *err)
{
    static const char *const names[] = {"state_out", "state_in", NULL};
    static const struct tu_mixer states = {.name = "states", .in = names};
    struct fa_segment s = {0};
    size_t i = 0;
    if (!carries(t))
        return 0;
    while (row->in[i] && strcmp(row->in[i], "state_in?"))
        i++;
    if (!row->in[i])
        return tu_fail(err, TU_EUSAGE, "--state-in, --state-out: %s carries no state",
                       row->name);
    int code = t->in ? fa_load(t->in, &states, &s, err) : 0;
    for (i = 0; !code && names[i] && !t->op.data; i++)
        for (size_t k = 0; k < s.n; k++)
            if (!strcmp(s.op[k].name, names[i]))
                keep(t, &s.op[k]);
    if (!code && t->in && !t->op.data)
        code = tu_fail(err, TU_EINCOMPLETE, "%s: no record 'state_out' or 'state_in'",
                       t->in);
    fa_segment_release(&s);
    return code;
}

int fa_state_enter(const struct fa_state *t, const struct fa_segment *s,
                   struct tu_operand *op, size_t *n, struct tu_err *err)
{
    memcpy(op, s->op, s->n * sizeof *op);
    *n = s->n;
    if (!t->op.data)
        return 0;
    if (tu_operand_find(s->op, s->n, "state_in"))
        return tu_fail(err, TU_EUSAGE, "a record 'state_in' where a state is carried");
    op[(*n)++] = t->op;
    return 0;
}

int fa_state_leave(struct fa_state *t, const struct tu_mixer_args *a, struct tu_err *err)
{
    const struct tu_operand *o = tu_operand_find(a->out, a->n_out, "state_out");
    uint64_t bytes;
    if (!carries(t))
        return 0;
    if (!o)
        return tu_fail(err, TU_EUSAGE, "--state-out is of the forward pass");
    int code = tu_tensor_bytes(o->dtype, o->dim, o->rank, &bytes, err);
    if (code)
        return code;
    struct tu_operand copy = *o;
    if (!(copy.data = tu_alloc(bytes, 1, err)))
        return TU_ENOMEM;
    memcpy(copy.data, o->data, bytes);
    keep(t, &copy);
    return 0;
}

int fa_state_end(struct fa_state *t, struct tu_ctx *ctx, struct tu_err *err)
{
    struct tu_operand op = t->op;
    if (!t->out)
        return 0;
    if (!op.data)
        return tu_fail(err, TU_EEMPTY, "--state-out: no segment has left a state");
    op.name = "state_out";
    return fa_save(ctx, t->out, &op, 1, err);
}

void fa_state_release(struct fa_state *t)
{
    tu_free(t->op.data);
    t->op.data = NULL;
}
