/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_read.c: a pickle machine that runs nothing.
 *
 * It builds a graph of nodes: a GLOBAL is a name, a REDUCE is "this called with that".
 * Nothing is imported or called, so a class that is unknown here, or hostile, is only
 * data. Memory is bounded by the input: an opcode makes at most a few nodes and moves
 * pointers that are on the stack.
 *
 * Source: the opcodes of Python's pickletools; protocols 2 to 5 without the text opcodes
 * of protocol 0. */
#include "pickle.h"

#define DEFAULT_BYTES (UINT64_C(1) << 30)
#define DEFAULT_NODES (UINT64_C(64) << 20)
#define DEFAULT_TEXT (UINT64_C(256) << 20)
#define DEFAULT_MEMO (UINT64_C(64) << 20)
#define DEFAULT_DIGITS 1024
#define NAME_MAX 1000 /* bytes of a global */

struct tu_pickle {
    struct tu_arena *arena;
    struct tu_pnode *root;
    struct tu_pglobal *global;
    size_t globals, cap;
    uint64_t nodes;
};

struct machine {
    struct tu_pickle *p;
    const unsigned char *data;
    size_t n, at, op; /* op: offset of the opcode at hand */
    struct tu_pickle_limits max;
    uint64_t nodes;
    struct tu_pnode **stack;
    size_t depth, stack_cap;
    size_t *mark; /* heights of the stack */
    size_t marks, mark_cap;
    struct tu_pnode **memo; /* [memo_cap], NULL where unused */
    size_t memo_cap, memo_used;
    bool stop;
    struct tu_err *err;
};

static const char *const kind_names[] = {
    [TU_P_NONE] = "None",     [TU_P_BOOL] = "bool",   [TU_P_INT] = "int",
    [TU_P_BIGINT] = "int",    [TU_P_REAL] = "float",  [TU_P_TEXT] = "str",
    [TU_P_BYTES] = "bytes",   [TU_P_TUPLE] = "tuple", [TU_P_LIST] = "list",
    [TU_P_DICT] = "dict",     [TU_P_SET] = "set",     [TU_P_FROZENSET] = "frozenset",
    [TU_P_GLOBAL] = "global", [TU_P_CALL] = "object", [TU_P_PERSID] = "persistent id",
    [TU_P_TENSOR] = "tensor",
};

/* A row of the table of opcodes. One without a function is refused. */
struct op {
    const char *name;
    int (*run)(struct machine *m, const struct op *op);
    unsigned n; /* width of its number, count of its values, or the value itself */
    enum tu_pkind kind; /* of what it makes or fills */
};

static const char *op_name(unsigned char op);

static int fail(struct machine *m, int code, const char *what)
{
    unsigned char op = m->data[m->op];
    return tu_fail_at(m->err, code, m->op, "pickle: byte %zu: %s: %s", m->op, op_name(op),
                      what);
}

static int fail_limit(struct machine *m, const char *what, uint64_t found, uint64_t max)
{
    return tu_fail_at(m->err, TU_ELIMIT, m->op,
                      "pickle: byte %zu: %s: %llu %s, at most %llu", m->op,
                      op_name(m->data[m->op]), (unsigned long long)found, what,
                      (unsigned long long)max);
}

static int fail_kind(struct machine *m, const char *what, const struct tu_pnode *node)
{
    return tu_fail_at(m->err, TU_EFORMAT, m->op, "pickle: byte %zu: %s %s a %s", m->op,
                      op_name(m->data[m->op]), what, kind_names[node->kind]);
}

/* Input, stack, memo ----------------------------------------------------------------- */

static int take(struct machine *m, size_t n, const unsigned char **p)
{
    *p = NULL;
    if (n > m->n - m->at)
        return fail(m, TU_ETRUNC, "the pickle ends inside it");
    *p = m->data + m->at;
    m->at += n;
    return 0;
}

/* A little-endian unsigned number of `width` bytes. */
static int take_number(struct machine *m, unsigned width, uint64_t *v)
{
    const unsigned char *p;
    int rc = take(m, width, &p);
    *v = 0;
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < width; i++)
        *v |= (uint64_t)p[i] << (8 * i);
    return 0;
}

static int push(struct machine *m, struct tu_pnode *node)
{
    int rc = TU_GROW(&m->stack, &m->stack_cap, m->depth, m->err);
    if (rc == 0)
        m->stack[m->depth++] = node;
    return rc;
}

