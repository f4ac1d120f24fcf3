/* SPDX-License-Identifier: Apache-2.0 */
/* formats.h: the table of file formats as values of options and as a list. */
#ifndef COMMON_FORMATS_H
#define COMMON_FORMATS_H

#include <tensorutils/format.h>
#include "common/cmd.h"

#define TU_FORMATS_MAX 16

/* Names for TU_OPT_CHOICE, NULL-ended, of formats that are read or written; filled by
 * tu_formats_begin, which a command's main calls first. */
extern const char *tu_readable[TU_FORMATS_MAX], *tu_writable[TU_FORMATS_MAX];
void tu_formats_begin(void);
/* The format of a choice; NULL for -1, which means that it is to be guessed. */
const struct tu_format *tu_format_chosen(const char *const *choices, int choice);
/* --list=formats */
extern const struct tu_listing tu_format_listings[];

#endif
