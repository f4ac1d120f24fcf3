/* SPDX-License-Identifier: Apache-2.0 */
/* magic.c: names what was given instead of a tensor stream, from its first bytes.
 *
 * Only for a helpful message: the answer to "is this a stream" is the magic alone. */
#include "record.h"

#define DAMAGED "a tensor stream damaged by a text-mode transfer ("

static const struct {
    const char *start;
    unsigned n;
    const char *what;
} foreign[] = {
#define ROW(bytes, what) {bytes, sizeof bytes - 1, what}
    /* The magic's own bytes after a transfer that meant well. */
    ROW("\x89TNS\n", DAMAGED "CR LF became LF)"),
    ROW("\x89TNS\r\r\n", DAMAGED "LF became CR LF)"),
    ROW("\x89TNS\r\r", DAMAGED "LF became CR)"),
    ROW("\x89TNS\n\n", DAMAGED "CR became LF)"),
    ROW("\tTNS", DAMAGED "eighth bits cleared)"),
    ROW("\xc2\x89TNS", DAMAGED "recoded to UTF-8)"),
    ROW("\xef\xbf\xbdTNS", DAMAGED "recoded to UTF-8)"),
    /* Formats that tns-import takes. */
    ROW("\x93NUMPY", "a .npy file (see tns-import)"),
    ROW("PK\3\4", "a zip archive, as .npz and torch files are (see tns-import)"),
    ROW("PK\5\6", "an empty zip archive"),
    ROW("GGUF", "a GGUF file (see tns-import)"),
    /* Wrappers. */
    ROW("\x1f\x8b", "gzip data (decompress it first: gzip -dc)"),
    ROW("\x28\xb5\x2f\xfd", "zstd data (decompress it first: zstd -dc)"),
    ROW("\xfd" "7zXZ", "xz data (decompress it first: xz -dc)"),
    ROW("BZh", "bzip2 data (decompress it first: bzip2 -dc)"),
    ROW("\x04\x22\x4d\x18", "lz4 data (decompress it first: lz4 -dc)"),
    /* Neighbours. */
    ROW("\x89HDF\r\n", "an HDF5 file"),
    ROW("ARROW1", "an Arrow file"),
    ROW("PAR1", "a Parquet file"),
    ROW("\x80\2", "a Python pickle, as old torch files are"),
    ROW("\x80\3", "a Python pickle"),
    ROW("\x80\4", "a Python pickle"),
    ROW("\x80\5", "a Python pickle"),
    ROW("version https://git-lfs", "a Git LFS pointer (fetch the file: git lfs pull)"),
    ROW("\x7f" "ELF", "a program"),
    ROW("<!DOCTYPE", "a web page"),
    ROW("<html", "a web page"),
    ROW("{", "JSON text"),
#undef ROW
};

const char *tui_magic_guess(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (n >= foreign[i].n && !memcmp(p, foreign[i].start, foreign[i].n))
            return foreign[i].what;
    /* safetensors has no magic: a header length that its readers accept, then JSON. */
    if (n >= 9 && p[8] == '{' && tu_le64(p) >= 2 && tu_le64(p) <= 100000000)
        return "a safetensors file (see tns-import)";
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return NULL;
    return n ? "zero bytes" : NULL;
}
