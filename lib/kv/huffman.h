/* SPDX-License-Identifier: Apache-2.0 */
/* huffman.h: bytes under a canonical Huffman code of at most 11 bits, in four streams that
 * are decoded side by side. */
#ifndef TU_KV_HUFFMAN_H
#define TU_KV_HUFFMAN_H

#include <tensorutils/core.h>

enum { TUI_HUFF_BITS = 11, TUI_HUFF_STREAMS = 4 };

/* Bytes that n may take at most. */
size_t tui_huff_bound(size_t n);
/* x[n] to out; 0 where it would not be smaller than n. */
size_t tui_huff_encode(const uint8_t *x, size_t n, uint8_t *out);
/* Exactly n bytes from in[size]; false for what encode does not make. */
bool tui_huff_decode(const uint8_t *in, size_t size, uint8_t *x, size_t n);

#endif
