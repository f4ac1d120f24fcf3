/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h: the rows of tu_formats, one per format, each defined in its own file. */
#ifndef TENSORUTILS_FORMAT_ROWS_H
#define TENSORUTILS_FORMAT_ROWS_H

#include <tensorutils/format.h>

extern const struct tu_format tui_format_tns, tui_format_safetensors, tui_format_hf, tui_format_npy,
    tui_format_npz, tui_format_torch, tui_format_gguf, tui_format_dcp;

#endif
