/* SPDX-License-Identifier: Apache-2.0 */
/* squeeze.c: the codings by their definitions, and the compressed sum: bytes, errors,
 * feedback. */
#include <math.h>
#include <stdlib.h>
#include <tensorutils/coll.h>
#include "../tap.h"

static const float four[4] = {0.5f, -1, 0.25f, 0.1f};

static struct tu_squeeze *make(const char *text, uint64_t n)
{
    struct tu_squeeze *s = NULL;
    struct tu_err err;
    if (tu_squeeze_new(&s, text, n, 3, &err)) {
        printf("# %s: %s\n", text, err.msg);
        exit(1);
    }
    return s;
}

static void blocks(void)
{
    unsigned char wire[64];
    float y[4], scale;
    struct tu_squeeze *s = make("int8:block=4", 4);
    ok(!tu_squeeze_encode(s, four, 4, 0, 0, wire, NULL) &&
           !tu_squeeze_decode(s, wire, 4, y, NULL),
       "int8 there and back");
    memcpy(&scale, wire, 4);
    ok(fabsf(scale - 0.007874016f) < 1e-9f && (int8_t)wire[4] == 64 &&
           (int8_t)wire[5] == -127 && wire[6] == 32 && wire[7] == 13,
       "int8: scale .007874016, 64 -127 32 13");
    ok(fabsf(y[0] - 0.503937f) < 1e-6f && y[1] == -1 && fabsf(y[2] - 0.251969f) < 1e-6f &&
           fabsf(y[3] - 0.102362f) < 1e-6f,
       "decoded .503937 -1 .251969 .102362");
    tu_squeeze_free(s);
    s = make("int8", 4096);
    ok(tu_squeeze_bytes(s, 4096) == 4160, "1.015625 bytes per element at blocks of 256");
    tu_squeeze_free(s);
    s = make("int4:block=4", 4);
    ok(!tu_squeeze_encode(s, four, 4, 0, 0, wire, NULL), "int4");
    memcpy(&scale, wire, 4);
    ok(fabsf(scale - 1.0f / 7) < 1e-9f && wire[4] == (4 | 9 << 4) &&
           wire[5] == (2 | 1 << 4),
       "int4: scale 1/7, 4 -7 2 1, low nibble first");
    const float zero[4] = {0};
    ok(!tu_squeeze_encode(s, zero, 4, 0, 0, wire, NULL) &&
           !tu_squeeze_decode(s, wire, 4, y, NULL) && !memcmp(y, zero, sizeof y),
       "a block of zeros");
    tu_squeeze_free(s);
}

static void tern(void)
{
    struct tu_squeeze *s = make("tern", 4);
    unsigned char wire[8];
    double sum[4] = {0};
    float y[4];
    bool values = true;
    for (uint64_t t = 0; t < 20000; t++) {
        if (tu_squeeze_encode(s, four, 4, 2, t, wire, NULL) ||
            tu_squeeze_decode(s, wire, 4, y, NULL))
            abort();
        for (int i = 0; i < 4; i++) {
            sum[i] += y[i] / 20000.0;
            values &= y[i] == 0 || fabsf(y[i]) == 2;
        }
    }
    ok(values, "tern: -s, 0 and s alone");
    for (int i = 0; i < 4; i++)
        ok(fabs(sum[i] - (double)four[i]) < 0.05, "tern is unbiased: %.3f of %.3f",
           sum[i], (double)four[i]);
    ok(tu_squeeze_bytes(s, 1000) == 204, "1.6 bits per element");
    tu_squeeze_free(s);
}

static void topk(void)
{
    struct tu_squeeze *s = make("topk:k=500", 6);
    const float x[6] = {1, -5, 2, 5, 0, -3};
    static const float want[6] = {0, -5, 0, 5, 0, -3};
    unsigned char wire[64];
    float y[6];
    ok(tu_squeeze_bytes(s, 6) == 24 && !tu_squeeze_encode(s, x, 6, 0, 0, wire, NULL) &&
           !tu_squeeze_decode(s, wire, 6, y, NULL) && !memcmp(y, want, sizeof y),
       "top-k keeps the three largest");
    ok(tu_le32(wire) == 1 && tu_le32(wire + 8) == 3 && tu_le32(wire + 16) == 5,
       "by index");
    tu_put32(wire, 6);
    ok(tu_squeeze_decode(s, wire, 6, y, NULL) == TU_EPEER,
       "an index past the end is refused");
    tu_squeeze_free(s);
}

struct job {
    const char *text;
    uint32_t steps;
    struct tu_squeeze_result res;
};

static int rank_main(struct tu_rank *r, void *ctx, struct tu_err *err)
{
    struct job *j = ctx;
    struct tu_squeeze_result res;
    int code = tu_squeeze_run(r, j->text, 20000, j->steps, 1, &res, err);
    return code || tu_rank_id(r) ? code : tu_rank_post(r, &res, sizeof res, err);
}

static void posted(void *ctx, uint32_t rank, const void *p, size_t n)
{
    (void)rank;
    memcpy(&((struct job *)ctx)->res, p, n);
}

static struct tu_squeeze_result sum(const char *text, uint32_t ranks, uint32_t steps)
{
    struct job j = {.text = text, .steps = steps};
    struct tu_err err = {0};
    struct tu_group g = {.transport = "threads",
                         .size = ranks,
                         .ctx = &j,
                         .fn = rank_main,
                         .post = posted};
    ok(!tu_group_run(&g, &err), "%s, %u ranks, %u steps: %s", text, ranks, steps,
       err.msg);
    return j.res;
}

int main(void)
{
    blocks();
    tern();
    topk();
    struct tu_squeeze_result r = sum("int8", 4, 1);
    ok(r.relative > 0 && r.relative < 0.02 && r.cosine > 0.9998,
       "int8: relative error %.2e", r.relative);
    ok(fabs((double)r.plain_bytes / (double)r.wire_bytes - 3.938) < 0.05, "ratio %.3f",
       (double)r.plain_bytes / (double)r.wire_bytes);
    double one = r.relative;
    r = sum("int8", 16, 1);
    ok(r.relative < 1.5 * one, "two codings whatever the ranks: %.2e at 16", r.relative);
    r = sum("int4", 4, 1);
    ok(r.relative > one && r.relative < 0.3, "int4: relative error %.2e", r.relative);
    r = sum("tern", 4, 64);
    ok(r.averaged < r.relative / 4,
       "tern with feedback: %.2f, averaged over 64 steps %.3f", r.relative, r.averaged);
    r = sum("topk:k=100", 4, 40);
    ok(r.averaged < r.relative, "top-k with feedback: %.2f, averaged %.2f", r.relative,
       r.averaged);
    r = sum("q8_0", 3, 1);
    ok(r.relative > 0 && r.relative < 0.02, "a codec of lib/quant: relative error %.2e",
       r.relative);
    struct tu_squeeze *s;
    struct tu_err err;
    static const char *const bad[] = {"zip", "int8:block=0", "topk:k=0", "int8:k=1"};
    for (size_t i = 0; i < 4; i++)
        eq_int(tu_squeeze_new(&s, bad[i], 8, 0, &err), TU_EUSAGE, "'%s': %s", bad[i],
               err.msg);
    return tap_done();
}
