/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of joining pieces: columns, rows, flat ranges, replicas, open dimensions, packed
 * elements, and what must be refused. */
#include "fix.h"

static struct tu_tensor part(const char *name, uint32_t dtype, unsigned rank,
                             const uint64_t *dim, const char *meta)
{
    struct tu_tensor t = fix_tensor(name, dtype, rank, dim);
    t.meta = meta;
    return t;
}

/* A stream of n records, joined. */
static int joined(struct tu_source **s, const struct tu_tensor *t, size_t n,
                  const void *const *data, struct tu_err *err)
{
    struct tu_save what = { .n = n, .tensor = t };
    const char *path = fix_path("parts.tns");
    int code = fix_save(path, NULL, &what, data, err);
    if (!code)
        code = tu_source_open(s, path, NULL, NULL, NULL, err);
    return code ? code : tu_source_join(s, *s, err);
}

/* Tensor i reads as want[n] whatever the steps. */
static bool reads(struct tu_source *s, size_t i, const void *want, size_t n)
{
    unsigned char have[256];
    bool yes = s->tensor[i].bytes == n;
    for (size_t step = 1; yes && step <= n; step++) {
        memset(have, 0xee, sizeof have);
        for (size_t off = 0; yes && off < n; off += step)
            yes = !tu_source_read(s, i, off, have + off, n - off < step ? n - off : step, NULL);
        yes = yes && !memcmp(have, want, n);
    }
    return yes;
}

/* 4x6 of 0…23, columns in two, an unsplit tensor before and a replica behind. */
static void test_columns(void)
{
    static const float left[] = { 0, 1, 2, 6, 7, 8, 12, 13, 14, 18, 19, 20 };
    static const float right[] = { 3, 4, 5, 9, 10, 11, 15, 16, 17, 21, 22, 23 };
    static const uint64_t dim[] = { 4, 3 }, two[] = { 2 };
    static const char at0[] = "{\"k\":1,\"shard\":{\"global\":[4,6],\"offset\":[0,0]}}";
    static const char at3[] = "{\"shard\":{\"global\":[4,6],\"offset\":[0,3]}}";
    const struct tu_tensor t[] = {
        fix_tensor("b", TU_U8, 1, two),       part("w", TU_F32, 2, dim, at0),
        part("w", TU_F32, 2, dim, at3),       part("w", TU_F32, 2, dim, at0),
        fix_tensor("c", TU_U8, 1, two),
    };
    const void *data[] = { NULL, left, right, left, NULL };
    float want[24];
    for (int i = 0; i < 24; i++)
        want[i] = (float)i;
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    if (!ok(!joined(&s, t, 5, data, &err), "columns join")) {
        printf("# %s\n", err.msg);
        return;
    }
    eq_u64(s->n, 3, "three whole tensors");
    eq_str(s->tensor[1].name, "w", "in the place of the first piece");
    ok(s->tensor[1].rank == 2 && s->tensor[1].dim[1] == 6, "of the whole shape");
    eq_str(s->tensor[1].meta, "{\"k\":1}", "other metadata stays");
    ok(reads(s, 1, want, sizeof want), "bytes in order, whatever is asked");
    ok(fix_holds(s, 0, 0) && fix_holds(s, 2, 4), "the others are as they were");
    eq_int(tu_source_verify(s, 1, NULL, &err), 0, "every piece verifies");
    tu_source_close(s);
}

static void test_grid(void)
{
    static const uint64_t dim[] = { 1, 2, 2 };
    static const char *const at[] = {
        "{\"shard\":{\"global\":[2,2,4],\"offset\":[1,0,2]}}",
        "{\"shard\":{\"global\":[2,2,4],\"offset\":[0,0,0]}}",
        "{\"shard\":{\"global\":[null,2,4],\"offset\":[0,0,2]}}",
        "{\"shard\":{\"global\":[null,2,4],\"offset\":[1,0,0]}}",
    };
    static const unsigned char piece[4][4] = { { 10, 11, 14, 15 }, { 0, 1, 4, 5 }, { 2, 3, 6, 7 },
                                               { 8, 9, 12, 13 } };
    struct tu_tensor t[4];
    const void *data[4];
    unsigned char want[16];
    for (unsigned i = 0; i < 16; i++)
        want[i] = (unsigned char)i;
    for (unsigned i = 0; i < 4; i++) {
        t[i] = part("g", TU_U8, 3, dim, at[3 - i]);
        data[i] = piece[3 - i];
    }
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    if (!ok(!joined(&s, t, 4, data, &err), "a grid joins, its first dimension learnt last")) {
        printf("# %s\n", err.msg);
        return;
    }
    ok(s->n == 1 && s->tensor[0].dim[0] == 2 && reads(s, 0, want, 16), "in order");
    tu_source_close(s);
    eq_int(joined(&s, t, 2, data, &err), TU_EINCOMPLETE, "without the piece that knows it");
    eq_int(joined(&s, t + 1, 3, data + 1, &err), TU_EINCOMPLETE, "a piece is missing");
    ok(strstr(err.msg, "'g'"), "said: %s", err.msg);
}

