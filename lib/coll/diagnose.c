/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.c: one verdict from what the ranks saw: hang, mismatch, slow rank, slow link.
 *
 * Rules, in this order (spec section 10): operations that some ranks never came to, or
 * that they understood differently; a rank that comes last again and again; a link whose
 * receiver waits longest for it again and again. Medians and shares of operations, never
 * single times. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "plan.h"

#define SHARE 0.6    /* of the operations must show it */
#define ENOUGH 20    /* operations for a verdict on slowness */
#define MATTERS 0.02 /* of the operation: a slow link's excess */
#define LINK 1.5     /* a link's time per byte over the median link's */

const char *const tu_trouble_names[] = {"fine",      "hang",      "mismatch", "slow_rank",
                                        "slow_link", "too_short", NULL};

struct record {
    uint64_t seq, bytes, arrive, done;
    uint32_t rank, what; /* hash of op and dtype */
    size_t peer, peers;  /* into the list */
};

struct seen_peer {
    uint32_t rank;
    uint64_t bytes, wait;
};

struct tu_trace {
    struct record *record;
    struct seen_peer *peer;
    size_t records, records_cap, peers, peers_cap;
    uint32_t ranks;
};

int tu_trace_new(struct tu_trace **out, struct tu_err *err)
{
    *out = tu_calloc(1, sizeof **out, err);
    return *out ? 0 : TU_ENOMEM;
}

void tu_trace_free(struct tu_trace *t)
{
    if (!t)
        return;
    tu_free(t->record);
    tu_free(t->peer);
    tu_free(t);
}

static int add_record(struct tu_trace *t, const struct record *r, struct tu_err *err)
{
    int code = TU_GROW(&t->record, &t->records_cap, t->records, err);
    if (code)
        return code;
    t->record[t->records++] = *r;
    t->ranks = r->rank + 1 > t->ranks ? r->rank + 1 : t->ranks;
    return 0;
}

static int add_peer(struct tu_trace *t, struct seen_peer p, struct tu_err *err)
{
    int code = TU_GROW(&t->peer, &t->peers_cap, t->peers, err);
    if (!code)
        t->peer[t->peers++] = p;
    return code;
}

int tu_trace_add(struct tu_trace *t, uint32_t rank, uint32_t ranks,
                 const struct tu_seen *s, struct tu_err *err)
{
    struct record r = {.seq = s->seq,
                       .arrive = s->arrive_ns,
                       .done = s->done_ns,
                       .rank = rank,
                       .peer = t->peers};
    int code = 0;
    for (uint32_t q = 0; q < ranks && !code; q++)
        if (s->peer[q].bytes)
            code = add_peer(
                t, (struct seen_peer){q, s->peer[q].bytes, s->peer[q].wait_ns}, err);
    r.peers = t->peers - r.peer;
    return code ? code : add_record(t, &r, err);
}

/* Reading -------------------------------------------------------------------------------
 */

static int get_u64(const json_t *o, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return TU_EFORMAT;
    *out = (uint64_t)json_integer_value(v);
    return 0;
}

static int read_peers(struct tu_trace *t, const json_t *list, struct tu_err *err)
{
    const json_t *p;
    size_t i;
    int code = 0;
    json_array_foreach((json_t *)(uintptr_t)list, i, p)
    {
        json_int_t v[3] = {-1, -1, -1};
        for (size_t k = 0; k < 3; k++)
            if (json_is_integer(json_array_get(p, k)))
                v[k] = json_integer_value(json_array_get(p, k));
        if (v[0] < 0 || v[1] < 0 || v[2] < 0 || v[0] >= TU_RANKS_MAX)
            return tu_fail(err, TU_EFORMAT, "a peer is [rank, bytes, wait_ns]");
        if (v[1] &&
            (code = add_peer(
                 t, (struct seen_peer){(uint32_t)v[0], (uint64_t)v[1], (uint64_t)v[2]},
                 err)))
            return code;
    }
    return 0;
}

static uint32_t hash_text(uint32_t h, const char *s)
{
    return tu_crc32(h, s, strlen(s));
}

