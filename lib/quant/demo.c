/* SPDX-License-Identifier: Apache-2.0 */
/* demo.c: DeMo's codec: the largest coefficients of chunks of the momentum. Source:
 * bloc97/DeMo demo.py. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "families.h"
#include "tensorutils/quant/gradient.h"

enum { SIDE = 64, AREA = SIDE * SIDE };

void tu_dct(const double *in, double *out, uint64_t n, bool inverse)
{
    const double pi = 3.14159265358979323846;
    for (uint64_t k = 0; k < n; k++) {
        double sum = 0;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t wave = inverse ? i : k, at = inverse ? k : i;
            double unit = sqrt((wave ? 2.0 : 1.0) / (double)n);
            sum += in[i] * unit *
                   cos(pi * (double)wave * (2 * (double)at + 1) / (2 * (double)n));
        }
        out[k] = sum;
    }
}

static uint64_t divisor(uint64_t n)
{
    uint64_t d = n < SIDE ? n : SIDE;
    while (d > 1 && n % d)
        d--;
    return tu_max(d, 1);
}

int tu_demo_init(struct tu_demo *d, uint64_t rows, uint64_t cols, unsigned top,
                 struct tu_err *err)
{
    uint64_t n;
    *d = (struct tu_demo){
        .rows = rows, .cols = cols, .h = divisor(rows), .w = divisor(cols)};
    if (!top || tu_mul_over(rows, cols, &n) || n >= TU_SIZE_MAX)
        return tu_fail(err, TU_EUSAGE, "top %u of %" PRIu64 " by %" PRIu64, top, rows,
                       cols);
    d->chunks = n / (d->h * d->w);
    d->top = (unsigned)tu_min(top, d->h * d->w);
    return 0;
}

/* The transforms of a basis, made once: t [n, n], row k is the k-th wave. */
static void make_basis(uint64_t n, double *t)
{
    double one[SIDE] = {0}, col[SIDE];
    for (uint64_t i = 0; i < n; i++) {
        one[i] = 1;
        tu_dct(one, col, n, false);
        one[i] = 0;
        for (uint64_t k = 0; k < n; k++)
            t[k * n + i] = col[k];
    }
}

struct basis {
    double down[AREA], across[AREA], half[AREA];
};

/* Both directions of a chunk in place: waves of x, or what waves sum up to. */
static void transform(const struct tu_demo *d, struct basis *b, double *x, bool inverse)
{
    for (uint64_t i = 0; i < d->h; i++)
        for (uint64_t k = 0; k < d->w; k++) {
            double sum = 0;
            for (uint64_t j = 0; j < d->w; j++)
                sum += x[i * d->w + j] * b->across[inverse ? j * d->w + k : k * d->w + j];
            b->half[i * d->w + k] = sum;
        }
    for (uint64_t k = 0; k < d->h; k++)
        for (uint64_t j = 0; j < d->w; j++) {
            double sum = 0;
            for (uint64_t i = 0; i < d->h; i++)
                sum += b->half[i * d->w + j] *
                       b->down[inverse ? i * d->h + k : k * d->h + i];
            x[k * d->w + j] = sum;
        }
}

/* Element e of chunk c in the matrix. */
static uint64_t element(const struct tu_demo *d, uint64_t c, uint64_t e)
{
    uint64_t across = d->cols / d->w, i = c / across * d->h + e / d->w;
    return i * d->cols + c % across * d->w + e % d->w;
}

/* Move the largest coefficients of x out: in x only they stay. */
static void pick(const struct tu_demo *d, double *x, uint32_t *index, float *value)
{
    double kept[AREA] = {0};
    uint64_t n = d->h * d->w;
    for (unsigned k = 0; k < d->top; k++) {
        uint64_t best = 0;
        double most = -1;
        for (uint64_t e = 0; e < n; e++)
            if (kept[e] == 0 && fabs(x[e]) > most) {
                most = fabs(x[e]);
                best = e;
            }
        index[k] = (uint32_t)best;
        value[k] = (float)x[best];
        kept[best] = 1;
    }
    memset(x, 0, (size_t)n * sizeof *x);
    for (unsigned k = 0; k < d->top; k++)
        x[index[k]] = (double)value[k];
}

static struct basis *new_basis(const struct tu_demo *d, struct tu_err *err)
{
    struct basis *b = tu_alloc(1, sizeof *b, err);
    if (b) {
        make_basis(d->h, b->down);
        make_basis(d->w, b->across);
    }
    return b;
}

