# SPDX-License-Identifier: Apache-2.0
# quantize: where users of other tools were hurt. What concerns numbers alone is in
# tests/unit/quant/traps.c.
# shellcheck disable=SC2154,SC2002 # stderr is set by run; pipes are what is tested
load helper

HF=$ROOT/tests/data/hf

# refused STATUS WORDS COMMAND: with that message, and not a byte written.
refused() {
    run -"$1" --separate-stderr bash -c "$3 >out"
    [[ $stderr == *"$2"* ]] || { echo "$stderr"; return 1; }
    [ ! -s out ]
}

@test "what does not fit fails before the first byte, of streams in files and of folders" {
    tns-gen a b --shape 64,512 >ab.tns
    tns-gen c --shape 4,100 >c.tns
    tns-cat ab.tns c.tns | tns-cat --join -o m.tns
    refused 2 "'c': q4_k does not fit: 100 columns are no multiple of 256" "quantize -t q4_k --no-fallback m.tns"
    refused 2 "'c': codec 'int4': last dimension 100" "quantize -t int4 m.tns"
    refused 2 "rule 'nothing=q8_0' has matched no tensor" "quantize -t q4_k -r nothing=q8_0 m.tns"
    refused 2 "no multiple of 256" "quantize -t q4_k --no-fallback $HF/llama"
    # by META contents also from a pipe
    tns-export -o m.safetensors m.tns
    refused 2 "'c': codec 'int4'" "tns-import --contents m.safetensors | quantize -t int4"
    quantize plan -t q4_k m.tns | grep -q ' 1 fallbacks$'
    quantize -t q4_k ab.tns >a
    quantize -t q8_0 a -r '.*=keep' | cmp a -
    refused 2 "'a' is codes already" "quantize -t q8_0 a"
}

@test "overrides: equal to the default, in exact case, over the mixture and over what is kept by name" {
    tns-gen blk.0.attn_v.weight blk.0.ffn_down.weight blk.0.attn_norm.weight output.weight --shape 4,256 >m.tns
    type_of() { tns-ls q | awk -v n="$1" '$NF == n { print $1 }'; }
    # the rule says what -t says: it still beats the mixture
    quantize -t q4_k_m --layers 1 -r '.*attn_v=q4_k' -r 'output=q4_k' m.tns >q
    [ "$(type_of blk.0.attn_v.weight)" = q4_k ]
    [ "$(type_of output.weight)" = q4_k ]
    [ "$(type_of blk.0.ffn_down.weight)" = q6_k ]
    [ "$(type_of blk.0.attn_norm.weight)" = f32 ]
    quantize -t q4_k -r '.*norm=q8_0' m.tns >q
    [ "$(type_of blk.0.attn_norm.weight)" = q8_0 ]
    # a pattern is not made lower case: \d is a digit, \D none
    quantize -t q4_k -r 'blk\.\d\.attn_v=q8_0' m.tns >q
    [ "$(type_of blk.0.attn_v.weight)" = q8_0 ]
    refused 2 "has matched no tensor" "quantize -t q4_k -r 'blk\\.\\D\\.=q8_0' m.tns"
    refused 2 "has matched no tensor" "quantize -t q4_k -r 'BLK=q8_0' m.tns"
    # a rule whose type does not fit falls back like others, and tells of it
    tns-gen w --shape 4,96 >w.tns
    run -0 --separate-stderr bash -c "quantize -t q8_0 -r 'w=q6_k' w.tns >q"
    [[ $stderr == *"'w': q8_0 instead of q6_k"* ]]
}

