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
