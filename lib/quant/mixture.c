/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.c: llama.cpp's mixtures of types as a table: which role takes which type where.
 *
 * Layers come from names, not from counting tensors as they pass, so the order of a file
 * does not matter. Source: ggml-org/llama.cpp src/llama-quant.cpp, llama_tensor_get_type_impl.
 * Not for what does not fit a shape: recipe.c falls back. */
#include <string.h>
#include "mixture.h"

#define HF "(?:.*\\.)?(?:layers|h)\\.(\\d+)\\..*"

/* GGUF's names, then Hugging Face's. */
const struct tui_role_row tui_roles[TUI_ROLE_ROWS] = {
    {TUI_OUTPUT, "output", "(?:output|lm_head|embed_out)\\.weight$"},
    {TUI_EMBED, "embed",
     "(?:token_embd|(?:.*\\.)?(?:embed_tokens|wte|embed_in|word_embeddings))\\.weight$"},
    {TUI_ATTN_V, "attn_v", "blk\\.(\\d+)\\.attn_v\\.|" HF "\\bv_proj\\."},
    {TUI_ATTN_V, "attn_qkv",
     "blk\\.(\\d+)\\.attn_(?:qkv|kv_b)\\.|" HF
     "(?:qkv_proj|c_attn|query_key_value|kv_b_proj)\\."},
    {TUI_ATTN_K, "attn_k", "blk\\.(\\d+)\\.attn_k\\.|" HF "\\bk_proj\\."},
    {TUI_ATTN_Q, "attn_q", "blk\\.(\\d+)\\.attn_q\\.|" HF "\\bq_proj\\."},
    {TUI_ATTN_OUT, "attn_output",
     "blk\\.(\\d+)\\.attn_output\\.|" HF "(?:\\bo_proj|attention\\.dense|attn\\.c_proj)\\."},
    {TUI_FFN_UP, "ffn_up",
     "blk\\.(\\d+)\\.ffn_up|" HF
     "(?:\\bup_proj|experts\\.\\d+\\.w3|dense_h_to_4h|mlp\\.c_fc)\\b"},
    {TUI_FFN_GATE, "ffn_gate",
     "blk\\.(\\d+)\\.ffn_gate(?!_inp)|" HF "(?:\\bgate_proj|gate_up_proj|experts\\.\\d+\\.w1)\\b"},
    {TUI_FFN_DOWN, "ffn_down",
     "blk\\.(\\d+)\\.ffn_down|" HF
     "(?:\\bdown_proj|experts\\.\\d+\\.w2|dense_4h_to_h|mlp\\.c_proj)\\b"},
    {TUI_ANY, "expert", "blk\\.(\\d+)\\..*_exps\\.|" HF "experts\\."},
};

const char *tu_role_list(size_t i, const char **pattern)
{
    if (i >= TUI_ROLE_ROWS)
        return NULL;
    *pattern = tui_roles[i].pattern;
    return tui_roles[i].name;
}

/* Where a line holds: layers, n being their number, and conditions on the model. MORE is the
 * peer's choice of the layers that gain most: an eighth at each end, every third between. */
enum where {
    ALL,
    FIRST_2,
    FIRST_4,
    FIRST_16TH,
    FIRST_8TH,
    MORE,
    MIDDLE,
    LAYERS = 15,
    GQA = 16, /* four query heads or more to a key-value head */
    EXPERTS_4 = 32,
    EXPERTS_8 = 64, /* just eight */
    IMATRIX = 128,
    NO_IMATRIX = 256,
    EXPERT = 512, /* the tensor is an expert's */
};

struct line {
    enum tui_role role;
    unsigned where;
    const char *type;
};

#define LINES 12

/* The first line that holds wins. */
struct tui_mixture {
    const char *name, *base, *output, *help;
    int file_type;
    bool low; /* of the family that keeps its own rules for values */
    struct line line[LINES];
};

#define V     TUI_ATTN_V
#define K     TUI_ATTN_K
#define Q     TUI_ATTN_Q
#define OUT   TUI_ATTN_OUT
#define UP    TUI_FFN_UP
#define GATE  TUI_FFN_GATE
#define DOWN  TUI_FFN_DOWN
#define EMBED TUI_EMBED

/* The two kinds of the lowest: values, keys, the way down, output. */
#define LOW(value, out)                                                                  \
    {V, GQA, "q4_k"}, {V, EXPERTS_4, "q4_k"}, {V, ALL, value}, {K, EXPERTS_8, "q4_k"},    \
        {DOWN, FIRST_8TH, value}, {OUT, EXPERTS_8, "q5_k"}, {OUT, ALL, out}

