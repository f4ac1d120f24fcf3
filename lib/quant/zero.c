/* SPDX-License-Identifier: Apache-2.0 */
/* zero.c: ZeRO++'s blocks of eight or four bits, and the one-bit codec of error feedback:
 * flat runs with a scale each, for gradients and gathered weights. Source:
 * microsoft/DeepSpeed csrc/includes/quantization_utils.h. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "affine.h"
#include "bits.h"
#include "families.h"
#include "small.h"
#include "tensorutils/quant/gradient.h"

enum param { GROUP, ASYM };

uint64_t tu_zero_place(uint64_t p, uint64_t nodes, uint64_t devices)
{
    return p % devices * nodes + p / devices;
}

static unsigned bits_of(const struct tu_coding *c)
{
    return *(const unsigned char *)c->codec->format;
}

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    uint64_t group;
    unsigned bits = bits_of(c);
    int rc = tu_spec_u64(spec, "group", bits == 1 ? tu_max(c->elements, 8) : 2048, &group,
                         err);
    if (rc)
        return rc;
    if (!group || group % 8 || group > UINT32_MAX) {
        if (bits > 1 || group < 8)
            return tu_fail(err, TU_EUSAGE,
                           "codec '%s': group %" PRIu64 ": a multiple of 8",
                           c->codec->name, group);
        group = tu_align(group, 8);
    }
    if (bits > 1 && c->elements % 8)
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': %" PRIu64 " elements are no multiple of 8",
                       c->codec->name, c->elements);
    c->param[GROUP] = (int64_t)group;
    c->param[ASYM] = tu_spec_get(spec, "asym") != NULL;
    c->block[0] = 1;
    c->block[1] = group;
    c->atom = group;
    c->code = (struct tu_part){.dtype = TU_U8,
                               .rank = 1,
                               .dim = {tu_ceil_div(c->elements * bits, 8)},
                               .atom_bytes = group * bits / 8};
    uint64_t n = tu_ceil_div(c->elements, group), each = c->param[ASYM] ? 2 : 1;
    c->side[0] = (struct tu_part){.suffix = "scale",
                                  .dtype = TU_F32,
                                  .rank = 2,
                                  .dim = {n, each},
                                  .atom_bytes = each * 4};
    c->sides = 1;
    return 0;
}

enum { PART = 4096 }; /* codes on their way, one in a byte */

/* In a byte or half a byte, and back. */
static void put_signed(uint32_t cpu, uint8_t *code, size_t n, bool wide, unsigned char *out)
{
    tui_bytes_flip(cpu, code, code, n, wide ? 0x80 : 0x08);
    if (wide)
        memcpy(out, code, n);
    else
        tui_nibbles_pack(cpu, code, n, true, out);
}

static void get_signed(uint32_t cpu, const unsigned char *in, size_t n, bool wide, uint8_t *code)
{
    if (wide)
        memcpy(code, in, n);
    else
        tui_nibbles_unpack(cpu, in, n, true, code);
    tui_bytes_flip(cpu, code, code, n, wide ? 0x80 : 0x08);
}

/* x·s to the nearest; what is stored is 1/s. */
static void code_symmetric(const struct tu_coding *c, const float *x, size_t n, float *param,
                           unsigned char *out)
{
    const unsigned bits = bits_of(c);
    const float half = (float)(1u << (bits - 1));
    uint8_t code[PART];
    float amax = 0;
    tui_amax(c->cpu, x, n, n, &amax);
    const float s = amax > 0 ? 2 * half / (2 * amax) : 1;
    const struct tui_affine_map map = {s, true, 0, -half, half - 1, half, 2 * half - 1};
    param[0] = 1 / s;
    for (size_t i = 0; i < n; i += PART, out += PART * bits / 8) {
        const size_t k = n - i < PART ? n - i : PART;
        tui_affine_code(c->cpu, &map, x + i, k, k, code);
        put_signed(c->cpu, code, k, bits == 8, out);
    }
}

