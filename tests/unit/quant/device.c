/* SPDX-License-Identifier: Apache-2.0 */
/* Every codec that has kernels: their bytes are the CPU's, over shapes, arguments and values
 * that sit on edges, both ways; pruning and the product of bit planes too. */
#include <math.h>
#include "../gpu.h"
#include "kit.h"
#include "tensorutils/quant/bits.h"
#include "tensorutils/quant/sparse.h"

enum { ROWS_MAX = 40, COLS_MAX = 1024 };

static float x[ROWS_MAX * COLS_MAX];

enum values { NORMAL, ZEROS, TINY, HUGE_VALUES, TIES, MIXED, KINDS };

/* Values of one kind; MIXED has a kind of its own every 16 elements. */
static void fill(enum values kind, size_t n, uint64_t seed)
{
    struct tu_rng r = {seed, 1};
    tu_rng_normal(&r, 0, x, n);
    for (size_t i = 0; i < n; i++) {
        enum values k =
            kind == MIXED ? (enum values)(tu_rng_u32(&r, n + i / 16) % MIXED) : kind;
        if (k == ZEROS)
            x[i] = i % 3 ? 0.0f : -0.0f;
        else if (k == TINY)
            x[i] *= 1e-41f;
        else if (k == HUGE_VALUES)
            x[i] *= 5e37f;
        else if (k == TIES)
            x[i] = rintf(x[i] * 4) / 4;
    }
}

/* Code x on the device, as the command does. */
struct memory {
    const unsigned char *from;
    unsigned char *to;
    size_t in;
};

static int read_memory(void *ctx, void *p, size_t n, struct tu_err *err)
{
    struct memory *m = ctx;
    (void)err;
    memcpy(p, m->from + m->in, n);
    m->in += n;
    return 0;
}

static int write_memory(void *ctx, const void *p, size_t n, struct tu_err *err)
{
    struct memory *m = ctx;
    (void)err;
    memcpy(m->to, p, n);
    m->to += n;
    return 0;
}

static int rewind_memory(void *ctx, struct tu_err *err)
{
    (void)err;
    ((struct memory *)ctx)->in = 0;
    return 0;
}

static int on_device(struct kit *k, bool encode, const void *from, void *to)
{
    struct memory m = {from, to, 0};
    struct tu_flow flow = {&m, read_memory, write_memory, rewind_memory};
    struct tu_coding_run run = {.flow = &flow, .dtype = TU_F32, .device = gpu};
    struct tu_job job = {0};
    struct tu_err err = {0};
    int rc = encode ? tu_coding_encode(&k->c, &run, k->side, &job, &err)
                    : tu_coding_decode(&k->c, &run, (const void *const *)k->side, &job, &err);
    if (rc)
        printf("# %s\n", err.msg);
    return rc;
}

/* One coding of one tensor, both ways; false with a line when bytes differ. */
static bool same_bytes(const char *text, uint64_t rows, uint64_t cols, bool compat)
{
    struct kit cpu = {.c = {.seed = 7, .stream = 3, .compat = compat}}, dev = cpu;
    size_t n = (size_t)(rows * cols);
    bool good = !kit_plan(&cpu, text, rows, cols) && !kit_plan(&dev, text, rows, cols);
    float *y = tu_alloc(n, sizeof *y, NULL), *z = tu_alloc(n, sizeof *z, NULL);
    bool encode = good && tu_coding_on(&cpu.c, gpu, true);
    good = good && tu_coding_on(&cpu.c, gpu, false);
    if (encode) {
        good = good && !kit_encode(&cpu, x) && !on_device(&dev, true, x, dev.code);
        good = good && !memcmp(cpu.code, dev.code, (size_t)cpu.c.code.bytes);
        for (unsigned i = 0; i < cpu.c.sides; i++)
            good = good && !memcmp(cpu.side[i], dev.side[i], (size_t)cpu.c.side[i].bytes);
    } else if (good) {
        good = !kit_encode(&cpu, x);
        memcpy(dev.code, cpu.code, (size_t)cpu.c.code.bytes);
    }
    good = good && !kit_decode(&cpu, y) && !on_device(&dev, false, cpu.code, z);
    for (size_t i = 0; good && i < n; i++)
        good = !memcmp(&y[i], &z[i], 4) || (isnan(y[i]) && isnan(z[i]));
    if (!good)
        printf("# %s, %d x %d %s\n", text, (int)rows, (int)cols, cpu.why);
    tu_free(y);
    tu_free(z);
    kit_free(&cpu);
    kit_free(&dev);
    return good;
}

/* What the CPU refuses, the device does; where the peer writes it, both write the same. */
static bool same(const char *text, uint64_t rows, uint64_t cols)
{
    struct kit cpu = {.c = {.seed = 7, .stream = 3}}, dev = cpu;
    if (kit_plan(&cpu, text, rows, cols) || kit_plan(&dev, text, rows, cols))
        return false;
    bool refused = kit_encode(&cpu, x) == TU_EUNSUP, good = true;
    if (refused && tu_coding_on(&cpu.c, gpu, true))
        good = on_device(&dev, true, x, dev.code) == TU_EUNSUP;
    kit_free(&cpu);
    kit_free(&dev);
    return good && same_bytes(text, rows, cols, refused);
}

