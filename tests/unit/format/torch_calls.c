/* SPDX-License-Identifier: Apache-2.0 */
/* torch_calls: what the object of a torch file may hold: calls that make tensors and calls that
 * do not, storages, values. Rows of objects as Python would print them, with what is to come
 * of each. */
#include "pickled.h"

#define F32 "torch:FloatStorage"
#define STORAGE(class, numel) "@('storage', " class ", '0', 'cpu', " numel ")"
#define V2 "torch._utils:_rebuild_tensor_v2"
#define V3 "torch._utils:_rebuild_tensor_v3"
#define WHOLE V2 "(" STORAGE(F32, "6") ", 0, (2, 3), (3, 1), False, None)"

static struct tu_buf pickle;
static unsigned char storage[64];

/* {…} with storage '0' of n bytes. */
static const char *file_of(const char *value, size_t n)
{
    for (size_t i = 0; i < sizeof storage; i++)
        storage[i] = (unsigned char)(i + 1);
    pickled(&pickle, value);
    const struct pickled_record r[] = { { "x/data.pkl", pickle.data, pickle.n },
                                        { "x/data/0", storage, n }, { "x/version", "3\n", 2 } };
    return pickled_zip("made.pt", r, 3);
}

/* Calls that make tensors --------------------------------------------------------------------- */

