/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of Hugging Face folders: the grouping of huggingface_hub, the index, hub caches
 * of links, every way in which index and shards may disagree. */
#include "fix.h"

#define FORMAT (tu_format_find("hf"))

static void group(const char *sizes, uint64_t max, const char *want)
{
    uint64_t bytes[16];
    uint32_t file[16];
    size_t n = 0;
    for (const char *p = sizes; *p; p++) {
        if (*p != ' ')
            bytes[n++] = (uint64_t)(*p - '0');
    }
    size_t files = tu_hf_shards(bytes, n, max, file);
    char have[64] = "";
    for (size_t k = 0; k < files; k++) {
        strcat(have, k ? " [" : "[");
        for (size_t i = 0; i < n; i++) {
            if (file[i] == k)
                sprintf(have + strlen(have), "%d", (int)bytes[i]);
        }
        strcat(have, "]");
    }
    eq_str(have, want, "%s by %d", sizes, (int)max);
}

/* Answers of huggingface_hub's rule, worked by hand. */
static void test_grouping(void)
{
    group("6 6 2 6 2 2", 10, "[6] [62] [622]");
    group("", 10, "");
    group("1", 10, "[1]");
    group("5 5", 10, "[55]");
    group("5 5 1", 10, "[55] [1]");
    group("2 9 2", 5, "[9] [22]");       /* the giant goes out at once, the open group stays */
    group("9 9", 5, "[9] [9]");
    group("2 9 2 2 2", 5, "[9] [22] [22]");
    group("0 0", 5, "[00]");
    group("5 0 1", 5, "[50] [1]");
}

static struct tu_tensor tensors[4];

static int save(const char *path, uint64_t max, bool force, struct tu_err *err)
{
    static const uint64_t six[] = { 6 }, two[] = { 2 };
    tensors[0] = fix_tensor("b", TU_U8, 1, six);
    tensors[1] = fix_tensor("\xc3\xa4", TU_U8, 1, six);
    tensors[2] = fix_tensor("c", TU_U8, 1, two);
    tensors[3] = fix_tensor("d", TU_F16, 1, two);
    struct tu_save what = { .n = 4, .tensor = tensors, .max_shard = max, .force = force };
    return fix_save(path, FORMAT, &what, NULL, err);
}

static bool right(const char *path)
{
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    if (tu_source_open(&s, path, NULL, NULL, NULL, &err)) {
        printf("# %s\n", err.msg);
        return false;
    }
    bool yes = s->n == 4 && s->metas == 1 &&
               !strcmp(s->meta[0].json, "{\"metadata\":{\"format\":\"pt\"}}");
    for (size_t k = 0; yes && k < 4; k++) {
        size_t i = tu_source_find(s, tensors[k].name);
        yes = i != SIZE_MAX && s->tensor[i].dtype == tensors[k].dtype && fix_holds(s, i, k) &&
              s->extent[i].in && !tu_source_verify(s, i, NULL, &err);
    }
    tu_source_close(s);
    return yes;
}

static const char index_text[] =
    "{\n  \"metadata\": {\n    \"total_size\": 18\n  },\n  \"weight_map\": {\n"
    "    \"b\": \"model-00001-of-00003.safetensors\",\n"
    "    \"c\": \"model-00002-of-00003.safetensors\",\n"
    "    \"d\": \"model-00003-of-00003.safetensors\",\n"
    "    \"\xc3\xa4\": \"model-00002-of-00003.safetensors\"\n  }\n}\n";

static void test_write(void)
{
    struct tu_err err = { 0 };
    const char *dir = fix_path("out");
    if (!ok(!save(dir, 9, false, &err), "three shards"))
        printf("# %s\n", err.msg);
    ok(fix_same(fix_path("out/model.safetensors.index.json"), index_text, strlen(index_text)),
       "the index as Python prints it");
    ok(right(dir), "the folder is read");
    ok(right(fix_path("out/model.safetensors.index.json")), "and by its index");
    eq_int(save(dir, 9, false, &err), TU_EEXISTS, "a folder that is there is refused");
    ok(right(dir), "and untouched");
    ok(!save(dir, 0, true, &err), "unless forced");
    ok(access(fix_path("out/model.safetensors.index.json"), F_OK), "one file needs no index");
    ok(right(dir), "and is read");
    mkdir(fix_path("empty"), 0777);
    ok(!save(fix_path("empty/"), 9, false, &err) && right(fix_path("empty")),
       "an empty folder is taken, a slash behind it ignored");
    eq_int(save(fix_write("file", "x", 1), 9, false, &err), TU_EEXISTS, "a file in the way");
    eq_int(save("-", 9, false, &err), TU_EUSAGE, "no standard output");
    struct tu_sink *k = NULL;
    struct tu_save what = { .n = 4, .tensor = tensors, .max_shard = 9 };
    ok(!tu_sink_open(&k, fix_path("gone"), FORMAT, &what, NULL, &err), "begun");
    tu_sink_abort(k);
    DIR *d = opendir(fix_folder);
    bool clean = true;
    for (struct dirent *e; (e = readdir(d));)
        clean = clean && !strstr(e->d_name, "partial");
    closedir(d);
    ok(clean, "nothing temporary is left");
    what.n = 0;
    ok(!fix_save(fix_path("none"), FORMAT, &what, NULL, &err), "no tensors, an empty file");
}

