/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c: caches made over. Each element of a cache is a number that says where it belongs
 * (layer, side, token, head, column): whatever layout, ranks and part are asked for, each element
 * of the result must be the number of its place. And caches that contradict themselves or one
 * another, asked for in every way, are refused with a word of what is wrong. */
#include <stdlib.h>
#include <tensorutils/kv.h>
#include "../scratch.h"
#include "../tap.h"

enum { LAYERS = 3, HEADS = 4, DIM = 8, TOKENS = 11, RECORDS = 16 };

/* A cache in memory that grows record by record. */
struct fake {
    struct tu_kv_info info;
    size_t n;
    struct tu_tensor tensor[RECORDS];
    char name[RECORDS][24];
    uint64_t dim[RECORDS][TU_RANK_MAX];
    void *data[RECORDS];
    struct tu_kv *kv;
};

static struct fake rank[8];
static size_t ranks;

static float mark(uint64_t layer, int side, uint64_t token, uint64_t head, uint64_t col)
{
    return (float)((((layer * 2 + (uint64_t)side) * 32 + token) * 8 + head) * 16 + col);
}

/* A record of this shape, filled with zeros. */
static void *add(struct fake *f, const char *name, uint32_t dtype, unsigned dims,
                 const uint64_t *dim)
{
    struct tu_tensor *t = &f->tensor[f->n];
    snprintf(f->name[f->n], sizeof *f->name, "%s", name);
    memcpy(f->dim[f->n], dim, dims * sizeof *dim);
    *t = (struct tu_tensor){.name = f->name[f->n], .dtype = dtype, .rank = dims,
                            .dim = f->dim[f->n]};
    if (tu_tensor_bytes(dtype, dim, dims, &t->bytes, NULL) ||
        !(f->data[f->n] = calloc(1, (size_t)t->bytes + 1)))
        abort();
    return f->data[f->n++];
}

static void add_ints(struct fake *f, const char *name, uint64_t n, const int32_t *v)
{
    int32_t *to = add(f, name, TU_I32, 1, &n);
    for (uint64_t i = 0; i < n; i++)
        to[i] = v ? v[i] : (int32_t)(100 + i);
}

static void forget(void)
{
    for (size_t r = 0; r < 8; r++) {
        tu_kv_close(rank[r].kv);
        for (size_t i = 0; i < rank[r].n; i++)
            free(rank[r].data[i]);
        rank[r] = (struct fake){.kv = NULL};
    }
    ranks = 0;
}

/* Keys and values of rank r of n: its share of HEADS, or the one that it has with others. */
static void add_layers(struct fake *f, uint64_t r, uint64_t n)
{
    const uint64_t local = n > HEADS ? 1 : HEADS / n, first = n > HEADS ? r / (n / HEADS) : r * local,
                   dim[3] = {TOKENS, local, DIM};
    char name[24];
    for (uint64_t l = 0; l < LAYERS; l++)
        for (int s = 0; s < 2; s++) {
            snprintf(name, sizeof name, "kv.%" PRIu64 ".%c", l, "kv"[s]);
            float *x = add(f, name, TU_F32, 3, dim);
            for (uint64_t i = 0; i < TOKENS * local * DIM; i++)
                x[i] = mark(l, s, i / DIM / local, first + i / DIM % local, i % DIM);
        }
    f->info.tp_rank = r;
    f->info.tp_size = n;
}

/* A whole cache on n ranks. */
static void make(uint64_t n)
{
    forget();
    for (ranks = 0; ranks < n; ranks++) {
        tu_kv_info_init(&rank[ranks].info);
        rank[ranks].info.heads = HEADS;
        add_layers(&rank[ranks], ranks, n);
        add_ints(&rank[ranks], "kv.tokens", TOKENS, NULL);
    }
}

