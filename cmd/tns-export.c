/* SPDX-License-Identifier: Apache-2.0 */
/* tns-export: a tensor stream, or a file of any format, as a file of another format. */
#include <string.h>
#include "common/formats.h"
#include "common/main.h"

static struct {
    int from, to;
    bool keep_header, npy_raw, no_crc;
    uint64_t max_shard;
} opt = {.from = -1, .to = -1};

static const struct tu_opt options[] = {
    {0, "to", "FORMAT", "format to write; default: by the suffix of -o", TU_OPT_CHOICE, &opt.to,
     tu_writable, 0},
    {0, "from", "FORMAT", "format of the file; default: by its contents", TU_OPT_CHOICE, &opt.from,
     tu_readable, 0},
    {0, "keep-header", NULL, "restore the file that tns-import --keep-header read", TU_OPT_FLAG,
     &opt.keep_header, NULL, 0},
    {0, "npy-raw", NULL, "npy, npz: bf16 and fp8 as unsigned integers", TU_OPT_FLAG, &opt.npy_raw,
     NULL, 0},
    {0, "max-shard-size", NULL, "hf, gguf: bytes of a file; hf: default 5GB", TU_OPT_SIZE,
     &opt.max_shard,
     NULL, 0},
    {0, "no-crc", NULL, "do not verify checksums that the file stores", TU_OPT_FLAG, &opt.no_crc,
     NULL, 0},
    {0},
};

/* Beside the output, where its bytes will be needed anyway. */
static const char *folder_of(const char *output, char *buf, size_t n)
{
    const char *slash = strrchr(output, '/');
    size_t len = slash ? (size_t)(slash - output) : 0;
    if (!slash || len >= n)
        return ".";
    memcpy(buf, output, len);
    buf[len] = 0;
    return len ? buf : "/";
}

static int export(struct tu_ctx *ctx, const char *path, const struct tu_format *to,
                  struct tu_err *err)
{
    const struct tu_save what = {
        .keep_header = opt.keep_header,
        .npy_raw = opt.npy_raw,
        .max_shard = opt.max_shard,
        .force = ctx->force,
    };
    char folder[PATH_MAX];
    struct tu_open how = {.no_crc = opt.no_crc,
                          .folder = folder_of(ctx->output, folder, sizeof folder)};
    const struct tu_format *from = tu_format_chosen(tu_readable, opt.from);
    const struct tu_job *job = tu_ctx_job(ctx);
    struct tu_source *s;
    int rc = 0;
    /* Standard input is a stream unless --from says otherwise. What passes by once is
     * announced or spooled; what can be read again is opened by its path. */
    struct tu_in *in = NULL;
    if (!strcmp(path, "-")) {
        from = from ? from : tu_format_find("tns");
        rc = tu_in_open(&in, path, err);
    }
    if (!rc && in && !tu_in_seekable(in) && to->flags & TU_FORMAT_NAMED && !opt.keep_header &&
        opt.from < 0 && tu_stream_announced(in))
        return tu_stream_save(in, ctx->output, to, &what, false, job, err);
    how.in = in;
    if (!rc)
        rc = tu_source_open(&s, path, from, &how, job, err);
    if (!rc)
        rc = tu_source_join(&s, s, err);
    if (rc)
        return rc;
    rc = tu_source_save(s, ctx->output, to, &what, false, job, err);
    tu_source_close(s);
    return rc;
}

static int run(struct tu_ctx *ctx, int argc, char **argv)
{
    const struct tu_format *to = tu_format_chosen(tu_writable, opt.to);
    struct tu_err err;
    if (!to)
        to = tu_format_of_path(ctx->output);
    if (!to || !(to->flags & TU_FORMAT_WRITE))
        return tu_usage(ctx, "'%s': no format is written with this suffix; name one with --to",
                        ctx->output);
    return export(ctx, argc ? argv[0] : "-", to, &err) ? tu_error(ctx, &err) : 0;
}

static const char *const usage[] = {"[option ...] [file]", NULL};

static const struct tu_cmd command = {
    .name = "tns-export",
    .example = "tns-export m.tns -o m.safetensors",
    .summary = "write a tensor stream as a file of another format",
    .usage = usage,
    .opts = options,
    .listings = tu_format_listings,
    .flags = TU_CMD_STDIN | TU_CMD_STREAM | TU_CMD_FORMATS,
    .max = 1,
    .run = run,
};

int main(int argc, char **argv)
{
    tu_formats_begin();
    return tu_main(&command, argc, argv);
}
