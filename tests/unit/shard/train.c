/* SPDX-License-Identifier: Apache-2.0 */
/* Random walks of a training checkpoint over the layouts that keep optimizer states:
 * ZeRO 1 to 3 of any size, universal, distributed, streams. At every stop each weight,
 * master copy and moment has the digest that it had at the start.
 *
 * 60 conversions; 300 with SLOW=1. TENSORUTILS_TEST_SEED changes the choice. */
#define _GNU_SOURCE /* nftw */
#include <stdlib.h>
#include <unistd.h>

#include "../tap.h"
#include "roll.h"
#include "toy.h"

#define PARAMS 7
static char names[PARAMS][8];
static uint64_t dims[PARAMS][2];

/* A weight is its master copy rounded, as in every training run. */
static int put_weight(struct toy *t, unsigned i)
{
    struct tu_tensor w = {.name = names[i], .dtype = TU_BF16, .rank = 2, .dim = dims[i]};
    char name[64];
    size_t n = (size_t)(dims[i][0] * dims[i][1]);
    unsigned char *master = malloc(4 * n), *data = malloc(2 * n);
    struct tu_rng rng;
    int rc = !master || !data;
    snprintf(name, sizeof name, "optim.fp32.%s", names[i]);
    rng = (struct tu_rng){t->seed, tu_rng_stream(name)};
    for (size_t k = 0; k < n && !rc; k++)
        tu_put32(master + 4 * k, tu_rng_u32(&rng, k));
    rc = rc || tu_tensor_bytes(TU_BF16, w.dim, 2, &w.bytes, NULL) ||
         tu_cast(TU_BF16, data, TU_F32, master, n, NULL) ||
         tu_writer_tensor(t->w, &w, data, NULL);
    free(master);
    free(data);
    return rc;
}

static int put_meta(struct tu_writer *w)
{
    struct tu_buf b = {0};
    struct tu_jw j;
    unsigned cut = 1 + (unsigned)roll(PARAMS - 1);
    tu_jw_begin(&j, &b);
    tu_jw_open(&j, NULL, '{');
    tu_jw_open(&j, "groups", '[');
    for (unsigned g = 0; g < 2; g++) {
        tu_jw_open(&j, NULL, '{');
        tu_jw_real(&j, "lr", 0.01);
        tu_jw_open(&j, "params", '[');
        for (unsigned i = g ? cut : 0; i < (g ? PARAMS : cut); i++)
            tu_jw_str(&j, NULL, names[i]);
        tu_jw_close(&j, ']');
        tu_jw_close(&j, '}');
    }
    tu_jw_close(&j, ']');
    tu_jw_close(&j, '}');
    int rc = tu_jw_end(&j, NULL);
    if (!rc)
        rc = tu_writer_meta(w, "optim", b.data, b.n, NULL);
    tu_buf_release(&b);
    return rc;
}

static int make(const char *path)
{
    static const char *const states[] = {"fp32", "exp_avg", "exp_avg_sq"};
    struct toy t = {.dtype = TU_F32, .seed = roll(UINT64_MAX)};
    struct tu_out *out = NULL;
    const float steps = (float)roll(1000);
    struct tu_tensor step = {.name = "optim.step", .dtype = TU_F32, .bytes = 4};
    int rc = tu_out_open(&out, path, NULL, NULL);
    if (!rc)
        rc = tu_writer_new(&t.w, out, NULL);
    for (unsigned i = 0; i < PARAMS; i++) {
        snprintf(names[i], sizeof names[i], "p%u", i);
        dims[i][0] = 1 + roll(13);
        dims[i][1] = 1 + roll(9);
    }
    if (!rc)
        rc = put_meta(t.w);
    for (unsigned i = 0; i < PARAMS && !rc; i++)
        rc = put_weight(&t, i);
    for (unsigned s = 0; s < 3 && !rc; s++)
        for (unsigned i = 0; i < PARAMS; i++) {
            char name[64];
            snprintf(name, sizeof name, "optim.%s.%s", states[s], names[i]);
            toy_add(&t, name, 2, dims[i][0], dims[i][1]);
        }
    if (!rc)
        rc = tu_writer_tensor(t.w, &step, &steps, NULL);
    if (!rc)
        rc = t.failed ? -1 : tu_writer_end(t.w, false, NULL);
    return rc ? rc : tu_writer_close(t.w, false, NULL);
}

