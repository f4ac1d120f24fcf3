/* SPDX-License-Identifier: Apache-2.0 */
/* Every codec over the inputs that hurt users of other tools: awkward shapes, values that are not
 * finite, subnormal, huge, constant or zero. Whatever the kernels, the bytes are the same; what
 * is coded decodes to finite numbers; what cannot be is refused in words. */
#include <math.h>
#include <string.h>
#include "../tap.h"
#include "tensorutils/quant.h"

enum { ROWS = 32, COLS = 512, N = ROWS * COLS, LEVELS = 3 };

static float x[N], y[N], z[N];
static const uint32_t level[LEVELS] = { 0, TU_CPU_GROUP_AVX2, TU_CPU_ALL };

/* What a codec made of x: codes and sides in a row. */
struct made {
    struct tu_coding c;
    struct tu_buf bytes;
    void *side[TU_CODING_SIDES];
    unsigned char *code;
    uint64_t replaced;
    int rc;
    char why[256];
};

static void release(struct made *m)
{
    for (unsigned k = 0; k < m->c.sides; k++)
        tu_free(m->side[k]);
    tu_free(m->code);
    tu_buf_release(&m->bytes);
    memset(m, 0, sizeof *m);
}

static int plan(struct made *m, const char *codec, const uint64_t *dim, unsigned rank)
{
    struct tu_err err = { 0 };
    struct tu_spec spec = { .name = (char *)(uintptr_t)codec };
    memset(m, 0, sizeof *m);
    m->rc = tu_coding_init(&m->c, &spec, dim, rank, &err);
    snprintf(m->why, sizeof m->why, "%s", m->rc ? err.msg : "");
    if (m->rc)
        m->c.sides = 0;
    return m->rc;
}

struct at {
    const float *x;
    size_t n;
    struct made *m;
    uint64_t out;
};

static int from_x(void *ctx, void *buf, size_t n, struct tu_err *err)
{
    struct at *a = ctx;
    (void)err;
    memcpy(buf, (const char *)a->x + a->n, n);
    a->n += n;
    return 0;
}

static int to_code(void *ctx, const void *p, size_t n, struct tu_err *err)
{
    struct at *a = ctx;
    (void)err;
    memcpy(a->m->code + a->out, p, n);
    a->out += n;
    return 0;
}

static int again(void *ctx, struct tu_err *err)
{
    (void)err;
    ((struct at *)ctx)->n = 0;
    return 0;
}

static int encode(struct made *m, uint32_t cpu, enum tu_nonfinite nonfinite)
{
    struct tu_err err = { 0 };
    struct at a = { .x = x, .m = m };
    struct tu_flow flow = { &a, from_x, to_code, again };
    struct tu_coding_run run = { .flow = &flow, .dtype = TU_F32, .nonfinite = nonfinite };
    m->c.cpu &= cpu;
    m->code = tu_calloc((size_t)m->c.code.bytes + 1, 1, NULL);
    for (unsigned k = 0; k < m->c.sides; k++)
        m->side[k] = tu_calloc((size_t)m->c.side[k].bytes + 1, 1, NULL);
    m->rc = tu_coding_encode(&m->c, &run, m->side, NULL, &err);
    m->replaced = run.replaced;
    snprintf(m->why, sizeof m->why, "%s", m->rc ? err.msg : "");
    int bad = tu_buf_add(&m->bytes, m->code, (size_t)m->c.code.bytes, NULL);
    for (unsigned k = 0; k < m->c.sides && !bad; k++)
        bad = tu_buf_add(&m->bytes, m->side[k], (size_t)m->c.side[k].bytes, NULL);
    return bad ? bad : m->rc;
}

static int decode(const struct made *m, float *out)
{
    struct tu_coding c = m->c;
    memset(&c.tally, 0, sizeof c.tally);
    return tu_coding_decode_mem(&c, m->code, (const void *const *)m->side, out, NULL, NULL);
}

/* Without arguments: not the truncated decompositions, which are doubles without kernels. */
static bool encodes(size_t row)
{
    const struct tu_codec *c = tu_codec_row(row);
    return c->encode && !(c->flags & TU_CODEC_NEEDS_WEIGHTS) && strcmp(c->name, "svd") != 0 &&
           strcmp(c->name, "cp") != 0;
}

