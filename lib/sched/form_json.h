/* SPDX-License-Identifier: Apache-2.0 */
/* form_json.h: for the two files that read and write the document's head. */
#ifndef TUI_SCHED_FORM_JSON_H
#define TUI_SCHED_FORM_JSON_H

#include <jansson.h>
#include "tensorutils/sched.h"

/* A reader of the head's values that remembers its first failure. */
struct tui_keys {
    const json_t *o;
    struct tu_err *err;
    int code;
};
/* An integer in lo … hi, `none` when it is absent or something failed before. */
int64_t tui_keys_int(struct tui_keys *k, const char *key, int64_t lo, int64_t hi,
                     int64_t none);

/* The key "cost" of an open object, and its value read into a cost. */
void tui_json_cost_write(struct tu_jw *w, const struct tu_cost *c);
TU_MUST int tui_json_cost_read(struct tu_cost *c, const json_t *o, struct tu_err *err);

#endif
