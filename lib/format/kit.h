/* SPDX-License-Identifier: Apache-2.0 */
/* kit.h: what the readers and writers of foreign files share: making and freeing a
 * source, merged META, sorted names, and the sink of a file that is a head and then
 * tensors at fixed places. */
#ifndef TENSORUTILS_FORMAT_KIT_H
#define TENSORUTILS_FORMAT_KIT_H

#include <jansson.h>
#include <tensorutils/format.h>

/* Sources -------------------------------------------------------------------------------------- */

/* A zeroed state of `size` bytes that begins with a struct tu_source, with arena and path
 * set. */
TU_MUST void *tui_source_new(size_t size, const struct tu_format *format,
                             const struct tu_source_ops *ops, const char *path,
                             struct tu_err *err);
/* The last thing that ops->close does. NULL allowed. */
void tui_source_free(struct tu_source *s);
/* Append a META record; both texts are copied into the arena. */
TU_MUST int tui_source_meta(struct tu_source *s, const char *topic, const char *json, size_t n,
                            struct tu_err *err);

/* Does the file store the CRC-32 of just tensor i's bytes, and is it to be believed? */
/* ops->summed of formats whose every tensor has one. */
bool tui_summed_always(const struct tu_source *s, size_t i);
bool tui_has_crc(const struct tu_source *s, size_t i);
/* TU_EPCRC where it does and says something else. */
TU_MUST int tui_check_crc(const struct tu_source *s, size_t i, uint32_t crc, struct tu_err *err);

#define TUI_WINDOW ((size_t)4 << 20) /* bytes of a tensor in memory at a time */
#define TUI_SNIFF 4096 /* bytes that sniffing looks at: what tu_in_peek gives */
/* The readable format of a file that begins with head[n], or of a folder; NULL if none
 * claims it. */
const struct tu_format *tui_format_sniff(const char *path, bool folder,
                                         const unsigned char *head, size_t n);
/* What is wrong with a file that none claims. */
int tui_format_unknown(const char *path, const unsigned char *head, size_t n,
                       struct tu_err *err);

/* Bytes of one number of a plain dtype: half of a complex element. */
size_t tui_number_bytes(uint32_t dtype);
/* Turn the bytes of each number around, big-endian to little-endian and back; n bytes, whole
 * numbers of a plain dtype. */
void tui_swap(void *p, size_t n, uint32_t dtype);

/* META ----------------------------------------------------------------------------------------- */

#define TUI_META_MAX ((size_t)16 << 20) /* bytes of one META object in a stream */

/* The records of a topic as one object, later keys winning; an empty object if there are
 * none. Released with json_decref. */
TU_MUST int tui_meta_merge(json_t **out, const struct tu_meta *meta, size_t n, const char *topic,
                           struct tu_err *err);

/* Names ---------------------------------------------------------------------------------------- */

/* Sorted, not hashed: names come from the file, which may be made to collide. */
struct tui_names {
    size_t n;
    struct tui_name {
        const char *name;
        size_t i;
    } *item;
};
TU_MUST int tui_names_make(struct tui_names *x, const struct tu_tensor *t, size_t n,
                           struct tu_err *err);
void tui_names_release(struct tui_names *x);
/* The lowest index with this name, SIZE_MAX if none. */
size_t tui_names_find(const struct tui_names *x, const char *name);
/* The first name (by bytes) that occurs twice, NULL if none. */
const char *tui_names_twin(const struct tui_names *x);

/* Flat sinks ----------------------------------------------------------------------------------- */

struct tui_flat {
    struct tu_sink sink;
    struct tu_out *out;
    uint64_t *at;    /* [n] where the tensors' bytes go in the file */
    size_t *order;   /* [n] or NULL; sink.order */
    uint64_t size;   /* of the file */
    bool sequential; /* bytes come in order; gaps are filled with zeros */
};

/* Open path and write the head. `at` and `order` (see struct tui_flat) are taken over, on
 * failure too. What no tensor covers is zero. */
TU_MUST int tui_flat_new(struct tui_flat **out, const struct tu_format *format, const char *path,
                         size_t n, const struct tu_buf *head, uint64_t *at, size_t *order,
                         uint64_t size, const struct tu_job *job, struct tu_err *err);
/* Write bytes where they belong in the file, whatever tensor they are of. */
TU_MUST int tui_flat_put(struct tui_flat *f, uint64_t off, const void *p, size_t n,
                         struct tu_err *err);
/* The ops of a sink that adds nothing to this. */
extern const struct tu_sink_ops tui_flat_ops;

/* Byte `pos` of a textual head of n bytes, which begins at byte `base` of its file, is not
 * what was expected. Returns TU_EFORMAT. */
int tui_fail_char(struct tu_err *err, const char *text, size_t n, size_t pos, size_t base,
                  const char *expected);

#endif
