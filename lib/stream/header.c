/* SPDX-License-Identifier: Apache-2.0 */
/* header.c: one record's header, from bytes and to bytes, with every rule of B2-B5.
 *
 * The checks stand in the order of B8 and each sees only what the ones before it have
 * proven: nothing of a header is trusted before its checksum. The writer runs the same
 * checks over the bytes that it is about to write, so what is written can be read. */
#include <inttypes.h>
#include <jansson.h>
#include "record.h"

/* Where the fields stand. */
enum {
    AT_VERSION = 8,
    AT_CODEC = 9,
    AT_TYPE = 10,
    AT_FLAGS = 12,
    AT_DTYPE = 14,
    AT_HEADER_LEN = 16,
    AT_META_LEN = 20,
    AT_NAME_LEN = 24,
    AT_NWORDS = 26,
    AT_RESERVED_1 = 27,
    AT_BLOCK_ELEMS = 28,
    AT_BLOCK_BYTES = 32,
    AT_RESERVED_2 = 36,
    AT_PAYLOAD_LEN = 40,
    AT_RAW_LEN = 48,
    AT_RESERVED_3 = 56,
    AT_CRC = 60,
};

/* A header taken apart. */
struct head {
    const unsigned char *p; /* header_len bytes */
    uint32_t header_len, meta_len, name_len, nwords;
    uint16_t type, flags, dtype;
    uint32_t block_elems, block_bytes;
    uint64_t payload_len, raw_len;
    uint64_t *word;   /* [nwords], filled once the lengths are known to fit */
    const char *name; /* likewise */
    const char *meta;
    json_t *json; /* the parsed metadata, or NULL */
};

static uint32_t at_name(const struct head *h)
{
    return TUI_FIXED + 8 * h->nwords;
}

static uint32_t at_meta(const struct head *h)
{
    return at_name(h) + h->name_len;
}

static uint32_t header_crc(const unsigned char *p, uint32_t header_len)
{
    uint32_t crc = tu_crc32_zeros(tu_crc32(0, p, AT_CRC), 4);
    return tu_crc32(crc, p + TUI_FIXED, header_len - TUI_FIXED);
}

/* Steps 2-5: what can be said from the fixed part ------------------------------------ */

int tui_head_begin(const unsigned char *p, size_t n, uint32_t *header_len,
                   struct tu_err *err)
{
    if (memcmp(p, TU_STREAM_MAGIC, tu_min(n, TUI_MAGIC_LEN)))
        return tu_fail_at(err, TU_EMAGIC, 0, "%s", "");
    if (n < TUI_FIXED)
        return tu_fail_at(err, TU_ETRUNC, n, "ends inside a record's header");
    if (p[AT_VERSION] != 1)
        return tu_fail_at(err, TU_EVERSION, AT_VERSION,
                          "version %u of the format, only 1 is known", p[AT_VERSION]);
    uint32_t len = tu_le32(p + AT_HEADER_LEN);
    if (len < TUI_FIXED || len % TU_STREAM_ALIGN)
        return tu_fail_at(err, TU_EHEADER, AT_HEADER_LEN,
                          "header length %" PRIu32 " is not a positive multiple of 64",
                          len);
    if (len > TUI_HEADER_MAX)
        return tu_fail_at(err, TU_ELIMIT, AT_HEADER_LEN,
                          "header of %" PRIu32 " bytes, the limit is 64 MiB", len);
    *header_len = len;
    return 0;
}

/* Steps 8-15, in their order --------------------------------------------------------- */

