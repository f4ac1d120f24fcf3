/* SPDX-License-Identifier: Apache-2.0 */
/* codec.c: codecs against their papers' worked figures, lossless ones on every number that
 * there is, token keeping, the loss at the attention output. */
#include <math.h>
#include <stdlib.h>
#include <tensorutils/kv.h>
#include "kv/huffman.h"
#include "kv/split.h"
#include "../tap.h"

static int run(const char *text, const struct tu_kv_array *a, const void *x, void *y,
               uint64_t *bytes, struct tu_err *e)
{
    struct tu_spec s;
    struct tu_kv_coded c = {0};
    int rc = tu_spec_parse(&s, text, e);
    if (rc)
        return rc;
    rc = tu_kv_encode(&s, a, x, &c, e);
    if (!rc && y)
        rc = tu_kv_decode(&s, a, c.part, c.n, y, e);
    *bytes = 0;
    for (unsigned i = 0; i < c.n; i++)
        *bytes += c.part[i].bytes;
    tu_kv_coded_release(&c);
    tu_spec_release(&s);
    return rc;
}

/* Numbers with a skewed exponent, and every bf16 there is. */
static void lossless(void)
{
    static const char *const specs[] = {"split16", "planes", "planes:order=channel", "zlib",
                                        "zstd", "zstd:level=3,order=channel", "lz4",
                                        "zlib:level=1,strategy=default", "zlib:strategy=rle",
                                        "split16:order=channel"};
    static const uint32_t dtypes[] = {TU_BF16, TU_F16, TU_F32, TU_F8_E4M3FN};
    enum { T = 700, H = 2, D = 64, N = T * H * D };
    float *f = malloc(N * sizeof *f);
    unsigned char *x = malloc(N * 4), *y = malloc(N * 4);
    struct tu_rng r = {1, 2};
    struct tu_err e;
    uint64_t bytes;
    tu_rng_normal(&r, 0, f, N);
    for (size_t d = 0; d < 4; d++) {
        const struct tu_dtype *t = tu_dtype_find(dtypes[d]);
        if (tu_cast(dtypes[d], x, TU_F32, f, N, NULL))
            abort();
        for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
            struct tu_kv_array a = {dtypes[d], T, H, D, s % 2, 0};
            if (!strncmp(specs[s], "split16", 7) && dtypes[d] != TU_BF16)
                continue;
            memset(y, 0xee, N * 4);
            int rc = run(specs[s], &a, x, y, &bytes, &e);
            double ratio = (double)N * t->block_bytes / (double)bytes;
            ok(!rc && !memcmp(x, y, (size_t)N * t->block_bytes) &&
                   ratio > (*specs[s] == 'l' ? 0.99 : 1), /* no matches for LZ4 */
               "%s of %s comes back, ratio %.3f", specs[s], t->name, ratio);
            if (dtypes[d] == TU_BF16 && !strcmp(specs[s], "split16"))
                ok(ratio > 1.32, "12 bits and a few");
            if (dtypes[d] == TU_BF16 && !strcmp(specs[s], "planes"))
                ok(ratio > 1.48, "close to the entropy");
        }
    }
    uint16_t *all = (uint16_t *)(void *)x, *back = (uint16_t *)(void *)y;
    for (uint32_t i = 0; i < 65536; i++)
        all[i] = (uint16_t)(i * 40503u);
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        struct tu_kv_array a = {TU_BF16, 1024, 1, 64, true, 0};
        ok(!run(specs[s], &a, all, back, &bytes, &e) && !memcmp(all, back, 131072),
           "%s: every bf16", specs[s]);
        for (uint64_t n = 0; n < 70; n += 7) {
            a.tokens = n;
            a.dim = 1;
            memset(y, 0, 200);
            ok(!run(specs[s], &a, all, back, &bytes, &e) && !memcmp(all, back, 2 * n),
               "%s: %d numbers", specs[s], (int)n);
        }
    }
    free(f);
    free(x);
    free(y);
}

enum { MOST = 5000 };

static const struct tu_kernel *last(const struct tu_kernel *k)
{
    while (k[1].name)
        k++;
    return k;
}

