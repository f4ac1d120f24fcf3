#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# pipe-sched: sums and products of times near the ends of 64 bits are refused, not wrapped.
load helper

big=4503599627370496 # 2^52, the longest single time

@test "times that may not be added are refused wherever they are added or multiplied" {
    pipe-sched gen -s 1f1b -p 2 -m 1100 -o s.json
    printf 'mb,0,4096\n' >weight
    # 3 · 2 · 1100 operations of 2^52 pass 2^64; a weight alone makes 2^52 · 2^12 of one.
    for args in "sim --cost F=$big,B=$big s.json" "draw --cost F=$big,B=$big s.json" \
        "gen -s zb-1p -p 2 -m 2000 --cost F=$big,I=$big,W=$big" \
        "gen -s v-half -p 2 -m 2000 --cost F=$big,I=$big,W=$big" \
        "compare -p 2 -m 2000 --cost F=$big,I=$big,W=$big" \
        "optimize -p 2 -m 2000 --cost F=$big,I=$big,W=$big" \
        "optimize -p 2 -m 2000 --emit-lp --cost F=$big,I=$big,W=$big" \
        "gen -s zb-1p -p 2 -m 2 --cost F=$big --times weight" \
        "gen -s 1f1b -p 2 -m 2 --cost F=$big --times weight --to svg"; do
        # shellcheck disable=SC2086 # words
        run -3 pipe-sched $args
        assert_output --partial 'times are too large to be added'
    done
    grep -q '"F":1,"I":1' s.json
    sed "s/\"F\":1,\"I\":1/\"F\":$big,\"I\":$big/" s.json >ov.json
    run -3 pipe-sched verify ov.json
    assert_output --partial 'times are too large to be added'
    # Large, but not too large: 2 + 2 steps of each half, exactly.
    pipe-sched gen -s 1f1b -p 2 -m 2 --cost F=$big,B=$((2 * (big / 2))) | {
        run -0 pipe-sched sim
        assert_line --partial "makespan $((6 * big)),"
    }
}

@test "memory and scales that may not be multiplied" {
    pipe-sched gen -s gpipe -p 2 -m 2000 -o s.json
    run -3 pipe-sched sim --memory "B=$big,W=1" s.json
    assert_output --partial 'memory: sizes are too large to be added'
    run -2 pipe-sched sim --memory "B=$big,W=0.000000001" s.json
    assert_output --partial 'no common exact scale'
    printf 'mb,0,0.000000001\nmb,1,%s\n' $big >weights
    run -3 pipe-sched sim --times weights s.json
    assert_output --partial 'too large a weight'
    run -2 pipe-sched optimize -p 2 -m 2 --cost F=0.000000001 --time-cap $big
    assert_output --partial 'too large'
}

@test "place and partition add up without wrapping" {
    run -2 pipe-sched partition -p 1 --costs "$big*1000,$big*1000,$big*100" --first $big
    assert_output --partial 'too large'
    run -2 pipe-sched partition -p 2 --costs '1*4000' --sizes "$big*4000" --caps "$big,$big"
    assert_output --partial 'too large'
    printf '0,1e8\n' >peers
    run -3 pipe-sched place --method swarm --microbatches 10000000000000000000 peers
    assert_output --partial 'times are too large to be added'
    for _ in 1 2; do yes '0,0,1,1000000000000000' | head -n 10000; done >counts
    run -3 pipe-sched place --method experts --devices 1 counts
    assert_output --partial 'too large to be added'
}

@test "plan: times past all sums are those of layouts that nobody takes, not an error" {
    for more in '--offload split --host 1B/s --gpu-memory 200GB --cpu-update 1' \
        '--offload ssd --host 1B/s --ssd 1B/s --gpu-memory 200GB' '--efficiency 1e-15 --gpu-memory 9999GB'; do
        # shellcheck disable=SC2086 # words
        run -0 pipe-sched plan --layers 96 --hidden 8192 --heads 64 --gpus 8 --batch 64 $more
        assert_line --regexp '^TP|^ *PP|STEP_S'
    done
}
