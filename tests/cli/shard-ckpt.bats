#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shard-ckpt on checkpoints that real frameworks wrote, and on broken ones.
load helper

DATA=$BATS_TEST_DIRNAME/../data

# same_as ORACLE: standard input is the digests that the real library computed.
same_as() { sed 's/ - / /' | diff "$1" -; }

@test "--list=maps prints whole lines" {
    shard-ckpt --list=maps | grep -F 'older files lack the prefix)'
}

@test "the digests of Hugging Face folders are those of their bytes" {
    for d in "$DATA"/hf/*/; do
        d=${d%/}
        case $d in *_fused) continue ;; esac # canonical tensors are the experts one by one
        shard-ckpt digest "$d" | same_as "$d.oracle"
    done
}

@test "fused experts are the experts one by one" {
    run -0 shard-ckpt diff "$DATA/hf/mixtral" "$DATA/hf/mixtral_fused"
    assert_output 'equal: 41 tensors'
}

@test "Megatron's own files hold the tensors of the model they were made from" {
    for d in "$DATA"/megatron/*/; do
        d=${d%/}
        shard-ckpt digest "$d" | same_as "$d.oracle"
    done
}

@test "Meta's files hold the tensors of the model they were made from" {
    for d in "$DATA"/meta/*/; do
        d=${d%/}
        shard-ckpt digest "$d" | same_as "$d.oracle"
    done
}

@test "real checkpoints go to every layout and back" {
    for m in llama_even llama_tied llama_mqa mistral qwen2 qwen3 gpt2 gpt_neox mixtral qwen2_moe qwen3_moe; do
        for to in megatron:tp=2,pp=2 megatron:tp=1,pp=1,spec=local tns tns:ranks=3 torch safetensors; do
            # A model of one layer has one stage.
            case $m in *_tied) to=${to/pp=2/pp=1} ;; esac
            rm -rf there back
            shard-ckpt convert --to "$to" "$DATA/hf/$m" there
            shard-ckpt convert --from "${to%%:*}" --to hf there back
            shard-ckpt diff --from-b hf "$DATA/hf/$m" back
        done
    done
}

@test "families without a map go wherever names go, and Megatron is refused" {
    cp -r "$DATA/hf/gemma3" other
    sed -i 's/"gemma3_text"/"somebodys"/' other/config.json
    for to in tns:ranks=3 dcp:ranks=2 torch safetensors; do
        rm -rf there back
        shard-ckpt convert --to "$to" other there
        shard-ckpt convert --from "${to%%:*}" --to hf there back
        shard-ckpt diff --from-b hf other back
    done
    run -2 shard-ckpt convert --to megatron:tp=2 other no
    assert_output --partial "no map has the names of family 'somebodys'"
    run -2 shard-ckpt convert --to meta other no
}

# mtp: deepseek_v3 with the layer that predicts one more token, as its own files have it.
mtp() {
    mkdir mtp
    local from=$DATA/hf/deepseek_v3
    tns-import "$from/model.safetensors" >own.tns
    tns-cat --rename 'model\.layers\.1\.=model.layers.2.' -e 'model\.layers\.1\.' own.tns >layer.tns
    tns-gen --dtype bf16 --seed 5 --shape 32 model.layers.2.enorm.weight model.layers.2.hnorm.weight \
        model.layers.2.shared_head.norm.weight >norms.tns
    tns-gen --dtype bf16 --seed 6 --shape 32,64 model.layers.2.eh_proj.weight >proj.tns
    for n in embed_tokens=embed_tokens lm_head=shared_head.head; do
        tns-cat --rename "(model\\.)?${n%=*}=model.layers.2.${n#*=}" -s "*${n%=*}*" own.tns
    done >copies.tns
    tns-cat own.tns layer.tns norms.tns proj.tns "$@" | tns-export --to safetensors -o mtp/model.safetensors
    cp "$from/config.json" mtp
}

@test "Gemma and DeepSeek go to Megatron's names on any mesh and back" {
    mtp copies.tns
    for to in megatron:tp=2,pp=2 megatron:tp=4 torch_dist; do
        for m in "$DATA/hf/gemma3" "$DATA/hf/deepseek_v3" mtp; do
            rm -rf there back
            shard-ckpt convert --verify-replicas --to "$to" "$m" there
            shard-ckpt convert --to hf there back
            run -0 shard-ckpt diff "$m" back
        done
    done
    for to in megatron:tp=2,ep=2 megatron:tp=2,pp=2,ep=4,spec=local; do
        rm -rf there
        shard-ckpt convert --to "$to" mtp there
        rm -r there/hf # the arguments tell as much
        run -0 shard-ckpt diff mtp there
    done
    run -2 shard-ckpt convert --to torch_dist:spec=local mtp no
    run -3 shard-ckpt convert --to megatron:spec=local "$DATA/hf/gemma3" no
    assert_output --partial 'map mcore-local has no name for 4 tensors'
}

@test "DeepSeek's names and shapes are those of Megatron-core's own model" {
    mtp
    shard-ckpt convert --to megatron:spec=local mtp m
    shard-ckpt ls --pieces m | awk 'NR > 2 { print $NF, $2 }' | sort | diff "$DATA/megatron/deepseek_v3_local.names" -
}

@test "Gemma's norms behind attention and MLP have the names of Megatron's bridge" {
    shard-ckpt convert --to megatron "$DATA/hf/gemma3" m
    run -0 shard-ckpt ls --pieces m
    for n in self_attention.linear_qkv.layer_norm_weight self_attention.linear_proj.post_layernorm.weight \
        mlp.linear_fc1.layer_norm_weight mlp.linear_fc2.post_layernorm.weight; do
        assert_output --partial "decoder.layers.1.$n"
    done
}

@test "a copy of the head that differs from it is not guessed about" {
    tns-gen --dtype bf16 --seed 9 --shape 97,32 model.layers.2.shared_head.head.weight >other.tns
    mtp other.tns
    run -3 shard-ckpt convert --to megatron mtp m
    assert_output --partial shared_head
}

@test "small files travel with the weights" {
    shard-ckpt convert --to megatron:tp=2 "$DATA/hf/llama" m
    [ -f m/hf/tokenizer.json ] && [ -f m/hf/chat_template.jinja ]
    shard-ckpt convert --to hf m h
    for f in config.json generation_config.json tokenizer.json tokenizer_config.json chat_template.jinja; do
        cmp "$DATA/hf/llama/$f" "h/$f"
    done
}

@test "a folder of the hub cache is a source as it is" {
    mkdir -p hub/models--org--tiny/{blobs,refs,snapshots/abc}
    printf abc >hub/models--org--tiny/refs/main
    for f in "$DATA"/hf/llama_sharded/*; do
        cp "$f" "hub/models--org--tiny/blobs/${f##*/}.blob"
        ln -s "../../blobs/${f##*/}.blob" "hub/models--org--tiny/snapshots/abc/${f##*/}"
    done
    run -0 shard-ckpt diff hub/models--org--tiny "$DATA/hf/llama_sharded"
    run -0 shard-ckpt diff hub/models--org--tiny/snapshots/abc "$DATA/hf/llama_sharded"
}

@test "cat into save, across layouts" {
    shard-ckpt cat "$DATA/megatron/llama_tp2_pp2" >m.tns
    tns-check m.tns
    shard-ckpt save --to meta:tp=1 meta <m.tns
    run -0 shard-ckpt diff meta "$DATA/hf/llama"
}

@test "shards are cut where Hugging Face cuts them" {
    shard-ckpt convert --to hf --max-shard-size 20KB "$DATA/hf/llama" h
    [ -f h/model.safetensors.index.json ]
    [ "$(find h -name 'model-*' | wc -l)" -gt 2 ]
    run -0 shard-ckpt diff h "$DATA/hf/llama"
}

@test "a cast changes the dtype and nothing else is lost" {
    shard-ckpt convert --to safetensors --dtype f32 "$DATA/hf/llama" wide.safetensors
    shard-ckpt convert --to safetensors --dtype bf16 wide.safetensors back.safetensors
    run -0 shard-ckpt diff back.safetensors "$DATA/hf/llama"
    run -1 shard-ckpt diff wide.safetensors "$DATA/hf/llama"
    assert_output --partial dtype
}

@test "a value beyond the dtype of a cast is an error, or what --overflow says" {
    tns-gen --dist constant --value 500 -d f32 a:shape=4x3 | shard-ckpt save --to safetensors big.safetensors
    run -2 shard-ckpt convert --to safetensors --dtype f8_e4m3fn big.safetensors o.safetensors
    assert_output --partial "'a' from row 0 on: element 0: 500 is beyond f8_e4m3fn, 448 at most"
    [ ! -e o.safetensors ]
    shard-ckpt convert --to safetensors --dtype f8_e4m3fn --overflow saturate big.safetensors o.safetensors
    tns-gen --dist constant --value 448 -d f8_e4m3fn a:shape=4x3 | tns-diff - o.safetensors
}

@test "include and exclude choose canonical names" {
    run -0 shard-ckpt ls --include 'model\.layers\.0\.' --exclude '.*mlp' "$DATA/hf/llama"
    assert_output --partial 'model.layers.0.self_attn.q_proj.weight'
    refute_output --partial 'mlp'
    refute_output --partial 'layers.1.'
}

@test "a refusal says of what it speaks, and plan refuses what convert does" {
    for c in plan convert; do
        run -2 shard-ckpt $c --to meta:tp=2 "$DATA/hf/llama_mqa" out
        assert_line --index 0 "shard-ckpt: meta:tp=2: 'layers.0.attention.wk.weight': \
1 head does not divide by tp=2, but by 1"
        run -2 shard-ckpt $c --to megatron:spec=none "$DATA/hf/llama" out
        assert_line --index 0 'shard-ckpt: megatron:spec=none: spec= is te, local or legacy'
    done
    shard-ckpt convert --to meta "$DATA/hf/llama" out
    sed -i 's/"head_dim": 8/"head_dim": 16/; s/"num_hidden_layers": 4/"num_hidden_layers": 5/' \
        out/hf/config.json
    run -3 shard-ckpt ls out
    assert_line --regexp '^shard-ckpt: out.* differs: '
}