static void refused(void)
{
    static const struct {
        const char *value;
        int code;
        const char *words;
    } rows[] = {
        { V2 "(5, 0, (2, 3), (3, 1), False, None)", TU_EFORMAT, "malformed storage" },
        { V2 "(@5, 0, (2, 3), (3, 1), False, None)", TU_EFORMAT, "malformed storage" },
        { V2 "(@('storage', " F32 ", '0', 'cpu'), 0, (1,), (1,), False, None)", TU_EFORMAT,
          "malformed storage" },
        { V2 "(@('storage', " F32 ", '0', 'cpu', 6, None, 7), 0, (1,), (1,), False, None)",
          TU_EFORMAT, "malformed storage" },
        { V2 "(@(5, " F32 ", '0', 'cpu', 6), 0, (1,), (1,), False, None)", TU_EFORMAT,
          "malformed storage" },
        { V2 "(@('module', " F32 ", '0', 'cpu', 6), 0, (1,), (1,), False, None)", TU_EFORMAT,
          "malformed storage" },
        { V2 "(@('storage', 'FloatStorage', '0', 'cpu', 6), 0, (1,), (1,), False, None)",
          TU_EFORMAT, "malformed storage" },
        { V2 "(@('storage', " F32 ", 0, 'cpu', 6), 0, (1,), (1,), False, None)", TU_EFORMAT,
          "malformed storage" },
        { V2 "(@('storage', " F32 ", '0\\x00', 'cpu', 6), 0, (1,), (1,), False, None)", TU_EFORMAT,
          "malformed storage" },
        { V2 "(@('storage', " F32 ", '0', 'cpu', None), 0, (1,), (1,), False, None)", TU_EFORMAT,
          "malformed storage" },
        { V2 "(@('storage', " F32 ", '0', 'cpu', 6, (1, 2)), 0, (1,), (1,), False, None)",
          TU_ESIZE, "impossible size" },
        { V2 "(@('storage', " F32 ", '0', 'cpu', 6, 5), 0, (1,), (1,), False, None)", TU_ESIZE,
          "impossible size" },
        { V2 "(@('storage', " F32 ", '0', 'cpu', 6, ('1', None, 2)), 0, (1,), (1,), False, None)",
          TU_ESIZE, "impossible size" },
        { V2 "(@('storage', " F32 ", '0', 'cpu', 6, ('1', 2, None)), 0, (1,), (1,), False, None)",
          TU_ESIZE, "impossible size" },
        { V2 "(@('storage', " F32 ", '0', 'cpu', 6, ('1', 7, 0)), 0, (1,), (1,), False, None)",
          TU_ESIZE, "impossible size" },
        { V2 "(@('storage', " F32 ", '0', 'cpu', 6, ('1', 4, 3)), 0, (1,), (1,), False, None)",
          TU_ESIZE, "impossible size" },
        { V2 "(@('storage', " F32 ", '0', 'cpu', 6, ('1', 4, 2)), 0, (3,), (1,), False, None)",
          TU_ESIZE, "past the 2 elements" },
        { V2 "(" STORAGE(F32, "6") ", 0, (2, 3), (3, 1), False)", TU_EFORMAT, "with 5 arguments" },
        { V2 "(" STORAGE(F32, "6") ", None, (2, 3), (3, 1), False, None)", TU_EFORMAT,
          "malformed offset" },
        { V2 "(" STORAGE(F32, "6") ", 0, 6, (3, 1), False, None)", TU_EFORMAT, "must be tuples" },
        { V2 "(" STORAGE(F32, "6") ", 0, (2, 3), None, False, None)", TU_EFORMAT,
          "must be tuples" },
        { V2 "(" STORAGE(F32, "6") ", 0, torch:Size(), (3, 1), False, None)", TU_EFORMAT,
          "must be tuples" },
        { V2 "(" STORAGE(F32, "6") ", 0, torch:Shape((2, 3)), (3, 1), False, None)", TU_EFORMAT,
          "must be tuples" },
        { V2 "(" STORAGE(F32, "6") ", 0, (2, 'x'), (3, 1), False, None)", TU_EFORMAT,
          "must be numbers" },
        { V2 "(" STORAGE(F32, "6") ", 0, (2, 3), (1,), False, None)", TU_EFORMAT,
          "2 sizes and 1 strides" },
        { V2 "(" STORAGE(F32, "6") ", 0, (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
             "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1), (3, 1), "
             "False, None)", TU_ELIMIT, "65 dimensions, at most 64" },
        { V2 "(" STORAGE(F32, "6") ", 0, (2, 3), (3, 1), False, None, 5)", TU_EFORMAT,
          "malformed metadata" },
        { V2 "(" STORAGE(F32, "6") ", 0, (2, 3), (3, 1), False, None, {'conj': True})", TU_EUNSUP,
          "metadata that is not known" },
        { V2 "(" STORAGE(F32, "6") ", 0, (2, 3), (3, 1), False, None, {'zero': True})", TU_EUNSUP,
          "metadata that is not known" },
        { V2 "(" STORAGE(F32, "6") ", 0, (2, 3), (3, 1), False, None, {5: True})", TU_EUNSUP,
          "metadata that is not known" },
        { V2 "(" STORAGE(F32, "6") ", 0, (2, 3), (3, 1), False, None, {'neg': 1})", TU_EUNSUP,
          "metadata that is not known" },
        { V2 "(" STORAGE("torch:IntStorage", "6") ", 0, (2, 3), (3, 1), False, None, "
             "{'neg': True})", TU_EUNSUP, "metadata that is not known" },
        { V3 "(" STORAGE("torch.storage:UntypedStorage", "24") ", 0, (2, 3), (3, 1), False, None, "
             "torch:float99)", TU_EDTYPE, "a tensor of 'torch float99'" },
        { V3 "(" STORAGE("torch.storage:UntypedStorage", "24") ", 0, (2, 3), (1, 2), False, None, "
             "torch:float4_e2m1fn_x2)", TU_EUNSUP, "not contiguous" },
        { V3 "(" STORAGE("torch.storage:UntypedStorage", "24") ", 0, (), (), False, None, "
             "torch:float4_e2m1fn_x2)", TU_EUNSUP, "not contiguous" },
        { V3 "(" STORAGE("torch.storage:UntypedStorage", "24") ", 0, (0, 5000000000000000000), "
             "(1, 1), False, None, torch:float4_e2m1fn_x2)", TU_EUNSUP, "not contiguous" },
        { V3 "(" STORAGE("torch.storage:UntypedStorage", "24") ", 0, (2, 3), (3, 1), False, None)",
          TU_EFORMAT, "with 6 arguments" },
        { "torch._utils:_rebuild_sparse_csr_tensor(1)", TU_EUNSUP, "a sparse tensor" },
        { "torch._utils:_rebuild_nested_tensor(1)", TU_EUNSUP, "a nested tensor" },
        { "torch._utils:_rebuild_wrapper_subclass(1)", TU_EUNSUP, "a wrapper subclass" },
        { "torch._utils:_rebuild_next_year(1)", TU_EUNSUP, "kind that is not known here" },
        { "torch._tensor:_rebuild_from_type_v2(torch._utils:_rebuild_qtensor, None, (1,), None)",
          TU_EUNSUP, "a quantised tensor" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char value[2048], words[256];
        snprintf(value, sizeof value, "{'w': %s}", rows[i].value);
        snprintf(words, sizeof words, "'w'|%s", rows[i].words);
        fix_refused(file_of(value, 24), NULL, NULL, rows[i].code, words, rows[i].value);
    }
}

/* One tensor; its name, shape and first bytes. */
static void accepted(void)
{
    static const struct {
        const char *value, *name, *dtype, *shape;
        unsigned first, count;
    } rows[] = {
        { "{'w': " WHOLE "}", "w", "f32", "2x3", 1, 1 },
        { WHOLE, "tensor", "f32", "2x3", 1, 1 },
        { "{'w': torch._utils:_rebuild_parameter(" WHOLE ", True, None)}", "w", "f32", "2x3", 1, 1 },
        { "{'w': torch._utils:_rebuild_parameter_with_state(" WHOLE ", True, None, {})}", "w", "f32",
          "2x3", 1, 1 },
        { "{'w': torch._utils:_rebuild_tensor(" STORAGE(F32, "6") ", 1, torch:Size((2,)), [1])}", "w",
          "f32", "2", 5, 1 },
        { "{'w': " V2 "(@('storage', " F32 ", '0', 'cpu', 6, ('1', 2, 4)), 1, (2,), (2,), False, "
          "None)}", "w", "f32", "2", 13, 1 },
        { "{'w': " V2 "(@('storage', " F32 ", '0', 'cpu', 6, None), 1, (2,), (2,), False, None)}", "w",
          "f32", "2", 5, 1 },
        { "{'w': " V2 "(" STORAGE("torch.storage:TypedStorage", "24") ", 3, (2,), (1,), False, None)}",
          "w", "u8", "2", 4, 1 },
        { "{'w': " V2 "(" STORAGE("torch:UntypedStorage", "24") ", 4, (2,), (1,), False, None)}", "w",
          "u8", "2", 5, 1 },
        { "{'w': " V3 "(" STORAGE("torch.storage:UntypedStorage", "24") ", 0, (2, 3), (3, 1), False, "
          "None, torch:float4_e2m1fn_x2)}", "w", "f4_e2m1", "2x6", 1, 1 },
        { "{'w': " V3 "(" STORAGE("torch.storage:UntypedStorage", "24") ", 1, (2,), (1,), False, None, "
          "torch:uint16, {'neg': False})}", "w", "u16", "2", 3, 1 },
        { "{'w': " V2 "(" STORAGE(F32, "6") ", 0, (2,), (1,), False, None, {'neg': True})}", "w",
          "f32", "2", 1, 1 },
        { "{'w': torch._tensor:_rebuild_from_type_v2(" V2 ", torch:Tensor, (" STORAGE(F32, "6")
          ", 0, (2,), (1,), False, None), {'x': 1})}", "w", "f32", "2", 1, 1 },
        { "{'w': torch._tensor:_rebuild_from_type_v2(" V2 ", torch.distributed.tensor:DTensor, (1,), "
          "{'_local_tensor': " WHOLE "})}", "w", "f32", "2x3", 1, 1 },
        { "{'w': torch._tensor:_rebuild_from_type_v2(" V2 ", torch.distributed.tensor:DTensor, (1,), "
          "({'a': 1}, {'_local_tensor': " WHOLE "}))}", "w", "f32", "2x3", 1, 1 },
        { "{'a': [1, (2, " WHOLE ")]}", "a.1.1", "f32", "2x3", 1, 1 },
        { "{True: {False: {None: {1.5: {b'k': {-3: " WHOLE "}}}}}}", "True.False.None.1.5.k.-3",
          "f32", "2x3", 1, 1 },
        { "{nan: " WHOLE "}", "#0", "f32", "2x3", 1, 1 },
        { "{(1, 2): " WHOLE "}", "#0", "f32", "2x3", 1, 1 },
        { "{a:b: " WHOLE "}", "a b", "f32", "2x3", 1, 1 },
        { "{'s': frozenset[" WHOLE "]}", "s.0", "f32", "2x3", 1, 1 },
        { "m:Model*()!{'_modules': {'0': m:Linear*()!({'_parameters': {'w': " WHOLE "}}, None)}}",
          "0.1.0", NULL, NULL, 0, 0 },
        { "m:Model*()!{'_modules': {'0': m:Linear*()!{'_parameters': {'w': " WHOLE "}, 5: 6}}}", "0.w",
          "f32", "2x3", 1, 1 },
        { "m:Model*()!" WHOLE, "0", "f32", "2x3", 1, 1 },
        { "m:D*()+{'k': " WHOLE "}", "k", "f32", "2x3", 1, 1 },
        { "m:L*()+[" WHOLE "]", "0", "f32", "2x3", 1, 1 },
        { "m:f([" WHOLE "])", "0.0", "f32", "2x3", 1, 1 },
        { "{'w': " WHOLE ", 's': " STORAGE(F32, "6") "}", "w", "f32", "2x3", 1, 1 },
        /* a name of ours for what is no tensor */
        { "{'w': torch._tensor:_rebuild_from_type_v2(5, None, (1,), None)}", NULL, NULL, NULL, 0, 0 },
        { "{'w': torch._tensor:_rebuild_from_type_v2(a:b, None, 5, None)}", NULL, NULL, NULL, 0, 0 },
        { "{'w': torch._utils:_rebuild_parameter()}", NULL, NULL, NULL, 0, 0 },
        { "{'w': torch._utils:_rebuild_parameter(5)}", NULL, NULL, NULL, 0, 0 },
        { "{'w': torch._tensor:_rebuild_from_type_v2(a:b, torch.distributed.tensor:Other, (1,), "
          "{'_local_tensor': " WHOLE "})}", NULL, NULL, NULL, 0, 0 },
        { "{'w': torch._tensor:_rebuild_from_type_v2(a:b, 5, (1,), ({'_local_tensor': 6}, 7))}", NULL,
          NULL, NULL, 0, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_err err = { 0 };
        struct tu_source *s = NULL;
        struct tu_buf shape = { 0 };
        const char *path = file_of(rows[i].value, 24);
        if (!ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err), "read: %s", rows[i].value)) {
            printf("# %s\n", err.msg);
            continue;
        }
        if (rows[i].dtype && eq_u64(s->n, rows[i].count, "one tensor")) {
            unsigned char first[16] = { 0 };
            eq_str(s->tensor[0].name, rows[i].name, "its name");
            eq_str(tu_dtype_find(s->tensor[0].dtype)->name, rows[i].dtype, "its dtype");
            ok(!tu_shape_text(&shape, s->tensor[0].dim, s->tensor[0].rank, NULL), "shape");
            eq_str(shape.data, rows[i].shape, "its shape");
            ok(!tu_source_read(s, 0, 0, first, 1, &err) && first[0] == rows[i].first, "its bytes");
        }
        tu_buf_release(&shape);
        tu_source_close(s);
    }
    struct tu_source *s = NULL;
    unsigned char minus[4];
    ok(!tu_source_open(&s, file_of("{'w': " V2 "(" STORAGE(F32, "6") ", 0, (2,), (1,), False, None, "
                                   "{'neg': True})}", 24), NULL, NULL, NULL, NULL) &&
           !tu_source_read(s, 0, 0, minus, 4, NULL) && !memcmp(minus, "\1\2\3\x84", 4),
       "the neg bit turns the sign");
    tu_source_close(s);
}

