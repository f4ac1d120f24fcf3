/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the pickle machine and the pickle writer: bytes that Python and torch wrote, every
 * refusal, every limit. */
#include "fix.h"

/* Bytes of a hex text; spaces are skipped. *n is set. */
static unsigned char *unhex(const char *hex, size_t *n)
{
    unsigned char *out = malloc(strlen(hex) / 2 + 1);
    unsigned v;
    *n = 0;
    for (const char *p = hex; *p;) {
        if (*p == ' ') {
            p++;
            continue;
        }
        sscanf(p, "%2x", &v);
        out[(*n)++] = (unsigned char)v;
        p += 2;
    }
    return out;
}

static const char case2[] =
    "80027d7100580100000077710163746f7263682e5f7574696c730a5f72656275696c645f74656e736f725f76320a"
    "71022828580700000073746f72616765710363746f7263680a466c6f617453746f726167650a7104580100000030"
    "7105580300000063707571064b06747107514b004b024b038671084b034b018671098963636f6c6c656374696f6e"
    "730a4f726465726564446963740a710a2952710b74710c52710d732e";

/* What Python 3.11 pickled: {'args': Namespace of 22 attributes, 'iteration': 7, 's1': [1], 's2': the
 * same list, 'e': {}, 'l': []} by protocol 2 and 4. */
static const char many2[] =
    "80027d71002858040000006172677371016361726770617273650a4e616d6573706163650a7102298171037d710428580a0000006e756d5f6c6179657273"
    "71054b18580b00000068696464656e5f73697a6571064d001058020000006c727107473f23a92a30553261580300000062696771088a09000000000000000040"
    "58030000006e656771098a090000000000000000805805000000736d616c6c710a4a7fffffff58030000006d6964710b4a70110100580400000077696465710c"
    "8a060000000000015803000000796573710d8858020000006e6f710e4e5803000000736571710f5d7110284b014b024b03867111284b044b054b064b07747112"
    "65580400000074657874711358060000006e61c3af766571145804000000646174617115635f636f646563730a656e636f64650a7116580300000000c3bf7117"
    "58060000006c6174696e31711886711952711a5805000000656d707479711b635f5f6275696c74696e5f5f0a62797465730a711c2952711d58050000006e616d"
    "6573711e635f5f6275696c74696e5f5f0a7365740a711f5d7120580100000078712161857122527123580600000066726f7a656e7124635f5f6275696c74696e"
    "5f5f0a66726f7a656e7365740a71255d71264b016185712752712858020000006f64712963636f6c6c656374696f6e730a4f726465726564446963740a712a29"
    "52712b28580100000061712c4b01580100000062712d4b027558030000006f6e65712e682a2952712f682c4b01735803000000636e74713063636f6c6c656374"
    "696f6e730a436f756e7465720a71317d71322858010000006171334b0258010000006271344b017585713552713658020000006464713763636f6c6c65637469"
    "6f6e730a64656661756c74646963740a7138635f5f6275696c74696e5f5f0a6c6973740a713985713a52713b58010000006b713c5d713d4b0161735806000000"
    "6e6573746564713e68022981713f7d7140682c2973625803000000647570714168415801000000637142635f5f6275696c74696e5f5f0a636f6d706c65780a71"
    "43473ff000000000000047400000000000000086714452714575625809000000697465726174696f6e71464b075802000000733171475d71484b016158020000"
    "00733271496848580100000065714a7d714b58010000006c714c5d714d752e";