static void test_flat(void)
{
    static const uint64_t four[] = { 4 }, two[] = { 2 };
    const struct tu_tensor t[] = {
        part("f", TU_I16, 1, two, "{\"flat\":{\"global\":[2,3],\"range\":[4,6]}}"),
        part("f", TU_I16, 1, four, "{\"flat\":{\"global\":[2,3],\"range\":[0,4]}}"),
    };
    static const int16_t v[] = { 1, 2, 3, 4, 5, 6 };
    const void *data[] = { v + 4, v };
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    if (!ok(!joined(&s, t, 2, data, &err), "flat ranges join"))
        printf("# %s\n", err.msg);
    ok(s && s->tensor[0].rank == 2 && s->tensor[0].dim[1] == 3 && reads(s, 0, v, 12), "in order");
    tu_source_close(s);
    struct tu_tensor scalar = part("s", TU_I16, 1, (uint64_t[]){ 1 },
                                   "{\"flat\":{\"global\":[],\"range\":[0,1]}}");
    ok(!joined(&s, &scalar, 1, NULL, &err) && s->tensor[0].rank == 0 && fix_holds(s, 0, 0),
       "a flat scalar");
    tu_source_close(s);
}

static void test_blocks(void)
{
    static const uint64_t dim[] = { 2, 32 };
    const struct tu_tensor t[] = {
        part("q", TU_Q4_0, 2, dim, "{\"shard\":{\"global\":[2,64],\"offset\":[0,0]}}"),
        part("q", TU_Q4_0, 2, dim, "{\"shard\":{\"global\":[2,64],\"offset\":[0,32]}}"),
    };
    unsigned char left[36], right[36], want[72];
    memset(left, 'l', 36);
    memset(right, 'r', 36);
    for (unsigned i = 0; i < 72; i++)
        want[i] = i / 18 % 2 ? 'r' : 'l';
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    if (!ok(!joined(&s, t, 2, (const void *[]){ left, right }, &err), "blocks join"))
        printf("# %s\n", err.msg);
    ok(s && reads(s, 0, want, 72), "block by block");
    tu_source_close(s);
    static const uint64_t odd[] = { 3 };
    struct tu_tensor cut[] = {
        part("i", TU_I4, 1, odd, "{\"shard\":{\"global\":[6],\"offset\":[0]}}"),
        part("i", TU_I4, 1, odd, "{\"shard\":{\"global\":[6],\"offset\":[3]}}"),
    };
    eq_int(joined(&s, cut, 2, NULL, &err), TU_ESHARD, "a cut inside a byte is refused");
}

static void test_refused(void)
{
    static const uint64_t dim[] = { 2, 2 };
    static const char a[] = "{\"shard\":{\"global\":[4,2],\"offset\":[0,0]}}";
    struct tu_tensor t[2] = { part("w", TU_U8, 2, dim, a) };
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    static const struct {
        const char *meta;
        int code;
        const char *what;
    } rows[] = {
        { "{\"shard\":{\"global\":[4,2],\"offset\":[1,0]}}", TU_EINCOMPLETE, "an overlap" },
        { "{\"shard\":{\"global\":[5,2],\"offset\":[2,0]}}", TU_ESHARD, "another whole shape" },
        { "{\"shard\":{\"coord\":[0],\"global\":[4,2],\"mesh\":[[\"dp\",2]],\"offset\":[2,0],"
          "\"partial\":[\"dp\"]}}", TU_EUNSUP, "a pending sum" },
    };
    for (size_t i = 0; i < 3; i++) {
        t[1] = part("w", TU_U8, 2, dim, rows[i].meta);
        eq_int(joined(&s, t, 2, NULL, &err), rows[i].code, "%s: %s", rows[i].what, err.msg);
    }
    static const struct {
        const char *meta[2];
        uint64_t rank[2];
        int code;
    } kinds[] = {
        { { "{\"shard\":{\"global\":[4,2],\"offset\":[0,0]}}", "{\"shard\":{\"global\":[4],\"offset\":[0]}}" },
          { 2, 1 }, TU_ESHARD },
        { { "{\"flat\":{\"global\":[4],\"range\":[0,2]}}", "{\"shard\":{\"global\":[4],\"offset\":[2]}}" },
          { 1, 1 }, TU_ESHARD },
        { { "{\"shard\":{\"global\":[4],\"offset\":[0]}}", "{\"flat\":{\"global\":[4],\"range\":[2,4]}}" },
          { 1, 1 }, TU_ESHARD },
        { { "{\"shard\":{\"global\":[4],\"offset\":[0]}}", "{\"shard\":{\"global\":[null],\"offset\":[2]}}" },
          { 1, 1 }, 0 },
        { { "{\"shard\":{\"global\":[null],\"offset\":[0]}}", "{\"shard\":{\"global\":[null],\"offset\":[2]}}" },
          { 1, 1 }, TU_EINCOMPLETE },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct tu_tensor pair[2];
        for (int k = 0; k < 2; k++)
            pair[k] = part("w", TU_U8, (unsigned)kinds[i].rank[k], dim, kinds[i].meta[k]);
        s = NULL;
        eq_int(joined(&s, pair, 2, NULL, &err), kinds[i].code, "kinds %zu: %s", i, err.msg);
        if (!kinds[i].code)
            tu_source_close(s);
    }
    t[1] = part("w", TU_I8, 2, dim, "{\"shard\":{\"global\":[4,2],\"offset\":[2,0]}}");
    eq_int(joined(&s, t, 2, NULL, &err), TU_ESHARD, "another dtype");
    t[1].meta = NULL;
    t[0].meta = NULL;
    ok(!joined(&s, t, 2, NULL, &err) && s->n == 2, "two whole tensors of one name stay two");
    eq_str(s->format->name, "tns", "the source itself is given back");
    tu_source_close(s);
}

