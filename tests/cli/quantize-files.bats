# SPDX-License-Identifier: Apache-2.0
# quantize: files of engines and of llama.cpp, repacking, inputs of layers, resuming.
# shellcheck disable=SC2154,SC2002 # stderr is set by run; pipes are what is tested
load helper

HF=$ROOT/tests/data/hf
GGUF=$ROOT/tests/data/gguf/hf

@test "a folder that an engine loads decodes to what the stream decodes to" {
    for t in int4:group=16 int4:group=16,asym int8 int8:packed,group=16 gptq4:group=16 gptq4:group=16,v2,asym \
        gptq8:group=16 awq4:group=16 nf4 nf4:nested fp4 fp8_block fp8_channel fp8_tensor nvfp4_packed \
        nvfp4_packed:global=modelopt; do
        rm -rf d
        quantize -q -t $t "$HF/llama" -o d/
        quantize -q -t $t -r '.*embed_tokens=keep' -r 'lm_head=keep' "$HF/llama" | quantize decode >a
        quantize decode d >b
        tns-diff -q a b
        grep -q '"quant_method"' d/config.json
        cmp d/tokenizer.json "$HF/llama/tokenizer.json"
    done
}

@test "what engines look for in config.json" {
    method() { quantize -q -t "$1" "$HF/llama" -o d/ -f && grep '^  "quantization_config": {' d/config.json; }
    method int4:group=16
    # The rest stays as it was written.
    diff <(sed '$d; s/,$//' "$HF/llama/config.json") <(sed '/"quantization_config"/,$d; s/,$//' d/config.json)
    run -0 method int4:group=16
    assert_output --partial '"format":"pack-quantized"'
    assert_output --partial '"group_size":16,"num_bits":4,"strategy":"group","symmetric":true,"type":"int"'
    assert_output --partial '"ignore":["lm_head","model.embed_tokens"]'
    run -0 method gptq4:group=16
    assert_output --partial '"bits":4,"checkpoint_format":"gptq","desc_act":false,"group_size":16,"quant_method":"gptq","sym":true'
    [ -e d/quantize_config.json ]
    run -0 method awq4:group=16
    assert_output --partial '"version":"gemm","zero_point":true'
    run -0 method nf4:nested
    assert_output --partial '"bnb_4bit_quant_type":"nf4","bnb_4bit_use_double_quant":true'
    run -0 method fp8_block
    assert_output --partial '"weight_block_size":[128,128]'
    tns-ls d/model.safetensors | grep -q 'q_proj.weight_scale_inv'
}

@test "what no engine loads, and two engines at once, are refused before a file is there" {
    run -2 --separate-stderr quantize -q -t q4_0 "$HF/llama_even" -o d/
    [[ $stderr == *"no engine loads it from safetensors, but int4 int3 int2 int8 "*" nf4 fp4 fp8_block"* ]]
    run -2 --separate-stderr quantize -q -t nf4 -r '.*down=fp8_channel' "$HF/llama" -o d/
    [[ $stderr == *"an engine takes one"* ]]
    [ ! -e d ]
    mkdir d
    run -2 --separate-stderr quantize -t nf4 "$HF/llama" -o d/
    [[ $stderr == *"exists (-f replaces it)"* ]]
}

@test "repack: lossless among compressed-tensors, GPTQ, AWQ and GGUF, or refused with the reason" {
    tns-gen x.weight --shape 64,128 >w
    quantize -t int4:group=32,scale=f16 w >a
    quantize decode -d f32 a >want
    for t in gptq4 gptq4:v2 q4_0 q4_1 awq4 int4; do
        quantize repack -t $t a >b
        quantize decode -d f32 b | tns-diff -q want -
        quantize repack -t int4:scale=f16 b | quantize decode -d f32 | tns-diff -q want -
    done
    quantize repack -t int4:group=32,scale=f16 a | cmp a -
    refused() { run -2 --separate-stderr bash -c "quantize repack -t '$1' $2 >x"; [[ $stderr == *"$3"* ]]; run ! ends x; }
    quantize -t int4:group=32 w >f32
    refused gptq4 f32 'is no number of f16'
    refused int4:group=64,scale=f16 a 'has a scale of its own but would share one'
    refused gptq3 a 'do not fit 3 bits'
    quantize -t int4:group=32,scale=f16,asym w >asym
    refused q4_0 asym 'steps from zero do not fit'
    quantize -t nf4 w >nf4
    refused gptq4 nf4 "codec 'nf4': its codes are not integers with scales"
}