static int check_limits(struct head *h, struct tu_err *err)
{
    if (h->meta_len > TUI_META_MAX)
        return tu_fail_at(err, TU_ELIMIT, AT_META_LEN,
                          "metadata of %" PRIu32 " bytes, the limit is 16 MiB",
                          h->meta_len);
    if (h->nwords > TUI_WORDS_MAX)
        return tu_fail_at(err, TU_ELIMIT, AT_NWORDS,
                          "%" PRIu32 " dimensions, the limit is 64", h->nwords);
    if (h->payload_len > TU_SIZE_MAX || h->raw_len > TU_SIZE_MAX)
        return tu_fail_at(err, TU_ELIMIT, AT_PAYLOAD_LEN,
                          "payload of 2^63 bytes or more");
    if (h->type == TU_REC_TENSOR)
        for (uint32_t i = 0; i < h->nwords && at_name(h) <= h->header_len; i++)
            if (tu_le64(h->p + TUI_FIXED + 8 * i) > TU_SIZE_MAX)
                return tu_fail_at(err, TU_ELIMIT, TUI_FIXED + 8 * i,
                                  "dimension %" PRIu32 " is 2^63 or more", i);
    return 0;
}

static int check_lengths(struct head *h, struct tu_err *err)
{
    static const struct {
        unsigned char at, n;
    } reserved[] = {{AT_RESERVED_1, 1}, {AT_RESERVED_2, 4}, {AT_RESERVED_3, 4}};

    const uint64_t need = (uint64_t)at_meta(h) + h->meta_len;
    if (need > h->header_len)
        return tu_fail_at(err, TU_EHEADER, AT_META_LEN,
                          "header of %" PRIu32 " bytes, but its parts need %" PRIu64,
                          h->header_len, need);
    for (unsigned i = 0; i < sizeof reserved / sizeof *reserved; i++)
        for (unsigned k = 0; k < reserved[i].n; k++)
            if (h->p[reserved[i].at + k])
                return tu_fail_at(err, TU_EHEADER, reserved[i].at + k,
                                  "reserved byte %u of the header is not zero",
                                  reserved[i].at + k);
    for (uint32_t i = 0; i < h->nwords; i++)
        h->word[i] = tu_le64(h->p + TUI_FIXED + 8 * i);
    h->name = (const char *)h->p + at_name(h);
    h->meta = (const char *)h->p + at_meta(h);
    return 0;
}

static int check_flags(struct head *h, struct tu_err *err)
{
    if (h->flags >> 8)
        return tu_fail_at(err, TU_EFLAG, AT_FLAGS,
                          "flags %04x must be understood and are not",
                          h->flags & 0xff00u);
    return 0;
}

/* What a record of a known type may hold. */
static const struct rule {
    uint16_t type;
    bool text; /* name, metadata */
    bool payload;
    signed char words; /* exactly so many, -1: any */
    const char *name;
} rules[] = {
    {TU_REC_TENSOR, true, true, -1, "TENSOR"},
    {TU_REC_END, false, false, TUI_END_WORDS, "END"},
    {TU_REC_META, true, false, 0, "META"},
    {TU_REC_INDEX, false, true, 1, "INDEX"},
    {TU_REC_PAD, false, false, 0, "PAD"},
};

static int check_type(struct head *h, struct tu_err *err)
{
    const struct rule *r = NULL;
    for (unsigned i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].type == h->type)
            r = &rules[i];
    if (!r && !TU_REC_ANCILLARY(h->type))
        return tu_fail_at(err, TU_ETYPE, AT_TYPE, "unknown critical record type %04x",
                          h->type);
    if (r && r->words >= 0 && h->nwords != (uint32_t)r->words)
        return tu_fail_at(err, TU_EHEADER, AT_NWORDS,
                          "%s with %" PRIu32 " words instead of %d", r->name, h->nwords,
                          r->words);
    if (r && !r->text && (h->name_len || h->meta_len))
        return tu_fail_at(err, TU_EHEADER, AT_META_LEN, "%s with a name or metadata",
                          r->name);
    if (r && !r->payload && (h->payload_len || h->raw_len))
        return tu_fail_at(err, TU_EHEADER, AT_PAYLOAD_LEN, "%s with a payload", r->name);
    if (h->type != TU_REC_TENSOR && (h->dtype || h->block_elems || h->block_bytes))
        return tu_fail_at(err, TU_EHEADER, AT_DTYPE, "%s with a dtype",
                          r ? r->name : "record that is no tensor");
    if (h->type == TU_REC_END && h->header_len != TUI_END_LEN)
        return tu_fail_at(err, TU_EHEADER, AT_HEADER_LEN,
                          "END of %" PRIu32 " bytes, not 128", h->header_len);
    return 0;
}

