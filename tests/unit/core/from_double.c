/* SPDX-License-Identifier: Apache-2.0 */
/* from_double.c: every code of every small dtype survives the way through doubles;
 * rounding, saturation and packing by hand. */
#include <math.h>
#include <tensorutils/core.h>
#include "../tap.h"

/* Values of all codes of a dtype of at most 16 bits, and back. */
static void all_codes(uint32_t dtype)
{
    static unsigned char bytes[1 << 17], again[1 << 17];
    static double v[1 << 16];
    struct tu_err err;
    const struct tu_dtype *d = tu_dtype_find(dtype);
    const size_t n = d->block_bytes == 2   ? 1 << 16
                     : d->block_bytes == 3 ? 4 << 8
                                           : 256 * d->block_elems;
    for (size_t i = 0; i < n / d->block_elems; i++)
        for (size_t b = 0; b < d->block_bytes; b++)
            bytes[i * d->block_bytes + b] =
                (unsigned char)(b == 1 ? i >> 8 : i * (1 + b));
    size_t differ = 0, total = n / d->block_elems * d->block_bytes;
    ok(!tu_to_double(dtype, bytes, v, n, &err) &&
           !tu_from_double(dtype, again, v, n, &err),
       "%s there and back", d->name);
    for (size_t i = 0; i < total; i++)
        if (bytes[i] != again[i] &&
            !(d->block_elems == 1 && isnan(v[i / d->block_bytes])) &&
            !(d->block_elems == 1 && isinf(v[i / d->block_bytes])) && dtype != TU_BOOL)
            differ++;
    eq_u64(differ, 0, "%s: the same codes, NaN and Inf aside", d->name);
}

int main(void)
{
    static const uint32_t dtypes[] = {
        TU_I8,          TU_I16,     TU_U8,        TU_U16,         TU_I4,
        TU_U4,          TU_I2,      TU_U2,        TU_U1,          TU_F16,
        TU_BF16,        TU_BOOL,    TU_F8_E4M3FN, TU_F8_E4M3FNUZ, TU_F8_E5M2,
        TU_F8_E5M2FNUZ, TU_F8_E8M0, TU_F6_E2M3,   TU_F6_E3M2,     TU_F4_E2M1,
    };
    struct tu_err err;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        all_codes(dtypes[i]);

    const double v[] = {-1, 2.5, 3.5, 7.6, -9, NAN, 1e300};
    unsigned char i4[4] = {0xff, 0xff, 0xff, 0xff};
    eq_int(tu_from_double(TU_I4, i4, v, 7, &err), 0, "to i4");
    eq_mem(i4, "\x2f\x74\x08\x07", 4,
           "ties to even, saturation, NaN is 0, the last half byte 0");
    int64_t big;
    uint64_t huge;
    eq_int(tu_from_double(TU_I64, &big, &(double){1e300}, 1, &err), 0, "to i64");
    ok(big == INT64_C(0x7ffffffffffffc00), "the largest double below 2^63");
    eq_int(tu_from_double(TU_U64, &huge, &(double){-5}, 1, &err), 0, "to u64");
    eq_u64(huge, 0, "nothing below 0");
    unsigned char small;
    eq_int(tu_from_double(TU_F8_E4M3FN, &small, &(double){1e9}, 1, &err), 0, "to e4m3fn");
    eq_u64(small, 0x7e, "448");
    float c64[4];
    eq_int(tu_from_double(TU_C64, c64, (double[]){1, 2, 3, 4}, 2, &err), 0, "to c64");
    ok(c64[1] == 2 && c64[2] == 3, "two values each");
    eq_int(tu_from_double(TU_Q4_0, c64, v, 1, &err), TU_EDTYPE, "not to block formats");
    return tap_done();
}
