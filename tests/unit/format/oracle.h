/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.h: files of real producers against what their own library says of them: a line
 * `CRC32 DTYPE SHAPE NAME` per tensor, of its little-endian bytes in C order. */
#ifndef TESTS_UNIT_FORMAT_ORACLE_H
#define TESTS_UNIT_FORMAT_ORACLE_H

#include "fix.h"

struct oracle_line {
    unsigned crc;
    char dtype[16], shape[128], name[256];
};

static inline size_t oracle_read(const char *path, struct oracle_line *line, size_t max)
{
    FILE *f = fopen(path, "r");
    char text[512];
    size_t n = 0;
    while (f && n < max && fgets(text, sizeof text, f)) {
        struct oracle_line *l = &line[n++];
        l->name[0] = 0;
        text[strcspn(text, "\n")] = 0;
        sscanf(text, "%x %15s %127s %255[^\n]", &l->crc, l->dtype, l->shape, l->name);
        if (!*l->name)
            strcpy(l->name, "tensor"); /* the object itself */
    }
    if (f)
        fclose(f);
    return f ? n : SIZE_MAX;
}

/* CRC of a tensor, read in steps that cut elements. */
static inline uint32_t oracle_crc(struct tu_source *s, size_t i, size_t step)
{
    uint32_t crc = 0;
    unsigned char *p = malloc(step);
    for (uint64_t off = 0; off < s->tensor[i].bytes; off += step) {
        size_t n = (size_t)tu_min(step, s->tensor[i].bytes - off);
        struct tu_err err;
        if (tu_source_read(s, i, off, p, n, &err))
            printf("# %s\n", err.msg);
        crc = tu_crc32(crc, p, n);
    }
    free(p);
    return crc;
}

static inline void oracle_compare(const char *path, const struct oracle_line *line, size_t n)
{
    struct tu_source *s;
    struct tu_err err;
    if (tu_source_open(&s, path, NULL, NULL, NULL, &err)) {
        ok(false, "%s: %s", path, err.msg);
        return;
    }
    eq_u64(s->n, n, "%s: tensors", path);
    for (size_t k = 0; k < n; k++) {
        char shape[256];
        struct tu_buf text = { 0 };
        size_t i = tu_source_find(s, line[k].name);
        if (!ok(i != SIZE_MAX, "%s: %s is there", path, line[k].name))
            continue;
        const struct tu_tensor *t = &s->tensor[i];
        int rc = tu_shape_text(&text, t->dim, t->rank, &err);
        snprintf(shape, sizeof shape, "%s %s", tu_dtype_text(t->dtype, (char[8]){ 0 }), text.data);
        tu_buf_release(&text);
        char want[256];
        snprintf(want, sizeof want, "%s %s", line[k].dtype, line[k].shape);
        ok(!rc && !strcmp(shape, want), "%s: %s is %s", path, line[k].name, want);
        eq_u64(oracle_crc(s, i, 1 << 16), line[k].crc, "%s: %s: bytes", path, line[k].name);
        eq_u64(oracle_crc(s, i, 7), line[k].crc, "%s: %s: bytes in odd steps", path, line[k].name);
        ok(!tu_source_verify(s, i, NULL, &err), "%s: %s: verified", path, line[k].name);
        if (s->extent[i].in) {
            unsigned char *p = malloc((size_t)t->bytes + 1);
            ok(!tu_in_pread(s->extent[i].in, s->extent[i].off, p, (size_t)t->bytes, &err) &&
                   tu_crc32(0, p, (size_t)t->bytes) == line[k].crc, "%s: %s: in place", path,
               line[k].name);
            free(p);
        }
        if (s->crc[i] != TU_CRC_NONE)
            eq_u64(s->crc[i], line[k].crc, "%s: %s: stored checksum", path, line[k].name);
    }
    tu_source_close(s);
}

/* Every file of the folder that has the suffix and an oracle; how many there were. */
static inline unsigned oracle_folder(const char *folder, const char *suffix)
{
    static struct oracle_line line[512];
    DIR *d = opendir(folder);
    unsigned files = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[512], oracle[600];
        size_t n = strlen(e->d_name), m = strlen(suffix);
        if (n <= m || strcmp(e->d_name + n - m, suffix))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        snprintf(oracle, sizeof oracle, "%s.oracle", path);
        n = oracle_read(oracle, line, 512);
        if (n != SIZE_MAX) {
            oracle_compare(path, line, n);
            files++;
        }
    }
    if (d)
        closedir(d);
    return files;
}

#endif
