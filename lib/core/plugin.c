/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c: find, load and start plug-ins.
 *
 * State: the folders, set once at start; the plug-ins loaded, which stay until the
 * process ends, for their tables are handed out; the names found. One lock guards
 * them. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "tensorutils/core/mem.h"
#include "tensorutils/core/plugin.h"
#include "tensorutils/core/stats.h"

#define PREFIX "libtensorutils-"
#define SUFFIX ".so"

struct loaded {
    struct loaded *next;
    char *name;
    const struct tu_plugin *plugin;
};

static struct {
    pthread_mutex_t lock;
    char **folder; /* NULL-ended, or NULL */
    struct loaded *loaded;
    char **name; /* sorted, NULL-ended; NULL until asked for */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What brings a plug-in, for the message that it is missing. */
static const struct {
    const char *name, *hint;
} bringer[] = {
    {"cuda", "build with 'make CUDA=1', which needs the CUDA toolkit"},
    {"nccl", "build with 'make CUDA=1', which needs the package libnccl-dev"},
    {"mpi", "build where the package libopenmpi-dev is installed"},
    {"lapack", "build where the package liblapacke-dev is installed"},
};

static void free_list(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        tu_free(list[i]);
    tu_free(list);
}

TU_PRINTF(3, 0)
static int vfail(struct tu_err *err, int code, const char *fmt, va_list ap)
{
    char msg[sizeof err->msg];
    vsnprintf(msg, sizeof msg, fmt, ap);
    return tu_fail(err, code, "%s", msg);
}

static const struct tu_host host = {TU_PLUGIN_ABI, tu_alloc, tu_free, vfail, tu_clock};

int tu_plugin_path(const char *const *folder, struct tu_err *err)
{
    size_t n = 0;
    while (folder[n])
        n++;
    char **copy = tu_calloc(n + 1, sizeof *copy, err);
    if (!copy)
        return TU_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (!(copy[i] = tu_strdup(folder[i], err))) {
            free_list(copy);
            return TU_ENOMEM;
        }
    }
    pthread_mutex_lock(&state.lock);
    free_list(state.folder);
    free_list(state.name);
    state.folder = copy;
    state.name = NULL;
    pthread_mutex_unlock(&state.lock);
    return 0;
}

/* FOLDER/libtensorutils-NAME.so where it exists, NULL (without an error) where no folder has it. */
static int find_file(char **path, const char *name, struct tu_err *err)
{
    *path = NULL;
    for (size_t i = 0; state.folder && state.folder[i]; i++) {
        size_t n = strlen(state.folder[i]) + strlen(name) + sizeof "/" PREFIX SUFFIX;
        char *p = tu_alloc(n, 1, err);
        if (!p)
            return TU_ENOMEM;
        snprintf(p, n, "%s/" PREFIX "%s" SUFFIX, state.folder[i], name);
        struct stat st;
        if (stat(p, &st) == 0) {
            *path = p;
            return 0;
        }
        tu_free(p);
    }
    return 0;
}

static int missing(const char *name, struct tu_err *err)
{
    for (size_t i = 0; i < sizeof bringer / sizeof *bringer; i++)
        if (strcmp(bringer[i].name, name) == 0)
            return tu_fail(err, TU_EMISSING, "plug-in '%s' is not installed: %s", name,
                           bringer[i].hint);
    return tu_fail(err, TU_EMISSING, "plug-in '%s' is not installed", name);
}

/* The table of an open plug-in, started. */
static int start(const struct tu_plugin **out, void *handle, const char *path,
                 struct tu_err *err)
{
    const struct tu_plugin *p = dlsym(handle, TU_PLUGIN_SYMBOL);
    if (!p)
        return tu_fail(err, TU_EVERSION,
                       "%s: not a plug-in: no symbol '" TU_PLUGIN_SYMBOL "'", path);
    if (p->abi != TU_PLUGIN_ABI)
        return tu_fail(err, TU_EVERSION, "%s: plug-in interface %u, this program has %u",
                       path, (unsigned)p->abi, TU_PLUGIN_ABI);
    int code = p->init ? p->init(&host, err) : 0;
    if (code)
        tu_err_prefix(err, "plug-in '%s'", p->name);
    else
        *out = p;
    return code;
}

