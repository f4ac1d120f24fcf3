/* SPDX-License-Identifier: Apache-2.0 */
/* meta.h: META and metadata as they stand after quantizing. */
#ifndef QUANTIZE_META_H
#define QUANTIZE_META_H

#include "quantize/quantize.h"

/* A tensor's metadata with `quant` added. */
TU_MUST int quant_meta(const struct tu_coding *c, const struct tu_spec *spec,
                       const struct tu_tensor *t, struct tu_buf *out, struct tu_err *err);
/* A tensor's metadata (or NULL) with `change`: the codes are added to the step before. */
TU_MUST int quant_change(const char *meta, struct tu_buf *out, struct tu_err *err);
/* Metadata `quant.from`: the schemes that the numbers of these codes have been through. */
TU_MUST int quant_from(const struct tu_spec *spec, const char *meta, struct tu_buf *out,
                       struct tu_err *err);
bool quant_is_change(const char *meta);
/* META contents, of what will be written. */
TU_MUST int quant_contents(struct choosing *c, const char *json, size_t n, struct tu_buf *out,
                           struct tu_err *err);
/* META gguf with the file's type and the version of the block formats. */
TU_MUST int quant_gguf(const struct choosing *c, const char *json, size_t n, struct tu_buf *out,
                       struct tu_err *err);
/* META files of a model that is no longer codes: config.json without its words on that. */
TU_MUST int quant_plain_files(const char *json, size_t n, struct tu_buf *out,
                              struct tu_err *err);

#endif
