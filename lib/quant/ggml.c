/* SPDX-License-Identifier: Apache-2.0 */
/* ggml.c: the family of ggml's block formats: rows of codecs over the kernels of each
 * format.
 *
 * A block never crosses a row. With an importance matrix a row is coded at a time, since
 * some formats weigh by its mean square. */
#include <inttypes.h>
#include <math.h>
#include "families.h"
#include "ggml.h"
#include "tensorutils/device/kernels.h"

struct format {
    uint32_t dtype;
    const struct tu_kernel *encode, *weighted, *decode; /* NULL: none */
    unsigned scale_at, scales; /* where a block has its f16 scale and minimum */
};

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    (void)spec;
    const struct format *f = c->codec->format;
    const struct tu_dtype *t = tu_dtype_find(f->dtype);
    if (c->cols % t->block_elems)
        return tu_fail(err, TU_EUSAGE, "codec '%s': last dimension %" PRIu64
                       " is no multiple of %u", c->codec->name, c->cols, t->block_elems);
    if (c->rank == 0)
        return tu_fail(err, TU_EUSAGE, "codec '%s': a scalar has no blocks", c->codec->name);
    c->code = (struct tu_part){.dtype = f->dtype, .rank = c->rank};
    memcpy(c->code.dim, c->dim, c->rank * sizeof *c->dim);
    bool row = c->importance && f->weighted;
    c->atom = row ? tu_max(c->cols, 1) : t->block_elems;
    c->code.atom_bytes = c->atom / t->block_elems * t->block_bytes;
    return 0;
}

/* Finite values under a scale that f16 cannot hold would come back as infinite or NaN; the
 * peer writes such blocks. */
static int check(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                 const void *codes, struct tu_err *err)
{
    const struct format *f = c->codec->format;
    const unsigned char *code = codes;
    const struct tu_dtype *t = tu_dtype_find(f->dtype);
    const size_t block = t->block_elems;
    for (size_t i = 0; !c->compat && f->scales && i < n; i += block, code += t->block_bytes) {
        bool beyond = false, finite = true;
        for (unsigned k = 0; k < f->scales; k++)
            beyond |= (tu_le16(code + f->scale_at + 2 * k) & 0x7c00) == 0x7c00;
        for (size_t k = i; beyond && k < i + block; k++)
            finite &= isfinite(x[k]) != 0;
        if (beyond && finite)
            return tu_fail(err, TU_EUNSUP,
                           "row %" PRIu64 ", columns from %" PRIu64
                           ": too large for %s, whose scales are f16",
                           (first + i) / c->cols, (first + i) % c->cols, c->codec->name);
    }
    return 0;
}

/* NVFP4's scales have no exponent of a tensor above them: 448 is the largest, and what would round
 * to more is lost. */
static int check_nvfp4(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                       struct tu_err *err)
{
    for (size_t i = 0; !c->compat && i < n; i++)
        if (fabsf(x[i]) > 464 * 6 && isfinite(x[i]))
            return tu_fail(err, TU_EUNSUP,
                           "row %" PRIu64 ", columns from %" PRIu64
                           ": too large for nvfp4, whose scales end at 448",
                           (first + i) / c->cols, (first + i) % c->cols / 64 * 64);
    return 0;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x, void *code,
                  void *const *side, struct tu_err *err)
{
    (void)side;
    const struct format *f = c->codec->format;
    const struct tu_dtype *t = tu_dtype_find(f->dtype);
    struct tui_blocks b = {.x = x, .out = code, .n = n / t->block_elems, .compat = c->compat};
    bool weighted = c->importance && f->weighted;
    const struct tu_kernel *k = tu_kernel_pick(weighted ? f->weighted : f->encode, c->cpu);
    b.weight = weighted ? c->importance : NULL;
    if (weighted)
        b.n = (size_t)c->cols / t->block_elems;
    else
        ((tui_encode_fn)k->fn)(&b);
    for (size_t left = weighted ? n : 0; left >= c->cols && left; left -= (size_t)c->cols) {
        b.mean_sq = tui_sum_sq(b.x, (unsigned)c->cols) / (float)c->cols;
        ((tui_encode_fn)k->fn)(&b);
        b.x += c->cols;
        b.out += b.n * t->block_bytes;
    }
    return f->dtype == TU_NVFP4 ? check_nvfp4(c, first, n, x, err)
                                : check(c, first, n, x, code, err);
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)side;
    (void)err;
    const struct format *f = c->codec->format;
    const struct tu_kernel *k = tu_kernel_pick(f->decode, c->cpu);
    ((tui_decode_fn)k->fn)(code, x, n / tu_dtype_find(f->dtype)->block_elems);
    return 0;
}

/* Blocks are all that a kernel needs; importance is the CPU's. */
static bool kernel(const struct tu_coding *c, bool encode, const void *const *side,
                   struct tu_kernel_code *k)
{
    (void)side;
    (void)k;
    return !encode || !c->importance;
}

/* Rows ------------------------------------------------------------------------------- */