static const char many4[] =
    "80049528020000000000007d94288c0461726773948c086172677061727365948c094e616d6573706163659493942981947d94288c0a6e756d5f6c6179657273"
    "944b188c0b68696464656e5f73697a65944d00108c026c7294473f23a92a305532618c03626967948a090000000000000000408c036e6567948a090000000000"
    "000000808c05736d616c6c944a7fffffff8c036d6964944a701101008c0477696465948a060000000000018c0379657394888c026e6f944e8c03736571945d94"
    "284b014b024b038694284b044b054b064b077494658c0474657874948c066e61c3af7665948c046461746194430200ff948c05656d707479944300948c056e61"
    "6d6573948f94288c017894908c0666726f7a656e94284b0191948c026f64948c0b636f6c6c656374696f6e73948c0b4f72646572656444696374949394295294"
    "288c0161944b018c0162944b02758c036f6e6594682329529468254b01738c03636e749468218c07436f756e7465729493947d94288c0161944b028c0162944b"
    "0175859452948c0264649468218c0b64656661756c74646963749493948c086275696c74696e73948c046c697374949394859452948c016b945d944b0161738c"
    "066e65737465649468042981947d9468252973628c0364757094683e8c01639468348c07636f6d706c6578949394473ff0000000000000474000000000000000"
    "8694529475628c09697465726174696f6e944b078c027331945d944b01618c0273329468468c0165947d948c016c945d94752e";

static struct tu_pickle *read_hex(const char *hex, struct tu_err *err)
{
    size_t n, used;
    struct tu_pickle *p;
    unsigned char *data = unhex(hex, &n);
    int rc = tu_pickle_read(&p, data, n, NULL, &used, err);
    if (rc == 0 && used != n)
        printf("# used %zu of %zu\n", used, n);
    free(data);
    return p;
}

static void same_as(const char *hex, struct tu_buf *got, const char *what)
{
    size_t n;
    unsigned char *want = unhex(hex, &n);
    ok(got->n == n && !memcmp(got->data, want, n), "%s", what);
    for (size_t i = 0; i < n && i < got->n; i++) {
        if (want[i] != (unsigned char)got->data[i]) {
            printf("# differs at byte %zu: got %02x, expected %02x\n", i, (unsigned char)got->data[i],
                   want[i]);
            break;
        }
    }
    free(want);
    tu_buf_release(got);
}

static void worked_case(void)
{
    struct tu_err err;
    struct tu_pickle *p = read_hex(case2, &err);
    struct tu_pnode *w = tu_pnode_get(tu_pickle_root(p), "w");
    ok(w && w->kind == TU_P_CALL, "case 2: w is a call");
    eq_str(w->item[TU_P_CALLABLE]->text, "torch._utils _rebuild_tensor_v2", "case 2: of this");
    const struct tu_pnode *args = w->item[TU_P_ARGS], *storage = args->item[0];
    eq_u64(args->n, 6, "case 2: six arguments");
    eq_int(storage->kind, TU_P_PERSID, "case 2: a persistent id");
    eq_str(storage->item[0]->item[1]->text, "torch FloatStorage", "case 2: storage class");
    eq_int(storage->item[0]->item[4]->integer, 6, "case 2: numel");
    eq_str(args->item[5]->text, "collections OrderedDict", "case 2: hooks are a dict");
    const struct tu_pglobal *list;
    eq_u64(tu_pickle_globals(p, &list), 3, "case 2: three globals");
    ok(list[0].known && list[1].known && list[2].known, "case 2: all known");
    eq_u64(list[0].offset, 13, "case 2: offset of the first");
    tu_pickle_free(p);

    struct tu_arena *a = tu_arena_new(NULL);
    struct tu_tensor t = fix_tensor("w", TU_F32, 2, (uint64_t[]){ 2, 3 });
    struct tu_pnode *dict = tu_pnode_new(a, TU_P_DICT, 0, NULL);
    struct tu_buf out = { 0 };
    ok(!tu_pnode_set(a, dict, "w", tu_pnode_tensor(a, 0, NULL), NULL), "case 2: built");
    ok(!tu_pickle_write(&out, dict, &t, 1, &err), "case 2: written");
    same_as(case2, &out, "case 2: the bytes of torch");
    tu_arena_free(a);
}

