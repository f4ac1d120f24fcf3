/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of zip archives: the layout of torch's files to the byte, libarchive as a second reader,
 * every disagreement between directory, local headers and descriptors. */
#include <archive.h>
#include <archive_entry.h>
#include <zlib.h>

#include "fix.h"

/* The entries of worked case 2, with contents that are not its. */
#define CASE2_BYTES 729
static const char pkl[166] = "P", numbers[24] = "0";

static int write_zip(const char *path, struct tu_zip_plan *e, size_t n, const void *const *data,
                     struct tu_err *err)
{
    uint64_t size;
    struct tu_out *out = NULL;
    int rc = tu_zip_layout(e, n, 64, &size, err);
    if (rc == 0)
        rc = tu_out_open(&out, path, NULL, err);
    for (size_t i = n; rc == 0 && i-- > 0;) { /* backwards: any order will do */
        e[i].crc = tu_crc32(0, data[i], (size_t)e[i].size);
        rc = tu_out_pwrite(out, e[i].offset, data[i], (size_t)e[i].size, err);
    }
    if (rc == 0)
        rc = tu_zip_finish(out, e, n, 64, err);
    if (rc < 0) {
        tu_out_abort(out);
        return rc;
    }
    return tu_out_commit(out, false, err);
}

static int write_case2(struct tu_err *err)
{
    struct tu_zip_plan e[] = { { .name = "a/data.pkl", .size = 166 },
                               { .name = "a/data/0", .size = 24 },
                               { .name = "a/version", .size = 2 } };
    const void *data[] = { pkl, numbers, "3\n" };
    return write_zip(fix_path("case2.zip"), e, 3, data, err);
}

static void worked_case(void)
{
    struct tu_err err;
    size_t n;
    ok(!write_case2(&err), "case 2: written");
    unsigned char *p = fix_read(fix_path("case2.zip"), &n);
    eq_u64(n, CASE2_BYTES, "case 2: size");
    eq_u64(tu_le32(p + 246), 0x04034b50, "case 2: second local header");
    eq_u64(tu_le32(p + 360), 0x04034b50, "case 2: third local header");
    eq_u64(tu_le32(p + 466), 0x02014b50, "case 2: directory");
    eq_u64(tu_le32(p + 631), 0x06064b50, "case 2: ZIP64 end");
    eq_u64(tu_le32(p + 687), 0x07064b50, "case 2: locator");
    eq_u64(tu_le32(p + 707), 0x06054b50, "case 2: end");
    eq_u64(tu_le16(p + 6), 0x0808, "case 2: flags");
    ok(!memcmp(p + 40, "FB\x14\0ZZZZ", 8), "case 2: padding field");
    ok(!memcmp(p + 64, pkl, 166) && !memcmp(p + 320, numbers, 24) && !memcmp(p + 448, "3\n", 2),
       "case 2: data");
    eq_u64(tu_le32(p + 450 + 4), 0x55679ed1, "case 2: CRC of the version in its descriptor");
    free(p);
}

static int open_path(struct tu_zip **z, struct tu_in **in, const char *path, struct tu_err *err)
{
    int rc = tu_in_open(in, path, err);
    if (rc == 0) {
        rc = tu_zip_open(z, *in, 0, 0, err);
        if (rc < 0) {
            tu_in_close(*in);
            *in = NULL;
        }
    }
    return rc;
}

