/* SPDX-License-Identifier: Apache-2.0 */
/* llama.c: state files of llama.cpp: the worked files byte for byte, every truncation and
 * every damaged count refused, and what a published size says. */
#include <stdlib.h>
#include <unistd.h>
#include <tensorutils/kv.h>
#include "../scratch.h"
#include "../tap.h"

static const struct tu_kv_engine *engine(void)
{
    const struct tu_kv_engine *e = NULL;
    if (tu_kv_engine_find(&e, "llama", NULL))
        abort();
    return e;
}

/* Tokens [1, 15043, 3186], 2 layers, 4 columns, K = 100 l + 10 c + e, V = -K. */
static struct tu_kv *worked(void)
{
    static uint16_t data[4][12];
    static int32_t ids[] = {1, 15043, 3186};
    static const uint64_t dim[3] = {3, 1, 4};
    static const char *const names[] = {"kv.0.k", "kv.0.v", "kv.1.k", "kv.1.v"};
    static void *at[5];
    struct tu_tensor t[5] = {{.name = "kv.tokens", .dtype = TU_I32, .rank = 1, .dim = dim}};
    struct tu_kv_info info;
    struct tu_kv *kv = NULL;
    at[0] = ids;
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 12; k++) {
            float v = (float)(100 * (i / 2) + 10 * (k / 4) + k % 4);
            data[i][k] = tu_to_f16(i % 2 ? 0 - v : v);
        }
        t[i + 1] = (struct tu_tensor){.name = names[i], .dtype = TU_F16, .rank = 3, .dim = dim};
        at[i + 1] = data[i];
    }
    tu_kv_info_init(&info);
    if (tu_kv_of_memory(&kv, &info, t, at, 5, NULL))
        abort();
    return kv;
}

static void save(const char *spec, const char *path)
{
    struct tu_spec s;
    struct tu_err e = {0};
    struct tu_kv *kv = worked();
    int rc = tu_spec_parse(&s, spec, &e);
    struct tu_kv_hint how = {.spec = &s};
    if (!rc)
        rc = engine()->save(kv, path, &how, NULL, &e);
    ok(!rc, "%s: %s", spec, e.msg);
    tu_spec_release(&s);
    tu_kv_close(kv);
}

static int open_file(struct tu_kv **kv, const char *path, struct tu_err *e)
{
    struct tu_kv_hint hint = {0};
    tu_kv_info_init(&hint.info);
    return engine()->open(kv, &path, 1, &hint, NULL, e);
}

static void sum(const char *path, const char *want)
{
    char *text, hex[TU_SHA256_HEX];
    size_t n;
    unsigned char digest[TU_SHA256_SIZE];
    struct tu_sha256 *s = tu_sha256_new(NULL);
    if (tu_file_read(path, 1 << 20, &text, &n, NULL) || !s)
        abort();
    tu_sha256_add(s, text, n);
    tu_sha256_end(s, digest);
    tu_sha256_hex(digest, hex);
    eq_u64(n, 220, "%s: 220 bytes", path);
    eq_str(hex, want, "%s", path);
    tu_sha256_free(s);
    tu_free(text);
}

static void worked_files(void)
{
    save("llama:version=2", "plain");
    save("llama:version=2,v-trans", "turned");
    sum("plain", "eb445ad54ea061d3b8bab4287ed0a77e5d146948e1d67811905724d2a4e40d33");
    sum("turned", "13cb99f07ad9dbf0df3e3da4b51f5353a7753e750e364e17956982479b2d635d");
    for (int k = 0; k < 2; k++) {
        struct tu_kv *a = NULL, *b = worked();
        struct tu_err e = {0};
        ok(!open_file(&a, k ? "turned" : "plain", &e), "read %d: %s", k, e.msg);
        bool same = a && a->n == 5 && a->tokens == 3;
        for (size_t i = 0; same && i < 5; i++) {
            void *x, *y;
            same = !tu_kv_load(a, i, &x, NULL);
            size_t other = 0;
            while (strcmp(b->tensor[other].name, a->tensor[i].name) != 0)
                other++;
            same = same && !tu_kv_load(b, other, &y, NULL) &&
                   !memcmp(x, y, (size_t)a->tensor[i].bytes);
            tu_free(x);
            tu_free(y);
        }
        ok(same, "the same records");
        tu_kv_close(a);
        tu_kv_close(b);
    }
}

static void write_all(const char *path, const void *p, size_t n)
{
    if (tu_file_write(path, p, n, false, NULL, NULL))
        abort();
}

