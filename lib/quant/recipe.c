/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.c: which codec each tensor gets: rules by name, a mixture by role and layer
 * (mixture.c), and what is left as it is.
 *
 * Everything follows from a tensor's own name and shape and from what is known of the
 * model before the first tensor, so the order of tensors does not matter. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mixture.h"
#include "tensorutils/quant.h"

/* The recipe ------------------------------------------------------------------------- */

struct rule {
    struct tu_pattern *pattern;
    char *text;
    const char *type; /* in text, or a dtype's name */
    bool used;
};

struct tu_recipe {
    const struct tui_mixture *mixture; /* or NULL, and then `type` */
    char *type;
    struct rule *rule;
    size_t n, cap;
    struct tu_pattern *role[TUI_ROLE_ROWS], *skip;
    struct tu_recipe_model model;
    bool engine; /* embeddings and heads are kept */
};

/* Weights that no format shortens well: routers, norms, positions, small convolutions. */
#define SKIP                                                                             \
    "(?:.*(?:norm|ffn_gate_inp|\\bgate\\.weight|router|position_embd|position_"          \
    "embeddings|\\bwpe\\b|"                                                              \
    "token_types|token_type_embeddings|ssm_conv1d|conv1d|rel_pos|time_mix_|rope_freqs))"

/* Is it a codec with arguments that it knows, a dtype, or "keep"? */
static int check_type(const char *type, struct tu_err *err)
{
    struct tu_spec spec;
    if (strcmp(type, "keep") == 0)
        return 0;
    int rc = tu_spec_parse(&spec, type, err);
    if (rc)
        return rc;
    const struct tu_dtype *t = tu_dtype_called(spec.name);
    const struct tu_codec *c = tu_codec_find(spec.name);
    if (!c && !(t && tu_dtype_is_plain(t->code))) {
        struct tu_coding probe = {.rank = 0};
        rc = tu_coding_init(&probe, &spec, NULL, 0, err); /* says what is near */
    } else if (c) {
        static const char *const none[] = {NULL};
        rc = c->encode ? tu_spec_check(&spec, c->key ? c->key : none, err)
                       : tu_fail(err, TU_EUSAGE, "codec '%s' can only decode", c->name);
    }
    tu_spec_release(&spec);
    return rc;
}

/* A dtype by the registry's name, whatever it was called; any other type as it is. */
static const char *canonical(const char *type)
{
    const struct tu_dtype *t = tu_codec_find(type) ? NULL : tu_dtype_called(type);
    return t ? t->name : type;
}

static int set_type(struct tu_recipe *r, const char *type, struct tu_err *err)
{
    r->mixture = tui_mixture_find(type);
    int rc = r->mixture ? 0 : check_type(type, err);
    if (!rc &&
        !(r->type = tu_strdup(r->mixture ? tui_mixture_base(r->mixture)
                                                : canonical(type), err)))
        rc = TU_ENOMEM;
    return rc;
}

int tu_recipe_new(struct tu_recipe **out, const char *type, struct tu_err *err)
{
    struct tu_recipe *r = tu_calloc(1, sizeof *r, err);
    if (!r)
        return TU_ENOMEM;
    int rc = set_type(r, type, err);
    for (size_t i = 0; !rc && i < TUI_ROLE_ROWS; i++)
        rc = tu_pattern_new(&r->role[i], tui_roles[i].pattern, TU_PATTERN_REGEX, err);
    if (!rc)
        rc = tu_pattern_new(&r->skip, SKIP, TU_PATTERN_REGEX, err);
    if (rc)
        tu_recipe_free(r);
    else
        *out = r;
    return rc;
}

void tu_recipe_free(struct tu_recipe *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++) {
        tu_pattern_free(r->rule[i].pattern);
        tu_free(r->rule[i].text);
    }
    for (size_t i = 0; i < TUI_ROLE_ROWS; i++)
        tu_pattern_free(r->role[i]);
    tu_pattern_free(r->skip);
    tu_free(r->rule);
    tu_free(r->type);
    tu_free(r);
}

