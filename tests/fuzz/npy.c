/* SPDX-License-Identifier: Apache-2.0 */
/* npy.c: fuzz target: an array, V2 taken for bf16.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include "source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tu_open how = { .void_dtype = TU_BF16, .keep_header = true };
    return fuzz_source("npy", &how, data, size);
}
