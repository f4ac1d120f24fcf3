/* SPDX-License-Identifier: Apache-2.0 */
/* format.c: rows as our table or JSON, as nccl-tests and OSU print them, and as CSV.
 *
 * The foreign forms are those of nccl-tests 2.19.6 (src/util.cu) and OMB 7.4. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "allreduce-bench/bench.h"

/* Our own --------------------------------------------------------------------------- */

static const struct tu_column columns[] = {
    {"collective", "COLLECTIVE", TU_COL_TEXT, 14},
    {"algorithm", "ALGORITHM", TU_COL_TEXT, 13},
    {"ranks", NULL, TU_COL_U64, 0},
    {"dtype", "DTYPE", TU_COL_TEXT, 5},
    {"op", NULL, TU_COL_TEXT, 0},
    {"asked_bytes", NULL, TU_COL_U64, 0},
    {"bytes", "BYTES", TU_COL_U64, 10},
    {"count", NULL, TU_COL_U64, 0},
    {"place", "PLACE", TU_COL_TEXT, 5},
    {"iters", NULL, TU_COL_U64, 0},
    {"samples", NULL, TU_COL_U64, 0},
    {"mean_us", "MEAN_US", TU_COL_REAL, 8},
    {"min_us", NULL, TU_COL_REAL, 0},
    {"p50_us", "P50_US", TU_COL_REAL, 8},
    {"p95_us", "P95_US", TU_COL_REAL, 8},
    {"p99_us", NULL, TU_COL_REAL, 0},
    {"max_us", NULL, TU_COL_REAL, 0},
    {"rank_min_us", NULL, TU_COL_REAL, 0},
    {"rank_max_us", NULL, TU_COL_REAL, 0},
    {"algbw_gbs", "ALG_GB/S", TU_COL_REAL, 8},
    {"busbw_gbs", "BUS_GB/S", TU_COL_REAL, 8},
    {"sent_bytes", NULL, TU_COL_U64, 0},
    {"messages", NULL, TU_COL_U64, 0},
    {"wrong", "WRONG", TU_COL_U64, 5},
    {"first_wrong", NULL, TU_COL_U64, 0},
    {"got", NULL, TU_COL_REAL, 0},
    {"want", NULL, TU_COL_REAL, 0},
    {"ranks_agree", NULL, TU_COL_BOOL, 0},
    {NULL, NULL, TU_COL_TEXT, 0},
};

static void own_row(struct tu_ctx *ctx, const struct bench_facts *f,
                    const struct tu_bench_row *r, int place)
{
    const struct tu_timing *t = &r->place[place];
    char dtype[8];
    bool bytes = r->bytes != 0, bad = t->wrong > 0;
    const struct tu_cell cells[] = {
        {.s = tu_collective_rows[r->coll].name},
        {.s = r->algorithm},
        {.u = r->ranks},
        {.s = tu_dtype_text(r->dtype, dtype)},
        {.s = tu_collective_rows[r->coll].reduces ? f->op : "none"},
        {.u = r->asked},
        {.u = r->bytes},
        {.u = r->count},
        {.s = place ? "in" : "out"},
        {.u = r->iters},
        {.u = r->samples},
        {.f = t->mean * 1e6},
        {.f = t->min * 1e6},
        {.f = t->p50 * 1e6},
        {.f = t->p95 * 1e6},
        {.f = t->p99 * 1e6},
        {.f = t->max * 1e6},
        {.f = t->rank_min * 1e6},
        {.f = t->rank_max * 1e6},
        {.none = !bytes, .f = t->algbw / 1e9},
        {.none = !bytes, .f = t->busbw / 1e9},
        {.u = r->sent},
        {.u = r->messages},
        {.none = t->wrong < 0, .u = (uint64_t)t->wrong},
        {.none = !bad, .u = t->first},
        {.none = !bad, .f = t->got},
        {.none = !bad, .f = t->want},
        {.none = t->wrong < 0, .b = !t->differ},
    };
    tu_row(ctx, cells);
}

/* nccl-tests ------------------------------------------------------------------------- */

const char *bench_nccl_type(uint32_t dtype)
{
    static const struct {
        uint16_t dtype;
        const char *name;
    } types[] = {
        {TU_I8, "int8"},       {TU_U8, "uint8"},         {TU_I32, "int32"},
        {TU_U32, "uint32"},    {TU_I64, "int64"},        {TU_U64, "uint64"},
        {TU_F16, "half"},      {TU_F32, "float"},        {TU_F64, "double"},
        {TU_BF16, "bfloat16"}, {TU_F8_E4M3FN, "f8e4m3"}, {TU_F8_E5M2, "f8e5m2"},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype)
            return types[i].name;
    const struct tu_dtype *d = tu_dtype_find(dtype);
    return d ? d->name : "?";
}

