/* SPDX-License-Identifier: Apache-2.0 */
/* roles.c: tensors of files become pieces, and the sizes of their roles are found.
 *
 * A role's size follows from any piece of it: the pieces of all ranks must agree. */

#include <stdio.h>
#include <string.h>

#include "ckpt.h"

#define U(x) ((unsigned long long)(x))

/* A role by name, made or compared with what is known of it. */
static int role_get(struct tu_ckpt *c, const struct tu_role *want, const char *piece,
                    uint32_t *out, struct tu_err *err)
{
    *out = tu_names_get(c->names, want->name);
    if (*out != TU_NAMES_NONE) {
        const struct tu_role *r = &c->role[*out];
        if (r->dtype != want->dtype) {
            char a[8], b[8];
            return tu_fail(err, TU_EINCOMPLETE,
                           "'%.100s' is %s here and %s in another file", piece,
                           tu_dtype_text(want->dtype, a), tu_dtype_text(r->dtype, b));
        }
        if (r->rank != want->rank || r->rows != want->rows || r->cols != want->cols)
            return tu_fail(
                err, TU_EINCOMPLETE,
                "'%.80s' makes a %llux%llu tensor here and %llux%llu in another file",
                piece, U(want->rows), U(want->cols), U(r->rows), U(r->cols));
        return 0;
    }
    int rc = TU_GROW(&c->role, &c->role_cap, c->roles, err);
    if (rc)
        return rc;
    struct tu_role *r = &c->role[c->roles];
    *r = *want;
    r->atom = UINT32_MAX;
    if (!(r->name = tu_arena_text(c->arena, want->name, strlen(want->name), err)))
        return TU_ENOMEM;
    r->base = r->name + (r->state ? strlen(r->state) + 7 : 0);
    *out = (uint32_t)c->roles++;
    return tu_names_put(c->names, r->name, *out, err);
}

/* The entry as a matrix before its transpose; blocks of a stack one under the other. */
static int matrix(const struct tu_tensor *t, unsigned transform, unsigned stacked,
                  uint64_t *rows, uint64_t *cols, struct tu_err *err)
{
    if (t->rank > 2u + stacked || t->rank < 1u + stacked)
        return tu_fail(err, TU_EINCOMPLETE, "'%.100s' has rank %u", t->name, t->rank);
    *rows = 1;
    for (unsigned i = 0; i <= stacked; i++)
        *rows *= t->dim[i];
    *cols = t->rank - stacked == 2 ? t->dim[t->rank - 1] : 1;
    if (transform & TU_MAP_TRANSPOSE && t->rank == 2) {
        uint64_t swap = *rows;
        *rows = *cols;
        *cols = swap;
    }
    return 0;
}

static bool is_attention(const char *role)
{
    return strstr(role, ".attn.q.") != NULL;
}

/* Rows of role number k of n that share `total` rows. */
static int share(const struct tu_ckpt *c, const struct tu_named *named, const char *name,
                 uint32_t k, uint32_t n, uint64_t total, uint64_t *rows,
                 struct tu_err *err)
{
    const struct tu_model *m = &c->model;
    if (n == 1) {
        *rows = total;
        if (named->transform & TU_MAP_VOCAB && m->vocab) {
            if (m->vocab > total)
                return tu_fail(err, TU_EINCOMPLETE,
                               "'%.80s' has %llu rows in all, the vocabulary %llu", name,
                               U(total), U(m->vocab));
            *rows = m->vocab;
        }
        return 0;
    }
    if (is_attention(named->role[0]) && m->heads && m->head_dim) {
        uint64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
        if (q + 2 * kv != total)
            return tu_fail(err, TU_EINCOMPLETE,
                           "'%.60s': %llu rows in all, but %llu heads and 2 x %llu "
                           "key-value heads of %llu make %llu",
                           name, U(total), U(m->heads), U(m->kv_heads), U(m->head_dim),
                           U(q + 2 * kv));
        *rows = k == 0 ? q : kv;
        return 0;
    }
    if (named->transform & TU_MAP_QKV)
        return tu_fail(err, TU_EINCOMPLETE, "'%.100s': heads are not known", name);
    if (total % n)
        return tu_fail(err, TU_EINCOMPLETE, "'%.100s': %llu rows are not %u equal parts",
                       name, U(total), n);
    *rows = total / n;
    return 0;
}

