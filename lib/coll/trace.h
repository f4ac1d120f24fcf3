/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: what a rank saw of an operation, as a line of JSON. */
#ifndef TENSORUTILS_COLL_TRACE_H
#define TENSORUTILS_COLL_TRACE_H

#include <tensorutils/coll.h>

/* Post the line of an operation, finished or not (done_ns is then 0). Times count from
 * the start of the clock that all ranks of this machine share. */
int tui_trace_post(struct tu_rank *r, struct tu_seen *s, const char *op, uint32_t dtype,
                   uint64_t bytes, bool done, struct tu_err *err);

#endif
