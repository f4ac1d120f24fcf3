#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# pipe-sched partition, place and plan.
# shellcheck disable=SC2086 # $args are words
load helper

@test "partition: the published maxima, as a table, JSON and a layout" {
    run -0 sh -c 'echo 1 2 3 4 5 6 7 8 9 | pipe-sched partition -p 3'
    assert_line --regexp '^ +2 +7 +2 +17 *$'
    run -0 pipe-sched partition -p 16 --costs '0.5,1*61,1.2,1.5' --json
    assert_output --partial '"time":4.5'
    refute_output --partial '"time":5'
    run -0 pipe-sched partition -p 4 --costs '1*30' --first 2 --last 3 --layout
    assert_output 'Et*6|t*9|t*9|t*6L'
    run -2 pipe-sched partition -p 2 --costs 1,9,1 --sizes 1,9,1 --caps 4,4
    assert_output --partial 'stage 1'
    run -2 pipe-sched partition -p 2 --costs 1,x
}

@test "partition: a stage is empty only where that is shorter, with a warning" {
    run -0 --separate-stderr pipe-sched partition -p 2 --costs 2,6 --last 4 --json
    assert_output --partial '"layers":2,"time":8'
    refute_output --partial '"time":10'
    assert_equal "${stderr/*stage 1 is without layers*/warned}" warned
    run -0 --separate-stderr pipe-sched partition -p 2 --costs 2,6 --last 2 --json
    assert_output --partial '"layers":1,"time":8'
    assert_equal "$stderr" ''
}

@test "place: two regions, the prices of both groupings" {
    cat >net <<'END'
# from,to,seconds,bytes per second
0,1,0.001,1e9
2,3,0.001,1e9
0,2,.05,5e7
0,3,.05,5e7
1,2,.05,5e7
1,3,.05,5e7
END
    run -0 pipe-sched place --dp 2 --pp 2 --dp-bytes 400MB --pp-bytes 20MB net
    assert_line --index 0 --partial 'gradients 0.402 s, pipeline 0.9 s, total 1.302 s'
    run -0 pipe-sched place --dp 2 --pp 2 --dp-bytes 400MB --pp-bytes 20MB --groups 0,1,0,1 net
    assert_line --index 0 --partial 'gradients 8.1 s, pipeline 0.042 s, total 8.142 s'
    echo 0,1,1,1 >short
    run -3 pipe-sched place --dp 2 --pp 2 short
    assert_output --partial 'no link between'
}

@test "plan: layouts, reasons, flags" {
    args='--layers 24 --hidden 2304 --heads 24 --gpus 32 --gpu a100 --batch 512'
    run -0 pipe-sched plan $args --top 3
    assert_line --index 0 --partial '1.652 billion parameters'
    run -0 pipe-sched plan $args --top 0 --all --max-mb 1 --max-pp 4 --max-vpp 2
    assert_output --partial 'ZeRO 2 and 3 need pp = 1'
    run -0 pipe-sched plan $args --emit megatron
    assert_output --partial '--tensor-model-parallel-size'
    run -0 pipe-sched plan $args --emit deepspeed
    assert_output --partial '"train_batch_size":512'
    run -1 pipe-sched plan --layers 96 --hidden 12288 --heads 96 --gpus 2 --batch 4
    run -2 pipe-sched plan --layers 96 --hidden 12288 --heads 96 --gpus 2 --batch 4 --gpu none
}

@test "plan: a line for each layout that takes another time, and columns that say something" {
    args='--layers 24 --hidden 2304 --heads 24 --gpus 32 --gpu a100 --batch 512'
    run -0 pipe-sched plan $args
    for line in "${lines[@]:1:11}"; do
        [ "${#line}" -le 100 ]
        [[ $line != *' ' ]]
    done
    refute_line --index 1 --regexp ' (CP|EP|OFFLOAD) | NOTE'
    # Same degrees, schedule and time: once, with the least memory.
    pipe-sched plan $args --json | sed -n 's/.*\("tp".*"ep":[0-9]*\).*\("schedule":"[^"]*"\).*\("step_s":[0-9.]*\).*/\1\2\3/p' >rows
    assert_equal "$(wc -l <rows)" 10
    assert_equal "$(sort -u rows | wc -l)" 10
    run -0 pipe-sched plan $args --top 0 --all --max-mb 1 --max-pp 4 --max-vpp 2
    assert_line --index 1 --partial NOTE
    # 2 layers of 12 h² + 13 h, an embedding of 100 h, 2048 positions, a norm: 237568.
    run -0 pipe-sched plan --layers 2 --hidden 64 --heads 4 --gpus 2 --batch 8 --vocab 100 --top 1
    assert_line --index 0 --partial '237.568 thousand parameters, 61.8'
}

