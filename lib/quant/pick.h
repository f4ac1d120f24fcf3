/* SPDX-License-Identifier: Apache-2.0 */
/* pick.h: functions that exist plain and on lanes, as a table from which one is taken. */
#ifndef TENSORUTILS_QUANT_PICK_H
#define TENSORUTILS_QUANT_PICK_H

#include "tensorutils/core.h"

#define TUI_ROW_PLAIN(name)                                                              \
    {"plain", 0, (tu_kernel_fn)name##_plain},                                            \
    {                                                                                    \
        NULL, 0, NULL                                                                    \
    }
#if defined __x86_64__ && !defined TU_NO_X86
#define TUI_ROWS(name)                                                                   \
    {"avx512", TU_CPU_GROUP_AVX512, (tu_kernel_fn)name##_avx512},                        \
        {"avx2", TU_CPU_GROUP_AVX2, (tu_kernel_fn)name##_avx2}, TUI_ROW_PLAIN(name)
#else
#define TUI_ROWS(name) TUI_ROW_PLAIN(name)
#endif

/* The table of name_plain, name_avx2 and name_avx512; one of them for a CPU, to be
 * called. */
#define TUI_TABLE(name) static const struct tu_kernel name##_table[] = {TUI_ROWS(name)}
#define TUI_PICK(name, cpu)                                                              \
    ((__typeof__(&name##_plain))tu_kernel_pick(name##_table, cpu)->fn)

#endif
