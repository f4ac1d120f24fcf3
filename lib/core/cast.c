/* SPDX-License-Identifier: Apache-2.0 */
/* cast.c: arrays between dtypes.
 *
 * Values meet in the smallest type that holds them exactly: float for f32 and narrower,
 * double for f64, sign and magnitude for integers; so each result is rounded once.
 * Kernels serve the pairs that checkpoints are made of. Data may lie at any address: it
 * is copied, never cast. */
#include <tensorutils/core.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include "cast.h"

enum { CHUNK = 512 }; /* values between two steps */

/* Kernels -------------------------------------------------------------------------- */

#define PLAIN(name, from_type, to_type, convert)                                       \
    void name(void *dst, const void *src, size_t n)                                    \
    {                                                                                  \
        for (size_t i = 0; i < n; i++) {                                               \
            from_type in;                                                              \
            memcpy(&in, (const char *)src + i * sizeof in, sizeof in);                 \
            to_type out = convert(in);                                                 \
            memcpy((char *)dst + i * sizeof out, &out, sizeof out);                    \
        }                                                                              \
    }
#define WIDEN_BF16(v) ((uint32_t)(v) << 16)
PLAIN(tui_f32_to_bf16_plain, uint32_t, uint16_t, tui_f32_to_bf16)
PLAIN(tui_bf16_to_f32_plain, uint16_t, uint32_t, WIDEN_BF16)
PLAIN(tui_f32_to_f16_plain, uint32_t, uint16_t, tui_f32_to_f16)
PLAIN(tui_f16_to_f32_plain, uint16_t, uint32_t, tui_f16_to_f32)
#undef PLAIN

