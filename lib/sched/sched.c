/* SPDX-License-Identifier: Apache-2.0 */
/* sched.c: the schedule itself: building, placement maps, operation texts, the table's
 * use.
 *
 * Invariant: place[] holds ranks below s->ranks; op[r] has n[r] operations. Whether the
 * operations make sense is the simulator's question. */
#include <stdio.h>
#include <string.h>
#include "sched/build.h"
#include "sched/cost.h"

#define KEYS_MAX 8 /* of a row */

static const char *const op_letters[TU_OP_KINDS] = {
#define TEXT(NAME, text, help) text,
    TU_OP_TABLE(TEXT)
#undef TEXT
};

const char *tu_op_name(unsigned kind)
{
    return kind < TU_OP_KINDS ? op_letters[kind] : "?";
}

void tu_sched_free(struct tu_sched *s)
{
    if (!s)
        return;
    for (uint32_t r = 0; s->op && r < s->ranks; r++)
        tu_free(s->op[r]);
    tu_free(s->op);
    tu_free(s->n);
    tu_free(s->cap);
    tu_free(s->place);
    tu_free(s);
}

size_t tu_sched_ops(const struct tu_sched *s)
{
    size_t n = 0;
    for (uint32_t r = 0; r < s->ranks; r++)
        n += s->n[r];
    return n;
}

static char *put_u32(char *p, uint32_t v)
{
    char digit[10];
    int n = 0;
    do
        digit[n++] = (char)('0' + v % 10);
    while (v /= 10);
    while (n)
        *p++ = digit[--n];
    return p;
}

const char *tu_op_text(const struct tu_op *op, uint32_t slices, char out[40])
{
    char *p = out;
    bool staged = op->kind != TU_OP_OPT;
    if (staged)
        p = put_u32(p, op->stage);
    for (const char *t = tu_op_name(op->kind); *t; t++)
        *p++ = *t;
    if (staged && (op->kind < TU_OP_UNSHARD || op->kind > TU_OP_REDUCE)) {
        p = put_u32(p, op->mb);
        if (slices > 1) {
            *p++ = '.';
            p = put_u32(p, op->slice);
        }
    }
    *p = 0;
    return out;
}

/* Building ------------------------------------------------------------------------------
 */

void tui_build_begin(struct tui_build *b, uint32_t ranks, uint32_t stages,
                     uint32_t pipelines, uint32_t mbs, struct tu_err *err)
{
    *b = (struct tui_build){.err = err};
    struct tu_sched *s = b->s = tu_calloc(1, sizeof *s, err);
    if (s) {
        s->ranks = ranks;
        s->stages = stages;
        s->pipelines = pipelines;
        s->microbatches = mbs;
        s->slices = s->accumulate = 1;
        s->place = tu_calloc((size_t)pipelines * stages, sizeof *s->place, err);
        s->op = tu_calloc(ranks, sizeof *s->op, err);
        s->n = tu_calloc(ranks, sizeof *s->n, err);
        s->cap = tu_calloc(ranks, sizeof *s->cap, err);
    }
    if (!s || !s->place || !s->op || !s->n || !s->cap)
        b->code = TU_ENOMEM;
}

int tui_build_end(struct tui_build *b, struct tu_sched **out)
{
    *out = NULL;
    if (b->code)
        tu_sched_free(b->s);
    else
        *out = b->s;
    b->s = NULL;
    return b->code;
}

void tui_place_loop(struct tui_build *b)
{
    struct tu_sched *s = b->s;
    for (uint32_t k = 0; !b->code && k < s->pipelines * s->stages; k++) {
        uint32_t r = k % s->stages % s->ranks;
        s->place[k] = k < s->stages ? r : s->ranks - 1 - r;
    }
}

