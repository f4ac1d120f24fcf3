/* SPDX-License-Identifier: Apache-2.0 */
/* nvfp4.c: E2M1 in pairs under an E4M3 scale per 16 and a float32 scale of the tensor, as
 * compressed-tensors (the global scale multiplies the scales: dequantizing divides) and
 * ModelOpt (its reciprocal) store it. ggml's own NVFP4 blocks are ggml_fp4.c's. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "bits.h"
#include "families.h"
#include "small.h"
#include "tensorutils/device/kernels.h"

enum { K = 16, RUN = 64 }; /* elements of a block, blocks at a time */
enum { MODELOPT };
static const char *const keys[] = {"global", NULL};

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    const char *global = tu_spec_get(spec, "global");
    if (global && strcmp(global, "ct") != 0 && strcmp(global, "modelopt") != 0)
        return tu_fail(err, TU_EUSAGE, "codec '%s': global '%.20s' is not ct or modelopt",
                       c->codec->name, global);
    c->param[MODELOPT] = global && *global == 'm';
    if (c->rank == 0 || c->cols % K)
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': last dimension %" PRIu64 " is no multiple of 16",
                       c->codec->name, c->cols);
    c->atom = K;
    c->code = (struct tu_part){.dtype = TU_F4_E2M1, .rank = c->rank, .atom_bytes = K / 2};
    memcpy(c->code.dim, c->dim, c->rank * sizeof *c->dim);
    c->sides = 2;
    c->side[0] = (struct tu_part){
        .suffix = "scale", .dtype = TU_F8_E4M3FN, .rank = c->rank, .atom_bytes = 1};
    memcpy(c->side[0].dim, c->dim, c->rank * sizeof *c->dim);
    c->side[0].dim[c->rank - 1] /= K;
    c->side[1] =
        (struct tu_part){.suffix = "gscale", .dtype = TU_F32, .rank = 1, .dim = {1}};
    c->two_pass = true;
    c->block[0] = 1;
    c->block[1] = K;
    return 0;
}

/* What block scales are multiplied by before they are rounded: finite for zeros too. */
static float global_scale(const struct tu_coding *c)
{
    double amax = fmax(fabs(c->tally.min), fabs(c->tally.max));
    return 448.0f * 6.0f / (float)fmax(amax, 0x1p-116);
}

/* As the tensor's scale is stored and read again. */
static float unit_of(const struct tu_coding *c, float stored, float scale)
{
    return c->param[MODELOPT] ? scale * stored : scale / stored;
}

static float stored_scale(const struct tu_coding *c)
{
    float g = global_scale(c);
    return c->param[MODELOPT] ? 1 / g : g;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)err;
    const struct tui_small *e2m1 = tui_small_named("e2m1");
    unsigned char *out = code, *scale = side[0], codes[RUN * K];
    float g = global_scale(c), stored = stored_scale(c), unit[RUN];
    for (size_t i = 0; i < n; i += RUN * K) {
        const size_t k = n - i < RUN * K ? n - i : RUN * K;
        tui_amax(c->cpu, x + i, k, K, unit);
        for (size_t b = 0; b < k / K; b++, scale++) {
            float want = g * unit[b] / 6;
            if (c->param[MODELOPT])
                want = fmaxf(want, 0x1p-9f);
            *scale = tu_to_small(TU_F8_E4M3FN, want, true);
            if (*scale == 0)
                *scale = tu_to_small(TU_F8_E4M3FN, 0.125f, true);
            unit[b] = unit_of(c, stored, tu_from_small(TU_F8_E4M3FN, *scale));
        }
        tui_small_encode(c->cpu, e2m1, x + i, k, K, unit, codes);
        tui_nibbles_pack(c->cpu, codes, k, false, out + i / 2);
    }
    return 0;
}

static int start(const struct tu_coding *c, void *const *side, struct tu_err *err)
{
    (void)err;
    float g = stored_scale(c);
    memcpy(side[1], &g, sizeof g);
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)err;
    const struct tui_small *e2m1 = tui_small_named("e2m1");
    const unsigned char *in = code, *scale = side[0];
    unsigned char codes[RUN * K];
    float stored, unit[RUN];
    memcpy(&stored, side[1], sizeof stored);
    for (size_t i = 0; i < n; i += RUN * K) {
        const size_t k = n - i < RUN * K ? n - i : RUN * K;
        for (size_t b = 0; b < k / K; b++)
            unit[b] = unit_of(c, stored, tu_from_small(TU_F8_E4M3FN, *scale++));
        tui_nibbles_unpack(c->cpu, in + i / 2, k, false, codes);
        tui_small_decode(c->cpu, e2m1, codes, k, K, unit, x + i);
    }
    return 0;
}

static bool kernel(const struct tu_coding *c, bool encode, const void *const *side,
                   struct tu_kernel_code *k)
{
    k->rule = c->param[MODELOPT] != 0;
    if (encode && side)
        k->global = global_scale(c);
    if (side)
        memcpy(&k->unit, side[1], sizeof k->unit);
    return true;
}

const struct tu_codec tui_codecs_nvfp4[] = {
    {.name = "nvfp4_packed",
     .help = "E2M1 in pairs, E4M3 scales per 16, one of the tensor",
     .source = "neuralmagic/compressed-tensors; NVIDIA/Model-Optimizer",
     .key = keys,
     .plan = plan,
     .encode = encode,
     .decode = decode,
     .start = start,
     .kernel = kernel},
    {.name = NULL},
};
