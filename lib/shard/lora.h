/* SPDX-License-Identifier: Apache-2.0 */
/* lora.h: an adapter's share of one atom, as windows take it. */
#ifndef TU_SHARD_LORA_H
#define TU_SHARD_LORA_H

#include "move.h"

#define TUI_PEFT_PREFIX "base_model.model."

/* What an adapter does to a weight [rows, cols]: + scale·left·right, then each row as long
 * as `length` says (DoRA). */
struct tui_delta {
    size_t rank; /* 0: nothing is added */
    uint64_t cols;
    double scale;
    float *left, *right; /* [rows, rank], [rank, cols] */
    float *length;       /* [rows]; NULL: as it comes */
};

/* What adapter l, which fits, does to a weight; *yes false: nothing. *whole: atom of
 * tui_lora_ckpt that takes its place first; UINT32_MAX: none. Any thread. */
int tui_lora_delta(const struct tu_lora *l, const struct tu_tensor *t,
                   struct tui_delta *out, uint32_t *whole, bool *yes, struct tu_err *err);
const struct tu_ckpt *tui_lora_ckpt(const struct tu_lora *l);
void tui_delta_release(struct tui_delta *d);
/* Rows r0 … r1-1 of the weight, in place. */
void tui_delta_apply(const struct tui_delta *d, double *w, uint64_t r0, uint64_t r1);
/* Is everything that the adapter changes, and o selects, among the atoms of c, in the sizes
 * that it needs? Errors: TU_EINCOMPLETE lists what is not; TU_EUNSUP. */
int tui_lora_fits(const struct tu_lora *l, const struct tu_ckpt *c,
                  const struct tu_shard_opts *o, struct tu_err *err);

#endif
