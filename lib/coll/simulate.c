/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.c: a plan's rounds over one clock for each rank.
 *
 * In round k a rank starts when its round k-1 is over. What it sends occupies its port
 * for beta per byte; what it receives begins alpha after the sender's start, or when it
 * is ready itself, and takes beta per byte, and gamma where it is added. No events, no
 * queue: a round needs the clocks of the one before. A ring on one level is a recurrence
 * of its own, for the number of its rounds is that of the ranks. Source of the model: R.
 * Thakur, R. Rabenseifner, W. Gropp 2005, section 3. */
#include <math.h>
#include <stdlib.h>
#include "plan.h"

uint32_t tu_topo_ranks(const struct tu_topo *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->levels; i++)
        n *= t->count[i];
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/* "1us+5us": up to four parts by one reader; returns how many, 0 for nonsense. */
static uint32_t parts(const char *text, int (*read)(const char *s, double *out),
                      double out[4])
{
    uint32_t n = 0;
    while (text && n < 4) {
        char part[32];
        size_t len = strcspn(text, "+");
        if (!len || len >= sizeof part)
            return 0;
        memcpy(part, text, len);
        part[len] = '\0';
        if (read(part, &out[n++]))
            return 0;
        text = text[len] ? text + len + 1 : NULL;
    }
    return text ? 0 : n;
}

static int read_count(const char *s, double *out)
{
    uint64_t v;
    if (tu_parse_u64(s, &v, NULL) || !v || v > 1 << 20)
        return TU_EUSAGE;
    *out = (double)v;
    return 0;
}

static int read_over(const char *s, double *out)
{
    return tu_parse_double(s, out, NULL) || !(*out >= 1 && *out <= 1e6) ? TU_EUSAGE : 0;
}

static int read_seconds(const char *s, double *out)
{
    uint64_t ns;
    if (tu_parse_duration(s, &ns, NULL))
        return TU_EUSAGE;
    *out = (double)ns / 1e9;
    return 0;
}

/* Bytes per second: 12.5G, 25GB/s; K M G T are powers of 1000. */
static int read_rate(const char *s, double *out)
{
    static const char unit[] = "KMGT";
    char digits[32];
    size_t n = strspn(s, "0123456789.e");
    double scale = 1;
    if (!n || n >= sizeof digits)
        return TU_EUSAGE;
    memcpy(digits, s, n);
    digits[n] = '\0';
    s += n;
    const char *u = *s ? strchr(unit, *s) : NULL;
    if (u) {
        scale = pow(1000, (double)(u - unit + 1));
        s++;
    }
    if ((*s && strcmp(s, "B/s") != 0) || tu_parse_double(digits, out, NULL))
        return TU_EUSAGE;
    *out *= scale;
    return *out > 0 && isfinite(*out) ? 0 : TU_EUSAGE;
}

int tu_topo_parse(struct tu_topo *out, const char *text, struct tu_err *err)
{
    static const char *const keys[] = {"n", "alpha", "bw", "gamma", "oversub", NULL};
    struct tu_spec s;
    double n[4], rate[4];
    int code = tu_spec_parse(&s, text, err);
    if (code)
        return code;
    *out = (struct tu_topo){0};
    code = strcmp(s.name, "levels") == 0
               ? tu_spec_check(&s, keys, err)
               : tu_fail(err, TU_EUSAGE, "no topology '%s': levels:n=…,alpha=…,bw=…",
                         s.name);
    if (!code) {
        uint32_t levels = parts(tu_spec_get(&s, "n"), read_count, n);
        uint32_t alphas = parts(tu_spec_get(&s, "alpha"), read_seconds, out->alpha);
        uint32_t rates = parts(tu_spec_get(&s, "bw"), read_rate, rate);
        out->levels = levels;
        for (uint32_t i = 0; i < levels; i++) {
            out->count[i] = (uint32_t)n[i];
            out->beta[i] = 1 / rate[i];
        }
        if (!levels || alphas != levels || rates != levels)
            code = tu_fail(err, TU_EUSAGE,
                           "%s: n, alpha and bw need as many positive parts each", text);
        else if (tu_spec_get(&s, "gamma") &&
                 read_rate(tu_spec_get(&s, "gamma"), &out->gamma))
            code = tu_fail(err, TU_EUSAGE, "%s: gamma is a rate of adding", text);
        else if (tu_spec_get(&s, "oversub") &&
                 parts(tu_spec_get(&s, "oversub"), read_over, out->oversub) != levels)
            code = tu_fail(err, TU_EUSAGE,
                           "%s: oversub needs a part of 1 or more a level", text);
        else if (out->gamma > 0)
            out->gamma = 1 / out->gamma;
        if (!code && tu_topo_ranks(out) > 1 << 20)
            code = tu_fail(err, TU_EUSAGE, "%s: more than a million ranks", text);
    }
    tu_spec_release(&s);
    return code;
}

