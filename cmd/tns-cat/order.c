/* SPDX-License-Identifier: Apache-2.0 */
/* order.c: --order: by the index of a file; what comes through a pipe is first kept in
 * one.
 *
 * Within a segment: META and other records as they came, then the tensors that match
 * the first pattern, those of the second, and the rest. */
#include <stdlib.h>
#include <string.h>
#include "tns-cat/cat.h"

struct place {
    uint64_t segment;
    size_t group; /* 0: no tensor; 1 …: patterns; last: the rest */
    size_t entry;
};

static int compare(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->segment != y->segment)
        return x->segment < y->segment ? -1 : 1;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

static int find_group(const struct cat *c, const struct tu_index_entry *e, size_t *group,
                      struct tu_err *err)
{
    *group = 0;
    if (e->type != TU_REC_TENSOR)
        return 0;
    struct tu_pattern **pattern = TU_LIST(&c->opt->order, struct tu_pattern *);
    bool yes = false;
    for (size_t i = 0; i < c->opt->order.n && !yes; i++) {
        int rc = tu_pattern_match(pattern[i], e->tensor.name, strlen(e->tensor.name),
                                  NULL, &yes, err);
        if (rc)
            return rc;
        ++*group;
    }
    *group += !yes;
    return 0;
}

/* A payload read by position, its checksum compared at the end. */
struct source {
    const struct tu_stream_index *index;
    const struct tu_index_entry *entry;
    size_t i;
    uint64_t pos;
    uint32_t crc;
};

static int pull(void *ctx, void *buf, size_t n, size_t *got, struct tu_err *err)
{
    struct source *s = ctx;
    const uint64_t left = s->entry->payload_len - s->pos;
    *got = (size_t)tu_min(n, left);
    if (left == 0)
        return 0;
    int rc = tu_index_read(s->index, s->i, s->pos, buf, *got, err);
    if (rc)
        return rc;
    s->pos += *got;
    s->crc = tu_crc32(s->crc, buf, *got);
    if (s->pos == s->entry->payload_len && s->crc != s->entry->payload_crc)
        return tu_fail_at(err, TU_EPCRC, s->entry->offset,
                          "'%.80s' at byte %llu: payload checksum mismatch (stored %08x, "
                          "computed %08x)",
                          s->entry->tensor.name, (unsigned long long)s->entry->offset,
                          s->entry->payload_crc, s->crc);
    return 0;
}

static int one_entry(struct cat *c, const struct tu_stream_index *x, size_t i,
                     struct tu_err *err)
{
    const struct tu_index_entry *e = tu_index_entry(x, i);
    struct source s = {.index = x, .entry = e, .i = i};
    struct tu_record rec;
    if (e->type == TU_REC_META)
        return cat_meta(c, e->tensor.name, e->tensor.meta,
                        e->tensor.meta ? strlen(e->tensor.meta) : 0, err);
    tu_record_of(&rec, &e->tensor);
    if (e->type == TU_REC_TENSOR)
        return cat_tensor(c, &rec, NULL, pull, &s, err);
    return tu_fail(err, TU_EUNSUP,
                   "records of the unknown type %#x cannot be put in order", e->type);
}

static int write_places(struct cat *c, const struct tu_stream_index *x,
                        const struct place *p, size_t n, struct tu_err *err)
{
    size_t at = 0;
    for (uint64_t segment = 0; segment < tu_index_segments(x); segment++) {
        int rc = 0;
        for (; !rc && at < n && p[at].segment == segment; at++)
            rc = one_entry(c, x, p[at].entry, err);
        if (!rc)
            rc = cat_end(c, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int open_index(struct tu_stream_index **x, const char *path, struct tu_err *err)
{
    struct tu_in *in, *copy;
    int rc = tu_in_open(&in, path, err);
    if (rc)
        return rc;
    if (tu_in_seekable(in))
        return tu_index_open(x, in, err);
    rc = tu_in_spool(&copy, in, NULL, err);
    tu_in_close(in);
    return rc ? rc : tu_index_open(x, copy, err);
}

int cat_ordered(struct cat *c, const char *path, struct tu_err *err)
{
    struct tu_stream_index *x;
    int rc = open_index(&x, path, err);
    if (rc)
        return rc;
    const size_t n = tu_index_count(x);
    struct place *p = tu_alloc(n, sizeof *p, err);
    if (!p)
        rc = TU_ENOMEM;
    for (size_t i = 0; !rc && i < n; i++) {
        const struct tu_index_entry *e = tu_index_entry(x, i);
        p[i] = (struct place){.segment = e->segment, .entry = i};
        c->total += e->payload_len;
        rc = find_group(c, e, &p[i].group, err);
    }
    if (!rc) {
        qsort(p, n, sizeof *p, compare);
        rc = write_places(c, x, p, n, err);
    }
    tu_free(p);
    tu_index_close(x);
    return rc;
}