/* The same less the middle of the range. */
static void code_middle(const struct tu_coding *c, const float *x, size_t n, float *param,
                       unsigned char *out)
{
    unsigned bits = bits_of(c);
    float lo = INFINITY, hi = -INFINITY, half = (float)(1u << (bits - 1)), s, offset;
    for (size_t i = 0; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    s = hi > lo ? 2 * half / (hi - lo) : 1;
    offset = (hi + lo) / 2;
    param[1] = offset;
    param[0] = 1 / s;
    for (size_t i = 0; i < n; i++) {
        float v = (x[i] - offset) * s;
        v = v > -half ? v : -half;
        v = v < half - 1 ? v : half - 1;
        int q = (int)(v + 12582912.0f - 12582912.0f);
        if (bits == 8)
            out[i] = (unsigned char)q;
        else if (i % 2 == 0)
            out[i / 2] = (unsigned char)((unsigned)q << 4);
        else
            out[i / 2] |= (unsigned char)(q & 15);
    }
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)err;
    size_t group = (size_t)c->param[GROUP];
    float *param = side[0];
    void (*const group_fn)(const struct tu_coding *, const float *, size_t, float *,
                           unsigned char *) = c->param[ASYM] ? code_middle : code_symmetric;
    for (size_t i = 0; i < n; i += group, param += c->param[ASYM] ? 2 : 1)
        group_fn(c, x + i, n - i < group ? n - i : group, param,
                 (unsigned char *)code + i * bits_of(c) / 8);
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)err;
    const size_t group = (size_t)c->param[GROUP];
    const bool asym = c->param[ASYM] != 0, wide = bits_of(c) == 8;
    const unsigned char *in = code;
    const float *param = side[0];
    uint8_t q[PART];
    for (size_t at = 0; at < n; at += group, param += asym ? 2 : 1) {
        const size_t end = n - at < group ? n : at + group;
        const float unit = param[0], middle = asym ? param[1] : 0;
        for (size_t i = at; i < end; i += PART) {
            const size_t k = end - i < PART ? end - i : PART;
            get_signed(c->cpu, in + (wide ? i : i / 2), k, wide, q);
            tui_affine_values(c->cpu, q, k, wide ? 128 : 8, unit, x + i);
            for (size_t m = i; asym && m < i + k; m++)
                x[m] += middle;
        }
    }
    return 0;
}

/* Signs under the mean size; zero counts as positive. */
static int encode_sign(const struct tu_coding *c, uint64_t first, size_t n,
                       const float *x, void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)err;
    size_t group = (size_t)c->param[GROUP];
    float *mean = side[0];
    memset(code, 0, (n + 7) / 8);
    for (size_t i = 0; i < n; i += group) {
        size_t k = n - i < group ? n - i : group;
        double sum = 0;
        for (size_t j = i; j < i + k; j++) {
            sum += fabs((double)x[j]);
            ((unsigned char *)code)[j / 8] |= (unsigned char)((x[j] >= 0) << j % 8);
        }
        *mean++ = (float)(sum / (double)k);
    }
    return 0;
}

static int decode_sign(const struct tu_coding *c, uint64_t first, size_t n,
                       const void *code, const void *const *side, float *x,
                       struct tu_err *err)
{
    (void)first;
    (void)err;
    const size_t group = (size_t)c->param[GROUP];
    const unsigned char *sign = code;
    const float *mean = side[0];
    for (size_t at = 0; at < n; at += group, mean++)
        for (size_t i = at; i < n && i - at < group; i++)
            x[i] = sign[i / 8] >> i % 8 & 1 ? *mean : -*mean;
    return 0;
}

static const char *const key[] = {"group", "asym", NULL}, *const sign_key[] = {"group",
                                                                               NULL};
static const unsigned char one = 1, four = 4, eight = 8;
#define SOURCE "microsoft/DeepSpeed: csrc/includes/quantization_utils.h"

const struct tu_codec tui_codecs_zero[] = {
    {.name = "zero8",
     .help = "ZeRO++: 8 bits in flat groups",
     .source = SOURCE,
     .key = key,
     .format = &eight,
     .plan = plan,
     .encode = encode,
     .decode = decode},
    {.name = "zero4",
     .help = "ZeRO++: 4 bits in flat groups, the first in the high half",
     .source = SOURCE,
     .key = key,
     .format = &four,
     .plan = plan,
     .encode = encode,
     .decode = decode},
    {.name = "sign",
     .help = "signs under the mean size, for error feedback",
     .source = "F. Seide et al., 2014",
     .key = sign_key,
     .format = &one,
     .plan = plan,
     .encode = encode_sign,
     .decode = decode_sign},
    {.name = NULL},
};
