/* SPDX-License-Identifier: Apache-2.0 */
/* trust.h: reading a checkpoint's files, whose stored checksums are verified first. */
#ifndef TU_SHARD_TRUST_H
#define TU_SHARD_TRUST_H

#include <tensorutils/shard.h>

struct tui_trust;

int tui_trust_new(struct tui_trust **out, const struct tu_source *s, struct tu_err *err);
void tui_trust_free(struct tui_trust *t); /* NULL is fine */

/* tu_source_read of tensor i of a file, any thread. Errors: TU_EPCRC too, unless the source
 * was opened with no_crc. */
int tui_read_sound(const struct tu_ckpt *c, uint32_t file, size_t i, uint64_t off, void *buf,
             size_t n, struct tu_err *err);

#endif