/* Empty, a scalar, one dimension, rows one off the sizes of blocks. */
static void test_shapes(void)
{
    static const struct {
        uint64_t dim[2];
        unsigned rank;
        const char *name;
    } shape[] = {
        { { 0, 256 }, 2, "0x256" }, { { 4, 0 }, 2, "4x0" },     { { 0 }, 0, "a scalar" },
        { { 256 }, 1, "256" },      { { 2, 1 }, 2, "2x1" },     { { 2, 31 }, 2, "2x31" },
        { { 2, 33 }, 2, "2x33" },   { { 2, 255 }, 2, "2x255" }, { { 3, 257 }, 2, "3x257" },
    };
    for (unsigned i = 0; i < N; i++)
        x[i] = (float)((int)(i * 37 % 101) - 50) / 16;
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
        unsigned coded = 0, refused = 0, bad = 0;
        for (size_t i = 0; tu_codec_row(i); i++) {
            struct made m;
            const char *name = tu_codec_row(i)->name;
            if (!encodes(i))
                continue;
            if (plan(&m, name, shape[s].dim, shape[s].rank) == 0 &&
                encode(&m, TU_CPU_ALL, TU_NONFINITE_ERROR) == 0) {
                bool fine = decode(&m, y) == 0;
                for (uint64_t k = 0; k < m.c.elements; k++)
                    fine &= isfinite(y[k]) != 0;
                bad += !fine && !ok(false, "%s of %s decodes", name, shape[s].name);
                coded++;
            } else {
                bool words = m.rc == TU_EUSAGE && strstr(m.why, name);
                bad += !words && !ok(false, "%s of %s: %s", name, shape[s].name, m.why);
                refused++;
            }
            release(&m);
        }
        ok(bad == 0 && coded > 4, "%s: %u codecs code it, %u refuse by name", shape[s].name, coded,
           refused);
    }
}

/* Whole tensors of one kind of value. */
static const struct {
    const char *name;
    float scale; /* of a ramp with both signs; 0: the constant */
    float constant, first;
} values[] = {
    { "zeros", 0, 0, 0 },
    { "negative zeros", 0, -0.0f, -0.0f },
    { "ones", 0, 1, 1 },
    { "minus threes", 0, -3, -3 },
    { "subnormals", 1e-40f, 0, 0 },
    { "the least subnormal", 0, 0x1p-149f, 0x1p-149f },
    { "amax 1e-38", 1e-38f, 0, 0 },
    { "5e-39: the inverse overflows", 5e-39f, 0, 0 },
    { "an outlier of 1e4", 1, 0, 1e4f },
    { "amax 7e4: over f16", 7e4f, 0, 0 },
    { "amax 1e6: over eight times f16", 1e6f, 0, 0 },
    { "amax 1e30", 1e30f, 0, 0 },
};

static void fill(size_t v)
{
    for (unsigned i = 0; i < N; i++)
        x[i] = values[v].scale == 0
                   ? values[v].constant
                   : (float)((int)(i * 7919 % 2001) - 1000) / 1000 * values[v].scale;
    if (values[v].first != 0 || values[v].scale == 0)
        x[0] = values[v].first;
}

/* One codec and x: the same outcome at every level. */
static bool levels_agree(const char *name, enum tu_nonfinite nonfinite, struct made *first)
{
    const uint64_t dim[2] = { ROWS, COLS };
    bool same = true;
    if (plan(first, name, dim, 2))
        return false;
    encode(first, 0, nonfinite);
    if (!first->rc)
        same = decode(first, y) == 0;
    for (unsigned l = 1; l < LEVELS; l++) {
        struct made m;
        if (level[l] != TU_CPU_ALL && level[l] & ~tu_cpu_detect())
            continue;
        same &= !plan(&m, name, dim, 2);
        encode(&m, level[l], nonfinite);
        same &= m.rc == first->rc && strcmp(m.why, first->why) == 0 &&
                m.replaced == first->replaced;
        same &= m.rc || (m.bytes.n == first->bytes.n &&
                         !memcmp(m.bytes.data, first->bytes.data, m.bytes.n));
        if (!m.rc && !first->rc) {
            same &= decode(&m, z) == 0;
            for (unsigned i = 0; i < N; i++)
                same &= memcmp(&y[i], &z[i], sizeof *y) == 0 || (isnan(y[i]) && isnan(z[i]));
        }
        release(&m);
    }
    return same;
}

