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
            return tu_fail(err, TU_EUSAGE, "codec '%s': block '%s': rows and columns, as 128x128",
                           c->codec->name, text);
    }
    if (elem && strcmp(elem, "e4m3") != 0 && strcmp(elem, "e5m2") != 0)
        return tu_fail(err, TU_EUSAGE, "codec '%s': elem '%s': e4m3 or e5m2", c->codec->name, elem);
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
        c->side[0] = (struct tu_part){.suffix = "scale", .dtype = TU_F32, .rank = 1, .dim = {1}};
        c->code.atom_bytes = 1;
        return 0;
    }
    /* A strip of whole blocks, no longer than the tensor. */
    uint64_t across = tu_ceil_div(c->cols, block[1]), rows = tu_min(block[0], tu_max(c->rows, 1));
    c->atom = rows * tu_max(c->cols, 1);
    c->code.atom_bytes = c->atom;
    c->side[0] = (struct tu_part){.suffix = "scale", .dtype = TU_F32, .rank = 2,
                                  .dim = {tu_ceil_div(c->rows, block[0]), across},
                                  .atom_bytes = across * 4};
    return 0;
}

static float scale_of(const struct tu_coding *c, float amax)
{
    float s = amax / (c->param[ELEMENT] == TU_F8_E5M2 ? 57344.0f : 448.0f);
    return s == 0 ? 0x1p-23f : s;
}

static uint8_t code_of(const struct tu_coding *c, float v)
{
    return tu_to_small((uint32_t)c->param[ELEMENT], v, true);
}

/* Columns of a block, and the largest magnitude in it. */
struct tile {
    uint64_t rows, first, cols;
};

static struct tile tile_at(const struct tu_coding *c, uint64_t rows, uint64_t k)
{
    uint64_t wide = (uint64_t)c->param[COLS], first = k * wide;
    return (struct tile){rows, first, tu_min(wide, c->cols - first)};
}

static float largest(const struct tu_coding *c, const float *x, const struct tile *t)
{
    float amax = 0;
    for (uint64_t i = 0; i < t->rows; i++)
        for (uint64_t j = 0; j < t->cols; j++) {
            float v = fabsf(x[i * c->cols + t->first + j]);
            amax = v > amax ? v : amax;
        }
    return amax;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x, void *code,
                  void *const *side, struct tu_err *err)
{
    (void)first;
    (void)err;
    float *scale = side[0];
    unsigned char *out = code;
    if (c->two_pass) {
        for (size_t i = 0; i < n; i++)
            out[i] = code_of(c, x[i] / *scale);
        return 0;
    }
    uint64_t across = tu_ceil_div(c->cols, (uint64_t)c->param[COLS]);
    for (size_t at = 0; at < n; at += (size_t)c->atom) {
        uint64_t rows = tu_min(c->atom, n - at) / c->cols;
        for (uint64_t k = 0; k < across; k++) {
            struct tile t = tile_at(c, rows, k);
            float s = scale_of(c, largest(c, x + at, &t));
            *scale++ = s;
            for (uint64_t i = 0; i < rows; i++)
                for (uint64_t j = 0; j < t.cols; j++) {
                    uint64_t p = at + i * c->cols + t.first + j;
                    out[p] = code_of(c, x[p] / s);
                }
        }
    }
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)err;
    float value[256];
    const float *scale = side[0];
    const unsigned char *in = code;
    for (unsigned i = 0; i < 256; i++)
        value[i] = tu_from_small((uint32_t)c->param[ELEMENT], (uint8_t)i);
    uint64_t across = c->two_pass ? 1 : tu_ceil_div(c->cols, (uint64_t)c->param[COLS]);
    for (size_t i = 0; i < n; i++) {
        uint64_t k = c->two_pass ? 0
                                 : i / c->atom * across + i % c->cols / (uint64_t)c->param[COLS];
        x[i] = value[in[i]] * scale[k];
    }
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

static const char *const key_block[] = {"block", "elem", NULL};
static const char *const key_elem[] = {"elem", NULL};

const struct tu_codec tui_codecs_scaled[] = {
    {.name = "fp8_block", .help = "quant_method fp8: a scale per 128 by 128",
     .source = "deepseek-ai/DeepSeek-V3: inference/fp8_cast_bf16.py", .key = key_block,
     .format = block_128, .plan = plan, .encode = encode, .decode = decode, .start = start},
    {.name = "fp8_channel", .help = "compressed-tensors float-quantized: a scale per row",
     .source = "vllm-project/compressed-tensors: quantization/utils/helpers.py", .key = key_elem,
     .format = block_channel, .plan = plan, .encode = encode, .decode = decode, .start = start},
    {.name = "fp8_tensor", .help = "compressed-tensors float-quantized: a scale per tensor",
     .source = "vllm-project/compressed-tensors: quantization/utils/helpers.py", .key = key_elem,
     .format = block_tensor, .plan = plan, .encode = encode, .decode = decode, .start = start},
    {.name = NULL},
};
