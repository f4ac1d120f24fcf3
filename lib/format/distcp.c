/* SPDX-License-Identifier: Apache-2.0 */
/* distcp.c: a file of a distributed checkpoint of PyTorch, written: torch.save archives
 * one behind the other, one for each tensor or object.
 *
 * Offsets in an archive count from its own first byte. Source: pytorch
 * torch/distributed/checkpoint/filesystem.py (_write_item). */
#include <stdatomic.h>

#include "kit.h"
#include "pickle.h"
#include "zip.h"

#define ENTRIES 3 /* data.pkl, data/0, version; objects have no storage */

struct archive {
    uint64_t base, size;
    struct tu_zip_plan entry[ENTRIES];
    unsigned entries, data; /* number of the entry of the tensor */
    const char *pickle;
    size_t pickle_n;
    _Atomic uint32_t crc; /* of the tensor's bytes so far */
};

struct distcp {
    struct tu_sink sink;
    struct tu_arena *arena;
    struct tu_out *out;
    struct archive *item; /* tensors, then objects */
    size_t items;
};

static const char version[] = "3\n";

/* The archive of a pickled value, with or without a tensor. */
static int plan_one(struct tu_arena *a, const struct tu_pnode *root,
                    const struct tu_tensor *t, struct archive *out, struct tu_err *err)
{
    struct tu_buf b = {0};
    size_t order[1];
    int rc = tui_pickle_write(&b, root, t, t != NULL, order, err);
    *out = (struct archive){.entries = 0};
    if (!rc && !(out->pickle = tu_arena_text(a, b.data, b.n, err)))
        rc = TU_ENOMEM;
    out->pickle_n = b.n;
    out->entry[out->entries++] =
        (struct tu_zip_plan){.name = "archive/data.pkl", .size = b.n};
    out->data = out->entries;
    if (t)
        out->entry[out->entries++] =
            (struct tu_zip_plan){.name = "archive/data/0", .size = t->bytes};
    out->entry[out->entries++] =
        (struct tu_zip_plan){.name = "archive/version", .size = sizeof version - 1};
    if (!rc)
        rc = tu_zip_layout(out->entry, out->entries, TUI_ZIP_ALIGN, &out->size, err);
    tu_buf_release(&b);
    return rc;
}

static size_t object_count(const struct tu_save *what)
{
    return what->object ? what->object->n : 0;
}

static int plan_all(struct tu_arena *a, const struct tu_save *what, struct archive **out,
                    struct tu_err *err)
{
    size_t n = what->n + object_count(what);
    struct archive *item = tu_arena_alloc(a, n + 1, sizeof *item, err);
    struct tu_pnode *leaf = item ? tu_pnode_tensor(a, 0, err) : NULL;
    uint64_t at = 0;
    int rc = leaf ? 0 : TU_ENOMEM;
    for (size_t i = 0; i < n && !rc; i++) {
        bool data = i < what->n;
        rc = plan_one(a, data ? leaf : what->object->item[i - what->n],
                      data ? &what->tensor[i] : NULL, &item[i], err);
        item[i].base = at;
        if (!rc && tu_add_over(at, item[i].size, &at))
            rc = tu_fail(err, TU_ESIZE, "'%.100s': the file grows too large",
                         data ? what->tensor[i].name : "object");
    }
    *out = item;
    return rc;
}

int tu_distcp_places(const struct tu_save *what, struct tu_place *tensor,
                     struct tu_place *object, struct tu_err *err)
{
    struct tu_arena *a = tu_arena_new(err);
    struct archive *item = NULL;
    int rc = a ? plan_all(a, what, &item, err) : TU_ENOMEM;
    for (size_t i = 0; i < what->n && !rc; i++)
        tensor[i] = (struct tu_place){item[i].base, item[i].size};
    for (size_t i = 0; i < object_count(what) && !rc; i++)
        object[i] = (struct tu_place){item[what->n + i].base, item[what->n + i].size};
    tu_arena_free(a);
    return rc;
}

static int distcp_write(struct tu_sink *sink, size_t i, uint64_t off, const void *p,
                        size_t n, struct tu_err *err)
{
    struct distcp *d = (struct distcp *)sink;
    struct archive *x = &d->item[i];
    const struct tu_zip_plan *e = &x->entry[x->data];
    uint32_t crc = tu_crc32_part(tu_crc32(0, p, n), e->size - off - n);
    atomic_fetch_xor_explicit(&x->crc, crc, memory_order_relaxed);
    return tu_out_pwrite(d->out, x->base + e->offset + off, p, n, err);
}

/* Everything of an archive but the tensor's bytes. */
static int finish_one(struct distcp *d, struct archive *x, struct tu_err *err)
{
    struct tu_zip_plan *pickle = &x->entry[0], *last = &x->entry[x->entries - 1];
    pickle->crc = tu_crc32(0, x->pickle, x->pickle_n);
    last->crc = tu_crc32(0, version, sizeof version - 1);
    if (x->entries == ENTRIES)
        x->entry[x->data].crc = x->crc;
    int rc = tu_out_pwrite(d->out, x->base + pickle->offset, x->pickle, x->pickle_n, err);
    if (!rc)
        rc = tu_out_pwrite(d->out, x->base + last->offset, version, sizeof version - 1,
                           err);
    return rc ? rc : tui_zip_finish_at(d->out, x->base, x->entry, x->entries, err);
}

static int distcp_finish(struct tu_sink *sink, bool durable, struct tu_err *err)
{
    struct distcp *d = (struct distcp *)sink;
    int rc = 0;
    for (size_t i = 0; i < d->items && !rc; i++)
        rc = finish_one(d, &d->item[i], err);
    if (rc)
        return rc;
    struct tu_out *out = d->out;
    d->out = NULL;
    return tu_out_commit(out, durable, err);
}

static void distcp_close(struct tu_sink *sink)
{
    struct distcp *d = (struct distcp *)sink;
    tu_out_abort(d->out);
    tu_arena_free(d->arena);
    tu_free(d);
}

static const struct tu_sink_ops ops = {distcp_write, distcp_finish, distcp_close};

static int distcp_save(struct tu_sink **out, const char *path, const struct tu_save *what,
                       const struct tu_job *job, struct tu_err *err)
{
    struct distcp *d = tu_calloc(1, sizeof *d, err);
    if (!d)
        return TU_ENOMEM;
    d->sink = (struct tu_sink){.format = &tu_format_distcp, .ops = &ops, .n = what->n};
    d->items = what->n + object_count(what);
    d->arena = tu_arena_new(err);
    d->sink.path = d->arena ? tu_arena_text(d->arena, path, strlen(path), err) : NULL;
    int rc = d->sink.path ? plan_all(d->arena, what, &d->item, err) : TU_ENOMEM;
    if (!rc)
        rc = tu_out_open(&d->out, path, job, err);
    if (!rc && !tu_out_seekable(d->out))
        rc = tu_fail(err, TU_EUSAGE,
                     "%s: a distributed checkpoint cannot be written to a pipe", path);
    if (rc) {
        distcp_close(&d->sink);
        return rc;
    }
    *out = &d->sink;
    return 0;
}

static bool dtype_ok(uint32_t dtype)
{
    return tui_torch_dtype(dtype) != NULL;
}

const struct tu_format tu_format_distcp = {
    .name = "distcp",
    .help = "one file of PyTorch's distributed checkpoint",
    .suffix = ".distcp",
    .flags = TU_FORMAT_WRITE,
    .save = distcp_save,
    .dtype_ok = dtype_ok,
};