/* Replicas agree, by their checksums, or do not. */
static void test_replicas(void)
{
    static const uint64_t two[] = { 2 };
    const struct tu_tensor t[] = {
        part("w", TU_U8, 1, two, "{\"shard\":{\"global\":[4],\"offset\":[2]}}"),
        part("w", TU_U8, 1, two, "{\"shard\":{\"global\":[4],\"offset\":[0]}}"),
        part("w", TU_U8, 1, two, "{\"shard\":{\"global\":[4],\"offset\":[2]}}"),
        part("v", TU_U8, 1, two, NULL),
    };
    const void *same[] = { "cd", "ab", "cd", "xy" }, *other[] = { "cd", "ab", "cx", "xy" };
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    ok(!joined(&s, t, 4, same, &err) && reads(s, 0, "abcd", 4), "a replica counts once");
    ok(s && !tu_source_verify(s, 0, NULL, &err) && !tu_source_verify(s, 1, NULL, &err) &&
           tu_source_summed(s, 0) && tu_source_summed(s, 1), "what is joined and what is not verifies");
    tu_source_close(s);
    s = NULL;
    eq_int(joined(&s, t, 4, other, &err), TU_EINCOMPLETE, "replicas that differ");
    ok(strstr(err.msg, "'w'") && strstr(err.msg, "two replicas of a piece differ"), "said: %s", err.msg);
}

static int inject_join(struct tu_err *err)
{
    struct tu_source *s = NULL;
    int code = tu_source_open(&s, fix_path("keep.tns"), NULL, NULL, NULL, err);
    if (!code)
        code = tu_source_join(&s, s, err);
    unsigned char have[16];
    if (code)
        return code;
    code = tu_source_read(s, 0, 0, have, 7, err);
    for (size_t i = 0; !code && i < s->n; i++)
        code = tu_source_verify(s, i, NULL, err);
    if (!code && (s->n != 2 || strcmp(s->tensor[0].meta, "{\"x\":1}")))
        code = TU_EBUG;
    tu_source_close(s);
    return code;
}

int main(void)
{
    test_columns();
    test_grid();
    test_flat();
    test_blocks();
    test_refused();
    test_replicas();
    static const uint64_t dim[] = { 4, 1 }, three[] = { 3 };
    static const char flat[] = "{\"flat\":{\"global\":[2,3],\"range\":[0,3]}}",
                      rest[] = "{\"flat\":{\"global\":[2,3],\"range\":[3,6]}}";
    const struct tu_tensor t[] = {
        part("w", TU_U16, 2, dim, "{\"shard\":{\"global\":[4,2],\"offset\":[0,0]},\"x\":1}"),
        part("w", TU_U16, 2, dim, "{\"shard\":{\"global\":[4,2],\"offset\":[0,1]}}"),
        part("f", TU_U8, 1, three, flat),
        part("f", TU_U8, 1, three, rest),
        part("f", TU_U8, 1, three, rest),
    };
    const void *data[] = { "abcdefgh", "ijklmnop", "abc", "def", "def" };
    struct tu_save what = { .n = 5, .tensor = t };
    ok(!fix_save(fix_path("keep.tns"), NULL, &what, data, NULL), "a file for the next loops");
    fix_inject(inject_join, true, "join");
    fix_inject(inject_join, false, "join");
    return tap_done();
}
