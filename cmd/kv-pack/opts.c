/* SPDX-License-Identifier: Apache-2.0 */
/* opts.c: options and inputs that subcommands share. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "kv-pack/pack.h"

struct kv_identity kv_identity = {.rope = -1};
struct kv_naming kv_naming = {.hash = "vllm-sha256", .block = 16};

static const char *const ropes[] = {"post", "pre", "none", NULL};

const struct tu_opt kv_identity_options[] = {
    {0, "model", "TEXT", "whose cache it is", TU_OPT_STRING, &kv_identity.model, NULL, 0},
    {0, "weights", "TEXT", "fingerprint of the weights", TU_OPT_STRING,
     &kv_identity.weights, NULL, 0},
    {0, "arch", "TEXT", "architecture", TU_OPT_STRING, &kv_identity.arch, NULL, 0},
    {0, "config", "FILE", "config.json of the model: heads, rotary embedding, window",
     TU_OPT_FILE_IN, &kv_identity.config, NULL, 0},
    {0, "kv-heads", "N", "KV heads of the whole model", TU_OPT_U64, &kv_identity.heads, NULL,
     0},
    {0, "rope-state", NULL, "are the keys rotated", TU_OPT_CHOICE, &kv_identity.rope, ropes,
     0},
    {0, "rope", "THETA", "base of the rotary embedding", TU_OPT_DOUBLE, &kv_identity.theta,
     NULL, 0},
    {0, "window", "N", "sliding window", TU_OPT_U64, &kv_identity.window, NULL, 0},
    {0, "tp-rank", "N:R", "rank R of N that the file is from", TU_OPT_STRING,
     &kv_identity.tp, NULL, 0},
    {0, "tokens", "FILE", "token ids as text", TU_OPT_FILE_IN, &kv_identity.tokens, NULL, 0},
    {0},
};

const struct tu_opt kv_naming_options[] = {
    {0, "hash", "HASH", "whose block names; default: vllm-sha256", TU_OPT_STRING,
     &kv_naming.hash, NULL, 0},
    {0, "hash-seed", "TEXT", "PYTHONHASHSEED of the engine", TU_OPT_STRING, &kv_naming.seed,
     NULL, 0},
    {0, "salt", "TEXT", "cache salt", TU_OPT_STRING, &kv_naming.salt, NULL, 0},
    {0, "lora", "NAME", "name of the LoRA adapter", TU_OPT_STRING, &kv_naming.lora, NULL, 0},
    {0, "extra-key", "TEXT", "sglang's extra key", TU_OPT_STRING, &kv_naming.extra, NULL, 0},
    {'b', "block", "N", "tokens of a block; default: 16", TU_OPT_U64, &kv_naming.block, NULL,
     0},
    {0},
};

static const char *layout_row(size_t i, const char **help)
{
    *help = tu_kv_layouts[i].help;
    return tu_kv_layouts[i].name;
}

static const char *engine_row(size_t i, const char **help)
{
    const struct tu_kv_engine *e = tu_kv_engines[i];
    *help = e ? e->help : NULL;
    return e ? e->name : NULL;
}

static const char *scheme_row(size_t i, const char **help)
{
    *help = tu_kv_schemes[i].help;
    return tu_kv_schemes[i].name;
}

static const char *policy_row(size_t i, const char **help)
{
    const struct tu_kv_policy *p = tu_kv_policies[i];
    *help = p ? p->help : NULL;
    return p ? p->name : NULL;
}

static const char *trace_row(size_t i, const char **help)
{
    *help = tu_kv_trace_forms[i].help;
    return tu_kv_trace_forms[i].name;
}

static const char *codec_row(size_t i, const char **help)
{
    *help = tu_kv_codecs[i].help;
    return tu_kv_codecs[i].name;
}

const struct tu_listing kv_listings[] = {
    {"layouts", "layouts of caches in memory, for --layout", layout_row, NULL},
    {"engines", "engines' files, for --from and --to", engine_row, NULL},
    {"hashes", "names of blocks, for --hash", scheme_row, NULL},
    {"codecs", "codecs of keys and values, for --codec", codec_row, NULL},
    {"keep", "ways to choose tokens, for --keep", tu_kv_keep_list, NULL},
    {"policies", "eviction, for --policy", policy_row, NULL},
    {"traces", "forms of traces, for --form", trace_row, NULL},
    {0},
};

static int take_text(char *to, size_t room, const char *text, const char *option,
                     struct tu_err *err)
{
    if (!text)
        return 0;
    if (strlen(text) >= room)
        return tu_fail(err, TU_EUSAGE, "%s: at most %zu bytes", option, room - 1);
    memcpy(to, text, strlen(text) + 1);
    return 0;
}

static int take_config(struct tu_kv_info *out, const char *path, struct tu_err *err)
{
    struct tu_model m;
    char *text;
    size_t n;
    int rc = tu_file_read(path, (size_t)16 << 20, &text, &n, err);
    if (rc)
        return rc;
    rc = tu_model_from_hf(&m, text, n, err);
    tu_free(text);
    if (rc) {
        tu_err_prefix(err, "%s", path);
        return rc;
    }
    out->heads = m.kv_heads;
    out->rope_theta = m.rope_theta;
    return take_text(out->arch, sizeof out->arch, m.family, "config", err);
}

int kv_tp(const char *text, uint64_t *size, int64_t *rank, struct tu_err *err)
{
    char first[24];
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    uint64_t r = 0;
    if (n >= sizeof first)
        return tu_fail(err, TU_EUSAGE, "'%.40s' is not N or N:R", text);
    memcpy(first, text, n);
    first[n] = 0;
    int rc = tu_parse_u64(first, size, err);
    if (!rc && colon)
        rc = tu_parse_u64(colon + 1, &r, err);
    if (!rc && (!*size || *size > 1 << 20 || r >= *size))
        rc = tu_fail(err, TU_EUSAGE, "'%.40s': rank below N, which is at least 1", text);
    *rank = colon ? (int64_t)r : -1;
    return rc;
}

int kv_identity_get(struct tu_kv_info *out, struct tu_err *err)
{
    const struct kv_identity *o = &kv_identity;
    int64_t rank = 0;
    tu_kv_info_init(out);
    int rc = o->config ? take_config(out, o->config, err) : 0;
    if (!rc)
        rc = take_text(out->model, sizeof out->model, o->model, "--model", err);
    if (!rc)
        rc = take_text(out->weights, sizeof out->weights, o->weights, "--weights", err);
    if (!rc)
        rc = take_text(out->arch, sizeof out->arch, o->arch, "--arch", err);
    if (!rc && o->tp)
        rc = kv_tp(o->tp, &out->tp_size, &rank, err);
    if (rank > 0)
        out->tp_rank = (uint64_t)rank;
    if (o->rope >= 0)
        memcpy(out->rope, ropes[o->rope], strlen(ropes[o->rope]) + 1);
    if (o->theta > 0)
        out->rope_theta = o->theta;
    if (o->window)
        out->window = o->window;
    if (o->heads)
        out->heads = o->heads;
    return rc;
}

int kv_naming_get(const struct tu_kv_scheme **scheme, struct tu_kv_hash_how *how,
                  struct tu_err *err)
{
    *how = (struct tu_kv_hash_how){.block = kv_naming.block, .seed = kv_naming.seed,
                                   .lora = kv_naming.lora, .salt = kv_naming.salt,
                                   .extra_key = kv_naming.extra};
    if (!how->block)
        return tu_fail(err, TU_EUSAGE, "--block 0");
    return tu_kv_scheme_find(scheme, kv_naming.hash, err);
}

/* Inputs ------------------------------------------------------------------------------- */

