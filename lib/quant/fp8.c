/* SPDX-License-Identifier: Apache-2.0 */
/* fp8.c: eight-bit floats as they are: casts without a scale. Those under scales are
 * scaled.c's. */
#include <string.h>
#include "families.h"
#include "small.h"
#include "tensorutils/device/kernels.h"

enum { E5M2, NOSAT };
static const float one = 1;
static const char *const keys[] = {"elem", "nosat", NULL};

static const struct tui_small *element(const struct tu_coding *c)
{
    return tui_small_named(c->param[E5M2] ? "e5m2" : "e4m3");
}

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    const char *elem = tu_spec_get(spec, "elem");
    if (elem && strcmp(elem, "e4m3") != 0 && strcmp(elem, "e5m2") != 0)
        return tu_fail(err, TU_EUSAGE, "codec 'fp8': elem '%.20s' is not e4m3 or e5m2",
                       elem);
    c->param[E5M2] = elem && elem[1] == '5';
    c->param[NOSAT] = tu_spec_get(spec, "nosat") != NULL;
    c->code =
        (struct tu_part){.dtype = element(c)->dtype, .rank = c->rank, .atom_bytes = 1};
    memcpy(c->code.dim, c->dim, c->rank * sizeof *c->dim);
    return 0;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    (void)first;
    (void)side;
    (void)err;
    const struct tui_small *f = element(c);
    unsigned char *out = code;
    if (!c->param[NOSAT])
        tui_small_encode(c->cpu, f, x, n, n, &one, out);
    for (size_t i = 0; i < n && c->param[NOSAT]; i++)
        out[i] = tu_to_small(f->dtype, x[i], false);
    return 0;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    (void)side;
    (void)err;
    tui_small_decode(c->cpu, element(c), code, n, n, &one, x);
    return 0;
}

static bool kernel(const struct tu_coding *c, bool encode, const void *const *side,
                   struct tu_kernel_code *k)
{
    (void)encode;
    (void)side;
    k->small = element(c)->dtype;
    k->unit = 1;
    return !c->param[NOSAT];
}

const struct tu_codec tui_codecs_fp8[] = {
    {.name = "fp8",
     .help = "eight-bit floats without a scale",
     .source = "OCP 8-bit Floating Point Specification 1.0; jax-ml/ml_dtypes (nosat)",
     .key = keys,
     .plan = plan,
     .encode = encode,
     .decode = decode,
     .kernel = kernel},
    {.name = NULL},
};
