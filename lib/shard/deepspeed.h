/* SPDX-License-Identifier: Apache-2.0 */
/* deepspeed.h: what the ZeRO and universal layouts share: how tensor-parallel ranks are
 * cut, the optimizer's META, the folders. */
#ifndef TU_SHARD_DEEPSPEED_H
#define TU_SHARD_DEEPSPEED_H

#include <jansson.h>

#include "ckpt.h"

/* Cuts (ucp.c) ------------------------------------------------------------------------
 */

/* The rules of universal_checkpoint_info; NULL: there are none. */
struct tui_ucp;
int tui_ucp_new(struct tui_ucp **out, const struct tu_pnode *info, struct tu_err *err);
/* The user's rules (rules=FILE, universal_checkpoint_info as JSON) in the place of *info;
 * *info stays where the spec names none. */
int tui_ucp_info(struct tu_ckpt *c, const struct tu_spec *spec,
                 const struct tu_pnode **info, struct tu_err *err);
void tui_ucp_free(struct tui_ucp *u);

enum tui_cut_kind {
    TUI_CUT_WHOLE,   /* every rank has it all */
    TUI_CUT_AVERAGE, /* and the mean of the ranks is meant */
    TUI_CUT_AXIS,    /* parts one after the other on an axis, each cut by itself */
};
#define TUI_PARTS 16
struct tui_cut {
    enum tui_cut_kind kind;
    unsigned axis;
    uint32_t parts;
    const uint64_t *width; /* [parts][tp] along the axis */
    bool sub;              /* said as sub-parameters, with these sizes */
    bool halves;           /* said as two sub-parameters */
    bool vocab;
    uint64_t rows; /* of a vocabulary without padding */
};
/* How `name` is cut, whose rank r of tp has dimensions dim[r*rank …]. Errors: TU_EUSAGE
 * without rules where tp > 1, TU_EINCOMPLETE where they do not fit the sizes. */
int tui_ucp_cut(struct tu_ckpt *c, const struct tui_ucp *u, const char *name,
                const uint64_t *dim, unsigned rank, struct tui_cut *out,
                struct tu_err *err);
/* The same for a whole tensor of dimensions dim[rank] that c->tp ranks are to have; rows
 * of a vocabulary are padded to a multiple of tp. Errors: TU_EUSAGE where a part does not
 * divide. */
int tui_ucp_target(struct tu_ckpt *c, const struct tui_ucp *u, const char *name,
                   const uint64_t *dim, unsigned rank, struct tui_cut *out,
                   struct tu_err *err);
/* Only of which kind its rule is; sizes are not looked at. */
int tui_ucp_kind(struct tu_ckpt *c, const struct tui_ucp *u, const char *name,
                 unsigned rank, struct tui_cut *out, struct tu_err *err);
/* The entry of parameter_with_sub_params that takes the name, or NULL. */
struct tu_pnode *tui_ucp_sub(const struct tui_ucp *u, const char *name);
/* Dimensions of one rank of it. */
void tui_cut_dims(const struct tu_ckpt *c, const struct tui_cut *cut, uint32_t r,
                  const uint64_t *dim, unsigned rank, uint64_t *out);
/* Give the piece, which is tensor rank p->at.tp of the whole, its boxes. */
int tui_cut_piece(struct tu_ckpt *c, const struct tui_cut *cut, const uint64_t *dim,
                  struct tu_piece *p, struct tu_err *err);

/* The optimizer (optim.c) ---------------------------------------------------------------
 */

/* Values of a pickle as JSON: numbers, texts, truth, None, lists, dictionaries of texts;
 * *out is NULL for others. */
int tui_json_of(json_t **out, const struct tu_pnode *node, struct tu_err *err);
/* And back. */
struct tu_pnode *tui_pnode_of(struct tu_arena *a, const json_t *v, struct tu_err *err);
/* A call of a global with these arguments (a TUPLE). */
struct tu_pnode *tui_pnode_call(struct tu_arena *a, const char *name,
                                struct tu_pnode *args, struct tu_err *err);
