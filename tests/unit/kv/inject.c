/* SPDX-License-Identifier: Apache-2.0 */
/* inject.c: what can be done with a cache, with each allocation and each system call failing in
 * turn (later ones are sampled).
 *
 * A failure is told as what it is, and no descriptor is left open; whatever gets through all
 * the same gives what the clean run gave. The cache is one of llama.cpp's (tests/data/kv). */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <tensorutils/kv.h>
#include "../inject.h"

static char root[512]; /* of the tree */
/* Remove out, a file or a folder, with all that is in it; add it up before if `count`. */
static void census(const char *path, bool count)
{
    struct dirent **list = NULL;
    int n = scandir(path, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char sub[1024];
        snprintf(sub, sizeof sub, "%s/%s", path, list[i]->d_name);
        if (*list[i]->d_name != '.') {
            if (count)
                inject_add(list[i]->d_name, strlen(list[i]->d_name));
            census(sub, count);
        }
        free(list[i]);
    }
    free(list);
    char *text = NULL;
    size_t size;
    if (n < 0 && count && !tu_file_read(path, 1 << 26, &text, &size, NULL))
        inject_add(text, size);
    tu_free(text);
    remove(path);
}

/* The cache of c.tns, twice: two sequences that begin alike. */
static int open_caches(struct tu_kv_set *set, unsigned n, struct tu_err *err)
{
    int rc = 0;
    for (unsigned i = 0; i < n && !rc; i++) {
        struct tu_in *in;
        rc = tu_in_open(&in, "c.tns", err);
        if (!rc)
            rc = tu_kv_set_add(set, in, NULL, err);
    }
    return rc;
}

static int begin(const char *path, struct tu_writer **w, struct tu_err *err)
{
    struct tu_out *out = NULL;
    *w = NULL;
    int rc = tu_out_open(&out, path, NULL, err);
    return rc ? rc : tu_writer_new(w, out, err);
}

static int end(struct tu_writer *w, int rc, struct tu_err *err)
{
    if (!rc)
        return tu_writer_close(w, false, err);
    tu_writer_abort(w);
    return rc;
}

/* What is done ---------------------------------------------------------------------------- */

/* LAYOUT BLOCK DTYPE TP SHIFT ROT */
static int convert(const void *arg, struct tu_err *err)
{
    struct tu_kv_set set = {0};
    struct tu_kv_convert how;
    struct tu_writer *w = NULL;
    char layout[24], dtype[16];
    unsigned block, tp;
    int shift, rot;
    if (sscanf(arg, "%23s %u %15s %u %d %d", layout, &block, dtype, &tp, &shift, &rot) != 6)
        abort();
    tu_kv_convert_init(&how);
    how.block = block;
    how.dtype = *dtype == '-' ? 0 : tu_dtype_named(dtype)->code;
    how.tp = tp;
    how.shift = shift;
    how.theta = 10000;
    how.rot = rot;
    int rc = tu_kv_layout_find(&how.layout, *layout == '-' ? "" : layout, err);
    if (!rc)
        rc = open_caches(&set, 1, err);
    if (!rc)
        rc = begin("out", &w, err);
    if (!rc)
        rc = tu_kv_convert_run(set.kv, 1, &how, w, NULL, err);
    tu_kv_set_release(&set);
    return end(w, rc, err);
}

/* SCHEME or "-": a pool of two, and their sequences from it again. */
static int page(const void *arg, struct tu_err *err)
{
    const bool cow = !strcmp(arg, "-");
    struct tu_kv_set set = {0}, pool = {0};
    struct tu_kv_hash_how hash = {.block = 4, .salt = "s"};
    struct tu_kv_paging how = {.block = 4, .cow = cow, .verify = true, .hash = &hash};
    struct tu_kv_paged made = {0};
    struct tu_kv_convert flat;
    struct tu_writer *w = NULL;
    struct tu_in *in;
    int rc = cow ? 0 : tu_kv_scheme_find(&how.scheme, arg, err);
    if (!rc)
        rc = open_caches(&set, 2, err);
    if (!rc)
        rc = begin("pool.tns", &w, err);
    if (!rc)
        rc = tu_kv_page(set.kv, set.n, &how, &made, w, NULL, err);
    tu_kv_paged_release(&made);
    tu_kv_set_release(&set);
    rc = end(w, rc, err);
    w = NULL;
    tu_kv_convert_init(&flat);
    if (!rc)
        rc = tu_in_open(&in, "pool.tns", err);
    if (!rc)
        rc = tu_kv_set_add(&pool, in, NULL, err);
    if (!rc)
        rc = begin("out", &w, err);
    if (!rc)
        rc = tu_kv_convert_run(pool.kv, 1, &flat, w, NULL, err);
    tu_kv_set_release(&pool);
    remove("pool.tns");
    return end(w, rc, err);
}

