/* SPDX-License-Identifier: Apache-2.0 */
/* imatrix.c: importance matrices as llama.cpp writes them.
 *
 * Older format: i32 entries; of each: i32 length, name, i32 calls, i32 n, f32[n]
 * (sums, divided by the calls). GGUF: tensors NAME.in_sum2 [groups, n] and NAME.counts
 * [groups]. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "imatrix.h"
#include "tensorutils/format.h"
#include "tensorutils/model.h"
#include "tensorutils/quant.h"

#define MOST (UINT64_C(1) << 28) /* weights of an entry */

static int add(struct tu_imatrix *m, const char *name, size_t len, uint64_t n,
               float **weight, struct tu_err *err)
{
    if (n == 0 || n > MOST)
        return tu_fail(err, TU_EFORMAT,
                       "'%.80s': %" PRIu64 " weights, expected 1 to 2^28", name, n);
    int rc = TU_GROW(&m->entry, &m->cap, m->n, err);
    if (rc)
        return rc;
    struct tui_importance *e = &m->entry[m->n];
    *weight = tu_arena_alloc(m->arena, (size_t)n, sizeof **weight, err);
    e->name = tu_arena_text(m->arena, name, len, err);
    if (!*weight || !e->name)
        return TU_ENOMEM;
    e->weight = *weight;
    e->n = n;
    e->count = 1;
    m->n++;
    return 0;
}

static int check(const struct tui_importance *e, struct tu_err *err)
{
    for (uint64_t i = 0; i < e->n; i++)
        if (!isfinite(e->weight[i]) || e->weight[i] < 0)
            return tu_fail(err, TU_EUNSUP, "'%.80s': weight %" PRIu64 " is %g", e->name,
                           i, (double)e->weight[i]);
    return 0;
}

static int read_i32(struct tu_in *in, uint32_t *v, struct tu_err *err)
{
    unsigned char b[4];
    int rc = tu_in_exact(in, b, 4, err);
    *v = tu_le32(b);
    return rc;
}

static int read_entry(struct tu_imatrix *m, struct tu_in *in, struct tu_err *err)
{
    uint32_t len, calls, n;
    char name[1024];
    float *w;
    int rc = read_i32(in, &len, err);
    if (!rc && (len == 0 || len >= sizeof name))
        return tu_fail_at(err, TU_EFORMAT, tu_in_pos(in), "name of %" PRIu32 " bytes",
                          len);
    if (rc || (rc = tu_in_exact(in, name, len, err)))
        return rc;
    name[len] = '\0';
    if ((rc = read_i32(in, &calls, err)) || (rc = read_i32(in, &n, err)))
        return rc;
    if (tu_in_seekable(in) && n > tu_in_size(in) / sizeof *w)
        return tu_fail(err, TU_ETRUNC, "'%.80s': %" PRIu32 " weights are not in the file",
                       name, n);
    if ((rc = add(m, name, len, n, &w, err)) ||
        (rc = tu_in_exact(in, w, n * sizeof *w, err)))
        return rc;
    for (uint32_t i = 0; i < n; i++)
        w[i] = calls ? w[i] / (float)calls : 1;
    return check(&m->entry[m->n - 1], err);
}

static int read_older(struct tu_imatrix *m, struct tu_in *in, struct tu_err *err)
{
    uint32_t n;
    int rc = read_i32(in, &n, err);
    if (!rc && (n == 0 || n > 1u << 20))
        return tu_fail(err, TU_EFORMAT, "%" PRIu32 " entries: not an importance matrix",
                       n);
    while (!rc && n--)
        rc = read_entry(m, in, err);
    return rc;
}

#define SUMS ".in_sum2"

static int read_sums(struct tu_imatrix *m, struct tu_source *s, size_t i,
                     struct tu_err *err)
{
    const struct tu_tensor *t = &s->tensor[i];
    size_t len = strlen(t->name) - strlen(SUMS);
    char name[1100];
    if (len >= 1024 || t->dtype != TU_F32 || t->rank == 0)
        return tu_fail(err, TU_EFORMAT, "'%.80s': expected f32", t->name);
    snprintf(name, sizeof name, "%.*s.counts", (int)len, t->name);
    size_t k = tu_source_find(s, name);
    uint64_t n = t->bytes / sizeof(float), per = t->dim[t->rank - 1];
    if (k == SIZE_MAX || s->tensor[k].dtype != TU_F32 || per == 0 ||
        s->tensor[k].bytes != n / per * sizeof(float))
        return tu_fail(err, TU_EFORMAT, "'%.80s': no counts that fit", t->name);
    float *w;
    int rc = add(m, t->name, len, n, &w, err);
    if (!rc)
        rc = tu_source_read(s, i, 0, w, (size_t)t->bytes, err);
    for (uint64_t g = 0; !rc && g < n / per; g++) {
        float count;
        rc = tu_source_read(s, k, g * sizeof count, &count, sizeof count, err);
        for (uint64_t j = 0; j < per; j++)
            w[g * per + j] = count > 0 ? w[g * per + j] / count : 1;
    }
    return rc ? rc : check(&m->entry[m->n - 1], err);
}