/* One line of ours. */
static int read_line(struct tu_trace *t, const json_t *o, struct tu_err *err)
{
    struct record r = {.peer = t->peers};
    uint64_t rank;
    const char *op = json_string_value(json_object_get(o, "op"));
    const char *dtype = json_string_value(json_object_get(o, "dtype"));
    if (get_u64(o, "rank", &rank) || rank >= TU_RANKS_MAX || get_u64(o, "seq", &r.seq) ||
        get_u64(o, "arrive_ns", &r.arrive) || get_u64(o, "done_ns", &r.done) ||
        get_u64(o, "bytes", &r.bytes))
        return tu_fail(
            err, TU_EFORMAT,
            "expected rank, seq, bytes, arrive_ns and done_ns as whole numbers");
    if (r.done && r.done < r.arrive)
        return tu_fail(err, TU_EFORMAT, "done_ns lies before arrive_ns");
    r.rank = (uint32_t)rank;
    r.what = hash_text(hash_text(1, op ? op : ""), dtype ? dtype : "");
    int code = read_peers(t, json_object_get(o, "peers"), err);
    r.peers = t->peers - r.peer;
    return code ? code : add_record(t, &r, err);
}

/* nccl-tests:
 * results[].out_of_place_per_iter.per_process_max_times_us[iteration][process]. Each row
 * is an operation; who takes longest is taken to have come latest. */
static int read_nccl(struct tu_trace *t, const json_t *root, struct tu_err *err)
{
    const json_t *result, *row, *cell;
    size_t i, k, q;
    uint64_t seq = 0;
    int code = 0;
    json_array_foreach(json_object_get(root, "results"), i, result)
    {
        const json_t *per = json_object_get(result, "out_of_place_per_iter");
        json_array_foreach(json_object_get(per, "per_process_max_times_us"), k, row)
        {
            json_array_foreach((json_t *)(uintptr_t)row, q, cell)
            {
                double us = json_number_value(cell);
                if (!json_is_number(cell) || us < 0 || us > 1e12 || q >= TU_RANKS_MAX)
                    return tu_fail(err, TU_EFORMAT, "times are numbers of microseconds");
                struct record r = {.seq = seq,
                                   .rank = (uint32_t)q,
                                   .arrive = (uint64_t)(us * 1e3),
                                   .done = (uint64_t)(us * 1e3) + 1};
                if (!code)
                    code = add_record(t, &r, err);
            }
            seq++;
        }
    }
    if (!code && !seq)
        code = tu_fail(err, TU_EFORMAT,
                       "no per_process_max_times_us: run nccl-tests with -I 1");
    return code;
}

/* Bytes of an operation's inputs, which all ranks must agree on; 0 where they need not.
 */
static uint64_t recorded_bytes(const json_t *o, const char *op)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } type[] = {{"Double", 8}, {"Long", 8},     {"Float", 4},
                {"Int", 4},    {"BFloat16", 2}, {"Half", 2}};
    const json_t *shape, *dim;
    uint64_t sum = 0;
    size_t i, k;
    if (strstr(op, "all_to_all") || strstr(op, "scatter") || strstr(op, "gather"))
        return 0;
    json_array_foreach(json_object_get(o, "input_sizes"), i, shape)
    {
        const json_t *list = json_object_get(o, "input_dtypes");
        const char *name = json_string_value(json_array_get(list, i));
        uint64_t n = 1;
        for (k = 0; name && k < sizeof type / sizeof *type; k++)
            n = strcmp(name, type[k].name) == 0 ? type[k].bytes : n;
        json_array_foreach((json_t *)(uintptr_t)shape, k, dim)
        {
            if (!json_is_integer(dim) || json_integer_value(dim) < 0 ||
                tu_mul_over(n, (uint64_t)json_integer_value(dim), &n))
                return 0;
        }
        sum += n;
    }
    return sum;
}

/* PyTorch's flight recorder writes one file for each rank, whose name ends in the rank;
 * numbers of operations count within a process group, and the one of the least number is
 * read. Source: torch/csrc/distributed/c10d/FlightRecorder.hpp, version 2.5. */
