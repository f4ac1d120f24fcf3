#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shard-ckpt on training checkpoints that real frameworks wrote: optimizer states, partitions.
load helper

DATA=$BATS_TEST_DIRNAME/../data
ZERO=$DATA/deepspeed

# holds ORACLE CHECKPOINT [option ...]: its digests are those of the framework's own tensors.
holds() {
    local oracle=$1
    shift
    shard-ckpt digest "$@" | sed 's/ - / /' | grep -v ' optim\.step$' | diff "$oracle" -
}

@test "ZeRO partitions hold what the engine held" {
    for d in "$ZERO"/*_dp[0-9] "$ZERO"/*_fp32 "$ZERO"/*_fp16; do
        holds "$d.oracle" "$d"
    done
}

@test "layers of a pipeline and experts in files of their own" {
    # read: by the oracles above; the tied embedding is in two stages
    run -0 shard-ckpt diff "$ZERO/pipe_pp2_dp2" "$ZERO/pipe_pp2_dp2.universal"
    shard-ckpt convert --to zero:stage=2,dp=3 "$ZERO/pipe_pp2_dp2" p
    run -0 shard-ckpt diff "$ZERO/pipe_pp2_dp2" p
    for to in zero:stage=3,dp=3 universal dcp:ranks=2; do # experts of two ranks, each cut over two
        rm -rf m
        shard-ckpt convert --to $to "$ZERO/moe_z1_ep2_dp4" m
        run -0 shard-ckpt diff "$ZERO/moe_z1_ep2_dp4" m
    done
    cp -r "$ZERO/pipe_pp2_dp2" q
    rm q/global_step3/layer_03-model_states.pt
    run -3 shard-ckpt ls q
    assert_output --partial "no layer_* file has '3.weight', which was trained"
}

@test "the number of steps is one scalar" {
    run -0 bash -c "shard-ckpt cat --include 'optim.step' '$ZERO/toy_z1_dp2' | tns-ls -"
    assert_output --partial optim.step
    run -0 bash -c "shard-ckpt digest '$ZERO/toy_z3_dp2' | grep optim.step"
    assert_output 'a7e1d189 - f32 - optim.step' # of 3.0
}

@test "a missing partition is named by its ranks" {
    cp -r "$ZERO/toy_z2_dp4" z
    rm z/global_step3/*rank_2_mp_rank_00_optim*
    run -3 shard-ckpt ls z
    assert_output --partial '1 of 4 optim_states files are missing: the first is of mp_rank 0, data-parallel rank 2'
}

@test "partitions of another training run do not fit" {
    cp -r "$ZERO/toy_z2_dp4" z
    cp "$ZERO"/toy_z1_dp2/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt z/global_step3
    run -3 shard-ckpt ls z
    assert_output --partial 'group 0: param_shapes has 311 elements, the files of 4 ranks hold'
}

@test "one rank's files with another number of data-parallel ranks are refused" {
    cp -r "$ZERO/toy_z2_dp4" z
    rm z/global_step3/*rank_[23]_mp_rank_00_optim*
    run -3 shard-ckpt ls z
    assert_output --partial 'dp_world_size is 4, and there are files of 2 data-parallel ranks'
}

@test "tensor-parallel ranks without rules are refused with what decides" {
    mkdir -p z/global_step3
    cp "$ZERO"/toy_z1_dp2/global_step3/mp_rank_00_model_states.pt z/global_step3/mp_rank_00_model_states.pt
    cp "$ZERO"/toy_z1_dp2/global_step3/mp_rank_00_model_states.pt z/global_step3/mp_rank_01_model_states.pt
    printf global_step3 >z/latest
    run ! shard-ckpt ls z
    assert_output --partial 'model-parallel ranks'
}

# rename_in FILE FROM TO: in a pickle, texts of one length.
rename_in() {
    [ ${#2} = ${#3} ] && LC_ALL=C sed -i "s/${2//./\\.}/$3/" "$1"
}

@test "rules that DeepSpeed does not know are refused by name" {
    cp -r "$ZERO/tp2_z1_dp2" z
    rename_in z/global_step3/mp_rank_00_model_states.pt parameter_with_2_sub_params_cat_dim_0 \
        parameter_with_2_sub_parbms_cat_dim_0
    run -3 shard-ckpt ls --no-crc z
    assert_output --partial "mp_rank_00_model_states.pt: universal_checkpoint_info has the key 'parameter_with_2_sub_parbms_cat_dim_0'"
    echo '{"vocabulary_patterns":[]}' >rules
    run -3 shard-ckpt ls --from zero:rules=rules "$ZERO/toy_z1_dp2"
    assert_output --partial "rules: universal_checkpoint_info has the key 'vocabulary_patterns'"
}

@test "a weight that cannot be rebuilt is refused, not left out" {
    cp -r "$ZERO/toy_z1_dp2" z
    rename_in z/global_step3/mp_rank_00_model_states.pt _rebuild_tensor_v2 erebuild_tensor_v2
    run -3 shard-ckpt convert --no-crc --to dcp z o
    assert_output --partial 'is no tensor that can be read'
    [ ! -e o ]
}

@test "module and param_shapes have the same names and shapes" {
    cp -r "$ZERO/toy_z1_dp2" z
    LC_ALL=C sed -i '0,/first\.bias/s//fir.t.bias/' z/global_step3/mp_rank_00_model_states.pt
    run -3 shard-ckpt ls --no-crc z
    assert_output --partial "module has no 'first.bias', which param_shapes names"
    python3 - "$ZERO/llama_z1_dp2" <<'END' || skip 'no python3'
import glob, os, shutil, sys, zipfile
shutil.copytree(sys.argv[1], 'l')
path = glob.glob('l/*/mp_rank_00_model_states.pt')[0]
old = zipfile.ZipFile(path)
with zipfile.ZipFile('n', 'w') as new:
    for i in old.infolist():
        data = old.read(i)
        if i.filename.endswith('data.pkl'): # the first 16 x 16 tensor with strides 16, 1
            assert b'K\x10K\x10\x86' in data
            data = data.replace(b'K\x10K\x10\x86', b'K\x0fK\x10\x86', 1)
        new.writestr(i, data)
os.replace('n', path)
END
    run -3 shard-ckpt ls l
    assert_output --partial 'is 15x16, expected 16x16 as param_shapes says'
}

