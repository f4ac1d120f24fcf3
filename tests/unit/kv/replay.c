/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c: worked traces: LRU, groups, preemption; and Mooncake's public ones where they
 * are at hand. */
#include <math.h>
#include <stdlib.h>
#include <tensorutils/kv/replay.h>
#include "../scratch.h"
#include "../tap.h"

static void load_text(struct tu_kv_trace *t, const char *text, uint32_t block)
{
    struct tu_in *in;
    struct tu_err e = {0};
    if (tu_file_write("trace", text, strlen(text), false, NULL, NULL) ||
        tu_in_open(&in, "trace", NULL))
        abort();
    int rc = tu_kv_trace_read(t, in, NULL, block, 0, NULL, &e);
    ok(!rc, "trace read: %s", e.msg);
    tu_in_close(in);
}

static struct tu_kv_hits run(const struct tu_kv_trace *t, const char *policy, uint64_t cap)
{
    struct tu_spec s;
    struct tu_kv_hits h = {0};
    struct tu_err e = {0};
    if (tu_spec_parse(&s, policy, &e) || tu_kv_replay(t, &s, cap, &h, &e))
        printf("# %s: %s\n", policy, e.msg);
    tu_spec_release(&s);
    return h;
}

#define LINE(in, out, ids)                                                               \
    "{\"timestamp\":0,\"input_length\":" #in ",\"output_length\":" #out ",\"hash_ids\":" ids "}\n"

static void micro(void)
{
    struct tu_kv_trace t;
    load_text(&t,
              LINE(3, 1, "[0,1,2]") LINE(3, 1, "[0,1,3]") LINE(2, 1, "[4,5]")
                  LINE(3, 1, "[0,1,2]") LINE(3, 1, "[4,5,6]") LINE(2, 1, "[0,7]"),
              1);
    static const uint64_t want[4][3] = {{4, 6, 6}, {5, 7, 4}, {6, 8, 2}, {UINT64_MAX, 8, 0}};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            struct tu_kv_hits h = run(&t, k ? "leaf" : "lru", want[i][0]);
            ok(h.blocks == 16 && h.hits == want[i][1] && h.evictions == want[i][2],
               "%s at %d", k ? "leaf" : "lru", i);
        }
    tu_kv_trace_release(&t);
}

static void groups(void)
{
    struct tu_kv_trace t;
    struct tu_kv_groups g;
    uint32_t order[5];
    load_text(&t,
              LINE(3, 1, "[1,2,3]") LINE(3, 1, "[1,2,4]") LINE(2, 1, "[1,5]")
                  LINE(3, 1, "[1,5,6]") LINE(1, 1, "[7]"),
              1);
    ok(!tu_kv_group(&t, &g, NULL), "groups");
    eq_u64(t.ids, 12, "12 blocks");
    eq_u64(g.multi, 5, "a tree of groups saves 5");
    eq_u64(g.single, 4, "one group each saves 4");
    eq_u64(g.groups, 2, "in two groups");
    ok(!tu_kv_group_order(&t, order, NULL), "order");
    unsigned seen = 0;
    for (int i = 0; i < 5; i++)
        seen |= 1u << order[i];
    eq_u64(seen, 31, "every request once");
    tu_kv_trace_release(&t);
}

static void timed(void)
{
    struct tu_kv_trace t;
    static const struct {
        uint64_t blocks, peak, preempted, again;
        int64_t finish[3];
        double waste;
    } want[] = {
        {UINT64_MAX, 10, 0, 0, {670, 960, 510}, 0.144045534},
        {8, 8, 1, 12, {670, 960, 890}, 0.132234727},
        {6, 6, 2, 22, {670, 1080, 1390}, 0.136997},
    };
    load_text(&t,
              "{\"timestamp\":0.0,\"input_length\":7,\"output_length\":6}\n"
              "{\"timestamp\":0.00001,\"input_length\":5,\"output_length\":9}\n"
              "{\"timestamp\":0.00002,\"input_length\":9,\"output_length\":4}\n",
              0);
    for (int i = 0; i < 3; i++) {
        int64_t finish[3];
        struct tu_kv_timed_how how = {.block = 4, .blocks = want[i].blocks, .pre = 10,
                                      .dec = 100, .finish = finish};
        struct tu_kv_timed out;
        ok(!tu_kv_timed_run(&t, &how, &out, NULL), "run %d", i);
        eq_u64(out.peak, want[i].peak, "peak");
        eq_u64(out.preemptions, want[i].preempted, "preemptions");
        eq_u64(out.recomputed, want[i].again, "recomputed");
        eq_mem(finish, want[i].finish, sizeof finish, "finish times");
        ok(fabs(out.waste - want[i].waste) < 1e-6, "waste %.9f", out.waste);
    }
    tu_kv_trace_release(&t);
}

/* Section 7 of the specification. */
struct row {
    uint64_t cap, conversation[2], synthetic[2];
};