static void reading(void)
{
    struct tu_err err;
    struct tu_zip *z;
    struct tu_in *in;
    void *data;
    size_t n;
    if (!ok(!open_path(&z, &in, fix_path("case2.zip"), &err), "opened"))
        return;
    eq_u64(tu_zip_count(z), 3, "three entries");
    eq_str(tu_zip_entry(z, 1)->name, "a/data/0", "in directory order");
    eq_u64(tu_zip_entry(z, 1)->offset, 320, "offset of the data");
    eq_u64(tu_zip_find(z, "a/version"), 2, "found by name");
    eq_u64(tu_zip_find(z, "a/versio"), SIZE_MAX, "not found");
    ok(!tu_zip_load(z, 0, 166, true, &data, &n, &err) && n == 166 && !memcmp(data, pkl, n), "loaded");
    tu_free(data);
    eq_int(tu_zip_load(z, 0, 165, true, &data, &n, &err), TU_ELIMIT, "over the caller's limit");
    tu_zip_close(z);
    tu_in_close(in);

    unsigned char *p = fix_read(fix_path("case2.zip"), &n), *in_more = calloc(1, 2000);
    memcpy(in_more + 500, p, n); /* as a range of a larger file */
    const char *path = fix_write("within", in_more, 2000);
    ok(!tu_in_open(&in, path, &err) && !tu_zip_open(&z, in, 500, n, &err), "a range of a file");
    eq_u64(tu_zip_entry(z, 1)->offset, 820, "offsets count from the file's start");
    tu_zip_close(z);
    eq_int(tu_zip_open(&z, in, 500, 1501, &err), TU_ETRUNC, "a range past the end");
    tu_in_close(in);
    in_more[500 + 320] = 1; /* payload */
    path = fix_write("damaged.zip", in_more + 500, n);
    ok(!open_path(&z, &in, path, &err), "damaged data is seen when it is read");
    eq_int(tu_zip_load(z, 1, 100, true, &data, &n, &err), TU_EPCRC, "checksum");
    ok(!tu_zip_load(z, 1, 100, false, &data, &n, &err), "or not, on request");
    tu_free(data);
    tu_zip_close(z);
    tu_in_close(in);
    free(in_more);
    free(p);
}

static void second_reader(void)
{
    static const char big[100000] = "big\0PK\7\10PK\3\4"; /* what a guessing reader trips over */
    static const char *const names[] = { "x/data.pkl", "x/empty", "x/../up", "/abs", "x/data/0" };
    const void *data[] = { pkl, "", "up", "abs", big };
    const size_t sizes[] = { 166, 0, 2, 3, sizeof big };
    struct tu_zip_plan e[5] = { 0 };
    struct tu_err err;
    for (int i = 0; i < 5; i++) {
        e[i].name = names[i];
        e[i].size = sizes[i];
    }
    ok(!write_zip(fix_path("five.zip"), e, 5, data, &err), "five entries: written");
    struct archive *a = archive_read_new();
    struct archive_entry *entry;
    archive_read_support_format_zip_seekable(a);
    eq_int(archive_read_open_filename(a, fix_path("five.zip"), 4096), ARCHIVE_OK, "libarchive opens");
    int seen = 0;
    while (archive_read_next_header(a, &entry) == ARCHIVE_OK) {
        char *got = malloc(sizeof big + 1);
        int i = 0;
        while (i < 5 && strcmp(archive_entry_pathname(entry), names[i]))
            i++;
        la_ssize_t n = archive_read_data(a, got, sizeof big + 1);
        ok(i < 5 && n == (la_ssize_t)sizes[i] && !memcmp(got, data[i], sizes[i]), "libarchive: %s",
           archive_entry_pathname(entry));
        free(got);
        seen++;
    }
    eq_int(seen, 5, "libarchive: every entry once");
    archive_read_free(a);

    struct tu_zip *z;
    struct tu_in *in;
    ok(!open_path(&z, &in, fix_path("five.zip"), &err), "our reader");
    for (size_t i = 0; i < 5; i++) {
        void *got;
        size_t n;
        ok(!tu_zip_load(z, i, sizeof big, true, &got, &n, &err) && n == sizes[i] &&
               !memcmp(got, data[i], n), "our reader: %s", names[i]);
        tu_free(got);
        eq_u64(tu_zip_entry(z, i)->offset % 64, 0, "our reader: %s is aligned", names[i]);
    }
    tu_zip_close(z);
    tu_in_close(in);
}