@test "a partition of another tensor-parallel rank is refused" {
    cp -r "$ZERO/tp2_z1_dp2" z
    cp z/global_step3/bf16_zero_pp_rank_0_mp_rank_0{0,1}_optim_states.pt
    run -3 shard-ckpt ls z
    assert_output --partial 'mp_rank_01_optim_states.pt: holds the parts of tensor-parallel rank 0'
}

@test "parameters of a universal checkpoint have the same states" {
    cp -r "$ZERO/toy_z1_dp2.universal" u
    rm u/global_step3_universal/zero/emb.weight/exp_avg.pt
    run -3 shard-ckpt ls u
    assert_output --partial 'zero/emb.weight: no exp_avg.pt, expected it'
    rm -r u
    cp -r "$ZERO/toy_z3_dp2.universal" u
    rename_in u/global_step3_universal/zero/optimizer_state.pt optimizer_state_dict \
        Optimizer_state_dict
    run -3 shard-ckpt ls --no-crc u
    assert_output --partial "zero/optimizer_state.pt: no 'optimizer_state_dict'"
}

@test "ZeRO goes to every stage and size and back" {
    for m in toy_z1_dp2 toy_z3_dp2 three_z1_dp4 tp2_z1_dp2; do
        for to in stage=1,dp=3 stage=2,dp=4 stage=3,dp=5 stage=3,dp=2,sub_group=60; do
            case $m in tp2*) to=$to,tp=2 ;; esac
            rm -rf there back.tns
            shard-ckpt convert --to "zero:$to" "$ZERO/$m" there
            shard-ckpt diff "$ZERO/$m" there
            shard-ckpt convert --to tns there back.tns
            shard-ckpt diff "$ZERO/$m" back.tns
        done
    done
}

