/* SPDX-License-Identifier: Apache-2.0 */
/* document.c: the costs of a schedule's document: each of them comes back as it went, one that
 * is none is refused in its name; and times that no sum holds are refused wherever they add up. */
#include <stdlib.h>
#include <tensorutils/sched.h>
#include "../tap.h"

static const struct tu_sched_form *json;

/* A document of 1F1B, two ranks and two micro-batches, with this for its cost. */
static int read_cost(struct tu_cost *c, const char *cost, struct tu_err *err)
{
    struct tu_buf b = {0};
    struct tu_sched *s = NULL;
    *err = (struct tu_err){0};
    tu_cost_init(c);
    int rc = tu_buf_printf(&b, err,
                           "{\"schema\":\"tensorutils.schedule/1\",\"p\":2,\"m\":2,\"stages\":2,"
                           "\"cost\":%s,\"ranks\":[[\"0F0\",\"0F1\",\"0B0\",\"0B1\"],"
                           "[\"1F0\",\"1B0\",\"1F1\",\"1B1\"]]}",
                           cost);
    rc = rc ? rc : tu_sched_read(&s, c, b.data, b.n, json, NULL, err);
    tu_buf_release(&b);
    tu_sched_free(s);
    return rc;
}

/* Wrong costs, and what is said of them. */
static const struct {
    const char *cost, *words;
} refused[] = {
    {"{\"scale\":0}", "'scale': an integer in 1"},
    {"{\"scale\":1.5}", "'scale': an integer"},
    {"{\"F\":-1}", "'F': an integer in 0"},
    {"{\"F\":9007199254740992}", "'F': an integer"},
    {"{\"OPT\":\"1\"}", "'OPT': an integer"},
    {"{\"FB\":-1}", "'FB'"},
    {"{\"CF\":-3}", "'CF'"},
    {"{\"CB\":null}", "'CB'"},
    {"{\"mem_unit\":0}", "'mem_unit'"},
    {"{\"mem_b\":4}", "mem_b without mem_unit"},
    {"{\"mem_unit\":4,\"mem_b\":4,\"mem_w\":5}", "'mem_w': an integer in 0 … 4"},
    {"{\"mem_unit\":4,\"mem_b\":4,\"mem_ckpt\":5}", "'mem_ckpt': an integer in 0 … 4"},
    {"{\"weight_one\":0}", "'weight_one'"},
    {"{\"stage_time\":{\"F\":3}}", "'F': a list is expected"},
    {"{\"stage_time\":{\"F\":[1,-2]}}", "'F'[1]: not a time"},
    {"{\"stage_time\":{\"F\":[1,2],\"W\":[1]}}", "lists differ in length"},
    {"{\"stage_time\":{\"F\":[1,2,3]}}", "stage 2: the schedule has 2"},
    {"{\"weight\":{}}", "'weight': a list is expected"},
    {"{\"weight\":[1,-1]}", "'weight'[1]: is negative"},
    {"{\"weight\":[1,1,1]}", "micro-batch 2: the schedule has 2"},
    {"{\"arrive\":[0,\"1\"]}", "'arrive'[1]: not a time"},
    {"{\"arrive\":[0,0,0]}", "arrival of micro-batch 2: the schedule has 2"},
    {"{\"link\":[0,1,1]}", "3 values are not a square"},
    {"{\"link\":[0,1,1,4503599627370497]}", "'link'[3]: not a time"},
    {"{\"link\":[0,1,1,1,0,1,1,1,0]}", "link of rank 2: the schedule has 2"},
};

static void refuse(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct tu_cost c;
        struct tu_err err;
        int rc = read_cost(&c, refused[i].cost, &err);
        ok(rc == TU_EFORMAT && strstr(err.msg, refused[i].words), "%s: %s: %s", refused[i].cost,
           tu_err_name(rc), err.msg);
        tu_cost_release(&c);
    }
}

