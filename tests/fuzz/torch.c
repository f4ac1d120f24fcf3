/* SPDX-License-Identifier: Apache-2.0 */
/* torch.c: fuzz target: open a torch file, read and verify every tensor of moderate size.
 *
 * _GNU_SOURCE for memfd_create. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <tensorutils/format.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char buf[1 << 16];
    const struct tu_open how = {.no_crc = true}; /* so that changed bytes get past them */
    struct tu_source *s;
    char path[64];
    int fd = memfd_create("torch", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (tu_source_open(&s, path, tu_format_find("torch"), &how, NULL, NULL) == 0) {
        for (size_t i = 0; i < s->n && i < 64; i++) {
            uint64_t n = tu_min(s->tensor[i].bytes, sizeof buf);
            if (tu_source_read(s, i, s->tensor[i].bytes - n, buf, (size_t)n, NULL) < 0)
                __builtin_trap(); /* its bounds were checked */
        }
        tu_source_close(s);
    }
    close(fd);
    return 0;
}
