/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_avx512.c: ggml's encoders with a sub-block in each of sixteen lanes. */
#if defined __x86_64__ && !defined TU_NO_X86
#include <stdbool.h>
#include <stddef.h>
#include "lanes_avx512.h"
#include "ggml_lanes.h"
#else
typedef int tui_nothing_here;
#endif
