/* SPDX-License-Identifier: Apache-2.0 */
/* float.c: every code of every narrow format, against numpy 2.4.6 and ml_dtypes 0.6.0.
 *
 * Their answers are kept as a CRC-32: of the float of each code in turn (NaN as
 * 7fc00000), and of the code (two bytes each) of a set of floats that has every middle
 * between two codes of at most 8 bits, of bf16, and their neighbours. */
#include <tensorutils/core.h>
#include <math.h>
#include "../../../lib/core/cast.h"
#include "../tap.h"

static const struct {
    uint32_t dtype;
    unsigned bits;
    uint32_t decoded, encoded;
} peer[] = {
    {TU_F16, 16, 0x3020c7a7, 0x93321d61},
    {TU_BF16, 16, 0x28c5ed34, 0x48e4fe91},
    {TU_F8_E4M3FN, 8, 0x2fdee9ac, 0x92035111},
    {TU_F8_E4M3FNUZ, 8, 0xf2dfa052, 0xdf3761d5},
    {TU_F8_E5M2, 8, 0x3d83fd11, 0x31fcabb8},
    {TU_F8_E5M2FNUZ, 8, 0x09c70b84, 0x19b35067},
    {TU_F8_E8M0, 8, 0x719979ba, 0xfbbf76e4},
    {TU_F6_E2M3, 6, 0x50f19834, 0xf2502b51},
    {TU_F6_E3M2, 6, 0xce26bb00, 0xb99f3714},
    {TU_F4_E2M1, 4, 0x866770b6, 0xfe79a7e5},
};

static const struct { uint32_t dtype; float v; bool saturate; uint8_t code; } named[] = {
    {TU_F8_E4M3FN, 448, false, 0x7e}, {TU_F8_E4M3FN, 464, false, 0x7e}, /* a tie */
    {TU_F8_E4M3FN, 465, false, 0x7f}, {TU_F8_E4M3FN, 465, true, 0x7e},
    {TU_F8_E4M3FN, -INFINITY, false, 0xff}, {TU_F8_E4M3FN, -INFINITY, true, 0xfe},
    {TU_F8_E4M3FN, NAN, true, 0x7f}, {TU_F8_E4M3FN, 0x1p-9f, false, 1},
    {TU_F8_E4M3FN, 0x1p-10f, false, 0}, {TU_F8_E4M3FN, 0x1.8p-10f, false, 1},
    {TU_F8_E4M3FN, -0.0f, false, 0x80}, {TU_F8_E4M3FN, -0x1p-11f, false, 0x80},
    {TU_F8_E5M2, 57344, false, 0x7b}, {TU_F8_E5M2, 61440, false, 0x7c},
    {TU_F8_E5M2, 61440, true, 0x7b}, {TU_F8_E5M2, 61439, false, 0x7b},
    {TU_F8_E5M2, INFINITY, false, 0x7c}, {TU_F8_E5M2, INFINITY, true, 0x7b},
    {TU_F8_E5M2, NAN, false, 0x7e},
    {TU_F8_E4M3FNUZ, 240, false, 0x7f}, {TU_F8_E4M3FNUZ, 248, false, 0x80},
    {TU_F8_E4M3FNUZ, 248, true, 0x7f}, {TU_F8_E4M3FNUZ, -248, true, 0xff},
    {TU_F8_E4M3FNUZ, -0.0f, false, 0}, {TU_F8_E4M3FNUZ, -1e-9f, false, 0},
    {TU_F8_E4M3FNUZ, NAN, true, 0x80}, {TU_F8_E5M2FNUZ, -INFINITY, false, 0x80},
    {TU_F8_E8M0, 1, false, 127}, {TU_F8_E8M0, 1.5f, false, 128},
    {TU_F8_E8M0, 1.49f, false, 127},
    {TU_F8_E8M0, 0, false, 0xff}, {TU_F8_E8M0, 0, true, 0}, {TU_F8_E8M0, -1, true, 0xff},
    {TU_F8_E8M0, INFINITY, true, 0xfe}, {TU_F8_E8M0, 0x1p-149f, false, 0},
    {TU_F8_E8M0, -INFINITY, true, 0xff}, {TU_F8_E8M0, NAN, true, 0xff},
    {TU_F4_E2M1, 5, false, 6}, {TU_F4_E2M1, 2.5f, false, 4}, {TU_F4_E2M1, 100, false, 7},
    {TU_F4_E2M1, -INFINITY, false, 0xf}, {TU_F4_E2M1, NAN, false, 0},
    {TU_F4_E2M1, 0.25f, false, 0},
    {TU_F6_E2M3, 7.5f, false, 0x1f}, {TU_F6_E2M3, 8, false, 0x1f},
    {TU_F6_E3M2, 28, false, 0x1f},
    {TU_F6_E3M2, NAN, false, 0},
};

static float value(uint32_t dtype, unsigned code)
{
    return dtype == TU_F16    ? tu_from_f16((uint16_t)code)
           : dtype == TU_BF16 ? tu_from_bf16((uint16_t)code)
                              : tu_from_small(dtype, (uint8_t)code);
}

