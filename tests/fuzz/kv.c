/* SPDX-License-Identifier: Apache-2.0 */
/* kv.c: parsers of kv-pack: engines' files, traces, META kv, codes of every codec. What is
 * taken must be readable to its last byte.
 *
 * _GNU_SOURCE: memfd_create. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <tensorutils/kv.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void engine(const char *name, const char *spec, const char *path)
{
    const struct tu_kv_engine *e;
    struct tu_kv_hint hint = {0};
    struct tu_spec s;
    struct tu_kv *kv = NULL;
    struct tu_err err = {0};
    tu_kv_info_init(&hint.info);
    if (tu_kv_engine_find(&e, name, NULL) || tu_spec_parse(&s, spec, NULL))
        abort();
    hint.spec = &s;
    int rc = e->open(&kv, &path, 1, &hint, NULL, &err);
    if (rc && !err.msg[0])
        abort();
    for (size_t i = 0; !rc && i < kv->n; i++) {
        void *x;
        if (kv->tensor[i].bytes < 1 << 24 && !tu_kv_load(kv, i, &x, &err))
            tu_free(x);
    }
    if (!rc)
        tu_kv_close(kv);
    tu_spec_release(&s);
}

static void trace(int fd)
{
    struct tu_kv_trace t;
    struct tu_in *in;
    struct tu_kv_groups g;
    if (tu_in_take_fd(&in, dup(fd), "trace", NULL))
        return;
    if (!tu_kv_trace_read(&t, in, NULL, 0, 0, NULL, NULL)) {
        /* One group each cannot save more than a tree of them; a warning may say that an id
         * stands under two parents, and then it is no tree. */
        if (t.hashed && !t.warnings && tu_kv_group(&t, &g, NULL) == 0 && g.single > g.multi)
            abort();
        tu_kv_trace_release(&t);
    }
    tu_in_close(in);
}

static void codes(const uint8_t *data, size_t n)
{
    struct tu_kv_array a = {TU_BF16, 16, 2, 8, false, 0};
    uint16_t out[16 * 2 * 8 + 64];
    struct tu_spec s;
    void *copy = malloc(n + 64);
    for (size_t i = 0; copy && tu_kv_codecs[i].name; i++) {
        struct tu_kv_part part[TU_KV_CODED_PARTS];
        memcpy(copy, data, n);
        for (unsigned k = 0; k < TU_KV_CODED_PARTS; k++)
            part[k] = (struct tu_kv_part){.dtype = TU_U8, .data = copy, .bytes = n};
        if (tu_spec_parse(&s, tu_kv_codecs[i].name, NULL))
            abort();
        for (unsigned k = 1; k <= TU_KV_CODED_PARTS; k++)
            if (tu_kv_decode(&s, &a, part, k, out, NULL) == TU_EBUG)
                abort();
        tu_spec_release(&s);
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[40];
    struct tu_kv_info info;
    int fd = memfd_create("kv", 0);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n || lseek(fd, 0, SEEK_SET))
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    engine("llama", "llama:heads=2,rot=0,mla", path);
    engine("hf", "hf", path);
    engine("lmcache", "lmcache:heads=2", path);
    engine("raw", "raw:layers=1,heads=1,dim=4,tokens=2,dtype=f16", path);
    trace(fd);
    codes(data, n);
    if (!tu_kv_info_parse(&info, (const char *)data, n, NULL) && info.tp_rank >= info.tp_size)
        abort();
    close(fd);
    return 0;
}