@test "a tag that names no folder, or one without ranks, is told" {
    mkdir z
    echo global_step3 >z/latest
    run -3 shard-ckpt ls z
    assert_output 'shard-ckpt: z/global_step3: latest names this folder, but it is not there'
    mkdir z/global_step3
    run -3 shard-ckpt ls z
    assert_output 'shard-ckpt: z/global_step3: no *_model_states.pt of DeepSpeed'
}

@test "what was converted with --include reads as a whole, in every layout" {
    local include=(--include '.*layers\.1\.' --include 'model\.norm')
    for to in hf tns tns:ranks=2 megatron:tp=2 megatron:pp=2 megatron:pp=2,layers=3+1 \
        meta:tp=2 dcp torch_dist dcp_hf:ranks=2; do
        rm -rf out back
        shard-ckpt convert --to $to "${include[@]}" "$DATA/hf/llama" out
        run -0 shard-ckpt verify out
        run -0 shard-ckpt diff "${include[@]}" "$DATA/hf/llama" out
        assert_output 'equal: 10 tensors'
        shard-ckpt convert --to hf out back 2>/dev/null # dcp_hf has no config.json
        run -0 shard-ckpt diff "${include[@]}" "$DATA/hf/llama" back
        assert_output 'equal: 10 tensors'
    done
    # A tensor that the conversion chose is missing as ever, and so is a layer.
    shard-ckpt convert --to megatron:pp=2 "${include[@]}" "$DATA/hf/llama" out -f
    sed -i 's/ model\.norm/ model.layers.0.input_layernorm/' out/tensorutils-digests.txt
    run -3 shard-ckpt ls out
    assert_output --partial 'out: layer 0 of 4 is missing'
    shard-ckpt cat "${include[@]}" "$DATA/hf/llama" >part.tns
    run -0 shard-ckpt verify part.tns
    tns-cat -x model.norm.weight part.tns >less.tns # a filter keeps the contents true
    run -0 shard-ckpt verify less.tns
}

@test "a part is not written in Megatron stages that no argument describes" {
    local to=megatron:pp=4,layers=1+2+1+2
    mkdir six
    sed 's/"num_hidden_layers": 4/"num_hidden_layers": 6/' "$DATA/hf/llama/config.json" \
        >six/config.json
    { tns-cat "$DATA/hf/llama/model.safetensors"
      tns-cat -e 'model\.layers\.[01]\.' --rename 'model\.layers\.0=model.layers.4' \
          --rename 'model\.layers\.1=model.layers.5' "$DATA/hf/llama/model.safetensors"
    } | tns-cat --join | tns-export --to safetensors -o six/model.safetensors
    shard-ckpt convert --to $to six whole
    run -2 shard-ckpt convert --to $to --include '.*layers\.1\.' six out
    assert_output --partial 'only the first and the last may differ'
    [ ! -e out ]
}

@test "dcp: what stands before the names is what the digests leave out, whatever the family" {
    for names in 'model.a.w model.b' 'a.w b'; do
        for model in dcp dcp:model=foo.bar dcp:model=; do
            # shellcheck disable=SC2086 # two names
            tns-gen --shape 3,2 $names -o u.tns
            shard-ckpt convert -f --to $model u.tns out
            run -0 shard-ckpt verify out
            run -0 shard-ckpt diff u.tns out
        done
    done
}

@test "choosing nothing that the layout has a place for is an error" {
    run -2 shard-ckpt convert --include 'optim.*' --to hf "$DATA/deepspeed/llama_z1_dp2" o
    assert_output --partial 'layout hf has no place for any of the'
    [ ! -e o ]
}

@test "choosing nothing is an error" {
    run -2 shard-ckpt convert --include nothing --to hf "$DATA/hf/llama" o
    assert_output --partial 'no tensor is selected'
    only_files
}

@test "a configuration that contradicts the tensors is refused" {
    shard-ckpt convert --to hf "$DATA/hf/llama" h
    sed -i 's/"num_key_value_heads": 2/"num_key_value_heads": 1/' h/config.json
    run -3 shard-ckpt convert --to megatron:tp=2 h m
    assert_output --partial "has 16 rows, the configuration makes 8"
    sed -i 's/"num_key_value_heads": 1/"num_key_value_heads": 2/; s/"vocab_size": 101/"vocab_size": 100/' h/config.json
    run -3 shard-ckpt ls h
    assert_output --partial "has 101 rows, the configuration makes 100"
}

@test "a missing rank is named by its coordinates" {
    cp -r "$DATA/megatron/llama_tp2_pp2" m
    rm -r "$(find m -name mp_rank_01_001)"
    run -3 shard-ckpt ls m
    assert_output --partial '1 of 4 ranks are missing: mp_rank_01_001 (tp=1 pp=1 ep=0)'
}

@test "what lies among the ranks and is of none is spoken of, and verify refuses it" {
    shard-ckpt convert --to megatron:tp=2 "$DATA/hf/llama" m
    cp -r m/release/mp_rank_01 m/release/mp_rank_02
    run -0 --separate-stderr shard-ckpt digest m
    assert_equal "$stderr" "shard-ckpt: warning: m/release/mp_rank_02: is no rank of tp=2 pp=1 \
ep=1, as the arguments say them, and is not read"
    run -3 shard-ckpt verify m
    assert_line 'shard-ckpt: m/release/mp_rank_02: belongs to no rank'
    run -1 shard-ckpt inspect m
    assert_line --regexp '^structure +no +m/release/mp_rank_02: belongs to no rank'
    mv m/release/mp_rank_02 m/release/mp_rank_00_001 # of pp=2
    run -3 shard-ckpt verify m
    rm -r m/release/mp_rank_00_001
    run -0 --separate-stderr shard-ckpt verify m
    [ -z "$stderr" ]
    shard-ckpt convert --to dcp:ranks=2 "$DATA/hf/llama" d
    run -0 --separate-stderr shard-ckpt verify d
    [ -z "$stderr" ]
    cp d/__1_0.distcp d/__2_0.distcp
    run -0 --separate-stderr shard-ckpt verify d
    [[ $stderr = *"d/.metadata: does not list '__2_0.distcp', which lies beside it"* ]]
}

@test "a destination that exists is refused without -f, a file too" {
    tns-gen a:shape=3 -o a.tns
    for to in safetensors torch tns hf megatron; do
        for c in convert save prune rename average; do
            case $to:$c in megatron:* | *:rename) source=$DATA/hf/llama ;; *) source=a.tns ;; esac
            case $c in
            save) words=(save --to "$to") ;;
            rename) words=(rename --to "$to" 'x=y' "$source") ;;
            *) words=("$c" --to "$to" "$source") ;;
            esac
            case $to:$c in megatron:save | megatron:rename) continue ;; esac
            rm -rf out
            shard-ckpt "${words[@]}" out <a.tns 2>/dev/null
            before=$(find out -type f -exec cksum {} + | sort)
            run -2 shard-ckpt "${words[@]}" out <a.tns
            assert_output --partial 'out: exists (-f replaces it)'
            [ "$(find out -type f -exec cksum {} + | sort)" = "$before" ]
            shard-ckpt "${words[@]}" -f out <a.tns 2>/dev/null
        done
    done
    shard-ckpt convert --to safetensors a.tns /dev/null # no file to lose
}

@test "a tied head that is left out is named in the metadata" {
    local map='"format":"pt","lm_head.weight":"model.embed_tokens.weight"'
    for to in hf safetensors; do
        rm -rf out
        shard-ckpt convert --to $to "$DATA/hf/llama_tied" out
        file=out
        [ $to = safetensors ] || file=out/model.safetensors
        grep -aq "\"__metadata__\":{$map}" $file
        run -0 shard-ckpt verify out
        shard-ckpt convert -f --to $to --tied copy "$DATA/hf/llama_tied" out
        grep -aq '"__metadata__":{"format":"pt"}' $file
    done
    rm out
    shard-ckpt convert --to hf --max-shard-size 4K "$DATA/hf/llama_tied" out
    [ "$(grep -alF "$map" out/*.safetensors | wc -l)" = 1 ]
    shard-ckpt convert -f --to hf "$DATA/hf/llama" out # not tied
    grep -aq '"__metadata__":{"format":"pt"}' out/model.safetensors
    shard-ckpt convert -f --to hf --exclude '.*embed' "$DATA/hf/llama_tied" out
    grep -aq '"__metadata__":{"format":"pt"}' out/model.safetensors
}

@test "a tensor that grew: what early pieces leave open the last one says" {
    needs_python
    PYTHONPATH=$ROOT/examples/python python3 - <<'PY'
import struct, tns
def write(path, *pieces):
    with open(path, "wb") as f:
        w = tns.Writer(f)
        for whole, first, rows in pieces:
            w.tensor("k", "u8", (rows, 2), bytes(range(2 * first, 2 * first + 2 * rows)),
                     meta={"shard": {"global": [whole, 2], "offset": [first, 0]}})
        w.end()
write("grown.tns", (None, 0, 3), (None, 3, 2), (6, 5, 1))
write("open.tns", (None, 0, 3), (None, 3, 2))
write("past.tns", (None, 0, 3), (None, 3, 4), (6, 5, 1))
PY
    tns-cat --join grown.tns -o whole.tns
    run -0 shard-ckpt diff grown.tns whole.tns
    run -0 shard-ckpt verify grown.tns
    run -3 shard-ckpt digest open.tns
    assert_output "shard-ckpt: open.tns: 'k': shard metadata: no piece says dimension 0 of the whole"
    run -3 shard-ckpt digest past.tns
    assert_output "shard-ckpt: past.tns: 'k': shard metadata: dimension 0 reaches past the whole"
}

