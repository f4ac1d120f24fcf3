/* SPDX-License-Identifier: Apache-2.0 */
/* torch_walk.c: from an object graph to named tensors and META.
 *
 * A name is the path to the tensor: keys and positions joined with dots. The steps of an
 * object's state that are torch.nn.Module's own (_modules, _parameters, _buffers) are
 * left out, so that a pickled module has the names of its state dict. A graph may share
 * and contain cycles: a value is met once per path, what holds itself is not entered
 * again, and the steps are limited by the size of the graph. */
#include <inttypes.h>
#include <stdio.h>

#include "kit.h"
#include "pickle.h"
#include "torch.h"

#define STEPS_MIN 65536
#define STEPS_PER_NODE 8
#define DEPTH_MAX 1000
#define VALUES_BYTES ((size_t)8 << 20) /* of META "torch": half of what a record holds   \
                                        */
#define PATH_MAX_BYTES ((size_t)1 << 20)
#define ON_PATH 1

/* A value whose children are being visited. */
struct frame {
    struct tu_pnode *node;
    size_t part, at; /* of a CALL: part; item within it */
    size_t path;     /* bytes of the path to it */
    bool keyed;      /* a key leads to it, be it an empty one */
};

struct walker {
    struct tui_torch *t;
    struct tu_buf path;
    bool keyed; /* path has a key in it */
    struct frame *frame;
    size_t depth, cap;
    uint64_t steps, max_steps;
    json_t *values;
    size_t values_bytes;
    struct tu_names *names; /* of tensors: how many keys lead to them */
    uint64_t dropped;
    char lost[120]; /* paths of the first of them */
    struct tu_err *err;
};

static const char *path_text(const struct walker *w)
{
    return w->path.n ? w->path.data : w->depth ? "" : "tensor";
}

static int fail_at_path(struct walker *w, int rc)
{
    char shown[88];
    const char *path = path_text(w);
    tu_err_prefix(w->err, "'%s'", tu_text_short(path, strlen(path), shown));
    return rc;
}

/* Values ----------------------------------------------------------------------------- */

/* The value at the path is not kept. */
static void drop(struct walker *w)
{
    size_t used = strlen(w->lost), n;
    const char *path = w->path.n ? w->path.data : "the object itself";
    char shown[88];
    w->dropped++;
    tu_text_short(path, strlen(path), shown);
    n = strlen(shown);
    if (used >= n && !strcmp(w->lost + used - n, shown))
        return; /* several values under one path */
    if (used + strlen(shown) + 3 < sizeof w->lost)
        snprintf(w->lost + used, sizeof w->lost - used, "%s%s", used ? ", " : "", shown);
}

/* Keep v under the path, or count it where it does not fit. Takes v. */
static int keep(struct walker *w, json_t *v, size_t bytes)
{
    const char *key = w->path.n ? w->path.data : "";
    bool good = v && tu_name_check(key, w->path.n) == w->path.n &&
                w->values_bytes + w->path.n + bytes <= VALUES_BYTES &&
                !json_object_get(w->values, key);
    if (!good) {
        drop(w);
        json_decref(v);
        return 0;
    }
    w->values_bytes += w->path.n + bytes;
    return json_object_set_new(w->values, key, v) < 0
               ? tu_fail(w->err, TU_ENOMEM, "out of memory")
               : 0;
}

static int keep_value(struct walker *w, const struct tu_pnode *node)
{
    struct tu_buf text = {0};
    json_t *v;
    int rc = tui_torch_json(&v, node, w->err);
    if (rc == 0 && v)
        rc = tu_json_dump(&text, v, w->err);
    size_t bytes = text.n;
    tu_buf_release(&text);
    if (rc < 0) {
        json_decref(v);
        return rc;
    }
    return keep(w, v, bytes);
}

/* Is this short enough, and without anything to find, to be one value? */
static bool is_value(const struct tu_pnode *node)
{
    if (tui_torch_scalar(node))
        return true;
    if (node->kind == TU_P_DICT || node->kind == TU_P_CALL || node->kind == TU_P_PERSID)
        return false;
    for (size_t i = 0; i < node->n; i++)
        if (!tui_torch_scalar(node->item[i]))
            return false;
    return true;
}

/* Does an object hold anything but plain arguments? */
static bool is_plain_call(const struct tu_pnode *node)
{
    for (size_t k = TU_P_STATE; k < node->n; k++)
        if (node->item[k])
            return false;
    for (size_t i = 0; i < node->item[TU_P_ARGS]->n; i++)
        if (!is_value(node->item[TU_P_ARGS]->item[i]))
            return false;
    return true;
}

