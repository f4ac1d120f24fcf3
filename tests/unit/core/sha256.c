/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 against the examples of FIPS 180-4 (NIST's SHA256.pdf and the million a's). */
#include "../tap.h"
#include "tensorutils/core/cpu.h"
#include "tensorutils/core/mem.h"
#include "tensorutils/core/sha256.h"

static const char *hex_of(struct tu_sha256 *s)
{
    static char hex[TU_SHA256_HEX];
    unsigned char digest[TU_SHA256_SIZE];
    tu_sha256_end(s, digest);
    tu_sha256_hex(digest, hex);
    return hex;
}

/* Every number of streams at once, each its own bytes, from every offset within a block,
 * over none to several blocks. */
static void check_each(const char *isa)
{
    enum { MOST = 2 * TU_SHA256_STREAMS + 3 };
    struct tu_sha256 *s[MOST];
    const void *p[MOST];
    static char a[MOST][500], want[MOST][TU_SHA256_HEX];
    for (int k = 0; k < MOST; k++) {
        s[k] = tu_sha256_new(NULL);
        for (size_t i = 0; i < sizeof a[k]; i++)
            a[k][i] = (char)(i * 7 + (size_t)k * 31 + i * i * (size_t)k);
        p[k] = a[k] + 70 + k;
    }
    for (size_t streams = 0; streams <= MOST; streams++) {
        bool same = true;
        for (size_t head = 0; head < 70; head += streams % 4 == 3 ? 1 : 64)
            for (size_t n = 0; n < 390; n += 37) {
                for (size_t k = 0; k < streams; k++) {
                    tu_sha256_add(s[k], a[k], head);
                    tu_sha256_add(s[k], p[k], n);
                    strcpy(want[k], hex_of(s[k]));
                    tu_sha256_add(s[k], a[k], head);
                }
                tu_sha256_add_each(s, p, streams, n);
                for (size_t k = 0; k < streams; k++)
                    same = same && !strcmp(hex_of(s[k]), want[k]);
            }
        ok(same, "%zu at once, as one after the other (%s)", streams, isa);
    }
    for (int k = 0; k < MOST; k++)
        tu_sha256_free(s[k]);
}

int main(void)
{
    struct tu_sha256 *s = tu_sha256_new(NULL);
    eq_str(hex_of(s), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
           "nothing");
    tu_sha256_add(s, "abc", 3);
    eq_str(hex_of(s), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
           "abc");
    tu_sha256_add(s, "abcdbcdecdefdefgefghfghighijhi", 30);
    tu_sha256_add(s, "jkijkljklmklmnlmnomnopnopq", 26);
    eq_str(hex_of(s), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
           "two blocks in two pieces, after a digest");
    char a[1000];
    memset(a, 'a', sizeof a);
    for (int i = 0; i < 1000; i++)
        tu_sha256_add(s, a, sizeof a);
    eq_str(hex_of(s), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
           "a million a's");
    check_each("all that the CPU has");
    const uint32_t pair = (uint32_t)TU_CPU_SHA | TU_CPU_SSE42;
    if ((tu_cpu_bits() & pair) == pair && !tu_cpu_narrow("sse4.2,sha", NULL))
        check_each("pairs");
    if (!tu_cpu_narrow("scalar", NULL))
        check_each("one by one");
    tu_sha256_free(s);
    tu_sha256_free(NULL);
    struct tu_err err;
    tu_mem_inject(1, 0);
    ok(!tu_sha256_new(&err) && err.code == TU_ENOMEM, "no memory");
    tu_mem_inject(0, 0);
    return tap_done();
}
