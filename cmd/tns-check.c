/* SPDX-License-Identifier: Apache-2.0 */
/* tns-check: read tensor streams to their end and say whether everything in them is
 * right. */
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <tensorutils/stream.h>
#include "common/main.h"

static struct {
    bool quick, recover;
} opt;

static const struct tu_opt options[] = {
    {0, "quick", NULL, "headers and digests of files only, no payloads", TU_OPT_FLAG,
     &opt.quick, NULL, 0},
    {0, "recover", NULL, "after damage, look for the next sound record", TU_OPT_FLAG,
     &opt.recover, NULL, 0},
    {0},
};

static const struct tu_column columns[] = {
    {"valid", "VALID", TU_COL_BOOL, 5},      {"segments", "SEGMENTS", TU_COL_U64, 8},
    {"records", "RECORDS", TU_COL_U64, 8},   {"tensors", "TENSORS", TU_COL_U64, 8},
    {"bytes", "BYTES", TU_COL_U64, 15},      {"digest", "DIGEST", TU_COL_TEXT, 8},
    {"lost_bytes", NULL, TU_COL_U64, 0},     {"code", NULL, TU_COL_TEXT, 0},
    {"offset", NULL, TU_COL_U64, 0},         {"name", "NAME", TU_COL_NAME, 1},
    {0},
};

/* What was seen of one input. */
struct seen {
    uint64_t segments, records, tensors, bytes, lost;
    uint32_t digest; /* CRC-32 of the segments' digests; of one segment: its own */
    struct tu_err first; /* code 0: sound */
    bool pending, tensor; /* a record whose payload is verified by the next step, of a tensor */
    uint64_t at, end;     /* and where it lies */
};

/* A record counts when what follows it is reached, or what is wrong lies behind it. */
static void count(struct seen *s, const struct tu_err *err)
{
    if (s->pending && !(err && err->offset >= s->at && err->offset < s->end)) {
        s->records++;
        s->tensors += s->tensor;
    }
    s->pending = false;
}

static void end_segment(struct seen *s, uint32_t digest)
{
    unsigned char b[4];
    tu_put32(b, digest);
    s->digest = s->segments ? tu_crc32(s->digest, b, sizeof b) : digest;
    s->segments++;
}

static void report(struct tu_ctx *ctx, const char *name, const struct seen *s)
{
    char digest[16];
    const int code = s->first.code;
    snprintf(digest, sizeof digest, "%08x", s->digest);
    tu_row(ctx, (struct tu_cell[]){
        {.b = code == 0}, {.u = s->segments}, {.u = s->records}, {.u = s->tensors},
        {.u = s->bytes}, {.none = code != 0, .s = digest}, {.u = s->lost},
        {.none = code == 0, .s = tu_err_name(code)},
        {.none = code == 0 || s->first.offset == TU_ERR_NO_OFFSET, .u = s->first.offset},
        {.s = name},
    });
}

/* Go on behind the damage; false when there is nothing more. */
static bool recover(struct tu_ctx *ctx, struct tu_reader *r, struct seen *s)
{
    struct tu_err err;
    bool found = false;
    uint64_t skipped = 0;
    if (tu_reader_recover(r, &found, &skipped, &err)) {
        tu_error(ctx, &err);
        return false;
    }
    s->lost += skipped;
    if (found)
        tu_note(ctx, 1, "%s: %" PRIu64 " bytes lost before the next sound record",
                tu_reader_name(r), skipped);
    return found;
}

/* Each record to the end; the first error is kept, later ones are told. */
static void read_all(struct tu_ctx *ctx, struct tu_reader *r, struct seen *s)
{
    struct tu_err err;
    const struct tu_record *rec;
    for (;;) {
        if (tu_reader_next(r, &rec, &err)) {
            tu_error(ctx, &err);
            count(s, &err);
            if (!s->first.code)
                s->first = err;
            if (!opt.recover || tu_err_status(err.code) != TU_STATUS_DATA ||
                !recover(ctx, r, s))
                break;
            continue;
        }
        count(s, NULL);
        if (!rec)
            break;
        if (rec->type == TU_REC_END) {
            end_segment(s, (uint32_t)rec->word[3]);
        } else {
            s->pending = true;
            s->tensor = rec->type == TU_REC_TENSOR;
            s->at = rec->offset;
            s->end = s->at + rec->header_len + rec->payload_len;
        }
    }
    s->bytes = tu_reader_pos(r);
}

/* Of all inputs, for progress. */
struct sizes {
    uint64_t done, total; /* 0: one has none */
};

/* Bytes of regular files; pipes and what cannot be looked at have none. */
static uint64_t size_of(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

static struct sizes sizes_of(const char *const *path, int n)
{
    struct sizes s = {0, 0};
    bool known = true;
    for (int i = 0; i < n; i++) {
        const uint64_t size = size_of(path[i]);
        known = known && size;
        s.total += size;
    }
    return known ? s : (struct sizes){0, 0};
}

static int check(struct tu_ctx *ctx, const char *path, struct sizes *sizes, struct seen *s,
                 struct tu_err *err)
{
    struct tu_in *in;
    struct tu_reader *r;
    int rc = tu_in_open(&in, path, err);
    if (rc)
        return rc;
    unsigned flags = TU_READER_STRICT | (opt.quick ? TU_READER_NOVERIFY : 0);
    rc = tu_reader_new(&r, in, flags, tu_ctx_pool(ctx), err);
    if (rc)
        return rc;
    tu_reader_watch(r, tu_ctx_alone(ctx), sizes->done, sizes->total);
    read_all(ctx, r, s);
    sizes->done += s->bytes;
    tu_reader_free(r);
    return 0;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    static const char *const standard_input[] = {"-"};
    const char *const *path = argc ? (const char *const *)argv : standard_input;
    struct sizes sizes = sizes_of(path, argc ? argc : 1);
    struct tu_err err;
    tu_rows_begin(ctx, columns);
    for (int i = 0; i < (argc ? argc : 1); i++) {
        struct seen seen = {0};
        if (check(ctx, path[i], &sizes, &seen, &err)) {
            tu_error(ctx, &err);
            seen.first = err;
        }
        report(ctx, path[i], &seen);
    }
    ctx->told = true;
    return 0;
}

static const char *const usage[] = {"[option ...] [file ...]", NULL};

static const struct tu_cmd command = {
    .name = "tns-check",
    .example = "tns-check w.tns",
    .summary = "verify tensor streams: frames, checksums, counts, metadata",
    .usage = usage,
    .opts = options,
    .flags = TU_CMD_STDIN,
    .max = TU_ANY,
    .run = run,
};

int main(int argc, char **argv)
{
    return tu_main(&command, argc, argv);
}
