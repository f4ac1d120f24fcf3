/* SPDX-License-Identifier: Apache-2.0 */
/* names.h: which names a value may have: what an option's word for it says.
 *
 * The word is alternatives between '|': SCHEDULE[:KEY=VALUE,...] names rows of the table
 * `schedules`, RATE begins with a digit, and a word in lower case stands for itself. With any
 * other alternative (FILE, N), or something that may stand before ([REGEX=]DTYPE), other values
 * are good, too. One reading of the word gives the check, "did you mean" and completion. */
#ifndef COMMON_NAMES_H
#define COMMON_NAMES_H

#include "common/cmd.h"

#define TU_NAMES_MAX 8

struct tu_names {
    const struct tu_listing *table[TU_NAMES_MAX];
    char literal[TU_NAMES_MAX][24];
    size_t tables, literals;
    bool dtypes, rates, open; /* dtypes: whatever they are called */
};

/* Table i of a command: its own, those of the whole command, and `dtypes` where an option takes
 * one. NULL past the last. */
const struct tu_listing *tu_listing_nth(const struct tu_cmd *top, const struct tu_cmd *cmd,
                                        size_t i);
void tu_names_of(struct tu_names *out, const struct tu_cmd *top, const struct tu_cmd *cmd,
                 const char *word);
/* The table of names that the operands are ("[schedule ...]"), or NULL. */
const struct tu_listing *tu_names_operand(const struct tu_cmd *top, const struct tu_cmd *cmd);
/* Do the values that were given have names that exist? Errors: TU_EUSAGE. */
TU_MUST int tu_names_check(const struct tu_cmd *top, const struct tu_cmd *cmd,
                           tu_opt_tables tables, int operands, char **operand,
                           struct tu_err *err);

#endif
