# SPDX-License-Identifier: Apache-2.0
# tns-import and tns-export on files by the real producers; lib's tests prove the bytes.
# shellcheck disable=SC2002 # pipes are what is tested
load helper

prepare() { data=$ROOT/tests/data; }

@test "each file of several is a segment, named after itself" {
    tns-import "$data/npy/le_f32.npy" "$data/npy/be_f32.npy" >x.tns
    tns-ls --json x.tns | grep -c '"segment":1.*"name":"be_f32"' | diff - <(echo 1)
    tns-check x.tns
}

@test "files, pipes and redirections import the same" {
    tns-import "$data/gguf/blocks.gguf" >want
    tns-import <"$data/gguf/blocks.gguf" | cmp want -
    cat "$data/gguf/blocks.gguf" | tns-import | cmp want -
    cat "$data/npy/fortran_be.npy" | tns-import | tns-ls | grep ' arr_0$'
}

@test "--keep-header: every byte comes back" {
    for file in "$data"/npy/fortran_be.npy "$data"/npy/pad16.npy "$data"/safetensors/metadata*.safetensors; do
        [ -e "$file" ] || continue
        tns-import --keep-header "$file" | tns-export --keep-header -o "copy.${file##*.}"
        cmp "$file" "copy.${file##*.}"
    done
}

@test "without --keep-header big-endian and Fortran order come back as well" {
    for name in be_f64 fortran fortran_be le_c128; do
        tns-import "$data/npy/$name.npy" | tns-export -o copy.npy
        cmp "$data/npy/$name.npy" copy.npy
    done
}

@test "npy: old paddings and later versions come back as well" {
    for name in v1 v2 v3 pad16 long_shape scalar; do
        tns-import "$data/npy/$name.npy" | tns-export --to npy -f -o copy.npy
        cmp "$data/npy/$name.npy" copy.npy
    done
}

@test "npz: arrays of every version and order come back, in the archive's order" {
    needs_python
    python3 - "$data/npy" <<'PY'
import sys, zipfile
with zipfile.ZipFile("a.npz", "w") as z:
    for name in "v3 fortran_be pad16 be_f64 v2 scalar".split():
        z.write(f"{sys.argv[1]}/{name}.npy", name + ".npy")
PY
    tns-import a.npz | tns-export -o b.npz
    python3 - <<'PY'
import zipfile
a, b = zipfile.ZipFile("a.npz"), zipfile.ZipFile("b.npz")
assert a.namelist() == b.namelist(), b.namelist()
for name in a.namelist():
    assert a.read(name) == b.read(name), name
PY
}

@test "npy: a header that was kept is not that of a changed array" {
    tns-import "$data/npy/v2.npy" | tns-cat --slice :2 | tns-export -o part.npy
    head -c 8 part.npy | cmp - <(printf '\223NUMPY\1\0')
    tns-import part.npy | tns-ls | grep '^f64 *2x5 '
    tns-import "$data/npy/v2.npy" | tns-cat -d f32 | tns-export -o cast.npy
    head -c 8 cast.npy | cmp - <(printf '\223NUMPY\1\0')
    run -3 bash -c "tns-import $data/npy/v2.npy | tns-cat --slice :2 | tns-export --keep-header -o no.npy"
    assert_output --partial "no header was kept"
    tns-import "$data/npy/fortran.npy" | tns-cat --slice :2 | tns-export -o rows.npy
    grep -aq "'fortran_order': False" rows.npy
}

@test "a folder of the hub cache stands for its main snapshot" {
    mkdir -p hub/models--a--b/refs hub/models--a--b/snapshots/0123
    tns-gen w --shape 2 | tns-export -o hub/models--a--b/snapshots/0123/model.safetensors
    run -3 tns-import hub/models--a--b
    assert_output --partial "snapshots/HASH"
    printf 0123 >hub/models--a--b/refs/main
    tns-import hub/models--a--b | cmp - <(tns-import hub/models--a--b/snapshots/0123)
    tns-ls hub/models--a--b | grep ' w$'
}

@test "gguf: key-values keep their order, and an architecture is a text" {
    needs_python
    python3 - <<'PY'
import struct
def text(s): return struct.pack("<Q", len(s)) + s
def file(path, *pairs):
    info = text(b"w") + struct.pack("<IQIQ", 1, 8, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(pairs)) + b"".join(pairs) + info
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + bytes(range(32)))
arch = text(b"general.architecture") + struct.pack("<I", 8) + text(b"test")
name = text(b"general.name") + struct.pack("<I", 8) + text(b"n")
blocks = text(b"test.block_count") + struct.pack("<II", 4, 1)
last = text(b"a.last") + struct.pack("<IB", 7, 1)
file("a.gguf", arch, blocks, name, last)
file("b.gguf", text(b"general.architecture") + struct.pack("<II", 4, 1))
PY
    tns-import a.gguf | tns-export -o copy.gguf
    cmp a.gguf copy.gguf
    tns-import a.gguf | tns-cat | tns-export --max-shard-size 1G -o set.gguf
    tns-import set-00001-of-00001.gguf | tns-export -o copy.gguf -f
    cmp a.gguf copy.gguf
    run -0 --separate-stderr tns-import -o b.tns b.gguf
    # shellcheck disable=SC2154 # set by run
    [[ $stderr == *"b.gguf: general.architecture has value type 4, expected 8, a text"* ]]
    run -0 --separate-stderr tns-import -o a.tns a.gguf
    [ -z "$stderr" ]
}

