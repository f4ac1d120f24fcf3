/* SPDX-License-Identifier: Apache-2.0 */
/* join.c: tensors that come in pieces, seen whole.
 *
 * A piece is a record whose metadata has `shard` (a box of the whole) or `flat` (a range
 * of its flattened elements). A range of the whole's C order meets each box in one range
 * of the box's own C order, so a read is one read per piece and a scatter of runs: memory
 * is what the caller asked for. Dimensions count in blocks where a dtype packs several
 * elements. */
#include <stdlib.h>
#include "kit.h"

struct piece {
    size_t i;            /* tensor of the source below */
    unsigned rank;       /* of the box */
    const uint64_t *off; /* [rank] blocks in the last dimension */
    const uint64_t *len;
};

struct whole {
    bool joined;       /* else tensor `first` below, as it is */
    size_t first;
    unsigned rank;     /* of the boxes: 1 for flat ones */
    uint64_t *dim;     /* [rank] in blocks */
    size_t elem;       /* bytes of a block */
    bool flat;
    size_t n, cap;
    struct piece *piece; /* tu_free */
};

struct join_source {
    struct tu_source base;
    struct tu_source *below;
    struct whole *whole;   /* [wholes] */
    size_t wholes, cap;
};

/* metadata ------------------------------------------------------------------------------------- */

/* Name the tensor that the error is about; returns its code. */
static int blame(int code, const char *path, const char *name, struct tu_err *err)
{
    char shown[88];
    tu_err_prefix(err, "%s: '%s'", path, tu_text_short(name, strlen(name), shown));
    return code;
}

static int bad_shard(const struct tu_source *s, const struct tu_tensor *t, const char *why,
                     struct tu_err *err)
{
    return blame(tu_fail(err, TU_ESHARD, "%s", why), s->path, t->name, err);
}

/* Elements to blocks in the last dimension; packed elements must not be cut inside a
 * block. */
static int to_blocks(uint64_t *last, const struct tu_source *s, const struct tu_tensor *t,
                     struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    if (*last % d->block_elems)
        return bad_shard(s, t, "its pieces cut blocks of packed elements", err);
    *last /= d->block_elems;
    return 0;
}

/* building ------------------------------------------------------------------------------------- */

static struct whole *find_whole(struct join_source *j, const struct tui_names *names, size_t *of,
                                const char *name)
{
    size_t first = tui_names_find(names, name);
    return first != SIZE_MAX && of[first] != SIZE_MAX ? &j->whole[of[first]] : NULL;
}

static int add_whole(struct join_source *j, size_t first, bool joined, struct tu_err *err)
{
    int code = TU_GROW(&j->whole, &j->cap, j->wholes, err);
    if (!code)
        j->whole[j->wholes++] = (struct whole){ .first = first, .joined = joined };
    return code;
}

/* The whole's shape: of the first piece, open dimensions filled by whoever knows them. */
static int agree(struct whole *w, const struct tu_region *c, const struct tu_source *s, size_t i,
                 struct tu_arena *arena, struct tu_err *err)
{
    const struct tu_tensor *t = &s->tensor[i], *first = &s->tensor[w->first];
    const bool flat = c->kind == TU_REGION_FLAT;
    if (!w->dim) {
        w->dim = tu_arena_alloc(arena, c->rank + 1, sizeof *w->dim, err); /* flat: at least one */
        if (!w->dim)
            return TU_ENOMEM;
        w->rank = c->rank;
        w->flat = flat;
        memcpy(w->dim, c->global, c->rank * sizeof *w->dim);
        return 0;
    }
    if (t->dtype != first->dtype || c->rank != w->rank || flat != w->flat)
        return bad_shard(s, t, "its pieces differ in dtype, rank or kind", err);
    for (unsigned k = 0; k < c->rank; k++) {
        if (w->dim[k] == TU_REGION_OPEN)
            w->dim[k] = c->global[k];
        else if (c->global[k] != TU_REGION_OPEN && c->global[k] != w->dim[k])
            return bad_shard(s, t, "its pieces disagree on the whole shape", err);
    }
    return 0;
}

