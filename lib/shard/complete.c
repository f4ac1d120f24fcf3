/* SPDX-License-Identifier: Apache-2.0 */
/* complete.c: is every tensor there that the model must have?
 *
 * Two rules, both about roles: what a decoder of this configuration cannot do without is
 * there (`needed`), and what one layer has, each layer of its kind has, dense or of
 * experts, so that biases and norms which only some families have need no table. Layers
 * of which nothing is there are another's matter (tu_ckpt_check), as are families that
 * are not known. And a third, about ranks: what one holds, each of its stage holds. */

#include <stdio.h>
#include <string.h>

#include "ckpt.h"

int tui_list_add(struct tui_list *l, const char *why, const char *name, struct tu_err *err)
{
    size_t at = strlen(l->text), room = sizeof l->text - at;
    if (!l->full && (!at || strlen(name) + 12 < room))
        snprintf(l->text + at, room, "%s'%.100s'", at ? ", " : "", name);
    else if (!l->full)
        snprintf(l->text + at, room, ", …");
    l->full = l->full || (at && strlen(name) + 12 >= room);
    l->n++;
    if (!l->all)
        return 0;
    l->all->why = why;
    l->all->n++;
    return tu_buf_add(&l->all->names, name, strlen(name) + 1, err);
}

enum { DENSE, EXPERTS, KINDS };

enum {
    NEED_GATED = 1 << 0,
    NEED_POSITIONS = 1 << 1,
    NEED_FULL = 1 << 2,   /* k and v, and no latent attention */
    NEED_LATENT = 1 << 3,
    NEED_Q_WHOLE = 1 << 4, /* q in one matrix */
    NEED_Q_RANK = 1 << 5,
    NEED_POST_NORMS = 1 << 6,
};

/* Below layers.N. the names begin with a dot. */
static const struct need {
    const char *role;
    unsigned kinds; /* bits of layers; 0: of the model */
    unsigned where; /* NEED_… that must hold */
} needed[] = {
    {"embed.weight", 0, 0},
    {"pos.weight", 0, NEED_POSITIONS},
    {"norm.weight", 0, 0},
    {".attn_norm.weight", 1 << DENSE | 1 << EXPERTS, 0},
    {".attn.q.weight", 1 << DENSE | 1 << EXPERTS, NEED_Q_WHOLE},
    {".attn.q_a.weight", 1 << DENSE | 1 << EXPERTS, NEED_Q_RANK},
    {".attn.q_a_norm.weight", 1 << DENSE | 1 << EXPERTS, NEED_Q_RANK},
    {".attn.q_b.weight", 1 << DENSE | 1 << EXPERTS, NEED_Q_RANK},
    {".attn.k.weight", 1 << DENSE | 1 << EXPERTS, NEED_FULL},
    {".attn.v.weight", 1 << DENSE | 1 << EXPERTS, NEED_FULL},
    {".attn.kv_a.weight", 1 << DENSE | 1 << EXPERTS, NEED_LATENT},
    {".attn.kv_a_norm.weight", 1 << DENSE | 1 << EXPERTS, NEED_LATENT},
    {".attn.kv_b.weight", 1 << DENSE | 1 << EXPERTS, NEED_LATENT},
    {".attn.o.weight", 1 << DENSE | 1 << EXPERTS, 0},
    {".attn_post_norm.weight", 1 << DENSE | 1 << EXPERTS, NEED_POST_NORMS},
    {".mlp_norm.weight", 1 << DENSE | 1 << EXPERTS, 0},
    {".mlp_post_norm.weight", 1 << DENSE | 1 << EXPERTS, NEED_POST_NORMS},
    {".mlp.gate.weight", 1 << DENSE, NEED_GATED},
    {".mlp.up.weight", 1 << DENSE, 0},
    {".mlp.down.weight", 1 << DENSE, 0},
    {".moe.router.weight", 1 << EXPERTS, 0},
    {".moe.experts.*.gate.weight", 1 << EXPERTS, NEED_GATED},
    {".moe.experts.*.up.weight", 1 << EXPERTS, 0},
    {".moe.experts.*.down.weight", 1 << EXPERTS, 0},
};