int tu_recipe_rule(struct tu_recipe *r, const char *text, struct tu_err *err)
{
    int rc = TU_GROW(&r->rule, &r->cap, r->n, err);
    if (rc)
        return rc;
    struct rule *u = &r->rule[r->n];
    memset(u, 0, sizeof *u);
    if (!(u->text = tu_strdup(text, err)))
        return TU_ENOMEM;
    r->n++;
    /* The type may hold '=' in its arguments, a pattern seldom: cut at the first. */
    char *equals = strchr(u->text, '=');
    if (!equals || equals == u->text || !equals[1])
        return tu_fail(err, TU_EUSAGE, "rule '%.80s': expected PATTERN=TYPE", text);
    *equals = '\0';
    u->type = equals + 1;
    if ((rc = check_type(u->type, err)))
        return rc;
    u->type = canonical(u->type);
    return tu_pattern_new(&u->pattern, u->text, TU_PATTERN_REGEX, err);
}

int tu_recipe_file(struct tu_recipe *r, const char *path, struct tu_err *err)
{
    char *text;
    size_t n, line = 0;
    int rc = tu_file_read(path, 1 << 20, &text, &n, err);
    if (rc)
        return rc;
    for (char *s = text, *end; !rc && s < text + n; s = end + 1) {
        end = s + strcspn(s, "\n");
        *end = '\0';
        line++;
        s += strspn(s, " \t\r");
        s[strcspn(s, "#")] = '\0';
        size_t len = strlen(s);
        while (len && strchr(" \t\r", s[len - 1]))
            s[--len] = '\0';
        if (len && (rc = tu_recipe_rule(r, s, err)))
            tu_err_prefix(err, "%s: line %zu", path, line);
    }
    tu_free(text);
    return rc;
}

void tu_recipe_model(struct tu_recipe *r, const struct tu_recipe_model *m)
{
    r->model = *m;
}

/* Role, layer and width by name and shape; *row TUI_ROLE_ROWS where there is no role. */
static int find_place(const struct tu_recipe *r, const struct tu_tensor *t,
                      struct tui_place *at, size_t *row, struct tu_err *err)
{
    const size_t n = strlen(t->name);
    *at = (struct tui_place){.role = TUI_ANY, .cols = t->rank ? t->dim[t->rank - 1] : 1};
    *row = TUI_ROLE_ROWS;
    for (size_t i = 0; i < TUI_ROLE_ROWS; i++) {
        struct tu_match m;
        bool yes;
        int rc = tu_pattern_match(r->role[i], t->name, n, &m, &yes, err);
        if (rc)
            return rc;
        at->expert |= yes && tui_roles[i].role == TUI_ANY;
        if (!yes || *row < TUI_ROLE_ROWS)
            continue;
        *row = i;
        at->role = tui_roles[i].role;
        for (unsigned g = 1; g < m.n; g++)
            if (m.group[g].begin != SIZE_MAX)
                at->layer = strtoll(t->name + m.group[g].begin, NULL, 10);
    }
    return 0;
}

static void set(struct tu_choice *c, const char *type, const char *why, const char *what)
{
    snprintf(c->type, sizeof c->type, "%s", type);
    snprintf(c->why, sizeof c->why, "%s%s%.80s", why, *what ? ": " : "", what);
}

/* What stands in for a codec whose blocks do not divide the rows, as llama.cpp
 * chooses. */
static void fall_back(const struct tu_tensor *t, struct tu_choice *out)
{
    static const struct {
        const char *from, *to;
    } table[] = {{"q2_k", "q4_0"},  {"q3_k", "q4_0"},    {"tq1_0", "q4_0"},
                 {"tq2_0", "q4_0"}, {"q4_k", "q5_0"},    {"q5_k", "q5_1"},
                 {"q6_k", "q8_0"},  {"q2_0", "q4_0"},    {"iq4_xs", "iq4_nl"},
                 {"iq1_s", "iq4_nl"}, {"iq1_m", "iq4_nl"}, {"iq2_xxs", "iq4_nl"},
                 {"iq2_xs", "iq4_nl"}, {"iq2_s", "iq4_nl"}, {"iq3_xxs", "iq4_nl"},
                 {"iq3_s", "iq4_nl"}};
    const struct tu_dtype *d = tu_dtype_named(out->type);
    uint64_t cols = t->rank ? t->dim[t->rank - 1] : 1;
    if (!d || !(d->code & TU_DTYPE_GGML) || cols % d->block_elems == 0)
        return;
    memcpy(out->wanted, out->type, sizeof out->wanted);
    out->fallback = true;
    const char *to = "f16";
    for (size_t i = 0; cols % 32 == 0 && i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].from, out->wanted) == 0)
            to = table[i].to;
    char why[64];
    snprintf(why, sizeof why, "%" PRIu64 " columns are no multiple of %u", cols,
             d->block_elems);
    set(out, to, why, "");
}

