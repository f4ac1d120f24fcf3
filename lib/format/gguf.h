/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.h: what reading and writing GGUF share: value types, and ggml's type numbers as
 * dtypes. */
#ifndef TENSORUTILS_FORMAT_GGUF_H
#define TENSORUTILS_FORMAT_GGUF_H

#include <tensorutils/format.h>

#define TUI_GGUF_ALIGN 32u /* unless general.alignment says otherwise */
#define TUI_GGUF_DIMS 4u
#define TUI_GGUF_NAME 63u   /* longest tensor name */
#define TUI_GGUF_KEY 65535u

/* Types of values. */
enum tui_gguf_type {
    TUI_GGUF_U8, TUI_GGUF_I8, TUI_GGUF_U16, TUI_GGUF_I16, TUI_GGUF_U32, TUI_GGUF_I32,
    TUI_GGUF_F32, TUI_GGUF_BOOL, TUI_GGUF_STRING, TUI_GGUF_ARRAY, TUI_GGUF_U64, TUI_GGUF_I64,
    TUI_GGUF_F64, TUI_GGUF_TYPES,
};

/* Bytes of a value of a type; for texts and arrays the least that one takes. */
extern const unsigned char tui_gguf_size[TUI_GGUF_TYPES];

/* TU_DTYPE_NONE for a type that is not known (or was removed). */
uint32_t tui_gguf_dtype(uint32_t ggml_type);
/* False where ggml has no such type. */
bool tui_gguf_type(uint32_t dtype, uint32_t *ggml_type);
/* A power of two, at least 8. */
bool tui_gguf_align_ok(uint64_t align);

/* save of the row; in gguf_write.c. */
TU_MUST int tui_gguf_save(struct tu_sink **out, const char *path, const struct tu_save *what,
                          const struct tu_job *job, struct tu_err *err);
/* The same as a set of files with at most what->max_shard bytes of tensors each; in
 * gguf_split.c. */
TU_MUST int tui_gguf_save_split(struct tu_sink **out, const char *path,
                                const struct tu_save *what, const struct tu_job *job,
                                struct tu_err *err);

#endif