static void objects(void)
{
    struct tu_err err;
    struct tu_buf out = { 0 };
    for (int i = 0; i < 2; i++) {
        struct tu_pickle *p = read_hex(i ? many4 : many2, &err);
        int v = i ? 4 : 2;
        if (!ok(p != NULL, "protocol %d: read", v)) {
            printf("# %s\n", err.msg);
            continue;
        }
        struct tu_pnode *root = tu_pickle_root(p), *args = tu_pnode_get(root, "args");
        eq_str(args->item[0]->text, "argparse Namespace", "protocol %d: args", v);
        ok(args->newobj, "protocol %d: args by NEWOBJ", v);
        eq_int(tu_pnode_get(args, "num_layers")->integer, 24, "protocol %d: num_layers", v);
        eq_int(tu_pnode_get(args, "hidden_size")->integer, 4096, "protocol %d: hidden_size", v);
        ok(tu_pnode_get(args, "lr")->real == 1.5e-4, "protocol %d: lr", v);
        eq_str(tu_pnode_get(args, "big")->text, "1180591620717411303424", "protocol %d: 2^70", v);
        eq_str(tu_pnode_get(args, "neg")->text, "-2361183241434822606848", "protocol %d: -2^71", v);
        eq_int(tu_pnode_get(args, "small")->integer, -129, "protocol %d: -129", v);
        eq_int(tu_pnode_get(args, "mid")->integer, 70000, "protocol %d: 70000", v);
        eq_int(tu_pnode_get(args, "wide")->integer, INT64_C(1) << 40, "protocol %d: 2^40", v);
        eq_int(tu_pnode_get(args, "no")->kind, TU_P_NONE, "protocol %d: None", v);
        const struct tu_pnode *data = tu_pnode_get(args, "data");
        ok(data->kind == TU_P_BYTES && data->n == 2 && !memcmp(data->text, "\0\xff", 2),
           "protocol %d: bytes", v);
        eq_int(tu_pnode_get(args, "names")->kind, TU_P_SET, "protocol %d: set", v);
        eq_int(tu_pnode_get(args, "frozen")->kind, TU_P_FROZENSET, "protocol %d: frozenset", v);
        eq_u64(tu_pnode_get(args, "od")->n, 4, "protocol %d: OrderedDict", v);
        ok(tu_pnode_get(tu_pnode_get(args, "dd"), "k"), "protocol %d: item of a defaultdict", v);
        eq_int(tu_pnode_get(tu_pnode_get(args, "nested"), "a")->kind, TU_P_TUPLE,
               "protocol %d: nested Namespace", v);
        ok(!tu_pnode_get(args, "absent"), "protocol %d: no such attribute", v);
        ok(tu_pnode_get(root, "s1") == tu_pnode_get(root, "s2"), "protocol %d: one list twice", v);
        if (i == 0) {
            ok(!tu_pickle_write(&out, root, NULL, 0, &err), "protocol 2: written again");
            same_as(many2, &out, "protocol 2: the bytes of Python");
        }
        tu_pickle_free(p);
    }
}

/* Batches of 1000: the last one of a list or dict keeps its mark, that of a subclass does not. */
static void batches(void)
{
    static const struct { enum tu_pkind kind; const char *class, *begin, *end; size_t n; } rows[] = {
        { TU_P_LIST, NULL, "80025d710028", "4e65284e652e", 1011 },
        { TU_P_DICT, NULL, "80027d7100284b004e4b014e", "4de7034e75284de8034e752e", 3758 },
        { TU_P_DICT, "collections OrderedDict",
          "800263636f6c6c656374696f6e730a4f726465726564446963740a7100295271012"
          "84b004e4b014e", "4de7034e754de8034e732e", 3785 },
    };
    for (size_t r = 0; r < 3; r++) {
        struct tu_arena *a = tu_arena_new(NULL);
        struct tu_pnode *seq = tu_pnode_new(a, rows[r].kind, 0, NULL);
        struct tu_buf out = { 0 };
        size_t n, m;
        seq->text = rows[r].class;
        bool built = true;
        for (int i = 0; i < 1001; i++)
            built = built && !tu_pnode_add(a, seq, tu_pnode_int(a, i, NULL),
                                           tu_pnode_new(a, TU_P_NONE, 0, NULL), NULL);
        ok(built && !tu_pickle_write(&out, seq, NULL, 0, NULL), "1001 items: written");
        unsigned char *begin = unhex(rows[r].begin, &n), *end = unhex(rows[r].end, &m);
        eq_u64(out.n, rows[r].n, "1001 items: size as Python's");
        ok(!memcmp(out.data, begin, n) && !memcmp(out.data + out.n - m, end, m),
           "1001 items: opcodes as Python's");
        free(begin);
        free(end);
        tu_buf_release(&out);
        tu_arena_free(a);
    }
}