void tui_place_snake(struct tui_build *b)
{
    struct tu_sched *s = b->s;
    for (uint32_t k = 0; !b->code && k < s->pipelines * s->stages; k++) {
        uint32_t in = k % s->stages, r = in % s->ranks;
        if (in / s->ranks % 2)
            r = s->ranks - 1 - r;
        s->place[k] = k < s->stages ? r : s->ranks - 1 - r;
    }
}

void tui_add_op(struct tui_build *b, uint32_t rank, const struct tu_op *op)
{
    struct tu_sched *s = b->s;
    if (b->code)
        return;
    b->code = TU_GROW(&s->op[rank], &s->cap[rank], s->n[rank], b->err);
    if (!b->code)
        s->op[rank][s->n[rank]++] = *op;
}

void tui_add_slice(struct tui_build *b, uint32_t rank, enum tu_op_kind kind,
                   uint32_t stage, uint32_t mb, uint32_t slice)
{
    tui_add_op(
        b, rank,
        &(struct tu_op){
            .kind = (uint8_t)kind, .slice = (uint16_t)slice, .stage = stage, .mb = mb});
}

void tui_add(struct tui_build *b, uint32_t rank, enum tu_op_kind kind, uint32_t stage,
             uint32_t mb)
{
    tui_add_slice(b, rank, kind, stage, mb, 0);
}

void tui_add_pair(struct tui_build *b, uint32_t rank, uint32_t f_stage, uint32_t f_mb,
                  uint32_t b_stage, uint32_t b_mb)
{
    tui_add_op(b, rank,
               &(struct tu_op){
                   .kind = TU_OP_F, .flags = TU_OP_PAIRED, .stage = f_stage, .mb = f_mb});
    tui_add(b, rank, TU_OP_B, b_stage, b_mb);
}

/* Placement -----------------------------------------------------------------------------
 */

uint32_t tu_sched_chunks(const struct tu_sched *s)
{
    uint32_t most = 1, *count = tu_calloc(s->ranks, sizeof *count, NULL);
    for (uint32_t k = 0; count && k < s->stages; k++)
        if (++count[s->place[k]] > most)
            most = count[s->place[k]];
    tu_free(count);
    return most;
}

const char *tu_sched_placement(const struct tu_sched *s)
{
    bool loop = true, snake = true;
    for (uint32_t k = 0; k < s->stages; k++) {
        uint32_t r = k % s->ranks;
        loop = loop && s->place[k] == r;
        snake = snake && s->place[k] == (k / s->ranks % 2 ? s->ranks - 1 - r : r);
    }
    if (s->pipelines > 1)
        return loop || snake ? "bidirectional" : "custom";
    if (loop)
        return s->stages == s->ranks ? "linear" : "loop";
    if (snake)
        return s->stages == 2 * s->ranks ? "v" : "wave";
    return "custom";
}

/* The table -----------------------------------------------------------------------------
 */

uint64_t tui_key(const struct tu_sched_params *q, const char *key, uint64_t fallback,
                 int *code, struct tu_err *err)
{
    uint64_t v = fallback;
    if (!*code && q->spec)
        *code = tu_spec_u64(q->spec, key, fallback, &v, err);
    return v;
}

const char *tui_key_text(const struct tu_sched_params *q, const char *key,
                         const char *fallback)
{
    const char *v = q->spec ? tu_spec_get(q->spec, key) : NULL;
    return v ? v : fallback;
}

const struct tu_schedule *tu_schedule_find(const char *name)
{
    for (size_t i = 0; tu_schedules[i]; i++)
        if (!strcmp(tu_schedules[i]->name, name))
            return tu_schedules[i];
    return NULL;
}

const char *tu_sched_rank_name(const struct tu_sched *s, uint32_t rank, char out[24])
{
    const struct tu_schedule *row = *s->name ? tu_schedule_find(s->name) : NULL;
    uint32_t named = 0;
    while (row && row->rank && row->rank[named])
        named++;
    if (rank < named)
        return row->rank[rank];
    snprintf(out, 24, "rank %u", rank);
    return out;
}

