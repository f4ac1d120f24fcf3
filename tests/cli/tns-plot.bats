#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
load helper

lines() { printf '{"schema":"x"}\n{"n":1,"s":2,"who":"a"}\n{"n":2,"s":4,"who":"a"}\n{"n":1,"s":3,"who":"b"}\n{"end":true}\n'; }

@test "a series for each value of --by, and the same bytes every time" {
    lines | tns-plot -x n -y s -b who -t 'Title & more' -o a.svg
    lines | tns-plot -x n -y s -b who -t 'Title & more' >b.svg
    cmp a.svg b.svg
    run -0 cat a.svg
    assert_output --partial '>a</text>'
    assert_output --partial '>b</text>'
    assert_output --partial 'Title &amp; more'
}

@test "bars are named by the x key" {
    lines | tns-plot -x who -y s -k bars -o a.svg
    run -0 cat a.svg
    assert_output --partial '>a</text>'
}

@test "no point is an error, and so is a line that is not JSON" {
    run -3 tns-plot -x no -y s <<<'{"n":1,"s":2}'
    assert_output --partial "no line has both 'no' and 's' as numbers; there are: n, s"
    run -3 bash -c "$(declare -f lines); lines | tns-plot -x n -y bytes"
    assert_output --partial 'there are: n, s'
    run -3 bash -c "$(declare -f lines); lines | tns-plot -x who -y s"
    assert_output --partial "'who' is a text: it names bars (-k bars)"
    run -3 tns-plot -x n -y s <<<'nonsense'
    assert_output --partial 'line 1'
    run -2 tns-plot -x n <<<'{}'
}

@test "the ends of what a double holds" {
    for y in '1e-320 5e-324' '0 1e-320' '-1e-320 1e-320' '1e308 1e307' '1e-320 1e308'; do
        # shellcheck disable=SC2086 # words
        set -- $y
        printf '{"x":1,"y":%s}\n' "$@" >data.jsonl
        for scale in '' --log-y --zero; do
            run -0 tns-plot -x x -y y $scale data.jsonl
            refute_output --regexp '[" ,ML]-?(nan|inf)'
        done
    done
    printf '{"x":1,"y":%s}\n' 1e308 -1e308 >data.jsonl
    run -2 tns-plot -x x -y y data.jsonl
    assert_output --partial 'not a finite number'
}

@test "what has no lines is left soon, and named" {
    run -3 tns-plot --x a --y b /dev/zero
    assert_output 'tns-plot: /dev/zero: line 1: longer than 1048576 bytes'
    { printf '{"a":1,"b":2}\n\n'; head -c 2000000 /dev/zero; } >some
    run -3 tns-plot --x a --y b some
    assert_output 'tns-plot: some: line 3: longer than 1048576 bytes'
}
