/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c: block names as vLLM and sglang compute them. The digests were made by Python's
 * pickle and cbor2 with hashlib. */
#include <stdlib.h>
#include <tensorutils/kv/hash.h>
#include "../tap.h"

static const struct tu_kv_scheme *scheme(const char *name)
{
    const struct tu_kv_scheme *s = NULL;
    if (tu_kv_scheme_find(&s, name, NULL))
        abort();
    return s;
}

static int32_t *run(int32_t first, uint64_t n)
{
    static int32_t t[64];
    for (uint64_t i = 0; i < n; i++)
        t[i] = first + (int32_t)i;
    return t;
}

static void check(const char *what, const char *name, const struct tu_kv_hash_how *how,
                  const int32_t *tokens, uint64_t n, const char *first, const char *second)
{
    const char *want[] = {first, second};
    unsigned char digest[16][32];
    char hex[65];
    const struct tu_kv_scheme *s = scheme(name);
    ok(!tu_kv_hash_blocks(s, how, tokens, n, digest[0], NULL), "%s", what);
    for (int i = 0; i < 2 && want[i]; i++) {
        tu_kv_hash_hex(digest[i], s->size, hex);
        eq_str(hex, want[i], "%s: block %d", what, i);
    }
}

static void root(const char *what, const char *name, const char *seed, const char *salt,
                 const char *want)
{
    struct tu_kv_hash_how how = {.seed = seed, .salt = salt};
    unsigned char out[32];
    unsigned n;
    const char *text;
    char hex[65];
    ok(!tu_kv_hash_root(scheme(name), &how, out, &n, &text, NULL), "%s", what);
    tu_kv_hash_hex(out, n, hex);
    eq_str(hex, want, "%s", what);
}

static void vllm(void)
{
    static const int32_t wide[] = {200, 256, 257, 65535, 65536, 100000, 1, 2,
                                   3,   4,   5,   6,     7,     8,      9, 10};
    struct tu_kv_hash_how how = {.block = 16};
    root("pickle NONE", "vllm-sha256", NULL, NULL,
         "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198");
    check("pickle 1..32", "vllm-sha256", &how, run(1, 32), 32,
          "7b255da405e1d722823892e4fef187b4d8ac78215d7f0dd2137bb037547f4caf",
          "8e717becdc2054b7a3223b7b844f462c0db0ac86287b752b16d077ad0843c577");
    check("pickle, wide tokens", "vllm-sha256", &how, wide, 16,
          "d0f480c6b23b22b4a79f983ec7149093266db72da4f1886b0e42438ec205c223", NULL);
    how.lora = "my-lora";
    check("pickle, LoRA", "vllm-sha256", &how, run(1, 16), 16,
          "ab3aa96cb6fa5ea95068fc0a334ac1368ce0384d20a3cb7589401bc3f139472f", NULL);
    how.lora = NULL;
    root("cbor NONE", "vllm-cbor", NULL, NULL,
         "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0");
    check("cbor 1..32", "vllm-cbor", &how, run(1, 32), 32,
          "cd7c51bc5a8fc8643f383a2b9e01522fba7473c669e9270c7b0bf7bf7fd01682",
          "2533ea50426b36e9e4d68296cac6bce8cf602e46957d0fe40b368b33d87bf3bf");
    root("cbor NONE, seed 0", "vllm-cbor", "0", NULL,
         "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e");
    how.seed = "0";
    check("cbor, seed 0", "vllm-cbor", &how, run(1, 32), 32,
          "202da172482d928bbc42ab25b0151e2b895f13f41002e27b2ceabcfae6d332ea",
          "4a0a393805c6d2f0ed831000d41bb65980336c4c04895d5e26470bbec927f5bf");
    unsigned char d[2][32];
    ok(!tu_kv_hash_blocks(scheme("vllm-cbor"), &how, run(1, 32), 32, d[0], NULL), "again");
    eq_int(tu_kv_hash_event(scheme("vllm-cbor"), d[0]), INT64_C(3236607068019569386),
           "low 64 bits");
    how.lora = "my-lora";
    check("cbor, LoRA", "vllm-cbor", &how, run(1, 32), 32,
          "07df9ef1b6800860b8c8d385e23a8a5b0eba8e3b5390de25d657793dd7c611fd",
          "e7ac5f1857e4b45c77b98c91765ba91d9be68cdb7ea2ae585b3129c227bf6f96");
    how.lora = NULL;
    how.salt = "salt-xyz";
    check("cbor, salt", "vllm-cbor", &how, run(1, 32), 32,
          "38d6ec5b48c7cce7025e2b7cfc39b16e19738d197e39075f02528859e5b01608",
          "dc89025b17f88d89f00dd3fa088312a793ef8c97bf7f3ab74061d1d1a8d70e10");
    how.salt = NULL;
    struct tu_kv_item image = {"img0", 3, 4};
    how.items = 1;
    how.item = &image;
    check("cbor, image", "vllm-cbor", &how, run(1, 16), 16,
          "fe8173b41fe14937d9658320000b3fb327e56dd8193aa1910156d40bb3f5e395", NULL);
    how.items = 0;
    how.block = 4;
    check("cbor, B 4", "vllm-cbor", &how, run(1, 8), 8,
          "c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb",
          "24125b23e68883b5c2141db2959d48433fe6bde2f26bd914efad121d154ab2d6");
    how = (struct tu_kv_hash_how){.block = 16, .seed = "42"};
    check("cbor, seed 42", "vllm-cbor", &how, run(1, 16), 16,
          "476e88fb0c175c0b4ef0343e158b5157c2ac537d37d97830e235fcc84bc5706d", NULL);
    how.seed = "";
    check("cbor, empty seed", "vllm-cbor", &how, run(100, 16), 16,
          "395ce8b0ecdc4fb83c1a25adde21e8f999379536c08ff8072e9859e0cb60c5c8", NULL);
}

