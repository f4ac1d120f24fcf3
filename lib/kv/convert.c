/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c: caches made over.
 *
 * Every result passes through rows [tokens, heads, dim]: rows of the ranks side by side,
 * then numbers (rotation, shift, dtype), then the array of the new layout. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "rows.h"

struct job {
    const struct tu_kv_convert *how;
    const struct tu_job *job;
    struct tui_rows *rank; /* [ranks] of the source */
    size_t ranks;
    uint64_t seq;
    struct tu_kv_info from, to;
    const struct tu_kv_layout *layout;
    uint64_t heads;              /* of the whole source */
    uint64_t head0, head1;       /* those that the result's rank takes */
    uint64_t tok0, tok1;         /* tokens of the sequence */
    uint64_t blocks;
    struct tu_writer *w;
    void *array;                 /* of the result, that is being filled */
    struct tu_kv_place place;
    struct tu_buf name;
};

void tu_kv_convert_init(struct tu_kv_convert *c)
{
    *c = (struct tu_kv_convert){.tp_rank = -1, .rot = -1};
    c->layers.end = c->tokens.end = c->heads.end = UINT64_MAX;
}

size_t tu_kv_ranks(struct tu_kv *const *cache, size_t n)
{
    uint64_t tp = n ? cache[0]->info.tp_size : 0;
    if (!n || tp == 1 || cache[0]->info.tp_rank != 0)
        return n ? 1 : 0;
    size_t k = 1;
    while (k < n && k < tp && cache[k]->info.tp_size == tp && cache[k]->info.tp_rank == k)
        k++;
    return k;
}

/* Numbers ---------------------------------------------------------------------------- */

/* Turn pairs of `dim` columns of n rows by the same angles. Source: Su et al.,
 * "RoFormer", 2021; a shift adds a constant to every position. */
static int turn(float *x, uint64_t n, uint64_t row, uint64_t at, uint64_t dim,
                int64_t shift, double theta, bool interleaved, struct tu_err *err)
{
    uint64_t half = dim / 2;
    double *trig = tu_alloc((size_t)half, 2 * sizeof *trig, err);
    if (!trig)
        return TU_ENOMEM;
    for (uint64_t c = 0; c < half; c++) {
        double angle = (double)shift * pow(theta, -2 * (double)c / (double)dim);
        trig[2 * c] = cos(angle);
        trig[2 * c + 1] = sin(angle);
    }
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t c = 0; c < half; c++) {
            float *a = x + i * row + at + (interleaved ? 2 * c : c);
            float *b = a + (interleaved ? 1 : half);
            double u = (double)*a, v = (double)*b;
            *a = (float)(u * trig[2 * c] - v * trig[2 * c + 1]);
            *b = (float)(u * trig[2 * c + 1] + v * trig[2 * c]);
        }
    tu_free(trig);
    return 0;
}

static int shift_keys(const struct job *j, float *x, uint64_t n, const struct tui_side *s,
                      struct tu_err *err)
{
    const struct tu_kv_convert *how = j->how;
    double theta = how->theta > 0 ? how->theta : j->from.rope_theta;
    uint64_t dim = how->rope_dim ? how->rope_dim : s->latent ? 0 : s->dim;
    if (!(theta > 0))
        return tu_fail(err, TU_EUSAGE, "--shift turns keys: --rope THETA is needed");
    if (!dim || dim % 2 || dim > s->dim)
        return tu_fail(err, TU_EUSAGE, "--shift: --rope-dim %" PRIu64 " of %" PRIu64
                                       " columns", dim, s->dim);
    return turn(x, n / s->dim, s->dim, s->latent ? s->dim - dim : 0, dim, how->shift, theta,
                how->interleaved, err);
}

