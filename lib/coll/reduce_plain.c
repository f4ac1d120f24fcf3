/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_plain.c: the reduction kernels, compiled with what every CPU has. */
#define GET tui_reduce_plain
#include "reduce_body.h"
