/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.c: PCRE2 for texts that nobody vouches for.
 *
 * Patterns come from configuration files and command lines, subjects from checkpoints:
 * steps, depth and heap of a match are bounded, so that (a+)+$ ends in TU_ELIMIT and not
 * in hours. The interpreter is used, not the JIT, whose limits are weaker and whose start
 * costs more than names take to match. A pattern is read-only once made: threads may
 * share it. */
#include <tensorutils/core.h>
#include "mem_hook.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    PATTERN_LONGEST = 64 << 10, /* bytes */
    MATCH_STEPS = 1000000,
    MATCH_DEPTH = 10000,
    MATCH_HEAP = 16 << 10, /* KiB */
};

struct tu_pattern {
    char *text;
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_code *code;
};

static void *take(size_t n, void *data)
{
    (void)data;
    return tui_malloc(n);
}

static void give(void *p, void *data)
{
    (void)data;
    tui_mfree(p);
}

/* A [...] of a glob at p; NULL if no ] closes it, else where it ends. Appends the PCRE2
 * class. */
static const char *glob_class(struct tu_buf *re, const char *p, int *rc,
                              struct tu_err *err)
{
    const char *begin = p + 1, *end;
    bool not = *begin == '!' || *begin == '^';
    begin += not;
    end = *begin == ']' ? begin + 1 : begin; /* a ] that comes first is an ordinary one */
    while (*end && *end != ']')
        end++;
    if (!*end)
        return NULL;
    *rc = tu_buf_text(re, not ? "[^" : "[", err);
    for (const char *c = begin; !*rc && c < end; c++) {
        if (strchr("\\[]^", *c))
            *rc = tu_buf_text(re, "\\", err);
        if (!*rc)
            *rc = tu_buf_add(re, c, 1, err);
    }
    if (!*rc)
        *rc = tu_buf_text(re, "]", err);
    return end;
}

static int translate_glob(struct tu_buf *re, const char *glob, struct tu_err *err)
{
    int rc = 0;
    for (const char *p = glob; !rc && *p; p++) {
        const char *end;
        if (*p == '*') {
            while (p[1] == '*')
                p++;
            rc = tu_buf_text(re, ".*", err);
        } else if (*p == '?') {
            rc = tu_buf_text(re, ".", err);
        } else if (*p == '[' && (end = glob_class(re, p, &rc, err))) {
            p = end;
        } else {
            if (*p == '\\' && p[1])
                p++;
            /* Only these: before a letter a backslash would mean something. */
            if (strchr("\\^$.[]|()?*+{}", *p))
                rc = tu_buf_text(re, "\\", err);
            if (!rc)
                rc = tu_buf_add(re, p, 1, err);
        }
    }
    return rc;
}

static int compile(struct tu_pattern *p, const char *re, size_t n,
                   enum tu_pattern_kind kind, struct tu_err *err)
{
    uint32_t options =
        PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_ANCHORED;
    if (kind != TU_PATTERN_REGEX)
        options |= PCRE2_ENDANCHORED;
    if (kind == TU_PATTERN_GLOB)
        options |= PCRE2_DOTALL;
    pcre2_compile_context *ctx = pcre2_compile_context_create(p->memory);
    if (!ctx)
        return tu_fail(err, TU_ENOMEM, "out of memory for a pattern");
    pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
    pcre2_set_max_pattern_length(ctx, PATTERN_LONGEST);
    int why;
    PCRE2_SIZE at;
    p->code = pcre2_compile((PCRE2_SPTR)re, n, options, &why, &at, ctx);
    pcre2_compile_context_free(ctx);
    if (p->code)
        return 0;
    if (why == PCRE2_ERROR_HEAP_FAILED)
        return tu_fail(err, TU_ENOMEM, "out of memory for a pattern");
    char shown[88], text[128];
    pcre2_get_error_message(why, (PCRE2_UCHAR *)text, sizeof text);
    tu_text_short(p->text, strlen(p->text), shown);
    if (kind == TU_PATTERN_GLOB)
        return tu_fail(err, TU_EUSAGE, "glob '%s': %s", shown, text);
    return tu_fail(err, TU_EUSAGE, "pattern '%s': character %zu: %s", shown,
                   (size_t)at + 1, text);
}

