/* SPDX-License-Identifier: Apache-2.0 */
/* codec.c: the table of codecs for keys and values, and what its rows share. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "codecs.h"

static const char *const order_keys[] = {"order", NULL};
static const char *const zlib_keys[] = {"order", "level", "strategy", NULL};
static const char *const zstd_keys[] = {"order", "level", NULL};
static const char *const kivi_keys[] = {"bits", "group", "residual", NULL};
static const char *const cachegen_keys[] = {"bins", "delta", NULL};
static const char *const kv4_keys[] = {"group", NULL};
static const char *const bfp_keys[] = {"bits", "block", "order", NULL};
static const char *const fmpq_keys[] = {"group", "wide", NULL};
static const char *const fp8_keys[] = {"elem", NULL};

#define CHUNKED(name, help, source, keys)                                                \
    {name, help, source, keys, true, NULL, tui_chunked_encode, tui_chunked_decode}
#define BASED(name, help, source, keys, base)                                            \
    {name, help, source, keys, false, base, tui_based_encode, tui_based_decode}

const struct tu_kv_codec tu_kv_codecs[] = {
    CHUNKED("split16", "lossless, 12 bits: 16 exponents by code, the rest listed (bf16)",
            "SplitZip, arXiv 2605.01708", order_keys),
    CHUNKED("planes", "lossless: exponents under a Huffman code; order=", NULL, order_keys),
    CHUNKED("zlib", "lossless: planes by zlib; level= strategy=huffman|default|rle", NULL,
            zlib_keys),
    CHUNKED("zstd", "lossless: planes by Zstandard, if libzstd.so.1 is there; level=", NULL,
            zstd_keys),
    CHUNKED("lz4", "lossless: planes by LZ4, if liblz4.so.1 is there", NULL, order_keys),
    {"kivi", "keys by channel, values by token, the last tokens whole; bits= group= residual=",
     "KIVI, arXiv 2402.02750", kivi_keys, false, NULL, tui_kivi_encode, tui_kivi_decode},
    BASED("kv4", "4 bits with zeros, groups along the columns; group=", "COMET, arXiv 2410.12168",
          kv4_keys, "kv4"),
    BASED("fmpq", "8 bits for blocks of outlier channels, 4 for the others; group= wide=",
          "COMET, arXiv 2410.12168", fmpq_keys, "fmpq"),
    BASED("fp8", "fp8 with a scale for each token and head; elem=e4m3|e5m2", NULL, fp8_keys,
          "fp8_channel"),
    BASED("fp8_tensor", "fp8 with a scale for the record", NULL, fp8_keys, "fp8_tensor"),
    BASED("bfp", "block floating point, channels of a head by their norm; bits= block= order=",
          "arXiv 2403.20137", bfp_keys, "bfp"),
    {"cachegen", "bins under the token's largest, entropy coded; bins= delta=",
     "CacheGen, arXiv 2310.07240, as LMCache has it", cachegen_keys, false, NULL,
     tui_cachegen_encode, tui_cachegen_decode},
    {NULL, NULL, NULL, NULL, false, NULL, NULL, NULL},
};

int tu_kv_codec_find(const struct tu_kv_codec **out, const char *name, struct tu_err *err)
{
    char text[88];
    for (*out = tu_kv_codecs; (*out)->name; ++*out)
        if (!strcmp((*out)->name, name))
            return 0;
    return tu_fail(err, TU_EUSAGE, "codec '%s': unknown (see --list=codecs)",
                   tu_text_short(name, strlen(name), text));
}

void tu_kv_coded_release(struct tu_kv_coded *c)
{
    for (unsigned i = 0; i < c->n; i++)
        tu_free(c->part[i].data);
    *c = (struct tu_kv_coded){0};
}

static int find(const struct tu_kv_codec **row, const struct tu_spec *spec,
                const struct tu_kv_array *a, struct tu_err *err)
{
    static const char *const none[] = {NULL};
    const struct tu_dtype *d = tu_dtype_find(a->dtype);
    uint64_t dim[3] = {a->tokens, a->heads, a->dim}, bytes;
    int rc = tu_kv_codec_find(row, spec->name, err);
    if (!rc)
        rc = tu_spec_check(spec, (*row)->key ? (*row)->key : none, err);
    if (!rc)
        rc = tu_tensor_bytes(a->dtype, dim, 3, &bytes, err);
    if (!rc && (!d || d->block_elems != 1 || !a->heads || !a->dim || bytes > (uint64_t)1 << 46))
        rc = tu_fail(err, TU_EUSAGE, "codec '%s': %s of %" PRIu64 " x %" PRIu64
                                     " columns cannot be coded",
                     spec->name, d ? d->name : "an unknown dtype", a->heads, a->dim);
    return rc;
}

int tu_kv_encode(const struct tu_spec *spec, const struct tu_kv_array *a, const void *x,
                 struct tu_kv_coded *out, struct tu_err *err)
{
    const struct tu_kv_codec *row;
    *out = (struct tu_kv_coded){0};
    int rc = find(&row, spec, a, err);
    if (!rc)
        rc = row->encode(row, spec, a, x, out, err);
    if (rc)
        tu_kv_coded_release(out);
    return rc;
}

int tu_kv_decode(const struct tu_spec *spec, const struct tu_kv_array *a,
                 const struct tu_kv_part *part, unsigned n, void *out, struct tu_err *err)
{
    const struct tu_kv_codec *row;
    int rc = find(&row, spec, a, err);
    return rc ? rc : row->decode(row, spec, a, part, n, out, err);
}

void *tui_part(struct tu_kv_coded *c, const char *suffix, uint32_t dtype, const uint64_t *dim,
               unsigned rank, struct tu_err *err)
{
    struct tu_kv_part *p = &c->part[c->n];
    *p = (struct tu_kv_part){.suffix = suffix, .dtype = dtype, .rank = rank};
    memcpy(p->dim, dim, rank * sizeof *dim);
    if (tu_tensor_bytes(dtype, dim, rank, &p->bytes, err) ||
        !(p->data = tu_calloc((size_t)p->bytes + 64, 1, err)))
        return NULL;
    c->n++;
    return p->data;
}

int tui_finite(const struct tu_kv_array *a, const void *x, float **out, struct tu_err *err)
{
    uint64_t n = tui_elements(a);
    *out = tu_alloc((size_t)n, sizeof **out, err);
    int rc = *out ? tu_to_float(a->dtype, x, *out, (size_t)n, err) : TU_ENOMEM;
    for (uint64_t i = 0; !rc && i < n; i++)
        if (!isfinite((*out)[i]))
            rc = tu_fail(err, TU_EUSAGE,
                         "token %" PRIu64 ", head %" PRIu64 ", column %" PRIu64
                         " is not finite: only lossless codecs keep it",
                         i / a->dim / a->heads, i / a->dim % a->heads, i % a->dim);
    if (rc) {
        tu_free(*out);
        *out = NULL;
    }
    return rc;
}

int tui_store(const struct tu_kv_array *a, const float *x, void *out, struct tu_err *err)
{
    return tu_cast(a->dtype, out, TU_F32, x, (size_t)tui_elements(a), err);
}