static void random_layout(char *out, size_t cap)
{
    switch (roll(6)) {
    case 0: snprintf(out, cap, "tns:ranks=%u", 2 + (unsigned)roll(4)); return;
    case 1: snprintf(out, cap, "dcp:ranks=%u", 1 + (unsigned)roll(5)); return;
    case 2: snprintf(out, cap, "universal:stage=%u", roll(2) ? 3 : 1); return;
    default:
        snprintf(out, cap, "zero:stage=%u,dp=%u,sub_group=%u", 1 + (unsigned)roll(3),
                 1 + (unsigned)roll(9), 1 + (unsigned)roll(200));
    }
}

/* Digest lines of a checkpoint into *out. */
static int digest(const char *path, const char *spec, struct tu_buf *out,
                  struct tu_err *err)
{
    struct tu_ckpt *c = NULL;
    struct tu_digest *d = NULL;
    int rc = tu_ckpt_open(&c, path, spec, NULL, NULL, err);
    tu_buf_reset(out);
    if (!rc && !(d = tu_alloc(c->atoms + 1, sizeof *d, err)))
        rc = TU_ENOMEM;
    if (!rc)
        rc = tu_ckpt_digest(c, NULL, NULL, d, err);
    if (!rc)
        rc = tu_digest_write(out, d, c->atoms, err);
    tu_free(d);
    tu_ckpt_close(c);
    return rc;
}

static int convert(const char *from, const char *to, const char *spec, struct tu_err *err)
{
    struct tu_ckpt *a = NULL, *b = NULL;
    const struct tu_shard_opts o = {.verify_replicas = true};
    int rc = tu_ckpt_open(&a, from, NULL, &o, NULL, err);
    if (!rc)
        rc = tu_ckpt_plan(&b, a, to, spec, &o, err);
    if (!rc)
        rc = tu_ckpt_convert(a, b, &o, NULL, NULL, err);
    tu_ckpt_close(b);
    tu_ckpt_close(a);
    return rc;
}

/* One model through a few layouts. */
static void walk(unsigned stops)
{
    struct tu_buf want = {0}, got = {0};
    struct tu_err err = {0};
    char from[16] = "a.tns", to[16], spec[64];
    int rc = make(from) ? -1 : digest(from, NULL, &want, &err);
    for (unsigned i = 0; i < stops; i++) {
        random_layout(spec, sizeof spec);
        snprintf(to, sizeof to, "stop%u", i);
        if (!rc)
            rc = convert(from, to, spec, &err);
        if (!rc)
            rc = digest(to, NULL, &got, &err);
        bool same = !rc && got.n == want.n && !memcmp(got.data, want.data, want.n);
        ok(same, "%s keeps every bit%s%s", spec, rc ? ": " : "", rc ? err.msg : "");
        remove_tree(from);
        snprintf(from, sizeof from, "%s", to);
    }
    remove_tree(from);
    tu_buf_release(&want);
    tu_buf_release(&got);
}

int main(void)
{
    const char *seed = getenv("TENSORUTILS_TEST_SEED"), *slow = getenv("SLOW");
    char folder[] = "/tmp/tensorutils-train.XXXXXX";
    state = seed ? strtoull(seed, NULL, 10) : 1;
    printf("# seed %llu\n", (unsigned long long)state);
    if (!mkdtemp(folder) || chdir(folder))
        return 1;
    for (unsigned i = 0; i < (slow && *slow ? 50 : 10); i++)
        walk(6);
    if (chdir("/"))
        return 1;
    remove_tree(folder);
    return tap_done();
}
