/* SPDX-License-Identifier: Apache-2.0 */
/* llama_file.c: llama.cpp's state files as caches, and caches as state files.
 *
 * A stream's record llama.tokens keeps the file's token list where it is not simply the
 * tokens of the cells (a prompt longer than the cache, a server's packed form). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "llama.h"

enum { SLOT_NULL = -1, SLOT_VERSION = 1 };

static bool sniff(const char *path, const unsigned char *head, size_t n)
{
    (void)path;
    return n >= 8 && (tu_le32(head) == TUI_LLAMA_SEQ || tu_le32(head) == TUI_LLAMA_SESSION);
}

/* Opening ---------------------------------------------------------------------------- */

struct opening {
    struct tui_llama file;
    struct tui_pieces *p;
    const struct tui_llama_stream *s;
    uint32_t *cell; /* [cells] of the sequence, as they stand in the file */
    uint64_t cells;
    uint64_t seq;
};

/* The stream and the cells of the sequence that is asked for. */
static int choose(struct opening *o, struct tu_err *err)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < o->file.streams; i++) {
        const struct tui_llama_stream *s = &o->file.stream[i];
        for (uint32_t c = 0; c < s->cells; c++) {
            all |= s->seq[c];
            o->s = !o->s && s->seq[c] >> o->seq & 1 ? s : o->s;
        }
    }
    if (!o->s)
        return tu_fail(err, TU_EUSAGE,
                       "%s: sequence %" PRIu64 " is not in it (those that are, as bits: %#"
                       PRIx64 "): llama:seq=N",
                       o->p->base.name, o->seq, all);
    if (!(o->cell = tu_alloc(o->s->cells, sizeof *o->cell, err)))
        return TU_ENOMEM;
    for (uint32_t c = 0; c < o->s->cells; c++)
        if (o->s->seq[c] >> o->seq & 1)
            o->cell[o->cells++] = c;
    for (uint64_t i = 0; i < o->cells; i++)
        if (o->s->pos[o->cell[i]] < 0)
            return tu_fail(err, TU_EFORMAT, "%s: cell %" PRIu32 ": position %" PRId32,
                           o->p->base.name, o->cell[i], o->s->pos[o->cell[i]]);
    return 0;
}

/* Runs of neighbouring cells are pieces. */
static int add_rows(struct opening *o, const struct tui_llama_part *part, struct tu_err *err)
{
    int rc = 0;
    for (uint64_t i = 0, n; !rc && i < o->cells; i += n) {
        for (n = 1; i + n < o->cells && o->cell[i + n] == o->cell[i] + n; n++)
            ;
        rc = tui_pieces_add(o->p,
                            &(struct tui_piece){.off = part->off + o->cell[i] * part->row,
                                                .row = part->row,
                                                .rows = n,
                                                .stride = part->row},
                            err);
    }
    return rc;
}

/* Columns of transposed values: only the whole of a stream lies in one piece. */
static int add_columns(struct opening *o, const struct tui_llama_part *part,
                       struct tu_err *err)
{
    unsigned e = tu_dtype_find(part->dtype)->block_bytes;
    if (o->cell[o->cells - 1] - o->cell[0] + 1 != o->cells)
        return tu_fail(err, TU_EUNSUP,
                       "%s: transposed values of a sequence whose cells are scattered",
                       o->p->base.name);
    o->p->record[o->p->base.n - 1].turned = e;
    return tui_pieces_add(
        o->p,
        &(struct tui_piece){.off = part->off + (uint64_t)o->cell[0] * e,
                            .row = o->cells * e,
                            .rows = part->cols,
                            .stride = (uint64_t)o->s->cells * e},
        err);
}

static int add_side(struct opening *o, uint32_t layer, enum tu_kv_side side, uint64_t heads,
                    struct tu_err *err)
{
    const struct tui_llama_part *part = &o->s->part[2 * layer + side];
    char name[40];
    bool latent = !o->s->values;
    uint64_t dim[3] = {o->cells, heads, part->cols / tu_max(heads, 1)};
    snprintf(name, sizeof name, "kv.%u.%s", layer,
             side == TU_KV_V ? "v" : latent ? "ckv" : "k");
    if (latent)
        dim[1] = part->cols;
    else if (part->cols % heads)
        return tu_fail(err, TU_EUSAGE, "%s: %" PRIu64 " columns are not %" PRIu64 " heads",
                       o->p->base.name, part->cols, heads);
    if (!latent && tu_dtype_find(part->dtype)->block_elems > 1 &&
        dim[2] % tu_dtype_find(part->dtype)->block_elems) { /* blocks span heads */
        dim[2] = part->cols;
        dim[1] = 1;
    }
    int rc = tui_pieces_record(o->p, name, part->dtype, dim, latent ? 2 : 3, err);
    if (rc)
        return rc;
    return side == TU_KV_V && o->s->turned ? add_columns(o, part, err)
                                           : add_rows(o, part, err);
}

