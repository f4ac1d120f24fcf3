/* SPDX-License-Identifier: Apache-2.0 */
/* edit.h: what tns-cat does to records: choose, rename, slice, cast.
 *
 * An edit is planned from a record's description alone, and its payload then passes
 * through in order, in chunks: nothing here holds a tensor in memory. */
#ifndef TENSORUTILS_STREAM_EDIT_H
#define TENSORUTILS_STREAM_EDIT_H

#include "../core.h"

TU_BEGIN

/* Where payload bytes come from, in order: up to n bytes, *got = 0 at the end. */
typedef int (*tu_pull_fn)(void *ctx, void *buf, size_t n, size_t *got,
                          struct tu_err *err);

/* Slices ----------------------------------------------------------------------------- */

/* One dimension as Python writes it: "a:b" half open, either side may be left out,
 * negative counts from the end, ends past the size are cut; a single index removes the
 * dimension. */
struct tu_cut {
    bool index, has_begin, has_end;
    int64_t begin, end;
};
/* "0:10,:,3"; at most TU_RANK_MAX parts. Errors: TU_EUSAGE. */
TU_API TU_MUST int tu_cut_parse(const char *text, struct tu_cut cut[TU_RANK_MAX],
                                unsigned *n, struct tu_err *err);
/* A slice of a tensor of a known shape: a box, and the shape that is left. Dimensions
 * without a part are whole. */
struct tu_slice {
    unsigned rank, out_rank;
    uint64_t dim[TU_RANK_MAX], off[TU_RANK_MAX], len[TU_RANK_MAX], out_dim[TU_RANK_MAX];
    uint64_t row, keep_off, keep; /* bytes: a row of the input, the kept part of it */
    unsigned outer;               /* dimensions outside a row */
    uint64_t out_bytes;
};
/* Errors: TU_EUSAGE for more parts than dimensions or an index out of range; TU_EUNSUP
 * where a slice of a packed dtype does not fall on whole blocks. */
TU_API TU_MUST int tu_slice_plan(struct tu_slice *out, const struct tu_cut *cut,
                                 unsigned n, const struct tu_tensor *t,
                                 struct tu_err *err);
/* Keep what belongs to the slice of the n input bytes that stand at byte `pos` of the
 * payload, moved to the front of buf; returns how many. */
TU_API size_t tu_slice_keep(const struct tu_slice *s, uint64_t pos, void *buf, size_t n);

/* Edits ------------------------------------------------------------------------------ */

struct tu_edit;

TU_API TU_MUST int tu_edit_new(struct tu_edit **out, struct tu_err *err);
TU_API void tu_edit_free(struct tu_edit *e);
/* Keep tensors that match one of these; none given: all. */
TU_API TU_MUST int tu_edit_keep(struct tu_edit *e, const char *pattern,
                                enum tu_pattern_kind kind, struct tu_err *err);
/* Leave out tensors that match. */
TU_API TU_MUST int tu_edit_drop(struct tu_edit *e, const char *pattern,
                                enum tu_pattern_kind kind, struct tu_err *err);
/* "REGEX=REPLACEMENT": the part of the name that matches, from its start, becomes the
 * replacement ($1 … $9). Each is tried in turn on the result of the one before. */
TU_API TU_MUST int tu_edit_rename(struct tu_edit *e, const char *rule,
                                  struct tu_err *err);
/* "[REGEX=]SLICE"; the first that matches counts. */
TU_API TU_MUST int tu_edit_slice(struct tu_edit *e, const char *rule, struct tu_err *err);
/* "[REGEX=]DTYPE"; without REGEX: floating-point tensors. The first that matches
 * counts. */
TU_API TU_MUST int tu_edit_cast(struct tu_edit *e, const char *rule, struct tu_err *err);
/* What becomes of values that a cast cannot hold; TU_OVERFLOW_AUTO if never said. */
TU_API void tu_edit_overflow(struct tu_edit *e, enum tu_overflow rule);
/* True when names, shapes or dtypes may change, so that META contents must be
 * rewritten. */
TU_API bool tu_edit_changes(const struct tu_edit *e);
/* Has rule i, counted as they were added, a pattern that no tensor's name has matched yet?
 * Slices, casts and new names are tried on the tensors that are kept. */
TU_API bool tu_edit_idle(const struct tu_edit *e, size_t i);

/* What becomes of one tensor; borrows from the edit until the next plan. */
struct tu_edit_plan {
    bool keep;
    bool whole;           /* nothing but the name changes: payload and CRC stay */
    bool same;            /* not even that */
    struct tu_tensor in;  /* borrowed from the caller */
    struct tu_tensor out;
    bool sliced;
    enum tu_overflow overflow;
    struct tu_slice slice;
    uint64_t dim[TU_RANK_MAX];
};
/* Rules see the name as it came. Errors: TU_EUSAGE for a slice or cast that does not
 * fit, TU_ENAME, TU_EUNSUP for slices of pieces and of tensors whose scales are
 * elsewhere. */
TU_API TU_MUST int tu_edit_tensor(struct tu_edit *e, struct tu_edit_plan *plan,
                                  const struct tu_tensor *t, struct tu_err *err);
/* META "contents" for the edited segment, canonical; borrowed until the next call. */
TU_API TU_MUST int tu_edit_contents(struct tu_edit *e, const char *json, size_t n,
                                    const char **out, size_t *out_n, struct tu_err *err);
/* Payload through slice and cast. A plan in progress: begin, then pull until *got = 0. */
struct tu_edit_flow {
    const struct tu_edit_plan *plan;
    tu_pull_fn pull;
    void *ctx;
    unsigned char *in, *mid; /* scratch, TU_IO_CHUNK each */
    uint64_t pos, cast;       /* bytes that came; elements that were cast */
    size_t have;              /* bytes that wait in `in` */
};
TU_API TU_MUST int tu_edit_flow_begin(struct tu_edit_flow *f,
                                      const struct tu_edit_plan *plan, tu_pull_fn pull,
                                      void *ctx, struct tu_err *err);
/* *p: up to TU_IO_CHUNK bytes of the edited payload, borrowed until the next call. */
TU_API TU_MUST int tu_edit_flow_next(struct tu_edit_flow *f, const void **p, size_t *got,
                                     struct tu_err *err);
TU_API void tu_edit_flow_end(struct tu_edit_flow *f);

TU_END

#endif
