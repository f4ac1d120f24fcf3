# SPDX-License-Identifier: Apache-2.0
# What every command and subcommand does at its edges (house rules, one file for all): the commands
# are those of $BIN, the subcommands those of --list=subcommands.
load helper

# each FUNCTION: call it with the words of every command and subcommand; all failures are shown.
each() {
    local command sub bad=0
    for command in "$BIN"/*; do
        command=${command##*/}
        "$1" "$command" || { echo "^ $command"; bad=1; }
        for sub in $("$command" --list=subcommands 2>/dev/null | cut -f1); do
            "$1" "$command" "$sub" || { echo "^ $command $sub"; bad=1; }
        done
    done
    return $bad
}

has() { "$@" --dump-options | cut -f4 | grep -qxFe "$option"; }
# A command that reads standard input when it has no operand says so itself: it takes an empty one
# for bad data. Others want an operand.
status_is() { # STATUS COMMAND...
    local want=$1 got=0
    shift
    "$@" >out 2>err || got=$?
    [ "$got" = "$want" ] || { echo "status $got, expected $want: $*"; cat err; return 1; }
}

help_() {
    status_is 0 "$@" --help && [ ! -s err ] && head -1 out | grep -q "^Usage: $*\( \|$\)" &&
        grep -q '^Exit status: ' out && cp out help && status_is 0 "$@" -h && cmp out help
}
@test "--help is on standard output and begins with the usage" { each help_; }

# Lines fit a terminal, a heading and a line stand once, and there is an example whose options exist.
layout_() {
    status_is 0 "$@" --help || return
    awk -v who="$*" '
        length > 100 { print "long: " $0; bad = 1 }
        /^[A-Z].*:$/ && heading[$0]++ { print "a second " $0; bad = 1 }
        /^  / { if (line[$0]++ && /--/) { print "twice: " $0; bad = 1 } }
        /^Example: / { example = 1 }
        END { if (!example) { print "no example"; bad = 1 } exit bad }' out || return
    sed -n 's/^Example: //p' out | sed 's/ *[<>] *[^ |]*//g' | tr '|' '\n' >parts
    grep -q "^ *$*\( \|$\)" parts || { echo "another command's example"; return 1; }
    local part
    while read -r part; do
        [ -x "$BIN/${part%% *}" ] || continue
        status_is 0 bash -c "$part --help" </dev/null || return
    done <parts
}
@test "--help fits a screen's width, says nothing twice and ends its usage with an example" { each layout_; }

version_() { status_is 0 "$@" --version && [ ! -s err ] && head -1 out | grep -qE "^$1 \(tensorutils\) [0-9.]+$"; }
@test "--version names the command and the version" { each version_; }

unknown_() {
    status_is 2 "$@" --no-such-option && [ ! -s out ] &&
        head -1 err | grep -q "^$1: unknown option '--no-such-option'" &&
        tail -1 err | grep -q "^Try '$* --help' for more information.$"
}
@test "an unknown option is a usage error that points to --help" { each unknown_; }

letters_() { # nobody gives the common letters another meaning
    "$@" --dump-options | awk -F'\t' '
        $2 == "own" && $3 ~ /^-[hVofjqv]$/ { print "taken: " $3 " " $4; bad = 1 }
        $3 != "" && seen[$1 $3]++ { print "twice: " $3; bad = 1 }
        seen[$1 $4]++ { print "twice: " $4; bad = 1 }
        NF != 8 || $8 == "" || $8 ~ /\.$/ || $8 ~ /^[A-Z][a-z]/ { print "help of " $4 ": " $8; bad = 1 }
        END { exit bad }'
}
@test "option letters and names are used once, helps are phrases" { each letters_; }

no_input_() {
    local got=0
    "$@" </dev/null >out 2>err || got=$?
    case $got in
    2 | 3 | 4) [ -s err ] ;;
    0) : ;; # works without input
    1) [ -s out ] ;; # so does it, and what it says "no" to is shown
    *) echo "status $got"; return 1 ;;
    esac
    [ $got = 0 ] || ! { [ -s out ] && ends out; }
}
@test "no input: an error with a message, or an answer" { each no_input_; }

