/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c: block names of vLLM (pickle or CBOR, SHA-256 or XXH3-128) and of sglang.
 *
 * Source: vLLM v1/core/kv_cache_utils.py and utils/hashing.py; sglang
 * mem_cache/hicache_storage.py; Python's pickle protocol 5; RFC 8949. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tensorutils/kv/hash.h>
#include <xxhash.h>

enum form { PICKLE = 1, CBOR = 2, RAW = 4, PAIRS = 8, XXH = 16 };
enum { FRAME = 65536 }; /* pickle begins another frame there */

const struct tu_kv_scheme tu_kv_schemes[] = {
    {"vllm-sha256", "vLLM's default: SHA-256 of the pickle",
     "vLLM utils/hashing.py: sha256", 32, PICKLE},
    {"vllm-cbor", "vLLM's sha256_cbor: SHA-256 of canonical CBOR",
     "vLLM utils/hashing.py: sha256_cbor", 32, CBOR},
    {"vllm-xxhash", "vLLM's xxhash: XXH3-128 of the pickle",
     "vLLM utils/hashing.py: xxhash", 16, PICKLE | XXH},
    {"vllm-xxhash-cbor", "vLLM's xxhash_cbor: XXH3-128 of canonical CBOR",
     "vLLM utils/hashing.py: xxhash_cbor", 16, CBOR | XXH},
    {"sglang", "sglang's pages: SHA-256 of the name before and u32 ids",
     "sglang mem_cache/hicache_storage.py", 32, RAW},
    {"sglang-eagle", "the same over pairs of ids, for EAGLE's drafts",
     "sglang mem_cache/hicache_storage.py", 32, RAW | PAIRS},
    {NULL, NULL, NULL, 0, 0},
};

int tu_kv_scheme_find(const struct tu_kv_scheme **out, const char *name,
                      struct tu_err *err)
{
    char text[88];
    for (*out = tu_kv_schemes; (*out)->name; ++*out)
        if (!strcmp((*out)->name, name))
            return 0;
    return tu_fail(err, TU_EUSAGE, "hash '%s': unknown (see --list=hashes)",
                   tu_text_short(name, strlen(name), text));
}

/* Writing. The buffer has room for a block and its extras: see `room`. ------------------ */

struct out {
    unsigned char *at;
    bool pickle;
};

static inline void byte(struct out *o, unsigned v)
{
    *o->at++ = (unsigned char)v;
}

static void bytes(struct out *o, const void *p, size_t n)
{
    if (n)
        memcpy(o->at, p, n);
    o->at += n;
}

/* CBOR's head: the shortest form, big-endian. */
static inline void head(struct out *o, unsigned major, uint64_t v)
{
    unsigned more = v < 24 ? 0 : v < 256 ? 1 : v < 65536 ? 2 : v <= UINT32_MAX ? 4 : 8;
    static const unsigned char code[] = {0, 24, 25, 0, 26, 0, 0, 0, 27};
    byte(o, major << 5 | (more ? code[more] : (unsigned)v));
    for (unsigned i = more; i-- > 0;)
        byte(o, (unsigned)(v >> 8 * i) & 255);
}

static inline void integer(struct out *o, int64_t v)
{
    if (!o->pickle) {
        head(o, v < 0, v < 0 ? (uint64_t)(-1 - v) : (uint64_t)v);
    } else if (v >= 0 && v < 256) {
        byte(o, 'K');
        byte(o, (unsigned)v);
    } else if (v >= 0 && v < 65536) {
        byte(o, 'M');
        tu_put16(o->at, (uint16_t)v);
        o->at += 2;
    } else {
        byte(o, 'J');
        tu_put32(o->at, (uint32_t)v);
        o->at += 4;
    }
}

enum what { BYTES, TEXT };

static void string(struct out *o, enum what what, const void *p, size_t n)
{
    if (!o->pickle) {
        head(o, what == BYTES ? 2 : 3, n);
    } else if (n < 256) {
        byte(o, what == BYTES ? 'C' : 0x8c);
        byte(o, (unsigned)n);
    } else {
        byte(o, what == BYTES ? 'B' : 'X');
        tu_put32(o->at, (uint32_t)n);
        o->at += 4;
    }
    bytes(o, p, n);
    if (o->pickle)
        byte(o, 0x94);
}

static void tuple_begin(struct out *o, uint64_t n)
{
    if (!o->pickle)
        head(o, 4, n);
    else if (n > 3)
        byte(o, '(');
}

