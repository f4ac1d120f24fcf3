/* SPDX-License-Identifier: Apache-2.0 */
/* emulate.c: blocks of threads as fibers, and the device that stands in for CUDA in tests.
 *
 * State: the block that this thread runs. Blocks run one after the other; the fibers of a
 * block in turn, each until it must wait. The contexts are System V's, which POSIX has
 * dropped and every libc of Linux keeps. */
#define _GNU_SOURCE /* ucontext */
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include "kernel.h"

enum { STACK = 128 * 1024, GUARD = 64, MOST = 1024, LATE = 512 };

enum what { READY, AT_BARRIER, AT_EXCHANGE, DONE };

struct warp {
    unsigned arrived, turn;
    unsigned char slot[2][WARP][TUI_EXCHANGE];
};

struct late {
    unsigned char *to;
    const unsigned char *from;
    size_t n;
    unsigned group;
};

struct fiber {
    struct late late[LATE];
    unsigned lates, group; /* copies under way; the group that is being made */
    ucontext_t at;
    enum what what;
    unsigned turn; /* of the barrier or the warp when it began to wait */
};

struct block {
    ucontext_t home;
    struct fiber fiber[MOST];
    struct warp warp[MOST / WARP];
    unsigned arrived, turn, done;
    void (*kernel)(const void *args);
    const void *args;
    unsigned char *stacks;
};

_Thread_local struct tui_emulated tui_emulated;
static _Thread_local struct block *block;

_Noreturn void tui_emulated_stop(const char *file, int line, const char *what, size_t i,
                                 size_t n)
{
    fprintf(stderr, "%s:%d: kernel %s, block %u %u, thread %u: %s: %zu of %zu\n", file, line,
            tui_emulated.kernel, tui_emulated.block_x, tui_emulated.block_y,
            tui_emulated.thread, what, i, n);
    abort();
}

static void wait_as(enum what what, unsigned turn)
{
    struct fiber *f = &block->fiber[tui_emulated.thread];
    f->what = what;
    f->turn = turn;
    swapcontext(&f->at, &block->home);
}

void tui_emulated_barrier(void)
{
    unsigned turn = block->turn;
    if (++block->arrived == tui_emulated.threads) {
        block->arrived = 0;
        block->turn++;
        return;
    }
    wait_as(AT_BARRIER, turn);
}

const unsigned char *tui_emulated_exchange(const void *mine, size_t n)
{
    struct warp *w = &block->warp[tui_emulated.thread / WARP];
    unsigned turn = w->turn;
    if (n > TUI_EXCHANGE)
        tui_emulated_stop(__FILE__, __LINE__, "exchange", n, TUI_EXCHANGE);
    memcpy(w->slot[turn % 2][tui_emulated.thread % WARP], mine, n);
    if (++w->arrived == WARP) {
        w->arrived = 0;
        w->turn++;
    } else {
        wait_as(AT_EXCHANGE, turn);
    }
    return w->slot[turn % 2][0];
}

void tui_emulated_later(unsigned char *to, const unsigned char *from, size_t n)
{
    struct fiber *f = &block->fiber[tui_emulated.thread];
    if (f->lates == LATE)
        tui_emulated_stop(__FILE__, __LINE__, "copies under way", LATE, LATE);
    memset(to, 0xff, n);
    f->late[f->lates++] = (struct late){to, from, n, f->group};
}

void tui_emulated_group(void)
{
    block->fiber[tui_emulated.thread].group++;
}

void tui_emulated_arrive(unsigned pending)
{
    struct fiber *f = &block->fiber[tui_emulated.thread];
    unsigned left = 0;
    for (unsigned i = 0; i < f->lates; i++) {
        const struct late *l = &f->late[i];
        if (l->group + pending >= f->group)
            f->late[left++] = *l;
        else if (l->from)
            memcpy(l->to, l->from, l->n);
        else
            memset(l->to, 0, l->n);
    }
    f->lates = left;
}

static void fiber_main(void)
{
    block->kernel(block->args);
    block->fiber[tui_emulated.thread].what = DONE;
    block->done++;
    swapcontext(&block->fiber[tui_emulated.thread].at, &block->home);
}

static bool can_run(unsigned t)
{
    const struct fiber *f = &block->fiber[t];
    if (f->what == AT_BARRIER)
        return block->turn != f->turn;
    if (f->what == AT_EXCHANGE)
        return block->warp[t / WARP].turn != f->turn;
    return f->what == READY;
}

