/* SPDX-License-Identifier: Apache-2.0 */
/* hf.h: what reading and writing a Hugging Face folder share. */
#ifndef TENSORUTILS_FORMAT_HF_H
#define TENSORUTILS_FORMAT_HF_H

#include <tensorutils/format.h>

#define TUI_HF_SMALL ((size_t)64 << 20) /* bytes of a small file */
#define TUI_HF_ONE "model.safetensors"
#define TUI_HF_INDEX "model.safetensors.index.json"
#define TUI_HF_SHARD "model-%05u-of-%05u.safetensors"

/* "FOLDER/NAME"; tu_free. */
TU_MUST char *tui_hf_join(const char *folder, const char *name, struct tu_err *err);

/* save of the row; in hf_write.c. */
TU_MUST int tui_hf_save(struct tu_sink **out, const char *path, const struct tu_save *what,
                        const struct tu_job *job, struct tu_err *err);

#endif
