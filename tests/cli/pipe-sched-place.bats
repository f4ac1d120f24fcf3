#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# pipe-sched place: the methods beside tasklets (those are in pipe-sched-plan.bats).
load helper

@test "nics: stages within a network, layers by the slowest device" {
    printf 'a0,ib,10\na1,ib,8\na2,ib,8\na3,ib,10\nb0,roce,5\nb1,roce,4\n' >devices
    run -0 pipe-sched place --method nics --dp 2 --layers 33 devices
    assert_line --regexp '^ +0 +15 +1.5 +ib +a0 a3$'
    assert_line --regexp '^ +1 +12 +1.5 +ib +a1 a2$'
    assert_line --regexp '^ +2 +6 +1.5 +roce +b0 b1$'
    printf 'a0,ib,10\nb0,roce,5\n' | { run -2 pipe-sched place --method nics --dp 2 --layers 33; assert_output --partial 'whole groups'; }
    printf 'a0,ib\n' | { run -3 pipe-sched place --method nics --dp 1 --layers 3; assert_output --partial 'line 1'; }
}

@test "uneven: batch by speed, state by memory" {
    printf 'big,1,100GB\nfast,3,40GB\n' >devices
    run -0 pipe-sched place --method uneven --batch 8 --state-bytes 60GB --sample-bytes 5GB --json devices
    assert_line --partial '"device":"big","batch":2,"time_s":2'
    assert_line --partial '"device":"fast","batch":6,"time_s":2'
    total=$(echo "$output" | grep -o '"state_bytes":[0-9]*' | awk -F: '{ n += $2 } END { printf "%.0f", n }')
    assert_equal "$total" 60000000000
    run -2 pipe-sched place --method uneven --batch 8 --state-bytes 200GB --sample-bytes 5GB devices
}

@test "experts: they follow their tokens" {
    for a in 0 1 2 3; do echo "0,$a,$((3 - a)),100"; done >routes
    run -0 pipe-sched place --method experts --devices 2 routes
    assert_line --partial '1 of the transitions stay on their device, 0 in the order of numbers'
    run -2 pipe-sched place --method experts --devices 3 routes
}

@test "swarm: one peer a stage is a chain; failures, joins and moves" {
    printf '0,1\n1,1\n' | { run -0 pipe-sched place --method swarm --clients 1 --microbatches 5 --rebalance 0; assert_line --partial '5 of 5 micro-batches in 30 s'; }
    # Four clients keep a stage of one peer busy: 3 s each, and the way in and out.
    printf '0,1\n' | { run -0 pipe-sched place --method swarm --clients 4 --microbatches 20; assert_line --partial '20 of 20 micro-batches in 60 s'; }
    printf '0,1\n1,1,0,20\n' | { run -1 pipe-sched place --method swarm --rebalance 0 --microbatches 50; assert_line --partial '1 failures'; }
    printf '0,1\n0,1\n1,1,0,20\n' | { run -0 pipe-sched place --method swarm --rebalance 10s --microbatches 50; assert_line --partial '1 peers moved'; }
    printf '0,1\n1,1,0,20\n1,1,40\n' | { run -0 pipe-sched place --method swarm --rebalance 0 --microbatches 50; assert_line --partial '50 of 50'; }
}

@test "swarm: the same seed gives the same run, another one another" {
    printf '0,1\n0,1\n1,1\n1,1\n' >peers
    args='--method swarm --clients 6 --microbatches 300 --life 100s --repair 20s --rebalance 60s'
    # shellcheck disable=SC2086 # words
    pipe-sched place $args peers >a
    # shellcheck disable=SC2086
    pipe-sched place $args peers | cmp - a
    # shellcheck disable=SC2086
    run -1 cmp -s a <(pipe-sched place $args --seed 1 peers)
    run -0 grep -c '300 of 300' a
}

@test "swarm: a run that never ends is stopped" {
    printf '0,1\n1,1\n' | { run -3 timeout 60 pipe-sched place --method swarm --rebalance 1ns; assert_line --partial '0 of 1000 micro-batches are done'; }
}

@test "place: an option of another method is refused" {
    printf 'a,ib,1\nb,ib,1\n' >lines
    run -2 pipe-sched place --method nics --layers 8 --dp 1 --clients 3 lines
    assert_output --partial -- '--clients is not for --method nics'
    run -0 pipe-sched place --method nics --layers 8 --dp 1 lines
}

@test "place and optimize: a seed where nothing is drawn is refused" {
    printf '0,1\n1,1\n' >peers
    run -2 pipe-sched place --method swarm --seed 3 peers
    assert_output --partial 'without --life'
    run -0 pipe-sched place --method swarm --seed 3 --life 50s --repair 1s --microbatches 10 peers
    printf '0,1,0.1,1e9\n' >net
    run -0 pipe-sched place --dp 1 --pp 2 --seed 3 net
    run -2 pipe-sched place --dp 1 --pp 2 --groups 0,1 --seed 3 net
    for method in nics uneven experts; do
        run -2 pipe-sched place --method $method --seed 3 net
        assert_output --partial 'draws no lots'
    done
    run -2 pipe-sched optimize -p 2 -m 2 --emit-lp --seed 3
    run -0 pipe-sched optimize -p 2 -m 2 --seed 3
}
