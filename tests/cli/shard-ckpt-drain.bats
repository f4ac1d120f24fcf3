#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shard-ckpt drain: what is published is whole, at each level, whenever the run ends.
load helper

prepare() {
    mkdir fast slow
    for i in 0 1 2; do tns-gen a b --shape 400,500 --seed $i -o $i.tns; done
}

# levels: whole files alone have their names, and `latest` names one that is there.
levels() {
    local d
    for d in fast slow; do
        for f in "$d"/*.tns; do
            [ ! -e "$f" ] || tns-check "$f" >/dev/null || return
        done
        [ ! -e "$d/latest" ] || [ -e "$d/$(cat "$d/latest")" ] || return
    done
}

@test "each checkpoint of a pipe becomes a file of both levels" {
    cat 0.tns 1.tns 2.tns | shard-ckpt drain --fast fast --slow slow 'step-%d.tns' >events
    for i in 0 1 2; do
        cmp $i.tns slow/step-00000$i.tns
        for e in taken fast slow; do grep -Eq "^$e +$i +1600512 " events; done
    done
    assert_equal "$(cat slow/latest)" step-000002.tns
    only_files 0.tns 1.tns 2.tns events fast slow fast/latest fast/step-000002.tns \
        slow/latest slow/step-00000{0,1,2}.tns # the newest alone stays at the fast level
    levels
}

@test "the next run goes on with the numbers, and --keep keeps" {
    shard-ckpt drain --fast fast --slow slow 'step-%d.tns' <0.tns
    cat 1.tns 2.tns | shard-ckpt drain --keep --fast fast --slow slow 'step-%d.tns'
    cmp 2.tns slow/step-000002.tns
    cmp 2.tns fast/step-000002.tns
    cmp 1.tns fast/step-000001.tns
}

@test "a ring smaller than a tensor holds the producer back and loses nothing" {
    cat 0.tns 1.tns | shard-ckpt drain --memory 64K --fast fast --slow slow --json 's%d' >events
    cmp 0.tns slow/s000000
    cmp 1.tns slow/s000001
    grep -q '"checkpoints":2,"stall_s":0\.' events
}

@test "what is cut, damaged or no stream is not published, what came before is" {
    { cat 0.tns; head -c 900000 1.tns; } >short
    run -3 shard-ckpt drain --fast fast --slow slow 's%d' <short
    assert_output --partial 'standard input ends inside a checkpoint, after 2500512 bytes'
    { head -c 2000 1.tns; printf x; tail -c +2002 1.tns; } >damaged
    run -3 shard-ckpt drain --fast fast --slow slow 's%d' <damaged
    assert_output --partial 'payload'
    run -3 shard-ckpt drain --fast fast 'other' </dev/zero
    assert_output --partial 'no tensor stream here'
    only_files 0.tns 1.tns 2.tns short damaged fast slow fast/latest fast/s000000 slow/latest slow/s000000
}

@test "a name without a number is for one checkpoint" {
    shard-ckpt drain --fast fast one.tns <0.tns
    run -2 shard-ckpt drain --fast fast one.tns <1.tns
    assert_output --partial 'one.tns: exists (-f replaces it)'
    shard-ckpt drain -f --fast fast one.tns <1.tns
    cmp 1.tns fast/one.tns
    run -2 shard-ckpt drain --fast fast a/b <1.tns
    run -2 shard-ckpt drain x <1.tns
    run -2 bash -c 'cat 0.tns 1.tns | shard-ckpt drain --fast fast two.tns' # a second one
    cmp 0.tns fast/two.tns
}

@test "killed at any instant it leaves whole files, and the next run copies what waited" {
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        { for _ in 1 2 3 4 5 6; do cat 0.tns 1.tns; done; sleep 5; } 2>kill.log |
            { shard-ckpt drain --fast fast --slow slow 's%d.tns' >/dev/null & sleep "0.0$((i * 7 % 10))$i"
              kill -KILL $!; wait $!; } 2>kill.log || true
        levels
    done
    shard-ckpt drain --fast fast --slow slow 's%d.tns' <2.tns >/dev/null
    levels
    [ "$(find fast -name '*.tns' | wc -l)" -le 1 ]
    run -0 cmp 2.tns "slow/$(cat slow/latest)"
}
