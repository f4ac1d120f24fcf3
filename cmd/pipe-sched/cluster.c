/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.c: the cluster of pipe-sched plan: options, or a file of KEY=VALUE lines with
 * the options' names; presets of devices and links fill in the rest. */
#include <string.h>
#include "common/opt_type.h"
#include "pipe-sched/cluster.h"

static struct {
    const char *file, *gpu, *link, *network;
    uint64_t gpus, per_node, memory;
    double efficiency, host, ssd, update, convert;
} opt;

/* All unset: 0 or NULL, so that the file gives what the command line does not; nobody can give
 * a 0. */
const struct tu_opt cluster_options[] = {
    {0, "cluster", "FILE", "lines KEY=VALUE for the options up to --cpu-convert",
     TU_OPT_FILE_IN, &opt.file, NULL, 0},
    {'n', "gpus", "N", "devices", TU_OPT_U64, &opt.gpus, NULL, TU_OPT_POSITIVE},
    {0, "gpu", "GPU", "kind of device; --list=gpus; default h100", TU_OPT_STRING,
     &opt.gpu, NULL, 0},
    {0, "per-node", "N", "devices of a node; default 8", TU_OPT_U64, &opt.per_node, NULL,
     TU_OPT_POSITIVE},
    {0, "gpu-memory", NULL, "memory of a device, if not the kind's", TU_OPT_SIZE,
     &opt.memory, NULL, TU_OPT_POSITIVE},
    {0, "link", "RATE|LINK", "one way within a node, if not the kind's; --list=links",
     TU_OPT_STRING, &opt.link, NULL, 0},
    {0, "network", "RATE|LINK", "one way between nodes, each device; default ib-ndr",
     TU_OPT_STRING, &opt.network, NULL, 0},
    {0, "efficiency", "SHARE",
     "share of the peak that matrix products reach; default 0.6", TU_OPT_DOUBLE,
     &opt.efficiency, NULL, TU_OPT_POSITIVE},
    {0, "host", NULL, "one way to the host, each device, if not the kind's", TU_OPT_RATE,
     &opt.host, NULL, TU_OPT_POSITIVE},
    {0, "ssd", NULL, "each device's share of the SSDs; default 3GB/s", TU_OPT_RATE,
     &opt.ssd, NULL, TU_OPT_POSITIVE},
    {0, "cpu-update", "N",
     "parameters a second that a device's share of the CPU updates; default 2e9",
     TU_OPT_DOUBLE, &opt.update, NULL, TU_OPT_POSITIVE},
    {0, "cpu-convert", "N", "parameters a second that it converts; default 8e9",
     TU_OPT_DOUBLE, &opt.convert, NULL, TU_OPT_POSITIVE},
    {0},
};

/* Is the option still what it is when nobody gave it? */
static bool unset(const struct tu_opt *o)
{
    static const char zero[sizeof(uint64_t)];
    return !memcmp(o->dest, zero, tu_opt_row(o)->size);
}

static int line_of(char *line, uint64_t *given, struct tu_err *err)
{
    char *value = strchr(line, '=');
    if (!value)
        return tu_fail(err, TU_EFORMAT, "'%.40s': KEY=VALUE is expected", line);
    *value++ = 0;
    for (const struct tu_opt *o = cluster_options + 1; o->name; o++)
        if (!strcmp(o->name, line)) {
            uint64_t bit = (uint64_t)1 << (o - cluster_options);
            if (*given & bit)
                return tu_fail(err, TU_EFORMAT, "'%.40s': a second time", line);
            *given |= bit;
            int rc = unset(o) ? tu_opt_row(o)->read(o, value, o->dest, err) : 0;
            return rc == TU_EUSAGE ? (err->code = TU_EFORMAT) : rc;
        }
    return tu_fail(err, TU_EFORMAT, "'%.40s': no option of a cluster has this name", line);
}

static int read_file(struct tu_buf *text, struct tu_err *err)
{
    uint64_t given = 0; /* a bit for each option */
    size_t number = 0;
    int rc = pipe_slurp(opt.file, text, err);
    if (!rc && text->n != strlen(text->data ? text->data : ""))
        rc = tu_fail(err, TU_EFORMAT, "%s: holds a NUL byte", opt.file);
    char *next = rc ? NULL : text->data;
    while (next && *next && !rc) {
        char *line = next, *to = next;
        next += strcspn(next, "\n");
        if (*next)
            *next++ = 0;
        number++;
        line[strcspn(line, "#")] = 0;
        for (char *p = line; *p; p++) /* no value has blanks */
            if (!strchr(" \t\r", *p))
                *to++ = *p;
        *to = 0;
        rc = *line ? line_of(line, &given, err) : 0;
        if (rc)
            tu_err_prefix(err, "%s: line %zu", opt.file, number);
    }
    return rc;
}

/* A rate, or a link by name; NULL: `none`. */
static int rate(const char *name, const char *text, double none, double *out,
                struct tu_err *err)
{
    const struct tu_link_kind *k = text ? tu_link_find(text) : NULL;
    static const struct tu_opt as_rate = {.type = TU_OPT_RATE, .flags = TU_OPT_POSITIVE};
    *out = k ? k->bs : none;
    if (!text || k)
        return 0;
    if (*text < '0' || *text > '9')
        return tu_fail(err, TU_EUSAGE, "no link is called '%.20s'; --list=links names them",
                       text);
    int rc = tu_opt_row(&as_rate)->read(&as_rate, text, out, err);
    if (rc)
        tu_err_prefix(err, "--%s", name);
    return rc;
}

static double or_else(double v, double none)
{
    return v > 0 ? v : none;
}

int pipe_cluster(struct tu_cluster *c, struct tu_err *err)
{
    struct tu_buf text = {0}; /* words of the file live in it */
    const struct tu_gpu *g = NULL;
    int rc = opt.file ? read_file(&text, err) : 0;
    if (!rc && !(g = tu_gpu_find(opt.gpu ? opt.gpu : "h100")))
        rc = tu_fail(err, TU_EUSAGE,
                     "no device is called '%.20s'; --list=gpus names them", opt.gpu);
    if (!rc && !opt.gpus)
        rc = tu_fail(err, TU_EUSAGE, "plan: --gpus is needed");
    if (!rc)
        *c = (struct tu_cluster){
            .gpus = opt.gpus,
            .per_node = opt.per_node ? opt.per_node : 8,
            .flops = g->flops,
            .memory = opt.memory ? opt.memory : g->memory,
            .efficiency = or_else(opt.efficiency, 0.6),
            .memory_bs = g->memory_bs,
            .host_bs = or_else(opt.host, g->host_bs),
            .ssd_bs = or_else(opt.ssd, 3e9),
            .cpu_update = or_else(opt.update, 2e9),
            .cpu_convert = or_else(opt.convert, 8e9),
        };
    if (!rc)
        rc = rate("link", opt.link, g->link_bs, &c->link_bs, err);
    if (!rc)
        rc = rate("network", opt.network, tu_link_find("ib-ndr")->bs, &c->network_bs, err);
    tu_buf_release(&text);
    return rc;
}
