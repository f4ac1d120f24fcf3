/* SPDX-License-Identifier: Apache-2.0 */
/* place_experts.c: pipe-sched place for experts: routing counts in, a device for each
 * expert out. */
#include <inttypes.h>
#include "pipe-sched/place.h"

#define LAYERS_MAX 1024u
#define EXPERTS_MAX 4096u
#define COUNTS_MAX ((uint64_t)1 << 26)

struct counts {
    struct one {
        uint32_t layer, from, to;
        uint64_t n;
    } * of;
    size_t n, cap;
    uint64_t all; /* of n */
    uint32_t layers, experts;
};

static int count_line(const struct place_line *l, void *to, struct tu_err *err)
{
    struct counts *c = to;
    static const double most[] = {LAYERS_MAX - 2, EXPERTS_MAX - 1, EXPERTS_MAX - 1, 1e15};
    double v[4];
    int rc = 0;
    for (size_t i = 0; i < 4 && !rc; i++)
        rc = place_number(l->cell[i], 0, most[i], &v[i], err);
    if (!rc)
        rc = TU_GROW(&c->of, &c->cap, c->n, err);
    if (rc)
        return rc;
    struct one o = {(uint32_t)v[0], (uint32_t)v[1], (uint32_t)v[2], (uint64_t)v[3]};
    if (tu_add_over(c->all, o.n, &c->all))
        return tu_fail(err, TU_EFORMAT, "counts are too large to be added");
    c->of[c->n++] = o;
    c->layers = o.layer + 2 > c->layers ? o.layer + 2 : c->layers;
    uint32_t e = (o.from > o.to ? o.from : o.to) + 1;
    c->experts = e > c->experts ? e : c->experts;
    return 0;
}

static const struct tu_column columns[] = {
    {"layer", "LAYER", TU_COL_U64, 6},
    {"expert", "EXPERT", TU_COL_U64, 7},
    {"device", "DEVICE", TU_COL_U64, 7},
    {0},
};

/* The share of transitions that stay when experts are left in their order. */
static double in_order(const struct counts *c)
{
    uint64_t stay = 0, all = 0, share = c->experts / place_opt.devices;
    for (size_t i = 0; i < c->n; i++) {
        all += c->of[i].n;
        stay += c->of[i].from / share == c->of[i].to / share ? c->of[i].n : 0;
    }
    return all ? (double)stay / (double)all : 1;
}

static int run(struct tu_ctx *ctx, const char *path, struct tu_err *err)
{
    struct counts c = {0};
    double kept;
    if (!place_opt.devices)
        return tu_fail(err, TU_EUSAGE, "place: experts: --devices is needed");
    int rc = place_lines(path, 4, 4, "LAYER,FROM,TO,COUNT", count_line, &c, err);
    uint64_t cells = (uint64_t)c.layers * c.experts * c.experts;
    if (!rc && (!c.n || cells > COUNTS_MAX))
        rc = tu_fail(err, TU_EFORMAT, "%s: %u layers of %u experts: none, or too many",
                     path, c.layers, c.experts);
    uint64_t *routed = rc ? NULL : tu_calloc(cells, sizeof *routed, err);
    uint32_t *device =
        rc ? NULL : tu_calloc((size_t)c.layers * c.experts, sizeof *device, err);
    if (!rc && (!routed || !device))
        rc = TU_ENOMEM;
    for (size_t i = 0; i < c.n && !rc; i++)
        routed[((size_t)c.of[i].layer * c.experts + c.of[i].from) * c.experts +
               c.of[i].to] += c.of[i].n;
    if (!rc)
        rc = tu_place_experts(routed, c.layers, c.experts, place_opt.devices, device,
                              &kept, err);
    if (!rc) {
        tu_rows_begin(ctx, columns);
        for (uint32_t l = 0; l < c.layers; l++)
            for (uint32_t e = 0; e < c.experts; e++)
                tu_row(ctx, (const struct tu_cell[]){
                                {.u = l},
                                {.u = e},
                                {.u = device[(size_t)l * c.experts + e]}});
        tu_rows_end(ctx);
        struct tu_jw *w = tu_line_begin(ctx);
        if (w) {
            tu_jw_real(w, "kept", kept);
            tu_jw_real(w, "kept_in_order", in_order(&c));
            tu_line_end(ctx);
        }
        tu_print(ctx, "%.4g of the transitions stay on their device, %.4g in the order "
                      "of numbers\n",
                 kept, in_order(&c));
    }
    tu_free(c.of);
    tu_free(routed);
    tu_free(device);
    return rc;
}

static const char *const experts_options[] = {"devices", NULL};

const struct place_method place_experts = {
    "experts", "experts where their tokens come from (ExFlow)", run, experts_options,
    NULL, false};