static bool split_same(const struct tu_kernel *k, const uint16_t *x, size_t n,
                       const uint8_t book[16])
{
    static uint8_t code[2][MOST / 2 + 1], rest[2][MOST];
    static struct tui_escape esc[2][MOST];
    size_t a = tui_split_plain(x, n, book, code[0], rest[0], esc[0]);
    size_t b = ((tui_split_fn *)k->fn)(x, n, book, code[1], rest[1], esc[1]);
    bool same = a == b && !memcmp(code[0], code[1], (n + 1) / 2) && !memcmp(rest[0], rest[1], n);
    for (size_t i = 0; same && i < a; i++)
        same = esc[0][i].at == esc[1][i].at && esc[0][i].exponent == esc[1][i].exponent;
    return same;
}

static bool join_same(const struct tu_kernel *k, const uint16_t *x, size_t n,
                      const uint8_t book[16])
{
    static uint8_t code[MOST / 2 + 1], rest[MOST];
    static struct tui_escape esc[MOST];
    static uint16_t y[2][MOST];
    tui_split_plain(x, n, book, code, rest, esc);
    tui_join_plain(y[0], n, book, code, rest);
    ((tui_join_fn *)k->fn)(y[1], n, book, code, rest);
    return !memcmp(y[0], y[1], 2 * n);
}

static bool part_same(const struct tu_kernel *k, const uint16_t *x, size_t n,
                      const uint8_t *bias)
{
    static uint8_t e[2][MOST], rest[2][MOST];
    tui_part_plain(x, n, bias, e[0], rest[0]);
    ((tui_part_fn *)k->fn)(x, n, bias, e[1], rest[1]);
    return !memcmp(e[0], e[1], n) && !memcmp(rest[0], rest[1], n);
}

static bool unite_same(const struct tu_kernel *k, const uint16_t *x, size_t n,
                       const uint8_t *bias)
{
    static uint8_t e[MOST], rest[MOST];
    static uint16_t y[MOST];
    tui_part_plain(x, n, bias, e, rest);
    ((tui_unite_fn *)k->fn)(y, n, bias, e, rest);
    return !memcmp(x, y, 2 * n);
}

/* Code i has `bits` of them; those that are short are used most, long ones are there. */
static bool pack_same(const struct tu_kernel *k, const uint16_t *x, size_t n,
                      const uint8_t *unused)
{
    static uint8_t v[MOST], out[2][2 * MOST];
    uint32_t word[256];
    (void)unused;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t bits = i % 16 < 12 ? 1 + i % 4 : 11;
        word[i] = (i * 2654435761u >> 16 & ((1u << bits) - 1)) << 8 | bits;
    }
    for (size_t i = 0; i < n; i++) /* runs of long ones too: no eight of them fit */
        v[i] = i / 64 % 5 ? (uint8_t)(x[i] * 40503u >> 8) : 15;
    size_t a = tui_pack_plain(v, n, word, out[0]);
    size_t b = ((tui_pack_fn *)k->fn)(v, n, word, out[1]);
    return a == b && !memcmp(out[0], out[1], a);
}

/* Fast rows give the plain ones' bytes. */
static void kernels(void)
{
    static const struct {
        const char *name;
        const struct tu_kernel *row;
        bool (*same)(const struct tu_kernel *, const uint16_t *, size_t, const uint8_t *);
    } table[] = {{"split", tui_split_kernels, split_same}, {"join", tui_join_kernels, join_same},
                 {"part", tui_part_kernels, part_same}, {"unite", tui_unite_kernels, unite_same},
                 {"pack", tui_pack_kernels, pack_same}};
    static uint16_t x[MOST];
    static uint8_t bias[MOST];
    for (int i = 0; i < MOST; i++) {
        x[i] = (uint16_t)((i * 2654435761u >> 16 & 0x807f) | (uint32_t)(110 + i * 7 % 23) << 7);
        bias[i] = (uint8_t)(i * 37);
    }
    for (int i = 0; i < 16; i++) /* entries that are there twice have the lower code */
        bias[i] = (uint8_t)(112 + (i == 9 ? 2 : i));
    for (size_t t = 0; t < sizeof table / sizeof *table; t++) {
        ok(!strcmp(last(table[t].row)->name, "plain"), "%s: the last row is plain", table[t].name);
        for (const struct tu_kernel *k = table[t].row; k->name; k++) {
            if (k->needs & ~tu_cpu_bits()) {
                tap_skip(k->name, "this CPU lacks it");
                continue;
            }
            bool same = true;
            for (size_t n = 0; n < MOST && same; n = n * 3 / 2 + 1)
                same = table[t].same(k, x, n, bias);
            ok(same, "%s, %s: the same bytes", table[t].name, k->name);
        }
    }
}

