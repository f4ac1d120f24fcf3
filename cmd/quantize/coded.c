/* SPDX-License-Identifier: Apache-2.0 */
/* coded.c: collecting the records of a tensor that is codes. */
#include "quantize/coded.h"
#include <string.h>
#include "quantize/meta.h"
#include "quantize/target.h"

void coded_forget(struct coded *c)
{
    for (unsigned k = 0; k < TU_CODING_SIDES; k++)
        tu_free(c->side[k]);
    if (c->spec.name)
        tu_spec_release(&c->spec);
    if (c->codes)
        fclose(c->codes);
    tu_arena_free(c->arena);
    memset(c, 0, sizeof *c);
}

/* The metadata that numbers from codes have, kept with c. */
static int note_origin(struct coded *c, const char *meta, struct tu_err *err)
{
    struct tu_buf text = {0};
    int rc = quant_from(&c->spec, meta, &text, err);
    char *s = rc ? NULL : tu_arena_alloc(c->arena, text.n + 1, 1, err);
    if (s)
        memcpy(s, text.data, text.n + 1);
    c->from = s;
    tu_buf_release(&text);
    return s || rc ? rc : TU_ENOMEM;
}

/* The coding of the tensor; *yes false where it is not coded. */
static int plan(struct coded *c, const struct tu_tensor *t, bool *yes, struct tu_err *err)
{
    uint64_t dim[TU_RANK_MAX];
    uint32_t dtype;
    unsigned rank;
    int rc = tu_coded_by(t, &c->spec, &dtype, dim, &rank, yes, err);
    if (rc || !*yes || (rc = tu_coding_init(&c->coding, &c->spec, dim, rank, err)))
        return rc;
    if (c->coding.code.dtype != t->dtype || c->coding.code.bytes != t->bytes)
        return tu_fail(err, TU_EMETA, "quant: %llu bytes of codes, expected %llu",
                       (unsigned long long)t->bytes,
                       (unsigned long long)c->coding.code.bytes);
    if (!(c->arena = tu_arena_new(err)))
        return TU_ENOMEM;
    c->change = quant_is_change(t->meta);
    if ((rc = note_origin(c, t->meta, err)))
        return rc;
    return tu_tensor_make(&c->tensor, c->arena, t->name, dtype, dim, rank, NULL, err);
}

bool coded_is(const struct tu_tensor *t)
{
    return (t->dtype & TU_DTYPE_GGML && t->dtype < TU_DTYPE_PRIVATE) ||
           (t->meta && strstr(t->meta, "\"quant\":"));
}

unsigned coded_sides(const struct tu_tensor *t)
{
    struct coded c = {.pending = false};
    bool yes;
    unsigned n = plan(&c, t, &yes, NULL) || !yes ? 0 : c.coding.sides;
    coded_forget(&c);
    return n;
}

/* Keep the codes until the sides are there. */
static int put_aside(struct coded *c, struct input *in, struct tu_err *err)
{
    char buf[65536];
    if (!(c->codes = tmpfile()))
        return tu_fail_errno(err, "temporary file");
    for (uint64_t left = in->tensor.bytes; left;) {
        size_t n = (size_t)tu_min(left, sizeof buf);
        int rc = input_read(in, buf, n, err);
        if (rc)
            return rc;
        if (fwrite(buf, 1, n, c->codes) != n)
            return tu_fail_errno(err, "temporary file");
        left -= n;
    }
    rewind(c->codes);
    c->pending = true;
    return 0;
}

int coded_begin(struct coded *c, struct input *in, bool *yes, struct tu_err *err)
{
    int rc = plan(c, &in->tensor, yes, err);
    if (rc) {
        tu_err_prefix(err, "'%.80s'", in->tensor.name);
        return rc;
    }
    return *yes && c->coding.sides ? put_aside(c, in, err) : 0;
}

int coded_read(struct coded *c, struct input *in, void *buf, size_t n, struct tu_err *err)
{
    if (!c->codes)
        return input_read(in, buf, n, err);
    return fread(buf, 1, n, c->codes) == n ? 0 : tu_fail_errno(err, "temporary file");
}

int coded_missing(const struct coded *c, struct tu_err *err)
{
    unsigned k = 0;
    while (c->have[k])
        k++;
    return tu_fail(err, TU_EINCOMPLETE, "'%.80s': its side tensor '.%s' does not follow",
                   c->tensor.name, c->coding.side[k].suffix);
}

int coded_side(struct coded *c, struct input *in, struct tu_err *err)
{
    const struct tu_tensor *t = &in->tensor;
    size_t n = strlen(c->tensor.name);
    unsigned k = 0, left = 0;
    if (strncmp(t->name, c->tensor.name, n) != 0 || t->name[n] != '.')
        return coded_missing(c, err);
    while (k < c->coding.sides &&
           (c->have[k] || strcmp(t->name + n + 1, c->coding.side[k].suffix) != 0))
        k++;
    if (k == c->coding.sides)
        return coded_missing(c, err);
    const struct tu_part *p = &c->coding.side[k];
    if (t->dtype != p->dtype || t->bytes != p->bytes)
        return tu_fail(err, TU_EMETA, "'%.80s': %llu bytes, expected %llu", t->name,
                       (unsigned long long)t->bytes, (unsigned long long)p->bytes);
    if (!(c->side[k] = tu_alloc((size_t)p->bytes, 1, err)))
        return TU_ENOMEM;
    c->have[k] = true;
    for (unsigned i = 0; i < c->coding.sides; i++)
        left += !c->have[i];
    c->pending = left > 0;
    return input_read(in, c->side[k], (size_t)p->bytes, err);
}

static int pass_record(const struct coded_pass *p, enum item what, struct tu_err *err)
{
    if (p->coded->pending && what != ITEM_TENSOR)
        return coded_missing(p->coded, err);
    if (what == ITEM_TENSOR)
        return p->tensor(p->run, err);
    if (what == ITEM_META && strcmp(p->in->topic, "contents") != 0)
        return target_meta_plain(p->target, p->in, err);
    if (what == ITEM_OTHER)
        return target_copy(p->target, p->in, err);
    return what == ITEM_END ? target_end(p->target, err) : 0;
}

int coded_input(const struct coded_pass *p, const char *path, struct tu_err *err)
{
    enum item what = ITEM_OTHER;
    int rc = input_open(p->in, path, p->seen, p->ctx, err);
    if (!rc && p->in->folder && !p->target->beside &&
        !(p->target->beside = tu_strdup(p->in->folder, err)))
        rc = TU_ENOMEM;
    while (!rc && what != ITEM_DONE && (rc = input_next(p->in, &what, err)) == 0)
        rc = pass_record(p, what, err);
    if (rc)
        tu_err_prefix(err, "%s", path);
    input_close(p->in);
    coded_forget(p->coded);
    return rc;
}