static void tuple_end(struct out *o, uint64_t n)
{
    if (!o->pickle)
        return;
    if (n == 0) {
        byte(o, ')');
        return;
    }
    byte(o, n > 3 ? 't' : 0x84 + (unsigned)n);
    byte(o, 0x94);
}

static void none(struct out *o)
{
    byte(o, o->pickle ? 'N' : 0xf6);
}

/* The extra keys of a block: LoRA, overlapping items, salt of the first block. */
static uint64_t extras(const struct tu_kv_hash_how *how, uint64_t begin, struct out *o)
{
    uint64_t n = (how->lora != NULL) + (how->salt && begin == 0);
    for (size_t i = 0; i < how->items; i++)
        n += how->item[i].first < begin + how->block &&
             how->item[i].first + how->item[i].n > begin;
    if (!o)
        return n;
    if (!n) {
        none(o);
        return 0;
    }
    tuple_begin(o, n);
    if (how->lora)
        string(o, TEXT, how->lora, strlen(how->lora));
    for (size_t i = 0; i < how->items; i++) {
        const struct tu_kv_item *m = &how->item[i];
        if (m->first >= begin + how->block || m->first + m->n <= begin)
            continue;
        tuple_begin(o, 2);
        string(o, TEXT, m->id, strlen(m->id));
        integer(o, (int64_t)m->first - (int64_t)begin);
        tuple_end(o, 2);
    }
    if (how->salt && begin == 0)
        string(o, TEXT, how->salt, strlen(how->salt));
    tuple_end(o, n);
    return n;
}

/* Bytes that a block may take. */
static int room(const struct tu_kv_hash_how *how, size_t *out, struct tu_err *err)
{
    uint64_t n = 256;
    if (how->lora)
        n += strlen(how->lora) + 16;
    if (how->salt)
        n += strlen(how->salt) + 16;
    for (size_t i = 0; i < how->items; i++)
        n += strlen(how->item[i].id) + 32;
    if (!how->block || how->block > 1 << 24 || n > 1 << 24)
        return tu_fail(err, TU_EUSAGE, "blocks of %" PRIu64 " tokens cannot be hashed",
                       how->block);
    *out = (size_t)(n + how->block * 8);
    return 0;
}

/* Hashing ------------------------------------------------------------------------------ */

struct hasher {
    struct tu_sha256 *sha;
    unsigned form;
    unsigned char *buf, *body; /* the pickle's frame goes before body */
};

static void digest_of(struct hasher *h, const unsigned char *p, size_t n,
                      unsigned char *out)
{
    if (h->form & XXH) {
        XXH128_canonical_t c;
        XXH128_canonicalFromHash(&c, XXH3_128bits(p, n));
        memcpy(out, c.digest, sizeof c.digest);
    } else {
        tu_sha256_add(h->sha, p, n);
        tu_sha256_end(h->sha, out);
    }
}

/* What stands between body and o, framed where it is a pickle. */
static int finish(struct hasher *h, struct out *o, unsigned char *out, struct tu_err *err)
{
    if (!(h->form & PICKLE)) {
        digest_of(h, h->body, (size_t)(o->at - h->body), out);
        return 0;
    }
    byte(o, '.');
    size_t n = (size_t)(o->at - h->body);
    if (n >= FRAME)
        return tu_fail(err, TU_EUSAGE,
                       "a block whose pickle has %zu bytes cannot be hashed: %d is the "
                       "most",
                       n, FRAME - 1);
    unsigned char *p = h->body - 11;
    p[0] = 0x80;
    p[1] = 5;
    p[2] = 0x95;
    tu_put64(p + 3, n);
    digest_of(h, p, n + 11, out);
    return 0;
}

static int begin(struct hasher *h, const struct tu_kv_scheme *s, size_t n,
                 struct tu_err *err)
{
    *h = (struct hasher){.form = s->form};
    if (!(h->sha = tu_sha256_new(err)) || !(h->buf = tu_alloc(n + 64, 1, err)))
        return TU_ENOMEM;
    h->body = h->buf + 16;
    return 0;
}

static void end(struct hasher *h)
{
    tu_sha256_free(h->sha);
    tu_free(h->buf);
}

static void namespace_part(struct hasher *h, const char *part)
{
    unsigned char head9[9] = {0};
    if (!part) {
        tu_sha256_add(h->sha, head9, 1);
        return;
    }
    head9[0] = 1;
    tu_put64(head9 + 1, strlen(part));
    tu_sha256_add(h->sha, head9, 9);
    tu_sha256_add(h->sha, part, strlen(part));
}

