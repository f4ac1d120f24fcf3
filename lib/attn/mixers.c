/* SPDX-License-Identifier: Apache-2.0 */
/* mixers.c: the table of operators. */
#include <string.h>
#include "attn/mix.h"

const struct tu_mixer *const tu_mixers[] = {
    &tui_mix_softmax, &tui_mix_linear, &tui_mix_gla, &tui_mix_ssd, &tui_mix_mamba, NULL,
};

const struct tu_mixer *tu_mixer_find(const char *name)
{
    for (size_t i = 0; tu_mixers[i]; i++)
        if (!strcmp(tu_mixers[i]->name, name))
            return tu_mixers[i];
    return NULL;
}
