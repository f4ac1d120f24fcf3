/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c: trace lines, written. diagnose.c reads them. */
#include <stdio.h>
#include "trace.h"
#include "world.h"

int tui_trace_post(struct tu_rank *r, struct tu_seen *s, const char *op, uint32_t dtype,
                   uint64_t bytes, bool done, struct tu_err *err)
{
    struct tu_buf line = {.max = TU_POST_MAX - 64};
    struct tu_jw w;
    char name[8];
    uint64_t now = tui_now();
    s->done_ns = done ? now : 0;
    tu_jw_begin(&w, &line);
    tu_jw_open(&w, NULL, '{');
    tu_jw_u64(&w, "rank", tu_rank_id(r));
    tu_jw_u64(&w, "seq", s->seq);
    tu_jw_str(&w, "op", op);
    tu_jw_str(&w, "dtype", tu_dtype_text(dtype, name));
    tu_jw_u64(&w, "bytes", bytes);
    tu_jw_u64(&w, "arrive_ns", s->arrive_ns);
    tu_jw_u64(&w, "first_ns", s->first_ns ? s->first_ns : now);
    tu_jw_u64(&w, "last_ns", s->last_ns ? s->last_ns : now);
    tu_jw_u64(&w, "done_ns", s->done_ns);
    tu_jw_open(&w, "peers", '[');
    for (uint32_t q = 0; q < tu_rank_size(r) && line.n < TU_POST_MAX - 200; q++) {
        const struct tu_peer_seen *p = &s->peer[q];
        char cell[80];
        if (!p->bytes && !p->wait_ns)
            continue;
        snprintf(cell, sizeof cell, "[%u,%llu,%llu]", (unsigned)q,
                 (unsigned long long)p->bytes, (unsigned long long)p->wait_ns);
        tu_jw_raw(&w, NULL, cell);
    }
    tu_jw_close(&w, ']');
    tu_jw_close(&w, '}');
    int code = tu_jw_end(&w, err);
    unsigned char post[TU_POST_MAX];
    tu_put32(post, TU_BENCH_TRACE);
    if (!code) {
        memcpy(post + 4, line.data, line.n);
        code = tu_rank_post(r, post, 4 + line.n, err);
    }
    tu_buf_release(&line);
    return code;
}
