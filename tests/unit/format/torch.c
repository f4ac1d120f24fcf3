/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of torch files: every file that a real torch wrote against its oracle, the worked cases,
 * hostile files, and what we write. */
#include <fcntl.h>

#include "fix.h"
#include "oracle.h"

#define FORMAT (tu_format_find("torch"))
#define DATA "tests/data/torch"

/* Files of real torch ------------------------------------------------------------------------- */

static void fixtures(void)
{
    unsigned files = oracle_folder(DATA, ".pt");
    if (files)
        ok(files >= 20, "%u files of torch", files);
    else
        tap_skip("files of torch", "no " DATA);
}

/* Files that torch can read and we refuse, or read otherwise; by the end of their name. */
static void refused_fixtures(void)
{
    static const struct { const char *name; int code; const char *words; } rows[] = {
        { "meta_refuse.pt", TU_EUNSUP, "'m': a meta tensor" },
        { "sparse_refuse.pt", TU_EUNSUP, "'s': a sparse tensor" },
        { "quantized_refuse.pt", TU_EUNSUP, "'q': a quantised tensor" },
        { "torchscript_refuse.pt", TU_EUNSUP, "TorchScript" },
        { "pickle_refuse.pt", TU_EUNSUP, "a bare pickle" },
        { "system_refuse.pt", TU_EUNSUP, "a bare pickle" },
        { "tar_refuse.pt", TU_EUNSUP, "a tar of torch 0.1" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int age = 0; age < 2; age++) {
            char path[256];
            snprintf(path, sizeof path, DATA "/%s_%s", age ? "new" : "old", rows[i].name);
            if (access(path, R_OK) == 0)
                fix_refused(path, NULL, NULL, rows[i].code, rows[i].words, path);
        }
    }
    for (int age = 0; age < 2; age++) { /* a module has the names of its state dict */
        char path[256];
        struct tu_source *s;
        struct tu_err err;
        snprintf(path, sizeof path, DATA "/%s_module_refuse.pt", age ? "new" : "old");
        if (access(path, R_OK) != 0)
            continue;
        if (!ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "%s", path))
            continue;
        eq_u64(s->n, 2, "%s: two parameters", path);
        ok(tu_source_find(s, "weight") != SIZE_MAX, "%s: weight", path);
        tu_source_close(s);
        struct tu_open strict = { .strict = true };
        fix_refused(path, NULL, &strict, TU_EUNSUP, "torch.nn.modules.linear Linear", path);
    }
}

/* The object of a Megatron-like file, its values and its META. */
static void training(void)
{
    const char *path = DATA "/old_training.pt";
    struct tu_source *s;
    struct tu_err err;
    if (access(path, R_OK) != 0) {
        tap_skip("training.pt", "no " DATA);
        return;
    }
    ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "training.pt");
    struct tu_pnode *root = tu_pickle_root(s->pickle), *args = tu_pnode_get(root, "args");
    eq_int(tu_pnode_get(args, "num_layers")->integer, 4, "args.num_layers");
    eq_int(tu_pnode_get(root, "iteration")->integer, 7, "iteration");
    struct tu_pnode *weight = tu_pnode_get(tu_pnode_get(root, "model"), "0.weight");
    size_t i = tu_pnode_number(weight);
    ok(i < s->n && !strcmp(s->tensor[i].name, "model.0.weight"), "a node knows its tensor");
    eq_u64(tu_pnode_number(args), SIZE_MAX, "args is no tensor");
    ok(tu_pnode_number(tu_pnode_get(root, "parameter")) < s->n, "a parameter is a tensor");
    eq_u64(s->metas, 1, "one META");
    static const char *const words[] = {
        "\"args\":{\"class\":\"argparse Namespace\"}", "\"args.num_layers\":4,",
        "\"args.lr\":0.00015,", "\"args.negative\":-3,", "\"args.yes\":true,",
        "\"args.huge\":{\"int\":\"1180591620717411303424\"}",
        "\"args.minus_huge\":{\"int\":\"-1180591620717411303424\"}",
        "\"args.params_dtype\":{\"global\":\"torch bfloat16\"}", "\"args.nothing\":null,",
        "\"args.text\":\"naïve\\n\"", "\"args.data\":{\"bytes\":\"00ff\"}",
        "\"args.pair\":{\"tuple\":[1,2]}", "\"args.nested.deep.1\":{\"tuple\":[2,3]}",
        "\"args.size\":{\"args\":[{\"tuple\":[2,3]}],\"class\":\"torch Size\"}",
        "\"iteration\":7,", "\"optimizer.param_groups.0.lr\":0.001",
        "\"optimizer.param_groups.0.betas\":{\"tuple\":[0.9,0.999]}",
    };
    eq_str(s->meta[0].topic, "torch", "its topic");
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (!ok(strstr(s->meta[0].json, words[k]), "META has %s", words[k]))
            printf("# %.4000s\n", s->meta[0].json);
    tu_source_close(s);

    ok(!tu_source_open(&s, DATA "/old_views.pt", NULL, NULL, NULL, &err), "views.pt");
    i = tu_source_find(s, "transposed");
    ok(s->tensor[i].meta && strstr(s->tensor[i].meta, "\"storage\":\"0\",\"stride\":[1,12]"),
       "a view says which storage it shares");
    ok(!s->extent[i].in, "and lies nowhere in one piece");
    tu_source_close(s);
}

