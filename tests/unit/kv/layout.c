/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c: the index formulas at published points, whole blocks, there and back for every
 * layout and element size, tables of pages. */
#include <stdlib.h>
#include <tensorutils/kv.h>
#include "kv/turn.h"
#include "../tap.h"

static const struct tu_kv_layout *layout(const char *name)
{
    const struct tu_kv_layout *l = NULL;
    if (tu_kv_layout_find(&l, name, NULL))
        abort();
    return l;
}

static uint64_t at(const char *name, int side, unsigned elem, uint64_t pos, uint64_t h,
                   uint64_t d)
{
    static const uint64_t table[] = {3, 1};
    struct tu_kv_geometry g = {.layers = 1, .heads = 2, .dim = 8, .block = 4,
                               .blocks = 6, .elem = elem};
    struct tu_kv_place p;
    if (tu_kv_place(&p, layout(name), (enum tu_kv_side)side, &g, NULL))
        abort();
    return tu_kv_offset(&p, 0, (uint64_t)side, table[pos / 4], pos % 4, h, d);
}

/* Hkv = 2, D = 8, B = 4, NB = 6, pages [3, 1]. */
static void points(void)
{
    static const uint64_t pos[4][3] = {{0, 0, 0}, {1, 0, 0}, {5, 1, 5}, {5, 1, 6}};
    static const struct {
        const char *name;
        int side;
        unsigned elem;
        uint64_t want[4];
    } t[] = {
        {"vllm", 0, 4, {192, 196, 117, 118}},
        {"vllm", 0, 2, {192, 200, 109, 110}},
        {"vllm", 1, 2, {192, 193, 117, 121}},
        {"flashinfer", 0, 2, {384, 400, 157, 158}},
        {"flashinfer", 1, 2, {448, 464, 221, 222}},
        {"flashinfer-hnd", 0, 2, {384, 392, 173, 174}},
        {"flashinfer-hnd", 1, 2, {448, 456, 237, 238}},
        {"vllm-fa", 0, 2, {192, 208, 93, 94}},
        {"vllm-fa", 1, 2, {576, 592, 477, 478}},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (int k = 0; k < 4; k++)
            eq_u64(at(t[i].name, t[i].side, t[i].elem, pos[k][0], pos[k][1], pos[k][2]),
                   t[i].want[k], "%s %c at point %d", t[i].name, "kv"[t[i].side], k);
}

/* Hkv = 2, D = 4, B = 2, one block, value = 100 t + 10 h + d. */
static void block(const char *what, const char *name, int side, unsigned elem,
                  const int *want)
{
    unsigned char rows[16 * 8] = {0}, pool[16 * 8] = {0};
    struct tu_kv_geometry g = {.layers = 1, .heads = 2, .dim = 4, .block = 2, .blocks = 1,
                               .elem = elem};
    struct tu_kv_place p;
    for (unsigned i = 0; i < 16; i++)
        rows[i * elem] = (unsigned char)(100 * (i / 8) + 10 * (i / 4 % 2) + i % 4);
    ok(!tu_kv_place(&p, layout(name), (enum tu_kv_side)side, &g, NULL), "%s", what);
    tu_kv_put(&p, pool, 0, 0, NULL, 0, 2, rows);
    bool same = true;
    for (unsigned i = 0; i < 16; i++)
        same = same && pool[i * elem] == want[i];
    ok(same, "%s: the whole block", what);
}

static void blocks(void)
{
    block("NHD", "nhd-paged", 0, 2,
          (const int[]){0, 1, 2, 3, 10, 11, 12, 13, 100, 101, 102, 103, 110, 111, 112, 113});
    block("HND", "hnd-paged", 0, 2,
          (const int[]){0, 1, 2, 3, 100, 101, 102, 103, 10, 11, 12, 13, 110, 111, 112, 113});
    block("vLLM K, x = 2", "vllm", 0, 8,
          (const int[]){0, 1, 100, 101, 2, 3, 102, 103, 10, 11, 110, 111, 12, 13, 112, 113});
    block("vLLM V", "vllm", 1, 2,
          (const int[]){0, 100, 1, 101, 2, 102, 3, 103, 10, 110, 11, 111, 12, 112, 13, 113});
}

/* The mover against the formula, and back; pages out of order, parts of a sequence. */
static void one(const struct tu_kv_layout *l, int side, unsigned elem, uint64_t dim,
                uint64_t B, bool latent)
{
    enum { LAYERS = 2, T = 43, NB = 30 };
    bool paged = tu_kv_layout_has(l, 'p');
    struct tu_kv_geometry g = {.layers = LAYERS, .heads = latent ? 1 : 3, .dim = dim,
                               .block = paged ? B : T, .blocks = paged ? NB : 1,
                               .elem = elem, .latent = latent};
    struct tu_kv_place p, q;
    uint64_t n = T * g.heads * dim;
    int32_t table[T];
    if (tu_kv_place(&p, l, (enum tu_kv_side)side, &g, NULL))
        return;
    for (int32_t i = 0; i < T; i++)
        table[i] = (7 * i + 3) % NB;
    unsigned char *rows = malloc(n * elem), *back = calloc(n, elem),
                  *pool = calloc(p.elements, elem);
    for (uint64_t i = 0; i < n * elem; i++)
        rows[i] = (unsigned char)(i * 2654435761u >> 13);
    uint64_t layer = tu_kv_layout_has(l, 'l') ? 1 : 0;
    uint64_t s = tu_kv_layout_has(l, 's') ? (uint64_t)side : 0;
    const int32_t *pages = paged ? table : NULL;
    tu_kv_put(&p, pool, layer, s, pages, 0, 5, rows);
    tu_kv_put(&p, pool, layer, s, pages, 5, T - 5, rows + 5 * g.heads * dim * elem);
    bool same = true;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t t = i / dim / g.heads, page = pages ? (uint64_t)pages[t / B] : 0;
        uint64_t off = tu_kv_offset(&p, layer, s, page, paged ? t % B : t,
                                    i / dim % g.heads, i % dim);
        same = same && !memcmp(pool + off * elem, rows + i * elem, elem);
    }
    tu_kv_get(&p, pool, layer, s, pages, 0, T, back);
    same = same && !memcmp(rows, back, n * elem);
    same = same && !tu_kv_place_of(&q, l, (enum tu_kv_side)side, p.dim, p.rank, elem, latent,
                                   NULL) && q.token == p.token && q.page == p.page;
    ok(same, "%s %c, %u bytes, D %u, B %u%s", l->name, "kv"[side], elem, (unsigned)dim,
       (unsigned)B, latent ? ", latent" : "");
    free(rows);
    free(back);
    free(pool);
}