/* Dtypes, ranks and tensors that occur twice, against the protocol that torch 2.15 writes. */
static void tensors(void)
{
    static const char twice[] = /* {'a': t, 'b': t} of f32 [], torch 1.13 */
        "80027d710028580100000061710163746f7263682e5f7574696c730a5f72656275696c645f74656e736f725f76"
        "320a71022828580700000073746f72616765710363746f7263680a466c6f617453746f726167650a7104580100"
        "0000307105580300000063707571064b01747107514b0029298963636f6c6c656374696f6e730a4f7264657265"
        "64446963740a71082952710974710a52710b580100000062710c680b752e";
    static const char f8[] = /* {'a': f8_e4m3fn [2, 3]}, torch 2.15 */
        "80027d7100580100000061710163746f7263682e5f7574696c730a5f72656275696c645f74656e736f725f7633"
        "0a71022828580700000073746f72616765710363746f7263682e73746f726167650a556e747970656453746f72"
        "6167650a7104580100000030710558030000006370757106" "4b06747107514b004b024b038671084b034b01867109"
        "8963636f6c6c656374696f6e730a4f726465726564446963740a710a2952710b63746f7263680a666c6f617438"
        "5f65346d33666e0a710c74710d52710e732e";
    struct tu_arena *a = tu_arena_new(NULL);
    struct tu_buf out = { 0 };
    struct tu_err err;
    struct tu_tensor t = fix_tensor("a", TU_F32, 0, NULL);
    struct tu_pnode *leaf = tu_pnode_tensor(a, 0, NULL), *d = tu_pnode_new(a, TU_P_DICT, 0, NULL);
    ok(!tu_pnode_set(a, d, "a", leaf, NULL) && !tu_pnode_set(a, d, "b", leaf, NULL), "built");
    ok(!tu_pickle_write(&out, d, &t, 1, &err), "one tensor, two names");
    same_as(twice, &out, "one tensor, two names: the bytes of torch");
    d = tu_pnode_new(a, TU_P_DICT, 0, NULL);
    t = fix_tensor("a", TU_F8_E4M3FN, 2, (uint64_t[]){ 2, 3 });
    ok(!tu_pnode_set(a, d, "a", leaf, NULL), "built");
    ok(!tu_pickle_write(&out, d, &t, 1, &err), "f8");
    same_as(f8, &out, "f8: the bytes of torch");

    eq_int(tu_pickle_write(&out, d, NULL, 0, &err), TU_EUSAGE, "a tensor that is not there");
    struct tu_tensor two[2] = { t, t };
    eq_int(tu_pickle_write(&out, d, two, 2, &err), TU_EUSAGE, "a tensor that is not in the object");
    t = fix_tensor("a", TU_Q4_0, 1, (uint64_t[]){ 32 });
    eq_int(tu_pickle_write(&out, d, &t, 1, &err), TU_EDTYPE, "a dtype that torch lacks");
    tu_buf_release(&out);
    tu_arena_free(a);
}

