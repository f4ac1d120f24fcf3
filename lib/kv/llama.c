/* SPDX-License-Identifier: Apache-2.0 */
/* llama.c: llama.cpp's sequence states ("ggsq") and session files ("ggsn"), read.
 *
 * The file does not say everything: whether cells carry an extension (M-RoPE), whether a
 * session holds outputs, which layers have a window, how many heads share a row, whether
 * quantised rows were rotated. The first two are found by parsing each way and taking the
 * one that ends at the end of the file; the others are asked for. Source: llama.cpp
 * llama-kv-cache.cpp state_write, llama-context.cpp. */
#include <inttypes.h>
#include <string.h>
#include "llama.h"

/* A place in the file with what has gone wrong so far. */
struct cursor {
    struct tu_in *in;
    uint64_t at, size;
    struct tu_err err;
};

static bool need(struct cursor *c, uint64_t n, const char *what)
{
    if (c->err.code)
        return false;
    if (n > c->size - c->at)
        tu_fail_at(&c->err, TU_ETRUNC, c->at,
                   "byte %" PRIu64 ": %s: %" PRIu64 " bytes are needed, %" PRIu64 " are left",
                   c->at, what, n, c->size - c->at);
    return !c->err.code;
}

static uint64_t number(struct cursor *c, unsigned bytes, const char *what)
{
    unsigned char b[8] = {0};
    if (!need(c, bytes, what) || tu_in_pread(c->in, c->at, b, bytes, &c->err))
        return 0;
    c->at += bytes;
    return tu_le64(b);
}

static uint64_t times(struct cursor *c, uint64_t a, uint64_t b, const char *what)
{
    uint64_t n = 0;
    if (!c->err.code && tu_mul_over(a, b, &n))
        tu_fail_at(&c->err, TU_ESIZE, c->at, "byte %" PRIu64 ": %s: sizes overflow", c->at,
                   what);
    return n;
}

static void skip(struct cursor *c, uint64_t n, const char *what)
{
    if (need(c, n, what))
        c->at += n;
}

static void wrong(struct cursor *c, const char *what, uint64_t v)
{
    if (!c->err.code)
        tu_fail_at(&c->err, TU_EFORMAT, c->at, "byte %" PRIu64 ": %s is %" PRIu64, c->at,
                   what, v);
}

/* ggml's number of a type as our dtype, 0 unknown. */
static uint32_t dtype_of(uint32_t type)
{
    uint32_t code = type == 0 ? TU_F32 : type == 1 ? TU_F16 : type == 30 ? TU_BF16
                                                            : TU_DTYPE_GGML + type;
    return type < 1000 && tu_dtype_find(code) ? code : 0;
}

uint32_t tui_llama_type(uint32_t dtype)
{
    return dtype == TU_F32                                           ? 0
           : dtype == TU_F16                                         ? 1
           : dtype == TU_BF16                                        ? 30
           : dtype >= TU_DTYPE_GGML && dtype < TU_DTYPE_PRIVATE      ? dtype - TU_DTYPE_GGML
                                                                     : UINT32_MAX;
}

/* One side of one layer: type, row and data. */
static void side(struct cursor *c, struct tui_llama_part *p, bool turned, uint64_t cells)
{
    uint32_t type = (uint32_t)number(c, 4, "type");
    p->dtype = dtype_of(type);
    const struct tu_dtype *d = tu_dtype_find(p->dtype);
    if (!d) {
        wrong(c, "ggml type", type);
        return;
    }
    if (!turned) {
        p->row = number(c, 8, "row bytes");
        if (!p->row || p->row % d->block_bytes || p->row > c->size)
            wrong(c, "row bytes", p->row);
        p->cols = c->err.code ? 0 : p->row / d->block_bytes * d->block_elems;
    } else {
        uint64_t elem = number(c, 4, "element bytes");
        p->cols = number(c, 4, "columns");
        if (d->block_elems != 1)
            wrong(c, "ggml type of transposed values, which are not quantized,", type);
        if (elem != d->block_bytes)
            wrong(c, "element bytes", elem);
        if (!p->cols)
            wrong(c, "columns", 0);
        p->row = times(c, p->cols, d->block_bytes, "columns");
    }
    p->off = c->at;
    skip(c, times(c, p->row, cells, "rows"), "data");
}