static int add_piece(struct whole *w, const struct tu_region *c, const struct tu_source *s,
                     size_t i, struct tu_arena *arena, struct tu_err *err)
{
    unsigned rank = c->kind == TU_REGION_FLAT ? 1 : c->rank;
    uint64_t *box = tu_arena_alloc(arena, 2 * rank, sizeof *box, err);
    int code = box ? agree(w, c, s, i, arena, err) : TU_ENOMEM;
    if (code)
        return code;
    memcpy(box, c->off, rank * sizeof *box);
    memcpy(box + rank, c->len, rank * sizeof *box);
    for (unsigned k = 0; !code && rank && k < 2; k++)
        code = to_blocks(&box[k * rank + rank - 1], s, &s->tensor[i], err);
    if (!code)
        code = TU_GROW(&w->piece, &w->cap, w->n, err);
    if (!code)
        w->piece[w->n++] = (struct piece){ i, rank, box, box + rank };
    return code;
}

static int add_tensor(struct join_source *j, size_t i, const struct tui_names *names, size_t *of,
                      bool *any, struct tu_err *err)
{
    const struct tu_source *s = j->below;
    const struct tu_tensor *t = &s->tensor[i];
    struct tu_region c;
    int code = tu_region_of(&c, t, err);
    if (!code && c.partial)
        code = tu_fail(err, TU_EUNSUP, "part of a sum (shard.partial), which only adding can "
                       "complete");
    if (code)
        return blame(code, s->path, t->name, err);
    if (c.kind == TU_REGION_WHOLE)
        return add_whole(j, i, false, err);
    *any = true;
    struct whole *w = find_whole(j, names, of, t->name);
    if (!w) {
        code = add_whole(j, i, true, err);
        if (code)
            return code;
        w = &j->whole[j->wholes - 1];
        of[tui_names_find(names, t->name)] = j->wholes - 1;
    }
    return add_piece(w, &c, s, i, j->base.arena, err);
}

/* The record's metadata without what made it a piece; NULL if nothing is left. */
static int plain_meta(const char **out, const struct tu_tensor *t, struct tu_arena *arena,
                      struct tu_err *err)
{
    json_t *meta = NULL;
    struct tu_buf b = { 0 };
    int code = tu_json_parse(&meta, t->meta, strlen(t->meta), NULL, err);
    json_object_del(meta, "shard");
    json_object_del(meta, "flat");
    *out = NULL;
    if (!code && json_object_size(meta)) {
        code = tu_json_dump(&b, meta, err);
        *out = code ? NULL : tu_arena_text(arena, b.data, b.n, err);
        code = code ? code : *out ? 0 : TU_ENOMEM;
    }
    tu_buf_release(&b);
    json_decref(meta);
    return code;
}

static int by_box(const void *pa, const void *pb)
{
    const struct piece *a = pa, *b = pb;
    for (unsigned k = 0; k < 2 * a->rank; k++) {
        if (a->off[k] != b->off[k])
            return a->off[k] < b->off[k] ? -1 : 1;
    }
    return (a->i > b->i) - (a->i < b->i);
}

/* Equal boxes hold the same: one of them is enough. Where the file stores checksums, they
 * say it. */
static int drop_replicas(const struct join_source *j, struct whole *w, const char *name,
                         struct tu_err *err)
{
    const uint64_t *crc = j->below->crc;
    char shown[88];
    size_t n = 1;
    qsort(w->piece, w->n, sizeof *w->piece, by_box);
    for (size_t k = 1; k < w->n; k++) {
        const struct piece *last = &w->piece[n - 1], *p = &w->piece[k];
        if (memcmp(last->off, p->off, 2 * last->rank * sizeof *last->off))
            w->piece[n++] = *p;
        else if (crc && crc[p->i] != crc[last->i] && crc[p->i] != TU_CRC_NONE &&
                 crc[last->i] != TU_CRC_NONE)
            return tu_fail(err, TU_EINCOMPLETE, "%s: '%s': two replicas of a piece differ "
                           "(checksums %08llx and %08llx)", j->base.path,
                           tu_text_short(name, strlen(name), shown),
                           (unsigned long long)crc[last->i], (unsigned long long)crc[p->i]);
    }
    w->n = n;
    return 0;
}

static int check_tiles(const struct join_source *j, const struct whole *w, const char *name,
                       struct tu_err *err)
{
    struct tu_box *box = tu_alloc(w->n, sizeof *box, err);
    if (!box)
        return TU_ENOMEM;
    unsigned rank = w->flat ? 1 : w->rank;
    for (size_t k = 0; k < w->n; k++)
        box[k] = (struct tu_box){ rank, w->piece[k].off, w->piece[k].len };
    int code = tu_box_tile(box, w->n, w->dim, rank, err);
    tu_free(box);
    return code ? blame(code, j->base.path, name, err) : 0;
}

