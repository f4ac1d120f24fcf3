/* SPDX-License-Identifier: Apache-2.0 */
/* attr.h: what every public declaration carries: visibility, must-use, printf checking.
 *
 * The library is built with hidden visibility; TU_API marks what is exported. */
#ifndef TENSORUTILS_CORE_ATTR_H
#define TENSORUTILS_CORE_ATTR_H

#define TU_API __attribute__((visibility("default")))
#define TU_MUST __attribute__((warn_unused_result))
#define TU_PRINTF(f, a) __attribute__((format(printf, f, a)))

#ifdef __cplusplus
#define TU_BEGIN extern "C" {
#define TU_END }
#else
#define TU_BEGIN
#define TU_END
#endif

#endif
