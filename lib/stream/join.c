/* SPDX-License-Identifier: Apache-2.0 */
/* join.c: pieces with `shard` or `flat` made whole again.
 *
 * Payloads wait in a file without a name until a tensor is complete; it is then gathered window by
 * window. Boxes are in units: an element, or a block of a packed dtype along the last dimension.
 * A flat piece is a box of the flattened tensor. A producer of unknown length says null; the size
 * is known when one piece says it. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <tensorutils/stream.h>

#define BUCKETS 4096

struct piece {
    struct piece *next;
    uint64_t *off, *len; /* [rank] of the whole, units */
    uint64_t at, bytes;  /* in the temporary file */
    uint32_t crc;
};

struct whole {
    struct whole *chain, *next; /* of the bucket; in order of arrival */
    char *name;
    uint32_t dtype;
    size_t unit;          /* bytes */
    bool flat, done;
    unsigned rank;        /* of the boxes: 1 for flat */
    uint64_t *dim;        /* [rank], units; UINT64_MAX: not known yet */
    unsigned out_rank;
    uint64_t *out_dim;    /* [out_rank], elements */
    char *meta;           /* without shard and flat; or NULL */
    uint64_t units;       /* that have come */
    size_t pieces;
    struct piece *piece, **last;
};

struct tu_join {
    struct tu_arena *arena;
    struct tu_out *out;
    struct tu_in *in;
    uint64_t memory, pos;
    struct whole *bucket[BUCKETS], *first, **last;
    unsigned char *buf;   /* TU_IO_CHUNK */
    /* The tensor being given out. */
    struct whole *cur;
    unsigned k;           /* windows are ranges of this dimension; those before it are 1 */
    uint64_t row_units, next_row;
    unsigned char *window, *part;
    uint64_t window_cap, part_cap;
    size_t have, given;
};

/* One piece's metadata. */
struct place {
    bool flat;
    unsigned rank, out_rank;
    uint64_t off[TU_RANK_MAX], dim[TU_RANK_MAX], out_dim[TU_RANK_MAX]; /* dim UINT64_MAX: null */
};

int tu_join_new(struct tu_join **out, const char *folder, uint64_t memory, struct tu_err *err)
{
    struct tu_join *j = tu_calloc(1, sizeof *j, err);
    if (!j)
        return TU_ENOMEM;
    j->memory = memory ? memory : TU_JOB_MEMORY_DEFAULT;
    j->last = &j->first;
    int rc = TU_ENOMEM;
    if ((j->arena = tu_arena_new(err)) && (j->buf = tu_alloc(TU_IO_CHUNK, 1, err)))
        rc = tu_temp_open(&j->out, &j->in, folder, err);
    if (rc)
        tu_join_free(j);
    else
        *out = j;
    return rc;
}

void tu_join_free(struct tu_join *j)
{
    if (!j)
        return;
    tu_out_abort(j->out);
    if (j->in)
        tu_in_close(j->in);
    tu_free(j->buf);
    tu_free(j->window);
    tu_free(j->part);
    tu_arena_free(j->arena);
    tu_free(j);
}

/* The reader has checked the metadata; only the question is left. */
static json_t *parse_meta(const struct tu_record *rec, struct tu_err *err)
{
    json_t *meta = NULL;
    const struct tu_json_limits limits = {.depth = TU_JSON_DEPTH_META, .object = true};
    if (rec->meta_len && tu_json_parse(&meta, rec->meta, rec->meta_len, &limits, err))
        return NULL;
    return meta;
}

bool tu_join_piece(const struct tu_record *rec)
{
    /* Cheap before exact: most metadata is no piece's. */
    if (rec->type != TU_REC_TENSOR || !rec->meta_len ||
        (!strstr(rec->meta, "\"shard\"") && !strstr(rec->meta, "\"flat\"")))
        return false;
    json_t *meta = parse_meta(rec, NULL);
    const bool yes = json_object_get(meta, "shard") || json_object_get(meta, "flat");
    json_decref(meta);
    return yes;
}

