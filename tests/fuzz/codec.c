/* SPDX-License-Identifier: Apache-2.0 */
/* codec.c: fuzz target: codes and sides that anybody may have written.
 *
 * Input: a codec's spec, a newline, a shape, a newline, bytes that fill codes and sides
 * (over and over). What decodes is coded again, and that must decode. */
#include <stdlib.h>
#include <tensorutils/quant.h>
#include <tensorutils/quant/ints.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct input {
    char spec[64], shape[32];
    const uint8_t *fill;
    size_t n, at;
};

static bool take_line(struct input *in, char *line, size_t room)
{
    size_t i = 0;
    while (i < in->n && in->fill[i] != '\n')
        i++;
    if (i == in->n || i + 1 > room)
        return false;
    memcpy(line, in->fill, i);
    line[i] = '\0';
    in->fill += i + 1;
    in->n -= i + 1;
    return true;
}

static void *filled(struct input *in, uint64_t bytes)
{
    unsigned char *p = tu_calloc((size_t)bytes, 1, NULL);
    for (uint64_t i = 0; p && in->n && i < bytes; i++)
        p[i] = in->fill[in->at++ % in->n];
    return p;
}

static void try_codes(struct tu_coding *c, void *code, void *const *side)
{
    float *x = tu_calloc((size_t)c->elements, sizeof *x, NULL);
    const void *const *read = (const void *const *)side;
    struct tu_ints m;
    if (tu_ints_ok(c) && !tu_ints_unpack(c, code, read, &m, NULL)) {
        if (tu_ints_pack(c, &m, code, side, NULL) == TU_EBUG)
            abort();
        tu_ints_release(&m);
    }
    if (x && !tu_coding_decode_mem(c, code, read, x, NULL, NULL) &&
        !tu_coding_encode_mem(c, x, code, side, NULL, NULL) &&
        tu_coding_decode_mem(c, code, read, x, NULL, NULL))
        abort();
    tu_free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct input in = {.fill = data, .n = n};
    struct tu_coding c = {0};
    struct tu_spec spec;
    uint64_t dim[4], bytes;
    unsigned rank;
    if (!take_line(&in, in.spec, sizeof in.spec) || !take_line(&in, in.shape, sizeof in.shape) ||
        tu_parse_shape(in.shape, dim, &rank, 4, NULL) || tu_elements(dim, rank, &bytes, NULL) ||
        bytes > 16384 || tu_spec_parse(&spec, in.spec, NULL))
        return 0;
    int rc = tu_coding_init(&c, &spec, dim, rank, NULL);
    tu_spec_release(&spec);
    if (rc == TU_EBUG)
        abort();
    bytes = c.code.bytes;
    for (unsigned k = 0; !rc && k < c.sides; k++)
        bytes += c.side[k].bytes;
    if (rc || bytes > 1 << 20)
        return 0;
    void *side[TU_CODING_SIDES] = {NULL}, *code = filled(&in, c.code.bytes);
    for (unsigned k = 0; k < c.sides; k++)
        side[k] = filled(&in, c.side[k].bytes);
    try_codes(&c, code, side);
    tu_free(code);
    for (unsigned k = 0; k < c.sides; k++)
        tu_free(side[k]);
    return 0;
}
