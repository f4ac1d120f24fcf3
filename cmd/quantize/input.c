/* SPDX-License-Identifier: Apache-2.0 */
/* input.c: the records of an operand, what they say of the model, and payloads that are
 * read twice. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "quantize/model.h"
#include "quantize/quantize.h"
#include "tensorutils/quant/deploy.h"

/* Layers and a head of its own, from names. */
static int look_at_name(struct tu_pattern *layer, struct tu_pattern *head,
                        const char *name, struct tu_recipe_model *m, struct tu_err *err)
{
    struct tu_match match;
    bool yes;
    int rc = tu_pattern_match(layer, name, strlen(name), &match, &yes, err);
    if (!rc && yes)
        m->layers =
            tu_max(m->layers, strtoull(name + match.group[1].begin, NULL, 10) + 1);
    if (!rc)
        rc = tu_pattern_match(head, name, strlen(name), NULL, &yes, err);
    if (!rc && yes)
        m->tied = false;
    return rc;
}

static int look_at_names(struct tu_recipe_model *m, size_t n,
                         const char *(*name)(const void *ctx, size_t i), const void *ctx,
                         struct tu_err *err)
{
    struct tu_pattern *layer = NULL, *head = NULL;
    int rc = tu_pattern_new(&layer, "(?:.*\\.)?(?:blk|layers|h)\\.(\\d+)\\.",
                            TU_PATTERN_REGEX, err);
    if (!rc)
        rc = tu_pattern_new(&head, "(?:output|lm_head)\\.weight$", TU_PATTERN_REGEX, err);
    m->tied = n > 0;
    for (size_t i = 0; !rc && i < n; i++)
        rc = look_at_name(layer, head, name(ctx, i), m, err);
    tu_pattern_free(layer);
    tu_pattern_free(head);
    return rc;
}

static const char *source_name(const void *ctx, size_t i)
{
    return ((const struct tu_source *)ctx)->tensor[i].name;
}

static const char *contents_name(const void *ctx, size_t i)
{
    const char *s = json_string_value(json_array_get(json_array_get(ctx, i), 0));
    return s ? s : "";
}

static void take_model(struct input *in, const struct tu_model *m)
{
    in->model.layers = m->layers;
    in->model.experts = m->experts;
    in->model.heads = m->heads;
    in->model.kv_heads = m->kv_heads;
    in->model.tied = m->tied;
}

/* What META says of the model. */
static int look_at_meta(struct input *in, struct tu_err *err)
{
    struct tu_model m;
    if (strcmp(in->topic, "model") == 0) {
        int rc = tu_model_from_meta(&m, in->json, in->json_len, err);
        if (rc)
            return rc;
        take_model(in, &m);
    } else if (strcmp(in->topic, "gguf") == 0) {
        /* Of an architecture that we do not know the names may tell. */
        bool tied = in->model.tied;
        if (!tu_model_from_gguf(&m, in->json, in->json_len, NULL)) {
            take_model(in, &m);
            in->model.tied = tied;
        }
    } else if (strcmp(in->topic, "contents") == 0) {
        json_t *o;
        int rc = tu_json_parse(&o, in->json, in->json_len, NULL, err);
        if (rc)
            return rc;
        const json_t *list = json_object_get(o, "tensors");
        rc = look_at_names(&in->model, json_array_size(list), contents_name, list, err);
        json_decref(o);
        return rc;
    }
    return 0;
}

/* Opening ------------------------------------------------------------------------------- */

static const json_t *config_of(json_t **files, json_t **config, const struct input *in)
{
    *files = *config = NULL;
    if (in->files.n && tu_json_parse(files, in->files.data, in->files.n, NULL, NULL))
        return NULL;
    const json_t *text = json_object_get(*files, "config.json");
    if (!text || tu_json_parse(config, json_string_value(text), json_string_length(text), NULL,
                               NULL))
        return NULL;
    const json_t *q = json_object_get(*config, "quantization_config");
    return q ? q : json_object_get(*config, "compression_config");
}

/* The source as coded tensors, or under other names. */
static int see(void *ctx, struct tu_source **s, struct tu_err *err)
{
    struct input *in = ctx;
    if (in->seen == SEEN_AS_HF && strcmp((*s)->format->name, "gguf") == 0)
        return tu_gguf_to_hf(s, *s, err);
    json_t *files, *config;
    const json_t *q = config_of(&files, &config, in);
    bool any = false;
    int rc = q ? tu_deploy_read(s, *s, q, &any, err) : 0;
    if (rc)
        *s = NULL;
    json_decref(files);
    json_decref(config);
    return rc;
}

