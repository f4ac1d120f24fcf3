/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c: times the kernels of a device with its events, beside ceilings measured in the same
 * run: a copy of the device's memory and, where libcublas is, a bf16 product of matrices. One
 * JSON object per line: kernel, what it moves or computes, the ceiling, their ratio and the
 * goal. Correctness is the unit tests' affair; these are their kernels. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include "../unit/gpu.h"

enum { REPS = 20 };

static double copy_gbs, gemm_tflops;

static void stop(const char *what, const struct tu_err *err)
{
    fprintf(stderr, "bench: %s: %s\n", what, err->msg);
    exit(4);
}

/* Seconds of one call: the least of REPS, after three that do not count. */
static double seconds(int (*call)(void *ctx, struct tu_err *err), void *ctx)
{
    struct tu_event *a, *b;
    struct tu_err err = {0};
    double best = INFINITY, s;
    if (gpu->event_new(&a, &err) || gpu->event_new(&b, &err))
        stop("event", &err);
    for (int i = -3; i < REPS; i++) {
        if (gpu->event_record(a, NULL, &err) || call(ctx, &err) ||
            gpu->event_record(b, NULL, &err) || gpu->event_seconds(&s, a, b, &err))
            stop("kernel", &err);
        if (i >= 0 && s < best)
            best = s;
    }
    gpu->event_free(a);
    gpu->event_free(b);
    return best;
}

static void *memory(uint64_t bytes)
{
    struct tu_err err = {0};
    void *p;
    if (gpu->alloc(&p, bytes, &err))
        stop("memory", &err);
    return p;
}

/* Normal numbers of a dtype, the first 64 Ki repeated. */
static void *normals(uint32_t dtype, uint64_t n)
{
    enum { PART = 65536 };
    static float wide[PART];
    static unsigned char part[PART * 4];
    struct tu_rng r = {(uint64_t)(tu_clock() * 1e6), 1};
    uint64_t elem = tu_dtype_find(dtype)->block_bytes;
    unsigned char *p = memory(n * elem);
    struct tu_err err = {0};
    tu_rng_normal(&r, 0, wide, PART);
    if (tu_cast(dtype, part, TU_F32, wide, PART, &err))
        stop("cast", &err);
    for (uint64_t i = 0; i < n; i += PART)
        if (gpu->copy(p + i * elem, part, tu_min(PART, n - i) * elem, NULL, &err))
            stop("copy", &err);
    return p;
}

static void tell(const char *kernel, const char *unit, double value, double ceiling, double goal)
{
    printf("{\"kernel\":\"%s\",\"%s\":%.4g,\"ceiling\":%.4g,\"ratio\":%.3f,\"goal\":%.2f}\n", kernel,
           unit, value, ceiling, ceiling > 0 ? value / ceiling : 0, goal);
    fflush(stdout);
}

/* Ceilings ----------------------------------------------------------------------------- */

struct copy {
    void *to, *from;
    uint64_t n;
};

static int copy_once(void *ctx, struct tu_err *err)
{
    struct copy *c = ctx;
    return gpu->copy(c->to, c->from, c->n, NULL, err);
}

/* cublasGemmEx by its documented signature: bf16 in, f32 out and inside. */
typedef int (*gemm_fn)(void *h, int ta, int tb, int m, int n, int k, const void *alpha,
                       const void *a, int at, int lda, const void *b, int bt, int ldb,
                       const void *beta, void *c, int ct, int ldc, int compute, int algo);
struct gemm {
    gemm_fn fn;
    void *handle, *a, *b, *c;
    int n;
};

static int gemm_once(void *ctx, struct tu_err *err)
{
    enum { OP_T = 1, OP_N = 0, R_16BF = 14, R_32F = 0, COMPUTE_32F = 68, DEFAULT = -1 };
    const struct gemm *g = ctx;
    const float one = 1, zero = 0;
    int e = g->fn(g->handle, OP_T, OP_N, g->n, g->n, g->n, &one, g->a, R_16BF, g->n, g->b, R_16BF,
                  g->n, &zero, g->c, R_32F, g->n, COMPUTE_32F, DEFAULT);
    return e ? tu_fail(err, TU_EIO, "cublasGemmEx: status %d", e) : 0;
}