/* Worked cases -------------------------------------------------------------------------------- */

static const float six[] = { 0, 1, 2, 3, 4, 5 };

static int save_case2(struct tu_err *err)
{
    struct tu_tensor t = fix_tensor("w", TU_F32, 2, (uint64_t[]){ 2, 3 });
    struct tu_save save = { .n = 1, .tensor = &t, .folder_name = "a" };
    return fix_save(fix_path("a.pt"), FORMAT, &save, (const void *const[]){ six }, err);
}

static int read_case2(struct tu_err *err)
{
    struct tu_source *s;
    float got[6];
    int rc = tu_source_open(&s, fix_path("a.pt"), FORMAT, NULL, NULL, err);
    if (rc < 0)
        return rc;
    rc = tu_source_verify(s, 0, NULL, err);
    if (rc == 0)
        rc = tu_source_read(s, 0, 0, got, sizeof got, err);
    tu_source_close(s);
    return rc;
}

static void worked_cases(void)
{
    struct tu_err err;
    size_t n;
    ok(!save_case2(&err), "case 2: written");
    unsigned char *p = fix_read(fix_path("a.pt"), &n);
    eq_u64(n, 729, "case 2: size");
    eq_u64(tu_le32(p + 466 + 16), 0x8ff9a486, "case 2: CRC of data.pkl");
    eq_u64(tu_le32(p + 522 + 16), 0x91e79017, "case 2: CRC of data/0, case 17");
    eq_u64(tu_le32(p + 576 + 16), 0x55679ed1, "case 2: CRC of version");
    if (access(DATA "/old_case2.pt", R_OK) == 0)
        ok(fix_same(DATA "/old_case2.pt", p, n), "case 2: the bytes of torch 1.13");
    free(p);
    struct tu_source *s;
    float got[6];
    ok(!tu_source_open(&s, fix_path("a.pt"), NULL, NULL, NULL, &err), "case 2: read");
    eq_str(s->format->name, "torch", "case 2: recognised");
    eq_str(s->tensor[0].name, "w", "case 2: name");
    ok(!s->tensor[0].meta, "case 2: nothing to say of its storage");
    ok(!tu_source_read(s, 0, 0, got, sizeof got, &err) && !memcmp(got, six, sizeof six),
       "case 2: values");
    eq_u64(s->crc[0], 0x91e79017, "case 17: CRC-32 of the tensor is the record's");
    eq_u64(s->extent[0].off, 320, "case 2: in place");
    eq_u64(s->referenced, 24, "case 2: referenced");
    eq_u64(s->stored, 729, "case 2: stored");
    tu_source_close(s);
}

/* Hand-made files ----------------------------------------------------------------------------- */

static char pickle_text[1 << 16];
static size_t pickle_n;

static void put(const void *p, size_t n)
{
    memcpy(pickle_text + pickle_n, p, n);
    pickle_n += n;
}

static void text(const char *s)
{
    unsigned char head[5] = { 'X' };
    tu_put32(head + 1, (uint32_t)strlen(s));
    put(head, 5);
    put(s, strlen(s));
}

static void number(int64_t v)
{
    unsigned char p[10] = { 0x8a, 8 };
    tu_put64(p + 2, (uint64_t)v);
    put(p, 10);
}

