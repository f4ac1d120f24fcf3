/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.h: what the two writers of GGUF's key-values share. */
#ifndef TU_MODEL_GGUF_H
#define TU_MODEL_GGUF_H

#include "fields.h"

/* GGUF's numbers of types. */
enum tui_gguf_kind {
    TUI_GGUF_U32 = 4,
    TUI_GGUF_I32 = 5,
    TUI_GGUF_F32 = 6,
    TUI_GGUF_BOOL = 7,
    TUI_GGUF_STRING = 8,
    TUI_GGUF_ARRAY = 9,
};

/* key: [type, value]; value is taken over, NULL fails with TU_ENOMEM. */
int tui_gguf_put(struct json_t *kv, const char *key, unsigned type, struct json_t *value,
                 struct tu_err *err);
/* The tokenizer's keys from the texts of tokenizer.json and its like; *found false where
 * there is none, or one of a kind that GGUF has no keys for. */
int tui_gguf_tokens(struct json_t *kv, const struct tu_model *m, const struct json_t *files,
                    bool *found, struct tu_err *err);

#endif
