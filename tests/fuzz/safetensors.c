/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c: fuzz target: a safetensors file, its header kept.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include "source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tu_open how = { .keep_header = true };
    return fuzz_source("safetensors", &how, data, size);
}