static int open_all(struct tu_kv **kv, struct tu_err *err)
{
    int rc = 0;
    for (size_t r = 0; !rc && r < ranks; r++) {
        struct fake *f = &rank[r];
        rc = tu_kv_of_memory(&f->kv, &f->info, f->tensor, f->data, f->n, err);
        kv[r] = f->kv;
    }
    return rc;
}

/* Convert into the file "out". */
static int convert(const struct tu_kv_convert *how, struct tu_err *err)
{
    struct tu_kv *kv[8];
    struct tu_out *out = NULL;
    struct tu_writer *w = NULL;
    *err = (struct tu_err){0};
    int rc = open_all(kv, err);
    rc = rc ? rc : tu_out_open(&out, "out", NULL, err);
    rc = rc ? rc : tu_writer_new(&w, out, err);
    rc = rc ? rc : tu_kv_convert_run(kv, ranks, how, w, NULL, err);
    if (!rc)
        return tu_writer_close(w, false, err);
    tu_writer_abort(w);
    return rc;
}

/* The part that is asked for, and where it comes from. */
struct part {
    uint64_t layer0, layers, token0, tokens, head0, heads, tp;
};

/* Is each element of a record of the result the number of its place? */
static bool same_record(struct tu_kv *kv, uint64_t layer, int side, const struct part *p)
{
    const struct tu_kv_layout *l;
    struct tu_kv_place place;
    void *data = NULL;
    size_t i = tu_kv_record(kv, layer, (enum tu_kv_side)side);
    if (i == TU_KV_NONE || tu_kv_layout_find(&l, kv->info.layout, NULL))
        return false;
    const struct tu_tensor *t = &kv->tensor[i];
    const uint64_t local = p->tp > p->heads ? 1 : p->heads / p->tp, r = kv->info.tp_rank,
                   first = p->tp > p->heads ? r / (p->tp / p->heads) : r * local,
                   block = kv->info.block ? kv->info.block : p->tokens;
    if (tu_kv_place_of(&place, l, (enum tu_kv_side)side, t->dim, t->rank, 4, false, NULL) ||
        place.of.heads != local || place.of.dim != DIM || place.of.block != block ||
        place.of.blocks * block < p->tokens || tu_kv_load(kv, i, &data, NULL))
        return false;
    bool same = true;
    const uint64_t one = tu_kv_layout_has(l, 'l') ? layer : 0;
    for (uint64_t k = 0; k < p->tokens * local * DIM; k++) {
        const uint64_t token = k / DIM / local, head = k / DIM % local, col = k % DIM;
        const float got = ((float *)data)[tu_kv_offset(&place, one, (uint64_t)side, token / block,
                                                       token % block, head, col)];
        same = same && got == mark(p->layer0 + layer, side, p->token0 + token,
                                   p->head0 + first + head, col);
    }
    tu_free(data);
    return same;
}

static bool same_ids(struct tu_kv *kv, const struct part *p)
{
    int32_t *v = NULL;
    bool same = !tu_kv_ids(kv, &v, NULL) && kv->tokens == p->tokens;
    for (uint64_t i = 0; same && i < p->tokens; i++)
        same = v[i] == (int32_t)(100 + p->token0 + i);
    tu_free(v);
    if (kv->pos == TU_KV_NONE)
        return same && !p->token0;
    same = same && !tu_kv_positions(kv, &v, NULL);
    for (uint64_t i = 0; same && i < p->tokens; i++)
        same = v[i] == (int32_t)(p->token0 + i);
    tu_free(v);
    return same;
}

/* The segments of "out": one for each rank of the result. */
static bool same_file(const struct part *p, uint64_t segments)
{
    struct tu_kv_set set = {0};
    struct tu_in *in;
    bool same = !tu_in_open(&in, "out", NULL) && !tu_kv_set_add(&set, in, NULL, NULL) &&
                set.n == segments;
    for (size_t r = 0; same && r < set.n; r++) {
        same = set.kv[r]->info.tp_size == p->tp && set.kv[r]->info.layers == p->layers &&
               set.kv[r]->info.heads == p->heads && same_ids(set.kv[r], p);
        for (uint64_t l = 0; same && l < p->layers; l++)
            same = same_record(set.kv[r], l, 0, p) && same_record(set.kv[r], l, 1, p);
    }
    tu_kv_set_release(&set);
    return same;
}

