/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of what the pickle machine makes of calls and containers, and of the writer: what is
 * read, written and read again is the same graph. Rows as Python would print them. */
#include "pickled.h"

static struct tu_buf bytes;

static struct tu_pickle *read_value(const char *value)
{
    struct tu_pickle *p = NULL;
    struct tu_err err = { 0 };
    size_t used;
    pickled(&bytes, value);
    if (tu_pickle_read(&p, bytes.data, bytes.n, NULL, &used, &err))
        printf("# %s: %s\n", value, err.msg);
    return p;
}

/* Calls ----------------------------------------------------------------------------------- */

static void pure(void)
{
    static const struct {
        const char *value;
        enum tu_pkind kind;
        size_t n;
    } rows[] = {
        { "collections:OrderedDict()", TU_P_DICT, 0 },
        { "collections:OrderedDict([])", TU_P_DICT, 0 },
        { "collections:OrderedDict([['a', 1], ('b', 2)])", TU_P_DICT, 4 },
        { "collections:OrderedDict([5])", TU_P_CALL, 2 },
        { "collections:OrderedDict([['a']])", TU_P_CALL, 2 },
        { "collections:OrderedDict([[[], 1]])", TU_P_CALL, 2 },
        { "collections:OrderedDict(5)", TU_P_CALL, 2 },
        { "collections:OrderedDict([], [])", TU_P_CALL, 2 },
        { "collections:OrderedDict*([])", TU_P_CALL, 2 },
        { "builtins:set([1, 2])", TU_P_SET, 2 },
        { "__builtin__:set([])", TU_P_SET, 0 },
        { "builtins:set([{}])", TU_P_CALL, 2 },
        { "builtins:set([set[1]])", TU_P_CALL, 2 },
        { "builtins:set()", TU_P_CALL, 2 },
        { "builtins:set(5)", TU_P_CALL, 2 },
        { "builtins:frozenset([(1, 2)])", TU_P_FROZENSET, 1 },
        { "builtins:frozenset([[]])", TU_P_CALL, 2 },
        { "builtins:list([1])", TU_P_CALL, 2 },
        { "_codecs:encode('a\\xc3\\xbf', 'latin1')", TU_P_BYTES, 2 },
        { "_codecs:encode('\\xc4\\x80', 'latin1')", TU_P_CALL, 2 },
        { "_codecs:encode('\\xff', 'latin1')", TU_P_CALL, 2 },
        { "_codecs:encode('a', 'utf-8')", TU_P_CALL, 2 },
        { "_codecs:encode(5, 'latin1')", TU_P_CALL, 2 },
        { "_codecs:encode('a', 5)", TU_P_CALL, 2 },
        { "_codecs:encode('a')", TU_P_CALL, 2 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_pickle *p = read_value(rows[i].value);
        if (!ok(p != NULL, "read: %s", rows[i].value))
            continue;
        eq_int(tu_pickle_root(p)->kind, rows[i].kind, "%s: kind", rows[i].value);
        eq_u64(tu_pickle_root(p)->n, rows[i].n, "%s: size", rows[i].value);
        tu_pickle_free(p);
    }
}

/* Attributes wherever an object keeps them. */
static void attributes(void)
{
    static const struct {
        const char *value;
        int k; /* 0: there is none */
    } rows[] = {
        { "{'k': 1}", 1 },
        { "{'k': 1, 'k': 2}", 2 },
        { "{5: 1, b'k': 3, 'kk': 4}", 0 },
        { "a:b()!{'k': 1}", 1 },
        { "a:b()!(None, {'k': 2})", 2 },
        { "a:b()!({'k': 1}, {'k': 2})", 1 },
        { "a:b()!(1, 2)", 0 },
        { "a:b()!5", 0 },
        { "a:b()+{'k': 3}!5", 3 },
        { "a:b()+{'k': 3}", 3 },
        { "a:b()!{'j': 1}+{'k': 3}", 3 },
        { "a:b()+[1]", 0 },
        { "a:b()", 0 },
        { "[1]", 0 },
        { "'k'", 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_pickle *p = read_value(rows[i].value);
        if (!ok(p != NULL, "read: %s", rows[i].value))
            continue;
        const struct tu_pnode *k = tu_pnode_get(tu_pickle_root(p), "k");
        ok(rows[i].k ? k && k->integer == rows[i].k : !k, "%s: k", rows[i].value);
        eq_u64(tu_pnode_number(tu_pickle_root(p)), SIZE_MAX, "%s: no tensor", rows[i].value);
        tu_pickle_free(p);
    }
    ok(!tu_pnode_get(NULL, "k") && tu_pnode_number(NULL) == SIZE_MAX, "nor has nothing");
}

static void opcodes(void)
{
    static const struct {
        const char *data;
        size_t n;
        int code;
        const char *words;
    } rows[] = {
#define ROW(text, code, words) { text, sizeof text - 1, code, words }
        ROW("\x80\2c\xff\na\n.", TU_EFORMAT, "GLOBAL: no name"),
        ROW("\x80\2ca\n\xff\n.", TU_EFORMAT, "GLOBAL: no name"),
        ROW("\x80\2ca\nb c\n.", TU_EFORMAT, "GLOBAL: no name"),
        ROW("\x80\4\x93.", TU_EFORMAT, "STACK_GLOBAL: stack underflow"),
        ROW("\x80\4\x8c\1aK\1\x93.", TU_EFORMAT, "STACK_GLOBAL of a int"),
        ROW("\x80\4\x92.", TU_EFORMAT, "NEWOBJ_EX: stack underflow"),
        ROW("\x80\4" "ca\nb\n)K\1\x92.", TU_EFORMAT, "NEWOBJ_EX with keywords that are a int"),
        ROW("\x80\4" "ca\nb\nK\1}\x92.", TU_EFORMAT, "NEWOBJ_EX with arguments that are a int"),
        ROW("\x80\5\x96\3\0\0\0\0\0\0\0ab", TU_ETRUNC, "BYTEARRAY8: the pickle ends"),
        ROW("\x80\2Nb.", TU_EFORMAT, "BUILD: stack underflow"),
        ROW("\x80\2" "0.", TU_EFORMAT, "POP: stack underflow"),
        ROW("\x80\2" "1.", TU_EFORMAT, "POP_MARK: no mark"),
        ROW("\x80\2" "2.", TU_EFORMAT, "DUP: stack underflow"),
        ROW("\x80\2t.", TU_EFORMAT, "TUPLE: no mark"),
        ROW("\x80\2N\x87.", TU_EFORMAT, "TUPLE3: stack underflow"),
        ROW("\x80\2Q.", TU_EFORMAT, "BINPERSID: stack underflow"),
        ROW("\x80\4\x91.", TU_EFORMAT, "FROZENSET: no mark"),
        ROW("\x80\4(]\x91.", TU_EFORMAT, "FROZENSET uses as a key a list"),
        ROW("\x80\4" "ca\nb\n)R(N\x90.", TU_EFORMAT, "ADDITEMS on a object"),
        ROW("\x80\2(N.", TU_EFORMAT, "STOP: values are left"),
        ROW("\x80\2Nq\0h\5.", TU_EFORMAT, "BINGET: nothing was stored"),
        ROW("\x80\2q\0.", TU_EFORMAT, "BINPUT: stack underflow"),
        ROW("\x80\4\x94.", TU_EFORMAT, "MEMOIZE: stack underflow"),
        ROW("\x80\2Nr\x0f\0\0\0.", TU_ELIMIT, "15 is the memo index, at most 9"),
        ROW("\x80\2N(0.", 0, ""),
        ROW("\x80\2N(NN1.", 0, ""),
        ROW("\x80\2NN0.", 0, ""),
        ROW("\x80\2N(N00.", 0, ""),
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_pickle *p = NULL;
        struct tu_err err = { 0 };
        size_t used;
        char *copy = malloc(rows[i].n); /* so that a read past the end is seen */
        memcpy(copy, rows[i].data, rows[i].n);
        eq_int(tu_pickle_read(&p, copy, rows[i].n, NULL, &used, &err), rows[i].code, "row %zu: %s", i,
               rows[i].words);
        if (rows[i].code)
            ok(strstr(err.msg, rows[i].words), "says: %s", err.msg);
        else
            eq_int(tu_pickle_root(p)->kind, TU_P_NONE, "None is left");
        tu_pickle_free(p);
        p = NULL;
        eq_int(tu_pickle_read(&p, copy, rows[i].n, NULL, &used, NULL), rows[i].code, "without an err");
        tu_pickle_free(p);
        free(copy);
    }
    /* bytes of Python 2 */
    struct tu_pickle *p = NULL;
    size_t used;
    ok(!tu_pickle_read(&p, "\x80\2U\1a.", 6, NULL, &used, NULL) && tu_pickle_root(p)->kind == TU_P_TEXT,
       "a str that is UTF-8 is text");
    tu_pickle_free(p);
    ok(!tu_pickle_read(&p, "\x80\2U\1\xff.", 6, NULL, &used, NULL) &&
           tu_pickle_root(p)->kind == TU_P_BYTES, "another is bytes");
    tu_pickle_free(p);
    ok(!tu_pickle_read(&p, "\x80\5\x96\3\0\0\0\0\0\0\0abc.", 15, NULL, &used, NULL) &&
           !strcmp(tu_pickle_root(p)->item[TU_P_CALLABLE]->text, "builtins bytearray") &&
           !strcmp(tu_pickle_root(p)->item[TU_P_ARGS]->item[0]->text, "abc"),
       "a bytearray is a call with bytes");
    tu_pickle_free(p);
    ok(!tu_pickle_read(&p, "\x80\4" "ca\nb\n)}\x8c\1kK\5s\x92.", 17, NULL, &used, NULL) &&
           tu_pickle_root(p)->item[TU_P_KEYWORDS]->item[1]->integer == 5, "keywords of NEWOBJ_EX");
    struct tu_err err = { 0 };
    tu_buf_reset(&bytes);
    eq_int(tu_pickle_write(&bytes, tu_pickle_root(p), NULL, 0, &err), TU_EUNSUP, "which protocol 2 lacks");
    ok(strstr(err.msg, "'a b' is made with keyword arguments"), "says: %s", err.msg);
    tu_pickle_free(p);
    char name[1100] = "\x80\2c";
    memset(name + 3, 'm', 1000);
    memcpy(name + 1003, "\nn\n.", 4);
    eq_int(tu_pickle_read(&p, name, 1007, NULL, &used, &err), TU_ELIMIT, "a name of 1001 bytes");
    ok(strstr(err.msg, "1001 bytes of one name, at most 1000"), "says: %s", err.msg);
}

/* Writing --------------------------------------------------------------------------------- */

static bool same(const struct tu_pnode *a, const struct tu_pnode *b)
{
    if (!a || !b)
        return a == b;
    if (a->kind != b->kind || a->n != b->n || a->integer != b->integer ||
        memcmp(&a->real, &b->real, sizeof a->real) || (!a->text) != (!b->text))
        return false;
    if (a->text && !a->item)
        return a->kind == TU_P_DICT ? !strcmp(a->text, b->text) : !memcmp(a->text, b->text, a->n);
    for (size_t i = 0; i < a->n; i++)
        if (!same(a->item[i], b->item[i]))
            return false;
    return true;
}

static void round_trip(const char *value)
{
    struct tu_err err = { 0 };
    struct tu_buf one = { 0 }, two = { 0 };
    struct tu_pickle *p = read_value(value), *q = NULL;
    size_t used;
    char shown[88];
    tu_text_short(value, strlen(value), shown);
    if (!ok(p && !tu_pickle_write(&one, tu_pickle_root(p), NULL, 0, &err), "%s: written %s", shown, err.msg))
        return;
    ok(!tu_pickle_read(&q, one.data, one.n, NULL, &used, &err) && used == one.n, "%s: read again %s", shown,
       err.msg);
    ok(same(tu_pickle_root(p), tu_pickle_root(q)), "%s: the same", shown);
    ok(!tu_pickle_write(&two, tu_pickle_root(q), NULL, 0, &err) && two.n == one.n &&
           !memcmp(one.data, two.data, one.n), "%s: and the same bytes", shown);
    tu_buf_release(&one);
    tu_buf_release(&two);
    tu_pickle_free(q);
    tu_pickle_free(p);
}

static void round_trips(void)
{
    static const char *const rows[] = {
        "True", "False", "-129", "65536", "-2147483649", "1.5", "()", "(1,)", "(1, 2, 3, 4)", "b''", "b'\\x00\\xff'",
        "set[]", "set[1]", "frozenset['a', 'b']", "@('a', 1)", "a:b()!{'k': 1}", "a:b*(1)!5",
        "a:b(1)+[1]+{'k': 2}!(None, {})", "a:b()+[1, 2]", "[^]",
        "(('a', 1), ^)",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i], "[^]"))
            round_trip(rows[i]);
    /* more values than the short forms of the memo hold, more globals than are shared */
    struct tu_buf b = { 0 };
    pickled_put(&b, "[", 1);
    for (int i = 0; i < 700; i++)
        if (tu_buf_printf(&b, NULL, "'t%d', [%d], m%d:n, ", i, i, i))
            abort();
    if (tu_buf_text(&b, "('x', ^), m0:n, m699:n]", NULL))
        abort();
    round_trip(b.data);
    tu_buf_release(&b);
    /* an integer of 300 bytes */
    unsigned char big[310] = "\x80\2\x8b\x2c\1\0\0";
    for (int i = 0; i < 300; i++)
        big[7 + i] = (unsigned char)(i * 7 + 1);
    big[307] = '.';
    struct tu_pickle *p = NULL;
    size_t used;
    tu_buf_reset(&bytes);
    ok(!tu_pickle_read(&p, big, 308, NULL, &used, NULL) &&
           !tu_pickle_write(&bytes, tu_pickle_root(p), NULL, 0, NULL) && bytes.n == 308 &&
           !memcmp(bytes.data, big, 308), "an integer of 300 bytes, digit by digit");
    tu_pickle_free(p);
}

