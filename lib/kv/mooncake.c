/* SPDX-License-Identifier: Apache-2.0 */
/* mooncake.c: buckets of Mooncake's store: ID.bucket holds key and value of each object
 * one behind the other, ID.meta says where, as a Protocol Buffers message
 *   { 1: data_size, 2: repeated keys, 3: repeated { 1: offset, 2: key_size, 3: data_size } }
 * Values are chunks of tokens in the order of the keys, described by the caller. A bucket
 * without its meta is an orphan of a crash. Source: Mooncake mooncake-store
 * include/storage_backend.h, src/storage_backend.cpp. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "chunks.h"

enum { CHUNK = 256, META_MAX = 64 << 20, KEYS_MAX = 500 };
#define BUCKET_BYTES (UINT64_C(256) << 20)

/* Protocol Buffers ----------------------------------------------------------------------- */

struct field {
    uint64_t number, value; /* of a varint */
    const unsigned char *p; /* of bytes */
    size_t n;
};

struct message {
    const unsigned char *p, *end;
};

static bool varint(struct message *m, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && m->p < m->end; shift += 7) {
        unsigned char b = *m->p++;
        *out |= (uint64_t)(b & 127) << shift;
        if (!(b & 128))
            return true;
    }
    return false;
}

/* The next field; false at the end, and *bad for what is no message. */
static bool next(struct message *m, struct field *f, bool *bad)
{
    uint64_t tag;
    *bad = false;
    if (m->p == m->end)
        return false;
    *bad = !varint(m, &tag);
    *f = (struct field){.number = tag >> 3};
    if (!*bad && (tag & 7) == 0)
        *bad = !varint(m, &f->value);
    else if (!*bad && (tag & 7) == 2) {
        uint64_t n;
        *bad = !varint(m, &n) || n > (uint64_t)(m->end - m->p);
        f->p = m->p;
        f->n = *bad ? 0 : (size_t)n;
        m->p += f->n;
    } else
        *bad = true;
    return !*bad;
}

static int put_varint(struct tu_buf *b, uint64_t v, struct tu_err *err)
{
    unsigned char out[10];
    size_t n = 0;
    for (; v > 127; v >>= 7)
        out[n++] = (unsigned char)(v | 128);
    out[n++] = (unsigned char)v;
    return tu_buf_add(b, out, n, err);
}

/* A number that is 0 is not written. */
static int put_number(struct tu_buf *b, unsigned field, uint64_t v, struct tu_err *err)
{
    int rc = v ? put_varint(b, field << 3, err) : 0;
    return rc || !v ? rc : put_varint(b, v, err);
}

static int put_bytes(struct tu_buf *b, unsigned field, const void *p, size_t n,
                     struct tu_err *err)
{
    int rc = put_varint(b, field << 3 | 2, err);
    if (!rc)
        rc = put_varint(b, n, err);
    return rc ? rc : tu_buf_add(b, p, n, err);
}

/* Reading -------------------------------------------------------------------------------- */

struct object {
    uint64_t offset, key, data;
};

static int parse_object(const struct field *f, struct object *o)
{
    struct message m = {f->p, f->p + f->n};
    struct field g;
    bool bad;
    *o = (struct object){0};
    while (next(&m, &g, &bad)) /* later versions have more than these three */
        if (g.number <= 3 && !g.p)
            *(g.number == 1 ? &o->offset : g.number == 2 ? &o->key : &o->data) = g.value;
    return bad;
}

static int add_objects(struct tui_chunks *c, struct tui_pieces *p, const char *meta, size_t n,
                       struct tu_err *err)
{
    struct message m = {(const unsigned char *)meta, (const unsigned char *)meta + n};
    const char *name = tu_in_name(p->file[p->files - 1]);
    uint64_t keys = 0, objects = 0;
    struct field f;
    bool bad;
    int rc = 0;
    while (!rc && next(&m, &f, &bad)) {
        struct object o;
        keys += f.number == 2 && f.p;
        if (f.number != 3 || !f.p)
            continue;
        if (parse_object(&f, &o) || o.offset > INT64_MAX || o.key > INT64_MAX)
            return tu_fail(err, TU_EFORMAT, "%s: object %" PRIu64 " of its meta is malformed",
                           name, objects);
        rc = tui_chunks_add(c, p, p->files - 1, o.offset + o.key, o.data, -1, err);
        objects++;
    }
    if (!rc && (bad || keys != objects || !objects))
        rc = tu_fail(err, TU_EFORMAT, "%s: its meta has %" PRIu64 " keys and %" PRIu64
                                      " objects%s",
                     name, keys, objects, bad ? " and ends inside a field" : "");
    return rc;
}

static int add_bucket(struct tui_chunks *c, struct tui_pieces *p, const char *path,
                      struct tu_err *err)
{
    char meta[4096];
    struct stat st;
    char *text;
    size_t n = strlen(path);
    bool named = n > 7 && n < sizeof meta - 8 && !strcmp(path + n - 7, ".bucket");
    snprintf(meta, sizeof meta, "%.*s.meta", (int)(named ? n - 7 : n), path);
    if (stat(meta, &st))
        return tu_fail(err, TU_EINCOMPLETE, "%s: no '%s': an orphan of a crash", path, meta);
    int rc = tui_pieces_file(p, path, err);
    if (!rc)
        rc = tu_file_read(meta, META_MAX, &text, &n, err);
    if (rc)
        return rc;
    rc = add_objects(c, p, text, n, err);
    tu_free(text);
    return rc;
}

