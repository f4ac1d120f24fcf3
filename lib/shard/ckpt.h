/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt.h: what the files of lib/shard share: lists of a checkpoint and the arithmetic of
 * fuses. */
#ifndef TU_SHARD_CKPT_H
#define TU_SHARD_CKPT_H

#include <tensorutils/shard.h>

/* The scalar that counts the optimizer's steps. */
#define TUI_STEP "optim.step"

/* Lists (roles.c, ckpt.c)
 * ------------------------------------------------------------------------ */

int tui_ckpt_new(struct tu_ckpt **out, const char *root, struct tu_err *err);

/* A file to read; the source is taken over, also on failure. */
int tui_add_source(struct tu_ckpt *c, const char *path, struct tu_source *s,
                   struct tu_coord at, uint32_t *number, struct tu_err *err);
/* A file to write. */
int tui_add_target(struct tu_ckpt *c, const char *path, const struct tu_format *format,
                   struct tu_coord at, uint32_t *number, struct tu_err *err);
/* A small file; text is copied. One that is there already stays. */
int tui_add_side(struct tu_ckpt *c, const char *name, const char *text, size_t n,
                 struct tu_err *err);
const struct tu_side *tui_side(const struct tu_ckpt *c, const char *name);
/* The small files that travel with a model, from a folder (missing folder: none). */
int tui_sides_from(struct tu_ckpt *c, const char *folder, struct tu_err *err);

/* META "files" of a stream become side files. */
int tui_sides_from_meta(struct tu_ckpt *c, const char *json, size_t n,
                        struct tu_err *err);
/* A config.json among the side files, made from the model where none travelled along. */
int tui_ensure_config(struct tu_ckpt *c, struct tu_err *err);
/* A plan that casts says so in the config.json that travels along. */
int tui_config_dtype(struct tu_ckpt *c, struct tu_err *err);
/* "bfloat16" and so on: what a plan's weights are; NULL where torch has no such word. */
const char *tui_dtype_word(const struct tu_ckpt *c);

/* Whose names, where, and what to add to the numbers in them. */
struct tui_naming {
    const struct tu_map *map; /* NULL: names are roles */
    const char *prefix;       /* only names that begin so; cut off */
    struct tu_coord at;
    int64_t layer_base, expert_base;
    /* May change what the map says (Meta's embedding). NULL: no. */
    void (*adjust)(const struct tu_ckpt *c, struct tu_named *named);
    /* May say in a tensor's metadata what box it is (tui_shard_meta). NULL: no. */
    int (*locate)(struct tu_ckpt *c, uint32_t f, struct tu_tensor *t, void *ctx,
                  struct tu_err *err);
    void *ctx;
};
/* Every tensor of file f that has the prefix becomes a piece, is dropped by the map, or
 * is an error that lists it (TU_EINCOMPLETE). */
int tui_add_pieces(struct tu_ckpt *c, uint32_t f, const struct tui_naming *n,
                   struct tu_err *err);
/* What its stream metadata says of a tensor: `shard` gives a box, `flat` a run. The rest
 * of *p stays; p->whole is NULL where it says nothing. */
int tui_region_to_piece(struct tu_ckpt *c, const struct tu_tensor *t, struct tu_piece *p,
                        struct tu_err *err);
/* A box in the arena. local may be NULL. */
const struct tu_slab *tui_slab(struct tu_ckpt *c, const uint64_t *at, const uint64_t *dim,
                             const uint64_t *local, unsigned rank, struct tu_err *err);
/* The fuse of a tensor of these whole dimensions (p->whole, else p->tensor's) that a
 * map's line names; its roles are made or compared. state NULL: weights. */
int tui_piece_fuse(struct tu_ckpt *c, struct tu_piece *p, const struct tu_named *named,
                   const char *state, uint32_t dtype, struct tu_err *err);
/* The same where no map applies: the role is the tensor by its name. */
int tui_piece_plain(struct tu_ckpt *c, struct tu_piece *p, const char *name,
                    const char *state, uint32_t dtype, struct tu_err *err);