static void name(const char *module, const char *class)
{
    put("c", 1);
    put(module, strlen(module));
    put("\n", 1);
    put(class, strlen(class));
    put("\n", 1);
}

/* _rebuild_tensor_v2(storage(class, key, numel), offset, (d0, d1), (s0, s1), False, None) */
static void tensor(const char *class, const char *key, int64_t numel, int64_t offset, int64_t d0,
                   int64_t d1, int64_t s0, int64_t s1)
{
    name("torch._utils", "_rebuild_tensor_v2");
    put("((", 2);
    text("storage");
    name("torch", class);
    text(key);
    text("cpu");
    number(numel);
    put("tQ", 2);
    number(offset);
    number(d0);
    number(d1);
    put("\x86", 1);
    number(s0);
    number(s1);
    put("\x86\x89NtR", 5);
}

/* A zip of data.pkl (what was put), one storage "0" of n bytes, and what else is given. */
static const char *make(size_t n, const char *extra, const char *extra_data)
{
    static char zeros[4096];
    struct tu_zip_plan e[5] = { { .name = "x/data.pkl" }, { .name = "x/data/0" },
                                { .name = "x/version" } };
    const void *data[5] = { pickle_text, zeros, "3\n" };
    size_t count = 3;
    struct tu_out *out;
    uint64_t size;
    for (unsigned i = 0; i < sizeof zeros; i++)
        zeros[i] = (char)i;
    put(".", 1);
    e[0].size = pickle_n;
    e[1].size = n;
    e[2].size = 2;
    if (extra) {
        e[count].name = extra;
        e[count].size = strlen(extra_data);
        data[count++] = extra_data;
    }
    const char *path = fix_path("made.pt");
    if (tu_zip_layout(e, count, 64, &size, NULL) || tu_out_open(&out, path, NULL, NULL))
        abort();
    for (size_t i = 0; i < count; i++) {
        e[i].crc = tu_crc32(0, data[i], (size_t)e[i].size);
        if (tu_out_pwrite(out, e[i].offset, data[i], (size_t)e[i].size, NULL))
            abort();
    }
    if (tu_zip_finish(out, e, count, 64, NULL) || tu_out_commit(out, false, NULL))
        abort();
    pickle_n = 0;
    return path;
}

static void begin(void)
{
    pickle_n = 0;
    put("\x80\x02}", 3);
    text("w");
}

