/* SPDX-License-Identifier: Apache-2.0 */
/* shard.c: the metadata keys `shard` and `flat` (B4): where a piece lies in its whole,
 * and their rules: it lies inside, and mesh, coordinates and placements agree.
 *
 * Not for computing with shards: that is another room's work. */
#include <inttypes.h>
#include <jansson.h>
#include "record.h"

static int bad(struct tu_err *err, const char *what)
{
    return tu_fail(err, TU_ESHARD, "%s", what);
}

/* global and offset against the shape. */
static int read_box(struct tu_region *out, const json_t *shard, const uint64_t *dim,
                    unsigned rank, struct tu_err *err)
{
    const json_t *global = json_object_get(shard, "global");
    const json_t *offset = json_object_get(shard, "offset");
    if (!json_is_array(global) || !json_is_array(offset))
        return bad(err, "shard without the lists global and offset");
    if (json_array_size(global) != rank || json_array_size(offset) != rank)
        return tu_fail(
            err, TU_ESHARD,
            "shard with %zu global sizes and %zu offsets of a tensor of rank %u",
            json_array_size(global), json_array_size(offset), rank);
    out->kind = TU_REGION_BOX;
    out->rank = rank;
    for (unsigned i = 0; i < rank; i++) {
        const json_t *g = json_array_get(global, i);
        uint64_t whole = TU_SIZE_MAX, from, to;
        if (!tu_json_count(json_array_get(offset, i), &from) ||
            (!json_is_null(g) && !tu_json_count(g, &whole)))
            return tu_fail(err, TU_ESHARD, "shard: dimension %u: not a count", i);
        if (tu_add_over(from, dim[i], &to) || to > whole)
            return tu_fail(err, TU_ESHARD,
                           "shard: dimension %u: offset %" PRIu64 " + %" PRIu64
                           " is beyond the whole of %" PRIu64,
                           i, from, dim[i], whole);
        out->global[i] = json_is_null(g) ? TU_REGION_OPEN : whole;
        out->off[i] = from;
        out->len[i] = dim[i];
    }
    return 0;
}

/* mesh: [["pp",4],["tp",2]], names distinct. axes gets each name, true: not used yet. */
static int check_mesh(const json_t *mesh, json_t *axes, struct tu_err *err)
{
    if (!json_is_array(mesh))
        return bad(err, "shard: mesh is not a list");
    for (size_t i = 0; i < json_array_size(mesh); i++) {
        const json_t *axis = json_array_get(mesh, i);
        const char *name = json_string_value(json_array_get(axis, 0));
        uint64_t size;
        if (!name || json_array_size(axis) != 2 ||
            !tu_json_count(json_array_get(axis, 1), &size) || !size)
            return tu_fail(err, TU_ESHARD, "shard: mesh axis %zu is not [\"NAME\",SIZE]",
                           i);
        if (json_object_get(axes, name))
            return tu_fail(err, TU_ESHARD, "shard: mesh has two axes '%.40s'", name);
        if (json_object_set_new(axes, name, json_true()))
            return tu_fail(err, TU_ENOMEM, "out of memory");
    }
    return 0;
}

static int check_coord(const json_t *coord, const json_t *mesh, struct tu_err *err)
{
    if (!json_is_array(coord) || json_array_size(coord) != json_array_size(mesh))
        return bad(err, "shard: coord is not one index for each axis of the mesh");
    for (size_t i = 0; i < json_array_size(coord); i++) {
        uint64_t at, size = 0;
        if (!tu_json_count(json_array_get(coord, i), &at) ||
            !tu_json_count(json_array_get(json_array_get(mesh, i), 1), &size) || at >= size)
            return tu_fail(err, TU_ESHARD,
                           "shard: coord of axis %zu is not below its size %" PRIu64, i,
                           size);
    }
    return 0;
}

/* A list of axes of the mesh, each used once in place and partial together. */
static int use_axes(const json_t *list, json_t *axes, const char *what,
                    struct tu_err *err)
{
    if (!json_is_array(list))
        return tu_fail(err, TU_ESHARD, "shard: %s is not a list of axes", what);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        const json_t *unused = name ? json_object_get(axes, name) : NULL;
        if (!unused)
            return tu_fail(err, TU_ESHARD, "shard: %s names an axis that is not in mesh",
                           what);
        if (!json_is_true(unused))
            return tu_fail(err, TU_ESHARD, "shard: axis '%.40s' is used twice", name);
        if (json_object_set_new(axes, name, json_false()))
            return tu_fail(err, TU_ENOMEM, "out of memory");
    }
    return 0;
}

