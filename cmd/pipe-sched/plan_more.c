/* SPDX-License-Identifier: Apache-2.0 */
/* plan_more.c: what pipe-sched plan says below its table. */
#include "pipe-sched/plan_more.h"

/* The best step when one thing of the cluster is a tenth better. */
int plan_sensitivity(struct tu_ctx *ctx, const struct tu_train_query *q, double now,
                     struct tu_err *err)
{
    static const char *const what[] = {"compute", "links", "network", "memory"};
    for (int k = 0; k < 4; k++) {
        struct tu_train_query more = *q;
        struct tu_train_plan p;
        if (k == 0)
            more.cluster.flops *= 1.1;
        else if (k == 1)
            more.cluster.link_bs *= 1.1;
        else if (k == 2)
            more.cluster.network_bs *= 1.1;
        else
            more.cluster.memory += more.cluster.memory / 10;
        more.all = false;
        int rc = tu_train_make(&p, &more, err);
        if (rc)
            return rc;
        double then = p.legal ? p.row[0].step_s : now;
        struct tu_jw *w = tu_line_begin(ctx);
        if (w) {
            tu_jw_str(w, "sensitivity", what[k]);
            tu_jw_real(w, "step_s", then);
            tu_jw_real(w, "gain_pct", 100 * (now - then) / now);
            tu_line_end(ctx);
        }
        tu_print(ctx, "10 %% more %-8s step %.6g s, %.2f %% shorter\n", what[k], then,
                 100 * (now - then) / now);
        tu_train_release(&p);
    }
    return 0;
}

/* What the stages of the best layout hold, where they differ, in Megatron's letters; v a
 * layer of the vision encoder. */
int plan_stages(struct tu_ctx *ctx, const struct tu_train_query *q,
                const struct tu_layout_choice *at, struct tu_err *err)
{
    struct tu_train_stage *stage;
    struct tu_buf text = {0};
    size_t n;
    int rc = tu_train_stages(&stage, &n, q, at, err);
    for (size_t k = 0; !rc && k < n; k++) {
        const struct tu_train_stage *s = &stage[k];
        rc = tu_buf_text(&text, k ? "|" : "", err);
        if (!rc && s->encoder)
            rc = tu_buf_printf(&text, err, "v*%u", s->encoder);
        if (!rc && s->embedding)
            rc = tu_buf_text(&text, "E", err);
        if (!rc && s->layers)
            rc = tu_buf_printf(&text, err, "t*%u", s->layers);
        if (!rc && s->mtp)
            rc = tu_buf_printf(&text, err, "m*%u", s->mtp);
        if (!rc && s->head)
            rc = tu_buf_text(&text, "L", err);
    }
    struct tu_jw *w = rc ? NULL : tu_line_begin(ctx);
    if (w) {
        tu_jw_str(w, "stages", text.data);
        tu_line_end(ctx);
    }
    if (!rc)
        tu_print(ctx, "stages of the first: %s\n", text.data);
    tu_buf_release(&text);
    tu_free(stage);
    return rc;
}