@test "plan: Megatron-LM's flags describe the whole model" {
    cat >config.json <<'END'
{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
 "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
 "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
 "tie_word_embeddings": false}
END
    run -0 --separate-stderr pipe-sched plan --config config.json --gpus 8 --batch 64 --max-pp 1 --emit megatron
    assert_line '--seq-length 2048 --max-position-embeddings 8192 --vocab-size 128256'
    assert_line '--bf16 --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --norm-epsilon 1e-05'
    assert_line '--position-embedding-type rope --rotary-base 500000'
    assert_line '--group-query-attention --num-query-groups 8'
    # What it cannot run here, ZeRO 2, takes as long: nothing to warn of.
    run -0 --separate-stderr pipe-sched plan --layers 24 --hidden 2304 --heads 24 --gpus 32 --gpu a100 \
        --batch 512 --emit megatron
    assert_equal "$stderr" ''
}

@test "plan: torchtitan's ParallelDims accepts what is written for experts" {
    needs_python
    cat >config.json <<'END'
{"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
 "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
 "num_local_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": false}
END
    for more in "--max-pp 1" "--max-pp 1 --max-tp 1" "--max-tp 2 --max-pp 2" "--max-cp 4 --seq 32768 --max-pp 1" ""; do
        # shellcheck disable=SC2086 # words
        pipe-sched plan --config config.json --gpus 64 --batch 256 $more --emit torchtitan >job 2>note
        run -0 python3 - job <<'END'
import sys
v = {}
for line in open(sys.argv[1]):
    key, eq, value = line.partition(" = ")
    if eq:
        v[key] = value.strip()
d = lambda key: int(v[key + "_degree"])
rep, shard, cp, tp, pp = (d(k) for k in ("data_parallel_replicate", "data_parallel_shard",
                                         "context_parallel", "tensor_parallel", "pipeline_parallel"))
ep, etp = d("expert_parallel"), d("expert_tensor_parallel")
assert rep * shard * cp * tp * pp == 64
if ep > 1:
    assert etp in (tp, 1)
    if etp == tp:
        assert ep % cp == 0 and shard * cp % ep == 0
    else:
        assert ep % (cp * tp) == 0 and shard * cp * tp % ep == 0
if pp > 1:
    assert 32 / int(v["pipeline_parallel_layers_per_stage"]) % pp == 0
END
    done
}

@test "plan: a cluster file, named links; the command line wins" {
    printf '# two nodes\ngpu = a100\ngpus = 16\nnetwork = ib-hdr\nlink=300GB/s\n' >cluster
    args='--layers 24 --hidden 2304 --heads 24 --batch 64 --top 1 --json'
    pipe-sched plan $args --cluster cluster >a
    pipe-sched plan $args --gpu a100 --gpus 16 --network 25GB/s --link nvlink3 | cmp - a
    run -1 cmp -s a <(pipe-sched plan $args --cluster cluster --gpus 8)
    run -2 pipe-sched plan $args --gpus 8 --network fast
    echo 'speed=9' >cluster
    run -3 pipe-sched plan $args --cluster cluster
    assert_output --partial 'line 1'
}

@test "plan: state goes to the host or the SSD only where the device is too small" {
    args='--layers 40 --hidden 5120 --heads 40 --gpus 1 --batch 8 --max-mb 1 --json'
    run -0 pipe-sched plan $args
    assert_line --partial '"offload":"cpu"'
    assert_line --partial '"offload":"ssd"'
    refute_line --partial '"offload":"none"'
    run -1 pipe-sched plan $args --offload none
    run -0 pipe-sched plan $args --offload ssd --emit deepspeed --nvme-path /ssd/state
    assert_output --partial '"device":"nvme","nvme_path":"/ssd/state"'
    # shellcheck disable=SC2086 # DeepSpeed refuses an SSD without a path
    run ! pipe-sched plan $args --offload ssd --emit deepspeed
    assert_output --partial -- '--nvme-path'
    run -2 pipe-sched plan $args --emit megatron --nvme-path /ssd/state
    run -2 pipe-sched plan $args --emit megatron --all
    run -0 pipe-sched plan --layers 24 --hidden 2304 --heads 24 --gpus 8 --batch 64 --json
    refute_line --partial '"offload":"cpu"'
}