static const struct tui_mixture mixtures[] = {
    {"q4_0_m", "q4_0", "q6_k", "Q4_0 with a wider output", 2, false,
     {{DOWN, FIRST_8TH | IMATRIX, "q4_1"}}},
    {"q4_1_m", "q4_1", "q6_k", "Q4_1 with a wider output", 3, false, {{0, 0, NULL}}},
    {"q5_0_m", "q5_0", "q6_k", "Q5_0 with a wider output", 8, false,
     {{DOWN, FIRST_8TH | IMATRIX, "q5_1"}}},
    {"q5_1_m", "q5_1", "q6_k", "Q5_1 with a wider output", 9, false, {{0, 0, NULL}}},
    {"q2_k_m", "q2_k", "q6_k", "Q2_K, more for attention values and the MLP's way down", 10,
     false,
     {{V, GQA, "q4_k"}, {V, ALL, "q3_k"}, {DOWN, ALL, "q3_k"}, {OUT, EXPERTS_8, "q5_k"},
      {OUT, ALL, "q3_k"}}},
    {"q2_k_s", "q2_k", "q6_k", "Q2_K, small; wants an importance matrix", 21, false,
     {{V, GQA, "q4_k"}, {DOWN, FIRST_8TH, "q4_k"}}},
    {"q3_k_s", "q3_k", "q6_k", "Q3_K, small", 11, false, {{OUT, EXPERTS_8, "q5_k"}}},
    {"q3_k_m", "q3_k", "q6_k", "Q3_K, medium", 12, false,
     {{V, FIRST_2, "q5_k"}, {V, ALL, "q4_k"}, {DOWN, FIRST_16TH, "q5_k"}, {DOWN, ALL, "q4_k"},
      {OUT, EXPERTS_8, "q5_k"}, {OUT, ALL, "q4_k"}}},
    {"q3_k_l", "q3_k", "q6_k", "Q3_K, large", 13, false,
     {{V, ALL, "q5_k"}, {DOWN, ALL, "q5_k"}, {OUT, EXPERTS_8, "q3_k"}, {OUT, ALL, "q5_k"}}},
    {"q4_k_s", "q4_k", "q6_k", "Q4_K, small", 14, false,
     {{V, FIRST_4, "q5_k"}, {DOWN, FIRST_8TH, "q5_k"}, {OUT, EXPERTS_8, "q5_k"}}},
    {"q4_k_m", "q4_k", "q6_k", "Q4_K, medium", 15, false,
     {{V, MORE, "q6_k"}, {DOWN, MORE, "q6_k"}, {OUT, EXPERTS_8, "q5_k"}}},
    {"q5_k_s", "q5_k", "q6_k", "Q5_K, small", 16, false, {{0, 0, NULL}}},
    {"q5_k_m", "q5_k", "q6_k", "Q5_K, medium", 17, false,
     {{V, MORE, "q6_k"}, {DOWN, MORE, "q6_k"}}},
    {"q6_k_m", "q6_k", "q6_k", "Q6_K, values and keys of 8 experts as Q8_0", 18, false,
     {{0, 0, NULL}}},
    {"iq4_nl_m", "iq4_nl", "q6_k", "IQ4_NL, more for values and the first layers", 25, false,
     {{V, GQA, "q5_k"}, {DOWN, FIRST_8TH | NO_IMATRIX, "q5_k"}, {OUT, EXPERTS_8, "q5_k"}}},
    {"iq4_xs_m", "iq4_xs", "q6_k", "IQ4_XS, more for values and the first layers", 30, false,
     {{V, GQA, "q5_k"}, {DOWN, FIRST_8TH | NO_IMATRIX, "q5_k"}, {OUT, EXPERTS_8, "q5_k"}}},
    {"tq1_0_m", "tq1_0", "q6_k", "TQ1_0 with wider embedding and output", 36, false,
     {{EMBED, ALL, "q4_k"}}},
    {"tq2_0_m", "tq2_0", "q6_k", "TQ2_0 with wider embedding and output", 37, false,
     {{EMBED, ALL, "q4_k"}}},
    {"q2_0_m", "q2_0", "q6_k", "Q2_0 with wider embedding and output", 41, false,
     {{EMBED, ALL, "q4_k"}}},
    {"mxfp4_moe", "q8_0", "q8_0", "experts as MXFP4, the others as Q8_0", 38, true,
     {{TUI_ANY, EXPERT, "mxfp4"}}},
    {"iq1_s_m", "iq1_s", "q5_k", "IQ1_S, for plan: its types are decoded only", 24, true,
     {LOW("q2_k", "iq2_xxs"), {EMBED, ALL, "q2_k"}}},
    {"iq1_m_m", "iq1_m", "q5_k", "IQ1_M, for plan: its types are decoded only", 31, true,
     {LOW("q2_k", "iq2_xxs"), {EMBED, ALL, "q2_k"}}},
    {"iq2_xxs_m", "iq2_xxs", "q5_k", "IQ2_XXS, for plan: its types are decoded only", 19, true,
     {LOW("q2_k", "iq2_xxs"), {EMBED, ALL, "q2_k"}}},
    {"iq2_xs_m", "iq2_xs", "q5_k", "IQ2_XS, for plan: its types are decoded only", 20, true,
     {LOW("q2_k", "iq2_xs"), {EMBED, ALL, "q2_k"}}},
    {"iq2_s_m", "iq2_xs", "q5_k", "IQ2_S, for plan: its types are decoded only", 28, true,
     {LOW("iq3_s", "iq3_s"), {EMBED, ALL, "iq3_s"}}},
    {"iq2_m_m", "iq2_s", "q5_k", "IQ2_M, for plan: its types are decoded only", 29, true,
     {LOW("iq3_s", "iq3_s"), {EMBED, ALL, "iq3_s"}}},
    {"iq3_xxs_m", "iq3_xxs", "q5_k", "IQ3_XXS, for plan: its types are decoded only", 23, false,
     {{V, GQA, "q4_k"}, {V, NO_IMATRIX, "iq3_s"}, {K, ALL, "iq2_s"}, {Q, ALL, "iq2_s"},
      {DOWN, FIRST_8TH | NO_IMATRIX, "q4_k"}, {DOWN, NO_IMATRIX, "q3_k"},
      {OUT, EXPERTS_8, "q5_k"}, {OUT, ALL, "iq3_s"}, {EMBED, ALL, "iq3_s"}}},
    {"iq3_xs_m", "iq3_s", "q6_k", "IQ3_XS, for plan: its types are decoded only", 22, false,
     {{V, GQA, "q4_k"}, {K, ALL, "iq3_xxs"}, {Q, ALL, "iq3_xxs"}, {OUT, EXPERTS_8, "q5_k"},
      {GATE, MIDDLE, "iq3_xxs"}, {UP, MIDDLE, "iq3_xxs"}}},
    {"iq3_s_m", "iq3_s", "q6_k", "IQ3_S, for plan: its types are decoded only", 26, false,
     {{V, GQA, "q4_k"}, {OUT, EXPERTS_8, "q5_k"}}},
    {"iq3_m_m", "iq3_s", "q6_k", "IQ3_M, for plan: its types are decoded only", 27, false,
     {{V, ALL, "q4_k"}, {DOWN, FIRST_8TH, "q4_k"}, {DOWN, MORE | EXPERTS_8, "q4_k"},
      {OUT, EXPERTS_8, "q5_k"}, {OUT, ALL, "q4_k"}}},
};
enum { MIXTURES = sizeof mixtures / sizeof *mixtures };