static uint64_t count_of(const json_t *v)
{
    uint64_t n = 0;
    if (json_is_null(v))
        return UINT64_MAX;
    if (json_is_integer(v))
        return (uint64_t)json_integer_value(v);
    if (json_is_string(v) && tu_parse_u64(json_string_value(v), &n, NULL))
        return UINT64_MAX;
    return n;
}

static int read_flat(const json_t *flat, struct place *p, struct tu_err *err)
{
    const json_t *global = json_object_get(flat, "global");
    p->flat = true;
    p->rank = 1;
    p->out_rank = (unsigned)json_array_size(global);
    for (unsigned i = 0; i < p->out_rank; i++)
        p->out_dim[i] = count_of(json_array_get(global, i));
    p->off[0] = count_of(json_array_get(json_object_get(flat, "range"), 0));
    return tu_elements(p->out_dim, p->out_rank, &p->dim[0], err);
}

static int read_shard(const json_t *shard, const struct tu_record *rec, struct place *p,
                      struct tu_err *err)
{
    if (json_array_size(json_object_get(shard, "partial")))
        return tu_fail(err, TU_EUNSUP, "a sum over ranks is pending; reduce it first");
    p->rank = p->out_rank = rec->nwords;
    for (unsigned i = 0; i < p->rank; i++) {
        p->off[i] = count_of(json_array_get(json_object_get(shard, "offset"), i));
        p->dim[i] = p->out_dim[i] = count_of(json_array_get(json_object_get(shard, "global"), i));
    }
    return 0;
}

/* Elements to units along the last dimension of the boxes. */
static int to_units(struct place *p, uint64_t *len, const struct tu_record *rec, struct tu_err *err)
{
    const uint32_t be = rec->block_elems;
    if (be <= 1 || p->rank == 0)
        return 0;
    const unsigned last = p->rank - 1;
    const bool known = p->dim[last] != UINT64_MAX;
    const bool ends = p->rank == 1 && known && p->off[last] + len[last] == p->dim[last];
    if (p->off[last] % be || (len[last] % be && !ends) ||
        (known && p->dim[last] % be && p->rank > 1))
        return tu_fail(err, TU_EUNSUP, "the piece does not begin and end on whole blocks of %u", be);
    p->off[last] /= be;
    len[last] = tu_ceil_div(len[last], be);
    if (known)
        p->dim[last] = tu_ceil_div(p->dim[last], be);
    return 0;
}

/* Metadata of the whole: the piece's without its place. */
static int keep_meta(struct tu_join *j, struct whole *w, json_t *meta, struct tu_err *err)
{
    struct tu_buf text = {0};
    json_object_del(meta, "shard");
    json_object_del(meta, "flat");
    if (json_object_size(meta) == 0)
        return 0;
    int rc = tu_json_dump(&text, meta, err);
    if (!rc && !(w->meta = tu_arena_text(j->arena, text.data, text.n, err)))
        rc = TU_ENOMEM;
    tu_buf_release(&text);
    return rc;
}

static int copy_dims(struct tu_join *j, uint64_t **out, const uint64_t *from, unsigned n,
                     struct tu_err *err)
{
    *out = tu_arena_alloc(j->arena, n ? n : 1, sizeof **out, err);
    if (!*out)
        return TU_ENOMEM;
    if (n)
        memcpy(*out, from, n * sizeof **out);
    return 0;
}

static int add_whole(struct tu_join *j, const struct tu_record *rec, const struct place *p,
                     json_t *meta, struct whole **out, struct tu_err *err)
{
    struct whole *w = tu_arena_alloc(j->arena, 1, sizeof *w, err);
    if (!w || !(w->name = tu_arena_text(j->arena, rec->name, rec->name_len, err)))
        return TU_ENOMEM;
    w->dtype = rec->dtype;
    w->unit = rec->block_bytes;
    w->flat = p->flat;
    w->rank = p->rank;
    w->out_rank = p->out_rank;
    w->last = &w->piece;
    int rc = copy_dims(j, &w->dim, p->dim, p->rank, err);
    if (!rc)
        rc = copy_dims(j, &w->out_dim, p->out_dim, p->out_rank, err);
    if (!rc)
        rc = keep_meta(j, w, meta, err);
    if (rc)
        return rc;
    struct whole **bucket = &j->bucket[tu_rng_stream(w->name) % BUCKETS];
    w->chain = *bucket;
    *bucket = w;
    *j->last = w;
    j->last = &w->next;
    *out = w;
    return 0;
}