@test "plan: the vision encoder of a config.json, options over it" {
    cat >config.json <<'END'
{"model_type": "llava", "text_config": {"model_type": "llama", "num_hidden_layers": 16,
 "hidden_size": 2048, "num_attention_heads": 32, "intermediate_size": 8192, "vocab_size": 32000},
 "vision_config": {"num_hidden_layers": 24, "hidden_size": 1024, "image_size": 336,
 "patch_size": 14}}
END
    args='--gpus 8 --batch 32 --top 1 --json --max-tp 1'
    # 336 / 14 squared: the same as those options give.
    pipe-sched plan --config config.json $args >a
    pipe-sched plan --config config.json $args --encoder-layers 24 --encoder-hidden 1024 --encoder-tokens 576 >b
    cmp a b
    pipe-sched plan --config config.json $args --encoder-tokens 2304 >c
    step() { grep -o '"step_s":[0-9.]*' "$1" | cut -d: -f2; }
    awk "BEGIN { exit !($(step c) > $(step a)) }"
    sed -i 's/"image_size": 336,//' config.json # as for images of any size
    run -2 pipe-sched plan --config config.json $args
    assert_output --partial -- '--encoder-tokens'
    pipe-sched plan --config config.json $args --encoder-tokens 576 | cmp - a
    run -2 pipe-sched plan --layers 24 --hidden 2304 --heads 24 --batch 512 --gpus 8 --encoder-hidden 8
}

@test "plan: contention and interference cost time, each with its form" {
    args='--layers 24 --hidden 4096 --heads 32 --gpus 32 --batch 64 --json --top 1'
    step() { pipe-sched plan $args "$@" | grep -o '"step_s":[0-9.]*' | cut -d: -f2; }
    printf 'network,0.1,0.4\nnetwork,0.3,0.9\ncompute,0.7,0.75\ncompute,0.9,0.95\n' >table
    standard=$(step) nano=$(step --overlap nano) t3=$(step --overlap t3)
    disturbed=$(step --overlap nano --interference table)
    slower=$(step --overlap t3 --contention 0.5)
    awk "BEGIN { exit !($nano <= $disturbed && $disturbed <= $standard && $t3 < $slower) }"
    run -2 pipe-sched plan $args --contention 0.5
    assert_output --partial '--overlap t3'
    run -2 pipe-sched plan $args --overlap t3 --interference table
    run -2 pipe-sched plan $args --overlap t3 --contention -1
    echo 'network,2,1' >table
    run -3 pipe-sched plan $args --overlap nano --interference table
    assert_output --partial 'table: line 1'
    # Seconds of the processor: the search of a form is not done twice.
    (ulimit -t 2 && pipe-sched plan --layers 80 --hidden 8192 --heads 64 --gpus 1024 --batch 1024 \
        --overlap nano --top 1)
}

@test "plan: overlap forms hide communication, and only that" {
    args='--layers 80 --hidden 8192 --heads 64 --gpus 64 --batch 256 --max-tp 8 --top 1 --json'
    step() { pipe-sched plan $args --overlap "$1" | grep -o '"step_s":[0-9.]*' | cut -d: -f2; }
    for form in nano ladder kraken t3; do
        awk -v a="$(step $form)" -v b="$(step standard)" 'BEGIN { exit !(a > 0 && a < b) }' ||
            { echo "$form"; return 1; }
    done
    run -1 pipe-sched plan $args --overlap scmoe
    run -2 pipe-sched plan $args --overlap none
}

@test "plan: a vision encoder and a heavy head make stages uneven" {
    args='--layers 30 --hidden 4096 --heads 32 --vocab 256000 --gpus 4 --gpu h200 --batch 16 --max-tp 1 --max-mb 1 --max-vpp 1'
    run -0 pipe-sched plan $args --encoder-layers 24 --encoder-hidden 1024 --encoder-tokens 576 --offload none
    assert_line --regexp '^stages of the first: v\*24Et\*[0-9]+\|.*L$'
    run -0 pipe-sched plan $args --max-vpp 4 --uneven --offload none --emit megatron
    assert_output --partial "--pipeline-model-parallel-layout 'Et*"
    run -2 pipe-sched plan $args --encoder-layers 24
}

@test "plan: flags are of a layout that the trainer has, and of this model" {
    args='--layers 96 --hidden 12288 --heads 96 --batch 1536 --gpus 1024'
    run -0 --separate-stderr pipe-sched plan $args --top 1
    assert_output --partial 'zb-v'
    run -0 --separate-stderr pipe-sched plan $args --emit megatron
    assert_output --partial '--num-layers-per-virtual-pipeline-stage'
    [[ $stderr == *'megatron cannot run'* ]]
    run -0 pipe-sched plan --layers 32 --hidden 4096 --heads 32 --kv-heads 8 --ffn 14336 \
        --gpus 8 --batch 64 --emit megatron
    assert_line '--ffn-hidden-size 14336'
    assert_line '--group-query-attention --num-query-groups 8'
    args='--layers 40 --hidden 5120 --heads 40 --gpus 4 --batch 8 --max-mb 1 --offload split'
    run -0 --separate-stderr pipe-sched plan $args --emit megatron
    assert_line --regexp '^--optimizer-cpu-offload --optimizer-offload-fraction 0\.[0-9]+ --use-precision-aware-optimizer$'
    # DeepSpeed checks that a part is offloaded in ZeRO 3 only
    run -0 --separate-stderr pipe-sched plan $args --emit deepspeed
    assert_output --regexp '"stage":3,"offload_optimizer":\{"device":"cpu","ratio":0\.[0-9]+\}'
    run -2 pipe-sched plan $args --emit nemo
}

