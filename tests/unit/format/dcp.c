/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of PyTorch's distributed checkpoints: a small one is written, then its `.metadata` says
 * what no honest one would; and the bounds of the file that is written. */
#include "pickled.h"

#define T "torch.distributed.checkpoint.metadata:"
#define SIZE(dims) "torch:Size((" dims "))"
#define CHUNK(off, len) T "ChunkStorageMetadata*()!{'offsets': " SIZE(off) ", 'sizes': " SIZE(len) "}"
#define PROPERTIES T "TensorProperties*()!(torch:float32, None)"
#define TENSOR(props, size, chunks)                                                            \
    T "TensorStorageMetadata*()!{'properties': " props ", 'size': " size ", 'chunks': " chunks "}"
#define W TENSOR(PROPERTIES, SIZE("4, 3"), "[" CHUNK("0, 0", "2, 3") ", " CHUNK("2, 0", "2, 3") "]")
#define BYTES T "BytesStorageMetadata*()"
#define KEY(name, off) T "MetadataIndex*()!{'fqn': " name ", 'offset': " off ", 'index': 0}"
#define INFO(file, place)                                                                      \
    "torch.distributed.checkpoint.filesystem:_StorageInfo*()!{'relative_path': " file ", " place "}"
#define AT(n) "'offset': $o" #n ", 'length': $l" #n
#define FILE0 "'__0_0.distcp'"
#define PLACES                                                                                 \
    KEY("'w'", SIZE("0, 0")) ": " INFO(FILE0, AT(0)) ", " KEY("'w'", SIZE("2, 0")) ": "        \
    INFO(FILE0, AT(1)) ", " KEY("'step'", "None") ": " INFO(FILE0, AT(2))
#define META(state, places)                                                                    \
    T "Metadata*()!{'state_dict_metadata': {" state "}, 'storage_data': {" places "}}"
#define GOOD META("'w': " W ", 'step': " BYTES, PLACES)

static struct tu_place place[3];
static struct tu_buf pickle, text;
static uint64_t made; /* bytes of x.distcp */

/* A value with $oN and $lN as the places in the file, and $x the size of the other file. */
static void put_metadata(const char *value)
{
    tu_buf_reset(&text);
    for (const char *s = value; *s; s++) {
        int k = s[0] == '$' && s[1] != 'x' ? s[2] - '0' : -1;
        if (k >= 0) {
            uint64_t v = s[1] == 'o' ? place[k].offset : place[k].length;
            if (tu_buf_printf(&text, NULL, "%llu", (unsigned long long)v))
                abort();
            s += 2;
        } else if (*s == '$') {
            if (tu_buf_printf(&text, NULL, "%llu", (unsigned long long)made))
                abort();
            s++;
        } else {
            pickled_put(&text, s, 1);
        }
    }
    pickled(&pickle, text.data);
    fix_write("dcp/.metadata", pickle.data, pickle.n);
}

/* Rows 0-1 and 2-3 of w as tensors, and the object 7. */
static int save_distcp(struct tu_err *err)
{
    struct tu_arena *a = tu_arena_new(err);
    struct tu_pnode *list = a ? tu_pnode_new(a, TU_P_LIST, 0, err) : NULL;
    struct tu_tensor t[2] = { fix_tensor("w", TU_F32, 2, (uint64_t[]){ 2, 3 }),
                              fix_tensor("w", TU_F32, 2, (uint64_t[]){ 2, 3 }) };
    int code = list ? tu_pnode_add(a, list, NULL, tu_pnode_int(a, 7, err), err) : TU_ENOMEM;
    struct tu_save save = { .n = 2, .tensor = t, .object = list };
    if (!code)
        code = tu_distcp_places(&save, place, place + 2, err);
    if (!code)
        code = fix_save(fix_path("dcp/__0_0.distcp"), &tu_format_distcp, &save, NULL, err);
    tu_arena_free(a);
    return code;
}

static int open_dcp(struct tu_source **s, struct tu_err *err)
{
    *s = NULL;
    return tu_source_open(s, fix_path("dcp"), NULL, NULL, NULL, err);
}

