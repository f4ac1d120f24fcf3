/* SPDX-License-Identifier: Apache-2.0 */
/* pickle.c: fuzz target: what is read and can be written again must be read again. */
#include <stdint.h>
#include <tensorutils/format.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tu_pickle_limits limits = {.nodes = 1 << 16, .memo = 1 << 16};
    struct tu_pickle *p, *again;
    struct tu_buf out = {0};
    size_t used;
    if (tu_pickle_read(&p, data, size, &limits, &used, NULL) < 0)
        return 0;
    tu_buf_init(&out, 1 << 24);
    if (tu_pickle_write(&out, tu_pickle_root(p), NULL, 0, NULL) == 0) {
        if (tu_pickle_read(&again, out.data, out.n, NULL, &used, NULL) < 0 || used != out.n)
            __builtin_trap();
        tu_pickle_free(again);
    }
    tu_buf_release(&out);
    tu_pickle_free(p);
    return 0;
}
