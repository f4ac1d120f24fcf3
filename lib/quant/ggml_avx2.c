/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_avx2.c: ggml's encoders with a sub-block in each of eight lanes. */
#if defined __x86_64__ && !defined TU_NO_X86
#include <stdbool.h>
#include <stddef.h>
#include "lanes_avx2.h"
#include "ggml_lanes.h"
#else
typedef int tui_nothing_here;
#endif
