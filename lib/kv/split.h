/* SPDX-License-Identifier: Apache-2.0 */
/* split.h: bf16 numbers as a 4-bit code of the exponent and 8 bits of sign and mantissa:
 * the rows of the two inner loops. */
#ifndef TU_KV_SPLIT_H
#define TU_KV_SPLIT_H

#include <tensorutils/kv/codec.h>

size_t tui_split_plain(const uint16_t *x, size_t n, const uint8_t book[16], uint8_t *code,
                       uint8_t *rest, struct tu_kv_escape *escape);
void tui_join_plain(uint16_t *x, size_t n, const uint8_t book[16], const uint8_t *code,
                    const uint8_t *rest);
size_t tui_split_avx2(const uint16_t *x, size_t n, const uint8_t book[16], uint8_t *code,
                      uint8_t *rest, struct tu_kv_escape *escape);
void tui_join_avx2(uint16_t *x, size_t n, const uint8_t book[16], const uint8_t *code,
                   const uint8_t *rest);

#endif