/* What torch 1.13 wrote for {'a': u8 of 2^32 + 5, 'b': f32 [3]}: the places of its records. */
static void wide(void)
{
    struct tu_zip_plan e[] = { { .name = "big/data.pkl", .size = 249 },
                               { .name = "big/data/0", .size = (UINT64_C(1) << 32) + 5 },
                               { .name = "big/data/1", .size = 12 },
                               { .name = "big/version", .size = 2 } };
    static const uint64_t at[] = { 64, 0x1c0, 0x100000240, 0x1000002c0 };
    struct tu_err err;
    struct tu_out *out;
    struct tu_zip *z;
    struct tu_in *in;
    uint64_t size;
    ok(!tu_zip_layout(e, 4, 64, &size, &err), "over 4 GiB: laid out");
    eq_u64(size, 4294968395, "over 4 GiB: size");
    for (int i = 0; i < 4; i++)
        eq_u64(e[i].offset, at[i], "over 4 GiB: place of %s", e[i].name);
    e[1].crc = 0xb1c2a1a3;
    if (tu_out_open(&out, fix_path("wide.zip"), NULL, &err) ||
        tu_zip_finish(out, e, 4, 64, &err) || tu_out_commit(out, false, &err)) {
        tap_skip("over 4 GiB: a sparse file", err.msg);
        return;
    }
    ok(!open_path(&z, &in, fix_path("wide.zip"), &err), "over 4 GiB: read");
    eq_u64(tu_zip_entry(z, 1)->size, (UINT64_C(1) << 32) + 5, "over 4 GiB: size of an entry");
    eq_u64(tu_zip_entry(z, 3)->offset, at[3], "over 4 GiB: offset of an entry");
    tu_zip_close(z);
    static const unsigned char local[] = "\x01\x00\x10\x00\x05\x00\x00\x00\x01\x00\x00\x00"
                                         "\0\0\0\0\0\0\0\0" "FB\x37\0ZZ";
    static const unsigned char tail[] = "PK\7\10\xa3\xa1\xc2\xb1\5\0\0\0\1\0\0\0\5\0\0\0\1\0\0\0";
    unsigned char got[sizeof local];
    ok(!tu_in_pread(in, 329 + 40, got, sizeof local - 1, &err) &&
           !memcmp(got, local, sizeof local - 1), "over 4 GiB: the local header of torch");
    ok(!tu_in_pread(in, at[1] + e[1].size, got, sizeof tail - 1, &err) &&
           !memcmp(got, tail, sizeof tail - 1), "over 4 GiB: the descriptor of torch");
    tu_in_close(in);
    unlink(fix_path("wide.zip"));
}

static void refused(const void *data, size_t n, int code, const char *words, const char *what)
{
    struct tu_err err = { 0 };
    struct tu_zip *z;
    struct tu_in *in;
    int got = open_path(&z, &in, fix_write("bad.zip", data, n), &err);
    eq_str(tu_err_name(got), tu_err_name(code), "%s: code", what);
    if (!ok(got && strstr(err.msg, words) && strstr(err.msg, "bad.zip"), "%s: message", what))
        printf("# message: %s\n", err.msg);
    if (!got) {
        tu_zip_close(z);
        tu_in_close(in);
    }
}

