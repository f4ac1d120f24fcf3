/* SPDX-License-Identifier: Apache-2.0 */
/* zip_write.c: zip archives byte for byte as torch writes them.
 *
 * Everything but the checksums is known before the first byte: the layout is made first,
 * the data may then be written anywhere in any order, and the headers come last. Local
 * headers leave the checksum and the sizes at zero, a descriptor behind the data holds
 * them; an 'FB' extra field puts the data at a multiple of the alignment; times and
 * versions are zero; the ZIP64 end record is always there. An empty entry has neither the
 * flag nor the descriptor. */
#include "zip.h"

#define WIDE UINT32_MAX /* a value from here on is in the ZIP64 extra field */

static bool is_wide(const struct tu_zip_plan *e, uint64_t local)
{
    return e->size >= WIDE || local >= WIDE;
}

/* Bytes of the ZIP64 extra field of an entry, its head of 4 included. */
static size_t wide_bytes(const struct tu_zip_plan *e, uint64_t local)
{
    return is_wide(e, local)
               ? (size_t)4 + (e->size >= WIDE ? 16 : 0) + (local >= WIDE ? 8 : 0)
               : 0;
}

static uint64_t tail_bytes(const struct tu_zip_plan *e, uint64_t local)
{
    return !e->size ? 0 : is_wide(e, local) ? 24 : 16;
}

/* The field; `stored` is 0 in a local header, which comes before the data is known. */
static unsigned char *put_wide(unsigned char *p, const struct tu_zip_plan *e,
                               uint64_t local, uint64_t stored)
{
    size_t n = wide_bytes(e, local);
    if (!n)
        return p;
    tu_put16(p, 1);
    tu_put16(p + 2, (uint16_t)(n - 4));
    p += 4;
    if (e->size >= WIDE) {
        tu_put64(p, e->size);
        tu_put64(p + 8, stored);
        p += 16;
    }
    if (local >= WIDE) {
        tu_put64(p, local);
        p += 8;
    }
    return p;
}

static uint32_t narrow(uint64_t v)
{
    return (uint32_t)tu_min(v, WIDE);
}

static uint16_t flags_of(const struct tu_zip_plan *e)
{
    return TUI_ZIP_UTF8 | (e->size ? TUI_ZIP_LATER : 0);
}

int tu_zip_layout(struct tu_zip_plan *e, size_t n, unsigned align, uint64_t *size,
                  struct tu_err *err)
{
    uint64_t at = 0, directory = 0;
    char shown[88];
    for (size_t i = 0; i < n; i++) {
        uint64_t local = at, start;
        size_t name = strlen(e[i].name);
        if (!name || name > UINT16_MAX)
            return tu_fail(err, TU_ENAME, "zip: entry name of %zu bytes", name);
        if (tu_add_over(at, TUI_ZIP_LOCAL_SIZE + name + 4 + wide_bytes(&e[i], local),
                        &start) ||
            tu_align_over(start, align, &e[i].offset) ||
            tu_add_over(e[i].offset, e[i].size, &at) ||
            tu_add_over(at, tail_bytes(&e[i], local), &at) || at > TU_SIZE_MAX)
            return tu_fail(err, TU_ESIZE,
                           "zip entry '%s': the archive would be too large",
                           tu_text_short(e[i].name, name, shown));
        directory += TUI_ZIP_CENTRAL_SIZE + name + wide_bytes(&e[i], local);
    }
    *size = at + directory + TUI_ZIP_END64_SIZE + TUI_ZIP_LOCATOR_SIZE + TUI_ZIP_END_SIZE;
    return 0;
}

int tui_zip_head(struct tu_buf *out, const struct tu_zip_plan *e, uint64_t local,
                 struct tu_err *err)
{
    size_t name = strlen(e->name), n = (size_t)(e->offset - local);
    unsigned char *p = tu_buf_room(out, n, err);
    if (!p)
        return TU_ENOMEM;
    unsigned char *end = p + n;
    memset(p, 0, TUI_ZIP_LOCAL_SIZE);
    tu_put32(p, TUI_ZIP_LOCAL);
    tu_put16(p + 6, flags_of(e));
    tu_put16(p + 26, (uint16_t)name);
    tu_put16(p + 28, (uint16_t)(n - TUI_ZIP_LOCAL_SIZE - name));
    memcpy(p + TUI_ZIP_LOCAL_SIZE, e->name, name);
    p = put_wide(p + TUI_ZIP_LOCAL_SIZE + name, e, local, 0);
    memcpy(p, "FB", 2);
    tu_put16(p + 2, (uint16_t)(end - p - 4));
    memset(p + 4, 'Z', (size_t)(end - p - 4));
    out->n += n;
    return 0;
}

