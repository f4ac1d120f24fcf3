/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.c: Python's re.match, globs, and patterns that must not run for hours. */
#include <tensorutils/core.h>
#include "../inject.h"

static const struct {
    enum tu_pattern_kind kind;
    const char *pattern, *subject;
    bool yes;
} rows[] = {
    /* Each regular expression as re.match, WHOLE as re.fullmatch of Python 3.11. */
    {TU_PATTERN_REGEX, "abc", "abcdef", true},
    {TU_PATTERN_REGEX, "bc", "abc", false},
    {TU_PATTERN_REGEX, ".*bc", "abc", true},
    {TU_PATTERN_REGEX, "abc$", "abcd", false},
    {TU_PATTERN_REGEX, "abc$", "abc\n", true},
    {TU_PATTERN_REGEX, "a.c", "a\nc", false},
    {TU_PATTERN_REGEX, "a.c", "a\rc", true},
    {TU_PATTERN_REGEX, "a|bc", "bcd", true},
    {TU_PATTERN_REGEX, "model\\.layers\\.\\d+\\.", "model.layers.12.mlp", true},
    {TU_PATTERN_REGEX, "\\d", "d", false},
    {TU_PATTERN_REGEX, "(?:q|k|v)_proj", "k_proj.weight", true},
    {TU_PATTERN_REGEX, "", "anything", true},
    {TU_PATTERN_REGEX, "é.", "éé", true},
    {TU_PATTERN_REGEX, "..$", "éé", true},
    {TU_PATTERN_REGEX, "a", "a\xff\xfe", true},
    {TU_PATTERN_WHOLE, "a|ab", "ab", true},
    {TU_PATTERN_WHOLE, "abc", "abcd", false},
    {TU_PATTERN_WHOLE, "a|bc", "abc", false},
    {TU_PATTERN_GLOB, "*", "", true},
    {TU_PATTERN_GLOB, "*", "a.b/c\nd", true},
    {TU_PATTERN_GLOB, "model.*.weight", "model.layers.0.weight", true},
    {TU_PATTERN_GLOB, "model.*.weight", "modelxlayers.0.weight", false},
    {TU_PATTERN_GLOB, "model.*.weight", "model.layers.0.weights", false},
    {TU_PATTERN_GLOB, "**.bias", "a.b.bias", true},
    {TU_PATTERN_GLOB, "layer.?", "layer.1", true},
    {TU_PATTERN_GLOB, "layer.?", "layer.12", false},
    {TU_PATTERN_GLOB, "layer.?", "layer.", false},
    {TU_PATTERN_GLOB, "?", "é", true},
    {TU_PATTERN_GLOB, "[qkv]_proj", "k_proj", true},
    {TU_PATTERN_GLOB, "[!qkv]_proj", "k_proj", false},
    {TU_PATTERN_GLOB, "[^qkv]_proj", "o_proj", true},
    {TU_PATTERN_GLOB, "l[0-9]", "l7", true},
    {TU_PATTERN_GLOB, "l[0-9]", "l-", false},
    {TU_PATTERN_GLOB, "[]]", "]", true},
    {TU_PATTERN_GLOB, "[!]]", "]", false},
    {TU_PATTERN_GLOB, "[a^]", "^", true},
    {TU_PATTERN_GLOB, "[\\d]", "d", true},
    {TU_PATTERN_GLOB, "[\\d]", "7", false},
    {TU_PATTERN_GLOB, "a[", "a[", true},
    {TU_PATTERN_GLOB, "a[bc", "a[bc", true},
    {TU_PATTERN_GLOB, "\\*", "*", true},
    {TU_PATTERN_GLOB, "\\*", "x", false},
    {TU_PATTERN_GLOB, "\\d", "7", false},
    {TU_PATTERN_GLOB, "\\d", "d", true},
    {TU_PATTERN_GLOB, "a+(b){2}|c$^.", "a+(b){2}|c$^.", true},
    {TU_PATTERN_GLOB, "a\\", "a\\", true},
    {TU_PATTERN_GLOB, "", "", true},
    {TU_PATTERN_GLOB, "", "a", false},
    {TU_PATTERN_GLOB, "[[:digit:]", "d", true},
};

static void bad(const char *text, enum tu_pattern_kind kind, const char *msg)
{
    struct tu_pattern *p = NULL;
    struct tu_err err = {.msg = ""};
    int rc = tu_pattern_new(&p, text, kind, &err);
    ok(rc == TU_EUSAGE && strstr(err.msg, msg), "'%s': %s", text, err.msg);
    tu_pattern_free(p);
}