/* Changes to case 2: bytes at one or two places. */
static const struct change {
    const char *what;
    int code;
    const char *words;
    struct { unsigned at, value, width; } set[4];
} changes[] = {
    { "local name", TU_EFORMAT, "'a/data.pkl': the local header has another name",
      { { 30, 'b', 1 } } },
    { "name in the directory", TU_EFORMAT, "another name", { { 522 + 46, 'b', 1 } } },
    { "local name longer", TU_EFORMAT, "another name", { { 26, 11, 2 } } },
    { "local flags", TU_EFORMAT, "disagree in flags", { { 6, 0x0800, 2 } } },
    { "local method", TU_EFORMAT, "disagree in flags or method", { { 8, 8, 2 } } },
    { "local checksum", TU_EFORMAT, "disagree in checksum", { { 14, 1, 4 } } },
    { "local size", TU_EFORMAT, "disagree in checksum or size", { { 22, 165, 4 } } },
    { "checksum in the directory", TU_EFORMAT, "data descriptor and directory disagree",
      { { 466 + 16, 1, 4 } } },
    { "size in the directory", TU_ESIZE, "cannot come from", { { 466 + 24, 167, 4 } } },
    { "both sizes in the directory", TU_EFORMAT, "bytes that belong to no entry follow",
      { { 466 + 20, 165, 4 }, { 466 + 24, 165, 4 } } },
    { "sizes that reach into the next entry", TU_EFORMAT, "overlaps the next",
      { { 466 + 20, 183, 4 }, { 466 + 24, 183, 4 } } },
    { "sizes over the descriptor", TU_EFORMAT, "bytes that belong to no entry",
      { { 466 + 20, 181, 4 }, { 466 + 24, 181, 4 } } },
    { "two entries at one place", TU_EFORMAT, "overlaps", { { 522 + 42, 0, 4 } } },
    { "first entry not at the start", TU_EFORMAT, "precede it", { { 466 + 42, 246, 4 } } },
    { "local header past the end", TU_EFORMAT, "belong to no entry", { { 576 + 42, 4000, 4 } } },
    { "no local header", TU_EFORMAT, "no local header", { { 360, 0, 4 } } },
    { "encrypted", TU_EUNSUP, "encrypted", { { 466 + 8, 0x0809, 2 }, { 6, 0x0809, 2 } } },
    { "another method", TU_EUNSUP, "compression method 12", { { 466 + 10, 12, 2 }, { 8, 12, 2 } } },
    { "count of entries", TU_EFORMAT, "end records disagree",
      { { 707 + 8, 2, 2 }, { 707 + 10, 2, 2 } } },
    { "counts of entries", TU_EFORMAT, "holds more than its 2 entries",
      { { 707 + 8, 2, 2 }, { 707 + 10, 2, 2 }, { 631 + 24, 2, 4 }, { 631 + 32, 2, 4 } } },
    { "too many entries", TU_EFORMAT, "malformed central directory",
      { { 707 + 8, 0xffff, 2 }, { 707 + 10, 0xffff, 2 }, { 631 + 24, 3 + 0, 4 }, { 631 + 36, 0, 1 } } },
    { "offset of the directory", TU_EFORMAT, "does not end at its end record",
      { { 707 + 16, 465, 4 }, { 631 + 48, 465, 4 } } },
    { "size of the directory", TU_EFORMAT, "end records disagree", { { 707 + 12, 164, 4 } } },
    { "disk number", TU_EUNSUP, "several disks", { { 707 + 4, 1, 2 } } },
    { "ZIP64 record elsewhere", TU_EFORMAT, "malformed ZIP64", { { 687 + 8, 630, 4 } } },
    { "ZIP64 record past the end", TU_EFORMAT, "lies past the end", { { 687 + 8, 90000, 4 } } },
    { "ZIP64 record of another size", TU_EFORMAT, "malformed ZIP64", { { 631 + 4, 45, 4 } } },
    { "descriptor", TU_EFORMAT, "data descriptor and directory", { { 344 + 8, 25, 4 } } },
    { "descriptor mark", TU_EFORMAT, "data descriptor and directory", { { 344, 0, 4 } } },
    { "extra field too long", TU_EFORMAT, "malformed extra field", { { 42, 21, 2 } } },
    { "directory signature", TU_EFORMAT, "malformed central directory", { { 522, 0, 4 } } },
    { "name past the directory", TU_EFORMAT, "malformed central", { { 576 + 28, 600, 2 } } },
    { "NUL in a name", TU_ENAME, "NUL", { { 466 + 47, 0, 1 } } },
    { "no name", TU_ENAME, "without a name", { { 466 + 28, 0, 2 } } },
    { "entry on another disk", TU_EFORMAT, "malformed central", { { 466 + 34, 1, 2 } } },
    { "extra field of the directory", TU_EFORMAT, "malformed extra field", { { 466 + 30, 5, 2 } } },
    { "local stored size", TU_EFORMAT, "disagree in checksum or size", { { 18, 165, 4 } } },
    { "disk of the directory", TU_EUNSUP, "several disks", { { 707 + 6, 1, 2 } } },
    { "entries on this disk", TU_EUNSUP, "several disks", { { 707 + 8, 2, 2 } } },
    { "disk of the ZIP64 record", TU_EFORMAT, "malformed ZIP64", { { 687 + 4, 1, 4 } } },
    { "count of disks", TU_EFORMAT, "malformed ZIP64", { { 687 + 16, 2, 4 } } },
    { "ZIP64 signature", TU_EFORMAT, "malformed ZIP64", { { 631, 0, 4 } } },
    { "ZIP64 record of 2^64 bytes", TU_EFORMAT, "malformed ZIP64",
      { { 631 + 4, 0xfffffff8, 4 }, { 631 + 8, 0xffffffff, 4 } } },
    { "ZIP64 record of 22 bytes", TU_EFORMAT, "malformed ZIP64", { { 631 + 4, 10, 4 } } },
    { "ZIP64 disk", TU_EFORMAT, "malformed ZIP64", { { 631 + 16, 1, 4 } } },
    { "ZIP64 disk of the directory", TU_EFORMAT, "malformed ZIP64", { { 631 + 20, 1, 4 } } },
    { "ZIP64 entries on this disk", TU_EFORMAT, "malformed ZIP64", { { 631 + 24, 4, 4 } } },
    { "offset in one end record", TU_EFORMAT, "end records disagree", { { 707 + 16, 465, 4 } } },
    { "count in one end record", TU_EFORMAT, "end records disagree",
      { { 631 + 24, 4, 4 }, { 631 + 32, 4, 4 } } },
    { "no locator", TU_EFORMAT, "does not end at its end record", { { 687, 0, 4 } } },
    { "no locator where it is needed", TU_EFORMAT, "no ZIP64 end record",
      { { 687, 0, 4 }, { 707 + 8, 0xffff, 2 }, { 707 + 10, 0xffff, 2 } } },
    { "no locator for the size", TU_EFORMAT, "no ZIP64 end record",
      { { 687, 0, 4 }, { 707 + 12, 0xffffffff, 4 } } },
    { "no locator for the offset", TU_EFORMAT, "no ZIP64 end record",
      { { 687, 0, 4 }, { 707 + 16, 0xffffffff, 4 } } },
    { "extra field of four bytes and more", TU_EFORMAT, "malformed extra field", { { 466 + 30, 3, 2 } } },
    { "directory behind its end", TU_EFORMAT, "does not end at its end record",
      { { 707 + 16, 700, 4 }, { 631 + 48, 700, 4 } } },
};

