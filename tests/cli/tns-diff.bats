# SPDX-License-Identifier: Apache-2.0
load helper

prepare() {
    tns-gen w:dist=arange --shape 3,100 -o a.tns
    tns-gen w:dist=arange,dtype=bf16 --shape 3,100 -o b.tns
}

# npy NAME DESCR BYTES: an array of one element.
npy() {
    local dict="{'descr': '$2', 'fortran_order': False, 'shape': (1,)}"
    printf "\x93NUMPY\1\0\x$(printf %x ${#dict})\0%s$3" "$dict" >"$1.npy"
}

@test "equal files are a line, and none with -q" {
    cp a.tns c.tns
    run -0 tns-diff a.tns c.tns
    assert_output 'equal: 1 tensor'
    run -0 bash -c 'cat a.tns | tns-diff - a.tns'
    assert_output 'equal: 1 tensor'
    run -0 tns-diff -q a.tns c.tns
    assert_output ''
    run -0 tns-diff --json a.tns c.tns
    refute_output --partial 'equal:'
    run -0 --separate-stderr tns-diff -v a.tns c.tns
    assert_line --regexp '^equal +300 +0 +0 .* w$'
}

@test "another dtype differs, or is compared by value with a tolerance" {
    run -1 tns-diff a.tns b.tns
    assert_line --regexp '^dtype .* w$'
    run -0 tns-diff --rtol 0.01 a.tns b.tns
    assert_output "within tolerance: 1 tensor, worst off by 1 in 'w'"
    run -0 tns-diff -q --rtol 0.01 a.tns b.tns
    assert_output ''
    run -0 tns-diff --atol 1 a.tns b.tns
    run -1 tns-diff --atol 0.5 a.tns b.tns
    assert_line --regexp '^values +300 +22 +22 +1 +0.00390625 .* \[2,57\] +257 +256  w$'
    assert_line 'differ: 1 of 1 tensor'
}

@test "the report as JSON" {
    run -1 tns-diff --json --atol 0.5 a.tns b.tns
    assert_line --index 0 --partial '"schema":"tensorutils.tns-diff/1"'
    assert_line --index 1 --partial '"status":"values","dtype_a":"f32","dtype_b":"bf16","shape_a":[3,100]'
    assert_line --index 1 --partial '"worst":[2,57],"a":257.0,"b":256.0,"name":"w"'
    assert_line --index 2 '{"tensors":1,"equal":0,"within":0,"differ":1}'
    assert_line --index 3 '{"end":true,"status":1}'
}

@test "shapes and names" {
    tns-gen w:dist=arange --shape 100,3 -o t.tns
    run -1 tns-diff a.tns t.tns
    assert_line --regexp '^shape .* w$'
    cat a.tns t.tns >two.tns
    tns-gen v --shape 2 | cat a.tns - >other.tns
    run -1 tns-diff two.tns other.tns
    assert_line --regexp '^only in a .* w$'
    assert_line --regexp '^only in b .* v$'
    # One array each: the names do not matter.
    tns-export a.tns -o x.npy
    run -0 tns-diff a.tns x.npy
}

@test "--ulp, 64-bit integers, NaN" {
    npy p '<f4' '\0\0\x80\x3f'
    npy q '<f4' '\1\0\x80\x3f'
    run -1 tns-diff p.npy q.npy
    assert_line --regexp ' 1 +1 +1 .* 1 '
    run -0 tns-diff --ulp 1 p.npy q.npy
    npy i '<i8' '\0\0\0\0\0\0\x20\0'
    npy j '<i8' '\1\0\0\0\0\0\x20\0'
    run -1 tns-diff --atol 0 i.npy j.npy
    assert_line --regexp ' 9007199254740992 +9007199254740993  i$'
    run -0 tns-diff --atol 1 i.npy j.npy
    tns-gen n:dtype=f64,dist=constant,value=nan --shape 2 -o n.tns
    run -0 tns-diff --atol 0 n.tns n.tns
}

@test "damage is bad data, not a difference" {
    printf '\xff' | dd of=b.tns bs=1 seek=140 conv=notrunc status=none
    run -3 tns-diff --atol 1 a.tns b.tns
    assert_output --partial "checksum mismatch"
    run -0 tns-diff --no-crc --atol inf a.tns a.tns
    run -2 tns-diff - -
    run -2 tns-diff a.tns
    assert_output --partial 'expected 2 operands, got 1: tns-diff [option ...] a b'
}

@test "-j changes nothing" {
    tns-gen w --seed 1 --shape 1000,1000 -o r.tns
    tns-gen w --seed 2 --shape 1000,1000 -o s.tns
    for j in 1 7; do
        tns-diff -j$j --json --atol 1e-3 r.tns s.tns | grep -v '"schema"' | sha256sum
    done | uniq | wc -l | diff - <(echo 1)
}

@test "64-bit integers against other dtypes" {
    npy i '<i8' '\1\0\0\0\0\0\x20\0' # 2^53 + 1
    npy j '<u8' '\0\0\0\0\0\0\x20\0' # 2^53
    npy f '<f8' '\0\0\0\0\0\0\x40\x43' # 2^53
    for side in 'i j' 'j i' 'i f' 'f i'; do
        # shellcheck disable=SC2086 # two words
        set -- $side
        run -1 tns-diff --atol 0.5 "$1.npy" "$2.npy"
        run -0 tns-diff --atol 1 "$1.npy" "$2.npy"
    done
    run -0 tns-diff --rtol 0 j.npy f.npy
    # The ends: 2^64-1 and 2^63-1 become 2^64 and 2^63 as doubles.
    npy m '<u8' '\xff\xff\xff\xff\xff\xff\xff\xff'
    npy n '<i8' '\xff\xff\xff\xff\xff\xff\xff\x7f'
    npy g '<f8' '\0\0\0\0\0\0\xf0\x43' # 2^64
    npy h '<f8' '\0\0\0\0\0\0\xe0\x43' # 2^63
    for side in 'm g' 'n h'; do
        # shellcheck disable=SC2086 # two words
        set -- $side
        run -1 tns-diff --rtol 0 "$1.npy" "$2.npy"
        run -0 tns-diff --atol 1 "$1.npy" "$2.npy"
        run -0 tns-diff --rtol 0 "$1.npy" "$1.npy"
    done
}

@test "a tolerance is no negative number and no NaN" {
    for x in --rtol=-1 --atol=-0.5 --rtol=nan --atol=nan; do
        run -2 tns-diff $x a.tns a.tns
    done
}

@test "equal values in other bits are told from other values" {
    tns-gen z:dist=constant,value=0 --shape 4 --seed 1 -o p.tns
    tns-gen z:dist=constant,value=-0.0 --shape 4 --seed 1 -o n.tns
    run -1 tns-diff p.tns n.tns
    assert_line --index 1 --regexp '^bits +4 +0 +0 '
    run -0 tns-diff --atol 0 p.tns n.tns
}
