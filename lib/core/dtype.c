/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c: the registry's rows and the arithmetic of sizes.
 *
 * Every product is checked: shapes come from files. Not for conversions (float.c,
 * cast.c). */
#include <tensorutils/core.h>

#include <inttypes.h>
#include <stdio.h>

static const struct tu_dtype rows[] = {
#define ROW(NAME, code, elems, bytes, name, st, npy) {code, elems, bytes, name, st, npy},
    TU_DTYPE_TABLE(ROW)
#undef ROW
};

#define NROWS (sizeof rows / sizeof *rows)

const struct tu_dtype *tu_dtype_row(size_t i)
{
    return i < NROWS ? &rows[i] : NULL;
}

const struct tu_dtype *tu_dtype_find(uint32_t code)
{
    for (size_t i = 0; i < NROWS; i++)
        if (rows[i].code == code)
            return &rows[i];
    return NULL;
}

const struct tu_dtype *tu_dtype_named(const char *name)
{
    for (size_t i = 0; i < NROWS; i++)
        if (!strcmp(rows[i].name, name))
            return &rows[i];
    return NULL;
}

static const struct {
    const char *name;
    uint32_t code;
} others[] = {
    {"float64", TU_F64},   {"double", TU_F64},     {"fp64", TU_F64},
    {"float32", TU_F32},   {"float", TU_F32},      {"fp32", TU_F32},
    {"float16", TU_F16},   {"half", TU_F16},       {"fp16", TU_F16},
    {"bfloat16", TU_BF16}, {"int8", TU_I8},        {"int16", TU_I16},
    {"int32", TU_I32},     {"int64", TU_I64},      {"uint8", TU_U8},
    {"uint16", TU_U16},    {"uint32", TU_U32},     {"uint64", TU_U64},
    {"complex64", TU_C64}, {"complex128", TU_C128},
    {"float8_e4m3fn", TU_F8_E4M3FN}, {"float8_e4m3fnuz", TU_F8_E4M3FNUZ},
    {"float8_e5m2", TU_F8_E5M2},     {"float8_e5m2fnuz", TU_F8_E5M2FNUZ},
    {"float8_e8m0fnu", TU_F8_E8M0},
};

#define NOTHERS (sizeof others / sizeof *others)

const char *tu_dtype_other(size_t i, uint32_t *code)
{
    if (i >= NOTHERS)
        return NULL;
    *code = others[i].code;
    return others[i].name;
}

const struct tu_dtype *tu_dtype_called(const char *name)
{
    const struct tu_dtype *d = tu_dtype_named(name);
    const char *bare = strncmp(name, "torch.", 6) ? name : name + 6;
    for (size_t i = 0; !d && i < NOTHERS; i++)
        if (!strcmp(others[i].name, bare))
            d = tu_dtype_find(others[i].code);
    return d ? d : bare != name && !strcmp(bare, "bool") ? tu_dtype_find(TU_BOOL) : NULL;
}

static const char *any_name(const void *ctx, size_t i)
{
    (void)ctx;
    return i < NROWS ? rows[i].name : i - NROWS < NOTHERS ? others[i - NROWS].name : NULL;
}

int tu_parse_dtype(const char *s, uint32_t *code, struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_called(s);
    if (!d) {
        tu_fail(err, TU_EUSAGE, "'%.40s': unknown dtype", s);
        tu_suggest(err, s, "", any_name, NULL);
        return TU_EUSAGE;
    }
    *code = d->code;
    return 0;
}

const char *tu_dtype_text(uint32_t code, char buf[8])
{
    const struct tu_dtype *t = tu_dtype_find(code);
    if (t)
        return t->name;
    snprintf(buf, 8, "0x%04x", (unsigned)(code & 0xffff));
    return buf;
}

bool tu_dtype_is_float(uint32_t code)
{
    switch (code) {
    case TU_F64: case TU_F32: case TU_F16: case TU_BF16:
    case TU_F8_E4M3FN: case TU_F8_E4M3FNUZ: case TU_F8_E5M2: case TU_F8_E5M2FNUZ:
    case TU_F8_E8M0: case TU_F6_E2M3: case TU_F6_E3M2: case TU_F4_E2M1:
        return true;
    default:
        return false;
    }
}

bool tu_dtype_is_plain(uint32_t code)
{
    const struct tu_dtype *t = tu_dtype_find(code);
    return t && t->block_elems == 1;
}

int tu_elements(const uint64_t *dim, unsigned rank, uint64_t *out, struct tu_err *err)
{
    if (rank > TU_RANK_MAX)
        return tu_fail(err, TU_ELIMIT, "%u dimensions, at most %d are possible", rank,
                       TU_RANK_MAX);
    uint64_t n = 1;
    bool zero = false, wraps = false;
    for (unsigned i = 0; i < rank; i++) {
        if (dim[i] > TU_SIZE_MAX)
            return tu_fail(err, TU_ELIMIT, "dimension %u is %" PRIu64 ", not below 2^63",
                           i, dim[i]);
        zero |= !dim[i];
        wraps |= tu_mul_over(n, dim[i], &n);
    }
    if (zero)
        n = 0;
    else if (wraps)
        return tu_fail(err, TU_ESIZE, "the product of %u dimensions passes 2^64", rank);
    else if (n > TU_SIZE_MAX)
        return tu_fail(err, TU_ELIMIT, "%" PRIu64 " elements, not below 2^63", n);
    *out = n;
    return 0;
}

int tu_tensor_bytes(uint32_t code, const uint64_t *dim, unsigned rank, uint64_t *out,
                    struct tu_err *err)
{
    const struct tu_dtype *t = tu_dtype_find(code);
    if (!t)
        return tu_fail(err, TU_EDTYPE, "unknown dtype 0x%04x", (unsigned)code);
    uint64_t n;
    int rc = tu_elements(dim, rank, &n, err);
    if (rc)
        return rc;
    if (code & TU_DTYPE_GGML) {
        uint64_t last = rank ? dim[rank - 1] : 1;
        if (last % t->block_elems)
            return tu_fail(err, TU_ESIZE,
                           "last dimension %" PRIu64 " is no multiple of %s's %u", last,
                           t->name, t->block_elems);
    }
    uint64_t bytes;
    if (tu_mul_over(tu_ceil_div(n, t->block_elems), t->block_bytes, &bytes))
        return tu_fail(err, TU_ESIZE, "%" PRIu64 " elements of %s pass 2^64 bytes", n,
                       t->name);
    if (bytes > TU_SIZE_MAX)
        return tu_fail(err, TU_ELIMIT,
                       "%" PRIu64 " elements of %s are not below 2^63 bytes", n, t->name);
    *out = bytes;
    return 0;
}
