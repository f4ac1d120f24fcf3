/* SPDX-License-Identifier: Apache-2.0 */
/* deploy.c: fuzz target: a folder that an engine loads: a line that is config.json's
 * quantization_config, then a safetensors file. What is read as codes is decoded.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdlib.h>
#include <tensorutils/quant.h>
#include <tensorutils/quant/deploy.h>
#include "source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 16 };

/* The bytes of tensor i, or NULL. */
static void *bytes_of(struct tu_source *s, size_t i, uint64_t want)
{
    void *p = NULL;
    if (i < s->n && s->tensor[i].bytes == want && want < 8 * MOST && (p = malloc((size_t)want + 1)) &&
        tu_source_read(s, i, 0, p, (size_t)want, NULL)) {
        free(p);
        p = NULL;
    }
    return p;
}

static void decode(struct tu_source *s, size_t i, const struct tu_coding *c)
{
    void *side[TU_CODING_SIDES] = { NULL };
    void *code = bytes_of(s, i, c->code.bytes);
    float *x = malloc(MOST * sizeof *x);
    bool all = code && x;
    for (unsigned k = 0; k < c->sides; k++) {
        char name[512];
        snprintf(name, sizeof name, "%.400s.%s", s->tensor[i].name, c->side[k].suffix);
        side[k] = bytes_of(s, tu_source_find(s, name), c->side[k].bytes);
        all &= side[k] != NULL;
    }
    if (all)
        (void)!tu_coding_decode_mem(c, code, (const void *const *)side, x, NULL, NULL);
    for (unsigned k = 0; k < c->sides; k++)
        free(side[k]);
    free(code);
    free(x);
}

static void decode_all(struct tu_source *s)
{
    for (size_t i = 0; i < s->n; i++) {
        struct tu_spec spec;
        struct tu_coding c = { .compat = false };
        uint64_t dim[TU_RANK_MAX];
        uint32_t dtype;
        unsigned rank;
        bool yes;
        if (tu_coded_by(&s->tensor[i], &spec, &dtype, dim, &rank, &yes, NULL) || !yes)
            continue;
        if (!tu_coding_init(&c, &spec, dim, rank, NULL) && c.elements <= MOST)
            decode(s, i, &c);
        tu_spec_release(&spec);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    const size_t n = line ? (size_t)(line - data) : 0;
    char path[32];
    struct tu_source *s = NULL;
    struct tu_err err = { 0 };
    json_t *config = NULL;
    bool any = false;
    if (!line || tu_json_parse(&config, (const char *)data, n, NULL, NULL))
        return 0;
    int fd = memfd_create("deploy", 0);
    if (fd < 0 || write(fd, line + 1, size - n - 1) != (ssize_t)(size - n - 1))
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!tu_source_open(&s, path, tu_format_find("safetensors"), NULL, NULL, &err)) {
        int code = tu_deploy_read(&s, s, config, &any, &err);
        if (code && (code != err.code || !err.msg[0]))
            __builtin_trap();
        if (code)
            s = NULL;
        else
            decode_all(s);
    }
    tu_source_close(s);
    json_decref(config);
    close(fd);
    return 0;
}
