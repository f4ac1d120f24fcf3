/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_avx2.c: the reduction kernels, compiled with AVX2. */
#if defined __x86_64__ && !defined TU_NO_X86
#define GET tui_reduce_avx2
#include "reduce_body.h"
#else
typedef int tui_nothing_here; /* an empty file is no C */
#endif
