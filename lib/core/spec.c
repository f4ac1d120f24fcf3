/* SPDX-License-Identifier: Apache-2.0 */
/* spec.c: NAME[:KEY=VALUE,…], the one way to name a row of a table and to tune it. */
#include <tensorutils/core.h>

#include <stdio.h>

static int malformed(struct tu_err *err, const char *text, const char *why)
{
    char shown[88];
    return tu_fail(err, TU_EUSAGE, "'%s': %s, expected NAME[:KEY=VALUE,...]",
                   tu_text_short(text, strlen(text), shown), why);
}

/* Cut the KEY=VALUE list `p`, which belongs to out, into out->key (room for all). */
static const char *cut(struct tu_spec *out, char *p)
{
    for (char *next; p; p = next) {
        next = strchr(p, ',');
        if (next)
            *next++ = '\0';
        char *value = strchr(p, '=');
        if (value)
            *value++ = '\0';
        if (!*p)
            return "a key is empty";
        if (tu_spec_get(out, p))
            return "a key is given twice";
        out->key[out->n++] = (struct tu_spec_key){p, value ? value : p + strlen(p)};
    }
    return NULL;
}

int tu_spec_parse(struct tu_spec *out, const char *text, struct tu_err *err)
{
    *out = (struct tu_spec){0};
    if (!(out->name = tu_strdup(text, err)))
        return TU_ENOMEM;
    int rc = 0;
    char *list = strchr(out->name, ':');
    if (list)
        *list++ = '\0';
    if (!*out->name) {
        rc = malformed(err, text, "the name is empty");
        goto out;
    }
    if (list) {
        size_t n = 1;
        for (const char *p = list; *p; p++)
            n += *p == ',';
        if (!(out->key = tu_alloc(n, sizeof *out->key, err))) {
            rc = TU_ENOMEM;
            goto out;
        }
        const char *why = cut(out, list);
        if (why)
            rc = malformed(err, text, why);
    }
out:
    if (rc)
        tu_spec_release(out);
    return rc;
}

void tu_spec_release(struct tu_spec *s)
{
    if (!s)
        return;
    tu_free(s->key);
    tu_free(s->name); /* the keys and values lie in it */
    *s = (struct tu_spec){0};
}

const char *tu_spec_get(const struct tu_spec *s, const char *key)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->key[i].key, key))
            return s->key[i].value;
    return NULL;
}

int tu_spec_print(const struct tu_spec *s, struct tu_buf *out, struct tu_err *err)
{
    int rc = tu_buf_text(out, s->name, err);
    for (size_t i = 0; !rc && i < s->n; i++)
        rc = tu_buf_printf(out, err, "%c%s%s%s", i ? ',' : ':', s->key[i].key,
                           *s->key[i].value ? "=" : "", s->key[i].value);
    return rc;
}

int tu_spec_u64(const struct tu_spec *s, const char *key, uint64_t fallback,
                uint64_t *out, struct tu_err *err)
{
    const char *value = tu_spec_get(s, key);
    if (!value) {
        *out = fallback;
        return 0;
    }
    if (!*value)
        return tu_fail(err, TU_EUSAGE, "%s: %s: needs a number: %s=N", s->name, key, key);
    int rc = tu_parse_u64(value, out, err);
    if (rc)
        tu_err_prefix(err, "%s: %s", s->name, key);
    return rc;
}

static const char *known_key(const void *ctx, size_t i)
{
    return ((const char *const *)ctx)[i];
}

static int unknown_key(const struct tu_spec *s, const char *key, const char *const *known,
                       struct tu_err *err)
{
    char shown[88];
    tu_fail(err, TU_EUSAGE, "%s: unknown key '%s'", s->name,
            tu_text_short(key, strlen(key), shown));
    for (size_t i = 0, used; err && known[i]; i++) {
        used = strlen(err->msg);
        snprintf(err->msg + used, sizeof err->msg - used, "%s%s%s",
                 i ? ", " : " (its keys: ", known[i], known[i + 1] ? "" : ")");
    }
    if (err && !*known) {
        const size_t used = strlen(err->msg);
        snprintf(err->msg + used, sizeof err->msg - used, " (it has no keys)");
    }
    tu_suggest(err, key, "", known_key, known);
    return TU_EUSAGE;
}

int tu_spec_check(const struct tu_spec *s, const char *const *known, struct tu_err *err)
{
    for (size_t i = 0; i < s->n; i++) {
        size_t k = 0;
        while (known[k] && strcmp(known[k], s->key[i].key))
            k++;
        if (!known[k])
            return unknown_key(s, s->key[i].key, known, err);
    }
    return 0;
}
