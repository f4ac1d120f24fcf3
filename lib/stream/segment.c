/* SPDX-License-Identifier: Apache-2.0 */
/* segment.c: what END says about the records before it, kept while they pass (B3, B8 step
 * 17), and how a record is named in a message. */
#include <inttypes.h>
#include "record.h"

void tui_segment_begin(struct tui_segment *s, uint64_t number, uint64_t start)
{
    s->number = number;
    s->start = start;
    s->records = s->bytes = 0;
    s->index = TUI_NO_INDEX;
    s->digest = s->listed_crc = 0;
    s->listed = 0;
    tu_buf_reset(&s->entry);
}

/* INDEX lists TENSOR and META records. Its checksum is known without keeping the entries. */
static int list(struct tui_segment *s, const struct tu_record *rec, struct tu_err *err)
{
    unsigned char e[TUI_INDEX_ENTRY];
    tu_put64(e, s->bytes);
    tu_put64(e + 8, rec->payload_len);
    tu_put32(e + 16, rec->header_len);
    tu_put32(e + 20, rec->header_crc);
    tu_put32(e + 24, rec->payload_crc);
    tu_put32(e + 28, tu_crc32(0, rec->name, rec->name_len));
    tu_put64(e + 32, 0);
    s->listed++;
    s->listed_crc = tu_crc32(s->listed_crc, e, sizeof e);
    return s->list ? tu_buf_add(&s->entry, e, sizeof e, err) : 0;
}

int tui_segment_add(struct tui_segment *s, const struct tu_record *rec,
                    struct tu_err *err)
{
    if (rec->type == TU_REC_TENSOR || rec->type == TU_REC_META) {
        int rc = list(s, rec, err);
        if (rc)
            return rc;
    }
    if (rec->type == TU_REC_INDEX)
        s->index = s->bytes;
    if (TU_REC_COPIES(rec->type)) {
        unsigned char pair[8];
        tu_put32(pair, rec->header_crc);
        tu_put32(pair + 4, rec->payload_len ? rec->payload_crc : 0);
        s->digest = tu_crc32(s->digest, pair, sizeof pair);
    }
    s->records++;
    s->bytes += rec->header_len + tui_body(rec->payload_len);
    return 0;
}

int tui_segment_end(const struct tui_segment *s, const struct tu_record *end,
                    struct tu_err *err)
{
    const uint64_t back = s->index == TUI_NO_INDEX ? 0 : s->bytes - s->index;
    const struct {
        uint64_t said, is;
        const char *what;
    } check[TUI_END_WORDS] = {
        [TUI_END_RECORDS] = {end->word[TUI_END_RECORDS], s->records, "record count"},
        [TUI_END_BYTES] = {end->word[TUI_END_BYTES], s->bytes, "byte count"},
        [TUI_END_INDEX_BACK] = {end->word[TUI_END_INDEX_BACK], back, "distance to INDEX"},
        [TUI_END_DIGEST] = {end->word[TUI_END_DIGEST], s->digest, "digest"},
    };
    for (unsigned i = 0; i < TUI_END_WORDS; i++) {
        if (check[i].said == check[i].is)
            continue;
        if (i == TUI_END_INDEX_BACK && !check[i].said)
            continue; /* an INDEX may be left unannounced */
        const uint64_t at = TUI_FIXED + 8 * i;
        if (i == TUI_END_DIGEST)
            return tu_fail_at(
                err, TU_EEND, at,
                "digest mismatch: records were changed, dropped or reordered "
                "(stored %08" PRIx64 ", computed %08" PRIx64 ")",
                check[i].said, check[i].is);
        return tu_fail_at(err, TU_EEND, at,
                          "%s is %" PRIu64 ", but the records before END give %" PRIu64,
                          check[i].what, check[i].said, check[i].is);
    }
    return 0;
}

int tui_blame(struct tu_err *err, const char *file, uint64_t number, uint64_t offset,
              const struct tu_record *rec)
{
    char name[88];
    if (tu_err_status(err->code) != 3)
        return err->code;
    if (err->offset != TU_ERR_NO_OFFSET)
        err->offset += offset;
    if (err->code == TU_EEMPTY || (err->code == TU_EMAGIC && !offset))
        tu_err_prefix(err, "%s", file);
    else if (err->code == TU_ENOEND || err->code == TU_EGARBAGE)
        tu_err_prefix(err, "%s: byte %" PRIu64, file, offset);
    else if (rec && rec->type == TU_REC_END)
        tu_err_prefix(err, "%s: END at byte %" PRIu64, file, offset);
    else if (!rec || !rec->name_len)
        tu_err_prefix(err, "%s: record %" PRIu64 " at byte %" PRIu64, file, number, offset);
    else
        tu_err_prefix(err, "%s: record %" PRIu64 " '%s' at byte %" PRIu64, file, number,
                      tu_text_short(rec->name, rec->name_len, name), offset);
    return err->code;
}