static void sglang(void)
{
    struct tu_kv_hash_how how = {.block = 4};
    check("sglang", "sglang", &how, run(1, 8), 8,
          "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72",
          "4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6");
    unsigned char d[2][32];
    ok(!tu_kv_hash_blocks(scheme("sglang"), &how, run(1, 8), 8, d[0], NULL), "again");
    eq_int(tu_kv_hash_event(scheme("sglang"), d[0]), INT64_C(-3488128144981237669), "event");
    eq_int(tu_kv_hash_event(scheme("sglang"), d[1]), INT64_C(5674439469042975057), "event");
    root("sglang namespace", "sglang", NULL, "s",
         "c825a7fb5423c8a6cc5990d09f8ca69181b05fdffd804c10db403e9e52699f6b");
}

static void refused(void)
{
    struct tu_kv_hash_how how = {.block = 0};
    unsigned char *d = malloc(1 << 20);
    int32_t *t = calloc(1 << 20, sizeof *t), bad[] = {1, -2, 3, 4};
    struct tu_err e;
    const struct tu_kv_scheme *s = scheme("vllm-sha256");
    eq_int(tu_kv_hash_blocks(s, &how, t, 16, d, &e), TU_EUSAGE, "blocks of 0");
    how.block = 1 << 15;
    eq_int(tu_kv_hash_blocks(s, &how, t, 1 << 15, d, &e), TU_EUSAGE, "past a pickle's frame");
    how.block = 4;
    eq_int(tu_kv_hash_blocks(s, &how, bad, 4, d, &e), TU_EFORMAT, "negative token");
    eq_int(tu_kv_hash_blocks(scheme("vllm-xxhash"), &how, t, 4, d, &e), TU_EUSAGE,
           "xxhash without a seed is random");
    free(d);
    free(t);
}

int main(void)
{
    vllm();
    sglang();
    refused();
    return tap_done();
}
