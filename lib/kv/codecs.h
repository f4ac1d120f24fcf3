/* SPDX-License-Identifier: Apache-2.0 */
/* codecs.h: between the files of the codecs. */
#ifndef TU_KV_CODECS_H
#define TU_KV_CODECS_H

#include <tensorutils/kv.h>

typedef int (*tui_encode_fn)(const struct tu_kv_codec *row, const struct tu_spec *spec,
                             const struct tu_kv_array *a, const void *x,
                             struct tu_kv_coded *out, struct tu_err *err);
typedef int (*tui_decode_fn)(const struct tu_kv_codec *row, const struct tu_spec *spec,
                             const struct tu_kv_array *a, const struct tu_kv_part *part,
                             unsigned n, void *out, struct tu_err *err);

int tui_chunked_encode(const struct tu_kv_codec *, const struct tu_spec *,
                       const struct tu_kv_array *, const void *, struct tu_kv_coded *,
                       struct tu_err *);
int tui_chunked_decode(const struct tu_kv_codec *, const struct tu_spec *,
                       const struct tu_kv_array *, const struct tu_kv_part *, unsigned,
                       void *, struct tu_err *);
int tui_kivi_encode(const struct tu_kv_codec *, const struct tu_spec *,
                    const struct tu_kv_array *, const void *, struct tu_kv_coded *,
                    struct tu_err *);
int tui_kivi_decode(const struct tu_kv_codec *, const struct tu_spec *,
                    const struct tu_kv_array *, const struct tu_kv_part *, unsigned, void *,
                    struct tu_err *);
int tui_cachegen_encode(const struct tu_kv_codec *, const struct tu_spec *,
                        const struct tu_kv_array *, const void *, struct tu_kv_coded *,
                        struct tu_err *);
int tui_cachegen_decode(const struct tu_kv_codec *, const struct tu_spec *,
                        const struct tu_kv_array *, const struct tu_kv_part *, unsigned,
                        void *, struct tu_err *);
int tui_based_encode(const struct tu_kv_codec *, const struct tu_spec *,
                     const struct tu_kv_array *, const void *, struct tu_kv_coded *,
                     struct tu_err *);
int tui_based_decode(const struct tu_kv_codec *, const struct tu_spec *,
                     const struct tu_kv_array *, const struct tu_kv_part *, unsigned, void *,
                     struct tu_err *);

/* A part more: `bytes` of memory for it, NULL without memory. */
void *tui_part(struct tu_kv_coded *c, const char *suffix, uint32_t dtype, const uint64_t *dim,
               unsigned rank, struct tu_err *err);
/* The array as floats (tu_free); TU_EUSAGE for NaN and Inf, naming the element. */
TU_MUST int tui_finite(const struct tu_kv_array *a, const void *x, float **out,
                       struct tu_err *err);
/* Floats to the array's dtype. */
TU_MUST int tui_store(const struct tu_kv_array *a, const float *x, void *out,
                      struct tu_err *err);
static inline uint64_t tui_elements(const struct tu_kv_array *a)
{
    return a->tokens * a->heads * a->dim;
}

#endif