/* A folder's small files: config.json tells the model before the first tensor. */
static int open_folder(struct input *in, const char *path, struct tu_err *err)
{
    struct stat st;
    struct tu_model m;
    if (stat(path, &st) || !S_ISDIR(st.st_mode))
        return 0;
    if (!(in->folder = tu_strdup(path, err)))
        return TU_ENOMEM;
    int rc = tu_hf_files(&in->files, path, err);
    json_t *files, *config;
    if (rc)
        return rc;
    config_of(&files, &config, in);
    const json_t *text = json_object_get(files, "config.json");
    if (text && !tu_model_from_hf(&m, json_string_value(text), json_string_length(text), NULL)) {
        take_model(in, &m);
        rc = tu_model_to_meta(&in->model_json, &m, err);
    }
    json_decref(files);
    json_decref(config);
    return rc;
}

/* Opens the records of the operand; of a checkpoint for GGUF, those that are made of it. */
static int open_feed(struct input *in, struct tu_ctx *ctx, struct tu_err *err)
{
    struct tu_feed_how how = {.view = see, .ctx = in};
    const char *path = in->path;
    int rc = 0;
    in->job = tu_ctx_job(ctx);
    if (in->seen == SEEN_AS_GGUF && in->folder) {
        rc = model_open(&in->llama, path, ctx, err);
        path = rc ? NULL : model_stream(in->llama);
    }
    return rc ? rc : tu_feed_open(&in->feed, path, &how, tu_ctx_job(ctx), err);
}

int input_open(struct input *in, const char *path, enum seen seen, struct tu_ctx *ctx,
               struct tu_err *err)
{
    *in = (struct input){.path = path, .seen = seen};
    int rc = strcmp(path, "-") ? open_folder(in, path, err) : 0;
    const struct tu_recipe_model model = in->model;
    if (!rc)
        rc = open_feed(in, ctx, err);
    const struct tu_source *s = rc ? NULL : tu_feed_source(in->feed);
    if (s)
        rc = look_at_names(&in->model, s->n, source_name, s, err);
    if (model.layers)
        in->model = model;
    if (!in->llama && in->files.n)
        in->synthetic = model.layers ? 2 : 1;
    if (rc)
        input_close(in);
    return rc;
}

void input_close(struct input *in)
{
    tu_feed_close(in->feed);
    model_close(in->llama);
    tu_free(in->folder);
    tu_buf_release(&in->files);
    tu_buf_release(&in->model_json);
    if (in->spool)
        fclose(in->spool);
    *in = (struct input){.path = in->path};
}

int input_next(struct input *in, enum item *what, struct tu_err *err)
{
    const struct tu_record *rec;
    in->spooled = false;
    if (in->synthetic) {
        const struct tu_buf *b = in->synthetic-- == 2 ? &in->model_json : &in->files;
        *what = ITEM_META;
        in->topic = b == &in->files ? "files" : "model";
        in->json = b->data;
        in->json_len = b->n;
        return 0;
    }
    int rc = tu_feed_next(in->feed, &rec, err);
    if (rc)
        return model_fault(in->llama, rc, err);
    *what = !rec                         ? ITEM_DONE
            : rec->type == TU_REC_END    ? ITEM_END
            : rec->type == TU_REC_META   ? ITEM_META
            : rec->type == TU_REC_TENSOR ? ITEM_TENSOR
                                         : ITEM_OTHER;
    if (*what == ITEM_TENSOR)
        tu_record_tensor(rec, &in->tensor);
    if (*what != ITEM_META)
        return 0;
    in->topic = rec->name;
    in->json = rec->meta;
    in->json_len = rec->meta_len;
    return look_at_meta(in, err);
}

int input_read(struct input *in, void *buf, size_t n, struct tu_err *err)
{
    size_t got = 0;
    int rc = 0;
    if (in->spooled)
        got = fread(buf, 1, n, in->spool);
    for (size_t part = !in->spooled; !rc && got < n && part; got += part)
        rc = tu_feed_read(in->feed, (char *)buf + got, n - got, &part, err);
    if (rc)
        return model_fault(in->llama, rc, err);
    in->read += got;
    tu_job_progress(in->job, in->read, tu_feed_bytes(in->feed));
    return got == n ? 0
                    : tu_fail(err, TU_EIO, "%s: '%.80s' ends early", in->path,
                                    in->tensor.name);
}

int input_spool(struct input *in, struct tu_err *err)
{
    char buf[65536];
    size_t got = 1;
    if (in->spooled || tu_feed_source(in->feed))
        return 0;
    if (!in->spool && !(in->spool = tmpfile()))
        return tu_fail_errno(err, "temporary file");
    rewind(in->spool);
    while (got) {
        int rc = tu_feed_read(in->feed, buf, sizeof buf, &got, err);
        if (rc)
            return model_fault(in->llama, rc, err);
        if (fwrite(buf, 1, got, in->spool) != got)
            return tu_fail_errno(err, "temporary file");
    }
    in->spooled = true;
    return input_rewind(in, err);
}

int input_rewind(struct input *in, struct tu_err *err)
{
    if (!in->spooled)
        return tu_feed_rewind(in->feed, err);
    return fseek(in->spool, 0, SEEK_SET) ? tu_fail_errno(err, "temporary file") : 0;
}
