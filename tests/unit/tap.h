/* SPDX-License-Identifier: Apache-2.0 */
/* tap.h: unit tests as TAP: `int main(void) { …checks…; return tap_done(); }`.
 *
 * ok() counts one test; a failure prints file, line and the values. tap_skip() counts a test that
 * this machine cannot run. */
#ifndef TESTS_UNIT_TAP_H
#define TESTS_UNIT_TAP_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned tap_count, tap_failed;

#define ok(cond, ...) tap_ok((cond), __FILE__, __LINE__, #cond, __VA_ARGS__)
#define eq_u64(a, b, ...) tap_eq((uint64_t)(a), (uint64_t)(b), __FILE__, __LINE__, __VA_ARGS__)
#define eq_int(a, b, ...) tap_eq_int((int64_t)(a), (int64_t)(b), __FILE__, __LINE__, __VA_ARGS__)
#define eq_str(a, b, ...) tap_eq_str((a), (b), __FILE__, __LINE__, __VA_ARGS__)
#define eq_mem(a, b, n, ...) tap_ok(!memcmp((a), (b), (n)), __FILE__, __LINE__, #a " is " #b, __VA_ARGS__)

static inline void tap_line(bool yes, const char *what)
{
    printf("%s %u - %s\n", yes ? "ok" : "not ok", ++tap_count, what);
    tap_failed += !yes;
    fflush(stdout); /* what is tested may fork: nothing buffered is written twice */
}

__attribute__((format(printf, 5, 6))) static inline bool
tap_ok(bool yes, const char *file, int line, const char *cond, const char *fmt, ...)
{
    char what[256];
    __builtin_va_list ap;
    __builtin_va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    __builtin_va_end(ap);
    tap_line(yes, what);
    if (!yes)
        printf("# %s:%d: not true: %s\n", file, line, cond);
    return yes;
}

__attribute__((format(printf, 5, 6))) static inline bool
tap_eq(uint64_t a, uint64_t b, const char *file, int line, const char *fmt, ...)
{
    char what[256];
    __builtin_va_list ap;
    __builtin_va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    __builtin_va_end(ap);
    tap_line(a == b, what);
    if (a != b)
        printf("# %s:%d: got %" PRIu64 " (%#" PRIx64 "), expected %" PRIu64 " (%#" PRIx64 ")\n",
               file, line, a, a, b, b);
    return a == b;
}

__attribute__((format(printf, 5, 6))) static inline bool
tap_eq_int(int64_t a, int64_t b, const char *file, int line, const char *fmt, ...)
{
    char what[256];
    __builtin_va_list ap;
    __builtin_va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    __builtin_va_end(ap);
    tap_line(a == b, what);
    if (a != b)
        printf("# %s:%d: got %" PRId64 ", expected %" PRId64 "\n", file, line, a, b);
    return a == b;
}

__attribute__((format(printf, 5, 6))) static inline bool
tap_eq_str(const char *a, const char *b, const char *file, int line, const char *fmt, ...)
{
    char what[256];
    bool yes = a && b ? !strcmp(a, b) : a == b;
    __builtin_va_list ap;
    __builtin_va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    __builtin_va_end(ap);
    tap_line(yes, what);
    if (!yes)
        printf("# %s:%d: got '%s', expected '%s'\n", file, line, a ? a : "(null)", b ? b : "(null)");
    return yes;
}

static inline void tap_skip(const char *what, const char *why)
{
    printf("ok %u - %s # SKIP %s\n", ++tap_count, what, why);
}

static inline int tap_done(void)
{
    printf("1..%u\n", tap_count);
    return tap_failed != 0;
}

#endif
