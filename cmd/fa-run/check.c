/* SPDX-License-Identifier: Apache-2.0 */
/* check.c: fa-run check: results against a reference; a user's own program too.
 *
 * The rule is FlashAttention's: the error may be `factor` times that of a plain
 * implementation in the tested precision, plus atol. That error is taken against our own
 * float64 results, never against the reference: a wrong reference would allow itself.
 * For gradients it is estimated from the precision. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fa-run/compare.h"

static struct {
    const char *ref, *run, *dump;
    double factor, atol, rtol;
} opt = {.ref = "fp64", .atol = -1};

static const struct tu_opt options[] = {
    {0, "ref", "fp64|FILE",
     "reference: float64, or a stream with o, lse, dq ...; default fp64", TU_OPT_STRING,
     &opt.ref, NULL, 0},
    {0, "run", "CMD", "check what CMD writes when it is given the input", TU_OPT_STRING,
     &opt.run, NULL, 0},
    {0, "factor", NULL,
     "times the error of a plain implementation; default 2, gradients 3", TU_OPT_DOUBLE,
     &opt.factor, NULL, 0},
    {0, "atol", NULL, "error allowed beside; default by dtype", TU_OPT_DOUBLE, &opt.atol,
     NULL, 0},
    {0, "rtol", NULL, "error allowed, relative to the greatest element", TU_OPT_DOUBLE,
     &opt.rtol, NULL, 0},
    {0, "dump-fail", NULL, "on failure write the input to FILE, to run again",
     TU_OPT_FILE_OUT, &opt.dump, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"name", "RESULT", TU_COL_TEXT, 0},     {"ok", "OK", TU_COL_BOOL, 0},
    {"max_abs", "MAX_ABS", TU_COL_REAL, 0}, {"allowed", "ALLOWED", TU_COL_REAL, 0},
    {"max_rel", "MAX_REL", TU_COL_REAL, 0}, {"rmse_ratio", "RMSE_RATIO", TU_COL_REAL, 0},
    {"cosine", "COSINE", TU_COL_REAL, 0},   {"index", "INDEX", TU_COL_U64, 0},
    {"got", "GOT", TU_COL_REAL, 0},         {"expected", "EXPECTED", TU_COL_REAL, 0},
    {"nan_inf", "NAN_INF", TU_COL_U64, 0},  {NULL, NULL, 0, 0},
};

static double epsilon(uint32_t dtype)
{
    return dtype == TU_F32   ? 0x1p-23
           : dtype == TU_F16 ? 0x1p-11
           : dtype == TU_F64 ? 0x1p-52
                             : 0x1p-8;
}

/* What CMD makes of the segment. */
static int run_command(const struct fa_segment *s, const struct tu_mixer *row,
                       struct fa_segment *res, struct tu_err *err)
{
    int pipes[2];
    bool got;
    FILE *spool = tmpfile(); /* a file, so that CMD may write before it has read all */
    struct tu_out *out;
    struct tu_writer *w;
    struct tu_in *in;
    struct tu_reader *r;
    int code = spool ? 0 : tu_fail_errno(err, "temporary file");
    if (code)
        return code;
    if ((code = tu_out_take_fd(&out, dup(fileno(spool)), "input of --run", err)) ||
        (code = tu_writer_new(&w, out, err)) || (code = fa_write(w, s->op, s->n, err)) ||
        (code = tu_writer_end(w, false, err)) || (code = tu_writer_close(w, false, err)))
        goto out;
    rewind(spool);
    if (pipe(pipes)) {
        code = tu_fail_errno(err, "pipe");
        goto out;
    }
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fileno(spool), STDIN_FILENO);
        dup2(pipes[1], STDOUT_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        execl("/bin/sh", "sh", "-c", opt.run, (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    if (pid < 0)
        code = tu_fail_errno(err, "fork");
    if (!code && !(code = tu_in_take_fd(&in, pipes[0], "output of --run", err)) &&
        !(code = tu_reader_new(&r, in, 0, NULL, err))) {
        code = fa_segment_read(res, r, row, &got, err);
        if (!code && !got)
            code = tu_fail(err, TU_EEMPTY, "--run '%.60s': no output", opt.run);
        tu_reader_free(r);
    }
    int status = 0;
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (status)
        code = tu_fail(err, TU_EPEER, "--run '%.60s' failed with status %d", opt.run,
                       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
out:
    fclose(spool);
    return code;
}

/* A row that also takes results in, so that segments of them can be read. */
static const char *const results[] = {
    "o", "lse", "dq", "dk", "dv", "dsink", "dbias", "dslopes", "y", "state_out", NULL};
static const struct tu_mixer result_row = {.name = "results", .in = results};

/* The error of a plain implementation of this result; exact: ours in float64. */
static int low_error(const struct tu_mixer *row, struct tu_mixer_args *a,
                     const char *name, const double *exact, uint64_t n, double greatest,
                     double *out, struct tu_err *err)
{
    const struct tu_operand *q = &a->in[0];
    /* Rounding grows with what is summed: dA has an element per head and sums over all of
     * the first input. */
    uint64_t terms = n;
    if (tu_elements(q->dim, q->rank, &terms, NULL) || terms < n)
        terms = n;
    double eps = epsilon(q->dtype), tokens = sqrt((double)tu_max(1, terms));
    *out = greatest * (q->dtype == TU_F32 ? eps * fmin(tokens, 64) / 2 : 2 * eps);
    if ((strcmp(name, "o") && strcmp(name, "lse")) || strcmp(row->name, "softmax"))
        return 0;
    struct tu_mixer_args low = *a;
    low.pass = TU_PASS_FWD;
    low.algo = "low";
    int code = fa_outputs(row, &low, false, err);
    if (!code)
        code = row->run(&low, err);
    const struct tu_operand *o = tu_operand_find(low.out, low.n_out, name);
    double *v = code || !o ? NULL : fa_doubles(o, &n, err);
    if (v) {
        struct fa_diff d;
        fa_compare(&d, v, exact, n);
        *out = d.max_abs;
    }
    tu_free(v);
    fa_outputs_free(&low);
    return code;
}

/* How far a result may be from `want`, which need not be `exact`. */
static int allow(const struct tu_mixer *row, struct tu_mixer_args *a,
                 const struct tu_operand *want, const struct tu_operand *exact,
                 double *out, struct tu_err *err)
{
    struct fa_diff d;
    uint64_t n;
    double low = 0, *v = fa_doubles(exact, &n, err);
    if (!v)
        return err->code;
    fa_compare(&d, v, v, n);
    int code = low_error(row, a, exact->name, v, n, d.max_ref, &low, err);
    tu_free(v);
    bool narrow = a->in[0].dtype != TU_F32;
    if (!code && want != exact) /* a file's numbers are as fine as its dtype */
        low = fmax(low, d.max_ref * epsilon(want->dtype) / 2);
    double atol = opt.atol >= 0 ? opt.atol : narrow ? 1e-5 : 1e-6 * fmax(d.max_ref, 1);
    double factor = opt.factor > 0 ? opt.factor : narrow && exact->name[0] == 'd' ? 3 : 2;
    *out = factor * low + atol + opt.rtol * d.max_ref;
    return code;
}

static int compare_one(struct tu_ctx *ctx, const struct tu_operand *got,
                       const struct tu_operand *want, double allowed, bool *yes,
                       struct tu_err *err)
{
    uint64_t n, m;
    double *x = fa_doubles(got, &n, err), *y = x ? fa_doubles(want, &m, err) : NULL;
    int code = x && y ? 0 : err->code;
    if (!code && n != m)
        code = tu_fail(err, TU_ESIZE, "'%s' has %llu elements, its reference %llu",
                       got->name, (unsigned long long)n, (unsigned long long)m);
    if (!code) {
        struct fa_diff d;
        fa_compare(&d, x, y, n);
        bool ok = d.odd == 0 && d.max_abs <= allowed;
        *yes = *yes && ok;
        tu_row(ctx, (struct tu_cell[]){{.s = got->name},
                                       {.b = ok},
                                       {.f = d.max_abs},
                                       {.f = allowed},
                                       {.f = d.max_rel},
                                       {.f = d.rmse_ratio},
                                       {.f = d.cosine},
                                       {.u = d.worst},
                                       {.f = d.got},
                                       {.f = d.want},
                                       {.u = d.odd}});
    }
    tu_free(x);
    tu_free(y);
    return code;
}

struct work {
    struct tu_ctx *ctx;
    const struct tu_mixer *row;
    struct tu_attn_opts o;
};

/* Every result that both sides have; the first of a forward pass both must have. */
static int compare_all(const struct work *work, struct tu_mixer_args *a,
                       const struct tu_mixer_args *ref, const struct fa_segment *mine,
                       const struct fa_segment *theirs, bool *yes, struct tu_err *err)
{
    int code = 0;
    size_t seen = 0;
    for (size_t i = 0; !code && i < a->n_out; i++) {
        const char *name = a->out[i].name;
        const struct tu_operand *exact = &ref->out[i], *got = &a->out[i], *want = exact;
        double allowed = 0;
        if (mine)
            got = tu_operand_find(mine->op, mine->n, name);
        if (theirs)
            want = tu_operand_find(theirs->op, theirs->n, name);
        if (got && want) {
            code = allow(work->row, a, want, exact, &allowed, err);
            if (!code)
                code = compare_one(work->ctx, got, want, allowed, yes, err);
            seen++;
        } else if (!strcmp(name, "o") || !strcmp(name, "y")) {
            code = tu_fail(err, TU_EINCOMPLETE, "the %s has no '%s'",
                           got ? "reference" : "result", name);
        }
    }
    if (!code && !seen)
        code = tu_fail(err, TU_EINCOMPLETE, "nothing to compare: the %s has no '%s'",
                       theirs ? "reference" : "result", a->out[0].name);
    return code;
}

static int check_segment(void *arg, struct fa_segment *s, struct tu_err *err)
{
    static const int pass[] = {TU_PASS_FWD, TU_PASS_BWD, TU_PASS_BOTH};
    struct work *work = arg;
    struct tu_ctx *ctx = work->ctx;
    const struct tu_mixer *row = work->row;
    struct tu_attn_opts *o = &work->o;
    struct tu_mixer_args a = {.opt = o,
                              .in = s->op,
                              .n_in = s->n,
                              .pass = pass[fa_opts.pass],
                              .algo = fa_opts.algo,
                              .job = fa_parallel() ? tu_ctx_alone(ctx) : tu_ctx_job(ctx)},
                         ref = a;
    struct fa_segment mine = {0}, theirs = {0};
    bool yes = true, file = strcmp(opt.ref, "fp64") != 0;
    ref.algo = "ref";
    int code = fa_opts.cast ? fa_segment_cast(s, err) : 0;
    code = code ? code : fa_rope(s, o, err);
    code = code ? code : fa_outputs(row, &a, false, err);
    code = code      ? code
           : opt.run ? run_command(s, &result_row, &mine, err)
                     : fa_compute(ctx, row, &a, err);
    code = code ? code : fa_outputs(row, &ref, true, err);
    code = code ? code : row->run(&ref, err);
    if (!code && file)
        code = fa_load(opt.ref, &result_row, &theirs, err);
    if (!code)
        code = compare_all(work, &a, &ref, opt.run ? &mine : NULL, file ? &theirs : NULL,
                           &yes, err);
    if (!code && !yes) {
        ctx->status = TU_STATUS_NO;
        code = opt.dump ? fa_save(ctx, opt.dump, s->op, s->n, err) : 0;
    }
    fa_segment_release(&mine);
    fa_segment_release(&theirs);
    fa_outputs_free(&a);
    fa_outputs_free(&ref);
    return code;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct work w = {.ctx = ctx};
    struct tu_err err = {0};
    int code = fa_resolve(ctx, &w.row, &w.o, &err);
    if (!code) {
        tu_rows_begin(ctx, columns);
        code = fa_each_segment(ctx, argc, argv, w.row, check_segment, &w, &err);
    }
    return code ? tu_error(ctx, &err) : 0;
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd fa_check = {
    .name = "check",
    .example = "fa-run check --causal qkv.tns",
    .summary = "compare results with a reference",
    .usage = usage,
    .opts = options,
    .shared = fa_shared,
    .flags = TU_CMD_STDIN | TU_CMD_COUNTS | TU_CMD_DEVICE,
    .min = 0,
    .max = TU_ANY,
    .run = run,
};
