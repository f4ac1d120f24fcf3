/* SPDX-License-Identifier: Apache-2.0 */
/* fp8.c: eight-bit floats, as they are or under float32 scales per tensor, row or square
 * block: what "quant_method": "fp8" (weight_scale_inv, [128, 128]) and
 * compressed-tensors' float-quantized files hold. scale = amax / the largest number;
 * value = code · scale. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "small.h"

enum { ELEM, SATURATE, SCALE, BLOCK, DIVISOR };
enum scale { NONE, TENSOR, CHANNEL, SQUARE };

static const char *const keys[] = {"elem", "scale", "block", "nosat", NULL};
static const char *const scale_name[] = {"none", "tensor", "channel", "block"};

static const struct tui_small *element(const struct tu_coding *c)
{
    return tui_small_named(c->param[ELEM] ? "e5m2" : "e4m3");
}

static int read_spec(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    const char *elem = tu_spec_get(spec, "elem"), *scale = tu_spec_get(spec, "scale");
    uint64_t block;
    int rc = tu_spec_u64(spec, "block", 128, &block, err);
    if (rc)
        return rc;
    if (elem && strcmp(elem, "e4m3") != 0 && strcmp(elem, "e5m2") != 0)
        return tu_fail(err, TU_EUSAGE, "codec 'fp8': elem '%.20s' is not e4m3 or e5m2",
                       elem);
    c->param[ELEM] = elem && elem[1] == '5';
    c->param[SATURATE] = !tu_spec_get(spec, "nosat");
    c->param[BLOCK] = (int64_t)block;
    if (block == 0 || block > 65536)
        return tu_fail(err, TU_EUSAGE, "codec 'fp8': block %" PRIu64 " is not 1 to 65536",
                       block);
    for (c->param[SCALE] = NONE; scale; c->param[SCALE]++) {
        if (c->param[SCALE] == 4)
            return tu_fail(err, TU_EUSAGE,
                           "codec 'fp8': scale '%.20s' is not none, tensor, "
                           "channel or block",
                           scale);
        if (strcmp(scale, scale_name[c->param[SCALE]]) == 0)
            break;
    }
    return 0;
}

static int plan_square(struct tu_coding *c, struct tu_err *err)
{
    uint64_t block = (uint64_t)c->param[BLOCK],
             height = c->rank > 1 ? c->dim[c->rank - 2] : 1;
    if (c->rank < 2)
        return tu_fail(err, TU_EUSAGE, "codec 'fp8': scale=block needs a matrix");
    if (c->rank > 2 && height % block)
        return tu_fail(err, TU_EUSAGE,
                       "codec 'fp8': %" PRIu64 " rows are no multiple of %" PRIu64,
                       height, block);
    struct tu_part *s = &c->side[0];
    s->dim[c->rank - 2] = tu_ceil_div(height, block);
    s->dim[c->rank - 1] = tu_ceil_div(c->cols, block);
    s->rank = c->rank;
    c->atom = block * tu_max(c->cols, 1);
    s->atom_bytes = 4 * s->dim[c->rank - 1];
    c->block[0] = c->block[1] = block;
    return 0;
}

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    int rc = read_spec(c, spec, err);
    if (rc)
        return rc;
    c->code = (struct tu_part){.dtype = element(c)->dtype, .rank = c->rank};
    memcpy(c->code.dim, c->dim, c->rank * sizeof *c->dim);
    struct tu_part *s = &c->side[0];
    *s = (struct tu_part){.suffix = "scale", .dtype = TU_F32};
    memcpy(s->dim, c->dim, c->rank * sizeof *c->dim);
    c->sides = c->param[SCALE] != NONE;
    if (c->param[SCALE] == CHANNEL) {
        s->rank = c->rank ? c->rank : 1;
        s->dim[s->rank - 1] = 1;
        c->atom = tu_max(c->cols, 1);
        s->atom_bytes = 4;
    } else if (c->param[SCALE] == TENSOR) {
        c->two_pass = true; /* the side is a scalar */
    } else if (c->param[SCALE] == SQUARE && (rc = plan_square(c, err))) {
        return rc;
    }
    c->code.atom_bytes = c->atom;
    return 0;
}

