/* SPDX-License-Identifier: Apache-2.0 */
/* The worked cases of re-sharding: fused QKV in all its orders, gated MLPs, vocabulary padding, stages,
 * rotary pairs, boxes. Values by hand from Megatron-LM's and transformers' definitions. */
#include "shard/ckpt.h"

#include "../tap.h"

#define MAX 64

/* Roles of one column with these values; a piece as one rank sees it. */
struct toy {
    struct tu_ckpt c;
    struct tu_role role[3];
    uint32_t number[3];
    const uint64_t *value[3];
};

static void toy_role(struct toy *t, unsigned k, const uint64_t *value, uint64_t rows)
{
    t->role[k] = (struct tu_role){.name = "r", .rank = 1, .rows = rows, .cols = 1};
    t->number[k] = k;
    t->value[k] = value;
    t->c.role = t->role;
    t->c.roles = k + 1;
}

/* Rows of one rank, MAX + 1 where nothing was written. */
static uint64_t rank_rows(struct toy *t, unsigned transform, uint32_t roles, uint32_t tp, uint32_t rank,
                          int version, uint64_t pad, uint64_t out[MAX])
{
    struct tu_fuse f = {transform, roles, t->number, 0};
    struct tu_err err;
    uint64_t rows = 0, cols = 0;
    if (tui_fuse_shape(&t->c, &f, "t", tp, pad, &rows, &cols, &err))
        return 0;
    for (uint64_t i = 0; i < MAX; i++)
        out[i] = MAX * MAX;
    for (uint32_t k = 0; k < roles; k++) {
        struct tu_spans s = {0};
        struct tui_slice slice = {tp, rank, version, rows};
        if (tui_fuse_spans(&t->c, &f, k, slice, &s, &err))
            return 0;
        for (size_t i = 0; i < s.n; i++)
            for (uint64_t r = 0; r < s.span[i].rows; r++)
                out[s.span[i].poff + r * s.span[i].prow] = t->value[k][s.span[i].arow + r];
        tui_spans_release(&s);
    }
    return rows;
}

static void expect(struct toy *t, unsigned transform, uint32_t roles, uint32_t tp, uint32_t rank, int version,
                   const uint64_t *want, uint64_t n, const char *what)
{
    uint64_t got[MAX];
    eq_u64(rank_rows(t, transform, roles, tp, rank, version, 0, got), n, "%s: rows", what);
    bool same = true;
    for (uint64_t i = 0; i < n; i++)
        same &= got[i] == want[i];
    ok(same, "%s", what);
}
#define EXPECT(t, transform, roles, tp, rank, version, what, ...)                           \
    expect((t), (transform), (roles), (tp), (rank), (version), (const uint64_t[]){__VA_ARGS__}, \
           sizeof((const uint64_t[]){__VA_ARGS__}) / 8, what)

static void qkv_groups(void)
{
    struct toy t = {.c.model = {.heads = 4, .kv_heads = 2, .head_dim = 1}};
    toy_role(&t, 0, (const uint64_t[]){0, 1, 2, 3}, 4);
    toy_role(&t, 1, (const uint64_t[]){10, 11}, 2);
    toy_role(&t, 2, (const uint64_t[]){20, 21}, 2);
    const unsigned f = TU_MAP_QKV | TU_MAP_COLUMN;
    EXPECT(&t, f, 3, 1, 0, 3, "heads 4, groups 2, d 1", 0, 1, 10, 20, 2, 3, 11, 21);
    EXPECT(&t, f, 3, 2, 0, 3, "the same, tp 2, rank 0", 0, 1, 10, 20);
    EXPECT(&t, f, 3, 2, 1, 3, "the same, tp 2, rank 1", 2, 3, 11, 21);
    EXPECT(&t, f, 3, 4, 0, 3, "more ranks than groups: rank 0 of 4", 0, 1);
    EXPECT(&t, f, 3, 4, 1, 3, "rank 1 of 4", 10, 20);
    EXPECT(&t, f, 3, 4, 2, 3, "rank 2 of 4", 2, 3);
    struct toy d = {.c.model = {.heads = 4, .kv_heads = 2, .head_dim = 2}};
    toy_role(&d, 0, (const uint64_t[]){0, 1, 2, 3, 4, 5, 6, 7}, 8);
    toy_role(&d, 1, (const uint64_t[]){30, 31, 32, 33}, 4);
    toy_role(&d, 2, (const uint64_t[]){40, 41, 42, 43}, 4);
    EXPECT(&d, f, 3, 1, 0, 3, "d 2", 0, 1, 2, 3, 30, 31, 40, 41, 4, 5, 6, 7, 32, 33, 42, 43);
}