static int open_as(struct tu_kv **kv, const char *spec, const char *path, struct tu_err *e)
{
    struct tu_spec s;
    struct tu_kv_hint hint = {.spec = &s};
    tu_kv_info_init(&hint.info);
    if (tu_spec_parse(&s, spec, NULL))
        abort();
    int rc = engine()->open(kv, &path, 1, &hint, NULL, e);
    tu_spec_release(&s);
    return rc;
}

/* Layer 0 has the last two of three tokens, layer 1 all. */
static struct tu_kv *with_window(void)
{
    static uint16_t data[4][12];
    static const uint64_t full[3] = {3, 1, 4}, window[3] = {2, 1, 4};
    static const char *const names[] = {"kv.0.k", "kv.0.v", "kv.1.k", "kv.1.v"};
    static void *at[4];
    struct tu_tensor t[4];
    struct tu_kv_info info;
    struct tu_kv *kv = NULL;
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 12; k++)
            data[i][k] = (uint16_t)(100 * i + k);
        t[i] = (struct tu_tensor){.name = names[i], .dtype = TU_F16, .rank = 3,
                                  .dim = i < 2 ? window : full};
        at[i] = data[i];
    }
    tu_kv_info_init(&info);
    if (tu_kv_of_memory(&kv, &info, t, at, 4, NULL))
        abort();
    return kv;
}

static void swap(char *a, char *b, size_t n)
{
    while (n--) {
        char c = a[n];
        a[n] = b[n];
        b[n] = c;
    }
}

static void holds(const char *path, size_t records, const char *what)
{
    struct tu_kv *a = NULL, *b = with_window();
    struct tu_err e = {0};
    ok(!open_as(&a, "llama:pattern=2", path, &e), "%s: %s", what, e.msg);
    bool same = a && a->n == records;
    for (size_t i = 1; same && i < 5; i++) { /* the first is the list of tokens: empty */
        void *x, *y;
        same = !strcmp(a->tensor[i].name, b->tensor[i - 1].name) &&
               a->tensor[i].bytes == b->tensor[i - 1].bytes && !tu_kv_load(a, i, &x, NULL);
        same = same && !tu_kv_load(b, i - 1, &y, NULL) &&
               !memcmp(x, y, (size_t)a->tensor[i].bytes);
        tu_free(x);
        tu_free(y);
    }
    ok(same, "%s: the same records", what);
    tu_kv_close(a);
    tu_kv_close(b);
}

/* A second memory for windows, whose cells come in any order, and a recurrent one. */
static void memories(void)
{
    struct tu_spec s;
    struct tu_err e = {0};
    struct tu_kv_hint how = {.spec = &s};
    struct tu_kv *kv = with_window(), *bad = NULL;
    char *text, more[56] = {1};
    size_t n;
    if (tu_spec_parse(&s, "llama:pattern=2", &e))
        abort();
    ok(!engine()->save(kv, "two", &how, NULL, &e), "saved: %s", e.msg);
    tu_spec_release(&s);
    if (tu_spec_parse(&s, "llama", &e))
        abort();
    eq_int(engine()->save(kv, "none", &how, NULL, &e), TU_EUNSUP, "not told: %s", e.msg);
    tu_spec_release(&s);
    tu_kv_close(kv);
    holds("two", 5, "two memories");
    eq_int(open_as(&bad, "llama", "two", &e), TU_EUSAGE, "not told: %s", e.msg);
    eq_int(open_as(&bad, "llama:pattern=1", "two", &e), TU_EUSAGE, "told wrongly: %s", e.msg);
    eq_int(open_as(&bad, "llama:pattern=0", "two", &e), TU_EUSAGE, "told wrongly: %s", e.msg);
    ok(!open_as(&bad, "llama:pattern=2,dense-first", "two", &e) &&
           bad->tensor[1].dim[0] == 3 && bad->tensor[3].dim[0] == 2,
       "the first of two is whole: %s", e.msg);
    tu_kv_close(bad);
    bad = NULL;
    if (tu_file_read("two", 1 << 20, &text, &n, NULL))
        abort();
    eq_u64(n, 232, "bytes of both");
    /* The window's memory at 136: two counts, cells of 12 bytes, rows of 8. */
    swap(text + 144, text + 156, 12);
    swap(text + 188, text + 196, 8);
    swap(text + 216, text + 224, 8);
    write_all("turned_round", text, n);
    holds("turned_round", 5, "cells in another order");
    tu_put32(text + 156, 7); /* position 1 is a hole */
    write_all("hole", text, n);
    ok(!open_as(&bad, "llama:pattern=2", "hole", &e) && bad->tensor[1].dim[0] == 1,
       "what is before a hole is left out: %s", e.msg);
    tu_kv_close(bad);
    bad = NULL;
    tu_put32(text + 144, 7);
    write_all("lost", text, n);
    eq_int(open_as(&bad, "llama:pattern=2", "lost", &e), TU_EFORMAT, "%s", e.msg);
    tu_free(text);
    /* A cell, an R of 8 bytes and an S of 4. */
    tu_put32(more + 16, 4);
    tu_put64(more + 24, 8);
    tu_put64(more + 44, 4);
    if (tu_file_read("two", 1 << 20, &text, &n, NULL))
        abort();
    char *both = malloc(n + sizeof more);
    memcpy(both, text, n);
    memcpy(both + n, more, sizeof more);
    write_all("three", both, n + sizeof more);
    holds("three", 6, "and a recurrent one");
    bool refused = true;
    for (size_t cut = 137; cut < n; cut++) {
        write_all("cut", both, cut);
        refused = refused && open_as(&bad, "llama:pattern=2", "cut", &e) == TU_ETRUNC;
    }
    ok(refused, "each prefix of the window's memory is refused: %s", e.msg);
    free(both);
    tu_free(text);
}

