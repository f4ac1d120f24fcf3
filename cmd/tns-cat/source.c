/* SPDX-License-Identifier: Apache-2.0 */
/* source.c: files of any format, and --join, through the sources of lib/format. */
#include "tns-cat/cat.h"

static int write_all(struct cat *c, struct tu_source *s, struct tu_err *err)
{
    struct tu_record rec;
    int rc = 0;
    for (size_t i = 0; !rc && i < s->metas; i++)
        rc = cat_meta(c, s->meta[i].topic, s->meta[i].json, s->meta[i].n, err);
    for (size_t i = 0; i < s->n; i++)
        c->total += s->tensor[i].bytes;
    for (size_t i = 0; !rc && i < s->n; i++) {
        struct tu_walk w = {s, i, 0};
        tu_record_of(&rec, &s->tensor[i]);
        rc = tu_source_verify(s, i, c->job->pool, err); /* before its bytes go out */
        if (!rc)
            rc = cat_tensor(c, &rec, NULL, tu_walk_pull, &w, err);
    }
    return rc ? rc : cat_end(c, err);
}

int cat_source(struct cat *c, const char *path, struct tu_err *err)
{
    struct tu_source *s;
    int rc = tu_source_open(&s, path, NULL, NULL, c->job, err);
    if (!rc && c->opt->join)
        rc = tu_source_join(&s, s, err);
    if (rc)
        return rc;
    rc = write_all(c, s, err);
    tu_source_close(s);
    return rc;
}
