/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h: memory that forked ranks share with us. */
#ifndef FA_RUN_RANKS_H
#define FA_RUN_RANKS_H

#include "fa-run/fa.h"

int fa_shared_memory(struct tu_operand *o, uint64_t bytes, struct tu_err *err);
/* False: it is not such memory. */
bool fa_unshare(const struct tu_operand *o);

#endif
