/* SPDX-License-Identifier: Apache-2.0 */
/* crc32.c: CRC-32 by tables, and its algebra.
 *
 * A CRC is a polynomial over GF(2) modulo p; bit 31 of a word is the coefficient of x^0
 * (the "reflected" order). Appending n bytes multiplies by x^(8n), so combining, zeros
 * and the parts of a text are one product. Tables are made by the preprocessor: the CRC
 * is linear, so an entry is the sum of eight powers of x, one per bit of its index. */
#include <stdatomic.h>
#include "crc32_x86.h"
#include "tensorutils/core/bytes.h"
#include "tensorutils/core/crc32.h"
#include "tensorutils/core/pool.h"

#define POLY UINT32_C(0xEDB88320)

/* Entry i of a table whose powers of x, for bits 7 to 0 of the index, are the eight
 * arguments. */
#define ENTRY(i, a, b, c, d, e, f, g, h)                                                 \
    (((i) >> 7 & 1) * a ^ ((i) >> 6 & 1) * b ^ ((i) >> 5 & 1) * c ^ ((i) >> 4 & 1) * d ^ \
     ((i) >> 3 & 1) * e ^ ((i) >> 2 & 1) * f ^ ((i) >> 1 & 1) * g ^ ((i) & 1) * h)
#define E4(i, ...)                                                                       \
    ENTRY(i, __VA_ARGS__), ENTRY((i) + 1, __VA_ARGS__), ENTRY((i) + 2, __VA_ARGS__),     \
        ENTRY((i) + 3, __VA_ARGS__)
#define E16(i, ...)                                                                      \
    E4(i, __VA_ARGS__), E4((i) + 4, __VA_ARGS__), E4((i) + 8, __VA_ARGS__),              \
        E4((i) + 12, __VA_ARGS__)
#define E64(i, ...)                                                                      \
    E16(i, __VA_ARGS__), E16((i) + 16, __VA_ARGS__), E16((i) + 32, __VA_ARGS__),         \
        E16((i) + 48, __VA_ARGS__)
#define TABLE(...)                                                                       \
    {                                                                                    \
        E64(0u, __VA_ARGS__), E64(64u, __VA_ARGS__), E64(128u, __VA_ARGS__),             \
            E64(192u, __VA_ARGS__)                                                       \
    }

/* table[k][i]: the byte i and k zero bytes. Row k holds x^(32+8k) to x^(39+8k). */
static const uint32_t table[16][256] = {
    TABLE(0xedb88320u, 0x76dc4190u, 0x3b6e20c8u, 0x1db71064u, 0x0edb8832u,
          0x076dc419u, 0xee0e612cu, 0x77073096u),
    TABLE(0x3b83984bu, 0xf0794f05u, 0x958424a2u, 0x4ac21251u, 0xc8d98a08u,
          0x646cc504u, 0x32366282u, 0x191b3141u),
    TABLE(0xe1351b80u, 0x709a8dc0u, 0x384d46e0u, 0x1c26a370u, 0x0e1351b8u,
          0x0709a8dcu, 0x0384d46eu, 0x01c26a37u),
    TABLE(0xed59b63bu, 0x9b14583du, 0xa032af3eu, 0x5019579fu, 0xc5b428efu,
          0x8f629757u, 0xaa09c88bu, 0xb8bc6765u),
    TABLE(0xb1e6b092u, 0x58f35849u, 0xc1c12f04u, 0x60e09782u, 0x30704bc1u,
          0xf580a6c0u, 0x7ac05360u, 0x3d6029b0u),
    TABLE(0x1eb014d8u, 0x0f580a6cu, 0x07ac0536u, 0x03d6029bu, 0xec53826du,
          0x9b914216u, 0x4dc8a10bu, 0xcb5cd3a5u),
    TABLE(0x8816eaf2u, 0x440b7579u, 0xcfbd399cu, 0x67de9cceu, 0x33ef4e67u,
          0xf44f2413u, 0x979f1129u, 0xa6770bb4u),
    TABLE(0x533b85dau, 0x299dc2edu, 0xf9766256u, 0x7cbb312bu, 0xd3e51bb5u,
          0x844a0efau, 0x4225077du, 0xccaa009eu),
    TABLE(0x6655004fu, 0xde920307u, 0x82f182a3u, 0xacc04271u, 0xbbd8a218u,
          0x5dec510cu, 0x2ef62886u, 0x177b1443u),
    TABLE(0xe6050901u, 0x9eba07a0u, 0x4f5d03d0u, 0x27ae81e8u, 0x13d740f4u,
          0x09eba07au, 0x04f5d03du, 0xefc26b3eu),
    TABLE(0x77e1359fu, 0xd64819efu, 0x869c8fd7u, 0xaef6c4cbu, 0xbac3e145u,
          0xb0d97382u, 0x586cb9c1u, 0xc18edfc0u),
    TABLE(0x60c76fe0u, 0x3063b7f0u, 0x1831dbf8u, 0x0c18edfcu, 0x060c76feu,
          0x03063b7fu, 0xec3b9e9fu, 0x9ba54c6fu),
    TABLE(0xa06a2517u, 0xbd8d91abu, 0xb37e4bf5u, 0xb407a6dau, 0x5a03d36du,
          0xc0b96a96u, 0x605cb54bu, 0xdd96d985u),
    TABLE(0x8373efe2u, 0x41b9f7f1u, 0xcd6478d8u, 0x66b23c6cu, 0x33591e36u,
          0x19ac8f1bu, 0xe16ec4adu, 0x9d0fe176u),
    TABLE(0x4e87f0bbu, 0xcafb7b7du, 0x88c53e9eu, 0x44629f4fu, 0xcf89cc87u,
          0x8a7c6563u, 0xa886b191u, 0xb9fbdbe8u),
    TABLE(0x5cfdedf4u, 0x2e7ef6fau, 0x173f7b7du, 0xe6273e9eu, 0x73139f4fu,
          0xd4314c87u, 0x87a02563u, 0xae689191u),
};

