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

# keys: of the objects on standard input, without those that every report has. Roles of quantize
# plan are keys too, and those of a layout.
keys() {
    sed 's/"roles":{.*//; s/"keys":{[^}]*}/"keys":{}/; s/"meta":{[^}]*}/"meta":{}/' |
        grep -oE '"[A-Za-z0-9_]+":' | tr -d '":' |
        grep -vxE 'schema|version|command|end|status' | sort -u
}

# page_keys COMMAND: those that its page names.
page_keys() {
    awk '/^\.Sh / { in_ = $2 == "REPORTS" } in_ && sub(/^\.It Va /, "") { gsub(/ /, "\n"); print }' \
        "$ROOT/man/$1.1" | sort -u
}

# source_keys COMMAND: the literal ones of its reports, but for those of nccl-tests' form.
source_keys() {
    local files=("$ROOT/cmd/$1"*)
    find "${files[@]}" -name '*.c' ! -name nccl_json.c -exec cat {} + |
        grep -oE '\{"[a-z0-9_]+",[[:space:]]*("[^"]*"|NULL),[[:space:]]*TU_COL|tu_jw_[a-z0-9]+\([a-z]+, "[a-z0-9_]+"' |
        cut -d'"' -f2 | sort -u
}

@test "the manual pages name every key that the sources write, and no other" {
    local command unnamed idle key
    for command in allreduce-bench fa-run kv-pack pipe-sched quantize shard-ckpt tns-check tns-diff tns-import tns-ls; do
        [ "$(source_keys "$command" | wc -l)" -gt 7 ]
        unnamed=$(comm -23 <(source_keys "$command") <(page_keys "$command"))
        assert_equal "$command: $unnamed" "$command: "
        for key in $(page_keys "$command"); do
            grep -rqF "\"$key\"" "$ROOT/cmd/$command"* || idle+=" $command:$key"
        done
    done
    assert_equal "$idle" ''
}

# reports COMMAND ARGS...: run it with --report; its keys must be among those of the page.
reports() {
    local unnamed
    "$@" --report r.json >/dev/null || [ $? -le 3 ]
    grep -q '"schema":"tensorutils\.'"$1" r.json
    keys <r.json >have
    [ -s have ] || { echo "$*: nothing reported" >&2; return 1; }
    unnamed=$(comm -23 have <(page_keys "$1"))
    [ -z "$unnamed" ] || { echo "$*: not in the page: $unnamed"; return 1; }
    echo "$1 $2" >>ran
}

