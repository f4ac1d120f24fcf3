/* SPDX-License-Identifier: Apache-2.0 */
/* int.h: integer codecs: a rule that makes scales and codes, and a packing that stores
 * them. A codec is a pair of the two. */
#ifndef TENSORUTILS_QUANT_INT_H
#define TENSORUTILS_QUANT_INT_H

#include "affine.h"
#include "tensorutils/quant.h"
#include "tensorutils/quant/ints.h"

/* What a coding's params mean in this family. */
enum tui_int_param {
    TUI_INT_BITS,
    TUI_INT_GROUP,  /* columns */
    TUI_INT_TENSOR, /* one scale for all */
    TUI_INT_ASYM,
    TUI_INT_RULE,   /* row of tui_int_rules */
    TUI_INT_CLIP,   /* 0 none, 1 search, else a percentile in thousandths */
    TUI_INT_RANDOM, /* stochastic rounding */
    TUI_INT_SCALE,  /* dtype of the scales */
    TUI_INT_V2,     /* zeros as they are, not minus 1 */
    TUI_INT_ORDER,  /* group indices are stored */
};

/* Scale and zero of a range, zero counted from the lowest code. */
struct tui_affine {
    float scale, zero;
};

struct tui_int_rule {
    const char *name;
    /* lo ≤ 0 ≤ hi. */
    struct tui_affine (*fit)(unsigned bits, bool asym, float lo, float hi);
    /* How codes are made of values. */
    void (*map)(unsigned bits, struct tui_affine a, struct tui_affine_map *m);
    /* The grid of the clip search: shrink by i/100 for i < steps, patience 0: to the end.
     */
    unsigned steps, patience;
};

/* X(NAME): compressed-tensors, narrow symmetric, GPTQ, AWQ. */
enum tui_int_rule_index { TUI_RULE_CT, TUI_RULE_NARROW, TUI_RULE_GPTQ, TUI_RULE_AWQ };
extern const struct tui_int_rule tui_int_rules[];
/* Codes of n values; u: uniform numbers for stochastic rounding, or NULL. */
void tui_int_code(uint32_t cpu, const struct tui_int_rule *rule, unsigned bits,
                  struct tui_affine a, const float *x, const float *u, size_t n,
                  uint8_t *out);

/* n values that share a scale. scratch: n floats; code: n bytes for trials. */
struct tui_int_group {
    const float *x;
    size_t n;
    float lo, hi; /* tui_range() of x */
    float *scratch;
    uint8_t *code;
};
/* Their scale and zero under the coding's params, its clipping too. */
struct tui_affine tui_int_fit_group(const struct tu_coding *c,
                                    const struct tui_int_group *g);
/* The affine of a range under the coding's params, its zero as the packing can hold it.
 */
struct tui_affine tui_int_fit(const struct tu_coding *c, float lo, float hi);

/* A packing. m has the rows from `row` on of what code and side point at: an atom, which
 * for those that are transposed is the whole matrix, taken in order by `rows` at a time.
 */
struct tui_int_pack {
    int (*plan)(struct tu_coding *c, struct tu_err *err);
    int (*pack)(const struct tu_coding *c, const struct tu_ints *m, uint64_t row,
                void *code, void *const *side, struct tu_err *err);
    int (*unpack)(const struct tu_coding *c, struct tu_ints *m, uint64_t row,
                  const void *code, const void *const *side, struct tu_err *err);
    uint64_t rows; /* 0: all */
};
extern const struct tui_int_pack tui_pack_ct, tui_pack_gptq, tui_pack_awq;

/* The one scale and zero of compressed-tensors' tensor-wise codes. */
int tui_ct_put_tensor(const struct tu_coding *c, float scale, unsigned zero,
                      void *const *side, struct tu_err *err);

struct tui_int_format {
    unsigned bits;
    enum tui_int_rule_index rule;
    const struct tui_int_pack *pack;
    const char *group; /* when none is given */
};

/* tu_ints_values by kernels of this CPU. */
void tui_ints_values(uint32_t cpu, const struct tu_ints *m, float *x);

/* The whole tensor of a codec of this family. */
int tui_int_unpack_all(const struct tu_coding *c, const void *code,
                       const void *const *side, struct tu_ints *m, struct tu_err *err);
int tui_int_pack_all(const struct tu_coding *c, const struct tu_ints *m, void *code,
                     void *const *side, struct tu_err *err);

#endif
