/* SPDX-License-Identifier: Apache-2.0 */
/* recover.c: after damage, the next record that can be believed.
 *
 * Every record begins at a multiple of 64, so the magic is looked for there; a header
 * counts when its checksum is right. For tns-check --recover: nothing else may go on
 * after an error. */
#include "reader.h"

#define WINDOW ((size_t)1 << 20)

/* The search, and how many bytes of headers it may still sum: a file full of magics that
 * claim long headers must not cost the square of its length. */
struct search {
    struct tu_reader *r;
    unsigned char *window;
    struct tu_buf head;
    uint64_t budget;
};

/* Is there a whole header at off, whose first 64 bytes are p? */
static int believe(struct search *s, uint64_t off, const unsigned char *p, bool *yes,
                   struct tu_err *err)
{
    uint32_t len;
    *yes = false;
    if (tui_head_begin(p, TUI_FIXED, &len, NULL) || len > tu_in_size(s->r->in) - off ||
        len > s->budget)
        return 0;
    s->budget -= len;
    tu_buf_reset(&s->head);
    unsigned char *whole = tu_buf_room(&s->head, len, err);
    if (!whole)
        return TU_ENOMEM;
    int rc = tu_in_pread(s->r->in, off, whole, len, err);
    *yes = !rc && tui_head_sound(whole, len);
    return rc;
}

static int find(struct search *s, uint64_t off, uint64_t *at, bool *found,
                struct tu_err *err)
{
    const uint64_t size = tu_in_size(s->r->in);
    *found = false;
    while (off < size && size - off >= TUI_FIXED) {
        const size_t n =
            (size_t)tu_min(WINDOW, (size - off) & ~(uint64_t)(TUI_FIXED - 1));
        int rc = tu_in_pread(s->r->in, off, s->window, n, err);
        s->budget += n;
        for (size_t i = 0; !rc && !*found && i < n; i += TUI_FIXED) {
            *at = off + i;
            rc = believe(s, *at, s->window + i, found, err);
        }
        if (rc || *found)
            return rc;
        off += n;
    }
    return 0;
}

int tu_reader_recover(struct tu_reader *r, bool *found, uint64_t *skipped,
                      struct tu_err *err)
{
    struct search s = {.r = r, .budget = TUI_HEADER_MAX};
    uint64_t at = 0;
    *found = false;
    *skipped = 0;
    if (!r->err.code)
        return tu_fail(err, TU_EBUG, "%s: recovery without an error", tu_in_name(r->in));
    if (!tu_in_seekable(r->in))
        return tu_fail(err, TU_EUSAGE, "%s: recovery needs a file, not a pipe",
                       tu_in_name(r->in));
    s.window = tu_alloc((size_t)tu_min(WINDOW, tu_in_size(r->in) + 1), 1, err);
    if (!s.window)
        return TU_ENOMEM;
    /* Behind a record that ended where it should the next one begins; else anywhere
     * behind the start of the damage. */
    const uint64_t from = r->framed ? r->next : r->bad + TUI_FIXED;
    int rc = find(&s, from, &at, found, err);
    if (!rc && *found)
        rc = tu_in_seek(r->in, at, err);
    if (!rc && *found) {
        *skipped = at - r->bad;
        r->err = (struct tu_err){.offset = TU_ERR_NO_OFFSET};
        r->at = TUI_AT_RECORDS;
        r->open = false;
        r->damaged = true;
        r->next = at;
    }
    tu_buf_release(&s.head);
    tu_free(s.window);
    return rc;
}
