/* SPDX-License-Identifier: Apache-2.0 */
/* load.h: for the readers of schedule files: operations as texts, sizes found at the end.
 */
#ifndef TUI_SCHED_LOAD_H
#define TUI_SCHED_LOAD_H

#include "sched/build.h"

struct tui_load {
    struct tui_build b;
    const struct tu_sched_hint *hint;
    uint32_t max_stage, max_mb, max_slice;
    size_t seen[TU_OP_KINDS];
    bool old_full; /* a BW occurred */
};

/* ranks: number of lists in the file. */
void tui_load_begin(struct tui_load *l, uint32_t ranks, const struct tu_sched_hint *hint,
                    struct tu_err *err);
/* One cell: "0F0", "(0F7;7B3)OVERLAP_F_B", "F0_s1"; blanks around it are allowed. column
 * counts from 0, for messages. */
void tui_load_cell(struct tui_load *l, uint32_t rank, size_t column, const char *text,
                   size_t n);
void tui_load_op(struct tui_load *l, uint32_t rank, const struct tu_op *op);
/* A word of a text with a line for each rank; empty lines are none. */
struct tui_word {
    const char *text;
    size_t n, column;
    uint32_t line, lines;
    uint64_t at; /* byte in the text */
};
/* tui_load_begin with a rank for each line, and `take` for each word. */
void tui_load_words(struct tui_load *l, const char *text, size_t n, const char *between,
                    const struct tu_sched_hint *hint,
                    int (*take)(struct tui_load *l, const struct tui_word *w,
                                struct tu_err *err),
                    struct tu_err *err);
/* Find stages, micro-batches and the placement (the rank that first runs a stage); turn
 * an old dialect into the current one. */
int tui_load_end(struct tui_load *l, struct tu_sched **out);

/* Which of its rank's stages each stage is, in order of stage number, with the stages of
 * the second pipeline counted on from the first's, or afresh; tu_free. *chunks, if not
 * NULL: most that a rank has. */
uint32_t *tui_chunk_numbers(const struct tu_sched *s, bool afresh, uint32_t *chunks,
                            struct tu_err *err);

/* The cell of an operation as PyTorch writes it; *used is 2 for an overlapped pair. */
int tui_cell_text(struct tu_buf *out, const struct tu_op *op, uint32_t slices,
                  unsigned *used, struct tu_err *err);

/* The document without its lists, and a schedule from that and from what `fill` adds to
 * the loader. */
int tui_json_head(struct tu_buf *out, const struct tu_sched *s, const struct tu_cost *c,
                  struct tu_err *err);
int tui_json_with(struct tu_sched **out, struct tu_cost *c, uint32_t ranks,
                  const char *head, size_t n,
                  int (*fill)(struct tui_load *l, const void *ctx, struct tu_err *err),
                  const void *ctx, struct tu_err *err);

extern const struct tu_sched_form tui_form_json, tui_form_csv, tui_form_zb, tui_form_grid,
    tui_form_te, tui_form_table, tui_form_trace, tui_form_svg, tui_form_text,
    tui_form_tikz, tui_form_dot;

#endif