/* Every prefix is refused with an offset; so is each count made huge. */
static void damaged(void)
{
    static const struct {
        size_t at;
        uint32_t v;
        const char *what;
    } bad[] = {
        {0, 0x12345678, "magic"},      {4, 4, "version"},
        {8, 0xffffffff, "n_token"},    {24, 0xffffffff, "n_stream"},
        {24, 0, "no stream"},          {28, 0xffffffff, "cell_count"},
        {32, 0xffffffff, "position"},  {36, 0xffffffff, "n_seq_id"},
        {44, 0, "a position twice"},   {36, 0, "a cell of no sequence"},
        {68, 2, "v_trans"},            {72, 0xffffffff, "n_layer"},
        {72, 3, "one layer more"},     {76, 99, "ggml type"},
        {76, 8, "rows that are no blocks of q8_0"}, {80, 7, "row bytes"},
        {84, 1, "row bytes over 2^32"}, {80, 0, "no row bytes"},
    };
    char *text, *copy;
    size_t n;
    struct tu_kv *kv;
    struct tu_err e;
    bool all = true;
    if (tu_file_read("plain", 1 << 20, &text, &n, NULL))
        abort();
    for (size_t k = 0; k < n; k++) {
        e.code = 0;
        write_all("cut", text, k);
        int rc = open_file(&kv, "cut", &e);
        bool refused = rc && tu_err_status(rc) == 3;
        if (!refused) {
            printf("# prefix of %zu bytes: %d %s\n", k, rc, e.msg);
            if (!rc)
                tu_kv_close(kv);
        }
        all = all && refused;
    }
    ok(all, "every prefix is refused");
    copy = malloc(n + 8);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memcpy(copy, text, n);
        tu_put32(copy + bad[i].at, bad[i].v);
        write_all("bad", copy, n);
        int rc = open_file(&kv, "bad", &e);
        ok(rc && tu_err_status(rc) >= 2, "%s: refused (%s)", bad[i].what, rc ? e.msg : "read!");
        if (!rc)
            tu_kv_close(kv);
    }
    free(copy);
    tu_free(text);
}

/* Cells with an extension of M-RoPE, and files of one version earlier. */
static void shapes(void)
{
    char *text, grown[300];
    size_t n;
    struct tu_kv *kv = NULL;
    struct tu_err e = {0};
    if (tu_file_read("plain", 1 << 20, &text, &n, NULL))
        abort();
    for (size_t ext = 8; ext <= 12; ext += 4) {
        size_t at = 32;
        memcpy(grown, text, 32);
        for (size_t c = 0; c < 3; c++) {
            memcpy(grown + at, text + 32 + 12 * c, 8);
            memset(grown + at + 8, (int)c + 1, ext);
            memcpy(grown + at + 8 + ext, text + 32 + 12 * c + 8, 4);
            at += 12 + ext;
        }
        memcpy(grown + at, text + 68, n - 68);
        write_all("ext", grown, n + 3 * ext);
        ok(!open_file(&kv, "ext", &e) && kv->tokens == 3, "cells of %zu bytes more", ext);
        tu_kv_close(kv);
        kv = NULL;
    }
    save("llama:version=1", "old");
    ok(!open_file(&kv, "old", &e) && kv->tokens == 3, "version 1: %s", e.msg);
    tu_kv_close(kv);
    kv = NULL;
    memcpy(grown, text, n);
    memset(grown + n, 7, 40);
    write_all("more", grown, n + 40);
    ok(!open_file(&kv, "more", &e) && kv->tokens == 3, "a memory behind it is left out");
    tu_kv_close(kv);
    tu_free(text);
}

int main(void)
{
    scratch_enter();
    worked_files();
    damaged();
    memories();
    shapes();
    scratch_leave();
    return tap_done();
}
