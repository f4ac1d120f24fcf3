/* SPDX-License-Identifier: Apache-2.0 */
/* opts.c: the options of the operator, and what they come to. */
#include <math.h>
#include <string.h>
#include <tensorutils/coll.h>
#include "fa-run/fa.h"

struct fa_opts fa_opts = {.op = "softmax",
                          .layout = "bshd",
                          .scale = NAN,
                          .softcap = INFINITY,
                          .causal = -1,
                          .sliding = -1,
                          .layer = -1,
                          .ranks = 2,
                          .transport = "shm"};

static const char *const passes[] = {"fwd", "bwd", "both", NULL};
static const char *const causals[] = {"br", "tl", "none", NULL};

const struct tu_opt fa_shared[] = {
    {0, "op", "OP", "operator; --list=ops shows them; default softmax", TU_OPT_STRING,
     &fa_opts.op, NULL, 0},
    {0, "algo", "ALGO", "form of the operator; --list=algos shows them", TU_OPT_STRING,
     &fa_opts.algo, NULL, 0},
    {0, "pass", NULL, "which pass; default fwd", TU_OPT_CHOICE, &fa_opts.pass, passes, 0},
    {0, "layout", "bshd|bhsd|thd", "order of the dimensions; default bshd", TU_OPT_STRING,
     &fa_opts.layout, NULL, 0},
    {0, "layer", NULL, "q, k and v are the records q.N, kv.N.k and kv.N.v", TU_OPT_I64,
     &fa_opts.layer, NULL, 0},
    {0, "scale", NULL, "factor of q·k; default 1/sqrt(head dimension)", TU_OPT_DOUBLE,
     &fa_opts.scale, NULL, 0},
    {0, "causal", NULL, "hide later keys; br aligns the ends of q and k, tl their starts",
     TU_OPT_CHOICE, &fa_opts.causal, causals, TU_OPT_MAYBE},
    {0, "window", "L,R", "keys from L before to R after the query; -1: no limit",
     TU_OPT_I64, &fa_opts.window, NULL, TU_OPT_LIST},
    {0, "sliding-window", NULL,
     "the same as --window W-1,0: a model's window counts the query's key", TU_OPT_I64,
     &fa_opts.sliding, NULL, 0},
    {0, "sink-tokens", NULL, "the first N keys stay visible despite a left bound",
     TU_OPT_U64, &fa_opts.sink_tokens, NULL, 0},
    {0, "chunk", NULL, "causal within chunks of N keys", TU_OPT_U64, &fa_opts.chunk, NULL,
     0},
    {0, "alibi", NULL, "default slopes, where no alibi_slopes are given", TU_OPT_FLAG,
     &fa_opts.alibi, NULL, 0},
    {0, "softcap", NULL, "C of C·tanh(x/C)", TU_OPT_DOUBLE, &fa_opts.softcap, NULL, 0},
    {0, "dropout", NULL, "probability; which elements follows from --seed alone",
     TU_OPT_DOUBLE, &fa_opts.dropout, NULL, 0},
    {0, "v-from-k", NULL, "v is the first N columns of k, as MLA's latent", TU_OPT_U64,
     &fa_opts.v_from_k, NULL, 0},
    {0, "mask-block", "BQ,BK",
     "queries and keys of a block of block_mask; default: from the shapes", TU_OPT_U64,
     &fa_opts.mask_block, NULL, TU_OPT_LIST},
    {0, "rope", "THETA,DIM[,interleaved]",
     "turn the first DIM columns of q and k by their positions", TU_OPT_STRING,
     &fa_opts.rope, NULL, 0},
    {0, "decay", NULL, "linear: the state fades by exp(-X) per step", TU_OPT_DOUBLE,
     &fa_opts.decay, NULL, 0},
    {0, "decay-slopes", NULL, "linear: X is the default slope of the head", TU_OPT_FLAG,
     &fa_opts.decay_slopes, NULL, 0},
    {0, "bidirectional", NULL, "linear: without causality", TU_OPT_FLAG,
     &fa_opts.bidirectional, NULL, 0},
    {0, "steps", NULL, "steps of a chunk of the chunked forms; 0: the form's choice",
     TU_OPT_U64, &fa_opts.steps, NULL, 0},
    {0, "dtype", "COMPUTE[:STORE]", "f32 or bf16 products; dtype of the results",
     TU_OPT_STRING, &fa_opts.dtype, NULL, 0},
    {0, "cast", NULL, "q, k and v of different dtypes become f32", TU_OPT_FLAG,
     &fa_opts.cast, NULL, 0},
    {0, "splits", NULL, "parts of the keys; 0: from the shape", TU_OPT_U64,
     &fa_opts.splits, NULL, 0},
    {0, "block", "BR,BC", "queries and keys of a tile; default: the kernel's choice",
     TU_OPT_U64, &fa_opts.block, NULL, TU_OPT_LIST},
    {0, "deterministic", NULL, "the same bits for any --splits", TU_OPT_FLAG,
     &fa_opts.deterministic, NULL, 0},
    {0, "sp", "SCHEME[:KEY=VALUE,...]", "sequence parallel over --ranks; --list=schemes shows them",
     TU_OPT_STRING, &fa_opts.sp, NULL, 0},
    {0, "ranks", NULL, "processes for --sp; default 2", TU_OPT_U64, &fa_opts.ranks, NULL,
     0},
    {0, "transport", "TRANSPORT", "how they talk; --list=transports shows them; default shm",
     TU_OPT_STRING, &fa_opts.transport, NULL, 0},
    {0, "strict", NULL, "an input with NaN or Inf is an error", TU_OPT_FLAG,
     &fa_opts.strict, NULL, 0},
    {0},
};

