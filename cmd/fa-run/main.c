/* SPDX-License-Identifier: Apache-2.0 */
/* fa-run: run, check and measure attention and the other sequence mixers. */
#include "fa-run/fa.h"

static const struct tu_cmd *const subs[] = {&fa_run, &fa_check, &fa_bench, &fa_info,
                                            NULL};

static const struct tu_cmd command = {
    .name = "fa-run",
    .example = "tns-gen q k v --shape 1,64,4,32 --dtype bf16 | fa-run --causal | tns-ls",
    .summary = "run, check and measure attention",
    .listings = fa_listings,
    .subs = subs,
    .fallback = &fa_run,
};

int main(int argc, char **argv)
{
    return tu_main(&command, argc, argv);
}