/* Exponents whose code is none, one bit for all, or longer than the limit allows. */
static void huffman(const char *isa)
{
    enum { M = 60000 };
    static uint8_t x[M], y[M], out[3 * M];
    for (int c = 0; c < 4; c++) {
        uint32_t a = 1, b = 1, at = 0;
        memset(x, 77, sizeof x);
        for (int v = 0; c > 1 && v < 22; v++) { /* Fibonacci's numbers make the longest codes */
            for (uint32_t i = 0; i < a && at < M; i++)
                x[at++ * 7919u % M] = (uint8_t)(c == 2 ? v : v * 11);
            b += a;
            a = b - a;
        }
        x[5] = c == 1 ? 78 : x[5];
        size_t size = tui_huff_encode(x, M, out);
        ok(size && size < M && tui_huff_decode(out, size, y, M) && !memcmp(x, y, M),
           "%s, case %d: %u of %u bytes", isa, c, (unsigned)size, (unsigned)M);
    }
}

/* Codes that were damaged are refused or decode to something, never past the ends. */
static void damaged(void)
{
    static const char *const specs[] = {"split16", "planes", "zlib", "zstd", "lz4", "kivi:group=4,residual=4",
                                        "cachegen", "kv4:group=8", "bfp:block=8"};
    enum { T = 24, D = 16 };
    uint16_t x[T * D], y[T * D];
    struct tu_err e;
    for (int i = 0; i < T * D; i++)
        x[i] = tu_to_bf16((float)sin(i * 0.7));
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        struct tu_kv_array a = {TU_BF16, T, 1, D, false, 0};
        struct tu_spec spec;
        struct tu_kv_coded c;
        if (tu_spec_parse(&spec, specs[s], &e) || tu_kv_encode(&spec, &a, x, &c, &e))
            abort();
        uint64_t n = c.part[0].bytes;
        unsigned refused = 0;
        for (uint64_t at = 0; at < n; at++) {
            ((unsigned char *)c.part[0].data)[at] ^= (unsigned char)(1u << at % 8);
            refused += tu_kv_decode(&spec, &a, c.part, c.n, y, &e) != 0;
            ((unsigned char *)c.part[0].data)[at] ^= (unsigned char)(1u << at % 8);
        }
        for (uint64_t cut = 0; cut < n; cut++) {
            c.part[0].bytes = cut;
            refused += tu_kv_decode(&spec, &a, c.part, c.n, y, &e) != 0;
        }
        ok(refused >= n, "%s: %u of %u refused, none past the ends", specs[s], refused,
           (unsigned)(2 * n));
        c.part[0].bytes = n;
        tu_kv_coded_release(&c);
        tu_spec_release(&spec);
    }
}

static double mse(const float *a, const float *b, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return s / n;
}

static const float K[16] = {1, -8, .25f, 2, 1.5f, -7, .5f, -2, .5f, -9, 0, 1, 2, -6, .75f, 0};
static const float V[16] = {1, 0, 2, -1, 0, 1, -2, 1, 1, 1, 0, 0, 2, -1, 1, .5f};