/* torch.Size. */
struct tu_pnode *tui_pnode_size(struct tu_arena *a, const uint64_t *dim, unsigned rank,
                                struct tu_err *err);
/* An empty OrderedDict. */
struct tu_pnode *tui_pnode_ordered(struct tu_arena *a, struct tu_err *err);
/* Take META "optim" over. */
int tui_set_optim(struct tu_ckpt *c, const json_t *optim, struct tu_err *err);
/* What is known, as an object (json_decref). */
int tui_get_optim(const struct tu_ckpt *c, json_t **out, struct tu_err *err);
/* One step count for all: the first is kept as the scalar TUI_STEP, another must be
 * equal. `where` is for the message. */
int tui_set_step(struct tu_ckpt *c, double step, const char *where, struct tu_err *err);
/* The number of steps; 0 where there is none. */
int tui_get_step(const struct tu_ckpt *c, double *out, struct tu_err *err);

/* A plan's parameters (params.c) --------------------------------------------------------
 */

/* A tensor of the source with its optimizer states. */
struct tui_param {
    const char *name;
    uint32_t atom;         /* of the weight */
    const uint32_t *state; /* [states] atoms, UINT32_MAX: there is none */
};
struct tui_group {
    struct tui_param *param;
    size_t n;
    const json_t *settings;
};
/* What a plan of partitions is made of, in the order that the optimizer knows. */
struct tui_params {
    json_t *optim;
    struct tui_group *group;
    size_t groups;
    struct tui_param *rest; /* frozen parameters, then buffers */
    size_t frozen, buffers;
    const char **state; /* [states]; the first is fp32 */
    size_t states;
    double step;
};
/* Errors: TU_EUSAGE where the order of parameters is not known. order: a file of names, a
 * blank line between groups; NULL: the source's own. */
int tui_params_new(struct tui_params *out, struct tu_ckpt *c, const char *order,
                   struct tu_err *err);
void tui_params_release(struct tui_params *p);

/* Folders (zero_files.c) ----------------------------------------------------------------
 */

/* A file with one layer of a pipeline or one expert of a layer. */
#define TUI_NO_EXPERT UINT32_MAX
struct tui_zero_part {
    uint32_t layer, expert, tp, file;
};
/* The files of a tag's folder: of model-parallel rank m and data-parallel rank d. */
struct tui_zero {
    const char *folder; /* absolute or as given */
    uint32_t mp, dp, tp;
    bool partitioned; /* stage 3: weights are in partitions too */
    bool universal; /* states are not in partitions but in a folder for each parameter */
    const char *latest; /* the file beside that names the folder */
    uint32_t
        settings; /* of universal: the file of the optimizer's settings, or UINT32_MAX */
    uint32_t *model; /* [mp] numbers of files; [mp*dp] where partitioned */
    uint32_t *optim; /* [mp*dp]; UINT32_MAX: there is none */
    struct tui_zero_part *part; /* [parts] in the order of layers, experts, ranks */
    size_t parts;
    const struct tu_pnode *info; /* universal_checkpoint_info; NULL: none */
    struct tui_ucp *ucp;
};
/* Find and open them. Errors: TU_EINCOMPLETE names the ranks that are missing. */
int tui_zero_files(struct tu_ckpt *c, const struct tu_spec *spec,
                   const struct tu_shard_opts *o, const struct tu_job *job,
                   struct tui_zero *z, struct tu_err *err);
/* Is there such a folder here? TU_EIO, TU_ENOMEM: it cannot be said. */
int tui_zero_is(const char *path);
const struct tu_pnode *tui_file_root(const struct tu_ckpt *c, uint32_t f);
/* The folder that a text file beside it names, with `suffix` or not; c->root itself where
 * there is no such file. */
int tui_tag_folder(struct tu_ckpt *c, const char *latest, const char *tag,
                   const char **folder, struct tu_err *err);

#endif