@test "rules= says how ranks are cut where the checkpoint does not" {
    shard-ckpt ls "$DATA/hf/llama_even" | sed 1,2d | awk '{print $NF}' >names
    run -2 shard-ckpt convert --to zero:dp=2,tp=2,order=names "$DATA/hf/llama_even" no
    assert_output --partial 'rules=FILE gives it'
    cat >rules <<'END'
{"universal_checkpoint_version":0.2,
 "tp_replicated_parameter_patterns":[".*norm.*"],
 "parameter_with_row_parallelism_patterns":[".*o_proj.*",".*down_proj.*"]}
END
    shard-ckpt convert --to zero:dp=2,tp=2,order=names,rules=rules "$DATA/hf/llama_even" z
    shard-ckpt convert --exclude 'optim\.' --to hf z h # the rules were written along
    run -0 shard-ckpt diff "$DATA/hf/llama_even" h
    # Other rules put rows under rows, not side by side: shapes that the configuration does not make.
    echo '{"universal_checkpoint_version":0.2,"tp_replicated_parameter_patterns":[".*norm.*"]}' >wrong
    run -3 shard-ckpt diff --exclude 'optim' --from zero:rules=wrong --from-b zero:rules=rules z z
    assert_output --partial "'layers.0.attn.o.weight' has"
    echo '{' >broken
    run -3 shard-ckpt ls --from zero:rules=broken z
    assert_output --partial broken
}

@test "what is written for DeepSpeed's own layout is what it wrote" {
    shard-ckpt convert --to zero:stage=1,dp=2 "$ZERO/toy_z1_dp2" z
    for r in 0 1; do # the flat tensors in its order: step and moments of each group, then fp32
        f=global_step3/bf16_zero_pp_rank_${r}_mp_rank_00_optim_states.pt
        tns-ls --json "$ZERO/toy_z1_dp2/$f" | grep -o '"shape":[^]]*' | sort >want
        tns-ls --json "z/$f" | grep -o '"shape":[^]]*' | sort >got
        diff want got
    done
}

@test "a flat vector without an order is refused, and order= gives it" {
    run -2 shard-ckpt convert --to zero:dp=2 "$DATA/hf/llama_even" z
    assert_output --partial 'order=FILE gives it'
    shard-ckpt ls "$DATA/hf/llama_even" | sed 1,2d | awk '{print $NF}' >names
    shard-ckpt convert --to zero:dp=2,order=names "$DATA/hf/llama_even" z
    shard-ckpt convert --exclude 'optim\.' --to hf z h
    run -0 shard-ckpt diff "$DATA/hf/llama_even" h
}

@test "weights in float32 are the master copies" {
    shard-ckpt convert --to safetensors --exclude 'optim\.(exp|step)' --dtype f32 "$ZERO/toy_z1_dp2" m.safetensors
    shard-ckpt digest m.safetensors | sed 's/ - / /' | grep -E ' (emb|first|norm|last)' | sort -k4 >got
    sed -n 's/optim\.fp32\.//p' "$ZERO/toy_z1_dp2.oracle" | sort -k4 >want
    diff want got
}