@test "importance: none for any tensor, none for some, NaN, wrong length: before any work" {
    needs_python
    tns-gen a b --shape 4,256 >m.tns
    python3 - <<'END'
import struct
def matrix(path, *entries):
    with open(path, "wb") as f:
        f.write(struct.pack("<i", len(entries)))
        for name, w in entries:
            f.write(struct.pack("<i", len(name)) + name + struct.pack("<ii", 1, len(w)) + struct.pack("<%df" % len(w), *w))
ones = [1.0] * 256
matrix("other", (b"c", ones))
matrix("half", (b"a", ones))
matrix("long", (b"a", ones), (b"b", ones + [1.0]))
matrix("nan", (b"a", ones), (b"b", ones[:-1] + [float("nan")]))
END
    refused 2 "other: no weights for 'a' or any other tensor" "quantize -t q4_k --imatrix other m.tns"
    run -2 --separate-stderr bash -c "cat m.tns | quantize -t q4_k --imatrix other -o x"
    [[ $stderr == *"no weights for 'a' or any other tensor"* ]] && [ ! -e x ]
    refused 2 "'b': 257 weights in the importance matrix, expected 256" "quantize -t q4_k --imatrix long m.tns"
    refused 3 "'b': weight 255 is nan" "quantize -t q4_k --imatrix nan m.tns"
    run -0 --separate-stderr bash -c "quantize -t q4_k --imatrix half m.tns >q"
    [ "$stderr" = "quantize: warning: half: no weights for 'b': coded without" ]
    run -0 --separate-stderr bash -c "cat m.tns | quantize -t q4_k --imatrix half | cmp q -"
    [[ $stderr == *"half: no weights for 'b': coded without"* ]]
    # types that use none do not ask for any
    quantize -t q8_0 --imatrix other m.tns >q
}

@test "tied embeddings: one tensor, of the type that an output gets" {
    shard-ckpt cat -q --to gguf "$HF/llama_tied" >tied.tns
    run ! bash -c "tns-ls tied.tns | grep -q ' output.weight$'"
    quantize plan --json -t q4_k_m tied.tns | grep '"name":"token_embd.weight"' |
        grep -q '"type":"q8_0".*"why":"q4_k_m: embed"' # as output.weight with rows of 32
    shard-ckpt cat -q --to gguf "$HF/llama" | quantize plan --json -t q4_k_m |
        grep '"name":"token_embd.weight"' | grep -q '"fallback_from":"q4_k"'
    quantize -q -t int4:group=16 "$HF/llama_tied" -o d/
    run ! bash -c "tns-ls d/model.safetensors | grep -q lm_head"
}

@test "roles: fused experts are found, routers are not coded, totals per role" {
    shard-ckpt cat -q --to gguf "$HF/mixtral" | quantize plan -t q8_0 >plan.txt
    grep -q 'keep .*ffn_gate_inp' plan.txt
    run ! grep -q 'keep .*_exps' plan.txt
    grep -q '^ffn_down: [0-9]* tensors, [0-9]* elements, [0-9.]* bits per weight$' plan.txt
    quantize plan --json -t q8_0 "$HF/qwen3_moe" >plan.json
    grep '"name":"model.layers.0.mlp.gate.weight"' plan.json | grep -q '"type":"keep"'
    needs_python
    python3 - <<'END'
import json
rows = [json.loads(line) for line in open("plan.json")]
told = next(r for r in rows if "total" in r)
for key in "tensors", "elements", "from_bytes", "to_bytes":
    assert sum(r[key] for r in told["roles"].values()) == told["total"][key], key
assert told["roles"]["attn_v"]["tensors"] and told["roles"]["ffn_up"]["tensors"]
END
}

@test "a run that stops leaves no file, and a full disk is an error" {
    tns-gen w --shape 64,512 >w.tns
    head -c -100 w.tns >cut.tns
    run -3 quantize -t q8_0 cut.tns -o q.tns
    run -3 quantize -t q8_0 cut.tns -o q.safetensors
    only_files w.tns cut.tns
    run -4 bash -c 'quantize -t q8_0 w.tns >/dev/full'
    run -4 bash -c 'quantize decode w.tns >/dev/full'
}

@test "GGUF in pieces: written, read, and made one again without stale keys" {
    shard-ckpt cat -q --to gguf "$HF/llama" >m.tns
    quantize -q -t q8_0 m.tns -o whole.gguf
    quantize -q -t q8_0 m.tns --max-shard-size 16K -o s.gguf
    [ -e s-00001-of-00003.gguf ] && [ -e s-00003-of-00003.gguf ] && [ ! -e s.gguf ]
    tns-diff -q whole.gguf s-00001-of-00003.gguf
    quantize -q -r '.*=keep' s-00001-of-00003.gguf -o one.gguf
    run ! grep -a -q 'split\.' one.gguf
    tns-diff -q whole.gguf one.gguf
    quantize -q -r '.*=keep' whole.gguf --max-shard-size 16K -o t.gguf
    tns-diff -q whole.gguf t-00001-of-00003.gguf
}