@test "repack: an engine's folder to another engine's" {
    quantize -q -t gptq4:group=16 "$HF/llama" -o a/
    quantize repack -t int4 a -o b/
    quantize decode a >x
    quantize decode b | tns-diff -q x -
    grep -q pack-quantized b/config.json
    run ! grep -q gptq b/config.json
}

@test "GGUF: names, order and key-values by cat, written directly, and back to Hugging Face's in one step" {
    shard-ckpt cat --to gguf "$HF/llama" >m.tns
    tns-diff -q m.tns "$GGUF/llama.gguf"
    quantize -q -t q8_0 m.tns -o q.gguf
    quantize -q -t q8_0 "$GGUF/llama.gguf" | tns-export --to gguf -o r.gguf
    tns-diff -q q.gguf r.gguf
    quantize decode -d bf16 "$GGUF/llama.gguf" -o hf/
    shard-ckpt digest hf | sed 's/.* bf16/bf16/;s/.* f32/f32/' | sort >a
    shard-ckpt digest "$HF/llama" | sed 's/.* bf16/bf16/' | sort >b
    diff <(grep -v norm a) <(grep -v norm b)
    tns-cat -s '*proj.weight' hf/model.safetensors >x
    tns-cat -s '*proj.weight' "$HF/llama/model.safetensors" >y
    tns-diff -q x y
    # blocks keep their bytes under the other names
    quantize decode -q --names hf q.gguf | tns-ls | grep -q "model.layers.3.mlp.down_proj.weight"
}

@test "GGUF: a checkpoint of any layout becomes a file in one step, as through cat" {
    shard-ckpt cat --to gguf "$HF/llama" | quantize -q -t q4_k_m -o a.gguf
    quantize -q -t q4_k_m "$HF/llama" -o b.gguf
    cmp a.gguf b.gguf
    shard-ckpt convert --to megatron:tp=2 "$HF/llama" m
    quantize -q -t q4_k_m m -o c.gguf
    tns-diff -q a.gguf c.gguf # in the order of their sources
    quantize -q -t q8_0 -r 'blk\.1\.ffn_down=f16' "$HF/llama" -o d.gguf
    tns-ls d.gguf | grep -q '^f16 .* blk.1.ffn_down.weight'
    quantize -q --target-bpw 12 "$HF/llama" -o e.gguf # looked through before it is coded
    tns-check -q <(tns-import e.gguf)
    # why it broke off is said, and nothing is left
    cp -r "$HF/llama" broken
    truncate -s -100 broken/model.safetensors
    run -3 quantize -q -t q8_0 broken -o x.gguf
    assert_output --partial 'broken/model.safetensors'
    run -2 quantize -q -t q8_0 -r '.*ffn_down=int4:group=1000' "$HF/llama" -o x.gguf # the reader leaves
    assert_output --partial "'blk.0.ffn_down.weight': codec 'int4'"
    quantize -t int4:group=16 "$HF/llama" -o codes/
    run -3 quantize -t q8_0 codes -o x.gguf
    assert_output --partial 'are for plain weights'
    [ ! -e x.gguf ]
}

@test "what falls back is told once for a kind, each with -v" {
    run -0 --separate-stderr quantize -t q4_k_m "$HF/llama" -o a.gguf
    [ "$(grep -c warning <<<"$stderr")" = "$(quantize -v -t q4_k_m "$HF/llama" -o a.gguf 2>&1 |
        grep -v warning | sed -n "s/.*': //p" | sort -u | wc -l)" ]
    [[ $stderr =~ \ ([0-9]+)\ tensors,\ \'token_embd.weight\'\ first:\ q5_0\ instead\ of\ q4_k ]]
    [ "${BASH_REMATCH[1]}" = "$(tns-ls a.gguf | grep -c '^q5_0')" ]
}

@test "mixtures know the model from META behind contents: experts, heads, tied embeddings" {
    shard-ckpt cat -q --to gguf "$HF/mixtral" | quantize -q -t mxfp4_moe | tns-ls >list.txt
    grep -q '^mxfp4 .*ffn_up_exps' list.txt
    grep -q '^q8_0 .*attn_q' list.txt
    shard-ckpt cat -q --to gguf "$HF/llama_tied" | quantize -q -t q4_0_m | tns-ls | grep -q '^q6_k\|^q8_0 .*token_embd'
    run -0 bash -c "shard-ckpt cat -q --to gguf '$HF/llama' | quantize plan -t iq3_xs_m"
    assert_output --partial iq4_nl
    run -2 --separate-stderr bash -c "tns-gen blk.0.ffn_up.weight --shape 8,256 | quantize -t iq3_s_m >x"
    [[ $stderr == *"codec 'iq3_s' can only decode"* ]]
}

@test "GPTQ, AWQ and SmoothQuant look at inputs and lose less than rounding" {
    needs_python
    python3 - <<'END'
import random, struct, json, zlib
random.seed(3)
def rec(f, name, shape, values):
    head = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * len(values)]}}).encode()
    head += b" " * (-len(head) % 8)
    f.write(struct.pack("<Q", len(head)) + head + struct.pack("<%df" % len(values), *values))