const char *bench_fit(double v, int width, char out[32])
{
    for (int decimals = 2; decimals >= 0; decimals--)
        if (snprintf(out, 32, "%*.*f", width, decimals, v) <= width)
            return out;
    snprintf(out, 32, width >= 7 ? "%.1e" : "%.0e", v);
    return out;
}

static void nccl_head(struct tu_ctx *ctx, const struct bench_facts *f)
{
    tu_print(ctx,
             "# allreduce-bench version " TU_VERSION " nccl-tests 2.19.6 compatible\n");
    tu_print(ctx, "# transport: %s ranks: %u timing: %s cache: %s buffers: %s\n",
             f->transport, (unsigned)f->ranks, f->each ? "each" : "loop",
             f->cold ? "cold" : "hot", f->private_buffers ? "private" : "shared");
    tu_print(ctx, "# warmup iters: %llu iters: %llu validation: %llu\n#\n",
             (unsigned long long)f->warmup, (unsigned long long)f->iters,
             (unsigned long long)f->check);
    tu_print(ctx, "# %10s  %12s  %8s  %6s  %6s  %29s  %29s\n", "", "", "", "", "",
             "out-of-place", "in-place");
    tu_print(ctx, "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n",
             "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong",
             "time", "algbw", "busbw", "#wrong");
    tu_print(ctx, "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n",
             "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
             "(GB/s)", "(GB/s)", "");
}

static void nccl_row(struct tu_ctx *ctx, const struct bench_facts *f,
                     const struct tu_bench_row *r)
{
    static char of[TU_BENCH_NAME + 32]; /* what the rows above are of */
    const struct tu_collective_row *c = &tu_collective_rows[r->coll];
    char a[32], b[32], d[32], root[16], name[sizeof of];
    snprintf(name, sizeof name, "%s, %s", c->name, r->algorithm);
    if (strcmp(of, name))
        tu_print(ctx, "# %s\n", name);
    memcpy(of, name, sizeof of);
    snprintf(root, sizeof root, "%d", c->rooted ? (int)f->root : -1);
    tu_print(ctx, "%12lli  %12lli  %8s  %6s  %6s", (long long)r->bytes,
             (long long)r->count, bench_nccl_type(r->dtype), c->reduces ? f->op : "none",
             root);
    for (int i = 0; i < 2; i++) {
        const struct tu_timing *t = &r->place[i];
        if (!t->done) {
            tu_print(ctx, "  %7s  %6s  %6s     N/A", "N/A", "N/A", "N/A");
            continue;
        }
        tu_print(ctx, "  %7s  %6s  %6s", bench_fit(t->mean * 1e6, 7, a),
                 bench_fit(t->algbw / 1e9, 6, b), bench_fit(t->busbw / 1e9, 6, d));
        if (t->wrong < 0)
            tu_print(ctx, "    N/A");
        else
            tu_print(ctx, "  %6g", (double)t->wrong);
    }
    tu_print(ctx, "\n");
}

/* OSU and CSV -------------------------------------------------------------------------
 */

static void osu_row(struct tu_ctx *ctx, const struct tu_bench_row *r)
{
    static enum tu_collective last = TU_COLLECTIVES;
    static uint32_t type;
    const struct tu_timing *t = &r->place[0];
    const struct tu_collective_row *c = &tu_collective_rows[r->coll];
    if (last != r->coll || type != r->dtype) {
        tu_print(ctx, "\n# OSU MPI %s Latency Test v7.4\n# Datatype: %s.\n", c->title,
                 bench_nccl_type(r->dtype));
        tu_print(ctx, "%-10s%20s%20s%20s%12s%20s\n", "# Size", "Avg Latency(us)",
                 "Min Latency(us)", "Max Latency(us)", "Iterations", "Validation");
    }
    last = r->coll;
    type = r->dtype;
    /* OSU's size of all-gather and all-to-all is one peer's block. */
    bool blocks = r->coll == TU_ALLGATHER || r->coll == TU_ALLTOALL;
    tu_print(ctx, "%-10llu%20.2f%20.2f%20.2f%12llu%20s\n",
             (unsigned long long)(r->bytes / (blocks ? r->ranks : 1)), t->mean * 1e6,
             t->rank_min * 1e6, t->rank_max * 1e6, (unsigned long long)r->iters,
             t->wrong < 0 ? "-"
             : t->wrong   ? "Fail"
                          : "Pass");
}

