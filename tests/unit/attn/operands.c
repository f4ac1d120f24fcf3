/* SPDX-License-Identifier: Apache-2.0 */
/* operands.c: what tu_attn_init refuses, and in which words; that pages, lists of pages,
 * lengths, places and wider dtypes mean what the plain form of the same problem means;
 * and that memory running out while operands are bound is told as that. */
#include "../inject.h"
#include "kit.h"

enum { B = 2, S = 4, H = 4, G = 2, D = 8, PAGE = 2 };

static float q[B * S * H * D], k[B * S * G * D], v[B * S * G * D], big[B * S * H * D];
static int32_t zero[B * S];
static uint8_t mask[S * S];

/* The base: q [B, S, H, D], k and v [B, S, G, D] in f32. Packed: q [B·S, H, D]; paged: k
 * and v are pools of pages [B·S/PAGE, PAGE, G, D]. */
static void base(struct kit *p, char kind)
{
    *p = (struct kit){0};
    tu_attn_opts_init(&p->opt);
    if (kind == 'p')
        kit_add(p, "q", TU_F32, 3, (uint64_t)B * S, H, D, 0, q);
    else
        kit_add(p, "q", TU_F32, 4, B, S, H, D, q);
    for (unsigned i = 0; i < 2; i++) {
        const char *name = i ? "v" : "k";
        if (kind == 'p')
            kit_add(p, name, TU_F32, 3, (uint64_t)B * S, G, D, 0, i ? v : k);
        else if (kind == 'g')
            kit_add(p, name, TU_F32, 4, B * S / PAGE, PAGE, G, D, i ? v : k);
        else
            kit_add(p, name, TU_F32, 4, B, S, G, D, i ? v : k);
    }
}

/* One more operand, or another in place of one of the base; dims end with 0. */
struct extra {
    const char *name;
    uint32_t dtype;
    uint64_t dim[4];
    void *data;
    int rank; /* 0: by the dims; -1: 0 dimensions */
};

static void put(struct kit *p, const struct extra *e)
{
    unsigned rank = 0;
    size_t at = 0;
    while (rank < 4 && e->dim[rank])
        rank++;
    if (e->rank)
        rank = e->rank < 0 ? 0 : (unsigned)e->rank;
    while (at < p->n && strcmp(p->in[at].name, e->name))
        at++;
    p->in[at] =
        (struct tu_operand){e->name, e->dtype, rank, {0}, e->data ? e->data : big};
    memcpy(p->in[at].dim, e->dim, sizeof e->dim);
    p->n += at == p->n;
}

#define INT(name, data, ...) {name, TU_I32, {__VA_ARGS__}, data, 0}
#define F(name, ...) {name, TU_F32, {__VA_ARGS__}, NULL, 0}

static int32_t t_ok[] = {0, 1, 2, 3}, t_far[] = {0, 1, 2, 4}, t_minus[] = {0, -1, 2, 3};
static int32_t n4[] = {4, 4}, n5[] = {4, 5}, n_neg[] = {-1, 4}, n2[] = {2, 2},
               n3[] = {2, 3}, n1[] = {1, 1}, n0[] = {0, 1};
static int32_t n33[] = {3, 3}, prefixes[] = {2, -7};
static int32_t p_ok[] = {0, 2, 4}, p_fall[] = {0, 3, 2}, p_neg[] = {-1, 2, 4},
               p_far[] = {0, 2, 5};
static int32_t c_ok[] = {0, 4, 8}, c_one[] = {1, 4, 8}, c_fall[] = {0, 9, 8},
               c_few[] = {0, 4, 7}, c_three[] = {0, 2, 4, 8};