/* What is known of the whole so far against what this piece says; null agrees with anything. */
static int agree(struct whole *w, const struct tu_record *rec, const struct place *p,
                 struct tu_err *err)
{
    if (w->dtype != rec->dtype || w->flat != p->flat || w->rank != p->rank ||
        w->out_rank != p->out_rank)
        return tu_fail(err, TU_EINCOMPLETE, "pieces disagree about dtype or rank");
    for (unsigned i = 0; i < p->rank; i++) {
        if (w->dim[i] == UINT64_MAX && p->dim[i] != UINT64_MAX) {
            w->dim[i] = p->dim[i];
            w->out_dim[i] = p->out_dim[i]; /* flat pieces know all sizes */
        } else if (p->dim[i] != UINT64_MAX && w->dim[i] != p->dim[i]) {
            return tu_fail(err, TU_EINCOMPLETE,
                           "pieces disagree about dimension %u: %" PRIu64 " and %" PRIu64, i,
                           w->dim[i], p->dim[i]);
        }
    }
    return 0;
}

static struct whole *find(const struct tu_join *j, const char *name)
{
    struct whole *w = j->bucket[tu_rng_stream(name) % BUCKETS];
    while (w && strcmp(w->name, name))
        w = w->chain;
    return w;
}

static const struct piece *same_box(const struct whole *w, const uint64_t *off, const uint64_t *len)
{
    const size_t n = w->rank * sizeof *off;
    for (const struct piece *p = w->piece; p; p = p->next)
        if (!memcmp(p->off, off, n) && !memcmp(p->len, len, n))
            return p;
    return NULL;
}

/* Pull the payload to its end; keep it unless it is a replica. */
static int take_bytes(struct tu_join *j, tu_pull_fn pull, void *ctx, bool keep, uint32_t *crc,
                      struct tu_err *err)
{
    size_t got;
    int rc;
    *crc = 0;
    while ((rc = pull(ctx, j->buf, TU_IO_CHUNK, &got, err)) == 0 && got) {
        *crc = tu_crc32(*crc, j->buf, got);
        if (keep && (rc = tu_out_write(j->out, j->buf, got, err)))
            return rc;
    }
    return rc;
}

static int add_piece(struct tu_join *j, struct whole *w, const struct place *p,
                     const uint64_t *len, const struct tu_record *rec, tu_pull_fn pull, void *ctx,
                     struct tu_err *err)
{
    uint32_t crc;
    const struct piece *twin = same_box(w, p->off, len);
    int rc = take_bytes(j, pull, ctx, !twin, &crc, err);
    if (rc)
        return rc;
    if (twin)
        return twin->crc == crc
                   ? 0
                   : tu_fail(err, TU_EINCOMPLETE, "two replicas of one piece differ (checksums "
                             "%08x and %08x)", twin->crc, crc);
    if (!rec->payload_len)
        return 0; /* an empty piece adds nothing but its view of the whole */
    if (w->done)
        return tu_fail(err, TU_EINCOMPLETE, "a piece overlaps those that made it whole");
    struct piece *q = tu_arena_alloc(j->arena, 1, sizeof *q, err);
    if (!q)
        return TU_ENOMEM;
    rc = copy_dims(j, &q->off, p->off, w->rank, err);
    if (!rc)
        rc = copy_dims(j, &q->len, len, w->rank, err);
    q->at = j->pos;
    q->bytes = rec->payload_len;
    q->crc = crc;
    j->pos += q->bytes;
    *w->last = q;
    w->last = &q->next;
    w->pieces++;
    uint64_t units = 1; /* of a payload that has come: no overflow */
    for (unsigned i = 0; i < w->rank; i++)
        units *= len[i];
    w->units += units;
    return rc;
}

