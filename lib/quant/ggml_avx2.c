/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_avx2.c: ggml's encoders and decoders on eight lanes. */
#if defined __x86_64__ && !defined TU_NO_X86
#include <stdbool.h>
#include <stddef.h>
#include "lanes_avx2.h"
#include "ggml_lanes.h"
#include "ggml_lanes_sym.h"
#include "ggml_lanes_basic.h"
#include "ggml_lanes_decode.h"
#else
typedef int tui_nothing_here;
#endif
