/* SPDX-License-Identifier: Apache-2.0 */
/* plan_table.c: the table of plan: which of thousands of layouts are worth a line, and
 * which columns say something. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "pipe-sched/plan_more.h"

/* Those of JSON have no title but where the text shows the same. */
static const struct tu_column columns[] = {
    {"tp", "TP", TU_COL_U64, 0},
    {"pp", "PP", TU_COL_U64, 0},
    {"vpp", "VPP", TU_COL_U64, 0},
    {"dp", "DP", TU_COL_U64, 0},
    {"cp", "CP", TU_COL_U64, 0},
    {"ep", "EP", TU_COL_U64, 0},
    {"microbatch", "MB", TU_COL_U64, 0},
    {"schedule", "SCHEDULE", TU_COL_TEXT, 0},
    {"recompute", NULL, TU_COL_TEXT, 0},
    {"", "RECOMP", TU_COL_TEXT, 0},
    {"zero", "ZERO", TU_COL_U64, 0},
    {"offload", "OFFLOAD", TU_COL_TEXT, 0},
    {"step_s", NULL, TU_COL_REAL, 0},
    {"", "STEP_S", TU_COL_DIGITS, 0},
    {"mfu_pct", NULL, TU_COL_REAL, 0},
    {"", "MFU_%", TU_COL_DIGITS, 0},
    {"memory_bytes", "MEMORY", TU_COL_BYTES, 0},
    {"state_bytes", NULL, TU_COL_U64, 0},
    {"activation_bytes", NULL, TU_COL_U64, 0},
    {"logit_bytes", NULL, TU_COL_U64, 0},
    {"compute_s", NULL, TU_COL_REAL, 0},
    {"tp_s", NULL, TU_COL_REAL, 0},
    {"ep_s", NULL, TU_COL_REAL, 0},
    {"cp_s", NULL, TU_COL_REAL, 0},
    {"bubble_s", NULL, TU_COL_REAL, 0},
    {"", "BUBBLE_%", TU_COL_DIGITS, 0},
    {"pp_s", NULL, TU_COL_REAL, 0},
    {"dp_s", NULL, TU_COL_REAL, 0},
    {"", "DP_%", TU_COL_DIGITS, 0},
    {"update_s", NULL, TU_COL_REAL, 0},
    {"sent_bytes", "SENT", TU_COL_BYTES, 0},
    {"tp_sent_bytes", NULL, TU_COL_U64, 0},
    {"ep_sent_bytes", NULL, TU_COL_U64, 0},
    {"cp_sent_bytes", NULL, TU_COL_U64, 0},
    {"pp_sent_bytes", NULL, TU_COL_U64, 0},
    {"dp_sent_bytes", NULL, TU_COL_U64, 0},
    {"why_not", "NOTE", TU_COL_NAME, 0},
    {0},
};

/* A number's text that lives as long as the row is being added. */
struct digits {
    char text[24];
};

static const char *percent(struct digits *d, double v)
{
    snprintf(d->text, sizeof d->text, "%.1f", v);
    return d->text;
}

