/* SPDX-License-Identifier: Apache-2.0 */
/* int.c: the family of integer codecs: rows, their arguments, and coding a run of rows
 * through struct tu_ints. Rules are int_rule.c's, packings int_pack.c's. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "int.h"
#include "tensorutils/device/kernels.h"

static const char *const ct_key[] = {"group", "asym",   "scale", "clip",  "round",
                                     "rule",  "packed", "words", "order", NULL};
static const char *const gptq_key[] = {"group", "asym", "scale", "clip",
                                       "round", "v2",   NULL};
static const char *const awq_key[] = {"group", "scale", "clip", "round", NULL};

/* group=N, channel or tensor. */
static int plan_group(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    const struct tui_int_format *f = c->codec->format;
    const char *text = tu_spec_get(spec, "group");
    uint64_t n = tu_max(c->cols, 1);
    if (!text)
        text = f->group;
    c->param[TUI_INT_TENSOR] = strcmp(text, "tensor") == 0;
    if (c->param[TUI_INT_TENSOR] && f->pack != &tui_pack_ct)
        return tu_fail(err, TU_EUSAGE, "codec '%s': no scale of a whole tensor",
                       c->codec->name);
    if (!c->param[TUI_INT_TENSOR] && strcmp(text, "channel") != 0 &&
        strcmp(text, "-1") != 0) {
        int rc = tu_parse_u64(text, &n, err);
        if (rc || n == 0 || n > TU_SIZE_MAX)
            return tu_fail(err, TU_EUSAGE,
                           "codec '%s': group '%s': a number, 'channel' or 'tensor'",
                           c->codec->name, text);
    }
    c->param[TUI_INT_GROUP] = (int64_t)n;
    c->block[0] = c->param[TUI_INT_TENSOR] ? c->rows : 1;
    c->block[1] = n;
    c->two_pass = c->param[TUI_INT_TENSOR];
    return 0;
}

static int plan_clip(struct tu_coding *c, const char *text, struct tu_err *err)
{
    double p;
    if (!text)
        return 0;
    if (strcmp(text, "mse") == 0) {
        c->param[TUI_INT_CLIP] = 1;
    } else {
        if (tu_parse_double(text, &p, err) || !(p > 1) || p > 100)
            return tu_fail(err, TU_EUSAGE, "codec '%s': clip '%s': 'mse' or a percentile",
                           c->codec->name, text);
        c->param[TUI_INT_CLIP] = (int64_t)(p * 1000 + 0.5);
    }
    if (c->param[TUI_INT_TENSOR])
        return tu_fail(err, TU_EUSAGE,
                       "codec '%s': clip: not with one scale for the tensor",
                       c->codec->name);
    return 0;
}

static int choose(const struct tu_coding *c, const struct tu_spec *spec, const char *key,
                  const char *const *choice, int64_t *out, struct tu_err *err)
{
    const char *text = tu_spec_get(spec, key);
    for (int64_t i = 0; text && choice[i]; i++) {
        if (strcmp(text, choice[i]) == 0) {
            *out = i;
            return 0;
        }
    }
    return text ? tu_fail(err, TU_EUSAGE, "codec '%s': %s: unknown value '%s'",
                          c->codec->name, key, text)
                : 0;
}

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    static const uint32_t dtypes[] = {TU_F32, TU_F16, TU_BF16};
    static const char *const dtype[] = {"f32", "f16", "bf16", NULL};
    static const char *const rounds[] = {"nearest", "stochastic", NULL};
    static const char *const rule[] = {"ct", "narrow", NULL};
    const struct tui_int_format *f = c->codec->format;
    bool ct = f->pack == &tui_pack_ct;
    int64_t scale = ct ? 0 : 1;
    memset(c->param, 0, sizeof c->param);
    c->param[TUI_INT_BITS] = f->bits;
    c->param[TUI_INT_RULE] = f->rule;
    c->param[TUI_INT_ASYM] = f->rule == TUI_RULE_AWQ || tu_spec_get(spec, "asym");
    c->param[TUI_INT_V2] = tu_spec_get(spec, "v2") || tu_spec_get(spec, "words");
    c->param[TUI_INT_ORDER] = tu_spec_get(spec, "order") != NULL;
    int rc = plan_group(c, spec, err);
    if (!rc)
        rc = plan_clip(c, tu_spec_get(spec, "clip"), err);
    if (!rc)
        rc = choose(c, spec, "scale", dtype, &scale, err);
    if (!rc)
        rc = choose(c, spec, "round", rounds, &c->param[TUI_INT_RANDOM], err);
    if (!rc && ct)
        rc = choose(c, spec, "rule", rule, &c->param[TUI_INT_RULE], err);
    if (rc)
        return rc;
    if (c->param[TUI_INT_RULE] == TUI_RULE_NARROW && c->param[TUI_INT_ASYM])
        return tu_fail(err, TU_EUSAGE, "codec '%s': the narrow rule is symmetric",
                       c->codec->name);
    c->param[TUI_INT_SCALE] = dtypes[scale];
    c->code = (struct tu_part){.dtype = TU_I32};
    if (ct && f->bits == 8 && !tu_spec_get(spec, "packed"))
        c->code.dtype = TU_I8;
    return f->pack->plan(c, err);
}