@test "requantizing: the types that numbers have been through are on record" {
    tns-gen w --shape 4,256 | quantize -t q8_0 >a
    quantize -t q4_k --allow-requantize a >b
    grep -a -q '"quant.from":\["q8_0"\]' b
    quantize -t int4 --allow-requantize b >c
    grep -a -q '"quant.from":\["q8_0","q4_k"\]' c
    quantize -t f32 -r '.*=f32' --allow-requantize a | grep -a -q '"quant.from":\["q8_0"\]'
    run ! grep -a -q quant.from a
}

@test "NVFP4 and its like are reached by name, alone and by rule; what its scales do not reach is an error" {
    tns-gen w v --shape 8,256 >w.tns
    for t in nvfp4 nvfp4_packed mxfp4 iq4_xs tq1_0 q1_0; do
        quantize -t $t w.tns | tns-check
        quantize -t q8_0 -r "w=$t" w.tns | quantize decode | tns-ls | grep -q ' w$'
    done
    tns-gen big:dist=constant --value 3e3 --shape 2,256 >big.tns
    run -3 --separate-stderr bash -c "quantize -t nvfp4 big.tns >x"
    [[ $stderr == *"'big': row 0, columns from 0: too large for nvfp4, whose scales end at 448"* ]]
    quantize -t nvfp4 --compat ggml big.tns | tns-check
    quantize -t nvfp4_packed big.tns | quantize decode | tns-diff --rtol 0.25 big.tns -
}

@test "a plan is on standard output alone, a dry run writes nothing" {
    tns-gen w --shape 4,96 >w.tns
    quantize plan -t q4_k w.tns 2>err | grep -q '^f32 .* w$'
    [ ! -s err ]
    only_files w.tns err
    quantize plan --json -t q4_k w.tns | head -1 | grep -q '"schema":"tensorutils.quantize.plan/1"'
}

@test "files of engines that lie: shapes, group indices" {
    needs_python
    quantize -q -t int4:group=16 "$HF/llama" -o a/
    quantize -q -t gptq4:group=16 "$HF/llama" -o g/
    change() { # FOLDER SUFFIX VALUES: in the first tensor whose name ends so
        rm -rf bad && cp -r "$1" bad && python3 - "$2" "$3" <<'END'
import json, struct, sys
d = bytearray(open("bad/model.safetensors", "rb").read())
n = struct.unpack("<Q", d[:8])[0]
head = json.loads(d[8:8 + n])
name = sorted(k for k in head if k.endswith(sys.argv[1]))[0]
at = 8 + n + head[name]["data_offsets"][0]
form = {"I64": "<%dq", "I32": "<%di"}[head[name]["dtype"]]
v = [int(s) for s in sys.argv[2].split(",")]
struct.pack_into(form % len(v), d, at, *v)
open("bad/model.safetensors", "wb").write(d)
END
    }
    decode() { run -3 --separate-stderr quantize decode bad -o x.tns; [[ $stderr == *"$1"* ]]; [ ! -e x.tns ]; }
    change a .weight_shape 32,64
    decode "model.layers.0.mlp.down_proj"
    change a .weight_shape -1,48
    decode "model.layers.0.mlp.down_proj"
    change g .g_idx 99
    decode "group index 99 of column 0: there are 3 groups"
    change g .g_idx -1
    decode "group index -1 of column 0"
    # out of order is what act-order gives: columns take the scales that they name
    change g .g_idx "$(seq 0 47 | awk '{ printf "%s%d", (NR > 1 ? "," : ""), 2 - int($1 / 16) }')"
    quantize decode bad >x
    quantize decode g >y
    run ! tns-diff -q x y
    tns-check x
}