static int check_codec(struct head *h, struct tu_err *err)
{
    if (h->p[AT_CODEC])
        return tu_fail_at(err, TU_ECODEC, AT_CODEC,
                          "payload codec %u, only 0 (stored) is known", h->p[AT_CODEC]);
    if (h->raw_len != h->payload_len)
        return tu_fail_at(err, TU_ESIZE, AT_RAW_LEN,
                          "raw length %" PRIu64 " of a stored payload of %" PRIu64
                          " bytes",
                          h->raw_len, h->payload_len);
    return 0;
}

static int check_name(struct head *h, struct tu_err *err)
{
    if (h->type == TU_REC_TENSOR && !h->name_len)
        return tu_fail_at(err, TU_ENAME, AT_NAME_LEN, "tensor without a name");
    size_t bad = tu_name_check(h->name, h->name_len);
    if (bad < h->name_len)
        return tu_fail_at(
            err, TU_ENAME, at_name(h) + bad,
            "name with a control byte or ill-formed UTF-8 (byte %02x at %zu)",
            (unsigned char)h->name[bad], bad);
    return 0;
}

static int check_meta(struct head *h, struct tu_err *err)
{
    static const struct tu_json_limits limits = {
        .bytes = TUI_META_MAX, .depth = TU_JSON_DEPTH_META, .object = true};

    if (!h->meta_len)
        return 0;
    struct tu_err why;
    int rc = tu_json_parse(&h->json, h->meta, h->meta_len, &limits, &why);
    if (!rc || rc == TU_ENOMEM) {
        if (rc && err)
            *err = why;
        return rc;
    }
    uint64_t off = why.offset == TU_ERR_NO_OFFSET ? 0 : why.offset;
    return tu_fail_at(err, TU_EMETA, at_meta(h) + off, "metadata: %s", why.msg);
}

static int check_dtype(struct head *h, struct tu_err *err)
{
    if (h->type != TU_REC_TENSOR)
        return 0;
    char text[8];
    const struct tu_dtype *d = tu_dtype_find(h->dtype);
    if (!h->dtype)
        return tu_fail_at(err, TU_EDTYPE, AT_DTYPE, "tensor without a dtype");
    if (d && (h->block_elems != d->block_elems || h->block_bytes != d->block_bytes))
        return tu_fail_at(
            err, TU_EDTYPE, AT_BLOCK_ELEMS,
            "%s in blocks of %" PRIu32 " elements and %" PRIu32 " bytes, not %u and %u",
            d->name, h->block_elems, h->block_bytes, d->block_elems, d->block_bytes);
    if (!h->block_elems || !h->block_bytes)
        return tu_fail_at(err, TU_EDTYPE, AT_BLOCK_ELEMS, "dtype %s with an empty block",
                          tu_dtype_text(h->dtype, text));
    return 0;
}

/* Where in the header something failed that knows no headers. */
static int located(int rc, uint64_t at, struct tu_err *err)
{
    if (rc && err && err->offset == TU_ERR_NO_OFFSET)
        err->offset = at;
    return rc;
}

/* By the header's own block sizes: a dtype need not be known to be sized. */
static int check_sizes(struct head *h, struct tu_err *err)
{
    if (h->type != TU_REC_TENSOR)
        return 0;
    uint64_t elements, bytes;
    int rc = located(tu_elements(h->word, h->nwords, &elements, err), TUI_FIXED, err);
    if (rc)
        return rc;
    if (h->dtype >= TU_DTYPE_GGML && h->dtype < TU_DTYPE_PRIVATE &&
        (!h->nwords || h->word[h->nwords - 1] % h->block_elems))
        return tu_fail_at(err, TU_ESIZE, AT_BLOCK_ELEMS,
                          "last dimension is not a multiple of the block of %" PRIu32
                          " elements",
                          h->block_elems);
    if (tu_mul_over(tu_ceil_div(elements, h->block_elems), h->block_bytes, &bytes) ||
        bytes != h->payload_len) {
        struct tu_buf shape;
        tu_buf_init(&shape, 0);
        if (tu_shape_text(&shape, h->word, h->nwords, NULL))
            tu_buf_reset(&shape);
        char text[8];
        rc = tu_fail_at(err, TU_ESIZE, AT_PAYLOAD_LEN,
                        "payload of %" PRIu64 " bytes does not fit %s %.120s",
                        h->payload_len, tu_dtype_text(h->dtype, text),
                        shape.n ? shape.data : "");
        tu_buf_release(&shape);
        return rc;
    }
    return 0;
}