static void ceilings(void)
{
    struct copy c = {memory((uint64_t)1 << 30), memory((uint64_t)1 << 30), (uint64_t)1 << 30};
    copy_gbs = 2 * (double)c.n / seconds(copy_once, &c) / 1e9;
    gpu->free(c.to);
    gpu->free(c.from);
    tell("copy", "gbs", copy_gbs, copy_gbs, 1);
    static const char *const name[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    void *lib = NULL;
    for (int i = 0; i < 3 && !lib; i++)
        lib = dlopen(name[i], RTLD_NOW);
    int (*create)(void **) = NULL;
    struct gemm g = {.n = 8192};
    if (lib) {
        *(void **)&create = dlsym(lib, "cublasCreate_v2");
        *(void **)&g.fn = dlsym(lib, "cublasGemmEx");
    }
    if (!create || !g.fn || create(&g.handle)) {
        fprintf(stderr, "bench: no libcublas: no ceiling for attention\n");
        return;
    }
    uint64_t n = (uint64_t)g.n * (uint64_t)g.n;
    g.a = normals(TU_BF16, n);
    g.b = normals(TU_BF16, n);
    g.c = memory(4 * n);
    gemm_tflops = 2 * pow(g.n, 3) / seconds(gemm_once, &g) / 1e12;
    tell("gemm.bf16", "tflops", gemm_tflops, gemm_tflops, 1);
    gpu->free(g.a);
    gpu->free(g.b);
    gpu->free(g.c);
}

/* Kernels ------------------------------------------------------------------------------ */

struct call {
    const char *kernel;
    const void *args;
};

static int launch_once(void *ctx, struct tu_err *err)
{
    const struct call *c = ctx;
    return gpu->launch(c->kernel, c->args, NULL, err);
}

/* Bytes of x, codes and scales that a codec moves, per element. */
static void codecs(void)
{
    static const struct {
        const char *name;
        double bytes;
        uint32_t block, small;
    } row[] = {{"q4_0", 4.5 / 8, 0, 0},
               {"q8_0", 8.5 / 8, 0, 0},
               {"q4_k", 4.5 / 8, 0, 0},
               {"nf4", 0.5 + 4 / 64.0, 64, 0},
               {"dyn8", 1 + 4 / 4096.0, 4096, 0},
               {"fp8", 1, 0, TU_F8_E4M3FN},
               {"fp8_channel", 1, 0, TU_F8_E4M3FN},
               {"mxfp8", 1 + 1 / 32.0, 0, TU_F8_E4M3FN},
               {"mxfp4_packed", 0.5 + 1 / 32.0, 0, TU_F4_E2M1},
               {"nvfp4_packed", 0.5 + 1 / 16.0, 0, 0},
               {"int4", 0.5 + 4 / 128.0, 128, 0},
               {"terngrad", 0.25, 0, 0}};
    uint64_t n = (uint64_t)1 << 28;
    float book[256];
    for (unsigned i = 0; i < 256; i++)
        book[i] = (float)i / 128 - 1;
    struct tu_kernel_code k = {.n = n, .cols = 8192, .words = 1024, .rule = 0, .unit = 1};
    k.x = normals(TU_F32, n);
    k.code = memory(2 * n);
    k.scale = memory(n);
    k.scale8 = k.scale16 = (unsigned char *)k.scale;
    k.book = gpu_put(book, sizeof book);
    k.bad = memory(4);
    k.global = 1;
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++)
        for (int back = 0; back < 2; back++) {
            char name[48];
            snprintf(name, sizeof name, "%s.%s", back ? "decode" : "encode", row[i].name);
            k.block = row[i].block;
            k.small = row[i].small;
            k.rule = row[i].block == 128 ? TU_F32 : 0;
            struct call c = {name, &k};
            if (gpu->has(name))
                tell(name, "gbs", (double)n * (4 + row[i].bytes) / seconds(launch_once, &c) / 1e9,
                     copy_gbs, 0.85);
        }
    gpu->free(k.x);
    gpu->free(k.code);
    gpu->free(k.scale);
    gpu->free((void *)k.book);
    gpu->free(k.bad);
}