static void test_values(void)
{
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        unsigned bad = 0, refused = 0, coded = 0;
        fill(v);
        for (size_t i = 0; tu_codec_row(i); i++) {
            struct made m;
            const char *name = tu_codec_row(i)->name;
            if (!encodes(i))
                continue;
            if (!levels_agree(name, TU_NONFINITE_ERROR, &m))
                bad += !ok(false, "%s of %s: every level gives the same", name, values[v].name);
            unsigned odd = 0, nonzero = 0;
            for (unsigned k = 0; k < N && !m.rc; k++) {
                odd += !isfinite(y[k]);
                nonzero += y[k] != 0;
            }
            bad += odd && !ok(false, "%s of %s: %u not finite", name, values[v].name, odd);
            if (v < 2 && nonzero && strcmp(name, "bipolar") != 0)
                bad += !ok(false, "%s of %s: %u not zero", name, values[v].name, nonzero);
            if (m.rc)
                bad += (m.rc != TU_EUSAGE && m.rc != TU_EUNSUP) &&
                       !ok(false, "%s of %s: %s", name, values[v].name, m.why);
            refused += m.rc != 0;
            coded += m.rc == 0;
            release(&m);
        }
        ok(bad == 0 && coded > refused, "%s: %u codecs code it, %u refuse", values[v].name, coded,
           refused);
    }
}

/* One value that is not finite, the last of the tensor. */
static void test_nonfinite(void)
{
    static const struct {
        float v;
        const char *words;
    } last[] = { { NAN, "row 31, column 511: NaN" },
                 { INFINITY, "row 31, column 511: Inf" },
                 { -INFINITY, "row 31, column 511: -Inf" } };
    for (size_t l = 0; l < 3; l++) {
        unsigned bad = 0;
        fill(2);
        x[N - 1] = last[l].v;
        for (size_t i = 0; tu_codec_row(i); i++) {
            struct made m;
            const char *name = tu_codec_row(i)->name;
            if (!encodes(i))
                continue;
            if (!levels_agree(name, TU_NONFINITE_ERROR, &m) || m.rc != TU_EUNSUP ||
                !strstr(m.why, last[l].words))
                bad += !ok(false, "%s: %s: %s", name, last[l].words, m.why);
            release(&m);
            if (!levels_agree(name, TU_NONFINITE_ZERO, &m) || m.rc || m.replaced != 1)
                bad += !ok(false, "%s: set to zero: %s", name, m.why);
            release(&m);
        }
        ok(bad == 0, "%s: by every codec", last[l].words);
    }
}

/* Kept, in the middle of blocks: whatever comes out, each level makes the same of it. */
static void test_kept(void)
{
    static const float odd[] = { NAN, -NAN, INFINITY, -INFINITY };
    for (unsigned o = 0; o < 4; o++) {
        unsigned bad = 0;
        fill(8);
        for (unsigned i = o; i < N; i += 331)
            x[i] = odd[o];
        for (size_t i = 0; tu_codec_row(i); i++) {
            struct made m;
            if (!encodes(i))
                continue;
            if (!levels_agree(tu_codec_row(i)->name, TU_NONFINITE_KEEP, &m))
                bad += !ok(false, "%s: %g kept", tu_codec_row(i)->name, (double)odd[o]);
            release(&m);
        }
        ok(bad == 0, "%g kept: every level gives the same", (double)odd[o]);
    }
}

/* A scale that is NaN (E8M0 0xff; an f16 of a block) makes its block NaN, and no other. */
static void test_nan_scales(void)
{
    static const char *const name[] = { "mxfp8", "mxfp6", "mxfp4_packed", "mxint8",
                                        "q8_0",  "q4_0",  "q5_0",         "iq4_nl" };
    fill(8);
    x[0] = 1;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        for (unsigned l = 0; l < LEVELS; l++) {
            struct made m;
            const uint64_t dim[2] = { ROWS, COLS };
            if ((level[l] != TU_CPU_ALL && level[l] & ~tu_cpu_detect()) ||
                plan(&m, name[i], dim, 2))
                continue;
            encode(&m, level[l], TU_NONFINITE_ERROR);
            if (m.c.sides)
                ((unsigned char *)m.side[0])[3] = 0xff;
            else
                tu_put16(m.code + 3 * m.c.code.atom_bytes, 0x7e00);
            unsigned nan = 0, other = 0;
            bool good = decode(&m, y) == 0;
            for (unsigned k = 0; k < N; k++) {
                nan += k / 32 == 3 && isnan(y[k]);
                other += k / 32 != 3 && !isfinite(y[k]);
            }
            ok(good && nan == 32 && other == 0, "%s: a scale that is NaN, level %u: %u, %u",
               name[i], l, nan, other);
            release(&m);
        }
    }
}

int main(void)
{
    test_shapes();
    test_values();
    test_nonfinite();
    test_kept();
    test_nan_scales();
    return tap_done();
}