int tui_piece_add(struct tu_ckpt *c, const struct tu_piece *p, struct tu_err *err);
/* "optim.STATE.BASE" taken apart: the state is copied to the arena; NULL where the name
 * is not one. */
int tui_state_of(struct tu_ckpt *c, const char *name, const char **state,
                 const char **base, struct tu_err *err);

/* A tensor to write in file f. */
int tui_add_target_tensor(struct tu_ckpt *c, uint32_t f, const char *name, uint32_t dtype,
                          const uint64_t *dim, unsigned rank, uint32_t *index,
                          struct tu_err *err);
/* A tensor to write that is a piece of this fuse, of these dimensions. */
int tui_add_target_piece(struct tu_ckpt *c, uint32_t f, const char *name,
                         struct tu_fuse fuse, struct tu_coord at, const uint64_t *dim,
                         struct tu_err *err);
/* The same below `stacked` more dimensions, all 1: the tensor in the file is
 * dim[stacked + rank]. */
int tui_add_target_stacked(struct tu_ckpt *c, uint32_t f, const char *name,
                           struct tu_fuse fuse, unsigned stacked, const uint64_t *dim,
                           struct tu_err *err);
/* An atom's rows on one of `ranks` ranks, cut as DTensor's Shard(0) cuts them, in file
 * `rank`: ceil(R/n) each; scalars on the first. *yes false: it has none. at[TU_RANK_MAX]
 * is where they begin. */
int tui_add_rows(struct tu_ckpt *c, uint32_t rank, uint32_t ranks, const char *name,
                 uint32_t atom, bool *yes, uint64_t *at, struct tu_err *err);
/* Say in a tensor's metadata that it is a box at `at` of a whole of these dimensions. */
int tui_shard_meta(struct tu_ckpt *c, struct tu_tensor *t, const uint64_t *at,
                   const uint64_t *whole, struct tu_err *err);
/* Bytes that stay zero. */
int tui_add_blank(struct tu_ckpt *c, uint32_t f, uint32_t index, uint64_t off, uint64_t n,
                  struct tu_err *err);
/* Errors: TU_EUSAGE where a plan's names cannot be known. */
int tui_need_family(const struct tu_ckpt *c, struct tu_err *err);
/* dtype of a role's tensors in a plan. */
uint32_t tui_plan_dtype(const struct tu_ckpt *c, uint32_t dtype);
/* The roles of the pieces become atoms, in canonical order; those not selected do not. */
int tui_make_atoms(struct tu_ckpt *c, const struct tu_shard_opts *o, struct tu_err *err);
/* A plan takes over the atoms of its source and attaches its own pieces. */
int tui_adopt_atoms(struct tu_ckpt *c, struct tu_err *err);
/* Belongs in front of the layers (embeddings), else behind (norm, head). */
bool tui_role_is_front(const char *role);

/* Sets c->scheme and c->scaled where the files' weights are quantized (scaled.c). */
void tui_find_scaled(struct tu_ckpt *c);
/* Errors: TU_EUNSUP where they are; `what` cannot be done then. */
int tui_need_plain(const struct tu_ckpt *c, const char *what, struct tu_err *err);
/* The family's canonical map, from model.family or by the names; bound to the model. */
int tui_set_canonical(struct tu_ckpt *c, const struct tu_shard_opts *o,
                      struct tu_err *err);
/* A built-in map, with the user's lines before it, bound to the model. */
int tui_load_map(struct tu_map **out, const char *name, const struct tu_model *model,
                 const struct tu_shard_opts *o, struct tu_err *err);
/* The map of a plan: a layout's own names come before the user's, which are another
 * maker's. */
int tui_target_map(struct tu_ckpt *c, const char *name, const struct tu_shard_opts *o,
                   struct tu_err *err);