static void qkv_versions(void)
{
    struct toy t = {.c.model = {.heads = 2, .kv_heads = 2, .head_dim = 2}};
    const unsigned f = TU_MAP_QKV | TU_MAP_COLUMN;
    toy_role(&t, 0, (const uint64_t[]){0, 1, 2, 3}, 4);
    toy_role(&t, 1, (const uint64_t[]){10, 11, 12, 13}, 4);
    toy_role(&t, 2, (const uint64_t[]){20, 21, 22, 23}, 4);
    EXPECT(&t, f, 3, 1, 0, 0, "version 0", 0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23);
    EXPECT(&t, f, 3, 1, 0, 1, "version 1", 0, 10, 20, 1, 11, 21, 2, 12, 22, 3, 13, 23);
    EXPECT(&t, f, 3, 1, 0, 2, "version 2", 0, 1, 10, 11, 20, 21, 2, 3, 12, 13, 22, 23);
    EXPECT(&t, f, 3, 2, 1, 0, "version 0, rank 1 of 2", 2, 3, 12, 13, 22, 23);
    EXPECT(&t, f, 3, 2, 1, 1, "version 1, rank 1 of 2", 2, 12, 22, 3, 13, 23);
    EXPECT(&t, f, 3, 2, 1, 2, "version 2, rank 1 of 2", 2, 3, 12, 13, 22, 23);
}

static void gated(void)
{
    struct toy t = {.c.roles = 0};
    const unsigned f = TU_MAP_CONCAT | TU_MAP_COLUMN;
    toy_role(&t, 0, (const uint64_t[]){0, 1, 2, 3}, 4);
    toy_role(&t, 1, (const uint64_t[]){10, 11, 12, 13}, 4);
    EXPECT(&t, f, 2, 2, 0, 3, "gate and up, rank 0", 0, 1, 10, 11);
    EXPECT(&t, f, 2, 2, 1, 3, "gate and up, rank 1", 2, 3, 12, 13);
    /* Sub-parameters of widths 4, 2, 2, as the universal checkpoint cuts them. */
    struct toy u = {.c.roles = 0};
    toy_role(&u, 0, (const uint64_t[]){0, 1, 2, 3}, 4);
    toy_role(&u, 1, (const uint64_t[]){10, 11}, 2);
    toy_role(&u, 2, (const uint64_t[]){20, 21}, 2);
    EXPECT(&u, f, 3, 2, 0, 3, "widths 4, 2, 2, rank 0", 0, 1, 10, 20);
    EXPECT(&u, f, 3, 2, 1, 3, "widths 4, 2, 2, rank 1", 2, 3, 11, 21);
    uint64_t out[MAX];
    eq_u64(rank_rows(&u, f, 3, 4, 0, 3, 0, out), 0, "2 rows over 4 ranks are refused");
}

static void vocabulary(void)
{
    static const struct {
        uint64_t v, m, tp, padded;
    } row[] = {{50257, 128, 1, 50304}, {50257, 128, 2, 50432}, {50257, 128, 8, 51200}, {32000, 128, 8, 32768},
               {32001, 128, 4, 32256}, {128256, 128, 8, 129024}, {151936, 128, 16, 153600}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct toy t = {.c.roles = 0};
        struct tu_fuse f = {TU_MAP_VOCAB, 1, t.number, 0};
        uint64_t rows = 0, cols = 0;
        toy_role(&t, 0, NULL, row[i].v);
        eq_int(tui_fuse_shape(&t.c, &f, "t", (uint32_t)row[i].tp, row[i].m, &rows, &cols, NULL), 0, "shape");
        eq_u64(rows * row[i].tp, row[i].padded, "%u rows over %u ranks", (unsigned)row[i].v,
               (unsigned)row[i].tp);
    }
}

