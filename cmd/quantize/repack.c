/* SPDX-License-Identifier: Apache-2.0 */
/* quantize repack: integers with scales from one packing to another, code by code.
 *
 * Nothing is rounded: what the other packing cannot hold is refused, with the reason. A
 * whole tensor is in memory. */
#include "quantize/coded.h"
#include "quantize/meta.h"
#include "quantize/target.h"
#include "tensorutils/quant/ints.h"

struct run {
    struct tu_ctx *ctx;
    struct input in;
    struct target target;
    struct coded coded;
    uint64_t done;
};

/* The coding of the other packing for this matrix. */
static int plan(const struct coded *c, const struct tu_ints *m, const char *type,
                struct tu_spec *spec, struct tu_coding *to, struct tu_err *err)
{
    struct tu_buf text = {0};
    struct tu_spec given;
    int rc = tu_spec_parse(&given, type, err);
    if (rc)
        return rc;
    rc = tu_ints_spec(m, &given, &text, err);
    tu_spec_release(&given);
    if (!rc)
        rc = tu_spec_parse(spec, text.data, err);
    if (!rc)
        rc = tu_coding_init(to, spec, c->tensor.dim, c->tensor.rank, err);
    tu_buf_release(&text);
    return rc;
}

static int write_packed(struct run *r, struct tu_spec *spec, struct tu_coding *to,
                        const struct tu_ints *m, struct tu_err *err)
{
    void *side[TU_CODING_SIDES] = {NULL};
    void *code = tu_calloc((size_t)to->code.bytes, 1, err);
    int rc = code ? 0 : TU_ENOMEM;
    for (unsigned k = 0; !rc && k < to->sides; k++)
        if (!(side[k] = tu_calloc((size_t)to->side[k].bytes, 1, err)))
            rc = TU_ENOMEM;
    if (!rc)
        rc = tu_ints_pack(to, m, code, side, err);
    if (!rc)
        rc = target_begin(&r->target, to, spec, &r->coded.tensor, err);
    if (!rc)
        rc = target_write(&r->target, code, (size_t)to->code.bytes, err);
    if (!rc)
        rc = target_sides(&r->target, to, r->coded.tensor.name, side, err);
    for (unsigned k = 0; k < to->sides; k++)
        tu_free(side[k]);
    tu_free(code);
    return rc;
}

static int repack_now(struct run *r, const char *type, struct tu_err *err)
{
    struct coded *c = &r->coded;
    struct tu_ints m = {0};
    struct tu_spec spec = {0};
    struct tu_coding to = {.compat = false};
    void *code = tu_alloc((size_t)c->coding.code.bytes, 1, err);
    int rc = code ? coded_read(c, &r->in, code, (size_t)c->coding.code.bytes, err)
                  : TU_ENOMEM;
    if (!rc)
        rc = tu_ints_unpack(&c->coding, code, (const void *const *)c->side, &m, err);
    tu_free(code);
    if (!rc)
        rc = plan(c, &m, type, &spec, &to, err);
    if (!rc)
        rc = write_packed(r, &spec, &to, &m, err);
    if (rc)
        tu_err_prefix(err, "'%.80s'", c->tensor.name);
    r->done++;
    if (spec.name)
        tu_spec_release(&spec);
    tu_ints_release(&m);
    coded_forget(c);
    return rc;
}

static int repack_tensor(void *ctx, struct tu_err *err)
{
    struct run *r = ctx;
    struct tu_choice choice;
    bool yes = true;
    tu_recipe_model(choosing.recipe, &r->in.model);
    int rc = r->coded.pending ? coded_side(&r->coded, &r->in, err)
                              : coded_begin(&r->coded, &r->in, &yes, err);
    if (rc || r->coded.pending)
        return rc;
    if (!yes)
        return target_copy(&r->target, &r->in, err);
    /* Rules go by name; what the codes stand for was floating-point. */
    struct tu_tensor was = r->coded.tensor;
    if ((rc = tu_recipe_choose(choosing.recipe, &was, &choice, err)))
        return rc;
    return repack_now(r, choice.fallback ? choice.wanted : choice.type, err);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    static const char *const standard_input[] = {"-"};
    const char *const *path = argc ? (const char *const *)argv : standard_input;
    struct run r = {.ctx = ctx, .target.work = -1};
    const struct coded_pass pass = {ctx, &r.in, &r.coded, &r.target,
                                    target_is_hf(ctx) ? SEEN_AS_HF : SEEN_AS_IS, repack_tensor, &r};
    struct tu_err err;
    int rc = choosing_begin(&choosing, ctx, &err);
    if (!rc)
        rc = target_open(&r.target, ctx, &err);
    for (int i = 0; !rc && i < (argc ? argc : 1); i++)
        rc = coded_input(&pass, path[i], &err);
    if (!rc && !r.done)
        tu_warn(ctx, "no tensor holds codes: all were copied");
    if (!rc)
        rc = target_close(&r.target, &err);
    int status = rc ? tu_error(ctx, &err) : 0;
    target_abort(&r.target);
    choosing_end(&choosing);
    return status;
}

static const struct tu_opt options[] = {TARGET_OPTIONS, {0}};
static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd quantize_repack = {
    .name = "repack",
    .example = "quantize repack -t int4 gptq.tns -o out/",
    .summary = "move integer codes to another packing, without loss",
    .usage = usage,
    .opts = options,
    .shared = quantize_options,
    .listings = quantize_listings,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM | TU_CMD_FORMATS,
    .max = TU_ANY,
    .run = run,
};