static int read_recorder(struct tu_trace *t, const json_t *root, const char *name,
                         struct tu_err *err)
{
    const json_t *o;
    uint64_t group = UINT64_MAX, rank = 0, v;
    size_t i, digits = strlen(name);
    while (digits && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        digits--;
    if (!name[digits] || tu_parse_u64(name + digits, &rank, NULL) || rank >= TU_RANKS_MAX)
        return tu_fail(err, TU_EFORMAT, "the name of a recorder's file ends in its rank");
    json_array_foreach(json_object_get(root, "entries"), i,
                       o) if (!get_u64(o, "pg_id", &v)) group = tu_min(group, v);
    json_array_foreach(json_object_get(root, "entries"), i, o)
    {
        struct record r = {.rank = (uint32_t)rank, .peer = t->peers};
        const char *op = json_string_value(json_object_get(o, "profiling_name"));
        const char *state = json_string_value(json_object_get(o, "state"));
        if (json_is_true(json_object_get(o, "is_p2p")) ||
            (!get_u64(o, "pg_id", &v) && v != group))
            continue;
        if (!op || !state || get_u64(o, "collective_seq_id", &r.seq) ||
            get_u64(o, "time_created_ns", &r.arrive))
            return tu_fail(err, TU_EFORMAT,
                           "entry %zu: expected profiling_name, state, "
                           "collective_seq_id and time_created_ns",
                           i);
        if (strcmp(state, "completed") == 0 &&
            (get_u64(o, "time_discovered_completed_ns", &r.done) || r.done < r.arrive))
            r.done = r.arrive + 1;
        r.what = hash_text(1, op);
        r.bytes = recorded_bytes(o, op);
        int code = add_record(t, &r, err);
        if (code)
            return code;
    }
    return 0;
}

int tu_trace_read(struct tu_trace *t, const char *text, size_t n, const char *name,
                  struct tu_err *err)
{
    const struct tu_json_limits limits = {.bytes = (size_t)256 << 20, .object = true};
    json_t *o;
    size_t line = 1, at = 0;
    int code = 0;
    if (n && !tu_json_parse(&o, text, n, &limits, NULL)) { /* one object */
        code = json_object_get(o, "results")   ? read_nccl(t, o, err)
               : json_object_get(o, "entries") ? read_recorder(t, o, name, err)
                                               : read_line(t, o, err);
        json_decref(o);
        if (code)
            tu_err_prefix(err, "%s", name);
        return code;
    }
    for (; at < n && !code; line++) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end - text) - at : n - at;
        if (len) {
            code = tu_json_parse(&o, text + at, len, &limits, err);
            if (!code) {
                code = read_line(t, o, err);
                json_decref(o);
            }
        }
        if (code)
            tu_err_prefix(err, "%s: line %zu", name, line);
        at += len + 1;
    }
    if (!code && !t->records)
        code = tu_fail(err, TU_EFORMAT, "%s: no records", name);
    return code;
}

/* Verdicts ------------------------------------------------------------------------------
 */

static int by_seq(const void *a, const void *b)
{
    const struct record *x = a, *y = b;
    if (x->seq != y->seq)
        return x->seq < y->seq ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return n ? n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2 : 0;
}

/* "3", "3 and 5", "3, 5 and 2 more". */
static void name_ranks(char *out, size_t n, const uint32_t *rank, size_t ranks)
{
    if (ranks == 1)
        snprintf(out, n, "rank %u", (unsigned)rank[0]);
    else if (ranks == 2)
        snprintf(out, n, "ranks %u and %u", (unsigned)rank[0], (unsigned)rank[1]);
    else
        snprintf(out, n, "ranks %u, %u and %zu more", (unsigned)rank[0],
                 (unsigned)rank[1], ranks - 2);
}

/* Operations to which only some ranks came, or which they did not finish: name the few.
 */