static void bounds(void)
{
    static const struct {
        const char *class, *key;
        int64_t numel, offset, d0, d1, s0, s1;
        int code;
        const char *words, *what;
    } rows[] = {
        { "FloatStorage", "0", 6, 0, 2, 3, 3, 1, 0, "", "whole" },
        { "FloatStorage", "0", 6, 0, 3, 2, 1, 3, 0, "", "transposed" },
        { "FloatStorage", "0", 6, 5, 2, 3, 0, 0, 0, "", "expanded" },
        { "FloatStorage", "0", 6, 6, 0, 3, 3, 1, 0, "", "empty at the end" },
        { "FloatStorage", "0", 6, 99, 0, 3, 3, 1, 0, "", "empty anywhere" },
        { "FloatStorage", "0", 6, 1, 2, 3, 3, 1, TU_ESIZE, "'w'|past the 6 elements", "offset" },
        { "FloatStorage", "0", 6, 0, 2, 3, 4, 1, TU_ESIZE, "'w'|past the 6 elements", "stride" },
        { "FloatStorage", "0", 6, -1, 2, 3, 3, 1, TU_EFORMAT, "malformed offset", "offset -1" },
        { "FloatStorage", "0", 6, 0, 2, 3, -3, 1, TU_EFORMAT, "not negative", "stride -3" },
        { "FloatStorage", "0", 6, 0, -2, 3, 3, 1, TU_EFORMAT, "not negative", "size -2" },
        { "FloatStorage", "0", 6, 0, INT64_C(1) << 62, 4, 0, 0, TU_ESIZE, "'w'", "2^64 elements" },
        { "FloatStorage", "0", 6, 0, INT64_C(1) << 40, 1, 0, 0, 0, "", "2^40 expanded elements" },
        { "FloatStorage", "0", 6, 0, 3, 3, INT64_MAX, 1, TU_ESIZE, "past the 6", "stride 2^63-1" },
        { "FloatStorage", "0", 6, INT64_MAX, 1, 1, 1, 1, TU_ESIZE, "past", "offset 2^63-1" },
        { "FloatStorage", "0", 7, 0, 2, 3, 3, 1, TU_ESIZE, "7 elements need 28 bytes|has 24",
          "numel over the record" },
        { "FloatStorage", "0", 5, 0, 1, 3, 3, 1, TU_ESIZE, "5 elements need 20", "numel under it" },
        { "DoubleStorage", "0", 6, 0, 2, 3, 3, 1, TU_ESIZE, "need 48", "another class" },
        { "FloatStorage", "0", INT64_MAX, 0, 2, 3, 3, 1, TU_ESIZE, "impossible size", "2^63" },
        { "FloatStorage", "1", 6, 0, 2, 3, 3, 1, TU_EINCOMPLETE, "storage '1' has no record",
          "no such record" },
        { "FloatStorage", "../version", 6, 0, 2, 3, 3, 1, TU_EINCOMPLETE, "has no record",
          "a key that climbs" },
        { "QInt8Storage", "0", 24, 0, 2, 3, 3, 1, TU_EUNSUP, "'torch QInt8Storage'", "quantised" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        tensor(rows[i].class, rows[i].key, rows[i].numel, rows[i].offset, rows[i].d0, rows[i].d1,
               rows[i].s0, rows[i].s1);
        put("s", 1);
        const char *path = make(24, NULL, NULL);
        if (rows[i].code) {
            fix_refused(path, NULL, NULL, rows[i].code, rows[i].words, rows[i].what);
            continue;
        }
        struct tu_source *s;
        struct tu_err err = { 0 };
        if (!ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "bounds: %s", rows[i].what)) {
            printf("# %s\n", err.msg);
            continue;
        }
        if (s->tensor[0].bytes && s->tensor[0].bytes < 100) {
            char got[100];
            ok(!tu_source_read(s, 0, 0, got, (size_t)s->tensor[0].bytes, &err), "bounds: %s: read",
               rows[i].what);
            eq_int(got[0], 4 * rows[i].offset, "bounds: %s: first byte", rows[i].what);
        }
        tu_source_close(s);
    }
}

