/* SPDX-License-Identifier: Apache-2.0 */
/* llama_file.c: llama.cpp's state files as caches.
 *
 * A stream's record llama.tokens keeps the file's token list where it is not simply the
 * tokens of the cells (a prompt longer than the cache, a server's packed form);
 * llama.recurrent the state of recurrent layers, which is that of all tokens. Layers with a
 * window have a memory of their own: their rows are put in the order of positions. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llama.h"

enum { SLOT_NULL = -1, SLOT_VERSION = 1 };

static bool sniff(const char *path, const unsigned char *head, size_t n)
{
    (void)path;
    return n >= 8 && (tu_le32(head) == TUI_LLAMA_SEQ || tu_le32(head) == TUI_LLAMA_SESSION);
}

/* Opening ---------------------------------------------------------------------------- */

/* The stream of a memory that has the sequence, and its cells of it. */
struct chosen {
    const struct tui_llama_stream *s;
    uint32_t *cell; /* [cells], as they stand in the file; of a window by position */
    uint64_t cells;
};

struct opening {
    struct tui_llama file;
    struct tui_pieces *p;
    struct chosen full, window;
    uint64_t seq;
    struct tui_llama_pattern pattern;
};

static int by_position(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Positions from 0, none twice; but the patches of an image share one, and only their cells
 * are extended. */
static int check_positions(const struct opening *o, const struct chosen *c,
                           struct tu_err *err)
{
    int32_t *pos = tu_alloc(c->cells, sizeof *pos, err);
    int rc = pos ? 0 : TU_ENOMEM;
    for (uint64_t i = 0; !rc && i < c->cells; i++) {
        pos[i] = c->s->pos[c->cell[i]];
        if (pos[i] < 0)
            rc = tu_fail(err, TU_EFORMAT, "%s: cell %" PRIu32 ": position %" PRId32,
                         o->p->base.name, c->cell[i], pos[i]);
    }
    if (!rc && !o->file.ext)
        qsort(pos, c->cells, sizeof *pos, by_position);
    for (uint64_t i = 1; !rc && !o->file.ext && i < c->cells; i++)
        if (pos[i] == pos[i - 1])
            rc = tu_fail(err, TU_EFORMAT, "%s: two cells have position %" PRId32,
                         o->p->base.name, pos[i]);
    tu_free(pos);
    return rc;
}

static int choose(struct opening *o, struct chosen *c, const struct tui_llama_stream *stream,
                  uint32_t streams, struct tu_err *err)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < streams; i++)
        for (uint32_t k = 0; k < stream[i].cells; k++) {
            all |= stream[i].seq[k];
            c->s = !c->s && stream[i].seq[k] >> o->seq & 1 ? &stream[i] : c->s;
        }
    if (!c->s)
        return tu_fail(err, TU_EUSAGE,
                       "%s: sequence %" PRIu64 " is not in it (those that are, as bits: %#"
                       PRIx64 "): llama:seq=N",
                       o->p->base.name, o->seq, all);
    if (!(c->cell = tu_alloc(c->s->cells, sizeof *c->cell, err)))
        return TU_ENOMEM;
    for (uint32_t k = 0; k < c->s->cells; k++)
        if (c->s->seq[k] >> o->seq & 1)
            c->cell[c->cells++] = k;
    return check_positions(o, c, err);
}

/* Cells of a window are used again and again: put them in the order of their positions and
 * keep those that end without a hole at the last position. */
static int arrange(struct opening *o, struct tu_err *err)
{
    struct chosen *w = &o->window;
    int32_t last = -1;
    for (uint64_t i = 0; i < o->full.cells; i++)
        if (o->full.s->pos[o->full.cell[i]] > last)
            last = o->full.s->pos[o->full.cell[i]];
    uint64_t most = tu_min(w->cells, (uint64_t)last + 1), kept = 0;
    uint32_t *at = tu_alloc((size_t)most + 1, sizeof *at, err);
    if (!at)
        return TU_ENOMEM;
    memset(at, 0xff, ((size_t)most + 1) * sizeof *at);
    for (uint64_t i = 0; i < w->cells; i++) {
        int64_t back = (int64_t)last - w->s->pos[w->cell[i]];
        if (back >= 0 && (uint64_t)back < most)
            at[back] = w->cell[i];
    }
    while (kept < most && at[kept] != UINT32_MAX)
        kept++;
    for (uint64_t i = 0; i < kept; i++)
        w->cell[i] = at[kept - 1 - i];
    w->cells = kept;
    tu_free(at);
    return kept ? 0
                : tu_fail(err, TU_EFORMAT, "%s: the window's memory lacks position %" PRId32,
                          o->p->base.name, last);
}

