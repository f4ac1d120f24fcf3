/* SPDX-License-Identifier: Apache-2.0 */
/* place.c: pipe-sched place: the table of methods, their options and their input; and the
 * first of them, devices of an uneven network onto pipeline stages. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "common/opt_type.h"
#include "pipe-sched/place.h"

#define DEFAULTS                                                                         \
    {                                                                                    \
        .effort = 20000, .clients = 8, .batches = 1000,                                  \
        .rebalance = UINT64_C(300000000000),                                             \
    }
static const struct place_options defaults = DEFAULTS;
struct place_options place_opt = DEFAULTS;

static const struct place_method *const methods[] = {
    &place_tasklets, &place_nics, &place_uneven, &place_experts, &place_swarm,
};
#define METHODS (sizeof methods / sizeof *methods)

static const char *const method_names[] = {"tasklets", "nics",  "uneven",
                                           "experts",  "swarm", NULL};

static const struct tu_opt options[] = {
    {0, "method", NULL, "what is placed; --list=methods", TU_OPT_CHOICE, &place_opt.method,
     method_names, 0},
    {0, "dp", "N", "devices that share a stage (tasklets, nics)", TU_OPT_U64,
     &place_opt.dp, NULL, 0},
    {0, "pp", "N", "stages (tasklets)", TU_OPT_U64, &place_opt.pp, NULL, 0},
    {0, "dp-bytes", NULL, "gradients of a stage (tasklets)", TU_OPT_SIZE,
     &place_opt.dp_bytes, NULL, 0},
    {0, "pp-bytes", NULL, "activation of a micro-batch (tasklets)", TU_OPT_SIZE,
     &place_opt.pp_bytes, NULL, 0},
    {0, "groups", "LIST", "price this grouping: the group of each device, as 0,0,1,1",
     TU_OPT_STRING, &place_opt.groups, NULL, 0},
    {0, "effort", "N", "groupings to price at most; default 20000", TU_OPT_U64,
     &place_opt.effort, NULL, 0},
    {0, "layers", "N", "layers of the model (nics)", TU_OPT_U64, &place_opt.layers, NULL,
     0},
    {0, "batch", "N", "samples of a step (uneven)", TU_OPT_U64, &place_opt.batch, NULL, 0},
    {0, "state-bytes", NULL, "parameters and optimizer, all together (uneven)",
     TU_OPT_SIZE, &place_opt.state_bytes, NULL, 0},
    {0, "sample-bytes", NULL, "activations of a sample (uneven)", TU_OPT_SIZE,
     &place_opt.sample_bytes, NULL, 0},
    {0, "gather", NULL, "time to gather the parameters once (uneven)", TU_OPT_DURATION,
     &place_opt.gather, NULL, 0},
    {0, "devices", "N", "devices that share a layer's experts (experts)", TU_OPT_U64,
     &place_opt.devices, NULL, 0},
    {0, "clients", "N", "micro-batches under way at once (swarm); default 8", TU_OPT_U64,
     &place_opt.clients, NULL, 0},
    {0, "microbatches", "N", "micro-batches to run (swarm); default 1000", TU_OPT_U64,
     &place_opt.batches, NULL, 0},
    {0, "transfer", NULL, "from peer to peer (swarm)", TU_OPT_DURATION,
     &place_opt.transfer, NULL, 0},
    {0, "rebalance", NULL, "between two moves of a peer (swarm); default 300s, 0: none",
     TU_OPT_DURATION, &place_opt.rebalance, NULL, 0},
    {0, "move", NULL, "for a moved peer to load its stage (swarm)", TU_OPT_DURATION,
     &place_opt.move, NULL, 0},
    {0, "life", NULL, "mean life of a peer, by --seed (swarm); default: no failure",
     TU_OPT_DURATION, &place_opt.life, NULL, 0},
    {0, "repair", NULL, "until a failed peer is back, with --life (swarm)",
     TU_OPT_DURATION, &place_opt.repair, NULL, 0},
    {0},
};

int place_number(const char *cell, double lo, double hi, double *out, struct tu_err *err)
{
    if (tu_parse_double(cell, out, err) || !(*out >= lo && *out <= hi))
        return tu_fail(err, TU_EFORMAT, "'%.40s': a number in %g … %g is expected", cell,
                       lo, hi);
    return 0;
}

static int split(char *line, struct place_line *l, size_t lo, size_t hi,
                 const char *shape, struct tu_err *err)
{
    char *save = NULL;
    l->n = 0;
    for (char *w = strtok_r(line, ", \t\r", &save); w; w = strtok_r(NULL, ", \t\r", &save)) {
        if (l->n == hi)
            return tu_fail(err, TU_EFORMAT, "more than %zu cells: %s is expected", hi,
                           shape);
        l->cell[l->n++] = w;
    }
    if (l->n < lo)
        return tu_fail(err, TU_EFORMAT, "fewer than %zu cells: %s is expected", lo, shape);
    return 0;
}

int place_lines(const char *path, size_t lo, size_t hi, const char *shape,
                int (*take)(const struct place_line *l, void *to, struct tu_err *err),
                void *to, struct tu_err *err)
{
    struct tu_buf text = {0};
    struct place_line l = {.path = path};
    char *save = NULL;
    int rc = pipe_slurp(path, &text, err);
    if (!rc && text.n != strlen(text.data ? text.data : ""))
        rc = tu_fail(err, TU_EFORMAT, "%s: holds a NUL byte", path);
    for (char *at = !rc && text.data ? text.data : NULL, *line; at && !rc; at = save) {
        save = strchr(at, '\n');
        if (save)
            *save++ = 0;
        line = at;
        l.number++;
        line[strcspn(line, "#")] = 0;
        if (!line[strspn(line, " \t\r")])
            continue;
        rc = split(line, &l, lo, hi, shape, err);
        if (!rc)
            rc = take(&l, to, err);
        if (rc == TU_EUSAGE) /* it is the file that is wrong */
            rc = err->code = TU_EFORMAT;
        if (rc)
            tu_err_prefix(err, "%s: line %zu", path, l.number);
    }
    tu_buf_release(&text);
    return rc;
}

