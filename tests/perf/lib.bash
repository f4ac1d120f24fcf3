# SPDX-License-Identifier: Apache-2.0
# lib.bash: sourced by the scripts of tests/perf. One claim is one script; it prints JSON lines.
#
# A and B are run in turn, A B A B …, and the minimum of each counts: noise only ever adds. Under load
# from elsewhere nothing is judged ("judged":false), since a ratio of noise says nothing.
# shellcheck shell=bash
set -u
: "${BUILD:?}"
export PATH=$BUILD/bin:$BUILD/perf:$PATH
: "${SCRATCH:=/dev/shm}" "${RUNS:=5}" "${GIB:=8}"
work=$(mktemp -d "$SCRATCH/perf.XXXXXX") || exit 4
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# quiet: is the machine ours?
quiet() { awk -v n="$(nproc)" '{ exit !($1 < n * 0.75) }' /proc/loadavg; }

# once COMMAND: "SECONDS PEAK_KIB" of one run by sh; the script ends if it fails.
once() {
    local out
    out=$({ ceiling time sh -c "$1" >/dev/null 3>&4; } 4>&1) || exit 4
    case $out in *' 0') echo "${out% 0}" ;; *) echo "perf: failed: $1" >&2; exit 1 ;; esac
}

# ratio NAME UNIT GOAL BYTES A B [BEFORE]: time of A over time of B (lower is better, goal at most GOAL).
ratio() {
    local name=$1 goal=$2 bytes=$3 a=$4 b=$5 before=${6:-:} i ta tb
    local best_a=999999 best_b=999999 peak=0 judged=true t
    quiet || judged=false
    sh -c "$before"; once "$b" >/dev/null
    for ((i = 0; i < RUNS; i++)); do
        sh -c "$before"; t=$(once "$a") || exit; ta=${t% *}
        peak=$(awk -v x="$peak" -v y="${t#* }" 'BEGIN { print (x > y ? x : y) }')
        sh -c "$before"; t=$(once "$b") || exit; tb=${t% *}
        best_a=$(awk -v x="$best_a" -v y="$ta" 'BEGIN { print (x < y ? x : y) }')
        best_b=$(awk -v x="$best_b" -v y="$tb" 'BEGIN { print (x < y ? x : y) }')
    done
    sh -c "$before"
    awk -v name="$name" -v a="$best_a" -v b="$best_b" -v goal="$goal" -v bytes="$bytes" -v peak="$peak" \
        -v judged="$judged" -v runs="$RUNS" 'BEGIN {
        printf "{\"claim\":\"%s\",\"ours_s\":%.4f,\"ceiling_s\":%.4f,\"ours_gbs\":%.2f,\"ceiling_gbs\":%.2f,", \
            name, a, b, bytes / a / 1e9, bytes / b / 1e9
        printf "\"ratio\":%.3f,\"goal\":%s,\"peak_mib\":%.0f,\"runs\":%d,\"judged\":%s,\"met\":%s}\n", \
            a / b, goal, peak / 1024, runs, judged, a / b <= goal ? "true" : "false" }'
}