/* What a document may say of a cost, by hand: every key with a value of its own. */
static void by_hand(void)
{
    struct tu_cost c;
    struct tu_err err;
    int rc = read_cost(&c,
                       "{\"unit\":\"ms\",\"scale\":4,\"F\":5,\"B\":11,\"I\":6,\"W\":0,\"R\":0,"
                       "\"OPT\":9,\"UNSHARD\":2,\"FB\":13,\"CF\":3,\"mem_unit\":8,\"mem_b\":4,"
                       "\"mem_w\":1,\"mem_ckpt\":2,\"release\":\"split\",\"stage_time\":"
                       "{\"F\":[7,-1],\"W\":[2,3]},\"weight\":[2,6],\"weight_one\":2,"
                       "\"arrive\":[-1,40],\"link\":[-1,21,22,-1],\"contend\":true,"
                       "\"blocking\":true,\"barrier\":true}",
                       &err);
    if (!ok(!rc, "a cost with everything: %s", err.msg))
        return;
    eq_str(c.unit, "ms", "unit");
    eq_int(c.scale, 4, "scale");
    eq_int(tu_cost_time(&c, TU_OP_F, 0, 0), 14, "F of the first stage, twice");
    eq_int(tu_cost_time(&c, TU_OP_F, 1, 1), 30, "F of the second, that has none of its own");
    eq_int(tu_cost_time(&c, TU_OP_W, 1, 7), 6, "W of a micro-batch without a weight");
    eq_int(tu_cost_time(&c, TU_OP_B, 0, 1), 48, "B: the stage has a W but no B: I and W");
    eq_int(tu_cost_time(&c, TU_OP_R, 0, 0), 0, "R");
    eq_int(tu_cost_time(&c, TU_OP_OPT, 0, 0), 9, "OPT, that no micro-batch weighs");
    eq_int(tu_cost_time(&c, TU_OP_UNSHARD, 0, 0), 2, "UNSHARD");
    eq_int(c.pair, 13, "FB");
    eq_int(tu_cost_transfer(&c, false, 0, 1), 21, "a link");
    eq_int(tu_cost_transfer(&c, true, 1, 0), 22, "the link back");
    eq_int(tu_cost_transfer(&c, true, 0, 0), 3, "CB is CF where it is not said");
    ok(c.mem_unit == 8 && c.mem_b == 4 && c.mem_w == 1 && c.mem_ckpt == 2, "memory");
    ok(c.release == TU_MEM_SPLIT && c.contend && c.blocking && c.barrier, "words");
    ok(c.arrivals == 2 && c.arrive[0] == -1 && c.arrive[1] == 40, "arrivals");
    tu_cost_release(&c);
}

static bool same_list(const int64_t *a, const int64_t *b, size_t n)
{
    return !n || (a && b && !memcmp(a, b, n * sizeof *a));
}

static bool same(const struct tu_cost *a, const struct tu_cost *b)
{
    return !strcmp(a->unit, b->unit) && a->scale == b->scale &&
           same_list(a->time, b->time, TU_OP_KINDS) && a->pair == b->pair &&
           same_list(a->transfer, b->transfer, 2) && a->stages == b->stages &&
           same_list(a->stage_time, b->stage_time, (size_t)(TU_OP_W + 1) * a->stages) &&
           a->microbatches == b->microbatches && same_list(a->weight, b->weight, a->microbatches) &&
           a->weight_one == b->weight_one && a->arrivals == b->arrivals &&
           same_list(a->arrive, b->arrive, a->arrivals) && a->ranks == b->ranks &&
           same_list(a->link, b->link, (size_t)a->ranks * a->ranks) &&
           a->mem_unit == b->mem_unit && a->mem_b == b->mem_b && a->mem_w == b->mem_w &&
           a->mem_ckpt == b->mem_ckpt && a->release == b->release && a->contend == b->contend &&
           a->blocking == b->blocking && a->barrier == b->barrier;
}

static struct tu_rng rng = {5, 2};
static uint64_t at;

static int64_t draw(uint32_t n)
{
    return tu_rng_u32(&rng, at++) % n;
}

/* A list of n values from `least` up, or none. */
static int64_t *some(size_t n, int64_t least, uint32_t *count)
{
    int64_t *v = draw(2) ? tu_alloc(n, sizeof *v, NULL) : NULL;
    *count = v ? (uint32_t)n : 0;
    for (size_t i = 0; v && i < n; i++)
        v[i] = least + draw(50);
    return v;
}

