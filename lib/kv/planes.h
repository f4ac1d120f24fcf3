/* SPDX-License-Identifier: Apache-2.0 */
/* planes.h: numbers as planes of bytes: what has the exponent, and what is left. */
#ifndef TU_KV_PLANES_H
#define TU_KV_PLANES_H

#include <tensorutils/kv/codec.h>

/* The exponents of a channel lie close together: one is taken from all of its own before
 * they are counted. */
struct tui_bias {
    uint64_t columns; /* 0: none */
    uint8_t *value;   /* the columns, again and again: columns + most numbers at once */
};

/* Does it help numbers of this kind and this many? bf16 and f32, whose exponents are a
 * byte. */
bool tui_bias_helps(const struct tu_kv_array *a);
/* Room for arrays of `columns` (0: a bias of zero) taken `most` at a time; tu_free. */
TU_MUST int tui_bias_room(struct tui_bias *b, uint64_t columns, size_t most,
                          struct tu_err *err);
/* Learn them from some tokens of x; then, or with value[columns] given, repeat them. */
void tui_bias_learn(struct tui_bias *b, const struct tu_kv_array *a, const void *x);
void tui_bias_repeat(struct tui_bias *b, size_t most);

/* Numbers x[n], the first of column `col`, to n bytes of exponents and elem - 1 bytes of
 * rest for each. */
void tui_planes_apart(uint32_t dtype, const struct tui_bias *b, uint64_t col,
                      const uint8_t *x, size_t n, uint8_t *exponent, uint8_t *rest);
void tui_planes_unite(uint32_t dtype, const struct tui_bias *b, uint64_t col, uint8_t *x,
                      size_t n, const uint8_t *exponent, const uint8_t *rest);

#endif