static void refused(const char *hex, int code, const char *words, const char *what)
{
    struct tu_err err = { 0 };
    size_t n, used;
    struct tu_pickle *p;
    unsigned char *data = unhex(hex, &n);
    int got = tu_pickle_read(&p, data, n, NULL, &used, &err);
    eq_str(tu_err_name(got), tu_err_name(code), "%s: code", what);
    if (!ok(got && strstr(err.msg, words), "%s: message", what))
        printf("# message: %s\n", err.msg);
    ok(!p, "%s: nothing is left", what);
    if (!got)
        tu_pickle_free(p);
    free(data);
}

static void refusals(void)
{
    static const struct { unsigned op; const char *name; } never[] = {
        { 0x69, "INST" }, { 0x6f, "OBJ" }, { 0x50, "PERSID" }, { 0x82, "EXT1" }, { 0x83, "EXT2" },
        { 0x84, "EXT4" }, { 0x97, "NEXT_BUFFER" }, { 0x98, "READONLY_BUFFER" }, { 0x49, "INT" },
        { 0x4c, "LONG" }, { 0x53, "STRING" }, { 0x56, "UNICODE" }, { 0x46, "FLOAT" },
        { 0x70, "PUT" }, { 0x67, "GET" }, { 0x64, "DICT" }, { 0x6c, "LIST" },
    };
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        char hex[32], words[64];
        snprintf(hex, sizeof hex, "8002 4e %02x", never[i].op);
        snprintf(words, sizeof words, "byte 3: %s", never[i].name);
        refused(hex, TU_EUNSUP, words, never[i].name);
    }
    refused("8002 ff 2e", TU_EFORMAT, "byte 2: 0xff is no opcode", "unknown opcode");
    refused("8006 4e2e", TU_EVERSION, "protocol 6", "protocol 6");
    refused("8002 52 2e", TU_EFORMAT, "byte 2: REDUCE: stack underflow", "underflow");
    refused("8002 4e28 73 2e", TU_EFORMAT, "SETITEM: stack underflow", "values under a mark");
    refused("8002 7d 65 2e", TU_EFORMAT, "APPENDS: no mark", "no mark");
    refused("8002 6807 2e", TU_EFORMAT, "BINGET: nothing was stored", "missing memo");
    refused("8002 6a ffffffff 2e", TU_EFORMAT, "LONG_BINGET: nothing", "missing wide memo");
    refused("8002 5d 4b01 4b02 73 2e", TU_EFORMAT, "SETITEM on a list", "SETITEM on a list");
    refused("8002 7d 4b01 61 2e", TU_EFORMAT, "APPEND on a dict", "APPEND on a dict");
    refused("8002 4b05 28 4b01 65 2e", TU_EFORMAT, "APPENDS on a int", "APPENDS on an int");
    refused("8002 7d 5d 4b02 73 2e", TU_EFORMAT, "SETITEM uses as a key a list", "list as key");
    refused("8002 7d 28 4b02 75 2e", TU_EFORMAT, "SETITEMS: a key without", "odd SETITEMS");
    refused("8004 8f 28 7d 90 2e", TU_EFORMAT, "ADDITEMS uses as a key a dict", "dict in a set");
    refused("8002 4e 4b01 52 2e", TU_EFORMAT, "REDUCE with arguments that are a int",
            "arguments that are no tuple");
    refused("8002 4e 4e 62 2e", TU_EFORMAT, "BUILD on a None", "BUILD on None");
    refused("8002 630a0a 2e", TU_EFORMAT, "GLOBAL: no name", "empty global");
    refused("8002 63 6120620a 630a 2e", TU_EFORMAT, "GLOBAL: no name", "module with a space");
    refused("8004 4b01 8c0161 93 2e", TU_EFORMAT, "STACK_GLOBAL of a int", "global of an int");
    refused("8002 4e4e 2e", TU_EFORMAT, "STOP: values are left", "two values at the end");
    refused("8002 2e", TU_EFORMAT, "STOP: stack underflow", "no value at the end");
    refused("8002 8b ffffffff 2e", TU_ELIMIT, "LONG4: 4294967295 bytes", "LONG4 of -1 bytes");
    refused("8002 63610a620a 2981 7d62 7d62 2e", TU_EFORMAT, "BUILD: a second state", "two states");

    size_t n, used, strange = 0;
    unsigned char *data = unhex(many2, &n);
    struct tu_pickle *p;
    struct tu_err err;
    for (size_t k = 0; k < n; k++) {
        unsigned char *cut = malloc(k + 1); /* so that a read past the end is seen */
        memcpy(cut, data, k);
        int rc = tu_pickle_read(&p, cut, k, NULL, &used, &err);
        strange += rc != TU_ETRUNC;
        if (!rc)
            tu_pickle_free(p);
        free(cut);
    }
    eq_u64(strange, 0, "cut at every byte: TU_ETRUNC");
    free(data);
}