/* The description of a whole tensor; afterwards w->dim counts in blocks, and flat ones
 * are a line. */
static int describe(struct join_source *j, struct whole *w, struct tu_tensor *out,
                    struct tu_err *err)
{
    const struct tu_tensor *t = &j->below->tensor[w->first];
    *out = *t;
    if (!w->joined)
        return 0;
    uint64_t *dim = tu_arena_alloc(j->base.arena, w->rank, sizeof *dim, err);
    if (!dim)
        return TU_ENOMEM;
    for (unsigned k = 0; k < w->rank; k++) {
        if (w->dim[k] == TU_REGION_OPEN)
            return tu_fail(err, TU_EINCOMPLETE, "%s: '%.80s': no piece says how large dimension %u "
                           "is: the last one is missing", j->base.path, t->name, k);
    }
    if (w->rank)
        memcpy(dim, w->dim, w->rank * sizeof *dim);
    out->rank = w->rank;
    out->dim = dim;
    w->elem = tu_dtype_find(t->dtype)->block_bytes;
    int code = tu_tensor_bytes(t->dtype, dim, w->rank, &out->bytes, err);
    if (!code && w->flat)
        code = tu_elements(dim, w->rank, &w->dim[0], err);
    if (!code && (w->flat || w->rank))
        code = to_blocks(&w->dim[w->flat ? 0 : w->rank - 1], j->below, t, err);
    if (!code)
        code = plain_meta(&out->meta, t, j->base.arena, err);
    if (!code)
        code = drop_replicas(j, w, t->name, err);
    return code ? code : check_tiles(j, w, t->name, err);
}

/* reading -------------------------------------------------------------------------------------- */

/* How many elements of a box come before element e of the whole's C order. */
static uint64_t rank_in_box(const struct whole *w, const struct piece *p, unsigned rank,
                            uint64_t e)
{
    uint64_t inner = 1, box = 1; /* elements of the whole and of the box under dimension k */
    uint64_t count = 0;
    for (unsigned k = 0; k < rank; k++) {
        inner *= w->dim[k];
        box *= p->len[k];
    }
    if (e >= inner || !box)
        return box;
    for (unsigned k = 0; k < rank; k++) {
        inner /= w->dim[k];
        box /= p->len[k];
        uint64_t at = e / inner;
        e %= inner;
        if (at < p->off[k])
            return count;
        if (at >= p->off[k] + p->len[k])
            return count + p->len[k] * box;
        count += (at - p->off[k]) * box;
    }
    return count;
}

/* Put elements from … to-1 of a box, at src, where they belong in the range that begins
 * at element `base` of the whole. */
static void scatter(const struct whole *w, const struct piece *p, unsigned rank, uint64_t from,
                    uint64_t to, const char *src, char *dst, uint64_t base)
{
    /* Runs: the dimensions behind `cut` are whole in the box, so they and `cut` itself
     * are one. */
    unsigned cut = rank;
    uint64_t run = 1;
    while (cut > 0) {
        run *= p->len[--cut];
        if (p->len[cut] != w->dim[cut])
            break;
    }
    while (from < to) {
        uint64_t rest = from, at = 0, step = 1;
        for (unsigned k = rank; k-- > 0;) {
            at += (rest % p->len[k] + p->off[k]) * step;
            rest /= p->len[k];
            step *= w->dim[k];
        }
        uint64_t n = tu_min(run - from % run, to - from);
        memcpy(dst + (at - base) * w->elem, src, (size_t)(n * w->elem));
        src += n * w->elem;
        from += n;
    }
}

/* Whole blocks first … first+n-1. */
static int read_blocks(struct join_source *j, const struct whole *w, uint64_t first, char *buf,
                       size_t n, struct tu_err *err)
{
    unsigned rank = w->flat ? 1 : w->rank;
    char *tmp = w->n > 1 ? tu_alloc(n, w->elem, err) : buf;
    int code = tmp ? 0 : TU_ENOMEM;
    for (size_t k = 0; !code && k < w->n; k++) {
        const struct piece *p = &w->piece[k];
        uint64_t from = rank_in_box(w, p, rank, first), to = rank_in_box(w, p, rank, first + n);
        if (from == to)
            continue;
        code = tu_source_read(j->below, p->i, from * w->elem, tmp, (size_t)((to - from) * w->elem),
                              err);
        if (!code && tmp != buf)
            scatter(w, p, rank, from, to, tmp, buf, first);
    }
    if (tmp != buf)
        tu_free(tmp);
    return code;
}

