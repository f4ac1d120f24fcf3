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
#include "pickle_machine.h"

#define DEFAULT_BYTES (UINT64_C(1) << 30)
#define DEFAULT_NODES (UINT64_C(64) << 20)
#define DEFAULT_TEXT (UINT64_C(256) << 20)
#define DEFAULT_MEMO (UINT64_C(64) << 20)
#define DEFAULT_DIGITS 1024

static const struct tui_pop ops[256] = {
    [0x28] = {"MARK", tui_pop_mark, 0, 0},
    [0x29] = {"EMPTY_TUPLE", tui_pop_constant, 0, TU_P_TUPLE},
    [0x2e] = {"STOP", tui_pop_stop, 0, 0},
    [0x30] = {"POP", tui_pop_pop, 0, 0},
    [0x31] = {"POP_MARK", tui_pop_pop_mark, 0, 0},
    [0x32] = {"DUP", tui_pop_dup, 0, 0},
    [0x42] = {"BINBYTES", tui_pop_text, 4, TU_P_BYTES},
    [0x43] = {"SHORT_BINBYTES", tui_pop_text, 1, TU_P_BYTES},
    [0x46] = {"FLOAT", NULL, 0, 0},
    [0x47] = {"BINFLOAT", tui_pop_binfloat, 0, 0},
    [0x49] = {"INT", NULL, 0, 0},
    [0x4a] = {"BININT", tui_pop_int, 4, 0},
    [0x4b] = {"BININT1", tui_pop_int, 1, 0},
    [0x4c] = {"LONG", NULL, 0, 0},
    [0x4d] = {"BININT2", tui_pop_int, 2, 0},
    [0x4e] = {"NONE", tui_pop_constant, 0, TU_P_NONE},
    [0x50] = {"PERSID", NULL, 0, 0},
    [0x51] = {"BINPERSID", tui_pop_gather, 1, TU_P_PERSID},
    [0x52] = {"REDUCE", tui_pop_call, false, 0},
    [0x53] = {"STRING", NULL, 0, 0},
    [0x54] = {"BINSTRING", tui_pop_string, 4, 0},
    [0x55] = {"SHORT_BINSTRING", tui_pop_string, 1, 0},
    [0x56] = {"UNICODE", NULL, 0, 0},
    [0x58] = {"BINUNICODE", tui_pop_text, 4, TU_P_TEXT},
    [0x5d] = {"EMPTY_LIST", tui_pop_constant, 0, TU_P_LIST},
    [0x61] = {"APPEND", tui_pop_set_one, 1, TU_P_LIST},
    [0x62] = {"BUILD", tui_pop_build, 0, 0},
    [0x63] = {"GLOBAL", tui_pop_global, 0, 0},
    [0x64] = {"DICT", NULL, 0, 0},
    [0x65] = {"APPENDS", tui_pop_set_many, 0, TU_P_LIST},
    [0x67] = {"GET", NULL, 0, 0},
    [0x68] = {"BINGET", tui_pop_get, 1, 0},
    [0x69] = {"INST", NULL, 0, 0},
    [0x6a] = {"LONG_BINGET", tui_pop_get, 4, 0},
    [0x6c] = {"LIST", NULL, 0, 0},
    [0x6f] = {"OBJ", NULL, 0, 0},
    [0x70] = {"PUT", NULL, 0, 0},
    [0x71] = {"BINPUT", tui_pop_put, 1, 0},
    [0x72] = {"LONG_BINPUT", tui_pop_put, 4, 0},
    [0x73] = {"SETITEM", tui_pop_set_one, 2, TU_P_DICT},
    [0x74] = {"TUPLE", tui_pop_tuple, 0, 0},
    [0x75] = {"SETITEMS", tui_pop_set_many, 0, TU_P_DICT},
    [0x7d] = {"EMPTY_DICT", tui_pop_constant, 0, TU_P_DICT},
    [0x80] = {"PROTO", tui_pop_proto, 0, 0},
    [0x81] = {"NEWOBJ", tui_pop_call, true, 0},
    [0x82] = {"EXT1", NULL, 0, 0},
    [0x83] = {"EXT2", NULL, 0, 0},
    [0x84] = {"EXT4", NULL, 0, 0},
    [0x85] = {"TUPLE1", tui_pop_gather, 1, TU_P_TUPLE},
    [0x86] = {"TUPLE2", tui_pop_gather, 2, TU_P_TUPLE},
    [0x87] = {"TUPLE3", tui_pop_gather, 3, TU_P_TUPLE},
    [0x88] = {"NEWTRUE", tui_pop_constant, true, TU_P_BOOL},
    [0x89] = {"NEWFALSE", tui_pop_constant, false, TU_P_BOOL},
    [0x8a] = {"LONG1", tui_pop_long, 1, 0},
    [0x8b] = {"LONG4", tui_pop_long, 4, 0},
    [0x8c] = {"SHORT_BINUNICODE", tui_pop_text, 1, TU_P_TEXT},
    [0x8d] = {"BINUNICODE8", tui_pop_text, 8, TU_P_TEXT},
    [0x8e] = {"BINBYTES8", tui_pop_text, 8, TU_P_BYTES},
    [0x8f] = {"EMPTY_SET", tui_pop_constant, 0, TU_P_SET},
    [0x90] = {"ADDITEMS", tui_pop_set_many, 0, TU_P_SET},
    [0x91] = {"FROZENSET", tui_pop_frozenset, 0, 0},
    [0x92] = {"NEWOBJ_EX", tui_pop_newobj_ex, 0, 0},
    [0x93] = {"STACK_GLOBAL", tui_pop_stack_global, 0, 0},
    [0x94] = {"MEMOIZE", tui_pop_memoize, 0, 0},
    [0x95] = {"FRAME", tui_pop_frame, 0, 0},
    [0x96] = {"BYTEARRAY8", tui_pop_bytearray8, 8, 0},
    [0x97] = {"NEXT_BUFFER", NULL, 0, 0},
    [0x98] = {"READONLY_BUFFER", NULL, 0, 0},
};

const char *tui_pop_name(unsigned char op)
{
    return ops[op].name ? ops[op].name : "unknown opcode";
}

static int run(struct tui_pm *m)
{
    int rc = 0;
    while (rc == 0 && !m->stop) {
        if (m->at == m->n)
            return tu_fail_at(m->err, TU_ETRUNC, m->at,
                              "pickle: ends at byte %zu without STOP", m->at);
        m->op = m->at;
        const struct tui_pop *op = &ops[m->data[m->at++]];
        if (op->run)
            rc = op->run(m, op);
        else if (op->name)
            rc = tui_pm_fail(m, TU_EUNSUP, "this opcode is refused");
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
    struct tui_pm m = {
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