/* The n values on top, which must lie above the last mark. */
static int top(struct machine *m, size_t n, struct tu_pnode ***values)
{
    size_t floor = m->marks ? m->mark[m->marks - 1] : 0;
    *values = NULL;
    if (m->depth - floor < n)
        return fail(m, TU_EFORMAT, "stack underflow");
    *values = m->stack + m->depth - n;
    return 0;
}

/* Remove the last mark; its values are values[0 … n-1], still on the stack. */
static int pop_mark(struct machine *m, struct tu_pnode ***values, size_t *n)
{
    *values = NULL;
    *n = 0;
    if (!m->marks)
        return fail(m, TU_EFORMAT, "no mark on the stack");
    size_t height = m->mark[--m->marks];
    *values = m->stack + height;
    *n = m->depth - height;
    return 0;
}

static int charge(struct machine *m, size_t values)
{
    m->nodes += values;
    return m->nodes > m->max.nodes ? fail_limit(m, "values", m->nodes, m->max.nodes) : 0;
}

static struct tu_pnode *node_new(struct machine *m, enum tu_pkind kind, size_t n)
{
    if (charge(m, 1) < 0)
        return NULL;
    struct tu_pnode *node = tu_pnode_new(m->p->arena, kind, n, m->err);
    if (node)
        node->offset = m->op;
    else if (m->err)
        m->err->code = TU_ENOMEM;
    return node;
}

static int failed(struct machine *m)
{
    return m->err->code;
}

static int push_new(struct machine *m, enum tu_pkind kind, int64_t integer, double real)
{
    struct tu_pnode *node = node_new(m, kind, 0);
    if (!node)
        return failed(m);
    node->integer = integer;
    node->real = real;
    return push(m, node);
}

