/* SPDX-License-Identifier: Apache-2.0 */
/* formats.c: see formats.h. */
#include "common/formats.h"

const char *tu_readable[TU_FORMATS_MAX], *tu_writable[TU_FORMATS_MAX];

void tu_formats_begin(void)
{
    size_t r = 0, w = 0;
    for (const struct tu_format *const *f = tu_formats; *f; f++) {
        if ((*f)->flags & TU_FORMAT_READ && r < TU_FORMATS_MAX - 1)
            tu_readable[r++] = (*f)->name;
        if ((*f)->flags & TU_FORMAT_WRITE && w < TU_FORMATS_MAX - 1)
            tu_writable[w++] = (*f)->name;
    }
}

const struct tu_format *tu_format_chosen(const char *const *choices, int choice)
{
    return choice < 0 ? NULL : tu_format_find(choices[choice]);
}

static const char *row(size_t i, const char **help)
{
    for (size_t k = 0; k <= i; k++) {
        if (!tu_formats[k])
            return NULL;
    }
    *help = tu_formats[i]->help;
    return tu_formats[i]->name;
}

const struct tu_listing tu_format_listings[] = {
    { "formats", "formats of tensor files", row, NULL },
    { 0 },
};
