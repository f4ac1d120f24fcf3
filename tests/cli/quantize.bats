# SPDX-License-Identifier: Apache-2.0
# quantize: what users meet at the command: plans, rules, mixtures, pipes, bad values. The bytes of
# the codecs are proven by the unit tests.
# shellcheck disable=SC2154,SC2002 # stderr is set by run; pipes are what is tested
load helper

weights() { tns-gen "${@:-w}" --shape 64,512; }

@test "a file, a pipe, and any -j give the same bytes" {
    weights >w.tns
    for t in q4_k q8_0 mxfp8 nvfp4_packed fp8_tensor fp8_block bfp:order=desc int4 gptq4 nf4 nm; do
        quantize -t $t w.tns >a
        cat w.tns | quantize -j1 -t $t | cmp a -
        quantize -j7 -t $t w.tns | cmp a -
        tns-check a
    done
}

@test "every instruction set gives the same bytes" {
    weights >w.tns
    for t in q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs q4_0 q5_1 tq1_0 mxfp4 nvfp4 mxfp6; do
        TENSORUTILS_ISA=scalar quantize -t $t w.tns >a
        quantize -t $t w.tns | cmp a -
        quantize decode a >x
        TENSORUTILS_ISA=scalar quantize decode a | cmp x -
    done
}

@test "every codec that encodes decodes again, to what measure says" {
    weights >w.tns
    quantize --list=codecs | grep -v 'decoding only' | cut -f1 | while read -r t; do
        quantize plan -t "$t" w.tns >plan.txt 2>&1 || { grep -q "codec '$t'" plan.txt && continue; }
        quantize -t "$t" w.tns | quantize decode >x.tns
        tns-ls x.tns | grep -q '^f32 *64x512 .* w$'
        a=$(quantize measure --json -t "$t" w.tns | grep '"name":"w"' |
            sed 's/.*"max_abs":\([^,]*\).*/\1/')
        b=$(tns-diff --json w.tns x.tns | grep -o '"max_abs":[^,}]*' | head -1 | cut -d: -f2)
        [ "$a" = "$b" ] || { echo "$t: $a, $b"; return 1; }
    done
}

@test "decode gives the dtype that was, or the one asked for" {
    tns-gen w:dtype=bf16 --shape 4,256 | quantize -t q6_k >q
    quantize decode q | tns-ls | grep '^bf16'
    quantize decode -d f16 q | tns-ls | grep '^f16'
}

@test "side tensors follow at once, and decode misses them" {
    weights w v | quantize -t mxfp8 >q
    tns-ls q | awk 'NR > 1 { print $NF }' | diff - <(printf '%s\n' w w.scale v v.scale)
    run -3 --separate-stderr bash -c "tns-cat --exclude 'w.scale' q | quantize decode >x"
    [[ $stderr == *"'w': its side tensor '.scale' does not follow"* ]]
    run ends x
    assert_failure
}

@test "rules: the first match wins, over the mixture too; no match is an error" {
    tns-gen blk.0.attn_v.weight blk.0.attn_q.weight blk.0.attn_norm.weight --shape 4,256 >m.tns
    quantize -t q4_k_m --layers 1 -r '.*attn_q=q8_0' -r '.*attn=q2_k' m.tns | tns-ls >list.txt
    grep -q '^q2_k .*attn_v' list.txt
    grep -q '^q8_0 .*attn_q' list.txt
    grep -q '^q2_k .*attn_norm' list.txt
    run -2 bash -c "quantize -t q4_k -r 'nothing=q8_0' m.tns >x"
    assert_output --partial "rule 'nothing=q8_0' has matched no tensor"
    printf '# ours\n.*attn_v=q8_0 # wide\n\n.*attn_q=f16\n' >recipe
    quantize -t q4_k --recipe recipe m.tns | tns-ls | awk '{ print $1 }' |
        diff - <(printf '%s\n' DTYPE q8_0 f16 f32)
}

