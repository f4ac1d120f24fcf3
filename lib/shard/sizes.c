/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.c: the shapes that the configuration promises, held against the tensors.
 *
 * A wrong number of heads would interleave a fused QKV wrongly, and a head with more rows
 * than the vocabulary would lose them, without any shape telling. Widths of MLPs are not
 * held: what the tensors agree on is not cut by the configuration. */
#include <string.h>
#include "ckpt.h"

enum size { ANY, HIDDEN, VOCAB, Q, KV, OUT, KV_A, KV_B };

static uint64_t size_of(const struct tu_model *m, enum size size)
{
    switch (size) {
    case HIDDEN: return m->hidden;
    case VOCAB: return m->vocab;
    case Q: return m->heads * m->head_dim;
    case KV: return m->kv_heads * m->head_dim;
    case OUT: return m->heads * (m->v_dim ? m->v_dim : m->head_dim);
    case KV_A: return m->kv_rank + m->rope_dim;
    case KV_B: return m->heads * (m->nope_dim + m->v_dim);
    default: return 0;
    }
}

/* Canonical names without their layer and ending. */
static const struct {
    const char *part;
    enum size rows, cols;
} row[] = {
    {"attn.q", Q, HIDDEN},        {"attn.k", KV, HIDDEN},       {"attn.v", KV, HIDDEN},
    {"attn.o", HIDDEN, OUT},      {"attn.q_a", ANY, HIDDEN},    {"attn.q_b", Q, ANY},
    {"attn.kv_a", KV_A, HIDDEN},  {"attn.kv_b", KV_B, ANY},     {"mlp.gate", ANY, HIDDEN},
    {"mlp.up", ANY, HIDDEN},      {"mlp.down", HIDDEN, ANY},    {"attn_norm", HIDDEN, ANY},
    {"mlp_norm", HIDDEN, ANY},    {"norm", HIDDEN, ANY},        {"embed", VOCAB, HIDDEN},
    {"head", VOCAB, HIDDEN},      {"moe.router", ANY, HIDDEN},
};

static int differs(const struct tu_ckpt *c, const struct tu_role *r, uint64_t is,
                   uint64_t want, const char *what, struct tu_err *err)
{
    return tu_fail(err, TU_EINCOMPLETE,
                   "%.80s: '%.80s' has %llu %s, the configuration makes %llu", c->root,
                   r->name, (unsigned long long)is, what, (unsigned long long)want);
}

int tui_check_sizes(const struct tu_ckpt *c, struct tu_err *err)
{
    for (size_t i = 0; i < c->roles && c->canonical && c->model.layers; i++) {
        const struct tu_role *r = &c->role[i];
        const char *part = r->base, *dot;
        if (r->layer >= 0) /* "layers.N." or "mtp.N." */
            part = (dot = strchr(part, '.')) && (dot = strchr(dot + 1, '.')) ? dot + 1 : part;
        const char *ending = strrchr(part, '.');
        size_t n = ending ? (size_t)(ending - part) : strlen(part);
        for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
            if (strlen(row[k].part) != n || memcmp(row[k].part, part, n))
                continue;
            const uint64_t rows = size_of(&c->model, row[k].rows),
                           cols = size_of(&c->model, row[k].cols);
            if (rows && r->rows != rows)
                return differs(c, r, r->rows, rows, "rows", err);
            if (cols && r->rank == 2 && r->cols != cols)
                return differs(c, r, r->cols, cols, "columns", err);
        }
    }
    return 0;
}
