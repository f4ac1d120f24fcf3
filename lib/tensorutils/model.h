/* SPDX-License-Identifier: Apache-2.0 */
/* model.h: the one place that knows model families: sizes, configuration files, names.
 *
 * Roles. Each tensor of a transformer has a role, a text that does not depend on who
 * wrote the file: "layers.7.attn.v.weight", "embed.weight",
 * "layers.3.moe.experts.5.down.weight". Matrices of roles are [out, in]. A *name map*
 * (maps/NAME.map, embedded at build; or a user's file) says which names a maker gives to
 * roles and how several roles are fused into one tensor. Maps work both ways, so any
 * naming converts to any other through roles.
 *
 * Canonical names are those of the family's Hugging Face map. May change before 1.0. */
#ifndef TENSORUTILS_MODEL_H
#define TENSORUTILS_MODEL_H

#include "core.h"

TU_BEGIN

struct json_t;

#define TU_LAYERS_LISTED 512 /* layers that a list may name one by one */

/* The sizes of a decoder. 0 or false means "not known" or "none". */
struct tu_model {
    char family[32];     /* HF model_type: "llama", "mixtral", "gpt2"; "" unknown */
    uint64_t layers;
    uint64_t hidden;
    uint64_t heads;      /* query heads */
    uint64_t kv_heads;   /* query groups; = heads for MHA, 1 for MQA */
    uint64_t head_dim;
    uint64_t ffn;        /* width of the dense MLP; of one expert where there is none */
    uint64_t vocab;      /* true size, unpadded */
    uint64_t positions;  /* longest context */
    uint64_t experts;    /* routed experts per layer */
    uint64_t top_k;      /* experts per token */
    uint64_t expert_ffn;
    uint64_t shared_ffn; /* shared experts' width, together */
    uint64_t shared_experts; /* how many, where the width follows from them */
    uint64_t dense_layers;   /* the first ones, which have no experts */
    uint64_t mtp_layers;     /* behind the others, each predicts one more token in training */
    /* Kinds of layers that alternate; of config.json alone, no META and no name map has them.
     * Every n-th layer has experts, or whole attention; 0: all; and so has a layer whose bit is
     * set. The others attend to a window, or are gated delta nets: a state of [key_dim,
     * value_dim] for each head. */
    uint64_t moe_every, full_every, window;
    uint64_t moe_at[TU_LAYERS_LISTED / 64], full_at[TU_LAYERS_LISTED / 64];
    uint64_t delta_key_heads, delta_value_heads, delta_key_dim, delta_value_dim, delta_conv;
    /* Latent attention (MLA): ranks of q (0: q is whole) and of k with v, and parts of a head. */
    uint64_t q_rank, kv_rank, nope_dim, rope_dim, v_dim;
    uint64_t embed_dim;  /* of the embedding and the head, with products to hidden; 0: hidden */
    uint64_t spare_positions; /* rows of learned positions before the first */
    bool tied;           /* output head shares the embedding */
    bool norm_topk;      /* weights of the chosen experts add up to 1 */
    bool gated;          /* gate and up in the MLP */
    bool rmsnorm;        /* else LayerNorm with bias */
    bool learned_positions;
    bool qkv_bias, bias; /* bias on q, k, v; on every linear layer of attention and MLP */
    bool o_bias, mlp_bias, head_bias; /* on attention's way out; on the MLP; on the head */
    bool o_plain;        /* o_bias is not what attention_bias of a config.json speaks of */
    bool qk_norm;
    bool qk_wide;        /* that norm is over all heads, each value with a weight */
    bool qk_bare;        /* or it has no weights */
    bool q_gate;         /* of q's size, on the result of attention */
    bool shared_gate;    /* one on the shared experts */
    bool chunked;        /* windows stand side by side, they do not slide */
    bool post_norms;     /* behind attention and MLP, too */
    bool norm_one;       /* norms multiply by 1 and the weight */
    bool parallel;       /* attention and MLP stand side by side */
    bool one_norm;       /* behind one norm */
    bool bare_norms;     /* norms have no weights */
    bool embed_norm;     /* one behind the embedding */
    bool no_final_norm;
    bool sinks;          /* one for each head */
    bool rope_interleaved;
    bool rope_scaled;    /* Llama 3.1's scaling (factor 8, low 1, high 4, 8192) */
    double rope_theta;   /* 0: no rotary embedding */
    double rope_fraction;/* part of head_dim that is rotated; 0 means 1 */
    double norm_eps;
};

/* From a Hugging Face config.json text. Missing optional keys take the family's defaults.
 * Errors: TU_EMETA not JSON; TU_EFORMAT a size missing, zero or contradictory. */
TU_API TU_MUST int tu_model_from_hf(struct tu_model *m, const char *json, size_t n,
                                    struct tu_err *err);
