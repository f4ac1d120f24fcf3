/* SPDX-License-Identifier: Apache-2.0 */
/* plugged.c: transports whose library not everyone has: rows without functions, replaced
 * by the table of the plug-in when it loads. */
#include "world.h"

static const char *const no_keys[] = {NULL};

const struct tu_transport tui_transport_mpi = {
    .name = "mpi",
    .help = "MPI point-to-point messages, under mpirun or srun (plug-in)",
    .key = no_keys,
    .plugin = "mpi",
};
