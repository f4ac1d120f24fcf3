/* SPDX-License-Identifier: Apache-2.0 */
/* recur.c: operands and tasks of the recurrent mixers. */
#include <inttypes.h>
#include <string.h>
#include "attn/recur.h"

int tui_recur_shape(const struct tu_operand *o, const char *name, unsigned rank,
                    const uint64_t *dim, struct tu_err *err)
{
    if (!o)
        return tui_missing(name, err);
    if (!tu_dtype_is_float(o->dtype) || !tu_dtype_is_plain(o->dtype))
        return tu_fail(err, TU_EDTYPE, "'%s' must be of a plain float dtype", name);
    if (o->rank != rank)
        return tu_fail(err, TU_ESIZE, "'%s' has %u dimensions: %u needed", name, o->rank,
                       rank);
    for (unsigned i = 0; i < rank; i++)
        if (o->dim[i] != dim[i])
            return tu_fail(err, TU_ESIZE,
                           "'%s': dimension %u is %" PRIu64 ", expected %" PRIu64, name,
                           i, o->dim[i], dim[i]);
    return 0;
}

int tui_recur_init(struct tui_recur *r, const struct tu_mixer_args *m, struct tu_err *err)
{
    *r = (struct tui_recur){.q = tu_operand_find(m->in, m->n_in, "q"),
                            .k = tu_operand_find(m->in, m->n_in, "k"),
                            .v = tu_operand_find(m->in, m->n_in, "v"),
                            .dout = tu_operand_find(m->in, m->n_in, "do"),
                            .state = tu_operand_find(m->in, m->n_in, "state_in")};
    if (!r->q || !r->v)
        return tui_missing(r->q ? "v" : "q", err);
    if (m->opt->layout != TU_ATTN_BSHD || r->q->rank != 4 || r->v->rank != 4)
        return tu_fail(err, TU_EUSAGE,
                       "this operator takes [batch, tokens, heads, dim] only");
    r->batch = r->q->dim[0];
    r->n = r->q->dim[1];
    r->heads = r->q->dim[2];
    r->d = r->q->dim[3];
    r->dv = r->v->dim[3];
    uint64_t v[4] = {r->batch, r->n, r->heads, r->dv},
             s[4] = {r->batch, r->heads, r->d, r->dv};
    int code;
    if ((code = tui_recur_shape(r->q, "q", 4, r->q->dim, err)) ||
        (code = tui_recur_shape(r->k, "k", 4, r->q->dim, err)) ||
        (code = tui_recur_shape(r->v, "v", 4, v, err)) ||
        (r->dout && (code = tui_recur_shape(r->dout, "do", 4, v, err))) ||
        (r->state && (code = tui_recur_shape(r->state, "state_in", 4, s, err))))
        return code;
    return 0;
}

void tui_recur_out(struct tu_mixer_args *m, const char *name, uint32_t dtype,
                   unsigned rank, const uint64_t *dim)
{
    struct tu_operand *o = &m->out[m->n_out++];
    *o = (struct tu_operand){.name = name, .dtype = dtype, .rank = rank};
    memcpy(o->dim, dim, rank * sizeof *dim);
}

static unsigned char *row(const struct tu_operand *o, uint64_t b, uint64_t t, uint64_t h)
{
    uint64_t at = ((b * o->dim[1] + t) * o->dim[2] + h) * o->dim[3];
    return (unsigned char *)o->data + at * tu_dtype_find(o->dtype)->block_bytes;
}

struct tui_steps tui_recur_steps(const struct tu_operand *o, uint64_t b, uint64_t h)
{
    if (!o)
        return (struct tui_steps){0};
    size_t e = tu_dtype_find(o->dtype)->block_bytes;
    return (struct tui_steps){row(o, b, 0, h), o->dtype,
                              (int64_t)(o->dim[2] * o->dim[3] * e)};
}

bool tui_recur_exact(const struct tu_mixer_args *m, uint32_t storage)
{
    return storage == TU_F64 || m->opt->deterministic ||
           (m->algo && !strcmp(m->algo, "ref"));
}

int tui_recur_load(const struct tu_operand *o, uint64_t b, uint64_t h, double *out,
                   struct tu_err *err)
{
    int code = 0;
    for (uint64_t t = 0; !code && t < o->dim[1]; t++)
        code =
            tu_to_double(o->dtype, row(o, b, t, h), out + t * o->dim[3], o->dim[3], err);
    return code;
}

enum { PIECE = 256 };

/* Doubles into any dtype. Those that came from f32 give the same by way of f32, for which
 * there are vectors. */
static int narrow(uint32_t dtype, unsigned char *to, const double *v, uint64_t n,
                  struct tu_err *err)
{
    const size_t e = tu_dtype_find(dtype)->block_bytes;
    float some[PIECE];
    int code = 0;
    for (uint64_t done = 0, m; !code && done < n; done += m, v += m) {
        bool same = true;
        m = tu_min(PIECE, n - done);
        for (uint64_t i = 0; i < m; i++) {
            some[i] = (float)v[i];
            same &= (double)some[i] == v[i];
        }
        code = tu_cast(dtype, to + done * e, same ? TU_F32 : TU_F64,
                       same ? (const void *)some : v, m, err);
    }
    return code;
}

int tui_recur_store(const struct tu_operand *o, uint64_t b, uint64_t h, const double *v,
                    struct tu_err *err)
{
    int code = 0;
    for (uint64_t t = 0; o && !code && t < o->dim[1]; t++)
        code = narrow(o->dtype, row(o, b, t, h), v + t * o->dim[3], o->dim[3], err);
    return code;
}

int tui_recur_state(const struct tu_operand *o, uint64_t at, double *out, uint64_t n,
                    struct tu_err *err)
{
    if (!o) {
        memset(out, 0, n * sizeof *out);
        return 0;
    }
    size_t e = tu_dtype_find(o->dtype)->block_bytes;
    return tu_to_double(o->dtype, (char *)o->data + at * n * e, out, n, err);
}

int tui_recur_put(const struct tu_operand *o, uint64_t at, const double *v, uint64_t n,
                  struct tu_err *err)
{
    if (!o)
        return 0;
    size_t e = tu_dtype_find(o->dtype)->block_bytes;
    return tu_cast(o->dtype, (char *)o->data + at * n * e, TU_F64, v, n, err);
}

int tui_recur_run(const struct tu_mixer_args *m, uint64_t n, tu_task_fn task,
                  struct tu_err *err)
{
    static const char *const summed[] = {"dA", "dB", "dC", "dD"};
    for (size_t i = 0; i < sizeof summed / sizeof *summed; i++) {
        const struct tu_operand *o = tu_operand_find(m->out, m->n_out, summed[i]);
        uint64_t bytes;
        int code = o ? tu_tensor_bytes(o->dtype, o->dim, o->rank, &bytes, err) : 0;
        if (code)
            return code;
        if (o)
            memset(o->data, 0, bytes);
    }
    struct tu_pool *pool = m->job && m->pass == TU_PASS_FWD ? m->job->pool : NULL;
    return tu_pool_run(pool, n, task, (void *)m, err);
}
