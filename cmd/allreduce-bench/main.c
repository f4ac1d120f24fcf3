/* SPDX-License-Identifier: Apache-2.0 */
/* allreduce-bench: collectives measured, verified, simulated and diagnosed. */
#include <stdio.h>
#include "allreduce-bench/bench.h"

static const char *algorithm_row(size_t i, const char **help)
{
    static char name[80];
    if (!tu_algorithms[i])
        return NULL;
    snprintf(name, sizeof name, "%s/%s", tu_collective_rows[tu_algorithms[i]->coll].name,
             tu_algorithms[i]->name);
    *help = tu_algorithms[i]->help;
    return name;
}

static const char *transport_row(size_t i, const char **help)
{
    static char text[160];
    const struct tu_transport *t = tu_transports[i];
    const struct tu_plugin *loaded;
    if (!t)
        return NULL;
    bool there = !t->plugin || !tu_plugin_load(&loaded, t->plugin, NULL);
    snprintf(text, sizeof text, "%s%s", t->help, there ? "" : " (unavailable)");
    *help = text;
    return t->name;
}

static const char *collective_row(size_t i, const char **help)
{
    if (i >= TU_COLLECTIVES)
        return NULL;
    *help = tu_collective_rows[i].help;
    return tu_collective_rows[i].name;
}

static const char *squeeze_row(size_t i, const char **help)
{
    *help = tu_squeeze_rows[i].help;
    return tu_squeeze_rows[i].name;
}

static const char *pattern_row(size_t i, const char **help)
{
    *help = tu_patterns[i] ? tu_patterns[i]->help : NULL;
    return tu_patterns[i] ? tu_patterns[i]->name : NULL;
}

static const char *pattern_key(size_t i, size_t k)
{
    const char *const *key = tu_patterns[i]->key;
    for (; key && *key && k; k--)
        key++;
    return key ? *key : NULL;
}

static const struct tu_listing bench_listings[] = {
    {"algorithms", "algorithms, COLLECTIVE/NAME", algorithm_row, NULL},
    {"transports", "how bytes move", transport_row, NULL},
    {"collectives", "collective operations", collective_row, NULL},
    {"compressions", "ways to make vectors small; those of quantize too", squeeze_row, NULL},
    {"patterns", "training patterns that run and sim replay", pattern_row, pattern_key},
    {0},
};

int bench_index(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

int bench_collective(const char *name, enum tu_collective *out, struct tu_err *err)
{
    for (int i = 0; i < TU_COLLECTIVES; i++) {
        *out = (enum tu_collective)i;
        if (strcmp(tu_collective_rows[i].name, name) == 0)
            return 0;
    }
    return tu_fail(err, TU_EUSAGE, "no collective '%s'", name);
}

static const struct tu_cmd *const subs[] = {
    &bench_run,     &bench_reduce,  &bench_sim,   &bench_diagnose,
    &bench_compare, &bench_squeeze, &bench_pairs, NULL,
};

static const struct tu_cmd command = {
    .name = "allreduce-bench",
    .example = "allreduce-bench run -n 4 -b 1K -e 64K --algo ring",
    .summary = "measure, verify, simulate and diagnose collective operations",
    .listings = bench_listings,
    .subs = subs,
};

int main(int argc, char **argv)
{
    return tu_main(&command, argc, argv);
}