static bool public_trace(struct tu_kv_trace *t, const char *name)
{
    char path[1200];
    const char *data = getenv("TENSORUTILS_DATA"), *root = getenv("ROOT");
    struct tu_in *in;
    if (data)
        snprintf(path, sizeof path, "%s/mooncake/%s", data, name);
    else
        snprintf(path, sizeof path, "%s/../shared/data/mooncake/%s", root ? root : ".", name);
    if (tu_in_open(&in, path, NULL))
        return false;
    int rc = tu_kv_trace_read(t, in, NULL, 0, 0, NULL, NULL);
    tu_in_close(in);
    return rc == 0;
}

static void tables(const struct tu_kv_trace *t, int which)
{
    static const struct row rows[] = {
        {195, {12084, 276221}, {2050, 119632}},   {585, {12205, 275710}, {6586, 114706}},
        {1953, {15370, 271177}, {17351, 102573}}, {5859, {39258, 243383}, {37703, 78315}},
        {19531, {82273, 186696}, {69059, 33287}}, {58593, {103511, 126396}, {77953, 0}},
        {97656, {104870, 85974}, {77953, 0}},     {UINT64_MAX, {105710, 0}, {77953, 0}},
    };
    static const uint64_t best[5][3] = {{195, 25885, 14132}, {585, 42611, 26224},
                                        {1953, 72905, 45779}, {5859, 101884, 67028},
                                        {19531, 105710, 77953}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_kv_hits h = run(t, "lru", rows[i].cap), l = run(t, "leaf", rows[i].cap);
        const uint64_t *w = which ? rows[i].synthetic : rows[i].conversation;
        eq_u64(h.hits, w[0], "LRU hits at %" PRIu64, rows[i].cap);
        eq_u64(h.evictions, w[1], "evictions");
        ok(l.hits == h.hits && l.evictions == h.evictions, "leaves give the same");
    }
    for (int i = 0; i < 5; i++)
        eq_u64(run(t, "opt", best[i][0]).hits, best[i][which + 1], "bound at %" PRIu64,
               best[i][0]);
}

static void rate(const struct tu_kv_trace *t, const char *policy, uint64_t cap, double want)
{
    struct tu_kv_hits h = run(t, policy, cap);
    double r = (double)h.hits / (double)h.blocks, unit = want > 0.0 ? 0.0 : 1;
    double digits = fabs(want * 1e4 - round(want * 1e4)) < 1e-6 ? 0.00005001 : 0.00000051;
    ok(fabs(r - want) <= digits + unit, "%s at %" PRIu64 ": %.6f, expected %.6f", policy, cap,
       r, want);
}

static void never_far_below_lru(const struct tu_kv_trace *t)
{
    for (int i = 0; i < 10; i++) {
        static const uint64_t cap[] = {195,  585,   1953,  3906,  5859,
                                       9765, 19531, 39062, 58593, 97656};
        struct tu_kv_hits a = run(t, "adaptive", cap[i]), l = run(t, "lru", cap[i]);
        ok((double)a.hits >= (double)l.hits - 0.01 * (double)l.blocks,
           "ours loses less than a point to LRU at %" PRIu64 ": %.4f %.4f", cap[i],
           (double)a.hits / (double)a.blocks, (double)l.hits / (double)l.blocks);
    }
}

static void conversation(void)
{
    struct tu_kv_trace t;
    struct tu_kv_groups g;
    struct tu_kv_waste w;
    if (!public_trace(&t, "conversation_trace.jsonl")) {
        tap_skip("Mooncake's conversation trace", "shared/data is not here");
        return;
    }
    eq_u64(t.n, 12031, "requests");
    eq_u64(t.ids, 288500, "blocks");
    eq_u64(t.distinct, 182790, "distinct");
    tables(&t, 0);
    rate(&t, "fifo", 5859, 0.125002);
    rate(&t, "2q", 1953, 0.1084);
    rate(&t, "2q", 5859, 0.1783);
    rate(&t, "2q", 19531, 0.2555);
    rate(&t, "2q:fresh=0.25", 1953, 0.0979);
    rate(&t, "2q:fresh=0.25", 5859, 0.1715);
    rate(&t, "2q:fresh=0.25", 19531, 0.2824);
    rate(&t, "prefix", 64, 0.322177);
    rate(&t, "prefix", 195, 0.365023);
    rate(&t, "prefix", 256, 0.366412);
    ok(!tu_kv_group(&t, &g, NULL) && g.multi == 105710 && g.single == 90844, "groups");
    tu_kv_trace_waste(&t, 16, 131072, &w);
    ok(fabs(w.paged - 0.000603) < 5e-7 && w.tokens == 148915871, "waste of 16");
    ok(fabs(w.reserved - 0.0944) < 5e-5 && fabs(w.power - 0.6964) < 5e-5, "reserving");
    eq_u64(w.longest, 126527, "longest");
    struct tu_kv_timed_how how = {.block = 512, .blocks = UINT64_MAX, .pre = 100, .dec = 20000};
    struct tu_kv_timed out;
    ok(!tu_kv_timed_run(&t, &how, &out, NULL), "with a clock");
    ok(out.peak == 1984 && out.running == 59 && out.makespan == INT64_C(3553345100),
       "unlimited: %" PRIu64 " %" PRIu64 " %" PRId64, out.peak, out.running, out.makespan);
    how.blocks = 1024;
    ok(!tu_kv_timed_run(&t, &how, &out, NULL) && out.preemptions == 195 &&
           out.recomputed == 2792587 && out.makespan == INT64_C(3559242500),
       "1024 blocks: %" PRIu64 " %" PRIu64, out.preemptions, out.recomputed);
    how.blocks = 512;
    ok(!tu_kv_timed_run(&t, &how, &out, NULL) && out.preemptions == 385 &&
           out.recomputed == 4159153 && out.makespan == INT64_C(6456249300), "512 blocks");
    how = (struct tu_kv_timed_how){.block = 16, .blocks = UINT64_MAX, .pre = 100, .dec = 20000};
    ok(!tu_kv_timed_run(&t, &how, &out, NULL) && out.peak == 62880, "pages of 16");
    struct tu_kv_hits a = run(&t, "adaptive", 5859);
    ok((double)a.hits / (double)a.blocks >= 0.195, "ours at 3M tokens: %.4f",
       (double)a.hits / (double)a.blocks);
    never_far_below_lru(&t);
    tu_kv_trace_release(&t);
}

