/* SPDX-License-Identifier: Apache-2.0 */
/* scaled.c: eight-bit floats under float32 scales: blocks of 128 by 128 with
 * `weight_scale_inv`, channels and tensors. Sources: deepseek-ai/DeepSeek-V3
 * inference/fp8_cast_bf16.py; vllm-project/compressed-tensors, format float-quantized.
 *
 * Despite the name of the blocks' side in files, value = code · scale in all of them. Not
 * for formats with scales of eight bits. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "small.h"
#include "tensorutils/device/kernels.h"

enum param { ROWS, COLS, ELEMENT }; /* of a block, 0: all; dtype of a code */

static const uint64_t block_128[2] = {128, 128}, block_channel[2] = {1, 0},
                      block_tensor[2] = {0, 0};

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t block[2];
    unsigned rank = 2;
    memcpy(block, c->codec->format, sizeof block);
    const char *text = tu_spec_get(spec, "block"), *elem = tu_spec_get(spec, "elem");
    if (text) {
        int rc = tu_parse_shape(text, block, &rank, 2, err);
        if (rc || rank != 2 || !block[0] || !block[1])
            return tu_fail(err, TU_EUSAGE,
                           "codec '%s': block '%s': rows and columns, as 128x128",
                           c->codec->name, text);
    }
    if (elem && strcmp(elem, "e4m3") != 0 && strcmp(elem, "e5m2") != 0)
        return tu_fail(err, TU_EUSAGE, "codec '%s': elem '%s': e4m3 or e5m2",
                       c->codec->name, elem);
    c->param[ELEMENT] = elem && elem[1] == '5' ? TU_F8_E5M2 : TU_F8_E4M3FN;
    block[0] = block[0] ? block[0] : tu_max(c->rows, 1);
    block[1] = block[1] ? block[1] : tu_max(c->cols, 1);
    c->two_pass = c->codec->format == block_tensor;
    c->block[0] = block[0];
    c->block[1] = block[1];
    c->param[ROWS] = (int64_t)block[0];
    c->param[COLS] = (int64_t)block[1];
    c->code = (struct tu_part){.dtype = (uint32_t)c->param[ELEMENT], .rank = c->rank};
    memcpy(c->code.dim, c->dim, c->rank * sizeof *c->dim);
    c->sides = 1;
    if (c->two_pass) {
        c->side[0] =
            (struct tu_part){.suffix = "scale", .dtype = TU_F32, .rank = 1, .dim = {1}};
        c->code.atom_bytes = 1;
        return 0;
    }
    /* A strip of whole blocks, no longer than the tensor. */
    uint64_t across = tu_ceil_div(c->cols, block[1]),
             rows = tu_min(block[0], tu_max(c->rows, 1));
    c->atom = rows * tu_max(c->cols, 1);
    c->code.atom_bytes = c->atom;
    c->side[0] = (struct tu_part){.suffix = "scale",
                                  .dtype = TU_F32,
                                  .rank = 2,
                                  .dim = {tu_ceil_div(c->rows, block[0]), across},
                                  .atom_bytes = across * 4};
    return 0;
}

static const struct tui_small *element(const struct tu_coding *c)
{
    return tui_small_named(c->param[ELEMENT] == TU_F8_E5M2 ? "e5m2" : "e4m3");
}

static float scale_of(const struct tu_coding *c, float amax)
{
    float s = amax / element(c)->max;
    return s == 0 ? 0x1p-23f : s;
}

/* A run of a row that is in one block. */
struct run {
    uint64_t at, n, scale;
};

/* Calls of `fn` for every run of n elements. */
static void each_run(const struct tu_coding *c, size_t n,
                     void (*fn)(void *ctx, struct run r), void *ctx)
{
    uint64_t wide = (uint64_t)c->param[COLS];
    if (c->two_pass) {
        fn(ctx, (struct run){0, n, 0});
        return;
    }
    uint64_t across = tu_ceil_div(c->cols, wide);
    for (uint64_t at = 0; at < n; at += c->cols)
        for (uint64_t k = 0; k < across; k++)
            fn(ctx, (struct run){at + k * wide, tu_min(wide, c->cols - k * wide),
                                 at / c->atom * across + k});
}

