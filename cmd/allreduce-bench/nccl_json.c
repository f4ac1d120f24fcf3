/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_json.c: the JSON report of nccl-tests 2.19.6, version 3 (src/util.cu).
 *
 * One object, printed piece by piece and closed also after a failure. It differs where
 * the original would surprise: booleans and roots are no strings, and of the environment
 * only what steers a run is shown. The lists of single times are left out: rows hold
 * statistics over samples. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "allreduce-bench/bench.h"

static const char *const shown[] = {"TENSORUTILS_ISA", "SLURM_JOB_ID", "SLURM_NTASKS",
                                    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};

static void now(struct tu_jw *w, const char *key)
{
    char text[32] = "";
    time_t t = time(NULL);
    struct tm tm;
    if (gmtime_r(&t, &tm))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    tu_jw_str(w, key, text);
}

static void config(struct tu_jw *w, const struct bench_facts *f)
{
    char host[64] = "";
    tu_jw_open(w, "config", '{');
    tu_jw_u64(w, "nthreads", 1);
    tu_jw_u64(w, "ngpus", 0);
    tu_jw_u64(w, "minimum_bytes", f->min);
    tu_jw_u64(w, "maximum_bytes", f->max);
    tu_jw_u64(w, f->step ? "step_bytes" : "step_factor", f->step ? f->step : f->factor);
    tu_jw_u64(w, "warmup_iters", f->warmup);
    tu_jw_u64(w, "iterations", f->iters);
    tu_jw_u64(w, "aggregated_iterations", 1);
    tu_jw_u64(w, "validation", f->check);
    tu_jw_u64(w, "graph", 0);
    tu_jw_bool(w, "blocking_collectives", f->each);
    tu_jw_bool(w, "per_iter_timing", false);
    tu_jw_u64(w, "per_iter_skip", 0);
    tu_jw_bool(w, "parallel_init", false);
    if (gethostname(host, sizeof host - 1))
        host[0] = '\0';
    tu_jw_open(w, "devices", '[');
    for (uint32_t r = 0; r < f->ranks; r++) {
        tu_jw_open(w, NULL, '{');
        tu_jw_u64(w, "rank", r);
        tu_jw_u64(w, "group", 0);
        tu_jw_str(w, "hostname", host);
        tu_jw_str(w, "device_info", f->transport);
        tu_jw_close(w, '}');
    }
    tu_jw_close(w, ']');
    tu_jw_close(w, '}');
}

/* A finished object without its first `skip` and last `drop` bytes, between two texts:
 * parts of a larger one. */
static void print(struct tu_ctx *ctx, struct tu_jw *w, struct tu_buf *b,
                  const char *before, size_t skip, size_t drop, const char *after)
{
    struct tu_err err;
    if (tu_jw_end(w, &err))
        tu_error(ctx, &err);
    else
        tu_print(ctx, "%s%.*s%s", before, (int)(b->n - skip - drop),
                 (const char *)b->data + skip, after);
    tu_buf_release(b);
}

void bench_nccl_head(struct tu_ctx *ctx, const struct bench_facts *f)
{
    struct tu_buf b = {0};
    struct tu_jw w;
    tu_jw_begin(&w, &b);
    tu_jw_open(&w, NULL, '{');
    tu_jw_u64(&w, "version", 3);
    now(&w, "start_time");
    tu_jw_open(&w, "args", '[');
    tu_jw_close(&w, ']');
    tu_jw_open(&w, "env", '[');
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const char *v = getenv(shown[i]);
        if (!v)
            continue;
        tu_jw_open(&w, NULL, '{');
        tu_jw_str(&w, shown[i], v);
        tu_jw_close(&w, '}');
    }
    tu_jw_close(&w, ']');
    tu_jw_null(&w, "nccl_version");
    config(&w, f);
    tu_jw_close(&w, '}');
    print(ctx, &w, &b, "", 0, 1, ",\"results\":[");
}

static void place(struct tu_jw *w, const struct tu_timing *t, bool in_place,
                  uint64_t samples)
{
    if (!t->done)
        return;
    tu_jw_open(w, in_place ? "in_place" : "out_of_place", '{');
    tu_jw_real(w, "time", t->mean * 1e6);
    tu_jw_real(w, "alg_bw", t->algbw / 1e9);
    tu_jw_real(w, "bus_bw", t->busbw / 1e9);
    if (t->wrong < 0)
        tu_jw_null(w, "nwrong");
    else
        tu_jw_i64(w, "nwrong", t->wrong);
    tu_jw_close(w, '}');
    tu_jw_open(w, in_place ? "in_place_per_iter" : "out_of_place_per_iter", '{');
    tu_jw_u64(w, "skipped_iterations", 0);
    tu_jw_u64(w, "samples", samples);
    tu_jw_real(w, "min_us", t->min * 1e6);
    tu_jw_real(w, "max_us", t->max * 1e6);
    tu_jw_real(w, "avg_us", t->mean * 1e6);
    tu_jw_real(w, "p50_us", t->p50 * 1e6);
    tu_jw_real(w, "p95_us", t->p95 * 1e6);
    tu_jw_real(w, "p99_us", t->p99 * 1e6);
    tu_jw_close(w, '}');
}

void bench_nccl_row(struct tu_ctx *ctx, const struct bench_facts *f,
                    const struct tu_bench_row *r, bool first)
{
    const struct tu_collective_row *c = &tu_collective_rows[r->coll];
    struct tu_buf b = {0};
    struct tu_jw w;
    tu_jw_begin(&w, &b);
    tu_jw_open(&w, NULL, '{');
    tu_jw_u64(&w, "size", r->bytes);
    tu_jw_u64(&w, "count", r->count);
    tu_jw_str(&w, "type", bench_nccl_type(r->dtype));
    tu_jw_str(&w, "redop", c->reduces ? f->op : "none");
    tu_jw_i64(&w, "root", c->rooted ? (int64_t)f->root : -1);
    place(&w, &r->place[0], false, r->samples);
    place(&w, &r->place[1], true, r->samples);
    tu_jw_u64(&w, "actual_iterations", r->iters);
    tu_jw_str(&w, "experiment_name", c->title);
    tu_jw_str(&w, "algorithm", r->algorithm);
    tu_jw_close(&w, '}');
    print(ctx, &w, &b, first ? "" : ",", 0, 0, "");
}

void bench_nccl_foot(struct tu_ctx *ctx, double busbw_mean, uint64_t wrong, double floor,
                     const char *failure)
{
    struct tu_buf b = {0};
    struct tu_jw w;
    tu_jw_begin(&w, &b);
    tu_jw_open(&w, NULL, '{');
    tu_jw_open(&w, "out_of_bounds", '{');
    tu_jw_u64(&w, "count", wrong);
    tu_jw_bool(&w, "okay", !wrong);
    tu_jw_close(&w, '}');
    tu_jw_open(&w, "average_bus_bandwidth", '{');
    tu_jw_real(&w, "bandwidth", busbw_mean / 1e9);
    tu_jw_bool(&w, "okay", busbw_mean >= 0.9 * floor);
    tu_jw_close(&w, '}');
    tu_jw_open(&w, "errors", '[');
    if (failure)
        tu_jw_str(&w, NULL, failure);
    tu_jw_close(&w, ']');
    now(&w, "end_time");
    tu_jw_close(&w, '}');
    print(ctx, &w, &b, "],", 1, 0, "\n");
}