# without NAME SOURCE: a copy h of a folder of Hugging Face lacks the tensors that match, and no
# list says that it is to.
without() {
    rm -rf h
    shard-ckpt convert --to hf --exclude "$1" "$2" h
    rm h/tensorutils-digests.txt
}

@test "a checkpoint that lacks a tensor is refused, and the tensor is named" {
    for name in model.norm.weight model.embed_tokens.weight \
        model.layers.1.mlp.down_proj.weight model.layers.3.self_attn.k_proj.weight; do
        without "${name//./\\.}" "$DATA/hf/llama"
        run -0 shard-ckpt verify --include '.*' h
        for c in 'verify h' 'convert --to megatron:tp=2 h m' 'convert --to meta h m' \
            'convert --to hf h m'; do
            # shellcheck disable=SC2086
            run -3 shard-ckpt $c
            assert_output --partial "1 tensor is missing: '$name'"
            [ ! -e m ]
        done
    done
}

@test "everything that is missing is counted, and named as far as it goes" {
    without '.*(q_proj\.weight|norm\.weight)' "$DATA/hf/llama"
    run -3 shard-ckpt verify h
    assert_output --partial "13 tensors are missing: 'model.norm.weight', 'model.layers.0.input_layernorm.weight', 'model.layers.0.self_attn.q_proj.weight', 'model.layers.0.post_attention_layernorm.weight', …"
}

@test "all tensors that a refusal counts are listed" {
    without '.*(q_proj\.weight|norm\.weight)' "$DATA/hf/llama"
    run -3 --separate-stderr shard-ckpt plan --json --to megatron h m
    [ "$(grep -c '"refused":"missing"' <<<"$output")" = 13 ]
    assert_output --partial '{"refused":"missing","name":"model.layers.3.post_attention_layernorm.weight"}'
    run -1 --separate-stderr shard-ckpt inspect h
    [ "$(grep -c '^missing *no  model' <<<"$output")" = 13 ]
    run -3 shard-ckpt convert --to megatron h m
    refute_output --partial 'model.layers.3.'
    run -3 shard-ckpt convert -v --to megatron h m
    assert_line 'shard-ckpt: missing: model.layers.3.post_attention_layernorm.weight'
}

@test "names that a map does not take are listed on both sides" {
    mkdir h
    tns-cat --rename 'model\.layers\.([0-3])\.mlp\.up_proj=model.layers.$1.mlp.upward' \
        "$DATA/hf/llama/model.safetensors" | tns-export --to safetensors -o h/model.safetensors
    cp "$DATA/hf/llama/config.json" h
    run -3 --separate-stderr shard-ckpt plan --to megatron h m
    assert_line --regexp '^unmatched +model.layers.3.mlp.upward.weight$'
    run -3 --separate-stderr shard-ckpt plan --to megatron:spec=legacy "$DATA/hf/qwen3" m
    [ "$(grep -c '^without a name in the layout  model.layers.*norm.weight$' <<<"$output")" = 4 ]
}

@test "quantized models are moved whole, and refused where tensors are cut or cast" {
    for codec in gptq4:group=16 awq4:group=16 int4:group=16 fp8_block nf4:block=32; do
        rm -rf q back
        quantize encode -t "$codec" --to hf -o q "$DATA/hf/llama"
        for to in hf safetensors tns:ranks=3; do
            rm -rf there back
            shard-ckpt convert --to "$to" q there
            shard-ckpt convert --to hf there back
            cmp q/model.safetensors back/model.safetensors
        done
        for bad in '--to megatron:tp=2' '--to meta' '--to torch_dist' '--to hf --dtype f32'; do
            # shellcheck disable=SC2086
            run -3 shard-ckpt convert $bad q no
            assert_output --partial "its weights are quantized"
            assert_output --partial "'quantize decode' turns them"
        done
        run -3 shard-ckpt average q q no
        assert_output --partial 'quantized'
    done
    quantize decode --to hf -o plain q
    shard-ckpt convert --to megatron:tp=2 plain m
}

@test "packed dtypes are carried, and not cut through a block" {
    tns-gen --shape 64,256 a b >plain.tns
    for codec in q4_k q8_0 mxfp4; do
        quantize encode -t "$codec" -o packed.tns plain.tns
        for to in tns tns:ranks=3; do
            rm -rf there back
            shard-ckpt convert --to "$to" packed.tns there
            shard-ckpt convert --to tns there back
            run -0 tns-diff packed.tns back
            shard-ckpt verify there
        done
        run -3 shard-ckpt convert --to safetensors packed.tns no
        assert_output --partial "cannot hold $codec"
    done
    # Two in a byte; rows of an odd number of them begin inside one.
    tns-gen --dtype f4_e2m1 --shape 6,4 even >even.tns
    tns-gen --dtype f4_e2m1 --shape 6,5 odd >odd.tns
    tns-cat even.tns odd.tns >f4.tns
    for to in tns:ranks=3 safetensors hf; do
        rm -rf there back
        shard-ckpt convert --to "$to" f4.tns there
        shard-ckpt convert --from "${to%%:*}" --to tns there back
        run -0 tns-diff f4.tns back
    done
    for to in torch dcp:ranks=3,model=; do
        rm -rf there back
        run -3 shard-ckpt convert --to "$to" odd.tns there
        assert_output --partial "'odd'"
        shard-ckpt convert --to "$to" even.tns there
        shard-ckpt convert --to tns there back
        run -0 tns-diff even.tns back
    done
    run -3 shard-ckpt convert --to hf --dtype f32 f4.tns no
    assert_output --partial 'packed'
}

@test "an empty tensor needs no memory, and is lost in no layout" {
    tns-gen a:shape=0x1099511627776,dtype=f64 b:shape=3 >empty.tns
    for to in tns tns:ranks=2 safetensors hf torch dcp:ranks=2,model= dcp_hf:ranks=2; do
        rm -rf there back
        shard-ckpt convert --to "$to" empty.tns there
        shard-ckpt verify there
        shard-ckpt digest there | grep '^00000000 - f64 0x1099511627776 a$'
        shard-ckpt convert --from "${to%%:*}" --to tns there back
        run -0 tns-diff empty.tns back
    done
}

@test "states that Megatron's files do not name are left behind with a warning" {
    cp -r "$DATA/megatron/llama_tp1" m
    run -0 --separate-stderr shard-ckpt convert --to hf m a
    [ -z "$stderr" ]
    : >m/iter_0000007/mp_rank_00/distrib_optim.pt
    run -0 --separate-stderr shard-ckpt convert --to hf m b
    [[ $stderr = *'distrib_optim.pt) do not say whose they are and are left behind'* ]]
    run -0 --separate-stderr shard-ckpt prune m c
    [ -z "$stderr" ]
}

