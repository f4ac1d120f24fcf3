/* SPDX-License-Identifier: Apache-2.0 */
/* opt.c: command lines: the input's lines are the arguments. */
#include <stdlib.h>
#include <string.h>
#include "common/opt.c"
#include "common/opt_type.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ARGS 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const choices[] = {"always", "auto", "never", NULL};
    bool flag;
    unsigned count = 0;
    uint64_t u64;
    double real;
    const char *text;
    int choice;
    struct tu_spec spec = {0};
    struct tu_pattern *pattern = NULL;
    uint32_t dtype;
    struct tu_shape shape;
    struct tu_list numbers = {0};
    const struct tu_opt table[] = {
        {'f', "flag", NULL, "", TU_OPT_FLAG, &flag, NULL, TU_OPT_NEGATABLE},
        {'c', "count", NULL, "", TU_OPT_COUNT, &count, NULL, 0},
        {'z', "size", NULL, "", TU_OPT_SIZE, &u64, NULL, 0},
        {'d', "duration", NULL, "", TU_OPT_DURATION, &u64, NULL, 0},
        {'r', "rate", NULL, "", TU_OPT_RATE, &real, NULL, 0},
        {'t', "text", NULL, "", TU_OPT_STRING, &text, NULL, TU_OPT_MAYBE},
        {'w', "when", NULL, "", TU_OPT_CHOICE, &choice, choices, TU_OPT_MAYBE},
        {'s', "spec", NULL, "", TU_OPT_SPEC, &spec, NULL, 0},
        {'e', "regex", NULL, "", TU_OPT_REGEX, &pattern, NULL, 0},
        {'y', "dtype", NULL, "", TU_OPT_DTYPE, &dtype, NULL, 0},
        {'h', "shape", NULL, "", TU_OPT_SHAPE, &shape, NULL, 0},
        {'v', "device", NULL, "", TU_OPT_DEVICE, &text, NULL, 0},
        {'n', "numbers", NULL, "", TU_OPT_U64, &numbers, NULL, TU_OPT_LIST},
        {0},
    };
    const struct tu_opt *const tables[] = {table, NULL};
    char *args[ARGS + 1], *line = malloc(size + 1);
    struct tu_err err;
    if (!line)
        return 0;
    memcpy(line, data, size);
    line[size] = '\0';
    int n = 0;
    args[n++] = line;
    for (size_t i = 0; i < size && n < ARGS; i++)
        if (line[i] == '\n') {
            line[i] = '\0';
            args[n++] = line + i + 1;
        }
    args[n] = NULL;
    const int first = tu_opt_operand(tables, n, args);
    const int total = n;
    int rc = tu_opt_parse(tables, &n, args, &err);
    if (first < 0 || first >= total || (rc == 0 && n >= total) || (rc && rc != TU_EUSAGE))
        abort();
    tu_spec_release(&spec);
    tu_pattern_free(pattern);
    tu_free(numbers.v);
    free(line);
    return 0;
}
