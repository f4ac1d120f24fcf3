/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h: activation memory and weight versions of a simulated schedule. */
#ifndef TUI_SCHED_MEMORY_H
#define TUI_SCHED_MEMORY_H

#include "tensorutils/sched.h"

/* Fill peak, versions, staleness and mem_unit of a simulation whose times are known. */
TU_MUST int tui_memory_peaks(struct tu_sim *r, const struct tu_sched *s,
                             const struct tu_cost *c, struct tu_err *err);
/* Memory of one chunk's activation in the cost's units, and of what W needs of it. */
struct tui_mem {
    int64_t unit, full, for_w, ckpt;
};
struct tui_mem tui_mem_of(const struct tu_cost *c, uint32_t chunks, uint32_t slices);
/* Of one chunk's activation what its W frees: all, or with split releases what I left. */
int64_t tui_mem_at_w(const struct tu_cost *c);
/* TU_EUSAGE: a cap is below `least`, which is `what`; both are told in M_B. c may be NULL. */
int tui_cap_low(const struct tu_cost *c, uint32_t chunks, int64_t cap, const char *what,
                int64_t least, struct tu_err *err);

#endif
