/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.c: allreduce-bench diagnose: one verdict from the traces of all ranks. */
#include "allreduce-bench/bench.h"

static int add(struct tu_trace *t, const char *path, struct tu_err *err)
{
    struct tu_in *in;
    struct tu_buf text = {.max = (size_t)1 << 30};
    int code = tu_in_open(&in, path, err);
    if (code)
        return code;
    for (size_t got = 1; got && !code;) {
        void *p = tu_buf_room(&text, TU_IO_CHUNK, err);
        code = p ? tu_in_read(in, p, TU_IO_CHUNK, &got, err) : TU_ENOMEM;
        if (!code)
            text.n += got;
    }
    if (!code)
        code = tu_trace_read(t, text.data, text.n, tu_in_name(in), err);
    tu_buf_release(&text);
    tu_in_close(in);
    return code;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    static char dash[] = "-";
    char *standard[] = {dash};
    struct tu_trace *t = NULL;
    struct tu_diagnosis d;
    struct tu_err err;
    int code = tu_trace_new(&t, &err);
    if (!argc) {
        argv = standard;
        argc = 1;
    }
    for (int i = 0; i < argc && !code; i++)
        code = add(t, argv[i], &err);
    if (!code)
        code = tu_diagnose(t, &d, &err);
    tu_trace_free(t);
    if (code)
        return tu_error(ctx, &err);
    tu_print(ctx, "%s\n", d.text);
    struct tu_jw *w = tu_result_begin(ctx);
    if (w) {
        tu_jw_str(w, "kind", tu_trouble_names[d.kind]);
        if (d.rank == TU_NOBODY)
            tu_jw_null(w, "rank");
        else
            tu_jw_u64(w, "rank", d.rank);
        if (d.peer == TU_NOBODY)
            tu_jw_null(w, "peer");
        else
            tu_jw_u64(w, "peer", d.peer);
        tu_jw_real(w, "confidence", d.confidence);
        tu_jw_str(w, "evidence", d.text);
        tu_result_end(ctx);
    }
    return d.kind == TU_FINE ? TU_STATUS_YES : TU_STATUS_NO;
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd bench_diagnose = {
    .name = "diagnose",
    .example = "allreduce-bench run -n 4 --trace - | allreduce-bench diagnose -",
    .summary = "name the rank or link that traces show to be at fault",
    .usage = usage,
    .flags = TU_CMD_STDIN,
    .max = TU_ANY,
    .run = run,
};
