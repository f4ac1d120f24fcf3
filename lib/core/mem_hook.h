/* SPDX-License-Identifier: Apache-2.0 */
/* mem_hook.h: failure injection for what does not call tu_alloc: libraries that accept
 * allocators (Jansson, PCRE2), and what has its memory already. */
#ifndef TENSORUTILS_CORE_MEM_HOOK_H
#define TENSORUTILS_CORE_MEM_HOOK_H

#include <stdbool.h>
#include <stddef.h>

struct tu_err;

void *tui_malloc(size_t n);
void tui_mfree(void *p);
/* n bytes are taken out of memory that is there: true, with *err, where a test wants even that to
 * fail (TU_MEM_FINE). */
bool tui_mem_refuse(size_t n, struct tu_err *err);

#endif
