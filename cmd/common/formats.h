/* SPDX-License-Identifier: Apache-2.0 */
/* formats.h: the table of file formats as values of options and as a list, and the options
 * of commands that open files of any format. */
#ifndef COMMON_FORMATS_H
#define COMMON_FORMATS_H

#include <tensorutils/format.h>
#include "common/cmd.h"
#include "common/opt.h"

#define TU_FORMATS_MAX 16

/* Names for TU_OPT_CHOICE, NULL-ended, of formats that are read or written; filled by
 * tu_formats_begin, which a command's main calls first. */
extern const char *tu_readable[TU_FORMATS_MAX], *tu_writable[TU_FORMATS_MAX];
void tu_formats_begin(void);
/* The format of a choice; NULL for -1, which means that it is to be guessed. */
const struct tu_format *tu_format_chosen(const char *const *choices, int choice);
/* Rows for an option table; o is a struct tu_open. */
#define TU_OPEN_OPTIONS(o)                                                              \
    {0, "no-crc", NULL, "do not verify checksums that the files store", TU_OPT_FLAG,    \
     &(o).no_crc, NULL, 0},                                                             \
    {0, "strict", NULL, "torch: refuse globals outside the list of known ones",         \
     TU_OPT_FLAG, &(o).strict, NULL, 0},                                                \
    {0, "void", "DTYPE", "npy: what raw elements (V1, V2) mean", TU_OPT_DTYPE,          \
     &(o).void_dtype, NULL, 0}

/* --list=formats */
extern const struct tu_listing tu_format_listings[];

#endif
