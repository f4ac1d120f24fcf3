# SPDX-License-Identifier: Apache-2.0
# model.bash: a Llama of a given size as a Hugging Face folder, for the scripts of tests/perf.
# shellcheck shell=bash

# model DIR LAYERS [DIST]: 4096 wide, 32 heads, 8 key-value heads; 0.44 GB a layer and 0.52 GB more.
model() {
    local l p specs=(model.embed_tokens.weight:shape=32000x4096)
    for ((l = 0; l < $2; l++)); do
        p=model.layers.$l
        specs+=("$p".{input,post_attention}_layernorm.weight:shape=4096
            "$p".self_attn.{q,o}_proj.weight:shape=4096x4096 "$p".self_attn.{k,v}_proj.weight:shape=1024x4096
            "$p".mlp.{gate,up}_proj.weight:shape=14336x4096 "$p".mlp.down_proj.weight:shape=4096x14336)
    done
    specs+=(model.norm.weight:shape=4096 lm_head.weight:shape=32000x4096)
    tns-gen --dtype bf16 --dist "${3:-uniform}" "${specs[@]}" | shard-ckpt save -q --to hf "$1" || exit 4
    printf '{"model_type":"llama","hidden_size":4096,"num_hidden_layers":%d,"num_attention_heads":32,' "$2" >"$1/config.json"
    printf '"num_key_value_heads":8,"intermediate_size":14336,"vocab_size":32000,"tie_word_embeddings":false}\n' >>"$1/config.json"
}