/* A file of U8 tensors of one byte, by their names. */
static void shard(const char *path, const char *names)
{
    struct tu_tensor t[8];
    static char one[8][2];
    static const uint64_t dim[] = { 1 };
    size_t n = 0;
    for (; names[n]; n++) {
        one[n][0] = names[n];
        t[n] = fix_tensor(one[n], TU_U8, 1, dim);
    }
    struct tu_save what = { .n = n, .tensor = t };
    if (fix_save(fix_path(path), NULL, &what, NULL, NULL))
        abort();
}

static void test_bad(void)
{
    static const struct {
        const char *index;
        int code;
        const char *words, *what;
    } rows[] = {
        { "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", 0, "", "right" },
        { "{\"metadata\":{\"total_size\":99},\"weight_map\":{\"a\":\"1.safetensors\",\"b\":"
          "\"2.safetensors\"}}", 0, "", "a false total_size is not believed" },
        { "{\"weight_map\":{\"a\":\"../1.safetensors\"}}", TU_EFORMAT, "'a'|'../1.safetensors'",
          "a path upwards" },
        { "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", TU_EFORMAT, "'/etc/passwd'", "a whole path" },
        { "{\"weight_map\":{\"a\":\"x/1.safetensors\"}}", TU_EFORMAT, "'x/1.safetensors'",
          "a folder" },
        { "{\"weight_map\":{\"a\":\"..\"}}", TU_EFORMAT, "'..'", "the folder above" },
        { "{\"weight_map\":{\"a\":\"\"}}", TU_EFORMAT, "''", "no name" },
        { "{\"weight_map\":{\"a\":1}}", TU_EFORMAT, "'a'", "a number" },
        { "{\"weight_map\":[]}", TU_EFORMAT, "weight_map", "a list" },
        { "{\"metadata\":{}}", TU_EFORMAT, "weight_map", "no map" },
        { "{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"1.safetensors\"}}", TU_EMETA, "",
          "a name twice" },
        { "[]", TU_EMETA, "", "no object" },
        { "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":"
          "\"2.safetensors\"}}", TU_EINCOMPLETE, "'c' is not in '2.safetensors'",
          "a shard lacks a tensor" },
        { "{\"weight_map\":{\"a\":\"1.safetensors\"}}", 0, "", "a shard that is not named" },
        { "{\"weight_map\":{\"a\":\"12.safetensors\"}}", TU_EINCOMPLETE,
          "12.safetensors: holds 'b'|does not list", "a shard holds a tensor too many" },
        { "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"12.safetensors\"}}", TU_EINCOMPLETE,
          "holds 'a'|'1.safetensors'", "a tensor in two shards" },
        { "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"3.safetensors\"}}", TU_EINCOMPLETE,
          "3.safetensors: missing|'b'", "a shard is missing" },
        { "{\"weight_map\":{}}", 0, "", "an empty map" },
    };
    mkdir(fix_path("bad"), 0777);
    shard("bad/1.safetensors", "a");
    shard("bad/2.safetensors", "b");
    shard("bad/12.safetensors", "ab");
    const char *dir = "bad/model.safetensors.index.json";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fix_write(dir, rows[i].index, strlen(rows[i].index));
        if (rows[i].code) {
            fix_refused(fix_path("bad"), NULL, NULL, rows[i].code, rows[i].words, rows[i].what);
            continue;
        }
        struct tu_err err = { 0 };
        struct tu_source *s = NULL;
        if (!ok(!tu_source_open(&s, fix_path("bad"), NULL, NULL, NULL, &err), "%s", rows[i].what))
            printf("# %s\n", err.msg);
        tu_source_close(s);
    }
    mkdir(fix_path("nothing"), 0777);
    fix_refused(fix_path("nothing"), NULL, NULL, TU_EMAGIC, "folder", "an empty folder");
    fix_refused(fix_path("nothing"), FORMAT, NULL, TU_EINCOMPLETE, "model.safetensors",
                "an empty folder, named");
    fix_refused(fix_path("nothing"), tu_format_find("npy"), NULL, TU_EMAGIC, "folder",
                "a folder for a format of files");
    struct tu_open keep = { .keep_header = true };
    fix_refused(fix_path("out"), NULL, &keep, TU_EUSAGE, "no header", "no header can be kept");
}

