/* SPDX-License-Identifier: Apache-2.0 */
/* engines.c: the table of engines' files, and opening one by name or by its looks. */
#include <string.h>
#include <sys/stat.h>
#include "engines.h"

const struct tu_kv_engine *const tu_kv_engines[] = {
    &tui_kv_llama,   &tui_kv_hf,       &tui_kv_lmcache,
    &tui_kv_hicache, &tui_kv_mooncake, &tui_kv_raw,     NULL,
};

int tu_kv_engine_find(const struct tu_kv_engine **out, const char *name,
                      struct tu_err *err)
{
    char text[88];
    for (size_t i = 0; (*out = tu_kv_engines[i]); i++)
        if (!strcmp((*out)->name, name))
            return 0;
    return tu_fail(err, TU_EUSAGE, "engine '%s': unknown (see --list=engines)",
                   tu_text_short(name, strlen(name), text));
}

static int sniff(const struct tu_kv_engine **out, const char *path, struct tu_err *err)
{
    unsigned char head[4096];
    size_t n = 0;
    struct stat st;
    struct tu_in *in = NULL;
    int rc = 0;
    if (stat(path, &st) || !S_ISDIR(st.st_mode)) {
        rc = tu_in_open(&in, path, err);
        if (!rc)
            rc = tu_in_peek(in, head, sizeof head, &n, err);
        tu_in_close(in);
        if (!rc && n == 0)
            rc = tu_fail(err, TU_EEMPTY, "%s: empty file", path);
    }
    for (size_t i = 0; !rc && (*out = tu_kv_engines[i]); i++)
        if ((*out)->sniff && (*out)->sniff(path, head, n))
            return 0;
    return rc ? rc
              : tu_fail(err, TU_EMAGIC, "%s: no engine's file by its looks: name it "
                                        "(--from, see --list=engines)",
                        path);
}

int tu_kv_engine_of(const struct tu_kv_engine **out, const char *path,
                    const struct tu_spec *spec, struct tu_err *err)
{
    static const char *const none[] = {NULL};
    int rc = spec ? tu_kv_engine_find(out, spec->name, err) : sniff(out, path, err);
    if (!rc && spec)
        rc = tu_spec_check(spec, (*out)->key ? (*out)->key : none, err);
    return rc;
}