static void oddities(void)
{
    struct tu_err err;
    struct tu_source *s;
    /* one storage, two types */
    begin();
    tensor("FloatStorage", "0", 6, 0, 2, 3, 3, 1);
    put("s", 1);
    text("v");
    tensor("IntStorage", "0", 6, 0, 2, 3, 3, 1);
    put("s", 1);
    fix_refused(make(24, NULL, NULL), NULL, NULL, TU_EFORMAT, "'v'|two types", "two types");

    /* {KEY: t, 'a': {'b': t}} with KEY "a.b" */
    begin();
    tensor("FloatStorage", "0", 6, 0, 2, 3, 3, 1);
    put("s", 1);
    text("a.b");
    tensor("FloatStorage", "0", 6, 0, 2, 3, 3, 1);
    put("s", 1);
    text("a");
    put("}", 1);
    text("b");
    tensor("FloatStorage", "0", 6, 0, 2, 3, 3, 1);
    put("ss", 2);
    fix_refused(make(24, NULL, NULL), NULL, NULL, TU_ENAME, "'a.b'|one 1 and one 2 keys deep",
                "one name for two tensors");

    /* {KEY: t, 'a\0y': t}: the second would be taken for 'a'; and {KEY: t, '': t} */
    begin();
    tensor("FloatStorage", "0", 6, 0, 2, 3, 3, 1);
    put("sX\3\0\0\0a\0y", 9);
    tensor("FloatStorage", "0", 6, 0, 2, 3, 3, 1);
    put("s", 1);
    fix_refused(make(24, NULL, NULL), NULL, NULL, TU_ENAME, "'a'|key 1 of|behind a NUL",
                "a key with a NUL");
    begin();
    tensor("FloatStorage", "0", 6, 0, 2, 3, 3, 1);
    put("s", 1);
    text("");
    tensor("FloatStorage", "0", 6, 0, 2, 3, 3, 1);
    put("s", 1);
    fix_refused(make(24, NULL, NULL), NULL, NULL, TU_ENAME, "name of 0 bytes", "an empty key");

    /* {KEY: t, '': {'a': t}}: the empty key stands before the dot */
    begin();
    tensor("FloatStorage", "0", 6, 0, 2, 3, 3, 1);
    put("s", 1);
    text("");
    put("}", 1);
    text("a");
    tensor("FloatStorage", "0", 6, 0, 2, 3, 3, 1);
    put("ss", 2);
    ok(!tu_source_open(&s, make(24, NULL, NULL), NULL, NULL, NULL, &err), "a dictionary below ''");
    eq_str(s->tensor[1].name, ".a", "its tensors are not taken for those beside it");
    tu_source_close(s);

    begin();
    tensor("FloatStorage", "0", 6, 0, 2, 3, 3, 1);
    put("s", 1);
    const char *path = make(24, "x/byteorder", "big");
    float got[6];
    ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "big-endian");
    ok(!tu_source_read(s, 0, 0, got, 24, &err), "big-endian: read");
    ok(!memcmp(got, "\3\2\1\0\7\6\5\4\13\12\11\10", 12), "big-endian: turned around");
    ok(!s->extent[0].in && s->crc[0] == TU_CRC_NONE, "big-endian: not in place");
    tu_source_close(s);

    static const struct { const char *name, *data; int code; const char *words; } rows[] = {
        { "x/byteorder", "middle", TU_EFORMAT, "neither little nor big" },
        { "x/code/__torch__.py", "", TU_EUNSUP, "TorchScript" },
        { "x/constants.pkl", "", TU_EUNSUP, "TorchScript" },
    };
    for (size_t i = 0; i < 3; i++) {
        begin();
        put("Ns", 2);
        fix_refused(make(24, rows[i].name, rows[i].data), NULL, NULL, rows[i].code, rows[i].words,
                    rows[i].name);
    }
    begin();
    put("Ns.more", 7);
    fix_refused(make(24, NULL, NULL), NULL, NULL, TU_EGARBAGE, "data.pkl|5 bytes follow",
                "bytes behind the pickle"); /* "more", and the STOP of make() */

    /* a call that would run a program: only a value, unless strictness is asked for */
    begin();
    name("posix", "system");
    text("id");
    put("\x85Rs", 3);
    path = make(24, NULL, NULL);
    ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "posix.system: opened, nothing runs");
    eq_u64(s->n, 0, "posix.system: no tensors");
    eq_str(s->meta[0].json, "{\"values\":{\"w\":{\"args\":[\"id\"],\"class\":\"posix system\"}}}",
           "posix.system: what it said");
    tu_source_close(s);
    struct tu_open strict = { .strict = true };
    fix_refused(path, NULL, &strict, TU_EUNSUP, "'posix system'|byte 9", "posix.system: strict");

    /* names that a stream cannot hold */
    pickle_n = 0;
    put("\x80\x02}", 3);
    text("a\nb");
    tensor("FloatStorage", "0", 6, 0, 2, 3, 3, 1);
    put("s", 1);
    fix_refused(make(24, NULL, NULL), NULL, NULL, TU_ENAME, "", "newline in a name");

    /* a dict that holds itself */
    pickle_n = 0;
    put("\x80\x02}q\0", 5);
    text("w");
    put("h\0s", 3);
    ok(!tu_source_open(&s, make(24, NULL, NULL), NULL, NULL, NULL, &err), "a cycle");
    eq_str(s->meta[0].json, "{\"dropped\":1,\"values\":{}}", "a cycle is counted");
    tu_source_close(s);

    /* [], then lists of the one before, twice: a few bytes that make 2^39 paths */
    pickle_n = 0;
    put("\x80\x02]q\0", 5);
    for (int i = 1; i < 40; i++) {
        unsigned char before = (unsigned char)(i - 1), here = (unsigned char)i;
        unsigned char more[] = { '0', ']', 'q', here, '(', 'h', before, 'h', before, 'e' };
        put(more, sizeof more);
    }
    fix_refused(make(24, NULL, NULL), NULL, NULL, TU_ELIMIT, "repeats itself", "2^39 paths");
}

