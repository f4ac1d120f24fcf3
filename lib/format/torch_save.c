/* SPDX-License-Identifier: Apache-2.0 */
/* torch_save.c: torch files that are written: a pickle, a storage for each tensor, a
 * version.
 *
 * They are what torch 1.13 writes, byte for byte where the object is the same, and what
 * every torch since 1.6 reads; no byteorder record means little-endian. */
#include "kit.h"
#include "pickle.h"
#include "rows.h"
#include "torch.h"

bool tui_torch_dtype_ok(uint32_t dtype)
{
    return tui_torch_dtype(dtype) != NULL;
}

/* {name: tensor, …} in the order declared. */
static struct tu_pnode *dict_of_names(struct tu_arena *a, const struct tu_save *what,
                                      struct tu_err *err)
{
    struct tu_pnode *dict = tu_pnode_new(a, TU_P_DICT, 0, err);
    for (size_t i = 0; dict && i < what->n; i++)
        if (tu_pnode_set(a, dict, what->tensor[i].name, tu_pnode_tensor(a, i, err), err) <
            0)
            return NULL;
    return dict;
}

/* The parts of the zip: data.pkl, data/0 …, version. */
static int make_parts(struct tu_arena *a, const struct tu_save *what,
                      const struct tu_buf *pickle, const size_t *order,
                      struct tui_zip_part **out, struct tu_err *err)
{
    const char *folder = what->folder_name ? what->folder_name : "archive";
    struct tui_zip_part *part = tu_arena_alloc(a, what->n + 2, sizeof *part, err);
    if (!part)
        return TU_ENOMEM;
    part[0] = (struct tui_zip_part){tu_arena_printf(a, err, "%s/data.pkl", folder),
                                    pickle->data, pickle->n, SIZE_MAX};
    for (size_t i = 0; i < what->n; i++)
        part[i + 1] = (struct tui_zip_part){
            tu_arena_printf(a, err, "%s/data/%zu", folder, i), "", 0, order[i]};
    part[what->n + 1] = (struct tui_zip_part){
        tu_arena_printf(a, err, "%s/version", folder), "3\n", 2, SIZE_MAX};
    for (size_t i = 0; i < what->n + 2; i++)
        if (!part[i].name)
            return TU_ENOMEM;
    *out = part;
    return 0;
}

int tui_torch_save(struct tu_sink **out, const char *path, const struct tu_save *what,
                   const struct tu_job *job, struct tu_err *err)
{
    struct tu_buf pickle = {0};
    struct tui_zip_part *part = NULL;
    struct tu_arena *a = tu_arena_new(err);
    size_t *order = a ? tu_arena_alloc(a, what->n + 1, sizeof *order, err) : NULL;
    const struct tu_pnode *object = what->object;
    if (order && !object)
        object = dict_of_names(a, what, err);
    int rc = TU_ENOMEM;
    if (object && order)
        rc = tui_pickle_write(&pickle, object, what->tensor, what->n, order, err);
    if (rc < 0 && err)
        tu_err_prefix(err, "%s", path);
    if (rc == 0)
        rc = make_parts(a, what, &pickle, order, &part, err);
    if (rc == 0)
        rc = tui_zip_sink_new(out, &tui_format_torch, path, part, what->n + 2,
                              what->tensor, what->n, job, err);
    tu_buf_release(&pickle);
    tu_arena_free(a);
    return rc;
}