/* How many of layers [from, to) are of each kind, by the bits of tu_layer_kind. */
enum tu_layer_kind { TU_LAYER_DENSE = 1, TU_LAYER_LOCAL = 2, TU_LAYER_KINDS = 4 };
TU_API void tu_model_kinds(const struct tu_model *m, uint64_t from, uint64_t to,
                           uint64_t count[TU_LAYER_KINDS]);
/* The vision encoder of the same text, all 0 where there is none. tokens: patches of one image;
 * 0 when the size of images is not fixed. Errors: as above. */
struct tu_vision {
    uint64_t layers, hidden, tokens;
};
TU_API TU_MUST int tu_vision_from_hf(struct tu_vision *v, const char *json, size_t n,
                                     struct tu_err *err);
/* A config.json that transformers opens, for a family that it can describe. */
TU_API TU_MUST int tu_model_to_hf(struct tu_buf *out, const struct tu_model *m, const char *dtype,
                                  struct tu_err *err);
/* META "model" of a stream, both ways. */
TU_API TU_MUST int tu_model_from_meta(struct tu_model *m, const char *json, size_t n,
                                      struct tu_err *err);
TU_API TU_MUST int tu_model_to_meta(struct tu_buf *out, const struct tu_model *m,
                                    struct tu_err *err);
/* Meta's params.json, both ways. vocab -1 there stays 0 here. */
TU_API TU_MUST int tu_model_from_params(struct tu_model *m, const char *json, size_t n,
                                        struct tu_err *err);
TU_API TU_MUST int tu_model_to_params(struct tu_buf *out, const struct tu_model *m,
                                      struct tu_err *err);
/* META "gguf" of a stream: the key-values by which llama.cpp knows the model, and the
 * tokenizer's, made of `files` (META "files": names and texts, as tokenizer.json) where they
 * tell. dtype: of most weights. *tokens, if not NULL: there is a tokenizer. Source:
 * ggml-org/llama.cpp convert_hf_to_gguf.py. Errors: TU_EUNSUP for a family that llama.cpp
 * does not know, TU_EFORMAT for a tokenizer that contradicts itself. */
TU_API TU_MUST int tu_model_to_gguf(struct tu_buf *out, const struct tu_model *m,
                                    const struct json_t *files, uint32_t dtype, bool *tokens,
                                    struct tu_err *err);
/* The same back. Errors: TU_EUNSUP for an architecture that is not known. */
TU_API TU_MUST int tu_model_from_gguf(struct tu_model *m, const char *json, size_t n,
                                      struct tu_err *err);
struct tu_source;
/* See a GGUF file, plain or in blocks, as the tensors of the family's Hugging Face files, with
 * META model and files (config.json). Takes `in` over, on failure too. Errors: TU_EUNSUP for
 * what those files hold fused or turned round. */
TU_API TU_MUST int tu_gguf_to_hf(struct tu_source **out, struct tu_source *in,
                                 struct tu_err *err);
/* The name in a GGUF file of a Hugging Face name that stands for one matrix or vector, appended;
 * *yes false for another name. */
TU_API TU_MUST int tu_gguf_name(struct tu_buf *out, const char *name, bool *yes,
                                struct tu_err *err);
/* The dtype in a GGUF file of a tensor (by role) that is `dtype` elsewhere: llama.cpp wants
 * vectors, routers and positions as f32. */
TU_API uint32_t tu_gguf_dtype(const char *role, unsigned rank, uint32_t dtype);
/* Llama 3.1's factors of the rotary frequencies, tensor rope_freqs.weight [head_dim / 2]; 0:
 * the model has none. out may be NULL. */
TU_API size_t tu_gguf_rope_freqs(const struct tu_model *m, float *out);
/* Do two describe the same tensors? TU_EINCOMPLETE names the first field that differs;
 * fields that are unknown on one side are not compared. */
TU_API TU_MUST int tu_model_same(const struct tu_model *a, const struct tu_model *b,
                                 struct tu_err *err);

/* Families ------------------------------------------------------------------------------ */

struct tu_family {
    const char *name;      /* HF model_type */
    const char *help;
    const char *hf_class;  /* architectures[0]; NULL: more is in its config.json than a
                            * tu_model knows */
    const char *hf_map;    /* name of its canonical map */
    const char *gguf_arch; /* llama.cpp's general.architecture; NULL: not known, as the next */
    const char *gguf_map;  /* name of the map of its GGUF files */
    struct tu_model base;  /* what its config.json leaves out, and what the family is */
};
TU_API extern const struct tu_family tu_families[]; /* ends with a row without a name */
TU_API const struct tu_family *tu_family_find(const char *name);
/* Are the parameters of a family's models known from config.json? Those of tu_families, and some
 * whose names no map has. */
TU_API bool tu_model_known(const char *family);
/* The family whose canonical map takes most of these names; NULL if none takes nine in
 * ten. */
TU_API const struct tu_family *tu_family_guess(const char *const *name, size_t n);

/* Name maps ----------------------------------------------------------------------------- */

