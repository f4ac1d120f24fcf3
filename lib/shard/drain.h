/* SPDX-License-Identifier: Apache-2.0 */
/* drain.h: the parts of a drain: where streams end, and files of one level. */
#ifndef TU_SHARD_DRAIN_H
#define TU_SHARD_DRAIN_H

#include "ckpt.h"

/* Frames (drain_file.c): records of a stream that passes by; nothing is verified but that
 * they are records. {0} begins. */
struct tui_frames {
    unsigned char head[64];
    size_t have;   /* bytes of it */
    uint64_t rest; /* of the record, behind the head */
    uint64_t pos;
    bool inside; /* a segment has begun and not ended */
};
/* Look at p[n] up to the end of a segment: *used bytes, *end tells. Errors: TU_EMAGIC,
 * TU_EHEADER with the offset. */
int tui_frames_add(struct tui_frames *f, const char *p, size_t n, size_t *used, bool *end,
                   struct tu_err *err);
/* Between segments? */
bool tui_frames_whole(const struct tui_frames *f);

/* A file of one level: PATH.partial until it is published. */
struct tui_level_file {
    const char *path;
    char *partial;
    int fd;
    bool force; /* may take the place of PATH */
    uint64_t bytes;
};
/* Made, and locked: TU_EEXISTS where another run writes it. */
int tui_level_open(struct tui_level_file *f, const struct tu_job *job, struct tu_err *err);
int tui_level_write(struct tui_level_file *f, const char *p, size_t n, struct tu_err *err);
int tui_level_copy(struct tui_level_file *f, const char *from, const struct tu_job *job,
                   struct tu_err *err);
/* Is it one whole segment? Reads it again; errors are those of a tu_reader. */
int tui_level_check(struct tui_level_file *f, struct tu_err *err);
/* Durable, under its name, which `latest` in the folder has then. */
int tui_level_publish(struct tui_level_file *f, const char *folder, const struct tu_job *job,
                      struct tu_err *err);
/* Remove what was not published. */
void tui_level_close(struct tui_level_file *f, const struct tu_job *job);

#endif