/* A hub cache: snapshots of links into blobs, one of which may not have arrived. */
static void test_links(void)
{
    mkdir(fix_path("cache"), 0777);
    mkdir(fix_path("cache/blobs"), 0777);
    mkdir(fix_path("cache/snap"), 0777);
    shard("cache/blobs/x.safetensors", "a");
    static const char index[] = "{\"weight_map\":{\"a\":\"1.safetensors\"}}";
    fix_write("cache/blobs/index", index, sizeof index - 1);
    if (symlink("../blobs/x.safetensors", fix_path("cache/snap/1.safetensors")) ||
        symlink("../blobs/index", fix_path("cache/snap/model.safetensors.index.json")))
        abort();
    struct tu_err err = { 0 };
    struct tu_source *s = NULL;
    if (!ok(!tu_source_open(&s, fix_path("cache/snap"), NULL, NULL, NULL, &err), "links"))
        printf("# %s\n", err.msg);
    ok(s && s->n == 1 && fix_holds(s, 0, 0), "are followed");
    tu_source_close(s);
    unlink(fix_path("cache/blobs/x.safetensors"));
    fix_refused(fix_path("cache/snap"), NULL, NULL, TU_EINCOMPLETE, "1.safetensors: missing",
                "a link to nothing");
}

/* tu_hf_snapshot gives want (below the scratch folder), or fails. */
static void snapshot(const char *folder, int code, const char *want)
{
    struct tu_err err = { 0 };
    char *out = NULL;
    eq_int(tu_hf_snapshot(&out, fix_path(folder), &err), code, "the weights of %s: %s", folder, err.msg);
    eq_str(out, want ? fix_path(want) : NULL, "their folder");
    tu_free(out);
}

/* The cache keeps snapshots by their hashes, and says which is main's. */
static void test_cache(void)
{
    struct tu_source *s = NULL;
    struct tu_err err = { 0 };
    mkdir(fix_path("hub"), 0777);
    snapshot("hub", 0, "hub");
    mkdir(fix_path("hub/snapshots"), 0777);
    snapshot("hub", TU_EINCOMPLETE, NULL);
    mkdir(fix_path("hub/refs"), 0777);
    fix_write("hub/refs/main", "5f0c\n", 5);
    snapshot("hub", 0, "hub/snapshots/5f0c");
    static const char *const bad[] = { "", "\n", "..", "5f0c/../../x" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fix_write("hub/refs/main", bad[i], strlen(bad[i]));
        snapshot("hub", TU_EFORMAT, NULL);
    }
    fix_write("hub/refs/main", "5f0c", 4);
    ok(!save(fix_path("hub/snapshots/5f0c"), 9, false, &err), "a snapshot");
    ok(right(fix_path("hub/snapshots/5f0c")), "is a folder of weights");
    ok(!tu_source_open(&s, fix_path("hub"), NULL, NULL, NULL, &err) && s->n == 4,
       "the cache's folder is opened as its main snapshot: %s", err.msg);
    tu_source_close(s);
}

static int inject_snapshot(struct tu_err *err)
{
    char *out = NULL;
    int code = tu_hf_snapshot(&out, fix_path("hub"), err);
    tu_free(out);
    return code;
}

/* Something that turned up under the final name in the meantime stays. */
static void test_publish(void)
{
    struct tu_err err = { 0 };
    struct tu_sink *k = NULL;
    const struct tu_save what = { .n = 1, .tensor = tensors };
    for (int gone = 0; gone < 2; gone++) {
        fix_remove(fix_path("late"));
        mkdir(fix_path("late"), 0777);
        ok(!tu_sink_open(&k, fix_path("late/out"), FORMAT, &what, NULL, &err) &&
               !tu_sink_write(k, 0, 0, "abcdef", 6, &err), "begun");
        if (gone) {
            fix_remove(fix_path("late"));
        } else {
            mkdir(fix_path("late/out"), 0777);
            fix_write("late/out/mine", "x", 1);
        }
        eq_int(tu_sink_finish(k, false, &err), gone ? TU_EIO : TU_EEXISTS, "%s: %s",
               gone ? "the parent went" : "a folder came", err.msg);
        ok(gone ? access(fix_path("late"), F_OK) != 0 : fix_same(fix_path("late/out/mine"), "x", 1),
           "and nothing is left but that");
    }
    eq_int(tu_sink_open(&k, fix_path("late/out"), FORMAT, &what, NULL, &err), TU_EIO, "no parent: %s",
           err.msg);
}

static int inject_save(struct tu_err *err)
{
    return save(fix_path("inject"), 9, true, err);
}

static int inject_open(struct tu_err *err)
{
    struct tu_source *s = NULL;
    int code = tu_source_open(&s, fix_path("inject"), FORMAT, NULL, NULL, err);
    if (!code)
        tu_source_close(s);
    return code;
}

int main(void)
{
    test_grouping();
    test_write();
    test_bad();
    test_links();
    test_cache();
    test_publish();
    fix_inject(inject_snapshot, true, "snapshot");
    fix_inject(inject_snapshot, false, "snapshot");
    fix_inject(inject_save, true, "save");
    fix_inject(inject_save, false, "save");
    ok(!inject_save(NULL), "a folder for the next loops");
    fix_inject(inject_open, true, "open");
    fix_inject(inject_open, false, "open");
    return tap_done();
}