int kv_streams(int argc, char **argv, struct tu_kv_set *set, struct tu_err *err)
{
    int rc = 0;
    *set = (struct tu_kv_set){0};
    for (int i = 0; !rc && i < (argc ? argc : 1); i++) {
        struct tu_in *in;
        rc = tu_in_open(&in, argc ? argv[i] : "-", err);
        if (!rc)
            rc = tu_kv_set_add(set, in, getenv("TMPDIR"), err);
    }
    return rc;
}

bool kv_is_stream(const char *path)
{
    unsigned char head[8];
    size_t n = 0;
    struct tu_in *in;
    struct stat st;
    if (!strcmp(path, "-") || (!stat(path, &st) && S_ISFIFO(st.st_mode)))
        return true;
    if (tu_in_open(&in, path, NULL))
        return false;
    bool yes = !tu_in_peek(in, head, sizeof head, &n, NULL) && n == 8 &&
               !memcmp(head, TU_STREAM_MAGIC, 8);
    tu_in_close(in);
    return yes;
}

int kv_any(struct tu_ctx *ctx, const char *path, const struct tu_spec *spec,
           struct tu_kv_set *set, struct tu_err *err)
{
    const struct tu_kv_engine *e;
    struct tu_kv_hint hint = {.spec = spec};
    struct tu_kv *kv = NULL;
    if (!spec && kv_is_stream(path)) {
        struct tu_in *in;
        int rc = tu_in_open(&in, path, err);
        return rc ? rc : tu_kv_set_add(set, in, getenv("TMPDIR"), err);
    }
    int rc = kv_identity_get(&hint.info, err);
    if (!rc)
        rc = tu_kv_engine_of(&e, path, spec, err);
    if (!rc)
        rc = e->open(&kv, &path, 1, &hint, tu_ctx_job(ctx), err);
    if (!rc && !(rc = TU_GROW(&set->kv, &set->cap, set->n, err)))
        set->kv[set->n++] = kv;
    else
        tu_kv_close(kv);
    return rc;
}

