/* SPDX-License-Identifier: Apache-2.0 */
/* model.c: model.h. */
#include "quantize/model.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>
#include "tensorutils/shard.h"

struct model {
    pthread_t thread;
    struct tu_ctx *ctx;
    struct tu_ckpt *ckpt;
    struct tu_writer *writer;
    int fd; /* that is read */
    char stream[32];
    bool tokens; /* there is a tokenizer */
    atomic_bool done, broken;
    struct tu_err err; /* if broken */
};

/* A reader that has left is an error of this thread, not a signal for all. */
static void *produce(void *ctx)
{
    struct model *m = ctx;
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    int rc = tu_ckpt_gguf(m->ckpt, m->writer, &m->tokens, NULL, &m->err);
    if (!rc)
        rc = tu_writer_end(m->writer, false, &m->err);
    atomic_store(&m->broken, rc != 0); /* before the reader can see it */
    atomic_store(&m->done, rc == 0);
    if (rc)
        tu_writer_abort(m->writer);
    else if (tu_writer_close(m->writer, false, &m->err))
        atomic_store(&m->done, false);
    return NULL;
}

static int open_pipe(struct model *m, struct tu_err *err)
{
    struct tu_out *out = NULL;
    int fd[2];
    if (pipe(fd))
        return tu_fail_errno(err, "pipe");
    m->fd = fd[0];
    snprintf(m->stream, sizeof m->stream, "/dev/fd/%d", m->fd);
    int rc = tu_out_take_fd(&out, fd[1], "pipe", err);
    if (rc)
        close(fd[1]);
    return rc ? rc : tu_writer_new(&m->writer, out, err);
}

int model_open(struct model **out, const char *path, struct tu_ctx *ctx,
               struct tu_err *err)
{
    const struct tu_shard_opts o = {.roles = true};
    struct model *m = tu_calloc(1, sizeof *m, err);
    if (!m)
        return TU_ENOMEM;
    m->ctx = ctx;
    m->fd = -1;
    int rc = tu_ckpt_open(&m->ckpt, path, NULL, &o, tu_ctx_alone(ctx), err);
    if (!rc)
        rc = tu_ckpt_agree(m->ckpt, &o, tu_ctx_alone(ctx), err);
    if (!rc)
        rc = open_pipe(m, err);
    if (!rc && pthread_create(&m->thread, NULL, produce, m))
        rc = tu_fail_errno(err, "thread");
    if (rc) {
        tu_writer_abort(m->writer);
        if (m->fd >= 0)
            close(m->fd);
        tu_ckpt_close(m->ckpt);
        tu_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

const char *model_stream(const struct model *m)
{
    return m->stream;
}

int model_fault(const struct model *m, int rc, struct tu_err *err)
{
    if (!m || !atomic_load(&m->broken))
        return rc;
    *err = m->err;
    return err->code;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    close(m->fd);
    pthread_join(m->thread, NULL);
    if (atomic_load(&m->done) && !m->tokens)
        tu_warn(m->ctx,
                "no tokenizer of a kind that GGUF has keys for lies beside the weights");
    tu_ckpt_close(m->ckpt);
    tu_free(m);
}
