/* SPDX-License-Identifier: Apache-2.0 */
/* fam_bidir.c: two pipelines, one down and one up the ranks: Chimera and BitPipe.
 *
 * Micro-batches 0 … ceil(m/2)-1 go down, the others up. Every rank holds two replicas.
 * Sources: Li and Hoefler, "Chimera", 2021; Wu et al., "BitPipe", 2024. */
#include <stdlib.h>
#include "sched/families.h"

static int even(const struct tu_sched_params *q, const char *name, struct tu_err *err)
{
    if (q->p % 2 == 0)
        return 0;
    return tu_fail(err, TU_EUSAGE, "%s: p = %u: an even number of ranks is needed", name,
                   q->p);
}

static int chimera_legal(const struct tu_sched_params *q, struct tu_err *err)
{
    int rc = even(q, "chimera", err);
    if (!rc && q->m < 2)
        rc = tu_fail(err, TU_EUSAGE,
                     "chimera: m = %u: each direction needs a micro-batch", q->m);
    return rc;
}

struct slot {
    uint32_t at;
    struct tu_op op;
};

static int by_slot(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* F(s,i) at s+2i and B(s,i) at 2D-1-s+2i in each direction; unit u later by 2D·u. For an
 * even number D of ranks the directions never meet in a slot, so slots give the order. */
static int chimera(struct tu_sched **out, const struct tu_sched_params *q,
                   struct tu_err *err)
{
    struct tui_build b;
    uint32_t d = q->p, half = (q->m + 1) / 2;
    struct slot *slot = tu_alloc(2 * (size_t)q->m, sizeof *slot, err);
    tui_build_begin(&b, d, d, 2, q->m, err);
    if (!slot)
        b.code = TU_ENOMEM;
    tui_place_loop(&b);
    for (uint32_t r = 0; r < d && !b.code; r++) {
        size_t n = 0;
        for (uint32_t mb = 0; mb < q->m; mb++) {
            bool up = mb >= half;
            uint32_t i = up ? mb - half : mb, s = up ? d - 1 - r : r;
            uint32_t unit = i / (d / 2) * 2 * d, in = 2 * (i % (d / 2));
            struct tu_op op = {.kind = TU_OP_F, .stage = s + (up ? d : 0), .mb = mb};
            slot[n++] = (struct slot){unit + s + in, op};
            op.kind = TU_OP_B;
            slot[n++] = (struct slot){unit + 2 * d - 1 - s + in, op};
        }
        qsort(slot, n, sizeof *slot, by_slot);
        for (size_t i = 0; i < n; i++)
            tui_add_op(&b, r, &slot[i].op);
    }
    tu_free(slot);
    return tui_build_end(&b, out);
}

static int bitpipe_legal(const struct tu_sched_params *q, struct tu_err *err)
{
    int rc = even(q, "bitpipe", err);
    if (!rc && q->m % q->p)
        rc = tu_fail(err, TU_EUSAGE, "bitpipe: m = %u: a multiple of p = %u is needed",
                     q->m, q->p);
    return rc;
}

/* One rank of BitPipe. Chunks: 0, 1 the first pass down and up, 2, 3 the second. */
struct bit {
    struct tui_build *b;
    uint32_t p, m, r;
    uint32_t (*fwd)[2], (*bwd)[2]; /* [2p]: (chunk, index) of one unit */
};

static void bit_add(const struct bit *t, enum tu_op_kind kind, uint32_t unit, uint32_t k)
{
    const uint32_t *at = kind == TU_OP_F ? t->fwd[k] : t->bwd[k];
    uint32_t up = at[0] % 2, second = at[0] / 2;
    uint32_t pos = up ? t->p - 1 - t->r : t->r;
    uint32_t stage = (second ? 2 * t->p - 1 - pos : pos) + (up ? 2 * t->p : 0);
    tui_add(t->b, t->r, kind, stage, up * (t->m / 2) + unit * (t->p / 2) + at[1]);
}

/* Runs of the published order: two chunks in turn, or one alone. */
static size_t runs(uint32_t (*list)[2], uint32_t n, uint32_t u, const uint32_t c[4])
{
    size_t k = 0;
#define PUT(chunk, index) (list[k][0] = (chunk), list[k][1] = (index), k++)
    for (uint32_t i = 0; i < n; i++)
        PUT(c[0], i);
    for (uint32_t i = 0; i < u - n; i++)
        PUT(c[1], i), PUT(c[0], i + n);
    for (uint32_t i = 0; i < n; i++)
        PUT(c[1], i + u - n), PUT(c[2], i);
    for (uint32_t i = 0; i < u - n; i++)
        PUT(c[3], i), PUT(c[2], i + n);
    for (uint32_t i = 0; i < n; i++)
        PUT(c[3], i + u - n);
#undef PUT
    return k;
}

static void bit_rank(const struct bit *t)
{
    uint32_t p = t->p, u = p / 2, r = t->r, h = r >= u;
    uint32_t n = h ? r - u + 1 : u - r;
    uint32_t near = r < p - 1 - r ? r : p - 1 - r;
    uint32_t warm = p + u + near, turns = 2 * p - warm, units = t->m / p;
    /* The published lists name the third run (3-h) then (2+h), by pairs. */
    runs(t->fwd, n, u, (const uint32_t[]){h, 1 - h, 3 - h, 2 + h});
    runs(t->bwd, n, u, (const uint32_t[]){2 + h, 3 - h, 1 - h, h});
    for (uint32_t k = 0; k < warm; k++)
        bit_add(t, TU_OP_F, 0, k);
    for (uint32_t unit = 0; unit < units; unit++) {
        uint32_t done = 0;
        for (uint32_t k = 0; k < turns; k++) {
            bit_add(t, TU_OP_F, unit, warm + k);
            bit_add(t, TU_OP_B, unit, done++);
        }
        bool last = unit + 1 == units;
        uint32_t next = 0;
        while (!last && done < 2 * p - (turns - 1))
            bit_add(t, TU_OP_B, unit, done++);
        while (done < 2 * p) {
            if (!last)
                bit_add(t, TU_OP_F, unit + 1, next++);
            bit_add(t, TU_OP_B, unit, done++);
        }
        while (!last && next < warm)
            bit_add(t, TU_OP_F, unit + 1, next++);
    }
}

static int bitpipe(struct tu_sched **out, const struct tu_sched_params *q,
                   struct tu_err *err)
{
    struct tui_build b;
    uint32_t(*list)[2] = tu_alloc(4 * (size_t)q->p, sizeof *list, err);
    tui_build_begin(&b, q->p, 2 * q->p, 2, q->m, err);
    if (!list)
        b.code = TU_ENOMEM;
    tui_place_snake(&b);
    for (uint32_t r = 0; r < q->p && !b.code; r++)
        bit_rank(&(struct bit){&b, q->p, q->m, r, list, list + 2 * q->p});
    tu_free(list);
    return tui_build_end(&b, out);
}

const struct tu_schedule tui_chimera = {
    .name = "chimera",
    .help = "two pipelines in opposite directions",
    .source = "Chimera, 2021",
    .chunks_min = 1,
    .chunks_max = 1,
    .legal = chimera_legal,
    .make = chimera,
};
const struct tu_schedule tui_bitpipe = {
    .name = "bitpipe",
    .help = "two V pipelines in opposite directions",
    .source = "BitPipe, 2024",
    .chunks_min = 2,
    .chunks_max = 2,
    .legal = bitpipe_legal,
    .make = bitpipe,
};
