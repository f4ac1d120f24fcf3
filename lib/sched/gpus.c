/* SPDX-License-Identifier: Apache-2.0 */
/* gpus.c: presets of devices, from their makers' data sheets. */
#include <string.h>
#include "tensorutils/sched/plan.h"

#define GIB (UINT64_C(1) << 30)

const struct tu_gpu tu_gpus[] = {
    {"a100-40g", "NVIDIA A100 SXM 40 GB", "NVIDIA A100 data sheet, 2021", 312e12,
     40 * GIB, 1.555e12, 300e9},
    {"a100", "NVIDIA A100 SXM 80 GB", "NVIDIA A100 data sheet, 2021", 312e12, 80 * GIB,
     2.039e12, 300e9},
    {"h100", "NVIDIA H100 SXM 80 GB", "NVIDIA H100 data sheet, 2023", 989.4e12, 80 * GIB,
     3.35e12, 450e9},
    {"h200", "NVIDIA H200 SXM 141 GB", "NVIDIA H200 data sheet, 2023", 989.4e12,
     131 * GIB, 4.8e12, 450e9},
    {"b200", "NVIDIA B200 SXM 180 GB", "NVIDIA DGX B200 data sheet, 2024", 2250e12,
     167 * GIB, 7.7e12, 900e9},
    {"mi300x", "AMD Instinct MI300X 192 GB", "AMD MI300X data sheet, 2023", 1307.4e12,
     192 * GIB, 5.3e12, 448e9},
    {"mi250x-gcd", "one die of an AMD Instinct MI250X", "AMD MI250X data sheet, 2021",
     191.5e12, 64 * GIB, 1.6e12, 100e9},
    {0},
};

const struct tu_gpu *tu_gpu_find(const char *name)
{
    for (const struct tu_gpu *g = tu_gpus; g->name; g++)
        if (!strcmp(g->name, name))
            return g;
    return NULL;
}
