/* SPDX-License-Identifier: Apache-2.0 */
/* torch_legacy.c: files of torch before 1.6: five pickles, then the storages.
 *
 * Magic number, protocol version, what the writer's machine was, the object, the list of
 * storage keys; then for each key its element count and its elements, always
 * little-endian. Nothing says where a pickle ends but the pickle itself. */
#include <stdlib.h>

#include "pickle.h"
#include "torch.h"

#define WINDOW ((size_t)1 << 20)
#define PICKLE_MAX ((size_t)1 << 30)
#define PROTOCOL 1001

/* The pickle at *at, which moves behind it. More is read until it ends. */
static int read_pickle(struct tui_torch *t, uint64_t *at, struct tu_pickle **out,
                       const char *what, struct tu_err *err)
{
    uint64_t left = tu_in_size(t->in) - *at;
    for (size_t window = WINDOW;; window *= 4) {
        size_t n = (size_t)tu_min(tu_min(window, left), PICKLE_MAX), used;
        char *data = tu_alloc(n, 1, err);
        if (!data)
            return TU_ENOMEM;
        int rc = tu_in_pread(t->in, *at, data, n, err);
        bool last = n == left || n == PICKLE_MAX;
        if (rc == 0)
            rc = tu_pickle_read(out, data, n, NULL, &used, err);
        tu_free(data);
        if (rc == 0)
            *at += used;
        else if (rc == TU_ETRUNC && !last)
            continue;
        else
            tu_err_prefix(err, "%s: %s at byte %llu", t->base.path, what,
                          (unsigned long long)*at);
        return rc;
    }
}

/* A pickle that only has to be looked at. */
static int check_pickle(struct tui_torch *t, uint64_t *at, const char *what,
                        bool (*good)(const struct tu_pnode *root), struct tu_err *err)
{
    struct tu_pickle *p;
    uint64_t begin = *at;
    int rc = read_pickle(t, at, &p, what, err);
    if (rc < 0)
        return rc;
    if (!good(tu_pickle_root(p)))
        rc = tu_fail_at(err, TU_EUNSUP, begin,
                        "%s: %s at byte %llu is none that is known here", t->base.path,
                        what, (unsigned long long)begin);
    tu_pickle_free(p);
    return rc;
}

static bool good_magic(const struct tu_pnode *root)
{
    return root->kind == TU_P_BIGINT && !strcmp(root->text, "119547037146038801333356");
}

static bool good_protocol(const struct tu_pnode *root)
{
    return root->kind == TU_P_INT && root->integer == PROTOCOL;
}

static bool good_system(const struct tu_pnode *root)
{
    const struct tu_pnode *little = tu_pnode_get(root, "little_endian");
    return little && little->kind == TU_P_BOOL && little->integer;
}

struct keyed {
    const char *key;
    size_t i;
};

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct keyed *)a)->key, ((const struct keyed *)b)->key);
}

/* The storages in the order of the file, findable by key. */
static int make_storages(struct tui_torch *t, const struct tu_pnode *keys,
                         struct tu_err *err)
{
    if (keys->kind != TU_P_LIST)
        return tu_fail(err, TU_EFORMAT, "%s: the storage keys are no list", t->base.path);
    size_t n = keys->n;
    t->storage = tu_calloc(n, sizeof *t->storage, err);
    t->by_key = tu_calloc(n, sizeof *t->by_key, err);
    struct keyed *sorted = tu_calloc(n, sizeof *sorted, err);
    int rc = t->storage && t->by_key && sorted ? 0 : TU_ENOMEM;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct tu_pnode *key = keys->item[i];
        if (key->kind != TU_P_TEXT || strlen(key->text) != key->n) {
            rc = tu_fail(err, TU_EFORMAT, "%s: storage key %zu is no text", t->base.path,
                         i);
            break;
        }
        char *copy = tu_arena_text(t->base.arena, key->text, key->n, err);
        rc = copy ? 0 : TU_ENOMEM;
        t->storage[i].key = copy;
        t->storage[i].entry = SIZE_MAX;
        sorted[i] = (struct keyed){copy, i};
    }
    if (rc == 0) {
        t->storages = n;
        qsort(sorted, n, sizeof *sorted, by_key);
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        t->by_key[i] = sorted[i].i;
        if (i && !strcmp(sorted[i - 1].key, sorted[i].key))
            rc = tu_fail(err, TU_EFORMAT, "%s: storage key '%s' stands twice",
                         t->base.path, sorted[i].key);
    }
    tu_free(sorted);
    return rc;
}

/* Element counts and places of the storages, which begin at `at` and end the file. */
static int place_storages(struct tui_torch *t, uint64_t at, struct tu_err *err)
{
    uint64_t size = tu_in_size(t->in);
    char shown[88];
    for (size_t i = 0; i < t->storages; i++) {
        struct tui_storage *s = &t->storage[i];
        unsigned char count[8];
        tu_text_short(s->key, strlen(s->key), shown);
        if (!s->class)
            return tu_fail(err, TU_EUNSUP,
                           "%s: storage '%s' is in no tensor, so its size is not "
                           "known",
                           t->base.path, shown);
        if (size - at < 8 || s->bytes > size - at - 8)
            return tu_fail_at(
                err, TU_ETRUNC, at,
                "%s: storage '%s' at byte %llu needs %llu bytes, the file ends",
                t->base.path, shown, (unsigned long long)at,
                (unsigned long long)s->bytes + 8);
        int rc = tu_in_pread(t->in, at, count, 8, err);
        if (rc < 0)
            return rc;
        if (tu_le64(count) != s->numel)
            return tu_fail_at(err, TU_ESIZE, at,
                              "%s: storage '%s' has %llu elements, the object says %llu",
                              t->base.path, shown, (unsigned long long)tu_le64(count),
                              (unsigned long long)s->numel);
        s->in = t->in;
        s->off = at + 8;
        at += 8 + s->bytes;
    }
    if (at != size)
        return tu_fail_at(err, TU_EGARBAGE, at, "%s: %llu bytes follow the last storage",
                          t->base.path, (unsigned long long)(size - at));
    return 0;
}

int tui_torch_legacy(struct tui_torch *t, const struct tu_open *how,
                     const struct tu_job *job, struct tu_err *err)
{
    struct tu_pickle *keys = NULL;
    uint64_t at = 0;
    int rc = check_pickle(t, &at, "magic number", good_magic, err);
    if (rc == 0)
        rc = check_pickle(t, &at, "protocol version", good_protocol, err);
    if (rc == 0)
        rc = check_pickle(t, &at, "description of the system", good_system, err);
    if (rc == 0)
        rc = read_pickle(t, &at, &t->base.pickle, "object", err);
    if (rc == 0)
        rc = read_pickle(t, &at, &keys, "list of storages", err);
    if (rc < 0)
        return rc;
    rc = make_storages(t, tu_pickle_root(keys), err);
    tu_pickle_free(keys);
    if (rc < 0)
        return rc;
    rc = tui_torch_strict(t, how, err);
    if (rc == 0)
        rc = tui_torch_walk(t, tu_pickle_root(t->base.pickle), job, err);
    if (rc < 0) {
        tu_err_prefix(err, "%s: object", t->base.path);
        return rc;
    }
    return place_storages(t, at, err);
}
