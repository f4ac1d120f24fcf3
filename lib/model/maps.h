/* SPDX-License-Identifier: Apache-2.0 */
/* maps.h: the name maps of lib/model/maps/, embedded at build by tools/embed. */
#ifndef TU_MODEL_MAPS_H
#define TU_MODEL_MAPS_H

struct tui_map_text {
    const char *name; /* file name without .map */
    const char *text;
};

/* Ends with a row without a name. */
extern const struct tui_map_text tui_maps[];

#endif