static bool sniff(const char *path, const unsigned char *head, size_t n)
{
    const char *dot = strrchr(path, '.');
    (void)head;
    (void)n;
    return dot && !strcmp(dot, ".bucket");
}

static int open_mooncake(struct tu_kv **out, const char *const *path, size_t n,
                         const struct tu_kv_hint *hint, const struct tu_job *job,
                         struct tu_err *err)
{
    struct tui_chunks c;
    struct tui_pieces *p = NULL;
    (void)job;
    int rc = tui_chunks_spec(&c, hint->spec, "2ltd", CHUNK, err);
    if (!rc)
        rc = tui_chunks_ready(&c, err);
    if (!rc)
        rc = tui_pieces_new(&p, path[0], err);
    if (rc)
        return rc;
    for (size_t i = 0; !rc && i < n; i++)
        rc = add_bucket(&c, p, path[i], err);
    if (!rc)
        rc = tui_chunks_open(&c, p, hint, err);
    tui_chunks_release(&c);
    if (rc)
        tu_kv_close(&p->base);
    else
        *out = &p->base;
    return rc;
}

/* Saving --------------------------------------------------------------------------------- */

struct bucket {
    struct tu_buf keys, objects;
    uint64_t bytes;
    unsigned count, id;
    struct tu_out *out;
};

/* Data first, meta last: what has no meta is not there. */
static int close_bucket(struct bucket *b, const char *folder, const struct tu_job *job,
                        struct tu_err *err)
{
    struct tu_buf meta = {0};
    char name[40];
    int rc = tu_out_commit(b->out, true, err);
    b->out = NULL;
    if (!rc)
        rc = put_number(&meta, 1, b->bytes, err);
    if (!rc)
        rc = tu_buf_add(&meta, b->keys.data, b->keys.n, err);
    if (!rc)
        rc = tu_buf_add(&meta, b->objects.data, b->objects.n, err);
    snprintf(name, sizeof name, "%u.meta", b->id);
    if (!rc)
        rc = tui_kv_put_file(folder, name, meta.data, meta.n, job, err);
    tu_buf_release(&meta);
    tu_buf_reset(&b->keys);
    tu_buf_reset(&b->objects);
    b->bytes = b->count = 0;
    b->id++;
    return rc;
}

static int put_object(struct bucket *b, const char *folder, const char *key,
                      const void *data, size_t n, const struct tu_job *job,
                      struct tu_err *err)
{
    char path[4096];
    struct tu_buf object = {0};
    size_t key_n = strlen(key);
    snprintf(path, sizeof path, "%s/%u.bucket", folder, b->id);
    int rc = b->out ? 0 : tu_out_open(&b->out, path, job, err);
    if (!rc)
        rc = put_number(&object, 1, b->bytes, err);
    if (!rc)
        rc = put_number(&object, 2, key_n, err);
    if (!rc)
        rc = put_number(&object, 3, n, err);
    if (!rc)
        rc = put_bytes(&b->objects, 3, object.data, object.n, err);
    if (!rc)
        rc = put_bytes(&b->keys, 2, key, key_n, err);
    if (!rc)
        rc = tu_out_write(b->out, key, key_n, err);
    if (!rc)
        rc = tu_out_write(b->out, data, n, err);
    tu_buf_release(&object);
    b->bytes += key_n + n;
    b->count++;
    return rc;
}

static int save_mooncake(struct tu_kv *kv, const char *path, const struct tu_kv_hint *how,
                         const struct tu_job *job, struct tu_err *err)
{
    struct tui_chunks c;
    struct bucket b = {0};
    uint64_t chunks;
    unsigned char *names = NULL;
    unsigned size = 0;
    int rc = tui_chunks_spec(&c, how->spec, "2ltd", CHUNK, err);
    if (!rc)
        rc = tui_chunks_of(&c, kv, &chunks, err);
    if (!rc)
        rc = tui_chunks_names(kv, NULL, 0, "vllm-cbor", how->spec, c.g.block, &names, &size,
                              err);
    if (!rc)
        rc = tui_kv_folder(path, how->force, err);
    for (uint64_t i = 0; !rc && i < kv->tokens / c.g.block; i++) {
        char key[400], text[2 * TU_KV_DIGEST + 1];
        void *data;
        size_t n;
        tu_kv_hash_hex(names + i * size, size, text);
        snprintf(key, sizeof key, "%s@%" PRIu64 "@%" PRIu64 "@%s", kv->info.model,
                 kv->info.tp_size, kv->info.tp_rank, text);
        rc = tui_chunks_data(&c, kv, i, &data, &n, err);
        if (!rc && b.out && (b.count == KEYS_MAX || b.bytes + n > BUCKET_BYTES))
            rc = close_bucket(&b, path, job, err);
        if (!rc)
            rc = put_object(&b, path, key, data, n, job, err);
        tu_free(data);
    }
    if (!rc && b.out)
        rc = close_bucket(&b, path, job, err);
    tu_out_abort(b.out);
    tu_buf_release(&b.keys);
    tu_buf_release(&b.objects);
    tu_free(names);
    return rc;
}

const struct tu_kv_engine tui_kv_mooncake = {
    .name = "mooncake",
    .help = "buckets of Mooncake's store; layers= heads= dim= dtype= layout= latent chunk= "
            "hash= seed=",
    .key = tui_chunks_keys,
    .chunks = true,
    .sniff = sniff,
    .open = open_mooncake,
    .save = save_mooncake,
};
