#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# pipe-sched partition, place and plan.
load helper

@test "partition: the published maxima, as a table, JSON and a layout" {
    run -0 sh -c 'echo 1 2 3 4 5 6 7 8 9 | pipe-sched partition -p 3'
    assert_line --regexp '^ +2 +7 +2 +17 *$'
    run -0 pipe-sched partition -p 16 --costs '0.5,1*61,1.2,1.5' --json
    assert_output --partial '"time":4.5'
    refute_output --partial '"time":5'
    run -0 pipe-sched partition -p 4 --costs '1*30' --first 2 --last 3 --layout
    assert_output 'Et*6|t*9|t*9|t*6L'
    run -2 pipe-sched partition -p 2 --costs 1,9,1 --sizes 1,9,1 --caps 4,4
    assert_output --partial 'stage 1'
    run -2 pipe-sched partition -p 2 --costs 1,x
}

@test "place: two regions, the prices of both groupings" {
    cat >net <<'END'
# from,to,seconds,bytes per second
0,1,0.001,1e9
2,3,0.001,1e9
0,2,.05,5e7
0,3,.05,5e7
1,2,.05,5e7
1,3,.05,5e7
END
    run -0 pipe-sched place --dp 2 --pp 2 --dp-bytes 400MB --pp-bytes 20MB net
    assert_line --index 0 --partial 'gradients 0.402 s, pipeline 0.9 s, total 1.302 s'
    run -0 pipe-sched place --dp 2 --pp 2 --dp-bytes 400MB --pp-bytes 20MB --groups 0,1,0,1 net
    assert_line --index 0 --partial 'gradients 8.1 s, pipeline 0.042 s, total 8.142 s'
    echo 0,1,1,1 >short
    run -3 pipe-sched place --dp 2 --pp 2 short
    assert_output --partial 'no link between'
}

@test "plan: layouts, reasons, flags" {
    args='--layers 24 --hidden 2304 --heads 24 --gpus 32 --gpu a100 --batch 512'
    # shellcheck disable=SC2086 # words
    run -0 pipe-sched plan $args --top 3
    assert_line --index 0 --partial '1.652 billion parameters'
    # shellcheck disable=SC2086
    run -0 pipe-sched plan $args --top 0 --all --max-mb 1 --max-pp 4 --max-vpp 2
    assert_output --partial 'ZeRO 2 and 3 need pp = 1'
    # shellcheck disable=SC2086
    run -0 pipe-sched plan $args --emit megatron
    assert_output --partial '--tensor-model-parallel-size'
    # shellcheck disable=SC2086
    run -0 pipe-sched plan $args --emit deepspeed
    assert_output --partial '"train_batch_size":512'
    run -1 pipe-sched plan --layers 96 --hidden 12288 --heads 96 --gpus 2 --batch 4
    run -2 pipe-sched plan --layers 96 --hidden 12288 --heads 96 --gpus 2 --batch 4 --gpu none
}