static int root(struct hasher *h, const struct tu_kv_hash_how *how, unsigned char *out,
                unsigned *n, const char **seed, struct tu_err *err)
{
    static const char name[] = "sglang-cache-namespace-v1";
    *seed = "";
    *n = 0;
    if (h->form & RAW) {
        if (!how->extra_key && !how->salt)
            return 0;
        tu_sha256_add(h->sha, name, sizeof name - 1);
        namespace_part(h, how->extra_key);
        namespace_part(h, how->salt);
        tu_sha256_end(h->sha, out);
        *n = 32;
        return 0;
    }
    *seed = how->seed ? how->seed : "vllm-none-hash";
    if (!how->seed && h->form & XXH)
        return tu_fail(err, TU_EUSAGE,
                       "the xxhash forms begin with random bytes unless a seed is given "
                       "(PYTHONHASHSEED, --hash-seed)");
    struct out o = {h->body, (h->form & PICKLE) != 0};
    *n = h->form & XXH ? 16 : 32;
    string(&o, TEXT, *seed, strlen(*seed));
    return finish(h, &o, out, err);
}

int tu_kv_hash_root(const struct tu_kv_scheme *s, const struct tu_kv_hash_how *how,
                    unsigned char out[TU_KV_DIGEST], unsigned *n, const char **seed_text,
                    struct tu_err *err)
{
    struct hasher h;
    int rc = begin(&h, s, how->seed ? strlen(how->seed) : 0, err);
    if (!rc)
        rc = root(&h, how, out, n, seed_text, err);
    end(&h);
    return rc;
}

static int tuple_block(struct hasher *h, const struct tu_kv_hash_how *how,
                       const unsigned char *before, unsigned n, const int32_t *tokens,
                       uint64_t first, unsigned char *out, struct tu_err *err)
{
    struct out o = {h->body, (h->form & PICKLE) != 0};
    tuple_begin(&o, 3);
    string(&o, BYTES, before, n);
    tuple_begin(&o, how->block);
    for (uint64_t i = 0; i < how->block; i++)
        integer(&o, tokens[first + i]);
    tuple_end(&o, how->block);
    extras(how, first, &o);
    tuple_end(&o, 3);
    return finish(h, &o, out, err);
}

static void raw_block(struct hasher *h, const struct tu_kv_hash_how *how,
                      const unsigned char *before, unsigned n, const int32_t *tokens,
                      uint64_t first, unsigned char *out)
{
    struct out o = {h->body, false};
    bytes(&o, before, n);
    for (uint64_t i = first; i < first + how->block; i++)
        for (unsigned k = 0; k <= ((h->form & PAIRS) != 0); k++) {
            tu_put32(o.at, (uint32_t)tokens[i + k]);
            o.at += 4;
        }
    digest_of(h, h->body, (size_t)(o.at - h->body), out);
}

int tu_kv_hash_blocks(const struct tu_kv_scheme *s, const struct tu_kv_hash_how *how,
                      const int32_t *tokens, uint64_t n, unsigned char *digest,
                      struct tu_err *err)
{
    struct hasher h = {0};
    unsigned char first[TU_KV_DIGEST];
    const unsigned char *before = first;
    unsigned have;
    const char *seed;
    size_t size = 0;
    int rc = room(how, &size, err);
    if (rc)
        return rc;
    rc = begin(&h, s, size + (how->seed ? strlen(how->seed) : 0), err);
    if (!rc)
        rc = root(&h, how, first, &have, &seed, err);
    for (uint64_t i = 0; !rc && i < n; i++)
        if (tokens[i] < 0)
            rc = tu_fail(err, TU_EFORMAT, "token %" PRIu64 " is %d", i, tokens[i]);
    /* A pair needs the token behind it. */
    uint64_t last = s->form & PAIRS ? (n ? n - 1 : 0) : n;
    for (uint64_t b = 0; !rc && (b + 1) * how->block <= last; b++) {
        unsigned char *to = digest + b * s->size;
        if (s->form & RAW)
            raw_block(&h, how, before, have, tokens, b * how->block, to);
        else
            rc = tuple_block(&h, how, before, have, tokens, b * how->block, to, err);
        before = to;
        have = s->size;
    }
    end(&h);
    return rc;
}

int64_t tu_kv_hash_event(const struct tu_kv_scheme *s, const unsigned char *digest)
{
    const unsigned char *p = s->form & RAW ? digest : digest + s->size - 8;
    uint64_t v = 0;
    for (int i = 0; i < 8; i++)
        v = v << 8 | p[i];
    return (int64_t)v;
}

void tu_kv_hash_hex(const unsigned char *digest, unsigned size, char *out)
{
    for (unsigned i = 0; i < size; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}
