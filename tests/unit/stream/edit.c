/* SPDX-License-Identifier: Apache-2.0 */
/* edit: rules about names, what they make of a tensor, its metadata, its payload and META
 * contents; and the values that are generated.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include "../inject.h"
#include "kit.h"

/* What a rule is given by, in the letters of add(). */
static int add(struct tu_edit *e, char kind, const char *text, struct tu_err *err)
{
    switch (kind) {
    case 'k': return tu_edit_keep(e, text, TU_PATTERN_GLOB, err);
    case 'K': return tu_edit_keep(e, text, TU_PATTERN_REGEX, err);
    case 'd': return tu_edit_drop(e, text, TU_PATTERN_REGEX, err);
    case 'r': return tu_edit_rename(e, text, err);
    case 's': return tu_edit_slice(e, text, err);
    default: return tu_edit_cast(e, text, err);
    }
}

/* An edit of rules "kTEXT" up to NULL. */
static struct tu_edit *edit_of(const char *const *rule)
{
    struct tu_edit *e = NULL;
    struct tu_err err;
    kit_must(!tu_edit_new(&e, &err), "edit");
    for (; *rule; rule++)
        if (add(e, **rule, *rule + 1, &err)) {
            printf("# %s: %s\n", *rule, err.msg);
            kit_must(false, "rule");
        }
    return e;
}

