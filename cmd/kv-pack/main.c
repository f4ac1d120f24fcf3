/* SPDX-License-Identifier: Apache-2.0 */
/* kv-pack: transformer KV caches as files: between engines, ranks, pages and disks. */
#include "kv-pack/pack.h"

static const struct tu_cmd *const subs[] = {
    &kv_pack,  &kv_unpack, &kv_convert,  &kv_page,       &kv_share,
    &kv_hash,  &kv_stat,   &kv_compress, &kv_decompress, &kv_spill,
    &kv_fetch, &kv_verify, &kv_gc,       &kv_plan,       &kv_replay,
    NULL,
};

static const struct tu_cmd command = {
    .name = "kv-pack",
    .example = "kv-pack pack --from llama session.bin | kv-pack stat",
    .summary = "pack, page, share, compress, convert, spill and plan KV caches",
    .listings = kv_listings,
    .subs = subs,
};

int main(int argc, char **argv)
{
    return tu_main(&command, argc, argv);
}
