/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h: the rows [T, heads, dim] of any cache's layer and side, whatever its layout. */
#ifndef TU_KV_ROWS_H
#define TU_KV_ROWS_H

#include <tensorutils/kv.h>

struct tui_rows {
    struct tu_kv *kv;
    const struct tu_kv_layout *layout;
    struct tu_kv_table table; /* of a pool */
    bool pool;
    size_t held; /* the array that was read last */
    void *data;
};
TU_MUST int tui_rows_begin(struct tui_rows *r, struct tu_kv *kv, struct tu_err *err);
void tui_rows_end(struct tui_rows *r);
/* Sequences in it; tokens of one. */
uint64_t tui_rows_sequences(const struct tui_rows *r);
uint64_t tui_rows_tokens(const struct tui_rows *r, uint64_t seq);
/* What a layer's side is like; false where it has none. tokens: of the records by tokens,
 * which windows shorten. */
struct tui_side {
    uint32_t dtype;
    uint64_t heads, dim, tokens;
    bool latent;
    size_t record;
};
bool tui_rows_side(const struct tui_rows *r, uint64_t seq, uint64_t layer,
                   enum tu_kv_side side, struct tui_side *out);
/* Tokens first … first+n-1 of the sequence into buf, in the record's dtype. */
TU_MUST int tui_rows_read(struct tui_rows *r, uint64_t seq, uint64_t layer,
                          enum tu_kv_side side, uint64_t first, uint64_t n, void *buf,
                          struct tu_err *err);
/* Token ids and positions of a sequence (tu_free); *out NULL where there are none. */
TU_MUST int tui_rows_ids(struct tui_rows *r, uint64_t seq, int32_t **out,
                         struct tu_err *err);
TU_MUST int tui_rows_positions(struct tui_rows *r, uint64_t seq, int32_t **out,
                               struct tu_err *err);
/* Bytes of n elements in rows of cols. */
TU_MUST int tui_row_bytes(uint32_t dtype, uint64_t n, uint64_t cols, uint64_t *out,
                          struct tu_err *err);

/* META other than kv of a cache, copied. */
TU_MUST int tui_copy_metas(const struct tu_kv *kv, struct tu_writer *w,
                           struct tu_err *err);
/* A record of i32. */
TU_MUST int tui_write_ints(struct tu_writer *w, const char *name, const int32_t *v,
                           const uint64_t *dim, unsigned rank, struct tu_err *err);
/* Both forms of a table as records. */
TU_MUST int tui_write_table(struct tu_writer *w, const struct tu_kv_table *t,
                            enum tu_kv_tables form, struct tu_err *err);

#endif
