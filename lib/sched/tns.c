/* SPDX-License-Identifier: Apache-2.0 */
/* tns.c: a schedule as a segment of a tensor stream.
 *
 * META "sched" holds the document without its lists; sched.ops int32 [n,6]: rank,
 * position, kind, stage, micro-batch, group (number of an overlapped pair, else -1), a
 * sequence slice in the upper half of the kind; sched.times int64 [n,2]: start and end in
 * ticks. */
#include <string.h>
#include "sched/load.h"

#define CELLS 6

static int put(struct tu_writer *w, const char *name, uint32_t dtype, const void *v,
               uint64_t rows, uint64_t cols, struct tu_err *err)
{
    const uint64_t dim[2] = {rows, cols};
    struct tu_tensor t = {.name = name,
                          .dtype = dtype,
                          .rank = 2,
                          .dim = dim,
                          .bytes = rows * cols * (dtype == TU_I64 ? 8 : 4)};
    return tu_writer_tensor(w, &t, v, err);
}

static void pack(unsigned char *p, const struct tu_sched *s)
{
    uint32_t pairs = 0;
    for (uint32_t r = 0; r < s->ranks; r++)
        for (size_t i = 0; i < s->n[r]; i++, p += 4 * CELLS) {
            const struct tu_op *op = &s->op[r][i];
            bool first = op->flags & TU_OP_PAIRED,
                 second = i && op[-1].flags & TU_OP_PAIRED;
            tu_put32(p, r);
            tu_put32(p + 4, (uint32_t)i);
            tu_put32(p + 8, op->kind | (uint32_t)op->slice << 16);
            tu_put32(p + 12, op->stage);
            tu_put32(p + 16, op->mb);
            tu_put32(p + 20, first || second ? pairs : UINT32_MAX);
            pairs += second;
        }
}

int tu_sched_to_stream(struct tu_writer *w, const struct tu_sched *s,
                       const struct tu_cost *c, const struct tu_sim *sim,
                       struct tu_err *err)
{
    struct tu_buf head = {0};
    size_t ops = tu_sched_ops(s);
    unsigned char *v = tu_alloc(ops, CELLS * 4, err);
    int rc = v ? tui_json_head(&head, s, c, err) : TU_ENOMEM;
    if (!rc)
        rc = tu_writer_meta(w, "sched", head.data, head.n, err);
    if (!rc) {
        pack(v, s);
        rc = put(w, "sched.ops", TU_I32, v, ops, CELLS, err);
    }
    if (!rc && sim) {
        unsigned char *t = tu_alloc(sim->ops, 16, err);
        rc = t ? 0 : TU_ENOMEM;
        for (size_t i = 0; !rc && i < sim->ops; i++) {
            tu_put64(t + 16 * i, (uint64_t)sim->start[i]);
            tu_put64(t + 16 * i + 8, (uint64_t)sim->end[i]);
        }
        rc = rc ? rc : put(w, "sched.times", TU_I64, t, sim->ops, 2, err);
        tu_free(t);
    }
    tu_buf_release(&head);
    tu_free(v);
    return rc ? rc : tu_writer_end(w, false, err);
}

/* The records of the first segment that matter. */
struct found {
    char *head;
    size_t head_n;
    unsigned char *ops;
    size_t rows;
};

static int collect(struct found *f, struct tu_reader *r, struct tu_err *err)
{
    const struct tu_record *rec;
    for (;;) {
        int rc = tu_reader_next(r, &rec, err);
        if (rc)
            return rc;
        if (!rec || rec->type == TU_REC_END)
            return 0;
        bool named = rec->type == TU_REC_META ? !strcmp(rec->name, "sched")
                                              : !strcmp(rec->name, "sched.ops");
        if (!named || (rec->type != TU_REC_META && rec->type != TU_REC_TENSOR))
            continue;
        if (rec->type == TU_REC_META) {
            tu_free(f->head);
            f->head_n = rec->meta_len;
            f->head = tu_alloc(rec->meta_len + 1, 1, err);
            if (!f->head)
                return TU_ENOMEM;
            memcpy(f->head, rec->meta, rec->meta_len);
            f->head[rec->meta_len] = 0;
            continue;
        }
        if (rec->dtype != TU_I32 || rec->nwords != 2 || rec->word[1] != CELLS || f->ops)
            return tu_fail(err, TU_EFORMAT,
                           "sched.ops: one int32 tensor [n,6] is expected");
        void *data;
        f->rows = rec->word[0];
        rc = tu_reader_load(r, (uint64_t)1 << 34, &data, err);
        if (rc)
            return rc;
        f->ops = data;
    }
}

static int unpack(struct tui_load *l, const void *ctx, struct tu_err *err)
{
    const struct found *f = ctx;
    uint32_t rank = 0, position = 0;
    for (size_t i = 0; i < f->rows && !l->b.code; i++) {
        const unsigned char *p = f->ops + 4 * CELLS * i;
        uint32_t r = tu_le32(p), kind = tu_le32(p + 8);
        if (r != rank)
            position = 0;
        rank = r;
        if (r >= l->b.s->ranks || tu_le32(p + 4) != position++ ||
            (kind & 0xffff) >= TU_OP_KINDS || tu_le32(p + 12) > 2 * TU_SCHED_MAX ||
            tu_le32(p + 16) >= TU_SCHED_MAX)
            return tu_fail(err, TU_EFORMAT, "sched.ops: row %zu is not an operation", i);
        struct tu_op op = {.kind = (uint8_t)kind,
                           .slice = (uint16_t)(kind >> 16),
                           .stage = tu_le32(p + 12),
                           .mb = tu_le32(p + 16)};
        uint32_t group = tu_le32(p + 20);
        if (group != UINT32_MAX && i + 1 < f->rows && tu_le32(p + 4 * CELLS) == r &&
            tu_le32(p + 4 * CELLS + 20) == group)
            op.flags = TU_OP_PAIRED;
        tui_load_op(l, r, &op);
    }
    return l->b.code;
}

int tu_sched_from_stream(struct tu_sched **out, struct tu_cost *c, struct tu_reader *r,
                         struct tu_err *err)
{
    struct found f = {0};
    uint32_t ranks = 0;
    *out = NULL;
    int rc = collect(&f, r, err);
    if (!rc && (!f.head || !f.ops))
        rc = tu_fail(err, TU_EFORMAT,
                     "stream: META 'sched' or tensor 'sched.ops' is missing");
    for (size_t i = 0; !rc && i < f.rows; i++) {
        uint32_t k = tu_le32(f.ops + 4 * CELLS * i);
        if (k >= TU_SCHED_MAX)
            rc = tu_fail(err, TU_EFORMAT, "sched.ops: row %zu: no such rank", i);
        ranks = k + 1 > ranks ? k + 1 : ranks;
    }
    if (!rc && !ranks)
        rc = tu_fail(err, TU_EFORMAT, "sched.ops: is empty");
    if (!rc)
        rc = tui_json_with(out, c, ranks, f.head, f.head_n, unpack, &f, err);
    tu_free(f.head);
    tu_free(f.ops);
    return rc;
}
