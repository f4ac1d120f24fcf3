/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c: bytes and operations of the forms of softmax attention, beside the I/O
 * bound.
 *
 * Counted between memory and a cache of M elements, with the visible pairs of the problem
 * at hand. Source: Dao et al., "FlashAttention", 2022, theorem 2; Saha and Ye, "The I/O
 * Complexity of Attention", 2024 (optimal for M >= D²). */
#include <math.h>
#include <string.h>
#include "fa-run/explain.h"

enum { CACHE = 2 << 20, TILE = 128 }; /* bytes of a second-level cache; rows of a tile */

static const struct tu_column columns[] = {
    {"form", "FORM", TU_COL_TEXT, 0},
    {"passes", "PASSES", TU_COL_U64, 0},
    {"moved_bytes", "MOVED", TU_COL_BYTES, 0},
    {"flops", "FLOPS", TU_COL_REAL, 0},
    {"intensity", "FLOPS/BYTE", TU_COL_REAL, 0},
    {"bound_ratio", "MOVED/BOUND", TU_COL_REAL, 0},
    {NULL, NULL, 0, 0},
};

struct counts {
    double pairs, flops, io, kv_row; /* bytes of q and o; of one key and its value */
    double bound;                    /* bytes of N²D²/M */
};

static double moved(const struct counts *c, const char *form)
{
    if (!strcmp(form, "naive3")) /* S written, read for max and sum, P written and read */
        return c->io + c->pairs * 4 * 5 + c->pairs / TILE * c->kv_row;
    if (!strcmp(form, "naive2"))
        return c->io + c->pairs * 4 * 2 + c->pairs / TILE * c->kv_row;
    if (!strcmp(form, "online")) /* a row at a time */
        return c->io + c->pairs * c->kv_row;
    return c->io + c->pairs / TILE * c->kv_row;
}

int fa_explain(struct tu_ctx *ctx, const struct tu_mixer *row,
               const struct tu_mixer_args *m, struct tu_err *err)
{
    static const char *const forms[] = {"tiles", "online", "naive2", "naive3"};
    static const unsigned passes[] = {1, 1, 2, 3};
    struct tu_attn a;
    if (strcmp(row->name, "softmax"))
        return tu_fail(err, TU_EUSAGE, "--explain knows softmax only");
    int code = tu_attn_init(&a, m->opt, m->in, m->n_in, err);
    if (code)
        return code;
    double e = a.q.elem, d = (double)a.d, dv = (double)a.dv, words = CACHE / e, rows = 0;
    for (uint64_t b = 0; b < a.batch; b++)
        rows += (double)(a.seq[b].sq * a.hq);
    struct counts c = {.pairs = tu_attn_pairs(&a),
                       .flops = tu_attn_flops(&a, TU_PASS_FWD),
                       .io = rows * (d + dv) * e + rows * 4,
                       .kv_row = (d + dv) * e};
    c.bound = c.pairs * d * d / words * e;
    tu_rows_begin(ctx, columns);
    for (unsigned i = 0; i < 4; i++) {
        double bytes = moved(&c, forms[i]);
        tu_row(ctx, (struct tu_cell[]){{.s = forms[i]},
                                       {.u = passes[i]},
                                       {.u = (uint64_t)bytes},
                                       {.f = c.flops},
                                       {.f = bytes > 0 ? c.flops / bytes : 0},
                                       {.none = !(c.bound > 0), .f = bytes / c.bound}});
    }
    tu_attn_release(&a);
    return 0;
}