struct search {
    struct tu_ckpt *c;
    const char *state; /* NULL: weights; else all there is are states, these among them */
    unsigned char *kind; /* [layers] bits; 0: nothing of the layer is there */
    struct tu_names *seen[KINDS];
    const char **part[KINDS]; /* ".attn.q.bias" and so on, of any layer */
    size_t parts[KINDS];
    struct tu_buf name, last;
    struct tui_list list;
};

static bool counts(const struct search *s, const struct tu_role *r)
{
    return s->state ? r->state && !strcmp(r->state, s->state)
                    : !r->state && strcmp(r->name, TUI_STEP);
}

/* Whether weights are there, or states alone; the kinds of the layers. */
static int survey(struct search *s, struct tu_err *err)
{
    const struct tu_ckpt *c = s->c;
    bool weights = false;
    for (size_t i = 0; i < c->roles; i++) {
        if (!c->role[i].state && strcmp(c->role[i].name, TUI_STEP))
            weights = true;
        else if (!s->state)
            s->state = c->role[i].state;
    }
    if (weights)
        s->state = NULL;
    if (!(s->kind = tu_calloc(c->model.layers, 1, err)))
        return TU_ENOMEM;
    for (size_t i = 0; i < c->roles; i++) {
        const struct tu_role *r = &c->role[i];
        if (counts(s, r) && r->layer >= 0 && (uint64_t)r->layer < c->model.layers)
            s->kind[r->layer] |=
                strstr(r->base, ".moe.") ? 1 << EXPERTS : 1 << DENSE;
    }
    for (uint64_t l = 0; l < c->model.layers; l++)
        if (s->kind[l] & 1 << EXPERTS)
            s->kind[l] = 1 << EXPERTS;
    return 0;
}

/* What follows "layers.N" in a role. */
static const char *part_of(const char *role)
{
    return strchr(role + strlen("layers."), '.');
}

static int gather(struct search *s, struct tu_err *err)
{
    const struct tu_ckpt *c = s->c;
    for (int k = 0; k < KINDS; k++)
        if (!(s->seen[k] = tu_names_new(err)) ||
            !(s->part[k] = tu_alloc(c->roles + 1, sizeof *s->part[k], err)))
            return TU_ENOMEM;
    for (size_t i = 0; i < c->roles; i++) {
        const struct tu_role *r = &c->role[i];
        if (!counts(s, r) || r->layer < 0 || (uint64_t)r->layer >= c->model.layers)
            continue;
        int kind = s->kind[r->layer] & 1 << EXPERTS ? EXPERTS : DENSE;
        const char *part = part_of(r->base);
        if (tu_names_get(s->seen[kind], part) != TU_NAMES_NONE)
            continue;
        int rc = tu_names_put(s->seen[kind], part, 0, err);
        if (rc)
            return rc;
        s->part[kind][s->parts[kind]++] = part;
    }
    return 0;
}

static bool there(const struct search *s, const char *role)
{
    char full[320];
    snprintf(full, sizeof full, "%s%s%s%s", s->state ? "optim." : "",
             s->state ? s->state : "", s->state ? "." : "", role);
    return tu_names_get(s->c->names, full) != TU_NAMES_NONE;
}