@test "mixtures go by role and layer number, whatever the order" {
    names=$(for i in $(seq 0 15); do echo "blk.$i.attn_v.weight blk.$i.ffn_down.weight blk.$i.ffn_up.weight"; done)
    # shellcheck disable=SC2086 # words
    tns-gen output.weight $names --shape 2,256 >m.tns
    quantize -t q4_k_m --layers 16 m.tns | tns-ls | awk 'NR > 1 { print $1, $NF }' | sort >a
    tns-cat --order 'blk.9' m.tns | quantize -t q4_k_m --layers 16 | tns-ls |
        awk 'NR > 1 { print $1, $NF }' | sort | cmp a -
    grep -q '^q6_k output.weight' a
    # n/8 at both ends, and every third of the others
    grep -c '^q6_k blk.*attn_v' a | diff - <(echo 8)
    for i in 0 1 4 7 10 13 14 15; do grep -q "^q6_k blk.$i.ffn_down" a; done
    for i in 2 3 5 6 8 9 11 12; do grep -q "^q4_k blk.$i.ffn_down" a; done
    run ! grep -q '^q6_k .*ffn_up' a
}

@test "rows that do not divide: a warning and a fallback, or an error before work" {
    run -0 --separate-stderr bash -c "tns-gen w --shape 3,96 | quantize -t q4_k | tns-ls"
    [[ $stderr == "quantize: warning: -: 'w': q5_0 instead of q4_k: 96 columns"* ]]
    assert_output --partial q5_0
    run -0 --separate-stderr bash -c "tns-gen w --shape 3,33 | quantize -t q4_k | tns-ls"
    assert_output --partial f16
    run -2 --separate-stderr bash -c "tns-gen w --shape 3,33 | quantize -t q4_k --no-fallback >x"
    [[ $stderr == *"'w': q4_k does not fit: 33 columns are no multiple of 256"* ]]
    run ends x
    assert_failure
}

@test "NaN and Inf: named by row and column, set to zero, or kept" {
    needs_python
    python3 - <<'END' >nan.npy
import struct, sys
h = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 256), }"
h += b' ' * (118 - len(h) - 1) + b'\n'
v = [0.5] * 512
v[256 + 7] = float('nan')
sys.stdout.buffer.write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(h)) + h + struct.pack('<512f', *v))
END
    run -3 --separate-stderr bash -c "quantize -t q8_0 nan.npy >x"
    [[ $stderr == *"row 1, column 7: NaN"* ]]
    run ends x
    assert_failure
    run -0 --separate-stderr bash -c "quantize -t q8_0 --nonfinite zero nan.npy | quantize decode >y"
    [[ $stderr == *"1 elements that are not finite set to 0"* ]]
    quantize -t fp8 --nonfinite keep nan.npy | quantize decode | tns-check
}

@test "values beyond what an f16 scale holds are an error, not infinite; defects only by --compat" {
    tns-gen w:dist=constant --value 1e9 --shape 2,256 >w.tns
    for t in q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs tq1_0 tq2_0 q1_0 q2_0; do
        run -3 bash -c "quantize -t $t w.tns >x"
        assert_output --partial "'w': row 0, columns from 0: too large for $t"
    done
    quantize -t q8_0 --compat ggml w.tns | quantize decode | tns-check
    for t in mxfp4_packed fp8_tensor nf4 int8 bfp; do
        quantize -t $t w.tns | quantize decode | tns-diff --rtol 0.25 w.tns -
    done
}

@test "plan: types, reasons and totals in text and JSON, nothing written" {
    tns-gen a b --shape 4,256 | quantize plan -t q4_k -r 'b=q8_0' >plan.txt
    grep -q "^f32 *q4_k .* default .* a$" plan.txt
    grep -q "^f32 *q8_0 .* rule: b .* b$" plan.txt
    grep -q "^2 tensors, 2048 elements: 8192 bytes become 1664, 6.5000 bits" plan.txt
    tns-gen a --shape 4,256 | quantize plan --json -t nvfp4_packed >plan.json
    grep -q '"passes":2' plan.json
    grep -q '"total":{"tensors":1,"elements":1024' plan.json
}

@test "META contents tells what is written" {
    tns-gen w --shape 4,256 | tns-export -o w.safetensors
    tns-import --contents w.safetensors | quantize -t mxfp8 >q
    strings q | grep -F '["w","f8_e4m3fn",[4,256]],["w.scale","f8_e8m0",[4,8]]'
    tns-check q
}

@test "a GGUF file gets its file type, and decodes" {
    tns-import "$ROOT/tests/data/gguf/plain.gguf" | quantize -t q8_0 | tns-export -o q.gguf
    tns-import q.gguf >q.tns
    strings q.tns | grep -F '"general.file_type":[4,7]'
    strings q.tns | grep -F '"general.quantization_version":[4,2]'
    quantize decode "$ROOT/tests/data/gguf/encoded.gguf" | tns-check
}

