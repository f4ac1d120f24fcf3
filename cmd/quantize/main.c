/* SPDX-License-Identifier: Apache-2.0 */
/* quantize: number formats, block formats and compression of tensors, on a pipe. */
#include "quantize/quantize.h"

static const struct tu_cmd *const subs[] = {
    &quantize_encode, &quantize_decode,  &quantize_repack, &quantize_sparsify, &quantize_plan,
    &quantize_measure, &quantize_search, &quantize_rotate,  &quantize_imatrix,  NULL,
};

static const struct tu_cmd command = {
    .name = "quantize",
    .example = "quantize -t q4_k w.tns -o q.tns",
    .summary = "quantize, dequantize and measure tensors",
    .listings = quantize_listings,
    .subs = subs,
    .fallback = &quantize_encode,
};

int main(int argc, char **argv)
{
    return tu_main(&command, argc, argv);
}
