/* SPDX-License-Identifier: Apache-2.0 */
/* launched.c: which rank this process is when others started it. */
#include <stdlib.h>
#include "allreduce-bench/bench.h"

/* A launcher tells by the environment who we are. */
int bench_launched(struct tu_group *g, uint64_t rank, uint64_t size, struct tu_err *err)
{
    static const char *const names[][2] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMI_RANK", "PMI_SIZE"},
        {"SLURM_PROCID", "SLURM_NTASKS"},
    };
    for (size_t i = 0; i < 3 && rank == UINT64_MAX; i++) {
        const char *r = getenv(names[i][0]), *s = getenv(names[i][1]);
        if (r && s && (tu_parse_u64(r, &rank, err) || tu_parse_u64(s, &size, err)))
            return TU_EUSAGE;
    }
    if (rank == UINT64_MAX)
        return tu_fail(err, TU_EUSAGE, "--rendezvous needs --rank, mpirun or srun");
    if (rank >= size || size > TU_RANKS_MAX)
        return tu_fail(err, TU_EUSAGE, "rank %llu of %llu", (unsigned long long)rank,
                       (unsigned long long)size);
    g->rank = (uint32_t)rank;
    g->size = (uint32_t)size;
    return 0;
}