static bool complete(const struct whole *w)
{
    uint64_t units = 1;
    for (unsigned i = 0; i < w->rank; i++)
        if (w->dim[i] == UINT64_MAX || tu_mul_over(units, w->dim[i], &units))
            return false;
    return w->units >= units;
}

/* Do the pieces cover the whole exactly once? */
static int tile(const struct whole *w, struct tu_err *err)
{
    struct tu_box *box = tu_alloc(w->pieces, sizeof *box, err);
    size_t n = 0;
    if (!box)
        return TU_ENOMEM;
    for (const struct piece *p = w->piece; p; p = p->next)
        box[n++] = (struct tu_box){w->rank, p->off, p->len};
    int rc = tu_box_tile(box, n, w->dim, w->rank, err);
    tu_free(box);
    return rc;
}

static int grow_buffer(unsigned char **p, uint64_t *cap, uint64_t n, struct tu_err *err)
{
    if (n <= *cap)
        return 0;
    tu_free(*p);
    *cap = 0;
    *p = n > SIZE_MAX ? NULL : tu_alloc((size_t)n, 1, err);
    if (!*p)
        return TU_ENOMEM;
    *cap = n;
    return 0;
}

/* Start giving out a complete tensor. */
static int begin_whole(struct tu_join *j, struct whole *w, struct tu_tensor *out,
                       struct tu_err *err)
{
    int rc = tu_tensor_bytes(w->dtype, w->out_dim, w->out_rank, &out->bytes, err);
    if (!rc && w->rank && out->bytes)
        rc = tile(w, err);
    if (!rc)
        rc = tu_out_flush(j->out, err);
    if (rc)
        return rc;
    *out = (struct tu_tensor){w->name, w->dtype, w->out_rank, w->out_dim, out->bytes, w->meta};
    w->done = true;
    j->cur = out->bytes ? w : NULL;
    j->have = j->given = 0;
    j->next_row = 0;
    j->k = 0;
    while (j->k + 1 < w->rank && w->dim[j->k] == 1)
        j->k++;
    j->row_units = 1; /* below the tensor's own count, which was checked */
    for (unsigned i = j->k + 1; i < w->rank && j->cur; i++)
        j->row_units *= w->dim[i];
    return 0;
}

static int add(struct tu_join *j, const struct tu_record *rec, json_t *meta, tu_pull_fn pull,
               void *ctx, struct tu_tensor *out, struct tu_err *err)
{
    struct place p = {0};
    uint64_t len[TU_RANK_MAX];
    const json_t *flat = json_object_get(meta, "flat");
    if (rec->nwords)
        memcpy(len, rec->word, rec->nwords * sizeof *len);
    int rc = flat ? read_flat(flat, &p, err)
                  : read_shard(json_object_get(meta, "shard"), rec, &p, err);
    if (!rc)
        rc = to_units(&p, len, rec, err);
    struct whole *w = find(j, rec->name);
    if (!rc)
        rc = w ? agree(w, rec, &p, err) : add_whole(j, rec, &p, meta, &w, err);
    if (!rc)
        rc = add_piece(j, w, &p, len, rec, pull, ctx, err);
    if (!rc && !w->done && complete(w))
        rc = begin_whole(j, w, out, err);
    return rc;
}

int tu_join_add(struct tu_join *j, const struct tu_record *rec, tu_pull_fn pull, void *ctx,
                struct tu_tensor *whole, struct tu_err *err)
{
    char name[88];
    *whole = (struct tu_tensor){0};
    json_t *meta = parse_meta(rec, err);
    if (!meta)
        return tu_fail(err, TU_EMETA, "'%s': no piece",
                       tu_text_short(rec->name, rec->name_len, name));
    int rc = add(j, rec, meta, pull, ctx, whole, err);
    json_decref(meta);
    /* The reader's own errors name the record already. */
    if (rc == TU_EINCOMPLETE || rc == TU_EUNSUP)
        tu_err_prefix(err, "'%s'", tu_text_short(rec->name, rec->name_len, name));
    return rc;
}

