/* SPDX-License-Identifier: Apache-2.0 */
/* run.c: fa-run run: tensors in, results out, a segment for a segment; partial results
 * and their merge. */
#include <math.h>
#include <string.h>
#include "fa-run/explain.h"
#include "fa-run/state.h"

static struct {
    bool partial, merge, explain;
    struct fa_state state;
} opt;

static const struct tu_opt options[] = {
    {0, "partial", NULL, "o in f32 and lse: a part of the keys, for --merge", TU_OPT_FLAG,
     &opt.partial, NULL, 0},
    {0, "merge", NULL, "merge such parts, one segment each", TU_OPT_FLAG, &opt.merge,
     NULL, 0},
    {0, "state-in", NULL, "state before the first segment; segments are pieces then",
     TU_OPT_FILE_IN, &opt.state.in, NULL, 0},
    {0, "state-out", NULL, "write the state after the last segment", TU_OPT_FILE_OUT,
     &opt.state.out, NULL, 0},
    {0, "explain", NULL, "tell what each form moves and computes; compute nothing",
     TU_OPT_FLAG, &opt.explain, NULL, 0},
    {0},
};

static int write_meta(struct tu_writer *w, bool partial, uint32_t out, struct tu_err *err)
{
    struct tu_buf text = {0};
    int code = partial ? tu_buf_printf(&text, err,
                                       "{\"lse_base\":\"e\",\"out_dtype\":\"%s\","
                                       "\"partial\":true,\"sinks\":false}",
                                       tu_dtype_find(out)->name)
                       : tu_buf_text(&text, "{\"lse_base\":\"e\"}", err);
    if (!code)
        code = tu_writer_meta(w, "fa", text.data, text.n, err);
    tu_buf_release(&text);
    return code;
}

static int ready(struct tu_ctx *ctx, struct fa_segment *s, struct tu_attn_opts *o,
                 struct tu_err *err)
{
    int code = fa_opts.cast ? fa_segment_cast(s, err) : 0;
    if (code)
        return code;
    uint64_t odd = fa_segment_odd(s);
    if (odd && fa_opts.strict)
        return tu_fail(err, TU_EFORMAT, "%llu NaN or Inf among the inputs",
                       (unsigned long long)odd);
    if (odd)
        tu_warn(ctx, "%llu NaN or Inf among the inputs", (unsigned long long)odd);
    if ((o->placed = s->q_placed && s->k_placed)) {
        o->q_first = (int64_t)s->q_first;
        o->k_first = (int64_t)s->k_first;
    }
    if (o->left >= 0 || o->right >= 0)
        tu_note(ctx, 1, "window (%lld, %lld)", (long long)o->left, (long long)o->right);
    return fa_rope(s, o, err);
}

static int run_segment(struct tu_ctx *ctx, const struct tu_mixer *row,
                       struct tu_attn_opts *o, struct fa_segment *s, struct tu_writer *w,
                       struct tu_err *err)
{
    static const int pass[] = {TU_PASS_FWD, TU_PASS_BWD, TU_PASS_BOTH};
    struct tu_operand in[FA_OPERANDS + 1];
    struct tu_mixer_args a = {.opt = o,
                              .in = in,
                              .pass = pass[fa_opts.pass],
                              .algo = fa_opts.algo,
                              .job = fa_parallel() ? tu_ctx_alone(ctx) : tu_ctx_job(ctx)};
    int code = ready(ctx, s, o, err);
    code = code ? code : fa_state_enter(&opt.state, s, in, &a.n_in, err);
    if (!code)
        code = opt.explain ? row->infer(&a, err) : fa_outputs(row, &a, false, err);
    if (!code && opt.explain)
        return fa_explain(ctx, row, &a, err);
    const struct tu_operand *q = tu_operand_find(s->op, s->n, "q");
    if (!code)
        code = fa_compute(ctx, row, &a, err);
    if (!code)
        code = fa_state_leave(&opt.state, &a, err);
    if (!code && !strcmp(row->name, "softmax"))
        code = write_meta(w, o->partial, o->store ? o->store : q->dtype, err);
    if (!code)
        code = fa_write(w, a.out, a.n_out, err);
    if (!code)
        code = tu_writer_end(w, false, err);
    fa_outputs_free(&a);
    return code;
}