uint32_t tui_topo_level(const struct tu_topo *t, uint32_t a, uint32_t b)
{
    uint32_t i = 0;
    for (; i + 1 < t->levels; i++) {
        a /= t->count[i];
        b /= t->count[i];
        if (a == b)
            break;
    }
    return i;
}

struct sim {
    const struct tu_plan *p;
    const struct tu_topo *t;
    const struct tu_sim_opts *o;
    double *clock, *next, *began, *first, *last, *sent;
    struct tu_peer_seen *peer; /* [ranks × ranks], when seen is wanted */
    struct tu_sim_result *out;
};

static double slowness(const struct sim *s, uint32_t from, uint32_t to)
{
    double f = 1;
    for (size_t i = 0; s->o && i < s->o->faults; i++)
        if (s->o->fault[i].rank == from && s->o->fault[i].peer == to)
            f *= s->o->fault[i].factor;
    return f;
}

/* When ranks come to the operation. */
static void begin(struct sim *s)
{
    struct tu_rng rng = {.seed = s->o ? s->o->seed : 0, .stream = s->o ? s->o->op : 0};
    for (uint32_t r = 0; r < s->p->ranks; r++) {
        double late = 0;
        for (size_t i = 0; s->o && i < s->o->faults; i++)
            if (s->o->fault[i].rank == r && s->o->fault[i].peer == TU_NOBODY)
                late += s->o->fault[i].late;
        if (s->o && s->o->jitter > 0)
            late -= s->o->jitter * log(((double)tu_rng_u32(&rng, r) + 1) / 4294967297.0);
        s->clock[r] = s->began[r] = late;
    }
}

static void note(struct sim *s, uint32_t r, uint32_t q, double bytes, double took,
                 double done)
{
    if (!s->peer)
        return;
    struct tu_peer_seen *p = &s->peer[(size_t)r * s->p->ranks + q];
    p->bytes += (uint64_t)bytes;
    p->wait_ns += (uint64_t)(took * 1e9);
    if (s->first[r] < 0)
        s->first[r] = done;
    s->last[r] = done;
}

static void play(struct sim *s, uint64_t k)
{
    const struct tu_topo *t = s->t;
    for (uint32_t r = 0; r < s->p->ranks; r++) {
        struct tu_round o;
        double start = s->clock[r], end = start;
        s->p->alg->round(s->p, r, k, &o);
        bool local = o.to == r && o.from == r;
        if (!local && o.to != TU_NOBODY && o.send.n) {
            uint32_t l = tui_topo_level(t, r, o.to);
            double n = (double)o.send.n;
            end = start + n * t->beta[l] * (s->o ? slowness(s, r, o.to) : 1);
            s->sent[r] += n;
            s->out->level_bytes[l] += n;
            s->out->messages++;
        }
        if (!local && o.from != TU_NOBODY && o.recv.n) {
            uint32_t l = tui_topo_level(t, r, o.from);
            double n = (double)o.recv.n, f = s->o ? slowness(s, o.from, r) : 1;
            double done =
                fmax(start, s->clock[o.from] + t->alpha[l] * f) + n * t->beta[l] * f;
            note(s, r, o.from, n, n * t->beta[l] * f, done);
            end = fmax(end, done + (o.add ? n * t->gamma : 0));
        }
        s->next[r] = end;
    }
    double *swap = s->clock;
    s->clock = s->next;
    s->next = swap;
}

#if defined __GNUC__ && !defined __clang__
#pragma GCC push_options
#pragma GCC optimize("O3") /* the loop below is all the time of a large ring */
#endif
/* One round of a ring: len[r] is what r sends, alpha and beta are those of the link r-1 →
 * r, out of r's; index 0 of the arrays that begin at -1 is the rank before the first. */
static void ring_round(double *restrict next, const double *restrict clock,
                       const double *restrict before, const double *restrict len,
                       const double *restrict came, const double *restrict alpha,
                       const double *restrict beta, const double *restrict beta_out,
                       double gamma, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        double start = clock[r], arrive = before[r] + alpha[r];
        double from = arrive > start ? arrive : start;
        double got = from + came[r] * (beta[r] + gamma),
               gone = start + len[r] * beta_out[r];
        next[r] = got > gone ? got : gone;
    }
}
#if defined __GNUC__ && !defined __clang__
#pragma GCC pop_options
#endif

