/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.c: digests as a text that diff(1) can compare, and as we do. */

#include <stdlib.h>
#include <string.h>

#include "ckpt.h"

static int by_name(const void *x, const void *y)
{
    const struct tu_digest *a = x, *b = y;
    return strcmp(a->name, b->name);
}

int tu_digest_write(struct tu_buf *out, struct tu_digest *d, size_t n, struct tu_err *err)
{
    int rc = 0;
    qsort(d, n, sizeof *d, by_name);
    for (size_t i = 0; i < n && !rc; i++) {
        char dtype[8], sha[TU_SHA256_HEX] = "-";
        if (d[i].has_sha)
            tu_sha256_hex(d[i].sha, sha);
        rc = tu_buf_printf(out, err, "%08x %s %s ", d[i].crc, sha,
                           tu_dtype_text(d[i].dtype, dtype));
        if (!rc)
            rc = tu_shape_text(out, d[i].dim, d[i].rank, err);
        if (!rc)
            rc = tu_buf_text(out, " ", err);
        if (!rc)
            rc = tu_text_escape(out, d[i].name, strlen(d[i].name), err);
        if (!rc)
            rc = tu_buf_text(out, "\n", err);
    }
    return rc;
}

/* A line of a manifest without its end; advances *at. */
struct line {
    const char *text, *name; /* name: behind the fourth space; NULL: not a line of ours */
    int n, name_n;
};

static bool next_line(const char **at, struct line *out)
{
    const char *end = strchr(*at, '\n'), *p = *at;
    if (!*p)
        return false;
    end = end ? end : p + strlen(p);
    *out = (struct line){.text = p, .n = (int)(end - p)};
    for (int k = 0; p && k < 4; k++)
        p = (p = memchr(p, ' ', (size_t)(end - p))) ? p + 1 : NULL;
    out->name = p;
    out->name_n = p ? (int)(end - p) : 0;
    *at = *end ? end + 1 : end;
    return true;
}

int tui_manifest_names(const char *text, tui_name_fn take, void *ctx, struct tu_err *err)
{
    struct line l;
    int rc = 0;
    while (!rc && next_line(&text, &l))
        rc = l.name ? take(ctx, l.name, (size_t)l.name_n, err) : 0;
    return rc;
}

/* As strcmp of the names. */
static int order(const struct line *x, const struct line *y)
{
    int n = x->name_n < y->name_n ? x->name_n : y->name_n;
    int d = memcmp(x->name, y->name, (size_t)n);
    return d ? d : x->name_n - y->name_n;
}

static int shown(int n)
{
    return n < 80 ? n : 80;
}

static int differ(const char *path, const struct line *listed, const struct line *now,
                  struct tu_err *err)
{
    if (!now)
        return tu_fail(err, TU_EINCOMPLETE, "%.120s: '%.*s' is listed and not there", path,
                       shown(listed->name_n), listed->name);
    if (!listed)
        return tu_fail(err, TU_EINCOMPLETE, "%.120s: '%.*s' is there and not listed", path,
                       shown(now->name_n), now->name);
    return tu_fail(err, TU_EPCRC, "'%.*s' is not what %.80s lists (%.8s, it is %.8s)",
                   shown(now->name_n), now->name, path, listed->text, now->text);
}

/* Both sorted by name. */
static int compare(const char *path, const char *listed, const char *now, bool selected,
                   uint64_t *equal, struct tu_err *err)
{
    struct line x, y;
    bool has_x = next_line(&listed, &x), has_y = next_line(&now, &y);
    while (has_x || has_y) {
        if (has_x && !x.name)
            return tu_fail(err, TU_EFORMAT, "%.120s: '%.*s' is no line of a manifest", path,
                           shown(x.n), x.text);
        int d = !has_x ? 1 : !has_y ? -1 : order(&x, &y);
        if (d > 0 || (d < 0 && !selected))
            return differ(path, d > 0 ? NULL : &x, d < 0 ? NULL : &y, err);
        if (!d && (x.n != y.n || memcmp(x.text, y.text, (size_t)x.n)))
            return differ(path, &x, &y, err);
        *equal += !d;
        has_y = d ? has_y : next_line(&now, &y);
        has_x = next_line(&listed, &x);
    }
    return 0;
}

int tu_ckpt_verify_digests(const struct tu_ckpt *c, const struct tu_shard_opts *o,
                           const struct tu_job *job, uint64_t *compared,
                           struct tu_err *err)
{
    struct tu_shard_opts sha = o ? *o : (struct tu_shard_opts){.dtype = TU_DTYPE_NONE};
    struct tu_digest *d = NULL;
    struct tu_buf now = {0};
    char *listed = NULL, *path = tui_join(c->arena, c->root, TU_DIGESTS, err);
    size_t n = 0;
    *compared = 0;
    if (!path)
        return TU_ENOMEM;
    if (!tui_is_file(path))
        return 0;
    int rc = tu_file_read(path, TUI_MANIFEST_MAX, &listed, &n, err);
    if (!rc && !(d = tu_alloc(c->atoms + 1, sizeof *d, err)))
        rc = TU_ENOMEM;
    if (!rc) {
        sha.sha256 = n > 10 && listed[9] != '-';
        rc = tu_ckpt_digest(c, &sha, job, d, err);
    }
    if (!rc)
        rc = tu_digest_write(&now, d, c->atoms, err);
    if (!rc)
        rc = compare(path, listed, now.data ? now.data : "",
                     o && ((o->include && *o->include) || (o->exclude && *o->exclude)),
                     compared, err);
    tu_buf_release(&now);
    tu_free(d);
    tu_free(listed);
    return rc;
}
