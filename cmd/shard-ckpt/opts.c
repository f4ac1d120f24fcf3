/* SPDX-License-Identifier: Apache-2.0 */
/* opts.c: options about reading a checkpoint. */

#include <string.h>

#include "opts.h"

static struct {
    const char *from, *map, *family, *config;
    uint64_t vocab, memory;
    struct tu_list include, exclude;
    bool untied, no_crc, strict;
} opt;

static struct tu_refused refused;

const char *const tied_choices[] = {"drop", "copy", NULL};
const char *const pad_choices[] = {"zeros", "last", NULL};

const struct tu_opt source_options[] = {
    {0, "from", "LAYOUT", "layout to read: NAME[:KEY=VALUE,...] (default: what is found)",
     TU_OPT_STRING,
     &opt.from, NULL, 0},
    {0, "include", NULL, "only tensors whose canonical name matches",
     TU_OPT_REGEX, &opt.include, NULL,
     TU_OPT_EACH},
    {0, "exclude", NULL, "leave out tensors whose canonical name matches",
     TU_OPT_REGEX, &opt.exclude,
     NULL, TU_OPT_EACH},
    {0, "map", "FILE", "lines to put before those of every name map",
     TU_OPT_FILE_IN, &opt.map, NULL, 0},
    {0, "family", "FAMILY", "model family, where no configuration tells",
     TU_OPT_STRING, &opt.family, NULL,
     0},
    {0, "config", "FILE", "config.json of the model, where none or another lies with it",
     TU_OPT_FILE_IN, &opt.config, NULL, 0},
    {0, "vocab", NULL, "true size of the vocabulary, without padding",
     TU_OPT_U64, &opt.vocab, NULL, 0},
    {0, "untied", NULL, "head and embedding differ, whatever the configuration says",
     TU_OPT_FLAG,
     &opt.untied, NULL, 0},
    {0, "no-crc", NULL, "do not verify checksums that the files store",
     TU_OPT_FLAG, &opt.no_crc, NULL, 0},
    {0, "strict", NULL, "refuse pickles that name anything unusual",
     TU_OPT_FLAG, &opt.strict, NULL, 0},
    {0, "memory", NULL, "memory for buffers (default 128M)",
     TU_OPT_SIZE, &opt.memory, NULL, 0},
    {0},
};

const char *shard_from(void)
{
    return opt.from;
}

/* A list of options as the NULL-ended array that the library takes. */
static struct tu_pattern **patterns(struct tu_list *l)
{
    static struct tu_pattern *none;
    if (!l->n)
        return NULL;
    if (TU_GROW((struct tu_pattern ***)&l->v, &l->cap, l->n, NULL))
        return &none;
    TU_LIST(l, struct tu_pattern *)[l->n] = NULL;
    return TU_LIST(l, struct tu_pattern *);
}

const struct tu_shard_opts *shard_opts(const struct target_options *t, bool force)
{
    static struct tu_shard_opts o;
    o = (struct tu_shard_opts){
        .map_file = opt.map,
        .family = opt.family,
        .config_file = opt.config,
        .vocab = opt.vocab,
        .untied = opt.untied,
        .include = patterns(&opt.include),
        .exclude = patterns(&opt.exclude),
        .open = {.no_crc = opt.no_crc, .strict = opt.strict},
        .force = force,
        .refused = &refused,
    };
    if (t) {
        o.dtype = t->dtype;
        o.overflow = (enum tu_overflow)t->overflow;
        o.tied_copy = t->tied == 1;
        o.pad_last = t->pad == 1;
        o.max_shard = t->max_shard;
        o.sha256 = t->sha256;
        o.verify_replicas = t->verify_replicas;
    }
    return &o;
}

const struct tu_job *shard_job(struct tu_ctx *ctx)
{
    static struct tu_job job;
    job = *tu_ctx_job(ctx);
    job.memory = opt.memory;
    return &job;
}

int shard_open(struct tu_ctx *ctx, struct tu_ckpt **out, const char *path, const char *from,
               const struct tu_shard_opts *o, struct tu_err *err)
{
    return tu_ckpt_open(out, path, from, o, shard_job(ctx), err);
}

int shard_checksums(struct tu_ctx *ctx, const struct tu_ckpt *c, uint64_t *sums, uint64_t *bytes,
                    struct tu_err *err)
{
    const struct tu_job *job = shard_job(ctx);
    uint64_t done = 0, total = 0;
    int rc = 0;
    for (size_t f = 0; f < c->files; f++)
        for (size_t i = 0; i < c->file[f].source->n; i++)
            total += c->file[f].source->tensor[i].bytes;
    for (size_t f = 0; f < c->files && !rc; f++) {
        struct tu_source *src = c->file[f].source;
        for (size_t i = 0; i < src->n && !rc; i++) {
            rc = tu_source_verify(src, i, job->pool, err);
            *sums += tu_source_summed(src, i);
            done += src->tensor[i].bytes;
            tu_job_progress(job, done, total);
        }
    }
    *bytes += done;
    return rc;
}

bool shard_each_refused(struct tu_ctx *ctx,
                        void (*put)(struct tu_ctx *ctx, const char *why, const char *name))
{
    const char *name = refused.names.data;
    const bool some = refused.n;
    for (size_t i = 0; i < refused.n; i++, name += strlen(name) + 1)
        put(ctx, refused.why, name);
    tu_buf_release(&refused.names);
    refused = (struct tu_refused){.n = 0};
    return some;
}

static void note(struct tu_ctx *ctx, const char *why, const char *name)
{
    tu_note(ctx, 1, "%s: %s", why, name);
}

int shard_error(struct tu_ctx *ctx, const struct tu_err *err)
{
    shard_each_refused(ctx, note);
    return tu_error(ctx, err);
}