/* Values -------------------------------------------------------------------------------------- */

static void values(void)
{
    static const struct {
        const char *value, *json;
    } rows[] = {
        { "None", "null" },
        { "True", "true" },
        { "9007199254740992", "9007199254740992" },
        { "9007199254740993", "{\"int\":\"9007199254740993\"}" },
        { "-9007199254740993", "{\"int\":\"-9007199254740993\"}" },
        { "1.5", "1.5" },
        { "nan", "{\"real\":\"nan\"}" },
        { "inf", "{\"real\":\"inf\"}" },
        { "-1.0e999", "{\"real\":\"-inf\"}" },
        { "'a\\x00b'", "{\"utf8\":\"610062\"}" },
        { "b'\\xfe'", "{\"bytes\":\"fe\"}" },
        { "[]", "[]" },
        { "()", "{\"tuple\":[]}" },
        { "(1, ())", "{\"tuple\":[1,{\"tuple\":[]}]}" },
        { "{}", "{\"dict\":[]}" },
        { "set[1, 2]", "{\"set\":[1,2]}" },
        { "frozenset['a']", "{\"frozenset\":[\"a\"]}" },
        { "a:b", "{\"global\":\"a b\"}" },
        { "a:b()", "{\"class\":\"a b\"}" },
        { "a:b([1], 'x')", "{\"args\":[[1],\"x\"],\"class\":\"a b\"}" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_err err = { 0 };
        struct tu_source *s = NULL;
        char value[256], json[256];
        snprintf(value, sizeof value, "{'v': %s}", rows[i].value);
        snprintf(json, sizeof json, "{\"values\":{\"v\":%s}}", rows[i].json);
        if (!ok(!tu_source_open(&s, file_of(value, 0), NULL, NULL, NULL, &err), "%s", value)) {
            printf("# %s\n", err.msg);
            continue;
        }
        eq_u64(s->metas, 1, "one META");
        eq_str(s->metas ? s->meta[0].json : NULL, json, "%s", value);
        tu_source_close(s);
    }
}

static void warn(void *ctx, const char *text)
{
    snprintf(ctx, 256, "%s", text);
}

/* What is left out is counted, and said. */
static void dropped(void)
{
    static const struct {
        const char *value;
        unsigned n;
    } rows[] = {
        { "{'a\\xff': 1}", 1 },                                  /* a name that is no text */
        { "{'a': 1, b'a': 2}", 1 },                              /* two values of one name */
        { "{'s': " STORAGE(F32, "6") "}", 1 },                   /* a storage without a tensor */
        { "{'a': a:b(" STORAGE(F32, "6") ")}", 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_err err = { 0 };
        struct tu_source *s = NULL;
        char said[256] = "", want[64];
        const struct tu_job job = { .warn = warn, .ctx = said };
        if (!ok(!tu_source_open(&s, file_of(rows[i].value, 24), NULL, NULL, &job, &err), "%s",
                rows[i].value)) {
            printf("# %s\n", err.msg);
            continue;
        }
        snprintf(want, sizeof want, "\"dropped\":%u", rows[i].n);
        ok(s->metas == 1 && strstr(s->meta[0].json, want), "%s: counted", rows[i].value);
        ok(strstr(said, "do not fit its metadata"), "%s: said: %s", rows[i].value, said);
        tu_source_close(s);
    }
}

/* Graphs that are small files and large objects. */
static void graphs(void)
{
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    struct tu_buf b = { 0 };
    if (tu_buf_text(&b, "{'d': ", NULL))
        abort();
    for (int i = 0; i < 1001; i++)
        if (tu_buf_text(&b, "[1,{},{1:", NULL))
            abort();
    if (tu_buf_text(&b, WHOLE, NULL))
        abort();
    for (int i = 0; i < 1001; i++)
        if (tu_buf_text(&b, "}]", NULL))
            abort();
    if (tu_buf_text(&b, "}", NULL))
        abort();
    fix_refused(file_of(b.data, 24), NULL, NULL, TU_ELIMIT, "nested deeper than 1000", "depth");
    tu_buf_release(&b);

    /* d1 = [d0, d0, …], d2 = [d1, d1, …]: 16^8 ways to one tensor */
    if (tu_buf_text(&b, WHOLE, NULL))
        abort();
    for (int level = 0; level < 8; level++) {
        char *inner = tu_buf_take(&b);
        b = (struct tu_buf){ 0 };
        if (tu_buf_printf(&b, NULL, "[%s,^,^,^,^,^,^,^,^,^,^,^,^,^,^,^]", inner))
            abort();
        tu_free(inner);
    }
    fix_refused(file_of(b.data, 24), NULL, NULL, TU_ELIMIT, "repeats itself", "sharing");
    tu_buf_release(&b);

    /* a dict that holds itself and a tensor: the tensor once */
    pickled_put(&b, "\x80\x02}q\0X\1\0\0\0sh\0s", 14);
    pickled(&pickle, WHOLE);
    pickled_put(&b, "X\1\0\0\0w", 6);
    pickled_put(&b, pickle.data + 2, pickle.n - 3);
    pickled_put(&b, "s.", 2);
    const struct pickled_record r[] = { { "x/data.pkl", b.data, b.n }, { "x/data/0", storage, 24 },
                                        { "x/version", "3\n", 2 } };
    if (ok(!tu_source_open(&s, pickled_zip("made.pt", r, 3), NULL, NULL, NULL, &err), "a cycle: %s",
           err.msg)) {
        ok(s->n == 1 && !strcmp(s->tensor[0].name, "w"), "a cycle is entered once");
        tu_source_close(s);
    }
    tu_buf_release(&b);
}

/* Records of the zip -------------------------------------------------------------------------- */

static void records(void)
{
    static const struct {
        struct pickled_record r[4];
        int code;
        const char *words;
    } rows[] = {
        { { { "x/other", "a", 1 } }, TU_EMAGIC, "without a data.pkl" },
        { { { "x/data.pkl", "\x80\2N.", 4 } }, TU_EFORMAT, "no version record" },
        { { { "x/data.pkl", "\x80\2N.", 4 }, { "x/version", "", 0 } }, TU_EVERSION, "version record ''" },
        { { { "x/data.pkl", "\x80\2N.", 4 }, { "x/version", "three", 5 } }, TU_EVERSION, "'three'" },
        { { { "x/data.pkl", "\x80\2N.", 4 }, { "x/version", "3 ", 2 } }, TU_EVERSION, "'3 '" },
        { { { "x/data.pkl", "\x80\2N.", 4 }, { "x/version", "0", 1 } }, TU_EVERSION, "expected 1 to 10" },
        { { { "x/data.pkl", "\x80\2N.", 4 }, { "x/version", "11", 2 } }, TU_EVERSION, "'11'" },
        { { { "x/data.pkl", "\x80\2N.", 4 }, { "x/version", "99999999", 8 } }, TU_EVERSION, "'9999" },
        { { { "x/data.pkl", "\x80\2N.", 4 }, { "x/version", "3\n3", 3 } }, TU_EVERSION, "expected" },
        { { { "x/data.pkl", "\x80\2N.", 4 }, { "x/version", "3\n", 2 }, { "x/byteorder", "bog", 3 } },
          TU_EFORMAT, "neither little nor big" },
        { { { "x/data.pkl", "\x80\2N.", 4 }, { "x/version", "3\n", 2 }, { "x/byteorder", "bottle", 6 } },
          TU_EFORMAT, "neither little nor big" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = 0;
        while (n < 4 && rows[i].r[n].name)
            n++;
        fix_refused(pickled_zip("records.pt", rows[i].r, n), tu_format_find("torch"), NULL,
                    rows[i].code, rows[i].words, rows[i].words);
    }
    struct tu_source *s = NULL;
    const struct pickled_record good[] = {
        { "x/data.pkl", "\x80\2N.", 4 }, { "x/version", "10", 2 }, { "x/byteorder", "little", 6 },
        { "y/code/a.py", "", 0 }, { "xcode/", "", 0 } };
    ok(!tu_source_open(&s, pickled_zip("records.pt", good, 5), NULL, NULL, NULL, NULL) && !s->n,
       "version 10, little-endian, code of another folder");
    tu_source_close(s);
}

/* Files before torch 1.6 ---------------------------------------------------------------------- */

#define MAGIC "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."

static void legacy(void)
{
    static const struct {
        const char *part[4]; /* protocol, system, object, keys */
        unsigned count, bytes;
        int code;
        const char *words;
    } rows[] = {
#define SYSTEM "{'little_endian': True}"
        { { "1001", SYSTEM, "{'w': " WHOLE "}", "['0']" }, 6, 24, 0, "" },
        { { "1001", SYSTEM, "{'w': " WHOLE ", 'v': " WHOLE "}", "['0']" }, 6, 24, 0, "" },
        { { "1002", SYSTEM, "{'w': " WHOLE "}", "['0']" }, 6, 24, TU_EUNSUP, "protocol version at byte 15" },
        { { "'1001'", SYSTEM, "{'w': " WHOLE "}", "['0']" }, 6, 24, TU_EUNSUP, "protocol version" },
        { { "1001", "{'little_endian': False}", "{'w': " WHOLE "}", "['0']" }, 6, 24, TU_EUNSUP,
          "description of the system" },
        { { "1001", "{'little_endian': 1}", "{'w': " WHOLE "}", "['0']" }, 6, 24, TU_EUNSUP,
          "description of the system" },
        { { "1001", "{}", "{'w': " WHOLE "}", "['0']" }, 6, 24, TU_EUNSUP, "description of the system" },
        { { "1001", SYSTEM, "{'w': " WHOLE "}", "'0'" }, 6, 24, TU_EFORMAT, "storage keys are no list" },
        { { "1001", SYSTEM, "{'w': " WHOLE "}", "[0]" }, 6, 24, TU_EFORMAT, "storage key 0 is no text" },
        { { "1001", SYSTEM, "{'w': " WHOLE "}", "['0', '1\\x00']" }, 6, 24, TU_EFORMAT, "storage key 1" },
        { { "1001", SYSTEM, "{'w': " WHOLE "}", "['1', '0', '1']" }, 6, 24, TU_EFORMAT, "'1' stands twice" },
        { { "1001", SYSTEM, "{'w': " WHOLE "}", "[]" }, 6, 24, TU_EINCOMPLETE, "'w'|not in the list of keys" },
        { { "1001", SYSTEM, "{'w': " WHOLE "}", "['1', '2']" }, 6, 24, TU_EINCOMPLETE, "not in the list" },
        { { "1001", SYSTEM, "{'w': " WHOLE "}", "['0', '2']" }, 6, 24, TU_EUNSUP, "'2' is in no tensor" },
        { { "1001", SYSTEM, "{'w': " WHOLE "}", "['0']" }, 6, 23, TU_ETRUNC, "needs 32 bytes, the file ends" },
        { { "1001", SYSTEM, "{'w': " WHOLE "}", "['0']" }, 5, 24, TU_ESIZE, "has 5 elements, the object says 6" },
        { { "1001", SYSTEM, "{'w': " WHOLE "}", "['0']" }, 6, 25, TU_EGARBAGE, "1 bytes follow" },
        { { "1001", SYSTEM, "{'w': " WHOLE ", 'v': " V2 "(" STORAGE(F32, "5") ", 0, (1,), (1,))}", "['0']" },
          6, 24, TU_EFORMAT, "with 4 arguments" },
        { { "1001", SYSTEM, "{'w': " WHOLE ", 'v': " V2 "(" STORAGE(F32, "5") ", 0, (1,), (1,), False, None)}",
            "['0']" }, 6, 24, TU_EFORMAT, "two types or sizes" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_buf b = { 0 };
        unsigned char count[8];
        pickled_put(&b, MAGIC, sizeof MAGIC - 1);
        for (int k = 0; k < 4; k++) {
            pickled(&pickle, rows[i].part[k]);
            pickled_put(&b, pickle.data, pickle.n);
        }
        tu_put64(count, rows[i].count);
        pickled_put(&b, count, 8);
        pickled_put(&b, storage, rows[i].bytes);
        const char *path = fix_write("legacy.pt", b.data, b.n);
        if (rows[i].code) {
            fix_refused(path, NULL, NULL, rows[i].code, rows[i].words, rows[i].words);
        } else {
            struct tu_err err = { 0 };
            struct tu_source *s = NULL;
            unsigned char data[24];
            ok(!tu_source_open(&s, path, NULL, NULL, NULL, &err) && !tu_source_read(s, 0, 0, data, 24, &err) &&
                   !memcmp(data, storage, 24), "row %zu: %s", i, err.msg);
            if (s)
                ok(!tu_source_summed(s, 0) && !tu_source_verify(s, 0, NULL, &err), "has no checksums");
            tu_source_close(s);
        }
        tu_buf_release(&b);
    }
    /* an object that is longer than what is read at first */
    struct tu_buf b = { 0 }, object = { 0 };
    pickled_put(&object, "{'w': [", 7);
    for (int i = 0; i < 20000; i++)
        if (tu_buf_printf(&object, NULL, "%d,", i))
            abort();
    pickled_put(&object, "]}", 2);
    pickled_put(&b, MAGIC, sizeof MAGIC - 1);
    const char *const part[] = { "1001", SYSTEM, object.data, "[]" };
    for (int k = 0; k < 4; k++) {
        pickled(&pickle, part[k]);
        pickled_put(&b, pickle.data, pickle.n);
    }
    struct tu_source *s = NULL;
    struct tu_err err = { 0 };
    ok(!tu_source_open(&s, fix_write("legacy.pt", b.data, b.n), NULL, NULL, NULL, &err) && s->n == 0,
       "an object of 200 kB: %s", err.msg);
    tu_source_close(s);
    tu_buf_release(&object);
    tu_buf_release(&b);
}

/* What looks like torch and is not: the name of the old tar's first member, and what is none. */
static void strangers(void)
{
    static const struct {
        const char *first;
        bool ustar;
        int code;
        const char *words;
    } rows[] = {
        { "sys_info", true, TU_EUNSUP, "a tar of torch 0.1" },
        { "./storages", true, TU_EUNSUP, "a tar of torch 0.1" },
        { "weights.txt", true, TU_EMAGIC, "a tar archive" },
        { "./weights.txt", true, TU_EMAGIC, "a tar archive" },
        { "sys_info", false, TU_EMAGIC, "no known tensor file begins with" },
        { "\x80\2}q", false, TU_EUNSUP, "a bare pickle" },
        { "\x80\6}q", false, TU_EMAGIC, "no known tensor file" },
        { "\x80\1}q", false, TU_EMAGIC, "no known tensor file" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char head[512] = "";
        snprintf(head, 100, "%s", rows[i].first);
        if (rows[i].ustar)
            memcpy(head + 257, "ustar", 5);
        fix_refused(fix_write("stranger", head, sizeof head), NULL, NULL, rows[i].code, rows[i].words,
                    rows[i].first);
    }
    fix_refused(fix_write("stranger", "hello, world", 12), tu_format_find("torch"), NULL, TU_EMAGIC,
                "not a torch file", "text");
    fix_refused(fix_write("stranger", "\x80", 1), NULL, NULL, TU_EMAGIC, "begins with bytes 80", "one byte");
    struct tu_open strict = { .strict = true };
    fix_refused(file_of("{'w': " WHOLE ", 'm': os:system('id')}", 24), NULL, &strict, TU_EUNSUP,
                "global 'os system' is not one of an honest checkpoint", "strict");
    struct tu_source *s = NULL;
    ok(!tu_source_open(&s, file_of("{'w': " WHOLE "}", 24), NULL, &strict, NULL, NULL), "strict, and honest");
    tu_source_close(s);
}

int main(void)
{
    legacy();
    strangers();
    refused();
    accepted();
    values();
    dropped();
    graphs();
    records();
    tu_buf_release(&pickle);
    return tap_done();
}
