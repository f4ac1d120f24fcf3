/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_machine.c: input, stack, marks, memo and nodes of the pickle machine. */
#include "pickle_machine.h"

static const char *const kind_names[] = {
    [TU_P_NONE] = "None",     [TU_P_BOOL] = "bool",   [TU_P_INT] = "int",
    [TU_P_BIGINT] = "int",    [TU_P_REAL] = "float",  [TU_P_TEXT] = "str",
    [TU_P_BYTES] = "bytes",   [TU_P_TUPLE] = "tuple", [TU_P_LIST] = "list",
    [TU_P_DICT] = "dict",     [TU_P_SET] = "set",     [TU_P_FROZENSET] = "frozenset",
    [TU_P_GLOBAL] = "global", [TU_P_CALL] = "object", [TU_P_PERSID] = "persistent id",
    [TU_P_TENSOR] = "tensor",
};

int tui_pm_fail(struct tui_pm *m, int code, const char *what)
{
    unsigned char op = m->data[m->op];
    return tu_fail_at(m->err, code, m->op, "pickle: byte %zu: %s: %s", m->op,
                      tui_pop_name(op), what);
}

int tui_pm_limit(struct tui_pm *m, const char *what, uint64_t found, uint64_t max)
{
    return tu_fail_at(m->err, TU_ELIMIT, m->op,
                      "pickle: byte %zu: %s: %llu %s, at most %llu", m->op,
                      tui_pop_name(m->data[m->op]), (unsigned long long)found, what,
                      (unsigned long long)max);
}

int tui_pm_kind(struct tui_pm *m, const char *what, const struct tu_pnode *node)
{
    return tu_fail_at(m->err, TU_EFORMAT, m->op, "pickle: byte %zu: %s %s a %s", m->op,
                      tui_pop_name(m->data[m->op]), what, kind_names[node->kind]);
}

int tui_pm_take(struct tui_pm *m, size_t n, const unsigned char **p)
{
    *p = NULL;
    if (n > m->n - m->at)
        return tui_pm_fail(m, TU_ETRUNC, "the pickle ends inside it");
    *p = m->data + m->at;
    m->at += n;
    return 0;
}

/* A little-endian unsigned number of `width` bytes. */
int tui_pm_number(struct tui_pm *m, unsigned width, uint64_t *v)
{
    const unsigned char *p;
    int rc = tui_pm_take(m, width, &p);
    *v = 0;
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < width; i++)
        *v |= (uint64_t)p[i] << (8 * i);
    return 0;
}

int tui_pm_push(struct tui_pm *m, struct tu_pnode *node)
{
    int rc = TU_GROW(&m->stack, &m->stack_cap, m->depth, m->err);
    if (rc == 0)
        m->stack[m->depth++] = node;
    return rc;
}

/* The n values on top, which must lie above the last mark. */
int tui_pm_top(struct tui_pm *m, size_t n, struct tu_pnode ***values)
{
    size_t floor = m->marks ? m->mark[m->marks - 1] : 0;
    *values = NULL;
    if (m->depth - floor < n)
        return tui_pm_fail(m, TU_EFORMAT, "stack underflow");
    *values = m->stack + m->depth - n;
    return 0;
}

/* Remove the last mark; its values are values[0 … n-1], still on the stack. */
int tui_pm_pop_mark(struct tui_pm *m, struct tu_pnode ***values, size_t *n)
{
    *values = NULL;
    *n = 0;
    if (!m->marks)
        return tui_pm_fail(m, TU_EFORMAT, "no mark on the stack");
    size_t height = m->mark[--m->marks];
    *values = m->stack + height;
    *n = m->depth - height;
    return 0;
}

int tui_pm_charge(struct tui_pm *m, size_t values)
{
    m->nodes += values;
    return m->nodes > m->max.nodes ? tui_pm_limit(m, "values", m->nodes, m->max.nodes)
                                   : 0;
}

struct tu_pnode *tui_pm_node(struct tui_pm *m, enum tu_pkind kind, size_t n)
{
    if (tui_pm_charge(m, 1) < 0)
        return NULL;
    struct tu_pnode *node = tu_pnode_new(m->p->arena, kind, n, m->err);
    if (node)
        node->offset = m->op;
    else if (m->err)
        m->err->code = TU_ENOMEM;
    return node;
}

int tui_pm_failed(struct tui_pm *m)
{
    return m->err->code;
}

int tui_pm_push_new(struct tui_pm *m, enum tu_pkind kind, int64_t integer, double real)
{
    struct tu_pnode *node = tui_pm_node(m, kind, 0);
    if (!node)
        return tui_pm_failed(m);
    node->integer = integer;
    node->real = real;
    return tui_pm_push(m, node);
}

int tui_pm_memoize(struct tui_pm *m, uint64_t index)
{
    struct tu_pnode **value;
    int rc = tui_pm_top(m, 1, &value);
    if (rc < 0)
        return rc;
    if (index >= m->max.memo ||
        index >= m->n) /* each entry took at least a byte of input */
        return tui_pm_limit(m, "is the memo index", index, tu_min(m->max.memo, m->n));
    while (rc == 0 && m->memo_cap <= index) {
        size_t old = m->memo_cap;
        rc = TU_GROW(&m->memo, &m->memo_cap, old, m->err);
        if (rc == 0)
            memset(m->memo + old, 0, (m->memo_cap - old) * sizeof(struct tu_pnode *));
    }
    if (rc < 0)
        return rc;
    m->memo_used += !m->memo[index];
    m->memo[index] = *value;
    return 0;
}

/* A text or bytes whose length is a number of `width` bytes. */
struct tu_pnode *tui_pm_text(struct tui_pm *m, unsigned width, enum tu_pkind kind)
{
    const unsigned char *p;
    uint64_t n;
    if (tui_pm_number(m, width, &n) < 0)
        return NULL;
    if (n > m->max.text) {
        tui_pm_limit(m, "bytes of one string", n, m->max.text);
        return NULL;
    }
    if (tui_pm_take(m, (size_t)n, &p) < 0)
        return NULL;
    struct tu_pnode *node = tui_pm_node(m, kind, 0);
    if (!node)
        return NULL;
    node->text = tu_arena_text(m->p->arena, (const char *)p, (size_t)n, m->err);
    node->n = (size_t)n;
    return node->text ? node : NULL;
}

/* Replace the n values on top by a node that holds them. */
int tui_pm_gather(struct tui_pm *m, enum tu_pkind kind, struct tu_pnode **values,
                  size_t n)
{
    struct tu_pnode *node = tui_pm_node(m, kind, n);
    if (!node)
        return tui_pm_failed(m);
    if (n)
        memcpy(node->item, values, n * sizeof(struct tu_pnode *));
    m->depth -= n;
    return tui_pm_push(m, node);
}

/* Part `k` of a CALL, made when it is not there yet. */
struct tu_pnode *tui_pm_part(struct tui_pm *m, struct tu_pnode *call, size_t k,
                             enum tu_pkind kind)
{
    struct tu_pnode *part = tui_pnode_item(call, k);
    if (part)
        return part;
    part = tui_pm_node(m, kind, 0);
    if (!part)
        return NULL;
    if (call->n <= k) {
        if (tui_pnode_reserve(m->p->arena, call, k + 1 - call->n, m->err) < 0)
            return NULL;
        while (call->n <= k)
            call->item[call->n++] = NULL;
    }
    call->item[k] = part;
    return part;
}
