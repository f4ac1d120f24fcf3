/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c: how a layout names tensors and cuts them, as lines that --map takes. */

#include <stdio.h>
#include <string.h>

#include "opts.h"

/* One line of a map as a JSON line. */
static void line_json(struct tu_ctx *ctx, const char *map, const char *line, size_t n)
{
    static const char *const key[] = {"pattern", "target", "transform"};
    char text[512];
    struct tu_jw *w = *line == '#' ? NULL : tu_line_begin(ctx);
    if (!w)
        return;
    snprintf(text, sizeof text, "%.*s", (int)n, line);
    tu_jw_str(w, "map", map);
    char *left = NULL, *field = strtok_r(text, "\t", &left);
    for (int k = 0; k < 3 && field; k++, field = strtok_r(NULL, "\t", &left))
        tu_jw_str(w, key[k], field);
    tu_line_end(ctx);
}

static bool show_map(struct tu_ctx *ctx, const char *name)
{
    const char *text = tu_map_text(name);
    if (!text)
        return false;
    tu_print(ctx, "\n# map %s\n", name);
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        tu_print(ctx, "%.*s\n", (int)n, text);
        line_json(ctx, name, text, n);
    }
    return true;
}

static void layout_json(struct tu_ctx *ctx, const struct tu_layout *l)
{
    struct tu_jw *w = tu_line_begin(ctx);
    if (!w)
        return;
    tu_jw_str(w, "layout", l->name);
    tu_jw_str(w, "help", l->help);
    tu_jw_open(w, "keys", '{');
    for (const struct tu_layout_key *k = l->key; k && k->name; k++)
        tu_jw_str(w, k->name, k->help);
    tu_jw_close(w, '}');
    tu_line_end(ctx);
}

static void show_layout(struct tu_ctx *ctx, const struct tu_layout *l)
{
    tu_print(ctx, "# layout %s\n# %s\n", l->name, l->help);
    for (const struct tu_layout_key *k = l->key; k && k->name; k++)
        tu_print(ctx, "#   %s: %s\n", k->name, k->help);
    layout_json(ctx, l);
    if (!l->maps)
        tu_print(ctx, "# names: those of the family's map\n");
    for (const char *const *m = l->maps; m && *m; m++)
        show_map(ctx, *m);
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    if (strcmp(argv[0], "show"))
        return tu_usage(ctx, "unknown word '%s': layout show NAME", argv[0]);
    for (int i = 1; i < argc; i++) {
        const struct tu_layout *l = tu_layout_find(argv[i]);
        if (l)
            show_layout(ctx, l);
        else if (!show_map(ctx, argv[i]))
            return tu_usage(ctx, "no layout or map '%s' (--list shows them)", argv[i]);
    }
    return 0;
}

static const char *const usage[] = {"show name ...", NULL};

const struct tu_cmd cmd_layout = {
    .name = "layout",
    .example = "shard-ckpt layout show megatron",
    .summary = "print the names and cuts of a layout, as --map takes them",
    .usage = usage,
    .flags = TU_CMD_WORDS,
    .min = 2,
    .max = TU_ANY,
    .run = run,
};