static void refused_writes(void)
{
    struct tu_arena *a = tu_arena_new(NULL);
    struct tu_err err = { 0 };
    struct tu_tensor deep = fix_tensor("t", TU_U8, 0, NULL);
    struct tu_tensor odd = fix_tensor("t", TU_F4_E2M1, 1, (uint64_t[]){ 3 });
    struct tu_tensor none = fix_tensor("t", TU_F4_E2M1, 0, NULL);
    struct tu_pnode *leaf = tu_pnode_tensor(a, 0, NULL), *minus = tu_pnode_int(a, -1, NULL), *list;
    minus->kind = TU_P_TENSOR;
    deep.rank = 65;
    tu_buf_reset(&bytes);
    eq_int(tu_pickle_write(&bytes, leaf, &deep, 1, &err), TU_EDTYPE, "65 dimensions: %s", err.msg);
    eq_int(tu_pickle_write(&bytes, leaf, &odd, 1, &err), TU_EDTYPE, "an odd number of halves: %s", err.msg);
    eq_int(tu_pickle_write(&bytes, leaf, &none, 1, &err), TU_EDTYPE, "half a byte: %s", err.msg);
    eq_int(tu_pickle_write(&bytes, minus, &odd, 1, &err), TU_EUSAGE, "tensor -1: %s", err.msg);
    eq_int(tu_pickle_write(&bytes, tu_pnode_global(a, "name", NULL), NULL, 0, &err), TU_EUSAGE,
           "a global without a module: %s", err.msg);
    list = tu_pnode_new(a, TU_P_LIST, 0, NULL);
    for (int i = 0; i < 200000; i++) {
        struct tu_pnode *outer = tu_pnode_new(a, TU_P_LIST, 1, NULL);
        outer->item[0] = list;
        list = outer;
    }
    eq_int(tu_pickle_write(&bytes, list, NULL, 0, &err), TU_ELIMIT, "depth: %s", err.msg);
    tu_arena_free(a);
}

