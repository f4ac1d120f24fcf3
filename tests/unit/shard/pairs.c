/* SPDX-License-Identifier: Apache-2.0 */
/* Random round trips: a model in layout A goes to B and back to A. The digests are those
 * of the model at every stop, and every file of the second A is the first's, byte for
 * byte.
 *
 * TENSORUTILS_TEST_SEED changes the choice; the seed is printed. */
#define _GNU_SOURCE /* nftw */
#include <stdlib.h>
#include <unistd.h>

#include "../tap.h"
#include "roll.h"
#include "toy.h"

#define PAIRS 220

/* DeepSeek's: the first layers dense; V3's q by its rank, and a layer that predicts. */
static void make_latent(struct tu_model *m)
{
    bool three = !strcmp(m->family, "deepseek_v3");
    m->layers = 4;
    m->kv_heads = m->heads;
    m->experts = 4;
    m->top_k = 2;
    m->dense_layers = roll(3);
    m->expert_ffn = 16;
    m->shared_experts = 2;
    m->shared_ffn = 32;
    m->q_rank = three ? 24 : 0;
    m->mtp_layers = three ? 1 : 0;
    m->kv_rank = 12;
    m->nope_dim = 8;
    m->rope_dim = m->v_dim = 4;
    m->head_dim = m->nope_dim + m->rope_dim;
}

static struct tu_model random_model(void)
{
    static const char *const family[] = {"llama",   "llama", "llama",    "qwen2",       "qwen3",
                                         "mixtral", "gpt2",  "gpt_neox", "deepseek_v2", "deepseek_v3"};
    const struct tu_family *f = tu_family_find(family[roll(10)]);
    struct tu_model m = f->base;
    bool gpt = !strncmp(f->name, "gpt", 3);
    snprintf(m.family, sizeof m.family, "%s", f->name);
    m.layers = 12;
    m.heads = 8;
    m.kv_heads = gpt ? 8 : (uint64_t[]){8, 4, 2, 1}[roll(4)];
    m.head_dim = 4;
    m.hidden = 32;
    m.ffn = 48;
    m.vocab = 97 + roll(60);
    m.positions = 16;
    if (m.experts) {
        m.experts = 4;
        m.layers = 4;
    }
    m.expert_ffn = m.experts ? m.ffn : 0;
    if (m.kv_rank)
        make_latent(&m);
    m.tied = m.kv_rank ? false : strcmp(f->name, "gpt2") ? roll(3) == 0 : true;
    return m;
}

/* A layout that this model can have. */
static void random_layout(char *out, size_t cap, const struct tu_model *m)
{
    unsigned tp = 1u << roll(4), pp = 1 + (unsigned)roll(4),
             vpp = pp > 1 ? 1 + (unsigned)roll(3) : 1;
    static const char *const spec[] = {"te", "local", "legacy"};
    bool meta = !strcmp(m->family, "llama");
    unsigned names = (unsigned)roll(m->experts || m->qk_norm ? 2 : 3);
    unsigned version =
        m->kv_heads == m->heads ? (unsigned)roll(4) : 2 + (unsigned)roll(2);
    while (m->layers % (pp * vpp))
        vpp = vpp > 1 ? vpp - 1 : (pp--, 1);
    switch (roll(meta ? 8 : 6)) {
    case 0: /* without a config.json nothing tells what the names are */
        snprintf(out, cap, m->kv_rank ? "tns:ranks=3" : "hf");
        return;
    case 1: snprintf(out, cap, "tns:ranks=%u", 2 + (unsigned)roll(5)); return;
    case 6:
    case 7: /* no rank of Meta's files has part of a head */
        while (m->kv_heads % tp)
            tp /= 2;
        snprintf(out, cap, "meta:tp=%u,embed=%s", tp, roll(2) ? "rows" : "columns");
        return;
    default:
        snprintf(out, cap, "megatron:tp=%u,pp=%u,vpp=%u,ep=%u,version=%u,spec=%s,pad=%u",
                 tp, pp, vpp, m->experts ? 1u << roll(3) : 1, version, spec[names],
                 1u << roll(5));
    }
}

/* Meta cuts the vocabulary without padding. */
static void fit(struct tu_model *m)
{
    if (!strcmp(m->family, "llama"))
        m->vocab = 8 * (m->vocab / 8);
}