static void disagreements(void)
{
    size_t n;
    unsigned char *good = fix_read(fix_path("case2.zip"), &n), *p = malloc(n + 1);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const struct change *c = &changes[i];
        memcpy(p, good, n);
        if (!strcmp(c->what, "too many entries")) { /* counts that the directory cannot hold */
            tu_put64(p + 631 + 24, 4);
            tu_put64(p + 631 + 32, 4);
            tu_put64(p + 631 + 40, 165);
            memset(p + 707 + 8, 0xff, 4);
            refused(p, n, TU_EFORMAT, "do not fit", c->what);
            continue;
        }
        for (int k = 0; k < 4 && c->set[k].width; k++)
            for (unsigned b = 0; b < c->set[k].width; b++)
                p[c->set[k].at + b] = (unsigned char)(c->set[k].value >> (8 * b));
        refused(p, n, c->code, c->words, c->what);
    }
    memcpy(p, good, n);
    p[n] = 'x';
    refused(p, n + 1, TU_ETRUNC, "no end of central directory", "a byte behind the end");
    memmove(p + 1, good, n);
    p[0] = 'P';
    refused(p, n + 1, TU_EFORMAT, "", "a byte before the start");
    size_t strange = 0;
    for (size_t k = 0; k < n; k++) {
        struct tu_zip *z;
        struct tu_in *in;
        struct tu_err err;
        int rc = open_path(&z, &in, fix_write("cut.zip", good, k), &err);
        strange += rc != TU_ETRUNC || !strstr(err.msg, "no end of central directory");
    }
    eq_u64(strange, 0, "cut at every byte: no end of central directory");
    free(p);
    free(good);
}

