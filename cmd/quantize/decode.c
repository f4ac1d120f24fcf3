/* SPDX-License-Identifier: Apache-2.0 */
/* quantize decode: codes back to numbers.
 *
 * What a tensor was is in its dtype (ggml's blocks) or in its `quant` metadata. Codes
 * whose side tensors follow are kept aside until those have come. */
#include "quantize/coded.h"
#include "quantize/step.h"
#include "quantize/target.h"

static uint32_t to_dtype;
enum { NAMES_KEEP, NAMES_HF };
static int hf_names = -1;
static const char *const names[] = {"keep", "hf", NULL};

struct run {
    struct tu_ctx *ctx;
    struct input in;
    struct target target;
    struct coded coded; /* the tensor that is being decoded */
    struct state state;             /* with a writer: --state */
    const struct tu_device *device; /* NULL: the CPU */
};

static int flow_read(void *ctx, void *buf, size_t n, struct tu_err *err)
{
    struct run *r = ctx;
    return coded_read(&r->coded, &r->in, buf, n, err);
}

static int flow_write(void *ctx, const void *p, size_t n, struct tu_err *err)
{
    return target_write(&((struct run *)ctx)->target, p, n, err);
}

static int decode_now(struct run *r, struct tu_err *err)
{
    struct tu_flow flow = {r, flow_read, flow_write, NULL};
    struct tu_tensor to = r->coded.tensor;
    to.dtype = to_dtype ? to_dtype : to.dtype;
    struct tu_coding_run run = {.flow = &flow, .dtype = to.dtype, .device = r->device};
    const struct step step = {r->ctx, &r->in, &r->target, &r->state, &r->coded};
    int rc = target_record(&r->target, to.name, to.dtype, to.dim, to.rank, NULL, err);
    if (!rc && r->coded.change)
        rc = step_receive(&step, to.dtype, err);
    else if (!rc)
        rc = tu_coding_decode(&r->coded.coding, &run, (const void *const *)r->coded.side,
                              tu_ctx_job(r->ctx), err);
    if (rc)
        tu_err_prefix(err, "'%.80s'", to.name);
    coded_forget(&r->coded);
    return rc;
}

static int decode_tensor(void *ctx, struct tu_err *err)
{
    struct run *r = ctx;
    bool yes = true;
    int rc = r->coded.pending ? coded_side(&r->coded, &r->in, err)
                              : coded_begin(&r->coded, &r->in, &yes, err);
    if (rc || r->coded.pending)
        return rc;
    const struct step step = {r->ctx, &r->in, &r->target, &r->state, &r->coded};
    return yes               ? decode_now(r, err)
           : r->state.writer ? step_first(&step, err)
                             : target_copy(&r->target, &r->in, err);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    static const char *const standard_input[] = {"-"};
    const char *const *path = argc ? (const char *const *)argv : standard_input;
    struct run r = {.ctx = ctx, .target.work = -1};
    const struct coded_pass pass = {
        ctx, &r.in, &r.coded, &r.target,
        (hf_names < 0 ? target_is_hf(ctx) : hf_names == NAMES_HF) ? SEEN_AS_HF : SEEN_AS_IS,
        decode_tensor, &r};
    struct tu_err err;
    int rc = tu_ctx_device(ctx, &r.device, &err);
    if (!rc && state_path)
        rc = state_open(&r.state, ctx, &err);
    if (!rc)
        rc = target_open(&r.target, ctx, &err);
    for (int i = 0; !rc && i < (argc ? argc : 1); i++)
        rc = coded_input(&pass, path[i], &err);
    if (!rc)
        rc = target_close(&r.target, &err);
    if (!rc && r.state.writer)
        rc = state_close(&r.state, &err);
    int status = rc ? tu_error(ctx, &err) : 0;
    target_abort(&r.target);
    state_abort(&r.state);
    return status;
}

static const struct tu_opt options[] = {
    {'d', "dtype", "DTYPE",
     "of the result; default: what the tensor was, f32 where that is not "
     "known",
     TU_OPT_DTYPE, &to_dtype, NULL, 0},
    {0, "names", NULL, "of a GGUF file's tensors: as they are, or Hugging Face's",
     TU_OPT_CHOICE, &hf_names, names, 0},
    STATE_OPTION,
    TARGET_OPTIONS,
    {0},
};

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd quantize_decode = {
    .name = "decode",
    .example = "quantize decode q.tns | tns-ls --stats",
    .summary = "turn codes back into numbers",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM | TU_CMD_FORMATS | TU_CMD_DEVICE,
    .max = TU_ANY,
    .run = run,
};
