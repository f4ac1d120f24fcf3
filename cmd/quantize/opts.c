/* SPDX-License-Identifier: Apache-2.0 */
/* opts.c: the options that choose a codec for each tensor, and what they make of one. */
#include <inttypes.h>
#include <string.h>
#include "quantize/calib.h"
#include "quantize/quantize.h"

struct choosing choosing = {.type = "q8_0"};

const char *const quantize_compats[] = {"none", "ggml", NULL};
const char *const quantize_nonfinites[] = {"error", "zero", "keep", NULL};

const struct tu_opt quantize_options[] = {
    {'t', "type", "CODEC|MIXTURE|DTYPE|keep", "what the weights become; default: q8_0",
     TU_OPT_STRING, &choosing.type, NULL, 0},
    {'r', "rule", "PATTERN=TYPE",
     "another type for names that match; the first wins; repeatable", TU_OPT_STRING,
     &choosing.rule, NULL, TU_OPT_EACH},
    {0, "recipe", "FILE", "a file of such rules", TU_OPT_FILE_IN, &choosing.recipe_file,
     NULL, 0},
    {0, "layers", "N",
     "layers of the model, where neither META nor names before the first tensor "
     "tell",
     TU_OPT_U64, &choosing.layers, NULL, 0},
    {0, "no-fallback", NULL, "fail before any work where a type does not fit a shape",
     TU_OPT_FLAG, &choosing.no_fallback, NULL, 0},
    {0},
};

static const char *codec_row(size_t i, const char **help)
{
    const struct tu_codec *c = tu_codec_row(i);
    *help = c ? c->help : NULL;
    return c ? c->name : NULL;
}

static const char *codec_key(size_t i, size_t k)
{
    const char *const *key = tu_codec_row(i)->key;
    for (; key && *key && k; k--)
        key++;
    return key ? *key : NULL;
}

static const char *role_row(size_t i, const char **help)
{
    return tu_role_list(i, help);
}

const struct tu_listing quantize_listings[] = {
    {"codecs", "codecs, for -t and --rule", codec_row, codec_key},
    {"mixtures", "llama.cpp's mixtures, for -t", tu_mixture_list, NULL},
    {"roles", "roles that mixtures go by, with their patterns", role_row, NULL},
    {"methods", "how inputs of layers or the step before are used, for --method",
     calib_method_row, NULL},
    {0},
};

int choosing_begin(struct choosing *c, struct tu_ctx *ctx, struct tu_err *err)
{
    int rc = tu_recipe_new(&c->recipe, c->type, err);
    for (size_t i = 0; !rc && i < c->rule.n; i++)
        rc = tu_recipe_rule(c->recipe, TU_LIST(&c->rule, const char *)[i], err);
    if (!rc && c->recipe_file)
        rc = tu_recipe_file(c->recipe, c->recipe_file, err);
    if (!rc && c->imatrix_path)
        rc = tu_imatrix_open(&c->imatrix, c->imatrix_path, tu_ctx_job(ctx), err);
    if (!rc && (c->calib_path || c->method)) {
        if (!(c->calib = tu_calloc(1, sizeof *c->calib, err)))
            return TU_ENOMEM;
        rc = calib_open(c->calib, c->calib_path, c->method, ctx, err);
    }
    return rc;
}

void choosing_end(struct choosing *c)
{
    if (c->calib)
        calib_close(c->calib);
    tu_free(c->calib);
    c->calib = NULL;
    tu_recipe_free(c->recipe);
    tu_imatrix_free(c->imatrix);
    c->recipe = NULL;
    c->imatrix = NULL;
    c->weighed = c->unweighed = 0;
    c->told = false;
    *c->missing = '\0';
}

/* The tensor's importance, a copy: from the matrix, under its own name or GGUF's, else from
 * the inputs of its layer. Checked against its columns; experts that are stacked have
 * weights each. */
