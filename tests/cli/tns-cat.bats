# SPDX-License-Identifier: Apache-2.0
load helper

DATA=$BATS_TEST_DIRNAME/../data/stream
FILES=$BATS_TEST_DIRNAME/../data

prepare() {
    tns-gen a:dist=arange,dtype=i32 l.0.w:dtype=bf16 l.1.w --shape 4,6 -o x.tns
    tns-gen b c:dtype=i4 --shape 5 -o y.tns
}

# list FILE: "NAME DTYPE SHAPE" of each tensor
list() { tns-ls "$@" | awk 'NR > 1 { print $4, $1, $2 }'; }
# numbers FILE NAME: its i32 values
numbers() { tns-cat -s "$2" "$1" | tail -c +129 | head -c "$3" | od -An -v -td4 | xargs; }

@test "without options it is cat, byte for byte, and keeps segments" {
    tns-cat x.tns y.tns | cmp - <(cat x.tns y.tns)
    cat x.tns y.tns | tns-cat | cmp - <(cat x.tns y.tns)
    cat x.tns | tns-cat - y.tns | cmp - <(cat x.tns y.tns)
}

@test "the empty stream is its own copy" {
    tns-cat -x '*' x.tns >empty.tns
    assert_equal "$(stat -c %s empty.tns)" 128
    tns-cat empty.tns | cmp - empty.tns
}

@test "select, exclude, rename" {
    assert_equal "$(list -s 'l.*' x.tns | wc -l)" 2
    tns-cat -e 'l\.\d' -X 'l\.1' -r 'l\.(\d+)=layer.$1' x.tns >o.tns
    assert_equal "$(list o.tns)" 'layer.0.w bf16 4x6'
    tns-check o.tns
    run -2 tns-cat -r 'l\.(\d)=$7' x.tns
    run -2 tns-cat -r 'nothing' x.tns
}

@test "slices have no steps, and say so" {
    run -2 tns-cat --slice 'a=:,0:4:2' x.tns
    assert_output --partial "slice ':,0:4:2': '0:4:2': slices have no steps"
}

@test "slices are Python's" {
    tns-cat --slice 'a=1:3,-2:' x.tns >o.tns
    assert_equal "$(numbers o.tns a 16)" '10 11 16 17'
    tns-cat --slice 'a=-1' x.tns >o.tns
    assert_equal "$(numbers o.tns a 24)" '18 19 20 21 22 23'
    assert_equal "$(list -s a o.tns)" 'a i32 6'
    tns-cat --slice 'a=:,2' x.tns >o.tns
    assert_equal "$(numbers o.tns a 16)" '2 8 14 20'
    tns-cat --slice 'a=3:2' x.tns | tns-ls -s a | grep -q 'i32    0x6'
    tns-cat --slice 'a=:100,:1' x.tns >o.tns
    assert_equal "$(numbers o.tns a 16)" '0 6 12 18'
    run -2 tns-cat --slice 'a=4' x.tns
    assert_output --partial 'outside dimension 0 of size 4'
    run -2 tns-cat --slice 'a=0,0,0' x.tns
    run -3 tns-cat --slice 'c=0:1' y.tns
    assert_output --partial 'whole blocks'
}

@test "cast: floats by default, others by name" {
    tns-cat -d f16 x.tns >o.tns
    assert_equal "$(list o.tns)" $'a i32 4x6\nl.0.w f16 4x6\nl.1.w f16 4x6'
    tns-cat -d 'a=f64' x.tns | tns-cat -d 'a=i32' | cmp - x.tns
    run -2 tns-cat -d 'l\.1=i8' x.tns
    run -2 tns-cat -d q4_0 x.tns
}

