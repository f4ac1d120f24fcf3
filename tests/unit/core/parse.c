/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c: what each parser takes and refuses. */
#include <tensorutils/core.h>
#include <math.h>
#include "../tap.h"

#define REFUSED UINT64_C(0xdeadbeef)
#define K UINT64_C(1024)

static const struct { const char *text; uint64_t is; } sizes[] = {
    {"0", 0}, {"17", 17}, {"1K", K}, {"1k", K}, {"1KiB", K}, {"1kiB", K}, {"1KB", 1000},
    {"1kB", 1000}, {"16M", 16777216}, {"16MiB", 16777216}, {"16MB", 16000000},
    {"1G", 1073741824}, {"2GB", 2000000000}, {"1T", K * K * K * K},
    {"3PB", UINT64_C(3000000000000000)},
    {"15E", 15 * (UINT64_C(1) << 60)}, {"18EB", UINT64_C(18000000000000000000)},
    {"18446744073709551615", UINT64_MAX}, {"007K", 7 * K}, {"0E", 0},
    {"", REFUSED}, {"-1", REFUSED}, {"+1", REFUSED}, {" 1", REFUSED}, {"1 ", REFUSED},
    {"1.5K", REFUSED}, {"1Kx", REFUSED}, {"16E", REFUSED}, {"19EB", REFUSED},
    {"18446744073709551616", REFUSED}, {"K", REFUSED}, {"1B", REFUSED}, {"1b", REFUSED},
    {"1m", REFUSED}, {"1Ki", REFUSED}, {"1iB", REFUSED}, {"1KIB", REFUSED},
    {"0x10", REFUSED},
    {"1KK", REFUSED}, {"1\xc2\xa0K", REFUSED},
};

static const struct { const char *text; uint64_t is; } durations[] = {
    {"0", 0}, {"1", 1000000000}, {"5s", UINT64_C(5000000000)}, {"10ms", 10000000},
    {"250us", 250000},
    {"7ns", 7}, {"2min", UINT64_C(120000000000)}, {"1h", UINT64_C(3600000000000)},
    {"1.5ms", 1500000}, {"0.25", 250000000}, {"1.5h", UINT64_C(5400000000000)},
    {"0.000000001s", 1}, {"0.1000000000000000", 100000000}, {"5.0ns", 5},
    {"0.0000000001s", REFUSED}, {"0.5ns", REFUSED}, {"", REFUSED}, {"ms", REFUSED},
    {"-1s", REFUSED},
    {"1.s", REFUSED}, {".5s", REFUSED}, {"1 s", REFUSED}, {"1sec", REFUSED},
    {"1e3", REFUSED},
    {"5124096h", REFUSED}, {"5124095h", UINT64_C(18446742000000000000)},
    {"18446744073.709551615", UINT64_MAX}, {"18446744073.709551616", REFUSED},
};

static void u64(void)
{
    static const struct { const char *text; uint64_t is;
    } row[] = {
        {"0", 0},
        {"00012", 12},
        {"18446744073709551615", UINT64_MAX},
        {"18446744073709551616", REFUSED},
        {"99999999999999999999999", REFUSED},
        {"", REFUSED},
        {"-0", REFUSED},
        {"+1", REFUSED},
        {"1x", REFUSED},
        {" 1", REFUSED},
        {"1.0", REFUSED},
        {"0x1", REFUSED},
    };
    struct tu_err err;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        uint64_t v = REFUSED;
        int rc = tu_parse_u64(row[i].text, &v, &err);
        ok(v == row[i].is && rc == (row[i].is == REFUSED ? TU_EUSAGE : 0), "u64 '%s'",
           row[i].text);
    }
}

static void i64(void)
{
    static const struct { const char *text; int64_t is;
    } row[] = {
        {"0", 0},
        {"-0", 0},
        {"-5", -5},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"9223372036854775808", REFUSED},
        {"-9223372036854775809", REFUSED},
        {"--1", REFUSED},
        {"-", REFUSED},
        {"", REFUSED},
        {"1-", REFUSED},
    };
    struct tu_err err;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int64_t v = REFUSED;
        int rc = tu_parse_i64(row[i].text, &v, &err);
        ok(v == row[i].is && rc == (row[i].is == REFUSED ? TU_EUSAGE : 0), "i64 '%s'",
           row[i].text);
    }
}

static void reals(void)
{
    static const struct { const char *text; double is; } good[] = {
        {"1", 1}, {"-2.5", -2.5}, {".5", 0.5}, {"3.", 3}, {"1e3", 1000}, {"1E-3", 0.001},
        {"-1.5e+2", -150}, {"1e-400", 0}, {"inf", INFINITY}, {"-inf", -INFINITY},
    };
    static const char *const bad[] = {"",     ".",        "-",     "e5",
                                      "1e",   "1e+",      " 1",    "1 ",
                                      "+1",   "0x1p3",    "1,5",   "nan(1)",
                                      "-nan", "infinity", "1e999", "1.2.3"};
    struct tu_err err;
    double v;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ok(!tu_parse_double(good[i].text, &v, &err) && v == good[i].is, "real '%s'",
           good[i].text);
    ok(!tu_parse_double("nan", &v, &err) && isnan(v), "real 'nan'");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        eq_int(tu_parse_double(bad[i], &v, &err), TU_EUSAGE, "real '%s' is refused",
               bad[i]);
}

static void shapes(void)
{
    static const struct { const char *text; unsigned rank; uint64_t dim[4];
    } good[] = {
        {"", 0, {0}},
        {"-", 0, {0}},
        {"7", 1, {7}},
        {"2,3,4", 3, {2, 3, 4}},
        {"2x3x4", 3, {2, 3, 4}},
        {"0x5", 2, {0, 5}},
        {"9223372036854775807", 1, {INT64_MAX}},
        {"1,2,3,4", 4, {1, 2, 3, 4}},
    };
    static const char *const bad[] = {
        ",",         "2,",  ",2", "2,,3", "2x3,4",
        "2 3",       "-1",  "2x", "x2",   "9223372036854775808",
        "1,2,3,4,5", "2x-", "a"};
    struct tu_err err;
    uint64_t dim[4];
    unsigned rank;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        rank = 99;
        int rc = tu_parse_shape(good[i].text, dim, &rank, 4, &err);
        ok(!rc && rank == good[i].rank && !memcmp(dim, good[i].dim, rank * sizeof *dim),
           "shape '%s'", good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        eq_int(tu_parse_shape(bad[i], dim, &rank, 4, &err), TU_EUSAGE,
               "shape '%s' is refused", bad[i]);
}

int main(void)
{
    struct tu_err err;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t v = REFUSED;
        int rc = tu_parse_size(sizes[i].text, &v, &err);
        ok(v == sizes[i].is && rc == (v == REFUSED ? TU_EUSAGE : 0), "size '%s'",
           sizes[i].text);
    }
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++) {
        uint64_t v = REFUSED;
        int rc = tu_parse_duration(durations[i].text, &v, &err);
        ok(v == durations[i].is && rc == (v == REFUSED ? TU_EUSAGE : 0), "duration '%s'",
           durations[i].text);
    }
    u64();
    i64();
    reals();
    shapes();
    uint64_t v;
    ok(tu_parse_size("1Kx\n", &v, &err) == TU_EUSAGE &&
           strstr(err.msg, "'1Kx?' is not a size"),
       "the message shows the text: %s", err.msg);
    return tap_done();
}