static int check_shard(struct head *h, struct tu_err *err)
{
    if (h->type != TU_REC_TENSOR || !h->json)
        return 0;
    struct tu_region where; /* only its rules matter here */
    return located(tui_region_read(&where, h->json, h->word, h->nwords, err), at_meta(h),
                   err);
}

static int (*const checks[])(struct head *h, struct tu_err *err) = {
    check_limits, check_lengths, check_flags, check_type,  check_codec,
    check_name,   check_meta,    check_dtype, check_sizes, check_shard,
};

/* Take p apart and run the checks. The words go to word[TUI_WORDS_MAX]. */
static int examine(struct head *h, const unsigned char *p, uint32_t header_len,
                   uint64_t *word, struct tu_err *err)
{
    *h = (struct head){
        .p = p,
        .header_len = header_len,
        .type = tu_le16(p + AT_TYPE),
        .flags = tu_le16(p + AT_FLAGS),
        .dtype = tu_le16(p + AT_DTYPE),
        .meta_len = tu_le32(p + AT_META_LEN),
        .name_len = tu_le16(p + AT_NAME_LEN),
        .nwords = p[AT_NWORDS],
        .block_elems = tu_le32(p + AT_BLOCK_ELEMS),
        .block_bytes = tu_le32(p + AT_BLOCK_BYTES),
        .payload_len = tu_le64(p + AT_PAYLOAD_LEN),
        .raw_len = tu_le64(p + AT_RAW_LEN),
        .word = word,
    };
    int rc = 0;
    for (unsigned i = 0; !rc && i < sizeof checks / sizeof *checks; i++)
        rc = checks[i](h, err);
    json_decref(h->json);
    h->json = NULL;
    return rc;
}

bool tui_head_sound(const unsigned char *p, uint32_t header_len)
{
    return tu_le32(p + AT_CRC) == header_crc(p, header_len);
}

int tui_head_finish(struct tui_record *out, const unsigned char *p, uint32_t header_len,
                    struct tu_err *err)
{
    const uint32_t stored = tu_le32(p + AT_CRC), computed = header_crc(p, header_len);
    if (stored != computed)
        return tu_fail_at(err, TU_EHCRC, AT_CRC,
                          "header checksum mismatch (stored %08" PRIx32
                          ", computed %08" PRIx32 ")",
                          stored, computed);
    struct head h;
    int rc = examine(&h, p, header_len, out->word, err);
    if (rc)
        return rc;
    tu_buf_reset(&out->text);
    if ((rc = tu_buf_add(&out->text, h.name, h.name_len, err)) ||
        (rc = tu_buf_add(&out->text, "", 1, err)) ||
        (rc = tu_buf_add(&out->text, h.meta, h.meta_len, err)))
        return rc;
    out->rec = (struct tu_record){
        .type = h.type,
        .flags = h.flags,
        .nwords = h.nwords,
        .word = out->word,
        .name = out->text.data,
        .name_len = h.name_len,
        .meta = out->text.data + h.name_len + 1,
        .meta_len = h.meta_len,
        .dtype = h.dtype,
        .block_elems = h.block_elems,
        .block_bytes = h.block_bytes,
        .payload_len = h.payload_len,
        .header_len = header_len,
        .header_crc = stored,
    };
    return 0;
}

/* To bytes --------------------------------------------------------------------------- */