closed_() { local got=0; "$@" --help >&- 2>err || got=$?; [ $got = 4 ] && grep -q "^$1: " err; }
@test "a closed standard output is status 4 with a message" { each closed_; }

full_() { local got=0; "$@" --help >/dev/full 2>err || got=$?; [ $got = 4 ] && grep -q "^$1: " err; }
@test "a full disk is status 4 with a message" { each full_; }

head_() {
    local got
    { set +e; "$@" --help; echo $? >status; } 2>err | head -c 1 >/dev/null
    got=$(cat status)
    { [ "$got" = 0 ] || [ "$got" = 141 ]; } && [ ! -s err ]
}
@test "a reader that leaves early is not an error to talk about" { each head_; }

locale_() {
    "$@" --help >out && LC_ALL=tr_TR.UTF-8 "$@" --help >err && cmp out err
}
@test "the locale changes nothing" { each locale_; }

shells_() {
    [ $# = 1 ] || return 0
    "$1" --completion=bash >c.bash && bash -n c.bash &&
        "$1" --completion=zsh >c.zsh && { ! command -v zsh >/dev/null || zsh -n c.zsh; } &&
        "$1" --completion=fish >c.fish && { ! command -v fish >/dev/null || fish -n c.fish; }
}
@test "completion scripts are valid in their shells" { each shells_; }

page_() { [ $# != 1 ] || tools_check_man "$1"; }
tools_check_man() {
    command -v mandoc >/dev/null || skip "mandoc is not installed"
    "$ROOT/tools/check-man" "$ROOT/man/$1.1"
}
@test "the manual page says what the option table says" { each page_; }

isa_() {
    TENSORUTILS_ISA=nonsense status_is 2 "$@" --help && TENSORUTILS_ISA=scalar status_is 0 "$@" --help
}
@test "TENSORUTILS_ISA is looked at" { each isa_; }

list_() {
    local option=--list
    has "$@" || return 0
    local table
    for table in $("$@" --list=tables | cut -f1); do
        status_is 0 "$@" --list="$table" && [ -s out ] && ! grep -qvP '^[^\t]+\t[^\t]+$' out ||
            { echo "table $table"; return 1; }
    done
    status_is 2 "$@" --list=no-such-table
}
@test "--list prints tables of name, TAB, help" { each list_; }

directory_() {
    local got=0
    mkdir -p folder
    "$@" folder </dev/null >out 2>err || got=$?
    # Commands that read directories, or whose operands are words, may accept it.
    [ $got = 0 ] || { [ -s err ] && ! ends out; }
}
@test "a folder as operand: read, or refused with a message" { each directory_; }

missing_() {
    local got=0
    "$@" ./no/such/file </dev/null >out 2>err || got=$?
    [ $got -ge 1 ] && [ $got -le 4 ] && grep -q "^$1: " err
}
@test "an operand that is no file is refused" { each missing_; }

@test "a limit on the size of files is an error of write, and leaves nothing" {
    tns-gen w --shape 256x256 -o in.tns
    mkdir out
    run -4 --separate-stderr bash -c 'ulimit -f 20; tns-cat in.tns -o out/x.tns'
    [[ $stderr == *'File too large'* ]]
    [ -z "$(ls -A out)" ]
}

@test "what never ends is not begun: a file that is input and output, a device, a bomb" {
    tns-gen a:shape=10 -o b.tns
    size=$(stat -c %s b.tns)
    run -2 bash -c 'tns-cat b.tns >>b.tns'
    assert_output --partial "'b.tns' is read and standard output too: use -o FILE"
    [ "$(stat -c %s b.tns)" = "$size" ]
    run -3 tns-import --from safetensors /dev/zero
    assert_output --partial 'a device, which may never end'
}
