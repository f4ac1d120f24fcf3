/* SPDX-License-Identifier: Apache-2.0 */
/* pnode.c: nodes of a pickled object: made, extended, asked. */
#include "pickle.h"

/* Arrays of items have room for a power of two, so that n alone tells when they are full.
 */
static size_t room_for(size_t n)
{
    size_t room = 2;
    while (room < n)
        room *= 2;
    return n ? room : 0;
}

int tui_pnode_reserve(struct tu_arena *a, struct tu_pnode *node, size_t more,
                      struct tu_err *err)
{
    size_t n = node->n + more;
    if (n <= room_for(node->n) && node->item)
        return 0;
    struct tu_pnode **item = tu_arena_alloc(a, room_for(n), sizeof(struct tu_pnode *),
                                            err);
    if (!item)
        return TU_ENOMEM;
    if (node->n)
        memcpy(item, node->item, node->n * sizeof(struct tu_pnode *));
    node->item = item;
    return 0;
}

struct tu_pnode *tu_pnode_new(struct tu_arena *a, enum tu_pkind kind, size_t n,
                              struct tu_err *err)
{
    struct tu_pnode *node = tu_arena_alloc(a, 1, sizeof *node, err);
    if (!node)
        return NULL;
    node->kind = kind;
    if (n && tui_pnode_reserve(a, node, n, err) < 0)
        return NULL;
    node->n = n;
    return node;
}

struct tu_pnode *tu_pnode_bytes(struct tu_arena *a, enum tu_pkind kind, const void *s,
                                size_t n, struct tu_err *err)
{
    struct tu_pnode *node = tu_pnode_new(a, kind, 0, err);
    if (!node)
        return NULL;
    node->text = tu_arena_text(a, s, n, err);
    node->n = n;
    return node->text ? node : NULL;
}

struct tu_pnode *tu_pnode_text(struct tu_arena *a, const char *s, struct tu_err *err)
{
    return tu_pnode_bytes(a, TU_P_TEXT, s, strlen(s), err);
}

struct tu_pnode *tu_pnode_global(struct tu_arena *a, const char *name, struct tu_err *err)
{
    return tu_pnode_bytes(a, TU_P_GLOBAL, name, strlen(name), err);
}

static struct tu_pnode *number(struct tu_arena *a, enum tu_pkind kind, int64_t v,
                               double real, struct tu_err *err)
{
    struct tu_pnode *node = tu_pnode_new(a, kind, 0, err);
    if (node) {
        node->integer = v;
        node->real = real;
    }
    return node;
}

struct tu_pnode *tu_pnode_int(struct tu_arena *a, int64_t v, struct tu_err *err)
{
    return number(a, TU_P_INT, v, 0, err);
}

struct tu_pnode *tu_pnode_bool(struct tu_arena *a, bool v, struct tu_err *err)
{
    return number(a, TU_P_BOOL, v, 0, err);
}

struct tu_pnode *tu_pnode_real(struct tu_arena *a, double v, struct tu_err *err)
{
    return number(a, TU_P_REAL, 0, v, err);
}

struct tu_pnode *tu_pnode_tensor(struct tu_arena *a, size_t i, struct tu_err *err)
{
    return number(a, TU_P_TENSOR, (int64_t)i, 0, err);
}

struct tu_pnode *tu_pnode_object(struct tu_arena *a, const char *name,
                                 struct tu_pnode *state, struct tu_err *err)
{
    struct tu_pnode *node = tu_pnode_new(a, TU_P_CALL, 3, err);
    if (!node)
        return NULL;
    node->newobj = true;
    node->item[0] = tu_pnode_global(a, name, err);
    node->item[1] = tu_pnode_new(a, TU_P_TUPLE, 0, err);
    node->item[2] = state;
    return node->item[0] && node->item[1] ? node : NULL;
}

int tu_pnode_add(struct tu_arena *a, struct tu_pnode *to, struct tu_pnode *key,
                 struct tu_pnode *value, struct tu_err *err)
{
    bool pair = to->kind == TU_P_DICT;
    if (!value || (pair && !key))
        return TU_ENOMEM; /* the builder before this call failed and filled err */
    int rc = tui_pnode_reserve(a, to, pair ? 2 : 1, err);
    if (rc < 0)
        return rc;
    if (pair)
        to->item[to->n++] = key;
    to->item[to->n++] = value;
    return 0;
}

int tu_pnode_set(struct tu_arena *a, struct tu_pnode *dict, const char *key,
                 struct tu_pnode *value, struct tu_err *err)
{
    return tu_pnode_add(a, dict, tu_pnode_text(a, key, err), value, err);
}

struct tu_pnode *tui_pnode_item(const struct tu_pnode *node, size_t k)
{
    return node && node->item && k < node->n ? node->item[k] : NULL; /* a text counts bytes */
}

const char *tui_pnode_class(const struct tu_pnode *node)
{
    if (node && node->kind == TU_P_CALL)
        node = node->item[TU_P_CALLABLE];
    return node && node->kind == TU_P_GLOBAL ? node->text : "";
}

static struct tu_pnode *dict_get(const struct tu_pnode *dict, const char *key)
{
    size_t len = strlen(key);
    for (size_t i = dict->n; i >= 2; i -= 2) { /* the last one wins, as in Python */
        const struct tu_pnode *k = dict->item[i - 2];
        if (k->kind == TU_P_TEXT && k->n == len && !memcmp(k->text, key, len))
            return dict->item[i - 1];
    }
    return NULL;
}

struct tu_pnode *tu_pnode_get(const struct tu_pnode *node, const char *key)
{
    if (!node)
        return NULL;
    if (node->kind == TU_P_DICT)
        return dict_get(node, key);
    if (node->kind != TU_P_CALL)
        return NULL;
    /* The state is a dict, or a tuple of a dict and a dict of slots; a dict's subclass
     * has items. */
    const struct tu_pnode *state = tui_pnode_item(node, TU_P_STATE);
    struct tu_pnode *found = NULL;
    if (state && state->kind == TU_P_TUPLE)
        for (size_t i = 0; !found && i < state->n; i++)
            found = state->item[i]->kind == TU_P_DICT ? dict_get(state->item[i], key)
                                                      : NULL;
    else if (state && state->kind == TU_P_DICT)
        found = dict_get(state, key);
    const struct tu_pnode *items = tui_pnode_item(node, TU_P_ITEMS);
    return found || !items ? found : dict_get(items, key);
}

size_t tu_pnode_number(const struct tu_pnode *node)
{
    return node && node->kind == TU_P_CALL && node->integer ? (size_t)node->integer - 1
                                                            : SIZE_MAX;
}