@test "raw elements need --void" {
    run -3 tns-import "$data/npy/void_bf16.npy"
    assert_output --partial -- '--void=bf16'
    tns-import --void bf16 "$data/npy/void_bf16.npy" | tns-ls | grep '^bf16'
    tns-gen w:dtype=bf16 --shape 2 >w.tns
    run -3 tns-export w.tns -o w.npy
    assert_output --partial -- '--npy-raw'
    tns-export --npy-raw w.tns -o w.npy
    tns-import w.npy | tns-ls | grep '^u16'
    only_files w.tns w.npy
}

@test "a failing file leaves no end" {
    head -c 100 "$data/npy/le_f32.npy" >bad.npy
    run -3 --separate-stderr bash -c "tns-import $data/npy/le_f32.npy bad.npy >out.tns"
    # shellcheck disable=SC2154 # set by run
    [[ $stderr == "tns-import: bad.npy: "* ]]
    run -3 tns-check out.tns
    run ends out.tns
    assert_failure
}

@test "objects, other byte orders and strangers are refused by name" {
    run -3 tns-import "$data/npy/refuse_object.npy"
    assert_output --partial "pickled objects"
    run -3 tns-import "$data/gguf/refuse_big_endian.gguf"
    assert_output --partial "big-endian"
    echo x | gzip >x.gz
    run -3 tns-import x.gz
    assert_output --partial "gzip"
    : >empty
    run -3 tns-import empty
    assert_output --partial "empty"
    run -2 tns-import --keep-header "$data/gguf/plain.gguf"
}

@test "--from and --list=formats" {
    run -3 tns-import --from npy "$data/gguf/plain.gguf"
    run -2 tns-import --from nonsense x
    run -0 tns-import --list=formats
    assert_line --regexp $'^safetensors\t'
}

@test "a folder of shards, by folder and by index" {
    tns-import "$data/hf/llama_sharded" >a.tns
    tns-import "$data/hf/llama_sharded/model.safetensors.index.json" | cmp a.tns -
    tns-diff "$data/hf/llama_sharded" a.tns
}

@test "-j changes nothing" {
    tns-gen a b --shape 300,1000 | tns-export -j1 -o a.safetensors
    for j in 1 7; do
        tns-import -j$j a.safetensors | sha256sum
    done | uniq | wc -l | diff - <(echo 1)
}

@test "--report says what was read" {
    tns-import --report r.json "$data/npy/le_f32.npy" >/dev/null
    grep -F '"format":"npy","tensors":1,"bytes":24,"stored_bytes":152' r.json
}

@test "torch: globals are listed, nothing is run, --strict refuses what is not known" {
    run -0 tns-import --globals "$data/torch/new_case2.pt"
    assert_line --index 0 'OFFSET  KNOWN  GLOBAL'
    assert_line --regexp ' yes +torch FloatStorage$'
    run -0 tns-import --globals --json "$data/torch/new_case2.pt"
    assert_line --partial '"known":true,'
    tns-import "$data/torch/new_module_refuse.pt" >/dev/null || [ $? = 3 ]
    run -3 tns-import --strict "$data/torch/new_module_refuse.pt"
    run -3 tns-import "$data/torch/old_system_refuse.pt"
}

@test "there and back through every format that holds f32" {
    tns-gen a:dist=arange b --dtype f32 --shape 4,32 -o x.tns
    for format in tns npz safetensors torch; do
        tns-export x.tns --to "$format" -o "y.$format"
        tns-diff x.tns "y.$format"
        tns-import "y.$format" | tns-diff x.tns -
    done
}

@test "--skip-unreadable: an array of texts beside numbers is left out, else it is an error" {
    needs_python
    local text='text.npy' # a header of dtype <U1, one element
    tns-gen a --shape 4 | tns-export -o n.npz
    tns-cat n.npz >/dev/null
    {
        printf '\x93NUMPY\x01\x00\x76\x00'
        printf '%-117s\n' "{'descr': '<U1', 'fortran_order': False, 'shape': (1,), }"
        printf 'x\0\0\0'
    } >"$text"
    python3 -c 'import sys, zipfile; zipfile.ZipFile("n.npz", "a").write(sys.argv[1])' "$text"
    run -3 tns-import n.npz -o o.tns
    run -3 tns-cat n.npz -o o.tns
    run -0 --separate-stderr tns-import --skip-unreadable n.npz -o o.tns
    assert_regex "$stderr" "member 'text.npy': .*; it is left out"
    tns-cat --skip-unreadable n.npz | cmp - o.tns
    tns-ls o.tns | grep -c f32 | grep -x 1
}

@test "torch: an entry that no tensor needs is verified too" {
    needs_python
    python3 - "$data/torch/new_bare.pt" <<'PY'
import sys, zipfile
old = zipfile.ZipFile(sys.argv[1])
folder = old.namelist()[0].split("/")[0]
for at in "first", "last":
    with zipfile.ZipFile(at + ".pt", "w") as new:
        if at == "first":
            new.writestr(folder + "/notes", "SOUND and of no use")
        for name in old.namelist():
            new.writestr(name, old.read(name))
        if at == "last":
            new.writestr(folder + "/notes", "SOUND and of no use")
PY
    for at in first last; do
        tns-import $at.pt | tns-check >/dev/null
        run -0 shard-ckpt verify $at.pt
        LC_ALL=C sed -i 's/SOUND/RUINS/' $at.pt
        run -3 tns-import $at.pt -o out.tns
        assert_output --partial "notes': checksum mismatch"
        [ ! -e out.tns ]
        run -3 shard-ckpt verify $at.pt
        assert_output --partial "notes': checksum mismatch"
        tns-import --no-crc $at.pt | tns-check >/dev/null
    done
}