/* Roles that one tensor fuses are one name. */
static int want(struct search *s, const char *role, struct tu_err *err)
{
    struct tu_named named;
    bool yes = false;
    if (there(s, role))
        return 0;
    tu_buf_reset(&s->name);
    int rc = tu_map_entry(s->c->canonical, role, 0, 0, &s->name, &named, &yes, err);
    if (!rc && !yes)
        rc = tu_buf_text(&s->name, role, err);
    if (rc || (s->last.n && !strcmp(s->last.data, s->name.data)))
        return rc;
    tu_buf_reset(&s->last);
    rc = tu_buf_text(&s->last, s->name.data, err);
    if (!rc)
        rc = tui_listed_lacks(s->c, s->name.data, &yes, err);
    s->c->part |= !rc && yes;
    return rc || yes ? rc : tui_list_add(&s->list, "missing", s->name.data, err);
}

static unsigned facts(const struct tu_model *m)
{
    return (m->gated ? NEED_GATED : 0) | (m->learned_positions ? NEED_POSITIONS : 0) |
           (m->kv_rank ? NEED_LATENT : NEED_FULL) |
           (m->q_rank ? NEED_Q_RANK : NEED_Q_WHOLE) | (m->post_norms ? NEED_POST_NORMS : 0);
}

/* Of layer l, or with -1 of the model. */
static int want_needed(struct search *s, int64_t l, struct tu_err *err)
{
    const struct tu_model *m = &s->c->model;
    int rc = 0;
    for (size_t i = 0; i < sizeof needed / sizeof *needed && !rc; i++) {
        const struct need *n = &needed[i];
        if (n->where & ~facts(m) || (l < 0 ? n->kinds : !(n->kinds & s->kind[l])))
            continue;
        uint64_t experts = strchr(n->role, '*') ? m->experts : 1;
        for (uint64_t e = 0; e < experts && !rc; e++) {
            char role[128], pattern[128];
            if (l < 0)
                snprintf(pattern, sizeof pattern, "%s", n->role);
            else
                snprintf(pattern, sizeof pattern, "layers.%lld%s", (long long)l, n->role);
            (void)tu_role_text(role, sizeof role, pattern, e);
            rc = want(s, role, err);
        }
    }
    return rc;
}

static bool is_needed(const struct search *s, int kind, const char *part)
{
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (needed[i].kinds & 1u << kind && !(needed[i].where & ~facts(&s->c->model)) &&
            !strcmp(needed[i].role, part))
            return true;
    return false;
}

static int want_like_others(struct search *s, uint64_t l, struct tu_err *err)
{
    int kind = s->kind[l] & 1 << EXPERTS ? EXPERTS : DENSE, rc = 0;
    for (size_t i = 0; i < s->parts[kind] && !rc; i++) {
        const char *part = s->part[kind][i];
        char role[224];
        /* Experts by number are among what is needed, where their number is known. */
        if (is_needed(s, kind, part) ||
            (s->c->model.experts && !strncmp(part, ".moe.experts.", 13)))
            continue;
        snprintf(role, sizeof role, "layers.%llu%s", (unsigned long long)l, part);
        rc = want(s, role, err);
    }
    return rc;
}

/* The output head, where nothing ties one to the embedding. */
static int want_head(struct search *s, struct tu_err *err)
{
    struct tu_ckpt *c = s->c;
    bool listed = false;
    if (c->model.tied || !there(s, "embed.weight") || there(s, "head.weight"))
        return 0;
    int rc = tui_listed_is_there(c, &listed, err);
    if (!rc && listed)
        return want(s, "head.weight", err);
    return rc ? rc
              : tu_fail(err, TU_EINCOMPLETE,
                        "%.150s: no output head, and the configuration does not tie it to "
                        "the embedding (--include '.*' reads what there is)",
                        c->root);
}