/* A classic archive with one entry: no descriptor, no ZIP64. */
static size_t classic(unsigned char *out, const char *name, unsigned method, const void *data,
                      size_t stored, size_t size, uint32_t crc)
{
    size_t len = strlen(name), at = 0;
    for (int central = 0; central < 2; central++) {
        unsigned char *p = out + at, *q = p + (central ? 10 : 8);
        memset(p, 0, 46);
        tu_put32(p, central ? 0x02014b50 : 0x04034b50);
        tu_put16(q, (uint16_t)method);
        tu_put32(q + 6, crc);
        tu_put32(q + 10, (uint32_t)stored);
        tu_put32(q + 14, (uint32_t)size);
        tu_put16(q + 18, (uint16_t)len);
        at += central ? 46 : 30;
        memcpy(out + at, name, len);
        at += len;
        if (!central) {
            memcpy(out + at, data, stored);
            at += stored;
        }
    }
    size_t directory = 30 + len + stored;
    memset(out + at, 0, 22);
    tu_put32(out + at, 0x06054b50);
    tu_put16(out + at + 8, 1);
    tu_put16(out + at + 10, 1);
    tu_put32(out + at + 12, (uint32_t)(at - directory));
    tu_put32(out + at + 16, (uint32_t)directory);
    return at + 22;
}

/* Bytes between the data and what follows: a descriptor in one of its four forms, or none. */
static void descriptors(void)
{
    static const struct { unsigned flags, gap; bool marked, wide, wrong; int code; } rows[] = {
        { 0, 0, false, false, false, 0 },          { 8, 16, true, false, false, 0 },
        { 8, 24, true, true, false, 0 },           { 8, 12, false, false, false, 0 },
        { 8, 20, false, true, false, 0 },          { 8, 0, false, false, false, TU_EFORMAT },
        { 8, 13, false, false, false, TU_EFORMAT }, { 0, 16, true, false, false, TU_EFORMAT },
        { 8, 16, false, false, false, TU_EFORMAT }, { 8, 12, false, false, true, TU_EFORMAT },
        { 8, 20, false, true, true, TU_EFORMAT },   { 8, 24, true, true, true, TU_EFORMAT },
    };
    unsigned char file[512], made[512];
    size_t n = classic(file, "d", 0, "abcdef", 6, 6, tu_crc32(0, "abcdef", 6));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char d[24] = { 0 }, *p = d;
        const size_t at = 30 + 1 + 6;
        if (rows[i].marked) {
            tu_put32(p, 0x08074b50);
            p += 4;
        }
        tu_put32(p, tu_crc32(0, "abcdef", 6));
        tu_put32(p + 4, 6);
        if (rows[i].wide)
            tu_put64(p + 12, rows[i].wrong ? 7 : 6);
        else
            tu_put32(p + 8, rows[i].wrong ? 7 : 6);
        memcpy(made, file, at);
        memcpy(made + at, d, rows[i].gap);
        memcpy(made + at + rows[i].gap, file + at, n - at);
        tu_put16(made + 6, (uint16_t)rows[i].flags);
        tu_put16(made + at + rows[i].gap + 8, (uint16_t)rows[i].flags);
        tu_put32(made + n + rows[i].gap - 6, (uint32_t)(at + rows[i].gap));
        struct tu_zip *z = NULL;
        struct tu_in *in;
        struct tu_err err = { 0 };
        int code = open_path(&z, &in, fix_write("d.zip", made, n + rows[i].gap), &err);
        eq_int(code, rows[i].code, "descriptor %zu of %u bytes: %s", i, rows[i].gap, err.msg);
        if (!code) {
            void *data;
            size_t got;
            ok(!tu_zip_load(z, 0, 100, true, &data, &got, &err) && got == 6 && !memcmp(data, "abcdef", 6),
               "its data");
            tu_free(data);
            tu_zip_close(z);
            tu_in_close(in);
        }
    }
    struct tu_in *in = NULL;
    struct tu_zip *z = NULL;
    struct tu_err err = { 0 };
    ok(!tu_in_open(&in, fix_write("d.zip", file, n), &err), "a file");
    ok(tu_zip_open(&z, in, n + 1, 0, &err) < 0, "an archive behind its end: %s", err.msg);
    ok(tu_zip_open(&z, in, 1, n, &err) < 0, "an archive beyond its end: %s", err.msg);
    tu_in_close(in);
}