/* To an engine's file or folder, and from it. */
static int engine(const void *arg, struct tu_err *err)
{
    struct tu_kv_set set = {0};
    struct tu_spec spec;
    const struct tu_kv_engine *e = NULL;
    const char *const path[] = {"out"};
    struct tu_kv *kv = NULL;
    struct tu_writer *w = NULL;
    int rc = tu_spec_parse(&spec, arg, err);
    if (rc)
        return rc;
    struct tu_kv_hint hint = {.spec = &spec, .force = true};
    tu_kv_info_init(&hint.info);
    rc = tu_kv_engine_find(&e, spec.name, err);
    if (!rc)
        rc = open_caches(&set, 1, err);
    if (!rc)
        strcpy(set.kv[0]->info.model, "org/m");
    if (!rc)
        rc = e->save(set.kv[0], "out", &hint, NULL, err);
    tu_kv_set_release(&set);
    tu_spec_release(&spec);
    hint.spec = NULL;
    bool again = !strncmp(arg, "hf", 2) || !strncmp(arg, "llama", 5);
    if (!rc && again)
        rc = e->open(&kv, path, 1, &hint, NULL, err);
    if (!rc && again)
        rc = begin("again", &w, err);
    if (!rc && again)
        rc = tu_kv_write(kv, w, NULL, err);
    tu_kv_close(kv);
    if (again)
        rc = end(w, rc, err);
    return rc;
}

/* Into a store, from it, through it. */
static int store(const void *arg, struct tu_err *err)
{
    struct tu_kv_set set = {0};
    struct tu_kv_spilled spilled;
    struct tu_kv_fetched fetched = {0};
    struct tu_kv_swept swept;
    struct tu_kv_block *b = NULL;
    struct tu_kv_info want;
    struct tu_writer *w = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    tu_kv_info_init(&want);
    int rc = open_caches(&set, 1, err);
    if (!rc)
        rc = tu_kv_spill(set.kv[0], "store", 4, 0, &spilled, NULL, err);
    if (!rc)
        rc = tu_kv_ids(set.kv[0], &ids, err);
    if (!rc)
        rc = begin("out", &w, err);
    if (!rc)
        rc = tu_kv_fetch("store", &want, ids, set.kv[0]->tokens, !strcmp(arg, "each"), w, &fetched, NULL,
                         err);
    rc = end(w, rc, err);
    if (!rc)
        rc = tu_kv_store_scan("store", true, &b, &n, NULL, err);
    if (!rc)
        rc = tu_kv_store_sweep("store", 0, 1, &swept, NULL, err);
    if (!rc)
        inject_add(&n, sizeof n);
    tu_free(b);
    tu_free(ids);
    tu_kv_set_release(&set);
    census("store", false);
    return rc;
}

/* A trace through every policy, its groups, its clock. */
static int trace(const void *arg, struct tu_err *err)
{
    struct tu_kv_trace t = {0};
    struct tu_in *in;
    struct tu_kv_groups groups;
    struct tu_kv_timed timed;
    const struct tu_kv_timed_how how = {.block = 4, .blocks = 8, .pre = 10, .dec = 100};
    uint32_t order[16];
    (void)arg;
    int rc = tu_in_open(&in, "trace", err);
    if (rc)
        return rc;
    rc = tu_kv_trace_read(&t, in, NULL, 4, 0, NULL, err);
    tu_in_close(in);
    for (size_t i = 0; !rc && tu_kv_policies[i]; i++) {
        struct tu_spec spec;
        struct tu_kv_hits h;
        rc = tu_spec_parse(&spec, tu_kv_policies[i]->name, err);
        if (rc)
            break;
        rc = tu_kv_replay(&t, &spec, 5, &h, err);
        tu_spec_release(&spec);
        inject_add(&h, rc ? 0 : sizeof h);
    }
    if (!rc)
        rc = tu_kv_group(&t, &groups, err);
    if (!rc)
        rc = tu_kv_trace_order(&t, order, err);
    inject_add(order, rc ? 0 : t.n * sizeof *order);
    if (!rc)
        rc = tu_kv_group_order(&t, order, err);
    inject_add(order, rc ? 0 : t.n * sizeof *order);
    if (!rc)
        rc = tu_kv_timed_run(&t, &how, &timed, err);
    inject_add(&timed, rc ? 0 : sizeof timed);
    tu_kv_trace_release(&t);
    return rc;
}

