/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_make.c: opcodes that make values, fill containers and use the memo. */
#include "pickle_machine.h"

/* Constants and texts ---------------------------------------------------------------- */

int tui_pop_proto(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    const unsigned char *p;
    int rc = tui_pm_take(m, 1, &p);
    if (rc == 0 && *p > 5)
        rc = tu_fail_at(m->err, TU_EVERSION, m->op, "pickle: protocol %u, at most 5", *p);
    return rc;
}

int tui_pop_frame(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    uint64_t length;
    return tui_pm_number(m, 8, &length); /* a hint for buffering */
}

int tui_pop_stop(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    struct tu_pnode **value;
    int rc = tui_pm_top(m, 1, &value);
    if (rc < 0)
        return rc;
    if (m->depth != 1 || m->marks)
        return tui_pm_fail(m, TU_EFORMAT, "values are left on the stack");
    m->p->root = *value;
    m->stop = true;
    return 0;
}

int tui_pop_constant(struct tui_pm *m, const struct tui_pop *op)
{
    return tui_pm_push_new(m, op->kind, op->n, 0);
}

int tui_pop_int(struct tui_pm *m, const struct tui_pop *op)
{
    uint64_t v;
    int rc = tui_pm_number(m, op->n, &v);
    return rc < 0 ? rc
                  : tui_pm_push_new(m, TU_P_INT, op->n == 4 ? (int32_t)v : (int64_t)v, 0);
}

int tui_pop_long(struct tui_pm *m, const struct tui_pop *op)
{
    const unsigned char *p;
    uint64_t n;
    int rc = tui_pm_number(m, op->n, &n);
    if (rc == 0 && n > m->max.digits)
        rc = tui_pm_limit(m, "bytes of one integer", n, m->max.digits);
    if (rc == 0)
        rc = tui_pm_take(m, (size_t)n, &p);
    if (rc < 0)
        return rc;
    while (n > 8 && p[n - 1] == (p[n - 2] & 0x80 ? 0xFF : 0)) /* superfluous sign bytes */
        n--;
    if (n > 8) {
        struct tu_pnode *node = tui_pm_node(m, TU_P_BIGINT, 0);
        rc = node ? tui_pickle_decimal(node, m->p->arena, p, (size_t)n, m->err)
                  : tui_pm_failed(m);
        return rc < 0 ? rc : tui_pm_push(m, node);
    }
    uint64_t v = n && p[n - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = (size_t)n; i-- > 0;)
        v = v << 8 | p[i];
    return tui_pm_push_new(m, TU_P_INT, (int64_t)v, 0);
}

int tui_pop_binfloat(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    const unsigned char *p;
    int rc = tui_pm_take(m, 8, &p);
    if (rc < 0)
        return rc;
    uint64_t bits = 0;
    double v;
    for (int i = 0; i < 8; i++) /* big-endian, alone among the opcodes */
        bits = bits << 8 | p[i];
    memcpy(&v, &bits, sizeof v);
    return tui_pm_push_new(m, TU_P_REAL, 0, v);
}

int tui_pop_text(struct tui_pm *m, const struct tui_pop *op)
{
    struct tu_pnode *node = tui_pm_text(m, op->n, op->kind);
    return node ? tui_pm_push(m, node) : tui_pm_failed(m);
}

/* A str of Python 2: text where it is UTF-8, as torch reads it. */
int tui_pop_string(struct tui_pm *m, const struct tui_pop *op)
{
    struct tu_pnode *node = tui_pm_text(m, op->n, TU_P_TEXT);
    if (!node)
        return tui_pm_failed(m);
    if (tu_utf8_check(node->text, node->n) != node->n)
        node->kind = TU_P_BYTES;
    return tui_pm_push(m, node);
}

/* Containers ------------------------------------------------------------------------- */

int tui_pop_mark(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    int rc = TU_GROW(&m->mark, &m->mark_cap, m->marks, m->err);
    if (rc == 0)
        m->mark[m->marks++] = m->depth;
    return rc;
}

int tui_pop_pop(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    struct tu_pnode **value;
    if (m->marks && m->mark[m->marks - 1] == m->depth) {
        m->marks--;
        return 0;
    }
    int rc = tui_pm_top(m, 1, &value);
    m->depth -= rc == 0;
    return rc;
}

