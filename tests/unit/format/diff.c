/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of comparing sources: names paired, bytes first, values where they differ, the
 * same figures for any number of threads. */
#include "fix.h"

static const uint64_t big[] = { 700000 };

static struct tu_source *make(const char *path, const struct tu_tensor *t, size_t n,
                              const void *const *data)
{
    struct tu_save what = { .n = n, .tensor = t };
    struct tu_source *s = NULL;
    path = fix_path(path);
    if (fix_save(path, NULL, &what, data, NULL) ||
        tu_source_open(&s, path, NULL, NULL, NULL, NULL))
        abort();
    return s;
}

static void test_match(void)
{
    static const uint64_t one[] = { 1 };
    const struct tu_tensor a[] = { fix_tensor("x", TU_U8, 1, one), fix_tensor("y", TU_U8, 1, one),
                                   fix_tensor("x", TU_U8, 1, one), fix_tensor("b", TU_U8, 1, one) };
    const struct tu_tensor b[] = { fix_tensor("c", TU_U8, 1, one), fix_tensor("x", TU_U8, 1, one),
                                   fix_tensor("b", TU_U8, 1, one) };
    struct tu_source *sa = make("a.tns", a, 4, NULL), *sb = make("b.tns", b, 3, NULL);
    size_t to[4], from[3];
    ok(!tu_source_match(sa, sb, to, from, NULL), "matched");
    ok(to[0] == 1 && to[1] == SIZE_MAX && to[2] == SIZE_MAX && to[3] == 2, "partners of a");
    ok(from[0] == SIZE_MAX && from[1] == 0 && from[2] == 3, "partners of b");
    tu_source_close(sa);
    tu_source_close(sb);
}

static void test_values(void)
{
    float *x = malloc(big[0] * sizeof *x), *y = malloc(big[0] * sizeof *y);
    for (size_t i = 0; i < big[0]; i++)
        x[i] = y[i] = (float)i;
    y[600001] += 1;
    y[5] = -0.0f;
    x[5] = 0;
    y[7] += 0.5f;
    struct tu_tensor t = fix_tensor("w", TU_F32, 1, big);
    struct tu_source *a = make("a.tns", &t, 1, (const void *[]){ x });
    struct tu_source *b = make("b.tns", &t, 1, (const void *[]){ y });
    struct tu_difference d, e;
    struct tu_err err = { 0 };
    ok(!tu_source_compare(&d, a, 0, a, 0, NULL, NULL, &err) && d.bytes_equal &&
           d.values.n == big[0] && !d.values.differ, "a tensor equals itself");
    ok(!tu_source_compare(&d, a, 0, b, 0, NULL, NULL, &err) && !d.bytes_equal &&
           d.valued, "differs");
    eq_u64(d.values.differ, 2, "in two values; zeros are equal");
    eq_u64(d.values.worst, 600001, "the worst named");
    const struct tu_tolerance tol = { .atol = 0.75 };
    struct tu_pool *pool = tu_pool_new(3, &err);
    struct tu_job job = { .pool = pool };
    ok(!tu_source_compare(&d, a, 0, b, 0, &tol, NULL, &err) && d.values.outside == 1, "one passes");
    ok(!tu_source_compare(&e, a, 0, b, 0, &tol, &job, &err) && !memcmp(&d, &e, sizeof d),
       "threads change nothing");
    tu_pool_free(pool);
    tu_source_close(b);
    size_t n;
    unsigned char *file = fix_read(fix_path("b.tns"), &n);
    file[4096] ^= 1;
    fix_write("b.tns", file, n);
    free(file);
    ok(!tu_source_open(&b, fix_path("b.tns"), NULL, NULL, NULL, &err), "a damaged file opens");
    eq_int(tu_source_compare(&d, a, 0, b, 0, &tol, NULL, &err), TU_EPCRC, "and is not believed");
    tu_source_close(a);
    tu_source_close(b);
    free(x);
    free(y);
}

static void test_blocks(void)
{
    static const uint64_t dim[] = { 4, 32 };
    unsigned char x[72] = { 0 }, y[72] = { 0 };
    y[40] = 1;
    struct tu_tensor t = fix_tensor("q", TU_Q4_0, 2, dim), f = fix_tensor("q", TU_F32, 2, dim);
    struct tu_source *a = make("a.tns", &t, 1, (const void *[]){ x });
    struct tu_source *b = make("b.tns", &t, 1, (const void *[]){ y });
    struct tu_source *c = make("c.tns", &f, 1, NULL);
    struct tu_difference d;
    ok(!tu_source_compare(&d, a, 0, b, 0, NULL, NULL, NULL) && !d.bytes_equal && !d.valued &&
           d.values.differ == 1 && d.values.n == 4 && d.values.worst == 64, "blocks are counted");
    ok(!tu_source_compare(&d, a, 0, c, 0, NULL, NULL, NULL) && !d.bytes_equal && !d.valued,
       "blocks against numbers just differ");
    tu_source_close(a);
    tu_source_close(b);
    tu_source_close(c);
}

/* Equal bytes of two dtypes are other values; what is no pair is a mistake. */
static void test_pairs(void)
{
    static const uint64_t two[] = { 2 }, three[] = { 3 };
    const unsigned char bytes[] = { 1, 0xff };
    struct tu_tensor t[] = { fix_tensor("w", TU_U8, 1, two), fix_tensor("w", TU_I8, 1, two),
                             fix_tensor("w", TU_U8, 1, three) };
    struct tu_source *s[3];
    static const char *const path[] = { "u.tns", "i.tns", "three.tns" };
    for (int k = 0; k < 3; k++)
        s[k] = make(path[k], &t[k], 1, (const void *[]){ k < 2 ? bytes : NULL });
    struct tu_difference d;
    struct tu_err err = { 0 };
    ok(!tu_source_compare(&d, s[0], 0, s[1], 0, NULL, NULL, &err) && !d.bytes_equal && d.valued &&
           d.values.differ == 1 && d.values.worst == 1, "255 is not -1");
    eq_int(tu_source_compare(&d, s[0], 0, s[2], 0, NULL, NULL, &err), TU_EBUG, "two against three: %s",
           err.msg);
    for (int k = 0; k < 3; k++)
        tu_source_close(s[k]);
}

static int inject_compare(struct tu_err *err)
{
    struct tu_source *a = NULL, *b = NULL;
    struct tu_difference d;
    int code = tu_source_open(&a, fix_path("u.tns"), NULL, NULL, NULL, err);
    if (!code)
        code = tu_source_open(&b, fix_path("i.tns"), NULL, NULL, NULL, err);
    if (!code)
        code = tu_source_compare(&d, a, 0, b, 0, NULL, NULL, err);
    if (!code && d.values.differ != 1)
        code = TU_EBUG;
    tu_source_close(a);
    tu_source_close(b);
    return code;
}

int main(void)
{
    test_match();
    test_values();
    test_blocks();
    test_pairs();
    fix_inject(inject_compare, true, "compare");
    fix_inject(inject_compare, false, "compare");
    return tap_done();
}
