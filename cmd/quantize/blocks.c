/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c: counting the blocks that a matrix needs, and writing just those. */
#include "quantize/blocks.h"
#include <inttypes.h>
#include "tensorutils/quant/sparse.h"

static int count(const float *x, uint64_t rows, uint64_t cols, const struct blocks *b,
                 bool cluster, uint64_t *kept, double *fill, struct tu_err *err)
{
    struct tu_bsr m;
    int rc = tu_bsr_pack(&m, x, rows, cols, b->size, cluster, err);
    if (rc)
        return rc;
    *kept = m.blocks;
    *fill = tu_bsr_fill(&m);
    tu_bsr_release(&m);
    return 0;
}

/* bsr with as many places as there are blocks. */
static int plan(const struct blocks *b, const struct tu_tensor *t, struct tu_spec *spec,
                struct tu_coding *c, struct tu_err *err)
{
    struct tu_buf text = {0};
    char dtype[8];
    int rc = tu_buf_printf(&text, err, "bsr:size=%" PRIu64 ",blocks=%" PRIu64 "%s,value=%s",
                           b->size, b->kept, b->cluster ? ",cluster" : "",
                           tu_dtype_text(t->dtype == TU_F64 ? TU_F32 : t->dtype, dtype));
    if (!rc)
        rc = tu_spec_parse(spec, text.data, err);
    if (!rc)
        rc = tu_coding_init(c, spec, t->dim, t->rank, err);
    tu_buf_release(&text);
    return rc;
}

int blocks_put(struct blocks *b, struct target *to, const struct tu_tensor *t, const float *x,
               struct tu_ctx *ctx, struct tu_err *err)
{
    const uint64_t cols = t->dim[t->rank - 1];
    struct tu_spec spec = {.name = NULL};
    struct tu_coding c = {.compat = false};
    void *side[TU_CODING_SIDES] = {NULL}, *code = NULL;
    uint64_t n, plain;
    int rc = tu_elements(t->dim, t->rank, &n, err);
    const uint64_t rows = rc || !cols ? 0 : n / cols;
    if (!rc)
        rc = count(x, rows, cols, b, false, &plain, &b->before, err);
    if (!rc)
        rc = count(x, rows, cols, b, b->cluster, &b->kept, &b->fill, err);
    if (!rc)
        rc = plan(b, t, &spec, &c, err);
    for (unsigned k = 0; !rc && k < c.sides; k++)
        if (!(side[k] = tu_alloc((size_t)c.side[k].bytes, 1, err)))
            rc = TU_ENOMEM;
    if (!rc && !(code = tu_alloc((size_t)c.code.bytes, 1, err)))
        rc = TU_ENOMEM;
    if (!rc)
        rc = tu_coding_encode_mem(&c, x, code, side, tu_ctx_pool(ctx), err);
    if (!rc)
        rc = target_begin(to, &c, &spec, t, err);
    if (!rc)
        rc = target_write(to, code, (size_t)c.code.bytes, err);
    if (!rc)
        rc = target_sides(to, &c, t->name, side, err);
    for (unsigned k = 0; k < c.sides; k++)
        tu_free(side[k]);
    tu_free(code);
    if (spec.name)
        tu_spec_release(&spec);
    return rc;
}