static int all_of(struct tu_err *err)
{
    static const char value[] =
        "[{'a': (1, 2.5, None, True)}, set[1], frozenset[2], b'\\xff', a:b(1)+[2]+{'k': 3}!{'s': 4}, @'p', "
        "collections:OrderedDict([['a', 1]]), builtins:set([1]), builtins:frozenset([2]), "
        "_codecs:encode('\\xc3\\xbf', 'latin1'), a:b*(), ('x', ^)]";
    struct tu_pickle *p = NULL;
    struct tu_buf out = { 0 };
    size_t used;
    int code = tu_pickle_read(&p, bytes.data, bytes.n, NULL, &used, err);
    if (!bytes.n)
        pickled(&bytes, value);
    if (!code)
        code = tu_pickle_write(&out, tu_pickle_root(p), NULL, 0, err);
    tu_pickle_free(p);
    tu_buf_release(&out);
    static const char odd[] = "\x80\5\x96\3\0\0\0\0\0\0\0abcca\nb\n)}\x92U\1\xff\x87.";
    if (!code)
        code = tu_pickle_read(&p, odd, sizeof odd - 1, NULL, &used, err);
    if (!code)
        tu_pickle_free(p);
    return code;
}

int main(void)
{
    pure();
    attributes();
    opcodes();
    round_trips();
    refused_writes();
    tu_buf_reset(&bytes);
    (void)!all_of(NULL); /* makes the bytes */
    fix_inject(all_of, true, "calls and containers");
    tu_buf_release(&bytes);
    return tap_done();
}