@test "plan: numbers that no cluster or model has are refused" {
    args='--layers 24 --hidden 2304 --heads 24 --batch 512 --gpus 8'
    for more in '--efficiency 7' '--efficiency nan' '--efficiency -1' '--cpu-update inf' \
        '--layers 4000000000' '--heads 7' '--config none'; do
        run -2 pipe-sched plan $args $more
    done
    printf 'gpus=4\ngpus=8\n' >cluster
    run -3 pipe-sched plan --layers 24 --hidden 2304 --heads 24 --batch 8 --cluster cluster
    assert_output --partial 'line 2'
}

@test "plan: on a terminal of 80 columns a line has no more" {
    needs_terminal
    args='--layers 24 --hidden 2304 --heads 24 --gpus 32 --gpu a100 --batch 512'
    run -0 script -qec "stty cols 80; pipe-sched plan $args" /dev/null
    for line in "${lines[@]:1:11}"; do
        line=${line%$'\r'}
        [ "${#line}" -le 80 ]
    done
    assert_line --index 1 --partial 'MFU_%'
    # What the table leaves out is in JSON, under its own name only.
    run -0 pipe-sched plan $args --top 1 --json
    assert_line --index 1 --regexp '"recompute":"[a-z]+","zero":.*"bubble_s":[0-9.]+,.*"dp_s":[0-9.]+'
    refute_output --partial '"":'
}

@test "plan: layers of kinds that alternate" {
    cat >next.json <<'END'
{"model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048,
 "intermediate_size": 5120, "num_attention_heads": 16, "num_key_value_heads": 2, "vocab_size": 151936}
END
    args='--config next.json --gpus 64 --batch 512 --seq 8192'
    run -0 --separate-stderr pipe-sched plan $args --top 1
    assert_equal "$stderr" ''
    assert_line --index 0 --partial '79.674 billion parameters'
    run -0 --separate-stderr pipe-sched plan $args --emit megatron
    assert_line '--experimental-attention-variant gated_delta_net --linear-attention-freq 4'
    assert_line --partial '--rotary-percent 0.25'
    cat >scout.json <<'END'
{"model_type": "llama4", "text_config": {"model_type": "llama4_text", "num_hidden_layers": 48,
 "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
 "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 202048,
 "num_local_experts": 128, "interleave_moe_layer_step": 2}}
END
    args='--config scout.json --gpus 512 --batch 1024 --max-mb 1 --max-pp 8 --max-vpp 1'
    run -0 --separate-stderr pipe-sched plan $args --top 1
    assert_line --index 0 --partial '400.712 billion parameters'
    run -3 pipe-sched plan $args --emit megatron
    assert_output --partial 'attention in chunks'
}

@test "plan: a family that is not known is counted with a warning" {
    echo '{"model_type":"mamba","hidden_size":256,"num_hidden_layers":4,"num_attention_heads":8,"vocab_size":1000}' >config
    run -0 --separate-stderr pipe-sched plan --config config --gpus 1 --batch 8 --top 1
    [[ $stderr == *"family 'mamba' is not known"* ]]
}

@test "plan --style llama: typed sizes give the published count of Llama 2 70B" {
    run --separate-stderr pipe-sched plan --style llama --layers 80 --hidden 8192 --heads 64 --kv-heads 8 \
        --ffn 28672 --vocab 32000 --gpus 64 --batch 64 --top 1
    [[ $output$stderr == *"68.977 billion"* ]] # 68,976,648,192
}

@test "plan: without a legal layout the commonest reasons are said" {
    run -1 pipe-sched plan --layers 8 --hidden 512 --heads 8 --gpus 1000003 --batch 8
    assert_line --index 0 --partial ' layouts, 0 legal'
    assert_line --index 1 --regexp '^rejected: [0-9]+: .'
    run -1 --separate-stderr pipe-sched plan --layers 8 --hidden 512 --heads 8 --gpus 1000003 --batch 8 --json
    refute_output --partial rejected
}
