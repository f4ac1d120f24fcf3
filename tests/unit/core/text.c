/* SPDX-License-Identifier: Apache-2.0 */
/* text.c: UTF-8 by the Unicode standard's table 3-7, names, and what people are shown. */
#include <tensorutils/core.h>
#include "../tap.h"

/* Text and the offset of its first ill-formed sequence; -1: none. */
static const struct { const char *text; int bad; } utf8[] = {
    {"", -1}, {"abc", -1}, {"\x7f", -1},
    {"\xc2\x80", -1}, {"\xdf\xbf", -1},             /* U+0080, U+07FF */
    {"\xe0\xa0\x80", -1}, {"\xef\xbf\xbf", -1},     /* U+0800, U+FFFF */
    {"\xed\x9f\xbf", -1}, {"\xee\x80\x80", -1},     /* about the surrogates */
    {"\xf0\x90\x80\x80", -1}, {"\xf4\x8f\xbf\xbf", -1}, /* U+10000, U+10FFFF */
    {"a\x80", 1}, {"a\xbf", 1},                     /* continuation alone */
    {"\xc0\x80", 0}, {"\xc1\xbf", 0},               /* overlong, two bytes */
    {"\xe0\x80\x80", 0}, {"\xe0\x9f\xbf", 0},       /* overlong, three */
    {"\xf0\x80\x80\x80", 0}, {"\xf0\x8f\xbf\xbf", 0}, /* overlong, four */
    {"x\xed\xa0\x80", 1}, {"x\xed\xbf\xbf", 1},     /* U+D800, U+DFFF */
    {"\xf4\x90\x80\x80", 0}, {"\xf5\x80\x80\x80", 0}, {"\xff", 0}, {"\xfe", 0},
    {"ab\xc3", 2}, {"ab\xe2\x82", 2}, {"ab\xf0\x9f\x98", 2}, /* cut short */
    {"\xe2\x28\xa1", 0}, {"\xe2\x82\x28", 0}, {"\xf0\x28\x8c\xbc", 0},
    {"\xf0\x9f\x28\xbc", 0},
    {"\xf0\x9f\x98\x28", 0}, {"\xc3\xa9\xc3", 2},
};

static const struct { const char *text; size_t n; int bad; } names[] = {
    {"model.layers.0.weight", 21, -1}, {"\xc3\xa9", 2, -1}, {"a b", 3, -1},
    {"a\nb", 3, 1}, {"\0", 1, 0}, {"\x1f", 1, 0}, {"ab\x7f", 3, 2}, {"a\xff", 2, 1},
    {"\xc2\x80", 2, -1}, /* a control by Unicode, but no byte below 0x20 */
};

static const struct { const char *text, *shown; } escapes[] = {
    {"plain é", "plain é"}, {"a\\b", "a\\\\b"}, {"\n\t\x1b[0m", "\\x0a\\x09\\x1b[0m"},
    {"\x7f", "\\x7f"}, {"\xff\xc3\xa9", "\\xffé"}, {"\xc2\x9b", "\\xc2\\x9b"}, {"", ""},
};

static const struct { uint64_t bytes; const char *text; } sizes[] = {
    {0, "0 B"}, {312, "312 B"}, {1023, "1023 B"}, {1024, "1 KiB"}, {1536, "1.5 KiB"},
    {UINT64_C(1610612736), "1.5 GiB"}, {1048575, "1 MiB"}, {1047552, "1023 KiB"},
    {126 << 10, "126 KiB"}, {12943, "12.6 KiB"}, {UINT64_MAX, "16 EiB"},
};

static const struct { const char *a, *b; unsigned max, is; } near[] = {
    {"", "", 2, 0}, {"same", "same", 2, 0}, {"", "ab", 2, 2},
    {"threads", "thraeds", 2, 1},
    {"kitten", "sitting", 3, 3}, {"kitten", "sitting", 2, 3}, {"ca", "abc", 3, 3},
    {"shape", "shapes", 2, 1}, {"abcdef", "a", 2, 3}, {"block", "clock", 1, 1},
};

static const char *nth(const void *ctx, size_t i)
{
    return ((const char *const *)ctx)[i];
}