/* x^(2^k); x^(2^32) is x again, for p is primitive. */
static const uint32_t power[32] = {
    0x40000000, 0x20000000, 0x08000000, 0x00800000, 0x00008000, 0xedb88320,
    0xb1e6b092, 0xa06a2517, 0xed627dae, 0x88d14467, 0xd7bbfe6a, 0xec447f11,
    0x8e7ea170, 0x6427800e, 0x4d47bae0, 0x09fe548f, 0x83852d0f, 0x30362f1a,
    0x7b5a9cc3, 0x31fec169, 0x9fec022a, 0x6c8dedc4, 0x15d6874d, 0x5fde7a4e,
    0xbad90e37, 0x2e4e5eef, 0x4eaba214, 0xa8a472c0, 0x429a969e, 0x148d302a,
    0xc40ba6d0, 0xc4e22c3c,
};

static uint32_t crc32_plain(uint32_t crc, const unsigned char *p, size_t n)
{
    uint32_t c = ~crc;
    for (; n >= 16; n -= 16, p += 16) {
        uint32_t a = tu_le32(p) ^ c, b = tu_le32(p + 4);
        uint32_t d = tu_le32(p + 8), e = tu_le32(p + 12);
        c = table[15][a & 255] ^ table[14][a >> 8 & 255] ^ table[13][a >> 16 & 255] ^
            table[12][a >> 24] ^ table[11][b & 255] ^ table[10][b >> 8 & 255] ^
            table[9][b >> 16 & 255] ^ table[8][b >> 24] ^ table[7][d & 255] ^
            table[6][d >> 8 & 255] ^ table[5][d >> 16 & 255] ^ table[4][d >> 24] ^
            table[3][e & 255] ^ table[2][e >> 8 & 255] ^ table[1][e >> 16 & 255] ^
            table[0][e >> 24];
    }
    while (n--)
        c = c >> 8 ^ table[0][(c ^ *p++) & 255];
    return ~c;
}

/* A product modulo p. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;
    for (uint32_t bit = UINT32_C(1) << 31; bit; bit >>= 1) {
        sum ^= b & (0 - (uint32_t)((a & bit) != 0));
        b = b >> 1 ^ (POLY & (0 - (b & 1)));
    }
    return sum;
}

/* a times x^(8n). */
static uint32_t shift(uint32_t a, uint64_t n)
{
    for (unsigned k = 3; n && a; n >>= 1, k++)
        if (n & 1)
            a = multiply(power[k % 32], a);
    return a;
}

uint32_t tu_crc32_part(uint32_t run, uint64_t after)
{
    return shift(run, after);
}

uint32_t tu_crc32_combine(uint32_t a, uint32_t b, uint64_t n_b)
{
    return shift(a, n_b) ^ b;
}

uint32_t tu_crc32_zeros(uint32_t crc, uint64_t n)
{
    return ~shift(~crc, n);
}

#define ROW(name, needs, f) {name, needs, (tu_kernel_fn)(f)}

const struct tu_kernel tu_crc32_kernels[] = {
#if TUI_CRC32_X86
    ROW("vpclmul", TUI_CRC32_VPCLMUL_NEEDS, tui_crc32_vpclmul),
    ROW("pclmul", TUI_CRC32_PCLMUL_NEEDS, tui_crc32_pclmul),
#endif
    ROW("plain", 0, crc32_plain),
    {NULL, 0, NULL},
};

uint32_t tui_crc32_plain(uint32_t crc, const unsigned char *p, size_t n)
{
    return crc32_plain(crc, p, n);
}

uint32_t tu_crc32(uint32_t crc, const void *p, size_t n)
{
    /* Too short to fold. */
    if (n < 64)
        return crc32_plain(crc, p, n);
    const struct tu_kernel *row = tu_kernel_pick(tu_crc32_kernels, tu_cpu_bits());
    return ((tu_crc32_fn)row->fn)(crc, p, n);
}

#define TASK_BYTES ((size_t)1 << 20)

struct shared {
    const unsigned char *p;
    size_t n;
    _Atomic uint32_t sum; /* of the contributions, in whatever order they come */
};

static int add_task(void *ctx, uint64_t task, unsigned worker, struct tu_err *err)
{
    (void)worker;
    (void)err;
    struct shared *s = ctx;
    size_t from = (size_t)task * TASK_BYTES;
    size_t n = (size_t)tu_min(TASK_BYTES, s->n - from);
    uint32_t run = tu_crc32(0, s->p + from, n);
    atomic_fetch_xor(&s->sum, tu_crc32_part(run, s->n - from - n));
    return 0;
}

uint32_t tu_crc32_pool(uint32_t crc, const void *p, size_t n, struct tu_pool *pool)
{
    if (tu_pool_size(pool) == 1 || n < 2 * TASK_BYTES)
        return tu_crc32(crc, p, n);
    struct shared s = {.p = p, .n = n};
    int code = tu_pool_run(pool, tu_ceil_div(n, TASK_BYTES), add_task, &s, NULL);
    (void)code; /* the task cannot fail */
    return tu_crc32_combine(crc, s.sum, n);
}
