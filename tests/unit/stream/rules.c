/* SPDX-License-Identifier: Apache-2.0 */
/* rules: what a header may say (B2-B5), rule by rule, through the writer, which checks
 * what it is about to write as the reader checks what it has read.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include "kit.h"
#include "../../../lib/stream/record.h"

/* The code for one record, and *err. */
static int attempt(const struct tu_record *rec, struct tu_err *err)
{
    int fd;
    struct tu_writer *w = kit_writer(&fd);
    *err = (struct tu_err){.offset = TU_ERR_NO_OFFSET};
    int rc = tu_writer_record(w, rec, err);
    tu_writer_abort(w);
    close(fd);
    return rc;
}

/* A u8 tensor of two dimensions with this metadata. */
static const struct {
    const char *meta;
    uint64_t dim[2];
    int code;
} shards[] = {
    {"{}", {2, 3}, 0},
    {"{\"shard\":{\"global\":[4,3],\"offset\":[2,0]}}", {2, 3}, 0},
    {"{\"shard\":{\"global\":[4,3],\"offset\":[2,0],\"note\":1}}", {2, 3}, 0},
    {"{\"shard\":{\"global\":[null,3],\"offset\":[100,0]}}", {2, 3}, 0},
    {"{\"shard\":{\"global\":[\"9007199254740994\",3],"
     "\"offset\":[\"9007199254740992\",0]}}",
     {2, 3},
     0},
    {"{\"shard\":{\"global\":[\"9007199254740993\",3],"
     "\"offset\":[\"9007199254740992\",0]}}",
     {2, 3},
     TU_ESHARD},
    {"{\"shard\":{\"global\":[3,3],\"offset\":[2,0]}}", {2, 3}, TU_ESHARD},
    {"{\"shard\":{\"global\":[null,3],\"offset\":[9223372036854775807,0]}}",
     {2, 3},
     TU_ESHARD},
    {"{\"shard\":{\"global\":[4,3]}}", {2, 3}, TU_ESHARD},
    {"{\"shard\":{\"offset\":[0,0]}}", {2, 3}, TU_ESHARD},
    {"{\"shard\":{\"global\":[4,3,1],\"offset\":[2,0,0]}}", {2, 3}, TU_ESHARD},
    {"{\"shard\":{\"global\":[4,3],\"offset\":[2]}}", {2, 3}, TU_ESHARD},
    {"{\"shard\":{\"global\":[4,3],\"offset\":[-1,0]}}", {2, 3}, TU_ESHARD},
    {"{\"shard\":{\"global\":[4,3],\"offset\":[2.0,0]}}", {2, 3}, TU_ESHARD},
    {"{\"shard\":{\"global\":[4,3],\"offset\":[null,0]}}", {2, 3}, TU_ESHARD},
    {"{\"shard\":{\"global\":[4,\"x\"],\"offset\":[0,0]}}", {2, 3}, TU_ESHARD},
    {"{\"shard\":{\"global\":5,\"offset\":[0,0]}}", {2, 3}, TU_ESHARD},
    {"{\"shard\":{\"global\":[4,3],\"offset\":5}}", {2, 3}, TU_ESHARD},
    {"{\"shard\":{\"global\":[4,3],\"offset\":[\"9223372036854775808\",0]}}", {2, 3}, TU_ESHARD},
    {"{\"shard\":{\"global\":[4,3],\"offset\":[\"1x\",0]}}", {2, 3}, TU_ESHARD},
    {"{\"shard\":[]}", {2, 3}, TU_ESHARD},
    {"{\"shard\":null}", {2, 3}, TU_ESHARD},
#define BOX "{\"shard\":{\"global\":[4,3],\"offset\":[2,0],"
    {BOX "\"mesh\":[[\"pp\",4],[\"tp\",2]],\"coord\":[3,1],\"place\":[[\"tp\"],[]],"
         "\"partial\":[\"pp\"]}}",
     {2, 3},
     0},
    {BOX "\"mesh\":[[\"pp\",4],[\"tp\",2]],\"place\":[[\"pp\",\"tp\"],[]]}}", {2, 3}, 0},
    {BOX "\"mesh\":[]}}", {2, 3}, 0},
    {BOX "\"mesh\":{}}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\"]]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",0]]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[2,\"tp\"]]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2],[\"tp\",3]]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"coord\":[2]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"coord\":[]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"coord\":[\"x\"]}}", {2, 3}, TU_ESHARD},
    {BOX "\"coord\":[0]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"place\":[[\"tp\"]]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"place\":[[\"dp\"],[]]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"place\":[[\"tp\"],[\"tp\"]]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"place\":[\"tp\",[]]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"place\":[[3],[]]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"place\":[[\"tp\"],[]],\"partial\":[\"tp\"]}}",
     {2, 3},
     TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"partial\":[\"dp\"]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"partial\":\"tp\"}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":5}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[5]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",\"x\"]]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"coord\":5}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"coord\":[null]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"place\":5}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"place\":[[\"tp\"],5]}}", {2, 3}, TU_ESHARD},
    {BOX "\"mesh\":[[\"tp\",2]],\"partial\":null}}", {2, 3}, TU_ESHARD},