/* Any cost of a schedule of four stages and eight micro-batches comes back as it went. */
static void round_trips(void)
{
    static const char units[][4] = {"", "ns", "us", "ms", "s"};
    struct tu_sched *s = NULL;
    unsigned lost = 0;
    if (tu_schedule_make(&s, tu_schedule_find("1f1b"),
                         &(struct tu_sched_params){.p = 4, .m = 8}, NULL))
        ok(false, "a schedule");
    for (int n = 0; n < 400; n++) {
        struct tu_cost c, back;
        struct tu_buf b = {0};
        struct tu_sched *t = NULL;
        uint32_t cells;
        tu_cost_init(&c);
        tu_cost_init(&back);
        strcpy(c.unit, units[draw(5)]);
        c.scale = 1 + draw(9);
        for (unsigned k = 0; k < TU_OP_KINDS; k++)
            c.time[k] = draw(3);
        c.time[TU_OP_B] = draw(9) - 1;
        c.time[TU_OP_B] = c.time[TU_OP_B] < 0 ? -1 : c.time[TU_OP_B];
        c.pair = draw(3) - 1;
        c.transfer[0] = draw(3);
        c.transfer[1] = draw(3);
        c.stage_time = some(4 * (TU_OP_W + 1), -1, &cells);
        c.stages = cells ? 4 : 0;
        for (size_t i = 0; i < cells; i += (size_t)cells / (TU_OP_W + 1))
            c.stage_time[i] = -1;
        c.weight = some(8, 0, &c.microbatches);
        c.weight_one = 1 + draw(3);
        c.arrive = some(8, -1, &c.arrivals);
        c.link = some(16, -1, &cells);
        c.ranks = cells ? 4 : 0;
        if (draw(2)) {
            c.mem_unit = 1 + draw(20);
            c.mem_b = 1 + draw(20);
            c.mem_w = draw((uint32_t)c.mem_b + 1);
            c.mem_ckpt = draw((uint32_t)c.mem_b + 1);
        }
        c.release = draw(2) ? TU_MEM_SPLIT : TU_MEM_AT_W;
        c.contend = draw(2);
        c.blocking = draw(2);
        c.barrier = draw(2);
        lost += json->write(&b, s, &c, NULL, NULL) ||
                tu_sched_read(&t, &back, b.data, b.n, json, NULL, NULL) || !same(&c, &back);
        tu_sched_free(t);
        tu_buf_release(&b);
        tu_cost_release(&back);
        tu_cost_release(&c);
    }
    eq_u64(lost, 0, "costs at random come back as they went");
    tu_sched_free(s);
}

/* The longest times there are, added up by everything that adds times. */
static void too_long(void)
{
    static const char longest[] = "F=4000000000000000,I=1,W=1";
    struct tu_cost c;
    struct tu_err err;
    struct tu_sched *s = NULL;
    struct tu_optimized best = {0};
    struct tu_sim sim;
    size_t faults;
    struct tu_sched_params q = {.p = 1, .m = 10000};
    tu_cost_init(&c);
    ok(!tu_cost_parse(&c, longest, 1, &err), "a time near the limit");
    ok(!tu_schedule_make(&s, tu_schedule_find("gpipe"), &q, &err), "a schedule without times");
    eq_int(tu_sim_run(&sim, s, &c, NULL, &faults, &err), TU_ESIZE, "run: %s", err.msg);
    tu_sched_free(s);
    q.cost = &c;
    eq_int(tu_schedule_make(&s, tu_schedule_find("zb-h1"), &q, &err), TU_ESIZE, "made: %s",
           err.msg);
    q.m = 1000;
    eq_int(tu_sched_optimize(&best, &(struct tu_optimize){.q = &q, .effort = 10}, &err), TU_ESIZE,
           "looked for: %s", err.msg);
    c.time[TU_OP_F] = 1;
    c.mem_unit = c.mem_b = (int64_t)1 << 52;
    eq_int(tu_schedule_make(&s, tu_schedule_find("gpipe"), &q, &err), TU_ESIZE, "memory: %s",
           err.msg);
    static const char *const weights[] = {"mb,0,4500000000000000\nmb,1,0.001\n",
                                          "mb,0,0.000000001\nmb,1,4500000000000000\n"};
    for (size_t i = 0; i < 2; i++) {
        eq_int(tu_cost_times(&c, weights[i], strlen(weights[i]), &err), TU_EFORMAT, "weights: %s",
               err.msg);
        eq_int(tu_cost_times(&c, weights[i], strlen(weights[i]), NULL), TU_EFORMAT, "unheard");
    }
    tu_cost_release(&c);
}

int main(void)
{
    json = tu_sched_form_find("json");
    refuse();
    by_hand();
    round_trips();
    too_long();
    return tap_done();
}