#if defined __x86_64__ && !defined TU_NO_X86
#define X86(name)                                                                      \
    {"avx512", TU_CPU_GROUP_AVX512, (tu_kernel_fn)name##_avx512},                      \
    {"avx2", TU_CPU_GROUP_AVX2, (tu_kernel_fn)name##_avx2},
#else
#define X86(name)
#endif
#define TABLE(table, name)                                                             \
    const struct tu_kernel table[] = {                                                 \
        X86(name) {"plain", 0, (tu_kernel_fn)name##_plain}, {NULL, 0, NULL},           \
    };
TABLE(tui_cast_f32_bf16, tui_f32_to_bf16)
TABLE(tui_cast_bf16_f32, tui_bf16_to_f32)
TABLE(tui_cast_f32_f16, tui_f32_to_f16)
TABLE(tui_cast_f16_f32, tui_f16_to_f32)

static void kernel(const struct tu_kernel *table, void *dst, const void *src, size_t n)
{
    ((tui_cast_fn)tu_kernel_pick(table, tu_cpu_bits())->fn)(dst, src, n);
}

/* Kinds ---------------------------------------------------------------------------- */

static bool is_complex(uint32_t dtype)
{
    return dtype == TU_C64 || dtype == TU_C128;
}

/* Whole numbers of whole bytes, bool (0 or 1) among them. */
static bool is_whole(uint32_t dtype)
{
    return tu_dtype_is_plain(dtype) && !tu_dtype_is_float(dtype) && !is_complex(dtype);
}

static bool is_signed(uint32_t dtype)
{
    return !(dtype >> 8);
}

static unsigned bits_of(uint32_t dtype)
{
    return dtype & 0xff;
}

static size_t bytes_of(uint32_t dtype)
{
    return tu_dtype_find(dtype)->block_bytes;
}

static int no_cast(struct tu_err *err, uint32_t to, uint32_t from)
{
    char a[8], b[8];
    return tu_fail(err, TU_EDTYPE, "cannot convert %s to %s", tu_dtype_text(from, a),
                   tu_dtype_text(to, b));
}

/* To float and double -------------------------------------------------------------- */

/* Codes of n elements of `bits` < 8 bits, the earlier in the lower bits. */
static void unpack(uint8_t *out, const uint8_t *src, unsigned bits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = i * bits, byte = at / 8;
        unsigned shift = at % 8, v = src[byte] >> shift;
        if (shift + bits > 8)
            v |= (unsigned)src[byte + 1] << (8 - shift);
        out[i] = (uint8_t)(v & ((1u << bits) - 1));
    }
}

/* The value of each code of a dtype of at most 8 bits. */
static void fill_values(float table[256], uint32_t dtype)
{
    unsigned count = 1u << bits_of(dtype);
    bool number = tu_dtype_is_float(dtype);
    for (unsigned v = 0; v < count; v++) {
        if (number)
            table[v] = tu_from_small(dtype, (uint8_t)v);
        else
            table[v] = (float)v - (is_signed(dtype) && v >= count / 2 ? (float)count : 0);
    }
}

/* n elements of a dtype of at most 8 bits by table. */
static void small_to_float(uint32_t dtype, const uint8_t *src, float *out, size_t n)
{
    float table[256];
    uint8_t code[CHUNK];
    unsigned bits = bits_of(dtype);
    fill_values(table, dtype);
    for (size_t done = 0, m; done < n; done += m) {
        m = tu_min(CHUNK, n - done); /* a chunk of any width begins a byte */
        const uint8_t *v = src + done * bits / 8;
        if (bits < 8) {
            unpack(code, v, bits, m);
            v = code;
        }
        for (size_t i = 0; i < m; i++)
            out[done + i] = table[v[i]];
    }
}

#define EACH(type, out_type)                                                           \
    for (size_t i = 0; i < n; i++) {                                                   \
        type v;                                                                        \
        memcpy(&v, (const char *)src + i * sizeof v, sizeof v);                        \
        out[i] = (out_type)v;                                                          \
    }                                                                                  \
    return 0

static int not_numbers(struct tu_err *err, uint32_t dtype)
{
    char name[8];
    return tu_fail(err, TU_EDTYPE, "%s is no type of single numbers",
                   tu_dtype_text(dtype, name));
}

int tu_to_float(uint32_t dtype, const void *src, float *out, size_t n, struct tu_err *err)
{
    switch (dtype) {
    case TU_C64:
    case TU_C128: return not_numbers(err, dtype);
    case TU_F32: memcpy(out, src, n * sizeof *out); return 0;
    case TU_F16: kernel(tui_cast_f16_f32, out, src, n); return 0;
    case TU_BF16: kernel(tui_cast_bf16_f32, out, src, n); return 0;
    case TU_F64: EACH(double, float);
    case TU_I16: EACH(int16_t, float);
    case TU_U16: EACH(uint16_t, float);
    case TU_I32: EACH(int32_t, float);
    case TU_U32: EACH(uint32_t, float);
    case TU_I64: EACH(int64_t, float);
    case TU_U64: EACH(uint64_t, float);
    }
    if (!tu_dtype_find(dtype) || (dtype & TU_DTYPE_GGML))
        return not_numbers(err, dtype);
    small_to_float(dtype, src, out, n);
    return 0;
}

int tu_to_double(uint32_t dtype, const void *src, double *out, size_t n,
                 struct tu_err *err)
{
    switch (dtype) {
    case TU_C64:
    case TU_C128:
        return tu_to_double(dtype == TU_C64 ? TU_F32 : TU_F64, src, out, 2 * n, err);
    case TU_F64: memcpy(out, src, n * sizeof *out); return 0;
    case TU_I32: EACH(int32_t, double);
    case TU_U32: EACH(uint32_t, double);
    case TU_I64: EACH(int64_t, double);
    case TU_U64: EACH(uint64_t, double);
    }
    /* All others are exact in a float. */
    float some[CHUNK];
    for (size_t done = 0, m; done < n; done += m) {
        m = tu_min(CHUNK, n - done);
        int rc = tu_to_float(dtype, (const char *)src + done * bits_of(dtype) / 8, some,
                             m, err);
        if (rc)
            return rc;
        for (size_t i = 0; i < m; i++)
            out[done + i] = some[i];
    }
    return 0;
}

/* Whole numbers -------------------------------------------------------------------- */

struct whole {
    bool minus;
    uint64_t size; /* 0 when zero, whatever minus says */
};

static struct whole load_whole(uint32_t dtype, const unsigned char *p)
{
    uint64_t v = 0;
    size_t bytes = bytes_of(dtype);
    for (size_t i = bytes; i-- > 0;)
        v = v << 8 | p[i];
    if (dtype == TU_BOOL)
        v = v != 0;
    bool minus = is_signed(dtype) && v >> (8 * bytes - 1);
    if (minus)
        v = (UINT64_C(2) << (8 * bytes - 1)) - v; /* of 64 bits: 0 - v, also right */
    return (struct whole){minus, v};
}

/* False where v does not fit. */
static bool store_whole(uint32_t dtype, unsigned char *p, struct whole v)
{
    unsigned bits = dtype == TU_BOOL ? 1 : bits_of(dtype) - is_signed(dtype);
    uint64_t most = UINT64_MAX >> (64 - bits);
    if (v.minus ? v.size > (is_signed(dtype) ? most + 1 : 0) : v.size > most)
        return false;
    uint64_t u = v.minus ? 0 - v.size : v.size;
    for (size_t i = 0; i < bytes_of(dtype); i++)
        p[i] = (unsigned char)(u >> 8 * i);
    return true;
}

static int does_not_fit(struct tu_err *err, uint32_t to, size_t i, struct whole v)
{
    char name[8];
    return tu_fail(err, TU_EUSAGE, "element %zu: %s%" PRIu64 " does not fit %s", i,
                   v.minus ? "-" : "", v.size, tu_dtype_text(to, name));
}

static int whole_to_whole(uint32_t to, unsigned char *dst, uint32_t from,
                          const unsigned char *src, size_t n, struct tu_err *err)
{
    size_t step = bytes_of(to), width = bytes_of(from);
    for (size_t i = 0; i < n; i++) {
        struct whole v = load_whole(from, src + i * width);
        if (!store_whole(to, dst + i * step, v))
            return does_not_fit(err, to, i, v);
    }
    return 0;
}

static int float_to_whole(uint32_t to, unsigned char *dst, uint32_t from,
                          const unsigned char *src, size_t n, struct tu_err *err)
{
    double some[CHUNK];
    char name[8];
    size_t step = bytes_of(to), width = bytes_of(from);
    for (size_t done = 0, m; done < n; done += m) {
        m = tu_min(CHUNK, n - done);
        int rc = tu_to_double(from, src + done * width, some, m, err);
        if (rc)
            return rc;
        for (size_t i = 0; i < m; i++) {
            double v = some[i], size = fabs(v);
            if (!(size == floor(size) && size < 0x1p64))
                return tu_fail(err, TU_EUSAGE,
                               "element %zu: %g is no whole number that fits %s",
                               done + i, v, tu_dtype_text(to, name));
            struct whole w = {v < 0, (uint64_t)size};
            if (!store_whole(to, dst + (done + i) * step, w))
                return does_not_fit(err, to, done + i, w);
        }
    }
    return 0;
}

/* Floats --------------------------------------------------------------------------- */

static void put_float(unsigned char *p, float v)
{
    memcpy(p, &v, sizeof v);
}

static void put_double(unsigned char *p, double v)
{
    memcpy(p, &v, sizeof v);
}

static void put_code(unsigned char *p, size_t bytes, uint16_t code)
{
    if (bytes == 1)
        *p = (unsigned char)code;
    else
        tu_put16(p, code);
}

static int whole_to_float(uint32_t to, unsigned char *dst, uint32_t from,
                          const unsigned char *src, size_t n, struct tu_err *err)
{
    const struct tui_format *f = tui_format_of(to);
    size_t step = bytes_of(to), width = bytes_of(from);
    for (size_t i = 0; i < n; i++) {
        unsigned char *p = dst + i * step;
        struct whole v = load_whole(from, src + i * width);
        if (f)
            put_code(p, step, tui_encode(f, v.minus, v.size, 0, false));
        else if (to == TU_F32)
            put_float(p, v.minus ? -(float)v.size : (float)v.size);
        else if (to == TU_F64)
            put_double(p, v.minus ? -(double)v.size : (double)v.size);
        else
            return no_cast(err, to, from);
    }
    return 0;
}

static void double_to_float(uint32_t to, unsigned char *dst, const unsigned char *src,
                            size_t n)
{
    const struct tui_format *f = tui_format_of(to);
    size_t step = bytes_of(to);
    for (size_t i = 0; i < n; i++) {
        double v;
        memcpy(&v, src + i * sizeof v, sizeof v);
        if (f)
            put_code(dst + i * step, step, tui_encode_double(f, v, false));
        else
            put_float(dst + i * step, (float)v);
    }
}

/* From f32 and what is narrower. */
static int float_to_float(uint32_t to, unsigned char *dst, uint32_t from,
                          const unsigned char *src, size_t n, struct tu_err *err)
{
    const struct tui_format *f = tui_format_of(to);
    float some[CHUNK];
    size_t step = bytes_of(to), width = bytes_of(from);
    for (size_t done = 0, m; done < n; done += m, dst += m * step, src += m * width) {
        m = tu_min(CHUNK, n - done);
        int rc = tu_to_float(from, src, some, m, err);
        if (rc)
            return rc;
        if (to == TU_F32)
            memcpy(dst, some, m * sizeof *some);
        else if (to == TU_F16)
            kernel(tui_cast_f32_f16, dst, some, m);
        else if (to == TU_BF16)
            kernel(tui_cast_f32_bf16, dst, some, m);
        else if (to == TU_F64)
            for (size_t i = 0; i < m; i++)
                put_double(dst + i * step, (double)some[i]);
        else
            for (size_t i = 0; i < m; i++)
                put_code(dst + i * step, step,
                         tui_encode_double(f, (double)some[i], false));
    }
    return 0;
}

/* A real number is a complex one with 0 behind it. */
static int to_complex(uint32_t to, unsigned char *dst, uint32_t from,
                      const unsigned char *src, size_t n, struct tu_err *err)
{
    uint32_t part = to == TU_C64 ? TU_F32 : TU_F64;
    if (is_complex(from))
        return tu_cast(part, dst, from == TU_C64 ? TU_F32 : TU_F64, src, 2 * n, err);
    unsigned char some[CHUNK * sizeof(double)];
    size_t step = bytes_of(part), width = bytes_of(from);
    for (size_t done = 0, m; done < n; done += m, src += m * width) {
        m = tu_min(CHUNK, n - done);
        int rc = tu_cast(part, some, from, src, m, err);
        if (rc)
            return rc;
        for (size_t i = 0; i < m; i++, dst += 2 * step) {
            memcpy(dst, some + i * step, step);
            memset(dst + step, 0, step);
        }
    }
    return 0;
}

bool tu_cast_ok(uint32_t to, uint32_t from)
{
    return tu_dtype_is_plain(to) && tu_dtype_is_plain(from) &&
           (is_complex(to) || !is_complex(from));
}

int tu_cast(uint32_t to, void *dst, uint32_t from, const void *src, size_t n,
            struct tu_err *err)
{
    if (!tu_cast_ok(to, from))
        return no_cast(err, to, from);
    if (to == from) {
        if (n)
            memcpy(dst, src, n * bytes_of(to));
        return 0;
    }
    if (is_complex(to))
        return to_complex(to, dst, from, src, n, err);
    if (is_whole(to))
        return (is_whole(from) ? whole_to_whole : float_to_whole)(to, dst, from, src, n,
                                                                  err);
    if (is_whole(from))
        return whole_to_float(to, dst, from, src, n, err);
    if (from != TU_F64)
        return float_to_float(to, dst, from, src, n, err);
    double_to_float(to, dst, src, n);
    return 0;
}

/* Overflow ------------------------------------------------------------------------- */

const char *const tu_overflow_names[] = {"auto", "error", "saturate", "special", NULL};

/* May a finite value, or an infinite one, come out as something else than itself? */
static bool may_overflow(enum tu_overflow rule, uint32_t to, uint32_t from)
{
    if (rule == TU_OVERFLOW_SPECIAL || to == from || !tu_dtype_is_float(to))
        return false;
    const struct tui_format *f = tui_format_of(to);
    return rule != TU_OVERFLOW_AUTO || (f && f->inf == f->nan);
}

static double largest(uint32_t to)
{
    const struct tui_format *f = tui_format_of(to);
    return !f                ? (double)FLT_MAX
           : to == TU_F16    ? (double)tu_from_f16(f->max)
           : to == TU_BF16   ? (double)tu_from_bf16(f->max)
                             : (double)tu_from_small(to, (uint8_t)f->max);
}

/* m values and what they became: those that came out as no number are mended. */
static int mend(enum tu_overflow rule, uint32_t to, unsigned char *dst, const double *was,
                size_t first, size_t m, struct tu_err *err)
{
    char name[8];
    double is[CHUNK];
    const size_t step = bytes_of(to);
    int rc = tu_to_double(to, dst, is, m, err);
    for (size_t i = 0; i < m && !rc; i++) {
        if (isfinite(is[i]) || isnan(was[i]))
            continue;
        const double most = copysign(largest(to), was[i]);
        if (rule == TU_OVERFLOW_SATURATE)
            rc = tu_cast(to, dst + i * step, TU_F64, &most, 1, err);
        else
            rc = tu_fail(err, TU_EUSAGE, "element %zu: %g is beyond %s, %g at most",
                         first + i, was[i], tu_dtype_text(to, name), largest(to));
    }
    return rc;
}

int tu_cast_by(enum tu_overflow rule, uint32_t to, void *dst, uint32_t from,
               const void *src, size_t n, struct tu_err *err)
{
    double was[CHUNK];
    int rc = tu_cast(to, dst, from, src, n, err);
    if (!may_overflow(rule, to, from))
        return rc;
    for (size_t done = 0, m; done < n && !rc; done += m) {
        m = tu_min(CHUNK, n - done);
        rc = tu_to_double(from, (const char *)src + done * bytes_of(from), was, m, err);
        if (!rc)
            rc = mend(rule, to, (unsigned char *)dst + done * bytes_of(to), was, done, m,
                      err);
    }
    return rc;
}