static void inflating(void)
{
    descriptors();
    enum { SIZE = 300000 };
    static unsigned char plain[SIZE], packed[SIZE], file[2 * SIZE];
    for (size_t i = 0; i < SIZE; i++)
        plain[i] = (unsigned char)(i * i >> 7);
    z_stream s = { 0 };
    deflateInit2(&s, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
    s.next_in = plain;
    s.avail_in = SIZE;
    s.next_out = packed;
    s.avail_out = SIZE;
    deflate(&s, Z_FINISH);
    size_t stored = SIZE - s.avail_out;
    deflateEnd(&s);
    uint32_t crc = tu_crc32(0, plain, SIZE);
    const struct { size_t stored, size; uint32_t crc; int code; const char *words, *what; } rows[] = {
        { stored, SIZE, crc, 0, "", "deflated" },
        { stored, SIZE - 1, crc, TU_EFORMAT, "more than its declared", "more than declared" },
        { stored, SIZE + 1, crc, TU_EFORMAT, "less than its declared", "less than declared" },
        { stored - 1, SIZE, crc, TU_EFORMAT, "cut deflate data", "cut" },
        { stored, SIZE, crc + 1, TU_EPCRC, "checksum mismatch", "wrong checksum" },
        { stored + 1, SIZE, crc, TU_EFORMAT, "follow the end of the deflate", "bytes behind it" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_err err = { 0 };
        struct tu_zip *z;
        struct tu_in *in;
        void *data;
        size_t n = classic(file, "x", 8, packed, rows[i].stored, rows[i].size, rows[i].crc);
        if (!ok(!open_path(&z, &in, fix_write("deflate.zip", file, n), &err), "%s: opened",
                rows[i].what))
            continue;
        eq_int(tu_zip_load(z, 0, 1 << 20, true, &data, &n, &err), rows[i].code, "%s: code",
               rows[i].what);
        ok(!rows[i].code || strstr(err.msg, rows[i].words), "%s: message", rows[i].what);
        ok(data ? n == SIZE && !memcmp(data, plain, n) : rows[i].code != 0, "%s: data", rows[i].what);
        tu_free(data);
        FILE *f = tmpfile();
        eq_int(tu_zip_inflate(z, 0, fileno(f), &err), rows[i].code, "%s: into a file", rows[i].what);
        if (!rows[i].code) {
            rewind(f);
            n = fread(file, 1, sizeof file, f);
            ok(n == SIZE && !memcmp(file, plain, n), "%s: the file", rows[i].what);
        }
        fclose(f);
        tu_zip_close(z);
        tu_in_close(in);
    }
    size_t n = classic(file, "bomb", 8, packed, 100, 200000000, 0);
    refused(file, n, TU_ESIZE, "200000000 bytes cannot come from 100", "a bomb by its sizes");
    memset(packed, 0xff, 100);
    n = classic(file, "x", 8, packed, 100, 1000, 0);
    struct tu_zip *z;
    struct tu_in *in;
    struct tu_err err;
    void *data;
    ok(!open_path(&z, &in, fix_write("deflate.zip", file, n), &err), "no deflate data: opened");
    eq_int(tu_zip_load(z, 0, 1 << 20, true, &data, &n, &err), TU_EFORMAT, "no deflate data");
    tu_zip_close(z);
    tu_in_close(in);
    n = classic(file, "x", 8, packed, 100, 100000, 0); /* 1000 to 1, as texts may be */
    ok(!open_path(&z, &in, fix_write("deflate.zip", file, n), &err), "small: opened");
    eq_int(tu_zip_load(z, 0, 1 << 30, true, &data, &n, &err), TU_EFORMAT, "small: inflated");
    tu_zip_close(z);
    tu_in_close(in);
    unsigned char *tight = tu_calloc(1, 200000, NULL);
    n = classic(tight, "x", 8, tight + 100000, 90000, 40000000, 0);
    ok(!open_path(&z, &in, fix_write("deflate.zip", tight, n), &err), "large: opened");
    eq_int(tu_zip_load(z, 0, 1 << 30, true, &data, &n, &err), TU_ELIMIT, "large: refused");
    ok(strstr(err.msg, "40000000 bytes out of 90000"), "with its sizes: %s", err.msg);
    tu_zip_close(z);
    tu_in_close(in);
    tu_free(tight);
}

static void names(void)
{
    struct tu_err err;
    size_t n;
    struct tu_zip_plan e[] = { { .name = "x1", .size = 1 }, { .name = "x2", .size = 1 } };
    const void *data[] = { "1", "2" };
    ok(!write_zip(fix_path("two.zip"), e, 2, data, &err), "two entries");
    unsigned char *p = fix_read(fix_path("two.zip"), &n);
    for (size_t i = 0; i + 2 < n; i++)
        if (p[i] == 'x' && p[i + 1] == '2')
            p[i + 1] = '1';
    refused(p, n, TU_EFORMAT, "'x1': two entries have this name", "a name twice");
    free(p);
    struct tu_zip_plan none = { .name = "" };
    uint64_t size;
    eq_int(tu_zip_layout(&none, 1, 64, &size, &err), TU_ENAME, "an entry without a name");
    struct tu_zip_plan huge = { .name = "x", .size = UINT64_MAX - 100 };
    eq_int(tu_zip_layout(&huge, 1, 64, &size, &err), TU_ESIZE, "an entry of 2^64");
    ok(!write_zip(fix_path("none.zip"), NULL, 0, NULL, &err), "an archive of nothing");
    struct tu_zip *z;
    struct tu_in *in;
    ok(!open_path(&z, &in, fix_path("none.zip"), &err), "is read");
    eq_u64(tu_zip_count(z), 0, "and has no entries");
    eq_u64(tu_zip_find(z, "x"), SIZE_MAX, "nothing is found in it");
    tu_zip_close(z);
    tu_in_close(in);
    p = fix_read(fix_path("none.zip"), &n);
    p[n - 6] = 1; /* where the directory begins */
    refused(p, n, TU_EFORMAT, "", "nothing, that begins somewhere else");
    free(p);
    int fd[2];
    if (pipe(fd))
        abort();
    close(fd[1]);
    ok(!tu_in_take_fd(&in, fd[0], "a pipe", &err), "a pipe");
    z = NULL;
    ok(tu_zip_open(&z, in, 0, 0, &err) < 0 && strstr(err.msg, "a pipe"), "is no archive: %s", err.msg);
    tu_in_close(in);
}

static int read_five(struct tu_err *err)
{
    struct tu_zip *z;
    struct tu_in *in;
    void *data;
    size_t n;
    int rc = open_path(&z, &in, fix_path("five.zip"), err);
    if (rc < 0)
        return rc;
    rc = tu_zip_load(z, 4, 1 << 20, true, &data, &n, err);
    tu_free(data);
    tu_zip_close(z);
    tu_in_close(in);
    return rc;
}

static int read_deflated(struct tu_err *err)
{
    struct tu_zip *z;
    struct tu_in *in;
    void *data;
    size_t n;
    static unsigned char file[200];
    static const unsigned char stored[] = { 1, 3, 0, 0xfc, 0xff, 'a', 'b', 'c' };
    n = classic(file, "x", 8, stored, sizeof stored, 3, 0x352441c2);
    int rc = open_path(&z, &in, fix_write("small.zip", file, n), err);
    if (rc < 0)
        return rc;
    rc = tu_zip_load(z, 0, 10, true, &data, &n, err);
    tu_free(data);
    tu_zip_close(z);
    tu_in_close(in);
    return rc;
}

int main(void)
{
    worked_case();
    reading();
    second_reader();
    wide();
    disagreements();
    inflating();
    names();
    fix_inject(write_case2, true, "writing");
    fix_inject(write_case2, false, "writing");
    fix_inject(read_five, true, "reading");
    fix_inject(read_five, false, "reading");
    fix_inject(read_deflated, true, "inflating");
    return tap_done();
}