/* A record through a codec and back. */
static int codec(const void *arg, struct tu_err *err)
{
    struct tu_kv_array a = {.dtype = !strcmp(arg, "split16") ? TU_BF16 : TU_F32, .tokens = 64, .heads = 2, .dim = 64};
    static float x[64 * 2 * 64], back[64 * 2 * 64];
    struct tu_kv_coded c = {0};
    struct tu_spec spec;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)((int)(i * 7919 % 257) - 128) / 32;
    int rc = tu_spec_parse(&spec, arg, err);
    if (rc)
        return rc;
    rc = tu_kv_encode(&spec, &a, x, &c, err);
    if (!rc)
        rc = tu_kv_decode(&spec, &a, c.part, c.n, back, err);
    inject_add(back, rc ? 0 : sizeof back);
    tu_kv_coded_release(&c);
    tu_spec_release(&spec);
    return rc;
}

/* Which tokens a method keeps. */
static int keep(const void *arg, struct tu_err *err)
{
    static float k[48 * 8], attn[4 * 48];
    uint64_t kept[12];
    struct tu_spec spec;
    for (size_t i = 0; i < sizeof k / sizeof *k; i++)
        k[i] = (float)(i * 31 % 17);
    for (size_t i = 0; i < sizeof attn / sizeof *attn; i++)
        attn[i] = (float)(i * 13 % 11) / 48;
    int rc = tu_spec_parse(&spec, arg, err);
    if (rc)
        return rc;
    rc = tu_kv_keep(&spec, 48, 12, k, 1, 8, attn, 4, kept, err);
    inject_add(kept, rc ? 0 : sizeof kept);
    tu_spec_release(&spec);
    return rc;
}

/* -------------------------------------------------------------------------------------------- */

static const char *sweep(const void *arg, int rc, const struct tu_err *err)
{
    (void)arg;
    (void)err;
    census("out", rc == 0);
    census("again", rc == 0);
    return scratch_files() == 2 ? NULL : "files are left";
}

static void walk(const char *name, int (*run)(const void *, struct tu_err *), const char *arg,
                 bool system)
{
    char text[80];
    snprintf(text, sizeof text, "%s %s", name, arg);
    const struct inject w = {.name = text, .run = run, .arg = arg, .after = sweep, .dense = 200};
    if (inject_memory(&w) && system)
        inject_io(&w);
}

static void fixtures(void)
{
    char state[600];
    const char *const path[] = {state};
    const struct tu_kv_engine *e;
    struct tu_kv_hint hint = {0};
    struct tu_kv *kv = NULL;
    struct tu_writer *w = NULL;
    struct tu_err err = {0};
    static const char text[] =
        "{\"timestamp\":0,\"input_length\":9,\"output_length\":3,\"hash_ids\":[0,1,2]}\n"
        "{\"timestamp\":1,\"input_length\":12,\"output_length\":9,\"hash_ids\":[0,1,3]}\n"
        "{\"timestamp\":2,\"input_length\":8,\"output_length\":1,\"hash_ids\":[4,5]}\n"
        "{\"timestamp\":3,\"input_length\":10,\"output_length\":2,\"hash_ids\":[0,1,2]}\n"
        "{\"timestamp\":4,\"input_length\":11,\"output_length\":2,\"hash_ids\":[4,5,6]}\n";
    snprintf(state, sizeof state, "%s/tests/data/kv/llama_f16.state", root);
    tu_kv_info_init(&hint.info);
    int rc = tu_kv_engine_find(&e, "llama", &err);
    if (!rc)
        rc = e->open(&kv, path, 1, &hint, NULL, &err);
    if (!rc)
        rc = begin("c.tns", &w, &err);
    if (!rc)
        rc = tu_kv_write(kv, w, NULL, &err);
    tu_kv_close(kv);
    rc = end(w, rc, &err);
    if (!rc)
        rc = tu_file_write("trace", text, strlen(text), false, NULL, &err);
    ok(!rc, "a cache and a trace: %s", err.msg);
}

int main(void)
{
    static const char *const conversions[] = {
        "vllm 4 - 0 0 -1", "flashinfer-hnd 4 bf16 0 0 -1", "trt 4 f16 0 3 -1", "- 0 f32 2 0 16",
    };
    static const char *const engines[] = {
        "hf:as=torch", "hf:as=safetensors", "llama", "raw", "lmcache:chunk=4", "hicache:chunk=4",
        "mooncake:chunk=4",
    };
    if (!getcwd(root, sizeof root))
        return 99;
    scratch_enter();
    fixtures();
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++)
        walk("convert", convert, conversions[i], true);
    walk("page", page, "-", true);
    walk("page", page, tu_kv_schemes[0].name, true);
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
        walk("engine", engine, engines[i], true);
    walk("store", store, "one", true);
    walk("store", store, "each", true);
    walk("replay", trace, "trace", true);
    for (size_t i = 0; tu_kv_codecs[i].name; i++)
        walk("codec", codec, tu_kv_codecs[i].name, false);
    const char *name, *help;
    for (size_t i = 0; (name = tu_kv_keep_list(i, &help)); i++)
        walk("keep", keep, name, false);
    scratch_leave();
    return tap_done();
}
