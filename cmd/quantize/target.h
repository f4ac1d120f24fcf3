/* SPDX-License-Identifier: Apache-2.0 */
/* target.h: where records go: a stream on standard output or in a file, or a file or folder
 * of another format, made of the stream when that is whole. */
#ifndef QUANTIZE_TARGET_H
#define QUANTIZE_TARGET_H

#include "quantize/quantize.h"

struct target {
    struct tu_ctx *ctx;
    struct tu_writer *writer;    /* NULL: nothing is kept */
    const struct tu_format *to;  /* NULL: the stream itself */
    int work;                    /* descriptor of the stream that the other format is made of */
    char *beside;                /* the input's folder, for its small files */
    /* With --resume: what an earlier run has left, and what this one leaves. */
    char *partial, *old_path;
    struct tu_reader *old;
    const struct tu_record *rec; /* of old, not yet used */
    uint64_t good;               /* tensors of old that are whole, from rec on */
};

/* Rows for an option table. */
#define TARGET_OPTIONS                                                                   \
    {0, "to", NULL, "what -o is to be; default: by its name",                                 \
     TU_OPT_CHOICE, &target_opt.to, target_formats, 0},                                   \
        {0, "max-shard-size", NULL, "hf, gguf: bytes of a file", TU_OPT_SIZE,             \
         &target_opt.max_shard, NULL, 0}
#define RESUME_OPTION                                                                    \
    {0, "resume", NULL, "go on where an earlier run of the same command stopped",         \
     TU_OPT_FLAG, &target_opt.resume, NULL, 0}

struct target_opt {
    int to; /* index, -1: by name */
    uint64_t max_shard;
    bool resume;
};
extern struct target_opt target_opt;
extern const char *const target_formats[];

TU_MUST int target_open(struct target *t, struct tu_ctx *ctx, struct tu_err *err);
/* Does the output hold Hugging Face's names? Will an engine load it from safetensors? */
bool target_is_hf(const struct tu_ctx *ctx);
/* The names that it wants its tensors to have. */
enum seen target_seen(const struct tu_ctx *ctx);
bool target_is_engine(const struct tu_ctx *ctx);
/* Codes of a tensor: the record's header, with `quant` in its metadata. */
TU_MUST int target_begin(struct target *t, const struct tu_coding *c, const struct tu_spec *spec,
                         const struct tu_tensor *x, struct tu_err *err);
/* Any other tensor. */
TU_MUST int target_record(struct target *t, const char *name, uint32_t dtype,
                          const uint64_t *dim, unsigned rank, const char *meta,
                          struct tu_err *err);
TU_MUST int target_write(struct target *t, const void *p, size_t n, struct tu_err *err);
/* The side tensors, after the codes. */
TU_MUST int target_sides(struct target *t, const struct tu_coding *c, const char *name,
                         void *const *side, struct tu_err *err);
TU_MUST int target_copy(struct target *t, struct input *in, struct tu_err *err);
TU_MUST int target_meta(struct target *t, const char *topic, const char *json, size_t n,
                        struct tu_err *err);
/* The META at hand, for tensors that are no longer the codes that config.json speaks of. */
TU_MUST int target_meta_plain(struct target *t, const struct input *in, struct tu_err *err);
TU_MUST int target_end(struct target *t, struct tu_err *err);
/* What an earlier run has made of this tensor goes to the output; *yes false where it has
 * not come so far, or has made something else. c NULL: the tensor is kept or cast to dtype. */
TU_MUST int target_reuse(struct target *t, const struct tu_coding *c, const struct tu_spec *spec,
                         const struct tu_tensor *x, uint32_t dtype, bool *yes,
                         struct tu_err *err);
/* All is written: finish and publish. */
TU_MUST int target_close(struct target *t, struct tu_err *err);
void target_abort(struct target *t); /* what is not closed */

#endif