int tui_pop_pop_mark(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    struct tu_pnode **values;
    size_t n;
    int rc = tui_pm_pop_mark(m, &values, &n);
    if (rc == 0)
        m->depth -= n;
    return rc;
}

int tui_pop_dup(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    struct tu_pnode **value;
    int rc = tui_pm_top(m, 1, &value);
    return rc < 0 ? rc : tui_pm_push(m, *value);
}

int tui_pop_tuple(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    struct tu_pnode **values;
    size_t n;
    int rc = tui_pm_pop_mark(m, &values, &n);
    return rc < 0 ? rc : tui_pm_gather(m, TU_P_TUPLE, values, n);
}

/* A tuple or persistent id of the last values. */
int tui_pop_gather(struct tui_pm *m, const struct tui_pop *op)
{
    struct tu_pnode **values;
    int rc = tui_pm_top(m, op->n, &values);
    return rc < 0 ? rc : tui_pm_gather(m, op->kind, values, op->n);
}

static int hashable(struct tui_pm *m, const struct tu_pnode *key)
{
    if (key->kind == TU_P_LIST || key->kind == TU_P_DICT || key->kind == TU_P_SET)
        return tui_pm_kind(m, "uses as a key", key);
    return 0;
}

int tui_pop_frozenset(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    struct tu_pnode **values;
    size_t n;
    int rc = tui_pm_pop_mark(m, &values, &n);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = hashable(m, values[i]);
    return rc < 0 ? rc : tui_pm_gather(m, TU_P_FROZENSET, values, n);
}

/* Where values that are set, appended or added on `to` go. */
static struct tu_pnode *receiver(struct tui_pm *m, struct tu_pnode *to,
                                 enum tu_pkind kind)
{
    if (to->kind == kind)
        return to;
    if (to->kind == TU_P_CALL && kind != TU_P_SET)
        return tui_pm_part(m, to, kind == TU_P_DICT ? TU_P_ITEMS : TU_P_APPENDED, kind);
    tui_pm_kind(m, "on", to);
    return NULL;
}

/* Move the n values on top into the container below them. */
static int put_items(struct tui_pm *m, struct tu_pnode **values, size_t n,
                     enum tu_pkind kind)
{
    int rc = 0;
    if (kind == TU_P_DICT && n % 2)
        return tui_pm_fail(m, TU_EFORMAT, "a key without a value");
    for (size_t i = 0; rc == 0 && kind != TU_P_LIST && i < n;
         i += kind == TU_P_DICT ? 2 : 1)
        rc = hashable(m, values[i]);
    if (rc < 0)
        return rc;
    struct tu_pnode *to = receiver(m, values[-1], kind);
    if (!to)
        return tui_pm_failed(m);
    rc = n ? tui_pnode_reserve(m->p->arena, to, n, m->err) : 0;
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        to->item[to->n++] = values[i];
    m->depth -= n;
    return 0;
}

int tui_pop_set_one(struct tui_pm *m, const struct tui_pop *op)
{
    struct tu_pnode **values;
    int rc = tui_pm_top(m, op->n + 1, &values);
    return rc < 0 ? rc : put_items(m, values + 1, op->n, op->kind);
}

int tui_pop_set_many(struct tui_pm *m, const struct tui_pop *op)
{
    struct tu_pnode **values, **below;
    size_t n;
    int rc = tui_pm_pop_mark(m, &values, &n);
    if (rc == 0)
        rc = tui_pm_top(m, n + 1, &below); /* the container lies under the mark */
    return rc < 0 ? rc : put_items(m, below + 1, n, op->kind);
}

/* Memo ------------------------------------------------------------------------------- */

int tui_pop_put(struct tui_pm *m, const struct tui_pop *op)
{
    uint64_t index;
    int rc = tui_pm_number(m, op->n, &index);
    return rc < 0 ? rc : tui_pm_memoize(m, index);
}

int tui_pop_memoize(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    return tui_pm_memoize(m, m->memo_used);
}

int tui_pop_get(struct tui_pm *m, const struct tui_pop *op)
{
    uint64_t index;
    int rc = tui_pm_number(m, op->n, &index);
    if (rc < 0)
        return rc;
    if (index >= m->memo_cap || !m->memo[index])
        return tui_pm_fail(m, TU_EFORMAT, "nothing was stored under this memo index");
    return tui_pm_push(m, m->memo[index]);
}
