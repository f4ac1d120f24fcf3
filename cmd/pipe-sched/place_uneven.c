/* SPDX-License-Identifier: Apache-2.0 */
/* place_uneven.c: pipe-sched place for unequal devices: pipelines across networks, and
 * batch and state of a sharded group. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "pipe-sched/place.h"

#define DEVICES_MAX 65536
#define NAME_MAX_ 32

struct device {
    char name[NAME_MAX_], nic[NAME_MAX_];
    double speed;
    uint64_t memory;
};

struct devices {
    struct device *of;
    size_t n, cap;
    bool sized; /* the third cell is memory, else the second is a network */
};

static int device_line(const struct place_line *l, void *to, struct tu_err *err)
{
    struct devices *d = to;
    struct device one = {.speed = 0};
    const char *nic = d->sized ? "" : l->cell[1];
    if (strlen(l->cell[0]) >= NAME_MAX_ || strlen(nic) >= NAME_MAX_)
        return tu_fail(err, TU_EFORMAT, "'%.40s': a name of at most %d bytes", l->cell[0],
                       NAME_MAX_ - 1);
    memcpy(one.name, l->cell[0], strlen(l->cell[0]) + 1);
    memcpy(one.nic, nic, strlen(nic) + 1);
    int rc = place_number(l->cell[d->sized ? 1 : 2], 1e-12, 1e12, &one.speed, err);
    if (!rc && d->sized)
        rc = tu_parse_size(l->cell[2], &one.memory, err);
    if (!rc && (d->n >= DEVICES_MAX || one.memory > INT64_MAX / DEVICES_MAX))
        rc = tu_fail(err, TU_EFORMAT, "more than %d devices, or too much memory",
                     DEVICES_MAX);
    if (!rc)
        rc = TU_GROW(&d->of, &d->cap, d->n, err);
    if (!rc)
        d->of[d->n++] = one;
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A device is there once. */
static int names_differ(const struct devices *d, struct tu_err *err)
{
    const char **name = tu_alloc(d->n, sizeof *name, err);
    int rc = name ? 0 : TU_ENOMEM;
    for (size_t k = 0; k < d->n && !rc; k++)
        name[k] = d->of[k].name;
    if (!rc)
        qsort(name, d->n, sizeof *name, by_name);
    for (size_t k = 1; k < d->n && !rc; k++)
        if (!strcmp(name[k - 1], name[k]))
            rc = tu_fail(err, TU_EFORMAT, "device '%s' is there twice", name[k]);
    tu_free(name);
    return rc;
}

static int read_devices(const char *path, const char *shape, struct devices *d,
                        struct tu_err *err)
{
    int rc = place_lines(path, 3, 3, shape, device_line, d, err);
    if (rc)
        return rc;
    rc = d->n ? names_differ(d, err) : tu_fail(err, TU_EFORMAT, "no device");
    if (rc)
        tu_err_prefix(err, "%s", path);
    return rc;
}

/* Networks numbered in the order in which they occur. */
static uint32_t nic_of(const struct devices *d, size_t k)
{
    uint32_t n = 0;
    for (size_t i = 0; i < k; i++) {
        if (!strcmp(d->of[i].nic, d->of[k].nic))
            return nic_of(d, i);
        bool first = true;
        for (size_t j = 0; j < i; j++)
            first = first && strcmp(d->of[j].nic, d->of[i].nic) != 0;
        n += first;
    }
    return n;
}

static const struct tu_column nic_columns[] = {
    {"stage", "STAGE", TU_COL_U64, 6},    {"layers", "LAYERS", TU_COL_U64, 7},
    {"time_s", "TIME_S", TU_COL_REAL, 10}, {"network", "NETWORK", TU_COL_TEXT, 12},
    {"devices", "DEVICES", TU_COL_NAME, 1}, {0},
};

static int nic_row(struct tu_ctx *ctx, const struct devices *d, const uint32_t *stage,
                   size_t k, uint64_t layers, struct tu_err *err)
{
    struct tu_buf names = {0};
    const char *nic = "";
    double slowest = 0;
    int rc = 0;
    for (size_t i = 0; i < d->n && !rc; i++)
        if (stage[i] == k) {
            rc = tu_buf_printf(&names, err, "%s%s", names.n ? " " : "", d->of[i].name);
            nic = d->of[i].nic;
            if (slowest <= 0 || d->of[i].speed < slowest)
                slowest = d->of[i].speed;
        }
    if (!rc)
        tu_row(ctx, (const struct tu_cell[]){{.u = k},
                                             {.u = layers},
                                             {.f = (double)layers / slowest},
                                             {.s = nic},
                                             {.s = names.data ? names.data : ""}});
    tu_buf_release(&names);
    return rc;
}

static int run_nics(struct tu_ctx *ctx, const char *path, struct tu_err *err)
{
    struct devices d = {0};
    size_t stages = 0;
    double step;
    if (!place_opt.dp || !place_opt.layers)
        return tu_fail(err, TU_EUSAGE, "place: nics: --dp and --layers are needed");
    int rc = read_devices(path, "NAME,NETWORK,LAYERS_PER_SECOND", &d, err);
    uint32_t *nic = tu_alloc(2 * d.n + 1, sizeof *nic, err);
    double *speed = tu_alloc(d.n + 1, sizeof *speed, err);
    uint64_t *layers = tu_calloc(d.n + 1, sizeof *layers, err);
    if (!rc && (!nic || !speed || !layers))
        rc = TU_ENOMEM;
    uint32_t *stage = nic ? nic + d.n : NULL;
    for (size_t k = 0; k < d.n && !rc; k++) {
        nic[k] = nic_of(&d, k);
        speed[k] = d.of[k].speed;
    }
    if (!rc)
        rc = tu_place_nics(
            &(struct tu_nics){d.n, nic, speed, place_opt.dp, place_opt.layers}, stage,
            layers, &stages, &step, err);
    if (!rc)
        tu_rows_begin(ctx, nic_columns);
    for (size_t k = 0; k < stages && !rc; k++)
        rc = nic_row(ctx, &d, stage, k, layers[k], err);
    tu_free(d.of);
    tu_free(nic);
    tu_free(speed);
    tu_free(layers);
    return rc;
}

static const struct tu_column uneven_columns[] = {
    {"device", "DEVICE", TU_COL_TEXT, 16}, {"batch", "BATCH", TU_COL_U64, 7},
    {"time_s", "TIME_S", TU_COL_REAL, 10}, {"state_bytes", "STATE", TU_COL_BYTES, 10},
    {"free_bytes", "FREE", TU_COL_BYTES, 10}, {0},
};

static int run_uneven(struct tu_ctx *ctx, const char *path, struct tu_err *err)
{
    struct devices d = {.sized = true};
    double step;
    if (!place_opt.batch || place_opt.state_bytes > INT64_MAX ||
        place_opt.sample_bytes > INT64_MAX / DEVICES_MAX || place_opt.batch > 1 << 24)
        return tu_fail(err, TU_EUSAGE,
                       "place: uneven: --batch is needed, --state-bytes, --sample-bytes");
    int rc = read_devices(path, "NAME,SAMPLES_PER_SECOND,MEMORY", &d, err);
    double *speed = tu_alloc(d.n + 1, sizeof *speed, err);
    int64_t *memory = tu_alloc(2 * d.n + 1, sizeof *memory, err);
    uint64_t *batch = tu_calloc(d.n + 1, sizeof *batch, err);
    if (!rc && (!speed || !memory || !batch))
        rc = TU_ENOMEM;
    int64_t *state = memory ? memory + d.n : NULL;
    for (size_t k = 0; k < d.n && !rc; k++) {
        speed[k] = d.of[k].speed;
        memory[k] = (int64_t)d.of[k].memory;
    }
    if (!rc)
        rc = tu_uneven_split(
            &(struct tu_uneven){d.n, speed, memory, place_opt.batch,
                                (int64_t)place_opt.state_bytes,
                                (int64_t)place_opt.sample_bytes,
                                (double)place_opt.gather * 1e-9},
            batch, state, &step, err);
    if (!rc)
        tu_rows_begin(ctx, uneven_columns);
    for (size_t k = 0; k < d.n && !rc; k++) {
        uint64_t used = batch[k] * place_opt.sample_bytes + (uint64_t)state[k];
        tu_row(ctx, (const struct tu_cell[]){{.s = d.of[k].name},
                                             {.u = batch[k]},
                                             {.f = (double)batch[k] / speed[k]},
                                             {.u = (uint64_t)state[k]},
                                             {.u = d.of[k].memory - used}});
    }
    tu_free(d.of);
    tu_free(speed);
    tu_free(memory);
    tu_free(batch);
    return rc;
}

static const char *const nics_options[] = {"dp", "layers", NULL};

const struct place_method place_nics = {
    "nics", "a pipeline across networks, data parallelism within each (Holmes)", run_nics,
    nics_options, NULL, false};
static const char *const uneven_options[] = {"batch", "state-bytes", "sample-bytes",
                                             "gather", NULL};

const struct place_method place_uneven = {
    "uneven", "batch by speed, state by free memory (Cephalo)", run_uneven,
    uneven_options, NULL, false};