static const char *op_row(size_t i, const char **help)
{
    if (!tu_mixers[i])
        return NULL;
    *help = tu_mixers[i]->help;
    return tu_mixers[i]->name;
}

static const char *algo_row(size_t i, const char **help)
{
    for (size_t m = 0; tu_mixers[m]; m++)
        for (size_t k = 0; tu_mixers[m]->algo[k]; k++)
            if (i-- == 0) {
                *help = tu_mixers[m]->name;
                return tu_mixers[m]->algo[k];
            }
    return NULL;
}

static const char *scheme_row(size_t i, const char **help)
{
    if (!tu_sps[i])
        return NULL;
    *help = tu_sps[i]->help;
    return tu_sps[i]->name;
}

static const char *transport_row(size_t i, const char **help)
{
    if (!tu_transports[i])
        return NULL;
    *help = tu_transports[i]->help;
    return tu_transports[i]->name;
}

const struct tu_listing fa_listings[] = {
    {"ops", "operators", op_row, NULL},
    {"algos", "forms of the operators", algo_row, NULL},
    {"schemes", "schemes of sequence parallelism", scheme_row, NULL},
    {"transports", "transports between ranks", transport_row, NULL},
    {0},
};

static int layout_of(const char *text, int *out, struct tu_err *err)
{
    static const char *const name[] = {"bshd", "bhsd", "thd"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, name[i])) {
            *out = i;
            return 0;
        }
    return tu_fail(err, TU_EUSAGE, "--layout: '%.40s' is not bshd, bhsd or thd", text);
}

static int dtypes_of(const char *text, struct tu_attn_opts *o, struct tu_err *err)
{
    char compute[16] = "";
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    if (n < sizeof compute)
        memcpy(compute, text, n);
    const struct tu_dtype *c = tu_dtype_called(compute),
                          *s = colon ? tu_dtype_called(colon + 1) : c;
    if (n && (!c || (c->code != TU_F32 && c->code != TU_BF16)))
        return tu_fail(err, TU_EUSAGE,
                       "--dtype: products are in f32 or bf16, not '%.40s'", text);
    if (colon && (!s || !tu_dtype_is_float(s->code) || !tu_dtype_is_plain(s->code)))
        return tu_fail(err, TU_EUSAGE, "--dtype: '%.40s' is no plain float dtype",
                       colon + 1);
    o->compute = n ? c->code : 0;
    o->store = colon ? s->code : 0;
    return 0;
}

/* Two numbers, or neither. */
static int pair_of(const struct tu_list *l, const char *name, uint64_t out[2],
                   struct tu_err *err)
{
    if (l->n != 0 && l->n != 2)
        return tu_fail(err, TU_EUSAGE, "--%s takes two numbers", name);
    for (size_t i = 0; i < l->n; i++)
        out[i] = TU_LIST(l, uint64_t)[i];
    return 0;
}

static int window_of(struct tu_attn_opts *o, struct tu_err *err)
{
    const struct tu_list *l = &fa_opts.window;
    if (l->n != 0 && l->n != 2)
        return tu_fail(err, TU_EUSAGE, "--window takes two numbers: left and right");
    if (l->n) {
        o->left = TU_LIST(l, int64_t)[0];
        o->right = TU_LIST(l, int64_t)[1];
    }
    if (fa_opts.sliding == -1)
        return 0;
    if (fa_opts.sliding < 1)
        return tu_fail(err, TU_EUSAGE, "--sliding-window must be at least 1");
    o->left = fa_opts.sliding - 1;
    o->right = 0;
    return 0;
}

