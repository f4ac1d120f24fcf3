#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What every report promises: columns that awk can read.
load helper

# titles: of the columns of all tables, as the sources have them.
titles() {
    grep -rhoE '\{"[a-z0-9_]*", "[^"]+",[[:space:]]*TU_COL' "$ROOT/cmd" | cut -d'"' -f4
}

@test "a column's title has capitals and its unit, and no blank" {
    [ "$(titles | wc -l)" -gt 200 ]
    run titles
    refute_line --regexp '[^A-Z0-9_/%.]'
}

@test "no line of a table ends in a blank" {
    tns-gen a:shape=4x8 bb:shape=3 -o a.tns
    tns-gen a:shape=4x8,seed=2 c:shape=3 -o b.tns
    local llama=$ROOT/tests/data/hf/llama
    {
        tns-ls a.tns
        tns-ls --stats a.tns
        tns-diff a.tns b.tns || :
        tns-check a.tns
        shard-ckpt ls "$llama"
        shard-ckpt verify "$llama"
        quantize measure -t q8_0 a.tns
        allreduce-bench run -n 2 -b 1K -e 1K --iters 2 --report r.json
        allreduce-bench compare --tolerance 1000000 r.json r.json
        allreduce-bench squeeze -n 2 -b 4K
        allreduce-bench sim --topo levels:n=8,alpha=1us,bw=25G --coll broadcast
        pipe-sched compare -p 2 -m 4
    } >out
    [ "$(wc -l <out)" -gt 60 ]
    run grep -n ' $' out
    assert_output ''
}
