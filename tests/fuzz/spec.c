/* SPDX-License-Identifier: Apache-2.0 */
/* spec.c: the parsers of command-line texts, and what shows a text to people. */
#include <stdlib.h>
#include <tensorutils/core.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void parsers(const char *s)
{
    static const char *const known[] = {"tp", "pp", "shape", "block", NULL};
    struct tu_spec spec;
    uint64_t u, dim[8];
    int64_t i;
    double d;
    unsigned rank = 0;
    if (!tu_spec_parse(&spec, s, NULL)) {
        for (size_t k = 0; k < spec.n; k++)
            if (!tu_spec_get(&spec, spec.key[k].key))
                abort();
        if (tu_spec_check(&spec, known, NULL) == TU_EBUG ||
            tu_spec_u64(&spec, "tp", 1, &u, NULL) == TU_EBUG)
            abort();
        tu_spec_release(&spec);
    }
    bool size = !tu_parse_size(s, &u, NULL);
    if (!tu_parse_u64(s, &u, NULL) && !size)
        abort(); /* every number is a size */
    if (!tu_parse_shape(s, dim, &rank, 8, NULL) && rank > 8)
        abort();
    if (tu_parse_i64(s, &i, NULL) == TU_EBUG || tu_parse_double(s, &d, NULL) == TU_EBUG ||
        tu_parse_duration(s, &u, NULL) == TU_EBUG)
        abort();
}

static void shown(const char *s, size_t n)
{
    struct tu_buf b = {0};
    char cut[88];
    tu_text_short(s, n, cut);
    if (strlen(cut) > 80 || tu_utf8_check(cut, strlen(cut)) != strlen(cut))
        abort();
    if (tu_text_escape(&b, s, n, NULL) || tu_name_check(b.n ? b.data : "", b.n) != b.n)
        abort();
    if (tu_name_check(s, n) > tu_utf8_check(s, n))
        abort();
    tu_buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *s = malloc(n + 1);
    if (!s)
        return 0;
    if (n)
        memcpy(s, data, n);
    s[n] = '\0';
    parsers(s);
    shown((const char *)data, n);
    free(s);
    return 0;
}