static void all(void)
{
    for (const struct tu_kv_layout *l = tu_kv_layouts; l->name; l++)
        for (int side = 0; side < 2; side++)
            for (unsigned elem = 1; elem <= 4; elem *= 2) {
                one(l, side, elem, 16, 4, false);
                one(l, side, elem, 80, 16, false);
                one(l, side, elem, 12, 3, false);
                one(l, side, elem, 64, 8, true);
            }
}

static void tables(void)
{
    static const int32_t page[] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const uint64_t tokens[] = {17, 5, 64, 1}, pages[] = {2, 1, 4, 1};
    static const int32_t indptr[] = {0, 2, 3, 7, 8}, last[] = {1, 5, 16, 1};
    struct tu_kv_table t = {.block = 16, .blocks = 8}, u;
    int32_t *a, *b, *c;
    uint64_t slots, used, width;
    for (int i = 0, at_page = 0; i < 4; at_page += (int)pages[i++])
        ok(!tu_kv_table_add(&t, page + at_page, pages[i], tokens[i], NULL), "add %d", i);
    ok(!tu_kv_table_csr(&t, &a, &b, &c, NULL), "as CSR");
    eq_mem(a, indptr, sizeof indptr, "kv_indptr");
    eq_mem(c, last, sizeof last, "kv_last_page_len");
    double w = tu_kv_table_waste(&t, true, &slots, &used, NULL);
    ok(slots == 128 && used == 87 && w > 0.32031249 && w < 0.32031251, "41 of 128 wasted");
    ok(!tu_kv_table_of_csr(&u, a, 4, b, 8, c, 16, 8, NULL), "and back");
    eq_mem(u.tokens, tokens, sizeof tokens, "tokens");
    tu_kv_table_release(&u);
    struct tu_err e;
    c[1] = 0;
    eq_int(tu_kv_table_of_csr(&u, a, 4, b, 8, c, 16, 8, &e), TU_EFORMAT, "last page of 0");
    c[1] = 17;
    eq_int(tu_kv_table_of_csr(&u, a, 4, b, 8, c, 16, 8, &e), TU_EFORMAT, "of B + 1");
    c[1] = 5;
    b[2] = 8;
    eq_int(tu_kv_table_of_csr(&u, a, 4, b, 8, c, 16, 8, &e), TU_EFORMAT, "page ≥ NB");
    b[2] = -1;
    eq_int(tu_kv_table_of_csr(&u, a, 4, b, 8, c, 16, 8, &e), TU_EFORMAT, "page -1");
    b[2] = 2;
    a[2] = 2;
    eq_int(tu_kv_table_of_csr(&u, a, 4, b, 8, c, 16, 8, &e), TU_EFORMAT, "empty sequence");
    tu_free(a);
    tu_free(b);
    tu_free(c);
    ok(!tu_kv_table_padded(&t, &a, &width, &b, NULL), "padded");
    eq_u64(width, 4, "width");
    ok(a[1] == 1 && a[2] == -1 && a[4] == 2 && a[5] == -1 && b[2] == 64, "-1 behind");
    ok(!tu_kv_table_of_padded(&u, a, 4, width, b, 16, 8, NULL), "and back");
    tu_kv_table_release(&u);
    b[1] = 65;
    eq_int(tu_kv_table_of_padded(&u, a, 4, width, b, 16, 8, &e), TU_EFORMAT, "too long");
    b[1] = 20;
    eq_int(tu_kv_table_of_padded(&u, a, 4, width, b, 16, 8, &e), TU_EFORMAT, "padding inside");
    tu_free(a);
    tu_free(b);
    tu_kv_table_release(&t);
}

