/* SPDX-License-Identifier: Apache-2.0 */
/* affine_avx512.c: the kernels of affine.h and bits.h on sixteen lanes. */
#if defined __x86_64__ && !defined TU_NO_X86
#include <stdbool.h>
#include <stddef.h>
#include "lanes_avx512.h"
#include "affine_lanes.h"
#else
typedef int tui_nothing_here;
#endif