/* A plain ring, all rounds: blocks are read from a row that holds them twice. */
static int whole_ring(struct sim *s, struct tu_err *err)
{
    uint32_t n = s->p->ranks;
    double *row = tu_alloc(7 * (size_t)n + 2, sizeof *row, err);
    if (!row)
        return TU_ENOMEM;
    double *block = row, *alpha = row + 3 * (size_t)n, *beta = alpha + n, *out = beta + n;
    double *before = out + n;
    for (uint32_t i = 0; i < 3 * n; i++)
        block[i] = (double)tui_block_len(s->p->count, n, i % n);
    for (uint32_t r = 0; r < n; r++) {
        uint32_t l = tui_topo_level(s->t, tui_turn(r, -1, n), r),
                 m = tui_topo_level(s->t, r, tui_turn(r, 1, n));
        alpha[r] = s->t->alpha[l];
        beta[r] = s->t->beta[l];
        out[r] = s->t->beta[m];
        s->sent[r] = (double)s->p->alg->sent(s->p, r);
        s->out->level_bytes[m] += s->sent[r];
    }
    for (uint32_t k = 0; k < 2 * (n - 1); k++) {
        bool add = k < n - 1;
        uint32_t i = add ? k : k - (n - 1);
        /* r sends block r-i, later r+1-i; receives the one below. */
        const double *len = block + n + (add ? 0 : 1) - i, *came = len - 1;
        before[0] = s->clock[n - 1];
        memcpy(before + 1, s->clock, (n - 1) * sizeof *before);
        ring_round(s->next, s->clock, before, len, came, alpha, beta, out,
                   add ? s->t->gamma : 0, n);
        double *swap = s->clock;
        s->clock = s->next;
        s->next = swap;
    }
    s->out->messages = 2 * (uint64_t)n * (n - 1);
    tu_free(row);
    return 0;
}

/* A level's rings, one way: q ranks, `stride` apart, on the part[r] bytes that are left.
 */
struct phase {
    uint32_t q, stride;
    const uint32_t *pos, *before; /* place in the ring, the rank before */
    const uint64_t *part;
    const double *alpha, *beta, *out;
    bool gather;
};

static double block_bytes(uint64_t n, uint32_t q, uint32_t b)
{
    return (double)(n / q + (b < n % q));
}

static void phase_round(struct sim *s, const struct phase *f, uint32_t i)
{
    double gamma = f->gather ? 0 : s->t->gamma;
    for (uint32_t r = 0; r < s->p->ranks; r++) {
        /* pos-i goes out and the one below comes in; one higher on the way back. */
        uint32_t b = f->pos[r] + f->q + f->gather - i;
        b -= b >= f->q ? f->q : 0;
        b -= b >= f->q ? f->q : 0;
        uint32_t c = b ? b - 1 : f->q - 1;
        double start = s->clock[r], sender = s->clock[f->before[r]] + f->alpha[r];
        double gone = start + block_bytes(f->part[r], f->q, b) * f->out[r];
        double got = (sender > start ? sender : start) +
                     block_bytes(f->part[r], f->q, c) * (f->beta[r] + gamma);
        s->next[r] = got > gone ? got : gone;
    }
    double *swap = s->clock;
    s->clock = s->next;
    s->next = swap;
}