/* Digest lines of a checkpoint into *out. */
static int digest(const struct tu_ckpt *c, struct tu_buf *out, struct tu_err *err)
{
    struct tu_digest *d = tu_alloc(c->atoms + 1, sizeof *d, err);
    int rc = d ? tu_ckpt_digest(c, NULL, NULL, d, err) : TU_ENOMEM;
    tu_buf_reset(out);
    if (!rc)
        rc = tu_digest_write(out, d, c->atoms, err);
    tu_free(d);
    return rc;
}

static int convert(const char *from, const char *to, const char *spec,
                   struct tu_buf *digests, struct tu_err *err)
{
    struct tu_ckpt *a = NULL, *b = NULL, *check = NULL;
    struct tu_shard_opts o = {.verify_replicas = true};
    int rc = tu_ckpt_open(&a, from, NULL, &o, NULL, err);
    if (!rc)
        rc = tu_ckpt_plan(&b, a, to, spec, &o, err);
    if (!rc)
        rc = tu_ckpt_convert(a, b, &o, NULL, NULL, err);
    if (!rc)
        rc = tu_ckpt_open(&check, to, NULL, &o, NULL, err);
    if (!rc)
        rc = digest(check, digests, err);
    tu_ckpt_close(check);
    tu_ckpt_close(b);
    tu_ckpt_close(a);
    return rc;
}

static unsigned differing, compared;

static int compare_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    char other[512], *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    (void)st;
    (void)at;
    if (type != FTW_F)
        return 0;
    snprintf(other, sizeof other, "a2%s", path + 2);
    bool read = !tu_file_read(path, 1 << 24, &x, &n, NULL) &&
                !tu_file_read(other, 1 << 24, &y, &m, NULL);
    compared++;
    if (!read || n != m || memcmp(x, y, n)) {
        differing++;
        printf("# %s differs\n", path);
    }
    tu_free(x);
    tu_free(y);
    return 0;
}

static void pair(unsigned number)
{
    struct tu_model m = random_model();
    char a[128], b[128];
    struct tu_buf first = {0}, there = {0}, back = {0}, again = {0};
    struct tu_err err = {0};
    struct tu_ckpt *src = NULL;
    static const uint32_t dtypes[] = {TU_BF16, TU_F16, TU_F32, TU_F64};
    uint32_t dtype = dtypes[roll(4)];
    fit(&m);
    random_layout(a, sizeof a, &m);
    random_layout(b, sizeof b, &m);
    int rc = toy_write("m.tns", &m, dtype, number);
    if (!rc)
        rc = tu_ckpt_open(&src, "m.tns", NULL, NULL, NULL, &err);
    if (!rc)
        rc = digest(src, &first, &err);
    tu_ckpt_close(src);
    if (!rc)
        rc = convert("m.tns", "a1", a, &there, &err);
    if (!rc)
        rc = convert("a1", "b", b, &back, &err);
    if (!rc)
        rc = convert("b", "a2", a, &again, &err);
    differing = compared = 0;
    if (!rc)
        nftw("a1", compare_one, 16, FTW_PHYS);
    bool equal = !rc && first.n && there.n == first.n && back.n == first.n &&
                 again.n == first.n && !memcmp(first.data, there.data, first.n) &&
                 !memcmp(first.data, back.data, first.n) &&
                 !memcmp(first.data, again.data, first.n);
    ok(equal && !differing && compared, "%s kv=%u vocab=%u %s: %s -> %s%s%s", m.family,
       (unsigned)m.kv_heads, (unsigned)m.vocab, m.tied ? "tied" : "untied", a, b,
       rc ? ": " : "", rc ? err.msg : "");
    tu_buf_release(&first);
    tu_buf_release(&there);
    tu_buf_release(&back);
    tu_buf_release(&again);
    remove_tree("a1");
    remove_tree("a2");
    remove_tree("b");
}

int main(void)
{
    const char *text = getenv("TENSORUTILS_TEST_SEED");
    char folder[] = "/dev/shm/pairs-XXXXXX", other[] = "/tmp/pairs-XXXXXX";
    const char *at = mkdtemp(folder) ? folder : mkdtemp(other);
    state = text ? strtoull(text, NULL, 10) : 1;
    printf("# seed %llu\n", (unsigned long long)state);
    if (!at || chdir(at))
        return 99;
    for (unsigned i = 0; i < PAIRS; i++)
        pair(i);
    remove_tree(at);
    return tap_done();
}