/* Kernels, best first. */
#define END {NULL, 0, NULL}
#define PLAIN(fn) {"plain", 0, (tu_kernel_fn)fn}, END
#if defined __x86_64__ && !defined TU_NO_X86
#define LANES(fn)                                                                         \
    {"avx512", TU_CPU_GROUP_AVX512, (tu_kernel_fn)fn##_avx512},                           \
        {"avx2", TU_CPU_GROUP_AVX2, (tu_kernel_fn)fn##_avx2}, PLAIN(fn)
#else
#define LANES(fn) PLAIN(fn)
#endif

/* X(name, DTYPE, flags, kernels, offset and number of f16 scales, bits per weight, help) */
#define WEIGHTED TU_CODEC_WEIGHTED
#define ENCODED_TABLE(X)                                                                   \
    X(q8_0, Q8_0, 0, LANES, 0, 1, "8.5", "a scale per 32")                                       \
    X(q6_k, Q6_K, WEIGHTED, LANES, 208, 1, "6.5625", "a scale per 16, of 8 bits")                \
    X(q5_k, Q5_K, WEIGHTED, LANES, 0, 2, "5.5", "scale and minimum per 32, of 6 bits")           \
    X(q4_k, Q4_K, WEIGHTED, LANES, 0, 2, "4.5", "scale and minimum per 32, of 6 bits")           \
    X(q3_k, Q3_K, WEIGHTED, LANES, 108, 1, "3.4375", "a scale per 16, of 6 bits")                \
    X(q2_k, Q2_K, WEIGHTED, LANES, 80, 2, "2.625", "scale and minimum per 16, of 4 bits")        \
    X(q5_1, Q5_1, WEIGHTED, LANES, 0, 2, "6", "scale and minimum per 32")                        \
    X(q5_0, Q5_0, WEIGHTED, LANES, 0, 1, "5.5", "a scale per 32")                                \
    X(q4_1, Q4_1, WEIGHTED, LANES, 0, 2, "5", "scale and minimum per 32")                        \
    X(q4_0, Q4_0, WEIGHTED, LANES, 0, 1, "4.5", "a scale per 32")                                \
    X(iq4_nl, IQ4_NL, WEIGHTED, LANES, 0, 1, "4.5", "uneven steps, a scale per 32")              \
    X(iq4_xs, IQ4_XS, WEIGHTED, LANES, 0, 1, "4.25", "uneven steps, a scale per 32, of 6 bits")  \
    X(mxfp4, MXFP4, 0, LANES, 0, 0, "4.25", "E2M1, a power of two per 32")                       \
    X(nvfp4, NVFP4, 0, LANES, 0, 0, "4.5", "E2M1, an E4M3 scale per 16")                         \
    X(q2_0, Q2_0, 0, PLAIN, 0, 1, "2.25", "three values, a scale per 64")                        \
    X(tq2_0, TQ2_0, 0, LANES, 64, 1, "2.0625", "ternary in two bits, a scale per 256")           \
    X(tq1_0, TQ1_0, 0, LANES, 52, 1, "1.6875", "ternary, five in a byte, a scale per 256")       \
    X(q1_0, Q1_0, 0, PLAIN, 0, 1, "1.125", "signs, a scale per 128")
#define DECODED_TABLE(X)                                                                   \
    X(iq3_s, IQ3_S, 0, PLAIN, 0, 0, "3.4375", "lattice of 4, decoding only")                     \
    X(iq3_xxs, IQ3_XXS, 0, PLAIN, 0, 0, "3.0625", "lattice of 4, decoding only")                 \
    X(iq2_s, IQ2_S, 0, PLAIN, 0, 0, "2.5625", "lattice of 8, decoding only")                     \
    X(iq2_xs, IQ2_XS, 0, PLAIN, 0, 0, "2.3125", "lattice of 8, decoding only")                   \
    X(iq2_xxs, IQ2_XXS, 0, PLAIN, 0, 0, "2.0625", "lattice of 8, decoding only")                 \
    X(iq1_m, IQ1_M, 0, PLAIN, 0, 0, "1.75", "lattice of 8, decoding only")                       \
    X(iq1_s, IQ1_S, 0, PLAIN, 0, 0, "1.5625", "lattice of 8, decoding only")

#define ENCODE_KERNELS(name, NAME, flag, rows, at, scales, bpw, text)                     \
    static const struct tu_kernel encode_##name[] = {rows(tui_encode_##name)};            \
    static const struct tu_kernel weighted_##name[] = {rows(tui_encode_##name)};
#define DECODE_KERNELS(name, NAME, flag, rows, at, scales, bpw, text)                     \
    static const struct tu_kernel decode_##name[] = {rows(tui_decode_##name)};
ENCODED_TABLE(ENCODE_KERNELS)
ENCODED_TABLE(DECODE_KERNELS)
DECODED_TABLE(DECODE_KERNELS)

#define ENCODED_FORMAT(name, NAME, flag, rows, at, scales, bpw, text)                     \
    static const struct format format_##name = {                                           \
        TU_##NAME, encode_##name, (flag) ? weighted_##name : NULL, decode_##name,       \
        at, scales};
#define DECODED_FORMAT(name, NAME, flag, rows, at, scales, bpw, text)                     \
    static const struct format format_##name = {TU_##NAME, NULL, NULL, decode_##name, at, scales};
ENCODED_TABLE(ENCODED_FORMAT)
DECODED_TABLE(DECODED_FORMAT)

#define ROW(encoder, id, flag, bpw, text)                                                  \
    {.name = #id, .help = "GGUF, " bpw " bits: " text,                                     \
     .source = "ggml-org/ggml: src/ggml-quants.c", .flags = flag,                          \
     .format = &format_##id, .plan = plan, .encode = encoder, .decode = decode,         \
     .kernel = kernel, .check = check},
#define ENCODED_ROW(name, NAME, flag, rows, at, scales, bpw, text)                        \
    ROW(encode, name, flag, bpw, text)
#define DECODED_ROW(name, NAME, flag, rows, at, scales, bpw, text)                        \
    ROW(NULL, name, flag, bpw, text)

const struct tu_codec tui_codecs_ggml[] = {
    ENCODED_TABLE(ENCODED_ROW)
    DECODED_TABLE(DECODED_ROW)
    {.name = NULL},
};