@test "distributed checkpoints of torch hold what its processes held" {
    for d in "$DATA"/dcp/*/; do # hf_dp2: by HuggingFaceStorageWriter
        d=${d%/}
        holds "$d.oracle" "$d"
    done
}

@test "distributed checkpoints are cut anew" {
    for to in dcp dcp:ranks=3 dcp:ranks=2,model=,optim=opt tns safetensors; do
        rm -rf o
        shard-ckpt convert --to $to "$DATA/dcp/tp2_dp2" o
        run -0 shard-ckpt diff --from-b "${to%%:*}" "$DATA/dcp/tp2_dp2" o
    done
    shard-ckpt convert --to dcp:ranks=2 "$ZERO/llama_z3_dp4" d
    shard-ckpt convert --to zero:stage=3,dp=4 d z
    run -0 shard-ckpt diff "$ZERO/llama_z3_dp4" z
}

@test "shards of torch's Hugging Face writer" {
    shard-ckpt convert --to dcp_hf:ranks=3 "$DATA/hf/llama" o
    run -0 shard-ckpt diff "$DATA/hf/llama" o
    rm o/shard-00002-*
    run -3 shard-ckpt ls o
    assert_output --partial 'elements are in its files'
    cp -r "$DATA/dcp/hf_dp2" h
    sed -i 's/saved_offsets/saved_0ffsets/' h/shard-00002-*
    run -3 shard-ckpt ls h
    assert_output --partial 'DCP_SHARDING_INFO has no'
}

@test "a distributed checkpoint without its end, or with a damaged chunk, is refused" {
    cp -r "$DATA/dcp/fsdp2_dp2" d
    rm d/.metadata
    run -3 shard-ckpt ls --from dcp d
    assert_output --partial 'no .metadata: the save did not come to its end'
    cp -r "$DATA/dcp/fsdp2_dp2" e
    truncate -s 3000 e/__1_0.distcp
    run -3 shard-ckpt ls e
    assert_output --partial "is said to be at byte"
    cp -r "$DATA/dcp/fsdp2_dp2" f
    at=$(grep -abo 'data/0' f/__0_0.distcp | sed -n 3p | cut -d: -f1) # of the second chunk, 168 bytes
    printf '\xff' | dd of=f/__0_0.distcp bs=1 seek=$((at + 100)) conv=notrunc status=none
    run -3 shard-ckpt verify f
}

# same_files A B: the tensors of every state are equal bit for bit, under the same names.
same_files() {
    (cd "$1" && find zero -name '*.pt' | sort) >a.list
    (cd "$2" && find zero -name '*.pt' | sort) >b.list
    diff a.list b.list
    grep -v optimizer_state a.list | while read -r f; do
        tns-diff -q "$1/$f" "$2/$f"
    done
}

@test "the universal form is read as the partitions are" {
    for m in toy_z1_dp2 toy_z3_dp2 tp2_z1_dp2; do
        run -0 shard-ckpt diff "$ZERO/$m" "$ZERO/$m.universal"
    done
}

@test "a state whose name is too long for a role is refused" {
    shard-ckpt cat "$DATA/hf/llama_demo" | tns-ls | awk 'NR > 1 { print $NF }' >names
    shard-ckpt convert --to universal:order=names "$DATA/hf/llama_demo" u
    q=$(echo u/*/zero/model.layers.0.self_attn.q_proj.weight)
    cp "$q/fp32.pt" "$q/$(printf 'x%.0s' {1..240}).pt"
    run -3 shard-ckpt ls u
    assert_output --partial 'the name is over 223 bytes long'
}

@test "what ds_to_universal makes is made bit for bit" {
    shard-ckpt convert --to universal "$ZERO/toy_z1_dp2" a
    same_files "$ZERO/toy_z1_dp2.universal/global_step3_universal" a/global_step3_universal
    shard-ckpt convert --to universal:tp=2 "$ZERO/tp2_z1_dp2" b
    same_files "$ZERO/tp2_z1_dp2.universal/global_step3_universal" b/global_step3_universal
    shard-ckpt convert --to universal:stage=3,dp=2 "$ZERO/toy_z3_dp2" c
    same_files "$ZERO/toy_z3_dp2.universal/global_step3_universal" c/global_step3_universal
    for m in a b c; do [ "$(cat $m/latest_universal)" = global_step3_universal ]; done
    run -0 shard-ckpt diff "$ZERO/toy_z3_dp2" c
    run -0 shard-ckpt diff "$ZERO/tp2_z1_dp2" b
}

@test "from universal back to partitions" {
    shard-ckpt convert --to zero:stage=2,dp=4,tp=2 "$ZERO/tp2_z1_dp2.universal" z
    run -0 shard-ckpt diff "$ZERO/tp2_z1_dp2" z
}

@test "a universal checkpoint that lost a parameter says which" {
    cp -r "$ZERO/toy_z1_dp2.universal" u
    rm -r u/global_step3_universal/zero/first.bias
    run -3 shard-ckpt ls u
    assert_output --partial 'zero/first.bias: no states of this parameter'
}

@test "inspect says in a sentence why a checkpoint is inconsistent" {
    run -0 shard-ckpt inspect --why "$ZERO/toy_z1_dp2" "$ZERO/toy_z3_dp2" "$DATA/dcp/hsdp_2x2"
    cp -r "$ZERO/toy_z1_dp2" z
    cp "$ZERO"/toy_z2_dp4/global_step3/mp_rank_00_model_states.pt z/global_step3 # weights of another run
    run -1 shard-ckpt inspect --why z
    assert_output --partial 'dp_world_size is 4, and there are files of 2 data-parallel ranks'
    run -0 shard-ckpt inspect --why --json "$ZERO/toy_z1_dp2"
    assert_output --partial '"check":"masters","ok":true'
}