static void csv_row(struct tu_ctx *ctx, const struct bench_facts *f,
                    const struct tu_bench_row *r, int place)
{
    const struct tu_timing *t = &r->place[place];
    char dtype[8];
    tu_print(ctx, "%s,%s,%s,%u,%s,%s,%llu,%s,%.3f,%.3f,%.3f,%.3f,%.3f,%.6f,%.6f,%lld\n",
             tu_collective_rows[r->coll].name, f->transport, r->algorithm,
             (unsigned)r->ranks, tu_dtype_text(r->dtype, dtype),
             tu_collective_rows[r->coll].reduces ? f->op : "none",
             (unsigned long long)r->bytes, place ? "in" : "out", t->min * 1e6,
             t->p50 * 1e6, t->p95 * 1e6, t->p99 * 1e6, t->max * 1e6, t->algbw / 1e9,
             t->busbw / 1e9, (long long)t->wrong);
}

/* --------------------------------------------------------------------------------------
 */

static bool form_is(const struct tu_ctx *ctx, const char *name)
{
    return strcmp(ctx->format, name) == 0;
}

void bench_head(struct tu_ctx *ctx, const struct bench_facts *f)
{
    if (form_is(ctx, "nccl"))
        nccl_head(ctx, f);
    else if (form_is(ctx, "nccl-json"))
        bench_nccl_head(ctx, f);
    else if (form_is(ctx, "csv"))
        tu_print(ctx, "collective,transport,algorithm,ranks,dtype,op,bytes,place,min_us,"
                      "p50_us,p95_us,p99_us,max_us,algbw_gbs,busbw_gbs,wrong\n");
    else if (!form_is(ctx, "osu"))
        tu_rows_begin(ctx, columns);
    struct tu_jw *w = ctx->json ? tu_line_begin(ctx) : NULL;
    if (!w)
        return;
    tu_jw_str(w, "transport", f->transport);
    tu_jw_u64(w, "ranks", f->ranks);
    tu_jw_str(w, "cpu", tu_cpu_model());
    tu_jw_u64(w, "cpus", tu_cpu_count());
    tu_jw_str(w, "clock", "monotonic, mean over ranks");
    tu_jw_str(w, "timing", f->each ? "each" : "loop");
    tu_jw_str(w, "cache", f->cold ? "cold" : "hot");
    tu_jw_str(w, "buffers", f->private_buffers ? "private" : "shared");
    tu_jw_str(w, "reduce_order", f->reduce_order);
    tu_jw_u64(w, "warmup", f->warmup);
    tu_jw_u64(w, "checked", f->check);
    tu_line_end(ctx);
}

void bench_row(struct tu_ctx *ctx, const struct bench_facts *f,
               const struct tu_bench_row *row, bool first)
{
    if (form_is(ctx, "nccl")) {
        nccl_row(ctx, f, row);
    } else if (form_is(ctx, "nccl-json")) {
        bench_nccl_row(ctx, f, row, first);
    } else if (form_is(ctx, "osu")) {
        osu_row(ctx, row);
    } else {
        for (int i = 0; i < 2; i++) {
            if (!row->place[i].done)
                continue;
            if (form_is(ctx, "csv"))
                csv_row(ctx, f, row, i);
            else
                own_row(ctx, f, row, i);
        }
    }
}

void bench_foot(struct tu_ctx *ctx, const struct bench_facts *f, double busbw_mean,
                uint64_t wrong, double floor, const char *failure)
{
    (void)f;
    if (form_is(ctx, "nccl-json"))
        bench_nccl_foot(ctx, busbw_mean, wrong, floor, failure);
    if (failure || !form_is(ctx, "nccl"))
        return;
    tu_print(ctx, "# %-20s : %llu %s\n", "Out of bounds values",
             (unsigned long long)wrong, wrong ? "FAILED" : "OK");
    tu_print(ctx, "# %-20s : %g %s\n#\n", "Avg bus bandwidth", busbw_mean / 1e9,
             floor <= 0                 ? ""
             : busbw_mean < 0.9 * floor ? "FAILED"
                                        : "OK");
}