/* Runs of neighbouring cells are pieces. */
static int add_rows(struct opening *o, const struct chosen *c,
                    const struct tui_llama_part *part, struct tu_err *err)
{
    int rc = 0;
    for (uint64_t i = 0, n; !rc && i < c->cells; i += n) {
        for (n = 1; i + n < c->cells && c->cell[i + n] == c->cell[i] + n; n++)
            ;
        rc = tui_pieces_add(o->p,
                            &(struct tui_piece){.off = part->off + c->cell[i] * part->row,
                                                .row = part->row,
                                                .rows = n,
                                                .stride = part->row},
                            err);
    }
    return rc;
}

/* Columns of transposed values: only the whole of a stream lies in one piece. */
static int add_columns(struct opening *o, const struct chosen *c,
                       const struct tui_llama_part *part, struct tu_err *err)
{
    unsigned e = tu_dtype_find(part->dtype)->block_bytes;
    bool straight = true;
    for (uint64_t i = 1; i < c->cells; i++)
        straight = straight && c->cell[i] == c->cell[0] + i;
    if (!straight)
        return tu_fail(err, TU_EUNSUP,
                       "%s: transposed values of a sequence whose cells are scattered",
                       o->p->base.name);
    o->p->record[o->p->base.n - 1].turned = e;
    return tui_pieces_add(
        o->p,
        &(struct tui_piece){.off = part->off + (uint64_t)c->cell[0] * e,
                            .row = c->cells * e,
                            .rows = part->cols,
                            .stride = (uint64_t)c->s->cells * e},
        err);
}

/* A side of model layer `layer`, which is number `at` of c's. */
static int add_side(struct opening *o, const struct chosen *c, uint32_t at, uint32_t layer,
                    enum tu_kv_side side, uint64_t heads, struct tu_err *err)
{
    const struct tui_llama_part *part = &c->s->part[2 * at + side];
    char name[40];
    bool latent = !c->s->values;
    uint64_t dim[3] = {c->cells, heads, part->cols / tu_max(heads, 1)};
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
    return side == TU_KV_V && c->s->turned ? add_columns(o, c, part, err)
                                           : add_rows(o, c, part, err);
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
    if (!rc && (!(ids = tu_alloc((size_t)o->full.cells, sizeof *ids, err)) ||
                !(pos = tu_alloc((size_t)o->full.cells, sizeof *pos, err))))
        rc = TU_ENOMEM;
    bool known = n > from, straight = true;
    for (uint64_t i = 0; !rc && i < o->full.cells; i++) {
        pos[i] = o->full.s->pos[o->full.cell[i]];
        straight = straight && (uint64_t)pos[i] == i;
        known = known && (uint32_t)pos[i] < n - from && list[from + pos[i]] >= 0;
        if (known)
            ids[i] = list[from + pos[i]];
    }
    if (!rc && known)
        rc = tui_pieces_ints(o->p, "kv.tokens", ids, o->full.cells, err);
    if (!rc && !straight)
        rc = tui_pieces_ints(o->p, "kv.pos", pos, o->full.cells, err);
    if (!rc && (!known || from || !straight || n != o->full.cells))
        rc = tui_pieces_ints(o->p, "llama.tokens", list, o->file.tokens, err);
    tu_free(list);
    tu_free(ids);
    tu_free(pos);
    return rc;
}

static bool coded(const struct tui_llama_stream *s)
{
    bool yes = false;
    for (uint32_t i = 0; i < 2 * s->layers; i++) {
        const struct tu_dtype *d = tu_dtype_find(s->part[i].dtype);
        yes = yes || (d && d->block_elems > 1);
    }
    return yes;
}

