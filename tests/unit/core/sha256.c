/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 against the examples of FIPS 180-4 (NIST's SHA256.pdf and the million a's). */
#include "../tap.h"
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
    /* Two at once, from every offset within a block, over none to several blocks. */
    struct tu_sha256 *t = tu_sha256_new(NULL);
    char want[2][TU_SHA256_HEX];
    bool same = true;
    for (size_t head = 0; head < 70; head++)
        for (size_t n = 0; n < 400; n += 37) {
            for (size_t i = 0; i < sizeof a; i++)
                a[i] = (char)(i * 7 + head);
            for (int k = 0; k < 2; k++) {
                tu_sha256_add(s, a, head);
                tu_sha256_add(s, a + 100 * k + 300, n);
                strcpy(want[k], hex_of(s));
            }
            tu_sha256_add(s, a, head);
            tu_sha256_add(t, a, head);
            tu_sha256_add_pair(s, a + 300, t, a + 400, n);
            same = same && !strcmp(hex_of(s), want[0]) && !strcmp(hex_of(t), want[1]);
        }
    ok(same, "two at once, as one after the other");
    tu_sha256_free(t);
    tu_sha256_free(s);
    tu_sha256_free(NULL);
    struct tu_err err;
    tu_mem_inject(1, 0);
    ok(!tu_sha256_new(&err) && err.code == TU_ENOMEM, "no memory");
    tu_mem_inject(0, 0);
    return tap_done();
}