static float scale_of(const struct tui_small *f, float amax)
{
    float s = amax / f->max;
    return s < 0x1p-126f ? 1 : s; /* zeros, and what would make 1/s overflow */
}

static void cast_run(const struct tu_coding *c, const float *x, size_t n, float scale,
                     unsigned char *code)
{
    const struct tui_small *f = element(c);
    if (c->param[SATURATE])
        tui_small_encode(c->cpu, f, x, n, scale, code);
    for (size_t i = 0; i < n && !c->param[SATURATE]; i++)
        code[i] = tu_to_small(f->dtype, x[i] / scale, false);
}

static float tensor_scale(const struct tu_coding *c)
{
    double amax = fmax(fabs(c->tally.min), fabs(c->tally.max));
    return scale_of(element(c), (float)amax);
}

/* One row of squares: up to `block` rows of the matrix. */
static void encode_squares(const struct tu_coding *c, size_t n, const float *x,
                           unsigned char *code, unsigned char *scale)
{
    size_t block = (size_t)c->param[BLOCK], cols = (size_t)c->cols, rows = n / cols;
    for (size_t at = 0; at < cols; at += block, scale += 4) {
        size_t width = cols - at < block ? cols - at : block;
        float amax = 0;
        for (size_t r = 0; r < rows; r++)
            amax = fmaxf(amax, tui_amax(x + r * cols + at, width));
        float s = scale_of(element(c), amax);
        memcpy(scale, &s, sizeof s);
        for (size_t r = 0; r < rows; r++)
            cast_run(c, x + r * cols + at, width, s, code + r * cols + at);
    }
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)err;
    unsigned char *out = code, *scale = c->sides ? side[0] : NULL;
    if (c->param[SCALE] == NONE || c->param[SCALE] == TENSOR) {
        cast_run(c, x, n, c->param[SCALE] == NONE ? 1 : tensor_scale(c), out);
        return 0;
    }
    for (size_t k; n; n -= k, x += k, out += k, scale += c->side[0].atom_bytes) {
        k = (size_t)tu_min(c->atom, n);
        if (c->param[SCALE] == SQUARE) {
            encode_squares(c, k, x, out, scale);
            continue;
        }
        float s = scale_of(element(c), tui_amax(x, k));
        memcpy(scale, &s, sizeof s);
        cast_run(c, x, k, s, out);
    }
    return 0;
}

static int finish(const struct tu_coding *c, void *const *side, struct tu_err *err)
{
    (void)err;
    if (c->param[SCALE] == TENSOR) {
        float s = tensor_scale(c);
        memcpy(side[0], &s, sizeof s);
    }
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)err;
    const struct tui_small *f = element(c);
    const unsigned char *in = code, *scale = c->sides ? side[0] : NULL;
    size_t cols = (size_t)c->cols, block = (size_t)c->param[BLOCK];
    float s = 1;
    if (scale)
        memcpy(&s, scale, sizeof s);
    if (c->param[SCALE] == NONE || c->param[SCALE] == TENSOR)
        tui_small_decode(c->cpu, f, in, n, s, x);
    else if (c->param[SCALE] == CHANNEL)
        for (size_t at = 0; at < n; at += cols, scale += 4) {
            memcpy(&s, scale, sizeof s);
            tui_small_decode(c->cpu, f, in + at, cols, s, x + at);
        }
    else
        for (size_t r = 0; r < n / cols; r++)
            for (size_t at = 0; at < cols; at += block) {
                const unsigned char *row = scale + r / block * c->side[0].atom_bytes;
                memcpy(&s, row + at / block * 4, sizeof s);
                tui_small_decode(c->cpu, f, in + r * cols + at,
                                 cols - at < block ? cols - at : block, s,
                                 x + r * cols + at);
            }
    return 0;
}

const struct tu_codec tui_codecs_fp8[] = {
    {.name = "fp8",
     .help = "eight-bit floats, scales per tensor, channel or square block",
     .source = "OCP 8-bit Floating Point Specification 1.0; deepseek-ai/DeepSeek-V3",
     .key = keys,
     .plan = plan,
     .encode = encode,
     .decode = decode,
     .finish = finish},
    {.name = NULL},
};
