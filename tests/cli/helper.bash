# SPDX-License-Identifier: Apache-2.0
# helper.bash: loaded by every bats file: `load helper`.
#
# $BIN is in PATH, the current folder is the test's own and empty, $ROOT is the source tree.
# shellcheck shell=bash
load /usr/lib/bats/bats-support/load.bash
load /usr/lib/bats/bats-assert/load.bash
bats_require_minimum_version 1.8.0

: "${ROOT:=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}"
: "${BUILD:=$ROOT/build/last}"
: "${BIN:=$BUILD/bin}"
export ROOT BUILD BIN
export PATH=$BIN:$PATH

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    if declare -F prepare >/dev/null; then prepare; fi
}

# needs_terminal: skips where there are no pseudo-terminals (a bare chroot).
needs_terminal() { script -qec true /dev/null >/dev/null 2>&1 || skip 'no pseudo-terminals'; }

# needs_python: skips where there is no python3.
needs_python() { command -v python3 >/dev/null || skip 'no python3'; }

# ends FILE: does the tensor stream in FILE end with an END record?
ends() {
    [ "$(tail -c 128 "$1" | head -c 12 | xxd -p)" = 89544e530d0a1a0a01000200 ]
}

# only_files NAME...: nothing but the files named is in the current folder.
only_files() {
    local want have
    want=$(printf '%s\n' "$@" | LC_ALL=C sort)
    have=$(find . -mindepth 1 -printf '%P\n' | LC_ALL=C sort)
    [ "$want" = "$have" ] || { echo "files: $have"; echo "expected: $want"; return 1; }
}

# sanitized: was this built with a sanitizer, whose shadow memory no limit of ours fits?
sanitized() { ldd "$BIN/tns-gen" | grep -qE 'lib[a-z]*san\.'; }

# numbers KEY FILE: what stands behind "KEY": in a report, in rising order.
numbers() { grep -o "\"$1\":[0-9.]*" "$2" | cut -d: -f2 | sort -n; }
