/* SPDX-License-Identifier: Apache-2.0 */
/* deploy.h: coded tensors as the engines' files name and hold them: compressed-tensors,
 * AutoGPTQ, AWQ, bitsandbytes, quant_method fp8, ModelOpt; AutoRound and HQQ for reading.
 *
 * In a stream the codes of X.weight are a record of that name, its sides follow and metadata
 * `quant` says the rest. A file of an engine has other names (X.weight_packed, X.qweight),
 * a few tensors that are made up (X.weight_shape), and its words in config.json. Both are
 * views of the same bytes. May change before 1.0. */
#ifndef TENSORUTILS_QUANT_DEPLOY_H
#define TENSORUTILS_QUANT_DEPLOY_H

#include "../core.h"
#include "../format.h"

TU_BEGIN

struct json_t;

/* A stream's coded tensors as an engine loads them; `in` is taken over, on failure too, and
 * given back where nothing is coded. A config.json in META "files" gets its
 * quantization_config; quantize_config.json (GPTQ) and quant_config.json (AWQ) are added.
 * Errors: TU_EUSAGE for codecs that no engine loads, or that two different ones do. */
TU_API TU_MUST int tu_deploy_write(struct tu_source **out, struct tu_source *in,
                                   struct tu_err *err);
/* The reverse: config is the object quantization_config, or a quantize_config.json. *any false
 * where it names nothing that is known, and `in` is given back. Errors: TU_EFORMAT,
 * TU_EINCOMPLETE naming a tensor that is missing, TU_EUNSUP. */
TU_API TU_MUST int tu_deploy_read(struct tu_source **out, struct tu_source *in,
                                  const struct json_t *config, bool *any, struct tu_err *err);

TU_END

#endif