int tu_pattern_new(struct tu_pattern **out, const char *text, enum tu_pattern_kind kind,
                   struct tu_err *err)
{
    struct tu_buf glob = {0};
    struct tu_pattern *p = tu_calloc(1, sizeof *p, err);
    if (!p)
        return TU_ENOMEM;
    int rc = TU_ENOMEM;
    if (!(p->text = tu_strdup(text, err)))
        goto out;
    p->memory = pcre2_general_context_create(take, give, NULL);
    p->limits = p->memory ? pcre2_match_context_create(p->memory) : NULL;
    if (!p->limits) {
        tu_fail(err, TU_ENOMEM, "out of memory for a pattern");
        goto out;
    }
    pcre2_set_match_limit(p->limits, MATCH_STEPS);
    pcre2_set_depth_limit(p->limits, MATCH_DEPTH);
    pcre2_set_heap_limit(p->limits, MATCH_HEAP);
    if (kind == TU_PATTERN_GLOB) {
        rc = translate_glob(&glob, text, err);
        if (!rc)
            rc = compile(p, glob.data ? glob.data : "", glob.n, kind, err);
    } else {
        rc = compile(p, text, strlen(text), kind, err);
    }
out:
    tu_buf_release(&glob);
    if (rc)
        tu_pattern_free(p);
    else
        *out = p;
    return rc;
}

void tu_pattern_free(struct tu_pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    pcre2_match_context_free(p->limits);
    pcre2_general_context_free(p->memory);
    tu_free(p->text);
    tu_free(p);
}

const char *tu_pattern_text(const struct tu_pattern *p)
{
    return p->text;
}

static int match_failed(const struct tu_pattern *p, int why, struct tu_err *err)
{
    char shown[88];
    tu_text_short(p->text, strlen(p->text), shown);
    switch (why) {
    case PCRE2_ERROR_NOMEMORY:
        return tu_fail(err, TU_ENOMEM, "out of memory matching pattern '%s'", shown);
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
        return tu_fail(err, TU_ELIMIT, "pattern '%s': matching takes too many steps",
                       shown);
    default:
        return tu_fail(err, TU_EBUG, "pattern '%s': PCRE2 error %d", shown, why);
    }
}

int tu_pattern_match(const struct tu_pattern *p, const char *subject, size_t n,
                     struct tu_match *m, bool *yes, struct tu_err *err)
{
    pcre2_match_data *found = pcre2_match_data_create_from_pattern(p->code, p->memory);
    if (!found)
        return match_failed(p, PCRE2_ERROR_NOMEMORY, err);
    int rc =
        pcre2_match(p->code, (PCRE2_SPTR)(n ? subject : ""), n, 0, 0, found, p->limits);
    *yes = rc >= 0;
    if (m && rc >= 0) {
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(found);
        *m = (struct tu_match){
            .n = (unsigned)tu_min(pcre2_get_ovector_count(found), TU_PATTERN_GROUPS),
        };
        for (unsigned i = 0; i < m->n; i++) {
            m->group[i].begin = at[2 * i]; /* PCRE2_UNSET is SIZE_MAX */
            m->group[i].end = at[2 * i + 1];
        }
    }
    pcre2_match_data_free(found);
    return rc >= 0 || rc == PCRE2_ERROR_NOMATCH ? 0 : match_failed(p, rc, err);
}

int tu_pattern_expand(struct tu_buf *out, const char *replacement, const char *subject,
                      const struct tu_match *m, struct tu_err *err)
{
    int rc = 0;
    for (const char *p = replacement; !rc && *p; p++) {
        if (*p != '$' || p[1] == '$') {
            rc = tu_buf_add(out, p, 1, err);
            p += *p == '$';
            continue;
        }
        bool brace = *++p == '{';
        p += brace;
        const char *digits = p;
        unsigned group = 0;
        while (*p >= '0' && *p <= '9' && p - digits < (brace ? 3 : 1))
            group = group * 10 + (unsigned)(*p++ - '0');
        if (p == digits || (brace && *p != '}'))
            return tu_fail(err, TU_EUSAGE,
                           "replacement '%s': $ is followed by no group number",
                           replacement);
        if (group >= m->n)
            return tu_fail(err, TU_EUSAGE,
                           "replacement '%s': the pattern has no group %u", replacement,
                           group);
        size_t begin = m->group[group].begin;
        if (begin != SIZE_MAX)
            rc = tu_buf_add(out, subject + begin, m->group[group].end - begin, err);
        p -= !brace; /* the loop steps over the last character */
    }
    return rc;
}