static void put_fixed(unsigned char *p, const struct tu_record *rec, uint32_t header_len)
{
    memset(p, 0, TUI_FIXED);
    memcpy(p, TU_STREAM_MAGIC, TUI_MAGIC_LEN);
    p[AT_VERSION] = 1;
    tu_put16(p + AT_TYPE, rec->type);
    tu_put16(p + AT_FLAGS, rec->flags);
    tu_put16(p + AT_DTYPE, (uint16_t)rec->dtype);
    tu_put32(p + AT_HEADER_LEN, header_len);
    tu_put32(p + AT_META_LEN, (uint32_t)rec->meta_len);
    tu_put16(p + AT_NAME_LEN, (uint16_t)rec->name_len);
    p[AT_NWORDS] = (unsigned char)rec->nwords;
    tu_put32(p + AT_BLOCK_ELEMS, rec->block_elems);
    tu_put32(p + AT_BLOCK_BYTES, rec->block_bytes);
    tu_put64(p + AT_PAYLOAD_LEN, rec->payload_len);
    tu_put64(p + AT_RAW_LEN, rec->payload_len);
}

int tui_head_len(const struct tu_record *rec, uint32_t *header_len, struct tu_err *err)
{
    if (rec->name_len > TUI_NAME_MAX)
        return tu_fail(err, TU_ENAME, "name of %zu bytes, the limit is %u", rec->name_len,
                       TUI_NAME_MAX);
    if (rec->meta_len > TUI_META_MAX)
        return tu_fail(err, TU_ELIMIT, "metadata of %zu bytes, the limit is 16 MiB",
                       rec->meta_len);
    if (rec->nwords > TUI_WORDS_MAX)
        return tu_fail(err, TU_ELIMIT, "%" PRIu32 " dimensions, the limit is 64",
                       rec->nwords);
    if (rec->dtype > UINT16_MAX)
        return tu_fail(err, TU_EDTYPE, "dtype code %#" PRIx32 " does not fit 16 bits",
                       rec->dtype);
    *header_len = (uint32_t)tu_align(TUI_FIXED + 8 * (uint64_t)rec->nwords +
                                         rec->name_len + rec->meta_len,
                                     TU_STREAM_ALIGN);
    return 0;
}

int tui_head_encode(struct tu_buf *out, const struct tu_record *rec, uint32_t *crc,
                    struct tu_err *err)
{
    uint32_t len;
    int rc = tui_head_len(rec, &len, err);
    if (rc)
        return rc;
    tu_buf_reset(out);
    unsigned char *p = tu_buf_room(out, len, err);
    if (!p)
        return TU_ENOMEM;
    out->n = len;
    put_fixed(p, rec, len);
    unsigned char *q = p + TUI_FIXED;
    for (uint32_t i = 0; i < rec->nwords; i++, q += 8)
        tu_put64(q, rec->word[i]);
    if (rec->name_len)
        memcpy(q, rec->name, rec->name_len);
    q += rec->name_len;
    if (rec->meta_len)
        memcpy(q, rec->meta, rec->meta_len);
    q += rec->meta_len;
    memset(q, 0, (size_t)(p + len - q));
    *crc = header_crc(p, len);
    tu_put32(p + AT_CRC, *crc);

    struct head h;
    uint64_t word[TUI_WORDS_MAX];
    return examine(&h, p, len, word, err);
}

int tu_record_encode(struct tu_buf *out, struct tu_record *rec, struct tu_err *err)
{
    int rc = tui_head_encode(out, rec, &rec->header_crc, err);
    if (!rc)
        rec->header_len = (uint32_t)out->n;
    return rc;
}

void tui_head_pad(unsigned char fixed[TUI_FIXED], uint32_t len, uint32_t *crc)
{
    put_fixed(fixed, &(struct tu_record){.type = TU_REC_PAD}, len);
    *crc = tu_crc32_zeros(tu_crc32(0, fixed, TUI_FIXED), len - TUI_FIXED);
    tu_put32(fixed + AT_CRC, *crc);
}