static void kivi(void)
{
    float k[16];
    struct tu_err e;
    uint64_t bytes;
    struct tu_kv_array a = {TU_F32, 4, 1, 4, false, 0};
    ok(!run("kivi:bits=2,group=4,residual=4", &a, K, k, &bytes, &e), "keys by channel");
    ok(fabs(mse(K, k, 16) - 0.0347222) < 1e-4, "MSE %.7f", mse(K, k, 16));
    struct tu_kv_loss l;
    float q[4] = {.5f, .25f, -1, .1f};
    ok(!tu_kv_loss(&l, 4, 4, 4, K, V, k, V, q, 1, .5, NULL), "loss");
    ok(fabs(l.out_rel - 0.0172495851) < 2e-4 && fabs(l.kl - 1.74651845e-4) < 5e-6,
       "output %.9f, KL %.9g", l.out_rel, l.kl);
    /* The same groups along tokens are what values get. */
    a.value = true;
    a.tokens = 8;
    float two[32], back[32];
    memcpy(two, K, sizeof K);
    memcpy(two + 16, K, sizeof K);
    ok(!run("kivi:bits=2,group=4,residual=4", &a, two, back, &bytes, &e), "by token");
    ok(fabs(mse(two, back, 16) - 0.5130208) < 2e-3, "MSE %.7f", mse(two, back, 16));
    ok(!memcmp(two + 16, back + 16, 64), "the last R tokens are whole");
    ok(!tu_kv_loss(&l, 4, 4, 4, K, V, back, V, q, 1, .5, NULL) &&
           fabs(l.out_rel - 0.848921102) < 3e-3 && fabs(l.kl - 0.276256673) < 3e-3,
       "by token: output %.6f, KL %.6f", l.out_rel, l.kl);
    /* Sizes, 32 heads of 128 columns, 32 layers, keys and values. */
    static const struct {
        const char *spec;
        uint64_t tokens, want;
    } sizes[] = {
        {"kivi:bits=2,group=32,residual=128", 4096, 429916160},
        {"kivi:bits=2,group=32,residual=32", 4096, 409468928},
        {"kivi:bits=4,group=32,residual=128", 4096, 694157312},
        {"kivi", 100, 52428800},
        {"kivi", 129, 40157184},
        {"kivi", 1000, 147718144},
    };
    uint16_t *x = calloc(4096 * 4096, sizeof *x);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t sum = 0;
        /* A quarter of the heads are a quarter of the bytes. */
        for (int side = 0; side < 2; side++) {
            struct tu_kv_array b = {TU_F16, sizes[i].tokens, 8, 128, side, 0};
            if (run(sizes[i].spec, &b, x, NULL, &bytes, &e))
                printf("# %s\n", e.msg);
            sum += bytes;
        }
        eq_u64(sum * 4 * 32, sizes[i].want, "%s of %d tokens", sizes[i].spec,
               (int)sizes[i].tokens);
    }
    free(x);
}

static void bfp(void)
{
    static const float x[8] = {.5f, 7, -.25f, .75f, -6, .125f, -.5f, 5};
    float y[8] = {0};
    struct tu_err e;
    uint64_t bytes;
    struct tu_kv_array a = {TU_F32, 1, 1, 8, false, 0};
    ok(!run("bfp:bits=4,block=4,order=none", &a, x, y, &bytes, &e) &&
           fabs(mse(x, y, 8) * 8 - 0.640625) < 1e-6, "as they are: %g", mse(x, y, 8) * 8);
    ok(!run("bfp:bits=4,block=4", &a, x, y, &bytes, &e) &&
           fabs(mse(x, y, 8) * 8 - 0.0625) < 1e-6, "by norm: %g", mse(x, y, 8) * 8);
}

static void others(void)
{
    static const char *const specs[] = {"kv4", "kv4:group=32", "fp8", "fp8_tensor",
                                        "fp8:elem=e5m2", "fmpq", "cachegen", "cachegen:delta=8",
                                        "bfp", "kivi:bits=8,group=32,residual=32"};
    enum { T = 96, H = 3, D = 64, N = T * H * D };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    struct tu_rng r = {3, 4};
    struct tu_err e;
    uint64_t bytes;
    tu_rng_normal(&r, 0, x, N);
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        for (int side = 0; side < 2; side++) {
            struct tu_kv_array a = {TU_F32, T, H, D, side, 0};
            e.msg[0] = 0;
            int rc = run(specs[s], &a, x, y, &bytes, &e);
            ok(!rc && mse(x, y, N) < 0.02 && bytes < N * 3, "%s: MSE %.5f, %d bytes %s",
               specs[s], rc ? 0 : mse(x, y, N), (int)bytes, e.msg);
        }
    x[777] = NAN;
    struct tu_kv_array a = {TU_F32, T, H, D, false, 0};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        eq_int(run(specs[s], &a, x, y, &bytes, &e), TU_EUSAGE, "%s: NaN: %s", specs[s], e.msg);
    free(x);
    free(y);
}