/* Rows from one dtype to another; *data is replaced. */
static int numbers(const struct job *j, const struct tui_side *s, enum tu_kv_side side,
                   uint64_t n, void **data, uint32_t to, struct tu_err *err)
{
    bool shift = j->how->shift && side == TU_KV_K && strcmp(j->from.rope, "post") == 0;
    bool unrotate = j->from.rot && j->to.rot != j->from.rot;
    bool rotate = j->to.rot && j->to.rot != j->from.rot;
    uint64_t bytes;
    if (to == s->dtype && !shift && !unrotate && !rotate)
        return 0;
    int rc = tui_row_bytes(to, n, s->dim, &bytes, err);
    void *out = rc ? NULL : tu_alloc((size_t)bytes, 1, err);
    float *x = NULL;
    if (!out)
        return rc ? rc : TU_ENOMEM;
    bool plain = !((to | s->dtype) & TU_DTYPE_GGML);
    if (plain && !shift && !unrotate && !rotate) { /* one rounding */
        rc = tu_cast(to, out, s->dtype, *data, (size_t)n, err);
    } else if (!(x = tu_alloc((size_t)n, sizeof *x, err))) {
        rc = TU_ENOMEM;
    } else {
        rc = tu_kv_to_float(s->dtype, *data, x, n, s->dim, err);
        if (!rc && ((unrotate && s->dim % j->from.rot) || (rotate && s->dim % j->to.rot)))
            rc = tu_fail(err, TU_EUSAGE, "%" PRIu64 " columns do not divide by the "
                                         "rotation", s->dim);
        if (!rc && unrotate)
            tu_kv_hadamard(x, n, j->from.rot);
        if (!rc && shift)
            rc = shift_keys(j, x, n, s, err);
        if (!rc && rotate)
            tu_kv_hadamard(x, n, j->to.rot);
        if (!rc)
            rc = tu_kv_from_float(to, out, x, n, s->dim, err);
    }
    tu_free(x);
    if (rc) {
        tu_free(out);
        return rc;
    }
    tu_free(*data);
    *data = out;
    return 0;
}

/* Rows ------------------------------------------------------------------------------- */

/* The rank that holds a head of the whole, and its number there. */
static size_t holder(const struct job *j, uint64_t local, uint64_t head, uint64_t *at)
{
    if (j->ranks == 1) {
        *at = head;
        return 0;
    }
    if (j->heads >= j->ranks) {
        *at = head % local;
        return (size_t)(head / local);
    }
    *at = 0;
    return (size_t)(head * (j->ranks / j->heads));
}

/* Of a layer with a window there are the last tokens alone, and of those a part is left
 * out at the beginning. */
static int rows_of(const struct job *j, const struct tui_side *s, uint64_t *first, uint64_t *end,
                   struct tu_err *err)
{
    uint64_t all = tui_rows_tokens(&j->rank[0], j->seq), before = all - tu_min(all, s->tokens);
    if (before && strcmp(j->layout->name, "nhd") != 0)
        return tu_fail(err, TU_EUNSUP, "the last %" PRIu64 " of %" PRIu64
                                       " tokens do not go into layout '%s'",
                       s->tokens, all, j->layout->name);
    if (before && j->tok1 != all)
        return tu_fail(err, TU_EUNSUP, "the last %" PRIu64 " of %" PRIu64
                                       " tokens: a part must end with them",
                       s->tokens, all);
    *first = tu_max(j->tok0, before) - before;
    *end = tu_min(j->tok1 - before, s->tokens);
    return 0;
}

/* Every rank has the same of a layer's side: its share of the heads that META kv says. */
static int check_side(const struct job *j, uint64_t layer, enum tu_kv_side side,
                      const struct tui_side *s, struct tu_err *err)
{
    struct tui_side o;
    uint64_t local = 1;
    int rc = s->latent ? 0 : tu_kv_local_heads(j->heads, j->from.tp_size, &local, err);
    if (!rc && s->heads != local)
        rc = tu_fail(err, TU_ESIZE, "%s: %" PRIu64 " heads, META kv says %" PRIu64,
                     j->rank[0].kv->name, s->heads, local);
    for (size_t r = 1; !rc && r < j->ranks; r++)
        if (!tui_rows_side(&j->rank[r], j->seq, layer, side, &o) || o.heads != s->heads ||
            o.dim != s->dim || o.dtype != s->dtype || o.tokens != s->tokens ||
            o.latent != s->latent)
            rc = tu_fail(err, TU_EINCOMPLETE, "%s: another shape or dtype than that of rank 0",
                         j->rank[r].kv->name);
    return rc;
}

