/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c: faults that a group plays on purpose, so that what notices them can be proven.
 */
#include <signal.h>
#include <time.h>
#include "world.h"

static const struct {
    const char *name;
    enum tu_fault_kind kind;
    const char *const key[5];
} kinds[] = {
    {"slow", TU_FAULT_DELAY, {"rank", "op", "us", NULL}},
    {"link", TU_FAULT_LINK, {"from", "to", "op", "rate", "us"}},
    {"kill", TU_FAULT_KILL, {"rank", "op", NULL}},
    {"stop", TU_FAULT_STOP, {"rank", "op", NULL}},
    {"stall", TU_FAULT_STALL, {"rank", "op", NULL}},
    {"close", TU_FAULT_CLOSE, {"rank", "op", NULL}},
    {"flip", TU_FAULT_FLIP, {"rank", "op", NULL}},
};

static int read_rank(const struct tu_spec *s, const char *key, uint32_t *out,
                     struct tu_err *err)
{
    uint64_t v;
    int code = tu_spec_u64(s, key, TU_NOBODY, &v, err);
    if (!code && v > TU_RANKS_MAX && v != TU_NOBODY)
        code = tu_fail(err, TU_EUSAGE, "%s=%llu: not a rank", key, (unsigned long long)v);
    *out = code ? 0 : (uint32_t)v;
    return code;
}

static int fill(struct tu_fault *f, const struct tu_spec *s, struct tu_err *err)
{
    uint64_t us, rate = 0;
    bool link = f->kind == TU_FAULT_LINK;
    int code = read_rank(s, link ? "from" : "rank", &f->rank, err);
    if (!code)
        code = read_rank(s, "to", &f->peer, err);
    if (!code)
        code = tu_spec_u64(s, "op", 0, &f->from, err);
    if (!code)
        code = tu_spec_u64(s, "us", f->kind == TU_FAULT_DELAY ? 1000 : 0, &us, err);
    if (!code && tu_spec_get(s, "rate"))
        code = tu_parse_size(tu_spec_get(s, "rate"), &rate, err);
    if (code)
        return code;
    if (f->rank == TU_NOBODY)
        return tu_fail(err, TU_EUSAGE, "fault '%s' needs %s=N", s->name,
                       link ? "from" : "rank");
    if (us > UINT64_MAX / 1000)
        return tu_fail(err, TU_EUSAGE, "us=%llu: too long", (unsigned long long)us);
    f->extra = us * 1000;
    f->amount = link ? (rate ? (uint64_t)(1048576e9 / (double)rate) : 0) : us * 1000;
    return 0;
}

int tu_fault_parse(struct tu_fault *out, const char *text, struct tu_err *err)
{
    struct tu_spec s;
    int code = tu_spec_parse(&s, text, err);
    if (code)
        return code;
    *out = (struct tu_fault){0};
    code = tu_fail(err, TU_EUSAGE, "no fault '%s'", s.name);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(s.name, kinds[i].name) != 0)
            continue;
        const char *known[6] = {0};
        memcpy(known, kinds[i].key, sizeof kinds[i].key);
        out->kind = kinds[i].kind;
        code = tu_spec_check(&s, known, err);
        if (!code)
            code = fill(out, &s, err);
    }
    tu_spec_release(&s);
    return code;
}

static void rest(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (nanosleep(&t, &t) < 0)
        continue;
}

int tui_fault_begin(struct tu_rank *r, uint64_t op, struct tu_err *err)
{
    const struct tu_group *g = r->w->g;
    for (size_t i = 0; i < g->faults; i++) {
        const struct tu_fault *f = &g->fault[i];
        if (f->rank != r->id || op < f->from)
            continue;
        switch (f->kind) {
        case TU_FAULT_DELAY:
            rest(f->amount);
            r->played |= UINT64_C(1) << i;
            break;
        case TU_FAULT_KILL: raise(SIGKILL); break;
        case TU_FAULT_STOP: raise(SIGSTOP); break;
        case TU_FAULT_STALL: /* without a beat, until the others have given up */
            while (!atomic_load(&r->w->board->stop))
                rest(1000000);
            return tu_fail(err, TU_EPEER, "rank %u stalled as asked", (unsigned)r->id);
        case TU_FAULT_CLOSE:
            return tu_fail(err, TU_EPEER, "rank %u left in operation %llu as asked",
                           (unsigned)r->id, (unsigned long long)op + 1);
        case TU_FAULT_FLIP:
        case TU_FAULT_LINK: r->due |= UINT64_C(1) << i; break;
        }
    }
    return 0;
}

bool tui_fault_flips(struct tu_rank *r)
{
    const struct tu_group *g = r->w->g;
    bool flips = false;
    for (size_t i = 0; i < g->faults; i++)
        if (g->fault[i].kind == TU_FAULT_FLIP && r->due >> i & 1) {
            r->played |= UINT64_C(1) << i;
            flips = true;
        }
    return flips;
}

void tui_fault_link(struct tu_rank *r, uint32_t to, uint64_t bytes)
{
    const struct tu_group *g = r->w->g;
    for (size_t i = 0; i < g->faults; i++) {
        const struct tu_fault *f = &g->fault[i];
        uint64_t ns =
            f->extra + (uint64_t)((double)f->amount * ((double)bytes / 1048576));
        if (f->kind != TU_FAULT_LINK || !(r->due >> i & 1) || !ns ||
            (f->peer != TU_NOBODY && f->peer != to))
            continue;
        rest(ns);
        r->played |= UINT64_C(1) << i;
    }
}

bool tui_fault_needs_messages(const struct tu_group *g)
{
    for (size_t i = 0; i < g->faults; i++)
        if (g->fault[i].kind == TU_FAULT_FLIP || g->fault[i].kind == TU_FAULT_LINK)
            return true;
    return false;
}

int tui_fault_end(const struct tu_rank *r, struct tu_err *err)
{
    const struct tu_group *g = r->w->g;
    for (size_t i = 0; i < g->faults; i++) {
        const struct tu_fault *f = &g->fault[i];
        if (f->rank != r->id || r->played >> i & 1)
            continue;
        const char *name = "";
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            if (kinds[k].kind == f->kind)
                name = kinds[k].name;
        unsigned long long ops = atomic_load(&r->seat->seq);
        if (ops <= f->from)
            return tu_fail(err, TU_EUSAGE,
                           "fault '%s' of rank %u was never played: op=%llu, and there "
                           "were %llu operations",
                           name, (unsigned)r->id, (unsigned long long)f->from, ops);
        return tu_fail(err, TU_EUSAGE,
                       "fault '%s' of rank %u was never played: the rank sent no message "
                       "that it could act on",
                       name, (unsigned)r->id);
    }
    return 0;
}