@test "the manual pages name every key that is really printed" {
    local llama=$ROOT/tests/data/hf/llama kv=$ROOT/tests/data/kv topo=levels:n=4,alpha=1us,bw=25G
    tns-gen a:shape=4x256 b:shape=2x256 -o a.tns
    tns-gen a:shape=4x256,seed=2 c:shape=3 -o b.tns
    reports tns-ls a.tns
    reports tns-ls -aS a.tns
    reports tns-check a.tns
    reports tns-diff a.tns b.tns
    reports tns-import --globals "$ROOT/tests/data/torch/new_views.pt"
    reports tns-import "$ROOT/tests/data/torch/new_views.pt"

    reports shard-ckpt ls "$llama"
    reports shard-ckpt ls --pieces "$llama"
    reports shard-ckpt ls --files "$llama"
    reports shard-ckpt verify "$llama"
    reports shard-ckpt digest "$llama"
    reports shard-ckpt digest --sha256 "$llama"
    reports shard-ckpt convert --to megatron:tp=2 "$llama" m
    shard-ckpt convert --to hf --dtype f16 "$llama" other
    reports shard-ckpt diff "$llama" other
    reports shard-ckpt plan --to megatron:tp=2 "$llama" n
    tns-gen a.weight b.weight --shape 3,4 -o unknown.tns
    reports shard-ckpt plan --to megatron:tp=2 --family llama unknown.tns n
    shard-ckpt cat "$llama" | reports shard-ckpt save --to hf h
    reports shard-ckpt inspect "$llama"
    reports shard-ckpt prune "$llama" p
    reports shard-ckpt average "$llama" "$llama" q
    reports shard-ckpt rename 'x=y' "$llama" r
    reports shard-ckpt lora-merge "$llama" "$ROOT/tests/data/peft/plain" s
    reports shard-ckpt lora-extract --rank 1 "$llama" s t
    shard-ckpt cat "$llama" | reports shard-ckpt drain --fast . drained
    reports shard-ckpt load-order "$llama"
    reports shard-ckpt layout show megatron

    reports quantize encode -t q4_0 --error a.tns
    reports quantize plan -t q4_0 a.tns
    reports quantize measure -t q4_0 a.tns
    reports quantize measure --logits a.tns a.tns
    reports quantize search --target-bpw 6 a.tns
    reports quantize sparsify a.tns
    reports quantize sparsify --blocks 4 a.tns

    tns-gen q k v --shape 1,16,2,16 --dtype bf16 -o qkv.tns
    reports fa-run check qkv.tns
    reports fa-run run --explain qkv.tns
    reports fa-run bench --seqlen 16 --headdim 16 --reps 2 --warmup 0
    reports fa-run info

    reports allreduce-bench run -n 2 -b 1K -e 1K --iters 2
    cp r.json run.json
    reports allreduce-bench compare --tolerance 1000000 run.json run.json
    reports allreduce-bench run -n 2 --pattern ddp:bytes=64K,compute=1us --iters 2
    cat a.tns a.tns | reports allreduce-bench reduce
    reports allreduce-bench sim --topo $topo -b 1K
    reports allreduce-bench sim --model nccl
    reports allreduce-bench sim --model switches
    allreduce-bench sim --topo $topo -b 1K --algo ring --goal >goal
    reports allreduce-bench sim --model loggp goal
    reports allreduce-bench squeeze -n 2 -b 4K
    reports allreduce-bench p2p -n 2 --iters 2
    allreduce-bench run -n 2 -b 1K -e 1K --iters 25 --algo ring --trace trace >/dev/null
    reports allreduce-bench diagnose trace

    kv-pack pack --from llama:heads=2 "$kv/llama_wide_f16.state" -o k.tns
    reports kv-pack stat k.tns
    reports kv-pack stat --layers k.tns
    reports kv-pack stat --shared k.tns k.tns
    reports kv-pack stat --why-miss k.tns k.tns
    reports kv-pack compress -c fp8 k.tns
    reports kv-pack page k.tns
    reports kv-pack share k.tns
    seq 1 32 >ids
    reports kv-pack hash ids
    reports kv-pack spill -d store -b 4 k.tns
    reports kv-pack stat -d store
    reports kv-pack verify -d store
    for i in $(seq 0 20); do echo $(((i * 37 + 5) % 120 + 3)); done >ids
    reports kv-pack fetch -d store ids
    reports kv-pack gc -d store
    reports kv-pack plan --config "$llama/config.json"
    reports kv-pack plan --map --config "$llama/config.json"
    echo '{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}' >requests
    reports kv-pack replay -n 4 requests
    reports kv-pack replay --groups --waste requests

    pipe-sched gen -s 1f1b -p 2 -m 4 -o s.json
    pipe-sched gen -s gpipe -p 2 -m 4 -o g.json
    reports pipe-sched sim s.json
    reports pipe-sched verify s.json
    reports pipe-sched compare -p 2 -m 4
    reports pipe-sched diff s.json g.json
    reports pipe-sched optimize -p 2 -m 2
    reports pipe-sched partition -p 2 --costs 1,2,3,4
    printf '0,1\n0,1\n1,1,0,20\n' >peers
    reports pipe-sched place --method swarm --microbatches 5 peers
    reports pipe-sched plan --layers 8 --hidden 1024 --heads 8 --gpus 8 --batch 8 --sensitivity

    # Each subcommand was among them, but for those that tell only how they ended.
    local command
    for command in "$BIN"/*; do
        "$command" --dump-options | awk -F'\t' -v name="${command##*/}" '
            $1 != "" && $4 == "--report" { print name, $1 }'
    done | sort >all
    comm -23 all <(sort -u ran) >silent
    printf '%s\n' 'kv-pack convert' 'kv-pack decompress' 'kv-pack pack' 'kv-pack unpack' \
        'pipe-sched convert' 'pipe-sched draw' 'pipe-sched gen' 'pipe-sched lower' \
        'quantize decode' 'quantize imatrix' 'quantize repack' 'quantize rotate' \
        'shard-ckpt cat' >expected
    diff silent expected
}
