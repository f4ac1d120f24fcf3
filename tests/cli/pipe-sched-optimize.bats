#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# pipe-sched optimize: certificates, the exported program, an outside solver.
load helper

@test "a schedule with its certificate; the schedule is valid and as long as it says" {
    run -0 --separate-stderr pipe-sched optimize -p 4 -m 5 --cost F=5,I=5,W=5 --release split --memory-cap 3
    assert_equal "$stderr" 'pipe-sched: span 105 by beam: lower bound 105, optimal'
    echo "$output" | { run -0 pipe-sched sim --release split; assert_line --partial 'span 105'; }
}

@test "the JSON report goes beside the schedule" {
    pipe-sched optimize -p 4 -m 4 --cost F=2,I=4,W=2 --release split --memory-cap 3 --report r.json >s.json 2>&-
    run -0 cat r.json
    assert_output --partial '"value":52'
    assert_output --partial '"optimal":true'
}

@test "the least memory for a time" {
    run -0 --separate-stderr pipe-sched optimize -p 4 -m 5 --cost F=5,I=5,W=5 --release split --time-cap 105
    assert_equal "$stderr" 'pipe-sched: least memory 3 M_B for span 105: proven'
}

@test "CBC finds the same optimum in the exported program" {
    command -v cbc >/dev/null || skip 'coinor-cbc is not installed'
    args='-p 3 -m 3 --cost F=4,I=3,W=5,C=1 --release split --memory-cap 2'
    # shellcheck disable=SC2086 # words
    pipe-sched optimize $args --emit-lp >a.lp
    cbc a.lp solve solu a.sol >/dev/null
    value=$(sed -n 's/^Optimal - objective value \([0-9]*\).*/\1/p' a.sol)
    # shellcheck disable=SC2086
    run -0 --separate-stderr pipe-sched optimize $args
    assert_regex "$stderr" "span $value .*optimal"
    # shellcheck disable=SC2086
    pipe-sched optimize $args --read-sol a.sol 2>/dev/null |
        { run -0 pipe-sched sim --release split; assert_line --partial "span $value"; }
}

@test "the same schedule for the same seed" {
    pipe-sched optimize -p 4 -m 8 --place v --memory-cap 2.5 --effort 20000 >a 2>/dev/null
    pipe-sched optimize -p 4 -m 8 --place v --memory-cap 2.5 --effort 20000 >b 2>/dev/null
    cmp a b
}