/* The parts read so far. */
struct parts {
    struct fa_segment *seg;
    size_t n, cap;
};

static int take_part(struct parts *p, struct fa_segment *s, struct tu_err *err)
{
    const struct tu_operand *o = tu_operand_find(s->op, s->n, "o"),
                            *l = tu_operand_find(s->op, s->n, "lse");
    if (!s->partial || !o || !l || o->dtype != TU_F32 || l->dtype != TU_F32)
        return tu_fail(err, TU_EFORMAT,
                       "segment %zu is no partial result (fa-run --partial)", p->n);
    if (p->n) {
        const struct tu_operand *x = tu_operand_find(p->seg[0].op, p->seg[0].n, "o");
        if (o->rank != x->rank || memcmp(o->dim, x->dim, o->rank * sizeof *o->dim))
            return tu_fail(err, TU_ESIZE,
                           "'o' of segment %zu has another shape than that of "
                           "segment 0",
                           p->n);
    }
    int code = TU_GROW(&p->seg, &p->cap, p->n, err);
    if (code)
        return code;
    p->seg[p->n++] = *s;
    *s = (struct fa_segment){0};
    return 0;
}

/* o is [.., head, dim] by token, lse by head: bring lse into the order of o's rows. */
static void reorder(const struct tu_operand *o, const float *lse, float *out, bool back)
{
    bool packed = o->rank == 3, heads_first = !strcmp(fa_opts.layout, "bhsd") && !packed;
    uint64_t b = packed ? 1 : o->dim[0],
             s = packed ? o->dim[0] : o->dim[heads_first ? 2 : 1];
    uint64_t h = packed ? o->dim[1] : o->dim[heads_first ? 1 : 2];
    for (uint64_t x = 0; x < b; x++)
        for (uint64_t i = 0; i < s; i++)
            for (uint64_t k = 0; k < h; k++) {
                uint64_t head = (x * h + k) * s + i,
                         row = heads_first ? head : (x * s + i) * h + k;
                out[back ? head : row] = lse[back ? row : head];
            }
}

/* Sinks join once, after the merge: in the part that carries them. */
static int add_sinks(const struct parts *p, const struct tu_operand *o, float *out,
                     float *lse, struct tu_err *err)
{
    const struct tu_operand *sinks = NULL;
    for (size_t i = 0; i < p->n && !sinks; i++)
        sinks = tu_operand_find(p->seg[i].op, p->seg[i].n, "sinks");
    if (!sinks)
        return 0;
    bool heads_first = !strcmp(fa_opts.layout, "bhsd") && o->rank == 4;
    uint64_t h = o->dim[heads_first ? 1 : o->rank - 2], dim = o->dim[o->rank - 1],
             rows = 1;
    for (unsigned i = 0; i + 1 < o->rank; i++)
        rows *= o->dim[i];
    if (sinks->dtype != TU_F32 || sinks->rank != 1 || sinks->dim[0] != h)
        return tu_fail(err, TU_ESIZE, "'sinks' must be f32 [%llu]",
                       (unsigned long long)h);
    for (uint64_t r = 0; r < rows; r++) {
        uint64_t head = heads_first ? r / o->dim[2] % h : r % h;
        tu_attn_sink(out + r * dim, lse + r, 1, dim, ((const float *)sinks->data)[head]);
    }
    return 0;
}

