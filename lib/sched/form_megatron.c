/* SPDX-License-Identifier: Apache-2.0 */
/* form_megatron.c: the texts of Megatron-LM's users: order lists and zero-bubble lines.
 *
 * te: a line for each rank, +(chunk+1) a forward, -(chunk+1) a backward (Transformer
 * Engine's graph order). zb: blank separated, a letter and the micro-batch: f F forward,
 * b B input gradient, w W weight gradient; lower case is chunk 0 of a rank, upper case
 * the next. */
#include <stdlib.h>
#include <string.h>
#include "sched/load.h"

/* Which of its rank's stages a stage is, in order of stage number. */
static uint32_t chunk_of(const struct tu_sched *s, uint32_t stage)
{
    uint32_t c = 0;
    for (uint32_t k = 0; k < stage; k++)
        c += s->place[k] == s->place[stage];
    return c;
}

static int write_te(struct tu_buf *out, const struct tu_sched *s, const struct tu_cost *c,
                    const struct tu_sim *sim, struct tu_err *err)
{
    int rc = 0;
    (void)c;
    (void)sim;
    for (uint32_t r = 0; r < s->ranks && !rc; r++) {
        bool first = true;
        for (size_t i = 0; i < s->n[r] && !rc; i++) {
            const struct tu_op *op = &s->op[r][i];
            if (op->kind != TU_OP_F && op->kind != TU_OP_B && op->kind != TU_OP_I)
                continue;
            rc =
                tu_buf_printf(out, err, "%s%s%u", first ? "" : " ",
                              op->kind == TU_OP_F ? "" : "-", chunk_of(s, op->stage) + 1);
            first = false;
        }
        if (!rc)
            rc = tu_buf_text(out, "\n", err);
    }
    return rc;
}

static int write_zb(struct tu_buf *out, const struct tu_sched *s, const struct tu_cost *c,
                    const struct tu_sim *sim, struct tu_err *err)
{
    int rc = 0;
    (void)c;
    (void)sim;
    for (uint32_t r = 0; r < s->ranks && !rc; r++) {
        for (size_t i = 0; i < s->n[r] && !rc; i++) {
            const struct tu_op *op = &s->op[r][i];
            uint32_t chunk = op->kind == TU_OP_OPT ? 0 : chunk_of(s, op->stage);
            const char *pair = op->kind == TU_OP_F   ? "fF"
                               : op->kind == TU_OP_I ? "bB"
                               : op->kind == TU_OP_W ? "wW"
                                                     : NULL;
            if (op->kind == TU_OP_B)
                rc = tu_buf_printf(out, err, "%s%c%u %c%u", i ? " " : "",
                                   chunk ? 'B' : 'b', op->mb, chunk ? 'W' : 'w', op->mb);
            else if (pair)
                rc = tu_buf_printf(out, err, "%s%c%u", i ? " " : "", pair[chunk ? 1 : 0],
                                   op->mb);
        }
        if (!rc)
            rc = tu_buf_text(out, "\n", err);
    }
    return rc;
}

static uint32_t lines_of(const char *text, size_t n)
{
    uint32_t lines = 0;
    bool filled = false;
    for (size_t i = 0; i < n && lines <= TU_SCHED_MAX; i++) {
        if (text[i] == '\n')
            filled = false;
        else if (!filled && text[i] != '\r')
            lines++, filled = true;
    }
    return lines;
}

/* One word of a zero-bubble line: two chunks make a V. */
static bool zb_word(const char *p, size_t n, uint32_t rank, uint32_t p_ranks, bool v,
                    struct tu_op *op)
{
    static const char letters[] = "fbwFBW";
    static const uint8_t kind[] = {TU_OP_F, TU_OP_I, TU_OP_W};
    const char *at = n ? memchr(letters, *p, 6) : NULL;
    uint32_t mb = 0;
    if (!at || n < 2 || n > 6)
        return false;
    for (size_t i = 1; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        mb = mb * 10 + (uint32_t)(p[i] - '0');
    }
    bool second = at - letters >= 3;
    *op = (struct tu_op){.kind = kind[(at - letters) % 3],
                         .mb = mb,
                         .stage = !second ? rank
                                  : v     ? 2 * p_ranks - 1 - rank
                                          : p_ranks + rank};
    return mb < TU_SCHED_MAX;
}

static int read_zb(struct tu_sched **out, struct tu_cost *c, const char *text, size_t n,
                   const struct tu_sched_hint *hint, struct tu_err *err)
{
    struct tui_load l;
    uint32_t ranks = lines_of(text, n), rank = 0;
    (void)c;
    if (!ranks || ranks > TU_SCHED_MAX)
        return tu_fail(err, TU_EFORMAT, "zb: %u lines: not in 1 … %u", ranks,
                       TU_SCHED_MAX);
    tui_load_begin(&l, ranks, hint, err);
    for (size_t at = 0, column = 0; at < n && !l.b.code;) {
        struct tu_op op;
        size_t end = at;
        if (text[at] == ' ' || text[at] == '\r' || text[at] == '\n') {
            if (text[at] == '\n' && column)
                rank++, column = 0;
            at++;
            continue;
        }
        while (end < n && text[end] != ' ' && text[end] != '\n' && text[end] != '\r')
            end++;
        if (zb_word(text + at, end - at, rank, ranks, true, &op))
            tui_load_op(&l, rank, &op);
        else if (end - at > 5 || !memchr("spr", text[at], 3))
            l.b.code =
                tu_fail_at(err, TU_EFORMAT, at, "zb: rank %u, word %zu: not an operation",
                           rank, column + 1);
        column++;
        at = end;
    }
    return tui_load_end(&l, out);
}

static bool sniff_zb(const char *text, size_t n)
{
    return n > 2 && memchr("fF", text[0], 2) && text[1] >= '0' && text[1] <= '9' &&
           memchr(text, ' ', n < 16 ? n : 16);
}

const struct tu_sched_form tui_form_zb = {
    "zb", "zero-bubble text: f0 F0 b0 w0", sniff_zb, read_zb, write_zb, false};
const struct tu_sched_form tui_form_te = {
    "te", "order list: +chunk forward, -chunk backward", NULL, NULL, write_te, false};