static int take_importance(struct task *t, struct choosing *c,
                           const struct tu_tensor *tensor, struct tu_err *err)
{
    uint64_t n = 0, cols = tensor->rank ? tensor->dim[tensor->rank - 1] : 1;
    uint64_t stack = tensor->rank == 3 ? tensor->dim[0] : 1;
    const float *w = c->imatrix ? tu_imatrix_find(c->imatrix, tensor->name, &n) : NULL;
    size_t input = !w && c->calib ? calib_find(c->calib, tensor->name) : SIZE_MAX;
    t->parts = 1;
    if (input != SIZE_MAX) {
        int rc = calib_importance(c->calib, input, cols, &t->importance, err);
        t->coding.importance = t->importance;
        return rc;
    }
    if (c->imatrix && !c->told) {
        c->weighed += w != NULL;
        c->unweighed += !w && strcmp(c->missing, tensor->name) != 0;
        if (!w && !*c->missing)
            snprintf(c->missing, sizeof c->missing, "%s", tensor->name);
    }
    if (!w)
        return 0;
    if (n != cols && n != cols * stack)
        return tu_fail(err, TU_EUSAGE,
                       "'%.80s': %" PRIu64 " weights in the importance matrix, "
                       "expected %" PRIu64,
                       tensor->name, n, cols);
    if (!(t->importance = tu_alloc((size_t)n, sizeof *w, err)))
        return TU_ENOMEM;
    memcpy(t->importance, w, (size_t)n * sizeof *w);
    if (!c->compat)
        t->repaired = tu_importance_repair(t->importance, n, 16);
    t->coding.importance = t->importance;
    t->parts = tu_max(1, n / tu_max(cols, 1));
    return 0;
}

static int plan_codec(struct task *t, struct choosing *c,
                      const struct tu_tensor *tensor, struct tu_err *err)
{
    int rc = tu_spec_parse(&t->spec, t->choice.type, err);
    if (rc)
        return rc;
    const struct tu_codec *codec = tu_codec_find(t->spec.name);
    if (!codec) {
        t->cast = tu_dtype_named(t->spec.name)->code;
        return 0;
    }
    t->codec = true;
    t->coding.compat = c->compat != 0;
    t->coding.stream = tu_rng_stream(tensor->name);
    if (codec->flags & TU_CODEC_WEIGHTED && (rc = take_importance(t, c, tensor, err)))
        return rc;
    if (tensor->meta &&
        (strstr(tensor->meta, "\"shard\":") || strstr(tensor->meta, "\"flat\":")))
        return tu_fail(err, TU_EUSAGE, "'%.80s' is a piece: join first (tns-cat --join)",
                       tensor->name);
    if ((rc = tu_coding_init(&t->coding, &t->spec, tensor->dim, tensor->rank, err)))
        tu_err_prefix(err, "'%.80s'", tensor->name);
    return rc;
}

int task_begin(struct task *t, struct choosing *c, const struct tu_tensor *tensor,
               struct tu_err *err)
{
    memset(t, 0, sizeof *t);
    int rc = tu_recipe_choose(c->recipe, tensor, &t->choice, err);
    if (!rc && t->choice.fallback && c->no_fallback)
        rc = tu_fail(err, TU_EUSAGE, "'%.80s': %s does not fit: %s", tensor->name,
                     t->choice.wanted, t->choice.why);
    if (!rc && strcmp(t->choice.type, "keep") != 0)
        rc = plan_codec(t, c, tensor, err);
    if (rc)
        task_end(t);
    return rc;
}

void task_end(struct task *t)
{
    if (t->spec.name)
        tu_spec_release(&t->spec);
    tu_free(t->importance);
    memset(t, 0, sizeof *t);
}

uint64_t task_bytes(const struct task *t, const struct tu_tensor *tensor)
{
    uint64_t bytes = tensor->bytes;
    if (t->cast && tu_tensor_bytes(t->cast, tensor->dim, tensor->rank, &bytes, NULL))
        return 0;
    if (!t->codec)
        return bytes;
    bytes = t->coding.code.bytes;
    for (unsigned k = 0; k < t->coding.sides; k++)
        bytes += t->coding.side[k].bytes;
    return bytes;
}
