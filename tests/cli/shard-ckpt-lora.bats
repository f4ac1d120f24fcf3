#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shard-ckpt lora-merge and lora-extract: what PEFT saved and merged is the oracle.
load helper

HF=$BATS_TEST_DIRNAME/../data/hf
PEFT=$BATS_TEST_DIRNAME/../data/peft

# near A B: equal but for the order of sums.
near() { run -0 tns-diff --atol 1e-6 --rtol 1e-5 "$1" "$2"; }

# numbers_of TENSOR: DELTA and REST in the table of lora-extract -v.
numbers_of() { awk -v name="$1" '$3 == name { print $1, $2 }' table; }

@test "an adapter is merged as PEFT merges it" {
    for pair in plain:llama wide:llama_tied dora:llama_tied conv:gpt2; do
        shard-ckpt lora-merge --dtype f32 "$HF/${pair#*:}" "$PEFT/${pair%:*}" "${pair%:*}"
        near "${pair%:*}/model.safetensors" "$PEFT/${pair%:*}.merged.safetensors"
    done
    [ ! -e plain/adapter_config.json ]
}

@test "base and result may lie in any layout" {
    shard-ckpt convert --to megatron:tp=2,pp=2 "$HF/llama_demo" mega
    shard-ckpt lora-merge --to safetensors --dtype f32 "$HF/llama_demo" "$PEFT/plain" a.safetensors \
        --exclude '.*embed_tokens'
    shard-ckpt lora-merge --to meta:tp=2 --dtype f32 mega "$PEFT/plain" b --exclude '.*embed_tokens'
    run -0 shard-ckpt diff a.safetensors b --exclude '.*embed_tokens'
    shard-ckpt convert --to tns "$PEFT/plain" adapter.tns # which keeps its configuration
    shard-ckpt lora-merge --to safetensors --dtype f32 "$HF/llama" adapter.tns c.safetensors
    near c.safetensors "$PEFT/plain.merged.safetensors"
}

@test "strength 0 adds nothing, two adapters add up" {
    shard-ckpt lora-merge --scale 0 "$HF/llama" "$PEFT/plain" zero
    run -0 shard-ckpt diff "$HF/llama" zero
    shard-ckpt lora-merge --scale 0.25,0.75 --dtype f32 "$HF/llama" "$PEFT/plain" "$PEFT/plain" two
    near two/model.safetensors "$PEFT/plain.merged.safetensors"
    run -2 shard-ckpt lora-merge --scale 1,2 "$HF/llama" "$PEFT/plain" other
    assert_output --partial '2 values of --scale for 1 adapters'
}

@test "what an adapter changes must be there, in its size" {
    run -3 shard-ckpt lora-merge "$HF/gpt2" "$PEFT/plain" out
    assert_output --partial 'gpt2 lacks 13 weights that adapter'
    run -3 shard-ckpt lora-merge "$HF/llama_mqa" "$PEFT/wide" out
    assert_output --partial "'model.layers.0.self_attn.k_proj.weight' is to be 16x32 and is not"
    [ ! -e out ]
}

# with OLD NEW: the adapter plain with another configuration.
with() {
    rm -rf a
    cp -r "$PEFT/plain" a
    sed -i "s/$1/$2/" a/adapter_config.json
}

@test "adapters of other kinds are refused with the key that says so" {
    with '"LORA"' '"IA3"'
    run -3 shard-ckpt lora-merge "$HF/llama" a out
    assert_output --partial "adapter_config.json: peft_type is 'IA3', expected LORA"
    with '"init_lora_weights": true' '"init_lora_weights": "pissa"'
    run -3 shard-ckpt lora-merge "$HF/llama" a out
    assert_output --partial "init_lora_weights is 'pissa'"
    with '"lora_bias": false' '"lora_bias": true'
    run -3 shard-ckpt lora-merge "$HF/llama" a out
    assert_output --partial 'lora_bias is set'
    with '"use_dora": false' '"use_dora": true'
    run -3 shard-ckpt lora-merge "$HF/llama" a out
    assert_output --partial 'DoRA of an embedding'
    with '"lora_alpha": 8' '"lora_alpha": null'
    run -3 shard-ckpt lora-merge "$HF/llama" a out
    assert_output --partial 'lora_alpha is no number'
    rm a/adapter_config.json
    run -3 shard-ckpt lora-merge "$HF/llama" a out
    assert_output --partial 'no adapter_config.json'
}

@test "an adapter of rank 4 is found again between two models" {
    shard-ckpt lora-extract --rank 4 "$HF/gpt2" "$PEFT/conv.merged.safetensors" x
    grep -q '"fan_in_fan_out":true' x/adapter_config.json
    grep -q '"target_modules":\["c_attn","c_fc"\]' x/adapter_config.json
    shard-ckpt lora-merge --dtype f32 "$HF/gpt2" x y
    near y/model.safetensors "$PEFT/conv.merged.safetensors"
    run -0 --separate-stderr shard-ckpt lora-extract --rank 4 "$HF/llama" "$PEFT/plain.merged.safetensors" z
    assert_equal "$stderr" 'shard-ckpt: warning: 1 other tensors differ too and are in no adapter'
}

@test "what a lower rank leaves is what the singular values say" {
    # DoRA changes by more than the rank: norms and tails (rank 4) by numpy.linalg.svd
    shard-ckpt lora-extract -v --rounds 20 --rank 4 "$HF/llama_tied" "$PEFT/dora.merged.safetensors" x >table
    assert_equal "$(numbers_of model.layers.0.self_attn.q_proj.weight)" '1.3409 0.416487'
    assert_equal "$(numbers_of model.layers.0.mlp.down_proj.weight)" '1.39559 0.522326'
    assert_equal "$(numbers_of model.layers.0.self_attn.v_proj.weight)" '0.866678 0.266777'
    run -0 bash -c 'tns-ls x/adapter_model.safetensors | grep -c "lora_[AB].weight"'
    assert_output 14
    run -2 shard-ckpt lora-extract "$HF/llama_tied" "$HF/llama_tied" none
    run -2 shard-ckpt lora-extract --rank 4 "$HF/llama_tied" "$HF/llama_tied" none
    assert_output --partial 'do not differ in any matrix'
}

@test "modules are named one by one where others of their name are not in it" {
    shard-ckpt lora-merge --to safetensors --dtype f32 "$HF/llama" "$PEFT/plain" whole.safetensors
    shard-ckpt convert --to safetensors --dtype f32 --include '.*layers\.0' "$HF/llama" a.safetensors
    shard-ckpt convert --to safetensors --include '.*layers\.[123]\.' whole.safetensors b.safetensors
    tns-cat a.safetensors b.safetensors | tns-export --to safetensors -o some.safetensors -
    shard-ckpt lora-extract --rank 4 --include '.*layers' "$HF/llama" some.safetensors x
    grep -q '"target_modules":\["model.layers.1.self_attn.q_proj",' x/adapter_config.json
    run -0 bash -c 'shard-ckpt ls x | grep -c lora_A' # an adapter is a checkpoint like others
    assert_output 9
    run -0 shard-ckpt verify x
}