static int read_gguf(struct tu_imatrix *m, const char *path, const struct tu_job *job,
                     struct tu_err *err)
{
    struct tu_source *s;
    const struct tu_open how = {.strict = false};
    int rc = tu_source_open(&s, path, NULL, &how, job, err);
    if (rc)
        return rc;
    for (size_t i = 0; !rc && i < s->n; i++) {
        size_t len = strlen(s->tensor[i].name);
        if (len > strlen(SUMS) &&
            strcmp(s->tensor[i].name + len - strlen(SUMS), SUMS) == 0)
            rc = read_sums(m, s, i, err);
    }
    if (!rc && m->n == 0)
        rc = tu_fail(err, TU_EFORMAT,
                     "no tensor ends in " SUMS ": not an importance matrix");
    tu_source_close(s);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    const struct tui_importance *x = a, *y = b;
    return strcmp(x->name, y->name);
}

int tu_imatrix_new(struct tu_imatrix **out, struct tu_err *err)
{
    struct tu_imatrix *m = tu_calloc(1, sizeof *m, err);
    if (!m || !(m->arena = tu_arena_new(err))) {
        tu_imatrix_free(m);
        return TU_ENOMEM;
    }
    *out = m;
    return 0;
}

int tu_imatrix_add(struct tu_imatrix *m, const char *name, const float *w, uint64_t n,
                   uint64_t count, struct tu_err *err)
{
    struct tu_buf gguf = {0};
    float *own;
    bool yes = false;
    int rc = tu_gguf_name(&gguf, name, &yes, err);
    if (!rc && yes)
        name = gguf.data;
    if (!rc && !(rc = add(m, name, strlen(name), n, &own, err))) {
        memcpy(own, w, (size_t)n * sizeof *w);
        m->entry[m->n - 1].count = count;
        rc = check(&m->entry[m->n - 1], err);
        qsort(m->entry, m->n, sizeof *m->entry, by_name);
    }
    tu_buf_release(&gguf);
    return rc;
}

int tu_imatrix_open(struct tu_imatrix **out, const char *path, const struct tu_job *job,
                    struct tu_err *err)
{
    struct tu_in *in = NULL;
    unsigned char head[4] = {0};
    size_t got;
    struct tu_imatrix *m;
    int rc = tu_imatrix_new(&m, err);
    if (rc)
        return rc;
    if (!(rc = tu_in_open(&in, path, err)))
        rc = tu_in_peek(in, head, sizeof head, &got, err);
    if (!rc && memcmp(head, "GGUF", 4) == 0)
        rc = read_gguf(m, path, job, err);
    else if (!rc && (rc = read_older(m, in, err)))
        tu_err_prefix(err, "%s", path);
    tu_in_close(in);
    if (rc) {
        tu_imatrix_free(m);
        return rc;
    }
    qsort(m->entry, m->n, sizeof *m->entry, by_name);
    *out = m;
    return 0;
}

void tu_imatrix_free(struct tu_imatrix *m)
{
    if (!m)
        return;
    tu_arena_free(m->arena);
    tu_free(m->entry);
    tu_free(m);
}

size_t tu_imatrix_count(const struct tu_imatrix *m)
{
    return m->n;
}

static const struct tui_importance *find(const struct tu_imatrix *m, const char *name)
{
    const struct tui_importance key = {.name = name};
    return m->n ? bsearch(&key, m->entry, m->n, sizeof key, by_name) : NULL;
}

/* llama.cpp's matrices know GGUF's names. */
const float *tu_imatrix_find(const struct tu_imatrix *m, const char *name, uint64_t *n)
{
    const struct tui_importance *e = find(m, name);
    struct tu_buf gguf = {0};
    bool yes = false;
    if (!e && !tu_gguf_name(&gguf, name, &yes, NULL) && yes)
        e = find(m, gguf.data);
    tu_buf_release(&gguf);
    *n = e ? e->n : 0;
    return e ? e->weight : NULL;
}

uint64_t tu_importance_repair(float *w, uint64_t n, uint64_t group)
{
    uint64_t repaired = 0;
    for (uint64_t i = 0; i < n; i += group) {
        uint64_t k = tu_min(group, n - i), j = 0;
        while (j < k && w[i + j] == 0)
            j++;
        if (j < k)
            continue;
        for (j = 0; j < k; j++)
            w[i + j] = 1;
        repaired++;
    }
    return repaired;
}