/* Other names (rename.c). */
int tui_renames_new(struct tu_ckpt *c, const struct tu_shard_opts *o, struct tu_err *err);
void tui_renames_free(struct tui_renames *r);
/* The name that a tensor is to have, in the arena. Errors: TU_EUSAGE where another has it. */
int tui_new_name(struct tu_ckpt *c, const char **name, struct tu_err *err);

/* Names for one message: as many as fit, then "…"; all of them in *all (NULL: not wanted). */
struct tui_list {
    struct tu_refused *all;
    size_t n; /* how many there are */
    bool full;
    char text[176];
};
/* why: a constant text, tu_refused.why. */
int tui_list_add(struct tui_list *l, const char *why, const char *name, struct tu_err *err);
/* The family's map takes the names of weights that are selected, NULL are none; with --include
 * the family is given up where it does not (fit.c). Errors: TU_EINCOMPLETE lists the names. */
int tui_fit_family(struct tu_ckpt *c, const char *const *name, size_t n,
                   const struct tu_shard_opts *o, struct tu_err *err);
/* Warn where the names of no family would be a family's without what all begin with. */
int tui_warn_prefix(const struct tu_ckpt *c, const struct tu_job *job, struct tu_err *err);
/* Every weight that the model must have has a role (complete.c), unless c is a part or the
 * conversion that made it left the weight out: c->part then. Errors: TU_EINCOMPLETE lists those
 * that are missing. */
int tui_check_complete(struct tu_ckpt *c, struct tu_err *err);
/* Every tensor of a stage is on all its tensor- and expert-parallel ranks. Errors:
 * TU_EINCOMPLETE names tensors and a rank. */
int tui_check_ranks(const struct tu_ckpt *c, struct tu_err *err);
/* Have the roles the shapes that the configuration makes? TU_EINCOMPLETE. sizes.c. */
int tui_check_sizes(const struct tu_ckpt *c, struct tu_err *err);
/* No file holds another rank's parts (copies.c). Errors: TU_EINCOMPLETE names both files;
 * a warning where it may be so. */
int tui_check_copies(const struct tu_ckpt *c, const struct tu_job *job, struct tu_err *err);

/* What the checkpoint says that it holds (listed.c): its manifest, or a stream's META contents. */
int tui_listed_new(struct tu_ckpt *c, struct tu_err *err);
void tui_listed_free(struct tui_listed *l);
/* Is there such a list? */
int tui_listed_is_there(const struct tu_ckpt *c, bool *yes, struct tu_err *err);
/* Is there one, without this canonical name? */
int tui_listed_lacks(const struct tu_ckpt *c, const char *name, bool *yes, struct tu_err *err);
/* seen[layers] |= 2 for those of which a list there is has nothing. */
int tui_listed_layers(const struct tu_ckpt *c, unsigned char *seen, struct tu_err *err);
#define TUI_MANIFEST_MAX ((size_t)256 << 20)
typedef int (*tui_name_fn)(void *ctx, const char *name, size_t n, struct tu_err *err);
/* The names of a manifest, as they stand in it. */
int tui_manifest_names(const char *text, tui_name_fn take, void *ctx, struct tu_err *err);

/* What divides n, for messages: "1, 2, 4", as many as fit. */
void tui_divisors(uint64_t n, char out[64]);

/* Fuses (fuse.c)
 * --------------------------------------------------------------------------------- */

/* Rows and columns, before a transpose, of a tensor that fuses these roles for one of
 * `tp` ranks. Errors: TU_EUSAGE when a split does not come out even, naming what would.
 */
int tui_fuse_shape(const struct tu_ckpt *c, const struct tu_fuse *f, const char *name,
                   uint32_t tp, uint64_t pad, uint64_t *rows, uint64_t *cols,
                   struct tu_err *err);
/* Spans of role number k of the fuse, in the role's coordinates, appended. */
struct tui_slice {
    uint32_t tp, rank; /* 1, 0: whole */
    int version;       /* order of fused QKV */
    uint64_t prows;    /* rows of the piece before a transpose */
};
int tui_fuse_spans(const struct tu_ckpt *c, const struct tu_fuse *f, uint32_t number,
                   struct tui_slice slice, struct tu_spans *out, struct tu_err *err);
