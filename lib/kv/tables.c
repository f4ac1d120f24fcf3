/* SPDX-License-Identifier: Apache-2.0 */
/* tables.c: the layouts and engines of KV caches; a row each. There is none so far. */

#include <tensorutils/kv.h>

const struct tu_kv_layout *const tu_kv_layouts[] = {NULL};
const struct tu_kv_engine *const tu_kv_engines[] = {NULL};