static struct tui_affine tensor_affine(const struct tu_coding *c)
{
    float lo = (float)fmin(c->tally.min, 0), hi = (float)fmax(c->tally.max, 0);
    return tui_int_fit(c, lo, hi);
}

/* Groups whose ranges are found together, before their codes, so that one does not wait
 * for the other. */
enum { GROUPS = 16 };

struct span {
    const float *x;
    uint64_t at, group; /* element and group that begin it, in the call */
    size_t n;           /* groups */
    float *scratch;     /* of a group */
};

/* Scales and zeros of a span of a row. */
static void fit_span(const struct tu_coding *c, const struct span *s, struct tu_ints *m,
                     struct tui_affine *affine)
{
    const size_t group = (size_t)m->group;
    float lo[GROUPS], hi[GROUPS];
    tui_range(c->cpu, s->x, group * s->n, group, lo, hi);
    for (size_t k = 0; k < s->n; k++) {
        const struct tui_int_group g = {.x = s->x + k * group,
                                        .n = group,
                                        .lo = lo[k],
                                        .hi = hi[k],
                                        .scratch = s->scratch,
                                        .code = m->code + s->at + k * group};
        affine[k] =
            c->param[TUI_INT_TENSOR] ? tensor_affine(c) : tui_int_fit_group(c, &g);
        m->scale[s->group + k] = affine[k].scale;
        m->zero[s->group + k] = (uint16_t)affine[k].zero;
    }
}

static void code_span(const struct tu_coding *c, uint64_t first, const struct span *s,
                      struct tu_ints *m, const struct tui_affine *affine)
{
    const struct tui_int_rule *rule = &tui_int_rules[c->param[TUI_INT_RULE]];
    const unsigned bits = (unsigned)c->param[TUI_INT_BITS];
    const size_t group = (size_t)m->group;
    struct tui_affine_map map[GROUPS];
    uint8_t *code = m->code + s->at;
    for (size_t k = 0; k < s->n; k++, code += group) {
        if (!c->param[TUI_INT_RANDOM]) {
            rule->map(bits, affine[k], &map[k]);
            continue;
        }
        const uint64_t at = s->at + k * group;
        tu_rng_uniform(&(struct tu_rng){c->seed, c->stream}, first + at, s->scratch,
                       group);
        tui_int_code(c->cpu, rule, bits, affine[k], s->x + k * group, s->scratch, group,
                     code);
    }
    if (!c->param[TUI_INT_RANDOM])
        tui_affine_code(c->cpu, map, s->x, group * s->n, group, m->code + s->at);
}

