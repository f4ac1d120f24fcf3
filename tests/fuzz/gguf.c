/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.c: fuzz target: a GGUF file.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include "source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_source("gguf", NULL, data, size);
}