/* Quantised rows may have been rotated, and the file does not say. */
static int ask_rotation(struct opening *o, const struct tu_kv_hint *hint,
                        struct tu_err *err)
{
    if (!coded(o->full.s) && !(o->window.s && coded(o->window.s)))
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

/* The state of recurrent layers, as it is. */
static int add_recurrent(struct opening *o, struct tu_err *err)
{
    if (!o->file.recurrent)
        return 0;
    int rc = tui_pieces_record(o->p, "llama.recurrent", TU_U8, &o->file.recurrent, 1, err);
    return rc ? rc
              : tui_pieces_add(o->p,
                               &(struct tui_piece){.off = o->file.recurrent_at,
                                                   .row = o->file.recurrent,
                                                   .rows = 1,
                                                   .stride = o->file.recurrent},
                               err);
}

/* The layers of the model, from the one memory and the other. */
static int add_layers(struct opening *o, uint64_t heads, struct tu_err *err)
{
    uint32_t at[2] = {0, 0}, n = o->full.s->layers + (o->window.s ? o->window.s->layers : 0);
    int rc = 0;
    for (uint32_t l = 0; !rc && l < n; l++) {
        bool local = o->window.s && tui_llama_local(&o->pattern, l);
        const struct chosen *c = local ? &o->window : &o->full;
        if (at[local] == c->s->layers)
            return tu_fail(err, TU_EUSAGE,
                           "%s: of %" PRIu32 " layers %" PRIu32 " have a window, which is not "
                           "what llama:pattern=%" PRIu64 " says",
                           o->p->base.name, n, o->window.s ? o->window.s->layers : 0,
                           o->pattern.every);
        rc = add_side(o, c, at[local], l, TU_KV_K, heads, err);
        if (!rc && c->s->values)
            rc = add_side(o, c, at[local], l, TU_KV_V, heads, err);
        at[local]++;
    }
    return rc;
}

static int choose_all(struct opening *o, const struct tu_kv_hint *hint, struct tu_err *err)
{
    int rc = choose(o, &o->full, o->file.stream, o->file.streams, err);
    if (!rc)
        rc = tui_llama_pattern(&o->pattern, hint->spec, err);
    if (!rc && o->pattern.given && !o->file.windows)
        rc = tu_fail_at(err, o->file.trailing ? TU_ETRUNC : TU_EUSAGE, o->file.end,
                        "%s: llama:pattern=: there is no memory of windows at byte %" PRIu64
                        ", which has %" PRIu64 " bytes behind it",
                        o->p->base.name, o->file.end, o->file.trailing);
    if (!rc && o->file.windows && !o->pattern.given)
        rc = tu_fail(err, TU_EUSAGE,
                     "%s: a second memory: some layers have a window; which, the file does "
                     "not say: llama:pattern=N (all but each Nth, 0 all)",
                     o->p->base.name);
    if (!rc && o->file.windows)
        rc = choose(o, &o->window, o->file.window, o->file.windows, err);
    if (!rc && o->file.windows)
        rc = arrange(o, err);
    if (!rc && !o->full.s->layers && !o->window.s)
        rc = tu_fail(err, TU_EFORMAT, "%s: no layers", o->p->base.name);
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
        rc = choose_all(o, hint, err);
    bool bare = !rc && ((o->full.s->layers && !o->full.s->values) ||
                        (o->window.s && !o->window.s->values));
    if (bare && !(hint->spec && tu_spec_get(hint->spec, "mla")))
        rc = tu_fail_at(err, TU_ETRUNC, o->file.end,
                        "%s: keys alone: cut at byte %" PRIu64
                        " before its values, or of a model with MLA (llama:mla)",
                        o->p->base.name, o->file.end);
    if (!rc)
        rc = ask_rotation(o, hint, err);
    if (!rc)
        rc = add_tokens(o, err);
    if (!rc)
        rc = add_layers(o, heads, err);
    if (!rc)
        rc = add_recurrent(o, err);
    snprintf(i->arch, sizeof i->arch, "%s", o->file.arch);
    if (o->file.trailing)
        tu_job_warn(job, "%s: %" PRIu64 " bytes behind the cache at byte %" PRIu64 " are left out",
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
    tu_free(o.full.cell);
    tu_free(o.window.cell);
    if (rc)
        tu_kv_close(&o.p->base);
    else
        *out = &o.p->base;
    return rc;
}

static const char *const keys[] = {"heads",   "seq",     "rot", "mla",
                                   "version", "v-trans", "session", "pattern", "dense-first", NULL};

const struct tu_kv_engine tui_kv_llama = {
    .name = "llama",
    .help = "llama.cpp's sequence states and sessions; heads= seq= rot= mla version= "
            "v-trans session pattern= dense-first",
    .key = keys,
    .sniff = sniff,
    .open = open_llama,
    .save = tui_llama_save,
};