/* Tensors ---------------------------------------------------------------------------- */

static int add_tensor(struct walker *w, struct tu_pnode *node,
                      const struct tui_view *view)
{
    struct tui_torch *t = w->t;
    w->steps += w->path.n / 64; /* a few bytes can ask for a long name again and again */
    int rc = TU_GROW(&t->found, &t->cap, t->n, w->err);
    const char *path = path_text(w);
    uint32_t other = tu_names_get(w->names, path);
    if (other != TU_NAMES_NONE)
        return tu_fail(w->err, TU_ENAME,
                       "two tensors have this name, one %" PRIu32 " and one %zu keys deep: a "
                       "key has a dot in it",
                       other, w->depth);
    char *name = rc < 0 ? NULL : tu_arena_text(t->base.arena, path, strlen(path), w->err);
    if (!name || tu_names_put(w->names, name, (uint32_t)w->depth, w->err))
        return TU_ENOMEM;
    t->storage[view->storage].tensors++;
    t->found[t->n++] = (struct tui_found){name, *view};
    if (!node->integer)
        node->integer = (int64_t)t->n; /* see tu_pnode_number */
    return 0;
}

/* Paths ------------------------------------------------------------------------------ */

static int key_text(struct tu_buf *out, const struct tu_pnode *key, size_t position,
                    struct tu_err *err)
{
    char real[32];
    switch (key->kind) {
    case TU_P_TEXT:
    case TU_P_BYTES:
    case TU_P_BIGINT:
    case TU_P_GLOBAL: return tu_buf_add(out, key->text, key->n, err);
    case TU_P_INT: return tu_buf_printf(out, err, "%lld", (long long)key->integer);
    case TU_P_BOOL: return tu_buf_text(out, key->integer ? "True" : "False", err);
    case TU_P_NONE: return tu_buf_text(out, "None", err);
    case TU_P_REAL:
        if (key->real - key->real == 0) {
            tu_json_real(key->real, real);
            return tu_buf_text(out, real, err);
        }
        /* fall through */
    default: return tu_buf_printf(out, err, "#%zu", position);
    }
}

static bool is_module_step(const struct frame *f, const struct tu_pnode *key)
{
    return f->node->kind == TU_P_CALL && f->part == TU_P_STATE &&
           key->kind == TU_P_TEXT &&
           (!strcmp(key->text, "_modules") || !strcmp(key->text, "_parameters") ||
            !strcmp(key->text, "_buffers"));
}

/* Extend the frame's path by a key (NULL: by a position). */
static int set_path(struct walker *w, const struct frame *f, const struct tu_pnode *key,
                    size_t position)
{
    w->path.n = f->path;
    w->keyed = f->keyed;
    if (key && is_module_step(f, key))
        return tu_buf_add(&w->path, "", 0, w->err);
    int rc = f->keyed ? tu_buf_add(&w->path, ".", 1, w->err) : 0;
    w->keyed = true;
    if (rc == 0)
        rc = key ? key_text(&w->path, key, position, w->err)
                 : tu_buf_printf(&w->path, w->err, "%zu", position);
    if (rc == 0 && w->path.n && memchr(w->path.data, 0, w->path.n)) /* it would cut the name */
        return tu_fail(w->err, TU_ENAME, "key %zu of its dictionary goes on behind a NUL",
                       position);
    return rc;
}

/* Walk ------------------------------------------------------------------------------- */

/* The container of the frame's current part. A state may be a tuple of dicts. */
static const struct tu_pnode *part_of(const struct frame *f)
{
    return f->node->kind == TU_P_CALL ? tui_pnode_item(f->node, f->part) : f->node;
}

/* The next child of the innermost value, its path set; NULL when there is none. */
static int next_child(struct walker *w, struct frame *f, struct tu_pnode **child)
{
    *child = NULL;
    for (; f->node->kind == TU_P_CALL ? f->part < f->node->n : !f->part;
         f->part++, f->at = 0) {
        const struct tu_pnode *part = part_of(f);
        if (!part)
            continue;
        if (part->kind == TU_P_DICT) {
            if (f->at >= part->n)
                continue;
            const struct tu_pnode *key = part->item[f->at];
            *child = part->item[f->at + 1];
            f->at += 2;
            return set_path(w, f, key, f->at / 2 - 1);
        }
        if (part->kind == TU_P_LIST || part->kind == TU_P_TUPLE ||
            part->kind == TU_P_SET || part->kind == TU_P_FROZENSET) {
            if (f->at >= part->n)
                continue;
            *child = part->item[f->at++];
            return set_path(w, f, NULL, f->at - 1);
        }
        if (f->at++ == 0 && f->part >= TU_P_STATE) { /* a state that is one value */
            *child = f->node->item[f->part];
            return set_path(w, f, NULL, 0);
        }
    }
    return 0;
}

