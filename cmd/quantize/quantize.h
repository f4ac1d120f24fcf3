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

extern const struct tu_cmd quantize_encode, quantize_decode, quantize_repack, quantize_sparsify,
    quantize_plan, quantize_measure, quantize_search, quantize_rotate, quantize_imatrix;
extern const struct tu_listing quantize_listings[];

struct calib;

/* opts.c: which codec a tensor gets. */
struct choosing {
    const char *type, *recipe_file, *imatrix_path, *calib_path, *method;
    struct tu_list rule;
    int compat;    /* index: none, ggml */
    int nonfinite; /* index in enum tu_nonfinite */
    bool no_fallback, requantize;
    uint64_t layers;
    /* Made of them. */
    struct tu_recipe *recipe;
    struct tu_imatrix *imatrix;
    struct calib *calib; /* NULL: no inputs and no method */
    /* Tensors that an importance matrix is for, with and without weights there. */
    uint64_t weighed, unweighed;
    char missing[96]; /* one without */
    bool told;
};
extern struct choosing choosing;
extern const struct tu_opt quantize_options[];
extern const char *const quantize_compats[], *const quantize_nonfinites[];

/* Rows for the tables of what codes floats. */
#define CODING_OPTIONS                                                                   \
    {0, "imatrix", "FILE", "importance matrix of llama.cpp, either format",               \
     TU_OPT_FILE_IN, &choosing.imatrix_path, NULL, 0},                                    \
        {0, "calib", "FILE", "inputs of the layers: X.input for X.weight",                \
         TU_OPT_FILE_IN, &choosing.calib_path, NULL, 0},                                  \
        {0, "method", "METHOD[:KEY=VALUE,...]", "how inputs of layers or steps are used",  \
         TU_OPT_STRING, &choosing.method, NULL, 0},                                       \
        {0, "nonfinite", NULL, "what to do with NaN and Inf", TU_OPT_CHOICE,              \
         &choosing.nonfinite, quantize_nonfinites, 0},                                    \
        {0, "compat", NULL, "reproduce the defects of a peer's encoders", TU_OPT_CHOICE,  \
         &choosing.compat, quantize_compats, 0}

TU_MUST int choosing_begin(struct choosing *c, struct tu_ctx *ctx, struct tu_err *err);
void choosing_end(struct choosing *c);

/* What one tensor becomes. */
struct task {
    struct tu_choice choice;
    struct tu_spec spec;     /* of a codec */
    struct tu_coding coding; /* if `codec` */
    bool codec;
    uint32_t cast;           /* else: the dtype to cast to; TU_DTYPE_NONE: keep */
    float *importance;       /* owned: [parts, columns] */
    uint64_t parts;          /* experts that are stacked, each with weights of its own; or 1 */
    uint64_t repaired;       /* runs of weights that were all 0 */
};
TU_MUST int task_begin(struct task *t, struct choosing *c, const struct tu_tensor *tensor,
                       struct tu_err *err);
void task_end(struct task *t);
/* Bytes of everything the tensor becomes. */
uint64_t task_bytes(const struct task *t, const struct tu_tensor *tensor);

/* input.c: a stream or a file of any format, record by record. */
enum item { ITEM_TENSOR, ITEM_META, ITEM_OTHER, ITEM_END, ITEM_DONE };

/* Under which names an operand's tensors are seen: a GGUF file's as those of Hugging Face's
 * files, a checkpoint's as those of GGUF. */
enum seen { SEEN_AS_IS, SEEN_AS_HF, SEEN_AS_GGUF };

struct model;

struct input {
    const char *path;
    char *folder;             /* of small files, where the input is one */
    struct tu_buf files;      /* META files of it */
    unsigned synthetic;       /* records of META that are made up and still to come */
    struct tu_buf model_json; /* META model of its config.json */
    enum seen seen;
    struct model *llama;      /* SEEN_AS_GGUF: where the records come from */
    struct tu_feed *feed;
    const struct tu_job *job; /* is told of what was read, `read` bytes */
    uint64_t read;
    FILE *spool;              /* of a payload that is read twice */
    bool spooled;
    struct tu_tensor tensor;  /* ITEM_TENSOR */
    const char *topic, *json; /* ITEM_META */
    size_t json_len;
    struct tu_recipe_model model; /* as far as is known */
};
/* Engines' checkpoints (quantization_config in config.json) are seen as coded tensors. */
TU_MUST int input_open(struct input *in, const char *path, enum seen seen, struct tu_ctx *ctx,
                       struct tu_err *err);
void input_close(struct input *in);
TU_MUST int input_next(struct input *in, enum item *what, struct tu_err *err);
/* Exactly n bytes of the tensor at hand. */
TU_MUST int input_read(struct input *in, void *buf, size_t n, struct tu_err *err);
/* To the tensor's first byte again; the payload of a pipe must have been spooled. */
TU_MUST int input_spool(struct input *in, struct tu_err *err);
TU_MUST int input_rewind(struct input *in, struct tu_err *err);

/* check.c: before any work. Every tensor of the source, or of the stream in a regular file (others
 * cannot be read twice), has a plan, and every rule a tensor. */
TU_MUST int choosing_check(struct choosing *c, const struct tu_source *s, struct tu_err *err);
TU_MUST int choosing_check_stream(struct choosing *c, const char *path, struct tu_ctx *ctx,
                                  struct tu_err *err);
/* When all tensors have been seen: an importance matrix that has weights for none of them is an
 * error, one that misses some a warning, once. */
TU_MUST int choosing_weighed(struct choosing *c, struct tu_ctx *ctx, struct tu_err *err);
/* What is known of the model, for the recipe. */
void choosing_model(struct choosing *c, struct input *in);
/* Codes that are already there: do they stay? Errors: TU_EUSAGE where they would be coded again
 * and nobody asked for that. */
TU_MUST int choosing_keeps(struct choosing *c, const struct tu_tensor *codes, bool *keep,
                           struct tu_err *err);

#endif