/* The row's own keys and `chunks`, which all have. */
static int keys(const struct tu_schedule *row, const struct tu_spec *spec,
                struct tu_err *err)
{
    const char *known[KEYS_MAX + 2] = {"chunks"};
    for (size_t k = 0; row->key && row->key[k] && k < KEYS_MAX; k++)
        known[k + 1] = row->key[k];
    return tu_spec_check(spec, known, err);
}

int tu_schedule_chunks(uint32_t *v, const struct tu_schedule *row,
                       const struct tu_sched_params *q, struct tu_err *err)
{
    uint64_t key = 0;
    int rc = q->spec ? keys(row, q->spec, err) : 0;
    if (!rc && q->spec)
        rc = tu_spec_u64(q->spec, "chunks", 0, &key, err);
    if (!rc && key && q->v && key != q->v)
        rc = tu_fail(err, TU_EUSAGE, "%s: chunks per rank: %llu and %u are asked for",
                     row->name, (unsigned long long)key, q->v);
    if (!rc && key > TU_SCHED_MAX)
        rc = tu_fail(err, TU_EUSAGE, "%s: chunks: %llu is over %u", row->name,
                     (unsigned long long)key, TU_SCHED_MAX);
    *v = q->v ? q->v : key ? (uint32_t)key : row->chunks ? row->chunks : row->chunks_min;
    return rc;
}

static int sizes(const struct tu_schedule *row, const struct tu_sched_params *q,
                 struct tu_err *err)
{
    const struct {
        const char *what;
        uint64_t v;
    } part[] = {
        {"ranks (-p)", q->p},
        {"micro-batches (-m)", q->m},
        {"chunks (-c)", q->v},
    };
    for (size_t i = 0; i < 3; i++)
        if (!part[i].v || part[i].v > TU_SCHED_MAX)
            return tu_fail(err, TU_EUSAGE, "%s: %s: %llu is not in 1 … %u", row->name,
                           part[i].what, (unsigned long long)part[i].v, TU_SCHED_MAX);
    if (q->v < row->chunks_min || q->v > row->chunks_max) {
        if (row->chunks_min == row->chunks_max)
            return tu_fail(err, TU_EUSAGE, "%s: has %u chunk%s per rank, not %u",
                           row->name, row->chunks_min, row->chunks_min == 1 ? "" : "s",
                           q->v);
        return tu_fail(err, TU_EUSAGE, "%s: chunks per rank: %u is not in %u … %u",
                       row->name, q->v, row->chunks_min, row->chunks_max);
    }
    uint64_t ops = (uint64_t)q->p * q->v;
    if (ops > TU_SCHED_MAX)
        return tu_fail(err, TU_EUSAGE, "%s: p·v = %llu stages: more than %u", row->name,
                       (unsigned long long)ops, TU_SCHED_MAX);
    if (tu_mul_over(ops, q->m, &ops) || ops > TU_SCHED_OPS_MAX)
        return tu_fail(err, TU_EUSAGE, "%s: p·m·v = %llu is over the limit of %llu",
                       row->name, (unsigned long long)ops,
                       (unsigned long long)TU_SCHED_OPS_MAX);
    return 0;
}

int tu_schedule_make(struct tu_sched **out, const struct tu_schedule *row,
                     const struct tu_sched_params *params, struct tu_err *err)
{
    struct tu_sched_params q = *params;
    *out = NULL;
    int rc = tu_schedule_chunks(&q.v, row, params, err);
    if (!rc)
        rc = sizes(row, &q, err);
    if (!rc && q.cost)
        rc = tui_cost_limit(q.cost, 3 * (uint64_t)q.p * q.v * q.m, err);
    if (!rc && row->legal)
        rc = row->legal(&q, err);
    if (!rc)
        rc = row->make(out, &q, err);
    if (!rc)
        snprintf((*out)->name, sizeof(*out)->name, "%s", row->name);
    return rc;
}
