# SPDX-License-Identifier: Apache-2.0
load helper

prepare() {
    tns-gen a b c:dtype=i4 --shape 3,5 -o x.tns
}

@test "sound files and pipes" {
    run -0 tns-check x.tns
    assert_line --regexp '^yes +1 +3 +3 +[0-9]+ +[0-9a-f]{8}  x.tns$'
    run -0 bash -c 'cat x.tns x.tns | tns-check --json'
    assert_output --partial '"valid":true,"segments":2,"records":6,"tensors":6'
}

@test "the digest is that of the content, not of the file's name" {
    cp x.tns y.tns
    assert_equal "$(tns-check --json x.tns | grep -o '"digest":"[^"]*"')" \
        "$(tns-check --json - <y.tns | grep -o '"digest":"[^"]*"')"
}

@test "a flipped payload bit is status 3, with its place" {
    cp x.tns y.tns
    printf '\377' | dd of=y.tns bs=1 seek=130 conv=notrunc status=none
    run -3 --separate-stderr tns-check y.tns
    assert_regex "$stderr" "y.tns: record 0 'a' at byte 0: payload checksum mismatch"
    run -3 --separate-stderr tns-check --json y.tns
    assert_output --partial '"valid":false'
    assert_output --partial '"code":"TU_EPCRC"'
    run -0 tns-check --quick y.tns # headers and digests only
}

@test "every prefix of a stream is refused" {
    local size n
    size=$(stat -c %s x.tns)
    for ((n = 0; n < size; n += 61)); do
        head -c $n x.tns | tns-check >/dev/null 2>&1 && { echo "accepted $n bytes"; return 1; }
    done
    return 0
}

@test "--recover goes on behind the damage and stays status 3" {
    cp x.tns y.tns
    printf '\377' | dd of=y.tns bs=1 seek=30 conv=notrunc status=none
    run -3 --separate-stderr tns-check --recover --json y.tns
    assert_output --partial '"tensors":2'
    refute_output --partial '"lost_bytes":0'
    # A record with a wrong payload is not counted either.
    tns-gen a b --shape 100 -o two.tns
    printf '\377' | dd of=two.tns bs=1 seek=300 conv=notrunc status=none
    run -3 --separate-stderr tns-check --recover --json two.tns
    assert_output --partial '"records":1,"tensors":1,"bytes":1280'
    run -3 --separate-stderr tns-check --json <(head -c 700 two.tns | tail -c 576)
    assert_output --partial '"records":0,"tensors":0'
}

@test "-o keeps the report, which says what is wrong" {
    head -c 300 x.tns >y.tns
    run -4 tns-check -o report x.tns y.tns none.tns
    tns-check x.tns y.tns none.tns >wanted 2>/dev/null || true
    [ "$(wc -l <report)" = 4 ]
    cmp report wanted
    run -4 shard-ckpt verify -o verified x.tns none.tns
    grep -q '^yes .* x.tns$' verified
    grep -q '^no .* none.tns$' verified
    run -2 tns-check --bad -o nothing y.tns
    run -3 tns-ls -o nothing y.tns # a list that is not whole
    [ ! -e nothing ]
}