mix = [[random.gauss(0, 1) for _ in range(8)] for _ in range(64)]
rows = []
for _ in range(256):
    z = [random.gauss(0, 1) for _ in range(8)]
    rows += [sum(a * b for a, b in zip(m, z)) + .1 * random.gauss(0, 1) for m in mix]
rec(open("in.safetensors", "wb"), "x.input", [256, 64], rows)
rec(open("w.safetensors", "wb"), "x.weight", [32, 64], [random.gauss(0, 1) for _ in range(32 * 64)])
END
    loss() { # of the output, by the decoded weights
        python3 - "$1" <<'END'
import struct, json, sys
def load(p):
    d = open(p, "rb").read(); n = struct.unpack("<Q", d[:8])[0]
    return struct.unpack("<%df" % ((len(d) - 8 - n) // 4), d[8 + n:])
w, x, v = load("w.safetensors"), load("in.safetensors"), load(sys.argv[1])
e = [a - b for a, b in zip(w, v)]
print("%.6g" % sum(sum(e[r * 64 + j] * x[t * 64 + j] for j in range(64)) ** 2 for r in range(0, 32, 4) for t in range(0, 256, 4)))
END
    }
    for m in nearest gptq gptq:order gptq:order,fixed; do
        quantize -t int4:group=32,order --calib in.safetensors --method $m w.safetensors |
            quantize decode -d f32 -o $m.safetensors
        loss $m.safetensors >"$m.loss"
    done
    for m in gptq gptq:order gptq:order,fixed; do
        awk -v a="$(cat $m.loss)" -v b="$(cat nearest.loss)" 'BEGIN { exit !(a < b / 2) }' </dev/null
    done
    quantize -j1 -t int4 --calib in.safetensors --method gptq -r '.*=int4:group=32' w.safetensors >a
    quantize -j7 -t int4 --calib in.safetensors --method gptq -r '.*=int4:group=32' w.safetensors | cmp a -
    run -2 quantize -t int4 --method gptq w.safetensors -o x
    assert_output --partial 'looks at inputs: give --calib'
    run -2 quantize -t q4_k --calib in.safetensors --method gptq -r 'x=q4_0' w.safetensors -o x
    assert_output --partial 'GPTQ makes integers'
    # importance from the same inputs, and as llama.cpp's file
    quantize -t q4_0 --calib in.safetensors w.safetensors >a
    quantize imatrix in.safetensors -o i.gguf
    quantize imatrix --form legacy in.safetensors -o i.dat
    quantize -t q4_0 --imatrix i.gguf w.safetensors | cmp a -
    quantize -t q4_0 --imatrix i.dat w.safetensors | cmp a -
    run ! cmp -s a <(quantize -t q4_0 w.safetensors)
}

@test "AWQ and SmoothQuant move scales into the norms" {
    tns-gen model.layers.0.self_attn.q_proj.input --shape 64,32 --seed 5 -o c.tns
    for m in awq smooth smooth:alpha=0.7; do
        quantize -q -t int8:group=16 -r '.*(embed|lm_head|down|o_proj|v_proj|k_proj|gate|up).*=keep' \
            --calib c.tns --method $m "$HF/llama" | quantize decode -d f32 >a
        for i in 0 1; do
            tns-cat -s "model.layers.$i.input_layernorm.weight" a >"a$i"
            tns-cat -s "model.layers.$i.input_layernorm.weight" "$HF/llama/model.safetensors" >"b$i"
        done
        run ! tns-diff -q a0 b0
        tns-diff -q a1 b1
    done
    run -2 bash -c "tns-cat '$HF/llama/model.safetensors' | quantize -t int8 --calib c.tns --method awq >x"
    assert_output --partial 'give a file'
}

@test "SmoothQuant between two linear layers: v and o, up and down, heads that share" {
    tns-gen model.layers.0.self_attn.o_proj.input --shape 64,32 --seed 5 >o.tns
    tns-gen model.layers.2.mlp.down_proj.input --shape 64,48 --seed 6 >d.tns
    tns-cat o.tns d.tns -o c.tns
    quantize -q -t f32 -r '.*=f32' --calib c.tns --method smooth "$HF/llama" >a
    quantize -q -t f32 -r '.*=f32' "$HF/llama" >b
    moved() { ! tns-diff -q <(tns-cat -s "model.layers.$1.weight" a) <(tns-cat -s "model.layers.$1.weight" b); }
    moved 0.self_attn.v_proj && moved 0.self_attn.o_proj
    moved 2.mlp.up_proj && moved 2.mlp.down_proj
    for same in 0.mlp.up_proj 0.mlp.down_proj 2.self_attn.v_proj 2.mlp.gate_proj 0.self_attn.q_proj 0.input_layernorm; do
        run ! moved $same
    done
}

@test "sparsify: N of M by size, inputs or SparseGPT, along rows or columns" {
    tns-gen x.weight --shape 32,64 >w
    tns-gen x.input --shape 128,64 --seed 9 -o c.tns
    zeros() { quantize measure --json -t f32 -r '.*=q8_0' "$1" | grep -o '"zeros":[0-9.]*' | head -1; }
    for s in magnitude wanda sparsegpt; do
        quantize sparsify --score $s --calib c.tns --keep 2:4 w >a
        [ "$(zeros a)" = '"zeros":0.5' ]
        quantize -t sparse24 a | quantize decode -d f32 | quantize -t bf16 | tns-diff -q <(quantize -t bf16 a) -
    done
    quantize sparsify --keep 1:4 --axis columns w >a
    [ "$(zeros a)" = '"zeros":0.75' ]
    quantize sparsify --keep 2:8 w | cmp -s - <(quantize -t nm:n=2,m=8,value=f32 w | quantize decode) ||
        tns-diff -q <(quantize sparsify --keep 2:8 w | quantize -t bf16) <(quantize -t nm:n=2,m=8 w | quantize decode -d bf16)
    run -2 quantize sparsify --keep 2:5 w -o x
    assert_output --partial 'is no multiple of 5'
    run -2 quantize sparsify --score wanda w -o x
    assert_output --partial 'give --calib'
    run -2 quantize sparsify --keep four w -o x
    assert_output --partial 'N:M, as 2:4'
}

@test "a target size: searched, then followed" {
    tns-gen a b c --shape 16,256 -o m.tns
    quantize --target-bpw 5 m.tns >q
    quantize search --target-bpw 5 m.tns >recipe
    quantize --recipe recipe m.tns | cmp q -
    bytes=$(tns-ls q | awk 'NR > 1 { n += $3 } END { print n }')
    [ $((bytes * 8)) -le $((5 * 3 * 16 * 256)) ]
    quantize --target-bpw 5 -r 'a$=q8_0' m.tns | tns-ls | grep -q '^q8_0 .* a$'
    run -2 quantize --target-bpw 1 m.tns -o x
    assert_output --partial 'the smallest choice takes'
    run -2 bash -c 'quantize --target-size 1K <m.tns >x'
    assert_output --partial 'needs a file'
}

@test "resume: finished tensors are taken over, what is damaged is made again" {
    tns-gen a b c d --shape 64,512 -o m.tns
    quantize -t mxfp8 m.tns -o want.tns
    # a run that stops: the third tensor holds a NaN
    tns-cat -e 'a|b' m.tns >two
    { tns-cat -e 'a|b' m.tns | head -c -128; } >cut.tns
    run -3 bash -c "cat cut.tns | quantize -t mxfp8 --resume -o q.tns"
    [ -e q.tns.partial ] && [ ! -e q.tns ]
    size=$(stat -c %s q.tns.partial)
    [ "$size" -gt 65536 ]
    run -0 quantize -v -t mxfp8 --resume m.tns -o q.tns
    assert_output --partial 'tensors are there already'
    cmp want.tns q.tns
    only_files m.tns want.tns two cut.tns q.tns
    run -3 bash -c "cat cut.tns | quantize -t mxfp8 --resume -o q2.tns"
    printf x | dd of=q2.tns.partial bs=1 seek=3000 conv=notrunc 2>/dev/null
    quantize -t mxfp8 --resume m.tns -o q2.tns
    cmp want.tns q2.tns
    run -2 quantize --resume m.tns
    assert_output --partial 'needs -o with a name'
}

@test "codes are not coded again unless that is asked for" {
    tns-gen w --shape 4,256 | quantize -t q8_0 >q
    run -2 bash -c 'quantize -t q4_k q >x'
    assert_output --partial 'is codes already'
    quantize decode q | quantize -t q4_k >want
    quantize -t q4_k --allow-requantize q | tns-diff -q want -
    tns-gen w --shape 4,256 | quantize -t mxfp8 >m
    quantize -t q4_k --allow-requantize m | tns-ls | grep -q '^q4_k'
    # sides of codes that stay are not taken for weights
    quantize -t q4_k -r 'w=keep' m | cmp m -
}

@test "sparsify --blocks: as many blocks as there are, rows brought together, nothing lost" {
    tns-gen w:dtype=bf16 --shape 64,64 | quantize sparsify --keep 1:16 >sparse.tns
    quantize sparsify --blocks 4 --report plain sparse.tns >a
    quantize sparsify --blocks 4 --cluster --report better sparse.tns >b
    for f in a b; do quantize decode $f | tns-diff sparse.tns -; tns-check $f; done
    number() { grep -o "\"$1\":[0-9.]*" "$2" | cut -d: -f2; }
    [ "$(tns-ls a | awk '/ w$/ { print $2 }')" = "$(number blocks plain)x4x4" ]
    awk -v a="$(number fill_before better)" -v b="$(number fill better)" -v c="$(number fill plain)" \
        'BEGIN { exit !(a == c && b >= a && a > 0) }'
    [ "$(number blocks better)" -le "$(number blocks plain)" ]
    run -2 bash -c "quantize sparsify --cluster sparse.tns >x"
    run -2 bash -c "quantize sparsify --blocks 4 --score wanda sparse.tns >x"
}

@test "rotate: rows and back, a model's norms into its readers, what cannot be" {
    tns-gen a --shape 4,48 >a.tns
    quantize rotate --of rows --random --seed 3 a.tns >r.tns
    run ! tns-diff -q a.tns r.tns
    quantize rotate --of rows --random --seed 3 --back r.tns | tns-diff --atol 1e-6 a.tns -
    # Outliers spread: four bits lose less.
    tns-gen o:dist=outlier --shape 64,256 >o.tns
    rmse() { quantize measure --json -t int4 "$1" | grep -o '"rmse":[^,]*' | head -1 | cut -d: -f2; }
    quantize rotate --of rows o.tns >t.tns
    awk -v a="$(rmse o.tns)" -v b="$(rmse t.tns)" 'BEGIN { exit !(b < a / 2) }'
    quantize rotate "$ROOT/tests/data/hf/llama" -o out/
    test -f out/config.json
    tns-cat -s 'model.norm.weight' out/model.safetensors | tns-cat --rename '.*=n' |
        tns-diff - <(tns-gen n:dtype=bf16,dist=constant --value 1 --shape 32)
    run -2 quantize rotate "$ROOT/tests/data/hf/llama_tied" -o x/
    assert_output --partial "the head is the embedding"
    run -2 quantize rotate "$ROOT/tests/data/hf/gpt2" -o x/
    assert_output --partial "of no family whose norms"
    run -2 bash -c "tns-import $ROOT/tests/data/hf/llama | quantize rotate >x"
    assert_output --partial "give a file, not a pipe"
    run -2 bash -c "tns-gen a --shape 4,7 | quantize rotate --of rows >x"
    assert_output --partial "rotation of 7 columns"
    run -2 bash -c "quantize -t q8_0 o.tns | quantize rotate --of rows >x"
    assert_output --partial "decode first"
}
