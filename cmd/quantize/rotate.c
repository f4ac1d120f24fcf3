/* SPDX-License-Identifier: Apache-2.0 */
/* quantize rotate: orthogonal rotations by Hadamard's matrices, which spread outliers over
 * all columns.
 *
 * The stream of hidden states h between layers becomes R·h and that of each head S·v: what
 * reads them is multiplied by the inverse, what writes them by the matrix, and the norms'
 * weights go into what reads their outputs, so that the model computes the same. Source: S.
 * Ashkboos et al., "QuaRot", 2024. Or rows alone, for activations.
 *
 * A tensor is in memory while it is rotated. */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>
#include "quantize/coded.h"
#include "quantize/coder.h"
#include "quantize/target.h"
#include "tensorutils/quant/calib.h"

enum { OF_HIDDEN, OF_HEADS, OF_MODEL, OF_ROWS };
static const char *const ofs[] = {"hidden", "heads", "model", "rows", NULL};

static struct {
    int of;
    bool random, back;
    uint32_t dtype;
} opt = {.of = OF_MODEL};

/* What a role has to do with the rotated vectors. */
enum side {
    READS = 1,      /* its columns are a hidden state's */
    WRITES = 2,     /* its rows */
    NORM = 4,       /* becomes ones, the weights go into its readers */
    HEADS_OUT = 8,  /* its rows are heads' values */
    HEADS_IN = 16,  /* its columns */
};

static const struct {
    const char *role; /* as of fnmatch */
    unsigned side;
    const char *norm; /* READS: the norm before, in its layer or (without one) the model */
} roles[] = {
    {"embed.weight", READS, NULL},
    {"head.weight", READS, "norm"},
    {"norm.weight", NORM, NULL},
    {"layers.*.attn_norm.weight", NORM, NULL},
    {"layers.*.mlp_norm.weight", NORM, NULL},
    {"layers.*.attn.[qk].weight", READS, "attn_norm"},
    {"layers.*.attn.[qk].bias", 0, NULL},
    {"layers.*.attn.[qk]_norm.weight", 0, NULL},
    {"layers.*.attn.v.weight", READS | HEADS_OUT, "attn_norm"},
    {"layers.*.attn.v.bias", HEADS_OUT, NULL},
    {"layers.*.attn.o.weight", WRITES | HEADS_IN, NULL},
    {"layers.*.attn.o.bias", WRITES, NULL},
    {"layers.*.mlp.gate.weight", READS, "mlp_norm"},
    {"layers.*.mlp.up.weight", READS, "mlp_norm"},
    {"layers.*.mlp.gate.bias", 0, NULL},
    {"layers.*.mlp.up.bias", 0, NULL},
    {"layers.*.mlp.down.*", WRITES, NULL},
    {"layers.*.moe.router.weight", READS, "mlp_norm"},
    {"layers.*.moe.shared_gate.weight", READS, "mlp_norm"},
    {"layers.*.moe.*.gate.weight", READS, "mlp_norm"},
    {"layers.*.moe.*.up.weight", READS, "mlp_norm"},
    {"layers.*.moe.*.down.weight", WRITES, NULL},
};
enum { ROLES = sizeof roles / sizeof *roles };

struct run {
    struct tu_ctx *ctx;
    struct input in;
    struct target target;
    struct tu_map *map; /* NULL: rows alone */
    uint64_t heads, head_dim;
};

/* Linear algebra ---------------------------------------------------------------------------- */

/* rows of n, each times the matrix. */
static int turn(float *x, uint64_t rows, uint64_t n, struct run *r, struct tu_err *err)
{
    return tu_rotate(x, rows, n, opt.random, r->ctx->seed, opt.back, err);
}

/* Columns of x [stack, rows, cols] in runs of n rows, each times the matrix. */
static int turn_columns(float *x, uint64_t stack, uint64_t rows, uint64_t cols, uint64_t n,
                        struct run *r, struct tu_err *err)
{
    float *t = tu_alloc((size_t)(rows * cols), sizeof *t, err);
    int rc = t ? 0 : TU_ENOMEM;
    for (uint64_t k = 0; !rc && k < stack; k++, x += rows * cols) {
        for (uint64_t i = 0; i < rows; i++)
            for (uint64_t j = 0; j < cols; j++)
                t[j * rows + i] = x[i * cols + j];
        rc = turn(t, cols * (rows / n), n, r, err);
        for (uint64_t i = 0; !rc && i < rows; i++)
            for (uint64_t j = 0; j < cols; j++)
                x[i * cols + j] = t[j * rows + i];
    }
    tu_free(t);
    return rc;
}