static uint16_t code_of(uint32_t dtype, float v)
{
    return dtype == TU_F16    ? tu_to_f16(v)
           : dtype == TU_BF16 ? tu_to_bf16(v)
                              : tu_to_small(dtype, v, false);
}

static void compare(uint32_t dtype, unsigned bits, uint32_t decoded, uint32_t encoded)
{
    static const unsigned low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    char name[8];
    const char *type = tu_dtype_text(dtype, name);
    uint32_t crc = 0;
    bool same = true, one_way = true;
    for (unsigned c = 0; c < 1u << bits; c++) {
        float v = value(dtype, c);
        unsigned char b[4];
        tu_put32(b, isnan(v) ? 0x7fc00000 : tui_bits(v));
        crc = tu_crc32(crc, b, 4);
        same &= isnan(v) || code_of(dtype, v) == c;
    }
    eq_u64(crc, decoded, "%s: the value of each code", type);
    ok(same, "%s: each code comes back", type);
    crc = 0;
    for (unsigned i = 0; i < 65536 * 6; i++) {
        float v = tui_float(i / 6 << 16 | low[i % 6]);
        unsigned char b[2];
        if (isnan(v) || (dtype == TU_F8_E8M0 && v == 0))
            continue;
        uint16_t code = code_of(dtype, v);
        tu_put16(b, code);
        crc = tu_crc32(crc, b, 2);
        one_way &= tui_encode_double(tui_format_of(dtype), (double)v, false) == code;
    }
    eq_u64(crc, encoded, "%s: the code of each float", type);
    ok(one_way, "%s: short way and encoder agree", type);
}

/* Doubles in the middle of two codes, just below, just above, and its negative. */
static uint32_t middles(uint32_t dtype, unsigned last)
{
    uint32_t crc = 0;
    for (unsigned c = 0; c < last; c++) {
        double mid = ((double)value(dtype, c) + (double)value(dtype, c + 1)) / 2;
        double set[] = {mid, nextafter(mid, 0), nextafter(mid, INFINITY), -mid};
        for (unsigned k = 0; k < 4; k++) {
            unsigned char code[2] = {0}; /* little-endian, as all data */
            if (tu_cast(dtype, code, TU_F64, &set[k], 1, NULL))
                return 0;
            crc = tu_crc32(crc, code, 2);
        }
    }
    return crc;
}

int main(void)
{
    for (size_t i = 0; i < sizeof peer / sizeof *peer; i++)
        compare(peer[i].dtype, peer[i].bits, peer[i].decoded, peer[i].encoded);
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        eq_u64(tu_to_small(named[i].dtype, named[i].v, named[i].saturate), named[i].code,
               "row %zu: %g%s", i, (double)named[i].v,
               named[i].saturate ? " saturated" : "");

    eq_u64(middles(TU_F16, 0x7bff), 0x8cfe9de9, "doubles to f16: one rounding");
    eq_u64(middles(TU_BF16, 0x7f7f), 0x1cd11067, "doubles to bf16: one rounding");
    double twice = 1 + 0x1p-8 + 0x1p-40; /* f32 drops the last bit: a tie for bf16 */
    uint16_t code = 0;
    ok(!tu_cast(TU_BF16, &code, TU_F64, &twice, 1, NULL) && code == 0x3f81,
       "1 + 2^-8 + 2^-40");
    eq_u64(tu_to_bf16((float)twice), 0x3f80, "which two roundings would get wrong");
    int64_t big = (INT64_C(1) << 62) + (INT64_C(1) << 54) + 1; /* the same, whole */
    ok(!tu_cast(TU_BF16, &code, TU_I64, &big, 1, NULL) && code == 0x5e81,
       "2^62 + 2^54 + 1");

    eq_u64(tu_to_f16(65519.996f), 0x7bff, "below 65520");
    eq_u64(tu_to_f16(65520), 0x7c00, "65520 is Inf");
    eq_u64(tu_to_f16(0x1p-25f), 0, "half of the least f16 ties to 0");
    eq_u64(tu_to_f16(0x1.000002p-25f), 1, "a little more does not");
    eq_u64(tu_to_f16(0x1.ff8p-15f), 0x3ff, "the largest subnormal");
    eq_u64(tu_to_f16(0x1.ffcp-15f), 0x400, "a tie into the normal ones");
    eq_u64(tu_to_f16(1 + 0x1p-11f), 0x3c00, "a tie to even, down");
    eq_u64(tu_to_f16(1 + 0x1.8p-10f), 0x3c02, "a tie to even, up");
    eq_u64(tu_to_bf16(tui_float(0x7f7fffff)), 0x7f80, "FLT_MAX rounds to Inf in bf16");
    eq_u64(tu_to_bf16(tui_float(0x7f800001)), 0x7fc0, "a NaN with low bits stays one");
    eq_u64(tu_to_bf16(tui_float(0xffa50000)), 0xffe5, "and keeps its top bits and sign");
    eq_u64(tu_to_f16(tui_float(0x7f802000)), 0x7e01, "f16 too");
    eq_u64(tui_bits(tu_from_f16(0xfd01)), 0xffe02000, "and back");
    ok(isnan(tu_from_small(TU_I8, 1)) && tu_to_small(TU_I8, 1, true) == 0,
       "no small float: NaN, 0");
    return tap_done();
}