/* How an entry relates to its roles; several may stand together. */
enum tu_transform {
    TU_MAP_TRANSPOSE = 1 << 0, /* the entry is [in, out] */
    TU_MAP_ROTARY = 1 << 1,    /* rows of each head in pair order: 2i+j holds role row j*d/2+i */
    TU_MAP_QKV = 1 << 2,       /* by query group: n/g heads of q, one k, one v */
    TU_MAP_CONCAT = 1 << 3,    /* roles one after the other on dim 0, each cut by itself */
    TU_MAP_COLUMN = 1 << 4,    /* tensor parallel on the role's dim 0 */
    TU_MAP_ROW = 1 << 5,       /* tensor parallel on the role's dim 1 */
    TU_MAP_VOCAB = 1 << 6,     /* column, dim 0 padded for the split */
    TU_MAP_STACK = 1 << 7,     /* [experts, …]: all experts of a layer in one entry */
    TU_MAP_DROP = 1 << 8,      /* not a weight: left out, counted */
    TU_MAP_READ = 1 << 9,      /* an older name: matched when reading, never written */
    TU_MAP_TIED = 1 << 10,     /* a copy of the embedding where the model is tied */
};

struct tu_map;

#define TU_MAP_ROLES 4

struct tu_named {
    unsigned transform;              /* TU_MAP_… */
    unsigned n;                      /* roles, 1 … TU_MAP_ROLES; 0 with TU_MAP_DROP */
    char role[TU_MAP_ROLES][128];    /* "layers.0.attn.q.weight"; '*' for the expert with STACK */
    int64_t layer, expert;           /* numbers in the role, -1 if none */
};
/* The role of one expert of a stack, "layers.3.moe.experts.5.up.weight"; any other role as
 * it is. Returns its length; where that is not below cap the text is cut. */
TU_API size_t tu_role_text(char *out, size_t cap, const char *role, uint64_t expert);

/* A built-in map by name. Errors: TU_EUSAGE naming those there are. The map is the
 * caller's. */
TU_API TU_MUST int tu_map_builtin(struct tu_map **out, const char *name, struct tu_err *err);
/* From a text: lines `PATTERN TAB TARGET TAB TRANSFORM[,…]`, '#' comments, first match
 * wins; a pattern must take the whole name. TARGET is a role with $1 … $9 and {a,b,c}
 * for several; "-" with "drop". TRANSFORM is "copy" or words of tu_transform, and
 * conditions on the model: "if-gated", "if-plain", "if-tied", "if-untied", "if-full",
 * "if-latent" (attention), "if-moe", "if-dense"; the last two are of the layer and matter only
 * for writing. "if-mtp": the number behind "mtp." is that of the name less the model's layers,
 * whose names have smaller ones. A line that can be written must
 * have a pattern that can be turned round: literals, \., captures like (\d+) or
 * (weight|bias), and (?:a|b) for its first branch. Errors: TU_EFORMAT with the line
 * number. */
TU_API TU_MUST int tu_map_parse(struct tu_map **out, const char *name, const char *text,
                                struct tu_err *err);
TU_API void tu_map_free(struct tu_map *m);
TU_API const char *tu_map_name(const struct tu_map *m);
/* Lines whose condition does not hold for this model are passed over from now on. */
TU_API void tu_map_bind(struct tu_map *m, const struct tu_model *model);
/* Move the lines of `more` before those of m (a user's --map); `more` is left empty. */
TU_API TU_MUST int tu_map_prepend(struct tu_map *m, struct tu_map *more, struct tu_err *err);
/* What `name` is; *yes false when no line takes it. layer and expert numbers are those
 * in the name plus the two bases (files of a pipeline stage count from 0). */
TU_API TU_MUST int tu_map_match(const struct tu_map *m, const char *name, int64_t layer_base,
                                int64_t expert_base, struct tu_named *out, bool *yes,
                                struct tu_err *err);
/* Position of the line that holds `role`, for ordering tensors as the maker does; *line is
 * SIZE_MAX if none does. */
TU_API TU_MUST int tu_map_line(const struct tu_map *m, const char *role, size_t *line,
                               struct tu_err *err);
/* The entry that holds `role`: its name is appended to `name`, *out is filled as by
 * tu_map_match. The bases are subtracted. *yes false when no writable line has it. */
TU_API TU_MUST int tu_map_entry(const struct tu_map *m, const char *role, int64_t layer_base,
                                int64_t expert_base, struct tu_buf *name, struct tu_named *out,
                                bool *yes, struct tu_err *err);
/* The entry that holds a second copy of the embedding where the model is tied,
 * likewise. */
TU_API TU_MUST int tu_map_tied(const struct tu_map *m, struct tu_buf *name, struct tu_named *out,
                               bool *yes, struct tu_err *err);
/* The text of a built-in map, NULL where there is none of this name. */
TU_API const char *tu_map_text(const char *name);
/* Embedded maps, for --list: NULL past the end; *help is the first comment line. */
#define TU_MAP_HELP 160
TU_API const char *tu_map_list(size_t i, char help[TU_MAP_HELP]);

TU_END

#endif