@test "order, of files and of pipes" {
    tns-cat --order 'l\.1' --order l x.tns y.tns >o.tns
    assert_equal "$(list o.tns | cut -d' ' -f1 | xargs)" 'l.1.w l.0.w a b c'
    cat x.tns y.tns | tns-cat --order 'l\.1' --order l | cmp - o.tns
    tns-check o.tns
    cp x.tns bad.tns
    printf '\377' | dd of=bad.tns bs=1 seek=130 conv=notrunc status=none
    run -3 tns-cat --order l bad.tns -o o2.tns
    assert_output --partial 'payload checksum mismatch'
}

@test "align and index" {
    tns-cat --align 4096 -i x.tns >o.tns
    tns-check o.tns
    tns-ls --json o.tns | grep -o '"offset":[0-9]*' | cut -d: -f2 | while read -r at; do
        # every header here is 128 bytes
        [ $(((at + 128) % 4096)) = 0 ] || exit 1
    done
    tns-cat o.tns | cmp - x.tns # INDEX and PAD are not copied
    run -2 tns-cat --align 100 x.tns
}

@test "join: pieces become whole, replicas count once, flat and growing ones too" {
    local f
    for f in flat grows; do
        tns-cat --join "$DATA/$f.tns" >o.tns
        tns-check o.tns
        assert_equal "$(list o.tns)" 'a i32 4x6'
        assert_equal "$(numbers o.tns a 96)" "$(seq 0 23 | xargs)"
    done
    tns-cat --join "$DATA/grows.tns" | cmp - "$DATA/whole.tns"
    tns-cat --join "$DATA/pieces.tns" >o.tns
    assert_equal "$(list o.tns)" $'a i32 4x6\nother i32 2'
    assert_equal "$(tns-check --json o.tns | grep -o '"segments":[0-9]*')" '"segments":1'
    tns-cat --join -s a "$DATA/pieces.tns" | cmp - "$DATA/whole.tns"
    tns-cat --join -s a --slice 'a=1:3' "$DATA/pieces.tns" >o.tns
    assert_equal "$(numbers o.tns a 48)" "$(seq 6 17 | xargs)"
    tns-cat --join "$DATA/flat.tns" | tns-ls --json | grep -F '"meta":{"org.key":1}'
}

@test "join: what does not fit together is refused and leaves no END" {
    local f
    for f in hole differ overlap sum; do
        run -3 tns-cat --join "$DATA/$f.tns" -o o.tns
        assert_output --partial "'a'"
        only_files x.tns y.tns
    done
    cat "$DATA/pieces.tns" | tns-cat --join -s a | cmp - "$DATA/whole.tns"
    run -3 bash -c "tns-cat --join '$DATA/hole.tns' >o.tns"
    run ! ends o.tns
    cp "$DATA/pieces.tns" bad.tns
    printf '\377' | dd of=bad.tns bs=1 seek=450 conv=notrunc status=none
    run -3 tns-cat --join bad.tns -o o.tns
    run -2 tns-cat --join x.tns y.tns
}

@test "files of every format pass as what tns-import makes of them" {
    local f
    for f in safetensors/case1.safetensors safetensors/dtypes.safetensors npy/fortran_be.npy \
        npy/stored.npz npy/deflated.npz torch/new_case2.pt torch/new_deflated.pt \
        torch/new_views.pt torch/old_case3_legacy.pt gguf/blocks.gguf gguf/kv.gguf \
        hf/llama_sharded; do
        tns-import "$FILES/$f" >want.tns
        echo "$f"
        tns-cat "$FILES/$f" | cmp - want.tns
        tns-cat x.tns "$FILES/$f" y.tns | cmp - <(cat x.tns want.tns y.tns)
        tns-cat -d f32 --align 256 -i "$FILES/$f" >a.tns
        tns-cat -d f32 --align 256 -i want.tns | cmp - a.tns
        tns-cat --order '.*[bw]' "$FILES/$f" | cmp - <(tns-cat --order '.*[bw]' want.tns)
        tns-cat --join "$FILES/$f" | cmp - <(tns-cat --join want.tns)
    done
}