static struct tu_rng rng = {3, 9};
static uint64_t at;

static uint64_t draw(uint64_t n)
{
    return tu_rng_u32(&rng, at++) % n;
}

/* A part of 0 … n, and its range; whole as often as not. */
static void some(struct tu_kv_range *r, uint64_t n, uint64_t *first, uint64_t *count)
{
    *first = 0;
    *count = n;
    if (draw(2))
        return;
    r->begin = *first = draw(n);
    *count = 1 + draw(n - *first);
    r->end = *first + *count;
}

static void everything(void)
{
    static const uint64_t sizes[] = {1, 2, 4, 8};
    for (const struct tu_kv_layout *l = tu_kv_layouts; l->name; l++) {
        unsigned wrong = 0, made = 0;
        for (int n = 0; n < 40; n++) {
            struct tu_kv_convert how;
            struct tu_err err;
            struct part p;
            tu_kv_convert_init(&how);
            how.layout = l;
            how.block = 1 + draw(5);
            make(sizes[draw(4)]);
            some(&how.layers, LAYERS, &p.layer0, &p.layers);
            some(&how.tokens, TOKENS, &p.token0, &p.tokens);
            some(&how.heads, HEADS, &p.head0, &p.heads);
            p.tp = how.tp = sizes[draw(4)];
            if (draw(4) == 0)
                how.tp_rank = (int64_t)draw(p.tp);
            const bool divides = p.tp % p.heads == 0 || p.heads % p.tp == 0,
                       latents = !strcmp(l->name, "ltd");
            int rc = convert(&how, &err);
            made += !rc;
            if (!divides || latents)
                wrong += rc != TU_EUSAGE;
            else
                wrong += rc || !same_file(&p, how.tp_rank < 0 ? p.tp : 1);
            if (wrong == 1 && *err.msg)
                printf("# %s\n", err.msg);
        }
        ok(!wrong && (made > 10 || !strcmp(l->name, "ltd")), "%s: %u of %u are wrong", l->name,
           wrong, made);
    }
    forget();
}

/* What is refused ------------------------------------------------------------------------ */

static struct tu_kv_convert ask;

#define CASE(name, what)                                                                           \
    static void name(void)                                                                         \
    {                                                                                              \
        what;                                                                                      \
    }

static struct fake *a = &rank[0], *b = &rank[1];

static const struct tu_kv_layout *layout(const char *name)
{
    const struct tu_kv_layout *l = NULL;
    if (tu_kv_layout_find(&l, name, NULL))
        abort();
    return l;
}

/* Make record i another one. */
static void change(struct fake *f, size_t i, uint32_t dtype, uint64_t tokens, uint64_t heads,
                   uint64_t cols)
{
    const size_t n = f->n;
    free(f->data[i]);
    f->n = i;
    add(f, (char[24]){0}, dtype, 3, (uint64_t[]){tokens, heads, cols});
    snprintf(f->name[i], sizeof *f->name, "kv.%zu.%c", i / 2, "kv"[i % 2]);
    f->n = n;
}

/* A pool of pages of two tokens and the table of one sequence. */
static void pool(uint64_t pages0, uint64_t pages1, uint64_t block)
{
    forget();
    tu_kv_info_init(&a->info);
    a->info.block = 2;
    strcpy(a->info.layout, "nhd-paged");
    for (int l = 0; l < 2; l++)
        for (int s = 0; s < 2; s++) {
            char name[24];
            snprintf(name, sizeof name, "kv.%d.%c", l, "kv"[s]);
            add(a, name, TU_F32, 4, (uint64_t[]){l && s ? pages1 : pages0, l ? block : 2, 2, 4});
        }
    add_ints(a, "kv_indptr", 2, (const int32_t[]){0, 3});
    add_ints(a, "kv_indices", 3, (const int32_t[]){0, 1, 3});
    add_ints(a, "kv_last_page_len", 1, (const int32_t[]){1});
    ranks = 1;
}

