/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.h: SHA-256 (FIPS 180-4), one stream through nettle, or many side by side. */
#ifndef TENSORUTILS_CORE_SHA256_H
#define TENSORUTILS_CORE_SHA256_H

#include <stddef.h>
#include "attr.h"
#include "err.h"

TU_BEGIN

#define TU_SHA256_SIZE 32
#define TU_SHA256_HEX 65 /* with its NUL */

struct tu_sha256;
TU_API TU_MUST struct tu_sha256 *tu_sha256_new(struct tu_err *err);
TU_API void tu_sha256_free(struct tu_sha256 *s);
TU_API void tu_sha256_add(struct tu_sha256 *s, const void *p, size_t n);
/* n bytes, at p[i], to each of several. Side by side they are quicker than one after the other:
 * two by the CPU's SHA instructions, TU_SHA256_STREAMS in the lanes of AVX-512. */
#define TU_SHA256_STREAMS 16
TU_API void tu_sha256_add_each(struct tu_sha256 *const *s, const void *const *p, size_t streams,
                               size_t n);
/* The digest of what was added; the object starts again. */
TU_API void tu_sha256_end(struct tu_sha256 *s, unsigned char out[TU_SHA256_SIZE]);
TU_API void tu_sha256_hex(const unsigned char digest[TU_SHA256_SIZE], char out[TU_SHA256_HEX]);

TU_END

#endif
