/* SPDX-License-Identifier: Apache-2.0 */
/* quantize imatrix: inputs of layers as an importance matrix of llama.cpp. */
#include <string.h>
#include "quantize/calib.h"

static int legacy;
static const char *const forms[] = {"gguf", "legacy", NULL};

/* X.weight of X.input; false for another record. */
static bool weight_of(const char *input, char *out, size_t cap)
{
    static const char end[] = ".input";
    size_t n = strlen(input), k = sizeof end - 1;
    return n > k && !strcmp(input + n - k, end) &&
           snprintf(out, cap, "%.*s.weight", (int)(n - k), input) < (int)cap;
}

static int add_input(struct tu_imatrix *m, const struct calib *c, size_t i, struct tu_err *err)
{
    const struct tu_tensor *t = &c->source->tensor[i];
    char name[1024];
    float *w = NULL;
    if (!weight_of(t->name, name, sizeof name) || !t->rank || !t->dim[t->rank - 1])
        return 0;
    uint64_t cols = t->dim[t->rank - 1], n;
    int rc = tu_elements(t->dim, t->rank, &n, err);
    if (!rc)
        rc = calib_importance(c, i, cols, &w, err);
    if (!rc)
        rc = tu_imatrix_add(m, name, w, cols, n / cols, err);
    tu_free(w);
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct calib c = {.ctx = ctx};
    struct tu_imatrix *m = NULL;
    struct tu_err err;
    int rc = tu_imatrix_new(&m, &err);
    for (int i = 0; !rc && i < (argc ? argc : 1); i++) {
        rc = calib_open(&c, argc ? argv[i] : "-", NULL, ctx, &err);
        for (size_t k = 0; !rc && k < c.source->n; k++)
            rc = add_input(m, &c, k, &err);
        calib_close(&c);
    }
    if (!rc && !tu_imatrix_count(m))
        rc = tu_fail(&err, TU_EFORMAT, "no record is called X.input");
    if (!rc)
        rc = tu_imatrix_write(m, ctx->output, legacy != 0, tu_ctx_job(ctx), &err);
    tu_imatrix_free(m);
    return rc ? tu_error(ctx, &err) : 0;
}

static const struct tu_opt options[] = {
    {0, "form", NULL, "llama.cpp's present format, or the older one", TU_OPT_CHOICE, &legacy,
     forms, 0},
    {0},
};

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd quantize_imatrix = {
    .name = "imatrix",
    .example = "quantize imatrix inputs.tns -o imatrix.gguf",
    .summary = "write inputs of layers as an importance matrix of llama.cpp",
    .usage = usage,
    .opts = options,
    .listings = quantize_listings,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM | TU_CMD_FORMATS,
    .max = TU_ANY,
    .run = run,
};