int tui_span_add(struct tu_spans *s, struct tu_span v, struct tu_err *err);
void tui_spans_release(struct tu_spans *s);
/* Rows of a piece that hold no role: vocabulary padding behind the last true row. */
void tui_pad_rows(const struct tu_ckpt *c, const struct tu_piece *p, uint64_t *first,
                  uint64_t *n);

/* Packed dtypes (packed.c)
 * ------------------------------------------------------------------------- */

/* tu_tensor_matrix; the columns of a packed dtype are blocks. */
void tui_matrix(const struct tu_tensor *t, uint64_t *rows, uint64_t *cols);
/* Can it be cut on its first dimension? */
bool tui_has_rows(const struct tu_tensor *t);
/* A span of a packed tensor, in elements, as one in blocks. TU_EUNSUP: it cuts one. */
int tui_span_in_blocks(struct tu_span *s, const struct tu_tensor *t, struct tu_err *err);

/* Planning (plan.c)
 * -------------------------------------------------------------------------------- */

/* An entry of a map with all its roles. */
struct tui_entry {
    const struct tu_role *lead; /* the first of them */
    const char *name;
    struct tu_fuse fuse;
    uint64_t dim[2]; /* of one tensor rank */
};
/* Where the roles of one file of a plan are: fills *here for a role's stage, chunk and
 * expert rank. */
struct tui_target_rule {
    uint32_t pad;   /* make_vocab_size_divisible_by; 0: no padding */
    bool tied_head; /* write the tied copy in the last stage */
    const char
        *prefix; /* "model": names begin "model.", with chunks "model0."; NULL: bare */
    /* As in tui_naming. */
    void (*adjust)(const struct tu_ckpt *c, struct tu_named *named);
    bool states; /* the optimizer's states too, as entries under their weights' names */
    /* Add the pieces of an entry; NULL: one on each rank of the mesh that holds it. */
    int (*place)(struct tu_ckpt *c, const struct tui_target_rule *rule,
                 const struct tui_entry *e, struct tu_err *err);
};
/* All pieces of a plan over c's mesh; file numbers are given by file_of, which `place`
 * does without. */
int tui_plan_pieces(struct tu_ckpt *c, const struct tui_target_rule *rule,
                    uint32_t (*file_of)(const struct tu_ckpt *c, struct tu_coord at),
                    struct tu_err *err);
/* Are there layers of a plan that predict further tokens? */
bool tui_has_mtp(const struct tu_ckpt *c);
/* c->stage from `layers=5+4+…` or, with NULL, evenly. TU_EUSAGE names the legal values.
 */
int tui_plan_stages(struct tu_ckpt *c, const char *layers, struct tu_err *err);
/* Number of the chunk that holds a layer. */
uint32_t tui_stage_of(const struct tu_ckpt *c, int64_t layer);

/* Layouts --------------------------------------------------------------------------- */

/* What of a model's tensors a plan leaves out: the optimizer's states. */
bool tui_is_state(const struct tu_ckpt *c, const struct tu_atom *atom);

extern const struct tu_layout tui_layout_hf, tui_layout_safetensors, tui_layout_torch,
    tui_layout_tns, tui_layout_megatron, tui_layout_meta,
    tui_layout_zero, tui_layout_universal, tui_layout_dcp, tui_layout_dcp_hf,
    tui_layout_torch_dist, tui_layout_peft, tui_layout_files;

/* Small helpers on paths. */
bool tui_is_dir(const char *path);
bool tui_is_file(const char *path);
bool tui_has_suffix(const char *path, const char *suffix);
/* For detect: how surely a path is a file of a format, by contents or, of a damaged one,
 * by name. */
int tui_is_a(const char *path, const char *format);
char *tui_join(struct tu_arena *a, const char *folder, const char *name,
               struct tu_err *err);
TU_MUST int tui_selected(const struct tu_shard_opts *o, const char *name, bool *yes,
                         struct tu_err *err);

#endif