@test "weights that are not of the step of their master copies are found" {
    shard-ckpt cat --exclude 'optim' "$ZERO/toy_z1_dp2" >m.tns
    shard-ckpt cat --include 'optim' "$ZERO/toy_z2_dp4" >>m.tns
    shard-ckpt save --to safetensors m.safetensors <m.tns
    run -1 shard-ckpt inspect --why m.safetensors
    assert_output --partial 'is not its master copy rounded: they are of different steps'
}

@test "prune leaves the optimizer out" {
    shard-ckpt prune --to safetensors "$ZERO/toy_z1_dp2" w.safetensors
    shard-ckpt digest w.safetensors | sed 's/ - / /' >got
    grep -v ' optim' "$ZERO/toy_z1_dp2.oracle" | diff - got
}

@test "load-order lists what to read, layer by layer" {
    shard-ckpt load-order --window 2 --json "$DATA/hf/llama" >rows
    # embedding, four layers, norm and head
    [ "$(grep -o '"step":[0-9]*' rows | sort -u | wc -l)" -eq 6 ]
    # every byte of the model once, each where the file has it
    name=model.layers.2.mlp.up_proj.weight
    line=$(grep "\"$name\"" rows)
    [[ $line == *'"drop":0'* ]]
    at=$(grep -o '"offset":[0-9]*' <<<"$line" | cut -d: -f2)
    n=$(grep -o '"bytes":[0-9]*' <<<"$line" | cut -d: -f2)
    dd if="$DATA/hf/llama/model.safetensors" bs=1 skip="$at" count="$n" status=none | gzip -c | tail -c8 | od -An -tx4 -N4 | tr -d ' \n' >crc
    grep " $name\$" "$DATA/hf/llama.oracle" | cut -d' ' -f1 | tr -d '\n' | cmp - crc
}

@test "Megatron-core's distributed checkpoint holds the model it was made from" {
    shard-ckpt digest --exclude optim "$DATA/torch_dist/llama_tp2_pp2" | sed 's/ - / /' |
        diff "$DATA/torch_dist/llama_tp2_pp2.oracle" -
    # its states go wherever weights go
    shard-ckpt convert --to dcp:ranks=2 "$DATA/torch_dist/llama_tp2_pp2" d
    run -0 shard-ckpt diff "$DATA/torch_dist/llama_tp2_pp2" d
    shard-ckpt convert --to megatron:tp=4 "$DATA/torch_dist/llama_tp2_pp2" m
    run -0 shard-ckpt diff "$DATA/hf/llama" m
    rm -rf m && cp -r "$DATA/torch_dist/llama_tp2_pp2" m
    rm m/iter_0000007/metadata.json
    run -3 shard-ckpt ls --from torch_dist m
    assert_output --partial 'no metadata.json, which is written last'
}

@test "Megatron-core's distributed checkpoint is written with its states" {
    for to in ranks=1 ranks=3,keys=apart ranks=2,spec=local,optim=float16,pad=16; do
        rm -rf o
        shard-ckpt convert --to torch_dist:$to "$DATA/torch_dist/llama_tp2_pp2" o
        run -0 shard-ckpt diff "$DATA/torch_dist/llama_tp2_pp2" o
    done
    rm -rf o
    shard-ckpt convert --to torch_dist:ranks=2,iteration=5 "$ZERO/llama_z1_dp2" o
    run -0 shard-ckpt diff "$ZERO/llama_z1_dp2" o
    # What Megatron's loader asks for: keys, stacked shapes, the object of every linear layer.
    [ "$(cat o/latest_checkpointed_iteration.txt)" = 5 ]
    tns-import o/iter_0000005 | tns-ls - >listing
    grep -Eq ' 1x48x16 .*decoder.layers.mlp.linear_fc1.weight' listing
    grep -Eq ' 1x32x16 .*optimizer.state.param.decoder.layers.self_attention.linear_qkv.weight' listing
    grep -aq 'decoder.layers.mlp.linear_fc2._extra_state/shard_1_' o/iter_0000005/.metadata
    shard-ckpt convert --to torch_dist "$DATA/hf/mixtral" e
    run -0 shard-ckpt diff "$DATA/hf/mixtral" e
    grep -aq 'decoder.layers.mlp.experts.experts.linear_fc1._extra_state/shard_1.2_2.4' e/release/.metadata
    cp -r "$DATA/hf/gemma3" other
    sed -i 's/"gemma3_text"/"somebodys"/' other/config.json
    run -2 shard-ckpt convert --to torch_dist other g
    assert_output --partial "no map has the names of family 'somebodys'"
}

