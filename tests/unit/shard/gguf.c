/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints as GGUF's records against what llama.cpp's own converter makes of them, and back
 * to Hugging Face's names: every family of tests/data/hf. */
#include <tensorutils/shard.h>

#include <stdlib.h>
#include <unistd.h>

#include "../tap.h"

#define HF "tests/data/hf/"
#define ORACLE "tests/data/gguf/hf/"

static const char *const models[] = {"llama", "llama_tied", "llama_mqa", "llama_even",
                                     "mistral", "gpt2", "gpt_neox", "qwen2", "qwen3",
                                     "mixtral", "qwen2_moe", "qwen3_moe", "mixtral_fused"};

static void path_of(char out[256], const char *folder, const char *name, const char *end)
{
    snprintf(out, 256, "%s%s%s", folder, name, end);
}

static int write_to(const char *path, const char *model)
{
    char from[256];
    struct tu_shard_opts o = {.roles = true};
    struct tu_ckpt *c = NULL;
    struct tu_out *out = NULL;
    struct tu_writer *w = NULL;
    struct tu_err err;
    bool tokens;
    path_of(from, HF, model, "");
    int rc = tu_ckpt_open(&c, from, NULL, &o, NULL, &err);
    if (!rc)
        c->dtype = TU_BF16; /* as the converter was asked */
    if (!rc)
        rc = tu_out_open(&out, path, NULL, &err);
    if (!rc)
        rc = tu_writer_new(&w, out, &err);
    if (!rc)
        rc = tu_ckpt_gguf(c, w, &tokens, NULL, &err);
    if (!rc)
        rc = tu_writer_end(w, false, &err);
    if (!rc)
        rc = tu_writer_close(w, false, &err);
    else
        tu_writer_abort(w);
    tu_ckpt_close(c);
    if (rc)
        printf("# %s: %s\n", model, err.msg);
    return rc;
}

/* "CRC DTYPE SHAPE NAME" of the converter's file for a tensor; NULL if it has none. */
static const char *find_line(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *s = text; *s; s += strcspn(s, "\n") + 1) {
        size_t len = strcspn(s, "\n");
        if (len > n && s[len - n - 1] == ' ' && !memcmp(s + len - n, name, n))
            return s;
        if (!s[len])
            break;
    }
    return NULL;
}

static void compare(const char *model, const char *path)
{
    char oracle[256], *text = NULL;
    struct tu_in *in = NULL;
    struct tu_stream_index *x = NULL;
    struct tu_err err;
    size_t n, wrong = 0, tensors = 0, lines = 0;
    path_of(oracle, ORACLE, strcmp(model, "mixtral_fused") ? model : "mixtral", ".oracle");
    if (tu_file_read(oracle, 1 << 20, &text, &n, &err) || tu_in_open(&in, path, &err) ||
        tu_index_open(&x, in, &err)) {
        ok(false, "%s: %s", model, err.msg);
        tu_free(text);
        return;
    }
    for (const char *s = text; *s; s++)
        lines += *s == '\n';
    for (size_t i = 0; i < tu_index_count(x); i++) {
        const struct tu_index_entry *e = tu_index_entry(x, i);
        if (e->type != TU_REC_TENSOR)
            continue;
        char want[24], code[8];
        const char *line = find_line(text, e->tensor.name);
        snprintf(want, sizeof want, "%08x %s ", (unsigned)e->payload_crc,
                 tu_dtype_text(e->tensor.dtype, code));
        tensors++;
        if (!line || strncmp(line, want, strlen(want)))
            wrong++, printf("# %s: %s%s\n", model, want, e->tensor.name);
    }
    eq_u64(tensors, lines, "%s: as many tensors", model);
    eq_u64(wrong, 0, "%s: the same dtype and bytes", model);
    tu_index_close(x);
    tu_free(text);
}

int main(void)
{
    char path[] = "/tmp/gguf-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        return 99;
    close(fd);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        eq_int(write_to(path, models[i]), 0, "%s is written", models[i]);
        compare(models[i], path);
    }
    unlink(path);
    return tap_done();
}