/* Columns times the weights of the norm before. */
static int take_norm(float *x, uint64_t rows, uint64_t cols, const char *norm, int64_t layer,
                     struct run *r, struct tu_err *err)
{
    struct tu_source *s = (struct tu_source *)(uintptr_t)tu_feed_source(r->in.feed);
    struct tu_buf name = {0};
    struct tu_named named;
    char role[64];
    bool yes = false;
    if (layer >= 0)
        snprintf(role, sizeof role, "layers.%" PRId64 ".%s.weight", layer, norm);
    else
        snprintf(role, sizeof role, "%s.weight", norm);
    int rc = tu_map_entry(r->map, role, 0, 0, &name, &named, &yes, err);
    const size_t i = yes && !rc ? tu_source_find(s, name.data) : SIZE_MAX;
    const struct tu_tensor *t = i == SIZE_MAX ? NULL : &s->tensor[i];
    tu_buf_release(&name);
    if (!rc && (!t || t->rank != 1 || t->dim[0] != cols))
        rc = tu_fail(err, TU_EUSAGE, "its norm (%s) is not there, or of another size", role);
    if (rc)
        return rc;
    float *w = tu_alloc((size_t)cols, sizeof *w, err);
    unsigned char *raw = w ? tu_alloc((size_t)t->bytes, 1, err) : NULL;
    rc = raw ? tu_source_read(s, i, 0, raw, (size_t)t->bytes, err) : TU_ENOMEM;
    if (!rc)
        rc = tu_to_float(t->dtype, raw, w, (size_t)cols, err);
    for (uint64_t k = 0; !rc && k < rows * cols; k++)
        x[k] *= w[k % cols];
    tu_free(raw);
    tu_free(w);
    return rc;
}

/* Tensors ----------------------------------------------------------------------------------- */

static int turn_heads(float *x, unsigned side, uint64_t rows, uint64_t cols, struct run *r,
                      struct tu_err *err)
{
    const uint64_t n = r->head_dim, all = side & HEADS_IN ? cols : rows;
    if (!n || all % n)
        return tu_fail(err, TU_EUSAGE,
                       "heads of %" PRIu64 " do not divide %" PRIu64 ", or are not known", n, all);
    return side & HEADS_IN ? turn(x, rows * (cols / n), n, r, err)
                           : turn_columns(x, 1, rows, cols, n, r, err);
}

/* x by its role; a vector is one column. */
static int turn_role(float *x, size_t role, int64_t layer, struct run *r, struct tu_err *err)
{
    const struct tu_tensor *t = &r->in.tensor;
    const unsigned side = roles[role].side;
    const bool hidden = opt.of != OF_HEADS;
    const uint64_t cols = t->rank > 1 ? t->dim[t->rank - 1] : 1;
    const uint64_t rows = t->rank > 1 ? t->dim[t->rank - 2] : t->dim[0];
    const uint64_t stack = t->rank > 2 ? t->dim[0] : 1;
    int rc = 0;
    if (t->rank < 1 || t->rank > 3)
        return tu_fail(err, TU_EUSAGE, "%u dimensions", (unsigned)t->rank);
    if (hidden && side & NORM)
        for (uint64_t i = 0; i < rows; i++)
            x[i] = 1;
    if (hidden && side & READS && roles[role].norm)
        rc = take_norm(x, stack * rows, cols, roles[role].norm, layer, r, err);
    if (!rc && opt.of != OF_HIDDEN && side & (HEADS_OUT | HEADS_IN))
        rc = turn_heads(x, side, rows, cols, r, err);
    if (!rc && hidden && side & READS)
        rc = turn(x, stack * rows, cols, r, err);
    if (!rc && hidden && side & WRITES)
        rc = turn_columns(x, stack, rows, cols, rows, r, err);
    return rc;
}

/* The row of the tensor's role; SIZE_MAX for what is no weight. All roles of an entry must
 * be on the same side. */
