/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c: the registry's rows, the format's size oracles, every way to overflow. */
#include <tensorutils/core.h>
#include "../tap.h"

#define U62 (UINT64_C(1) << 62)
#define U63 (UINT64_C(1) << 63)

static const struct {
    uint32_t code;
    unsigned rank;
    uint64_t dim[4];
    int rc;
    uint64_t bytes;
} sizes[] = {
    {TU_BF16, 2, {2, 3}, 0, 12},
    {TU_I4, 1, {3}, 0, 2},
    {TU_F6_E2M3, 1, {5}, 0, 6},
    {TU_F6_E3M2, 1, {5}, 0, 6},
    {TU_F32, 0, {0}, 0, 4},
    {TU_F32, 2, {0, 7}, 0, 0},
    {TU_Q4_0, 2, {2, 64}, 0, 72},
    {TU_MXFP4, 2, {1, 32}, 0, 17},
    {TU_U8, 1, {UINT64_C(8589934592)}, 0, UINT64_C(8589934592)},
    {TU_U1, 1, {9}, 0, 2},
    {TU_C128, 1, {3}, 0, 48},
    {TU_U8, 1, {U63 - 1}, 0, U63 - 1},
    {TU_U8, 1, {U63}, TU_ELIMIT, 0},
    {TU_U8, 2, {U63, 0}, TU_ELIMIT, 0},
    {TU_U8, 2, {U62, 2}, TU_ELIMIT, 0},
    {TU_U8, 2, {U62, 4}, TU_ESIZE, 0},
    {TU_U8, 2, {U62, U62}, TU_ESIZE, 0},
    {TU_U8, 3, {U62, U62, 0}, 0, 0},
    {TU_F32, 1, {UINT64_C(1) << 61}, TU_ELIMIT, 0},
    {TU_F32, 1, {U62}, TU_ESIZE, 0},
    {TU_U1, 1, {U63 - 1}, 0, UINT64_C(1) << 60},
    {TU_Q4_0, 1, {31}, TU_ESIZE, 0},
    {TU_Q4_0, 2, {32, 31}, TU_ESIZE, 0},
    {TU_Q4_0, 0, {0}, TU_ESIZE, 0},
    {TU_Q4_0, 2, {3, 0}, 0, 0},
    {TU_Q6_K, 2, {3, 512}, 0, 1260},
    {0x1234, 1, {1}, TU_EDTYPE, 0},
    {0, 1, {1}, TU_EDTYPE, 0},
};

int main(void)
{
    struct tu_err err;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t bytes = 0;
        int rc =
            tu_tensor_bytes(sizes[i].code, sizes[i].dim, sizes[i].rank, &bytes, &err);
        eq_int(rc, sizes[i].rc, "row %zu: code", i);
        eq_u64(bytes, sizes[i].bytes, "row %zu: bytes", i);
    }
    uint64_t many[65], n;
    for (int i = 0; i < 65; i++)
        many[i] = 1;
    eq_int(tu_elements(many, 64, &n, &err), 0, "64 dimensions");
    eq_u64(n, 1, "of one element");
    eq_int(tu_elements(many, 65, &n, &err), TU_ELIMIT, "65 dimensions");

    size_t rows = 0;
    bool found = true, codes = true;
    for (const struct tu_dtype *t; (t = tu_dtype_row(rows)); rows++) {
        found &= tu_dtype_find(t->code) == t && tu_dtype_named(t->name) == t;
        /* An element's bits are the low byte, where the code is not ggml's. */
        codes &= t->code & TU_DTYPE_GGML ||
                 t->block_bytes * 8 == (t->code & 0xff) * t->block_elems;
    }
    eq_u64(rows, 55, "rows");
    ok(found, "each row is found by its code and its name");
    ok(codes, "each code tells the bits of an element");
    ok(!tu_dtype_named("f31") && !tu_dtype_find(0x0221), "others are not found");
    ok(tu_dtype_called("float16")->code == TU_F16 && tu_dtype_called("torch.half")->code == TU_F16 &&
           tu_dtype_called("bfloat16")->code == TU_BF16 && tu_dtype_called("bool")->code == TU_BOOL &&
           tu_dtype_called("torch.bool")->code == TU_BOOL && tu_dtype_called("f16")->code == TU_F16 &&
           tu_dtype_called("torch.float8_e4m3fn")->code == TU_F8_E4M3FN &&
           !tu_dtype_called("float17") && !tu_dtype_called("torch.") && !tu_dtype_named("float16"),
       "names of torch and numpy are input alone");
    bool all = true;
    const char *other;
    for (uint32_t i = 0, code; (other = tu_dtype_other(i, &code)); i++)
        all &= tu_dtype_called(other) == tu_dtype_find(code) && !tu_dtype_named(other);
    ok(all, "each of them is found");
    uint32_t parsed = 0;
    ok(!tu_parse_dtype("torch.int8", &parsed, &err) && parsed == TU_I8, "torch.int8");
    eq_int(tu_parse_dtype("BF16", &parsed, &err), TU_EUSAGE, "BF16");
    eq_str(err.msg, "'BF16': unknown dtype; did you mean 'bf16'?", "and what was meant");
    eq_int(tu_parse_dtype("bfloat17", &parsed, &err), TU_EUSAGE, "bfloat17");
    eq_str(err.msg, "'bfloat17': unknown dtype; did you mean 'bfloat16'?", "another name is near");
    char buf[8];
    eq_str(tu_dtype_text(TU_F8_E4M3FN, buf), "f8_e4m3fn", "name of a code");
    eq_str(tu_dtype_text(0x1234, buf), "0x1234", "name of an unknown code");
    ok(tu_dtype_is_plain(TU_BOOL) && !tu_dtype_is_plain(TU_I4) &&
           !tu_dtype_is_plain(TU_Q4_0) && !tu_dtype_is_plain(0x1234),
       "plain dtypes");
    ok(tu_dtype_is_float(TU_F4_E2M1) && tu_dtype_is_float(TU_F64) &&
           !tu_dtype_is_float(TU_C64) && !tu_dtype_is_float(TU_I8) &&
           !tu_dtype_is_float(TU_Q4_0),
       "float dtypes");
    return tap_done();
}