static void bad_rules(void)
{
    static const struct {
        const char *rule, *words;
    } rows[] = {
        {"K(", "("},
        {"d(", "("},
        {"rname", "'name': expected REGEX=REPLACEMENT"},
        {"r(=b", "("},
        {"s(=1:2", "("},
        {"s1:2:3", "1:2:3"},
        {"c(=f32", "("},
        {"cf99", "'f99': unknown dtype"},
        {"cw=f99", "'f99': unknown dtype"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_edit *e = NULL;
        struct tu_err err = {0};
        kit_must(!tu_edit_new(&e, &err), "edit");
        eq_int(add(e, *rows[i].rule, rows[i].rule + 1, &err), TU_EUSAGE, "rule '%s'",
               rows[i].rule);
        ok(strstr(err.msg, rows[i].words), "says: %s", err.msg);
        ok(add(e, *rows[i].rule, rows[i].rule + 1, NULL) == TU_EUSAGE, "and without an err");
        tu_edit_free(e);
    }
    tu_edit_free(NULL);
}

#define META_QUANT                                                                       \
    "{\"quant\":{\"codec\":\"x\",\"index\":5,\"meta\":\"w.m\",\"scale\":\"w.s\"},"      \
    "\"src\":{\"a\":1}}"

static void plans(void)
{
    static const struct {
        const char *rule[4], *meta;
        uint32_t dtype;
        int code;
        const char *name, *out_meta, *shape, *words;
    } rows[] = {
        {{0}, NULL, TU_F32, 0, "w.a", NULL, "4x6", NULL},
        {{"kw.*"}, NULL, TU_F32, 0, "w.a", NULL, "4x6", NULL},
        {{"kv.*"}, NULL, TU_F32, 0, NULL, NULL, NULL, NULL},
        {{"kw.*", "dw.a"}, NULL, TU_F32, 0, NULL, NULL, NULL, NULL},
        {{"kv.*", "k*.a", "db"}, NULL, TU_F32, 0, "w.a", NULL, "4x6", NULL},
        {{"rw=v", "rv.(.)=$1.u"}, NULL, TU_F32, 0, "a.u", NULL, "4x6", NULL},
        {{"rnothing=x"}, NULL, TU_F32, 0, "w.a", NULL, "4x6", NULL},
        {{"rw=v"}, "{\"a\":1}", TU_F32, 0, "v.a", "{\"a\":1}", "4x6", NULL},
        {{"rw=v"}, META_QUANT, TU_F32, 0, "v.a",
         "{\"quant\":{\"codec\":\"x\",\"index\":5,\"meta\":\"v.m\",\"scale\":\"v.s\"},"
         "\"src\":{\"a\":1}}", "4x6", NULL},
        {{"cf16"}, "{\"src\":{\"a\":1}}", TU_F32, 0, "w.a", NULL, "4x6", NULL},
        {{"cf16"}, "{\"b\":2,\"src\":{\"a\":1}}", TU_F32, 0, "w.a", "{\"b\":2}", "4x6", NULL},
        {{"cf32"}, "{\"src\":{}}", TU_F32, 0, "w.a", "{\"src\":{}}", "4x6", NULL},
        {{"cf16"}, NULL, TU_I32, 0, "w.a", NULL, "4x6", NULL},
        {{"cw=f16", "cf64"}, NULL, TU_I32, 0, "w.a", NULL, "4x6", NULL},
        {{"s1:3,2"}, "{\"a\":1}", TU_F32, 0, "w.a", "{\"a\":1}", "2", NULL},
        {{"sv=0", "sw=:,:0", "s0"}, NULL, TU_F32, 0, "w.a", NULL, "4x0", NULL},
        {{"s0"}, "{\"shard\":{}}", TU_F32, TU_EUNSUP, NULL, NULL, NULL, "join it first"},
        {{"s0"}, "{\"flat\":{}}", TU_F32, TU_EUNSUP, NULL, NULL, NULL, "join it first"},
        {{"s0"}, META_QUANT, TU_F32, TU_EUNSUP, NULL, NULL, NULL, "scales are elsewhere"},
        {{"cf16"}, META_QUANT, TU_F32, TU_EUNSUP, NULL, NULL, NULL, "scales are elsewhere"},
        {{"s9"}, NULL, TU_F32, TU_EUSAGE, NULL, NULL, NULL, "9"},
        {{"cw=i8"}, NULL, TU_C64, TU_EUSAGE, NULL, NULL, NULL, "c64 cannot be cast to i8"},
        {{"rw=v"}, "[1]", TU_F32, TU_EMETA, NULL, NULL, NULL, "object"},
    };
    const uint64_t dim[] = {4, 6};
    struct tu_edit_plan *p = malloc(sizeof *p);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_edit *e = edit_of(rows[i].rule);
        struct tu_tensor t = {"w.a", rows[i].dtype, 2, dim, 0, rows[i].meta};
        struct tu_err err = {0};
        struct tu_buf shape = {0};
        kit_must(!tu_tensor_bytes(t.dtype, dim, 2, &t.bytes, &err), "bytes");
        eq_int(tu_edit_tensor(e, p, &t, &err), rows[i].code, "plan %zu: %s", i, err.msg);
        if (rows[i].code) {
            ok(strstr(err.msg, "'w.a'") && strstr(err.msg, rows[i].words), "says: %s", err.msg);
            eq_int(tu_edit_tensor(e, p, &t, NULL), rows[i].code, "and without an err");
        } else if (!rows[i].name) {
            ok(!p->keep, "plan %zu: left out", i);
        } else {
            uint64_t bytes;
            kit_must(!tu_shape_text(&shape, p->out.dim, p->out.rank, &err) &&
                         !tu_tensor_bytes(p->out.dtype, p->out.dim, p->out.rank, &bytes, &err),
                     "shape");
            ok(p->keep, "plan %zu: kept", i);
            eq_str(p->out.name, rows[i].name, "plan %zu: name", i);
            eq_str(p->out.meta, rows[i].out_meta, "plan %zu: metadata", i);
            eq_str(shape.data, rows[i].shape, "plan %zu: shape", i);
            eq_u64(p->out.bytes, bytes, "plan %zu: bytes", i);
            ok(p->same == (!strcmp(p->out.name, "w.a") && p->out.dtype == t.dtype &&
                           !strcmp(rows[i].shape, "4x6") && p->out.meta == t.meta),
               "plan %zu: same", i);
            ok(tu_edit_changes(e) == (rows[i].rule[0] != NULL), "plan %zu: changes", i);
        }
        tu_buf_release(&shape);
        tu_edit_free(e);
    }
    free(p);
}