/* An array of heads first. */
static void heads_first(uint64_t heads)
{
    forget();
    tu_kv_info_init(&a->info);
    a->info.heads = HEADS;
    strcpy(a->info.layout, "hnd");
    for (int s = 0; s < 2; s++)
        add(a, s ? "kv.0.v" : "kv.0.k", TU_F32, 3, (uint64_t[]){heads, TOKENS, DIM});
    ranks = 1;
}

static void latents(uint64_t n)
{
    forget();
    tu_kv_info_init(&a->info);
    for (uint64_t l = 0; l < n; l++) {
        char name[24];
        snprintf(name, sizeof name, "kv.%" PRIu64 ".ckv", l);
        add(a, name, TU_F32, 2, (uint64_t[]){TOKENS, DIM});
    }
    ranks = 1;
}

CASE(nothing, (void)0)
CASE(one_of_two, ranks = 1; ask.tp = 1)
CASE(order, b->info.tp_rank = 0)
CASE(other_model, strcpy(a->info.model, "a"); strcpy(b->info.model, "b"))
CASE(other_theta, a->info.rope_theta = 1e4; b->info.rope_theta = 1e6)
CASE(longer, b->n = 6; add_ints(b, "kv.pos", TOKENS, NULL);
     for (size_t i = 0; i < 6; i++) change(b, i, TU_F32, TOKENS - 1, 2, DIM); b->n = 6)
CASE(other_dim, change(b, 4, TU_F32, TOKENS, 2, 2 * DIM))
CASE(other_dtype, change(b, 3, TU_F64, TOKENS, 2, DIM))
CASE(other_window, change(b, 5, TU_F32, TOKENS - 3, 2, DIM))
CASE(no_values, b->n = 5)
CASE(fewer_heads, make(1); change(a, 2, TU_F32, TOKENS, 2, DIM))
CASE(more_heads, make(1); a->info.heads = 64)
CASE(array_heads, heads_first(2))
CASE(no_heads, make(1); a->info.heads = 6; a->info.tp_size = 4)
CASE(layers_out, ask.layers.begin = LAYERS)
CASE(layers_over, ask.layers.end = LAYERS + 1)
CASE(layers_none, ask.layers.begin = ask.layers.end = 1)
CASE(tokens_over, ask.tokens.end = TOKENS + 1)
CASE(heads_out, ask.heads.begin = HEADS; ask.heads.end = HEADS + 1)
CASE(tp_odd, ask.tp = 3)
CASE(rank_out, ask.tp = 2; ask.tp_rank = 2)
CASE(shift_none, ask.shift = 3)
CASE(shift_odd, ask.shift = 3; ask.theta = 1e4; ask.rope_dim = 3)
CASE(shift_wide, ask.shift = 3; ask.theta = 1e4; ask.rope_dim = 2 * DIM)
CASE(shift_back, ask.shift = -1; ask.theta = 1e4)
CASE(shift_far, ask.shift = INT32_MAX; ask.theta = 1e4)
CASE(shift_rotated, a->info.rot = b->info.rot = 4; ask.shift = 1; ask.theta = 1e4)
CASE(shift_latent, latents(1); ask.shift = 1; ask.theta = 1e4)
CASE(rotated_odd, ask.rot = 16)
CASE(unrotated_odd, a->info.rot = b->info.rot = 16; ask.rot = 0)
CASE(big_block, ask.layout = layout("nhd-paged"); ask.block = (uint64_t)1 << 40)
CASE(columns, make(1); for (size_t i = 0; i < 6; i++) change(a, i, TU_F32, TOKENS, HEADS, 6);
     ask.layout = layout("vllm"))
