#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shard-ckpt on training checkpoints that real frameworks wrote: optimizer states, partitions.
load helper

DATA=$BATS_TEST_DIRNAME/../data
ZERO=$DATA/deepspeed

# holds ORACLE CHECKPOINT [option ...]: its digests are those of the framework's own tensors.
holds() {
    local oracle=$1
    shift
    shard-ckpt digest "$@" | sed 's/ - / /' | grep -v ' optim\.step$' | diff "$oracle" -
}

@test "ZeRO partitions hold what the engine held" {
    for d in "$ZERO"/*_dp[0-9] "$ZERO"/*_fp32 "$ZERO"/*_fp16; do
        holds "$d.oracle" "$d"
    done
}

@test "the number of steps is one scalar" {
    run -0 bash -c "shard-ckpt cat --include 'optim.step' '$ZERO/toy_z1_dp2' | tns-ls -"
    assert_output --partial optim.step
    run -0 bash -c "shard-ckpt digest '$ZERO/toy_z3_dp2' | grep optim.step"
    assert_output 'a7e1d189 - f32 - optim.step' # of 3.0
}

@test "a missing partition is named by its ranks" {
    cp -r "$ZERO/toy_z2_dp4" z
    rm z/global_step3/*rank_2_mp_rank_00_optim*
    run -3 shard-ckpt ls z
    assert_output --partial '1 of 4 optim_states files are missing: the first is of mp_rank 0, data-parallel rank 2'
}

@test "partitions of another training run do not fit" {
    cp -r "$ZERO/toy_z2_dp4" z
    cp "$ZERO"/toy_z1_dp2/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt z/global_step3
    run -3 shard-ckpt ls z
    assert_output --partial 'group 0: param_shapes has 311 elements, the files of 4 ranks hold'
}

@test "one rank's files with another number of data-parallel ranks are refused" {
    cp -r "$ZERO/toy_z2_dp4" z
    rm z/global_step3/*rank_[23]_mp_rank_00_optim*
    run -3 shard-ckpt ls z
    assert_output --partial 'dp_world_size is 4, and there are files of 2 data-parallel ranks'
}

@test "tensor-parallel ranks without rules are refused with what decides" {
    mkdir -p z/global_step3
    cp "$ZERO"/toy_z1_dp2/global_step3/mp_rank_00_model_states.pt z/global_step3/mp_rank_00_model_states.pt
    cp "$ZERO"/toy_z1_dp2/global_step3/mp_rank_00_model_states.pt z/global_step3/mp_rank_01_model_states.pt
    printf global_step3 >z/latest
    run ! shard-ckpt ls z
    assert_output --partial 'model-parallel ranks'
}
