# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2002 # pipes are what is tested
load helper

prepare() { tns-gen a:dist=arange,dtype=f32 b:dtype=bf16 --shape 6,4 -o x.tns; }

@test "worked case: the 72 bytes of {1,2}" {
    printf '\x38\0\0\0\0\0\0\0{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  \0\0\x80\x3f\0\0\0\x40' >want
    tns-import --from safetensors want | tns-export --to safetensors >got
    cmp want got
}

@test "suffix or --to, file or pipe, spooled or announced: the same bytes" {
    tns-export x.tns -o want.safetensors
    tns-export --to safetensors x.tns | cmp want.safetensors -
    tns-export --to safetensors -o got <x.tns && cmp want.safetensors got
    cat x.tns | tns-export --to safetensors -o got && cmp want.safetensors got
    tns-import --contents want.safetensors | tns-export --to safetensors -o got
    cmp want.safetensors got
    tns-export want.safetensors -o back.tns
    tns-diff x.tns back.tns
}

@test "usage: no format, no such suffix, several operands" {
    run -2 tns-export x.tns
    run -2 tns-export x.tns -o y.unknown
    run -2 tns-export x.tns x.tns -o y.npz
    run -2 tns-export --to npy x.tns -o y.npy
    only_files x.tns
}

@test "segments become one file, a name twice is refused" {
    tns-gen c:dtype=i8 --shape 3 -o y.tns
    cat x.tns y.tns | tns-export -o z.safetensors
    tns-import z.safetensors | tns-ls | wc -l | diff - <(echo 4)
    run -3 bash -c 'cat x.tns x.tns | tns-export -o w.safetensors'
    assert_output --partial "two tensors are named 'a'"
    only_files x.tns y.tns z.safetensors
}

@test "folders: shards, refusal, -f" {
    tns-export x.tns --to hf --max-shard-size 100 -o model
    only_files x.tns model model/model-00001-of-00002.safetensors \
        model/model-00002-of-00002.safetensors model/model.safetensors.index.json
    tns-diff x.tns model
    run -2 tns-export x.tns --to hf -o model
    tns-export x.tns --to hf -f -o model/
    only_files x.tns model model/model.safetensors
    run -2 tns-export x.tns --to hf
}

@test "a damaged stream gives no file" {
    head -c 300 x.tns >cut.tns
    run -3 bash -c 'cat cut.tns | tns-export -o y.safetensors'
    printf '\xff' | dd of=x.tns bs=1 seek=140 conv=notrunc status=none
    run -3 tns-export x.tns -o y.safetensors
    assert_output --partial "checksum mismatch"
    run -3 bash -c 'tns-export --to hf -o y <x.tns'
    only_files x.tns cut.tns
}

@test "every bad stream is refused, from a file and from a pipe" {
    for bad in "$ROOT"/tests/bad/*.tns; do
        [[ $bad != *-strict-* && $bad != */OK-* ]] || continue # tns-check's extra rules; good ones
        for how in "tns-export --from tns --to safetensors -o y $bad" \
            "cat $bad | tns-export --to safetensors -o y"; do
            run bash -c "$how"
            [ "$status" = 3 ] || { echo "$status: $how: $output"; return 1; }
            [ ! -e y ]
        done
    done
}

@test "a full disk and a closed output are status 4" {
    run -4 bash -c 'tns-export --to safetensors x.tns >/dev/full'
    run -4 bash -c 'tns-export --to safetensors x.tns >&-'
}

@test "a signal leaves nothing" {
    mkdir out
    (exec tns-export --to hf -o out/model <(tns-import --contents "$ROOT/tests/data/hf/llama"; sleep 30)) &
    sleep 0.5
    kill -TERM $!
    run wait $!
    run find out -mindepth 1
    assert_output ''
}