static int enter(struct walker *w, struct tu_pnode *node)
{
    if (w->depth == DEPTH_MAX)
        return tu_fail(w->err, TU_ELIMIT, "values nested deeper than %d", DEPTH_MAX);
    int rc = TU_GROW(&w->frame, &w->cap, w->depth, w->err);
    if (rc < 0)
        return rc;
    node->mark = ON_PATH;
    w->frame[w->depth++] = (struct frame){.node = node, .path = w->path.n, .keyed = w->keyed};
    return 0;
}

static int visit(struct walker *w, struct tu_pnode *node)
{
    struct tui_view view;
    bool yes = false;
    if (++w->steps > w->max_steps)
        return tu_fail(w->err, TU_ELIMIT,
                       "the object repeats itself: more than %llu values",
                       (unsigned long long)w->max_steps);
    if (is_value(node))
        return keep_value(w, node);
    if (node->kind ==
        TU_P_PERSID) { /* a storage without a tensor: it only has to be there */
        size_t storage;
        uint64_t off, numel;
        drop(w);
        return tui_torch_use(w->t, node, &storage, &off, &numel, w->err);
    }
    if (node->mark == ON_PATH) {
        drop(w);
        return 0;
    }
    if (node->kind == TU_P_CALL) {
        int rc = tui_torch_view(w->t, node, &view, &yes, w->err);
        if (rc < 0 || yes)
            return rc < 0 ? rc : add_tensor(w, node, &view);
        if (is_plain_call(node))
            return keep_value(w, node);
        json_t *class = json_pack("{s:s}", "class", tui_pnode_class(node));
        if (!class)
            return tu_fail(w->err, TU_ENOMEM, "out of memory");
        rc = keep(w, class, 32 + strlen(tui_pnode_class(node)));
        if (rc < 0)
            return rc;
    }
    return enter(w, node);
}

static int walk(struct walker *w, struct tu_pnode *root)
{
    int rc = visit(w, root);
    while (rc == 0 && w->depth) {
        struct frame *f = &w->frame[w->depth - 1];
        struct tu_pnode *child;
        rc = next_child(w, f, &child);
        if (rc == 0 && child) {
            rc = visit(w, child);
        } else if (rc == 0) {
            f->node->mark = 0;
            w->depth--;
        }
    }
    return rc < 0 ? fail_at_path(w, rc) : 0;
}

static int add_meta(struct walker *w, const struct tu_job *job)
{
    struct tu_buf text = {0};
    if (w->dropped) {
        tu_job_warn(job,
                    "%s: %llu values beside the tensors do not fit its metadata and are left "
                    "out: %s",
                    w->t->base.path, (unsigned long long)w->dropped, w->lost);
    } else if (!json_object_size(w->values)) {
        return 0;
    }
    json_t *meta = json_pack("{s:O}", "values", w->values);
    bool made = meta && (!w->dropped ||
                         !json_object_set_new(meta, "dropped",
                                              json_integer((json_int_t)w->dropped)));
    int rc = made ? tu_json_dump(&text, meta, w->err)
                  : tu_fail(w->err, TU_ENOMEM, "out of memory");
    if (rc == 0)
        rc = tui_source_meta(&w->t->base, "torch", text.data, text.n, w->err);
    tu_buf_release(&text);
    json_decref(meta);
    return rc;
}

int tui_torch_walk(struct tui_torch *t, struct tu_pnode *root, const struct tu_job *job,
                   struct tu_err *err)
{
    struct tu_err own;
    uint64_t nodes = tui_pickle_nodes(t->base.pickle);
    struct walker w = {
        .t = t,
        .err = err ? err : &own,
        .values = json_object(),
        .names = tu_names_new(err),
        .max_steps = tu_max(STEPS_MIN, STEPS_PER_NODE * nodes),
    };
    tu_buf_init(&w.path, PATH_MAX_BYTES);
    int rc = w.values && w.names ? walk(&w, root)
                                 : tu_fail(err, TU_ENOMEM, "out of memory");
    if (rc == 0)
        rc = add_meta(&w, job);
    json_decref(w.values);
    tu_names_free(w.names);
    tu_buf_release(&w.path);
    tu_free(w.frame);
    return rc;
}