static int load_tokens(struct opening *o, int32_t **out, struct tu_err *err)
{
    uint32_t n = o->file.tokens;
    unsigned char *raw = tu_alloc(n, 4, err);
    *out = (int32_t *)(void *)raw;
    if (!raw)
        return TU_ENOMEM;
    int rc = tu_in_pread(o->p->file[0], o->file.token_at, raw, 4 * (size_t)n, err);
    for (uint32_t i = 0; !rc && i < n; i++)
        (*out)[i] = (int32_t)tu_le32(raw + 4 * (size_t)i);
    return rc;
}

/* The id at each cell, by its position; a server's slot packs its list behind a null. */
static int add_tokens(struct opening *o, struct tu_err *err)
{
    int32_t *list, *ids = NULL, *pos = NULL;
    uint32_t n = o->file.tokens, from = 0;
    int rc = load_tokens(o, &list, err);
    if (!rc && n > 3 && list[0] == SLOT_NULL && list[1] == SLOT_VERSION && list[2] >= 0 &&
        (uint32_t)list[2] <= n - 3) {
        from = 3;
        n = from + (uint32_t)list[2];
    }
    if (!rc && (!(ids = tu_alloc((size_t)o->cells, sizeof *ids, err)) ||
                !(pos = tu_alloc((size_t)o->cells, sizeof *pos, err))))
        rc = TU_ENOMEM;
    bool known = n > from, straight = true;
    for (uint64_t i = 0; !rc && i < o->cells; i++) {
        pos[i] = o->s->pos[o->cell[i]];
        straight = straight && (uint64_t)pos[i] == i;
        known = known && (uint32_t)pos[i] < n - from && list[from + pos[i]] >= 0;
        if (known)
            ids[i] = list[from + pos[i]];
    }
    if (!rc && known)
        rc = tui_pieces_ints(o->p, "kv.tokens", ids, o->cells, err);
    if (!rc && !straight)
        rc = tui_pieces_ints(o->p, "kv.pos", pos, o->cells, err);
    if (!rc && (!known || from || !straight || n != o->cells))
        rc = tui_pieces_ints(o->p, "llama.tokens", list, o->file.tokens, err);
    tu_free(list);
    tu_free(ids);
    tu_free(pos);
    return rc;
}

/* Quantised rows may have been rotated, and the file does not say. */
static int ask_rotation(struct opening *o, const struct tu_kv_hint *hint,
                        struct tu_err *err)
{
    bool coded = false;
    for (uint32_t i = 0; i < 2 * o->s->layers; i++) {
        const struct tu_dtype *d = tu_dtype_find(o->s->part[i].dtype);
        coded = coded || (d && d->block_elems > 1);
    }
    if (!coded)
        return 0;
    if (!hint->spec || !tu_spec_get(hint->spec, "rot"))
        return tu_fail(err, TU_EUSAGE,
                       "%s: quantised rows, which builds since April 2026 rotate; the file "
                       "does not say: llama:rot=0, 64 or 128",
                       o->p->base.name);
    uint64_t rot;
    int rc = tu_spec_u64(hint->spec, "rot", 0, &rot, err);
    if (!rc && rot & (rot - 1))
        rc = tu_fail(err, TU_EUSAGE, "llama: rot=%" PRIu64 " is no power of two", rot);
    o->p->base.info.rot = rot;
    return rc;
}

static int describe(struct opening *o, const struct tu_kv_hint *hint,
                    const struct tu_job *job, struct tu_err *err)
{
    struct tu_kv_info *i = &o->p->base.info;
    uint64_t heads = tu_max(hint->info.heads, 1);
    int rc = hint->spec ? tu_spec_u64(hint->spec, "heads", heads, &heads, err) : 0;
    if (!rc && hint->spec)
        rc = tu_spec_u64(hint->spec, "seq", 0, &o->seq, err);
    if (!rc && (o->seq > 63 || !heads || heads > 1 << 20))
        rc = tu_fail(err, TU_EUSAGE, "llama: heads=%" PRIu64 ", seq=%" PRIu64, heads, o->seq);
    if (!rc)
        rc = choose(o, err);
    if (!rc && !o->s->values && !(hint->spec && tu_spec_get(hint->spec, "mla")))
        rc = tu_fail_at(err, TU_ETRUNC, o->file.end,
                        "%s: keys alone: cut at byte %" PRIu64
                        " before its values, or of a model with MLA (llama:mla)",
                        o->p->base.name, o->file.end);
    if (!rc)
        rc = ask_rotation(o, hint, err);
    if (!rc)
        rc = add_tokens(o, err);
    for (uint32_t l = 0; !rc && l < o->s->layers; l++) {
        rc = add_side(o, l, TU_KV_K, heads, err);
        if (!rc && o->s->values)
            rc = add_side(o, l, TU_KV_V, heads, err);
    }
    snprintf(i->arch, sizeof i->arch, "%s", o->file.arch);
    if (o->file.trailing)
        tu_job_warn(job,
                    "%s: %" PRIu64 " bytes behind the cache at byte %" PRIu64
                    " are left out: a window's or a recurrent memory",
                    o->p->base.name, o->file.trailing, o->file.end);
    return rc;
}

