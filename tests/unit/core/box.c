/* SPDX-License-Identifier: Apache-2.0 */
/* box.c: intersections by counting elements, copies, holes and overlaps by name. */
#include <tensorutils/core.h>
#include "../tap.h"

#define U(...) ((const uint64_t[]){__VA_ARGS__})
#define BOX1(o, l) {1, U(o), U(l)}
#define BOX2(o0, o1, l0, l1) {2, U(o0, o1), U(l0, l1)}

/* A 4x6 arange cut in two by columns, wanted in three: rank 1 is
 * [[2,3],[8,9],[14,15],[20,21]], of 4 runs of 4 bytes from each source. */
static void two_to_three(void)
{
    uint32_t source[2][4][3], out[4][2];
    for (uint32_t r = 0; r < 4; r++)
        for (uint32_t c = 0; c < 6; c++)
            source[c / 3][r][c % 3] = r * 6 + c;
    memset(out, 0xa5, sizeof out);
    struct tu_box want = BOX2(0, 2, 4, 2);
    struct tu_box part[2] = {BOX2(0, 0, 4, 3), BOX2(0, 3, 4, 3)};
    eq_u64(tu_box_copy(out, &want, source[0], &part[0], 4), 4, "4 elements of source 0");
    eq_u64(tu_box_copy(out, &want, source[1], &part[1], 4), 4, "4 elements of source 1");
    eq_mem(out, ((const uint32_t[]){2, 3, 8, 9, 14, 15, 20, 21}), sizeof out,
           "rank 1 of 3");
    struct tu_box other = BOX2(0, 4, 4, 2);
    eq_u64(tu_box_copy(out, &other, source[0], &part[0], 4), 0, "nothing in common");
}

/* Whether the point k (C order of dim) lies in b. */
static bool holds(const struct tu_box *b, const uint64_t *dim, uint64_t k)
{
    for (unsigned i = b->rank; i-- > 0; k /= dim[i])
        if (k % dim[i] < b->off[i] || k % dim[i] >= b->off[i] + b->len[i])
            return false;
    return true;
}

static void random_pairs(void)
{
    static const uint64_t dim[4] = {4, 5, 3, 6};
    enum { ALL = 4 * 5 * 3 * 6 };
    uint64_t seed = 1, off[4], len[4];
    bool meets = true, copies = true;
    for (unsigned round = 0; round < 3000; round++) {
        uint64_t o[2][4], l[2][4];
        unsigned rank = 1 + round % 4;
        for (unsigned k = 0; k < 2; k++)
            for (unsigned i = 0; i < rank; i++) {
                seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
                o[k][i] = (seed >> 33) % dim[i];
                l[k][i] =
                    round % 3 ? (seed >> 45) % (dim[i] - o[k][i] + 1) : dim[i] - o[k][i];
            }
        struct tu_box s = {rank, o[0], l[0]}, d = {rank, o[1], l[1]};
        uint16_t source[ALL], out[ALL];
        uint64_t whole = 1, common = 0, ns = 0, nd = 0;
        for (unsigned i = 0; i < rank; i++)
            whole *= dim[i];
        for (uint64_t k = 0; k < whole; k++) { /* an element is its number */
            if (holds(&s, dim, k))
                source[ns++] = (uint16_t)k;
            common += holds(&s, dim, k) && holds(&d, dim, k);
        }
        memset(out, 0xff, sizeof out);
        meets &= tu_box_meet(&s, &d, off, len) == (common > 0);
        copies &= tu_box_copy(out, &d, source, &s, 2) == common;
        for (uint64_t k = 0; k < whole; k++)
            if (holds(&d, dim, k))
                copies &= out[nd++] == (holds(&s, dim, k) ? k : 0xffff);
    }
    ok(meets, "meeting boxes have elements in common");
    ok(copies, "copies fill just the common part");
}

