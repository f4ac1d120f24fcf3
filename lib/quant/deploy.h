/* SPDX-License-Identifier: Apache-2.0 */
/* deploy.h: the table of engines' files: which record of ours has which name there. */
#ifndef TENSORUTILS_QUANT_DEPLOY_PRIVATE_H
#define TENSORUTILS_QUANT_DEPLOY_PRIVATE_H

#include "tensorutils/quant.h"
#include "tensorutils/quant/deploy.h"

#define TUI_DEPLOY_PARTS 6

struct tui_deploy_part {
    const char *suffix; /* of our side; "" for the codes, NULL ends */
    const char *name;   /* behind X of X.weight */
    uint32_t dtype;     /* there, where it is another word for the same bytes; else 0 */
};

struct tui_deploy {
    const char *method, *format; /* quant_method, and compressed-tensors' format or NULL */
    const char *codecs;          /* names, a blank on either side */
    const char *key;             /* only with this key in the spec, without it for "!key" */
    struct tui_deploy_part part[TUI_DEPLOY_PARTS];
    bool shape;                  /* X.weight_shape, or X.shape for sparse ones */
};

/* Ends without a method. */
extern const struct tui_deploy tui_deploys[];

/* quantization_config for tensors in groups {SCHEME: [MODULE,…]} and modules that are not
 * coded; order: some of GPTQ's group indices are not those of neighbours. */
struct json_t;
int tui_deploy_config(struct tu_buf *out, const struct tui_deploy *d, struct json_t *groups,
                      struct json_t *ignore, bool order, struct tu_err *err);
/* The 16 values of bitsandbytes' book by codec name, by code. */
void tui_book16_of(const char *codec, float value[16]);
/* The row for a spec; NULL if no engine loads such codes. */
const struct tui_deploy *tui_deploy_find(const struct tu_spec *spec);
/* "model.layers.0.mlp.up_proj" of "….weight"; length, or 0 for another name. */
size_t tui_deploy_stem(const char *name);

#endif
