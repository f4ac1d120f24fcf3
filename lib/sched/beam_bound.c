/* SPDX-License-Identifier: Apache-2.0 */
/* beam_bound.c: how short an order that begins with a state can be.
 *
 * Earliest starts of all that is left, from precedence and memory, and from them for each
 * rank the one-machine bound: work released at r or later ends no earlier than r plus its
 * sum. */
#include "sched/beam.h"

int tui_beam_open(struct tui_beam_problem *g, const struct tui_problem *x,
                  struct tu_err *err)
{
    size_t cells = (size_t)x->stages * x->m;
    size_t bytes = 3 * x->stages * sizeof(uint16_t) + x->stages;
    *g = (struct tui_beam_problem){.x = x, .stride = x->p + 2 * cells + (bytes + 7) / 8};
    g->est = tu_alloc(2 * cells, sizeof *g->est, err);
    g->chain = tu_alloc(2 * (size_t)x->p, sizeof *g->chain, err);
    g->of = tu_calloc(x->p, sizeof *g->of, err);
    g->of_n = tu_calloc(x->p, sizeof *g->of_n, err);
    if (!g->est || !g->chain || !g->of || !g->of_n)
        return TU_ENOMEM;
    for (uint32_t k = 0; k < x->stages; k++) {
        uint32_t r = x->place[k];
        if (g->of_n[r] == 64)
            return tu_fail(err, TU_EUSAGE, "search: rank %u has more than 64 stages", r);
        g->of[r][g->of_n[r]++] = k;
    }
    return 0;
}

void tui_beam_close(struct tui_beam_problem *g)
{
    tu_free(g->est);
    tu_free(g->chain);
    tu_free(g->of);
    tu_free(g->of_n);
}

struct tui_state tui_state_view(const struct tui_beam_problem *g, int64_t *at)
{
    const struct tui_problem *x = g->x;
    size_t cells = (size_t)x->stages * x->m;
    struct tui_state s = {.clock = at, .f_end = at + x->p, .i_end = at + x->p + cells};
    s.n = (uint16_t *)(void *)(at + x->p + 2 * cells);
    s.wait = (uint8_t *)(s.n + 3 * x->stages);
    return s;
}

/* Earliest ends of everything that is left, by precedence and by what memory forces. */
static void earliest(const struct tui_beam_problem *g, const struct tui_state *s)
{
    const struct tui_problem *x = g->x;
    size_t m = x->m;
    int64_t *f = g->est, *b = g->est + (size_t)x->stages * m;
    bool single = x->stages == x->p && x->cap;
    int64_t fits = x->cap ? x->cap / x->mem_f : 0;
    bool tight = single && x->cap % x->mem_f < x->mem_w;
    for (size_t j = 0; j < m; j++) {
        for (uint32_t k = 0; k < x->stages; k++) {
            if (j < s->n[3 * k]) {
                f[k * m + j] = s->f_end[k * m + j];
                continue;
            }
            int64_t at = s->clock[x->place[k]], t;
            if (k && (t = f[(k - 1) * m + j] + x->c_fwd[k]) > at)
                at = t;
            if (j && f[k * m + j - 1] > at)
                at = f[k * m + j - 1];
            if (single && (int64_t)j >= fits) {
                size_t old = j - (size_t)fits;
                t = b[k * m + old];
                if (tight && old >= s->n[3 * k + 2])
                    t += x->w[k] < x->i[k] ? x->w[k] : x->i[k];
                at = t > at ? t : at;
            }
            f[k * m + j] = at + x->f[k];
        }
        for (uint32_t k = x->stages; k-- > 0;) {
            if (j < s->n[3 * k + 1]) {
                b[k * m + j] = s->i_end[k * m + j];
                continue;
            }
            int64_t at = f[k * m + j], t;
            at = s->clock[x->place[k]] > at ? s->clock[x->place[k]] : at;
            if (k + 1 < x->stages && (t = b[(k + 1) * m + j] + x->c_bwd[k]) > at)
                at = t;
            if (j && b[k * m + j - 1] > at)
                at = b[k * m + j - 1];
            b[k * m + j] = at + x->i[k];
        }
    }
}

/* One rank: work in descending order of release. *chain: a bound on the end of its
 * forwards and input gradients alone, which all come before the last input gradient of
 * its lowest stage. */
static int64_t one_machine(const struct tui_beam_problem *g, const struct tui_state *s,
                           uint32_t rank, int64_t *chain)
{
    const struct tui_problem *x = g->x;
    size_t m = x->m;
    const int64_t *f = g->est, *b = g->est + (size_t)x->stages * m;
    uint32_t lists = 3 * g->of_n[rank];
    uint32_t left[192];
    int64_t sum = 0, chain_sum = 0, bound = s->clock[rank];
    for (uint32_t q = 0; q < lists; q++)
        left[q] = x->m;
    *chain = bound;
    for (;;) {
        int64_t best = -1, took = 0;
        uint32_t which = UINT32_MAX;
        for (uint32_t q = 0; q < lists; q++) {
            uint32_t k = g->of[rank][q / 3], kind = q % 3;
            if (left[q] <= s->n[3 * k + kind])
                continue;
            size_t j = left[q] - 1;
            int64_t r = kind == 0   ? f[k * m + j] - x->f[k]
                        : kind == 1 ? b[k * m + j] - x->i[k]
                                    : b[k * m + j];
            if (r > best) {
                best = r;
                which = q;
                took = kind == 0 ? x->f[k] : kind == 1 ? x->i[k] : x->w[k];
            }
        }
        if (which == UINT32_MAX)
            return bound;
        left[which]--;
        int64_t release = best > s->clock[rank] ? best : s->clock[rank];
        sum += took;
        bound = release + sum > bound ? release + sum : bound;
        if (which % 3 < 2) {
            chain_sum += took;
            *chain = release + chain_sum > *chain ? release + chain_sum : *chain;
        }
    }
}

int64_t tui_state_bound(const struct tui_beam_problem *g, const struct tui_state *s,
                        int64_t *spread)
{
    const struct tui_problem *x = g->x;
    const int64_t *b = g->est + (size_t)x->stages * x->m;
    int64_t *chain = g->chain, *end = g->chain + x->p, most = 0, back = 0;
    earliest(g, s);
    for (uint32_t r = 0; r < x->p; r++)
        end[r] = one_machine(g, s, r, &chain[r]);
    for (uint32_t k = x->stages; k-- > 0;) {
        uint32_t r = x->place[k];
        back += k + 1 < x->stages ? x->c_bwd[k] + x->i[k] : 0;
        int64_t t = b[(size_t)k * x->m + x->m - 1];
        back = t > back ? t : back;
        if (g->of[r][0] == k && chain[r] > back)
            back = chain[r];
        t = back + (s->n[3 * k + 2] < x->m ? x->w[k] : 0);
        end[r] = t > end[r] ? t : end[r];
        if (s->n[3 * k + 1] == x->m)
            back = b[(size_t)k * x->m + x->m - 1];
    }
    *spread = 0;
    for (uint32_t r = 0; r < x->p; r++) {
        int64_t t = end[r] - x->begin[r];
        most = t > most ? t : most;
        *spread += t;
    }
    return most;
}