int tui_check_complete(struct tu_ckpt *c, struct tu_err *err)
{
    struct search s = {.c = c, .list = {.all = c->refused}};
    if (!c->canonical || !c->model.layers || !c->roles || c->part)
        return 0;
    int rc = survey(&s, err);
    if (!rc)
        rc = gather(&s, err);
    if (!rc)
        rc = want_needed(&s, -1, err);
    for (uint64_t l = 0; l < c->model.layers && !rc; l++) {
        if (s.kind[l])
            rc = want_needed(&s, (int64_t)l, err);
        if (s.kind[l] && !rc)
            rc = want_like_others(&s, l, err);
    }
    if (!rc && there(&s, "layers.0.attn_norm.bias"))
        rc = want(&s, "norm.bias", err);
    if (!rc && !s.list.n)
        rc = want_head(&s, err);
    if (!rc && s.list.n)
        rc = tu_fail(err, TU_EINCOMPLETE, "%.60s: %zu tensor%s missing: %s", c->root,
                     s.list.n, s.list.n == 1 ? " is" : "s are", s.list.text);
    for (int k = 0; k < KINDS; k++) {
        tu_free(s.part[k]);
        tu_names_free(s.seen[k]);
    }
    tu_free(s.kind);
    tu_buf_release(&s.name);
    tu_buf_release(&s.last);
    return rc;
}

/* The first rank of a stage's that does not hold the tensor of piece p. */
static struct tu_coord lacking(const struct tu_ckpt *c, const struct tu_piece *p)
{
    struct tu_coord at = p->at;
    for (at.ep = 0; at.ep < c->ep; at.ep++)
        for (at.tp = 0; at.tp < c->tp; at.tp++) {
            bool has = false;
            for (size_t i = 0; i < c->pieces && !has; i++) {
                const struct tu_piece *q = &c->piece[i];
                has = q->at.tp == at.tp && q->at.ep == at.ep && q->at.pp == at.pp &&
                      q->at.vp == at.vp && !strcmp(q->tensor.name, p->tensor.name);
            }
            if (!has)
                return at;
        }
    return at;
}

/* How many ranks hold the tensor of a stage that piece `first` shows. */
struct held {
    size_t first;
    uint32_t ranks;
};

static int count_ranks(const struct tu_ckpt *c, struct tu_arena *a, struct held *held,
                       size_t *n, struct tu_err *err)
{
    struct tu_names *names = tu_names_new(err);
    int rc = names ? 0 : TU_ENOMEM;
    for (size_t i = 0; i < c->pieces && !rc; i++) {
        const struct tu_piece *p = &c->piece[i];
        char *key = tu_arena_printf(a, err, "%u.%u.%s", p->at.pp, p->at.vp, p->tensor.name);
        uint32_t k = key ? tu_names_get(names, key) : 0;
        if (!key)
            rc = TU_ENOMEM;
        else if (k != TU_NAMES_NONE)
            held[k].ranks++;
        else if (!(rc = tu_names_put(names, key, (uint32_t)*n, err)))
            held[(*n)++] = (struct held){i, 1};
    }
    tu_names_free(names);
    return rc;
}

int tui_check_ranks(const struct tu_ckpt *c, struct tu_err *err)
{
    struct tu_arena *a = tu_arena_new(err);
    struct held *held = a ? tu_arena_alloc(a, c->pieces + 1, sizeof *held, err) : NULL;
    struct tui_list list = {.all = c->refused};
    struct tu_coord at = {0};
    size_t n = 0;
    int rc = held ? count_ranks(c, a, held, &n, err) : TU_ENOMEM;
    for (size_t k = 0; k < n && !rc; k++) {
        const struct tu_piece *p = &c->piece[held[k].first];
        if (held[k].ranks >= c->tp * c->ep)
            continue;
        if (!list.n)
            at = lacking(c, p);
        rc = tui_list_add(&list, "not on every rank", p->tensor.name, err);
    }
    if (!rc && list.n)
        rc = tu_fail(err, TU_EINCOMPLETE,
                     "%.60s: %zu tensor%s not on every rank (tp=%u pp=%u ep=%u lacks the "
                     "first): %s",
                     c->root, list.n, list.n == 1 ? " is" : "s are", at.tp, at.pp, at.ep,
                     list.text);
    tu_arena_free(a);
    return rc;
}