static int read_dcp(struct tu_err *err)
{
    struct tu_source *s;
    int code = open_dcp(&s, err);
    for (size_t i = 0; !code && i < s->n; i++) {
        unsigned char data[24];
        code = tu_source_verify(s, i, NULL, err);
        if (!code)
            code = tu_source_read(s, i, 0, data, 24, err);
        for (size_t k = 0; !code && k < 24; k++)
            if (data[k] != i + k)
                code = TU_EBUG;
    }
    if (!code && (s->n != 2 || s->metas != 1 ||
                  strcmp(s->meta[0].json, "{\"objects\":{\"step\":7}}"))) {
        printf("# %s\n", s->metas ? s->meta[0].json : "no META");
        code = TU_EBUG;
    }
    tu_source_close(s);
    return code;
}

static void honest(void)
{
    struct tu_err err = { 0 };
    struct tu_source *s;
    ok(!save_distcp(&err), "a file of two tensors and an object: %s", err.msg);
    put_metadata(GOOD);
    ok(!read_dcp(&err), "is read, values and objects: %s", err.msg);
    if (ok(!open_dcp(&s, &err), "open")) {
        eq_str(s->format->name, "dcp", "recognised");
        eq_str(s->tensor[1].meta, "{\"shard\":{\"global\":[4,3],\"offset\":[2,0]}}",
               "a chunk says where it lies");
        eq_u64(s->referenced, 48, "bytes of tensors");
        ok(s->extent[0].in && tu_source_summed(s, 0), "in place, and summed");
        tu_source_close(s);
    }
    put_metadata(META("'w': " TENSOR(T "TensorProperties*()!{'dtype': torch:float32}", SIZE("2, 3"),
                                     "[" CHUNK("0, 0", "2, 3") "]")
                      ", 'e': " TENSOR(PROPERTIES, "[0]", "[" CHUNK("0", "0") "]"),
                      KEY("'w'", SIZE("0, 0")) ": " INFO(FILE0, AT(0) ", 'transform_descriptors': ()")));
    if (ok(!open_dcp(&s, &err), "the properties of old versions: %s", err.msg)) {
        ok(s->n == 2 && !s->tensor[0].meta, "a whole tensor needs no shard, an empty chunk no place");
        ok(!strcmp(s->tensor[1].name, "e") && !s->tensor[1].bytes, "an empty tensor is one");
        tu_source_close(s);
    }
    put_metadata(GOOD);
    fix_inject(read_dcp, true, "reading");
    fix_inject(read_dcp, false, "reading");
    fix_inject(save_distcp, true, "writing");
    fix_inject(save_distcp, false, "writing");
    ok(!save_distcp(&err), "the file again");
    size_t n;
    const char *path = fix_path("dcp/__0_0.distcp");
    unsigned char *p = fix_read(path, &n);
    for (size_t i = 0; i < n; i++)
        if (!memcmp(p + i, "\0\1\2\3\4\5\6\7\10\11", 10)) {
            p[i] ^= 1;
            break;
        }
    fix_write("dcp/__0_0.distcp", p, n);
    ok(!open_dcp(&s, &err), "a bit of a weight: opened");
    eq_int(tu_source_verify(s, 0, NULL, &err), TU_EPCRC, "a bit of a weight: seen");
    ok(strstr(err.msg, "'w'"), "and named: %s", err.msg);
    tu_source_close(s);
    free(p);
    ok(!save_distcp(&err), "the file again");
}

#define ONE(tensor) META("'w': " tensor, PLACES)
#define PLACE(key, info) META("'w': " W, key ": " info ", " KEY("'w'", SIZE("2, 0")) ": " INFO(FILE0, AT(1)))
#define KEY0 KEY("'w'", SIZE("0, 0"))

