/* SPDX-License-Identifier: Apache-2.0 */
/* pickle.h: what the pickle reader, the writer and the torch files share about nodes. */
#ifndef TENSORUTILS_FORMAT_PICKLE_H
#define TENSORUTILS_FORMAT_PICKLE_H

#include <tensorutils/format.h>

/* Room for `more` items behind the n that are there. */
TU_MUST int tui_pnode_reserve(struct tu_arena *a, struct tu_pnode *node, size_t more,
                              struct tu_err *err);
/* "module name" of a GLOBAL, or of the callable of a CALL; "" for other nodes and NULL. */
const char *tui_pnode_class(const struct tu_pnode *node);
/* item[k]; NULL where there is none, or no node. */
struct tu_pnode *tui_pnode_item(const struct tu_pnode *node, size_t k);

/* Values of the pickle. */
uint64_t tui_pickle_nodes(const struct tu_pickle *p);
/* Is this global one of those that honest checkpoints hold? */
bool tui_pickle_known(const char *name);
/* Give node the decimal text of a two's complement number of n > 0 bytes. */
TU_MUST int tui_pickle_decimal(struct tu_pnode *node, struct tu_arena *a,
                               const unsigned char *p, size_t n, struct tu_err *err);
/* *out is the value of a call that needs no class of anyone's; NULL where this is not
 * one. */
TU_MUST int tui_pickle_pure(struct tu_pnode **out, struct tu_arena *a, const char *name,
                            const struct tu_pnode *args, struct tu_err *err);

/* Storage classes and dtypes of torch. */
struct tui_torch_dtype {
    uint32_t dtype; /* of dtype.h */
    const char
        *storage;     /* "torch FloatStorage", NULL: only _rebuild_tensor_v3 knows it */
    const char *name; /* "torch float32" */
    unsigned pack;    /* elements in one of torch's elements */
};
const struct tui_torch_dtype *tui_torch_dtype(uint32_t dtype);
const struct tui_torch_dtype *tui_torch_storage(const char *name);
const struct tui_torch_dtype *tui_torch_named(const char *name);

/* As tu_pickle_write; order[n] gets the tensors in the order of their storages. Every
 * tensor must occur. */
TU_MUST int tui_pickle_write(struct tu_buf *out, const struct tu_pnode *root,
                             const struct tu_tensor *tensor, size_t n, size_t *order,
                             struct tu_err *err);

#endif
