/* SPDX-License-Identifier: Apache-2.0 */
/* codec.c: the table of codecs, and what is common to planning a coding of any of
 * them. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include "families.h"
#include "tensorutils/quant.h"

/* A family is an array of rows that ends with one without a name. */
static const struct tu_codec *const family[] = {
#define FAMILY(name) tui_codecs_##name,
    TUI_CODEC_FAMILIES(FAMILY)
#undef FAMILY
};

const struct tu_codec *tu_codec_row(size_t i)
{
    for (size_t f = 0; f < sizeof family / sizeof *family; f++)
        for (const struct tu_codec *c = family[f]; c->name; c++)
            if (!i--)
                return c;
    return NULL;
}

const struct tu_codec *tu_codec_find(const char *name)
{
    const struct tu_codec *c;
    for (size_t i = 0; (c = tu_codec_row(i)); i++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static const char *codec_name(const void *ctx, size_t i)
{
    const struct tu_codec *c = tu_codec_row(i);
    (void)ctx;
    return c ? c->name : NULL;
}

static int find(const struct tu_codec **out, const char *name, struct tu_err *err)
{
    char text[88];
    *out = tu_codec_find(name);
    if (*out)
        return 0;
    tu_fail(err, TU_EUSAGE, "codec '%s': unknown", tu_text_short(name, strlen(name), text));
    tu_suggest(err, name, "", codec_name, NULL);
    return TU_EUSAGE;
}

/* Bytes of a part, and that its atoms fill it: the codec's plan has said how. */
static int size_part(const struct tu_coding *c, struct tu_part *p, struct tu_err *err)
{
    int rc = tu_tensor_bytes(p->dtype, p->dim, p->rank, &p->bytes, err);
    if (rc || !p->atom_bytes)
        return rc;
    uint64_t atoms = tu_ceil_div(c->elements, c->atom), full;
    if (tu_mul_over(atoms, p->atom_bytes, &full) || full < p->bytes ||
        full - p->bytes >= p->atom_bytes + (atoms == 0))
        return tu_fail(err, TU_EBUG,
                       "codec '%s': %" PRIu64 " atoms of %" PRIu64
                       " bytes do not make %" PRIu64 " bytes",
                       c->codec->name, atoms, p->atom_bytes, p->bytes);
    return 0;
}

int tu_coding_init(struct tu_coding *c, const struct tu_spec *spec, const uint64_t *dim,
                   unsigned rank, struct tu_err *err)
{
    static const char *const none[] = {NULL};
    int rc = find(&c->codec, spec->name, err);
    if (rc)
        return rc;
    if ((rc = tu_spec_check(spec, c->codec->key ? c->codec->key : none, err)))
        return rc;
    if ((rc = tu_elements(dim, rank, &c->elements, err)))
        return rc;
    c->rank = rank;
    if (rank)
        memcpy(c->dim, dim, rank * sizeof *dim);
    c->cols = rank ? dim[rank - 1] : 1;
    c->rows = c->cols ? c->elements / c->cols : 0;
    c->cpu = tu_cpu_bits();
    c->atom = 1;
    c->sides = c->scratch = 0;
    if ((rc = c->codec->plan(c, spec, err)))
        return rc;
    rc = size_part(c, &c->code, err);
    for (unsigned k = 0; !rc && k < c->sides + c->scratch; k++)
        rc = size_part(c, &c->side[k], err);
    return rc;
}

double tu_coding_bpw(const struct tu_coding *c)
{
    double bytes = (double)c->code.bytes;
    for (unsigned k = 0; k < c->sides; k++)
        bytes += (double)c->side[k].bytes;
    return c->elements ? 8 * bytes / (double)c->elements : 0;
}

static json_t *dims(const uint64_t *dim, unsigned rank)
{
    json_t *a = json_array();
    bool all = true;
    for (unsigned i = 0; i < rank; i++)
        all &= !json_array_append_new(a, json_integer((json_int_t)dim[i]));
    if (all)
        return a;
    json_decref(a);
    return NULL;
}

int tu_coding_meta(const struct tu_coding *c, const struct tu_spec *spec,
                   const char *name, uint32_t dtype, struct tu_buf *out,
                   struct tu_err *err)
{
    struct tu_buf text = {0};
    char code[8];
    json_t *o = json_object();
    int rc = o ? tu_spec_print(spec, &text, err)
               : tu_fail(err, TU_ENOMEM, "no memory for metadata");
    if (rc)
        goto out;
    bool bad = json_object_set_new(o, "scheme", json_string(text.data)) ||
               json_object_set_new(o, "dtype", json_string(tu_dtype_text(dtype, code))) ||
               json_object_set_new(o, "shape", dims(c->dim, c->rank));
    if (c->block[0])
        bad |= json_object_set_new(o, "block", dims(c->block, 2)) != 0;
    for (unsigned k = 0; k < c->sides && !bad; k++) {
        tu_buf_reset(&text);
        if ((rc = tu_buf_printf(&text, err, "%s.%s", name, c->side[k].suffix)))
            goto out;
        bad = json_object_set_new(o, c->side[k].suffix, json_string(text.data)) != 0;
    }
    rc = bad ? tu_fail(err, TU_ENOMEM, "no memory for metadata")
             : tu_json_dump(out, o, err);
out:
    json_decref(o);
    tu_buf_release(&text);
    return rc;
}

/* What `quant` says; *scheme is borrowed from q. */
static int read_quant(const json_t *q, const char **scheme, uint32_t *dtype, uint64_t *dim,
                      unsigned *rank, struct tu_err *err)
{
    const json_t *shape = json_object_get(q, "shape");
    const char *name = json_string_value(json_object_get(q, "dtype"));
    const struct tu_dtype *d = name ? tu_dtype_named(name) : NULL;
    *scheme = json_string_value(json_object_get(q, "scheme"));
    *rank = (unsigned)json_array_size(shape);
    if (!d || !json_is_array(shape) || *rank > TU_RANK_MAX)
        return tu_fail(err, TU_EMETA, "quant: dtype or shape missing");
    for (unsigned i = 0; i < *rank; i++) {
        const json_t *v = json_array_get(shape, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return tu_fail(err, TU_EMETA, "quant: shape holds no whole numbers");
        dim[i] = (uint64_t)json_integer_value(v);
    }
    *dtype = d->code;
    return 0;
}

int tu_coded_by(const struct tu_tensor *t, struct tu_spec *spec, uint32_t *dtype,
                uint64_t *dim, unsigned *rank, bool *yes, struct tu_err *err)
{
    json_t *o = NULL;
    const char *scheme = NULL;
    int rc = 0;
    *yes = false;
    if (t->meta && *t->meta && (rc = tu_json_parse(&o, t->meta, strlen(t->meta), NULL, err)))
        return rc;
    const json_t *q = json_object_get(o, "quant");
    if (json_object_get(q, "scheme")) {
        rc = read_quant(q, &scheme, dtype, dim, rank, err);
    } else if (t->dtype & TU_DTYPE_GGML && t->dtype < TU_DTYPE_PRIVATE) {
        const struct tu_dtype *d = tu_dtype_find(t->dtype);
        if (!d)
            rc = tu_fail(err, TU_EDTYPE, "unknown block format 0x%04x", (unsigned)t->dtype);
        *dtype = TU_F32;
        *rank = t->rank;
        memcpy(dim, t->dim, t->rank * sizeof *dim);
        scheme = d ? d->name : NULL;
    }
    if (!rc && scheme && !(rc = tu_spec_parse(spec, scheme, err)))
        *yes = true;
    json_decref(o);
    return rc;
}