struct job {
    const struct tu_coding *c;
    const float *in;
    float *out, *scale;
    const float *scales;
    unsigned char *code;
    const unsigned char *codes;
};

static void find_largest(void *ctx, struct run r)
{
    struct job *j = ctx;
    float amax = 0;
    tui_amax(j->c->cpu, j->in + r.at, (size_t)r.n, (size_t)r.n, &amax);
    if (amax > j->scale[r.scale])
        j->scale[r.scale] = amax;
}

static void encode_run(void *ctx, struct run r)
{
    struct job *j = ctx;
    tui_small_encode(j->c->cpu, element(j->c), j->in + r.at, (size_t)r.n,
                     (size_t)r.n, &j->scale[r.scale], j->code + r.at);
}

static void decode_run(void *ctx, struct run r)
{
    struct job *j = ctx;
    tui_small_decode(j->c->cpu, element(j->c), j->codes + r.at, (size_t)r.n,
                     (size_t)r.n, &j->scales[r.scale], j->out + r.at);
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)err;
    struct job j = {.c = c, .in = x, .scale = side[0], .code = code};
    if (!c->two_pass) {
        uint64_t scales =
            tu_ceil_div(n, c->atom) * tu_ceil_div(c->cols, (uint64_t)c->param[COLS]);
        memset(j.scale, 0, (size_t)scales * sizeof *j.scale);
        each_run(c, n, find_largest, &j);
        for (uint64_t i = 0; i < scales; i++)
            j.scale[i] = scale_of(c, j.scale[i]);
    }
    each_run(c, n, encode_run, &j);
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)err;
    struct job j = {.c = c, .out = x, .scales = side[0], .codes = code};
    each_run(c, n, decode_run, &j);
    return 0;
}

static int start(const struct tu_coding *c, void *const *side, struct tu_err *err)
{
    (void)err;
    if (!c->two_pass)
        return 0;
    float scale = scale_of(c, (float)fmax(fabs(c->tally.min), fabs(c->tally.max)));
    memcpy(side[0], &scale, sizeof scale);
    return 0;
}

static bool kernel(const struct tu_coding *c, bool encode, const void *const *side,
                   struct tu_kernel_code *k)
{
    (void)encode;
    k->small = element(c)->dtype;
    k->cols = tu_max(c->cols, 1);
    if (c->two_pass && side)
        memcpy(&k->unit, side[0], sizeof k->unit);
    return c->two_pass || (c->block[0] == 1 && c->block[1] == k->cols);
}

static const char *const key_block[] = {"block", "elem", NULL};
static const char *const key_elem[] = {"elem", NULL};

const struct tu_codec tui_codecs_scaled[] = {
    {.name = "fp8_block",
     .help = "quant_method fp8: a scale per 128 by 128",
     .source = "deepseek-ai/DeepSeek-V3: inference/fp8_cast_bf16.py",
     .key = key_block,
     .format = block_128,
     .plan = plan,
     .encode = encode,
     .decode = decode,
     .start = start,
     .kernel = kernel},
    {.name = "fp8_channel",
     .help = "compressed-tensors float-quantized: a scale per row",
     .source = "vllm-project/compressed-tensors: quantization/utils/helpers.py",
     .key = key_elem,
     .format = block_channel,
     .plan = plan,
     .encode = encode,
     .decode = decode,
     .start = start,
     .kernel = kernel},
    {.name = "fp8_tensor",
     .help = "compressed-tensors float-quantized: a scale per tensor",
     .source = "vllm-project/compressed-tensors: quantization/utils/helpers.py",
     .key = key_elem,
     .format = block_tensor,
     .plan = plan,
     .encode = encode,
     .decode = decode,
     .start = start,
     .kernel = kernel},
    {.name = NULL},
};
