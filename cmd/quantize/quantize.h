/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.h: what the subcommands share: their options, their input, the coding of one
 * tensor. */
#ifndef QUANTIZE_H
#define QUANTIZE_H

#include <stdio.h>
#include <tensorutils/format.h>
#include <tensorutils/model.h>
#include <tensorutils/quant.h>
#include "common/main.h"

extern const struct tu_cmd quantize_encode, quantize_decode, quantize_plan, quantize_measure,
    quantize_search;
extern const struct tu_listing quantize_listings[];

/* opts.c: which codec a tensor gets. */
struct choosing {
    const char *type, *recipe_file, *imatrix_path;
    struct tu_list rule;
    int compat;    /* index: none, ggml */
    int nonfinite; /* index in enum tu_nonfinite */
    bool no_fallback;
    uint64_t layers;
    /* Made of them. */
    struct tu_recipe *recipe;
    struct tu_imatrix *imatrix;
};
extern struct choosing choosing;
extern const struct tu_opt quantize_options[];

TU_MUST int choosing_begin(struct choosing *c, struct tu_ctx *ctx, struct tu_err *err);
void choosing_end(struct choosing *c);

/* What one tensor becomes. */
struct task {
    struct tu_choice choice;
    struct tu_spec spec;     /* of a codec */
    struct tu_coding coding; /* if `codec` */
    bool codec;
    uint32_t cast;           /* else: the dtype to cast to; TU_DTYPE_NONE: keep */
    float *importance;       /* owned */
    uint64_t repaired;       /* runs of weights that were all 0 */
};
TU_MUST int task_begin(struct task *t, struct choosing *c, const struct tu_tensor *tensor,
                       struct tu_err *err);
void task_end(struct task *t);
/* Bytes of everything the tensor becomes. */
uint64_t task_bytes(const struct task *t, const struct tu_tensor *tensor);

/* input.c: a stream or a file of any format, record by record. */
enum item { ITEM_TENSOR, ITEM_META, ITEM_OTHER, ITEM_END, ITEM_DONE };

struct input {
    const char *path;
    struct tu_feed *feed;
    FILE *spool;              /* of a payload that is read twice */
    bool spooled;
    struct tu_tensor tensor;  /* ITEM_TENSOR */
    const char *topic, *json; /* ITEM_META */
    size_t json_len;
    struct tu_recipe_model model; /* as far as is known */
};
TU_MUST int input_open(struct input *in, const char *path, struct tu_ctx *ctx, struct tu_err *err);
void input_close(struct input *in);
TU_MUST int input_next(struct input *in, enum item *what, struct tu_err *err);
/* Exactly n bytes of the tensor at hand. */
TU_MUST int input_read(struct input *in, void *buf, size_t n, struct tu_err *err);
/* To the tensor's first byte again; the payload of a pipe must have been spooled. */
TU_MUST int input_spool(struct input *in, struct tu_err *err);
TU_MUST int input_rewind(struct input *in, struct tu_err *err);

#endif