static bool hang(const struct tu_trace *t, struct tu_diagnosis *d, struct tu_err *err,
                 int *code)
{
    uint64_t last = t->record[t->records - 1].seq, lowest = UINT64_MAX;
    uint64_t *reached = tu_calloc(t->ranks, sizeof *reached, err);
    uint32_t *behind = tu_calloc(t->ranks, sizeof *behind, err);
    size_t n = 0, stuck = 0;
    *code = reached && behind ? 0 : TU_ENOMEM;
    for (size_t i = 0; i < t->records && !*code; i++) {
        const struct record *r = &t->record[i];
        reached[r->rank] = tu_max(reached[r->rank], r->seq + 1);
        stuck += r->seq == last && !r->done;
    }
    for (uint32_t r = 0; r < t->ranks && !*code; r++)
        lowest = tu_min(lowest, reached[r]);
    for (uint32_t r = 0; r < t->ranks && !*code; r++)
        if (reached[r] == lowest && reached[r] <= last)
            behind[n++] = r;
    if (n) {
        char who[64];
        name_ranks(who, sizeof who, behind, n);
        d->kind = TU_HANG;
        d->rank = behind[0];
        d->confidence = 1;
        snprintf(d->text, sizeof d->text,
                 "hang: %s never came to operation %llu; the others "
                 "wait in %llu",
                 who, (unsigned long long)lowest, (unsigned long long)last);
    } else if (stuck && !*code) {
        d->kind = TU_HANG;
        d->confidence = 0.5;
        snprintf(d->text, sizeof d->text,
                 "hang: all ranks came to operation %llu and %zu did "
                 "not finish it: a message was lost",
                 (unsigned long long)last, stuck);
    }
    tu_free(reached);
    tu_free(behind);
    return d->kind != TU_FINE;
}

/* Two answers to "which operation is this": the rank of the minority. */
static bool mismatch(const struct tu_trace *t, struct tu_diagnosis *d)
{
    for (size_t i = 0; i < t->records;) {
        size_t n = 1, same = 1, odd = i;
        while (i + n < t->records && t->record[i + n].seq == t->record[i].seq) {
            const struct record *a = &t->record[i], *b = &t->record[i + n];
            if (a->what == b->what && a->bytes == b->bytes)
                same++;
            else
                odd = i + n;
            n++;
        }
        if (same < n) {
            const struct record *few = &t->record[same * 2 > n ? odd : i];
            const struct record *many = &t->record[same * 2 > n ? i : odd];
            d->kind = TU_MISMATCH;
            d->rank = few->rank;
            d->peer = many->rank;
            d->confidence = 1;
            snprintf(d->text, sizeof d->text,
                     "mismatch: in operation %llu rank %u moves %llu "
                     "bytes and rank %u %llu, or their operations differ",
                     (unsigned long long)few->seq, (unsigned)few->rank,
                     (unsigned long long)few->bytes, (unsigned)many->rank,
                     (unsigned long long)many->bytes);
            return true;
        }
        i += n;
    }
    return false;
}

/* Counts over complete operations. */
struct count {
    double *v, *took;       /* scratch, durations */
    uint32_t *last, *worst; /* [ranks]: came last and late; [ranks]: waited longest */
    uint32_t *from;         /* [ranks]: for whom, most often */
    double *late, *excess;  /* sums, to report means */
    size_t ops, links;
};

/* Who came last, and how late by the rule of the specification. */
static void lateness(const struct record *r, size_t n, struct count *c)
{
    size_t last = 0;
    for (size_t i = 0; i < n; i++) {
        c->v[i] = (double)r[i].arrive;
        if (r[i].arrive > r[last].arrive)
            last = i;
    }
    double middle = median(c->v, n), took;
    for (size_t i = 0; i < n; i++)
        c->v[i] = fabs((double)r[i].arrive - middle);
    double mad = median(c->v, n), late = (double)r[last].arrive - middle;
    for (size_t i = 0; i < n; i++)
        c->v[i] = (double)(r[i].done - r[i].arrive);
    took = median(c->v, n);
    if (n > 2 && late > fmax(3 * 1.4826 * mad, 0.1 * took)) {
        c->last[r[last].rank]++;
        c->late[r[last].rank] += late;
    }
    if (n == 2 && late > 0.1 * took) { /* two arrivals have no middle: half of the gap */
        c->last[r[last].rank]++;
        c->late[r[last].rank] += late;
    }
}