@test "what a layer must have is known for every family" {
    for case in qwen2:model.layers.1.self_attn.q_proj.bias qwen3:model.layers.0.self_attn.k_norm.weight \
        gpt2:transformer.wpe.weight gpt2:transformer.ln_f.bias gpt2:transformer.h.1.attn.c_attn.weight \
        gpt_neox:gpt_neox.layers.1.mlp.dense_4h_to_h.bias \
        mixtral:model.layers.0.block_sparse_moe.experts.2.w3.weight \
        qwen2_moe:model.layers.1.mlp.shared_expert_gate.weight \
        qwen3_moe:model.layers.1.mlp.gate.weight; do
        name=${case#*:}
        run -0 without "${name//./\\.}" "$DATA/hf/${case%%:*}"
        run -3 shard-ckpt verify h
        assert_output --partial "1 tensor is missing: '$name'"
    done
}

# rename_in FILE FROM TO: in a pickle, names of one length.
rename_in() {
    [ ${#2} = ${#3} ] && LC_ALL=C sed -i "s/${2//./\\.}/$3/" "$1"
}

@test "a tensor that one rank lacks is named with the rank" {
    cp -r "$DATA/megatron/llama_tp2_pp2" m
    rename_in m/iter_0000007/mp_rank_01_001/model_optim_rng.pt \
        decoder.final_layernorm.weight decoder.final_laye_extra_state
    run -3 shard-ckpt verify --no-crc m
    assert_output --partial "1 tensor is not on every rank (tp=1 pp=1 ep=0 lacks the first): 'decoder.final_layernorm.weight'"
}

@test "a tensor that all ranks lack is missing" {
    cp -r "$DATA/megatron/llama_tp2_pp2" m
    for t in 00 01; do
        rename_in m/iter_0000007/mp_rank_${t}_001/model_optim_rng.pt \
            decoder.layers.1.mlp.linear_fc2.weight decoder.layers.1.mlp.linea_extra_state
    done
    run -3 shard-ckpt convert --no-crc --to hf m h
    assert_output --partial "1 tensor is missing: 'model.layers.3.mlp.down_proj.weight'"
    [ ! -e h ]
}

@test "a rank of another save is refused" {
    cp -r "$DATA/megatron/llama_tp2_pp2" m
    cp "$(find "$DATA/megatron/llama_pp2_uneven" -path '*_00_001*' -name '*.pt')" \
        "$(find m -path '*_00_001*' -name '*.pt')"
    run -3 shard-ckpt ls m
    assert_output --partial 'expected tp=2'
}

@test "a rank that is a copy of another is refused" {
    for m in qwen2_tp2 llama_mqa_tp2; do # nothing else is different in the two files' names and shapes
        rm -rf m
        cp -r "$DATA/megatron/$m" m
        cp m/iter_0000007/mp_rank_0{0,1}/model_optim_rng.pt
        run -3 shard-ckpt ls m
        assert_output --partial 'mp_rank_01/model_optim_rng.pt: holds the parts of tensor-parallel rank 0'
    done
    rm -rf m # where the others differ, args.rank says so first
    cp -r "$DATA/megatron/llama_tp2_pp2" m
    cp m/iter_0000007/mp_rank_0{0,1}_001/model_optim_rng.pt
    run -3 shard-ckpt ls m
    assert_output --partial 'mp_rank_01_001/model_optim_rng.pt: args.rank is 2, which is tensor-parallel rank 0, expected rank 1'
}

@test "a stage or a rank of experts that is a copy of another is refused or spoken of" {
    cp -r "$DATA/megatron/llama_tp2_pp2" m
    cp m/iter_0000007/mp_rank_01_00{0,1}/model_optim_rng.pt
    run -3 shard-ckpt ls m
    assert_output --partial 'args.rank is 1, as in m/iter_0000007/mp_rank_01_000/model_optim_rng.pt'
    cp -r "$DATA/megatron/mixtral_ep2" e # two files: args.rank is 0 in both then
    run -0 --separate-stderr shard-ckpt ls e
    assert_equal "$stderr" ''
    cp e/iter_0000007/mp_rank_00_00{0,1}/model_optim_rng.pt
    run -0 --separate-stderr shard-ckpt ls e
    assert_regex "$stderr" 'mp_rank_00_001/model_optim_rng.pt: its weights begin as those of tp=0 pp=0 ep=0 do'
    shard-ckpt convert --to megatron:pp=4 "$DATA/hf/llama_demo" p # whole layers, saved by one process
    run -0 --separate-stderr shard-ckpt ls p
    assert_equal "$stderr" ''
    cp p/release/mp_rank_00_00{1,2}/model_optim_rng.pt
    run -0 --separate-stderr shard-ckpt ls p
    assert_regex "$stderr" 'mp_rank_00_002/model_optim_rng.pt: its weights begin as those of tp=0 pp=1 ep=0 do'
}

@test "uneven stages are refused unless given" {
    run -2 shard-ckpt convert --to megatron:pp=3 "$DATA/hf/llama" m
    assert_output --partial '4 layers do not divide by pp=3'
    [ ! -e m ]
    shard-ckpt convert --to megatron:pp=3,layers=2+1+1 "$DATA/hf/llama" m
    run -0 shard-ckpt diff m "$DATA/hf/llama"
}

@test "splits that do not come out even are refused with the tensor" {
    run -2 shard-ckpt convert --to megatron:tp=3 "$DATA/hf/llama" m
    assert_output --partial 'do not divide by tp=3'
    only_files
}

@test "a split that does not come out even names those that do" {
    run -2 shard-ckpt convert --to megatron:pp=3 "$DATA/hf/llama" m
    assert_output --partial 'one of 1, 2, 4, or give layers='
    run -2 shard-ckpt convert --to megatron:tp=3 "$DATA/hf/llama" m
    assert_output --regexp 'divide by tp=3, but by 1, 2, 4'
}

@test "an index is a source, and stands for its folder" {
    run -0 shard-ckpt diff "$DATA/hf/llama_sharded/model.safetensors.index.json" "$DATA/hf/llama_sharded"
    run -0 shard-ckpt diff "$DATA/hf/llama_v4_bins/pytorch_model.bin.index.json" "$DATA/hf/llama_v4_bins"
    cd "$DATA/hf/llama_sharded"
    run -0 shard-ckpt ls --json model.safetensors.index.json
    assert_output --partial '"layout":"hf"'
    assert_output --partial '"family":"llama"'
}

@test "META of a model is canonical: its keys are sorted" {
    needs_python
    shard-ckpt cat "$DATA/hf/qwen3_moe" >m.tns
    python3 - <<'END'
import json
data = open("m.tns", "rb").read()
text = data[data.rindex(b"{", 0, data.index(b'"family"')):]
keys = [k for k, _ in json.JSONDecoder(object_pairs_hook=list).raw_decode(text.decode("latin1"))[0]]
assert "vocab" in keys and keys == sorted(keys), keys
END
}

@test "a user's line without read does not rename what Megatron has a name for" {
    shard-ckpt convert --to hf "$DATA/hf/llama" h
    LC_ALL=C sed -i 's/model\.norm\.weight/model.nrom.weight/' h/model.safetensors
    printf 'model\\.nrom\\.weight\tnorm.weight\tcopy\n' >own.map
    run -3 shard-ckpt verify h
    shard-ckpt convert --map own.map --to megatron:tp=2 h m
    run -0 shard-ckpt ls --pieces m
    assert_output --partial 'decoder.final_layernorm.weight'
    run -0 shard-ckpt diff m "$DATA/hf/llama"
    run -0 shard-ckpt diff --map own.map m h
}

@test "a cast is said in config.json, whose other bytes stay" {
    shard-ckpt convert --to hf --dtype f16 "$DATA/hf/llama" h
    grep -Eq '"(torch_)?dtype": "float16"' h/config.json
    run -0 diff <(sed -E 's/("(torch_)?dtype": )"[a-z0-9]*"/\1/' "$DATA/hf/llama/config.json") \
        <(sed -E 's/("(torch_)?dtype": )"[a-z0-9]*"/\1/' h/config.json)
    shard-ckpt convert --to hf "$DATA/hf/llama" n
    sed -Ei '/dtype"/d' n/config.json
    shard-ckpt convert --to hf --dtype f32 n o
    grep -q '"torch_dtype": "float32",' o/config.json
}

@test "--list names layouts and maps" {
    shard-ckpt --list=subcommands | grep -q $'^convert\t'
    shard-ckpt --list=layouts | grep -q $'^megatron\t'
    shard-ckpt --list=maps | grep -q $'^mcore-te\t'
}

@test "a layout shows its names and cuts, and they are what --map takes" {
    run -0 shard-ckpt layout show megatron
    assert_line '#   tp: tensor-parallel size'
    assert_line --partial $'layers.$1.attn.{q,k,v}.$2\tqkv,column'
    shard-ckpt layout show hf-llama >own.map
    shard-ckpt convert --map own.map --to megatron:tp=2 "$DATA/hf/llama" m
    run -0 shard-ckpt diff "$DATA/hf/llama" m
    run -0 shard-ckpt layout show hf
    assert_line '# names: those of the family'"'"'s map'
    run -0 shard-ckpt layout show --json meta
    assert_line '{"map":"meta-llama","pattern":"norm\\.weight","target":"norm.weight","transform":"copy"}'
    run -2 shard-ckpt layout show nothing
    run -2 shard-ckpt layout hide megatron
}

@test "a plan counts the small files" {
    run -0 shard-ckpt plan --json --to megatron "$DATA/hf/llama" m
    assert_output --partial '{"path":"hf/config.json","tensors":0,"bytes":712}'
    run -0 shard-ckpt plan --to megatron "$DATA/hf/llama" m
    assert_output --partial 'm/hf/tokenizer.json'
}

@test "a plan that does not fit says so and is answered no" {
    [ "$(stat -f -c %a /proc)" = 0 ] || skip 'no file system here that is always full'
    run -1 shard-ckpt plan --to hf "$DATA/hf/llama" /proc/none
    assert_output --partial 'does not fit'
    run -1 shard-ckpt plan --json --to hf "$DATA/hf/llama" /proc/none
    assert_output --partial '"fits":false'
}

@test "a signal leaves no partial folder" {
    tns-gen --shape 4096,4096 --dtype f32 a b -o big.tns
    shard-ckpt convert --to tns:ranks=4 big.tns out &
    for ((i = 0; i < 1000; i++)); do
        [ -z "$(compgen -G 'out.partial-*')" ] || break
        sleep 0.002
    done
    kill -TERM $!
    rc=0
    wait $! || rc=$?
    [ $rc = 143 ]
    only_files big.tns
}

@test "a signal leaves no partial folder, whatever is in it" {
    # shellcheck disable=SC2046 # words
    tns-gen $(printf 'w%d:shape=262144 ' {1..180}) --dtype f32 --dist constant |
        shard-ckpt save -q --to safetensors m.safetensors
    cp -r "$DATA/deepspeed/llama_z1_dp2" z # becomes folders in folders
    local killed=0 i pid signal rc
    for ((i = 0; i < 24; i++)); do
        local how=(--to universal z)
        ((i % 2)) && how=(--to hf -j1 --max-shard-size 64K m.safetensors) # 180 files
        signal=TERM
        ((i % 3)) && signal=HUP
        shard-ckpt convert -q "${how[@]}" out &
        pid=$!
        until [ -e out ] || compgen -G 'out.partial-*' >/dev/null; do sleep 0.002; done
        sleep "0.00$((RANDOM % 10))"
        kill -s $signal $pid 2>/dev/null || true
        rc=0
        wait $pid || rc=$?
        [ $rc = 0 ] || { [ $rc -gt 128 ] && killed=$((killed + 1)); }
        rm -rf out
        if compgen -G 'out.partial-*'; then return 1; fi
    done
    [ $killed -gt 0 ] # 180 MiB in 180 files are not written in 10 ms each time
}

@test "a conversion without descriptors leaves no partial folder" {
    for n in 6 7 8 9 10; do
        run -4 bash -c "exec 3>/dev/null; ulimit -n $n
            shard-ckpt convert --to megatron:tp=2,pp=2 '$DATA/hf/llama_demo' out"
        if compgen -G 'out*'; then return 1; fi
    done
}

@test "save does not wait for a terminal" {
    needs_terminal
    run script -qec 'shard-ckpt save --to hf out; echo status $?' /dev/null
    assert_output --partial 'standard input is a terminal'
    assert_output --partial 'status 2'
    [ ! -e out ]
}

@test "a replica that differs is named in full" {
    needs_python
    shard-ckpt convert --to megatron:tp=2 "$DATA/hf/llama" m
    python3 - "$DATA/hf/llama/model.safetensors" m/release/mp_rank_01/model_optim_rng.pt <<'END'
import json, sys
data = open(sys.argv[1], "rb").read()
n = 8 + int.from_bytes(data[:8], "little")
first, end = json.loads(data[8:n])["model.layers.2.post_attention_layernorm.weight"]["data_offsets"]
rank = bytearray(open(sys.argv[2], "rb").read())
rank[rank.index(data[n + first : n + end])] ^= 1
open(sys.argv[2], "wb").write(rank)
END
    run -1 shard-ckpt verify --no-crc m
    assert_output --partial "'decoder.layers.2.mlp.linear_fc1.layer_norm_weight' differs from its replica at element 0"
    run -3 shard-ckpt convert --verify-replicas --no-crc --to hf m o
}

@test "a missing last file of Meta's is named" {
    cp -r "$DATA/meta/llama3_2" m
    rm m/consolidated.01.pth
    run -3 shard-ckpt verify m
    assert_output --partial 'consolidated.01.pth is missing (2 in all)'
}

@test "a file that another names and that is missing is a bad checkpoint, not a failed read" {
    while read -r from file why; do
        rm -rf broken
        cp -r "$DATA/$from" broken
        chmod -R u+w broken
        rm -r "broken/$file"
        run -3 shard-ckpt digest broken
        assert_output --partial "broken/$file: missing: $why"
    done <<'END'
megatron/llama_tp2_pp2 iter_0000007/mp_rank_01_001/model_optim_rng.pt the weights of tp=1 pp=1 ep=0
torch_dist/llama_tp2_pp2 iter_0000007/__3_1.distcp a chunk is expected in it
torch_dist/llama_tp2_pp2 iter_0000007/.metadata it says which chunk is in which file
dcp/tp2_dp2 __2_0.distcp a chunk is expected in it
meta/llama3_2 params.json it tells the heads and layers
END
}

@test "a configuration that is no file is not taken for none" {
    cp -r "$DATA/hf/llama_demo" odd
    chmod -R u+w odd
    rm odd/config.json
    mkfifo odd/config.json
    run -3 shard-ckpt digest odd
    assert_output 'shard-ckpt: odd/config.json: no regular file'
    rm odd/config.json
    ln -s ../blobs/none odd/config.json
    run -3 shard-ckpt digest odd
    assert_output 'shard-ckpt: odd/config.json: no regular file'
}

@test "an existing destination is refused, and replaced whole with -f" {
    shard-ckpt convert --to hf "$DATA/hf/llama" out
    run -2 shard-ckpt convert --to hf "$DATA/hf/llama_even" out
    assert_output --partial 'exists (-f replaces it)'
    run -0 shard-ckpt diff out "$DATA/hf/llama"
    shard-ckpt convert -f --to hf "$DATA/hf/llama_even" out
    run -0 shard-ckpt diff out "$DATA/hf/llama_even"
    [ "$(ls)" = out ]
}

@test "nothing is converted in place" {
    cp -r "$DATA/hf/llama" h
    run -2 shard-ckpt convert -f --to hf h h
    assert_output --partial 'in place'
    run -2 shard-ckpt convert -f --to megatron h h/inner
    assert_output --partial 'in place'
    run -0 shard-ckpt diff h "$DATA/hf/llama"
}

@test "a tied head that differs from the embedding is not guessed about" {
    shard-ckpt convert --to hf "$DATA/hf/llama" h
    sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' h/config.json
    run -3 shard-ckpt convert --to megatron h m
    assert_output --partial 'lm_head.weight'
    [ ! -e m ]
    for command in digest cat "diff h"; do
        # shellcheck disable=SC2086 # a command and its first operand
        run -3 shard-ckpt $command h
        assert_output --partial 'but the configuration ties them (--untied keeps both)'
    done
    shard-ckpt convert --untied --to megatron h m
}

@test "tied heads: dropped, or copied on request" {
    shard-ckpt convert --to hf "$DATA/hf/llama_tied" a
    shard-ckpt convert --to hf --tied copy "$DATA/hf/llama_tied" b
    run -0 shard-ckpt ls --from safetensors a/model.safetensors
    refute_output --partial lm_head
    tns-import b/model.safetensors -o b.tns
    run -0 tns-ls b.tns
    assert_output --partial lm_head
    run -0 shard-ckpt diff a b
}

@test "vocabulary padding is zeros, or the last row" {
    shard-ckpt convert --to megatron:tp=2,pad=32 "$DATA/hf/llama" m
    run -0 shard-ckpt ls --pieces m
    assert_output --partial '64x32'
    shard-ckpt convert --to megatron:tp=2,pad=32 --vocab-pad last "$DATA/hf/llama" n
    run -1 cmp m/release/mp_rank_01/model_optim_rng.pt n/release/mp_rank_01/model_optim_rng.pt
    run -0 shard-ckpt diff m n
}

@test "--config stands for the config.json of a model" {
    shard-ckpt convert -q --to torch "$DATA/hf/llama" sd.pt
    run -3 shard-ckpt convert --family llama --to megatron:tp=2 sd.pt m
    assert_output --partial '--config gives the model'
    shard-ckpt convert -q --config "$DATA/hf/llama/config.json" --to megatron:tp=2 sd.pt m
    run -0 shard-ckpt diff m "$DATA/hf/llama"
    run -0 --separate-stderr shard-ckpt convert --to hf sd.pt h
    assert_equal "$stderr" 'shard-ckpt: warning: h: gets no config.json, as sd.pt has none (--config)'
    run -0 --separate-stderr shard-ckpt convert --config "$DATA/hf/llama/config.json" -f --to hf sd.pt h
    assert_equal "$stderr" ''
    cmp h/config.json "$DATA/hf/llama/config.json"
    sed 's/"num_key_value_heads": *[0-9]*/"num_key_value_heads": 3/' h/config.json >wrong.json
    run -3 shard-ckpt digest --config wrong.json h # before the one that lies there
}

@test "what stands before the names of a family is spoken of" {
    shard-ckpt convert -q --to torch "$DATA/hf/llama" sd.pt
    shard-ckpt rename -q '=net.module.' sd.pt under.pt
    run -0 --separate-stderr shard-ckpt ls under.pt
    assert_equal "$stderr" "shard-ckpt: warning: under.pt: all names begin 'net.module.', without \
which they are those of family llama: shard-ckpt rename 'net\\.module\\.=' takes it off"
    shard-ckpt rename -q 'net\.module\.=' under.pt again.pt
    run -0 --separate-stderr shard-ckpt diff again.pt sd.pt
    assert_equal "$stderr" ''
    shard-ckpt convert --to dcp:model=net.module "$DATA/hf/llama" d
    rm d/config.json d/tensorutils-digests.txt
    run -0 --separate-stderr shard-ckpt ls d
    assert_regex "$stderr" '--from dcp:model=net.module takes it off'
    run -3 shard-ckpt convert --from dcp:model=nothing --to hf d none
    assert_output --partial 'none of its 39 tensors is taken'
}

@test "names that the family does not have are refused in every layout, and read with --include" {
    shard-ckpt rename -q 'model\.norm=model.norn' "$DATA/hf/llama" h
    shard-ckpt convert --to dcp:ranks=2 "$DATA/hf/llama" d
    cp -r "$DATA/deepspeed/llama_z1_dp2" z
    find d -name .metadata -exec sed -i 's/model\.norm\.weight/model.norn.weight/g' {} +
    for f in z/global_step3/*.pt; do rename_in "$f" model.norm.weight model.norn.weight; done
    for c in h d z; do
        run -3 shard-ckpt digest --no-crc $c
        assert_output --partial "$c: no line of map hf-llama takes 1 of its tensors: 'model.norn.weight' (--include '.*' reads"
        run -0 shard-ckpt digest --no-crc --include '.*' $c
        assert_output --partial ' model.norn.weight'
        run -0 shard-ckpt ls --no-crc --exclude '.*norn' $c
        refute_output --partial norn
    done
}

@test "-o is no option where the destination is an operand" {
    for c in 'convert --to hf a' 'save --to hf' 'prune a' 'rename x=y a'; do
        # shellcheck disable=SC2086 # words
        run -2 shard-ckpt $c -o out
        assert_line "shard-ckpt: the destination is the last operand: -o is the report's file"
    done
}

@test "an unknown tensor is listed, not dropped" {
    cp -r "$DATA/hf/llama" h
    tns-import h/model.safetensors | tns-cat --rename 'model\.norm\.weight=model.norm.wight' - |
        tns-export --to safetensors -o h/model.safetensors
    run -3 shard-ckpt convert --to megatron h m
    assert_output --partial "'model.norm.wight'"
    printf 'model\\.norm\\.wight\tnorm.weight\tread\n' >own.map
    shard-ckpt convert --map own.map --to megatron h m
    run -0 shard-ckpt diff m "$DATA/hf/llama"
}

@test "verify finds a changed byte" {
    shard-ckpt convert --to megatron:tp=2 "$DATA/hf/llama" m
    run -0 shard-ckpt verify m
    f=m/release/mp_rank_00/model_optim_rng.pt
    printf '\xff' | dd of=$f bs=1 seek=$(($(stat -c %s $f) / 2)) conv=notrunc status=none
    run -3 shard-ckpt verify m
}

# spoil FILE: turn one bit in the middle of the file.
spoil() {
    local at=$(($(stat -c %s "$1") / 2))
    printf %02x $((0x$(xxd -s $at -l 1 -p "$1") ^ 1)) | xxd -r -p |
        dd of="$1" bs=1 seek=$at conv=notrunc status=none
}

@test "no subcommand carries on what a stored checksum disowns" {
    shard-ckpt convert --to megatron:tp=2 "$DATA/hf/llama_even" meg
    shard-ckpt convert --to tns "$DATA/hf/llama_even" s.tns
    cp -r meg good
    spoil s.tns
    spoil meg/release/mp_rank_01/model_optim_rng.pt
    for bad in s.tns meg; do
        for c in "convert --to hf $bad out" "cat $bad" "digest $bad" "diff $bad $bad" \
            "average $bad good out" "verify $bad" "inspect --why $bad" "convert -j 7 --memory 1M --to tns $bad out"; do
            # shellcheck disable=SC2086 # words
            run shard-ckpt $c
            [ "$status" = 3 ] || [ "$status,${c%% *}" = 1,inspect ] || fail "$c: $status"
            [[ $output == *checksum* ]] || fail "$c: $output"
            [ ! -e out ]
        done
    done
    shard-ckpt convert --no-crc --to hf s.tns out
}

@test "SHA-256 of tensors of one shape, taken together, is that of the bytes of each" {
    specs=()
    for i in {10..44}; do specs+=("w$i:shape=9x37"); done
    tns-gen "${specs[@]}" "long:shape=4001x37" -o s.tns
    for name in "${specs[@]%%:*}" long; do
        tns-cat -s "$name" s.tns | tns-export --to npy -o "$name.npy"
        rows=9
        [ "$name" != long ] || rows=4001
        printf '%s %s\n' "$(tail -c $((rows * 37 * 4)) "$name.npy" | sha256sum | cut -d' ' -f1)" "$name"
    done | sort -k2 >want
    for limits in "-j1" "-j2" "-j1 --memory 1M" "-j16"; do
        # shellcheck disable=SC2086 # words
        shard-ckpt digest $limits --sha256 s.tns | awk '$1 !~ /#/ { print $2, $NF }' | sort -k2 >got
        cmp want got
        # shellcheck disable=SC2086 # words
        shard-ckpt convert -f $limits --sha256 --to hf s.tns out
        awk '$1 !~ /#/ { print $2, $NF }' out/tensorutils-digests.txt | sort -k2 | cmp want -
    done
}

@test "verify compares with the digests that lie in the folder" {
    for sha in "" --sha256; do
        rm -rf out
        # shellcheck disable=SC2086 # none or one
        shard-ckpt convert $sha --to hf "$DATA/hf/llama_even" out
        n=$(wc -l <out/tensorutils-digests.txt)
        shard-ckpt verify --json out | grep -q "\"checksums\":0,\"replicas\":0,\"digests\":$n,"
        shard-ckpt verify --include 'model\.layers\.0\.' out
        spoil out/model.safetensors
        run -3 shard-ckpt verify out
        assert_output --partial "is not what out/tensorutils-digests.txt lists"
        run -1 shard-ckpt inspect --why out
        assert_output --partial "is not what out/tensorutils-digests.txt lists"
    done
    spoil out/model.safetensors
    sed -i 2d out/tensorutils-digests.txt
    run -3 shard-ckpt verify out
    assert_output --partial "is there and not listed"
    shard-ckpt digest --sha256 out >out/tensorutils-digests.txt
    sed -n 's/norm\.weight$/norm.height/p' out/tensorutils-digests.txt | tail -1 >>out/tensorutils-digests.txt
    run -3 shard-ckpt verify out
    assert_output --partial "is listed and not there"
    echo nonsense >out/tensorutils-digests.txt
    run -3 shard-ckpt verify out
    assert_output --partial "is no line of a manifest"
}

@test "a rank of another model is found" {
    shard-ckpt convert --to megatron:tp=2 "$DATA/hf/llama" a
    shard-ckpt convert --to megatron:tp=2 "$DATA/hf/llama_even" b
    sed -i 's/"vocab_size": 128/"vocab_size": 101/' b/hf/config.json
    cp b/release/mp_rank_01/model_optim_rng.pt a/release/mp_rank_01/
    run -3 shard-ckpt verify a
    assert_output --partial 'mp_rank_01'
}

@test "plan says what would be written and writes nothing" {
    run -0 shard-ckpt plan --json --to megatron:tp=2,pp=2 "$DATA/hf/llama" m
    assert_output --partial '"write_bytes":'
    assert_output --partial 'release/mp_rank_01_001/model_optim_rng.pt'
    only_files
}

@test "plan: the report has each file's bytes, as the text has" {
    shard-ckpt convert --to hf --max-shard-size 40K "$DATA/hf/llama" out
    shard-ckpt plan --to hf --max-shard-size 40K "$DATA/hf/llama" new --json >plan
    for file in out/*.safetensors; do # 8 bytes and the header stand before the tensors
        header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
        bytes=$(($(stat -c %s "$file") - 8 - header))
        grep -q "\"path\":\"${file#out/}\",\"tensors\":[0-9]*,\"bytes\":$bytes}" plan
    done
    grep -q '"path":"config.json","tensors":0,"bytes":'"$(stat -c %s out/config.json)" plan
}

@test "a full device leaves nothing behind" {
    mkdir small
    # In a mount namespace of its own, which ends with the last of its processes.
    cat >full <<'END'
mount -t tmpfs -o size=64k none small || exit 77
shard-ckpt convert --to megatron:tp=2 "$DATA/hf/llama" small/m 2>err
echo "$?" >status
ls -A small >left
END
    DATA=$DATA unshare --mount sh full 2>/dev/null || skip 'cannot mount here'
    [ "$(cat status)" = 4 ]
    [ ! -s left ]
    grep -q 'the result needs' err
}

@test "killed at any instant, a convert leaves the whole checkpoint or none" {
    echo "seed ${TENSORUTILS_TEST_SEED:=$$}" >&3
    RANDOM=$TENSORUTILS_TEST_SEED
    kills=20
    [ -z "${SLOW:-}" ] || kills=200
    tns-gen --shape 2048,1024 --dtype bf16 a b c d e f -o big.tns
    for ((i = 0; i < kills; i++)); do
        rm -rf out
        shard-ckpt convert --to tns:ranks=4 big.tns out &
        sleep "0.0$((RANDOM % 80 + 10))"
        kill -9 $! 2>/dev/null || true
        wait $! 2>/dev/null || true
        [ ! -e out ] || shard-ckpt diff big.tns out >/dev/null
    done
    rm -rf out
    shard-ckpt convert --to tns:ranks=4 big.tns out
    shard-ckpt diff big.tns out
    [ "$(ls)" = "$(printf 'big.tns\nout')" ]
}

# race OPTION LAYOUT...: convert the demo to each at the same time; how many succeeded. The others
# refuse, and nothing but the destination remains.
race() {
    local option=$1 pids=() done=0
    shift
    for layout; do
        # shellcheck disable=SC2086 # none or one word
        shard-ckpt convert $option --to "$layout" "$DATA/hf/llama_demo" out 2>/dev/null &
        pids+=($!)
    done
    for p in "${pids[@]}"; do
        local rc=0
        wait "$p" || rc=$?
        [ $rc = 0 ] && done=$((done + 1))
        [ $rc = 0 ] || [ $rc = 2 ] || echo "status $rc"
    done
    echo "$done done"
    ls -d out*
}

@test "of runs to one destination at the same time one wins" {
    run -0 race '' megatron:tp=2 megatron:tp=2 megatron:tp=2 megatron:tp=2
    assert_output $'1 done\nout'
    rm -r out
    run -0 race '' megatron:tp=2 megatron:pp=2 meta:tp=2 hf
    assert_output $'1 done\nout'
    run -0 race -f megatron:tp=2 megatron:tp=2 megatron:pp=2 meta:tp=2
    assert_line --regexp '^[1-4] done$'
    assert_line --index 1 out
    refute_line --partial .partial
    run -0 shard-ckpt diff "$DATA/hf/llama_demo" out
}

@test "files are recognised by contents, whatever they are called" {
    for layout in safetensors torch tns; do
        run -0 shard-ckpt convert --to $layout "$DATA/hf/llama_demo" plain
        run -0 shard-ckpt diff plain "$DATA/hf/llama_demo"
        mv plain wrong.bin
        run -0 shard-ckpt diff wrong.bin "$DATA/hf/llama_demo"
        mv wrong.bin wrong.tns
        run -0 shard-ckpt diff wrong.tns "$DATA/hf/llama_demo"
    done
    echo text >wrong.tns
    run -3 shard-ckpt ls wrong.tns
    assert_output --partial 'not a tensor stream'
}

# average_of WEIGHTS FILE...: the oracle: exact fractions of bf16 values, rounded once to bf16.
average_of() {
    python3 - "$@" <<'END'
import json, struct, sys
from fractions import Fraction as F
w = [F(float(x)) for x in sys.argv[1].split(',')]
def load(path):
    raw = open(path, 'rb').read()
    n = struct.unpack('<Q', raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    head.pop('__metadata__', None)
    return {k: [F(struct.unpack('<f', b'\0\0' + raw[8 + n + i:10 + n + i])[0])
                for i in range(*v['data_offsets'], 2)] for k, v in head.items()}
def bf16(x):
    if not x: return 0
    s, x, e = x < 0, abs(x), 0
    while x >= 2: x, e = x / 2, e + 1
    while x < 1 and e > -126: x, e = x * 2, e - 1
    m = round(x * 128) # halves to even
    return s << 15 | ((e + 126) * 128 + m if x >= 1 else m)
files = [load(f) for f in sys.argv[2:]]
for k in sorted(files[0]):
    bits = [bf16(sum(a * f[k][i] for a, f in zip(w, files)) / sum(w)) for i in range(len(files[0][k]))]
    print(k, ' '.join('%04x' % b for b in bits))
END
}

# noise NAME SEED: a model of two tensors.
noise() { tns-gen a:shape=7x33 b:shape=5 --dtype bf16 --seed "$2" -o n.tns && tns-export --to safetensors -o "$1" n.tns; }

@test "the mean is that of exact arithmetic, rounded once" {
    needs_python
    for i in 1 2 3; do noise $i.safetensors $i; done
    shard-ckpt average --to safetensors 1.safetensors 2.safetensors 3.safetensors m.safetensors
    average_of 1 m.safetensors >got
    average_of 1,1,1 1.safetensors 2.safetensors 3.safetensors | diff - got
    shard-ckpt average --to safetensors --weights 3,-0.5,1 1.safetensors 2.safetensors 3.safetensors w.safetensors
    average_of 1 w.safetensors >got
    average_of 3,-0.5,1 1.safetensors 2.safetensors 3.safetensors | diff - got
    # 0.75 (0.75 a + 0.25 b) + 0.25 c
    shard-ckpt average --to safetensors --ema 0.75 1.safetensors 2.safetensors 3.safetensors e.safetensors
    average_of 1 e.safetensors >got
    average_of 0.5625,0.1875,0.25 1.safetensors 2.safetensors 3.safetensors | diff - got
}

@test "an average takes sources of different layouts and refuses different tensors" {
    shard-ckpt average --to megatron:tp=2 "$DATA/hf/llama" "$DATA/megatron/llama_tp2_pp2" m
    run -0 shard-ckpt diff m "$DATA/hf/llama"
    run -3 shard-ckpt average "$DATA/hf/llama" "$DATA/hf/qwen2" no
    assert_output --partial 'has another shape'
    run -2 shard-ckpt average --weights 1,2,3 "$DATA/hf/llama" "$DATA/hf/llama" no
    assert_output --partial '3 weights for 2 sources'
    run -2 shard-ckpt average --weights 1,-1 "$DATA/hf/llama" "$DATA/hf/llama" no
    run -2 shard-ckpt average -f "$DATA/hf/llama" m m
    assert_output --partial overlap
    [ ! -e no ]
}

@test "an average keeps what is no number, and optimizer states stay behind" {
    tns-gen x:shape=3 --dtype i64 --seed 1 -o a.tns
    tns-gen x:shape=3 --dtype i64 --seed 2 -o b.tns
    shard-ckpt average --to tns a.tns b.tns m.tns
    run -0 shard-ckpt diff m.tns b.tns
    shard-ckpt average --to tns "$DATA/deepspeed/toy_z1_dp2" "$DATA/deepspeed/toy_z1_dp2" z.tns
    run -1 bash -c 'shard-ckpt digest z.tns | grep optim'
}

@test "rename gives tensors other names and no two the same" {
    shard-ckpt rename --to safetensors 'model\.layers\.(\d+)\.=blk.$1.' 'lm_head=output' "$DATA/hf/llama" r.safetensors
    shard-ckpt digest "$DATA/hf/llama" | sed -E 's/ model\.layers\.([0-9]+)\./ blk.\1./; s/ lm_head/ output/' | sort -k5 >want
    shard-ckpt digest r.safetensors | sort -k5 | diff want -
    run -2 shard-ckpt rename --to safetensors 'model\.layers\.\d+\.=x.' "$DATA/hf/llama" no.safetensors
    assert_output --partial "would both be 'x."
    run -2 shard-ckpt rename --to safetensors 'model=m' "$DATA/megatron/llama_tp2_pp2" no.safetensors
    assert_output --partial 'convert it first'
    # A wrapper's prefix hides the family; without it the folder is a model again.
    mkdir w && cp "$DATA/hf/llama/config.json" w
    shard-ckpt rename --to safetensors '=module.' "$DATA/hf/llama" w/model.safetensors
    run -3 shard-ckpt ls w
    shard-ckpt rename 'module\.=' w u
    run -0 shard-ckpt diff u "$DATA/hf/llama"
    # States follow their weights.
    shard-ckpt rename --to tns 'first\.=erst.' "$DATA/deepspeed/toy_z1_dp2" s.tns
    run -0 bash -c 'shard-ckpt digest s.tns | grep -c "erst\."'
    assert_output "$(shard-ckpt digest "$DATA/deepspeed/toy_z1_dp2" | grep -c 'first\.')"
}

# same_tree A B: the same files with the same bytes.
same_tree() { diff -r "$1" "$2"; }

@test "parts write what one process writes, and the last publishes" {
    shard-ckpt convert --to megatron:tp=2,pp=2 "$DATA/hf/llama" one
    for i in 2 1 3; do
        shard-ckpt convert --part $i/3 --to megatron:tp=2,pp=2 "$DATA/hf/llama" m
        [ -d m ] && [ $i -ne 3 ] && return 1
    done
    same_tree one m
    only_files_of_m=$(find . -maxdepth 1 -name 'm.*')
    [ -z "$only_files_of_m" ]
    run -2 shard-ckpt convert --part 4/3 --to hf "$DATA/hf/llama" no
    run -2 shard-ckpt convert --part 1/2 --to safetensors "$DATA/hf/llama" no
    assert_output --partial 'one file is not written by parts'
    run -2 env -u SLURM_PROCID -u PMI_RANK -u OMPI_COMM_WORLD_RANK shard-ckpt convert --part auto --to hf "$DATA/hf/llama" no
    assert_output --partial 'no launcher has numbered'
}

@test "parts at the same time, numbered by each launcher" {
    shard-ckpt convert --to hf --max-shard-size 20KB "$DATA/hf/llama" one
    for names in OMPI_COMM_WORLD_RANK:OMPI_COMM_WORLD_SIZE PMI_RANK:PMI_SIZE SLURM_PROCID:SLURM_NTASKS; do
        rm -rf m
        pids=()
        for i in 0 1 2 3; do
            env "${names%:*}=$i" "${names#*:}=4" shard-ckpt convert --part auto --to hf --max-shard-size 20KB "$DATA/hf/llama" m &
            pids+=($!)
        done
        for p in "${pids[@]}"; do wait "$p"; done
        same_tree one m
    done
}

@test "a killed part is run again alone, and parts of another source do not mix" {
    cp -r "$DATA/hf/llama" src
    shard-ckpt convert --to megatron:tp=4 src one
    shard-ckpt convert --part 1/2 --to megatron:tp=4 src m
    shard-ckpt convert --part 2/2 --to megatron:tp=4 src m &
    sleep 0.003
    kill -KILL $! || :
    wait $! || :
    part=$(find . -maxdepth 1 -name 'm.partial-*' ! -name '*.parts')
    if [ ! -d m ]; then # as a kill leaves it: a file without its end, and no note
        echo rest >"$part/.left.tmp"
        shard-ckpt convert --part 2/2 --to megatron:tp=4 src m
    fi
    same_tree one m
    rm -rf m
    shard-ckpt convert --part 1/2 --to megatron:tp=4 src m
    touch src/model.safetensors # saved again meanwhile
    shard-ckpt convert --part 2/2 --to megatron:tp=4 src m
    [ ! -e m ]
}

# a_hole FILE BYTES: a safetensors file of one U8 tensor that is a hole.
a_hole() {
    printf '{"hole":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' "$2" "$2" >header
    while [ $(($(wc -c <header) % 8)) -ne 0 ]; do printf ' ' >>header; done
    { printf '%016x' "$(wc -c <header)" | fold -w2 | tac | tr -d '\n' | xxd -r -p; cat header; } >"$1"
    truncate -s $((8 + $(wc -c <header) + $2)) "$1"
}

@test "holes are written as holes and need no space" {
    free=$(($(stat -f -c '%a * %S' .)))
    a_hole big.safetensors $((2 * free)) || skip "no file that large here"
    [ $(($(stat -c '%b * %B' big.safetensors))) -lt 1000000 ] || skip "no holes here"
    shard-ckpt plan --json --to safetensors big.safetensors o.safetensors >plan
    grep -q '"fits":true' plan
    grep -q "\"write_bytes\":$((2 * free))" plan
    [ "$(sed 's/.*"space_bytes":\([0-9]*\).*/\1/' plan)" -lt 1000000 ]
    a_hole small.safetensors 64000000
    shard-ckpt convert --to torch small.safetensors o.pt
    [ $(($(stat -c '%b * %B' o.pt))) -lt 1000000 ]
    tns-gen w:shape=1000 --dtype f32 | shard-ckpt save -q --to safetensors full.safetensors
    shard-ckpt plan --json --to torch full.safetensors p.pt | grep -q '"write_bytes":4000,"space_bytes":4000,'
}

@test "an interrupted conversion goes on where it was" {
    tns-gen a:shape=100000 b:shape=100000 c:shape=100000 d:shape=400000 --dtype f32 --dist uniform |
        shard-ckpt save -q --to safetensors m.safetensors
    to="--to hf --max-shard-size 500K --resume m.safetensors o"
    run ! bash -c "ulimit -f 1000; exec shard-ckpt convert $to" # dies of the third file, which is larger
    [ ! -e o ]
    stat -c '%i %Y %n' o.partial-*/model-0000[12]* >before
    [ "$(wc -l <before)" = 2 ]
    # shellcheck disable=SC2086 # words
    shard-ckpt convert $to
    sed -i 's/o\.partial-[0-9a-f]*/o/' before
    stat -c '%i %Y %n' o/model-0000[12]* | diff before -
    run -0 shard-ckpt diff m.safetensors o
    shard-ckpt digest o | diff o/tensorutils-digests.txt -
    [ "$(echo o*)" = o ]
    run -2 shard-ckpt convert --to hf --resume --part 1/2 m.safetensors p
    shard-ckpt convert --to megatron:tp=2,pp=2 --resume "$DATA/hf/llama" m
    shard-ckpt convert --to megatron:tp=2,pp=2 "$DATA/hf/llama" n
    diff -r m n
}

@test "many files are read and written below the limit of open ones" {
    (ulimit -Sn 32 && shard-ckpt convert --to universal "$DATA/deepspeed/llama_z1_dp2" u)
    run -0 bash -c "ulimit -Sn 32; shard-ckpt diff '$DATA/deepspeed/llama_z1_dp2' u"
    run -4 bash -c "ulimit -n 32; shard-ckpt ls u"
    assert_output --partial 'Too many open files'
}

@test "parts of two conversions to one destination say so" {
    run -0 --separate-stderr shard-ckpt convert --to tns:ranks=2 --part 1/2 "$DATA/hf/llama" o
    assert_equal "$stderr" ''
    run -0 --separate-stderr shard-ckpt convert --to tns:ranks=2 --part 2/2 "$DATA/hf/qwen2" o
    assert_regex "$stderr" 'o: parts of another conversion wait for it too'
    run -0 --separate-stderr shard-ckpt convert --to tns:ranks=2 --part 2/2 "$DATA/hf/llama" o
    assert_regex "$stderr" 'o\.partial-[0-9a-f]{8}\.parts'
    run -0 shard-ckpt diff "$DATA/hf/llama" o
}

# bats test_tags=slow
@test "killed at any instant, nothing is half there, and the next run ends it" {
    # shellcheck disable=SC2046 # words
    tns-gen $(printf 'w%d:shape=65536 ' {1..12}) --dtype f32 --dist uniform |
        shard-ckpt save -q --to safetensors m.safetensors
    local kills=${KILLS:-1000} whole=0 i pid
    for ((i = 0; i < kills; i++)); do
        local resume=
        ((i % 2)) && resume=--resume
        # shellcheck disable=SC2086 # none or one word
        shard-ckpt convert -q --to hf --max-shard-size 600K $resume m.safetensors o &
        pid=$!
        sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
        kill -KILL $pid 2>/dev/null || true
        wait $pid 2>/dev/null || true
        if [ -e o ]; then # it had come to its end
            shard-ckpt diff m.safetensors o >out || { cat out; return 1; }
            whole=$((whole + 1))
            rm -r o
        fi
    done
    echo "$whole of $kills were whole"
    shard-ckpt convert --to hf --max-shard-size 600K --resume m.safetensors o
    run -0 shard-ckpt diff m.safetensors o
    rm -r o
    shard-ckpt convert --to hf --max-shard-size 600K m.safetensors o
    run -0 shard-ckpt diff m.safetensors o
    [ "$(echo o.partial*)" = 'o.partial*' ]
}

@test "-f replaces a checkpoint, and nothing else" {
    mkdir -p mine/thesis
    echo x >mine/thesis/main.tex
    run -2 shard-ckpt convert -f --to hf "$DATA/hf/llama" mine
    assert_output --partial "holds 'thesis' and no checkpoint: -f replaces nothing else"
    run -2 quantize -f -t q8_0 "$DATA/hf/llama" -o mine/
    [ -f mine/thesis/main.tex ]
    mkdir empty
    shard-ckpt convert -f --to hf "$DATA/hf/llama" empty
    shard-ckpt convert -f --to megatron:tp=2 "$DATA/hf/llama" empty
    shard-ckpt convert -f --to meta:tp=1 "$DATA/hf/llama" empty
    run -0 shard-ckpt diff empty "$DATA/hf/llama"
}

@test "a part of a model is read with --include; an unknown family is named" {
    shard-ckpt convert --exclude 'lm_head.*' --to hf "$DATA/hf/llama" part
    run -0 shard-ckpt ls part
    assert_line --index 0 --partial ' tensors of a part,'
    rm part/tensorutils-digests.txt # which lists what the conversion chose
    run -3 shard-ckpt ls part
    assert_output --partial "no output head, and the configuration does not tie it to the embedding (--include '.*' reads what there is)"
    run -0 shard-ckpt ls --include '.*' part
    sed 's/"model_type": *"llama"/"model_type": "nobody"/' "$DATA/hf/llama/config.json" >config.json
    mkdir odd && cp config.json "$DATA"/hf/llama/*.safetensors odd
    for to in megatron meta; do
        run -2 shard-ckpt convert --to "$to" odd o
        assert_output --partial "no map has the names of family 'nobody'"
    done
}

@test "cat --to gguf holds the configuration against the tensors, as cat does" {
    cp -r "$DATA/hf/llama" liar
    sed -i 's/"num_hidden_layers": *[0-9]*/"num_hidden_layers": 1000/' liar/config.json
    run -3 shard-ckpt cat --to gguf liar
    assert_output --partial 'of 1000 is missing'
}

@test "a name that one file holds twice is refused; in two files it is a replica" {
    tns-gen a:dist=constant,value=1 --shape 4 -o 1.tns
    tns-gen a:dist=constant,value=2 --shape 4 -o 2.tns
    cat 1.tns 2.tns >twice.tns
    for command in digest verify ls; do
        run -3 shard-ckpt $command twice.tns
        assert_output --partial "twice.tns: 'a' is there twice"
    done
    run -3 shard-ckpt convert --to hf twice.tns o
    [ ! -e o ]
}

@test "heads of a size of their own have no place in Meta's files" {
    mkdir wide
    printf '%s' '{"model_type":"llama","hidden_size":32,"num_attention_heads":2,"head_dim":32,' \
        '"num_key_value_heads":2,"num_hidden_layers":1,"intermediate_size":48,"vocab_size":64,' \
        '"rms_norm_eps":1e-5,"tie_word_embeddings":false}' >wide/config.json
    l=model.layers.0
    tns-gen model.embed_tokens.weight:shape=64x32 lm_head.weight:shape=64x32 \
        model.norm.weight:shape=32 $l.input_layernorm.weight:shape=32 \
        $l.post_attention_layernorm.weight:shape=32 $l.self_attn.q_proj.weight:shape=64x32 \
        $l.self_attn.k_proj.weight:shape=64x32 $l.self_attn.v_proj.weight:shape=64x32 \
        $l.self_attn.o_proj.weight:shape=32x64 $l.mlp.gate_proj.weight:shape=48x32 \
        $l.mlp.up_proj.weight:shape=48x32 $l.mlp.down_proj.weight:shape=32x48 |
        tns-export --to safetensors -o wide/model.safetensors
    run -0 shard-ckpt convert --to megatron:tp=2 wide m
    run -2 shard-ckpt convert --to meta wide o
    assert_output --partial 'wide: 2 heads of 32 columns are not the hidden size 32'
}

@test "tensors without elements go through ranks and back" {
    tns-gen a:shape=3x0 b:shape=0x3 c:shape=0 d:shape=4x2 s:shape= -o e.tns
    shard-ckpt convert --to tns:ranks=3 e.tns o
    run -0 shard-ckpt diff e.tns o
}

# A model of one layer, whose tensors may be given another shape or dtype: NAME:shape=…
tiny_llama() { # FOLDER [TENSOR…]
    local l=model.layers.0 t name
    mkdir "$1"
    printf '%s' '{"model_type":"llama","hidden_size":32,"num_attention_heads":2,' \
        '"num_key_value_heads":2,"num_hidden_layers":1,"intermediate_size":48,"vocab_size":64,' \
        '"rms_norm_eps":1e-5,"tie_word_embeddings":false}' >"$1/config.json"
    for t in model.embed_tokens:64x32 lm_head:64x32 model.norm:32 $l.input_layernorm:32 \
        $l.post_attention_layernorm:32 $l.self_attn.q_proj:32x32 $l.self_attn.k_proj:32x32 \
        $l.self_attn.v_proj:32x32 $l.self_attn.o_proj:32x32 $l.mlp.gate_proj:48x32 \
        $l.mlp.up_proj:48x32 $l.mlp.down_proj:32x48; do
        name=${t%:*}.weight
        case " ${*:2} " in
        *" $name:"*) ;;
        *) tns-gen "$name:shape=${t#*:}" ;;
        esac
    done >"$1.tns"
    [ $# -lt 2 ] || tns-gen "${@:2}" >>"$1.tns"
    tns-export --to safetensors -o "$1/model.safetensors" "$1.tns"
}

@test "shapes that the configuration does not make are refused" {
    l=model.layers.0
    tiny_llama good
    run -0 shard-ckpt convert --to megatron:tp=2 good g
    for t in $l.self_attn.o_proj.weight:shape=32x16 model.norm.weight:shape=31 \
        model.embed_tokens.weight:shape=64x30 lm_head.weight:shape=70x32 \
        $l.mlp.up_proj.weight:shape=48x16; do
        rm -rf bad
        tiny_llama bad "$t"
        run -3 shard-ckpt convert --to megatron:tp=2 bad o
        assert_output --partial 'the configuration makes'
        [ ! -e o ]
    done
}

@test "parts of one tensor must be alike" {
    l=model.layers.0
    tiny_llama rows $l.mlp.up_proj.weight:shape=40x32
    run -3 shard-ckpt convert --to megatron:tp=2 rows o
    assert_output --partial "its parts 'layers.0.mlp.gate.weight' and 'layers.0.mlp.up.weight' have 48 and 40 rows"
    tiny_llama types $l.self_attn.k_proj.weight:shape=32x32,dtype=f16
    for command in plan convert; do
        run -2 shard-ckpt $command --to megatron:tp=2 types o
        assert_output --partial "are f32 and f16, but one tensor has one dtype: --dtype makes them alike"
    done
    run -0 shard-ckpt convert --dtype f32 --to megatron:tp=2 types o
    shard-ckpt convert --dtype f32 --to hf types h
    run -0 shard-ckpt diff h o
    tiny_llama ints $l.self_attn.k_proj.weight:shape=32x32,dtype=i32
    run -2 shard-ckpt convert --dtype f32 --to megatron:tp=2 ints i
    assert_output --partial 'are f32 and i32, but one tensor has one dtype'
}

@test "save --files takes the files that a list names, of ranks and of formats" {
    shard-ckpt convert --to tns:ranks=3 "$DATA/hf/llama" t
    find t -name '*.tns' | shard-ckpt save --files --to hf out
    run -0 shard-ckpt diff "$DATA/hf/llama" out
    [ -f out/tokenizer.json ] # of META records
    shard-ckpt convert --to safetensors --include '.*layers' "$DATA/hf/llama" a.safetensors
    shard-ckpt convert --to torch --exclude '.*layers' "$DATA/hf/llama" b.pt
    printf 'a.safetensors\n\nb.pt' >list # beside which no configuration lies
    run -0 shard-ckpt diff --from files list "$DATA/hf/llama" --from-b hf
    printf 'a.safetensors\nmissing.pt\n' >list
    run -4 shard-ckpt ls --from files list
    assert_output --partial 'missing.pt: cannot open: No such file'
    run -3 shard-ckpt save --files --to hf none </dev/null
    assert_output --partial 'names no file'
    run -2 shard-ckpt convert --to files "$DATA/hf/llama" x
    assert_output --partial 'layout files is only read'
}