/* The rows of the result: tokens and heads that it takes. */
static int gather(struct job *j, uint64_t layer, enum tu_kv_side side, struct tui_side *s,
                  void **out, uint64_t *tokens, struct tu_err *err)
{
    tui_rows_side(&j->rank[0], j->seq, layer, side, s);
    uint64_t skip = 0, end = 0;
    uint64_t heads = s->latent ? 1 : j->head1 - j->head0, elem, local = s->heads;
    int rc = check_side(j, layer, side, s, err);
    if (!rc)
        rc = rows_of(j, s, &skip, &end, err);
    *tokens = end > skip ? end - skip : 0;
    if (!rc)
        rc = tui_row_bytes(s->dtype, s->dim, s->dim, &elem, err); /* bytes of a head */
    size_t row = rc ? 0 : (size_t)(heads * elem), got = (size_t)(local * elem);
    *out = rc ? NULL : tu_alloc((size_t)*tokens, row, err);
    void *part = *out ? tu_alloc((size_t)*tokens, got, err) : NULL;
    if (!rc && !part)
        rc = TU_ENOMEM;
    size_t loaded = SIZE_MAX;
    for (uint64_t h = 0; !rc && h < heads; h++) {
        uint64_t at, whole = s->latent ? 0 : j->head0 + h;
        size_t r = holder(j, local, whole, &at);
        r = s->latent ? 0 : r;
        at = s->latent ? 0 : at;
        if (r != loaded)
            rc = tui_rows_read(&j->rank[r], j->seq, layer, side, skip, *tokens, part, err);
        loaded = r;
        if (heads == local && h == 0 && at == 0 && j->ranks == 1) {
            memcpy(*out, part, row * (size_t)*tokens);
            break;
        }
        for (uint64_t t = 0; !rc && t < *tokens; t++)
            memcpy((char *)*out + t * row + h * elem, (char *)part + t * got + at * elem,
                   (size_t)elem);
    }
    tu_free(part);
    s->heads = heads;
    return rc;
}

/* Writing ------------------------------------------------------------------------------ */

static int write_array(struct job *j, const char *name, uint32_t dtype, struct tu_err *err)
{
    struct tu_tensor t = {.name = name, .dtype = dtype, .rank = j->place.rank,
                          .dim = j->place.dim, .bytes = j->place.bytes};
    int rc = tu_writer_tensor(j->w, &t, j->array, err);
    tu_free(j->array);
    j->array = NULL;
    return rc;
}

static int new_array(struct job *j, const struct tui_side *s, enum tu_kv_side side,
                     uint32_t dtype, uint64_t tokens, struct tu_err *err)
{
    const struct tu_dtype *d = tu_dtype_find(dtype);
    bool paged = tu_kv_layout_has(j->layout, 'p');
    struct tu_kv_geometry g = {
        .layers = tu_kv_layout_has(j->layout, 'l') ? j->to.layers : 1,
        .heads = s->heads, .dim = s->dim, .block = paged ? j->to.block : tokens,
        .blocks = paged ? j->blocks : 1, .elem = d->block_bytes, .latent = s->latent};
    if (d->block_elems != 1)
        return tu_fail(err, TU_EUSAGE, "layout '%s' takes elements of whole bytes, not %s "
                                       "(--dtype)", j->layout->name, d->name);
    int rc = tu_kv_place(&j->place, j->layout, side, &g, err);
    if (!rc && !(j->array = tu_calloc((size_t)j->place.bytes, 1, err)))
        rc = tu_fail(err, TU_ENOMEM, "no memory for an array of %" PRIu64 " bytes",
                     j->place.bytes);
    return rc;
}

static int write_rows(struct job *j, const char *name, const struct tui_side *s,
                      uint32_t dtype, uint64_t tokens, const void *data, struct tu_err *err)
{
    uint64_t dim[3] = {tokens, s->heads, s->dim};
    struct tu_tensor t = {.name = name, .dtype = dtype, .rank = s->latent ? 2 : 3,
                          .dim = dim};
    if (s->latent)
        dim[1] = s->dim;
    int rc = tu_tensor_bytes(dtype, t.dim, t.rank, &t.bytes, err);
    return rc ? rc : tu_writer_tensor(j->w, &t, data, err);
}