static void refused(void)
{
    static const struct {
        const char *value;
        int code;
        const char *words, *what;
    } rows[] = {
        { "{}", TU_EFORMAT, "no Metadata of torch", "a dict" },
        { "a:Metadatum()", TU_EFORMAT, "no Metadata of torch", "another class" },
        { "Metadata:", TU_EFORMAT, "no name of a class", "a global without a name" },
        { T "Metadata*()!{'storage_data': {}}", TU_EFORMAT, "no state_dict_metadata", "no tensors" },
        { T "Metadata*()!{'storage_data': {}, 'state_dict_metadata': []}", TU_EFORMAT,
          "no state_dict_metadata", "a list of tensors" },
        { T "Metadata*()!{'state_dict_metadata': {}}", TU_EFORMAT, "no storage_data", "no places" },
        { T "Metadata*()!{'state_dict_metadata': {}, 'storage_data': 5}", TU_EFORMAT,
          "no storage_data", "places that are a number" },
        { META("", "5: 6"), TU_EFORMAT, "a key has no name", "a key of places" },
        { META("", KEY("5", "None") ": 6"), TU_EFORMAT, "a key has no name", "a name of places" },
        { META("", KEY("'w'", "5") ": 6"), TU_EFORMAT, "no torch.Size", "an offset" },
        { META("", KEY("'w'", "torch:Size()") ": 6"), TU_EFORMAT, "no torch.Size", "Size()" },
        { META("", KEY("'w'", "torch:Size") ": 6"), TU_EFORMAT, "no torch.Size", "the class Size" },
        { META("", KEY("'w'", SIZE("-1")) ": 6"), TU_EFORMAT, "a dimension is no number", "-1" },
        { META("", KEY("'w'", SIZE("1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                                   "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                                   "1,1,1")) ": 6"), TU_EFORMAT, "no torch.Size", "65 dimensions" },
        { META("", PLACES ", " KEY0 ": 6"), TU_EFORMAT, "'w' is stored twice", "one place twice" },
        { META("5: " W, PLACES), TU_EFORMAT, "a name is no text", "a name" },
        { ONE("a:Other*()"), TU_EUNSUP, "'w': a 'a Other'", "another class of tensor" },
        { ONE("5"), TU_EUNSUP, "'w': a ''", "a number for a tensor" },
        { ONE(TENSOR("5", SIZE("4, 3"), "[]")), TU_EUNSUP, "a dtype", "properties that are 5" },
        { ONE(T "TensorStorageMetadata*()!{'size': (4, 3), 'chunks': []}"), TU_EUNSUP, "a dtype",
          "no properties" },
        { ONE(TENSOR(T "TensorProperties*()", SIZE("4, 3"), "[]")), TU_EUNSUP, "a dtype",
          "properties without a state" },
        { ONE(TENSOR(T "TensorProperties*()!'float32'", SIZE("4, 3"), "[]")), TU_EUNSUP, "a dtype",
          "a state that is a text" },
        { ONE(TENSOR(T "TensorProperties*()!()", SIZE("4, 3"), "[]")), TU_EUNSUP, "a dtype",
          "a state that is empty" },
        { ONE(TENSOR(T "TensorProperties*()!('float32',)", SIZE("4, 3"), "[]")), TU_EUNSUP, "a dtype",
          "a dtype that is a text" },
        { ONE(TENSOR(T "TensorProperties*()!(torch:float99,)", SIZE("4, 3"), "[]")), TU_EUNSUP,
          "a dtype", "a dtype of the future" },
        { ONE(TENSOR(T "TensorProperties*()!(torch:float4_e2m1fn_x2,)", SIZE(""), "[]")), TU_EUNSUP,
          "without a dimension", "a packed scalar" },
        { ONE(TENSOR(PROPERTIES, "5", "[]")), TU_EFORMAT, "'w': a size is no torch.Size", "a size" },
        { ONE(T "TensorStorageMetadata*()!{'properties': " PROPERTIES ", 'chunks': []}"), TU_EFORMAT,
          "no torch.Size", "no size" },
        { ONE(TENSOR(PROPERTIES, SIZE("4, 3"), "'chunks'")), TU_EUNSUP, "list of chunks",
          "chunks that are a text" },
        { ONE(T "TensorStorageMetadata*()!{'properties': " PROPERTIES ", 'size': (4, 3)}"), TU_EUNSUP,
          "list of chunks", "no chunks" },
        { ONE(TENSOR(PROPERTIES, SIZE("4, 3"), "[5]")), TU_EFORMAT, "no torch.Size", "a chunk" },
        { ONE(TENSOR(PROPERTIES, SIZE("4, 3"), "[" T "C*()!{'offsets': (0, 0), 'sizes': 5}]")),
          TU_EFORMAT, "no torch.Size", "sizes of a chunk" },
        { ONE(TENSOR(PROPERTIES, SIZE("4, 3"), "[" CHUNK("0", "2, 3") "]")), TU_EFORMAT,
          "another rank", "an offset of another rank" },
        { ONE(TENSOR(PROPERTIES, SIZE("4, 3"), "[" CHUNK("0, 0", "2") "]")), TU_EFORMAT,
          "another rank", "a chunk of another rank" },
        { ONE(TENSOR(PROPERTIES, SIZE("4, 3"), "[" CHUNK("3, 0", "2, 3") "]")), TU_EFORMAT,
          "reaches out", "a chunk that reaches out" },
        { ONE(TENSOR(PROPERTIES, SIZE("9223372036854775807, 3"),
                     "[" CHUNK("0, 0", "9223372036854775807, 3") "]")), TU_ESIZE, "'w'", "2^63 rows" },
        { ONE(TENSOR(PROPERTIES, SIZE("4, 3"), "[" CHUNK("1, 0", "2, 3") "]")), TU_EINCOMPLETE,
          "'w': a chunk of it is stored nowhere", "a chunk without a place" },
        { PLACE(KEY0, "5"), TU_EFORMAT, "cannot be read", "a place that is 5" },
        { PLACE(KEY0, INFO("5", AT(0))), TU_EFORMAT, "cannot be read", "a file that is 5" },
        { PLACE(KEY0, INFO(FILE0, "'offset': -1, 'length': 1")), TU_EFORMAT, "cannot be read", "byte -1" },
        { PLACE(KEY0, INFO(FILE0, "'offset': 0")), TU_EFORMAT, "cannot be read", "no length" },
        { PLACE(KEY0, INFO(FILE0, AT(0) ", 'transform_descriptors': ['zstd']")), TU_EUNSUP,
          "'w': stored through a transform", "zstd" },
        { PLACE(KEY0, INFO(FILE0, AT(0) ", 'transform_descriptors': ('zstd',)")), TU_EUNSUP,
          "through a transform", "zstd in a tuple" },
        { PLACE(KEY0, INFO(FILE0, AT(0) ", 'transform_descriptors': 5")), TU_EUNSUP,
          "through a transform", "a transform that is 5" },
        { PLACE(KEY0, INFO("''", AT(0))), TU_EFORMAT, "is said to be in ''", "no file name" },
        { PLACE(KEY0, INFO("'/etc/passwd'", AT(0))), TU_EFORMAT, "in '/etc/passwd'", "a file elsewhere" },
        { PLACE(KEY0, INFO("'a/../../b'", AT(0))), TU_EFORMAT, "in 'a/../../b'", "a file above" },
        { PLACE(KEY0, INFO("'__9_0.distcp'", AT(0))), TU_EINCOMPLETE, "__9_0.distcp: missing",
          "a file that is not there" },
        { PLACE(KEY0, INFO(FILE0, "'offset': 0, 'length': 0")), TU_ETRUNC, "0 long", "no bytes" },
        { PLACE(KEY0, INFO(FILE0, "'offset': $o1, 'length': 5000")), TU_ETRUNC, "5000 long",
          "past the end" },
        { PLACE(KEY0, INFO(FILE0, "'offset': 0, 'length': 100")), TU_ETRUNC, "'w'", "half an archive" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_metadata(rows[i].value);
        fix_refused(fix_path("dcp"), NULL, NULL, rows[i].code, rows[i].words, rows[i].what);
    }
    fix_write("dcp/.metadata", "\x80\2N", 3);
    fix_refused(fix_path("dcp"), NULL, NULL, TU_ETRUNC, "without STOP", "half a pickle");
    unlink(fix_path("dcp/.metadata"));
    fix_refused(fix_path("dcp"), NULL, NULL, TU_EMAGIC, "a folder without tensor files", "no .metadata");
    fix_refused(fix_path("dcp"), tu_format_find("dcp"), NULL, TU_EINCOMPLETE,
                ".metadata: missing", "none, though asked");
}

#define STORAGE "@('storage', torch:FloatStorage, '0', 'cpu', 6)"
#define V2 "torch._utils:_rebuild_tensor_v2"

/* The archive of one chunk. */
static void archives(void)
{
    static const struct {
        const char *value; /* NULL: no data.pkl */
        size_t bytes;      /* of data/0; 0: none */
        int code;
        const char *words;
    } rows[] = {
        { V2 "(" STORAGE ", 0, (2, 3), (3, 1), False, None)", 24, 0, "" },
        { V2 "(" STORAGE ", 0, torch:Size((2, 3)), [3, 1], False, None)", 24, 0, "" },
        { "torch._utils:_rebuild_parameter(" V2 "(" STORAGE ", 0, (2, 3), (3, 1)))", 24, 0, "" },
        { NULL, 24, TU_EFORMAT, "'w': no data.pkl" },
        { "None", 0, TU_EFORMAT, "'w': its archive holds no tensor" },
        { V2 "(" STORAGE ", 0, (2, 3), (3, 1), False, None)", 20, TU_EUNSUP, "a view of 20 stored" },
        { V2 "(" STORAGE ", 0, (2, 3), (1, 2), False, None)", 24, TU_EUNSUP, "not 24 in C order" },
        { V2 "(" STORAGE ", 1, (2, 3), (3, 1), False, None)", 24, TU_EUNSUP, "in C order" },
        { V2 "(" STORAGE ", 0, (6,), (1,), False, None)", 24, TU_EUNSUP, "in C order" },
        { V2 "(" STORAGE ", 0, (2, 3), (3,), False, None)", 24, TU_EUNSUP, "in C order" },
        { V2 "(" STORAGE ", 0, (3, 2), (2, 1), False, None)", 24, TU_EUNSUP, "in C order" },
        { V2 "(" STORAGE ", 0, (2, 3))", 24, TU_EUNSUP, "in C order" },
        { V2 "(" STORAGE ", 0)", 24, TU_EUNSUP, "in C order" },
        { V2 "()", 24, TU_EUNSUP, "in C order" },
        { V2, 24, TU_EUNSUP, "in C order" },
        { "torch._utils:_rebuild_parameter", 24, TU_EUNSUP, "in C order" },
        { "torch._utils:_rebuild_parameter()", 24, TU_EUNSUP, "in C order" },
        { "torch._utils:_rebuild_parameter(5)", 24, TU_EUNSUP, "in C order" },
        { "torch._tensor:_rebuild_from_type_v2(" V2 ", 1, 2, 3)", 24, TU_EUNSUP, "in C order" },
        { "5", 24, TU_EUNSUP, "in C order" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pickled_record r[2];
        size_t n = 0;
        struct stat st;
        if (rows[i].value) {
            pickled(&pickle, rows[i].value);
            r[n++] = (struct pickled_record){ "x/data.pkl", pickle.data, pickle.n };
        }
        if (rows[i].bytes)
            r[n++] = (struct pickled_record){ "x/data/0", "abcdefghijklmnopqrstuvwxyz", rows[i].bytes };
        if (stat(pickled_zip("dcp/x.distcp", r, n), &st))
            abort();
        made = (uint64_t)st.st_size;
        put_metadata(META("'w': " TENSOR(PROPERTIES, SIZE("2, 3"), "[" CHUNK("0, 0", "2, 3") "]"),
                          KEY0 ": " INFO("'x.distcp'", "'offset': 0, 'length': $x")));
        if (rows[i].code) {
            fix_refused(fix_path("dcp"), NULL, NULL, rows[i].code, rows[i].words,
                        rows[i].value ? rows[i].value : "no pickle");
            continue;
        }
        struct tu_err err = { 0 };
        struct tu_source *s;
        char data[24];
        ok(!open_dcp(&s, &err) && !tu_source_read(s, 0, 0, data, 24, &err) &&
               !memcmp(data, "abcdefghijklmnopqrstuvwx", 24), "%s: %s", rows[i].value, err.msg);
        tu_source_close(s);
    }
}

/* What an object's bytes are: a value that is kept, or one that is not. */
static void objects(void)
{
    static const struct {
        const char *value, *json;
        int code;
    } rows[] = {
        { "{'a': (1, 2)}", "{\"objects\":{\"step\":{\"dict\":[[\"a\",{\"tuple\":[1,2]}]]}}}", 0 },
        { "{1: {2: nan}}", "{\"objects\":{\"step\":{\"dict\":[[1,{\"dict\":[[2,{\"real\":\"nan\"}]]}]]}}}", 0 },
        { "[[[[[[[[[[[[[]]]]]]]]]]]]]", "{\"objects\":{}}", 0 },
        { "{'a': @5}", "{\"objects\":{}}", 0 },
        { "a:b()!{'c': 1}", "{\"objects\":{\"step\":{\"class\":\"a b\",\"state\":{\"dict\":[[\"c\",1]]}}}}", 0 },
        { "a:b(1)+{'c': 1}+[2]", "{\"objects\":{\"step\":{\"appended\":[2],\"args\":[1],"
          "\"class\":\"a b\",\"items\":{\"dict\":[[\"c\",1]]}}}}", 0 },
        { "a:b(@5)", "{\"objects\":{}}", 0 },
        { "a:b()!@5", "{\"objects\":{}}", 0 },
        { "a:b(1)(2)", NULL, 0 },
        { NULL, "{\"objects\":{}}", 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_err err = { 0 };
        struct tu_source *s;
        struct stat st;
        if (rows[i].value && !rows[i].json)
            continue;
        if (rows[i].value) {
            pickled(&pickle, rows[i].value);
            const struct pickled_record r = { "x/data.pkl", pickle.data, pickle.n };
            if (stat(pickled_zip("dcp/x.distcp", &r, 1), &st))
                abort();
        } else if (stat(fix_write("dcp/x.distcp", "\x80\2N.", 4), &st)) { /* without an archive */
            abort();
        }
        made = (uint64_t)st.st_size;
        put_metadata(META("'step': " BYTES,
                          KEY("'step'", "None") ": " INFO("'x.distcp'", "'offset': 0, 'length': $x")));
        if (ok(!open_dcp(&s, &err), "object %s: %s", rows[i].value, err.msg))
            eq_str(s->meta[0].json, rows[i].json, "object %s", rows[i].value);
        tu_source_close(s);
    }
    put_metadata(META("'step': " BYTES, ""));
    fix_refused(fix_path("dcp"), NULL, NULL, TU_EINCOMPLETE, "'step'|stored nowhere", "no object");
    struct tu_err err = { 0 };
    struct tu_source *s;
    put_metadata(META("'step': " BYTES, KEY("'step'", "None") ": 5"));
    ok(!open_dcp(&s, &err) && !strcmp(s->meta[0].json, "{\"objects\":{}}"),
       "an object whose place cannot be read is none");
    tu_source_close(s);
}

static void bounds(void)
{
    struct tu_err err = { 0 };
    struct tu_sink *sink = NULL;
    const uint64_t far = UINT64_C(1) << 62;
    struct tu_tensor t[4];
    struct tu_place at[4];
    for (int i = 0; i < 4; i++)
        t[i] = fix_tensor("far", TU_U8, 1, &far);
    struct tu_save save = { .n = 4, .tensor = t };
    eq_int(tu_distcp_places(&save, at, NULL, &err), TU_ESIZE, "2^64 bytes");
    ok(strstr(err.msg, "'far': the file grows too large"), "%s", err.msg);
    t[0].bytes = UINT64_MAX;
    eq_int(tu_distcp_places(&save, at, NULL, &err), TU_ESIZE, "a tensor of 2^64 bytes");
    save.n = 0;
    ok(!tu_distcp_places(&save, at, NULL, &err), "nothing has no place");
    int fd[2];
    if (pipe(fd))
        abort();
    char path[64];
    snprintf(path, sizeof path, "/dev/fd/%d", fd[1]);
    eq_int(tu_sink_open(&sink, path, &tu_format_distcp, &save, NULL, &err), TU_EUSAGE, "a pipe");
    ok(strstr(err.msg, "cannot be written to a pipe"), "%s", err.msg);
    close(fd[0]);
    close(fd[1]);
    struct tu_tensor q = fix_tensor("q", TU_Q8_0, 1, (uint64_t[]){ 32 });
    save = (struct tu_save){ .n = 1, .tensor = &q };
    eq_int(tu_sink_open(&sink, fix_path("dcp/q.distcp"), &tu_format_distcp, &save, NULL, &err),
           TU_EDTYPE, "a block format");
    eq_int(tu_source_open(&(struct tu_source *){ 0 }, fix_path("dcp/x.distcp"), &tu_format_distcp, NULL,
                          NULL, &err), TU_EUSAGE, "it is only written");
}

int main(void)
{
    if (mkdir(fix_path("dcp"), 0777))
        abort();
    honest();
    refused();
    archives();
    objects();
    bounds();
    tu_buf_release(&pickle);
    tu_buf_release(&text);
    return tap_done();
}
