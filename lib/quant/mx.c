/* SPDX-License-Identifier: Apache-2.0 */
/* mx.c: OCP microscaling: 32 elements of a row under a power of two. ggml's own MXFP4
 * blocks are ggml_fp4.c's.
 *
 * Source: OCP Microscaling Formats (MX) Specification 1.0, 6.3; the scale rules of
 * microxcaling (floor), cuBLAS (rceil), compressed-tensors (even). */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "affine.h"
#include "families.h"
#include "small.h"
#include "tensorutils/device/kernels.h"

enum { K = 32 };
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

/* floor(log2 a) of a > 0, from its bits. */
static int exponent(float a)
{
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    if (bits >> 23)
        return (int)(bits >> 23) - 127;
    return 31 - __builtin_clz(bits) - 149;
}

/* 2^e for e of -127 to 127. */
static float power(int e)
{
    uint32_t bits = e > -127 ? (uint32_t)(e + 127) << 23 : UINT32_C(1) << 22;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Smallest e with 2^e ≥ a. */
static int exponent_up(float a)
{
    int e;
    return frexpf(a, &e) == 0.5f ? e - 1 : e;
}

/* Exponent of the scale of a block whose largest magnitude is amax > 0. */
static int shared(enum rule rule, const struct tui_small *f, float amax)
{
    int emax = f ? f->emax : 0, e;
    uint32_t bits;
    switch (rule) {
    case FLOOR: e = exponent(amax) - emax; break;
    case CEIL: e = exponent_up(amax) - emax; break;
    case RCEIL: e = exponent_up(amax * (1 / (f ? f->max : 1.984375f))); break;
    default:
        memcpy(&bits, &amax, sizeof bits);
        bits += UINT32_C(1) << (22 - (f ? f->mantissa : 6));
        e = (int)(bits >> 23) - 127 - emax;
    }
    return e < -127 ? -127 : e > 127 ? 127 : e;
}

/* x / 2^e · 64 to the nearest, within ±127. */
static void int_codes(uint32_t cpu, const float *x, int e, unsigned char *code)
{
    const bool inverse = e > -120; /* that is a float; both are powers of two */
    const struct tui_affine_map map = {
        inverse ? ldexpf(1, 6 - e) : ldexpf(1, e - 6), inverse, 0, -127, 127, 128, 255};
    tui_affine_code(cpu, &map, x, K, code);
    for (unsigned i = 0; i < K; i++)
        code[i] ^= 0x80;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)err;
    const struct tui_small *f = element(c);
    const tui_small_encode_fn cast = tui_small_encoder(c->cpu);
    unsigned char *out = code, *scale = side[0], codes[K];
    for (size_t i = 0; i < n; i += K, out += c->code.atom_bytes, scale++) {
        float amax = tui_amax(x + i, K);
        if (!(amax > 0 && amax < INFINITY)) {
            *scale = amax > 0 ? 255 : 0;
            memset(out, 0, (size_t)c->code.atom_bytes);
            continue;
        }
        int e = shared((enum rule)c->param[RULE], f, amax);
        float s = power(e);
        *scale = (unsigned char)(e + 127);
        if (f)
            cast(f, x + i, K, s, codes);
        else
            int_codes(c->cpu, x + i, e, codes);
        tui_pack(out, codes, K, f ? f->bits : 8);
    }
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)err;
    const struct tui_small *f = element(c);
    const tui_small_decode_fn cast = tui_small_decoder(c->cpu);
    const unsigned char *in = code, *scale = side[0];
    unsigned char codes[K];
    for (size_t i = 0; i < n; i += K, in += c->code.atom_bytes, scale++) {
        float s = *scale == 255 ? NAN : power(*scale - 127);
        tui_unpack(codes, in, K, f ? f->bits : 8);
        if (f)
            cast(f, codes, K, s, x + i);
        for (unsigned k = 0; k < K && !f; k++)
            x[i + k] = (float)(int8_t)codes[k] / 64 * s;
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
        .decode = decode, .kernel = kernel                                 \
    }

const struct tu_codec tui_codecs_mx[] = {
    ROW("mxfp8", "E4M3 or E5M2, a power of two per 32", &fp8, keys_two),
    ROW("mxfp6", "E3M2 or E2M3, a power of two per 32", &fp6, keys_two),
    ROW("mxfp4_packed", "E2M1 in pairs, a power of two per 32", &fp4, keys_one),
    ROW("mxint8", "int8 over 64, a power of two per 32", &int8, keys_one),
    {.name = NULL},
};
