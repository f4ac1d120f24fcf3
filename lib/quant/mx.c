/* SPDX-License-Identifier: Apache-2.0 */
/* mx.c: OCP microscaling: 32 elements of a row under a power of two. ggml's own MXFP4
 * blocks are ggml_fp4.c's.
 *
 * Source: OCP Microscaling Formats (MX) Specification 1.0, 6.3; the scale rules of
 * microxcaling (floor), cuBLAS (rceil), compressed-tensors (even). */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "affine.h"
#include "bits.h"
#include "families.h"
#include "small.h"
#include "tensorutils/device/kernels.h"

enum { K = 32, RUN = 64 }; /* elements of a block, blocks at a time */
enum rule { FLOOR, CEIL, RCEIL, EVEN };

/* Elements: a small float, or two's complement over 64. */
struct element {
    const char *small; /* NULL: int8 */
    const char *other; /* the other element that `elem` may name, or NULL */
};

enum { ELEM, RULE };
static const char *const keys_two[] = {"elem", "scale", NULL}, *const keys_one[] = {
                                                                   "scale", NULL};
static const char *const rule_name[] = {"floor", "ceil", "rceil", "even", NULL};

static const struct tui_small *element(const struct tu_coding *c)
{
    const struct element *e = c->codec->format;
    return e->small ? tui_small_named(c->param[ELEM] ? e->other : e->small) : NULL;
}

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    const struct element *e = c->codec->format;
    const char *elem = tu_spec_get(spec, "elem"), *rule = tu_spec_get(spec, "scale");
    if (elem && strcmp(elem, e->small) != 0 && strcmp(elem, e->other) != 0)
        return tu_fail(err, TU_EUSAGE, "codec '%s': elem '%.20s' is not %s or %s",
                       c->codec->name, elem, e->small, e->other);
    c->param[ELEM] = elem && strcmp(elem, e->small) != 0;
    c->param[RULE] = FLOOR;
    while (rule && strcmp(rule, rule_name[c->param[RULE]]) != 0)
        if (!rule_name[++c->param[RULE]])
            return tu_fail(err, TU_EUSAGE,
                           "codec '%s': scale '%.20s' is not floor, ceil, rceil "
                           "or even",
                           c->codec->name, rule);
    if (c->rank == 0 || c->cols % K)
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': last dimension %" PRIu64 " is no multiple of 32",
                       c->codec->name, c->cols);
    const struct tui_small *f = element(c);
    c->atom = K;
    c->code = (struct tu_part){.dtype = f ? f->dtype : TU_I8, .rank = c->rank};
    memcpy(c->code.dim, c->dim, c->rank * sizeof *c->dim);
    c->code.atom_bytes = f ? (uint64_t)f->bits * K / 8 : K;
    c->sides = 1;
    c->side[0] = (struct tu_part){
        .suffix = "scale", .dtype = TU_F8_E8M0, .rank = c->rank, .atom_bytes = 1};
    memcpy(c->side[0].dim, c->dim, c->rank * sizeof *c->dim);
    c->side[0].dim[c->rank - 1] /= K;
    c->block[0] = 1;
    c->block[1] = K;
    return 0;
}