@test "importance: older files, lengths that are wrong, weights of zero" {
    needs_python
    weights >w.tns
    imatrix() { python3 -c '
import struct, sys
n, zeros = int(sys.argv[1]), int(sys.argv[2])
w = [1.0 + j % 7 for j in range(n)]
w[:zeros] = [0.0] * zeros
sys.stdout.buffer.write(struct.pack("<ii", 1, 1) + b"w" + struct.pack("<ii", 1, n) + struct.pack("<%df" % n, *w))' "$@"; }
    imatrix 512 0 >im
    quantize -t q4_k --imatrix im w.tns >a
    run cmp a <(quantize -t q4_k w.tns)
    assert_failure
    imatrix 511 0 >short
    run -2 bash -c "quantize -t q4_k --imatrix short w.tns >x"
    assert_output --partial "'w': 511 weights in the importance matrix, expected 512"
    imatrix 512 256 >zeros
    run -0 --separate-stderr bash -c "quantize -t q4_k --imatrix zeros w.tns | quantize decode >d"
    [[ $stderr == *"16 runs of importance weights are all 0, taken as 1"* ]]
    quantize measure -t q4_k --imatrix zeros w.tns | awk '/ w$/ { exit !($6 > 20) }'
    head -c 20 im >short.imatrix
    run -3 quantize -t q4_k --imatrix short.imatrix w.tns
}

@test "unknown types and keys are usage errors that help" {
    weights >w.tns
    run -2 quantize -t q4_kk w.tns
    assert_output --partial "did you mean 'q4_k'?"
    run -2 quantize -t iq2_xs w.tns
    assert_output --partial "can only decode"
    run -2 quantize -t mxfp8:sale=floor w.tns
    run -2 quantize -t mxfp8:scale=flor w.tns
    run -2 quantize -r 'w' w.tns
}

@test "pieces of a tensor are refused" {
    run -2 bash -c "quantize -r .=fp8 $ROOT/tests/data/stream/pieces.tns >x"
    assert_output --partial "is a piece: join first"
}

@test "search: a recipe within the target, that encode follows; a chart" {
    tns-gen a:dist=normal b:dist=normal c --shape 16,256 >m.tns
    quantize search --target-bpw 4.5 --svg f.svg m.tns >recipe
    grep -q '^<svg' f.svg
    quantize plan --json --recipe recipe m.tns | grep -o '"bpw":[0-9.]*,"fallbacks"' |
        tr -cd '0-9.' | awk '{ exit !($1 <= 4.5 && $1 > 3.5) }'
    cat m.tns | quantize search --target-bpw 4.5 | cmp recipe -
    quantize search --json m.tns | grep -c '"rmse"' | awk '{ exit !($1 > 3) }'
    run -2 quantize search --target-bpw 2 m.tns
    assert_output --partial "the smallest choice takes"
}

@test "measure --logits: divergence per record and in all, from files and pipes" {
    tns-gen a b --shape 8,64 >base.tns
    quantize -t q4_0 base.tns | quantize decode >moved.tns
    quantize measure --logits base.tns moved.tns >table
    awk '{ print $NF }' table | diff - <(printf '%s\n' NAME a b '(all)')
    cat moved.tns | quantize measure -j7 --logits base.tns | cmp table -
    quantize measure --logits base.tns base.tns |
        awk 'NR > 1 && ($2 != 0 || $7 != 1) { bad = 1 } END { exit bad || NR != 4 }'
    tns-gen next:dtype=i32,dist=arange --shape 8 >next.tns
    tns-cat -s a moved.tns |
        quantize measure --json --logits base.tns --tokens next.tns | grep -q '"ppl":[0-9]'
    run -2 quantize measure --logits base.tns --tokens base.tns moved.tns
    assert_output --partial "expected the 8 tokens"
    run -2 bash -c "tns-gen c --shape 8,64 | quantize measure --logits base.tns"
    assert_output --partial "base.tns: no logits 'c'"
    run -2 bash -c "tns-gen a --shape 4,64 | quantize measure --logits base.tns"
    assert_output --partial "'a': another shape"
    run -2 quantize measure --tokens next.tns base.tns
}
