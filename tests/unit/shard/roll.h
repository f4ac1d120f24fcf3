/* SPDX-License-Identifier: Apache-2.0 */
/* roll.h: what tests of random conversions share: numbers by a seed that can be given, and
 * a folder of their own. The includer defines _GNU_SOURCE (nftw). */
#ifndef TESTS_UNIT_SHARD_ROLL_H
#define TESTS_UNIT_SHARD_ROLL_H

#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static uint64_t state;

/* splitmix64 */
static uint64_t roll(uint64_t n)
{
    uint64_t z = (state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (z ^ z >> 31) % n;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