/* Codes of m->rows rows that begin at element `first`. */
static int quantize(const struct tu_coding *c, uint64_t first, const float *x,
                    struct tu_ints *m, struct tu_err *err)
{
    const size_t group = (size_t)m->group;
    struct tui_affine affine[GROUPS];
    struct span s = {.scratch = tu_alloc(group, sizeof *s.scratch, err)};
    if (!s.scratch)
        return TU_ENOMEM;
    for (uint64_t row = 0; row < m->rows; row++)
        for (uint64_t k = 0; k < m->groups; k += s.n) {
            s.n = (size_t)tu_min(GROUPS, m->groups - k);
            s.group = row * m->groups + k;
            s.at = row * m->cols + k * group;
            s.x = x + s.at;
            fit_span(c, &s, m, affine);
            code_span(c, first, &s, m, affine);
        }
    tu_free(s.scratch);
    return 0;
}

/* Room for `rows` rows. */
static int begin(const struct tu_coding *c, uint64_t rows, struct tu_ints *m,
                 struct tu_err *err)
{
    const struct tui_int_format *f = c->codec->format;
    return tu_ints_init(m, f->bits, rows, c->cols, (uint64_t)c->param[TUI_INT_GROUP],
                        f->pack == &tui_pack_gptq || c->param[TUI_INT_ORDER], err);
}

/* Rows of n elements, and how many of them are in hand at a time. */
static uint64_t rows_of(const struct tu_coding *c, size_t n, uint64_t *some)
{
    const struct tui_int_format *f = c->codec->format;
    const uint64_t rows = c->cols ? n / c->cols : 0;
    *some = f->pack->rows ? tu_min(f->pack->rows, rows) : rows;
    *some = tu_max(*some, 1);
    return rows;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    const struct tui_int_format *f = c->codec->format;
    struct tu_ints m;
    uint64_t some, rows = rows_of(c, n, &some);
    int rc = begin(c, some, &m, err);
    if (rc)
        return rc;
    tu_free(m.gidx);
    m.gidx = NULL;
    for (uint64_t row = 0; !rc && (!row || row < rows); row += some) {
        m.rows = tu_min(some, rows - row);
        rc = quantize(c, first + row * c->cols, x + row * c->cols, &m, err);
        if (!rc)
            rc = f->pack->pack(c, &m, row, code, side, err);
    }
    tu_ints_release(&m);
    return rc;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    (void)first;
    const struct tui_int_format *f = c->codec->format;
    struct tu_ints m;
    uint64_t some, rows = rows_of(c, n, &some);
    int rc = begin(c, some, &m, err);
    if (rc)
        return rc;
    for (uint64_t row = 0; !rc && (!row || row < rows); row += some) {
        m.rows = tu_min(some, rows - row);
        rc = f->pack->unpack(c, &m, row, code, side, err);
        if (!rc)
            tui_ints_values(c->cpu, &m, x + row * c->cols);
    }
    tu_ints_release(&m);
    return rc;
}

static void put_order(const struct tu_coding *c, void *const *side)
{
    for (uint64_t j = 0; c->param[TUI_INT_ORDER] && j < c->cols; j++)
        tu_put32((unsigned char *)side[c->sides - 1] + 4 * j,
                 (uint32_t)(j / (uint64_t)c->param[TUI_INT_GROUP]));
}

/* What follows no atoms: the scale of a tensor, the plain order of columns. */
static int start(const struct tu_coding *c, void *const *side, struct tu_err *err)
{
    put_order(c, side);
    if (!c->param[TUI_INT_TENSOR])
        return 0;
    struct tui_affine a = tensor_affine(c);
    return tui_ct_put_tensor(c, a.scale, (unsigned)a.zero, side, err);
}

/* The whole tensor as one matrix. */
int tui_int_unpack_all(const struct tu_coding *c, const void *code,
                       const void *const *side, struct tu_ints *m, struct tu_err *err)
{
    const struct tui_int_format *f = c->codec->format;
    uint64_t some;
    int rc = begin(c, rows_of(c, (size_t)c->elements, &some), m, err);
    if (!rc && (rc = f->pack->unpack(c, m, 0, code, side, err)))
        tu_ints_release(m);
    return rc;
}