static void keep_is(const char *method, uint64_t T, uint64_t kept, const float *k,
                    uint64_t cols, const float *attn, uint64_t queries, const uint64_t *want)
{
    struct tu_spec s;
    uint64_t keep[16];
    struct tu_err e = {0};
    if (tu_spec_parse(&s, method, &e))
        abort();
    int rc = tu_kv_keep(&s, T, kept, k, 1, cols, attn, queries, keep, &e);
    ok(!rc && !memcmp(keep, want, kept * sizeof *keep), "%s %s", method, e.msg);
    tu_spec_release(&s);
}

static void keep(void)
{
    static const float norms[] = {5, 1, 2, 10, 1.414f, .5f, 2.828f, 13};
    static const float a[] = {1, 0, 0, 0, .5f, .5f, 0, 0, .2f, .2f, .6f, 0, .4f, .1f, .1f, .4f};
    static const float last[] = {.1f, .3f, .05f, .05f, .2f, .1f, .2f, 0,
                                 .05f, .4f, .05f, .1f, .1f, .1f, .1f, .1f};
    keep_is("streaming:sinks=2", 8, 4, norms, 1, NULL, 0, (uint64_t[]){0, 1, 6, 7});
    keep_is("knorm", 8, 4, norms, 1, NULL, 0, (uint64_t[]){1, 2, 4, 5});
    keep_is("h2o", 4, 2, norms, 1, a, 4, (uint64_t[]){0, 1});
    keep_is("h2o:mean", 4, 2, norms, 1, a, 4, (uint64_t[]){0, 3});
    keep_is("snapkv:window=2,pool=3", 8, 4, norms, 1, last, 2, (uint64_t[]){1, 2, 6, 7});
    struct tu_spec s;
    struct tu_err e;
    uint64_t out[4];
    if (tu_spec_parse(&s, "snapkv", &e))
        abort();
    eq_int(tu_kv_keep(&s, 8, 4, norms, 1, 1, NULL, 0, out, &e), TU_EUSAGE, "no attention");
    tu_spec_release(&s);
}

/* The loss's own softmax against the attention room's reference. */
static void attention(void)
{
    enum { T = 9, D = 4 };
    float k[T * D], v[T * D], q[D], o[D];
    struct tu_rng r = {5, 6};
    tu_rng_normal(&r, 0, k, T * D);
    tu_rng_normal(&r, 100, v, T * D);
    tu_rng_normal(&r, 200, q, D);
    struct tu_operand op[] = {{"q", TU_F32, 4, {1, 1, 1, D}, q},
                              {"k", TU_F32, 4, {1, T, 1, D}, k},
                              {"v", TU_F32, 4, {1, T, 1, D}, v},
                              {"o", TU_F32, 4, {1, 1, 1, D}, o}};
    struct tu_attn_opts opt;
    struct tu_attn a;
    struct tu_kv_loss l;
    tu_attn_opts_init(&opt);
    ok(!tu_attn_init(&a, &opt, op, 4, NULL) && !tu_attn_forward_ref(&a, NULL, NULL),
       "reference attention");
    tu_attn_release(&a);
    /* Against values that are all the reference's output, the loss is that of the weights. */
    float flat[T * D];
    for (int i = 0; i < T * D; i++)
        flat[i] = o[i % D];
    ok(!tu_kv_loss(&l, T, D, D, k, v, k, flat, q, 1, 0.5, NULL) && l.out_rel < 1e-6,
       "the same output: %g", l.out_rel);
}

int main(void)
{
    lossless();
    kernels();
    damaged();
    kivi();
    bfp();
    others();
    keep();
    attention();
    static const char *const isa[] = {NULL, "avx2", "scalar"}; /* what is narrowed stays so */
    for (int i = 0; i < 3; i++) {
        struct tu_err e;
        if (isa[i] && tu_cpu_narrow(isa[i], &e))
            tap_skip(isa[i], "this CPU lacks it");
        else
            huffman(isa[i] ? isa[i] : "native");
    }
    return tap_done();
}
