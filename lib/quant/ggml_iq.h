/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_iq.h: code books of IQ1 to IQ3. */
#ifndef TENSORUTILS_QUANT_GGML_IQ_H
#define TENSORUTILS_QUANT_GGML_IQ_H

#include <stdint.h>

extern const uint16_t tui_grid_iq2_xxs[256], tui_grid_iq2_xs[512], tui_grid_iq2_s[1024];
extern const uint16_t tui_grid_iq3_xxs[256], tui_grid_iq3_s[512], tui_grid_iq1[2048];

#endif