int tui_int_pack_all(const struct tu_coding *c, const struct tu_ints *m, void *code,
                     void *const *side, struct tu_err *err)
{
    const struct tui_int_format *f = c->codec->format;
    int rc = f->pack->pack(c, m, 0, code, side, err);
    if (!rc && !m->gidx)
        put_order(c, side);
    if (rc || !c->param[TUI_INT_TENSOR] || !m->rows)
        return rc;
    for (uint64_t i = 0; i < m->rows * m->groups; i++)
        if (m->scale[i] != m->scale[0] || m->zero[i] != m->zero[0])
            return tu_fail(err, TU_EUSAGE,
                           "rows have scales of their own: codec '%s' has one",
                           c->codec->name);
    return tui_ct_put_tensor(c, m->scale[0], m->zero[0], side, err);
}

/* The plain case of compressed-tensors: 4 bits, symmetric, to the nearest. */
static bool kernel(const struct tu_coding *c, bool encode, const void *const *side,
                   struct tu_kernel_code *k)
{
    (void)encode;
    (void)side;
    k->block = (uint32_t)c->param[TUI_INT_GROUP];
    k->cols = c->cols;
    k->words = (uint32_t)(c->cols / 8);
    k->rule = (uint32_t)c->param[TUI_INT_SCALE];
    return c->param[TUI_INT_BITS] == 4 && c->param[TUI_INT_RULE] == TUI_RULE_CT &&
           k->rule != TU_F16 && k->block % 8 == 0 && k->cols <= UINT32_MAX &&
           !c->param[TUI_INT_TENSOR] && !c->param[TUI_INT_ASYM] &&
           !c->param[TUI_INT_CLIP] && !c->param[TUI_INT_RANDOM] &&
           !c->param[TUI_INT_ORDER];
}

/* X(name, bits, RULE, packing, group, help) */
#define TABLE(X)                                                                         \
    X(int8, 8, CT, ct, "channel", ct_key,                                                \
      "compressed-tensors, a scale per channel, group or tensor")                        \
    X(int4, 4, CT, ct, "128", ct_key, "compressed-tensors, packed in words")             \
    X(int3, 3, CT, ct, "128", ct_key, "compressed-tensors, packed in words")             \
    X(int2, 2, CT, ct, "128", ct_key, "compressed-tensors, packed in words")             \
    X(gptq8, 8, GPTQ, gptq, "128", gptq_key, "GPTQ's files, 8 bits")                     \
    X(gptq4, 4, GPTQ, gptq, "128", gptq_key, "GPTQ's files, 4 bits")                     \
    X(gptq3, 3, GPTQ, gptq, "128", gptq_key, "GPTQ's files, 3 bits")                     \
    X(gptq2, 2, GPTQ, gptq, "128", gptq_key, "GPTQ's files, 2 bits")                     \
    X(awq4, 4, AWQ, awq, "128", awq_key, "AWQ's files, 4 bits with zeros")

#define FORMAT(name, bits, rule, packing, group, keys, text)                             \
    static const struct tui_int_format format_##name = {bits, TUI_RULE_##rule,           \
                                                        &tui_pack_##packing, group};
TABLE(FORMAT)

#define SOURCE_ct "vllm-project/compressed-tensors: quantization/utils/helpers.py"
#define SOURCE_gptq "AutoGPTQ/AutoGPTQ: qlinear_cuda.py"
#define SOURCE_awq "casper-hansen/AutoAWQ: awq/utils/packing_utils.py"
#define ROW(id, bits, rule, packing, group, keys, text)                                  \
    {.name = #id,                                                                        \
     .help = text,                                                                       \
     .source = SOURCE_##packing,                                                         \
     .key = keys,                                                                        \
     .format = &format_##id,                                                             \
     .plan = plan,                                                                       \
     .encode = encode,                                                                   \
     .decode = decode,                                                                   \
     .start = start,                                                                     \
     .kernel = kernel},

const struct tu_codec tui_codecs_int[] = {TABLE(ROW){.name = NULL}};