/* One side of one layer: into its array; arrays are written when they are full. */
static int put_side(struct job *j, uint64_t layer, enum tu_kv_side side, struct tu_err *err)
{
    struct tui_side s;
    void *data = NULL;
    uint64_t tokens, at = layer - j->how->layers.begin;
    bool both = tu_kv_layout_has(j->layout, 's'), all = tu_kv_layout_has(j->layout, 'l');
    char name[40];
    if (!tui_rows_side(&j->rank[0], j->seq, layer, side, &s)) {
        bool latent = side == TU_KV_V && tui_rows_side(&j->rank[0], j->seq, layer, TU_KV_K, &s)
                      && s.latent;
        bool last = latent && all && layer + 1 == tu_min(j->how->layers.end, j->from.layers);
        if (last)
            return write_array(j, "kv.all", j->how->dtype ? j->how->dtype : s.dtype, err);
        return !both || latent ? 0
                               : tu_fail(err, TU_EUNSUP, "layer %" PRIu64 " has no %s", layer,
                                         side ? "values" : "keys");
    }
    if (all && !both && !s.latent)
        return tu_fail(err, TU_EUSAGE, "layout '%s' is for latents", j->layout->name);
    int rc = gather(j, layer, side, &s, &data, &tokens, err);
    uint32_t dtype = j->how->dtype ? j->how->dtype : s.dtype;
    if (!rc)
        rc = numbers(j, &s, side, tokens * s.heads * s.dim, &data, dtype, err);
    snprintf(name, sizeof name, "kv.%" PRIu64 ".%s", at,
             s.latent ? "ckv" : both ? "kv" : side ? "v" : "k");
    if (!rc && !strcmp(j->layout->name, "nhd")) {
        rc = write_rows(j, name, &s, dtype, tokens, data, err);
    } else if (!rc) {
        if (!j->array)
            rc = new_array(j, &s, side, dtype, tokens, err);
        if (!rc && (s.heads != j->place.of.heads || s.dim != j->place.of.dim ||
                    (!j->to.block && tokens != j->place.of.block)))
            rc = tu_fail(err, TU_EUNSUP, "'%s' differs from what shares its array", name);
        if (!rc)
            tu_kv_put(&j->place, j->array, all ? at : 0, both ? (uint64_t)side : 0, NULL, 0,
                      tokens, data);
        bool last = layer + 1 == tu_min(j->how->layers.end, j->from.layers);
        if (!rc && (!both || side == TU_KV_V || s.latent) && (!all || (last && !s.latent)))
            rc = write_array(j, all ? "kv.all" : name, dtype, err);
    }
    tu_free(data);
    if (rc)
        tu_err_prefix(err, "layer %" PRIu64, layer);
    return rc;
}

static int put_numbers(struct job *j, struct tu_err *err)
{
    int32_t *ids, *pos;
    uint64_t n = j->tok1 - j->tok0, all = tui_rows_tokens(&j->rank[0], j->seq);
    int rc = tui_rows_ids(&j->rank[0], j->seq, &ids, err);
    if (!rc && ids)
        rc = tui_write_ints(j->w, "kv.tokens", ids + j->tok0, &n, 1, err);
    tu_free(ids);
    if (!rc)
        rc = tui_rows_positions(&j->rank[0], j->seq, &pos, err);
    if (rc)
        return rc;
    bool straight = !pos;
    if (!pos && (j->tok0 || j->how->shift)) {
        if (!(pos = tu_alloc((size_t)all, sizeof *pos, err)))
            return TU_ENOMEM;
        for (uint64_t i = 0; i < all; i++)
            pos[i] = (int32_t)i;
        straight = false;
    }
    for (uint64_t i = j->tok0; !rc && pos && i < j->tok1; i++) {
        int64_t p = pos[i] + j->how->shift;
        if (p < 0 || p > INT32_MAX)
            rc = tu_fail(err, TU_EUSAGE, "--shift %" PRId64 " moves position %" PRId32
                                         " out of range", j->how->shift, pos[i]);
        pos[i] = (int32_t)p;
    }
    if (!rc && !straight)
        rc = tui_write_ints(j->w, "kv.pos", pos + j->tok0, &n, 1, err);
    tu_free(pos);
    return rc;
}

/* Records that are neither keys nor values, as they are; an engine's own are of all tokens
 * where they were. */
static int put_others(struct job *j, struct tu_err *err)
{
    struct tu_kv *kv = j->rank[0].kv;
    static const char *const ours[] = {"kv.tokens", "kv.pos", "kv.all", "block_table",
                                       "seqlens_k", "kv_indptr", "kv_indices",
                                       "kv_last_page_len", "kv.pool.tokens", "kv.pool.pos",
                                       "kv.pool.refs", "kv.pool.hash", NULL};
    int rc = 0;
    for (size_t i = 0; !rc && i < kv->n; i++) {
        uint64_t layer;
        bool skip = tu_kv_name(kv->tensor[i].name, &layer) != NULL;
        void *data;
        for (size_t k = 0; ours[k]; k++)
            skip = skip || !strcmp(ours[k], kv->tensor[i].name);
        if (j->tok0 || j->tok1 != kv->tokens || j->how->shift)
            skip = skip || !strncmp(kv->tensor[i].name, "llama.", 6);
        if (skip)
            continue;
        rc = tu_kv_load(kv, i, &data, err);
        if (!rc)
            rc = tu_writer_tensor(j->w, &kv->tensor[i], data, err);
        tu_free(data);
    }
    return rc;
}

