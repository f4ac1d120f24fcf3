/* SPDX-License-Identifier: Apache-2.0 */
/* hf.c: the Hugging Face folder: model.safetensors or shards with an index, small files
 * beside.
 *
 * A folder of the hub cache (models--ORG--NAME) stands for the snapshot that refs/main
 * names. */

#include <stdio.h>
#include <string.h>

#include "single.h"

static bool has_weights(const char *path)
{
    static const char *const name[] = {
        "model.safetensors.index.json", "model.safetensors",
        "pytorch_model.bin.index.json", "pytorch_model.bin", NULL};
    char full[4096];
    for (const char *const *n = name; *n; n++)
        if (snprintf(full, sizeof full, "%s/%s", path, *n) < (int)sizeof full &&
            tui_is_file(full))
            return true;
    return false;
}

/* An index stands for the folder that it lies in. */
static bool is_index(const char *path)
{
    return tui_is_file(path) && (tui_has_suffix(path, ".safetensors.index.json") ||
                                 tui_has_suffix(path, ".bin.index.json"));
}

static int hf_detect(const char *path)
{
    char ref[4096];
    if (!tui_is_dir(path))
        return is_index(path) ? 90 : 0;
    snprintf(ref, sizeof ref, "%s/refs/main", path);
    return has_weights(path) ? 90 : tui_is_file(ref) ? 60 : 0;
}

static int hf_open(struct tu_ckpt *c, const struct tu_spec *spec,
                   const struct tu_shard_opts *o, const struct tu_job *job,
                   struct tu_err *err)
{
    char *folder;
    (void)spec;
    int rc = tu_hf_snapshot(&folder, c->root, err);
    if (!rc)
        rc = tui_add_one(c, folder, "", tu_format_find("hf"), o, job, err);
    if (!rc && is_index(folder)) { /* its folder: "." for a bare name */
        char *slash = strrchr(folder, '/');
        if (slash)
            slash[slash == folder] = 0;
        else
            memcpy(folder, ".", 2);
    }
    if (!rc)
        rc = tui_sides_from(c, folder, err);
    tu_free(folder);
    if (!rc)
        rc = tui_know_model(c, o, err);
    return rc ? rc : tui_add_all(c, o, err);
}

/* Sizes of the tensors as written, the tied copy last. */
static uint64_t *target_sizes(const struct tu_ckpt *c, size_t n, struct tu_err *err)
{
    uint64_t *bytes = tu_calloc(n + 1, sizeof *bytes, err);
    for (size_t a = 0; bytes && a < n; a++) {
        const struct tu_tensor *t = &c->from->atom[a].tensor;
        if (tu_tensor_bytes(tui_plan_dtype(c, t->dtype), t->dim, t->rank, &bytes[a],
                            err)) {
            tu_free(bytes);
            return NULL;
        }
    }
    return bytes;
}

static int hf_index(struct tu_ckpt *c, const char *const *path, struct tu_err *err)
{
    struct tu_tensor *tensor = tu_alloc(c->pieces, sizeof *tensor, err);
    uint32_t *of = tensor ? tu_alloc(c->pieces, sizeof *of, err) : NULL;
    struct tu_buf b = {0};
    int rc = of ? 0 : TU_ENOMEM;
    for (size_t i = 0; i < c->pieces && !rc; i++) {
        tensor[i] = c->piece[i].tensor;
        of[i] = c->piece[i].file;
    }
    if (!rc)
        rc = tu_hf_index(&b, tensor, c->pieces, of, path, err);
    if (!rc)
        rc = tui_add_side(c, "model.safetensors.index.json", b.data, b.n, err);
    tu_buf_release(&b);
    tu_free(tensor);
    tu_free(of);
    return rc;
}

static int hf_plan(struct tu_ckpt *c, const struct tu_spec *spec,
                   const struct tu_shard_opts *o, struct tu_err *err)
{
    size_t n = tui_weights(c->from); /* states have no place here */
    uint64_t max = o && o->max_shard ? o->max_shard : UINT64_C(5000000000);
    uint64_t *bytes = target_sizes(c, n, err);
    uint32_t *file = bytes ? tu_calloc(n + 1, sizeof *file, err) : NULL;
    const char **path = NULL;
    int rc = file ? 0 : TU_ENOMEM;
    (void)spec;
    size_t files = rc || !n ? !rc : tu_hf_shards(bytes, n, max, file);
    if (!rc)
        file[n] = (uint32_t)files - 1;
    if (!rc && !(path = tu_calloc(files, sizeof *path, err)))
        rc = TU_ENOMEM;
    for (size_t f = 0; f < files && !rc; f++) {
        uint32_t number;
        path[f] = files == 1
                      ? "model.safetensors"
                      : tu_arena_printf(c->arena, err, "model-%05zu-of-%05zu.safetensors",
                                        f + 1, files);
        rc = path[f] ? tui_add_target(c, path[f], tu_format_find("safetensors"),
                                      (struct tu_coord){0}, &number, err)
                     : TU_ENOMEM;
    }
    if (!rc)
        rc = tui_plan_atoms(c, file, n, o && o->tied_copy, err);
    if (!rc)
        rc = tui_pt_metas(c, o && o->tied_copy, err);
    if (!rc && files > 1)
        rc = hf_index(c, path, err);
    if (!rc)
        rc = tui_ensure_config(c, err);
    tu_free(bytes);
    tu_free(file);
    tu_free(path);
    return rc;
}

const struct tu_layout tui_layout_hf = {
    .name = "hf",
    .help = "Hugging Face folder: model.safetensors or shards with an index, config.json "
            "beside",
    .key = tui_no_keys,
    .detect = hf_detect,
    .open = hf_open,
    .plan = hf_plan,
    .configured = true,
    .side_folder = "",
};