#undef BOX
    {"{\"flat\":{\"global\":[4,3],\"range\":[2,8]}}", {6, 0}, 0},
    {"{\"flat\":{\"global\":[],\"range\":[0,1]}}", {1, 0}, 0},
    {"{\"flat\":{\"global\":[4,3],\"range\":[2,8]}}", {2, 3}, TU_ESHARD},
    {"{\"flat\":{\"global\":[4,3],\"range\":[2,8]}}", {5, 0}, TU_ESHARD},
    {"{\"flat\":{\"global\":[4,3],\"range\":[8,14]}}", {6, 0}, TU_ESHARD},
    {"{\"flat\":{\"global\":[4,3],\"range\":[8,2]}}", {6, 0}, TU_ESHARD},
    {"{\"flat\":{\"global\":[4,3],\"range\":[2]}}", {6, 0}, TU_ESHARD},
    {"{\"flat\":{\"global\":[4,-3],\"range\":[2,8]}}", {6, 0}, TU_ESHARD},
    {"{\"flat\":{\"global\":[\"4294967296\",\"4294967296\"],\"range\":[2,8]}}",
     {6, 0},
     TU_ESHARD},
    {"{\"flat\":{\"range\":[0,6]}}", {6, 0}, TU_ESHARD},
    {"{\"flat\":{\"global\":5,\"range\":[0,6]}}", {6, 0}, TU_ESHARD},
    {"{\"flat\":{\"global\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
     "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,6],\"range\":[0,6]}}",
     {6, 0},
     TU_ESHARD},
    {"{\"flat\":{\"global\":[6],\"range\":[null,6]}}", {6, 0}, TU_ESHARD},
    {"{\"flat\":{\"global\":[6],\"range\":[0,null]}}", {6, 0}, TU_ESHARD},
    {"{\"flat\":{\"global\":[6]}}", {6, 0}, TU_ESHARD},
    {"{\"flat\":7}", {6, 0}, TU_ESHARD},
};

static void shard_rules(void)
{
    struct tu_err err;
    for (unsigned i = 0; i < sizeof shards / sizeof *shards; i++) {
        const unsigned rank = shards[i].dim[1] ? 2 : 1;
        struct tu_tensor t = {.name = "w",
                              .dtype = TU_U8,
                              .rank = rank,
                              .dim = shards[i].dim,
                              .bytes =
                                  shards[i].dim[0] * (rank == 2 ? shards[i].dim[1] : 1),
                              .meta = shards[i].meta};
        struct tu_record rec;
        tu_record_of(&rec, &t);
        eq_int(attempt(&rec, &err), shards[i].code, "%s %s", shards[i].meta,
               shards[i].code ? "is refused" : "is fine");
        ok(!shards[i].code || err.offset != TU_ERR_NO_OFFSET, "with its place");
    }
}

static const struct tu_record fine = {.type = TU_REC_TENSOR,
                                      .nwords = 1,
                                      .word = (const uint64_t[]){5},
                                      .name = "w",
                                      .name_len = 1,
                                      .dtype = TU_U8,
                                      .block_elems = 1,
                                      .block_bytes = 1,
                                      .payload_len = 5};

