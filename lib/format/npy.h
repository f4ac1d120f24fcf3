/* SPDX-License-Identifier: Apache-2.0 */
/* npy.h: one .npy array, alone in a file or as a member of an .npz.
 *
 * Source: NumPy Enhancement Proposal 1, and numpy/lib/format.py for the exact bytes of a
 * header. */
#ifndef TENSORUTILS_FORMAT_NPY_H
#define TENSORUTILS_FORMAT_NPY_H

#include <tensorutils/format.h>

/* What a header says. */
struct tui_npy {
    unsigned major, minor;
    size_t head;        /* bytes before the data */
    uint32_t dtype;     /* of the tensor: a void's is what the caller said */
    bool big, fortran;  /* as stored; a tensor is little-endian and C order */
    char descr[8];      /* "<f4" */
    unsigned rank;
    uint64_t dim[TU_RANK_MAX];
    uint64_t bytes;
};

/* Parse the head of an array from the first n bytes of it; n is all there is, or
 * TUI_NPY_HEAD. Errors: TU_EMAGIC, TU_EVERSION, TU_ETRUNC, TU_ELIMIT, TU_EFORMAT,
 * TU_EUNSUP, TU_EDTYPE. */
#define TUI_NPY_HEAD ((size_t)12 + 10000)
TU_MUST int tui_npy_parse_header(struct tui_npy *out, const void *head, size_t n,
                                 uint32_t void_dtype, struct tu_err *err);

/* An array that can be read: the bytes `off` … `off + size - 1` of a file, borrowed. */
struct tui_npy_array {
    struct tui_npy h;
    struct tu_in *in;
    uint64_t data; /* offset of the elements in the file */
    void *map;     /* Fortran order: the file's pages, for a gather that jumps */
    size_t map_len;
};
/* Errors: as above, and TU_ETRUNC or TU_EGARBAGE where `size` is not head + data. The
 * message names the file and, where it is not NULL, the member. */
TU_MUST int tui_npy_open(struct tui_npy_array *a, struct tu_in *in, const char *member,
                         uint64_t off, uint64_t size, uint32_t void_dtype, struct tu_err *err);
void tui_npy_close(struct tui_npy_array *a);
/* Bytes of the tensor (C order, little-endian). Any thread. */
TU_MUST int tui_npy_read(const struct tui_npy_array *a, uint64_t off, void *buf, size_t n,
                         struct tu_err *err);
/* The tensor that the array is; `src` metadata holds what an export needs to restore the
 * bytes: the header's text where it is not the usual one, or when keep_header. */
TU_MUST int tui_npy_tensor(struct tu_tensor *out, struct tu_arena *arena,
                           const struct tui_npy_array *a, const char *name, bool keep_header,
                           struct tu_err *err);

/* Append the header for t, as numpy writes it or as t's `src` metadata asks where that
 * describes t, and say in *h how the data must be stored. Errors: TU_EDTYPE for a dtype that
 * numpy lacks (raw: bf16 and fp8 as unsigned integers); TU_EMETA, when keep_header, where no
 * kept header describes t. */
TU_MUST int tui_npy_write_header(struct tu_buf *out, struct tui_npy *h, const struct tu_tensor *t,
                                 bool raw, bool keep_header, struct tu_err *err);
/* True when the stored bytes are the tensor's bytes. */
bool tui_npy_plain(const struct tui_npy *h);
/* The whole tensor src[h->bytes] as it is stored, into dst. */
void tui_npy_store(const struct tui_npy *h, void *dst, const void *src);

#endif