/* 2^e for e of -127 to 127. */
static float power(int e)
{
    uint32_t bits = e > -127 ? (uint32_t)(e + 127) << 23 : UINT32_C(1) << 22;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* How an exponent is taken from a largest magnitude: its own, or the next one where the
 * first bits of the mantissa carry into it. */
struct share {
    float factor;
    uint32_t carry; /* added to the bits */
    int emax;       /* of an element */
    bool up;        /* smallest e with 2^e ≥ a */
};

static struct share share_of(enum rule rule, const struct tui_small *f)
{
    const int mantissa = f ? f->mantissa : 6, emax = f ? f->emax : 0;
    switch (rule) {
    case FLOOR: return (struct share){1, 0, emax, false};
    case CEIL: return (struct share){1, 0x7fffff, emax, true};
    case RCEIL: return (struct share){1 / (f ? f->max : 1.984375f), 0x7fffff, 0, true};
    default: return (struct share){1, UINT32_C(1) << (22 - mantissa), emax, false};
    }
}

/* Exponent of the scale of a block whose largest magnitude is amax > 0. What is below all
 * normal numbers has the least exponent in any case, unless it is rounded up. */
static int shared(const struct share *s, float amax)
{
    float a = amax * s->factor;
    int e = -127 - s->emax;
    uint32_t bits;
    if (s->up && a < FLT_MIN) {
        a *= 0x1p24f;
        e -= 24;
    }
    memcpy(&bits, &a, sizeof bits);
    e += (int)((bits + s->carry) >> 23);
    return e < -127 ? -127 : e > 127 ? 127 : e;
}

/* x / scale · 64 to the nearest, within ±127, where each block has its power of two; RUN
 * blocks at most. */
static void int_encode(uint32_t cpu, const float *x, size_t n, const float *scale,
                       unsigned char *code)
{
    struct tui_affine_map map[RUN];
    for (size_t b = 0; b < n / K; b++) {
        const bool inverse = scale[b] > 0x1p-120f; /* that is a float */
        map[b] = (struct tui_affine_map){
            inverse ? 64 / scale[b] : scale[b] / 64, inverse, 0, -127, 127, 128, 255};
    }
    tui_affine_code(cpu, map, x, n, K, code);
    tui_bytes_flip(cpu, code, code, n, 0x80);
}

static void int_decode(uint32_t cpu, unsigned char *code, size_t n, const float *scale,
                       float *x)
{
    tui_bytes_flip(cpu, code, code, n, 0x80);
    for (size_t i = 0; i < n; i += K, scale++)
        tui_affine_values(cpu, code + i, K, 128, *scale / 64, x + i);
}

/* Scales of blocks from their largest magnitudes, which are replaced by powers of two. */
static void set_scales(const struct tu_coding *c, float *amax, size_t blocks,
                       unsigned char *scale)
{
    const struct share s = share_of((enum rule)c->param[RULE], element(c));
    for (size_t b = 0; b < blocks; b++) {
        const bool coded = amax[b] > 0 && amax[b] < INFINITY;
        int e = coded ? shared(&s, amax[b]) : 0;
        scale[b] = coded ? (unsigned char)(e + 127) : amax[b] > 0 ? 255 : 0;
        amax[b] = coded ? power(e) : 0;
    }
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)err;
    const struct tui_small *f = element(c);
    unsigned char *out = code, codes[RUN * K];
    float s[RUN];
    for (size_t i = 0; i < n; i += RUN * K) {
        const size_t k = n - i < RUN * K ? n - i : RUN * K, blocks = k / K;
        tui_amax(c->cpu, x + i, k, K, s);
        set_scales(c, s, blocks, (unsigned char *)side[0] + i / K);
        if (f)
            tui_small_encode(c->cpu, f, x + i, k, K, s, codes);
        else
            int_encode(c->cpu, x + i, k, s, codes);
        for (size_t b = 0; b < blocks; b++)
            if (s[b] == 0) /* zeros, or nothing that has a scale */
                memset(codes + b * K, 0, K);
        tui_bits_pack(c->cpu, codes, k, f ? (unsigned)f->bits : 8, out);
        out += blocks * c->code.atom_bytes;
    }
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)err;
    const struct tui_small *f = element(c);
    const unsigned char *in = code, *scale = side[0];
    unsigned char codes[RUN * K];
    float s[RUN];
    for (size_t i = 0; i < n; i += RUN * K) {
        const size_t k = n - i < RUN * K ? n - i : RUN * K, blocks = k / K;
        for (size_t b = 0; b < blocks; b++, scale++)
            s[b] = *scale == 255 ? NAN : power(*scale - 127);
        tui_bits_unpack(c->cpu, in, k, f ? (unsigned)f->bits : 8, codes);
        if (f)
            tui_small_decode(c->cpu, f, codes, k, K, s, x + i);
        else
            int_decode(c->cpu, codes, k, s, x + i);
        in += blocks * c->code.atom_bytes;
    }
    return 0;
}

static bool kernel(const struct tu_coding *c, bool encode, const void *const *side,
                   struct tu_kernel_code *k)
{
    (void)encode;
    (void)side;
    if (element(c))
        k->small = element(c)->dtype;
    k->rule = (uint32_t)c->param[RULE];
    return k->small == TU_F8_E4M3FN || k->small == TU_F8_E5M2 || k->small == TU_F4_E2M1;
}

static const struct element fp8 = {"e4m3", "e5m2"}, fp6 = {"e3m2", "e2m3"},
                            fp4 = {"e2m1", NULL}, int8 = {NULL, NULL};

#define ROW(id, text, form, key_list)                                                    \
    {                                                                                    \
        .name = id, .help = text, .source = "OCP Microscaling Formats 1.0",              \
        .key = key_list, .format = form, .plan = plan, .encode = encode,                 \
        .decode = decode, .kernel = kernel                                               \
    }

const struct tu_codec tui_codecs_mx[] = {
    ROW("mxfp8", "E4M3 or E5M2, a power of two per 32", &fp8, keys_two),
    ROW("mxfp6", "E3M2 or E2M3, a power of two per 32", &fp6, keys_two),
    ROW("mxfp4_packed", "E2M1 in pairs, a power of two per 32", &fp4, keys_one),
    ROW("mxint8", "int8 over 64, a power of two per 32", &int8, keys_one),
    {.name = NULL},
};