@test "other formats are edited like streams" {
    tns-export x.tns -o x.safetensors
    tns-export x.tns -o x.pt
    local f
    for f in x.safetensors x.pt; do
        tns-cat -e 'l\.\d' -X 'l\.1' -r 'l\.(\d+)=layer.$1' --slice 'l=1:3,-2:' "$f" >o.tns
        tns-check o.tns
        assert_equal "$(list o.tns)" 'layer.0.w bf16 2x2'
        tns-cat --slice 'a=1:3,-2:' "$f" >o.tns
        assert_equal "$(numbers o.tns a 16)" '10 11 16 17'
        tns-cat --order 'l\.1' --order l "$f" >o.tns
        assert_equal "$(list o.tns | cut -d' ' -f1 | xargs)" 'l.1.w l.0.w a'
    done
    run -3 bash -c 'tns-cat <x.safetensors >o.tns' # standard input is a stream
    assert_output --partial 'tns-import'
}

@test "pieces in other formats are joined and put in order" {
    tns-cat --join --order other "$DATA/pieces.tns" >o.tns
    assert_equal "$(list o.tns)" $'other i32 2\na i32 4x6'
    mkdir pieces
    cp "$DATA/pieces.tns" pieces/a.tns
    run -3 tns-cat --join pieces # a folder of streams is no format
    assert_output --partial 'pieces: a folder'
}

@test "checksums of other formats are compared before the END" {
    cp "$FILES/npy/stored.npz" bad.npz
    local at
    at=$(tns-ls --json "$FILES/npy/stored.npz" |
        awk -F'[:,]' '/"bytes":[1-9]/ { for (i = 1; i < NF; i++)
            if ($i == "\"offset\"") { print $(i + 1); exit } }')
    printf '\377' | dd of=bad.npz bs=1 seek="$at" conv=notrunc status=none
    run -3 tns-cat bad.npz -o o.tns
    assert_output --partial 'checksum mismatch'
    [ ! -e o.tns ]
    run -3 tns-cat -d f64 bad.npz -o o.tns
    run -3 tns-cat --order x bad.npz -o o.tns
    run -3 tns-ls --stats bad.npz
    tns-ls bad.npz
    tns-cat --no-crc bad.npz >o.tns
    tns-check o.tns
    # of a tensor that is left out nothing is read
    tns-cat -x '*' bad.npz >o.tns
    tns-check o.tns
    tns-cat --void bf16 "$FILES/npy/void_bf16.npy" | cmp - <(tns-import --void bf16 "$FILES/npy/void_bf16.npy")
    run -3 tns-cat "$FILES/npy/void_bf16.npy" -o o2.tns
    assert_output --partial -- '--void=bf16'
}

@test "a failed filter leaves no END, behind an END neither" {
    head -c 700 x.tns >short.tns
    run -3 bash -c 'tns-cat y.tns short.tns >o.tns'
    run -3 tns-check o.tns
    run -2 bash -c "tns-cat --slice 'a=9' x.tns >o.tns"
    run ! ends o.tns
}

@test "metadata follows the edit" {
    tns-cat -r 'w=u' -d bf16 --slice 'v=:2,1' "$DATA/meta.tns" >o.tns
    tns-check o.tns
    tns-ls --all --json o.tns >o.json
    grep -F '"meta":{"tensors":[["u","i32",[2]],["u.scale","i32",[1]],["v","bf16",[2]]]}' o.json
    grep -F '"meta":{"quant":{"scale":"u.scale","scheme":"test"}},"name":"u"' o.json
    grep -F '"meta":{"x.y":true},"name":"v"' o.json # src spoke of other bytes
    grep -F '"name":"unknown but harmless"' o.json
    run -3 tns-cat --slice 'w=0' "$DATA/meta.tns"
    run -3 tns-cat -d 'w=i64' "$DATA/meta.tns"
    run -3 tns-cat --slice 'a=0' "$DATA/pieces.tns"
    assert_output --partial 'join it first'
    tns-cat "$DATA/meta.tns" | cmp - "$DATA/meta.tns"
}