static int put_table(struct job *j, struct tu_err *err)
{
    struct tu_kv_table t = {.block = j->to.block, .blocks = j->blocks};
    int32_t *page = tu_alloc((size_t)j->blocks, sizeof *page, err);
    int rc = page ? 0 : TU_ENOMEM;
    for (uint64_t i = 0; !rc && i < j->blocks; i++)
        page[i] = (int32_t)i;
    if (!rc)
        rc = tu_kv_table_add(&t, page, j->blocks, j->tok1 - j->tok0, err);
    if (!rc)
        rc = tui_write_table(j->w, &t, TU_KV_CSR, err);
    tu_free(page);
    tu_kv_table_release(&t);
    return rc;
}

static int put_segment(struct job *j, struct tu_err *err)
{
    uint64_t last = tu_min(j->how->layers.end, j->from.layers);
    int rc = tu_kv_write_info(j->w, &j->to, err);
    if (!rc)
        rc = tui_copy_metas(j->rank[0].kv, j->w, err);
    if (!rc)
        rc = put_numbers(j, err);
    if (!rc && tu_kv_layout_has(j->layout, 'p'))
        rc = put_table(j, err);
    for (uint64_t l = j->how->layers.begin; !rc && l < last; l++)
        for (int s = TU_KV_K; !rc && s < TU_KV_SIDES; s++)
            rc = tu_job_cancelled(j->job) ? tu_fail(err, TU_ECANCEL, "stopped")
                                          : put_side(j, l, (enum tu_kv_side)s, err);
    if (!rc)
        rc = put_others(j, err);
    tu_free(j->array);
    j->array = NULL;
    return rc ? rc : tu_writer_end(j->w, false, err);
}

/* Checks ------------------------------------------------------------------------------- */

static int check_ranks(struct job *j, struct tu_err *err)
{
    const struct tu_kv_info *a = &j->rank[0].kv->info;
    bool part = a->tp_size > 1 && j->ranks == 1 &&
                (!j->how->tp || j->how->tp == a->tp_size) && j->how->heads.begin == 0 &&
                j->how->heads.end == UINT64_MAX;
    if (j->ranks != a->tp_size && !part)
        return tu_fail(err, TU_EINCOMPLETE,
                       "%s: rank %" PRIu64 " of %" PRIu64 ": %zu of the ranks follow in order",
                       j->rank[0].kv->name, a->tp_rank, a->tp_size, j->ranks);
    for (size_t r = 0; j->ranks > 1 && r < j->ranks; r++) {
        struct tu_kv_info b = j->rank[r].kv->info;
        if (b.tp_rank != r)
            return tu_fail(err, TU_EINCOMPLETE, "%s: rank %" PRIu64 " where rank %zu is expected",
                           j->rank[r].kv->name, b.tp_rank, r);
        b.tp_rank = a->tp_rank;
        int rc = tu_kv_info_same(a, &b, true, err);
        if (rc) {
            tu_err_prefix(err, "%s and %s", j->rank[0].kv->name, j->rank[r].kv->name);
            return rc;
        }
        if (tui_rows_tokens(&j->rank[r], 0) != tui_rows_tokens(&j->rank[0], 0))
            return tu_fail(err, TU_EINCOMPLETE, "%s: its tokens are not those of rank 0",
                           j->rank[r].kv->name);
    }
    return 0;
}

static int check_range(const struct tu_kv_range *r, uint64_t n, const char *what,
                       struct tu_err *err)
{
    if (r->begin >= tu_min(r->end, n) || (r->end != UINT64_MAX && r->end > n))
        return tu_fail(err, TU_EUSAGE, "%s %" PRIu64 "-%" PRIu64 " of %" PRIu64, what,
                       r->begin, r->end == UINT64_MAX ? n : r->end, n);
    return 0;
}