CASE(packed, make(1); for (size_t i = 0; i < 6; i++) change(a, i, TU_F32, TOKENS, HEADS, 32);
     ask.dtype = tu_dtype_named("q8_0")->code; ask.layout = layout("vllm"))
CASE(window_in_pages, make(1); change(a, 2, TU_F32, 5, HEADS, DIM); ask.layout = layout("hnd"))
CASE(window_cut, make(1); change(a, 2, TU_F32, 5, HEADS, DIM); ask.tokens.end = TOKENS - 1)
CASE(keys_alone, make(1); a->n = 5; ask.layout = layout("vllm-fa"))
CASE(values_alone, make(1); strcpy(a->name[4], "x"); ask.layout = layout("flashinfer"))
CASE(uneven_pages, make(1); change(a, 1, TU_F32, TOKENS, HEADS, 2 * DIM); ask.layout = layout("trt"))
CASE(shared_latent, make(1); ask.layout = layout("ltd"))
CASE(bad_layout, make(1); strcpy(a->info.layout, "hdn"))
CASE(pool_pages, pool(4, 2, 2))
CASE(pool_block, pool(4, 4, 3))
CASE(pool_table, pool(3, 3, 2))
CASE(pool_ids, pool(4, 4, 2); add_ints(a, "kv.tokens", 4, NULL))
CASE(pool_pos, pool(4, 4, 2); add_ints(a, "kv.pos", 6, NULL))
CASE(pool_bare, pool(4, 4, 2); a->n = 4)
CASE(pool_empty, pool(4, 4, 2); memmove(a->name[0], a->name[6], sizeof *a->name); a->n = 1)
CASE(pool_packed, pool(4, 4, 2); a->tensor[0].dtype = tu_dtype_named("q8_0")->code;
     a->dim[0][3] = 32)
CASE(pool_ids_wrong, pool(4, 4, 2); add(a, "kv.pool.tokens", TU_I32, 2, (uint64_t[]){4, 3}))
CASE(pool_int64, pool(4, 4, 2); a->tensor[5].dtype = TU_I64; a->dim[5][0] = 1)