static void test_codecs(void)
{
    static const struct {
        const char *text;
        uint64_t step; /* columns are a multiple */
    } row[] = {
        {"q4_0", 32},
        {"q8_0", 32},
        {"q4_k", 256},
        {"nf4", 1},
        {"nf4:block=128", 1},
        {"dyn8:block=256", 1},
        {"dyn8", 1},
        {"fp8", 1},
        {"fp8:elem=e5m2", 1},
        {"fp8_tensor", 1},
        {"fp8_tensor:elem=e5m2", 1},
        {"fp8_channel", 1},
        {"mxfp8", 32},
        {"mxfp8:elem=e5m2,scale=ceil", 32},
        {"mxfp8:scale=even", 32},
        {"mxfp4_packed", 32},
        {"mxfp4_packed:scale=rceil", 32},
        {"nvfp4_packed", 16},
        {"nvfp4_packed:global=modelopt", 16},
        {"int4", 128},
        {"int4:group=32,scale=bf16", 32},
        {"terngrad", 1},
        {"terngrad:clip=2.5", 1},
    };
    static const uint64_t shape[][2] = {{1, 1}, {3, 2}, {2, 3}, {5, 1}, {40, 1}};
    for (unsigned r = 0; r < sizeof row / sizeof *row; r++) {
        unsigned bad = 0, runs = 0;
        for (unsigned s = 0; s < 5; s++)
            for (int kind = 0; kind < KINDS; kind++) {
                uint64_t rows = shape[s][0], cols = row[r].step * shape[s][1];
                if (row[r].step == 1)
                    cols = shape[s][1] * 77;
                fill((enum values)kind, rows * cols, 100 * r + s);
                gpu_backward(runs++ % 2);
                bad += !same(row[r].text, rows, cols);
            }
        ok(!bad, "%s: %u tensors, bytes as the CPU's", row[r].text, runs);
    }
}

/* Arguments that the kernels do not know are the CPU's. */
static void test_refused(void)
{
    static const char *const text[] = {"q5_0",          "nf4:nested",      "fp8:nosat",
                                       "int4:asym",     "fp8_block",       "mxfp6",
                                       "terngrad:pack=base3", "int4:scale=f16", "int8"};
    for (unsigned i = 0; i < sizeof text / sizeof *text; i++) {
        struct kit k = {0};
        ok(!kit_plan(&k, text[i], 2, 256) && !tu_coding_on(&k.c, gpu, true),
           "%s stays on the CPU", text[i]);
        kit_free(&k);
    }
    struct kit k = {0};
    if (!kit_plan(&k, "terngrad", 1, 8)) {
        float y[8];
        memset(k.code, 0xff, 2);
        *(float *)k.side[0] = 1;
        eq_int(on_device(&k, false, k.code, y), TU_EFORMAT, "a code that is no trit");
    }
    kit_free(&k);
}

static void test_prune(void)
{
    enum { N = 4096 };
    static float want[N], got[N];
    unsigned bad = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        fill((enum values)kind, N, 5);
        memcpy(want, x, sizeof want);
        if (tu_prune_nm(want, NULL, 4, N / 4, 2, 4, false, NULL))
            bad++;
        struct tu_kernel_prune a = {gpu_put(x, sizeof got), NULL, N};
        bad += gpu->launch("prune.24", &a, NULL, NULL) != 0;
        gpu_get(got, a.x, sizeof got);
        bad += memcmp(want, got, sizeof got) != 0;
    }
    ok(!bad, "2:4 pruning: what stays is what the CPU keeps");
}

static void test_planes(void)
{
    enum { A = 7, B = 5, N = 150, BITS_A = 3, BITS_B = 4, W = TU_PLANE_WORDS(N) };
    uint8_t code[N];
    uint64_t pa[A * BITS_A * W], pb[B * BITS_B * W];
    float sa[A], sb[B], want[A * B], got[A * B];
    struct tu_rng r = {3, 9};
    for (unsigned i = 0; i < A + B; i++) {
        unsigned bits = i < A ? BITS_A : BITS_B;
        for (unsigned j = 0; j < N; j++)
            code[j] = (uint8_t)(tu_rng_u32(&r, i * N + j) >> (32 - bits));
        tu_planes_pack(code, N, bits,
                       i < A ? pa + i * BITS_A * W : pb + (i - A) * BITS_B * W);
    }
    tu_rng_normal(&r, 5000, sa, A);
    tu_rng_normal(&r, 6000, sb, B);
    tu_planes_product(pa, sa, A, BITS_A, pb, sb, B, BITS_B, N, want);
    struct tu_kernel_planes a = {.a = gpu_put(pa, sizeof pa),
                                 .b = gpu_put(pb, sizeof pb),
                                 .scale_a = gpu_put(sa, sizeof sa),
                                 .scale_b = gpu_put(sb, sizeof sb),
                                 .rows_a = A,
                                 .rows_b = B,
                                 .n = N,
                                 .bits_a = BITS_A,
                                 .bits_b = BITS_B,
                                 .y = gpu_put(NULL, sizeof got)};
    eq_int(gpu->launch("planes.product", &a, NULL, NULL), 0, "planes.product runs");
    gpu_get(got, a.y, sizeof got);
    gpu_get(NULL, (void *)a.a, 0);
    gpu_get(NULL, (void *)a.b, 0);
    gpu_get(NULL, (void *)a.scale_a, 0);
    gpu_get(NULL, (void *)a.scale_b, 0);
    eq_mem(got, want, sizeof got, "the product of bit planes is the CPU's");
}

int main(void)
{
    if (gpu_open()) {
        test_codecs();
        test_refused();
        test_prune();
        test_planes();
    }
    return tap_done();
}
