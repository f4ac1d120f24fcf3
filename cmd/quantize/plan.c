/* SPDX-License-Identifier: Apache-2.0 */
/* quantize plan: what encode would do, before any work. */
#include <inttypes.h>
#include <string.h>
#include "quantize/quantize.h"

static const struct tu_column columns[] = {
    {"dtype", "FROM", TU_COL_TEXT, 0},
    {"type", "TYPE", TU_COL_TEXT, 0},
    {"fallback_from", "FALLBACK_FROM", TU_COL_TEXT, 0},
    {"bpw", "BPW", TU_COL_REAL, 0},
    {"shape", "SHAPE", TU_COL_SHAPE, 0},
    {"bytes", "BYTES", TU_COL_U64, 0},
    {"memory_bytes", "MEMORY", TU_COL_BYTES, 0},
    {"passes", "PASSES", TU_COL_U64, 0},
    {"why", "WHY", TU_COL_TEXT, 0},
    {"name", "NAME", TU_COL_NAME, 0},
    {0},
};

struct sum {
    uint64_t tensors, elements, from, to;
};

enum { ROLES = 16 }; /* and what has none, as the last */

struct totals {
    struct sum all, role[ROLES];
    uint64_t fallbacks, memory;
};

static size_t role_of(const char *name)
{
    const char *pattern, *row;
    for (size_t i = 0; name && i + 1 < ROLES && (row = tu_role_list(i, &pattern)); i++)
        if (strcmp(row, name) == 0)
            return i;
    return ROLES - 1;
}

static void count(struct sum *s, uint64_t elements, uint64_t from, uint64_t to)
{
    s->tensors++;
    s->elements += elements;
    s->from += from;
    s->to += to;
}

static double bits(const struct sum *s)
{
    return s->elements ? 8 * (double)s->to / (double)s->elements : 0;
}

static int plan_tensor(struct tu_ctx *ctx, const struct tu_tensor *x, struct totals *sum,
                       struct tu_err *err)
{
    struct task t;
    uint64_t n;
    char code[8];
    int rc = tu_elements(x->dim, x->rank, &n, err);
    if (!rc)
        rc = task_begin(&t, &choosing, x, err);
    if (rc)
        return rc;
    uint64_t bytes = task_bytes(&t, x);
    uint64_t memory = t.codec ? tu_coding_memory(&t.coding, x->dtype) : 0;
    tu_row(ctx, (const struct tu_cell[]){
                    {.s = tu_dtype_text(x->dtype, code)},
                    {.s = t.choice.type},
                    {.none = !t.choice.fallback, .s = t.choice.wanted},
                    {.none = n == 0, .f = n ? 8 * (double)bytes / (double)n : 0},
                    {.dim = x->dim, .rank = x->rank},
                    {.u = bytes},
                    {.u = memory},
                    {.u = t.codec && t.coding.two_pass ? 2 : 1},
                    {.s = t.choice.why},
                    {.s = x->name},
                });
    count(&sum->all, n, x->bytes, bytes);
    count(&sum->role[role_of(t.choice.role)], n, x->bytes, bytes);
    sum->fallbacks += t.choice.fallback;
    sum->memory = tu_max(sum->memory, memory);
    task_end(&t);
    return 0;
}

static void put_sum(struct tu_jw *w, const struct sum *s)
{
    tu_jw_u64(w, "tensors", s->tensors);
    tu_jw_u64(w, "elements", s->elements);
    tu_jw_u64(w, "from_bytes", s->from);
    tu_jw_u64(w, "to_bytes", s->to);
    tu_jw_real(w, "bpw", bits(s));
}

static void tell_json(struct tu_jw *w, const struct totals *sum)
{
    const char *pattern, *name;
    tu_jw_open(w, "total", '{');
    put_sum(w, &sum->all);
    tu_jw_u64(w, "fallbacks", sum->fallbacks);
    tu_jw_u64(w, "memory_bytes", sum->memory);
    tu_jw_close(w, '}');
    tu_jw_open(w, "roles", '{');
    for (size_t i = 0; i < ROLES; i++) {
        name = i + 1 < ROLES ? tu_role_list(i, &pattern) : "other";
        if (!name || !sum->role[i].tensors)
            continue;
        tu_jw_open(w, name, '{');
        put_sum(w, &sum->role[i]);
        tu_jw_close(w, '}');
    }
    tu_jw_close(w, '}');
}

static void tell_text(struct tu_ctx *ctx, const struct totals *sum)
{
    const char *pattern, *name;
    for (size_t i = 0; i < ROLES; i++) {
        const struct sum *s = &sum->role[i];
        name = i + 1 < ROLES ? tu_role_list(i, &pattern) : "other";
        if (name && s->tensors)
            tu_print(ctx,
                     "%s: %" PRIu64 " tensors, %" PRIu64 " elements, %.4f bits per weight\n",
                     name, s->tensors, s->elements, bits(s));
    }
    tu_print(ctx,
             "%" PRIu64 " tensors, %" PRIu64 " elements: %" PRIu64
             " bytes become %" PRIu64 ", %.4f bits per weight, %" PRIu64 " fallbacks\n",
             sum->all.tensors, sum->all.elements, sum->all.from, sum->all.to, bits(&sum->all),
             sum->fallbacks);
}

static void tell_totals(struct tu_ctx *ctx, const struct totals *sum)
{
    struct tu_jw *w = tu_line_begin(ctx);
    if (w) {
        tell_json(w, sum);
        tu_line_end(ctx);
    }
    tu_rows_end(ctx);
    tell_text(ctx, sum);
}

static int plan_input(struct tu_ctx *ctx, const char *path, struct totals *sum,
                      struct tu_err *err)
{
    struct input in;
    enum item what = ITEM_OTHER;
    int rc = input_open(&in, path, SEEN_AS_IS, ctx, err);
    if (rc)
        return rc;
    while (!rc && what != ITEM_DONE && (rc = input_next(&in, &what, err)) == 0) {
        choosing_model(&choosing, &in);
        if (what == ITEM_TENSOR)
            rc = plan_tensor(ctx, &in.tensor, sum, err);
        else if (what == ITEM_END)
            rc = tu_recipe_check(choosing.recipe, err);
    }
    if (rc)
        tu_err_prefix(err, "%s", path);
    input_close(&in);
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    static const char *const standard_input[] = {"-"};
    const char *const *path = argc ? (const char *const *)argv : standard_input;
    struct totals sum = {0};
    struct tu_err err;
    int rc = choosing_begin(&choosing, ctx, &err);
    if (!rc)
        tu_rows_begin(ctx, columns);
    for (int i = 0; !rc && i < (argc ? argc : 1); i++)
        rc = plan_input(ctx, path[i], &sum, &err);
    if (!rc)
        tell_totals(ctx, &sum);
    choosing_end(&choosing);
    return rc ? tu_error(ctx, &err) : 0;
}

static const struct tu_opt options[] = {CODING_OPTIONS, {0}};
static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd quantize_plan = {
    .name = "plan",
    .example = "quantize plan -t q4_k_m model.tns",
    .summary = "show what encode would do to each tensor",
    .usage = usage,
    .opts = options,
    .shared = quantize_options,
    .listings = quantize_listings,
    .flags = TU_CMD_STDIN,
    .max = TU_ANY,
    .run = run,
};