static int limited(const char *hex, struct tu_pickle_limits max, struct tu_err *err)
{
    size_t n, used;
    struct tu_pickle *p;
    unsigned char *data = unhex(hex, &n);
    int rc = tu_pickle_read(&p, data, n, &max, &used, err);
    if (!rc)
        tu_pickle_free(p);
    free(data);
    return rc;
}

static void limits(void)
{
    struct tu_err err;
    static const struct { const char *hex, *words; struct tu_pickle_limits max; } rows[] = {
        { "80024e2e", "pickle: 4 bytes, at most 3", { .bytes = 3 } },
        { "80025d284e4e4e652e", "values, at most 3", { .nodes = 3 } },
        { "80025803000000616263 2e", "3 bytes of one string", { .text = 2 } },
        { "8002 58 ffffffff 61 2e", "4294967295 bytes of one string", { 0 } },
        { "8002 4e 7203000000 4e4e30302e", "3 is the memo index", { .memo = 3 } },
        { "8002 4e 72ffffff7f 2e", "is the memo index", { 0 } },
        { "8002 8a09 000000000000000001 2e", "9 bytes of one integer", { .digits = 8 } },
        { "8002 8b ffffff7f 00 2e", "bytes of one integer", { 0 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        eq_int(limited(rows[i].hex, rows[i].max, &err), TU_ELIMIT, "limit: %s", rows[i].words);
        if (!ok(strstr(err.msg, rows[i].words), "limit: %s: message", rows[i].words))
            printf("# message: %s\n", err.msg);
    }
    /* set(list) again and again: a few bytes each for a copy of the list */
    struct tu_buf b = { 0 };
    size_t used;
    struct tu_pickle *p;
    int rc = tu_buf_add(&b, "\x80\x02" "c__builtin__\nset\nq\0](", 23, NULL);
    for (int i = 0; i < 5000; i++)
        rc |= tu_buf_add(&b, "N", 1, NULL);
    rc |= tu_buf_add(&b, "e\x85q\1", 4, NULL);
    for (int i = 0; i < 20000; i++)
        rc |= tu_buf_add(&b, "h\0h\1R0", 6, NULL);
    rc |= tu_buf_add(&b, "00N.", 4, NULL);
    eq_int(rc, 0, "copies: made");
    eq_int(tu_pickle_read(&p, b.data, b.n, NULL, &used, &err), TU_ELIMIT, "copies are counted");
    tu_buf_release(&b);
}

/* What must not run is only a name in a list. */
static void hostile(void)
{
    static const char system[] = "8002 63706f7369780a73797374656d0a 5802000000 6964 85 52 2e";
    struct tu_err err;
    struct tu_pickle *p = read_hex(system, &err);
    const struct tu_pglobal *list;
    ok(p != NULL, "posix.system: read");
    eq_u64(tu_pickle_globals(p, &list), 1, "posix.system: one global");
    eq_str(list[0].name, "posix system", "posix.system: its name");
    ok(!list[0].known, "posix.system: not an honest one");
    eq_u64(list[0].offset, 2, "posix.system: where");
    eq_int(tu_pickle_root(p)->kind, TU_P_CALL, "posix.system: a call that was not made");
    tu_pickle_free(p);

    /* a list that holds itself, and a tuple that holds itself through a list */
    p = read_hex("8002 5d7100 6800 61 2e", &err);
    ok(p && tu_pickle_root(p)->item[0] == tu_pickle_root(p), "a cycle is read");
    struct tu_buf out = { 0 };
    ok(!tu_pickle_write(&out, tu_pickle_root(p), NULL, 0, &err), "and written");
    same_as("80025d71006800612e", &out, "as Python writes it");
    tu_pickle_free(p);
    struct tu_arena *a = tu_arena_new(NULL);
    struct tu_pnode *t = tu_pnode_new(a, TU_P_TUPLE, 1, NULL);
    t->item[0] = t;
    eq_int(tu_pickle_write(&out, t, NULL, 0, &err), TU_ELIMIT, "a tuple in itself is refused");
    tu_buf_release(&out);
    tu_arena_free(a);
}

static void numbers(void)
{
    static const struct { const char *hex, *text; } rows[] = {
        { "8002 8a00 2e", "0" }, { "8002 8a01ff 2e", "-1" }, { "8002 4a000000802e", "-2147483648" },
        { "8002 8a08 0000000000000080 2e", "-9223372036854775808" },
        { "8002 8a09 ffffffffffffff7f00 2e", "9223372036854775807" },
        { "8002 8a09 000000000000008000 2e", "9223372036854775808" },
        { "8002 8a09 ffffffffffffff7fff 2e", "-9223372036854775809" },
        { "8002 8a0d 000000000000000000000000 01 2e", "79228162514264337593543950336" },
        { "8002 8b 0a000000 000000000000000000f0 2e", "-75557863725914323419136" },
        { "8002 8a0d 00000040eaed7446d09c2c9f0c 2e", "1000000000000000000000000000000" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_err err;
        char text[64];
        struct tu_pickle *p = read_hex(rows[i].hex, &err);
        if (!ok(p != NULL, "%s: read", rows[i].text))
            continue;
        const struct tu_pnode *v = tu_pickle_root(p);
        snprintf(text, sizeof text, "%lld", (long long)v->integer);
        eq_str(v->kind == TU_P_BIGINT ? v->text : text, rows[i].text, "integer");
        struct tu_buf out = { 0 };
        ok(!tu_pickle_write(&out, v, NULL, 0, &err), "%s: written", rows[i].text);
        struct tu_pickle *q;
        size_t used;
        ok(!tu_pickle_read(&q, out.data, out.n, NULL, &used, &err), "%s: read again", rows[i].text);
        const struct tu_pnode *u = tu_pickle_root(q);
        ok(u->kind == v->kind && u->integer == v->integer &&
               (v->kind == TU_P_INT || !strcmp(u->text, v->text)), "%s: the same", rows[i].text);
        tu_buf_release(&out);
        tu_pickle_free(q);
        tu_pickle_free(p);
    }
}

static int read_and_write(struct tu_err *err)
{
    size_t n, used;
    struct tu_pickle *p;
    struct tu_buf out = { 0 };
    unsigned char *data = unhex(many2, &n);
    int rc = tu_pickle_read(&p, data, n, NULL, &used, err);
    if (!rc)
        rc = tu_pickle_write(&out, tu_pickle_root(p), NULL, 0, err);
    tu_buf_release(&out);
    tu_pickle_free(p);
    free(data);
    return rc;
}

int main(void)
{
    worked_case();
    objects();
    batches();
    tensors();
    refusals();
    limits();
    hostile();
    numbers();
    fix_inject(read_and_write, true, "pickle");
    return tap_done();
}
