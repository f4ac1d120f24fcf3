/* SPDX-License-Identifier: Apache-2.0 */
/* kvcache.c: caches on one thread against a copy of the same bytes: lossless codecs beside
 * zlib, moves between layouts, block names, replays.
 *
 *   kvcache [TRACE...]
 *
 * A line of JSON each, thread time, best of RUNS (default 7), the copy measured in turn. */
#define _GNU_SOURCE /* CLOCK_THREAD_CPUTIME_ID with strict C */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tensorutils/kv.h>

enum { T = 4096, H = 8, D = 128, COUNT = T * H * D, BYTES = 2 * COUNT };

static uint16_t *x, *y, *copy;
static int runs = 7;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double copy_time(void)
{
    double s = now();
    memcpy(copy, x, BYTES);
    return now() - s;
}

/* Keys as they are: channels of unlike sizes, some large, tokens alike. */
static void fill(void)
{
    struct tu_rng r = {7, 1}, c = {7, 2};
    float *n = malloc(sizeof *n * H * D), *g = malloc(sizeof *g * H * D), *old = calloc(H * D, 4);
    tu_rng_normal(&c, 0, g, H * D);
    for (uint64_t t = 0; t < T; t++) {
        tu_rng_normal(&r, t * H * D, n, H * D);
        for (int k = 0; k < H * D; k++) {
            old[k] = 0.6f * old[k] + 0.8f * n[k];
            float mean = tu_rng_u32(&c, (uint64_t)k + 9999) % 100 < 3 ? 8 : 0;
            x[t * H * D + (uint64_t)k] = tu_to_bf16((old[k] + mean) * expf(0.5f * g[k]));
        }
    }
    free(n);
    free(g);
    free(old);
}

static void codec(const char *text, bool value)
{
    struct tu_spec s;
    struct tu_kv_array a = {TU_BF16, T, H, D, value, 0};
    struct tu_kv_coded c = {0};
    double encode = 1e9, decode = 1e9, plain = 1e9, size = 0;
    if (tu_spec_parse(&s, text, NULL))
        abort();
    for (int i = 0; i < runs; i++) {
        tu_kv_coded_release(&c);
        double begin = now();
        if (tu_kv_encode(&s, &a, x, &c, NULL))
            abort();
        double middle = now();
        if (tu_kv_decode(&s, &a, c.part, c.n, y, NULL))
            abort();
        double end = now();
        encode = fmin(encode, middle - begin);
        decode = fmin(decode, end - middle);
        plain = fmin(plain, copy_time());
        size = (double)c.part[0].bytes;
    }
    if (memcmp(x, y, BYTES))
        abort();
    printf("{\"bench\":\"%s of %s\",\"ratio\":%.4f,\"encode_gbs\":%.3f,\"decode_gbs\":%.3f,"
           "\"copy_gbs\":%.3f}\n", text, value ? "values" : "keys", BYTES / size,
           BYTES / encode / 1e9, BYTES / decode / 1e9, BYTES / plain / 1e9);
    tu_kv_coded_release(&c);
    tu_spec_release(&s);
}

static void layout(const char *name, enum tu_kv_side side)
{
    const struct tu_kv_layout *l;
    struct tu_kv_place p;
    struct tu_kv_geometry g = {.layers = 1, .heads = H, .dim = D, .block = 16,
                               .blocks = T / 16, .elem = 2};
    int32_t table[T / 16];
    double put = 1e9, get = 1e9, plain = 1e9;
    for (int i = 0; i < T / 16; i++)
        table[i] = (i * 77 + 5) % (T / 16);
    if (tu_kv_layout_find(&l, name, NULL) || tu_kv_place(&p, l, side, &g, NULL))
        abort();
    unsigned char *pool = calloc(p.bytes, 1);
    uint64_t s = tu_kv_layout_has(l, 's') ? (uint64_t)side : 0;
    for (int i = 0; i < runs; i++) {
        double begin = now();
        tu_kv_put(&p, pool, 0, s, table, 0, T, x);
        double middle = now();
        tu_kv_get(&p, pool, 0, s, table, 0, T, y);
        double end = now();
        put = fmin(put, middle - begin);
        get = fmin(get, end - middle);
        plain = fmin(plain, copy_time());
    }
    if (memcmp(x, y, BYTES))
        abort();
    printf("{\"bench\":\"layout %s %c\",\"put_of_copy\":%.3f,\"get_of_copy\":%.3f}\n", name,
           "kv"[side], plain / put, plain / get);
    free(pool);
}

static void names(const char *scheme)
{
    enum { N = 1 << 20 };
    const struct tu_kv_scheme *s;
    struct tu_kv_hash_how how = {.block = 16};
    int32_t *ids = malloc(N * sizeof *ids);
    unsigned char *d = malloc((size_t)N / 16 * 32);
    double best = 1e9;
    for (int i = 0; i < N; i++)
        ids[i] = (int32_t)(i * 2654435761u % 128256);
    if (tu_kv_scheme_find(&s, scheme, NULL))
        abort();
    for (int i = 0; i < runs; i++) {
        double begin = now();
        if (tu_kv_hash_blocks(s, &how, ids, N, d, NULL))
            abort();
        best = fmin(best, now() - begin);
    }
    printf("{\"bench\":\"names %s\",\"mtokens_per_s\":%.1f}\n", scheme, N / best / 1e6);
    free(ids);
    free(d);
}

static void replays(int n, char **path)
{
    static const uint64_t size[] = {195, 585, 1953, 5859, 9765, 19531, 29296, 58593, 97656,
                                    UINT64_MAX};
    struct tu_spec lru;
    if (tu_spec_parse(&lru, "lru", NULL))
        abort();
    double begin = now();
    for (int i = 0; i < n; i++) {
        struct tu_in *in;
        struct tu_kv_trace t;
        struct tu_kv_hits h;
        if (tu_in_open(&in, path[i], NULL) || tu_kv_trace_read(&t, in, NULL, 0, 0, NULL, NULL))
            abort();
        for (int k = 0; k < 10; k++)
            if (tu_kv_replay(&t, &lru, size[k], &h, NULL))
                abort();
        tu_kv_trace_release(&t);
        tu_in_close(in);
    }
    if (n)
        printf("{\"bench\":\"%d traces at ten sizes\",\"seconds\":%.3f}\n", n, now() - begin);
    tu_spec_release(&lru);
}

int main(int argc, char **argv)
{
    if (getenv("RUNS"))
        runs = atoi(getenv("RUNS"));
    x = malloc(BYTES + 64);
    y = malloc(BYTES + 64);
    copy = calloc(BYTES, 1);
    fill();
    for (int v = 0; v < 2; v++) {
        codec("split16", v);
        codec("planes", v);
        codec("zlib", v);
        codec("zstd", v);
        codec("lz4", v);
    }
    layout("nhd-paged", TU_KV_K);
    layout("vllm-fa", TU_KV_V);
    layout("hnd-paged", TU_KV_K);
    layout("trt", TU_KV_K);
    layout("vllm", TU_KV_K);
    layout("vllm", TU_KV_V);
    names("vllm-sha256");
    names("vllm-cbor");
    names("sglang");
    replays(argc - 1, argv + 1);
    return 0;
}
