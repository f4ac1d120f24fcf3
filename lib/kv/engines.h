/* SPDX-License-Identifier: Apache-2.0 */
/* engines.h: the rows of the table of engines, and what they share: a cache whose records
 * are pieces of files. */
#ifndef TU_KV_ENGINES_H
#define TU_KV_ENGINES_H

#include <tensorutils/kv.h>

extern const struct tu_kv_engine tui_kv_llama, tui_kv_hf, tui_kv_lmcache, tui_kv_hicache,
    tui_kv_mooncake, tui_kv_raw;

/* Rows of a record one after the other: `rows` of `row` bytes, `stride` bytes apart. */
struct tui_piece {
    size_t file;
    uint64_t off, row, rows, stride;
};

/* A cache in files: each record is its pieces in order, or is in memory, or its columns
 * lie one after the other in the file (turned: T columns of `elem` bytes a row). */
struct tui_pieces {
    struct tu_kv base;
    struct tu_in **file;
    size_t files, files_cap;
    struct tui_record {
        struct tui_piece *piece;
        size_t n, cap;
        void *memory;   /* owned */
        uint32_t turned; /* bytes of an element, 0: not turned */
    } *record;
    size_t records_cap;
    size_t held; /* the record that `hold` is, turned */
    void *hold;
};
TU_MUST int tui_pieces_new(struct tui_pieces **out, const char *name, struct tu_err *err);
/* Open one more file; its number is files-1. */
TU_MUST int tui_pieces_file(struct tui_pieces *p, const char *path, struct tu_err *err);
/* A record more, without pieces. */
TU_MUST int tui_pieces_record(struct tui_pieces *p, const char *name, uint32_t dtype,
                              const uint64_t *dim, unsigned rank, struct tu_err *err);
/* A piece of the last record. */
TU_MUST int tui_pieces_add(struct tui_pieces *p, const struct tui_piece *piece,
                           struct tu_err *err);
/* A record of i32 [n] that is in memory; the numbers are copied. */
TU_MUST int tui_pieces_ints(struct tui_pieces *p, const char *name, const int32_t *v,
                            uint64_t n, struct tu_err *err);

/* Identity that is known beforehand over what a file says; differences are an error
 * unless hint->force. */
TU_MUST int tui_kv_known(struct tu_kv *kv, const struct tu_kv_hint *hint,
                         struct tu_err *err);
/* A dtype by the words engines have for it: "f16", "half", "bfloat16", "fp8_e4m3" …; 0
 * if it is none. */
uint32_t tui_kv_dtype(const char *word);
/* Keys and values of all layers in one dtype, shape and length, by tokens: what formats
 * need that hold one array. Errors: TU_EUNSUP naming the record that differs. */
struct tui_even {
    uint64_t layers, tokens, heads, dim_k, dim_v;
    uint32_t dtype;
    bool latent;
    uint64_t row_k, row_v; /* bytes of a token */
};
TU_MUST int tui_kv_even(struct tu_kv *kv, struct tui_even *out, struct tu_err *err);
/* A file of the folder in one rename. */
TU_MUST int tui_kv_put_file(const char *folder, const char *name, const void *data,
                            size_t n, const struct tu_job *job, struct tu_err *err);
/* A folder that must be new, or may be reused by force. */
TU_MUST int tui_kv_folder(const char *path, bool force, struct tu_err *err);

#endif
