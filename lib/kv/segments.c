/* SPDX-License-Identifier: Apache-2.0 */
/* segments.c: the segments of a stream as caches. A pipe is spooled: what shares pages or
 * changes layout reads records in another order than they come. */
#include <stdio.h>
#include <string.h>
#include <tensorutils/kv.h>

struct segment {
    struct tu_kv base;
    struct tu_stream_index *index; /* the set's */
    size_t *entry;                 /* [n] of the index */
    bool *seen;                    /* [n] its checksum was right */
};

static int segment_read(struct tu_kv *kv, size_t i, uint64_t off, void *buf, size_t n,
                        struct tu_err *err)
{
    struct segment *s = (struct segment *)kv;
    return tu_index_read(s->index, s->entry[i], off, buf, n, err);
}

static int segment_verify(struct tu_kv *kv, size_t i, struct tu_err *err)
{
    struct segment *s = (struct segment *)kv;
    int rc = s->seen[i] ? 0 : tu_index_verify(s->index, s->entry[i], NULL, err);
    s->seen[i] = !rc;
    return rc;
}

static const struct tu_kv_ops ops = {segment_read, segment_verify, NULL};

/* META of a topic other than kv and contents, which is made again. */
static int take_meta(struct segment *s, const struct tu_tensor *t, struct tu_err *err)
{
    struct tu_kv *kv = &s->base;
    if (!strcmp(t->name, "contents") || !t->meta)
        return 0;
    if (!strcmp(t->name, "kv"))
        return tu_kv_info_parse(&kv->info, t->meta, strlen(t->meta), err);
    struct tu_meta *more = tu_arena_alloc(kv->arena, kv->metas + 1, sizeof *more, err);
    if (!more)
        return TU_ENOMEM;
    if (kv->metas)
        memcpy(more, kv->meta, kv->metas * sizeof *more);
    more[kv->metas++] = (struct tu_meta){t->name, t->meta, strlen(t->meta)};
    kv->meta = more;
    return 0;
}

static int take(struct segment *s, size_t first, size_t end, bool *kv, struct tu_err *err)
{
    size_t n = end - first;
    s->entry = tu_arena_alloc(s->base.arena, n, sizeof *s->entry, err);
    s->seen = tu_arena_alloc(s->base.arena, n, sizeof *s->seen, err);
    int rc = s->entry && s->seen ? 0 : TU_ENOMEM;
    for (size_t i = first; !rc && i < end; i++) {
        const struct tu_index_entry *e = tu_index_entry(s->index, i);
        const struct tu_tensor *t = &e->tensor;
        if (e->type == TU_REC_META) {
            *kv = *kv || !strcmp(t->name, "kv");
            rc = take_meta(s, t, err);
        } else if (e->type == TU_REC_TENSOR) {
            s->entry[s->base.n] = i;
            rc = tu_kv_add(&s->base, t->name, t->dtype, t->dim, t->rank, t->meta, err);
        }
    }
    return rc ? rc : tu_kv_finish(&s->base, err);
}

static int add(struct tu_kv_set *set, struct tu_stream_index *index, const char *name,
               size_t first, size_t end, struct tu_err *err)
{
    char text[160];
    bool kv = false;
    snprintf(text, sizeof text, "%.100s: segment %llu", name,
             (unsigned long long)tu_index_entry(index, first)->segment);
    struct segment *s = tu_kv_new(sizeof *s, &ops, text, err);
    if (!s)
        return TU_ENOMEM;
    s->index = index;
    int rc = take(s, first, end, &kv, err);
    if (!rc && !kv)
        rc = tu_fail(err, TU_EINCOMPLETE, "%s: no META kv: not a KV cache", text);
    if (!rc)
        rc = TU_GROW(&set->kv, &set->cap, set->n, err);
    if (rc)
        tu_kv_close(&s->base);
    else
        set->kv[set->n++] = &s->base;
    return rc;
}

int tu_kv_set_add(struct tu_kv_set *set, struct tu_in *in, const char *folder,
                  struct tu_err *err)
{
    struct tu_in *file = in;
    struct tu_stream_index *index = NULL;
    char name[128];
    snprintf(name, sizeof name, "%.100s", tu_in_name(in));
    if (!tu_in_seekable(in)) {
        int rc = tu_in_spool(&file, in, folder, err);
        tu_in_close(in);
        if (rc)
            return rc;
    }
    int rc = tu_index_open(&index, file, err);
    if (!rc && (rc = TU_GROW(&set->index, &set->streams_cap, set->streams, err)))
        tu_index_close(index);
    if (rc)
        return rc;
    set->index[set->streams++] = index;
    size_t n = tu_index_count(index);
    for (size_t i = 0, first = 0; !rc && i < n; i++)
        if (i + 1 == n ||
            tu_index_entry(index, i + 1)->segment != tu_index_entry(index, i)->segment) {
            rc = add(set, index, name, first, i + 1, err);
            first = i + 1;
        }
    return rc;
}

void tu_kv_set_release(struct tu_kv_set *s)
{
    for (size_t i = 0; i < s->n; i++)
        tu_kv_close(s->kv[i]);
    for (size_t i = 0; i < s->streams; i++)
        tu_index_close(s->index[i]);
    tu_free(s->kv);
    tu_free(s->index);
    *s = (struct tu_kv_set){0};
}