/* Tasklets
 * ------------------------------------------------------------------------ */

struct links {
    size_t devices;
    double *latency, *bandwidth;
};

static int link_line(const struct place_line *l, void *to, struct tu_err *err)
{
    struct links *k = to;
    double v[4], last = (double)k->devices - 1;
    int rc = place_number(l->cell[0], 0, last, &v[0], err);
    if (!rc)
        rc = place_number(l->cell[1], 0, last, &v[1], err);
    if (!rc)
        rc = place_number(l->cell[2], 0, 1e9, &v[2], err);
    if (!rc)
        rc = place_number(l->cell[3], 1e-3, 1e18, &v[3], err);
    if (rc)
        return rc;
    size_t a = (size_t)v[0], b = (size_t)v[1];
    if (k->bandwidth[a * k->devices + b] > 0)
        return tu_fail(err, TU_EFORMAT, "a second link between devices %zu and %zu", a, b);
    k->latency[a * k->devices + b] = k->latency[b * k->devices + a] = v[2];
    k->bandwidth[a * k->devices + b] = k->bandwidth[b * k->devices + a] = v[3];
    return 0;
}

/* Lines FROM,TO,SECONDS,BYTES_PER_SECOND; each pair once. */
static int network(const char *path, struct links *k, struct tu_err *err)
{
    int rc = place_lines(path, 4, 4, "FROM,TO,SECONDS,BYTES_PER_SECOND", link_line, k, err);
    for (size_t a = 0; a < k->devices && !rc; a++)
        for (size_t b = 0; b < a && !rc; b++)
            if (!(k->bandwidth[a * k->devices + b] > 0))
                rc = tu_fail(err, TU_EFORMAT, "%s: no link between devices %zu and %zu",
                             path, b, a);
    return rc;
}

