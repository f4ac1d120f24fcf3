/* SPDX-License-Identifier: Apache-2.0 */
/* replace.c: whether a folder may be replaced as a whole: only one that holds a
 * checkpoint, so that a slip of the path costs no one's other files. */
#include <dirent.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>
#include <tensorutils/format.h>

/* What stands at the top of a folder that some tool of the field has written. */
static const char *const signs[] = {
    "*.safetensors",
    "*.safetensors.index.json",
    "*.bin",
    "*.bin.index.json",
    "*.pt",
    "*.pth",
    "*.gguf",
    "*.tns",
    "*.distcp",
    ".metadata",
    "config.json",
    "params.json",
    "tensorutils-digests.txt",
    "latest*",
    "iter_[0-9]*",
    "mp_rank_[0-9]*",
    "global_step[0-9]*",
};

static bool is_sign(const char *name)
{
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (!fnmatch(signs[i], name, 0))
            return true;
    return false;
}

int tu_folder_replaceable(const char *path, struct tu_err *err)
{
    char other[88] = "";
    bool yes = false;
    struct stat st;
    if (lstat(path, &st) || !S_ISDIR(st.st_mode))
        return 0;
    DIR *d = opendir(path);
    if (!d)
        return tu_fail_errno(err, "%.200s", path);
    for (struct dirent *e; !yes && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (!(yes = is_sign(e->d_name)) && !*other)
            tu_text_short(e->d_name, strlen(e->d_name), other);
    }
    closedir(d);
    return yes || !*other
               ? 0
               : tu_fail(err, TU_EEXISTS,
                         "%.120s: holds '%s' and no checkpoint: -f replaces nothing else",
                         path, other);
}