static int open_file(const struct tu_plugin **out, const char *path, const char *name,
                     struct tu_err *err)
{
    struct loaded *l = tu_calloc(1, sizeof *l, err);
    if (!l || !(l->name = tu_strdup(name, err))) {
        tu_free(l);
        return TU_ENOMEM;
    }
    int code;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        /* Most often a library that it stands on: the loader's text names it. */
        code = tu_fail(err, TU_EMISSING, "plug-in '%s' does not load: %s", name,
                       dlerror());
    } else if ((code = start(&l->plugin, handle, path, err))) {
        dlclose(handle);
    }
    if (code) {
        tu_free(l->name);
        tu_free(l);
        return code;
    }
    l->next = state.loaded;
    state.loaded = l;
    *out = l->plugin;
    return 0;
}

int tu_plugin_load(const struct tu_plugin **out, const char *name, struct tu_err *err)
{
    *out = NULL;
    char *path = NULL;
    int code = 0;
    pthread_mutex_lock(&state.lock);
    for (const struct loaded *l = state.loaded; l && !*out; l = l->next)
        if (strcmp(l->name, name) == 0)
            *out = l->plugin;
    if (*out)
        goto unlock;
    /* A name is a file's, never a path. */
    code = *name && !strchr(name, '/') ? find_file(&path, name, err) : 0;
    if (!code)
        code = path ? open_file(out, path, name, err) : missing(name, err);
unlock:
    pthread_mutex_unlock(&state.lock);
    tu_free(path);
    return code;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool known(char *const *name, size_t n, const char *s, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(name[i]) == len && memcmp(name[i], s, len) == 0)
            return true;
    return false;
}

/* Add the names of one folder; a folder that cannot be read has none. */
static int list_folder(char ***name, size_t *cap, size_t *n, const char *folder)
{
    DIR *d = opendir(folder);
    int code = 0;
    for (const struct dirent *e; d && !code && (e = readdir(d));) {
        size_t len = strlen(e->d_name), head = sizeof PREFIX - 1, tail = sizeof SUFFIX - 1;
        if (len <= head + tail || strncmp(e->d_name, PREFIX, head) != 0 ||
            strcmp(e->d_name + len - tail, SUFFIX) != 0 ||
            known(*name, *n, e->d_name + head, len - head - tail))
            continue;
        char *s = NULL;
        if ((code = TU_GROW(name, cap, *n + 1, NULL)) ||
            !(s = tu_strdup(e->d_name + head, NULL))) {
            code = TU_ENOMEM;
            break;
        }
        s[len - head - tail] = '\0';
        (*name)[(*n)++] = s;
        (*name)[*n] = NULL;
    }
    if (d)
        closedir(d);
    return code;
}

/* Without memory there are no names, and the next question tries again. */
static void list_all(void)
{
    size_t cap = 0, n = 0;
    char **name = NULL;
    int code = TU_GROW(&name, &cap, 0, NULL);
    if (code)
        return;
    name[0] = NULL;
    for (size_t i = 0; state.folder && state.folder[i] && !code; i++)
        code = list_folder(&name, &cap, &n, state.folder[i]);
    if (code) {
        free_list(name);
        return;
    }
    qsort(name, n, sizeof *name, compare_names);
    state.name = name;
}

const char *tu_plugin_name(size_t i)
{
    pthread_mutex_lock(&state.lock);
    if (!state.name)
        list_all();
    const char *name = NULL;
    for (size_t k = 0; state.name && state.name[k] && !name; k++)
        if (k == i)
            name = state.name[k];
    pthread_mutex_unlock(&state.lock);
    return name;
}
