/* SPDX-License-Identifier: Apache-2.0 */
/* json.c: what is read can be written, and the canonical text reads back to itself. */
#include <jansson.h>
#include <stdlib.h>
#include <tensorutils/core.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct tu_buf canonical(const char *text, size_t n,
                               const struct tu_json_limits *limits, bool must)
{
    struct tu_buf out = {0};
    json_t *v = NULL;
    if (tu_json_parse(&v, text, n, limits, NULL)) {
        if (must)
            abort();
        return out;
    }
    if (tu_json_dump(&out, v, NULL))
        abort();
    json_decref(v);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct tu_json_limits limits[] = {
        {0},
        {.depth = TU_JSON_DEPTH_META, .object = true},
        {.plain_integers = true},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct tu_buf once = canonical((const char *)data, n, &limits[i], false);
        if (once.n) {
            struct tu_buf again = canonical(once.data, once.n, &limits[i], true);
            if (again.n != once.n || memcmp(again.data, once.data, once.n))
                abort();
            tu_buf_release(&again);
        }
        tu_buf_release(&once);
    }
    return 0;
}