static int memoize(struct machine *m, uint64_t index)
{
    struct tu_pnode **value;
    int rc = top(m, 1, &value);
    if (rc < 0)
        return rc;
    if (index >= m->max.memo ||
        index >= m->n) /* each entry took at least a byte of input */
        return fail_limit(m, "is the memo index", index, tu_min(m->max.memo, m->n));
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

/* Opcodes: constants and texts ------------------------------------------------------- */

static int op_proto(struct machine *m, const struct op *op)
{
    (void)op;
    const unsigned char *p;
    int rc = take(m, 1, &p);
    if (rc == 0 && *p > 5)
        rc = tu_fail_at(m->err, TU_EVERSION, m->op, "pickle: protocol %u, at most 5", *p);
    return rc;
}

static int op_frame(struct machine *m, const struct op *op)
{
    (void)op;
    uint64_t length;
    return take_number(m, 8, &length); /* a hint for buffering */
}

static int op_stop(struct machine *m, const struct op *op)
{
    (void)op;
    struct tu_pnode **value;
    int rc = top(m, 1, &value);
    if (rc < 0)
        return rc;
    if (m->depth != 1 || m->marks)
        return fail(m, TU_EFORMAT, "values are left on the stack");
    m->p->root = *value;
    m->stop = true;
    return 0;
}

static int op_constant(struct machine *m, const struct op *op)
{
    return push_new(m, op->kind, op->n, 0);
}

static int op_int(struct machine *m, const struct op *op)
{
    uint64_t v;
    int rc = take_number(m, op->n, &v);
    return rc < 0 ? rc : push_new(m, TU_P_INT, op->n == 4 ? (int32_t)v : (int64_t)v, 0);
}

static int op_long(struct machine *m, const struct op *op)
{
    const unsigned char *p;
    uint64_t n;
    int rc = take_number(m, op->n, &n);
    if (rc == 0 && n > m->max.digits)
        rc = fail_limit(m, "bytes of one integer", n, m->max.digits);
    if (rc == 0)
        rc = take(m, (size_t)n, &p);
    if (rc < 0)
        return rc;
    while (n > 8 && p[n - 1] == (p[n - 2] & 0x80 ? 0xFF : 0)) /* superfluous sign bytes */
        n--;
    if (n > 8) {
        struct tu_pnode *node = node_new(m, TU_P_BIGINT, 0);
        rc = node ? tui_pickle_decimal(node, m->p->arena, p, (size_t)n, m->err)
                  : failed(m);
        return rc < 0 ? rc : push(m, node);
    }
    uint64_t v = n && p[n - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = (size_t)n; i-- > 0;)
        v = v << 8 | p[i];
    return push_new(m, TU_P_INT, (int64_t)v, 0);
}

static int op_binfloat(struct machine *m, const struct op *op)
{
    (void)op;
    const unsigned char *p;
    int rc = take(m, 8, &p);
    if (rc < 0)
        return rc;
    uint64_t bits = 0;
    double v;
    for (int i = 0; i < 8; i++) /* big-endian, alone among the opcodes */
        bits = bits << 8 | p[i];
    memcpy(&v, &bits, sizeof v);
    return push_new(m, TU_P_REAL, 0, v);
}

/* A text or bytes whose length is a number of `width` bytes. */
static struct tu_pnode *take_text(struct machine *m, unsigned width, enum tu_pkind kind)
{
    const unsigned char *p;
    uint64_t n;
    if (take_number(m, width, &n) < 0)
        return NULL;
    if (n > m->max.text) {
        fail_limit(m, "bytes of one string", n, m->max.text);
        return NULL;
    }
    if (take(m, (size_t)n, &p) < 0)
        return NULL;
    struct tu_pnode *node = node_new(m, kind, 0);
    if (!node)
        return NULL;
    node->text = tu_arena_text(m->p->arena, (const char *)p, (size_t)n, m->err);
    node->n = (size_t)n;
    return node->text ? node : NULL;
}

static int op_text(struct machine *m, const struct op *op)
{
    struct tu_pnode *node = take_text(m, op->n, op->kind);
    return node ? push(m, node) : failed(m);
}

/* A str of Python 2: text where it is UTF-8, as torch reads it. */
static int op_string(struct machine *m, const struct op *op)
{
    struct tu_pnode *node = take_text(m, op->n, TU_P_TEXT);
    if (!node)
        return failed(m);
    if (tu_utf8_check(node->text, node->n) != node->n)
        node->kind = TU_P_BYTES;
    return push(m, node);
}

/* Opcodes: containers ---------------------------------------------------------------- */

static int op_mark(struct machine *m, const struct op *op)
{
    (void)op;
    int rc = TU_GROW(&m->mark, &m->mark_cap, m->marks, m->err);
    if (rc == 0)
        m->mark[m->marks++] = m->depth;
    return rc;
}

static int op_pop(struct machine *m, const struct op *op)
{
    (void)op;
    struct tu_pnode **value;
    if (m->marks && m->mark[m->marks - 1] == m->depth) {
        m->marks--;
        return 0;
    }
    int rc = top(m, 1, &value);
    m->depth -= rc == 0;
    return rc;
}

static int op_pop_mark(struct machine *m, const struct op *op)
{
    (void)op;
    struct tu_pnode **values;
    size_t n;
    int rc = pop_mark(m, &values, &n);
    if (rc == 0)
        m->depth -= n;
    return rc;
}

static int op_dup(struct machine *m, const struct op *op)
{
    (void)op;
    struct tu_pnode **value;
    int rc = top(m, 1, &value);
    return rc < 0 ? rc : push(m, *value);
}

/* Replace the n values on top by a node that holds them. */
static int gather(struct machine *m, enum tu_pkind kind, struct tu_pnode **values,
                  size_t n)
{
    struct tu_pnode *node = node_new(m, kind, n);
    if (!node)
        return failed(m);
    if (n)
        memcpy(node->item, values, n * sizeof(struct tu_pnode *));
    m->depth -= n;
    return push(m, node);
}

static int op_tuple(struct machine *m, const struct op *op)
{
    (void)op;
    struct tu_pnode **values;
    size_t n;
    int rc = pop_mark(m, &values, &n);
    return rc < 0 ? rc : gather(m, TU_P_TUPLE, values, n);
}

/* A tuple or persistent id of the last values. */
static int op_gather(struct machine *m, const struct op *op)
{
    struct tu_pnode **values;
    int rc = top(m, op->n, &values);
    return rc < 0 ? rc : gather(m, op->kind, values, op->n);
}

static int hashable(struct machine *m, const struct tu_pnode *key)
{
    if (key->kind == TU_P_LIST || key->kind == TU_P_DICT || key->kind == TU_P_SET)
        return fail_kind(m, "uses as a key", key);
    return 0;
}

static int op_frozenset(struct machine *m, const struct op *op)
{
    (void)op;
    struct tu_pnode **values;
    size_t n;
    int rc = pop_mark(m, &values, &n);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = hashable(m, values[i]);
    return rc < 0 ? rc : gather(m, TU_P_FROZENSET, values, n);
}

/* Part `k` of a CALL, made when it is not there yet. */
static struct tu_pnode *call_part(struct machine *m, struct tu_pnode *call, size_t k,
                                  enum tu_pkind kind)
{
    struct tu_pnode *part = tui_pnode_item(call, k);
    if (part)
        return part;
    part = node_new(m, kind, 0);
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

/* Where values that are set, appended or added on `to` go. */
static struct tu_pnode *receiver(struct machine *m, struct tu_pnode *to,
                                 enum tu_pkind kind)
{
    if (to->kind == kind)
        return to;
    if (to->kind == TU_P_CALL && kind != TU_P_SET)
        return call_part(m, to, kind == TU_P_DICT ? TU_P_ITEMS : TU_P_APPENDED, kind);
    fail_kind(m, "on", to);
    return NULL;
}

/* Move the n values on top into the container below them. */
static int put_items(struct machine *m, struct tu_pnode **values, size_t n,
                     enum tu_pkind kind)
{
    int rc = 0;
    if (kind == TU_P_DICT && n % 2)
        return fail(m, TU_EFORMAT, "a key without a value");
    for (size_t i = 0; rc == 0 && kind != TU_P_LIST && i < n;
         i += kind == TU_P_DICT ? 2 : 1)
        rc = hashable(m, values[i]);
    if (rc < 0)
        return rc;
    struct tu_pnode *to = receiver(m, values[-1], kind);
    if (!to)
        return failed(m);
    rc = n ? tui_pnode_reserve(m->p->arena, to, n, m->err) : 0;
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        to->item[to->n++] = values[i];
    m->depth -= n;
    return 0;
}

static int op_set_one(struct machine *m, const struct op *op)
{
    struct tu_pnode **values;
    int rc = top(m, op->n + 1, &values);
    return rc < 0 ? rc : put_items(m, values + 1, op->n, op->kind);
}

static int op_set_many(struct machine *m, const struct op *op)
{
    struct tu_pnode **values, **below;
    size_t n;
    int rc = pop_mark(m, &values, &n);
    if (rc == 0)
        rc = top(m, n + 1, &below); /* the container lies under the mark */
    return rc < 0 ? rc : put_items(m, below + 1, n, op->kind);
}

/* Opcodes: memo ---------------------------------------------------------------------- */

static int op_put(struct machine *m, const struct op *op)
{
    uint64_t index;
    int rc = take_number(m, op->n, &index);
    return rc < 0 ? rc : memoize(m, index);
}

static int op_memoize(struct machine *m, const struct op *op)
{
    (void)op;
    return memoize(m, m->memo_used);
}

static int op_get(struct machine *m, const struct op *op)
{
    uint64_t index;
    int rc = take_number(m, op->n, &index);
    if (rc < 0)
        return rc;
    if (index >= m->memo_cap || !m->memo[index])
        return fail(m, TU_EFORMAT, "nothing was stored under this memo index");
    return push(m, m->memo[index]);
}

/* Opcodes: names and calls ----------------------------------------------------------- */

static int push_global(struct machine *m, const char *module, size_t module_n,
                       const char *name, size_t name_n)
{
    struct tu_pickle *p = m->p;
    if (!module_n || !name_n || tu_name_check(module, module_n) != module_n ||
        tu_name_check(name, name_n) != name_n || memchr(module, ' ', module_n) ||
        memchr(name, ' ', name_n))
        return fail(m, TU_EFORMAT, "no name of a class or function");
    if (module_n + name_n > NAME_MAX)
        return fail_limit(m, "bytes of one name", module_n + name_n, NAME_MAX);
    int rc = TU_GROW(&p->global, &p->cap, p->globals, m->err);
    struct tu_pnode *node = rc < 0 ? NULL : node_new(m, TU_P_GLOBAL, 0);
    if (!node)
        return failed(m);
    node->text = tu_arena_printf(p->arena, m->err, "%.*s %.*s", (int)module_n, module,
                                 (int)name_n, name);
    if (!node->text)
        return failed(m);
    node->n = module_n + name_n + 1;
    p->global[p->globals++] = (struct tu_pglobal){node->text, m->op,
                                                  tui_pickle_known(node->text)};
    return push(m, node);
}

static int take_line(struct machine *m, const char **s, size_t *n)
{
    *s = NULL;
    *n = 0;
    const unsigned char *p = m->data + m->at, *end = memchr(p, '\n', m->n - m->at);
    if (!end)
        return fail(m, TU_ETRUNC, "the pickle ends inside it");
    *s = (const char *)p;
    *n = (size_t)(end - p);
    m->at += *n + 1;
    return 0;
}

static int op_global(struct machine *m, const struct op *op)
{
    (void)op;
    const char *module, *name;
    size_t module_n, name_n;
    int rc = take_line(m, &module, &module_n);
    if (rc == 0)
        rc = take_line(m, &name, &name_n);
    return rc < 0 ? rc : push_global(m, module, module_n, name, name_n);
}

static int op_stack_global(struct machine *m, const struct op *op)
{
    (void)op;
    struct tu_pnode **v;
    int rc = top(m, 2, &v);
    if (rc < 0)
        return rc;
    const struct tu_pnode *module = v[0], *name = v[1];
    if (module->kind != TU_P_TEXT || name->kind != TU_P_TEXT)
        return fail_kind(m, "of", module->kind == TU_P_TEXT ? name : module);
    m->depth -= 2;
    return push_global(m, module->text, module->n, name->text, name->n);
}

static int push_call(struct machine *m, struct tu_pnode *callable, struct tu_pnode *args,
                     bool newobj, size_t popped)
{
    struct tu_pnode *node = NULL;
    if (args->kind != TU_P_TUPLE)
        return fail_kind(m, "with arguments that are", args);
    if (!newobj && callable->kind == TU_P_GLOBAL &&
        tui_pickle_pure(&node, m->p->arena, callable->text, args, m->err) < 0)
        return failed(m);
    if (node) {
        int rc = charge(
            m, 1 + node->n); /* it is a copy, and a few bytes can ask for it again */
        if (rc < 0)
            return rc;
    } else {
        node = node_new(m, TU_P_CALL, 2);
        if (!node)
            return failed(m);
        node->item[TU_P_CALLABLE] = callable;
        node->item[TU_P_ARGS] = args;
        node->newobj = newobj;
    }
    node->offset = m->op;
    m->depth -= popped;
    return push(m, node);
}

/* REDUCE and NEWOBJ. */
static int op_call(struct machine *m, const struct op *op)
{
    struct tu_pnode **v;
    int rc = top(m, 2, &v);
    return rc < 0 ? rc : push_call(m, v[0], v[1], op->n, 2);
}

static int op_newobj_ex(struct machine *m, const struct op *op)
{
    (void)op;
    struct tu_pnode **v;
    int rc = top(m, 3, &v);
    if (rc < 0)
        return rc;
    struct tu_pnode *keywords = v[2];
    if (keywords->kind != TU_P_DICT)
        return fail_kind(m, "with keywords that are", keywords);
    rc = push_call(m, v[0], v[1], true, 3);
    if (rc < 0)
        return rc;
    struct tu_pnode *call = m->stack[m->depth - 1];
    if (!call_part(m, call, TU_P_KEYWORDS, TU_P_DICT))
        return failed(m);
    call->item[TU_P_KEYWORDS] = keywords;
    return 0;
}

/* A bytearray is what protocol 2 makes of it: builtins.bytearray(bytes). */
static int op_bytearray8(struct machine *m, const struct op *op)
{
    struct tu_pnode **v, *bytes = take_text(m, op->n, TU_P_BYTES);
    int rc = bytes ? push_global(m, "builtins", 8, "bytearray", 9) : failed(m);
    if (rc == 0)
        rc = gather(m, TU_P_TUPLE, &bytes, 0);
    if (rc < 0)
        return rc;
    rc = top(m, 2, &v);
    if (rc == 0)
        rc = tui_pnode_reserve(m->p->arena, v[1], 1, m->err);
    if (rc < 0)
        return rc;
    v[1]->item[v[1]->n++] = bytes;
    return push_call(m, v[0], v[1], false, 2);
}

static int op_build(struct machine *m, const struct op *op)
{
    (void)op;
    struct tu_pnode **v;
    int rc = top(m, 2, &v);
    if (rc < 0)
        return rc;
    struct tu_pnode *object = v[0], *state = v[1];
    if (object->kind == TU_P_CALL) {
        if (tui_pnode_item(object, TU_P_STATE))
            return fail(m, TU_EFORMAT, "a second state for one object");
        if (!call_part(m, object, TU_P_STATE, TU_P_NONE))
            return failed(m);
        object->item[TU_P_STATE] = state;
    } else if (object->kind !=
               TU_P_DICT) { /* an OrderedDict's attributes (_metadata) say nothing */
        return fail_kind(m, "on", object);
    }
    m->depth--;
    return 0;
}

/* The machine ------------------------------------------------------------------------ */

static const struct op ops[256] = {
    [0x28] = {"MARK", op_mark, 0, 0},
    [0x29] = {"EMPTY_TUPLE", op_constant, 0, TU_P_TUPLE},
    [0x2e] = {"STOP", op_stop, 0, 0},
    [0x30] = {"POP", op_pop, 0, 0},
    [0x31] = {"POP_MARK", op_pop_mark, 0, 0},
    [0x32] = {"DUP", op_dup, 0, 0},
    [0x42] = {"BINBYTES", op_text, 4, TU_P_BYTES},
    [0x43] = {"SHORT_BINBYTES", op_text, 1, TU_P_BYTES},
    [0x46] = {"FLOAT", NULL, 0, 0},
    [0x47] = {"BINFLOAT", op_binfloat, 0, 0},
    [0x49] = {"INT", NULL, 0, 0},
    [0x4a] = {"BININT", op_int, 4, 0},
    [0x4b] = {"BININT1", op_int, 1, 0},
    [0x4c] = {"LONG", NULL, 0, 0},
    [0x4d] = {"BININT2", op_int, 2, 0},
    [0x4e] = {"NONE", op_constant, 0, TU_P_NONE},
    [0x50] = {"PERSID", NULL, 0, 0},
    [0x51] = {"BINPERSID", op_gather, 1, TU_P_PERSID},
    [0x52] = {"REDUCE", op_call, false, 0},
    [0x53] = {"STRING", NULL, 0, 0},
    [0x54] = {"BINSTRING", op_string, 4, 0},
    [0x55] = {"SHORT_BINSTRING", op_string, 1, 0},
    [0x56] = {"UNICODE", NULL, 0, 0},
    [0x58] = {"BINUNICODE", op_text, 4, TU_P_TEXT},
    [0x5d] = {"EMPTY_LIST", op_constant, 0, TU_P_LIST},
    [0x61] = {"APPEND", op_set_one, 1, TU_P_LIST},
    [0x62] = {"BUILD", op_build, 0, 0},
    [0x63] = {"GLOBAL", op_global, 0, 0},
    [0x64] = {"DICT", NULL, 0, 0},
    [0x65] = {"APPENDS", op_set_many, 0, TU_P_LIST},
    [0x67] = {"GET", NULL, 0, 0},
    [0x68] = {"BINGET", op_get, 1, 0},
    [0x69] = {"INST", NULL, 0, 0},
    [0x6a] = {"LONG_BINGET", op_get, 4, 0},
    [0x6c] = {"LIST", NULL, 0, 0},
    [0x6f] = {"OBJ", NULL, 0, 0},
    [0x70] = {"PUT", NULL, 0, 0},
    [0x71] = {"BINPUT", op_put, 1, 0},
    [0x72] = {"LONG_BINPUT", op_put, 4, 0},
    [0x73] = {"SETITEM", op_set_one, 2, TU_P_DICT},
    [0x74] = {"TUPLE", op_tuple, 0, 0},
    [0x75] = {"SETITEMS", op_set_many, 0, TU_P_DICT},
    [0x7d] = {"EMPTY_DICT", op_constant, 0, TU_P_DICT},
    [0x80] = {"PROTO", op_proto, 0, 0},
    [0x81] = {"NEWOBJ", op_call, true, 0},
    [0x82] = {"EXT1", NULL, 0, 0},
    [0x83] = {"EXT2", NULL, 0, 0},
    [0x84] = {"EXT4", NULL, 0, 0},
    [0x85] = {"TUPLE1", op_gather, 1, TU_P_TUPLE},
    [0x86] = {"TUPLE2", op_gather, 2, TU_P_TUPLE},
    [0x87] = {"TUPLE3", op_gather, 3, TU_P_TUPLE},
    [0x88] = {"NEWTRUE", op_constant, true, TU_P_BOOL},
    [0x89] = {"NEWFALSE", op_constant, false, TU_P_BOOL},
    [0x8a] = {"LONG1", op_long, 1, 0},
    [0x8b] = {"LONG4", op_long, 4, 0},
    [0x8c] = {"SHORT_BINUNICODE", op_text, 1, TU_P_TEXT},
    [0x8d] = {"BINUNICODE8", op_text, 8, TU_P_TEXT},
    [0x8e] = {"BINBYTES8", op_text, 8, TU_P_BYTES},
    [0x8f] = {"EMPTY_SET", op_constant, 0, TU_P_SET},
    [0x90] = {"ADDITEMS", op_set_many, 0, TU_P_SET},
    [0x91] = {"FROZENSET", op_frozenset, 0, 0},
    [0x92] = {"NEWOBJ_EX", op_newobj_ex, 0, 0},
    [0x93] = {"STACK_GLOBAL", op_stack_global, 0, 0},
    [0x94] = {"MEMOIZE", op_memoize, 0, 0},
    [0x95] = {"FRAME", op_frame, 0, 0},
    [0x96] = {"BYTEARRAY8", op_bytearray8, 8, 0},
    [0x97] = {"NEXT_BUFFER", NULL, 0, 0},
    [0x98] = {"READONLY_BUFFER", NULL, 0, 0},
};

static const char *op_name(unsigned char op)
{
    return ops[op].name ? ops[op].name : "unknown opcode";
}

static int run(struct machine *m)
{
    int rc = 0;
    while (rc == 0 && !m->stop) {
        if (m->at == m->n)
            return tu_fail_at(m->err, TU_ETRUNC, m->at,
                              "pickle: ends at byte %zu without STOP", m->at);
        m->op = m->at;
        const struct op *op = &ops[m->data[m->at++]];
        if (op->run)
            rc = op->run(m, op);
        else if (op->name)
            rc = fail(m, TU_EUNSUP, "this opcode is refused");
        else
            rc = tu_fail_at(m->err, TU_EFORMAT, m->op,
                            "pickle: byte %zu: %#04x is no opcode", m->op,
                            m->data[m->op]);
    }
    return rc;
}

static uint64_t or_default(uint64_t v, uint64_t fallback)
{
    return v ? v : fallback;
}

int tu_pickle_read(struct tu_pickle **out, const void *data, size_t n,
                   const struct tu_pickle_limits *limits, size_t *used,
                   struct tu_err *err)
{
    static const struct tu_pickle_limits none;
    struct tu_err own;
    *out = NULL;
    if (!limits)
        limits = &none;
    struct machine m = {
        .data = data,
        .n = n,
        .err = err ? err : &own,
        .max = {or_default(limits->bytes, DEFAULT_BYTES),
                or_default(limits->nodes, DEFAULT_NODES),
                or_default(limits->text, DEFAULT_TEXT),
                or_default(limits->memo, DEFAULT_MEMO),
                or_default(limits->digits, DEFAULT_DIGITS)},
    };
    if (n > m.max.bytes)
        return tu_fail(err, TU_ELIMIT, "pickle: %zu bytes, at most %llu", n,
                       (unsigned long long)m.max.bytes);
    m.p = tu_calloc(1, sizeof *m.p, m.err);
    if (!m.p)
        return TU_ENOMEM;
    m.p->arena = tu_arena_new(m.err);
    int rc = m.p->arena ? TU_GROW(&m.stack, &m.stack_cap, 0, m.err) : TU_ENOMEM;
    if (rc == 0)
        rc = run(&m);
    tu_free(m.stack);
    tu_free(m.mark);
    tu_free(m.memo);
    if (rc < 0) {
        tu_pickle_free(m.p);
        return rc;
    }
    m.p->nodes = m.nodes;
    *used = m.at;
    *out = m.p;
    return 0;
}

void tu_pickle_free(struct tu_pickle *p)
{
    if (!p)
        return;
    tu_free(p->global);
    tu_arena_free(p->arena);
    tu_free(p);
}

struct tu_pnode *tu_pickle_root(const struct tu_pickle *p)
{
    return p->root;
}

struct tu_arena *tu_pickle_arena(struct tu_pickle *p)
{
    return p->arena;
}

size_t tu_pickle_globals(const struct tu_pickle *p, const struct tu_pglobal **list)
{
    *list = p->global;
    return p->globals;
}

uint64_t tui_pickle_nodes(const struct tu_pickle *p)
{
    return p->nodes;
}
