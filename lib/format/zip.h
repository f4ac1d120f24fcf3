/* SPDX-License-Identifier: Apache-2.0 */
/* zip.h: what the files of zip share: the numbers of the format, and archives as tensor
 * sinks.
 *
 * Source: PKWARE, .ZIP File Format Specification (APPNOTE.TXT) 6.3.10; the padding field
 * and the zeroed local sizes are those of torch's writer. */
#ifndef TENSORUTILS_FORMAT_ZIP_H
#define TENSORUTILS_FORMAT_ZIP_H

#include <tensorutils/format.h>

enum {
    TUI_ZIP_LOCAL = 0x04034b50,
    TUI_ZIP_CENTRAL = 0x02014b50,
    TUI_ZIP_DESCRIPTOR = 0x08074b50,
    TUI_ZIP_END = 0x06054b50,
    TUI_ZIP_END64 = 0x06064b50,
    TUI_ZIP_LOCATOR = 0x07064b50,
};

enum { /* bytes of the fixed parts */
       TUI_ZIP_LOCAL_SIZE = 30,
       TUI_ZIP_CENTRAL_SIZE = 46,
       TUI_ZIP_END_SIZE = 22,
       TUI_ZIP_END64_SIZE = 56,
       TUI_ZIP_LOCATOR_SIZE = 20,
};

enum {                         /* general-purpose flags */
       TUI_ZIP_LATER = 0x0008, /* CRC and sizes stand behind the data */
       TUI_ZIP_UTF8 = 0x0800,
       TUI_ZIP_DEFLATE_HINTS = 0x0006,
};

/* Compare the stored checksum of entry i with its bytes, the work shared by a pool. */
TU_MUST int tui_zip_verify(struct tu_zip *z, size_t i, struct tu_pool *pool,
                           struct tu_err *err);
/* True where head[n] begins a zip; *name is then the first entry's name, not NUL-ended,
 * and empty where there is none. */
bool tui_zip_sniff(const unsigned char *head, size_t n, const char **name,
                   size_t *name_n);

/* What stands before and behind the data of an entry whose local header lies at `local`;
 * the checksum must be known for the latter. Appended to out. */
TU_MUST int tui_zip_head(struct tu_buf *out, const struct tu_zip_plan *e, uint64_t local,
                         struct tu_err *err);
TU_MUST int tui_zip_tail(struct tu_buf *out, const struct tu_zip_plan *e, uint64_t local,
                         struct tu_err *err);

/* As tu_zip_finish, for an archive that begins at byte `base` of a seekable file. */
TU_MUST int tui_zip_finish_at(struct tu_out *out, uint64_t base, const struct tu_zip_plan *e,
                              size_t n, struct tu_err *err);

/* A sink whose file is a zip: each entry is some fixed bytes, then one tensor or nothing.
 */
struct tui_zip_part {
    const char *name;
    const void *head; /* [head_n] */
    size_t head_n;
    size_t tensor; /* number of the tensor whose bytes follow, SIZE_MAX for none */
};

#define TUI_ZIP_ALIGN 64

/* The parts name each of the n tensors once; everything is copied. A pipe gets the parts
 * in their order, so the tensors' bytes must come in it. */
TU_MUST int tui_zip_sink_new(struct tu_sink **out, const struct tu_format *format,
                             const char *path, const struct tui_zip_part *part,
                             size_t parts, const struct tu_tensor *t, size_t n,
                             const struct tu_job *job, struct tu_err *err);

/* Deflated entries, inflated one behind the other into a file without a name. {0} is
 * empty. */
struct tui_zip_spool {
    int fd;
    bool open;
    uint64_t size;
};
/* *off says where the entry's bytes begin. */
TU_MUST int tui_zip_spool_add(struct tui_zip_spool *s, struct tu_zip *z, size_t i,
                              const char *folder, uint64_t *off, struct tu_err *err);
/* The file for reading, NULL where nothing was added; s is empty again. */
TU_MUST int tui_zip_spool_finish(struct tui_zip_spool *s, struct tu_in **in,
                                 const char *name, struct tu_err *err);
void tui_zip_spool_release(struct tui_zip_spool *s);

#endif