const char *tu_mixture_list(size_t i, const char **help)
{
    if (i >= MIXTURES)
        return NULL;
    *help = mixtures[i].help;
    return mixtures[i].name;
}

const struct tui_mixture *tui_mixture_find(const char *name)
{
    for (size_t i = 0; i < MIXTURES; i++)
        if (strcmp(mixtures[i].name, name) == 0)
            return &mixtures[i];
    return NULL;
}

const char *tui_mixture_name(const struct tui_mixture *m)
{
    return m->name;
}

const char *tui_mixture_base(const struct tui_mixture *m)
{
    return m->base;
}

int tui_mixture_file_type(const struct tui_mixture *m)
{
    return m->file_type;
}

static bool in_layers(unsigned where, int64_t layer, int64_t n)
{
    switch (where & LAYERS) {
    case FIRST_2: return layer < 2;
    case FIRST_4: return layer < 4;
    case FIRST_16TH: return layer < n / 16;
    case FIRST_8TH: return layer < n / 8;
    case MORE: return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
    case MIDDLE: return layer >= n / 8 && layer < 7 * n / 8;
    default: return true;
    }
}

static bool holds(const struct line *l, const struct tu_recipe_model *m,
                  const struct tui_place *at)
{
    return (l->role == at->role || l->role == TUI_ANY) &&
           in_layers(l->where, at->layer, (int64_t)m->layers) &&
           !(l->where & GQA && !(m->kv_heads && m->heads / m->kv_heads >= 4)) &&
           !(l->where & EXPERTS_4 && m->experts < 4) &&
           !(l->where & EXPERTS_8 && m->experts != 8) &&
           !(l->where & IMATRIX && !m->importance) &&
           !(l->where & NO_IMATRIX && m->importance) && !(l->where & EXPERT && !at->expert);
}

/* The output takes the same type everywhere, unless blocks of the base do not divide it. */
static const char *output_type(const struct tui_mixture *m, const struct tui_place *at)
{
    const struct tu_dtype *d = tu_dtype_named(m->base);
    return d && at->cols % d->block_elems ? "q8_0" : m->output;
}

const char *tui_mixture_choose(const struct tui_mixture *m, const struct tu_recipe_model *model,
                               const struct tui_place *at)
{
    const char *type = NULL;
    if (at->role == TUI_OUTPUT || (at->role == TUI_EMBED && model->tied))
        return output_type(m, at);
    if (!m->low && model->experts == 8 && (at->role == V || at->role == K))
        return "q8_0";
    for (const struct line *l = m->line; l < m->line + LINES && l->type && !type; l++)
        if (holds(l, model, at))
            type = l->type;
    /* Models of 80 layers share a value among 8 heads: it may be wider. */
    const char *now = type ? type : m->base;
    if (!m->low && at->role == V && model->layers == 80 && model->heads != model->kv_heads &&
        (strcmp(now, "q3_k") == 0 || strcmp(now, "q4_k") == 0))
        return "q5_k";
    return type;
}
