/* SPDX-License-Identifier: Apache-2.0 */
/* codec.c: encoders and decoders of lib/quant on one thread, against a copy of the same
 * floats and, where GGML names a libggml-base.so that was built beside, against the
 * peer's own.
 *
 *   codec [CODEC...]    default: all that encode without arguments
 *
 * A line of JSON each: millions of weights per second, of thread time, best of RUNS
 * (default 5); ratios to the copy and to the peer. The three alternate. */
#define _GNU_SOURCE /* CLOCK_THREAD_CPUTIME_ID with strict C */
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tensorutils/quant.h>

enum { ROWS = 512, COLS = 4096, COUNT = ROWS * COLS };

typedef size_t (*peer_encode_fn)(const float *, void *, int64_t, int64_t, const float *);
typedef void (*peer_decode_fn)(const void *, float *, int64_t);

static float *x, *y;
static unsigned char *code, *side[TU_CODING_SIDES];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* "q4_k" is "q4_K" there. */
static void *peer_symbol(void *peer, const char *prefix, const char *codec)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", prefix, codec);
    size_t n = strlen(name);
    if (n > 2 && name[n - 2] == '_' && name[n - 1] == 'k')
        name[n - 1] = 'K';
    return peer ? dlsym(peer, name) : NULL;
}

enum { COPY, ENCODE, DECODE, PEER_ENCODE, PEER_DECODE, TIMED };

struct bench {
    struct tu_coding c;
    peer_encode_fn peer_encode;
    peer_decode_fn peer_decode;
};

/* All elements in runs of whole atoms, as the driver hands them to a thread. */
static int pass(struct bench *b, bool encode)
{
    enum { RUN = 32768 };
    const struct tu_coding *c = &b->c;
    const uint64_t step = c->atom * tu_max(1, RUN / c->atom);
    int rc = 0;
    for (uint64_t first = 0; first < COUNT && !rc; first += step) {
        const size_t n = (size_t)tu_min(step, COUNT - first);
        const uint64_t atom = first / c->atom;
        void *at[TU_CODING_SIDES];
        for (unsigned k = 0; k < c->sides + c->scratch; k++)
            at[k] = side[k] + atom * c->side[k].atom_bytes;
        unsigned char *to = code + atom * c->code.atom_bytes;
        rc = encode ? c->codec->encode(c, first, n, x + first, to, at, NULL)
                    : c->codec->decode(c, first, n, to, (const void *const *)at, y + first,
                                       NULL);
    }
    return rc;
}

/* One run of `what`; negative where there is none. */
static double once(struct bench *b, int what)
{
    const double start = now();
    int rc = 0;
    switch (what) {
    case COPY: memcpy(y, x, COUNT * sizeof *x); break;
    case ENCODE: rc = pass(b, true); break;
    case DECODE: rc = pass(b, false); break;
    case PEER_ENCODE:
        if (!b->peer_encode)
            return -1;
        b->peer_encode(x, code, ROWS, COLS, NULL);
        break;
    default:
        if (!b->peer_decode)
            return -1;
        b->peer_decode(code, y, COUNT);
    }
    return rc ? -1 : now() - start;
}

static void run(const struct tu_codec *codec, void *peer, int runs)
{
    struct bench b = {.c = {.compat = true}};
    struct tu_spec spec = {.name = (char *)(uintptr_t)codec->name};
    double best[TIMED] = {0};
    if (tu_coding_init(&b.c, &spec, (uint64_t[]){ROWS, COLS}, 2, NULL) || b.c.two_pass ||
        codec->flags & TU_CODEC_STATEFUL)
        return;
    b.peer_encode =
        (peer_encode_fn)(uintptr_t)peer_symbol(peer, "quantize_", codec->name);
    b.peer_decode =
        (peer_decode_fn)(uintptr_t)peer_symbol(peer, "dequantize_row_", codec->name);
    for (unsigned k = 0; k < b.c.sides + b.c.scratch; k++)
        side[k] = calloc(1, (size_t)b.c.side[k].bytes + 1);
    if (codec->start && codec->start(&b.c, (void *const *)side, NULL))
        return;
    for (int i = 0; i < runs; i++) {
        for (int k = 0; k < TIMED; k++) {
            const double t = once(&b, k);
            best[k] = i == 0 || t < best[k] ? t : best[k];
        }
    }
    printf("{\"claim\":\"codec "
           "%s\",\"copy_mws\":%.0f,\"encode_mws\":%.1f,\"encode_to_copy\":%.3f,"
           "\"decode_mws\":%.1f,\"decode_to_copy\":%.3f",
           codec->name, COUNT / best[COPY] / 1e6, COUNT / best[ENCODE] / 1e6,
           best[COPY] / best[ENCODE], COUNT / best[DECODE] / 1e6,
           best[COPY] / best[DECODE]);
    if (b.peer_encode && b.peer_decode)
        printf(
            ",\"peer_encode_mws\":%.1f,\"encode_to_peer\":%.2f,\"peer_decode_mws\":%.1f,"
            "\"decode_to_peer\":%.2f",
            COUNT / best[PEER_ENCODE] / 1e6, best[PEER_ENCODE] / best[ENCODE],
            COUNT / best[PEER_DECODE] / 1e6, best[PEER_DECODE] / best[DECODE]);
    printf(",\"runs\":%d}\n", runs);
    fflush(stdout);
    for (unsigned k = 0; k < b.c.sides + b.c.scratch; k++)
        free(side[k]);
}

int main(int argc, char **argv)
{
    const char *path = getenv("GGML"), *times = getenv("RUNS");
    void *peer = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const struct tu_rng r = {.seed = 1};
    const struct tu_codec *c;
    if (path && !peer)
        return fprintf(stderr, "codec: %s\n", dlerror()), 4;
    x = aligned_alloc(64, COUNT * sizeof *x);
    y = aligned_alloc(64, COUNT * sizeof *y);
    code = aligned_alloc(64, COUNT * 8);
    if (!x || !y || !code)
        return 4;
    tu_rng_normal(&r, 0, x, COUNT);
    memset(y, 1, COUNT * sizeof *y);
    memset(code, 1, COUNT * 8);
    for (size_t i = 0; (c = tu_codec_row(i)); i++) {
        bool wanted = argc < 2;
        for (int k = 1; k < argc; k++)
            wanted |= strcmp(argv[k], c->name) == 0;
        if (wanted && c->encode)
            run(c, peer, times ? atoi(times) : 5);
    }
    return 0;
}
