/* SPDX-License-Identifier: Apache-2.0 */
/* zip.c: fuzz target: open an archive and load every entry.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
#include <tensorutils/format.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tu_in *in = NULL;
    struct tu_zip *z = NULL;
    int fd = memfd_create("zip", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET) != 0)
        return -1;
    if (tu_in_take_fd(&in, fd, "zip", NULL) < 0)
        return -1;
    if (tu_zip_open(&z, in, 0, 0, NULL) == 0) {
        for (size_t i = 0; i < tu_zip_count(z) && i < 16; i++) {
            void *p;
            size_t n;
            if (tu_zip_load(z, i, 1 << 20, true, &p, &n, NULL) == 0)
                tu_free(p);
            if (tu_zip_find(z, tu_zip_entry(z, i)->name) != i)
                __builtin_trap();
        }
        tu_zip_close(z);
    }
    tu_in_close(in);
    return 0;
}