static void row(struct tu_ctx *ctx, const struct tu_train_row *r)
{
    static const char *const recompute[] = {"none", "selective", "full"};
    static const char *const recomp[] = {"none", "select", "full"};
    bool none = r->why_not && !(r->memory_bytes > 0);
    double sent = r->tp_bytes + r->ep_bytes + r->cp_bytes + r->pp_bytes + r->dp_bytes;
    double part = r->step_s > 0 ? 100 / r->step_s : 0;
    struct digits d[4];
    snprintf(d[0].text, sizeof d[0].text, "%.4g", r->step_s);
    tu_row(ctx, (const struct tu_cell[]){
                    {.u = r->at.tp},
                    {.u = r->at.pp},
                    {.u = r->at.vpp},
                    {.u = r->at.dp},
                    {.u = r->at.cp},
                    {.u = r->at.ep},
                    {.u = r->at.mb},
                    {.s = r->at.schedule},
                    {.s = recompute[r->at.recompute]},
                    {.s = recomp[r->at.recompute]},
                    {.u = r->at.zero},
                    {.s = tu_offload_names[r->at.offload]},
                    {.none = none, .f = r->step_s},
                    {.none = none, .s = d[0].text},
                    {.none = none, .f = 100 * r->mfu},
                    {.none = none, .s = percent(&d[1], 100 * r->mfu)},
                    {.none = none, .u = (uint64_t)r->memory_bytes},
                    {.none = none, .u = (uint64_t)r->state_bytes},
                    {.none = none, .u = (uint64_t)r->activation_bytes},
                    {.none = none, .u = (uint64_t)r->logit_bytes},
                    {.none = none, .f = r->compute_s},
                    {.none = none, .f = r->tp_s},
                    {.none = none, .f = r->ep_s},
                    {.none = none, .f = r->cp_s},
                    {.none = none, .f = r->bubble_s},
                    {.none = none, .s = percent(&d[2], part * r->bubble_s)},
                    {.none = none, .f = r->pp_s},
                    {.none = none, .f = r->dp_s},
                    {.none = none, .s = percent(&d[3], part * r->dp_s)},
                    {.none = none, .f = r->update_s},
                    {.none = none, .u = (uint64_t)sent},
                    {.none = none, .u = (uint64_t)r->tp_bytes},
                    {.none = none, .u = (uint64_t)r->ep_bytes},
                    {.none = none, .u = (uint64_t)r->cp_bytes},
                    {.none = none, .u = (uint64_t)r->pp_bytes},
                    {.none = none, .u = (uint64_t)r->dp_bytes},
                    {.s = r->why_not ? r->why_not : ""},
                });
}

bool plan_same_time(const struct tu_train_row *a, const struct tu_train_row *b)
{
    return b->step_s <= (1 + 1e-6) * a->step_s;
}

/* "1.652 billion": three decimals of the largest unit that is reached. */
static const char *amount(double v, const char *const unit[], char out[48])
{
    double scale = 1e15;
    size_t k = 0;
    for (; unit[k + 1] && v < scale; k++)
        scale /= 1000;
    snprintf(out, 48, "%.*f%s", scale > 1 ? 3 : 0, v / scale, unit[k]);
    return out;
}

/* Does a row take as long as an earlier one of the same parallel layout? It differs in
 * what makes no difference here, and the earlier one needs less memory. */
static bool repeats(const struct tu_train_plan *p, size_t k)
{
    const struct tu_train_row *r = &p->row[k];
    for (size_t i = k; i-- > 0 && plan_same_time(&p->row[i], r);) {
        const struct tu_layout_choice *a = &p->row[i].at, *b = &r->at;
        if (a->tp == b->tp && a->pp == b->pp && a->vpp == b->vpp && a->dp == b->dp &&
            a->cp == b->cp && a->ep == b->ep && !strcmp(a->schedule, b->schedule))
            return true;
    }
    return false;
}

/* The rows to print: of the legal ones the fastest that differ, with --all every one of
 * these and the rejected. Returns how many of the legal were passed over. */
static size_t choose(const struct tu_train_plan *p, uint64_t top, bool all, bool *shown)
{
    size_t rows = 0, equal = 0;
    for (size_t k = 0; k < p->n; k++) {
        bool legal = k < p->legal, again = legal && !all && rows < top && repeats(p, k);
        shown[k] = legal ? !again && rows < top : all;
        equal += again;
        rows += shown[k];
    }
    return equal;
}

static void drop(struct tu_column *c, const char *title)
{
    for (; c->key; c++)
        if (c->title && !strcmp(c->title, title))
            c->title = NULL;
}