static int open_llama(struct tu_kv **out, const char *const *path, size_t n,
                      const struct tu_kv_hint *hint, const struct tu_job *job,
                      struct tu_err *err)
{
    struct opening o = {0};
    (void)n;
    int rc = tui_pieces_new(&o.p, path[0], err);
    if (rc)
        return rc;
    rc = tui_pieces_file(o.p, path[0], err);
    if (!rc)
        rc = tui_llama_parse(&o.file, o.p->file[0], err);
    if (!rc)
        rc = describe(&o, hint, job, err);
    if (!rc)
        rc = tui_kv_known(&o.p->base, hint, err);
    if (!rc)
        rc = tu_kv_finish(&o.p->base, err);
    tui_llama_release(&o.file);
    tu_free(o.cell);
    if (rc)
        tu_kv_close(&o.p->base);
    else
        *out = &o.p->base;
    return rc;
}

/* Saving ------------------------------------------------------------------------------- */

struct saving {
    struct tu_kv *kv;
    struct tu_out *out;
    struct tu_err *err;
    int rc;
    uint64_t version;
    bool session, turned;
};

static void put(struct saving *s, const void *p, size_t n)
{
    if (!s->rc)
        s->rc = tu_out_write(s->out, p, n, s->err);
}

static void put32(struct saving *s, uint64_t v)
{
    unsigned char b[4];
    tu_put32(b, (uint32_t)v);
    put(s, b, 4);
}

static void put64(struct saving *s, uint64_t v)
{
    put32(s, v);
    put32(s, v >> 32);
}

static void save_tokens(struct saving *s)
{
    size_t list = s->kv->ids;
    for (size_t i = 0; i < s->kv->n; i++)
        if (!strcmp(s->kv->tensor[i].name, "llama.tokens"))
            list = i;
    void *data = NULL;
    uint64_t bytes = list == TU_KV_NONE ? 0 : s->kv->tensor[list].bytes;
    if (list != TU_KV_NONE && !s->rc)
        s->rc = tu_kv_load(s->kv, list, &data, s->err);
    put32(s, bytes / 4);
    if (!s->rc)
        put(s, data, (size_t)bytes);
    tu_free(data);
}

static void save_cells(struct saving *s)
{
    int32_t *pos = NULL;
    if (!s->rc)
        s->rc = tu_kv_positions(s->kv, &pos, s->err);
    if (s->version >= 2)
        put32(s, 1);
    put32(s, s->kv->tokens);
    for (uint64_t i = 0; !s->rc && i < s->kv->tokens; i++) {
        put32(s, (uint32_t)pos[i]);
        put32(s, s->version >= 2 || s->session);
        if (s->version >= 2 || s->session)
            put32(s, 0);
    }
    tu_free(pos);
}

static void save_side(struct saving *s, size_t i, bool turned)
{
    const struct tu_tensor *t = &s->kv->tensor[i];
    uint64_t row = t->bytes / tu_max(t->dim[0], 1), cols = 1;
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    for (unsigned k = 1; k < t->rank; k++)
        cols *= t->dim[k];
    void *data = NULL, *columns = NULL;
    put32(s, tui_llama_type(t->dtype));
    if (turned) {
        put32(s, d->block_bytes);
        put32(s, cols);
    } else {
        put64(s, row);
    }
    if (!s->rc)
        s->rc = tu_kv_load(s->kv, i, &data, s->err);
    if (!s->rc && turned && !(columns = tu_alloc((size_t)t->bytes, 1, s->err)))
        s->rc = TU_ENOMEM;
    if (!s->rc && turned) {
        const struct tu_kv_layout *l;
        struct tu_kv_place p;
        struct tu_kv_geometry g = {.layers = 1, .heads = 1, .dim = cols,
                                   .block = t->dim[0], .blocks = 1,
                                   .elem = d->block_bytes};
        s->rc = tu_kv_layout_find(&l, "ht", s->err);
        if (!s->rc)
            s->rc = tu_kv_place(&p, l, TU_KV_V, &g, s->err);
        if (!s->rc)
            tu_kv_put(&p, columns, 0, 0, NULL, 0, t->dim[0], data);
    }
    put(s, turned ? columns : data, (size_t)t->bytes);
    tu_free(data);
    tu_free(columns);
}