@test "states in the optimizer's buckets are refused with what reads them" {
    cp -r "$DATA/torch_dist/llama_tp2_pp2" m # the same length: keys of dp_reshardable
    LC_ALL=C sed -i 's/optimizer\.state\.exp_avg\.output_layer\.weight/optimizer.distributed.dp_0.gbuf_0.bucket_xy/g' m/iter_0000007/.metadata
    run -3 shard-ckpt ls m
    assert_output --partial 'dp_reshardable'
    assert_output --partial 'states=no'
    shard-ckpt prune --to hf m w
    run -0 shard-ckpt diff "$DATA/hf/llama" w
    shard-ckpt convert --from torch_dist:states=no --to hf m v
    run -0 shard-ckpt diff "$DATA/hf/llama" v
}

@test "a flat parameter of FSDP1 is refused with what to save instead" {
    tns-gen layers.0._fsdp_wrapped_module._flat_param:shape=12 --dtype f32 |
        shard-ckpt save -q --to torch f.pt
    run -3 shard-ckpt ls f.pt
    assert_output --partial 'SHARDED_STATE_DICT'
}

# lengths FILE: elements of the flat tensors of an optim_states file, in their order.
lengths() { tns-ls --json "$1" | grep -o '"shape":\[[0-9]\+\]' | tr -dc '0-9\n' | tr '\n' ' '; }

@test "partitions of the worked cases" {
    printf 'a\nb\n' >order
    tns-gen a:shape=3 b:shape=4 --dtype f32 -o m.tns
    # Of each rank: exp_avg, exp_avg_sq padded, then fp32 without the padding.
    shard-ckpt convert --to zero:stage=1,dp=2,order=order m.tns z2
    [ "$(lengths z2/global_step0/zero_pp_rank_0_mp_rank_00_optim_states.pt)" = '4 4 4 ' ]
    [ "$(lengths z2/global_step0/zero_pp_rank_1_mp_rank_00_optim_states.pt)" = '4 4 3 ' ]
    shard-ckpt convert --to zero:stage=1,dp=4,order=order m.tns z4
    for r in 0 1 2; do
        [ "$(lengths z4/global_step0/zero_pp_rank_${r}_mp_rank_00_optim_states.pt)" = '2 2 2 ' ]
    done
    [ "$(lengths z4/global_step0/zero_pp_rank_3_mp_rank_00_optim_states.pt)" = '2 2 1 ' ]
    printf 'a\n' >one
    tns-gen a:shape=3 --dtype f32 -o a.tns
    shard-ckpt convert --to zero:stage=2,dp=4,order=one a.tns a4
    for r in 0:2 1:1 2:0 3:0; do
        [ "$(lengths a4/global_step0/zero_pp_rank_${r%:*}_mp_rank_00_optim_states.pt)" = "2 2 ${r#*:} " ]
    done
    printf 'a\nb\nc\n' >three
    tns-gen a:shape=3 b:shape=4 c:shape=1 --dtype f32 -o c.tns
    shard-ckpt convert --to zero:stage=3,dp=2,order=three c.tns c3
    for r in 0 1; do
        [ "$(lengths c3/global_step0/zero_pp_rank_${r}_mp_rank_00_optim_states.pt)" = '5 5 5 ' ]
    done
    for z in z2 z4 c3; do
        shard-ckpt convert -f --exclude 'optim' --to tns $z back.tns
        case $z in c3) run -0 shard-ckpt diff c.tns back.tns ;; *) run -0 shard-ckpt diff m.tns back.tns ;; esac
    done
}

@test "a key that JSON cannot hold is named with its file, and memory is not blamed" {
    cp -r "$DATA/deepspeed/toy_z1_dp2.universal" c
    chmod -R u+w c
    file=$(find c -name optimizer_state.pt)
    LC_ALL=C sed -i 's/weight_decay/weig\xe8t_decay/' "$file"
    run -3 --separate-stderr shard-ckpt digest --no-crc c
    assert_regex "$stderr" "$file: 'weig\?t_decay' is no UTF-8: byte 4"
}
