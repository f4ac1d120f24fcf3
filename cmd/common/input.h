/* SPDX-License-Identifier: Apache-2.0 */
/* input.h: what kind of thing an operand is. */
#ifndef COMMON_INPUT_H
#define COMMON_INPUT_H

#include <stdbool.h>
#include <tensorutils/format.h>

/* Is path a file or folder of a format other than the tensor stream, so that
 * tu_source_open is to read it? Standard input, pipes and what nobody knows are
 * streams (whose reader says what is wrong with them). */
bool tu_input_foreign(const char *path);

/* A tensor of a source read front to back: a tu_pull_fn. */
struct tu_walk {
    struct tu_source *source;
    size_t i;
    uint64_t pos;
};
int tu_walk_pull(void *walk, void *buf, size_t n, size_t *got, struct tu_err *err);

#endif