/* What the format can hold. */
static int check(struct saving *s, struct tu_err *err)
{
    struct tu_kv *kv = s->kv;
    if (kv->tokens == 0 || kv->tokens > UINT32_MAX)
        return tu_fail(err, TU_EUNSUP, "llama: %" PRIu64 " tokens", kv->tokens);
    if (kv->info.tp_size > 1)
        return tu_fail(err, TU_EUNSUP, "llama: the file holds all heads: join the %" PRIu64
                                       " ranks first (kv-pack convert --tp 1)",
                       kv->info.tp_size);
    for (uint64_t l = 0; l < kv->info.layers; l++)
        for (int side = TU_KV_K; side < TU_KV_SIDES; side++) {
            size_t i = tu_kv_record(kv, l, (enum tu_kv_side)side);
            if (i == TU_KV_NONE && side == TU_KV_V && kv->layer[l].k != TU_KV_NONE &&
                tu_kv_latent(&kv->tensor[kv->layer[l].k]))
                continue;
            if (i == TU_KV_NONE || kv->tensor[i].dim[0] != kv->tokens)
                return tu_fail(err, TU_EUNSUP,
                               "llama: layer %" PRIu64 " has not all tokens: window and "
                               "hybrid caches are not written",
                               l);
            const struct tu_dtype *d = tu_dtype_find(kv->tensor[i].dtype);
            if (tui_llama_type(kv->tensor[i].dtype) == UINT32_MAX || !d)
                return tu_fail(err, TU_EUNSUP, "llama: '%s' has a dtype that ggml lacks",
                               kv->tensor[i].name);
            if (side == TU_KV_V && s->turned && d->block_elems > 1)
                return tu_fail(err, TU_EUSAGE, "llama: v-trans: '%s' is quantised",
                               kv->tensor[i].name);
        }
    return 0;
}

static int save_llama(struct tu_kv *kv, const char *path, const struct tu_kv_hint *how,
                      const struct tu_job *job, struct tu_err *err)
{
    const struct tu_spec *spec = how->spec;
    struct saving s = {.kv = kv, .err = err};
    struct tui_even even;
    s.session = spec && tu_spec_get(spec, "session");
    s.turned = spec && tu_spec_get(spec, "v-trans");
    int rc = *kv->info.layout && strcmp(kv->info.layout, "nhd") ? tui_kv_even(kv, &even, err)
                                                                : 0;
    if (!rc && spec)
        rc = tu_spec_u64(spec, "version", s.session ? 10 : 3, &s.version, err);
    if (!rc && (s.session ? s.version < 9 || s.version > 10 : s.version < 1 || s.version > 3))
        rc = tu_fail(err, TU_EUSAGE, "llama: version=%" PRIu64 " is not written", s.version);
    if (!rc)
        rc = check(&s, err);
    if (!rc)
        rc = tu_out_open(&s.out, path, job, err);
    if (rc)
        return rc;
    put32(&s, s.session ? TUI_LLAMA_SESSION : TUI_LLAMA_SEQ);
    put32(&s, s.version);
    save_tokens(&s);
    if (s.session) {
        const char *arch = *kv->info.arch ? kv->info.arch : "llama";
        put32(&s, strlen(arch));
        put(&s, arch, strlen(arch));
    }
    save_cells(&s);
    put32(&s, s.turned);
    put32(&s, kv->info.layers);
    for (uint64_t l = 0; l < kv->info.layers; l++)
        save_side(&s, kv->layer[l].k, false);
    for (uint64_t l = 0; l < kv->info.layers; l++)
        if (kv->layer[l].v != TU_KV_NONE)
            save_side(&s, kv->layer[l].v, s.turned);
    if (!s.rc)
        return tu_out_commit(s.out, true, err);
    tu_out_abort(s.out);
    return s.rc;
}

static const char *const keys[] = {"heads",   "seq",     "rot", "mla",
                                   "version", "v-trans", "session", NULL};

const struct tu_kv_engine tui_kv_llama = {
    .name = "llama",
    .help = "llama.cpp's sequence states and sessions; heads= seq= rot= mla version= "
            "v-trans session",
    .key = keys,
    .sniff = sniff,
    .open = open_llama,
    .save = save_llama,
};
