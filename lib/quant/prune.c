/* SPDX-License-Identifier: Apache-2.0 */
/* prune.c: choosing the weights to keep: N of M by a score, and the scores. What stores
 * the rest compactly: sparse.c, bsr.c. */
#include <inttypes.h>
#include <math.h>
#include "prune.h"
#include "tensorutils/quant/sparse.h"

/* Each of a pair is above the other or is not: no branch on what cannot be guessed. */
static inline void keep_nm(const float *score, size_t stride, unsigned n, unsigned m,
                           bool *keep)
{
    unsigned char above[TUI_M_MAX] = {0};
    for (unsigned i = 0; i < m; i++)
        for (unsigned j = i + 1; j < m; j++) {
            const bool later = score[j * stride] > score[i * stride];
            above[i] = (unsigned char)(above[i] + later);
            above[j] = (unsigned char)(above[j] + !later);
        }
    for (unsigned i = 0; i < m; i++)
        keep[i] = above[i] < n;
}

void tui_keep_nm(const float *score, size_t stride, unsigned n, unsigned m, bool *keep)
{
    if (m == 4 && stride == 1) /* the usual one, unrolled */
        keep_nm(score, 1, n, 4, keep);
    else
        keep_nm(score, stride, n, m, keep);
}

int tu_prune_nm(float *x, const float *score, uint64_t rows, uint64_t cols, unsigned n,
                unsigned m, bool down, struct tu_err *err)
{
    uint64_t along = down ? rows : cols, lines = down ? cols : rows;
    size_t step = down ? (size_t)cols : 1;
    float own[TUI_M_MAX];
    bool keep[TUI_M_MAX];
    if (!m || m > TUI_M_MAX || n > m)
        return tu_fail(err, TU_EUSAGE, "%u of %u: from 1 of 1 to %u of %u", n, m,
                       TUI_M_MAX, TUI_M_MAX);
    if (along % m)
        return tu_fail(err, TU_EUSAGE, "dimension of %" PRIu64 " is no multiple of %u",
                       along, m);
    for (uint64_t line = 0; line < lines; line++) {
        for (uint64_t g = 0; g < along; g += m) {
            uint64_t at = down ? g * cols + line : line * cols + g;
            for (unsigned i = 0; i < m; i++)
                own[i] = score ? score[at + i * step] : fabsf(x[at + i * step]);
            tui_keep_nm(own, 1, n, m, keep);
            for (unsigned i = 0; i < m; i++)
                if (!keep[i])
                    x[at + i * step] = 0;
        }
    }
    return 0;
}

void tu_score_wanda(const float *w, const double *input_sq, uint64_t rows, uint64_t cols,
                    float *score)
{
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < cols; j++)
            score[i * cols + j] =
                (float)(fabs((double)w[i * cols + j]) * sqrt(input_sq[j]));
}

void tu_score_obs(const float *w, const double *diagonal, uint64_t rows, uint64_t cols,
                  float *score)
{
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < cols; j++) {
            double v = (double)w[i * cols + j] / diagonal[j];
            score[i * cols + j] = (float)(v * v);
        }
}