int fa_rope(struct fa_segment *s, const struct tu_attn_opts *o, struct tu_err *err)
{
    char text[64], *dim, *kind;
    double theta;
    uint64_t n;
    const struct tu_operand *q = tu_operand_find(s->op, s->n, "q"),
                            *k = tu_operand_find(s->op, s->n, "k");
    if (!fa_opts.rope || !q || !k)
        return 0;
    size_t len = strlen(fa_opts.rope), axis = o->layout == TU_ATTN_BHSD ? 2 : 1;
    memcpy(text, fa_opts.rope, len < sizeof text ? len + 1 : sizeof text);
    text[sizeof text - 1] = '\0';
    if (!(dim = strchr(text, ',')))
        return tu_fail(err, TU_EUSAGE, "--rope takes THETA,DIM");
    *dim++ = '\0';
    if ((kind = strchr(dim, ',')))
        *kind++ = '\0';
    if (kind && strcmp(kind, "interleaved"))
        return tu_fail(err, TU_EUSAGE, "--rope: '%s' is not interleaved", kind);
    int code = tu_parse_double(text, &theta, err);
    if (code || (code = tu_parse_u64(dim, &n, err))) {
        tu_err_prefix(err, "--rope");
        return code;
    }
    if (q->rank != 4 || k->rank != 4)
        return tu_fail(err, TU_EUSAGE, "--rope needs tensors of 4 dimensions");
    int64_t off = o->placed ? o->q_first : (int64_t)k->dim[axis] - (int64_t)q->dim[axis];
    code = tu_rope(q, o->layout, theta, n, kind != NULL, NULL, off, err);
    return code ? code
                : tu_rope(k, o->layout, theta, n, kind != NULL, NULL,
                          o->placed ? o->k_first : 0, err);
}

int fa_resolve(struct tu_ctx *ctx, const struct tu_mixer **row, struct tu_attn_opts *o,
               struct tu_err *err)
{
    uint64_t tile[2] = {0, 0}, block[2] = {0, 0};
    int code;
    *row = tu_mixer_find(fa_opts.op);
    if (!*row)
        return tu_fail(err, TU_EUSAGE, "--op: there is no operator '%.40s'", fa_opts.op);
    size_t i = 0;
    while (fa_opts.algo && (*row)->algo[i] && strcmp((*row)->algo[i], fa_opts.algo))
        i++;
    if (!(*row)->algo[i])
        return tu_fail(err, TU_EUSAGE, "--algo: %s has no form '%.40s'", (*row)->name,
                       fa_opts.algo);
    tu_attn_opts_init(o);
    if ((code = layout_of(fa_opts.layout, &o->layout, err)) ||
        (code = window_of(o, err)) ||
        (code = pair_of(&fa_opts.block, "block", tile, err)) ||
        (code = pair_of(&fa_opts.mask_block, "mask-block", block, err)) ||
        (fa_opts.dtype && (code = dtypes_of(fa_opts.dtype, o, err))))
        return code;
    if (fa_opts.layer < -1)
        return tu_fail(err, TU_EUSAGE, "--layer must be at least 0");
    if (!(fa_opts.softcap > 0))
        return tu_fail(err, TU_EUSAGE, "--softcap must be above 0");
    static const int causal[] = {TU_CAUSAL_BR, TU_CAUSAL_TL, TU_CAUSAL_NONE};
    o->causal = fa_opts.causal < 0 ? TU_CAUSAL_NONE : causal[fa_opts.causal];
    o->scale = fa_opts.scale;
    o->sink_tokens = fa_opts.sink_tokens;
    o->chunk = fa_opts.chunk;
    o->alibi = fa_opts.alibi;
    o->softcap = isinf(fa_opts.softcap) ? 0 : fa_opts.softcap;
    o->dropout = fa_opts.dropout;
    o->seed = ctx->seed;
    o->decay = fa_opts.decay;
    o->decay_slopes = fa_opts.decay_slopes;
    o->bidirectional = fa_opts.bidirectional;
    o->block = fa_opts.steps;
    o->mask_q = block[0];
    o->mask_k = block[1];
    o->v_from_k = fa_opts.v_from_k;
    o->splits = fa_opts.splits;
    o->tile_q = tile[0];
    o->tile_k = tile[1];
    o->deterministic = fa_opts.deterministic;
    return 0;
}