/* Characters of a line, at most, without the reason at its end. */
static size_t line_of(const struct tu_column *c)
{
    static const struct {
        const char *title;
        size_t n;
    } wide[] = {{"VPP", 3},      {"DP", 4},       {"EP", 3},    {"SCHEDULE", 16},
                {"STEP_S", 7},   {"MEMORY", 8},   {"SENT", 8}};
    size_t sum = 0;
    for (; c->key; c++) {
        size_t n = c->title ? strlen(c->title) : 0;
        for (size_t i = 0; c->title && i < sizeof wide / sizeof *wide; i++)
            n = strcmp(c->title, wide[i].title) ? n : wide[i].n;
        sum += c->kind == TU_COL_NAME || !n ? 0 : n + 2;
    }
    return sum - 2;
}

/* Columns of what no row makes use of are left out of the text, then those that do not fit in a
 * line, what matters least first. */
static const struct tu_column *used(const struct tu_train_plan *p, const bool *shown)
{
    static struct tu_column out[sizeof columns / sizeof *columns];
    static const char *const spare[] = {"DP_%", "BUBBLE_%", "SENT", "RECOMP"};
    uint32_t most[3] = {1, 1, 1};
    bool offload = false;
    for (size_t k = 0; k < p->n; k++)
        if (shown[k]) {
            const struct tu_layout_choice *a = &p->row[k].at;
            const uint32_t v[3] = {a->vpp, a->cp, a->ep};
            for (int i = 0; i < 3; i++)
                most[i] = v[i] > most[i] ? v[i] : most[i];
            offload = offload || a->offload;
        }
    const struct {
        const char *title;
        bool used;
    } rare[] = {{"VPP", most[0] > 1}, {"CP", most[1] > 1}, {"EP", most[2] > 1},
                {"OFFLOAD", offload}};
    memcpy(out, columns, sizeof columns);
    for (size_t i = 0; i < sizeof rare / sizeof *rare; i++)
        if (!rare[i].used)
            drop(out, rare[i].title);
    for (size_t i = 0; i < sizeof spare / sizeof *spare; i++)
        if (line_of(out) > pipe_line_width())
            drop(out, spare[i]);
    return out;
}

static int rows(struct tu_ctx *ctx, const struct tu_train_plan *p, uint64_t top, bool all,
                struct tu_err *err)
{
    bool *shown = tu_calloc(p->n ? p->n : 1, sizeof *shown, err);
    if (!shown)
        return TU_ENOMEM;
    size_t equal = choose(p, top, all, shown);
    if (p->legal || all || tu_json_wanted(ctx)) /* else why there is none follows */
        tu_rows_begin(ctx, used(p, shown));
    for (size_t k = 0; k < p->n; k++)
        if (shown[k])
            row(ctx, &p->row[k]);
    tu_rows_end(ctx);
    tu_free(shown);
    if (equal)
        tu_print(ctx, "%zu more take as long as one above, with more memory\n", equal);
    return 0;
}

int plan_table(struct tu_ctx *ctx, const struct tu_train_query *q,
               const struct tu_train_plan *p, uint64_t top, bool all, struct tu_err *err)
{
    static const char *const number[] = {" quadrillion", " trillion", " billion",
                                         " million",     " thousand", "",         NULL};
    static const char *const flop[] = {" PFLOP", " TFLOP", " GFLOP", " MFLOP",
                                       " KFLOP", " FLOP",  NULL};
    char params[48], work[48], further[48] = "", text[96] = "";
    if (q->model->mtp_layers)
        snprintf(text, sizeof text, " and %s that predict further tokens",
                 amount(tu_train_mtp_params(q->model), number, further));
    tu_print(ctx,
             "%s parameters%s, %s for the model each step; %" PRIu64
             " layouts, %zu legal\n",
             amount(tu_train_params(q->model), number, params), text,
             amount(tu_train_step_flops(q->model, (double)q->batch, (double)q->seq, false),
                    flop, work),
             p->considered, p->legal);
    int rc = rows(ctx, p, top, all, err);
    for (size_t i = 0; !rc && !p->legal && !all && i < 3 && p->reason[i].why_not; i++)
        tu_print(ctx, "rejected: %" PRIu64 ": %s\n", p->reason[i].layouts,
                 p->reason[i].why_not);
    return rc;
}
