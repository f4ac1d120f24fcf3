/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c: --sp: the problem over several ranks. Uses _GNU_SOURCE for MAP_ANONYMOUS. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <tensorutils/coll.h>
#include "fa-run/ranks.h"

/* The mappings of the results at hand. */
static struct {
    void *p;
    size_t n;
} shared[TU_MIXER_OUT_MAX];

bool fa_parallel(void)
{
    return fa_opts.sp != NULL;
}

int fa_shared_memory(struct tu_operand *o, uint64_t bytes, struct tu_err *err)
{
    for (size_t i = 0; i < TU_MIXER_OUT_MAX; i++) {
        if (shared[i].p)
            continue;
        size_t n = bytes ? bytes : 1;
        void *p =
            mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return tu_fail(err, TU_ENOMEM, "%zu bytes of shared memory", n);
        shared[i].p = o->data = p;
        shared[i].n = n;
        return 0;
    }
    if (!(o->data = tu_alloc(bytes, 1, err))) /* results that the ranks do not write */
        return TU_ENOMEM;
    return 0;
}

bool fa_unshare(const struct tu_operand *o)
{
    for (size_t i = 0; i < TU_MIXER_OUT_MAX; i++)
        if (shared[i].p && shared[i].p == o->data) {
            munmap(shared[i].p, shared[i].n);
            shared[i].p = NULL;
            return true;
        }
    return false;
}

/* On --device, but for the reference, which is the CPU's. */
static int run_alone(struct tu_ctx *ctx, const struct tu_mixer *row, struct tu_mixer_args *a,
                     struct tu_err *err)
{
    static const struct tu_device *device;
    static bool opened;
    char note[TU_MIXER_NOTE] = "";
    int code = opened ? 0 : tu_ctx_device(ctx, &device, err);
    opened = true;
    if (code)
        return code;
    if (device && !row->device)
        snprintf(note, sizeof note, "on the CPU: no kernel has this operator");
    a->device = a->algo && strcmp(a->algo, "ref") == 0 ? NULL : device;
    a->note = note;
    code = row->run(a, err);
    a->note = NULL;
    if (!code && strncmp(note, "on the CPU", 10) == 0)
        tu_warn(ctx, "%s: %s", row->name, note);
    else if (!code && *note)
        tu_note(ctx, 1, "%s: %s", row->name, note);
    return code;
}

int fa_compute(struct tu_ctx *ctx, const struct tu_mixer *row, struct tu_mixer_args *a,
               struct tu_err *err)
{
    if (!fa_parallel())
        return run_alone(ctx, row, a, err);
    if (strcmp(ctx->device, "cpu") != 0)
        return tu_fail(err, TU_EUSAGE, "--sp runs on the CPU: no --device");
    struct tu_spec spec;
    struct tu_sp_args sp = {.scheme = &spec,
                            .ranks = (uint32_t)tu_min(fa_opts.ranks, UINT32_MAX),
                            .transport = fa_opts.transport};
    if (sp.ranks == 0 || sp.ranks > TU_RANKS_MAX)
        return tu_fail(err, TU_EUSAGE, "--ranks must be 1 to %u", TU_RANKS_MAX);
    int code = tu_spec_parse(&spec, fa_opts.sp, err);
    if (code)
        return code;
    sp.sent = tu_calloc(sp.ranks, sizeof *sp.sent, err);
    code = sp.sent ? tu_sp_run(a, &sp, err) : TU_ENOMEM;
    for (uint32_t i = 0; !code && i < sp.ranks; i++)
        tu_note(ctx, 1, "rank %" PRIu32 " sent %" PRIu64 " bytes", i, sp.sent[i]);
    if (!code)
        tu_note(ctx, 1, "formula for rank 0, forward: %.0f bytes", sp.formula);
    tu_free(sp.sent);
    tu_spec_release(&spec);
    return code;
}