static void test_suggest(void)
{
    static const char *const known[] = {"list", "to",    "gptq2", "gptq3", "gptq4", "gptq8",
                                        "q4_0", "q4_1",  "q4_k",  "q4_k_m", "q4_k_s", "check",
                                        "q4_0", "check-layout", NULL};
    static const struct {
        const char *word, *says;
    } cases[] = {
        {"bits", ""}, /* two mistakes in four letters */
        {"tp", ""},
        {"chekc", "; did you mean '-check'?"},
        {"gptq", "; did you mean '-gptq2', '-gptq3', '-gptq4' or '-gptq8'?"},
        {"q4", "; did you mean '-q4_0', '-q4_1', '-q4_k' or '-q4_k_m'?"},
        {"Q4-K", "; did you mean '-q4_k'?"},
        {"check-lay", "; did you mean '-check' or '-check-layout'?"},
        {"nothing-like-it", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tu_err err = {0};
        eq_int(tu_suggest(&err, cases[i].word, "-", nth, known), *cases[i].says != '\0',
               "'%s' is like another", cases[i].word);
        eq_str(err.msg, cases[i].says, "'%s'", cases[i].word);
    }
}

int main(void)
{
    struct tu_buf b = {0};
    struct tu_err err;
    for (size_t i = 0; i < sizeof utf8 / sizeof *utf8; i++) {
        size_t n = strlen(utf8[i].text);
        eq_u64(tu_utf8_check(utf8[i].text, n), utf8[i].bad < 0 ? n : (size_t)utf8[i].bad,
               "utf8 %zu", i);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        eq_u64(tu_name_check(names[i].text, names[i].n),
               names[i].bad < 0 ? names[i].n : (size_t)names[i].bad, "name %zu", i);
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        tu_buf_reset(&b);
        int rc = tu_text_escape(&b, escapes[i].text, strlen(escapes[i].text), &err);
        ok(!rc && b.n == strlen(escapes[i].shown), "escape %zu: length", i);
        eq_str(b.data ? b.data : "", escapes[i].shown, "escape %zu", i);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char out[16];
        eq_str(tu_size_text(sizes[i].bytes, out), sizes[i].text, "size %" PRIu64,
               sizes[i].bytes);
    }
    for (size_t i = 0; i < sizeof near / sizeof *near; i++)
        eq_u64(tu_text_distance(near[i].a, near[i].b, near[i].max), near[i].is,
               "'%s' to '%s'", near[i].a, near[i].b);

    char longer[200], shown[88];
    memset(longer, 'x', sizeof longer);
    eq_u64(strlen(tu_text_short(longer, 80, shown)), 80, "80 bytes are shown whole");
    memset(longer, 'a', 100);
    memset(longer + 100, 'b', 100);
    tu_text_short(longer, 200, shown);
    eq_u64(strlen(shown), 80, "200 bytes become 80");
    ok(!strncmp(shown + 38, "…b", 4) && shown[37] == 'a' && shown[79] == 'b',
       "head … tail");
    for (size_t i = 0; i < 200; i += 2)
        memcpy(longer + i, "é", 2);
    bool whole = true;
    for (size_t n = 81; n <= 199; n++) {
        const char *s = longer + (n & 1); /* begins inside a character when n is odd */
        tu_text_short(s, n, shown);
        whole &=
            strlen(shown) <= 80 && tu_utf8_check(shown, strlen(shown)) == strlen(shown);
    }
    ok(whole, "never cut inside a character");
    memset(longer, 0x80, sizeof longer);
    ok(strlen(tu_text_short(longer, 200, shown)) <= 80, "200 ill-formed bytes");
    eq_str(tu_text_short("a\nb\xff", 4, shown), "a?b?", "controls as ?");

    char big[101];
    memset(big, 'q', 100);
    big[100] = '\0';
    eq_u64(tu_text_distance(big, "q", 200), 201, "long texts are not compared");
    eq_u64(tu_text_distance(big, big, 2), 0, "unless they are equal");

    test_suggest();

    tu_buf_reset(&b);
    const uint64_t dim[] = {2, 0, UINT64_MAX};
    ok(!tu_shape_text(&b, dim, 3, &err), "shape");
    eq_str(b.data, "2x0x18446744073709551615", "its text");
    tu_buf_reset(&b);
    ok(!tu_shape_text(&b, dim, 0, &err), "shape of rank 0");
    eq_str(b.data, "-", "its text");
    tu_buf_release(&b);
    return tap_done();
}