static void synthetic(void)
{
    struct tu_kv_trace t;
    struct tu_kv_groups g;
    struct tu_kv_waste w;
    if (!public_trace(&t, "synthetic_trace.jsonl")) {
        tap_skip("Mooncake's synthetic trace", "shared/data is not here");
        return;
    }
    eq_u64(t.n, 3993, "requests");
    eq_u64(t.ids, 121877, "blocks");
    eq_u64(t.distinct, 43924, "distinct");
    tables(&t, 1);
    rate(&t, "fifo", 5859, 0.300951);
    rate(&t, "2q", 1953, 0.1567);
    rate(&t, "2q", 5859, 0.3242);
    rate(&t, "2q", 19531, 0.5909);
    rate(&t, "prefix", 64, 0.532479);
    rate(&t, "prefix", 195, 0.627920);
    rate(&t, "prefix", 585, 0.639604);
    ok(!tu_kv_group(&t, &g, NULL) && g.multi == 77953 && g.single == 77747, "groups");
    tu_kv_trace_waste(&t, 512, 131072, &w);
    ok(fabs(w.paged - 0.016417) < 5e-7 && w.over > 0 && w.longest == 191386, "waste of 512");
    struct tu_kv_timed_how how = {.block = 512, .blocks = 512, .pre = 100, .dec = 20000};
    struct tu_kv_timed out;
    ok(!tu_kv_timed_run(&t, &how, &out, NULL) && out.preemptions == 25 &&
           out.recomputed == 383170 && out.makespan == INT64_C(1336814500), "512 blocks");
    never_far_below_lru(&t);
    tu_kv_trace_release(&t);
}

static void refused(void)
{
    static const struct {
        const char *text;
        int code;
    } bad[] = {
        {"", TU_EEMPTY},
        {"\r\n\n", TU_EEMPTY},
        {"{\"timestamp\":0}\n", TU_EFORMAT},
        {"{\"input_length\":-1}\n", TU_EFORMAT},
        {"{\"input_length\":1.5}\n", TU_EFORMAT},
        {"{\"input_length\":1,\"hash_ids\":3}\n", TU_EFORMAT},
        {"{\"input_length\":1,\"hash_ids\":[{}]}\n", TU_EFORMAT},
        {"{\"input_length\":1,\"timestamp\":\"x\"}\n", TU_EFORMAT},
        {"[1]\n", TU_EMETA},
        {"{\"input_length\":1\n", TU_EMETA},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374\n", TU_EFORMAT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tu_kv_trace t;
        struct tu_in *in;
        struct tu_err e = {0};
        if (tu_file_write("bad", bad[i].text, strlen(bad[i].text), false, NULL, NULL) ||
            tu_in_open(&in, "bad", NULL))
            abort();
        eq_int(tu_kv_trace_read(&t, in, NULL, 0, 0, NULL, &e), bad[i].code, "%zu: %s", i,
               e.msg);
        tu_in_close(in);
    }
    struct tu_kv_trace t;
    load_text(&t, "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                  "2023-11-16 18:15:46.6805900,374,44\r\n"
                  "2023-11-16 18:15:50.9951690,396,109\r\n", 0);
    ok(t.n == 2 && t.request[1].input == 396 && t.request[1].at - t.request[0].at == 4314579,
       "Azure's times");
    tu_kv_trace_release(&t);
}

int main(void)
{
    scratch_enter();
    micro();
    groups();
    timed();
    refused();
    conversation();
    synthetic();
    scratch_leave();
    return tap_done();
}