int tui_zip_tail(struct tu_buf *out, const struct tu_zip_plan *e, uint64_t local,
                 struct tu_err *err)
{
    unsigned char p[24];
    tu_put32(p, TUI_ZIP_DESCRIPTOR);
    tu_put32(p + 4, e->crc);
    if (is_wide(e, local)) {
        tu_put64(p + 8, e->size);
        tu_put64(p + 16, e->size);
    } else {
        tu_put32(p + 8, (uint32_t)e->size);
        tu_put32(p + 12, (uint32_t)e->size);
    }
    return tu_buf_add(out, p, (size_t)tail_bytes(e, local), err);
}

static int put_central(struct tu_buf *out, const struct tu_zip_plan *e, uint64_t local,
                       struct tu_err *err)
{
    size_t name = strlen(e->name), wide = wide_bytes(e, local);
    size_t n = TUI_ZIP_CENTRAL_SIZE + name + wide;
    unsigned char *p = tu_buf_room(out, n, err);
    if (!p)
        return TU_ENOMEM;
    memset(p, 0, TUI_ZIP_CENTRAL_SIZE);
    tu_put32(p, TUI_ZIP_CENTRAL);
    tu_put16(p + 8, flags_of(e));
    tu_put32(p + 16, e->crc);
    tu_put32(p + 20, narrow(e->size));
    tu_put32(p + 24, narrow(e->size));
    tu_put16(p + 28, (uint16_t)name);
    tu_put16(p + 30, (uint16_t)wide);
    tu_put32(p + 42, narrow(local));
    memcpy(p + TUI_ZIP_CENTRAL_SIZE, e->name, name);
    put_wide(p + TUI_ZIP_CENTRAL_SIZE + name, e, local, e->size);
    out->n += n;
    return 0;
}

/* The three records at the end; `at` is where the directory of `size` bytes begins. */
static int put_end(struct tu_buf *out, size_t n, uint64_t at, uint64_t size,
                   struct tu_err *err)
{
    unsigned char p[TUI_ZIP_END64_SIZE + TUI_ZIP_LOCATOR_SIZE + TUI_ZIP_END_SIZE] = {0};
    unsigned char *locator = p + TUI_ZIP_END64_SIZE,
                  *end = locator + TUI_ZIP_LOCATOR_SIZE;
    tu_put32(p, TUI_ZIP_END64);
    tu_put64(p + 4, TUI_ZIP_END64_SIZE - 12);
    tu_put16(p + 12, 0x031e); /* made by: version 3.0 on Unix */
    tu_put16(p + 14, 45);     /* needs: ZIP64 */
    tu_put64(p + 24, n);
    tu_put64(p + 32, n);
    tu_put64(p + 40, size);
    tu_put64(p + 48, at);
    tu_put32(locator, TUI_ZIP_LOCATOR);
    tu_put64(locator + 8, at + size);
    tu_put32(locator + 16, 1);
    tu_put32(end, TUI_ZIP_END);
    tu_put16(end + 8, (uint16_t)tu_min(n, UINT16_MAX));
    tu_put16(end + 10, (uint16_t)tu_min(n, UINT16_MAX));
    tu_put32(end + 12, narrow(size));
    tu_put32(end + 16, narrow(at));
    return tu_buf_add(out, p, sizeof p, err);
}

static int write_frame(struct tu_out *out, uint64_t base, const struct tu_zip_plan *e,
                       uint64_t local, struct tu_buf *scratch, struct tu_err *err)
{
    tu_buf_reset(scratch);
    int rc = tui_zip_head(scratch, e, local, err);
    if (rc == 0)
        rc = tu_out_pwrite(out, base + local, scratch->data, scratch->n, err);
    tu_buf_reset(scratch);
    if (rc == 0)
        rc = tui_zip_tail(scratch, e, local, err);
    if (rc == 0 && scratch->n)
        rc = tu_out_pwrite(out, base + e->offset + e->size, scratch->data, scratch->n, err);
    return rc;
}

int tu_zip_finish(struct tu_out *out, const struct tu_zip_plan *e, size_t n,
                  unsigned align, struct tu_err *err)
{
    (void)align; /* the offsets of the layout say it all */
    return tui_zip_finish_at(out, 0, e, n, err);
}

int tui_zip_finish_at(struct tu_out *out, uint64_t base, const struct tu_zip_plan *e,
                      size_t n, struct tu_err *err)
{
    struct tu_buf directory = {0}, scratch = {0};
    bool seekable = tu_out_seekable(out);
    uint64_t local = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (seekable)
            rc = write_frame(out, base, &e[i], local, &scratch, err);
        if (rc == 0)
            rc = put_central(&directory, &e[i], local, err);
        local = e[i].offset + e[i].size + tail_bytes(&e[i], local);
    }
    if (rc == 0)
        rc = put_end(&directory, n, local, directory.n, err);
    if (rc == 0)
        rc = seekable ? tu_out_pwrite(out, base + local, directory.data, directory.n, err)
                      : tu_out_write(out, directory.data, directory.n, err);
    tu_buf_release(&scratch);
    tu_buf_release(&directory);
    return rc;
}