/* Every row of the table, shapes that fill tiles and those that do not. */
static void turning(void)
{
    static const uint64_t shape[][2] = {{16, 128}, {128, 16}, {32, 24}, {48, 32}, {64, 16},
                                        {8, 8},    {7, 9},    {17, 33}, {16, 7},  {0, 5}};
    static uint16_t x[128 * 160], y[128 * 160];
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (uint16_t)i;
    for (const struct tu_kernel *k = tui_turn_kernels; k->name; k++) {
        if (k->needs & ~tu_cpu_bits()) {
            tap_skip(k->name, "this CPU lacks it");
            continue;
        }
        for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
            uint64_t rows = shape[s][0], cols = shape[s][1], wide = cols + 3, tall = rows + 5;
            bool same = true;
            memset(y, 0xee, sizeof y);
            ((tui_turn_fn *)k->fn)((unsigned char *)x, 2 * wide, (unsigned char *)y, 2 * tall,
                                   rows, cols);
            for (uint64_t c = 0; c < cols; c++)
                for (uint64_t r = 0; r < tall; r++)
                    same = same && y[c * tall + r] == (r < rows ? x[r * wide + c] : 0xeeee);
            ok(same, "%s: %d x %d", k->name, (int)rows, (int)cols);
        }
    }
}

int main(void)
{
    turning();
    struct tu_kv_geometry g = {.layers = 1, .heads = 2, .dim = 12, .block = 4,
                               .blocks = 6, .elem = 2};
    struct tu_kv_place p;
    struct tu_err e;
    points();
    blocks();
    all();
    tables();
    eq_int(tu_kv_place(&p, layout("vllm"), TU_KV_K, &g, &e), TU_EUSAGE, "D does not divide by x");
    return tap_done();
}
