/* SPDX-License-Identifier: Apache-2.0 */
/* cat.h: the state of a tns-cat that its ways of reading share. */
#ifndef TNS_CAT_CAT_H
#define TNS_CAT_CAT_H

#include <tensorutils/stream.h>
#include "common/input.h"
#include "common/main.h"
#include "common/select.h"

struct cat_options {
    struct tu_selection select;
    struct tu_list rename, slice, dtype; /* const char * */
    struct tu_list order;                /* struct tu_pattern * */
    uint64_t align;
    bool index, join;
};

struct cat {
    const struct cat_options *opt;
    const struct tu_job *job;
    struct tu_edit *edit;
    struct tu_edit_plan plan;
    struct tu_writer *writer;
    uint64_t done, total; /* payload bytes, for progress */
};

/* One TENSOR through the edit into the output. reader: the record stands in it
 * untouched, so it may be copied as it is; else NULL. */
TU_MUST int cat_tensor(struct cat *c, const struct tu_record *rec,
                       struct tu_reader *reader, tu_pull_fn pull, void *ctx,
                       struct tu_err *err);
/* A META record; `contents` is rewritten, or left out where it can no longer be true. */
TU_MUST int cat_meta(struct cat *c, const char *topic, const char *json, size_t n,
                     struct tu_err *err);
/* END of an input segment. */
TU_MUST int cat_end(struct cat *c, struct tu_err *err);
/* order.c: a whole input with the tensors of each segment in the order asked for. */
TU_MUST int cat_ordered(struct cat *c, const char *path, struct tu_err *err);
/* source.c: a file of any format, or with --join a stream, as one segment. */
TU_MUST int cat_source(struct cat *c, const char *path, struct tu_err *err);

#endif
