/* SPDX-License-Identifier: Apache-2.0 */
/* gpus.c: presets of devices and links, from their makers' data sheets and standards. */
#include <string.h>
#include "tensorutils/sched/plan.h"

#define GIB (UINT64_C(1) << 30)

const struct tu_gpu tu_gpus[] = {
    {"a100-40g", "NVIDIA A100 SXM 40 GB", "NVIDIA A100 data sheet, 2021", 312e12,
     40 * GIB, 1.555e12, 300e9, 32e9},
    {"a100", "NVIDIA A100 SXM 80 GB", "NVIDIA A100 data sheet, 2021", 312e12, 80 * GIB,
     2.039e12, 300e9, 32e9},
    {"h100", "NVIDIA H100 SXM 80 GB", "NVIDIA H100 data sheet, 2023", 989.4e12, 80 * GIB,
     3.35e12, 450e9, 64e9},
    {"h200", "NVIDIA H200 SXM 141 GB", "NVIDIA H200 data sheet, 2023", 989.4e12,
     131 * GIB, 4.8e12, 450e9, 64e9},
    {"b200", "NVIDIA B200 SXM 180 GB", "NVIDIA DGX B200 data sheet, 2024", 2250e12,
     167 * GIB, 7.7e12, 900e9, 64e9},
    {"mi300x", "AMD Instinct MI300X 192 GB", "AMD MI300X data sheet, 2023", 1307.4e12,
     192 * GIB, 5.3e12, 448e9, 64e9},
    {"mi250x-gcd", "one die of an AMD Instinct MI250X", "AMD MI250X data sheet, 2021",
     191.5e12, 64 * GIB, 1.6e12, 100e9, 36e9},
    {0},
};

const struct tu_gpu *tu_gpu_find(const char *name)
{
    for (const struct tu_gpu *g = tu_gpus; g->name; g++)
        if (!strcmp(g->name, name))
            return g;
    return NULL;
}

/* One direction of one device's port, as the standards count it: signalling rate times
 * lanes, before protocol. */
const struct tu_link_kind tu_links[] = {
    {"nvlink3", "NVLink of an A100: 12 links", "NVIDIA A100 data sheet, 2021", 300e9},
    {"nvlink4", "NVLink of an H100 or H200: 18 links", "NVIDIA H100 data sheet, 2023",
     450e9},
    {"nvlink5", "NVLink of a B200: 18 links", "NVIDIA Blackwell brief, 2024", 900e9},
    {"xgmi-mi300x", "Infinity Fabric of an MI300X: 7 links", "AMD MI300X data sheet, 2023",
     448e9},
    {"pcie3", "PCI Express 3.0, 16 lanes", "PCI-SIG, 2010", 16e9},
    {"pcie4", "PCI Express 4.0, 16 lanes", "PCI-SIG, 2017", 32e9},
    {"pcie5", "PCI Express 5.0, 16 lanes", "PCI-SIG, 2019", 64e9},
    {"ib-edr", "InfiniBand EDR, 100 Gbit/s", "InfiniBand Trade Association roadmap",
     12.5e9},
    {"ib-hdr", "InfiniBand HDR, 200 Gbit/s", "InfiniBand Trade Association roadmap",
     25e9},
    {"ib-ndr", "InfiniBand NDR, 400 Gbit/s", "InfiniBand Trade Association roadmap",
     50e9},
    {"ib-xdr", "InfiniBand XDR, 800 Gbit/s", "InfiniBand Trade Association roadmap",
     100e9},
    {"eth-25g", "Ethernet, 25 Gbit/s", "IEEE 802.3by, 2016", 3.125e9},
    {"eth-100g", "Ethernet, 100 Gbit/s", "IEEE 802.3bj, 2014", 12.5e9},
    {"eth-400g", "Ethernet, 400 Gbit/s", "IEEE 802.3bs, 2017", 50e9},
    {0},
};

const struct tu_link_kind *tu_link_find(const char *name)
{
    for (const struct tu_link_kind *k = tu_links; k->name; k++)
        if (!strcmp(k->name, name))
            return k;
    return NULL;
}