static void cells(struct cursor *c, struct tui_llama_stream *s, unsigned ext)
{
    s->cells = (uint32_t)number(c, 4, "cell count");
    if (!s->cells || !need(c, 8 * (uint64_t)s->cells, "cells"))
        return;
    s->pos = tu_alloc(s->cells, sizeof *s->pos, &c->err);
    s->seq = s->pos ? tu_alloc(s->cells, sizeof *s->seq, &c->err) : NULL;
    for (uint32_t i = 0; !c->err.code && i < s->cells; i++) {
        s->pos[i] = (int32_t)(uint32_t)number(c, 4, "position");
        uint64_t n = number(c, 4, "sequence count");
        skip(c, ext, "cell extension");
        s->seq[i] = 0;
        if (n > 4096)
            wrong(c, "sequence count", n);
        for (uint64_t k = 0; !c->err.code && k < n; k++) {
            uint64_t id = number(c, 4, "sequence");
            if (id < 64)
                s->seq[i] |= UINT64_C(1) << id;
            else
                wrong(c, "sequence", id);
        }
        if (n == 0 && s->none_is_zero)
            s->seq[i] = 1;
        else if (n == 0)
            wrong(c, "sequence count", n);
    }
}

static void stream(struct cursor *c, struct tui_llama_stream *s, unsigned ext)
{
    cells(c, s, ext);
    if (!s->cells || c->err.code)
        return;
    s->turned = (uint32_t)number(c, 4, "v_trans");
    s->layers = (uint32_t)number(c, 4, "layer count");
    if (s->turned > 1)
        wrong(c, "v_trans", s->turned);
    if (s->layers > c->size / 12)
        wrong(c, "layer count", s->layers);
    if (c->err.code ||
        !(s->part = tu_calloc((size_t)s->layers, 2 * sizeof *s->part, &c->err)))
        return; /* no layers: all have a window, and their memory follows */
    for (uint32_t l = 0; !c->err.code && l < s->layers; l++)
        side(c, &s->part[2 * l], false, s->cells);
    s->values = c->at < c->size;
    for (uint32_t l = 0; s->values && !c->err.code && l < s->layers; l++)
        side(c, &s->part[2 * l + 1], s->turned != 0, s->cells);
}

static void release(struct tui_llama_stream **stream, uint32_t *n)
{
    for (uint32_t i = 0; i < *n && *stream; i++) {
        tu_free((*stream)[i].pos);
        tu_free((*stream)[i].seq);
        tu_free((*stream)[i].part);
    }
    tu_free(*stream);
    *stream = NULL;
    *n = 0;
}

void tui_llama_release(struct tui_llama *f)
{
    release(&f->stream, &f->streams);
    release(&f->window, &f->windows);
}

/* A memory at c with cells extended by `ext` bytes. */
static void memory(struct cursor *c, struct tui_llama_stream **out, uint32_t *count,
                   bool streams, unsigned ext)
{
    uint64_t n = streams ? number(c, 4, "stream count") : 1;
    if (!n || n > 4096 || n > c->size / 4)
        wrong(c, "stream count", n);
    if (c->err.code || !(*out = tu_calloc((size_t)n, sizeof **out, &c->err)))
        return;
    *count = (uint32_t)n;
    for (uint32_t i = 0; !c->err.code && i < n; i++) {
        (*out)[i].none_is_zero = !streams;
        stream(c, &(*out)[i], ext);
    }
}

/* The memory of recurrent layers, to the end of the file: cells, then an R and an S for
 * each of those layers; how many they are is not said. */
static void recurrent(struct cursor *c)
{
    uint64_t n = number(c, 4, "cell count"), parts = 0;
    for (uint64_t i = 0; !c->err.code && i < n; i++) {
        skip(c, 4, "position");
        skip(c, times(c, number(c, 4, "sequence count"), 4, "sequences"), "sequences");
    }
    if (number(c, 4, "s_trans"))
        wrong(c, "s_trans", 1);
    number(c, 4, "layer count");
    for (; !c->err.code && c->at < c->size; parts++) {
        uint64_t type = number(c, 4, "type");
        if (!dtype_of((uint32_t)type))
            wrong(c, "ggml type", type);
        skip(c, times(c, number(c, 8, "row bytes"), n, "rows"), "data");
    }
    if (!n || !parts || parts % 2)
        wrong(c, "count of recurrent parts", parts);
}

/* What follows the first memory, if it ends with the file: one of windows, one of
 * recurrent layers, or both. */
static void behind(struct cursor *c, struct tui_llama *f, bool streams)
{
    struct cursor window = *c, state = *c;
    if (c->err.code || c->at == c->size)
        return;
    memory(&window, &f->window, &f->windows, streams, f->ext);
    if (!window.err.code && window.at < window.size) {
        state = window;
        recurrent(&state);
    }
    if (!window.err.code && !state.err.code && (window.at == c->size || state.at == c->size)) {
        f->recurrent_at = window.at;
        f->recurrent = c->size - window.at;
        c->at = c->size;
        return;
    }
    release(&f->window, &f->windows);
    if (window.err.code == TU_ENOMEM || window.err.code == TU_EIO) {
        c->err = window.err;
        return;
    }
    state = *c;
    recurrent(&state);
    if (!state.err.code) {
        f->recurrent_at = c->at;
        f->recurrent = c->size - c->at;
        c->at = c->size;
    }
}