/* Giving out ------------------------------------------------------------------------------------ */

/* Copy what a piece has of rows lo … hi-1 into the window. */
static int copy_part(struct tu_join *j, const struct piece *p, const struct tu_box *win,
                     struct tu_err *err)
{
    const struct whole *w = j->cur;
    const unsigned k = j->k;
    uint64_t off[TU_RANK_MAX], len[TU_RANK_MAX], row = w->unit;
    const uint64_t lo = tu_max(p->off[k], win->off[k]);
    const uint64_t hi = tu_min(p->off[k] + p->len[k], win->off[k] + win->len[k]);
    if (lo >= hi)
        return 0;
    for (unsigned i = k + 1; i < w->rank; i++)
        row *= p->len[i];
    memcpy(off, p->off, w->rank * sizeof *off);
    memcpy(len, p->len, w->rank * sizeof *len);
    const uint64_t n = (hi - lo) * row;
    off[k] = lo;
    len[k] = hi - lo;
    int rc = grow_buffer(&j->part, &j->part_cap, n, err);
    if (!rc)
        rc = tu_in_pread(j->in, p->at + (lo - p->off[k]) * row, j->part, (size_t)n, err);
    if (!rc)
        tu_box_copy(j->window, win, j->part, &(struct tu_box){w->rank, off, len}, w->unit);
    return rc;
}

static int fill_window(struct tu_join *j, struct tu_err *err)
{
    const struct whole *w = j->cur;
    const uint64_t rows = w->rank ? w->dim[j->k] : 1, row = j->row_units * w->unit;
    const uint64_t n = tu_min(rows - j->next_row, tu_max(1, j->memory / 2 / row));
    uint64_t off[TU_RANK_MAX] = {0}, len[TU_RANK_MAX];
    int rc = grow_buffer(&j->window, &j->window_cap, n * row, err);
    if (rc)
        return rc;
    if (w->rank == 0)
        rc = tu_in_pread(j->in, w->piece->at, j->window, (size_t)row, err);
    else
        memcpy(len, w->dim, w->rank * sizeof *len);
    off[j->k] = j->next_row;
    len[j->k] = n;
    const struct tu_box win = {w->rank, off, len};
    for (const struct piece *p = w->piece; !rc && w->rank && p; p = p->next)
        rc = copy_part(j, p, &win, err);
    j->next_row += n;
    j->have = (size_t)(n * row);
    j->given = 0;
    return rc;
}

int tu_join_pull(void *ctx, void *buf, size_t n, size_t *got, struct tu_err *err)
{
    struct tu_join *j = ctx;
    *got = 0;
    if (!j->cur)
        return 0;
    if (j->given == j->have) {
        if (j->next_row == (j->cur->rank ? j->cur->dim[j->k] : 1)) {
            j->cur = NULL;
            return 0;
        }
        int rc = fill_window(j, err);
        if (rc)
            return rc;
    }
    *got = (size_t)tu_min(n, j->have - j->given);
    memcpy(buf, j->window + j->given, *got);
    j->given += *got;
    return 0;
}

int tu_join_finish(struct tu_join *j, struct tu_err *err)
{
    char name[88];
    for (const struct whole *w = j->first; w; w = w->next) {
        if (w->done)
            continue;
        int rc = 0;
        for (unsigned i = 0; !rc && i < w->rank; i++)
            if (w->dim[i] == UINT64_MAX)
                rc = tu_fail(err, TU_EINCOMPLETE, "no piece tells the size of dimension %u", i);
        if (!rc)
            rc = tile(w, err);
        if (!rc)
            rc = tu_fail(err, TU_EINCOMPLETE, "pieces are missing");
        return tu_err_prefix(err, "'%s'", tu_text_short(w->name, strlen(w->name), name));
    }
    return 0;
}