/* What META kv will say. */
static int plan(struct job *j, struct tu_err *err)
{
    const struct tu_kv_convert *how = j->how;
    struct tu_kv *kv = j->rank[0].kv;
    j->from = j->to = kv->info;
    j->layout = how->layout;
    int rc = j->layout ? 0 : tu_kv_layout_find(&j->layout, "nhd", err);
    if (!rc)
        rc = check_ranks(j, err);
    if (!rc)
        rc = check_range(&how->layers, j->from.layers, "--layers", err);
    if (!rc && !j->from.heads) { /* a pool that does not say */
        struct tui_side s;
        for (uint64_t l = 0; l < j->from.layers && !j->from.heads; l++)
            if (tui_rows_side(&j->rank[0], 0, l, TU_KV_K, &s))
                j->from.heads = s.heads * j->from.tp_size;
        j->to.heads = j->from.heads;
    }
    if (!rc)
        rc = check_range(&how->heads, j->from.heads, "--heads", err);
    if (rc)
        return rc;
    j->heads = j->from.heads;
    if (how->heads.begin || how->heads.end != UINT64_MAX)
        j->to.heads = tu_min(how->heads.end, j->heads) - how->heads.begin;
    j->to.layers = tu_min(how->layers.end, j->from.layers) - how->layers.begin;
    if (how->tp)
        j->to.tp_size = how->tp;
    else if (j->to.heads != j->heads)
        j->to.tp_size = 1;
    if (how->theta > 0)
        j->to.rope_theta = how->theta;
    if (how->rot >= 0)
        j->to.rot = (uint64_t)how->rot;
    if (how->shift && j->from.rot && j->to.rot)
        return tu_fail(err, TU_EUSAGE, "--shift: the keys are rotated by %" PRIu64
                                       ": --rot 0 first", j->from.rot);
    bool paged = tu_kv_layout_has(j->layout, 'p');
    j->to.block = paged ? how->block ? how->block : 16 : 0;
    snprintf(j->to.layout, sizeof j->to.layout, "%s",
             strcmp(j->layout->name, "nhd") ? j->layout->name : "");
    return j->to.block > INT32_MAX ? tu_fail(err, TU_EUSAGE, "--block is too large") : 0;
}

static int one_sequence(struct job *j, struct tu_err *err)
{
    uint64_t n = tui_rows_tokens(&j->rank[0], j->seq), local, tp = j->to.tp_size;
    bool as_is = j->ranks == 1 && j->from.tp_size > 1; /* a lone rank stays one */
    int rc = check_range(&j->how->tokens, n, "--tokens", err);
    if (!rc)
        rc = tu_kv_local_heads(j->to.heads, tp, &local, err);
    if (!rc && !as_is && j->how->tp_rank >= (int64_t)tp)
        rc = tu_fail(err, TU_EUSAGE, "--tp: no rank %" PRId64 " of %" PRIu64,
                     j->how->tp_rank, tp);
    if (rc)
        return rc;
    j->tok0 = j->how->tokens.begin;
    j->tok1 = tu_min(j->how->tokens.end, n);
    j->blocks = j->to.block ? tu_ceil_div(j->tok1 - j->tok0, j->to.block) : 0;
    if (j->blocks > INT32_MAX)
        return tu_fail(err, TU_EUSAGE, "--block %" PRIu64 " makes too many pages",
                       j->to.block);
    for (uint64_t r = 0; !rc && r < (as_is ? 1 : tp); r++) {
        if (!as_is && j->how->tp_rank >= 0 && (uint64_t)j->how->tp_rank != r)
            continue;
        j->to.tp_rank = as_is ? j->from.tp_rank : r;
        uint64_t first = j->to.heads >= tp ? r * local : r / (tp / j->to.heads);
        j->head0 = as_is ? 0 : j->how->heads.begin + first;
        j->head1 = j->head0 + local;
        rc = put_segment(j, err);
    }
    return rc;
}

int tu_kv_convert_run(struct tu_kv *const *rank, size_t n, const struct tu_kv_convert *how,
                      struct tu_writer *w, const struct tu_job *job, struct tu_err *err)
{
    struct job j = {.how = how, .job = job, .w = w};
    int rc = 0;
    if (!(j.rank = tu_calloc(n, sizeof *j.rank, err)))
        return TU_ENOMEM;
    for (; !rc && j.ranks < n; j.ranks++)
        rc = tui_rows_begin(&j.rank[j.ranks], rank[j.ranks], err);
    if (!rc)
        rc = plan(&j, err);
    uint64_t sequences = rc ? 0 : tui_rows_sequences(&j.rank[0]);
    for (j.seq = 0; !rc && j.seq < sequences; j.seq++)
        rc = one_sequence(&j, err);
    for (size_t r = 0; r < j.ranks; r++)
        tui_rows_end(&j.rank[r]);
    tu_free(j.rank);
    return rc;
}