int tu_demo_send(const struct tu_demo *d, float decay, float rate, const float *g,
                 float *delta, uint32_t *index, float *value, struct tu_err *err)
{
    struct basis *b = new_basis(d, err);
    double x[AREA];
    if (!b)
        return TU_ENOMEM;
    for (uint64_t i = 0; i < d->rows * d->cols; i++)
        delta[i] = decay * delta[i] + rate * g[i];
    for (uint64_t c = 0; c < d->chunks; c++, index += d->top, value += d->top) {
        for (uint64_t e = 0; e < d->h * d->w; e++)
            x[e] = (double)delta[element(d, c, e)];
        transform(d, b, x, false);
        pick(d, x, index, value);
        transform(d, b, x, true);
        for (uint64_t e = 0; e < d->h * d->w; e++)
            delta[element(d, c, e)] -= (float)x[e];
    }
    tu_free(b);
    return 0;
}

int tu_demo_receive(const struct tu_demo *d, const uint32_t *index, const float *value,
                    unsigned workers, float *update, struct tu_err *err)
{
    struct basis *b = new_basis(d, err);
    double x[AREA];
    unsigned sent[AREA];
    int rc = b ? 0 : TU_ENOMEM;
    for (uint64_t c = 0; !rc && c < d->chunks; c++) {
        uint64_t n = d->h * d->w;
        memset(x, 0, sizeof x);
        memset(sent, 0, sizeof sent);
        for (unsigned w = 0; w < workers; w++)
            for (unsigned k = 0; k < d->top; k++) {
                uint64_t at = (w * d->chunks + c) * d->top + k;
                if (index[at] >= n) {
                    rc = tu_fail(err, TU_EFORMAT,
                                 "chunk %" PRIu64 ": index %" PRIu32 " of %" PRIu64, c,
                                 index[at], n);
                    goto out;
                }
                x[index[at]] += (double)value[at];
                sent[index[at]]++;
            }
        for (uint64_t e = 0; e < n; e++)
            x[e] = sent[e] ? x[e] / sent[e] : 0;
        transform(d, b, x, true);
        for (uint64_t e = 0; e < n; e++)
            update[element(d, c, e)] = (float)x[e];
    }
out:
    tu_free(b);
    return rc;
}

/* The codec: coefficients of the tensor itself; feedback with a decay makes it DeMo's ------- */

static int plan(struct tu_coding *c, const struct tu_spec *spec, struct tu_err *err)
{
    struct tu_demo d;
    uint64_t top;
    int rc = tu_spec_u64(spec, "top", 32, &top, err);
    if (!rc)
        rc = tu_demo_init(&d, c->rows, c->cols, (unsigned)tu_min(top, AREA), err);
    if (rc) {
        tu_err_prefix(err, "codec 'demo'");
        return rc;
    }
    c->param[0] = d.top;
    c->atom = tu_max(c->elements, 1);
    c->code = (struct tu_part){.dtype = TU_F32,
                               .rank = 2,
                               .dim = {d.chunks, d.top},
                               .atom_bytes = d.chunks * d.top * 4};
    c->side[0] = (struct tu_part){
        .suffix = "index", .dtype = TU_U16, .rank = 2, .dim = {d.chunks, d.top}};
    c->sides = 1;
    return 0;
}

static int encode(const struct tu_coding *c, uint64_t first, size_t n, const float *x,
                  void *code, void *const *side, struct tu_err *err)
{
    struct tu_demo d;
    (void)first;
    int rc = tu_demo_init(&d, c->rows, c->cols, (unsigned)c->param[0], err);
    if (rc)
        return rc;
    const size_t sent = (size_t)(d.chunks * d.top);
    uint32_t *index = tu_alloc(sent, sizeof *index, err);
    float *delta = index ? tu_calloc(n, sizeof *delta, err) : NULL;
    rc = delta ? tu_demo_send(&d, 0, 1, x, delta, index, code, err) : TU_ENOMEM;
    for (size_t i = 0; !rc && i < sent; i++)
        tu_put16((unsigned char *)side[0] + 2 * i, (uint16_t)index[i]);
    tu_free(delta);
    tu_free(index);
    return rc;
}

static int decode(const struct tu_coding *c, uint64_t first, size_t n, const void *code,
                  const void *const *side, float *x, struct tu_err *err)
{
    struct tu_demo d;
    (void)first;
    (void)n;
    int rc = tu_demo_init(&d, c->rows, c->cols, (unsigned)c->param[0], err);
    if (rc)
        return rc;
    const size_t sent = (size_t)(d.chunks * d.top);
    uint32_t *index = tu_alloc(sent, sizeof *index, err);
    if (!index)
        return TU_ENOMEM;
    for (size_t i = 0; i < sent; i++)
        index[i] = tu_le16((const unsigned char *)side[0] + 2 * i);
    rc = tu_demo_receive(&d, index, code, 1, x, err);
    tu_free(index);
    return rc;
}

static const char *const key[] = {"top", NULL};

const struct tu_codec tui_codecs_demo[] = {
    {.name = "demo",
     .help = "DeMo: the largest waves of chunks up to 64 by 64, for feedback with a decay",
     .source = "B. Peng et al., \"DeMo\", 2024",
     .key = key,
     .plan = plan,
     .encode = encode,
     .decode = decode},
    {.name = NULL},
};