static void cuts(void)
{
    size_t n, strange = 0;
    struct tu_err err;
    unsigned char *p = fix_read(fix_path("a.pt"), &n);
    for (size_t k = 1; k < n; k++) {
        struct tu_source *s;
        int rc = tu_source_open(&s, fix_write("cut.pt", p, k), FORMAT, NULL, NULL, &err);
        strange += rc != (k < 4 ? TU_EMAGIC : TU_ETRUNC);
        if (!rc)
            tu_source_close(s);
    }
    eq_u64(strange, 0, "cut at every byte");
    p[321] ^= 1;
    const char *path = fix_write("flip.pt", p, n);
    struct tu_source *s;
    ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "a bit of a weight: opened");
    eq_int(tu_source_verify(s, 0, NULL, &err), TU_EPCRC, "a bit of a weight: seen");
    tu_source_close(s);
    struct tu_open how = { .no_crc = true };
    ok(!tu_source_open(&s, path, NULL, &how, NULL, &err) && !tu_source_verify(s, 0, NULL, &err),
       "unless nothing is to be verified");
    tu_source_close(s);
    p[321] ^= 1;
    p[70] ^= 1;
    fix_refused(fix_write("flip.pt", p, n), NULL, NULL, TU_EPCRC, "a/data.pkl", "a bit of the pickle");
    free(p);
    static const char old[512] = "PYTORCH1";
    fix_refused(fix_write("old.pt", old, 512), NULL, NULL, TU_EMAGIC, "preview", "PYTORCH1");
}

/* Legacy -------------------------------------------------------------------------------------- */

static const char case3[] =
    "80028a0a6cfc9c46f9206aa850192e80024de9032e80027d710028581000000070726f746f636f6c5f7665727369"
    "6f6e71014de903580d0000006c6974746c655f656e6469616e710288580a000000747970655f73697a6573710"
    "37d71042858050000" "0073686f727471054b025803000000696e7471064b0458040000006c6f6e6771074b0475752e"
    "80027d7100580100000077710163746f7263682e5f7574696c730a5f72656275696c645f74656e736f725f76320a"
    "71022828580700000073746f72616765710363746f7263680a466c6f617453746f726167650a71045801000000"
    "307105580300000063707571064b064e747107514b004b024b038671084b034b018671098963636f6c6c656374"
    "696f6e730a4f726465726564446963740a710a2952710b74710c52710d732e80025d71005801000000307101612e"
    "060000000000000000000000" "0000803f0000004000004040000080400000a040";

static size_t unhex(const char *hex, unsigned char *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++)
        sscanf(hex + 2 * i, "%2hhx", &out[i]);
    return n;
}

static int read_legacy(struct tu_err *err)
{
    struct tu_source *s;
    float got[6];
    int rc = tu_source_open(&s, fix_path("legacy.pt"), NULL, NULL, NULL, err);
    if (rc < 0)
        return rc;
    rc = tu_source_read(s, 0, 0, got, sizeof got, err);
    if (!rc)
        ok(!memcmp(got, six, sizeof six), "case 3: values");
    tu_source_close(s);
    return rc;
}

static void legacy(void)
{
    unsigned char p[1024];
    size_t n = unhex(case3, p), strange = 0;
    struct tu_err err;
    fix_write("legacy.pt", p, n);
    ok(!read_legacy(&err), "case 3: read");
    for (size_t k = 15; k < n; k++) {
        struct tu_source *s;
        int rc = tu_source_open(&s, fix_write("cut.pt", p, k), FORMAT, NULL, NULL, &err);
        strange += rc != TU_ETRUNC;
        if (!rc)
            tu_source_close(s);
    }
    eq_u64(strange, 0, "case 3: cut at every byte");
    p[n] = 0;
    fix_refused(fix_write("long.pt", p, n + 1), NULL, NULL, TU_EGARBAGE, "1 bytes follow",
                "case 3: a byte too many");
    p[n - 32] = 7; /* the count of elements */
    fix_refused(fix_write("count.pt", p, n), NULL, NULL, TU_ESIZE, "7 elements|says 6",
                "case 3: another count");
    p[n - 32] = 6;
    p[17] = 'K'; /* not 1001 */
    fix_refused(fix_write("version.pt", p, n), NULL, NULL, TU_EFORMAT, "protocol version",
                "case 3: protocol version");
    fix_inject(read_legacy, true, "legacy");
    fix_inject(read_legacy, false, "legacy");
}

/* Writing ------------------------------------------------------------------------------------- */

