#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# pipe-sched optimize: certificates, the exported program, an outside solver.
load helper

@test "a schedule with its certificate; the schedule is valid and as long as it says" {
    run -0 --separate-stderr pipe-sched optimize -p 4 -m 5 --cost F=5,I=5,W=5 --release split --memory-cap 3
    assert_equal "${stderr_lines[0]}" 'pipe-sched: span 105 by zb-1p, with one stage on a rank: lower bound 105, optimal'
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
    assert_equal "${stderr_lines[0]}" 'pipe-sched: least memory 3 M_B for span 105, with one stage on a rank: proven'
}

@test "a time cap: its certificate is of memory, and no time is a cap like any other" {
    run -2 pipe-sched optimize -p 2 -m 3 --time-cap 0
    assert_output --partial 'the time cap is not met with any memory'
    run -0 --separate-stderr pipe-sched optimize -p 4 -m 5 --cost F=7,I=7,W=5,C=2 --memory B=2,W=1 \
        --sync barrier --place v --effort 20000 --time-cap 117 --report r.json -o s.json
    assert_regex "$stderr" 'least memory ([0-9.]+) M_B for makespan [0-9]+, with two stages in a V: lower bound [0-9.]+, gap'
    needs_python
    run -0 python3 - <<'END'
import json
r = json.load(open("r.json"))
assert r["objective"] == "memory" and r["value"] == r["memory_cap"] and r["makespan"] <= 117
assert not r["optimal"] and 0 < r["bound"] < r["value"]
assert abs(r["gap"] - (r["value"] - r["bound"]) / r["value"]) < 1e-6
END
    pipe-sched sim --json s.json >sim
    (($(numbers makespan sim) <= 117 && $(numbers peak sim | sort -n | tail -n 1) <= $(numbers value r.json)))
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

@test "what an optimum is among, and a hint where another placement does better" {
    # Zero bubble in a V, memory of 1F1B: m · (F + I + W) = 96; with one stage a rank 103 is the least.
    run -0 --separate-stderr pipe-sched optimize -p 8 -m 32 --memory-cap 8 -o s.json
    assert_equal "$stderr" 'pipe-sched: span 103 by zb-h1, with one stage on a rank: lower bound 103, optimal
pipe-sched: --place=v: 96 or less; --place=any tries all'
    run -0 --separate-stderr pipe-sched optimize -p 8 -m 32 --memory-cap 8 --place any -o s.json --report r.json
    assert_regex "$stderr" 'span 96 by .*, with two stages in a V: lower bound 96, optimal$'
    grep -q '"place":"v","value":96,' r.json
    pipe-sched sim s.json | { run -0 cat; assert_line --partial 'span 96,'; }
    # Memory under a time cap, too; and no hint where nothing is better.
    run -0 --separate-stderr pipe-sched optimize -p 4 -m 8 --time-cap 30 --place any -o s.json
    assert_regex "$stderr" '^pipe-sched: least memory 2 M_B .* in a V: proven$'
    run -0 --separate-stderr pipe-sched optimize -p 1 -m 4 -o s.json
    refute_regex "$stderr" 'place='
    run -2 pipe-sched optimize -p 2 -m 6 --memory-cap 0.25 --place any
    run -2 pipe-sched optimize -p 2 -m 2 --place any --emit-lp
    run -2 pipe-sched optimize -p 2 -m 2 --effort 9 --emit-lp
}

@test "compare and optimize are in the same units: the times of a rank's share" {
    # v-half is one of the V schedules that optimize --place v may find: never shorter than its best.
    for cost in F=1 F=6,I=8,W=4,C=1 B=5; do
        half=$(pipe-sched compare -p 4 -m 8 --cost $cost v-half --json | grep -o '"span":"[0-9.]*' | cut -d'"' -f4)
        cap=$(pipe-sched compare -p 4 -m 8 --cost $cost v-half --json | grep -o '"peak":"[0-9.]*' | cut -d'"' -f4)
        pipe-sched optimize -p 4 -m 8 --cost $cost --memory-cap "$cap" --place v --effort 0 --report r.json -o s.json
        best=$(grep -o '"value":[0-9.]*' r.json | cut -d: -f2)
        awk "BEGIN { exit !($best <= $half && $best > 0.75 * $half) }" || { echo "$cost $best $half"; return 1; }
        # And the file says what it says.
        pipe-sched sim s.json | grep -q "span $best,"
    done
}

@test "the same schedule for the same seed" {
    pipe-sched optimize -p 4 -m 8 --place v --memory-cap 2.5 --effort 20000 >a 2>/dev/null
    pipe-sched optimize -p 4 -m 8 --place v --memory-cap 2.5 --effort 20000 >b 2>/dev/null
    cmp a b
}

@test "a large problem ends, and not behind a 1F1B that waits for memory" {
    run -0 --separate-stderr pipe-sched optimize -p 64 -m 512 --memory-cap 32 -o out.json
    pipe-sched sim --json out.json >sim
    (($(numbers span sim) <= 3100 && $(numbers peak sim | tail -n 1) <= 32))
}

@test "nothing that gen makes is better than what optimize finds" {
    for name in zb-1p zb-2p 2bp:fill=1 zb-h1 1f1b gpipe; do
        pipe-sched gen -s $name -p 5 -m 7 --cost F=3,I=5,W=2,C=1 | pipe-sched sim --json >sim
        numbers span sim
    done | sort -n >spans
    pipe-sched optimize -p 5 -m 7 --cost F=3,I=5,W=2,C=1 --effort 1 -o out.json
    pipe-sched sim --json out.json >sim
    [ "$(numbers span sim)" -le "$(head -n 1 spans)" ]
}
