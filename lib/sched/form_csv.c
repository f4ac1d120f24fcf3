/* SPDX-License-Identifier: Apache-2.0 */
/* form_csv.c: PyTorch's pipeline CSV: one line for each rank, one cell for each
 * operation.
 *
 * Line ends are CR LF, as Python's csv module writes them; an empty line of a rank
 * without operations is "". Source: pytorch/pytorch
 * torch/distributed/pipelining/schedules.py. */
#include <string.h>
#include "sched/load.h"

static size_t lines_of(const char *text, size_t n)
{
    size_t lines = 0, last = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n')
            lines++;
        else if (text[i] != '\r' && text[i] != ' ')
            last = lines + 1;
    }
    return last; /* blank lines at the end do not count */
}

static int read_csv(struct tu_sched **out, struct tu_cost *c, const char *text, size_t n,
                    const struct tu_sched_hint *hint, struct tu_err *err)
{
    struct tui_load l;
    size_t ranks = lines_of(text, n), at = 0;
    (void)c;
    if (!ranks)
        return tu_fail(err, TU_EFORMAT, "csv: the file is empty");
    if (ranks > TU_SCHED_MAX)
        return tu_fail(err, TU_ELIMIT, "csv: %zu lines: more than %u ranks", ranks,
                       TU_SCHED_MAX);
    tui_load_begin(&l, (uint32_t)ranks, hint, err);
    for (uint32_t r = 0; r < ranks && !l.b.code; r++) {
        size_t column = 0;
        while (at < n && text[at] != '\n') {
            size_t end = at;
            while (end < n && text[end] != ',' && text[end] != '\n')
                end++;
            size_t len = end - at;
            if (len && text[at + len - 1] == '\r')
                len--;
            if (!(len == 2 && !memcmp(text + at, "\"\"", 2)))
                tui_load_cell(&l, r, column, text + at, len);
            column++;
            at = end < n && text[end] == ',' ? end + 1 : end;
        }
        at++;
    }
    return tui_load_end(&l, out);
}

static int write_csv(struct tu_buf *out, const struct tu_sched *s,
                     const struct tu_cost *c, const struct tu_sim *sim,
                     struct tu_err *err)
{
    int rc = 0;
    (void)c;
    (void)sim;
    for (uint32_t r = 0; r < s->ranks && !rc; r++) {
        if (!s->n[r])
            rc = tu_buf_text(out, "\"\"", err);
        for (size_t i = 0; i < s->n[r] && !rc;) {
            unsigned used = 1;
            if (i)
                rc = tu_buf_text(out, ",", err);
            if (!rc)
                rc = tui_cell_text(out, &s->op[r][i], s->slices, &used, err);
            i += used;
        }
        if (!rc)
            rc = tu_buf_text(out, "\r\n", err);
    }
    return rc;
}

/* Anything that begins like a cell: the last form to be guessed before none. */
static bool sniff(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && strchr(" ,\"\r\n", text[i]) && text[i])
        i++;
    if (i == n)
        return false;
    if (text[i] >= '0' && text[i] <= '9') {
        while (i < n && text[i] >= '0' && text[i] <= '9')
            i++;
        return i < n && text[i] >= 'A' && text[i] <= 'Z';
    }
    size_t end = i;
    while (end < n && text[end] != ',' && text[end] != '\n')
        end++;
    return text[i] == '(' || (end - i > 4 && memchr(text + i, '_', end - i));
}

const struct tu_sched_form tui_form_csv = {
    "csv", "PyTorch pipelining, compute or lowered", sniff, read_csv, write_csv, false, "csv",
    true};
