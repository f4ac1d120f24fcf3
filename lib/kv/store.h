/* SPDX-License-Identifier: Apache-2.0 */
/* store.h: between the files of the block store: names and paths. */
#ifndef TU_KV_STORE_H
#define TU_KV_STORE_H

#include <tensorutils/kv.h>

enum { TUI_NAME = 64, TUI_PATH = 4096 };

/* Room for out[TUI_PATH]; TU_ENAME where it does not fit. */
TU_MUST int tui_block_path(char *out, const char *dir, const char *name, struct tu_err *err);
/* The space of a cache: name[65] and the text of its JSON. */
TU_MUST int tui_space(const struct tu_kv *kv, uint64_t block, char name[65],
                      struct tu_buf *text, struct tu_err *err);
/* Name of the block of tokens that stands behind `before`. */
TU_MUST int tui_block_name(const char before[65], const int32_t *tokens, uint64_t n,
                           char out[65], struct tu_err *err);
/* Take DIR/lock; the descriptor, -1 on error. Closing it lets go. */
int tui_store_lock(const char *dir, struct tu_err *err);
/* Open a block and check it whole: checksums, and that its name is that of what it holds.
 * set gets one cache. */
TU_MUST int tui_block_open(struct tu_kv_set *set, const char *dir, const char *name,
                           char parent[65], uint64_t *index, struct tu_err *err);
/* Oldest first until what is left is at most `limit` bytes; the lock is held. */
TU_MUST int tui_evict(const char *dir, uint64_t limit, uint64_t *evicted,
                      const struct tu_job *job, struct tu_err *err);


/* Names in a folder, sorted, without . and ..; none where it does not exist. */
TU_MUST int tui_folder(const char *path, char ***file, size_t *n, size_t *cap,
                       struct tu_err *err);
void tui_folder_free(char **file, size_t n);

#endif
