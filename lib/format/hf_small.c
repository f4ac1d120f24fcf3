/* SPDX-License-Identifier: Apache-2.0 */
/* hf_small.c: the small files of a Hugging Face folder: which they are, and their texts as
 * META "files". */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include "hf.h"
#include "kit.h"

/* What transformers and vLLM look for beside the weights. */
bool tu_hf_travels(const char *name)
{
    static const char *const whole[] = {
        "config.json", "generation_config.json", "vocab.json", "vocab.txt", "merges.txt",
        "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
        "chat_template.json", "preprocessor_config.json", "processor_config.json",
        "tekken.json", "adapter_config.json", "README.md", "LICENSE", NULL };
    size_t n = strlen(name);
    for (const char *const *w = whole; *w; w++)
        if (!strcmp(name, *w))
            return true;
    return !strncmp(name, "tokenizer", 9) || (n > 6 && !strcmp(name + n - 6, ".model")) ||
           (n > 9 && !strcmp(name + n - 9, ".tiktoken"));
}

static int travels(const struct dirent *e)
{
    return tu_hf_travels(e->d_name);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_file(json_t *files, const char *folder, const char *name, struct tu_err *err)
{
    char *path = tui_hf_join(folder, name, err), *text = NULL;
    size_t n;
    int code = path ? tu_file_read(path, TUI_HF_SMALL, &text, &n, err) : TU_ENOMEM;
    bool plain = !code && tu_json_holds(name, strlen(name)) && tu_json_holds(text, n);
    if (plain)
        code = tu_json_set(files, name, strlen(name), json_stringn(text, n), err);
    tu_free(text);
    tu_free(path);
    return code;
}

int tu_hf_files(struct tu_buf *out, const char *folder, struct tu_err *err)
{
    struct dirent **list = NULL;
    int n = scandir(folder, &list, travels, by_name);
    int code = n < 0 && errno != ENOENT && errno != ENOTDIR ? tu_fail_errno(err, "%s", folder) : 0;
    json_t *files = json_object();
    if (!code && !files)
        code = tu_fail(err, TU_ENOMEM, "out of memory");
    for (int i = 0; i < n; i++) {
        if (!code)
            code = add_file(files, folder, list[i]->d_name, err);
        free(list[i]);
    }
    free(list);
    if (!code)
        code = tu_json_dump(out, files, err);
    json_decref(files);
    return code;
}
