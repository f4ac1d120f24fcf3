#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The second implementation of the stream, examples/python/tns.py, against the commands: what one
# writes the other reads, and both refuse the same files with the same code.
load helper

prepare() {
    command -v python3 >/dev/null || skip 'no python3'
    tns() { python3 -B "$ROOT/examples/python/tns.py" "$@"; }
    examples=$ROOT/tests/fuzz/corpus/stream
}

need() {
    local c
    for c; do [ -x "$BIN/$c" ] || skip "no $c"; done
}

@test "python reads what the commands write" {
    need tns-cat
    for n in 0 1 2 3 1-2; do
        tns-cat "$examples/example-$n.tns" >"$n.tns"
        tns check "$n.tns"
        cmp "$n.tns" "$examples/example-$n.tns"
    done
}

@test "the commands read what python writes" {
    need tns-check
    for n in 0 1 2 3 1-2; do
        tns copy <"$examples/example-$n.tns" >"$n.tns"
        cmp "$n.tns" "$examples/example-$n.tns"
        tns-check "$n.tns"
    done
}

@test "both refuse the same streams for the same reason" {
    need tns-check
    local file code status
    for file in "$ROOT"/tests/bad/*.tns; do
        code=${file##*/} code=${code%%-*}
        run -"$([ "$code" = OK ] && echo 0 || echo 3)" tns check "$file"
        [ "$code" = OK ] || assert_output --partial "(TU_$code)"
        run -"$([ "$code" = OK ] && echo 0 || echo 3)" tns-check "$file"
    done
}

@test "python refuses every file of tests/bad with the code of its name" {
    for file in "$ROOT"/tests/bad/*.tns; do
        code=${file##*/} code=${code%%-*}
        [ "$code" != OK ] || continue
        run -3 tns check "$file"
        assert_output --partial "(TU_$code)"
    done
}

@test "the committed bad streams are what their script makes" {
    mkdir -p tree/tests/bad tree/examples
    cp "$ROOT/tests/bad/make.py" tree/tests/bad/
    cp -r "$ROOT/examples/python" tree/examples/
    python3 -B tree/tests/bad/make.py
    # gzip's bytes depend on the version of zlib.
    diff -r -x '*-gzip.tns' -x make.py tree/tests/bad "$ROOT/tests/bad"
}
