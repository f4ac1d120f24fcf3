#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The second implementation of the stream, examples/python/tns.py, against the commands: what one
# writes the other reads, and both refuse the same files with the same code.
load helper

prepare() {
    command -v python3 >/dev/null || skip 'no python3'
    examples=$ROOT/tests/fuzz/corpus/stream
}

tns() { python3 -B "$ROOT/examples/python/tns.py" "$@"; }

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

# "CODE-what": what Python says of every file of tests/bad, by code.
said() {
    tns check "$ROOT"/tests/bad/*.tns 2>&1 |
        sed -n 's|^tns.py: .*/bad/\([^:]*\)\.tns: .*(TU_\([A-Z]*\))$|\2 \1|p'
}

@test "python refuses every file of tests/bad, with the code of its name" {
    said >found
    for file in "$ROOT"/tests/bad/*.tns; do
        name=${file##*/} name=${name%.tns}
        [ "${name%%-*}" = OK ] || echo "${name%%-*} $name"
    done >expected
    diff expected found
}

@test "the commands refuse the same files" {
    need tns-check
    for file in "$ROOT"/tests/bad/*.tns; do
        name=${file##*/}
        run -"$([ "${name%%-*}" = OK ] && echo 0 || echo 3)" tns-check "$file"
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