/* All phases of "hier": in by reduce-scatters, out by all-gathers. */
static int whole_levels(struct sim *s, struct tu_err *err)
{
    uint32_t n = s->p->ranks, L = s->p->levels;
    uint32_t *index = tu_alloc(2 * (size_t)n, sizeof *index, err);
    uint64_t *part = tu_alloc((size_t)n * L, sizeof *part, err);
    double *row = tu_alloc(3 * (size_t)n, sizeof *row, err);
    int code = index && part && row ? 0 : TU_ENOMEM;
    for (uint32_t turn = 0; turn < 2 * L && !code; turn++) {
        uint32_t j = turn < L ? turn : 2 * L - 1 - turn, stride = 1;
        for (uint32_t i = 0; i < j; i++)
            stride *= s->p->level[i];
        struct phase f = {.q = s->p->level[j],
                          .stride = stride,
                          .pos = index,
                          .before = index + n,
                          .part = part + (size_t)j * n,
                          .alpha = row,
                          .beta = row + n,
                          .out = row + 2 * n,
                          .gather = turn >= L};
        for (uint32_t r = 0; r < n; r++) {
            uint32_t pos = r / stride % f.q, first = r - pos * stride;
            uint32_t before = first + tui_turn(pos, -1, f.q) * stride;
            uint32_t l = tui_topo_level(s->t, before, r);
            uint32_t m = tui_topo_level(s->t, r, first + tui_turn(pos, 1, f.q) * stride);
            index[r] = pos;
            index[n + r] = before;
            row[r] = s->t->alpha[l];
            row[n + r] = s->t->beta[l];
            row[2 * n + r] = s->t->beta[m];
            if (turn >= L)
                continue;
            uint64_t here = j ? part[(size_t)(j - 1) * n + r] : s->p->count;
            if (j) { /* the block that the level inside left */
                uint32_t inner = s->p->level[j - 1];
                uint32_t mine = (r / (stride / inner) % inner + 1) % inner;
                here = tui_block_len(here, inner, mine);
            }
            part[(size_t)j * n + r] = here;
            if (f.q > 1)
                s->out->level_bytes[m] += 2.0 * (double)here * (f.q - 1) / f.q;
        }
        for (uint32_t i = 0; i + 1 < f.q; i++)
            phase_round(s, &f, i);
        s->out->messages += (uint64_t)n * (f.q - 1);
    }
    for (uint32_t r = 0; r < n && !code; r++)
        s->sent[r] = (double)s->p->alg->sent(s->p, r);
    tu_free(index);
    tu_free(part);
    tu_free(row);
    return code;
}

static void conclude(struct sim *s)
{
    struct tu_sim_result *out = s->out;
    for (uint32_t r = 0; r < s->p->ranks; r++) {
        if (s->clock[r] > out->seconds) {
            out->seconds = s->clock[r];
            out->last = r;
        }
        if (s->sent[r] > out->busiest_bytes) {
            out->busiest_bytes = s->sent[r];
            out->busiest = r;
        }
        if (!s->peer)
            continue;
        uint64_t base = s->o->op * UINT64_C(1000000000);
        struct tu_seen seen = {.seq = s->o->op,
                               .arrive_ns = base + (uint64_t)(s->began[r] * 1e9),
                               .first_ns = base + (uint64_t)(fmax(s->first[r], 0) * 1e9),
                               .last_ns = base + (uint64_t)(s->last[r] * 1e9),
                               .done_ns = base + (uint64_t)(s->clock[r] * 1e9),
                               .peer = s->peer + (size_t)r * s->p->ranks};
        s->o->seen(s->o->ctx, r, &seen);
    }
    /* No rank can send its bytes faster than its quickest link. */
    double beta = s->t->beta[0];
    for (uint32_t i = 1; i < s->t->levels; i++)
        beta = fmin(beta, s->t->beta[i]);
    out->bound = out->busiest_bytes * beta;
}

int tu_coll_simulate(struct tu_sim_result *out, const struct tu_plan *p,
                     const struct tu_topo *t, const struct tu_sim_opts *o,
                     struct tu_err *err)
{
    *out = (struct tu_sim_result){.rounds = p->rounds};
    if (p->alg->flags & TU_ALG_SHARED)
        return tu_fail(err, TU_EUSAGE, "'%s' has no messages to simulate", p->alg->name);
    if (tu_topo_ranks(t) != p->ranks)
        return tu_fail(err, TU_EUSAGE, "the topology has %u ranks, the plan %u",
                       (unsigned)tu_topo_ranks(t), (unsigned)p->ranks);
    size_t n = p->ranks;
    double *all = tu_calloc(6 * n, sizeof *all, err);
    if (!all)
        return TU_ENOMEM;
    struct sim s = {.p = p,
                    .t = t,
                    .o = o,
                    .clock = all,
                    .next = all + n,
                    .began = all + 2 * n,
                    .first = all + 3 * n,
                    .last = all + 4 * n,
                    .sent = all + 5 * n,
                    .out = out};
    int code = 0;
    if (o && o->seen && !(s.peer = tu_calloc(n * n, sizeof *s.peer, err)))
        code = TU_ENOMEM;
    for (size_t r = 0; r < n; r++)
        s.first[r] = -1;
    begin(&s);
    bool plain = n > 1 && (!o || (!o->faults && !o->seen));
    bool ring = plain && p->alg == &tui_ar_ring && p->segments == 1;
    bool hier = plain && p->alg == &tui_ar_hier;
    if (!code && ring)
        code = whole_ring(&s, err);
    else if (!code && hier)
        code = whole_levels(&s, err);
    for (uint64_t k = 0; k < p->rounds && !code && !ring && !hier; k++)
        play(&s, k);
    if (!code)
        conclude(&s);
    tu_free(s.peer);
    tu_free(all);
    return code;
}