static int find_role(struct run *r, size_t *out, int64_t *layer, struct tu_err *err)
{
    const char *name = r->in.tensor.name;
    struct tu_named named;
    bool yes;
    int rc = tu_map_match(r->map, name, 0, 0, &named, &yes, err);
    *out = SIZE_MAX;
    if (rc || (yes && !named.n))
        return rc;
    const bool plain = yes && !(named.transform & (TU_MAP_TRANSPOSE | TU_MAP_QKV | TU_MAP_TIED));
    *layer = yes ? named.layer : -1;
    for (size_t k = 0; plain && k < ROLES; k++) {
        bool all = true;
        for (unsigned i = 0; i < named.n; i++)
            all &= fnmatch(roles[k].role, named.role[i], 0) == 0 ||
                   (fnmatch("*.gate.weight", roles[k].role, 0) == 0 && i &&
                    fnmatch("*.up.weight", named.role[i], 0) == 0);
        if (all) {
            *out = k;
            return 0;
        }
    }
    return tu_fail(err, TU_EUSAGE, "what it does in the model is not known%s%s",
                   yes ? ": " : "", yes ? named.role[0] : "");
}

static int emit(struct run *r, const float *x, uint64_t n, struct tu_err *err)
{
    const struct tu_tensor *t = &r->in.tensor;
    const uint32_t dtype = opt.dtype ? opt.dtype : t->dtype;
    uint64_t bytes;
    int rc = tu_tensor_bytes(dtype, t->dim, t->rank, &bytes, err);
    unsigned char *raw = rc ? NULL : tu_alloc((size_t)bytes, 1, err);
    if (!rc)
        rc = raw ? tu_cast(dtype, raw, TU_F32, x, (size_t)n, err) : TU_ENOMEM;
    if (!rc)
        rc = target_record(&r->target, t->name, dtype, t->dim, t->rank, t->meta, err);
    if (!rc)
        rc = target_write(&r->target, raw, (size_t)bytes, err);
    tu_free(raw);
    return rc;
}

static int rotate_tensor(struct run *r, struct tu_err *err)
{
    const struct tu_tensor *t = &r->in.tensor;
    const struct tu_dtype *d = tu_dtype_find(t->dtype);
    size_t role = 0;
    int64_t layer = -1;
    float *x = NULL;
    uint64_t n;
    if (coded_is(t))
        return tu_fail(err, TU_EUSAGE, "'%.80s' is codes: decode first", t->name);
    if (!d || !tu_dtype_is_float(t->dtype) || d->block_elems != 1 || !t->rank)
        return target_copy(&r->target, &r->in, err);
    int rc = r->map ? find_role(r, &role, &layer, err) : 0;
    if (!rc && role == SIZE_MAX)
        return target_copy(&r->target, &r->in, err);
    if (!rc)
        rc = coder_load(&r->in, &x, &n, err);
    if (!rc && r->map)
        rc = turn_role(x, role, layer, r, err);
    else if (!rc)
        rc = turn(x, n / tu_max(t->dim[t->rank - 1], 1), t->dim[t->rank - 1], r, err);
    if (!rc)
        rc = emit(r, x, n, err);
    tu_free(x);
    if (rc)
        tu_err_prefix(err, "'%.80s'", t->name);
    return rc;
}

/* Models ------------------------------------------------------------------------------------ */

/* The map of the file's names. */
static int take_map(struct run *r, const struct tu_source *s, struct tu_err *err)
{
    const char **name = s ? tu_alloc(s->n + 1, sizeof *name, err) : NULL;
    if (!s)
        return tu_fail(err, TU_EUSAGE, "norms go into what reads them: give a file, not a pipe");
    if (!name)
        return TU_ENOMEM;
    for (size_t i = 0; i < s->n; i++)
        name[i] = s->tensor[i].name;
    const struct tu_family *f = tu_family_guess(name, s->n);
    tu_free(name);
    if (!f || !f->base.rmsnorm || f->base.post_norms || f->base.kv_rank)
        return tu_fail(err, TU_EUSAGE, "the names are of no family whose norms rotations pass");
    return tu_map_builtin(&r->map, f->hf_map, err);
}

