/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c: main of a fuzz target without a fuzzer: each FILE, and each file of each
 * FOLDER, once.
 *
 * This makes a corpus an ordinary test, one line of TAP per input; libFuzzer brings
 * its own main. A target aborts where something is wrong: the last line then names the
 * input. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static unsigned count;

static int fail(const char *path)
{
    fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
    return 1;
}

static int replay_file(const char *path, size_t n)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(n ? n : 1); /* of just this size: reading past it is noticed */
    int rc = 1;
    if (!f || !data || fread(data, 1, n, f) != n) {
        fail(path);
        goto out;
    }
    printf("# %s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, n);
    printf("ok %u - %s\n", ++count, path);
    rc = 0;
out:
    if (f)
        fclose(f);
    free(data);
    return rc;
}

static int replay(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return fail(path);
    if (!S_ISDIR(st.st_mode))
        return replay_file(path, (size_t)st.st_size);
    struct dirent **entry;
    int n = scandir(path, &entry, NULL, alphasort), rc = 0;
    if (n < 0)
        return fail(path);
    for (int i = 0; i < n; i++) {
        char inner[4096];
        if (entry[i]->d_name[0] != '.') {
            snprintf(inner, sizeof inner, "%s/%s", path, entry[i]->d_name);
            rc |= replay(inner);
        }
        free(entry[i]);
    }
    free(entry);
    return rc;
}

int main(int argc, char **argv)
{
    int rc = 0;
    for (int i = 1; i < argc; i++)
        rc |= replay(argv[i]);
    printf("1..%u\n", count);
    return rc || !count;
}