static void field_rules(void)
{
    static char long_name[70000];
    memset(long_name, 'n', sizeof long_name);
    const uint64_t many[65] = {0};
    struct tu_record r;
    struct tu_err err;
    eq_int(attempt(&fine, &err), 0, "a plain tensor");
#define TRY(change, expect, what)                                                        \
    do {                                                                                 \
        r = fine;                                                                        \
        change;                                                                          \
        eq_int(attempt(&r, &err), expect, what);                                         \
    } while (0)
    TRY((r.name = long_name, r.name_len = 65535), 0, "a name of 65535 bytes");
    TRY((r.name = long_name, r.name_len = 65536), TU_ENAME, "a name of 65536 bytes");
    TRY(r.name_len = 0, TU_ENAME, "no name");
    TRY((r.name = "a\0b", r.name_len = 3), TU_ENAME, "a zero byte in a name");
    TRY((r.name = "\xc3\xa9", r.name_len = 2), 0, "a name beyond ASCII");
    TRY((r.name = "\xed\xa0\x80", r.name_len = 3), TU_ENAME, "a surrogate in a name");
    TRY((r.word = many, r.nwords = 64, r.payload_len = 0), 0, "64 dimensions");
    TRY((r.word = many, r.nwords = 65, r.payload_len = 0), TU_ELIMIT, "65 dimensions");
    TRY(r.meta_len = (1u << 24) + 1, TU_ELIMIT, "metadata over 16 MiB");
    TRY((r.meta = "[]", r.meta_len = 2), TU_EMETA, "metadata that is no object");
    TRY((r.meta = "{\"a\":1}\n", r.meta_len = 8), 0, "space around metadata");
    TRY((r.meta = "\xef\xbb\xbf{}", r.meta_len = 5), TU_EMETA, "a byte order mark");
    TRY(r.dtype = 0x10000, TU_EDTYPE, "a dtype of 17 bits");
    TRY(r.dtype = 0, TU_EDTYPE, "no dtype");
    TRY(r.dtype = TU_BF16, TU_EDTYPE, "another dtype's block");
    TRY(r.dtype = 0xF001, 0, "a private dtype");
    TRY((r.dtype = 0xF001, r.block_bytes = 0), TU_EDTYPE, "an empty block");
    TRY((r.dtype = 0xF001, r.block_elems = 0), TU_EDTYPE, "a block of no elements");
    TRY((r.dtype = 0x7FFF, r.block_bytes = 8, r.word = (const uint64_t[]){UINT64_C(1) << 62},
         r.payload_len = 0), TU_ESIZE, "bytes beyond 2^64");
    TRY((r.dtype = 0x7FFF, r.block_elems = 2, r.payload_len = 3), 0,
        "an unknown dtype is sized");
    TRY((r.dtype = 0x7FFF, r.block_elems = 2), TU_ESIZE, "and its size checked");
    TRY((r.dtype = 0x80FF, r.block_elems = 2, r.payload_len = 3), TU_ESIZE,
        "unknown ggml block that the last dimension does not fill");
    TRY((r.dtype = TU_Q4_0, r.block_elems = 32, r.block_bytes = 18, r.nwords = 0,
         r.payload_len = 18), TU_ESIZE, "a scalar of a block format");
    TRY(r.payload_len = 6, TU_ESIZE, "a payload one byte too long");
    TRY((r.payload_len = UINT64_C(1) << 63), TU_ELIMIT, "a payload of 2^63");
    TRY((r.word = (const uint64_t[]){UINT64_C(1) << 63}), TU_ELIMIT,
        "a dimension of 2^63");
    TRY((r.word = (const uint64_t[]){UINT64_C(1) << 62, 2}, r.nwords = 2), TU_ELIMIT,
        "2^63 elements");
    TRY((r.word = (const uint64_t[]){TU_SIZE_MAX}, r.payload_len = TU_SIZE_MAX), 0,
        "2^63 - 1 elements");
    TRY((r.word = (const uint64_t[]){TU_SIZE_MAX}, r.dtype = TU_U16, r.block_bytes = 2,
         r.payload_len = 0xfffe), TU_ESIZE, "a size that wraps");
    TRY(r.flags = 0x0100, TU_EFLAG, "a critical flag");
    TRY(r.flags = 0x00ff, 0, "flags to ignore");
    TRY(r.type = 3, TU_ETYPE, "an unknown critical type");
    TRY(r.type = TU_REC_END, TU_EBUG, "END as a record");
    TRY(r.type = TU_REC_PAD, TU_EBUG, "PAD as a record");
    TRY(r.type = 0x9000, TU_EHEADER, "a dtype where there is no tensor");
    TRY((r.type = 0x9000, r.dtype = r.block_elems = r.block_bytes = 0), 0,
        "an unknown type");
#undef TRY
}

/* Numbers of the sizes that B5 gives. */
static void sizes(void)
{
    static const struct {
        uint32_t dtype, rank;
        uint64_t dim[2], bytes;
    } row[] = {
        {TU_BF16, 2, {2, 3}, 12}, {TU_I4, 1, {3}, 2},       {TU_F6_E2M3, 1, {5}, 6},
        {TU_F32, 0, {0}, 4},      {TU_F32, 2, {0, 7}, 0},   {TU_Q4_0, 2, {2, 64}, 72},
        {TU_MXFP4, 2, {1, 32}, 17},
        {TU_U8, 1, {UINT64_C(8589934592)}, UINT64_C(8589934592)},
    };
    struct tu_err err;
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        struct tu_tensor t = {.name = "t", .dtype = row[i].dtype, .rank = row[i].rank,
            .dim = row[i].dim, .bytes = row[i].bytes};
        struct tu_record rec;
        tu_record_of(&rec, &t);
        eq_int(attempt(&rec, &err), 0, "size oracle %u", i);
        rec.payload_len++;
        eq_int(attempt(&rec, &err), TU_ESIZE, "size oracle %u, one more", i);
    }
}