static void round_trip(void)
{
    static const uint32_t dtypes[] = { TU_F64, TU_F32, TU_F16, TU_BF16, TU_I64, TU_I32, TU_I16, TU_I8,
                                       TU_U8, TU_BOOL, TU_C64, TU_C128, TU_U16, TU_U32, TU_U64,
                                       TU_F8_E4M3FN, TU_F8_E5M2, TU_F8_E8M0, TU_F4_E2M1 };
    enum { N = sizeof dtypes / sizeof *dtypes + 3 };
    struct tu_tensor t[N];
    static const uint64_t dim[4] = { 2, 3, 1, 4 }, none[2] = { 0, 3 };
    struct tu_err err;
    struct tu_source *s;
    for (size_t i = 0; i < N - 3; i++)
        t[i] = fix_tensor(tu_dtype_find(dtypes[i])->name, dtypes[i], 4, dim);
    t[N - 3] = fix_tensor("scalar", TU_F32, 0, NULL);
    t[N - 2] = fix_tensor("empty", TU_F32, 2, none);
    t[N - 1] = fix_tensor("vector", TU_I64, 1, dim);
    struct tu_save save = { .n = N, .tensor = t };
    ok(!fix_save(fix_path("all.pt"), FORMAT, &save, NULL, &err), "every dtype: written");
    if (!ok(!tu_source_open(&s, fix_path("all.pt"), NULL, NULL, NULL, &err), "every dtype: read"))
        return;
    eq_u64(s->n, N, "every dtype: count");
    for (size_t i = 0; i < N && i < s->n; i++) {
        eq_str(s->tensor[i].name, t[i].name, "name");
        ok(s->tensor[i].dtype == t[i].dtype && s->tensor[i].rank == t[i].rank &&
               !memcmp(s->tensor[i].dim, t[i].dim ? t[i].dim : dim, t[i].rank * 8),
           "%s: dtype and shape", t[i].name);
        ok(fix_holds(s, i, i), "%s: bytes", t[i].name);
        ok(!tu_source_verify(s, i, NULL, &err), "%s: checksum", t[i].name);
    }
    tu_source_close(s);
    struct tu_tensor q = fix_tensor("q", TU_Q8_0, 1, (uint64_t[]){ 32 });
    save = (struct tu_save){ .n = 1, .tensor = &q };
    eq_int(fix_save(fix_path("q.pt"), FORMAT, &save, NULL, &err), TU_EDTYPE, "block formats");
    ok(access(fix_path("q.pt"), F_OK) != 0, "leave no file");
}

/* {'args': Namespace(num_layers=2), 'checkpoint_version': 3.0, 'iteration': 5, 'model': {'w': …}} */
static int save_object(struct tu_err *err)
{
    struct tu_arena *a = tu_arena_new(err);
    if (!a)
        return TU_ENOMEM;
    struct tu_tensor t = fix_tensor("model.w", TU_BF16, 1, (uint64_t[]){ 5 });
    struct tu_pnode *root = tu_pnode_new(a, TU_P_DICT, 0, err);
    struct tu_pnode *args = tu_pnode_new(a, TU_P_DICT, 0, err);
    struct tu_pnode *model = tu_pnode_new(a, TU_P_DICT, 0, err);
    int rc = root && args && model ? 0 : TU_ENOMEM;
    if (rc == 0)
        rc = tu_pnode_set(a, args, "num_layers", tu_pnode_int(a, 2, err), err);
    if (rc == 0)
        rc = tu_pnode_set(a, model, "w", tu_pnode_tensor(a, 0, err), err);
    if (rc == 0)
        rc = tu_pnode_set(a, root, "args", tu_pnode_object(a, "argparse Namespace", args, err), err);
    if (rc == 0)
        rc = tu_pnode_set(a, root, "checkpoint_version", tu_pnode_real(a, 3, err), err);
    if (rc == 0)
        rc = tu_pnode_set(a, root, "iteration", tu_pnode_int(a, 5, err), err);
    if (rc == 0)
        rc = tu_pnode_set(a, root, "model", model, err);
    struct tu_save save = { .n = 1, .tensor = &t, .object = root };
    if (rc == 0)
        rc = fix_save(fix_path("object.pt"), FORMAT, &save, NULL, err);
    tu_arena_free(a);
    return rc;
}

