# SPDX-License-Identifier: Apache-2.0
# What cmd/common promises of every command, shown with the small tns- ones.
load helper

prepare() {
    tns-gen a b:dtype=bf16 c:dtype=i4,dist=arange --shape 3,5 -o x.tns
}

@test "an unreadable file is status 4, the others are still processed" {
    [ "$(id -u)" != 0 ] || skip "root reads everything"
    cp x.tns y.tns && chmod 0 y.tns
    run -4 tns-ls y.tns x.tns
    assert_output --partial 'y.tns: cannot open'
}

@test "several inputs: each failure is told, the highest status counts" {
    head -c 100 x.tns >short.tns
    run -4 --separate-stderr tns-ls short.tns ./absent x.tns
    assert_equal "${#stderr_lines[@]}" 2
    assert_output --partial 'bf16'
}

@test "binary output to a terminal is refused, unless -f" {
    needs_terminal
    run -2 script -qec "tns-cat x.tns" /dev/null
    assert_output --partial 'will not write binary data to a terminal'
    run -0 script -qec "tns-cat -f x.tns" /dev/null
}

@test "no operand and standard input a terminal: usage instead of waiting" {
    needs_terminal
    run -2 script -qec "tns-ls" /dev/null
    assert_output --partial 'Usage: tns-ls'
    assert_output --partial 'standard input is a terminal'
}

@test "-o appears whole or not at all" {
    tns-cat x.tns -o y.tns
    cmp x.tns y.tns
    head -c 300 x.tns >short.tns
    run -3 tns-cat short.tns -o z.tns
    only_files short.tns x.tns y.tns
    cp x.tns before.tns
    run -3 tns-cat short.tns -o x.tns
    cmp x.tns before.tns
}

@test "a signal leaves no file behind, and is the status" {
    local signal
    for signal in INT TERM HUP; do
        mkfifo pipe
        tns-cat pipe -o y.tns &
        local pid=$!
        exec 9>pipe
        head -c 300 x.tns >&9
        for _ in {1..200}; do # until the temporary file is there
            [ "$(find . -type f | wc -l)" -gt 1 ] && break
            sleep 0.02
        done
        # A background job of a script ignores SIGINT, and keeps ignoring it.
        [ "$signal" = INT ] && signal=TERM
        kill -s "$signal" $pid
        local got=0
        wait $pid || got=$?
        exec 9>&-
        rm pipe
        assert_equal "$(kill -l "$got")" "$signal"
        only_files x.tns
    done
}

@test "SIGPIPE: killed quietly by default, status 4 where it is ignored" {
    run bash -c 'tns-gen big --shape 4194304 2>err | head -c 1 >/dev/null; echo "${PIPESTATUS[0]}"'
    assert_output 141
    run bash -c "trap '' PIPE; tns-gen big --shape 4194304 2>err | head -c 1 >/dev/null; echo \"\${PIPESTATUS[0]}\""
    assert_output 4
    assert_equal "$(cat err)" ''
}

@test "messages hold no control bytes" {
    run -4 --separate-stderr tns-ls $'a\e[31m\nb'
    assert_equal "${#stderr_lines[@]}" 1
    refute_regex "$stderr" $'\e'
}

@test "--json begins with a schema and ends with the status, also after a failure" {
    run -0 tns-ls --json x.tns
    assert_line --index 0 --regexp '^\{"schema":"tensorutils.tns-ls/1","version":"[0-9.]+","command":"tns-ls"\}$'
    assert_line '{"end":true,"status":0}'
    head -c 300 x.tns >short.tns
    run -3 --separate-stderr tns-ls --json short.tns
    assert_equal "${lines[-1]}" '{"end":true,"status":3}'
    run -4 --separate-stderr tns-ls --json ./absent
    assert_equal "${lines[-1]}" '{"end":true,"status":4}'
    run -0 tns-ls --format json x.tns
    assert_line '{"end":true,"status":0}'
}

@test "--report writes the JSON beside the text" {
    tns-ls --report r.json x.tns >text
    tns-ls --json x.tns | diff - r.json
    tns-ls x.tns | diff - text
}

@test "a damaged first part is never followed by END" {
    local n
    for n in 10 64 130 200 400 500; do
        head -c $n x.tns | tns-cat >out.tns 2>/dev/null && return 1
        ! ends out.tns
    done
}

@test "/dev/full and a closed output with data" {
    run -4 bash -c 'tns-cat x.tns >/dev/full'
    assert_output --partial 'No space left on device'
    run -4 bash -c 'tns-cat x.tns >&-'
    run -4 bash -c 'tns-ls x.tns >/dev/full'
}

@test "progress: nothing on a pipe, a bar when asked for" {
    run -0 --separate-stderr bash -c 'tns-gen big --shape 4194304 >/dev/null'
    assert_equal "$stderr" ''
    run -0 --separate-stderr bash -c 'tns-gen big --shape 4194304 --progress >/dev/null'
    assert_regex "$stderr" '%'
}
