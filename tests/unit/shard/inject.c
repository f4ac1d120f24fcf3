/* SPDX-License-Identifier: Apache-2.0 */
/* Every way to an allocation and the system calls of a convert fail, from and to every layout: the
 * call reports it, and neither the destination nor a partial folder is left. */
#define _GNU_SOURCE /* nftw */
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../inject.h"
#include "toy.h"

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    char *text = NULL;
    size_t n;
    (void)at;
    if (type == FTW_F && st->st_size && !tu_file_read(path, 1 << 26, &text, &n, NULL))
        inject_add(text, n);
    tu_free(text);
    return remove(path);
}

struct way {
    const char *from; /* below tests/data, where it begins with '@' */
    const char *spec; /* of what is made; NULL: nothing is, the source is looked at */
};

static char root[512]; /* of the tree */

/* What is asked of a source: its digests, those of a manifest, its copies, and the records of a
 * GGUF file where its family has one. */
static int look(const struct tu_ckpt *c, struct tu_err *err)
{
    uint64_t compared;
    struct tu_buf files = {0}, text = {0};
    struct tu_digest *d = tu_alloc(c->atoms + 1, sizeof *d, err);
    int rc = d ? tu_ckpt_digest(c, NULL, NULL, d, err) : TU_ENOMEM;
    if (!rc)
        rc = tu_digest_write(&text, d, c->atoms, err);
    if (!rc)
        rc = tu_ckpt_verify_digests(c, NULL, NULL, &compared, err);
    if (!rc)
        rc = tu_ckpt_replicas(c, false, NULL, err);
    if (!rc)
        rc = tu_ckpt_files(c, &files, err);
    tu_buf_release(&files);
    tu_buf_release(&text);
    tu_free(d);
    return rc;
}

static int run(const void *arg, struct tu_err *err)
{
    const struct way *way = arg;
    static const struct tu_shard_opts opts = {.verify_replicas = true, .sha256 = true};
    struct tu_ckpt *a = NULL, *b = NULL;
    char path[1024];
    snprintf(path, sizeof path, *way->from == '@' ? "%s/tests/data/%s" : "%.0s%s", root,
             way->from + (*way->from == '@'));
    int rc = tu_ckpt_open(&a, path, NULL, &opts, NULL, err);
    if (!rc && !way->spec)
        rc = look(a, err);
    if (!rc && way->spec)
        rc = tu_ckpt_plan(&b, a, "out", way->spec, &opts, err);
    if (!rc && b)
        rc = tu_ckpt_convert(a, b, &opts, NULL, NULL, err);
    tu_ckpt_close(b);
    tu_ckpt_close(a);
    return rc;
}

/* Nothing is left behind a failure, but for one file that is whole and could only not be made
 * durable. */
static const char *sweep(const void *arg, int rc, const struct tu_err *err)
{
    struct stat st;
    bool file = !stat("out", &st) && S_ISREG(st.st_mode) && !strncmp(err->msg, ".: ", 3);
    bool left = rc && scratch_files() != 1 + file;
    (void)arg;
    nftw("out", remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return left ? "files are left" : NULL;
}

static void walk(const struct way *way)
{
    char name[80];
    snprintf(name, sizeof name, "%s to %s", way->from, way->spec ? way->spec : "nothing");
    const struct inject w = {.name = name, .run = run, .arg = way, .after = sweep, .dense = 60};
    if (inject_memory(&w))
        inject_io(&w);
}

int main(void)
{
    static const struct way ways[] = {
        {"m.tns", "hf"},
        {"m.tns", "tns:ranks=2"},
        {"m.tns", "megatron:tp=2,pp=2"},
        {"m.tns", "meta:tp=2"},
        {"m.tns", "torch_dist:ranks=2"},
        {"m.tns", "dcp_hf:ranks=2"},
        {"m.tns", "torch"},
        {"@meta/llama2_2", "safetensors"},
        {"@megatron/llama_tp2_pp2", NULL},
        {"@torch_dist/llama_tp2_pp2", "dcp:ranks=2"},
        {"@dcp/tp2_dp2", "dcp:ranks=2"},
        {"@dcp/hf_dp2", NULL},
        {"@deepspeed/toy_z1_dp2", "zero:stage=3,dp=3"},
        {"@deepspeed/toy_z3_dp2", "universal"},
        {"@deepspeed/toy_z1_dp2.universal", "zero:stage=2,dp=2"},
        {"@deepspeed/moe_z1_ep2_dp4", "tns"},
        {"@deepspeed/pipe_pp2_dp2", NULL},
    };
    if (!getcwd(root, sizeof root))
        return 99;
    struct tu_model m = tu_family_find("llama")->base;
    scratch_enter();
    strcpy(m.family, "llama");
    m.layers = 2;
    m.heads = m.kv_heads = 2;
    m.head_dim = 4;
    m.hidden = 8;
    m.ffn = 16;
    m.vocab = 10;
    m.positions = 8;
    eq_int(toy_write("m.tns", &m, TU_BF16, 1), 0, "a model");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        walk(&ways[i]);
    scratch_empty();
    rmdir(scratch_path);
    return tap_done();
}