static void tile(const char *what, const struct tu_box *box, size_t n,
                 const uint64_t *dim, unsigned rank, const char *msg)
{
    struct tu_err err = {.msg = ""};
    int rc = tu_box_tile(box, n, dim, rank, &err);
    eq_int(rc, *msg ? TU_EINCOMPLETE : 0, "%s: code", what);
    eq_str(err.msg, msg, "%s: message", what);
}

static void tilings(void)
{
    const struct tu_box grid[] = {BOX2(0, 0, 2, 3), BOX2(0, 3, 2, 3),
                                  BOX2(2, 0, 2, 3), BOX2(2, 3, 2, 3)};
    tile("a grid", grid, 4, U(4, 6), 2, "");
    tile("its last piece missing", grid, 3, U(4, 6), 2,
         "element [2,3] is in none of 3 pieces");
    const struct tu_box first[] = {grid[1], grid[2], grid[3]};
    tile("its first piece missing", first, 3, U(4, 6), 2,
         "element [0,0] is in none of 3 pieces");
    const struct tu_box twice[] = {grid[0], grid[1], grid[2], grid[3], grid[1]};
    tile("a piece twice", twice, 5, U(4, 6), 2, "pieces 1 and 4 both hold element [0,3]");
    const struct tu_box hidden[] = {grid[0], grid[1], grid[2], grid[1]};
    tile("a piece twice and one missing", hidden, 4, U(4, 6), 2,
         "pieces 1 and 3 both hold element [0,3]");
    const struct tu_box wheel[] = {BOX2(0, 0, 1, 2), BOX2(0, 2, 2, 1), BOX2(2, 1, 1, 2),
                                   BOX2(1, 0, 2, 1), BOX2(1, 1, 1, 1)};
    tile("a pinwheel", wheel, 5, U(3, 3), 2, "");
    tile("without its middle", wheel, 4, U(3, 3), 2,
         "element [1,1] is in none of 4 pieces");
    const struct tu_box cross[] = {BOX2(0, 0, 2, 2), BOX2(1, 1, 2, 2)};
    tile("a crossing", cross, 2, U(3, 3), 2, "pieces 0 and 1 both hold element [1,1]");
    const struct tu_box past[] = {BOX2(0, 0, 2, 2), BOX2(1, 1, 2, 3)};
    tile("past the end", past, 2, U(3, 3), 2,
         "piece 1 reaches past dimension 1 (1+3 > 3)");
    const struct tu_box wrap[] = {BOX1(UINT64_MAX, 2)};
    tile("an offset that would wrap", wrap, 1, U(3), 1,
         "piece 0 reaches past dimension 0 (18446744073709551615+2 > 3)");
    const struct tu_box empty[] = {BOX1(0, 0), BOX1(0, 3), BOX1(3, 0), BOX1(1, 0)};
    tile("empty pieces do not matter", empty, 4, U(3), 1, "");
    tile("an empty tensor", NULL, 0, U(0, 5), 2, "");
    tile("no pieces", NULL, 0, U(2, 5), 2, "element [0,0] is in none of 0 pieces");
    const struct tu_box scalar[] = {{0, NULL, NULL}, {0, NULL, NULL}};
    tile("a scalar", scalar, 1, NULL, 0, "");
    tile("two of it", scalar, 2, NULL, 0, "pieces 0 and 1 both hold element []");
    tile("none of it", scalar, 0, NULL, 0, "element [] is in none of 0 pieces");
    const struct tu_box brick[] = {BOX2(0, 0, 3, 2), BOX2(3, 0, 1, 2),
                                   BOX2(0, 2, 1, 2), BOX2(1, 2, 3, 2)};
    tile("columns cut unevenly", brick, 4, U(4, 4), 2, "");
    const struct tu_box gap[] = {BOX1(0, 2), BOX1(5, 2), BOX1(3, 2)};
    tile("a gap", gap, 3, U(7), 1, "element [2] is in none of 3 pieces");
}

int main(void)
{
    two_to_three();
    random_pairs();
    tilings();
    return tap_done();
}