static const struct {
    char kind;
    struct extra e[4];
    int code;
    const char *words;
} refused[] = {
    {'d', {{"q", TU_I32, {B, S, H, D}, NULL, 0}}, TU_EDTYPE, "'q' is i32: a plain float"},
    {'d',
     {{"k", 0x7777, {B, S, G, D}, NULL, 0}},
     TU_EDTYPE,
     "'k' is of an unknown dtype"},
    {'d', {{"q", TU_F4_E2M1, {B, S, H, D}, NULL, 0}}, TU_EDTYPE, "a plain float"},
    {'d', {F("q", B, S)}, TU_ESIZE, "'q' has 2 dimensions: 3 or 4"},
    {'d', {{"q", TU_F32, {B, S, H, 0}, NULL, 4}}, TU_ESIZE, "'q' has head dimension 0"},
    {'d', {{"v", TU_F32, {B, S, 0, D}, NULL, 4}}, TU_ESIZE, "'v' has heads 0"},
    {'d', {F("q", UINT64_MAX / 2, S, H, D)}, TU_ESIZE, ""},
    {'d',
     {{"k", TU_F16, {B, S, G, D}, NULL, 0}},
     TU_EDTYPE,
     "'q' is f32, 'k' f16, 'v' f32"},
    {'d', {{"v", TU_F16, {B, S, G, D}, NULL, 0}}, TU_EDTYPE, "'k' f32, 'v' f16"},
    {'d', {F("k", 1, S, G, D)}, TU_ESIZE, "the batch of 'q' is 2, of 'k' 1"},
    {'d', {F("k", S, G, D)}, TU_ESIZE, "'q' has 4 dimensions, 'k' 3"},
    {'d', {F("k", B, S, G, 4)}, TU_ESIZE, "the head dimension of 'q' is 8, of 'k' 4"},
    {'d', {F("v", B, 3, G, D)}, TU_ESIZE, "the token count of 'k' is 4, of 'v' 3"},
    {'d', {F("v", 1, S, G, D)}, TU_ESIZE, "the batch of 'k' is 2, of 'v' 1"},
    {'d', {F("v", B, S, 1, D)}, TU_ESIZE, "the number of heads of 'k' is 2, of 'v' 1"},
    {'d',
     {F("k", B, S, 3, D), F("v", B, S, 3, D)},
     TU_ESIZE,
     "'q' has 4 heads, not a multiple"},
    {'d', {INT("cu_seqlens_q", c_ok, 3)}, TU_ESIZE, "cu_seqlens need packed"},
    {'d', {INT("cu_seqlens_k", c_ok, 3)}, TU_ESIZE, "cu_seqlens need packed"},
    {'p',
     {INT("cu_seqlens_q", c_one, 3)},
     TU_ESIZE,
     "'cu_seqlens_q' must start with 0, its"},
    {'p',
     {{"cu_seqlens_q", TU_I32, {0}, c_ok, 1}},
     TU_ESIZE,
     "must start with 0; it is empty"},
    {'p',
     {INT("cu_seqlens_q", c_fall, 3)},
     TU_ESIZE,
     "entry 2 is 8, below the one before"},
    {'p', {INT("cu_seqlens_q", c_few, 3)}, TU_ESIZE, "entry 2 is 7, 'q' has 8 tokens"},
    {'p', {{"cu_seqlens_q", TU_F32, {3}, NULL, 0}}, TU_EDTYPE, "must be i32"},
    {'p', {INT("cu_seqlens_q", c_ok, 3, 1)}, TU_ESIZE, "has 2 dimensions: 1 needed"},
    {'p',
     {INT("cu_seqlens_q", c_ok, 3), INT("cu_seqlens_k", c_few, 3)},
     TU_ESIZE,
     "'cu_seqlens_k': entry 2 is 7, 'k' has 8"},
    {'p',
     {INT("cu_seqlens_q", c_ok, 3), INT("cu_seqlens_k", c_three, 4)},
     TU_ESIZE,
     "2 sequences of 'q', 3 of 'k'"},
    {'p',
     {F("k", 7, G, D), F("v", 7, G, D), INT("cu_seqlens_q", c_ok, 3)},
     TU_ESIZE,
     "2 sequences of 'q', 1 of 'k'"},
    /* Pages by a table. */
    {'g', {INT("block_table", t_ok, 2, 2)}, TU_EINCOMPLETE, "'seqlens_k' is missing"},
    {'g',
     {{"block_table", TU_F32, {2, 2}, NULL, 0}, INT("seqlens_k", n4, 2)},
     TU_EDTYPE,
     "'block_table' must be i32"},
    {'g',
     {INT("block_table", t_ok, 4), INT("seqlens_k", n4, 2)},
     TU_ESIZE,
     "'block_table' has 1 dimensions: 2"},
    {'g',
     {INT("block_table", t_ok, 2, 2), INT("seqlens_k", n4, 2, 1)},
     TU_ESIZE,
     "'seqlens_k' has 2 dimensions: 1"},
    {'g',
     {INT("block_table", t_ok, 1, 4), INT("seqlens_k", n4, 2)},
     TU_ESIZE,
     "'q' has 2 sequences, 'block_table' 1"},
    {'g',
     {INT("block_table", t_ok, 2, 2), INT("seqlens_k", n4, 1)},
     TU_ESIZE,
     "'seqlens_k' 1"},
    {'g',
     {INT("block_table", t_ok, 2, 2), INT("seqlens_k", n5, 2)},
     TU_ESIZE,
     "sequence 1 has length 5, its row of 'block_table' holds 4"},
    {'g',
     {INT("block_table", t_ok, 2, 2), INT("seqlens_k", n_neg, 2)},
     TU_ESIZE,
     "sequence 0 has length -1"},
    {'g',
     {INT("block_table", t_far, 2, 2), INT("seqlens_k", n4, 2)},
     TU_ESIZE,
     "'block_table': sequence 1, column 1: page 4, the pool has 4"},
    {'g',
     {INT("block_table", t_minus, 2, 2), INT("seqlens_k", n4, 2)},
     TU_ESIZE,
     "sequence 0, column 1: page -1"},
    {'g',
     {F("k", 16, G, D), F("v", 16, G, D), INT("block_table", t_ok, 2, 2),
      INT("seqlens_k", n4, 2)},
     TU_ESIZE,
     "paged 'k' must be [pages, page, heads, dim]"},
    {'g',
     {{"k", TU_F32, {4, 0, G, D}, NULL, 4},
      {"v", TU_F32, {4, 0, G, D}, NULL, 4},
      INT("block_table", t_ok, 2, 2),
      INT("seqlens_k", n4, 2)},
     TU_ESIZE,
     "the page size of 'k' is 0"},
    /* Pages by lists. */
    {'g',
     {INT("kv_indptr", p_ok, 3), INT("kv_last_page_len", n2, 2)},
     TU_EINCOMPLETE,
     "'kv_indices' is missing"},
    {'g',
     {INT("kv_indptr", p_ok, 3), INT("kv_indices", t_ok, 4)},
     TU_EINCOMPLETE,
     "'kv_last_page_len' is missing"},
    {'g',
     {INT("kv_indptr", p_ok, 3, 1), INT("kv_indices", t_ok, 4),
      INT("kv_last_page_len", n2, 2)},
     TU_ESIZE,
     "'kv_indptr' has 2 dimensions"},
    {'g',
     {INT("kv_indptr", p_ok, 3), INT("kv_indices", t_ok, 2, 2),
      INT("kv_last_page_len", n2, 2)},
     TU_ESIZE,
     "'kv_indices' has 2 dimensions"},
    {'g',
     {INT("kv_indptr", p_ok, 3), INT("kv_indices", t_ok, 4),
      INT("kv_last_page_len", n2, 2, 1)},
     TU_ESIZE,
     "'kv_last_page_len' has 2 dimensions"},
    {'g',
     {INT("kv_indptr", p_ok, 2), INT("kv_indices", t_ok, 4),
      INT("kv_last_page_len", n2, 2)},
     TU_ESIZE,
     "'kv_indptr' 2 entries"},
    {'g',
     {INT("kv_indptr", p_ok, 3), INT("kv_indices", t_ok, 4),
      INT("kv_last_page_len", n2, 1)},
     TU_ESIZE,
     "'kv_last_page_len' 1"},
    {'g',
     {INT("kv_indptr", p_fall, 3), INT("kv_indices", t_ok, 4),
      INT("kv_last_page_len", n2, 2)},
     TU_ESIZE,
     "'kv_indptr': entry 2 is 2"},
    {'g',
     {INT("kv_indptr", p_neg, 3), INT("kv_indices", t_ok, 4),
      INT("kv_last_page_len", n2, 2)},
     TU_ESIZE,
     "'kv_indptr': entry 0 is -1"},
    {'g',
     {INT("kv_indptr", p_far, 3), INT("kv_indices", t_ok, 4),
      INT("kv_last_page_len", n2, 2)},
     TU_ESIZE,
     "'kv_indptr': entry 2 is 5"},
    {'g',
     {INT("kv_indptr", p_ok, 3), INT("kv_indices", t_ok, 4),
      INT("kv_last_page_len", n3, 2)},
     TU_ESIZE,
     "sequence 1 has 3, pages hold 2"},
    {'g',
     {INT("kv_indptr", p_ok, 3), INT("kv_indices", t_ok, 4),
      INT("kv_last_page_len", n0, 2)},
     TU_ESIZE,
     "sequence 0 has 0, pages hold 2"},
    {'g',
     {INT("kv_indptr", p_ok, 3), INT("kv_indices", t_far, 4),
      INT("kv_last_page_len", n2, 2)},
     TU_ESIZE,
     "'kv_indices': sequence 1, column 1: page 4"},
    /* Lengths of dense sequences. */
    {'d', {{"seqlens_k", TU_F32, {2}, NULL, 0}}, TU_EDTYPE, "'seqlens_k' must be i32"},
    {'d', {INT("seqlens_k", n4, 1)}, TU_ESIZE, "'seqlens_k' has 1 entries, 'q' 2"},
    {'d', {INT("seqlens_k", n5, 2)}, TU_ESIZE, "'seqlens_k': entry 1 is 5, 'k' has 4"},
    {'d', {INT("seqlens_k", n_neg, 2)}, TU_ESIZE, "'seqlens_k': entry 0 is -1"},
    {'d', {INT("leftpad", n5, 2)}, TU_ESIZE, "'leftpad': entry 1 is 5, 'k' has 4"},
    {'d', {INT("leftpad", n_neg, 2)}, TU_ESIZE, "'leftpad': entry 0 is -1"},
    {'d', {INT("leftpad", n4, 1)}, TU_ESIZE, "'leftpad' has 1 entries"},
    {'d', {INT("leftpad", n1, 2), INT("seqlens_k", n4, 2)}, TU_ESIZE, "'k' has 3 tokens"},
    {'d', {INT("prefix", n4, 1)}, TU_ESIZE, "'prefix' has 1 entries"},
    /* Masks and what is added. */
    {'d',
     {F("mask", S, S), F("bias", S, S)},
     TU_EUSAGE,
     "an additive 'mask' and a 'bias'"},
    {'d',
     {{"mask", TU_BOOL, {S, 3}, mask, 0}},
     TU_ESIZE,
     "'mask' must be [2|1, 4|1, 4|1, 4|1]"},
    {'d', {{"mask", TU_U8, {S}, mask, 0}}, TU_ESIZE, "'mask' must be ["},
    {'d', {F("bias", 3, 1, S, S)}, TU_ESIZE, "'bias' must be [2|1"},
    {'d', {{"bias", TU_I32, {S, S}, NULL, 0}}, TU_EDTYPE, "'bias' is no float"},
    {'d', {{"bias", TU_C64, {S, S}, NULL, 0}}, TU_EDTYPE, "'bias' is no float"},
    {'d', {{"sinks", TU_C128, {H}, NULL, 0}}, TU_EDTYPE, "'sinks' is no float"},
    {'d', {F("block_mask", 2, 2)}, TU_EDTYPE, "'block_mask' must be bool"},
    {'d', {{"block_mask", TU_BOOL, {0, 2}, mask, 2}}, TU_ESIZE, "'block_mask' is empty"},
    {'d', {{"block_mask", TU_BOOL, {2, 0}, mask, 2}}, TU_ESIZE, "'block_mask' is empty"},
    {'d', {{"block_mask", TU_U8, {2}, mask, 0}}, TU_ESIZE, "'block_mask' must be ["},
    {'d', {{"block_mask", TU_BOOL, {3, 3}, mask, 0}}, TU_ESIZE, "'block_mask' must be ["},
    /* Small ones. */
    {'d', {F("alibi_slopes", 3)}, TU_ESIZE, "'alibi_slopes' must be [4]"},
    {'d', {F("alibi_slopes", 2, 3)}, TU_ESIZE, "'alibi_slopes' must be [2, 4]"},
    {'d', {F("alibi_slopes", 1, 4)}, TU_ESIZE, "'alibi_slopes' must be [2, 4]"},
    {'d', {F("sinks", G)}, TU_ESIZE, "'sinks' must be [4]"},
    {'d', {F("sinks", 1, 4)}, TU_ESIZE, "'sinks' must be [4]"},
    {'d', {F("q.scale", B)}, TU_ESIZE, "'q.scale' must be [2, 2]"},
    {'d', {F("v.scale", B, H)}, TU_ESIZE, "'v.scale' must be [2, 2]"},
    {'d', {F("doc_ids", B, S)}, TU_EDTYPE, "'doc_ids' must be i32"},
    {'d', {INT("doc_ids", zero, B, 3)}, TU_ESIZE, "'doc_ids' must be [2, 4]"},
    {'d', {INT("doc_ids", zero, 1, S)}, TU_ESIZE, "'doc_ids' must be [2, 4]"},
    /* What the backward reads. */
    {'d', {F("o", B, S, H, 4)}, TU_ESIZE, "'o' must have the shape of 'q'"},
    {'d', {F("o", S, H, D)}, TU_ESIZE, "'o' must have the shape of 'q'"},
    {'d', {F("do", B, 3, H, D)}, TU_ESIZE, "'do' must have the shape of 'q'"},
    {'d', {{"do", TU_I8, {B, S, H, D}, NULL, 0}}, TU_EDTYPE, "'do' is i8"},
    {'d', {{"lse", TU_F16, {B, H, S}, NULL, 0}}, TU_EDTYPE, "'lse' must be f32"},
    {'d', {{"dlse", TU_F64, {B, H, S}, NULL, 0}}, TU_EDTYPE, "'dlse' must be f32"},
    {'d', {F("lse", B, S, H + 1)}, TU_ESIZE, "'lse' must be [batch, heads, tokens]"},
    {'d', {F("dlse", B, H)}, TU_ESIZE, "'dlse' must be [batch, heads, tokens]"},
    {'p', {F("lse", B, S)}, TU_ESIZE, "'lse' must be [heads, tokens]"},
};