/* "layers.3.moe.experts.*.up.weight" for expert e; below its state, if it is one. */
static int full_name(char *out, size_t cap, const char *state, const char *role,
                     uint64_t e, struct tu_err *err)
{
    /* States are named by the file. */
    size_t n = state ? (size_t)snprintf(out, cap, "optim.%s.", state) : 0;
    if (n >= cap || n + tu_role_text(out + n, cap - n, role, e) >= cap)
        return tu_fail(err, TU_ENAME, "state '%.100s': the name is over %zu bytes long",
                       state ? state : role, cap - 1);
    return 0;
}

int tui_piece_fuse(struct tu_ckpt *c, struct tu_piece *p, const struct tu_named *named,
                   const char *state, uint32_t dtype, struct tu_err *err)
{
    struct tu_tensor t = p->tensor;
    uint64_t rows = 0, cols = 0, blocks = 1;
    unsigned tr = named->transform, stacked = tr & TU_MAP_STACK ? 1 : 0;
    if (c->renames)
        return tu_fail(err, TU_EUSAGE,
                       "names in layout %s follow from its map: convert it first",
                       c->layout->name);
    if (p->whole)
        t.dim = p->whole;
    int rc = matrix(&t, tr, stacked, &rows, &cols, err);
    if (rc)
        return rc;
    if (stacked)
        blocks = t.dim[0];
    if (blocks > 1u << 20 || !blocks)
        return tu_fail(err, TU_EINCOMPLETE, "'%.100s' has %llu experts", t.name,
                       U(blocks));
    uint32_t n = (uint32_t)blocks * named->n,
             *list = tu_arena_alloc(c->arena, n, sizeof *list, err);
    if (!list)
        return TU_ENOMEM;
    bool cut = !p->box; /* boxes are of the whole entry */
    uint64_t total = cut && tr & (TU_MAP_COLUMN | TU_MAP_VOCAB) ? rows * c->tp : rows;
    if (total % blocks)
        return tu_fail(err, TU_EINCOMPLETE, "'%.100s': rows and experts do not fit",
                       t.name);
    for (uint32_t i = 0; i < n; i++) {
        char name[224];
        uint32_t k = i % named->n;
        struct tu_role want = {.state = state,
                               .layer = named->layer,
                               .expert = stacked ? (int64_t)(i / named->n) : named->expert,
                               .dtype = dtype,
                               .rank = t.rank - stacked,
                               .cols = cut && tr & TU_MAP_ROW ? cols * c->tp : cols};
        want.name = name;
        if ((rc = full_name(name, sizeof name, state, named->role[k], i / named->n, err)) ||
            (rc = share(c, named, t.name, k, named->n, total / blocks, &want.rows, err)) ||
            (rc = role_get(c, &want, t.name, &list[i], err)))
            return rc;
    }
    p->fuse = (struct tu_fuse){tr, n, list, stacked ? named->n : 0};
    return 0;
}

int tui_piece_plain(struct tu_ckpt *c, struct tu_piece *p, const char *name,
                    const char *state, uint32_t dtype, struct tu_err *err)
{
    int rc = tui_new_name(c, &name, err);
    if (rc)
        return rc;
    uint32_t *list = tu_arena_alloc(c->arena, 1, sizeof *list, err);
    char *full = state ? tu_arena_printf(c->arena, err, "optim.%s.%s", state, name)
                       : tu_arena_text(c->arena, name, strlen(name), err);
    struct tu_tensor t = p->tensor;
    if (!list || !full)
        return TU_ENOMEM;
    if (p->whole)
        t.dim = p->whole;
    int bytes = p->whole ? tu_tensor_bytes(t.dtype, t.dim, t.rank, &t.bytes, err) : 0;
    if (bytes)
        return bytes;
    struct tu_role want = {.name = full,
                           .state = state,
                           .layer = -1,
                           .expert = -1,
                           .dtype = dtype,
                           .rank = t.rank,
                           .dim = t.dim};
    tui_matrix(&t, &want.rows, &want.cols);
    p->fuse = (struct tu_fuse){0, 1, list, 0};
    return role_get(c, &want, name, list, err);
}