/* Run the block's fibers until all are done. */
static void run_block(bool backward)
{
    unsigned n = tui_emulated.threads;
    for (unsigned t = 0; t < n; t++) {
        struct fiber *f = &block->fiber[t];
        f->what = READY;
        f->lates = f->group = 0;
        getcontext(&f->at);
        f->at.uc_stack.ss_sp = block->stacks + (size_t)t * STACK;
        f->at.uc_stack.ss_size = STACK;
        f->at.uc_link = NULL;
        makecontext(&f->at, fiber_main, 0);
    }
    memset(block->warp, 0, (n + WARP - 1) / WARP * sizeof *block->warp);
    block->arrived = block->turn = block->done = 0;
    while (block->done < n) {
        bool moved = false;
        for (unsigned i = 0; i < n; i++) {
            unsigned t = backward ? n - 1 - i : i;
            if (!can_run(t))
                continue;
            moved = true;
            tui_emulated.thread = t;
            swapcontext(&block->home, &block->fiber[t].at);
        }
        if (!moved)
            tui_emulated_stop(__FILE__, __LINE__, "threads wait for others that are done",
                              n - block->done, n);
    }
}

static bool is_backward(void)
{
    const char *text = getenv("TENSORUTILS_EMULATE");
    return text && strcmp(text, "backward") == 0;
}

int tui_emulate(const char *name, void (*kernel)(const void *args), unsigned gx,
                unsigned gy, unsigned threads, size_t shared, const void *args,
                struct tu_err *err)
{
    if (!threads || threads > MOST || threads % WARP || !gx || !gy)
        return tui_fail(err, TU_EBUG, "kernel %s: %u threads, grid %u %u", name, threads, gx,
                        gy);
    block = calloc(1, sizeof *block);
    unsigned char *stacks = malloc((size_t)threads * STACK),
                  *memory = aligned_alloc(1024, (shared + GUARD + 1023) / 1024 * 1024);
    int code = block && stacks && memory ? 0 : tui_fail(err, TU_ENOMEM, "out of memory");
    if (code)
        goto out;
    tui_emulated = (struct tui_emulated){.threads = threads,
                                         .grid_x = gx,
                                         .grid_y = gy,
                                         .shared = memory,
                                         .shared_bytes = shared,
                                         .kernel = name};
    block->kernel = kernel;
    block->args = args;
    block->stacks = stacks;
    for (unsigned y = 0; y < gy; y++)
        for (unsigned x = 0; x < gx; x++) {
            tui_emulated.block_x = x;
            tui_emulated.block_y = y;
            memset(memory, 0xff, shared + GUARD); /* NaN to those who do not write first */
            run_block(is_backward());
            for (size_t i = 0; i < GUARD; i++)
                if (memory[shared + i] != 0xff)
                    tui_emulated_stop(__FILE__, __LINE__, "written behind shared memory",
                                      shared + i, shared);
        }
out:
    free(block);
    block = NULL;
    free(stacks);
    free(memory);
    return code;
}

/* The device --------------------------------------------------------------------------- */

static int count(unsigned *out, struct tu_err *err)
{
    const char *text = getenv("TENSORUTILS_EMULATE_COUNT");
    *out = text ? (unsigned)strtoul(text, NULL, 10) : 1;
    return *out ? 0
                : tui_fail(err, TU_ENODEV, "cuda: no driver, or one that is too old");
}

static int open_device(unsigned ordinal, struct tu_device_info *info, struct tu_err *err)
{
    (void)ordinal;
    (void)err;
    memset(info, 0, sizeof *info);
    strcpy(info->name, "emulated");
    info->memory_bytes = (uint64_t)1 << 30;
    info->units = 1;
    info->arch = 90;
    return 0;
}

struct tu_device tui_device_here;

/* Memory, queues and events are the CPU's. */
int tui_device_start(struct tu_err *err)
{
    (void)err;
    tui_device_here = tu_device_cpu;
    tui_device_here.name = "cuda";
    tui_device_here.help = "kernels on the CPU, for tests";
    tui_device_here.count = count;
    tui_device_here.open = open_device;
    tui_device_here.has = tui_has_kernel;
    tui_device_here.launch = tui_launch;
    return 0;
}
