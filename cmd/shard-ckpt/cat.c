/* SPDX-License-Identifier: Apache-2.0 */
/* cat.c: canonical tensors to a stream on standard output. */

#include <string.h>

#include "opts.h"

enum { TO_CANONICAL, TO_GGUF };
static const char *const formats[] = {"canonical", "gguf", NULL};
static int to_format;

static const struct tu_opt options[] = {
    {0, "to", NULL, "names, order and META: canonical, or as llama.cpp loads them after "
                    "tns-export",
     TU_OPT_CHOICE, &to_format, formats, 0},
    {0},
};

static int put(void *ctx, const void *p, size_t n, struct tu_err *err)
{
    return tu_writer_write(ctx, p, n, err);
}

static int write_contents(struct tu_writer *w, const struct tu_ckpt *c,
                          struct tu_err *err)
{
    struct tu_buf b = {0};
    int rc = tu_ckpt_contents(c, &b, err);
    if (!rc && b.n < (size_t)16 << 20)
        rc = tu_writer_meta(w, "contents", b.data, b.n, err);
    tu_buf_release(&b);
    return rc;
}

static int write_model(struct tu_writer *w, const struct tu_ckpt *c, struct tu_err *err)
{
    struct tu_buf b = {0};
    int rc = 0;
    if (c->model.layers && !(rc = tu_model_to_meta(&b, &c->model, err)))
        rc = tu_writer_meta(w, "model", b.data, b.n, err);
    tu_buf_reset(&b);
    if (!rc && c->sides && !(rc = tu_ckpt_files(c, &b, err)))
        rc = tu_writer_meta(w, "files", b.data, b.n, err);
    if (!rc && c->optim)
        rc = tu_writer_meta(w, "optim", c->optim, c->optim_n, err);
    tu_buf_release(&b);
    return rc;
}

static int write_all(struct tu_ctx *ctx, struct tu_writer *w, const struct tu_ckpt *c,
                     struct tu_err *err)
{
    int rc = write_contents(w, c, err);
    if (!rc)
        rc = write_model(w, c, err);
    for (uint32_t a = 0; a < c->atoms && !rc; a++) {
        struct tu_record rec;
        tu_record_of(&rec, &c->atom[a].tensor);
        rc = tu_writer_record(w, &rec, err);
        if (!rc)
            rc = tu_ckpt_walk(c, a, shard_job(ctx), put, w, err);
    }
    return rc ? rc : tu_writer_end(w, false, err);
}

static int write_gguf(struct tu_ctx *ctx, struct tu_writer *w, const struct tu_ckpt *c,
                      struct tu_err *err)
{
    bool tokens = false;
    int rc = tu_ckpt_gguf(c, w, &tokens, shard_job(ctx), err);
    if (!rc && !tokens)
        tu_warn(ctx, "no tokenizer of a kind that GGUF has keys for lies beside the weights");
    return rc ? rc : tu_writer_end(w, false, err);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_ckpt *c = NULL;
    struct tu_out *out = NULL;
    struct tu_writer *w = NULL;
    struct tu_err err;
    (void)argc;
    struct tu_shard_opts o = *shard_opts(NULL, false);
    o.roles = to_format == TO_GGUF;
    int rc = shard_open(ctx, &c, argv[0], shard_from(), &o, &err);
    if (!rc)
        rc = tu_ckpt_agree(c, &o, shard_job(ctx), &err);
    if (!rc)
        rc = tu_ctx_output(ctx, &out, &err);
    if (!rc)
        rc = tu_writer_new(&w, out, &err);
    if (!rc)
        rc = to_format == TO_GGUF ? write_gguf(ctx, w, c, &err) : write_all(ctx, w, c, &err);
    if (!rc) {
        rc = tu_writer_close(w, false, &err);
        w = NULL;
    }
    tu_writer_abort(w);
    int status = rc ? shard_error(ctx, &err) : 0;
    tu_ckpt_close(c);
    return status;
}

static const char *const usage[] = {"[option ...] checkpoint", NULL};

const struct tu_cmd cmd_cat = {
    .name = "cat",
    .example = "shard-ckpt cat --include '.*layers\\.0\\.' checkpoint | tns-ls",
    .summary = "canonical tensors as a stream",
    .usage = usage,
    .opts = options,
    .shared = source_options,
    .flags = TU_CMD_STREAM,
    .min = 1,
    .max = 1,
    .run = run,
};
