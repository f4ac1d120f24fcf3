/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_call.c: opcodes that name classes and functions and call them: here, nodes that
 * say so. */
#include "pickle_machine.h"

#define NAME_MAX 1000 /* bytes of a global */

static int push_global(struct tui_pm *m, const char *module, size_t module_n,
                       const char *name, size_t name_n)
{
    struct tu_pickle *p = m->p;
    if (!module_n || !name_n || tu_name_check(module, module_n) != module_n ||
        tu_name_check(name, name_n) != name_n || memchr(module, ' ', module_n) ||
        memchr(name, ' ', name_n))
        return tui_pm_fail(m, TU_EFORMAT, "no name of a class or function");
    if (module_n + name_n > NAME_MAX)
        return tui_pm_limit(m, "bytes of one name", module_n + name_n, NAME_MAX);
    int rc = TU_GROW(&p->global, &p->cap, p->globals, m->err);
    struct tu_pnode *node = rc < 0 ? NULL : tui_pm_node(m, TU_P_GLOBAL, 0);
    if (!node)
        return tui_pm_failed(m);
    node->text = tu_arena_printf(p->arena, m->err, "%.*s %.*s", (int)module_n, module,
                                 (int)name_n, name);
    if (!node->text)
        return tui_pm_failed(m);
    node->n = module_n + name_n + 1;
    p->global[p->globals++] =
        (struct tu_pglobal){node->text, m->op, tui_pickle_known(node->text)};
    return tui_pm_push(m, node);
}

static int take_line(struct tui_pm *m, const char **s, size_t *n)
{
    *s = NULL;
    *n = 0;
    const unsigned char *p = m->data + m->at, *end = memchr(p, '\n', m->n - m->at);
    if (!end)
        return tui_pm_fail(m, TU_ETRUNC, "the pickle ends inside it");
    *s = (const char *)p;
    *n = (size_t)(end - p);
    m->at += *n + 1;
    return 0;
}

int tui_pop_global(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    const char *module, *name;
    size_t module_n, name_n;
    int rc = take_line(m, &module, &module_n);
    if (rc == 0)
        rc = take_line(m, &name, &name_n);
    return rc < 0 ? rc : push_global(m, module, module_n, name, name_n);
}

int tui_pop_stack_global(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    struct tu_pnode **v;
    int rc = tui_pm_top(m, 2, &v);
    if (rc < 0)
        return rc;
    const struct tu_pnode *module = v[0], *name = v[1];
    if (module->kind != TU_P_TEXT || name->kind != TU_P_TEXT)
        return tui_pm_kind(m, "of", module->kind == TU_P_TEXT ? name : module);
    m->depth -= 2;
    return push_global(m, module->text, module->n, name->text, name->n);
}

static int push_call(struct tui_pm *m, struct tu_pnode *callable, struct tu_pnode *args,
                     bool newobj, size_t popped)
{
    struct tu_pnode *node = NULL;
    if (args->kind != TU_P_TUPLE)
        return tui_pm_kind(m, "with arguments that are", args);
    if (!newobj && callable->kind == TU_P_GLOBAL &&
        tui_pickle_pure(&node, m->p->arena, callable->text, args, m->err) < 0)
        return tui_pm_failed(m);
    if (node) {
        int rc = tui_pm_charge(
            m, 1 + node->n); /* it is a copy, and a few bytes can ask for it again */
        if (rc < 0)
            return rc;
    } else {
        node = tui_pm_node(m, TU_P_CALL, 2);
        if (!node)
            return tui_pm_failed(m);
        node->item[TU_P_CALLABLE] = callable;
        node->item[TU_P_ARGS] = args;
        node->newobj = newobj;
    }
    node->offset = m->op;
    m->depth -= popped;
    return tui_pm_push(m, node);
}

/* REDUCE and NEWOBJ. */
int tui_pop_call(struct tui_pm *m, const struct tui_pop *op)
{
    struct tu_pnode **v;
    int rc = tui_pm_top(m, 2, &v);
    return rc < 0 ? rc : push_call(m, v[0], v[1], op->n, 2);
}

int tui_pop_newobj_ex(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    struct tu_pnode **v;
    int rc = tui_pm_top(m, 3, &v);
    if (rc < 0)
        return rc;
    struct tu_pnode *keywords = v[2];
    if (keywords->kind != TU_P_DICT)
        return tui_pm_kind(m, "with keywords that are", keywords);
    rc = push_call(m, v[0], v[1], true, 3);
    if (rc < 0)
        return rc;
    struct tu_pnode *call = m->stack[m->depth - 1];
    if (!tui_pm_part(m, call, TU_P_KEYWORDS, TU_P_DICT))
        return tui_pm_failed(m);
    call->item[TU_P_KEYWORDS] = keywords;
    return 0;
}

/* A bytearray is what protocol 2 makes of it: builtins.bytearray(bytes). */
int tui_pop_bytearray8(struct tui_pm *m, const struct tui_pop *op)
{
    struct tu_pnode **v, *bytes = tui_pm_text(m, op->n, TU_P_BYTES);
    int rc = bytes ? push_global(m, "builtins", 8, "bytearray", 9) : tui_pm_failed(m);
    if (rc == 0)
        rc = tui_pm_gather(m, TU_P_TUPLE, &bytes, 0);
    if (rc < 0)
        return rc;
    rc = tui_pm_top(m, 2, &v);
    if (rc == 0)
        rc = tui_pnode_reserve(m->p->arena, v[1], 1, m->err);
    if (rc < 0)
        return rc;
    v[1]->item[v[1]->n++] = bytes;
    return push_call(m, v[0], v[1], false, 2);
}

int tui_pop_build(struct tui_pm *m, const struct tui_pop *op)
{
    (void)op;
    struct tu_pnode **v;
    int rc = tui_pm_top(m, 2, &v);
    if (rc < 0)
        return rc;
    struct tu_pnode *object = v[0], *state = v[1];
    if (object->kind == TU_P_CALL) {
        if (tui_pnode_item(object, TU_P_STATE))
            return tui_pm_fail(m, TU_EFORMAT, "a second state for one object");
        if (!tui_pm_part(m, object, TU_P_STATE, TU_P_NONE))
            return tui_pm_failed(m);
        object->item[TU_P_STATE] = state;
    } else if (object->kind !=
               TU_P_DICT) { /* an OrderedDict's attributes (_metadata) say nothing */
        return tui_pm_kind(m, "on", object);
    }
    m->depth--;
    return 0;
}