@test "values beyond a dtype: an error where the libraries differ, else as told" {
    tns-gen x:dtype=f32,shape=3,dist=constant,value=500 >big.tns
    run -2 tns-cat -d f8_e4m3fn big.tns -o o.tns
    assert_output --partial "'x': element 0: 500 is beyond f8_e4m3fn, 448 at most"
    [ ! -e o.tns ]
    tns-cat -d f8_e4m3fn --overflow saturate big.tns | tns-cat -d f32 >o.tns
    tns-diff <(tns-gen x:dtype=f32,shape=3,dist=constant,value=448) o.tns
    tns-cat -d f8_e4m3fn --overflow special big.tns | tns-ls --stats --json | grep -F '"nans":3'
    tns-cat -d f8_e5m2 big.tns | tns-check
}

@test "dtypes by the names of torch and numpy; streams keep the registry's" {
    tns-cat -d torch.float16 x.tns | cmp - <(tns-cat -d f16 x.tns)
    tns-cat -d 'l.*=bfloat16' x.tns | cmp - <(tns-cat -d 'l.*=bf16' x.tns)
    tns-gen w:dtype=half --shape 2x32 | cmp - <(tns-gen w --dtype f16 --shape 2x32)
    tns-gen w --dtype torch.int8 --shape 2 | cmp - <(tns-gen w --dtype i8 --shape 2)
    tns-gen w --shape 2x32 -o w.tns
    quantize -t float16 w.tns | cmp - <(quantize -t f16 w.tns)
    quantize -t q8_0 -r 'w=torch.bfloat16' w.tns | cmp - <(quantize -t q8_0 -r w=bf16 w.tns)
    run -2 tns-cat -d float17 x.tns
    assert_output --partial "'float17': unknown dtype"
}

@test "patterns that match nothing in the whole input are named, those that exclude are not" {
    run -0 --separate-stderr bash -c "tns-cat -s '*zzz*' -s 'l.*' -s 'l.0*' -e yyy -r q=r -r 'l\.0=k' \
        --slice p=0:1 --slice :1 -d o=f16 -d f16 -d l=f16 --order n --order b -x m -X m x.tns y.tns >o.tns"
    assert_equal "$stderr" "tns-cat: warning: --rename 'q=r' matches no tensor
tns-cat: warning: --slice 'p=0:1' matches no tensor
tns-cat: warning: --dtype 'o=f16' matches no tensor
tns-cat: warning: --select '*zzz*' matches no tensor
tns-cat: warning: --regex 'yyy' matches no tensor
tns-cat: warning: --order 'n' matches no tensor"
    assert_equal "$(list o.tns)" "k.w f16 1x6
l.1.w f16 1x6"
    run -0 --separate-stderr tns-cat -q -s zzz x.tns -o o.tns
    assert_equal "$stderr" ""
    run -0 --separate-stderr tns-ls -s l x.tns
    assert_equal "$stderr" "tns-ls: warning: --select 'l' matches no tensor"
}

@test "standard input is read once" {
    tns-gen a:shape=2 -o a.tns
    run -2 tns-cat - - <a.tns
    assert_output --partial 'standard input can be read once'
}

@test "a stream whose INDEX is not that of its records is refused, as tns-check does" {
    for file in "$ROOT"/tests/bad/EINDEX-*.tns; do
        for in in "$file" -; do
            run -3 tns-cat "$in" -o out.tns <"$file"
            assert_output --partial INDEX
            [ ! -e out.tns ]
            run -3 tns-check "$in" <"$file"
        done
    done
    for file in "$ROOT"/tests/bad/OK-index*.tns; do tns-cat "$file" | tns-check >/dev/null; done
    # What only tns-check looks at: the body of a PAD and unused bits.
    for file in "$ROOT"/tests/bad/EPAD-strict-*.tns; do
        tns-cat "$file" | tns-check >/dev/null || [ "${file##*-}" = bits.tns ]
        run -3 tns-check "$file"
    done
}