static int check_place(const json_t *place, unsigned rank, json_t *axes,
                       struct tu_err *err)
{
    if (!json_is_array(place) || json_array_size(place) != rank)
        return bad(err, "shard: place is not one list of axes for each dimension");
    int rc = 0;
    for (size_t i = 0; !rc && i < rank; i++)
        rc = use_axes(json_array_get(place, i), axes, "place", err);
    return rc;
}

static int read_shard(struct tu_region *out, const json_t *shard, const uint64_t *dim,
                      unsigned rank, struct tu_err *err)
{
    const json_t *mesh = json_object_get(shard, "mesh");
    const json_t *coord = json_object_get(shard, "coord");
    const json_t *place = json_object_get(shard, "place");
    const json_t *partial = json_object_get(shard, "partial");
    if (!json_is_object(shard))
        return bad(err, "shard is not an object");
    json_t *axes = json_object();
    if (!axes)
        return tu_fail(err, TU_ENOMEM, "out of memory");
    int rc = read_box(out, shard, dim, rank, err);
    if (!rc && mesh)
        rc = check_mesh(mesh, axes, err);
    if (!rc && coord)
        rc = check_coord(coord, mesh, err);
    if (!rc && place)
        rc = check_place(place, rank, axes, err);
    if (!rc && partial)
        rc = use_axes(partial, axes, "partial", err);
    out->partial = json_array_size(partial) > 0;
    json_decref(axes);
    return rc;
}

/* flat: {"global":[…],"range":[begin,end]} of a record of shape [end - begin]. */
static int read_flat(struct tu_region *out, const json_t *flat, const uint64_t *dim,
                     unsigned rank, struct tu_err *err)
{
    const json_t *global = json_object_get(flat, "global");
    const json_t *range = json_object_get(flat, "range");
    uint64_t elements, begin, end;
    const size_t n = json_array_size(global);
    if (!json_is_object(flat) || !json_is_array(global) || n > TU_RANK_MAX)
        return bad(err, "flat without the list global of at most 64 sizes");
    for (size_t i = 0; i < n; i++)
        if (!tu_json_count(json_array_get(global, i), &out->global[i]))
            return tu_fail(err, TU_ESHARD, "flat: dimension %zu: not a count", i);
    if (tu_elements(out->global, (unsigned)n, &elements, NULL))
        return bad(err, "flat: global has 2^63 elements or more");
    if (json_array_size(range) != 2 || !tu_json_count(json_array_get(range, 0), &begin) ||
        !tu_json_count(json_array_get(range, 1), &end) || begin > end || end > elements)
        return tu_fail(err, TU_ESHARD,
                       "flat: range is not [begin,end] within %" PRIu64 " elements",
                       elements);
    if (rank != 1 || dim[0] != end - begin)
        return tu_fail(err, TU_ESHARD, "flat: the shape is not [%" PRIu64 "]",
                       end - begin);
    out->kind = TU_REGION_FLAT;
    out->rank = (unsigned)n;
    out->off[0] = begin;
    out->len[0] = end - begin;
    return 0;
}

int tui_region_read(struct tu_region *out, const json_t *meta, const uint64_t *dim,
                    unsigned rank, struct tu_err *err)
{
    const json_t *shard = json_object_get(meta, "shard");
    const json_t *flat = json_object_get(meta, "flat");
    out->kind = TU_REGION_WHOLE;
    out->partial = false;
    int rc = flat ? read_flat(out, flat, dim, rank, err) : 0;
    if (!rc && shard)
        rc = read_shard(out, shard, dim, rank, err);
    return rc;
}

int tu_region_of(struct tu_region *out, const struct tu_tensor *t, struct tu_err *err)
{
    static const struct tu_json_limits limits = {.depth = TU_JSON_DEPTH_META,
                                                 .object = true};
    json_t *meta = NULL;
    out->kind = TU_REGION_WHOLE;
    out->partial = false;
    /* Most tensors are whole: their metadata is not worth parsing. */
    if (!t->meta || !(strstr(t->meta, "\"shard\"") || strstr(t->meta, "\"flat\"")))
        return 0;
    int rc = tu_json_parse(&meta, t->meta, strlen(t->meta), &limits, err);
    if (!rc)
        rc = tui_region_read(out, meta, t->dim, t->rank, err);
    json_decref(meta);
    return rc;
}