static int merge(struct parts *p, struct tu_writer *w, struct tu_err *err)
{
    const struct tu_operand *first = tu_operand_find(p->seg[0].op, p->seg[0].n, "o");
    uint64_t dim = first->dim[first->rank - 1], n;
    int code = tu_elements(first->dim, first->rank, &n, err);
    if (code)
        return code;
    uint64_t rows = dim ? n / dim : 0;
    uint32_t out = p->seg[0].out_dtype ? p->seg[0].out_dtype : TU_F32;
    struct tu_arena *arena = tu_arena_new(err);
    float **o = arena ? tu_arena_alloc(arena, p->n, sizeof *o, err) : NULL;
    float **lse = o ? tu_arena_alloc(arena, p->n, sizeof *lse, err) : NULL;
    void *cast = lse ? tu_arena_alloc(arena, n, 8, err) : NULL;
    float *flat = cast ? tu_arena_alloc(arena, rows, sizeof *flat, err) : NULL;
    code = flat ? 0 : TU_ENOMEM;
    for (size_t i = 0; !code && i < p->n; i++) {
        const struct fa_segment *s = &p->seg[i];
        const struct tu_operand *l = tu_operand_find(s->op, s->n, "lse");
        uint64_t have;
        o[i] = tu_operand_find(s->op, s->n, "o")->data;
        code = tu_elements(l->dim, l->rank, &have, err);
        if (!code && have != rows)
            code = tu_fail(err, TU_ESIZE,
                           "'lse' of segment %zu has %llu elements, 'o' %llu rows", i,
                           (unsigned long long)have, (unsigned long long)rows);
        if (!code && !(lse[i] = tu_arena_alloc(arena, rows, sizeof(float), err)))
            code = TU_ENOMEM;
        if (!code)
            reorder(first, l->data, lse[i], false);
    }
    if (!code) {
        tu_attn_merge(o, lse, p->n, rows, dim);
        code = add_sinks(p, first, o[0], lse[0], err);
    }
    if (!code)
        code = tu_cast(out, cast, TU_F32, o[0], n, err);
    if (!code) {
        struct tu_operand res[2] = {*first,
                                    *tu_operand_find(p->seg[0].op, p->seg[0].n, "lse")};
        reorder(first, lse[0], flat, true);
        res[0].dtype = out;
        res[0].data = cast;
        res[1].data = flat;
        code = write_meta(w, false, out, err);
        code = code ? code : fa_write(w, res, 2, err);
        code = code ? code : tu_writer_end(w, false, err);
    }
    tu_arena_free(arena);
    return code;
}

struct work {
    struct tu_ctx *ctx;
    const struct tu_mixer *row;
    struct tu_attn_opts o;
    struct parts parts;
    struct tu_writer *out; /* NULL with --explain */
};

static int take_segment(void *arg, struct fa_segment *s, struct tu_err *err)
{
    struct work *w = arg;
    return opt.merge ? take_part(&w->parts, s, err)
                     : run_segment(w->ctx, w->row, &w->o, s, w->out, err);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct work w = {.ctx = ctx};
    struct tu_err err = {0};
    struct tu_out *out;
    int code = fa_resolve(ctx, &w.row, &w.o, &err);
    w.o.partial = opt.partial;
    if (!code && opt.partial && fa_opts.pass)
        code = tu_fail(&err, TU_EUSAGE, "--partial is of the forward pass");
    code = code ? code : fa_state_begin(&opt.state, w.row, &err);
    if (!code && !opt.explain && !(code = tu_ctx_output(ctx, &out, &err)))
        code = tu_writer_new(&w.out, out, &err);
    if (!code)
        code = fa_each_segment(ctx, argc, argv, w.row, take_segment, &w, &err);
    if (!code && opt.merge)
        code = w.parts.n ? merge(&w.parts, w.out, &err)
                         : tu_fail(&err, TU_EFORMAT, "there are no parts to merge");
    for (size_t i = 0; i < w.parts.n; i++)
        fa_segment_release(&w.parts.seg[i]);
    tu_free(w.parts.seg);
    if (!code && w.out) {
        code = tu_writer_close(w.out, false, &err);
        w.out = NULL;
    }
    tu_writer_abort(w.out);
    code = code ? code : fa_state_end(&opt.state, ctx, &err);
    fa_state_release(&opt.state);
    return code ? tu_error(ctx, &err) : 0;
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd fa_run = {
    .name = "run",
    .example = "fa-run run --causal qkv.tns -o o.tns",
    .summary = "compute: q k v in, o lse out",
    .usage = usage,
    .opts = options,
    .shared = fa_shared,
    .text = &opt.explain,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM | TU_CMD_COUNTS | TU_CMD_DEVICE,
    .min = 0,
    .max = TU_ANY,
    .run = run,
};