static void refusals(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct kit p;
        struct tu_attn a;
        struct tu_err err = {0};
        base(&p, refused[i].kind);
        for (unsigned e = 0; e < 4 && refused[i].e[e].name; e++)
            put(&p, &refused[i].e[e]);
        int rc = tu_attn_init(&a, &p.opt, p.in, p.n, &err);
        ok(rc == refused[i].code && *err.msg && strstr(err.msg, refused[i].words),
           "%zu: '%s': %s: %s", i, refused[i].words, rc ? tu_err_name(rc) : "accepted",
           err.msg);
        if (!rc)
            tu_attn_release(&a);
    }
}

static void options(void)
{
    static const struct {
        struct tu_attn_opts o;
        const char *words;
    } rows[] = {
        {{.scale = INFINITY, .left = -1, .right = -1}, "--scale must be finite"},
        {{.scale = 1, .left = -2, .right = -1}, "--window"},
        {{.scale = 1, .left = -1, .right = -2}, "--window"},
        {{.scale = 1, .left = -1, .right = -1, .softcap = NAN}, "--softcap"},
        {{.scale = 1, .left = -1, .right = -1, .softcap = -1}, "--softcap"},
        {{.scale = 1, .left = -1, .right = -1, .softcap = INFINITY}, "--softcap"},
        {{.scale = 1, .left = -1, .right = -1, .dropout = 1}, "--dropout"},
        {{.scale = 1, .left = -1, .right = -1, .dropout = -.1}, "--dropout"},
        {{.scale = 1, .left = -1, .right = -1, .dropout = NAN}, "--dropout"},
        {{.scale = 1, .left = -1, .right = -1, .v_from_k = 9}, "--v-from-k 9: 'k' has 8"},
    };
    struct kit p;
    struct tu_attn a;
    struct tu_err err = {0};
    base(&p, 'd');
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        eq_int(tu_attn_init(&a, &rows[i].o, p.in, p.n, &err), TU_EUSAGE, "%s",
               rows[i].words);
        ok(strstr(err.msg, rows[i].words), "%s: %s", rows[i].words, err.msg);
    }
    static const char *const needed[] = {"q", "k", "v"};
    for (unsigned i = 0; i < 3; i++) {
        char words[40];
        base(&p, 'd');
        p.in[i].name = "other";
        snprintf(words, sizeof words, "record '%s' is missing", needed[i]);
        eq_int(tu_attn_init(&a, &p.opt, p.in, p.n, &err), TU_EINCOMPLETE, "no %s",
               needed[i]);
        ok(strstr(err.msg, words), "no %s: %s", needed[i], err.msg);
    }
    base(&p, 'd');
    p.opt.placed = true;
    put(&p, &(struct extra){"mask", TU_BOOL, {S, S}, mask, 0});
    eq_int(tu_attn_init(&a, &p.opt, p.in, p.n, &err), TU_EUSAGE, "a mask and places: %s",
           err.msg);
    ok(strstr(err.msg, "with shard offsets"), "a mask and places: %s", err.msg);
}

