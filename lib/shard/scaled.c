/* SPDX-License-Identifier: Apache-2.0 */
/* scaled.c: quantized models: weights that are numbers only together with other tensors.
 *
 * Such a checkpoint is moved by the names of its files, weights and scales alike, as long as
 * every tensor stays whole. What would part or change one of them is refused: a layout with
 * names of its own, a cast, a mean. Sources of the names: GPTQModel, AutoAWQ,
 * compressed-tensors, bitsandbytes, HQQ, DeepSeek-V3's and gpt-oss's files. */

#include <string.h>

#include "ckpt.h"

/* Endings that no plain model has. */
static const struct {
    const char *tail, *scheme;
} marks[] = {
    {".qweight", "GPTQ or AWQ"},
    {".weight_packed", "compressed-tensors"},
    {".weight_scale", "compressed-tensors"},
    {".weight_scale_inv", "FP8 in blocks"},
    {".weight_scale_2", "ModelOpt"},
    {".SCB", "bitsandbytes"},
    {".weight.absmax", "bitsandbytes"},
    {".W_q", "HQQ"},
    {"_proj_blocks", "MXFP4"},
};

/* NULL: plain, as far as name and dtype tell. */
static const char *scheme_of(const struct tu_tensor *t)
{
    for (size_t k = 0; k < sizeof marks / sizeof *marks; k++)
        if (tui_has_suffix(t->name, marks[k].tail))
            return marks[k].scheme;
    return tu_dtype_is_plain(t->dtype) ? NULL : "packed";
}

void tui_find_scaled(struct tu_ckpt *c)
{
    for (size_t f = 0; f < c->files && !c->scheme; f++)
        for (size_t i = 0; i < c->file[f].source->n && !c->scheme; i++) {
            c->scheme = scheme_of(&c->file[f].source->tensor[i]);
            c->scaled = c->scheme ? c->file[f].source->tensor[i].name : NULL;
        }
}

int tui_need_plain(const struct tu_ckpt *c, const char *what, struct tu_err *err)
{
    return c->scheme ? tu_fail(err, TU_EUNSUP,
                               "%.60s: %s: its weights are quantized (%s: '%.60s'); 'quantize "
                               "decode' turns them into plain ones first",
                               c->root, what, c->scheme, c->scaled)
                     : 0;
}
