/* SPDX-License-Identifier: Apache-2.0 */
/* mem_hook.h: plain malloc and free that take part in failure injection.
 *
 * For libraries that accept allocators (Jansson, PCRE2); everything of ours uses
 * tu_alloc. */
#ifndef TENSORUTILS_CORE_MEM_HOOK_H
#define TENSORUTILS_CORE_MEM_HOOK_H

#include <stddef.h>

void *tui_malloc(size_t n);
void tui_mfree(void *p);

#endif
