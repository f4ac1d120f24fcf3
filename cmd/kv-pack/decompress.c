/* SPDX-License-Identifier: Apache-2.0 */
/* decompress.c: kv-pack decompress: the records that compress wrote, as they were. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "kv-pack/pack.h"

int kv_quant_read(const struct tu_tensor *t, struct kv_quant *q, struct tu_err *err)
{
    uint64_t layer = 0;
    json_t *o;
    *q = (struct kv_quant){.is = false};
    const char *kind = tu_kv_name(t->name, &layer);
    if (!kind || !t->meta)
        return 0;
    int rc = tu_json_parse(&o, t->meta, strlen(t->meta), NULL, err);
    if (rc)
        return rc;
    const json_t *j = json_object_get(o, "quant"), *shape = json_object_get(j, "shape");
    const char *scheme = json_string_value(json_object_get(j, "scheme"));
    const char *name = json_string_value(json_object_get(j, "dtype"));
    const struct tu_dtype *d = name ? tu_dtype_named(name) : NULL;
    q->rank = (unsigned)json_array_size(shape);
    if (scheme && (!d || q->rank < 2 || q->rank > 3))
        rc = tu_fail(err, TU_EMETA, "'%s': quant: dtype or shape missing", t->name);
    for (unsigned i = 0; scheme && !rc && i < q->rank; i++) {
        json_int_t v = json_integer_value(json_array_get(shape, i));
        q->dim[i] = v > 0 ? (uint64_t)v : 0;
        if (v < 0 || v > INT32_MAX)
            rc = tu_fail(err, TU_EMETA, "'%s': quant: shape holds no sizes", t->name);
    }
    if (scheme && !rc)
        rc = tu_spec_parse(&q->spec, scheme, err);
    q->is = scheme && !rc;
    if (q->is)
        q->a = (struct tu_kv_array){d->code, q->dim[0], q->rank == 3 ? q->dim[1] : 1,
                                    q->dim[q->rank - 1], *kind == 'v', layer};
    json_decref(o);
    return rc;
}

/* The record and the sides that follow it: NAME.suffix. */
static int load_parts(struct tu_kv *kv, size_t i, struct tu_kv_part part[TU_KV_CODED_PARTS],
                      unsigned *n, struct tu_err *err)
{
    size_t own = strlen(kv->tensor[i].name);
    int rc = 0;
    for (*n = 0; !rc && *n < TU_KV_CODED_PARTS && i + *n < kv->n; ++*n) {
        const struct tu_tensor *t = &kv->tensor[i + *n];
        if (*n && (strncmp(t->name, kv->tensor[i].name, own) != 0 || t->name[own] != '.'))
            break;
        part[*n] = (struct tu_kv_part){.dtype = t->dtype, .bytes = t->bytes};
        rc = tu_kv_load(kv, i + *n, &part[*n].data, err);
    }
    return rc;
}

static int decode_record(struct tu_kv *kv, size_t i, struct kv_quant *q,
                         struct tu_writer *w, unsigned *parts, struct tu_err *err)
{
    struct tu_kv_part part[TU_KV_CODED_PARTS] = {{0}};
    struct tu_tensor t = {.name = kv->tensor[i].name, .dtype = q->a.dtype, .rank = q->rank,
                          .dim = q->dim};
    int rc = tu_tensor_bytes(t.dtype, t.dim, t.rank, &t.bytes, err);
    /* What codes may stand for is bounded by what they are: no claim alone takes memory. */
    if (!rc && t.bytes / 4096 > kv->tensor[i].bytes + 4096)
        rc = tu_fail(err, TU_ELIMIT, "'%s': %" PRIu64 " bytes of codes for %" PRIu64, t.name,
                     kv->tensor[i].bytes, t.bytes);
    void *out = rc ? NULL : tu_alloc((size_t)t.bytes + 64, 1, err);
    if (!rc && !out)
        rc = TU_ENOMEM;
    if (!rc)
        rc = load_parts(kv, i, part, parts, err);
    if (!rc)
        rc = tu_kv_decode(&q->spec, &q->a, part, *parts, out, err);
    if (!rc)
        rc = tu_writer_tensor(w, &t, out, err);
    for (unsigned k = 0; k < TU_KV_CODED_PARTS; k++)
        tu_free(part[k].data);
    tu_free(out);
    if (rc)
        tu_err_prefix(err, "%s: '%s'", kv->name, t.name);
    return rc;
}

static int expand(struct tu_kv *kv, struct tu_writer *w, struct tu_err *err)
{
    int rc = tu_kv_write_info(w, &kv->info, err);
    for (size_t i = 0; !rc && i < kv->metas; i++)
        rc = tu_writer_meta(w, kv->meta[i].topic, kv->meta[i].json, kv->meta[i].n, err);
    for (size_t i = 0; !rc && i < kv->n;) {
        struct kv_quant q;
        unsigned parts = 1;
        rc = kv_quant_read(&kv->tensor[i], &q, err);
        if (!rc && q.is) {
            rc = decode_record(kv, i, &q, w, &parts, err);
        } else if (!rc) {
            void *x;
            rc = tu_kv_load(kv, i, &x, err);
            if (!rc)
                rc = tu_writer_tensor(w, &kv->tensor[i], x, err);
            tu_free(x);
        }
        if (q.is)
            tu_spec_release(&q.spec);
        i += tu_max(parts, 1);
    }
    return rc ? rc : tu_writer_end(w, false, err);
}

static int run_decompress(struct tu_ctx *ctx, int argc, char **argv)
{
    struct tu_err err;
    struct tu_kv_set set = {0};
    struct tu_writer *w = NULL;
    int rc = kv_streams(argc, argv, &set, &err);
    if (!rc)
        rc = kv_writer(ctx, &w, &err);
    for (size_t i = 0; !rc && i < set.n; i++)
        rc = expand(set.kv[i], w, &err);
    tu_kv_set_release(&set);
    return kv_written(ctx, w, rc, &err);
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

const struct tu_cmd kv_decompress = {
    .name = "decompress",
    .example = "kv-pack decompress small.tns -o cache.tns",
    .summary = "the way back",
    .usage = usage,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM,
    .max = TU_ANY,
    .run = run_decompress,
};