static const struct {
    const char *what;
    void (*set)(void);
    int code; /* 0: it is right */
    const char *words;
} rows[] = {
    {"two ranks", nothing, 0, ""},
    {"one of two ranks", one_of_two, TU_EINCOMPLETE, "rank 0 of 2: 1 of the ranks follow"},
    {"no rank after rank 0", order, TU_EINCOMPLETE, "rank 0 where rank 1 is expected"},
    {"ranks of two models", other_model, TU_EINCOMPLETE, "model"},
    {"ranks of two rotary embeddings", other_theta, TU_EINCOMPLETE, "rope_theta"},
    {"a rank with fewer tokens", longer, TU_EINCOMPLETE, "tokens are not those of rank 0"},
    {"a rank with wider keys in a layer", other_dim, TU_EINCOMPLETE, "another shape"},
    {"a rank with values of another dtype", other_dtype, TU_EINCOMPLETE, "another shape or dtype"},
    {"a rank with a window of its own", other_window, TU_EINCOMPLETE, "another shape"},
    {"a rank without a layer's values", no_values, TU_EINCOMPLETE, "another shape"},
    {"a layer of fewer heads", fewer_heads, TU_ESIZE, "2 heads, META kv says 4"},
    {"META of more heads", more_heads, TU_ESIZE, "4 heads, META kv says 64"},
    {"an array of fewer heads", array_heads, TU_ESIZE, "2 heads, META kv says 4"},
    {"heads that do not divide", no_heads, TU_EUSAGE, "6"},
    {"layers behind the last", layers_out, TU_EUSAGE, "--layers 3-3 of 3"},
    {"a layer too many", layers_over, TU_EUSAGE, "--layers 0-4 of 3"},
    {"no layer", layers_none, TU_EUSAGE, "--layers 1-1 of 3"},
    {"a token too many", tokens_over, TU_EUSAGE, "--tokens 0-12 of 11"},
    {"heads behind the last", heads_out, TU_EUSAGE, "--heads 4-5 of 4"},
    {"ranks that do not divide", tp_odd, TU_EUSAGE, "3"},
    {"a rank that is not there", rank_out, TU_EUSAGE, "no rank 2 of 2"},
    {"a shift without theta", shift_none, TU_EUSAGE, "--rope THETA is needed"},
    {"a shift of three columns", shift_odd, TU_EUSAGE, "--rope-dim 3 of 8"},
    {"a shift of more columns", shift_wide, TU_EUSAGE, "--rope-dim 16 of 8"},
    {"a shift before the first", shift_back, TU_EUSAGE, "--shift -1 moves position 0"},
    {"a shift behind the last", shift_far, TU_EUSAGE, "out of range"},
    {"a shift of rotated keys", shift_rotated, TU_EUSAGE, "rotated by 4: --rot 0 first"},
    {"a shift of latents", shift_latent, TU_EUSAGE, "--rope-dim 0 of 8"},
    {"a rotation wider than a head", rotated_odd, TU_EUSAGE, "do not divide by the rotation"},
    {"the same taken back", unrotated_odd, TU_EUSAGE, "do not divide by the rotation"},
    {"pages too large", big_block, TU_EUSAGE, "--block is too large"},
    {"columns that do not divide", columns, TU_EUSAGE, "6 columns do not divide by x = 4"},
    {"blocks of a packed dtype", packed, TU_EUSAGE, "elements of whole bytes, not q8_0"},
    {"a window by heads", window_in_pages, TU_EUNSUP, "the last 5 of 11 tokens do not go into"},
    {"a window without its end", window_cut, TU_EUNSUP, "a part must end with them"},
    {"keys alone in an array of both", keys_alone, TU_EUNSUP, "layer 2 has no values"},
    {"values alone in an array of both", values_alone, TU_EUNSUP, "layer 2 has no keys"},
    {"two widths in one array", uneven_pages, TU_EUNSUP, "differs from what shares its array"},
    {"keys where latents go", shared_latent, TU_EUSAGE, "layout 'ltd' is for latents"},
    {"a layout that is none", bad_layout, TU_EUSAGE, "layout 'hdn': unknown"},
    {"a pool", nothing, 0, ""},
    {"a pool of fewer pages in a layer", pool_pages, TU_ESIZE, "'kv.1.v' has 2 pages, others have 4"},
    {"a pool of larger pages in a layer", pool_block, TU_ESIZE, "pages of 3 tokens, META kv says 2"},
    {"a page behind the pool", pool_table, TU_EFORMAT, "is 3, the pool has 3"},
    {"a pool with fewer ids", pool_ids, TU_ESIZE, "4 tokens, the table has 5"},
    {"a pool with more positions", pool_pos, TU_ESIZE, "6 tokens, the table has 5"},
    {"a pool without a table", pool_bare, TU_EINCOMPLETE, "without record 'kv_indptr'"},
    {"a pool without layers", pool_empty, TU_EINCOMPLETE, "no layers"},
    {"a pool of a packed dtype", pool_packed, TU_EUNSUP, "of a packed dtype"},
    {"ids of other pages", pool_ids_wrong, TU_ESIZE, "is not [pages, tokens of a page]"},
    {"a table of int64", pool_int64, TU_EDTYPE, "expected i32"},
};

static void refused(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_err err;
        tu_kv_convert_init(&ask);
        make(2);
        if (!strcmp(rows[i].what, "a pool"))
            pool(4, 4, 2);
        rows[i].set();
        int rc = convert(&ask, &err);
        ok(rc == rows[i].code && strstr(err.msg, rows[i].words), "%s: %s: %s", rows[i].what,
           tu_err_name(rc), err.msg);
    }
    forget();
}

int main(void)
{
    scratch_enter();
    everything();
    refused();
    scratch_leave();
    return tap_done();
}