/* The same problem in two forms has the same result.
 * -------------------------------------- */

static float o1[B * S * H * D], o2[B * S * H * D], l1[B * S * H], l2[B * S * H];

static int forward(struct kit *p, float *o, float *lse, struct tu_err *err)
{
    struct tu_attn a;
    int rc = tu_attn_init(&a, &p->opt, p->in, p->n, err);
    if (rc)
        return rc;
    memset(o, 0, sizeof o1);
    memset(lse, 0, sizeof l1);
    kit_outputs(&a, o, lse, NULL, NULL, NULL);
    rc = tu_attn_forward(&a, NULL, err);
    tu_attn_release(&a);
    return rc;
}

static void same_as(const char *what, struct kit *p, struct kit *plain)
{
    struct tu_err err = {0};
    int rc = forward(plain, o1, l1, &err), again = forward(p, o2, l2, &err);
    double worst = 0, size = 0;
    for (size_t i = 0; i < sizeof o1 / sizeof *o1; i++) {
        worst = fmax(worst, fabs((double)o1[i] - (double)o2[i]));
        size = fmax(size, fabs((double)o1[i]));
    }
    ok(!rc && !again && worst < 1e-6 && size > .1, "%s: off by %g of %g%s", what, worst,
       size, err.msg);
}

static void forms(void)
{
    static int64_t wide[] = {0, 1, 2, 3}, wide_len[] = {4, 4};
    static double slopes[] = {.5, .25, .125, .0625}, sinks[] = {0, .5, 1, -1};
    static float slopes32[] = {.5f, .25f, .125f, .0625f}, sinks32[] = {0, .5f, 1, -1};
    static float slopes2[] = {.5f, .25f, .125f, .0625f, .5f, .25f, .125f, .0625f};
    static int32_t none[] = {0, 0};
    struct kit p, plain;
    base(&plain, 'd');
    base(&p, 'g');
    put(&p, &(struct extra)INT("block_table", t_ok, 2, 2));
    put(&p, &(struct extra)INT("seqlens_k", n4, 2));
    same_as("a table of pages", &p, &plain);
    put(&p, &(struct extra){"block_table", TU_I64, {2, 2}, wide, 0});
    put(&p, &(struct extra){"seqlens_k", TU_I64, {2}, wide_len, 0});
    same_as("a table in int64", &p, &plain);
    base(&p, 'g');
    put(&p, &(struct extra)INT("kv_indptr", p_ok, 3));
    put(&p, &(struct extra)INT("kv_indices", t_ok, 4));
    put(&p, &(struct extra)INT("kv_last_page_len", n2, 2));
    same_as("lists of pages", &p, &plain);
    put(&p, &(struct extra)INT("kv_last_page_len", n1, 2));
    put(&plain, &(struct extra)INT("seqlens_k", n33, 2));
    same_as("a last page that is half full", &p, &plain);
    base(&p, 'd');
    base(&plain, 'd');
    put(&p, &(struct extra)INT("leftpad", none, 2));
    put(&p, &(struct extra)INT("prefix", none, 2));
    p.opt.placed = true;
    same_as("no padding, no prefix, places from 0", &p, &plain);
    base(&p, 'd');
    p.opt.causal = plain.opt.causal = TU_CAUSAL_TL;
    put(&p, &(struct extra){"alibi_slopes", TU_F64, {H}, slopes, 0});
    put(&p, &(struct extra){"sinks", TU_F64, {H}, sinks, 0});
    put(&plain, &(struct extra){"alibi_slopes", TU_F32, {B, H}, slopes2, 0});
    put(&plain, &(struct extra){"sinks", TU_F32, {H}, sinks32, 0});
    same_as("slopes and sinks in f64, slopes for each sequence", &p, &plain);
    put(&plain, &(struct extra){"alibi_slopes", TU_F32, {H}, slopes32, 0});
    same_as("slopes for all sequences", &p, &plain);
    base(&p, 'd');
    base(&plain, 'd');
    p.opt.v_from_k = D;
    p.n = 2;
    memcpy(v, k, sizeof v);
    same_as("v as columns of k", &p, &plain);
}

