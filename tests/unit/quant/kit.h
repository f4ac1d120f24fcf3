/* SPDX-License-Identifier: Apache-2.0 */
/* A coding with its memory, made from a spec's text. */
#ifndef TESTS_UNIT_QUANT_KIT_H
#define TESTS_UNIT_QUANT_KIT_H

#include <stdlib.h>
#include "../tap.h"
#include "tensorutils/quant.h"

/* CPU bits that codings of this file may use. */
static uint32_t kit_cpu = TU_CPU_ALL;

/* Run a test with the plain kernels, then with what AVX2 and AVX-512 add, where they are.
 */
static inline void kit_levels(void (*test)(void))
{
    static const uint32_t level[] = {0, TU_CPU_GROUP_AVX2, TU_CPU_ALL};
    for (unsigned i = 0; i < 3; i++) {
        kit_cpu = level[i];
        if (i == 1 && (level[1] & ~tu_cpu_detect()))
            tap_skip("AVX2", "this CPU has none");
        else
            test();
    }
}

struct kit {
    struct tu_coding c;
    unsigned char *code;
    void *side[TU_CODING_SIDES];
    char why[256]; /* of the last failure */
    int rc;
};

static inline void kit_free(struct kit *k)
{
    tu_free(k->code);
    for (unsigned i = 0; i < k->c.sides; i++)
        tu_free(k->side[i]);
    k->code = NULL;
    k->c.sides = 0;
}

/* 0 or a code, with the message in k->why. */
static inline int kit_plan_dims(struct kit *k, const char *text, const uint64_t *dim,
                                unsigned rank)
{
    struct tu_spec spec;
    struct tu_err err = {0};
    uint64_t seed = k->c.seed, stream = k->c.stream;
    const float *importance = k->c.importance;
    bool compat = k->c.compat;
    memset(k, 0, sizeof *k);
    k->c.compat = compat;
    k->c.seed = seed;
    k->c.stream = stream;
    k->c.importance = importance;
    k->rc = tu_spec_parse(&spec, text, &err);
    if (!k->rc) {
        k->rc = tu_coding_init(&k->c, &spec, dim, rank, &err);
        tu_spec_release(&spec);
    }
    snprintf(k->why, sizeof k->why, "%s", k->rc ? err.msg : "");
    k->c.cpu &= kit_cpu;
    if (k->rc) {
        k->c.sides = 0;
        return k->rc;
    }
    /* Not zeroed: an encoder writes every byte. */
    k->code = tu_alloc((size_t)k->c.code.bytes, 1, NULL);
    memset(k->code, 0xa5, (size_t)k->c.code.bytes);
    for (unsigned i = 0; i < k->c.sides; i++) {
        k->side[i] = tu_alloc((size_t)k->c.side[i].bytes, 1, NULL);
        memset(k->side[i], 0xa5, (size_t)k->c.side[i].bytes);
    }
    return 0;
}

static inline int kit_plan(struct kit *k, const char *text, uint64_t rows, uint64_t cols)
{
    return kit_plan_dims(k, text, (uint64_t[]){rows, cols}, 2);
}

static inline int kit_encode(struct kit *k, const float *x)
{
    struct tu_err err = {0};
    k->rc = tu_coding_encode_mem(&k->c, x, k->code, k->side, NULL, &err);
    snprintf(k->why, sizeof k->why, "%s", k->rc ? err.msg : "");
    return k->rc;
}

static inline int kit_decode(struct kit *k, float *x)
{
    struct tu_err err = {0};
    k->c.tally = (struct tu_tally){0};
    k->rc =
        tu_coding_decode_mem(&k->c, k->code, (const void *const *)k->side, x, NULL, &err);
    snprintf(k->why, sizeof k->why, "%s", k->rc ? err.msg : "");
    return k->rc;
}

/* Plan and encode, with one test that it works. */
static inline bool kit_start(struct kit *k, const char *text, uint64_t rows,
                             uint64_t cols, const float *x)
{
    int rc = kit_plan(k, text, rows, cols);
    if (!rc)
        rc = kit_encode(k, x);
    return ok(rc == 0, "%s: encodes %s", text, k->why);
}

/* Checksum of the codes, or of the side of that name; 0 where there is none. */
static inline uint32_t kit_crc(const struct kit *k, const char *suffix)
{
    if (!suffix)
        return tu_crc32(0, k->code, (size_t)k->c.code.bytes);
    for (unsigned i = 0; i < k->c.sides; i++)
        if (strcmp(k->c.side[i].suffix, suffix) == 0)
            return tu_crc32(0, k->side[i], (size_t)k->c.side[i].bytes);
    return 0;
}

static inline void *kit_side(const struct kit *k, const char *suffix)
{
    for (unsigned i = 0; i < k->c.sides; i++)
        if (strcmp(k->c.side[i].suffix, suffix) == 0)
            return k->side[i];
    return NULL;
}

static inline const char *kit_hex(const void *p, size_t n)
{
    static char text[4096];
    for (size_t i = 0; i < n && 2 * i + 2 < sizeof text; i++)
        sprintf(text + 2 * i, "%02x", ((const unsigned char *)p)[i]);
    return text;
}

#endif