static void stages(void)
{
    struct tu_ckpt *c = NULL;
    struct tu_err err;
    eq_int(tui_ckpt_new(&c, "x", &err), 0, "a checkpoint");
    c->model.layers = 8;
    c->pp = c->vpp = 2;
    eq_int(tui_plan_stages(c, NULL, &err), 0, "8 layers, pp 2, vpp 2");
    static const uint32_t of8[] = {0, 0, 1, 1, 2, 2, 3, 3};
    for (int l = 0; l < 8; l++)
        eq_u64(tui_stage_of(c, l), of8[l], "layer %d is in stage %u, chunk %u", l, of8[l] % 2, of8[l] / 2);
    c->model.layers = 12;
    c->vpp = 3;
    eq_int(tui_plan_stages(c, NULL, &err), 0, "12 layers, pp 2, vpp 3");
    eq_u64(c->stage[3].first, 6, "stage 1, chunk 1 begins at layer 6");
    c->model.layers = 10;
    eq_int(tui_plan_stages(c, NULL, &err), TU_EUSAGE, "10 layers over 6 chunks are refused");
    ok(strstr(err.msg, "layers=") != NULL, "and the way out is named: %s", err.msg);
    c->vpp = 1;
    eq_int(tui_plan_stages(c, "4+6", &err), 0, "unless given");
    eq_u64(c->stage[1].first, 4, "stage 1 begins at layer 4");
    eq_int(tui_plan_stages(c, "4+5", &err), TU_EUSAGE, "9 are not 10");
    eq_int(tui_plan_stages(c, "4+6+0", &err), TU_EUSAGE, "three numbers for two stages");
    tu_ckpt_close(c);
}

static void rotary(void)
{
    struct toy t = {.c.model = {.heads = 2, .kv_heads = 2, .head_dim = 4}};
    /* The role is in halves order: this is what pairs 0 … 7 come from. */
    toy_role(&t, 0, (const uint64_t[]){0, 2, 1, 3, 4, 6, 5, 7}, 8);
    EXPECT(&t, TU_MAP_ROTARY | TU_MAP_COLUMN, 1, 1, 0, 3, "2 heads of 4", 0, 1, 2, 3, 4, 5, 6, 7);
    EXPECT(&t, TU_MAP_ROTARY | TU_MAP_COLUMN, 1, 2, 1, 3, "rank 1 of 2", 4, 5, 6, 7);
}

static void columns(void)
{
    struct toy t = {.c.roles = 0};
    struct tu_spans s = {0};
    struct tu_fuse f = {TU_MAP_ROW, 1, t.number, 0};
    uint64_t rows = 0, cols = 0;
    toy_role(&t, 0, NULL, 4);
    t.role[0].rank = 2;
    t.role[0].cols = 6;
    eq_int(tui_fuse_shape(&t.c, &f, "t", 3, 0, &rows, &cols, NULL), 0, "4x6 over 3 on dim 1");
    eq_u64(cols, 2, "two columns each");
    eq_int(tui_fuse_spans(&t.c, &f, 0, (struct tui_slice){3, 1, 3, rows}, &s, NULL), 0, "spans");
    eq_u64(s.n, 1, "one span");
    eq_u64(s.span[0].acol, 2, "rank 1 begins at column 2");
    eq_u64(s.span[0].prow, 2, "its rows are 2 long");
    tui_spans_release(&s);
}

int main(void)
{
    qkv_groups();
    qkv_versions();
    gated();
    vocabulary();
    stages();
    rotary();
    columns();
    return tap_done();
}