static void expand(void)
{
    static const struct { const char *replacement, *is;
    } row[] = {
        {"layers.$1.$2", "layers.12.weight"},
        {"$0", "h.12.weight"},
        {"${1}0", "120"},
        {"$10", "120"},
        {"$$1", "$1"},
        {"", ""},
        {"[$3]", "[]"},
        {"a$1$1", "a1212"},
        {"$4", NULL},
        {"$", NULL},
        {"$x", NULL},
        {"${1", NULL},
        {"${}", NULL},
        {"${99}", NULL},
    };
    struct tu_pattern *p = NULL;
    struct tu_err err;
    struct tu_match m;
    struct tu_buf b = {0};
    bool yes = false;
    const char *subject = "h.12.weight|rest";
    ok(!tu_pattern_new(&p, "h\\.(\\d+)\\.(\\w+)(x)?", TU_PATTERN_REGEX, &err),
       "a pattern with groups");
    eq_str(tu_pattern_text(p), "h\\.(\\d+)\\.(\\w+)(x)?", "keeps its text");
    ok(!tu_pattern_match(p, subject, strlen(subject), &m, &yes, &err) && yes, "matches");
    ok(m.n == 4 && m.group[0].begin == 0 && m.group[0].end == 11 &&
           m.group[1].begin == 2 && m.group[1].end == 4 && m.group[3].begin == SIZE_MAX,
       "its groups");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        tu_buf_reset(&b);
        int rc = tu_pattern_expand(&b, row[i].replacement, subject, &m, &err);
        if (row[i].is)
            eq_str(rc    ? err.msg
                   : b.n ? b.data
                         : "",
                   row[i].is, "replacement '%s'", row[i].replacement);
        else
            eq_int(rc, TU_EUSAGE, "replacement '%s' is refused", row[i].replacement);
    }
    tu_buf_release(&b);
    tu_pattern_free(p);
}

static int glob(const void *arg, struct tu_err *err)
{
    struct tu_pattern *p = NULL;
    bool yes = false;
    (void)arg;
    int rc = tu_pattern_new(&p, "a[b]*(c)", TU_PATTERN_GLOB, err);
    if (!rc)
        rc = tu_pattern_match(p, "abc(c)", 6, NULL, &yes, err);
    inject_add("yes", yes ? 3 : 0);
    tu_pattern_free(p);
    return rc;
}

int main(void)
{
    struct tu_err err;
    struct tu_pattern *p = NULL;
    bool yes = false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (tu_pattern_new(&p, rows[i].pattern, rows[i].kind, &err) ||
            tu_pattern_match(p, rows[i].subject, strlen(rows[i].subject), NULL, &yes,
                             &err)) {
            ok(false, "'%s': %s", rows[i].pattern, err.msg);
            p = NULL;
            continue;
        }
        ok(yes == rows[i].yes, "'%s' on '%s'", rows[i].pattern, rows[i].subject);
        tu_pattern_free(p);
    }
    bad("a(b", TU_PATTERN_REGEX,
        "pattern 'a(b': character 4: missing closing parenthesis");
    bad("*", TU_PATTERN_WHOLE, "quantifier");
    bad("\\C", TU_PATTERN_REGEX, "\\C");
    bad("[z-a]", TU_PATTERN_GLOB, "glob '[z-a]': range out of order");
    bad("\xff", TU_PATTERN_REGEX, "UTF-8");
    expand();

    char subject[64];
    memset(subject, 'a', sizeof subject);
    ok(!tu_pattern_new(&p, "(a+)+$", TU_PATTERN_REGEX, &err),
       "a pattern of exponential time");
    subject[63] = 'b';
    eq_int(tu_pattern_match(p, subject, sizeof subject, NULL, &yes, &err), TU_ELIMIT,
           "is stopped");
    tu_pattern_free(p);
    ok(!tu_pattern_new(&p, "*a*a*a*a*a*a*a*a*c", TU_PATTERN_GLOB, &err),
       "a glob of many stars");
    subject[62] = 'c'; /* else PCRE2 sees at once that c is missing */
    eq_int(tu_pattern_match(p, subject, sizeof subject, NULL, &yes, &err), TU_ELIMIT,
           "is stopped");
    tu_pattern_free(p);
    ok(!tu_pattern_new(&p, "(*LIMIT_MATCH=4000000000)(a+)+$", TU_PATTERN_REGEX, &err),
       "a pattern that asks for more steps");
    eq_int(tu_pattern_match(p, subject, sizeof subject, NULL, &yes, &err), TU_ELIMIT,
           "is not given them");
    tu_pattern_free(p);

    inject_memory(&(struct inject){.name = "a glob", .run = glob});
    return tap_done();
}