/* A session's architecture, and the outputs that builds before February 2026 wrote. */
static void session(struct cursor *c, struct tui_llama *f, bool outputs)
{
    uint64_t n = number(c, 4, "length of the architecture");
    if (n == 0 || n >= sizeof f->arch)
        wrong(c, "length of the architecture", n);
    if (!need(c, n, "architecture") || tu_in_pread(c->in, c->at, f->arch, (size_t)n, &c->err))
        return;
    f->arch[n] = 0;
    if (tu_name_check(f->arch, (size_t)n) != n)
        wrong(c, "first byte of the architecture", (unsigned char)f->arch[0]);
    c->at += n;
    if (!outputs)
        return;
    skip(c, times(c, number(c, 4, "outputs"), 4, "outputs"), "outputs");
    skip(c, times(c, number(c, 8, "logits"), 4, "logits"), "logits");
    skip(c, times(c, number(c, 8, "embeddings"), 4, "embeddings"), "embeddings");
}

static int begin(struct cursor *c, struct tui_llama *f, struct tu_err *err)
{
    uint64_t magic = number(c, 4, "magic");
    if (!c->err.code && magic != TUI_LLAMA_SEQ && magic != TUI_LLAMA_SESSION)
        return tu_fail_at(err, TU_EMAGIC, 0, "neither a sequence state nor a session");
    f->session = magic == TUI_LLAMA_SESSION;
    f->version = (uint32_t)number(c, 4, "version");
    if (!c->err.code && (f->session ? f->version < 8 || f->version > 10
                                    : f->version < 1 || f->version > 3))
        return tu_fail_at(err, TU_EVERSION, 4, "version %u of a %s is not known",
                          f->version, f->session ? "session (8 to 10)"
                                                 : "sequence state (1 to 3)");
    f->tokens = (uint32_t)number(c, 4, "token count");
    f->token_at = c->at;
    skip(c, 4 * (uint64_t)f->tokens, "tokens");
    if (c->err.code) {
        *err = c->err;
        return err->code;
    }
    return 0;
}

/* Each way that the rest may be read; the first that ends with the file wins, then the
 * first that leaves something behind it (a window's or a recurrent memory). */
static int rest(const struct cursor *start, struct tui_llama *f, struct tu_err *err)
{
    static const unsigned ext[] = {0, 8, 12};
    bool streams = f->session ? f->version >= 9 : f->version >= 2;
    struct tu_err first = {0};
    for (int complete = 1; complete >= 0; complete--)
        for (int outputs = 0; outputs <= (f->session ? 1 : 0); outputs++)
            for (size_t e = 0; e < 3; e++) {
                struct cursor c = *start;
                if (f->session)
                    session(&c, f, outputs != 0);
                f->ext = ext[e];
                f->recurrent = 0;
                if (!c.err.code)
                    memory(&c, &f->stream, &f->streams, streams, ext[e]);
                behind(&c, f, streams);
                if (!c.err.code && (c.at == c.size || !complete)) {
                    f->trailing = c.size - c.at;
                    f->end = c.at;
                    f->outputs = outputs != 0;
                    return 0;
                }
                if (c.err.code == TU_ENOMEM || c.err.code == TU_EIO) {
                    *err = c.err;
                    tui_llama_release(f);
                    return err->code;
                }
                if (c.err.code && !first.code)
                    first = c.err;
                tui_llama_release(f);
            }
    *err = first;
    return err->code;
}

int tui_llama_parse(struct tui_llama *f, struct tu_in *in, struct tu_err *err)
{
    struct cursor c = {.in = in, .size = tu_in_size(in)};
    struct tu_err local;
    *f = (struct tui_llama){0};
    err = err ? err : &local;
    int rc = begin(&c, f, err);
    if (!rc)
        rc = rest(&c, f, err);
    if (rc)
        tu_err_prefix(err, "%s", tu_in_name(in));
    return rc;
}

int tui_llama_pattern(struct tui_llama_pattern *out, const struct tu_spec *spec,
                      struct tu_err *err)
{
    *out = (struct tui_llama_pattern){0};
    if (!spec || !tu_spec_get(spec, "pattern"))
        return 0;
    out->given = true;
    out->first = tu_spec_get(spec, "dense-first") != NULL;
    return tu_spec_u64(spec, "pattern", 0, &out->every, err);
}

bool tui_llama_local(const struct tui_llama_pattern *p, uint64_t layer)
{
    return p->given && (!p->every || layer % p->every != (p->first ? 0 : p->every - 1));
}
