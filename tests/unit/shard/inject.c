/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation and every system call of a convert fails once: the call reports it,
 * and neither the destination nor a partial folder is left. Later failures are sampled,
 * as there are thousands. */
#define _GNU_SOURCE /* nftw */
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../scratch.h"
#include "../tap.h"
#include "toy.h"

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static int convert(const char *spec, struct tu_err *err)
{
    struct tu_ckpt *a = NULL, *b = NULL;
    int rc = tu_ckpt_open(&a, "m.tns", NULL, NULL, NULL, err);
    if (!rc)
        rc = tu_ckpt_plan(&b, a, "out", spec, NULL, err);
    if (!rc)
        rc = tu_ckpt_convert(a, b, NULL, NULL, NULL, err);
    tu_ckpt_close(b);
    tu_ckpt_close(a);
    return rc;
}

/* True when the run failed as it should: with this code, a message, and nothing left
 * behind. */
static bool failed_well(int rc, int code, const struct tu_err *err, int fds)
{
    bool well = rc == code && *err->msg && scratch_files() == 1 && scratch_fds() == fds;
    if (!well)
        printf("# rc %d, '%s', %d files, %d descriptors (%d before)\n", rc, err->msg,
               scratch_files(), scratch_fds(), fds);
    return well;
}

static void walk(const char *spec, bool io)
{
    unsigned bad = 0, failures = 0;
    int fds = scratch_fds();
    for (uint64_t n = 1;; n += 1 + n / 40) {
        struct tu_err err = {0};
        if (io)
            tu_io_inject(n, EIO);
        else
            tu_mem_inject(n, 0);
        int rc = convert(spec, &err);
        if (io)
            tu_io_inject(0, 0);
        else
            tu_mem_inject(0, 0);
        if (!rc)
            break;
        failures++;
        bad += !failed_well(rc, io ? TU_EIO : TU_ENOMEM, &err, fds);
        nftw("out", remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    ok(!bad && failures > 20, "%s: %u failing %s, %u not reported well", spec, failures,
       io ? "system calls" : "allocations", bad);
    nftw("out", remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    static const char *const spec[] = {"hf", "tns:ranks=2", "megatron:tp=2,pp=2",
                                       "meta:tp=2"};
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
    for (size_t i = 0; i < sizeof spec / sizeof *spec; i++) {
        walk(spec[i], false);
        walk(spec[i], true);
    }
    scratch_empty();
    rmdir(scratch_path);
    return tap_done();
}
