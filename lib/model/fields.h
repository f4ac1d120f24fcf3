/* SPDX-License-Identifier: Apache-2.0 */
/* fields.h: a configuration file as a table: which JSON keys fill which member of
 * tu_model. */
#ifndef TU_MODEL_FIELDS_H
#define TU_MODEL_FIELDS_H

#include <stddef.h>

#include <tensorutils/model.h>

enum tui_field_type { TUI_U64, TUI_BOOL, TUI_REAL, TUI_FAMILY };

struct tui_field {
    const char *keys; /* alternatives separated by '|'; the first is written */
    enum tui_field_type type;
    size_t offset;
};

#define TUI_FIELD(keys, type, member)                                                    \
    {                                                                                    \
        keys, type, offsetof(struct tu_model, member)                                    \
    }

/* What the config.json of a family that no map names leaves out, NULL: not known. */
const struct tu_model *tui_shape(const char *family);
/* Its sizes that have words of their own there. Errors: TU_EFORMAT naming the key. */
int tui_shape_read(struct tu_model *m, const struct json_t *config, struct tu_err *err);
/* The kinds of layers that alternate in a family of that shape. Errors: TU_EFORMAT; TU_EUNSUP for
 * a list of layers that no rule makes. */
int tui_layers_read(struct tu_model *m, const struct tu_model *shape, const struct json_t *config,
                    struct tu_err *err);
/* Read what is there; null counts as absent. Errors: TU_EFORMAT naming the key. Ends
 * without keys. */
int tui_fields_read(const struct tui_field *f, const struct json_t *object,
                    struct tu_model *m, struct tu_err *err);
/* Write members that are not 0; booleans always when `all`. */
void tui_fields_write(struct tu_jw *w, const struct tui_field *f,
                      const struct tu_model *m, bool all);

#endif