static void object(void)
{
    struct tu_err err;
    struct tu_source *s;
    ok(!save_object(&err), "an object: written");
    if (!ok(!tu_source_open(&s, fix_path("object.pt"), NULL, NULL, NULL, &err), "an object: read"))
        return;
    struct tu_pnode *root = tu_pickle_root(s->pickle);
    eq_int(tu_pnode_get(tu_pnode_get(root, "args"), "num_layers")->integer, 2, "an object: args");
    ok(tu_pnode_get(root, "checkpoint_version")->real == 3, "an object: version");
    eq_u64(tu_pnode_number(tu_pnode_get(tu_pnode_get(root, "model"), "w")), 0, "an object: w");
    eq_str(s->tensor[0].name, "model.w", "an object: name");
    ok(fix_holds(s, 0, 0), "an object: bytes");
    tu_source_close(s);
}

/* What is in a pipe by now. */
static size_t drain(int fd, unsigned char *buf, size_t room)
{
    size_t n = 0;
    ssize_t got;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (n < room && (got = read(fd, buf + n, room - n)) > 0)
        n += (size_t)got;
    return n;
}

/* A pipe gets the same bytes, if they come in order; and gives them back through a spool. */
static void pipes(void)
{
    struct tu_err err;
    struct tu_sink *sink;
    struct tu_source *s;
    int fd[2];
    size_t n;
    char path[64];
    static unsigned char got[1 << 14];
    struct tu_tensor t[2] = { fix_tensor("b", TU_U8, 1, (uint64_t[]){ 10 }),
                              fix_tensor("a", TU_U8, 1, (uint64_t[]){ 3 }) };
    struct tu_save save = { .n = 2, .tensor = t };
    ok(!fix_save(fix_path("two.pt"), FORMAT, &save, NULL, &err), "two tensors");
    unsigned char *want = fix_read(fix_path("two.pt"), &n);
    if (pipe(fd))
        abort();
    snprintf(path, sizeof path, "/dev/fd/%d", fd[1]);
    ok(!tu_sink_open(&sink, path, FORMAT, &save, NULL, &err), "a pipe");
    ok(!tu_sink_write(sink, 0, 0, "\0\1\2\3", 4, &err), "a pipe: first bytes");
    eq_int(tu_sink_write(sink, 1, 0, "\1\2\3", 3, &err), TU_EUSAGE, "a pipe: out of order");
    tu_sink_abort(sink);
    ok(drain(fd[0], got, sizeof got) < n, "a pipe: not complete when it was given up");
    ok(!tu_sink_open(&sink, path, FORMAT, &save, NULL, &err), "a pipe again");
    ok(!tu_sink_write(sink, 0, 0, "\0\1\2\3\4\5\6\7\10\11", 10, &err) &&
           !tu_sink_write(sink, 1, 0, "\1\2\3", 3, &err) && !tu_sink_finish(sink, false, &err),
       "a pipe: written");
    eq_u64(drain(fd[0], got, sizeof got), n, "a pipe: size");
    ok(!memcmp(got, want, n), "a pipe: the bytes of the file");
    fcntl(fd[0], F_SETFL, 0);
    ok(write(fd[1], want, n) == (ssize_t)n && !close(fd[1]), "into a pipe");
    snprintf(path, sizeof path, "/dev/fd/%d", fd[0]);
    if (ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "from a pipe")) {
        ok(s->n == 2 && fix_holds(s, 0, 0) && fix_holds(s, 1, 1), "from a pipe: tensors");
        tu_source_close(s);
    }
    free(want);
    close(fd[0]);
}

/* torch's own names, and none for what it lacks. */
static void dtype_names(void)
{
    eq_str(tu_torch_name(TU_BF16), "torch bfloat16", "bf16");
    eq_str(tu_torch_name(TU_F4_E2M1), "torch float4_e2m1fn_x2", "f4: two in a byte");
    ok(!tu_torch_name(TU_Q4_0) && !tu_torch_name(TU_I4), "no blocks and no i4");
}

int main(void)
{
    dtype_names();
    worked_cases();
    fixtures();
    refused_fixtures();
    training();
    bounds();
    oddities();
    cuts();
    legacy();
    round_trip();
    object();
    pipes();
    fix_inject(save_case2, true, "writing");
    fix_inject(save_case2, false, "writing");
    fix_inject(read_case2, true, "reading");
    fix_inject(read_case2, false, "reading");
    fix_inject(save_object, true, "an object");
    return tap_done();
}