static int read_join(struct tu_source *s, size_t i, uint64_t off, void *buf, size_t n,
                     struct tu_err *err)
{
    struct join_source *j = (struct join_source *)s;
    const struct whole *w = &j->whole[i];
    if (!w->joined)
        return tu_source_read(j->below, w->first, off, buf, n, err);
    char *out = buf;
    size_t skip = (size_t)(off % w->elem);
    uint64_t first = off / w->elem;
    if (!skip && n % w->elem == 0)
        return read_blocks(j, w, first, out, n / w->elem, err);
    /* Ends inside a block: through a copy. */
    size_t blocks = (size_t)tu_ceil_div(off + n, w->elem) - (size_t)first;
    char *tmp = tu_alloc(blocks, w->elem, err);
    int code = tmp ? read_blocks(j, w, first, tmp, blocks, err) : TU_ENOMEM;
    if (!code)
        memcpy(out, tmp + skip, n);
    tu_free(tmp);
    return code;
}

static int verify_join(struct tu_source *s, size_t i, struct tu_pool *pool, struct tu_err *err)
{
    struct join_source *j = (struct join_source *)s;
    const struct whole *w = &j->whole[i];
    int code = 0;
    if (!w->joined)
        return tu_source_verify(j->below, w->first, pool, err);
    for (size_t k = 0; !code && k < w->n; k++)
        code = tu_source_verify(j->below, w->piece[k].i, pool, err);
    return code;
}

static void close_join(struct tu_source *s)
{
    struct join_source *j = (struct join_source *)s;
    for (size_t k = 0; k < j->wholes; k++)
        tu_free(j->whole[k].piece);
    tu_free(j->whole);
    tu_source_close(j->below);
    tui_source_free(s);
}

static bool summed_join(const struct tu_source *s, size_t i)
{
    const struct join_source *j = (const struct join_source *)s;
    return tu_source_summed(j->below, j->whole[i].first);
}

static const struct tu_source_ops source_ops = { read_join, verify_join, summed_join,
                                                 close_join };

static int build(struct join_source *j, bool *any, struct tu_err *err)
{
    const struct tu_source *s = j->below;
    struct tui_names names;
    int code = tui_names_make(&names, s->tensor, s->n, err);
    size_t *of = code ? NULL : tu_alloc(s->n, sizeof *of, err); /* first of a name -> its whole */
    if (!of)
        code = TU_ENOMEM;
    for (size_t i = 0; !code && i < s->n; i++)
        of[i] = SIZE_MAX;
    for (size_t i = 0; !code && i < s->n; i++)
        code = add_tensor(j, i, &names, of, any, err);
    tu_free(of);
    tui_names_release(&names);
    if (code || !*any)
        return code;
    struct tu_tensor *t = tu_arena_alloc(j->base.arena, j->wholes, sizeof *t, err);
    uint64_t *crc = t ? tu_arena_alloc(j->base.arena, j->wholes, sizeof *crc, err) : NULL;
    if (!crc)
        return TU_ENOMEM;
    for (size_t k = 0; !code && k < j->wholes; k++) {
        code = describe(j, &j->whole[k], &t[k], err);
        crc[k] = s->crc && !j->whole[k].joined ? s->crc[j->whole[k].first] : TU_CRC_NONE;
        j->base.referenced += t[k].bytes;
    }
    j->base.n = j->wholes;
    j->base.tensor = t;
    j->base.crc = crc;
    j->base.metas = s->metas;
    j->base.meta = s->meta;
    j->base.stored = s->stored;
    j->base.pickle = s->pickle;
    j->base.no_crc = s->no_crc;
    return code;
}

int tu_source_join(struct tu_source **out, struct tu_source *in, struct tu_err *err)
{
    struct join_source *j = tui_source_new(sizeof *j, in->format, &source_ops, in->path, err);
    if (!j) {
        tu_source_close(in);
        return TU_ENOMEM;
    }
    bool any = false;
    j->below = in;
    int code = build(j, &any, err);
    *out = &j->base;
    if (!code && !any) {
        j->below = NULL;
        *out = in;
    }
    if (code || !any)
        close_join(&j->base);
    return code;
}