/* Whose time per byte, for one peer, is the largest. */
static void link_times(const struct tu_trace *t, const struct record *r, size_t n,
                       struct count *c)
{
    size_t cells = 0, worst = 0;
    double most = -1, bytes = 0;
    for (size_t i = 0; i < n; i++)
        c->v[i] = (double)(r[i].done - r[i].arrive);
    double duration = median(c->v, n);
    uint32_t from = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < r[i].peers; k++) {
            const struct seen_peer *p = &t->peer[r[i].peer + k];
            double per = (double)p->wait / (double)p->bytes;
            c->took[cells++] = per;
            if (per > most) {
                most = per;
                bytes = (double)p->bytes;
                worst = i;
                from = p->rank;
            }
        }
    }
    if (cells < 3)
        return;
    c->links++;
    double middle = median(c->took, cells);
    if (most > LINK * middle && (most - middle) * bytes > MATTERS * duration) {
        uint32_t rank = r[worst].rank;
        if (!c->worst[rank] || c->from[rank] == from) {
            c->worst[rank]++;
            c->from[rank] = from;
            c->excess[rank] += middle > 0 ? most / middle : 0;
        }
    }
}

static void slowness(const struct tu_trace *t, const struct count *c,
                     struct tu_diagnosis *d)
{
    uint32_t late = 0, link = 0;
    for (uint32_t r = 0; r < t->ranks; r++) {
        late = c->last[r] > c->last[late] ? r : late;
        link = c->worst[r] > c->worst[link] ? r : link;
    }
    double ops = (double)c->ops, links = (double)c->links;
    bool slow_link = links >= ENOUGH && c->worst[link] >= SHARE * links;
    /* A slow rank delays no byte once it has begun; a slow link makes ranks come late. */
    if (c->ops >= ENOUGH && c->last[late] >= SHARE * ops && !slow_link) {
        d->kind = TU_SLOW_RANK;
        d->rank = late;
        d->confidence = c->last[late] / ops;
        snprintf(d->text, sizeof d->text,
                 "slow rank: rank %u comes last in %.0f %% of %zu "
                 "operations, %.1f us after the middle one",
                 (unsigned)late, 100 * d->confidence, c->ops,
                 c->late[late] / c->last[late] / 1e3);
    } else if (slow_link) {
        d->kind = TU_SLOW_LINK;
        d->rank = c->from[link];
        d->peer = link;
        d->confidence = c->worst[link] / links;
        snprintf(d->text, sizeof d->text,
                 "slow link: %u to %u takes longest per byte in %.0f %% "
                 "of %zu operations, %.2f times the middle link",
                 (unsigned)d->rank, (unsigned)link, 100 * d->confidence, c->links,
                 c->excess[link] / c->worst[link]);
    } else if (c->ops < ENOUGH) {
        d->kind = TU_TOO_SHORT;
        snprintf(d->text, sizeof d->text, "no verdict: %zu operations, %d are needed",
                 c->ops, ENOUGH);
    } else {
        snprintf(d->text, sizeof d->text,
                 "fine: %zu operations of %u ranks, nobody is late in "
                 "%.0f %% of them",
                 c->ops, (unsigned)t->ranks, 100 * SHARE);
    }
}

int tu_diagnose(struct tu_trace *t, struct tu_diagnosis *d, struct tu_err *err)
{
    int code = 0;
    *d = (struct tu_diagnosis){.rank = TU_NOBODY, .peer = TU_NOBODY};
    if (!t->records)
        return tu_fail(err, TU_EFORMAT, "no records");
    qsort(t->record, t->records, sizeof *t->record, by_seq);
    if (mismatch(t, d) || hang(t, d, err, &code) || code)
        return code;
    size_t n = t->ranks;
    struct count c = {0};
    double *reals = tu_calloc(3 * n, sizeof *reals, err);
    uint32_t *counts = tu_calloc(3 * n, sizeof *counts, err);
    c.took = tu_calloc(t->peers, sizeof *c.took, err);
    if (!reals || !counts || !c.took) {
        code = TU_ENOMEM;
    } else {
        c.v = reals;
        c.late = reals + n;
        c.excess = reals + 2 * n;
        c.last = counts;
        c.worst = counts + n;
        c.from = counts + 2 * n;
    }
    for (size_t i = 0, k; i < t->records && !code; i += k) {
        for (k = 1; i + k < t->records && t->record[i + k].seq == t->record[i].seq; k++)
            continue;
        if (k < 2 || k > n)
            continue;
        c.ops++;
        lateness(&t->record[i], k, &c);
        link_times(t, &t->record[i], k, &c);
    }
    if (!code)
        slowness(t, &c, d);
    tu_free(reals);
    tu_free(counts);
    tu_free(c.took);
    return code;
}
