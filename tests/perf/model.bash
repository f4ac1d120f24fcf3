# SPDX-License-Identifier: Apache-2.0
# model.bash: a Llama of a given size as a Hugging Face folder, for the scripts of tests/perf.
# shellcheck shell=bash

# specs LAYERS: names and shapes of a Llama 4096 wide, 32 heads, 8 key-value heads; 0.44 GB a layer and
# 0.52 GB more.
specs() {
    local l p
    echo model.embed_tokens.weight 32000x4096
    for ((l = 0; l < $1; l++)); do
        p=model.layers.$l
        printf "$p.%s\n" 'input_layernorm.weight 4096' 'post_attention_layernorm.weight 4096' \
            'self_attn.q_proj.weight 4096x4096' 'self_attn.o_proj.weight 4096x4096' \
            'self_attn.k_proj.weight 1024x4096' 'self_attn.v_proj.weight 1024x4096' \
            'mlp.gate_proj.weight 14336x4096' 'mlp.up_proj.weight 14336x4096' 'mlp.down_proj.weight 4096x14336'
    done
    echo model.norm.weight 4096
    echo lm_head.weight 32000x4096
}

# config DIR LAYERS
config() {
    printf '{"model_type":"llama","hidden_size":4096,"num_hidden_layers":%d,"num_attention_heads":32,' "$2"
    printf '"num_key_value_heads":8,"intermediate_size":14336,"vocab_size":32000,"tie_word_embeddings":false}\n'
} >"$1/config.json"

# model DIR LAYERS: with values.
model() {
    # shellcheck disable=SC2046 # words
    tns-gen --dtype bf16 --dist uniform $(specs "$2" | sed 's/ /:shape=/') |
        shard-ckpt save -q --to hf "$1" || exit 4
    config "$1" "$2"
}

# hole DIR LAYERS: all zeros, in a file that is one hole behind its header.
hole() {
    mkdir -p "$1"
    specs "$2" | awk '{
        n = split($2, d, "x"); bytes = 2 * d[1] * (n > 1 ? d[2] : 1)
        json = json (NR > 1 ? "," : "{") sprintf("\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%.0f,%.0f]}",
            $1, n > 1 ? d[1] "," d[2] : d[1], at, at + bytes)
        at += bytes
    } END { json = json "}"; while (length(json) % 8) json = json " "; print json; printf "%.0f\n", at }' >"$1/.head"
    local json bytes n
    json=$(head -1 "$1/.head") bytes=$(tail -1 "$1/.head") n=${#json}
    rm "$1/.head"
    {
        printf '%016x' "$n" | sed 's/\(..\)/\1\n/g' | tac | tr -d '\n' | xxd -r -p
        printf '%s' "$json"
    } >"$1/model.safetensors"
    truncate -s $((8 + n + bytes)) "$1/model.safetensors"
    config "$1" "$2"
}