int tui_piece_add(struct tu_ckpt *c, const struct tu_piece *p, struct tu_err *err)
{
    int rc = TU_GROW(&c->piece, &c->piece_cap, c->pieces, err);
    if (!rc)
        c->piece[c->pieces++] = *p;
    return rc;
}

int tui_state_of(struct tu_ckpt *c, const char *name, const char **state,
                 const char **base, struct tu_err *err)
{
    const char *dot = strncmp(name, "optim.", 6) ? NULL : strchr(name + 6, '.');
    *state = NULL;
    *base = name;
    if (!dot || dot == name + 6 || dot - name > 64)
        return 0;
    *state = tu_arena_text(c->arena, name + 6, (size_t)(dot - name - 6), err);
    *base = dot + 1;
    return *state ? 0 : TU_ENOMEM;
}

static int add_tensor(struct tu_ckpt *c, uint32_t f, uint32_t index,
                      const struct tu_tensor *t, const struct tui_naming *n,
                      struct tui_list *unknown, struct tu_err *err)
{
    struct tu_piece p = {.file = f, .index = index, .tensor = *t, .at = n->at};
    struct tu_named named;
    const char *state = NULL, *base;
    bool yes = false;
    int rc = n->locate ? n->locate(c, f, &p.tensor, n->ctx, err) : 0;
    if (!rc) {
        struct tu_tensor located = p.tensor;
        rc = tui_region_to_piece(c, &located, &p, err);
    }
    if (n->prefix)
        p.tensor.name += strlen(n->prefix);
    if (!rc)
        rc = tui_state_of(c, p.tensor.name, &state, &base, err);
    if (rc)
        return rc;
    if (!n->map || !strcmp(base, "optim.step"))
        rc = tui_piece_plain(c, &p, base, state, t->dtype, err);
    else if (!(rc = tu_map_match(n->map, base, n->layer_base, n->expert_base, &named, &yes,
                                 err))) {
        if (!yes && n->map != c->canonical)
            return tui_list_add(unknown, "unmatched", p.tensor.name, err);
        if (yes && named.transform & TU_MAP_DROP) {
            c->dropped++;
            return 0;
        }
        if (yes && n->adjust)
            n->adjust(c, &named);
        rc = yes ? tui_piece_fuse(c, &p, &named, state, t->dtype, err)
                 : tui_piece_plain(c, &p, base, state, t->dtype, err); /* nobody selects it */
    }
    return rc ? rc : tui_piece_add(c, &p, err);
}

int tui_add_pieces(struct tu_ckpt *c, uint32_t f, const struct tui_naming *n,
                   struct tu_err *err)
{
    const struct tu_source *s = c->file[f].source;
    size_t prefix = n->prefix ? strlen(n->prefix) : 0;
    struct tui_list u = {.all = c->refused};
    int rc = 0;
    for (size_t i = 0; i < s->n && !rc; i++)
        if (!prefix || !strncmp(s->tensor[i].name, n->prefix, prefix))
            rc = add_tensor(c, f, (uint32_t)i, &s->tensor[i], n, &u, err);
    if (!rc && u.n)
        rc = tu_fail(err, TU_EINCOMPLETE,
                     "no line of map %s takes %zu of its tensors: %s",
                     tu_map_name(n->map), u.n, u.text);
    if (rc && rc != TU_ENOMEM)
        tu_err_prefix(err, "%s", s->path);
    return rc;
}