static void guesses(void)
{
    static const struct {
        const char *start;
        unsigned n;
        const char *part;
    } row[] = {
        {"\x89TNS\n\x1a\n", 7, "LF"},         {"\x89TNS\r\r\n\x1a\r\n", 10, "CR LF"},
        {"\tTNS\r\n\x1a\n", 8, "eighth bits"}, {"\xc2\x89TNS\r\n\x1a\n", 9, "UTF-8"},
        {"PK\3\4abcdefgh", 12, "zip"},        {"GGUF\3\0\0\0", 8, "GGUF"},
        {"\x28\xb5\x2f\xfd", 4, "zstd"},      {"\xfd" "7zXZ\0", 6, "xz"},
        {"BZh9", 4, "bzip2"},                 {"\x89HDF\r\n\x1a\n", 8, "HDF5"},
        {"\x80\2}q", 4, "pickle"},            {"version https://git-lfs.x", 25, "LFS"},
        {"{\"a\":1}", 7, "JSON"},             {"\0\0\0\0", 4, "zero bytes"},
    };
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        const char *guess =
            tui_magic_guess((const unsigned char *)row[i].start, row[i].n);
        ok(guess && strstr(guess, row[i].part), "recognised: %s", row[i].part);
    }
    ok(!tui_magic_guess((const unsigned char *)"hello", 5), "not everything is");
    ok(!tui_magic_guess((const unsigned char *)"", 0), "nothing least of all");
}

/* A region is looked for only where metadata speak of one. */
static void regions(void)
{
    static const struct {
        const char *meta;
        int code;
        enum tu_region_kind kind;
    } rows[] = {
        {NULL, 0, TU_REGION_WHOLE},
        {"{\"a\":1}", 0, TU_REGION_WHOLE},
        {"{\"a\":{\"shard\":1}}", 0, TU_REGION_WHOLE},
        {"{\"shard\":{\"global\":[8],\"offset\":[2]}}", 0, TU_REGION_BOX},
        {"{\"flat\":{\"global\":[2,4],\"range\":[1,7]}}", 0, TU_REGION_FLAT},
        {"{\"flat\":5}", TU_ESHARD, TU_REGION_WHOLE},
        {"{\"shard\":", TU_EMETA, TU_REGION_WHOLE},
    };
    const uint64_t six = 6;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tu_region at;
        struct tu_err err = {0};
        const struct tu_tensor t = {"w", TU_U8, 1, &six, 6, rows[i].meta};
        eq_int(tu_region_of(&at, &t, &err), rows[i].code, "region of %s", rows[i].meta);
        ok(rows[i].code || at.kind == rows[i].kind, "its kind");
    }
}

/* Header bytes that a writer never makes, with the checksum they need. */
static void raw_headers(void)
{
    static const struct {
        unsigned type, at, n;
        uint64_t value;
        int code;
        const char *what;
    } rows[] = {
        {TU_REC_TENSOR, 48, 8, UINT64_C(1) << 63, TU_ELIMIT, "2^63 bytes before compression"},
        {TU_REC_TENSOR, 26, 1, 60, TU_EHEADER, "more dimensions than the header holds"},
        {TU_REC_END, 20, 4, 2, TU_EHEADER, "END with metadata"},
        {TU_REC_END, 24, 2, 2, TU_EHEADER, "END with a name"},
        {TU_REC_END, 48, 8, 1, TU_EHEADER, "END with bytes before compression"},
        {TU_REC_END, 26, 1, 3, TU_EHEADER, "END with three words"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char *p = kit_dump(ex1_dump, EX1_SIZE), *h = p;
        struct tu_err err = {0};
        while (tu_le16(h + 10) != rows[i].type)
            h += 64;
        uint32_t len = tu_le32(h + 16);
        for (unsigned k = 0; k < rows[i].n; k++)
            h[rows[i].at + k] = (unsigned char)(rows[i].value >> (8 * k));
        tu_put32(h + 60, 0);
        tu_put32(h + 60, tu_crc32(0, h, len));
        eq_int(kit_read(p, EX1_SIZE, 0, false, NULL, &err), rows[i].code, "%s: %s", rows[i].what,
               err.msg);
        free(p);
    }
}

int main(void)
{
    regions();
    raw_headers();
    field_rules();
    sizes();
    shard_rules();
    guesses();
    return tap_done();
}