/* A prefix lets queries see it before its time: row 0 of a causal problem sees two keys.
 */
static void prefix(void)
{
    struct kit p;
    struct tu_attn a;
    base(&p, 'd');
    p.opt.causal = TU_CAUSAL_BR;
    put(&p, &(struct extra)INT("prefix", prefixes, 2));
    ok(!tu_attn_init(&a, &p.opt, p.in, p.n, NULL), "prefixes");
    eq_u64((uint64_t)tu_attn_pairs(&a), H * (11 + 10),
           "pairs with a prefix of 2, and of none");
    tu_attn_release(&a);
}

static int problem(const void *kit, struct tu_err *err)
{
    const struct kit *p = kit;
    struct tu_attn a;
    int rc = tu_attn_init(&a, &p->opt, p->in, p->n, err);
    if (rc)
        return a.arena ? TU_EBUG : rc;
    tu_attn_release(&a);
    return 0;
}

static void memory(void)
{
    struct kit p;
    static double half[S * S];
    base(&p, 'p');
    put(&p, &(struct extra)INT("cu_seqlens_q", c_ok, 3));
    put(&p, &(struct extra)INT("cu_seqlens_k", c_ok, 3));
    put(&p, &(struct extra){"sinks", TU_F64, {H}, half, 0});
    struct kit g;
    base(&g, 'g');
    put(&g, &(struct extra)INT("block_table", t_ok, 2, 2));
    put(&g, &(struct extra)INT("seqlens_k", n4, 2));
    put(&g, &(struct extra)INT("prefix", n4, 2));
    struct kit d;
    base(&d, 'd');
    d.opt.alibi = true;
    put(&d, &(struct extra)INT("doc_ids", zero, B, S));
    put(&d, &(struct extra){"bias", TU_F64, {S, S}, half, 0});
    struct kit l;
    base(&l, 'g');
    put(&l, &(struct extra)INT("kv_indptr", p_ok, 3));
    put(&l, &(struct extra)INT("kv_indices", t_ok, 4));
    put(&l, &(struct extra)INT("kv_last_page_len", n2, 2));
    struct kit s;
    base(&s, 'd');
    s.opt.placed = true;
    struct kit *all[] = {&p, &g, &d, &l, &s};
    static const char *const names[] = {"paged", "grouped", "dense", "ragged", "placed"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        inject_memory(&(struct inject){.name = names[i], .run = problem, .arg = all[i]});
}

int main(void)
{
    float *x[] = {q, k, v};
    size_t n[] = {sizeof q / sizeof *q, sizeof k / sizeof *k, sizeof v / sizeof *v};
    for (unsigned i = 0; i < 3; i++) {
        struct tu_rng r = {7, i};
        tu_rng_normal(&r, 0, x[i], n[i]);
    }
    memset(mask, 1, sizeof mask);
    refusals();
    options();
    forms();
    prefix();
    memory();
    return tap_done();
}
