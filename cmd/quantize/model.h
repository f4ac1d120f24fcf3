/* SPDX-License-Identifier: Apache-2.0 */
/* model.h: a checkpoint's folder as llama.cpp has it: the records of GGUF, made by a
 * thread of its own and read from a pipe. */
#ifndef QUANTIZE_MODEL_H
#define QUANTIZE_MODEL_H

#include <stdbool.h>
#include "common/main.h"

struct model;
/* Errors: those of tu_ckpt_open, for any layout; TU_EUNSUP for codes, or for a family
 * that llama.cpp does not know. */
TU_MUST int model_open(struct model **out, const char *path, struct tu_ctx *ctx,
                       struct tu_err *err);
/* Where the records are read, once. */
const char *model_stream(const struct model *m);
/* Where reading has failed with rc: the reason, if it is that the records broke off. */
int model_fault(const struct model *m, int rc, struct tu_err *err);
/* NULL allowed; when nobody reads any more. */
void model_close(struct model *m);

#endif