static void contents(void)
{
    static const struct {
        const char *rule[3], *from, *to;
        int code;
    } rows[] = {
        {{"da"}, "{\"k\":1,\"tensors\":[[\"a\",\"u8\",[1]],[\"b\",\"f32\",[]]]}",
         "{\"k\":1,\"tensors\":[[\"b\",\"f32\",[]]]}", 0},
        {{"rb=c", "cf16"}, "{\"tensors\":[[\"a\",\"u8\",[1]],[\"b\",\"f32\",[2,3]]]}",
         "{\"tensors\":[[\"a\",\"u8\",[1]],[\"c\",\"f16\",[2,3]]]}", 0},
        {{"rb=c"}, "{\"tensors\":[[\"b\",\"u8\",[9007199254740992,0]]]}",
         "{\"tensors\":[[\"c\",\"u8\",[9007199254740992,0]]]}", 0},
        {{"rb=c"}, "{\"tensors\":[[\"b\",\"u8\",[\"9007199254740993\",0]]]}",
         "{\"tensors\":[[\"c\",\"u8\",[\"9007199254740993\",0]]]}", 0},
        {{"rb=c"}, "{}", "{\"tensors\":[]}", 0},
        {{"rb=c"}, "{", NULL, TU_EMETA},
        {{"rb=c"}, "{\"tensors\":[5]}", NULL, TU_EMETA},
        {{"rb=c"}, "{\"tensors\":[[5,\"u8\",[1]]]}", NULL, TU_EMETA},
        {{"rb=c"}, "{\"tensors\":[[\"a\",5,[1]]]}", NULL, TU_EMETA},
        {{"rb=c"}, "{\"tensors\":[[\"a\",\"u9\",[1]]]}", NULL, TU_EMETA},
        {{"rb=c"}, "{\"tensors\":[[\"a\",\"u8\",1]]}", NULL, TU_EMETA},
        {{"rb=c"}, "{\"tensors\":[[\"a\",\"u8\",[-1]]]}", NULL, TU_EMETA},
        {{"rb=c"}, "{\"tensors\":[[\"a\",\"u8\",[\"x\"]]]}", NULL, TU_EMETA},
        {{"rb=c"}, "{\"tensors\":[[\"a\",\"u8\",[\"9223372036854775808\"]]]}", NULL, TU_EMETA},
        {{"rb=c"}, "{\"tensors\":[[\"a\",\"u8\",[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                   "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                   "1,1,1,1,1]]]}", NULL, TU_EMETA},
        {{"s9"}, "{\"tensors\":[[\"a\",\"u8\",[1]]]}", NULL, TU_EUSAGE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_edit *e = edit_of(rows[i].rule);
        struct tu_err err = {0};
        const char *text;
        size_t n;
        int rc = tu_edit_contents(e, rows[i].from, strlen(rows[i].from), &text, &n, &err);
        eq_int(rc, rows[i].code, "contents %zu: %s", i, err.msg);
        if (!rc)
            ok(n == strlen(text) && !strcmp(text, rows[i].to), "contents %zu: %s", i, text);
        tu_edit_free(e);
    }
}

/* Bytes in pieces of 1, 2, 3, … */
struct source {
    const unsigned char *p;
    size_t n, at, step;
    int fail; /* the code given at the end */
};

static int pull(void *ctx, void *buf, size_t n, size_t *got, struct tu_err *err)
{
    struct source *s = ctx;
    *got = n < s->step ? n : s->step;
    *got = *got < s->n - s->at ? *got : s->n - s->at;
    memcpy(buf, s->p + s->at, *got);
    s->at += *got;
    s->step = s->step % 9000 + 1;
    return !*got && s->fail ? tu_fail(err, s->fail, "the source ends") : 0;
}

/* An arange of u16 [300, 100], rows 7 to 250 and columns 3 to 90, as f32. */
static int flow(const char *const *rule, float *out, size_t *out_n, int fail,
                struct tu_err *err)
{
    enum { ROWS = 300, COLUMNS = 100 };
    static uint16_t v[ROWS * COLUMNS];
    const uint64_t dim[] = {ROWS, COLUMNS};
    const struct tu_tensor t = {"w", TU_U16, 2, dim, sizeof v, NULL};
    struct tu_edit_plan *p = malloc(sizeof *p);
    struct source s = {(const unsigned char *)v, sizeof v, 0, 1, fail};
    struct tu_edit_flow f;
    struct tu_edit *e = edit_of(rule);
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        v[i] = (uint16_t)i;
    *out_n = 0;
    int rc = tu_edit_tensor(e, p, &t, err);
    if (!rc)
        rc = tu_edit_flow_begin(&f, p, pull, &s, err);
    for (size_t got = 1; !rc && got;) {
        const void *bytes;
        rc = tu_edit_flow_next(&f, &bytes, &got, err);
        if (!rc)
            memcpy((char *)out + *out_n, bytes, got);
        *out_n += rc ? 0 : got;
    }
    if (s.at)
        tu_edit_flow_end(&f);
    tu_edit_free(e);
    free(p);
    return rc;
}

static void payload(void)
{
    static float out[300 * 100];
    struct tu_err err = {0};
    size_t n, wrong = 0;
    ok(!flow((const char *const[]){"s7:250,3:90", "cw=f32", NULL}, out, &n, 0, &err), "flow");
    eq_u64(n, 243 * 87 * 4, "slice and cast: bytes");
    for (size_t i = 0; i < 243 * 87; i++)
        wrong += out[i] != (float)((7 + i / 87) * 100 + 3 + i % 87);
    eq_u64(wrong, 0, "slice and cast: values");
    ok(!flow((const char *const[]){"s7:250,3:90", NULL}, out, &n, 0, &err), "flow");
    eq_u64(n, 243 * 87 * 2, "slice alone: bytes");
    for (size_t i = wrong = 0; i < 243 * 87; i++)
        wrong += ((uint16_t *)(void *)out)[i] != (7 + i / 87) * 100 + 3 + i % 87;
    eq_u64(wrong, 0, "slice alone: values");
    eq_int(flow((const char *const[]){"cw=f32", NULL}, out, &n, TU_EPCRC, &err), TU_EPCRC,
           "the source fails");
    eq_u64(n, sizeof out, "after all that came before");
}

/* Every allocation of rules, plans, contents and payload. */
static int all_of(const void *arg, struct tu_err *err)
{
    (void)arg;
    static const char *const rule[] = {"kw*", "dv", "r(w)=$1$1", "s1:", "cw=f32"};
    static const char meta[] = "{\"quant\":{\"scale\":\"w.s\"}}", plain[] = "{\"a\":1}";
    static const char list[] = "{\"tensors\":[[\"w\",\"f32\",[3]]]}";
    const struct tu_tensor t = {"w", TU_U16, 1, (const uint64_t[]){3}, 6, plain};
    struct tu_tensor q = {"x", TU_U16, 1, (const uint64_t[]){3}, 6, meta};
    struct source s = {(const unsigned char *)"abcdef", 6, 0, 1, 0};
    struct tu_edit_flow f = {0};
    struct tu_edit *e = NULL, *names = NULL;
    struct tu_edit_plan *p = malloc(sizeof *p);
    const void *bytes;
    const char *text;
    size_t n;
    int rc = tu_edit_new(&e, err);
    for (size_t i = 0; !rc && i < 5; i++)
        rc = add(e, *rule[i], rule[i] + 1, err);
    if (!rc)
        rc = tu_edit_new(&names, err);
    if (!rc)
        rc = add(names, 'r', "w=v", err);
    if (!rc)
        rc = tu_edit_tensor(names, p, &q, err);
    if (!rc && strcmp(p->out.meta, "{\"quant\":{\"scale\":\"v.s\"}}"))
        rc = TU_EBUG;
    if (!rc)
        rc = tu_edit_contents(e, list, strlen(list), &text, &n, err);
    if (!rc && strcmp(text, "{\"tensors\":[[\"ww\",\"f32\",[2]]]}"))
        rc = TU_EBUG;
    if (!rc)
        rc = tu_edit_tensor(e, p, &t, err);
    if (!rc)
        rc = tu_edit_flow_begin(&f, p, pull, &s, err);
    for (n = 1; !rc && n;)
        rc = tu_edit_flow_next(&f, &bytes, &n, err);
    tu_edit_flow_end(&f);
    tu_edit_free(e);
    tu_edit_free(names);
    free(p);
    return rc;
}

static void injected(void)
{
    inject_memory(&(struct inject){.name = "edits", .run = all_of});
}

/* Generated values ------------------------------------------------------------------------ */

static struct tu_gen gen_of(enum tu_gen_dist dist)
{
    struct tu_gen g;
    tu_gen_defaults(&g);
    g.dist = dist;
    g.seed = 7;
    return g;
}

static void known(void)
{
    struct tu_err err = {0};
    struct tu_gen g = gen_of(TU_GEN_ARANGE);
    const uint64_t dim[] = {2, 3};
    const struct tu_tensor i32 = {"t", TU_I32, 2, dim, 24, NULL}, c64 = {"t", TU_C64, 2, dim, 48, NULL};
    const struct tu_tensor q = {"t", TU_Q4_0, 2, dim, 0, NULL}, odd = {"t", 0x7ffe, 2, dim, 0, NULL};
    int32_t v[6];
    float z[12];
    g.lo = 5;
    g.step = 2;
    ok(!tu_gen_fill(&g, &i32, 0, 6, v, &err) && v[0] == 5 && v[5] == 15, "arange: lo and step");
    ok(!tu_gen_fill(&g, &i32, 4, 2, v, &err) && v[0] == 13 && v[1] == 15, "arange: from the middle");
    ok(!tu_gen_fill(&g, &c64, 0, 6, z, &err) && z[0] == 5 && z[11] == 27,
       "arange: the parts of a complex number are counted");
    g = gen_of(TU_GEN_CONSTANT);
    g.value = -3;
    ok(!tu_gen_fill(&g, &i32, 0, 6, v, &err) && v[0] == -3 && v[5] == -3, "constant");
    eq_int(tu_gen_fill(&g, &q, 0, 6, v, &err), TU_EDTYPE, "block formats: %s", err.msg);
    eq_int(tu_gen_fill(&g, &odd, 0, 6, v, &err), TU_EDTYPE, "no dtype: %s", err.msg);
    tu_mem_inject(1, 0);
    eq_int(tu_gen_fill(&g, &i32, 0, 6, v, &err), TU_ENOMEM, "no memory");
    tu_mem_inject(0, 0);
    enum tu_gen_dist found;
    const char *help;
    for (size_t i = 0; tu_gen_name(i, &help); i++)
        ok(!tu_gen_find(&found, tu_gen_name(i, &help), &err) && found == i && *help, "row %zu", i);
    eq_int(tu_gen_find(&found, "cauchy", &err), TU_EUSAGE, "says: %s", err.msg);
}

static void random_values(void)
{
    enum { WIDTH = 100, N = 100 * WIDTH };
    static float v[N], w[N];
    static int8_t small[N];
    static unsigned char f4[N / 2];
    const uint64_t dim[] = {N / WIDTH, WIDTH};
    struct tu_err err = {0};
    const struct tu_tensor f32 = {"t", TU_F32, 2, dim, sizeof v, NULL};
    const struct tu_tensor i8 = {"t", TU_I8, 2, dim, N, NULL}, e2m1 = {"t", TU_F4_E2M1, 2, dim, N / 2, NULL};
    struct tu_gen g = gen_of(TU_GEN_NORMAL);
    double sum = 0, square = 0;
    ok(!tu_gen_fill(&g, &f32, 0, N, v, &err), "normal");
    for (size_t i = 0; i < N; i++) {
        sum += v[i];
        square += (double)v[i] * v[i];
    }
    ok(sum / N < 0.05 && sum / N > -0.05 && square / N > 0.95 && square / N < 1.05,
       "normal: mean %.3f, variance %.3f", sum / N, square / N);
    ok(!tu_gen_fill(&g, &f32, 5000, 100, w, &err) && !memcmp(w, v + 5000, 400),
       "a part is that of the whole");
    g.mean = 100;
    g.std = 0.5;
    ok(!tu_gen_fill(&g, &f32, 0, 10, w, &err) && w[3] == (float)(100 + 0.5 * (double)v[3]),
       "mean and std");
    ok(!tu_gen_fill(&g, &i8, 0, N, small, &err) && small[0] >= 97 && small[0] <= 103, "as i8");
    g = gen_of(TU_GEN_UNIFORM);
    g.lo = -1;
    g.hi = 3;
    unsigned out = 0, high = 0;
    ok(!tu_gen_fill(&g, &f32, 0, N, w, &err), "uniform");
    for (size_t i = 0; i < N; i++) {
        out += w[i] < -1 || w[i] >= 3;
        high += w[i] >= 1;
    }
    ok(!out && high > N * 45 / 100 && high < N * 55 / 100, "uniform: within, and even: %u", high);
    ok(!tu_gen_fill(&g, &e2m1, 0, N, f4, &err) && f4[0] | f4[1] | f4[2], "as packed floats");
    g = gen_of(TU_GEN_OUTLIER);
    unsigned scaled = 0, kept = 0;
    ok(!tu_gen_fill(&g, &f32, 0, N, w, &err), "outlier");
    for (size_t i = 0; i < WIDTH; i++) {
        scaled += w[i] == v[i] * 20;
        kept += w[i] == v[i];
    }
    ok(scaled == 4 && kept == WIDTH - 4, "outlier: %u channels of %u are scaled", scaled, WIDTH);
    g.channels = 0;
    ok(!tu_gen_fill(&g, &f32, 0, N, w, &err) && !memcmp(v, w, sizeof v), "no channels: normal");
    const struct tu_tensor scalar = {"t", TU_F32, 0, NULL, 4, NULL};
    g.channels = 4;
    ok(!tu_gen_fill(&g, &scalar, 0, 1, w, &err) && w[0] == v[0] * 20, "a scalar is one channel");
    const struct tu_tensor none = {"t", TU_F32, 2, (const uint64_t[]){3, 0}, 0, NULL};
    ok(!tu_gen_fill(&g, &none, 0, 0, w, &err), "nothing is generated of no width");
}

int main(void)
{
    bad_rules();
    plans();
    contents();
    payload();
    injected();
    known();
    random_values();
    return tap_done();
}