static int given(uint32_t *group, size_t devices, struct tu_err *err)
{
    const char *p = place_opt.groups;
    for (size_t k = 0; k < devices; k++) {
        char *end;
        unsigned long v = strtoul(p, &end, 10);
        if (end == p || v >= place_opt.pp || (*end && *end != ',') ||
            (!*end && k + 1 < devices))
            return tu_fail(err, TU_EUSAGE,
                           "--groups: a group below %llu for each of %zu devices",
                           (unsigned long long)place_opt.pp, devices);
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
    for (uint32_t s = 0; s < place_opt.pp; s++) {
        tu_print(ctx, "stage %u:", s);
        for (size_t d = 0; d < devices; d++)
            if (group[d] == s)
                tu_print(ctx, " %zu", d);
        tu_print(ctx, "\n");
    }
}

static int tasklets(struct tu_ctx *ctx, const char *path, struct tu_err *err)
{
    struct tu_placed r;
    const struct place_options *o = &place_opt;
    uint64_t devices = o->dp * o->pp;
    if (!o->dp || !o->pp || o->dp > 4096 || o->pp > 4096 || devices > 4096)
        return tu_fail(err, TU_EUSAGE,
                       "place: --dp and --pp are needed, at most 4096 devices together");
    struct links k = {devices, tu_calloc(devices * devices, sizeof *k.latency, err),
                      tu_calloc(devices * devices, sizeof *k.bandwidth, err)};
    uint32_t *group = tu_calloc(devices, sizeof *group, err);
    int rc = k.latency && k.bandwidth && group ? 0 : TU_ENOMEM;
    if (!rc && (!o->dp_bytes || !o->pp_bytes))
        tu_warn(ctx, "place: without %s%s%s only latencies count there",
                o->dp_bytes ? "" : "--dp-bytes", o->dp_bytes || o->pp_bytes ? "" : " and ",
                o->pp_bytes ? "" : "--pp-bytes");
    if (!rc)
        rc = network(path, &k, err);
    if (!rc && o->groups)
        rc = given(group, devices, err);
    if (!rc) {
        struct tu_swarm_net net = {devices,
                                   k.latency,
                                   k.bandwidth,
                                   o->dp,
                                   o->pp,
                                   (double)o->dp_bytes,
                                   (double)o->pp_bytes};
        rc = tu_place_find(&net, group, &r, o->groups != NULL, ctx->seed, o->effort, err);
    }
    if (!rc)
        show(ctx, group, devices, &r);
    tu_free(k.latency);
    tu_free(k.bandwidth);
    tu_free(group);
    return rc;
}

static const char *const tasklets_options[] = {"dp", "pp", "dp-bytes", "pp-bytes",
                                               "groups", "effort", NULL};

const struct place_method place_tasklets = {
    "tasklets", "devices of an uneven network onto stages (DT-FM)", tasklets,
    tasklets_options, "groups", true};

static bool was_given(const struct tu_opt *o)
{
    size_t at = (size_t)((const char *)o->dest - (const char *)&place_opt);
    return memcmp(o->dest, (const char *)&defaults + at, tu_opt_row(o)->size) != 0;
}

/* A seed where nothing is drawn. */
static int idle_seed(struct tu_ctx *ctx, const struct place_method *m)
{
    const struct tu_opt *o = options + 1;
    if (!m->draws)
        return tu_usage(ctx, "place: --method %s draws no lots: no --seed", m->name);
    while (strcmp(o->name, m->draws))
        o++;
    if (was_given(o) != m->without)
        return 0;
    return tu_usage(ctx, "place: --method %s %s --%s draws no lots: no --seed", m->name,
                    m->without ? "with" : "without", m->draws);
}

/* The first option that was given but says nothing to this method. */
static const char *stray(const struct place_method *m)
{
    for (const struct tu_opt *o = options + 1; o->name; o++) {
        size_t k = 0;
        if (!was_given(o))
            continue;
        while (m->option[k] && strcmp(m->option[k], o->name))
            k++;
        if (!m->option[k])
            return o->name;
    }
    return NULL;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    const char *name = stray(methods[place_opt.method]);
    if (name)
        return tu_usage(ctx, "place: --%s is not for --method %s", name,
                        method_names[place_opt.method]);
    int rc = ctx->seed ? idle_seed(ctx, methods[place_opt.method]) : 0;
    if (rc)
        return rc;
    rc = methods[place_opt.method]->run(ctx, argc ? argv[0] : "-", &err);
    return rc ? tu_error(ctx, &err) : ctx->status;
}

static const char *method_row(size_t i, const char **help)
{
    *help = i < METHODS ? methods[i]->help : NULL;
    return i < METHODS ? methods[i]->name : NULL;
}

static const struct tu_listing listings[] = {
    {"methods", "what place places, and from which lines", method_row, NULL},
    {0},
};
static const char *const usage[] = {"[option ...] [file]", NULL};

const struct tu_cmd pipe_place = {
    .name = "place",
    .example = "pipe-sched place --method tasklets network.txt",
    .summary = "put devices, networks, experts or peers where they serve best",
    .usage = usage,
    .opts = options,
    .listings = listings,
    .flags = TU_CMD_STDIN,
    .max = 1,
    .run = run,
};