/* Columns of o over the number of heads. */
static void take_heads(struct run *r, const struct tu_source *s)
{
    struct tu_named named;
    bool yes;
    r->heads = r->in.model.heads;
    for (size_t i = 0; r->heads && i < s->n && !r->head_dim; i++) {
        const struct tu_tensor *t = &s->tensor[i];
        if (!tu_map_match(r->map, t->name, 0, 0, &named, &yes, NULL) && yes && named.n == 1 &&
            fnmatch("layers.*.attn.o.weight", named.role[0], 0) == 0 && t->rank == 2)
            r->head_dim = t->dim[1] / r->heads;
    }
}

/* Does the file hold a head of its own? */
static bool has_head(struct run *r, const struct tu_source *s)
{
    struct tu_named named;
    bool yes;
    for (size_t i = 0; i < s->n; i++)
        if (!tu_map_match(r->map, s->tensor[i].name, 0, 0, &named, &yes, NULL) && yes &&
            named.n == 1 && !strcmp(named.role[0], "head.weight"))
            return true;
    return false;
}

static int begin(struct run *r, const char *path, struct tu_err *err)
{
    int rc = input_open(&r->in, path, target_seen(r->ctx), r->ctx, err);
    const struct tu_source *s = rc ? NULL : tu_feed_source(r->in.feed);
    if (rc || opt.of == OF_ROWS)
        return rc;
    if ((rc = take_map(r, s, err)))
        return rc;
    take_heads(r, s);
    if (opt.of != OF_HIDDEN && !r->head_dim)
        rc = tu_fail(err, TU_EUSAGE, "how many heads there are is not known: give a folder with "
                                     "config.json, or --of hidden");
    else if (opt.of != OF_HEADS && !has_head(r, s))
        rc = tu_fail(err, TU_EUSAGE, "the head is the embedding, or missing: the last norm cannot "
                                     "go into it");
    if (!rc && r->in.folder && !r->target.beside &&
        !(r->target.beside = tu_strdup(r->in.folder, err)))
        rc = TU_ENOMEM;
    return rc;
}

static int rotate_input(struct run *r, const char *path, struct tu_err *err)
{
    enum item what = ITEM_OTHER;
    int rc = begin(r, path, err);
    while (!rc && what != ITEM_DONE && (rc = input_next(&r->in, &what, err)) == 0) {
        if (what == ITEM_TENSOR)
            rc = rotate_tensor(r, err);
        else if (what == ITEM_META && !(opt.dtype && !strcmp(r->in.topic, "contents")))
            rc = target_meta(&r->target, r->in.topic, r->in.json, r->in.json_len, err);
        else if (what == ITEM_OTHER)
            rc = target_copy(&r->target, &r->in, err);
        else if (what == ITEM_END)
            rc = target_end(&r->target, err);
    }
    if (rc)
        tu_err_prefix(err, "%s", path);
    input_close(&r->in);
    tu_map_free(r->map);
    r->map = NULL;
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    struct run r = {.ctx = ctx, .target.work = -1};
    struct tu_err err;
    int rc = 0;
    if (opt.back && opt.of != OF_ROWS)
        rc = tu_fail(&err, TU_EUSAGE, "--back is for rows: a model computes the same anyway");
    if (!rc)
        rc = target_open(&r.target, ctx, &err);
    if (!rc)
        rc = rotate_input(&r, argc ? argv[0] : "-", &err);
    if (!rc)
        rc = target_close(&r.target, &err);
    int status = rc ? tu_error(ctx, &err) : 0;
    target_abort(&r.target);
    return status;
}

static const struct tu_opt options[] = {
    {0, "of", NULL, "what is rotated: a model's hidden states, its heads' values, both; or rows",
     TU_OPT_CHOICE, &opt.of, ofs, 0},
    {0, "random", NULL, "random signs before the matrix (--seed)", TU_OPT_FLAG, &opt.random, NULL,
     0},
    {0, "back", NULL, "undo a rotation of rows", TU_OPT_FLAG, &opt.back, NULL, 0},
    {'d', "dtype", "DTYPE", "of the result; default: as it was", TU_OPT_DTYPE, &opt.dtype, NULL, 0},
    TARGET_OPTIONS,
    {0},
};

static const char *const usage[] = {"[option ...] [file]", NULL};

const struct tu_cmd quantize_rotate = {
    .name = "rotate",
    .example = "quantize rotate model.safetensors -o rotated.tns",
    .summary = "rotate a model so that it computes the same with fewer outliers",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM | TU_CMD_FORMATS,
    .max = 1,
    .run = run,
};