static int by_rule(struct tu_recipe *r, const struct tu_tensor *t, struct tu_choice *out,
                   bool *done, struct tu_err *err)
{
    for (size_t i = 0; i < r->n && !*done; i++) {
        int rc = tu_pattern_match(r->rule[i].pattern, t->name, strlen(t->name), NULL,
                                  done, err);
        if (rc)
            return rc;
        if (*done) {
            r->rule[i].used = true;
            set(out, r->rule[i].type, "rule", r->rule[i].text);
        }
    }
    return 0;
}

void tu_recipe_engine(struct tu_recipe *r)
{
    r->engine = true;
}

int tu_recipe_choose(struct tu_recipe *r, const struct tu_tensor *t,
                     struct tu_choice *out, struct tu_err *err)
{
    bool ruled = false, skip = false;
    struct tui_place at;
    size_t row;
    *out = (struct tu_choice){.fallback = false};
    int rc = by_rule(r, t, out, &ruled, err);
    if (!rc && !ruled)
        rc = tu_pattern_match(r->skip, t->name, strlen(t->name), NULL, &skip, err);
    if (!rc)
        rc = find_place(r, t, &at, &row, err);
    if (rc)
        return rc;
    out->role = row < TUI_ROLE_ROWS ? tui_roles[row].name : NULL;
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    if (!d || !tu_dtype_is_float(t->dtype)) {
        if (!ruled || !d)
            set(out, "keep", "not floating-point", "");
        return 0;
    }
    if (ruled) {
        out->fixed = true;
        fall_back(t, out);
        return 0;
    }
    if (t->rank < 2) {
        set(out, "keep", "fewer than 2 dimensions", "");
    } else if (skip) {
        set(out, "keep", "by name: norm, router, position or convolution", "");
    } else if (r->engine && (at.role == TUI_EMBED || at.role == TUI_OUTPUT)) {
        set(out, "keep", "engines read it as it is", "");
    } else if (r->mixture) {
        const char *type = tui_mixture_choose(r->mixture, &r->model, &at);
        set(out, type ? type : r->type, tui_mixture_name(r->mixture),
            type && out->role ? out->role : "");
        fall_back(t, out);
    } else {
        set(out, r->type, "default", "");
        fall_back(t, out);
    }
    return 0;
}

int tu_recipe_file_type(const struct tu_recipe *r)
{
    static const struct {
        const char *name;
        int number;
    } table[] = {{"f32", 0},    {"f16", 1},    {"q4_0", 2},   {"q4_1", 3},    {"q8_0", 7},
                 {"q5_0", 8},   {"q5_1", 9},   {"q2_k", 10},  {"q3_k", 11},   {"q4_k", 14},
                 {"q5_k", 16},  {"q6_k", 18},  {"iq4_nl", 25}, {"iq4_xs", 30}, {"bf16", 32},
                 {"tq1_0", 36}, {"tq2_0", 37}, {"mxfp4", 38}, {"nvfp4", 39},  {"q1_0", 40},
                 {"q2_0", 41}};
    if (r->mixture)
        return tui_mixture_file_type(r->mixture);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, r->type) == 0)
            return table[i].number;
    return -1;
}

int tu_recipe_check(const struct tu_recipe *r, struct tu_err *err)
{
    for (size_t i = 0; i < r->n; i++)
        if (!r->rule[i].used)
            return tu_fail(err, TU_EUSAGE, "rule '%.80s=%.80s' has matched no tensor",
                           r->rule[i].text, r->rule[i].type);
    return 0;
}
