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

/* How a run of n elements lies under its scales: rows of cols, `wide` of which share one;
 * the rows of an atom share all of theirs. */
struct strips {
    uint64_t rows, cols, wide, across, per_atom;
};

static struct strips strips_of(const struct tu_coding *c, size_t n)
{
    if (c->two_pass || !n)
        return (struct strips){n > 0, n, n, 1, 1};
    uint64_t wide = (uint64_t)c->param[COLS];
    return (struct strips){n / c->cols, c->cols, wide, tu_ceil_div(c->cols, wide),
                           c->atom / c->cols};
}

/* The first of a row's scales. */
static uint64_t place_of(const struct strips *s, uint64_t row)
{
    return row / s->per_atom * s->across;
}

/* The largest magnitudes of a row into those of its blocks. */
static void raise(const struct tu_coding *c, const struct strips *s, const float *x,
                  float *scale)
{
    enum { SOME = 64 };
    float amax[SOME];
    for (uint64_t k = 0; k < s->across; k += SOME) {
        const uint64_t at = k * s->wide, blocks = tu_min(SOME, s->across - k);
        tui_amax(c->cpu, x + at, (size_t)tu_min(blocks * s->wide, s->cols - at),
                 (size_t)s->wide, amax);
        for (uint64_t b = 0; b < blocks; b++)
            scale[k + b] = amax[b] > scale[k + b] ? amax[b] : scale[k + b];
    }
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)err;
    const struct strips s = strips_of(c, n);
    const uint64_t scales = tu_ceil_div(s.rows, s.per_atom) * s.across;
    float *scale = side[0];
    if (!c->two_pass) {
        memset(scale, 0, (size_t)scales * sizeof *scale);
        for (uint64_t i = 0; i < s.rows; i++)
            raise(c, &s, x + i * s.cols, scale + place_of(&s, i));
        for (uint64_t i = 0; i < scales; i++)
            scale[i] = scale_of(c, scale[i]);
    }
    for (uint64_t i = 0; i < s.rows; i++)
        tui_small_encode(c->cpu, element(c), x + i * s.cols, (size_t)s.cols,
                         (size_t)s.wide, scale + place_of(&s, i),
                         (unsigned char *)code + i * s.cols);
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)err;
    const struct strips s = strips_of(c, n);
    const float *scale = side[0];
    for (uint64_t i = 0; i < s.rows; i++)
        tui_small_decode(c->cpu, element(c), (const unsigned char *)code + i * s.cols,
                         (size_t)s.cols, (size_t)s.wide, scale + place_of(&s, i),
                         x + i * s.cols);
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
