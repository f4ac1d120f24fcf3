/* SPDX-License-Identifier: Apache-2.0 */
/* torch.h: what the files of torch share: a source in the making.
 *
 * The object graph names storages; a tensor is a strided view into one. torch.c opens the
 * zip, torch_legacy.c the older file; torch_walk.c finds the tensors in the graph,
 * torch_view.c reads what one call says, torch_json.c keeps the values that are no
 * tensors. */
#ifndef TENSORUTILS_FORMAT_TORCH_H
#define TENSORUTILS_FORMAT_TORCH_H

#include <jansson.h>
#include <stdatomic.h>
#include <tensorutils/format.h>

#include "zip.h"

/* The bytes of one storage. */
struct tui_storage {
    const char *key;
    const char *class; /* "torch FloatStorage": of the first use, NULL before it */
    uint64_t numel;    /* as pickled: elements of the class; bytes of an untyped one */
    uint64_t bytes;
    uint32_t tensors; /* views into it */
    struct tu_in *in; /* borrowed; NULL until known */
    uint64_t off;
    size_t entry;     /* of the zip, SIZE_MAX: none */
    atomic_bool good; /* its checksum was compared */
};

/* A tensor as a view: elements of `unit` bytes. */
struct tui_view {
    size_t storage;
    uint32_t dtype, rank;
    unsigned elem;          /* bytes that move together */
    uint64_t offset;        /* of element 0, in bytes */
    const uint64_t *dim;    /* [rank], of the tensor */
    const uint64_t *extent; /* [rank], in elements: dim but for packed dtypes */
    const int64_t *stride;  /* [rank], in elements */
    uint64_t numel, bytes;
    bool flat;      /* contiguous */
    bool conj, neg; /* sign bits to turn */
};

struct tui_torch {
    struct tu_source base;
    struct tu_zip *zip;  /* NULL for a legacy file */
    const char *prefix;  /* "FOLDER/data/" of the zip's storages */
    struct tu_in *in;    /* borrowed */
    struct tu_in *spool; /* inflated storages, or NULL */
    bool no_crc, big;
    struct tui_storage *storage;
    size_t storages, storage_cap;
    size_t *by_key;    /* legacy: storages sorted by key; zip: storage + 1 of an entry */
    struct tui_found { /* tensors, in the order of the graph */
        const char *name;
        struct tui_view view;
    } * found;
    size_t n, cap;
    void *map[2]; /* pages of in and spool, for views that jump */
    size_t map_n[2];
};

/* The storage that a persistent id names, with its bytes checked as far as they are
 * known. A legacy id may name a view: *view_off and *view_numel are its place in
 * elements, else 0 and the whole. */
TU_MUST int tui_torch_use(struct tui_torch *t, const struct tu_pnode *persid,
                          size_t *storage, uint64_t *view_off, uint64_t *view_numel,
                          struct tu_err *err);
/* Read a call as a tensor: *yes says whether it is one. Errors name the kind, not the
 * tensor. */
TU_MUST int tui_torch_view(struct tui_torch *t, const struct tu_pnode *call,
                           struct tui_view *view, bool *yes, struct tu_err *err);
/* Find every tensor of the object and keep what else it holds as META "torch". */
TU_MUST int tui_torch_walk(struct tui_torch *t, struct tu_pnode *root,
                           const struct tu_job *job, struct tu_err *err);
/* A value without tensors as JSON; *out is NULL where it is too large or deep, or holds
 * one. */
TU_MUST int tui_torch_json(json_t **out, const struct tu_pnode *node, struct tu_err *err);
/* A constant, text, global or empty container, which has nothing below it. */
bool tui_torch_scalar(const struct tu_pnode *node);

/* The five pickles and the storages behind them, of a file before torch 1.6. */
TU_MUST int tui_torch_legacy(struct tui_torch *t, const struct tu_open *how,
                             const struct tu_job *job, struct tu_err *err);
/* Refuse globals that are not known, when asked to be strict. */
TU_MUST int tui_torch_strict(const struct tui_torch *t, const struct tu_open *how,
                             struct tu_err *err);

/* Torch files that are written. */
TU_MUST int tui_torch_save(struct tu_sink **out, const char *path,
                           const struct tu_save *what, const struct tu_job *job,
                           struct tu_err *err);
bool tui_torch_dtype_ok(uint32_t dtype);

#endif