int kv_writer(struct tu_ctx *ctx, struct tu_writer **w, struct tu_err *err)
{
    struct tu_out *out;
    *w = NULL;
    int rc = tu_ctx_output(ctx, &out, err);
    return rc ? rc : tu_writer_new(w, out, err);
}

int kv_written(struct tu_ctx *ctx, struct tu_writer *w, int rc, struct tu_err *err)
{
    if (!rc)
        rc = tu_writer_close(w, false, err);
    else
        tu_writer_abort(w);
    return rc ? tu_error(ctx, err) : TU_STATUS_YES;
}

int kv_tokens(const char *path, int32_t **ids, uint64_t *n, struct tu_err *err)
{
    struct tu_in *in;
    struct tu_buf text = {.max = (size_t)1 << 30};
    size_t cap = 0, got = 1;
    *ids = NULL;
    *n = 0;
    int rc = tu_in_open(&in, path, err);
    if (rc)
        return rc;
    while (!rc && got) {
        void *p = tu_buf_room(&text, 65536, err);
        rc = p ? tu_in_read(in, p, 65536, &got, err) : err->code;
        text.n += rc ? 0 : got;
    }
    for (size_t i = 0; !rc && i < text.n;) {
        unsigned char c = (unsigned char)text.data[i];
        if (c < '0' || c > '9') {
            if (!strchr(" \t\r\n,[]", c) || !c)
                rc = tu_fail_at(err, TU_EFORMAT, i, "%s: byte %zu: token ids are numbers "
                                                    "from 0 to 2147483647", path, i);
            i++;
            continue;
        }
        uint64_t v = 0;
        for (; i < text.n && text.data[i] >= '0' && text.data[i] <= '9'; i++)
            v = v > INT32_MAX ? v : v * 10 + (uint64_t)(text.data[i] - '0');
        if (v > INT32_MAX)
            rc = tu_fail_at(err, TU_EFORMAT, i, "%s: byte %zu: a token id over 2147483647",
                            path, i);
        if (!rc && !(rc = TU_GROW(ids, &cap, *n, err)))
            (*ids)[(*n)++] = (int32_t)v;
    }
    tu_in_close(in);
    tu_buf_release(&text);
    return rc;
}

int kv_range(const char *text, const char *option, struct tu_kv_range *out,
             struct tu_err *err)
{
    char *end;
    *out = (struct tu_kv_range){0, UINT64_MAX};
    if (!text)
        return 0;
    bool good = *text >= '0' && *text <= '9';
    out->begin = strtoull(text, &end, 10);
    if (good && !*end) {
        out->end = out->begin + 1;
    } else if (good && *end == '-' && end[1]) {
        good = end[1] >= '0' && end[1] <= '9';
        out->end = strtoull(end + 1, &end, 10);
        good = good && !*end && out->end > out->begin;
    } else {
        good = good && *end == '-';
    }
    return good ? 0
                : tu_fail(err, TU_EUSAGE, "%s '%.40s': expected A-B (B not included), A- or A",
                          option, text);
}