/* Attention of b sequences of s tokens, h heads of d, bf16, [b, s, h, d]. */
static void attention(uint64_t d, bool causal)
{
    uint64_t s = 8192, h = 2048 / d, b = 2, n = b * s * h * d;
    struct tu_kernel_seq seq[2] = {{.sq = s, .sk = s}, {.sq = s, .sk = s}};
    seq[1].q_batch = seq[1].k_batch = 1;
    seq[1].lse_at = h * s;
    struct tu_kernel_rows r = {NULL, TU_BF16, 2, (int64_t)(s * h * d), (int64_t)(h * d), (int64_t)d};
    struct tu_kernel_attn a = {.q = r, .k = r, .v = r, .o = r, .batch = b, .hq = h, .hkv = h,
                               .d = d, .dv = d, .sq_max = s, .sk_max = s, .lse_head = s,
                               .scale = 1 / sqrtf((float)d), .left = -1, .right = -1,
                               .causal = causal, .splits = 1};
    a.q.data = normals(TU_BF16, n);
    a.k.data = normals(TU_BF16, n);
    a.v.data = normals(TU_BF16, n);
    a.o.data = memory(2 * n);
    a.lse = memory(4 * b * h * s);
    a.seq = gpu_put(seq, sizeof seq);
    char name[64];
    struct call c = {"attn.forward.mma", &a};
    double flops = 4.0 * (double)(b * h) * (double)s * (double)s * (double)d * (causal ? 0.5 : 1);
    snprintf(name, sizeof name, "attn.forward.mma bf16 d=%d%s", (int)d, causal ? " causal" : "");
    tell(name, "tflops", flops / seconds(launch_once, &c) / 1e12, gemm_tflops, 0.7);
    gpu->free(a.q.data);
    gpu->free(a.k.data);
    gpu->free(a.v.data);
    gpu->free(a.o.data);
    gpu->free(a.lse);
    gpu->free((void *)a.seq);
}

/* One query against a cache of s keys: what is read, beside the copy. */
static void decode(void)
{
    enum { B = 16, S = 16384, HQ = 32, HKV = 8, D = 128 };
    uint64_t n = (uint64_t)B * S * HKV * D;
    struct tu_kernel_seq seq[B];
    for (unsigned b = 0; b < B; b++)
        seq[b] = (struct tu_kernel_seq){.q_batch = b, .sq = 1, .k_batch = b, .sk = S, .lse_at = b * HQ,
                                        .off = S - 1};
    struct tu_kernel_rows q = {NULL, TU_BF16, 2, HQ * D, HQ * D, D},
                          kv = {NULL, TU_BF16, 2, (int64_t)S * HKV * D, HKV * D, D};
    struct tu_kernel_attn a = {.q = q, .k = kv, .v = kv, .o = q, .batch = B, .hq = HQ, .hkv = HKV,
                               .d = D, .dv = D, .sq_max = 1, .sk_max = S, .lse_head = 1,
                               .scale = 0.088f, .left = -1, .right = -1, .splits = 4};
    a.q.data = normals(TU_BF16, B * HQ * D);
    a.k.data = normals(TU_BF16, n);
    a.v.data = normals(TU_BF16, n);
    a.o.data = memory(2 * B * HQ * D);
    a.lse = memory(4 * B * HQ);
    a.o_part = memory(4 * 4 * B * HQ * D);
    a.lse_part = memory(4 * 4 * B * HQ);
    a.seq = gpu_put(seq, sizeof seq);
    struct call c = {"attn.forward.mma", &a};
    tell("attn.forward.mma bf16 decode", "gbs", 4.0 * (double)n / seconds(launch_once, &c) / 1e9,
         copy_gbs, 0.85);
    gpu->free(a.q.data);
    gpu->free(a.k.data);
    gpu->free(a.v.data);
    gpu->free(a.o.data);
    gpu->free(a.lse);
    gpu->free(a.o_part);
    gpu->free(a.lse_part);
    gpu->free((void *)a.seq);
}

int main(void)
{
    if (!gpu_open() || gpu_emulated())
        return 4;
    ceilings();
    codecs();
    for (int causal = 0; causal < 2; causal++)
        for (uint64_t d = 64; d <= 256; d *= 2)
            attention(d, causal);
    decode();
    return 0;
}
