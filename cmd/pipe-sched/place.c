/* SPDX-License-Identifier: Apache-2.0 */
/* place.c: pipe-sched place: devices of an uneven network onto pipeline stages. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <tensorutils/sched/split.h>
#include "pipe-sched/pipe.h"

static struct {
    uint64_t dp, pp, effort, dp_bytes, pp_bytes;
    const char *groups;
} opt = {.effort = 20000};

static const struct tu_opt options[] = {
    {0, "dp", "N", "devices that share a stage", TU_OPT_U64, &opt.dp, NULL, 0},
    {0, "pp", "N", "stages", TU_OPT_U64, &opt.pp, NULL, 0},
    {0, "dp-bytes", NULL, "gradients of a stage", TU_OPT_SIZE, &opt.dp_bytes, NULL, 0},
    {0, "pp-bytes", NULL, "activation of a micro-batch", TU_OPT_SIZE, &opt.pp_bytes, NULL,
     0},
    {0, "groups", "LIST", "price this grouping: the group of each device, as 0,0,1,1",
     TU_OPT_STRING, &opt.groups, NULL, 0},
    {0, "effort", "N", "groupings to price at most; default 20000", TU_OPT_U64,
     &opt.effort, NULL, 0},
    {0},
};

static int link_line(const char *line, size_t devices, double *latency, double *bandwidth,
                     struct tu_err *err)
{
    char copy[160], *save = NULL;
    double v[4];
    size_t n = 0;
    if (strlen(line) >= sizeof copy)
        return tu_fail(err, TU_EFORMAT, "the line is too long");
    memcpy(copy, line, strlen(line) + 1);
    for (char *w = strtok_r(copy, ", \t\r", &save); w;
         w = strtok_r(NULL, ", \t\r", &save)) {
        if (n == 4 || tu_parse_double(w, &v[n], err))
            return tu_fail(err, TU_EFORMAT, "'%.40s': FROM,TO,SECONDS,BYTES_PER_SECOND",
                           line);
        n++;
    }
    if (n != 4 || !(v[0] >= 0 && v[0] < (double)devices && v[1] >= 0 &&
                    v[1] < (double)devices && v[2] >= 0 && v[3] > 0))
        return tu_fail(err, TU_EFORMAT, "'%.40s': FROM,TO,SECONDS,BYTES_PER_SECOND",
                       line);
    size_t a = (size_t)v[0], b = (size_t)v[1];
    latency[a * devices + b] = latency[b * devices + a] = v[2];
    bandwidth[a * devices + b] = bandwidth[b * devices + a] = v[3];
    return 0;
}

/* Lines FROM,TO,SECONDS,BYTES_PER_SECOND; each pair once. */
static int network(const char *path, size_t devices, double *latency, double *bandwidth,
                   struct tu_err *err)
{
    struct tu_buf text = {0};
    char *save = NULL;
    size_t number = 0;
    int rc = pipe_slurp(path, &text, err);
    for (char *line = !rc && text.data ? strtok_r(text.data, "\n", &save) : NULL;
         line && !rc; line = strtok_r(NULL, "\n", &save)) {
        number++;
        if (*line == '#' || !line[strspn(line, " \t\r")])
            continue;
        rc = link_line(line, devices, latency, bandwidth, err);
        if (rc)
            tu_err_prefix(err, "%s: line %zu", path, number);
    }
    for (size_t a = 0; a < devices && !rc; a++)
        for (size_t b = 0; b < a && !rc; b++)
            if (!(bandwidth[a * devices + b] > 0))
                rc = tu_fail(err, TU_EFORMAT, "%s: no link between devices %zu and %zu",
                             path, b, a);
    tu_buf_release(&text);
    return rc;
}

static int given(uint32_t *group, size_t devices, struct tu_err *err)
{
    const char *p = opt.groups;
    for (size_t k = 0; k < devices; k++) {
        char *end;
        unsigned long v = strtoul(p, &end, 10);
        if (end == p || v >= opt.pp || (*end && *end != ',') ||
            (!*end && k + 1 < devices))
            return tu_fail(err, TU_EUSAGE,
                           "--groups: a group below %llu for each of %zu devices",
                           (unsigned long long)opt.pp, devices);
        group[k] = (uint32_t)v;
        p = *end ? end + 1 : end;
    }
    return 0;
}

static void show(struct tu_ctx *ctx, const uint32_t *group, size_t devices,
                 const struct tu_placed *r)
{
    struct tu_jw *w = tu_result_begin(ctx);
    if (w) {
        tu_jw_real(w, "dp_s", r->dp_s);
        tu_jw_real(w, "pp_s", r->pp_s);
        tu_jw_real(w, "total_s", r->total_s);
        tu_jw_u64(w, "priced", r->tried);
        tu_jw_bool(w, "optimal", r->all);
        tu_jw_open(w, "stage", '[');
        for (size_t d = 0; d < devices; d++)
            tu_jw_u64(w, NULL, group[d]);
        tu_jw_close(w, ']');
        tu_result_end(ctx);
    }
    tu_print(ctx,
             "gradients %.6g s, pipeline %.6g s, total %.6g s; %" PRIu64
             " groupings priced%s\n",
             r->dp_s, r->pp_s, r->total_s, r->tried, r->all ? ", all there are" : "");
    for (uint32_t s = 0; s < opt.pp; s++) {
        tu_print(ctx, "stage %u:", s);
        for (size_t d = 0; d < devices; d++)
            if (group[d] == s)
                tu_print(ctx, " %zu", d);
        tu_print(ctx, "\n");
    }
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_placed r;
    uint64_t devices = opt.dp * opt.pp;
    if (!opt.dp || !opt.pp || opt.dp > 4096 || opt.pp > 4096 || devices > 4096)
        return tu_usage(ctx,
                        "place: --dp and --pp are needed, at most 4096 devices together");
    double *latency = tu_calloc(devices * devices, sizeof *latency, &err);
    double *bandwidth = tu_calloc(devices * devices, sizeof *bandwidth, &err);
    uint32_t *group = tu_calloc(devices, sizeof *group, &err);
    int rc = latency && bandwidth && group ? 0 : TU_ENOMEM;
    if (!rc)
        rc = network(argc ? argv[0] : "-", devices, latency, bandwidth, &err);
    if (!rc && opt.groups)
        rc = given(group, devices, &err);
    if (!rc) {
        struct tu_swarm_net net = {devices,
                                   latency,
                                   bandwidth,
                                   opt.dp,
                                   opt.pp,
                                   (double)opt.dp_bytes,
                                   (double)opt.pp_bytes};
        rc = tu_place_find(&net, group, &r, opt.groups != NULL, ctx->seed, opt.effort,
                           &err);
    }
    if (!rc)
        show(ctx, group, devices, &r);
    tu_free(latency);
    tu_free(bandwidth);
    tu_free(group);
    return rc ? tu_error(ctx, &err) : TU_STATUS_YES;
}

static const char *const usage[] = {"--dp n --pp n [option ...] [file]", NULL};

const struct tu_cmd pipe_place = {
    .name = "place",
    .summary = "put devices of an uneven network on pipeline stages",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN | TU_CMD_NO_FORCE | TU_CMD_NO_THREADS | TU_CMD_NO_PROGRESS |
             TU_CMD_NO_DEVICE,
    .max = 1,
    .run = run,
};
