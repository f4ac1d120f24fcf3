# SPDX-License-Identifier: Apache-2.0
load helper

prepare() {
    tns-gen a:dist=arange,dtype=i16 layers.0.w layers.1.w:dtype=bf16 --shape 2,3 -o x.tns
}

@test "a table with dtype, shape, bytes and name" {
    run -0 tns-ls x.tns
    assert_line --index 0 'DTYPE  SHAPE  BYTES  NAME'
    assert_line --index 1 'i16    2x3       12  a'
    assert_line --index 3 'bf16   2x3       12  layers.1.w'
}

@test "files, pipes and concatenations list the same" {
    tns-ls x.tns >want
    tns-ls <x.tns | diff want -
    cat x.tns | tns-ls | diff want -
    cat x.tns x.tns | tns-ls --json | grep -c '"type":"tensor"' | diff - <(echo 6)
    cat x.tns x.tns | tns-ls --json | grep -c '"segment":1' | diff - <(echo 3)
}

@test "selection by glob and by regex" {
    assert_equal "$(tns-ls -s 'layers.*' x.tns | wc -l)" 3
    assert_equal "$(tns-ls -e 'layers\.[1-9]' x.tns | wc -l)" 2
    assert_equal "$(tns-ls -x '*.w' x.tns | wc -l)" 2
    assert_equal "$(tns-ls -s '*' -X a x.tns | wc -l)" 3
    run -2 tns-ls -e '(' x.tns
    assert_output --partial -- '--regex'
}

@test "--stats" {
    run -0 tns-ls --stats --json -s a x.tns
    assert_output --partial '"min":0.0,"max":5.0,"mean":2.5,'
    assert_output --partial '"nans":0,"infs":0,"zeros":1,'
    # NaN and Inf: the bytes of e4m3fn's 0x7f, and what a cast of 1e30 to e5m2 gives
    tns-gen i:dtype=f32,dist=constant,value=inf --shape 3 | tns-ls --stats --json >got
    grep -F '"min":null,"max":null,"mean":null,"std":null,"nans":0,"infs":3,"zeros":0' got
    tns-gen n:dtype=f64,dist=constant,value=nan --shape 2 | tns-ls --stats >got
    grep -E '^f64 +2 +16 +- +- +- +- +2 +0 +0  n$' got
}

@test "META and ends with --all" {
    assert_equal "$(tns-ls --all --json x.tns | grep -c '"type":"end"')" 1
}

@test "files of every format list as what tns-import makes of them" {
    local f data=$BATS_TEST_DIRNAME/../data
    for f in safetensors/dtypes.safetensors npy/le_f16.npy npy/deflated.npz torch/new_dtypes.pt \
        torch/old_case3_legacy.pt gguf/blocks.gguf hf/llama_sharded; do
        tns-import "$data/$f" >want.tns
        echo "$f"
        tns-ls "$data/$f" | diff - <(tns-ls want.tns)
        tns-ls --all --stats "$data/$f" | diff - <(tns-ls --all --stats want.tns)
        diff <(tns-ls --json -s '*1*' -x '*q*' "$data/$f" | sed 's/"file.*"type"//') \
            <(tns-ls --json -s '*1*' -x '*q*' want.tns | sed 's/"file.*"type"//')
    done
    run -3 tns-ls x.tns "$data/npy/refuse_text.npy" x.tns
    assert_equal "$(grep -c layers.1.w <<<"$output")" 2
    run -3 tns-ls "$data/npy/void_bf16.npy"
    tns-ls --void bf16 "$data/npy/void_bf16.npy" | grep '^bf16'
    tns-export x.tns -o x.safetensors
    run -3 bash -c 'tns-ls <x.safetensors'
    tns-ls --json x.safetensors | grep -F '"name":"a"' >line
    # the offset is where the data lies
    at=$(grep -o '"offset":[0-9]*' line | cut -d: -f2)
    assert_equal "$(tail -c +$((at + 1)) x.safetensors | head -c 12 | od -An -td2 | xargs)" '0 1 2 3 4 5'
}

@test "a truncated stream is status 3 and names the file" {
    head -c 500 x.tns >short.tns
    run -3 tns-ls short.tns
    assert_output --partial 'tns-ls: short.tns'
}

@test "names are shown on one line" {
    tns-cat -r $'a=b\\c' x.tns | tns-ls | grep -qF 'b\\c'
}

@test "several files have a column of their names; errors have no titles above nothing" {
    cp x.tns y.tns
    run -0 tns-ls x.tns y.tns
    assert_line --index 0 'FILE   DTYPE  SHAPE  BYTES  NAME'
    assert_line --index 4 'y.tns  i16    2x3       12  a'
    run -4 tns-ls ./absent
    refute_output --partial 'DTYPE'
}

@test "-v, and a terminal: the last line counts" {
    tns-export x.tns -o x.safetensors
    assert_equal "$(tns-ls -v x.safetensors | tail -1)" '3 tensors, 48 B, safetensors'
    assert_equal "$(tns-ls -v x.tns x.safetensors | tail -1)" '6 tensors, 96 B, several formats'
    needs_terminal
    run -0 script -qec "tns-ls x.tns" /dev/null
    assert_output --partial '3 tensors, 48 B, tns'
}

@test "-a shows what META holds, long values cut" {
    run -0 tns-ls -a "$ROOT/tests/data/gguf/blocks.gguf"
    assert_line "META 'gguf'"
    assert_line --regexp '^  [a-z.]+: '
    refute_line --regexp '^.{140}'
}

@test "scalars are called so, and zero has no sign" {
    tns-gen s:dist=constant,value=-0.0 --shape '' | tns-ls --stats >got
    grep -E '^f32 +scalar +4 +0 +0 +0 +0 ' got
}

@test "--stats of codes says who makes numbers of them" {
    tns-gen w --shape 2,32 | quantize -t q8_0 -o q.tns
    run -0 --separate-stderr tns-ls --stats q.tns
    assert_regex "$stderr" 'quantize decode'
}

@test "an array of an npz that cannot be read: named, and the others are listed" {
    local data=$ROOT/tests/data/npy
    cp "$data/refuse_text.npy" text.npy
    tns-cat -s a x.tns | tns-export -o a.npy
    needs_python
    python3 -c "
import zipfile
with zipfile.ZipFile('mixed.npz', 'w') as z:
    for n in 'text.npy', 'a.npy': z.write(n)"
    run -3 --separate-stderr tns-ls mixed.npz
    assert_line --regexp ' a$'
    assert_regex "$stderr" "mixed.npz: .*text"
    run -3 tns-import mixed.npz
    # What follows the array that was left out is verified by its own checksum.
    run -3 --separate-stderr tns-ls --stats mixed.npz
    assert_line --regexp ' 5 +2.5 .* a$'
}

@test "a file of no known format" {
    run -3 tns-ls "$ROOT/README.md"
    assert_output --partial 'README.md: no known tensor file begins with bytes'
    assert_output --partial 'tns-import --list=formats'
}

@test "shards that an index does not list are spoken of" {
    cp -r "$ROOT/tests/data/hf/llama_sharded" m
    chmod -R u+w m
    echo '{"weight_map":{}}' >m/model.safetensors.index.json
    run -0 --separate-stderr tns-ls m
    assert_equal "$stderr" "tns-ls: warning: m/model.safetensors.index.json: does not list \
'model-00001-of-00003.safetensors', which lies beside it"
    run -0 --separate-stderr tns-ls "$ROOT/tests/data/hf/llama_sharded"
    assert_equal "$stderr" ''
}
