/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c: a main for fuzz targets: every file of the corpus once, as TAP.
 *
 * A target that crashes ends the program, and the missing plan fails the run. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return -1;
    size_t n = 0, cap = 1 << 16;
    uint8_t *data = malloc(cap);
    size_t got;
    while (data && (got = fread(data + n, 1, cap - n, f)) > 0) {
        n += got;
        if (n < cap)
            continue;
        uint8_t *more = realloc(data, cap *= 2);
        if (!more)
            free(data);
        data = more;
    }
    fclose(f);
    /* A copy of exactly n bytes lets ASan see a read past the end. */
    uint8_t *exact = data ? malloc(n ? n : 1) : NULL;
    if (exact)
        memcpy(exact, data, n);
    free(data);
    int rc = exact ? LLVMFuzzerTestOneInput(exact, n) : -1;
    free(exact);
    return rc;
}

int main(int argc, char **argv)
{
    struct dirent **list;
    int n = argc == 2 ? scandir(argv[1], &list, NULL, alphasort) : -1;
    int count = 0, failed = 0;
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], list[i]->d_name);
        if (list[i]->d_name[0] != '.') {
            printf("# %s\n", list[i]->d_name);
            fflush(stdout);
            int rc = replay(path);
            printf("%s %d - %s\n", rc ? "not ok" : "ok", ++count, list[i]->d_name);
            failed += rc != 0;
        }
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    if (count == 0) {
        printf("not ok 1 - no corpus: usage: %s FOLDER\n", argv[0]);
        count = failed = 1;
    }
    printf("1..%d\n", count);
    return failed != 0;
}
